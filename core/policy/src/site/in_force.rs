//! What counts at a label of what operators have set: the last that has it.

use super::placed::Placed;
use super::posture::Posture;
use super::vault::VaultKind;
use super::{Site, vault};
use crate::label::{Label, Range};
use crate::names::{PostureName, RangeName};
use crate::vocabulary::SyntaxError;

impl Site {
    /// A posture by name.
    pub fn posture(&self, name: &PostureName) -> Option<&Posture> {
        self.postures.iter().find(|one| one.name() == name)
    }

    /// The labels of a range.
    ///
    /// # Errors
    /// The site has no such range.
    pub fn range(&self, name: &RangeName) -> Result<Range, SyntaxError> {
        self.vocabulary.parse_range(name.as_str())
    }

    /// What somebody means who says this, in the site's own words.
    ///
    /// # Errors
    /// The site has no such posture or range, or the posture is for no label of it; with what to write instead.
    pub fn place(&self, said: &Placed) -> Result<Placed, String> {
        let own = match &said.posture {
            None => None,
            Some(name) => {
                let all = self.postures.iter().map(|one| one.name().as_str()).chain([Posture::DEFAULT]);
                let all: Vec<&str> = all.collect();
                let unknown = || format!("the site has no posture `{name}`; it has: {}", all.join(" "));
                self.posture(name).ok_or_else(unknown)?.labels()
            }
        };
        let mut labels = Vec::new();
        for name in said.ranges() {
            let range =
                self.range(name).map_err(|fault| format!("`{name}`: {}; {}", fault.what, fault.remedy))?;
            if let Some(own) = own.filter(|own| !vault::overlap(std::slice::from_ref(&range), Some(own))) {
                let own: Vec<String> =
                    own.iter().filter_map(|range| self.vocabulary.print_range(range)).collect();
                return Err(format!(
                    "posture `{}` is for no label of `{name}`: its own are {}",
                    said.name(),
                    own.join(", ")
                ));
            }
            let printed = self.vocabulary.print_range(&range).and_then(|text| RangeName::new(&text).ok());
            let printed = printed.ok_or_else(|| format!("`{name}` is too long"))?;
            if !labels.contains(&printed) {
                labels.push(printed);
            }
        }
        let labels = said.labels.is_some().then_some(labels);
        if labels.as_ref().is_some_and(Vec::is_empty) {
            return Err("name a range of labels".to_owned());
        }
        let placed = Placed { posture: said.posture.clone(), labels };
        match self.is_below_floors(&placed) {
            true => Err(format!(
                "posture `{}` would count nowhere: postures after it in the site file are the floor of all these labels",
                placed.name()
            )),
            false => Ok(placed),
        }
    }

    /// Whether a posture would count at no label, since at each a later one is the floor. The default ends others, wherever it is set.
    fn is_below_floors(&self, placed: &Placed) -> bool {
        let rank = placed.posture.as_ref().and_then(|name| self.rank(name));
        let after = rank.and_then(|rank| self.postures.get(rank + 1..)).unwrap_or_default();
        let floors: Vec<&Range> = after.iter().flat_map(Posture::floor).collect();
        let ranges = self.possible(placed);
        rank.is_some() && ranges.iter().all(|range| floors.iter().any(|floor| floor.includes(range)))
    }

    /// Where a posture stands in the file: those that come after it ask for more.
    fn rank(&self, name: &PostureName) -> Option<usize> {
        self.postures.iter().position(|one| one.name() == name)
    }

    /// The posture below which no label of a range falls, and that range, as the site writes it.
    pub fn floors(&self) -> Vec<Placed> {
        let of = |posture: &Posture| {
            let ranges = posture.floor().iter().filter_map(|range| self.vocabulary.print_range(range));
            let labels: Vec<RangeName> = ranges.filter_map(|text| RangeName::new(&text).ok()).collect();
            Placed { posture: Some(posture.name().clone()), labels: Some(labels) }
        };
        self.postures.iter().map(of).filter(Placed::is_sound).collect()
    }

    /// Whether nobody can know where this counts: the site does not have a range of it any more.
    pub fn is_in_doubt(&self, placed: &Placed) -> bool {
        let is_known = placed.posture.as_ref().is_none_or(|name| self.posture(name).is_some());
        is_known && placed.ranges().any(|range| self.range(range).is_err())
    }

    /// Which posture counts at a label where these are in force: the last that has it, or its floor where that asks for more.
    /// Where nobody can know which one counts, since the site does not have a range any more, [`Posture::in_doubt`] does.
    pub fn posture_at<'a>(
        &self,
        label: &Label,
        in_force: impl DoubleEndedIterator<Item = &'a Placed>,
    ) -> Option<&Posture> {
        let set = self.set_at(label, in_force);
        // The default has no rank, and comes before all; doubt comes after all.
        let rank = match set {
            Some(posture) if std::ptr::eq(posture, Posture::in_doubt()) => return set,
            set => set.and_then(|posture| self.rank(posture.name())),
        };
        let mut floors = self.postures.iter().enumerate().rev();
        let floor = floors.find(|(_, posture)| posture.is_floor_of(label));
        floor.filter(|(floor, _)| Some(*floor) > rank).map(|(_, posture)| posture).or(set)
    }

    /// The last of these that has a label. A posture that the site does not have any more says nothing.
    fn set_at<'a>(
        &self,
        label: &Label,
        in_force: impl DoubleEndedIterator<Item = &'a Placed>,
    ) -> Option<&Posture> {
        // What counts unless something else does, if that is so.
        let mut perhaps: Option<Option<&Posture>> = None;
        let is_other = |perhaps: Option<Option<&Posture>>, posture: Option<&Posture>| {
            perhaps.is_some_and(|perhaps| perhaps.map(Posture::name) != posture.map(Posture::name))
        };
        for placed in in_force.rev() {
            let posture = match &placed.posture {
                None => None,
                Some(name) => match self.posture(name) {
                    Some(posture) if posture.covers(label) => Some(posture),
                    _ => continue,
                },
            };
            let mut read = placed.ranges().map(|range| self.range(range));
            let is_here = placed.labels.is_none() || read.any(|one| one.is_ok_and(|one| one.contains(label)));
            if !is_here && !self.is_in_doubt(placed) {
                continue;
            }
            if is_other(perhaps, posture) {
                return Some(Posture::in_doubt());
            }
            if is_here {
                return posture;
            }
            perhaps = Some(posture);
        }
        is_other(perhaps, None).then(Posture::in_doubt)
    }

    /// What is in force when this is set over a list of what was. It replaces what the same posture had at these ranges, as they are written; the
    /// default, what any posture had at these. One posture never ends another: what is over it may end sooner, or
    /// the site file may be another then.
    pub fn with<T>(&self, list: Vec<T>, new: T, of: impl Fn(&T) -> &Placed) -> Vec<T> {
        let what = of(&new);
        let is_replaced = |one: &Placed| {
            let is_alike = what.posture.is_none() || one.posture == what.posture;
            is_alike && what.includes(one)
        };
        let mut all: Vec<T> = list.into_iter().filter(|one| !is_replaced(of(one))).collect();
        all.push(new);
        self.seen(all, of)
    }

    /// Of a list of what was set, all but the default where it is over nothing.
    pub fn seen<T>(&self, list: Vec<T>, of: impl Fn(&T) -> &Placed) -> Vec<T> {
        let mut kept: Vec<T> = Vec::new();
        for one in list {
            let ranges = self.possible(of(&one));
            let is_over = |below: &T| vault::overlap(&self.possible(of(below)), Some(&ranges));
            if of(&one).posture.is_some() || kept.iter().any(is_over) {
                kept.push(one);
            }
        }
        kept
    }

    /// The labels at which this can count; where nobody can know, all that its posture is for.
    fn possible(&self, placed: &Placed) -> Vec<Range> {
        let posture = placed.posture.as_ref().and_then(|name| self.posture(name));
        let own = match posture.and_then(Posture::labels) {
            Some(own) => own.to_vec(),
            None => vec![self.vocabulary.whole()],
        };
        let given: Result<Vec<Range>, _> = placed.ranges().map(|range| self.range(range)).collect();
        match given {
            Ok(given) if placed.labels.is_some() => {
                own.iter().flat_map(|own| given.iter().filter_map(|range| own.intersection(range))).collect()
            }
            _ => own,
        }
    }

    /// What stands at a label's tunnel where these are in force; `None`: nobody has said which are, and any counts in which stacks must agree.
    pub fn vault_in_force(&self, label: &Label, in_force: Option<&[Placed]>) -> VaultKind {
        let posture = match in_force {
            Some(in_force) => self.posture_at(label, in_force.iter()),
            None => self.postures.iter().find(|posture| posture.covers(label) && posture.agrees()),
        };
        self.vault_under(label, posture)
    }
}

//! Choosing among many labels: a level first, then categories; or by typing a part of the name.

use levee_ipc::client::Lattice;
use levee_policy::LabelName;
use std::collections::BTreeSet;

/// More labels than these are not put into the menu one by one.
pub const FEW: usize = 12;

/// A label taken apart: its level, its categories, and what is behind the `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts<'a> {
    level: &'a str,
    categories: BTreeSet<&'a str>,
    integrity: &'a str,
}

fn parts(label: &str) -> Parts<'_> {
    let (class, integrity) = label.split_once('@').unwrap_or((label, ""));
    let (level, list) = class.split_once("//").unwrap_or((class, ""));
    Parts { level, categories: list.split(',').filter(|name| !name.is_empty()).collect(), integrity }
}

/// What a person may choose from.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// Every label, lowest first; of more than the server lists, the ends.
    pub labels: Vec<LabelName>,
    /// What they are made of, where they are too many to list.
    pub lattice: Option<Lattice>,
}

impl Offer {
    /// Whether the menu has them one by one.
    pub fn is_few(&self) -> bool {
        self.lattice.is_none() && self.labels.len() <= FEW
    }

    /// How many labels there are, in words.
    pub fn count(&self) -> String {
        match &self.lattice {
            Some(lattice) => lattice.count.to_string(),
            None => self.labels.len().to_string(),
        }
    }

    fn levels(&self) -> Vec<String> {
        match &self.lattice {
            Some(lattice) => lattice.levels.clone(),
            None => distinct(self.labels.iter().map(|label| parts(label.as_str()).level)),
        }
    }

    fn integrities(&self) -> Vec<String> {
        match &self.lattice {
            Some(lattice) => lattice.integrity.clone(),
            None => distinct(self.labels.iter().map(|label| parts(label.as_str()).integrity)),
        }
    }

    /// The categories that some label of this level has, and those that each of them has.
    fn categories(&self, level: &str) -> (Vec<String>, BTreeSet<String>) {
        if let Some(lattice) = &self.lattice {
            return (lattice.categories.clone(), lattice.needed.iter().cloned().collect());
        }
        let of_level: Vec<Parts<'_>> = self
            .labels
            .iter()
            .map(|label| parts(label.as_str()))
            .filter(|parts| parts.level == level)
            .collect();
        // In the order of the label that has the most: that is the site's own.
        let mut by_size: Vec<&LabelName> =
            self.labels.iter().filter(|label| parts(label.as_str()).level == level).collect();
        by_size.sort_by_key(|label| std::cmp::Reverse(parts(label.as_str()).categories.len()));
        let written = by_size.iter().flat_map(|label| {
            let class = label.as_str().split('@').next().unwrap_or_default();
            class.split_once("//").map_or("", |(_, list)| list).split(',').filter(|name| !name.is_empty())
        });
        let all = distinct(written);
        let needed =
            all.iter().filter(|name| of_level.iter().all(|parts| parts.categories.contains(name.as_str())));
        (all.clone(), needed.cloned().collect())
    }

    /// The label of these parts as the server lists it; `None` where it lists all and this is not among them.
    fn label(&self, level: &str, ticked: &BTreeSet<String>, integrity: &str) -> Option<LabelName> {
        let wanted = Parts { level, categories: ticked.iter().map(String::as_str).collect(), integrity };
        if let Some(listed) = self.labels.iter().find(|label| parts(label.as_str()) == wanted) {
            return Some(listed.clone());
        }
        let lattice = self.lattice.as_ref()?;
        let order = lattice.categories.iter().filter(|name| ticked.contains(*name));
        let list: Vec<&str> = order.map(String::as_str).collect();
        let mut text = level.to_owned();
        if !list.is_empty() {
            text += "//";
            text += &list.join(",");
        }
        if !integrity.is_empty() {
            text += "@";
            text += integrity;
        }
        LabelName::new(&text).ok()
    }

    /// The labels whose names have every word that was typed in them, in any case. Where not all are listed, who types two slashes means one
    /// label, and the highest, which has every word, is not it.
    pub fn matching(&self, typed: &str) -> Vec<LabelName> {
        if self.lattice.is_some() && typed.contains("//") {
            let text: String = typed.chars().filter(|character| !character.is_whitespace()).collect();
            let text = text.to_ascii_uppercase();
            let same = |label: &&LabelName| parts(&label.as_str().to_ascii_uppercase()) == parts(&text);
            return self.labels.iter().filter(same).cloned().collect();
        }
        let words: Vec<String> = typed
            .split([' ', ',', '/'])
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_uppercase)
            .collect();
        let fits = |label: &&LabelName| {
            let name = label.as_str().to_ascii_uppercase();
            words.iter().all(|word| name.contains(word.as_str()))
        };
        self.labels.iter().filter(fits).cloned().collect()
    }

    /// The label that somebody means who has typed this and nothing else; the server knows any case and order.
    pub fn typed(&self, typed: &str) -> Option<LabelName> {
        let text: String = typed.chars().filter(|character| !character.is_whitespace()).collect();
        LabelName::new(&text).ok()
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.iter().any(|known| known == name) {
            all.push(name.to_owned());
        }
    }
    all
}

/// A row of the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    Level(usize),
    Category(usize),
    Integrity(usize),
    Open,
}

/// What came of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Picked {
    /// Nothing yet.
    Nothing,
    /// This label.
    Label(LabelName),
    /// These parts make no label that may be chosen.
    None,
}

/// A label that is being put together.
#[derive(Clone, Debug)]
pub struct Picker {
    offer: Offer,
    levels: Vec<String>,
    categories: Vec<String>,
    needed: BTreeSet<String>,
    integrities: Vec<String>,
    level: usize,
    integrity: usize,
    ticked: BTreeSet<String>,
    /// The row that is chosen.
    pub chosen: usize,
}

impl Picker {
    /// Begins with the lowest level and what it needs.
    pub fn new(offer: Offer) -> Self {
        let (levels, integrities) = (offer.levels(), offer.integrities());
        let mut picker = Self {
            offer,
            levels,
            integrities,
            categories: Vec::new(),
            needed: BTreeSet::new(),
            level: 0,
            integrity: 0,
            ticked: BTreeSet::new(),
            chosen: 0,
        };
        picker.take_level(0);
        picker
    }

    fn take_level(&mut self, level: usize) {
        self.level = level;
        let name = self.levels.get(level).map_or("", String::as_str);
        (self.categories, self.needed) = self.offer.categories(name);
        let there: BTreeSet<String> = self.categories.iter().cloned().collect();
        self.ticked = self.ticked.intersection(&there).cloned().chain(self.needed.iter().cloned()).collect();
    }

    fn rows(&self) -> Vec<Row> {
        let integrities = if self.integrities.len() > 1 { self.integrities.len() } else { 0 };
        (0..self.levels.len())
            .map(Row::Level)
            .chain((0..self.categories.len()).map(Row::Category))
            .chain((0..integrities).map(Row::Integrity))
            .chain([Row::Open])
            .collect()
    }

    /// The label as it stands.
    pub fn label(&self) -> Option<LabelName> {
        let level = self.levels.get(self.level)?;
        let integrity = self.integrities.get(self.integrity).map_or("", String::as_str);
        self.offer.label(level, &self.ticked, integrity)
    }

    /// The rows in words.
    pub fn lines(&self) -> Vec<String> {
        let name = |all: &[String], at: usize| all.get(at).cloned().unwrap_or_default();
        let dot = |on| if on { "(*)" } else { "( )" };
        let rows = self.rows().into_iter();
        rows.map(|row| match row {
            Row::Level(at) => format!("{} {}", dot(at == self.level), name(&self.levels, at)),
            Row::Category(at) => {
                let category = name(&self.categories, at);
                let tick = match () {
                    () if self.needed.contains(&category) => "[=]",
                    () if self.ticked.contains(&category) => "[x]",
                    () => "[ ]",
                };
                format!("{tick} {category}")
            }
            Row::Integrity(at) => format!("{} @{}", dot(at == self.integrity), name(&self.integrities, at)),
            Row::Open => match self.label() {
                Some(label) => format!("Open a session at {label}"),
                None => "No such level may be chosen here".into(),
            },
        })
        .collect()
    }

    /// Takes the chosen row: chooses a level, ticks a category, or opens the session.
    pub fn take(&mut self) -> Picked {
        match self.rows().get(self.chosen) {
            Some(Row::Level(at)) => {
                self.take_level(*at);
                Picked::Nothing
            }
            Some(Row::Category(at)) => {
                if let Some(name) = self.categories.get(*at)
                    && !self.needed.contains(name)
                    && !self.ticked.remove(name)
                {
                    self.ticked.insert(name.clone());
                }
                Picked::Nothing
            }
            Some(Row::Integrity(at)) => {
                self.integrity = *at;
                Picked::Nothing
            }
            Some(Row::Open) | None => self.label().map_or(Picked::None, Picked::Label),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(labels: &[&str]) -> Offer {
        let labels = labels.iter().map(|name| LabelName::new(name).unwrap()).collect();
        Offer { labels, lattice: None }
    }

    #[test]
    fn a_level_and_ticked_categories_make_the_label_that_the_server_lists() {
        let all = ["LOW", "MID//A", "MID//A,B", "MID//A,C", "MID//A,B,C"];
        let mut picker = Picker::new(offer(&all));
        assert_eq!(picker.lines(), ["(*) LOW", "( ) MID", "Open a session at LOW"]);
        picker.chosen = 1;
        assert_eq!(picker.take(), Picked::Nothing);
        assert_eq!(
            picker.lines(),
            ["( ) LOW", "(*) MID", "[=] A", "[ ] B", "[ ] C", "Open a session at MID//A"],
            "what each label of a level has cannot be taken away"
        );
        for (row, label) in [(4, "MID//A,C"), (3, "MID//A,B,C"), (2, "MID//A,B,C"), (3, "MID//A,C")] {
            picker.chosen = row;
            picker.take();
            assert_eq!(picker.label().unwrap().as_str(), label);
        }
        picker.chosen = 5;
        assert_eq!(picker.take(), Picked::Label(LabelName::new("MID//A,C").unwrap()));
        // What another level does not have is not ticked there.
        picker.chosen = 0;
        picker.take();
        assert_eq!(picker.label().unwrap().as_str(), "LOW");
    }

    #[test]
    fn parts_of_which_the_list_has_no_label_open_nothing() {
        let mut picker = Picker::new(offer(&["LOW", "LOW//A", "LOW//B"]));
        for row in [1, 2] {
            picker.chosen = row;
            picker.take();
        }
        assert_eq!(picker.lines().last().unwrap(), "No such level may be chosen here");
        picker.chosen = 3;
        assert_eq!(picker.take(), Picked::None);
    }

    #[test]
    fn a_lattice_that_is_too_large_to_list_is_chosen_from_its_parts() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let lattice = Lattice {
            count: 4_096,
            levels: names(&["LOW", "HIGH"]),
            categories: names(&["Z", "A", "M"]),
            needed: vec![],
            integrity: names(&["CLEAN"]),
        };
        let offer = Offer { labels: vec![], lattice: Some(lattice) };
        assert_eq!((offer.count().as_str(), offer.is_few()), ("4096", false));
        let mut picker = Picker::new(offer);
        for row in [1, 4, 2] {
            picker.chosen = row;
            picker.take();
        }
        assert_eq!(picker.label().unwrap().as_str(), "HIGH//Z,M@CLEAN", "in the site's order");
    }

    #[test]
    fn a_search_takes_words_in_any_case_and_order() {
        let offer = offer(&["SECRET", "SECRET//MED,NATO", "TOP-SECRET//NATO"]);
        let found = |typed| offer.matching(typed).iter().map(|label| label.to_string()).collect::<Vec<_>>();
        assert_eq!(found("nato sec"), ["SECRET//MED,NATO", "TOP-SECRET//NATO"]);
        assert_eq!(found("nato,med"), ["SECRET//MED,NATO"]);
        assert_eq!(found("x"), Vec::<String>::new());
        assert_eq!(offer.typed("secret // nato, med").unwrap().as_str(), "secret//nato,med");
        assert_eq!(offer.typed("a b\u{1b}"), None);
        let offer =
            Offer { lattice: Some(Lattice::default()), ..self::offer(&["LOW", "TOP//ALPHA,GOLF,MIKE"]) };
        let found = |typed| offer.matching(typed).iter().map(|label| label.to_string()).collect::<Vec<_>>();
        assert!(
            found("top//golf,alpha").is_empty() && found("\u{1b}top//golf").is_empty(),
            "not the highest"
        );
        assert_eq!(found("top//mike,golf,alpha"), ["TOP//ALPHA,GOLF,MIKE"]);
        assert_eq!(found("top golf"), ["TOP//ALPHA,GOLF,MIKE"]);
    }
}

//! One-way channels between hosts, by the site files of the hosts: whether both ends of each say the same, and where information can get
//! through all of them together.

use crate::flow::{self, Passage, Step};
use crate::label::Label;
use crate::site::{Channel, Site, Wire};
use std::collections::BTreeMap;

/// What the other hosts at one label are together, as far as no site file says more of them.
const OUTSIDE: &str = "another host";

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What is wrong, each with what to do.
    pub wrong: Vec<(String, String)>,
    /// Channels whose other end is in none of the site files.
    pub alone: Vec<String>,
}

/// Holds these sites against each other, the labels of all by the words of the first.
pub fn check(sites: &[&Site]) -> Found {
    let mut found = Found::default();
    let Some(words) = Words::of(sites, &mut found) else { return found };
    let mut places = Places::default();
    for (number, site) in sites.iter().enumerate() {
        for partition in site.partitions() {
            let Some(label) = words.label(number, partition.label()) else { continue };
            places.add(format!("{}/{}", words.called(number), partition.name()), label);
        }
    }
    for (number, site) in sites.iter().enumerate() {
        own(&words, number, site, &mut places);
        for channel in site.channels() {
            let Some(wire) = channel.wire() else { continue };
            let others = || sites.iter().enumerate().filter(|(other, _)| *other != number);
            let far = others().find_map(|(other, theirs)| Some((other, *theirs, far_end(theirs, channel)?)));
            match far {
                Some((other, theirs, (end, there))) => {
                    // Each pair once: from where it is sent.
                    if let Some(from) = channel.from() {
                        let (here, there_is) = (words.called(number), words.called(other));
                        same(&mut found, (&here, &there_is), channel, (wire, end), there);
                        labels(
                            &mut found,
                            &words,
                            (number, *site, channel, wire),
                            (other, theirs, end, there),
                        );
                        let to = end.to().map(|to| format!("{there_is}/{to}"));
                        places.step(&format!("{here}/{from}"), to.as_deref(), channel.name().as_str());
                    }
                }
                None => {
                    let way = if channel.from().is_some() { "to" } else { "from" };
                    found.alone.push(format!(
                        "the channel `{}` of the site `{}` leads {way} a host whose site file is not beside it",
                        channel.name(),
                        site.name()
                    ));
                    let Some(label) = words.label(number, wire.label()) else { continue };
                    let outside = places.outside(label);
                    outside_step(&mut places, &words.called(number), channel, &outside);
                }
            }
        }
    }
    places.upward();
    places.close(sites, &mut found);
    found
}

/// The other end of a channel: of the same name, the other way.
fn far_end<'a>(site: &'a Site, channel: &Channel) -> Option<(&'a Channel, &'a Wire)> {
    let is =
        |one: &&Channel| one.name() == channel.name() && one.from().is_some() != channel.from().is_some();
    let end = site.channels().iter().find(is)?;
    Some((end, end.wire()?))
}

fn outside_step(places: &mut Places, site: &str, channel: &Channel, outside: &str) {
    let name = channel.name().as_str();
    match (channel.from(), channel.to()) {
        (Some(from), _) => places.step(&format!("{site}/{from}"), Some(outside), name),
        (_, Some(to)) => places.step(outside, Some(&format!("{site}/{to}")), name),
        _ => {}
    }
}

/// What a site's own channels, links and networks are for the flow.
fn own(words: &Words<'_>, number: usize, site: &Site, places: &mut Places) {
    let called = words.called(number);
    let at = |name: &dyn std::fmt::Display| format!("{called}/{name}");
    for channel in site.channels() {
        if let (Some(from), Some(to)) = (channel.from(), channel.to()) {
            places.pass(&at(from), Some(&at(to)), channel.name().as_str(), channel.passage());
        }
    }
    for link in site.links() {
        let [(one, _), (other, _)] = link.ends();
        places.step(&at(one), Some(&at(other)), link.name().as_str());
        places.step(&at(other), Some(&at(one)), link.name().as_str());
    }
    for network in site.networks() {
        let Some(partition) = network.partition() else { continue };
        let Some(label) = words.label(number, network.labels().low()) else { continue };
        let outside = places.outside(label);
        places.step(&at(partition), Some(&outside), network.interface().as_str());
        places.step(&outside, Some(&at(partition)), network.interface().as_str());
    }
}

/// Tells where two ends of a channel say different things.
fn same(
    found: &mut Found,
    (here, there): (&str, &str),
    channel: &Channel,
    (wire, end): (&Wire, &Channel),
    theirs: &Wire,
) {
    let mut differs = |what: &str, one: String, other: String| {
        if one != other {
            let told = format!(
                "the channel `{}`: {what} is {one} in `{here}` and {other} in `{there}`",
                channel.name()
            );
            found.wrong.push((told, "write the same in both site files".to_owned()));
        }
    };
    let host = |wire: &Wire| wire.address().addr().to_string();
    differs("the sender's address", host(wire), theirs.peer().to_string());
    differs("the receiver's address", wire.peer().to_string(), host(theirs));
    differs("`port`", wire.port().to_string(), theirs.port().to_string());
    differs("`mtu`", wire.mtu().to_string(), theirs.mtu().to_string());
    differs("`repair`", format!("{}%", wire.repair()), format!("{}%", theirs.repair()));
    differs("`size`", channel.size().to_string(), end.size().to_string());
}

/// Tells where an end says another label of the partition at the other end than that has.
fn labels(
    found: &mut Found,
    words: &Words<'_>,
    (here, sends, channel, wire): (usize, &Site, &Channel, &Wire),
    (there, receives, end, far): (usize, &Site, &Channel, &Wire),
) {
    let of = |number: usize, site: &Site, name: Option<&crate::PartitionName>| {
        let partition = site.partitions().iter().find(|partition| Some(partition.name()) == name)?;
        words.label(number, partition.label())
    };
    let ends = [
        (sends, words.label(here, wire.label()), of(there, receives, end.to())),
        (receives, words.label(there, far.label()), of(here, sends, channel.from())),
    ];
    for (site, said, is) in ends {
        if let (Some(said), Some(is)) = (said, is)
            && said != is
        {
            let told = format!(
                "the channel `{}`: `{}` says that the other end is at {}, and it is at {}",
                channel.name(),
                site.name(),
                words.text(&said),
                words.text(&is)
            );
            found.wrong.push((told, "write in `label` of its wire what the partition there has".to_owned()));
        }
    }
}

/// Labels by the words of the first site.
struct Words<'a> {
    sites: &'a [&'a Site],
    first: &'a Site,
}

impl<'a> Words<'a> {
    /// `None` if the sites do not mean the same by their words.
    fn of(sites: &'a [&'a Site], found: &mut Found) -> Option<Self> {
        let words = Self { sites, first: sites.first()? };
        for (number, site) in sites.iter().enumerate().skip(1) {
            let own: Vec<&Label> = used(site).collect();
            for label in &own {
                if words.label(number, label).is_none() {
                    let text = site.vocabulary().text(label).unwrap_or_default();
                    let told = format!(
                        "`{}` has no label {text}, and `{}` uses it",
                        words.first.name(),
                        site.name()
                    );
                    found.wrong.push((told, "give both sites the same levels and categories".to_owned()));
                    return None;
                }
            }
            let order = |one: &Label, other: &Label| {
                let both = words.label(number, one).zip(words.label(number, other));
                both.is_some_and(|(first, second)| first.dominates(&second) == one.dominates(other))
            };
            let odd = own.iter().find_map(|one| Some((*one, *own.iter().find(|other| !order(one, other))?)));
            if let Some((one, other)) = odd {
                let [one, other] =
                    [one, other].map(|label| site.vocabulary().text(label).unwrap_or_default());
                let told = format!(
                    "`{}` and `{}` do not agree which of {one} and {other} dominates",
                    words.first.name(),
                    site.name()
                );
                found.wrong.push((told, "give both sites the same levels, in the same order".to_owned()));
                return None;
            }
        }
        Some(words)
    }

    /// A site's name, and behind it its number where another before it has the same.
    fn called(&self, number: usize) -> String {
        let name = self.sites.get(number).map(|site| site.name().to_string()).unwrap_or_default();
        let same = self.sites.iter().take(number).filter(|before| before.name().as_str() == name).count();
        if same == 0 { name } else { format!("{name}#{}", same + 1) }
    }

    fn label(&self, number: usize, label: &Label) -> Option<Label> {
        let text = self.sites.get(number)?.vocabulary().text(label)?;
        self.first.vocabulary().parse(&text).ok()
    }

    fn text(&self, label: &Label) -> String {
        self.first.vocabulary().text(label).unwrap_or_default()
    }
}

/// The labels that count for channels.
fn used(site: &Site) -> impl Iterator<Item = &Label> {
    let wires = site.channels().iter().filter_map(Channel::wire).map(Wire::label);
    let networks = site.networks().iter().filter(|network| network.partition().is_some());
    let networks = networks.map(|network| network.labels().low());
    site.partitions().iter().map(|partition| partition.label()).chain(wires).chain(networks)
}

/// All places of all sites, and the ways between them.
#[derive(Default)]
struct Places {
    names: Vec<String>,
    labels: Vec<Label>,
    numbers: BTreeMap<String, usize>,
    steps: Vec<(String, Step)>,
}

impl Places {
    fn add(&mut self, name: String, label: Label) {
        if !self.numbers.contains_key(&name) {
            self.numbers.insert(name.clone(), self.names.len());
            self.names.push(name);
            self.labels.push(label);
        }
    }

    /// The one place outside at a label.
    fn outside(&mut self, label: Label) -> String {
        let known = self.names.iter().zip(&self.labels).filter(|(name, _)| name.starts_with(OUTSIDE));
        let count = known.clone().count();
        if let Some((name, _)) = known.into_iter().find(|(_, at)| **at == label) {
            return name.clone();
        }
        // No partition's name has a blank.
        let name = if count == 0 { OUTSIDE.to_owned() } else { format!("{OUTSIDE} {}", count + 1) };
        self.add(name.clone(), label);
        name
    }

    /// What is outside may be wherever outside the lattice allows, and so it is taken to be.
    fn upward(&mut self) {
        let is_outside = |(name, _): &(&String, &Label)| name.starts_with(OUTSIDE);
        let named = self.names.iter().zip(&self.labels).filter(is_outside);
        let outside: Vec<(String, Label)> = named.map(|(name, at)| (name.clone(), at.clone())).collect();
        for (from, below) in &outside {
            for (to, _) in outside.iter().filter(|(_, above)| above.dominates(below)) {
                self.step(from, Some(to), flow::UPWARD);
            }
        }
    }

    fn step(&mut self, from: &str, to: Option<&str>, name: &str) {
        self.pass(from, to, name, Passage::OneWay);
    }

    fn pass(&mut self, from: &str, to: Option<&str>, name: &str, passage: Passage) {
        let at = |name: &str| self.numbers.get(name).copied();
        if let Some((from, to)) = at(from).zip(to.and_then(at)).filter(|(from, to)| from != to) {
            self.steps.push((name.to_owned(), Step { from, to, passage }));
        }
    }

    /// Tells the shortest way by which information gets where it must not.
    fn close(&self, sites: &[&Site], found: &mut Found) {
        let plain: Vec<Step> = self.steps.iter().map(|(_, step)| *step).collect();
        let Some(way) = flow::forbidden(&self.labels, &plain) else { return };
        let at = |place: usize| {
            let label = self.labels.get(place)?;
            let text = sites.first()?.vocabulary().text(label)?;
            Some(format!("{} ({text})", self.names.get(place)?))
        };
        let way: Vec<_> = way.iter().filter_map(|number| self.steps.get(*number)).collect();
        let mut text = String::new();
        for (name, step) in &way {
            text.push_str(&format!("{} -[{name}]-> ", at(step.from).unwrap_or_default()));
        }
        text.push_str(&way.last().and_then(|(_, step)| at(step.to)).unwrap_or_default());
        let what = format!("information gets where the lattice forbids it: {text}");
        found
            .wrong
            .push((what, "remove one of these channels, or declare the whole way as one guard".to_owned()));
    }
}

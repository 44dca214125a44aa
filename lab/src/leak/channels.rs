//! The table of channels (`lab/leak/channels.toml`).

use serde::{Deserialize, Serialize};

/// Whether something may come through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Nothing may.
    Closed,
    /// A stock kernel cannot close it for two compartments: what it carries has a bound.
    Open,
}

impl Class {
    /// For reports.
    pub(super) fn word(self) -> &'static str {
        match self {
            Class::Closed => "closed",
            Class::Open => "open",
        }
    }
}

/// On which processors the ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Processors {
    /// Each on its own.
    Apart,
    /// Both on one.
    Same,
}

/// Where the ends run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// As services that were taken over.
    #[default]
    Service,
    /// As programs of a person at a workstation, in sessions of both labels.
    Workstation,
    /// As programs of two partitions with a one-way channel from below to above. There are none where the label above has a kernel of its own.
    Partition,
}

/// One way from above to below.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// As reports call it.
    pub name: String,
    /// The attacker's name for it.
    pub program: String,
    /// For both ends.
    pub argument: String,
    /// The state of the machine that carries it.
    pub through: String,
    /// Where the ends run.
    pub processors: Processors,
    /// Windows to try, µs.
    pub windows: Vec<u32>,
    /// Seconds of the measurement in quick and full form.
    #[serde(default = "seconds")]
    pub seconds: [f64; 2],
    /// Whether something may come through.
    pub class: Class,
    /// Bit/s that it may carry.
    pub allowed: f64,
    /// The same where the label above has a kernel of its own.
    #[serde(default = "one")]
    pub machine: f64,
    /// Where the ends run.
    #[serde(default)]
    pub from: From,
}

fn one() -> f64 {
    1.0
}

fn seconds() -> [f64; 2] {
    [6.0, 60.0]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    channel: Vec<Channel>,
}

impl Channel {
    /// Those of a table.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Vec<Channel>, String> {
        let table: Table = toml::from_str(text).map_err(|e| e.to_string())?;
        for c in &table.channel {
            if c.windows.is_empty()
                || c.windows.contains(&0)
                || [c.allowed, c.machine].iter().any(|most| most.is_nan() || *most <= 0.0)
            {
                return Err(format!("{}: windows and what is allowed must be more than nothing", c.name));
            }
        }
        Ok(table.channel)
    }

    /// Those that come with the laboratory.
    ///
    /// # Errors
    /// What is wrong with the table.
    pub fn all() -> Result<Vec<Channel>, String> {
        Channel::parse(include_str!("../../leak/channels.toml"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_channel_has_a_name_of_its_own_and_closed_ones_may_carry_one_bit_a_second() {
        let all = Channel::all().expect("the table is sound");
        let names: BTreeSet<&str> = all.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for c in all.iter().filter(|c| c.class == Class::Closed) {
            assert!(c.allowed <= 1.0 && c.machine <= 1.0, "{}", c.name);
        }
        assert!(Channel::parse("[[channel]]\nname = \"x\"").is_err());
    }
}

//! An experiment as data: factors, arms, workloads, forms. The files are under `experiments/`.

use crate::design::Layout;
use crate::place::Home;
use crate::tools::Tool;
use crate::workload::Kind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A factor of two levels; `M` at its high level may have several modes, each an arm of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Its letter.
    pub name: String,
    /// Name of the low level, the baseline's.
    pub low: String,
    /// Name of the high level.
    pub high: String,
    /// What the low level is.
    pub low_is: String,
    /// What the high level is.
    pub high_is: String,
}

/// What lies between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// A veth pair.
    Link,
    /// The vaults' tunnel over that pair.
    Tunnel,
}

/// Who stands between the connection and the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mediation {
    /// Nobody: the service is a daemon of its own.
    None,
    /// The service listens inside its compartment; selectors decide.
    Direct,
    /// The mediator accepts, asks the session table, and passes the connected socket on.
    Handoff,
    /// As `Handoff`, where the grant is written and synced soon after (`audit = "written"`).
    HandoffWritten,
    /// The mediator stays between, with splice.
    Relay,
    /// As `Relay`, where the grant is written and synced soon after.
    RelayWritten,
    /// A process of the service for each connection, and no copy: what inetd does, and what the paper's `M` also did.
    Inetd,
    /// A proxy that stays between and copies, to a daemon behind it on the loopback device.
    Proxy,
    /// The paper's scheme: a process per connection, which starts the service's and copies between.
    SpawnCopy,
}

impl Mediation {
    /// Every mode, in the order in which reports show them.
    pub const ALL: [Mediation; 9] = [
        Mediation::None,
        Mediation::Direct,
        Mediation::Handoff,
        Mediation::HandoffWritten,
        Mediation::Relay,
        Mediation::RelayWritten,
        Mediation::Inetd,
        Mediation::Proxy,
        Mediation::SpawnCopy,
    ];

    /// The name as in arms and files.
    pub fn name(self) -> &'static str {
        match self {
            Mediation::None => "none",
            Mediation::Direct => "direct",
            Mediation::Handoff => "handoff",
            Mediation::HandoffWritten => "handoff-written",
            Mediation::Relay => "relay",
            Mediation::RelayWritten => "relay-written",
            Mediation::Inetd => "inetd",
            Mediation::Proxy => "proxy",
            Mediation::SpawnCopy => "spawn-copy",
        }
    }

    /// `M-`, or `M(direct)` and so on.
    pub fn level(self) -> String {
        if self == Mediation::None { "M-".into() } else { format!("M({})", self.name()) }
    }

    /// Whether it acts on connections, and so leaves datagrams alone.
    pub fn is_by_connection(self) -> bool {
        !matches!(self, Mediation::None | Mediation::Direct)
    }
}

/// What the laboratory has to build for an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// Link or tunnel.
    pub path: Path,
    /// The mode of mediation.
    pub mediation: Mediation,
    /// Where the session is.
    pub session: Home,
    /// By levee's earlier programs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
}

impl Drive {
    /// Whether the arm needs levee at all.
    pub fn needs_levee(self) -> bool {
        self.path == Path::Tunnel || self.mediation != Mediation::None
    }
}

/// One arm: a name and what is built for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// As in reports and samples.
    pub name: String,
    /// Whether every other arm is compared with this one. Exactly one is.
    #[serde(default)]
    pub baseline: bool,
    /// Measured by another tool than ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// What to build.
    pub drive: Drive,
}

impl Arm {
    /// Whether it measures that workload: a tool can do only some, and a scheme for connections sees no datagrams.
    pub fn measures(&self, kind: Kind) -> bool {
        self.tool.is_none_or(|t| t.can(kind)) && (kind.is_tcp() || !self.drive.mediation.is_by_connection())
    }
}

/// What a workload is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// An effect of the family.
    #[default]
    Effect,
    /// Kept from the cost calculator, to check it.
    HeldOut,
    /// Latency against offered load, open loop.
    Load,
}

/// A workload of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Which.
    pub kind: Kind,
    /// What for.
    #[serde(default, rename = "use")]
    pub usage: Use,
    /// Offered rates of an open loop, requests per second.
    #[serde(default)]
    pub rates: Vec<f64>,
    /// Payload bytes of a datagram, where not those common to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagram: Option<usize>,
    /// Measured in every so many blocks; in each, when 1.
    #[serde(default = "one")]
    pub every: usize,
}

fn one() -> usize {
    1
}

/// One workload as it is run: a load workload becomes one per rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// `TCP_RR`, `TCP_RR@500` for an open loop, `UDP_STREAM/256` for another size of datagram.
    pub id: String,
    /// Which workload.
    pub kind: Kind,
    /// What for.
    pub usage: Use,
    /// Offered rate of an open loop.
    pub rate: Option<f64>,
    /// Payload bytes of a datagram, where not those common to all.
    pub datagram: Option<usize>,
    /// Measured in every so many blocks.
    pub every: usize,
}

/// How large a run is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Blocks.
    pub blocks: usize,
    /// Measured seconds of each trial.
    pub seconds: f64,
    /// Discarded seconds before.
    pub warmup: f64,
    /// Layouts, each with every arm and workload.
    pub layouts: Vec<Layout>,
    /// Seconds that a run may take: a trial is made again only while the run, at its pace so far, would end within them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// How often sessions end after the last trial, on each of levee's sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endings: Option<usize>,
    /// Arms, where not all.
    #[serde(default)]
    pub arms: Option<Vec<String>>,
    /// Uses, where not all.
    #[serde(default)]
    pub uses: Option<Vec<Use>>,
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// As on the command line.
    pub name: String,
    /// As at the head of the report.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// The paper that stands beside, by the name of its file.
    #[serde(default)]
    pub paper: Option<String>,
    /// Bytes per write of a stream, where it is not the laboratory's own size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_size: Option<usize>,
    /// Factors; the arms are named after their levels.
    #[serde(default, rename = "factor")]
    pub factors: Vec<Factor>,
    /// Arms.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// Workloads.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
    /// Forms by name: quick, full, paper.
    #[serde(rename = "form")]
    pub forms: BTreeMap<String, Form>,
}

const FILES: &[(&str, &str)] = &[
    ("agree", include_str!("../experiments/agree.toml")),
    ("mysea", include_str!("../experiments/mysea.toml")),
    ("same", include_str!("../experiments/same.toml")),
];

impl Experiment {
    /// Every experiment that comes with the laboratory.
    ///
    /// # Errors
    /// When one of the built-in files is wrong: a fault of the build, kept out by a test.
    pub fn all() -> Result<Vec<Experiment>, String> {
        FILES.iter().map(|(name, text)| Experiment::parse(text).map_err(|e| format!("{name}: {e}"))).collect()
    }

    /// The built-in experiment of that name, if there is one.
    pub fn named(name: &str) -> Option<Experiment> {
        Experiment::all().into_iter().flatten().find(|e| e.name == name)
    }

    /// Reads one, and checks what the types cannot.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Experiment, String> {
        let e: Experiment = toml::from_str(text).map_err(|e| e.to_string())?;
        if e.arms.iter().filter(|a| a.baseline).count() != 1 {
            return Err("exactly one arm must be the baseline".into());
        }
        let names: BTreeSet<_> = e.arms.iter().map(|a| &a.name).collect();
        if names.len() != e.arms.len() {
            return Err("two arms have one name".into());
        }
        let ids: Vec<_> = e.units(None).into_iter().map(|u| u.id).collect();
        if ids.iter().collect::<BTreeSet<_>>().len() != ids.len() {
            return Err("two workloads are the same".into());
        }
        if let Some(w) = e.workloads.iter().find(|w| !w.rates.is_empty() && w.kind != Kind::TcpRr) {
            return Err(format!("{} has no open loop: only TCP_RR has rates", w.kind));
        }
        let times =
            |f: &Form| f.seconds.is_finite() && f.seconds > 0.0 && f.warmup.is_finite() && f.warmup >= 0.0;
        for (name, f) in &e.forms {
            let budget = f.budget.is_none_or(|b| b.is_finite() && b > 0.0);
            if f.blocks < 3 || f.layouts.is_empty() || !times(f) || !budget {
                return Err(format!("form {name}: at least 3 blocks, a layout, and times above zero"));
            }
            if let Some(a) = f.arms.iter().flatten().find(|a| !names.contains(a)) {
                return Err(format!("form {name}: no arm {a:?}"));
            }
            let base = &e.baseline()?.name;
            if f.arms.as_ref().is_some_and(|a| !a.contains(base)) {
                return Err(format!("form {name}: without the baseline {base:?}"));
            }
        }
        Ok(e)
    }

    /// Has levee's arms of a form a second time, by earlier programs.
    pub fn beside_before(&mut self, form: &str) {
        let Some(form) = self.forms.get_mut(form) else { return };
        let is_of = |arm: &Arm| form.arms.as_ref().is_none_or(|names| names.contains(&arm.name));
        let twin = |arm: &Arm| Arm {
            name: format!("{}, before", arm.name),
            drive: Drive { before: true, ..arm.drive },
            ..arm.clone()
        };
        let twins: Vec<Arm> =
            self.arms.iter().filter(|arm| arm.drive.needs_levee() && is_of(arm)).map(twin).collect();
        if let Some(names) = &mut form.arms {
            names.extend(twins.iter().map(|arm| arm.name.clone()));
        }
        self.arms.extend(twins);
    }

    /// The arm all others are compared with.
    ///
    /// # Errors
    /// When there is none, which [`Experiment::parse`] excludes.
    pub fn baseline(&self) -> Result<&Arm, String> {
        self.arms.iter().find(|a| a.baseline).ok_or_else(|| "no baseline".into())
    }

    /// The arms of a form.
    pub fn arms_of(&self, form: &Form) -> Vec<&Arm> {
        self.arms.iter().filter(|a| form.arms.as_ref().is_none_or(|n| n.contains(&a.name))).collect()
    }

    /// The workloads as they are run, for a form or all.
    pub fn units(&self, form: Option<&Form>) -> Vec<Unit> {
        let wanted = |u: Use| form.and_then(|f| f.uses.as_ref()).is_none_or(|w| w.contains(&u));
        let mut out = Vec::new();
        for w in self.workloads.iter().filter(|w| wanted(w.usage)) {
            let unit = |rate: Option<f64>| Unit {
                id: match (rate, w.datagram) {
                    (Some(r), _) => format!("{}@{r}", w.kind),
                    (None, Some(d)) => format!("{}/{d}", w.kind),
                    (None, None) => w.kind.name().to_owned(),
                },
                kind: w.kind,
                usage: w.usage,
                rate,
                datagram: w.datagram,
                every: w.every.max(1),
            };
            if w.rates.is_empty() {
                out.push(unit(None));
            } else {
                out.extend(w.rates.iter().map(|r| unit(Some(*r))));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_experiment_can_be_read() {
        let all = Experiment::all().expect("built in");
        assert_eq!(all.len(), FILES.len());
        for (e, (name, _)) in all.iter().zip(FILES) {
            assert_eq!(e.name, *name);
            for form in ["quick", "full", "paper"] {
                let f = e.forms.get(form).expect(form);
                assert!(
                    f.blocks
                        >= match form {
                            "quick" => 12,
                            "full" => 30,
                            _ => 100,
                        }
                );
            }
        }
    }

    #[test]
    fn the_mysea_study_declares_all_eight_set_ups_and_every_mode() {
        let e = Experiment::named("mysea").expect("built in");
        assert_eq!(e.arms.len(), 2 * 2 * Mediation::ALL.len());
        assert_eq!(e.units(Some(&e.forms["quick"])).len(), 5);
    }

    #[test]
    fn levees_arms_of_a_form_have_twins_by_the_earlier_programs_and_no_other_arm_has() {
        let mut e = Experiment::named("mysea").expect("built in");
        let (all, quick) = (e.arms.len(), e.arms_of(&e.forms["quick"]).len());
        e.beside_before("quick");
        let arms = e.arms_of(&e.forms["quick"]);
        let (old, new): (Vec<&Arm>, Vec<&Arm>) = arms.into_iter().partition(|arm| arm.drive.before);
        let of_levee: Vec<&Arm> = new.iter().copied().filter(|arm| arm.drive.needs_levee()).collect();
        assert_eq!((new.len(), e.arms.len()), (quick, all + old.len()));
        for (old, new) in old.iter().zip(&of_levee) {
            assert_eq!(old.name, format!("{}, before", new.name));
            assert_eq!(Drive { before: false, ..old.drive }, new.drive);
        }
        assert_eq!(old.len(), of_levee.len());
        let text = toml::to_string(&e).expect("it is kept in the manifest");
        assert_eq!(Experiment::parse(&text), Ok(e));
    }

    #[test]
    fn a_form_without_the_baseline_is_refused() {
        let text = include_str!("../experiments/same.toml")
            .replace("[form.quick]", "[form.quick]\narms = [\"other\"]");
        assert!(Experiment::parse(&text).expect_err("no baseline").contains("without the baseline"));
    }
}

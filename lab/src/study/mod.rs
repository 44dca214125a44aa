//! Studies of single operations: the same work, in what keeps programs apart and without it.
//!
//! A study is data (`studies/*.toml`): arms, of which the first is the baseline, and tables of rows, each with what the paper
//! printed. It is laid out as an experiment is ([`crate::design`]): each block holds every row, each row every arm once and the baseline
//! twice, in random order; the two give the noise floor ([`crate::analysis`]). What an arm is, and how a row is measured in it, is the
//! study's own ([`Stand`]).

mod archive;
mod curves;
mod daemon;
mod directions;
mod emulated;
mod guest;
mod layers;
mod macsec;
mod mpi;
mod nodes;
mod others;
mod places;
pub mod prices;
mod protections;
mod record;
mod report;
pub mod run;
mod split;
mod tunnels;
mod vaulted;

use crate::badlink::{Asked, Did};
use crate::sample::Common;
use crate::workload::{Kind, Task};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// The studies that come with the program.
const FILES: &[(&str, &str)] = &[
    ("partition", include_str!("../../studies/partition.toml")),
    ("frames", include_str!("../../studies/frames.toml")),
    ("labelled", include_str!("../../studies/labelled.toml")),
    ("selinux", include_str!("../../studies/selinux.toml")),
    ("vaulted", include_str!("../../studies/vaulted.toml")),
    ("layers", include_str!("../../studies/layers.toml")),
    ("macsec", include_str!("../../studies/macsec.toml")),
    ("protections", include_str!("../../studies/protections.toml")),
];

/// The congestion control that is in force at both ends.
const CONGESTION: &str = "cubic";

/// What a client is to do in a study, where nothing else is said: as in experiments, from its one address.
fn task(kind: Kind, seconds: f64) -> Task {
    let Common { write_size, datagram, fetch, closer, .. } = Common::default();
    let (warmup, congestion) = (0.05, CONGESTION.into());
    Task {
        kind,
        seconds,
        warmup,
        write_size,
        datagram,
        fetch,
        open_rate: None,
        closer,
        congestion,
        sources: Vec::new(),
    }
}

/// A way to run the operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// A word.
    pub name: String,
    /// After "Here, " in the report's first sentence.
    pub words: String,
    /// What it is.
    pub note: String,
    /// What the names of its rows begin with, where it does not have all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// Below which directory the kernel's package is, of an arm that has a kernel of its own.
    #[serde(default, rename = "kernel-root", skip_serializing_if = "Option::is_none")]
    pub kernel_root: Option<PathBuf>,
    /// What `scripts/guest` has made, of an arm that is a machine of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<PathBuf>,
}

impl Arm {
    /// Whether it has a row.
    pub fn has(&self, row: &Row) -> bool {
        let begins = |all: &Vec<String>| all.iter().any(|with| row.id.starts_with(with));
        row.is_in(&self.name) && self.only.as_ref().is_none_or(begins)
    }
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// As its program knows it.
    pub id: String,
    /// As the paper calls it.
    pub what: String,
    /// What the paper printed, in its table's columns; fewer where it did not.
    #[serde(default)]
    pub paper: Vec<f64>,
    /// What is wrong with that.
    #[serde(default)]
    pub fault: Option<String>,
    /// Its unit, where it is not its table's.
    #[serde(default)]
    pub unit: Option<MeasuredIn>,
    /// The arms that have it, where not all do; the baseline does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arms: Option<Vec<String>>,
}

impl Row {
    /// Whether it names an arm, or none.
    fn is_in(&self, arm: &str) -> bool {
        self.arms.as_ref().is_none_or(|all| all.iter().any(|a| a == arm))
    }
}

/// What values are in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredIn {
    /// Of the values.
    pub unit: String,
    /// How many of the unit are in a second; of a rate's, what one unit of work is in it.
    pub scale: f64,
    /// Whether values are rates and not times.
    #[serde(default)]
    pub rate: bool,
}

/// A table of the paper's, or one beyond it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// As in the paper; `beyond` where it has none.
    pub number: String,
    /// What it shows.
    pub title: String,
    /// Of its values.
    pub unit: String,
    /// How many of the unit are in a second; of a rate's, what one unit of work is in it.
    pub scale: f64,
    /// Whether values are rates and not times.
    #[serde(default)]
    pub rate: bool,
    /// Whether the mean over its rows is told, too.
    #[serde(default)]
    pub average: bool,
    /// The paper's columns; the first is its baseline, the last what it recommends.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// A row's unit, scale, and whether it is a rate.
    pub fn unit<'a>(&'a self, row: &'a Row) -> (&'a str, f64, bool) {
        row.unit.as_ref().map_or((&self.unit, self.scale, self.rate), |u| (&u.unit, u.scale, u.rate))
    }

    /// A time for one unit of a row's work, in its unit.
    pub fn shown(&self, row: &Row, seconds: f64) -> f64 {
        let (_, scale, rate) = self.unit(row);
        if rate { scale / seconds } else { scale * seconds }
    }

    /// The paper's last column over its first, as time for the same work.
    pub fn ratio(&self, row: &Row) -> Option<f64> {
        let (first, last) = (row.paper.first()?, row.paper.last()?);
        let ratio = if self.unit(row).2 { first / last } else { last / first };
        (row.paper.len() > 1).then_some(ratio)
    }
}

/// An average that the paper printed, made again from its own rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recomputed {
    /// What it is an average of.
    pub what: String,
    /// As printed.
    pub printed: f64,
    /// The rows, as printed.
    pub values: Vec<f64>,
    /// How many of the first ones the paper left out.
    pub left_out: usize,
    /// Why it differs.
    pub why: String,
}

/// A figure: the time of a table's rows, which differ in the rate behind their `@`, against that rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drawn {
    /// As in the paper.
    pub number: String,
    /// What it shows.
    pub title: String,
    /// The table.
    pub table: String,
    /// Its lines.
    pub arms: Vec<String>,
    /// What the paper says of rates.
    pub marks: Vec<Mark>,
}

/// A rate that the paper names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// In a second.
    pub at: f64,
    /// What is there.
    pub what: String,
}

/// What was to be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// In this arm.
    pub arm: String,
    /// These rows; a name that ends in `/` stands for all that begin with it.
    pub rows: Vec<String>,
    /// Take at most so many times the baseline; where it is not said, no more than the machine's noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
}

impl Goal {
    /// Whether a row is to reach it.
    pub fn names(&self, row: &str) -> bool {
        self.rows.iter().any(|name| row == name || name.ends_with('/') && row.starts_with(name))
    }
}

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Blocks.
    pub blocks: usize,
    /// Seconds of work in a trial.
    pub seconds: f64,
    /// Its rows, where they are not all.
    #[serde(default)]
    pub rows: Option<Vec<String>>,
    /// Its arms, where they are not all.
    #[serde(default)]
    pub arms: Option<Vec<String>>,
}

/// A study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Which: it says how arms are built and rows measured.
    pub study: String,
    /// For the report.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// The paper.
    pub cite: String,
    /// What the paper got wrong, or left open.
    pub faults: Vec<String>,
    /// What is not as in the paper, or not measured.
    pub absent: Vec<String>,
    /// Averages made again.
    #[serde(default)]
    pub recomputed: Vec<Recomputed>,
    /// The first is the baseline.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// Of rows.
    #[serde(rename = "table")]
    pub tables: Vec<Table>,
    /// Figures.
    #[serde(default, rename = "figure", skip_serializing_if = "Vec::is_empty")]
    pub drawn: Vec<Drawn>,
    /// Links that rows can be measured over: those whose name ends in `~` and the link's.
    #[serde(default, rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Asked>,
    /// To be reached.
    #[serde(default, rename = "goal")]
    pub goals: Vec<Goal>,
    /// By name.
    #[serde(rename = "form")]
    pub forms: BTreeMap<String, Form>,
}

impl Study {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Study, String> {
        let s: Study = toml::from_str(text).map_err(|e| e.to_string())?;
        if !FILES.iter().any(|(name, _)| *name == s.study) {
            return Err(format!("no study is called {:?}", s.study));
        }
        s.baseline()?;
        let arm = |name: &String| s.arms.iter().any(|a| a.name == *name);
        let row = |id: &String| s.rows().any(|(_, r)| r.id == *id);
        for (name, form) in &s.forms {
            if form.blocks == 0 || !(form.seconds > 0.0 && form.seconds <= 600.0) {
                return Err(format!(
                    "form {name}: at least one block (three, to tell anything), of trials of at most 600 s"
                ));
            }
            if let Some(what) = form.arms.iter().flatten().find(|a| !arm(a)) {
                return Err(format!("form {name}: there is no arm {what:?}"));
            }
            if let Some(what) = form.rows.iter().flatten().find(|r| !row(r)) {
                return Err(format!("form {name}: there is no row {what:?}"));
            }
            if form.arms.as_ref().is_some_and(|a| !a.contains(&s.arms[0].name)) {
                return Err(format!("form {name} is without the baseline"));
            }
        }
        s.check_links()?;
        for (_, r) in s.rows() {
            if let Some(what) = r.arms.iter().flatten().find(|a| !arm(a)) {
                return Err(format!("row {}: there is no arm {what:?}", r.id));
            }
            if !s.arms[0].has(r) {
                return Err(format!("row {} is without the baseline", r.id));
            }
        }
        for goal in &s.goals {
            let begins = |name: &String| name.ends_with('/') && s.rows().any(|(_, r)| r.id.starts_with(name));
            if let Some(what) = goal.rows.iter().find(|name| !row(name) && !begins(name)) {
                return Err(format!("a goal names {what:?}, which is no row"));
            }
        }
        for drawn in &s.drawn {
            let known = s.tables.iter().any(|table| table.number == drawn.table);
            if let Some(what) = drawn.arms.iter().find(|a| !arm(a)).or((!known).then_some(&drawn.table)) {
                return Err(format!("figure {}: there is no {what:?}", drawn.number));
            }
        }
        for table in &s.tables {
            if let Some(r) = table.rows.iter().find(|r| r.paper.len() > table.columns.len()) {
                return Err(format!("{}: more values than the paper's columns", r.id));
            }
        }
        Ok(s)
    }

    fn check_links(&self) -> Result<(), String> {
        for asked in &self.links {
            asked.check()?;
        }
        for (id, link) in self.rows().filter_map(|(_, r)| Some((&r.id, over(&r.id).1?))) {
            if !self.links.iter().any(|asked| asked.name == link) {
                return Err(format!("row {id}: there is no link {link:?}"));
            }
            if !BAD.contains(&self.study.as_str()) {
                return Err(format!("row {id}: the study {} has no link that can be a bad one", self.study));
            }
        }
        Ok(())
    }

    /// The same study with every row over this link alone.
    ///
    /// # Errors
    /// When there can be no such link, or the study has none.
    pub fn over(mut self, link: Asked) -> Result<Study, String> {
        let name = link.name.clone();
        let moved = |id: &mut String| *id = format!("{}~{name}", over(id).0);
        for table in &mut self.tables {
            table.rows.retain(|r| over(&r.id).1.is_none());
            table.rows.iter_mut().for_each(|r| {
                moved(&mut r.id);
                // the paper's was another
                r.paper.clear();
            });
        }
        self.tables.retain(|t| !t.rows.is_empty());
        for form in self.forms.values_mut() {
            if let Some(rows) = &mut form.rows {
                rows.retain(|r| over(r).1.is_none());
                rows.iter_mut().for_each(moved);
            }
        }
        self.goals.clear();
        self.links = vec![link];
        self.check_links()?;
        Ok(self)
    }

    /// One of those that come with the program; `None`: there is none of this name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn named(name: &str) -> Option<Result<Study, String>> {
        FILES
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(n, text)| Study::parse(text).map_err(|e| format!("{n}: {e}")))
    }

    /// All of them.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn all() -> Result<Vec<Study>, String> {
        FILES.iter().map(|(n, text)| Study::parse(text).map_err(|e| format!("{n}: {e}"))).collect()
    }

    /// The first arm.
    ///
    /// # Errors
    /// When there is none.
    pub fn baseline(&self) -> Result<&Arm, String> {
        self.arms.first().ok_or_else(|| "no arms".to_owned())
    }

    /// Every row with its table.
    pub fn rows(&self) -> impl Iterator<Item = (&Table, &Row)> {
        self.tables.iter().flat_map(|t| t.rows.iter().map(move |r| (t, r)))
    }

    /// The rows of a form.
    pub fn rows_of<'a>(&'a self, form: &'a Form) -> impl Iterator<Item = (&'a Table, &'a Row)> {
        self.rows().filter(|(_, r)| form.rows.as_ref().is_none_or(|all| all.contains(&r.id)))
    }

    /// The arms of a form.
    pub fn arms_of<'a>(&'a self, form: &'a Form) -> impl Iterator<Item = &'a Arm> {
        self.arms.iter().filter(|a| form.arms.as_ref().is_none_or(|all| all.contains(&a.name)))
    }

    /// How many trials a form has when every arm can be built.
    pub fn trials(&self, form: &Form) -> usize {
        let of = |r: &Row| self.arms_of(form).filter(|a| a.has(r)).count() + 1;
        form.blocks * self.rows_of(form).map(|(_, r)| of(r)).sum::<usize>()
    }
}

/// What one trial found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// For one unit of the row's work.
    pub seconds: f64,
    /// How often the kernel took the processor away meanwhile, where the program says so.
    pub preempted: Option<u64>,
    /// What else was counted, by name.
    pub counted: BTreeMap<String, f64>,
}

/// What stands while a study runs.
pub trait Stand {
    /// Arms that cannot be had here, each with the reason.
    fn absent(&self) -> &[(String, String)];

    /// Makes a trial: about `seconds` of a row's work in an arm.
    ///
    /// # Errors
    /// When the arm refuses it or ends.
    fn measure(&mut self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured>;

    /// What its bad links have done, at the end of a run.
    ///
    /// # Errors
    /// When that cannot be told.
    fn links(&mut self) -> io::Result<Vec<Did>> {
        Ok(Vec::new())
    }
}

/// The studies whose links can be bad ones.
const BAD: [&str; 1] = ["layers"];

/// A row's operation, and over which link it is measured.
fn over(row: &str) -> (&str, Option<&str>) {
    row.split_once('~').map_or((row, None), |(what, link)| (what, Some(link)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_study_can_be_read_and_has_three_forms() {
        for s in Study::all().expect("built in") {
            for (form, least) in [("quick", 12), ("full", 30), ("paper", 100)] {
                assert!(s.forms.get(form).expect(form).blocks >= least, "{} {form}", s.study);
            }
        }
    }

    #[test]
    fn a_study_over_a_link_has_every_row_over_it_and_no_link_that_is_not_there() {
        let link = |name: &str, jitter: f64| Asked { name: name.into(), delay: 5.0, jitter, loss: 1.0 };
        let study = |name: &str| Study::named(name).expect("there").expect("readable");
        let over_it = study("layers").over(link("asked", 1.0)).expect("over a link");
        let form = &over_it.forms["quick"];
        assert!(over_it.rows_of(form).count() >= 4, "{form:?}");
        assert!(over_it.rows().all(|(_, r)| r.id.ends_with("~asked") && r.paper.is_empty()));
        assert!(form.rows.iter().flatten().all(|r| over_it.rows().any(|(_, known)| known.id == *r)));
        assert!(
            study("layers").over(link("asked", 6.0)).expect_err("more than its delay").contains("jitter")
        );
        assert!(
            study("partition").over(link("asked", 1.0)).expect_err("no link").contains("no link that can be")
        );
        let (_, text) = FILES.iter().find(|(name, _)| *name == "layers").expect("there");
        let unknown = text.replace("id = \"https\"", "id = \"https~nowhere\"").replace("\"https\", ", "");
        assert!(Study::parse(&unknown).expect_err("no such link").contains("no link \"nowhere\""));
    }

    #[test]
    fn a_form_without_the_baseline_and_one_with_an_unknown_row_are_refused() {
        let (_, text) = FILES[0];
        let without = text.replace("[form.full]", "[form.full]\narms = [\"bubblewrap\"]");
        assert!(Study::parse(&without).expect_err("no baseline").contains("without the baseline"));
        let apart = text.replace("id = \"fork\"", "arms = [\"bubblewrap\"], id = \"fork\"");
        assert!(Study::parse(&apart).expect_err("no baseline").contains("row fork is without the baseline"));
        let unknown = text.replace("[form.full]", "[form.full]\nrows = [\"teleport\"]");
        assert!(Study::parse(&unknown).expect_err("no such row").contains("no row \"teleport\""));
    }
}

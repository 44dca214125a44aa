//! What is kept of a run of a study.

use super::{Form, Study};
use crate::badlink::Did;
use crate::design::{Layout, Trial, plan};
use crate::host::Env;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `study.json`: what a run is of, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Whole, so that a report needs nothing else.
    pub study: Study,
    /// The form's name.
    pub form_name: String,
    /// The form.
    pub form: Form,
    /// Of the order of trials.
    pub seed: u64,
    /// Arms that could not be built, and why.
    pub absent: Vec<(String, String)>,
    /// The host, once for each time the run was begun or resumed.
    pub env: Vec<Env>,
    /// What the links did that it asked for something, at the end of each of these times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Did>,
}

/// A line of `samples.ndjson`: one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Place in the plan.
    pub trial: usize,
    /// When, RFC 3339.
    pub at: String,
    /// Block.
    pub block: usize,
    /// Row.
    pub row: String,
    /// Arm.
    pub arm: String,
    /// Copy of the baseline.
    pub copy: u8,
    /// For one unit of work; absent when the trial failed.
    pub seconds: Option<f64>,
    /// How often the processor was taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<u64>,
    /// What else was counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counted: BTreeMap<String, f64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How all trials share the processors: a study's stand decides itself.
pub(super) const LAYOUT: Layout = Layout::Together;

impl Manifest {
    /// The plan: the same each time it is asked for.
    pub fn plan(&self) -> Vec<Trial> {
        let units: Vec<_> = self.study.rows_of(&self.form).map(|(_, r)| (r.id.clone(), LAYOUT)).collect();
        let here = |name: &str| self.absent.iter().all(|(a, _)| a != name);
        let arms: Vec<String> =
            self.study.arms_of(&self.form).map(|a| a.name.clone()).filter(|a| here(a)).collect();
        let base = self.study.arms.first().map_or("", |a| &a.name);
        let has = |arm: &str, row: &str| {
            let arm = self.study.arms.iter().find(|a| a.name == arm);
            arm.is_some_and(|arm| self.study.rows().any(|(_, r)| r.id == row && arm.has(r)))
        };
        plan(self.seed, self.form.blocks, &units, &arms, base, |_, arm, row| has(arm, row))
    }
}

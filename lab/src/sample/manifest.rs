//! What a run set out to do.

use crate::experiment::{Experiment, Form};
use crate::workload::Kind;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Version of every file of a run. It rises when a field changes its meaning or goes; a new field does not raise it.
pub const SCHEMA: u32 = 1;

/// When a trial is rejected, and what then: declared before the first trial, and kept in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Processor seconds of others per second of trial above which a trial is contended.
    pub background: f64,
    /// Seconds per second that a client with a processor of its own waited for it, above which likewise.
    pub waited: f64,
    /// The same of time taken by the hypervisor.
    pub steal: f64,
    /// How often a rejected trial is made again, at once.
    pub reruns: u32,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { background: 0.15, waited: 0.05, steal: 0.02, reruns: 2 }
    }
}

/// `manifest.json`: what the run set out to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The laboratory's version.
    pub version: String,
    /// The experiment, whole.
    pub experiment: Experiment,
    /// Name of the form.
    pub form_name: String,
    /// The form as run.
    pub form: Form,
    /// Seed of the order of trials and of every bootstrap.
    pub seed: u64,
    /// When it began, RFC 3339.
    pub begun: String,
    /// Rejection and rerun.
    pub rules: Rules,
    /// Arms that could not be built here, and why. Never filled in.
    pub absent: Vec<(String, String)>,
    /// Who closes first, congestion control, write and datagram sizes: common to all trials.
    pub common: Common,
    /// Where levee's earlier programs were, if they were measured beside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<PathBuf>,
}

impl Manifest {
    /// Whether an arm measures a workload in a block.
    pub fn measures_in(&self, block: usize, arm: &str, workload: &str) -> bool {
        let unit = self.experiment.units(None).into_iter().find(|u| u.id == workload);
        unit.is_some_and(|u| block.is_multiple_of(u.every)) && self.measures(arm, workload)
    }

    /// Whether an arm measures a workload.
    pub fn measures(&self, arm: &str, workload: &str) -> bool {
        let kind = self.experiment.units(None).into_iter().find(|u| u.id == workload).map(|u| u.kind);
        let arm = self.experiment.arms.iter().find(|a| a.name == arm);
        arm.zip(kind).is_some_and(|(a, k)| a.measures(k))
    }
}

/// Settings common to all trials of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Common {
    /// Congestion control at both ends.
    pub congestion: String,
    /// Bytes per write of a stream.
    pub write_size: usize,
    /// Payload bytes of a UDP_STREAM datagram.
    pub datagram: usize,
    /// Bytes of a TCP_FETCH answer.
    pub fetch: u32,
    /// Which side closes first in TCP_CC and TCP_CRR.
    pub closer: crate::workload::Closer,
    /// Seconds to wait before each TCP_CC, TCP_CRR and TCP_RR trial (120 in the MYSEA study).
    pub wait: f64,
}

impl Common {
    /// How long to wait before a trial of that workload: the MYSEA study did before those in which a port taken again
    /// could have mattered (4.5).
    pub fn wait_before(&self, kind: Kind) -> Duration {
        let waits = matches!(kind, Kind::TcpCc | Kind::TcpCrr | Kind::TcpRr | Kind::TcpFetch);
        Duration::try_from_secs_f64(if waits { self.wait } else { 0.0 }).unwrap_or_default()
    }
}

impl Default for Common {
    fn default() -> Common {
        Common {
            congestion: "cubic".into(),
            write_size: 65_536,
            datagram: 1_344,
            fetch: 65_536,
            closer: crate::workload::Closer::Server,
            wait: 0.0,
        }
    }
}

//! A service of a label that runs, as the warden knows it: why there is one, or why it is off, and what process 1, which starts it, has
//! said of it.

use crate::compartment::service::{Report, Told};
use levee_policy::decision::Start;
use levee_policy::{Grant, Label, ServiceName, Site, site};
use std::time::{Duration, Instant};

/// What has become of one service is recorded no more often than this; process 1 has no more to tell.
const RECORDED: Duration = Duration::from_secs(1);

/// What was done, for the audit log.
#[derive(Debug, PartialEq, Eq)]
pub struct Note {
    /// About what.
    pub object: String,
    /// Whether it was done.
    pub done: bool,
    /// Why, or why not.
    pub reason: String,
}

/// Whether a service may be started at a label where these postures are in force, or why it is off. As long as nobody has said which these
/// are, it is.
///
/// # Errors
/// Why it is off.
pub fn decide(
    site: &Site,
    label: &Label,
    service: &site::Service,
    in_force: Option<&[site::Placed]>,
) -> Result<Grant<Start>, String> {
    let in_force = in_force.ok_or("which postures are in force is not known yet")?;
    let posture = site.posture_at(label, in_force.iter());
    site.decide_start(label, service, posture).map_err(|denial| denial.to_string())
}

/// A service.
#[derive(Debug)]
pub struct Service {
    name: ServiceName,
    /// Why it may be started; `None`: it is off.
    grant: Option<Grant<Start>>,
    starts: u32,
    /// Why it does not run, since when that is known, and until when it rests.
    trouble: Option<(String, Instant, Instant)>,
    recorded: Option<Instant>,
}

impl Service {
    /// One of which nothing is known yet.
    pub fn new(name: ServiceName, grant: Option<Grant<Start>>) -> Self {
        Self { name, grant, starts: 0, trouble: None, recorded: None }
    }

    /// It may be started by this from now on, or may not.
    pub fn turn(&mut self, grant: Option<Grant<Start>>) {
        self.grant = grant;
        if self.grant.is_none() {
            self.trouble = None;
        }
    }

    /// Its name.
    pub fn name(&self) -> &ServiceName {
        &self.name
    }

    /// How often it was started.
    pub fn starts(&self) -> u32 {
        self.starts
    }

    /// Process 1 has said this of it. What the audit log is to have.
    pub fn said(&mut self, report: Report, now: Instant) -> Option<Note> {
        self.starts = report.starts;
        self.trouble = report.trouble.map(|(why, rests)| (why, now, now.checked_add(rests).unwrap_or(now)));
        let Told { done, reason } = report.told?;
        let is_soon = self.recorded.is_some_and(|at| now.saturating_duration_since(at) < RECORDED);
        if is_soon {
            return None;
        }
        self.recorded = Some(now);
        Some(Note { object: format!("service {}", self.name()), done, reason })
    }

    /// What an operator is to know of it.
    pub fn alarm(&self, now: Instant) -> Option<String> {
        let (why, since, until) = self.trouble.as_ref()?;
        let ago = now.saturating_duration_since(*since).as_secs();
        let left = until.saturating_duration_since(now).as_secs();
        Some(format!(
            "service {} does not start ({why}, {ago} s ago); a connection may start it in {left} s",
            self.name()
        ))
    }
}

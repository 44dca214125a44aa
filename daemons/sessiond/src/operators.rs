//! Operators: the `levee` command on a Unix socket that only root can open.

use crate::counts::Counts;
use crate::daemon::{Daemon, Source};
use crate::failed::Failed;
use crate::prices;
use levee_daemon::{Bound, Events, Fatal, Outbox, Watched};
use levee_ipc::Channel;
use levee_ipc::mediator::SessiondToMediator;
use levee_ipc::operator::{self, Answer, Command, ServerStatus, SessionStatus};
use levee_ipc::vault::{Report, SessiondToVault};
use levee_ipc::warden::{CompartmentStatus, PartitionStatus, SessiondRequest};
use levee_policy::LabelName;
use levee_policy::site::Cipher;
use levee_prices::Carried;
use levee_session::federation::Federation;
use levee_session::{Entering, Event, OperatorId, Shown, Time, Wish};
use rustix::net::SocketFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long vaults and warden may take to say how they are; whoever has not by then is left out.
const PATIENCE: Duration = Duration::from_millis(500);
const MOST: usize = 16;
/// Who may wait for programs, so that others can ask at any time.
const MOST_PROGRAMS: usize = MOST / 2;
const MAX_SESSIONS: usize = 256;
const MAX_VAULTS: usize = 64;

enum State {
    /// Its command has not come yet.
    Silent,
    /// A status, until everybody has answered.
    Collecting { missing: BTreeSet<LabelName>, compartments: Option<Vec<CompartmentStatus>>, until: Time },
    /// The end of a session, of a trial, or of what is asked of a partition.
    Ending,
    /// The end of a program that may take its time.
    Waiting,
    /// The end of a program that has been ordered at this label.
    Executing(LabelName),
}

struct Operator {
    link: Outbox<Answer>,
    state: State,
}

/// Operators' connections.
pub struct Operators {
    listener: Option<Watched<OwnedFd>>,
    open: BTreeMap<OperatorId, Operator>,
    reports: BTreeMap<LabelName, Report>,
    /// What each mediator said last.
    mediated: BTreeMap<LabelName, Vec<(String, u64)>>,
    /// What the warden said last of the partitions.
    partitions: Vec<PartitionStatus>,
    /// What the warden said last of the tunnel's port.
    steering: Vec<(String, u64)>,
    /// What the warden said last of what is in trouble.
    alarms: Vec<String>,
    /// What did not start when it was asked for last.
    pub failed: Failed,
    next: u64,
}

impl Operators {
    /// None yet.
    pub fn new() -> Self {
        let (open, reports, mediated) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (partitions, steering, alarms) = (Vec::new(), Vec::new(), Vec::new());
        let failed = Failed::default();
        Self { listener: None, open, reports, mediated, partitions, steering, alarms, failed, next: 0 }
    }

    /// Takes the listening socket from the warden.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn listen(&mut self, listener: OwnedFd, events: &mut Events<Source>) -> Result<(), Fatal> {
        let watched = events.watch(listener, Source::Listener);
        self.listener = Some(watched.map_err(|why| Fatal::new("wait for operators", why))?);
        Ok(())
    }

    /// Lets in the next one only while there is room.
    pub fn make_room(&self) -> Result<(), Fatal> {
        let Some(listener) = &self.listener else { return Ok(()) };
        listener.wait_for(self.open.len() < MOST, false).map_err(|why| Fatal::new("wait for operators", why))
    }

    /// How many wait for a program.
    fn programs(&self) -> usize {
        let waits = |one: &&Operator| matches!(one.state, State::Waiting | State::Executing(_));
        self.open.values().filter(waits).count()
    }

    /// When the first status is answered, whoever is missing.
    pub fn deadline(&self) -> Option<Time> {
        let until = |operator: &Operator| match operator.state {
            State::Collecting { until, .. } => Some(until),
            _ => None,
        };
        self.open.values().filter_map(until).min()
    }

    /// Takes a connection; only root's.
    pub fn accept(&mut self, events: &mut Events<Source>, counts: &mut Counts, now: Time) {
        let Some(listener) = &self.listener else { return };
        let Ok(connection) =
            rustix::net::accept_with(&**listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        else {
            return;
        };
        let root = rustix::net::sockopt::socket_peercred(&connection).is_ok_and(|peer| peer.uid.is_root());
        if !root {
            return counts.add_many("an operator who is not root", 1, now);
        }
        self.next += 1;
        let (id, mut link) = (OperatorId(self.next), Outbox::with(Bound::ANSWERS));
        if link.replace(Channel::from_fd(connection), events, Source::Operator(id)).is_ok() {
            self.open.insert(id, Operator { link, state: State::Silent });
        }
    }

    /// Takes a vault's report.
    pub fn report(&mut self, label: &LabelName, report: Report) {
        self.reports.insert(label.clone(), report);
        for operator in self.open.values_mut() {
            if let State::Collecting { missing, .. } = &mut operator.state {
                missing.remove(label);
            }
        }
    }

    /// Takes a mediator's counters.
    pub fn mediated(&mut self, label: &LabelName, counters: Vec<(String, u64)>) {
        self.mediated.insert(label.clone(), counters);
    }

    /// A mediator is dead, its counters with it.
    pub fn unmediated(&mut self, label: &LabelName) {
        self.mediated.remove(label);
    }

    /// Takes what the warden says runs, what nobody got at the tunnel's port, and what is in trouble.
    pub fn compartments(
        &mut self,
        running: Vec<CompartmentStatus>,
        partitions: Vec<PartitionStatus>,
        steering: Vec<(String, u64)>,
        alarms: Vec<String>,
    ) {
        (self.partitions, self.steering, self.alarms) = (partitions, steering, alarms);
        for operator in self.open.values_mut() {
            if let State::Collecting { compartments, .. } = &mut operator.state {
                *compartments = Some(running.clone());
            }
        }
    }

    /// Whether the operator waits for their program still, which is ordered now.
    pub fn executes(&mut self, id: OperatorId, label: &LabelName) -> bool {
        let waiting = self.open.get_mut(&id);
        waiting.is_some_and(|operator| {
            operator.state = State::Executing(label.clone());
            true
        })
    }

    /// The program that an operator had run has been started.
    pub fn executing(&mut self, id: OperatorId, number: u64) {
        if let Some(operator) = self.open.get_mut(&id) {
            operator.link.send(Answer::Began(operator::Entering::source(number)));
        }
    }

    /// The program that an operator had run has ended, or does not run.
    pub fn executed(&mut self, id: OperatorId, result: Result<u8, String>) {
        if let Some(mut operator) = self.open.remove(&id) {
            operator.link.send(result.map_or_else(Answer::Failed, Answer::Exited));
        }
    }

    /// A session's end that an operator asked for is over, or a trial.
    pub fn ended(&mut self, id: OperatorId, result: Result<(), String>) {
        if let Some(mut operator) = self.open.remove(&id) {
            operator.link.send(result.map_or_else(Answer::Failed, |()| Answer::Ended));
        }
    }
}

fn entering(what: operator::Entering) -> Entering {
    match what {
        operator::Entering::Put { path, bytes, sha256 } => {
            Entering::Put { path, bytes, sha256: levee_policy::audit::hex(&sha256) }
        }
        operator::Entering::Execute(argv) => Entering::Execute(argv),
    }
}

impl Daemon {
    pub(crate) fn hear_operator(&mut self, id: OperatorId) {
        let Some(operator) = self.operators.open.get_mut(&id) else { return };
        match operator.link.hear::<Command>() {
            Ok(Some(command)) if matches!(operator.state, State::Silent) => self.obey(id, command),
            Ok(None) => {}
            // One command a connection; one that is closed waits for nothing.
            _ => {
                let gone = self.operators.open.remove(&id);
                if let Some(Operator { state: State::Executing(label), .. }) = gone {
                    self.ask_warden(SessiondRequest::Abandon { label, ticket: id.0 });
                }
            }
        }
    }

    /// The one command of a connection.
    fn obey(&mut self, id: OperatorId, command: Command) {
        let until = self.now().after(PATIENCE);
        let Some(operator) = self.operators.open.get_mut(&id) else { return };
        match command {
            Command::Status => {
                let missing = self.vaults.labels().take(MAX_VAULTS).cloned().collect::<BTreeSet<_>>();
                self.operators.reports.retain(|label, _| self.vaults.has(label));
                for label in &missing {
                    let mediated = || Some(SessiondToMediator::Report);
                    self.vaults.send(label, || SessiondToVault::Report, mediated);
                }
                operator.state = State::Collecting { missing, compartments: None, until };
                self.ask_warden(SessiondRequest::Compartments);
            }
            Command::Prices => {
                let priced = self.priced();
                if let Some(mut operator) = self.operators.open.remove(&id) {
                    operator.link.send(Answer::Prices(Box::new(priced)));
                }
            }
            Command::Partition(name, order) => {
                operator.state = State::Ending;
                self.ask_warden(SessiondRequest::Partition { name, order, ticket: id.0 });
            }
            Command::Disable(user, disable) => {
                operator.state = State::Ending;
                self.handle(Event::Disable(id, user, disable));
            }
            Command::Posture(wish) => {
                operator.state = State::Ending;
                let operator::Posture { what, seconds, reason } = wish;
                let lasting = seconds.map(Duration::from_secs);
                match self.federated.may_set(&self.site) {
                    Ok(()) => self.handle(Event::Posture(id, Wish { what, lasting, reason })),
                    Err(why) => self.operators.ended(id, Err(why)),
                }
            }
            Command::Accesses(label) => {
                operator.link.send(match self.site.label(&label) {
                    Some(_) => Answer::Accesses(self.machine.accesses_at(&label, None)),
                    None => Answer::Failed(format!("the site has no label {label}")),
                });
                self.operators.open.remove(&id);
            }
            Command::Access(wish) => {
                operator.state = State::Ending;
                self.handle(Event::Access(id, wish));
            }
            Command::Try(label) => {
                operator.state = State::Ending;
                self.handle(Event::Try(id, label));
            }
            Command::Enter(label, what) if what.is_bounded() => {
                let lasts = matches!(what, operator::Entering::Execute(_));
                operator.state = if lasts { State::Waiting } else { State::Ending };
                if lasts && self.operators.programs() > MOST_PROGRAMS {
                    let why = format!("{MOST_PROGRAMS} operators wait for programs already");
                    return self.operators.ended(id, Err(why));
                }
                self.handle(Event::Enter(id, label, entering(what)));
            }
            Command::Enter(..) => {
                let why = "too long, or nothing at all".to_owned();
                self.operators.ended(id, Err(why));
            }
            Command::Changed(user) => {
                let recorded = self.changed(user);
                self.operators.ended(id, recorded);
            }
            Command::End(shown) => {
                operator.state = State::Ending;
                self.handle(Event::End(id, shown));
            }
        }
    }

    pub(crate) fn answer_operators(&mut self) {
        let now = self.now();
        let ready = |operator: &Operator| match &operator.state {
            State::Collecting { missing, compartments, until } => {
                (missing.is_empty() && compartments.is_some()) || *until <= now
            }
            _ => false,
        };
        let done: Vec<OperatorId> =
            self.operators.open.iter().filter(|(_, operator)| ready(operator)).map(|(id, _)| *id).collect();
        for id in done {
            let Some(mut operator) = self.operators.open.remove(&id) else { continue };
            let State::Collecting { compartments, .. } = operator.state else { continue };
            let status = self.status(compartments.unwrap_or_default());
            operator.link.send(fitting(status));
        }
    }

    /// How a session's packets go now, where the laboratory measures tunnels of that kind.
    fn carried(&self, shown: &Shown) -> Option<Carried> {
        let label = self.site.label(&shown.label)?;
        // With whichever cipher: what it is sealed by is its vault's to say.
        let asked = self.site.protected_by(&label, shown.protections.iter(), Cipher::all()).ok()?;
        let posture = self.machine.posture_at(&shown.label);
        prices::carried(&self.site, &label, posture, &self.machine.tunnel(&shown.label, &asked))
    }

    fn priced(&mut self) -> operator::Priced {
        let row = |shown: Shown| {
            let carried = self.carried(&shown);
            (shown.id.to_string(), carried)
        };
        let sessions = self.machine.shown().take(MAX_SESSIONS).map(row).collect();
        let now = self.now();
        operator::Priced { prices: self.prices.all(now), sessions }
    }

    fn status(&self, mut compartments: Vec<CompartmentStatus>) -> ServerStatus {
        let now = self.now();
        for compartment in &mut compartments {
            let counters = self.operators.mediated.get(&compartment.label).into_iter().flatten();
            compartment.counters.extend(counters.filter(|(_, count)| *count > 0).cloned());
        }
        let row = |shown: Shown| SessionStatus {
            id: shown.id.to_string(),
            user: shown.user,
            host: shown.device,
            label: shown.label,
            inner: shown.inner,
            age_ms: now.as_millis().saturating_sub(shown.opened.as_millis()),
            attached: shown.attached,
            locked: shown.locked,
            protections: shown.protections,
        };
        let sessions = self.machine.shown();
        let (in_force, moving) = self.machine.postures();
        let federation = self.federated.machine.as_ref().and_then(Federation::alarm);
        let posture = self.machine.posture_alarm();
        let own = [self.audit.alarm(), self.store.alarm(), self.clock.alarm(), posture, federation];
        let alarms = &self.operators.alarms;
        let alarms = alarms.iter().cloned().chain(self.operators.failed.alarms(now, alarms));
        let left = |until: Time| until.as_millis().saturating_sub(now.as_millis());
        let in_force = in_force
            .iter()
            .map(|one| operator::InForce { what: one.what.clone(), left_ms: one.until.map(left) });
        ServerStatus {
            site: self.site.name().clone(),
            session_count: sessions.len() as u64,
            sessions: sessions.take(MAX_SESSIONS).map(row).collect(),
            compartments,
            partitions: self.operators.partitions.clone(),
            vaults: self
                .operators
                .reports
                .iter()
                .filter(|(label, _)| self.vaults.has(label))
                .take(MAX_VAULTS)
                .map(|(label, report)| (label.clone(), report.clone()))
                .collect(),
            counters: self.counts.totals(),
            steering: self.operators.steering.clone(),
            alarms: own.into_iter().flatten().chain(alarms).collect(),
            audit_records: self.audit.records(),
            postures: in_force.collect(),
            floors: self.site.floors(),
            moving,
            disabled: self.machine.disabled().take(MAX_SESSIONS).cloned().collect(),
            federation: self.federated.status(&self.site),
        }
    }
}

/// The status, with fewer rows where they would not fit one message; the numbers beside them stay whole.
fn fitting(mut status: ServerStatus) -> Answer {
    let mut rows = MAX_SESSIONS;
    loop {
        let answer = Answer::Status(Box::new(status));
        let fits = postcard::to_allocvec(&answer).is_ok_and(|bytes| bytes.len() <= levee_ipc::MAX_MESSAGE);
        let Answer::Status(whole) = answer else { return answer };
        if fits || rows == 0 {
            return Answer::Status(whole);
        }
        status = *whole;
        rows /= 2;
        status.vaults.iter_mut().for_each(|(_, report)| report.sas.truncate(rows / 4));
        status.vaults.truncate(rows.max(1));
        status.sessions.truncate(rows);
        status.compartments.truncate(rows);
        // What is in trouble stays the longest.
        status.counters.truncate(rows * 2);
        status.steering.truncate(rows * 2);
        status.partitions.truncate(rows * 4);
        status.disabled.truncate(rows * 4);
        status.alarms.truncate(rows * 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_any_size_fits_one_message_and_still_counts_everything() {
        let label = LabelName::new("SECRET//NATO").unwrap();
        let report =
            Report { counters: vec![("packets dropped for a reason".into(), 7); 100], ..Report::default() };
        let session = SessionStatus {
            id: "0123456789ab".into(),
            user: "ada".parse().unwrap(),
            host: "a-workstation-with-a-long-name".parse().unwrap(),
            label: label.clone(),
            inner: vec!["10.80.1.2".parse().unwrap(), "fd00::1".parse().unwrap()],
            age_ms: 1 << 40,
            attached: true,
            locked: true,
            protections: vec!["p".repeat(32).parse().unwrap(); 2],
        };
        let status = ServerStatus {
            site: "harbour".parse().unwrap(),
            sessions: vec![session; MAX_SESSIONS],
            session_count: 10_000,
            compartments: Vec::new(),
            partitions: Vec::new(),
            vaults: vec![(label, report); MAX_VAULTS],
            counters: Vec::new(),
            steering: Vec::new(),
            alarms: Vec::new(),
            audit_records: 9,
            postures: Vec::new(),
            floors: Vec::new(),
            moving: false,
            disabled: Vec::new(),
            federation: None,
        };
        assert!(postcard::to_allocvec(&status).unwrap().len() > levee_ipc::MAX_MESSAGE);
        let answer = fitting(status);
        assert!(postcard::to_allocvec(&answer).unwrap().len() <= levee_ipc::MAX_MESSAGE);
        let Answer::Status(status) = answer else { panic!("not a status") };
        assert_eq!(status.session_count, 10_000);
        assert!(!status.sessions.is_empty() && !status.vaults.is_empty());
    }

    #[test]
    fn a_status_in_which_every_process_says_as_much_as_it_may_fits_one_message() {
        let label = LabelName::new("SECRET").unwrap();
        let counts = |most: u64| (0..most).map(|n| (format!("{n:\u{fc}<64}"), u64::MAX)).collect::<Vec<_>>();
        let vault = Report { counters: counts(64), ..Report::default() };
        let partition = PartitionStatus {
            name: "exporter".parse().unwrap(),
            label: label.clone(),
            state: format!("off: {}", "\u{20ac}".repeat(300)),
            init: 0,
            age_ms: 0,
            starts: 9,
            weight: 100,
            cpu_percent: 100,
            reserved: 0,
        };
        let status = ServerStatus {
            site: "harbour".parse().unwrap(),
            sessions: Vec::new(),
            session_count: 10_000,
            compartments: Vec::new(),
            partitions: vec![partition; 64],
            vaults: vec![(label, vault); MAX_VAULTS],
            counters: counts(256),
            steering: counts(64 * 64),
            alarms: vec!["\u{20ac}".repeat(400); 64],
            audit_records: 9,
            postures: Vec::new(),
            floors: Vec::new(),
            moving: false,
            disabled: Vec::new(),
            federation: None,
        };
        let answer = fitting(status);
        assert!(postcard::to_allocvec(&answer).unwrap().len() <= levee_ipc::MAX_MESSAGE);
        let Answer::Status(status) = answer else { panic!("not a status") };
        assert!(!status.alarms.is_empty() && !status.partitions.is_empty() && !status.counters.is_empty());
    }
}

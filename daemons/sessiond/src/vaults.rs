//! The vaults, each label's spoken with as one. It may have several workers: an order goes to all of them, and it
//! counts as carried out when every one has said so. Where the label has a mediator, it hears of sessions as the workers
//! do, and counts as one of them.

use crate::daemon::Source;
use levee_daemon::{Events, Fatal, Outbox};
use levee_ipc::Channel;
use levee_ipc::mediator::SessiondToMediator;
use levee_ipc::vault::{MOST_SEVERED, Report, SessiondToVault, VaultToSessiond};
use levee_policy::LabelName;
use levee_session::SessionId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// In the place of a worker's steering slot: the mediator. Slot 0 is the keyer's, so no worker has it.
pub const MEDIATOR: u16 = 0;

/// What a worker has been asked and must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Session(SessionId),
    Ping(u64),
    Report,
    Ciphers(u64),
}

/// An order on its way.
struct Order {
    /// Who has not answered. One whose channel is gone stays: only its death, which the warden tells, answers for it.
    missing: BTreeSet<u16>,
    /// Of a session: it is to close, so that `Opened` is no answer.
    closing: bool,
    /// What those who answered have reported.
    report: Report,
    /// Sessions that those who answered have severed.
    severed: BTreeSet<SessionId>,
}

/// The workers of one label's vault, by steering slot.
#[derive(Default)]
struct Workers {
    /// `None` once a worker's channel is gone.
    links: BTreeMap<u16, Option<Outbox<SessiondToVault>>>,
    /// `None` where there is none, and while one that died is being replaced: the next one is told everything anew.
    mediator: Option<Outbox<SessiondToMediator>>,
    /// Of one kind in the order in which they were given, as each answers them.
    orders: BTreeMap<Asked, VecDeque<Order>>,
}

/// Every label's vault.
#[derive(Default)]
pub struct Vaults(BTreeMap<LabelName, Workers>);

impl Vaults {
    /// Takes the channel to a worker. All of a vault come before the warden says that the label is up.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn attach(
        &mut self,
        label: LabelName,
        slot: u16,
        channel: Channel,
        events: &mut Events<Source>,
    ) -> Result<(), Fatal> {
        let mut link = Outbox::of_one();
        link.replace(channel, events, Source::Vault(label.clone(), slot))?;
        self.0.entry(label).or_default().links.insert(slot, Some(link));
        Ok(())
    }

    /// Takes the channel to a label's mediator. One before it is dead, its connections with it: what it was asked and has
    /// not answered is answered by that, and what was asked of it alone comes back.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn attach_mediator(
        &mut self,
        label: LabelName,
        channel: Channel,
        events: &mut Events<Source>,
    ) -> Result<Vec<VaultToSessiond>, Fatal> {
        let mut link = Outbox::of_one();
        link.replace(channel, events, Source::Mediator(label.clone()))?;
        let workers = self.0.entry(label).or_default();
        workers.mediator = Some(link);
        let mut answers = Vec::new();
        for (asked, orders) in &mut workers.orders {
            for order in orders.iter_mut() {
                order.missing.remove(&MEDIATOR);
            }
            let done = orders.iter().take_while(|order| order.missing.is_empty()).count();
            answers.extend(orders.drain(..done).map(|order| match *asked {
                Asked::Session(id) if order.closing => VaultToSessiond::Closed(id),
                Asked::Session(id) => VaultToSessiond::Opened(id),
                Asked::Ping(number) => VaultToSessiond::Pong(number),
                Asked::Report => VaultToSessiond::Report(order.report),
                Asked::Ciphers(number) => moved(number, order.severed),
            }));
        }
        workers.orders.retain(|_, orders| !orders.is_empty());
        Ok(answers)
    }

    /// A label's vault is dead, with all its workers. Its mediator is not.
    pub fn forget(&mut self, label: &LabelName) {
        if let Some(workers) = self.0.get_mut(label) {
            workers.links.clear();
            workers.orders.clear();
        }
    }

    /// Nothing runs at a label.
    pub fn forget_all(&mut self, label: &LabelName) {
        self.0.remove(label);
    }

    /// The channel to a label's mediator.
    pub fn mediator(&mut self, label: &LabelName) -> Option<&mut Outbox<SessiondToMediator>> {
        self.0.get_mut(label)?.mediator.as_mut()
    }

    /// The channel to a mediator is gone. What it was asked it answers by its death, which the next one's channel shows.
    pub fn mediator_lost(&mut self, label: &LabelName) {
        if let Some(workers) = self.0.get_mut(label) {
            workers.mediator = None;
        }
    }

    /// A worker's channel is gone, and what was sent on it may not have come.
    pub fn lost(&mut self, label: &LabelName, slot: u16) {
        if let Some(link) = self.0.get_mut(label).and_then(|workers| workers.links.get_mut(&slot)) {
            *link = None;
        }
    }

    /// Labels whose vault can be spoken with.
    pub fn labels(&self) -> impl Iterator<Item = &LabelName> {
        self.0
            .iter()
            .filter(|(_, workers)| workers.links.values().any(Option::is_some))
            .map(|(label, _)| label)
    }

    /// Whether a label's vault can be spoken with.
    pub fn has(&self, label: &LabelName) -> bool {
        self.0.get(label).is_some_and(|workers| workers.links.values().any(Option::is_some))
    }

    /// One channel.
    pub fn link(&mut self, label: &LabelName, slot: u16) -> Option<&mut Outbox<SessiondToVault>> {
        self.0.get_mut(label)?.links.get_mut(&slot)?.as_mut()
    }

    /// Sends an order to every worker of a label's vault, and as `mediated` says to its mediator. One that is gone does not
    /// answer; the state machine acts on that.
    pub fn send(
        &mut self,
        label: &LabelName,
        order: impl Fn() -> SessiondToVault,
        mediated: impl FnOnce() -> Option<SessiondToMediator>,
    ) {
        let Some(workers) = self.0.get_mut(label) else { return };
        let (asked, closing) = match order() {
            SessiondToVault::Open(record) | SessiondToVault::OpenTheirs { record, .. } => {
                (Some(Asked::Session(record.id)), false)
            }
            SessiondToVault::Close(id) => (Some(Asked::Session(id)), true),
            SessiondToVault::Ping(number) => (Some(Asked::Ping(number)), false),
            SessiondToVault::Report => (Some(Asked::Report), false),
            SessiondToVault::Ciphers { number, .. } => (Some(Asked::Ciphers(number)), false),
            SessiondToVault::Synced | SessiondToVault::Until { .. } | SessiondToVault::Sever(_) => {
                (None, false)
            }
        };
        if let Some(asked) = asked {
            // A mediator has no keys.
            let keys = matches!(asked, Asked::Ciphers(_));
            let missing = workers.all().filter(|slot| !keys || *slot != MEDIATOR).collect();
            let (report, mut severed) = (Report::default(), BTreeSet::new());
            let orders = workers.orders.entry(asked).or_default();
            if closing || keys || asked == Asked::Report {
                // What it was opened with, or was to say, is nothing any more; what it is asked by the same number it answers once, and whom it
                // has severed by then it has.
                severed.extend(orders.drain(..).flat_map(|order| order.severed));
            }
            orders.push_back(Order { missing, closing, report, severed });
        }
        workers.links.values_mut().flatten().for_each(|link| link.send(order()));
        if let Some(mediator) = &mut workers.mediator
            && let Some(message) = mediated()
        {
            mediator.send(message);
        }
    }

    /// Sends something that nobody answers to every worker of every vault.
    pub fn tell_all(&mut self, message: impl Fn() -> SessiondToVault) {
        let links = self.0.values_mut().flat_map(|workers| workers.links.values_mut().flatten());
        links.for_each(|link| link.send(message()));
    }

    /// Takes a worker's answer. Gives the vault's, if it is the last.
    pub fn answered(
        &mut self,
        label: &LabelName,
        slot: u16,
        answer: VaultToSessiond,
    ) -> Option<VaultToSessiond> {
        let workers = self.0.get_mut(label)?;
        let all: BTreeSet<u16> = workers.all().collect();
        let asked = match &answer {
            VaultToSessiond::Opened(id) | VaultToSessiond::Closed(id) => Asked::Session(*id),
            VaultToSessiond::Pong(number) => Asked::Ping(*number),
            VaultToSessiond::Report(_) => Asked::Report,
            VaultToSessiond::Moved { number, .. } => Asked::Ciphers(*number),
            // Nobody asked.
            VaultToSessiond::Disagreed(_) => return Some(answer),
        };
        let orders = workers.orders.get_mut(&asked)?;
        let order = if matches!(answer, VaultToSessiond::Closed(_)) {
            // Whatever else it was told of the session, it has none of it.
            orders.truncate(1);
            orders.front_mut()?
        } else {
            orders.iter_mut().find(|order| order.missing.contains(&slot))?
        };
        match &answer {
            VaultToSessiond::Opened(_) if order.closing => return None,
            VaultToSessiond::Closed(id) if !order.closing => {
                // It does not take the session, so the others must not have it either.
                order.closing = true;
                order.missing = all.into_iter().filter(|other| *other != slot).collect();
                if let Some(mediator) = &mut workers.mediator {
                    mediator.send(SessiondToMediator::Close(*id));
                }
                let others = workers.links.iter_mut().filter(|(other, _)| **other != slot);
                for link in others.filter_map(|(_, link)| link.as_mut()) {
                    link.send(SessiondToVault::Close(*id));
                }
            }
            VaultToSessiond::Report(part) => add(&mut order.report, part),
            VaultToSessiond::Moved { severed, .. } => {
                order.severed.extend(severed.iter().take(MOST_SEVERED));
            }
            _ => {}
        }
        order.missing.remove(&slot);
        if !order.missing.is_empty() {
            return None;
        }
        // Each answers in order: of several, the first is done first.
        let order = orders.pop_front()?;
        if orders.is_empty() {
            workers.orders.remove(&asked);
        }
        Some(match answer {
            VaultToSessiond::Report(_) => VaultToSessiond::Report(order.report),
            VaultToSessiond::Moved { number, .. } => moved(number, order.severed),
            other => other,
        })
    }
}

impl Workers {
    /// Everybody who must answer: by slot, and the mediator.
    fn all(&self) -> impl Iterator<Item = u16> {
        self.links.keys().copied().chain(self.mediator.as_ref().map(|_| MEDIATOR))
    }
}

fn moved(number: u64, severed: BTreeSet<SessionId>) -> VaultToSessiond {
    VaultToSessiond::Moved { number, severed: severed.into_iter().collect() }
}

/// Counters of one name add up.
fn add(sum: &mut Report, part: &Report) {
    for (name, value) in &part.counters {
        match sum.counters.iter_mut().find(|(other, _)| other == name) {
            Some((_, total)) => *total = total.saturating_add(*value),
            None => sum.counters.push((name.clone(), *value)),
        }
    }
    let room = Report::ROWS.saturating_sub(sum.sas.len());
    sum.sas.extend(part.sas.iter().take(room).cloned());
    sum.sa_count = sum.sa_count.saturating_add(part.sa_count);
    for (sum, part) in sum.held.iter_mut().zip(part.held) {
        *sum = sum.and(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::vault::{Carriage, Cipher, Held, SaReport, SessionRecord};

    struct Pair {
        events: Events<Source>,
        vaults: Vaults,
        label: LabelName,
        workers: Vec<(u16, Channel)>,
    }

    const ID: [u8; 16] = [7; 16];

    fn two() -> Pair {
        let (mut vaults, label) = (Vaults::default(), LabelName::new("SECRET").unwrap());
        let mut events = Events::new().unwrap();
        let workers = [9, 4].map(|slot| {
            let (ours, theirs) = Channel::pair().unwrap();
            vaults.attach(label.clone(), slot, ours, &mut events).unwrap();
            (slot, theirs)
        });
        Pair { events, vaults, label, workers: workers.into() }
    }

    impl Pair {
        fn hears(&self, worker: usize) -> Option<SessiondToVault> {
            self.workers[worker].1.try_recv().ok().map(|received| received.message)
        }

        fn says(&mut self, worker: usize, answer: VaultToSessiond) -> Option<VaultToSessiond> {
            self.vaults.answered(&self.label, self.workers[worker].0, answer)
        }

        fn close(&mut self, id: SessionId) {
            self.vaults.send(
                &self.label,
                || SessiondToVault::Close(id),
                || Some(SessiondToMediator::Close(id)),
            );
        }

        fn open(&mut self, id: SessionId) {
            let record = || SessionRecord {
                id,
                inner: Vec::new(),
                selectors: Vec::new(),
                ciphers: None,
                layered: false,
            };
            self.vaults.send(&self.label, || SessiondToVault::Open(record()), || None);
        }
    }

    #[test]
    fn a_session_is_closed_when_the_last_worker_has_closed_it() {
        let (mut pair, id) = (two(), SessionId::from_random(ID));
        pair.close(id);
        for worker in 0..2 {
            assert!(matches!(pair.hears(worker), Some(SessiondToVault::Close(asked)) if asked == id));
        }
        assert!(pair.says(1, VaultToSessiond::Closed(id)).is_none());
        assert!(pair.says(1, VaultToSessiond::Closed(id)).is_none(), "one worker counts once");
        assert!(matches!(pair.says(0, VaultToSessiond::Closed(id)), Some(VaultToSessiond::Closed(_))));
    }

    #[test]
    fn what_is_said_of_a_session_before_it_was_answered_is_an_order_of_its_own() {
        let (mut pair, id) = (two(), SessionId::from_random(ID));
        pair.open(id);
        assert!(pair.says(0, VaultToSessiond::Opened(id)).is_none());
        pair.open(id);
        assert!(pair.says(0, VaultToSessiond::Opened(id)).is_none(), "the other has not the first");
        assert!(matches!(pair.says(1, VaultToSessiond::Opened(id)), Some(VaultToSessiond::Opened(_))));
        assert!(matches!(pair.says(1, VaultToSessiond::Opened(id)), Some(VaultToSessiond::Opened(_))));
        assert!(pair.says(1, VaultToSessiond::Opened(id)).is_none(), "nothing else was said");
    }

    #[test]
    fn a_worker_whose_channel_is_gone_never_counts_as_having_closed() {
        let (mut pair, id) = (two(), SessionId::from_random(ID));
        let (label, slot) = (pair.label.clone(), pair.workers[0].0);
        pair.vaults.lost(&label, slot);
        pair.close(id);
        assert!(pair.says(1, VaultToSessiond::Closed(id)).is_none());
        pair.vaults.lost(&label, pair.workers[1].0);
        assert!(!pair.vaults.has(&label));
    }

    #[test]
    fn an_opening_that_is_overtaken_by_the_end_is_no_answer_to_it() {
        let (mut pair, id) = (two(), SessionId::from_random(ID));
        pair.open(id);
        assert!(pair.says(0, VaultToSessiond::Opened(id)).is_none());
        pair.close(id);
        for worker in 0..2 {
            assert!(pair.says(worker, VaultToSessiond::Opened(id)).is_none());
        }
        assert!(pair.says(0, VaultToSessiond::Closed(id)).is_none());
        assert!(matches!(pair.says(1, VaultToSessiond::Closed(id)), Some(VaultToSessiond::Closed(_))));
    }

    #[test]
    fn a_session_that_one_worker_refuses_is_closed_at_the_others_before_it_counts_as_refused() {
        let (mut pair, id) = (two(), SessionId::from_random(ID));
        pair.open(id);
        assert!(pair.says(0, VaultToSessiond::Opened(id)).is_none());
        assert!(pair.says(1, VaultToSessiond::Closed(id)).is_none());
        assert!(matches!(pair.hears(0), Some(SessiondToVault::Open(_))));
        assert!(matches!(pair.hears(0), Some(SessiondToVault::Close(asked)) if asked == id));
        assert!(matches!(pair.says(0, VaultToSessiond::Closed(id)), Some(VaultToSessiond::Closed(_))));
    }

    #[test]
    fn a_session_is_closed_when_the_mediator_has_closed_it_too_or_is_dead() {
        let (mut pair, id) = (two(), SessionId::from_random(ID));
        let label = pair.label.clone();
        let mediator = |pair: &mut Pair| {
            let (ours, theirs) = Channel::pair().unwrap();
            (pair.vaults.attach_mediator(label.clone(), ours, &mut pair.events).unwrap(), theirs)
        };
        let (answered, theirs) = mediator(&mut pair);
        assert!(answered.is_empty());
        for dies in [false, true] {
            pair.close(id);
            assert!(
                matches!(theirs.try_recv().unwrap().message, SessiondToMediator::Close(asked) if asked == id)
            );
            assert!(pair.says(0, VaultToSessiond::Closed(id)).is_none());
            assert!(pair.says(1, VaultToSessiond::Closed(id)).is_none());
            let last = if dies {
                // That its channel is gone is not yet that it is.
                pair.vaults.mediator_lost(&label);
                assert!(pair.says(0, VaultToSessiond::Closed(id)).is_none());
                mediator(&mut pair).0.pop()
            } else {
                pair.vaults.answered(&label, MEDIATOR, VaultToSessiond::Closed(id))
            };
            assert!(matches!(last, Some(VaultToSessiond::Closed(closed)) if closed == id));
        }
        // Of one that it was to take, the others have it.
        pair.open(id);
        assert!((0..2).all(|worker| pair.says(worker, VaultToSessiond::Opened(id)).is_none()));
        let opened = mediator(&mut pair).0;
        assert!(matches!(opened[..], [VaultToSessiond::Opened(one)] if one == id), "{opened:?}");
        // Without a mediator it is as it was.
        pair.vaults.mediator_lost(&label);
        pair.close(id);
        assert!(pair.says(0, VaultToSessiond::Closed(id)).is_none());
        assert!(pair.says(1, VaultToSessiond::Closed(id)).is_some());
    }

    #[test]
    fn what_workers_report_adds_up_and_what_nobody_asked_for_is_dropped() {
        let mut pair = two();
        let label = pair.label.clone();
        let report = || {
            let counters = vec![("packets in".to_owned(), 2)];
            let held = [Held { packets: 2, nanoseconds: 500 }, Held::default()];
            VaultToSessiond::Report(Report { counters, sas: Vec::new(), sa_count: 3, held })
        };
        assert!(pair.says(0, report()).is_none());
        pair.vaults.send(&label, || SessiondToVault::Report, || None);
        assert!(pair.says(0, report()).is_none());
        let Some(VaultToSessiond::Report(sum)) = pair.says(1, report()) else { panic!("no report") };
        assert_eq!((sum.counters, sum.sa_count), (vec![("packets in".to_owned(), 4)], 6));
        assert_eq!(sum.held, [Held { packets: 4, nanoseconds: 1_000 }, Held::default()]);
        assert!(pair.says(0, VaultToSessiond::Pong(1)).is_none());
    }

    #[test]
    fn new_keys_are_everywhere_when_each_worker_says_so_and_who_has_none_is_not_asked() {
        let mut pair = two();
        let label = pair.label.clone();
        let (ours, mediator) = Channel::pair().unwrap();
        assert!(pair.vaults.attach_mediator(label.clone(), ours, &mut pair.events).unwrap().is_empty());
        let order = || SessiondToVault::Ciphers { number: 5, ciphers: vec![Cipher::Aes256Gcm], anew: true };
        pair.vaults.send(&label, order, || None);
        for worker in 0..2 {
            assert!(matches!(pair.hears(worker), Some(SessiondToVault::Ciphers { number: 5, .. })));
        }
        assert!(mediator.try_recv::<SessiondToMediator>().is_err());
        let severed = |last: u8| SessionId::from_random([last; 16]);
        let moved = |number, all: &[u8]| VaultToSessiond::Moved {
            number,
            severed: all.iter().copied().map(severed).collect(),
        };
        assert!(pair.says(0, moved(4, &[])).is_none(), "nobody asked for that");
        assert!(pair.says(0, moved(5, &[1, 2])).is_none());
        // Asked once more by the same number they answer once more, and whom one had severed it has.
        pair.vaults.send(&label, order, || None);
        assert!(pair.says(0, moved(5, &[])).is_none());
        let Some(VaultToSessiond::Moved { number: 5, severed: all }) = pair.says(1, moved(5, &[2, 3])) else {
            panic!("no answer")
        };
        assert_eq!(BTreeSet::from_iter(all), [1, 2, 3].map(severed).into());
    }

    #[test]
    fn a_report_that_is_asked_for_anew_has_nothing_of_the_one_before_and_no_more_rows_than_one_may() {
        let mut pair = two();
        let label = pair.label.clone();
        let report = |rows: usize| {
            let row = SaReport {
                session: SessionId::from_random(ID),
                inbound_spi: 1,
                outbound_spi: 2,
                cipher: Cipher::Aes256Gcm,
                carriage: Carriage::Each,
                peer: None,
                packets: (0, 0),
                bytes: (0, 0),
            };
            let report = Report { sas: vec![row; rows], sa_count: 3, ..Report::default() };
            VaultToSessiond::Report(report)
        };
        pair.vaults.send(&label, || SessiondToVault::Report, || None);
        assert!(pair.says(0, report(1)).is_none());
        pair.vaults.send(&label, || SessiondToVault::Report, || None);
        assert!(pair.says(0, report(Report::ROWS - 1)).is_none());
        let Some(VaultToSessiond::Report(sum)) = pair.says(1, report(2)) else { panic!("no report") };
        assert_eq!((sum.sas.len(), sum.sa_count), (Report::ROWS, 6));
        assert!(pair.says(0, report(1)).is_none(), "nobody asked");
    }

    #[test]
    fn of_a_dead_vault_nothing_is_waited_for_and_its_mediator_is_there() {
        let (mut pair, id) = (two(), SessionId::from_random(ID));
        let label = pair.label.clone();
        let (ours, _mediator) = Channel::pair().unwrap();
        pair.vaults.attach_mediator(label.clone(), ours, &mut pair.events).unwrap();
        assert!(pair.vaults.labels().eq([&label]) && pair.vaults.has(&label));
        assert!(pair.vaults.link(&label, 9).is_some() && pair.vaults.link(&label, 8).is_none());
        pair.vaults.tell_all(|| SessiondToVault::Synced);
        assert!((0..2).all(|worker| matches!(pair.hears(worker), Some(SessiondToVault::Synced))));
        pair.close(id);
        pair.vaults.forget(&label);
        assert!(pair.says(0, VaultToSessiond::Closed(id)).is_none());
        assert!(pair.vaults.labels().next().is_none() && !pair.vaults.has(&label));
        assert!(pair.vaults.mediator(&label).is_some() && pair.vaults.link(&label, 9).is_none());
        pair.vaults.forget_all(&label);
        assert!(pair.vaults.mediator(&label).is_none());
    }
}

//! A workstation's part: one session, one IKE SA with the server for it, on the session's own port.

use crate::children::MOVED_OVERLAP;
use crate::keyer::Keyer;
use crate::timers::Timer;
use levee_ike::{
    ChildDecision, ChildError, ChildRequested, CloseReason, Command, Identity, IkeId, Peer, PeerCertificate,
    RemoteId, Resource, Role, TrustAnchors,
};
use levee_ipc::keyer::{FromKeyer, KeyRecord, Pass};
use levee_policy::DomainName;
use levee_session::SessionId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The first wait before another try, doubled each time up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// See [`FIRST_WAIT`].
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// So many tries without a child, and the session cannot go on.
const TRIES: u32 = 10;
/// Time from one look at a part whose packets are to go otherwise to the next.
const AGAIN: Duration = Duration::from_secs(1);
/// So many, which is longer than any posture gives a workstation.
const MOST_ASKED: u32 = 75;
/// Passes that are kept for a session.
const PASSES: usize = 16;

/// The session there is, or the part of it at another server of the site.
#[derive(Debug)]
struct Live {
    session: SessionId,
    server: SocketAddr,
    /// Which of the endpoint's peers that is: 0 is the server where the person signed on.
    peer: usize,
    /// The IKE SA in use.
    ike: Option<IkeId>,
    /// The certificate by which the server proved who it is.
    certificate: Option<PeerCertificate>,
    /// The one that is to take its place.
    connecting: Option<IkeId>,
    /// Those whose place was taken, until the new one has had a child for a while.
    old: Vec<IkeId>,
    /// The TPE knows that there are keys.
    completed: bool,
    failures: u32,
    /// Another try waits for its time.
    waiting: bool,
    /// What the server knows us by, each good once.
    passes: Vec<Pass>,
    /// How often a part was asked for keys whose packets go otherwise; 0 while it need not be.
    asked: u32,
}

/// What a workstation's keyer knows.
#[derive(Debug, Default)]
pub struct Workstation {
    live: BTreeMap<SessionId, Live>,
}

impl Live {
    fn new(session: SessionId, server: SocketAddr, peer: usize) -> Self {
        Self {
            session,
            server,
            peer,
            ike: None,
            certificate: None,
            connecting: None,
            old: Vec::new(),
            completed: false,
            failures: 0,
            waiting: false,
            passes: Vec::new(),
            asked: 0,
        }
    }

    /// A part at another server comes and goes by itself: the session does without.
    fn is_part(&self) -> bool {
        self.peer != 0
    }
}

impl Workstation {
    /// The first moment at which the certificate of a server has run out by which there is an IKE SA, in seconds since 1970.
    pub fn first_end(&self) -> Option<u64> {
        let shown = self.live.values().filter_map(|live| live.certificate.as_ref());
        shown.map(|certificate| certificate.ends().saturating_add(1)).min()
    }

    fn of(&mut self, session: SessionId) -> Option<&mut Live> {
        self.live.get_mut(&session)
    }
}

impl Keyer {
    /// Negotiates keys for a session; for one that has keys, anew.
    pub(crate) fn connect(&mut self, record: KeyRecord, server: SocketAddr, mut passes: Vec<Pass>) {
        passes.truncate(PASSES);
        let session = record.session;
        let others = self.workstation.live.values().filter(|live| !live.is_part() && live.session != session);
        for other in others.map(|live| live.session).collect::<Vec<_>>() {
            self.disconnect(other);
        }
        self.offer(&record);
        self.children.admit(record);
        match self.workstation.of(session) {
            // Under way.
            Some(live) if live.connecting.is_some() => {}
            Some(live) => {
                (live.server, live.failures, live.passes) = (server, 0, passes);
                self.connect_again(session);
            }
            None => {
                let live = Live { passes, ..Live::new(session, server, 0) };
                self.workstation.live.insert(session, live);
                self.connect_again(session);
            }
        }
    }

    /// Takes the part of the session that is at another server. A packet for it begins the negotiation.
    pub(crate) fn admit(&mut self, record: KeyRecord, server: SocketAddr, name: &DomainName) {
        let session = record.session;
        let remote_id = RemoteId::Exactly(Identity::Fqdn(name.to_string()));
        let known = self.endpoint.config().peers.iter().skip(1).position(|peer| peer.remote_id == remote_id);
        let peer = match (known, self.endpoint.config().peers.first()) {
            (Some(place), _) => place + 1,
            // As with the first: the same proofs, and the same PPK where there is one.
            (None, Some(first)) => {
                let peer = Peer { remote_id, ..first.clone() };
                self.endpoint.add_peer(peer)
            }
            (None, None) => return,
        };
        self.children.admit(record);
        let live = self.workstation.live.entry(session).or_insert_with(|| Live::new(session, server, peer));
        // One look that is under way goes on, for as long as from the beginning.
        if std::mem::replace(&mut live.asked, 1) == 0 {
            self.change_part(session);
        }
    }

    /// A part's packets may have to go otherwise than they do: a posture is in force at the server where the person signed on, and may come
    /// to be at this one later. So it is asked until it gives such keys, or must have followed. Until then those of before serve.
    pub(crate) fn change_part(&mut self, session: SessionId) {
        let Some(live) = self.workstation.of(session) else { return };
        let asked = std::mem::take(&mut live.asked);
        let Some(ike) = live.ike else { return };
        let late = asked >= MOST_ASKED;
        if self.carry_otherwise(ike, session, late) && !late {
            if let Some(live) = self.workstation.of(session) {
                live.asked = asked.saturating_add(1);
            }
            self.at(AGAIN, Timer::Change(session));
        }
    }

    /// Begins an IKE SA for a session.
    pub(crate) fn connect_again(&mut self, session: SessionId) {
        let Some(live) = self.workstation.of(session) else { return };
        live.waiting = false;
        let (server, peer) = (live.server, live.peer);
        if live.connecting.is_some() {
            return;
        }
        let path = self.sockets.path(server);
        let (Some(path), Some(child)) = (path, self.new_child(session, None)) else {
            return self.give_up(session, "the session's vault is not up");
        };
        let (spi, now) = (child.spi, self.now());
        let pass = self.workstation.of(session).and_then(|live| live.passes.pop());
        let pass = pass
            .map(|Pass { name, secret }| levee_ike::Pass { name, secret: secret.expose().to_vec().into() });
        match self.endpoint.connect_with_pass(peer, path, None, pass, Some(child), now, &mut self.random) {
            Ok(ike) => {
                self.want(spi, session, ike);
                if let Some(live) = self.workstation.of(session) {
                    live.connecting = Some(ike);
                }
            }
            Err(error) => self.give_up(session, &format!("no negotiation can begin: {error}")),
        }
    }

    /// The server has proved who it is.
    pub(crate) fn server_came(&mut self, ike: IkeId, role: Role, certificate: Option<PeerCertificate>) {
        let mut live = self.workstation.live.values_mut();
        match live.find(|live| live.connecting == Some(ike)) {
            Some(live) if role == Role::Initiator => {
                (live.connecting, live.certificate) = (None, certificate);
                live.old.extend(live.ike.replace(ike));
            }
            // Nobody has asked for it.
            _ => {
                let _ = self.command(Command::CloseIke { ike });
            }
        }
    }

    /// Another revocation list counts: a session with a server that it names is over.
    pub(crate) fn server_revoked(&mut self, anchors: &TrustAnchors) {
        let revoked = |live: &&Live| live.certificate.as_ref().is_some_and(|it| anchors.revokes(it));
        let sessions = self.workstation.live.values().filter(revoked).map(|live| live.session);
        for session in sessions.collect::<Vec<_>>() {
            self.give_up(session, "the server's certificate is revoked");
        }
    }

    /// What a server began by a certificate that has run out is over: it has another one by now, or none that is believed.
    pub(crate) fn server_ran_out(&mut self, now: u64) {
        let ran_out = |live: &&mut Live| live.certificate.as_ref().is_some_and(|it| it.ends() < now);
        let mut over = Vec::new();
        for live in self.workstation.live.values_mut().filter(ran_out) {
            live.certificate = None;
            over.extend(live.old.iter().copied().chain(live.ike));
        }
        for ike in over {
            let _ = self.command(Command::CloseIke { ike });
        }
    }

    pub(crate) fn server_gone(&mut self, ike: IkeId, reason: &CloseReason) {
        self.workstation.live.values_mut().for_each(|live| live.old.retain(|old| *old != ike));
        let mut live = self.workstation.live.values_mut();
        let Some(live) = live.find(|live| live.ike == Some(ike) || live.connecting == Some(ike)) else {
            return;
        };
        let session = live.session;
        (live.ike, live.connecting) =
            (live.ike.filter(|it| *it != ike), live.connecting.filter(|it| *it != ike));
        let why = match reason {
            CloseReason::Local | CloseReason::Peer => "the server ended the negotiation".to_owned(),
            CloseReason::PeerSilent => "the server does not answer; `levee-tpe doctor` says what is in the way".to_owned(),
            CloseReason::Notified(error) if error == "NO_PROPOSAL_CHOSEN" => {
                "the server takes none of the algorithms that this workstation offers (NO_PROPOSAL_CHOSEN): its bundle and the \
                 site file differ in `suites`"
                    .to_owned()
            }
            CloseReason::Notified(error) => format!("the server says {error}"),
            CloseReason::Certificate(why) => format!("the server's certificate: {why}"),
            CloseReason::Authentication(why) | CloseReason::Protocol(why) => (*why).to_owned(),
            CloseReason::NotSigned => "the workstation's signer did not sign".to_owned(),
            CloseReason::PpkNotMixed => "the workstation's signer has not the PPK".to_owned(),
            CloseReason::TimedOut => "the negotiation took too long".to_owned(),
        };
        self.try_later(session, &why);
    }

    /// The server did not give a child.
    pub(crate) fn keys_refused(&mut self, session: SessionId, why: &ChildError) {
        let why = match why {
            // The server granted the session by its site file, and takes from the certificate what it narrows.
            ChildError::Notified(error) if error == "TS_UNACCEPTABLE" => {
                "the server refuses keys (TS_UNACCEPTABLE): most likely this workstation's certificate is from before its accreditation \
                 was widened; then its bundle has to be made anew (`levee enrol host`). The server's audit log says why"
                    .to_owned()
            }
            ChildError::Notified(error) => format!("the server refuses keys ({error})"),
            ChildError::BadAnswer(what) => format!("the server's answer is wrong: {what}"),
            ChildError::Superseded | ChildError::NotAnswered => "the server gave no keys".to_owned(),
        };
        // The next try begins with another IKE SA.
        self.try_later(session, &why);
    }

    /// A session that never had keys cannot be opened; one that had is worth more tries.
    fn try_later(&mut self, session: SessionId, why: &str) {
        let Some(live) = self.workstation.of(session) else { return };
        live.failures = live.failures.saturating_add(1);
        // The next packet for it is another try.
        if live.is_part() {
            return;
        }
        if !live.completed || live.failures >= TRIES {
            return self.give_up(session, why);
        }
        if std::mem::replace(&mut live.waiting, true) {
            return;
        }
        let doubled = FIRST_WAIT.saturating_mul(1 << live.failures.min(6));
        let wait = doubled.min(LONGEST_WAIT).saturating_add(self.jitter(FIRST_WAIT));
        self.at(wait, Timer::Connect(session));
    }

    /// There will be no keys.
    pub(crate) fn give_up(&mut self, session: SessionId, why: &str) {
        let Some(live) = self.workstation.of(session) else { return };
        if live.is_part() {
            for ike in
                std::mem::take(&mut live.old).into_iter().chain(live.ike.take()).chain(live.connecting.take())
            {
                let _ = self.command(Command::CloseIke { ike });
            }
            return;
        }
        self.asker.send(FromKeyer::Failed { session, reason: why.to_owned() });
        self.disconnect(session);
    }

    /// The session has a child: what was there before it has no use any more.
    pub(crate) fn child_came(&mut self, session: SessionId) {
        let Some(live) = self.workstation.of(session) else { return };
        live.failures = 0;
        // Packets under their keys may still be under way.
        for ike in live.old.clone() {
            self.at(MOVED_OVERLAP, Timer::Leave(session, ike));
        }
    }

    /// What the keys of an IKE SA whose place was taken have carried has arrived.
    pub(crate) fn leave(&mut self, session: SessionId, ike: IkeId) {
        if self.workstation.of(session).is_some_and(|live| live.old.contains(&ike)) {
            let _ = self.command(Command::CloseIke { ike });
        }
    }

    /// A vault has taken keys.
    pub(crate) fn installed(&mut self, session: SessionId) {
        if let Some(live) = self.workstation.of(session)
            && !std::mem::replace(&mut live.completed, true)
            && !live.is_part()
        {
            self.asker.send(FromKeyer::Completed(session));
        }
    }

    /// The server asks for a child: its vault has lost the keys, or it rekeys. Nothing is given that the session has not.
    pub(crate) fn asked_by_server(&mut self, asked: &ChildRequested) {
        let decision = self.answer_to_server(asked).unwrap_or(ChildDecision::Refuse);
        let _ = self.command(Command::Decide { request: asked.request, decision });
    }

    fn answer_to_server(&mut self, asked: &ChildRequested) -> Option<ChildDecision> {
        let mut live = self.workstation.live.values();
        let live = live.find(|live| live.ike == Some(asked.ike) || live.old.contains(&asked.ike))?;
        let session = live.session;
        let record = self.children.record(session)?.clone();
        let [label] = asked.labels.as_slice() else { return None };
        if label.as_str() != Some(record.label.as_str()) || !asked.key_exchange {
            return None;
        }
        if !record.carriage.suits(asked.aggfrag) {
            return None;
        }
        let spi = match asked.rekeys {
            Some(old) => self.fresh_spi_at(&record.label, self.children.slot_of(old)),
            None => self.fresh_spi(&record.label, session, asked.resource.is_some()),
        }?;
        let (local, remote) = self.sides(&record);
        self.children.grant(asked.ike, spi, session);
        Some(ChildDecision::Accept {
            spi,
            label: Some(label.clone()),
            local,
            remote,
            assign: Vec::new(),
            resource: asked.resource.as_ref().map(|_| Resource::default()),
            aggfrag: record.carriage.aggregates(),
        })
    }

    /// A packet waits for keys at this worker.
    pub(crate) fn reach_server(&mut self, session: SessionId, slot: u16) {
        let Some(live) = self.workstation.of(session) else { return };
        match live.ike {
            _ if live.connecting.is_some() || live.waiting => {}
            Some(ike) => self.create(ike, session, Some(slot)),
            None => self.connect_again(session),
        }
    }

    /// Ends what there is for a session.
    pub(crate) fn disconnect(&mut self, session: SessionId) {
        let Some(live) = self.workstation.live.remove(&session) else { return };
        if !live.is_part() {
            let parts = self.workstation.live.values().filter(|live| live.is_part()).map(|live| live.session);
            for part in parts.collect::<Vec<_>>() {
                self.disconnect(part);
            }
        }
        for ike in live.old.into_iter().chain(live.ike).chain(live.connecting) {
            let _ = self.command(Command::CloseIke { ike });
        }
        self.children.end(session);
    }
}

#[cfg(test)]
mod tests;

//! A workstation's part: one session, one IKE SA with the server for it, on the session's own port.

use crate::children::slot_of;
use crate::keyer::{Keyer, Timer};
use levee_ike::{
    ChildDecision, ChildError, ChildRequested, CloseReason, Command, IkeId, PeerCertificate, Resource, Role,
    TrustAnchors,
};
use levee_ipc::keyer::{FromKeyer, KeyRecord};
use levee_session::SessionId;
use std::net::SocketAddr;
use std::time::Duration;

/// The first wait before another try, doubled each time up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// See [`FIRST_WAIT`].
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// So many tries without a child, and the session cannot go on.
const TRIES: u32 = 10;

/// The session there is.
#[derive(Debug)]
struct Live {
    session: SessionId,
    server: SocketAddr,
    /// The IKE SA in use.
    ike: Option<IkeId>,
    /// The certificate by which the server proved who it is.
    certificate: Option<PeerCertificate>,
    /// The one that is to take its place.
    connecting: Option<IkeId>,
    /// Those whose place was taken, until the new one has a child.
    old: Vec<IkeId>,
    /// The TPE knows that there are keys.
    completed: bool,
    failures: u32,
    /// Another try waits for its time.
    waiting: bool,
}

/// What a workstation's keyer knows.
#[derive(Debug, Default)]
pub struct Workstation {
    live: Option<Live>,
}

impl Workstation {
    fn of(&mut self, session: SessionId) -> Option<&mut Live> {
        self.live.as_mut().filter(|live| live.session == session)
    }
}

impl Keyer {
    /// Negotiates keys for a session; for one that has keys, anew.
    pub(crate) fn connect(&mut self, record: KeyRecord, server: SocketAddr) {
        let session = record.session;
        if let Some(other) = self.workstation.live.as_ref().map(|live| live.session)
            && other != session
        {
            self.disconnect(other);
        }
        self.endpoint.set_aggfrag(record.carriage.aggregates());
        self.children.admit(record);
        match self.workstation.of(session) {
            // Under way.
            Some(live) if live.connecting.is_some() => {}
            Some(live) => {
                (live.server, live.failures) = (server, 0);
                self.connect_again(session);
            }
            None => {
                let (ike, connecting, old) = (None, None, Vec::new());
                self.workstation.live = Some(Live {
                    session,
                    server,
                    ike,
                    certificate: None,
                    connecting,
                    old,
                    completed: false,
                    failures: 0,
                    waiting: false,
                });
                self.connect_again(session);
            }
        }
    }

    /// Begins an IKE SA for the session there is.
    pub(crate) fn connect_again(&mut self, session: SessionId) {
        let Some(live) = self.workstation.of(session) else { return };
        live.waiting = false;
        let server = live.server;
        if live.connecting.is_some() {
            return;
        }
        let path = self.sockets.path(server);
        let (Some(path), Some(child)) = (path, self.new_child(session, None)) else {
            return self.give_up(session, "the session's vault is not up");
        };
        let (spi, now) = (child.spi, self.now());
        match self.endpoint.connect(0, path, None, Some(child), now, &mut self.random) {
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
        match &mut self.workstation.live {
            Some(live) if role == Role::Initiator && live.connecting == Some(ike) => {
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
    pub(crate) fn server_revoked(&mut self, anchors: &TrustAnchors, now: u64) {
        let Some(live) = &self.workstation.live else { return };
        let session = live.session;
        if live.certificate.as_ref().is_some_and(|certificate| anchors.revokes(certificate, now)) {
            self.give_up(session, "the server's certificate is revoked");
        }
    }

    pub(crate) fn server_gone(&mut self, ike: IkeId, reason: &CloseReason) {
        let Some(live) = &mut self.workstation.live else { return };
        live.old.retain(|old| *old != ike);
        if live.ike != Some(ike) && live.connecting != Some(ike) {
            return;
        }
        let session = live.session;
        (live.ike, live.connecting) =
            (live.ike.filter(|it| *it != ike), live.connecting.filter(|it| *it != ike));
        let why = match reason {
            CloseReason::Local | CloseReason::Peer => "the server ended the negotiation".to_owned(),
            CloseReason::PeerSilent => "the server does not answer".to_owned(),
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
        if self.workstation.of(session).is_some() {
            self.asker.send(FromKeyer::Failed { session, reason: why.to_owned() });
            self.disconnect(session);
        }
    }

    /// The session has a child: what was there before it has no use any more.
    pub(crate) fn child_came(&mut self, session: SessionId) {
        let Some(live) = self.workstation.of(session) else { return };
        live.failures = 0;
        for ike in std::mem::take(&mut live.old) {
            let _ = self.command(Command::CloseIke { ike });
        }
    }

    /// A vault has taken keys.
    pub(crate) fn installed(&mut self, session: SessionId) {
        if let Some(live) = self.workstation.of(session)
            && !std::mem::replace(&mut live.completed, true)
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
        let live = self.workstation.live.as_ref()?;
        if live.ike != Some(asked.ike) && !live.old.contains(&asked.ike) {
            return None;
        }
        let session = live.session;
        let record = self.children.record(session)?.clone();
        let [label] = asked.labels.as_slice() else { return None };
        if label.as_str() != Some(record.label.as_str()) || !asked.key_exchange {
            return None;
        }
        let spi = match asked.rekeys {
            Some(old) => self.fresh_spi_at(&record.label, slot_of(old)),
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
        let Some(live) = self.workstation.live.take_if(|live| live.session == session) else { return };
        for ike in live.old.into_iter().chain(live.ike).chain(live.connecting) {
            let _ = self.command(Command::CloseIke { ike });
        }
        self.children.end(session);
    }
}

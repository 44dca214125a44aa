//! Warden, keyer, signer and vaults, as threads of the test.

use super::{memory_file, pair};
use levee_ipc::Channel;
use levee_ipc::keyer::{FromKeyer, KeyRecord, ToKeyer};
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_ipc::vault::{Report, SessionRecord, SessiondToVault, VaultToSessiond};
use levee_ipc::warden::sessiond::SessiondPart;
use levee_ipc::warden::{
    CompartmentStatus, IsolationForm, LabelEvent, Order, Said, SessiondRequest, WhatRuns,
};
use levee_policy::LabelName;
use levee_policy::audit::{self, Chain};
use levee_session::SessionId;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

/// What the stand-ins are to do wrong.
#[derive(Default)]
pub struct Faults {
    /// Vaults do not answer `Close`.
    pub vaults_keep_sessions: bool,
    /// Vaults answer `Close` when this is over.
    pub vaults_close_later: bool,
    /// Vaults never say that they have no keys of before a posture.
    pub vaults_keep_keys: bool,
    /// The warden cannot destroy sockets.
    pub no_cut: bool,
    /// Do not answer `Need`.
    pub no_labels: bool,
    /// The signer does not answer.
    pub no_signatures: bool,
}

/// What the stand-ins share with the test.
#[derive(Default)]
pub struct Shared {
    pub faults: Faults,
    /// What they heard and did, in order.
    pub trace: Vec<String>,
    /// What each vault has.
    pub vaults: BTreeMap<LabelName, BTreeMap<SessionId, SessionRecord>>,
    /// What vaults are to say that they have closed.
    pub closing: Vec<(LabelName, SessionId)>,
    /// Kill this label's vault, as if it had crashed.
    pub crash: Option<LabelName>,
    /// Questions for sessiond that the keyer is to ask.
    pub questions: Vec<FromKeyer>,
    /// Answers that the keyer got.
    pub answers: Vec<(u64, Option<KeyRecord>)>,
    /// The log as the signer knows it.
    pub chain: Option<Chain>,
    pub(super) ready: bool,
    pub(super) stop: bool,
}

/// Warden, keyer, signer and vaults.
pub(super) struct StandIns {
    pub(super) control: Arc<Channel>,
    pub(super) keyer: Channel,
    pub(super) signer: Channel,
    pub(super) key: Arc<Vec<u8>>,
    pub(super) shared: Arc<Mutex<Shared>>,
    pub(super) channels: BTreeMap<LabelName, Channel>,
}

impl StandIns {
    /// Plays until it is to stop.
    pub(super) fn run(&mut self) {
        loop {
            let mut fds = vec![
                PollFd::new(&*self.control, PollFlags::IN),
                PollFd::new(&self.keyer, PollFlags::IN),
                PollFd::new(&self.signer, PollFlags::IN),
            ];
            fds.extend(self.channels.values().map(|channel| PollFd::new(channel, PollFlags::IN)));
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 })).unwrap();
            drop(fds);
            let shared = Arc::clone(&self.shared);
            let mut shared = shared.lock().unwrap();
            if shared.stop {
                return;
            }
            if let Some(label) = shared.crash.take() {
                self.die(&label, &mut shared);
                self.up(&label, &mut shared);
            }
            while let Ok(received) = self.control.try_recv::<Said<SessiondRequest>>() {
                self.warden(received.message, &mut shared);
            }
            for question in shared.questions.drain(..) {
                let _ = self.keyer.send(&question);
            }
            while let Ok(received) = self.keyer.try_recv::<ToKeyer>() {
                self.keyer(received.message, &mut shared);
            }
            while let Ok(received) = self.signer.try_recv::<ToSigner>() {
                self.signer(received.message, &mut shared);
            }
            if !shared.faults.vaults_close_later {
                for (label, id) in std::mem::take(&mut shared.closing) {
                    let _ =
                        self.channels.get(&label).map(|channel| channel.send(&VaultToSessiond::Closed(id)));
                }
            }
            for (label, channel) in &self.channels {
                while let Ok(received) = channel.try_recv::<SessiondToVault>() {
                    vault(label, channel, received.message, &mut shared);
                }
            }
        }
    }

    fn say(&self, event: LabelEvent) {
        let _ = self.control.send(&Order::Give(SessiondPart::Label(event)));
    }

    fn up(&mut self, label: &LabelName, shared: &mut Shared) {
        let (channel, theirs) = pair();
        let part = SessiondPart::Vault { label: label.clone(), slot: 1 };
        let _ = self.control.send_with(&Order::Give(part), &[theirs.as_fd()]);
        self.channels.insert(label.clone(), channel);
        shared.vaults.entry(label.clone()).or_default();
        shared.trace.push(format!("up {label}"));
        self.say(LabelEvent::Up(label.clone()));
    }

    fn die(&mut self, label: &LabelName, shared: &mut Shared) {
        self.channels.remove(label);
        shared.vaults.remove(label);
        shared.trace.push(format!("died {label}"));
        self.say(LabelEvent::Died(label.clone()));
    }

    fn warden(&mut self, message: Said<SessiondRequest>, shared: &mut Shared) {
        match message {
            Said::Ready => shared.ready = true,
            Said::Says(SessiondRequest::Need(label)) => {
                shared.trace.push(format!("need {label}"));
                if !shared.faults.no_labels {
                    self.up(&label, shared);
                }
            }
            Said::Says(SessiondRequest::Release(label)) => {
                shared.trace.push(format!("release {label}"));
                self.channels.remove(&label);
                shared.vaults.remove(&label);
            }
            Said::Says(SessiondRequest::Kill(label)) => {
                shared.trace.push(format!("kill {label}"));
                self.die(&label, shared);
                self.up(&label, shared);
            }
            Said::Says(SessiondRequest::Cut { inner, ticket, .. }) => {
                shared.trace.push(format!("cut {inner}"));
                let sockets = if shared.faults.no_cut { None } else { Some(1) };
                self.say(LabelEvent::Cut { ticket, sockets });
            }
            Said::Says(SessiondRequest::Compartments) => {
                let status = |label: &LabelName| CompartmentStatus {
                    label: label.clone(),
                    form: IsolationForm::Compartment,
                    slot: 1,
                    init: 1,
                    vault: 1,
                    age_ms: 0,
                    services: Vec::new(),
                    off: Vec::new(),
                    vault_starts: 1,
                    counters: Vec::new(),
                };
                let running = shared.vaults.keys().map(status).collect();
                let steering = vec![("an SPI that none may have".to_owned(), 3)];
                let all = WhatRuns { running, steering, ..WhatRuns::default() };
                let file = memory_file(&all.octets());
                let _ = self.control.send_with(&Order::Give(SessiondPart::Running), &[file.as_fd()]);
            }
            Said::Says(SessiondRequest::Partition { name, order, ticket }) => {
                shared.trace.push(format!("partition {name} {order:?}"));
                self.say(LabelEvent::Partition { ticket, result: Err("there is none".to_owned()) });
            }
            Said::Says(SessiondRequest::Execute { label, argv, ticket }) => {
                shared.trace.push(format!("execute {label} {}", argv.join(" ")));
                self.say(LabelEvent::Executed { ticket, result: Ok(0) });
            }
            Said::Says(SessiondRequest::Abandon { label, ticket }) => {
                shared.trace.push(format!("abandon {label} {ticket}"));
            }
            Said::Says(SessiondRequest::Postures { in_force, ticket }) => {
                let said: Vec<String> = in_force.iter().map(ToString::to_string).collect();
                shared.trace.push(format!("postures {}", said.join(", ")));
                self.say(LabelEvent::Postures { ticket });
            }
            Said::Says(SessiondRequest::Replace(role)) => shared.trace.push(format!("replace {role:?}")),
        }
    }

    fn keyer(&self, message: ToKeyer, shared: &mut Shared) {
        match message {
            ToKeyer::Answer { ticket, record } => {
                shared.trace.push(format!("answer {ticket} {}", if record.is_some() { "yes" } else { "no" }));
                shared.answers.push((ticket, record));
            }
            ToKeyer::Renew(record) => {
                shared.trace.push(format!("renew {}", record.label));
                let _ = self.keyer.send(&FromKeyer::NoPeer(record.session));
            }
            ToKeyer::Revoke(_) => shared.trace.push("revoke".into()),
            ToKeyer::Keying(..) => {}
            other => panic!("sessiond spoke as a tpe: {other:?}"),
        }
    }

    fn signer(&self, message: ToSigner, shared: &mut Shared) {
        let mut chain = shared.chain.unwrap_or(Chain::START);
        let answer = match message {
            ToSigner::AuditCheckpoint => {
                shared.trace.push(format!("checkpoint {}", chain.count));
                if shared.faults.no_signatures {
                    return;
                }
                let random = SystemRandom::new();
                let key =
                    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &self.key, &random).unwrap();
                let content = audit::checkpoint_message(chain.count, &chain.hash);
                let signature = key.sign(&random, &content).unwrap().as_ref().to_vec();
                FromSigner::Checkpoint { count: chain.count, hash: chain.hash.0, signature, kept_back: false }
            }
            ToSigner::AuditRecords { from, digests } => {
                assert_eq!(from, chain.count, "records follow each other");
                chain = digests.into_iter().fold(chain, |chain, digest| chain.with(&audit::Hash(digest)));
                FromSigner::Chained { count: chain.count, hash: chain.hash.0 }
            }
            _ => FromSigner::Chained { count: chain.count, hash: chain.hash.0 },
        };
        shared.chain = Some(chain);
        let _ = self.signer.send(&answer);
    }
}

fn vault(label: &LabelName, channel: &Channel, message: SessiondToVault, shared: &mut Shared) {
    let sessions = shared.vaults.entry(label.clone()).or_default();
    let answer = match message {
        SessiondToVault::Open(record) => {
            let id = record.id;
            sessions.insert(id, record);
            shared.trace.push(format!("open {label}"));
            VaultToSessiond::Opened(id)
        }
        SessiondToVault::Close(id) => {
            shared.trace.push(format!("close {label}"));
            if shared.faults.vaults_keep_sessions {
                return;
            }
            sessions.remove(&id);
            if shared.faults.vaults_close_later {
                return shared.closing.push((label.clone(), id));
            }
            VaultToSessiond::Closed(id)
        }
        SessiondToVault::Until { .. } | SessiondToVault::OpenTheirs { .. } => return,
        SessiondToVault::Synced => {
            shared.trace.push(format!("synced {label}"));
            return;
        }
        SessiondToVault::Ciphers { .. } if shared.faults.vaults_keep_keys => return,
        SessiondToVault::Ciphers { number, .. } => VaultToSessiond::Moved { number, severed: Vec::new() },
        SessiondToVault::Sever(_) => return,
        SessiondToVault::Ping(number) => VaultToSessiond::Pong(number),
        SessiondToVault::Report => VaultToSessiond::Report(Report::default()),
    };
    let _ = channel.send(&answer);
}

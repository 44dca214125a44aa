//! Keyers as processes, one at each end; the test program stands in for warden, sessiond, TPE and vaults.

use levee_ipc::Channel;
use levee_ipc::keyer::{FromKeyer, KeyOffer, ToKeyer};
use levee_ipc::vault::{KeyerToVault, Refusal, Suite, VaultToKeyer};
use levee_ipc::warden::{Attachment, FromWarden, Place, Role, ToWarden};
use levee_policy::LabelName;
use levee_session::SessionId;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const SERVER_SLOT: u16 = 9;

struct Keyer {
    process: Child,
    control: Channel,
    asker: Channel,
}

impl Drop for Keyer {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

fn attach(control: &Channel, role: Role, label: Option<&LabelName>, slot: Option<u16>) -> Channel {
    let (ours, theirs) = Channel::pair().unwrap();
    let attachment = Attachment::Peer { role, label: label.cloned(), slot };
    control.send_with(&FromWarden::Attach(attachment), &[theirs.as_fd()]).unwrap();
    ours
}

impl Keyer {
    fn new(place: Place) -> Self {
        let (control, theirs) = Channel::pair().unwrap();
        let stderr = std::io::stderr();
        let mut program = Program::new(env!("CARGO_BIN_EXE_levee-keyer"));
        program.fds = vec![theirs.as_fd()];
        program.stdio = [None, None, Some(stderr.as_fd())];
        let process = program.start().unwrap();
        let role = if place == Place::Server { Role::Sessiond } else { Role::Tpe };
        let asker = attach(&control, role, None, None);
        control.send(&FromWarden::Begin(place)).unwrap();
        assert!(matches!(next::<ToWarden>(&control), ToWarden::Ready));
        Self { process, control, asker }
    }

    fn vault(&self, label: &LabelName, slot: u16) -> Channel {
        attach(&self.control, Role::Vault, Some(label), Some(slot))
    }

    fn ask(&self, message: &ToKeyer) -> FromKeyer {
        self.asker.send(message).unwrap();
        next(&self.asker)
    }
}

fn readable(channel: &Channel, within: Duration) -> bool {
    let timeout = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

fn next<T: DeserializeOwned>(channel: &Channel) -> T {
    assert!(readable(channel, PATIENCE), "nothing came in {PATIENCE:?}");
    channel.try_recv().unwrap().message
}

struct Keys {
    inbound: (u32, Vec<u8>),
    outbound: (u32, Vec<u8>),
    peer: Option<SocketAddr>,
}

fn keys(vault: &Channel) -> Keys {
    match next(vault) {
        KeyerToVault::Install { inbound, outbound, peer, .. } => {
            let of = |sa: levee_ipc::vault::Sa| (sa.spi, sa.keying_material.expose().to_vec());
            Keys { inbound: of(inbound), outbound: of(outbound), peer }
        }
        KeyerToVault::Delete { spi } => panic!("a deletion of {spi:x}"),
    }
}

fn label(name: &str) -> LabelName {
    LabelName::new(name).unwrap()
}

fn session(number: u8) -> SessionId {
    SessionId::from_random([number ^ 0x5a; 16])
}

fn offer(workstation: &Keyer, ticket: u64) -> KeyOffer {
    match workstation.ask(&ToKeyer::Offer { ticket }) {
        FromKeyer::Offered { ticket: got, offer } if got == ticket => offer,
        other => panic!("{other:?}"),
    }
}

fn any_offer() -> KeyOffer {
    let workstation = Keyer::new(Place::Workstation);
    offer(&workstation, 1)
}

/// Whether these bytes are anywhere in a process's memory.
fn remembers(process: &Child, secret: &[u8]) -> bool {
    let pid = process.pid.as_raw_nonzero();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut searched = 0;
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (range, mode) = (fields.next().unwrap(), fields.next().unwrap());
        if !mode.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        memory.seek(SeekFrom::Start(start)).unwrap();
        if memory.read_exact(&mut bytes).is_err() {
            continue;
        }
        searched += bytes.len();
        if bytes.windows(secret.len()).any(|window| window == secret) {
            return true;
        }
    }
    assert!(searched > 100_000, "only {searched} bytes could be read: this test needs root");
    false
}

/// A server's keyer with two vaults, a workstation's with one, and a session agreed between them.
struct Pair {
    server: Keyer,
    workstation: Keyer,
    secret: Channel,
    unclassified: Channel,
    at_workstation: Channel,
    here: Keys,
    there: Keys,
}

fn agreed() -> Pair {
    let (server, workstation) = (Keyer::new(Place::Server), Keyer::new(Place::Workstation));
    let secret = server.vault(&label("SECRET"), SERVER_SLOT);
    let unclassified = server.vault(&label("UNCLASSIFIED"), 10);
    let offer = offer(&workstation, 1);
    assert_eq!(offer.spi >> 20, 1);
    server.asker.send(&ToKeyer::Agree { session: session(1), label: label("SECRET"), offer }).unwrap();
    let there = keys(&secret);
    secret.send(&VaultToKeyer::Installed { spi: there.inbound.0 }).unwrap();
    let answer = match next(&server.asker) {
        FromKeyer::Agreed { session: of, answer } if of == session(1) => answer,
        other => panic!("{other:?}"),
    };
    let at_workstation = workstation.vault(&label("SECRET"), 1);
    let address = SocketAddr::from(([192, 0, 2, 1], 4500));
    let complete =
        ToKeyer::Complete { ticket: 1, session: session(1), label: label("SECRET"), answer, server: address };
    workstation.asker.send(&complete).unwrap();
    let here = keys(&at_workstation);
    at_workstation.send(&VaultToKeyer::Installed { spi: here.inbound.0 }).unwrap();
    assert!(matches!(next(&workstation.asker), FromKeyer::Completed { session: of } if of == session(1)));
    Pair { server, workstation, secret, unclassified, at_workstation, here, there }
}

#[test]
fn both_vaults_of_the_session_get_the_same_keys_and_no_other_vault_gets_any() {
    let pair = agreed();
    assert_eq!(pair.here.inbound, pair.there.outbound);
    assert_eq!(pair.here.outbound, pair.there.inbound);
    assert_eq!(pair.there.inbound.0 >> 20, u32::from(SERVER_SLOT));
    assert_eq!(pair.here.inbound.1.len(), Suite::Aes256Gcm.keying_material());
    assert_eq!((pair.here.peer, pair.there.peer), (Some(([192, 0, 2, 1], 4500).into()), None));
    assert!(!readable(&pair.unclassified, Duration::from_millis(200)), "another label's vault hears nothing");
}

#[test]
fn no_key_stays_in_a_keyers_memory_once_its_vault_has_it() {
    let pair = agreed();
    for keyer in [&pair.server, &pair.workstation] {
        // What the keyer does remember is found, so what is not found is not there.
        assert!(remembers(&keyer.process, session(1).as_bytes()));
        for (_, material) in [&pair.here.inbound, &pair.here.outbound] {
            // Half a key is a find too.
            for half in material[..32].chunks(16) {
                assert!(!remembers(&keyer.process, half));
            }
        }
    }
}

#[test]
fn a_session_stays_at_its_label() {
    let pair = agreed();
    let again = ToKeyer::Agree { session: session(1), label: label("UNCLASSIFIED"), offer: any_offer() };
    assert!(
        matches!(pair.server.ask(&again), FromKeyer::Failed { session: Some(of), .. } if of == session(1))
    );
    assert!(!readable(&pair.unclassified, Duration::from_millis(200)));
}

#[test]
fn a_vault_that_refuses_or_says_nothing_means_no_keys() {
    let server = Keyer::new(Place::Server);
    let vault = server.vault(&label("SECRET"), SERVER_SLOT);
    let agree =
        |number| ToKeyer::Agree { session: session(number), label: label("SECRET"), offer: any_offer() };
    server.asker.send(&agree(1)).unwrap();
    let spi = keys(&vault).inbound.0;
    vault.send(&VaultToKeyer::Refused { spi, reason: Refusal::NoSession }).unwrap();
    assert!(matches!(next(&server.asker), FromKeyer::Failed { session: Some(of), .. } if of == session(1)));
    server.asker.send(&agree(2)).unwrap();
    let spi = keys(&vault).inbound.0;
    assert!(matches!(next(&server.asker), FromKeyer::Failed { session: Some(of), .. } if of == session(2)));
    assert!(matches!(next(&vault), KeyerToVault::Delete { spi: deleted } if deleted == spi));
    server.asker.send(&agree(3)).unwrap();
    drop((keys(&vault), vault));
    assert!(matches!(next(&server.asker), FromKeyer::Failed { session: Some(of), .. } if of == session(3)));
    assert!(matches!(server.ask(&agree(4)), FromKeyer::Failed { session: Some(of), .. } if of == session(4)));
}

#[test]
fn a_vault_that_was_started_anew_gets_new_keys_for_its_own_sessions() {
    let pair = agreed();
    let _other = pair.server.vault(&label("UNCLASSIFIED"), 10);
    assert!(!readable(&pair.server.asker, Duration::from_millis(200)), "no session is at that label");
    let _vault = pair.server.vault(&label("SECRET"), SERVER_SLOT);
    assert!(matches!(next(&pair.server.asker), FromKeyer::Renew(of) if of == session(1)));
}

#[test]
fn a_vault_speaks_for_its_own_labels_sessions_alone() {
    let pair = agreed();
    pair.unclassified.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    assert!(!readable(&pair.server.asker, Duration::from_millis(200)));
    pair.secret.send(&VaultToKeyer::Expiring { spi: pair.there.inbound.0, session: session(1) }).unwrap();
    assert!(matches!(next(&pair.server.asker), FromKeyer::Renew(of) if of == session(1)));
}

#[test]
fn what_is_revoked_is_deleted_and_forgotten() {
    let pair = agreed();
    pair.server.asker.send(&ToKeyer::Revoke(session(1))).unwrap();
    assert!(matches!(next(&pair.secret), KeyerToVault::Delete { spi } if spi == pair.there.inbound.0));
    pair.secret.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    assert!(!readable(&pair.server.asker, Duration::from_millis(200)));
}

#[test]
fn replaced_keys_are_deleted_after_an_overlap() {
    let pair = agreed();
    let offer = offer(&pair.workstation, 2);
    pair.server.asker.send(&ToKeyer::Agree { session: session(1), label: label("SECRET"), offer }).unwrap();
    let new = keys(&pair.secret);
    pair.secret.send(&VaultToKeyer::Installed { spi: new.inbound.0 }).unwrap();
    assert!(matches!(next(&pair.server.asker), FromKeyer::Agreed { .. }));
    assert_ne!(new.inbound.1, pair.there.inbound.1);
    assert!(!readable(&pair.secret, Duration::from_secs(5)), "packets under the old keys may still arrive");
    assert!(matches!(next(&pair.secret), KeyerToVault::Delete { spi } if spi == pair.there.inbound.0));
    drop(pair.at_workstation);
}

#[test]
fn a_server_makes_no_offers_and_a_workstation_takes_none() {
    let (server, workstation) = (Keyer::new(Place::Server), Keyer::new(Place::Workstation));
    assert!(matches!(server.ask(&ToKeyer::Offer { ticket: 7 }), FromKeyer::Failed { ticket: Some(7), .. }));
    let _vault = workstation.vault(&label("SECRET"), 1);
    let agree = ToKeyer::Agree { session: session(1), label: label("SECRET"), offer: any_offer() };
    assert!(matches!(workstation.ask(&agree), FromKeyer::Failed { session: Some(_), .. }));
    let complete = ToKeyer::Complete {
        ticket: 99,
        session: session(1),
        label: label("SECRET"),
        answer: any_offer(),
        server: ([192, 0, 2, 1], 4500).into(),
    };
    assert!(matches!(workstation.ask(&complete), FromKeyer::Failed { ticket: Some(99), .. }));
}

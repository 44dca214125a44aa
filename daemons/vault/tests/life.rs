//! The life of a vault: its sandbox, its peers' deaths, its own, and what it leaves behind.

mod common;

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use common::peer::{install, material, server_spi};
use common::*;
use levee_ipc::Channel;
use levee_ipc::vault::{Cipher, KeyerToVault, SessionRecord, SessiondToVault, VaultToKeyer, VaultToSessiond};
use levee_ipc::warden::vault::VaultPart;
use levee_ipc::warden::{Order, Place};
use levee_sys::pidfd::Child;

const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(150);

fn status(child: &Child) -> String {
    fs::read_to_string(format!("/proc/{}/status", child.pid.as_raw_nonzero())).unwrap()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("").trim()
}

/// Waits until the process has ended; answers whether it did within five seconds.
fn ends(child: &Child) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(child.pidfd.as_fd(), PollFlags::IN)], Some(&limit)) == Ok(1)
}

/// How often `secret` occurs in the process's writable memory.
fn occurrences(child: &Child, secret: &[u8]) -> usize {
    let pid = child.pid.as_raw_nonzero();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut bytes = vec![0; (to - from) as usize];
        memory.seek(SeekFrom::Start(from)).unwrap();
        memory.read_exact(&mut bytes).unwrap();
        found += bytes.windows(secret.len()).filter(|window| *window == secret).count();
    }
    found
}

/// A new channel in the place of an old one.
fn replace(vault: &Vault, part: VaultPart) -> Channel {
    let (ours, theirs) = Channel::pair().unwrap();
    vault.warden.send_with(&Order::Give(part), &[theirs.as_fd()]).unwrap();
    ours
}

#[test]
fn a_running_vault_is_sandboxed_and_holds_only_what_it_was_given() {
    let bench = Bench::up(true);
    let child = &bench.server.vault.child;
    let status = status(child);
    assert_eq!(field(&status, "Seccomp"), "2", "a filter");
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    assert_eq!(field(&status, "CapEff"), "0000000000000000");
    assert_eq!(field(&status, "CapPrm"), "0000000000000000");
    assert_eq!(field(&status, "Threads"), "1");
    let open: Vec<String> = fs::read_dir(format!("/proc/{}/fd", child.pid.as_raw_nonzero()))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap().to_string_lossy().into_owned())
        .collect();
    // Three channels and the UDP socket; the TUN queue; what waits for all of them; standard streams.
    assert_eq!(open.iter().filter(|path| path.starts_with("socket:")).count(), 4, "{open:?}");
    assert_eq!(open.iter().filter(|path| path.ends_with("/net/tun")).count(), 1, "{open:?}");
    assert_eq!(open.len(), 9, "{open:?}");
}

#[test]
fn a_closed_session_leaves_no_key_in_memory() {
    let bench = Bench::with(true, false);
    let vault = &bench.server.vault;
    vault.open(record(session(1), Place::Server));
    assert!(matches!(install(vault, session(1), 1, server_spi(1)), VaultToKeyer::Installed { .. }));
    let halves: Vec<Vec<u8>> = [true, false].map(|way| material(1, way)[..16].to_vec()).to_vec();
    for half in &halves {
        assert!(occurrences(&vault.child, half) > 0, "a live key is in the vault's memory");
    }
    vault.close(session(1));
    for half in &halves {
        assert_eq!(occurrences(&vault.child, half), 0, "a key outlived its session");
    }
}

#[test]
fn a_deleted_pair_and_a_refused_one_leave_no_key_in_memory() {
    let bench = Bench::with(false, false);
    let vault = &bench.server.vault;
    vault.open(record(session(1), Place::Server));
    assert!(matches!(install(vault, session(1), 1, server_spi(1)), VaultToKeyer::Installed { .. }));
    assert!(matches!(install(vault, session(9), 2, server_spi(2)), VaultToKeyer::Refused { .. }));
    vault.keyer.send(&levee_ipc::vault::KeyerToVault::Delete { spi: server_spi(1) }).unwrap();
    while vault.report().sa_count > 0 {}
    for (n, way) in [(1, true), (1, false), (2, true), (2, false)] {
        assert_eq!(occurrences(&vault.child, &material(n, way)[..16]), 0, "pair {n}");
    }
}

#[test]
fn traffic_flows_on_without_sessiond_and_keyer() {
    let mut bench = Bench::up(false);
    assert!(bench.ping(5 * SECOND));
    let (nobody, _) = Channel::pair().unwrap();
    bench.server.vault.sessiond = nobody;
    let (nobody, _) = Channel::pair().unwrap();
    bench.server.vault.keyer = nobody;
    std::thread::sleep(SHORT);
    assert!(bench.ping(5 * SECOND));
}

#[test]
fn a_lease_that_runs_out_ends_every_session_whatever_has_become_of_sessiond() {
    let mut bench = Bench::up(false);
    let until =
        |from_now| SessiondToVault::Until { owner: None, until: levee_sys::clock::monotonic() + from_now };
    bench.server.vault.sessiond.send(&until(SECOND * 60)).unwrap();
    assert!(bench.ping(5 * SECOND));
    assert_eq!(bench.server.vault.report().sa_count, 1);
    // The last word counts.
    bench.server.vault.sessiond.send(&until(Duration::from_millis(600))).unwrap();
    let sessiond = std::mem::replace(&mut bench.server.vault.sessiond, Channel::pair().unwrap().0);
    std::thread::sleep(Duration::from_millis(700));
    assert!(!bench.ping(SHORT));
    bench.server.vault.sessiond = sessiond;
    assert_eq!(bench.server.vault.report().sa_count, 0, "the keys are erased");
    // None is taken without a lease.
    let vault = &bench.server.vault;
    vault.sessiond.send(&SessiondToVault::Open(record(session(1), Place::Server))).unwrap();
    assert!(matches!(hear(&vault.sessiond), VaultToSessiond::Closed(_)));
    vault.sessiond.send(&until(SECOND * 60)).unwrap();
    vault.open(record(session(1), Place::Server));
}

#[test]
fn a_session_of_another_server_ends_with_that_servers_lease_and_the_others_go_on() {
    let bench = Bench::up(false);
    let two: levee_policy::DomainName = "two.example".parse().unwrap();
    let until = |owner: Option<&levee_policy::DomainName>, from_now| SessiondToVault::Until {
        owner: owner.cloned(),
        until: levee_sys::clock::monotonic() + from_now,
    };
    bench.server.vault.sessiond.send(&until(None, SECOND * 60)).unwrap();
    let theirs = || {
        let record = SessionRecord { inner: vec![ip("10.0.0.3")], ..record(session(2), Place::Server) };
        SessiondToVault::OpenTheirs { record, owner: two.clone() }
    };
    bench.server.vault.sessiond.send(&theirs()).unwrap();
    assert!(
        matches!(hear(&bench.server.vault.sessiond), VaultToSessiond::Closed(_)),
        "no lease of that server"
    );
    bench.server.vault.sessiond.send(&until(Some(&two), Duration::from_millis(1_500))).unwrap();
    bench.server.vault.sessiond.send(&theirs()).unwrap();
    assert!(matches!(hear(&bench.server.vault.sessiond), VaultToSessiond::Opened(_)));
    assert!(matches!(
        install(&bench.server.vault, session(2), 77, server_spi(77)),
        VaultToKeyer::Installed { .. }
    ));
    assert_eq!(bench.server.vault.report().sa_count, 2);
    // The vault has no processor of its own: it may come late to it, and no sooner than the lease says.
    let begun = std::time::Instant::now();
    let report = loop {
        let report = bench.server.vault.report();
        if report.sa_count < 2 || begun.elapsed() > SECOND * 30 {
            break report;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((report.sa_count, report.sas[0].session), (1, session(1)), "its keys are erased, no others");
    assert!(bench.ping(5 * SECOND));
}

#[test]
fn a_session_whose_record_is_replaced_by_one_without_a_selector_passes_nothing_and_goes_on_by_the_same_keys_when_it_has_them_again()
 {
    let bench = Bench::up(false);
    assert!(bench.ping(5 * SECOND));
    let whole = record(session(1), Place::Server);
    bench.server.vault.open(levee_ipc::vault::SessionRecord { selectors: Vec::new(), ..whole.clone() });
    assert!(!bench.ping(SHORT), "nothing arrives");
    let counted = |name: &str| {
        let report = bench.server.vault.report();
        report.counters.iter().find(|(counter, _)| counter == name).map_or(0, |(_, count)| *count)
    };
    assert!(counted("selector") > 0, "it came, was of the session, and was dropped");
    bench.server.vault.open(whole);
    assert!(bench.ping(5 * SECOND));
}

#[test]
fn a_new_sessiond_keeps_the_sessions_it_names_and_ends_the_others() {
    let mut bench = Bench::up(false);
    let mut second = record(session(2), Place::Server);
    second.inner = vec![ip("10.0.0.3")];
    bench.server.vault.open(second);
    assert!(matches!(
        install(&bench.server.vault, session(2), 77, server_spi(77)),
        VaultToKeyer::Installed { .. }
    ));
    bench.server.vault.sessiond = replace(&bench.server.vault, VaultPart::Sessiond);
    assert_eq!(bench.server.vault.report().sa_count, 2, "nothing ends before it has named them all");
    bench.server.vault.open(record(session(1), Place::Server));
    bench.server.vault.sessiond.send(&SessiondToVault::Synced).unwrap();
    let report = bench.server.vault.report();
    assert_eq!(report.sa_count, 1);
    assert_eq!(report.sas[0].session, session(1));
    assert!(bench.ping(5 * SECOND), "the named one was not disturbed");
    // A second `Synced` on the same channel says nothing new.
    bench.server.vault.sessiond.send(&SessiondToVault::Synced).unwrap();
    assert!(bench.ping(5 * SECOND));
}

#[test]
fn a_new_keyer_installs_and_deletes_what_the_old_one_did() {
    let mut bench = Bench::up(false);
    let replaced = replace(&bench.server.vault, VaultPart::Keyer);
    bench.server.vault.keyer = replaced;
    bench.keys(session(1), Cipher::ChaCha20Poly1305, false);
    bench
        .server
        .vault
        .keyer
        .send(&levee_ipc::vault::KeyerToVault::Delete { spi: spi_of(SLOTS, SLOT, 1) })
        .unwrap();
    bench.client.vault.keyer.send(&levee_ipc::vault::KeyerToVault::Delete { spi: spi_of(1, 1, 1) }).unwrap();
    assert!(bench.ping(5 * SECOND));
    assert_eq!(bench.server.vault.report().sa_count, 1);
}

#[test]
fn a_vault_without_a_warden_ends_and_so_does_one_that_is_told_to() {
    let mut bench = Bench::up(false);
    bench.server.vault.warden.send(&Order::<VaultPart>::Stop).unwrap();
    assert!(ends(&bench.server.vault.child));
    let (nobody, _) = Channel::pair().unwrap();
    bench.client.vault.warden = nobody;
    assert!(ends(&bench.client.vault.child));
}

#[test]
fn a_message_that_is_none_ends_the_vault_when_the_warden_sends_it_and_the_channel_when_others_do() {
    let mut bench = Bench::up(false);
    for channel in [&bench.server.vault.sessiond, &bench.server.vault.keyer] {
        channel.send(&vec![0xff_u8; 300]).unwrap();
    }
    assert!(bench.ping(5 * SECOND));
    assert!(hear_within::<VaultToSessiond>(&bench.server.vault.sessiond, SHORT).is_none());
    bench.server.vault.sessiond = replace(&bench.server.vault, VaultPart::Sessiond);
    assert_eq!(bench.server.vault.report().sa_count, 1);
    bench.server.vault.warden.send(&vec![0xff_u8; 300]).unwrap();
    assert!(ends(&bench.server.vault.child));
}

#[test]
fn a_killed_vault_is_replaced_on_the_same_descriptors_in_under_a_second() {
    let mut bench = Bench::up(true);
    assert!(bench.ping(5 * SECOND));
    let start = Instant::now();
    bench.server.vault.child.kill().unwrap();
    let socket: BorrowedFd<'_> = bench.server.group.slot(SLOT).unwrap();
    let vault =
        Vault::start(Place::Server, bench.server.tun.as_fd(), &[(bench.server.group.address(), socket)]);
    bench.server.vault = vault;
    bench.server.vault.open(record(session(1), Place::Server));
    bench.keys(session(1), Cipher::Aes256Gcm, true);
    // The client's side deletes the pair that its peer no longer has, as its keyer does.
    bench.client.vault.keyer.send(&levee_ipc::vault::KeyerToVault::Delete { spi: spi_of(1, 1, 1) }).unwrap();
    assert!(bench.ping(5 * SECOND));
    let took = start.elapsed();
    assert!(took < SECOND, "{took:?}");
}

#[test]
fn each_aead_library_can_be_asked_for_and_speaks_with_the_other() {
    let bench = Bench::with(false, false);
    let Bench { server, client, .. } = bench;
    let restart = |host: &Host, place, library: &str| {
        let slot = Bench::slot(place);
        let socket = host.group.slot(slot).unwrap();
        let sockets = [(host.group.address(), socket)];
        Vault::start_with(place, host.tun.as_fd(), &sockets, &["--aead", library])
    };
    let (a, b) = (restart(&server, Place::Server, "ring"), restart(&client, Place::Workstation, "aws-lc"));
    let mut bench = Bench::of(Host { vault: a, ..take(server) }, Host { vault: b, ..take(client) });
    bench.sessions();
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        bench.keys(session(1), cipher, true);
        std::thread::sleep(Duration::from_millis(550));
        assert!(bench.ping(5 * SECOND), "{cipher:?}");
    }
}

/// The host with its old vault dead.
fn take(host: Host) -> Host {
    host.vault.child.kill().unwrap();
    host
}

#[test]
fn a_ping_is_answered_while_packets_flood_in() {
    let bench = Bench::up(false);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = levee_sys::ns::in_net(bench.client.outer.as_fd(), || {
                std::net::UdpSocket::bind("192.0.2.2:0")
            })
            .unwrap()
            .unwrap();
            let mut junk = server_spi(1).to_be_bytes().to_vec();
            junk.resize(1_200, 3);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = socket.send_to(&junk, bench.server.group.address());
            }
        });
        // The flood has begun.
        let begun = Instant::now();
        while bench.server.vault.count("auth-failed") == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "no packet of the flood has arrived");
        }
        let mut worst = Duration::ZERO;
        for number in 0..50 {
            let start = Instant::now();
            bench.server.vault.sessiond.send(&SessiondToVault::Ping(number)).unwrap();
            assert!(matches!(hear(&bench.server.vault.sessiond), VaultToSessiond::Pong(n) if n == number));
            worst = worst.max(start.elapsed());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        // What sessiond takes for silence.
        assert!(worst < Duration::from_secs(1), "{worst:?}");
    });
}

#[test]
fn of_a_sessions_pairs_only_those_stay_that_the_keyer_names() {
    let mut bench = Bench::new();
    bench.sessions();
    let [first, second, third] = [0; 3].map(|_| bench.keys(session(1), Cipher::Aes256Gcm, true).0);
    let vault = &bench.server.vault;
    vault.keyer.send(&KeyerToVault::Only { session: session(2), spis: vec![] }).unwrap();
    vault.keyer.send(&KeyerToVault::Only { session: session(1), spis: vec![first, third] }).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        let mut left: Vec<u32> = vault.report().sas.iter().map(|sa| sa.inbound_spi).collect();
        left.sort_unstable();
        if left == [first, third] {
            break;
        }
        assert!(left.contains(&second) && std::time::Instant::now() < end, "{left:?}");
    }
}

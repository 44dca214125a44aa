//! The keyer, a vault, the signer and a person's command may say anything at any rate and never read: that costs the agent a bounded
//! amount of memory, and it answers others.

#[path = "../src/agent/words.rs"]
#[allow(dead_code, reason = "the program uses all of it")]
mod words;
mod world;

use levee_hostile::{Flood, flood};
use levee_ipc::Channel;
use levee_ipc::keyer::FromKeyer;
use levee_ipc::signer::FromSigner;
use levee_ipc::tpe::Command;
use levee_ipc::vault::{Report, VaultToSessiond};
use levee_ipc::warden::tpe::TpePart;
use levee_session::SessionId;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use words::{FromAcceptor, FromConnection, Login};
use world::{Prod, World, common, label};

const WHILE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

fn session(number: u64) -> SessionId {
    let mut id = [9; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    SessionId::from_random(id)
}

/// Gives the agent a channel in the place of the one that it has.
fn give(world: &World, part: TpePart) -> Channel {
    let (ours, theirs) = Channel::pair().unwrap();
    common::give(&world.control, part, &theirs);
    ours
}

/// The agent's memory is bounded meanwhile, and a person is answered then, and soon.
fn bears(world: &World, what: &str, attack: impl FnOnce() -> Flood) -> Flood {
    let flood = levee_hostile::bears(world.agent.pid.as_raw_nonzero().get(), what, attack);
    let asked = Instant::now();
    assert!(world.status().is_object(), "{what}");
    assert!(asked.elapsed() < Duration::from_secs(5), "{what}: {:?}", asked.elapsed());
    flood
}

/// While this is said, a person is answered.
fn answered_meanwhile(world: &World, what: &str, attack: impl FnOnce() -> Flood + Send) {
    std::thread::scope(|scope| {
        let loud = scope.spawn(attack);
        assert!(world.status().is_object(), "{what}");
        assert!(loud.join().unwrap().said > 0, "{what}");
    });
}

/// Floods: keyer → tpe's agent.
#[test]
fn a_keyer_that_tells_without_end_costs_little_and_the_person_is_served() {
    let world = World::new();
    world.log_in();
    let keyer = give(&world, TpePart::Keyer);
    let failed = |n: u64| FromKeyer::Failed { session: session(n), reason: "x".repeat(n as usize % 50_000) };
    let dropped = |n: u64| FromKeyer::Dropped((0..200).map(|other| (format!("{n} {other}"), n)).collect());
    bears(&world, "failures", || flood(&keyer, WHILE, failed));
    bears(&world, "completions", || flood(&keyer, WHILE, |n| FromKeyer::Completed(session(n))));
    bears(&world, "drops of ever new names", || flood(&keyer, WHILE, dropped));
    answered_meanwhile(&world, "a keyer", || flood(&keyer, WHILE, failed));
    let nonsense = bears(&world, "nonsense", || flood(&keyer, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut, "{nonsense:?}");
}

/// Floods: vault or gate → tpe's agent.
#[test]
fn a_vault_that_tells_without_end_costs_little_and_the_person_is_served() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    let give = || give(&world, TpePart::Vault(label("SECRET")));
    let report = |n: u64| {
        let counters = (0..200).map(|other| (format!("counter {n} {other}"), n)).collect();
        VaultToSessiond::Report(Report { counters, ..Report::default() })
    };
    let vault = give();
    bears(&world, "reports", || flood(&vault, WHILE, report));
    bears(&world, "openings", || flood(&vault, WHILE, |n| VaultToSessiond::Opened(session(n))));
    bears(&world, "disagreements", || flood(&vault, WHILE, VaultToSessiond::Disagreed));
    answered_meanwhile(&world, "a vault", || flood(&vault, WHILE, report));
    let nonsense = bears(&world, "nonsense", || flood(&vault, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut, "{nonsense:?}");
}

/// Floods: signer → tpe's agent.
#[test]
fn a_signer_that_says_more_than_it_is_asked_keeps_no_person_from_the_agent() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    let signer = give(&world, TpePart::Signer);
    let word = |n: u64| FromSigner::Signature(vec![7; n as usize % 4_000]);
    bears(&world, "signatures", || flood(&signer, WHILE, word));
    // It has the path made again, which is signed by it: then some of that is taken.
    world.prod(Prod::Cut);
    let until = Instant::now() + common::PATIENCE;
    while signer.try_send(&word(1)).is_err() {
        assert!(Instant::now() < until, "it is asked for nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    answered_meanwhile(&world, "signatures to handshakes", || Flood {
        said: 1,
        ..flood(&signer, WHILE, word)
    });
}

fn person(world: &World) -> Channel {
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&fd, &SocketAddrUnix::new(&world.socket).unwrap()).unwrap();
    Channel::from_fd(fd)
}

/// Floods: `levee-tpe` → tpe's agent.
#[test]
fn a_persons_command_that_says_more_than_it_may_is_cut_off_and_others_are_answered() {
    let world = World::new();
    let (deaf, loud) = (person(&world), person(&world));
    let asked = bears(&world, "a person", || flood(&deaf, LONG, |_| Command::Status));
    assert!(asked.cut, "{asked:?}");
    let nonsense = bears(&world, "nonsense", || flood(&loud, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut, "{nonsense:?}");
}

/// The first process that this one has started.
fn child(pid: i32) -> i32 {
    let until = Instant::now() + common::PATIENCE;
    loop {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        if let Some(child) = text.split_whitespace().next() {
            return child.parse().unwrap();
        }
        assert!(Instant::now() < until, "{pid} has started nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process's channel to the agent, as whoever has taken it over has it: the pair was made by `maker`.
fn taken_over(process: i32, maker: i32) -> Channel {
    let pidfd = pidfd_open(Pid::from_raw(process).unwrap(), PidfdFlags::empty()).unwrap();
    let of = |number| pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).ok();
    let is_it = |fd: &OwnedFd| {
        sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET)
            && sockopt::socket_acceptconn(fd).is_ok_and(|listens| !listens)
            && sockopt::socket_peercred(fd).is_ok_and(|peer| peer.pid.as_raw_nonzero().get() == maker)
    };
    let until = Instant::now() + common::PATIENCE;
    loop {
        // One that has just begun has its maker's end as well.
        let mut all: Vec<OwnedFd> = (0..64).filter_map(of).filter(is_it).collect();
        if let (Some(one), true) = (all.pop(), all.is_empty()) {
            return Channel::from_fd(one);
        }
        assert!(Instant::now() < until, "{} channels", all.len() + 1);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Floods: tpe's acceptor → tpe's agent.
#[test]
fn an_acceptor_that_speaks_without_end_costs_the_agent_little_and_people_are_answered() {
    let world = World::new();
    let agent = world.agent.pid.as_raw_nonzero().get();
    let channel = taken_over(child(agent), agent);
    let unheard = |n: u64| FromAcceptor::Unheard("x".repeat(n as usize % 50_000));
    bears(&world, "whom it says not to hear", || flood(&channel, WHILE, unheard));
    bears(&world, "logins", || flood(&channel, WHILE, |n| FromAcceptor::Over(Login(n as u32))));
    answered_meanwhile(&world, "logins", || flood(&channel, WHILE, |n| FromAcceptor::Over(Login(n as u32))));
}

/// Floods: connection process → tpe's agent.
#[test]
fn a_connection_process_that_speaks_without_end_costs_the_agent_little_and_others_are_answered() {
    let world = World::new();
    let acceptor = child(world.agent.pid.as_raw_nonzero().get());
    let file = |n: u64| FromConnection::File(Err("x".repeat(n as usize % 50_000)));
    for (what, word) in [
        ("files", file as fn(u64) -> FromConnection),
        ("commands", |_| FromConnection::Said(Command::Status)),
        ("passwords", |n| {
            let password = levee_ipc::Secret::new(vec![7; n as usize % 1_000]).unwrap();
            FromConnection::Said(Command::Login { user: "ada".parse().unwrap(), password, code: None })
        }),
    ] {
        let person = person(&world);
        let channel = taken_over(child(acceptor), acceptor);
        // One that says more than a person may is let go of.
        if !bears(&world, what, || flood(&channel, WHILE, word)).cut {
            answered_meanwhile(&world, what, || flood(&channel, WHILE, word));
        }
        drop((person, channel));
        let until = Instant::now() + common::PATIENCE;
        while !std::fs::read_to_string(format!("/proc/{acceptor}/task/{acceptor}/children"))
            .unwrap()
            .is_empty()
        {
            assert!(Instant::now() < until, "{what}: it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

//! What ends again and again: it is one label's, and so is the trouble.
//!
//! Needs root, python3, curl, nginx-light, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_ipc::warden::CONTROL_FD;
use levee_system::host::{self, Process};
use levee_system::senders::{MORE, start, stop};
use levee_system::{World, eventually, text};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const VICTIM: &str = "CONFIDENTIAL//MED";

/// Services of the victim's alone: one that its mediator hands off, one that cannot start, and one that can from some day on.
const TROUBLED: &str = r#"
[[service]]
name = "cat"
port = 9
protocol = "tcp"
range = "CONFIDENTIAL//MED"
mode = "handoff"
socket = "stdio"
command = ["/usr/bin/cat"]

[[service]]
name = "broken"
port = 10
protocol = "tcp"
range = "CONFIDENTIAL//MED"
mode = "direct"
command = ["/usr/bin/python3", "-c", "import os, sys; sys.exit(0 if os.path.exists('/srv/own/mended') and os.execvp('sleep', ['sleep', '60']) else 7)"]
"#;

fn up(name: &str) -> World {
    let site = format!("{}{MORE}{TROUBLED}", SITE.replace("\"harbour\"", &format!("\"port-{name}\"")));
    let world = World::up(name, &site, &["ws1", "ws2", "ws3"]);
    for (workstation, user, label) in
        [("ws1", "ada", "SECRET//NATO,MED"), ("ws2", "mia", VICTIM), ("ws3", "ugo", "UNCLASSIFIED")]
    {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
    }
    world
}

/// A process number in the victim's row of the status; none while there is none.
fn number(world: &World, key: &str) -> Option<Process> {
    let status = world.status();
    let row = status["compartments"].as_array()?.iter().find(|row| row["label"] == VICTIM)?.clone();
    Process::find(u32::try_from(row[key].as_u64()?).ok()?)
}

fn alarms(world: &World) -> String {
    let out = world.levee(&["status", "--run", &text(&world.path("run"))]).ok();
    out.lines().filter(|line| line.starts_with("ALARM")).collect::<Vec<_>>().join("\n")
}

fn audit(world: &World) -> String {
    world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok()
}

#[test]
fn a_label_whose_processes_are_killed_nine_times_each_is_alone_in_trouble_and_comes_back() {
    let world = up("nine");
    world.fetch("ws2", PAGE).ok();
    let others = start(&world, [("ws1", "SECRET//NATO,MED"), ("ws3", "UNCLASSIFIED")]);
    let warden = Process::find(world.server_pid()).expect("the warden");
    let mediator = || host::children(warden.pid, "levee-mediator").pop();
    let victims: [(&str, &dyn Fn() -> Option<Process>); 3] = [
        ("levee-vault", &|| number(&world, "vault")),
        ("levee-mediator", &mediator),
        ("the compartment", &|| number(&world, "init")),
    ];
    for (name, victim) in victims {
        for kill in 0..9 {
            eventually(Duration::from_secs(20), &format!("{name} is there for kill {kill}"), || {
                assert!(warden.runs(), "{name} was killed {kill} times, and the server ended");
                victim().is_some_and(|process| {
                    process.kill();
                    true
                })
            });
            std::thread::sleep(Duration::from_millis(if name == "levee-vault" { 1_000 } else { 300 }));
        }
        eventually(Duration::from_secs(5), "an alarm says so", || {
            alarms(&world).lines().any(|alarm| alarm.contains(VICTIM) && alarm.contains(name))
        });
        let record = format!("{VICTIM} run {name}");
        assert!(
            audit(&world).lines().any(|line| line.contains(&record) && line.contains("denied")),
            "{}",
            audit(&world)
        );
        eventually(Duration::from_secs(30), "the label is back", || world.fetch("ws2", PAGE).status == 0);
    }
    assert!(warden.runs());
    for (label, lost) in stop(others) {
        assert!(lost.is_empty(), "{label} lost {} packets", lost.len());
    }
    // Their own trouble is over some time after they run again.
    eventually(Duration::from_secs(60), "no alarm is left", || alarms(&world).is_empty());
}

#[test]
fn a_service_that_cannot_start_refuses_who_waits_rests_longer_each_time_and_is_told_once() {
    let world = up("broken");
    // As a client does that was abandoned: it connects, and tries again at once whenever it is refused.
    let client = r#"
import socket, time
began, refused, hung = time.time(), 0, 0
while time.time() < began + 8:
    try:
        s = socket.create_connection(("10.80.0.1", 10), 3)
        s.settimeout(3)
        if not s.recv(1): refused += 1
    except TimeoutError: hung += 1
    except OSError: refused += 1
    time.sleep(0.05)
print(refused, hung)
"#;
    let said = world.run("ws2", &["python3", "-c", client]).ok();
    let (refused, hung) = said.trim().split_once(' ').expect("two numbers");
    assert!(refused.parse::<u32>().is_ok_and(|n| n > 20) && hung == "0", "refused and hung: {said}");
    let log = audit(&world);
    let records: Vec<&str> = log.lines().filter(|line| line.contains("service broken")).collect();
    assert_eq!(records.len(), 1, "{records:#?}");
    assert!(records[0].contains("denied") && records[0].contains("ended with status 7"), "{records:#?}");
    assert!(!log.contains("service broken: noted"), "{log}");
    let alarm = alarms(&world);
    assert!(alarm.contains(VICTIM) && alarm.contains("service broken"), "{alarm}");
    let status = world.status();
    let row =
        status["compartments"].as_array().expect("compartments").iter().find(|row| row["label"] == VICTIM);
    let services = row.expect("the label runs")["services"].as_array().expect("services").clone();
    let starts = services.iter().find(|s| s[0] == "broken").and_then(|s| s[1].as_u64()).expect("how often");
    assert!((1..=5).contains(&starts), "{starts} starts in eight seconds");
}

#[test]
fn a_standing_process_that_ends_again_and_again_ends_the_server_and_the_next_start_says_why() {
    let mut world = up("stand");
    let warden = Process::find(world.server_pid()).expect("the warden");
    for _ in 0..12 {
        for keyer in host::children(warden.pid, "levee-keyer") {
            keyer.kill();
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    eventually(Duration::from_secs(20), "the server has ended", || !warden.runs());
    world.stop_server();
    world.start_server();
    let alarm = alarms(&world);
    assert!(alarm.contains("levee-keyer ends again and again"), "{alarm}");
    assert!(audit(&world).contains("levee-keyer ends again and again"));
    // Once is enough.
    world.stop_server();
    world.start_server();
    assert_eq!(alarms(&world), "");
}

/// Its end takes a while: the kernel has memory to take back.
const LONG_END: &str = r#"
import os, sys, time
for _ in range(16):
    if os.fork() == 0:
        held = b"x" * (20 << 20)
        time.sleep(600)
time.sleep(600)
"#;

#[test]
fn that_a_label_ends_is_told_once_however_long_that_takes() {
    let world = up("once");
    let run = text(&world.path("run"));
    let mut command = std::process::Command::new(levee_system::programs().join("levee"));
    command.args(["exec", VICTIM, "--run", &run, "--state", &text(&world.path("state"))]);
    let mut held = command.args(["--", "/usr/bin/python3", "-c", LONG_END]).spawn().unwrap();
    let init = number(&world, "init").expect("its process 1");
    let python = |world: &World| {
        host::below(world.server_pid()).iter().filter(|one| one.status("Name") == "python3").count()
    };
    eventually(Duration::from_secs(20), "its processes have their memory", || python(&world) > 16);
    std::thread::sleep(Duration::from_secs(3));
    init.kill();
    held.wait().unwrap();
    eventually(Duration::from_secs(30), "it is back", || {
        number(&world, "init").is_some_and(|now| now.pid != init.pid)
    });
    let log = world.levee(&["log", "--state", &text(&world.path("state"))]).ok();
    let told = log.lines().filter(|line| line.contains("listen to compartment")).count();
    assert!(told <= 1 && !log.contains("left out"), "{told} times:\n{log}");
}

/// Says this over and over by a process's own channel, as whoever has taken it over would. How often it was taken.
fn speak_without_end(channel: &OwnedFd, words: &[u8], over: &AtomicBool) -> u64 {
    let mut taken = 0;
    while !over.load(Ordering::Relaxed) {
        match rustix::net::send(channel, words, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => taken += 1,
            Err(Errno::AGAIN) => std::thread::sleep(Duration::from_micros(50)),
            Err(_) => break,
        }
    }
    taken
}

#[test]
fn who_speaks_to_sessiond_or_the_keyer_without_end_is_heard_in_part_and_goes_on() {
    const TIME: Duration = Duration::from_secs(3);
    let world = up("words");
    world.fetch("ws2", PAGE).ok();
    let others = start(&world, [("ws1", "SECRET//NATO,MED"), ("ws3", "UNCLASSIFIED")]);
    let vault = number(&world, "vault").expect("a vault");
    let mediator = host::child(world.server_pid(), "levee-mediator");
    let (vaults, mediators) = (channels(&vault), channels(&mediator));
    // That nothing old is left, with the sessions that were severed, as many as one message holds; that a session that nobody has waits for keys;
    // that it has closed it. What is heard at once, in three seconds, and what waits in the channel.
    let severed = [vec![4, 7, 0x80, 0x1c], vec![7; 16 * 3_584]].concat();
    let ghost = |word: u8| [vec![word], vec![7; 16]].concat();
    let loud = [
        (&vault, &vaults[0], severed, 160),
        (&vault, &vaults[1], ghost(2), 90_000),
        (&mediator, &mediators[1], ghost(1), 90_000),
    ];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let all: Vec<_> = loud
            .iter()
            .map(|(process, channel, words, most)| {
                let over = &over;
                (scope.spawn(move || speak_without_end(channel, words, over)), process, *most)
            })
            .collect();
        std::thread::sleep(TIME);
        over.store(true, Ordering::Relaxed);
        for (speaker, process, most) in all {
            let taken = speaker.join().expect("a speaker");
            assert!(process.runs(), "{} is as before", process.name);
            assert!(0 < taken && taken < most, "{} was heard {taken} times", process.name);
        }
    });
    world.fetch("ws2", PAGE).ok();
    for (label, lost) in stop(others) {
        assert!(lost.is_empty(), "{label} lost {} packets", lost.len());
    }
}

/// A process's descriptor of this number, as whoever has taken it over has it.
fn descriptor(process: &Process, number: i32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(process.pid.cast_signed())?;
    pidfd_getfd(pidfd_open(pid, PidfdFlags::empty()).ok()?, number, PidfdGetfdFlags::empty()).ok()
}

/// A process's channels, but for that to the warden.
fn channels(process: &Process) -> Vec<OwnedFd> {
    let all = (CONTROL_FD + 1..64).filter_map(|number| descriptor(process, number));
    all.filter(|fd| sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET)).collect()
}

#[test]
fn who_speaks_to_the_warden_without_end_is_ended_and_no_other_label_loses_anything() {
    let world = up("loud");
    world.fetch("ws2", PAGE).ok();
    let others = start(&world, [("ws1", "SECRET//NATO,MED"), ("ws3", "UNCLASSIFIED")]);
    // That a service was started seven times, and nothing else of it; and what a stage of upflow has done.
    let init = number(&world, "init").expect("its process 1");
    let upflow = host::child(world.server_pid(), "levee-upflow");
    for (process, words) in [(upflow, [vec![1], vec![0; 14]].concat()), (init, vec![5, 0, 7, 0, 0])] {
        let over = AtomicBool::new(false);
        let channel = descriptor(&process, CONTROL_FD).expect("its channel");
        std::thread::scope(|scope| {
            scope.spawn(|| speak_without_end(&channel, &words, &over));
            let until = Instant::now() + Duration::from_secs(10);
            while process.runs() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(!process.runs(), "{} is heard for as long as it speaks", process.name);
    }
    eventually(Duration::from_secs(30), "the label is there again", || world.fetch("ws2", PAGE).status == 0);
    for (label, lost) in stop(others) {
        assert!(lost.is_empty(), "{label} lost {} packets", lost.len());
    }
}

//! A person's commands, through the agent, over the trusted path, down to what the keyer is told.

mod world;

use levee_ipc::warden::WorkstationEvent;
use levee_session::SessionId;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;
use world::common::PATIENCE;
use world::{Prod, World};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_person_signs_on_opens_a_session_and_the_keyer_negotiates_what_the_server_granted() {
    let world = World::new();
    assert_eq!(world.status()["connected"], false);
    world.log_in();
    let output = world.tpe(&["--json", "level", "SECRET"], "");
    let opened: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&opened["label"], &opened["colour"]), (&"SECRET".into(), &"green".into()));
    {
        let seen = world.seen.lock().unwrap();
        let (record, server) = &seen.negotiated[0];
        assert_eq!((record.label.as_str(), record.device.as_str()), ("SECRET", "ws1"));
        assert_eq!((&record.session, &record.inner), (&seen.records[0].id, &seen.records[0].inner));
        assert_eq!(*server, ([127, 0, 0, 1], 4500).into());
        let selectors: Vec<String> =
            seen.records[0].selectors.iter().map(|s| format!("{} {}", s.local, s.remote)).collect();
        assert_eq!(selectors, ["10.81.0.5/32 10.80.0.1/32", "fd00:81::5/128 fd00:80::1/128"]);
    }
    let status = world.status();
    assert_eq!((&status["user"], &status["session"]["label"]), (&"ada".into(), &"SECRET".into()));
    assert!(world.tpe(&["logout"], "").status.success());
    assert_eq!(
        world.events(),
        [
            "login ada",
            "server opens SECRET",
            "compartment SECRET [10.81.0.5, fd00:81::5] [(10.80.0.1, [DomainName(\"www.example\")])]",
            "logout",
            "purge SECRET"
        ]
    );
    assert_eq!(world.status()["user"], serde_json::Value::Null);
}

#[test]
fn refusals_come_through_in_words_and_change_nothing() {
    let world = World::new();
    let output = world.tpe(&["level", "SECRET"], "");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "levee-tpe: nobody is signed on here\n");
    let output = world.tpe(&["--json", "login", "ada", "--password-stdin"], "wrong\n");
    assert_eq!(output.status.code(), Some(1));
    let refused: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(refused["error"], "Credentials");
    world.log_in();
    let output = world.tpe(&["login", "ada", "--password-stdin"], "correct horse\n");
    assert_eq!(text(&output.stderr), "levee-tpe: ada is signed on here\n");
    world.level("UNCLASSIFIED");
    let output = world.tpe(&["level", "TOP"], "");
    assert_eq!(text(&output.stderr), "levee-tpe: TOP is not within your clearance\n");
    assert_eq!(world.status()["session"]["label"], "UNCLASSIFIED");
    assert!(!world.events().iter().any(|event| event.starts_with("purge")));
}

#[test]
fn the_old_level_is_purged_before_the_new_ones_compartment_starts() {
    let world = World::new();
    world.log_in();
    world.level("UNCLASSIFIED");
    world.level("SECRET");
    let events = world.events();
    let at = |what: &str| events.iter().position(|event| event.starts_with(what)).unwrap();
    assert!(at("purge UNCLASSIFIED") < at("compartment SECRET"), "{events:?}");
    assert_eq!(world.status()["session"]["label"], "SECRET");
}

#[test]
fn a_person_whose_level_is_started_first_is_told_so_and_gets_it_when_it_is_there() {
    let world = World::new();
    world.log_in();
    let mut command = world.command(&["--json", "level", "SLOW"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The server does not answer before the person has been told.
    let (mut said, mut errors) = (String::new(), BufReader::new(child.stderr.take().unwrap()));
    errors.read_line(&mut said).unwrap();
    assert!(said.starts_with("levee-tpe: SLOW is not open yet"), "{said}");
    assert_eq!(world.status()["session"], serde_json::Value::Null);
    world.prod(Prod::Open);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let opened: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(opened["label"], "SLOW");
    assert_eq!(world.status()["session"]["label"], "SLOW");
}

#[test]
fn a_session_that_was_lost_to_a_level_that_could_not_be_opened_is_purged() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    let output = world.tpe(&["level", "CROWDED"], "");
    assert_eq!(text(&output.stderr), "levee-tpe: no slot is free\n");
    assert_eq!(world.status()["session"], serde_json::Value::Null);
    assert_eq!(world.events().last().map(String::as_str), Some("purge SECRET"));
}

#[test]
fn a_compartment_that_does_not_start_ends_the_session_on_both_sides() {
    let world = World::new();
    world.log_in();
    let output = world.tpe(&["level", "BROKEN"], "");
    assert_eq!(
        text(&output.stderr),
        "levee-tpe: the compartment does not start: mount: no space; signed off\n"
    );
    assert_eq!(world.events().last().map(String::as_str), Some("logout"));
    assert_eq!(world.status()["user"], serde_json::Value::Null);
}

#[test]
fn a_program_runs_with_its_own_pipes_and_its_status_is_the_commands() {
    let world = World::new();
    let output = world.tpe(&["run", "--", "/bin/true"], "");
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(255), "levee-tpe: no session is open: choose a level first\n".into())
    );
    world.log_in();
    world.level("SECRET");
    let script = "cat; echo out; echo err >&2; exit 7";
    let output = world.tpe(&["run", "--", "/bin/sh", "-c", script], "in\n");
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(7), "in\nout\n".into(), "err\n".into())
    );
    let output = world.tpe(&["run", "--", "/bin/sh", "-c", "head -c 3000000 /dev/zero"], "");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 3_000_000));
    let output = world.tpe(&["run", "--", "/no/such/program"], "");
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("/no/such/program"), "{}", text(&output.stderr));
}

#[test]
fn signals_reach_the_program_and_a_purge_ends_it() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    let sleeper = || {
        let mut child = world
            .command(&["run", "--", "/bin/sh", "-c", "echo up; exec sleep 60"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        child
    };
    let mut child = sleeper();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    let child = sleeper();
    assert!(world.tpe(&["logout"], "").status.success());
    let output = child.wait_with_output().unwrap();
    let words = text(&output.stderr);
    // Its end and the session's are told in either order.
    assert!(
        output.status.code() == Some(128 + 9)
            || words.contains("the session ended, and its programs with it"),
        "{:?} {words}",
        output.status
    );
}

#[test]
fn a_lost_trusted_path_is_taken_up_again() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    world.prod(Prod::Cut);
    world.until("resumed", |world| world.events().iter().any(|event| event == "resume"));
    world.until("connected", |world| world.status()["connected"] == true);
    assert_eq!(world.status()["session"]["label"], "SECRET");
    assert!(!world.events().iter().any(|event| event.starts_with("purge")));
}

#[test]
fn a_session_that_the_server_ends_is_purged_here_and_its_person_told() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    world.prod(Prod::End("an operator ended it".into()));
    world.until("purged", |world| world.events().iter().any(|event| event == "purge SECRET"));
    world.until("told", |world| world.status()["ended"] == "an operator ended it");
    assert_eq!(world.status()["session"], serde_json::Value::Null);
}

#[test]
fn the_keyer_negotiates_anew_when_the_server_asks_for_it() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    world.prod(Prod::Renew);
    world.until("negotiated again", |world| world.seen.lock().unwrap().negotiated.len() == 2);
    let seen = world.seen.lock().unwrap();
    assert_eq!(seen.negotiated[0], seen.negotiated[1]);
}

#[test]
fn a_level_whose_keys_the_server_refuses_is_not_opened_and_says_why() {
    let world = World::new();
    world.log_in();
    let output = world.tpe(&["level", "KEYLESS"], "");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("TS_UNACCEPTABLE"), "{said}");
    let events = world.events();
    assert!(
        events.contains(&"purge KEYLESS".to_owned()) && events.contains(&"logout".to_owned()),
        "{events:?}"
    );
}

#[test]
fn a_compartment_that_dies_ends_the_session_at_the_server_too() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    world.warden.send(WorkstationEvent::Died(SessionId::from_random([1; 16]))).unwrap();
    world.until("signed off", |world| world.events().iter().any(|event| event == "logout"));
    world.until("told", |world| world.status()["ended"].as_str().is_some_and(|why| why.contains("died")));
}

#[test]
fn a_password_is_changed_from_two_lines_and_refused_with_a_wrong_old_one() {
    let world = World::new();
    world.log_in();
    let output = world.tpe(&["passwd", "--password-stdin"], "correct horse\nbattery staple\n");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = world.tpe(&["passwd", "--password-stdin"], "wrong\nbattery staple\n");
    assert_eq!(text(&output.stderr), "levee-tpe: wrong password\n");
}

#[test]
fn a_connection_that_says_nothing_or_nonsense_does_not_hold_up_another() {
    let world = World::new();
    let connect = || {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&world.socket).unwrap()).unwrap();
        socket
    };
    let silent: Vec<_> = (0..20).map(|_| connect()).collect();
    let nonsense = connect();
    std::fs::File::from(nonsense.try_clone().unwrap()).write_all(&[0xff; 300]).unwrap();
    world.log_in();
    assert_eq!(world.status()["user"], "ada");
    assert!(world::common::readable(&nonsense, PATIENCE), "it is closed");
    std::thread::sleep(Duration::from_secs(6));
    assert!(silent.iter().all(|fd| world::common::readable(fd, Duration::ZERO)), "they are closed");
}

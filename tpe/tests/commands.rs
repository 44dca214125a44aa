//! A person's commands, through the agent, over the trusted path, down to what the keyer is told.

mod world;

use levee_ipc::warden::WorkstationEvent;
use levee_session::SessionId;
use levee_system::prompt::Prompt;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::process::{Command, Stdio};
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
        let selectors: Vec<String> = seen.records[0]
            .selectors
            .iter()
            .map(|s| format!("{} {} {:?} {:?}", s.local, s.remote, s.protocol, s.remote_ports))
            .collect();
        assert_eq!(
            selectors,
            [
                "10.81.0.5/32 10.80.0.1/32 Some(6) (80, 80)",
                "10.81.0.5/32 10.80.0.1/32 Some(17) (7, 7)",
                "fd00:81::5/128 fd00:80::1/128 Some(6) (80, 80)",
            ]
        );
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
fn where_the_site_asks_for_a_code_the_next_line_is_it() {
    let world = World::new();
    let login = |lines: &str| world.tpe(&["login", "ada", "--password-stdin"], lines);
    let refused = login("a code beside it\n654321\n");
    assert_eq!(text(&refused.stderr), "levee-tpe: unknown user or wrong password\n");
    assert_eq!(login("a code beside it\n").status.code(), Some(1), "no code is no code");
    let place = tempfile::tempdir().unwrap();
    let files = ["password", "code"].map(|name| place.path().join(name).to_str().unwrap().to_owned());
    std::fs::write(&files[0], "a code beside it\n").unwrap();
    std::fs::write(&files[1], "123456\n").unwrap();
    assert!(world.tpe(&["login", "ada", "--password-file", &files[0], &files[1]], "").status.success());
    assert!(world.tpe(&["logout"], "").status.success());
    assert!(login("a code beside it\n123456\n").status.success());
    assert_eq!(world.status()["user"], "ada");
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
fn a_person_whose_password_waits_is_told_so_and_signs_on_when_it_is_looked_at() {
    let world = World::new();
    let mut command = world.command(&["login", "late", "--password-stdin"]);
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"correct horse\n").unwrap();
    // The server does not answer before the person has been told.
    let (mut said, mut errors) = (String::new(), BufReader::new(child.stderr.take().unwrap()));
    errors.read_line(&mut said).unwrap();
    assert!(
        said.starts_with("levee-tpe: after wrong passwords the server looks at the next only in a while"),
        "{said}"
    );
    assert!(said.contains("at most 30 seconds"), "{said}");
    world.prod(Prod::Look);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(world.status()["user"], "late");
}

#[test]
fn what_was_to_be_carried_into_a_session_is_not_carried_into_the_next_one() {
    let world = World::new();
    world.log_in();
    world.level("UNCLASSIFIED");
    let mut level = world.command(&["level", "SLOW"]);
    let mut level = level.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut errors) = (String::new(), BufReader::new(level.stderr.take().unwrap()));
    errors.read_line(&mut said).unwrap();
    assert!(said.contains("SLOW is not open yet"), "{said}");
    // At the level that there still is.
    let mut import = world.command(&["run", "--import", "--", "/bin/true"]);
    let mut import =
        import.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    import.stdin.take().unwrap().write_all(b"tide table").unwrap();
    // An answer to a question that came after it: the agent has it.
    std::thread::sleep(std::time::Duration::from_millis(300));
    world.status();
    world.prod(Prod::Open);
    assert!(level.wait().unwrap().success());
    let output = import.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("the session ended"), "{}", text(&output.stderr));
    // What the agent is asked now it does after that.
    world.tpe(&["lock"], "");
    let carried: Vec<String> =
        world.events().into_iter().filter(|event| event.starts_with("Import")).collect();
    assert!(carried.is_empty(), "{carried:?}");
}

#[test]
fn a_session_at_another_label_than_was_asked_for_is_not_begun() {
    let world = World::new();
    world.log_in();
    let output = world.tpe(&["level", "TRICKED"], "");
    let said = text(&output.stderr);
    assert!(said.contains("the server opened SECRET, and TRICKED was asked for"), "{said}");
    assert!(said.contains("signed off"), "{said}");
    assert_eq!(world.status()["user"], serde_json::Value::Null);
    let begun: Vec<String> =
        world.events().into_iter().filter(|event| event.starts_with("compartment")).collect();
    assert!(begun.is_empty(), "{begun:?}");
}

#[test]
fn a_level_that_could_not_be_opened_leads_back_to_the_one_before() {
    const BACK: &str = "; back at SECRET, in a new session: what ran in the one before has ended\n";
    for (label, why) in [
        ("CROWDED", "no slot is free"),
        ("BROKEN", "the compartment does not start: mount: no space"),
        ("KEYLESS", "no keys: the server refuses keys (TS_UNACCEPTABLE)"),
    ] {
        let world = World::new();
        world.log_in();
        world.level("SECRET");
        let output = world.tpe(&["level", label], "");
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(1), format!("levee-tpe: {why}{BACK}"))
        );
        assert_eq!(world.status()["session"]["label"], "SECRET");
        assert_eq!(world.status()["user"], "ada");
        // What ran at the level before was purged, and what had been begun of the other was too, before it began anew.
        let events = world.events();
        let begun = events.iter().rposition(|event| event.starts_with("compartment SECRET")).unwrap();
        let purged = events.iter().rposition(|event| event.starts_with("purge")).unwrap();
        assert!(events.contains(&"purge SECRET".into()) && purged < begun, "{events:?}");
        let mut run = world.command(&["run", "--export", "--", "/bin/echo", "here"]);
        assert_eq!(text(&run.stdin(Stdio::null()).output().unwrap().stdout), "here\n");
    }
}

#[test]
fn where_the_level_before_cannot_be_had_either_nothing_of_it_is_left_and_its_person_stays_signed_on() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    let output = world.tpe(&["level", "FULL"], "");
    let ended = "no slot is free; the session at SECRET has ended, and there could not be another";
    assert_eq!(text(&output.stderr), format!("levee-tpe: {ended}\n"));
    assert_eq!(world.status()["session"], serde_json::Value::Null);
    assert_eq!(world.status()["user"], "ada");
    assert_eq!(world.events().last().map(String::as_str), Some("purge SECRET"));
}

#[test]
fn a_server_that_opens_another_level_than_was_asked_for_is_not_asked_for_the_one_before() {
    let world = World::new();
    world.log_in();
    world.level("UNCLASSIFIED");
    let output = world.tpe(&["level", "TRICKED"], "");
    assert!(text(&output.stderr).ends_with("; signed off\n"), "{}", text(&output.stderr));
    assert_eq!(world.status()["user"], serde_json::Value::Null);
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

fn digest(content: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_a_program_writes_to_a_file_is_recorded_before_it_is_there_and_so_is_what_it_reads() {
    let world = World::new();
    let output = world.tpe(&["run", "--export", "--import", "--", "/bin/true"], "");
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(255), "levee-tpe: no session is open: choose a level first\n".into())
    );
    world.log_in();
    world.level("SECRET");
    let script = "cat; echo out; echo err >&2; exit 7";
    let output = world.tpe(&["run", "--export", "--import", "--", "/bin/sh", "-c", script], "in\n");
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(7), "in\nout\n".into(), "err\n".into())
    );
    let recorded = [
        format!("Import 3 {}", digest(b"in\n")),
        format!("Export 7 {}", digest(b"in\nout\n")),
        format!("Export 4 {}", digest(b"err\n")),
    ];
    assert!(world.events().ends_with(&recorded), "{:?}", world.events());
    let big = ["run", "--export", "--", "/bin/sh", "-c", "head -c 3000000 /dev/zero"];
    let output = world.command(&big).stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 3_000_000));
    let output =
        world.command(&["run", "--export", "--", "/no/such/program"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("/no/such/program"), "{}", text(&output.stderr));
}

#[test]
fn nothing_passes_between_a_program_and_a_file_or_a_pipe_without_a_record() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    let before = world.events();
    // A document into a file; a file into the session.
    let output =
        world.command(&["run", "--", "/bin/echo", "the plan"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(255), String::new()));
    assert!(text(&output.stderr).contains("--export"), "{}", text(&output.stderr));
    let output = world.tpe(&["run", "--export", "--", "/bin/cat"], "the plan\n");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(255), String::new()));
    assert!(text(&output.stderr).contains("--import"), "{}", text(&output.stderr));
    assert_eq!(world.events(), before, "no program was started");
    // Nobody is to read it: nothing is carried.
    let mut quiet = world.command(&["run", "--", "/bin/sh", "-c", "echo the plan; exit 3"]);
    let quiet = quiet.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((quiet.status.code(), text(&quiet.stderr)), (Some(3), String::new()));
    assert_eq!(world.events(), before);
    // Where the site does not let this person, the program's output stays and a file stays out.
    world.level("UNCLASSIFIED");
    let mut refused = world.command(&["run", "--export", "--", "/bin/echo", "the plan"]);
    let refused = refused.stdin(Stdio::null()).output().unwrap();
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(255), String::new()));
    assert!(
        text(&refused.stderr).contains("what it wrote stays: not at this level"),
        "{}",
        text(&refused.stderr)
    );
    let refused = world.tpe(&["run", "--export", "--import", "--", "/bin/cat"], "the plan\n");
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(255), String::new()));
    // More than can be carried: the program is told by SIGPIPE, and nothing comes out.
    world.level("SECRET");
    let mut much =
        world.command(&["run", "--export", "--", "/bin/sh", "-c", "exec head -c 80000000 /dev/zero"]);
    let much = much.stdin(Stdio::null()).output().unwrap();
    assert_eq!((much.status.code(), much.stdout.len()), (Some(255), 0));
    assert!(text(&much.stderr).contains("64M that can be carried"), "{}", text(&much.stderr));
}

#[test]
fn a_descriptor_that_is_no_terminal_is_not_given_to_a_program_by_whoever_asks_the_agent() {
    use levee_ipc::tpe::{Answer, Command, Input, Output};
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    let ask = |input, output, fd: std::os::fd::OwnedFd| {
        let channel = levee_ipc::Channel::from_fd(connect(&world));
        let command =
            Command::Run { argv: vec!["/bin/echo".into(), "the plan".into()], env: vec![], input, output };
        channel.send_with(&command, &[std::os::fd::AsFd::as_fd(&fd)]).unwrap();
        channel.recv::<Answer>().unwrap().message
    };
    let (mut out, theirs) = std::io::pipe().unwrap();
    let answer = ask(Input::None, Output::Terminal, theirs.into());
    assert!(
        matches!(&answer, Answer::Refused { reason, .. } if reason.contains("pseudo-terminal")),
        "{answer:?}"
    );
    let mut read = String::new();
    out.read_to_string(&mut read).unwrap();
    assert_eq!(read, "");
    let (theirs, _ours) = std::io::pipe().unwrap();
    let answer = ask(Input::Import, Output::Discard, theirs.into());
    assert!(
        matches!(&answer, Answer::Refused { reason, .. } if reason.contains("memory file")),
        "{answer:?}"
    );
}

fn connect(world: &World) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(&world.socket).unwrap()).unwrap();
    socket
}

#[test]
fn signals_reach_the_program_and_a_purge_ends_it() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    let place = tempfile::tempdir().unwrap();
    let sleeper = |name: &str| {
        let up = place.path().join(name);
        let script = format!("echo >{}; exec sleep 60", up.display());
        let mut child = world.command(&["run", "--", "/bin/sh", "-c", &script]);
        let child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        world.until("it runs", |_| std::fs::read(&up).is_ok_and(|said| !said.is_empty()));
        child
    };
    let mut child = sleeper("first");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    let child = sleeper("second");
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
fn a_command_line_that_is_not_understood_is_told_as_json_where_that_is_asked_for() {
    let tpe = |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_levee-tpe")).args(words).output().unwrap();
    let output = tpe(&["--json", "level"]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(2), 0));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["error"], "Failed");
    assert!(value["reason"].as_str().unwrap().contains("<LABEL>"), "{value}");
    let theirs = tpe(&["level", "--bogus", "--", "--json"]);
    assert!(theirs.status.code() == Some(2) && theirs.stdout.is_empty());
}

#[test]
fn who_is_signed_on_is_told_why_the_trusted_path_does_not_come_back() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    world.prod(Prod::Exclude);
    let why = "this device is revoked";
    world.until("told", |world| world.status()["notice"].as_str().is_some_and(|said| said.ends_with(why)));
    assert_eq!(world.status()["connected"], false);
    for command in [&["level", "UNCLASSIFIED"][..], &["login", "ada", "--password-stdin"]] {
        let refused = world.tpe(command, "correct horse\n");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{command:?}: {said}");
    }
    let said = String::from_utf8_lossy(&world.tpe(&["status"], "").stdout).into_owned();
    assert!(said.contains("trusted path: down") && said.contains(why), "{said}");
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
fn a_session_that_ends_while_it_is_locked_here_leaves_nobody_signed_on() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    world.prod(Prod::Lock);
    world.until("locked", |world| world.status()["locked"] == true);
    // The server had not heard of a lock, or would have signed them off itself.
    world.prod(Prod::End("an operator ended it".into()));
    world.until("signed off", |world| world.status()["user"] == serde_json::Value::Null);
    world.until("the server is told", |world| world.events().iter().any(|event| event == "logout"));
    assert_eq!(world.status()["ended"], "an operator ended it");
    assert!(!world.tpe(&["level", "SECRET"], "").status.success());
}

#[test]
fn who_is_warned_sees_it_and_who_is_signed_off_by_the_server_is_so_here_and_may_sign_on_again() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    world.prod(Prod::Notice("five minutes are left".into()));
    world.until("warned", |world| world.status()["notice"] == "five minutes are left");
    world.prod(Prod::SignOff("long enough".into()));
    world.until("purged", |world| world.events().iter().any(|event| event == "purge SECRET"));
    world.until("signed off", |world| world.status()["user"].is_null());
    let status = world.status();
    assert_eq!((&status["ended"], &status["notice"]), (&"long enough".into(), &serde_json::Value::Null));
    world.log_in();
    assert_eq!(world.status()["user"], "ada");
}

#[test]
fn nothing_that_the_server_says_steers_the_terminal_of_a_command() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    // The clipboard, a colour, the other direction: a taken-over server, or somebody behind it.
    let says = "now\u{1b}]52;c;cGFzcw==\u{7}\u{9b}31m\u{202e}o\u{61c}n";
    world.prod(Prod::Notice(says.into()));
    world.until("it is there", |world| world.status()["notice"] == says);
    world.prod(Prod::End(says.into()));
    world.until("it is there too", |world| world.status()["ended"] == says);
    for arguments in [&["status"][..], &["--json", "status"]] {
        let out = String::from_utf8(world.tpe(arguments, "").stdout).unwrap();
        let steers = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{61c}');
        assert!(out.contains("now") && !out.contains(steers), "{out:?}");
    }
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
fn a_new_password_is_typed_twice_at_the_terminal_and_nothing_of_any_is_shown() {
    let world = World::new();
    world.log_in();
    let passwd = world.command(&["passwd"]);
    let words = std::iter::once(passwd.get_program()).chain(passwd.get_args());
    let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
    for (again, code, said) in
        [("battery house", 2, "the password is as it was"), ("battery staple", 0, "the password is changed")]
    {
        let mut prompt = Prompt::of(&words.join(" "), std::path::Path::new("/"));
        for (asked, typed) in [
            ("Present password: ", "correct horse"),
            ("New password: ", "battery staple"),
            ("The new one again: ", again),
        ] {
            prompt.shows(asked);
            prompt.types(&format!("{typed}\n"));
        }
        let (ended, shown) = prompt.ends();
        assert!(ended == Some(code) && shown.contains(said), "{ended:?}: {shown}");
        assert!(!shown.contains("horse") && !shown.contains("battery"), "{shown}");
    }
}

#[test]
fn a_connection_that_says_nothing_or_nonsense_does_not_hold_up_another() {
    let world = World::new();
    let silent: Vec<_> = (0..20).map(|_| connect(&world)).collect();
    let nonsense = connect(&world);
    std::fs::File::from(nonsense.try_clone().unwrap()).write_all(&[0xff; 300]).unwrap();
    world.log_in();
    assert_eq!(world.status()["user"], "ada");
    assert!(world::common::readable(&nonsense, PATIENCE), "it is closed");
    std::thread::sleep(Duration::from_secs(6));
    assert!(silent.iter().all(|fd| world::common::readable(fd, Duration::ZERO)), "they are closed");
}

#[test]
fn the_services_of_a_session_are_listed_with_their_ports_and_without_one_it_is_said_what_to_do() {
    let world = World::new();
    let services = |arguments: &[&str]| world.tpe(arguments, "");
    let refused = services(&["services"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("levee-tpe login"), "{}", text(&refused.stderr));
    world.log_in();
    let refused = services(&["services"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("levee-tpe level"), "{}", text(&refused.stderr));
    assert!(world.tpe(&["level", "SECRET"], "").status.success());
    let listed = text(&services(&["services"]).stdout);
    assert_eq!(
        listed,
        "wiki tcp 80 at www.example 10.80.0.1\n- udp 7 at www.example 10.80.0.1\n- tcp 80 at fd00:80::1\n"
    );
    let listed: serde_json::Value =
        serde_json::from_slice(&services(&["services", "--json"]).stdout).unwrap();
    let first = &listed["reach"][0];
    assert_eq!((&first["service"], &first["port"]), (&"wiki".into(), &80.into()), "{listed}");
}

#[test]
fn the_labels_that_may_be_chosen_are_listed_and_the_shell_completes_them() {
    let world = World::new();
    let refused = world.tpe(&["labels"], "");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("nobody is signed on"), "{}", text(&refused.stderr));
    world.log_in();
    assert_eq!(text(&world.tpe(&["labels"], "").stdout), "BROKEN\nKEYLESS\nSECRET\nUNCLASSIFIED\n");
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(\"$0\" level s); COMP_CWORD=2; _levee-tpe-labels; \
                  printf '%s\\n' \"${COMPREPLY[@]}\"";
    let completed = std::process::Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_levee-tpe")])
        .env("LEVEE_TPE_SOCKET", &world.socket)
        .output()
        .unwrap();
    assert_eq!(text(&completed.stdout), "SECRET\n", "{}", text(&completed.stderr));
    // A command as well, which the definitions themselves complete.
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(\"$0\" lo); COMP_CWORD=1; \
                  _levee-tpe-labels \"$0\" lo \"$0\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let completed = std::process::Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_levee-tpe")])
        .output()
        .unwrap();
    assert_eq!(text(&completed.stdout), "login\nlock\nlogout\n", "{}", text(&completed.stderr));
    // What is done quietly says nothing; what is refused is said.
    let quiet = world.tpe(&["--quiet", "level", "SECRET"], "");
    assert_eq!(
        (quiet.status.code(), text(&quiet.stdout), text(&quiet.stderr)),
        (Some(0), String::new(), String::new())
    );
    let refused = world.tpe(&["--quiet", "level", "TOP"], "");
    assert_eq!(text(&refused.stderr), "levee-tpe: TOP is not within your clearance\n");
}

#[test]
fn a_message_is_shown_whole_as_text_and_released_by_its_digest_alone() {
    let world = World::new();
    let refused = world.tpe(&["release"], "");
    assert!(text(&refused.stderr).contains("nobody is signed on"), "{}", text(&refused.stderr));
    world.log_in();
    world.level("SECRET");
    let list = text(&world.tpe(&["release"], "").stdout);
    assert_eq!(list, "7: 15 octets at guard downgrade to UNCLASSIFIED, for 60 s; released by mia\n");
    // On a terminal: what leaves the session for a file or a pipe would be recorded, and this is not.
    let unrecorded = world.tpe(&["release", "7"], "");
    assert!(!unrecorded.status.success() && unrecorded.stdout.is_empty());
    assert!(text(&unrecorded.stderr).contains("no terminal"), "{}", text(&unrecorded.stderr));
    assert!(!world.tpe(&["--json", "release", "7"], "").status.success());
    let at_a_terminal = |number: &str| {
        let command = format!("{} release {number}", env!("CARGO_BIN_EXE_levee-tpe"));
        let mut terminal = std::process::Command::new("script");
        terminal.args(["-qec", &command, "/dev/null"]).env("LEVEE_TPE_SOCKET", &world.socket);
        let output = terminal.stdin(Stdio::null()).output().expect("script(1) (bsdutils) runs");
        (output.status.code(), text(&output.stdout).replace("\r\n", "\n"))
    };
    let (_, shown) = at_a_terminal("7");
    let digest: String = world::release().digest.iter().map(|octet| format!("{octet:02x}")).collect();
    assert_eq!(shown, format!("| tide table\n| \\x1b[2J\n15 octets, SHA-256 {digest}\n"));
    let (status, other) = at_a_terminal("8");
    assert_eq!(status, Some(1));
    assert!(other.contains("no such message"), "{other}");
    for (way, said) in [("--pass", "Pass"), ("--refuse", "Refuse")] {
        let released = world.tpe(&["release", "7", way, &digest], "");
        assert!(released.status.success(), "{}", text(&released.stderr));
        let said = format!("release 7 {said} true");
        assert!(world.events().contains(&said), "{said}: {:?}", world.events());
    }
    for wrong in [
        &["release", "7", "--pass"][..],
        &["release", "7", "--pass", "12"],
        &["release", "--pass", &digest],
        &["release", "7", "--pass", &digest, "--refuse", &digest],
    ] {
        assert_eq!(world.tpe(wrong, "").status.code(), Some(2), "{wrong:?}");
    }
}

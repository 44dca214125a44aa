//! Several accounts of one workstation, one of which is somebody's who means ill: what it asks for and leaves, and how long it keeps
//! the others waiting.

use levee_system::{World, copy_program, eventually, programs, text};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
/// The account that means ill, and the one that is to be served.
const ILL: &str = "65532";
const WELL: &str = "65533";
/// The longest that the server makes anybody wait for their password to be looked at (`levee_session::LONGEST_DELAY`).
const LONGEST: Duration = Duration::from_secs(30);
/// A group that every host has: that of the workstation's people.
const PEOPLE: &str = "games";

fn world(name: &str) -> World {
    let mut world = World::new(name, SITE, &["ws1"]);
    fs::set_permissions(world.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let bundle = world.path("state").join("hosts/ws1/workstation.toml");
    let before = fs::read_to_string(&bundle).unwrap();
    fs::write(&bundle, format!("{before}people = \"{PEOPLE}\"\n")).unwrap();
    for (name, password) in [("right", levee_system::PASSWORD), ("wrong", "not this one")] {
        fs::write(world.path(name), format!("{password}\n")).unwrap();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    copy_program(&programs().join("levee-tpe"), &world.path("levee-tpe"));
    world.start_server();
    world.start_workstation("ws1");
    world
}

/// `levee-tpe` as an account of the workstation that has no other rights.
fn tpe(world: &World, uid: &str, arguments: &[&str]) -> Child {
    let socket = format!("LEVEE_TPE_SOCKET={}", text(&world.path("ws1-run").join("tpe.sock")));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", uid, "--regid", PEOPLE, "--clear-groups", "--no-new-privs", "env", &socket]);
    command.arg(world.path("levee-tpe")).args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn done(child: Child) -> levee_system::Done {
    child.wait_with_output().unwrap().into()
}

fn login<'a>(user: &'a str, password: &'a str) -> [&'a str; 4] {
    ["login", user, "--password-file", password]
}

/// Asks for something and goes, once it has been heard.
fn ask_and_go(world: &World, uid: &str, arguments: &[&str]) {
    let mut child = tpe(world, uid, arguments);
    std::thread::sleep(Duration::from_millis(400));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn who_guesses_passwords_keeps_another_account_waiting_for_one_guess_and_no_longer() {
    let world = world("guesses");
    let (right, wrong) = (text(&world.path("right")), text(&world.path("wrong")));
    for _ in 0..6 {
        ask_and_go(&world, ILL, &login("mia", &wrong));
    }
    let guesses: Vec<Child> = (0..8).map(|_| tpe(&world, ILL, &login("mia", &wrong))).collect();
    std::thread::sleep(Duration::from_secs(1));
    let mut well = tpe(&world, WELL, &login("ada", &right));
    // The longest that the server makes anybody wait, once for the guess that is being looked at and once for her own.
    let most = LONGEST * 2 + Duration::from_secs(15);
    eventually(most, "ada is signed on", || well.try_wait().unwrap().is_some());
    done(well).ok();
    // Nobody else is heard any more.
    for guess in guesses {
        done(guess).refused();
    }
}

#[test]
fn what_an_account_asked_for_and_left_is_not_done_in_the_name_of_who_signs_on() {
    let world = world("left");
    let (right, wrong) = (text(&world.path("right")), text(&world.path("wrong")));
    // What is looked at when ada comes, and what was asked for before she is signed on.
    let guesses: Vec<Child> = (0..6).map(|_| tpe(&world, ILL, &login("mia", &wrong))).collect();
    std::thread::sleep(Duration::from_secs(1));
    let well = tpe(&world, WELL, &login("ada", &right));
    std::thread::sleep(Duration::from_millis(500));
    ask_and_go(&world, ILL, &["level", "UNCLASSIFIED"]);
    ask_and_go(&world, ILL, &["status"]);
    done(well).ok();
    for guess in guesses {
        done(guess).refused();
    }
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let said = done(tpe(&world, WELL, &["status"])).ok();
        assert!(said.contains("signed on: ada") && !said.contains("session"), "{said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn who_has_gone_before_they_were_signed_on_is_not_signed_on() {
    let world = world("gone");
    let (right, wrong) = (text(&world.path("right")), text(&world.path("wrong")));
    // Some seconds pass until the server looks at what ada says, and she does not wait for it.
    for _ in 0..5 {
        done(tpe(&world, ILL, &login("ada", &wrong))).refused();
    }
    ask_and_go(&world, WELL, &login("ada", &right));
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let said = done(tpe(&world, ILL, &["status"])).ok();
        assert!(said.contains("nobody is signed on"), "{said}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let said = done(tpe(&world, ILL, &["level", "UNCLASSIFIED"])).refused();
    assert!(said.contains("nobody is signed on"), "{said}");
}

#[test]
fn no_account_keeps_a_workstation_from_being_stopped_and_started_again() {
    let mut world = world("again");
    // It waits for the claim of the one that runs, and would have it when that one has ended.
    let lock = world.path("ws1-run").join("lock");
    let mut held = Command::new("setpriv");
    held.args(["--reuid", ILL, "--regid", "nogroup", "--clear-groups", "flock", &text(&lock), "sleep", "60"]);
    let mut held = held.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    world.stop_workstation("ws1");
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    let _ = held.kill();
    let said = done(held).refused();
    assert!(said.contains("Permission denied"), "{said}");
}

/// A login of this host, as one of its accounts has it: a shell of it, which ends with this.
struct Login {
    shell: Child,
    says: ChildStdin,
    said: BufReader<ChildStdout>,
    program: String,
}

impl Login {
    fn new(world: &World, uid: &str) -> Self {
        // As pam_loginuid does at a login.
        let begin = format!(
            "echo {uid} >/proc/self/loginuid && exec setpriv --reuid {uid} --regid {PEOPLE} --clear-groups --no-new-privs sh"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &begin]).env("LEVEE_TPE_SOCKET", world.path("ws1-run").join("tpe.sock"));
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (says, said) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        Self { shell, says, said, program: text(&world.path("levee-tpe")) }
    }

    /// What this shell command says, and its status.
    fn does(&mut self, command: &str) -> levee_system::Done {
        writeln!(self.says, "{{ {command}\n}} 2>&1; echo; echo ended $?").unwrap();
        let (mut out, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the shell has ended: {out}");
            if line.starts_with("ended ") {
                break;
            }
            out.push_str(&line);
        }
        // (The status is that of `echo`.)
        let status = i32::from(!out.contains("STATUS 0"));
        levee_system::Done { status, out, err: String::new() }
    }

    fn tpe(&mut self, arguments: &str) -> levee_system::Done {
        let program = self.program.clone();
        self.does(&format!("{program} {arguments}; echo STATUS $?"))
    }

    /// Its shell ends; what it has started in the background goes on.
    fn leaves(mut self) {
        drop(self.says);
        self.shell.wait().unwrap();
    }
}

/// Who is signed on, as root is told.
fn signed_on(world: &World) -> serde_json::Value {
    let status: serde_json::Value =
        serde_json::from_str(&world.tpe("ws1", &["status", "--json"]).ok()).unwrap();
    status["user"].clone()
}

#[test]
fn two_logins_of_one_account_are_two_and_whoever_is_signed_on_in_one_that_ends_is_signed_off() {
    let world = world("logins");
    let sign_on = format!("login ada --password-file {}", text(&world.path("right")));
    let (mut first, mut second) = (Login::new(&world, WELL), Login::new(&world, WELL));
    first.tpe("status").ok();
    second.tpe("status").ok();
    first.tpe(&sign_on).ok();
    first.tpe("level SECRET").ok();
    // Another of the same account, and one that belongs to none.
    for said in [
        second.tpe("status").refused(),
        second.tpe("run -- id </dev/null >/dev/null").refused(),
        second.tpe("logout").refused(),
        done(tpe(&world, WELL, &["status"])).refused(),
    ] {
        assert!(said.contains("or you are in another login of it"), "{said}");
    }
    assert!(first.tpe("status").ok().contains("at SECRET"));
    // The last process of a login is its end, and not its shell.
    first.does("sleep 4 >/dev/null 2>&1 &");
    first.leaves();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(signed_on(&world), "ada");
    eventually(Duration::from_secs(15), "ada is signed off", || signed_on(&world).is_null());
    let sessions = world.levee(&["session", "list", "--run", &text(&world.path("run"))]).ok();
    assert!(!sessions.contains("ada"), "at the server as well: {sessions}");
    // Whoever is in the other one signs on now, and nothing is left for them.
    let said = second.tpe("status").ok();
    assert!(said.contains("nobody is signed on") && said.contains("login of this host"), "{said}");
    second.tpe(&sign_on).ok();
    assert!(!second.tpe("status").ok().contains("at SECRET"));
    // Signing off leaves nothing that is watched.
    second.tpe("logout").ok();
    second.leaves();
    done(tpe(&world, WELL, &login("ada", &text(&world.path("right"))))).ok();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(
        signed_on(&world),
        "ada",
        "where no login has a number the account counts, and no end of it is seen"
    );
}

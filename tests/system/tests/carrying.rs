//! What leaves a session as a file, or comes into one, is what the site lets this person carry there, and is in the audit log
//! before it is anywhere else.

use levee_system::{World, text};
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET";

/// A site where ada may carry out of UNCLASSIFIED alone and into SECRET alone.
fn world(name: &str) -> World {
    let mut world = World::new(name, SITE, &["ws1"]);
    let lines = SITE.lines().map(|line| match line.split_once(" = ") {
        Some(("export", _)) => format!("export = \"{LOW}\"\n"),
        Some(("import", _)) => format!("import = \"{HIGH}\"\n"),
        _ => format!("{line}\n"),
    });
    fs::write(world.path("site.toml"), lines.collect::<String>()).unwrap();
    world.start_server();
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    world
}

/// Records of one action, as `levee audit show` has them.
fn records(world: &World, action: &str) -> Vec<String> {
    let out = world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok();
    out.lines().filter(|line| line.contains(action)).map(str::to_owned).collect()
}

/// Runs a program that reads this from a pipe.
fn fed(world: &World, arguments: &[&str], input: &str) -> levee_system::Done {
    let mut command = world.tpe_command("ws1", arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may have ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_secret_document_does_not_become_unclassified_through_a_redirection() {
    let world = world("redirect");
    world.level("ws1", HIGH).ok();
    // As one would: out of the one session into a file, out of the file into the other.
    let out = world.tpe("ws1", &["run", "--", "echo", "the plan"]);
    assert_eq!(out.out, "");
    assert!(out.refused().contains("--export"));
    let said = world.run("ws1", &["echo", "the plan"]);
    assert_eq!(said.out, "");
    assert!(said.refused().contains("does not let `ada` carry files out of sessions at SECRET"));
    world.level("ws1", LOW).ok();
    let said = fed(&world, &["run", "--import", "--export", "--", "cat"], "the plan\n");
    assert_eq!(said.out, "");
    assert!(said.refused().contains("does not let `ada` carry files into sessions at UNCLASSIFIED"));
    let denied = records(&world, "9 bytes, SHA-256 ");
    assert_eq!(denied.len(), 2, "{denied:?}");
    assert!(
        denied.iter().all(|record| record.contains("ada@ws1") && record.contains("denied")),
        "{denied:?}"
    );
}

#[test]
fn what_the_site_lets_pass_passes_whole_and_its_record_says_who_where_which_way_how_much_and_what() {
    let world = world("recorded");
    world.level("ws1", LOW).ok();
    assert_eq!(world.run("ws1", &["sh", "-c", "echo tide; exit 3"]).out, "tide\n");
    // printf 'tide\n' | sha256sum
    let digest = levee_system::sh("sh", &["-c", "echo tide | sha256sum | cut -d' ' -f1"]).ok();
    let exported = records(&world, digest.trim());
    assert_eq!(exported.len(), 1, "{exported:?}");
    for word in ["ada@ws1", LOW, "export", "5 bytes", "granted"] {
        assert!(exported[0].contains(word), "{word}: {exported:?}");
    }
    world.level("ws1", HIGH).ok();
    let script = "cat >/tmp/in; test \"$(cat /tmp/in)\" = tide";
    let mut child = world.tpe_command("ws1", &["run", "--import", "--", "sh", "-c", script]);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"tide\n").unwrap();
    assert!(child.wait().unwrap().success());
    let all = records(&world, digest.trim());
    assert_eq!(all.len(), 2, "{all:?}");
    for word in ["ada@ws1", HIGH, "import", "granted"] {
        assert!(all[1].contains(word), "{word}: {all:?}");
    }
}

/// `levee-tpe` at the workstation as another user of this host, who has no other rights.
fn as_user(world: &World, uid: &str, group: &str, arguments: &[&str]) -> levee_system::Done {
    let (program, socket) = (world.path("levee-tpe"), world.path("ws1-run").join("tpe.sock"));
    if !program.exists() {
        levee_system::copy_program(&levee_system::programs().join("levee-tpe"), &program);
    }
    let mut all = vec!["--reuid", uid, "--regid", group, "--clear-groups", "--no-new-privs", "env"];
    let socket = format!("LEVEE_TPE_SOCKET={}", text(&socket));
    let program = text(&program);
    all.extend([socket.as_str(), program.as_str()]);
    all.extend(arguments);
    levee_system::sh("setpriv", &all)
}

#[test]
fn persons_use_the_workstation_without_being_root_one_at_a_time() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut world = World::new("people", SITE, &["ws1"]);
    fs::set_permissions(world.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let bundle = world.path("state").join("hosts/ws1/workstation.toml");
    let before = fs::read_to_string(&bundle).unwrap();
    // Two groups that every host has: the one of the people, and another.
    fs::write(&bundle, format!("{before}people = \"games\"\n")).unwrap();
    world.start_server();
    world.start_workstation("ws1");
    let password = world.path("password");
    fs::write(&password, format!("{}\n", levee_system::PASSWORD)).unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
    let login = ["login", "ada", "--password-file", &text(&password)];
    assert!(as_user(&world, "65533", "mail", &["status"]).refused().contains("people = "));
    as_user(&world, "65533", "games", &login).ok();
    as_user(&world, "65533", "games", &["level", LOW]).ok();
    assert_eq!(as_user(&world, "65533", "games", &["run", "--export", "--", "id", "-u"]).ok(), "1000\n");
    // Another member of the group is told nothing and can do nothing until she has signed off.
    for arguments in [&["status"][..], &["logout"], &["run", "--export", "--", "cat", "/proc/self/status"]] {
        let said = as_user(&world, "65532", "games", arguments).refused();
        assert!(said.contains("somebody else is signed on") && !said.contains("ada"), "{said}");
    }
    as_user(&world, "65533", "games", &["logout"]).ok();
    assert!(as_user(&world, "65532", "games", &["status"]).ok().contains("nobody is signed on"));
}

//! What the site forbids is refused, in the same words to whoever must not learn more, and is in the audit log.

use levee_system::{World, eventually, programs, sh, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";
const PAGE: &str = "http://www.harbour.example/";

/// The HTTP status of a document sent to `path` at the session's level, and what it wrote to.
fn put(world: &World, workstation: &str, path: &str, words: &str) -> String {
    let script = format!(
        "printf '%s' '{words}' >/tmp/document && \
         curl --silent --max-time 10 --output /dev/null --write-out '%{{http_code}}' -T /tmp/document {PAGE}{path}"
    );
    world.run(workstation, &["sh", "-c", &script]).ok()
}

#[test]
fn what_is_refused_is_refused_in_words_that_tell_no_more_than_they_may_and_is_audited() {
    let mut world = World::up("refuse", SITE, &["ws1", "ws2"]);

    // A wrong password and a user that there is not look alike.
    let wrong = world.login_with("ws1", "ugo", "not the password").refused();
    let unknown = world.login_with("ws1", "nobody-of-this-name", "not the password").refused();
    assert_eq!(wrong, unknown);
    // Before signing on there is nothing to open.
    world.level("ws1", LOW).refused();

    world.login("ws1", "ugo").ok();
    for label in ["CONFIDENTIAL", "UNCLASSIFIED//MED", HIGH] {
        let words = world.level("ws1", label).refused();
        assert!(!words.is_empty());
        world.run("ws1", &["true"]).refused();
    }
    let unknown = world.level("ws1", "COSMIC").refused();
    assert!(unknown.contains("COSMIC"), "{unknown}");
    world.level("ws1", LOW).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(LOW));

    // The workstation's accreditation counts as the person's clearance does.
    world.login("ws2", "ada").ok();
    world.level("ws2", HIGH).refused();
    world.level("ws2", "CONFIDENTIAL//NATO,MED").ok();

    let state = text(&world.path("state"));
    let verified = world.levee(&["audit", "verify", "--state", &state]).ok();
    let denied = world.levee(&["audit", "show", "--state", &state, "--verdict", "denied"]).ok();
    for (user, label) in [("ugo", "CONFIDENTIAL"), ("ugo", "UNCLASSIFIED//MED"), ("ugo", HIGH), ("ada", HIGH)]
    {
        let recorded = denied.lines().any(|line| line.contains(user) && line.contains(label));
        assert!(recorded, "no record of {user} at {label}:\n{denied}\n{verified}");
    }
    assert!(denied.lines().any(|line| line.contains("COSMIC")), "{denied}");
    let granted =
        world.levee(&["audit", "show", "--state", &state, "--verdict", "granted", "--user", "ugo"]).ok();
    assert!(granted.lines().any(|line| line.contains(LOW)), "{granted}");
    // Who tried a wrong password, and where; the stop is there, too.
    world.stop_server();
    let denied = world.levee(&["audit", "show", "--state", &state, "--verdict", "denied"]).ok();
    assert!(denied.lines().any(|line| line.contains("unknown user or wrong password")), "{denied}");
    let noted = world.levee(&["audit", "show", "--state", &state, "--verdict", "noted"]).ok();
    assert!(noted.lines().any(|line| line.contains(" stop server: noted")), "{noted}");
    world.levee(&["audit", "verify", "--state", &state]).ok();
}

#[test]
fn a_high_session_reads_what_a_low_one_wrote_and_writes_nothing_there_and_no_low_one_sees_what_is_high() {
    let world = World::up("lattice", SITE, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.login("ws2", "ugo").ok();
    world.level("ws1", HIGH).ok();
    world.level("ws2", LOW).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(HIGH));

    assert_eq!(put(&world, "ws2", "own/low.txt", "from below"), "201");
    assert_eq!(put(&world, "ws1", "own/high.txt", "from above"), "201");
    let copy = format!("{PAGE}below/{LOW}/low.txt");
    eventually(Duration::from_secs(10), "the low document is seen above", || {
        let got = world.fetch("ws1", &copy);
        got.status == 0 && got.out == "from below"
    });
    let listed = world.fetch("ws1", PAGE).ok();
    assert!(listed.contains("low.txt") || listed.contains(&format!("below/{LOW}")), "{listed}");

    // Not written from above: not over the copy, not beside it, not by a name that leads there.
    for path in [
        "below/UNCLASSIFIED/low.txt",
        "below/UNCLASSIFIED/new.txt",
        "own/..%2fbelow%2fUNCLASSIFIED%2fnew.txt",
    ] {
        let code = put(&world, "ws1", path, "from above");
        assert!(["400", "403", "405", "409"].contains(&code.as_str()), "{path}: {code}");
    }
    assert_eq!(put(&world, "ws1", "below/UNCLASSIFIED/low.txt", "from above"), "403");
    for method in ["DELETE", "MKCOL"] {
        let code =
            ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "-X", method, &copy];
        let code = world.run("ws1", &code).ok();
        assert!(["403", "405"].contains(&code.as_str()), "{method}: {code}");
    }
    assert_eq!(world.fetch("ws2", &format!("{PAGE}own/low.txt")).ok(), "from below");
    assert_eq!(world.fetch("ws1", &copy).ok(), "from below");

    // Not seen from below: neither the document nor that there is a higher level.
    let page = world.fetch("ws2", PAGE).ok();
    assert!(!page.contains("SECRET") && !page.contains("high.txt"), "{page}");
    let (above, beside) = (format!("{PAGE}below/"), format!("{PAGE}own/"));
    for list in [&above, &beside] {
        let list = world.fetch("ws2", list);
        assert!(!list.out.contains("high.txt") && !list.out.contains("SECRET"), "{}", list.out);
    }
    assert!(world.fetch("ws1", &beside).ok().contains("high.txt"));
    for path in ["own/high.txt", "below/SECRET/high.txt", "below/SECRET.NATO.MED/high.txt"] {
        world.fetch("ws2", &format!("{PAGE}{path}")).refused();
    }
}

#[test]
fn a_wrong_passphrase_is_one_error_with_its_remedy_and_so_is_a_key_that_others_may_read() {
    let world = World::new("phrase", SITE, &[]);
    let keys = world.path("state").join("server");
    for name in ["tls.key", "ike.key", "audit.key"] {
        let (key, plain) = (text(&keys.join(name)), text(&world.path(name)));
        fs::rename(&key, &plain).expect("move the key");
        let how = ["-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA256", "-iter", "1000"];
        let what = ["pkcs8", "-topk8", "-in", &plain, "-out", &key, "-passout", "pass:correct horse"];
        sh("openssl", &[&what[..], &how].concat()).ok();
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("set its mode");
    }
    fs::write(world.path("right"), "correct horse\n").expect("write a passphrase");
    fs::write(world.path("wrong"), "correct house\n").expect("write a passphrase");
    let (levee, site) = (text(&programs().join("levee")), text(&world.path("site.toml")));
    let (state, run) = (text(&world.path("state")), text(&world.path("run")));
    let up = |more: &[&str]| {
        world.server_sh(&levee, &[&["up", &site, "--state", &state, "--run", &run], more].concat())
    };
    let (right, wrong) = (text(&world.path("right")), text(&world.path("wrong")));

    let said = up(&["--passphrase-file", &wrong]).refused();
    // Before it, where the host has none yet, that an image of its programs is made.
    let error: Vec<&str> = said.lines().skip_while(|line| !line.ends_with("does not start:")).collect();
    let [_, why, more] = error[..] else { panic!("more than one error:\n{said}") };
    assert!(more.contains("levee log"), "{said}");
    for part in
        ["cannot use the keys in", "encrypted, and not with this passphrase", "again with the right one"]
    {
        assert!(why.contains(part), "{said}");
    }
    assert!(up(&[]).refused().contains("give its passphrase with --passphrase-file"));
    let open = Permissions::from_mode(0o640);
    fs::set_permissions(keys.join("ike.key"), open).expect("set its mode");
    let said = up(&["--passphrase-file", &right]).refused();
    assert!(said.contains("ike.key") && said.contains("chmod 600"), "{said}");
    fs::set_permissions(keys.join("ike.key"), Permissions::from_mode(0o600)).expect("set its mode");
    let started = up(&["--passphrase-file", &right]);
    let stopped = world.levee(&["down", "--run", &run]);
    started.ok();
    stopped.ok();
}

#[test]
fn a_server_whose_labels_cannot_start_says_so_at_up_and_does_not_stay() {
    let world = World::new("trial", SITE, &[]);
    let (site, state, run) =
        (text(&world.path("site.toml")), text(&world.path("state")), text(&world.path("run")));
    let levee = text(&programs().join("levee"));
    let up = |more: &[&str]| {
        world.server_sh(&levee, &[&["up", &site, "--state", &state, "--run", &run], more].concat())
    };
    let down = || world.levee(&["down", "--run", &run]);
    // No room for any label's store.
    let stores = world.path("state/stores");
    fs::create_dir_all(&stores).expect("a directory");
    world.server_sh("mount", &["-t", "tmpfs", "-o", "size=64k,mode=700", "none", &text(&stores)]).ok();
    let said = up(&[]);
    let status = world.levee(&["status", "--run", &run]);
    let untried = up(&["--no-trial"]);
    let stopped = down();
    world.server_sh("umount", &[&text(&stores)]).ok();
    let said = said.refused();
    for part in
        ["UNCLASSIFIED was started on trial, and does not start:", "No space left", "--no-trial", "levee log"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    status.refused();
    assert!(!untried.ok().contains("trial"));
    stopped.ok();

    let tried = up(&[]);
    let status = world.levee(&["status", "--json", "--run", &run]);
    let stopped = down();
    assert!(tried.ok().contains("is up; UNCLASSIFIED was started on trial"));
    status.ok();
    stopped.ok();
    let shown = world.levee(&["audit", "show", "--state", &state]).ok();
    assert_eq!(shown.lines().filter(|line| line.contains("trial")).count(), 2, "{shown}");
}

#[test]
fn what_failed_last_is_told_with_its_label_why_and_since_when_until_it_starts() {
    let mut world = World::new("failed", SITE, &["ws1"]);
    let stores = world.path("state/stores");
    fs::create_dir_all(&stores).expect("a directory");
    // No room for any label's store.
    world.server_sh("mount", &["-t", "tmpfs", "-o", "size=64k,mode=700", "none", &text(&stores)]).ok();
    let run = text(&world.path("run"));
    world.start_server();
    world.start_workstation("ws1");
    let signed_on = world.login("ws1", "ada");
    let refused = world.tpe("ws1", &["level", "SECRET"]);
    let told = world.levee(&["status", "--run", &run]);
    let room = world.server_sh("mount", &["-o", "remount,size=2g", &text(&stores)]);
    let level = world.tpe("ws1", &["level", "SECRET"]);
    let after = world.levee(&["status", "--run", &run]);
    drop(world.levee(&["down", "--run", &run]));
    drop(world);
    sh("umount", &["--lazy", &text(&stores)]);
    signed_on.ok();
    let refused = refused.refused();
    assert!(refused.contains("the label cannot run"), "{refused}");
    let told = told.ok();
    let line = told.lines().find(|line| line.contains("SECRET does not start")).unwrap_or_default();
    for part in ["No space left", " s ago)", "tried again"] {
        assert!(line.contains(part), "{part}: {told}");
    }
    room.ok();
    level.ok();
    assert!(!after.ok().contains("does not start"));
}

#[test]
fn a_server_is_started_from_its_own_directory_by_names_in_it_and_not_on_a_host_without_control_groups() {
    let world = World::new("here", SITE, &["ws1"]);
    let (levee, place) = (text(&programs().join("levee")), text(&world.path("")));
    let up = format!("cd '{place}' && exec '{levee}' up site.toml --state state --run run");
    // What the host lacks is said before anything starts, with its remedy.
    let without = format!("mount -t tmpfs none /sys/fs/cgroup && {up}");
    let said = world.server_sh("unshare", &["--mount", "sh", "-c", &without]).refused();
    for part in ["this host lacks what levee needs", "limits (cgroups)", "mount the unified hierarchy"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let run = text(&world.path("run"));
    world.levee(&["status", "--run", &run]).refused();
    let started = world.server_sh("sh", &["-c", &up]);
    // A label that is started later does not miss what was named so.
    let entered = world.levee(&[
        "exec",
        "SECRET",
        "--run",
        &run,
        "--state",
        &text(&world.path("state")),
        "--",
        "/bin/true",
    ]);
    let stopped = world.levee(&["down", "--run", &run]);
    assert!(started.ok().contains("is up; UNCLASSIFIED was started on trial"));
    entered.ok();
    stopped.ok();
}

/// What `make run` calls left on the host, of nobody's and then of its own: lines of `scripts/demo` itself.
const LEFT: &str = r#"
set -eu
work=$(mktemp -d) lab='' group=''
eval "$(sed -n '/^left() {/,/^groups()/p' "$1")"
before=$(groups)
other=levee-run-1$$-server own=levee-run-$$-server
trap 'ip netns delete $other; ip netns delete $own; rm -rf "$work"' EXIT
ip netns add $other
echo "others: $(left)"
ip netns add $own
echo "own: $(left)"
"#;

#[test]
fn make_run_takes_what_others_have_on_this_host_for_nothing_of_its_own() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo");
    let said = sh("bash", &["-c", LEFT, "bash", demo]).ok();
    let (others, own) = said.split_once("own: ").expect("both");
    assert_eq!(others, "others: \n");
    assert!(own.starts_with("levee-run-") && own.contains("-server"), "{own}");
}

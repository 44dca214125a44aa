//! Keys are rotated on a running server: nobody loses a session or a packet, and the old keys are of no use.

use levee_system::host;
use levee_system::senders::{MORE, start, stop};
use levee_system::{World, eventually, text};
use std::fs;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";

#[test]
fn every_key_of_a_server_is_rotated_without_a_lost_packet_or_session_and_the_audit_log_says_so() {
    let world = World::up("rotate", &format!("{SITE}{MORE}"), &["ws1"]);
    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let run = text(&world.path("run"));
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    let senders = start(&world, [("ws1", "UNCLASSIFIED")]);
    let sessions = || world.status()["sessions"].as_array().expect("sessions").clone();
    let names = || sessions().iter().map(|row| row["id"].to_string()).collect::<Vec<_>>();
    let before = names();
    assert_eq!(before.len(), 1);
    let warden = world.server_pid();
    for (what, file, ends, stays) in [
        (
            "trusted-path",
            "tls.key",
            &["levee-signer", "levee-tps"][..],
            &["levee-keyer", "levee-sessiond"][..],
        ),
        ("ike", "ike.key", &["levee-signer", "levee-keyer"], &["levee-tps", "levee-sessiond"]),
        ("audit", "audit.key", &["levee-signer"], &["levee-tps", "levee-keyer", "levee-sessiond"]),
    ] {
        let old = fs::read(world.path("state/server").join(file)).expect("a key");
        let process = |name: &&str| host::child(warden, name);
        let (ended, left): (Vec<_>, Vec<_>) =
            (ends.iter().map(process).collect(), stays.iter().map(process).collect());
        let said = world.levee(&["enrol", "rotate", &site, what, "--state", &state]).ok();
        assert!(said.contains("destroyed: the old"), "{said}");
        assert_ne!(fs::read(world.path("state/server").join(file)).expect("a key"), old);
        let said = world.levee(&["reload", "--run", &run]).ok();
        assert!(said.contains("goes on with the key that it has now"), "{said}");
        // Whoever had the old key is gone, and nobody else.
        eventually(Duration::from_secs(20), "the new key is used", || {
            ended.iter().all(|process| !host::children(warden, &process.name).contains(process))
        });
        for process in &left {
            assert!(host::children(warden, &process.name).contains(process), "{}", process.name);
        }
        eventually(Duration::from_secs(30), "the trusted path is up", || {
            sessions().iter().any(|row| row["attached"] == true)
        });
        assert_eq!(names(), before, "{what}");
        world.fetch("ws1", PAGE).ok();
    }
    for (label, lost) in stop(senders) {
        assert!(lost.is_empty(), "{label} lost {} packets", lost.len());
    }
    // With the new keys people sign off and on, and keys are agreed.
    let anew = Duration::from_secs(30);
    eventually(anew, "signed off", || {
        world.tpe("ws1", &["logout"]);
        sessions().is_empty()
    });
    eventually(anew, "signed on", || world.login("ws1", "ada").status == 0);
    world.level("ws1", "SECRET").ok();
    assert!(world.fetch("ws1", PAGE).ok().contains("SECRET"));
    // The log says what was rotated, once, and its checkpoints hold although two keys signed them.
    let log = world.levee(&["audit", "show", "--state", &state]).ok();
    for what in ["trusted path's key", "IKE's key", "audit log's key"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(what)).collect();
        assert!(lines.len() == 1 && lines[0].contains("rotated: from "), "{what}: {lines:?}");
    }
    world.levee(&["audit", "verify", "--state", &state]).ok();
}

#[test]
fn the_authority_is_rotated_under_a_session_and_then_believes_nobody_of_before() {
    let world = World::up("authority", SITE, &["ws1"]);
    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let runs = [text(&world.path("run")), text(&world.path("ws1-run"))];
    let rotate = |what: &[&str]| {
        let mut arguments = vec!["enrol", "rotate", site.as_str()];
        arguments.extend(what);
        arguments.extend(["--state", state.as_str()]);
        world.levee(&arguments)
    };
    let reload = |run: &String| drop(world.levee(&["reload", "--run", run]).ok());
    // None while sessiond is started again.
    let sessions = || {
        let said = world.levee(&["status", "--json", "--run", &runs[0]]);
        let said: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
        said["sessions"].as_array().cloned().unwrap_or_default()
    };
    let eventually = |what: &str, is: &dyn Fn() -> bool| eventually(Duration::from_secs(60), what, is);
    let attached = || sessions().len() == 1 && sessions().iter().all(|row| row["attached"] == true);
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    let session = || sessions().first().map(|row| row["id"].clone()).expect("a session");
    let before = session();
    let log = |of: &str, what: &str| fs::read_to_string(world.log(of)).expect("a log").matches(what).count();
    // The trusted path may be on its way to come up again.
    let sign_off = || {
        eventually("signed off", &|| {
            world.tpe("ws1", &["logout"]);
            let said = world.tpe("ws1", &["--json", "status"]);
            let said: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
            said.is_object() && said["session"].is_null() && sessions().is_empty()
        });
    };
    let renewals = || log("ws1", "goes on with the keys");

    // Both are believed. The server goes on with the new one's certificates; the workstation has the old one's.
    rotate(&["authority"]).ok();
    reload(&runs[0]);
    eventually("the server believes both", &|| log("server", "with new keys: authority/ca.pem") == 1);
    eventually("the trusted path is up with two authorities", &attached);
    for what in ["trusted-path", "ike"] {
        rotate(&[what]).ok();
    }
    assert!(rotate(&["authority", "--finish"]).refused().contains("ws1"));
    sign_off();
    reload(&runs[1]);
    eventually("the workstation believes both", &|| renewals() == 1);
    eventually("and signs on", &|| world.login("ws1", "ada").status == 0);
    world.level("ws1", "UNCLASSIFIED").ok();
    let with_both = session();
    assert_ne!(with_both, before);
    reload(&runs[0]);
    eventually("the server has its new keys", &|| log("server", "with new keys: server/chain.pem") == 1);
    eventually("the trusted path is up with the new certificates", &attached);
    assert_eq!(session(), with_both, "its session goes on");
    world.fetch("ws1", PAGE).ok();

    // The old authority is nobody's: a workstation that has not taken its new keys yet is not believed, and then is.
    for host in fs::read_dir(world.path("state/hosts")).expect("bundles") {
        rotate(&["host", &host.expect("a bundle").file_name().to_string_lossy()]).ok();
    }
    sign_off();
    rotate(&["authority", "--finish"]).ok();
    reload(&runs[0]);
    eventually("the server believes the new one alone", &|| {
        log("server", "with new keys: authority/ca.pem") == 2
    });
    (0..3).for_each(|_| drop(world.login("ws1", "ada").refused()));
    reload(&runs[1]);
    eventually("the workstation has its new keys", &|| renewals() == 2);
    eventually("and signs on", &|| world.login("ws1", "ada").status == 0);
    world.level("ws1", "SECRET").ok();
    assert!(world.fetch("ws1", PAGE).ok().contains("SECRET"));
    let shown = world.levee(&["audit", "show", "--state", &state]).ok();
    assert_eq!(shown.lines().filter(|line| line.contains(" authority: ")).count(), 2, "{shown}");
}

#[test]
fn a_ppk_is_rotated_under_a_session_and_the_one_before_it_is_then_of_no_use() {
    let site = SITE.replacen("name = \"ws1\"\n", "name = \"ws1\"\nppk = { id = \"ones\" }\n", 1);
    let world = World::up("ppks", &format!("{site}{MORE}"), &["ws1"]);
    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let runs = [text(&world.path("run")), text(&world.path("ws1-run"))];
    let rotate = |finish: &[&str]| {
        let whole = [&["enrol", "rotate", &site, "ppk", "ws1", "--state", &state], finish].concat();
        world.levee(&whole)
    };
    let eventually = |what: &str, is: &dyn Fn() -> bool| eventually(Duration::from_secs(60), what, is);
    let sessions = || world.status()["sessions"].as_array().expect("sessions").clone();
    let signs_on = || {
        eventually("signed off", &|| {
            world.tpe("ws1", &["logout"]);
            sessions().is_empty()
        });
        eventually("signed on", &|| world.login("ws1", "ada").status == 0);
    };
    // The server's processes that have PPKs are others, and the session is the one that it was.
    let reload = || {
        let (warden, session) = (world.server_pid(), sessions()[0]["id"].clone());
        let old = ["levee-signer", "levee-keyer"].map(|name| host::child(warden, name));
        world.levee(&["reload", "--run", &runs[0]]).ok();
        eventually("the server goes on with the PPKs that there are now", &|| {
            old.iter().all(|process| !host::children(warden, &process.name).contains(process))
        });
        eventually("the trusted path is up", &|| sessions().iter().any(|row| row["attached"] == true));
        assert_eq!(sessions()[0]["id"], session);
        world.fetch("ws1", PAGE).ok();
    };
    let mine = world.path("state/hosts/ws1/ppk.key");
    let old = fs::read(&mine).expect("the old PPK");
    signs_on();
    world.level("ws1", "UNCLASSIFIED").ok();
    let senders = start(&world, [("ws1", "UNCLASSIFIED")]);
    assert!(rotate(&[]).ok().contains("both are taken until --finish"));
    let checked = world.levee(&["check", &site, "--state", &state]);
    let reminds = format!("for 0 days: levee enrol rotate {site} ppk ws1");
    assert!(format!("{}{}", checked.out, checked.err).contains(&reminds), "{}", checked.out);
    reload();
    for (label, lost) in stop(senders) {
        assert!(lost.is_empty(), "{label} lost {} packets", lost.len());
    }
    // The workstation has the old one still: it is not ended while nothing shows that it can do without.
    assert!(rotate(&["--finish"]).refused().contains("does not say that ws1 has used"));
    signs_on();
    world.level("ws1", "SECRET").ok();
    world.fetch("ws1", PAGE).ok();
    assert!(rotate(&["--finish"]).refused().contains("does not say that ws1 has used"));
    let renewed = || {
        let log = fs::read_to_string(world.log("ws1")).expect("a log");
        log.matches("goes on with the keys").count()
    };
    let renews = |times| {
        eventually("signed off", &|| {
            world.tpe("ws1", &["logout"]);
            sessions().is_empty()
        });
        world.levee(&["reload", "--run", &runs[1]]).ok();
        eventually("the workstation has the PPK that is in its bundle", &|| renewed() == times);
        signs_on();
    };
    renews(1);
    world.level("ws1", "SECRET").ok();
    world.fetch("ws1", PAGE).ok();
    eventually("the log says that the new one is used", &|| rotate(&["--finish"]).status == 0);
    reload();
    let log = world.levee(&["audit", "show", "--state", &state]).ok();
    assert_eq!(log.lines().filter(|line| line.contains("PPK of ws1")).count(), 2, "{log}");
    world.levee(&["audit", "verify", "--state", &state]).ok();

    // Who has kept the old one gets no keys for it.
    fs::write(&mine, old).expect("the old PPK");
    renews(2);
    world.level("ws1", "SECRET").refused();
    world.fetch("ws1", PAGE).refused();
}

#[test]
fn new_keys_that_the_signer_cannot_use_leave_everybody_the_old_ones_and_the_operator_an_alarm() {
    let world = World::up("unusable", SITE, &["ws1"]);
    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let run = text(&world.path("run"));
    let warden = world.server_pid();
    let eventually = |what: &str, is: &dyn Fn() -> bool| eventually(Duration::from_secs(60), what, is);
    let alarms = || {
        let said = world.levee(&["status", "--json", "--run", &run]);
        let said: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
        said["alarms"].to_string()
    };
    let signs_on_anew = || {
        eventually("signed off", &|| {
            world.tpe("ws1", &["logout"]);
            world.status()["sessions"].as_array().is_some_and(Vec::is_empty)
        });
        eventually("signed on", &|| world.login("ws1", "ada").status == 0);
        world.level("ws1", "UNCLASSIFIED").ok();
        world.fetch("ws1", PAGE).ok();
    };
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    let signer = host::child(warden, "levee-signer");
    for what in ["trusted-path", "ike"] {
        world.levee(&["enrol", "rotate", &site, what, "--state", &state]).ok();
    }
    let key = world.path("state/server/ike.key");
    let good = fs::read(&key).expect("the new key");
    fs::write(&key, "no key").expect("a key that is none");
    world.levee(&["reload", "--run", &run]).ok();
    eventually("the operator is told", &|| alarms().contains("new keys are not used"));
    assert_eq!(
        host::children(warden, "levee-signer"),
        std::slice::from_ref(&signer),
        "the one with the old keys"
    );
    world.fetch("ws1", PAGE).ok();
    // Whoever ends has what goes with the old keys.
    for name in ["levee-keyer", "levee-tps"] {
        let process = host::child(warden, name);
        process.kill();
        eventually("it is there again", &|| !host::children(warden, name).contains(&process));
    }
    signs_on_anew();

    // With the signer the old keys are gone. Sessions go on; nobody signs on until the file is right.
    signer.kill();
    eventually("the operator is told that nothing signs", &|| alarms().contains("levee-signer ends"));
    world.fetch("ws1", PAGE).ok();
    fs::write(&key, good).expect("the key");
    world.levee(&["reload", "--run", &run]).ok();
    eventually("it signs with the new keys", &|| !alarms().contains("it is started again in"));
    signs_on_anew();
    assert_eq!(world.server_pid(), warden);
    assert!(host::Process::find(warden).is_some_and(|warden| warden.runs()), "the server never ended");
    let log = world.levee(&["audit", "show", "--state", &state]).ok();
    assert!(log.contains("new keys cannot be used"), "{log}");
    world.levee(&["audit", "verify", "--state", &state]).ok();
}

/// As `docs/book/src/keys.md` says. Each step makes the second tunnel anew. A session goes on where the server's own key is another; a workstation takes what is
/// new in its bundle when nobody is signed on.
#[test]
fn the_second_tunnels_authority_is_followed_by_another_on_a_running_server_and_workstation() {
    let site = SITE.replace("layers = [\"esp\"]", "layers = [\"esp\", \"quic\"]");
    assert_ne!(site, SITE);
    let world = World::up("layer-rotated", &site, &["ws1"]);
    let (file, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let rotate = |what: &[&str]| {
        world.levee(&[&["enrol", "rotate", &file], what, &["--state", &state]].concat()).ok();
    };
    let reload = |run: &str| drop(world.levee(&["reload", "--run", &text(&world.path(run))]).ok());
    let believed = || {
        fs::read_to_string(world.path("state/layer/authority.pem"))
            .expect("a file")
            .matches("BEGIN CERT")
            .count()
    };
    let eventually = |what: &str, is: &dyn Fn() -> bool| eventually(Duration::from_secs(60), what, is);
    let renewals = || {
        let log = fs::read_to_string(world.log("ws1")).expect("a log");
        log.matches("goes on with the keys").count()
    };
    let page = || world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).status == 0;
    let session = || {
        eventually("signed on", &|| world.login("ws1", "ada").status == 0);
        world.level("ws1", "UNCLASSIFIED").ok();
        eventually("a page comes", &page);
        world.status()["sessions"][0]["id"].clone()
    };
    let workstation = |times: usize| {
        eventually("signed off", &|| {
            world.tpe("ws1", &["logout"]);
            world.status()["session_count"] == 0
        });
        reload("ws1-run");
        eventually("the workstation has what is new", &|| renewals() == times);
    };
    session();
    rotate(&["layer-authority"]);
    assert_eq!(believed(), 2);
    reload("run");
    workstation(1);

    // The server's key, under a session.
    let before = session();
    rotate(&["layer"]);
    reload("run");
    std::thread::sleep(Duration::from_secs(1));
    eventually("the page comes again", &page);
    assert_eq!(world.status()["sessions"][0]["id"], before, "the session goes on");

    for host in ["ws1", "ws2"] {
        rotate(&["layer", host]);
    }
    workstation(2);
    session();
    rotate(&["layer-authority", "--finish"]);
    assert_eq!(believed(), 1);
    reload("run");
    workstation(3);
    session();
}

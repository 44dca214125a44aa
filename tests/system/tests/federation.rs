//! Services on a server other than the one where the person signed on.

use levee_system::federation::Two;
use levee_system::{PASSWORD, World, eventually, host, sh, text, typed};
use std::process::Stdio;
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const HERE: &str = "http://www.harbour.example/";
const THERE: &str = "http://two.harbour.example/";

#[test]
fn a_session_reaches_services_of_both_servers_until_it_ends_and_nowhere_longer() {
    let two = Two::up("fed", SITE, &["ws1"]);
    let world = &two.world;
    world.levee(&["check", &text(&world.path("second.toml"))]).ok();
    world.login("ws1", "ada").ok();
    for label in ["UNCLASSIFIED", "SECRET//NATO,MED"] {
        world.level("ws1", label).ok();
        for page in [HERE, THERE] {
            let page = world.fetch("ws1", page).ok();
            assert!(page.contains(&format!("<h1>{label}</h1>")), "{page}");
        }
        let there = two.status("second-run");
        assert_eq!(there["sessions"].as_array().map(Vec::len), Some(1), "{there}");
        assert_eq!(there["sessions"][0]["label"], label, "the session before is over there, too: {there}");
    }
    // Locked, it is nowhere else; unlocked, it is again.
    world.tpe("ws1", &["lock"]).ok();
    eventually(Duration::from_secs(30), "the other server has ended it", || {
        two.status("second-run")["sessions"].as_array().map(Vec::len) == Some(0)
    });
    eventually(Duration::from_secs(30), "it is unlocked", || {
        let mut unlock = world.tpe_command("ws1", &["unlock", "--password-stdin"]);
        typed(&mut unlock, PASSWORD).status == 0
    });
    eventually(Duration::from_secs(60), "it is there again", || world.fetch("ws1", THERE).status == 0);
    world.fetch("ws1", HERE).ok();
    // When the sign-off is acknowledged, nothing is left at the other server.
    world.tpe("ws1", &["logout"]).ok();
    let there = two.status("second-run");
    assert_eq!(there["sessions"].as_array().map(Vec::len), Some(0), "{there}");
    let sas = there["vaults"]
        .as_object()
        .into_iter()
        .flat_map(|vaults| vaults.values())
        .map(|vault| vault["sas"].as_array().map_or(0, Vec::len));
    assert_eq!(sas.sum::<usize>(), 0, "{there}");
}

#[test]
fn a_session_that_an_operator_of_another_server_has_ended_there_stays_so() {
    let two = Two::up("ended", SITE, &["ws1"]);
    let world = &two.world;
    let second = text(&world.path("second-run"));
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    world.fetch("ws1", THERE).ok();
    let there = || two.status("second-run")["sessions"].as_array().map_or(0, Vec::len);
    let shown = two.status("second-run")["sessions"][0]["id"].as_str().expect("a name").to_owned();
    world.levee(&["session", "end", &shown, "--run", &second]).ok();
    let log = world
        .levee(&["audit", "show", "--action", "end", "--state", &text(&world.path("second-state"))])
        .ok();
    assert!(log.lines().any(|line| line.contains(&shown) && line.contains("ended by an operator")), "{log}");
    let stays = |after: &str| {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            assert_eq!(there(), 0, "it is there again after {after}");
            std::thread::sleep(Duration::from_millis(200));
        }
        world.run("ws1", &["curl", "--silent", "--max-time", "1", THERE]).refused();
        world.fetch("ws1", HERE).ok();
    };
    stays("its end");
    // Its person locks it, and opens it again.
    world.tpe("ws1", &["lock"]).ok();
    eventually(Duration::from_secs(30), "it is unlocked", || {
        let mut unlock = world.tpe_command("ws1", &["unlock", "--password-stdin"]);
        typed(&mut unlock, PASSWORD).status == 0
    });
    stays("it was locked");
    // Whoever stands between the server and the table, for as long as a lease.
    two.cut_off("two", true);
    std::thread::sleep(Duration::from_secs(5));
    two.cut_off("two", false);
    two.joined();
    stays("the server was cut off");
    // The server's process is killed.
    let sessiond = host::below(two.second_pid()).into_iter().find(|process| process.name == "levee-sessiond");
    sessiond.expect("the second server's sessiond").signal("KILL");
    std::thread::sleep(Duration::from_secs(2));
    two.joined();
    stays("its sessiond was killed");
    // Another session is another.
    world.level("ws1", "CONFIDENTIAL").ok();
    world.fetch("ws1", THERE).ok();
    the_other_server_keeps_how_far_the_log_was(world);
}

/// It takes a minute or so, until the log is signed. Then who is root here cannot take back what is in it.
fn the_other_server_keeps_how_far_the_log_was(world: &World) {
    let state = |of: &str, file: &str| text(&world.path(of).join(file));
    let kept = state("second-state", "sessiond/audit.jsonl");
    let here = "server server.harbour.example";
    eventually(Duration::from_secs(120), "the other server has a checkpoint of this one's log", || {
        let log = world.levee(&["audit", "show", &kept, "--action", "witness"]);
        log.status == 0 && log.out.contains(here)
    });
    let verify = |log: &[&str]| world.levee(&[&["audit", "verify"], log, &["--kept", &kept]].concat());
    let said = verify(&["--state", &text(&world.path("state"))]).ok();
    assert!(said.contains("kept elsewhere"), "{said}");
    // The beginning of it is a sound log, and not all that there was.
    let log = std::fs::read_to_string(world.path("state").join("sessiond/audit.jsonl")).expect("the log");
    let cut = world.path("cut.jsonl");
    std::fs::write(&cut, log.lines().take(2).map(|line| format!("{line}\n")).collect::<String>())
        .expect("write");
    let (cut, signer) = (text(&cut), state("state", "server/audit.pub"));
    world.levee(&["audit", "verify", &cut, "--signer", &signer]).ok();
    let found = verify(&[&cut, "--signer", &signer]);
    assert!(found.status == 1 && found.out.contains("the log ends after 2 records"), "{found:?}");
}

#[test]
fn a_server_that_is_cut_off_from_the_table_ends_its_sessions_and_the_others_wait_for_that() {
    let two = Two::up("cut", SITE, &["ws1"]);
    let world = &two.world;
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    world.fetch("ws1", THERE).ok();
    two.cut_off("two", true);
    let since = Instant::now();
    // The sign-off is acknowledged only when the other server has lost its lease; what it held is cut before.
    let logout = world.tpe_command("ws1", &["logout"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let done = logout.expect("levee-tpe").wait_with_output().expect("levee-tpe");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let waited = since.elapsed();
    assert!(waited > Duration::from_millis(500), "the other server could not be asked: {waited:?}");
    assert!(waited < Duration::from_secs(3 * 3), "bounded by the lease: {waited:?}");
    let there = two.status("second-run");
    assert_eq!(there["sessions"].as_array().map(Vec::len), Some(0), "{there}");
    assert_eq!(there["federation"]["member"], false, "{there}");
    // It comes back by itself.
    two.cut_off("two", false);
    two.joined();
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    world.fetch("ws1", THERE).ok();
}

#[test]
fn a_server_that_hangs_passes_nothing_beyond_its_lease_and_goes_on_when_it_wakes() {
    let two = Two::up("hang", SITE, &["ws1"]);
    let world = &two.world;
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    world.fetch("ws1", THERE).ok();
    let sessiond = host::below(two.second_pid()).into_iter().find(|process| process.name == "levee-sessiond");
    let sessiond = sessiond.expect("the second server's sessiond");
    sessiond.signal("STOP");
    std::thread::sleep(Duration::from_secs(3));
    // Its vault keeps the deadline by itself.
    world.run("ws1", &["curl", "--silent", "--max-time", "1", THERE]).refused();
    world.fetch("ws1", HERE).ok();
    sessiond.signal("CONT");
    two.joined();
    world.fetch("ws1", THERE).ok();
    // Nobody without a certificate of the federation's own authority has a word with etcd.
    let url = "https://10.77.0.9:2379/v3/kv/range";
    let ask = |bundle: &str, key: &str, chain: &str| {
        let file = |name: &str| text(&world.path("state").join(bundle).join(name));
        let (key, chain) = (file(key), file(chain));
        let known = [
            "curl",
            "--silent",
            "--show-error",
            "--insecure",
            "--max-time",
            "5",
            "--data",
            r#"{"key":"AA=="}"#,
        ];
        let own = ["--key", &key, "--cert", &chain, url];
        world.server_sh(known[0], &[&known[1..], &own[..]].concat())
    };
    assert!(ask("server", "federation.key", "federation-chain.pem").ok().contains("revision"));
    ask("hosts/ws1", "device.key", "chain.pem").refused();
}

#[test]
fn a_posture_that_is_set_at_one_server_is_in_force_at_both_when_it_is_acknowledged() {
    const LABEL: &str = "SECRET//NATO,MED";
    const POSTURES: &str = r#"
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
follow = "5s"
[[posture]]
name = "even"
constant-rate = true
ciphers = ["chacha20-poly1305"]
[[posture]]
name = "few"
people = ["mia"]
"#;
    let two = Two::up("stance", &format!("{SITE}{POSTURES}"), &["ws1"]);
    let world = &two.world;
    let posture = |run: &str, arguments: &[&str]| {
        world.levee(&[&["posture"], arguments, &["--run", &text(&world.path(run))]].concat())
    };
    // What the tunnels of both are sealed by, and the postures in force there.
    let there = |run: &str| {
        let status = two.status(run);
        let sas = status["vaults"][LABEL]["sas"].as_array().into_iter().flatten();
        let suites: Vec<String> = sas.map(|sa| sa["suite"].as_str().expect("a suite").to_owned()).collect();
        let in_force = status["postures"].as_array().into_iter().flatten();
        (suites, in_force.map(|one| one["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>())
    };
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    for page in [HERE, THERE] {
        world.fetch("ws1", page).ok();
    }
    posture("run", &["set", "siege", "--reason", "drill"]).ok();
    for run in ["run", "second-run"] {
        let (suites, in_force) = there(run);
        assert_eq!(in_force, ["siege"], "{run}");
        assert!(!suites.is_empty() && suites.iter().all(|suite| suite == "chacha20-poly1305"), "{suites:?}");
    }
    for page in [HERE, THERE] {
        world.fetch("ws1", page).ok();
    }
    // At the other server somebody ends it, for both.
    posture("second-run", &["set", "default"]).ok();
    for run in ["run", "second-run"] {
        let (suites, in_force) = there(run);
        assert!(in_force.is_empty() && suites.iter().all(|suite| suite == "aes-256-gcm"), "{suites:?}");
    }
    let log = world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok();
    assert!(log.contains("set at two.harbour.example, after siege"), "{log}");
    // At some labels alone, and from either; the default gives them back.
    let ranges = |run: &str| {
        let postures = two.status(run)["postures"].clone();
        let all = postures.as_array().expect("a list").iter();
        all.map(|one| one["ranges"].clone()).collect::<Vec<_>>()
    };
    for (set, name, at, suite) in [
        ("second-run", "siege", "UNCLASSIFIED..CONFIDENTIAL", "aes-256-gcm"),
        ("run", "siege", LABEL, "chacha20-poly1305"),
        ("second-run", "default", LABEL, "aes-256-gcm"),
    ] {
        posture(set, &["set", name, "--labels", at]).ok();
        for run in ["run", "second-run"] {
            let (suites, _) = there(run);
            assert!(
                !suites.is_empty() && suites.iter().all(|one| one == suite),
                "{run} {name} {at}: {suites:?}"
            );
            let expected = if name == "default" { "UNCLASSIFIED..CONFIDENTIAL" } else { at };
            assert_eq!(ranges(run).last(), Some(&serde_json::json!([expected])), "{run}");
        }
    }
    posture("run", &["set", "default"]).ok();
    // A constant rate, of which the workstation hears from the first server alone: whether that one has it first or last.
    for (set, end) in [("run", "second-run"), ("second-run", "run")] {
        posture(set, &["set", "even"]).ok();
        let sent = world.idle("two");
        assert!(sent > 150, "250 a second were 500: {sent}");
        for page in [HERE, THERE] {
            world.fetch("ws1", page).ok();
        }
        posture(end, &["set", "default"]).ok();
        let sent = world.idle("two");
        assert!(sent < 100, "none but what the servers say to each other: {sent}");
        world.fetch("ws1", THERE).ok();
    }
    for state in ["state", "second-state"] {
        let log = world.levee(&["audit", "show", "--state", &text(&world.path(state))]).ok();
        assert!(!log.contains("did not follow in time"), "{log}");
    }
    // One that cannot hear of it is named, and takes it up when it can.
    two.cut_off("two", true);
    let refused = posture("run", &["set", "siege"]).refused();
    assert!(refused.contains("but not at two.harbour.example"), "{refused}");
    assert!(posture("second-run", &["set", "siege"]).refused().contains("cut off from the others"));
    two.cut_off("two", false);
    two.joined();
    eventually(Duration::from_secs(30), "it has what was set", || there("second-run").1 == ["siege"]);
    eventually(Duration::from_secs(60), "both are used again", || {
        world.fetch("ws1", HERE).status == 0 && world.fetch("ws1", THERE).status == 0
    });
    assert_eq!(there("second-run").0, ["chacha20-poly1305"]);
    // Over a restart of one, what it was told stays; and nobody has a session there whom a posture bars.
    posture("second-run", &["set", "few"]).ok();
    assert_eq!(there("run").1, ["siege", "few"]);
    world.fetch("ws1", HERE).refused();
    world.level("ws1", LABEL).refused();
}

#[test]
fn a_server_whose_passport_is_revoked_is_believed_by_nobody_and_comes_back_with_a_new_key() {
    let two = Two::up("unbelieved", SITE, &["ws1"]);
    let world = &two.world;
    let path = |name: &str| text(&world.path(name));
    let (site, second) = (path("site.toml"), path("second.toml"));
    let (state, second_state) = (path("state"), path("second-state"));
    let reload = |run: &str| drop(world.levee(&["reload", "--run", &path(run)]).ok());
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    world.fetch("ws1", THERE).ok();
    let chain = path("second-state/server/federation-chain.pem");
    world.levee(&["enrol", "revoke", &site, "--federation", &chain, "--state", &state]).ok();
    reload("run");
    let eventually = |what: &str, is: &dyn Fn() -> bool| eventually(Duration::from_secs(30), what, is);
    let others = |run: &str| two.status(run)["federation"]["others"].as_array().map_or(0, Vec::len);
    eventually("the first server believes the second no more", &|| others("run") == 0);
    // The second has not read the list: what it may use of the first ends with the lease, which nothing renews.
    eventually("no session is used there", &|| {
        two.status("second-run")["sessions"].as_array().is_some_and(Vec::is_empty)
    });
    world.fetch("ws1", HERE).ok();
    let log = world.levee(&["audit", "show", "--state", &state]).ok();
    assert!(log.contains("server two.harbour.example") && log.contains("its passport is revoked"), "{log}");
    // Nor does the second say anything by it, once it has the list.
    sh("cp", &[&path("state/authority/federation-ca.crl"), &path("second-state/authority")]).ok();
    reload("second-run");
    eventually("the second is no member", &|| two.status("second-run")["federation"]["member"] == false);
    let log = world.levee(&["audit", "show", "--state", &second_state]).ok();
    assert!(log.contains("its passport is revoked"), "{log}");
    assert_eq!(others("run"), 0);
    // A new key of its, and a new passport.
    world.levee(&["enrol", "rotate", &second, "federation", "--state", &second_state]).ok();
    reload("second-run");
    two.joined();
    eventually("the session is there again", &|| world.fetch("ws1", THERE).status == 0);
}

/// As `docs/book/src/keys.md` says.
#[test]
fn the_federations_authority_is_followed_by_another_and_who_has_a_key_of_before_is_then_believed_by_nobody() {
    let mut two = Two::up("followed", SITE, &["ws1"]);
    let path = |two: &Two, name: &str| text(&two.world.path(name));
    let paths = ["site.toml", "second.toml", "state", "second-state"].map(|name| path(&two, name));
    let [site, second, state, second_state] = &paths;
    let eventually = |what: &str, is: &dyn Fn() -> bool| eventually(Duration::from_secs(60), what, is);
    let others = |two: &Two, run: &str| {
        let run = text(&two.world.path(run));
        let said = two.world.levee(&["status", "--json", "--run", &run]);
        let said: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
        said["federation"]["others"].as_array().map_or(0, Vec::len)
    };
    let join = |two: &Two| {
        eventually("both servers are members", &|| others(two, "run") == 1 && others(two, "second-run") == 1);
    };
    // The same file to each server and to etcd.
    let everywhere = |two: &mut Two| {
        let authority = format!("{state}/authority/federation-ca.pem");
        for to in ["state/server/federation-authority.pem", "second-state/server/federation-authority.pem"] {
            sh("cp", &[&authority, &path(two, to)]).ok();
        }
        sh("cp", &[&authority, &path(two, "state/etcd/authority.pem")]).ok();
        for run in ["run", "second-run"] {
            two.world.levee(&["reload", "--run", &path(two, run)]).ok();
        }
        two.etcd_again();
    };
    let rotate = |two: &Two, site: &str, what: &[&str], state: &str| {
        two.world.levee(&[&["enrol", "rotate", site], what, &["--state", state]].concat()).ok()
    };
    let saved = path(&two, "second-before");
    sh("cp", &["-r", &format!("{second_state}/server"), &saved]).ok();
    two.world.login("ws1", "ada").ok();
    two.world.level("ws1", "UNCLASSIFIED").ok();
    two.world.fetch("ws1", THERE).ok();

    // A server's own key alone: nobody notices, for longer than a lease and whatever waits for one.
    let sessions = || two.status("run")["sessions"].clone();
    let id = |sessions: &serde_json::Value| sessions[0]["id"].as_str().map(str::to_owned);
    let before = id(&sessions());
    assert!(before.is_some());
    rotate(&two, site, &["federation"], state);
    two.world.levee(&["reload", "--run", &path(&two, "run")]).ok();
    let until = std::time::Instant::now() + Duration::from_secs(15);
    while std::time::Instant::now() < until {
        assert_eq!(
            (id(&sessions()), others(&two, "run"), others(&two, "second-run")),
            (before.clone(), 1, 1)
        );
        two.world.fetch("ws1", HERE).ok();
        two.world.fetch("ws1", THERE).ok();
    }
    let log = two.world.levee(&["audit", "show", "--state", state]).ok();
    assert!(log.contains("the server goes on with new ones: server/federation-chain.pem"), "{log}");
    rotate(&two, site, &["federation-authority"], state);
    everywhere(&mut two);
    join(&two);
    // Each server's key is signed for by the new one, and etcd's.
    let of_second = format!("{second_state}/authority");
    sh("rm", &["-r", &of_second]).ok();
    sh("cp", &["-r", &format!("{state}/authority"), &of_second]).ok();
    rotate(&two, site, &["federation"], state);
    rotate(&two, second, &["federation"], second_state);
    two.world.levee(&["enrol", "etcd", site, "--force", "--state", state]).ok();
    everywhere(&mut two);
    join(&two);
    rotate(&two, site, &["federation-authority", "--finish"], state);
    everywhere(&mut two);
    join(&two);
    let again = |two: &Two| {
        two.world.tpe("ws1", &["logout"]);
        two.world.login("ws1", "ada").status == 0 && two.world.level("ws1", "UNCLASSIFIED").status == 0
    };
    eventually("signed on again", &|| again(&two));
    eventually("both servers' services are reached", &|| two.world.fetch("ws1", THERE).status == 0);

    // Whoever has kept the second server's key and certificate from before.
    for file in ["federation.key", "federation-chain.pem"] {
        sh("cp", &[&format!("{saved}/{file}"), &format!("{second_state}/server/{file}")]).ok();
    }
    two.world.levee(&["reload", "--run", &path(&two, "second-run")]).ok();
    eventually("it is believed by nobody", &|| others(&two, "run") == 0);
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!((others(&two, "run"), others(&two, "second-run")), (0, 0));
    eventually("the first goes on alone", &|| two.world.fetch("ws1", HERE).status == 0);
}

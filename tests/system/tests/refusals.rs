//! What the site forbids is refused, in the same words to whoever must not learn more, and is in the audit log.

use levee_system::{World, eventually, text};
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
    // What anybody can cause without a password is counted, so that nobody can fill the log with it.
    world.stop_server();
    let noted = world.levee(&["audit", "show", "--state", &state, "--verdict", "noted"]).ok();
    assert!(noted.lines().any(|line| line.contains("a wrong password or an unknown user")), "{noted}");
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

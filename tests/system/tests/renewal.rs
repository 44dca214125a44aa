//! A workstation's certificates are renewed while it is used: nobody loses a session, and the old ones are not needed any more.

use levee_system::{World, eventually, text};
use std::fs;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";

#[test]
fn a_workstation_goes_on_with_new_certificates_without_losing_a_session() {
    let world = World::up("renew", SITE, &["ws1"]);
    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let bundle = world.path("state/hosts/ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    world.fetch("ws1", PAGE).ok();
    let session = || {
        let said = world.tpe("ws1", &["--json", "status"]).ok();
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        said["session"]["id"].as_str().map(str::to_owned)
    };
    let before = session().expect("a session");

    // Enrolled anew, copied, and told so, while somebody works: the session stays.
    let mut old = Vec::new();
    for file in ["chain.pem", "ike-chain.pem"] {
        let copy = world.path(&format!("old-{file}"));
        fs::copy(bundle.join(file), &copy).expect("the old certificate");
        old.extend(["--certificate".to_owned(), text(&copy)]);
    }
    world.levee(&["enrol", "host", &site, "ws1", "--state", &state, "--force"]).ok();
    let said = world.levee(&["reload", "--run", &text(&world.path("ws1-run"))]).ok();
    assert!(said.contains("as soon as nobody is signed on"), "{said}");
    world.fetch("ws1", PAGE).ok();
    assert_eq!(session().as_ref(), Some(&before));

    // Then the new ones count, and the old ones can be revoked.
    world.tpe("ws1", &["logout"]).ok();
    eventually(Duration::from_secs(60), "the new ones count", || {
        fs::read_to_string(world.log("ws1")).is_ok_and(|log| log.contains("goes on with the keys"))
    });
    world.login("ws1", "ada").ok();
    let mut revoke = vec!["enrol", "revoke", &site, "--state", &state];
    revoke.extend(old.iter().map(String::as_str));
    world.levee(&revoke).ok();
    world.level("ws1", "SECRET//NATO,MED").ok();
    world.levee(&["reload", "--run", &text(&world.path("run"))]).ok();
    // The server cuts every path: whoever begins a new one is believed by the list.
    let anew = Duration::from_secs(60);
    eventually(anew, "signed off", || {
        world.tpe("ws1", &["logout"]);
        session().is_none()
    });
    eventually(anew, "the new certificates are believed", || world.login("ws1", "ada").status == 0);
    world.level("ws1", "UNCLASSIFIED").ok();
    world.fetch("ws1", PAGE).ok();

    // A workstation that is revoked is told so, and not that the server does not answer: also who is signed on without a session, and
    // whoever asks afterwards.
    world.tpe("ws1", &["logout"]).ok();
    world.login("ws1", "ada").ok();
    world.levee(&["enrol", "revoke", &site, "ws1", "--state", &state]).ok();
    world.levee(&["reload", "--run", &text(&world.path("run"))]).ok();
    let revoked = "this workstation's certificate is revoked";
    eventually(Duration::from_secs(30), "who was signed on is told", || {
        let said = world.tpe("ws1", &["status"]).ok();
        said.contains("nobody is signed on")
            && said.contains("before a session was open")
            && said.contains(revoked)
    });
    assert!(world.login("ws1", "ada").refused().contains(revoked));
    let said = world.tpe("ws1", &["status"]).ok();
    assert!(
        said.lines().any(|line| line.starts_with("the trusted path to") && line.contains(revoked)),
        "{said}"
    );
}

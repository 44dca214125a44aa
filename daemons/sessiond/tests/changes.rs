//! What operators change is in the log: who may sign on, and by which password, site file and revocation list, whether or not the
//! server ran when it was changed.

mod common;

use common::*;
use levee_ipc::Secret;
use levee_ipc::client::{RefusalKind, Reply, Request};
use levee_ipc::operator::{Answer, Command};
use std::path::Path;

/// Records of changes by operators: whose, of what, how.
fn changes(log: &str) -> Vec<String> {
    let records = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let changes = records.map(|record| record["event"].clone()).filter(|event| event["action"] == "change");
    changes
        .map(|record| {
            assert_eq!(record["verdict"], "noted");
            let how = record["reason"].as_str().unwrap().trim_start_matches("by an operator: ").to_owned();
            let how = how.split(';').next().unwrap().to_owned();
            format!("{} {} {how}", record["user"].as_str().unwrap_or("-"), record["object"].as_str().unwrap())
        })
        .collect()
}

/// The password of `from` becomes that of `to`.
fn gives(directory: &Path, from: &str, to: &str) {
    let credentials = directory.join("credentials");
    std::fs::copy(credentials.join(from), credentials.join("new")).unwrap();
    std::fs::rename(credentials.join("new"), credentials.join(to)).unwrap();
}

#[test]
fn what_was_changed_while_the_server_did_not_run_is_told_once_at_its_next_start() {
    let site = World::start(Site::new()).stop();
    let first = ["- site file set", "ada password set", "ugo password set"];
    assert_eq!(changes(&site.log()), first);
    let mut site = World::start(site).stop();
    assert_eq!(changes(&site.log()), first, "nothing was changed");
    gives(&site.directory, "ugo", "ada");
    std::fs::remove_file(site.directory.join("credentials/ugo")).unwrap();
    site.site = site.site.replace("grace = \"30s\"", "grace = \"31s\"");
    site.revoked = Some(site.devices.list(&["ws2"]));
    let world = World::start(site);
    // It hears nobody before what it found is told; killed sooner, it would say some of it again.
    world.status();
    let site = world.kill();
    let log = World::start(site).stop().log();
    let told = changes(&log);
    let then =
        ["- site file replaced", "- revocation list set", "ada password replaced", "ugo password removed"];
    assert_eq!(told[..3], first);
    assert_eq!(told[3..], then, "once, and a kill does not say it again");
}

#[test]
fn what_is_changed_while_it_runs_is_in_the_log_when_the_operator_is_told_and_before_anybody_signs_on() {
    let world = World::start(Site::new());
    // It hears nobody before the start is in the log.
    world.status();
    let before = changes(&world.place.log()).len();
    let told = |world: &World| changes(&world.place.log())[before..].to_vec();
    gives(&world.place.directory, "ugo", "ada");
    let changed = || Command::Changed("ada".parse().unwrap());
    assert!(matches!(world.operator(&changed()), Answer::Ended));
    assert_eq!(told(&world), ["ada password replaced"]);
    assert!(matches!(world.operator(&changed()), Answer::Ended));
    assert!(matches!(world.operator(&Command::Changed("nobody".parse().unwrap())), Answer::Ended));
    assert_eq!(told(&world).len(), 1, "nothing was changed since");
    // An operator who tells nobody.
    gives(&world.place.directory, "ada", "eve");
    std::fs::remove_file(world.place.directory.join("credentials/ugo")).unwrap();
    let client = world.connect("ws1");
    client.login("eve", UGO);
    client.sign_on("ada", UGO);
    let log = world.place.log();
    let (at, signed_on) = (log.find(r#""user":"eve","action":"change""#), log.find(r#""action":"sign-on""#));
    assert!(at.unwrap() < signed_on.unwrap(), "{log}");
    let refused = world.connect("ws2").login("ugo", UGO);
    assert_eq!(refusal(&refused), Some(RefusalKind::Credentials));
    // Nothing waits for it.
    world.status();
    assert_eq!(told(&world)[1..], ["eve password set", "ugo password removed"]);
    world.revoke(&world.place.devices.list(&["ws2"]));
    world.status();
    assert_eq!(told(&world).last().unwrap(), "- revocation list set");
}

#[test]
fn a_persons_own_change_of_their_password_is_not_an_operators() {
    let world = World::start(Site::new());
    world.status();
    let before = changes(&world.place.log());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let secret = |text: &str| Secret::new(text.as_bytes().to_vec()).unwrap();
    let request = Request::Passwd { old: secret(ADA), new: secret("another long one") };
    assert!(matches!(client.call(request), Reply::PasswordChanged));
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
    client.sign_on("ada", "another long one");
    let site = World::start(world.kill()).stop();
    assert_eq!(changes(&site.log()), before);
    assert!(site.log().contains(r#""action":"change-password""#));
}

#[test]
fn what_an_operator_puts_there_while_a_person_changes_their_password_stays() {
    let world = World::start(Site::new());
    world.status();
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let secret = |text: &str| Secret::new(text.as_bytes().to_vec()).unwrap();
    client.ask(Request::Passwd { old: secret(ADA), new: secret("another long one") });
    // The present password is being looked at by now; nothing is stored before that and a hash of the new one are done.
    std::thread::sleep(std::time::Duration::from_millis(10));
    let place = world.place.directory.clone();
    gives(&place, "ugo", "ada");
    let answer = client.next().expect("an answer");
    assert!(matches!(answer, Reply::Refused { .. }));
    let file = |name: &str| std::fs::read(place.join("credentials").join(name)).unwrap();
    assert_eq!(file("ada"), file("ugo"));
}

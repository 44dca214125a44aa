//! Libreswan as Debian has it, with its defaults: a client of another make than strongSwan.

use levee_system::libreswan::Pluto;
use levee_system::{World, eventually, text};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");

#[test]
fn libreswan_with_its_defaults_proves_who_it_is_and_has_an_ike_sa_but_no_child_without_a_label() {
    let mut world = World::new("libre", &SITE.replace("\"harbour\"", "\"port-libre\""), &["ws1"]);
    world.leave_tunnel_to_others("ws1");
    world.start_server();
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    let pluto = Pluto::start(&world, "ws1");
    pluto.whack(&["--name", "levee", "--initiate", "--asynchronous"]).ok();
    let said = |what: &str| pluto.log().contains(what);
    eventually(Duration::from_secs(30), "the server has proved who it is, and the IKE SA is there", || {
        said("established IKE SA; authenticated") || said("AUTHENTICATION_FAILED")
    });
    assert!(!said("AUTHENTICATION_FAILED"), "{}", pluto.log());
    // Labels are SELinux contexts to it, so it asks for none: it gets no child, and the log says why.
    eventually(Duration::from_secs(30), "the refusal is in the audit log", || {
        let log = world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok();
        log.contains("it did not ask for exactly one label")
    });
    assert!(said("TS_UNACCEPTABLE"), "{}", pluto.log());
}

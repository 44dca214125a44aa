//! Documents flow upward, as copies: written low, read high within a second, never changed from there.

use levee_system::{World, eventually};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";

fn put(world: &World, path: &str, content: &str) -> levee_system::Done {
    let url = format!("http://www.harbour.example{path}");
    world.run(
        "ws1",
        &["curl", "-sS", "--fail", "--max-time", "10", "-X", "PUT", "--data-binary", content, &url],
    )
}

fn get(world: &World, path: &str) -> levee_system::Done {
    world.fetch("ws1", &format!("http://www.harbour.example{path}"))
}

#[test]
fn a_document_written_low_is_read_high_and_cannot_be_changed_there() {
    let world = World::up("docs", SITE, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    put(&world, "/own/tide", "high water at nine").ok();
    world.level("ws1", HIGH).ok();
    let path = format!("/below/{LOW}/tide");
    eventually(Duration::from_secs(1), "the document is with the high label", || {
        get(&world, &path).out == "high water at nine"
    });
    assert!(get(&world, "/").ok().contains("tide"), "the page lists it");
    put(&world, &path, "never").refused();
    put(&world, "/own/secret", "stays here").ok();
    world.level("ws1", LOW).ok();
    assert_eq!(get(&world, "/own/tide").ok(), "high water at nine");
    get(&world, &format!("/below/{}/secret", HIGH.replace('/', "+"))).refused();
    assert!(!get(&world, "/").ok().contains("secret"), "nothing of the high label shows");
    world.tpe("ws1", &["logout"]).ok();
}

//! Documents flow upward, as copies: written low, read high within a second, never changed from there.

use levee_system::{World, eventually};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";

fn put(world: &World, path: &str, content: &str) -> levee_system::Done {
    put_at(world, "ws1", path, content)
}

fn put_at(world: &World, workstation: &str, path: &str, content: &str) -> levee_system::Done {
    let url = format!("http://www.harbour.example{path}");
    world.run(
        workstation,
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

#[test]
fn with_more_labels_below_than_can_be_named_each_is_read_above_once_it_has_run() {
    // 3 levels and 8 categories: 768 labels.
    let site = SITE.replace("\"MED\"]", "\"MED\", \"A\", \"B\", \"C\", \"D\", \"E\", \"F\"]");
    let site = site.replace("..SECRET//NATO,MED", "..SECRET//NATO,MED,A,B,C,D,E,F");
    let high = format!("{HIGH},A,B,C,D,E,F");
    let world = World::up("docs2", &site, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    // One below has run before, the other runs for the first time while it is read.
    world.level("ws1", "CONFIDENTIAL//A").ok();
    put(&world, "/own/before", "written before").ok();
    world.level("ws1", &high).ok();
    eventually(Duration::from_secs(10), "what was written before is there", || {
        get(&world, "/below/CONFIDENTIAL++A/before").out == "written before"
    });
    get(&world, &format!("/below/{LOW}/new")).refused();
    world.login("ws2", "ugo").ok();
    world.level("ws2", LOW).ok();
    put_at(&world, "ws2", "/own/new", "written now").ok();
    eventually(Duration::from_secs(10), "what is written below is there", || {
        get(&world, &format!("/below/{LOW}/new")).out == "written now"
    });
    let page = get(&world, "/").ok();
    assert!(page.contains("before") && page.contains(LOW), "{page}");
    assert_eq!(get(&world, "/below/CONFIDENTIAL++A/before").ok(), "written before");
}

//! The main job, whole: sign on, choose a level, use an unmodified service there, change level, sign off.

use levee_system::World;

const SITE: &str = include_str!("../../../conf/small/site.toml");

#[test]
fn a_person_signs_on_and_uses_a_service_at_two_levels() {
    let world = World::up("thin", SITE, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    let low = world.fetch("ws1", "http://www.harbour.example/").ok();
    assert!(low.contains("UNCLASSIFIED"), "{low}");
    world.level("ws1", "SECRET//NATO,MED").ok();
    let high = world.fetch("ws1", "http://www.harbour.example/").ok();
    assert!(high.contains("SECRET//NATO,MED"), "{high}");
    world.tpe("ws1", &["logout"]).ok();
    world.run("ws1", &["true"]).refused();
}

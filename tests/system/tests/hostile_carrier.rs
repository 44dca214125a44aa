//! Two servers of a site, and an etcd that is an enemy: it hides, repeats, rolls back, alters, delays, swaps and floods. It can deny service,
//! within the lease, and nothing else.

use levee_system::federation::Two;
use levee_system::{eventually, host};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const HERE: &str = "http://www.harbour.example/";
const THERE: &str = "http://two.harbour.example/";
const LEASE: Duration = Duration::from_secs(3);
/// The second server.
const TWO: &str = "10.77.0.2";

fn sessions(two: &Two, run: &str) -> usize {
    two.status(run)["sessions"].as_array().map_or(0, Vec::len)
}

fn sas(two: &Two) -> usize {
    let there = two.status("second-run");
    let vaults = there["vaults"].as_object().into_iter().flat_map(|vaults| vaults.values());
    vaults.map(|vault| vault["sas"].as_array().map_or(0, Vec::len)).sum()
}

fn strange(two: &Two, run: &str) -> u64 {
    two.status(run)["federation"]["strange"].as_u64().unwrap_or(0)
}

/// The enemy is honest again, and all is as it was: nothing has to be done by hand.
#[track_caller]
fn works(two: &Two) {
    two.order("");
    two.joined();
    let world = &two.world;
    // No promise is in this: a host that is busy takes its time, and what the enemy said last may cut the server off once more.
    eventually(Duration::from_secs(30), "a session", || {
        // Whether they are still signed on or not.
        let _ = world.tpe("ws1", &["logout"]);
        world.login("ws1", "ada").status == 0 && world.level("ws1", "UNCLASSIFIED").status == 0
    });
    eventually(Duration::from_secs(30), "the other server's service", || {
        world.run("ws1", &["curl", "--silent", "--fail", "--max-time", "1", THERE]).status == 0
    });
}

fn sign_off(two: &Two) -> Child {
    let mut command = two.world.tpe_command("ws1", &["logout"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("levee-tpe")
}

/// A person signs off while the enemy does something to the other server. When that is acknowledged, nothing is left there.
#[track_caller]
fn an_end_holds(two: &Two, orders: &str) {
    works(two);
    two.order(orders);
    let since = Instant::now();
    let done = sign_off(two).wait_with_output().expect("levee-tpe");
    let (left, keys) = (sessions(two, "second-run"), sas(two));
    assert!(done.status.success(), "{orders}: {}", String::from_utf8_lossy(&done.stderr));
    assert_eq!((left, keys), (0, 0), "{orders}: acknowledged, and the other server goes on");
    assert!(since.elapsed() < LEASE * 3, "{orders}: {:?}", since.elapsed());
    // Nor does it come back, whatever the enemy has kept.
    let until = Instant::now() + LEASE / 2;
    while Instant::now() < until {
        assert_eq!((sessions(two, "second-run"), sas(two)), (0, 0), "{orders}: it came back");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn an_etcd_that_is_an_enemy_can_deny_service_within_the_lease_and_nothing_else() {
    let two = Two::up_by_an_enemy("enemy", SITE, &["ws1"]);
    let world = &two.world;
    let fsd = |two: &Two| host::child(two.second_pid(), "levee-fsd").pid;
    works(&two);

    // What the other server does not hear it does not obey, and so it is not believed to have: its lease is waited for.
    an_end_holds(&two, &format!("hide {TWO} server.harbour.example"));
    an_end_holds(&two, &format!("hide {TWO} server.harbour.example/"));
    an_end_holds(&two, &format!("back {TWO}"));
    an_end_holds(&two, &format!("repeat {TWO}\nlate {TWO} 0.2"));

    // Nobody's word but a server's own: what is altered is noticed, and ends what needs it.
    works(&two);
    let before = strange(&two, "second-run");
    two.order("alter server.harbour.example");
    eventually(LEASE * 2, "without the owner's living word nothing goes on", || {
        (sessions(&two, "second-run"), sas(&two)) == (0, 0)
    });
    assert!(strange(&two, "second-run") > before, "and that is an alarm");

    // What is only added, or stands in another place, does no harm at all: who says it is not said by where it stands.
    works(&two);
    let (pid, before) = (fsd(&two), strange(&two, "second-run"));
    two.order("flood\nswap");
    let until = Instant::now() + LEASE * 3 / 2;
    while Instant::now() < until {
        world.fetch("ws1", THERE).ok();
        world.fetch("ws1", HERE).ok();
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(strange(&two, "second-run") > before + 100);
    assert_eq!(fsd(&two), pid, "it was started once");
    let at = Instant::now();
    let done = sign_off(&two).wait_with_output().expect("levee-tpe");
    assert!(done.status.success() && at.elapsed() < LEASE, "{:?}", at.elapsed());
    assert_eq!((sessions(&two, "second-run"), sas(&two)), (0, 0));
    works(&two);

    // Why a server is cut off it may say in as many words as it likes: the ends of the sessions are recorded, and none stays.
    two.order("rant 10.77.0.1");
    eventually(LEASE * 2, "what its words end is over", || sessions(&two, "run") == 0);
    works(&two);
}

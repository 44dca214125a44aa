//! Many seeds. `LEVEE_SEEDS=n` runs another number, `LEVEE_SEED=x` replays one.

use levee_sim::ike::{Summary, World};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name} is not a number: {v}")))
}

fn one(seed: u64, endpoints: usize) -> Summary {
    let run = catch_unwind(AssertUnwindSafe(|| World::new(seed, endpoints).run()));
    match run {
        Ok(Ok(summary)) => summary,
        Ok(Err(why)) => panic!("seed {seed} with {endpoints} endpoints: {why}; LEVEE_SEED={seed} replays it"),
        Err(_) => panic!("seed {seed} with {endpoints} endpoints panicked; LEVEE_SEED={seed} replays it"),
    }
}

fn many(seeds: u64, endpoints: usize) -> Summary {
    if let Some(seed) = variable("LEVEE_SEED") {
        return one(seed, endpoints);
    }
    let seeds = variable("LEVEE_SEEDS").unwrap_or(seeds);
    let next = AtomicU64::new(0);
    let total = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let s = one(seed, endpoints);
                    let mut t = total.lock().expect("no seed panicked");
                    t.established += s.established;
                    t.children += s.children;
                    t.rekeyed += s.rekeyed;
                    t.ike_rekeyed += s.ike_rekeyed;
                    t.alive += s.alive;
                    t.roamed += s.roamed;
                    t.followed += s.followed;
                    t.withdrawn += s.withdrawn;
                }
            });
        }
    });
    let t = total.into_inner().expect("no seed panicked");
    println!("{seeds} seeds with {endpoints} endpoints: {t:?}");
    // A world in which nothing happens keeps every invariant.
    let n = usize::try_from(seeds).expect("a number of seeds");
    assert!(
        t.established >= n
            && t.children >= 2 * n
            && t.rekeyed >= n
            && t.ike_rekeyed >= n / 2
            && t.alive >= n / 2
            && t.followed >= n / 10
            && t.withdrawn >= n / 100,
        "{t:?}"
    );
    t
}

#[test]
fn two_endpoints_agree_whatever_the_network_does() {
    many(10_000, 2);
}

#[test]
fn twenty_endpoints_agree_whatever_the_network_does() {
    many(60, 20);
}

#[test]
fn a_seed_always_runs_the_same_way() {
    let twice = [one(4711, 2), one(4711, 2)].map(|s| format!("{s:?}"));
    assert_eq!(twice[0], twice[1]);
}

//! How far a server's audit log was is kept by the others: once for each, and not as often as somebody says so.

mod table;

use levee_session::federation::{Said, Signed};
use std::time::Duration;
use table::*;

const ONE: &str = "one.example";
const TWO: &str = "two.example";

fn signed(count: u64) -> Signed {
    Signed { count, hash: [u8::try_from(count).unwrap(); 32], signature: vec![7; 64] }
}

/// What each server keeps of which other, in turns of a tenth of a second.
fn kept(site: &mut Site, time: Duration) -> Vec<(String, String, u64)> {
    site.said.clear();
    for _ in 0..time.as_millis() / 100 {
        site.turn();
    }
    let of = |(at, said): &(levee_policy::DomainName, Said)| match said {
        Said::Witness(server, signed) => Some((at.to_string(), server.to_string(), signed.count)),
        _ => None,
    };
    site.said.iter().filter_map(of).collect()
}

fn at(at: &str, of: &str, count: u64) -> (String, String, u64) {
    (at.to_owned(), of.to_owned(), count)
}

#[test]
fn what_a_server_says_of_its_log_is_kept_by_each_other_once_and_the_next_after_a_while() {
    let mut site = Site::of(&[ONE, TWO, "three.example"]);
    assert_eq!(kept(&mut site, Duration::from_secs(20)), []);
    site.one().signed(signed(7));
    let mut first = kept(&mut site, Duration::from_secs(20));
    first.sort();
    assert_eq!(first, [at("three.example", ONE, 7), at(TWO, ONE, 7)]);
    // The same again and again, and others: the last counts when the time has come.
    for count in 8..30 {
        site.one().signed(signed(count));
        assert_eq!(kept(&mut site, Duration::from_secs(10)), [], "{count}");
    }
    let mut next = kept(&mut site, Duration::from_secs(120));
    next.sort();
    assert_eq!(next, [at("three.example", ONE, 29), at(TWO, ONE, 29)]);
    // To the millisecond when it may be.
    let begun = site.now;
    site.one().signed(signed(30));
    while !site.said.iter().any(|(_, said)| matches!(said, Said::Witness(_, signed) if signed.count == 30)) {
        site.turn();
        assert!(site.now < begun.after(Duration::from_secs(400)));
    }
    let first = site.now;
    site.one().signed(signed(31));
    while !site.said.iter().any(|(_, said)| matches!(said, Said::Witness(_, signed) if signed.count == 31)) {
        site.turn();
        assert!(site.now < first.after(Duration::from_secs(400)));
    }
    assert_eq!(site.now.since(first), Duration::from_secs(300));
    // Each has its own time: another's is kept at once.
    site.machines[1].1.signed(signed(40));
    let mut other = kept(&mut site, Duration::from_secs(20));
    other.sort();
    assert_eq!(other, [at(ONE, TWO, 40), at("three.example", TWO, 40)]);
    // A log that began anew is shorter, and kept all the same.
    assert_eq!(kept(&mut site, Duration::from_secs(300)), []);
    site.one().signed(signed(3));
    assert_eq!(kept(&mut site, Duration::from_secs(20)).len(), 2);
}

//! The exchanges of RFC 7296 between two endpoints, over a wire that delivers everything; by subject.

mod algorithms;
mod certificates;
mod children;
mod initial;
mod lengths;
mod loss;
mod narrowing;
mod nat;
#[path = "../pair/mod.rs"]
mod pair;
mod ppk;
mod rekeying;

use levee_ike::*;
use pair::*;
use std::net::IpAddr;
use std::time::Duration;

fn connected(child: Option<&str>) -> (Pair, IkeId, IkeId) {
    let mut p = Pair::new(psk_configs(), 7);
    let first = child.map(|l| p.child(A, Some(l)));
    p.connect(A, first);
    p.run();
    let (a, b) = (p.established(A), p.established(B));
    assert_eq!((a.len(), b.len()), (1, 1), "A {:?}, B {:?}", p.sides[A].events, p.sides[B].events);
    let (a, b) = (a[0], b[0]);
    (p, a, b)
}

//! Any AGGFRAG payloads in any order: what comes out is whole, what is kept is bounded, and no packet comes out twice.
//!
//! Input: payloads, each behind a byte that says by how much its sequence number goes on from the last (signed) and two
//! bytes of length.

use std::collections::BTreeSet;

use levee_esp::Inner;
use levee_esp::aggfrag::Reassembler;

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut rest = input;
    let mut reassembler = Reassembler::new();
    let (mut sequence, mut seen, mut octets, mut out) = (1_000_u64, BTreeSet::new(), 0, 0);
    while let Some((&[step, high, low], tail)) = rest.split_first_chunk::<3>() {
        let (payload, tail) = tail.split_at(tail.len().min(usize::from(u16::from_be_bytes([high & 7, low]))));
        rest = tail;
        sequence = sequence.saturating_add_signed(i64::from(step as i8));
        // The replay window lets each number pass once.
        if sequence == 0 || !seen.insert(sequence) {
            continue;
        }
        octets += payload.len();
        let mut payload = payload.to_vec();
        let pass = |packet: &mut [u8], ecn: u8| {
            assert!(ecn < 4 && packet.len() >= 20);
            if let Ok(inner) = Inner::parse(packet) {
                assert_eq!(inner.length, packet.len());
            }
            out += packet.len();
        };
        reassembler.take(&mut payload, sequence, step & 3, pass, |_| {});
        assert!(reassembler.held() <= 256 * 1024);
    }
    assert!(out <= octets, "nothing comes out twice");
}

//! Any packets on a link with labels: what is delivered carried one label of the range, and sent again it says the same.
//!
//! Input: packets, each behind two bytes of length.

use std::time::Duration;

use levee_labelled::{Arrived, Filter, calipso, cipso};
use levee_policy::{CategorySet, Domain, Label, Range, TagForm};

/// Runs one input.
pub fn run(input: &[u8]) {
    let set = |categories| CategorySet::from_numbers(0..categories).expect("each is below the most");
    let label = |level, categories| Label::confidential(level, set(categories));
    let domain = Domain::new(16, TagForm::Ranged, [(0, 0), (1, 3), (2, 5)], (0..300).map(|n| (n, n)))
        .expect("one to one");
    let range = Range::new(label(0, 0), label(1, 200)).expect("the first is the lower");
    let mut filter = Filter::new(domain.clone(), range.clone());
    let hosts = [("0.0.0.0/1", label(0, 0)), ("10.0.0.0/8", label(1, 3)), ("::/1", label(1, 200))];
    let hosts = hosts.map(|(prefix, label)| (prefix.parse().expect("a prefix"), label));
    let mut beside = Filter::new(domain.clone(), range.clone()).beside(hosts);
    let (mut rest, mut packets) = (input, 0);
    while let Some((&[high, low], tail)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes([high & 7, low])).min(tail.len());
        let (packet, tail) = tail.split_at(length);
        rest = tail;
        packets += 1;
        match filter.receive(packet, Duration::from_secs(packets)) {
            Ok(Arrived::At(label, inner)) => {
                assert!(range.contains(&label) && inner.len() <= packet.len());
                if let Ok(sent) = filter.send(&label, &inner, usize::MAX) {
                    let again = filter.receive(&sent, Duration::from_secs(packets));
                    assert_eq!(again, Ok(Arrived::At(label, inner)));
                }
            }
            Ok(Arrived::Link) => {}
            Err(reason) => assert!(filter.drops().of(reason) > 0),
        }
        // Beside single-level hosts: what is delivered has a label of the range, and what leaves is no longer than its label makes it.
        if let Ok(Arrived::At(label, inner)) = beside.receive(packet, Duration::from_secs(packets)) {
            assert!(range.contains(&label) && inner.len() <= packet.len());
            let sent = beside.send(&label, &inner, usize::MAX);
            assert!(sent.is_err() || sent.is_ok_and(|sent| sent.len() >= inner.len()));
        }
        for read in [cipso::decode(&domain, packet), calipso::decode(&domain, packet)] {
            let Ok(label) = read else { continue };
            let option = calipso::encode(&domain, &label).expect("every label of the domain fits");
            assert_eq!(calipso::decode(&domain, &option), Ok(label));
        }
    }
}

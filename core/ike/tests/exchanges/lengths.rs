//! What an onlooker sees: the lengths of messages do not tell labels apart.

use super::*;

/// The lengths of all messages of an IKE SA with a child at this label, which is rekeyed and deleted; or refused.
fn lengths(label: &'static str, granted: bool) -> Vec<(Side, usize)> {
    let mut p = Pair::new(psk_configs(), 7);
    let ike = p.connect(A, None);
    p.run();
    if granted {
        for side in [A, B] {
            p.sides[side].allowed = vec![Some(label)];
        }
    }
    let child = p.child(A, Some(label));
    p.command(A, Command::CreateChild { ike, child });
    p.run();
    if granted {
        let (inbound, spi) = (p.children(A)[0].inbound, p.spi(A));
        p.command(A, Command::RekeyChild { ike, inbound, spi });
        p.run();
        p.command(A, Command::CloseChild { ike, inbound: spi });
        p.run();
        assert_eq!(p.children(A).len(), 2);
    }
    p.log.iter().map(|(side, datagram)| (*side, datagram.len())).collect()
}

fn named(length: usize) -> &'static str {
    Box::leak("L".repeat(length).into_boxed_str())
}

#[test]
fn no_length_of_a_message_tells_one_label_from_another() {
    let of_one = lengths(named(1), true);
    assert!(of_one.len() >= 10);
    for length in 2..=255 {
        assert_eq!(lengths(named(length), true), of_one, "a label of {length} octets");
    }
    // What differs is said of the exchange, not of the label.
    let sealed: std::collections::BTreeSet<usize> =
        of_one.iter().skip(2).map(|(_, length)| *length).collect();
    assert_eq!(sealed.len(), 1, "{of_one:?}");
}

#[test]
fn a_refusal_is_as_long_as_a_grant() {
    let (granted, refused) = (lengths(named(9), true), lengths(named(9), false));
    // IKE_SA_INIT, IKE_AUTH, CREATE_CHILD_SA.
    assert_eq!(refused, granted[..6]);
}

//! The choice of algorithms (RFC 7296 2.7), and additional key exchanges (RFC 9370).

use super::*;

#[test]
fn a_responder_that_wants_another_group_gets_it() {
    let mut configs = psk_configs();
    configs[1].ike[0].key_exchange = vec![KeyExchange::P384];
    configs[1].child[0].key_exchange = vec![KeyExchange::P256];
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A)[0].suite.key_exchange, Some(KeyExchange::P256));
}

#[test]
fn no_common_algorithm_fails_with_the_peers_reason() {
    let mut configs = psk_configs();
    configs[1].ike[0].encryption = vec![Encryption::ChaCha20Poly1305];
    configs[0].ike[0].encryption = vec![Encryption::Aes256Gcm16];
    let mut p = Pair::new(configs, 7);
    p.connect(A, None);
    p.pass(Duration::from_secs(3));
    assert_eq!(p.closed(A), [&CloseReason::Notified("NO_PROPOSAL_CHOSEN".into())]);
    assert!(p.sides[B].endpoint.is_empty());
    let counters = p.sides[B].endpoint.counters();
    assert!(counters.get(levee_ike::Drop::NoProposal) >= 1);
    assert_eq!(counters.get(levee_ike::Drop::Refused), 0, "counted once, and by its own reason");
}

#[test]
fn every_suite_works() {
    use Encryption::*;
    for (encryption, integrity) in [
        (Aes128Gcm16, None),
        (Aes256Gcm16, None),
        (ChaCha20Poly1305, None),
        (Aes128Cbc, Some(Integrity::HmacSha256)),
        (Aes256Cbc, Some(Integrity::HmacSha512)),
    ] {
        for prf in [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512] {
            for ke in [KeyExchange::P256, KeyExchange::P384, KeyExchange::X25519, KeyExchange::MlKem768] {
                let mut configs = psk_configs();
                for c in &mut configs {
                    c.ike[0].encryption = vec![encryption];
                    c.ike[0].integrity = integrity.into_iter().collect();
                    c.ike[0].prf = vec![prf];
                    c.ike[0].key_exchange = vec![ke];
                    c.child[0].encryption = vec![encryption];
                    c.child[0].integrity = integrity.into_iter().collect();
                }
                let mut p = Pair::new(configs, 7);
                let child = p.child(A, Some("SECRET"));
                p.connect(A, Some(child));
                p.run();
                p.assert_children_agree();
                assert_eq!(p.children(A).len(), 1, "{encryption:?} {prf:?} {ke:?}");
            }
        }
    }
}

#[test]
fn an_additional_post_quantum_key_exchange_is_mixed_in() {
    let mut configs = psk_configs();
    for c in &mut configs {
        c.ike[0].additional = vec![vec![KeyExchange::MlKem768], vec![KeyExchange::MlKem1024]];
    }
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 1);
    let suites: Vec<_> = p.take(A, |e| match e {
        Event::IkeEstablished { suite, .. } => Some(suite.additional.clone()),
        _ => None,
    });
    assert_eq!(suites, [vec![(0, KeyExchange::MlKem768), (1, KeyExchange::MlKem1024)]]);
}

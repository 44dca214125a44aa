//! Child SAs: labels, selectors, resources, addresses, deletion.

use super::*;

#[test]
fn a_labelled_child_has_its_label_on_both_sides_and_a_key_exchange_of_its_own() {
    let (p, ..) = connected(Some("SECRET"));
    p.assert_children_agree();
    let c = p.children(A);
    assert_eq!(c[0].label, Some(label("SECRET")));
    assert_eq!(c[0].suite.key_exchange, Some(KeyExchange::X25519));
    assert_eq!(c[0].role, Role::Initiator);
}

#[test]
fn a_first_child_in_ike_auth_comes_where_childless_sas_are_not_wanted() {
    let mut configs = psk_configs();
    configs[0].peers[0].childless = Childless::Never;
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 1);
    assert_eq!(p.children(A)[0].suite.key_exchange, None);
    assert_eq!(p.log.len(), 4);
}

#[test]
fn aggfrag_comes_where_both_ends_want_it_and_nowhere_else() {
    for (a, b) in [(true, true), (true, false), (false, true), (false, false)] {
        for childless in [Childless::Allow, Childless::Never] {
            let mut configs = psk_configs();
            configs[0].peers[0].childless = childless;
            let mut p = Pair::new(configs, 7);
            (p.sides[A].aggfrag, p.sides[B].aggfrag) = (a, b);
            let child = p.child(A, Some("SECRET"));
            p.connect(A, Some(child));
            p.run();
            let agreed = (a && b).then_some(Aggfrag { fragments: true });
            for side in [A, B] {
                assert_eq!(p.children(side).len(), 1);
                assert_eq!(p.children(side)[0].aggfrag, agreed, "{a} {b} {childless:?}");
            }
        }
    }
}

#[test]
fn an_ike_sa_has_so_many_children_and_no_more() {
    let mut configs = psk_configs();
    configs[1].limits.children = 2;
    let mut p = Pair::new(configs, 7);
    let ike = p.connect(A, None);
    p.run();
    for _ in 0..3 {
        let child = p.child(A, Some("SECRET"));
        p.command(A, Command::CreateChild { ike, child });
        p.run();
    }
    assert_eq!((p.children(A).len(), p.children(B).len()), (2, 2));
    assert_eq!(p.failed(A), [&ChildError::Notified("NO_ADDITIONAL_SAS".into())]);
    // One that goes makes room.
    let inbound = p.children(A)[0].inbound;
    p.command(A, Command::CloseChild { ike, inbound });
    let child = p.child(A, Some("SECRET"));
    p.command(A, Command::CreateChild { ike, child });
    p.run();
    assert_eq!(p.children(B).len(), 3);
}

#[test]
fn a_label_that_the_responder_does_not_grant_leaves_the_ike_sa_without_the_child() {
    let (mut p, a, _) = connected(None);
    let child = p.child(A, Some("TOPSECRET"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert_eq!(p.failed(A), [&ChildError::Notified("TS_UNACCEPTABLE".into())]);
    let child = p.child(A, Some("SECRET"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 1);
}

#[test]
fn a_missing_label_is_refused_where_labels_are_demanded() {
    let (mut p, a, _) = connected(None);
    p.sides[B].allowed.retain(Option::is_some);
    let child = p.child(A, None);
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert_eq!(p.failed(A), [&ChildError::Notified("TS_UNACCEPTABLE".into())]);
    assert!(p.children(B).is_empty());
}

#[test]
fn two_children_with_the_same_selectors_and_different_labels_live_side_by_side() {
    let (mut p, a, _) = connected(Some("SECRET"));
    let child = p.child(A, Some("CONFIDENTIAL"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 2);
    assert!(p.gone(A).is_empty() && p.gone(B).is_empty());
    assert!(p.children(A)[0].outbound_keys != p.children(A)[1].outbound_keys);
}

#[test]
fn children_for_a_resource_each_live_side_by_side_until_the_peer_wants_no_more() {
    let (mut p, a, b) = connected(Some("SECRET"));
    for n in 0..4u8 {
        let mut child = p.child(A, Some("SECRET"));
        child.resource = Resource::new(&[n]);
        p.command(A, Command::CreateChild { ike: a, child });
        p.run();
    }
    p.assert_children_agree();
    let told = |p: &Pair, side| p.children(side).iter().map(|c| c.resource.clone()).collect::<Vec<_>>();
    // The first was one that nobody named a resource for; of four more the responder takes three.
    assert_eq!(
        told(&p, A),
        [None, Some(resource("there")), Some(resource("there")), Some(resource("there"))]
    );
    assert_eq!(told(&p, B), [None, Resource::new(&[0]), Resource::new(&[1]), Resource::new(&[2])]);
    assert_eq!(p.failed(A), [&ChildError::Notified("TS_MAX_QUEUE".into())]);
    assert!(p.closed(A).is_empty() && p.gone(A).is_empty());
    // A successor is for the same resource, whoever asks, and is not counted again.
    for (side, ike) in [(A, a), (B, b)] {
        let old = p.children(side)[1].inbound;
        let spi = p.spi(side);
        p.command(side, Command::RekeyChild { ike, inbound: old, spi });
        p.run();
        if side == A {
            assert_eq!(p.children(B).last().map(|c| c.resource.clone()), Some(Resource::new(&[0])));
            // B's next is the one that has just come.
            p.sides[B].events.retain(|e| !matches!(e, Event::ChildEstablished(c) if c.outbound == old));
        }
    }
    assert_eq!((p.gone(A).len(), p.gone(B).len()), (2, 2));
    assert_eq!(told(&p, A).last(), Some(&Some(resource("there"))));
}

#[test]
fn a_resource_is_told_to_no_peer_that_named_none_and_its_name_is_short() {
    let (p, ..) = connected(Some("SECRET"));
    assert!(p.children(A)[0].resource.is_none() && p.children(B)[0].resource.is_none());
    assert!(Resource::new(&[0; 64]).is_some() && Resource::new(&[0; 65]).is_none());
}

#[test]
fn the_responder_narrows_the_selectors() {
    let (mut p, a, _) = connected(None);
    p.sides[B].local = net(2);
    p.sides[B].remote = net(3);
    let child = p.child(A, Some("SECRET"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    p.assert_children_agree();
    assert_eq!((&p.children(A)[0].local, &p.children(A)[0].remote), (&net(3), &net(2)));
}

#[test]
fn selectors_without_anything_in_common_are_refused() {
    let (mut p, a, _) = connected(None);
    p.sides[B].local = net(2);
    let mut child = p.child(A, Some("SECRET"));
    child.remote = net(9);
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert_eq!(p.failed(A), [&ChildError::Notified("TS_UNACCEPTABLE".into())]);
}

#[test]
fn deleting_a_child_ends_it_on_both_sides_and_frees_its_spi() {
    let (mut p, a, _) = connected(Some("SECRET"));
    let old = p.children(A)[0].inbound;
    p.command(A, Command::CloseChild { ike: a, inbound: old });
    p.run();
    assert_eq!(p.gone(A), [(old, ChildClosed::Local)]);
    assert_eq!(p.gone(B)[0].1, ChildClosed::Peer);
    let mut child = p.child(A, Some("SECRET"));
    child.spi = old;
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert_eq!(p.children(A).len(), 2);
}

#[test]
fn a_child_deleted_by_both_sides_at_once_is_gone_once() {
    let (mut p, a, b) = connected(Some("SECRET"));
    let (ia, ib) = (p.children(A)[0].inbound, p.children(B)[0].inbound);
    p.command(A, Command::CloseChild { ike: a, inbound: ia });
    p.command(B, Command::CloseChild { ike: b, inbound: ib });
    p.run();
    assert_eq!((p.gone(A).len(), p.gone(B).len()), (1, 1));
}

#[test]
fn an_address_is_assigned_to_who_asks() {
    let mut configs = psk_configs();
    configs[0].peers[0].childless = Childless::Never;
    let mut p = Pair::new(configs, 7);
    let (four, six): ([IpAddr; 2], [IpAddr; 2]) = (
        [[10, 9, 8, 7].into(), [10, 9, 8, 1].into()],
        [[0xfd00, 9, 0, 0, 0, 0, 8, 7].into(), [0xfd00, 9, 0, 0, 0, 0, 8, 1].into()],
    );
    let wide: IpAddr = [0_u16; 8].into();
    for (n, given) in [vec![four], vec![six], vec![four, six], vec![]].into_iter().enumerate() {
        let assign: Vec<_> = given
            .iter()
            .flat_map(|[address, dns]| [InnerAddress::Address(*address), InnerAddress::Dns(*dns)])
            .collect();
        let hosts: Vec<_> = given.iter().map(|[address, _]| Selector::host(*address)).collect();
        p.sides[B].assign = assign.clone();
        p.sides[B].remote = if hosts.is_empty() { any() } else { hosts.clone() };
        for asks in [true, false] {
            let mut child = p.child(A, Some("SECRET"));
            child.local.extend(Selector::subnet(wide, 0));
            child.want_address = asks;
            p.connect(A, Some(child));
            p.run();
            let got = p.take(A, |e| match e {
                Event::IkeEstablished { assigned, .. } => Some(assigned.clone()),
                _ => None,
            });
            assert_eq!(got.last(), Some(&if asks { assign.clone() } else { vec![] }), "{given:?} {asks}");
            let local = &p.children(A).last().expect("a child").local;
            assert_eq!(*local, if hosts.is_empty() { any() } else { hosts.clone() }, "{n}");
        }
    }
}

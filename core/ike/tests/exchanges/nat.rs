//! Peers that move, and translations of addresses between (RFC 7296 2.23).

use super::*;
use std::net::SocketAddr;

fn moves(p: &mut Pair, side: Side) -> Vec<Path> {
    p.take(side, |event| match event {
        Event::PathChanged { path, .. } => Some(*path),
        _ => None,
    })
}

/// Runs, while what B sends comes from elsewhere, and what A sends is taken for `seen`'s if there is one.
fn run(p: &mut Pair, b: SocketAddr, seen: Option<SocketAddr>) {
    loop {
        p.drain(A);
        p.drain(B);
        let Some((to, path, datagram)) = p.wire.pop_front() else { return };
        let here = p.sides[A].address;
        let path = match to {
            B => Path { local: seen.unwrap_or(path.local), ..path },
            _ => Path { local: b, remote: here, ..path },
        };
        p.deliver(to, path, &datagram);
    }
}

#[test]
fn who_is_reached_elsewhere_is_told_of_once_and_answered_there() {
    let (mut p, a, _) = connected(None);
    p.command(A, Command::Probe { ike: a });
    p.run();
    assert!(moves(&mut p, A).is_empty() && moves(&mut p, B).is_empty(), "nobody has moved");
    let elsewhere = SocketAddr::from(([198, 51, 100, 9], 4511));
    for _ in 0..2 {
        p.command(A, Command::Probe { ike: a });
        let b = p.sides[B].address;
        run(&mut p, b, Some(elsewhere));
    }
    let there = Path { local: p.sides[B].address, remote: elsewhere, marker: true };
    assert_eq!(moves(&mut p, B), [there], "once");
    let b = p.established(B)[0];
    p.command(B, Command::Probe { ike: b });
    p.drain(B);
    assert_eq!(p.wire.pop_front().expect("a request").1, there);
}

#[test]
fn who_is_behind_a_translation_follows_nobody_and_who_is_not_does() {
    // "A host behind a NAT SHOULD NOT do this type of dynamic address update if a validated packet has different port and/or address
    // values": an attacker in its own network could have changed them.
    let elsewhere = SocketAddr::from(([203, 0, 113, 7], 4500));
    for behind in [false, true] {
        let mut configs = psk_configs();
        for config in &mut configs {
            config.force_udp = false;
        }
        let mut p = Pair::new(configs, 7);
        let child = p.child(A, Some("SECRET"));
        let a = p.connect(A, Some(child));
        let b = p.sides[B].address;
        let seen = behind.then(|| SocketAddr::from(([198, 51, 100, 9], 4511)));
        // IKE_SA_INIT.
        for side in [A, B] {
            p.drain(side);
            let (to, path, datagram) = p.wire.pop_front().expect("a message");
            let path = if side == A {
                Path { local: seen.unwrap_or(path.local), ..path }
            } else {
                Path { local: b, remote: p.sides[A].address, ..path }
            };
            p.deliver(to, path, &datagram);
        }
        // What B answers to IKE_AUTH comes from elsewhere.
        run(&mut p, elsewhere, seen);
        let path = p.take(A, |event| match event {
            Event::IkeEstablished { path, .. } => Some(*path),
            _ => None,
        });
        let remote = if behind { b } else { elsewhere };
        assert_eq!(path, [Path { remote, ..p.path(A) }], "{behind}");
        assert_eq!(p.children(A)[0].udp, behind);
        p.command(A, Command::Probe { ike: a });
        run(&mut p, SocketAddr::from(([203, 0, 113, 8], 4500)), seen);
        assert_eq!(moves(&mut p, A).len(), usize::from(!behind), "{behind}");
    }
}

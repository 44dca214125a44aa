//! levee's IKEv2 against strongSwan 5.9.8, as initiator and as responder. After each negotiation a ping goes through the child.

use levee_ike::*;
use levee_ike_interop::*;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(15);

/// A connection of strongSwan: authentication, and more lines for the connection and for its child.
fn connection(auth: &str, more: &str, child: &str) -> String {
    format!(
        "connections {{ c {{
  version = 2
  local_addrs = {THEIRS}
  remote_addrs = {OURS}
  proposals = aes256gcm16-prfsha384-x25519, aes128gcm16-prfsha256-ecp256
  {auth}
  {more}
  children {{ net {{
    local_ts = 10.9.2.0/24
    remote_ts = 10.9.1.0/24
    esp_proposals = aes256gcm16-x25519
    {child}
  }} }}
}} }}
secrets {{ ike-1 {{ id-1 = swan.test
  id-2 = levee.test
  secret = \"a shared key of some length\" }} }}
"
    )
}

const PSK: &str = "local { auth = psk
  id = swan.test }
  remote { auth = psk
  id = levee.test }";
const CERT: &str = "local { auth = pubkey
  certs = swan.pem
  id = swan.test }
  remote { auth = pubkey
  id = levee.test }";
const LABEL: &str = "label = SECRET
  label_mode = simple";

fn fqdn(s: &str) -> Identity {
    Identity::Fqdn(s.to_owned())
}

fn psk_peer() -> Peer {
    let key = b"a shared key of some length".to_vec();
    Peer {
        local_id: fqdn("levee.test"),
        remote_id: RemoteId::Exactly(fqdn("swan.test")),
        local_auth: LocalAuth::SharedKey(key.clone().into()),
        remote_auth: RemoteAuth::SharedKey(key.into()),
        childless: Childless::Allow,
        ppk: None,
    }
}

fn cert_peer(key: &Key, anchors: TrustAnchors) -> Peer {
    Peer {
        local_id: fqdn("levee.test"),
        remote_id: RemoteId::AnyCertified,
        local_auth: LocalAuth::Certificate { chain: key.chain.clone(), schemes: key.schemes() },
        remote_auth: RemoteAuth::Certificate {
            anchors: Arc::new(anchors),
            schemes: SignatureScheme::DEFAULT.to_vec(),
        },
        childless: Childless::Allow,
        ppk: None,
    }
}

/// Waits for the `n`th child and pings through it.
fn flows(host: &mut Host, swan: &Swan, n: usize) {
    flows_to(host, swan, n, [10, 9, 2, 1]);
}

/// As [`flows`], to another address on strongSwan's side.
fn flows_to(host: &mut Host, swan: &Swan, n: usize, to: [u8; 4]) {
    let came = host.run(PATIENCE, |h| h.children().len() >= n);
    assert!(came, "no child {n}: {:?}\n{:?}\n{}", host.events, host.endpoint.counters(), swan.log());
    let mut tunnel = Tunnel::new(host.children()[n - 1]);
    tunnel.to = to;
    assert!(tunnel.ping(host), "no traffic: {:?}\n{}\n{}", host.children(), swan.sas(), swan.log());
}

fn psk(child: &str, more: &str) -> (Net, Host, Swan) {
    let net = Net::new();
    let host = Host::new(&net, Config::new(vec![psk_peer()]), None);
    let swan = Swan::start(&net, &connection(PSK, more, child), &Tuning::default(), &[], &[]);
    (net, host, swan)
}

#[test]
fn as_initiator_with_a_shared_key_and_a_label() {
    let (_net, mut host, swan) = psk(LABEL, "childless = allow");
    let child = host.child(Some("SECRET"));
    host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    let c = host.children();
    assert_eq!(c[0].label, Some(label("SECRET")));
    assert_eq!(
        c[0].suite.key_exchange,
        Some(KeyExchange::X25519),
        "childless, so the child has its own key exchange"
    );
    assert!(swan.sas().contains("label SECRET") || swan.log().contains("SECRET"), "{}", swan.sas());
    assert!(swan.log().contains("N(INIT_CONTACT)"), "{}", swan.log());
}

#[test]
fn as_responder_with_a_shared_key_and_a_label() {
    let (_net, mut host, swan) = psk(LABEL, "");
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    flows(&mut host, &swan, 1);
    assert_eq!(host.children()[0].label, Some(label("SECRET")));
    asked.wait().expect("swanctl");
    let first = |e: &Event| matches!(e, Event::IkeEstablished { initial_contact: true, .. });
    assert!(host.events.iter().any(first), "{:?}", host.events);
}

#[test]
fn as_initiator_from_port_500_the_way_goes_on_over_4500() {
    let (_net, mut host, swan) = psk("", "childless = never");
    let child = host.child(None);
    host.connect(500, Some(child));
    flows(&mut host, &swan, 1);
    assert!(host.children()[0].path.marker);
    assert_eq!(host.children()[0].suite.key_exchange, None, "a first child in IKE_AUTH");
}

/// Both sides with certificates of one kind under one root.
fn certified(kind: KeyKind, padding: usize, fragment_above: usize, more: &str) -> (Net, Host, Swan) {
    let net = Net::new();
    let root = Authority::new("root", kind);
    let (ours, theirs) = if padding == 0 {
        (root.issue("levee.test", kind), root.issue("swan.test", kind))
    } else {
        let middle = root.below("middle", kind, padding);
        let lower = middle.below("lower", kind, padding);
        (lower.issue("levee.test", kind), lower.issue("swan.test", kind))
    };
    let anchors = TrustAnchors::new(std::slice::from_ref(&root.der), &[]).expect("anchors");
    let mut config = Config::new(vec![cert_peer(&ours, anchors)]);
    config.limits.fragment_above = fragment_above;
    let swan =
        Swan::start(&net, &connection(CERT, more, LABEL), &Tuning::default(), &[("swan", &theirs)], &[&root]);
    let host = Host::new(&net, config, Some(ours));
    (net, host, swan)
}

fn certificates_work_both_ways(kind: KeyKind) {
    let (net, mut host, swan) = certified(kind, 0, 1232, "send_cert = always");
    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    host.command(Command::CloseIke { ike });
    assert!(host.run(PATIENCE, |h| h.closed() == [&CloseReason::Local]), "{:?}", host.events);
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    flows(&mut host, &swan, 2);
    asked.wait().expect("swanctl");
    let certificate = host.events.iter().rev().find_map(|e| match e {
        Event::IkeEstablished { identity, .. } => identity.certificate.clone(),
        _ => None,
    });
    assert!(
        certificate.is_some_and(|c| c.extension("2.5.29.17").is_some()),
        "the peer's certificate is handed up"
    );
    drop(net);
}

#[test]
fn certificates_with_p256_work_in_both_roles() {
    certificates_work_both_ways(KeyKind::P256);
}

#[test]
fn certificates_with_p384_work_in_both_roles() {
    certificates_work_both_ways(KeyKind::P384);
}

#[test]
fn certificates_with_ed25519_work_in_both_roles() {
    certificates_work_both_ways(KeyKind::Ed25519);
}

#[test]
fn certificates_with_rsa_and_pss_work_in_both_roles() {
    certificates_work_both_ways(KeyKind::Rsa);
}

#[test]
fn a_chain_too_large_for_one_datagram_goes_in_fragments_both_ways() {
    let (_net, mut host, swan) =
        certified(KeyKind::Rsa, 60, 800, "send_cert = always\n  fragmentation = force");
    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    assert!(swan.log().contains("received fragment #"), "our request came in fragments");
    assert!(swan.log().contains("splitting IKE message"), "its response went in fragments");
    host.command(Command::CloseIke { ike });
    assert!(host.run(PATIENCE, |h| !h.closed().is_empty()));
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    flows(&mut host, &swan, 2);
    asked.wait().expect("swanctl");
}

#[test]
fn a_certificate_of_another_root_is_refused_in_both_roles() {
    let net = Net::new();
    let (root, other) = (Authority::new("root", KeyKind::P256), Authority::new("other", KeyKind::P256));
    let (ours, theirs) = (root.issue("levee.test", KeyKind::P256), other.issue("swan.test", KeyKind::P256));
    let anchors = TrustAnchors::new(std::slice::from_ref(&root.der), &[]).expect("anchors");
    let config = Config::new(vec![cert_peer(&ours, anchors)]);
    let text = connection(CERT, "send_cert = always", LABEL);
    let swan = Swan::start(&net, &text, &Tuning::default(), &[("swan", &theirs)], &[&root, &other]);
    let mut host = Host::new(&net, config, Some(ours));
    host.connect(4500, None);
    assert!(host.run(PATIENCE, |h| !h.closed().is_empty()));
    assert!(
        matches!(host.closed()[0], CloseReason::Certificate(CertificateError::Path(_))),
        "{:?}",
        host.closed()
    );
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    assert!(host.run(PATIENCE, |h| h.closed().len() == 2));
    assert!(
        matches!(host.closed()[1], CloseReason::Certificate(CertificateError::Path(_))),
        "{:?}",
        host.closed()
    );
    asked.wait().expect("swanctl");
    assert!(host.children().is_empty() && host.established().is_empty());
}

/// strongSwan with a PPK, needed or not.
fn with_ppk(required: bool) -> String {
    let required = if required { "yes" } else { "no" };
    connection(PSK, &format!("ppk_id = the-ppk\n  ppk_required = {required}"), LABEL)
        .replace("secrets {", "secrets { ppk-1 { id = the-ppk\n  secret = \"post-quantum preshared key\" }")
}

/// Whether each IKE SA that was established has a PPK in its keys.
fn ppks(host: &Host) -> Vec<bool> {
    let ppk = |e: &Event| match e {
        Event::IkeEstablished { ppk, .. } => Some(ppk.is_some()),
        _ => None,
    };
    host.events.iter().filter_map(ppk).collect()
}

#[test]
fn a_ppk_works_in_both_roles_and_is_needed() {
    let key = "post-quantum preshared key";
    for (ours, works) in [(Some(key), true), (Some("another"), false), (None, false)] {
        let net = Net::new();
        let mut peer = psk_peer();
        peer.ppk = ours.map(|_| Ppk { id: b"the-ppk".to_vec(), former: None, mandatory: true });
        let mut host = Host::new(&net, Config::new(vec![peer]), None);
        host.ppks.extend(ours.map(|key| (b"the-ppk".to_vec(), key.as_bytes().to_vec())));
        let swan = Swan::start(&net, &with_ppk(true), &Tuning::default(), &[], &[]);
        let child = host.child(Some("SECRET"));
        let ike = host.connect(4500, Some(child));
        if works {
            flows(&mut host, &swan, 1);
            host.command(Command::CloseIke { ike });
        }
        assert!(host.run(PATIENCE, |h| h.closed().len() == 1), "{:?}\n{}", host.events, swan.log());
        let mut asked = swan.ask(&["--initiate", "--child", "net"]);
        if works {
            flows(&mut host, &swan, 2);
            assert_eq!(ppks(&host), [true, true]);
        } else {
            assert!(!host.run(Duration::from_secs(2), |h| !h.established().is_empty()));
            assert!(host.children().is_empty());
        }
        drop(swan);
        asked.wait().expect("swanctl");
    }
}

#[test]
fn an_initiator_that_can_do_without_its_ppk_does_so_unless_ours_is_mandatory() {
    // What we share with it, what strongSwan has, and whether there is an IKE SA, with a PPK in its keys.
    for (ours, theirs, comes) in [
        // It proves itself with and without (NO_PPK_AUTH), and we share another PPK with it: without.
        (Some(("another-ppk", false)), Some(false), Some(false)),
        (Some(("another-ppk", true)), Some(false), None),
        // It insists on its own.
        (Some(("another-ppk", false)), Some(true), None),
        // The same PPK, which nobody insists on.
        (Some(("the-ppk", false)), Some(false), Some(true)),
        // It has none.
        (Some(("the-ppk", false)), None, Some(false)),
        (Some(("the-ppk", true)), None, None),
    ] {
        let net = Net::new();
        let mut peer = psk_peer();
        peer.ppk = ours.map(|(id, mandatory)| Ppk { id: id.as_bytes().to_vec(), former: None, mandatory });
        let mut host = Host::new(&net, Config::new(vec![peer]), None);
        host.ppks.insert(b"the-ppk".to_vec(), b"post-quantum preshared key".to_vec());
        host.ppks.insert(b"another-ppk".to_vec(), b"another".to_vec());
        let text = theirs.map_or_else(|| connection(PSK, "", LABEL), with_ppk);
        let swan = Swan::start(&net, &text, &Tuning::default(), &[], &[]);
        let mut asked = swan.ask(&["--initiate", "--child", "net"]);
        match comes {
            Some(ppk) => {
                flows(&mut host, &swan, 1);
                assert_eq!(ppks(&host), [ppk], "{ours:?} {theirs:?}");
            }
            None => {
                let closed = host.run(PATIENCE, |h| h.closed().len() == 1);
                assert!(closed, "{ours:?} {theirs:?}: {:?}\n{}", host.events, swan.log());
                assert!(host.established().is_empty() && host.children().is_empty());
            }
        }
        drop(swan);
        asked.wait().expect("swanctl");
    }
}

#[test]
fn childless_only_on_both_sides_gives_children_with_key_exchanges_of_their_own() {
    let net = Net::new();
    let mut peer = psk_peer();
    peer.childless = Childless::Force;
    let mut host = Host::new(&net, Config::new(vec![peer]), None);
    let swan = Swan::start(&net, &connection(PSK, "childless = force", LABEL), &Tuning::default(), &[], &[]);
    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    host.command(Command::CloseIke { ike });
    assert!(host.run(PATIENCE, |h| !h.closed().is_empty()));
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    flows(&mut host, &swan, 2);
    asked.wait().expect("swanctl");
    assert!(host.children().iter().all(|c| c.suite.key_exchange == Some(KeyExchange::X25519)));
}

#[test]
fn labels_that_differ_or_are_missing_are_refused_by_either_side_and_the_ike_sa_stays() {
    // strongSwan grants SECRET only; we ask for others.
    let (_net, mut host, swan) = psk(LABEL, "childless = allow");
    host.connect(4500, None);
    assert!(host.run(PATIENCE, |h| h.established().len() == 1), "{}", swan.log());
    let ike = host.established()[0];
    for l in [Some("TOPSECRET"), Some("SECRE"), Some("SECRETS"), None] {
        let before = host.failures().len();
        let child = host.child(l);
        host.command(Command::CreateChild { ike, child });
        assert!(host.run(PATIENCE, |h| h.failures().len() > before), "{l:?}: {:?}", host.events);
        let refused = ["TS_UNACCEPTABLE", "NO_PROPOSAL_CHOSEN"].map(|n| ChildError::Notified(n.into()));
        assert!(refused.contains(host.failures()[before]), "{l:?}: {:?}", host.failures());
    }
    assert!(host.children().is_empty() && host.closed().is_empty());
    let child = host.child(Some("SECRET"));
    host.command(Command::CreateChild { ike, child });
    flows(&mut host, &swan, 1);
    drop(swan);

    // strongSwan asks for a label that we do not grant, and for none where we demand one.
    for (text, allowed) in [(LABEL, vec![Some("TOPSECRET")]), ("", vec![Some("SECRET")])] {
        let (_net, mut host, swan) = psk(text, "");
        host.allowed = allowed;
        let mut asked = swan.ask(&["--initiate", "--child", "net"]);
        assert!(host.run(PATIENCE, |h| h.requests == 1 && h.established().len() == 1));
        asked.wait().expect("swanctl");
        host.run(Duration::from_millis(200), |_| false);
        assert!(host.children().is_empty() && host.closed().is_empty(), "{:?}", host.events);
        assert!(swan.sas().contains("ESTABLISHED"), "{}", swan.sas());
        assert!(swan.log().contains("TS_UNACCEPTABLE"), "{}", swan.log());
        // Once it may have what it asks for, it is given it over the same IKE SA.
        host.allowed = vec![Some("SECRET"), None];
        let mut asked = swan.ask(&["--initiate", "--child", "net"]);
        flows(&mut host, &swan, 1);
        asked.wait().expect("swanctl");
        assert_eq!((host.established().len(), host.requests), (1, 2));
    }
}

#[test]
fn children_and_the_ike_sa_are_rekeyed_from_each_side() {
    let (_net, mut host, swan) = psk(LABEL, "childless = allow");
    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);

    let (inbound, spi) = (host.children()[0].inbound, host.spi());
    host.command(Command::RekeyChild { ike, inbound, spi });
    assert!(host.run(PATIENCE, |h| h.ended() == [(inbound, ChildClosed::Rekeyed)]), "{:?}", host.events);
    flows(&mut host, &swan, 2);

    host.command(Command::RekeyIke { ike });
    let rekeyed = |h: &Host| h.events.iter().filter(|e| matches!(e, Event::IkeRekeyed { .. })).count();
    assert!(
        host.run(PATIENCE, |h| rekeyed(h) == 1 && h.endpoint.len() == 1),
        "{:?}\n{}",
        host.events,
        swan.log()
    );
    flows(&mut host, &swan, 2);

    let mut asked = swan.ask(&["--rekey", "--child", "net"]);
    flows(&mut host, &swan, 3);
    asked.wait().expect("swanctl");
    assert_eq!(host.children()[2].rekeys, Some(spi));
    assert!(host.run(PATIENCE, |h| h.ended().len() == 2), "{:?}", host.events);

    let mut asked = swan.ask(&["--rekey", "--ike", "c"]);
    assert!(
        host.run(PATIENCE, |h| rekeyed(h) == 2 && h.endpoint.len() == 1),
        "{:?}\n{}",
        host.events,
        swan.log()
    );
    asked.wait().expect("swanctl");
    flows(&mut host, &swan, 3);
    assert!(host.children().iter().all(|c| c.label == Some(label("SECRET"))));

    let (inbound, spi) = (host.children()[2].inbound, host.spi());
    host.command(Command::RekeyChild { ike, inbound, spi });
    flows(&mut host, &swan, 4);
    assert!(host.closed().is_empty());
}

#[test]
fn children_and_the_ike_sa_are_deleted_from_each_side() {
    let (_net, mut host, swan) = psk(LABEL, "childless = allow");
    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    let inbound = host.children()[0].inbound;
    host.command(Command::CloseChild { ike, inbound });
    assert!(host.run(PATIENCE, |h| h.ended() == [(inbound, ChildClosed::Local)]));
    assert!(!swan.sas().contains("INSTALLED"), "{}", swan.sas());

    let child = host.child(Some("SECRET"));
    host.command(Command::CreateChild { ike, child });
    flows(&mut host, &swan, 2);
    let mut asked = swan.ask(&["--terminate", "--child", "net"]);
    let inbound = host.children()[1].inbound;
    assert!(
        host.run(PATIENCE, |h| h.ended().get(1) == Some(&(inbound, ChildClosed::Peer))),
        "{:?}",
        host.events
    );
    asked.wait().expect("swanctl");
    let child = host.child(Some("SECRET"));
    host.command(Command::CreateChild { ike, child });
    flows(&mut host, &swan, 3);

    let mut asked = swan.ask(&["--terminate", "--ike", "c"]);
    assert!(host.run(PATIENCE, |h| h.closed() == [&CloseReason::Peer]), "{:?}", host.events);
    asked.wait().expect("swanctl");
    assert!(host.endpoint.is_empty());

    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 4);
    host.command(Command::CloseIke { ike });
    assert!(host.run(PATIENCE, |h| h.closed().len() == 2));
    assert!(!swan.sas().contains("ESTABLISHED"), "{}", swan.sas());
    let child = host.child(Some("SECRET"));
    host.connect(4500, Some(child));
    flows(&mut host, &swan, 5);
}

#[test]
fn cookies_are_asked_for_and_given() {
    // strongSwan asks: from the first half-open SA on.
    let net = Net::new();
    let tuning =
        Tuning { charon: "cookie_threshold = 1\n  cookie_threshold_ip = 1".into(), ..Tuning::default() };
    let mut host = Host::new(&net, Config::new(vec![psk_peer()]), None);
    let swan = Swan::start(&net, &connection(PSK, "childless = allow", LABEL), &tuning, &[], &[]);
    // One that goes no further: it is half-open there when the next comes.
    let stray = host.connect(4500, None);
    host.command(Command::CloseIke { ike: stray });
    assert!(host.run(PATIENCE, |h| h.received == 1), "{}", swan.log());
    let child = host.child(Some("SECRET"));
    host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    assert!(swan.log().contains("N(COOKIE)"), "{}", swan.log());
    drop(swan);
    drop(host);

    // We ask: always.
    let mut config = Config::new(vec![psk_peer()]);
    config.limits.cookie_above = 0;
    let net = Net::new();
    let mut host = Host::new(&net, config, None);
    let swan = Swan::start(&net, &connection(PSK, "", LABEL), &Tuning::default(), &[], &[]);
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    flows(&mut host, &swan, 1);
    asked.wait().expect("swanctl");
    assert_eq!(host.endpoint.counters().get(Drop::Cookie), 1);
    assert!(swan.log().contains("COOKIE"), "{}", swan.log());
}

#[test]
fn the_first_offered_group_is_corrected_by_either_side() {
    let net = Net::new();
    let mut config = Config::new(vec![psk_peer()]);
    config.ike[0].key_exchange = vec![KeyExchange::P384, KeyExchange::P256];
    config.ike[0].prf = vec![Prf::HmacSha256];
    config.ike[0].encryption = vec![Encryption::Aes128Gcm16];
    let mut host = Host::new(&net, config, None);
    let swan = Swan::start(&net, &connection(PSK, "childless = allow", LABEL), &Tuning::default(), &[], &[]);
    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    host.command(Command::CloseIke { ike });
    assert!(host.run(PATIENCE, |h| !h.closed().is_empty()));
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    flows(&mut host, &swan, 2);
    asked.wait().expect("swanctl");
    assert!(swan.log().contains("INVAL_KE"), "{}", swan.log());
}

#[test]
fn where_ml_kem_is_preferred_a_peer_without_it_takes_the_other_proposal() {
    let net = Net::new();
    let mut config = Config::new(vec![psk_peer()]);
    let plain = IkeProposal::default();
    config.ike = vec![IkeProposal { additional: vec![vec![KeyExchange::MlKem768]], ..plain.clone() }, plain];
    let mut host = Host::new(&net, config, None);
    let swan = Swan::start(&net, &connection(PSK, "childless = allow", LABEL), &Tuning::default(), &[], &[]);
    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    let suite = |event: &Event| match event {
        Event::IkeEstablished { suite, .. } | Event::IkeRekeyed { suite, .. } => Some(suite.clone()),
        _ => None,
    };
    host.command(Command::RekeyIke { ike });
    assert!(
        host.run(PATIENCE, |h| h.events.iter().filter_map(suite).count() == 2 && h.endpoint.len() == 1),
        "{:?}\n{}",
        host.events,
        swan.log()
    );
    assert!(host.events.iter().filter_map(suite).all(|suite| suite.additional.is_empty()));
    let child = host.child(Some("SECRET"));
    host.command(Command::CreateChild { ike, child });
    flows(&mut host, &swan, 2);
}

#[test]
fn each_side_notices_that_the_other_is_dead() {
    let net = Net::new();
    let mut config = Config::new(vec![psk_peer()]);
    config.timers.liveness = Some(Duration::from_secs(1));
    config.timers.retransmit = Duration::from_millis(200);
    config.timers.tries = 3;
    let mut host = Host::new(&net, config, None);
    let text =
        connection(PSK, "childless = allow\n  dpd_delay = 1s", &format!("{LABEL}\n  dpd_action = clear"));
    let tuning = Tuning { charon: "retransmit_base = 1.1".into(), ..Tuning::default() };
    let swan = Swan::start(&net, &text, &tuning, &[], &[]);
    let child = host.child(Some("SECRET"));
    host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    // Both live, both ask, both answer.
    assert!(!host.run(Duration::from_secs(3), |h| !h.closed().is_empty()), "{:?}", host.closed());
    flows(&mut host, &swan, 1);
    // We fall silent: strongSwan notices.
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while swan.sas().contains("ESTABLISHED") {
        assert!(std::time::Instant::now() < end, "strongSwan does not notice: {}", swan.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    // We come again, and notice that nobody has the other end of what we had.
    let child = host.child(Some("SECRET"));
    host.connect(4500, Some(child));
    flows(&mut host, &swan, 2);
    assert!(host.run(PATIENCE, |h| h.closed() == [&CloseReason::PeerSilent]), "{:?}", host.events);
    drop(swan);
    // It is gone: we notice, and find another in its place.
    assert!(host.run(PATIENCE, |h| h.closed() == [&CloseReason::PeerSilent; 2]), "{:?}", host.events);
    let swan = Swan::start(&net, &text, &tuning, &[], &[]);
    let child = host.child(Some("SECRET"));
    host.connect(4500, Some(child));
    flows(&mut host, &swan, 3);
}

#[test]
fn an_inner_address_is_assigned_to_a_client_that_asks() {
    let net = Net::new();
    let mut host = Host::new(&net, Config::new(vec![psk_peer()]), None);
    let text =
        connection(PSK, "vips = 0.0.0.0,::", LABEL).replace("local_ts = 10.9.2.0/24", "local_ts = dynamic");
    let swan = Swan::start(&net, &text, &Tuning::default(), &[], &[]);
    let inner = [[10, 9, 2, 77].into(), "fd00:2::77".parse().expect("an address")];
    host.assign = inner.map(InnerAddress::Address).to_vec();
    host.remote = inner.map(Selector::host).to_vec();
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    flows_to(&mut host, &swan, 1, [10, 9, 2, 77]);
    asked.wait().expect("swanctl");
    assert_eq!(host.children()[0].remote, inner.map(Selector::host));
    let sas = swan.sas();
    assert!(sas.contains("10.9.2.77") && sas.contains("fd00:2::77"), "{sas}");
}

#[test]
fn with_us_behind_a_nat_that_changes_ports_traffic_flows() {
    let net = Net::with_nat(Behind::Us);
    let mut config = Config::new(vec![psk_peer()]);
    // Nothing is pretended: the NAT is found by its hashes.
    config.force_udp = false;
    let mut host = Host::new(&net, config, None);
    let swan = Swan::start(&net, &connection(PSK, "childless = allow", LABEL), &Tuning::default(), &[], &[]);
    let child = host.child(Some("SECRET"));
    let ike = host.connect(500, Some(child));
    flows(&mut host, &swan, 1);
    assert!(swan.log().contains("remote host is behind NAT"), "{}", swan.log());
    assert!(swan.sas().contains(&format!("{OURS}[2")), "a port of the NAT's: {}", swan.sas());
    assert_eq!(host.children()[0].path.local, (INSIDE, 4500).into());
    // And what strongSwan begins comes back the same way.
    let mut asked = swan.ask(&["--rekey", "--child", "net"]);
    flows(&mut host, &swan, 2);
    asked.wait().expect("swanctl");
    host.command(Command::RekeyIke { ike });
    let rekeyed = |h: &Host| h.events.iter().any(|e| matches!(e, Event::IkeRekeyed { .. }));
    assert!(host.run(PATIENCE, |h| rekeyed(h) && h.endpoint.len() == 1), "{:?}", host.events);
    flows(&mut host, &swan, 2);
}

#[test]
fn with_strongswan_behind_a_nat_that_changes_ports_traffic_flows() {
    let net = Net::with_nat(Behind::Them);
    let mut host = Host::new(&net, Config::new(vec![psk_peer()]), None);
    let text = connection(PSK, "", LABEL)
        .replace(&format!("local_addrs = {THEIRS}"), &format!("local_addrs = {INSIDE}"));
    let swan = Swan::start(&net, &text, &Tuning::default(), &[], &[]);
    let mut asked = swan.ask(&["--initiate", "--child", "net"]);
    flows(&mut host, &swan, 1);
    asked.wait().expect("swanctl");
    let path = host.children()[0].path;
    assert_eq!(path.remote.ip(), std::net::IpAddr::from(THEIRS), "the NAT's address");
    assert!(path.remote.port() >= 20000, "the NAT's port: {path:?}");
    assert!(swan.log().contains("local host is behind NAT"), "{}", swan.log());
    // We begin something through the NAT's mapping.
    let (ike, inbound, spi) = (host.established()[0], host.children()[0].inbound, host.spi());
    host.command(Command::RekeyChild { ike, inbound, spi });
    flows(&mut host, &swan, 2);
}

#[test]
fn rekeyings_of_both_sides_at_once_leave_one_child_and_one_ike_sa() {
    let net = Net::new();
    let mut config = Config::new(vec![psk_peer()]);
    // charon's threads may take our deletion of the old SA before our answer to its rekeying: then it forgets an SA that
    // we have, and ours goes when that time is over.
    config.timers.half_open = Duration::from_secs(2);
    let mut host = Host::new(&net, config, None);
    let swan = Swan::start(&net, &connection(PSK, "childless = allow", LABEL), &Tuning::default(), &[], &[]);
    let child = host.child(Some("SECRET"));
    let ike = host.connect(4500, Some(child));
    flows(&mut host, &swan, 1);
    for round in 1..=4 {
        let rekeyed = |h: &Host| h.events.iter().filter(|e| matches!(e, Event::IkeRekeyed { .. })).count();
        let before = rekeyed(&host);
        let mut asked = swan.ask(&["--rekey", "--ike", "c"]);
        host.run(Duration::from_millis(4 * round), |_| false);
        host.command(Command::RekeyIke { ike });
        assert!(
            host.run(PATIENCE, |h| rekeyed(h) > before && h.endpoint.len() == 1),
            "{:?}\n{}",
            host.events,
            swan.log()
        );
        asked.wait().expect("swanctl");
        flows(&mut host, &swan, 1);
    }
    assert!(host.closed().is_empty(), "{:?}", host.closed());
    let (inbound, spi) = (host.children()[0].inbound, host.spi());
    let mut asked = swan.ask(&["--rekey", "--child", "net"]);
    host.run(Duration::from_millis(8), |_| false);
    // They cross, unless strongSwan was so quick that the child is replaced already.
    let crossing = host.try_command(Command::RekeyChild { ike, inbound, spi });
    assert!(matches!(crossing, Ok(()) | Err(CommandError::NoSuchChild)), "{crossing:?}");
    asked.wait().expect("swanctl");
    let alive = |h: &Host| h.children().len() - h.ended().len();
    assert!(host.run(PATIENCE, |h| h.children().len() > 1 && alive(h) == 1), "{:?}", host.events);
    let gone: Vec<u32> = host.ended().iter().map(|e| e.0).collect();
    let left = host.children().iter().position(|c| !gone.contains(&c.inbound)).expect("one");
    let tunnel = Tunnel::new(host.children()[left]);
    assert!(tunnel.ping(&mut host), "{:?}\n{}", host.events, swan.sas());
}

#[test]
fn a_revoked_certificate_is_refused_and_so_is_one_without_a_current_list() {
    for (revoked, stale, works) in
        [(vec![4711], false, false), (vec![4712], false, true), (vec![4712], true, false)]
    {
        let net = Net::new();
        let root = Authority::new("root", KeyKind::P256);
        let ours = root.issue("levee.test", KeyKind::P256);
        let theirs = root.issue_numbered("swan.test", KeyKind::P256, Some(4711));
        let anchors = TrustAnchors::new(std::slice::from_ref(&root.der), &[root.revoke(&revoked, stale)]);
        let config = Config::new(vec![cert_peer(&ours, anchors.expect("anchors"))]);
        let text = connection(CERT, "send_cert = always", LABEL);
        let swan = Swan::start(&net, &text, &Tuning::default(), &[("swan", &theirs)], &[&root]);
        let mut host = Host::new(&net, config, Some(ours));
        let mut asked = swan.ask(&["--initiate", "--child", "net"]);
        if works {
            flows(&mut host, &swan, 1);
        } else {
            assert!(host.run(PATIENCE, |h| !h.closed().is_empty()), "{}", swan.log());
            let why = host.closed()[0];
            assert!(
                matches!(
                    why,
                    CloseReason::Certificate(CertificateError::Path(_) | CertificateError::Revoked)
                ),
                "{why:?}"
            );
            assert!(host.established().is_empty());
        }
        asked.wait().expect("swanctl");
    }
}

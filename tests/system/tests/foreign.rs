//! A standard IPsec client, strongSwan, in place of levee's own: it reaches the services of its session's level, and
//! nothing at any other.

use levee_system::host;
use levee_system::swan::{Offers, Peer, Swan, child};
use levee_system::{World, eventually, text};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";

/// A workstation whose tunnel another client makes, with somebody signed on; and others that are levee's alone.
fn signed_on(name: &str, others: &[&str]) -> World {
    let mut world = World::new(name, SITE, &[&["ws1"], others].concat());
    world.leave_tunnel_to_others("ws1");
    world.start_server();
    for workstation in std::iter::once(&"ws1").chain(others) {
        world.start_workstation(workstation);
    }
    world.login("ws1", "ada").ok();
    world
}

/// What the web server of the level says, reached from outside every compartment.
fn fetch(world: &World) -> levee_system::Done {
    let url = ["--silent", "--show-error", "--fail", "--max-time", "5", "http://10.80.0.1/"];
    world.outside("ws1", "curl", &url)
}

fn audit(world: &World) -> String {
    world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok()
}

#[test]
fn strongswan_reaches_the_services_of_its_sessions_level_and_of_no_other() {
    let world = signed_on("swan", &[]);
    let swan = Swan::start(&world, "ws1", &[LOW, HIGH]);

    // Authenticated, but nobody has a session: the IKE SA is there, and no child.
    swan.initiate(&child(LOW)).expect_err("there is no session");
    assert!(swan.log().contains("TS_UNACCEPTABLE"), "{}", swan.log());
    assert!(swan.sas().contains("ESTABLISHED") && !swan.sas().contains("INSTALLED"), "{}", swan.sas());

    world.level("ws1", LOW).ok();
    // Another label than the session's is refused, and the IKE SA stays.
    swan.initiate(&child(HIGH)).expect_err("the session is at another label");
    assert!(swan.sas().contains("ESTABLISHED") && !swan.sas().contains("INSTALLED"), "{}", swan.sas());
    eventually(Duration::from_secs(20), "both refusals are in the audit log", || {
        let log = audit(&world);
        log.matches("negotiate").count() >= 2 && log.contains("its session is at another label")
    });

    // Its own label: the inner address is the session's, and nginx answers at the session's level.
    swan.swanctl(&["--terminate", "--ike", "levee"]).1.expect("the IKE SA is ended");
    swan.initiate(&child(LOW)).unwrap_or_else(|e| panic!("no child: {e}"));
    let status = world.status();
    let inner = status["sessions"][0]["inner"][0].as_str().expect("an inner address").to_owned();
    assert!(swan.sas().contains(&inner), "{inner}\n{}", swan.sas());
    let page = fetch(&world).ok();
    assert!(page.contains(LOW), "{page}");

    // The first child's keys followed from the IKE SA's: it was replaced at once by one with an exchange of its own.
    eventually(Duration::from_secs(20), "the first child is replaced", || {
        let sas = swan.sas();
        sas.contains("AES_GCM_16-256/CURVE_25519") && sas.matches("INSTALLED").count() == 1
    });
    assert!(fetch(&world).ok().contains(LOW));

    // The session's end is the child's end. The IKE SA may stay.
    world.tpe("ws1", &["logout"]).ok();
    fetch(&world).refused();
    eventually(Duration::from_secs(20), "the child is deleted", || !swan.sas().contains("INSTALLED"));
    fetch(&world).refused();
}

#[test]
fn a_site_may_have_its_keys_on_p384_and_strongswan_and_levees_own_client_prove_themselves_with_them() {
    let site = SITE.replacen("\nkeys = \"P-256\"", "\nkeys = \"P-384\"", 1);
    let mut world = World::new("p384", &site, &["ws1", "ws2"]);
    world.leave_tunnel_to_others("ws1");
    world.start_server();
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.start_workstation(workstation);
        world.login(workstation, user).ok();
        world.level(workstation, LOW).ok();
    }
    assert!(world.fetch("ws2", "http://10.80.0.1/").ok().contains(LOW));
    let swan = Swan::start(&world, "ws1", &[LOW]);
    swan.initiate(&child(LOW)).unwrap_or_else(|e| panic!("no child: {e}"));
    let log = swan.log();
    for whose in ["'ws1' (myself)", "'server.harbour.example'"] {
        assert!(log.contains(&format!("authentication of {whose} with ECDSA_WITH_SHA384_DER")), "{log}");
    }
    assert!(fetch(&world).ok().contains(LOW));
    world.stop_server();
    let state = text(&world.path("state"));
    let said = world.levee(&["audit", "verify", "--state", &state]).ok();
    assert!(said.contains("checkpoint"), "{said}");
}

#[test]
fn with_cnsas_suites_whoever_has_them_gets_in_and_whoever_offers_others_does_not() {
    let site = SITE.replacen("\nkeys = \"P-256\"", "\nkeys = \"P-384\"", 1);
    let site = site.replacen("\nsuites = \"default\"", "\nsuites = \"cnsa\"", 1);
    let mut world = World::new("cnsa", &site, &["ws1", "ws2"]);
    world.leave_tunnel_to_others("ws1");
    let check = || {
        let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
        world.levee(&["check", &site, "--state", &state])
    };
    assert!(check().ok().contains("is sound"));
    world.start_server();
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.start_workstation(workstation);
        world.login(workstation, user).ok();
        world.level(workstation, LOW).ok();
    }
    // levee's own client, end to end.
    assert!(world.fetch("ws2", "http://10.80.0.1/").ok().contains(LOW));

    // Neither IKE nor the trusted path takes anything else.
    let swan = Swan::start(&world, "ws1", &[LOW]);
    swan.initiate(&child(LOW)).expect_err("X25519 is not CNSA's");
    assert!(swan.log().contains("NO_PROPOSAL_CHOSEN") && !swan.sas().contains("INSTALLED"), "{}", swan.log());
    drop(swan);
    let bundle = world.path("state").join("hosts/ws1");
    let (chain, key, authority) =
        ["chain.pem", "device.key", "authority.pem"].map(|name| text(&bundle.join(name))).into();
    let tls = |more: &[&str]| {
        let server = ["s_client", "-connect", "10.77.0.1:7443", "-tls1_3", "-brief", "-verify_return_error"];
        let own = ["-CAfile", &authority, "-cert", &chain, "-key", &key];
        world.outside("ws1", "openssl", &[&server[..], &own, more].concat())
    };
    let done =
        tls(&["-groups", "P-384", "-ciphersuites", "TLS_AES_256_GCM_SHA384", "-sigalgs", "ECDSA+SHA384"]);
    let said = format!("{}{}", done.out, done.err);
    for part in ["TLS_AES_256_GCM_SHA384", "secp384r1", "SHA384"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for other in [
        ["-groups", "X25519"],
        ["-groups", "P-256"],
        ["-ciphersuites", "TLS_AES_128_GCM_SHA256"],
        ["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
        ["-sigalgs", "ECDSA+SHA256"],
    ] {
        tls(&other).refused();
    }

    let peer = Peer { id: "ws1", offers: Offers::Cnsa, ..Peer::default() };
    let swan = Swan::as_peer(&world, "ws1", &[LOW], &peer);
    swan.initiate(&child(LOW)).unwrap_or_else(|e| panic!("no child: {e}"));
    assert!(swan.log().contains("IKE:AES_GCM_16_256/PRF_HMAC_SHA2_384/ECP_384"), "{}", swan.log());
    assert!(fetch(&world).ok().contains(LOW));
    eventually(
        Duration::from_secs(20),
        "the first child is replaced by one with an exchange of its own",
        || swan.sas().contains("AES_GCM_16-256/ECP_384"),
    );
}

#[test]
fn a_client_has_its_ppk_in_its_keys_and_where_the_site_says_so_none_without_it_are_given() {
    let host = |name: &str, ppk: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\naccreditation = \"UNCLASSIFIED..SECRET//NATO,MED\"\nppk = {ppk}\n\n"
        )
    };
    let hosts = host("ws4", "{ id = \"fours\" }")
        + &host("ws5", "{ id = \"fives\", mandatory = false }")
        + &host("ws6", "{ id = \"sixes\" }");
    let site = SITE.replacen("[[service]]", &(hosts + "[[service]]"), 1);
    let mut world = World::new("ppk", &site, &["ws4", "ws5", "ws6"]);
    world.leave_tunnel_to_others("ws4");
    world.leave_tunnel_to_others("ws5");
    world.start_server();
    for (workstation, user) in [("ws4", "ada"), ("ws5", "mia"), ("ws6", "ugo")] {
        world.start_workstation(workstation);
        world.login(workstation, user).ok();
        world.level(workstation, LOW).ok();
    }
    // levee's own client has its half.
    assert!(world.fetch("ws6", "http://10.80.0.1/").ok().contains(LOW));

    let page = |workstation: &str| {
        let url = ["--silent", "--show-error", "--fail", "--max-time", "5", "http://10.80.0.1/"];
        world.outside(workstation, "curl", &url)
    };
    // By the name that its PPK is looked for by, and by another that its certificate has too.
    for id in ["ws4", "CN=ws4"] {
        let swan = Swan::as_peer(&world, "ws4", &[LOW], &Peer { id, ..Peer::default() });
        swan.initiate(&child(LOW)).expect_err("the PPK is mandatory");
        assert!(!swan.sas().contains("INSTALLED"), "{id}: {}", swan.log());
        page("ws4").refused();
    }
    let swan =
        Swan::as_peer(&world, "ws4", &[LOW], &Peer { id: "ws4", ppk: Some("fours"), ..Peer::default() });
    swan.initiate(&child(LOW)).unwrap_or_else(|e| panic!("no child: {e}"));
    assert!(swan.log().contains("using PPK for PPK_ID 'fours'"), "{}", swan.log());
    assert!(page("ws4").ok().contains(LOW));
    drop(swan);

    for ppk in [None, Some("fives")] {
        let swan = Swan::as_peer(&world, "ws5", &[LOW], &Peer { id: "ws5", ppk, ..Peer::default() });
        swan.initiate(&child(LOW)).unwrap_or_else(|e| panic!("no child: {e}"));
        assert_eq!(swan.log().contains("using PPK for PPK_ID 'fives'"), ppk.is_some(), "{}", swan.log());
        assert!(page("ws5").ok().contains(LOW));
    }
}

#[test]
fn the_keys_of_a_child_are_in_its_labels_vault_and_in_no_other_process_of_the_server() {
    let world = signed_on("memory", &["ws2"]);
    world.login("ws2", "mia").ok();
    world.level("ws2", "CONFIDENTIAL//MED").ok();
    let swan = Swan::start(&world, "ws1", &[LOW]);
    world.level("ws1", LOW).ok();
    swan.initiate(&child(LOW)).unwrap_or_else(|e| panic!("no child: {e}"));
    // charon derives the same keys, and says which: two for the first child, two for the one that replaced it.
    eventually(Duration::from_secs(30), "the first child is replaced", || {
        swan.sas().matches("INSTALLED").count() == 1 && swan.keys().len() >= 4
    });
    assert!(fetch(&world).ok().contains(LOW));
    let keys = swan.keys();
    let status = world.status();
    let all = status["compartments"].as_array().expect("compartments");
    let vault = all.iter().find(|row| row["label"] == LOW).expect("the label runs")["vault"].as_u64();
    let processes = host::below(world.server_pid());
    assert_eq!(processes.iter().filter(|process| process.name == "levee-vault").count(), 2);
    let mut searched = 0;
    for process in processes.iter().filter(|process| process.name.starts_with("levee-")) {
        let own = vault == Some(u64::from(process.pid));
        // The newest pair is in use; both directions of it.
        for key in &keys[keys.len() - 2..] {
            assert_eq!(process.remembers(key), own, "{process:?}");
        }
        // Half a key of any pair is a find too.
        for half in keys.iter().flat_map(|key| key.chunks(16)).filter(|_| !own) {
            assert!(!process.remembers(half), "{process:?}");
        }
        searched += 1;
    }
    assert!(searched >= 6, "{processes:#?}");
}

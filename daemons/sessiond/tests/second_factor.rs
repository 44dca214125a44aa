//! A second factor: who has one signs on with a code of now, once, and nobody learns which of password and code was wrong.

mod common;

use common::*;
use levee_ipc::client::{RefusalKind, Reply, Request};
use ring::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ADAS: &[u8; 20] = b"a seed of twenty by1";
const EVES: &[u8; 20] = b"a seed of twenty by2";
const EVE: &str = "eve of the harbour";

/// A site where ada and eve have a second factor, and ugo has none.
fn site() -> Site {
    let mut site = Site::new();
    let user = |name: &str| format!("[[user]]\nname = \"{name}\"\n");
    let with = |name: &str| user(name) + "second-factor = \"totp\"\n";
    site.site = site.site.replacen(&user("ada"), &with("ada"), 1);
    site.site =
        site.site.replacen(&user("ugo"), &(with("eve") + "clearance = \"SECRET\"\n\n" + &user("ugo")), 1);
    std::fs::write(site.directory.join("credentials/eve"), format!("{}\n", phc(EVE))).unwrap();
    std::fs::create_dir(site.directory.join("second-factors")).unwrap();
    for (user, seed) in [("ada", ADAS), ("eve", EVES)] {
        let line = format!("totp {}\n", data_encoding::BASE32_NOPAD.encode(seed));
        std::fs::write(site.directory.join("second-factors").join(user), line).unwrap();
    }
    site
}

/// The step of now. Its code is good for thirty seconds at least, and the next one's for sixty.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 30
}

/// RFC 6238, RFC 4226 5.3: the code of a step.
fn code(seed: &[u8], step: u64) -> String {
    let tag = sign(&Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, seed), &step.to_be_bytes());
    let bytes = tag.as_ref();
    let at = usize::from(bytes[19] & 15);
    let number = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

fn is_wrong(reply: &Reply) -> bool {
    match reply {
        Reply::Refused { kind: RefusalKind::Credentials, reason } => {
            assert_eq!(reason, "unknown user, wrong password or wrong code");
            true
        }
        _ => false,
    }
}

fn signs_off(client: &Client) {
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
}

#[test]
fn a_code_is_taken_once_whatever_restarts_and_none_before_it() {
    let world = World::start(site());
    let client = world.connect("ws1");
    let now = now();
    let with = |client: &Client, step| client.login_with("ada", ADA, Some(&code(ADAS, step)));
    assert!(matches!(with(&client, now), Reply::LoggedIn(_)));
    // Somebody who has read it over her shoulder, at her workstation and at another, then and after she has left.
    let thief = world.connect("ws2");
    assert!(is_wrong(&with(&thief, now)));
    signs_off(&client);
    assert!(is_wrong(&with(&client, now)));
    // One that she has not used, but that was before it.
    assert!(is_wrong(&with(&thief, now - 1)));
    let world = World::start(world.kill());
    let thief = world.connect("ws2");
    assert!(is_wrong(&with(&thief, now)), "a kill forgets no code");
    let client = world.connect("ws1");
    assert!(matches!(with(&client, now + 1), Reply::LoggedIn(_)), "the next one is hers");
    signs_off(&client);
    assert!(is_wrong(&with(&world.connect("ws2"), now + 9)), "too early");
}

#[test]
fn a_client_that_leaves_the_code_out_or_brings_another_persons_does_not_get_in() {
    let world = World::start(site());
    let client = world.connect("ws1");
    let now = now();
    // Whoever it is, known or not, with the right password or not, with a second factor or not: asked for a code.
    for (user, password) in [("ada", ADA), ("ada", "wrong password"), ("ugo", UGO), ("nobody-here", ADA)] {
        assert_eq!(refusal(&client.login(user, password)), Some(RefusalKind::Code), "{user}");
    }
    for wrong in ["", &code(EVES, now), &code(ADAS, now + 9), &code(ADAS, now)[..5]] {
        assert!(is_wrong(&client.login_with("ada", ADA, Some(wrong))), "{wrong:?}");
        // The delays of this workstation are its own: another takes the next.
        signs_on_and_off(&world, "ugo", UGO, "");
    }
    // Who has none needs none, and is not held up by one.
    signs_on_and_off(&world, "ugo", UGO, "123456");
    assert!(is_wrong(&world.connect("ws2").login_with("nobody-here", ADA, Some(&code(ADAS, now)))));
    let eve = world.connect("ws2").login_with("eve", EVE, Some(&code(EVES, now)));
    assert!(matches!(eve, Reply::LoggedIn(_)), "that somebody else tried it has not used it up: {eve:?}");
}

fn signs_on_and_off(world: &World, user: &str, password: &str, code: &str) {
    let client = world.connect("ws2");
    let reply = client.login_with(user, password, Some(code));
    assert!(matches!(reply, Reply::LoggedIn(_)), "{reply:?}");
    signs_off(&client);
}

#[test]
fn nobody_learns_whether_password_or_code_was_wrong_and_both_are_slowed_down_alike() {
    let world = World::start(site());
    let (first, second) = (world.connect("ws1"), world.connect("ws2"));
    let now = now();
    assert!(is_wrong(&first.login_with("ada", "wrong password", Some(&code(ADAS, now)))));
    assert!(is_wrong(&second.login_with("ada", ADA, Some("000000"))));
    world.status();
    let log = world.place.log();
    let denied: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["event"].clone())
        .filter(|event| event["action"] == "sign-on")
        .map(|mut event| {
            event["host"].take();
            event["object"].take();
            event
        })
        .collect();
    assert_eq!(denied.len(), 2);
    assert_eq!(denied[0], denied[1], "one record looks like the other");
    // As after wrong passwords, the fifth waits.
    for _ in 0..3 {
        second.login_with("ada", ADA, Some("000000"));
    }
    let start = Instant::now();
    assert!(is_wrong(&second.login_with("ada", ADA, Some("000000"))));
    assert!(start.elapsed() >= Duration::from_secs(1), "wrong codes are slowed down");
    // A code that came with a wrong password is not used up.
    let right = first.login_with("ada", ADA, Some(&code(ADAS, now)));
    assert!(matches!(right, Reply::LoggedIn(_)), "{right:?}");
}

#[test]
fn without_a_seed_or_with_one_that_cannot_be_read_nobody_signs_on() {
    let site = site();
    let seed = site.directory.join("second-factors/ada");
    std::fs::remove_file(&seed).unwrap();
    let world = World::start(site);
    let client = world.connect("ws1");
    assert!(
        is_wrong(&client.login_with("ada", ADA, Some(&code(&[0; 20], now())))),
        "nobody's seed is not hers"
    );
    std::fs::write(&seed, "totp AAAA\n").unwrap();
    let refused = client.login_with("ada", ADA, Some("000000"));
    assert_eq!(refusal(&refused), Some(RefusalKind::Unavailable));
    let line = format!("totp {}\n", data_encoding::BASE32_NOPAD.encode(ADAS));
    std::fs::write(&seed, line).unwrap();
    let right = client.login_with("ada", ADA, Some(&code(ADAS, now())));
    assert!(matches!(right, Reply::LoggedIn(_)), "{right:?}");
    let log = world.place.log();
    let (changed, signed_on) = (log.rfind(r#""object":"second factor""#), log.find(r#""verdict":"granted""#));
    assert!(changed.unwrap() < signed_on.unwrap(), "the log knows what she signed on with: {log}");
}

//! A second factor from end to end: the operator makes a seed, another program makes codes of it, a person signs on with them.

use levee_system::{Done, PASSWORD, World, sh, text, typed};
use std::time::{SystemTime, UNIX_EPOCH};

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// The code of a step of time, as a telephone makes it (RFC 6238, RFC 4226 5.3).
const CODE: &str = "
import base64, hashlib, hmac, struct, sys
seed = sys.argv[1]
tag = hmac.new(base64.b32decode(seed + '=' * (-len(seed) % 8)), struct.pack('>Q', int(sys.argv[2])), hashlib.sha1).digest()
at = tag[19] & 15
print('%06d' % ((struct.unpack('>I', tag[at:at + 4])[0] & 0x7fffffff) % 1000000))
";

/// The step of now. Its code is good for thirty seconds at least, and the next one's for sixty.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 30
}

/// A site where mia has a second factor.
fn site() -> String {
    let (head, tail) = SITE.split_once("name = \"mia\"").unwrap();
    format!("{head}name = \"mia\"\nsecond-factor = \"totp\"{tail}")
}

/// Has a seed made for mia.
fn totp(world: &World, more: &[&str]) -> Done {
    let (site, state, run) =
        (text(&world.path("site.toml")), text(&world.path("state")), text(&world.path("run")));
    world.levee(&[&["user", "totp", &site, "mia", "--state", &state, "--run", &run], more].concat())
}

/// The seed in what is shown of it.
fn seed_of(shown: &str) -> String {
    shown.split("secret=").nth(1).unwrap().split('&').next().unwrap().to_owned()
}

fn code(seed: &str, step: u64) -> String {
    sh("python3", &["-c", CODE, seed, &step.to_string()]).ok().trim().to_owned()
}

fn is_locked(world: &World) -> bool {
    world.status()["sessions"][0]["locked"] == true
}

fn unlock(world: &World, password: &str, code: &str) -> Done {
    typed(&mut world.tpe_command("ws1", &["unlock", "--password-stdin"]), &format!("{password}\n{code}"))
}

#[test]
fn a_session_of_a_person_with_a_second_factor_is_unlocked_with_a_code_of_its_own() {
    let mut world = World::new("unlocking", &site(), &["ws1"]);
    let seed = seed_of(&totp(&world, &[]).ok());
    world.start_server();
    world.start_workstation("ws1");
    let first = now();
    world.login_with("ws1", "mia", &format!("{PASSWORD}\n{}", code(&seed, first))).ok();
    world.level("ws1", "CONFIDENTIAL//MED").ok();
    world.tpe("ws1", &["lock"]).ok();

    // Who sits down there has seen her type at most: the password, and the code that she signed on with.
    let left_out = unlock(&world, PASSWORD, "").refused();
    assert!(left_out.contains("wrong code"), "{left_out}");
    assert_eq!(unlock(&world, PASSWORD, &code(&seed, first)).refused(), left_out);
    // Of her telephone alone nothing is unlocked either, and nobody is told what was wrong. The code is not used up by that.
    let next = now().max(first + 1);
    assert_eq!(unlock(&world, "wrong password", &code(&seed, next)).refused(), left_out);
    assert!(is_locked(&world));
    let next = now().max(first + 1);
    unlock(&world, PASSWORD, &code(&seed, next)).ok();
    assert!(!is_locked(&world));
    // Nor twice with the same.
    world.tpe("ws1", &["lock"]).ok();
    assert_eq!(unlock(&world, PASSWORD, &code(&seed, next)).refused(), left_out);
    assert!(is_locked(&world));

    let state = text(&world.path("state"));
    let hers = world.levee(&["audit", "show", "--state", &state, "--user", "mia"]).ok();
    let count = |verdict: &str| {
        hers.lines().filter(|line| line.contains(" unlock ") && line.contains(verdict)).count()
    };
    // Denials beyond a rate are written together, later.
    assert!(count(": denied: ") >= 1 && count(": granted: ") == 1, "{hers}");
}

#[test]
fn a_person_with_a_second_factor_signs_on_with_each_code_once() {
    let mut world = World::new("factor", &site(), &["ws1", "ws2"]);
    let state = text(&world.path("state"));
    let lost = totp(&world, &[]).ok();
    assert!(totp(&world, &[]).refused().contains("--replace"), "a seed is not replaced by mistake");
    let shown = totp(&world, &["--replace"]).ok();
    let (lost, seed) = (seed_of(&lost), seed_of(&shown));
    assert!(shown.starts_with("otpauth://totp/") && lost != seed, "{shown}");
    world.start_server();
    world.start_workstation("ws1");
    world.start_workstation("ws2");

    let login = |world: &World, host: &str, user: &str, password: &str, code: &str| {
        world.login_with(host, user, &format!("{password}\n{code}"))
    };
    let now = now();
    // Without a code, with one of the seed before, with a wrong password: one and the same.
    let left_out = login(&world, "ws1", "mia", PASSWORD, "").refused();
    assert!(left_out.contains("unknown user, wrong password or wrong code"), "{left_out}");
    assert_eq!(login(&world, "ws1", "mia", PASSWORD, &code(&lost, now)).refused(), left_out);
    assert_eq!(login(&world, "ws1", "mia", "wrong password", &code(&seed, now)).refused(), left_out);
    login(&world, "ws2", "mia", PASSWORD, &code(&seed, now)).ok();
    world.level("ws2", "CONFIDENTIAL//MED").ok();
    assert_eq!(login(&world, "ws1", "mia", PASSWORD, &code(&seed, now)).refused(), left_out, "it was taken");
    // Who has none is asked as well, and needs none.
    login(&world, "ws1", "ugo", PASSWORD, "").ok();

    world.stop_server();
    world.start_server();
    let replayed = login(&world, "ws2", "mia", PASSWORD, &code(&seed, now));
    assert_ne!(replayed.status, 0, "it was taken before the start: {replayed:?}");
    world.tpe("ws2", &["logout"]);
    assert_eq!(login(&world, "ws2", "mia", PASSWORD, &code(&seed, now)).refused(), left_out);
    login(&world, "ws2", "mia", PASSWORD, &code(&seed, now + 1)).ok();

    let mias = world.levee(&["audit", "show", "--state", &state, "--user", "mia"]).ok();
    assert!(mias.contains("change second factor: noted: by an operator: set; SHA-256 "), "{mias}");
    assert!(
        mias.lines().filter(|line| line.contains("sign-on") && line.contains("denied")).count() >= 4,
        "{mias}"
    );
    assert!(!mias.contains(&seed), "no record has a seed");
    let none = world.levee(&["audit", "show", "--state", &state, "--user", "nosuch"]).refused();
    assert!(none.contains("no record of a person `nosuch`"), "{none}");
}

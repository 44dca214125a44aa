//! A floor counts from the first start, for those who open sessions and for the keyer, and no change of posture goes below it.

mod server;

use levee_policy::site::{Cipher, Placed};
use levee_policy::{LabelName, Site};
use levee_session::*;
use server::{BEGIN, CLIENT, Server, has, is_reply, label};
use std::sync::Arc;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[posture]]
name = "peace"
ciphers = ["aes-128-gcm"]
[[posture]]
name = "alert"
floor = ["CONFIDENTIAL..SECRET//NATO,MED"]
ciphers = ["chacha20-poly1305"]
people = ["ada"]
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
people = []
"#
);
const OPERATOR: OperatorId = OperatorId(9);

fn wish(posture: Option<&str>) -> Wish {
    let what = Placed { posture: posture.map(|name| name.parse().unwrap()), labels: None };
    Wish { what, lasting: None, reason: String::new() }
}

#[test]
fn a_label_is_never_below_its_floor_before_anything_is_set_and_after_less_is() {
    let (mut server, id) = Server::with_a_session_at(SITE);
    let at = |server: &Server| server.machine.posture_at(&label()).map(|posture| posture.name().to_string());
    assert_eq!(at(&server).as_deref(), Some("alert"));
    for less in [Some("peace"), None, Some("alert"), Some("peace")] {
        let mut said = server.hear(Event::Posture(OPERATOR, wish(less)));
        let is_told = |one: &Output| matches!(one, Output::Vault(_, ToVault::Ciphers(..)));
        assert!(!has(&said, is_told), "{less:?} changes nothing: {said:?}");
        let number = |one: &Output| match one {
            Output::Postures(number, _) => Some(*number),
            _ => None,
        };
        for number in said.iter().filter_map(number).collect::<Vec<_>>() {
            said.extend(server.hear(Event::PosturesKept(number)));
        }
        assert!(has(&said, |one| matches!(one, Output::Operator(OPERATOR, Ok(())))), "{less:?}: {said:?}");
        assert_eq!(at(&server).as_deref(), Some("alert"), "{less:?}");
        assert!(server.machine.live(id).is_some(), "{less:?}");
    }
    // More than the floor is another matter.
    server.hear(Event::Posture(OPERATOR, wish(Some("siege"))));
    assert!(server.machine.live(id).is_none());
}

#[test]
fn whom_the_floor_does_not_allow_has_no_session_and_the_keyer_has_its_ciphers_at_a_first_start() {
    let site = Arc::new(Site::parse(SITE).unwrap());
    let mut server = Server { machine: Sessions::new(site, vec![], [], [], [7; 16], BEGIN), now: BEGIN };
    let mut open = |user: &str, label: LabelName, number: u8| {
        server.hear(Event::Hello { client: CLIENT, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
        server.hear(Event::Request(CLIENT, Request::Login(user.parse().unwrap())));
        let id = SessionId::from_random([number; 16]);
        let level = Request::Level { label: label.clone(), protection: None, id, random: number.into() };
        let mut said = server.hear(Event::Request(CLIENT, level));
        said.extend(server.hear(Event::LabelUp(label)));
        server.hear(Event::Request(CLIENT, Request::Logout));
        said
    };
    let refused = open("mia", "CONFIDENTIAL".parse().unwrap(), 1);
    let is_by_the_floor = |reply: &Reply| matches!(reply, Reply::Refused(_, why) if why.contains("`alert`"));
    assert!(is_reply(&refused, is_by_the_floor), "{refused:?}");
    let said = open("ada", label(), 2);
    let chacha = |one: &Output| matches!(one, Output::Keying(at, keying) if *at == label() && keying.ciphers == [Cipher::ChaCha20Poly1305]);
    assert!(has(&said, chacha), "{said:?}");
}

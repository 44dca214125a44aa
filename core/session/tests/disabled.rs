//! A person whom an operator disables: whoever is signed on, or is about to be, is cut off, and the operator hears when all of it is over.

mod server;

use levee_policy::LabelName;
use levee_session::*;
use server::*;

const OPERATOR: OperatorId = OperatorId(9);
const SECOND: ClientId = ClientId(2);

fn disable(who: &str) -> Event {
    Event::Disable(OPERATOR, who.parse().unwrap(), true)
}

fn hello(client: ClientId, device: &str) -> Event {
    Event::Hello { client, device: device.parse().unwrap(), fingerprint: [1; 32] }
}

fn told(said: &[Output]) -> bool {
    has(said, |output| matches!(output, Output::Operator(OPERATOR, Ok(()))))
}

fn cut_off(said: &[Output], client: ClientId) -> bool {
    has(said, |output| matches!(output, Output::Disconnect(of) if *of == client))
}

#[test]
fn who_has_signed_on_or_is_about_to_is_cut_off_and_nobody_else_is() {
    let (mut server, _) = Server::with_a_session();
    server.hear(hello(SECOND, "ws2"));
    server.hear(Event::Request(SECOND, Request::Login("mia".parse().unwrap())));
    let said = server.hear(disable("mia"));
    assert!(told(&said) && cut_off(&said, SECOND) && !cut_off(&said, CLIENT), "{said:?}");
    // They are told why.
    let why = |output: &Output| matches!(output, Output::Reply(SECOND, Reply::SignedOff(why)) if why.contains("has disabled"));
    assert!(has(&said, why), "{said:?}");
    // Whose password is being looked at has signed on nowhere yet.
    server.hear(hello(SECOND, "ws2"));
    server.machine.handle(Event::Request(SECOND, Request::Login("ugo".parse().unwrap())), server.now);
    assert!(matches!(server.machine.poll(), Some(Output::Verify(SECOND, _))));
    let said = server.hear(disable("ugo"));
    assert!(told(&said) && cut_off(&said, SECOND) && !cut_off(&said, CLIENT), "{said:?}");
}

#[test]
fn nobody_is_enabled_whom_the_site_does_not_have_and_nobody_has_disabled() {
    let (mut server, _) = Server::with_a_session();
    let said = server.hear(Event::Disable(OPERATOR, "nosuch".parse().unwrap(), false));
    assert!(has(
        &said,
        |output| matches!(output, Output::Operator(OPERATOR, Err(why)) if why.contains("no user `nosuch`"))
    ));
    assert!(!has(&said, |output| matches!(output, Output::Audit(_))), "{said:?}");
}

#[test]
fn the_operator_hears_once_when_the_last_of_their_sessions_is_over() {
    let (mut server, first) = Server::with_a_session();
    let (second, lower) = (SessionId::from_random([8; 16]), || "CONFIDENTIAL".parse::<LabelName>().unwrap());
    server.hear(hello(SECOND, "ws2"));
    server.hear(Event::Request(SECOND, Request::Login("ada".parse().unwrap())));
    let level = Request::Level { label: lower(), protection: None, id: second, random: 2 };
    server.hear(Event::Request(SECOND, level));
    server.hear(Event::LabelUp(lower()));
    server.hear(Event::VaultOpened(lower(), second));
    assert!(server.machine.live(first).is_some() && server.machine.live(second).is_some());
    assert!(!told(&server.hear(disable("ada"))));
    for (id, at, last) in [(first, label(), false), (second, lower(), true)] {
        let [cut] = cuts(&server.hear(Event::VaultClosed(at, id)))[..] else { panic!("one address") };
        assert_eq!(told(&server.hear(Event::Cut(cut, Some(0)))), last);
    }
    assert!(!told(&server.hear(Event::Tick)));
}

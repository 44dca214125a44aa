//! A change of level to a label that does not run yet: the session there is goes on until that one runs, and is kept where it does not.

mod server;

use levee_policy::LabelName;
use levee_policy::audit::Action;
use levee_session::*;
use server::*;
use std::time::Duration;

/// What its certificate says.
const ACCREDITATION: &str = "UNCLASSIFIED..SECRET//NATO,MED";

fn lower() -> LabelName {
    "CONFIDENTIAL".parse().unwrap()
}

fn next() -> SessionId {
    SessionId::from_random([8; 16])
}

fn level() -> Event {
    Event::Request(CLIENT, Request::Level { label: lower(), protection: None, id: next(), random: 2 })
}

/// What keys the workstation may have at this label.
fn keys(server: &mut Server, label: LabelName) -> Option<SessionId> {
    let wanted = Event::Wanted {
        ticket: 1,
        device: "ws1".parse().unwrap(),
        label,
        accreditation: Some(ACCREDITATION.into()),
    };
    let said = server.hear(wanted);
    said.into_iter().find_map(|output| match output {
        Output::Keys(1, record) => Some(record.map(|record| record.id)),
        _ => None,
    })?
}

fn is_close(said: &[Output]) -> bool {
    has(said, |output| matches!(output, Output::Vault(_, ToVault::Close(_))))
}

fn is_needed(said: &[Output]) -> bool {
    has(said, |output| matches!(output, Output::Need(of) if *of == lower()))
}

fn is_released(said: &[Output]) -> bool {
    has(said, |output| matches!(output, Output::Release(of) if *of == lower()))
}

/// Why the change was refused.
fn refusal(said: &[Output]) -> Option<&str> {
    said.iter().find_map(|output| match output {
        Output::Reply(CLIENT, Reply::Refused(_, why)) => Some(why.as_str()),
        _ => None,
    })
}

/// The one session that there is is this one, and is used as before.
fn goes_on(server: &mut Server, id: SessionId) {
    assert!(server.machine.shown().map(|shown| shown.id).eq([id]));
    assert_eq!(keys(server, label()), Some(id));
    let said = server.hear(Event::Request(CLIENT, Request::Status));
    assert!(
        is_reply(
            &said,
            |reply| matches!(reply, Reply::Status(Status { session: Some((of, ..)), .. }) if *of == id)
        ),
        "{said:?}"
    );
}

#[test]
fn the_session_goes_on_until_the_next_label_runs_and_not_beside_the_next_one() {
    let (mut server, id) = Server::with_a_session();
    let said = server.hear(level());
    assert!(is_needed(&said) && !is_close(&said), "{said:?}");
    assert!(server.machine.shown().map(|shown| shown.id).eq([id]));
    assert_eq!(keys(&mut server, label()), Some(id));
    assert_eq!(keys(&mut server, lower()), None, "there is nothing of the next one yet");
    let said = server.hear(Event::LabelUp(lower()));
    assert!(
        is_close(&said) && !has(&said, |output| matches!(output, Output::Vault(_, ToVault::Open { .. })))
    );
    assert_eq!(keys(&mut server, label()), None);
    assert_eq!(keys(&mut server, lower()), None);
    let cut = cuts(&server.hear(Event::VaultClosed(label(), id)));
    let said = server.hear(Event::Cut(cut[0], Some(0)));
    let opens = |output: &Output| matches!(output, Output::Vault(of, ToVault::Open { id, .. }) if *of == lower() && *id == next());
    assert!(has(&said, opens) && !is_needed(&said), "{said:?}");
    let said = server.hear(Event::VaultOpened(lower(), next()));
    assert!(is_reply(&said, |reply| matches!(reply, Reply::Opened { .. })), "{said:?}");
    assert_eq!(keys(&mut server, lower()), Some(next()));
}

#[test]
fn a_label_that_cannot_run_costs_nobody_the_session_that_they_have() {
    let (mut server, id) = Server::with_a_session();
    server.hear(level());
    let said = server.hear(Event::LabelFailed(lower(), "its store is full".into()));
    assert_eq!(refusal(&said), Some("the label cannot run: its store is full"));
    assert!(!is_close(&said), "{said:?}");
    // What was granted for it is over, in the log as well.
    let ended = |output: &Output| matches!(output, Output::Audit(entry) if entry.action == Action::End && entry.object == next().to_string());
    assert!(has(&said, ended), "{said:?}");
    goes_on(&mut server, id);
    // And once more.
    assert!(is_needed(&server.hear(level())));
    server.hear(Event::LabelFailed(lower(), "its store is full".into()));
    goes_on(&mut server, id);
}

#[test]
fn a_label_that_is_not_up_in_time_costs_nobody_the_session_that_they_have() {
    // A workstation keeps its session for longer than a label may take.
    let site = include_str!("../../../conf/small/site.toml");
    let site = site.replacen("grace = \"30s\"", "grace = \"2m\"", 1);
    let (mut server, id) = Server::with_a_session_at(&site);
    let begun = server.now;
    server.hear(level());
    let said = loop {
        let (_, said) = server.wait(true);
        if refusal(&said).is_some() {
            break said;
        }
    };
    assert_eq!(server.now.since(begun), START);
    assert!(refusal(&said).is_some_and(|why| why.contains("in time")) && is_released(&said), "{said:?}");
    goes_on(&mut server, id);
    // It comes for nobody.
    assert!(is_released(&server.hear(Event::LabelUp(lower()))));
    goes_on(&mut server, id);
}

#[test]
fn a_label_that_takes_longer_than_its_workstation_waits_for_an_answer_goes_on_without_the_session_that_there_is()
 {
    let (mut server, id) = Server::with_a_session();
    let begun = server.now;
    server.hear(level());
    let said = loop {
        let (_, said) = server.wait(true);
        assert_eq!(refusal(&said), None);
        if is_close(&said) {
            break said;
        }
    };
    // Else the workstation would end it by itself, as one whose server has gone: after 30 s, the site's grace time.
    assert_eq!(server.now.since(begun), Duration::from_secs(25));
    assert!(!is_needed(&said) && !is_released(&said), "its start goes on: {said:?}");
    let cut = cuts(&server.hear(Event::VaultClosed(label(), id)));
    let said = server.hear(Event::Cut(cut[0], Some(0)));
    assert!(!is_needed(&said) && !is_released(&said), "{said:?}");
    let said = server.hear(Event::LabelUp(lower()));
    assert!(has(&said, |output| matches!(output, Output::Vault(of, ToVault::Open { .. }) if *of == lower())));
    server.hear(Event::VaultOpened(lower(), next()));
    assert!(server.machine.shown().map(|shown| shown.id).eq([next()]));
}

#[test]
fn what_happens_to_the_person_while_a_label_starts_counts() {
    // Their trusted path is lost: the session waits for them as ever, and the label for nobody.
    let (mut server, id) = Server::with_a_session();
    server.hear(level());
    assert!(is_released(&server.hear(Event::Gone(CLIENT))));
    assert!(server.machine.shown().map(|shown| (shown.id, shown.attached)).eq([(id, false)]));
    // The certificate of their workstation is revoked.
    let (mut server, _) = Server::with_a_session();
    server.hear(level());
    let said = server.hear(Event::Revoked("ws1".parse().unwrap()));
    assert!(refusal(&said).is_some_and(|why| why.contains("revoked")) && is_released(&said), "{said:?}");
    server.hear(Event::LabelUp(lower()));
    assert_eq!(keys(&mut server, lower()), None);
    // The session is locked, since nobody has used it for long.
    let site = include_str!("../../../conf/small/site.toml");
    let site = site.replacen("slots = 64", "slots = 64\nidle-lock = \"30s\"", 1);
    let site = site.replacen("grace = \"30s\"", "grace = \"2m\"", 1);
    let (mut server, id) = Server::with_a_session_at(&site);
    server.hear(level());
    server.now = server.now.after(Duration::from_secs(31));
    server.hear(Event::Tick);
    let said = server.hear(Event::LabelUp(lower()));
    assert!(is_reply(&said, |reply| matches!(reply, Reply::Refused(RefusalKind::Locked, _))), "{said:?}");
    assert!(server.machine.shown().map(|shown| (shown.id, shown.locked)).eq([(id, true)]));
    // An operator ends it: the next one begins all the same.
    let (mut server, id) = Server::with_a_session();
    server.hear(level());
    server.hear(Event::End(OperatorId(1), id.to_string()));
    let cut = cuts(&server.hear(Event::VaultClosed(label(), id)));
    server.hear(Event::Cut(cut[0], Some(0)));
    assert!(server.machine.shown().next().is_none());
    let said = server.hear(Event::LabelUp(lower()));
    assert!(has(&said, |output| matches!(output, Output::Vault(of, ToVault::Open { .. }) if *of == lower())));
}

#[test]
fn where_every_slot_is_taken_the_one_that_becomes_free_is_used() {
    let site = include_str!("../../../conf/small/site.toml").replacen("slots = 64", "slots = 1", 1);
    let (mut server, id) = Server::with_a_session_at(&site);
    let said = server.hear(level());
    assert!(is_close(&said) && !is_needed(&said), "{said:?}");
    let cut = cuts(&server.hear(Event::VaultClosed(label(), id)));
    assert!(is_needed(&server.hear(Event::Cut(cut[0], Some(0)))));
}

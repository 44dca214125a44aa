//! Postures that are set at another server of the site are taken up here; who sets one waits for the others.

use levee_policy::site::Placed;
use levee_policy::{DomainName, Site};
use levee_session::federation::Setting;
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[federation]
etcd = ["10.77.0.9:2379"]
etcd-name = "etcd.harbour.example"
[[federation.peer]]
name = "two.harbour.example"
address = "10.77.0.2"
inner-address = "10.80.0.2"
inner-pool = "10.80.2.0/24"
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
follow = "4s"
[[posture]]
name = "quiet"
services = []
"#
);
const OPERATOR: OperatorId = OperatorId(9);
const HERE: &str = "server.harbour.example";
const THERE: &str = "two.harbour.example";

struct Server {
    machine: Sessions,
    now: Time,
    durable: bool,
    /// The warden does not answer: what it was told last.
    slow: Option<u64>,
    log: Vec<(String, String)>,
    /// What was said of settings, and to the operator.
    said: Vec<String>,
}

impl Server {
    fn new() -> Self {
        let now = Time::from_millis(1_000_000_000);
        let site = Arc::new(Site::parse(SITE).unwrap());
        let machine = Sessions::new(site, vec![], [], [], [7; 16], now);
        Self { machine, now, durable: true, slow: None, log: vec![], said: vec![] }
    }

    fn hear(&mut self, event: Event) -> Vec<String> {
        self.machine.handle(event, self.now);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Commit(commit, entries, _) => {
                    self.log.extend(entries.into_iter().map(|entry| (entry.object, entry.reason)));
                    self.machine.handle(Event::Committed(commit, self.durable), self.now);
                }
                Output::Audit(entry) => self.log.push((entry.object, entry.reason)),
                Output::Postures(number, _) if self.slow.is_some() => self.slow = Some(number),
                Output::Postures(number, _) => self.machine.handle(Event::PosturesKept(number), self.now),
                Output::Set(setting, until, awaited) => {
                    let (number, until) = (setting.number, until.since(self.now).as_secs());
                    let at = setting.at.unwrap();
                    self.said.push(format!("set {number} at {at} for {until} s, awaited: {awaited}"));
                }
                Output::Kept => self.said.push("kept".to_owned()),
                Output::Operator(OPERATOR, result) => self.said.push(format!("{result:?}")),
                other => panic!("{other:?}"),
            }
        }
        std::mem::take(&mut self.said)
    }

    fn wish(&mut self, posture: &str, lasting: Option<Duration>) -> Vec<String> {
        self.hear(Event::Posture(OPERATOR, Wish { what: placed(posture), lasting, reason: String::new() }))
    }

    fn elsewhere(&mut self, number: u64, names: &[&str]) -> Vec<String> {
        self.hears_of(THERE, number, names)
    }

    /// The other server says of something that it was set there.
    fn hears_of(&mut self, at: &str, number: u64, names: &[&str]) -> Vec<String> {
        let in_force = names.iter().map(|what| InForce { what: placed(what), until: None }).collect();
        self.hear(Event::Set(name(THERE), Setting { number, at: Some(name(at)), in_force }))
    }

    fn later(&mut self, time: Duration) -> Vec<String> {
        self.now = self.now.after(time);
        self.hear(Event::Tick)
    }

    fn in_force(&self) -> Vec<String> {
        self.machine.postures().0.iter().map(|one| one.what.to_string()).collect()
    }
}

fn name(text: &str) -> DomainName {
    text.parse().unwrap()
}

/// A posture or the default, or one `at` ranges.
fn placed(what: &str) -> Placed {
    let (name, ranges) = what.split_once(" at ").map_or((what, None), |(name, at)| (name, Some(at)));
    let labels = ranges.map(|ranges| ranges.split(" and ").map(|range| range.parse().unwrap()).collect());
    Placed { posture: (name != "default").then(|| name.parse().unwrap()), labels }
}

#[test]
fn who_sets_a_posture_is_answered_when_all_servers_have_it_or_hears_which_has_not() {
    let mut server = Server::new();
    let set = format!("set 1 at {HERE} for 19 s, awaited: true");
    assert_eq!(server.wish("siege", None), [set, "kept".to_owned()]);
    assert!(server.machine.postures().1, "the others have not said so");
    assert!(server.wish("quiet", None).concat().contains("under way"));
    assert_eq!(server.hear(Event::Kept(vec![])), ["Ok(())"]);
    assert!(!server.machine.postures().1);
    assert_eq!(server.hear(Event::Kept(vec![])), [""; 0], "once");
    server.wish("quiet", None);
    let late = server.hear(Event::Kept(vec![name(THERE)]));
    assert!(late.concat().contains(&format!("but not at {THERE}")), "{late:?}");
    assert_eq!(server.in_force(), ["siege", "quiet"], "it is in force all the same");
}

#[test]
fn who_waits_for_a_slow_server_is_answered_when_the_time_of_all_is_over_and_the_next_may_set() {
    let mut server = Server::new();
    server.slow = Some(0);
    assert_eq!(server.wish("quiet", None).len(), 1);
    // The others have had their time, and are not waited for again.
    let said = server.hear(Event::Kept(vec![]));
    assert!(said.concat().contains("not all that it ends at this server is over"), "{said:?}");
    let number = server.slow.take().unwrap();
    assert_eq!(server.hear(Event::PosturesKept(number)), ["kept"]);
    assert!(!server.machine.postures().1);
    assert_eq!(server.wish("siege", None).len(), 2);
}

#[test]
fn what_was_set_elsewhere_is_recorded_and_in_force_and_what_came_before_it_is_nothing() {
    let mut server = Server::new();
    server.wish("siege", None);
    server.hear(Event::Kept(vec![]));
    let set = |number| format!("set {number} at {THERE} for 25 s, awaited: false");
    assert_eq!(server.elsewhere(3, &["quiet"]), [set(3), "kept".to_owned()]);
    assert_eq!(server.in_force(), ["quiet"]);
    assert!(
        server.log.contains(&("quiet".into(), format!("set at {THERE}, after siege"))),
        "{:?}",
        server.log
    );
    // Old words, and the same again.
    for (number, name) in [(0, "siege"), (1, "siege"), (2, "siege"), (3, "quiet")] {
        assert_eq!(server.elsewhere(number, &[name]), [""; 0]);
    }
    assert_eq!(server.in_force(), ["quiet"]);
    // Of two with one number, the same counts at every server: this one's name comes first, so the other's.
    server.later(Duration::from_secs(5));
    assert_eq!(server.wish("siege", None).first(), Some(&format!("set 4 at {HERE} for 19 s, awaited: true")));
    let said = server.elsewhere(4, &[]);
    assert!(said[0].contains("before all others had said so, it became default"), "{said:?}");
    assert_eq!(said[1..], [set(4), "kept".to_owned()]);
    assert_eq!(server.hear(Event::Kept(vec![])), [""; 0], "nobody waits any more");
    assert!(server.in_force().is_empty() && !server.machine.postures().1);
}

#[test]
fn others_words_are_taken_up_seldom_and_the_last_of_them() {
    let mut server = Server::new();
    server.elsewhere(1, &["siege"]);
    for number in 2..=100 {
        assert_eq!(server.elsewhere(number, if number % 2 == 0 { &["quiet"] } else { &[] }), [""; 0]);
    }
    assert_eq!(server.later(Duration::from_secs(4)), [""; 0]);
    let said = server.later(Duration::from_secs(1));
    assert!(said[0].starts_with("set 100 at"), "{said:?}");
    assert_eq!((server.in_force(), server.log.len()), (vec!["quiet".to_owned()], 4));
}

#[test]
fn what_cannot_be_recorded_or_is_no_posture_here_is_not_in_force_and_not_said_to_be() {
    let mut server = Server::new();
    server.durable = false;
    assert_eq!(server.elsewhere(1, &["siege"]), [""; 0]);
    assert!(server.in_force().is_empty());
    server.durable = true;
    let said = server.later(RETRY);
    assert!(said[0].starts_with("set 1 at"), "{said:?}");
    assert_eq!(server.in_force(), ["siege"]);
    server.later(Duration::from_secs(5));
    assert_eq!(server.elsewhere(2, &["flood"]), [""; 0]);
    assert_eq!(server.in_force(), ["siege"]);
    assert!(server.log.last().unwrap().1.contains("the site has no posture `flood`"), "{:?}", server.log);
}

#[test]
fn what_time_ends_is_said_with_a_number_of_its_own() {
    let mut server = Server::new();
    server.wish("siege", Some(Duration::from_secs(60)));
    server.hear(Event::Kept(vec![]));
    let said = server.later(Duration::from_secs(60));
    assert_eq!(said, [format!("set 2 at {HERE} for 25 s, awaited: false"), "kept".to_owned()]);
    assert!(server.in_force().is_empty());
    // No number is beyond the greatest: what another server says of it changes nothing, and nothing is set any more.
    let greatest = u64::MAX >> 1;
    server.later(Duration::from_secs(5));
    assert!(server.elsewhere(greatest, &[]).concat().contains(&greatest.to_string()));
    assert!(server.wish("siege", None).concat().contains("as often as can be counted"));
    assert!(server.in_force().is_empty());
}

#[test]
fn what_another_server_says_that_one_set_is_recorded_as_its_word_and_kept_until_it_can_be() {
    let mut server = Server::new();
    // As if it had been set here: a store that is new does not know.
    server.durable = false;
    assert_eq!(server.hears_of(HERE, 1, &["siege"]), [""; 0]);
    server.durable = true;
    assert!(server.later(RETRY).concat().starts_with("set 1 at server.harbour.example"));
    assert_eq!(server.in_force(), ["siege"]);
    let said = format!("set at {HERE}, as {THERE} says, after default");
    assert!(server.log.contains(&("siege".into(), said)), "{:?}", server.log);
}

#[test]
fn a_posture_that_is_none_here_keeps_no_other_from_being_taken_up() {
    let mut server = Server::new();
    assert_eq!(server.elsewhere(1 << 31, &["flood"]), [""; 0]);
    assert!(server.log.last().unwrap().1.contains("the site has no posture `flood`"), "{:?}", server.log);
    assert!(server.elsewhere(1, &["siege"]).concat().starts_with("set 1 at"));
    server.later(Duration::from_secs(1));
    assert_eq!(server.elsewhere(2, &["quiet"]), [""; 0]);
    assert_eq!(server.elsewhere(1 << 31, &["flood", "siege"]), [""; 0]);
    assert!(server.later(Duration::from_secs(4)).concat().starts_with("set 2 at"));
}

#[test]
fn a_posture_that_was_set_at_some_labels_is_in_force_there_alone_at_the_other_servers_too_and_a_range_that_one_does_not_have_nowhere()
 {
    let mut server = Server::new();
    const SOME: &str = "siege at CONFIDENTIAL..SECRET";
    assert!(
        server.elsewhere(1, &["quiet", SOME, "default at UNCLASSIFIED"]).concat().starts_with("set 1 at")
    );
    assert_eq!(server.in_force(), ["quiet", SOME, "default at UNCLASSIFIED"]);
    let counts = |server: &Server, label: &str| {
        server.machine.posture_at(&label.parse().unwrap()).map(|posture| posture.name().to_string())
    };
    let all = |server: &Server| {
        ["UNCLASSIFIED", "CONFIDENTIAL", "SECRET", "SECRET//NATO"].map(|at| counts(server, at))
    };
    let now = [None, Some("siege".into()), Some("siege".into()), Some("quiet".into())];
    assert_eq!(all(&server), now);
    let set = format!("set at {THERE}, after default");
    assert!(
        server.log.contains(&(format!("quiet, {SOME}, default at UNCLASSIFIED"), set)),
        "{:?}",
        server.log
    );
    // Not by half: what it understands of it neither.
    server.later(Duration::from_secs(5));
    for (number, wrong) in [(2, "siege at GONE"), (3, "default at SECRET..GONE"), (4, "flood at SECRET")] {
        assert_eq!(server.elsewhere(number, &["siege", wrong]), [""; 0]);
        let (object, why) = server.log.last().unwrap();
        assert_eq!(object, &format!("siege, {wrong}"));
        assert!(why.contains("it cannot be in force at this server"), "{why}");
    }
    assert_eq!(all(&server), now);
    // Nor does that keep anybody else from being heard.
    assert!(server.elsewhere(2, &["default at SECRET", "siege at SECRET"]).concat().starts_with("set 2 at"));
    assert_eq!(all(&server), [None, None, Some("siege".into()), None]);
}

/// The site file of both has other words since.
#[test]
fn what_is_in_doubt_here_already_keeps_nothing_from_being_taken_up() {
    let mut server = Server::new();
    let doubted = InForce { what: placed("siege at GONE"), until: None };
    let setting = Setting { number: 1, at: Some(name(THERE)), in_force: vec![doubted] };
    server.machine.take_postures((setting, true), server.now);
    server.hear(Event::Tick);
    assert_eq!(server.elsewhere(2, &["siege at GONE", "quiet at LOST"]), [""; 0]);
    assert!(server.elsewhere(2, &["siege at GONE", "quiet at SECRET"]).concat().starts_with("set 2 at"));
    assert_eq!(server.in_force(), ["siege at GONE", "quiet at SECRET"]);
}

#[test]
fn what_a_server_said_that_is_believed_no_more_is_not_taken_up() {
    let mut server = Server::new();
    server.elsewhere(1, &["siege"]);
    assert_eq!(server.elsewhere(2, &[]), [""; 0], "not so soon");
    assert_eq!(server.hear(Event::Disowned(name(THERE))), [""; 0]);
    assert_eq!(server.later(Duration::from_secs(9)), [""; 0]);
    assert_eq!(server.in_force(), ["siege"]);
}

#[test]
fn after_a_start_the_others_are_told_that_nothing_is_left_when_the_warden_has_said_so() {
    let now = Time::from_millis(1_000_000_000);
    for (in_force, waits) in [(vec!["quiet"], true), (vec![], false)] {
        let site = Arc::new(Site::parse(SITE).unwrap());
        let mut machine = Sessions::new(site, vec![], [], [], [7; 16], now);
        let named = |name: &&str| InForce { what: placed(name), until: None };
        let in_force = in_force.iter().map(named).collect();
        machine.take_postures((Setting { number: 1, at: Some(name(HERE)), in_force }, true), now);
        assert_eq!(machine.postures().1, waits);
        let mut said = vec![];
        while let Some(output) = machine.poll() {
            if let Output::Postures(number, _) = output {
                said.push(number);
            }
            assert!(!matches!(output, Output::Kept));
        }
        machine.handle(Event::PosturesKept(said[0]), now);
        let kept = std::iter::from_fn(|| machine.poll()).any(|output| matches!(output, Output::Kept));
        assert_eq!((kept, machine.postures().1), (waits, false));
    }
}

//! What one person is given in a minute has an end, and comes back with time; nobody else notices.

use levee_policy::audit::Verdict;
use levee_policy::{LabelName, Site};
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// A server on which everything is durable at once, every password is right, and no label starts.
struct Server {
    machine: Sessions,
    now: Time,
    granted: u32,
    refused: u32,
    next: u8,
}

impl Server {
    fn hear(&mut self, event: Event) {
        self.machine.handle(event, self.now);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Commit(commit, entries, _) => {
                    let is_level = |e: &&_| {
                        matches!(
                            e,
                            levee_policy::audit::Event { verdict: Verdict::Granted, label: Some(_), .. }
                        )
                    };
                    self.granted += u32::try_from(entries.iter().filter(is_level).count()).unwrap();
                    self.machine.handle(Event::Committed(commit, true), self.now);
                }
                Output::Verify(client, _) => {
                    self.machine.handle(Event::Verified(client, Verified::Right(None)), self.now);
                }
                Output::Audit(entry) if entry.verdict == Verdict::Denied => self.refused += 1,
                Output::Need(label) => {
                    self.machine.handle(Event::LabelFailed(label, "no room".into()), self.now)
                }
                _ => {}
            }
        }
    }

    fn level(&mut self, client: ClientId, label: &str) {
        self.next += 1;
        let (label, id): (LabelName, _) = (label.parse().unwrap(), SessionId::from_random([self.next; 16]));
        self.hear(Event::Request(client, Request::Level { label, protection: None, id, random: 1 }));
    }

    /// How many of so many changes were granted, and how many refused.
    fn changes(&mut self, client: ClientId, count: u32) -> (u32, u32) {
        (self.granted, self.refused) = (0, 0);
        (0..count).for_each(|_| self.level(client, "UNCLASSIFIED"));
        (self.granted, self.refused)
    }
}

#[test]
fn beyond_the_sites_rate_a_persons_changes_of_level_are_refused_and_others_go_on() {
    let site = SITE.replace("changes = 30", "changes = 3");
    let now = Time::from_millis(1_000_000_000);
    let machine = Sessions::new(Arc::new(Site::parse(&site).unwrap()), vec![], [], [], [7; 16], now);
    let mut server = Server { machine, now, granted: 0, refused: 0, next: 0 };
    let (one, other) = (ClientId(1), ClientId(2));
    for (client, device, user) in [(one, "ws1", "ada"), (other, "ws2", "ugo")] {
        let device = device.parse().unwrap();
        server.hear(Event::Hello { client, device, fingerprint: [1; 32] });
        server.hear(Event::Request(client, Request::Login(user.parse().unwrap())));
    }
    assert_eq!(server.changes(one, 20), (6, 14));
    assert_eq!(server.changes(other, 4), (4, 0), "another person");
    server.now = server.now.after(Duration::from_secs(60));
    assert_eq!(server.changes(one, 10), (3, 7), "a minute later");
    server.now = server.now.after(Duration::from_secs(86_400));
    assert_eq!(server.changes(one, 10), (6, 4), "what was not used is not kept");
}

//! A server with one session, on which a test is all the others.

#![allow(dead_code)]

use levee_policy::{LabelName, Site};
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

pub const BEGIN: Time = Time::from_millis(1_000_000_000);

/// A server on which a test is all the others.
pub struct Server {
    pub machine: Sessions,
    pub now: Time,
}

pub const CLIENT: ClientId = ClientId(1);

pub fn label() -> LabelName {
    "SECRET".parse().unwrap()
}

impl Server {
    /// What it says to this; passwords are right, and what is to be recorded is.
    pub fn hear(&mut self, event: Event) -> Vec<Output> {
        self.hear_with(event, true)
    }

    pub fn hear_with(&mut self, event: Event, durable: bool) -> Vec<Output> {
        self.machine.handle(event, self.now);
        let mut said = Vec::new();
        while let Some(output) = self.machine.poll() {
            match &output {
                Output::Commit(commit, ..) => {
                    self.machine.handle(Event::Committed(*commit, durable), self.now)
                }
                Output::Verify(client, _) => {
                    self.machine.handle(Event::Verified(*client, Verified::Right(None)), self.now);
                }
                Output::Vault(_, ToVault::Ping(number)) => {
                    self.machine.handle(Event::VaultPong(label(), *number), self.now);
                    continue;
                }
                _ => {}
            }
            said.push(output);
        }
        said
    }

    /// Waits until it says something, at no other times than when something is due.
    pub fn wait(&mut self, durable: bool) -> (Duration, Vec<Output>) {
        let from = self.now;
        loop {
            let due = self.machine.deadline().expect("something is due");
            assert!(due > self.now, "it goes round");
            self.now = due;
            let said = self.hear_with(Event::Tick, durable);
            if !said.is_empty() {
                return (self.now.since(from), said);
            }
            assert!(self.now < from.after(Duration::from_secs(3_600)), "nothing comes");
        }
    }

    /// With an open session.
    pub fn with_a_session() -> (Self, SessionId) {
        Self::with_a_session_at(include_str!("../../../../conf/small/site.toml"))
    }

    /// The same, at this site.
    pub fn with_a_session_at(site: &str) -> (Self, SessionId) {
        let site = Site::parse(site).unwrap();
        let machine = Sessions::new(Arc::new(site), vec![], [], [], [7; 16], BEGIN);
        let mut server = Self { machine, now: BEGIN };
        server.hear(Event::Hello { client: CLIENT, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
        server.hear(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())));
        let id = SessionId::from_random([7; 16]);
        server
            .hear(Event::Request(CLIENT, Request::Level { label: label(), protection: None, id, random: 1 }));
        server.hear(Event::LabelUp(label()));
        let said = server.hear(Event::VaultOpened(label(), id));
        assert!(
            said.iter().any(|output| matches!(output, Output::Reply(_, Reply::Opened { .. }))),
            "{said:?}"
        );
        (server, id)
    }

    /// Its person logs out, and the vault has erased it: the sockets to cut.
    pub fn cutting(&mut self, id: SessionId) -> Vec<CutId> {
        self.hear(Event::Request(CLIENT, Request::Logout));
        cuts(&self.hear(Event::VaultClosed(label(), id)))
    }
}

pub fn cuts(said: &[Output]) -> Vec<CutId> {
    let cut = |output: &Output| match output {
        Output::Cut(cut, ..) => Some(*cut),
        _ => None,
    };
    said.iter().filter_map(cut).collect()
}

pub fn has(said: &[Output], wanted: impl Fn(&Output) -> bool) -> bool {
    said.iter().any(wanted)
}

pub fn is_reply(said: &[Output], wanted: impl Fn(&Reply) -> bool) -> bool {
    said.iter().any(|output| matches!(output, Output::Reply(CLIENT, reply) if wanted(reply)))
}

pub fn is_unavailable(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(RefusalKind::Unavailable, _))
}

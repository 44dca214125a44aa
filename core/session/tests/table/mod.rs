//! Servers of one site and the table between them, in which a test writes what it likes.

#![allow(dead_code)]

use levee_policy::DomainName;
use levee_session::federation::*;
use levee_session::{SessionId, Stored, Time};
use std::time::Duration;

pub const TTL: Duration = Duration::from_secs(8);

pub fn name(text: &str) -> DomainName {
    text.parse().unwrap()
}

pub fn record(number: u16, device: &str) -> Stored {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&number.to_be_bytes());
    Stored {
        id: SessionId::from_random(id),
        user: "ada".parse().unwrap(),
        device: device.parse().unwrap(),
        fingerprint: [1; 32],
        label: "SECRET".parse().unwrap(),
        inner: vec!["10.80.2.7".parse().unwrap()],
        opened: Time::default(),
        protection: None,
    }
}

/// Servers of one site, and what they say; one is looked at.
pub struct Site {
    /// Each by its name.
    pub machines: Vec<(DomainName, Federation)>,
    pub now: Time,
    pub said: Vec<(DomainName, Said)>,
    /// What each has said last.
    pub last: Vec<Statement>,
    /// The server that the first one does not hear.
    pub hidden: Option<DomainName>,
}

impl Site {
    /// Members all of them: what one says the others hear.
    pub fn of(names: &[&str]) -> Self {
        let now = Time::from_millis(1_000_000);
        let machine = |me: &&str| {
            let others = names.iter().filter(|other| *other != me).map(|other| name(other));
            (name(me), Federation::new("harbour".parse().unwrap(), name(me), others, TTL, now))
        };
        let machines = names.iter().map(machine).collect();
        let mut site = Self { machines, now, said: vec![], last: vec![], hidden: None };
        for number in 0..names.len() {
            site.machines[number].1.tick(now);
            site.machines[number].1.joined(1, now);
        }
        for _ in 0..20 {
            site.turn();
        }
        for (_, machine) in &site.machines {
            assert_eq!(machine.shown().1.len(), names.len() - 1);
        }
        site.said.clear();
        site
    }

    /// A tenth of a second; what was said is heard.
    pub fn turn(&mut self) {
        self.now = self.now.after(Duration::from_millis(100));
        for number in 0..self.machines.len() {
            self.machines[number].1.tick(self.now);
        }
        self.pass_on();
    }

    pub fn pass_on(&mut self) {
        for from in 0..self.machines.len() {
            while let Some(said) = self.machines[from].1.poll() {
                if let Said::State { attempt, statement, pages } = &said {
                    self.machines[from].1.written(*attempt, statement.number, self.now);
                    self.last.retain(|other| other.server != statement.server);
                    self.last.push((**statement).clone());
                    let of = statement.server.clone();
                    let hidden = usize::from(self.hidden.as_ref() == Some(&of));
                    for (_, machine) in self.machines.iter_mut().skip(hidden) {
                        machine.hear(1, (**statement).clone(), self.now);
                        for (page, bytes) in pages {
                            machine.page(1, &of, *page, bytes, self.now);
                        }
                    }
                }
                if let Said::Vanished(owner, id) = &said {
                    self.machines[from].1.cut(owner, *id, self.now);
                }
                let name = self.machines[from].0.clone();
                self.said.push((name, said));
            }
        }
    }

    pub fn one(&mut self) -> &mut Federation {
        &mut self.machines[0].1
    }

    pub fn said_last(&self, server: &str) -> Statement {
        self.last.iter().find(|statement| statement.server == name(server)).unwrap().clone()
    }

    pub fn has(&self, server: &str, said: &Said) -> bool {
        self.said.contains(&(name(server), said.clone()))
    }

    pub fn is_fenced(&self) -> bool {
        self.said.iter().any(|(of, said)| *of == name("one.example") && matches!(said, Said::Fence(_)))
    }

    /// The first server hears this, as if its signature were good.
    pub fn hears(&mut self, statement: Statement) {
        let now = self.now;
        self.one().hear(1, statement, now);
        self.pass_on();
    }

    /// A session of the first server, which the others use.
    pub fn published(&mut self) -> Stored {
        let (own, now) = (record(1, "ws1"), self.now);
        self.one().publish(&own, now);
        for _ in 0..3 {
            self.turn();
        }
        assert!(self.has("one.example", &Said::Published(own.id, Publication::Done)));
        own
    }
}

/// A statement of somebody with these sessions, in one page.
pub fn statement_of(server: &str, epoch: u64, number: u64, words: Vec<Word>) -> Statement {
    Statement {
        site: "harbour".parse().unwrap(),
        server: name(server),
        epoch,
        number,
        words,
        pages: vec![],
        setting: Setting::default(),
        is_kept: true,
        signed: None,
        postures: [0; 32],
    }
}

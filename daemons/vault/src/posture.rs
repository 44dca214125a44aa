//! Which ciphers may be used here, and what is left from when others might.

use levee_esp::{Sad, Spi};
use levee_ipc::vault::{MOST_SEVERED, VaultToSessiond};
use levee_policy::site::Cipher;
use levee_session::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// What sessiond said last of it. Until it has said something, the keyer alone decides.
#[derive(Debug, Default)]
pub struct Ciphers {
    allowed: Option<Vec<Cipher>>,
    /// Sessions that may have these alone, whatever the label has.
    protected: BTreeMap<SessionId, Vec<Cipher>>,
    /// Pairs from before, by inbound SPI; some may be gone.
    old: BTreeSet<Spi>,
    severed: BTreeSet<SessionId>,
    /// Who waits for the answer.
    asked: Option<u64>,
}

impl Ciphers {
    /// Whether this session may have keys for this cipher: by what its label has, and by what it has itself.
    pub fn allow(&self, session: SessionId, cipher: Cipher) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&cipher))
            && self.protected.get(&session).is_none_or(|own| own.contains(&cipher))
    }

    /// What sessiond says of this session alone; `None`: nothing.
    pub fn protect(&mut self, session: SessionId, ciphers: Option<Vec<Cipher>>) {
        match ciphers {
            Some(ciphers) => self.protected.insert(session, ciphers),
            None => self.protected.remove(&session),
        };
    }

    /// Takes what sessiond says; the same once more makes nothing old, unless it says so.
    pub fn set(&mut self, number: u64, (ciphers, anew): (Vec<Cipher>, bool), sad: &Sad<SessionId>) {
        if anew || self.allowed.as_ref() != Some(&ciphers) {
            self.old = sad.pairs().map(|pair| pair.inbound).collect();
            self.allowed = Some(ciphers);
        }
        self.severed.clear();
        self.asked = Some(number);
    }

    /// Erases what is old. Whoever has nothing new by now is severed.
    pub fn sever(&mut self, number: u64, sad: &mut Sad<SessionId>) {
        if self.asked != Some(number) {
            return;
        }
        let old = std::mem::take(&mut self.old);
        self.severed = old.into_iter().filter_map(|spi| sad.delete(spi)).collect();
        for pair in sad.pairs() {
            self.severed.remove(&pair.session);
        }
    }

    /// The answer, once nothing old is left.
    pub fn answer(&mut self, sad: &Sad<SessionId>) -> Option<VaultToSessiond> {
        let number = self.asked?;
        if !self.old.is_empty() {
            let here: BTreeSet<Spi> = sad.pairs().map(|pair| pair.inbound).collect();
            self.old.retain(|spi| here.contains(spi));
        }
        if !self.old.is_empty() {
            return None;
        }
        self.asked = None;
        let severed = std::mem::take(&mut self.severed).into_iter().take(MOST_SEVERED).collect();
        Some(VaultToSessiond::Moved { number, severed })
    }
}

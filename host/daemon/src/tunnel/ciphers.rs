//! Which ciphers may be used here, and what is left from when others might.

use levee_ipc::vault::{Cipher, MOST_SEVERED, VaultToSessiond};
use levee_session::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// What sessiond said last of it. Until it has said something, the keyer alone decides.
#[derive(Debug, Default)]
pub struct Ciphers {
    allowed: Option<Vec<Cipher>>,
    /// Sessions that may have these alone, whatever the label has.
    protected: BTreeMap<SessionId, Vec<Cipher>>,
    /// Pairs from before, by inbound SPI; some may be gone.
    old: BTreeSet<u32>,
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

    /// Takes what sessiond says; the same once more makes nothing old, unless it says so. `here` are the inbound SPIs of all pairs.
    pub fn set(
        &mut self,
        number: u64,
        (ciphers, anew): (Vec<Cipher>, bool),
        here: impl Iterator<Item = u32>,
    ) {
        if anew || self.allowed.as_ref() != Some(&ciphers) {
            self.old = here.collect();
            self.allowed = Some(ciphers);
        }
        self.severed.clear();
        self.asked = Some(number);
    }

    /// What is old and to be erased now, of the change with this number; [`Ciphers::erased`] is to hear whose it was.
    pub fn sever(&mut self, number: u64) -> BTreeSet<u32> {
        if self.asked == Some(number) { std::mem::take(&mut self.old) } else { BTreeSet::new() }
    }

    /// Whose pairs were erased, and who has some left. Whoever has nothing new by now is severed.
    pub fn erased(&mut self, whose: BTreeSet<SessionId>, left: impl Iterator<Item = SessionId>) {
        if whose.is_empty() {
            return;
        }
        self.severed = whose;
        left.for_each(|session| {
            self.severed.remove(&session);
        });
    }

    /// The answer, once nothing old is left. `here` as there.
    pub fn answer<I: Iterator<Item = u32>>(&mut self, here: impl FnOnce() -> I) -> Option<VaultToSessiond> {
        let number = self.asked?;
        if !self.old.is_empty() {
            let here: BTreeSet<u32> = here().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn session(n: u8) -> SessionId {
        SessionId::from_random([n; 16])
    }

    /// Pairs by inbound SPI.
    type Pairs = BTreeMap<u32, SessionId>;

    fn answered(ciphers: &mut Ciphers, pairs: &Pairs) -> Option<(u64, Vec<SessionId>)> {
        ciphers.answer(|| pairs.keys().copied()).map(|answer| match answer {
            VaultToSessiond::Moved { number, severed } => (number, severed),
            other => panic!("{other:?}"),
        })
    }

    fn sever(ciphers: &mut Ciphers, number: u64, pairs: &mut Pairs) {
        let whose = ciphers.sever(number).into_iter().filter_map(|spi| pairs.remove(&spi)).collect();
        ciphers.erased(whose, pairs.values().copied());
    }

    #[test]
    fn a_session_may_have_what_both_its_label_and_itself_may_have() {
        let (one, other) = (Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305);
        let mut ciphers = Ciphers::default();
        let may =
            |ciphers: &Ciphers| [1, 2].map(|n| [one, other].map(|cipher| ciphers.allow(session(n), cipher)));
        assert_eq!(may(&ciphers), [[true, true], [true, true]], "nothing was said");
        ciphers.protect(session(1), Some(vec![other]));
        assert_eq!(may(&ciphers), [[false, true], [true, true]]);
        ciphers.set(1, (vec![one], false), [].into_iter());
        assert_eq!(may(&ciphers), [[false, false], [true, false]]);
        ciphers.protect(session(1), None);
        assert_eq!(may(&ciphers), [[true, false], [true, false]]);
    }

    #[test]
    fn a_change_is_answered_once_nothing_of_before_is_left_and_the_same_again_at_once() {
        let mut ciphers = Ciphers::default();
        assert_eq!(answered(&mut ciphers, &Pairs::new()), None, "nobody asked");
        let mut pairs = Pairs::from([(1, session(1)), (2, session(2))]);
        let change = |ciphers: &mut Ciphers, number, anew, pairs: &Pairs| {
            ciphers.set(number, (vec![Cipher::Aes256Gcm], anew), pairs.keys().copied());
        };
        change(&mut ciphers, 7, false, &pairs);
        assert_eq!(answered(&mut ciphers, &pairs), None);
        // Two have followed.
        pairs.insert(3, session(1));
        pairs.remove(&1);
        assert_eq!(answered(&mut ciphers, &pairs), None);
        pairs.remove(&2);
        assert_eq!(answered(&mut ciphers, &pairs), Some((7, Vec::new())));
        assert_eq!(answered(&mut ciphers, &pairs), None, "once");
        change(&mut ciphers, 8, false, &pairs);
        assert_eq!(answered(&mut ciphers, &pairs), Some((8, Vec::new())), "it is so already");
        change(&mut ciphers, 9, true, &pairs);
        assert_eq!(answered(&mut ciphers, &pairs), None, "it is to be anew");
    }

    #[test]
    fn who_has_not_followed_is_severed_and_named_and_others_go_on() {
        let mut ciphers = Ciphers::default();
        let mut pairs = Pairs::from([(1, session(1)), (2, session(2)), (3, session(3))]);
        ciphers.set(7, (vec![Cipher::Aes256Gcm], false), pairs.keys().copied());
        pairs.insert(12, session(2));
        sever(&mut ciphers, 6, &mut pairs);
        assert_eq!(
            (pairs.len(), answered(&mut ciphers, &pairs)),
            (4, None),
            "another change was asked about"
        );
        sever(&mut ciphers, 7, &mut pairs);
        assert_eq!(pairs, Pairs::from([(12, session(2))]));
        assert_eq!(answered(&mut ciphers, &pairs), Some((7, vec![session(1), session(3)])));
    }
}

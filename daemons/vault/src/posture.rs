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

#[cfg(test)]
mod tests {
    use super::*;
    use levee_aead::Library;
    use levee_esp::{Install, SaKeys, SelectorSet, SessionPolicy, Side, Suite};
    use std::time::Duration;

    fn session(n: u8) -> SessionId {
        SessionId::from_random([n; 16])
    }

    fn sad(sessions: u8) -> Sad<SessionId> {
        let mut sad = Sad::new(Side::Server);
        for n in 1..=sessions {
            let policy = SessionPolicy { inner: Vec::new(), selectors: SelectorSet::default(), only: None };
            sad.open_session(session(n), policy).expect("it is the first");
        }
        sad
    }

    fn spi(n: u32) -> Spi {
        Spi::new(0x1_0000 + n).expect("it is not reserved")
    }

    fn install(sad: &mut Sad<SessionId>, of: u8, n: u32) {
        let keys = || SaKeys::new(Suite::Aes128Gcm, &[7; 20]).expect("as long as they are");
        let (inbound, outbound) = ((spi(n), keys()), (spi(n), keys()));
        let pair = Install {
            session: session(of),
            extended: true,
            inbound,
            outbound,
            answered: false,
            peer: None,
            aggregation: None,
        };
        sad.install(Duration::ZERO, pair, &Library::Ring).expect("there is room");
    }

    fn answered(ciphers: &mut Ciphers, sad: &Sad<SessionId>) -> Option<(u64, Vec<SessionId>)> {
        ciphers.answer(sad).map(|answer| match answer {
            VaultToSessiond::Moved { number, severed } => (number, severed),
            other => panic!("{other:?}"),
        })
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
        ciphers.set(1, (vec![one], false), &sad(0));
        assert_eq!(may(&ciphers), [[false, false], [true, false]]);
        ciphers.protect(session(1), None);
        assert_eq!(may(&ciphers), [[true, false], [true, false]]);
    }

    #[test]
    fn a_change_is_answered_once_nothing_of_before_is_left_and_the_same_again_at_once() {
        let (mut ciphers, mut sad) = (Ciphers::default(), sad(2));
        assert_eq!(answered(&mut ciphers, &sad), None, "nobody asked");
        install(&mut sad, 1, 1);
        install(&mut sad, 2, 2);
        ciphers.set(7, (vec![Cipher::Aes256Gcm], false), &sad);
        assert_eq!(answered(&mut ciphers, &sad), None);
        // Two have followed.
        install(&mut sad, 1, 3);
        sad.delete(spi(1));
        assert_eq!(answered(&mut ciphers, &sad), None);
        sad.delete(spi(2));
        assert_eq!(answered(&mut ciphers, &sad), Some((7, Vec::new())));
        assert_eq!(answered(&mut ciphers, &sad), None, "once");
        ciphers.set(8, (vec![Cipher::Aes256Gcm], false), &sad);
        assert_eq!(answered(&mut ciphers, &sad), Some((8, Vec::new())), "it is so already");
        ciphers.set(9, (vec![Cipher::Aes256Gcm], true), &sad);
        assert_eq!(answered(&mut ciphers, &sad), None, "it is to be anew");
    }

    #[test]
    fn who_has_not_followed_is_severed_and_named_and_others_go_on() {
        let (mut ciphers, mut sad) = (Ciphers::default(), sad(3));
        for n in 1..=3 {
            install(&mut sad, n as u8, n);
        }
        ciphers.set(7, (vec![Cipher::Aes256Gcm], false), &sad);
        install(&mut sad, 2, 12);
        ciphers.sever(6, &mut sad);
        assert_eq!(
            (sad.pair_count(), answered(&mut ciphers, &sad)),
            (4, None),
            "another change was asked about"
        );
        ciphers.sever(7, &mut sad);
        let left: Vec<Spi> = sad.pairs().map(|pair| pair.inbound).collect();
        assert_eq!(left, [spi(12)]);
        assert_eq!(answered(&mut ciphers, &sad), Some((7, vec![session(1), session(3)])));
    }
}

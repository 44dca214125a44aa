//! What the keys of IKE SAs were agreed by and are for, and what a label and the protection of a session ask of the IKE SA of their children.
//! Where that is more, the IKE SA gets other keys first (CREATE_CHILD_SA for the IKE SA itself, RFC 7296 1.3.2), and then its children do.

use crate::keyer::Keyer;
use levee_ike::{Command, Encryption, IkeId, IkeProposal, IkeSuite, KeyExchange};
use levee_policy::LabelName;
use levee_policy::site::{Cipher, Exchange, Exchanges, Keying};
use levee_session::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// A server's IKE SAs, by what their keys were agreed by and are for.
#[derive(Debug, Default)]
pub struct Agreed {
    suites: BTreeMap<IkeId, IkeSuite>,
    /// Those that are about to get other keys, for the sake of what.
    changing: BTreeMap<IkeId, Keying>,
    /// Those that are not established yet, and at which label their peers want a child.
    soon: BTreeMap<IkeId, LabelName>,
    /// Those whose peers have not agreed to other keys, and for the sake of what.
    refused: BTreeMap<IkeId, Keying>,
    /// The ciphers of protections: of those whose children are of an IKE SA.
    own: BTreeMap<IkeId, Vec<Cipher>>,
    /// Children that are asked for when an IKE SA has other keys: of which sessions, at which worker.
    waiting: BTreeMap<IkeId, BTreeSet<(SessionId, Option<u16>)>>,
}

impl Agreed {
    /// What this IKE SA's keys were agreed by.
    pub fn put(&mut self, ike: IkeId, suite: IkeSuite) {
        self.suites.insert(ike, suite);
    }

    /// It is gone.
    pub fn forget(&mut self, ike: IkeId) {
        self.suites.remove(&ike);
        self.changing.remove(&ike);
        self.soon.remove(&ike);
        self.refused.remove(&ike);
        self.waiting.remove(&ike);
        self.own.remove(&ike);
    }

    /// The session whose children are of this IKE SA from now on has these ciphers by its protection, if it has any: a workstation has one
    /// session at a time.
    pub fn serve(&mut self, ike: IkeId, own: Option<Vec<Cipher>>) {
        match own {
            Some(own) if self.suites.contains_key(&ike) => self.own.insert(ike, own),
            _ => self.own.remove(&ike),
        };
    }
}

/// What a cipher is called in IKE.
fn encryption(cipher: Cipher) -> Encryption {
    match cipher {
        Cipher::Aes256Gcm => Encryption::Aes256Gcm16,
        Cipher::Aes128Gcm => Encryption::Aes128Gcm16,
        Cipher::ChaCha20Poly1305 => Encryption::ChaCha20Poly1305,
    }
}

/// The same of all of them.
pub fn encryptions(ciphers: &[Cipher]) -> Vec<Encryption> {
    ciphers.iter().copied().map(encryption).collect()
}

/// What a curve is called in IKE.
fn method(curve: Exchange) -> KeyExchange {
    match curve {
        Exchange::X25519 => KeyExchange::X25519,
        Exchange::P256 => KeyExchange::P256,
        Exchange::P384 => KeyExchange::P384,
    }
}

/// The same of all of them.
pub fn methods(exchanges: &Exchanges) -> Vec<KeyExchange> {
    exchanges.curves.iter().copied().map(method).collect()
}

fn is_ml_kem(method: KeyExchange) -> bool {
    matches!(method, KeyExchange::MlKem768 | KeyExchange::MlKem1024)
}

/// Whether an IKE SA that was agreed like this is what is asked for.
fn suits(suite: &IkeSuite, keying: &Keying) -> bool {
    encryptions(&keying.ciphers).contains(&suite.encryption)
        && methods(&keying.exchanges).contains(&suite.key_exchange)
        && (!keying.exchanges.ml_kem || suite.additional.iter().any(|(_, method)| is_ml_kem(*method)))
}

/// Those of these proposals, and that of each, by which nothing can be agreed but what is asked for.
fn narrowed(proposals: &[IkeProposal], keying: &Keying) -> Vec<IkeProposal> {
    let (by, methods) = (encryptions(&keying.ciphers), methods(&keying.exchanges));
    let narrow = |proposal: &IkeProposal| {
        let has_ml_kem =
            proposal.additional.iter().any(|step| !step.is_empty() && step.iter().all(|one| is_ml_kem(*one)));
        let mut narrow = proposal.clone();
        narrow.key_exchange.retain(|one| methods.contains(one));
        (!narrow.key_exchange.is_empty() && (has_ml_kem || !keying.exchanges.ml_kem)).then_some(narrow)
    };
    sealed_by(proposals, &by).iter().filter_map(narrow).collect()
}

/// Those of these proposals, and that of each, by which an IKE SA is sealed by one of these alone.
pub fn sealed_by(proposals: &[IkeProposal], by: &[Encryption]) -> Vec<IkeProposal> {
    let narrow = |proposal: &IkeProposal| {
        let mut narrow = proposal.clone();
        narrow.encryption.retain(|one| by.contains(one));
        (!narrow.encryption.is_empty()).then_some(narrow)
    };
    proposals.iter().filter_map(narrow).collect()
}

/// The same proposals, with curves that more of these ask for before those that fewer do, and ciphers that none asks for behind all others: IKE
/// SAs that are made from now on seldom need other keys. What one label asks for has no IKE SA of another that is up sealed by less than the
/// site prefers.
fn preferring<'a>(
    proposals: &[IkeProposal],
    asked: impl Iterator<Item = &'a Keying> + Clone,
) -> Vec<IkeProposal> {
    let prefer = |proposal: &IkeProposal| {
        let mut preferred = proposal.clone();
        preferred
            .encryption
            .sort_by_key(|one| asked.clone().all(|these| !encryptions(&these.ciphers).contains(one)));
        preferred.key_exchange.sort_by_key(|one| {
            asked.clone().filter(|these| !methods(&these.exchanges).contains(one)).count()
        });
        preferred
    };
    proposals.iter().map(prefer).collect()
}

impl Keyer {
    /// What children at this label ask of this IKE SA: what the label does, and the protection of their session.
    fn asked_of(&self, ike: IkeId, label: &LabelName) -> Option<Keying> {
        let mut keying = self.children.keying(label)?.clone();
        if let Some(own) = self.agreed.own.get(&ike) {
            keying.ciphers.retain(|cipher| own.contains(cipher));
        }
        Some(keying)
    }

    /// Whether children at this label may be of this IKE SA. Where nothing was said of the label, what there is of proposals says so.
    pub(crate) fn suits(&self, ike: IkeId, label: &LabelName) -> bool {
        let Some(keying) = self.asked_of(ike, label) else { return true };
        self.agreed.suites.get(&ike).is_some_and(|suite| suits(suite, &keying))
    }

    /// Whether its peer has not agreed to the keys that the label asks for now.
    pub(crate) fn refuses(&self, ike: IkeId, label: &LabelName) -> bool {
        let refused = self.agreed.refused.get(&ike);
        refused.is_some() && refused == self.asked_of(ike, label).as_ref()
    }

    /// An IKE SA with children at this label gets no keys any more that the label does not allow, and others where it has such. Whether
    /// it has.
    pub(crate) fn hold_to(&mut self, ike: IkeId, label: &LabelName) -> bool {
        let Some(keying) = self.asked_of(ike, label) else { return true };
        let proposals = Some(narrowed(&self.endpoint.config().ike, &keying));
        let narrow = self.command(Command::NarrowIke { ike, proposals });
        if narrow.is_err() {
            self.agreed.soon.insert(ike, label.clone());
        }
        if self.suits(ike, label) {
            return true;
        }
        if narrow.is_ok()
            && !self.refuses(ike, label)
            && self.agreed.changing.get(&ike) != Some(&keying)
            && self.command(Command::RekeyIke { ike }).is_ok()
        {
            self.agreed.changing.insert(ike, keying);
        }
        false
    }

    /// Has a child made when this IKE SA has the keys that it needs.
    pub(crate) fn create_after(&mut self, ike: IkeId, session: SessionId, at: Option<u16>) {
        self.agreed.waiting.entry(ike).or_default().insert((session, at));
    }

    /// Begins and answers with what more labels allow.
    pub(crate) fn prefer(&mut self) {
        let proposals = preferring(&self.proposals, self.children.all_keying());
        self.endpoint.propose(proposals);
    }

    /// A server's IKE SA is established.
    pub(crate) fn agreed(&mut self, ike: IkeId, suite: IkeSuite) {
        self.agreed.put(ike, suite);
        if let Some(label) = self.agreed.soon.remove(&ike) {
            self.hold_to(ike, &label);
        }
    }

    /// A server's IKE SA has other keys: what waited for that is done.
    pub(crate) fn agreed_anew(&mut self, ike: IkeId, suite: IkeSuite) {
        self.agreed.put(ike, suite);
        self.agreed.changing.remove(&ike);
        // It may have been under way when more was asked for.
        for label in self.children.labels_of(ike) {
            self.hold_to(ike, &label);
        }
        for inbound in self.children.made_before(ike) {
            self.rekey(inbound);
        }
        for (session, at) in self.agreed.waiting.remove(&ike).unwrap_or_default() {
            self.create(ike, session, at);
        }
    }

    /// It has the keys that it had.
    pub(crate) fn not_agreed_anew(&mut self, ike: IkeId) {
        if let Some(keying) = self.agreed.changing.remove(&ike) {
            self.agreed.refused.insert(ike, keying);
            self.agreed.waiting.remove(&ike);
            self.count("IKE: a peer does not agree to the ciphers and key exchanges that are asked for now");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyer::tests::{Two, label, session};
    use levee_ike::Prf;
    use std::time::Duration;

    /// By any cipher.
    fn by(curves: &[Exchange], ml_kem: bool) -> Keying {
        sealed(Cipher::all(), curves, ml_kem)
    }

    fn sealed(ciphers: &[Cipher], curves: &[Exchange], ml_kem: bool) -> Keying {
        let exchanges = Exchanges { curves: curves.to_vec(), ml_kem };
        Keying { ciphers: ciphers.to_vec(), exchanges, key_life: Some(Duration::from_secs(60)) }
    }

    fn suite(key_exchange: KeyExchange, additional: &[KeyExchange]) -> IkeSuite {
        IkeSuite {
            encryption: Encryption::Aes256Gcm16,
            integrity: None,
            prf: Prf::HmacSha384,
            key_exchange,
            additional: (0..).zip(additional.iter().copied()).collect(),
        }
    }

    #[test]
    fn ciphers_have_one_name_in_ike_each() {
        assert_eq!(encryptions(Cipher::all()).len(), 3);
        for (cipher, expected) in [
            (Cipher::Aes128Gcm, Encryption::Aes128Gcm16),
            (Cipher::Aes256Gcm, Encryption::Aes256Gcm16),
            (Cipher::ChaCha20Poly1305, Encryption::ChaCha20Poly1305),
        ] {
            assert_eq!(encryptions(&[cipher]), [expected]);
        }
    }

    #[test]
    fn an_ike_sa_suits_by_its_curve_and_by_ml_kem_of_any_size_where_that_is_asked_for() {
        use KeyExchange::{MlKem768, MlKem1024, P256, P384, X25519};
        let (two, with) = (by(&[Exchange::P384, Exchange::X25519], false), by(&[Exchange::P384], true));
        for (suite, plain, hybrid) in [
            (suite(P384, &[]), true, false),
            (suite(X25519, &[]), true, false),
            (suite(P256, &[]), false, false),
            (suite(P256, &[MlKem768]), false, false),
            (suite(P384, &[MlKem768]), true, true),
            (suite(P384, &[P256, MlKem1024]), true, true),
            (suite(P384, &[P256]), true, false),
            (suite(X25519, &[MlKem1024]), true, false),
        ] {
            assert_eq!((suits(&suite, &two), suits(&suite, &with)), (plain, hybrid), "{suite:?}");
        }
    }

    #[test]
    fn an_ike_sa_suits_where_it_is_sealed_by_what_is_left() {
        let curves = [Exchange::P384];
        for (ciphers, suit) in [
            (&[Cipher::Aes256Gcm][..], true),
            (&[Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm], true),
            (&[Cipher::Aes128Gcm], false),
            (&[Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305], false),
            (&[], false),
        ] {
            let keying = sealed(ciphers, &curves, false);
            assert_eq!(suits(&suite(KeyExchange::P384, &[]), &keying), suit, "{ciphers:?}");
        }
        for (encryption, cipher) in [
            (Encryption::Aes128Gcm16, Cipher::Aes128Gcm),
            (Encryption::ChaCha20Poly1305, Cipher::ChaCha20Poly1305),
        ] {
            let suite = IkeSuite { encryption, ..suite(KeyExchange::P384, &[]) };
            assert!(suits(&suite, &sealed(&[cipher], &curves, false)), "{cipher:?}");
            assert!(!suits(&suite, &sealed(&[Cipher::Aes256Gcm], &curves, false)), "{cipher:?}");
        }
    }

    #[test]
    fn what_is_narrowed_agrees_to_nothing_that_does_not_suit() {
        let hybrid = |methods: &[KeyExchange]| IkeProposal {
            additional: vec![methods.to_vec()],
            ..IkeProposal::default()
        };
        let all = [
            hybrid(&[KeyExchange::MlKem768, KeyExchange::MlKem1024]),
            // By these alone ML-KEM could be left out.
            hybrid(&[KeyExchange::MlKem768, KeyExchange::P256]),
            hybrid(&[]),
            IkeProposal::default(),
        ];
        let shape = |asked: &Keying| {
            let narrowed = narrowed(&all, asked);
            narrowed.iter().map(|one| (one.key_exchange.clone(), one.additional.len())).collect::<Vec<_>>()
        };
        assert_eq!(shape(&by(&[Exchange::P384], true)), [(vec![KeyExchange::P384], 1)]);
        let both = vec![KeyExchange::X25519, KeyExchange::P384];
        let asked = by(&[Exchange::P384, Exchange::X25519], false);
        assert_eq!(shape(&asked), [(both.clone(), 1), (both.clone(), 1), (both.clone(), 1), (both, 0)]);
        assert!(shape(&by(&[], false)).is_empty());
        // By what they are sealed by, likewise, in the order that there was.
        let curves = [Exchange::P384];
        let sealed_by = |ciphers: &[Cipher]| {
            let narrowed = narrowed(&all[3..], &sealed(ciphers, &curves, false));
            narrowed.iter().map(|one| one.encryption.clone()).collect::<Vec<_>>()
        };
        assert_eq!(sealed_by(&[Cipher::ChaCha20Poly1305]), [[Encryption::ChaCha20Poly1305]]);
        let two = [Cipher::Aes128Gcm, Cipher::Aes256Gcm];
        assert_eq!(sealed_by(&two), [[Encryption::Aes256Gcm16, Encryption::Aes128Gcm16]]);
        assert!(sealed_by(&[]).is_empty());
    }

    #[test]
    fn what_all_labels_allow_is_preferred_and_all_that_there_was_stays() {
        use Encryption::{Aes128Gcm16, Aes256Gcm16, ChaCha20Poly1305};
        use KeyExchange::{P256, P384, X25519};
        let all = by(&[Exchange::X25519, Exchange::P256, Exchange::P384], false);
        let preferred = |asked: &[&Keying]| {
            let mut proposals = preferring(&[IkeProposal::default()], asked.iter().copied());
            let IkeProposal { key_exchange, encryption, .. } = proposals.remove(0);
            (key_exchange, encryption)
        };
        let curves = |asked: &[&Keying]| {
            let (curves, ciphers) = preferred(asked);
            assert_eq!(ciphers, IkeProposal::default().encryption);
            curves
        };
        assert_eq!(curves(&[]), [X25519, P256, P384]);
        assert_eq!(curves(&[&all, &all]), [X25519, P256, P384]);
        assert_eq!(curves(&[&all, &by(&[Exchange::P384], false)]), [P384, X25519, P256]);
        let without = by(&[Exchange::P384, Exchange::P256], true);
        assert_eq!(curves(&[&by(&[Exchange::P384], false), &without]), [P384, P256, X25519]);
        let chacha = Keying { ciphers: vec![Cipher::ChaCha20Poly1305], ..all.clone() };
        let weaker = Keying { ciphers: vec![Cipher::ChaCha20Poly1305, Cipher::Aes128Gcm], ..all.clone() };
        let ciphers = |asked: &[&Keying]| preferred(asked).1;
        assert_eq!(ciphers(&[&all, &chacha]), [Aes256Gcm16, Aes128Gcm16, ChaCha20Poly1305]);
        assert_eq!(ciphers(&[&chacha, &chacha]), [ChaCha20Poly1305, Aes256Gcm16, Aes128Gcm16]);
        assert_eq!(ciphers(&[&weaker, &chacha]), [Aes128Gcm16, ChaCha20Poly1305, Aes256Gcm16]);
    }

    /// The IKE SA of the one child that a server's keyer has.
    fn ike(two: &Two) -> IkeId {
        *two.server.keyer.agreed.suites.keys().next().expect("an IKE SA")
    }

    #[test]
    fn a_peer_is_asked_once_for_what_it_does_not_agree_to_and_again_for_something_else() {
        let told = "a peer does not agree to the ciphers and key exchanges";
        let (mut two, ..) = Two::agreed();
        let ike = ike(&two);
        let only =
            |curve| IkeProposal { key_exchange: vec![curve], ..two.workstation.keyer.proposals[0].clone() };
        two.workstation.keyer.endpoint.propose(vec![only(KeyExchange::X25519)]);
        for (curve, count) in [(Exchange::P384, 1), (Exchange::P384, 1), (Exchange::P256, 2)] {
            let asked = by(&[curve], true);
            two.server.keyer.move_to(label(), asked);
            assert!(!two.server.keyer.suits(ike, &label()));
            two.settle();
            assert_eq!(two.server.counted(told), count);
            assert!(two.server.keyer.refuses(ike, &label()) && !two.server.keyer.hold_to(ike, &label()));
            assert!(!two.server.keyer.refuses(ike, &"LOW".parse().unwrap()), "of that nothing was said");
            two.settle();
            assert_eq!(two.server.counted(told), count, "it is not asked again");
        }
        two.server.keyer.move_to(label(), by(&[Exchange::X25519], true));
        assert!(two.server.keyer.suits(ike, &label()) && two.server.keyer.hold_to(ike, &label()));
        assert!(!two.server.keyer.refuses(ike, &label()));
    }

    #[test]
    fn an_ike_sa_gets_the_keys_that_its_label_asks_for_and_is_asked_once() {
        let (mut two, ..) = Two::agreed();
        let ike = ike(&two);
        assert_eq!(two.server.keyer.agreed.suites[&ike].key_exchange, KeyExchange::X25519);
        two.server.keyer.move_to(label(), by(&[Exchange::P384], true));
        assert!(!two.server.keyer.hold_to(ike, &label()));
        two.settle();
        assert_eq!(two.server.keyer.agreed.suites[&ike].key_exchange, KeyExchange::P384);
        assert!(two.server.keyer.hold_to(ike, &label()) && two.server.keyer.agreed.changing.is_empty());
        // What is made from now on is by what the label asks for at once.
        let first = |keyer: &Keyer| keyer.endpoint.config().ike[0].key_exchange[0];
        assert_eq!(first(&two.server.keyer), KeyExchange::P384);
    }

    #[test]
    fn of_an_ike_sa_that_is_gone_nothing_is_kept() {
        let (mut two, ..) = Two::agreed();
        let ike = ike(&two);
        let agreed = &mut two.server.keyer.agreed;
        let asked = by(&[Exchange::P384], false);
        agreed.changing.insert(ike, asked.clone());
        agreed.refused.insert(ike, asked);
        agreed.soon.insert(ike, label());
        agreed.waiting.entry(ike).or_default().insert((session(1), None));
        agreed.serve(ike, Some(vec![Cipher::Aes256Gcm]));
        assert_eq!(agreed.own.len(), 1);
        agreed.forget(ike);
        assert!(agreed.changing.is_empty() && agreed.refused.is_empty() && agreed.soon.is_empty());
        assert!(agreed.waiting.is_empty() && agreed.own.is_empty() && agreed.suites.is_empty());
        agreed.serve(ike, Some(vec![Cipher::Aes256Gcm]));
        assert!(agreed.own.is_empty(), "it is not there");
    }

    #[test]
    fn a_protection_narrows_what_its_label_asks_for_as_long_as_its_session_is_served() {
        let (mut two, ..) = Two::agreed();
        let ike = ike(&two);
        let keyer = &mut two.server.keyer;
        keyer.move_to(label(), by(&[Exchange::X25519], true));
        for (own, suits) in [
            (Some(vec![Cipher::Aes256Gcm]), true),
            (Some(vec![Cipher::ChaCha20Poly1305]), false),
            (None, true),
        ] {
            keyer.agreed.serve(ike, own);
            assert_eq!(keyer.suits(ike, &label()), suits);
        }
    }
}

//! What the keys of IKE SAs were agreed by, and what a label asks of the IKE SAs that its children are of. Where that is more, an IKE SA
//! gets other keys first (CREATE_CHILD_SA for the IKE SA itself, RFC 7296 1.3.2), and then its children do.

use crate::keyer::Keyer;
use levee_ike::{Command, IkeId, IkeProposal, IkeSuite, KeyExchange};
use levee_policy::LabelName;
use levee_policy::site::{Exchange, Exchanges};
use levee_session::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// A server's IKE SAs, by what their keys were agreed by.
#[derive(Debug, Default)]
pub struct Agreed {
    suites: BTreeMap<IkeId, IkeSuite>,
    /// Those that are about to get other keys, for the sake of what.
    changing: BTreeMap<IkeId, Exchanges>,
    /// Those that are not established yet, and at which label their peers want a child.
    soon: BTreeMap<IkeId, LabelName>,
    /// Those whose peers have not agreed to other keys, and for the sake of what.
    refused: BTreeMap<IkeId, Exchanges>,
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
    }
}

/// The same in IKE's words.
fn method(curve: Exchange) -> KeyExchange {
    match curve {
        Exchange::X25519 => KeyExchange::X25519,
        Exchange::P256 => KeyExchange::P256,
        Exchange::P384 => KeyExchange::P384,
    }
}

/// All of them.
pub fn methods(exchanges: &Exchanges) -> Vec<KeyExchange> {
    exchanges.curves.iter().copied().map(method).collect()
}

fn is_ml_kem(method: KeyExchange) -> bool {
    matches!(method, KeyExchange::MlKem768 | KeyExchange::MlKem1024)
}

/// Whether an IKE SA that was agreed like this is what is asked for.
fn suits(suite: &IkeSuite, exchanges: &Exchanges) -> bool {
    methods(exchanges).contains(&suite.key_exchange)
        && (!exchanges.ml_kem || suite.additional.iter().any(|(_, method)| is_ml_kem(*method)))
}

/// Those of these proposals, and that of each, by which nothing can be agreed but what is asked for.
fn narrowed(proposals: &[IkeProposal], exchanges: &Exchanges) -> Vec<IkeProposal> {
    let may = methods(exchanges);
    let narrow = |proposal: &IkeProposal| {
        let has_ml_kem =
            proposal.additional.iter().any(|step| !step.is_empty() && step.iter().all(|one| is_ml_kem(*one)));
        let curves = proposal.key_exchange.iter().copied().filter(|one| may.contains(one));
        let key_exchange: Vec<KeyExchange> = curves.collect();
        (!key_exchange.is_empty() && (has_ml_kem || !exchanges.ml_kem))
            .then(|| IkeProposal { key_exchange, ..proposal.clone() })
    };
    proposals.iter().filter_map(narrow).collect()
}

/// The same proposals, with what more of these ask for before what fewer do: IKE SAs that are made from now on seldom need other keys.
fn preferring<'a>(
    proposals: &[IkeProposal],
    asked: impl Iterator<Item = &'a Exchanges> + Clone,
) -> Vec<IkeProposal> {
    let prefer = |proposal: &IkeProposal| {
        let mut preferred = proposal.clone();
        let refused = |one: &KeyExchange| asked.clone().filter(|these| !methods(these).contains(one)).count();
        preferred.key_exchange.sort_by_key(refused);
        preferred
    };
    proposals.iter().map(prefer).collect()
}

impl Keyer {
    /// Whether children at this label may be of this IKE SA. Where nothing was said of the label, what there is of proposals says so.
    pub(crate) fn suits(&self, ike: IkeId, label: &LabelName) -> bool {
        let Some(exchanges) = self.children.exchanges(label) else { return true };
        self.agreed.suites.get(&ike).is_some_and(|suite| suits(suite, exchanges))
    }

    /// Whether its peer has not agreed to the keys that the label asks for now.
    pub(crate) fn refuses(&self, ike: IkeId, label: &LabelName) -> bool {
        let refused = self.agreed.refused.get(&ike);
        refused.is_some_and(|refused| Some(refused) == self.children.exchanges(label))
    }

    /// An IKE SA with children at this label gets no keys any more that the label does not allow, and others where it has such. Whether
    /// it has.
    pub(crate) fn hold_to(&mut self, ike: IkeId, label: &LabelName) -> bool {
        let Some(exchanges) = self.children.exchanges(label).cloned() else { return true };
        let proposals = Some(narrowed(&self.endpoint.config().ike, &exchanges));
        let narrow = self.command(Command::NarrowIke { ike, proposals });
        if narrow.is_err() {
            self.agreed.soon.insert(ike, label.clone());
        }
        if self.suits(ike, label) {
            return true;
        }
        if narrow.is_ok()
            && !self.refuses(ike, label)
            && self.agreed.changing.get(&ike) != Some(&exchanges)
            && self.command(Command::RekeyIke { ike }).is_ok()
        {
            self.agreed.changing.insert(ike, exchanges);
        }
        false
    }

    /// Has a child made when this IKE SA has the keys that it needs.
    pub(crate) fn create_after(&mut self, ike: IkeId, session: SessionId, at: Option<u16>) {
        self.agreed.waiting.entry(ike).or_default().insert((session, at));
    }

    /// Begins and answers with what more labels allow.
    pub(crate) fn prefer(&mut self) {
        let proposals = preferring(&self.proposals, self.children.all_exchanges());
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
        if let Some(exchanges) = self.agreed.changing.remove(&ike) {
            self.agreed.refused.insert(ike, exchanges);
            self.agreed.waiting.remove(&ike);
            self.count("IKE: a peer does not agree to the key exchanges that are asked for now");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ike::{Encryption, Prf};

    fn exchanges(curves: &[Exchange], ml_kem: bool) -> Exchanges {
        Exchanges { curves: curves.to_vec(), ml_kem }
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
    fn an_ike_sa_suits_by_its_curve_and_by_ml_kem_of_any_size_where_that_is_asked_for() {
        use KeyExchange::{MlKem768, MlKem1024, P256, P384, X25519};
        let (two, with) =
            (exchanges(&[Exchange::P384, Exchange::X25519], false), exchanges(&[Exchange::P384], true));
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
        let shape = |asked: &Exchanges| {
            let narrowed = narrowed(&all, asked);
            narrowed.iter().map(|one| (one.key_exchange.clone(), one.additional.len())).collect::<Vec<_>>()
        };
        assert_eq!(shape(&exchanges(&[Exchange::P384], true)), [(vec![KeyExchange::P384], 1)]);
        let both = vec![KeyExchange::X25519, KeyExchange::P384];
        let asked = exchanges(&[Exchange::P384, Exchange::X25519], false);
        assert_eq!(shape(&asked), [(both.clone(), 1), (both.clone(), 1), (both.clone(), 1), (both, 0)]);
        assert!(shape(&exchanges(&[], false)).is_empty());
    }

    #[test]
    fn what_all_labels_allow_is_preferred_and_all_that_there_was_stays() {
        use KeyExchange::{P256, P384, X25519};
        let all = exchanges(&[Exchange::X25519, Exchange::P256, Exchange::P384], false);
        let preferred = |asked: &[&Exchanges]| {
            let proposals = preferring(&[IkeProposal::default()], asked.iter().copied());
            proposals[0].key_exchange.clone()
        };
        assert_eq!(preferred(&[]), [X25519, P256, P384]);
        assert_eq!(preferred(&[&all, &all]), [X25519, P256, P384]);
        assert_eq!(preferred(&[&all, &exchanges(&[Exchange::P384], false)]), [P384, X25519, P256]);
        let without = exchanges(&[Exchange::P384, Exchange::P256], true);
        assert_eq!(preferred(&[&exchanges(&[Exchange::P384], false), &without]), [P384, P256, X25519]);
    }
}

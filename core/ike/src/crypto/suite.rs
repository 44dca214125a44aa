//! Algorithms, proposals made of them, and the choice among a peer's proposals (RFC 7296 2.7, 3.3; RFC 8247; RFC 9370).

use crate::wire::{Proposal, Protocol, Transform, TransformKind};

/// Encryption algorithms (transform type 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// AES-GCM with a 16-octet tag and a 128-bit key (RFC 5282, RFC 4106).
    Aes128Gcm16,
    /// AES-GCM with a 16-octet tag and a 256-bit key.
    Aes256Gcm16,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
    /// AES-CBC with a 128-bit key, for old peers; needs an [`Integrity`].
    Aes128Cbc,
    /// AES-CBC with a 256-bit key, for old peers; needs an [`Integrity`].
    Aes256Cbc,
}

impl Encryption {
    pub(crate) fn code(self) -> (u16, Option<u16>) {
        match self {
            Self::Aes128Gcm16 => (20, Some(128)),
            Self::Aes256Gcm16 => (20, Some(256)),
            Self::ChaCha20Poly1305 => (28, None),
            Self::Aes128Cbc => (12, Some(128)),
            Self::Aes256Cbc => (12, Some(256)),
        }
    }

    /// Octets of the key without the salt.
    pub fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm16 | Self::Aes128Cbc => 16,
            Self::Aes256Gcm16 | Self::ChaCha20Poly1305 | Self::Aes256Cbc => 32,
        }
    }

    /// Octets of salt that follow the key (RFC 4106 8.1, RFC 5282 7.1, RFC 7634 2).
    pub fn salt_length(self) -> usize {
        if self.is_aead() { 4 } else { 0 }
    }

    /// Whether the algorithm authenticates too, so that there is no [`Integrity`].
    pub fn is_aead(self) -> bool {
        matches!(self, Self::Aes128Gcm16 | Self::Aes256Gcm16 | Self::ChaCha20Poly1305)
    }
}

/// Integrity algorithms (transform type 3), for AES-CBC only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Integrity {
    /// AUTH_HMAC_SHA2_256_128 (RFC 4868).
    HmacSha256,
    /// AUTH_HMAC_SHA2_384_192.
    HmacSha384,
    /// AUTH_HMAC_SHA2_512_256.
    HmacSha512,
}

impl Integrity {
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::HmacSha256 => 12,
            Self::HmacSha384 => 13,
            Self::HmacSha512 => 14,
        }
    }

    /// Octets of the key (RFC 4868 2.1.1: that of the hash's output).
    pub fn key_length(self) -> usize {
        match self {
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// Octets of the truncated tag.
    pub fn tag_length(self) -> usize {
        self.key_length() / 2
    }

    pub(crate) fn prf(self) -> Prf {
        match self {
            Self::HmacSha256 => Prf::HmacSha256,
            Self::HmacSha384 => Prf::HmacSha384,
            Self::HmacSha512 => Prf::HmacSha512,
        }
    }
}

/// Pseudorandom functions (transform type 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Prf {
    /// PRF_HMAC_SHA2_256.
    HmacSha256,
    /// PRF_HMAC_SHA2_384.
    HmacSha384,
    /// PRF_HMAC_SHA2_512.
    HmacSha512,
}

impl Prf {
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::HmacSha256 => 5,
            Self::HmacSha384 => 6,
            Self::HmacSha512 => 7,
        }
    }
}

/// Key exchange methods (transform type 4, and ADDKE1 to ADDKE7 of RFC 9370).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyExchange {
    /// Group 19: the NIST curve P-256 (RFC 5903).
    P256,
    /// Group 20: the NIST curve P-384 (RFC 5903).
    P384,
    /// Group 31: Curve25519 (RFC 8031).
    X25519,
    /// Method 36: ML-KEM-768 (FIPS 203).
    MlKem768,
    /// Method 37: ML-KEM-1024 (FIPS 203).
    MlKem1024,
}

impl KeyExchange {
    pub(crate) const ALL: [Self; 5] = [Self::P256, Self::P384, Self::X25519, Self::MlKem768, Self::MlKem1024];

    pub(crate) fn code(self) -> u16 {
        match self {
            Self::P256 => 19,
            Self::P384 => 20,
            Self::X25519 => 31,
            Self::MlKem768 => 36,
            Self::MlKem1024 => 37,
        }
    }

    pub(crate) fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.code() == code)
    }
}

/// What may protect an IKE SA. Each list is in order of preference and means any of it; lists are never "anything".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeProposal {
    /// Encryption algorithms: all AEAD, or none.
    pub encryption: Vec<Encryption>,
    /// Integrity algorithms: empty with AEADs.
    pub integrity: Vec<Integrity>,
    /// Pseudorandom functions.
    pub prf: Vec<Prf>,
    /// Methods of the first key exchange.
    pub key_exchange: Vec<KeyExchange>,
    /// Additional key exchanges (RFC 9370), each a list of alternatives. All of them are required.
    pub additional: Vec<Vec<KeyExchange>>,
}

/// What may protect a child SA; lists as in [`IkeProposal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildProposal {
    /// Encryption algorithms: all AEAD, or none.
    pub encryption: Vec<Encryption>,
    /// Integrity algorithms: empty with AEADs.
    pub integrity: Vec<Integrity>,
    /// Methods of the child's own key exchange in CREATE_CHILD_SA.
    pub key_exchange: Vec<KeyExchange>,
    /// Whether a child made by CREATE_CHILD_SA without a key exchange of its own is acceptable.
    pub key_exchange_optional: bool,
    /// Extended sequence numbers: `[true, false]` offers both and prefers extended.
    pub esn: Vec<bool>,
}

impl Default for IkeProposal {
    /// AEADs only, SHA-2, elliptic curves: the algorithms RFC 8247 demands or recommends, the strong ones first.
    fn default() -> Self {
        Self {
            encryption: vec![Encryption::Aes256Gcm16, Encryption::Aes128Gcm16, Encryption::ChaCha20Poly1305],
            integrity: vec![],
            prf: vec![Prf::HmacSha384, Prf::HmacSha256, Prf::HmacSha512],
            key_exchange: vec![KeyExchange::X25519, KeyExchange::P256, KeyExchange::P384],
            additional: vec![],
        }
    }
}

impl IkeProposal {
    /// The algorithms of CNSA (RFC 9206) alone: AES-256-GCM, HMAC-SHA2-384, P-384; with these additional key exchanges.
    pub fn cnsa(additional: Vec<Vec<KeyExchange>>) -> Self {
        Self {
            encryption: vec![Encryption::Aes256Gcm16],
            integrity: vec![],
            prf: vec![Prf::HmacSha384],
            key_exchange: vec![KeyExchange::P384],
            additional,
        }
    }
}

impl ChildProposal {
    /// The algorithms of CNSA (RFC 9206) alone: AES-256-GCM, and P-384 for a key exchange of its own.
    pub fn cnsa() -> Self {
        Self {
            encryption: vec![Encryption::Aes256Gcm16],
            key_exchange: vec![KeyExchange::P384],
            ..Self::default()
        }
    }
}

impl Default for ChildProposal {
    fn default() -> Self {
        Self {
            encryption: vec![Encryption::Aes256Gcm16, Encryption::Aes128Gcm16, Encryption::ChaCha20Poly1305],
            integrity: vec![],
            key_exchange: vec![KeyExchange::X25519, KeyExchange::P256, KeyExchange::P384],
            key_exchange_optional: false,
            esn: vec![true, false],
        }
    }
}

/// The algorithms of one IKE SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeSuite {
    /// How messages are encrypted.
    pub encryption: Encryption,
    /// How they are authenticated, unless the encryption does it.
    pub integrity: Option<Integrity>,
    /// The pseudorandom function.
    pub prf: Prf,
    /// The first key exchange.
    pub key_exchange: KeyExchange,
    /// Additional key exchanges in the order in which they are done, with the index of their transform type.
    pub additional: Vec<(u8, KeyExchange)>,
}

/// The algorithms of one child SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSuite {
    /// How packets are encrypted.
    pub encryption: Encryption,
    /// How they are authenticated, unless the encryption does it.
    pub integrity: Option<Integrity>,
    /// The child's own key exchange; `None` when its keys follow from the IKE SA's alone.
    pub key_exchange: Option<KeyExchange>,
    /// Whether sequence numbers are extended to 64 bits.
    pub esn: bool,
}

fn t(kind: TransformKind, id: u16) -> Transform {
    Transform { kind, id, key_bits: None, understood: true }
}

fn encryption(e: Encryption) -> Transform {
    let (id, key_bits) = e.code();
    Transform { kind: TransformKind::Encryption, id, key_bits, understood: true }
}

impl IkeProposal {
    /// The proposal as levee offers it, with the new SPI when an IKE SA is rekeyed.
    pub(crate) fn offer(&self, spi: Option<u64>) -> Proposal {
        let mut transforms: Vec<Transform> = self.encryption.iter().map(|e| encryption(*e)).collect();
        transforms.extend(self.integrity.iter().map(|i| t(TransformKind::Integrity, i.code())));
        transforms.extend(self.prf.iter().map(|p| t(TransformKind::Prf, p.code())));
        transforms.extend(self.key_exchange.iter().map(|k| t(TransformKind::KeyExchange, k.code())));
        for (n, step) in (0u8..7).zip(&self.additional) {
            transforms.extend(step.iter().map(|k| t(TransformKind::Additional(n), k.code())));
        }
        let spi = spi.map(|s| s.to_be_bytes().to_vec()).unwrap_or_default();
        Proposal { number: 1, protocol: Protocol::Ike, spi, transforms }
    }

    fn suite(&self, p: &Proposal) -> Option<IkeSuite> {
        let pick = Pick { transforms: &p.transforms };
        let suite = IkeSuite {
            encryption: pick.encryption(&self.encryption)?,
            integrity: pick.integrity(&self.integrity)?,
            prf: pick.of(TransformKind::Prf, &self.prf, Prf::code)?,
            key_exchange: pick.of(TransformKind::KeyExchange, &self.key_exchange, KeyExchange::code)?,
            additional: {
                let mut steps = Vec::new();
                for (n, step) in (0u8..7).zip(&self.additional) {
                    steps.push((n, pick.of(TransformKind::Additional(n), step, KeyExchange::code)?));
                }
                steps
            },
        };
        let steps = suite.additional.len();
        let known = |k| match k {
            TransformKind::Encryption | TransformKind::Prf | TransformKind::KeyExchange => true,
            TransformKind::Integrity => suite.integrity.is_some() || pick.none_is_offered(k),
            // RFC 9370 2.2.2: NONE among the alternatives makes the step optional.
            TransformKind::Additional(n) => usize::from(n) < steps || pick.none_is_offered(k),
            _ => false,
        };
        p.transforms.iter().all(|t| known(t.kind)).then_some(suite)
    }
}

impl ChildProposal {
    /// The proposal as levee offers it. Without `with_key_exchange` it is IKE_AUTH's (RFC 7296 1.2: no key exchange there).
    pub(crate) fn offer(&self, spi: u32, with_key_exchange: bool) -> Proposal {
        let mut transforms: Vec<Transform> = self.encryption.iter().map(|e| encryption(*e)).collect();
        transforms.extend(self.integrity.iter().map(|i| t(TransformKind::Integrity, i.code())));
        if with_key_exchange {
            transforms.extend(self.key_exchange.iter().map(|k| t(TransformKind::KeyExchange, k.code())));
        }
        transforms.extend(self.esn.iter().map(|e| t(TransformKind::SequenceNumbers, u16::from(*e))));
        Proposal { number: 1, protocol: Protocol::Esp, spi: spi.to_be_bytes().to_vec(), transforms }
    }

    fn suite(&self, p: &Proposal, in_auth: bool) -> Option<ChildSuite> {
        let pick = Pick { transforms: &p.transforms };
        let key_exchange = if in_auth {
            // RFC 7296 1.2: key exchange transforms in IKE_AUTH are ignored by some peers and sent by others.
            None
        } else {
            match pick.of(TransformKind::KeyExchange, &self.key_exchange, KeyExchange::code) {
                None if !(self.key_exchange_optional && pick.none_is_offered(TransformKind::KeyExchange)) => {
                    return None;
                }
                chosen => chosen,
            }
        };
        let suite = ChildSuite {
            encryption: pick.encryption(&self.encryption)?,
            integrity: pick.integrity(&self.integrity)?,
            key_exchange,
            esn: pick.of(TransformKind::SequenceNumbers, &self.esn, u16::from)?,
        };
        let known = |k| match k {
            TransformKind::Encryption | TransformKind::SequenceNumbers | TransformKind::KeyExchange => true,
            TransformKind::Integrity => suite.integrity.is_some() || pick.none_is_offered(k),
            TransformKind::Additional(_) => in_auth || pick.none_is_offered(k),
            _ => false,
        };
        p.transforms.iter().all(|t| known(t.kind)).then_some(suite)
    }
}

/// Chooses transforms out of one proposal.
struct Pick<'a> {
    transforms: &'a [Transform],
}

impl Pick<'_> {
    fn of<T: Copy>(&self, kind: TransformKind, ours: &[T], code: impl Fn(T) -> u16) -> Option<T> {
        let offered = |c| {
            self.transforms
                .iter()
                .any(|t| t.kind == kind && t.id == c && t.key_bits.is_none() && t.understood)
        };
        ours.iter().copied().find(|o| offered(code(*o)))
    }

    fn encryption(&self, ours: &[Encryption]) -> Option<Encryption> {
        ours.iter().copied().find(|e| self.transforms.contains(&encryption(*e)))
    }

    /// `Some(None)` when there need be no integrity transform because the encryption is an AEAD.
    fn integrity(&self, ours: &[Integrity]) -> Option<Option<Integrity>> {
        if ours.is_empty() {
            return self.none_is_offered(TransformKind::Integrity).then_some(None);
        }
        self.of(TransformKind::Integrity, ours, Integrity::code).map(Some)
    }

    /// RFC 7296 3.3.3: NONE (0) or nothing of the kind at all.
    fn none_is_offered(&self, kind: TransformKind) -> bool {
        let mut of_kind = self.transforms.iter().filter(|t| t.kind == kind).peekable();
        of_kind.peek().is_none() || of_kind.any(|t| t.id == 0)
    }
}

/// A choice out of what a peer offered: the number and SPI of its proposal, and the answer to send.
#[derive(Debug, Clone)]
pub(crate) struct Chosen<S> {
    pub(crate) suite: S,
    pub(crate) number: u8,
    pub(crate) spi: Vec<u8>,
}

/// The first of the peer's proposals for IKE that some proposal of ours accepts.
pub(crate) fn choose_ike(ours: &[IkeProposal], offered: &[Proposal]) -> Option<Chosen<IkeSuite>> {
    let (p, suite) = offered
        .iter()
        .filter(|p| p.protocol == Protocol::Ike)
        .find_map(|p| ours.iter().find_map(|o| o.suite(p)).map(|s| (p, s)))?;
    Some(Chosen { suite, number: p.number, spi: p.spi.clone() })
}

/// The first of the peer's proposals for ESP that some proposal of ours accepts. `in_auth`: in IKE_AUTH, without a key exchange.
pub(crate) fn choose_child(
    ours: &[ChildProposal],
    offered: &[Proposal],
    in_auth: bool,
) -> Option<Chosen<ChildSuite>> {
    let (p, suite) = offered
        .iter()
        .filter(|p| p.protocol == Protocol::Esp && p.spi.len() == 4)
        .find_map(|p| ours.iter().find_map(|o| o.suite(p, in_auth)).map(|s| (p, s)))?;
    Some(Chosen { suite, number: p.number, spi: p.spi.clone() })
}

impl Chosen<IkeSuite> {
    /// The answer: one proposal, one transform of each kind (RFC 7296 3.3.6).
    pub(crate) fn answer(&self, spi: Option<u64>) -> Proposal {
        let s = &self.suite;
        let one = IkeProposal {
            encryption: vec![s.encryption],
            integrity: s.integrity.into_iter().collect(),
            prf: vec![s.prf],
            key_exchange: vec![s.key_exchange],
            additional: s.additional.iter().map(|(_, k)| vec![*k]).collect(),
        };
        Proposal { number: self.number, ..one.offer(spi) }
    }
}

impl Chosen<ChildSuite> {
    pub(crate) fn answer(&self, spi: u32) -> Proposal {
        let s = &self.suite;
        let one = ChildProposal {
            encryption: vec![s.encryption],
            integrity: s.integrity.into_iter().collect(),
            key_exchange: s.key_exchange.into_iter().collect(),
            key_exchange_optional: false,
            esn: vec![s.esn],
        };
        Proposal { number: self.number, ..one.offer(spi, s.key_exchange.is_some()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cnsas_proposals_have_its_algorithms_and_no_other() {
        use TransformKind::{Additional, Encryption, KeyExchange, Prf, SequenceNumbers};
        let ike = IkeProposal::cnsa(vec![vec![super::KeyExchange::MlKem1024]]).offer(None);
        let child = ChildProposal::cnsa().offer(256, true);
        for proposal in [&ike, &child] {
            assert_eq!(offered(proposal, Encryption), [(20, Some(256))]);
            assert_eq!(offered(proposal, KeyExchange), [(20, None)]);
        }
        assert_eq!((offered(&ike, Prf), offered(&ike, Additional(0))), (vec![(6, None)], vec![(37, None)]));
        assert_eq!(offered(&child, SequenceNumbers), [(1, None), (0, None)]);
        assert_eq!((ike.transforms.len(), child.transforms.len()), (4, 4), "and nothing else");
        // Whoever offers less beside them gets them, and whoever offers less alone gets nothing.
        let wide = IkeProposal::default().offer(None);
        let chosen = choose_ike(&[IkeProposal::cnsa(vec![])], &[wide]).unwrap().suite;
        assert_eq!(chosen.encryption, super::Encryption::Aes256Gcm16);
        assert_eq!((chosen.prf, chosen.key_exchange), (super::Prf::HmacSha384, super::KeyExchange::P384));
        let all = IkeProposal::cnsa(vec![]);
        for weaker in [
            IkeProposal { encryption: vec![super::Encryption::Aes128Gcm16], ..all.clone() },
            IkeProposal { encryption: vec![super::Encryption::ChaCha20Poly1305], ..all.clone() },
            IkeProposal { prf: vec![super::Prf::HmacSha256, super::Prf::HmacSha512], ..all.clone() },
            IkeProposal {
                key_exchange: vec![super::KeyExchange::X25519, super::KeyExchange::P256],
                ..all.clone()
            },
            IkeProposal { additional: vec![vec![super::KeyExchange::MlKem768]], ..all.clone() },
        ] {
            let hybrid = IkeProposal::cnsa(vec![vec![super::KeyExchange::MlKem1024]]);
            assert!(choose_ike(&[hybrid, all.clone()], &[weaker.offer(None)]).is_none(), "{weaker:?}");
        }
    }

    /// The registry's numbers of what a proposal offers of one kind, in its order.
    fn offered(proposal: &Proposal, kind: TransformKind) -> Vec<(u16, Option<u16>)> {
        let of_kind = proposal.transforms.iter().filter(|t| t.kind == kind);
        of_kind.map(|t| (t.id, t.key_bits)).collect()
    }

    /// Whoever changes a default says in docs/ike.md, "Defaults", how it stands to RFC 8247 and to CNSA (RFC 9206).
    #[test]
    fn the_defaults_are_rfc_8247s_algorithms_and_of_them_cnsas_cipher_and_hash_first() {
        use TransformKind::{Encryption, Integrity, KeyExchange, Prf, SequenceNumbers};
        let (ike, child) = (IkeProposal::default().offer(None), ChildProposal::default().offer(256, true));
        for proposal in [&ike, &child] {
            // AES-256-GCM, AES-128-GCM, ChaCha20-Poly1305: nothing that is not an AEAD, so no integrity transform.
            let aead = [(20, Some(256)), (20, Some(128)), (28, None)];
            assert_eq!(offered(proposal, Encryption), aead);
            assert!(offered(proposal, Integrity).is_empty());
            // X25519, P-256, P-384: no MODP group at all, thus none of those that RFC 8247 2.4 forbids.
            assert_eq!(offered(proposal, KeyExchange), [(31, None), (19, None), (20, None)]);
        }
        // HMAC-SHA2-384, -256, -512.
        assert_eq!(offered(&ike, Prf), [(6, None), (5, None), (7, None)]);
        assert_eq!(offered(&child, SequenceNumbers), [(1, None), (0, None)]);
        assert_eq!((ike.transforms.len(), child.transforms.len()), (9, 8), "and nothing else");
        assert!(!ChildProposal::default().key_exchange_optional);
    }

    #[test]
    fn integrity_algorithms_have_the_numbers_keys_and_tags_of_rfc_4868() {
        let all = [Integrity::HmacSha256, Integrity::HmacSha384, Integrity::HmacSha512];
        let facts = all.map(|one| (one.code(), one.key_length(), one.tag_length()));
        assert_eq!(facts, [(12, 32, 16), (13, 48, 24), (14, 64, 32)]);
    }

    #[test]
    fn a_child_has_a_key_exchange_of_its_own_unless_it_may_be_without_and_in_ike_auth_never() {
        use super::KeyExchange::{P384, X25519};
        let ours = |key_exchange_optional| ChildProposal {
            key_exchange: vec![X25519],
            key_exchange_optional,
            ..ChildProposal::default()
        };
        // What a peer offers: these, and none (0) beside them or not.
        let offer = |methods: &[KeyExchange], none: bool| {
            let theirs = ChildProposal { key_exchange: methods.to_vec(), ..ChildProposal::default() };
            let mut offer = theirs.offer(256, true);
            offer.transforms.extend(none.then(|| t(TransformKind::KeyExchange, 0)));
            offer
        };
        let chosen = |optional, in_auth, offer: Proposal| {
            choose_child(&[ours(optional)], &[offer], in_auth).map(|chosen| chosen.suite.key_exchange)
        };
        for optional in [false, true] {
            // (RFC 7296 1.2.)
            for methods in [&[][..], &[X25519], &[P384]] {
                assert_eq!(chosen(optional, true, offer(methods, false)), Some(None), "{methods:?}");
            }
            for (methods, none, without) in [
                (&[X25519][..], false, Some(Some(X25519))),
                (&[P384, X25519], true, Some(Some(X25519))),
                // Another method alone is refused: nobody leaves out what the peer asks for.
                (&[P384], false, None),
                (&[P384], true, if optional { Some(None) } else { None }),
                (&[], false, if optional { Some(None) } else { None }),
                (&[], true, if optional { Some(None) } else { None }),
            ] {
                assert_eq!(
                    chosen(optional, false, offer(methods, none)),
                    without,
                    "{optional} {methods:?} {none}"
                );
            }
        }
    }

    #[test]
    fn a_child_whose_proposal_has_more_than_levee_knows_or_no_spi_of_four_octets_is_refused() {
        let ours = [ChildProposal::default()];
        let sound = ChildProposal::default().offer(256, false);
        let chosen = |offer: &Proposal| choose_child(&ours, std::slice::from_ref(offer), true).is_some();
        assert!(chosen(&sound));
        for (kind, id, goes) in [
            (TransformKind::Integrity, 12, false),
            (TransformKind::Integrity, 0, true),
            (TransformKind::Additional(0), 35, true),
            (TransformKind::Prf, 5, false),
        ] {
            let mut more = sound.clone();
            more.transforms.push(t(kind, id));
            assert_eq!(chosen(&more), goes, "{kind:?} {id}");
        }
        // Outside IKE_AUTH an additional key exchange that is not done must be one that need not be.
        let later = ChildProposal { key_exchange_optional: true, ..ChildProposal::default() };
        for (id, goes) in [(35, false), (0, true)] {
            let mut more = sound.clone();
            more.transforms.push(t(TransformKind::Additional(0), id));
            assert_eq!(choose_child(std::slice::from_ref(&later), &[more], false).is_some(), goes, "{id}");
        }
        for other in [
            Proposal { protocol: Protocol::Ike, ..sound.clone() },
            Proposal { spi: vec![0; 8], ..sound.clone() },
            Proposal { spi: Vec::new(), ..sound.clone() },
        ] {
            assert!(!chosen(&other), "{other:?}");
        }
    }
}

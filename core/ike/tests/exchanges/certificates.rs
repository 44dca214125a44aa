//! Peers that prove themselves by certificates: who is believed, and who is not.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, RevokedCertParams, SanType, SerialNumber, SignatureAlgorithm,
    SigningKey as _,
};
use sha1::{Digest, Sha1};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use time::OffsetDateTime;

/// The pairs' clock begins here.
const NOW: i64 = 1_790_000_000;
const DAY: i64 = 86_400;
const IKE: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 17];

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(NOW + seconds).expect("a time")
}

struct Authority {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate, its key, and what it signs with.
struct Named {
    chain: Vec<Vec<u8>>,
    key: KeyPair,
    scheme: SignatureScheme,
}

fn ca() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    (params.not_before, params.not_after) = (at(-DAY), at(DAY));
    params
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let params = ca();
        let der = params.self_signed(&key).expect("signed").der().to_vec();
        Self { der, issuer: Issuer::new(params, key) }
    }

    /// An authority below this one.
    fn below(&self) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let mut params = ca();
        params.distinguished_name.push(DnType::CommonName, "below");
        let der = params.signed_by(&key, &self.issuer).expect("signed").der().to_vec();
        Self { der, issuer: Issuer::new(params, key) }
    }

    /// A certificate of side B, with this changed.
    fn names(&self, kind: &'static SignatureAlgorithm, change: impl FnOnce(&mut CertificateParams)) -> Named {
        let key = KeyPair::generate_for(kind).expect("a key");
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (at(-DAY), at(DAY));
        params.serial_number = Some(SerialNumber::from(7));
        params.subject_alt_names = vec![
            SanType::DnsName("b.test".try_into().expect("a name")),
            SanType::Rfc822Name("keeper@b.test".try_into().expect("a name")),
            SanType::IpAddress([192, 0, 2, 3].into()),
            SanType::IpAddress([0xfd00, 0, 0, 0, 0, 0, 0, 3].into()),
        ];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(IKE.into())];
        change(&mut params);
        let der = params.signed_by(&key, &self.issuer).expect("signed").der().to_vec();
        let scheme = SignatureScheme::of_certificate(&der).expect("a known kind of key");
        Named { chain: vec![der], key, scheme }
    }

    fn list(&self, serials: &[u64], (from, to): (i64, i64)) -> Vec<u8> {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: at(from),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: at(from),
            next_update: at(to),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("signed").der().to_vec()
    }
}

fn dns() -> Identity {
    fqdn("b.test")
}

/// What A makes of B, who shows this chain as this identity, and signs with this key.
fn meets(
    anchors: TrustAnchors,
    shown: &Named,
    id: &Identity,
    schemes: &[SignatureScheme],
) -> Result<PeerCertificate, CloseReason> {
    let mut configs = psk_configs();
    let (anchors, schemes) = (Arc::new(anchors), schemes.to_vec());
    configs[A].peers[0].remote_id = RemoteId::Exactly(id.clone());
    configs[A].peers[0].remote_auth = RemoteAuth::Certificate { anchors, schemes };
    configs[B].peers[0].local_id = id.clone();
    configs[B].peers[0].local_auth =
        LocalAuth::Certificate { chain: shown.chain.clone(), schemes: vec![shown.scheme] };
    let mut p = Pair::new(configs, 7);
    let key = KeyPair::try_from(shown.key.serialize_der()).expect("its own key");
    p.sides[B].signer = Some(Box::new(move |_, octets| key.sign(octets).expect("signed")));
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    let identity = |event: &Event| match event {
        Event::IkeEstablished { identity, .. } => Some(identity.certificate.clone()),
        _ => None,
    };
    match p.take(A, identity).pop() {
        Some(certificate) => {
            assert_eq!(p.children(A).len(), 1);
            Ok(certificate.expect("it was shown"))
        }
        None => Err(p.closed(A).first().map(|why| (*why).clone()).expect("it says why")),
    }
}

fn anchors(authorities: &[&Authority], lists: &[Vec<u8>]) -> TrustAnchors {
    let ders: Vec<Vec<u8>> = authorities.iter().map(|one| one.der.clone()).collect();
    TrustAnchors::new(&ders, lists).expect("sound")
}

fn refused(met: Result<PeerCertificate, CloseReason>) -> CertificateError {
    match met {
        Err(CloseReason::Certificate(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_is_each_name_in_its_certificate_and_no_other() {
    let authority = Authority::new();
    let shown = authority.names(&PKCS_ECDSA_P256_SHA256, |_| {});
    let dn = |params: &mut CertificateParams| params.distinguished_name.push(DnType::CommonName, "b");
    let subject = authority.names(&PKCS_ECDSA_P256_SHA256, dn);
    let raw = |common: &str| {
        let mut der = vec![0x30, 0x0c, 0x31, 0x0a, 0x30, 0x08, 0x06, 3, 0x55, 4, 3, 0x0c, 1];
        der.extend_from_slice(common.as_bytes());
        Identity::DistinguishedName(der)
    };
    let meets = |shown: &Named, id: &Identity| {
        meets(anchors(&[&authority], &[]), shown, id, &SignatureScheme::DEFAULT)
    };
    let address = |text: &str| Identity::Address(text.parse().expect("an address"));
    let mail = |text: &str| Identity::Mail(text.to_owned());
    for id in [dns(), mail("keeper@b.test"), address("192.0.2.3"), address("fd00::3")] {
        assert_eq!(meets(&shown, &id).expect("it is").der(), shown.chain[0], "{id:?}");
    }
    for id in [fqdn("c.test"), mail("other@b.test"), address("192.0.2.4"), address("fd00::4"), raw("b")] {
        assert_eq!(refused(meets(&shown, &id)), CertificateError::WrongName, "{id:?}");
    }
    assert!(meets(&subject, &raw("b")).is_ok());
    assert_eq!(refused(meets(&subject, &raw("c"))), CertificateError::WrongName);
    assert_eq!(dns_names(&shown.chain[0]), ["b.test"]);
    assert!(dns_names(&shown.chain[0][1..]).is_empty());
}

#[test]
fn each_kind_of_key_signs_and_who_has_another_key_or_signs_with_what_is_not_taken_is_not_believed() {
    let authority = Authority::new();
    let meets = |shown: &Named, schemes: &[SignatureScheme]| {
        meets(anchors(&[&authority], &[]), shown, &dns(), schemes)
    };
    for (kind, scheme) in [
        (&PKCS_ECDSA_P256_SHA256, SignatureScheme::EcdsaP256Sha256),
        (&PKCS_ECDSA_P384_SHA384, SignatureScheme::EcdsaP384Sha384),
        (&PKCS_ED25519, SignatureScheme::Ed25519),
    ] {
        let shown = authority.names(kind, |_| {});
        assert_eq!(shown.scheme, scheme);
        assert!(meets(&shown, &SignatureScheme::DEFAULT).is_ok(), "{scheme:?}");
        let others: Vec<_> = SignatureScheme::DEFAULT.into_iter().filter(|one| *one != scheme).collect();
        // Where no other scheme has its hash, it is not even announced, and the peer has nothing to sign with.
        match meets(&shown, &others) {
            Err(CloseReason::Certificate(CertificateError::Algorithm(_))) => {}
            Err(CloseReason::Notified(why)) if scheme == SignatureScheme::Ed25519 => {
                assert_eq!(why, "AUTHENTICATION_FAILED");
            }
            other => panic!("{scheme:?}: {other:?}"),
        }
        let thief = Named { key: KeyPair::generate_for(kind).expect("a key"), ..shown };
        assert_eq!(refused(meets(&thief, &SignatureScheme::DEFAULT)), CertificateError::Signature);
    }
}

#[test]
fn a_path_leads_to_an_authority_now_and_for_ike() {
    let (authority, other) = (Authority::new(), Authority::new());
    let meets = |shown: &Named| meets(anchors(&[&authority], &[]), shown, &dns(), &SignatureScheme::DEFAULT);
    let path = |shown: &Named| {
        let why = refused(meets(shown));
        assert!(matches!(why, CertificateError::Path(_)), "{why:?}");
    };
    let kind = &PKCS_ECDSA_P256_SHA256;
    path(&other.names(kind, |_| {}));
    path(&authority.names(kind, |params| params.not_after = at(-1)));
    path(&authority.names(kind, |params| params.not_before = at(DAY / 2)));
    // An authority between, which must be shown.
    let below = authority.below();
    let mut shown = below.names(kind, |_| {});
    path(&shown);
    shown.chain.push(below.der.clone());
    assert!(meets(&shown).is_ok());
    // RFC 4945 5.1.3.12.
    let for_uses = |uses: Vec<ExtendedKeyUsagePurpose>| {
        authority.names(kind, |params| params.extended_key_usages = uses)
    };
    let other = |oid: &[u64]| ExtendedKeyUsagePurpose::Other(oid.into());
    for uses in [
        vec![],
        vec![other(&[1, 3, 6, 1, 5, 5, 8, 2, 2])],
        vec![ExtendedKeyUsagePurpose::Any],
        vec![ExtendedKeyUsagePurpose::ServerAuth, other(&IKE)],
    ] {
        assert!(meets(&for_uses(uses.clone())).is_ok(), "{uses:?}");
    }
    path(&for_uses(vec![ExtendedKeyUsagePurpose::ServerAuth]));
}

#[test]
fn who_is_on_a_current_list_is_revoked_and_without_a_current_list_of_its_authority_nobody_is_believed() {
    let (authority, other) = (Authority::new(), Authority::new());
    let shown = authority.names(&PKCS_ECDSA_P256_SHA256, |_| {});
    let now = (-DAY, DAY);
    let with = |lists: &[Vec<u8>]| {
        let anchors = anchors(&[&authority, &other], lists);
        let certificate = meets(self::anchors(&[&authority], &[]), &shown, &dns(), &SignatureScheme::DEFAULT);
        let revokes = anchors.revokes(&certificate.expect("believed"));
        (meets(anchors, &shown, &dns(), &SignatureScheme::DEFAULT), revokes)
    };
    let (met, revokes) = with(&[authority.list(&[8], now)]);
    assert!(met.is_ok() && !revokes);
    let (met, revokes) = with(&[authority.list(&[8, 7], now)]);
    assert_eq!((refused(met), revokes), (CertificateError::Revoked, true));
    // Of these nobody says that it is revoked, and nobody that it is not.
    for lists in [authority.list(&[], (-DAY, -1)), other.list(&[], now), other.list(&[7], now)] {
        let (met, revokes) = with(&[lists]);
        let why = refused(met);
        assert!(matches!(why, CertificateError::Path(_)) && !revokes, "{why:?}");
    }
    // What a list has said of it that has run out since holds for who was believed before.
    let (met, revokes) = with(&[authority.list(&[7], (-DAY, -1))]);
    assert!(matches!(refused(met), CertificateError::Path(_)) && revokes);
    assert!(TrustAnchors::new(std::slice::from_ref(&authority.der), &[vec![0x30, 0]]).is_err());
    assert!(TrustAnchors::new(&[vec![0x30, 0]], &[]).is_err());
}

#[test]
fn an_extension_that_stands_there_once_is_found() {
    let authority = Authority::new();
    const OID: [u64; 4] = [1, 2, 3, 4];
    let with = |octets: &[&[u8]]| {
        let shown = authority.names(&PKCS_ECDSA_P256_SHA256, |params| {
            let one = |octets: &&[u8]| CustomExtension::from_oid_content(&OID, octets.to_vec());
            params.custom_extensions = octets.iter().map(one).collect();
        });
        let met = meets(anchors(&[&authority], &[]), &shown, &dns(), &SignatureScheme::DEFAULT);
        met.map(|certificate| (certificate.extension("1.2.3.4"), certificate.extension("1.2.3.5")))
    };
    assert_eq!(with(&[b"\x05\x00"]).expect("believed"), (Some(b"\x05\x00".to_vec()), None));
    assert_eq!(with(&[]).expect("believed"), (None, None));
    // Twice is not once.
    assert_eq!(with(&[b"\x05\x00", b"\x05\x00"]).expect("believed"), (None, None));
}

#[test]
fn an_identity_is_itself_in_any_case_of_a_hosts_name_and_no_other() {
    let mail = |text: &str| Identity::Mail(text.to_owned());
    let address = |text: &str| Identity::Address(text.parse().expect("an address"));
    let same: [&[Identity]; 10] = [
        &[fqdn("b.test"), fqdn("B.Test")],
        &[fqdn("c.test")],
        &[mail("Ada@b.test"), mail("Ada@B.TEST")],
        // Before the @ case counts.
        &[mail("ada@b.test")],
        &[mail("Ada@c.test")],
        &[mail("ada")],
        &[mail("Ada")],
        &[address("192.0.2.1"), address("192.0.2.1")],
        &[Identity::KeyId(b"b.test".to_vec()), Identity::KeyId(b"b.test".to_vec())],
        &[Identity::DistinguishedName(b"b.test".to_vec()), Identity::DistinguishedName(b"b.test".to_vec())],
    ];
    for (number, ones) in same.iter().enumerate() {
        for (other, others) in same.iter().enumerate() {
            for (one, another) in ones.iter().flat_map(|one| others.iter().map(move |another| (one, another)))
            {
                assert_eq!(one == another, number == other, "{one:?} {another:?}");
            }
        }
    }
}

/// The payloads of a message in clear: type and body.
fn payloads(message: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut kind, mut rest, mut all) = (message[4 + 16], &message[4 + 28..], Vec::new());
    while kind != 0 {
        let (payload, behind) = rest.split_at(usize::from(u16::from_be_bytes([rest[2], rest[3]])));
        all.push((kind, payload[4..].to_vec()));
        (kind, rest) = (payload[0], behind);
    }
    all
}

/// A pair in which both sign, by certificates of this authority; A's is this one.
fn both_sign(authority: &Authority, of_a: &Named, of_b: &Named) -> Pair {
    let mut configs = psk_configs();
    for (config, shown) in configs.iter_mut().zip([of_a, of_b]) {
        let (anchors, schemes) = (Arc::new(anchors(&[authority], &[])), SignatureScheme::DEFAULT.to_vec());
        config.peers[0].remote_auth = RemoteAuth::Certificate { anchors, schemes };
        config.peers[0].local_auth =
            LocalAuth::Certificate { chain: shown.chain.clone(), schemes: vec![shown.scheme] };
    }
    let mut p = Pair::new(configs, 7);
    for (side, shown) in [(A, of_a), (B, of_b)] {
        let key = KeyPair::try_from(shown.key.serialize_der()).expect("its own key");
        p.sides[side].signer = Some(Box::new(move |_, octets| key.sign(octets).expect("signed")));
    }
    p
}

fn named(authority: &Authority, name: &'static str) -> Named {
    authority.names(&PKCS_ECDSA_P256_SHA256, |params| {
        params.subject_alt_names = vec![SanType::DnsName(name.try_into().expect("a name"))];
    })
}

#[test]
fn both_ends_prove_who_they_are_by_certificates_and_each_is_asked_for_one_of_the_authority() {
    let authority = Authority::new();
    let mut p = both_sign(&authority, &named(&authority, "a.test"), &named(&authority, "b.test"));
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    p.assert_children_agree();
    assert_eq!((p.children(A).len(), p.established(B).len()), (1, 1));
    assert_eq!(p.sides.each_ref().map(|side| side.endpoint.half_open()), [0, 0]);
    // RFC 7296 3.7: the encoding, and the SHA-1 of the authority's SubjectPublicKeyInfo.
    let asked: Vec<_> = payloads(&p.log[1].1).into_iter().filter(|(kind, _)| *kind == 38).collect();
    let key = Sha1::digest(rcgen::PublicKeyData::subject_public_key_info(authority.issuer.key()));
    assert_eq!(asked, [(38, [&[4], &key[..]].concat())]);
    // Who does not sign is not established, and not half so.
    for silent in [A, B] {
        let mut p = both_sign(&authority, &named(&authority, "a.test"), &named(&authority, "b.test"));
        p.sides[silent].signer = None;
        let child = p.child(A, Some("SECRET"));
        p.connect(A, Some(child));
        p.pass(Duration::from_secs(120));
        assert!(p.established(A).is_empty() && p.established(B).is_empty());
        assert_eq!(p.closed(silent), [&CloseReason::NotSigned]);
        assert!(p.sides.iter().all(|side| side.endpoint.is_empty() && side.endpoint.half_open() == 0));
    }
    // Nor who shows another's.
    let thief = named(&authority, "c.test");
    let mut p = both_sign(&authority, &thief, &named(&authority, "b.test"));
    p.connect(A, None);
    p.run();
    assert_eq!(p.closed(B), [&CloseReason::Certificate(CertificateError::WrongName)]);
    assert!(p.established(B).is_empty());
}

#[test]
fn who_is_believed_changes_for_all_who_come_after() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut p = both_sign(&authority, &named(&authority, "a.test"), &named(&authority, "b.test"));
    p.connect(A, None);
    p.run();
    assert_eq!((p.established(A).len(), p.established(B).len()), (1, 1));
    p.sides[B].endpoint.trust(Arc::new(anchors(&[&other], &[])));
    p.connect(A, None);
    p.run();
    assert_eq!((p.established(A).len(), p.established(B).len()), (1, 1));
    assert!(matches!(p.closed(B)[..], [CloseReason::Certificate(CertificateError::Path(_))]));
    // It stands that stood, and who is believed again is.
    assert_eq!(p.sides[B].endpoint.len(), 1);
    p.sides[B].endpoint.trust(Arc::new(anchors(&[&authority], &[])));
    p.connect(A, None);
    p.run();
    assert_eq!(p.established(B).len(), 2);
}

#[test]
fn a_scheme_that_authorities_do_not_accept_is_believed_of_nobody() {
    use SignatureScheme::{EcdsaP256Sha256, EcdsaP384Sha384};
    // The authority signs with P-256 and SHA-256.
    let authority = Authority::new();
    let meets = |shown: &Named, accepted: &[SignatureScheme]| {
        let anchors = anchors(&[&authority], &[]).accepting(accepted);
        meets(anchors, shown, &dns(), &SignatureScheme::DEFAULT)
    };
    let (of_256, of_384) =
        (authority.names(&PKCS_ECDSA_P256_SHA256, |_| {}), authority.names(&PKCS_ECDSA_P384_SHA384, |_| {}));
    assert!(meets(&of_256, &[EcdsaP256Sha256]).is_ok());
    assert!(meets(&of_384, &[EcdsaP256Sha256, EcdsaP384Sha384]).is_ok());
    // Of a peer: nothing is computed with a scheme that is not accepted.
    for (shown, accepted) in [(&of_384, vec![EcdsaP256Sha256]), (&of_256, vec![EcdsaP384Sha384])] {
        let why = refused(meets(shown, &accepted));
        assert!(matches!(why, CertificateError::Algorithm(_)), "{why:?}");
    }
    // Of its certificate.
    let why = refused(meets(&of_384, &[EcdsaP384Sha384]));
    assert!(matches!(why, CertificateError::Path(_)), "{why:?}");
    let why = refused(meets(&of_256, &[]));
    assert!(matches!(why, CertificateError::Algorithm(_)), "{why:?}");
}

/// Checks nothing, believes the first so many signatures, and says how many it was asked about.
#[derive(Debug)]
struct Unbelieving(AtomicU32, u32);

impl rustls_pki_types::SignatureVerificationAlgorithm for Unbelieving {
    fn verify_signature(
        &self,
        _: &[u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), rustls_pki_types::InvalidSignature> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        (before < self.1).then_some(()).ok_or(rustls_pki_types::InvalidSignature)
    }

    fn public_key_alg_id(&self) -> rustls_pki_types::AlgorithmIdentifier {
        rustls_pki_types::alg_id::ECDSA_P256
    }

    fn signature_alg_id(&self) -> rustls_pki_types::AlgorithmIdentifier {
        rustls_pki_types::alg_id::ECDSA_SHA256
    }
}

#[test]
fn a_hosts_own_library_checks_what_it_can_where_it_is_accepted() {
    static OWN: Unbelieving = Unbelieving(AtomicU32::new(0), 0);
    let authority = Authority::new();
    let shown = authority.names(&PKCS_ECDSA_P256_SHA256, |_| {});
    let schemes = &SignatureScheme::DEFAULT;
    let met = meets(anchors(&[&authority], &[]).verified_by(&[&OWN]), &shown, &dns(), schemes);
    assert_eq!((refused(met), OWN.0.load(Ordering::Relaxed)), (CertificateError::Signature, 1));
    // What is not accepted stays so, whoever could check it.
    let accepted = [SignatureScheme::EcdsaP384Sha384];
    let anchors = anchors(&[&authority], &[]).accepting(&accepted).verified_by(&[&OWN]);
    assert!(matches!(refused(meets(anchors, &shown, &dns(), schemes)), CertificateError::Algorithm(_)));
    assert_eq!(OWN.0.load(Ordering::Relaxed), 1);
}

/// A certificate, and with it nine authorities of this name (`None`: of a name as others' have), each of which may have vouched for it and for
/// each other.
fn tangle(name: Option<&str>) -> Named {
    let mut params = ca();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    if let Some(name) = name {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    let own = || {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let der = params.self_signed(&key).expect("signed").der().to_vec();
        Authority { der, issuer: Issuer::new(params.clone(), key) }
    };
    let mut shown = own().names(&PKCS_ECDSA_P256_SHA256, |_| {});
    shown.chain.extend((0..9).map(|_| own().der));
    shown
}

#[test]
fn a_stranger_whose_authorities_may_all_have_vouched_for_each_other_costs_no_more_than_one_way_to_ours() {
    static COUNTS: Unbelieving = Unbelieving(AtomicU32::new(0), 1);
    let authority = Authority::new();
    let schemes = &SignatureScheme::DEFAULT;
    // By the site's name: each could be signed by the site's authority.
    let shown = tangle(None);
    let met = meets(anchors(&[&authority], &[]).verified_by(&[&COUNTS]), &shown, &dns(), schemes);
    assert!(matches!(refused(met), CertificateError::Path(_)));
    // Its own, and then one for each authority that there may be in a path.
    let asked = COUNTS.0.load(Ordering::Relaxed);
    assert!(asked <= 1 + 7, "{asked} signatures were looked at");
    // By nobody's: no path leads anywhere, and there are 79,209.
    let shown = tangle(Some("nobody"));
    let began = std::time::Instant::now();
    let met = meets(anchors(&[&authority], &[]), &shown, &dns(), schemes);
    assert!(matches!(refused(met), CertificateError::Path(_)));
    assert!(began.elapsed() < std::time::Duration::from_millis(250), "{:?}", began.elapsed());
}

#[test]
fn what_a_key_signs_with_is_said_of_its_own_curve_alone() {
    let authority = Authority::new();
    let shown = authority.names(&PKCS_ECDSA_P256_SHA256, |_| {});
    let mut der = shown.chain[0].clone();
    assert_eq!(SignatureScheme::of_certificate(&der), Some(SignatureScheme::EcdsaP256Sha256));
    // 1.2.840.10045.3.1.7 becomes 1.2.840.10045.3.1.1, an elliptic curve of 192 bits.
    let curve = [0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let at = der.windows(8).position(|octets| octets == curve).expect("the curve");
    der[at + 7] = 1;
    assert_eq!(SignatureScheme::of_certificate(&der), None);
    assert_eq!(SignatureScheme::of_certificate(&der[1..]), None);
}

//! An authority's private key in a PKCS#11 token: a smart card, a hardware security module, a TPM.
//!
//! The library that speaks with the token is its maker's code, and is loaded into this process. So `levee enrol` alone loads it, when the
//! authority signs; no daemon does. What it says is held to what is known: a signature that the public key of the authority's
//! certificate does not verify is not used.

mod tokens;
mod uri;

use super::pki::{self, PkiError};
use cryptoki::error::Error;
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use levee_policy::site::Curve;
use pkcs8::der::Encode as _;
use pkcs8::der::asn1::{AnyRef, ObjectIdentifier, UintRef};
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PublicKeyData, SignatureAlgorithm, SigningKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, signature};
use std::rc::Rc;
pub use tokens::Tokens;
use tokens::{fault, told};
pub use uri::Uri;

/// What goes with a curve.
struct OnCurve {
    curve: Curve,
    oid: ObjectIdentifier,
    algorithm: &'static SignatureAlgorithm,
    hash: &'static digest::Algorithm,
    verification: &'static signature::EcdsaVerificationAlgorithm,
    /// Octets of a coordinate.
    size: usize,
}

/// RFC 5480 2.1.1.1.
static CURVES: [OnCurve; 2] = [
    OnCurve {
        curve: Curve::P256,
        oid: ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"),
        algorithm: &PKCS_ECDSA_P256_SHA256,
        hash: &digest::SHA256,
        verification: &signature::ECDSA_P256_SHA256_ASN1,
        size: 32,
    },
    OnCurve {
        curve: Curve::P384,
        oid: ObjectIdentifier::new_unwrap("1.3.132.0.34"),
        algorithm: &PKCS_ECDSA_P384_SHA384,
        hash: &digest::SHA384,
        verification: &signature::ECDSA_P384_SHA384_ASN1,
        size: 48,
    },
];

impl OnCurve {
    fn parameters(&self) -> Vec<u8> {
        self.oid.to_der().unwrap_or_default()
    }
}

/// A private key that is in a token, and stays there.
pub struct TokenKey {
    /// Which.
    pub uri: Uri,
    session: Rc<Session>,
    key: ObjectHandle,
    on: &'static OnCurve,
    /// The public key: an uncompressed point.
    point: Vec<u8>,
}

impl TokenKey {
    /// The key of this name, for an authority whose certificate has this public key.
    ///
    /// # Errors
    /// Why it cannot be used, with the remedy.
    pub fn open(tokens: &Tokens<'_>, uri: &Uri, public: &impl PublicKeyData) -> Result<Self, PkiError> {
        let session = tokens.session(uri, false)?;
        Self::found(uri, session, public)
    }

    fn found(uri: &Uri, session: Rc<Session>, public: &impl PublicKeyData) -> Result<Self, PkiError> {
        let key = only(uri, &session)?.ok_or_else(|| {
            fault(uri, "the token has no such private key: is it another token, or was the key removed?")
        })?;
        let on = CURVES.iter().find(|on| on.algorithm == public.algorithm());
        let on = on.ok_or_else(|| fault(uri, "the authority's certificate has a key on another curve"))?;
        Ok(Self { uri: uri.clone(), session, key, on, point: public.der_bytes().to_vec() })
    }

    /// Takes the key that is there by this name, or has the token make one that it never gives out.
    ///
    /// # Errors
    /// Why it cannot be used, with the remedy.
    pub fn make(tokens: &Tokens<'_>, uri: &Uri, curve: Curve) -> Result<Self, PkiError> {
        let session = tokens.session(uri, true)?;
        let on = CURVES.iter().find(|on| on.curve == curve);
        let on = on.ok_or_else(|| fault(uri, "the token makes no keys on this curve"))?;
        let key = match only(uri, &session)? {
            Some(key) => key,
            None => generate(uri, &session, on)?,
        };
        let point = held(uri, &session, key, on)?;
        Ok(Self { uri: uri.clone(), session, key, on, point })
    }

    /// Has the token destroy the key of an authority that is believed no more, and looks that it is gone.
    ///
    /// # Errors
    /// Why it may be there still. A key that is not this authority's is left alone.
    pub fn destroy(tokens: &Tokens<'_>, uri: &Uri, public: &impl PublicKeyData) -> Result<(), PkiError> {
        let session = tokens.session(uri, true)?;
        let key = Self::found(uri, Rc::clone(&session), public)?;
        // That it is the one: by a signature, since names are anybody's to give.
        key.signed(b"levee: whose key is it?")?;
        let public = public_of(uri, &session, key.key)?;
        let said = |error: Error| fault(uri, &told(&error));
        session.destroy_object(key.key).map_err(said)?;
        if only(uri, &session)?.is_some() || session.sign(&Mechanism::Ecdsa, key.key, &[1; 32]).is_ok() {
            return Err(fault(uri, "the token says that it has destroyed the key, and has it still"));
        }
        // Its public half is of no use to anybody: one that stays is no fault.
        if let [public] = public[..] {
            let _ = session.destroy_object(public);
        }
        Ok(())
    }

    /// RFC 5480 2.1, RFC 3279 2.2.3.
    fn signed(&self, message: &[u8]) -> Result<Vec<u8>, PkiError> {
        let digest = digest::digest(self.on.hash, message);
        let raw = self.session.sign(&Mechanism::Ecdsa, self.key, digest.as_ref());
        let raw =
            raw.map_err(|error| fault(&self.uri, &format!("the token does not sign: {}", told(&error))))?;
        let odd = || fault(&self.uri, "the token answers with something that is no signature");
        if raw.len() != 2 * self.on.size {
            return Err(odd());
        }
        let (r, s) = raw.split_at(self.on.size);
        let encoded = || -> pkcs8::der::Result<Vec<u8>> {
            let content = [UintRef::new(r)?.to_der()?, UintRef::new(s)?.to_der()?].concat();
            AnyRef::new(pkcs8::der::Tag::Sequence, &content)?.to_der()
        };
        let signature = encoded().map_err(|_| odd())?;
        let public = signature::UnparsedPublicKey::new(self.on.verification, &self.point);
        public.verify(message, &signature).map_err(|_| {
            let why = "the token's signature is not by the key of the authority's certificate: is it another key, or another token?";
            fault(&self.uri, why)
        })?;
        Ok(signature)
    }
}

impl PublicKeyData for TokenKey {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.on.algorithm
    }
}

impl SigningKey for TokenKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.signed(message).map_err(pki::unsigned)
    }
}

fn named(uri: &Uri, class: ObjectClass) -> Vec<Attribute> {
    let label = uri.object.as_ref().map(|object| Attribute::Label(object.clone().into_bytes()));
    let id = uri.id.as_ref().map(|id| Attribute::Id(id.clone()));
    [Some(Attribute::Token(true)), Some(Attribute::Class(class)), label, id].into_iter().flatten().collect()
}

/// The one private key of this name, if there is one.
fn only(uri: &Uri, session: &Session) -> Result<Option<ObjectHandle>, PkiError> {
    let found = session.find_objects(&named(uri, ObjectClass::PRIVATE_KEY));
    match found.map_err(|error| fault(uri, &told(&error)))?[..] {
        [] => Ok(None),
        [key] => Ok(Some(key)),
        _ => Err(fault(uri, "several private keys fit: say which by id=, or give one another label")),
    }
}

fn generate(uri: &Uri, session: &Session, on: &OnCurve) -> Result<ObjectHandle, PkiError> {
    let mut id = vec![0u8; 16];
    SystemRandom::new().fill(&mut id).map_err(|_| PkiError("no random bytes".into()))?;
    let id = Attribute::Id(uri.id.clone().unwrap_or(id));
    let label = uri.object.clone().unwrap_or_else(|| "levee authority".to_owned());
    let label = Attribute::Label(label.into_bytes());
    let public = [
        Attribute::Token(true),
        Attribute::Verify(true),
        Attribute::EcParams(on.parameters()),
        label.clone(),
        id.clone(),
    ];
    let private = [
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
        label,
        id,
    ];
    let made = session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private);
    let (_, key) = made.map_err(|error| fault(uri, &format!("the token makes no key: {}", told(&error))))?;
    Ok(key)
}

/// The public keys that go with a private one, by CKA_ID, or by its name where it has none.
fn public_of(uri: &Uri, session: &Session, key: ObjectHandle) -> Result<Vec<ObjectHandle>, PkiError> {
    let said = |error: Error| fault(uri, &told(&error));
    let id = session.get_attributes(key, &[AttributeType::Id]).map_err(said)?.into_iter().find_map(|found| {
        match found {
            Attribute::Id(id) if !id.is_empty() => Some(Attribute::Id(id)),
            _ => None,
        }
    });
    let mut wanted = named(uri, ObjectClass::PUBLIC_KEY);
    if let Some(id) = id {
        wanted.retain(|attribute| !matches!(attribute, Attribute::Id(_) | Attribute::Label(_)));
        wanted.push(id);
    }
    session.find_objects(&wanted).map_err(said)
}

/// The public half of a key, which must be on this curve, and such that the token says that it does not give it out.
fn held(uri: &Uri, session: &Session, key: ObjectHandle, on: &OnCurve) -> Result<Vec<u8>, PkiError> {
    let said = |error: Error| fault(uri, &told(&error));
    let asked = [
        AttributeType::KeyType,
        AttributeType::Sensitive,
        AttributeType::Extractable,
        AttributeType::NeverExtractable,
    ];
    let found = session.get_attributes(key, &asked).map_err(said)?;
    if !found.contains(&Attribute::KeyType(KeyType::EC)) {
        return Err(fault(uri, "the key is not for ECDSA"));
    }
    // What the token does not say it does not promise.
    if !found.contains(&Attribute::Sensitive(true)) || !found.contains(&Attribute::Extractable(false)) {
        let why = "the token may give this key out (CKA_SENSITIVE is not true, or CKA_EXTRACTABLE not false): name one that is not \
                   there, and the token makes it";
        return Err(fault(uri, why));
    }
    if !found.contains(&Attribute::NeverExtractable(true)) {
        let why = "the key was brought into the token, or could be taken out of it once (CKA_NEVER_EXTRACTABLE is not true), so that others \
                   may have it: name one that is not there, and the token makes it";
        return Err(fault(uri, why));
    }
    let public = public_of(uri, session, key)?;
    let [public] = public[..] else {
        let why =
            format!("the token has {} public keys that go with it, by CKA_ID: it needs one", public.len());
        return Err(fault(uri, &why));
    };
    let asked = [AttributeType::EcParams, AttributeType::EcPoint];
    let found = session.get_attributes(public, &asked).map_err(said)?;
    if !found.contains(&Attribute::EcParams(on.parameters())) {
        return Err(fault(
            uri,
            &format!("the key is not on {}, as the site file says: name another", on.curve.as_str()),
        ));
    }
    let point = found.into_iter().find_map(|found| match found {
        Attribute::EcPoint(point) => Some(point),
        _ => None,
    });
    let (point, length) = (point.unwrap_or_default(), 1 + 2 * on.size);
    // PKCS #11 2.40 2.3.3: an OCTET STRING; some give what is in it.
    let bare = match point.len().checked_sub(length) {
        Some(2) => point.get(2..),
        Some(0) => Some(&*point),
        _ => None,
    };
    let bare = bare.filter(|bare| bare.first() == Some(&4)).map(<[u8]>::to_vec);
    bare.ok_or_else(|| fault(uri, "the token has a public key that is none on this curve"))
}

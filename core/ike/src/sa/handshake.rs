//! What both roles know between IKE_SA_INIT and the end of IKE_AUTH.

use crate::api::{CloseReason, Event, IkeId, Output, Path, PeerIdentity, PpkKeys, RequestId, Role};
use crate::channel::Channel;
use crate::config::{LocalAuth, Peer, Ppk, RemoteAuth};
use crate::crypto::Secret;
use crate::crypto::keys::IkeKeys;
use crate::crypto::pki::{self, CertificateError};
use crate::crypto::prf::prf;
use crate::crypto::sign::SignatureScheme;
use crate::endpoint::Ctx;
use crate::wire::{
    AuthPayload, Chain, Fields, Identity, Notify, NotifyKind, auth_method, cert_encoding, kind,
};
use sha1::{Digest, Sha1};
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// Octets of our nonces: at least half the PRF's key (RFC 7296 2.10), for the largest PRF.
pub(crate) const NONCE: usize = 32;

/// What the peer said about itself in IKE_SA_INIT.
#[derive(Debug, Clone, Default)]
pub(crate) struct Features {
    /// Hashes of SIGNATURE_HASH_ALGORITHMS (RFC 7427 4).
    pub(crate) hashes: Vec<u16>,
    pub(crate) fragments: bool,
    pub(crate) childless: bool,
    pub(crate) ppk: bool,
    /// A NAT lies between, or one side says so: ESP goes in UDP.
    pub(crate) udp: bool,
    /// The NAT is on our side.
    pub(crate) nat_here: bool,
}

impl Features {
    pub(crate) fn read(fields: &Fields<'_>, spi_i: u64, spi_r: u64, path: Path) -> Self {
        let has = |k| fields.has(k);
        let hashes = fields.notify(NotifyKind::SignatureHashAlgorithms).map(|n| n.data).unwrap_or_default();
        let (pairs, _) = hashes.as_chunks::<2>();
        // RFC 7296 2.23: a peer may send several source hashes; a NAT is before it when none fits.
        let sources = || fields.notifies.iter().filter(|n| n.kind == NotifyKind::NatDetectionSourceIp);
        let nat_there = sources().next().is_some()
            && !sources().any(|n| n.data == nat_hash(spi_i, spi_r, path.remote).as_slice());
        let nat_here = fields
            .notify(NotifyKind::NatDetectionDestinationIp)
            .is_some_and(|n| n.data != nat_hash(spi_i, spi_r, path.local).as_slice());
        Self {
            hashes: pairs.iter().take(16).map(|p| u16::from_be_bytes(*p)).collect(),
            fragments: has(NotifyKind::FragmentationSupported),
            childless: has(NotifyKind::ChildlessSupported),
            ppk: has(NotifyKind::UsePpk),
            udp: nat_there || nat_here,
            nat_here,
        }
    }

    /// The notifications of IKE_SA_INIT that both roles send.
    pub(crate) fn write(chain: &mut Chain, spi_i: u64, spi_r: u64, path: Path, ctx: &mut Ctx<'_>) {
        let mut source = nat_hash(spi_i, spi_r, path.local);
        if ctx.config.force_udp {
            ctx.rng.fill(&mut source);
        }
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::NatDetectionSourceIp, &source));
        let destination = nat_hash(spi_i, spi_r, path.remote);
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::NatDetectionDestinationIp, &destination));
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::FragmentationSupported, &[]));
        // RFC 7427 4: SHA2-256, SHA2-384, SHA2-512, and Identity for Ed25519 (RFC 8420 2).
        let hashes = [0, 2, 0, 3, 0, 4, 0, 5];
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::SignatureHashAlgorithms, &hashes));
    }
}

/// SHA-1(SPIi | SPIr | address | port) (RFC 7296 2.23). It detects translation; it protects nothing.
fn nat_hash(spi_i: u64, spi_r: u64, at: SocketAddr) -> [u8; 20] {
    let mut hash = Sha1::new();
    hash.update(spi_i.to_be_bytes());
    hash.update(spi_r.to_be_bytes());
    match at.ip() {
        IpAddr::V4(a) => hash.update(a.octets()),
        IpAddr::V6(a) => hash.update(a.octets()),
    }
    hash.update(at.port().to_be_bytes());
    hash.finalize().into()
}

/// An IKE SA with keys whose peer is not authenticated yet.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) id: IkeId,
    pub(crate) channel: Channel,
    pub(crate) ni: Vec<u8>,
    pub(crate) nr: Vec<u8>,
    /// RealMessage1 and RealMessage2 (RFC 7296 2.15).
    pub(crate) init_request: Vec<u8>,
    pub(crate) init_response: Vec<u8>,
    pub(crate) p_i: Secret,
    pub(crate) p_r: Secret,
    /// IntAuth_i and IntAuth_r (RFC 9242 3.3.2), empty until an IKE_INTERMEDIATE was done.
    pub(crate) int_i: Secret,
    pub(crate) int_r: Secret,
    pub(crate) features: Features,
    /// A PPK is in SK_d, SK_pi and SK_pr.
    pub(crate) ppk: bool,
    /// Where the peer was in IKE_SA_INIT.
    pub(crate) opened_at: SocketAddr,
}

impl Handshake {
    /// The octets that the given role signs (RFC 7296 2.15, RFC 9242 3.3.2).
    pub(crate) fn octets(&self, signer: Role, id_body: &[u8], auth_message_id: u32) -> Vec<u8> {
        let alg = self.channel.suite.prf;
        let (message, nonce, key) = match signer {
            Role::Initiator => (&self.init_request, &self.nr, &self.p_i),
            Role::Responder => (&self.init_response, &self.ni, &self.p_r),
        };
        let mut out = message.clone();
        out.extend_from_slice(nonce);
        out.extend_from_slice(&prf(alg, key, &[id_body]));
        if !self.int_i.is_empty() {
            out.extend_from_slice(&self.int_i);
            out.extend_from_slice(&self.int_r);
            out.extend_from_slice(&auth_message_id.to_be_bytes());
        }
        out
    }

    /// Takes the keys of a later key exchange, and keeps the record of the exchange that made them (RFC 9242 3.3.2): IntAuth_i and
    /// IntAuth_r are made with the keys that protected the exchange.
    pub(crate) fn intermediate(&mut self, request: &[u8], response: &[u8]) {
        let alg = self.channel.suite.prf;
        self.int_i = prf(alg, &self.p_i, &[&self.int_i, request]);
        self.int_r = prf(alg, &self.p_r, &[&self.int_r, response]);
    }

    /// RFC 9370 2.2.2: SKEYSEED(n) = prf(SK_d(n-1), SK(n) | Ni | Nr), and all keys anew.
    pub(crate) fn mix_key_exchange(&mut self, shared: &[u8]) {
        let c = &mut self.channel;
        let seed = IkeKeys::next_seed(c.suite.prf, &c.sk_d, shared, &self.ni, &self.nr);
        let keys = IkeKeys::derive(&c.suite, &seed, &self.ni, &self.nr, c.spi_i, c.spi_r);
        c.rekey(&keys);
        (self.p_i, self.p_r) = (keys.p_i, keys.p_r);
    }

    /// Asks for the PPK of this peer in SK_d, SK_pi and SK_pr (RFC 8784 3).
    pub(crate) fn ask_for_ppk(&self, peer: usize, ppk: &Ppk, ctx: &mut Ctx<'_>) -> RequestId {
        let request = ctx.ask();
        let keys = PpkKeys { d: self.channel.sk_d.clone(), pi: self.p_i.clone(), pr: self.p_r.clone() };
        let (ike, id, prf) = (self.id, ppk.id.clone(), self.channel.suite.prf);
        ctx.out.push_back(Output::Event(Event::MixPpk { request, ike, peer, id, prf, keys }));
        request
    }

    /// Takes the keys with the PPK in them. False when there are none, or none of this prf.
    pub(crate) fn take_mixed(&mut self, keys: Option<PpkKeys>) -> bool {
        let length = self.channel.suite.prf.length();
        let whole = |keys: &PpkKeys| [&keys.d, &keys.pi, &keys.pr].iter().all(|key| key.len() == length);
        let Some(PpkKeys { d, pi, pr }) = keys.filter(whole) else { return false };
        (self.channel.sk_d, self.p_i, self.p_r) = (d, pi, pr);
        self.ppk = true;
        true
    }

    /// The first of our schemes whose hash the peer takes.
    pub(crate) fn scheme(&self, ours: &[SignatureScheme]) -> Option<SignatureScheme> {
        ours.iter().copied().find(|s| self.features.hashes.contains(&s.hash()))
    }

    /// AUTH by a shared key: prf(prf(key, "Key Pad for IKEv2"), octets) (RFC 7296 2.15).
    pub(crate) fn shared_key_auth(&self, key: &[u8], octets: &[u8]) -> Secret {
        let alg = self.channel.suite.prf;
        let padded = prf(alg, key, &[b"Key Pad for IKEv2"]);
        prf(alg, &padded, &[octets])
    }

    /// Checks who the peer says it is. `signer` is the peer's role.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one message and what they are checked against"
    )]
    pub(crate) fn verify(
        &self,
        peer: &Peer,
        signer: Role,
        id: &Identity,
        id_body: &[u8],
        fields: &Fields<'_>,
        auth_message_id: u32,
        ctx: &Ctx<'_>,
    ) -> Result<PeerIdentity, CloseReason> {
        let auth = fields.auth.ok_or(CloseReason::Authentication("no AUTH payload"))?;
        let octets = self.octets(signer, id_body, auth_message_id);
        match (&peer.remote_auth, auth) {
            (RemoteAuth::SharedKey(key), AuthPayload { method: auth_method::SHARED_KEY, data }) => {
                if bool::from(self.shared_key_auth(key, &octets).ct_eq(data)) {
                    Ok(PeerIdentity { id: id.clone(), certificate: None })
                } else {
                    Err(CloseReason::Authentication("the shared key differs"))
                }
            }
            (
                RemoteAuth::Certificate { anchors, schemes },
                AuthPayload { method: auth_method::DIGITAL_SIGNATURE, data },
            ) => pki::verify(anchors, schemes, &fields.certs, id, data, &[&octets], ctx.now.unix_seconds)
                .map(|c| PeerIdentity { id: id.clone(), certificate: Some(c) })
                .map_err(CloseReason::Certificate),
            (RemoteAuth::Certificate { .. }, _) => Err(CloseReason::Certificate(CertificateError::Algorithm)),
            (RemoteAuth::SharedKey(_), _) => {
                Err(CloseReason::Authentication("the peer does not authenticate by the shared key"))
            }
        }
    }
}

/// Appends our certificates, if that is how we authenticate.
pub(crate) fn push_certificates(chain: &mut Chain, auth: &LocalAuth) {
    if let LocalAuth::Certificate { chain: certificates, .. } = auth {
        for der in certificates {
            chain.push(kind::CERT, |out| {
                out.push(cert_encoding::X509_SIGNATURE);
                out.extend_from_slice(der);
            });
        }
    }
}

/// Appends a request for the peer's certificate, if that is how it must authenticate.
pub(crate) fn push_certificate_request(chain: &mut Chain, auth: &RemoteAuth) {
    if let RemoteAuth::Certificate { anchors, .. } = auth {
        chain.push(kind::CERTREQ, |out| {
            out.push(cert_encoding::X509_SIGNATURE);
            out.extend_from_slice(&anchors.request());
        });
    }
}

/// Appends an AUTH payload.
pub(crate) fn push_auth(chain: &mut Chain, method: u8, data: &[u8]) {
    chain.push(kind::AUTH, |out| {
        out.extend_from_slice(&[method, 0, 0, 0]);
        out.extend_from_slice(data);
    });
}

//! What both roles know between IKE_SA_INIT and the end of IKE_AUTH.

use crate::api::{CloseReason, Event, IkeId, Output, Path, PeerIdentity, PpkKeys, RequestId, Role};
use crate::channel::Channel;
use crate::config::{LocalAuth, Peer, RemoteAuth};
use crate::crypto::Secret;
use crate::crypto::keys::IkeKeys;
use crate::crypto::pki::{self, CertificateError};
use crate::crypto::prf::prf;
use crate::crypto::sign::SignatureScheme;
use crate::crypto::suite::KeyExchange;
use crate::endpoint::Ctx;
use crate::wire::{
    AuthPayload, Chain, Fields, Identity, Notify, NotifyKind, auth_method, cert_encoding, kind,
};
use sha1::{Digest, Sha1};
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// Octets of our nonces: at least half the PRF's key (RFC 7296 2.10), for the largest PRF.
pub(crate) const NONCE: usize = 32;

/// Appends a KE payload.
pub(super) fn push_ke(chain: &mut Chain, method: KeyExchange, public: &[u8]) {
    chain.push(kind::KE, |out| {
        out.extend_from_slice(&method.code().to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(public);
    });
}

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
        // Those that some peer may sign with.
        let taken = |hash: &u16| {
            let mut peers = ctx.config.peers.iter();
            peers.any(|peer| match &peer.remote_auth {
                RemoteAuth::Certificate { schemes, .. } => schemes.iter().any(|s| s.hash() == *hash),
                RemoteAuth::SharedKey(_) => true,
            })
        };
        let hashes: Vec<u8> = [2u16, 3, 4, 5].into_iter().filter(taken).flat_map(u16::to_be_bytes).collect();
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
    /// The PPK in SK_d, SK_pi and SK_pr, if there is one, by name.
    pub(crate) ppk: Option<Vec<u8>>,
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

    /// Asks for a PPK of this peer in SK_d, SK_pi and SK_pr (RFC 8784 3).
    pub(crate) fn ask_for_ppk(&self, peer: usize, ppk: &[u8], ctx: &mut Ctx<'_>) -> RequestId {
        let request = ctx.ask();
        let keys = PpkKeys { d: self.channel.sk_d.clone(), pi: self.p_i.clone(), pr: self.p_r.clone() };
        let (ike, id, prf) = (self.id, ppk.to_vec(), self.channel.suite.prf);
        ctx.out.push_back(Output::Event(Event::MixPpk { request, ike, peer, id, prf, keys }));
        request
    }

    /// Takes the keys with this PPK in them. False when there are none, or none of this prf.
    pub(crate) fn take_mixed(&mut self, ppk: Vec<u8>, keys: Option<PpkKeys>) -> bool {
        let length = self.channel.suite.prf.length();
        let whole = |keys: &PpkKeys| [&keys.d, &keys.pi, &keys.pr].iter().all(|key| key.len() == length);
        let Some(PpkKeys { d, pi, pr }) = keys.filter(whole) else { return false };
        (self.channel.sk_d, self.p_i, self.p_r) = (d, pi, pr);
        self.ppk = Some(ppk);
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
            (RemoteAuth::Certificate { .. }, AuthPayload { method, .. }) => {
                Err(CloseReason::Certificate(CertificateError::Method(method)))
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Now;
    use crate::crypto::suite::{Encryption, IkeSuite, KeyExchange, Prf};
    use std::time::Duration;

    fn hex(octets: &[u8]) -> String {
        octets.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    /// The numbers were computed with Python's hmac alone, from the formulas of RFC 7296 2.14, RFC 9370 2.2.2 and RFC 9242 3.3.2.
    #[test]
    fn every_further_key_exchange_is_in_all_keys_and_its_messages_are_in_both_proofs() {
        let suite = IkeSuite {
            encryption: Encryption::Aes128Gcm16,
            integrity: None,
            prf: Prf::HmacSha256,
            key_exchange: KeyExchange::X25519,
            additional: vec![(0, KeyExchange::MlKem768), (1, KeyExchange::MlKem1024)],
        };
        let (ni, nr) = (vec![1; 32], vec![2; 32]);
        let (spi_i, spi_r) = (0x1111_1111_1111_1111, 0x2222_2222_2222_2222);
        let seed = IkeKeys::first_seed(suite.prf, &ni, &nr, &[3; 32]);
        let keys = IkeKeys::derive(&suite, &seed, &ni, &nr, spi_i, spi_r);
        let at = SocketAddr::from(([192, 0, 2, 1], 4500));
        let path = Path { local: at, remote: at, marker: true };
        let now = Now { monotonic: Duration::ZERO, unix_seconds: 0 };
        let channel = Channel::new(Role::Initiator, spi_i, spi_r, suite, &keys, path, false, now, 1, 0);
        let mut hs = Handshake {
            id: IkeId(1),
            channel,
            ni,
            nr,
            init_request: b"the first request".to_vec(),
            init_response: b"its response".to_vec(),
            p_i: keys.p_i,
            p_r: keys.p_r,
            int_i: Secret::default(),
            int_r: Secret::default(),
            features: Features::default(),
            ppk: None,
            opened_at: at,
        };
        let mut made = Vec::new();
        for (request, response, shared) in
            [(b"request 1", b"response 1", [4; 32]), (b"request 2", b"response 2", [5; 32])]
        {
            hs.intermediate(request, response);
            hs.mix_key_exchange(&shared);
            made.push([&hs.channel.sk_d, &hs.p_i, &hs.p_r].map(|key| hex(key)));
        }
        assert_eq!(
            made,
            [
                [
                    "841a3f1595f7d54486c0c875e4e5b624d91aea9ce58d2c2329569367c487ce76",
                    "0b02a320455a3b5e0b03b2fdff9f6fc861a4f6494419ead72794093b8615e5b0",
                    "98e17a1c027a7c3bc2aec64679205979aefbf175cd29909e6822335915f647e5",
                ],
                [
                    "e8222f8ac9afb422c261c2e2507f9ce6ac93ff5499dac700e143c93e12c72a8f",
                    "c573ab963218aca85c48f4cac062a037b007f37b35741347e499aa8e0437aca7",
                    "21db87dce2b2d09213ab84a2a50c2c8b61ce7acdd80ebd9ec121e17d9b9d98b7",
                ],
            ]
        );
        let record = "eed311456ece93cc7865be457852e54940d830ecfa735f5c40389043d555c6dc\
                      57ced7898bc6b5be3497ff551ea81994edba3b73b132db2d76cdc815189d5dcc00000003";
        for (signer, message, nonce, id) in [
            (
                Role::Initiator,
                &b"the first request"[..],
                [2; 32],
                "8ac9470136982320a9d18b970a0c3053c82149c183c3eb6797fd3f6bc83f654b",
            ),
            (
                Role::Responder,
                &b"its response"[..],
                [1; 32],
                "31cb1189c989869d1255bc884b88ede80eb80c85b9ac0d822c385768ade9ec93",
            ),
        ] {
            let expected = format!("{}{}{id}{record}", hex(message), hex(&nonce));
            assert_eq!(hex(&hs.octets(signer, b"who", 3)), expected);
        }
    }
}

//! A peer of levee's IKEv2 that has the shared key and says whatever the fuzzer wants under it. Written from RFC 7296 alone, so that
//! it shares nothing with the product: one suite (X25519, HMAC-SHA2-256, AES-128-GCM), no policy, and no sense.

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, KeyInit};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use x25519_dalek::{PublicKey, StaticSecret};

/// The key that victim and attacker share.
pub const KEY: &[u8] = b"a shared key of some length";

/// An SA payload's body: one proposal for IKE (protocol 1) with AES-128-GCM, HMAC-SHA2-256, X25519, and perhaps ML-KEM-768 as
/// first additional key exchange (RFC 9370 4.1).
fn ike_proposal(spi: &[u8], hybrid: bool) -> Vec<u8> {
    let mut transforms = vec![3, 0, 0, 12, 1, 0, 0, 20, 0x80, 14, 0, 128];
    transforms.extend_from_slice(&[3, 0, 0, 8, 2, 0, 0, 5]);
    transforms.extend_from_slice(&[if hybrid { 3 } else { 0 }, 0, 0, 8, 4, 0, 0, 31]);
    if hybrid {
        transforms.extend_from_slice(&[0, 0, 0, 8, 6, 0, 0, 36]);
    }
    let length = 8 + spi.len() as u16 + transforms.len() as u16;
    let count = if hybrid { 4 } else { 3 };
    let mut out = vec![0, 0, (length >> 8) as u8, length as u8, 1, 1, spi.len() as u8, count];
    out.extend_from_slice(spi);
    out.extend(transforms);
    out
}

fn prf(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(key).expect("HMAC takes any key");
    parts.iter().for_each(|p| mac.update(p));
    mac.finalize().into_bytes().to_vec()
}

fn prf_plus(key: &[u8], seed: &[u8], length: usize) -> Vec<u8> {
    let (mut out, mut last, mut n) = (Vec::new(), Vec::new(), 1u8);
    while out.len() < length {
        last = prf(key, &[&last, seed, &[n]]);
        out.extend_from_slice(&last);
        n += 1;
    }
    out
}

/// Payloads of a chain, by type: (type, body).
pub fn payloads(mut next: u8, mut rest: &[u8]) -> Vec<(u8, &[u8])> {
    let mut out = Vec::new();
    while next != 0 && rest.len() >= 4 {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]])).clamp(4, rest.len());
        out.push((next, &rest[4..length]));
        next = rest[0];
        rest = &rest[length..];
    }
    out
}

/// A chain of payloads: the first type and the octets.
pub fn chain(parts: &[(u8, Vec<u8>)]) -> (u8, Vec<u8>) {
    let mut out = Vec::new();
    for (i, (_, body)) in parts.iter().enumerate() {
        let length = body.len() as u16 + 4;
        out.extend_from_slice(&[parts.get(i + 1).map_or(0, |p| p.0), 0, (length >> 8) as u8, length as u8]);
        out.extend_from_slice(body);
    }
    (parts.first().map_or(0, |p| p.0), out)
}

/// A message without the notification that fills it up (LEVEE_PADDING), which is its last payload.
fn unpadded(first: u8, plain: Vec<u8>) -> (u8, Vec<u8>) {
    let mut parts: Vec<(u8, Vec<u8>)> =
        payloads(first, &plain).iter().map(|(kind, body)| (*kind, body.to_vec())).collect();
    let is_padding = |(kind, body): &(u8, Vec<u8>)| *kind == 41 && body.get(2..4) == Some(&[0xc4, 0x36]);
    if !parts.last().is_some_and(is_padding) {
        return (first, plain);
    }
    parts.pop();
    chain(&parts)
}

/// A message of the victim, opened.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Exchange type.
    pub exchange: u8,
    /// Whether it is a response.
    pub response: bool,
    /// Type of the first payload.
    pub first: u8,
    /// The payloads.
    pub chain: Vec<u8>,
}

struct Keys {
    d: Vec<u8>,
    /// Of the SA's initiator and responder: key and salt.
    e: [Vec<u8>; 2],
    p: [Vec<u8>; 2],
}

/// The attacker's side of one IKE SA.
pub struct Attacker {
    /// Whether the attacker is the original initiator.
    pub initiator: bool,
    spi_i: [u8; 8],
    spi_r: [u8; 8],
    private: StaticSecret,
    /// Its nonce, always the same: the victim's is fresh.
    nonce: [u8; 32],
    ni: Vec<u8>,
    nr: Vec<u8>,
    request: Vec<u8>,
    response: Vec<u8>,
    keys: Option<Keys>,
    /// ML-KEM-768 is in every IKE SA.
    hybrid: bool,
    /// IntAuth_i and IntAuth_r (RFC 9242 3.3.2), once there was an IKE_INTERMEDIATE.
    records: [Vec<u8>; 2],
    iv: u64,
    next_id: u32,
    /// The victim's last request: message ID and exchange.
    pub asked: Option<(u32, u8)>,
}

impl Attacker {
    /// An attacker that has said nothing yet.
    pub fn new(initiator: bool) -> Self {
        let (spi_i, spi_r) = if initiator { ([0xa7; 8], [0; 8]) } else { ([0; 8], [0xa7; 8]) };
        Self {
            initiator,
            spi_i,
            spi_r,
            private: StaticSecret::from([7; 32]),
            nonce: [0x5a; 32],
            ni: Vec::new(),
            nr: Vec::new(),
            request: Vec::new(),
            response: Vec::new(),
            keys: None,
            hybrid: false,
            records: [Vec::new(), Vec::new()],
            iv: 0,
            // RFC 7296 2.2: 0 was IKE_SA_INIT for who began; the responder has asked nothing yet.
            next_id: u32::from(initiator),
            asked: None,
        }
    }

    /// An attacker that has said nothing yet and offers ML-KEM-768 as additional key exchange.
    pub fn hybrid(initiator: bool) -> Self {
        Self { hybrid: true, ..Self::new(initiator) }
    }

    /// The body of its KE payload.
    pub fn share(&self) -> Vec<u8> {
        [&[0, 31, 0, 0][..], PublicKey::from(&self.private).as_bytes()].concat()
    }

    fn header(&self, next: u8, exchange: u8, response: bool, id: u32, length: usize) -> Vec<u8> {
        let flags = if self.initiator { 8 } else { 0 } | if response { 0x20 } else { 0 };
        let mut out = [self.spi_i, self.spi_r].concat();
        out.extend_from_slice(&[next, 0x20, exchange, flags]);
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&(length as u32).to_be_bytes());
        out
    }

    /// IKE_SA_INIT, asking or answering, with `more` payloads (notifications) at its end.
    pub fn init(&mut self, more: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let proposal = ike_proposal(&[], self.hybrid);
        let mut parts = vec![(33, proposal), (34, self.share()), (40, self.nonce.to_vec())];
        parts.extend_from_slice(more);
        let (first, body) = chain(&parts);
        let mut out = self.header(first, 34, !self.initiator, 0, 28 + body.len());
        out.extend_from_slice(&body);
        if self.initiator {
            self.request = out.clone();
            self.ni = self.nonce.to_vec();
        } else {
            self.response = out.clone();
            self.nr = self.nonce.to_vec();
            self.derive();
        }
        [&[0; 4], out.as_slice()].concat()
    }

    /// Hears a datagram of the victim.
    pub fn hear(&mut self, datagram: &[u8]) -> Option<Seen> {
        let message = datagram.get(4..)?;
        let (next, exchange, flags) = (*message.get(16)?, *message.get(18)?, *message.get(19)?);
        let response = flags & 0x20 != 0;
        let id = u32::from_be_bytes(message.get(20..24)?.try_into().ok()?);
        if exchange == 34 {
            return self.hear_init(message, response);
        }
        if !response {
            self.asked = Some((id, exchange));
        }
        if next != 46 {
            return None;
        }
        let key = &self.keys.as_ref()?.e[usize::from(self.initiator)];
        let nonce: [u8; 12] = [&key[16..], message.get(32..40)?].concat().try_into().ok()?;
        let payload = Payload { aad: message.get(..32)?, msg: message.get(40..)? };
        let cipher = Aes128Gcm::new_from_slice(&key[..16]).expect("16 octets");
        let mut plain = cipher.decrypt((&nonce).into(), payload).ok()?;
        let pad = usize::from(plain.pop()?);
        plain.truncate(plain.len().checked_sub(pad)?);
        let (first, chain) = unpadded(message[28], plain);
        Some(Seen { exchange, response, first, chain })
    }

    fn hear_init(&mut self, message: &[u8], response: bool) -> Option<Seen> {
        let body = message.get(28..)?;
        let all = payloads(message[16], body);
        let nonce = all.iter().find(|p| p.0 == 40)?.1.to_vec();
        if response && self.initiator && self.keys.is_none() {
            self.spi_r = message[8..16].try_into().ok()?;
            self.response = message.to_vec();
            self.nr = nonce;
            self.derive();
        } else if !response && !self.initiator {
            self.spi_i = message[..8].try_into().ok()?;
            self.request = message.to_vec();
            self.ni = nonce;
        }
        Some(Seen { exchange: 34, response, first: message[16], chain: body.to_vec() })
    }

    fn shared(&self, theirs: &[u8]) -> Option<Vec<u8>> {
        let all = payloads(*theirs.get(16)?, theirs.get(28..)?);
        self.agree(all.iter().find(|p| p.0 == 34)?.1)
    }

    fn agree(&self, ke: &[u8]) -> Option<Vec<u8>> {
        let point: [u8; 32] = ke.get(4..)?.try_into().ok()?;
        Some(self.private.diffie_hellman(&PublicKey::from(point)).as_bytes().to_vec())
    }

    fn derive(&mut self) {
        let theirs = if self.initiator { &self.response } else { &self.request };
        let Some(shared) = self.shared(theirs) else { return };
        let seed = prf(&[self.ni.as_slice(), &self.nr].concat(), &[&shared]);
        self.keys = Some(self.expand(&seed));
        self.iv = 0;
    }

    fn expand(&self, seed: &[u8]) -> Keys {
        let info = [self.ni.as_slice(), &self.nr, &self.spi_i, &self.spi_r].concat();
        let all = prf_plus(seed, &info, 32 + 40 + 64);
        let cut = |from: usize, n: usize| all[from..from + n].to_vec();
        Keys { d: cut(0, 32), e: [cut(32, 20), cut(52, 20)], p: [cut(72, 32), cut(104, 32)] }
    }

    /// The bodies of the attacker's ID and AUTH payloads.
    pub fn auth(&self, name: &str) -> Option<(Vec<u8>, Vec<u8>)> {
        // Without an IKE_INTERMEDIATE nothing follows the identity; with one, IKE_AUTH is the attacker's next request.
        self.proof(self.initiator, name, self.next_id)
    }

    /// The bodies of the ID and AUTH payloads of the SA's initiator, or responder, with this name (RFC 7296 2.15, RFC 9242 3.3.2).
    pub fn proof(&self, initiator: bool, name: &str, auth_id: u32) -> Option<(Vec<u8>, Vec<u8>)> {
        let keys = self.keys.as_ref()?;
        let id = [&[2, 0, 0, 0], name.as_bytes()].concat();
        let (message, nonce, p) = if initiator {
            (&self.request, &self.nr, &keys.p[0])
        } else {
            (&self.response, &self.ni, &keys.p[1])
        };
        let key = prf(KEY, &[b"Key Pad for IKEv2"]);
        let (record, auth_id) = (self.records.concat(), auth_id.to_be_bytes());
        let auth_id: &[u8] = if record.is_empty() { &[] } else { &auth_id };
        let mac = prf(&key, &[message, nonce, &prf(p, &[&id]), &record, auth_id]);
        Some((id, [&[2, 0, 0, 0], mac.as_slice()].concat()))
    }

    /// Mixes an additional key exchange's secret into all keys (RFC 9370 2.2.2), of which the attacker's last request and its answer,
    /// each with its first payload's type, were the IKE_INTERMEDIATE: they go into the record under the keys as they were.
    pub fn mix(&mut self, messages: [(u8, &[u8]); 2], shared: &[u8]) {
        let Some(keys) = &self.keys else { return };
        for (n, (first, chain)) in messages.into_iter().enumerate() {
            // RFC 9242 3.3.2: both headers, with lengths as if nothing were encrypted, and what is inside.
            let flags = [8, 0x20][n];
            let mut message = [self.spi_i, self.spi_r].concat();
            message.extend_from_slice(&[46, 0x20, 43, flags]);
            message.extend_from_slice(&(self.next_id - 1).to_be_bytes());
            message.extend_from_slice(&(28 + 4 + chain.len() as u32).to_be_bytes());
            let length = 4 + chain.len() as u16;
            message.extend_from_slice(&[first, 0, (length >> 8) as u8, length as u8]);
            message.extend_from_slice(chain);
            self.records[n] = prf(&keys.p[n], &[&self.records[n], &message]);
        }
        let seed = prf(&keys.d, &[shared, &self.ni, &self.nr]);
        self.keys = Some(self.expand(&seed));
    }

    /// A protected request, with the next message ID.
    pub fn ask(&mut self, exchange: u8, first: u8, chain: &[u8]) -> Option<Vec<u8>> {
        let id = self.next_id;
        self.next_id += 1;
        self.seal(exchange, false, id, first, chain, None)
    }

    /// A protected response to the victim's last request.
    pub fn answer(&mut self, first: u8, chain: &[u8]) -> Option<Vec<u8>> {
        let (id, exchange) = self.asked?;
        self.seal(exchange, true, id, first, chain, None)
    }

    /// A fragment of the next request (RFC 7383): `numbers` are its own and the total.
    pub fn fragment(
        &mut self,
        exchange: u8,
        first: u8,
        chain: &[u8],
        numbers: [u8; 2],
        last: bool,
    ) -> Option<Vec<u8>> {
        let id = self.next_id;
        self.next_id += u32::from(last);
        self.seal(exchange, false, id, first, chain, Some(numbers))
    }

    fn seal(
        &mut self,
        exchange: u8,
        response: bool,
        id: u32,
        first: u8,
        plain: &[u8],
        fragment: Option<[u8; 2]>,
    ) -> Option<Vec<u8>> {
        let key = self.keys.as_ref()?.e[usize::from(!self.initiator)].clone();
        let numbers = fragment.map_or(vec![], |[n, of]| vec![0, n, 0, of]);
        let payload = 4 + numbers.len() + 8 + plain.len() + 1 + 16;
        let kind = if fragment.is_some() { 53 } else { 46 };
        let mut out = self.header(kind, exchange, response, id, 28 + payload);
        out.extend_from_slice(&[first, 0, (payload >> 8) as u8, payload as u8]);
        out.extend_from_slice(&numbers);
        let iv = self.iv.to_be_bytes();
        self.iv += 1;
        let nonce: [u8; 12] = [&key[16..], &iv].concat().try_into().ok()?;
        let msg = [plain, &[0]].concat();
        let cipher = Aes128Gcm::new_from_slice(&key[..16]).expect("16 octets");
        let sealed = cipher.encrypt((&nonce).into(), Payload { aad: &out, msg: &msg }).ok()?;
        out.extend_from_slice(&iv);
        out.extend_from_slice(&sealed);
        Some([&[0; 4], out.as_slice()].concat())
    }

    /// The chain that asks for, or grants, new keys for the IKE SA under the attacker's new SPI.
    pub fn rekey_chain(&self, spi: [u8; 8]) -> (u8, Vec<u8>) {
        chain(&[(33, ike_proposal(&spi, self.hybrid)), (40, self.nonce.to_vec()), (34, self.share())])
    }

    /// The attacker's side of the SA that replaces this one, from the victim's half of the exchange. `asked`: the attacker asked;
    /// `more`: the secrets of additional key exchanges, one behind the other (RFC 9370 2.2.4).
    pub fn successor(&self, asked: bool, spi: [u8; 8], theirs: &Seen, more: &[u8]) -> Option<Self> {
        let all = payloads(theirs.first, &theirs.chain);
        let body = |kind| all.iter().find(|p| p.0 == kind).map(|p| p.1);
        let peer: [u8; 8] = body(33)?.get(8..16)?.try_into().ok()?;
        let (nonce, shared) = (body(40)?.to_vec(), self.agree(body(34)?)?);
        let mut next = Self { hybrid: self.hybrid, ..Self::new(asked) };
        (next.spi_i, next.spi_r) = if asked { (spi, peer) } else { (peer, spi) };
        (next.ni, next.nr) = if asked { (self.nonce.to_vec(), nonce) } else { (nonce, self.nonce.to_vec()) };
        let seed = prf(&self.keys.as_ref()?.d, &[&shared, &next.ni, &next.nr, more]);
        next.keys = Some(next.expand(&seed));
        next.next_id = 0;
        Some(next)
    }
}

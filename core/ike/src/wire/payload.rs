//! Chains of payloads, each parsed once into its type (RFC 7296 3.2).

use super::{
    AuthPayload, CertPayload, GENERIC, Identity, Malformed, Notify, NotifyKind, Proposal, Reader,
    TrafficSelectors, kind,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Payloads in one message beyond which it is malformed: twenty certificates and as many notifications fit.
const MOST_PAYLOADS: usize = 96;

/// Why a chain of payloads is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    Malformed(Malformed),
    /// An unknown payload with the critical bit (RFC 7296 2.5), by its type.
    Critical(u8),
}

impl From<Malformed> for Problem {
    fn from(m: Malformed) -> Self {
        Self::Malformed(m)
    }
}

/// The outermost shape of a message.
#[derive(Debug)]
pub(crate) enum Shape<'a> {
    /// Payloads in clear.
    Clear(&'a [u8]),
    /// An Encrypted payload (RFC 7296 3.14): the type of the first payload inside, IV to ICV.
    Sealed { first: u8, data: &'a [u8] },
    /// An Encrypted Fragment payload (RFC 7383 2.5). `number` is 1 to `total`.
    Fragment { first: u8, number: u16, total: u16, data: &'a [u8] },
}

/// Tells the shape of a message from the header's next-payload octet and the octets behind the header.
///
/// RFC 7296 3.14: an Encrypted payload is the last one, and levee sends and accepts it as the only one; payloads in clear ahead of
/// it would be unauthenticated by 7296's own rules of processing and no peer sends any.
pub(crate) fn shape(next: u8, body: &[u8]) -> Result<Shape<'_>, Malformed> {
    if next != kind::SK && next != kind::SKF {
        return Ok(Shape::Clear(body));
    }
    let mut r = Reader::new(body, "encrypted payload");
    let (first, _, length) = (r.u8()?, r.u8()?, r.u16()?);
    let mut data = r.counted(length, GENERIC)?;
    if !r.is_empty() {
        return r.fail();
    }
    if next == kind::SK {
        return Ok(Shape::Sealed { first, data: data.rest() });
    }
    let (number, total) = (data.u16()?, data.u16()?);
    if number == 0 || number > total {
        return r.fail();
    }
    Ok(Shape::Fragment { first, number, total, data: data.rest() })
}

/// A KE payload (RFC 7296 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyShare<'a> {
    pub(crate) method: u16,
    pub(crate) data: &'a [u8],
}

/// A Delete payload (RFC 7296 3.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delete {
    Ike,
    Esp(Vec<u32>),
    /// AH or a protocol nobody defined: there are no such SAs here.
    Other,
}

impl Delete {
    fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(body, "delete payload");
        let (protocol, size, count) = (r.u8()?, r.u8()?, r.u16()?);
        let out = match (protocol, size) {
            (1, 0) if count == 0 => Self::Ike,
            (3, 4) => {
                let mut spis = Vec::new();
                for _ in 0..count {
                    spis.push(r.u32()?);
                }
                Self::Esp(spis)
            }
            (2, 4) => {
                r.take(usize::from(count) * 4)?;
                Self::Other
            }
            _ => return r.fail(),
        };
        if r.is_empty() { Ok(out) } else { r.fail() }
    }
}

/// Whether a configuration payload asks, answers, sets or acknowledges (RFC 7296 3.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpKind {
    Request,
    Reply,
    Set,
    Ack,
}

/// A configuration attribute that levee understands. An absent value (in a request) is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpAttribute {
    Address4(Option<Ipv4Addr>),
    Dns4(Option<Ipv4Addr>),
    Address6(Option<(Ipv6Addr, u8)>),
    Dns6(Option<Ipv6Addr>),
}

impl CpAttribute {
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address4(a) => a.map(IpAddr::V4),
            Self::Address6(a) => a.map(|(a, _)| IpAddr::V6(a)),
            _ => None,
        }
    }

    pub(crate) fn dns(&self) -> Option<IpAddr> {
        match self {
            Self::Dns4(a) => a.map(IpAddr::V4),
            Self::Dns6(a) => a.map(IpAddr::V6),
            _ => None,
        }
    }

    pub(crate) fn write_all(kind: CpKind, all: &[Self], out: &mut Vec<u8>) {
        let code = match kind {
            CpKind::Request => 1,
            CpKind::Reply => 2,
            CpKind::Set => 3,
            CpKind::Ack => 4,
        };
        out.extend_from_slice(&[code, 0, 0, 0]);
        for a in all {
            let (kind, value): (u8, Vec<u8>) = match a {
                Self::Address4(v) => (1, v.map(|a| a.octets().to_vec()).unwrap_or_default()),
                Self::Dns4(v) => (3, v.map(|a| a.octets().to_vec()).unwrap_or_default()),
                Self::Address6(v) => (
                    8,
                    v.map(|(a, prefix)| a.octets().into_iter().chain([prefix]).collect()).unwrap_or_default(),
                ),
                Self::Dns6(v) => (10, v.map(|a| a.octets().to_vec()).unwrap_or_default()),
            };
            out.extend_from_slice(&[0, kind, 0, u8::try_from(value.len()).unwrap_or(0)]);
            out.extend_from_slice(&value);
        }
    }

    fn parse_all(body: &[u8]) -> Result<(CpKind, Vec<Self>), Malformed> {
        let mut r = Reader::new(body, "configuration payload");
        let kind = match r.u8()? {
            1 => CpKind::Request,
            2 => CpKind::Reply,
            3 => CpKind::Set,
            4 => CpKind::Ack,
            _ => return r.fail(),
        };
        r.take(3)?;
        let mut all = Vec::new();
        while !r.is_empty() {
            let (code, length) = (r.u16()? & 0x7fff, r.u16()?);
            let value = r.take(usize::from(length))?;
            let v4 = || match value {
                [] => Ok(None),
                _ => <[u8; 4]>::try_from(value).map(|a| Some(a.into())).or_else(|_| r.fail()),
            };
            let parsed = match code {
                1 => Self::Address4(v4()?),
                3 => Self::Dns4(v4()?),
                8 => Self::Address6(match value.split_first_chunk::<16>() {
                    Some((a, [prefix])) if *prefix <= 128 => Some(((*a).into(), *prefix)),
                    None if value.is_empty() => None,
                    _ => return r.fail(),
                }),
                10 => Self::Dns6(match <[u8; 16]>::try_from(value) {
                    Ok(a) => Some(a.into()),
                    Err(_) if value.is_empty() => None,
                    Err(_) => return r.fail(),
                }),
                _ => continue,
            };
            if all.len() < 32 {
                all.push(parsed);
            }
        }
        Ok((kind, all))
    }
}

/// All payloads of one message. What may occur once and occurs twice is malformed.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    pub(crate) sa: Option<Vec<Proposal>>,
    pub(crate) ke: Option<KeyShare<'a>>,
    pub(crate) nonce: Option<&'a [u8]>,
    pub(crate) id_i: Option<(Identity, &'a [u8])>,
    pub(crate) id_r: Option<(Identity, &'a [u8])>,
    pub(crate) certs: Vec<CertPayload<'a>>,
    pub(crate) auth: Option<AuthPayload<'a>>,
    pub(crate) notifies: Vec<Notify<'a>>,
    pub(crate) deletes: Vec<Delete>,
    pub(crate) ts_i: Option<TrafficSelectors>,
    pub(crate) ts_r: Option<TrafficSelectors>,
    pub(crate) cp: Option<(CpKind, Vec<CpAttribute>)>,
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed("repeated payload")),
    }
}

impl<'a> Fields<'a> {
    /// Parses the chain that begins with a payload of type `first`.
    pub(crate) fn parse(first: u8, chain: &'a [u8]) -> Result<Self, Problem> {
        let mut out = Self::default();
        let (mut next, mut r, mut count) = (first, Reader::new(chain, "payload chain"), 0);
        while next != 0 {
            count += 1;
            if count > MOST_PAYLOADS {
                return Ok(r.fail()?);
            }
            let this = next;
            next = r.u8()?;
            let (critical, length) = (r.u8()? & 0x80 != 0, r.u16()?);
            let body = r.counted(length, GENERIC)?.rest();
            out.add(this, critical, body)?;
        }
        if r.is_empty() { Ok(out) } else { Ok(r.fail()?) }
    }

    fn add(&mut self, this: u8, critical: bool, body: &'a [u8]) -> Result<(), Problem> {
        match this {
            kind::SA => once(&mut self.sa, Proposal::parse_all(body)?)?,
            kind::KE => {
                let mut r = Reader::new(body, "key exchange payload");
                let (method, _) = (r.u16()?, r.u16()?);
                once(&mut self.ke, KeyShare { method, data: r.rest() })?;
            }
            kind::NONCE => {
                // RFC 7296 3.9: between 16 and 256 octets.
                if !(16..=256).contains(&body.len()) {
                    return Err(Malformed("nonce payload").into());
                }
                once(&mut self.nonce, body)?;
            }
            kind::ID_I => once(&mut self.id_i, (Identity::parse(body)?, body))?,
            kind::ID_R => once(&mut self.id_r, (Identity::parse(body)?, body))?,
            kind::CERT => self.certs.push(CertPayload::parse(body)?),
            // Nothing follows from what it names: there is one chain to show.
            kind::CERTREQ => drop(CertPayload::parse(body)?),
            kind::AUTH => once(&mut self.auth, AuthPayload::parse(body)?)?,
            kind::NOTIFY => self.notifies.push(Notify::parse(body)?),
            kind::DELETE => self.deletes.push(Delete::parse(body)?),
            kind::TS_I => once(&mut self.ts_i, TrafficSelectors::parse(body)?)?,
            kind::TS_R => once(&mut self.ts_r, TrafficSelectors::parse(body)?)?,
            kind::CP => once(&mut self.cp, CpAttribute::parse_all(body)?)?,
            kind::EAP | kind::VENDOR => {}
            // RFC 7296 2.5: unknown payloads are skipped unless critical. A second encrypted payload inside is not a payload
            // that means anything here.
            _ if critical || this == kind::SK || this == kind::SKF => return Err(Problem::Critical(this)),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn notify(&self, kind: NotifyKind) -> Option<&Notify<'a>> {
        self.notifies.iter().find(|n| n.kind == kind)
    }

    pub(crate) fn has(&self, kind: NotifyKind) -> bool {
        self.notify(kind).is_some()
    }

    /// The first error notification, if there is one.
    pub(crate) fn error(&self) -> Option<&Notify<'a>> {
        self.notifies.iter().find(|n| n.kind.is_error())
    }
}

//! Identification, certificate and authentication payloads (RFC 7296 3.5, 3.6, 3.8).

use super::{Malformed, Reader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An identity as the ID payload says it (RFC 7296 3.5). Equality is the protocol's: names of hosts and the host part of mail
/// addresses compare without regard to ASCII case, all else octet by octet.
#[derive(Debug, Clone)]
pub enum Identity {
    /// ID_IPV4_ADDR and ID_IPV6_ADDR.
    Address(IpAddr),
    /// ID_FQDN: a host's name.
    Fqdn(String),
    /// ID_RFC822_ADDR: a mail address.
    Mail(String),
    /// ID_DER_ASN1_DN: a distinguished name in DER.
    DistinguishedName(Vec<u8>),
    /// ID_KEY_ID: octets whose meaning the two sites agreed.
    KeyId(Vec<u8>),
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Address(a), Self::Address(b)) => a == b,
            (Self::Fqdn(a), Self::Fqdn(b)) => a.eq_ignore_ascii_case(b),
            (Self::Mail(a), Self::Mail(b)) => match (a.rsplit_once('@'), b.rsplit_once('@')) {
                (Some((a, ah)), Some((b, bh))) => a == b && ah.eq_ignore_ascii_case(bh),
                _ => a == b,
            },
            (Self::DistinguishedName(a), Self::DistinguishedName(b)) | (Self::KeyId(a), Self::KeyId(b)) => {
                a == b
            }
            _ => false,
        }
    }
}

impl Eq for Identity {}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(a) => write!(f, "{a}"),
            Self::Fqdn(s) | Self::Mail(s) => f.write_str(s),
            Self::DistinguishedName(der) => match x509_parser::x509::X509Name::from_der_all(der) {
                Some(name) => f.write_str(&name),
                None => write!(f, "DN of {} octets", der.len()),
            },
            Self::KeyId(b) => {
                f.write_str("keyid:")?;
                b.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

trait FromDerAll {
    fn from_der_all(der: &[u8]) -> Option<String>;
}

impl FromDerAll for x509_parser::x509::X509Name<'_> {
    fn from_der_all(der: &[u8]) -> Option<String> {
        use x509_parser::prelude::FromDer;
        match x509_parser::x509::X509Name::from_der(der) {
            Ok(([], name)) => Some(name.to_string()),
            _ => None,
        }
    }
}

/// The longest identity taken or sent, in octets.
const LONGEST: usize = 2048;

impl Identity {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(body, "identification payload");
        let kind = r.u8()?;
        r.take(3)?;
        let data = r.rest();
        if data.is_empty() || data.len() > LONGEST {
            return r.fail();
        }
        let text = |r: &Reader<'_>| match std::str::from_utf8(data) {
            Ok(s) if s.bytes().all(|b| b.is_ascii_graphic()) => Ok(s.to_owned()),
            _ => r.fail(),
        };
        Ok(match kind {
            1 => match <[u8; 4]>::try_from(data) {
                Ok(a) => Self::Address(IpAddr::V4(Ipv4Addr::from(a))),
                Err(_) => return r.fail(),
            },
            5 => match <[u8; 16]>::try_from(data) {
                Ok(a) => Self::Address(IpAddr::V6(Ipv6Addr::from(a))),
                Err(_) => return r.fail(),
            },
            2 => Self::Fqdn(text(&r)?),
            3 => Self::Mail(text(&r)?),
            9 => Self::DistinguishedName(data.to_vec()),
            11 => Self::KeyId(data.to_vec()),
            _ => return r.fail(),
        })
    }

    /// The body of the ID payload behind its generic header: IDi' and IDr' of RFC 7296 2.15.
    pub(crate) fn write(&self) -> Vec<u8> {
        let (kind, data): (u8, Vec<u8>) = match self {
            Self::Address(IpAddr::V4(a)) => (1, a.octets().to_vec()),
            Self::Address(IpAddr::V6(a)) => (5, a.octets().to_vec()),
            Self::Fqdn(s) => (2, s.clone().into_bytes()),
            Self::Mail(s) => (3, s.clone().into_bytes()),
            Self::DistinguishedName(d) => (9, d.clone()),
            Self::KeyId(d) => (11, d.clone()),
        };
        let mut out = vec![kind, 0, 0, 0];
        out.extend_from_slice(&data);
        out
    }
}

/// Certificate encodings (RFC 7296 3.6).
pub(crate) mod cert_encoding {
    pub(crate) const X509_SIGNATURE: u8 = 4;
}

/// A CERT or CERTREQ payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CertPayload<'a> {
    pub(crate) encoding: u8,
    pub(crate) data: &'a [u8],
}

impl<'a> CertPayload<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(body, "certificate payload");
        Ok(Self { encoding: r.u8()?, data: r.rest() })
    }
}

/// Authentication methods (RFC 7296 3.8, RFC 7427).
pub(crate) mod auth_method {
    pub(crate) const SHARED_KEY: u8 = 2;
    pub(crate) const DIGITAL_SIGNATURE: u8 = 14;
}

/// An AUTH payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuthPayload<'a> {
    pub(crate) method: u8,
    pub(crate) data: &'a [u8],
}

impl<'a> AuthPayload<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(body, "authentication payload");
        let method = r.u8()?;
        r.take(3)?;
        Ok(Self { method, data: r.rest() })
    }
}

//! The message format of RFC 7296 section 3, both ways. Nothing here decides anything: bytes become typed values or
//! [`Malformed`], and typed values become bytes.

#[cfg(test)]
mod edges;
#[cfg(test)]
mod exhaustion;
mod ident;
mod notify;
mod payload;
#[cfg(test)]
mod proofs;
mod proposal;
mod selector;

pub use ident::Identity;
pub(crate) use ident::{AuthPayload, CertPayload, auth_method, cert_encoding};
pub(crate) use notify::{Notify, NotifyKind};
pub(crate) use payload::{CpAttribute, CpKind, Delete, Fields, KeyShare, Problem, Shape, shape};
pub(crate) use proposal::{Proposal, Protocol, Transform, TransformKind};
pub use selector::{InvalidLabel, SecurityLabel, Selector};
pub(crate) use selector::{TrafficSelectors, narrow, within};

/// Payload type numbers (RFC 7296 3.2, RFC 7383 5).
pub(crate) mod kind {
    pub(crate) const SA: u8 = 33;
    pub(crate) const KE: u8 = 34;
    pub(crate) const ID_I: u8 = 35;
    pub(crate) const ID_R: u8 = 36;
    pub(crate) const CERT: u8 = 37;
    pub(crate) const CERTREQ: u8 = 38;
    pub(crate) const AUTH: u8 = 39;
    pub(crate) const NONCE: u8 = 40;
    pub(crate) const NOTIFY: u8 = 41;
    pub(crate) const DELETE: u8 = 42;
    pub(crate) const VENDOR: u8 = 43;
    pub(crate) const TS_I: u8 = 44;
    pub(crate) const TS_R: u8 = 45;
    pub(crate) const SK: u8 = 46;
    pub(crate) const CP: u8 = 47;
    pub(crate) const EAP: u8 = 48;
    pub(crate) const SKF: u8 = 53;
}

/// Octets of the fixed IKE header (RFC 7296 3.1).
pub(crate) const HEADER: usize = 28;
/// Octets of the generic payload header (RFC 7296 3.2).
pub(crate) const GENERIC: usize = 4;

/// A message that does not have the form the RFC gives it; the text names the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads big-endian fields from a slice and never past its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    part: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], part: &'static str) -> Self {
        Self { rest: bytes, part }
    }

    pub(crate) fn fail<T>(&self) -> Result<T, Malformed> {
        Err(Malformed(self.part))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed(self.part))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed(self.part))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// A part that carries its own length, counted with `head` octets that were already read.
    pub(crate) fn counted(&mut self, length: u16, head: usize) -> Result<Reader<'a>, Malformed> {
        let n = usize::from(length).checked_sub(head).ok_or(Malformed(self.part))?;
        Ok(Reader::new(self.take(n)?, self.part))
    }
}

/// The exchanges that levee takes part in (RFC 7296 3.1, RFC 9242).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchange {
    Init,
    Auth,
    CreateChild,
    Informational,
    Intermediate,
    FollowupKe,
}

impl Exchange {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Init => 34,
            Self::Auth => 35,
            Self::CreateChild => 36,
            Self::Informational => 37,
            Self::Intermediate => 43,
            Self::FollowupKe => 44,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            34 => Self::Init,
            35 => Self::Auth,
            36 => Self::CreateChild,
            37 => Self::Informational,
            43 => Self::Intermediate,
            44 => Self::FollowupKe,
            _ => return None,
        })
    }
}

/// The IKE header (RFC 7296 3.1), its length already checked against the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) spi_i: u64,
    pub(crate) spi_r: u64,
    pub(crate) next: u8,
    pub(crate) exchange: Exchange,
    /// The I flag: sent by the original initiator of the IKE SA.
    pub(crate) from_initiator: bool,
    /// The R flag.
    pub(crate) response: bool,
    pub(crate) message_id: u32,
}

/// Why a datagram has no usable header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Malformed,
    /// RFC 7296 2.5: a higher major version is answered with INVALID_MAJOR_VERSION.
    MajorVersion {
        spi_i: u64,
        spi_r: u64,
        exchange: u8,
        message_id: u32,
        response: bool,
    },
    UnknownExchange,
}

impl Header {
    /// Reads the header and gives the octets behind it.
    pub(crate) fn parse(message: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let mut r = Reader::new(message, "header");
        let mut fields = || -> Result<_, Malformed> {
            Ok((r.u64()?, r.u64()?, r.u8()?, r.u8()?, r.u8()?, r.u8()?, r.u32()?, r.u32()?, r.rest()))
        };
        let (spi_i, spi_r, next, version, code, flags, message_id, length, body) =
            fields().map_err(|_| HeaderError::Malformed)?;
        if usize::try_from(length).ok() != Some(message.len()) || spi_i == 0 {
            return Err(HeaderError::Malformed);
        }
        let response = flags & 0x20 != 0;
        match version >> 4 {
            2 => {}
            3.. => {
                return Err(HeaderError::MajorVersion { spi_i, spi_r, exchange: code, message_id, response });
            }
            _ => return Err(HeaderError::Malformed),
        }
        let exchange = Exchange::from_code(code).ok_or(HeaderError::UnknownExchange)?;
        Ok((
            Self { spi_i, spi_r, next, exchange, from_initiator: flags & 0x08 != 0, response, message_id },
            body,
        ))
    }

    /// The header's octets for a message of `length` octets in all.
    pub(crate) fn write(&self, length: usize) -> [u8; HEADER] {
        let mut out = [0u8; HEADER];
        let flags = if self.from_initiator { 0x08 } else { 0 } | if self.response { 0x20 } else { 0 };
        out[0..8].copy_from_slice(&self.spi_i.to_be_bytes());
        out[8..16].copy_from_slice(&self.spi_r.to_be_bytes());
        out[16] = self.next;
        out[17] = 0x20;
        out[18] = self.exchange.code();
        out[19] = flags;
        out[20..24].copy_from_slice(&self.message_id.to_be_bytes());
        out[24..28].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        out
    }
}

/// A chain of payloads being written; each one's type is put into the header before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chain {
    first: u8,
    bytes: Vec<u8>,
    last: Option<usize>,
}

impl Chain {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends a payload whose body `write` gives. A body over 65,531 octets cannot be said and is left out whole: only
    /// the site's own certificates could be so long, and the configuration refuses them.
    pub(crate) fn push(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; GENERIC]);
        write(&mut self.bytes);
        let Ok(length) = u16::try_from(self.bytes.len() - at) else {
            self.bytes.truncate(at);
            return self;
        };
        self.bytes[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
        match self.last {
            None => self.first = kind,
            Some(last) => self.bytes[last] = kind,
        }
        self.last = Some(at);
        self
    }

    pub(crate) fn first(&self) -> u8 {
        self.first
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A whole message in clear (IKE_SA_INIT and its error answers).
    pub(crate) fn message(&self, mut header: Header) -> Vec<u8> {
        header.next = self.first;
        let mut out = header.write(HEADER + self.bytes.len()).to_vec();
        out.extend_from_slice(&self.bytes);
        out
    }
}

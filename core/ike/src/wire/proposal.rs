//! Security Association payloads: proposals and transforms (RFC 7296 3.3).

use super::{Malformed, Reader};

/// Proposals in one payload, and transforms in one proposal, beyond which a message is malformed. The fields would allow
/// 255 of each; no peer says a fifth of it.
const MOST_PROPOSALS: usize = 64;
const MOST_TRANSFORMS: usize = 128;

/// Protocol identifiers (RFC 7296 3.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Ike,
    Ah,
    Esp,
    Other(u8),
}

impl Protocol {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ike => 1,
            Self::Ah => 2,
            Self::Esp => 3,
            Self::Other(c) => c,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Ike,
            2 => Self::Ah,
            3 => Self::Esp,
            c => Self::Other(c),
        }
    }
}

/// Transform types (RFC 7296 3.3.2, RFC 9370 2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TransformKind {
    Encryption,
    Prf,
    Integrity,
    KeyExchange,
    SequenceNumbers,
    /// ADDKE1 to ADDKE7, counted from 0.
    Additional(u8),
    Other(u8),
}

impl TransformKind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Encryption => 1,
            Self::Prf => 2,
            Self::Integrity => 3,
            Self::KeyExchange => 4,
            Self::SequenceNumbers => 5,
            Self::Additional(n) => 6 + n,
            Self::Other(c) => c,
        }
    }

    fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Encryption,
            2 => Self::Prf,
            3 => Self::Integrity,
            4 => Self::KeyExchange,
            5 => Self::SequenceNumbers,
            6..=12 => Self::Additional(code - 6),
            c => Self::Other(c),
        }
    }
}

/// One transform. `None` in `key_bits` means that the attribute is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transform {
    pub(crate) kind: TransformKind,
    pub(crate) id: u16,
    pub(crate) key_bits: Option<u16>,
    /// False when the transform carries an attribute that levee does not know: it cannot be chosen (RFC 7296 3.3.6).
    pub(crate) understood: bool,
}

/// One proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) number: u8,
    pub(crate) protocol: Protocol,
    /// 0, 4 or 8 octets.
    pub(crate) spi: Vec<u8>,
    pub(crate) transforms: Vec<Transform>,
}

impl Proposal {
    pub(crate) fn parse_all(body: &[u8]) -> Result<Vec<Self>, Malformed> {
        let mut r = Reader::new(body, "security association payload");
        let mut all = Vec::new();
        loop {
            let (more, _, length) = (r.u8()?, r.u8()?, r.u16()?);
            let mut p = r.counted(length, 4)?;
            all.push(Self::parse(&mut p)?);
            // RFC 7296 3.3.1: 2 announces another proposal, 0 the end.
            match (more, r.is_empty()) {
                (2, false) if all.len() < MOST_PROPOSALS => {}
                (0, true) => return Ok(all),
                _ => return r.fail(),
            }
        }
    }

    fn parse(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (number, protocol, spi_size, count) = (r.u8()?, Protocol::from_code(r.u8()?), r.u8()?, r.u8()?);
        if !matches!(spi_size, 0 | 4 | 8) || usize::from(count) > MOST_TRANSFORMS {
            return r.fail();
        }
        let spi = r.take(usize::from(spi_size))?.to_vec();
        let mut transforms = Vec::with_capacity(usize::from(count));
        for left in (0..count).rev() {
            let (more, _, length) = (r.u8()?, r.u8()?, r.u16()?);
            if more != if left == 0 { 0 } else { 3 } {
                return r.fail();
            }
            let mut t = r.counted(length, 4)?;
            let (kind, _, id) = (TransformKind::from_code(t.u8()?), t.u8()?, t.u16()?);
            let (mut key_bits, mut understood) = (None, true);
            while !t.is_empty() {
                let (format_and_type, value) = (t.u16()?, t.u16()?);
                match format_and_type {
                    0x800e if key_bits.is_none() => key_bits = Some(value),
                    0x8000.. => understood = false,
                    _ => {
                        t.take(usize::from(value))?;
                        understood = false;
                    }
                }
            }
            transforms.push(Transform { kind, id, key_bits, understood });
        }
        if !r.is_empty() {
            return r.fail();
        }
        Ok(Self { number, protocol, spi, transforms })
    }

    /// The body of an SA payload that offers `all`.
    pub(crate) fn write_all(all: &[Self], out: &mut Vec<u8>) {
        for (i, p) in all.iter().enumerate() {
            let start = out.len();
            out.extend_from_slice(&[
                if i + 1 == all.len() { 0 } else { 2 },
                0,
                0,
                0,
                p.number,
                p.protocol.code(),
            ]);
            out.push(u8::try_from(p.spi.len()).unwrap_or(0));
            out.push(u8::try_from(p.transforms.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(&p.spi);
            for (i, t) in p.transforms.iter().enumerate() {
                out.extend_from_slice(&[if i + 1 == p.transforms.len() { 0 } else { 3 }, 0, 0]);
                out.push(if t.key_bits.is_some() { 12 } else { 8 });
                out.extend_from_slice(&[t.kind.code(), 0]);
                out.extend_from_slice(&t.id.to_be_bytes());
                if let Some(bits) = t.key_bits {
                    out.extend_from_slice(&[0x80, 14]);
                    out.extend_from_slice(&bits.to_be_bytes());
                }
            }
            let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
            out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

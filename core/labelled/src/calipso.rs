//! CALIPSO: a label in an option of IPv6's hop-by-hop header (RFC 5570).
//!
//! Type 7, length, DOI (4 octets), the bitmap's length in words of 32 bits, level, CRC-16, bitmap. A bit restricts always:
//! releasabilities are written inverted (RFC 5570 5.1).

use levee_policy::{Class, Domain, Label, MAX_CATEGORIES};

use crate::Fault;
use crate::cipso::{bitmap, bits};

/// The option's type: to be skipped by who does not know it, and not to be changed on the way.
pub const TYPE: u8 = 7;

const HEAD: usize = 10;
const WORD: usize = 4;
/// Octets of an option with a bit for every category that any domain has.
pub const MOST: usize = HEAD + MAX_CATEGORIES / 8;

/// The label that an option carries. `option` is all of it, from its type on.
///
/// # Errors
/// [`Fault`]; anything that is not one label of this domain, whole, with its checksum.
pub fn decode(domain: &Domain, option: &[u8]) -> Result<Label, Fault> {
    let Some((&[kind, length, a, b, c, d, words, level, crc_low, crc_high], map)) =
        option.split_first_chunk::<HEAD>()
    else {
        return Err(Fault::Length);
    };
    if kind != TYPE || usize::from(length) + 2 != option.len() || usize::from(words) * WORD != map.len() {
        return Err(Fault::Length);
    }
    let doi = u32::from_be_bytes([a, b, c, d]);
    if doi != domain.doi() {
        return Err(Fault::Domain(doi));
    }
    if checksum(option) != u16::from_le_bytes([crc_low, crc_high]) {
        return Err(Fault::Checksum);
    }
    // `bits` leaves out what is beyond every domain: that must not make another label of it.
    if option.len() > MOST {
        return Err(Fault::Length);
    }
    Ok(domain.label(&Class::new(level, bits(map)))?)
}

/// The option that carries a label.
///
/// # Errors
/// [`Fault::Untranslated`] with the label that would be lost. Every other label fits.
pub fn encode(domain: &Domain, label: &Label) -> Result<Vec<u8>, Fault> {
    let class = domain.foreign(label)?;
    let mut map = bitmap(&class.categories);
    map.resize(map.len().next_multiple_of(WORD), 0);
    written(domain, class.level, &map).ok_or_else(|| Fault::Room(label.clone()))
}

/// Every option that [`decode`] takes for this label, and no other: with as many zero words behind the bitmap as there is room for.
/// At most 33.
///
/// # Errors
/// [`Fault::Untranslated`] with the label that the domain cannot say.
pub fn spellings(domain: &Domain, label: &Label) -> Result<Vec<Vec<u8>>, Fault> {
    let class = domain.foreign(label)?;
    let map = bitmap(&class.categories);
    let lengths = map.len().next_multiple_of(WORD)..=MOST - HEAD;
    let padded = lengths.step_by(WORD).map(|length| [&map[..], &vec![0; length - map.len()]].concat());
    Ok(padded.filter_map(|map| written(domain, class.level, &map)).collect())
}

/// The option with this bitmap of whole words; `None` if it is longer than an option can be.
fn written(domain: &Domain, level: u8, map: &[u8]) -> Option<Vec<u8>> {
    let mut option = vec![TYPE, u8::try_from(HEAD - 2 + map.len()).ok()?];
    option.extend(domain.doi().to_be_bytes());
    option.extend([u8::try_from(map.len() / WORD).ok()?, level, 0, 0]);
    option.extend(map);
    let crc = checksum(&option).to_le_bytes();
    option.get_mut(8..10)?.copy_from_slice(&crc);
    Some(option)
}

/// The checksum of an option, over all of it with the checksum's own octets as 0 (RFC 5570 5.1, RFC 1662 C.2).
pub fn checksum(option: &[u8]) -> u16 {
    let octets = option.iter().zip(0usize..).map(|(octet, at)| if at == 8 || at == 9 { 0 } else { *octet });
    !octets.fold(0xffff, |crc, octet| {
        (0..8).fold(crc ^ u16::from(octet), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x8408 } else { crc >> 1 })
    })
}

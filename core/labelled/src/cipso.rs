//! CIPSO: a label in an option of the IPv4 header (draft-ietf-cipso-ipsecurity-01, FIPS 188).
//!
//! Type 134, length, DOI (4 octets), then one tag: type, length, alignment (0), level, categories. The option's copy bit is
//! set: every fragment of a datagram has it.

use levee_policy::{CategorySet, Class, Domain, Label, TagForm};

use crate::Fault;

/// The option's type.
pub const TYPE: u8 = 134;

/// Octets that an IPv4 header has for options (RFC 791 3.1).
pub const MOST: usize = 40;

const HEAD: usize = 6;
const TAG_HEAD: usize = 4;
/// Octets of categories that a tag has room for.
pub(crate) const ROOM: usize = MOST - HEAD - TAG_HEAD;
/// Categories that a bitmap has room for.
const BITS: u16 = (ROOM * 8) as u16;

/// The label that an option carries. `option` is all of it, from its type on.
///
/// # Errors
/// [`Fault`]; anything that is not one label of this domain, whole.
pub fn decode(domain: &Domain, option: &[u8]) -> Result<Label, Fault> {
    let Some((&[kind, length, a, b, c, d], tags)) = option.split_first_chunk::<HEAD>() else {
        return Err(Fault::Length);
    };
    if kind != TYPE || usize::from(length) != option.len() || option.len() > MOST {
        return Err(Fault::Length);
    }
    let doi = u32::from_be_bytes([a, b, c, d]);
    if doi != domain.doi() {
        return Err(Fault::Domain(doi));
    }
    let &[tag, length, ref rest @ ..] = tags else { return Err(Fault::Length) };
    let beyond = usize::from(length).checked_sub(2).ok_or(Fault::Length)?;
    let (body, more) = rest.split_at_checked(beyond).ok_or(Fault::Length)?;
    if !more.is_empty() {
        return Err(Fault::Several);
    }
    Ok(domain.label(&class(domain, tag, body)?)?)
}

/// A tag's level and categories. `body` is what follows its length.
fn class(domain: &Domain, tag: u8, body: &[u8]) -> Result<Class, Fault> {
    if tag == 128 {
        let number = body.try_into().map_err(|_| Fault::Length)?;
        return Err(Fault::Local(u32::from_ne_bytes(number)));
    }
    if ![1, 2, 5, 6].contains(&tag) {
        return Err(Fault::Tag(tag));
    }
    let &[alignment, level, ref data @ ..] = body else { return Err(Fault::Length) };
    if alignment != 0 {
        return Err(Fault::Alignment);
    }
    let categories = match tag {
        1 => bits(data),
        2 => enumerated(data)?,
        5 => ranged(data)?,
        _ => {
            // A bit says to whom it may be released: a category of ours holds where its bit is not set.
            let released = bits(data);
            if let Some(unknown) = released.difference(domain.foreign_categories()).iter().next() {
                return Err(Fault::Untranslated(levee_policy::Untranslated::ForeignCategory(unknown)));
            }
            domain.foreign_categories().difference(&released)
        }
    };
    Ok(Class::new(level, categories))
}

/// The numbers of a bitmap's bits, the first octet's highest being 0. At most 252 octets: every number fits.
pub(crate) fn bits(octets: &[u8]) -> CategorySet {
    let mut set = CategorySet::empty();
    for (octet, at) in octets.iter().zip(0u16..) {
        for bit in (0..8u16).filter(|bit| octet & (0x80 >> bit) != 0) {
            set.insert(at * 8 + bit);
        }
    }
    set
}

/// The set as a bitmap without zero octets at its end.
pub(crate) fn bitmap(set: &CategorySet) -> Vec<u8> {
    let octets = set.last().map_or(0, |last| usize::from(last / 8) + 1);
    let mut map = vec![0u8; octets];
    for number in set.iter() {
        if let Some(octet) = map.get_mut(usize::from(number / 8)) {
            *octet |= 0x80 >> (number % 8);
        }
    }
    map
}

fn numbers(data: &[u8]) -> Result<impl Iterator<Item = u16> + '_, Fault> {
    let (pairs, rest) = data.as_chunks::<2>();
    if rest.is_empty() { Ok(pairs.iter().map(|pair| u16::from_be_bytes(*pair))) } else { Err(Fault::Length) }
}

fn enumerated(data: &[u8]) -> Result<CategorySet, Fault> {
    let mut set = CategorySet::empty();
    let mut last = None;
    for number in numbers(data)? {
        if last.is_some_and(|last| number <= last) {
            return Err(Fault::Order);
        }
        if !set.insert(number) {
            return Err(Fault::Number(number));
        }
        last = Some(number);
    }
    Ok(set)
}

/// Ranges, the highest first, each as its high and its low end; the last low end may be left out where it is 0.
fn ranged(data: &[u8]) -> Result<CategorySet, Fault> {
    let mut set = CategorySet::empty();
    let mut ends = numbers(data)?;
    let mut below: Option<u16> = None;
    while let Some(high) = ends.next() {
        let low = ends.next().unwrap_or(0);
        // Ranges that meet would be one.
        if high < low || below.is_some_and(|below| u32::from(high) + 1 >= u32::from(below)) {
            return Err(Fault::Order);
        }
        if !set.insert(high) {
            return Err(Fault::Number(high));
        }
        for number in low..high {
            set.insert(number);
        }
        below = Some(low);
    }
    Ok(set)
}

/// The option that carries a label, in the domain's form and as short as it can be.
///
/// # Errors
/// [`Fault::Untranslated`] and [`Fault::Room`], with the label that would be lost.
pub fn encode(domain: &Domain, label: &Label) -> Result<Vec<u8>, Fault> {
    let class = domain.foreign(label)?;
    let room = || Fault::Room(label.clone());
    let (tag, data) = match domain.form() {
        TagForm::Bitmap => (1, below(&class.categories).ok_or_else(room)?),
        TagForm::Enumerated => (2, class.categories.iter().flat_map(u16::to_be_bytes).collect()),
        TagForm::Ranged => (5, ranges(&class.categories)),
        TagForm::Permissive => {
            let released = domain.foreign_categories().difference(&class.categories);
            (6, below(&released).ok_or_else(room)?)
        }
    };
    let length = |n: usize| u8::try_from(n).ok().filter(|_| data.len() <= ROOM).ok_or_else(room);
    let mut option = vec![TYPE, length(HEAD + TAG_HEAD + data.len())?];
    option.extend(domain.doi().to_be_bytes());
    option.extend([tag, length(TAG_HEAD + data.len())?, 0, class.level]);
    option.extend(&data);
    Ok(option)
}

pub(crate) fn below(set: &CategorySet) -> Option<Vec<u8>> {
    set.last().is_none_or(|last| last < BITS).then(|| bitmap(set))
}

pub(crate) fn ranges(set: &CategorySet) -> Vec<u8> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for number in set.iter() {
        match ranges.last_mut() {
            Some((_, high)) if *high + 1 == number => *high = number,
            _ => ranges.push((number, number)),
        }
    }
    let mut data = Vec::new();
    for (low, high) in ranges.into_iter().rev() {
        data.extend(high.to_be_bytes());
        if low != 0 {
            data.extend(low.to_be_bytes());
        }
    }
    data
}

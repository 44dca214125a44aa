//! Every option that says one label: what a table must have in it that stands for [`crate::cipso::decode`].

use levee_policy::{Domain, Label};

use crate::Fault;
use crate::cipso::{ROOM, TYPE, below, ranges};

/// Every CIPSO option that [`decode`](crate::cipso::decode) takes for this label, and no other: in each of the four tags that
/// has room for it, with as many zero octets behind a bitmap as there is room for. At most 64.
///
/// # Errors
/// [`Fault::Untranslated`] with the label that the domain cannot say.
pub fn spellings(domain: &Domain, label: &Label) -> Result<Vec<Vec<u8>>, Fault> {
    let class = domain.foreign(label)?;
    let mut tags: Vec<(u8, Vec<u8>)> = Vec::new();
    let released = domain.foreign_categories().difference(&class.categories);
    for (tag, set) in [(1, &class.categories), (6, &released)] {
        let Some(map) = below(set) else { continue };
        tags.extend((map.len()..=ROOM).map(|length| {
            let mut map = map.clone();
            map.resize(length, 0);
            (tag, map)
        }));
    }
    tags.push((2, class.categories.iter().flat_map(u16::to_be_bytes).collect()));
    let short = ranges(&class.categories);
    // The last low end is left out where it is 0; it may stand there.
    if !short.len().is_multiple_of(4) {
        tags.push((5, [&short[..], &[0, 0]].concat()));
    }
    tags.push((5, short));
    let head = domain.doi().to_be_bytes();
    let fitting = tags.into_iter().filter(|(_, data)| data.len() <= ROOM);
    Ok(fitting
        .filter_map(|(tag, data)| {
            let length = u8::try_from(data.len()).ok()?;
            Some([&[TYPE, length + 10], &head[..], &[tag, length + 4, 0, class.level], &data].concat())
        })
        .collect())
}

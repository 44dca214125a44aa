//! Errors that say what size passes.

/// Makes the size in an error less, if there is so much of it, and its checksum right (RFC 1624 3).
pub(crate) fn less(checksum: (&mut u8, &mut u8), size: (&mut u8, &mut u8), by: u16) {
    let was = u16::from_be_bytes([*size.0, *size.1]);
    if by == 0 || was <= by {
        return;
    }
    let is = was - by;
    let sum = !u16::from_be_bytes([*checksum.0, *checksum.1]);
    [*checksum.0, *checksum.1] = (!add(add(sum, !was), is)).to_be_bytes();
    [*size.0, *size.1] = is.to_be_bytes();
}

/// In ones' complement.
fn add(one: u16, other: u16) -> u16 {
    let (sum, carried) = one.overflowing_add(other);
    sum.wrapping_add(u16::from(carried))
}

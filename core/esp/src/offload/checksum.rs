//! The Internet checksum (RFC 1071).
//!
//! A sum of 16-bit words in the machine's order, folded at the end, is the sum in network order with its bytes in
//! place, so nothing is swapped here: sums are made of bytes and become bytes.

use crate::DropReason;
use crate::inner::{IpVersion, UDP};

/// A running sum. Each part added must begin at an even offset of what is summed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes, as if followed by a zero when they are odd in number.
    pub(crate) fn add(mut self, bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<64>();
        // Sums apart, so that one addition need not wait for another. At most 2^14 words of 2^32 in a packet: far from
        // overflow.
        let mut sums = [0_u64; 8];
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            for (sum, word) in sums.iter_mut().zip(words) {
                let word = u64::from_ne_bytes(*word);
                *sum += (word & 0xffff_ffff) + (word >> 32);
            }
        }
        self.0 += sums.iter().sum::<u64>();
        let (words, rest) = rest.as_chunks::<4>();
        for word in words {
            self.0 += u64::from(u32::from_ne_bytes(*word));
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.0 += u64::from(u32::from_ne_bytes(last));
        self
    }

    /// Adds bytes as [`Sum::add`] does, and copies them to `to`, which is as long, in the same pass.
    pub(crate) fn add_copying(mut self, to: &mut [u8], bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let (to_words, to_rest) = to.as_chunks_mut::<8>();
        let (mut even, mut odd) = (0_u64, 0_u64);
        for (to, from) in to_words.iter_mut().zip(words) {
            *to = *from;
            let word = u64::from_ne_bytes(*from);
            even += word & 0xffff_ffff;
            odd += word >> 32;
        }
        self.0 += even + odd;
        for (to, from) in to_rest.iter_mut().zip(rest) {
            *to = *from;
        }
        self.add(rest)
    }

    /// The sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// The sum as 16 bits, in the bytes' own order.
    pub(crate) fn folded(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        // Folded: nothing above 16 bits.
        (sum as u16).to_ne_bytes()
    }

    /// The checksum: the complement of the sum.
    pub(crate) fn checksum(self) -> [u8; 2] {
        let [a, b] = self.folded();
        [!a, !b]
    }
}

/// The sum over the pseudo-header (RFC 9293 3.1, RFC 8200 8.1) for `length` bytes of `protocol` in the packet that
/// begins with this IP header.
pub(crate) fn pseudo_header(packet: &[u8], version: IpVersion, protocol: u8, length: usize) -> Sum {
    let addresses = match version {
        IpVersion::V4 => packet.get(12..20),
        IpVersion::V6 => packet.get(8..40),
    };
    // No packet is longer than 65,575 bytes.
    let length = (length as u32).to_be_bytes();
    Sum::default().add(addresses.unwrap_or(&[])).add(&length).add(&[0, 0, 0, protocol])
}

/// Writes the IPv4 header checksum.
pub(crate) fn set_ipv4(packet: &mut [u8], header: usize) {
    if let Some(header) = packet.get_mut(..header) {
        if let Some(field) = header.get_mut(10..12) {
            field.copy_from_slice(&[0, 0]);
        }
        let sum = Sum::default().add(header).checksum();
        if let Some(field) = header.get_mut(10..12) {
            field.copy_from_slice(&sum);
        }
    }
}

/// Completes a checksum that the device left to us: the field at `start + offset` holds the pseudo-header's sum, the
/// checksum covers everything from `start` on (virtio 1.2, 5.1.6.2).
///
/// # Errors
/// [`DropReason::Malformed`] when the field lies outside the packet.
pub fn complete(packet: &mut [u8], start: usize, offset: usize, protocol: u8) -> Result<(), DropReason> {
    let covered = packet.get_mut(start..).ok_or(DropReason::Malformed)?;
    let mut sum = Sum::default().add(covered).checksum();
    // RFC 768: zero says that there is none.
    if protocol == UDP && sum == [0, 0] {
        sum = [0xff, 0xff];
    }
    let end = offset.checked_add(2).ok_or(DropReason::Malformed)?;
    covered.get_mut(offset..end).ok_or(DropReason::Malformed)?.copy_from_slice(&sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_sums_as_it_says() {
        let sum = Sum::default().add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), [0xdd, 0xf2]);
        assert_eq!(sum.checksum(), [0x22, 0x0d]);
        assert_eq!(Sum::default().add(&[0x12, 0x34, 0x56]).folded(), [0x68, 0x34]);
    }

    #[test]
    fn what_is_summed_while_it_is_copied_sums_as_it_does_elsewhere() {
        let bytes: Vec<u8> = (0..200).map(|n: usize| (n * 7 + n / 3) as u8).collect();
        for length in 0..bytes.len() {
            let (from, mut to) = (&bytes[..length], vec![0; length]);
            let sum = Sum::default().add_copying(&mut to, from);
            assert_eq!(to, from);
            assert_eq!(sum.folded(), Sum::default().add(from).folded());
        }
    }

    #[test]
    fn a_sum_is_that_of_its_words_at_every_length() {
        let bytes: Vec<u8> = (0..300).map(|n: usize| (n * 31 + n / 7) as u8).collect();
        for length in 0..bytes.len() {
            let mut plain = 0_u64;
            for pair in bytes[..length].chunks(2) {
                plain += u64::from(u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            }
            assert_eq!(Sum::default().add(&bytes[..length]).folded(), Sum(plain).folded(), "{length}");
        }
    }

    #[test]
    fn parts_sum_as_the_whole_does() {
        let bytes: Vec<u8> = (0..=255).chain(3..200).collect();
        for cut in (0..bytes.len()).step_by(2) {
            let parts = Sum::default().add(&bytes[..cut]).add(&bytes[cut..]);
            assert_eq!(parts.folded(), Sum::default().add(&bytes).folded());
        }
    }
}

//! What was in a datagram.

use std::ops::{Deref, DerefMut};

/// A plaintext, erased when dropped; with all that was in its memory before it was cut to its length.
///
/// As many octets at a time as the processor can: `zeroize` writes one by one, which takes longer than to decrypt them.
pub struct Plain {
    /// Never grows, so that no copy is left behind.
    bytes: Vec<u8>,
    length: usize,
}

impl Plain {
    /// A copy of these octets, to be decrypted in its place.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), length: bytes.len() }
    }

    /// Cuts it to this length, if it is longer.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Takes the last octet off.
    pub(crate) fn pop(&mut self) -> Option<u8> {
        let last = *self.last()?;
        self.length -= 1;
        Some(last)
    }

    fn erase(&mut self) {
        self.bytes.fill(0);
        // What was written may be read here, so it cannot be left out.
        zeroize::optimization_barrier(self.bytes.as_slice());
    }
}

impl Deref for Plain {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl DerefMut for Plain {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.length).unwrap_or_default()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.erase();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_erased_too() {
        let mut plain = Plain::of(&[7; 100]);
        plain.truncate(60);
        assert_eq!((plain.pop(), plain.len(), plain.bytes.len()), (Some(7), 59, 100));
        assert_eq!(plain.bytes.capacity(), 100, "nothing beside it");
        plain.erase();
        assert_eq!(plain.bytes, [0; 100]);
        plain.truncate(0);
        assert_eq!((plain.pop(), plain.len()), (None, 0));
    }

    #[test]
    fn what_is_dropped_is_erased() {
        use std::os::unix::fs::FileExt;
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        // Nothing is allocated behind the drop: it would get that memory.
        let mut found = vec![0; 1 << 14];
        let mut there = |at: usize| {
            let read = memory.read_exact_at(&mut found, at as u64);
            read.map_or(0, |()| found.iter().filter(|octet| **octet == 7).count())
        };
        let plain = Plain::of(&[7; 1 << 14]);
        let at = plain.as_ptr().addr();
        assert_eq!(there(at), 1 << 14);
        drop(plain);
        assert!(there(at) < 1 << 10);
    }
}

//! Memory to send from and receive into.

use std::ops::{Deref, DerefMut};

/// Where a page begins, on every machine that this runs on.
const PAGE: usize = 4_096;

/// Bytes that begin on a page. Some processors copy them faster than others, so a rate must not depend on where an allocator
/// happens to put them (which is 16 bytes behind a page for large ones); iperf3 begins its own on a page, too.
pub(crate) struct Block {
    bytes: Vec<u8>,
    at: usize,
}

impl Block {
    /// So many bytes of this value.
    pub(crate) fn new(value: u8, size: usize) -> Self {
        let bytes = vec![value; size + PAGE];
        let at = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Self { bytes, at }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.at..self.at + self.bytes.len() - PAGE).unwrap_or_default()
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        let size = self.bytes.len() - PAGE;
        self.bytes.get_mut(self.at..self.at + size).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_begins_on_a_page_and_is_as_long_as_was_asked_for() {
        for size in [0, 1, 4_096, 65_536, 131_072, 131_073] {
            let mut block = Block::new(7, size);
            assert_eq!((block.len(), block.as_ptr().addr() % PAGE), (size, 0));
            assert!(block.iter().all(|byte| *byte == 7));
            block.fill(8);
            assert!(block.iter().all(|byte| *byte == 8));
        }
    }
}

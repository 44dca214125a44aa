//! Memory for what is in a message, erased and kept by the thread: to clear 64 KiB for each message costs more than most
//! messages do.

use std::cell::RefCell;

/// The most bytes one message may have.
pub const MAX_MESSAGE: usize = 64 * 1024;

/// So many rooms a thread keeps; a question and its answers on both sides are fewer.
const KEPT: usize = 8;

thread_local! {
    /// Rooms that nobody uses, [`MAX_MESSAGE`] bytes long and all zeros.
    static EMPTY: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// [`MAX_MESSAGE`] bytes, zeros at first. It never grows, for that would leave copies behind, and what was used of it is
/// erased when it is dropped.
pub(crate) struct Room {
    bytes: Vec<u8>,
    /// Behind it there are only zeros.
    used: usize,
}

impl Room {
    /// An empty one.
    pub(crate) fn new() -> Self {
        // Within another call, or when the thread ends, there is none.
        let kept = EMPTY.try_with(|empty| empty.try_borrow_mut().ok()?.pop()).ok().flatten();
        Self { bytes: kept.unwrap_or_else(|| vec![0; MAX_MESSAGE]), used: 0 }
    }

    /// What is in it.
    pub(crate) fn filled(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or(&[])
    }

    /// Puts `bytes` behind what is in it. False, and nothing has changed, if there is no room.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        let end = self.used + bytes.len();
        let Some(place) = self.bytes.get_mut(self.used..end) else { return false };
        place.copy_from_slice(bytes);
        self.used = end;
        true
    }

    /// All of it, for somebody who then says by [`Room::used`] how much it took; until then it counts as full.
    pub(crate) fn all(&mut self) -> &mut [u8] {
        self.used = self.bytes.len();
        &mut self.bytes
    }

    /// Only so much of it is used.
    pub(crate) fn used(&mut self, length: usize) {
        self.used = length.min(self.bytes.len());
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(used) = self.bytes.get_mut(..self.used) {
            erase(used);
        }
        let bytes = std::mem::take(&mut self.bytes);
        // Where it cannot be kept it is freed.
        let _ = EMPTY.try_with(|empty| {
            if let Ok(mut empty) = empty.try_borrow_mut()
                && empty.len() < KEPT
            {
                empty.push(bytes);
            }
        });
    }
}

/// Erases `bytes` as `zeroize` does, but many at a time: that one writes byte by byte, which for packets takes longer than
/// to encrypt them.
pub fn erase(bytes: &mut [u8]) {
    bytes.fill(0);
    // What was written may be read here, so it cannot be left out.
    zeroize::optimization_barrier(bytes);
}

/// Whether all that this thread keeps is zeros, and how many rooms that is.
#[cfg(test)]
pub(crate) fn kept() -> (bool, usize) {
    EMPTY.with_borrow(|empty| (empty.iter().flatten().all(|byte| *byte == 0), empty.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_a_room_is_erased_and_the_room_kept_for_the_next() {
        let mut room = Room::new();
        assert!(room.add(&[1; 100]) && room.add(&[2; 50]) && !room.add(&[3; MAX_MESSAGE - 149]));
        assert_eq!(room.filled(), [[1; 100].as_slice(), &[2; 50]].concat());
        room.all()[MAX_MESSAGE - 1] = 4;
        drop(room);
        assert_eq!(kept(), (true, 1));
        let (one, mut other) = (Room::new(), Room::new());
        assert!(one.filled().is_empty() && other.add(&[5; MAX_MESSAGE]));
        drop((one, other));
        assert_eq!(kept(), (true, 2));
        drop((0..2 * KEPT).map(|_| Room::new()).collect::<Vec<_>>());
        assert_eq!(kept(), (true, KEPT));
    }
}

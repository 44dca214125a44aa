//! Values whose memory is overwritten when they are dropped.
//!
//! Crypto libraries keep expanded keys in plain structs; the first bytes of an expanded AES key are the key. A
//! [`Wiped`] holds such a value on the heap, so that it never moves, and overwrites its bytes when it goes.

use std::fmt;
use std::mem::{ManuallyDrop, size_of};
use std::ops::{Deref, DerefMut};

use zeroize::Zeroize as _;

/// A boxed value whose bytes are overwritten with zeros after it is dropped.
///
/// Only the bytes of `T` itself: what `T` owns elsewhere is for `T`'s own `Drop`.
pub struct Wiped<T>(Box<ManuallyDrop<T>>);

impl<T> Wiped<T> {
    /// Makes the value in place of its final address and then overwrites the stack that `make` used.
    ///
    /// # Errors
    /// Whatever `make` returns.
    pub fn try_new<E>(make: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        let made = Self::build(make);
        scrub_stack();
        made
    }

    // Its own frame, so that the by-value copy lies below the caller's frame, where `scrub_stack` reaches it.
    #[inline(never)]
    fn build<E>(make: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        Ok(Self(Box::new(ManuallyDrop::new(make()?))))
    }
}

/// Overwrites the 16 KiB of stack below the caller, where the frames of calls that have returned lay.
#[inline(never)]
pub fn scrub_stack() {
    let mut area = [0xa5_u8; 16 * 1024];
    std::hint::black_box(&mut area).zeroize();
    std::hint::black_box(&area);
}

impl<T> Deref for Wiped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Wiped<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Wiped<T> {
    fn drop(&mut self) {
        // SAFETY: the value is initialised (built in `build`, never taken out) and dropped here once: `Wiped` is
        // going away and nothing reads the box's content as a `T` after this line.
        unsafe { ManuallyDrop::drop(&mut self.0) };
        let start = (&raw mut *self.0).cast::<u8>();
        for offset in 0..size_of::<T>() {
            // SAFETY: `start` points at the box's own allocation of `size_of::<T>()` bytes, alive until this method
            // returns; writing u8 zeros needs no alignment, and the bytes are never read as a `T` again.
            unsafe { start.add(offset).write_volatile(0) };
        }
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

impl<T> fmt::Debug for Wiped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wiped(..)")
    }
}

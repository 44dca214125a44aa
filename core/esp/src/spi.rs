//! Security parameter indices.

use core::fmt;
use core::num::NonZeroU32;

/// A security parameter index: 32 bits, above 255 (RFC 4303 2.1 reserves 1 to 255 and gives 0 a meaning of its own).
///
/// The receiver chooses it, so that a keyed function of it names the slot of the vault it belongs to ([`crate::Steering`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(NonZeroU32);

impl Spi {
    /// The SPI with this value; `None` for 0 to 255.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(value) if value.get() > 255 => Some(Self(value)),
            _ => None,
        }
    }

    /// The value as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The value as on the wire.
    #[must_use]
    pub const fn to_be_bytes(self) -> [u8; 4] {
        self.0.get().to_be_bytes()
    }

    /// The SPI at the start of a datagram; `None` if it is cut off or reserved.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Option<Self> {
        Self::new(u32::from_be_bytes(*datagram.first_chunk()?))
    }
}

impl fmt::Debug for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spi({:08x})", self.get())
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_values_are_no_spis() {
        assert!((0..=255).all(|value| Spi::new(value).is_none()));
        assert_eq!(Spi::new(256).unwrap().get(), 256);
        assert_eq!(Spi::of(&[0, 0, 1]), None);
        assert_eq!(Spi::of(&[0xff, 0xff, 0xff, 0xff, 9]).unwrap().get(), u32::MAX);
    }
}

//! Each tunnel's own addresses on the server's loopback interface, so that keyer and vaults tell one workstation from another.

use crate::carried::Flow;
use std::net::Ipv4Addr;

/// 127.64.0.0, the first of 4,194,304: four for each place.
const FIRST: u32 = 0x7f40_0000;
/// How many places there are.
const PLACES: u32 = 1 << 20;

/// A tunnel's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u32);

impl Place {
    /// The address that a flow of the tunnel at this place has.
    pub fn address(self, flow: Flow) -> Ipv4Addr {
        Ipv4Addr::from(FIRST | self.0 << 2 | u32::from(flow.number()))
    }

    /// Whose address it is.
    pub fn of(address: Ipv4Addr) -> Option<(Self, Flow)> {
        let offset = u32::from(address).checked_sub(FIRST)?;
        let (place, [.., low]) = (offset >> 2, offset.to_be_bytes());
        (place < PLACES).then_some((Self(place), Flow::new(low & 3)))
    }
}

/// Hands them out, each again as late as can be: whoever knew the last tunnel at a place may go on for a while.
#[derive(Debug, Default)]
pub struct Places {
    next: u32,
}

impl Places {
    /// A place that nobody has, as `taken` says; there are far more than tunnels.
    pub fn take(&mut self, taken: impl Fn(Place) -> bool) -> Option<Place> {
        let all = (0..PLACES).map(|step| Place((self.next.wrapping_add(step)) % PLACES));
        let place = all.into_iter().find(|place| !taken(*place))?;
        self.next = (place.0 + 1) % PLACES;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_one_places_and_one_flows() {
        for place in [0, 1, 70_000, PLACES - 1].map(Place) {
            for flow in (0..4).map(Flow::new) {
                assert_eq!(Place::of(place.address(flow)), Some((place, flow)));
            }
        }
        for foreign in ["127.0.0.1", "127.63.255.255", "127.128.0.0", "10.0.0.1"] {
            assert_eq!(Place::of(foreign.parse().unwrap()), None, "{foreign}");
        }
    }

    #[test]
    fn a_place_that_is_free_again_is_the_last_to_be_taken() {
        let mut places = Places::default();
        assert_eq!(places.take(|_| false), Some(Place(0)));
        assert_eq!(places.take(|_| false), Some(Place(1)));
        assert_eq!(places.take(|place| place == Place(2)), Some(Place(3)));
        places.next = PLACES - 1;
        assert_eq!(places.take(|_| false), Some(Place(PLACES - 1)));
        assert_eq!(places.take(|_| false), Some(Place(0)));
        assert_eq!(places.take(|_| true), None);
    }
}

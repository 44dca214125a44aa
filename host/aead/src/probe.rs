//! Which library is faster on this processor, by measuring.

use std::time::{Duration, Instant};

use levee_esp::{AeadProvider, NONCE, Suite};

use crate::Library;

/// What a packet costs with each library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The library.
    pub library: Library,
    /// The shortest time seen for sealing and opening one packet of 1,400 bytes.
    pub packet: Duration,
}

const ROUNDS: usize = 64;
const PACKET: usize = 1_400;

/// Seals and opens some packets with a fixed key; about 0.1 ms.
///
/// # Errors
/// `None` when the library fails its own packets: it must not be used.
#[must_use]
pub fn measure(library: Library, suite: Suite) -> Option<Probe> {
    let key = [0x42; 32];
    let key = library.key(suite, key.get(..suite.key_length())?).ok()?;
    let mut buffer = [0x17_u8; PACKET + levee_esp::TAG];
    let mut packet = Duration::MAX;
    for round in 0..ROUNDS {
        let mut nonce = [0_u8; NONCE];
        *nonce.last_mut()? = u8::try_from(round).ok()?;
        let start = Instant::now();
        let (text, tag) = buffer.split_last_chunk_mut::<{ levee_esp::TAG }>()?;
        *tag = key.seal_in_place(&nonce, &[1; 8], text).ok()?;
        let length = key.open_within(&nonce, &[1; 8], &mut buffer, 0).ok()?;
        packet = packet.min(start.elapsed());
        if length != PACKET || buffer.iter().take(PACKET).any(|&byte| byte != 0x17) {
            return None;
        }
    }
    Some(Probe { library, packet })
}

/// The faster library for this suite on this processor; `None` when both fail.
#[must_use]
pub fn fastest(suite: Suite) -> Option<Library> {
    let probes = Library::ALL.into_iter().filter_map(|library| measure(library, suite));
    probes.min_by_key(|probe| probe.packet).map(|probe| probe.library)
}

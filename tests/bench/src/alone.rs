//! What the AEAD alone takes for a stream: the limit of any vault's processor time.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use levee_esp::{AeadProvider as _, NONCE, Suite, TAG};
use rustix::time::{ClockId, clock_gettime};

use crate::arms::MTU;

/// Octets of a packet of the inner MTU that are no payload: IPv4, and TCP with timestamps.
const HEADERS: usize = 20 + 32;
/// What ESP authenticates besides: the SPI and a sequence number of 64 bits.
const AAD: [u8; 12] = [0; 12];
/// Octets of padding and trailer (RFC 4303 2.4) that are sealed with such a packet.
const TRAILER: usize = 4;
/// Packets between two looks at the clock.
const PACKETS: u32 = 10_000;
const LEAST: f64 = 1.0;

/// Seals and opens packets as a stream's are, by one thread and the library that vaults choose here. Its processor seconds per GB of
/// payload, and what it would carry if it had one processor.
///
/// # Errors
/// The library's.
pub fn measure() -> io::Result<BTreeMap<String, f64>> {
    let failed = |_| io::Error::other("the AEAD failed");
    let suite = Suite::Aes256Gcm;
    let library = levee_aead::fastest(suite).ok_or_else(|| io::Error::other("there is no AEAD"))?;
    let key = library.key(suite, &vec![7; suite.key_length()]).map_err(failed)?;
    let length = usize::from(MTU) + TRAILER;
    let mut packet = vec![0_u8; length + TAG];
    let (mut count, mut nonce, before) = (0_u32, [0_u8; NONCE], now());
    let spent = loop {
        for _ in 0..PACKETS {
            count += 1;
            nonce[8..].copy_from_slice(&count.to_be_bytes());
            let tag = key.seal_in_place(&nonce, &AAD, &mut packet[..length]).map_err(failed)?;
            packet[length..].copy_from_slice(&tag);
            let opened = key.open_within(&nonce, &AAD, &mut packet, 0).map_err(failed)?;
            assert_eq!(opened, length);
        }
        let spent = now().saturating_sub(before).as_secs_f64();
        if spent >= LEAST {
            break spent;
        }
    };
    let gigabytes = f64::from(count) * (usize::from(MTU) - HEADERS) as f64 / 1e9;
    Ok(BTreeMap::from([
        ("gbit".to_owned(), gigabytes * 8.0 / spent),
        ("host_cpu".to_owned(), spent / gigabytes),
        ("tunnel_cpu".to_owned(), spent / gigabytes),
    ]))
}

/// Processor time of this thread.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

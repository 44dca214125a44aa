//! A dropped key is nowhere in this process's memory. Alone in its file, so that no other test's memory is searched.

use std::io::{Read, Seek, SeekFrom};

use levee_aead::Library;
use levee_esp::{AeadProvider, NONCE, Suite};

/// How often the first 16 bytes of the key, here kept masked, occur in writable memory.
fn occurrences(masked: &[u8; 16], mask: u8, buffer: &mut [u8]) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    let own = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + buffer.len() as u64;
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let (mut at, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        while at < to {
            let length = buffer.len().min((to - at) as usize);
            memory.seek(SeekFrom::Start(at)).unwrap();
            if memory.read_exact(&mut buffer[..length]).is_ok() {
                let hit = |w: &[u8]| w.iter().zip(masked).all(|(a, b)| *a == b ^ mask);
                let hits = buffer[..length].windows(16).enumerate().filter(|(_, w)| hit(w));
                found += hits.filter(|(n, _)| !own.contains(&(at + *n as u64))).count();
            }
            at += if length == buffer.len() { length as u64 - 15 } else { length as u64 };
        }
    }
    buffer.fill(0);
    found
}

#[test]
fn a_dropped_key_is_nowhere_in_memory() {
    const MASK: u8 = 0x5a;
    let mut buffer = vec![0_u8; 1 << 16];
    for library in Library::ALL {
        for (n, suite) in Suite::ALL.into_iter().enumerate() {
            let mut masked = [0_u8; 16];
            for (m, byte) in masked.iter_mut().enumerate() {
                *byte = (m as u8).wrapping_mul(37) ^ (n as u8 * 16 + library as u8 * 5 + 3);
            }
            let key = {
                let mut raw = vec![0_u8; suite.key_length()];
                raw.iter_mut().zip(masked.iter().cycle()).for_each(|(to, from)| *to = from ^ MASK);
                let key = library.key(suite, &raw).unwrap();
                raw.fill(0);
                std::hint::black_box(&raw);
                key
            };
            let mut text = [1, 2, 3];
            key.seal_in_place(&[0; NONCE], &[], &mut text).unwrap();
            let what = format!("{} {suite:?}", library.name());
            assert!(occurrences(&masked, MASK, &mut buffer) > 0, "{what}: a live key is somewhere");
            drop(key);
            assert_eq!(occurrences(&masked, MASK, &mut buffer), 0, "{what}");
        }
    }
}

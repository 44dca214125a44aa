//! A dropped secret is nowhere in this process's memory.

use std::io::{Read, Seek, SeekFrom};

use levee_sys::wipe::Wiped;

/// How often `needle` XOR `mask` occurs in writable memory of this process, but for the buffer it is read through.
fn occurrences(needle: &[u8; 32], mask: u8) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    let mut buffer = vec![0_u8; 1 << 16];
    let own = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + buffer.len() as u64;
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut at = from;
        while at < to {
            let length = buffer.len().min((to - at) as usize);
            memory.seek(SeekFrom::Start(at)).unwrap();
            if memory.read_exact(&mut buffer[..length]).is_ok() {
                let hit = |w: &[u8]| w.iter().zip(needle).all(|(a, b)| *a == b ^ mask);
                let hits = buffer[..length].windows(32).enumerate().filter(|(_, w)| hit(w));
                found += hits.filter(|(n, _)| !own.contains(&(at + *n as u64))).count();
            }
            // Overlapping, so that nothing hides on a boundary; the secret is 8-aligned, so nothing counts twice.
            at += if length == buffer.len() { length as u64 - 24 } else { length as u64 };
        }
    }
    found
}

#[test]
fn a_wiped_value_is_in_memory_while_it_lives_and_nowhere_after() {
    // The search pattern itself is kept masked, so that it does not find itself.
    let mut masked = [0_u8; 32];
    for (n, byte) in masked.iter_mut().enumerate() {
        *byte = (n as u8).wrapping_mul(37).wrapping_add(std::process::id() as u8) ^ 0x5a;
    }
    let secret: Wiped<[u8; 32]> = Wiped::try_new(|| Ok::<_, ()>(masked.map(|b| b ^ 0x5a))).unwrap();
    assert!(std::hint::black_box(&secret).iter().any(|&b| b != 0));
    assert_eq!(occurrences(&masked, 0x5a), 1);
    drop(secret);
    assert_eq!(occurrences(&masked, 0x5a), 0);
}

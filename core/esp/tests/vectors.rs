//! Published packets.

use levee_aead::Library;
use levee_esp::{Decrypted, DropReason, InboundSa, SaKeys, Spi, Suite};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// RFC 7634, appendix A: an ICMP echo in tunnel mode.
#[test]
fn the_esp_packet_of_rfc_7634_opens() {
    let material = hex("80818283 84858687 88898a8b 8c8d8e8f 90919293 94959697 98999a9b 9c9d9e9f a0a1a2a3");
    let source = hex("45000054 a6f20000 4001e778 c6336405 c0000205 08005b7a 3a080000 553bec10
         00073627 08090a0b 0c0d0e0f 10111213 14151617 18191a1b 1c1d1e1f 20212223
         24252627 28292a2b 2c2d2e2f 30313233 34353637");
    let packet = hex("01020304 00000005 10111213 14151617
         24039428 b97f417e 3c13753a 4f05087b 67c352e6 a7fab1b9 82d466ef 407ae5c6
         14ee8099 d52844eb 61aa95df ab4c02f7 2aa71e7c 4c4f64c9 befe2fac c638e8f3
         cbec163f ac469b50 2773f6fb 94e664da 9165b828 29f641e0
         76aaa826 6b7fb0f7 b11b3699 07e1ad43");
    for library in Library::ALL {
        let keys = SaKeys::new(Suite::ChaCha20Poly1305, &material).unwrap();
        let spi = Spi::of(&packet).unwrap();
        let mut sa = InboundSa::new(spi, &keys, false, &library).unwrap();
        // Behind a gap, as in an aggregate.
        for gap in [0, 10] {
            let mut buffer = [vec![0; gap], packet.clone()].concat();
            let opened = sa.open(&mut buffer, gap);
            if gap == 0 {
                assert_eq!(opened, Ok(Decrypted { length: source.len(), next_header: 4, newest: true }));
                assert_eq!(buffer[..source.len()], source[..]);
            } else {
                assert_eq!(opened, Err(DropReason::Replay));
            }
        }
    }
}

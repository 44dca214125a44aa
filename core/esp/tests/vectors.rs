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
                assert_eq!(
                    opened,
                    Ok(Decrypted { length: source.len(), next_header: 4, sequence: 5, newest: true })
                );
                assert_eq!(buffer[..source.len()], source[..]);
            } else {
                assert_eq!(opened, Err(DropReason::Replay));
            }
        }
    }
}

/// draft-mcgrew-gcm-test-01: AES-128-GCM with 32-bit sequence numbers.
#[test]
fn the_aes_gcm_esp_packet_of_draft_mcgrew_gcm_test_opens() {
    let material = hex("feffe992 8665731c 6d6a8f94 67308308 cafebabe");
    let source = hex("4500003e 698f0000 80114dcc c0a80102 c0a80101 0a980035 002a2343 b2d00100
         00010000 00000000 03736970 09637962 65726369 74790264 6b000001 0001");
    let packet = hex("0000a5f8 0000000a facedbad decaf888
         deb22cd9 b07c72c1 6e3a65be eb8df304 a5a5897d 33ae530f 1ba76d5d 114d2a5c
         3de81827 c10e9a4f 51330d0e ec416642 cfbb85a5 b47e48a4 ec3b9ba9 5d918bd1
         83b70d3a a8bc6ee4 c309e9d8 5a41ad4a");
    for library in Library::ALL {
        let keys = SaKeys::new(Suite::Aes128Gcm, &material).unwrap();
        let mut sa = InboundSa::new(Spi::of(&packet).unwrap(), &keys, false, &library).unwrap();
        let mut buffer = packet.clone();
        let opened = sa.open(&mut buffer, 0);
        assert_eq!(
            opened,
            Ok(Decrypted { length: source.len(), next_header: 1, sequence: 10, newest: true })
        );
        assert_eq!(buffer[..source.len()], source[..]);
    }
}

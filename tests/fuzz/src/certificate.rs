//! What IKE, the tps child and sessiond read of certificates: names, the extension with a host's accreditation, authorities and lists,
//! and the passport that stands behind a device's chain.
//!
//! Input: a byte that says which, then the octets.

#[path = "../../../daemons/keyer/src/accreditation.rs"]
pub mod accreditation;

use levee_ike::{TrustAnchors, dns_names};
use levee_ipc::device::Sealed;

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&which, octets)) = input.split_first() else { return };
    match which {
        0 => {
            for name in dns_names(octets) {
                assert!(name.len() <= octets.len());
            }
        }
        1 => drop(TrustAnchors::new(&[octets.to_vec()], &[])),
        2 => drop(TrustAnchors::new(&[], &[octets.to_vec()])),
        3 => {
            let Some(text) = accreditation::read(octets) else { return };
            // DER has one form of each length (X.690 10.1).
            assert_eq!(accreditation_of(&text), octets);
            let longer = [octets, &[0]].concat();
            assert_eq!(accreditation::read(&longer), None, "an octet more");
        }
        _ => {
            let Some(sealed) = Sealed::from_text(octets) else { return };
            let text = sealed.to_text().expect("what was read can be written");
            assert_eq!(Sealed::from_text(text.as_bytes()), Some(sealed));
        }
    }
}

/// X.690 8.1.3, for up to 65,535 octets.
fn accreditation_of(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("short");
    let [high, low] = length.to_be_bytes();
    let head = match length {
        0..=0x7f => vec![0x0c, low],
        0x80..=0xff => vec![0x0c, 0x81, low],
        _ => vec![0x0c, 0x82, high, low],
    };
    [head, text.as_bytes().to_vec()].concat()
}

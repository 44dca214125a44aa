//! What one server of a site says to the others, as it lies in etcd, where anybody with a key may have written it: an envelope, the
//! passport in it, and the statement that is signed.
//!
//! Input: a byte that says which, then the octets. What is read has one spelling and is read to the last octet, within its bounds.

use levee_ipc::federation::{
    ENVELOPE, Envelope, PAGES, PEERS, Passport, Sealed, Setting, Signed, Statement, Word,
};
use levee_policy::site::Placed;
use levee_session::InForce;

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&which, octets)) = input.split_first() else { return };
    match which {
        0 => {
            let Some(statement) = Statement::decode(octets) else { return };
            assert!(statement.words.len() <= PEERS && statement.pages.len() <= PAGES);
            assert_eq!(statement.encode(), octets, "it has one spelling");
            ends_where_it_ends(octets, |octets| Statement::decode(octets).is_some());
        }
        1 => {
            let Some(envelope) = Envelope::decode(octets) else { return };
            assert!(octets.len() <= ENVELOPE);
            let own = envelope.encode().expect("what was read can be written");
            assert_eq!(Envelope::decode(&own), Some(envelope.clone()));
            ends_where_it_ends(octets, |octets| Envelope::decode(octets).is_some());
            if let Some(message) = envelope.sealed.passport.message() {
                assert!(message.len() < octets.len() + 64, "what the authority signs is what is there");
            }
        }
        _ => {
            let Some(sealed) = Sealed::from_text(octets) else { return };
            let text = sealed.to_text().expect("what was read can be written");
            assert_eq!(Sealed::from_text(text.as_bytes()), Some(sealed));
        }
    }
}

/// No octet more, and none less.
fn ends_where_it_ends(octets: &[u8], is_read: impl Fn(&[u8]) -> bool) {
    let shorter = octets.split_last().map(|(_, shorter)| shorter);
    assert!(shorter.is_none_or(|shorter| !is_read(shorter)), "an octet less");
    let longer = [octets, &[0]].concat();
    assert!(!is_read(&longer), "an octet more");
}

/// What a server says, in each of the three forms.
pub fn honest() -> [(&'static str, Vec<u8>); 3] {
    let server = |name: &str| name.parse().expect("a name");
    let word = Word { server: server("two.example"), epoch: 7, heard: 300, granted: 299, done: 12 };
    let labels = Some(vec!["SECRET".parse().expect("a range")]);
    let placed = [Some("siege".parse().expect("a name")), None]
        .map(|posture| Placed { posture, labels: labels.clone() });
    let in_force = placed.map(|what| InForce { what, until: None }).to_vec();
    let setting = Setting { number: 3, at: Some(server("two.example")), in_force };
    let statement = Statement {
        site: "harbour".parse().expect("a name"),
        server: server("one.example"),
        epoch: 1_700_000_000,
        number: 41,
        words: vec![word],
        pages: vec![[1; 32], [0; 32]],
        setting,
        is_kept: true,
        signed: Some(Signed { count: 9, hash: [3; 32], signature: vec![4; 64] }),
        postures: [2; 32],
    };
    let curve = levee_ipc::device::Curve::P256;
    let (server, serial) = (server("one.example"), vec![0x41; 16]);
    let passport = Passport { server, serial, not_after: 1_900_000_000, curve, point: vec![4; 65] };
    let sealed = Sealed { passport, signature: vec![48; 70] };
    let envelope =
        Envelope { sealed: sealed.clone(), statement: statement.encode(), signature: vec![48; 71] };
    let which = |which: u8, octets: &[u8]| [&[which], octets].concat();
    [
        ("statement", which(0, &statement.encode())),
        ("envelope", which(1, &envelope.encode().expect("short"))),
        ("passport", which(2, sealed.to_text().expect("short").as_bytes())),
    ]
}

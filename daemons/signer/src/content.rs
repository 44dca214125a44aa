//! What may be signed: each thing is checked to be of its kind to the last byte, so that no signature made for
//! one purpose can be shown for another.

use levee_ipc::device::proof_message;
use levee_ipc::federation::Statement;
use levee_ipc::signer::{ToSigner, Use};
use levee_ipc::warden::Place;
use levee_policy::audit;

/// RFC 8446 4.4.3: 64 octets 0x20 come first.
const TLS_PADDING: [u8; 64] = [0x20; 64];
const TLS_SERVER: &[u8] = b"TLS 1.3, server CertificateVerify";
const TLS_CLIENT: &[u8] = b"TLS 1.3, client CertificateVerify";
/// The most bytes of an IKE_AUTH octets string: a message of at most 60,000 bytes, a nonce, a MAC.
const MAX_IKE: usize = 61_000;
/// The least: a header of 28 bytes (RFC 7296 3.1), a nonce of 16, a MAC of 16.
const MIN_IKE: usize = 28 + 16 + 16;

/// Exactly the bytes that are to be signed. There is no other way to make one than [`check`], [`checkpoint`] and [`statement`].
pub struct Content(Vec<u8>);

impl Content {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Takes a request on a channel of this use, at this place; `None` unless it is a thing to be signed there.
pub fn check(request: ToSigner, channel: Use, place: Place) -> Option<Content> {
    match (channel, request) {
        (Use::Tls, ToSigner::TlsVerify(bytes)) => tls(bytes, place),
        // As a client, with a key that no trusted path believes.
        (Use::Federation, ToSigner::TlsVerify(bytes)) => tls(bytes, Place::Workstation),
        (Use::Tls, ToSigner::DeviceProof { server, nonce, exporter }) if place == Place::Workstation => {
            Some(Content(proof_message(&server, &nonce, &exporter)))
        }
        (Use::Ike, ToSigner::IkeAuth(bytes)) => ike(bytes),
        _ => None,
    }
}

/// A checkpoint over what the signer itself has chained.
pub fn checkpoint(chain: &audit::Chain) -> Content {
    Content(audit::checkpoint_message(chain.count, &chain.hash))
}

/// What this server says to the others of its site.
pub fn statement(statement: &Statement) -> Content {
    Content(Statement::message(&statement.encode()))
}

/// RFC 8446 4.4.3: padding, context string, a zero byte, the hash of the transcript (SHA-256 or SHA-384). A
/// server signs as a server and a workstation as a client, never the other way.
fn tls(bytes: Vec<u8>, place: Place) -> Option<Content> {
    let context = match place {
        Place::Server => TLS_SERVER,
        Place::Workstation => TLS_CLIENT,
    };
    let hash = bytes.strip_prefix(&TLS_PADDING)?.strip_prefix(context)?.strip_prefix(&[0])?;
    matches!(hash.len(), 32 | 48).then_some(Content(bytes))
}

/// RFC 7296 2.15: a whole IKE message, a nonce and a MAC. Its first eight bytes are a random SPI, so it cannot
/// be taken for one of the other kinds unless somebody means it to; then it is refused.
fn ike(bytes: Vec<u8>) -> Option<Content> {
    // Checkpoints, proofs of which device this is, what servers say to each other.
    let other = bytes.starts_with(&TLS_PADDING[..8]) || bytes.starts_with(b"levee ");
    let zero_spi = bytes.starts_with(&[0; 8]);
    ((MIN_IKE..=MAX_IKE).contains(&bytes.len()) && !other && !zero_spi).then_some(Content(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What begins a signed audit checkpoint ([`audit::checkpoint_message`]).
    const CHECKPOINT: &[u8] = b"levee audit checkpoint\0";

    fn verify(context: &[u8], hash: usize) -> Vec<u8> {
        [&[0x20; 64][..], context, &[0], &vec![7; hash]].concat()
    }

    fn signed(request: ToSigner, channel: Use, place: Place) -> bool {
        check(request, channel, place).is_some()
    }

    #[test]
    fn a_server_signs_server_handshakes_and_a_workstation_client_handshakes() {
        for hash in [32, 48] {
            let server = || ToSigner::TlsVerify(verify(TLS_SERVER, hash));
            let client = || ToSigner::TlsVerify(verify(TLS_CLIENT, hash));
            assert!(signed(server(), Use::Tls, Place::Server));
            assert!(signed(client(), Use::Tls, Place::Workstation));
            assert!(!signed(client(), Use::Tls, Place::Server));
            assert!(!signed(server(), Use::Tls, Place::Workstation));
        }
    }

    #[test]
    fn anything_but_a_whole_certificate_verify_is_refused() {
        let good = verify(TLS_SERVER, 32);
        for bad in [
            verify(TLS_SERVER, 31),
            verify(TLS_SERVER, 33),
            verify(TLS_SERVER, 64),
            verify(TLS_SERVER, 0),
            good[1..].to_vec(),
            good[..good.len() - 1].to_vec(),
            [&good[..], b"x"].concat(),
            Vec::new(),
        ] {
            assert!(!signed(ToSigner::TlsVerify(bad), Use::Tls, Place::Server));
        }
        for at in 0..=64 + TLS_SERVER.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(!signed(ToSigner::TlsVerify(bad), Use::Tls, Place::Server), "byte {at}");
        }
    }

    #[test]
    fn a_request_of_another_use_than_its_channels_is_refused() {
        let requests = [|| ToSigner::TlsVerify(verify(TLS_SERVER, 32)), || ToSigner::IkeAuth(vec![9; 400])];
        let uses = [Use::Tls, Use::Ike];
        for (i, request) in requests.iter().enumerate() {
            for (j, channel) in uses.iter().enumerate() {
                assert_eq!(signed(request(), *channel, Place::Server), i == j, "{i} on {channel:?}");
            }
        }
        assert!(!signed(ToSigner::Join, Use::Tls, Place::Server));
        for request in requests {
            assert!(!signed(request(), Use::Audit, Place::Server));
        }
        assert!(!signed(requests[1](), Use::Federation, Place::Server));
        for channel in [Use::Tls, Use::Ike, Use::Federation, Use::Audit] {
            assert!(
                !signed(ToSigner::AuditCheckpoint, channel, Place::Server),
                "of no words but the signer's own"
            );
        }
    }

    #[test]
    fn the_key_for_etcd_signs_as_a_client_alone() {
        let request = |context| ToSigner::TlsVerify(verify(context, 32));
        assert!(signed(request(TLS_CLIENT), Use::Federation, Place::Server));
        assert!(!signed(request(TLS_SERVER), Use::Federation, Place::Server));
    }

    #[test]
    fn which_device_this_is_is_signed_on_a_workstation_for_the_trusted_path_alone() {
        let server = levee_policy::DomainName::new("server.example").unwrap();
        let proof =
            || ToSigner::DeviceProof { server: server.clone(), nonce: [0x20; 32], exporter: [0x20; 32] };
        assert!(signed(proof(), Use::Tls, Place::Workstation));
        assert!(!signed(proof(), Use::Tls, Place::Server));
        for channel in [Use::Ike, Use::Audit, Use::Federation] {
            assert!(!signed(proof(), channel, Place::Workstation), "{channel:?}");
        }
        let content = check(proof(), Use::Tls, Place::Workstation).unwrap();
        assert!(tls(content.bytes().to_vec(), Place::Workstation).is_none(), "and is no handshake");
    }

    #[test]
    fn a_checkpoint_begins_as_nothing_else_does() {
        assert!(audit::checkpoint_message(7, &audit::Hash([1; 32])).starts_with(CHECKPOINT));
    }

    #[test]
    fn an_ike_octets_string_that_could_be_taken_for_another_kind_is_refused() {
        let mut tls = verify(TLS_SERVER, 32);
        tls.resize(400, 1);
        assert!(!signed(ToSigner::IkeAuth(tls), Use::Ike, Place::Server));
        let mut checkpoint = CHECKPOINT.to_vec();
        checkpoint.resize(400, 1);
        assert!(!signed(ToSigner::IkeAuth(checkpoint), Use::Ike, Place::Server));
        assert!(!signed(ToSigner::IkeAuth(vec![9; MIN_IKE - 1]), Use::Ike, Place::Server));
        assert!(!signed(ToSigner::IkeAuth(vec![9; MAX_IKE + 1]), Use::Ike, Place::Server));
    }
    #[test]
    fn an_ike_octets_string_has_an_spi_and_as_many_octets_as_one_can_have() {
        let string = |length: usize, first: u8| {
            let mut octets = vec![9; length];
            octets[..8].fill(0);
            octets[7] = first;
            ToSigner::IkeAuth(octets)
        };
        for length in [MIN_IKE, MAX_IKE] {
            assert!(signed(string(length, 1), Use::Ike, Place::Server), "{length}");
            assert!(!signed(string(length, 0), Use::Ike, Place::Server), "{length} without an SPI");
        }
    }

    #[test]
    fn what_is_signed_is_what_was_asked_for_to_the_last_octet() {
        let (handshake, octets) = (verify(TLS_CLIENT, 32), vec![9; 400]);
        let bytes = |request, channel| check(request, channel, Place::Workstation).unwrap().bytes().to_vec();
        assert_eq!(bytes(ToSigner::TlsVerify(handshake.clone()), Use::Tls), handshake);
        assert_eq!(bytes(ToSigner::IkeAuth(octets.clone()), Use::Ike), octets);
        let chain = audit::Chain { count: 7, hash: audit::Hash([1; 32]) };
        assert_eq!(checkpoint(&chain).bytes(), audit::checkpoint_message(7, &chain.hash));
    }
}

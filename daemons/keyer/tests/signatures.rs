//! What peers of other makes sign with (RFC 7427): what is announced is taken, and what is not is named to the operator.

mod world;

use levee_ike::{Childless, Event, Identity, IkeProposal, SignatureScheme};
use levee_ipc::warden::Place;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
use world::*;

fn established(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::IkeEstablished { .. }))
}

#[test]
fn a_key_on_p256_signs_with_each_hash_that_is_announced() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    // libreswan's default for ECDSA begins with SHA2-512, whatever the curve.
    for scheme in
        [SignatureScheme::EcdsaP256Sha256, SignatureScheme::EcdsaP256Sha384, SignatureScheme::EcdsaP256Sha512]
    {
        let host = authority.identity("ws1", Some(RANGE));
        let id = Identity::Fqdn("ws1".into());
        let config = Client::config(&authority, &host, id, Childless::Allow);
        let mut client = Client::signing(config, &host, server.group.address(), scheme);
        client.connect("SECRET");
        client.until(&format!("an IKE SA by {scheme:?}"), established);
    }
}

#[test]
fn an_algorithm_that_does_not_fit_is_named_in_what_the_operator_is_told() {
    let authority = Authority::on(&PKCS_ECDSA_P384_SHA384);
    let server =
        Keyer::with(Place::Server, &authority, authority.identity(SERVER, None), &["--suites", "cnsa"]);
    // SHA2-384 is announced, for keys on P-384.
    let others = authority.vouching(&PKCS_ECDSA_P256_SHA256);
    let host = others.identity("ws1", Some(RANGE));
    let mut config = Client::config(&others, &host, Identity::Fqdn("ws1".into()), Childless::Allow);
    config.ike = vec![IkeProposal::cnsa(vec![])];
    let scheme = SignatureScheme::EcdsaP256Sha384;
    let mut client = Client::signing(config, &host, server.group.address(), scheme);
    client.connect("SECRET");
    client.until("a refusal", |events| events.iter().any(|e| matches!(e, Event::IkeClosed { .. })));
    server.counts("the peer signs with ECDSA with SHA-384, which is not accepted or does not fit its key");
}

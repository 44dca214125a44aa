//! Whose certificate is believed, and for how long.

use super::*;

#[test]
fn a_tunnel_ends_with_the_certificate_of_either_end() {
    for of_server in [true, false] {
        let mut authority = Authority::new();
        let soon = Some(std::time::SystemTime::now() + Duration::from_secs(6));
        authority.until = soon.filter(|_| of_server);
        let server = authority.server();
        authority.until = soon.filter(|_| !of_server);
        let client = authority.client("ws1");
        let mut world = two(server, client);
        world.connect(1);
        let news = world.run(Duration::from_secs(4));
        assert_eq!((ups(&news, 0).len(), ups(&news, 1).len()), (1, 1), "{news:?}");
        let over = |(_, one): &(usize, News)| matches!(one, News::Gone(..));
        assert!(!news.iter().any(over), "{news:?}");
        let news = world.run(Duration::from_secs(4));
        let why = |at: usize| {
            news.iter().find_map(|(end, one)| match one {
                News::Gone(_, why) if *end == at => Some(why.as_str()),
                _ => None,
            })
        };
        let end = usize::from(of_server);
        assert_eq!(why(end), Some("the certificate of its other end has run out"));
        assert!(why(1 - end).is_some(), "{news:?}");
    }
}

/// Of a certificate, by which two tunnels are one workstation's, there is one spelling.
#[test]
fn a_certificate_that_is_spelled_otherwise_is_none() {
    let authority = Authority::new();
    let (chain, key) = authority.pems("ws1", ExtendedKeyUsagePurpose::ClientAuth, &PKCS_ED25519);
    let der = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    let length = der.strip_prefix(&[0x30, 0x82]).expect("more than 255 octets").to_vec();
    for (der, passes) in [
        (der.to_vec(), true),
        ([&der[..], &[0]].concat(), false),
        ([&[0x30, 0x83, 0][..], &length].concat(), false),
        ([&[0x30, 0x80][..], &length[2..], &[0, 0]].concat(), false),
    ] {
        let chain = format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", base64(&der));
        let own = Own::read(chain.as_bytes(), key.as_bytes()).unwrap();
        let client = Quic::client(own, Believed::server(authority.pem.as_bytes(), SERVER).unwrap()).unwrap();
        let mut world = two(authority.server(), client);
        world.connect(1);
        assert_eq!(ups(&world.run(Duration::from_secs(2)), 0).len(), usize::from(passes), "{der:02x?}");
    }
}

#[test]
fn while_one_authority_follows_another_certificates_of_both_are_believed() {
    let (old, new) = (Authority::new(), Authority::named("the next"));
    let both = format!("{}{}", new.pem, old.pem);
    for (servers, clients) in [(&old, &new), (&new, &old)] {
        let own = servers.leaf(SERVER, ExtendedKeyUsagePurpose::ServerAuth, &PKCS_ED25519);
        let server = Quic::server(own, Believed::clients(both.as_bytes()).unwrap()).unwrap();
        let own = clients.leaf("ws1", ExtendedKeyUsagePurpose::ClientAuth, &PKCS_ED25519);
        let client = Quic::client(own, Believed::server(both.as_bytes(), SERVER).unwrap()).unwrap();
        let mut world = two(server, client);
        world.connect(1);
        let news = world.run(Duration::from_secs(2));
        assert_eq!(ups(&news, 0).len(), 1, "{news:?}");
    }
    assert!(Believed::clients(b"no certificate").is_err());
}

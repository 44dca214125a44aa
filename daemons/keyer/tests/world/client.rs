//! A client that is not levee's, and how sessiond has keys agreed.

use super::*;

/// The curves that a site has which says nothing.
pub const ALL: [Exchange; 3] = [Exchange::X25519, Exchange::P256, Exchange::P384];

/// How sessiond has keys agreed: by any cipher, for any time.
pub fn keying(curves: &[Exchange], ml_kem: bool) -> Keying {
    let ciphers = vec![Cipher::Aes256Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];
    Keying { ciphers, exchanges: Exchanges { curves: curves.to_vec(), ml_kem }, key_life: None }
}

/// A client that is not levee's: it has a host's certificate, and says that it is whoever it likes.
pub struct Client {
    endpoint: Endpoint,
    socket: UdpSocket,
    path: Path,
    key: EcdsaKeyPair,
    /// It asks for AGGFRAG payloads, and grants them.
    pub aggfrag: bool,
    /// It hears what it is answered, and nothing that it is asked.
    pub deaf: bool,
    /// What it signs with instead.
    by: Option<(SignatureScheme, p256::ecdsa::SigningKey)>,
    began: Instant,
    spi: u32,
    pub events: Vec<Event>,
}

pub struct Kernel(SystemRandom);

impl Kernel {
    pub fn new() -> Self {
        Self(SystemRandom::new())
    }
}

impl Random for Kernel {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out).unwrap();
    }
}

impl Identity {
    /// The certificate.
    pub fn der(&self) -> Vec<u8> {
        CertificateDer::from_pem_slice(self.chain.as_bytes()).unwrap().to_vec()
    }
}

impl Authority {
    /// A certificate of this name for somebody's public key, in DER.
    pub fn of_a_key(&self, name: &str, key: &impl rcgen::PublicKeyData) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
        params.signed_by(key, &self.issuer).unwrap().der().to_vec()
    }
}

impl Client {
    /// A client at a loopback port of its own.
    pub fn new(
        authority: &Authority,
        identity: &Identity,
        id: levee_ike::Identity,
        server: SocketAddr,
        childless: Childless,
    ) -> Self {
        let config = Self::config(authority, identity, id, childless);
        Self::with(config, identity, server)
    }

    /// What [`Client::new`] begins with, to be changed.
    pub fn config(
        authority: &Authority,
        identity: &Identity,
        id: levee_ike::Identity,
        childless: Childless,
    ) -> Config {
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
        let anchors = TrustAnchors::new(&[der(&authority.pem)], &[]).unwrap();
        let peer = Peer {
            local_id: id,
            remote_id: RemoteId::Exactly(levee_ike::Identity::Fqdn(SERVER.into())),
            local_auth: LocalAuth::Certificate {
                schemes: vec![SignatureScheme::of_certificate(&der(&identity.chain)).unwrap()],
                chain: vec![der(&identity.chain)],
            },
            remote_auth: RemoteAuth::Certificate {
                anchors: Arc::new(anchors),
                schemes: SignatureScheme::DEFAULT.to_vec(),
            },
            childless,
            ppk: None,
        };
        Config::new(vec![peer])
    }

    /// A stranger, whom no authority of the site knows. It shows nine authorities of its own, each of which may have vouched for each other,
    /// and none of which anybody has vouched for.
    pub fn tangled(authority: &Authority, server: SocketAddr) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "nobody");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let nobody = || {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            Authority { pem, issuer: Issuer::new(params.clone(), key), kind: &PKCS_ECDSA_P256_SHA256 }
        };
        let (identity, between) = (nobody().identity("ws1", Some(RANGE)), [(); 9].map(|()| nobody().pem));
        let id = levee_ike::Identity::Fqdn("ws1".into());
        let mut config = Self::config(authority, &identity, id, Childless::Allow);
        if let LocalAuth::Certificate { chain, .. } = &mut config.peers[0].local_auth {
            chain.extend(
                between.iter().map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()),
            );
        }
        Self::with(config, &identity, server)
    }

    /// A client at a loopback port of its own, with this configuration.
    pub fn with(config: Config, identity: &Identity, server: SocketAddr) -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        Self {
            endpoint: Endpoint::new(config),
            path: Path { local: socket.local_addr().unwrap(), remote: server, marker: true },
            socket,
            key: ecdsa(&identity.key),
            by: None,
            aggfrag: false,
            deaf: false,
            began: Instant::now(),
            spi: 256,
            events: Vec::new(),
        }
    }

    /// As [`Client::with`], but it signs so, with its key on P-256.
    pub fn signing(
        mut config: Config,
        identity: &Identity,
        server: SocketAddr,
        scheme: SignatureScheme,
    ) -> Self {
        for peer in &mut config.peers {
            if let LocalAuth::Certificate { schemes, .. } = &mut peer.local_auth {
                *schemes = vec![scheme];
            }
        }
        let secret = p256::SecretKey::from_pkcs8_der(&identity.key).unwrap();
        Self { by: Some((scheme, secret.into())), ..Self::with(config, identity, server) }
    }

    fn sign(&self, octets: &[u8]) -> Vec<u8> {
        let Some((scheme, key)) = &self.by else {
            return self.key.sign(&SystemRandom::new(), octets).unwrap().as_ref().to_vec();
        };
        let hash = match scheme {
            SignatureScheme::EcdsaP256Sha256 => &SHA256,
            SignatureScheme::EcdsaP256Sha384 => &SHA384,
            SignatureScheme::EcdsaP256Sha512 => &SHA512,
            other => panic!("{other:?}"),
        };
        let hash = digest(hash, octets);
        let signature: p256::ecdsa::Signature = key.sign_prehash(hash.as_ref()).unwrap();
        signature.to_der().as_bytes().to_vec()
    }

    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Now { monotonic: self.began.elapsed(), unix_seconds: unix }
    }

    fn command(&mut self, command: Command) {
        let now = self.now();
        self.endpoint.command(command, now, &mut Kernel(SystemRandom::new())).unwrap();
    }

    fn everything() -> Vec<Selector> {
        vec![Selector::subnet([0, 0, 0, 0].into(), 0).unwrap()]
    }

    fn child(&mut self, at: &str) -> NewChild {
        self.spi += 1;
        NewChild {
            spi: self.spi,
            label: Some(SecurityLabel::new(at.as_bytes()).unwrap()),
            local: Self::everything(),
            remote: Self::everything(),
            want_address: false,
            resource: None,
            aggfrag: self.aggfrag,
        }
    }

    /// The IKE SA that it has.
    fn ike(&self) -> IkeId {
        let established = |event: &Event| match event {
            Event::IkeEstablished { ike, .. } => Some(*ike),
            _ => None,
        };
        self.events.iter().find_map(established).unwrap()
    }

    /// Asks for a child at this label, of the IKE SA that it has.
    pub fn ask(&mut self, at: &str) {
        let (ike, child) = (self.ike(), self.child(at));
        self.command(Command::CreateChild { ike, child });
    }

    /// Replaces the IKE SA's keys by what the client itself prefers of these.
    pub fn rekey_ike(&mut self, proposals: Vec<IkeProposal>) {
        let ike = self.ike();
        self.command(Command::NarrowIke { ike, proposals: Some(proposals) });
        self.command(Command::RekeyIke { ike });
    }

    /// Begins an IKE SA with a child at this label.
    pub fn connect(&mut self, at: &str) {
        let child = self.child(at);
        let now = self.now();
        self.endpoint
            .connect(0, self.path, None, Some(child), now, &mut Kernel(SystemRandom::new()))
            .unwrap();
    }

    /// Begins an IKE SA alone.
    pub fn connect_without_child(&mut self) {
        let now = self.now();
        self.endpoint.connect(0, self.path, None, None, now, &mut Kernel(SystemRandom::new())).unwrap();
    }

    /// Sends what there is to be sent, and hears nothing.
    pub fn say(&mut self) {
        let now = self.now();
        loop {
            match self.endpoint.poll(now, &mut Kernel(SystemRandom::new())) {
                Output::Transmit { path, datagram } => drop(self.socket.send_to(&datagram, path.remote)),
                Output::Event(event) => self.events.push(event),
                Output::Wait(_) => return,
            }
        }
    }

    /// Goes on until this holds. Whatever the server asks for is granted.
    pub fn until(&mut self, what: &str, done: impl Fn(&[Event]) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 65_535];
        loop {
            let now = self.now();
            match self.endpoint.poll(now, &mut Kernel(SystemRandom::new())) {
                Output::Transmit { path, datagram } => {
                    self.socket.send_to(&datagram, path.remote).unwrap();
                }
                Output::Event(Event::Sign { request, octets, .. }) => {
                    let signature = Some(self.sign(&octets));
                    self.command(Command::Signed { request, signature });
                }
                Output::Event(Event::ChildRequested(asked)) => {
                    self.spi += 1;
                    let decision = ChildDecision::Accept {
                        spi: self.spi,
                        label: asked.labels.first().cloned(),
                        local: Self::everything(),
                        remote: Self::everything(),
                        assign: Vec::new(),
                        resource: None,
                        aggfrag: self.aggfrag,
                    };
                    self.command(Command::Decide { request: asked.request, decision });
                }
                Output::Event(event) => self.events.push(event),
                Output::Wait(_) if done(&self.events) => return,
                Output::Wait(_) => {
                    assert!(Instant::now() < end, "waiting in vain: {what}\n{:?}", self.events);
                    if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
                        let (now, path) = (self.now(), Path { remote: from, ..self.path });
                        let datagram = buffer.get(..length).unwrap();
                        // RFC 7296 3.1: the R bit, behind the non-ESP marker.
                        if self.deaf && datagram[4 + 19] & 0x20 == 0 {
                            continue;
                        }
                        self.endpoint.handle(datagram, path, now, &mut Kernel(SystemRandom::new()));
                    }
                }
            }
        }
    }
}

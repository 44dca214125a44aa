//! TLS within QUIC (RFC 9001): between quinn-proto and rustls, whose own pieces for it are tied to other libraries.

use super::keys::retry_tag;
use super::{Believed, Own, PROTOCOL, initial, provider};
use bytes::BytesMut;
use quinn_proto::crypto::{
    self, ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, ServerConfig,
    Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::quic::{self, Connection, HeaderProtectionKey, KeyChange, PacketKey, Secrets, Suite, Version};
use rustls_pki_types::{CertificateDer, ServerName};
use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;

/// The only version (RFC 9000 15).
pub const VERSION: u32 = 1;

/// The server's part.
pub struct ServerTls {
    config: Arc<rustls::ServerConfig>,
    initial: Suite,
}

impl ServerTls {
    /// Takes clients that it believes.
    ///
    /// # Errors
    /// What of it cannot be used, in words.
    pub fn new(own: Own, clients: Believed) -> Result<Self, String> {
        let provider = provider();
        let own = own.certified(&provider)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| e.to_string())?
            .with_client_cert_verifier(Arc::new(clients))
            .with_cert_resolver(own);
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Every connection proves again who it is.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), initial: initial()? })
    }
}

/// The client's part.
pub struct Client {
    config: Arc<rustls::ClientConfig>,
    initial: Suite,
}

impl Client {
    /// Believes this server.
    ///
    /// # Errors
    /// What of it cannot be used, in words.
    pub fn new(own: Own, server: Believed) -> Result<Self, String> {
        let provider = provider();
        let own = own.certified(&provider)?;
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(server))
            .with_client_cert_resolver(own);
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self { config: Arc::new(config), initial: initial()? })
    }
}

fn known(version: u32) -> Result<Version, UnsupportedVersion> {
    if version == VERSION { Ok(Version::V1) } else { Err(UnsupportedVersion) }
}

fn written(parameters: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    parameters.write(&mut bytes);
    bytes
}

impl ClientConfig for Client {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let bad = || ConnectError::InvalidServerName(name.into());
        let server = ServerName::try_from(name).map_err(|_| bad())?.to_owned();
        let client = quic::ClientConnection::new(
            Arc::clone(&self.config),
            known(version)?,
            server,
            written(parameters),
        );
        let inner = Connection::Client(client.map_err(|_| bad())?);
        Ok(Box::new(Tls {
            inner: Some(inner),
            told: false,
            next: None,
            replaced: 0,
            initial: self.initial,
            side: Side::Client,
        }))
    }
}

impl ServerConfig for ServerTls {
    fn initial_keys(&self, version: u32, to: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        known(version).map(|_| initial_keys(&self.initial, to, Side::Server))
    }

    fn retry_tag(&self, _: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        // One that is wrong is dropped by its receiver.
        retry_tag(original, &[packet]).unwrap_or_default()
    }

    fn start_session(self: Arc<Self>, _: u32, parameters: &TransportParameters) -> Box<dyn Session> {
        let server = quic::ServerConnection::new(Arc::clone(&self.config), Version::V1, written(parameters));
        let inner = server.ok().map(Connection::Server);
        Box::new(Tls {
            inner,
            told: false,
            next: None,
            replaced: 0,
            initial: self.initial,
            side: Side::Server,
        })
    }
}

/// TLS of one connection.
struct Tls {
    /// `None` where it could not begin: it fails with its first octet.
    inner: Option<Connection>,
    told: bool,
    next: Option<Secrets>,
    /// Keys that were made in the place of others.
    replaced: u64,
    initial: Suite,
    side: Side,
}

impl Session for Tls {
    fn initial_keys(&self, to: &ConnectionId, side: Side) -> Keys {
        initial_keys(&self.initial, to, side)
    }

    /// How often keys were replaced, which is asked for nowhere else.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.replaced))
    }

    /// The other end's certificate, in DER.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let certificates = self.inner.as_ref()?.peer_certificates()?;
        let first: &CertificateDer<'_> = certificates.first()?;
        Some(Box::new(first.to_vec()))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn crypto::PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        (self.side == Side::Client).then_some(false)
    }

    fn is_handshaking(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_handshaking())
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let broken = |code, reason: String| TransportError { code, frame: None, reason };
        let internal = TransportErrorCode::crypto(80);
        let Some(inner) = &mut self.inner else {
            return Err(broken(internal, "TLS did not begin".to_owned()));
        };
        if let Err(why) = inner.read_hs(bytes) {
            let code = inner.alert().map_or(internal, |alert| TransportErrorCode::crypto(alert.into()));
            return Err(broken(code, why.to_string()));
        }
        let tells = !self.told && !inner.is_handshaking();
        self.told |= tells;
        Ok(tells)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = self.inner.as_ref().and_then(|inner| inner.quic_transport_parameters()) else {
            return Ok(None);
        };
        Ok(Some(TransportParameters::read(self.side, &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, buffer: &mut Vec<u8>) -> Option<Keys> {
        match self.inner.as_mut()?.write_hs(buffer)? {
            KeyChange::Handshake { keys } => Some(pairs(keys)),
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                Some(pairs(keys))
            }
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn crypto::PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        self.replaced = self.replaced.saturating_add(1);
        Some(KeyPair { local: Box::new(Packets(keys.local)), remote: Box::new(Packets(keys.remote)) })
    }

    fn is_valid_retry(&self, original: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(length) = payload.len().checked_sub(16) else { return false };
        let (token, tag) = payload.split_at(length);
        retry_tag(original, &[header, token]).is_some_and(|expected| expected == tag)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let inner = self.inner.as_ref().ok_or(ExportKeyingMaterialError)?;
        inner
            .export_keying_material(output, label, Some(context))
            .map(|_| ())
            .map_err(|_| ExportKeyingMaterialError)
    }
}

fn initial_keys(suite: &Suite, to: &ConnectionId, side: Side) -> Keys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    pairs(suite.keys(to, side, Version::V1))
}

fn pairs(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(Headers(keys.local.header)),
            remote: Box::new(Headers(keys.remote.header)),
        },
        packet: KeyPair {
            local: Box::new(Packets(keys.local.packet)),
            remote: Box::new(Packets(keys.remote.packet)),
        },
    }
}

/// Packet protection (RFC 9001 5.3).
struct Packets(Box<dyn PacketKey>);

impl crypto::PacketKey for Packets {
    fn encrypt(&self, number: u64, packet: &mut [u8], header: usize) {
        let end = packet.len().saturating_sub(self.0.tag_len());
        let Some((before, tag_place)) = packet.split_at_mut_checked(end) else { return };
        let Some((header, payload)) = before.split_at_mut_checked(header) else { return };
        match self.0.encrypt_in_place(number, header, payload) {
            Ok(tag) if tag.as_ref().len() == tag_place.len() => tag_place.copy_from_slice(tag.as_ref()),
            // It leaves as nothing, and not in the clear.
            _ => payload.fill(0),
        }
    }

    fn decrypt(&self, number: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        let plain = self.0.decrypt_in_place(number, header, payload.as_mut()).map_err(|_| CryptoError)?;
        let length = plain.len();
        payload.truncate(length);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// Header protection (RFC 9001 5.4).
struct Headers(Box<dyn HeaderProtectionKey>);

impl Headers {
    /// The sample, the first octet, and the packet number as far as it may reach.
    fn parts<'a>(&self, at: usize, packet: &'a mut [u8]) -> Option<(&'a [u8], &'a mut u8, &'a mut [u8])> {
        let (header, rest) = packet.split_at_mut_checked(at.checked_add(4)?)?;
        let (first, header) = header.split_first_mut()?;
        Some((rest.get(..self.0.sample_len())?, first, header.get_mut(at.checked_sub(1)?..)?))
    }
}

impl HeaderKey for Headers {
    fn decrypt(&self, at: usize, packet: &mut [u8]) {
        if let Some((sample, first, number)) = self.parts(at, packet) {
            // What stays as it was is not opened.
            let _ = self.0.decrypt_in_place(sample, first, number);
        }
    }

    fn encrypt(&self, at: usize, packet: &mut [u8]) {
        if let Some((sample, first, number)) = self.parts(at, packet) {
            // What stays as it was is not opened at the other end.
            let _ = self.0.encrypt_in_place(sample, first, number);
        }
    }

    fn sample_size(&self) -> usize {
        self.0.sample_len()
    }
}

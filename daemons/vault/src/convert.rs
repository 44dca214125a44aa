//! From messages to the types of `levee-esp`, which cannot be wrong.

use levee_esp::aggfrag::Aggregation;
use levee_esp::{
    AddressRange, Install, InstallError, Outer, PairView, PortRange, SaKeys, Selector, SelectorSet,
    SessionPolicy, Spi, Suite,
};
use levee_ipc::vault::{self, Carriage, Cipher, Refusal, SaReport, SessionRecord};
use levee_session::SessionId;

/// The policy of a session that goes by this socket alone, or by any; `None` when a row makes no sense, which then must not be read as
/// any other.
pub fn policy(record: SessionRecord, only: Option<usize>) -> Option<SessionPolicy> {
    let rows = record.selectors.iter().map(selector).collect::<Option<Vec<_>>>()?;
    Some(SessionPolicy { inner: record.inner, selectors: SelectorSet::new(rows), only })
}

fn selector(row: &vault::Selector) -> Option<Selector> {
    Some(Selector {
        local: AddressRange::prefix(row.local.addr(), row.local.prefix_len())?,
        remote: AddressRange::prefix(row.remote.addr(), row.remote.prefix_len())?,
        protocol: row.protocol,
        local_ports: PortRange::new(row.local_ports.0, row.local_ports.1)?,
        remote_ports: PortRange::new(row.remote_ports.0, row.remote_ports.1)?,
    })
}

fn suite(cipher: Cipher) -> Suite {
    match cipher {
        Cipher::Aes128Gcm => Suite::Aes128Gcm,
        Cipher::Aes256Gcm => Suite::Aes256Gcm,
        Cipher::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
    }
}

/// The pair in an install message; the message's own copy of the keys is erased with it.
///
/// # Errors
/// What to tell the keyer.
pub fn install(
    session: SessionId,
    cipher: Cipher,
    extended: bool,
    [inbound, outbound]: [&vault::Sa; 2],
    answered: bool,
    peer: Option<Outer>,
    aggregation: Option<vault::Aggregation>,
) -> Result<Install<SessionId>, Refusal> {
    let half = |sa: &vault::Sa| {
        let spi = Spi::new(sa.spi).ok_or(Refusal::Spi)?;
        let keys = SaKeys::new(suite(cipher), sa.keying_material.expose()).ok_or(Refusal::KeyLength)?;
        Ok((spi, keys))
    };
    let aggregation = aggregation.map(|vault::Aggregation { packet, interval, fragment }| Aggregation {
        packet,
        interval,
        fragment,
    });
    let (inbound, outbound) = (half(inbound)?, half(outbound)?);
    Ok(Install { session, extended, inbound, outbound, answered, peer, aggregation })
}

/// Why the pair was not taken, in the keyer's terms.
pub fn refusal(error: InstallError) -> Refusal {
    match error {
        InstallError::NoSession => Refusal::NoSession,
        InstallError::SpiInUse => Refusal::SpiInUse,
        InstallError::Keys => Refusal::KeyLength,
        InstallError::Full => Refusal::Full,
        InstallError::Aggregation => Refusal::Aggregation,
        InstallError::Outside => Refusal::Outside,
    }
}

/// One row of a report.
pub fn report(pair: PairView<SessionId>) -> SaReport {
    SaReport {
        session: pair.session,
        inbound_spi: pair.inbound.get(),
        outbound_spi: pair.outbound.get(),
        cipher: match pair.suite {
            Suite::Aes128Gcm => Cipher::Aes128Gcm,
            Suite::Aes256Gcm => Cipher::Aes256Gcm,
            Suite::ChaCha20Poly1305 => Cipher::ChaCha20Poly1305,
        },
        carriage: match pair.aggregation.map(|aggregation| aggregation.interval) {
            None => Carriage::Each,
            Some(None) => Carriage::Aggfrag,
            Some(Some(interval)) => Carriage::Constant { interval },
        },
        peer: pair.peer,
        packets: pair.packets,
        bytes: pair.bytes,
    }
}

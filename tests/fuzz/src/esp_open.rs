//! Any datagrams into a vault's database whose cipher is transparent, so that what lies behind the tag is reached.
//!
//! Input: a byte of options, then datagrams, each behind a byte with a quarter of its length.

use std::time::Duration;

use levee_esp::{
    AddressRange, Aead, AeadError, AeadProvider, Direction, DropReason, Install, NONCE, Outer, PortRange,
    SaKeys, Sad, Selector, SelectorSet, SessionPolicy, Side, Spi, Suite, TAG, Verdict,
};

/// No cipher, and a tag that is never asked for.
struct Clear;

impl Aead for Clear {
    fn seal_in_place(&self, _: &[u8; NONCE], _: &[u8], _: &mut [u8]) -> Result<[u8; TAG], AeadError> {
        Ok([0; TAG])
    }

    fn open_within(
        &self,
        _: &[u8; NONCE],
        _: &[u8],
        buffer: &mut [u8],
        from: usize,
    ) -> Result<usize, AeadError> {
        let end = buffer.len().checked_sub(TAG).filter(|end| from <= *end).ok_or(AeadError)?;
        buffer.copy_within(from..end, 0);
        Ok(end - from)
    }
}

impl AeadProvider for Clear {
    fn name(&self) -> &'static str {
        "clear"
    }

    fn key(&self, _: Suite, _: &[u8]) -> Result<Box<dyn Aead>, AeadError> {
        Ok(Box::new(Clear))
    }
}

const SPI: u32 = 0x0010_0001;

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&options, mut rest)) = input.split_first() else { return };
    let any = |address: &str| AddressRange::prefix(address.parse().unwrap(), 0).unwrap();
    let selector = |family: &str| Selector {
        local: any(family),
        remote: any(family),
        protocol: (options & 1 != 0).then_some(6),
        local_ports: if options & 2 != 0 { PortRange::only(80) } else { PortRange::ANY },
        remote_ports: PortRange::ANY,
    };
    let selectors = SelectorSet::new(vec![selector("0.0.0.0"), selector("::")]);
    let inner = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
    let side = if options & 4 != 0 { Side::Server } else { Side::Workstation };
    let mut sad: Sad<u8> = Sad::new(side);
    sad.open_session(1, SessionPolicy { inner: inner.clone(), selectors: selectors.clone(), only: None })
        .unwrap();
    let keys = || SaKeys::new(Suite::Aes128Gcm, &[0; 20]).unwrap();
    let spi = Spi::new(SPI).unwrap();
    let install = Install {
        session: 1,
        extended: options & 8 != 0,
        inbound: (spi, keys()),
        outbound: (spi, keys()),
        answered: false,
        peer: None,
        aggregation: None,
    };
    sad.install(Duration::ZERO, install, &Clear).unwrap();

    let mut total = 0;
    while let Some((&length, tail)) = rest.split_first() {
        let (datagram, tail) = tail.split_at(tail.len().min(usize::from(length) * 4));
        rest = tail;
        let mut buffer = vec![0xcc; usize::from(options >> 4)];
        let from = buffer.len();
        buffer.extend(datagram);
        if options & 0x80 == 0 && datagram.len() >= 4 {
            buffer[from..from + 4].copy_from_slice(&SPI.to_be_bytes());
        }
        let sender = Outer { address: "192.0.2.1:4500".parse().unwrap(), socket: 0 };
        total += 1;
        if let Ok(opened) = sad.open(Duration::from_secs(1), &mut buffer, from, sender, length & 3) {
            assert!(opened.inner.length <= buffer.len());
            assert_ne!(selectors.verdict(&opened.inner, Direction::In), Verdict::No);
            let own = if side == Side::Server { opened.inner.source } else { opened.inner.destination };
            assert!(inner.contains(&own));
        }
        let dropped: u64 = DropReason::ALL.iter().map(|reason| sad.counters.dropped(*reason)).sum();
        assert_eq!(sad.counters.packets_in + dropped, total);
    }
}

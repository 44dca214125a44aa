use core::time::Duration;
use std::vec::Vec;

use super::*;
use crate::sa::tests::InClear;
use crate::sa::{ASK_AT_32, ESP_HEADER, sealed_length};
use crate::{AddressRange, PortRange, Selector};

const NOW: Duration = Duration::from_secs(100);

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn spi(session: u32) -> Spi {
    Spi::new(0x1_0000 + session).unwrap()
}

/// A workstation's database with sessions 1 and 2, a pair each that has sent so many packets.
fn after(sequence: u64, aggregation: Option<Aggregation>) -> Sad<u32> {
    let mut sad = Sad::new(Side::Workstation);
    for id in 1..=2_u32 {
        let own = address(id as u8);
        let selector = Selector {
            local: AddressRange::prefix(own, 32).unwrap(),
            remote: AddressRange::prefix(address(9), 32).unwrap(),
            protocol: None,
            local_ports: PortRange::ANY,
            remote_ports: PortRange::ANY,
        };
        let selectors = SelectorSet::new(vec![selector]);
        sad.open_session(id, SessionPolicy { inner: vec![own], selectors, only: None }).unwrap();
        let keys = || SaKeys::new(Suite::Aes128Gcm, &[1; 20]).unwrap();
        let peer = Some(Outer { address: SocketAddr::from(([192, 0, 2, 1], 4_500)), socket: 0 });
        let (inbound, outbound) = ((spi(id), keys()), (spi(id), keys()));
        let pair =
            Install { session: id, extended: false, inbound, outbound, answered: false, peer, aggregation };
        sad.install(NOW, pair, &InClear).unwrap();
    }
    sad.pairs.iter_mut().flatten().for_each(|pair| pair.outbound.after(sequence));
    sad
}

fn packet(from: u8, content: usize) -> Vec<u8> {
    let [high, low] = (20 + content as u16).to_be_bytes();
    let mut packet = vec![0x45, 0, high, low, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, from, 10, 0, 0, 9];
    packet.resize(20 + content, 0xaa);
    packet
}

/// Sends one; whether it left.
fn send(sad: &mut Sad<u32>, from: u8) -> Result<(), DropReason> {
    let packet = packet(from, 4);
    let Route::Through(mut lane) = sad.route(NOW, &Inner::parse(&packet)?)? else {
        panic!("there is a pair")
    };
    let mut buffer = vec![0; sealed_length(packet.len())];
    buffer[ESP_HEADER..][..packet.len()].copy_from_slice(&packet);
    lane.seal(&mut buffer, packet.len()).map(drop)
}

#[test]
fn a_pair_near_its_last_number_is_named_once_and_not_when_it_is_gone() {
    let mut sad = after(ASK_AT_32 - 2, None);
    assert_eq!(send(&mut sad, 1), Ok(()));
    assert_eq!(sad.next_expiring(), None);
    assert_eq!((send(&mut sad, 1), send(&mut sad, 1)), (Ok(()), Ok(())));
    assert_eq!((sad.next_expiring(), sad.next_expiring()), (Some((spi(1), 1)), None));
    let mut sad = after(ASK_AT_32 - 1, None);
    assert_eq!((send(&mut sad, 1), send(&mut sad, 2)), (Ok(()), Ok(())));
    assert_eq!(sad.delete(spi(2)), Some(2));
    assert_eq!((sad.next_expiring(), sad.next_expiring()), (Some((spi(1), 1)), None));
}

#[test]
fn what_gathered_and_cannot_be_sealed_any_more_is_erased_and_counted() {
    let gather = |sad: &mut Sad<u32>| {
        let packet = packet(1, 1_000);
        let write = |place: &mut [u8]| {
            place.copy_from_slice(&packet);
            true
        };
        sad.gather(NOW, 1, packet.len(), write).unwrap();
        let mut buffer = vec![0; 2_000];
        let sent = sad.next_gathered(NOW, true, &mut buffer).map(|one| one.session);
        (sent, buffer.contains(&0xaa))
    };
    let plain = Some(Aggregation { packet: 1_400, interval: None, fragment: true });
    let mut sad = after(ASK_AT_32 - 1, plain);
    assert_eq!(gather(&mut sad), (Some(1), true), "(what is sealed without a cipher can be seen)");
    assert_eq!((sad.next_expiring(), sad.next_expiring()), (Some((spi(1), 1)), None));
    let mut sad = after(u64::from(u32::MAX), plain);
    assert_eq!(gather(&mut sad), (None, false));
    assert_eq!(sad.counters.dropped(DropReason::SequenceExhausted), 1);
}

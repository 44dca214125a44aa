//! levee: the second IPsec stack of a label whose stacks must agree.
//!
//! Another library (aws-lc-rs) and packet code written a second time (`levee-second`). It has the label's keys, which the
//! gate passes on from the keyer, one channel to the gate and one to the warden: all it can do is answer.
//!
//! It may not have a device, a socket or another way out. Begin reading with `core/second`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use levee_aead::Library;
use levee_daemon::tunnel::{self, Stack};
use levee_daemon::{Fatal, run};
use levee_ipc::agree::{self, FromStack, Items, ToStack};
use levee_ipc::vault::{Cipher, Refusal, Sa, Selector, SessionRecord};
use levee_second::{Half, Refused, Row, Second};
use levee_session::SessionId;

/// The library of the second stack; the first one has the other.
const LIBRARY: Library = Library::AwsLc;

fn main() -> ExitCode {
    run("levee-witness", tunnel::answer::<Witness>)
}

struct Witness(Second<SessionId>);

impl Stack for Witness {
    fn new() -> Self {
        Self(Second::new())
    }

    fn answer(&mut self, question: ToStack) -> Result<FromStack, Fatal> {
        answer(&mut self.0, question)
    }
}

fn answer(second: &mut Second<SessionId>, question: ToStack) -> Result<FromStack, Fatal> {
    Ok(match question {
        ToStack::Open(SessionRecord { id, inner, selectors, .. }) => {
            let rows = selectors.into_iter().map(row).collect();
            FromStack::Taken(second.open_session(id, inner, rows))
        }
        ToStack::Close(id) => {
            second.close_session(id);
            FromStack::Taken(true)
        }
        ToStack::Install { now: _, session, cipher, esn, inbound, outbound, answered: _, peer } => {
            let suite = match cipher {
                Cipher::Aes128Gcm => levee_esp::Suite::Aes128Gcm,
                Cipher::Aes256Gcm => levee_esp::Suite::Aes256Gcm,
                Cipher::ChaCha20Poly1305 => levee_esp::Suite::ChaCha20Poly1305,
            };
            let (inbound, outbound) = (half(&inbound), half(&outbound));
            let taken = second.install(session, suite, esn, inbound, outbound, peer.map(outer_of), &LIBRARY);
            FromStack::Installed(taken.map_err(|refused| match refused {
                Refused::NoSession => Refusal::NoSession,
                Refused::Spi => Refusal::Spi,
                Refused::SpiInUse => Refusal::SpiInUse,
                Refused::Keys => Refusal::KeyLength,
            }))
        }
        ToStack::Delete { spi } => {
            second.delete(spi);
            FromStack::Taken(true)
        }
        ToStack::Datagrams { now, datagrams } => {
            let mut packets = Items::new();
            for (from, datagram) in datagrams.iter() {
                let packet = second.open(now, datagram, outer_of(from.outer), from.ecn);
                if !packets.add((), packet.as_deref().unwrap_or_default()) {
                    return Err(Fatal::new("answer the gate", "the answer is too large"));
                }
            }
            FromStack::Opened(packets)
        }
        ToStack::Check { now, packets, sealed } => {
            let mut verdicts = Items::new();
            for (((), packet), (to, datagram)) in packets.iter().zip(sealed.iter()) {
                let agrees = second.agrees(now, packet, datagram, outer_of(to.outer), to.ecn);
                if !verdicts.add(agrees, &[]) {
                    return Err(Fatal::new("answer the gate", "the answer is too large"));
                }
            }
            FromStack::Agreed(verdicts)
        }
        ToStack::Packets { .. } | ToStack::Retire { .. } | ToStack::Report => {
            return Err(Fatal::new("answer the gate", "this is the second stack"));
        }
    })
}

fn row(selector: Selector) -> Row {
    let Selector { local, remote, protocol, local_ports, remote_ports } = selector;
    Row { local, remote, protocol, local_ports, remote_ports }
}

fn half(sa: &Sa) -> Half<'_> {
    Half { spi: sa.spi, material: sa.keying_material.expose() }
}

fn outer_of(outer: agree::Outer) -> levee_second::Outer {
    levee_second::Outer { address: outer.address, socket: outer.socket }
}

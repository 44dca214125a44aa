//! One end of a data channel of WebRTC's (RFC 8831: SCTP in DTLS in UDP, between addresses that ICE has tried), which carries the IP packets of a TUN
//! device: a message for each, in any order, sent once. The stack is another's (str0m, with OpenSSL), as the other tunnels of the layers study are.
//!
//! What the two ends must know of each other before, which a web page's server would tell them, is in two files.
//!
//! It is a program of its own because levee's laboratory, which compartments run too, has no OpenSSL in it. It may not be in a tunnel of levee's,
//! and is trusted with nothing but the laboratory's packets. Begin reading with `carry`.
#![forbid(unsafe_code)]

use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io, thread};
use str0m::channel::{ChannelConfig, ChannelId, Reliability};
use str0m::crypto::from_feature_flags;
use str0m::ice::IceCreds;
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, IceConnectionState, Input, Output, Rtc};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Datagrams of a link with packets of 1,500 octets.
const DATAGRAM: usize = 1_472;
/// Octets of the largest IP packet that goes in one datagram, by what str0m keeps free for DTLS and SCTP.
const FITS: u16 = 1_384;
/// Octets that may be under way: a link of 1 Gbit/s and 40 ms there and back.
const UNDER_WAY: usize = 5 << 20;
/// Packets, or datagrams, that are taken before the other side is looked at.
const BURST: usize = 64;
/// Octets of the socket's queues.
const QUEUE: usize = 4 << 20;
/// How long the other end is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// One end of a data channel of WebRTC's that carries the IP packets of a TUN device (the laboratory starts it)
#[derive(Debug, Parser)]
#[command(version)]
struct Ask {
    /// The TUN device to make
    #[arg(long)]
    device: String,
    /// Where it receives
    #[arg(long)]
    own: SocketAddr,
    /// Where the other end does
    #[arg(long)]
    far: SocketAddr,
    /// The file in which it says who it is
    #[arg(long)]
    says: PathBuf,
    /// The other end's
    #[arg(long)]
    hears: PathBuf,
    /// It makes the offer (one of the two does)
    #[arg(long)]
    offers: bool,
}

/// What one end says of itself: as in an offer or an answer of SDP (RFC 8839, RFC 8122), without the rest of it.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    user: String,
    password: String,
    fingerprint: String,
}

/// Any error of the stack's.
fn refused(why: impl ToString) -> io::Error {
    io::Error::other(why.to_string())
}

/// Carries packets until the other end is gone for longer than ICE waits, or this process is ended.
///
/// # Errors
/// A device or a socket that cannot be had; what the stack says; the other end is gone.
fn carry(ask: &Ask) -> io::Result<()> {
    let socket = UdpSocket::bind(ask.own)?;
    socket.set_nonblocking(true)?;
    // As root it would get them; whoever is refused has smaller ones, and the report shows what was lost.
    let queues = socket2::SockRef::from(&socket);
    let _ = (queues.set_recv_buffer_size(QUEUE), queues.set_send_buffer_size(QUEUE));
    let device = DeviceBuilder::new().name(&ask.device).layer(Layer::L3).mtu(FITS).build_sync()?;
    device.set_nonblocking(true)?;
    let (rtc, channel) = agree(ask)?;
    End { rtc, channel, socket, device, own: ask.own, is_open: false, waits: None }.run()
}

/// Tells the other end what it must know, and hears it.
fn agree(ask: &Ask) -> io::Result<(Rtc, ChannelId)> {
    let library = Arc::new(from_feature_flags());
    let mut rtc = Rtc::builder()
        .set_crypto_provider(library)
        .set_mtu(DATAGRAM..=usize::MAX)
        .set_sctp_max_buffered_amount(UNDER_WAY)
        .build(Instant::now());
    let host = |at| Candidate::host(at, "udp").map_err(refused);
    rtc.add_local_candidate(host(ask.own)?).ok_or_else(|| refused("ICE does not take its own address"))?;
    let own = rtc.direct_api().local_ice_credentials();
    let fingerprint = rtc.direct_api().local_dtls_fingerprint().to_string();
    let said = serde_json::to_vec(&Said { user: own.ufrag, password: own.pass, fingerprint })?;
    // Whole, or not there.
    let new = ask.says.with_extension("new");
    fs::write(&new, said)?;
    fs::rename(&new, &ask.says)?;
    let end = Instant::now() + PATIENCE;
    let heard = loop {
        match fs::read(&ask.hears) {
            Ok(heard) => break heard,
            Err(e) if Instant::now() > end => return Err(e),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    };
    let far: Said = serde_json::from_slice(&heard)?;
    rtc.add_remote_candidate(host(ask.far)?);
    let mut api = rtc.direct_api();
    api.set_remote_ice_credentials(IceCreds { ufrag: far.user, pass: far.password });
    api.set_remote_fingerprint(far.fingerprint.parse().map_err(refused)?);
    api.set_ice_controlling(ask.offers);
    api.start_dtls(ask.offers).map_err(refused)?;
    api.start_sctp(ask.offers);
    let channel = api.create_data_channel(ChannelConfig {
        label: "packets".into(),
        ordered: false,
        reliability: Reliability::MaxRetransmits { retransmits: 0 },
        negotiated: Some(0),
        ..ChannelConfig::default()
    });
    Ok((rtc, channel))
}

/// A running end.
struct End {
    rtc: Rtc,
    channel: ChannelId,
    socket: UdpSocket,
    device: SyncDevice,
    own: SocketAddr,
    is_open: bool,
    /// A packet that the channel had no room for yet.
    waits: Option<Vec<u8>>,
}

impl End {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let until = self.settle()?;
            let wait = until.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(wait).map_err(refused)?;
            let takes = self.is_open && self.waits.is_none();
            let mut both =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.device, PollFlags::IN)];
            let looked = if takes { &mut both[..] } else { &mut both[..1] };
            poll(looked, Some(&wait))?;
            self.hear()?;
            self.take()?;
            self.rtc.handle_input(Input::Timeout(Instant::now())).map_err(refused)?;
        }
    }

    /// Does what the stack has to do, until it waits for something; until when.
    fn settle(&mut self) -> io::Result<Instant> {
        loop {
            match self.rtc.poll_output().map_err(refused)? {
                Output::Timeout(until) => return Ok(until),
                // What finds no room is lost, as on any way.
                Output::Transmit(out) => drop(self.socket.send_to(&out.contents, out.destination)),
                Output::Event(Event::ChannelData(came)) => drop(self.device.send(&came.data)),
                Output::Event(Event::ChannelOpen(..)) => self.is_open = true,
                Output::Event(Event::IceConnectionStateChange(IceConnectionState::Disconnected)) => {
                    return Err(refused("the other end is gone"));
                }
                Output::Event(_) => {}
            }
        }
    }

    /// Datagrams of the other end's.
    fn hear(&mut self) -> io::Result<()> {
        let mut room = [0; 2_048];
        for _ in 0..BURST {
            let Ok((length, source)) = self.socket.recv_from(&mut room) else { return Ok(()) };
            let Some(datagram) = room.get(..length) else { return Ok(()) };
            // One that is none of ICE's, DTLS's or SRTP's is nobody's.
            let Ok(contents) = datagram.try_into() else { continue };
            let came = Receive { proto: Protocol::Udp, source, destination: self.own, contents };
            self.rtc.handle_input(Input::Receive(Instant::now(), came)).map_err(refused)?;
            self.settle()?;
        }
        Ok(())
    }

    /// Packets of the device.
    fn take(&mut self) -> io::Result<()> {
        if !self.is_open {
            return Ok(());
        }
        let mut room = [0; FITS as usize];
        for _ in 0..BURST {
            let packet = match self.waits.take() {
                Some(packet) => packet,
                None => match self.device.recv(&mut room) {
                    Ok(length) => room.get(..length).unwrap_or_default().to_vec(),
                    Err(_) => return Ok(()),
                },
            };
            let Some(mut channel) = self.rtc.channel(self.channel) else { return Ok(()) };
            if !channel.write(true, &packet).map_err(refused)? {
                self.waits = Some(packet);
                return Ok(());
            }
            self.settle()?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    match carry(&Ask::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("levee-lab-datachannel: {e}");
            ExitCode::FAILURE
        }
    }
}

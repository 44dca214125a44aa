//! QUIC's state machine (quinn-proto) with what it may use, and who is let in. No socket and no clock: bytes and times come as arguments.

use crate::crypto::Believed;
use crate::crypto::{Client, Ids, Own, Reset, ServerTls, Tokens, left_of};
use crate::strangers::{Network, Strangers};
use bytes::{Bytes, BytesMut};
use quinn_proto::congestion::{Controller, ControllerFactory};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, ConnectionId, ConnectionIdGenerator as _, DatagramEvent,
    Endpoint, EndpointConfig, EndpointEvent, Event, IdleTimeout, Incoming, MtuDiscoveryConfig, ServerConfig,
    TransportConfig, VarInt,
};
use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tunnels that a server has at most.
pub const MOST: usize = 2_048;
/// Handshakes under way in all, each with an address that was shown to be its sender's.
pub const MOST_HANDSHAKES: usize = 256;
/// And of one address, or one /64 of IPv6.
pub const MOST_OF_ONE: usize = 8;
/// Tunnels of one certificate: a workstation that comes back may be there before its old tunnel is given up.
pub const MOST_OF_A_HOST: usize = 2;

/// Octets of datagrams that wait, each way, for each tunnel.
const WAITING: usize = 128 << 10;
/// One that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(6);
/// A workstation says something so often.
const ALIVE: Duration = Duration::from_secs(2);
/// The longest UDP payload that is tried: with IPv6 and UDP headers, 1,500.
const LARGEST: u16 = 1_452;
/// Datagrams in one send: as many of the largest as it may have (`levee_sys::udp::MAX_SEND`).
const BURST: usize = 44;

/// So soon what the path carries is looked for anew, after so much was lost that it may carry less: meanwhile long packets do not pass.
const ANEW: Duration = Duration::from_millis(100);
/// A datagram that so many later ones overtake is lost.
const LATER: u32 = 256;
/// So many of its connection IDs a workstation may give back in all, where levee's own gives back none. It gets another for each, and what of
/// that it does not acknowledge is kept.
const MOST_GIVEN_BACK: u64 = 64;
/// So often a tunnel's keys may be replaced in all, where levee's own ends do so once each. That is the work of 25 packets.
const MOST_REPLACED: u64 = 64;
/// Octets that may be under way in a tunnel: half a gigabit a second over 100 ms.
const UNDER_WAY: u64 = 6 << 20;
/// Packets of a tunnel of which something is kept until the other end acknowledges them, or a later one: with so many nothing more is carried. A
/// small one takes more than its octets, and octets under way are counted from nought for each address that a workstation goes on from.
const MOST_KEPT: u64 = 8_192;
/// And a tunnel with so many is over. What asks, answers or acknowledges is counted as well, and not held back.
const TOO_MANY: u64 = 12_288;
/// All tunnels together have no more: 250 octets each and more. Beyond it the one that has the most is over.
const MOST_KEPT_IN_ALL: u64 = 1 << 19;

/// No congestion control of the tunnel's own, as ESP has none: what is carried slows down by itself where the way is full. A tunnel that did so
/// once more, for each datagram that is lost or comes after a later one, would all but stand still over a way that is neither full nor even.
#[derive(Clone, Copy, Debug, Default)]
struct Uncontrolled {
    /// The last packet that was acknowledged.
    acknowledged: u64,
}

impl ControllerFactory for Uncontrolled {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(*self)
    }
}

impl Controller for Uncontrolled {
    fn on_end_acks(&mut self, _: Instant, _: u64, _: bool, largest: Option<u64>) {
        self.acknowledged = self.acknowledged.max(largest.unwrap_or(0));
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        UNDER_WAY
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        UNDER_WAY
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// A tunnel, by a number that is used again.
pub type Handle = ConnectionHandle;

/// What is to be sent: bytes, to whom, from which local address, in datagrams of so many octets.
pub struct Out<'a> {
    /// One datagram or several.
    pub bytes: &'a [u8],
    /// To whom.
    pub to: SocketAddr,
    /// From where, if it matters.
    pub from: Option<IpAddr>,
    /// Octets of each but the last, where there are several.
    pub segment: Option<u16>,
}

/// What has happened to a tunnel.
#[derive(Debug)]
pub enum News {
    /// It is there: who is at the other end, by the certificate in DER.
    Up(Handle, Vec<u8>),
    /// A datagram has come.
    Datagram(Handle, Bytes),
    /// It is gone, whether or not it was up: why.
    Gone(Handle, String),
}

struct Linked {
    connection: Connection,
    from: IpAddr,
    since: Instant,
    due: Option<Instant>,
    /// When the certificate of its other end has run out; nothing while there is none, or the clock has no such time.
    until: Option<Instant>,
    up: bool,
    /// It is over.
    told: bool,
    acknowledged: u64,
    /// Packets of which something is kept, or a few more.
    kept: u64,
}

impl Linked {
    fn is_under_way(&self) -> bool {
        !self.up && !self.told
    }

    /// Counts what is kept: what was sent behind the last packet that was acknowledged, on whatever path.
    fn count_kept(&mut self) {
        let control = self.connection.congestion_state().clone_box().into_any();
        let acknowledged = control.downcast::<Uncontrolled>().map_or(0, |control| control.acknowledged);
        self.acknowledged = self.acknowledged.max(acknowledged);
        self.kept = self.connection.stats().path.sent_packets.saturating_sub(self.acknowledged);
    }

    /// Why it may go on no longer: what its other end does without an end, or was not to do for so long.
    fn over(&self, now: Instant) -> Option<&'static str> {
        let replaced = self.connection.crypto_session().handshake_data().and_then(|one| one.downcast().ok());
        if self.connection.stats().frame_rx.retire_connection_id > MOST_GIVEN_BACK {
            Some("it gives connection IDs back without end")
        } else if replaced.is_some_and(|replaced: Box<u64>| *replaced > MOST_REPLACED) {
            Some("it has its keys replaced without end")
        } else if self.until.is_some_and(|until| until <= now) {
            Some("the certificate of its other end has run out")
        } else {
            None
        }
    }

    /// The network on whose account it is, at a server, until it is there.
    fn stranger(&self, client: &Option<Arc<Client>>) -> Option<Network> {
        (client.is_none() && !self.up).then(|| Network::of(self.from))
    }
}

/// Who could not be let in, and what was not passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Addresses that were asked to show that they are their sender's.
    pub asked: u64,
    /// Beyond a bound.
    pub refused: u64,
    /// Datagrams of handshakes under way, or that would begin one, that have had their part of the time.
    pub late: u64,
}

/// An end of tunnels.
pub struct Quic {
    endpoint: Endpoint,
    linked: BTreeMap<usize, Linked>,
    due: BTreeSet<(Instant, usize)>,
    touched: BTreeSet<usize>,
    buffer: Vec<u8>,
    client: Option<Arc<Client>>,
    strangers: Strangers,
    ids: Ids,
    /// Packets that are kept of all tunnels.
    kept: u64,
    /// Handshakes that may be under way in all.
    pub most_handshakes: usize,
    /// Packets of which something may be kept in all.
    pub most_kept: u64,
    /// What was done so far.
    pub counts: Counts,
}

fn transport(is_client: bool) -> Result<Arc<TransportConfig>, String> {
    let mut transport = TransportConfig::default();
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(LARGEST).interval(Duration::from_secs(60)).black_hole_cooldown(ANEW);
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .receive_window(VarInt::from_u32(1_024))
        .stream_receive_window(VarInt::from_u32(1_024))
        .send_window(1_024)
        .crypto_buffer_size(16 << 10)
        .max_idle_timeout(Some(IdleTimeout::try_from(SILENCE).map_err(|e| e.to_string())?))
        .keep_alive_interval(is_client.then_some(ALIVE))
        .datagram_receive_buffer_size(Some(WAITING))
        .datagram_send_buffer_size(WAITING)
        .congestion_controller_factory(Arc::new(Uncontrolled::default()))
        .packet_threshold(LATER)
        .time_threshold(2.0)
        .mtu_discovery_config(Some(discovery));
    Ok(Arc::new(transport))
}

/// Whose share it is: an address of IPv4, or a /64 of IPv6, which is what one customer has.
fn share(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into(),
    }
}

impl Quic {
    /// A server's end.
    ///
    /// # Errors
    /// What of it cannot be used, in words.
    pub fn server(own: Own, clients: Believed) -> Result<Self, String> {
        let reset = own.reset()?;
        let tls = Arc::new(ServerTls::new(own, clients)?);
        let mut config = ServerConfig::new(tls, Arc::new(Tokens::random()?));
        config.transport_config(transport(false)?);
        config.migration(true).max_incoming(MOST_HANDSHAKES).incoming_buffer_size(16 << 10);
        config.incoming_buffer_size_total(1 << 20).retry_token_lifetime(Duration::from_secs(10));
        let mut validation = quinn_proto::ValidationTokenConfig::default();
        validation.sent(0);
        config.validation_token_config(validation);
        Self::new(reset, Some(Arc::new(config)), None)
    }

    /// A workstation's end.
    ///
    /// # Errors
    /// As [`Quic::server`].
    pub fn client(own: Own, server: Believed) -> Result<Self, String> {
        Self::new(Reset::random()?, None, Some(Arc::new(Client::new(own, server)?)))
    }

    fn new(
        reset: Reset,
        server: Option<Arc<ServerConfig>>,
        client: Option<Arc<Client>>,
    ) -> Result<Self, String> {
        let ids = reset.ids()?;
        let mut config = EndpointConfig::new(Arc::new(reset));
        // Whoever shows a connection ID of one that has ended is told so, each of them, with less than they have said: else nobody would hear it
        // while a stranger asks again and again.
        let own = ids.clone();
        config.cid_generator(move || Box::new(own.clone())).min_reset_interval(Duration::ZERO);
        Ok(Self {
            endpoint: Endpoint::new(Arc::new(config), server, true, None),
            linked: BTreeMap::new(),
            due: BTreeSet::new(),
            touched: BTreeSet::new(),
            buffer: Vec::new(),
            client,
            strangers: Strangers::default(),
            ids,
            kept: 0,
            most_handshakes: MOST_HANDSHAKES,
            most_kept: MOST_KEPT_IN_ALL,
            counts: Counts::default(),
        })
    }

    /// Begins a tunnel to a server of this name.
    ///
    /// # Errors
    /// It cannot be one, in words.
    pub fn connect(&mut self, now: Instant, server: SocketAddr, name: &str) -> Result<Handle, String> {
        let client = self.client.clone().ok_or("this is a server's end")?;
        let mut config = ClientConfig::new(client);
        config.transport_config(transport(true)?);
        let (handle, connection) =
            self.endpoint.connect(now, config, server, name).map_err(|e| e.to_string())?;
        self.keep(now, handle, connection, server.ip());
        Ok(handle)
    }

    fn keep(&mut self, since: Instant, handle: Handle, connection: Connection, from: IpAddr) {
        let from = share(from);
        let linked = Linked {
            connection,
            from,
            since,
            due: None,
            until: None,
            up: false,
            told: false,
            acknowledged: 0,
            kept: 0,
        };
        self.linked.insert(handle.0, linked);
        self.touched.insert(handle.0);
    }

    /// A UDP datagram has come, to this local address.
    pub fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: IpAddr,
        datagram: &[u8],
        send: &mut impl FnMut(Out<'_>),
    ) {
        let asks = if self.client.is_some() { None } else { self.asks(datagram) };
        let network = Network::of(from.ip());
        let may = asks.is_none_or(|has_id| {
            self.strangers.may_ask(has_id, now) && (!has_id || self.strangers.may_go_on(network, now))
        });
        if !may {
            self.counts.late = self.counts.late.saturating_add(1);
            return;
        }
        self.buffer.clear();
        let began = Instant::now();
        let event =
            self.endpoint.handle(now, from, Some(to), None, BytesMut::from(datagram), &mut self.buffer);
        match (&event, asks) {
            // On the account of what it is of, below.
            (Some(DatagramEvent::ConnectionEvent(..)), _) | (_, None) => {}
            (Some(DatagramEvent::NewConnection(incoming)), _) if incoming.remote_address_validated() => {
                self.spend(Some(network), began, now);
            }
            (_, Some(has_id)) => self.strangers.asked(has_id, began.elapsed(), now),
        }
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let Some(linked) = self.linked.get_mut(&handle.0) else { return };
                let stranger = linked.stranger(&self.client);
                if stranger.is_some_and(|network| !self.strangers.may_go_on(network, now)) {
                    // It is lost: whoever means it says it again.
                    self.counts.late = self.counts.late.saturating_add(1);
                    return;
                }
                let began = Instant::now();
                linked.connection.handle_event(event);
                self.touched.insert(handle.0);
                self.spend(stranger, began, now);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.let_in(now, incoming, send),
            Some(DatagramEvent::Response(response)) => {
                let bytes = self.buffer.get(..response.size).unwrap_or_default();
                send(Out { bytes, to: response.destination, from: response.src_ip, segment: None });
            }
        }
    }

    /// Whether this would begin a handshake, or is of one that begins (RFC 9000 17.2.2), which is a tenth of a millisecond's work; and whether by a
    /// connection ID of this end's, as those have it who were asked to show that their address is theirs.
    fn asks(&self, datagram: &[u8]) -> Option<bool> {
        let (first, rest) = datagram.split_first()?;
        let (length, rest) = rest.get(4..)?.split_first()?;
        if first & 0xb0 != 0x80 {
            return None;
        }
        let id = rest.get(..usize::from(*length)).filter(|id| id.len() == self.ids.cid_len());
        Some(id.is_some_and(|id| self.ids.validate(&ConnectionId::new(id)).is_ok()))
    }

    /// What was done since `began` is on a stranger's account.
    fn spend(&mut self, stranger: Option<Network>, began: Instant, now: Instant) {
        if let Some(network) = stranger {
            self.strangers.spend(network, began.elapsed(), now);
        }
    }

    /// Nobody has memory here before it has shown that its address is its own (RFC 9000 8.1.2).
    fn let_in(&mut self, now: Instant, incoming: Incoming, send: &mut impl FnMut(Out<'_>)) {
        let from = incoming.remote_address().ip();
        self.buffer.clear();
        if !incoming.remote_address_validated() {
            self.counts.asked = self.counts.asked.saturating_add(1);
            if let Ok(retry) = self.endpoint.retry(incoming, &mut self.buffer) {
                let bytes = self.buffer.get(..retry.size).unwrap_or_default();
                send(Out { bytes, to: retry.destination, from: retry.src_ip, segment: None });
            }
            return;
        }
        let under_way = || self.linked.values().filter(|linked| linked.is_under_way());
        let of_one = under_way().filter(|linked| linked.from == share(from)).count();
        let crowded = under_way().count() >= self.most_handshakes;
        let is_full = of_one >= MOST_OF_ONE || crowded || self.linked.len() >= MOST;
        let network = Network::of(from);
        let is_spent = !self.strangers.may_begin(network, now);
        self.counts.refused = self.counts.refused.saturating_add(u64::from(is_full || is_spent));
        if is_spent || is_full && (of_one >= MOST_OF_ONE || !self.make_room(crowded)) {
            // Silently: whoever means it tries again.
            return self.endpoint.ignore(incoming);
        }
        let began = Instant::now();
        let accepted = self.endpoint.accept(incoming, now, &mut self.buffer, None);
        self.spend(Some(network), began, now);
        match accepted {
            Ok((handle, connection)) => self.keep(now, handle, connection, from),
            Err(error) => {
                if let Some(response) = error.response {
                    let bytes = self.buffer.get(..response.size).unwrap_or_default();
                    send(Out { bytes, to: response.destination, from: response.src_ip, segment: None });
                }
            }
        }
    }

    /// Where handshakes, or all that there is, are at their bound, one gives way: what is over, else the oldest handshake of the network that has
    /// the most under way. So who begins many is in their own way. False if there are tunnels alone.
    fn make_room(&mut self, of_handshakes: bool) -> bool {
        let mut networks: BTreeMap<Network, usize> = BTreeMap::new();
        for linked in self.linked.values().filter(|linked| linked.is_under_way()) {
            *networks.entry(Network::of(linked.from)).or_default() += 1;
        }
        let may = |linked: &Linked| linked.is_under_way() || linked.told && !of_handshakes;
        let all = self.linked.iter().filter(|(_, linked)| may(linked));
        let rank =
            |linked: &Linked| (linked.told, networks.get(&Network::of(linked.from)), Reverse(linked.since));
        let Some(number) = all.max_by_key(|(_, linked)| rank(linked)).map(|(number, _)| *number) else {
            return false;
        };
        self.forget(number);
        true
    }

    /// Nothing is kept of it any more. Its other end hears so at its next packet.
    fn forget(&mut self, number: usize) {
        let Some(linked) = self.linked.remove(&number) else { return };
        if let Some(due) = linked.due {
            self.due.remove(&(due, number));
        }
        self.kept = self.kept.saturating_sub(linked.kept);
        self.touched.remove(&number);
        self.endpoint.handle_event(ConnectionHandle(number), EndpointEvent::drained());
    }

    /// Counts what is kept of a tunnel, and ends one that has too much.
    fn count_kept(&mut self, number: usize, news: &mut Vec<News>) {
        let Some(linked) = self.linked.get_mut(&number) else { return };
        let before = linked.kept;
        linked.count_kept();
        let kept = linked.kept;
        self.kept = self.kept.saturating_sub(before).saturating_add(kept);
        let most = || self.linked.iter().max_by_key(|(_, linked)| linked.kept).map(|(number, _)| *number);
        let over = if kept > TOO_MANY {
            Some(number)
        } else if self.kept > self.most_kept {
            most()
        } else {
            None
        };
        let Some(over) = over else { return };
        if self.linked.get(&over).is_some_and(|linked| !linked.told) {
            news.push(News::Gone(ConnectionHandle(over), "it acknowledges too little".to_owned()));
        }
        self.forget(over);
    }

    /// When to call [`Quic::work`] at the latest.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Octets that a datagram may have now; 0 where the tunnel is not up.
    pub fn room(&mut self, handle: Handle) -> usize {
        let linked = self.linked.get_mut(&handle.0).filter(|linked| linked.up);
        linked.and_then(|linked| linked.connection.datagrams().max_size()).unwrap_or(0)
    }

    /// Has a datagram leave; the oldest that wait go where there are too many. False if it is longer than the path carries, or too much is
    /// not acknowledged.
    pub fn send(&mut self, handle: Handle, datagram: Vec<u8>) -> bool {
        let linked = self.linked.get_mut(&handle.0).filter(|linked| linked.up && linked.kept < MOST_KEPT);
        let Some(linked) = linked else { return false };
        self.touched.insert(handle.0);
        linked.connection.datagrams().send(datagram.into(), true).is_ok()
    }

    /// Ends a tunnel; nothing more is told of it.
    pub fn close(&mut self, now: Instant, handle: Handle) {
        if let Some(linked) = self.linked.get_mut(&handle.0) {
            linked.connection.close(now, VarInt::from_u32(0), Bytes::new());
            (linked.up, linked.told) = (false, true);
            self.touched.insert(handle.0);
        }
    }

    /// How many tunnels there are, up or not.
    pub fn count(&self) -> usize {
        self.linked.len()
    }

    /// Does what is due and what has come makes due; says what has happened.
    pub fn work(&mut self, now: Instant, send: &mut impl FnMut(Out<'_>)) -> Vec<News> {
        let mut news = Vec::new();
        while let Some((_, number)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.pop_first();
            if let Some(linked) = self.linked.get_mut(&number) {
                linked.due = None;
                linked.connection.handle_timeout(now);
            }
            self.touched.insert(number);
        }
        while let Some(number) = self.touched.pop_first() {
            let stranger = self.linked.get(&number).and_then(|linked| linked.stranger(&self.client));
            let began = Instant::now();
            self.see_to(now, number, &mut news, send);
            self.count_kept(number, &mut news);
            self.spend(stranger, began, now);
        }
        news
    }

    fn see_to(&mut self, now: Instant, number: usize, news: &mut Vec<News>, send: &mut impl FnMut(Out<'_>)) {
        let Self { linked: all, endpoint, buffer, due, kept, .. } = self;
        let Some(linked) = all.get_mut(&number) else { return };
        let handle = ConnectionHandle(number);
        if let Some(why) = linked.over(now).filter(|_| !linked.told) {
            linked.connection.close(now, VarInt::from_u32(0), Bytes::new());
            (linked.up, linked.told) = (false, true);
            news.push(News::Gone(handle, why.to_owned()));
        }
        loop {
            while let Some(event) = linked.connection.poll_endpoint_events() {
                if let Some(answer) = endpoint.handle_event(handle, event) {
                    linked.connection.handle_event(answer);
                }
            }
            buffer.clear();
            let Some(out) = linked.connection.poll_transmit(now, BURST, buffer) else { break };
            let bytes = buffer.get(..out.size).unwrap_or_default();
            let segment = out.segment_size.and_then(|size| u16::try_from(size).ok());
            send(Out { bytes, to: out.destination, from: out.src_ip, segment });
        }
        while let Some(event) = linked.connection.poll() {
            match event {
                Event::Connected => {
                    linked.up = true;
                    let who = linked.connection.crypto_session().peer_identity();
                    let who = who.and_then(|who| who.downcast::<Vec<u8>>().ok());
                    let who = who.map(|who| *who).unwrap_or_default();
                    linked.until = now.checked_add(left_of(&who));
                    news.push(News::Up(handle, who));
                }
                Event::ConnectionLost { reason } if !linked.told => {
                    (linked.up, linked.told) = (false, true);
                    news.push(News::Gone(handle, reason.to_string()));
                }
                _ => {}
            }
        }
        while let Some(datagram) = linked.connection.datagrams().recv() {
            if linked.up {
                news.push(News::Datagram(handle, datagram));
            }
        }
        let until = linked.until.filter(|_| !linked.told);
        let next = linked.connection.poll_timeout().into_iter().chain(until).min();
        if let Some(before) = linked.due.take() {
            due.remove(&(before, number));
        }
        if linked.connection.is_drained() {
            if !linked.told {
                news.push(News::Gone(handle, "it was ended".to_owned()));
            }
            *kept = kept.saturating_sub(linked.kept);
            all.remove(&number);
        } else if let Some(next) = next {
            linked.due = Some(next);
            due.insert((next, number));
        }
    }
}

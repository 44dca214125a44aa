//! What a vault hears: sessions from sessiond, keys from the keyer. It needs both before a packet passes.

use crate::Secret;
use ipnet::IpNet;
use levee_policy::DomainName;
use levee_session::SessionId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub use levee_policy::site::Cipher;

/// One row of a session's policy: what may pass through its security associations (RFC 4301 4.4.1).
///
/// `local` is the vault's own side, `remote` the other end of the tunnel. A port range counts for TCP, UDP
/// and SCTP alone; `0..=65535` is the only one that lets a fragment without ports pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// Inner addresses on the vault's side.
    pub local: IpNet,
    /// Inner addresses on the peer's side.
    pub remote: IpNet,
    /// IP protocol number; `None` for any.
    pub protocol: Option<u8>,
    /// First and last port on the vault's side.
    pub local_ports: (u16, u16),
    /// First and last port on the peer's side.
    pub remote_ports: (u16, u16),
}

/// A session as its label's vault knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The session.
    pub id: SessionId,
    /// The session's inner addresses, at most one of each family.
    pub inner: Vec<IpAddr>,
    /// Everything it may send or receive; none means nothing.
    pub selectors: Vec<Selector>,
    /// What its keys may be for, beside what [`SessiondToVault::Ciphers`] says of all; `None`: that alone says so.
    pub ciphers: Option<Vec<Cipher>>,
    /// Whether its packets come and go within the second tunnel alone: by the socket on the loopback interface.
    pub layered: bool,
}

/// sessiond (on a workstation: the TPE) → vault.
#[derive(Debug, Serialize, Deserialize)]
pub enum SessiondToVault {
    /// This session exists; keys for it may now be taken. Sent again, it replaces the record.
    Open(SessionRecord),
    /// As [`SessiondToVault::Open`], for a session of another server: its packets pass no longer than that server's sessions may.
    OpenTheirs {
        /// The session.
        record: SessionRecord,
        /// The server where its person signed on.
        owner: DomainName,
    },
    /// This session is over: erase its keys, drop its waiting packets, then answer [`VaultToSessiond::Closed`].
    Close(SessionId),
    /// Every live session has been named on this channel; close all others.
    Synced,
    /// Sessions may pass packets until then, and no longer unless it is said again: then erase them. A vault that has never been
    /// told about all sessions has no such end for its server's own.
    Until {
        /// Of which other server; `None`: all sessions.
        owner: Option<DomainName>,
        /// On the monotonic clock of this host (CLOCK_MONOTONIC).
        until: Duration,
    },
    /// Answer with the same number, to show that you live.
    Ping(u64),
    /// Answer with [`VaultToSessiond::Report`].
    Report,
    /// From now on take keys for these ciphers alone. Where they are others than before, or `anew` says so, what there is is old: once none
    /// of that is left, answer [`VaultToSessiond::Moved`].
    Ciphers {
        /// For the answer.
        number: u64,
        /// At least one.
        ciphers: Vec<Cipher>,
        /// What there is is old, whatever it is.
        anew: bool,
    },
    /// It has taken long enough: erase what is old, and answer.
    Sever(u64),
}

/// Vault → sessiond.
#[derive(Debug, Serialize, Deserialize)]
pub enum VaultToSessiond {
    /// The record is in place.
    Opened(SessionId),
    /// The session's keys are erased and no packet of it will pass any more.
    Closed(SessionId),
    /// Answer to [`SessiondToVault::Ping`].
    Pong(u64),
    /// What has passed and what was dropped.
    Report(Report),
    /// Answer to [`SessiondToVault::Ciphers`]: nothing old is left.
    Moved {
        /// As there.
        number: u64,
        /// Sessions that had nothing new when what they had was erased, at most [`MOST_SEVERED`] of them.
        severed: Vec<SessionId>,
    },
    /// Redundant stacks disagreed about so many packets since this was last said; none of them passed.
    Disagreed(u64),
}

/// The most sessions that one message names as severed. Those beyond have no keys either, and come back like them.
pub const MOST_SEVERED: usize = 1_024;

/// A vault's counters and its security associations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Counter name and value, since the vault's start.
    #[serde(deserialize_with = "crate::said::counts")]
    pub counters: Vec<(String, u64)>,
    /// One row per inbound security association, at most [`Report::ROWS`] of them.
    pub sas: Vec<SaReport>,
    /// How many inbound security associations there are in all.
    pub sa_count: u64,
    /// How long what has come in, and what has gone out, was here. Nothing where stacks must agree.
    pub held: [Held; 2],
}

/// How long packets were in a vault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// How many. A super-segment is one, as the compartment hands it over.
    pub packets: u64,
    /// The sum of their times, in nanoseconds: of each the whole of the turn in which it was dealt with. How long one waited for keys, for room in a
    /// socket, or for its moment at a constant rate, is not in it.
    pub nanoseconds: u64,
}

impl Held {
    /// So many more, each so long.
    pub fn count(&mut self, packets: u64, each: Duration) {
        let each = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
        self.packets = self.packets.saturating_add(packets);
        self.nanoseconds = self.nanoseconds.saturating_add(each.saturating_mul(packets));
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            nanoseconds: self.nanoseconds.saturating_add(other.nanoseconds),
        }
    }
}

impl Report {
    /// The most rows of security associations, all workers' together.
    pub const ROWS: usize = 256;
    /// The counter of packets about which redundant stacks disagreed.
    pub const DISAGREED: &str = "disagreed";

    /// Packets about which redundant stacks disagreed; 0 where a label has one stack.
    pub fn disagreed(&self) -> u64 {
        self.counters.iter().find(|(name, _)| name == Self::DISAGREED).map_or(0, |(_, count)| *count)
    }
}

/// One pair of security associations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaReport {
    /// The session it belongs to.
    pub session: SessionId,
    /// The SPI by which packets arrive here.
    pub inbound_spi: u32,
    /// The SPI under which packets leave.
    pub outbound_spi: u32,
    /// What its packets are sealed by.
    pub cipher: Cipher,
    /// How its packets go.
    pub carriage: Carriage,
    /// Where its packets go: the peer's outer address and port, once known.
    pub peer: Option<SocketAddr>,
    /// Inner packets received and sent.
    pub packets: (u64, u64),
    /// Inner bytes received and sent.
    pub bytes: (u64, u64),
}

/// One direction's security association.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sa {
    /// Its SPI, chosen by the receiver.
    pub spi: u32,
    /// The key, then a salt of 4 bytes (RFC 4106 8.1, RFC 7634 2).
    pub keying_material: Secret,
}

/// How a session's packets are to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carriage {
    /// Each in an outer packet of its own.
    #[default]
    Each,
    /// In AGGFRAG payloads (RFC 9347), if the peer takes them.
    Aggfrag,
    /// In AGGFRAG payloads of one size, one every `interval`, whether there is something to send or not; if the peer does
    /// not take them, not at all.
    Constant {
        /// Time from one packet to the next.
        interval: Duration,
    },
}

impl Carriage {
    /// The constant rate's time from one packet to the next.
    #[must_use]
    pub fn interval(self) -> Option<Duration> {
        if let Self::Constant { interval } = self { Some(interval) } else { None }
    }

    /// Whether AGGFRAG payloads are to be asked for and granted.
    #[must_use]
    pub fn aggregates(self) -> bool {
        self != Self::Each
    }

    /// Whether packets go like this to a peer that does or does not ask for AGGFRAG payloads.
    #[must_use]
    pub fn suits(self, asks: bool) -> bool {
        asks || !matches!(self, Self::Constant { .. })
    }
}

/// How packets go in AGGFRAG payloads (RFC 9347).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregation {
    /// Octets of an ESP packet, from the SPI to the tag: at most; at a constant rate, always.
    pub packet: u16,
    /// The constant rate: time from one packet to the next, whether there is something to send or not.
    pub interval: Option<Duration>,
    /// Whether the peer takes fragments.
    pub fragment: bool,
}

/// Keyer → vault.
#[derive(Debug, Serialize, Deserialize)]
pub enum KeyerToVault {
    /// Keys for a session. Refused unless sessiond has opened that session here.
    Install {
        /// Whose.
        session: SessionId,
        /// For both directions.
        cipher: Cipher,
        /// Extended sequence numbers (RFC 4303 2.2.1).
        esn: bool,
        /// Packets that arrive.
        inbound: Sa,
        /// Packets that leave.
        outbound: Sa,
        /// The peer asked for it in an older pair's place: packets leave by the older until something has come by this (RFC 7296 2.8).
        answered: bool,
        /// The peer's outer address, where it is known before its first packet.
        peer: Option<SocketAddr>,
        /// AGGFRAG payloads (RFC 9347), if both ends agreed on them.
        aggregation: Option<Aggregation>,
    },
    /// The session has the pairs that arrive under these SPIs: erase every other. What a keyer that died had agreed, its successor
    /// cannot name.
    Only {
        /// Whose.
        session: SessionId,
        /// The inbound SPIs.
        spis: Vec<u32>,
    },
    /// Send by another pair than that which arrives under this SPI in a moment, where its session has one, and take what arrives by it: the
    /// peer is about to erase it.
    Retire {
        /// The inbound SPI.
        spi: u32,
    },
    /// Erase the pair that arrives under this SPI.
    Delete {
        /// The inbound SPI.
        spi: u32,
    },
}

/// Vault → keyer.
#[derive(Debug, Serialize, Deserialize)]
pub enum VaultToKeyer {
    /// The keys are in use.
    Installed {
        /// The inbound SPI.
        spi: u32,
    },
    /// The keys were not taken, and are erased.
    Refused {
        /// The inbound SPI.
        spi: u32,
        /// Why.
        reason: Refusal,
    },
    /// A packet of this session waits for keys.
    Acquire(SessionId),
    /// This pair is near its end (sequence numbers or age): agree on another.
    Expiring {
        /// The inbound SPI.
        spi: u32,
        /// Whose.
        session: SessionId,
    },
}

/// Why a vault does not take keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// sessiond has not opened this session here, or has closed it.
    NoSession,
    /// The SPI is reserved, or not in this vault's slot.
    Spi,
    /// The SPI is in use.
    SpiInUse,
    /// The keying material is not of the cipher's length.
    KeyLength,
    /// There is no room for more.
    Full,
    /// Sizes or times of AGGFRAG that make no sense.
    Aggregation,
    /// The posture in force has not this cipher.
    Cipher,
    /// Its peer is not behind the second tunnel, and the session goes within that alone.
    Outside,
}

//! Why packets are dropped, and how often.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident => $text:literal,)+) => {
        /// Why a packet did not pass. Each drop is counted under exactly one reason and nowhere else noted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// What it means, for whoever reads the counter.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }

            /// The counter's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// Inbound: no security association has this SPI here.
    UnknownSpi => "unknown-spi",
    /// Inbound: shorter than the shortest ESP packet, or ciphertext not a multiple of 4 (RFC 4303 2.4).
    Truncated => "truncated",
    /// Outbound: longer than the tunnel's MTU. (Inbound nothing is too long: all that UDP can carry fits the buffer.)
    Oversize => "oversize",
    /// Inbound: sequence number seen already or behind the window (RFC 4303 3.4.3).
    Replay => "replay",
    /// Inbound: the tag does not match (RFC 4303 3.4.4).
    AuthFailed => "auth-failed",
    /// Inbound: padding other than 1, 2, 3, … or longer than the packet (RFC 4303 2.4).
    BadPadding => "bad-padding",
    /// Inbound: next header neither IPv4, IPv6 nor dummy.
    BadNextHeader => "bad-next-header",
    /// The inner packet is not a whole IPv4 or IPv6 packet, or its headers cannot be followed to an end.
    Malformed => "malformed",
    /// The session's selectors do not allow the inner packet (RFC 4301 5.2).
    Selector => "selector",
    /// The inner packet carries a label of its own (CIPSO, RFC 1108's, CALIPSO). Its label is its association's (RFC 9478).
    Labelled => "labelled",
    /// A fragment without ports, and the session's selectors ask for ports (RFC 4301 7.1).
    Fragment => "fragment",
    /// Outbound: no security association yet, and no room to wait for one.
    NoSa => "no-sa",
    /// Outbound: it waited longer for a security association than it may.
    WaitedTooLong => "waited-too-long",
    /// Outbound: every sequence number of the security association is used (RFC 4303 3.3.3).
    SequenceExhausted => "sequence-exhausted",
    /// Outbound: no session has this inner address.
    NoSession => "no-session",
    /// Outbound: the peer's outer address is not known yet.
    NoPeer => "no-peer",
    /// Inbound: congestion was marked on the outside of a packet that does not take part in ECN (RFC 6040 4.2).
    Ecn => "ecn",
    /// The device or socket would not take it.
    NotTaken => "not-taken",
    /// Inbound: a dummy packet (RFC 4303 2.6), dropped as it should be.
    Dummy => "dummy",
    /// Inbound: a piece of an inner packet whose other pieces did not come in time (RFC 9347 2.2.3).
    FragmentLost => "fragment-lost",
    /// Outbound: too much waits for its turn at a constant rate.
    QueueFull => "queue-full",
    /// Inbound: it did not come by the one socket that its session's packets come by.
    Outside => "outside",
}

/// Packets and bytes that passed, and drops by reason, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Inner packets received and passed on.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Inner packets sent.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Counts one drop.
    pub fn count(&mut self, reason: DropReason) {
        self.count_many(reason, 1);
    }

    /// Counts several drops of one reason.
    pub fn count_many(&mut self, reason: DropReason, packets: u64) {
        if let Some(counter) = self.drops.get_mut(reason as usize) {
            *counter = counter.saturating_add(packets);
        }
    }

    /// Drops for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason as usize).copied().unwrap_or(0)
    }

    /// Every counter's name and value, drops that never happened included.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let passed = [
            ("packets-in", self.packets_in),
            ("bytes-in", self.bytes_in),
            ("packets-out", self.packets_out),
            ("bytes-out", self.bytes_out),
        ];
        passed.into_iter().chain(DropReason::ALL.iter().map(|&reason| (reason.name(), self.dropped(reason))))
    }
}

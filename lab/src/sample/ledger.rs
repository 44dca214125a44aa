//! Where each datagram of a trial went.

use crate::counters::NetDelta;
use crate::workload::{Kind, Outcome};
use serde::{Deserialize, Serialize};

/// The most datagrams that one aggregate carries (udp(7), UDP_SEGMENT; UDP_GRO gathers fewer).
const AGGREGATE: i64 = 128;

/// What moved in levee's tunnel during a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// Packets that the server's vault took out of it, by its own count.
    pub opened: i64,
    /// Packets that the server's vault dropped, by its own counters.
    pub refused: i64,
    /// Aggregates of the tunnel's packets that the kernel dropped between the vaults: at full sockets, at interfaces.
    pub dropped: i64,
}

impl Tunnel {
    /// What moved since `earlier`.
    pub fn since(&self, earlier: &Tunnel) -> Tunnel {
        Tunnel {
            opened: self.opened - earlier.opened,
            refused: self.refused - earlier.refused,
            dropped: self.dropped - earlier.dropped,
        }
    }
}

/// Where each datagram of a trial went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Handed to the client's socket.
    pub sent: i64,
    /// Left the client's IP layer.
    pub wire: i64,
    /// Dropped at an interface on the way.
    pub device_drops: i64,
    /// Put together from fragments at the server; none, as they fit the path MTU.
    pub reassembled: i64,
    /// Dropped at the server's full socket.
    pub socket_drops: i64,
    /// Lost to checksums or ports.
    pub other_drops: i64,
    /// Read by the server's program, by the kernel's count.
    pub read: i64,
    /// Read by the server's program, by its own count.
    pub delivered: i64,
    /// Went into levee's tunnel and did not come out of it.
    #[serde(default)]
    pub tunnel: i64,
    /// Came out of levee's tunnel, by the count of the server's vault; none where the path is no tunnel.
    #[serde(default)]
    pub opened: Option<i64>,
    /// The most that the drops counted in the tunnel can account for: those of the server's vault, and as many as an
    /// aggregate holds for each that the kernel dropped between the vaults.
    #[serde(default)]
    pub tunnel_drops: Option<i64>,
    /// Left the client (came out of the tunnel) and were counted nowhere.
    pub missing: i64,
}

impl Ledger {
    /// From what the client counted and what moved in both namespaces and in the tunnel, for client-to-server datagrams.
    pub fn of(o: &Outcome, client: &NetDelta, server: &NetDelta, tunnel: Option<&Tunnel>) -> Option<Ledger> {
        let u = o.udp.as_ref()?;
        let arrived = server.udp_in + server.udp_buffer_errors + server.udp_other_errors;
        // UDP_RR's server reads and answers each; its client's count is of answers
        let delivered = if o.kind == Kind::UdpRr { server.udp_in } else { (u.delivered + u.answered) as i64 };
        let entered = client.udp_out - client.device_drops;
        let left = tunnel.map_or(entered, |t| t.opened);
        Some(Ledger {
            sent: (u.sent + u.asked) as i64,
            wire: client.udp_out,
            device_drops: client.device_drops + server.device_drops,
            reassembled: server.reassembled,
            socket_drops: server.udp_buffer_errors,
            other_drops: server.udp_other_errors,
            read: server.udp_in,
            delivered,
            tunnel: entered - left,
            opened: tunnel.map(|t| t.opened),
            tunnel_drops: tunnel.map(|t| t.refused + t.dropped * AGGREGATE),
            missing: left - server.device_drops - arrived,
        })
    }

    /// Why it does not balance; `None` when it does.
    pub fn fault(&self) -> Option<String> {
        if self.sent != self.wire {
            return Some(format!("{} sent, {} left the host", self.sent, self.wire));
        }
        if self.tunnel < 0 {
            return Some(format!("{} more came out of the tunnel than went in", -self.tunnel));
        }
        if let Some(room) = self.tunnel_drops.filter(|room| self.tunnel > *room) {
            return Some(format!(
                "{} lost in the tunnel, where {room} drops at most were counted",
                self.tunnel
            ));
        }
        if self.missing != 0 {
            return Some(format!("{} of {} counted nowhere", self.missing, self.wire));
        }
        if self.reassembled != 0 {
            return Some(format!("{} came in fragments: larger than the path's MTU", self.reassembled));
        }
        if self.read != self.delivered {
            return Some(format!(
                "{} read by the kernel's count, {} by the program's",
                self.read, self.delivered
            ));
        }
        None
    }
}

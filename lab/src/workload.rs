//! The workloads: what one trial does, how client and server speak, what a trial yields.
//!
//! The names are those of the OMNI set that the MYSEA study used (section 4.4); the programs are our own.
//!
//! Every service port is described by its first bytes, so that one port carries every TCP workload and a
//! service that is handed one connection at a time (inetd) needs no second channel:
//!
//! | verb | server's part | used by |
//! |---|---|---|
//! | `e` | one byte back for each byte, this one included, until the end of the stream | TCP_RR |
//! | `c` | one byte back, then close | TCP_CRR |
//! | `s` | read to the end; answer 8 bytes received and 8 bytes nanoseconds, big endian | TCP_STREAM |
//! | `S` | the same, waiting by `select` and never in the call that reads | TCP_STREAM_SELECT |
//! | `m`, 4 bytes milliseconds | send for that long, then close | TCP_MAERTS |
//! | `f`, 4 bytes length | send that many bytes, then close | TCP_FETCH |
//! | `a` | the name of this connection's congestion control, then close | every TCP trial |
//! | `G`ET … | an empty HTTP/1.1 answer, then close | TCP_HTTP, and wrk |
//!
//! Datagrams: `e…` is sent back (UDP_RR); `d`, trial, sequence number (8 bytes each) is counted (UDP_STREAM); `q`,
//! trial is answered with trial, datagrams, bytes and duplicates.
//!
//! A second port closes at once what it accepts: TCP_CC. So the **server closes first** in TCP_CC and
//! TCP_CRR, `TIME_WAIT` stays on its side, and no port of the client is ever held back
//! (the fault of the MYSEA study, section 4.5). Over a plain link each connection also comes from the next of many
//! addresses, so that the server, too, meets no pair of addresses and ports again within a minute; how many it met is
//! counted. [`Closer::Client`] does it the paper's way.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// One of the OMNI tests, and one the cost calculator has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Kind {
    /// Bytes from client to server, rate measured by the receiver.
    TcpStream,
    /// TCP_STREAM with both ends waiting by `select`, and neither in the call that writes or reads: for second opinions.
    TcpStreamSelect,
    /// Bytes from server to client, rate measured by the receiver.
    TcpMaerts,
    /// One byte each way on one connection, again and again.
    TcpRr,
    /// A connection opened and closed, no data.
    TcpCc,
    /// A connection opened, one byte each way, closed.
    TcpCrr,
    /// A connection opened, a request, an answer of given length, closed: kept from the cost calculator.
    TcpFetch,
    /// A connection opened, an HTTP request and its answer without a body, closed: for second opinions.
    TcpHttp,
    /// Paced datagrams within the path MTU: the highest rate without loss.
    UdpStream,
    /// One datagram each way, again and again.
    UdpRr,
}

impl Kind {
    /// Every workload, in the order in which reports show them.
    pub const ALL: [Kind; 10] = [
        Kind::TcpStream,
        Kind::TcpStreamSelect,
        Kind::TcpMaerts,
        Kind::TcpRr,
        Kind::TcpCc,
        Kind::TcpCrr,
        Kind::TcpFetch,
        Kind::TcpHttp,
        Kind::UdpStream,
        Kind::UdpRr,
    ];

    /// The name as in tables and file names.
    pub fn name(self) -> &'static str {
        match self {
            Kind::TcpStream => "TCP_STREAM",
            Kind::TcpStreamSelect => "TCP_STREAM_SELECT",
            Kind::TcpMaerts => "TCP_MAERTS",
            Kind::TcpRr => "TCP_RR",
            Kind::TcpCc => "TCP_CC",
            Kind::TcpCrr => "TCP_CRR",
            Kind::TcpFetch => "TCP_FETCH",
            Kind::TcpHttp => "TCP_HTTP",
            Kind::UdpStream => "UDP_STREAM",
            Kind::UdpRr => "UDP_RR",
        }
    }

    /// The workload of that name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// The workload of a unit's id: `TCP_RR@500` is a TCP_RR, `UDP_STREAM/256` a UDP_STREAM.
    pub fn of_unit(id: &str) -> Option<Kind> {
        Kind::from_name(id.split(['@', '/']).next()?)
    }

    /// Whether each transaction is a connection.
    pub fn connects(self) -> bool {
        matches!(self, Kind::TcpCc | Kind::TcpCrr | Kind::TcpFetch | Kind::TcpHttp)
    }

    /// Whether it goes over TCP (else in datagrams).
    pub fn is_tcp(self) -> bool {
        !matches!(self, Kind::UdpStream | Kind::UdpRr)
    }

    /// Whether the metric is a rate of bytes (else of transactions).
    pub fn is_bulk(self) -> bool {
        matches!(self, Kind::TcpStream | Kind::TcpStreamSelect | Kind::TcpMaerts | Kind::UdpStream)
    }

    /// The unit of the metric. All metrics are rates: higher is better, time per unit of work is the inverse.
    pub fn unit(self) -> &'static str {
        if self.is_bulk() { "10^6 bit/s" } else { "transactions/s" }
    }

    /// What it does, in one line.
    pub fn what(self) -> &'static str {
        match self {
            Kind::TcpStream => "bytes from client to server over one connection",
            Kind::TcpStreamSelect => {
                "bytes from client to server over one connection, both ends waiting by select"
            }
            Kind::TcpMaerts => "bytes from server to client over one connection",
            Kind::TcpRr => "one byte each way over one standing connection",
            Kind::TcpCc => "connection opened and closed, no data; the server closes first",
            Kind::TcpCrr => "connection opened, one byte each way, closed; the server closes first",
            Kind::TcpFetch => "connection opened, one request, an answer of many bytes, closed by the server",
            Kind::TcpHttp => {
                "connection opened, an HTTP request and its answer without a body, closed by the server"
            }
            Kind::UdpStream => "paced datagrams within the path MTU: the highest rate without loss",
            Kind::UdpRr => "one small datagram each way, again and again",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which side closes a connection first, and so holds it in `TIME_WAIT` (RFC 9293 3.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Closer {
    /// No port of the client is held back.
    #[default]
    Server,
    /// As in the MYSEA study, whose trials then wait two minutes.
    Client,
}

/// What one client is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The workload.
    pub kind: Kind,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Discarded time before it, seconds.
    pub warmup: f64,
    /// Bytes per write of a stream.
    pub write_size: usize,
    /// Payload bytes of a datagram of UDP_STREAM; with its 28 bytes of headers no larger than the path MTU.
    pub datagram: usize,
    /// Bytes of a TCP_FETCH answer.
    pub fetch: u32,
    /// Requests per second offered by an open-loop TCP_RR; closed loop when absent.
    pub open_rate: Option<f64>,
    /// Who closes first in TCP_CC and TCP_CRR.
    pub closer: Closer,
    /// The congestion control that must be in force at both ends.
    pub congestion: String,
    /// The client's addresses: connections take one after the other, so that none meets a pair of addresses and ports
    /// that is still in `TIME_WAIT`. None: that of the route.
    #[serde(default)]
    pub sources: Vec<Ipv4Addr>,
}

/// A latency histogram as data: counts at the highest equivalent value of each HDR bucket that has any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// (nanoseconds, count), rising; two significant digits.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// From a recorder's histogram.
    pub fn of(h: &hdrhistogram::Histogram<u64>) -> Latency {
        Latency { buckets: h.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect() }
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.1).sum()
    }

    /// The smallest recorded bucket that at least `q` (0 to 1) of all do not exceed, nanoseconds.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let want = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for &(v, n) in &self.buckets {
            seen += n;
            if seen >= want {
                return Some(v);
            }
        }
        None
    }

    /// Both together.
    pub fn merge(&mut self, other: &Latency) {
        let mut all: std::collections::BTreeMap<u64, u64> = self.buckets.iter().copied().collect();
        for &(v, n) in &other.buckets {
            *all.entry(v).or_default() += n;
        }
        self.buckets = all.into_iter().collect();
    }
}

/// One rate of the UDP sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UdpStep {
    /// Datagrams offered per second; 0 for unpaced.
    pub offered: f64,
    /// Datagrams handed to the socket.
    pub sent: u64,
    /// Datagrams the receiving program read.
    pub delivered: u64,
    /// Seconds of sending.
    pub seconds: f64,
}

/// What the client can say about its datagrams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UdpCount {
    /// Datagrams that `send` accepted, warm-up and every step.
    pub sent: u64,
    /// Datagrams that the receiving program read.
    pub delivered: u64,
    /// Questions to the receiving program about the above, each one datagram more on the wire.
    #[serde(default)]
    pub asked: u64,
    /// Of these, how many were answered.
    #[serde(default)]
    pub answered: u64,
    /// Of these, more than once.
    pub duplicates: u64,
    /// The sweep.
    pub steps: Vec<UdpStep>,
}

/// What one client measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The workload.
    pub kind: Kind,
    /// Measured seconds.
    pub seconds: f64,
    /// Payload bytes in the measured time, at the receiver.
    pub bytes: u64,
    /// Transactions in the measured time.
    pub transactions: u64,
    /// The metric in [`Kind::unit`].
    pub value: f64,
    /// Latency of each transaction; from the time it was due, where open loop.
    pub latency: Option<Latency>,
    /// Datagrams, where the workload sends any.
    pub udp: Option<UdpCount>,
    /// Congestion control read back from the client's socket.
    pub congestion: Option<String>,
    /// The same of the server's socket, as the server says.
    #[serde(default)]
    pub server_congestion: Option<String>,
    /// CPU seconds of the client process (getrusage, user and system).
    pub cpu_seconds: f64,
    /// Seconds in which the client could have run but another had its processor (`/proc/self/schedstat`).
    pub waited: Option<f64>,
    /// Counters of the client's network namespace over the trial; absent where it may not read them.
    pub net: Option<crate::counters::NetDelta>,
    /// `TIME_WAIT` sockets in the client's namespace before and after.
    pub time_wait: Option<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_bucket_that_reaches_it() {
        let l = Latency { buckets: vec![(10, 50), (20, 49), (1000, 1)] };
        assert_eq!(l.quantile(0.5), Some(10));
        assert_eq!(l.quantile(0.51), Some(20));
        assert_eq!(l.quantile(0.99), Some(20));
        assert_eq!(l.quantile(1.0), Some(1000));
        assert_eq!(Latency::default().quantile(0.5), None);
    }

    #[test]
    fn merged_histograms_keep_every_count() {
        let mut a = Latency { buckets: vec![(10, 1), (30, 2)] };
        a.merge(&Latency { buckets: vec![(10, 4), (20, 5)] });
        assert_eq!(a.buckets, vec![(10, 5), (20, 5), (30, 2)]);
    }

    #[test]
    fn every_workload_is_found_by_its_name() {
        for k in Kind::ALL {
            assert_eq!(Kind::from_name(k.name()), Some(k));
            assert_eq!(Kind::of_unit(&format!("{k}@500")), Some(k));
            assert_eq!(Kind::of_unit(&format!("{k}/256")), Some(k));
            assert_eq!(serde_json::to_string(&k).ok(), Some(format!("\"{}\"", k.name())));
        }
    }
}

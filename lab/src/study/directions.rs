//! Throughput in six directions (the partition study's table 4): between a place with a network card, one without, which reaches the network
//! through the first alone, and a host outside. Streams and datagrams, by our own client and by iperf3.
//!
//! Natively the three are network namespaces in a chain, and the middle one forwards. In levee's compartment there are two of the six: it is the place
//! with a card, a single-level network, and the host is on that network. In levee's partitions there are all: one has the card, the other a link that
//! forwards ([`Split`]).

use super::nodes::{BETWEEN, CARD, IPERF3, Node, PORT, iperf3, role, serving};
use super::split::Split;
use super::{CONGESTION, Measured, task};
use crate::client::Target;
use crate::experiment::{Drive, Mediation, Path as Way};
use crate::levee::{Levee, Variant};
use crate::netns::{Namespace, pin_congestion, tool};
use crate::operate::text;
use crate::place::{Home, Place};
use crate::run::client;
use crate::server::{Server, serve_as};
use crate::station::{Job, ask};
use crate::workload::{Kind, Outcome, Task};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// What rows of this kind begin with.
pub(super) const PREFIX: &str = "net/";

/// What a trial counts that tried something else first.
const REFUSED: &str = "tries at what the site does not list, refused";

/// The bare service in the compartment, reached over its single-level network.
const DRIVE: Drive =
    Drive { path: Way::Link, mediation: Mediation::Direct, session: Home::Here, before: false };

/// A row: who sends, who receives, and what.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row<'a> {
    from: Node,
    to: Node,
    /// iperf3, instead of our own client.
    is_iperf3: bool,
    /// Octets of a datagram; none: a stream.
    datagram: Option<usize>,
    id: &'a str,
}

impl<'a> Row<'a> {
    /// `net/FROM-TO/tcp`, `net/FROM-TO/udp-OCTETS`, and with `iperf3-` before what is sent.
    fn of(id: &'a str) -> io::Result<Row<'a>> {
        let wrong = || io::Error::other(format!("no row is called {id:?}"));
        let (ends, what) = id.strip_prefix(PREFIX).and_then(|r| r.split_once('/')).ok_or_else(wrong)?;
        let (from, to) = ends.split_once('-').ok_or_else(wrong)?;
        let own = what.strip_prefix("iperf3-");
        let datagram = match own.unwrap_or(what) {
            "tcp" => None,
            udp => Some(udp.strip_prefix("udp-").and_then(|n| n.parse().ok()).ok_or_else(wrong)?),
        };
        Ok(Row { from: Node::of(from)?, to: Node::of(to)?, is_iperf3: own.is_some(), datagram, id })
    }

    /// Whether the receiver opens the connection. The host outside always does, in levee as natively: a service of levee's opens none to a network.
    fn is_fetched(self) -> bool {
        (self.from, self.to, self.datagram) == (Node::Networked, Node::Dev, None)
    }

    /// Who opens the connection, and who answers.
    fn ends(self) -> (Node, Node) {
        if self.is_fetched() { (self.to, self.from) } else { (self.from, self.to) }
    }
}

/// The three namespaces in a chain. Fields drop in order.
struct Chain {
    servers: Vec<Server>,
    _iperf3: Vec<Server>,
    nodes: [Namespace; 3],
}

impl Chain {
    fn start() -> io::Result<Chain> {
        let nodes = [Namespace::new("nd")?, Namespace::new("nn")?, Namespace::new("nu")?];
        let [dev, networked, unprivileged] = &nodes;
        for node in &nodes {
            // so that a device on no row's way passes nothing
            node.sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
            node.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        }
        dev.link(networked, CARD[0], CARD[1], "card")?;
        networked.link(unprivileged, BETWEEN[0], BETWEEN[1], "between")?;
        networked.sysctl("net/ipv4/ip_forward", "1")?;
        for (node, via) in [(dev, CARD[1]), (unprivileged, BETWEEN[0])] {
            tool("ip", &["-n", &node.name, "route", "add", "default", "via", &via.to_string()])?;
        }
        let (mut servers, mut others) = (Vec::new(), Vec::new());
        for node in &nodes {
            pin_congestion(&node.path(), CONGESTION)?;
            let (all, close) = (format!("0.0.0.0:{PORT}"), format!("0.0.0.0:{}", PORT + 1));
            let args = ["--listen", &all, "--close", &close, "--congestion", CONGESTION];
            servers.push(serve_as(&role(node.path(), serving()), &args)?);
            others.push(iperf3(&node.path())?);
        }
        Ok(Chain { servers, _iperf3: others, nodes })
    }

    /// From whose network what is at which address, and the index of its server.
    fn between(&self, opens: Node, answers: Node) -> (PathBuf, Ipv4Addr, usize) {
        let at = match (opens, answers) {
            (_, Node::Dev) => CARD[0],
            (Node::Dev, Node::Networked) => CARD[1],
            (_, Node::Networked) => BETWEEN[0],
            (_, Node::Unprivileged) => BETWEEN[1],
        };
        (self.nodes[opens as usize].path(), at, answers as usize)
    }
}

/// levee, and iperf3 in the network of its compartment. Fields drop in order.
struct Inside {
    _iperf3: Server,
    levee: Levee,
}

impl Inside {
    fn start() -> io::Result<Inside> {
        let levee =
            Levee::start(&[DRIVE], CONGESTION, None, Variant { part: "vn", ..Variant::default() }, None)?;
        let (_, _, init) = levee.place(DRIVE)?;
        let net = PathBuf::from(format!("/proc/{init}/ns/net"));
        // iperf3 is no service of the site: without this the label's packet filter lets nobody in to it
        let (enter, port) = (format!("--net={}", text(&net)), IPERF3.to_string());
        let rule = ["nft", "insert", "rule", "inet", "levee", "input", "tcp", "dport", &port, "accept"];
        tool("nsenter", &[&[enter.as_str()], &rule[..]].concat())?;
        Ok(Inside { _iperf3: iperf3(&net)?, levee })
    }
}

/// What stands for these rows. Fields drop in order.
#[derive(Default)]
pub(super) struct Directions {
    chain: Option<Chain>,
    inside: Option<Inside>,
    /// Of the arm `partition`, whose other rows are this server's, too: a host has room for few.
    pub(super) split: Option<Split>,
}

/// Who makes a trial.
enum Client {
    /// A program of the laboratory's, in a network of its own or in levee's.
    Ours(Place),
    /// A partition's own program, in this network.
    Theirs(PathBuf, Target),
}

impl Directions {
    /// Builds what these arms need.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn build(&mut self, arms: &[&str]) -> io::Result<()> {
        let has = |arm| arms.contains(&arm);
        self.chain = has("native").then(Chain::start).transpose()?;
        self.inside = has("compartment").then(Inside::start).transpose()?;
        Ok(())
    }

    /// Where the one who opens is, and what answers; the port of iperf3 there.
    fn way(&self, arm: &str, row: Row) -> io::Result<(Client, u16)> {
        let (opens, answers) = row.ends();
        let (netns, target, server) = match (arm, &self.chain, &self.inside, &self.split) {
            ("native", Some(chain), ..) => {
                let (netns, at, index) = chain.between(opens, answers);
                let at = |port: u16| SocketAddr::from((at, port));
                (netns, Target { all: at(PORT), close: at(PORT + 1) }, chain.servers[index].id())
            }
            ("compartment", _, Some(inside), _) if (opens, answers) == (Node::Dev, Node::Networked) => {
                inside.levee.keep_services_on(serving())?;
                inside.levee.place(DRIVE)?
            }
            ("partition", .., Some(split)) => {
                let (target, iperf3) = split.target(opens, answers);
                if opens != Node::Dev {
                    return Ok((Client::Theirs(split.network(opens), target), iperf3));
                }
                let role = role(split.network(opens), 0);
                let (sources, server) = (Vec::new(), std::process::id());
                let place = Place { role, target, sources, server, tunnel: false, levee: None };
                return Ok((Client::Ours(place), iperf3));
            }
            _ => return Err(io::Error::other(format!("{arm} has no way for {}", row.id))),
        };
        let levee = (arm == "compartment").then_some((Home::Here, false));
        let place = Place { role: role(netns, 0), target, sources: Vec::new(), server, tunnel: false, levee };
        Ok((Client::Ours(place), IPERF3))
    }

    /// Packets, both ways, at the card and between the two places, by the devices of those at their ends.
    fn passed(&self, arm: &str) -> io::Result<[f64; 2]> {
        let of = |netns: &Path, device: &str| -> io::Result<f64> {
            let net = format!("--net={}", text(netns));
            let said = tool("nsenter", &[&net, "ip", "-s", "-j", "link", "show", "dev", device])?;
            let said: serde_json::Value = serde_json::from_str(&said)?;
            let number = |at| said.pointer(at).and_then(serde_json::Value::as_f64);
            let both = number("/0/stats64/rx/packets").zip(number("/0/stats64/tx/packets"));
            both.map(|(a, b)| a + b).ok_or_else(|| io::Error::other("ip does not say what a device passed"))
        };
        match (arm, &self.chain, &self.inside, &self.split) {
            ("native", Some(chain), ..) => {
                Ok([of(&chain.nodes[0].path(), "card")?, of(&chain.nodes[2].path(), "between")?])
            }
            ("partition", .., Some(split)) => {
                let [card, between] = [Node::Dev, Node::Unprivileged].map(|node| split.network(node));
                Ok([of(&card, "card")?, of(&between, "between")?])
            }
            (_, _, Some(inside), _) => Ok([of(&inside.levee.place(DRIVE)?.0, "edge")?, 0.0]),
            _ => Err(io::Error::other("the arm was not built")),
        }
    }

    /// One trial.
    ///
    /// # Errors
    /// When the arm has no such way, or nothing came over it.
    pub(super) fn measure(&self, arm: &str, id: &str, seconds: f64) -> io::Result<Measured> {
        let row = Row::of(id)?;
        let (way, port) = self.way(arm, row)?;
        let (opens, answers) = row.ends();
        let split = self.split.as_ref().filter(|_| arm == "partition");
        let refused = split.map(|split| split.refuses(opens, answers)).transpose()?;
        let before = self.passed(arm)?;
        let rate = if row.is_iperf3 { by_iperf3(&way, port, row)? } else { own(&way, row, seconds)? };
        let after = self.passed(arm)?;
        let names = ["packets at the card", "packets between the two places"];
        let counted = names.into_iter().zip(after.into_iter().zip(before));
        let mut counted: BTreeMap<String, f64> =
            counted.map(|(name, (after, before))| (name.to_owned(), after - before)).collect();
        counted.extend(refused.map(|refused| (REFUSED.to_owned(), refused)));
        Ok(Measured { seconds: 8e-6 / rate, preempted: None, counted })
    }
}

/// 10^6 bit/s.
fn own(way: &Client, row: Row, seconds: f64) -> io::Result<f64> {
    let kind = match row.datagram {
        Some(_) => Kind::UdpStream,
        None if row.is_fetched() => Kind::TcpMaerts,
        None => Kind::TcpStream,
    };
    let usual = task(kind, seconds);
    let task = Task { datagram: row.datagram.unwrap_or(usual.datagram), ..usual };
    match way {
        Client::Ours(place) => Ok(client(place, &task)?.value),
        Client::Theirs(network, target) => {
            let job = Job::Client { task, all: target.all, close: target.close, cpu: 0 };
            let outcome: Outcome = serde_json::from_str(&ask(network, &job)?)?;
            Ok(outcome.value)
        }
    }
}

/// 10^6 bit/s that came, of a second: iperf3 counts whole ones.
fn by_iperf3(way: &Client, port: u16, row: Row) -> io::Result<f64> {
    let to = match way {
        Client::Ours(place) => place.target,
        Client::Theirs(_, target) => *target,
    };
    let (at, port, size) =
        (to.all.ip().to_string(), port.to_string(), row.datagram.unwrap_or_default().to_string());
    let mut args = vec!["-c", &at, "-p", &port, "-t", "1", "-J"];
    match row.datagram {
        Some(_) => args.extend(["-u", "-b", "0", "-l", &size]),
        None => args.extend(["-C", CONGESTION]),
    }
    args.extend(row.is_fetched().then_some("-R"));
    let said = match way {
        Client::Ours(place) => {
            let net =
                place.role.netns.as_ref().ok_or_else(|| io::Error::other("a client without a network"))?;
            tool("nsenter", &[&[&format!("--net={}", text(net)), "iperf3"], &args[..]].concat())?
        }
        Client::Theirs(network, _) => {
            ask(network, &Job::Iperf3(args.into_iter().map(str::to_owned).collect()))?
        }
    };
    read(&said, row.datagram.is_some()).ok_or_else(|| io::Error::other("iperf3 does not say what it should"))
}

/// 10^6 bit/s that the receiver had, in what iperf3 says.
fn read(said: &str, is_datagrams: bool) -> Option<f64> {
    let said: serde_json::Value = serde_json::from_str(said).ok()?;
    let number = |at| said.pointer(at).and_then(serde_json::Value::as_f64);
    let rate = if is_datagrams {
        // its sum is what was sent
        number("/end/sum/bits_per_second")? * (1.0 - number("/end/sum/lost_percent")? / 100.0)
    } else {
        number("/end/sum_received/bits_per_second")?
    };
    Some(rate / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_name_says_who_sends_to_whom_and_what() {
        let row = Row::of("net/uvm-dev/iperf3-udp-1400").expect("a row");
        let (from, to) = (Node::Unprivileged, Node::Dev);
        assert_eq!((row.from, row.to, row.is_iperf3, row.datagram), (from, to, true, Some(1400)));
        assert!(!row.is_fetched() && Row::of("net/nvm-dev/tcp").expect("a row").is_fetched());
        for wrong in ["net/uvm/tcp", "net/uvm-moon/tcp", "net/uvm-dev/sctp", "net/uvm-dev/udp-", "stat"] {
            assert!(Row::of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_iperf3_says_is_what_the_receiver_had() {
        let stream =
            r#"{"end": {"sum_sent": {"bits_per_second": 9e6}, "sum_received": {"bits_per_second": 8e6}}}"#;
        assert_eq!(read(stream, false), Some(8.0));
        let datagrams = r#"{"end": {"sum": {"bits_per_second": 8e6, "lost_percent": 25.0}}}"#;
        assert_eq!(read(datagrams, true), Some(6.0));
        assert_eq!(read(r#"{"error": "refused"}"#, false), None);
    }
}

//! levee's part of the study of directions that are six: two partitions, of which one has the network card and the other has a link to it, and a host
//! on the card's network. What passes is what the site lists, and each trial tries something that it does not.

use super::CONGESTION;
use super::nodes::{BETWEEN, CARD, IPERF3, Node, PORT, iperf3, role, serving};
use crate::client::Target;
use crate::netns::{Namespace, inside, pin_congestion, tool};
use crate::operate::{Removed, text, this_program, wait_for};
use crate::partitions::{LABEL, Partition, Partitions, USUAL};
use crate::server::{Server, serve_as};
use crate::station::{ANSWERED, Job, Station, answers, ask};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Of the partition behind: hosts outside reach both under one address, so that none of its ports may be the other's.
const BEHIND: u16 = 10;

/// The ports of what answers in a node: of the workloads, and of iperf3.
fn ports(node: Node) -> [u16; 2] {
    match node {
        Node::Unprivileged => [PORT + BEHIND, IPERF3 + BEHIND],
        Node::Dev | Node::Networked => [PORT, IPERF3],
    }
}

/// Its network, link and what these let pass: the workloads' port and iperf3's, in each direction, and no other.
fn tables() -> String {
    let both = |entry: &dyn Fn(u16, &str) -> String, ports: [u16; 2]| -> String {
        let each = ports.iter().flat_map(|port| ["tcp", "udp"].map(|protocol| entry(*port, protocol)));
        each.collect::<Vec<_>>().join(", ")
    };
    let port = |port: u16, protocol: &str| format!("{{ port = {port}, protocol = \"{protocol}\" }}");
    let host = |port: u16, protocol: &str| {
        format!("{{ address = \"{}\", port = {port}, protocol = \"{protocol}\" }}", CARD[0])
    };
    let (of_card, of_link) = (both(&port, ports(Node::Networked)), both(&port, ports(Node::Unprivileged)));
    let hosts = both(&host, ports(Node::Dev));
    format!(
        "[[network]]\ninterface = \"card\"\nlabel = \"{LABEL}\"\npartition = \"nvm\"\naddress = \"{}/24\"\nports = [{of_card}]\n\
         hosts = [{hosts}]\n\n[[link]]\nname = \"between\"\nbetween = [\"nvm\", \"uvm\"]\naddresses = [\"{}/24\", \"{}/24\"]\n\
         ports = [{of_link}]\nhosts = [{hosts}]\n",
        CARD[1], BETWEEN[0], BETWEEN[1]
    )
}

/// The three. Fields drop in order.
pub(super) struct Split {
    _servers: [Server; 2],
    /// The networks of the two partitions.
    networks: [PathBuf; 2],
    pub(super) partitions: Partitions,
    dev: Namespace,
    _program: Option<Removed>,
}

impl Split {
    /// With these partitions besides, which have no network but their own.
    pub(super) fn start(others: &[Partition]) -> io::Result<Split> {
        let (program, copy) = this_program()?;
        let (space, dev) = (Namespace::new("xu")?, Namespace::new("xd")?);
        space.link(&dev, CARD[1], CARD[0], "card")?;
        dev.sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
        // Who would go round the rules knows the way.
        tool(
            "ip",
            &["-n", &dev.name, "route", "add", &format!("{}/32", BETWEEN[1]), "via", &CARD[1].to_string()],
        )?;
        let partition = |name, node| {
            let [port, other] = ports(node);
            let words = Station::words(port, other, serving());
            let command = [vec![text(&program)], words].concat();
            Partition { name, command, software: vec!["iperf3".into()], weight: USUAL }
        };
        let both = [partition("nvm", Node::Networked), partition("uvm", Node::Unprivileged)];
        let partitions = Partitions::start("x", space, &[&both, others].concat(), &tables(), None)?;
        let networks = [partitions.network("nvm")?, partitions.network("uvm")?];
        let (all, close) = (format!("0.0.0.0:{PORT}"), format!("0.0.0.0:{}", PORT + 1));
        let args = ["--listen", &all, "--close", &close, "--congestion", CONGESTION];
        let servers = [serve_as(&role(dev.path(), serving()), &args)?, iperf3(&dev.path())?];
        let split = Split { _servers: servers, networks, partitions, dev, _program: copy };
        // All that is to be refused is there for whoever is allowed to it.
        for (opens, answering) in [
            (Node::Dev, Node::Networked),
            (Node::Dev, Node::Unprivileged),
            (Node::Networked, Node::Dev),
            (Node::Unprivileged, Node::Networked),
        ] {
            let Some(at) = unlisted(opens, answering) else { continue };
            let (network, what) = (split.network(answering), format!("{at} of {answering:?}"));
            wait_for(&what, || inside(&network, move || Ok(answers(at))).ok().filter(|is| *is))?;
        }
        for node in [Node::Dev, Node::Networked, Node::Unprivileged] {
            pin_congestion(&split.network(node), CONGESTION)?;
        }
        Ok(split)
    }

    pub(super) fn network(&self, node: Node) -> PathBuf {
        match node {
            Node::Dev => self.dev.path(),
            Node::Networked => self.networks[0].clone(),
            Node::Unprivileged => self.networks[1].clone(),
        }
    }

    /// Where what answers is for who opens; and the port of its iperf3.
    pub(super) fn target(&self, opens: Node, answers: Node) -> (Target, u16) {
        let at = match (opens, answers) {
            (_, Node::Dev) => CARD[0],
            (Node::Dev, _) => CARD[1],
            (_, Node::Networked) => BETWEEN[0],
            (_, Node::Unprivileged) => BETWEEN[1],
        };
        let [port, iperf3] = ports(answers);
        let at = |port: u16| SocketAddr::from((at, port));
        (Target { all: at(port), close: at(port + 1) }, iperf3)
    }

    /// Tries what the site does not list from the one who opens to the one who answers; how many tries were refused.
    ///
    /// # Errors
    /// When one was not.
    pub(super) fn refuses(&self, opens: Node, answering: Node) -> io::Result<f64> {
        let Some(at) = unlisted(opens, answering) else { return Ok(0.0) };
        let network = self.network(opens);
        let is_answered = match opens {
            Node::Dev => inside(&network, move || Ok(answers(at)))?,
            Node::Networked | Node::Unprivileged => ask(&network, &Job::Try(at))? == ANSWERED,
        };
        if is_answered {
            return Err(io::Error::other(format!(
                "the site does not list {at} for {opens:?}, and it answered"
            )));
        }
        Ok(1.0)
    }
}

/// What somebody listens at, and the site does not list for who opens: another port; another's own address, by a way round; the card's address
/// from behind. Over the link the two reach each other at any port: for that there is nothing.
fn unlisted(opens: Node, answering: Node) -> Option<SocketAddr> {
    let [port, _] = ports(answering);
    let at = match (opens, answering) {
        (Node::Dev, Node::Unprivileged) => (BETWEEN[1], port),
        (Node::Dev, _) => (CARD[1], port + 1),
        (_, Node::Dev) => (CARD[0], port + 1),
        (Node::Unprivileged, _) => (CARD[1], port),
        (Node::Networked, _) => return None,
    };
    Some(at.into())
}

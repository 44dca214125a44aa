//! Single-level networks: an interface of the host that belongs to one label, in that label's namespace, or to one partition, in the
//! partition's. And the ends of labelled networks' wires in labels' namespaces ([`crate::labelled`]).
//!
//! The namespace is pinned by a mount in the run directory. A namespace that nothing holds dies, and returns its
//! interface to the host's network, where it would carry another level's traffic; so the pin outlives compartment and
//! warden, and a warden that starts after one that was killed takes the namespace up again. Only [`Attached::detach`]
//! gives an interface back, and sets it down first. A partition's interface is up while the partition runs, and down in the
//! partition's namespace while it does not.

use crate::compartment::{Network as Namespace, set};
use crate::edges::{self, CHANNEL, Edge, Edges, NETWORK, PARTITION, TUNNEL};
use crate::labelled::wire::{self, LabelledWire};
use crate::options::Options;
use crate::pinned::{self, Pinned};
use crate::rules::{Counts, Rules};
use crate::waits::Waits;
use crate::wires::ChannelWire;
use crate::{log, state};
use levee_policy::site::Network;
use levee_policy::{ChannelName, Label, LabelName, Site};
use levee_sys::{Error, Result, ns};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Labels that one network has at most, as the site file's check has it.
const MOST: u64 = 64;

/// One label's networks, or one partition's, in its namespace.
#[derive(Debug)]
pub struct Attached {
    label: Label,
    edges: Edges,
    place: Pinned,
    /// What was dropped: of each interface, for each reason.
    counts: Counts,
}

/// All interfaces of the host to whom the site gives them.
#[derive(Debug)]
pub struct Networks {
    outer: OwnedFd,
    rules: Rules,
    attached: BTreeMap<LabelName, Attached>,
    wires: Vec<LabelledWire>,
    /// Those of one-way channels.
    channels: Vec<ChannelWire>,
}

impl Networks {
    /// Attaches every network of the site, and every one-way channel's wire, whose interfaces are in the caller's network namespace or, after
    /// a warden that was killed, in one that is pinned below the run directory. Each channel must have a key in the state directory. `text` is the site file's.
    ///
    /// # Errors
    /// The first that could not be attached; then none is, and every interface is back and down.
    pub fn attach(site: &Site, text: &str, options: &Options) -> Result<Self> {
        let (run, rules) = (&options.run, Rules::new(text, &options.programs));
        let (attached, wires, channels) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut networks = Self { outer: ns::current_net()?, rules, attached, wires, channels };
        let done = networks.attach_all(site, run);
        match done.and_then(|()| networks.attach_channels(site, &run.join(state::WIRES), &options.state)) {
            Ok(()) => Ok(networks),
            Err(e) => {
                networks.detach();
                Err(e)
            }
        }
    }

    fn attach_all(&mut self, site: &Site, run: &Path) -> Result<()> {
        let outer = self.outer.try_clone().map_err(|e| Error::new("keep a network namespace", e))?;
        let (pins, labelled) = (&run.join(state::NETWORKS), &run.join(state::LABELLED));
        let wired = || site.networks().iter().enumerate().filter(|(_, network)| network.domain().is_some());
        let interfaces: Vec<&str> = wired().map(|(_, network)| network.interface().as_str()).collect();
        wire::clear(labelled, &interfaces, outer.as_fd())?;
        let too_many = || Error::invalid("list a network's labels", "there are too many");
        let mut wanted: BTreeMap<LabelName, Label> = BTreeMap::new();
        for partition in site.partitions() {
            wanted.insert(edges::name(PARTITION, partition.name())?, partition.label().clone());
        }
        for network in site.networks().iter().filter(|network| network.partition().is_none()) {
            let labels = network.labels().labels(MOST).ok_or_else(too_many)?;
            wanted.extend(labels.filter_map(|label| Some((site.label_name(&label)?, label))));
        }
        wanted.retain(|name, _| Edges::named(site, name).is_some());
        let names: Vec<String> = wanted.keys().map(LabelName::file_name).collect();
        pinned::release_others(pins, &names, outer.as_fd())?;
        for (name, label) in wanted {
            let attached = Attached::attach(site, &self.rules, &name, &label, outer.as_fd(), pins)?;
            self.attached.extend(attached.map(|attached| (name, attached)));
        }
        for network in wired() {
            self.attach_wire(site, network, labelled)?;
        }
        Ok(())
    }

    fn attach_channels(&mut self, site: &Site, pins: &Path, state: &Path) -> Result<()> {
        let with = || site.channels().iter().filter_map(|channel| Some((channel, channel.wire()?)));
        let names =
            with().map(|(channel, _)| edges::name(CHANNEL, channel.name())).collect::<Result<Vec<_>>>()?;
        let files: Vec<String> = names.iter().map(LabelName::file_name).collect();
        pinned::release_others(pins, &files, self.outer.as_fd())?;
        for ((channel, wire), name) in with().zip(names) {
            let place = Pinned::open(pins.join(name.file_name()))?;
            let wire =
                ChannelWire::attach(&self.rules, (channel, wire), name, place, self.outer.as_fd(), state);
            self.channels.push(wire?);
        }
        Ok(())
    }

    /// The socket of a one-way channel's wire.
    pub fn socket(&self, channel: &ChannelName) -> Option<BorrowedFd<'_>> {
        self.channels.iter().find(|one| one.channel == *channel).map(|one| one.socket.as_fd())
    }

    /// The rules are in the labels' namespaces: now the wires to them, and the interface last of all.
    fn attach_wire(&mut self, site: &Site, (place, network): (usize, &Network), pins: &Path) -> Result<()> {
        let no_domain = || Error::invalid("part a network's packets", "its domain is not the site's");
        let domain = network.domain().and_then(|doi| site.domain(doi)).ok_or_else(no_domain)?;
        let edge = Edge::of(site, network, network.labels().low());
        let labels = u32::try_from(MOST).unwrap_or(u32::MAX);
        let wire = LabelledWire::take(&edge, domain, labels, self.outer.as_fd(), pins)?;
        self.wires.push(wire);
        let Some(wire) = self.wires.last_mut() else { return Ok(()) };
        self.rules.load(&edges::name(NETWORK, place)?, wire.ns())?;
        let at = |one: &&Attached| !one.is_partitions() && network.labels().contains(&one.label);
        for attached in self.attached.values().filter(at) {
            wire.lay(&attached.label, attached.place.ns())?;
            attached.raise(&edge)?;
        }
        wire.raise(&edge)
    }

    /// What the programs of labelled networks and the rules of one-way channels dropped, for operators; what cannot be read is left out.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let of = |wire: &LabelledWire| {
            wire.counters().unwrap_or_else(|e| {
                log!("{}: {e}", wire.interface());
                Vec::new()
            })
        };
        self.wires
            .iter()
            .flat_map(of)
            .chain(self.channels.iter().flat_map(|one| one.counts.counted.clone()))
            .collect()
    }

    /// Has what rules dropped read again, where that does not go on already.
    pub fn count(&mut self, waits: &mut Waits) {
        for (name, Attached { counts, place, .. }) in &mut self.attached {
            counts.begin(&self.rules, name, place.ns(), waits);
        }
        for ChannelWire { counts, name, place, .. } in &mut self.channels {
            counts.begin(&self.rules, name, place.ns(), waits);
        }
    }

    /// Takes what has been read.
    pub fn counted(&mut self) {
        self.attached.iter_mut().for_each(|(name, one)| one.counts.take(name));
        self.channels.iter_mut().for_each(|one| one.counts.take(&one.name));
    }

    /// A label's networks, or a partition's by the name that begins with [`PARTITION`], if it has any.
    pub fn at(&self, name: &LabelName) -> Option<&Attached> {
        self.attached.get(name)
    }

    /// Labels whose services hosts on a network use, whether or not there is a session.
    pub fn serving(&self) -> impl Iterator<Item = &LabelName> {
        self.attached.iter().filter(|(_, attached)| attached.serves()).map(|(name, _)| name)
    }

    /// Gives every interface back, down. What runs in the labels must have ended.
    pub fn detach(&mut self) {
        // First, so that no end of a wire is in a label's namespace.
        for wire in std::mem::take(&mut self.wires) {
            if let Err(e) = wire.take_away(self.outer.as_fd()) {
                log!("{}: the interface stays in its namespace: {e}", wire.interface());
            }
        }
        let attached = std::mem::take(&mut self.attached).into_iter().map(|(name, one)| (name, one.place));
        let channels = std::mem::take(&mut self.channels).into_iter().map(|one| (one.name, one.place));
        for (name, place) in attached.chain(channels) {
            if let Err(e) = place.release(self.outer.as_fd()) {
                log!("{name}: its interface stays in its namespace: {e}");
            }
        }
    }
}

impl Attached {
    /// Moves the interfaces of a label's networks, or of a partition's, from the namespace `outer` into its own, pinned in the
    /// directory `pins`. `None` if the site has neither network nor link there.
    ///
    /// # Errors
    /// The step that failed; then no interface is in the label's namespace.
    pub fn attach(
        site: &Site,
        by: &Rules,
        name: &LabelName,
        label: &Label,
        outer: BorrowedFd<'_>,
        pins: &Path,
    ) -> Result<Option<Self>> {
        let Some(edges) = Edges::named(site, name) else { return Ok(None) };
        let place = Pinned::open(pins.join(name.file_name()))?;
        let attached = Self { label: label.clone(), edges, place, counts: Counts::default() };
        match attached.take(by, name, outer) {
            Ok(()) => Ok(Some(attached)),
            Err(e) => {
                if let Err(e) = attached.detach(outer) {
                    log!("{e}");
                }
                Err(e)
            }
        }
    }

    fn is_partitions(&self) -> bool {
        self.edges.partition.is_some()
    }

    /// Whether hosts on the networks may reach any service of the label's.
    pub fn serves(&self) -> bool {
        !self.is_partitions() && self.edges.networks.iter().any(|edge| !edge.services.is_empty())
    }

    /// The rules first, then the interfaces: nothing passes that the rules do not let pass.
    fn take(&self, by: &Rules, name: &LabelName, outer: BorrowedFd<'_>) -> Result<()> {
        self.network()?;
        by.load(name, self.place.ns())?;
        if self.is_partitions() {
            // Links are left of a warden that was killed.
            self.close()?;
        }
        for edge in self.edges.networks.iter().filter(|edge| !edge.is_labelled) {
            self.place.take(outer, edge.interface.as_str(), name)?;
            // A partition's is down until the partition starts.
            if !self.is_partitions() {
                self.raise(edge)?;
            }
        }
        Ok(())
    }

    /// Sets a partition's interfaces up: it starts.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(&self) -> Result<()> {
        self.edges.networks.iter().try_for_each(|edge| self.raise(edge))
    }

    /// Sets a partition's interfaces down and removes its links: it has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn close(&self) -> Result<()> {
        pinned::down(self.place.ns()).map(drop)
    }

    /// Sets an interface up that is in the namespace, with its addresses.
    fn raise(&self, edge: &Edge) -> Result<()> {
        let name = edge.interface.as_str();
        set(
            self.place.ns(),
            &[
                // Answer for this interface's addresses alone, not for the inner ones.
                (format!("ipv4/conf/{name}/arp_ignore"), "1"),
                (format!("ipv4/conf/{name}/arp_announce"), "2"),
                (format!("ipv4/conf/{name}/rp_filter"), "1"),
            ],
        )?;
        pinned::raise(&mut self.place.net()?, name, &edge.addresses)
    }

    /// The namespace, with the settings of every compartment; once the tunnel is in it, call [`Attached::forward`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn network(&self) -> Result<Namespace> {
        self.place.network()
    }

    /// Lets the kernel carry packets between the tunnel and the networks with listed hosts, within the rules.
    ///
    /// # Errors
    /// The kernel's.
    pub fn forward(&self) -> Result<()> {
        let mut settings = Vec::new();
        for edge in self.edges.networks.iter().filter(|edge| !edge.hosts.is_empty()) {
            for name in [edge.interface.as_str(), TUNNEL] {
                settings.push((format!("ipv4/conf/{name}/forwarding"), "1"));
            }
            if edge.hosts.iter().any(|host| host.address.is_ipv6()) {
                // IPv6 knows only one switch for all.
                settings.push(("ipv6/conf/all/forwarding".to_owned(), "1"));
            }
        }
        set(self.place.ns(), &settings)
    }

    /// What was dropped, as it was counted last; what is 0 is left out.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.counts.counted.clone()
    }

    /// Sets the interfaces down, gives them back to the namespace `outer`, and unpins the label's own. What runs in
    /// it must have ended.
    ///
    /// # Errors
    /// The first that could not be given back; then it stays where it is, and the namespace stays pinned.
    pub fn detach(&self, outer: BorrowedFd<'_>) -> Result<()> {
        self.place.release(outer)
    }
}

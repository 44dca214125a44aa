//! Single-level networks: an interface of the host that belongs to one label, in that label's namespace, or to one partition, in the
//! partition's. And the ends of labelled networks' wires in labels' namespaces ([`crate::labelled`]).
//!
//! The namespace is pinned by a mount in the run directory. A namespace that nothing holds dies, and returns its
//! interface to the host's network, where it would carry another level's traffic; so the pin outlives compartment and
//! warden, and a warden that starts after one that was killed takes the namespace up again. Only [`Attached::detach`]
//! gives an interface back, and sets it down first. A partition's interface is up while the partition runs, and down in the
//! partition's namespace while it does not.

use crate::compartment::Network as Namespace;
use crate::labelled::wire::{self, Wire};
use crate::log;
use crate::rules::{Counting, Rules};
use crate::ruleset::{Edge, NETWORK, PARTITION, Reason, Ruleset, TUNNEL};
use crate::waits::Waits;
use levee_policy::site::{Link, Network};
use levee_policy::{Label, LabelName, PartitionName, Site};
use levee_sys::net::Net;
use levee_sys::{Error, Result, ns};
use rustix::fs::fstatfs;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The kernel's `NSFS_MAGIC`: what a pinned namespace is a file of.
const NSFS: u64 = 0x6e73_6673;

/// The group of the interfaces that levee makes for links ("leve"): they go with the partitions, and are never given to the host.
pub(crate) const LINKS: u32 = 0x6c65_7665;

/// Labels that one network has at most, as the site file's check has it.
const MOST: u64 = 64;

/// One label's networks, or one partition's, in its namespace.
#[derive(Debug)]
pub struct Attached {
    label: Label,
    rules: Ruleset,
    ns: OwnedFd,
    pin: PathBuf,
    /// What was dropped when that was read last: of each interface, for each reason.
    counted: Vec<u64>,
}

/// All single-level networks of a site.
#[derive(Debug)]
pub struct Networks {
    outer: OwnedFd,
    rules: Rules,
    attached: BTreeMap<LabelName, Attached>,
    wires: Vec<Wire>,
    /// The labels whose rules are being read.
    counting: BTreeMap<LabelName, Counting>,
}

/// Below the directory of pins: the namespaces of labelled networks. No label has such a name.
const LABELLED: &str = "labelled";

impl Networks {
    /// Attaches every network of the site, whose interfaces are in the caller's network namespace or, after a warden
    /// that was killed, in one that is pinned in the directory `pins`.
    ///
    /// # Errors
    /// The first that could not be attached; then none is, and every interface is back and down.
    pub fn attach(site: &Site, rules: Rules, pins: &Path) -> Result<Self> {
        let (attached, wires, counting) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut networks = Self { outer: ns::current_net()?, rules, attached, wires, counting };
        match networks.attach_all(site, pins) {
            Ok(()) => Ok(networks),
            Err(e) => {
                networks.detach();
                Err(e)
            }
        }
    }

    fn attach_all(&mut self, site: &Site, pins: &Path) -> Result<()> {
        let outer = self.outer.try_clone().map_err(|e| Error::new("keep a network namespace", e))?;
        let labelled = pins.with_file_name(LABELLED);
        let wired = || site.networks().iter().enumerate().filter(|(_, network)| network.domain().is_some());
        let interfaces: Vec<&str> = wired().map(|(_, network)| network.interface().as_str()).collect();
        wire::clear(&labelled, &interfaces, outer.as_fd())?;
        let too_many = || Error::invalid("list a network's labels", "there are too many");
        let mut wanted: BTreeMap<LabelName, Label> = BTreeMap::new();
        for partition in site.partitions().iter().filter(|one| has_interfaces(site, one.name())) {
            let name = LabelName::new(&format!("{PARTITION}{}", partition.name()));
            let name = name.map_err(|e| Error::invalid("name a partition", e.to_string()))?;
            wanted.insert(name, partition.label().clone());
        }
        for network in site.networks().iter().filter(|network| network.partition().is_none()) {
            let labels = network.labels().labels(MOST).ok_or_else(too_many)?;
            wanted.extend(labels.filter_map(|label| Some((site.label_name(&label)?, label))));
        }
        give_back_others(pins, &wanted.keys().cloned().collect::<Vec<_>>(), outer.as_fd())?;
        for (name, label) in wanted {
            let attached = Attached::attach(site, &self.rules, &name, &label, outer.as_fd(), pins)?;
            self.attached.extend(attached.map(|attached| (name, attached)));
        }
        for network in wired() {
            self.attach_wire(site, network, &labelled)?;
        }
        Ok(())
    }

    /// The rules are in the labels' namespaces: now the wires to them, and the interface last of all.
    fn attach_wire(&mut self, site: &Site, (place, network): (usize, &Network), pins: &Path) -> Result<()> {
        let no_domain = || Error::invalid("part a network's packets", "its domain is not the site's");
        let domain = network.domain().and_then(|doi| site.domain(doi)).ok_or_else(no_domain)?;
        let edge = Edge::of(site, network, network.labels().low());
        let labels = u32::try_from(MOST).unwrap_or(u32::MAX);
        let wire = Wire::take(&edge, domain, labels, self.outer.as_fd(), pins)?;
        self.wires.push(wire);
        let Some(wire) = self.wires.last_mut() else { return Ok(()) };
        let name = LabelName::new(&format!("{NETWORK}{place}"));
        self.rules.load(&name.map_err(|e| Error::invalid("name a network", e.to_string()))?, wire.ns())?;
        let at = |one: &&Attached| !one.is_partitions() && network.labels().contains(&one.label);
        for attached in self.attached.values().filter(at) {
            wire.lay(&attached.label, attached.ns.as_fd())?;
            attached.raise(&edge)?;
        }
        wire.raise(&edge)
    }

    /// What the programs of labelled networks dropped, for operators; what cannot be read is left out.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let of = |wire: &Wire| {
            wire.counters().unwrap_or_else(|e| {
                log!("{}: {e}", wire.interface());
                Vec::new()
            })
        };
        self.wires.iter().flat_map(of).collect()
    }

    /// Has what the labels' rules dropped read again, where that does not go on already.
    pub fn count(&mut self, waits: &mut Waits) {
        for (name, attached) in &self.attached {
            if !self.counting.contains_key(name) {
                match self.rules.count(name, attached.ns.as_fd(), waits) {
                    Ok(counting) => drop(self.counting.insert(name.clone(), counting)),
                    Err(e) => log!("{name}: what its networks dropped: {e}"),
                }
            }
        }
    }

    /// Takes what has been read.
    pub fn counted(&mut self) {
        let attached = &mut self.attached;
        self.counting.retain(|name, counting| {
            match (counting.over(), attached.get_mut(name)) {
                (None, Some(_)) => return true,
                (Some(Ok(counted)), Some(attached)) => attached.counted = counted,
                (Some(Err(why)), _) => log!("{name}: what its networks dropped: {why}"),
                (_, None) => {}
            }
            false
        });
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
        for (name, attached) in std::mem::take(&mut self.attached) {
            if let Err(e) = attached.detach(self.outer.as_fd()) {
                log!("{name}: a network's interface stays in the label's namespace: {e}");
            }
        }
    }
}

/// Whether a partition has networks or links, and so rules.
pub fn has_interfaces(site: &Site, partition: &PartitionName) -> bool {
    let linked = |link: &Link| link.ends().iter().any(|(end, _)| end == partition);
    site.networks_of(partition).next().is_some() || site.links().iter().any(linked)
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
        let Some(rules) = Ruleset::named(site, name).filter(|rules| rules.interfaces().next().is_some())
        else {
            return Ok(None);
        };
        let pin = pins.join(name.file_name());
        let ns = open_or_make(&pin)?;
        let attached = Self { label: label.clone(), rules, ns, pin, counted: Vec::new() };
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
        self.rules.links.is_some()
    }

    /// Whether hosts on the networks may reach any service of the label's.
    pub fn serves(&self) -> bool {
        !self.is_partitions() && self.rules.edges.iter().any(|edge| !edge.services.is_empty())
    }

    /// The rules first, then the interfaces: nothing passes that the rules do not let pass.
    fn take(&self, by: &Rules, name: &LabelName, outer: BorrowedFd<'_>) -> Result<()> {
        self.network()?;
        by.load(name, self.ns.as_fd())?;
        if self.is_partitions() {
            // Links are left of a warden that was killed.
            self.close()?;
        }
        for edge in self.rules.edges.iter().filter(|edge| !edge.is_labelled) {
            take_interface(self.ns.as_fd(), outer, edge.interface.as_str(), name)?;
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
        self.rules.edges.iter().try_for_each(|edge| self.raise(edge))
    }

    /// Sets a partition's interfaces down and removes its links: it has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn close(&self) -> Result<()> {
        close(self.ns.as_fd())
    }

    /// Sets an interface up that is in the namespace, with its addresses.
    fn raise(&self, edge: &Edge) -> Result<()> {
        let name = edge.interface.as_str();
        let mut inside = Net::in_ns(self.ns.as_fd())?;
        set(
            self.ns.as_fd(),
            &[
                // Answer for this interface's addresses alone, not for the inner ones.
                (format!("ipv4/conf/{name}/arp_ignore"), "1"),
                (format!("ipv4/conf/{name}/arp_announce"), "2"),
                (format!("ipv4/conf/{name}/rp_filter"), "1"),
            ],
        )?;
        for address in &edge.addresses {
            add_address(&mut inside, name, *address)?;
        }
        inside.set_up(name)
    }

    /// The namespace, with the settings of every compartment; once the tunnel is in it, call [`Attached::forward`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn network(&self) -> Result<Namespace> {
        let ns = self.ns.try_clone().map_err(|e| Error::new("keep a network namespace", e))?;
        Namespace::in_ns(ns)
    }

    /// Lets the kernel carry packets between the tunnel and the networks with listed hosts, within the rules.
    ///
    /// # Errors
    /// The kernel's.
    pub fn forward(&self) -> Result<()> {
        let mut settings = Vec::new();
        for edge in self.rules.edges.iter().filter(|edge| !edge.hosts.is_empty()) {
            for name in [edge.interface.as_str(), TUNNEL] {
                settings.push((format!("ipv4/conf/{name}/forwarding"), "1"));
            }
            if edge.hosts.iter().any(|host| host.address.is_ipv6()) {
                // IPv6 knows only one switch for all.
                settings.push(("ipv6/conf/all/forwarding".to_owned(), "1"));
            }
        }
        set(self.ns.as_fd(), &settings)
    }

    /// What was dropped, as it was counted last; what is 0 is left out.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let all = self.rules.interfaces().flat_map(|name| Reason::ALL.map(|reason| (name, reason)));
        let counted = all.zip(&self.counted).filter(|(_, packets)| **packets > 0);
        let named = |((name, reason), packets): ((&str, Reason), &u64)| {
            (format!("dropped at {name}: {}", reason.as_str()), *packets)
        };
        counted.map(named).collect()
    }

    /// Sets the interfaces down, gives them back to the namespace `outer`, and unpins the label's own. What runs in
    /// it must have ended.
    ///
    /// # Errors
    /// The first that could not be given back; then it stays where it is, and the namespace stays pinned.
    pub fn detach(&self, outer: BorrowedFd<'_>) -> Result<()> {
        give_back(self.ns.as_fd(), outer)?;
        unpin(&self.pin)
    }
}

/// Settings of a namespace, under `/proc/sys/net`.
pub(crate) fn set(ns: BorrowedFd<'_>, settings: &[(String, &str)]) -> Result<()> {
    ns::in_net(ns, || {
        for (name, value) in settings {
            fs::write(format!("/proc/sys/net/{name}"), value)
                .map_err(|e| Error::new(format!("set net.{} to {value}", name.replace('/', ".")), e))?;
        }
        Ok(())
    })?
}

/// Takes an interface of the namespace `outer`, where it is not in this one already, and leaves it down.
pub(crate) fn take_interface(
    ns: BorrowedFd<'_>,
    outer: BorrowedFd<'_>,
    name: &str,
    owner: &LabelName,
) -> Result<()> {
    let (mut inside, mut outside) = (Net::in_ns(ns)?, Net::in_ns(outer)?);
    if name == "lo" || name == TUNNEL {
        return Err(Error::invalid(format!("give interface {name} to {owner}"), "levee needs it itself"));
    }
    if inside.find(name)?.is_some() {
        // From a warden that was killed. Down, it loses what it was configured with.
        return inside.set_down(name);
    }
    if outside.find(name)?.is_none() {
        return Err(Error::invalid(
            format!("give the interface {name} to {owner}"),
            "this host's network has none of this name: make it, or put `interface` in the site file right",
        ));
    }
    outside.set_down(name)?;
    outside.move_to(name, ns)
}

/// Gives an interface an address, unless it has it.
pub(crate) fn add_address(net: &mut Net, name: &str, address: ipnet::IpNet) -> Result<()> {
    match net.add_address(name, address) {
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::EXIST.raw_os_error()) => Ok(()),
        result => result,
    }
}

/// Sets every interface of a partition's namespace down, and removes its links.
pub(crate) fn close(ns: BorrowedFd<'_>) -> Result<()> {
    let mut net = Net::in_ns(ns)?;
    for link in net.links()?.into_iter().filter(|link| link.name != "lo") {
        if link.group == LINKS {
            remove(&mut net, &link.name)?;
        } else {
            net.set_down(&link.name)?;
        }
    }
    Ok(())
}

/// Removes an end of a link, which may go by itself at any time, with the network of its other end.
pub(crate) fn remove(net: &mut Net, name: &str) -> Result<()> {
    match net.delete(name) {
        Err(e) if net.find(name)?.is_some() => Err(e),
        _ => Ok(()),
    }
}

/// Gives back what labels that have no network any more were left with by a warden that was killed.
///
/// # Errors
/// The first that could not be given back.
pub fn give_back_others(pins: &Path, wanted: &[LabelName], outer: BorrowedFd<'_>) -> Result<()> {
    let entries = match fs::read_dir(pins) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::new(format!("read {}", pins.display()), e)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| Error::new(format!("read {}", pins.display()), e))?;
        if wanted.iter().any(|name| entry.file_name() == name.file_name().as_str()) {
            continue;
        }
        if let Some(ns) = pinned(&entry.path())? {
            give_back(ns.as_fd(), outer)?;
        }
        unpin(&entry.path())?;
    }
    Ok(())
}

/// Moves every interface but those that levee made to the namespace `outer`, down.
pub(crate) fn give_back(ns: BorrowedFd<'_>, outer: BorrowedFd<'_>) -> Result<()> {
    let mut net = Net::in_ns(ns)?;
    for link in net.links()?.into_iter().filter(|link| link.name != "lo" && link.name != TUNNEL) {
        if link.group == LINKS {
            remove(&mut net, &link.name)?;
            continue;
        }
        net.set_down(&link.name)?;
        net.move_to(&link.name, outer)?;
    }
    Ok(())
}

/// The namespace pinned at `pin`; `None` if there is none.
pub(crate) fn pinned(pin: &Path) -> Result<Option<OwnedFd>> {
    let step = || format!("open the namespace pinned at {}", pin.display());
    let file = match File::open(pin) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::new(step(), e)),
    };
    let kind = fstatfs(&file).map_err(|e| Error::new(step(), e))?.f_type;
    Ok((u64::try_from(kind) == Ok(NSFS)).then(|| file.into()))
}

pub(crate) fn open_or_make(pin: &Path) -> Result<OwnedFd> {
    if let Some(ns) = pinned(pin)? {
        return Ok(ns);
    }
    let step = || format!("pin a namespace at {}", pin.display());
    let ns = ns::new_net()?;
    let make = || -> std::io::Result<()> {
        pin.parent().map_or(Ok(()), fs::create_dir_all)?;
        File::create(pin)?;
        Ok(mount_bind(format!("/proc/self/fd/{}", ns.as_raw_fd()), pin)?)
    };
    make().map_err(|e| Error::new(step(), e))?;
    Ok(ns)
}

pub(crate) fn unpin(pin: &Path) -> Result<()> {
    let step = || format!("unpin the namespace at {}", pin.display());
    match unmount(pin, UnmountFlags::DETACH) {
        // Not a mount: a warden was killed before it had made one.
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(e) => return Err(Error::new(step(), e)),
    }
    fs::remove_file(pin).map_err(|e| Error::new(step(), e))
}

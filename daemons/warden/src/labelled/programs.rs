//! The kernel's programs of one labelled link, with their tables.

use ipnet::IpNet;
use levee_labelled::kernel::{
    self, Carries, DATAGRAM, DATAGRAMS, OPTION, PREFIX, SIX_DATAGRAM, SIX_OPTION, SIX_PREFIX, SingleLevel,
    SixWritten, Written,
};
use levee_labelled::{Drop, calipso, cipso, spellings};
use levee_policy::{Domain, Label};
use levee_sys::bpf::{Instruction, LoadedProgram, Map, MapKind};
use levee_sys::{Error, Result};

/// Entries that one label has in the table, at most ([`spellings`]).
const SPELLINGS: u32 = 64;

/// Programs and tables of a link.
#[derive(Debug)]
pub struct LinkPrograms {
    domain: Domain,
    link: u32,
    four: Tables,
    six: Option<Tables>,
    arrived: Map,
    left: Map,
    aggregates: Map,
    unlabelled: Vec<(IpNet, Label)>,
    /// Prefixes of IPv4 and of IPv6.
    prefixes: [Map; 2],
}

/// The tables for one family.
#[derive(Debug)]
struct Tables {
    labels: Map,
    datagrams: Map,
    options: Map,
}

/// What the packets were dropped on their way to, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// They came from the link; else from a compartment.
    pub arrived: bool,
    /// Why.
    pub reason: Drop,
    /// How many.
    pub packets: u64,
}

impl LinkPrograms {
    /// Tables for so many labels of a domain; `link` is the index of the link's interface. Without `six` IPv6 is dropped. The hosts
    /// with `unlabelled` addresses are single-level; until a compartment of their label is there, nothing passes to them or from them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(
        domain: &Domain,
        labels: u32,
        link: u32,
        six: bool,
        unlabelled: &[(IpNet, Label)],
    ) -> Result<Self> {
        let reasons = u32::try_from(Drop::ALL.len()).unwrap_or(u32::MAX);
        let drops = || Map::new(MapKind::Array, 4, 8, reasons);
        let most = u32::try_from(unlabelled.len()).unwrap_or(u32::MAX).max(1);
        let prefixes = |octets| Map::new(MapKind::Prefixes, octets, size_of::<SingleLevel>(), most);
        let six_tables = || Tables::new(labels, SIX_OPTION, SIX_DATAGRAM, size_of::<SixWritten>());
        let programs = Self {
            domain: domain.clone(),
            link,
            four: Tables::new(labels, OPTION, DATAGRAM, size_of::<Written>())?,
            six: six.then(six_tables).transpose()?,
            arrived: drops()?,
            left: drops()?,
            aggregates: Map::new(MapKind::Hash, 4, 4, labels.max(1))?,
            unlabelled: unlabelled.to_vec(),
            prefixes: [prefixes(PREFIX)?, prefixes(SIX_PREFIX)?],
        };
        for (net, _) in unlabelled {
            programs.tell(net, 0, 0)?;
        }
        Ok(programs)
    }

    /// Where packets from a prefix go, and whose go there.
    fn tell(&self, net: &IpNet, wire: u32, mark: u32) -> Result<()> {
        let [four, six] = &self.prefixes;
        let map = if net.addr().is_ipv4() { four } else { six };
        map.set(&kernel::prefix(net), &[wire.to_ne_bytes(), mark.to_ne_bytes()].concat())
    }

    fn carries(&self) -> Carries {
        Carries { six: self.six.is_some(), unlabelled: !self.unlabelled.is_empty() }
    }

    /// A compartment's label: its packets have this mark, from 1 to the number of labels, and those of its label go to the
    /// interface with index `wire`. Octets that its label costs a packet.
    ///
    /// # Errors
    /// The domain cannot say the label, or the kernel's.
    pub fn add(&self, label: &Label, mark: u32, wire: u32) -> Result<u32> {
        let unsayable = |e: levee_labelled::Fault| Error::invalid("write a label", e.to_string());
        let too_long = || Error::invalid("write a label", "the option is too long");
        for option in spellings(&self.domain, label).map_err(unsayable)? {
            self.four
                .labels
                .set(&kernel::padded::<OPTION>(&option).ok_or_else(too_long)?, &wire.to_ne_bytes())?;
        }
        let option = cipso::encode(&self.domain, label).map_err(unsayable)?;
        let entry = kernel::written(&option).ok_or_else(too_long)?;
        self.four.options.set(&mark.to_ne_bytes(), &entry)?;
        self.aggregates.set(&wire.to_ne_bytes(), &kernel::ALONE.to_ne_bytes())?;
        let mut cost = option.len().next_multiple_of(4);
        if let Some(six) = &self.six {
            for option in calipso::spellings(&self.domain, label).map_err(unsayable)? {
                let key = kernel::padded::<SIX_OPTION>(&option).ok_or_else(too_long)?;
                six.labels.set(&key, &wire.to_ne_bytes())?;
            }
            let option = calipso::encode(&self.domain, label).map_err(unsayable)?;
            six.options.set(&mark.to_ne_bytes(), &kernel::six_written(&option).ok_or_else(too_long)?)?;
            cost = cost.max((2 + option.len()).next_multiple_of(8));
        }
        for (net, _) in self.unlabelled.iter().filter(|(_, theirs)| theirs == label) {
            self.tell(net, wire, mark)?;
        }
        Ok(u32::try_from(cost).unwrap_or(u32::MAX))
    }

    /// What packets from the link go through.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ingress(&self) -> Result<LoadedProgram> {
        self.load(kernel::ingress(&self.domain, self.carries()), &self.arrived)
    }

    /// What packets to the link go through. `mtu` is the link's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn egress(&self, mtu: u32) -> Result<LoadedProgram> {
        self.load(kernel::egress(mtu, self.carries()), &self.left)
    }

    /// What packets of the compartment with this mark go through first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn compartment(&self, mark: u32) -> Result<LoadedProgram> {
        self.load(kernel::compartment(mark, self.link, self.six.is_some()), &self.left)
    }

    fn load(&self, program: Option<Vec<kernel::Instruction>>, drops: &Map) -> Result<LoadedProgram> {
        let program = program.ok_or_else(|| Error::invalid("make a BPF program", "a jump goes too far"))?;
        let program: Vec<Instruction> = program.into_iter().map(instruction).collect();
        // In the order of `kernel::Map`.
        let [prefixes, six_prefixes] = &self.prefixes;
        // No program without IPv6 names those for it.
        let (four, six) = (&self.four, self.six.as_ref().unwrap_or(&self.four));
        let maps = [&four.labels, &four.datagrams, drops, &four.options];
        let others = [&six.labels, &six.datagrams, &six.options, prefixes, six_prefixes, &self.aggregates];
        LoadedProgram::load(&program, &[&maps[..], &others].concat())
    }

    /// What was dropped so far, without what is 0.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dropped(&self) -> Result<Vec<Dropped>> {
        let mut dropped = Vec::new();
        for arrived in [true, false] {
            for reason in Drop::ALL {
                let packets = self.dropped_for(reason, arrived)?;
                if packets > 0 {
                    dropped.push(Dropped { arrived, reason, packets });
                }
            }
        }
        Ok(dropped)
    }

    /// How many packets were dropped for this reason, of those that arrived or of those that were to leave.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dropped_for(&self, reason: Drop, arrived: bool) -> Result<u64> {
        let map = if arrived { &self.arrived } else { &self.left };
        let value = map.get(&(reason as u32).to_ne_bytes())?;
        Ok(value.first_chunk().map_or(0, |octets| u64::from_ne_bytes(*octets)))
    }
}

impl Tables {
    /// With keys and values of so many octets.
    fn new(labels: u32, option: usize, datagram: usize, written: usize) -> Result<Self> {
        Ok(Self {
            labels: Map::new(MapKind::Hash, option, 4, labels.saturating_mul(SPELLINGS).max(1))?,
            datagrams: Map::new(MapKind::LruHash, datagram, 16, DATAGRAMS)?,
            options: Map::new(MapKind::Array, 4, written, labels.saturating_add(1))?,
        })
    }
}

fn instruction(of: kernel::Instruction) -> Instruction {
    let kernel::Instruction { code, destination, source, offset, value } = of;
    Instruction { code, destination, source, offset, value }
}

//! What is compared, and the stand on which all of it stands.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use levee_sys::ns;
use std::os::fd::AsFd as _;

use crate::badlink::{self, BadLink};
use crate::cases::{self, Case};
use crate::link::{self, CLIENT, Guard, Link, SERVER};
use crate::{peers, vaults};

/// Inner MTU of every tunnel, in bytes.
pub const MTU: u16 = 1_400;

/// One way from the client to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// The link itself, MTU 1,500.
    Bare,
    /// A vault at each end.
    Levee(Variant),
    /// The newest wireguard-go.
    WireguardGo,
    /// boringtun's command.
    Boringtun,
    /// strongSwan with its ESP in user mode.
    Libipsec,
    /// OpenVPN in user mode.
    OpenVpn,
}

/// What differs from a plain vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Nothing.
    Plain,
    /// It sleeps as soon as there is nothing.
    Blocking,
    /// This library for every suite.
    Aead(&'static str),
    /// So many labels, each with a vault of its own at both ends.
    Labels(u16),
    /// So many security associations at the server.
    Associations(u32),
    /// So many workers for the label at each end, each with a queue and associations of its own.
    Workers(u16),
    /// AGGFRAG payloads (RFC 9347) and a large inner MTU.
    Aggfrag,
    /// Two stacks at the server that must agree about every packet.
    Agree,
}

impl Arm {
    /// All, in the order of the report.
    pub const ALL: [Self; 17] = [
        Self::Bare,
        Self::Levee(Variant::Plain),
        Self::Levee(Variant::Blocking),
        Self::WireguardGo,
        Self::Boringtun,
        Self::Libipsec,
        Self::OpenVpn,
        Self::Levee(Variant::Aead("ring")),
        Self::Levee(Variant::Aead("aws-lc")),
        Self::Levee(Variant::Labels(10)),
        Self::Levee(Variant::Labels(100)),
        Self::Levee(Variant::Associations(10_000)),
        Self::Levee(Variant::Workers(2)),
        Self::Levee(Variant::Workers(3)),
        Self::Levee(Variant::Workers(4)),
        Self::Levee(Variant::Aggfrag),
        Self::Levee(Variant::Agree),
    ];

    /// As on the command line and in reports.
    pub fn name(self) -> String {
        match self {
            Self::Bare => "bare".into(),
            Self::Levee(Variant::Plain) => "levee".into(),
            Self::Levee(Variant::Blocking) => "levee-blocking".into(),
            Self::Levee(Variant::Aead(library)) => format!("levee-{library}"),
            Self::Levee(Variant::Labels(labels)) => format!("levee-{labels}-labels"),
            Self::Levee(Variant::Associations(count)) => format!("levee-{count}-sas"),
            Self::Levee(Variant::Workers(count)) => format!("levee-{count}-workers"),
            Self::Levee(Variant::Aggfrag) => "levee-aggfrag".into(),
            Self::Levee(Variant::Agree) => "levee-agree".into(),
            Self::WireguardGo => "wireguard-go".into(),
            Self::Boringtun => "boringtun".into(),
            Self::Libipsec => "libipsec".into(),
            Self::OpenVpn => "openvpn".into(),
        }
    }

    /// Its place in the address plan.
    fn number(self) -> u8 {
        Self::ALL.iter().position(|arm| *arm == self).map_or(0, |place| place as u8)
    }

    /// Whether it stands only while it is measured: what is idle beside another may cost it something.
    fn is_passing(self) -> bool {
        matches!(self, Self::Levee(variant) if !matches!(variant, Variant::Plain | Variant::Blocking))
    }

    /// Whether the case means something for it.
    pub fn can(self, case: Case) -> bool {
        match case {
            Case::Memory => self != Self::Bare,
            Case::Everywhere => matches!(self, Self::Levee(Variant::Plain | Variant::Labels(_))),
            Case::BadLink => matches!(self, Self::Bare | Self::Levee(Variant::Plain | Variant::Aggfrag)),
            _ => true,
        }
    }

    /// Whether it is measured in every other round alone: what is compared most closely has all rounds.
    pub fn is_seldom(self) -> bool {
        match self {
            Self::Boringtun | Self::Libipsec | Self::OpenVpn => true,
            Self::Levee(variant) => {
                matches!(variant, Variant::Aead(_) | Variant::Labels(10) | Variant::Workers(3))
            }
            Self::Bare | Self::WireguardGo => false,
        }
    }

    /// Whether the plan has it in this case.
    pub fn is_measured(self, case: Case, full: bool) -> bool {
        let main = match self {
            Self::Levee(variant) => matches!(variant, Variant::Plain | Variant::Blocking),
            _ => true,
        };
        let variant_too = match self {
            Self::Levee(Variant::Aead(_)) => case == Case::Stream,
            Self::Levee(Variant::Labels(_)) => matches!(case, Case::Stream | Case::Everywhere),
            Self::Levee(Variant::Associations(_)) => {
                matches!(case, Case::Stream | Case::RequestResponse | Case::Memory)
            }
            Self::Levee(Variant::Workers(_)) => matches!(case, Case::Stream | Case::Streams4),
            Self::Levee(Variant::Aggfrag) => {
                matches!(case, Case::Stream | Case::Datagrams(64) | Case::BadLink)
            }
            Self::Levee(Variant::Agree) => matches!(case, Case::Stream | Case::RequestResponse),
            _ => false,
        };
        let quick = matches!(
            case,
            Case::Stream | Case::Streams4 | Case::Datagrams(64 | 1372) | Case::RequestResponse | Case::Memory
        );
        self.can(case) && (main || (full && variant_too)) && (full || quick)
    }
}

/// Where a tunnel leads, and what carries it.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// The server's address in each label; one for those without labels.
    pub servers: Vec<Ipv4Addr>,
    /// The processes that carry it, the server's first.
    pub processes: Vec<u32>,
}

/// A tunnel that stands.
#[derive(Debug, Default)]
#[expect(dead_code, reason = "kept for as long as the tunnel stands")]
pub struct Tunnel {
    /// What is to be known to measure it.
    pub way: Way,
    /// What ends with it.
    pub guards: Vec<Guard>,
    /// What ends with it, of levee's.
    pub vaults: Vec<vaults::Vault>,
    /// Files that it needs.
    pub directory: Option<peers::Directory>,
    /// Descriptors that it needs.
    pub held: Vec<Box<dyn Held>>,
}

/// Anything that is only kept.
pub trait Held: std::fmt::Debug {}
impl<T: std::fmt::Debug> Held for T {}

/// The link with every standing tunnel over it.
#[derive(Debug)]
pub struct Stand {
    standing: BTreeMap<Arm, Tunnel>,
    vault: PathBuf,
    programs: peers::Programs,
    link: Link,
}

impl Stand {
    /// Builds the link and the tunnels that are wanted and stay.
    ///
    /// # Errors
    /// The tunnel that could not be built, and why.
    pub fn build(wanted: &BTreeSet<Arm>, vault: &Path, programs: Option<&Path>) -> io::Result<Self> {
        let link = Link::new()?;
        let programs = peers::Programs::new(programs);
        let mut stand = Self { standing: BTreeMap::new(), vault: vault.into(), programs, link };
        for arm in wanted.iter().filter(|arm| !arm.is_passing()) {
            let tunnel = stand.tunnel(*arm)?;
            stand.standing.insert(*arm, tunnel);
        }
        Ok(stand)
    }

    /// The namespaces: what each is, and the file to enter it by.
    pub fn namespaces(&self) -> [(String, PathBuf); 2] {
        let ends = [("server", &self.link.server), ("client", &self.link.client)];
        ends.map(|(what, namespace)| (what.to_owned(), namespace.path()))
    }

    /// The versions of the other programs.
    pub fn versions(&self) -> BTreeMap<String, String> {
        self.programs.versions()
    }

    fn tunnel(&self, arm: Arm) -> io::Result<Tunnel> {
        self.tunnel_over(arm, peers::Place { number: arm.number(), mtu: MTU, outer: (SERVER, CLIENT) })
    }

    /// Over a link of its own, which is a bad one.
    fn bad(&self, arm: Arm) -> io::Result<Tunnel> {
        let bad = BadLink::new(&self.link)?;
        let number = Arm::ALL.len() as u8 + arm.number();
        let mut tunnel = self.tunnel_over(arm, peers::Place { number, mtu: MTU, outer: badlink::ENDS })?;
        tunnel.held.push(Box::new(bad));
        Ok(tunnel)
    }

    fn tunnel_over(&self, arm: Arm, place: peers::Place) -> io::Result<Tunnel> {
        let built = match arm {
            Arm::Bare => Ok(Tunnel {
                way: Way { servers: vec![place.outer.0], processes: Vec::new() },
                ..Tunnel::default()
            }),
            Arm::Levee(variant) => vaults::build(&self.link, &self.vault, variant, place),
            Arm::WireguardGo => self.programs.wireguard(&self.link, "wireguard", place),
            Arm::Boringtun => self.programs.wireguard(&self.link, "boringtun-cli", place),
            Arm::Libipsec => self.programs.libipsec(&self.link, place),
            Arm::OpenVpn => self.programs.openvpn(&self.link, place),
        };
        let tunnel = built.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", arm.name())))?;
        for server in &tunnel.way.servers {
            peers::answers(&self.link, *server).map_err(|e| {
                io::Error::new(e.kind(), format!("{} carries nothing to {server}: {e}", arm.name()))
            })?;
        }
        Ok(tunnel)
    }

    /// Measures one case with one arm.
    ///
    /// # Errors
    /// When nothing could be measured.
    pub fn measure(&mut self, arm: Arm, case: Case) -> io::Result<BTreeMap<String, f64>> {
        let passing;
        let tunnel = match self.standing.get(&arm).filter(|_| case != Case::BadLink) {
            Some(tunnel) => tunnel,
            None => {
                passing = if case == Case::BadLink { self.bad(arm) } else { self.tunnel(arm) }?;
                &passing
            }
        };
        let (client, way) = (link::open(&self.link.client)?, &tunnel.way);
        ns::in_net(client.as_fd(), || cases::measure(case, way))
            .map_err(|error| io::Error::other(error.to_string()))?
    }
}

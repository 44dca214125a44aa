//! The stand on which all that is compared stands.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use levee_sys::ns;

use crate::alone;
use crate::apart::Apart;
use crate::arms::{Arm, MTU, Variant};
use crate::badlink::{self, BadLink};
use crate::cases::{self, Case};
use crate::link::{self, CLIENT, Link, SERVER};
use crate::tunnel::{Tunnel, Way};
use crate::{peers, vaults};

/// The link with every standing tunnel over it.
#[derive(Debug)]
pub struct Stand {
    standing: BTreeMap<Arm, Tunnel>,
    vault: PathBuf,
    before: Option<PathBuf>,
    programs: peers::Programs,
    link: Link,
}

impl Stand {
    /// Builds the link and the tunnels that are wanted and stay.
    ///
    /// # Errors
    /// The tunnel that could not be built, and why.
    pub fn build(
        wanted: &BTreeSet<Arm>,
        vault: &Path,
        before: Option<&Path>,
        programs: Option<&Path>,
    ) -> io::Result<Self> {
        let link = Link::new()?;
        let programs = peers::Programs::new(programs);
        let before = before.map(Into::into);
        let mut stand = Self { standing: BTreeMap::new(), vault: vault.into(), before, programs, link };
        for arm in wanted.iter().filter(|arm| !arm.is_passing() && **arm != Arm::Aead) {
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
            Arm::Aead => Err(io::Error::other("it carries nothing")),
            Arm::Bare => Ok(Tunnel {
                way: Way { servers: vec![place.outer.0], processes: Vec::new() },
                ..Tunnel::default()
            }),
            Arm::Levee(Variant::Before) => {
                let program = self
                    .before
                    .as_ref()
                    .ok_or_else(|| io::Error::other("name the earlier program of the vault by --before"))?;
                vaults::build(&self.link, program, Variant::Before, place)
            }
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

    /// Measures one case with one arm, a stream for so long.
    ///
    /// # Errors
    /// When nothing could be measured.
    pub fn measure(&mut self, arm: Arm, case: Case, window: Duration) -> io::Result<BTreeMap<String, f64>> {
        if arm == Arm::Aead {
            return alone::measure();
        }
        let passing;
        let tunnel = match self.standing.get(&arm).filter(|_| case != Case::BadLink) {
            Some(tunnel) => tunnel,
            None => {
                passing = if case == Case::BadLink { self.bad(arm) } else { self.tunnel(arm) }?;
                &passing
            }
        };
        let (client, way) = (link::open(&self.link.client)?, &tunnel.way);
        let apart = (case == Case::RequestResponseApart)
            .then(|| Apart::new(self.link.served_by(), &way.processes))
            .transpose()?;
        let measured = ns::in_net(client.as_fd(), || cases::measure(case, way, window));
        drop(apart);
        measured.map_err(|error| io::Error::other(error.to_string()))?
    }
}

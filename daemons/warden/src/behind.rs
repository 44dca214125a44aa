//! A machine behind a workstation: it is on an interface of the workstation that is in the session's network while a session is open at a
//! label that the machine is for, and reaches by the session's tunnel what the session reaches, under the session's address.
//!
//! While none is open the interface is down, in a namespace of its own in which nothing runs: the host's network never has it while
//! levee runs. Both namespaces are pinned, since a namespace that nothing holds returns its interface to the host, or destroys it.

use crate::compartment::{Network, set};
use crate::edges::TUNNEL;
use crate::pinned::{Pinned, raise, release_others};
use crate::rules::Rules;
use ipnet::IpNet;
use levee_policy::{InterfaceName, LabelName};
use levee_sys::{Error, Result, ns};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// `[behind]` of `workstation.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behind {
    /// The workstation's interface, with nothing but the machine at its other end.
    pub interface: InterfaceName,
    /// The workstation's address there, which is the machine's way to everything, with its prefix length.
    pub address: IpNet,
    /// The machine's address.
    pub machine: IpAddr,
    /// The labels that the machine is for.
    pub labels: Vec<LabelName>,
}

impl Behind {
    /// Whether this can be so.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn check(&self) -> std::result::Result<(), String> {
        let Self { interface, address, machine, labels } = self;
        if ["lo", TUNNEL].contains(&interface.as_str()) {
            return Err(format!("`interface` of [behind] is {interface}, which levee needs itself"));
        }
        let ends = [address.network(), address.broadcast()];
        let edge = address.prefix_len() + 1 < address.max_prefix_len() && ends.contains(machine);
        if !address.contains(machine) || *machine == address.addr() || edge {
            return Err(format!("`machine` of [behind], {machine}, is no other host of {}", address.trunc()));
        }
        if labels.is_empty() {
            return Err("`labels` of [behind] is empty: name those that the machine is for".to_owned());
        }
        Ok(())
    }
}

/// The machine's interface, wherever it is now.
#[derive(Debug)]
pub struct BehindInterface {
    behind: Behind,
    rules: Rules,
    outer: OwnedFd,
    /// Where it is while no session has it.
    aside: Pinned,
    pins: PathBuf,
}

/// Of the namespace in which the interface waits, and of a session's.
const PINS: [&str; 2] = ["aside", "session"];

impl BehindInterface {
    /// Takes the interface out of the host's network, or from where a warden that was killed has left it.
    ///
    /// # Errors
    /// The step that failed; then the host has it, and it is down.
    pub fn take(behind: Behind, programs: &Path, pins: &Path) -> Result<Self> {
        let outer = ns::current_net()?;
        release_others::<&str>(pins, &[], outer.as_fd())?;
        let text =
            serde_json::to_string(&behind).map_err(|e| Error::invalid("write [behind]", e.to_string()))?;
        let aside = Pinned::open(pins.join(PINS[0]))?;
        let taken = aside.take(outer.as_fd(), behind.interface.as_str(), &"the machine behind");
        if let Err(e) = taken {
            aside.release(outer.as_fd())?;
            return Err(e);
        }
        let rules = Rules::new(&text, programs);
        Ok(Self { behind, rules, outer, aside, pins: pins.to_owned() })
    }

    /// Whether the machine is for sessions at this label.
    pub fn is_for(&self, label: &LabelName) -> bool {
        self.behind.labels.contains(label)
    }

    /// A network for a session that has the machine. The session's rules are in it: nothing passes that they do not let pass.
    ///
    /// # Errors
    /// The kernel's, or why the rules are not loaded.
    pub fn network(&self, label: &LabelName) -> Result<Network> {
        let network = Pinned::open(self.session())?.network()?;
        self.rules.behind(label, network.ns())?;
        Ok(network)
    }

    /// Gives the interface to the session that is open, and sets it up.
    ///
    /// # Errors
    /// The kernel's; then nothing passes.
    pub fn join(&self) -> Result<()> {
        let Behind { interface, address, .. } = &self.behind;
        let name = interface.as_str();
        let gone = || Error::invalid("find the session's network", "it is not pinned");
        let session = Pinned::find(&self.session())?.ok_or_else(gone)?;
        self.aside.net()?.move_to(name, session.ns())?;
        let mut settings =
            vec![(format!("ipv4/conf/{name}/arp_ignore"), "1"), (format!("ipv4/conf/{name}/rp_filter"), "1")];
        if address.addr().is_ipv4() {
            settings.extend([name, TUNNEL].map(|name| (format!("ipv4/conf/{name}/forwarding"), "1")));
        } else {
            settings.push(("ipv6/conf/all/forwarding".to_owned(), "1"));
        }
        set(session.ns(), &settings)?;
        raise(&mut session.net()?, name, &[*address])
    }

    /// Takes the interface from the session that had it, down. Without one there is nothing to do.
    ///
    /// # Errors
    /// The kernel's; then no session gets it any more.
    pub fn leave(&self) -> Result<()> {
        Pinned::find(&self.session())?.map_or(Ok(()), |session| session.release(self.aside.ns()))
    }

    /// Gives the interface back to the host, down.
    ///
    /// # Errors
    /// The kernel's.
    pub fn release(&self) -> Result<()> {
        self.leave()?;
        self.aside.release(self.outer.as_fd())
    }

    fn session(&self) -> PathBuf {
        self.pins.join(PINS[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_another_host_of_the_interfaces_network_and_is_for_some_label() {
        let parse = |text: &str| {
            toml::from_str::<Behind>(text).map_err(|e| e.to_string()).and_then(|read| read.check())
        };
        let sound = "interface = \"eth1\"\naddress = \"192.168.9.1/24\"\nmachine = \"192.168.9.2\"\nlabels = [\"SECRET\"]\n";
        assert_eq!(parse(sound), Ok(()));
        for (from, to, why) in [
            ("9.2\"", "8.2\"", "is no other host of"),
            ("9.2\"", "9.1\"", "is no other host of"),
            ("9.2\"", "9.255\"", "is no other host of"),
            ("192.168.9.2", "fd09::2", "is no other host of"),
            ("\"SECRET\"", "", "is empty"),
            ("eth1", "levee0", "which levee needs itself"),
            ("eth1", "a b", "interface"),
            ("labels", "label", "unknown field `label`"),
        ] {
            let text = sound.replace(from, to);
            let said = parse(&text).expect_err(&text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}

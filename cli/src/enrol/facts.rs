//! What a site file says that keys and certificates go by.

use super::EnrolError;
use levee_policy::site::{Curve, Suites};
use levee_policy::{ChannelName, DomainName, HostName, PpkId, SiteName};
use serde::Serialize;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// What a site file says about the server and its hosts.
pub struct Facts {
    /// The site.
    pub site: SiteName,
    /// The server's name, as in its certificate.
    pub server: DomainName,
    /// The server's outer addresses.
    pub addresses: Vec<IpAddr>,
    /// The trusted path's TCP port.
    pub port: u16,
    /// The curve of every key.
    pub keys: Curve,
    /// What its protocols use.
    pub suites: Suites,
    /// Its hosts.
    pub hosts: Vec<HostFacts>,
    /// The UDP port of the second tunnel, where the site has two layers.
    pub layer_port: Option<u16>,
    /// Where the second tunnel ends, if that is not at the server.
    pub gateway: Option<GatewayFacts>,
    /// The one-way channels from and to other hosts.
    pub channels: Vec<ChannelFacts>,
    /// etcd's name and addresses, where the site has several servers.
    pub etcd: Option<(DomainName, Vec<IpAddr>)>,
}

/// What a site file says about its gateway.
pub struct GatewayFacts {
    /// Where workstations find the second tunnel.
    pub addresses: Vec<IpAddr>,
    /// Its address towards the server.
    pub inside: IpAddr,
}

/// What a site file says about a one-way channel whose other end is on another host.
pub struct ChannelFacts {
    /// Its name.
    pub name: ChannelName,
    /// Whether this host sends. Else it receives.
    pub sends: bool,
}

/// What a site file says about a host.
pub struct HostFacts {
    /// Its name.
    pub name: HostName,
    /// A range of labels in the site's words.
    pub accreditation: String,
    /// The name of the PPK that it shares with the server, if any.
    pub ppk: Option<PpkId>,
    /// Whether its sessions travel within the second tunnel.
    pub layered: bool,
}

impl Facts {
    pub(super) fn host(&self, name: &str) -> Result<&HostFacts, EnrolError> {
        let found = self.hosts.iter().find(|host| host.name.as_str() == name);
        found.ok_or_else(|| EnrolError::UnknownHost(name.to_owned()))
    }

    pub(super) fn channel(&self, name: &str) -> Result<&ChannelFacts, EnrolError> {
        let found = self.channels.iter().find(|channel| channel.name.as_str() == name);
        found.ok_or_else(|| EnrolError::NoChannel(name.to_owned()))
    }

    /// The text of a host's `workstation.toml`, whose path this is. What somebody has written into the one that is there stays
    /// (`people`, `seat`, `[behind]`): a workstation whose keys are made anew is still its people's.
    pub(super) fn workstation(&self, host: &HostFacts, path: &Path) -> Result<String, EnrolError> {
        let there = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(EnrolError::File(path.into(), error)),
        };
        let wrong = |why: toml::de::Error| EnrolError::Bundle(path.into(), why.message().to_owned());
        let mut all: toml::Table = toml::from_str(&there).map_err(wrong)?;
        all.retain(|name, _| !OURS.contains(&name));
        let ours = toml::Table::try_from(Workstation {
            site: self.site.as_str(),
            server_name: self.server.as_str(),
            addresses: &self.addresses,
            trusted_path_port: self.port,
            ppk: host.ppk.as_ref().map(PpkId::as_str),
            suites: Some(self.suites).filter(|suites| *suites != Suites::default()),
            layer_port: self.layer_port.filter(|_| host.layered),
            gateway: self.gateway.as_ref().and_then(|gateway| gateway.addresses.first()).copied(),
        });
        all.extend(ours.map_err(EnrolError::Toml)?);
        toml::to_string(&all).map_err(EnrolError::Toml)
    }

    /// The directory of the server's end of the second tunnel, and where workstations find that.
    pub(super) fn layer_end(&self) -> (&'static str, &[IpAddr]) {
        match &self.gateway {
            Some(gateway) => ("gateway/layer", &gateway.addresses),
            None => ("layer", &self.addresses),
        }
    }

    /// The text of `gateway.toml`, where there is a gateway.
    pub(super) fn gateway(&self) -> Result<Option<String>, EnrolError> {
        let (Some(gateway), Some(layer_port), Some(server)) =
            (&self.gateway, self.layer_port, self.addresses.first())
        else {
            return Ok(None);
        };
        let GatewayFacts { addresses, inside } = gateway;
        let text =
            toml::to_string(&Gateway { site: self.site.as_str(), addresses, inside, server, layer_port });
        text.map(Some).map_err(EnrolError::Toml)
    }
}

/// What a gateway needs to know: `gateway.toml`.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Gateway<'a> {
    site: &'a str,
    addresses: &'a [IpAddr],
    inside: &'a IpAddr,
    server: &'a IpAddr,
    layer_port: u16,
}

/// The keys of [`Workstation`].
const OURS: [&str; 8] =
    ["site", "server-name", "addresses", "trusted-path-port", "ppk", "suites", "layer-port", "gateway"];

/// What a workstation needs to know of its server: `workstation.toml`.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Workstation<'a> {
    site: &'a str,
    server_name: &'a str,
    addresses: &'a [IpAddr],
    trusted_path_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    ppk: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suites: Option<Suites>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
}

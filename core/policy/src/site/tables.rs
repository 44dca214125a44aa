//! Tables as they were read, with their places.

use std::net::IpAddr;
use std::ops::Range as Span;
use std::time::Duration;

use ipnet::IpNet;

use super::people::SecondFactor;
use super::ppk::HostPpk;
use super::reach::{NetworkHost, Protocol};
use super::read::At;
use crate::label::{Label, Range};
use crate::names::{DomainName, HostName, InterfaceName, PartitionName, ServiceName, UserName};

/// Everything of one kind that could be read.
pub(super) struct ReadTables<T> {
    pub read: Vec<T>,
    /// Whether that is all: only then can something be said to have none of them.
    pub whole: bool,
}

impl<T> ReadTables<T> {
    /// Tables of which some may not have been read; `whole` says whether the file's are all among them.
    pub(super) fn of(all: Vec<Option<T>>, whole: bool) -> Self {
        let whole = whole && all.iter().all(Option::is_some);
        Self { read: all.into_iter().flatten().collect(), whole }
    }
}

pub(super) struct DraftServer {
    pub span: Span<usize>,
    pub name: At<DomainName>,
    pub addresses: Vec<At<IpAddr>>,
    pub trusted_path_port: u16,
    pub ike_port: At<u16>,
    pub tunnel_port: At<u16>,
    pub layer_port: At<u16>,
    pub inner_addresses: Vec<At<IpAddr>>,
    pub inner_pools: Vec<At<IpNet>>,
    pub names: Vec<At<DomainName>>,
    pub slots: u16,
    pub grace: Duration,
    pub longest_session: Option<Duration>,
    pub idle_lock: Option<Duration>,
}

pub(super) struct DraftUser {
    pub name: At<UserName>,
    pub clearance: At<Range>,
    /// Labels from and to which files may be carried.
    pub carried: [Option<Range>; 2],
    pub second_factor: Option<SecondFactor>,
}

pub(super) struct DraftHost {
    pub name: At<HostName>,
    pub accreditation: At<Range>,
    pub ppk: Option<At<HostPpk>>,
    /// Whether its sessions travel within a second tunnel; where the file says so of it.
    pub layered: Option<At<bool>>,
}

pub(super) struct DraftNetwork {
    pub interface: At<InterfaceName>,
    pub labels: At<Range>,
    pub domain: Option<At<u32>>,
    pub unlabelled: Vec<At<(IpNet, Label)>>,
    pub neighbours: Option<u16>,
    pub addresses: Vec<At<IpNet>>,
    pub partition: Option<At<PartitionName>>,
    pub services: Vec<At<ServiceName>>,
    pub ports: Vec<At<(Protocol, u16)>>,
    pub hosts: Vec<At<NetworkHost>>,
}

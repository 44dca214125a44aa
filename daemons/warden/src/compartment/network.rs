//! A compartment's network namespace. The warden makes it and keeps it, so that it outlives the compartment.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ipnet::IpNet;
use levee_sys::net::Net;
use levee_sys::{Error, Result, ns, selinux};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// An interface of the compartment, as far as it is set up here.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Its name inside.
    pub name: String,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<IpNet>,
    /// What is reached through it.
    pub routes: Vec<IpNet>,
}

/// A network namespace, owned by the host's user namespace: nothing inside has power over it.
#[derive(Debug)]
pub struct Network {
    ns: OwnedFd,
    /// The SELinux context of the sockets that are made in it for services.
    context: Option<String>,
}

/// Settings of the namespace, under `/proc/sys/net`; the ones for IPv6 only where the host has IPv6.
const SETTINGS: [(&str, &str); 16] = [
    // Services bind low ports without privilege: every port in here is the compartment's.
    ("ipv4/ip_unprivileged_port_start", "0"),
    // What is remembered of earlier connections has a table of the machine's (`net/ipv4/tcp_metrics.c`), where one label's pushes out another's.
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/tcp_fastopen", "0"),
    // What is kept of a connection that nobody bounds: as Linux has it by itself, and not as the host's administrator has raised it.
    ("ipv4/tcp_rmem", "4096 131072 6291456"),
    ("ipv4/tcp_wmem", "4096 16384 4194304"),
    // What has not come of a datagram is in one table of the label's, 4 MiB in all and for 30 s as Linux has it by itself: who leaves out pieces would
    // keep everybody's large datagrams away. A vault lets the pieces of one pass for two seconds, and of 32 at a time (docs/esp.md).
    ("ipv4/ipfrag_high_thresh", "33554432"),
    ("ipv4/ipfrag_time", "2"),
    ("ipv6/ip6frag_high_thresh", "33554432"),
    ("ipv6/ip6frag_time", "2"),
    // Nothing is forwarded from one interface to another.
    ("ipv4/conf/all/forwarding", "0"),
    ("ipv6/conf/all/forwarding", "0"),
    // Nor by a route that its sender names.
    ("ipv4/conf/all/accept_source_route", "0"),
    // Who asks by an interface for an address that another one has hears nothing: each is reached by its own.
    ("ipv4/conf/all/arp_ignore", "1"),
    // Addresses and routes come from the warden alone: no router advertisements, no link-local addresses.
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
];

/// The longest super-segment that a TUN device hands over, in bytes: with what ESP adds to its pieces it still fits
/// one UDP send of 65,507.
const SUPER_SEGMENT: u32 = 60_000;

/// The one neighbour that everything behind a tunnel is reached through, by IPv6: it is never looked for, since a tunnel's device has no
/// neighbours. Without it Linux would remember each address that is spoken to in a table of the machine's (`net/ipv6/ndisc.c` `nd_tbl`), where
/// one label's pushes out another's. In IPv4 it does so by itself, for a device with two ends (`__ipv4_neigh_lookup_noref`).
const NOBODY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// What stays readable in `/proc/PID/net`: tables and counters of the namespace itself. All else is root's alone,
/// because some of it counts for the whole machine (`softnet_stat` each packet, `sockstat` and `protocols` the memory
/// of all sockets), which would tell each label how busy the others are.
const READABLE: &str = "arp dev dev_mcast icmp icmp6 if_inet6 igmp igmp6 ipv6_route netstat raw \
                        raw6 route snmp snmp6 tcp tcp6 udp udp6 udplite udplite6 unix";

impl Network {
    /// A namespace with `lo` up and the settings of every compartment.
    pub fn new() -> Result<Self> {
        Self::in_ns(ns::new_net()?)
    }

    /// As [`Network::new`], in a namespace that exists.
    pub fn in_ns(ns: OwnedFd) -> Result<Self> {
        let network = Self { ns, context: None };
        set(network.ns(), &SETTINGS)?;
        ns::in_net(network.ns(), || refuse_redirects().and_then(|()| hide_machine_wide()))??;
        network.net()?.set_up("lo")?;
        Ok(network)
    }

    /// Creates an interface by `make` (a TUN queue, say) in the namespace, then configures and raises it.
    pub fn add<T: Send>(
        &self,
        interface: &Interface,
        make: impl FnOnce() -> io::Result<T> + Send,
    ) -> Result<T> {
        let made = ns::in_net(self.ns.as_fd(), make)?
            .map_err(|e| Error::new(format!("make interface {}", interface.name), e))?;
        self.net()?.set_gso_max_size(&interface.name, SUPER_SEGMENT)?;
        self.configure_through(interface, Some(NOBODY))?;
        self.net()?.forget_groups(&interface.name)?;
        Ok(made)
    }

    /// Sets MTU, addresses and routes of an interface that is in the namespace, and raises it.
    pub fn configure(&self, interface: &Interface) -> Result<()> {
        self.configure_through(interface, None)
    }

    /// The same, with all that is reached by IPv6 behind one neighbour, where there is one.
    fn configure_through(&self, interface: &Interface, neighbour: Option<Ipv6Addr>) -> Result<()> {
        let mut net = self.net()?;
        net.set_mtu(&interface.name, interface.mtu)?;
        for address in &interface.addresses {
            net.add_address(&interface.name, *address)?;
        }
        net.set_up(&interface.name)?;
        for route in &interface.routes {
            let gateway = neighbour.filter(|_| route.addr().is_ipv6()).map(IpAddr::V6);
            net.add_route(*route, gateway, &interface.name)?;
        }
        Ok(())
    }

    /// A non-blocking listening TCP socket in the namespace, for a service to inherit.
    pub fn listen(&self, address: SocketAddr) -> Result<OwnedFd> {
        let open = || -> io::Result<OwnedFd> {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            // Its connections, undone and made anew, are not to draw their ports by the machine's counters.
            levee_sys::tcp::one_source_port(&socket)?;
            if address.is_ipv6() {
                rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
            }
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, 511)?;
            Ok(socket)
        };
        self.make(open)?.map_err(|e| Error::new(format!("listen on {address}"), e))
    }

    /// Has the sockets that [`Network::make`] makes carry this SELinux context.
    #[must_use]
    pub fn in_context(self, context: Option<String>) -> Self {
        Self { context, ..self }
    }

    /// Makes something with sockets for services, in the namespace and in their SELinux context.
    pub fn make<T: Send>(&self, make: impl FnOnce() -> T + Send) -> Result<T> {
        ns::in_net(self.ns.as_fd(), || {
            // Of the thread alone, which ends with this.
            self.context.as_deref().map_or(Ok(()), selinux::make_sockets_in).map(|()| make())
        })?
    }

    /// Lets programs in it send from addresses that are no interface's, as far as they are local.
    pub fn allow_foreign_sources(&self) -> Result<()> {
        // In IPv4 a range that is local is enough.
        set(self.ns(), &[("ipv6/ip_nonlocal_bind", "1")])
    }

    /// A handle to interfaces, addresses and routes of the namespace.
    pub fn net(&self) -> Result<Net> {
        Net::in_ns(self.ns.as_fd())
    }

    /// The namespace.
    pub fn ns(&self) -> BorrowedFd<'_> {
        self.ns.as_fd()
    }
}

/// Gives a namespace these settings, under `/proc/sys/net`; those for IPv6 only where the host has IPv6.
pub(crate) fn set(ns: BorrowedFd<'_>, settings: &[(impl AsRef<str> + Sync, &str)]) -> Result<()> {
    ns::in_net(ns, || {
        let ipv6 = std::path::Path::new("/proc/sys/net/ipv6").exists();
        for (name, value) in settings.iter().map(|(name, value)| (name.as_ref(), value)) {
            if ipv6 || !name.starts_with("ipv6") {
                std::fs::write(format!("/proc/sys/net/{name}"), value)
                    .map_err(|e| Error::new(format!("set net.{} to {value}", name.replace('/', ".")), e))?;
            }
        }
        Ok(())
    })?
}

/// In the namespace: no interface, now or later, takes a route from an ICMP redirect or sends one. Linux takes one where `all` or the
/// interface's own setting says so, and what an interface begins with is `default`'s.
fn refuse_redirects() -> Result<()> {
    for family in ["ipv4", "ipv6"] {
        // Without IPv6 there is nothing to set.
        let Ok(entries) = std::fs::read_dir(format!("/proc/sys/net/{family}/conf")) else { continue };
        for entry in entries {
            let entry = entry.map_err(|e| Error::new("list the network's settings", e))?;
            for name in ["accept_redirects", "secure_redirects", "send_redirects"] {
                let path = entry.path().join(name);
                if path.exists() {
                    std::fs::write(&path, "0")
                        .map_err(|e| Error::new(format!("set {} to 0", path.display()), e))?;
                }
            }
        }
    }
    Ok(())
}

/// In the namespace: takes away from all but root what is not [`READABLE`]. The mode is the namespace's own and
/// lasts as long as it does.
fn hide_machine_wide() -> Result<()> {
    let failed = |e: io::Error| Error::new("hide what /proc/net counts for the whole machine", e);
    for entry in std::fs::read_dir("/proc/thread-self/net").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_str().is_some_and(|name| READABLE.split(' ').any(|one| one == name)) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o400);
            std::fs::set_permissions(entry.path(), mode).map_err(failed)?;
        }
    }
    Ok(())
}

//! The site: everything `site.toml` says, in types that an invalid site has no value in.

mod audit;
mod check;
mod cipher;
mod crypto;
mod domains;
mod draft;
mod federation;
mod frames;
mod guard;
mod isolation;
mod link;
mod needs;
mod networks;
mod parse;
mod partition;
mod posture;
mod ppk;
mod problem;
mod protection;
mod quantity;
mod quota;
mod read;
pub mod reference;
mod services;
mod values;
mod vault;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use audit::{Audit, CheckpointPlace};
pub use cipher::Cipher;
pub use crypto::{Crypto, Curve, Suites, UnknownSuites};
pub use federation::{Federation, Peer};
pub use frames::{Frames, STANDSTILL, Slot};
pub use guard::{Guard, Hours, Refusal, Release};
pub use isolation::{Assurance, Isolation, Processor, Selinux};
pub use link::Link;
pub use needs::{Need, Needs};
pub use partition::{Channel, Partition, Restart};
pub use posture::Posture;
pub use ppk::HostPpk;
pub use problem::{Problem, ProblemKind};
pub use protection::{Protected, Protection, Unprotected};
pub use quota::Quota;
pub use vault::{AeadLibrary, INNER_MTU, LAYERED_MTU, Layer, Vault};

use crate::carry::Direction;
use crate::domain::Domain;
use crate::label::{Label, Range};
use crate::names::{
    DomainName, HostName, InterfaceName, LabelName, PostureName, ProtectionName, ServiceName, SiteName,
    UserName,
};
use crate::vocabulary::Vocabulary;

/// Steering slots at most. Slot 0 is the keyer's.
pub const MAX_SLOTS: u16 = 4095;

/// A colour for the banner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    /// `red`
    Red,
    /// `green`
    Green,
    /// `yellow`
    Yellow,
    /// `blue`
    Blue,
    /// `magenta`
    Magenta,
    /// `cyan`
    Cyan,
    /// `white`
    White,
    /// `orange`
    Orange,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
}

impl Protocol {
    /// The number IANA gave it.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// Its name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// The server of the site.
#[derive(Clone, Debug)]
pub struct Server {
    name: DomainName,
    addresses: Vec<IpAddr>,
    trusted_path_port: u16,
    ike_port: u16,
    tunnel_port: u16,
    layer_port: u16,
    inner_addresses: Vec<IpAddr>,
    inner_pools: Vec<IpNet>,
    names: Vec<DomainName>,
    slots: u16,
    grace: Duration,
    longest_session: Option<Duration>,
    idle_lock: Option<Duration>,
}

impl Server {
    /// The name in its certificate, which resolves to the inner addresses within a session.
    pub fn name(&self) -> &DomainName {
        &self.name
    }

    /// Outer addresses, at least one.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// TCP port of the trusted path.
    pub fn trusted_path_port(&self) -> u16 {
        self.trusted_path_port
    }

    /// UDP port of IKE (RFC 7296 2).
    pub fn ike_port(&self) -> u16 {
        self.ike_port
    }

    /// UDP port of the tunnel, and of IKE behind NAT (RFC 3948).
    pub fn tunnel_port(&self) -> u16 {
        self.tunnel_port
    }

    /// UDP port of the second tunnel, where the site has two layers.
    pub fn layer_port(&self) -> u16 {
        self.layer_port
    }

    /// Where every label's services answer: at least one, at most one of each family.
    pub fn inner_addresses(&self) -> &[IpAddr] {
        &self.inner_addresses
    }

    /// Networks that sessions' inner addresses come from: one for each family of the inner addresses.
    pub fn inner_pools(&self) -> &[IpNet] {
        &self.inner_pools
    }

    /// Further names of the inner addresses.
    pub fn names(&self) -> &[DomainName] {
        &self.names
    }

    /// Every name of the inner addresses, the server's own first.
    pub fn all_names(&self) -> impl Iterator<Item = &DomainName> {
        std::iter::once(&self.name).chain(&self.names)
    }

    /// Labels that can run at once, from 1 to [`MAX_SLOTS`].
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// How long a session outlives its trusted path.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// How long a session may last at most, if the site says so: then the person signs on again.
    pub fn longest_session(&self) -> Option<Duration> {
        self.longest_session
    }

    /// How long after its person's last input a session is locked, if the site says so.
    pub fn idle_lock(&self) -> Option<Duration> {
        self.idle_lock
    }
}

/// What one compartment may use at most, and all labels' images together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Processor time in percent of one processor: 150 is one and a half.
    pub cpu_percent: u32,
    /// Size of the store's image in bytes.
    pub store: u64,
    /// Bytes of the images of all labels that have ever run: stores, snapshots and copies.
    pub stores: u64,
    /// Changes of level that one person is given in a minute.
    pub changes: u32,
    /// Files carried into or out of sessions that one person is given in a minute.
    pub carried: u32,
    /// Mediated connections that one session is given in a second.
    pub connections: u32,
}

impl Limits {
    /// Descriptors that one process of a compartment may have.
    pub const DESCRIPTORS: u64 = 16_384;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 512 << 20,
            processes: 256,
            cpu_percent: 100,
            store: 64 << 20,
            stores: 64 << 30,
            changes: 30,
            carried: 600,
            connections: 50,
        }
    }
}

/// A person.
#[derive(Clone, Debug)]
pub struct User {
    name: UserName,
    clearance: Range,
    export: Option<Range>,
    import: Option<Range>,
    second_factor: Option<SecondFactor>,
}

/// What a person shows beside their password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondFactor {
    /// A code that is good for 30 seconds, and once (TOTP, RFC 6238).
    Totp,
}

impl User {
    /// The person's name.
    pub fn name(&self) -> &UserName {
        &self.name
    }

    /// The labels at which the person may work.
    pub fn clearance(&self) -> &Range {
        &self.clearance
    }

    /// What the person shows beside their password, if anything.
    pub fn second_factor(&self) -> Option<SecondFactor> {
        self.second_factor
    }

    /// The labels at which this person may carry files out of a session or into one, if any: each is recorded.
    pub fn carries(&self, direction: Direction) -> Option<&Range> {
        match direction {
            Direction::Export => self.export.as_ref(),
            Direction::Import => self.import.as_ref(),
        }
    }
}

/// A workstation (TPE).
#[derive(Clone, Debug)]
pub struct Host {
    name: HostName,
    accreditation: Range,
    ppk: Option<HostPpk>,
}

impl Host {
    /// The name in its certificate.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// The labels that may be worked at on it.
    pub fn accreditation(&self) -> &Range {
        &self.accreditation
    }

    /// The post-quantum preshared key that it shares with the server, if any (RFC 8784).
    pub fn ppk(&self) -> Option<&HostPpk> {
        self.ppk.as_ref()
    }
}

/// How a service is mediated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The daemon listens in its compartment; the security association's selectors decide.
    Direct,
    /// As there, but the program binds its port itself: it takes no socket that is there already. So no first connection can start it,
    /// and it runs as long as its label does.
    Itself,
    /// The label's mediator accepts each connection, has it granted and recorded, and hands it to a server process of its
    /// own.
    Handoff(Passed),
    /// The label's mediator accepts each connection, has it granted and recorded, and stays between it and the daemon, which
    /// nobody else reaches.
    Relay,
}

impl Mode {
    /// Its name in the site file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Itself => "itself",
            Self::Handoff(_) => "handoff",
            Self::Relay => "relay",
        }
    }

    /// Whether a mediator decides about each connection.
    pub fn is_mediated(self) -> bool {
        !matches!(self, Self::Direct | Self::Itself)
    }
}

/// When the record of a mediated connection's grant is as good as kept, so that the connection may go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recorded {
    /// When it is on the disk.
    #[default]
    Synced,
    /// When it is written, in its order; it is on the disk within 10 ms. A crash of the host may lose that much, and the log then
    /// says so; a crash of levee loses nothing.
    Written,
}

/// How a server process finds the connection that it was started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passed {
    /// As standard input and output, as inetd(8) does it.
    Stdio,
    /// As descriptor 3, as systemd does it with `Accept=yes` (sd_listen_fds(3)).
    ListenFds,
}

/// What runs as a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// nginx with levee's configuration: the label's and the dominated documents.
    Nginx,
    /// A command line; the first word is an absolute path. It finds its listener as `LISTEN_FDS` says.
    Command(Vec<String>),
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    name: ServiceName,
    port: u16,
    protocol: Protocol,
    range: Range,
    mode: Mode,
    program: Program,
    uploads: bool,
    needs: Needs,
    software: Vec<String>,
    recorded: Recorded,
    protection: Option<ProtectionName>,
}

impl Service {
    /// Its name.
    pub fn name(&self) -> &ServiceName {
        &self.name
    }

    /// The port at which it answers, on the inner addresses.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port's protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The labels at which an instance of its own runs.
    pub fn range(&self) -> &Range {
        &self.range
    }

    /// How it is mediated.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether people may change the label's documents by it: nginx alone has this to decide.
    pub fn uploads(&self) -> bool {
        self.uploads
    }

    /// What of the host's software it needs beside the program itself: names of packages, and paths beneath `/usr`.
    pub fn software(&self) -> &[String] {
        &self.software
    }

    /// When a connection's record is as good as kept, where a mediator decides about each.
    pub fn recorded(&self) -> Recorded {
        self.recorded
    }

    /// What it asks for beyond what every service has.
    pub fn needs(&self) -> &Needs {
        &self.needs
    }
}

/// A host on a single-level network that sessions at its label may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NetworkHost {
    /// Its address, within the network.
    pub address: IpAddr,
    /// The port that may be reached.
    pub port: u16,
    /// The port's protocol.
    pub protocol: Protocol,
}

/// A network: an interface that belongs to one label, or whose packets carry one of several each.
#[derive(Clone, Debug)]
pub struct Network {
    interface: InterfaceName,
    labels: Range,
    domain: Option<u32>,
    addresses: Vec<IpNet>,
    services: Vec<ServiceName>,
    hosts: Vec<NetworkHost>,
}

impl Network {
    /// The interface: it is moved into the label's compartment or, where it has several, to where their packets are parted.
    pub fn interface(&self) -> &InterfaceName {
        &self.interface
    }

    /// Its labels: one, which everything on it has, or those that its packets carry.
    pub fn labels(&self) -> &Range {
        &self.labels
    }

    /// The domain that its packets' labels are of; `None` for a single-level network, whose packets carry none.
    pub fn domain(&self) -> Option<u32> {
        self.domain
    }

    /// The interface's own addresses there, with the network's prefix length.
    pub fn addresses(&self) -> &[IpNet] {
        &self.addresses
    }

    /// The services that hosts on it may reach at its label; none means none.
    pub fn services(&self) -> &[ServiceName] {
        &self.services
    }

    /// The hosts on it that sessions at its label may reach; none means none.
    pub fn hosts(&self) -> &[NetworkHost] {
        &self.hosts
    }
}

/// What stands behind an address that a session may reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Destination {
    /// A service of the site, in its instance at the session's label.
    Service(ServiceName),
    /// A host on the single-level network at this interface.
    Network(InterfaceName),
}

/// One address, protocol and port that a session may reach: one traffic selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reach {
    /// The address as the session sees it.
    pub address: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// What answers there.
    pub destination: Destination,
}

/// A site without a problem. [`Site::parse`] is the only way to one.
#[derive(Clone, Debug)]
pub struct Site {
    name: SiteName,
    vocabulary: Vocabulary,
    colours: BTreeMap<u8, Colour>,
    server: Server,
    limits: Limits,
    vault: Vault,
    crypto: Crypto,
    audit: Audit,
    isolation: Isolation,
    frames: Option<Frames>,
    users: BTreeMap<UserName, User>,
    hosts: BTreeMap<HostName, Host>,
    services: BTreeMap<ServiceName, Service>,
    networks: Vec<Network>,
    federation: Option<Federation>,
    domains: Vec<Domain>,
    partitions: Vec<Partition>,
    channels: Vec<Channel>,
    links: Vec<Link>,
    postures: Vec<Posture>,
    protections: Vec<Protection>,
}

impl Site {
    /// Reads a site file.
    ///
    /// # Errors
    /// Every problem of the file, in its order. A file with any problem at all is not a site.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        parse::site(text)
    }

    /// The site's name.
    pub fn name(&self) -> &SiteName {
        &self.name
    }

    /// The site's words for its labels.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// How the server is one of several; `None` if it is the only one.
    pub fn federation(&self) -> Option<&Federation> {
        self.federation.as_ref()
    }

    /// Networks that sessions' inner addresses come from: those of this server and of the site's others.
    pub fn session_pools(&self) -> Vec<IpNet> {
        let others =
            self.federation.iter().flat_map(|federation| federation.peers()).flat_map(Peer::inner_pools);
        self.server.inner_pools.iter().chain(others).copied().collect()
    }

    /// What one compartment may use at most, and all labels' images together.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How the server's vaults work.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Which algorithms the site has chosen.
    pub fn crypto(&self) -> &Crypto {
        &self.crypto
    }

    /// What becomes of the audit log's checkpoints.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// How the labels are kept apart.
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// When what may run; `None` where everything may at any time.
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_ref()
    }

    /// The banner's colour at a label, if the site gives its level one.
    pub fn colour(&self, label: &Label) -> Option<Colour> {
        self.colours.get(&label.confidentiality.level).copied()
    }

    /// A user by name.
    pub fn user(&self, name: &UserName) -> Option<&User> {
        self.users.get(name)
    }

    /// All users, by name.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &User> {
        self.users.values()
    }

    /// Whether anybody has a second factor: then everybody is asked for a code, so that the question tells nobody who has one.
    pub fn asks_codes(&self) -> bool {
        self.users.values().any(|user| user.second_factor.is_some())
    }

    /// A host by name.
    pub fn host(&self, name: &HostName) -> Option<&Host> {
        self.hosts.get(name)
    }

    /// All hosts, by name.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &Host> {
        self.hosts.values()
    }

    /// A service by name.
    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        self.services.get(name)
    }

    /// All services, by name.
    pub fn services(&self) -> impl ExactSizeIterator<Item = &Service> {
        self.services.values()
    }

    /// All networks, in the file's order.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// The partitions, in the file's order.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The networks of two partitions, in the file's order.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The channels between partitions, in the file's order.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// The postures, in the file's order.
    pub fn postures(&self) -> &[Posture] {
        &self.postures
    }

    /// Which ciphers a label's tunnels may have, the preferred first, where these postures are in force, the last of them over those
    /// before it: those of the last that names the label, else those of `[crypto]`.
    pub fn ciphers<'a>(
        &self,
        label: &Label,
        in_force: impl DoubleEndedIterator<Item = &'a PostureName>,
    ) -> &[Cipher] {
        let postures = in_force.rev().filter_map(|name| self.postures.iter().find(|one| one.name() == name));
        let mut here = postures.filter(|posture| posture.covers(label));
        here.next().map_or(self.crypto.suites().ciphers(), Posture::ciphers)
    }

    /// The domains of interpretation, in the file's order.
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }

    /// The domain that packets name by this number.
    pub fn domain(&self, doi: u32) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.doi() == doi)
    }

    /// Whether a mediator decides about connections to any service at a label.
    pub fn mediates(&self, label: &Label) -> bool {
        self.services_at(label).any(|service| service.mode.is_mediated())
    }

    /// The services that run at a label.
    pub fn services_at<'a>(&'a self, label: &'a Label) -> impl Iterator<Item = &'a Service> {
        self.services.values().filter(|service| service.range.contains(label))
    }

    /// What the services at a label ask for, all together: any of them may pass on what it has to the others.
    pub fn needs_at(&self, label: &Label) -> Needs {
        self.services_at(label).fold(Needs::default(), |needs, service| needs.and(&service.needs))
    }

    /// The networks at a label: single-level ones, and those whose packets may carry it.
    pub fn networks_at<'a>(&'a self, label: &'a Label) -> impl Iterator<Item = &'a Network> {
        self.networks.iter().filter(move |network| network.labels.contains(label))
    }

    /// All that a session at a label may reach, and nothing else.
    pub fn reachable(&self, label: &Label) -> Vec<Reach> {
        let services = self.services_at(label).flat_map(|service| {
            self.server.inner_addresses.iter().map(|address| Reach {
                address: *address,
                protocol: service.protocol,
                port: service.port,
                destination: Destination::Service(service.name.clone()),
            })
        });
        let hosts = self.networks_at(label).flat_map(|network| {
            network.hosts.iter().map(|host| Reach {
                address: host.address,
                protocol: host.protocol,
                port: host.port,
                destination: Destination::Network(network.interface.clone()),
            })
        });
        services.chain(hosts).collect()
    }

    /// The label's canonical name; `None` only if the label is not one of the site's, or lies in nobody's
    /// clearance and has a name longer than [`LabelName::MAX`].
    pub fn label_name(&self, label: &Label) -> Option<LabelName> {
        self.vocabulary.print(label)
    }

    /// The label of a canonical name.
    pub fn label(&self, name: &LabelName) -> Option<Label> {
        self.vocabulary.parse_name(name)
    }

    /// The canonical name of the label that a person means by what they typed; what they typed, where it is none.
    pub fn typed_name(&self, typed: LabelName) -> LabelName {
        let label = self.vocabulary.parse_typed(typed.as_str()).ok();
        label.and_then(|label| self.label_name(&label)).unwrap_or(typed)
    }

    /// The labels at which a user may open a session on a host: clearance ∩ accreditation.
    pub fn session_range(&self, user: &UserName, host: &HostName) -> Option<Range> {
        self.user(user)?.clearance.intersection(&self.host(host)?.accreditation)
    }

    /// The names of the labels at which [`Site::decide_session`] would grant this user a session on this
    /// host, low first; `None` if the range holds more than `limit` labels.
    pub fn session_labels(&self, user: &UserName, host: &HostName, limit: u64) -> Option<Vec<LabelName>> {
        let Some(range) = self.session_range(user, host) else { return Some(Vec::new()) };
        let labels = range.labels(limit)?;
        Some(
            labels
                .filter(|label| !self.reachable(label).is_empty())
                .filter_map(|label| self.label_name(&label))
                .collect(),
        )
    }
}

//! The site: everything `site.toml` says, in types that an invalid site has no value in.

mod access;
mod audit;
mod card;
mod check;
mod cipher;
mod crypto;
mod domains;
mod draft;
mod exchange;
mod federation;
mod frames;
mod gateway;
mod guard;
mod in_force;
mod isolation;
mod layers;
mod link;
mod needs;
mod networks;
mod parse;
mod partition;
mod people;
mod placed;
mod posture;
mod ppk;
mod problem;
mod processors;
mod protection;
mod quantity;
mod quota;
mod reach;
mod read;
pub mod reference;
mod root;
mod server;
mod services;
mod tables;
mod values;
mod vault;
mod ways;
mod wire;

use std::collections::BTreeMap;

use ipnet::IpNet;

pub use access::Access;
pub use audit::{Audit, CheckpointPlace};
pub use cipher::Cipher;
pub use crypto::{Crypto, Curve, Suites, UnknownSuites};
pub use exchange::{Exchange, Exchanges, Keying};
pub use federation::{Federation, Peer};
pub use frames::{Frames, STANDSTILL, Slot};
pub use gateway::Gateway;
pub use guard::{Guard, Hours, Refusal, Releasers};
pub use isolation::{Assurance, Isolation, Processor, Selinux};
pub use link::Link;
pub use needs::{Need, Needs};
pub use networks::Network;
pub use partition::{Channel, Partition, Restart};
pub use people::{Host, SecondFactor, User};
pub use placed::Placed;
pub use posture::Posture;
pub use ppk::HostPpk;
pub use problem::{Problem, ProblemKind};
pub use processors::Processors;
pub use protection::{Protected, Protection, Unprotected};
pub use quota::Quota;
pub use reach::{Destination, NetworkHost, Protocol, Reach};
pub use root::RootImage;
pub use server::{Colour, Limits, MAX_SLOTS, Server};
pub use services::{Mode, Passed, Program, Recorded, Service};
pub use vault::{AeadLibrary, INNER_MTU, LAYERED_MTU, Vault, VaultKind};
pub use wire::Wire;

use crate::domain::Domain;
use crate::label::{Label, Range};
use crate::names::{
    HostName, LabelName, PartitionName, ProtectionName, RangeName, ServiceName, SiteName, UserName,
};
use crate::selinux;
use crate::vocabulary::Vocabulary;

/// Hosts that all networks of a site know at once where it says nothing else, of each family. Who asks for the server and who begins
/// connections may be others: both together have half of what Linux remembers of itself (neigh `gc_thresh3`), so that the server's own way to its
/// workstations has the other half.
pub const NEIGHBOURS: u16 = 256;

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
    processors: Vec<Processors>,
    users: BTreeMap<UserName, User>,
    hosts: BTreeMap<HostName, Host>,
    services: BTreeMap<ServiceName, Service>,
    networks: Vec<Network>,
    federation: Option<Federation>,
    gateway: Option<Gateway>,
    domains: Vec<Domain>,
    partitions: Vec<Partition>,
    channels: Vec<Channel>,
    links: Vec<Link>,
    postures: Vec<Posture>,
    protections: Vec<Protection>,
}

impl Site {
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

    /// The host in front of the server at which the second tunnel ends; `None` if that is the server itself, or the site has one layer.
    pub fn gateway(&self) -> Option<&Gateway> {
        self.gateway.as_ref()
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

    /// Processors that some labels have for themselves; no two have one in common.
    pub fn processors(&self) -> &[Processors] {
        &self.processors
    }

    /// Those that this label has for itself; `None` if it has what all others have.
    pub fn processors_of(&self, label: &Label) -> Option<&Processors> {
        self.processors.iter().find(|processors| processors.are_of(label))
    }

    /// Whether this label has processors that no other label has, and so needs no slot of a frame.
    pub fn runs_apart(&self, label: &Label) -> bool {
        self.processors_of(label).is_some_and(Processors::are_of_one)
    }

    /// The banner's colour at a label, if the site gives its level one. Where it gives none to any, they go from green at the lowest to red
    /// at the highest; seven levels differ so.
    pub fn colour(&self, label: &Label) -> Option<Colour> {
        let level = label.confidentiality.level;
        if !self.colours.is_empty() {
            return self.colours.get(&level).copied();
        }
        let highest = self.vocabulary().levels().count().saturating_sub(1).max(1);
        let last = Colour::USUAL.len().saturating_sub(1);
        Colour::USUAL.get(usize::from(level).saturating_mul(last) / highest).copied()
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

    /// Whether sessions from this host travel within a second tunnel. Of one that it does not know it says so, too: then nothing of it
    /// passes by any other way.
    pub fn is_layered(&self, host: &HostName) -> bool {
        self.hosts.get(host).is_none_or(Host::is_layered)
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

    /// How many slots labels that run at once and partitions have together, from 1 to [`MAX_SLOTS`]: the labels' first.
    pub fn all_slots(&self) -> u16 {
        let partitions = u16::try_from(self.partitions.len()).unwrap_or(MAX_SLOTS);
        self.server.slots().saturating_add(partitions).min(MAX_SLOTS)
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

    /// SHA-256 of all that the postures say: where another server's file has the same, the names mean the same there.
    pub fn postures_digest(&self) -> [u8; 32] {
        posture::digest(&self.postures)
    }

    /// Of what a session's grant lets it reach, what is on where this posture counts: nothing but services can be off.
    pub fn on_under(reach: &[Reach], posture: Option<&Posture>) -> Vec<Reach> {
        let is_on = |one: &&Reach| match &one.destination {
            Destination::Service(service) => posture.is_none_or(|posture| posture.offers(service)),
            Destination::Network(_) => true,
        };
        reach.iter().filter(is_on).cloned().collect()
    }

    /// Which ciphers tunnels may have where this posture counts, the preferred first: its own, else those of `[crypto]`.
    pub fn ciphers_under<'s>(&'s self, posture: Option<&'s Posture>) -> &'s [Cipher] {
        posture.and_then(Posture::ciphers).unwrap_or_else(|| self.crypto.suites().ciphers())
    }

    /// How keys are agreed where this posture counts.
    pub fn keying_under(&self, posture: Option<&Posture>) -> Keying {
        let Exchanges { curves, ml_kem } = self.crypto.suites().exchanges();
        let exchanges = Exchanges {
            curves: posture.and_then(Posture::exchanges).map_or(curves, <[Exchange]>::to_vec),
            ml_kem: ml_kem || posture.is_some_and(Posture::needs_ml_kem),
        };
        let key_life = posture.and_then(Posture::key_life);
        Keying { ciphers: self.ciphers_under(posture).to_vec(), exchanges, key_life }
    }

    /// What a session's tunnel at a label must have where this posture counts: what was asked for it, and how packets go there.
    pub fn protected_under(
        &self,
        label: &Label,
        protected: &Protected,
        posture: Option<&Posture>,
    ) -> Protected {
        let by_posture = posture.filter(|posture| posture.is_constant()).map(|_| self.vault.interval());
        let interval = protected.interval.or(self.vault.constant_interval(label)).or(by_posture);
        let aggregates = self.vault.aggregates(label) || posture.is_some_and(Posture::aggregates);
        Protected { interval, aggfrag: interval.is_none() && aggregates, ..protected.clone() }
    }

    /// What stands at a label's tunnel where this posture counts.
    pub fn vault_under(&self, label: &Label, posture: Option<&Posture>) -> VaultKind {
        if self.vault.agrees(label) || posture.is_some_and(Posture::agrees) {
            return VaultKind::Agreeing;
        }
        let aead = posture.and_then(Posture::aead).unwrap_or(self.vault.aead);
        let poll = posture.and_then(Posture::poll).unwrap_or(self.vault.poll);
        // Each has a rate of its own, and when it begins would show.
        let workers = match self.vault.constant_interval(label) {
            Some(_) => 1,
            None => posture.and_then(Posture::workers).unwrap_or(self.vault.workers),
        };
        VaultKind::One { aead, poll, workers }
    }

    /// The most workers that a label's vault may have, whatever posture counts: so many slots it has.
    pub fn slots_at(&self, label: &Label) -> u16 {
        let postures = self.postures.iter().filter(|posture| posture.covers(label)).map(Some);
        let workers = postures.chain([None]).map(|posture| self.vault_under(label, posture).workers());
        workers.max().unwrap_or(1)
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

    /// The networks of a label's compartment: single-level ones, and those whose packets may carry it. Those of partitions are not.
    pub fn networks_at<'a>(&'a self, label: &'a Label) -> impl Iterator<Item = &'a Network> {
        self.networks
            .iter()
            .filter(move |network| network.partition.is_none() && network.labels.contains(label))
    }

    /// The networks of a partition.
    pub fn networks_of<'a>(&'a self, partition: &'a PartitionName) -> impl Iterator<Item = &'a Network> {
        self.networks.iter().filter(move |network| network.partition.as_ref() == Some(partition))
    }

    /// How many hosts of a network are known at once at most, of each family: what the site says, else a part of [`NEIGHBOURS`].
    pub fn neighbours(&self, network: &Network) -> u16 {
        let part = NEIGHBOURS / u16::try_from(self.networks.len()).unwrap_or(u16::MAX).clamp(1, NEIGHBOURS);
        network.neighbours.unwrap_or(part)
    }

    /// How many of them each of the network's labels knows: an equal part, and one at least.
    pub fn neighbours_of_each(&self, network: &Network) -> u16 {
        let labels = network.labels.labels(networks::MOST).map_or(1, Iterator::count);
        (self.neighbours(network) / u16::try_from(labels).unwrap_or(u16::MAX).max(1)).max(1)
    }

    /// Which end of a link forwards between the link's other end and its own networks: 0 or 1; `None` where nothing is forwarded.
    pub fn forwarder(&self, link: &Link) -> Option<usize> {
        let has_card = |(name, _): &(PartitionName, IpNet)| self.networks_of(name).next().is_some();
        if link.is_routed() { link.ends().iter().position(has_card) } else { None }
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

    /// The same of a range.
    pub fn typed_range(&self, typed: RangeName) -> RangeName {
        let range = self.vocabulary.parse_typed_range(typed.as_str()).ok();
        let printed = range.and_then(|range| self.vocabulary.print_range(&range));
        printed.and_then(|text| RangeName::new(&text).ok()).unwrap_or(typed)
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

    /// Of what can be reached at a label, what this person could reach there, whatever owners say.
    pub fn reachable_by(&self, user: &UserName, label: &Label) -> Vec<Reach> {
        let mut reach = self.reachable(label);
        reach.retain(|one| match &one.destination {
            Destination::Service(name) => {
                self.service(name).is_some_and(|service| service.access().may_admit(user))
            }
            Destination::Network(_) => true,
        });
        reach
    }

    /// The label's SELinux level, such as `s2:c0,c9`: in the numbers of `selinux-domain`, or by its place in the site's lists.
    ///
    /// # Errors
    /// SELinux, or the domain, cannot say the label whole; in words.
    pub fn selinux_level(&self, label: &Label) -> Result<String, String> {
        let Some(doi) = self.isolation.selinux_domain else {
            return selinux::print(&self.vocabulary, label).map_err(|e| e.to_string());
        };
        let domain = self.domains.iter().find(|domain| domain.doi() == doi);
        let domain = domain.ok_or_else(|| format!("there is no [[domain]] with doi = {doi}"))?;
        domain.foreign(label).map(|class| selinux::print_class(&class)).map_err(|e| e.to_string())
    }

    /// The lowest and the highest end of the services' ranges of which labels of the same kernel are between, where the site
    /// wants high assurance: what a service at the second could tell one at the first is not small.
    pub fn widest_with_one_kernel(&self) -> Option<(Label, Label)> {
        if self.isolation.assurance() != Assurance::High {
            return None;
        }
        let ends = self.services.values().flat_map(|service| [service.range.low(), service.range.high()]);
        let shared: Vec<&Label> = ends.filter(|label| !self.isolation.has_own_kernel(label)).collect();
        let pairs = shared.iter().flat_map(|low| shared.iter().map(move |high| (*low, *high)));
        let apart = |(low, high): &(&Label, &Label)| low != high && high.dominates(low);
        // The widest by levels, then by categories.
        let width = |(low, high): &(&Label, &Label)| {
            let levels = high.confidentiality.level.saturating_sub(low.confidentiality.level);
            (
                levels,
                high.confidentiality.categories.len().saturating_sub(low.confidentiality.categories.len()),
            )
        };
        pairs.filter(apart).max_by_key(width).map(|(low, high)| (low.clone(), high.clone()))
    }

    /// What a session at this label must have where its person asks for this and its tunnel may have these ciphers: that, and what each
    /// service at the label asks for.
    ///
    /// # Errors
    /// It cannot be had; then nothing less is.
    pub fn protected(
        &self,
        label: &Label,
        asked: Option<&ProtectionName>,
        ciphers: &[Cipher],
    ) -> Result<Protected, Unprotected> {
        let services = self.services_at(label).filter_map(|service| service.protection.as_ref());
        self.protected_by(label, asked.into_iter().chain(services), ciphers)
    }

    /// The same where these protections were asked for, and no others.
    ///
    /// # Errors
    /// As there.
    pub fn protected_by<'a>(
        &self,
        label: &Label,
        names: impl Iterator<Item = &'a ProtectionName>,
        ciphers: &[Cipher],
    ) -> Result<Protected, Unprotected> {
        let mut whole = Protected::default();
        for name in names {
            let found = self.protections.iter().find(|one| one.name() == name);
            let found = found.ok_or_else(|| Unprotected::Unknown(name.clone()))?;
            if !found.covers(label) {
                return Err(Unprotected::NotHere(name.clone()));
            }
            whole = whole.and(found, Some(self.vault.interval()));
        }
        if !whole.names.is_empty() && whole.among(ciphers).is_empty() {
            return Err(Unprotected::NoCipher(whole.names));
        }
        Ok(whole)
    }
}

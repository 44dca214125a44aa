//! A server's part: whoever has a certificate of the site may have an IKE SA; who may have a child, sessiond says.

use crate::accreditation;
use crate::keyer::Keyer;
use crate::shares::{AtTheirWord, Shares};
use crate::start::revocations;
use levee_ike::{
    CertificateError, ChildDecision, ChildRequested, CloseReason, Command, Identity, IkeId, InnerAddress,
    PeerCertificate, PeerIdentity, RemoteId, RequestId, Resource, SecurityLabel, TrustAnchors, dns_names,
};
use levee_ipc::Secret;
use levee_ipc::keyer::{FromKeyer, KeyRecord, Pass};
use levee_policy::{HostName, LabelName, PpkId};
use levee_session::SessionId;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The certificate extension with a host's accreditation: `docs/accreditation.md`.
const ACCREDITATION: &str = "1.2.840.113556.1.8000.2554.36053.36488.38356.17904.41662.1017755.10205640";
/// Children of one session at a time, beyond which no further one is given for a resource.
const MOST_CHILDREN: usize = 32;
/// IKE SAs of one host at a time; the oldest gives way.
const PER_HOST: usize = 8;
/// Passes that sessiond is given at a time.
const PASSES: usize = 256;
/// Who has proved who it is by the revocation list before the one there is has an IKE SA by then, or never will.
const LONGEST_PROOF: Duration = Duration::from_secs(120);

/// A question that sessiond has to answer.
#[derive(Debug)]
struct Asked {
    request: RequestId,
    ike: IkeId,
    device: HostName,
    label: SecurityLabel,
    name: LabelName,
    /// The child that is to be replaced, by its inbound SPI.
    rekeys: Option<u32>,
    /// Beside one that there is, for another resource of the peer's (RFC 9611).
    further: bool,
    /// It asks for AGGFRAG payloads.
    aggfrag: bool,
}

/// What a server's keyer knows of its peers.
#[derive(Debug, Default)]
pub struct Server {
    /// The established IKE SAs, and whose they are.
    peers: BTreeMap<IkeId, (HostName, PeerCertificate)>,
    by_host: BTreeMap<HostName, BTreeSet<IkeId>>,
    /// When the certificates end by which they were made, in seconds since 1970.
    ends: BTreeSet<(u64, IkeId)>,
    pub(crate) shares: Shares,
    pub(crate) at_their_word: AtTheirWord,
    asked: BTreeMap<u64, Asked>,
    tickets: u64,
    /// The hosts that have come with the newer of two PPKs.
    new_ppks: BTreeMap<HostName, PpkId>,
    /// The revocation list that came last, and when.
    listed: Option<(Arc<TrustAnchors>, Duration)>,
}

impl Server {
    /// Whose IKE SA this is.
    pub fn host_of(&self, ike: IkeId) -> Option<&HostName> {
        self.peers.get(&ike).map(|(host, _)| host)
    }

    /// The first moment at which one of them is over with its certificate, in seconds since 1970.
    pub fn first_end(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| end.saturating_add(1))
    }

    /// Takes out every question that sessiond has not answered.
    pub fn unanswered(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.asked).into_values().map(|asked| asked.request).collect()
    }
}

/// The host that a peer's certificate names, as on the trusted path: its only DNS name.
fn host(identity: &PeerIdentity) -> Option<HostName> {
    let names = dns_names(identity.certificate.as_ref()?.der());
    let [name] = names.as_slice() else { return None };
    HostName::new(name).ok()
}

/// The accreditation in a peer's certificate.
fn accreditation(identity: &PeerIdentity) -> Option<String> {
    accreditation::read(&identity.certificate.as_ref()?.extension(ACCREDITATION)?)
}

/// What is told of a proof that is not believed. What has no name is not told apart: a stranger makes up as much of it as it likes, and would have the
/// room of all else that is counted.
fn told_of(why: &CertificateError) -> String {
    match why {
        CertificateError::Algorithm(which) if which.starts_with("the algorithm ") => {
            "the peer signs with an algorithm that has no name here".to_owned()
        }
        // RFC 7296 3.8, RFC 7427: these have been in use.
        CertificateError::Method(number) if !(1..=14).contains(number) => {
            "the peer authenticates by a method that has no name here".to_owned()
        }
        why => why.to_string(),
    }
}

impl Keyer {
    /// A peer has proved who it is. Whether it stays.
    pub(crate) fn peer_came(
        &mut self,
        ike: IkeId,
        peer: usize,
        identity: &PeerIdentity,
        initial_contact: bool,
    ) -> bool {
        let (Some(host), Some(certificate)) = (host(identity), identity.certificate.clone()) else {
            self.count("IKE: a certificate names no host, or several");
            self.expel(ike);
            return false;
        };
        if !self.met_as_it_must(peer, &host) {
            self.count("IKE: a host came by another identity, to do without its PPK");
            self.expel(ike);
            return false;
        }
        if self.is_revoked_by_now(&certificate) {
            self.count("no IKE SA: the certificate is revoked");
            self.expel(ike);
            return false;
        }
        let ends = certificate.ends();
        if ends < self.now().unix_seconds {
            self.count("no IKE SA: the certificate has run out since it was shown");
            self.expel(ike);
            return false;
        }
        self.server.ends.insert((ends, ike));
        let all = self.server.by_host.entry(host.clone()).or_default();
        // RFC 7296 2.4: with INITIAL_CONTACT the peer says that it knows of no other, so that nobody would answer the end of one.
        // Else the oldest of too many goes.
        let excess = all.len().saturating_add(1).saturating_sub(PER_HOST);
        let old: Vec<IkeId> =
            all.iter().copied().take(if initial_contact { all.len() } else { excess }).collect();
        all.insert(ike);
        self.server.peers.insert(ike, (host, certificate));
        for ike in old {
            if initial_contact {
                let _ = self.command(Command::ForgetIke { ike });
            } else {
                self.expel(ike);
            }
        }
        true
    }

    /// Whether the list that came last names a certificate that may have been shown before it came.
    fn is_revoked_by_now(&self, certificate: &PeerCertificate) -> bool {
        let now = self.now().monotonic;
        let last = self.server.listed.as_ref();
        let last = last.filter(|(_, at)| now.saturating_sub(*at) < LONGEST_PROOF);
        last.is_some_and(|(anchors, _)| anchors.revokes(certificate))
    }

    /// What was begun by a certificate ends with it: nothing could be begun by it any more. sessiond ends the session by what was shown on the trusted path.
    pub(crate) fn see_to_certificates(&mut self) {
        let now = self.now().unix_seconds;
        while let Some(first) = self.server.ends.first().copied().filter(|(end, _)| *end < now) {
            self.server.ends.remove(&first);
            self.count("an IKE SA ended: its certificate has run out");
            self.expel(first.1);
        }
        self.server_ran_out(now);
    }

    /// Whether this IKE SA is one of a host's.
    pub(crate) fn is_a_hosts(&self, ike: IkeId) -> bool {
        self.server.peers.contains_key(&ike)
    }

    /// Ends an IKE SA now. Its peer is told once, and its word is not waited for: it may be long about it, or never say it.
    fn expel(&mut self, ike: IkeId) {
        let _ = self.command(Command::CloseIke { ike });
        let _ = self.command(Command::ForgetIke { ike });
    }

    /// Has sessiond know of a host that uses the newer of its two PPKs: the older one is not needed for it any more.
    pub(crate) fn see_to_ppk(&mut self, peer: usize, identity: &PeerIdentity, used: Option<&[u8]>) {
        let shared = self.endpoint.config().peers.get(peer).and_then(|peer| peer.ppk.as_ref());
        let newer = shared.filter(|ppk| ppk.former.is_some()).map(|ppk| ppk.id.as_slice());
        let (Some(used), Some(device)) = (used.filter(|used| Some(*used) == newer), host(identity)) else {
            return;
        };
        let Some(id) = std::str::from_utf8(used).ok().and_then(|id| PpkId::new(id).ok()) else { return };
        if self.server.new_ppks.insert(device.clone(), id.clone()).is_none() {
            self.asker.send(FromKeyer::NewPpk { device, id });
        }
    }

    /// Tells a sessiond that is new which hosts use the newer of their two PPKs.
    pub(crate) fn tell_ppks(&mut self) {
        for (device, id) in &self.server.new_ppks {
            self.asker.send(FromKeyer::NewPpk { device: device.clone(), id: id.clone() });
        }
    }

    /// Whether a host that must use its PPK was met as the peer that has it. Its certificate may have other names than the one by
    /// which that peer is found.
    fn met_as_it_must(&self, met: usize, host: &HostName) -> bool {
        let named = RemoteId::Exactly(Identity::Fqdn(host.to_string()));
        let mut peers = self.endpoint.config().peers.iter().enumerate();
        let own = peers.find(|(_, peer)| peer.remote_id == named);
        own.is_none_or(|(own, peer)| own == met || !peer.ppk.as_ref().is_some_and(|ppk| ppk.mandatory))
    }

    /// A revocation list has come. Who it names is cut at once; a list that cannot be read is no reason to believe anyone longer than
    /// the one before it allows.
    pub(crate) fn revocations(&mut self, fd: &OwnedFd) {
        let lists = revocations(fd).map_err(|why| why.to_string());
        let anchors = match lists.and_then(|lists| self.authority.anchors(&lists)) {
            Ok(anchors) => anchors,
            Err(why) => return self.count(why),
        };
        self.server.listed = Some((Arc::clone(&anchors), self.now().monotonic));
        let is_revoked =
            |(_, (_, certificate)): &(&IkeId, &(HostName, PeerCertificate))| anchors.revokes(certificate);
        let (revoked, kept): (Vec<_>, Vec<_>) = self.server.peers.iter().partition(is_revoked);
        // By another certificate, which it has had since.
        let kept: BTreeSet<HostName> = kept.into_iter().map(|(_, (host, _))| host.clone()).collect();
        let revoked: Vec<(IkeId, HostName)> =
            revoked.into_iter().map(|(ike, (host, _))| (*ike, host.clone())).collect();
        self.endpoint.trust(Arc::clone(&anchors));
        self.server_revoked(&anchors);
        for (ike, host) in revoked {
            if !kept.contains(&host) {
                // sessiond has the vault erase what the session has.
                self.asker.send(FromKeyer::Revoked(host));
            }
            self.expel(ike);
        }
    }

    pub(crate) fn peer_gone(&mut self, ike: IkeId, reason: &CloseReason) {
        self.server.asked.retain(|_, asked| asked.ike != ike);
        let established = self.server.peers.remove(&ike);
        if let Some((host, certificate)) = &established {
            self.server.ends.remove(&(certificate.ends(), ike));
            if let Some(all) = self.server.by_host.get_mut(host) {
                all.remove(&ike);
                if all.is_empty() {
                    self.server.by_host.remove(host);
                }
            }
        }
        let why = match reason {
            CloseReason::Local | CloseReason::Peer => return,
            CloseReason::PeerSilent => "the peer is silent".to_owned(),
            CloseReason::Notified(_) => "the peer reported an error".to_owned(),
            CloseReason::Certificate(CertificateError::Path(_)) => {
                "a certificate without a valid path to the site's authority".to_owned()
            }
            CloseReason::Certificate(why) => told_of(why),
            CloseReason::Authentication(why) | CloseReason::Protocol(why) => (*why).to_owned(),
            CloseReason::NotSigned => "the signer did not sign".to_owned(),
            CloseReason::PpkNotMixed => "the signer has not this PPK".to_owned(),
            CloseReason::TimedOut => "the handshake took too long".to_owned(),
        };
        let what = if established.is_some() { "an IKE SA ended" } else { "no IKE SA" };
        self.count(format!("{what}: {why}"));
    }

    /// A peer asks for a child SA, or to rekey one.
    pub(crate) fn asked_by_peer(&mut self, asked: ChildRequested) {
        let ChildRequested { request, ike, peer, labels, identity, suite, rekeys, aggfrag, resource, .. } =
            asked;
        self.agreed.put(ike, suite);
        let Some(device) = host(&identity) else {
            return self.refuse(request, None, None, "its certificate names no host, or several");
        };
        if !self.met_as_it_must(peer, &device) {
            return self.refuse(request, Some(device), None, "it came by another identity, without its PPK");
        }
        let [label] = labels.as_slice() else {
            let reason = "it did not ask for exactly one label";
            return self.refuse(request, Some(device), None, reason);
        };
        let Some(name) = label.as_str().and_then(|text| LabelName::new(text).ok()) else {
            return self.refuse(request, Some(device), None, "it asked for what is no label of any site");
        };
        if !self.asker.is_open() {
            return self.refuse(request, Some(device), Some(name), "sessiond is not there");
        }
        self.server.tickets += 1;
        let ticket = self.server.tickets;
        let wanted = FromKeyer::Wanted {
            ticket,
            device: device.clone(),
            label: name.clone(),
            accreditation: accreditation(&identity),
        };
        let label = label.clone();
        let further = resource.is_some();
        let asked = Asked { request, ike, device, label, name, rekeys, further, aggfrag };
        self.server.asked.insert(ticket, asked);
        self.asker.send(wanted);
    }

    fn refuse(&mut self, request: RequestId, device: Option<HostName>, label: Option<LabelName>, why: &str) {
        let _ = self.command(Command::Decide { request, decision: ChildDecision::Refuse });
        self.asker.send(FromKeyer::Refused { device, label, reason: why.to_owned() });
    }

    /// Gives sessiond passes for those who are signed on.
    pub(crate) fn give_passes(&mut self) {
        let passes = (0..PASSES).filter_map(|_| {
            let levee_ike::Pass { name, secret } = self.endpoint.make_pass(&mut self.random);
            Some(Pass { name, secret: Secret::new(secret.to_vec())? })
        });
        let passes = FromKeyer::Passes(passes.collect());
        self.asker.send(passes);
    }

    /// sessiond has answered: the record is of a session that exists now, or there is none.
    pub(crate) fn answered(&mut self, ticket: u64, record: Option<KeyRecord>) {
        let Some(asked) = self.server.asked.remove(&ticket) else { return };
        let Some(record) = record else {
            let _ = self.command(Command::Decide { request: asked.request, decision: ChildDecision::Refuse });
            return;
        };
        let (device, label) = (Some(asked.device.clone()), Some(asked.name.clone()));
        if record.device != asked.device || record.label != asked.name {
            return self.refuse(asked.request, device, label, "sessiond answered something else");
        }
        self.agreed.serve(asked.ike, record.ciphers.clone());
        // Of a child that its own vault does not get the peer would use keys.
        if !record.carriage.suits(asked.aggfrag) {
            return self.refuse(asked.request, device, label, "it did not ask for a constant rate");
        }
        if !self.suits(asked.ike, &asked.name) {
            if self.refuses(asked.ike, &asked.name) {
                let reason =
                    "its IKE SA is agreed by what does not count any more, and it agreed to nothing else";
                return self.refuse(asked.request, device, label, reason);
            }
            // It asks again, and has other keys by then: it agrees to none while it waits for an answer.
            let _ = self.command(Command::Decide { request: asked.request, decision: ChildDecision::Later });
            self.hold_to(asked.ike, &asked.name);
            return;
        }
        self.hold_to(asked.ike, &asked.name);
        if asked.further && asked.rekeys.is_none() && self.children.count(record.session) >= MOST_CHILDREN {
            let decision = ChildDecision::NoMore;
            let _ = self.command(Command::Decide { request: asked.request, decision });
            return;
        }
        // RFC 9611 4: what replaces a child is bound to the same resource.
        let spi = match asked.rekeys {
            Some(old) => self.fresh_spi_at(&asked.name, self.children.slot_of(old)),
            None => self.fresh_spi(&asked.name, record.session, asked.further),
        };
        let Some(spi) = spi else {
            return self.refuse(asked.request, device, label, "its label's vault is not up");
        };
        let (local, remote) = self.sides(&record);
        let assign = record.inner.iter().map(|address| InnerAddress::Address(*address)).collect();
        let (session, aggfrag) = (record.session, record.carriage.aggregates());
        let resource = asked.further.then(Resource::default);
        self.children.admit(record);
        self.children.grant(asked.ike, spi, session);
        let decision =
            ChildDecision::Accept { spi, label: Some(asked.label), local, remote, assign, resource, aggfrag };
        let decided = self.command(Command::Decide { request: asked.request, decision });
        if decided.is_err() {
            self.children.forget(asked.ike);
            let _ = self.command(Command::Decide { request: asked.request, decision: ChildDecision::Refuse });
        }
    }

    /// The session's vault has its record and none of its keys, or this keyer is new.
    pub(crate) fn renew(&mut self, record: KeyRecord) {
        let session = record.session;
        self.children.admit(record);
        self.reach_peer(session, None);
    }

    /// Makes a child for a session with its host, at this worker or at any, if there is an IKE SA with it; else sessiond
    /// finds another way.
    pub(crate) fn reach_peer(&mut self, session: SessionId, at: Option<u16>) {
        let Some(record) = self.children.record(session) else { return };
        let newest = self.server.by_host.get(&record.device).and_then(|all| all.last().copied());
        match newest {
            Some(ike) => self.create(ike, session, at),
            None => self.asker.send(FromKeyer::NoPeer(session)),
        }
    }
}

#[cfg(test)]
mod tests;

//! What the policy says: where this crate asks it for its decisions. What else the site file says is looked up where it is wanted.

use crate::Time;
use crate::address::Pools;
use levee_policy::site::{Peer, Posture};
use levee_policy::{
    Denial, DomainName, Grant, HostName, LabelName, ProtectionName, ServiceName, Site, UserName, decision,
};
use std::net::IpAddr;
use std::time::Duration;

/// Whether this TPE may be used at all.
pub(crate) fn is_known(site: &Site, device: &HostName) -> bool {
    site.host(device).is_some()
}

/// Whether this person, whose password was right, may sign on at this TPE.
pub(crate) fn sign_on(
    site: &Site,
    user: &UserName,
    device: &HostName,
    disabled: bool,
) -> Result<Grant<decision::SignOn>, Box<Denial>> {
    site.decide_sign_on(user, device, disabled)
}

/// Whether this person, whose present password was right, may replace it.
pub(crate) fn password(
    site: &Site,
    user: &UserName,
    device: &HostName,
) -> Result<Grant<decision::ChangePassword>, Box<Denial>> {
    site.decide_password(user, device)
}

/// Whether this TPE may have keys at this label, for the session that it has.
pub(crate) fn keys(
    site: &Site,
    session: &Grant<decision::Session>,
    device: &HostName,
    label: &LabelName,
    accreditation: Option<&str>,
) -> Result<Grant<decision::Keys>, Box<Denial>> {
    site.decide_keys(session, device, label, accreditation)
}

/// Whether this session may have a connection to this service, where this posture counts at its label and this was said of its person.
pub(crate) fn connection(
    site: &Site,
    session: &Grant<decision::Session>,
    service: &ServiceName,
    posture: Option<&Posture>,
    said: Option<bool>,
) -> Result<Grant<decision::Connect>, Box<Denial>> {
    site.decide_connection(session, service, posture, said)
}

/// Whether the person of this session may say that this other one reaches this service at the session's label, or does not.
pub(crate) fn access(
    site: &Site,
    session: &Grant<decision::Session>,
    service: &ServiceName,
    user: &UserName,
    admits: bool,
) -> Result<Grant<decision::ChangeAccess>, Box<Denial>> {
    site.decide_access(session, service, user, admits)
}

/// Whether an operator may.
pub(crate) fn access_by_operator(
    site: &Site,
    label: &LabelName,
    service: &ServiceName,
    user: &UserName,
    admits: bool,
) -> Result<Grant<decision::ChangeAccess>, Box<Denial>> {
    site.decide_access_by_operator(label, service, user, admits)
}

/// Whether this person may have a session at this label from this TPE, with the protection that they ask for, where this posture counts
/// there.
pub(crate) fn open(
    site: &Site,
    user: &UserName,
    device: &HostName,
    label: &LabelName,
    (protection, posture): (Option<&ProtectionName>, Option<&Posture>),
) -> Result<Grant<decision::Session>, Box<Denial>> {
    site.decide_protected_session(user, device, label, protection, posture)
}

/// Whether this person may carry this file out of a session at this label, or into it.
pub(crate) fn carry(
    site: &Site,
    user: &UserName,
    device: &HostName,
    label: &LabelName,
    file: decision::Carry,
) -> Result<Grant<decision::Carry>, Box<Denial>> {
    site.decide_carry(user, device, label, file)
}

/// Whether the person of this session may be shown this message of a guard's, and release or refuse it.
pub(crate) fn release(
    site: &Site,
    session: &Grant<decision::Session>,
    message: &decision::Message,
) -> Result<Grant<decision::Release>, Box<Denial>> {
    site.decide_release(session, message)
}

/// Whether this message may pass by these people's words.
pub(crate) fn pass(
    site: &Site,
    message: decision::Message,
    words: Vec<Grant<decision::Release>>,
) -> Result<Grant<decision::Pass>, Box<Denial>> {
    site.decide_pass(message, words)
}

/// How long a session waits for its trusted path to come back.
pub(crate) fn grace(site: &Site) -> Duration {
    site.server().grace()
}

/// When the sessions of a person who signed on then are over, whoever uses them, if the site says so.
pub(crate) fn last(site: &Site, signed_on: Time) -> Option<Time> {
    site.server().longest_session().map(|span| signed_on.after(span))
}

/// When that person is warned of it.
pub(crate) fn warned(site: &Site, signed_on: Time) -> Option<Time> {
    const BEFORE: Duration = Duration::from_secs(5 * 60);
    site.server().longest_session().map(|span| signed_on.after(span.saturating_sub(BEFORE).max(span / 2)))
}

/// The site's inner addresses.
pub(crate) fn pools(site: &Site) -> Pools {
    Pools::new(site.server().inner_pools(), site.server().inner_addresses().iter().copied())
}

/// Whether sessions of the server `owner` may have these inner addresses: at most one of each family, each of that server's own pools
/// and no address of a server, of a network or of all hosts in one.
pub(crate) fn is_of_peer(site: &Site, owner: &DomainName, inner: &[IpAddr]) -> bool {
    let peers = site.federation().map_or(&[][..], |federation| federation.peers());
    let Some(peer) = peers.iter().find(|peer| peer.name() == owner) else { return false };
    let one_each = inner.iter().filter(|address| address.is_ipv4()).count() <= 1
        && inner.iter().filter(|address| address.is_ipv6()).count() <= 1;
    let servers = site.server().inner_addresses().iter().chain(peers.iter().flat_map(Peer::inner_addresses));
    let servers: Vec<&IpAddr> = servers.collect();
    !inner.is_empty()
        && one_each
        && inner.iter().all(|address| {
            !servers.contains(&address)
                && peer.inner_pools().iter().any(|pool| {
                    pool.contains(address) && *address != pool.network() && *address != pool.broadcast()
                })
        })
}

//! What the policy says: the one place where this crate asks it.

use crate::address::Pool;
use levee_policy::{Denial, Grant, HostName, LabelName, Site, UserName, decision};
use std::net::IpAddr;
use std::time::Duration;

/// Whether this TPE may be used at all.
pub(crate) fn is_known(site: &Site, device: &HostName) -> bool {
    site.host(device).is_some()
}

/// Whether this person may sign on at this TPE: the site knows them.
pub(crate) fn sign_on(site: &Site, user: &UserName) -> Result<(), String> {
    match site.user(user) {
        Some(_) => Ok(()),
        None => Err(format!("the site has no user `{user}`")),
    }
}

/// Whether this person may have a session at this label from this TPE.
pub(crate) fn open(
    site: &Site,
    user: &UserName,
    device: &HostName,
    label: &LabelName,
) -> Result<Grant<decision::Session>, Box<Denial>> {
    site.decide_session(user, device, label)
}

/// How long a session waits for its trusted path to come back.
pub(crate) fn grace(site: &Site) -> Duration {
    site.server().grace()
}

/// The site's inner addresses.
pub(crate) fn pool(site: &Site) -> Pool {
    Pool::new(site.server().inner_pools(), site.server().inner_addresses().iter().copied())
}

/// Whether one of these addresses is of this server's own pool: another server's sessions have none of those.
pub(crate) fn is_of_pool(site: &Site, inner: &[IpAddr]) -> bool {
    inner.iter().any(|address| site.server().inner_pools().iter().any(|pool| pool.contains(address)))
}

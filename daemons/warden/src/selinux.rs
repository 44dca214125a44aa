//! Whether compartments carry SELinux contexts, and which. Type, user and role are levee's; the level is the label's.

use levee_policy::site::Selinux;
use levee_policy::{Label, Site};
use levee_sys::selinux::{self, State};

use crate::compartment::Contexts;
use crate::{Fatal, log};

/// What the host must have. The types are those of `conf/selinux/levee.cil`.
const MODULE: &str = "load levee's module (semodule -i levee.cil) into an MLS policy";
/// The warden's.
const DOMAIN: &str = "levee_t";
/// A warden in another domain has a role that compartments may not have.
const BY_UNIT: &str = "start the server by its unit levee@.service, which gives it the domain levee_t";

/// That the host has what the site requires, before anything is started.
///
/// # Errors
/// SELinux is not there, does not enforce, or does not know levee.
pub fn check(site: &Site) -> Result<(), Fatal> {
    if site.isolation().selinux() != Selinux::Required {
        let is_there = site.isolation().selinux() == Selinux::Auto && selinux::state() != State::Off;
        if is_there && is_loaded()?.is_none() {
            log!("SELinux holds no label: {MODULE}; {BY_UNIT}");
        }
        return Ok(());
    }
    let remedy = match selinux::state() {
        State::Enforcing if is_loaded()?.is_some() => return Ok(()),
        State::Enforcing => {
            format!("the host's policy does not know levee in this domain: {MODULE}; {BY_UNIT}")
        }
        State::Permissive => "the host's SELinux is permissive: setenforce 1".into(),
        State::Off => {
            "the host has no SELinux: boot with security=selinux selinux=1 and an MLS policy".into()
        }
    };
    let why = format!("{remedy}; or write `selinux = \"auto\"` in [isolation]");
    Err(Fatal::new("have SELinux enforce labels, as the site requires", why))
}

/// The contexts of a label's compartment; `None` where the site or the host has no use for them.
///
/// # Errors
/// The site requires them and the host has none; or the level cannot be said, or is not one of the host's policy.
pub fn contexts(site: &Site, label: &Label) -> Result<Option<Contexts>, Fatal> {
    if site.isolation().selinux() == Selinux::Required {
        // It may have been turned off since the server began.
        check(site)?;
    }
    if site.isolation().selinux() == Selinux::Off || selinux::state() == State::Off {
        return Ok(None);
    }
    let Some(own) = is_loaded()? else { return Ok(None) };
    let contexts = at(site, label, &own)?;
    for context in [&contexts.processes, &contexts.files, &contexts.programs] {
        if !selinux::knows(context).map_err(step)? {
            let why = format!(
                "the host's policy has no {context}: it needs MLS with this level and these categories"
            );
            return Err(step(why));
        }
    }
    Ok(Some(contexts))
}

/// What they are where a server runs in this context.
///
/// # Errors
/// The level cannot be said.
pub fn at(site: &Site, label: &Label, own: &str) -> Result<Contexts, Fatal> {
    let level = site.selinux_level(label);
    let level = level.map_err(|why| step(format!("{why}; or write `selinux = \"off\"` in [isolation]")))?;
    let mut parts = own.split(':');
    let (user, role) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    Ok(Contexts {
        // Its own user and role: a process may not change them on its way (constrain process dyntransition).
        processes: format!("{user}:{role}:levee_compartment_t:{level}"),
        files: format!("{user}:object_r:levee_compartment_file_t:{level}"),
        programs: format!("{user}:object_r:levee_compartment_exec_t:{level}"),
    })
}

/// The warden's own context, where the policy has levee's types for it, and it is in the domain of its own.
fn is_loaded() -> Result<Option<String>, Fatal> {
    let own = selinux::own().map_err(step)?;
    let mut parts = own.splitn(4, ':');
    let (user, role) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Another one may know the types, and cannot give them to files and processes of other levels.
    let is_own = parts.next() == Some(DOMAIN);
    let lowest = format!("{user}:{role}:levee_compartment_t:s0");
    Ok((is_own && selinux::knows(&lowest).map_err(step)?).then_some(own))
}

fn step(why: impl std::fmt::Display) -> Fatal {
    Fatal::new("label a compartment for SELinux", why)
}

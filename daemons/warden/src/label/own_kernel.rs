//! What differs at a label whose compartment is a machine with a kernel of its own: its services' lives and its sockets are told
//! of by process 1 within, and it is asked to end.

use super::launch::{inner_addresses, served};
use super::{Resources, RunningLabel};
use crate::below::{self, Below};
use crate::compartment;
use crate::machine;
use crate::machine::image::{CACHE, INITRAMFS, Recipe};
use crate::machine::proto::Wire;
use crate::making::Boot;
use crate::{Fatal, log};
use levee_ipc::warden::LabelEvent;
use levee_policy::LabelName;
use std::net::IpAddr;

impl RunningLabel {
    /// What has been cut since the last time.
    pub fn cuts_done(&mut self) -> Vec<LabelEvent> {
        std::mem::take(&mut self.cut)
    }

    /// Whether it must be looked at again soon: it is being built, or is to cut something.
    pub fn is_awaited(&self) -> bool {
        self.is_building() || self.compartment.uncut().next().is_some()
    }

    /// Ends a machine that is late with what it is to cut.
    pub fn see_to_cuts(&self) {
        if self.compartment.is_late() {
            let label = self.compartment.label();
            log!("the machine at {label} does not say that connections are cut: ending it");
            self.kill();
        }
    }

    /// Has a machine end in good order. Whether it will: otherwise, as where it is late with what it was told last, it is to be stopped.
    pub fn parts(&self) -> bool {
        let hears = self.machine.is_some() && !self.is_awaited() && self.is_turning() != Some(true);
        hears && self.compartment.ask_to_stop().is_ok()
    }

    /// Whether nothing runs any more of one that was to end.
    pub fn has_ended(&self) -> bool {
        self.compartment.has_ended()
    }

    /// Of one that has ended: whether the kernel has nothing of its connections any more.
    pub fn leaves_nothing(&mut self) -> bool {
        self.leavings.are_gone(self.network.ns(), self.compartment.label())
    }

    /// Has its machine destroy the sockets of a session's inner address.
    pub(super) fn cut_within(&mut self, inner: IpAddr, ticket: u64) -> Option<LabelEvent> {
        if self.is_building() {
            // It has no socket yet.
            return Some(LabelEvent::Cut { ticket, sockets: Some(0) });
        }
        if let Err(e) = self.compartment.cut(ticket, inner) {
            log!("{e}");
            // Its end, which follows, is the sockets'.
            self.kill();
        }
        None
    }
}

/// What the label's machine boots, if it has one and that is not there yet.
pub fn boot(name: &LabelName, resources: &Resources<'_>) -> Option<Boot> {
    resources.site.label(name).filter(|label| resources.site.isolation().has_own_kernel(label))?;
    let recipe = recipe(resources);
    let place = recipe.place(CACHE.as_ref());
    (!place.join(INITRAMFS).exists()).then_some((recipe, place))
}

/// Levee's programs, and the kernel.
fn recipe(resources: &Resources<'_>) -> Recipe {
    Recipe {
        kernel_root: resources.site.isolation().kernel_root().to_owned(),
        programs: resources.options.programs.clone(),
    }
}

/// A label's machine, as data, where `spec` is what its compartment is to be.
pub(crate) fn spec(
    name: &LabelName,
    label: &levee_policy::Label,
    below: &Below,
    resources: &Resources<'_>,
    spec: compartment::Spec,
) -> Result<machine::MachineSpec, Fatal> {
    let site = resources.site;
    Ok(machine::MachineSpec {
        compartment: spec,
        image: recipe(resources).place(CACHE.as_ref()),
        accelerator: machine::accelerator(site.isolation().processor()),
        wire: Wire {
            mtu: site.vault().inner_mtu(label).into(),
            addresses: inner_addresses(site),
            routes: site.session_pools(),
        },
        services: site.services_at(label).map(|service| served(name, below, site, service)).collect(),
        read: below::is_read(label, site),
    })
}

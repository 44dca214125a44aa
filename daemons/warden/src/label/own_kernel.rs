//! What differs at a label whose compartment is a machine with a kernel of its own: its services' lives and its sockets are told
//! of by process 1 within, and it is asked to end.

use super::{Cutting, Resources, RunningLabel, addresses, inner_addresses, known, launch, spec_with, stores};
use crate::below::{self, Below};
use crate::compartment::{self, Plan};
use crate::form::{self, Form};
use crate::machine::image::{CACHE, INITRAMFS, Recipe};
use crate::machine::proto::{Offered, Wire};
use crate::machine::{self, Event, Machine};
use crate::making::Boot;
use crate::{Fatal, log};
use levee_policy::{LabelName, site};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// What a machine was told to cut is cut.
#[derive(Debug)]
pub struct CutDone {
    /// Whose.
    pub ticket: u64,
    /// How many sockets; `None` if that failed.
    pub sockets: Option<u32>,
}

impl RunningLabel {
    pub(super) fn take_from_machine(
        &mut self,
        events: Vec<Event>,
    ) -> levee_sys::Result<Option<Result<(), String>>> {
        let (mut built, now) = (None, Instant::now());
        for event in events {
            match event {
                Event::Built => built = Some(Ok(())),
                Event::Failed(reason) => return Ok(Some(Err(reason))),
                Event::Started(place) => {
                    self.services.get_mut(usize::from(place)).into_iter().for_each(|s| s.began(now));
                }
                Event::Ended { service, how, well } => {
                    let service = self.services.get_mut(usize::from(service));
                    service.into_iter().for_each(|service| service.has_ended(&how, well));
                }
                Event::Said(place, line) => {
                    self.services.get(usize::from(place)).into_iter().for_each(|s| s.said(&line));
                }
                Event::Cut(ticket, sockets) => {
                    let Form::Machine { cuts, .. } = &mut self.form else { continue };
                    if cuts.remove(&ticket).is_none() {
                        let why = "it cut what nobody asked for";
                        return Err(levee_sys::Error::invalid("listen to a machine", why));
                    }
                    self.cut.push(CutDone { ticket, sockets });
                }
            }
        }
        Ok(built)
    }

    /// What has been cut since the last time.
    pub fn cuts_done(&mut self) -> Vec<CutDone> {
        std::mem::take(&mut self.cut)
    }

    /// Whether it must be looked at again soon: it is being built, or is to cut something.
    pub fn is_awaited(&self) -> bool {
        self.is_building() || self.form.is_cutting()
    }

    /// Ends a machine that is late with what it is to cut.
    pub fn see_to_cuts(&self) {
        if self.form.is_late() {
            let label = self.form.outer().label();
            log!("the machine at {label} does not say that connections are cut: ending it");
            self.form.kill();
        }
    }

    /// Has a machine end in good order. Whether it will: otherwise it is to be stopped.
    pub fn parts(&self) -> bool {
        match &self.form {
            Form::Machine { machine, cuts } if cuts.is_empty() && !machine.is_building() => {
                machine.ask_to_stop().is_ok()
            }
            _ => false,
        }
    }

    /// Whether nothing runs any more of one that was to end.
    pub fn has_ended(&mut self) -> bool {
        if let Form::Machine { machine, .. } = &mut self.form
            && machine.events().is_err()
        {
            return true;
        }
        self.form.outer().has_ended()
    }
}

/// Has a machine destroy the sockets of a session's inner address.
pub(super) fn cut(
    machine: &Machine,
    cuts: &mut BTreeMap<u64, Instant>,
    inner: IpAddr,
    ticket: u64,
) -> Cutting {
    if machine.is_building() {
        // It has no socket yet.
        return Cutting::Done(Some(0));
    }
    cuts.insert(ticket, form::cut_by());
    if let Err(e) = machine.cut(ticket, inner) {
        log!("{e}");
        // Its end, which follows, is the sockets'.
        let _ = machine.kill();
    }
    Cutting::Later
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
pub(super) fn spec(
    name: &LabelName,
    label: &levee_policy::Label,
    below: &Below,
    resources: &Resources<'_>,
    spec: compartment::Spec,
) -> Result<machine::Spec, Fatal> {
    let site = resources.site;
    let offered = |service: &site::Service| Offered {
        name: service.name().clone(),
        protocol: service.protocol(),
        listen: if service.mode() == site::Mode::Itself { Vec::new() } else { addresses(site, service) },
        launch: launch(name, below, site, service),
    };
    Ok(machine::Spec {
        compartment: spec,
        image: recipe(resources).place(CACHE.as_ref()),
        accelerator: machine::accelerator(site.isolation().processor()),
        wire: Wire {
            mtu: site.vault().inner_mtu(label).into(),
            addresses: inner_addresses(site),
            routes: site.session_pools(),
        },
        services: site.services_at(label).map(offered).collect(),
        read: below::is_read(label, site),
    })
}

/// How the label `name` is started, for people to read.
///
/// # Errors
/// The site does not know the label.
pub fn plan(name: &LabelName, resources: &Resources<'_>) -> Result<String, Fatal> {
    let label = known(name, resources)?;
    let below = Below::of(&label, resources.site, &stores(resources));
    let contexts = crate::selinux::planned(resources.site, &label)?;
    let whole = spec_with(name, &label, &below, resources, contexts)?;
    if !resources.site.isolation().has_own_kernel(&label) {
        return Ok(Plan::new(&whole).to_string());
    }
    let plan = machine::Plan::new(spec(name, &label, &below, resources, whole)?);
    plan.map(|plan| plan.to_string()).ok_or_else(|| Fatal::new("plan a machine", "it has no store"))
}

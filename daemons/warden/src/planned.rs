//! What levee-plan prints: the start of a label's compartment, step by step, as it would be carried out. It needs no power.

use crate::below::Below;
use crate::compartment::Contexts;
use crate::label::{self, Resources};
use crate::machine::PROGRAM;
use crate::options::Options;
use crate::uids::Uids;
use crate::{Fatal, compartment, machine, programs, selinux, state};
use levee_policy::site::{Mode, Selinux};
use levee_policy::{Label, Site};
use levee_sys::selinux::{self as on_host, State};
use std::fmt;
use std::path::Path;

/// Where a server's processes run by `conf/selinux/levee.cil`.
const WARDEN: &str = "system_u:system_r:levee_t";
/// The context of a compartment that every policy with the module has.
const LOWEST: &str = "system_u:system_r:levee_compartment_t:s0";

/// How the compartment of this label would be started.
///
/// # Errors
/// The site file has problems, or does not know the label.
pub fn plan(options: &Options, label: &str) -> Result<String, Fatal> {
    let (_, site) = state::site(&options.config)?;
    // In any form that the site takes, and with the nearest name where it is none.
    let step = format!("plan a compartment at {label}");
    let known = site.vocabulary().parse_typed(label).map_err(|e| Fatal::new(&step, e))?;
    let name = site.label_name(&known).ok_or_else(|| Fatal::new(&step, "its name is too long"))?;
    // As for the first warden on a host and the first label in it; the start itself picks what is free.
    let slots = [1];
    let image = Path::new(programs::CACHE).join(programs::Wanted::of(&site).file_name());
    let uids = Uids::first(site.all_slots());
    let resources =
        Resources { options, site: &site, uids: &uids, slots: &slots, attached: None, image, in_force: None };
    let label = label::known(&name, &resources)?;
    let below = Below::of(&label, &site, &label::stores(&resources));
    let contexts = contexts(&site, &label)?;
    let whole = label::spec_with(&name, &label, &below, &resources, contexts)?;
    if !site.isolation().has_own_kernel(&label) {
        return Ok(compartment::Plan::new(&whole).to_string());
    }
    let plan = machine::MachinePlan::new(label::machine_spec(&name, &label, &below, &resources, whole)?);
    plan.map(|plan| plan.to_string()).ok_or_else(|| Fatal::new("plan a machine", "it has no store"))
}

/// The SELinux contexts of its compartment, for people to read: what a server that its unit starts would have. Where the site requires them, also on a host that has none.
///
/// # Errors
/// The level cannot be said.
fn contexts(site: &Site, label: &Label) -> Result<Option<Contexts>, Fatal> {
    match (site.isolation().selinux(), on_host::state()) {
        (Selinux::Off, _) | (Selinux::Auto, State::Off) => Ok(None),
        // (Who may not ask is shown them.)
        (Selinux::Auto, _) if matches!(on_host::knows(LOWEST), Ok(false)) => Ok(None),
        _ => selinux::at(site, label, WARDEN).map(Some),
    }
}

/// The steps, numbered, one a line.
impl fmt::Display for compartment::Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "compartment {}", self.label)?;
        let outside = self.outside.iter().map(|step| ("warden", step.to_string()));
        let inside = self.inside.iter().map(|step| ("process 1", step.to_string()));
        for (number, (who, step)) in outside.chain(inside).enumerate() {
            writeln!(f, "{:3}  {who:9}  {step}", number + 1)?;
        }
        Ok(())
    }
}

/// The steps, numbered, one a line.
impl fmt::Display for machine::MachinePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machine {}: a kernel of its own", self.whole.label)?;
        let mut steps: Vec<(&str, String)> = vec![
            (
                "warden",
                "make TAP device machine0, without addresses; forward between it and the vault's TUN".into(),
            ),
            ("warden", format!("open disk {}: locked, not mounted", self.own.display())),
            ("warden", format!("open disk {}: to read", self.programs.display())),
        ];
        if let Some(below) = &self.below {
            steps.push(("warden", format!("open disk {}: locked, not mounted", below.display())));
        }
        steps.extend(self.host.outside.iter().map(|step| ("warden", step.to_string())));
        steps.extend(self.host.inside.iter().map(|step| ("process 1", step.to_string())));
        let arguments = self.hardware.arguments();
        let command = arguments.iter().skip(1).fold(PROGRAM.to_owned(), |line, word| line + " " + word);
        steps.push(("process 1", format!("start {command}")));
        steps.push(("machine", "load the modules of its devices, and forbid any more".into()));
        steps.extend(self.whole.outside.iter().map(|step| ("machine", step.to_string())));
        steps.extend(self.inside.iter().map(|step| ("in it", step.to_string())));
        for service in self.whole.services.iter().filter(|service| service.mode != Mode::Itself) {
            let listen = service.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
            steps.push(("machine", format!("listen for {} at {listen}", service.name)));
        }
        for (number, (who, step)) in steps.into_iter().enumerate() {
            writeln!(f, "{:3}  {who:9}  {step}", number + 1)?;
        }
        Ok(())
    }
}

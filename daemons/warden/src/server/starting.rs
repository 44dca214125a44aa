//! What a label waits for before it starts: a rest, its end, its stores, whoever has them open still, the image of the programs, a slot.

use super::Server;
use super::keeping::Kept;
use crate::framed;
use crate::label::ending::Ending;
use crate::label::{self, Resources, RunningLabel};
use crate::making::{self, Image};
use crate::{Fatal, log};
use levee_ipc::warden::LabelEvent;
use levee_policy::LabelName;
use std::collections::BTreeSet;
use std::time::Instant;

impl Server {
    /// Starts vault and compartment of a label, or keeps them; a label's first start ever begins with its store. Sessiond hears of it when both are there.
    pub(super) fn need(&mut self, name: LabelName) {
        let now = Instant::now();
        if let Some(running) = self.labels.get_mut(&name) {
            running.keep();
            return self.tell_if_up(&name);
        }
        if let Some(why) = self.keeping.rests(&Kept::Start(name.clone()), now) {
            // It is not tried for everybody who asks.
            self.awaited.remove(&name);
            return self.tell_sessiond(LabelEvent::Failed { label: name, reason: why });
        }
        if self.keeping.rests(&Kept::Compartment(name.clone()), now).is_some() {
            // It is started when it has rested.
            return;
        }
        self.awaited.entry(name.clone()).or_default();
        let waits =
            self.makers.has(&name) || self.upflow.is_in_the_way(&name) || self.ending_labels.has(&name);
        if waits {
            return;
        }
        if let Err(e) = self.start_label(&name) {
            self.not_started(&name, &e.to_string());
        }
        self.begin_making();
    }

    /// Something has ended that was in the way of a label: it is tried again, if somebody waits for it.
    pub(super) fn try_again(&mut self, name: LabelName) {
        if self.awaited.contains_key(&name) {
            self.need(name);
        }
    }

    /// Begins the stores that have their turn.
    fn begin_making(&mut self) {
        for (name, why) in self.makers.begin(&self.options.programs, &mut self.processes.waits) {
            self.not_started(&name, &why.to_string());
        }
    }

    /// Starts labels whose stores are there now, and has the next ones made.
    pub(super) fn see_to_makers(&mut self) {
        self.networks.counted();
        for (name, made) in self.makers.ended() {
            match made {
                // Nothing else is missing now, so this begins it, or says what is wrong.
                Ok(()) => self.try_again(name),
                Err(why) => self.not_started(&name, &why),
            }
        }
        self.begin_making();
    }

    /// Starts labels that waited for the image of the programs.
    pub(super) fn see_to_images(&mut self, starting: bool) -> Result<(), Fatal> {
        let Some(result) = self.images.ended() else { return Ok(()) };
        if starting && let Err(why) = &result {
            return Err(Fatal::new("make the image of the services' programs", why));
        }
        for name in self.awaited.keys().cloned().collect::<Vec<_>>() {
            match &result {
                Ok(()) => self.need(name),
                Err(why) => self.not_started(&name, why),
            }
        }
        Ok(())
    }

    fn start_label(&mut self, name: &LabelName) -> Result<(), Fatal> {
        framed::has_slot(&self.site, name)?;
        let workers = self.site.label(name).map_or(1, |label| self.site.slots_at(&label));
        let Some(slots) = self.free_slots(usize::from(workers)) else {
            let idle = self.labels.iter().filter_map(|(name, label)| Some((label.idle_for()?, name.clone())));
            // What nobody has used for longest gives way; this one is tried again when that has ended.
            let Some((_, idle)) = idle.max() else {
                let why = format!("{} labels run already: raise `slots`", self.labels.len());
                return Err(Fatal::new("find a slot", why));
            };
            self.end_idle(&idle);
            return Ok(());
        };
        let attached = self.networks.at(name);
        let Some(image) = self.images.find() else {
            return self.images.begin(&mut self.processes.waits);
        };
        let resources = Resources {
            options: &self.options,
            site: &self.site,
            uids: &self.uids,
            slots: &slots,
            attached,
            image,
            in_force: self.postures.in_force(),
        };
        let missing = label::missing(name, &resources)?;
        let boot = label::boot(name, &resources);
        if !missing.is_empty() || boot.is_some() {
            self.admit_images(&missing)?;
            self.makers.want(name.clone(), missing, boot);
            return Ok(());
        }
        let held = self.awaited.entry(name.clone()).or_default();
        if held.is_in_the_way(&label::images(name, &resources), Instant::now())? {
            return Ok(());
        }
        let running = RunningLabel::start(name, resources)?;
        self.awaited.remove(name);
        self.labels.insert(name.clone(), running);
        // The turn can be long: what the label starts, it starts in its slots.
        self.see_to_frames();
        self.prepare_copies(name);
        self.start_mediator(name)?;
        self.start_vault(name)
    }

    /// That the site has room for these images: what people can cause to be made ends somewhere.
    fn admit_images(&self, images: &[Image]) -> Result<(), Fatal> {
        let step = "make a store";
        let there = making::made(&self.options.state.join("stores")).map_err(|e| Fatal::new(step, e))?;
        let more = images.iter().fold(self.makers.bytes(), |sum, (_, bytes)| sum.saturating_add(*bytes));
        if there.saturating_add(more) <= self.site.limits().stores {
            return Ok(());
        }
        let why = format!(
            "the labels' images have {}M, and {}M more would go beyond the site's `[limits] stores`: raise it, or \
             remove the images of labels that are not needed any more",
            there >> 20,
            more >> 20
        );
        Err(Fatal::new(step, why))
    }

    /// So many slots that no label has, by chance, so that a slot's number says nothing about when a label started.
    fn free_slots(&self, count: usize) -> Option<Vec<u16>> {
        let taken: BTreeSet<u16> = self
            .labels
            .values()
            .flat_map(|label| label.slots.iter().copied())
            .chain(self.ending_labels.slots())
            .collect();
        let mut free: Vec<u16> =
            (1..=self.site.server().slots()).filter(|slot| !taken.contains(slot)).collect();
        let mut chosen = Vec::with_capacity(count);
        while chosen.len() < count && !free.is_empty() {
            let mut random = [0u8; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).ok()?;
            let index = usize::try_from(u64::from_ne_bytes(random) % (free.len() as u64)).ok()?;
            chosen.push(free.swap_remove(index));
        }
        (chosen.len() == count).then_some(chosen)
    }

    /// Labels whose images something had open are tried again.
    pub(super) fn see_to_held(&mut self) {
        let held = self.awaited.iter().filter(|(_, held)| held.is_awaited());
        for name in held.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.need(name);
        }
    }

    /// Labels that have ended may be wanted again, or make room.
    pub(super) fn see_to_endings(&mut self) {
        // What waits may have waited for the label itself, or for its slots.
        let waiting =
            if self.ended_labels().is_empty() { Vec::new() } else { self.awaited.keys().cloned().collect() };
        waiting.into_iter().for_each(|name| self.need(name));
    }

    /// Takes the labels that have ended, and answers them.
    pub(super) fn ended_labels(&mut self) -> Vec<LabelName> {
        let mut ended = Vec::new();
        for name in self.ending_labels.dead() {
            self.tell_sessiond(LabelEvent::Died(name));
        }
        for (name, Ending { label, snapshot, died, .. }) in self.ending_labels.ended() {
            let (cut, askers): (_, Vec<u64>) = (label.uncut(), label.execution_askers().collect());
            let (last_words, stopped) = label.stop();
            self.last_words.extend(last_words);
            if let Err(e) = stopped {
                log!("stopping {name}: {e}");
            }
            // With what runs, which has ended, what was to be cut is.
            for ticket in askers {
                let result = Err("its label has ended".into());
                self.tell_sessiond(LabelEvent::Executed { ticket, result });
            }
            for ticket in cut {
                self.tell_sessiond(LabelEvent::Cut { ticket, sockets: Some(0) });
            }
            if died {
                self.tell_sessiond(LabelEvent::Died(name.clone()));
            }
            self.upflow.finish(&name, snapshot, &mut self.processes.waits);
            ended.push(name);
        }
        ended
    }
}

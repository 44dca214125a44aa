//! Partitions: when each is started, what becomes of one that ends, and what an operator orders.

use super::Server;
use super::keeping::Kept;
use crate::channels::Way;
use crate::key::Key;
use crate::partition::{Partition, PartitionResources};
use crate::{Fatal, links, log};
use levee_ipc::warden::guard::GuardSays;
use levee_ipc::warden::{LabelEvent, PartitionOrder};
use levee_policy::PartitionName;
use std::time::Instant;

impl Server {
    /// Starts partitions that wait and have all that they need; has made what they need, and ends what takes too long.
    pub(super) fn see_to_partitions(&mut self) {
        for (name, made) in self.partition_makers.ended() {
            if let Err(why) = made {
                let at = self.partitions.iter().position(|partition| *partition.log_name() == name);
                at.into_iter().for_each(|at| self.partition_over(at, &why));
            }
        }
        for key in self.ways.iter().filter(|way| way.is_new()).map(Way::key).collect::<Vec<_>>() {
            let kept = Kept::Process(key);
            self.start_again(kept);
        }
        for ended in self.partitions.iter().filter(|partition| !partition.is_running()) {
            self.ways.iter_mut().for_each(|way| way.over(ended.name()));
        }
        for at in 0..self.partitions.len() {
            if self.partitions.get(at).is_some_and(Partition::is_waiting)
                && let Err(e) = self.start_partition(at)
            {
                self.partition_over(at, &e.to_string());
            }
            if self.partitions.get(at).is_some_and(Partition::is_building) {
                self.hear_partition(at);
            }
            let watched = self.partitions.get_mut(at).map(|one| one.see_to(at, &mut self.processes.waits));
            if let Some(Err(e)) = watched {
                self.partition_over(at, &format!("it cannot be waited for: {e}"));
            }
            for ticket in self.partitions.get_mut(at).map(Partition::told).unwrap_or_default() {
                self.tell_sessiond(LabelEvent::Partition { ticket, result: Ok(()) });
            }
        }
        for (name, why) in self.partition_makers.begin(&self.options.programs, &mut self.processes.waits) {
            log!("{name}: {why}");
        }
    }

    fn start_partition(&mut self, at: usize) -> Result<(), Fatal> {
        // One at a time, as those of the programs' image.
        let busy = self.partitions.iter().any(Partition::is_making);
        let waits = &mut self.processes.waits;
        let Some(partition) = self.partitions.get_mut(at) else { return Ok(()) };
        let image = match partition.root(&self.images, busy, waits) {
            Some(root) => root?,
            None => {
                let image = self.images.find();
                if image.is_none() {
                    self.images.begin(waits)?;
                }
                image
            }
        };
        let Some(image) = image else { return Ok(()) };
        if self.partition_makers.has(partition.log_name()) {
            return Ok(());
        }
        if let Some(missing) = partition.missing(&self.options)? {
            self.partition_makers.want(partition.log_name().clone(), vec![missing], None);
            return Ok(());
        }
        if partition.is_held(&self.options)? {
            return Ok(());
        }
        let (options, site, uids) = (&self.options, &self.site, &self.uids);
        let attached = self.networks.at(partition.log_name());
        partition.start(&PartitionResources { options, site, uids, image, attached })?;
        let begun = partition.name().clone();
        // Links can take long: what it starts, it starts in its slots.
        self.see_to_frames();
        links::lay(&self.site, &self.partitions, &begun)
    }

    /// Takes what has happened in a partition.
    pub(super) fn hear_partition(&mut self, at: usize) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        let was_building = partition.is_building();
        let over = partition.hear(&self.uids, &mut self.ways);
        self.attach_channels();
        let Some(partition) = self.partitions.get(at) else { return };
        match over {
            Some(how) => self.partition_over(at, &how),
            None if was_building && !partition.is_building() => {
                let name = partition.name().clone();
                self.note_partition(&name, true, "started");
            }
            None => {}
        }
    }

    /// Gives channels the ends that they have not got yet.
    fn attach_channels(&mut self) {
        for way in &mut self.ways {
            if let Some(process) = self.processes.get(&way.key()) {
                way.attach(process);
            }
        }
    }

    /// Starts the process of a channel.
    pub(super) fn start_channel(&mut self, key: &Key) -> Result<(), Fatal> {
        let Some(way) = self.ways.iter_mut().find(|way| way.key() == *key) else { return Ok(()) };
        let process = way.start(&self.options, &self.uids, &self.logs, &self.networks)?;
        self.admit(process)?;
        self.attach_channels();
        Ok(())
    }

    /// What a channel has carried.
    pub(super) fn channel_said(&mut self, key: &Key, counted: Vec<(String, u64)>) {
        if let Some(way) = self.ways.iter_mut().find(|way| way.key() == *key) {
            way.counted(counted);
        }
    }

    /// Gives the processes of one-way channels from and to other hosts the keys that there are now. Whether there are any such channels.
    pub(super) fn rekey_channels(&self) -> bool {
        let rekey = |way: &Way| way.rekey(self.processes.get(&way.key()), &self.options);
        let all: Vec<_> = self.ways.iter().filter_map(rekey).collect();
        for (object, reason) in all.iter().filter_map(|given| given.clone().err()) {
            log!("{object}: {reason}");
            self.note(None, object, false, reason);
        }
        !all.is_empty()
    }

    /// What a guard has carried; or its filter is to be started again, by the rule for its partition.
    pub(super) fn guard_said(&mut self, key: &Key, said: GuardSays) {
        let (number, why) = match said {
            GuardSays::Counted(counted) => return self.channel_said(key, counted),
            GuardSays::Stuck(number, why) => (number, why),
        };
        // One that has been started again meanwhile is another.
        let way = self.ways.iter().find(|way| way.key() == *key && way.filters() == number);
        let is_filter = |one: &Partition| way.and_then(Way::filter) == Some(one.name()) && one.is_at_work();
        if let Some(at) = self.partitions.iter().position(is_filter) {
            self.partition_over(at, &format!("its guard says: {why}"));
        }
    }

    /// It has ended, or could not be started.
    pub(super) fn partition_over(&mut self, at: usize, how: &str) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        let (name, again) = (partition.name().clone(), partition.ended(how, Instant::now()));
        let next = if again { "it is started again" } else { "it is off" };
        log!("the partition {name} ended: {how}; {next}");
        self.note_partition(&name, false, &format!("ended: {how}; {next}"));
    }

    fn note_partition(&self, name: &PartitionName, done: bool, reason: &str) {
        self.note(None, format!("partition {name}"), done, reason);
    }

    /// What an operator wants to become of it.
    pub(super) fn order_partition(&mut self, name: &PartitionName, order: PartitionOrder, ticket: u64) {
        let what = match order {
            PartitionOrder::Stop => "stopped by an operator",
            PartitionOrder::Start => "turned on by an operator",
            PartitionOrder::Replace => "replaced by an operator",
        };
        let result = match self.partitions.iter_mut().find(|partition| partition.name() == name) {
            None => Err(format!("the site has no partition {name}")),
            Some(partition) if order == PartitionOrder::Start => {
                partition.turn_on();
                Ok(())
            }
            Some(partition) => {
                partition.stop(what);
                if order == PartitionOrder::Replace {
                    partition.turn_on();
                }
                partition.tell(ticket)
            }
        };
        if result.is_ok() {
            self.note_partition(name, true, what);
        }
        // That it has ended is told once nothing of it is left.
        if order == PartitionOrder::Start || result.is_err() {
            self.tell_sessiond(LabelEvent::Partition { ticket, result });
        }
    }
}

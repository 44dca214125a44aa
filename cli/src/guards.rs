//! Guards, as `levee check` shows them: what the site excepts from the lattice, a line each.

use std::path::Path;

use levee_bounds::Schema;
use levee_policy::site::{Channel, Guard};
use levee_policy::{PartitionName, Site, UserName};

use crate::keys::Unfit;

fn guards(site: &Site) -> impl Iterator<Item = (&Channel, &Guard)> {
    site.channels().iter().filter_map(|channel| Some((channel, channel.guard()?)))
}

/// Each exception that the site declares, with its bounds.
pub fn exceptions(site: &Site) -> Vec<String> {
    let label = |name: &PartitionName| {
        let partition = site.partitions().iter().find(|partition| partition.name() == name);
        let label = partition.and_then(|partition| site.label_name(partition.label()));
        label.map(|label| label.to_string()).unwrap_or_default()
    };
    let one = |(channel, guard): (&Channel, &Guard)| {
        let hours = guard.hours().map_or("at any time".to_owned(), |hours| format!("at {hours}"));
        let schema = if guard.schema().is_some() { "JSON of its schema" } else { "of any form" };
        let people = guard.release().map_or_else(String::new, |release| {
            let by: Vec<&str> = release.by().iter().map(UserName::as_str).collect();
            format!("; released by two of {} within {} s", by.join(", "), release.within().as_secs())
        });
        format!(
            "declared exception: {} to {} by guard {}: bounds: messages of {} bytes, {} of them, bytes {}, {schema}, {hours}; filter {}, {} s a message{people}",
            channel.from().map(label).unwrap_or_default(),
            channel.to().map(label).unwrap_or_default(),
            channel.name(),
            channel.size(),
            guard.messages(),
            guard.octets(),
            guard.filter(),
            guard.answer().as_secs_f32(),
        )
    };
    guards(site).map(one).collect()
}

/// Schemas that no guard can hold anything to.
pub fn unfit(site: &Site, file: &Path) -> Vec<Unfit> {
    let one = |(channel, guard): (&Channel, &Guard)| {
        let why = Schema::new(guard.schema()?).err()?;
        let remedy = "write the JSON Schema itself, which refers to nothing outside itself".to_owned();
        Some(Unfit { file: file.to_owned(), what: format!("the guard {}: {why}", channel.name()), remedy })
    };
    guards(site).filter_map(one).collect()
}

//! The leak meter (`levee lab leak`): what two programs that were taken over, one above and one below, can still tell each other.
//!
//! A channel is a line of a table ([`channels`]) and two small functions of the attacker's (`lab/attacker`), which says a symbol
//! in each window of time, and looks in each. The two have nothing in common but the clock: a window that one of them oversleeps
//! is lost, and counted as such. They run as services in two real compartments of a running server ([`stand`]).

pub mod attacker;
mod bounds;
pub mod channels;
pub mod differ;
mod finding;
pub mod meter;
mod report;
pub mod stand;

use std::io;
use std::path::{Path, PathBuf};
use std::{fs, process};

pub use finding::{Carried, Finding, Run};

use crate::said;
use channels::{Channel, From, Processors};
use finding::FASTEST;
use meter::Meter;
use stand::{Form, Load, Plan, Stand};

/// What `levee lab leak` is asked.
#[derive(Clone, Debug, clap::Args)]
pub struct Ask {
    /// Six seconds a channel: a first look. Without it, a minute
    #[arg(long)]
    quick: bool,
    /// Only channels whose names hold one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// With work on every processor besides
    #[arg(long)]
    loaded: bool,
    /// End with 1 if a channel carries more than the table allows
    #[arg(long)]
    check: bool,
    /// Groups of system calls that both services ask for, as in the site file's `needs`
    #[arg(long, value_delimiter = ',')]
    grant: Vec<String>,
    /// Each label has processors of its own: channels that need one processor in common are tried without
    #[arg(long)]
    apart: bool,
    /// The site gives the label above the last processor, and it alone (`[[processors]]`): who asks for another is refused
    #[arg(long, conflicts_with = "apart")]
    processors: bool,
    /// Time is cut into frames, with a slot of so many milliseconds for each label
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=50))]
    frames: Option<u32>,
    /// So many octets a second pass through the partitions' one-way channel at most, as in the site file's `rate`
    #[arg(long, value_name = "RATE", default_value = FASTEST)]
    one_way_rate: String,
    /// The label above has a kernel of its own, with an emulated processor, from the package linux-image-cloud-amd64 that is unpacked
    /// in this directory
    #[arg(long, value_name = "DIRECTORY")]
    machine: Option<PathBuf>,
    /// An earlier run's leak.json, to set beside: what changed between the two is a factor
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Write twice what is measured into this table of channels as their bounds
    #[arg(long, value_name = "TABLE")]
    write_bounds: Option<PathBuf>,
    /// With --write-bounds: take the most that these runs' leak.json show, and measure nothing
    #[arg(long, value_name = "FILE", value_delimiter = ',', requires = "write_bounds")]
    results: Vec<PathBuf>,
    /// Another table of channels
    #[arg(long)]
    table: Option<PathBuf>,
    /// Where to keep samples and report
    #[arg(long)]
    out: Option<PathBuf>,
    /// Seed of what is sent
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures every channel that is asked for, leaves samples and report in a directory. Whether none is beyond its bound.
///
/// # Errors
/// When the server cannot be had, or a pair does not end in good order.
pub fn run(ask: &Ask) -> io::Result<bool> {
    let before = ask.before.as_deref().map(earlier).transpose()?;
    if let (Some(table), false) = (&ask.write_bounds, ask.results.is_empty()) {
        let mut runs = ask.results.iter().map(|path| earlier(path)).collect::<io::Result<Vec<Run>>>()?;
        for machine in [false, true] {
            let these = runs.iter_mut().filter(|run| run.machine == machine);
            let findings: Vec<Finding> = these.flat_map(|run| run.findings.drain(..)).collect();
            fs::write(table, bounds::written(&fs::read_to_string(table)?, &findings, machine))?;
        }
        return Ok(true);
    }
    crate::run::has_place(ask.out.as_deref())?;
    let channels = channels(ask)?;
    let stamp: String = crate::host::now().chars().filter(char::is_ascii_alphanumeric).collect();
    let dir = ask
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("lab-results").join(format!("leak-{stamp}-{}", process::id())));
    fs::create_dir_all(&dir)?;
    let plan = Plan {
        form: form(ask.machine.as_deref()),
        slot: ask.frames,
        processor: ask.processors.then(stand::last_processor),
        rate: &ask.one_way_rate,
    };
    let stand = Stand::start(&ask.grant, &plan)?;
    let mut meter = Meter::new(&attacker::visible(), ask.seed, ask.frames.map(stand::frame))?;
    meter.above = plan.processor;
    let _load = ask.loaded.then(Load::start);
    let env = crate::host::look(&[]);
    let mut run = Run {
        at: env.at,
        host: env.facts,
        loaded: ask.loaded,
        granted: ask.grant.clone(),
        apart: ask.apart,
        processors: ask.processors,
        frames: ask.frames,
        one_way_rate: ask.one_way_rate.clone(),
        machine: ask.machine.is_some(),
        quick: ask.quick,
        findings: Vec::new(),
    };
    for channel in channels {
        let seconds = channel.seconds[usize::from(!ask.quick)];
        let measured = meter.measure(&mut |side| stand.end_for(side, channel.from), &channel, seconds)?;
        let carried = match measured {
            Ok((carried, windows)) => {
                report::samples(&dir, &channel, &windows)?;
                Ok(carried)
            }
            Err(why) => Err(why),
        };
        let finding = Finding { channel, carried };
        said::progress(&report::line(&finding));
        run.findings.push(finding);
    }
    crate::run::write_json(&dir.join("leak.json"), &run)?;
    fs::write(dir.join("report.md"), report::markdown(&run, before.as_ref()))?;
    if said::is_json() {
        said::value(&run)?;
    } else {
        said::line(&dir.join("report.md").display())?;
    }
    if let Some(table) = &ask.write_bounds {
        fs::write(table, bounds::written(&fs::read_to_string(table)?, &run.findings, run.machine))?;
    }
    let beyond: Vec<&Finding> = run.findings.iter().filter(|f| f.beyond()).collect();
    for f in &beyond {
        said::warning(&format!("beyond its bound: {}", report::line(f)));
    }
    Ok(beyond.is_empty() || !ask.check)
}

/// Those that are asked for.
fn channels(ask: &Ask) -> io::Result<Vec<Channel>> {
    let table = match &ask.table {
        Some(path) => Channel::parse(&fs::read_to_string(path)?),
        None => Channel::all(),
    };
    let wanted =
        |c: &Channel| ask.only.is_empty() || ask.only.iter().any(|only| c.name.contains(only.as_str()));
    let mut channels: Vec<Channel> = table.map_err(io::Error::other)?.into_iter().filter(wanted).collect();
    if ask.apart || ask.processors {
        channels.iter_mut().for_each(|c| c.processors = Processors::Apart);
    }
    if ask.machine.is_some() {
        channels.iter_mut().for_each(|c| c.allowed = c.machine);
        channels.retain(|c| c.from != From::Partition);
    }
    if channels.is_empty() {
        return Err(io::Error::other("no channel has such a name"));
    }
    Ok(channels)
}

fn form(machine: Option<&Path>) -> Form {
    machine.map_or(Form::Compartment, |root| Form::Machine(root.to_path_buf()))
}

fn earlier(path: &Path) -> io::Result<Run> {
    serde_json::from_str(&fs::read_to_string(path)?)
        .map_err(|e| io::Error::other(format!("{}: {e}", path.display())))
}

/// What `levee lab record` is asked.
#[derive(Clone, Debug, clap::Args)]
pub struct Recording {
    /// Rounds of each kind in each of two batches
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Groups of system calls that both services ask for, as in the site file's `needs`
    #[arg(long, value_delimiter = ',')]
    grant: Vec<String>,
    /// The label above has a kernel of its own, as for `levee lab leak`
    #[arg(long, value_name = "DIRECTORY")]
    machine: Option<PathBuf>,
    /// Seed of the order of rounds
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Prints what differs below when somebody above does everything that it may.
///
/// # Errors
/// When the server cannot be had, or a program does not end in good order.
pub fn differ(ask: &Recording) -> io::Result<()> {
    let form = form(ask.machine.as_deref());
    let stand = Stand::start(&ask.grant, &Plan { form, slot: None, processor: None, rate: FASTEST })?;
    let batch = |seed| differ::batch(|side| stand.end(side), ask.rounds, 0, seed);
    let batches = [batch(ask.seed)?, batch(ask.seed + 1)?];
    let found = differ::differences(&batches);
    if said::is_json() {
        let asked = batches[0].first().map_or(0, |(_, r)| r.len());
        let all = serde_json::json!({"asked": asked, "differences": found, "times": differ::times(&batches)});
        said::value(&all)?;
        return Ok(());
    }
    for d in &found {
        let how = if d.advances { "advances" } else { "is" };
        said::line(&format!("{}: {how} {} in quiet rounds, {} in driven ones", d.what, d.quiet, d.driven))?;
    }
    for (what, [quiet, driven]) in differ::times(&batches) {
        said::line(&format!("{what}: {quiet} ns in quiet rounds, {driven} in driven ones"))?;
    }
    Ok(())
}

//! `levee-bench`: the vault against the bare link and the user-mode tunnels that people run.
//!
//! Two network namespaces joined by a veth pair; every tunnel stands between them for the whole run, idle but for the
//! one that is measured. Each round measures every case with every arm once, in an order of its own, so that what
//! slows the host for a while slows all arms alike; results are medians over rounds and ratios within them.
//!
//! Every sample is written to `samples.jsonl` as it is made. A run that was stopped goes on where it was.
//!
//! Begin reading with `cases.rs` and `arms.rs`.
#![forbid(unsafe_code)]

mod alone;
mod apart;
mod arms;
mod badlink;
mod cases;
mod datagrams;
mod link;
mod peers;
mod report;
mod stand;
mod streams;
mod tunnel;
mod vaults;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use levee_lab::role::Role;
use levee_lab::serve::{Source, serve};

use crate::cases::{Case, Plan};
use crate::report::{Log, Sample};
use crate::stand::Stand;

/// The vault against the bare link and other user-mode tunnels
#[derive(Parser)]
#[command(name = "levee-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Measure, and write the report
    Run(Run),
    /// Write the report of a run again
    Report {
        /// The run's directory
        dir: PathBuf,
    },
    /// Serve the workloads (started by `run`)
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        listen: std::net::SocketAddr,
        #[command(flatten)]
        role: Role,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Every arm and every case in five rounds; else the main ones in three
    #[arg(long)]
    full: bool,
    /// Rounds, if not those
    #[arg(long)]
    rounds: Option<u32>,
    /// Only these arms (see the report for names)
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Only these cases
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Where to keep the run; one that is there goes on
    #[arg(long, default_value = "out/bench")]
    out: PathBuf,
    /// Where the other tunnels' programs are, if not on the path
    #[arg(long)]
    peers: Option<PathBuf>,
    /// The vault's program
    #[arg(long)]
    vault: Option<PathBuf>,
    /// An earlier program of the vault, of the same interfaces, which is measured beside as `levee-before`
    #[arg(long)]
    before: Option<PathBuf>,
    /// Seconds that a stream is measured for, if not one and a half
    #[arg(long)]
    seconds: Option<f64>,
    /// Stop after this many seconds, to go on at the next call; the exit status is then 3
    #[arg(long)]
    budget: Option<u64>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Cmd::Serve { listen, role } => role
            .take()
            .and_then(|()| {
                let source = Source::Listen { all: listen, close: None, workers: link::CONNECTIONS };
                serve(&source, Some(link::CONGESTION))
            })
            .map(|()| ExitCode::SUCCESS),
        Cmd::Report { dir } => report::write(&dir).map(|()| ExitCode::SUCCESS),
        Cmd::Run(run) => measure(&run),
    };
    done.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "levee-bench: {error}");
        ExitCode::FAILURE
    })
}

/// A line of progress; standard error may be gone.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}

fn measure(run: &Run) -> io::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
        // The second one ends at once.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
    }
    let end = run.budget.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let window =
        run.seconds.map_or(Ok(cases::WINDOW), Duration::try_from_secs_f64).map_err(io::Error::other)?;
    let plan = Plan::new(run.full, run.before.is_some(), run.rounds, &run.arms, &run.cases)?;
    let mut log = Log::open(&run.out)?;
    let done: BTreeSet<_> = log.samples().iter().map(Sample::key).collect();
    let todo: Vec<_> = plan.trials(log.seed()).filter(|trial| !done.contains(&trial.key())).collect();
    say(&format!(
        "{} of {} measurements to make, into {}",
        todo.len(),
        done.len() + todo.len(),
        run.out.display()
    ));
    let mut unfinished = false;
    if !todo.is_empty() {
        let vault = run.vault.clone().map_or_else(beside, Ok)?;
        let wanted: BTreeSet<_> = todo.iter().map(|trial| trial.arm).collect();
        let mut stand = Stand::build(&wanted, &vault, run.before.as_deref(), run.peers.as_deref())?;
        log.environment(&stand)?;
        let total = todo.len();
        for (n, trial) in todo.into_iter().enumerate() {
            if stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end) {
                unfinished = true;
                break;
            }
            let values = stand.measure(trial.arm, trial.case, window);
            match values {
                Ok(values) => {
                    say(&format!(
                        "[{}/{total}] round {} {:<12} {:<16} {}",
                        n + 1,
                        trial.round,
                        trial.case.name(),
                        trial.arm.name(),
                        brief(trial.case, &values)
                    ));
                    log.add(Sample::new(&trial, values, None))?;
                }
                Err(error) => {
                    say(&format!("[{}/{total}] {} {}: {error}", n + 1, trial.case.name(), trial.arm.name()));
                    log.add(Sample::new(&trial, BTreeMap::new(), Some(error.to_string())))?;
                }
            }
        }
    }
    report::write(&run.out)?;
    say(&format!("{}", run.out.join("report.md").display()));
    Ok(match (unfinished, stop.load(Ordering::Relaxed)) {
        (true, true) => ExitCode::from(130),
        (true, false) => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    })
}

fn brief(case: Case, values: &BTreeMap<String, f64>) -> String {
    case.figures()
        .iter()
        .filter_map(|figure| Some(format!("{} {:.3}", figure.name, values.get(figure.name)?)))
        .collect::<Vec<_>>()
        .join("  ")
}

/// The vault's program beside our own.
fn beside() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.parent().unwrap_or(Path::new(".")).join("levee-vault");
    if path.exists() {
        Ok(path)
    } else {
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is not built", path.display())))
    }
}

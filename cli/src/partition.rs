//! `levee partition`: the partitions of a running server.

use std::process::ExitCode;

use levee_ipc::operator::{Answer, Command as Ask, PartitionOrder};
use levee_policy::PartitionName;

use crate::operator::Which;
use crate::output;
use crate::status::{partitions, view};

/// List the partitions of a running server, stop one, start one that is off, or have one begin anew
#[derive(Debug, clap::Args)]
pub struct Partition {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the partitions
    List {
        #[command(flatten)]
        which: Which,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End everything in a partition: when this returns, nothing of it runs. It stays off until `levee partition start`, or the next start of the server
    Stop(One),
    /// Start a partition that is off, however often it has ended. It starts as soon as it can
    Start(One),
    /// End everything in a partition, and start it with what its root and program are now: when this returns, nothing of before runs, and it starts as soon as it can. No other partition is touched
    Replace(One),
}

/// Which partition.
#[derive(Debug, clap::Args)]
struct One {
    #[command(flatten)]
    which: Which,
    /// The partition, as the site file names it
    partition: PartitionName,
}

impl Partition {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(match &self.command {
            Command::List { which, json } => list(which, *json),
            Command::Stop(one) => one.order(PartitionOrder::Stop, "is off"),
            Command::Start(one) => one.order(PartitionOrder::Start, "is turned on"),
            Command::Replace(one) => one.order(PartitionOrder::Replace, "begins anew"),
        })
    }
}

fn list(which: &Which, json: bool) -> Result<ExitCode, String> {
    let status = which.status()?;
    if json {
        output::json(&view(&status).partitions)?;
    } else {
        output::print(&partitions(&status.partitions))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl One {
    fn order(&self, order: PartitionOrder, is: &str) -> Result<ExitCode, String> {
        let Self { which, partition } = self;
        match which.ask(&Ask::Partition(partition.clone(), order))? {
            Answer::Ended => {
                output::said(&format!("partition {partition} {is}\n"))?;
                Ok(ExitCode::SUCCESS)
            }
            Answer::Failed(reason) => Ok(output::refused(&reason)),
            _ => Err("the server answered another question".to_owned()),
        }
    }
}

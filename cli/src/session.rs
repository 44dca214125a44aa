//! `levee session`: the sessions of a running server.

use std::process::ExitCode;

use levee_ipc::operator::{Answer, Command as Ask};

use crate::operator::Which;
use crate::output;
use crate::status::{sessions, view};

/// List the sessions of a running server, or end one
#[derive(Debug, clap::Args)]
pub struct Session {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the sessions
    List {
        #[command(flatten)]
        which: Which,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a session: when this returns, no packet of it passes any more
    End {
        #[command(flatten)]
        which: Which,
        /// The session, as `levee session list` shows it
        session: String,
    },
}

impl Session {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(match &self.command {
            Command::List { which, json } => list(which, *json),
            Command::End { which, session } => end(which, session),
        })
    }
}

fn list(which: &Which, json: bool) -> Result<ExitCode, String> {
    let status = which.status()?;
    if json {
        output::json(&view(&status).sessions)?;
    } else {
        output::print(&sessions(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn end(which: &Which, session: &str) -> Result<ExitCode, String> {
    match which.ask(&Ask::End(session.to_owned()))? {
        Answer::Ended => {
            output::said(&format!("session {} is over\n", output::shown(session)))?;
            Ok(ExitCode::SUCCESS)
        }
        Answer::Failed(reason) => Ok(output::refused(&reason)),
        _ => Err("the server answered another question".to_owned()),
    }
}

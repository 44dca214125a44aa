//! The trusted path extension: the workstation's agent, and the commands by which a person uses it.
#![forbid(unsafe_code)]

mod agent;
mod command;
mod run;
mod screen;

use clap::{Args, Parser, Subcommand};
use command::{Agent, Fault, PasswordSource};
use levee_ipc::tpe::{Answer, Command};
use levee_policy::{LabelName, UserName};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit status of a command that was refused or failed; `run` uses [`RUN_FAILED`].
const FAILED: u8 = 1;
/// Exit status of `run` when it failed itself: no common program ends with it.
const RUN_FAILED: u8 = 255;

/// Sign on at this workstation, choose a level, run programs at it
///
/// Without a command it takes the whole terminal: a banner with the session's level in its colour, a form to sign on, a
/// menu of levels, and a shell at the session's level. Ctrl-] leads back to the menu.
#[derive(Parser)]
#[command(name = "levee-tpe", version, about)]
struct Arguments {
    /// The agent's socket.
    #[arg(long, global = true, env = "LEVEE_TPE_SOCKET", default_value = command::SOCKET)]
    socket: PathBuf,
    /// Say everything as JSON, one object a line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// The agent itself; the workstation's warden starts it.
    #[command(hide = true)]
    Agent {
        /// Another IPsec client of this host makes the tunnel.
        #[arg(long)]
        no_tunnel: bool,
    },
    /// Sign on.
    Login {
        /// Who you are at this site.
        user: UserName,
        #[command(flatten)]
        password: Password,
    },
    /// Open a session at a level, ending the one there is.
    Level {
        /// The level, such as SECRET/NATO.
        label: LabelName,
    },
    /// Run a program at the session's level.
    Run {
        /// The program and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        argv: Vec<String>,
    },
    /// Say what is so now.
    Status,
    /// Change your password.
    Passwd {
        #[command(flatten)]
        password: Password,
    },
    /// End the session and sign off.
    Logout,
}

/// Where passwords come from; without either, from the terminal.
#[derive(Args)]
struct Password {
    /// Read the password from this file's first line (`passwd`: the old; the new from the second file).
    #[arg(long, value_name = "FILE", num_args = 1..=2, conflicts_with = "password_stdin")]
    password_file: Vec<PathBuf>,
    /// Read it from standard input, one line each.
    #[arg(long)]
    password_stdin: bool,
}

impl Password {
    fn source(&self, index: usize) -> PasswordSource {
        match self.password_file.get(index) {
            Some(path) => PasswordSource::File(path.clone()),
            None if self.password_stdin => PasswordSource::Stdin,
            None => PasswordSource::Prompt,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(action) = &arguments.action else {
        return match screen::run(&arguments.socket) {
            Ok(()) => ExitCode::SUCCESS,
            Err(fault) => {
                eprintln!("levee-tpe: {fault}");
                ExitCode::from(FAILED)
            }
        };
    };
    if let Action::Agent { no_tunnel } = action {
        return match agent::serve(*no_tunnel) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("levee-tpe: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let running = matches!(action, Action::Run { .. });
    match carry_out(action, &arguments) {
        Ok(Answer::Exited(status)) if running => ExitCode::from(status),
        Ok(answer) => {
            if arguments.json {
                println!("{}", command::to_json(&answer));
            } else {
                println!("{}", command::to_text(&answer));
            }
            ExitCode::SUCCESS
        }
        Err(fault) => {
            if arguments.json {
                println!("{}", fault.json());
            } else {
                eprintln!("levee-tpe: {fault}");
            }
            ExitCode::from(if running { RUN_FAILED } else { FAILED })
        }
    }
}

fn carry_out(action: &Action, arguments: &Arguments) -> Result<Answer, Fault> {
    let command = match action {
        Action::Agent { .. } => return Err(Fault::Local("the agent is not a command".into())),
        Action::Login { user, password } => {
            Command::Login { user: user.clone(), password: password.source(0).read("Password")? }
        }
        Action::Level { label } => Command::Level(label.clone()),
        Action::Run { argv } => {
            let agent = Agent::connect(&arguments.socket)?;
            return run::run(&agent, argv.clone()).map(Answer::Exited);
        }
        Action::Status => Command::Status,
        Action::Passwd { password } => Command::Passwd {
            old: password.source(0).read("Present password")?,
            new: password.source(1).read("New password")?,
        },
        Action::Logout => Command::Logout,
    };
    Agent::connect(&arguments.socket)?.ask(&command)
}

//! `levee`: the operator's command.
//!
//! One module for each command, with its arguments beside what it does; man pages and completions come from
//! the same definitions.
//!
//! It may not change what the policy says: it asks the running server, or reads files. Begin reading with the command that you are after.

mod access;
mod audit;
mod beside;
mod bundle;
mod check;
mod cost;
mod counters;
mod doctor;
mod enrol;
mod enrolment;
mod enter;
mod explain;
mod guards;
mod init;
mod instants;
mod interfaces;
mod keys;
mod lab;
mod label;
mod layers;
mod log;
mod manual;
mod operator;
mod output;
mod partition;
mod pin;
mod plan;
mod pools;
mod posture;
mod programs;
mod reference;
mod reload;
mod roots;
mod running;
mod service;
mod session;
mod site;
mod state;
mod status;
mod typed;
mod up;
mod usage;
mod user;
mod why;
mod words;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Multilevel-secure services on ordinary Linux hosts
#[derive(Debug, Parser)]
#[command(name = "levee", version, propagate_version = true, subcommand_required = true, after_help = manual::EXIT)]
struct Cli {
    #[command(flatten)]
    manner: output::Manner,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Init),
    Up(up::Up),
    Down(up::Down),
    Reload(reload::Reload),
    Plan(up::Plan),
    Enrol(enrolment::Enrol),
    Status(status::Status),
    Log(log::Log),
    Session(session::Session),
    Partition(partition::Partition),
    Service(service::Service),
    Exec(enter::Exec),
    Put(enter::Put),
    Check(check::Check),
    Why(why::Why),
    Matrix(why::Matrix),
    Label(label::LabelCommand),
    Posture(posture::Posture),
    Access(access::Access),
    Audit(audit::Audit),
    Doctor(doctor::Doctor),
    User(user::User),
    State(state::State),
    Lab(lab::Lab),
    #[command(hide = true)]
    Words(words::Words),
    Completions(reference::Completions),
    Man(reference::Man),
}

fn main() -> ExitCode {
    let Cli { manner, command } = match Cli::try_parse() {
        Ok(line) => line,
        Err(fault) => return output::misunderstood(&fault),
    };
    manner.set();
    // These have passwords and private keys in their memory.
    let holds = matches!(
        command,
        Command::User(_) | Command::Enrol(_) | Command::Init(_) | Command::Up(_) | Command::Reload(_)
    );
    if holds && let Err(e) = levee_sys::sandbox::forbid_dumps() {
        return output::fail(e);
    }
    match command {
        Command::Init(command) => command.run(),
        Command::Up(command) => command.run(),
        Command::Down(command) => command.run(),
        Command::Reload(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Enrol(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Log(command) => command.run(),
        Command::Session(command) => command.run(),
        Command::Partition(command) => command.run(),
        Command::Service(command) => command.run(),
        Command::Exec(command) => command.run(),
        Command::Put(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Why(command) => command.run(),
        Command::Matrix(command) => command.run(),
        Command::Label(command) => command.run(),
        Command::Posture(command) => command.run(),
        Command::Access(command) => command.run(),
        Command::Audit(command) => command.run(),
        Command::Doctor(command) => command.run(),
        Command::User(command) => command.run(),
        Command::State(command) => command.run(),
        Command::Lab(command) => command.run(),
        Command::Words(command) => command.run(),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
    }
}

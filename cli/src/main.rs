//! `levee`: the operator's command.

mod enrol;
mod enrolment;
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Multilevel-secure services on ordinary Linux hosts
#[derive(Debug, Parser)]
#[command(name = "levee", version, propagate_version = true, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Up),
    Down(up::Down),
    Plan(up::Plan),
    Enrol(enrolment::Enrol),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Up(command) => command.run(),
        Command::Down(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Enrol(command) => command.run(),
    }
}

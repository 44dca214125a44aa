//! `levee posture`: what tunnels must have and who may have sessions, changed while they run.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use levee_ipc::operator::{self, Answer};

use crate::audit;
use crate::operator::Which;
use crate::output;
use crate::status::{posture_views, postures};

mod plan;
mod what;

use what::What;

/// Change what the tunnels of a running server must have and who may have sessions, or show it
#[derive(Debug, clap::Args)]
pub struct Posture {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Put a posture of the site file in force: when this returns, no tunnel has keys from before and no session is left that it does not allow
    Set(Set),
    Plan(plan::PosturePlan),
    /// Show what is in force
    Show {
        #[command(flatten)]
        which: Which,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show which were set and ended, when and by whom, why, what was before and how long it took: the audit log's records of it, the newest last
    ///
    /// Exit status 0: there are some. 1: there is none. 2: the log could not be read.
    History {
        #[command(flatten)]
        which: audit::Which,
        /// Only from then on: a time ago such as 90s, 10m, 2h, 7d, or a time such as 2026-01-31T12:00:00Z
        #[arg(long, value_name = "TIME", value_parser = crate::instants::since)]
        since: Option<u64>,
        /// Print each record as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Set {
    #[command(flatten)]
    what: What,
    /// For so long, from 1s to 999h; else until another is set, restarts or not
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    lasting: Option<Duration>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    which: Which,
}

/// `90s`, `30m` or `2h`.
fn time(text: &str) -> Result<Duration, String> {
    let form = || "write a time as 90s, 30m or 2h".to_owned();
    let unit = match text.bytes().last() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 3_600,
        _ => return Err(form()),
    };
    let number: u64 = text.get(..text.len() - 1).and_then(|digits| digits.parse().ok()).ok_or_else(form)?;
    let seconds = number.checked_mul(unit).filter(|seconds| (1..=999 * 3_600).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "from 1s to 999h".to_owned())
}

impl Posture {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(match &self.command {
            Command::Set(set) => set.run(),
            Command::Plan(plan) => plan.run(),
            Command::Show { which, json } => show(which, *json),
            Command::History { which, since, json } => audit::history("posture", which, *since, *json),
        })
    }
}

impl Set {
    fn run(&self) -> Result<ExitCode, String> {
        let what = self.what.placed(self.which.site().ok().as_ref())?;
        if what.posture.is_none() && self.lasting.is_some() {
            return Err("`default` has no end: it is what is so when every posture has ended".to_owned());
        }
        let seconds = self.lasting.map(|lasting| lasting.as_secs());
        let wish = operator::Posture { what: what.clone(), seconds, reason: self.reason.clone() };
        let began = Instant::now();
        match self.which.ask(&operator::Command::Posture(wish))? {
            Answer::Ended => {
                let took = began.elapsed().as_secs_f64();
                output::said(&format!(
                    "posture {what}: no tunnel has keys from before and no session is left that it does not allow, after {took:.1} s\n"
                ))?;
                Ok(ExitCode::SUCCESS)
            }
            Answer::Failed(why) => Ok(output::refused(&why)),
            _ => Err("the server answered another question".to_owned()),
        }
    }
}

fn show(which: &Which, json: bool) -> Result<ExitCode, String> {
    let status = which.status()?;
    if json {
        output::json(&posture_views(&status))?;
    } else {
        output::print(&postures(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit_and_nothing_else() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7_200)));
        for wrong in ["", "s", "0s", "1d", "-1s", "1.5h", "1000h", "99999999999999999999h", "2 h", "\u{e9}"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}

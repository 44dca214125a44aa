//! `levee access`: whom services are for, as their owners have said, and in their place.

use std::process::ExitCode;

use levee_ipc::operator::{self, Accessible, Answer};
use levee_policy::{LabelName, ServiceName, UserName};

use crate::operator::Which;
use crate::output;

/// Show or change who reaches a service that has `owners`, while it runs
#[derive(Debug, clap::Args)]
pub struct Access {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Let a person reach a service at a label, in the place of who owns it
    Allow(Change),
    /// Let them reach it no more: when this returns, no packet of theirs passes to it
    Deny(Change),
    /// Show whom the services at a label are for
    Show {
        /// The label
        label: String,
        #[command(flatten)]
        which: Which,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Change {
    /// The person, as the site file names them
    user: String,
    /// The service, as the site file names it
    service: String,
    /// The label: its instance there alone
    label: String,
    #[command(flatten)]
    which: Which,
}

impl Access {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(match &self.command {
            Command::Allow(change) => change.say(true),
            Command::Deny(change) => change.say(false),
            Command::Show { label, which, json } => show(label, which, *json),
        })
    }
}

/// The label that a person means, typed in any case and order of categories.
fn label(text: &str, which: &Which) -> Result<LabelName, String> {
    which.typed(LabelName::new(text).map_err(|e| format!("{}: {e}", output::shown(text)))?)
}

impl Change {
    fn say(&self, admits: bool) -> Result<ExitCode, String> {
        let fault = |text: &str, e: &dyn std::fmt::Display| format!("{}: {e}", output::shown(text));
        let label = label(&self.label, &self.which)?;
        let service = ServiceName::new(&self.service).map_err(|e| fault(&self.service, &e))?;
        let user = UserName::new(&self.user).map_err(|e| fault(&self.user, &e))?;
        let reaches = if admits { "reaches" } else { "does not reach" };
        let done = format!("{user} {reaches} {service} at {label}\n");
        let wish = operator::Access { label, service, user, admits };
        match self.which.ask(&operator::Command::Access(wish))? {
            Answer::Ended => {
                output::said(&done)?;
                Ok(ExitCode::SUCCESS)
            }
            Answer::Failed(why) => Ok(output::refused(&why)),
            _ => Err("the server answered another question".to_owned()),
        }
    }
}

fn show(text: &str, which: &Which, json: bool) -> Result<ExitCode, String> {
    let services = match which.ask(&operator::Command::Accesses(label(text, which)?))? {
        Answer::Accesses(services) => services,
        Answer::Failed(why) => return Ok(output::refused(&why)),
        _ => return Err("the server answered another question".to_owned()),
    };
    if json {
        output::json(&services)?;
    } else {
        output::print(&words(&services))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn words(services: &[Accessible]) -> String {
    let one = |shown: &Accessible| {
        let people: Vec<&str> = shown.people.iter().map(AsRef::as_ref).collect();
        let more = if shown.more { " and more" } else { "" };
        format!("{}: {}{more}\n", shown.service, people.join(" "))
    };
    match services {
        [] => "no service at this label is for some people alone\n".to_owned(),
        some => some.iter().map(one).collect(),
    }
}

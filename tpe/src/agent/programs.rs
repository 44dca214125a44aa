//! A program that a person starts: what is its standard input, output and error.

use super::carry::{self, Spool};
use super::people::{Person, Program};
use super::{Agent, MOST_SPOOLED};
use levee_ipc::client::RefusalKind;
use levee_ipc::tpe::{Input, Output};
use levee_ipc::warden::TpeRequest;
use std::os::fd::{AsFd, OwnedFd};

/// What a program finds in its environment whoever starts it: where it begins, who it is, and where programs are.
const OWN: [&str; 3] = ["HOME=/home/user", "USER=user", "PATH=/usr/local/bin:/usr/bin:/bin"];

/// The environment of a program, of what its person has.
fn environment(persons: Vec<String>) -> Vec<String> {
    let name = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
    let others = persons.into_iter().filter(|entry| OWN.iter().all(|own| name(own) != name(entry)));
    OWN.map(str::to_owned).into_iter().chain(others).collect()
}

impl Agent {
    /// Whether there is a session, and it is not locked.
    pub(super) fn runs_programs(&self) -> Result<(), (RefusalKind, String)> {
        match &self.session {
            None => Err((RefusalKind::NoSession, "no session is open: choose a level first".into())),
            Some(_) if self.is_locked() => Err((RefusalKind::Locked, super::operations::IS_LOCKED.into())),
            Some(_) => Ok(()),
        }
    }

    /// Starts a program; `imported` is its standard input where that is a file that may be carried in.
    pub(super) fn start_program(
        &mut self,
        person: Person,
        program: Program,
        imported: Option<OwnedFd>,
    ) -> Result<(), (RefusalKind, String)> {
        self.runs_programs()?;
        let Program { argv, env, input, output, terminal } = program;
        let unavailable =
            |e: std::io::Error| (RefusalKind::Unavailable, format!("a program's descriptors: {e}"));
        let protocol = || (RefusalKind::Protocol, "what came along is no pseudo-terminal".to_owned());
        let ours = match (input, imported) {
            (Input::Terminal, _) => None,
            (Input::Import, Some(file)) => Some(file),
            (Input::None | Input::Import, _) => Some(carry::nothing().map_err(|e| unavailable(e.into()))?),
        };
        let (mut spools, mut theirs) = (Vec::new(), Vec::new());
        if output != Output::Terminal {
            if self.spools.len() >= MOST_SPOOLED {
                return Err((
                    RefusalKind::Unavailable,
                    "too many programs without a terminal run already".into(),
                ));
            }
            for _ in 0..2 {
                let (spool, end) =
                    Spool::new(output == Output::Export, person, &mut self.events).map_err(unavailable)?;
                spools.push(spool);
                theirs.push(end);
            }
        }
        // Standard input, output and error: each a descriptor of ours, or the terminal.
        let own = [ours.as_ref(), theirs.first(), theirs.get(1)];
        let given: Option<Vec<_>> =
            own.iter().map(|own| own.or(terminal.as_ref()).map(AsFd::as_fd)).collect();
        let env = environment(env);
        let request = TpeRequest::Run { ticket: person, argv, env, terminal: input == Input::Terminal };
        if !self.warden.say_with(request, &given.ok_or_else(protocol)?) {
            return Err((RefusalKind::Unavailable, "the warden does not take it now".into()));
        }
        if !spools.is_empty() {
            self.spools.insert(person, spools);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_begins_at_home_whatever_its_persons_environment_says() {
        let persons = ["HOME=/root", "TERM=xterm", "PATH=/tmp", "USER=root", "HOMES=2"].map(str::to_owned);
        let expected = [OWN[0], OWN[1], OWN[2], "TERM=xterm", "HOMES=2"];
        assert_eq!(environment(persons.into()), expected);
    }
}

//! The screen of a locked session: a form for the password, and nothing else. What its programs write is kept from the eye until then.

use super::choices::Choice;
use super::form::Form;
use super::{Screen, View};
use crate::command::{Agent, Fault};
use levee_ipc::client::RefusalKind;
use levee_ipc::tpe::{Answer, Command};
use ratatui::DefaultTerminal;
use std::io;

impl Screen {
    pub(super) fn is_locked(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.locked)
    }

    /// Shows what may be shown: nothing of a session while it is locked, and what was there before when it is not.
    pub(super) fn follow_lock(&mut self) {
        match (&self.view, self.is_locked()) {
            (View::Locked(_), true) => {}
            (_, true) => {
                let user = self.status.as_ref().and_then(|status| status.user.as_ref());
                self.view = View::Locked(Form::new(user.map_or_else(String::new, ToString::to_string)));
                self.message = "The session is locked".into();
            }
            (View::Locked(_), false) => {
                self.message.clear();
                match self.program {
                    Some(_) => self.view = View::Program,
                    None => self.leave_program(),
                }
            }
            _ => {}
        }
    }

    pub(super) fn lock(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        self.message = "locking …".into();
        self.draw(terminal)?;
        let asked = self.ask(&Command::Lock);
        self.refresh();
        if let Err(fault) = asked {
            self.message = fault.to_string();
        }
        Ok(())
    }

    pub(super) fn unlock(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let View::Locked(form) = &self.view else { return Ok(()) };
        let (_, password, code) = form.whole();
        self.message = "unlocking …".into();
        self.draw(terminal)?;
        let answer = match password {
            Some(password) => Agent::connect(&self.socket).and_then(|agent| {
                agent.ask(&Command::Unlock { password, code }, |why| {
                    self.message = why.to_owned();
                    // What cannot be drawn now is drawn with the answer.
                    let _ = self.draw(terminal);
                })
            }),
            None => Err(Fault::Local("the password is too long".into())),
        };
        self.refresh();
        let View::Locked(form) = &mut self.view else { return Ok(()) };
        match answer {
            // The next look at what is so shows it.
            Ok(Answer::Unlocked) => self.message = "unlocked".into(),
            Ok(_) => self.message = "the agent answered something else".into(),
            Err(Fault::Refused(RefusalKind::Code, _)) => {
                form.ask_code();
                self.message = "Type the code that your second factor shows; Enter if you have none".into();
            }
            Err(fault) => {
                form.clear();
                self.message = fault.to_string();
            }
        }
        Ok(())
    }

    /// Whether the choice can be made while the session is locked.
    pub(super) fn is_open_to(&self, choice: &Choice) -> bool {
        !self.is_locked() || matches!(choice, Choice::SignOff | Choice::Leave | Choice::End)
    }
}

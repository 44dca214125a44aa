//! A label that an operator has started: to see whether it can run here, or to do something within it.

use crate::event::*;
use crate::sessions::Sessions;
use crate::state::{Purpose, Vault};
use levee_policy::LabelName;
use levee_policy::audit::{Action, Event as Entry, Verdict};

/// Operators who may wait for one label.
const MOST: usize = 4;

impl Sessions {
    pub(crate) fn try_label(&mut self, operator: OperatorId, label: LabelName) {
        if let Err(why) = self.may_enter(&label) {
            return self.say(Output::Operator(operator, Err(why.to_owned())));
        }
        if !self.runs(&label) {
            let reason = "an operator tries whether it starts";
            self.say(Output::Audit(entry(&label, Action::Trial, "label".into(), reason)));
        }
        self.start_for(operator, label, None);
    }

    pub(crate) fn enter(&mut self, operator: OperatorId, label: LabelName, what: Entering) {
        if let Err(why) = self.may_enter(&label) {
            return self.say(Output::Operator(operator, Err(why.to_owned())));
        }
        if self.site.label(&label).is_some_and(|of| self.site.isolation().has_own_kernel(&of)) {
            let why = "this label has a kernel of its own: from outside nothing is done there";
            return self.say(Output::Operator(operator, Err(why.to_owned())));
        }
        let entry = match &what {
            Entering::Put { path, bytes, sha256 } => {
                let object = format!("{}, {bytes} bytes, SHA-256 {sha256}", word(path));
                entry(&label, Action::Put, object, "by an operator")
            }
            Entering::Execute(argv) => entry(&label, Action::Exec, command_line(argv), "by an operator"),
        };
        self.commit(Purpose::Enter(operator, label, what), vec![entry], Vec::new());
    }

    pub(crate) fn enter_recorded(
        &mut self,
        operator: OperatorId,
        label: LabelName,
        what: Entering,
        durable: bool,
    ) {
        if !durable {
            let lost = "it is not recorded, and so not done: the audit log cannot be written";
            return self.say(Output::Operator(operator, Err(lost.to_owned())));
        }
        self.start_for(operator, label, Some(what));
    }

    /// The label runs, or cannot.
    pub(crate) fn tried(&mut self, label: &LabelName, result: &Result<(), String>) {
        for (operator, what) in self.trials.remove(label).unwrap_or_default() {
            match (result, what) {
                (Ok(()), Some(Entering::Execute(argv))) => {
                    self.say(Output::Execute(operator, label.clone(), argv));
                }
                _ => self.say(Output::Operator(operator, result.clone())),
            }
        }
    }

    fn may_enter(&self, label: &LabelName) -> Result<(), &'static str> {
        let Some(known) = self.site.label(label) else { return Err("the site has no such label") };
        if self.site.reachable(&known).is_empty() {
            return Err("nothing can be reached at this label, so it never runs");
        }
        match self.trials.get(label).map_or(0, Vec::len) < MOST {
            false => Err("others wait for this label already"),
            true => Ok(()),
        }
    }

    fn runs(&self, label: &LabelName) -> bool {
        self.used_labels.get(label).is_some_and(|used| matches!(used.vault, Vault::Up { .. }))
    }

    fn start_for(&mut self, operator: OperatorId, label: LabelName, what: Option<Entering>) {
        let runs = self.runs(&label);
        // Where a session or another operator has it started already, its answer is ours.
        let asked = self.used_labels.contains_key(&label) || self.trials.contains_key(&label);
        self.trials.entry(label.clone()).or_default().push((operator, what));
        if runs {
            self.tried(&label, &Ok(()));
        } else if !asked {
            self.say(Output::Need(label));
        }
    }
}

fn entry(label: &LabelName, action: Action, object: String, reason: &str) -> Entry {
    Entry {
        user: None,
        host: None,
        label: Some(label.clone()),
        action,
        object,
        verdict: Verdict::Noted,
        reason: reason.into(),
    }
}

/// A command in one line, as a shell would take it: no two read alike.
fn command_line(argv: &[String]) -> String {
    argv.iter().map(|each| word(each)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell would take it.
fn word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    match word {
        "" => "''".to_owned(),
        word if word.chars().all(plain) => word.to_owned(),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

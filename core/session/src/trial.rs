//! Whether a label can run here, found out by running it: an operator asks, before anybody needs it.

use crate::event::*;
use crate::sessions::Sessions;
use crate::state::Vault;
use levee_policy::LabelName;
use levee_policy::audit::{Event as Entry, Verdict};

/// Operators who may wait for one label.
const MOST: usize = 4;

impl Sessions {
    pub(crate) fn try_label(&mut self, operator: OperatorId, label: LabelName) {
        let refuse = |why: &str| Output::Operator(operator, Err(why.to_owned()));
        let known = self.site.label(&label).is_some_and(|label| !self.site.reachable(&label).is_empty());
        if !known {
            return self.say(refuse("nothing can be reached at this label, so it never runs"));
        }
        if self.places.get(&label).is_some_and(|place| matches!(place.vault, Vault::Up { .. })) {
            return self.say(Output::Operator(operator, Ok(())));
        }
        let waiting = self.trials.entry(label.clone()).or_default();
        if waiting.len() >= MOST {
            return self.say(refuse("others try this label already"));
        }
        waiting.push(operator);
        self.say(Output::Audit(Entry {
            user: None,
            host: None,
            label: Some(label.clone()),
            action: "trial".into(),
            object: "label".into(),
            verdict: Verdict::Noted,
            reason: "an operator tries whether it starts".into(),
        }));
        // Where a session has it started already, its answer is ours.
        if !self.places.contains_key(&label) {
            self.say(Output::Need(label));
        }
    }

    /// The label runs, or cannot.
    pub(crate) fn tried(&mut self, label: &LabelName, result: &Result<(), String>) {
        for operator in self.trials.remove(label).unwrap_or_default() {
            self.say(Output::Operator(operator, result.clone()));
        }
    }
}

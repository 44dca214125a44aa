//! Who was the first at a label: for that its store is made, and snapshots and copies of it, which all stay and count in `[limits] stores`. One person
//! is the first at so many labels, so that nobody uses up the room of all.

use crate::event::*;
use crate::sessions::Sessions;
use levee_policy::audit::{Event as Entry, Verdict};
use levee_policy::{LabelName, UserName};

impl Sessions {
    /// Who was the first at which label, as the store has it. What is no label of the site any more counts for nobody.
    pub fn remember_firsts(&mut self, firsts: impl IntoIterator<Item = (LabelName, UserName)>) {
        let site = self.site.clone();
        self.firsts.extend(firsts.into_iter().filter(|(label, _)| site.label(label).is_some()));
    }

    /// What is to be kept where a person's session, which is granted by this record, is the first at its label; why there is none where they are the
    /// first at as many as the site allows.
    pub(crate) fn first_at(
        &mut self,
        user: &UserName,
        label: &LabelName,
        granted: &Entry,
    ) -> Result<Option<Change>, String> {
        // One that runs has its store, whoever it was made for.
        if self.firsts.contains_key(label) || self.used_labels.contains_key(label) {
            return Ok(None);
        }
        let most = self.site.limits().first_labels;
        let had = self.firsts.values().filter(|first| *first == user).count();
        if had >= usize::try_from(most).unwrap_or(usize::MAX) {
            let reason = format!(
                "nobody has been at {label} yet, and `{user}` was the first at {had} labels: the site lets one person be so at {most} \
                 (`[limits] first-labels`)"
            );
            let refused = Entry { verdict: Verdict::Denied, reason: reason.clone(), ..granted.clone() };
            self.say(Output::Audit(refused));
            return Err(reason);
        }
        Ok(Some(Change::First(label.clone(), user.clone())))
    }

    /// That is being recorded.
    pub(crate) fn is_first(&mut self, first: Option<&Change>) {
        if let Some(Change::First(label, user)) = first {
            self.firsts.insert(label.clone(), user.clone());
        }
    }

    /// It could not be, and nothing began: if it was so, it is to be recorded again.
    pub(crate) fn is_not_first(&mut self, label: &LabelName) {
        if !self.used_labels.contains_key(label) {
            self.firsts.remove(label);
        }
    }
}

//! Who was the first at a label: for that its store is made, and snapshots and copies of it, which all stay and count in `[limits] stores`. One person
//! is the first at so many labels, so that nobody uses up the room of all.

use crate::event::Change;
use crate::sessions::Sessions;
use levee_policy::{LabelName, UserName};

/// Who was the first at a label.
#[derive(Debug)]
pub(crate) struct First {
    user: UserName,
    /// The store has it.
    recorded: bool,
}

impl Sessions {
    /// Who was the first at which label, as the store has it. What is no label of the site any more counts for nobody.
    pub fn remember_firsts(&mut self, firsts: impl IntoIterator<Item = (LabelName, UserName)>) {
        let site = self.site.clone();
        let known = firsts.into_iter().filter(|(label, _)| site.label(label).is_some());
        self.firsts.extend(known.map(|(label, user)| (label, First { user, recorded: true })));
    }

    /// What is to be kept where a person is the first at a label.
    ///
    /// # Errors
    /// They are the first at as many as the site allows; in words.
    pub(crate) fn first_at(&self, user: &UserName, label: &LabelName) -> Result<Option<Change>, String> {
        // One that runs has its store, whoever it was made for.
        if self.firsts.contains_key(label) || self.used_labels.contains_key(label) {
            return Ok(None);
        }
        let most = self.site.limits().first_labels;
        let had = self.firsts.values().filter(|first| first.user == *user).count();
        if had >= usize::try_from(most).unwrap_or(usize::MAX) {
            return Err(format!(
                "nobody has been at {label} yet, and `{user}` was the first at {had} labels: the site lets one person be so at {most} \
                 (`[limits] first-labels`)"
            ));
        }
        Ok(Some(Change::First(label.clone(), user.clone())))
    }

    /// That is being recorded.
    pub(crate) fn is_first(&mut self, first: Option<&Change>) {
        if let Some(Change::First(label, user)) = first {
            self.firsts.insert(label.clone(), First { user: user.clone(), recorded: false });
        }
    }

    /// What was to be recorded of this label is, or is not: then nothing began, and if somebody was the first it is to be recorded again.
    pub(crate) fn first_recorded(&mut self, label: &LabelName, durable: bool) {
        if let Some(first) = self.firsts.get_mut(label) {
            first.recorded |= durable;
        }
        let is_lost = |first: &First| !first.recorded;
        if self.firsts.get(label).is_some_and(is_lost) && !self.used_labels.contains_key(label) {
            self.firsts.remove(label);
        }
    }
}

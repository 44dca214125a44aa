//! Who of those cleared for a label reaches a service there: discretionary access by person, beneath what labels allow (MYSEA, 2.4).

use std::collections::BTreeSet;

use super::problem::ProblemKind;
use super::read::{Reader, Table};
use super::tables::{DraftUser, ReadTables};
use super::values::names;
use crate::names::UserName;

/// A service's `people` and `owners`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    people: Option<BTreeSet<UserName>>,
    owners: BTreeSet<UserName>,
}

impl Access {
    /// Who decides who reaches it, each at the labels at which they have sessions. Without any nobody does.
    pub fn owners(&self) -> &BTreeSet<UserName> {
        &self.owners
    }

    /// Whom the site file lets reach it; `None`: everybody.
    pub fn people(&self) -> Option<&BTreeSet<UserName>> {
        self.people.as_ref().or_else(|| Some(&self.owners).filter(|owners| !owners.is_empty()))
    }

    /// Whether it is for some people alone: a host of a network, which is nobody, never reaches it.
    pub fn is_limited(&self) -> bool {
        self.people().is_some()
    }

    /// Whether this person reaches it at a label where an owner has said this of them, or nothing. An owner always does. Where nobody
    /// decides, what was said counts for nothing.
    pub fn admits(&self, user: &UserName, said: Option<bool>) -> bool {
        if self.owners.contains(user) {
            return true;
        }
        let by_site = self.people().is_none_or(|people| people.contains(user));
        if self.owners.is_empty() { by_site } else { said.unwrap_or(by_site) }
    }

    /// Whether this person could ever reach it, whatever owners say.
    pub fn may_admit(&self, user: &UserName) -> bool {
        self.admits(user, Some(true))
    }
}

/// `people` and `owners` of a service.
pub(super) fn read(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    users: &ReadTables<DraftUser>,
) -> Option<Access> {
    let known = users.whole.then(|| users.read.iter().map(|user| &user.name.value));
    let people = names(reader, keys, "people", ("user", known.clone()));
    let owners = names(reader, keys, "owners", ("user", known));
    let (people, owners) = (people?, owners?);
    if let Some(value) = keys.get("owners").filter(|_| owners.as_ref().is_some_and(BTreeSet::is_empty)) {
        let what = "nobody owns the service, and `owners` says so already where it is not there";
        reader.problem(ProblemKind::BadValue, &value.span(), what, "name somebody, or remove `owners`");
    }
    let owners = owners.unwrap_or_default();
    if let Some(value) = keys.get("people").filter(|_| owners.is_empty())
        && people.as_ref().is_some_and(BTreeSet::is_empty)
    {
        let what = "nobody could reach the service";
        reader.problem(ProblemKind::Unreachable, &value.span(), what, "name somebody, or add `owners`");
    }
    Some(Access { people, owners })
}

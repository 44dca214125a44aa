//! What others write and sessiond goes by: the site file, the revocation list, each person's credentials. The store keeps the digest
//! that the log was told last, so that a change is in the log whoever made it, and whether or not sessiond ran then.

use levee_policy::UserName;
use levee_policy::audit::{Action, Event, Hex, Verdict};
use levee_session::Change;
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;

/// SHA-256.
pub type Digest = [u8; 32];

/// Of these bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes).as_ref().try_into().unwrap_or_default()
}

/// Something that others write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The site file.
    Site,
    /// The authority's revocation list.
    Revocations,
    /// A person's password.
    Password(UserName),
    /// The seed of a person's codes.
    SecondFactor(UserName),
}

impl Subject {
    /// As the store names it. No person's name has a space.
    fn key(&self) -> String {
        match self {
            Self::Site => "site".into(),
            Self::Revocations => "revocations".into(),
            Self::Password(user) => format!("password {user}"),
            Self::SecondFactor(user) => format!("second-factor {user}"),
        }
    }

    fn user(&self) -> Option<&UserName> {
        match self {
            Self::Site | Self::Revocations => None,
            Self::Password(user) | Self::SecondFactor(user) => Some(user),
        }
    }

    fn object(&self) -> &'static str {
        match self {
            Self::Site => "site file",
            Self::Revocations => "revocation list",
            Self::Password(_) => "password",
            Self::SecondFactor(_) => "second factor",
        }
    }

    /// It is this now.
    pub fn is(&self, digest: Option<Digest>) -> Change {
        Change::Known(self.key(), digest)
    }
}

/// What the log was told last.
pub struct Known(BTreeMap<String, Digest>);

impl Known {
    /// As the store has it.
    pub fn new(rows: Vec<(String, Digest)>) -> Self {
        Self(rows.into_iter().collect())
    }

    /// Who had a password or a second factor.
    pub fn people(&self) -> impl Iterator<Item = UserName> {
        self.0.keys().filter_map(|key| UserName::new(key.split_once(' ')?.1).ok())
    }

    /// Whether the log has it that this is so.
    pub fn has(&self, subject: &Subject, now: Option<Digest>) -> bool {
        self.0.get(&subject.key()) == now.as_ref()
    }

    /// What is to be recorded and kept, if it is another than the log knows.
    pub fn look(&mut self, subject: &Subject, now: Option<Digest>) -> Option<(Event, Change)> {
        if self.has(subject, now) {
            return None;
        }
        let before = match now {
            Some(now) => self.0.insert(subject.key(), now),
            None => self.0.remove(&subject.key()),
        };
        let how = match (before, now) {
            (_, None) => "removed".to_owned(),
            (None, Some(now)) => format!("set; SHA-256 {}", String::from(Hex(now.to_vec()))),
            (Some(_), Some(now)) => format!("replaced; SHA-256 {}", String::from(Hex(now.to_vec()))),
        };
        let entry = Event {
            user: subject.user().cloned(),
            host: None,
            label: None,
            action: Action::Change,
            object: subject.object().into(),
            verdict: Verdict::Noted,
            reason: format!("by an operator: {how}"),
        };
        Some((entry, subject.is(now)))
    }

    /// Goes by this change, which the store has.
    pub fn learn(&mut self, change: &Change) {
        if let Change::Known(key, digest) = change {
            match digest {
                Some(digest) => drop(self.0.insert(key.clone(), *digest)),
                None => drop(self.0.remove(key)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_says_whose_and_how() {
        let mut known = Known::new(Vec::new());
        let ada = Subject::Password(UserName::new("ada").unwrap());
        let mut told = |now| known.look(&ada, now).map(|(entry, _)| entry.reason);
        assert!(told(Some([1; 32])).unwrap().starts_with("by an operator: set; SHA-256 0101"));
        assert_eq!(told(Some([1; 32])), None);
        assert!(told(Some([2; 32])).unwrap().starts_with("by an operator: replaced; SHA-256 0202"));
        assert_eq!(told(None).unwrap(), "by an operator: removed");
        assert_eq!(told(None), None);
        known.learn(&ada.is(Some([3; 32])));
        assert!(known.has(&ada, Some([3; 32])) && !known.has(&Subject::Site, Some([3; 32])));
        assert_eq!(known.people().collect::<Vec<_>>(), [UserName::new("ada").unwrap()]);
    }
    #[test]
    fn a_record_names_what_was_changed_and_whose_it_is() {
        let ada = || UserName::new("ada").unwrap();
        let mut known = Known::new(Vec::new());
        for (subject, object, user) in [
            (Subject::Site, "site file", None),
            (Subject::Revocations, "revocation list", None),
            (Subject::Password(ada()), "password", Some(ada())),
            (Subject::SecondFactor(ada()), "second factor", Some(ada())),
        ] {
            // (RFC 6234's digest of nothing.)
            let digest = digest_of(b"");
            assert_eq!((digest[0], digest[31]), (0xe3, 0x55));
            let (entry, change) = known.look(&subject, Some(digest)).unwrap();
            assert_eq!((entry.object.as_str(), entry.user), (object, user));
            assert_eq!(change, subject.is(Some(digest)));
        }
    }
}

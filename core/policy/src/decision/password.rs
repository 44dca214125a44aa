//! Changing one's own password.

use super::{Ask, Denial, DenialKind, Grant, Who};
use crate::audit::Action;
use crate::names::{HostName, UserName};
use crate::site::Site;

/// To replace a person's own password.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangePassword {
    user: UserName,
}

impl ChangePassword {
    /// Whose.
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Whose, once nothing else is needed.
    pub fn into_user(self) -> UserName {
        self.user
    }
}

impl Site {
    /// May this user, who is signed on at this host and whose present password was right, replace it: only if the site knows both.
    pub fn decide_password(
        &self,
        user: &UserName,
        host: &HostName,
    ) -> Result<Grant<ChangePassword>, Box<Denial>> {
        let who = Who { user: Some(user), host: Some(host) };
        let ask = Ask { who, label: None, verb: Action::ChangePassword, object: host.to_string() };
        if self.user(user).is_none() {
            return Err(ask.deny(DenialKind::UnknownUser, format!("the site has no user `{user}`")));
        }
        if self.host(host).is_none() {
            return Err(ask.deny(DenialKind::UnknownHost, format!("the site has no host `{host}`")));
        }
        Ok(ask.grant(ChangePassword { user: user.clone() }, "password".to_owned()))
    }
}

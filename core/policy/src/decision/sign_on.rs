//! Signing on.

use super::{Ask, Denial, DenialKind, Grant, Who};
use crate::audit::Action;
use crate::names::{HostName, UserName};
use crate::site::Site;

/// To be signed on at a workstation. It allows no more than to ask for sessions.
#[derive(Debug, PartialEq, Eq)]
pub struct SignOn {
    user: UserName,
    host: HostName,
}

impl SignOn {
    /// Who.
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Where.
    pub fn host(&self) -> &HostName {
        &self.host
    }
}

impl Site {
    /// May this user, whose password was right, sign on at this host: only if the site knows both, and no operator has said
    /// otherwise (`disabled`).
    pub fn decide_sign_on(
        &self,
        user: &UserName,
        host: &HostName,
        disabled: bool,
    ) -> Result<Grant<SignOn>, Box<Denial>> {
        let who = Who { user: Some(user), host: Some(host) };
        let ask = Ask { who, label: None, verb: Action::SignOn, object: host.to_string() };
        if disabled {
            let why = format!("`{user}` is disabled: an operator can say otherwise (levee user enable)");
            return Err(ask.deny(DenialKind::Disabled, why));
        }
        if self.user(user).is_none() {
            return Err(ask.deny(DenialKind::UnknownUser, format!("the site has no user `{user}`")));
        }
        if self.host(host).is_none() {
            return Err(ask.deny(DenialKind::UnknownHost, format!("the site has no host `{host}`")));
        }
        Ok(ask.grant(SignOn { user: user.clone(), host: host.clone() }, "password".to_owned()))
    }
}

//! Which postures all servers of the site have in force: those that an operator has set last, at whichever server.
//!
//! Each server says in its statement which [`Setting`] it has, and whether nothing of before is left at it. A setting that is after a
//! server's own is taken up there; what came before it counts nowhere any more, so an old statement changes nothing. An operator is
//! answered when every other server has said that it is so. A server that has had its time and has not is granted nothing more.

use super::peer::Peer;
use super::{Federation, Phase, Said};
use crate::{InForce, Time};
use levee_policy::DomainName;
use serde::{Deserialize, Serialize};

/// The most postures in force.
pub(super) const POSTURES: usize = 16;

/// What operators have set: so many times at all servers together, the last time at this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Which time.
    pub number: u64,
    /// At which server; nothing where none was set ever.
    pub at: Option<DomainName>,
    /// The postures in force from then on.
    pub in_force: Vec<InForce>,
}

impl Setting {
    /// Whether it counts in the place of another. Of two that were set at once one does, at every server the same.
    pub fn is_after(&self, other: &Self) -> bool {
        (self.number, &self.at) > (other.number, &other.at)
    }

    /// The next one.
    ///
    /// # Errors
    /// There is no greater number.
    pub fn next(&self, at: &DomainName, in_force: Vec<InForce>) -> Result<Self, String> {
        let number = self.number.checked_add(1).filter(|number| *number <= LAST);
        let number = number.ok_or("postures were set as often as can be counted")?;
        Ok(Self { number, at: Some(at.clone()), in_force })
    }

    pub(super) fn is_sound(&self) -> bool {
        let is_set = self.number > 0;
        is_set == self.at.is_some() && self.number <= LAST && self.in_force.len() <= POSTURES
    }
}

/// No server says a number beyond it.
const LAST: u64 = u64::MAX >> 1;
/// So far beyond this server's own a number is believed: more than operators set in the life of a site, and so few that whoever has one server's
/// key does not come to [`LAST`], since what others say is taken up seldom.
const AHEAD: u64 = 1 << 32;

/// How this server stands to the postures of all.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// What is recorded here.
    pub setting: Setting,
    /// Whether there is something here yet that it does not allow.
    pub is_moving: bool,
    /// SHA-256 of the postures of the site file.
    pub postures: [u8; 32],
    /// The last that another server has said and that is after this server's own.
    told: Setting,
    /// Until then others have time, and whether somebody waits for them.
    patience: Time,
    is_awaited: bool,
}

impl Federation {
    /// The same, where the site file has postures with this digest, and this is recorded as what is in force.
    #[must_use]
    pub fn with_postures(mut self, postures: [u8; 32], setting: Setting) -> Self {
        (self.standing.postures, self.standing.setting) = (postures, setting);
        self
    }

    /// Why no posture can be set for the site now.
    ///
    /// # Errors
    /// That.
    pub fn may_set(&self) -> Result<(), String> {
        if !matches!(self.phase, Phase::Member(_, until) if until > self.now) {
            return Err(
                "this server is cut off from the others of its site, which would go on as before".to_owned()
            );
        }
        let other = |peer: &Peer| peer.heard != (0, 0) && peer.postures != self.standing.postures;
        match self.peers.iter().find(|(_, peer)| other(peer)) {
            None => Ok(()),
            Some((name, _)) => Err(format!(
                "the site file of {name} has other postures than this one's: make them the same, and start it anew"
            )),
        }
    }

    /// This is recorded here, and what it does not allow is on its way out. The others have until then; `awaited`: [`Said::Kept`] is to
    /// say what became of it.
    pub fn set(&mut self, setting: Setting, until: Time, awaited: bool, now: Time) {
        self.pass(now);
        let standing = &mut self.standing;
        (standing.setting, standing.is_moving) = (setting, true);
        (standing.patience, standing.is_awaited) = (until, awaited);
        self.wanted = true;
        self.state(now);
    }

    /// Nothing is left here that the setting does not allow.
    pub fn kept(&mut self, now: Time) {
        self.pass(now);
        self.standing.is_moving = false;
        self.wanted = true;
        self.state(now);
        self.settle(now);
    }

    /// What a server has said of postures.
    pub(super) fn hear_setting(&mut self, name: &DomainName) {
        let Some(peer) = self.peers.get(name) else { return };
        let (setting, standing) = (&peer.setting, &mut self.standing);
        if !setting.is_after(&standing.setting) || !setting.is_after(&standing.told) {
            return;
        }
        if setting.number.saturating_sub(standing.setting.number) > AHEAD {
            return self.add_strange(1);
        }
        standing.told = setting.clone();
        let means = setting.in_force.is_empty() || peer.postures == standing.postures;
        self.said.push_back(if means { Said::Set(setting.clone()) } else { Said::Unlike(name.clone()) });
    }

    /// Whether a server has what is in force here, or something after it, and nothing of before.
    fn follows(&self, peer: &Peer) -> bool {
        let Standing { setting, postures, .. } = &self.standing;
        let means = setting.in_force.is_empty() || peer.postures == *postures;
        means && peer.is_kept && !setting.is_after(&peer.setting)
    }

    /// Whether a server may be granted anything: as long as it has time to follow, and when it has.
    pub(super) fn may_be_granted(&self, peer: &Peer, now: Time) -> bool {
        now < self.standing.patience || self.follows(peer)
    }

    /// When somebody who waits has waited long enough.
    pub(super) fn impatient_at(&self) -> Option<Time> {
        self.standing.is_awaited.then_some(self.standing.patience)
    }

    /// Answers who waits, when all others follow or have had their time.
    pub(super) fn settle_setting(&mut self, now: Time) {
        if !self.standing.is_awaited {
            return;
        }
        let late = self.peers.iter().filter(|(_, peer)| !self.follows(peer));
        let late: Vec<DomainName> = late.map(|(name, _)| name.clone()).collect();
        if late.is_empty() && !self.standing.is_moving || self.standing.patience <= now {
            self.standing.is_awaited = false;
            self.said.push_back(Said::Kept(late));
        }
    }
}

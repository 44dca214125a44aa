//! Which postures all servers of the site have in force: those that an operator has set last, at whichever server.
//!
//! Each server says in its statement which [`Setting`] it has, and whether nothing of before is left at it. A setting that is after a
//! server's own is taken up there; what came before it counts nowhere any more, so an old statement changes nothing. An operator is
//! answered when every other server has said that it is so. A server that has had its time and has not is granted nothing more.

use super::peer::Peer;
use super::setting::Setting;
use super::{Federation, Phase, Said};
use crate::Time;
use levee_policy::DomainName;

/// So far beyond this server's own a number is believed: more than operators set in the life of a site.
const AHEAD: u64 = 1 << 32;
/// And so many for each millisecond since 1970, by this server's clock. Whoever has one server's key does not come to the last number by them until
/// 2248; and as what others say is taken up once in five seconds at most, by [`AHEAD`] each time, the clock overtakes them: a server that was
/// down meanwhile, or whose store is new, can follow.
const PACE: u64 = 1 << 20;

/// How this server stands to the postures of all.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// What is recorded here.
    pub setting: Setting,
    /// Whether there is something here yet that it does not allow.
    pub is_moving: bool,
    /// SHA-256 of the postures of the site file.
    pub postures: [u8; 32],
    /// Until then others have time, and whether somebody waits for them.
    patience: Time,
    is_awaited: bool,
}

impl Federation {
    /// The same, where the site file has postures with this digest, and this is recorded as what is in force; `is_moving`: something may
    /// be left of before the start that it does not allow, until [`Federation::kept`].
    #[must_use]
    pub fn with_postures(mut self, postures: [u8; 32], setting: Setting, is_moving: bool) -> Self {
        (self.standing.postures, self.standing.setting) = (postures, setting);
        self.standing.is_moving = is_moving;
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
        let other = |peer: &Peer| peer.postures.is_some_and(|postures| postures != self.standing.postures);
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

    /// What a server has said of postures. It is taken up again and again until it is what is recorded here, so that nothing that one
    /// server says keeps what another says from being heard.
    pub(super) fn hear_setting(&mut self, name: &DomainName) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        let (setting, standing) = (&peer.setting, &self.standing);
        if !setting.is_after(&standing.setting) {
            return;
        }
        let own = standing.setting.number.saturating_add(AHEAD);
        if setting.number > own.max(self.now.as_millis().saturating_mul(PACE)) {
            return self.add_strange(1);
        }
        if setting.in_force.is_empty() || peer.postures == Some(standing.postures) {
            self.said.push_back(Said::Set(name.clone(), setting.clone()));
        } else if peer.unlike != *setting {
            peer.unlike = setting.clone();
            self.said.push_back(Said::Unlike(name.clone()));
        }
    }

    /// Whether a server has what is in force here, or something after it, and nothing of before.
    fn follows(&self, peer: &Peer) -> bool {
        let Standing { setting, postures, .. } = &self.standing;
        let means = setting.in_force.is_empty() || peer.postures == Some(*postures);
        means && peer.is_kept && !setting.is_after(&peer.setting)
    }

    /// Whether it has what is in force here, and that alone: what is after it may never have been preceded by it there.
    fn has(&self, peer: &Peer) -> bool {
        self.follows(peer) && peer.setting == self.standing.setting
    }

    /// Whether a server may be granted anything: as long as it has time to follow, and when it has.
    pub(super) fn may_be_granted(&self, peer: &Peer, now: Time) -> bool {
        now < self.standing.patience || self.follows(peer)
    }

    /// When somebody who waits has waited long enough.
    pub(super) fn impatient_at(&self) -> Option<Time> {
        self.standing.is_awaited.then_some(self.standing.patience)
    }

    /// Answers who waits, when all others have it or have had their time.
    pub(super) fn settle_setting(&mut self, now: Time) {
        if !self.standing.is_awaited {
            return;
        }
        let late = self.peers.iter().filter(|(_, peer)| !self.has(peer));
        let late: Vec<DomainName> = late.map(|(name, _)| name.clone()).collect();
        if late.is_empty() && !self.standing.is_moving || self.standing.patience <= now {
            self.standing.is_awaited = false;
            self.said.push_back(Said::Kept(late));
        }
    }
}

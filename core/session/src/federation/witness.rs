//! Each server keeps in its audit log how far the others' logs were when their signers signed them: who becomes root at one of them later cannot take back
//! what another has.

use super::statement::Signed;
use super::{Federation, Said};
use crate::Time;
use levee_policy::DomainName;
use std::time::Duration;

/// No more often is a server's kept: what it says costs the others no more of their logs.
pub const SELDOM: Duration = Duration::from_secs(300);

impl Federation {
    /// This server's audit log has been signed: the others hear of it with its next statement.
    pub fn signed(&mut self, signed: Signed) {
        self.signed = Some(signed);
    }

    /// What a server says of its log is kept, where it is another than the last that was.
    pub(super) fn witness(&mut self, name: &DomainName, signed: Option<Signed>, now: Time) {
        let (Some(peer), Some(signed)) = (self.peers.get_mut(name), signed) else { return };
        let is_kept = |(kept, at): &(Signed, Time)| *kept == signed || now < at.after(SELDOM);
        if peer.witnessed.as_ref().is_some_and(is_kept) {
            return;
        }
        peer.witnessed = Some((signed.clone(), now));
        self.said.push_back(Said::Witness(name.clone(), signed));
    }
}

//! Keys that were made anew while the server runs: who has the old ones ends and is started again with the new ones, which costs no
//! session and no packet (as the death of any of them does not), and the audit log says what was rotated.

use super::*;
use std::path::Path;

/// The file that stands for a key, below the state directory, and who has to be started again when it changes.
const KEYS: [(&str, &[Role]); 7] = [
    ("authority/ca.pem", &[Role::Sessiond, Role::Keyer, Role::Tps]),
    ("server/chain.pem", &[Role::Signer, Role::Tps]),
    ("server/ike-chain.pem", &[Role::Signer, Role::Keyer]),
    ("server/audit.pub", &[Role::Signer]),
    ("server/federation-chain.pem", &[Role::Signer, Role::Sessiond, Role::Fsd]),
    ("server/federation-authority.pem", &[Role::Sessiond, Role::Fsd]),
    ("layer/chain.pem", &[Role::Layer]),
];

/// The public halves of the keys that the running processes have: what cannot be read counts as not there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Enrolled([Option<Vec<u8>>; KEYS.len()]);

impl Enrolled {
    pub(super) fn read(state: &Path) -> Self {
        Self(KEYS.map(|(file, _)| state::public(&state.join(file)).ok()))
    }

    /// The files that are others in `now`, and who has to be started again.
    fn changed<'a>(&'a self, now: &'a Self) -> impl Iterator<Item = (&'static str, &'static [Role])> + 'a {
        let pairs = KEYS.into_iter().zip(self.0.iter().zip(&now.0));
        // One that has gone is not what anybody can go on with: it is left as it was.
        pairs.filter(|(_, (before, now))| now.is_some() && before != now).map(|(key, _)| key)
    }
}

impl Server {
    /// Goes on with the keys that are there now, if they are others than those that the processes have. Whether it did.
    ///
    /// # Errors
    /// One of the processes cannot be started again.
    pub(super) fn renew(&mut self) -> Result<bool, Fatal> {
        let now = Enrolled::read(&self.options.state);
        let changed: Vec<_> = self.enrolled.changed(&now).collect();
        if changed.is_empty() {
            return Ok(false);
        }
        let roles =
            self.standing().into_iter().filter(|role| changed.iter().any(|(_, has)| has.contains(role)));
        let roles: Vec<Role> = roles.collect();
        self.enrolled = now;
        for process in roles.iter().filter_map(|role| self.processes.remove(&Key::of(*role))) {
            if process.key.role == Role::Sessiond {
                // It writes its last checkpoint.
                process.end(Duration::from_secs(2));
            } else {
                process.kill();
                process.wait(Duration::from_secs(5));
            }
        }
        roles.iter().try_for_each(|role| self.start_standing(*role))?;
        let files: Vec<&str> = changed.iter().map(|(file, _)| *file).collect();
        log!("goes on with new keys: {}", files.join(", "));
        let reason = format!("the server goes on with new ones: {}", files.join(", "));
        self.tell_sessiond(LabelEvent::Note { label: None, object: "keys".to_owned(), done: true, reason });
        Ok(true)
    }

    /// Has in the audit log what `levee enrol rotate` has done since it was last asked.
    pub(super) fn tell_rotations(&self) {
        for state::Rotation { object, reason, done } in state::rotations(&self.options.state) {
            self.tell_sessiond(LabelEvent::Note { label: None, object, done, reason });
        }
    }
}

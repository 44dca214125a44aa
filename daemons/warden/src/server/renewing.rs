//! Keys that were made anew while the server runs: who has the old ones ends and is started again with the new ones, or, as sessiond and fsd, is told.
//! That costs no session and no packet (as the death of none of those who are started again does). The audit log says what was rotated.
//!
//! The old keys are nowhere but in the running signer: their files have been destroyed. So the new ones are first read by a signer that
//! signs nothing ([`Trial`]). Those that it cannot use nobody goes on with.

use super::*;
use crate::waits::WatchedChannel;
use levee_ipc::RecvError;
use levee_ipc::warden::fsd::FsdPart as Fsd;
use std::io;
use std::path::Path;

/// The file that stands for a key, below the state directory, who has to be started again when it changes, and as what sessiond and fsd are told of it.
type KeyFile = (&'static str, &'static [Role], Option<SessiondPart>, Option<Fsd>);

const KEYS: [KeyFile; 9] = [
    ("authority/ca.pem", &[Role::Keyer, Role::Tps], Some(SessiondPart::Authority), None),
    ("server/chain.pem", &[Role::Signer, Role::Tps], None, None),
    ("server/ike-chain.pem", &[Role::Signer, Role::Keyer], None, None),
    ("server/audit.pub", &[Role::Signer], None, None),
    ("server/federation-chain.pem", &[Role::Signer], Some(SessiondPart::Federation), Some(Fsd::Chain)),
    ("server/federation-authority.pem", &[], Some(SessiondPart::FederationAuthority), Some(Fsd::Authority)),
    ("layer/chain.pem", &[Role::Layer], None, None),
    ("layer/authority.pem", &[Role::Layer], None, None),
    // Not a file: their names, which are others when they are rotated.
    (state::PPKS, &[Role::Signer, Role::Keyer], None, None),
];

/// How long a trial may take: deriving a key from a passphrase takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

/// The public halves of the keys that the running processes have: what cannot be read counts as not there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Enrolled([Option<Vec<u8>>; KEYS.len()]);

impl Enrolled {
    pub(super) fn read(state: &Path) -> Self {
        Self(KEYS.map(|(file, ..)| match file {
            state::PPKS => state::ppk_ids(state).ok(),
            file => state::public(&state.join(file)).ok(),
        }))
    }

    /// The names of the PPKs, as [`state::ppk_ids`] has them.
    pub(super) fn ppk_ids(&self) -> &[u8] {
        let known = KEYS.iter().zip(&self.0).find(|((name, ..), _)| *name == state::PPKS);
        known.and_then(|(_, text)| text.as_deref()).unwrap_or_default()
    }

    /// The files that are others in `now`, and who has to be started again.
    fn changed<'a>(&'a self, now: &'a Self) -> impl Iterator<Item = KeyFile> + 'a {
        let pairs = KEYS.into_iter().zip(self.0.iter().zip(&now.0));
        // One that has gone is not what anybody can go on with: it is left as it was.
        pairs.filter(|(_, (before, now))| now.is_some() && before != now).map(|(key, _)| key)
    }

    /// A sealed copy of a file as it was when its key was begun with: who is started again has what goes with the signer's keys, and not
    /// what has been written since.
    ///
    /// # Errors
    /// The kernel's; there was none.
    pub(super) fn copy(&self, state: &Path, file: &str) -> io::Result<OwnedFd> {
        let known = KEYS.iter().zip(&self.0).find(|((name, ..), _)| *name == file);
        match known.and_then(|(_, text)| text.as_ref()) {
            Some(text) => sealed("copy", text),
            None => state::copy(&state.join(file)),
        }
    }
}

/// New keys on trial: a signer that reads them, has no channel to anybody, and ends as soon as it has said whether it could.
#[derive(Debug)]
struct Trial {
    process: Process,
    _said: WatchedChannel,
    /// What it was started for.
    keys: Enrolled,
    until: Instant,
}

impl Trial {
    /// What it has found, if anything yet: why the keys cannot be used, where they cannot.
    fn found(&mut self) -> Option<Result<(), String>> {
        match self.process.hear().map(|heard| heard.message) {
            Ok(Heard::Ready) => Some(Ok(())),
            Ok(Heard::Unusable(why)) => Some(Err(why)),
            Err(RecvError::Empty) if Instant::now() < self.until => None,
            Err(RecvError::Empty) => Some(Err(format!("no answer within {PATIENCE:?}"))),
            _ => Some(Err("the signer that read them ended without a word".to_owned())),
        }
    }
}

/// Where the server is with keys that were made anew.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    trial: Option<Trial>,
    /// Why the keys that lie there are not used.
    refused: Option<String>,
    /// What lay there as a signer was started that is not at work yet.
    ahead: Option<Enrolled>,
}

impl Renewal {
    /// What an operator is to know.
    pub(super) fn alarm(&self) -> Option<String> {
        self.refused.as_ref().map(|why| remedy(why))
    }

    pub(super) fn stop(&mut self) {
        self.trial.take().into_iter().for_each(|trial| trial.process.reap());
    }
}

fn remedy(why: &str) -> String {
    format!(
        "new keys are not used, and the server goes on with those before them, which are in its memory alone ({why}): put the file right, or \
         make the server's keys anew (levee enrol server SITE --force), then `levee reload`; do not end the server before that"
    )
}

impl Server {
    /// Goes on with the keys that are there now, if they are others than those that the processes have: at once, or, where the signer has
    /// to read some, once another has. Whether there are any.
    ///
    /// # Errors
    /// One of the processes cannot be started again.
    pub(super) fn renew(&mut self) -> Result<bool, Fatal> {
        self.renewal.stop();
        let now = Enrolled::read(&self.options.state);
        let changed: Vec<_> = self.enrolled.changed(&now).collect();
        if changed.is_empty() {
            self.renewal.refused = None;
            return Ok(false);
        }
        if !changed.iter().any(|(_, has, ..)| has.contains(&Role::Signer)) {
            self.go_on_with(now, None)?;
        } else if self.processes.get(&Key::of(Role::Signer)).is_none() {
            // It rests, since it could not use what was there.
            self.signer_again()?;
        } else {
            match self.try_keys(now) {
                Ok(trial) => self.renewal.trial = Some(trial),
                Err(why) => self.refuse(&why.to_string()),
            }
        }
        Ok(true)
    }

    fn try_keys(&mut self, keys: Enrolled) -> Result<Trial, Box<dyn std::error::Error>> {
        let key = Key { worker: 1, ..Key::of(Role::Signer) };
        let start = Start::new(key.clone(), 0, &self.uids, &self.options, &self.logs);
        let start = Start { uid: self.uids.trial(), ..start };
        let process = self.give_keys(start)?.into_process();
        let watched = self.processes.waits.watch(process.control(), Source::Said(key));
        let begun = watched.map_err(Into::into).and_then(|said| {
            process.begin(Place::Server)?;
            Ok(said)
        });
        match begun {
            Ok(said) => Ok(Trial { process, _said: said, keys, until: Instant::now() + PATIENCE }),
            Err(why) => {
                process.reap();
                Err(why)
            }
        }
    }

    /// Goes on with keys that a signer can use; of others it says so.
    ///
    /// # Errors
    /// As [`Server::renew`].
    pub(super) fn see_to_trial(&mut self) -> Result<(), Fatal> {
        let Some(found) = self.renewal.trial.as_mut().and_then(Trial::found) else { return Ok(()) };
        let Some(trial) = self.renewal.trial.take() else { return Ok(()) };
        trial.process.reap();
        match found {
            // They may have been made anew once more meanwhile.
            Ok(()) if Enrolled::read(&self.options.state) != trial.keys => self.renew().map(drop),
            Ok(()) => self.go_on_with(trial.keys, None),
            Err(why) => {
                self.refuse(&why);
                Ok(())
            }
        }
    }

    fn refuse(&mut self, why: &str) {
        log!("{}", remedy(why));
        self.renewal.refused = Some(why.to_owned());
        self.note(None, "keys", false, format!("new keys cannot be used: {why}"));
    }

    /// Starts again whoever has other keys than these, but for who has them.
    fn go_on_with(&mut self, now: Enrolled, has_them: Option<Role>) -> Result<(), Fatal> {
        let changed: Vec<_> = self.enrolled.changed(&now).collect();
        self.renewal.refused = None;
        if changed.is_empty() {
            return Ok(());
        }
        let roles =
            self.standing().into_iter().filter(|role| changed.iter().any(|(_, has, ..)| has.contains(role)));
        let roles: Vec<Role> = roles.filter(|role| Some(*role) != has_them).collect();
        self.enrolled.0.iter_mut().zip(now.0).for_each(|(text, now)| *text = now.or(text.take()));
        roles.iter().filter_map(|role| self.processes.remove(&Key::of(*role))).for_each(|one| one.reap());
        roles.iter().try_for_each(|role| self.start_standing_or_rest(*role))?;
        let files: Vec<&str> = changed.iter().map(|(file, ..)| *file).collect();
        for (file, _, sessiond, fsd) in changed {
            // Each has its own: where one of them has read to, the other would begin.
            let copy = || self.public(file).map_err(|e| Fatal::new(format!("copy {file}"), e));
            if let (Some(process), Some(part)) = (self.processes.get(&Key::of(Role::Fsd)), fsd) {
                process.tell(part, &[copy()?.as_fd()]);
            }
            if let (Some(process), Some(part)) = (self.processes.get(&Key::of(Role::Sessiond)), sessiond) {
                process.tell(part, &[copy()?.as_fd()]);
                // What it could not read by the authority before it can now.
                self.hand_out_lists(true);
            }
        }
        log!("goes on with new keys: {}", files.join(", "));
        self.note(None, "keys", true, format!("the server goes on with new ones: {}", files.join(", ")));
        Ok(())
    }

    /// Starts a standing process. A signer that cannot have its files, of a server that was up, is tried again later: sessions go on
    /// without one, and nobody signs on.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start_standing_or_rest(&mut self, role: Role) -> Result<(), Fatal> {
        match self.start_standing(role) {
            Err(why) if role == Role::Signer && self.is_up => {
                self.signer_rests(&why.to_string());
                Ok(())
            }
            started => started,
        }
    }

    /// The signer cannot be at work.
    ///
    /// # Errors
    /// Why, where nothing was at work yet.
    pub(super) fn unusable(&mut self, why: String) -> Result<(), Fatal> {
        if !self.is_up {
            return Err(Fatal::keys(&self.options.state.join("server"), why));
        }
        self.processes.remove(&Key::of(Role::Signer)).iter().for_each(Process::reap);
        self.signer_rests(&format!("{why}; put the file right, then `levee reload`"));
        Ok(())
    }

    fn signer_rests(&mut self, why: &str) {
        let signer = Kept::Process(Key::of(Role::Signer));
        let wait = self.keeping.failed(signer.clone(), why, Instant::now());
        self.rests(&signer, why, wait);
    }

    /// Starts a signer again that has ended or rested. It has the keys of now: those that speak with it get what goes with them as soon
    /// as it is at work ([`Server::signer_ready`]), and keep what they have as long as it is not.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn signer_again(&mut self) -> Result<(), Fatal> {
        if self.processes.get(&Key::of(Role::Signer)).is_some() {
            return Ok(());
        }
        self.renewal.stop();
        let now = Enrolled::read(&self.options.state);
        self.renewal.ahead = Some(now);
        self.keeping.began(Kept::Process(Key::of(Role::Signer)), Instant::now());
        self.start_standing_or_rest(Role::Signer)
    }

    /// A signer is at work. If it was started again, the others follow it.
    ///
    /// # Errors
    /// As [`Server::renew`].
    pub(super) fn signer_ready(&mut self) -> Result<(), Fatal> {
        let Some(now) = self.renewal.ahead.take() else { return Ok(()) };
        self.go_on_with(now, Some(Role::Signer))
    }

    /// Has in the audit log what `levee enrol rotate` has done since it was last asked.
    pub(super) fn tell_rotations(&self) {
        for (text, begun) in state::rotations(&self.options.state) {
            self.tell_sessiond(LabelEvent::Rotated { text, begun });
        }
    }
}

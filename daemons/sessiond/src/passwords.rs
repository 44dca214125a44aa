//! Credentials: one file for each user, and threads that check passwords so that nobody waits for a hash.
//!
//! `credentials/USER` has one line, an argon2id hash as a PHC string; `levee user add` writes the same.

use argon2::password_hash::{PasswordHash, PasswordHasher as _, PasswordVerifier as _, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use levee_ipc::Secret;
use levee_policy::UserName;
use levee_session::{ClientId, Verified};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

/// So many passwords are looked at at once; each takes about 19 MiB and some tens of milliseconds.
const THREADS: usize = 2;
/// The least bytes a new password has.
pub const MIN_PASSWORD: usize = 8;
const MAX_FILE: u64 = 1024;

/// Something to be done with passwords.
pub enum Job {
    /// Is this the user's?
    Verify(Secret),
    /// Is the first the user's? Then make a hash of the second.
    Change(Secret, Secret),
}

/// What came of a job.
pub struct Done {
    /// Whose request it was.
    pub client: ClientId,
    /// Whether the password is the user's.
    pub verified: Verified,
    /// The new password's hash, where one was to be made and the present password is right.
    pub hash: Option<Zeroizing<String>>,
}

/// Threads that look at passwords. They end with the process.
pub struct Passwords {
    directory: Arc<OwnedFd>,
    jobs: Sender<(ClientId, UserName, Job)>,
    done: Receiver<Done>,
    wake: Arc<OwnedFd>,
}

impl Passwords {
    /// What wakes the loop when a job is done; made outside the sandbox, which makes no descriptors of this kind.
    pub fn bell() -> std::io::Result<OwnedFd> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
    }

    /// Starts the threads; `directory` is where the credential files are. Call it inside the sandbox, which
    /// threads inherit.
    pub fn start(directory: OwnedFd, bell: OwnedFd) -> std::io::Result<Self> {
        let directory = Arc::new(directory);
        let wake = Arc::new(bell);
        let (jobs, queue) = channel();
        let (report, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let dummy: Arc<str> = dummy()?.into();
        for _ in 0..THREADS {
            let (queue, report, wake) = (Arc::clone(&queue), report.clone(), Arc::clone(&wake));
            let (directory, dummy) = (Arc::clone(&directory), Arc::clone(&dummy));
            // Without a name: the sandbox has no prctl.
            std::thread::Builder::new()
                .spawn(move || work(&queue, &report, &wake, directory.as_fd(), &dummy))?;
        }
        Ok(Self { directory, jobs, done, wake })
    }

    /// Hands a job in; its result comes by [`Passwords::finished`].
    pub fn submit(&self, client: ClientId, user: UserName, job: Job) -> bool {
        self.jobs.send((client, user, job)).is_ok()
    }

    /// Everything finished so far.
    pub fn finished(&self) -> Vec<Done> {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&*self.wake, &mut count);
        let mut all = Vec::new();
        loop {
            match self.done.try_recv() {
                Ok(done) => all.push(done),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return all,
            }
        }
    }

    /// Puts a new hash in the user's file: it is there whole, or not at all.
    pub fn store(&self, user: &UserName, hash: &str) -> std::io::Result<()> {
        // No user's name begins with a dot, so this is nobody's file.
        const NEW: &str = ".new";
        let directory = self.directory.as_fd();
        let _ = unlinkat(directory, NEW, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = File::from(openat(directory, NEW, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(hash.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        renameat(directory, NEW, directory, user.as_str())?;
        rustix::fs::fsync(directory)?;
        Ok(())
    }
}

impl AsFd for Passwords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn hasher() -> Argon2<'static> {
    // The parameters that OWASP gives as the least for argon2id, and the crate's own: 19 MiB, 2 passes, 1 lane.
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

fn salt() -> std::io::Result<SaltString> {
    let mut bytes = [0u8; 16];
    fill_random(&mut bytes)?;
    SaltString::encode_b64(&bytes).map_err(|_| std::io::ErrorKind::InvalidData.into())
}

/// Random bytes from the kernel.
pub fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// The hash of a password that nobody knows: what an unknown user's password is compared with.
fn dummy() -> std::io::Result<String> {
    let mut password = Zeroizing::new([0u8; 32]);
    fill_random(&mut *password)?;
    hash(&*password).map(|hash| hash.to_string())
}

fn hash(password: &[u8]) -> std::io::Result<Zeroizing<String>> {
    let salt = salt()?;
    hasher()
        .hash_password(password, &salt)
        .map(|hash| Zeroizing::new(hash.to_string()))
        .map_err(|e| std::io::Error::other(e.to_string()))
}

fn work(
    queue: &Mutex<Receiver<(ClientId, UserName, Job)>>,
    report: &Sender<Done>,
    wake: &OwnedFd,
    directory: BorrowedFd<'_>,
    dummy: &str,
) {
    loop {
        // Only the wait is under the lock, never a hash.
        let job = match queue.lock() {
            Ok(queue) => queue.recv(),
            Err(_) => return,
        };
        let Ok((client, user, job)) = job else { return };
        let stored = read(directory, &user);
        let (password, new) = match &job {
            Job::Verify(password) => (password, None),
            Job::Change(old, new) => (old, Some(new)),
        };
        let mut verified = verify(stored, password.expose(), dummy);
        let mut made = None;
        if verified == Verified::Right
            && let Some(new) = new
        {
            match hash(new.expose()) {
                Ok(hash) => made = Some(hash),
                Err(_) => verified = Verified::Unavailable,
            }
        }
        if report.send(Done { client, verified, hash: made }).is_err() {
            return;
        }
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}

/// The user's hash; `None` if there is no such user.
fn read(directory: BorrowedFd<'_>, user: &UserName) -> std::io::Result<Option<Zeroizing<String>>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match openat(directory, user.as_str(), flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE as usize + 1));
    file.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// What is hashed for a sign-on: the user's own hash, or the dummy's with the same parameters, so that an
/// unknown user costs the same as a known one.
fn chosen<'a>(stored: Option<&'a str>, dummy: &'a str) -> Option<(PasswordHash<'a>, bool)> {
    match stored {
        Some(text) => PasswordHash::new(text.trim_end()).ok().map(|hash| (hash, true)),
        None => PasswordHash::new(dummy).ok().map(|hash| (hash, false)),
    }
}

fn verify(stored: std::io::Result<Option<Zeroizing<String>>>, password: &[u8], dummy: &str) -> Verified {
    let Ok(stored) = stored else { return Verified::Unavailable };
    let Some((hash, known)) = chosen(stored.as_ref().map(|text| text.as_str()), dummy) else {
        return Verified::Unavailable;
    };
    let matches = hasher().verify_password(password, &hash).is_ok();
    // Both are always worked out: `&` and not `&&`.
    if matches & known { Verified::Right } else { Verified::Wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_costs_the_same_hash_as_a_known_one() {
        let dummy = dummy().unwrap();
        let known = hash(b"correct horse").unwrap();
        let (of_known, is_known) = chosen(Some(&known), &dummy).unwrap();
        let (of_unknown, is_unknown) = chosen(None, &dummy).unwrap();
        assert!(is_known && !is_unknown);
        // The work is one argon2 call whose cost follows from these alone.
        assert_eq!(of_known.algorithm, of_unknown.algorithm);
        assert_eq!(of_known.version, of_unknown.version);
        assert_eq!(Params::try_from(&of_known).unwrap(), Params::try_from(&of_unknown).unwrap());
        assert_eq!(of_known.hash.unwrap().len(), of_unknown.hash.unwrap().len());
        assert_eq!(of_known.salt.unwrap().len(), of_unknown.salt.unwrap().len());
    }

    #[test]
    fn only_the_right_password_of_a_known_user_is_right() {
        let dummy = dummy().unwrap();
        let stored = || Ok(Some(hash(b"correct horse").unwrap()));
        assert_eq!(verify(stored(), b"correct horse", &dummy), Verified::Right);
        assert_eq!(verify(stored(), b"correct hors", &dummy), Verified::Wrong);
        assert_eq!(verify(Ok(None), b"correct horse", &dummy), Verified::Wrong);
        let broken = Ok(Some(Zeroizing::new("not a hash".to_owned())));
        assert_eq!(verify(broken, b"correct horse", &dummy), Verified::Unavailable);
        let error = Err(std::io::ErrorKind::Other.into());
        assert_eq!(verify(error, b"correct horse", &dummy), Verified::Unavailable);
        // A password of the dummy is nobody's either, whatever it is.
        let secret = hash(b"known").unwrap();
        assert_eq!(verify(Ok(None), b"known", &secret), Verified::Wrong);
    }

    #[test]
    fn a_stored_hash_replaces_the_file_and_leaves_no_other() {
        let place = tempfile::tempdir().unwrap();
        let open = || File::open(place.path()).unwrap().into();
        let passwords = Passwords::start(open(), Passwords::bell().unwrap()).unwrap();
        let ann = UserName::new("ann").unwrap();
        for text in ["first", "second"] {
            passwords.store(&ann, text).unwrap();
            assert_eq!(std::fs::read_to_string(place.path().join("ann")).unwrap(), format!("{text}\n"));
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn jobs_are_done_on_threads_and_reported() {
        let place = tempfile::tempdir().unwrap();
        let open = || File::open(place.path()).unwrap().into();
        let passwords = Passwords::start(open(), Passwords::bell().unwrap()).unwrap();
        let ann = UserName::new("ann").unwrap();
        passwords.store(&ann, &hash(b"old password").unwrap()).unwrap();
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec()).unwrap();
        let run = |job| {
            assert!(passwords.submit(ClientId(1), ann.clone(), job));
            loop {
                if let Some(done) = passwords.finished().pop() {
                    return done;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        let done = run(Job::Change(secret("old password"), secret("new password")));
        assert_eq!(done.verified, Verified::Right);
        passwords.store(&ann, &done.hash.unwrap()).unwrap();
        assert_eq!(run(Job::Verify(secret("old password"))).verified, Verified::Wrong);
        assert_eq!(run(Job::Verify(secret("new password"))).verified, Verified::Right);
        let wrong = run(Job::Change(secret("old password"), secret("third password")));
        assert!(wrong.verified == Verified::Wrong && wrong.hash.is_none());
    }
}

//! Credentials: one file for each user, and threads that check passwords so that nobody waits for a hash.
//!
//! `credentials/USER` has one line, an argon2id hash as a PHC string; `levee user add` writes the same.

use crate::codes;
use crate::known::{Digest, digest_of};
use argon2::password_hash::{Output, ParamsString, PasswordHash, Salt, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use levee_ipc::Secret;
use levee_policy::UserName;
use levee_session::{ClientId, Verified};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use zeroize::{Zeroize as _, Zeroizing};

/// So many passwords are looked at at once; each takes about 19 MiB and some tens of milliseconds.
const THREADS: usize = 2;
/// The least bytes a new password has.
pub const MIN_PASSWORD: usize = 8;
const MAX_FILE: u64 = 1024;

/// Something to be done with passwords.
pub enum Job {
    /// Is this the user's? And of which step of time is the code, if one came with it?
    Verify(Secret, Option<Secret>),
    /// Is the first the user's? Then make a hash of the second.
    Change(Secret, Secret),
}

/// What came of a job.
pub struct Done {
    /// Whose request it was.
    pub client: ClientId,
    /// Whose password was looked at.
    pub user: UserName,
    /// Whether the password is the user's.
    pub verified: Verified,
    /// The new password's hash, where one was to be made and the present password is right.
    pub hash: Option<Zeroizing<String>>,
    /// The files that it was looked up in; `None` if they could not be read.
    pub of: Option<Seen>,
}

/// Which credentials a person had at a moment: digests of the file with their password and of the one with their seed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seen([Option<Digest>; 2]);

impl Seen {
    fn read([directory, factors]: [BorrowedFd<'_>; 2], user: &UserName) -> std::io::Result<Self> {
        let digest = |place| std::io::Result::Ok(read(place, user)?.map(|text| digest_of(text.as_bytes())));
        Ok(Self([digest(directory)?, digest(factors)?]))
    }
}

/// Threads that look at passwords. They end with the process.
pub struct Passwords {
    directory: Arc<OwnedFd>,
    factors: Arc<OwnedFd>,
    jobs: Sender<(ClientId, UserName, Job)>,
    done: Receiver<Done>,
    wake: Arc<OwnedFd>,
}

impl Passwords {
    /// What wakes the loop when a job is done; made outside the sandbox, which makes no descriptors of this kind.
    pub fn bell() -> std::io::Result<OwnedFd> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
    }

    /// Starts the threads; `directory` is where the credential files are, `factors` where the seeds of codes are. Call it inside the sandbox, which
    /// threads inherit.
    pub fn start(directory: OwnedFd, factors: OwnedFd, bell: OwnedFd) -> std::io::Result<Self> {
        let (directory, factors) = (Arc::new(directory), Arc::new(factors));
        let wake = Arc::new(bell);
        let (jobs, queue) = channel();
        let (report, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let dummy: Arc<str> = Hasher::default().dummy()?.into();
        for _ in 0..THREADS {
            let (queue, report, wake) = (Arc::clone(&queue), report.clone(), Arc::clone(&wake));
            let (directory, factors) = (Arc::clone(&directory), Arc::clone(&factors));
            let dummy = Arc::clone(&dummy);
            // Without a name: the sandbox has no prctl.
            std::thread::Builder::new()
                .spawn(move || work(&queue, &report, &wake, [directory.as_fd(), factors.as_fd()], &dummy))?;
        }
        Ok(Self { directory, factors, jobs, done, wake })
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

    /// What the user's files are now.
    pub fn seen(&self, user: &UserName) -> std::io::Result<Seen> {
        Seen::read([self.directory.as_fd(), self.factors.as_fd()], user)
    }

    /// The digest of the user's file, as it is now; `None` if there is none.
    pub fn digest(&self, user: &UserName) -> std::io::Result<Option<Digest>> {
        Ok(read(self.directory.as_fd(), user)?.map(|text| digest_of(text.as_bytes())))
    }

    /// The digest of the file with the user's seed, as it is now; `None` if there is none.
    pub fn factor_digest(&self, user: &UserName) -> std::io::Result<Option<Digest>> {
        Ok(read(self.factors.as_fd(), user)?.map(|text| digest_of(text.as_bytes())))
    }

    /// Everybody who has a file of either kind.
    pub fn people(&self) -> std::io::Result<Vec<UserName>> {
        let mut people = Vec::new();
        for directory in [&self.directory, &self.factors] {
            for entry in Dir::read_from(directory)? {
                people.extend(entry?.file_name().to_str().ok().and_then(|name| UserName::new(name).ok()));
            }
        }
        Ok(people)
    }

    /// Puts a new hash in the user's file, in the place of what was looked at: it is there whole, or not at all. Gives what the file has then.
    ///
    /// # Errors
    /// Somebody else has changed the user's credentials since, or is doing so (`levee user`): theirs stay. Else the disk's.
    pub fn store(&self, user: &UserName, hash: &str, of: Seen) -> std::io::Result<Zeroizing<String>> {
        let directory = self.directory.as_fd();
        flock(directory, FlockOperation::NonBlockingLockExclusive)?;
        let stored = match self.seen(user) {
            Ok(now) if now == of => self.replace(user, hash),
            Ok(_) => Err(std::io::Error::other("it was changed since the present password was looked at")),
            Err(error) => Err(error),
        };
        // There is nothing else to be done about it.
        let _ = flock(directory, FlockOperation::Unlock);
        stored
    }

    fn replace(&self, user: &UserName, hash: &str) -> std::io::Result<Zeroizing<String>> {
        // No user's name begins with a dot, so this is nobody's file.
        const NEW: &str = ".new";
        let directory = self.directory.as_fd();
        let _ = unlinkat(directory, NEW, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = File::from(openat(directory, NEW, flags, Mode::RUSR | Mode::WUSR)?);
        let text = Zeroizing::new(format!("{hash}\n"));
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        renameat(directory, NEW, directory, user.as_str())?;
        rustix::fs::fsync(directory)?;
        Ok(text)
    }
}

impl AsFd for Passwords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
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

/// The memory that hashing works in, kept from one hash to the next: an allocator that is asked for 19 MiB anew each
/// time keeps more and more of it.
#[derive(Default)]
struct Hasher(Vec<Block>);

/// What a new hash is made with: the parameters that OWASP gives as the least for argon2id, and the crate's own
/// (19 MiB, 2 passes, 1 lane).
const PARAMS: Params = Params::DEFAULT;
/// KiB that a hash in a credential file may ask for.
const MOST_MEMORY: u32 = 1 << 18;

impl Hasher {
    /// The argon2id output of `length` bytes; nothing of the password is left in the memory it worked in.
    fn output(&mut self, params: Params, password: &[u8], salt: Salt<'_>, length: usize) -> Option<Output> {
        if params.m_cost() > MOST_MEMORY {
            return None;
        }
        let mut bytes = [0u8; Salt::MAX_LENGTH];
        let salt = salt.decode_b64(&mut bytes).ok()?;
        self.0.resize(params.block_count().max(self.0.len()), Block::new());
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let output = Output::init_with(length, |out| {
            Ok(argon.hash_password_into_with_memory(password, salt, out, &mut self.0)?)
        });
        self.0.iter_mut().for_each(|block| block.zeroize());
        output.ok()
    }

    /// Whether `password` is the one that `hash` was made of, in constant time; `None` if it is no argon2id hash.
    fn matches(&mut self, password: &[u8], hash: &PasswordHash<'_>) -> Option<bool> {
        let ours =
            hash.algorithm == Algorithm::Argon2id.ident() && hash.version == Some(Version::V0x13.into());
        let (Some(salt), Some(expected), true) = (hash.salt, hash.hash, ours) else { return None };
        let output = self.output(Params::try_from(hash).ok()?, password, salt, expected.len())?;
        Some(output == expected)
    }

    fn hash(&mut self, password: &[u8]) -> std::io::Result<Zeroizing<String>> {
        let other = || std::io::Error::other("the password cannot be hashed");
        let salt = salt()?;
        let length = Params::DEFAULT_OUTPUT_LEN;
        let output = self.output(PARAMS, password, salt.as_salt(), length).ok_or_else(other)?;
        let hash = PasswordHash {
            algorithm: Algorithm::Argon2id.ident(),
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(&PARAMS).map_err(|_| other())?,
            salt: Some(salt.as_salt()),
            hash: Some(output),
        };
        Ok(Zeroizing::new(hash.to_string()))
    }

    /// The hash of a password that nobody knows: what an unknown user's password is compared with.
    fn dummy(&mut self) -> std::io::Result<String> {
        let mut password = Zeroizing::new([0u8; 32]);
        fill_random(&mut *password)?;
        self.hash(&*password).map(|hash| hash.to_string())
    }

    /// What became of a sign-on with `password`, whose user's file is `stored`.
    fn verify(
        &mut self,
        stored: std::io::Result<Option<Zeroizing<String>>>,
        password: &[u8],
        dummy: &str,
    ) -> Verified {
        let Ok(stored) = stored else { return Verified::Unavailable };
        let chosen = chosen(stored.as_ref().map(|text| text.as_str()), dummy);
        let checked = chosen.and_then(|(hash, known)| Some((self.matches(password, &hash)?, known)));
        // Both are always worked out: `&` and not `&&`.
        checked.map_or(Verified::Unavailable, |(matches, known)| {
            if matches & known { Verified::Right(None) } else { Verified::Wrong }
        })
    }
}

fn work(
    queue: &Mutex<Receiver<(ClientId, UserName, Job)>>,
    report: &Sender<Done>,
    wake: &OwnedFd,
    [directory, factors]: [BorrowedFd<'_>; 2],
    dummy: &str,
) {
    let mut hasher = Hasher::default();
    loop {
        // Only the wait is under the lock, never a hash.
        let job = match queue.lock() {
            Ok(queue) => queue.recv(),
            Err(_) => return,
        };
        let Ok((client, user, job)) = job else { return };
        // Before they are read: what changes from now on is not what it was looked up in.
        let of = Seen::read([directory, factors], &user).ok();
        let stored = read(directory, &user);
        let (password, code, new) = match &job {
            Job::Verify(password, code) => (password, code.as_ref(), None),
            Job::Change(old, new) => (old, None, Some(new)),
        };
        let mut verified = hasher.verify(stored, password.expose(), dummy);
        if let Some(code) = code {
            verified = with_code(verified, step(factors, &user, code.expose()));
        }
        let mut made = None;
        if matches!(verified, Verified::Right(_))
            && let Some(new) = new
        {
            match hasher.hash(new.expose()) {
                Ok(hash) => made = Some(hash),
                Err(_) => verified = Verified::Unavailable,
            }
        }
        if report.send(Done { client, user, verified, hash: made, of }).is_err() {
            return;
        }
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}

/// The step of time whose code this is. Where there is no seed it is looked for all the same, with one that is nobody's: it takes
/// as long.
fn step(factors: BorrowedFd<'_>, user: &UserName, typed: &[u8]) -> std::io::Result<Option<u64>> {
    const NOBODYS: [u8; 20] = [0; 20];
    let text = read(factors, user)?;
    let seed = match &text {
        Some(text) => Some(codes::seed(text).ok_or(std::io::ErrorKind::InvalidData)?),
        None => None,
    };
    let step = codes::step(seed.as_ref().map_or(&NOBODYS[..], |seed| seed), typed, codes::now());
    Ok(step.filter(|_| seed.is_some()))
}

/// Whether a password is right is said with the step of its code alone, and with neither where one could not be looked at.
fn with_code(verified: Verified, step: std::io::Result<Option<u64>>) -> Verified {
    match (verified, step) {
        (_, Err(_)) => Verified::Unavailable,
        (Verified::Right(_), Ok(step)) => Verified::Right(step),
        (verified, Ok(_)) => verified,
    }
}

/// The user's file; `None` if there is none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_costs_the_same_hash_as_a_known_one() {
        let mut hasher = Hasher::default();
        let dummy = hasher.dummy().unwrap();
        let known = hasher.hash(b"correct horse").unwrap();
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
        let mut hasher = Hasher::default();
        let dummy = hasher.dummy().unwrap();
        let known = hasher.hash(b"correct horse").unwrap();
        let stored = || Ok(Some(known.clone()));
        let mut verify = |stored, password: &[u8], dummy: &str| hasher.verify(stored, password, dummy);
        assert_eq!(verify(stored(), b"correct horse", &dummy), Verified::Right(None));
        assert_eq!(verify(stored(), b"correct hors", &dummy), Verified::Wrong);
        assert_eq!(verify(Ok(None), b"correct horse", &dummy), Verified::Wrong);
        let broken = Ok(Some(Zeroizing::new("not a hash".to_owned())));
        assert_eq!(verify(broken, b"correct horse", &dummy), Verified::Unavailable);
        let error = Err(std::io::ErrorKind::Other.into());
        assert_eq!(verify(error, b"correct horse", &dummy), Verified::Unavailable);
        // A password of the dummy is nobody's either, whatever it is.
        let secret = Hasher::default().hash(b"known").unwrap();
        assert_eq!(verify(Ok(None), b"known", &secret), Verified::Wrong);
    }

    #[test]
    fn a_hash_that_another_program_made_is_understood_and_nothing_of_a_password_stays_in_memory() {
        use argon2::password_hash::PasswordHasher as _;
        let salt = SaltString::encode_b64(b"sixteen bytes of").unwrap();
        let theirs = Argon2::default().hash_password(b"correct horse", &salt).unwrap().to_string();
        let mut hasher = Hasher::default();
        let stored = || Ok(Some(Zeroizing::new(theirs.clone())));
        assert_eq!(hasher.verify(stored(), b"correct horse", &theirs), Verified::Right(None));
        assert!(hasher.0.iter().all(|block| block.as_ref().iter().all(|word| *word == 0)));
        // One that would need more memory than there is, or is of another kind, is nobody's.
        for (from, to) in [("m=19456", "m=4000000"), ("argon2id", "argon2i"), ("v=19", "v=16")] {
            let other = Ok(Some(Zeroizing::new(theirs.replace(from, to))));
            assert_eq!(hasher.verify(other, b"correct horse", &theirs), Verified::Unavailable, "{to}");
        }
    }

    #[test]
    fn a_stored_hash_replaces_the_file_and_leaves_no_other() {
        let place = tempfile::tempdir().unwrap();
        let open = || File::open(place.path()).unwrap().into();
        let passwords = Passwords::start(open(), open(), Passwords::bell().unwrap()).unwrap();
        let ann = UserName::new("ann").unwrap();
        for text in ["first", "second"] {
            passwords.store(&ann, text, passwords.seen(&ann).unwrap()).unwrap();
            assert_eq!(std::fs::read_to_string(place.path().join("ann")).unwrap(), format!("{text}\n"));
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_an_operator_has_put_there_meanwhile_stays() {
        let place = tempfile::tempdir().unwrap();
        let open = || File::open(place.path()).unwrap().into();
        let passwords = Passwords::start(open(), open(), Passwords::bell().unwrap()).unwrap();
        let ann = UserName::new("ann").unwrap();
        let file = place.path().join("ann");
        std::fs::write(&file, "the first").unwrap();
        let of = passwords.seen(&ann).unwrap();
        std::fs::write(&file, "the operator's").unwrap();
        assert!(passwords.store(&ann, "ann's own", of).is_err());
        let of = passwords.seen(&ann).unwrap();
        // Nor where an operator is about to.
        let lock = levee_sys::lock::Lock::at(place.path()).unwrap();
        assert!(passwords.store(&ann, "ann's own", of).is_err());
        drop(lock);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "the operator's");
        std::fs::remove_file(&file).unwrap();
        assert!(passwords.store(&ann, "ann's own", of).is_err(), "nor in the place of none");
        std::fs::write(&file, "the operator's").unwrap();
        passwords.store(&ann, "ann's own", of).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "ann's own\n");
        assert!(levee_sys::lock::Lock::try_at(place.path()).unwrap().is_some(), "and an operator may go on");
    }

    #[test]
    fn jobs_are_done_on_threads_and_reported() {
        let place = tempfile::tempdir().unwrap();
        let open = || File::open(place.path()).unwrap().into();
        let passwords = Passwords::start(open(), open(), Passwords::bell().unwrap()).unwrap();
        let ann = UserName::new("ann").unwrap();
        let none = passwords.seen(&ann).unwrap();
        passwords.store(&ann, &Hasher::default().hash(b"old password").unwrap(), none).unwrap();
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec()).unwrap();
        assert!(passwords.finished().is_empty(), "nothing is waited for");
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
        assert_eq!(done.verified, Verified::Right(None));
        passwords.store(&ann, &done.hash.unwrap(), done.of.unwrap()).unwrap();
        assert_eq!(run(Job::Verify(secret("old password"), None)).verified, Verified::Wrong);
        assert_eq!(run(Job::Verify(secret("new password"), None)).verified, Verified::Right(None));
        let wrong = run(Job::Change(secret("old password"), secret("third password")));
        assert!(wrong.verified == Verified::Wrong && wrong.hash.is_none());
    }
    #[test]
    fn random_octets_are_others_each_time_and_all_of_them() {
        let fill = |length| {
            let mut octets = vec![0; length];
            fill_random(&mut octets).unwrap();
            octets
        };
        // More than the kernel gives at once, and a last octet that is not 0 in all of 20.
        assert_ne!(fill(32), fill(32));
        assert!((0..20).any(|_| *fill(1_000).last().unwrap() != 0));
        fill_random(&mut []).unwrap();
        assert_ne!(salt().unwrap().as_str(), salt().unwrap().as_str());
    }

    #[test]
    fn a_credential_file_is_its_owners_alone_and_a_link_or_a_pipe_is_none() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let (place, codes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = |of: &tempfile::TempDir| File::open(of.path()).unwrap().into();
        let passwords = Passwords::start(open(&place), open(&codes), Passwords::bell().unwrap()).unwrap();
        let [ann, bob, eve] = ["ann", "bob", "eve"].map(|name| UserName::new(name).unwrap());
        let kept = passwords.store(&ann, "a hash", passwords.seen(&ann).unwrap()).unwrap();
        let mode = std::fs::metadata(place.path().join("ann")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(passwords.digest(&ann).unwrap(), Some(digest_of(kept.as_bytes())));
        std::fs::write(codes.path().join("bob"), "a seed").unwrap();
        assert_eq!(passwords.factor_digest(&bob).unwrap(), Some(digest_of(b"a seed")));
        assert_eq!((passwords.digest(&bob).unwrap(), passwords.factor_digest(&ann).unwrap()), (None, None));
        let mut people = passwords.people().unwrap();
        people.sort();
        assert_eq!(people, [ann, bob]);
        // Somebody else's file under another name, and what would keep whoever reads it waiting.
        symlink(place.path().join("ann"), place.path().join("eve")).unwrap();
        assert!(passwords.digest(&eve).is_err());
        std::fs::remove_file(place.path().join("eve")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(File::open(place.path()).unwrap(), "eve", rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        assert_eq!(passwords.digest(&eve).unwrap(), Some(digest_of(b"")), "it is not waited for");
    }

    #[test]
    fn a_code_is_a_users_by_their_own_seed_alone() {
        let codes = tempfile::tempdir().unwrap();
        let directory = File::open(codes.path()).unwrap();
        let [ann, bob, eve] = ["ann", "bob", "eve"].map(|name| UserName::new(name).unwrap());
        std::fs::write(codes.path().join("ann"), "totp GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\n").unwrap();
        std::fs::write(codes.path().join("bob"), "no seed\n").unwrap();
        let good = codes::good(b"12345678901234567890", codes::now());
        let is_good =
            |user: &UserName| step(directory.as_fd(), user, good.as_bytes()).map(|step| step.is_some());
        assert!(is_good(&ann).unwrap());
        assert!(is_good(&bob).is_err(), "what cannot be read is no seed");
        assert!(!is_good(&eve).unwrap(), "who has none");
        assert!(step(directory.as_fd(), &ann, b"no code").unwrap().is_none());
    }
}

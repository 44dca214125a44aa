//! To which login of this host a person's command belongs, and whether that login is there still.
//!
//! Linux numbers logins for its audit: whoever signs on at the host passes a number on to all that they start (`/proc/PID/sessionid`; PAM's
//! pam_loginuid has it given), and nobody without CAP_AUDIT_CONTROL can have another's. Two logins of one account are two by it. Where
//! nobody has a number, or the kernel gives none, the account is all that counts.

use super::words::Login;
use levee_sys::pidfd;
use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::process::Pid;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What a process has that belongs to no login.
const NONE: u32 = u32::MAX;

/// The processes of this host, opened once, so that they can be looked at from inside a sandbox.
pub struct Logins {
    processes: OwnedFd,
    /// Whether the kernel numbers logins.
    numbered: bool,
    watched: Option<Watched>,
}

struct Watched {
    login: Login,
    /// A process of it, readable when it has ended; `None`: none was found when it was looked for last.
    one: Option<OwnedFd>,
}

impl Logins {
    /// Opens what is needed.
    ///
    /// # Errors
    /// If `/proc` is not there.
    pub fn new() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = rustix::fs::open("/proc", flags, Mode::empty())?;
        let numbered = std::path::Path::new("/proc/self/sessionid").exists();
        Ok(Self { processes, numbered, watched: None })
    }

    /// What of the host's files this looks at.
    pub fn files(&self) -> BorrowedFd<'_> {
        self.processes.as_fd()
    }

    /// The login of the process that has made this connection, which has this number; `None` where it belongs to none.
    ///
    /// # Errors
    /// It cannot be seen, or has ended: its number may be somebody else's by now.
    pub fn of(&self, connection: &OwnedFd, pid: Pid) -> Result<Option<Login>, &'static str> {
        const GONE: &str = "whoever connected has gone";
        const HIDDEN: &str =
            "which login of this host you are in cannot be seen: is /proc mounted with `hidepid`?";
        if !self.numbered {
            return Ok(None);
        }
        // (A kernel before 6.5 tells the number alone: what had it when it connected may have ended before this.)
        let process = match pidfd::of_peer(connection) {
            Ok(Some(process)) => Ok(process),
            Ok(None) => pidfd::open(pid),
            Err(why) => Err(why),
        };
        let process = process.map_err(|_| GONE)?;
        let number = self.number(pid);
        // It was this one's that was read, and of nobody after it.
        match (pidfd::ended(&process, Duration::ZERO), number) {
            (Ok(false), Ok(login)) => Ok(login),
            (Ok(false), Err(_)) => Err(HIDDEN),
            _ => Err(GONE),
        }
    }

    /// Watches over this login from now on, in the place of the one before.
    pub fn watch(&mut self, login: Option<Login>) {
        self.watched = login.map(|login| Watched { login, one: self.find(login) });
    }

    /// What is readable when there is something to see to.
    pub fn awaited(&self) -> Option<&OwnedFd> {
        self.watched.as_ref()?.one.as_ref()
    }

    /// Whether a login is watched of which no process was found: it is looked for once more.
    pub fn is_in_doubt(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.one.is_none())
    }

    /// Sees to the login that is watched: gives it back when it is over, which is when no process of it is left.
    pub fn over(&mut self) -> Option<Login> {
        let Watched { login, one } = self.watched.as_ref()?;
        let login = *login;
        let lives = |one: &OwnedFd| matches!(pidfd::ended(one, Duration::ZERO), Ok(false));
        if one.as_ref().is_some_and(lives) {
            return None;
        }
        // A process may come to be while others are looked at, with a number that was passed over: so twice.
        let again = one.is_none();
        let found = self.find(login);
        if found.is_none() && again {
            self.watched = None;
            return Some(login);
        }
        self.watched = Some(Watched { login, one: found });
        None
    }

    /// A process of this login that runs.
    fn find(&self, login: Login) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let all = openat(&self.processes, ".", flags, Mode::empty()).ok()?;
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut names = RawDir::new(all, &mut buffer);
        while let Some(Ok(entry)) = names.next() {
            let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
            let Some(pid) = number.and_then(Pid::from_raw) else { continue };
            let is_its = || self.number(pid).is_ok_and(|of| of == Some(login));
            if is_its()
                && let Ok(one) = pidfd::open(pid)
                && is_its()
                && matches!(pidfd::ended(&one, Duration::ZERO), Ok(false))
            {
                return Some(one);
            }
        }
        None
    }

    fn number(&self, pid: Pid) -> io::Result<Option<Login>> {
        let path = format!("{}/sessionid", pid.as_raw_nonzero());
        let file = openat(&self.processes, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = [0; 16];
        let read = rustix::io::read(&file, &mut text)?;
        let number = text.get(..read).and_then(|text| std::str::from_utf8(text).ok());
        let number: u32 =
            number.and_then(|text| text.trim().parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok((number != NONE).then_some(Login(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};

    /// A shell in a login of its own, that waits for a line.
    fn login() -> Child {
        // (Whoever belongs to no login yet may begin one; root may in any case.)
        let script = "echo 65533 >/proc/self/loginuid && cat /proc/self/sessionid && echo && read line";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        shell.spawn().unwrap()
    }

    fn number(shell: &mut Child) -> Login {
        let mut line = String::new();
        let mut said = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        Login(
            line.trim().parse().expect("this test needs a kernel with audit, and root where it has a login"),
        )
    }

    fn pid(shell: &Child) -> Pid {
        Pid::from_child(shell)
    }

    #[test]
    fn each_login_of_an_account_is_another_and_is_over_with_its_last_process() {
        let mut logins = Logins::new().unwrap();
        let (mut one, mut other) = (login(), login());
        let (first, second) = (number(&mut one), number(&mut other));
        assert_ne!(first, second);
        assert_eq!(logins.number(pid(&one)).unwrap(), Some(first));
        assert_eq!(logins.number(pid(&other)).unwrap(), Some(second));
        logins.watch(Some(first));
        assert!(logins.awaited().is_some() && logins.over().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(logins.over().is_none(), "the other's end is nothing to it");
        one.kill().unwrap();
        one.wait().unwrap();
        assert_eq!(logins.over(), None);
        assert!(logins.is_in_doubt());
        assert_eq!(logins.over(), Some(first));
        assert!(!logins.is_in_doubt() && logins.over().is_none(), "it is told once");
        logins.watch(Some(second));
        assert_eq!(logins.over(), Some(second), "one that is over already, too");
    }

    #[test]
    fn who_has_ended_is_in_no_login() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let logins = Logins::new().unwrap();
        // Both ends are of this process: so the kernel says.
        let own = logins.number(rustix::process::getpid()).unwrap();
        assert_eq!(logins.of(&OwnedFd::from(ours), rustix::process::getpid()), Ok(own));
        drop(theirs);
        let mut shell = login();
        number(&mut shell);
        shell.kill().unwrap();
        // As a kernel before 6.5 has it: by its number.
        let ended = pid(&shell);
        let process = pidfd::open(ended).unwrap();
        assert!(pidfd::ended(&process, Duration::from_secs(5)).unwrap());
        assert!(logins.find(Login(NONE - 1)).is_none());
        shell.wait().unwrap();
        assert!(logins.number(ended).is_err());
    }
}

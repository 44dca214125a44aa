//! Two kinds of process between a person's command and the agent, since to close a descriptor can take as long as its maker likes (a TCP
//! connection with SO_LINGER, a file of a file system that its owner's program serves), and so can to look at one. Whoever may connect
//! can send any descriptor, and the last one to have it closes it, even unread.
//!
//! The *acceptor* takes connections and looks into none; whose each is, it asks the kernel ([`super::logins`]). For each it forks a *connection process*, which alone hears the person, and gives
//! the agent a channel to it. What comes over that channel is of few kinds: messages of their types, pseudo-terminals, and files that the
//! connection process made itself. One that stands still is killed; one that cannot be killed stands still alone, and counts against the
//! account whose it is.

use super::carry;
use super::logins::Logins;
use super::seat::{self, Seat};
use super::words::{Account, FromAcceptor, FromConnection, ToConnection, Watch};
use levee_ipc::client::RefusalKind;
use levee_ipc::tpe::{Answer, Command, Input, Output};
use levee_ipc::{Channel, Received, RecvError};
use levee_sys::fork::Forker;
use levee_sys::sandbox::{Access, Sandbox};
use levee_sys::seccomp::Filter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The system calls that the acceptor may make, and a connection process before it confines itself.
const FILTER: &str = include_str!("../../../conf/seccomp/acceptor.toml");
/// The system calls that a connection process may make.
const CONNECTIONS_FILTER: &str = include_str!("../../../conf/seccomp/connection.toml");

/// More connections than this wait in the listener's queue.
const MAX: usize = 64;
/// A connection process ends within this time once the agent has closed its channel.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time is looked at this often while one is late.
const TICK: Duration = Duration::from_millis(100);

/// Forks the acceptor. To be called before the process has anything that is secret.
///
/// # Errors
/// The kernel's.
pub fn start(listener: OwnedFd, seat: Option<Seat>) -> io::Result<Channel> {
    rustix::io::ioctl_fionbio(&listener, true)?;
    let (ours, theirs) = Channel::pair()?;
    Forker::new()?.fork(vec![listener, theirs.into_fd()], move |kept| {
        let Ok([listener, agent]) = <[OwnedFd; 2]>::try_from(kept) else { return 1 };
        match prepare(seat) {
            Ok(acceptor) => {
                acceptor.accept_all(&listener, &Channel::from_fd(agent));
                0
            }
            Err(why) => {
                levee_ipc::say!("levee-tpe: the acceptor of connections: {why}");
                2
            }
        }
    })?;
    Ok(ours)
}

/// What the acceptor has.
struct Acceptor {
    forker: Forker,
    /// A connection process's.
    filter: Filter,
    logins: Logins,
    /// Who sits there alone is heard.
    seat: Option<seat::Watched>,
    running: Vec<Running>,
}

fn prepare(seat: Option<Seat>) -> levee_sys::Result<Acceptor> {
    let look = |why| levee_sys::Error::new("look at /proc", why);
    let (forker, logins) = (Forker::new().map_err(look)?, Logins::new().map_err(look)?);
    let filter = Filter::compile(CONNECTIONS_FILTER)?;
    let seats = seat.as_ref().map(Seat::open).transpose();
    let seats =
        seats.map_err(|why| levee_sys::Error::new("look at the host's seats (systemd-logind)", why))?;
    let mut files = vec![(logins.files(), Access::Read)];
    files.extend(seats.iter().map(|seats| (seats.as_fd(), Access::Read)));
    Sandbox { files: &files, ..Sandbox::new(FILTER) }.enter()?;
    let seat = seat.zip(seats).map(|(seat, files)| seat.with(files));
    Ok(Acceptor { forker, filter, logins, seat, running: Vec::new() })
}

/// A connection process that has not been reaped.
struct Running {
    pid: Pid,
    /// Readable when it has ended.
    pidfd: OwnedFd,
    uid: u32,
    /// Its end of the channel to the agent: says when the agent has closed its own. Nothing is read here.
    end: OwnedFd,
    /// Since when the agent has.
    over: Option<Instant>,
}

impl Acceptor {
    fn accept_all(mut self, listener: &OwnedFd, agent: &Channel) {
        while self.waits(listener, agent) {
            // Its end: the agent is gone, and takes this process with it.
            if !self.hear(agent) {
                return;
            }
            if let Some(login) = self.logins.over() {
                // As below.
                let _ = agent.send(&FromAcceptor::Over(login));
            }
            self.running.retain_mut(see_to);
            while self.running.len() < MAX {
                match accept_with(listener, SocketFlags::CLOEXEC) {
                    Ok(person) => match self.begin(person, agent) {
                        Ok(one) => self.running.push(one),
                        // Whoever came has lost the connection, not we.
                        Err(why) => levee_ipc::say!("levee-tpe: a connection is not served: {why}"),
                    },
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Waits until there is something to do; whether that works.
    fn waits(&self, listener: &OwnedFd, agent: &Channel) -> bool {
        let mut fds = vec![PollFd::new(agent, PollFlags::IN)];
        if self.running.len() < MAX {
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        fds.extend(self.logins.awaited().map(|one| PollFd::new(one, PollFlags::IN)));
        for one in &self.running {
            fds.push(PollFd::new(&one.pidfd, PollFlags::IN));
            if one.over.is_none() {
                fds.push(PollFd::new(&one.end, PollFlags::empty()));
            }
        }
        let late = self.logins.is_in_doubt() || self.running.iter().any(|one| one.over.is_some());
        let limit = late.then(|| Timespec::try_from(TICK).ok()).flatten();
        matches!(poll(&mut fds, limit.as_ref()), Ok(_) | Err(Errno::INTR))
    }

    /// Takes what the agent says; whether it is there.
    fn hear(&mut self, agent: &Channel) -> bool {
        loop {
            match agent.try_recv::<Watch>() {
                Ok(Received { message: Watch(login), .. }) => self.logins.watch(login),
                Err(RecvError::Empty) => return true,
                Err(_) => return false,
            }
        }
    }

    fn begin(&self, person: OwnedFd, agent: &Channel) -> io::Result<Running> {
        let peer = sockopt::socket_peercred(&person)?;
        let uid = peer.uid.as_raw();
        let came = self.came(&person, peer.pid, uid);
        let (ours, theirs) = Channel::pair()?;
        let end = theirs.as_fd().try_clone_to_owned()?;
        let filter = self.filter.clone();
        // The connection's last descriptor is the child's: it hears nobody, and so does not end, before it is told to, which is after this
        // process has closed its own.
        let pid = self.forker.fork(vec![person, theirs.into_fd()], move |kept| {
            let Ok([person, agent]) = <[OwnedFd; 2]>::try_from(kept) else { return 1 };
            if filter.apply().is_err() {
                return 2;
            }
            let (person, agent) = (Channel::from_fd(person), Channel::from_fd(agent));
            serve(&person, &agent);
            // What is left is closed by the process's end, in which the kernel waits for no connection.
            std::mem::forget((person, agent));
            0
        })?;
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        // An agent that does not take it is gone: `ours` is closed, and the child ends.
        let _ = agent.send_with(&came, &[ours.as_fd()]);
        Ok(Running { pid, pidfd, uid, end, over: None })
    }

    /// Whose a new connection is, and whether they are to be heard.
    fn came(&self, person: &OwnedFd, pid: Pid, uid: u32) -> FromAcceptor {
        let own = self.running.iter().filter(|one| one.uid == uid).count();
        if is_crowded(own, self.running.len() - own) {
            return FromAcceptor::Unheard("this account has too many connections to the agent".into());
        }
        if uid == 0 {
            return FromAcceptor::Came(Account { uid, login: None });
        }
        match self.logins.of(person, pid) {
            Ok(login) => match self.seat.as_ref().map_or(Ok(()), |seat| seat.admits(uid, login)) {
                Ok(()) => FromAcceptor::Came(Account { uid, login }),
                Err(why) => FromAcceptor::Unheard(why),
            },
            Err(why) => FromAcceptor::Unheard(why.into()),
        }
    }
}

/// Whether it still runs; one that should have ended and has not is killed.
fn see_to(one: &mut Running) -> bool {
    if !matches!(waitpid(Some(one.pid), WaitOptions::NOHANG), Ok(None)) {
        return false;
    }
    if one.over.is_none() {
        let mut end = [PollFd::new(&one.end, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let closed = matches!(poll(&mut end, Some(&now)), Ok(1..));
        one.over = closed.then(Instant::now);
    }
    if one.over.is_some_and(|since| since.elapsed() >= PATIENCE) {
        // Not reaped before, so the number is still its own.
        let _ = kill_process(one.pid, Signal::KILL);
    }
    true
}

/// Whether one account has its share, which is half of what the others leave: so no few have all.
fn is_crowded(own: usize, others: usize) -> bool {
    own >= MAX.saturating_sub(others).div_ceil(2)
}

/// Carries one person's messages, until either side has gone.
fn serve(person: &Channel, agent: &Channel) {
    let mut hears = false;
    // What the person sent to be carried in.
    let mut file = Vec::new();
    loop {
        let from_person = if hears { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = [PollFd::new(agent, PollFlags::IN), PollFd::new(person, from_person)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let (told, said) = (!fds[0].revents().is_empty(), fds[1].revents());
        if told {
            match agent.try_recv::<ToConnection<Answer>>() {
                Ok(Received { message: ToConnection::Hear, .. }) => hears = true,
                Ok(Received { message: ToConnection::Fetch, .. }) => {
                    if !fetched(&file, agent) {
                        return;
                    }
                }
                Ok(Received { message: ToConnection::Say(answer), fds }) => {
                    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                    // Somebody who does not read has lost the answer, not we.
                    if person.try_send_with(&answer, &fds).is_err() {
                        return;
                    }
                }
                Err(RecvError::Empty) => {}
                Err(_) => return,
            }
        }
        if said.intersects(PollFlags::IN) && hears {
            match person.try_recv::<Command>() {
                Ok(Received { message, fds }) => {
                    if !passed_on(message, fds, &mut file, person, agent) {
                        return;
                    }
                }
                Err(RecvError::Empty) => {}
                Err(_) => return,
            }
        } else if !told && said.intersects(PollFlags::HUP | PollFlags::ERR) {
            return;
        }
    }
}

/// Passes on what a person says; of what came along a pseudo-terminal alone.
fn passed_on(
    command: Command,
    fds: Vec<OwnedFd>,
    file: &mut Vec<OwnedFd>,
    person: &Channel,
    agent: &Channel,
) -> bool {
    let terminal = matches!(
        command,
        Command::Run { input: Input::Terminal, .. } | Command::Run { output: Output::Terminal, .. }
    );
    let mut fds = fds.into_iter();
    let terminal = match terminal.then(|| fds.next()) {
        None => None,
        Some(Some(fd)) if carry::is_terminal(&fd) => Some(fd),
        Some(_) => {
            let reason = "what came along is no pseudo-terminal".to_owned();
            // As for every answer.
            let _ = person.try_send(&Answer::Refused { kind: RefusalKind::Protocol, reason });
            return false;
        }
    };
    // The rest is closed by nobody but this process's end.
    file.extend(fds);
    let terminal: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
    agent.send_with(&FromConnection::Said(command), &terminal).is_ok()
}

fn fetched(file: &[OwnedFd], agent: &Channel) -> bool {
    let copied = file.first().ok_or_else(|| "no file came along".to_owned()).and_then(carry::import);
    let sent = match copied {
        Ok(copy) => agent.send_with(&FromConnection::File(Ok(())), &[copy.as_fd()]),
        Err(why) => agent.send(&FromConnection::File(Err(why))),
    };
    sent.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_account_has_all_connections_nor_have_three() {
        let mut taken = 0;
        for share in [32, 16, 8] {
            let own = (0..MAX).find(|own| is_crowded(*own, taken)).unwrap();
            assert_eq!(own, share);
            taken += own;
        }
        assert!(!is_crowded(3, taken) && is_crowded(0, MAX));
    }
}

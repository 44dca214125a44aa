//! sessiond or process 1 may say anything at any rate and never read: that costs a mediator a bounded amount of memory, and it hears
//! whom it is given next.

use levee_hostile::{bears, flood};
use levee_ipc::Channel;
use levee_ipc::mediator::{FromStarter, MediatorToSessiond, SessiondToMediator};
use levee_ipc::warden::mediator::MediatorPart;
use levee_ipc::warden::{Nothing, Order, Place, Said};
use levee_session::SessionId;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const WHILE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// A mediator without services, and the other ends of its channels.
struct Mediator {
    child: Child,
    warden: Channel,
    sessiond: Channel,
    starter: Channel,
}

impl Drop for Mediator {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn give(warden: &Channel, part: MediatorPart) -> Channel {
    let (ours, theirs) = Channel::pair().unwrap();
    warden.send_with(&Order::Give(part), &[theirs.as_fd()]).unwrap();
    ours
}

fn readable(fd: impl AsFd, within: Duration) -> bool {
    let limit = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap() > 0
}

fn hear<T: DeserializeOwned>(channel: &Channel) -> T {
    assert!(readable(channel, PATIENCE), "nothing came at {}", channel.as_fd().as_raw_fd());
    channel.recv().unwrap().message
}

impl Mediator {
    fn start() -> Self {
        let (warden, theirs) = Channel::pair().unwrap();
        let mut program = Program::new(env!("CARGO_BIN_EXE_levee-mediator"));
        program.args.extend(["--most", "128"].map(Into::into));
        let stderr = std::io::stderr();
        program.stdio[2] = Some(stderr.as_fd());
        program.fds = vec![theirs.as_fd()];
        let child = program.start().unwrap();
        let [sessiond, starter] =
            [MediatorPart::Sessiond, MediatorPart::Starter].map(|part| give(&warden, part));
        warden.send(&Order::<MediatorPart>::Begin(Place::Server)).unwrap();
        assert!(matches!(hear(&warden), Said::<Nothing>::Ready));
        Self { child, warden, sessiond, starter }
    }

    fn pid(&self) -> i32 {
        self.child.pid.as_raw_nonzero().get()
    }

    fn has_ended(&self, within: Duration) -> bool {
        readable(&self.child.pidfd, within)
    }

    /// Has another sessiond in the place of the one before, which is answered.
    fn anew(&mut self) {
        self.sessiond = give(&self.warden, MediatorPart::Sessiond);
        self.answers();
    }

    fn answers(&self) {
        self.sessiond.send(&SessiondToMediator::Ping(7)).unwrap();
        while !matches!(hear(&self.sessiond), MediatorToSessiond::Pong(7)) {}
    }
}

fn session(number: u64) -> SessionId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    SessionId::from_random(id)
}

/// Floods: sessiond → mediator.
#[test]
fn a_sessiond_that_asks_and_never_reads_is_cut_off_and_the_next_is_answered() {
    let mut mediator = Mediator::start();
    for (what, word) in [
        ("pings", SessiondToMediator::Ping as fn(u64) -> SessiondToMediator),
        ("closings", |number| SessiondToMediator::Close(session(number))),
    ] {
        let asked = bears(mediator.pid(), what, || flood(&mediator.sessiond, LONG, word));
        assert!(asked.cut, "{what}: {asked:?}");
        mediator.anew();
    }
    // What has no answer is taken as fast as it is heard.
    bears(mediator.pid(), "refusals", || flood(&mediator.sessiond, WHILE, SessiondToMediator::Refuse));
    mediator.answers();
    let nonsense =
        bears(mediator.pid(), "nonsense", || flood(&mediator.sessiond, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut && !mediator.has_ended(Duration::ZERO), "{nonsense:?}");
    mediator.anew();
}

/// Floods: process 1 of its compartment → mediator.
#[test]
fn a_process_1_that_speaks_of_servers_without_end_ends_its_mediator() {
    for word in [|ticket| FromStarter::Ended { ticket }, |ticket| FromStarter::Refused { ticket }] {
        let mediator = Mediator::start();
        mediator.answers();
        let said = bears(mediator.pid(), "process 1", || flood(&mediator.starter, LONG, word));
        assert!(said.cut && mediator.has_ended(PATIENCE), "{said:?}");
    }
}

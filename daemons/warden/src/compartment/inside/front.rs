//! Process 1 of a compartment whose one program is a label's virtual machine: it starts QEMU, tells process 1 of the machine what it is to be,
//! and hears it in the warden's place. What comes out of a machine is input from an untrusted side, and is parsed here, where there is
//! no power left: a frame that is not one of these, or that answers nothing, is the end of the compartment.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use levee_ipc::{Channel, Full, Stream};
use levee_policy::ServiceName;
use levee_sys::spawn;

use super::filters::Filters;
use super::program::begin;
use crate::compartment::Inside;
use crate::compartment::proto::{FromInit, shorten, tell};
use crate::compartment::service::{Launch, Profile};
use crate::machine::proto::{FromGuest, ToGuest, Whole};
use crate::machine::{Hardware, PROGRAM};

/// Bytes of steps that go in one message, well below what a message may have.
const BATCH: usize = levee_ipc::MAX_STREAMED / 2;

/// Most messages taken from the machine in one turn.
const TURN: usize = 64;

/// A machine that is to be started.
type Machine = (Box<(Hardware, Whole)>, Vec<OwnedFd>);

/// What the warden gives for a machine.
#[derive(Debug, Default)]
pub(super) struct GivenMachine {
    /// The inner steps of the compartment in the machine.
    pub steps: Vec<Inside>,
    /// Its hardware, what process 1 of the machine is to be told, and the descriptors: its port, and those of QEMU.
    pub machine: Option<Machine>,
    /// Where each service writes to.
    pub logs: Vec<OwnedFd>,
}

/// A machine that runs.
#[derive(Debug)]
pub(super) struct Front {
    guest: Stream<OwnedFd>,
    /// Until it has booted: what it is to be.
    whole: Option<Whole>,
    logs: Vec<OwnedFd>,
    qemu: i32,
    /// Whether QEMU could be executed; a test has none.
    report: Option<spawn::Report>,
    is_built: bool,
    /// What it is to have off, and was not told: it hears nothing until it is built, but what it is to begin with.
    off: Option<(u64, BTreeSet<ServiceName>)>,
    /// Nobody is at the other end of its port: QEMU is ending.
    hung_up: bool,
}

impl Front {
    /// Starts the machine, if one is given.
    pub fn start(given: GivenMachine, filters: &mut Filters) -> Result<Option<Self>, String> {
        let GivenMachine { steps, machine: Some((machine, mut fds)), logs } = given else { return Ok(None) };
        if fds.is_empty() {
            return Err("a machine without a port".into());
        }
        let qemu = fds.split_off(1);
        let guest = Stream::new(fds.remove(0));
        let (hardware, whole) = *machine;
        let start = Launch {
            ticket: 0,
            program: PROGRAM.into(),
            argv: hardware.arguments(),
            env: Vec::new(),
            input: false,
            terminal: false,
            filter: Profile::Machine,
        };
        // Everything it is to do waits in its port until it reads.
        let hand = |batch| guest.send(&ToGuest::Steps(batch), Full::Fails);
        let handed = Inside::batches(&steps, BATCH).into_iter().try_for_each(hand);
        handed.map_err(|e| format!("hand a machine its steps: {e}"))?;
        let fds: Vec<BorrowedFd<'_>> = qemu.iter().map(AsFd::as_fd).collect();
        let (pid, report) = begin(&start, &fds, filters).map_err(|e| format!("start {PROGRAM}: {e}"))?;
        let (qemu, report) = (pid.as_raw_nonzero().get(), Some(report));
        Ok(Some(Self {
            guest,
            whole: Some(whole),
            logs,
            qemu,
            report,
            is_built: false,
            off: None,
            hung_up: false,
        }))
    }

    /// Where it speaks, if anything can come.
    pub fn port(&self) -> Option<BorrowedFd<'_>> {
        (!self.hung_up).then(|| self.guest.as_fd())
    }

    /// Whether [`Front::hear`] has more to hear than it heard in its turn.
    pub fn has_more(&self) -> bool {
        !self.hung_up && self.guest.has_more()
    }

    /// Takes what the machine says, and tells the warden what it must know.
    pub fn hear(&mut self, warden: &Channel) -> Result<(), String> {
        for _ in 0..TURN {
            match self.guest.receive::<FromGuest>() {
                _ if self.hung_up => break,
                Ok(Some(said)) => self.judge(said)?.map_or(Ok(()), |known| tell(warden, &known))?,
                Ok(None) => break,
                Err(e) if is_end(&e) => self.hung_up = true,
                Err(e) => return Err(format!("listen to the machine: {e}")),
            }
        }
        Ok(())
    }

    fn judge(&mut self, said: FromGuest) -> Result<Option<FromInit>, String> {
        let is_known = |place: u16| usize::from(place) < self.logs.len();
        Ok(match (said, self.is_built) {
            (FromGuest::Booted, false) => {
                self.begin()?;
                None
            }
            (FromGuest::Built, false) if self.whole.is_none() => {
                self.is_built = true;
                self.say_off()?;
                Some(FromInit::Built)
            }
            (FromGuest::Failed { reason }, _) => return Err(reason),
            (FromGuest::Service(place, report), true) if is_known(place) => {
                Some(FromInit::Service(place, report))
            }
            (FromGuest::Said { service, line }, true) if is_known(service) => {
                self.write(service, &line);
                None
            }
            (FromGuest::Turned(ticket), true) => Some(FromInit::Turned(ticket)),
            (FromGuest::Cut { ticket, sockets }, true) => Some(FromInit::Cut(ticket, sockets)),
            _ => return Err("process 1 of the machine says what it may not say".into()),
        })
    }

    /// The rest, with the time of day as it is once the machine has booted.
    fn begin(&mut self) -> Result<(), String> {
        let mut whole = self.whole.take().ok_or("the machine says that it has booted, again")?;
        whole.off = self.off.as_ref().map(|(_, off)| off.clone()).unwrap_or_default();
        whole.time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.say(&ToGuest::Begin(Box::new(whole)))
    }

    /// Has these services off in the machine, and no others: from its beginning, where it has none yet, or as soon as it is built.
    pub fn turn(&mut self, ticket: u64, off: BTreeSet<ServiceName>) -> Result<(), String> {
        self.off = Some((ticket, off));
        if self.is_built { self.say_off() } else { Ok(()) }
    }

    fn say_off(&mut self) -> Result<(), String> {
        let off = self.off.take();
        off.map_or(Ok(()), |(ticket, off)| self.say(&ToGuest::Services(ticket, off)))
    }

    fn write(&self, service: u16, line: &str) {
        let text: String = line.chars().filter(|c| !c.is_control()).collect();
        // What there is no room for is lost, as everywhere.
        if let Some(log) = self.logs.get(usize::from(service)) {
            let _ = rustix::io::write(log, format!("{}\n", shorten(&text)).as_bytes());
        }
    }

    /// Tells process 1 of the machine something; one that does not read is the end.
    pub fn say(&self, what: &ToGuest) -> Result<(), String> {
        self.guest.send(what, Full::Fails).map_err(|e| format!("tell the machine: {e}"))
    }

    /// A process has ended. If that is QEMU, so does the compartment.
    pub fn ended(&self, pid: i32, status: u8) -> Result<(), String> {
        if pid != self.qemu {
            return Ok(());
        }
        match (self.report.as_ref().and_then(spawn::Report::failure), self.is_built) {
            (Some(why), _) => Err(why.to_string()),
            (None, true) => Err(format!("the machine ended with status {status}")),
            (None, false) => Err(format!("boot the machine: it ended with status {status}")),
        }
    }

    /// Whether its services can be reached.
    pub fn is_built(&self) -> bool {
        self.is_built
    }
}

/// Whether the other end of a stream is gone.
fn is_end(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compartment::service::Report;
    use crate::machine::proto::Wire;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::Read as _;
    use std::time::Duration;

    /// A machine with one service that has booted, its own end of the port, and what its service's log is read from.
    fn machine(is_built: bool) -> (Front, Stream<OwnedFd>, std::fs::File) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let (read, log) = rustix::pipe::pipe().unwrap();
        let (whole, logs) = (None, vec![log]);
        let front = Front {
            guest: Stream::new(ours),
            whole,
            logs,
            qemu: 7,
            report: None,
            is_built,
            off: None,
            hung_up: false,
        };
        (front, Stream::new(theirs), read.into())
    }

    fn heard(is_built: bool, said: &FromGuest) -> Result<Option<FromInit>, String> {
        let (mut front, guest, _log) = machine(is_built);
        let (ours, warden) = Channel::pair().unwrap();
        guest.send(said, Full::Fails).unwrap();
        front.hear(&ours)?;
        Ok(warden.try_recv().ok().map(|received| received.message))
    }

    fn of_service(place: u16) -> FromGuest {
        FromGuest::Service(place, Report { starts: 1, told: None, trouble: None })
    }

    #[test]
    fn what_a_machine_may_say_is_told_and_what_it_may_not_is_its_end() {
        assert!(matches!(heard(false, &FromGuest::Built), Ok(Some(FromInit::Built))));
        assert!(matches!(heard(true, &of_service(0)), Ok(Some(FromInit::Service(0, _)))));
        let cut = FromGuest::Cut { ticket: 3, sockets: Some(1) };
        assert!(matches!(heard(true, &cut), Ok(Some(FromInit::Cut(3, _)))));
        assert!(matches!(heard(true, &FromGuest::Turned(4)), Ok(Some(FromInit::Turned(4)))));
        let line = |service| FromGuest::Said { service, line: "tide".into() };
        for (is_built, said) in [
            // Of a service that it has not, before it is built, or once more.
            (true, of_service(1)),
            (true, line(1)),
            (false, of_service(0)),
            (false, line(0)),
            (false, cut),
            (false, FromGuest::Turned(4)),
            (true, FromGuest::Built),
            (true, FromGuest::Booted),
            (false, FromGuest::Booted),
            (true, FromGuest::Failed { reason: "no disk".into() }),
        ] {
            assert!(heard(is_built, &said).is_err(), "{is_built} {said:?}");
        }
        // No frame at all: its length is more than any has.
        let (mut front, guest, _log) = machine(true);
        rustix::io::write(guest.descriptor(), &[0xff; 8]).unwrap();
        front.hear(&Channel::pair().unwrap().0).unwrap_err();
    }

    #[test]
    fn a_machine_begins_with_what_is_off_and_is_asked_about_it_once_it_is_built() {
        let (mut front, mut guest, _log) = machine(false);
        let whole = Whole {
            label: "SECRET".parse().unwrap(),
            outside: Vec::new(),
            wire: Wire { mtu: 1280, addresses: Vec::new(), routes: Vec::new() },
            services: Vec::new(),
            off: BTreeSet::new(),
            below: false,
            read: false,
            time: Duration::ZERO,
        };
        front.whole = Some(whole);
        let (ours, _warden) = Channel::pair().unwrap();
        let web = BTreeSet::from(["web".parse::<ServiceName>().unwrap()]);
        front.turn(3, web.clone()).unwrap();
        guest.send(&FromGuest::Booted, Full::Fails).unwrap();
        front.hear(&ours).unwrap();
        let begun = guest.receive::<ToGuest>().unwrap();
        assert!(matches!(begun, Some(ToGuest::Begin(whole)) if whole.off == web));
        assert!(guest.receive::<ToGuest>().unwrap().is_none(), "it hears nothing else before it is built");
        guest.send(&FromGuest::Built, Full::Fails).unwrap();
        front.hear(&ours).unwrap();
        let asked = guest.receive::<ToGuest>().unwrap();
        assert!(matches!(asked, Some(ToGuest::Services(3, off)) if off == web));
        // And from then on at once.
        front.turn(4, BTreeSet::new()).unwrap();
        assert!(matches!(guest.receive::<ToGuest>(), Ok(Some(ToGuest::Services(4, off))) if off.is_empty()));
    }

    #[test]
    fn a_line_of_a_service_goes_into_its_log_without_what_a_terminal_would_obey() {
        let (mut front, guest, mut log) = machine(true);
        guest.send(&FromGuest::Said { service: 0, line: "low\u{1b}[2J\ntide".into() }, Full::Fails).unwrap();
        front.hear(&Channel::pair().unwrap().0).unwrap();
        drop(front);
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        assert_eq!(text, "low[2Jtide\n");
    }

    #[test]
    fn the_end_of_qemu_is_the_end_of_its_compartment_and_no_other_process_is() {
        let (front, _guest, _log) = machine(true);
        assert!(front.ended(8, 0).is_ok() && front.ended(7, 0).is_err());
    }
}

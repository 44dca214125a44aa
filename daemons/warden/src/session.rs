//! The one session of a workstation: its steering group, its TUN device, its ephemeral compartment.

use crate::compartment::service::Launch;
use crate::compartment::{Compartment, Event, Files, Interface, Network, Plan, Programs, Spec};
use crate::logs::{LastWords, Logs};
use crate::options::Options;
use crate::uids::Uids;
use crate::waits::{Source, Waits};
use crate::{Fatal, log, outer};
use ipnet::IpNet;
use levee_ipc::warden::WorkstationEvent;
use levee_ipc::warden::tpe::Open;
use levee_policy::LabelName;
use levee_policy::site::Needs;
use levee_session::SessionId;
use levee_sys::clock;
use levee_sys::tun::{self, Queue};
use levee_sys::udp::{SteeringGroup, SteeringKey, steering_group};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes that the session's files may hold in all.
const SCRATCH: u64 = 256 << 20;
/// Bytes that each of `/tmp`, `/run`, `/var` may hold.
const TEMPORARY: u64 = 64 << 20;

/// Steering slots: the one vault's.
pub const SLOTS: u16 = 1;
/// The steering slot of the only vault.
pub const SLOT: u16 = 1;

/// A session that runs.
#[derive(Debug)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// Its label.
    pub label: LabelName,
    /// Inner MTU in bytes.
    pub mtu: u16,
    /// Its steering group.
    pub group: SteeringGroup,
    /// Its TUN queue.
    pub tun: Queue,
    compartment: Compartment,
    patience: Duration,
    /// When what the server has answered last was asked: time since the host's start, suspended or not.
    heard: Duration,
    /// Its logger.
    pub logs: Logs,
    /// The vault is at work.
    vault: bool,
    up: bool,
}

/// What the kernel takes long to remove, and what nothing of a session's depends on any more: to be dropped when
/// nobody waits.
#[derive(Debug)]
pub struct Remains {
    _tun: Queue,
    _group: SteeringGroup,
}

impl Session {
    /// Begins the compartment, without its vault: [`Session::hear`] says when it is built. `network` has nothing but
    /// `lo` yet; `outer` is the tunnel's local address.
    ///
    /// # Errors
    /// The step that failed; then nothing of it is left.
    pub fn start(
        open: Open,
        options: &Options,
        uids: &Uids,
        network: Network,
        outer: IpAddr,
        steering: &SteeringKey,
    ) -> Result<Self, Fatal> {
        let uid_base = uids.compartment(SLOT);
        let logs = Logs::start(Some(&open.label), uids.logger(Some(SLOT)), options)?;
        let step = |e: levee_sys::Error| Fatal::new("start the session's compartment", e);
        // A port of its own, so that no other session's datagrams are merged with this one's. Its queue has all of the session's streams:
        // where it is full, a whole burst of one stream is lost, and that one has less than the others for seconds.
        let group = steering_group(SocketAddr::new(outer, 0), SLOTS, 4 * outer::QUEUE, steering)
            .map_err(|e| Fatal::new("open the tunnel's UDP socket", e))?;
        let interface = Interface {
            name: "levee0".into(),
            mtu: open.mtu.into(),
            addresses: open.inner.iter().map(|address| IpNet::from(*address)).collect(),
            routes: open.reach.clone(),
        };
        let tun_options = tun::Options { multi_queue: false, exclusive: true, vnet_header: true };
        let tun = network.add(&interface, || tun::open("levee0", tun_options)).map_err(step)?;
        let spec = Spec {
            label: open.label.clone(),
            // The run directory is one warden's alone; its uids tell it from every other on the host.
            cgroup: format!("levee/ws-{uid_base:x}/session"),
            uid_base,
            limits: levee_sys::cgroup::Limits { memory: 2 << 30, processes: 1024, cpu_percent: 200 },
            processors: None,
            hostname: "workstation".into(),
            hosts: open.hosts,
            files: Files::Scratch { bytes: SCRATCH },
            pages: false,
            scratch: TEMPORARY,
            // One session runs at a time: there is nobody beside it to be told anything.
            programs: Programs::Host,
            needs: Needs::all(),
            contexts: None,
        };
        let init = options.programs.join("levee-init");
        let log = logs.end("process-1", uid_base, false).map_err(step)?;
        let compartment =
            Compartment::begin(&Plan::new(&spec), &network, &init, log.as_fd(), Vec::new()).map_err(step)?;
        Ok(Self {
            id: open.session,
            label: open.label,
            mtu: open.mtu,
            group,
            tun,
            compartment,
            patience: open.patience,
            heard: clock::since_boot(),
            logs,
            vault: false,
            up: false,
        })
    }

    /// The server has answered what was asked at this time.
    pub fn heard(&mut self, at: Duration) {
        self.heard = self.heard.max(at.min(clock::since_boot()));
    }

    /// How long the session may go on without a word from the server.
    pub fn left(&self) -> Duration {
        self.heard.saturating_add(self.patience).saturating_sub(clock::since_boot())
    }

    /// Has waited for what its compartment says, for its end and for its logger's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&mut self, waits: &mut Waits) -> std::io::Result<()> {
        let label = &self.label;
        let (said, ended) = (|| Source::Inside(label.clone()), || Source::CompartmentEnded(label.clone()));
        self.compartment.watch(waits, said, ended)?;
        self.logs.watch(waits, || Source::LabelsLogger(self.label.clone()))
    }

    /// Whether the compartment is still being built.
    pub fn is_building(&self) -> bool {
        self.compartment.is_building()
    }

    /// The vault is at work.
    pub fn vault_ready(&mut self) {
        self.vault = true;
    }

    /// Once, when both vault and compartment are there.
    pub fn comes_up(&mut self) -> bool {
        let now = self.vault && !self.is_building() && !self.up;
        self.up |= now;
        now
    }

    /// Starts a program for the person.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn run(
        &mut self,
        ticket: u64,
        argv: Vec<String>,
        env: Vec<String>,
        terminal: bool,
        fds: Vec<OwnedFd>,
    ) -> Result<(), String> {
        if fds.len() != 3 {
            return Err("a program needs standard input, output and error".into());
        }
        if argv.is_empty() {
            return Err("which program?".into());
        }
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let start = Launch { input: true, terminal, ..Launch::command(ticket, argv, env, &Needs::all()) };
        self.compartment.run(start, &fds).map_err(|e| e.to_string())
    }

    /// Sends a signal to a program.
    pub fn signal(&self, ticket: u64, signal: i32) {
        if let Err(e) = self.compartment.signal(ticket, signal) {
            log!("{e}");
        }
    }

    /// Takes what the compartment's first process has said: the programs that have ended.
    ///
    /// # Errors
    /// Why the compartment could not be built.
    pub fn hear(&mut self) -> Result<Vec<WorkstationEvent>, String> {
        let events = match self.compartment.events() {
            Ok(events) => events,
            Err(e) => {
                log!("{e}");
                // Its end shows on its pidfd; if it cannot be killed it has ended already.
                let _ = self.compartment.kill();
                return Ok(Vec::new());
            }
        };
        let mut ended = Vec::new();
        for event in events {
            let (ticket, status) = match event {
                Event::Built | Event::Started(_) | Event::Service(..) | Event::Cut(..) | Event::Turned(_) => {
                    continue;
                }
                Event::Failed(reason) => return Err(reason),
                Event::Refused(ticket, reason) => (ticket, Err(reason)),
                Event::Exited(ticket, status) => (ticket, Ok(status)),
            };
            ended.push(WorkstationEvent::Exited { ticket, status });
        }
        Ok(ended)
    }

    /// Ends every program, and removes every file of the session.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn stop(self) -> (Remains, Option<LastWords>, levee_sys::Result<()>) {
        let stopped = self.compartment.stop();
        (Remains { _tun: self.tun, _group: self.group }, self.logs.finish(), stopped)
    }
}

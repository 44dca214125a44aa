//! The warden of a gateway: a host in front of the server at which the second tunnel ends. It has that and a logger.

use crate::key::Key;
use crate::layer::{self, Layer};
use crate::logs::{LastWords, Logs, own_logs};
use crate::options::Options;
use crate::process::{Heard, Process, Start};
use crate::standing::{self, Equipped};
use crate::supervisor::Processes;
use crate::uids::Uids;
use crate::waits::{Source, asked};
use crate::{Fatal, log, state};
use levee_daemon::TURN;
use levee_ipc::warden::layer::LayerPart;
use levee_ipc::warden::{Place, Role};
use levee_policy::SiteName;
use levee_sys::signals::Signals;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const STANDING: [Role; 1] = [Role::Layer];

/// `gateway.toml`, as `levee enrol` writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Bundle {
    /// The site's name.
    #[allow(dead_code, reason = "checked by being parsed; shown to people who read the file")]
    site: SiteName,
    /// Where workstations find the second tunnel.
    addresses: Vec<IpAddr>,
    /// The address towards the server.
    inside: IpAddr,
    /// The server's address there.
    server: IpAddr,
    /// The UDP port, the same at all of them.
    layer_port: u16,
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    options: Options,
    _lock: state::Lock,
    uids: Uids,
    sockets: Layer,
    server: SocketAddr,
    processes: Processes,
    logs: Logs,
}

impl Gateway {
    /// Opens the sockets and starts the process.
    ///
    /// # Errors
    /// What could not be made or started, and why.
    pub fn start(options: Options) -> Result<Self, Fatal> {
        let path = options.config.join("gateway.toml");
        let read = || -> Result<Bundle, Box<dyn std::error::Error>> {
            Ok(toml::from_str(&std::fs::read_to_string(&path)?)?)
        };
        let bundle = read().map_err(|e| {
            Fatal::new(format!("read {}", path.display()), format!("{e} (`levee enrol all` makes it)"))
        })?;
        let lock = state::prepare(&options, "")?;
        let uids = Uids::claim_on_this_host(1)?;
        let logs = own_logs(&uids, &options)?;
        let at = |address| SocketAddr::new(address, bundle.layer_port);
        let (inside, server) = (at(bundle.inside), at(bundle.server));
        let own: Vec<_> = bundle.addresses.iter().copied().map(at).collect();
        let sockets = layer::gateway(uids.of(Role::Layer, 0), &own, inside, server)
            .map_err(|e| Fatal::new("open the second tunnel", e))?;
        let processes = Processes::new()?;
        let mut gateway = Self { options, _lock: lock, uids, sockets, server, processes, logs };
        gateway.start_layer()?;
        Ok(gateway)
    }

    /// Runs until a signal asks for the end or something fails for good.
    ///
    /// # Errors
    /// What failed.
    pub fn run(&mut self, signals: &Signals, ready: impl FnOnce()) -> Result<(), Fatal> {
        let (mut ready, since) = (Some(ready), Instant::now());
        let signal = self.processes.waits.watch(signals, Source::Signal);
        let _signal = signal.map_err(|e| Fatal::new("wait for signals", e))?;
        loop {
            if ready.is_some() && self.processes.are_ready(&STANDING, since)? {
                ready.take().into_iter().for_each(|ready| ready());
            }
            let watched = self.logs.watch(&mut self.processes.waits, || Source::OwnLogger);
            watched.map_err(|e| Fatal::new("wait for levee's own logger", e))?;
            let limit = Duration::from_millis(if self.logs.is_resting() { 200 } else { 5_000 });
            for (source, _) in self.processes.waits.wait(Some(limit)).map_err(|e| Fatal::new("wait", e))? {
                match source {
                    Source::Signal => {
                        let asked = asked(signals).map_err(|e| Fatal::new("read a signal", e))?;
                        if asked.stop {
                            return Ok(());
                        }
                        if asked.reload {
                            self.reload()?;
                        }
                    }
                    Source::Said(key) => self.said(&key),
                    Source::Ended(key) => self.ended(&key)?,
                    // Seen to with every turn; the others a gateway does not have.
                    _ => {}
                }
            }
            self.logs.see_to();
        }
    }

    /// Ends everything.
    pub fn stop(self) {
        self.processes.end();
        self.logs.finish().into_iter().for_each(LastWords::wait);
    }

    /// Starts the process anew, with the keys and certificates that the bundle has now: workstations come again by themselves.
    fn reload(&mut self) -> Result<(), Fatal> {
        self.processes.remove(&Key::of(Role::Layer)).iter().for_each(Process::reap);
        log!("goes on with the keys and certificates that the bundle has now");
        self.start_layer()
    }

    /// It says that it is at work, and has nothing else to say.
    fn said(&mut self, key: &Key) {
        for _ in 0..TURN {
            let Some(received) = self.processes.hear(key) else { break };
            if !matches!(received.message, Heard::Ready) {
                self.processes.condemn(key);
                break;
            }
        }
    }

    fn ended(&mut self, key: &Key) -> Result<(), Fatal> {
        match self.processes.ended(key, Instant::now()) {
            None => Ok(()),
            Some((_, true)) => self.start_layer(),
            Some((how, false)) => {
                Err(Fatal::new("keep going", format!("{key} ends again and again ({how})")))
            }
        }
    }

    fn start_layer(&mut self) -> Result<(), Fatal> {
        let start = Start::new(Key::of(Role::Layer), 0, &self.uids, &self.options, &self.logs);
        let process = self.give_layer(start).map_err(|e| standing::not_started(Role::Layer, &e))?;
        self.processes.admit(process, Place::Server, |_| None)
    }

    fn give_layer(&self, start: Start<'_>) -> Equipped {
        let layer = Process::start_as::<LayerPart>(start)?;
        standing::give_sockets(&layer, &self.sockets)?;
        standing::give_keys(&layer, &self.options.config.join("layer"))?;
        layer.give_with(LayerPart::Behind(self.server), &[])?;
        Ok(layer.into_process())
    }
}

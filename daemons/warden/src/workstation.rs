//! The warden of a workstation: signer, keyer and TPE, and for the one session there may be a vault and an
//! ephemeral compartment, gone when the session ends (object reuse).

use crate::behind::{Behind, BehindInterface};
use crate::compartment::Network;
use crate::key::Key;
use crate::layer::{self, Layer};
use crate::logs::{LastWords, Logs, own_logs};
use crate::options::Options;
use crate::process::{Heard, Process, Start};
use crate::session::{Remains, SLOT, SLOTS, Session};
use crate::standing::{self, Equipped};
use crate::supervisor::Processes;
use crate::there::there;
use crate::uids::Uids;
use crate::waits::{Asked, Source, asked};
use crate::{Fatal, log, outer, state};
use levee_daemon::TURN;
use levee_ipc::signer::Use;
use levee_ipc::warden::keyer::KeyerPart;
use levee_ipc::warden::layer::LayerPart;
use levee_ipc::warden::signer::SignerPart;
use levee_ipc::warden::tpe::{Open, TpePart};
use levee_ipc::warden::vault::VaultPart;
use levee_ipc::warden::{LayerState, Place, Role, TpeRequest, WorkstationEvent};
use levee_ipc::{Received, Secret, SendError};
use levee_policy::site::Suites;
use levee_policy::{DomainName, PpkId, SiteName};
use levee_session::SessionId;
use levee_sys::{power, signals::Signals, udp::SteeringKey};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The time that a session may go on is looked at so often.
const TICK: Duration = Duration::from_millis(500);

/// An agent that has not heard the server for so long has nobody signed on, or nobody who gets anything done.
const QUIET: Duration = levee_ipc::client::SILENCE;

/// Processes that every workstation has, in the order in which they are started; the last where its site has two layers.
const STANDING: [Role; 4] = [Role::Signer, Role::Keyer, Role::Tpe, Role::Layer];

/// `workstation.toml`, as `levee enrol host` writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Bundle {
    /// The site's name.
    #[allow(dead_code, reason = "checked by being parsed; shown to people who read the file")]
    site: SiteName,
    /// The name in the server's certificate.
    server_name: DomainName,
    /// The server's outer addresses; the first is used.
    addresses: Vec<IpAddr>,
    /// The trusted path's TCP port.
    trusted_path_port: u16,
    /// Who makes the session's tunnel.
    #[serde(default)]
    tunnel: Tunnel,
    /// The PPK that this workstation shares with the server, by name (RFC 8784); it is in `ppk.key`.
    ppk: Option<PpkId>,
    /// What the trusted path and IKE use, as at the server.
    #[serde(default)]
    suites: Suites,
    /// The UDP port of the server's second tunnel, where the site has two layers; then nothing goes without it.
    layer_port: Option<u16>,
    /// Where that is, if it is not at the server's own address.
    gateway: Option<IpAddr>,
    /// The group of this host whose members may use `levee-tpe`, one of them at a time; without it, root alone.
    people: Option<String>,
    /// The seat of this host, as systemd-logind names it: of that group who sits there alone is heard.
    seat: Option<String>,
    /// A machine that is behind this workstation, and the labels that it is for.
    behind: Option<Behind>,
}

impl Bundle {
    /// Reads the file's text.
    ///
    /// # Errors
    /// It is not as it should be; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bundle: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        if let Some(behind) = &bundle.behind {
            behind.check()?;
            if bundle.tunnel == Tunnel::Other {
                return Err("another client's tunnel has no compartment for a machine: take out `tunnel`, or [behind]".into());
            }
        }
        Ok(bundle)
    }
}

/// Who makes the session's tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Tunnel {
    /// levee: keyer, vault, and a compartment for the person's programs.
    #[default]
    Levee,
    /// Another IPsec client of this host, such as strongSwan; levee holds the trusted path alone.
    Other,
}

/// The public half of a bundle: it is another when the host was enrolled anew, or its PPK is.
fn certificates(bundle: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for name in ["chain.pem", "ike-chain.pem", "authority.pem", "layer/chain.pem", "layer/authority.pem"] {
        let read = std::fs::read(bundle.join(name));
        // Not every site has two layers.
        all.extend(if name.starts_with("layer") { there(read)?.unwrap_or_default() } else { read? });
    }
    all.extend(said(bundle)?.iter().flat_map(|id| id.as_str().bytes()));
    Ok(all)
}

/// The bundle's half of a PPK.
const PPK: &str = "ppk.key";

/// The name of the PPK that a bundle's file says, where it was rotated.
fn said(bundle: &std::path::Path) -> std::io::Result<Option<PpkId>> {
    there(state::ppk_id(&bundle.join(PPK))).map(Option::flatten)
}

/// The name of the PPK that a bundle has now.
fn named(bundle: &std::path::Path, ppk: Option<&PpkId>) -> std::io::Result<Option<PpkId>> {
    let Some(id) = ppk else { return Ok(None) };
    Ok(Some(said(bundle)?.unwrap_or_else(|| id.clone())))
}

/// A running workstation.
#[derive(Debug)]
pub struct Workstation {
    options: Options,
    passphrase: Option<Secret>,
    _lock: state::Lock,
    server: (SocketAddr, DomainName),
    tunnel: Tunnel,
    ppk: Option<PpkId>,
    suites: Suites,
    seat: Option<String>,
    /// The second tunnel, where there is one: where it leads, its sockets, and why nothing passes.
    layer: Option<(SocketAddr, Layer)>,
    layer_down: Option<String>,
    /// The interface of the machine behind, if there is one.
    behind: Option<BehindInterface>,
    uids: Uids,
    /// Which slot an SPI names: of one, always that one.
    steering: SteeringKey,
    commands: OwnedFd,
    network: OwnedFd,
    processes: Processes,
    session: Option<Session>,
    /// The certificates that the standing processes have.
    enrolled: Vec<u8>,
    /// The bundle has others, which count once nobody is signed on.
    renewal: bool,
    /// When the agent last said that it hears the server, as it does while somebody is signed on.
    heard: Instant,
    /// Of sessions that have ended.
    remains: Vec<Remains>,
    /// Of the standing processes.
    logs: Logs,
    /// Of sessions that have ended.
    last_words: Vec<LastWords>,
}

impl Workstation {
    /// Starts the standing processes.
    ///
    /// # Errors
    /// What could not be made or started, and why.
    pub fn start(options: Options, passphrase: Option<Secret>) -> Result<Self, Fatal> {
        let path = options.config.join("workstation.toml");
        let read = || -> Result<Bundle, Box<dyn std::error::Error>> {
            Ok(Bundle::parse(&std::fs::read_to_string(&path)?)?)
        };
        let bundle = read().map_err(|e| {
            Fatal::new(format!("read {}", path.display()), format!("{e} (`levee enrol host` makes it)"))
        })?;
        let address = bundle.addresses.first().ok_or_else(|| {
            Fatal::new(format!("read {}", path.display()), "it gives the server no address")
        })?;
        let lock = state::prepare(&options, "")?;
        let uids = Uids::claim_on_this_host(1)?;
        let logs = own_logs(&uids, &options)?;
        let commands = outer::local(&options.run.join(state::TPE))
            .map_err(|e| Fatal::new("open the socket of levee-tpe's commands", e))?;
        if let Some(group) = &bundle.people {
            outer::open_to(&options.run, &options.run.join(state::TPE), group)
                .map_err(|e| Fatal::new(format!("let the group `{group}` use levee-tpe"), e))?;
        }
        let network = levee_sys::ns::current_net().map_err(|e| Fatal::new("find the network", e))?;
        let end = bundle.gateway.unwrap_or(*address);
        let layer = bundle.layer_port.map(|port| SocketAddr::new(end, port));
        if layer.is_some() && bundle.tunnel == Tunnel::Other {
            let why = "another client's tunnel cannot go through the second one: take out `tunnel`, or `layer-port`";
            return Err(Fatal::new(format!("read {}", path.display()), why));
        }
        let uid = uids.of(Role::Layer, 0);
        let layer = layer.map(|to| layer::workstation(uid, to).map(|sockets| (to, sockets))).transpose();
        let layer = layer.map_err(|e| Fatal::new("open the second tunnel", e))?;
        let server = (SocketAddr::new(*address, bundle.trusted_path_port), bundle.server_name);
        let pins = options.run.join(state::NETWORKS);
        let take = |behind| BehindInterface::take(behind, &options.programs, &pins);
        let behind = bundle.behind.map(take).transpose();
        let behind = behind.map_err(|e| Fatal::new("keep the machine behind apart", e))?;
        let processes = Processes::new()?;
        let enrolled = certificates(&options.config)
            .map_err(|e| Fatal::new(format!("read the certificates in {}", options.config.display()), e))?;
        let ppk =
            named(&options.config, bundle.ppk.as_ref()).map_err(|e| Fatal::new("read the PPK's name", e))?;
        let mut workstation = Self {
            options,
            passphrase,
            _lock: lock,
            server,
            tunnel: bundle.tunnel,
            ppk,
            suites: bundle.suites,
            seat: bundle.seat,
            layer,
            layer_down: None,
            behind,
            uids,
            steering: SteeringKey::random().map_err(|e| Fatal::new("draw a key", e))?,
            commands,
            network,
            processes,
            session: None,
            enrolled,
            renewal: false,
            heard: Instant::now(),
            remains: Vec::new(),
            logs,
            last_words: Vec::new(),
        };
        for role in workstation.standing() {
            workstation.start_standing(*role)?;
            if *role == Role::Signer {
                let Self { processes, options, .. } = &mut workstation;
                standing::wait_for_signer(processes, options, &options.config)?;
            }
        }
        Ok(workstation)
    }

    /// Runs until a signal asks for the end or something fails for good.
    ///
    /// # Errors
    /// What failed.
    pub fn run(&mut self, signals: &Signals, ready: impl FnOnce()) -> Result<(), Fatal> {
        let mut ready = Some(ready);
        let since = Instant::now();
        let signal = self.processes.waits.watch(signals, Source::Signal);
        let _signal = signal.map_err(|e| Fatal::new("wait for signals", e))?;
        loop {
            if ready.is_some() && self.processes.are_ready(self.standing(), since)? {
                ready.take().into_iter().for_each(|ready| ready());
            }
            self.watch()?;
            let limit = self.longest_wait();
            let turn = self.processes.waits.wait(Some(limit)).map_err(|e| Fatal::new("wait", e))?;
            if turn.is_empty() {
                self.remains.clear();
            }
            for (source, _) in turn {
                if self.handle(source, signals)?.stop {
                    return Ok(());
                }
            }
            if self.renewal && self.session.is_none() && self.heard.elapsed() >= QUIET {
                self.renew()?;
            }
            self.see_to_loggers();
            if self.session.as_ref().is_some_and(|session| session.left().is_zero()) {
                // Not left to the agent, which may hang: the server ends the session by its own clock, too.
                self.died("the server has not been heard for longer than it keeps a session");
            }
            if self.session.as_ref().is_some_and(Session::is_building) {
                // One that takes too long says nothing: it must be asked.
                self.hear_compartment();
            }
        }
    }

    fn standing(&self) -> &'static [Role] {
        let layers = usize::from(self.layer.is_some());
        STANDING.get(..STANDING.len() - 1 + layers).unwrap_or(&STANDING)
    }

    /// How long nothing is to be done if nothing happens.
    fn longest_wait(&self) -> Duration {
        let building = self.session.as_ref().is_some_and(Session::is_building);
        let resting =
            self.session.iter().map(|session| &session.logs).chain([&self.logs]).any(Logs::is_resting);
        let soon = building || resting || !self.remains.is_empty() || !self.last_words.is_empty();
        let wait = Duration::from_millis(if soon { 200 } else { 5_000 });
        // A wait does not go on while the host is suspended, and is to end soon after.
        let left = self.session.as_ref().map(|session| session.left().min(TICK));
        left.map_or(wait, |left| wait.min(left))
    }

    fn handle(&mut self, source: Source, signals: &Signals) -> Result<Asked, Fatal> {
        match source {
            Source::Signal => {
                let asked = asked(signals).map_err(|e| Fatal::new("read a signal", e))?;
                if asked.reload && !asked.stop {
                    self.reload();
                }
                return Ok(asked);
            }
            Source::Said(key) => self.said(&key)?,
            Source::Ended(key) => self.ended(&key)?,
            Source::Inside(_) => self.hear_compartment(),
            Source::CompartmentEnded(_) if self.session.as_ref().is_some_and(Session::is_building) => {
                self.hear_compartment();
            }
            Source::CompartmentEnded(_) => self.died("its compartment ended"),
            // Loggers are seen to with every turn; the others a workstation does not have.
            Source::OwnLogger | Source::LabelsLogger(_) | Source::Partition(_) | Source::Made => {}
        }
        Ok(Asked::default())
    }

    fn see_to_loggers(&mut self) {
        self.session
            .iter_mut()
            .map(|session| &mut session.logs)
            .chain([&mut self.logs])
            .for_each(Logs::see_to);
        self.last_words.retain(|last_words| !last_words.are_over());
    }

    /// Has waited for what there is to wait for now.
    fn watch(&mut self) -> Result<(), Fatal> {
        let waits = &mut self.processes.waits;
        let watched = self.session.as_mut().map_or(Ok(()), |session| session.watch(waits));
        if let Err(e) = watched {
            self.died(&format!("it cannot be waited for: {e}"));
        }
        let watched = self.logs.watch(&mut self.processes.waits, || Source::OwnLogger);
        watched.map_err(|e| Fatal::new("wait for levee's own logger", e))
    }

    /// Ends everything.
    pub fn stop(mut self) {
        self.close();
        if let Some(Err(e)) = self.behind.as_ref().map(BehindInterface::release) {
            log!("the interface of the machine behind stays where it is: {e}");
        }
        self.processes.end();
        self.last_words.into_iter().for_each(LastWords::wait);
        self.logs.finish().into_iter().for_each(LastWords::wait);
    }

    /// Whether the bundle has been enrolled anew; then hands out the revocation list that it has now.
    fn reload(&mut self) {
        match certificates(&self.options.config) {
            Ok(now) => self.renewal = now != self.enrolled,
            Err(e) => log!("the bundle's certificates are not read: {e}"),
        }
        if self.renewal && self.tunnel == Tunnel::Other {
            // Nothing of a session is known here.
            self.renewal = false;
            log!("the bundle was enrolled anew: its keys and certificates count from the next start");
        } else if self.renewal {
            log!("the bundle was enrolled anew: its keys and certificates count once nobody is signed on");
        }
        let list = self.options.config.join(state::WORKSTATION_REVOCATIONS);
        let to: [(Role, standing::Revoking); 2] = [
            (Role::Keyer, |keyer, list| keyer.tell(KeyerPart::Revocations, list)),
            (Role::Tpe, |tpe, list| tpe.tell(TpePart::Revocations, list)),
        ];
        if let Err(why) = standing::revoke(&self.processes, &to, &list) {
            log!("the revocation list of the bundle is not read: {why}");
        }
    }

    /// Starts the standing processes anew, with the keys and certificates that the bundle has now. Nobody is signed on.
    fn renew(&mut self) -> Result<(), Fatal> {
        self.renewal = false;
        self.enrolled = certificates(&self.options.config)
            .map_err(|e| Fatal::new("read the bundle's certificates", e))?;
        self.ppk = named(&self.options.config, self.ppk.as_ref())
            .map_err(|e| Fatal::new("read the PPK's name", e))?;
        for role in self.standing() {
            self.processes.remove(&Key::of(*role)).iter().for_each(Process::reap);
        }
        self.standing().iter().try_for_each(|role| self.start_standing(*role))?;
        log!("goes on with the keys and certificates that the bundle has now");
        Ok(())
    }

    fn said(&mut self, key: &Key) -> Result<(), Fatal> {
        for _ in 0..TURN {
            let Some(Received { message, fds }) = self.processes.hear(key) else { break };
            match message {
                Heard::Ready => {
                    if let Some(session) = self.session.as_mut().filter(|_| key.role == Role::Vault) {
                        session.vault_ready();
                        self.tell_if_up();
                    }
                }
                Heard::Unusable(why) => return Err(Fatal::keys(&self.options.config, why)),
                Heard::Tpe(request) => self.request(request, fds),
                Heard::Layer(LayerState::Up) => self.layer_down = None,
                Heard::Layer(LayerState::Down(why)) => self.layer_down = Some(why),
                // No process of a workstation's has anything else to say.
                _ => {
                    self.processes.condemn(key);
                    break;
                }
            }
        }
        Ok(())
    }

    fn hear_compartment(&mut self) {
        let Some(session) = &mut self.session else { return };
        let id = session.id;
        match session.hear() {
            Ok(events) => {
                events.into_iter().for_each(|event| self.tell_tpe(event));
                self.tell_if_up();
            }
            Err(reason) => self.not_opened(id, reason),
        }
    }

    fn tell_if_up(&mut self) {
        if let Some(session) = &mut self.session
            && session.comes_up()
        {
            let id = session.id;
            let machine = self.behind.as_ref().filter(|behind| behind.is_for(&session.label));
            match machine.map_or(Ok(()), BehindInterface::join) {
                Ok(()) => self.tell_tpe(WorkstationEvent::Up(id)),
                Err(e) => self.not_opened(id, e.to_string()),
            }
        }
    }

    fn not_opened(&mut self, session: SessionId, reason: String) {
        log!("session {session}: {reason}");
        self.close();
        self.tell_tpe(WorkstationEvent::Failed { session, reason });
    }

    fn request(&mut self, request: TpeRequest, fds: Vec<OwnedFd>) {
        match request {
            TpeRequest::Open(open) => {
                self.close();
                let session = open.session;
                if let Err(e) = self.open(open) {
                    self.not_opened(session, e.to_string());
                }
            }
            TpeRequest::Heard(at) => {
                self.heard = Instant::now();
                if let Some(session) = &mut self.session {
                    session.heard(at);
                }
            }
            TpeRequest::Close(session) => {
                if self.session.as_ref().is_some_and(|s| s.id == session) {
                    self.close();
                }
                self.tell_tpe(WorkstationEvent::Closed(session));
            }
            TpeRequest::Run { ticket, argv, env, terminal } => {
                let started = match &mut self.session {
                    Some(session) => session.run(ticket, argv, env, terminal, fds),
                    None => Err("no session is open".to_owned()),
                };
                if let Err(e) = started {
                    self.tell_tpe(WorkstationEvent::Exited { ticket, status: Err(e) });
                }
            }
            TpeRequest::Signal { ticket, signal } => {
                if let Some(session) = &mut self.session {
                    session.signal(ticket, signal);
                }
            }
        }
    }

    fn open(&mut self, open: Open) -> Result<(), Fatal> {
        let label = open.label.clone();
        if let Some(why) = &self.layer_down {
            return Err(Fatal::new("use the second tunnel", why));
        }
        let outer = match (&self.layer, self.server.0) {
            // Nothing that keyer and vault send leaves this host but through the second tunnel.
            (Some(_), _) => outer::within(0).ip(),
            (None, SocketAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (None, SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let behind = self.behind.as_ref().filter(|behind| behind.is_for(&label));
        let network = behind.map_or_else(Network::new, |behind| behind.network(&label));
        let network = network.map_err(|e| Fatal::new("make the session's network", e))?;
        let session = Session::start(open, &self.options, &self.uids, network, outer, &self.steering)?;
        let start = Start::new(Key::at(Role::Vault, &label), SLOT, &self.uids, &self.options, &session.logs);
        // Who looks for more packets before sleeping takes a processor's time; a battery is not to pay for it.
        let start = Start { arguments: if power::on_battery() { &["--poll", "0"] } else { &[] }, ..start };
        let vault = Process::start_as::<VaultPart>(start).map_err(|e| Fatal::new("start the vault", e))?;
        let handed = |e: SendError| Fatal::new("hand the vault its descriptors", e);
        vault.give(VaultPart::Tun { mtu: session.mtu }, &session.tun).map_err(handed)?;
        let group = &session.group;
        let socket = group.slot(SLOT).ok_or_else(|| handed(SendError::Closed))?;
        vault.give(VaultPart::Udp(group.address()), socket).map_err(handed)?;
        if let (Some(keyer), Some(socket)) = (self.processes.get(&Key::of(Role::Keyer)), group.first()) {
            keyer.tell_as(KeyerPart::Udp(group.address()), &[socket.as_fd()]).map_err(handed)?;
        }
        if let Some(layer) = self.processes.get(&Key::of(Role::Layer)) {
            // One that has ended is told when it is started again.
            let _ = layer.tell_as(LayerPart::Session(group.address()), &[]);
        }
        group.admit(SLOT).map_err(|e| Fatal::new("open the vault's socket", e))?;
        self.session = Some(session);
        self.admit(vault.into_process())
    }

    /// Ends the session there is: its programs, files and keys are gone when this returns.
    fn close(&mut self) {
        // Before anything else, and also where the session did not come so far.
        if let Some(Err(e)) = self.behind.as_ref().map(BehindInterface::leave) {
            log!("the interface of the machine behind stays where it is: {e}");
        }
        let Some(session) = self.session.take() else { return };
        if let Some(vault) = self.processes.remove(&Key::at(Role::Vault, &session.label)) {
            vault.reap();
        }
        let (remains, last_words, stopped) = session.stop();
        self.remains.push(remains);
        self.last_words.extend(last_words);
        if let Err(e) = stopped {
            log!("ending a session's compartment: {e}");
        }
    }

    fn died(&mut self, why: &str) {
        if let Some(id) = self.session.as_ref().map(|session| session.id) {
            log!("session {id} is over: {why}");
            self.close();
            self.tell_tpe(WorkstationEvent::Died(id));
        }
    }

    fn ended(&mut self, key: &Key) -> Result<(), Fatal> {
        let Some((how, again)) = self.processes.ended(key, Instant::now()) else { return Ok(()) };
        match key.role {
            Role::Vault => {
                self.died("its vault ended");
                Ok(())
            }
            _ if !again => Err(Fatal::new("keep going", format!("{key} ends again and again ({how})"))),
            role => {
                // Without the TPE nobody answers for the session any more.
                if role == Role::Tpe {
                    self.close();
                }
                self.start_standing(role)
            }
        }
    }

    fn start_standing(&mut self, role: Role) -> Result<(), Fatal> {
        let arguments = match role {
            Role::Keyer => self.suites.arguments().to_vec(),
            Role::Tpe => {
                let tunnel: &[&str] = if self.tunnel == Tunnel::Other { &["--no-tunnel"] } else { &[] };
                let seat: Vec<&str> = self.seat.iter().flat_map(|seat| ["--seat", seat]).collect();
                [&["agent"], tunnel, &seat, self.suites.arguments()].concat()
            }
            _ => Vec::new(),
        };
        // The agent alone opens a connection: to the trusted path of the server.
        let network = (role == Role::Tpe).then(|| self.network.as_fd());
        let start = Start::new(Key::of(role), 0, &self.uids, &self.options, &self.logs);
        let start = Start { arguments: &arguments, network, ..start };
        let process = match role {
            Role::Signer => self.give_signer(start),
            Role::Keyer => self.give_keyer(start),
            Role::Layer => self.give_layer(start),
            _ => self.give_tpe(start),
        };
        let process = process.map_err(|e| standing::not_started(role, &e))?;
        self.admit(process)
    }

    fn give_tpe(&self, start: Start<'_>) -> Equipped {
        let tpe = Process::start_as::<TpePart>(start)?;
        let file = |name: &str| self.options.config.join(name);
        tpe.give(TpePart::Chain, state::copy(&file("chain.pem"))?)?;
        standing::give_list(&tpe, TpePart::Revocations, &file(state::WORKSTATION_REVOCATIONS))?;
        tpe.give(TpePart::Authority, state::copy(&file("authority.pem"))?)?;
        tpe.give(TpePart::Commands, &self.commands)?;
        let (address, name) = self.server.clone();
        tpe.give_with(TpePart::Server { address, name }, &[])?;
        if let Some((_, sockets)) = &self.layer {
            let within = levee_sys::udp::local_address(sockets.inner.as_fd())?;
            tpe.give_with(TpePart::Tunnel(within), &[])?;
        }
        Ok(tpe.into_process())
    }

    fn give_layer(&self, start: Start<'_>) -> Equipped {
        let layer = Process::start_as::<LayerPart>(start)?;
        let (address, sockets) = self.layer.as_ref().ok_or("the site has one layer")?;
        standing::give_sockets(&layer, sockets)?;
        standing::give_keys(&layer, &self.options.config.join("layer"))?;
        let (address, name) = (*address, self.server.1.clone());
        layer.give_with(LayerPart::Server { address, name }, &[])?;
        if let Some(group) = self.session.as_ref().map(|session| &session.group) {
            layer.give_with(LayerPart::Session(group.address()), &[])?;
        }
        Ok(layer.into_process())
    }

    fn give_keyer(&self, start: Start<'_>) -> Equipped {
        let keyer = Process::start_as::<KeyerPart>(start)?;
        let file = |name: &str| self.options.config.join(name);
        if let Some(id) = self.ppk.clone() {
            keyer.give_with(KeyerPart::Ppk { host: None, id, mandatory: true }, &[])?;
        }
        keyer.give(KeyerPart::Chain, state::copy(&file("ike-chain.pem"))?)?;
        standing::give_list(&keyer, KeyerPart::Revocations, &file(state::WORKSTATION_REVOCATIONS))?;
        keyer.give(KeyerPart::Authority, state::copy(&file("authority.pem"))?)?;
        keyer.give_with(KeyerPart::Server(self.server.1.clone()), &[])?;
        keyer.give_with(outer::steering(&self.steering, SLOTS).ok_or("no steering key")?, &[])?;
        // One that is started again goes on with the session there is.
        if let Some(group) = self.session.as_ref().map(|session| &session.group) {
            let socket = group.first().ok_or("the steering group has no first socket")?;
            keyer.give(KeyerPart::Udp(group.address()), socket)?;
        }
        Ok(keyer.into_process())
    }

    fn give_signer(&self, start: Start<'_>) -> Equipped {
        let signer = Process::start_as::<SignerPart>(start)?;
        let file = |name: &str| state::secret(&self.options.config.join(name));
        if let Some(passphrase) = &self.passphrase {
            signer.give_with(SignerPart::Passphrase(passphrase.clone()), &[])?;
        }
        signer.give(SignerPart::PrivateKey(Use::Tls), file("device.key")?)?;
        signer.give(SignerPart::PrivateKey(Use::Ike), file("ike.key")?)?;
        if let Some(id) = &self.ppk {
            signer.give(SignerPart::Ppk(id.clone()), file(PPK)?)?;
        }
        Ok(signer.into_process())
    }

    /// Wires a started process to its partners and tells it to begin.
    fn admit(&mut self, process: Process) -> Result<(), Fatal> {
        let slot = |key: &Key| (key.role == Role::Vault).then_some(SLOT);
        self.processes.admit(process, Place::Workstation, slot)
    }

    fn tell_tpe(&self, event: WorkstationEvent) {
        self.processes.tell(Role::Tpe, TpePart::Workstation(event));
    }
}

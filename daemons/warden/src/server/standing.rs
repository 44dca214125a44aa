//! The processes that every server has, whoever uses it.

use super::*;
use crate::framed::{self, Member};
use crate::process::Started;
use crate::standing::{self, Equipped};
use levee_ipc::warden::frames::FramesPart;
use levee_ipc::warden::fsd::FsdPart;
use levee_ipc::warden::keyer::KeyerPart;
use levee_ipc::warden::layer::LayerPart;
use levee_ipc::warden::sessiond::SessiondPart;
use levee_ipc::warden::signer::SignerPart;
use levee_ipc::warden::tps::TpsPart;
use rustix::process::setpriority_process;
use std::error::Error;
use std::path::Path;

/// Processes that every server has, in the order in which they are started; fsd where the site has several servers, the second tunnel
/// where it has two layers, never both; what keeps the frames where it has some.
pub(super) const STANDING: [Role; 7] =
    [Role::Signer, Role::Sessiond, Role::Keyer, Role::Tps, Role::Frames, Role::Fsd, Role::Layer];

/// Before all that has the usual priority and the usual share of the processors (cpu.weight).
const FIRST: i32 = -20;
const FIRST_SHARE: u32 = 10_000;

impl Server {
    pub(super) fn standing(&self) -> Vec<Role> {
        let is_here = |role: &Role| match role {
            Role::Layer => self.layer.is_some(),
            Role::Fsd => self.site.federation().is_some(),
            Role::Frames => self.site.frames().is_some(),
            _ => true,
        };
        STANDING.into_iter().filter(is_here).collect()
    }

    pub(super) fn start_all(&mut self) -> Result<(), Fatal> {
        for role in self.standing() {
            self.start_standing(role)?;
            if role == Role::Signer {
                let keys = self.options.state.join("server");
                standing::wait_for_signer(&mut self.processes, &self.options, &keys)?;
            }
        }
        for name in self.networks.serving().cloned().collect::<Vec<_>>() {
            self.need(name);
        }
        Ok(())
    }

    pub(super) fn start_standing(&mut self, role: Role) -> Result<(), Fatal> {
        let step = |e: &dyn std::fmt::Display| standing::not_started(role, e);
        let arguments = match role {
            Role::Keyer | Role::Fsd | Role::Tps => self.site.crypto().suites().arguments(),
            _ => &[],
        };
        // It alone opens connections: to etcd.
        let network = match role {
            Role::Fsd => Some(levee_sys::ns::current_net().map_err(|e| step(&e))?),
            _ => None,
        };
        let start = Start::new(Key::of(role), 0, &self.uids, &self.options, &self.logs);
        let start = Start { arguments, network: network.as_ref().map(AsFd::as_fd), ..start };
        let process = match role {
            Role::Signer => self.give_signer(start),
            Role::Sessiond => self.give_sessiond(start),
            Role::Keyer => self.give_keyer(start),
            Role::Fsd => self.give_fsd(start),
            Role::Layer => self.give_layer(start),
            Role::Frames => self.give_frames(start),
            _ => self.give_tps(start),
        };
        let process = process.map_err(|e| step(&e))?;
        self.admit(process)
    }

    fn give_sessiond(&self, start: Start<'_>) -> Equipped {
        let (directory, uid) = (&self.options.state, start.uid);
        let sessiond = Process::start_as::<SessiondPart>(start)?;
        sessiond.give(SessiondPart::Site, sealed("site.toml", self.site_text.as_bytes())?)?;
        let own = state::own_directory(&directory.join("sessiond"), uid)?;
        sessiond.give(SessiondPart::Directory, own)?;
        sessiond.give(SessiondPart::Authority, self.public("authority/ca.pem")?)?;
        standing::give_list(&sessiond, SessiondPart::Revocations, &directory.join(state::REVOCATIONS))?;
        if self.site.federation().is_some() {
            sessiond.give(SessiondPart::Federation, self.public("server/federation-chain.pem")?)?;
            let authority = self.public("server/federation-authority.pem")?;
            sessiond.give(SessiondPart::FederationAuthority, authority)?;
            let list = directory.join(state::FEDERATION_REVOCATIONS);
            standing::give_list(&sessiond, SessiondPart::FederationRevocations, &list)?;
        }
        sessiond.give(SessiondPart::Auditor, state::copy(&directory.join(state::AUDITOR))?)?;
        sessiond.give(SessiondPart::Operators, &self.operators)?;
        Ok(sessiond.into_process())
    }

    fn give_keyer(&self, start: Start<'_>) -> Equipped {
        let directory = &self.options.state;
        let keyer = Process::start_as::<KeyerPart>(start)?;
        for group in &self.tunnels {
            let socket = group.first().ok_or("the steering group has no first socket")?;
            keyer.give(KeyerPart::Udp(group.address()), socket)?;
        }
        let steering =
            outer::steering(&self.steering, self.site.server().slots()).ok_or("no steering key")?;
        keyer.give_with(steering, &[])?;
        for (address, socket) in &self.ike {
            keyer.give(KeyerPart::Ike(*address), socket)?;
        }
        for (host, ppk) in self.ppks() {
            for state::HostPpk { id, .. } in state::ppks_of(self.enrolled.ppk_ids(), host, ppk.id()) {
                let host = Some(host.clone());
                keyer.give_with(KeyerPart::Ppk { host, id, mandatory: ppk.is_mandatory() }, &[])?;
            }
        }
        keyer.give(KeyerPart::Chain, self.public("server/ike-chain.pem")?)?;
        standing::give_list(&keyer, KeyerPart::Revocations, &directory.join(state::REVOCATIONS))?;
        keyer.give(KeyerPart::Authority, self.public("authority/ca.pem")?)?;
        Ok(keyer.into_process())
    }

    fn give_fsd(&self, start: Start<'_>) -> Equipped {
        let fsd = Process::start_as::<FsdPart>(start)?;
        let federation = self.site.federation().ok_or("the site has one server")?;
        for address in federation.etcd() {
            let (address, name) = (*address, federation.etcd_name().clone());
            fsd.give_with(FsdPart::Server { address, name }, &[])?;
        }
        let (site, server) = (self.site.name().clone(), self.site.server().name().clone());
        fsd.give_with(FsdPart::Member { site, server }, &[])?;
        fsd.give(FsdPart::Chain, self.public("server/federation-chain.pem")?)?;
        fsd.give(FsdPart::Authority, self.public("server/federation-authority.pem")?)?;
        Ok(fsd.into_process())
    }

    fn give_frames(&self, start: Start<'_>) -> Equipped {
        let frames = Process::start_as::<FramesPart>(start)?;
        let site = self.site.frames().ok_or("the site has no frames")?;
        frames.give_with(FramesPart::Frame(framed::frame(site)), &[])?;
        let frames = frames.into_process();
        // A slot's end waits as little as may be for whoever has the processor.
        frames.group().share(FIRST_SHARE, 0, 0)?;
        setpriority_process(Some(frames.pidfd().pid), FIRST)?;
        Ok(frames)
    }

    /// What keeps the frames gets the groups that are new, and while nothing keeps them they stand still, as soon as they are there, and with each turn of the loop.
    pub(super) fn see_to_frames(&mut self) {
        let Some(frames) = self.site.frames() else { return };
        let members = members(&self.labels, &self.partitions, &self.processes);
        let process = self.processes.get(&Key::of(Role::Frames)).filter(|process| process.ready);
        let Some(process) = process else { return self.framed.hold(&self.site, members) };
        self.framed.give(process, (&self.site, frames), members);
    }

    fn give_layer(&self, start: Start<'_>) -> Equipped {
        let layer = Process::start_as::<LayerPart>(start)?;
        let sockets = self.layer.as_ref().ok_or("the site has one layer")?;
        standing::give_sockets(&layer, sockets)?;
        match self.site.gateway() {
            Some(gateway) => {
                let from = SocketAddr::new(gateway.inside(), self.site.server().layer_port());
                layer.give_with(LayerPart::Gateway(from), &[])?;
            }
            None => standing::give_keys(&layer, &self.options.state.join("layer"))?,
        }
        for within in self.tunnels.iter().filter(|group| group.address().ip().is_loopback()) {
            layer.give_with(LayerPart::Tunnel(within.address()), &[])?;
        }
        Ok(layer.into_process())
    }

    fn give_tps(&self, start: Start<'_>) -> Equipped {
        let directory = &self.options.state;
        let tps = Process::start_as::<TpsPart>(start)?;
        tps.give(TpsPart::Chain, self.public("server/chain.pem")?)?;
        standing::give_list(&tps, TpsPart::Revocations, &directory.join(state::REVOCATIONS))?;
        tps.give(TpsPart::Authority, self.public("authority/ca.pem")?)?;
        tps.give(TpsPart::Listener, &self.trusted_path)?;
        Ok(tps.into_process())
    }

    /// The public half of a key, as it goes with what the signer has.
    pub(super) fn public(&self, file: &str) -> std::io::Result<OwnedFd> {
        self.enrolled.copy(&self.options.state, file)
    }

    /// A signer that has all keys, and nothing to sign with them.
    pub(super) fn give_keys(&self, start: Start<'_>) -> Result<Started<SignerPart>, Box<dyn Error>> {
        let signer = Process::start_as::<SignerPart>(start)?;
        let directory = self.options.state.join("server");
        if let Some(passphrase) = &self.passphrase {
            signer.give_with(SignerPart::Passphrase(passphrase.clone()), &[])?;
        }
        let mut keys = vec![(Use::Tls, "tls.key"), (Use::Ike, "ike.key"), (Use::Audit, "audit.key")];
        keys.extend(self.site.federation().map(|_| (Use::Federation, "federation.key")));
        for (what, file) in keys {
            signer.give(SignerPart::PrivateKey(what), state::secret(&directory.join(file))?)?;
        }
        // As the files are now: those of a trial are not gone on with yet.
        let ids = state::ppk_ids(&self.options.state)?;
        for (host, ppk) in self.ppks() {
            for state::HostPpk { file, id } in state::ppks_of(&ids, host, ppk.id()) {
                let file = self.options.state.join(state::PPKS).join(file);
                signer.give(SignerPart::Ppk(id), state::secret(&file)?)?;
            }
        }
        Ok(signer)
    }

    fn give_signer(&self, start: Start<'_>) -> Equipped {
        let signer = self.give_keys(start)?;
        signer.give(SignerPart::AuditChain, state::audit_chain(&self.options.state)?)?;
        for place in self.site.audit().checkpoints() {
            signer.give(SignerPart::Checkpoints, state::checkpoints(place)?)?;
        }
        Ok(signer.into_process())
    }

    /// The hosts that share a PPK with the server.
    fn ppks(&self) -> impl Iterator<Item = (&HostName, &HostPpk)> {
        self.site.hosts().filter_map(|host| Some((host.name(), host.ppk()?)))
    }

    /// Goes on with the keys that are there now, and hands out the revocation lists that there are now.
    ///
    /// # Errors
    /// A process cannot be started again.
    pub(super) fn reload(&mut self) -> Result<(), Fatal> {
        let renewed = self.renew()? | self.rekey_channels();
        self.tell_rotations();
        self.hand_out_lists(renewed);
        Ok(())
    }

    /// Hands out the revocation lists that there are; `renewed`: one that is not there is missed by nobody.
    pub(super) fn hand_out_lists(&mut self, renewed: bool) {
        let servers = self.options.state.join(state::FEDERATION_REVOCATIONS);
        let of_servers = self.site.federation().is_some() && servers.exists();
        if of_servers {
            let sessiond: standing::Revoking =
                |sessiond, list| sessiond.tell(SessiondPart::FederationRevocations, list);
            self.revoke("servers' revocation list", &[(Role::Sessiond, sessiond)], &servers);
        }
        let list = self.options.state.join(state::REVOCATIONS);
        if !(renewed || of_servers) || list.exists() {
            // sessiond first: it ends the sessions of whom the list names, the others what they have with them.
            let to: [(Role, standing::Revoking); 3] = [
                (Role::Sessiond, |sessiond, list| sessiond.tell(SessiondPart::Revocations, list)),
                (Role::Keyer, |keyer, list| keyer.tell(KeyerPart::Revocations, list)),
                (Role::Tps, |tps, list| tps.tell(TpsPart::Revocations, list)),
            ];
            self.revoke("revocation list", &to, &list);
        }
    }

    fn revoke(&self, object: &str, to: &[(Role, standing::Revoking)], list: &Path) {
        let given = standing::revoke(&self.processes, to, list);
        let done = given.is_ok();
        self.note(None, object, done, given.map_or_else(|why| why, |()| "read anew".to_owned()));
    }
}

/// Everything that is at a label, by its group of processes.
fn members<'a>(
    labels: &'a Tended<LabelName, RunningLabel>,
    partitions: &'a [Partition],
    processes: &'a Processes,
) -> impl Iterator<Item = Member<'a>> {
    let labels = labels
        .iter()
        .filter_map(|(name, label)| Some(Member { at: name, what: name, group: label.group()? }));
    let partitions =
        partitions.iter().filter_map(|one| Some(Member { at: &one.label, what: one, group: one.group()? }));
    let own = processes.iter().filter_map(|process| {
        let (at, what) = (process.key.label.as_ref()?, &process.key);
        Some(Member { at, what, group: process.group() })
    });
    labels.chain(partitions).chain(own)
}

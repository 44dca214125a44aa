//! The arguments of `levee enrol`, read into what [`crate::enrol`] takes.

use crate::enrol::{
    self, ChannelFacts, Enroller, Facts, GatewayFacts, HostFacts, ROUNDS, Rotated, Tokens, Whose, Written,
    request,
};
use crate::operator::Which;
use crate::pin;
use crate::typed::{Passphrase, ask, line};
use crate::{output, site};
use clap::{Args, Subcommand};
use levee_policy::Site;
use levee_policy::site::Curve;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Issue keys and certificates: for the site's authority, the server, a host
#[derive(Debug, Args)]
pub struct Enrol {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The site's authority, which signs all others
    ///
    /// With --token its private key is in a PKCS#11 token: a smart card, a security module, a TPM. The token makes the key, unless it has
    /// one of that name, and never gives it out. The library that the URI names is loaded by this command alone, when the authority signs.
    /// The PIN is the first line of the file of mode 600 that pin-source names; else it is asked for on the terminal, or is the next
    /// line of standard input.
    Authority {
        #[command(flatten)]
        place: Where,
        #[command(flatten)]
        token: Token,
    },
    /// The server's keys and certificates
    Server(Where),
    /// etcd's key and certificate, for a site of several servers
    Etcd(Where),
    /// Whom the audit log's first key is sealed for: no start without them
    Auditor {
        /// The auditor's public key, which `levee audit key` has made on a machine of theirs [default: a new pair, whose private key
        /// is for the auditor to move off this host]
        #[arg(long, value_name = "FILE")]
        public: Option<PathBuf>,
        #[command(flatten)]
        place: Where,
    },
    /// One host's bundle, to be copied to that workstation
    Host {
        #[command(flatten)]
        place: Where,
        /// The host, as the site file names it
        host: String,
    },
    /// Make keys where they are used, and a request for their certificates, which `levee enrol sign` answers where the authority is
    ///
    /// On a workstation: `levee enrol request /etc/levee/workstation --host NAME`. On a server: `levee enrol request STATE/server --server NAME`.
    /// Send request.pem to the authority's machine. What `sign` writes there goes beside the keys.
    Request {
        /// Where the keys stay
        directory: PathBuf,
        /// The workstation, as the site file names it
        #[arg(long, value_name = "NAME", required_unless_present = "server", conflicts_with = "server")]
        host: Option<String>,
        /// The server's DNS name, as the site file has it
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
        /// The curve that the site file says: P-256 or P-384
        #[arg(long, value_name = "CURVE", default_value = "P-256", value_parser = curve)]
        keys: Curve,
        /// Encrypt the private keys with a passphrase
        #[arg(long)]
        passphrase: bool,
        /// Replace what is there
        #[arg(long)]
        force: bool,
        /// Print what was written as JSON
        #[arg(long)]
        json: bool,
    },
    /// Sign for the keys of a request that `levee enrol request` made: a bundle without private keys
    ///
    /// For whom is what is said here. A request that names somebody else is refused: who made it may not be who they say.
    Sign {
        #[command(flatten)]
        place: Where,
        /// The request
        request: PathBuf,
        /// The workstation that it came from, as the site file names it
        #[arg(long, value_name = "NAME", required_unless_present = "server", conflicts_with = "server")]
        host: Option<String>,
        /// The server that it came from, by its DNS name in the site file
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
    },
    /// A post-quantum preshared key for a host to which the site file gives one (RFC 8784): the server's half, and the host's in its
    /// bundle. With --passphrase each half has its own: first the server's, then the host's
    Ppk {
        #[command(flatten)]
        place: Where,
        /// The host, as the site file names it
        host: String,
    },
    /// The key of a one-way channel to or from another host, at one of the two: STATE/channels/CHANNEL.key, to be copied to the other
    ///
    /// Whoever has it can make up what the reader reads, and read what the writer writes. It is in clear on the disk, since the server
    /// needs it whenever it starts. `levee enrol rotate SITE channel CHANNEL` has it followed by another while messages pass. With --force
    /// there is a new one at once: copy that too, and `levee reload` at both; what is sealed in between is lost.
    Channel {
        #[command(flatten)]
        place: Where,
        /// The channel, as both site files name it
        channel: String,
    },
    /// A new key in the place of one that is in use, and the old one destroyed; `levee reload` has a running server go on with it
    ///
    /// Nobody loses a session. A key stays encrypted as it is. A host's bundle has to be copied to it, then `levee reload` there. The
    /// audit log says which key was followed by which.
    ///
    /// `channel NAME` makes the key that will follow the one of a one-way channel, as STATE/channels/next/NAME.key. Copy it to the other
    /// host, and `levee reload` at both, in any order: the one that receives takes both keys. Then `--finish` and `levee reload` at the one
    /// that sends, which uses the new key from then on; then the same at the one that receives. No message is lost.
    Rotate {
        #[command(flatten)]
        place: Where,
        /// Which key
        what: enrol::What,
        /// Whose: with `host` and `ppk` the host, and with `layer` unless it is the server's; with `channel` the channel
        #[arg(value_name = "HOST|CHANNEL")]
        host: Option<String>,
        /// With `authority`, `federation-authority` and `layer-authority`: the one before it is believed no more, and its key is
        /// destroyed. With `ppk`: the one before it is taken no more, once the audit log says that the host has used the new one
        /// (--force does not ask the log). With `channel`: the one before it is used no more, and destroyed: first where the channel
        /// begins; then where it ends, once the server there has opened something with the new one (--force does not ask that server)
        #[arg(long)]
        finish: bool,
        /// With `channel` and --finish: the run directory of this host's server [default: the only one below /run/levee]
        #[arg(long, value_name = "DIR")]
        run: Option<PathBuf>,
        #[command(flatten)]
        token: Token,
    },
    /// Revoke the certificates of hosts: writes authority/ca.crl anew. `levee reload` has a running server read it
    Revoke {
        #[command(flatten)]
        place: Where,
        /// Hosts, by their bundles in the state directory, or `server`
        #[arg(value_name = "HOST")]
        names: Vec<String>,
        /// Revoke the certificate in this file too
        #[arg(long, value_name = "FILE")]
        certificate: Vec<PathBuf>,
        /// Revoke the passport of the site's server whose federation-chain.pem this is: writes authority/federation-ca.crl anew, to be
        /// copied to every server, then `levee reload` there
        #[arg(long, value_name = "FILE")]
        federation: Vec<PathBuf>,
        /// How long the list is good: once there is one, a server believes nobody without a current list
        #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(i64).range(1..=3650))]
        days: i64,
    },
    /// Authority, server, auditor and every host of the site file: what of them is not there yet. With --force, all anew
    All {
        #[command(flatten)]
        place: Where,
        #[command(flatten)]
        token: Token,
    },
}

#[derive(Debug, Args)]
struct Token {
    /// The token, and the key in it, that the authority is to have, as a PKCS#11 URI (RFC 7512):
    /// pkcs11:token=NAME;object=NAME?module-path=/FILE&pin-source=/FILE. Where the authority of a federation is made with the site's, it
    /// has the key of that name with `-federation` behind it
    #[arg(long = "token", value_name = "URI", value_parser = enrol::Uri::parse)]
    uri: Option<enrol::Uri>,
}

#[derive(Debug, Args)]
struct Where {
    /// The site file
    site: PathBuf,
    /// Where keys, credentials, sessions, audit log and stores are kept [default: /var/lib/levee/NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Replace what is there: certificates issued before stop working
    #[arg(long)]
    force: bool,
    /// Encrypt the private keys that are made with a passphrase, which is asked for on the terminal or is the first line of
    /// standard input (behind that of the authority's key, where that one is encrypted)
    #[arg(long)]
    passphrase: bool,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

impl Enrol {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let done = match &self.what {
            What::Request { directory, host, server, keys, passphrase, force, json } => {
                let whose = if server.is_some() { Whose::Server } else { Whose::Host };
                let name = server.as_ref().or(host.as_ref()).map_or("", String::as_str);
                let passphrase = passphrase.then(|| asked("Passphrase of the new keys: ", true)).transpose();
                passphrase.and_then(|passphrase| {
                    let passphrase = passphrase.map(|passphrase| (passphrase, ROUNDS));
                    let written = request(directory, &whose, name, *keys, passphrase, *force);
                    written.map_err(|e| e.to_string()).and_then(|written| report(&written, *json))
                })
            }
            _ => self.enrol(),
        };
        output::exit(done.map(|()| ExitCode::SUCCESS))
    }

    /// Of which site, and whose keys, if one host's.
    fn place(&self) -> Option<(&Where, Option<&String>)> {
        match &self.what {
            What::Request { .. } => None,
            What::Host { host, place } | What::Ppk { host, place } => Some((place, Some(host))),
            What::Sign { place, host, server, .. } => Some((place, host.as_ref().or(server.as_ref()))),
            What::Channel { channel, place } => Some((place, Some(channel))),
            What::Server(place)
            | What::Etcd(place)
            | What::Authority { place, .. }
            | What::All { place, .. }
            | What::Revoke { place, .. }
            | What::Auditor { place, .. }
            | What::Rotate { place, .. } => Some((place, None)),
        }
    }

    /// Everything that needs the site file.
    fn enrol(&self) -> Result<(), String> {
        let (place, name) = self.place().ok_or("a request needs no site file")?;
        if let What::Rotate { what, host, finish, token, run, .. } = &self.what {
            let server = Which { run: run.clone() };
            return rotate(place, *what, host.as_deref(), *finish, token.uri.as_ref(), &server);
        }
        let token = match &self.what {
            What::Authority { token, .. } | What::All { token, .. } => token.uri.clone(),
            _ => None,
        };
        let tokens = Tokens::new(&pin_of);
        let done = facts(place).and_then(|(facts, state)| {
            // Nothing is made for one site among what another has.
            if state.join(pin::FILE).exists() {
                pin::hold(&crate::site::read(&place.site)?, &state)?;
            }
            let needs_none = match self.what {
                What::Authority { .. } | What::Ppk { .. } | What::Channel { .. } | What::Auditor { .. } => {
                    true
                }
                What::All { .. } => place.force,
                _ => false,
            };
            let authority_passphrase = if needs_none || !encrypted(&state.join("authority/ca.key")) {
                None
            } else {
                Some(asked("Passphrase of the authority's key: ", false)?)
            };
            let whose = match self.what {
                What::Ppk { .. } => "Passphrase of the server's keys: ",
                _ => "Passphrase of the new keys: ",
            };
            let passphrase = place.passphrase.then(|| asked(whose, true)).transpose()?;
            let authority_passphrase = match self.what {
                What::All { .. } => authority_passphrase.or_else(|| passphrase.clone()),
                _ => authority_passphrase,
            };
            let enroller = Enroller {
                state: &state,
                force: place.force,
                passphrase,
                rounds: ROUNDS,
                authority_passphrase,
                token,
                tokens: &tokens,
            };
            let _alone = enroller.alone().map_err(|e| e.to_string())?;
            let written = match (&self.what, name) {
                (What::Authority { .. }, _) => enroller.authority(&facts),
                (What::Server(_), _) => enroller.server(&facts),
                (What::Etcd(_), _) => enroller.etcd(&facts),
                (What::Auditor { public, .. }, _) => enroller.auditor(public.as_deref()),
                (What::Revoke { names, certificate, federation, days, .. }, _) => {
                    // A list of hosts is not begun for the servers' sake.
                    let hosts = !names.is_empty() || !certificate.is_empty() || federation.is_empty();
                    let hosts = hosts.then(|| enroller.revoke(names, certificate, *days));
                    let servers =
                        (!federation.is_empty()).then(|| enroller.revoke_servers(federation, *days));
                    let written: Result<Vec<_>, _> = hosts.into_iter().chain(servers).collect();
                    written.map(|written| written.concat())
                }
                (What::Sign { request, .. }, Some(name)) => enroller.sign(&facts, request, name),
                (What::Channel { .. }, Some(name)) => enroller.channel(&facts, name),
                (What::Host { .. }, Some(name)) => enroller.host(&facts, name),
                (What::Ppk { .. }, Some(name)) => {
                    let whose = format!("Passphrase of {name}'s keys: ");
                    let bundles = place.passphrase.then(|| asked(&whose, true)).transpose()?;
                    enroller.ppk(&facts, name, bundles)
                }
                _ => enroller.all(&facts),
            };
            let written = written.map_err(|e| site::named(&e.to_string(), &place.site))?;
            pin::hold(&crate::site::read(&place.site)?, &state)?;
            Ok(written)
        });
        done.and_then(|written| report(&written, place.json))
    }
}

/// What `levee enrol all SITE` does.
pub fn all(site: &Path, state: Option<&Path>) -> Result<(), String> {
    let place = Where {
        site: site.to_owned(),
        state: state.map(Path::to_owned),
        passphrase: false,
        force: false,
        json: false,
    };
    Enrol { what: What::All { place, token: Token { uri: None } } }.enrol()
}

/// Makes a new key in the place of one that is in use.
fn rotate(
    place: &Where,
    what: enrol::What,
    host: Option<&str>,
    finish: bool,
    token: Option<&enrol::Uri>,
    server: &Which,
) -> Result<(), String> {
    if token.is_some() && (finish || !what.is_authority()) {
        return Err(
            "--token says which key the next authority has: levee enrol rotate SITE authority --token URI"
                .to_owned(),
        );
    }
    if finish && !what.is_authority() && !matches!(what, enrol::What::Ppk | enrol::What::Channel) {
        return Err(
            "--finish ends the rotation of an authority, a PPK or a channel's key: levee enrol rotate SITE authority --finish"
                .to_owned(),
        );
    }
    if let (enrol::What::Ppk, Some(host)) = (what, host) {
        return rotate_ppk(place, host, finish);
    }
    if let (enrol::What::Channel, Some(channel)) = (what, host) {
        return rotate_channel(place, channel, finish, server);
    }
    if place.passphrase || place.force {
        return Err(
            "a key that is rotated stays encrypted, or not, as it is: leave out --passphrase and --force"
                .to_owned(),
        );
    }
    let (facts, state) = facts(place)?;
    pin::hold(&crate::site::read(&place.site)?, &state)?;
    let authority = what.needs_authority() && encrypted(&state.join("authority/ca.key"));
    let authority_passphrase =
        authority.then(|| asked("Passphrase of the authority's key: ", false)).transpose()?;
    let key = match (what, host) {
        (enrol::What::Host, Some(host)) => format!("hosts/{host}/device.key"),
        _ => "server/tls.key".to_owned(),
    };
    let has_none = what == enrol::What::Layer || what.is_authority();
    let is_encrypted = !has_none && encrypted(&state.join(key));
    let passphrase = is_encrypted.then(|| asked("Passphrase of the keys: ", false)).transpose()?;
    let tokens = Tokens::new(&pin_of);
    let enroller = Enroller {
        state: &state,
        force: false,
        passphrase,
        rounds: ROUNDS,
        authority_passphrase,
        token: token.cloned(),
        tokens: &tokens,
    };
    let done =
        if finish { enroller.finish_authority(&facts, what) } else { enroller.rotate(&facts, what, host) };
    let done = done.map_err(|e| e.to_string())?;
    let next = match (what, host) {
        (enrol::What::Host, Some(host)) | (_, Some(host)) => {
            format!("copy the bundle to {host}, then `levee reload` there, and here for the audit log")
        }
        (enrol::What::Authority, None) if !finish => "`levee reload` here; copy `authority.pem` to every host, and `levee reload` there; then rotate the \
                                                      server's keys and the hosts'; then --finish"
            .to_owned(),
        (enrol::What::FederationAuthority, None) if !finish => {
            "copy `authority/federation-ca.pem` to every server as `server/federation-authority.pem`, and to etcd, which is to be started \
             again; `levee reload` at each server; then rotate `federation` at each, and `levee enrol etcd SITE --force`; then --finish"
                .to_owned()
        }
        (enrol::What::LayerAuthority, None) if !finish => {
            "`levee reload` here; copy `layer/authority.pem` of each bundle to its host, and start that one again; then rotate `layer` here \
             and for each host; then --finish"
                .to_owned()
        }
        _ => "`levee reload` has a running server go on with it".to_owned(),
    };
    rotated(place, &done, &next)
}

/// The same for the PPK of a host. Each half stays encrypted as it is; a bundle without its half gets one, encrypted with --passphrase.
fn rotate_ppk(place: &Where, host: &str, finish: bool) -> Result<(), String> {
    let (facts, state) = facts(place)?;
    pin::hold(&crate::site::read(&place.site)?, &state)?;
    let encrypted = |file: String| {
        let text = std::fs::read_to_string(state.join(file)).map(zeroize::Zeroizing::new);
        text.map(|text| enrol::pki::is_encrypted_ppk(&text)).ok()
    };
    let tokens = Tokens::new(&pin_of);
    let enroller = |passphrase, force| Enroller {
        state: &state,
        force,
        passphrase,
        rounds: ROUNDS,
        authority_passphrase: None,
        token: None,
        tokens: &tokens,
    };
    if finish {
        let done = enroller(None, place.force).finish_ppk(&facts, host).map_err(|e| e.to_string())?;
        let next = "`levee reload` has a running server take it no more; until then it does";
        return rotated(place, &done, next);
    }
    let bundle = encrypted(format!("hosts/{host}/ppk.key"));
    if place.force || place.passphrase && bundle.is_some() {
        return Err(
            "a PPK that is rotated stays encrypted, or not, as it is: leave out --passphrase and --force"
                .to_owned(),
        );
    }
    let ours = encrypted(format!("server/ppk/{host}.key")).unwrap_or(false);
    let passphrase = ours.then(|| asked("Passphrase of the server's keys: ", false)).transpose()?;
    let theirs = bundle.unwrap_or(place.passphrase);
    let whose = format!("Passphrase of {host}'s keys: ");
    let bundle = theirs.then(|| asked(&whose, bundle.is_none())).transpose()?;
    let done = enroller(passphrase, false).rotate_ppk(&facts, host, bundle).map_err(|e| e.to_string())?;
    let next = format!(
        "`levee reload` here; copy the bundle's `ppk.key` to {host}, and `levee reload` there; once somebody has signed on there and opened \
         a session: --finish"
    );
    rotated(place, &done, &next)
}

/// The same for the key of a one-way channel.
fn rotate_channel(place: &Where, channel: &str, finish: bool, server: &Which) -> Result<(), String> {
    let (facts, state) = facts(place)?;
    pin::hold(&crate::site::read(&place.site)?, &state)?;
    if place.passphrase || place.force && !finish {
        return Err("a channel's key is in clear, and the one in use stays until --finish: leave out --passphrase and --force"
            .to_owned());
    }
    let tokens = Tokens::new(&pin_of);
    let enroller = Enroller {
        state: &state,
        force: place.force,
        passphrase: None,
        rounds: ROUNDS,
        authority_passphrase: None,
        token: None,
        tokens: &tokens,
    };
    if finish {
        let done = enroller.finish_channel(&facts, channel, &|key| has_opened(server, channel, key));
        let sends = facts.channels.iter().any(|one| one.name.as_str() == channel && one.sends);
        let next = if sends {
            "`levee reload` has a running server use it; then the same with --finish at the host that receives"
        } else {
            "`levee reload` has a running server take the old one no more; until then it does"
        };
        return rotated(place, &done.map_err(|e| e.to_string())?, next);
    }
    let done = enroller.rotate_channel(&facts, channel).map_err(|e| e.to_string())?;
    let next = format!(
        "copy {} to the same place at the other host; `levee reload` here and there, in any order; then --finish, first at the host that \
         sends",
        state.join("channels/next").join(format!("{channel}.key")).display()
    );
    rotated(place, &done, &next)
}

/// Whether a server has opened anything of a channel's with the key that is known by this. It says what it has counted when it was asked
/// before, so it is asked several times.
fn has_opened(server: &Which, channel: &str, key: &str) -> Result<bool, String> {
    let what = format!("channel {channel}: datagrams opened with the key {key}");
    for _ in 0..10 {
        if server.status()?.steering.iter().any(|(counted, count)| *counted == what && *count > 0) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(false)
}

/// Says what was done, and what is next.
fn rotated(place: &Where, done: &Rotated, next: &str) -> Result<(), String> {
    let Rotated { written, destroyed, said } = done;
    if place.json {
        let all = serde_json::json!({ "written": written, "destroyed": destroyed, "said": said });
        return output::raw(&format!("{all}\n"));
    }
    let line = |what: &str, path: &PathBuf| format!("{what} {}\n", path.display());
    let written = written.iter().map(|path| line("written", path));
    let destroyed = destroyed.iter().map(|path| line("destroyed: the old", path));
    output::said(&written.chain(destroyed).chain([format!("{said}\n{next}\n")]).collect::<String>())
}

/// A curve by its name.
fn curve(text: &str) -> Result<Curve, String> {
    [Curve::P256, Curve::P384]
        .into_iter()
        .find(|curve| curve.as_str() == text)
        .ok_or_else(|| "P-256 or P-384".to_owned())
}

/// Whether a private key is encrypted.
fn encrypted(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|text| crate::enrol::pki::is_encrypted(&text))
}

/// The PIN of a token of this name.
fn pin_of(token: &str) -> Result<Passphrase, String> {
    asked(&format!("PIN of the token {token}: "), false)
}

/// A passphrase, from the terminal or the next line of standard input.
pub fn asked(prompt: &str, new: bool) -> Result<Passphrase, String> {
    let stdin = std::io::stdin();
    let text = if stdin.is_terminal() {
        let once = ask(prompt)?;
        if new && *once != *ask("The same again: ")? {
            return Err("the two are not the same".to_owned());
        }
        once
    } else {
        line(stdin.lock())?
    };
    if text.is_empty() { Err("a passphrase cannot be empty".to_owned()) } else { Ok(text) }
}

fn facts(place: &Where) -> Result<(Facts, PathBuf), String> {
    let path = place.site.display();
    let text = std::fs::read_to_string(&place.site).map_err(|e| format!("{path}: {e}"))?;
    let site = Site::parse(&text).map_err(|problems| {
        let found = output::count(problems.len(), "problem", "problems");
        format!("{path} has {found}; `levee check {path}` shows each with its remedy")
    })?;
    let state = site::state(place.state.as_deref(), site.name());
    let accreditation = |host: &levee_policy::site::Host| {
        let range = site.vocabulary().print_range(host.accreditation());
        let (name, ppk) = (host.name().clone(), host.ppk().map(|ppk| ppk.id().clone()));
        range
            .map(|accreditation| HostFacts { name, accreditation, ppk, layered: host.is_layered() })
            .ok_or_else(|| format!("{}: no range", host.name()))
    };
    let facts = Facts {
        site: site.name().clone(),
        server: site.server().name().clone(),
        addresses: site.server().addresses().to_vec(),
        port: site.server().trusted_path_port(),
        keys: site.crypto().keys(),
        suites: site.crypto().suites(),
        layer_port: site.vault().has_second_tunnel().then(|| site.server().layer_port()),
        gateway: site.gateway().map(|gateway| GatewayFacts {
            addresses: gateway.addresses().to_vec(),
            inside: gateway.inside(),
        }),
        channels: (site.channels().iter().filter(|channel| channel.wire().is_some()))
            .map(|channel| ChannelFacts { name: channel.name().clone(), sends: channel.from().is_some() })
            .collect(),
        etcd: site.federation().map(|federation| {
            let addresses = federation.etcd().iter().map(std::net::SocketAddr::ip).collect();
            (federation.etcd_name().clone(), addresses)
        }),
        hosts: site.hosts().map(accreditation).collect::<Result<_, _>>()?,
    };
    Ok((facts, state))
}

fn report(written: &Written, json: bool) -> Result<(), String> {
    if let Some(key) = written.iter().find(|path| path.ends_with("auditor/auditor.key")) {
        eprintln!(
            "levee: {} is the auditor's alone: move it off this host (whoever has it, and is root here, can change the audit log)",
            key.display()
        );
    }
    if json {
        return output::raw(&format!("{}\n", serde_json::json!({ "written": written })));
    }
    if written.is_empty() {
        return output::said(
            "nothing is missing; `levee check SITE --state DIR` says whether it still fits the site file\n",
        );
    }
    output::said(&written.iter().map(|path| format!("{}\n", path.display())).collect::<String>())
}

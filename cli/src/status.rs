//! `levee status`: everything that runs on a server.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use levee_ipc::operator::{FederationStatus, InForce, ServerStatus, SessionStatus};
use levee_ipc::vault::{Carriage, Cipher, SaReport};
use levee_ipc::warden::{CompartmentStatus, PartitionStatus};
use levee_policy::site::{Mode, Placed};
use levee_policy::{LabelName, RangeName, UserName};
use serde::Serialize;

use crate::cost;
use crate::keys;
use crate::operator::Which;
use crate::output::{self, count, shown, size, some_milliseconds, table};
use crate::running::Running;
use crate::usage::{self, Daemon};
use levee_sys::cgroup::Usage;

/// Show what runs on a server: sessions, compartments, vaults, security associations, counters
#[derive(Debug, clap::Args)]
pub struct Status {
    #[command(flatten)]
    which: Which,
    /// Show it again every second
    #[arg(long)]
    watch: bool,
    /// Print JSON; with --watch, an object a line
    #[arg(long)]
    json: bool,
    /// Show what it costs instead: processor time, octets and packets, by label, session and role, and by session what it was to cost
    #[arg(long)]
    cost: bool,
}

/// A status as JSON has it: sessions only by the name that operators may know.
#[derive(Serialize)]
pub struct View<'a> {
    site: &'a str,
    session_count: u64,
    pub sessions: &'a [SessionStatus],
    compartments: &'a [CompartmentStatus],
    pub partitions: &'a [PartitionStatus],
    vaults: BTreeMap<&'a str, VaultView<'a>>,
    counters: BTreeMap<&'a str, u64>,
    steering: BTreeMap<&'a str, u64>,
    alarms: &'a [String],
    audit_records: u64,
    /// What is in force: the last that has a label counts there.
    postures: Vec<PostureView<'a>>,
    moving: bool,
    /// Whom an operator has disabled.
    disabled: &'a [UserName],
    #[serde(skip_serializing_if = "Option::is_none")]
    federation: Option<&'a FederationStatus>,
}

/// What is in force, and where.
#[derive(Serialize)]
pub struct PostureView<'a> {
    /// The posture, or `default`.
    name: &'a str,
    /// None: at all labels that it is for.
    ranges: Option<&'a [RangeName]>,
    left_ms: Option<u64>,
    /// It was not set: it is the floor of these labels, by the site file.
    floor: bool,
}

#[derive(Serialize)]
struct VaultView<'a> {
    counters: BTreeMap<&'a str, u64>,
    sa_count: u64,
    sas: Vec<SaView>,
}

#[derive(Serialize)]
struct SaView {
    session: String,
    inbound_spi: String,
    outbound_spi: String,
    suite: Cipher,
    /// Whether packets go in AGGFRAG payloads.
    aggfrag: bool,
    /// From one packet to the next, at a constant rate.
    #[serde(rename = "interval_ms", serialize_with = "some_milliseconds")]
    interval_us: Option<u64>,
    peer: Option<SocketAddr>,
    packets_received: u64,
    packets_sent: u64,
    bytes_received: u64,
    bytes_sent: u64,
}

/// With what only the kernel knows.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    view: View<'a>,
    daemons: &'a [Daemon],
    /// Certificates and revocation lists that end soon, or have ended.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    ending: &'a [String],
    /// The auditor's private key is on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    auditors_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    site_file: Option<&'a SiteFile>,
}

/// What was found out beside what the server says.
struct Asked {
    status: ServerStatus,
    daemons: Vec<Daemon>,
    ending: Vec<String>,
    auditors_key: Option<String>,
    site_file: Option<SiteFile>,
}

impl Asked {
    fn whole(&self) -> Whole<'_> {
        let (daemons, ending, site_file) = (&self.daemons, &self.ending, self.site_file.as_ref());
        Whole {
            view: view(&self.status),
            daemons,
            ending,
            auditors_key: self.auditors_key.as_deref(),
            site_file,
        }
    }

    fn render(&self) -> String {
        let warnings = self.ending.iter().chain(&self.auditors_key);
        warnings.map(|one| format!("warning: {}\n", shown(one))).collect::<String>()
            + &render(&self.status, self.site_file.as_ref())
            + &processes(&self.daemons)
    }
}

/// What runs without a process of its own: the site file says it, and a server does not.
#[derive(Serialize)]
struct SiteFile {
    /// The services of mode `handoff` at each label that runs: each of their connections has a process.
    handoff: BTreeMap<String, Vec<String>>,
    networks: Vec<NetworkView>,
}

#[derive(Serialize)]
struct NetworkView {
    interface: String,
    labels: String,
    addresses: Vec<String>,
}

impl SiteFile {
    /// As the server has read it; `None` where the file has changed since.
    fn of(run: &Path, status: &ServerStatus) -> Option<Self> {
        let running = Running::of(run).ok().filter(|running| !running.is_changed(run))?;
        let site = crate::site::read(&running.config).ok()?;
        let handoff = status.compartments.iter().map(|compartment| {
            let label = site.label(&compartment.label);
            let at = label.iter().flat_map(|label| site.services_at(label));
            let is_off = |name: &str| compartment.off.iter().any(|(off, _)| off == name);
            let theirs = at.filter(|service| matches!(service.mode(), Mode::Handoff(_)));
            let names = theirs.map(|service| service.name().to_string()).filter(|name| !is_off(name));
            (compartment.label.to_string(), names.collect())
        });
        let networks = site.networks().iter().filter_map(|network| {
            Some(NetworkView {
                interface: network.interface().to_string(),
                labels: site.vocabulary().print_range(network.labels())?,
                addresses: network.addresses().iter().map(ToString::to_string).collect(),
            })
        });
        Some(Self { handoff: handoff.collect(), networks: networks.collect() })
    }

    fn handoff(&self, label: &LabelName) -> impl Iterator<Item = String> {
        let names = self.handoff.get(label.as_str()).into_iter().flatten();
        names.map(|name| format!("{name} (handoff)"))
    }
}

impl Status {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(self.show())
    }

    fn show(&self) -> Result<ExitCode, String> {
        if self.cost {
            return self.show_cost();
        }
        if self.watch {
            return output::watch(|| {
                let asked = self.ask()?;
                if self.json {
                    return output::json_line(&asked.whole());
                }
                Ok(format!("{}{}", clear(), asked.render()))
            });
        }
        let asked = self.ask()?;
        if self.json {
            output::json(&asked.whole())?;
        } else {
            output::print(&asked.render())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show_cost(&self) -> Result<ExitCode, String> {
        // The server is asked first: that only root may is its socket's to say.
        let ledger = || cost::Ledger::take(&self.which.status()?, &self.which.prices()?, &self.which.run()?);
        if self.watch {
            return output::watch(|| match self.json {
                true => output::json_line(&ledger()?),
                false => Ok(format!("{}{}", clear(), ledger()?.render())),
            });
        }
        let ledger = ledger()?;
        if self.json {
            output::json(&ledger)?;
        } else {
            output::print(&ledger.render())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn ask(&self) -> Result<Asked, String> {
        let (status, run) = (self.which.status()?, self.which.run()?);
        let daemons = usage::daemons(&run, &status.compartments)?;
        let site_file = SiteFile::of(&run, &status);
        // What cannot be read is `levee check`'s to say.
        let running = Running::of(&run).ok();
        let state = running.as_ref().and_then(Running::state);
        let site = running.as_ref().and_then(|server| crate::site::read(&server.config).ok());
        let ending = site.zip(state).map(|(site, state)| keys::ending(&site, state));
        let auditors_key = state.and_then(keys::auditors_key);
        Ok(Asked { status, daemons, ending: ending.unwrap_or_default(), auditors_key, site_file })
    }
}

/// The status as JSON has it.
pub fn view(status: &ServerStatus) -> View<'_> {
    View {
        site: status.site.as_str(),
        session_count: status.session_count,
        sessions: &status.sessions,
        compartments: &status.compartments,
        partitions: &status.partitions,
        vaults: (status.vaults.iter())
            .map(|(label, report)| {
                let sas = (report.sas.iter())
                    .map(|sa| SaView {
                        session: sa.session.to_string(),
                        inbound_spi: format!("{:08x}", sa.inbound_spi),
                        outbound_spi: format!("{:08x}", sa.outbound_spi),
                        suite: sa.cipher,
                        aggfrag: sa.carriage.aggregates(),
                        interval_us: microseconds(sa.carriage),
                        peer: sa.peer,
                        packets_received: sa.packets.0,
                        packets_sent: sa.packets.1,
                        bytes_received: sa.bytes.0,
                        bytes_sent: sa.bytes.1,
                    })
                    .collect();
                let vault = VaultView { counters: map(&report.counters), sa_count: report.sa_count, sas };
                (label.as_str(), vault)
            })
            .collect(),
        counters: map(&status.counters),
        steering: map(&status.steering),
        alarms: &status.alarms,
        audit_records: status.audit_records,
        postures: posture_views(status),
        moving: status.moving,
        disabled: &status.disabled,
        federation: status.federation.as_ref(),
    }
}

/// What has a terminal begin anew. Who reads from a pipe wants no orders to a terminal.
fn clear() -> &'static str {
    if std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" }
}

fn map(counters: &[(String, u64)]) -> BTreeMap<&str, u64> {
    counters.iter().map(|(name, value)| (name.as_str(), *value)).collect()
}

/// What each of levee's processes uses of what it may.
fn processes(daemons: &[Daemon]) -> String {
    let of = |now: String, most: Option<String>| most.map_or(now.clone(), |most| format!("{now} of {most}"));
    let row = |daemon: &Daemon| {
        vec![
            daemon.label.clone().unwrap_or_else(|| "-".to_owned()),
            daemon.name.clone(),
            daemon.pid.to_string(),
            of(size(daemon.memory), daemon.memory_limit.map(size)),
            of(daemon.processes.to_string(), daemon.process_limit.map(|most| most.to_string())),
        ]
    };
    let heading = ["LABEL", "PROCESS", "PID", "MEMORY", "PROCESSES"];
    format!("\nprocesses of levee\n{}", table(&heading, daemons.iter().map(row).collect()))
}

fn addresses(list: &[IpAddr]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn time(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match () {
        () if days > 0 => format!("{days}d{}h", hours % 24),
        () if hours > 0 => format!("{hours}h{}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m{}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

/// What was asked of its tunnel.
fn protections(session: &SessionStatus) -> String {
    let names: Vec<&str> = session.protections.iter().map(|name| name.as_str()).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(" ") }
}

/// The sessions as a table.
pub fn sessions(status: &ServerStatus) -> String {
    let rows = status.sessions.iter().map(|session| {
        vec![
            session.id.clone(),
            session.user.to_string(),
            session.host.to_string(),
            session.label.to_string(),
            protections(session),
            addresses(&session.inner),
            time(session.age_ms / 1_000),
            match (session.attached, session.locked) {
                (true, false) => "attached",
                (true, true) => "attached, locked",
                (false, false) => "trusted path lost",
                (false, true) => "trusted path lost, locked",
            }
            .to_owned(),
        ]
    });
    let mut out = table(
        &["SESSION", "USER", "HOST", "LABEL", "PROTECTION", "ADDRESS", "SIGNED ON", "TRUSTED PATH"],
        rows.collect(),
    );
    let more = status.session_count.saturating_sub(status.sessions.len() as u64);
    if more > 0 {
        out.push_str(&format!("  and {more} more\n"));
    }
    out
}

/// The partitions as a table.
pub fn partitions(partitions: &[PartitionStatus]) -> String {
    let rows = partitions.iter().map(|partition| {
        let PartitionStatus { name, label, state, init, age_ms, starts, weight, cpu_percent, reserved } =
            partition;
        // What the kernel says of a process that has just ended is nothing.
        let used = Usage::of(*init).ok().filter(|_| *init > 0);
        let memory = used.map(|usage| {
            let (now, most) = usage.memory;
            most.map_or_else(|| size(now), |most| format!("{} of {}", size(now), size(most)))
        });
        vec![
            name.to_string(),
            label.to_string(),
            if *init > 0 { time(*age_ms / 1_000) } else { "-".to_owned() },
            starts.to_string(),
            format!("{weight}, {cpu_percent}%"),
            memory.unwrap_or_else(|| "-".to_owned()),
            size(*reserved),
            state.clone(),
        ]
    });
    let heading = ["PARTITION", "LABEL", "SINCE", "STARTS", "WEIGHT, CPU", "MEMORY", "RESERVED", "STATE"];
    table(&heading, rows.collect())
}

impl<'a> PostureView<'a> {
    fn of(what: &'a Placed, left_ms: Option<u64>, floor: bool) -> Self {
        Self { name: what.name(), ranges: what.labels.as_deref(), left_ms, floor }
    }
}

/// What is in force, as JSON has it.
pub fn posture_views(status: &ServerStatus) -> Vec<PostureView<'_>> {
    let set = status.postures.iter().map(|one| PostureView::of(&one.what, one.left_ms, false));
    set.chain(status.floors.iter().map(|floor| PostureView::of(floor, None, true))).collect()
}

/// What is in force, a line each.
pub fn postures(status: &ServerStatus) -> String {
    let line = |one: &InForce| {
        let left = one.left_ms.map_or_else(String::new, |left| format!(", {} s more", left / 1_000));
        format!("  {}{left}\n", one.what)
    };
    let mut out: String = status.postures.iter().map(line).collect();
    if out.is_empty() {
        out.push_str("  default\n");
    }
    out.extend(status.floors.iter().map(|floor| format!("  at least {floor}\n")));
    if status.moving {
        out.push_str("  a change is under way\n");
    }
    out
}

/// What somebody is to look at, a line each. Also what comes from inside a compartment may be in one: no line pretends to be another.
fn alarms(status: &ServerStatus) -> String {
    let mut all = Vec::new();
    for (label, report) in status.vaults.iter().rev().filter(|(_, report)| report.disagreed() > 0) {
        all.push(format!(
            "the redundant stacks at {label} disagreed about {} packets, and dropped them: one of the two is wrong \
             or taken over; see `levee audit`, and replace levee's programs",
            report.disagreed()
        ));
    }
    all.extend(status.alarms.iter().map(|alarm| shown(alarm).to_string()));
    if let Some(strange) = status.federation.as_ref().map(|f| f.strange).filter(|strange| *strange > 0) {
        all.push(format!(
            "{strange} times the servers' table in etcd had something that no server of the site writes: somebody else has \
             a key to it; see `levee enrol etcd --help`"
        ));
    }
    all.iter().map(|alarm| format!("ALARM: {alarm}\n")).collect()
}

/// Whom an operator has disabled, where there is anybody.
fn disabled(people: &[UserName]) -> String {
    let names: Vec<&str> = people.iter().map(UserName::as_str).collect();
    if names.is_empty() { String::new() } else { format!("\ndisabled\n  {}\n", names.join(" ")) }
}

fn render(status: &ServerStatus, site_file: Option<&SiteFile>) -> String {
    let mut out = format!(
        "site {}: {}, {}, {}\n\nsessions\n{}",
        status.site,
        count(status.session_count, "session", "sessions"),
        count(status.compartments.len(), "compartment", "compartments"),
        count(status.audit_records, "audit record", "audit records"),
        sessions(status)
    );
    if !status.postures.is_empty() || !status.floors.is_empty() || status.moving {
        out.push_str(&format!("\nposture\n{}", postures(status)));
    }
    out.push_str(&disabled(&status.disabled));
    if let Some(federation) = &status.federation {
        out.push_str(&match federation.member {
            true => format!(
                "\nfederation\n  member, with {}; {} of theirs\n",
                federation.others.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
                count(federation.theirs, "session", "sessions")
            ),
            false => "\nfederation\n  cut off: without a lease no session can be\n".to_owned(),
        });
    }
    out.insert_str(0, &alarms(status));
    let compartments = status.compartments.iter().map(|compartment| {
        let is_off = |name: &String| compartment.off.iter().any(|(off, _)| off == name);
        let on = compartment.services.iter().filter(|(name, _)| !is_off(name));
        let services = on.map(|(name, starts)| match starts {
            1 => name.clone(),
            _ => format!("{name} ({starts} starts)"),
        });
        let services =
            services.chain(compartment.off.iter().map(|(name, why)| format!("{name} (off: {why})")));
        let handoff = site_file.into_iter().flat_map(|file| file.handoff(&compartment.label));
        vec![
            compartment.label.to_string(),
            compartment.form.to_string(),
            compartment.slot.to_string(),
            compartment.init.to_string(),
            compartment.vault.to_string(),
            compartment.vault_starts.to_string(),
            time(compartment.age_ms / 1_000),
            services.chain(handoff).collect::<Vec<_>>().join(" "),
        ]
    });
    let heading = ["LABEL", "FORM", "SLOT", "INIT", "VAULT", "VAULT STARTS", "SINCE", "SERVICES"];
    out.push_str(&format!("\ncompartments\n{}", table(&heading, compartments.collect())));
    let networks = site_file.into_iter().flat_map(|file| &file.networks);
    let networks =
        networks.map(|one| vec![one.interface.clone(), one.labels.clone(), one.addresses.join(" ")]);
    let networks: Vec<_> = networks.collect();
    if !networks.is_empty() {
        out.push_str(&format!("\nnetworks\n{}", table(&["INTERFACE", "LABELS", "ADDRESSES"], networks)));
    }
    let sas = status.vaults.iter().flat_map(|(label, report)| {
        report.sas.iter().map(|sa| {
            vec![
                label.to_string(),
                sa.session.to_string(),
                format!("{:08x}", sa.inbound_spi),
                format!("{:08x}", sa.outbound_spi),
                suite(sa),
                sa.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string()),
                format!("{}/{}", sa.packets.0, sa.packets.1),
                format!("{}/{}", sa.bytes.0, sa.bytes.1),
            ]
        })
    });
    let heading =
        ["LABEL", "SESSION", "SPI IN", "SPI OUT", "SUITE", "PEER", "PACKETS IN/OUT", "BYTES IN/OUT"];
    if !status.partitions.is_empty() {
        out.push_str(&format!("\npartitions\n{}", partitions(&status.partitions)));
    }
    out.push_str(&format!("\nsecurity associations\n{}", table(&heading, sas.collect())));
    let rows = crate::counters::rows(status);
    out.push_str(&format!("\ncounters\n{}", table(&["OF", "WHAT", "COUNT", "MEANS"], rows)));
    out
}

fn microseconds(carriage: Carriage) -> Option<u64> {
    carriage.interval().and_then(|time| u64::try_from(time.as_micros()).ok())
}

/// What a pair's packets are sealed by, and how they go where that is not one by one.
fn suite(sa: &SaReport) -> String {
    match (microseconds(sa.carriage), sa.carriage.aggregates()) {
        (Some(us), _) => format!("{}, one in {us} us", sa.cipher),
        (None, true) => format!("{}, AGGFRAG", sa.cipher),
        (None, false) => sa.cipher.to_string(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use levee_ipc::vault::Report;
    use levee_ipc::warden::IsolationForm;
    use levee_policy::site::Placed;
    use levee_session::SessionId;

    pub fn status() -> ServerStatus {
        let label: levee_policy::LabelName = "SECRET//NATO".parse().unwrap();
        ServerStatus {
            site: "harbour".parse().unwrap(),
            sessions: vec![SessionStatus {
                id: "070707070707".into(),
                user: "ada".parse().unwrap(),
                host: "ws1".parse().unwrap(),
                label: label.clone(),
                inner: vec!["10.80.1.1".parse().unwrap()],
                age_ms: 3_725_900,
                attached: false,
                locked: false,
                protections: Vec::new(),
            }],
            session_count: 3,
            partitions: Vec::new(),
            compartments: vec![CompartmentStatus {
                label: label.clone(),
                form: IsolationForm::Machine,
                slot: 7,
                init: 100,
                vault: 101,
                age_ms: 61_000,
                services: vec![("web".into(), 1), ("mail".into(), 3)],
                off: vec![("orders".into(), "posture `siege` has `orders` off".into())],
                vault_starts: 2,
                counters: vec![("documents not given upward: leased".into(), 4)],
            }],
            vaults: vec![(
                label,
                Report {
                    counters: vec![("replay".into(), 2), ("quiet".into(), 0)],
                    sas: vec![SaReport {
                        session: SessionId::from_random([7; 16]),
                        inbound_spi: 0x0010_0001,
                        outbound_spi: 1,
                        cipher: Cipher::Aes256Gcm,
                        carriage: Carriage::Aggfrag,
                        peer: None,
                        packets: (5, 6),
                        bytes: (500, 600),
                    }],
                    sa_count: 1,
                    held: [levee_ipc::vault::Held { packets: 4, nanoseconds: 50_400 }, Default::default()],
                },
            )],
            counters: vec![("a wrong password".into(), 5)],
            steering: vec![("an SPI that none may have".into(), 6)],
            alarms: Vec::new(),
            audit_records: 12,
            postures: Vec::new(),
            floors: Vec::new(),
            moving: false,
            disabled: Vec::new(),
            federation: None,
        }
    }

    #[test]
    fn what_is_in_force_is_shown_with_its_labels_and_what_is_left() {
        let mut status = status();
        let of = |posture: Option<&str>, labels: Option<&[&str]>, left_ms| InForce {
            what: Placed {
                posture: posture.map(|name| name.parse().unwrap()),
                labels: labels.map(|all| all.iter().map(|range| range.parse().unwrap()).collect()),
            },
            left_ms,
        };
        status.postures = vec![
            of(Some("siege"), None, None),
            of(Some("quiet"), Some(&["SECRET", "LOW..SECRET//NATO"]), Some(9_999)),
            of(None, Some(&["LOW"]), None),
        ];
        let shown = "  siege\n  quiet at SECRET and LOW..SECRET//NATO, 9 s more\n  default at LOW\n";
        assert_eq!(postures(&status), shown);
        assert_eq!(
            serde_json::to_value(posture_views(&status)).unwrap(),
            serde_json::json!([
                {"name": "siege", "ranges": null, "left_ms": null, "floor": false},
                {"name": "quiet", "ranges": ["SECRET", "LOW..SECRET//NATO"], "left_ms": 9_999, "floor": false},
                {"name": "default", "ranges": ["LOW"], "left_ms": null, "floor": false},
            ])
        );
        status.postures.clear();
        assert_eq!(postures(&status), "  default\n");
        status.floors = vec![of(Some("alert"), Some(&["SECRET"]), None).what];
        assert_eq!(postures(&status), "  default\n  at least alert at SECRET\n");
        let floor =
            serde_json::json!([{"name": "alert", "ranges": ["SECRET"], "left_ms": null, "floor": true}]);
        assert_eq!(serde_json::to_value(posture_views(&status)).unwrap(), floor);
    }

    #[test]
    fn what_runs_is_shown_in_tables_that_line_up() {
        let text = render(&status(), None);
        assert!(text.starts_with("site harbour: 3 sessions, 1 compartment, 12 audit records\n"), "{text}");
        assert!(
            text.contains(
                "  SESSION       USER  HOST  LABEL         PROTECTION  ADDRESS    SIGNED ON  TRUSTED PATH\n  \
             070707070707  ada   ws1   SECRET//NATO  -           10.80.1.1  1h2m       trusted path lost\n  and 2 more\n"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "  SECRET//NATO  machine  7     100   101    2             1m1s   web mail (3 starts) orders (off: posture `siege` has `orders` off)\n"
            ),
            "{text}"
        );
        assert!(text.contains("00100001  00000001  aes-256-gcm, AGGFRAG  "), "{text}");
        // Every counter, whoever counts it.
        let counters: Vec<String> = text
            .lines()
            .skip_while(|line| *line != "counters")
            .skip(2)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let all = [
            "sessiond a wrong password 5",
            "outside an SPI that none may have 6",
            "compartment SECRET//NATO documents not given upward: leased 4",
            "vault SECRET//NATO replay 2 Inbound: sequence number seen already or behind the window (RFC 4303 3.4.3).",
        ];
        assert_eq!(counters, all);
        assert!(!text.contains("quiet"), "{text}");
    }

    #[test]
    fn of_what_there_is_none_that_is_said_and_no_bare_heading_shown() {
        let mut empty = status();
        empty.sessions.clear();
        empty.compartments.clear();
        empty.vaults.clear();
        empty.counters.clear();
        empty.steering.clear();
        let text = render(&empty, None);
        for what in ["sessions", "compartments", "security associations", "counters"] {
            assert!(text.contains(&format!("\n{what}\n  none\n")), "{what}: {text}");
        }
        assert_eq!(partitions(&empty.partitions), "  none\n");
    }

    #[test]
    fn stacks_that_disagreed_are_an_alarm_above_everything_else() {
        assert!(!render(&status(), None).contains("ALARM"));
        let mut wrong = status();
        wrong.vaults[0].1.counters.push((Report::DISAGREED.into(), 3));
        let text = render(&wrong, None);
        assert!(
            text.starts_with("ALARM: the redundant stacks at SECRET//NATO disagreed about 3 packets"),
            "{text}"
        );
    }

    #[test]
    fn the_whole_name_of_a_session_is_never_shown_for_it_is_half_of_what_re_attaches() {
        let whole = "07".repeat(16);
        let json = serde_json::to_string(&view(&status())).unwrap();
        let numbers = serde_json::to_string(&[7u8; 16]).unwrap();
        for text in [render(&status(), None), json.clone()] {
            assert!(!text.contains(&whole) && !text.contains(&numbers), "{text}");
        }
        assert!(json.contains("\"session\":\"070707070707\""), "{json}");
    }
}

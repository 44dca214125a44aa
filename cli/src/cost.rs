//! `levee status --cost`: what a server's processes have used, by label, session and role. Nothing counts for it: the kernel's control
//! groups and the vaults' own counters are read when somebody asks.

mod predicted;
mod used;

use self::predicted::{Forecast, SessionCost};
use self::used::{Latency, Time, Traffic, seconds};
use crate::output::table;
use crate::usage;
use levee_ipc::operator::{Priced, ServerStatus};
use levee_ipc::vault::Report;
use levee_prices::{Date, Unpriced};
use levee_sys::cgroup::Processor;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Microseconds of a tick in `/proc/PID/stat`: `USER_HZ` is 100 (proc_pid_stat(5)).
const TICK: u64 = 10_000;
/// So often the processes are looked at again where one of them ended meanwhile.
const TRIES: u32 = 16;

/// What a server's processes have used since it started.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Ledger {
    site: String,
    /// The server's processes, and those of them that have ended; but for services that were killed with their label: the kernel does
    /// not keep what they used (`zap_pid_ns_processes` has nobody wait for them).
    processor: Time,
    /// Who used it; their sum is `processor`.
    roles: Vec<RoleCost>,
    labels: BTreeMap<String, LabelCost>,
    sessions: Vec<SessionCost>,
    /// When the prices were measured by which sessions' costs are predicted, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    prices_measured: Option<u64>,
    audit_records: u64,
}

/// The processes of one role at one label, or of none.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RoleCost {
    role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    #[serde(flatten)]
    time: Time,
}

/// A label that runs, its processes' sum: since each was started.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct LabelCost {
    #[serde(flatten)]
    time: Time,
    #[serde(flatten)]
    traffic: Traffic,
    #[serde(flatten)]
    latency: Latency,
}

impl Ledger {
    /// Reads it.
    ///
    /// # Errors
    /// Why the server's warden is not found, or that its processes ended faster than they could be counted.
    pub fn take(status: &ServerStatus, priced: &Priced, run: &Path) -> Result<Self, String> {
        let warden = usage::warden(run)?;
        for _ in 0..TRIES {
            let (_, ended) = times(warden)?;
            let children = usage::children(warden)?;
            let roles: Result<Vec<RoleCost>, String> =
                children.into_iter().map(|pid| used_by(pid, status)).collect();
            let (own, after) = times(warden)?;
            // What has ended meanwhile would be counted twice, or not at all.
            let Some(mut roles) = roles.ok().filter(|_| after == ended) else { continue };
            roles.push(role("warden", own));
            roles.push(role("ended", ended));
            return Ok(Self::of(status, priced, roles));
        }
        Err("the server's processes end faster than they can be counted; try again".to_owned())
    }

    fn of(status: &ServerStatus, priced: &Priced, roles: Vec<RoleCost>) -> Self {
        let mut sums: BTreeMap<(Option<String>, Option<String>, String), Time> = BTreeMap::new();
        for RoleCost { role, label, partition, time } in roles {
            let sum = sums.entry((label, partition, role)).or_default();
            *sum = sum.and(time);
        }
        let mut labels: BTreeMap<String, LabelCost> = BTreeMap::new();
        for ((label, ..), time) in &sums {
            if let Some(label) = label {
                let label = labels.entry(label.clone()).or_default();
                label.time = label.time.and(*time);
            }
        }
        let mut sessions: BTreeMap<(String, String), Traffic> = BTreeMap::new();
        for (label, report) in &status.vaults {
            let of = labels.entry(label.to_string()).or_default();
            (of.traffic, of.latency) = (passed(report), Latency::of(&report.held));
            for sa in &report.sas {
                let sum = sessions.entry((label.to_string(), sa.session.to_string())).or_default();
                sum.packets_in = sum.packets_in.saturating_add(sa.packets.0);
                sum.packets_out = sum.packets_out.saturating_add(sa.packets.1);
                sum.octets_in = sum.octets_in.saturating_add(sa.bytes.0);
                sum.octets_out = sum.octets_out.saturating_add(sa.bytes.1);
            }
        }
        let forecast = Forecast::Unknown { unpredicted: Unpriced::Absent };
        let mut sessions: Vec<SessionCost> = (sessions.into_iter())
            .map(|((label, id), traffic)| SessionCost { id, label, traffic, forecast })
            .collect();
        let none = Traffic::default();
        predicted::put(&mut sessions, status, priced, |label| {
            let of = sums.iter().filter(|((at, _, role), _)| at.as_deref() == Some(label) && role == "vault");
            let time = of.fold(Time::default(), |sum, (_, time)| sum.and(*time));
            (time, labels.get(label).map_or(&none, |of| &of.traffic))
        });
        Self {
            site: status.site.to_string(),
            processor: sums.values().fold(Time::default(), |sum, time| sum.and(*time)),
            roles: (sums.into_iter())
                .map(|((label, partition, role), time)| RoleCost { role, label, partition, time })
                .collect(),
            labels,
            sessions,
            prices_measured: priced.prices.as_ref().ok().map(|prices| prices.measured.saturating_mul(1_000)),
            audit_records: status.audit_records,
        }
    }

    /// As tables.
    pub fn render(&self) -> String {
        let all = self.processor.sum();
        let cells = |time: Time| {
            // In tenths of a percent; of nothing, nothing.
            let share = time.sum().saturating_mul(1_000).checked_div(all).unwrap_or(0);
            [
                seconds(time.sum()),
                seconds(time.user_us),
                seconds(time.system_us),
                format!("{}.{}%", share / 10, share % 10),
            ]
        };
        let traffic = |of: &Traffic| {
            [format!("{}/{}", of.packets_in, of.packets_out), format!("{}/{}", of.octets_in, of.octets_out)]
        };
        let or = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
        let roles = self.roles.iter().map(|row| {
            let place = match &row.partition {
                Some(partition) => format!("{} ({partition})", or(&row.label)),
                None => or(&row.label),
            };
            [place, row.role.clone()].into_iter().chain(cells(row.time)).collect()
        });
        let roles =
            table(&["LABEL", "ROLE", "SECONDS", "IN PROGRAMS", "IN THE KERNEL", "SHARE"], roles.collect());
        let labels = self.labels.iter().map(|(label, of)| {
            let of = cells(of.time).into_iter().chain(traffic(&of.traffic)).chain([of.latency.to_string()]);
            std::iter::once(label.clone()).chain(of).collect()
        });
        let heading = [
            "LABEL",
            "SECONDS",
            "IN PROGRAMS",
            "IN THE KERNEL",
            "SHARE",
            "PACKETS IN/OUT",
            "OCTETS IN/OUT",
            "MICROSECONDS IN THE VAULT IN/OUT",
        ];
        let labels = table(&heading, labels.collect());
        let sessions = self.sessions.iter().map(|session| {
            let who = [session.label.clone(), session.id.clone()].into_iter();
            who.chain(traffic(&session.traffic)).chain(session.forecast.cells()).collect()
        });
        let heading =
            ["LABEL", "SESSION", "PACKETS IN/OUT", "OCTETS IN/OUT", "PREDICTED", "USED", "USED/PREDICTED"];
        let sessions = table(&heading, sessions.collect()) + &self.told();
        format!(
            "site {}: {} seconds of processor time, {} audit records\n\nby role\n{roles}\nby label\n{labels}\nby session, under its keys of now\n{sessions}",
            self.site,
            seconds(all),
            self.audit_records,
        )
    }
}

impl Ledger {
    /// By what is predicted, and why it is not where it is not.
    fn told(&self) -> String {
        let mut lines = Vec::new();
        if let Some(measured) = self.prices_measured {
            lines.push(format!(
                "predicted: seconds of the label's vault by the laboratory's prices of {}, in streams to packet by packet; used: the session's \
                 share of its label's vault\n",
                Date(measured / 1_000)
            ));
        }
        for session in &self.sessions {
            let line = session.forecast.unknown().map(|why| format!("no prediction: {why}\n"));
            lines.extend(line.filter(|line| !lines.contains(line)));
        }
        lines.concat()
    }
}

fn role(name: &str, time: Time) -> RoleCost {
    RoleCost { role: name.to_owned(), label: None, partition: None, time }
}

/// What a vault has let pass since it started.
fn passed(report: &Report) -> Traffic {
    let of = |name: &str| report.counters.iter().find(|(counter, _)| counter == name).map_or(0, |(_, n)| *n);
    Traffic {
        packets_in: of("packets-in"),
        packets_out: of("packets-out"),
        octets_in: of("bytes-in"),
        octets_out: of("bytes-out"),
    }
}

/// What a child of the warden's has used, and who it is. All but the makers of images have a control group for them and theirs alone.
fn used_by(pid: u32, status: &ServerStatus) -> Result<RoleCost, String> {
    let used = Processor::of(pid).ok().filter(|used| used.group.starts_with("levee/"));
    let Some(Processor { group, user, system }) = used else {
        let (own, ended) = times(pid)?;
        return Ok(role("maker", own.and(ended)));
    };
    let time = Time { user_us: user, system_us: system };
    if let Some((name, label)) = usage::whose(&group, &status.compartments) {
        return Ok(RoleCost { label: label.map(ToString::to_string), ..role(name, time) });
    }
    if let Some(partition) = status.partitions.iter().find(|partition| partition.init == pid) {
        let (label, partition) = (partition.label.to_string(), partition.name.to_string());
        return Ok(RoleCost { label: Some(label), partition: Some(partition), ..role("partition", time) });
    }
    let label = status.compartments.iter().find(|compartment| compartment.init == pid);
    Ok(RoleCost { label: label.map(|compartment| compartment.label.to_string()), ..role("services", time) })
}

/// What a process has used itself, and its children that have ended with theirs.
fn times(pid: u32) -> Result<(Time, Time), String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    parse_times(&text).ok_or_else(|| format!("{path}: it does not say what the process has used"))
}

fn parse_times(stat: &str) -> Option<(Time, Time)> {
    // The name stands in parentheses, and may hold any octet itself.
    let (_, after) = stat.rsplit_once(')')?;
    // utime, stime, cutime and cstime: the 14th field to the 17th.
    let mut fields = after.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok()?.checked_mul(TICK);
    let own = Time { user_us: next()?, system_us: next()? };
    Some((own, Time { user_us: next()?, system_us: next()? }))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use levee_prices::{Book, Carried, Host};

    fn row(name: &str, label: Option<&str>, user_us: u64, system_us: u64) -> RoleCost {
        RoleCost { label: label.map(str::to_owned), ..role(name, Time { user_us, system_us }) }
    }

    /// Prices of AES-256-GCM, and that every session's packets go like this.
    pub fn priced(status: &ServerStatus, carried: Option<Carried>) -> Priced {
        let here = Host::of("processor: 0\n", "6.1");
        let Host { processor, processors, kernel, levee } = &here;
        let text = format!(
            "version = 1\nmeasured = 86400\n[host]\nprocessor = {processor:?}\nprocessors = {processors}\nkernel = {kernel:?}\nlevee = {levee:?}\n\
             [[price]]\ncipher = \"aes-256-gcm\"\ngigabyte = [1, 40000000, 50000000]\npacket = [1, 5000, 6000]\n\
             [[price]]\ncipher = \"aes-256-gcm\"\ninterval = 4000\nstanding = [1, 2, 3]\n\
             [[price]]\ncipher = \"chacha20-poly1305\"\ngigabyte = [60000000, 60000000, 60000000]\n"
        );
        let prices = Book::read(Some(text.as_bytes()), &here).at(86_400).cloned();
        Priced { prices, sessions: status.sessions.iter().map(|one| (one.id.clone(), carried)).collect() }
    }

    #[test]
    fn what_a_session_was_to_cost_is_beside_its_share_of_what_its_vault_used() {
        let mut status = crate::status::tests::status();
        let passed = [("bytes-in", 1_000), ("bytes-out", 1_200)].map(|(name, n)| (name.to_owned(), n));
        status.vaults[0].1.counters.extend(passed);
        let ledger = |status: &ServerStatus, priced: &Priced| {
            let roles = ["SECRET//NATO", "PUBLIC"].map(|label| row("vault", Some(label), 60, 40));
            Ledger::of(
                status,
                priced,
                roles.into_iter().chain([row("services", Some("SECRET//NATO"), 9, 9)]).collect(),
            )
        };
        let of = |ledger: &Ledger| serde_json::to_value(&ledger.sessions[0]).unwrap();
        // 1,100 octets at 40 s a gigabyte, or eleven packets at 5 µs; half of the vault's octets were this session's.
        let each = priced(&status, Some(Carried::Each));
        let known = of(&ledger(&status, &each));
        assert_eq!((&known["predicted_ms"], &known["predicted_most_ms"]), (&0.044.into(), &0.055.into()));
        assert_eq!((&known["used_ms"], &known["ratio_permille"]), (&0.05.into(), &1_136.into()));
        let text = ledger(&status, &each).render();
        assert!(text.contains("0.000 to 0.000") && text.contains("1.13"), "{text}");
        assert!(text.contains("prices of 1970-01-02"), "{text}");
        // Since the label started, a minute ago; the person signed on an hour before.
        let constant = of(&ledger(&status, &priced(&status, Some(Carried::Constant(4_000)))));
        assert_eq!((&constant["predicted_ms"], &constant["used_ms"]), (&0.122.into(), &0.1.into()));
        // What was not measured is not guessed.
        let why = |status: &ServerStatus, priced: &Priced| {
            let ledger = ledger(status, priced);
            assert!(ledger.render().contains("no prediction: not "), "{}", ledger.render());
            of(&ledger)["unpredicted"].clone()
        };
        assert_eq!(why(&status, &priced(&status, None)), "otherwise");
        assert_eq!(why(&status, &priced(&status, Some(Carried::Constant(2_000)))), "not-measured");
        assert_eq!(why(&status, &Priced { prices: Err(Unpriced::OtherHost), ..each.clone() }), "other-host");
        assert_eq!(why(&status, &Priced { sessions: Vec::new(), ..each.clone() }), "not-measured");
        status.vaults[0].1.sas[0].cipher = levee_policy::site::Cipher::Aes128Gcm;
        assert_eq!(why(&status, &each), "not-measured");
    }

    #[test]
    fn the_roles_are_the_whole_and_a_label_has_what_its_processes_used_and_nothing_of_another() {
        let status = crate::status::tests::status();
        let label = "SECRET//NATO";
        let roles = vec![
            row("vault", Some(label), 40, 20),
            row("vault", Some("PUBLIC"), 7, 0),
            row("services", Some(label), 30, 0),
            row("logger", None, 1, 2),
            row("logger", None, 1, 2),
        ];
        let ledger = Ledger::of(&status, &priced(&status, Some(Carried::Each)), roles);
        assert_eq!(ledger.processor, Time { user_us: 79, system_us: 24 });
        assert_eq!(ledger.roles.iter().map(|row| row.time.sum()).sum::<u64>(), ledger.processor.sum());
        assert_eq!(ledger.roles.len(), 4);
        assert_eq!(ledger.labels[label].time, Time { user_us: 70, system_us: 20 });
        assert_eq!(ledger.labels["PUBLIC"].time.sum(), 7);
        // A mean of 12.6 µs; nothing has left.
        assert_eq!(ledger.labels[label].latency.to_string(), "12.6/-");
        let SessionCost { traffic, .. } = &ledger.sessions[0];
        assert_eq!((traffic.packets_in, traffic.packets_out), (5, 6));
        assert_eq!((traffic.octets_in, traffic.octets_out), (500, 600));
        assert!(ledger.render().contains("58.2%"), "{}", ledger.render());
    }

    #[test]
    fn what_the_kernel_says_of_a_process_is_found_behind_any_name() {
        let stat = "7 (a) 1 (b) S 1 7 7 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 5 6 7";
        let time = |user, system| Time { user_us: user * TICK, system_us: system * TICK };
        assert_eq!(parse_times(stat), Some((time(11, 12), time(13, 14))));
        assert_eq!(parse_times("7 (a) S 1 7"), None);
    }
}

//! What a run leaves behind: its manifest, its samples, and where the datagrams of each went. The files are described in `docs/laboratory.md`.

mod ledger;
mod manifest;

pub use ledger::{Ledger, Tunnel};
pub use manifest::{Common, Manifest, Rules, SCHEMA};

use crate::counters::NetDelta;
use crate::design::Layout;
use crate::workload::Outcome;
use serde::{Deserialize, Serialize};

/// Processor seconds during a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Seconds on the clock.
    pub wall: f64,
    /// Of the client's control group.
    pub client: Option<f64>,
    /// Of the server's control group.
    pub server: Option<f64>,
    /// Of everything between them that belongs to the arm (levee's processes).
    pub between: Option<f64>,
    /// Of everything else on the host.
    pub background: f64,
    /// In interrupts, of whomever.
    pub interrupts: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

/// What is wrong with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// Others used the processors. An attempt that cannot be had better is analysed with it; with any other it never is.
    Contended,
    /// It did not end well.
    Error,
    /// Its datagrams do not add up.
    Ledger,
    /// No rate that was tried was without loss.
    Loss,
    /// Sockets went into `TIME_WAIT` where none should, or a table was full.
    TimeWait,
}

impl Flag {
    /// The name as in samples and reports.
    pub fn name(self) -> &'static str {
        match self {
            Flag::Contended => "contended",
            Flag::Error => "error",
            Flag::Ledger => "ledger",
            Flag::Loss => "loss",
            Flag::TimeWait => "time-wait",
        }
    }

    /// The names of several, apart by spaces.
    pub fn names(all: &[Flag]) -> String {
        all.iter().map(|flag| flag.name()).collect::<Vec<_>>().join(" ")
    }
}

/// One line of `samples.ndjson`: one attempt at one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Place in the order of attempts, from 0.
    pub seq: u64,
    /// Place in the plan, from 0.
    pub trial: usize,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// When it began, RFC 3339.
    pub at: String,
    /// Block, from 0.
    pub block: usize,
    /// Workload id.
    pub workload: String,
    /// Layout.
    pub layout: Layout,
    /// Arm.
    pub arm: String,
    /// 1 for the second copy of the baseline.
    pub copy: u8,
    /// Before a trial of another's tool: what our own client measured of the same workload in the warm-up's time.
    #[serde(default)]
    pub warmup: Option<f64>,
    /// Whether it is analysed. Rejected attempts are kept and shown.
    pub accepted: bool,
    /// What is wrong with it.
    pub flags: Vec<Flag>,
    /// What was wrong, in words.
    pub why: Option<String>,
    /// What the client measured.
    pub outcome: Option<Outcome>,
    /// What moved in the server's namespace.
    pub server_net: Option<NetDelta>,
    /// Where each datagram went.
    pub ledger: Option<Ledger>,
    /// Processor time.
    pub load: Load,
}

impl Sample {
    /// The metric, of an accepted sample.
    pub fn value(&self) -> Option<f64> {
        self.accepted.then_some(())?;
        self.outcome.as_ref().map(|o| o.value)
    }
}

/// Looks a trial over by the rules: its flags, and the first thing that is wrong. Pure, so that it can be tested. `may_wait`:
/// how many of the client's sockets may go into `TIME_WAIT`; any, where there is no number.
pub fn judge(
    outcome: Option<&Outcome>,
    server: Option<&NetDelta>,
    ledger: Option<&Ledger>,
    load: &Load,
    rules: &Rules,
    layout: Layout,
    may_wait: Option<u64>,
) -> (Vec<Flag>, Option<String>) {
    let mut flags = Vec::new();
    let mut why: Option<String> = None;
    let mut flag = |flag: Flag, w: String| {
        flags.push(flag);
        why.get_or_insert(w);
    };
    if let Some(udp) = outcome.and_then(|o| o.udp.as_ref()) {
        match ledger.map(Ledger::fault) {
            Some(None) => {}
            Some(Some(fault)) => flag(Flag::Ledger, fault),
            None => flag(
                Flag::Ledger,
                "there is none: a namespace's or the tunnel's counters cannot be read".into(),
            ),
        }
        if udp.duplicates > 0 {
            flag(
                Flag::Ledger,
                format!("{} came twice, or out of order on a path with one queue", udp.duplicates),
            );
        }
        // the first step is the warm-up
        let mut rates = udp.steps.iter().skip(1);
        if rates.len() > 0 && !rates.any(|s| s.sent > 0 && s.sent == s.delivered) {
            flag(Flag::Loss, "no rate that was tried is without loss".into());
        }
    }
    if let Some(may_wait) = may_wait.filter(|_| outcome.is_some_and(|o| o.kind.connects())) {
        waiting(outcome, server, may_wait).into_iter().for_each(|why| flag(Flag::TimeWait, why));
    }
    let share = |s: f64| if load.wall > 0.0 { s / load.wall } else { 0.0 };
    // /proc/stat counts ticks of a hundredth of a second on each processor: a few say nothing
    if share(load.background - 0.03) > rules.background {
        flag(
            Flag::Contended,
            format!("other programs used {:.0} % of a processor", 100.0 * share(load.background)),
        );
    }
    // what lies between in the arm itself (the tunnel's vaults) may run where the client does: that is its cost
    let waited = outcome.and_then(|o| o.waited).map(|w| w - load.between.unwrap_or(0.0));
    if let Some(w) = waited.filter(|w| layout == Layout::Apart && share(*w) > rules.waited) {
        flag(
            Flag::Contended,
            format!("the client waited {:.0} % of the time for its processor", 100.0 * share(w)),
        );
    }
    if share(load.steal - 0.011) > rules.steal {
        flag(
            Flag::Contended,
            format!("the hypervisor took {:.0} % of a processor", 100.0 * share(load.steal)),
        );
    }
    flags.dedup();
    (flags, why)
}

/// What `TIME_WAIT` did to a trial of connections.
fn waiting(outcome: Option<&Outcome>, server: Option<&NetDelta>, may_wait: u64) -> Vec<String> {
    let mut faults = Vec::new();
    let client = outcome.and_then(|o| o.time_wait.zip(o.net));
    if client.is_none() || server.is_none() {
        faults.push("not known: a namespace's counters cannot be read".into());
    }
    let within = |before: u64, after: u64| after <= before.saturating_add(may_wait);
    if let Some(((before, after), _)) = client.filter(|((before, after), _)| !within(*before, *after)) {
        faults.push(format!("{} client sockets went into TIME_WAIT", after - before));
    }
    if let Some((_, net)) = client.filter(|(_, net)| net.tw_reused > 0) {
        faults.push(format!("{} connections took over a socket in TIME_WAIT", net.tw_reused));
    }
    if let Some(s) = server.filter(|s| s.tw_overflow > 0 || s.listen_overflows > 0) {
        faults.push(format!(
            "the server ran out of room: {} TIME_WAIT, {} accept queue",
            s.tw_overflow, s.listen_overflows
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Kind, UdpCount};
    use std::time::Duration;

    fn outcome(kind: Kind) -> Outcome {
        Outcome {
            kind,
            seconds: 1.0,
            bytes: 1,
            transactions: 1,
            value: 1.0,
            latency: None,
            udp: None,
            congestion: None,
            server_congestion: None,
            cpu_seconds: 0.0,
            waited: Some(0.0),
            net: Some(NetDelta::default()),
            time_wait: Some((0, 0)),
        }
    }

    fn look(o: &Outcome, server: &NetDelta, ledger: Option<&Ledger>, load: &Load) -> Vec<Flag> {
        judge(Some(o), Some(server), ledger, load, &Rules::default(), Layout::Apart, Some(0)).0
    }

    #[test]
    fn the_papers_wait_is_before_trials_of_connections_and_requests_only() {
        let paper = Common { wait: 120.0, ..Common::default() };
        for k in [Kind::TcpCc, Kind::TcpCrr, Kind::TcpRr] {
            assert_eq!(paper.wait_before(k), Duration::from_secs(120), "{k}");
            assert_eq!(Common::default().wait_before(k), Duration::ZERO, "{k}");
        }
        for k in [Kind::TcpStream, Kind::UdpStream] {
            assert_eq!(paper.wait_before(k), Duration::ZERO, "{k}");
        }
    }

    #[test]
    fn a_ledger_that_loses_a_datagram_flags_the_trial() {
        let mut o = outcome(Kind::UdpStream);
        o.udp = Some(UdpCount { sent: 100, delivered: 97, ..UdpCount::default() });
        let client = NetDelta { udp_out: 100, ..NetDelta::default() };
        let good = NetDelta { udp_in: 97, udp_buffer_errors: 3, ..NetDelta::default() };
        let l = Ledger::of(&o, &client, &good, None).expect("counts");
        assert_eq!(l.fault(), None);
        let bad = NetDelta { udp_in: 97, udp_buffer_errors: 2, ..NetDelta::default() };
        let l = Ledger::of(&o, &client, &bad, None).expect("counts");
        assert_eq!(look(&o, &bad, Some(&l), &Load::default()), [Flag::Ledger]);
        let unread = NetDelta { udp_in: 98, udp_buffer_errors: 2, ..NetDelta::default() };
        assert!(Ledger::of(&o, &client, &unread, None).expect("counts").fault().is_some());
        let twice = Some(UdpCount { sent: 100, delivered: 97, duplicates: 1, ..UdpCount::default() });
        let l = Ledger::of(&o, &client, &good, None);
        assert_eq!(
            look(&Outcome { udp: twice, ..o.clone() }, &good, l.as_ref(), &Load::default()),
            [Flag::Ledger]
        );
        // no counters, no ledger; no ledger, no trial
        assert_eq!(look(&o, &bad, None, &Load::default()), [Flag::Ledger]);
    }

    #[test]
    fn a_tunnel_may_lose_no_more_datagrams_than_were_counted_as_dropped_in_it() {
        let mut o = outcome(Kind::UdpStream);
        o.udp = Some(UdpCount { sent: 1000, delivered: 700, ..UdpCount::default() });
        let client = NetDelta { udp_out: 1000, device_drops: 90, ..NetDelta::default() };
        let server = NetDelta { udp_in: 700, udp_buffer_errors: 10, ..NetDelta::default() };
        let of = |t: Tunnel| {
            let l = Ledger::of(&o, &client, &server, Some(&t)).expect("counts");
            (l, look(&o, &server, Some(&l), &Load::default()))
        };
        let all = Tunnel { opened: 710, refused: 40, dropped: 2 };
        let (l, flags) = of(all);
        assert_eq!((l.tunnel, l.opened, l.tunnel_drops, l.missing), (200, Some(710), Some(296), 0));
        assert!(flags.is_empty(), "{l:?}");
        // nothing, or too little, was dropped between the ends
        for t in [Tunnel { refused: 0, dropped: 0, ..all }, Tunnel { dropped: 1, ..all }] {
            assert_eq!(of(t).1, [Flag::Ledger], "{t:?}");
        }
        // out of the vault, and not at a socket; at a socket, and not out of the vault
        for opened in [711, 709] {
            assert_eq!(of(Tunnel { opened, ..all }).1, [Flag::Ledger], "{opened}");
        }
        // out of the vault, and never in
        let server = NetDelta { udp_in: 911, ..NetDelta::default() };
        let l = Ledger::of(&o, &client, &server, Some(&Tunnel { opened: 911, ..all })).expect("counts");
        assert!(l.fault().is_some_and(|f| f.contains("more came out")), "{l:?}");
    }

    #[test]
    fn a_time_wait_counter_that_moved_flags_the_trial() {
        let mut o = outcome(Kind::TcpCc);
        assert!(look(&o, &NetDelta::default(), None, &Load::default()).is_empty());
        o.time_wait = Some((3, 9));
        assert_eq!(look(&o, &NetDelta::default(), None, &Load::default()), [Flag::TimeWait]);
        // where the client closes first any may, where a tool has connections of its own so many
        for (may_wait, flagged) in [(None, false), (Some(6), false), (Some(5), true)] {
            let (net, load) = (NetDelta::default(), Load::default());
            let (flags, _) =
                judge(Some(&o), Some(&net), None, &load, &Rules::default(), Layout::Apart, may_wait);
            assert_eq!(!flags.is_empty(), flagged, "{may_wait:?}");
        }
        o.time_wait = Some((9, 3)); // older ones ran out: nothing of this trial
        o.net = Some(NetDelta { tw_reused: 1, ..NetDelta::default() });
        assert_eq!(look(&o, &NetDelta::default(), None, &Load::default()), [Flag::TimeWait]);
        let full = NetDelta { tw_overflow: 1, ..NetDelta::default() };
        o.net = Some(NetDelta::default());
        assert_eq!(look(&o, &full, None, &Load::default()), [Flag::TimeWait]);
        assert!(look(&o, &NetDelta::default(), None, &Load::default()).is_empty());
        // a counter that nobody could read has not stood still
        for unread in [Outcome { net: None, ..o.clone() }, Outcome { time_wait: None, ..o }] {
            assert_eq!(look(&unread, &NetDelta::default(), None, &Load::default()), [Flag::TimeWait]);
        }
    }

    #[test]
    fn a_contended_processor_flags_the_trial() {
        let o = outcome(Kind::TcpRr);
        let busy = Load { wall: 1.0, background: 0.3, ..Load::default() };
        assert_eq!(look(&o, &NetDelta::default(), None, &busy), [Flag::Contended]);
        let stolen = Load { wall: 1.0, steal: 0.05, ..Load::default() };
        assert_eq!(look(&o, &NetDelta::default(), None, &stolen), [Flag::Contended]);
        let mut late = outcome(Kind::TcpRr);
        late.waited = Some(0.2);
        let own = Load { wall: 1.0, ..Load::default() };
        assert_eq!(look(&late, &NetDelta::default(), None, &own), [Flag::Contended]);
        // a tunnel's own vaults are no contention
        let vaults = Load { wall: 1.0, between: Some(0.5), ..Load::default() };
        assert!(look(&late, &NetDelta::default(), None, &vaults).is_empty());
        let one_tick = Load { wall: 0.05, background: 0.01, ..Load::default() };
        assert!(look(&o, &NetDelta::default(), None, &one_tick).is_empty());
    }
}

//! What could make the figures wrong, and how large it was.

use super::Run;
use super::draw::{count, nanos};
use crate::design::Layout;
use crate::experiment::Path;
use crate::sample::{Flag, Manifest, Sample};
use crate::stand::{PORTS, sources_over_a_link};
use crate::workload::{Closer, Kind};
use levee_stats::{mean, quantile};
use maud::{Markup, html};
use std::collections::BTreeMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// How long a socket stays in `TIME_WAIT` (TCP_TIMEWAIT_LEN of Linux), seconds.
const TIME_WAIT: i64 = 60;

/// The server's port that came nearest to seeing a pair of address and port again within `TIME_WAIT`.
struct Busiest {
    connections: f64,
    pairs: f64,
}

fn busiest(run: &Run) -> Option<Busiest> {
    let mut ports: BTreeMap<(&str, Option<Layout>, bool), Vec<&Sample>> = BTreeMap::new();
    let drive = |arm: &str| run.manifest.experiment.arms.iter().find(|a| a.name == arm).map(|a| a.drive);
    for s in &run.samples {
        let (Some(d), Some(kind)) = (drive(&s.arm), Kind::of_unit(&s.workload)) else { continue };
        // levee's services have one port for both layouts, a bare server on a link one for each
        let layout = (!d.needs_levee()).then_some(s.layout);
        ports.entry((&s.arm, layout, kind == Kind::TcpCc)).or_default().push(s);
    }
    let mut worst: Option<Busiest> = None;
    for ((arm, _, _), of) in ports {
        let addresses = match drive(arm) {
            Some(d) if d.path == Path::Tunnel => 1,
            _ => sources_over_a_link(),
        };
        let pairs = (addresses * PORTS) as f64;
        let times: Vec<(i64, f64)> = of
            .iter()
            .filter_map(|s| {
                let at = OffsetDateTime::parse(&s.at, &Rfc3339).ok()?;
                Some((at.unix_timestamp(), s.server_net.as_ref()?.tcp_accepted as f64))
            })
            .collect();
        for (i, (start, _)) in times.iter().enumerate() {
            let within = times.iter().skip(i).take_while(|(t, _)| t - start <= TIME_WAIT);
            let connections: f64 = within.map(|(_, n)| n).sum();
            if connections > 0.0
                && worst.as_ref().is_none_or(|w| connections / pairs > w.connections / w.pairs)
            {
                worst = Some(Busiest { connections, pairs });
            }
        }
    }
    worst
}

fn tunnel(m: &Manifest, arm: &str) -> bool {
    m.experiment.arms.iter().any(|a| a.name == arm && a.drive.path == Path::Tunnel)
}

/// A list of threats, each with a measured size where one can be had.
pub fn threats(run: &Run) -> Markup {
    let mut rows = Vec::new();
    let mut row = |threat: &str, done: &str, size: &str| {
        rows.push(html! { tr { td { (threat) } td { (done) } td { (size) } } });
    };
    of_the_host(run, &mut row);
    of_the_workload(run, &mut row);
    of_the_instrument(run, &mut row);
    html! {
        table.words {
            thead { tr { th { "threat" } th { "what is done" } th { "its size here" } } }
            tbody { @for row in &rows { (row) } }
        }
    }
}

/// What else goes on where the trials run.
fn of_the_host(run: &Run, row: &mut impl FnMut(&str, &str, &str)) {
    let s = &run.summary;
    let lag: Vec<f64> = s.cells.iter().filter_map(|c| c.lag1).collect();
    let steps: usize = s.cells.iter().map(|c| c.change_points.len()).sum();
    row(
        "The machine changes over time",
        "Blocks hold every arm once, close together, in random order; effects are ratios within blocks",
        &format!(
            "lag-1 autocorrelation median {:+.2}, highest {:+.2}; {steps} steps of level in {} series",
            quantile(&lag, 0.5).unwrap_or(0.0),
            quantile(&lag, 1.0).unwrap_or(0.0),
            s.cells.len()
        ),
    );
    let background: Vec<f64> =
        run.samples.iter().map(|x| 100.0 * x.load.background / x.load.wall.max(1e-9)).collect();
    let contended = s.flags.get(&Flag::Contended).copied().unwrap_or(0);
    row(
        "Other programs on the host",
        &format!(
            "A trial is made again, at most {} times{}, if others used over {:.0} % of a processor or the client waited over {:.0} % of the time for its own",
            run.manifest.rules.reruns,
            run.manifest
                .form
                .budget
                .map_or(String::new(), |b| format!(" and only while the run would end within {b} s")),
            100.0 * run.manifest.rules.background,
            100.0 * run.manifest.rules.waited
        ),
        &format!(
            "background median {:.1} %, 95th percentile {:.1} % of a processor; {contended} of {} attempts contended",
            quantile(&background, 0.5).unwrap_or(0.0),
            quantile(&background, 0.95).unwrap_or(0.0),
            s.attempts
        ),
    );
    let steal: Vec<f64> = run.samples.iter().map(|x| 100.0 * x.load.steal / x.load.wall.max(1e-9)).collect();
    row(
        "A hypervisor beneath",
        &format!("Rerun above {:.0} % of steal", 100.0 * run.manifest.rules.steal),
        &format!(
            "steal mean {:.2} %, highest {:.1} %",
            mean(&steal).unwrap_or(0.0),
            quantile(&steal, 1.0).unwrap_or(0.0)
        ),
    );
    let both = |w: &str| {
        let m = |l: Layout| {
            s.cells.iter().find(|c| c.workload == w && c.layout == l && c.copy == 0).map(|c| c.percentiles[2])
        };
        m(Layout::Together).zip(m(Layout::Apart)).map(|(a, b)| a / b)
    };
    row(
        "Where the processes run decides the figure",
        "Both layouts are reported where the form has both; nothing is averaged over them",
        &both("TCP_RR").map_or("only one layout in this form".into(), |r| {
            format!("TCP_RR of the baseline: together is ×{r:.2} of apart")
        }),
    );
    let vaults: Vec<f64> = run
        .samples
        .iter()
        .filter(|x| tunnel(&run.manifest, &x.arm))
        .filter_map(|x| Some(x.load.between? / x.load.wall.max(1e-9)))
        .collect();
    if let Some(middle) = quantile(&vaults, 0.5) {
        row(
            "levee's vaults are kept on no processor",
            "The scheduler puts them beside client and server, as in a running site: where they meet them is part of what a \
             tunnel costs on this many processors, and of its spread; on more, the cost is another",
            &format!(
                "in trials through the tunnel they and the rest of levee used {middle:.2} of a processor (5th to 95th percentile \
                 {:.2} to {:.2})",
                quantile(&vaults, 0.05).unwrap_or(0.0),
                quantile(&vaults, 0.95).unwrap_or(0.0)
            ),
        );
    }
}

/// What the trials themselves do.
fn of_the_workload(run: &Run, row: &mut impl FnMut(&str, &str, &str)) {
    let s = &run.summary;
    let tools: Vec<f64> = run.samples.iter().filter_map(|x| x.warmup).collect();
    if !tools.is_empty() {
        row(
            "Other people's tools count whole seconds and begin cold",
            "Our own client does the same workload before each of their trials, for as long as our warm-up; their processes \
             are new, and their slow start is in their second. Their counters and processor time are judged as ours are",
            &format!("{} trials, each after {} s of warm-up", tools.len(), run.manifest.form.warmup),
        );
    }
    let tw = s.flags.get(&Flag::TimeWait).copied().unwrap_or(0);
    row(
        "TIME_WAIT (the MYSEA study, 4.5)",
        match run.manifest.common.closer {
            Closer::Server => {
                "The server closes first; the client's TIME_WAIT counters must stand still in every trial"
            }
            Closer::Client => {
                "As in the paper: the client closes first, and two minutes pass before each trial"
            }
        },
        &format!("{tw} attempts rejected"),
    );
    row(
        "The server's own TIME_WAIT",
        "Over a plain link each connection comes from the next of 63 addresses; a session has one address. The kernel takes a \
         port again only when it has been through the range",
        &busiest(run).map_or("no connections".into(), |b| {
            format!(
                "at most {} connections came to one port within a minute, for which there were {} pairs of address and port: \
                 {}",
                count(b.connections),
                count(b.pairs),
                if b.connections < b.pairs { "none was taken twice" } else { "some were taken again in TIME_WAIT" }
            )
        }),
    );
    let bad = s.flags.get(&Flag::Ledger).copied().unwrap_or(0);
    row(
        "Datagrams lost unseen (the MYSEA study, appendix G)",
        &format!(
            "{} bytes of payload, within the path MTU; sent, on the wire, into and out of the tunnel, dropped and read must balance",
            run.manifest.common.datagram
        ),
        &format!("{bad} attempts rejected"),
    );
    row(
        "No wire",
        "Client and server are namespaces of one host: no card, no cable; a gigabit link would hide differences that show here",
        "not measured; figures per byte are those of memory and processor, and an upper bound of relative cost",
    );
}

/// How they are counted.
fn of_the_instrument(run: &Run, row: &mut impl FnMut(&str, &str, &str)) {
    let s = &run.summary;
    let missing = s.missing;
    row(
        "Trials that never came good",
        "They stay missing, and their blocks drop out of the comparison",
        &format!("{missing} of the plan"),
    );
    let two: Vec<f64> = s
        .cells
        .iter()
        .filter_map(|c| Some(100.0 * (c.cpu.first().copied().flatten()? / c.rusage? - 1.0).abs()))
        .collect();
    row(
        "How processor time is counted",
        "Client and server by control group, from outside; levee's other processes by the scheduler's count of each; the client \
         also by getrusage from its first line of code. The server has no second count",
        &quantile(&two, 0.5).map_or("not both on this host".into(), |m| {
            format!("the two differ by {m:.1} % in the median of {} series", two.len())
        }),
    );
    let latencies = s.cells.iter().filter_map(|c| c.latency.map(|l| l[0]));
    row(
        "The instrument",
        "HDR histograms with two significant digits (1 %), which rates do not come from; one clock reading per transaction",
        &latencies.min().map_or("no latencies".into(), |l| {
            format!(
                "shortest median latency {}: a clock reading of about 30 ns is under {:.1} % of it",
                nanos(l as f64),
                3000.0 / l as f64 + 0.05
            )
        }),
    );
}

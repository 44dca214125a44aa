//! The report: one page that needs nothing else, and the files beside it.

mod answer;
mod appendix;
mod csv;
pub(crate) mod draw;
mod figures;
mod glance;
mod page;
mod plots;
mod read;
mod tables;
mod threats;
mod told;

pub(crate) use read::Run;

use crate::analysis::{Verdict, Work};
use crate::design::Layout;
use crate::run::write_json;
use crate::sample::{Flag, Sample};
use csv::Csv;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A line of `samples.csv`.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    trial: usize,
    attempt: u32,
    at: &'a str,
    block: usize,
    workload: &'a str,
    layout: Layout,
    arm: &'a str,
    copy: u8,
    accepted: bool,
    flags: String,
    why: Option<&'a str>,
    value: Option<f64>,
    seconds: Option<f64>,
    bytes: Option<u64>,
    transactions: Option<u64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    client_cpu_s: Option<f64>,
    server_cpu_s: Option<f64>,
    between_cpu_s: Option<f64>,
    background_s: f64,
    interrupts_s: f64,
    steal_s: f64,
    wall_s: f64,
    waited_s: Option<f64>,
    udp_sent: Option<i64>,
    udp_delivered: Option<i64>,
    udp_socket_drops: Option<i64>,
    udp_missing: Option<i64>,
}

impl<'a> Line<'a> {
    fn of(s: &'a Sample) -> Line<'a> {
        let o = s.outcome.as_ref();
        let quantile = |p| o.and_then(|o| o.latency.as_ref()?.quantile(p));
        let l = s.ledger.as_ref();
        Line {
            seq: s.seq,
            trial: s.trial,
            attempt: s.attempt,
            at: &s.at,
            block: s.block,
            workload: &s.workload,
            layout: s.layout,
            arm: &s.arm,
            copy: s.copy,
            accepted: s.accepted,
            flags: Flag::names(&s.flags),
            why: s.why.as_deref(),
            value: o.map(|o| o.value),
            seconds: o.map(|o| o.seconds),
            bytes: o.map(|o| o.bytes),
            transactions: o.map(|o| o.transactions),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            client_cpu_s: s.load.client,
            server_cpu_s: s.load.server,
            between_cpu_s: s.load.between,
            background_s: s.load.background,
            interrupts_s: s.load.interrupts,
            steal_s: s.load.steal,
            wall_s: s.load.wall,
            waited_s: o.and_then(|o| o.waited),
            udp_sent: l.map(|l| l.sent),
            udp_delivered: l.map(|l| l.delivered),
            udp_socket_drops: l.map(|l| l.socket_drops),
            udp_missing: l.map(|l| l.missing),
        }
    }
}

fn samples_csv(samples: &[Sample]) -> io::Result<String> {
    let mut csv = Csv::untitled();
    samples.iter().for_each(|sample| csv.row(Line::of(sample)));
    csv.finish()
}

/// Writes `summary.json`, `samples.csv` and `report.html` into a run's directory; the page's path.
///
/// # Errors
/// When the directory holds no run, or a file cannot be written.
pub fn write(dir: &Path) -> io::Result<PathBuf> {
    let run = Run::read(dir)?;
    write_json(&dir.join("summary.json"), &run.summary)?;
    fs::write(dir.join("samples.csv"), samples_csv(&run.samples)?)?;
    let path = dir.join("report.html");
    fs::write(&path, page::page(&run))?;
    Ok(path)
}

/// What work would cost in each arm of a run, as a Markdown table.
///
/// # Errors
/// When the directory holds no run, or no arm has all the prices that the work needs.
pub fn cost(dir: &Path, work: Work) -> io::Result<String> {
    let run = Run::read(dir)?;
    let base = run.manifest.experiment.baseline().map_err(io::Error::other)?.name.clone();
    let mut out = String::from("| layout | arm | time | over the baseline |\n|---|---|---|---|\n");
    let mut any = false;
    for &layout in &run.manifest.form.layouts {
        let here = || run.summary.prices.iter().filter(move |p| p.layout == layout);
        let Some(least) = here().find(|p| p.arm == base).and_then(|p| p.of(work)) else { continue };
        for (p, t) in here().filter_map(|p| Some((p, p.of(work)?))) {
            any = true;
            let more =
                if p.arm == base { "–".to_owned() } else { format!("{:+.1} %", (t / least - 1.0) * 100.0) };
            let _ = writeln!(out, "| {} | {} | {} | {more} |", layout.name(), p.arm, draw::nanos(t));
        }
    }
    if any {
        Ok(out)
    } else {
        Err(io::Error::other("this run has not measured every kind of work that was asked for"))
    }
}

/// One effect in two runs. Ratios are of time per unit of work, with their 95 % interval.
#[derive(Serialize)]
struct Compared {
    workload: String,
    layout: &'static str,
    arm: String,
    before: [f64; 3],
    before_verdict: Verdict,
    after: [f64; 3],
    after_verdict: Verdict,
    intervals: &'static str,
}

/// Two runs of one experiment side by side, as a Markdown table or as JSON.
///
/// # Errors
/// When either directory holds no run, or they are of different experiments.
pub fn compare(before: &Path, after: &Path, json: bool) -> io::Result<String> {
    let (a, b) = (Run::read(before)?, Run::read(after)?);
    if a.summary.experiment != b.summary.experiment {
        return Err(io::Error::other(format!(
            "these are runs of {} and of {}",
            a.summary.experiment, b.summary.experiment
        )));
    }
    let mut all = Vec::new();
    for e in &a.summary.effects {
        let of =
            |f: &&crate::analysis::Effect| f.workload == e.workload && f.layout == e.layout && f.arm == e.arm;
        let twin = b.summary.effects.iter().find(of);
        let Some((f, x, y)) = twin.and_then(|f| Some((f, e.cost?, f.cost?))) else { continue };
        let three = |i: levee_stats::Interval| <[f64; 3]>::from(i.ratio());
        all.push(Compared {
            workload: e.workload.clone(),
            layout: e.layout.name(),
            arm: e.arm.clone(),
            before: three(x),
            before_verdict: e.verdict,
            after: three(y),
            after_verdict: f.verdict,
            intervals: if x.hi < y.lo {
                "apart: dearer after"
            } else if y.hi < x.lo {
                "apart: cheaper after"
            } else {
                "overlap"
            },
        });
    }
    if json {
        return Ok(serde_json::to_string_pretty(&all)? + "\n");
    }
    let mut out = format!(
        "# {}: {} ({}) and {} ({})\n\nCost is time per unit of work over the baseline of the same run, with its 95 % interval.\n\n",
        a.manifest.experiment.title, a.manifest.begun, a.summary.form, b.manifest.begun, b.summary.form
    );
    if all.is_empty() {
        out.push_str("No effect was measured in at least three blocks of both.\n");
        return Ok(out);
    }
    out.push_str(
        "| workload | layout | arm | before | after | the two intervals |\n|---|---|---|---|---|---|\n",
    );
    for c in &all {
        let show = |v: Verdict, [r, lo, hi]: [f64; 3]| {
            let floor = if v == Verdict::Floor { ", ≤ floor" } else { "" };
            format!("×{r:.3} ({lo:.3}–{hi:.3}){floor}")
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            c.workload,
            c.layout,
            c.arm,
            show(c.before_verdict, c.before),
            show(c.after_verdict, c.after),
            c.intervals
        );
    }
    Ok(out)
}

//! The report: one page that needs nothing else, and the files beside it.

mod answer;
mod appendix;
mod draw;
mod figures;
mod glance;
mod page;
mod plots;
mod tables;
mod threats;

use crate::analysis::{Summary, Verdict, Work, summarise};
use crate::host::Env;
use crate::run::{manifest, samples, write_json};
use crate::sample::{Manifest, Sample};
use plots::field;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Everything a page is made of.
pub(crate) struct Run {
    pub manifest: Manifest,
    pub samples: Vec<Sample>,
    pub env: Vec<Env>,
    pub summary: Summary,
}

impl Run {
    fn read(dir: &Path) -> io::Result<Run> {
        let manifest = manifest(dir)?;
        let samples = samples(dir)?;
        let env = match fs::read(dir.join("env.json")) {
            Ok(t) => serde_json::from_slice(&t)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        if samples.is_empty() && dir.join("samples.ndjson.xz").exists() {
            let what = "its samples are packed: unxz --keep samples.ndjson.xz there first";
            return Err(io::Error::other(format!("{}: {what}", dir.display())));
        }
        let summary = summarise(&manifest, &samples).map_err(io::Error::other)?;
        Ok(Run { manifest, samples, env, summary })
    }
}

fn samples_csv(samples: &[Sample]) -> String {
    let mut csv = String::from(
        "seq,trial,attempt,at,block,workload,layout,arm,copy,accepted,flags,why,value,seconds,bytes,transactions,\
         p50_ns,p99_ns,client_cpu_s,server_cpu_s,between_cpu_s,background_s,interrupts_s,steal_s,wall_s,waited_s,\
         udp_sent,udp_delivered,udp_socket_drops,udp_missing\n",
    );
    let show = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    for s in samples {
        let o = s.outcome.as_ref();
        let q = |p| o.and_then(|o| o.latency.as_ref()?.quantile(p)).map(|v| v as f64);
        let l = s.ledger.as_ref();
        let cells = [
            s.seq.to_string(),
            s.trial.to_string(),
            s.attempt.to_string(),
            s.at.clone(),
            s.block.to_string(),
            s.workload.clone(),
            s.layout.name().to_owned(),
            field(&s.arm),
            s.copy.to_string(),
            s.accepted.to_string(),
            s.flags.join(" "),
            field(s.why.as_deref().unwrap_or("")),
            show(o.map(|o| o.value)),
            show(o.map(|o| o.seconds)),
            show(o.map(|o| o.bytes as f64)),
            show(o.map(|o| o.transactions as f64)),
            show(q(0.5)),
            show(q(0.99)),
            show(s.load.client),
            show(s.load.server),
            show(s.load.between),
            s.load.background.to_string(),
            s.load.interrupts.to_string(),
            s.load.steal.to_string(),
            s.load.wall.to_string(),
            show(o.and_then(|o| o.waited)),
            show(l.map(|l| l.sent as f64)),
            show(l.map(|l| l.delivered as f64)),
            show(l.map(|l| l.socket_drops as f64)),
            show(l.map(|l| l.missing as f64)),
        ];
        let _ = writeln!(csv, "{}", cells.join(","));
    }
    csv
}

/// Writes `summary.json`, `samples.csv` and `report.html` into a run's directory; the page's path.
///
/// # Errors
/// When the directory holds no run, or a file cannot be written.
pub fn write(dir: &Path) -> io::Result<PathBuf> {
    let run = Run::read(dir)?;
    write_json(&dir.join("summary.json"), &run.summary)?;
    fs::write(dir.join("samples.csv"), samples_csv(&run.samples))?;
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
        let three = |i: crate::stats::Interval| <[f64; 3]>::from(i.ratio());
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

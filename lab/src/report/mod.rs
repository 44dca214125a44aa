//! The report: one page that needs nothing else, and the files beside it.

mod draw;
mod figures;
mod glance;
mod page;
mod plots;
mod tables;

use crate::analysis::{Summary, Verdict, summarise};
use crate::host::Env;
use crate::run::{manifest, samples, write_json};
use crate::sample::{Manifest, Sample};
use plots::field;
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

/// Two runs of one experiment side by side, as a Markdown table.
///
/// # Errors
/// When either directory holds no run, or they are of different experiments.
pub fn compare(before: &Path, after: &Path) -> io::Result<String> {
    let (a, b) = (Run::read(before)?, Run::read(after)?);
    if a.summary.experiment != b.summary.experiment {
        return Err(io::Error::other(format!(
            "these are runs of {} and of {}",
            a.summary.experiment, b.summary.experiment
        )));
    }
    let mut out = format!(
        "# {}: {} ({}) and {} ({})\n\nCost is time per unit of work over the baseline of the same run, with its 95 % interval.\n\n",
        a.manifest.experiment.title, a.manifest.begun, a.summary.form, b.manifest.begun, b.summary.form
    );
    out.push_str(
        "| workload | layout | arm | before | after | the two intervals |\n|---|---|---|---|---|---|\n",
    );
    for e in &a.summary.effects {
        let twin = b
            .summary
            .effects
            .iter()
            .find(|f| f.workload == e.workload && f.layout == e.layout && f.arm == e.arm);
        let Some((f, x, y)) = twin.and_then(|f| Some((f, e.cost?, f.cost?))) else { continue };
        let show = |v: Verdict, i: crate::stats::Interval| {
            let (r, lo, hi) = i.ratio();
            let floor = if v == Verdict::Floor { ", ≤ floor" } else { "" };
            format!("×{r:.3} ({lo:.3}–{hi:.3}){floor}")
        };
        let apart = if x.hi < y.lo {
            "apart: dearer after"
        } else if y.hi < x.lo {
            "apart: cheaper after"
        } else {
            "overlap"
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {apart} |",
            e.workload,
            e.layout.name(),
            e.arm,
            show(e.verdict, x),
            show(f.verdict, y)
        );
    }
    Ok(out)
}

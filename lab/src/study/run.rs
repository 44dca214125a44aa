//! Running a study: every trial of the plan, in order, kept as it is made.

pub use super::record::{Manifest, Sample};
use super::{Arm, Form, Stand, Study, guest, layers, places, protections, vaulted};
use crate::host::{self, now};
use crate::netns;
use crate::run::{End, write_json};
use crate::said;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether a directory holds a run of a study.
pub fn is_study(dir: &Path) -> bool {
    dir.join("study.json").exists()
}

/// Reads a run's manifest.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn manifest(dir: &Path) -> io::Result<Manifest> {
    let path = dir.join("study.json");
    let text = fs::read(&path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    serde_json::from_slice(&text).map_err(|e| io::Error::other(format!("{}: {e}", path.display())))
}

/// The lines that have an end.
fn whole(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    text.get(..end).unwrap_or_default()
}

/// Reads a run's samples. A last line that a kill cut short is left out.
///
/// # Errors
/// When any other line is wrong.
pub fn samples(dir: &Path) -> io::Result<Vec<Sample>> {
    let text = match fs::read(dir.join("samples.ndjson")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let lines = whole(&text).split(|b| *b == b'\n').filter(|l| !l.is_empty());
    lines.map(|l| serde_json::from_slice(l).map_err(io::Error::other)).collect()
}

/// Builds what a form's arms need.
fn build(study: &Study, form: &Form) -> io::Result<Box<dyn Stand>> {
    let arms: &[&Arm] = &study.arms_of(form).collect::<Vec<_>>();
    match study.study.as_str() {
        "partition" | "frames" | "labelled" => Ok(Box::new(places::Places::build(
            arms,
            &study.rows_of(form).map(|(_, r)| r).collect::<Vec<_>>(),
        )?)),
        "selinux" | "macsec" => Ok(Box::new(guest::Guests::build(arms, study.rows_of(form).count())?)),
        "vaulted" => Ok(Box::new(vaulted::Vaulted::build(arms)?)),
        "protections" => Ok(Box::new(protections::Protections::build(arms)?)),
        "layers" => Ok(Box::new(layers::Layers::build(arms, &layers::Links::of(study, form))?)),
        other => Err(io::Error::other(format!("no study is called {other:?}"))),
    }
}

/// Makes the trials of a study that the directory does not have yet, and its report.
///
/// # Errors
/// When the stand cannot be built, what is measured cannot be kept, or a link did not do what it was asked. A trial that fails is no error.
pub fn go(dir: &Path, study: &Study, form_name: &str, seed: u64) -> io::Result<End> {
    let stop = Arc::new(AtomicBool::new(false));
    for s in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(s, Arc::clone(&stop))?;
    }
    fs::create_dir_all(dir)?;
    netns::sweep()?;
    let mut m = if is_study(dir) {
        manifest(dir)?
    } else {
        let form = study.forms.get(form_name).cloned();
        let form =
            form.ok_or_else(|| io::Error::other(format!("study {} has no form {form_name}", study.study)))?;
        let (study, form_name) = (study.clone(), form_name.to_owned());
        Manifest { study, form_name, form, seed, absent: Vec::new(), env: Vec::new(), links: Vec::new() }
    };
    let mut stand = build(&m.study, &m.form)?;
    if m.env.is_empty() {
        m.absent = stand.absent().to_vec();
    } else if let Some((arm, why)) = stand.absent().iter().find(|a| !m.absent.contains(a)) {
        return Err(io::Error::other(format!("the run so far has the arm {arm:?}, and now: {why}")));
    }
    for (arm, why) in &m.absent {
        said::progress(&format!("  absent: {arm}: {why}"));
    }
    m.env.push(host::look(&[]));
    write_json(&dir.join("study.json"), &m)?;
    let (made, plan) = (samples(dir)?, m.plan());
    let mut out = OpenOptions::new().create(true).append(true).open(dir.join("samples.ndjson"))?;
    // what a kill cut short, so that the next line stands alone
    out.set_len(whole(&fs::read(dir.join("samples.ndjson"))?).len() as u64)?;
    let (begin, mut shown) = (Instant::now(), Instant::now());
    for (trial, t) in plan.iter().enumerate().skip(made.len()) {
        if stop.load(Ordering::Relaxed) {
            judge(dir, &mut m, stand.as_mut())?;
            return Ok(End::Stopped);
        }
        let at = now();
        let found = stand.measure(&t.arm, &t.workload, m.form.seconds);
        let found = match found {
            Ok(f) if f.seconds.is_finite() && f.seconds > 0.0 => Ok(f),
            Ok(_) => Err("nothing that could be told from what surrounds it".to_owned()),
            Err(e) => Err(e.to_string()),
        };
        let (found, why) = found.map_or_else(|why| (None, Some(why)), |f| (Some(f), None));
        let sample = Sample {
            trial,
            at,
            block: t.block,
            row: t.workload.clone(),
            arm: t.arm.clone(),
            copy: t.copy,
            seconds: found.as_ref().map(|f| f.seconds),
            preempted: found.as_ref().and_then(|f| f.preempted),
            counted: found.map(|f| f.counted).unwrap_or_default(),
            why,
        };
        let mut line = serde_json::to_vec(&sample)?;
        line.push(b'\n');
        out.write_all(&line)?;
        if shown.elapsed() > Duration::from_secs(15) {
            shown = Instant::now();
            let left =
                begin.elapsed().as_secs_f64() / (trial + 1 - made.len()) as f64 * (plan.len() - trial) as f64;
            said::progress(&format!(
                "block {}/{}  trial {trial}/{}  {left:.0} s to go",
                t.block + 1,
                m.form.blocks,
                plan.len()
            ));
        }
    }
    judge(dir, &mut m, stand.as_mut())?;
    Ok(End::Complete)
}

/// Keeps what the links did, and holds it against what they were asked.
fn judge(dir: &Path, m: &mut Manifest, stand: &mut dyn Stand) -> io::Result<()> {
    let did = stand.links()?;
    if did.is_empty() {
        return Ok(());
    }
    let wrong: Vec<String> = did.iter().filter_map(|d| d.as_asked().err()).collect();
    m.links.extend(did);
    write_json(&dir.join("study.json"), m)?;
    if wrong.is_empty() {
        return Ok(());
    }
    let report = report(dir)?;
    let what = "a link did not do what it was asked, and the run is worth nothing";
    Err(io::Error::other(format!("{what}: {} (see {})", wrong.join("; "), report.display())))
}

/// Writes `summary.json` and the report of a run's directory; answers where it is.
///
/// # Errors
/// When the directory cannot be read or written.
pub fn report(dir: &Path) -> io::Result<PathBuf> {
    let (m, samples) = (manifest(dir)?, samples(dir)?);
    let summary = super::report::summary(&m, &samples);
    write_json(&dir.join("summary.json"), &summary)?;
    let path = dir.join("report.md");
    let mut shown = String::new();
    for figure in super::curves::figures(&m, &summary) {
        fs::write(dir.join(&figure.file), &figure.svg)?;
        shown.push_str(&figure.shown);
    }
    fs::write(&path, super::report::markdown(&m, &samples, &summary, &shown))?;
    Ok(path)
}

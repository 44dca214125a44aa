//! Running an experiment: every trial of the plan, judged, kept, and made again where the rules say so.

use crate::client::Target;
use crate::counters::{Cpu, Net, NetDelta};
use crate::design::{Trial, plan};
use crate::endings;
use crate::experiment::{Experiment, Form, Unit};
use crate::host::{self, Env, now};
use crate::netns::{self, Group};
use crate::place::Place;
use crate::role::Role;
use crate::said;
use crate::sample::{Common, Flag, Ledger, Load, Manifest, Rules, SCHEMA, Sample, judge};
use crate::stand::{Stand, counters};
use crate::tools::Tool;
use crate::workload::{Closer, Outcome, Task};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every trial of the plan was made.
    Complete,
    /// Stopped by a signal; what was measured is kept, and `--resume` goes on.
    Stopped,
}

/// Seconds that a trial takes beside its own: its processes, and what still arrives.
pub const BETWEEN: f64 = 0.04;

/// That a run can be kept where somebody says: whoever mistypes a place is not to find out where their results are hours later.
///
/// # Errors
/// The directory above it is not there.
pub fn has_place(out: Option<&Path>) -> io::Result<()> {
    let above = out.and_then(Path::parent).filter(|above| !above.as_os_str().is_empty());
    match above.filter(|above| !above.is_dir()) {
        None => Ok(()),
        Some(missing) => Err(io::Error::other(format!(
            "--out: there is no directory {0}: make it (mkdir -p {0}), or name another place",
            missing.display()
        ))),
    }
}

/// Sets up a directory for a new run.
///
/// # Errors
/// When the form is unknown, its baseline cannot be built here, or the directory is not empty.
pub fn create(
    dir: &Path,
    e: &Experiment,
    form_name: &str,
    seed: u64,
    common: Common,
) -> io::Result<Manifest> {
    let form = e
        .forms
        .get(form_name)
        .ok_or_else(|| io::Error::other(format!("experiment {} has no form {form_name}", e.name)))?;
    fs::create_dir_all(dir)?;
    if fs::read_dir(dir)?.next().is_some() {
        return Err(io::Error::other(format!(
            "{} is not empty; use --resume to go on with it",
            dir.display()
        )));
    }
    let m = Manifest {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").into(),
        experiment: e.clone(),
        form_name: form_name.into(),
        form: form.clone(),
        seed,
        begun: now(),
        // a first look on a busy machine must end soon, too
        rules: Rules { reruns: if form_name == "quick" { 1 } else { 2 }, ..Rules::default() },
        absent: Vec::new(),
        common,
        before: None,
    };
    Ok(m)
}

/// Writes a file whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    fs::write(&part, text)?;
    fs::rename(part, path)
}

/// Reads a run's manifest.
///
/// # Errors
/// When there is none, or it is of another schema.
pub fn manifest(dir: &Path) -> io::Result<Manifest> {
    let path = dir.join("manifest.json");
    said::reads(&path);
    let text = fs::read_to_string(&path).map_err(|e| {
        io::Error::new(e.kind(), format!("{}: {e} (is it a run's directory?)", path.display()))
    })?;
    let m: Manifest =
        serde_json::from_str(&text).map_err(|e| io::Error::other(format!("{}: {e}", path.display())))?;
    if m.schema == SCHEMA {
        Ok(m)
    } else {
        Err(io::Error::other(format!(
            "{} has schema {}, this program reads {SCHEMA}",
            path.display(),
            m.schema
        )))
    }
}

/// Reads a run's samples. A last line that a kill cut short is left out.
///
/// # Errors
/// When any other line is wrong.
pub fn samples(dir: &Path) -> io::Result<Vec<Sample>> {
    let path = dir.join("samples.ndjson");
    said::reads(&path);
    let mut out = Vec::new();
    let file = match File::open(&path) {
        Ok(f) => f,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(out),
        Err(e) => return Err(e),
    };
    for (n, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(s) => out.push(s),
            Err(e) if e.is_eof() => break,
            Err(e) => return Err(io::Error::other(format!("{}:{}: {e}", path.display(), n + 1))),
        }
    }
    Ok(out)
}

/// The plan of a run: the same each time it is asked for.
pub fn plan_of(m: &Manifest) -> io::Result<Vec<Trial>> {
    let units: Vec<_> = m
        .experiment
        .units(Some(&m.form))
        .into_iter()
        .flat_map(|u| m.form.layouts.iter().map(move |l| (u.id.clone(), *l)).collect::<Vec<_>>())
        .collect();
    let arms: Vec<_> = m
        .experiment
        .arms_of(&m.form)
        .into_iter()
        .map(|a| a.name.clone())
        .filter(|n| m.absent.iter().all(|(a, _)| a != n))
        .collect();
    let base = &m.experiment.baseline().map_err(io::Error::other)?.name;
    Ok(plan(m.seed, m.form.blocks, &units, &arms, base, |block, a, w| m.measures_in(block, a, w)))
}

/// How many trials a form has without the arms that are absent.
///
/// # Errors
/// When the experiment has no baseline.
pub fn trials(e: &Experiment, form: &Form, absent: &[String]) -> Result<usize, String> {
    let base = &e.baseline()?.name;
    let arms: Vec<_> = e.arms_of(form).into_iter().filter(|a| !absent.contains(&a.name)).collect();
    let per_layout = e.units(Some(form)).into_iter().map(|u| {
        let able = arms.iter().filter(|a| a.measures(u.kind));
        let in_a_block: usize = able.map(|a| if a.name == *base { 2 } else { 1 }).sum();
        in_a_block * form.blocks.div_ceil(u.every)
    });
    Ok(per_layout.sum::<usize>() * form.layouts.len())
}

/// The first trial that has no accepted sample and attempts left.
fn next_trial(samples: &[Sample], rules: &Rules) -> usize {
    samples.last().map_or(0, |s| if s.accepted || s.attempt > rules.reruns { s.trial + 1 } else { s.trial })
}

/// The arguments of our own program with which it makes a trial.
pub(crate) fn client_words(target: Target, task: &Task, role: &Role) -> io::Result<Vec<String>> {
    let (all, close) = (target.all.to_string(), target.close.to_string());
    let task = serde_json::to_string(task)?;
    let mut words =
        ["client", "--task", &task, "--target", &all, "--close", &close].map(str::to_owned).to_vec();
    words.extend(role.args());
    Ok(words)
}

/// One trial by a process of its own in a place.
///
/// # Errors
/// What it says, or that it did not end in time.
pub(crate) fn client(place: &Place, task: &Task) -> io::Result<Outcome> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(client_words(place.target, task, &place.role)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let (done, wait) = mpsc::channel();
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    std::thread::spawn(move || {
        let (mut said, mut wrong) = (Vec::new(), String::new());
        drop(out.as_mut().map(|o| o.read_to_end(&mut said)));
        drop(err.as_mut().map(|e| e.read_to_string(&mut wrong)));
        drop(done.send((said, wrong)));
    });
    let limit = Duration::from_secs_f64(30.0 + 3.0 * (task.seconds + task.warmup));
    let said = wait.recv_timeout(limit);
    if said.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    match said {
        Err(_) => Err(io::Error::other(format!("no answer within {} s", limit.as_secs()))),
        Ok((said, _)) if status.success() => serde_json::from_slice(&said).map_err(io::Error::other),
        Ok((_, wrong)) => Err(io::Error::other(wrong.trim().to_owned())),
    }
}

struct Runner<'a> {
    m: &'a Manifest,
    stand: &'a Stand,
    units: Vec<Unit>,
}

impl Runner<'_> {
    fn unit(&self, trial: &Trial) -> Option<&Unit> {
        self.units.iter().find(|u| u.id == trial.workload)
    }

    fn task(&self, unit: &Unit, place: &Place) -> Task {
        let (f, c) = (&self.m.form, &self.m.common);
        Task {
            kind: unit.kind,
            seconds: f.seconds,
            warmup: f.warmup,
            write_size: c.write_size,
            datagram: unit.datagram.unwrap_or(c.datagram),
            fetch: c.fetch,
            open_rate: unit.rate,
            closer: c.closer,
            congestion: c.congestion.clone(),
            sources: place.sources.clone(),
        }
    }

    /// What every clock and counter of a trial shows now.
    fn read(&self, place: &Place) -> io::Result<Before> {
        Ok(Before {
            groups: (seconds(&self.stand.client_group), seconds(&self.stand.server_group)),
            net: counters(place.server),
            levee: self.stand.levee_seconds(place),
            cpu: Cpu::read()?,
            clock: Instant::now(),
        })
    }

    /// What has been used since, and what has moved in the server's namespace.
    fn since(&self, before: &Before, place: &Place) -> io::Result<(Load, Option<NetDelta>)> {
        let wall = before.clock.elapsed().as_secs_f64();
        let cpu = Cpu::read()?.since(&before.cpu);
        let net = before.net.as_ref().zip(counters(place.server)).map(|(a, b)| b.since(a));
        let grew = |g: &Option<Group>, from: Option<f64>| seconds(g).zip(from).map(|(b, a)| b - a);
        let client = grew(&self.stand.client_group, before.groups.0);
        let levee = self.stand.levee_seconds(place);
        let (services, rest) = (levee.0 - before.levee.0, levee.1 - before.levee.1);
        // a bare server in levee's network is in the group of bare servers, any other in its compartment's
        let bare = grew(&self.stand.server_group, before.groups.1);
        let server = if place.levee.is_some() { Some(services + bare.unwrap_or(0.0)) } else { bare };
        let between = place.levee.map(|_| rest);
        // in an arm without levee, what levee does meanwhile is background
        let ours = client.unwrap_or(0.0) + server.unwrap_or(0.0) + between.unwrap_or(0.0);
        let load = Load {
            wall,
            client,
            server,
            between,
            // soft interrupts in a role's own time are in both: the sum counts each second once
            background: (cpu.busy + cpu.interrupts - ours).max(0.0),
            interrupts: cpu.interrupts,
            steal: cpu.steal,
        };
        Ok((load, net))
    }

    /// One attempt at a trial; `last` says that it will not be made again.
    fn attempt(&self, trial: &Trial, index: usize, attempt: u32, seq: u64, last: bool) -> io::Result<Sample> {
        let wrong = |what: &str| io::Error::other(format!("the manifest has no {what} of trial {index}"));
        let unit = self.unit(trial).ok_or_else(|| wrong("workload"))?;
        let arm = self.m.experiment.arms.iter().find(|a| a.name == trial.arm).ok_or_else(|| wrong("arm"))?;
        let place = self.stand.place(arm, trial.layout)?;
        let at = now();
        let task = self.task(unit, &place);
        // What is not ours counts whole seconds, and has no warm-up of this length: our own client warms the path, the
        // processors and what the kernel remembers of a destination.
        let warmed = match arm.tool {
            Some(_) if task.warmup > 0.0 => {
                client(&place, &Task { seconds: task.warmup, warmup: 0.0, ..task.clone() }).map(Some)
            }
            _ => Ok(None),
        };
        let tunnel = || if place.tunnel && !unit.kind.is_tcp() { self.stand.tunnel(&place) } else { None };
        let tunnel0 = tunnel();
        let before = self.read(&place)?;
        let warmup = warmed.as_ref().ok().and_then(|o| Some(o.as_ref()?.value));
        let outcome = warmed.and_then(|_| match arm.tool {
            None => client(&place, &task),
            Some(t) => t.measure(&place, &task),
        });
        let (load, net) = self.since(&before, &place)?;
        let (outcome, error) = match outcome {
            Ok(o) => (Some(o), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let through = tunnel0.zip(tunnel()).map(|(a, b)| b.since(&a));
        // in a tunnel, none without what the tunnel says of itself
        let known = outcome.as_ref().filter(|_| !place.tunnel || through.is_some());
        let ledger = known.and_then(|o| Ledger::of(o, &o.net?, &net?, through.as_ref()));
        let may_wait = match self.m.common.closer {
            Closer::Server => Some(arm.tool.map_or(0, Tool::own_connections)),
            Closer::Client => None,
        };
        let (mut flags, mut why) = judge(
            outcome.as_ref(),
            net.as_ref(),
            ledger.as_ref(),
            &load,
            &self.m.rules,
            trial.layout,
            may_wait,
        );
        if let Some(e) = error {
            flags.insert(0, Flag::Error);
            why = Some(e);
        }
        // A contended trial that cannot be had better is analysed and stays flagged; a broken one never is.
        let accepted = flags.is_empty() || (last && flags.iter().all(|f| *f == Flag::Contended));
        Ok(Sample {
            schema: SCHEMA,
            seq,
            trial: index,
            attempt,
            at,
            block: trial.block,
            workload: trial.workload.clone(),
            layout: trial.layout,
            arm: trial.arm.clone(),
            copy: trial.copy,
            warmup,
            accepted,
            flags,
            why,
            outcome,
            server_net: net,
            ledger,
            load,
        })
    }
}

/// What clocks and counters showed before a trial.
struct Before {
    /// Processor seconds of the client's group and the server's.
    groups: (Option<f64>, Option<f64>),
    net: Option<Net>,
    /// Those of levee's services, and of the rest of levee.
    levee: (f64, f64),
    cpu: Cpu,
    clock: Instant,
}

fn seconds(group: &Option<Group>) -> Option<f64> {
    group.as_ref().and_then(Group::seconds)
}

/// Appends the environment to `env.json`: one entry for each time the run was begun or resumed.
fn note_environment(dir: &Path, stand: &Stand) -> io::Result<()> {
    let path = dir.join("env.json");
    let mut all: Vec<Env> = match fs::read(&path) {
        Ok(t) => serde_json::from_slice(&t)?,
        Err(_) => Vec::new(),
    };
    all.push(host::look(&stand.namespaces()));
    write_json(&path, &all)
}

/// Cuts a half-written last line off, so that the next one stands alone.
fn open_samples(dir: &Path) -> io::Result<File> {
    let path = dir.join("samples.ndjson");
    if let Ok(text) = fs::read(&path)
        && !text.is_empty()
        && text.last() != Some(&b'\n')
    {
        let keep = text.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        OpenOptions::new().write(true).open(&path)?.set_len(keep as u64)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

struct Progress {
    start: Instant,
    first: usize,
    total: usize,
    shown: Instant,
    terminal: bool,
    rejected: usize,
}

impl Progress {
    fn show(&mut self, t: &Trial, done: usize, blocks: usize) {
        let every = if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(15) };
        if self.shown.elapsed() < every && done < self.total {
            return;
        }
        self.shown = Instant::now();
        let made = done.saturating_sub(self.first).max(1);
        let left = self.start.elapsed().as_secs_f64() / made as f64 * (self.total - done) as f64;
        let line = format!(
            "block {}/{blocks}  trial {done}/{}  {} {}  rejected {}  {}:{:02} to go",
            t.block + 1,
            self.total,
            t.workload,
            t.arm,
            self.rejected,
            left as u64 / 60,
            left as u64 % 60,
        );
        if self.terminal {
            said::passing(&line);
            if done == self.total {
                said::progress("");
            }
        } else {
            said::progress(&line);
        }
    }
}

/// Whether a run that has taken `spent` seconds can make `left` trials, and one of them again, within its budget, at
/// `pace` seconds each.
fn in_time(budget: Option<f64>, spent: f64, pace: f64, left: usize) -> bool {
    budget.is_none_or(|b| spent + pace * (left as f64 + 1.0) <= b)
}

/// Waits; whether a signal ended it.
fn pause(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    true
}

/// Makes every trial of the plan that has not been made yet.
///
/// # Errors
/// When the stand cannot be built, or samples cannot be written. A trial that fails is no error: it is a
/// rejected sample.
pub fn go(dir: &Path, m: &mut Manifest) -> io::Result<End> {
    let stop = Arc::new(AtomicBool::new(false));
    for s in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(s, Arc::clone(&stop))?;
    }
    let began = Instant::now();
    netns::sweep()?;
    let earlier = samples(dir)?;
    let form = m.form.clone();
    let mut stand =
        Stand::build(&m.experiment.arms_of(&form), &form.layouts, &m.common.congestion, m.before.as_deref())?;
    if earlier.is_empty() {
        m.absent.retain(|(arm, _)| stand.absent.iter().all(|(a, _)| a != arm));
        m.absent.extend_from_slice(&stand.absent);
        write_json(&dir.join("manifest.json"), &*m)?;
    } else if let Some((arm, why)) = stand.absent.iter().find(|(a, _)| m.absent.iter().all(|(b, _)| a != b)) {
        return Err(io::Error::other(format!("the run so far has the arm {arm:?}, and now: {why}")));
    }
    let m = &*m;
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    m.absent.iter().for_each(|(arm, why)| reasons.entry(why).or_default().push(arm));
    for (why, arms) in reasons {
        said::progress(&format!("  absent: {}: {why}", arms.join(", ")));
    }
    let plan = plan_of(m)?;
    let first = next_trial(&earlier, &m.rules);
    let mut seq = earlier.last().map_or(0, |s| s.seq + 1);
    let begun_at = seq;
    let mut attempt = earlier.last().filter(|s| s.trial == first).map_or(1, |s| s.attempt + 1);
    note_environment(dir, &stand)?;
    let mut out = open_samples(dir)?;
    let runner = Runner { m, stand: &stand, units: m.experiment.units(Some(&m.form)) };
    let mut progress = Progress {
        start: Instant::now(),
        first,
        total: plan.len(),
        shown: Instant::now(),
        terminal: io::stderr().is_terminal(),
        rejected: earlier.iter().filter(|s| !s.accepted).count(),
    };
    for (index, trial) in plan.iter().enumerate().skip(first) {
        loop {
            let wait = runner.unit(trial).map_or(Duration::ZERO, |u| m.common.wait_before(u.kind));
            if pause(wait, &stop) {
                return Ok(End::Stopped);
            }
            let pace = progress.start.elapsed().as_secs_f64() / (seq - begun_at).max(1) as f64;
            let last = attempt > m.rules.reruns
                || !in_time(m.form.budget, began.elapsed().as_secs_f64(), pace, plan.len() - index);
            let sample = runner.attempt(trial, index, attempt, seq, last)?;
            let mut line = serde_json::to_vec(&sample)?;
            line.push(b'\n');
            out.write_all(&line)?;
            seq += 1;
            progress.rejected += usize::from(!sample.accepted);
            if sample.accepted || last {
                attempt = 1;
                break;
            }
            attempt += 1;
        }
        progress.show(trial, index + 1, m.form.blocks);
    }
    endings::measure(dir, &mut stand, m.form.endings.unwrap_or(0), m.seed, &stop)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(End::Stopped);
    }
    if let Some(budget) = m.form.budget.filter(|b| began.elapsed().as_secs_f64() > *b) {
        said::progress(&format!(
            "it took {:.0} s, where {budget} were planned: this machine is slower, or others use it",
            began.elapsed().as_secs_f64()
        ));
    }
    Ok(End::Complete)
}

/// The newest run of an experiment and form under `root` that is not complete.
///
/// # Errors
/// When there is none.
pub fn unfinished(root: &Path, experiment: &str, form: &str) -> io::Result<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        fs::read_dir(root).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    dirs.sort();
    for d in dirs.into_iter().rev() {
        if let Ok(m) = manifest(&d)
            && m.experiment.name == experiment
            && m.form_name == form
            && next_trial(&samples(&d)?, &m.rules) < plan_of(&m)?.len()
        {
            return Ok(d);
        }
    }
    Err(io::Error::other(format!("no unfinished {form} run of {experiment} under {}", root.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_made_again_only_while_the_run_would_end_within_its_budget() {
        assert!(in_time(None, 1_000.0, 10.0, 1_000));
        assert!(in_time(Some(110.0), 40.0, 0.2, 300), "40 s and 60 more at this pace");
        assert!(!in_time(Some(110.0), 40.0, 0.2, 400), "40 s and 80 more");
        assert!(!in_time(Some(110.0), 111.0, 0.2, 0));
    }

    #[test]
    fn the_quick_form_fits_its_budget() {
        let dir = tempfile::tempdir().expect("a directory");
        let e = Experiment::named("mysea").expect("built in");
        let m =
            create(&dir.path().join("run"), &e, "quick", 1, Common::default()).expect("an empty directory");
        let budget = m.form.budget.expect("the quick form has a budget");
        let trials = trials(&e, &m.form, &[]).expect("a baseline") as f64;
        let least = trials * (m.form.seconds + m.form.warmup + BETWEEN);
        assert!(budget < 120.0 && least < budget, "{least:.0} s of {budget}");
        assert_eq!(plan_of(&m).expect("a baseline").len() as f64, trials);
    }
}

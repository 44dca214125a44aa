//! A study's report: one sentence, then the paper's tables beside ours.

use super::record::{LAYOUT, Manifest, Sample};
use super::{Recomputed, Row, Table};
use crate::analysis::{Effect, Floor, Obs, Verdict, effects};
use levee_stats::{self as stats, Interval, quantile};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The study.
    pub study: String,
    /// Trials made, and those that failed.
    pub trials: [usize; 2],
    /// Medians of seconds for a unit of work, by row and arm; of the baseline, of both copies.
    pub medians: BTreeMap<String, BTreeMap<String, f64>>,
    /// Medians of what else was counted, by row, arm and name.
    pub counted: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>,
    /// The mean over a table's rows of each block's log ratio, by table and arm, for the tables that tell it.
    pub averages: BTreeMap<String, BTreeMap<String, Interval>>,
    /// Noise floors by row.
    pub floors: Vec<Floor>,
    /// The family over which Holm's adjustment runs.
    pub effects: Vec<Effect>,
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile(&values.collect::<Vec<_>>(), 0.5)
}

/// For each block in which an arm has all rows of a table, the mean of their log ratios; its interval over blocks.
fn averages(m: &Manifest, obs: &[Obs]) -> BTreeMap<String, BTreeMap<String, Interval>> {
    let base = m.study.arms.first().map_or("", |a| &a.name);
    let wanted = |id: &str| m.form.rows.as_ref().is_none_or(|all| all.iter().any(|r| r == id));
    let mut out: BTreeMap<String, BTreeMap<String, Interval>> = BTreeMap::new();
    for t in m.study.tables.iter().filter(|t| t.average) {
        let rows: Vec<&str> = t.rows.iter().map(|r| r.id.as_str()).filter(|r| wanted(r)).collect();
        for arm in m.study.arms_of(&m.form).skip(1) {
            let mean = |block: usize| -> Option<f64> {
                let of = |row: &str, arm: &str| -> Option<f64> {
                    let here = obs.iter().filter(|o| o.block == block && o.workload == row && o.arm == arm);
                    stats::mean(&here.map(|o| -o.value.ln()).collect::<Vec<_>>())
                };
                let each: Option<Vec<f64>> =
                    rows.iter().map(|r| Some(of(r, &arm.name)? - of(r, base)?)).collect();
                stats::mean(&each?)
            };
            let blocks: Vec<f64> = (0..m.form.blocks).filter_map(mean).collect();
            if let Some(i) = stats::interval(&blocks, m.seed) {
                out.entry(t.number.clone()).or_default().insert(arm.name.clone(), i);
            }
        }
    }
    out
}

/// From samples to effects.
pub fn summary(m: &Manifest, samples: &[Sample]) -> Summary {
    let obs: Vec<Obs> = samples
        .iter()
        .filter_map(|s| {
            Some(Obs {
                trial: s.trial,
                block: s.block,
                workload: s.row.clone(),
                layout: LAYOUT,
                arm: s.arm.clone(),
                copy: s.copy,
                value: 1.0 / s.seconds?,
            })
        })
        .collect();
    let rows: Vec<_> = m.study.rows_of(&m.form).map(|(_, r)| (r.id.clone(), LAYOUT)).collect();
    let arms: Vec<String> = m.study.arms_of(&m.form).map(|a| a.name.clone()).collect();
    let base = m.study.arms.first().map_or("", |a| &a.name);
    let measured: BTreeSet<(&str, &str)> =
        obs.iter().map(|o| (o.arm.as_str(), o.workload.as_str())).collect();
    let (floors, effects) =
        effects(&obs, &rows, &arms, base, m.seed, |arm, row| measured.contains(&(arm, row)));
    let (mut medians, mut counted) = (BTreeMap::new(), BTreeMap::new());
    for (row, _) in &rows {
        for arm in &arms {
            let here = || samples.iter().filter(|s| s.row == *row && s.arm == *arm);
            let Some(middle) = median(here().filter_map(|s| s.seconds)) else { continue };
            medians.entry(row.clone()).or_insert_with(BTreeMap::new).insert(arm.clone(), middle);
            let names: BTreeSet<&String> = here().flat_map(|s| s.counted.keys()).collect();
            let of = |name: &String| median(here().filter_map(|s| s.counted.get(name).copied()));
            let all: BTreeMap<String, f64> =
                names.into_iter().filter_map(|n| Some((n.clone(), of(n)?))).collect();
            if !all.is_empty() {
                counted.entry(row.clone()).or_insert_with(BTreeMap::new).insert(arm.clone(), all);
            }
        }
    }
    Summary {
        study: m.study.study.clone(),
        trials: [samples.len(), samples.iter().filter(|s| s.seconds.is_none()).count()],
        medians,
        counted,
        averages: averages(m, &obs),
        floors,
        effects,
    }
}

/// Three digits that mean something.
fn digits(v: f64) -> String {
    match v.abs() {
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 0.1 => format!("{v:.2}"),
        _ => format!("{v:.4}"),
    }
}

fn times(v: f64) -> String {
    format!("×{v:.2}")
}

/// A noise floor, of a ratio: percent, or so many times.
fn floor_text(ratio: f64) -> String {
    match ratio {
        f if !f.is_finite() => "–".into(),
        f if f < 2.0 => format!("±{:.1} %", (f - 1.0) * 100.0),
        f => times(f),
    }
}

fn effect<'a>(s: &'a Summary, row: &str, arm: &str) -> Option<&'a Effect> {
    s.effects.iter().find(|e| e.workload == row && e.arm == arm)
}

/// "a, b and c", the first few and how many more.
fn list(all: &[String]) -> String {
    const SHOWN: usize = 5;
    match all {
        [] => String::new(),
        [one] => one.clone(),
        _ if all.len() <= SHOWN => {
            let (last, first) = all.split_last().map_or(("", [].as_slice()), |(l, f)| (l.as_str(), f));
            format!("{} and {last}", first.join(", "))
        }
        _ => format!("{} and {} more", all.get(..SHOWN).unwrap_or_default().join(", "), all.len() - SHOWN),
    }
}

/// What a reader is told first: for each arm, what is dearer and what is cheaper than this machine's noise.
fn sentence(m: &Manifest, s: &Summary) -> String {
    let mut out = String::new();
    let names: BTreeMap<&str, &str> = m.study.rows().map(|(_, r)| (r.id.as_str(), r.what.as_str())).collect();
    for arm in m.study.arms_of(&m.form).skip(1) {
        let of: Vec<&Effect> = s.effects.iter().filter(|e| e.arm == arm.name && e.cost.is_some()).collect();
        if of.is_empty() {
            continue;
        }
        let with = |verdict: Verdict| -> Vec<String> {
            let mut some: Vec<(f64, &str)> = of
                .iter()
                .filter(|e| e.verdict == verdict)
                .filter_map(|e| Some((e.cost?.estimate, *names.get(e.workload.as_str())?)))
                .collect();
            some.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
            some.into_iter().map(|(cost, what)| format!("{what} ({})", times(cost.exp()))).collect()
        };
        let (dearer, cheaper) = (with(Verdict::Cost), with(Verdict::Gain));
        let _ = match (dearer.as_slice(), cheaper.as_slice()) {
            ([], []) => write!(
                out,
                "Here, {}, none of {} rows differs by more than this machine differs from itself. ",
                arm.words,
                of.len()
            ),
            (d, c) => {
                let dear = match d {
                    [] => "nothing is dearer".to_owned(),
                    d => format!("{} of {} rows are dearer: {}", d.len(), of.len(), list(d)),
                };
                let cheap = match c {
                    [] => String::new(),
                    c => format!("; {} cheaper: {}", c.len(), list(c)),
                };
                write!(out, "Here, {}, {dear}{cheap}; the others within this machine's noise. ", arm.words)
            }
        };
    }
    let floors: Vec<f64> = s.floors.iter().map(|f| f.floor.exp()).filter(|f| f.is_finite()).collect();
    if let Some(middle) = quantile(&floors, 0.5).filter(|_| !out.is_empty()) {
        let _ = write!(out, "The noise of the middle row is {}.", floor_text(middle));
    }
    if out.is_empty() {
        out.push_str("Nothing was measured in enough blocks to be told from this machine's noise.");
    }
    out.trim_end().to_owned()
}

fn cell(s: &Summary, row: &str, arm: &str) -> String {
    let Some(e) = effect(s, row, arm) else { return "not measured".into() };
    let Some(c) = e.cost else { return "too few blocks".into() };
    let (r, lo, hi) = c.ratio();
    let text = format!("{} ({lo:.2}–{hi:.2})", times(r));
    match e.verdict {
        Verdict::Cost | Verdict::Gain => format!("**{text}**"),
        _ => text,
    }
}

fn row_line(m: &Manifest, s: &Summary, t: &Table, r: &Row, arms: &[&str]) -> Option<String> {
    let base = m.study.arms.first()?;
    let here = s.medians.get(&r.id)?;
    let mut line = match &r.unit {
        Some(u) => format!("| {} ({}) |", r.what, u.unit),
        None => format!("| {} |", r.what),
    };
    for i in 0..t.columns.len() {
        let _ = write!(line, " {} |", r.paper.get(i).map_or_else(|| "–".into(), |v| digits(*v)));
    }
    if t.columns.len() > 1 {
        let _ = write!(line, " {} |", t.ratio(r).map_or_else(|| "–".into(), times));
    }
    let own = here.get(&base.name).map_or_else(|| "–".into(), |v| digits(t.shown(r, *v)));
    let floor = s.floors.iter().find(|f| f.workload == r.id).map_or(f64::INFINITY, |f| f.floor);
    let floor = floor_text(floor.exp());
    let _ = write!(line, " {own} | {floor} |");
    for arm in arms {
        let _ = write!(line, " {} |", cell(s, &r.id, arm));
    }
    Some(line)
}

fn table(m: &Manifest, s: &Summary, t: &Table, arms: &[&str]) -> String {
    let lines: Vec<String> = t.rows.iter().filter_map(|r| row_line(m, s, t, r, arms)).collect();
    if lines.is_empty() {
        return String::new();
    }
    let base = m.study.arms.first().map_or("", |a| &a.name);
    let mut heads: Vec<String> = vec![format!("{} ({})", t.title, t.unit)];
    heads.extend(t.columns.iter().map(|c| format!("paper: {c}")));
    heads.extend((t.columns.len() > 1).then(|| "paper: last over first".to_owned()));
    heads.extend([format!("here: {base}"), "noise floor".to_owned()]);
    heads.extend(arms.iter().map(|a| format!("here: {a} over {base}")));
    let number = match t.number.as_str() {
        "beyond" => "Beyond the paper".to_owned(),
        n if n.starts_with("figure") => n.replacen('f', "F", 1),
        n => format!("Table {n}"),
    };
    let mut out =
        format!("\n## {number}: {}\n\n| {} |\n|{}\n", t.title, heads.join(" | "), "---|".repeat(heads.len()));
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    if t.average {
        let empty = " |".repeat(heads.len() - arms.len() - 1);
        let _ = write!(out, "| **mean of these** |{empty}");
        for arm in arms {
            let mean = s.averages.get(&t.number).and_then(|a| a.get(*arm));
            let text = mean.map_or_else(
                || "too few blocks".into(),
                |c| {
                    let (r, lo, hi) = c.ratio();
                    format!("{} ({lo:.2}–{hi:.2})", times(r))
                },
            );
            let _ = write!(out, " {text} |");
        }
        out.push('\n');
    }
    for r in t.rows.iter().filter(|r| s.medians.contains_key(&r.id)) {
        let _ = r.fault.as_ref().map(|f| writeln!(out, "\n{}: {f}", r.what));
    }
    out
}

fn goals(m: &Manifest, s: &Summary) -> String {
    let mut out = String::new();
    for g in &m.study.goals {
        for (_, row) in m.study.rows().filter(|(_, row)| g.names(&row.id)) {
            let Some((e, c)) = effect(s, &row.id, &g.arm).and_then(|e| Some((e, e.cost?))) else { continue };
            let (r, lo, hi) = c.ratio();
            let word = match g.most {
                Some(most) if hi <= most => "reached",
                Some(most) if lo > most => "**not reached**",
                Some(_) => "not told: the interval holds it",
                None if e.verdict == Verdict::Cost => "**not reached**",
                None => "reached: no more than noise",
            };
            let goal = g.most.map_or_else(
                || format!("within the floor, {}", floor_text(e.floor.exp())),
                |most| format!("at most {}", times(most)),
            );
            let _ = writeln!(
                out,
                "| {}, {} | {goal} | {} ({lo:.2}–{hi:.2}) | {word} |",
                row.what,
                g.arm,
                times(r)
            );
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("\n## To reach\n\n| what | goal | here | |\n|---|---|---|---|\n{out}")
    }
}

fn counted(s: &Summary, names: &BTreeMap<&str, &str>) -> String {
    let mut out = String::new();
    for (row, arms) in &s.counted {
        for (arm, all) in arms {
            let text: Vec<String> = all.iter().map(|(n, v)| format!("{n} {}", digits(*v))).collect();
            let _ =
                writeln!(out, "| {} | {arm} | {} |", names.get(row.as_str()).unwrap_or(&""), text.join(", "));
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("\n## Counted beside\n\n| row | arm | medians |\n|---|---|---|\n{out}")
    }
}

/// What the links were asked, what they did, and whether that is the same.
fn links(m: &Manifest) -> String {
    let mut out = String::new();
    for d in &m.links {
        let a = &d.asked;
        let (share, [low, middle, high]) = (100.0 * d.lost as f64 / d.offered.max(1) as f64, d.delay);
        let verdict = d.as_asked().map_or_else(|why| format!("**no:** {why}"), |()| "yes".to_owned());
        let _ = writeln!(
            out,
            "| {} | {} | {} ± {} ms, {} % | {} | {} ({share:.2} %) | {middle:.2} ({low:.2}–{high:.2}) | {verdict} |",
            a.name, d.what, a.delay, a.jitter, a.loss, d.offered, d.lost
        );
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "\n## Links\n\nEach packet's delay is drawn evenly from the jitter around it, so that one may overtake another; each is lost \
         by itself. The laboratory's datagrams went over each link before the first trial and after the last one, and show what came out at its \
         end; all packets are those of the trials and of these.\n\n\
         | link | which, which way, by what | asked | packets | lost | delay, ms: median (quartiles) | as asked |\n|---|---|---|---|---|---|---|\n{out}"
    )
}

fn failures(samples: &[Sample]) -> String {
    let mut reasons: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for s in samples {
        if let Some(why) = &s.why {
            *reasons.entry((s.row.as_str(), s.arm.as_str(), why.as_str())).or_default() += 1;
        }
    }
    let lines: Vec<String> = reasons
        .into_iter()
        .map(|((row, arm, why), n)| format!("- {row}, {arm}: {n} times: {why}\n"))
        .collect();
    if lines.is_empty() { String::new() } else { format!("\n## Trials that failed\n\n{}", lines.concat()) }
}

fn recomputed(r: &Recomputed) -> String {
    let mean = |of: &[f64]| stats::mean(of).unwrap_or(f64::NAN);
    format!(
        "Its {}: it prints {:.1}; the mean of its {} rows is {:.1}. Without the first {} it is {:.1}: {}.",
        r.what,
        r.printed,
        r.values.len(),
        mean(&r.values),
        r.left_out,
        mean(r.values.get(r.left_out..).unwrap_or_default()),
        r.why
    )
}

/// The report, as Markdown; `figures` shows what is drawn.
pub fn markdown(m: &Manifest, samples: &[Sample], s: &Summary, figures: &str) -> String {
    let here = |a: &str| m.absent.iter().all(|(b, _)| b != a);
    let arms: Vec<&str> =
        m.study.arms_of(&m.form).skip(1).map(|a| a.name.as_str()).filter(|a| here(a)).collect();
    let names: BTreeMap<&str, &str> = m.study.rows().map(|(_, r)| (r.id.as_str(), r.what.as_str())).collect();
    let mut out = format!("# {}\n\n{}\n\n", m.study.title, sentence(m, s));
    if m.links.iter().any(|d| d.as_asked().is_err()) {
        out.push_str(
            "**A link did not do what it was asked ([below](#links)): this run is worth nothing.**\n\n",
        );
    }
    let env = m.env.first();
    let fact = |k: &str| env.and_then(|e| e.facts.get(k)).map_or("not known", String::as_str);
    let _ = writeln!(
        out,
        "{}, Linux {}, {} processors. Form {}: {} blocks, {:.3} s a trial, {} trials made, {} failed; begun {}, load average {} then.",
        fact("processor"),
        fact("kernel"),
        fact("processors"),
        m.form_name,
        m.form.blocks,
        m.form.seconds,
        s.trials[0],
        s.trials[1],
        env.map_or("", |e| e.at.as_str()),
        fact("load average"),
    );
    let known: Vec<u64> = samples.iter().filter_map(|x| x.preempted).collect();
    let taken = known.iter().filter(|n| **n > 0).count();
    if !known.is_empty() {
        let share = 100 * taken / known.len();
        let busy = if share > 20 { ": the host was busy" } else { "" };
        let _ = writeln!(
            out,
            "In {share} % of the trials the kernel took the processor away at least once{busy}."
        );
    }
    out.push_str(
        "\nEach cell is time for the same work over the baseline's, with its 95 % interval; bold where Holm's adjusted p is below 5 %, \
         the interval excludes 1 and the effect is beyond the floor, which is the baseline against itself in the same blocks.\n",
    );
    out.push_str(figures);
    for t in &m.study.tables {
        out.push_str(&table(m, s, t, &arms));
    }
    out.push_str(&goals(m, s));
    out.push_str(&counted(s, &names));
    out.push_str(&links(m));
    out.push_str("\n## Arms\n\n");
    for a in m.study.arms_of(&m.form) {
        let why = m.absent.iter().find(|(b, _)| *b == a.name);
        let why = why.map_or(String::new(), |(_, w)| format!(" **Absent here:** {w}"));
        let _ = writeln!(out, "- {}: {}{why}", a.name, a.note);
    }
    let section = |head: &str, all: &[String]| -> String {
        let lines: Vec<String> = all.iter().map(|l| format!("- {l}\n")).collect();
        if lines.is_empty() { String::new() } else { format!("\n## {head}\n\n{}", lines.concat()) }
    };
    let mut faults = m.study.faults.clone();
    faults.extend(m.study.recomputed.iter().map(recomputed));
    out.push_str(&section("The paper's faults", &faults));
    out.push_str(&section("Not as in the paper, or not measured", &m.study.absent));
    out.push_str(&failures(samples));
    let _ = write!(out, "\nThe paper: {}. The order of trials is that of seed {}.\n", m.study.cite, m.seed);
    out
}

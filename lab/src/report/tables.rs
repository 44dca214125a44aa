//! The tables of the page.

use super::Run;
use super::draw::{human, nanos};
use super::page::escape;
use crate::analysis::{Cell, Effect, Obs, Verdict, contrast};
use crate::design::Layout;
use crate::paper::{Paper, Row, measure};
use crate::sample::Flag;
use crate::stats::{Interval, quantile};
use crate::workload::Kind;
use std::collections::BTreeSet;
use std::fmt::Write as _;

fn percent(v: f64) -> String {
    let sign = if v < 0.0 { "−" } else { "+" };
    format!("{sign}{:.1} %", v.abs())
}

fn ratio_percent(log: f64) -> f64 {
    (log.exp() - 1.0) * 100.0
}

fn interval_words(i: Interval) -> String {
    format!(
        "{} ({} to {})",
        percent(ratio_percent(i.estimate)),
        percent(ratio_percent(i.lo)),
        percent(ratio_percent(i.hi))
    )
}

/// What can be said of an effect, in words.
pub fn verdict(e: &Effect) -> String {
    match (e.verdict, e.cost) {
        (Verdict::Cost | Verdict::Gain, Some(i)) => {
            let class = if e.verdict == Verdict::Cost { "bad" } else { "good" };
            format!("<span class=\"{class}\">{}</span>", interval_words(i))
        }
        (Verdict::Floor, _) if e.floor.is_finite() => {
            format!("<span class=\"quiet\">≤ floor (±{:.1} %)</span>", ratio_percent(e.floor))
        }
        _ => "<span class=\"quiet\">too few blocks</span>".to_owned(),
    }
}

/// The median of an arm's first copy on some work.
fn median(run: &Run, workload: &str, layout: Layout, arm: &str) -> Option<f64> {
    let of = |c: &&Cell| c.workload == workload && c.layout == layout && c.arm == arm && c.copy == 0;
    run.summary.cells.iter().find(of).map(|c| c.percentiles[2])
}

/// Every arm on every workload: medians, effect, verdict.
pub fn effects(run: &Run, layout: Layout) -> String {
    let s = &run.summary;
    let mut out = String::from(
        "<table><thead><tr><th>workload<th>arm<th class=n>baseline<th class=n>arm<th>unit<th>time per unit of work, \
         over the baseline<th class=n>p (Holm)<th class=n>the paper's measure</tr></thead><tbody>",
    );
    let base = run.manifest.experiment.baseline().map(|a| a.name.clone()).unwrap_or_default();
    let median = |workload: &str, arm: &str| median(run, workload, layout, arm);
    let mut last = "";
    for e in s.effects.iter().filter(|e| e.layout == layout) {
        let kind = Kind::from_name(&e.workload);
        let first = if last == e.workload { "" } else { " class=first" };
        last = &e.workload;
        let _ = write!(
            out,
            "<tr{first}><td>{}<td>{}<td class=n>{}<td class=n>{}<td>{}<td>{}<td class=n>{}<td class=n>{}</tr>",
            e.workload,
            escape(&e.arm),
            median(&e.workload, &base).map_or("–".into(), human),
            median(&e.workload, &e.arm).map_or("–".into(), human),
            kind.map_or("", Kind::unit),
            verdict(e),
            if e.p_holm < 0.001 { "< 0.001".to_owned() } else { format!("{:.3}", e.p_holm) },
            e.paper_measure.map_or("–".into(), |p| {
                let what = if kind.is_some_and(Kind::is_bulk) { "decrease" } else { "increase" };
                format!("{} {what}", percent(p))
            }),
        );
    }
    out.push_str("</tbody></table>");
    out
}

/// Which of our arms stand for a set-up of the paper: `M` for each of levee's modes.
fn ours(run: &Run, name: &str) -> Vec<String> {
    let high = name.split(' ').any(|l| l == "M");
    run.manifest
        .experiment
        .arms
        .iter()
        .map(|a| a.name.clone())
        .filter(|n| {
            if !high {
                return n == name;
            }
            let plain: Vec<&str> = n.split(' ').map(|l| if l.starts_with("M(") { "M" } else { l }).collect();
            plain.join(" ") == name
        })
        .collect()
}

/// Why an arm was not measured: it could not be built, or this form of the experiment leaves it out.
pub fn why_not(run: &Run, arm: &str) -> Option<String> {
    let declared = run.manifest.absent.iter().find(|(a, _)| a == arm).map(|(_, why)| why.clone());
    if declared.is_some() || run.manifest.form.arms.as_ref().is_none_or(|f| f.iter().any(|a| a == arm)) {
        return declared;
    }
    let drive = run.manifest.experiment.arms.iter().find(|a| a.name == arm).map(|a| a.drive);
    let never = drive.and_then(crate::stand::absent);
    Some(never.unwrap_or("not in this form of the experiment").to_owned())
}

/// A rate, with the latency it implies where it is one of transactions.
fn rate(v: f64, bulk: bool) -> String {
    if bulk { human(v) } else { format!("{} <small>{:.3} ms</small>", human(v), 1e3 / v) }
}

/// One row of the paper with each of our arms that stands for it; what is absent comes last, in one row a reason.
fn paper_row(
    run: &Run,
    paper: &Paper,
    obs: &[Obs],
    layout: Layout,
    row: &Row,
    notes: &mut Vec<String>,
    out: &mut String,
) {
    let bulk = row.workload.ends_with("STREAM");
    let show = |v: Option<f64>| v.map_or("–".into(), |v| rate(v, bulk));
    let (pb, pa) = (paper.mean(&row.workload, &row.base), paper.mean(&row.workload, &row.arm));
    let again =
        paper.change(&row.workload, &row.base, &row.arm).map_or("–".into(), |v| format!("{v:.2} %"));
    let mark = row.fault.as_ref().map_or(String::new(), |f| {
        notes.push(f.clone());
        format!("<sup>{}</sup>", notes.len())
    });
    let mut left = format!(
        "<tr class=first><td>{}<td>{} → {}<td class=n>{}<td class=n>{}<td class=n>{:.2} %{mark}<td class=n>{again}",
        row.workload,
        escape(&row.base),
        escape(&row.arm),
        show(pb),
        show(pa),
        row.printed
    );
    let mut absent: Vec<(String, Vec<String>)> = Vec::new();
    let bases = ours(run, &row.base);
    for arm in ours(run, &row.arm) {
        // a base with mediation is the same mode's
        let mode = arm.split(' ').find(|l| l.starts_with("M("));
        let base = bases.iter().find(|b| mode.is_none_or(|m| b.contains(m)) || bases.len() == 1);
        let Some(base) = base else { continue };
        let why = [base, &arm].into_iter().find_map(|n| why_not(run, n));
        let c = contrast(obs, &(row.workload.clone(), layout), base, &arm, run.manifest.seed);
        let median = |arm: &str| median(run, &row.workload, layout, arm);
        match (why, c, median(base), median(&arm)) {
            (None, Some(c), Some(b), Some(a)) => {
                // from the per-block ratios: decrease of a rate is 1 − 1/cost, increase of a latency cost − 1
                let change = |log: f64| {
                    if bulk { measure(&row.workload, 1.0, (-log).exp()) } else { ratio_percent(log) }
                };
                let _ = write!(
                    out,
                    "{left}<td>{}<td class=n>{}<td class=n>{}<td class=n>{} <small>({} to {})</small></tr>",
                    escape(&arm),
                    rate(b, bulk),
                    rate(a, bulk),
                    percent(change(c.estimate)),
                    percent(change(c.lo)),
                    percent(change(c.hi)),
                );
                "<tr><td colspan=6>".clone_into(&mut left);
            }
            (why, ..) => {
                let why = why.unwrap_or_else(|| "too few blocks".to_owned());
                let name = mode.unwrap_or(&arm).to_owned();
                match absent.iter_mut().find(|(w, _)| *w == why) {
                    Some((_, names)) => names.push(name),
                    None => absent.push((why, vec![name])),
                }
            }
        }
    }
    for (why, names) in absent {
        let _ = write!(
            out,
            "{left}<td colspan=4 class=absent>absent: {}: {}</tr>",
            escape(&names.join(", ")),
            escape(&why)
        );
        "<tr><td colspan=6>".clone_into(&mut left);
    }
}

/// The paper's tables with ours beside: same rows, same units.
pub fn paper(run: &Run, paper: &Paper, layout: Layout) -> String {
    let obs = Obs::of(&run.samples);
    let mut out = String::new();
    for t in &paper.tables {
        let _ = write!(
            out,
            "<h3>Table {}: {}</h3><table class=paper><thead><tr><th colspan=6>the paper (means)<th colspan=4>here (medians, client and \
             server {})</tr><tr><th>workload<th>base → set-up<th class=n>base<th class=n>set-up<th class=n>change, \
             printed<th class=n>from its means<th>set-up<th class=n>base<th class=n>set-up<th class=n>change (95 % \
             interval)</tr></thead><tbody>",
            escape(&t.number),
            escape(&t.title),
            layout.name()
        );
        let mut notes = Vec::new();
        for row in &t.rows {
            paper_row(run, paper, &obs, layout, row, &mut notes, &mut out);
        }
        out.push_str("</tbody></table><ol class=notes>");
        for n in notes {
            let _ = write!(out, "<li>{}", escape(&n));
        }
        out.push_str("</ol>");
    }
    out
}

/// Attribution to factors, where a complete factorial design was run.
pub fn attribution(run: &Run) -> String {
    let rows = &run.summary.attribution;
    if rows.is_empty() {
        return "<p class=quiet>No complete factorial design among the arms of this run: nothing to attribute.</p>".into();
    }
    let mut out = String::from(
        "<table><thead><tr><th>workload<th>layout<th>design<th>effect<th class=n>multiplies time by<th class=n>adds to \
         time</tr></thead><tbody>",
    );
    for a in rows {
        let (r, lo, hi) = a.multiplicative.ratio();
        let quiet = if a.multiplicative.excludes_none() { "" } else { " class=quiet" };
        let _ = write!(
            out,
            "<tr{quiet}><td>{}<td>{}<td>{}<td>{}<td class=n>×{r:.3} ({lo:.3}–{hi:.3})<td class=n>{} ({} to {})</tr>",
            a.workload,
            a.layout.name(),
            escape(&a.design.join(" × ")),
            escape(&a.of.join(" × ")),
            nanos(a.additive.estimate),
            nanos(a.additive.lo),
            nanos(a.additive.hi)
        );
    }
    out.push_str("</tbody></table>");
    out
}

/// The cost calculator: its prices, and how they do on workloads it has not seen.
pub fn calculator(run: &Run) -> String {
    let s = &run.summary;
    let mut out = String::from(
        "<table><thead><tr><th>layout<th>arm<th class=n>a connection<th class=n>a request<th class=n>1,000 bytes<th class=n>a \
         packet</tr></thead><tbody>",
    );
    for p in &s.prices {
        let show = |v: Option<f64>, n: f64| v.map_or("–".into(), |v| nanos(v * n));
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}</tr>",
            p.layout.name(),
            escape(&p.arm),
            show(p.connection, 1.0),
            show(p.request, 1.0),
            show(p.byte, 1e3),
            show(p.packet, 1.0)
        );
    }
    out.push_str(
        "</tbody></table><p>For work of your own: <code>levee lab cost DIR --connections N --requests N --bytes N --packets N</code>.</p>",
    );
    out.push_str(
        "<table><thead><tr><th>layout<th>arm<th>workload<th class=n>predicted<th class=n>measured<th class=n>residual\
         </tr></thead><tbody>",
    );
    let mut last = "";
    for c in &s.calculator {
        let first = if last == c.arm { "" } else { " class=first" };
        last = &c.arm;
        let _ = write!(
            out,
            "<tr{first}><td>{}<td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}</tr>",
            c.layout.name(),
            escape(&c.arm),
            c.workload,
            nanos(c.predicted),
            nanos(c.measured),
            percent((c.measured / c.predicted - 1.0) * 100.0)
        );
    }
    out.push_str("</tbody></table>");
    if s.calculator.is_empty() {
        out.push_str("<p class=quiet>This form of the experiment measures no workload that is kept from the calculator.</p>");
    } else {
        let mut off: Vec<f64> =
            s.calculator.iter().map(|c| 100.0 * (c.measured / c.predicted).ln().abs().exp_m1()).collect();
        off.sort_by(f64::total_cmp);
        let _ = write!(
            out,
            "<p>Off by {:.0} % in the median of the {} predictions, by {:.0} % at most.</p>",
            quantile(&off, 0.5).unwrap_or(f64::NAN),
            off.len(),
            quantile(&off, 1.0).unwrap_or(f64::NAN)
        );
    }
    out
}

/// Processor time by role and latency of each cell.
pub fn cells(run: &Run) -> String {
    let mut out = String::from(
        "<table><thead><tr><th>workload<th>layout<th>arm<th class=n>n<th class=n>median<th class=n>mean ± sd<th class=n>p50\
         <th class=n>p99<th class=n>p99.9<th class=n>client CPU<th class=n>getrusage<th class=n>server CPU<th class=n>levee's CPU<th class=n>lag-1<th class=n>steps\
         </tr></thead><tbody>",
    );
    for c in &run.summary.cells {
        let lat =
            |i: usize| c.latency.and_then(|l| l.get(i).copied()).map_or("–".into(), |v| nanos(v as f64));
        let bulk = Kind::of_unit(&c.workload).is_some_and(Kind::is_bulk);
        let cpu = |s: Option<&Option<f64>>| {
            let per = if bulk { "/GB" } else { "" };
            s.copied().flatten().map_or("–".into(), |s| format!("{}{per}", nanos(s * 1e9)))
        };
        let again = if c.copy == 1 { " (again)" } else { "" };
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td>{}{again}<td class=n>{}<td class=n>{}<td class=n>{} ± {}<td class=n>{}<td class=n>{}\
             <td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}</tr>",
            c.workload,
            c.layout.name(),
            escape(&c.arm),
            c.n,
            human(c.percentiles[2]),
            human(c.mean),
            human(c.sd),
            lat(0),
            lat(2),
            lat(3),
            cpu(c.cpu.first()),
            cpu(Some(&c.rusage)),
            cpu(c.cpu.get(1)),
            cpu(c.cpu.get(2)),
            c.lag1.map_or("–".into(), |v| format!("{v:+.2}")),
            c.change_points.len()
        );
    }
    out.push_str("</tbody></table>");
    out
}

/// The rejected attempts.
pub fn rejects(run: &Run) -> String {
    let all: Vec<_> = run.samples.iter().filter(|s| !s.flags.is_empty()).collect();
    let kinds: BTreeSet<Flag> = all.iter().flat_map(|s| s.flags.iter().copied()).collect();
    if all.is_empty() {
        return "<p>None: no attempt was flagged.</p>".into();
    }
    let mut out = String::from("<details><summary>");
    for k in kinds {
        let n = all.iter().filter(|s| s.flags.contains(&k)).count();
        let kept = all.iter().filter(|s| s.accepted && s.flags.contains(&k)).count();
        let _ = write!(out, "{n} {} ({kept} kept after reruns) ", k.name());
    }
    out.push_str(
        "</summary><table><thead><tr><th class=n>order<th>workload<th>layout<th>arm<th class=n>attempt<th>analysed<th>why\
         </tr></thead><tbody>",
    );
    for s in all {
        let _ = write!(
            out,
            "<tr><td class=n>{}<td>{}<td>{}<td>{}<td class=n>{}<td>{}<td>{}</tr>",
            s.seq,
            s.workload,
            s.layout.name(),
            escape(&s.arm),
            s.attempt,
            if s.accepted { "yes, marked" } else { "no" },
            escape(s.why.as_deref().unwrap_or(""))
        );
    }
    out.push_str("</tbody></table></details>");
    out
}

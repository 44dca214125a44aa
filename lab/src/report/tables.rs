//! The tables of the page.

use super::Run;
use super::draw::{human, nanos};
use super::read;
use super::told::{self, Told};
use crate::analysis::{Cell, Effect, Obs, Verdict, contrast};
use crate::design::Layout;
use crate::paper::{Paper, Row, measure};
use crate::place::Home;
use crate::sample::Flag;
use crate::workload::Kind;
use levee_stats::{Interval, quantile};
use maud::{Markup, html};
use std::collections::BTreeSet;

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
fn verdict(e: &Effect) -> Markup {
    match (e.verdict, e.cost) {
        (Verdict::Cost, Some(i)) => html! { span.bad { (interval_words(i)) } },
        (Verdict::Gain, Some(i)) => html! { span.good { (interval_words(i)) } },
        (Verdict::Floor, _) if e.floor.is_finite() => {
            html! { span.quiet { "≤ floor (±" (format!("{:.1}", ratio_percent(e.floor))) " %)" } }
        }
        _ => html! { span.quiet { "too few blocks" } },
    }
}

/// Each with whether it is the first of those with its key, which are drawn apart by a line.
fn grouped<'a, T: 'a>(
    all: impl Iterator<Item = &'a T>,
    key: fn(&T) -> &str,
) -> impl Iterator<Item = (bool, &'a T)> {
    let mut last: Option<&'a T> = None;
    all.map(move |one| {
        let first = last.is_none_or(|last| key(last) != key(one));
        last = Some(one);
        (first, one)
    })
}

/// An arm in a row: in words, then as samples have it.
pub fn named(run: &Run, arm: &str) -> Markup {
    let shown = read::in_words(run, arm);
    html! { (shown) @if !shown.contains(arm) { " " small.quiet { (arm) } } }
}

/// The class of a row that begins a group.
fn first(is_first: bool) -> Option<&'static str> {
    is_first.then_some("first")
}

/// The median of an arm's first copy on some work.
fn median(run: &Run, workload: &str, layout: Layout, arm: &str) -> Option<f64> {
    let of = |c: &&Cell| c.workload == workload && c.layout == layout && c.arm == arm && c.copy == 0;
    run.summary.cells.iter().find(of).map(|c| c.percentiles[2])
}

/// What the present programs take of the time that the earlier ones take, which were measured in the same blocks.
pub fn earlier(run: &Run, layout: Layout) -> Markup {
    let units = told::units(run);
    let shown =
        |after: &str, before: &str, workload: &str| match told::added(run, layout, (before, after), workload)
        {
            Told::Nothing => html! { span.quiet { "–" } },
            Told::Same(i) => html! { span.quiet { (interval_words(i)) } },
            Told::Differs(i) if i.estimate > 0.0 => html! { span.bad { (interval_words(i)) } },
            Told::Differs(i) => html! { span.good { (interval_words(i)) } },
        };
    html! {
        p {
            "Each of levee's arms by its programs as they are, over the same arm by its earlier programs: time per unit of work, from the \
             same blocks. Grey is within what this machine differs from itself. Outside the family that Holm's adjustment covers."
        }
        table {
            thead { tr { th { "arm" } @for unit in &units { th { (unit.id) } } } }
            tbody {
                @for (after, before) in told::earlier(run) {
                    tr {
                        td { (named(run, &after.name)) }
                        @for unit in &units { td { (shown(&after.name, &before.name, &unit.id)) } }
                    }
                }
            }
        }
    }
}

/// Every arm on every workload: medians, effect, verdict.
pub fn effects(run: &Run, layout: Layout) -> Markup {
    let base = run.manifest.experiment.baseline().map(|a| a.name.clone()).unwrap_or_default();
    let median = |e: &Effect, arm: &str| median(run, &e.workload, layout, arm).map_or("–".into(), human);
    let kind = |e: &Effect| Kind::from_name(&e.workload);
    let measure = |e: &Effect| {
        let what = if kind(e).is_some_and(Kind::is_bulk) { "decrease" } else { "increase" };
        e.paper_measure.map_or("–".into(), |p| format!("{} {what}", percent(p)))
    };
    let of = run.summary.effects.iter().filter(|e| e.layout == layout);
    html! {
        table {
            thead { tr {
                th { "workload" }
                th { "arm" }
                th.n { "baseline" }
                th.n { "arm" }
                th { "unit" }
                th { "time per unit of work, over the baseline" }
                th.n { "p (Holm)" }
                th.n { "the paper's measure" }
            } }
            tbody {
                @for (is_first, e) in grouped(of, |e| &e.workload) {
                    tr class=[first(is_first)] {
                        td { (e.workload) }
                        td { (named(run, &e.arm)) }
                        td.n { (median(e, &base)) }
                        td.n { (median(e, &e.arm)) }
                        td { (kind(e).map_or("", Kind::unit)) }
                        td { (verdict(e)) }
                        td.n { @if e.p_holm < 0.001 { "< 0.001" } @else { (format!("{:.3}", e.p_holm)) } }
                        td.n { (measure(e)) }
                    }
                }
            }
        }
    }
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
    Some("not in this form of the experiment".to_owned())
}

/// A rate, with the latency it implies where it is one of transactions.
fn rate(v: f64, bulk: bool) -> Markup {
    html! { (human(v)) @if !bulk { " " small { (format!("{:.3} ms", 1e3 / v)) } } }
}

/// What a row of the paper has: its own figures, and the number of the note on what is wrong with it.
fn of_the_paper(paper: &Paper, row: &Row, bulk: bool, note: Option<usize>) -> Markup {
    let mean = |setup: &str| paper.mean(&row.workload, setup);
    let cell = |v: Option<f64>| html! { td.n { @if let Some(v) = v { (rate(v, bulk)) } @else { "–" } } };
    let again = paper.change(&row.workload, &row.base, &row.arm);
    html! {
        td { (row.workload) }
        td { (row.base) " → " (row.arm) }
        (cell(mean(&row.base)))
        (cell(mean(&row.arm)))
        td.n { (format!("{:.2} %", row.printed)) @if let Some(note) = note { sup { (note) } } }
        td.n { (again.map_or("–".into(), |v| format!("{v:.2} %"))) }
    }
}

/// What each of our arms that stands for a row of the paper has; what is absent comes last, in one row a reason.
fn beside(run: &Run, obs: &[Obs], layout: Layout, row: &Row, bulk: bool) -> Vec<Markup> {
    let mut rows = Vec::new();
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
                let change = |log: f64| percent(change(log));
                rows.push(html! {
                    td { (named(run, &arm)) }
                    td.n { (rate(b, bulk)) }
                    td.n { (rate(a, bulk)) }
                    td.n { (change(c.estimate)) " " small { "(" (change(c.lo)) " to " (change(c.hi)) ")" } }
                });
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
    rows.extend(absent.into_iter().map(|(why, names)| {
        html! { td.absent colspan="4" { "absent: " (names.join(", ")) ": " (why) } }
    }));
    rows
}

/// The paper's tables with ours beside: same rows, same units.
pub fn paper(run: &Run, paper: &Paper, layout: Layout) -> Markup {
    let obs = Obs::of(&run.samples);
    html! {
        @for t in &paper.tables {
            h3 { "Table " (t.number) ": " (t.title) }
            @let notes: Vec<&String> = t.rows.iter().filter_map(|row| row.fault.as_ref()).collect();
            table.paper {
                thead {
                    tr {
                        th colspan="6" { "the paper (means)" }
                        th colspan="4" { "here (medians, client and server " (layout.name()) ")" }
                    }
                    tr {
                        th { "workload" }
                        th { "base → set-up" }
                        th.n { "base" }
                        th.n { "set-up" }
                        th.n { "change, printed" }
                        th.n { "from its means" }
                        th { "set-up" }
                        th.n { "base" }
                        th.n { "set-up" }
                        th.n { "change (95 % interval)" }
                    }
                }
                tbody {
                    @for (at, row) in t.rows.iter().enumerate() {
                        @let bulk = row.workload.ends_with("STREAM");
                        @let before = t.rows.iter().take(at).filter(|row| row.fault.is_some()).count();
                        @let note = row.fault.as_ref().map(|_| before + 1);
                        @for (i, ours) in beside(run, &obs, layout, row, bulk).iter().enumerate() {
                            tr class=[first(i == 0)] {
                                @if i == 0 { (of_the_paper(paper, row, bulk, note)) } @else { td colspan="6" {} }
                                (ours)
                            }
                        }
                    }
                }
            }
            ol.notes { @for note in notes { li { (note) } } }
        }
    }
}

/// How long the end of a session took, where this server alone uses it, and where another does.
pub fn endings(run: &Run) -> Markup {
    let sites = [
        (Home::Here, "the server that serves holds the session (F-)"),
        (Home::Elsewhere, "another server uses it (F)"),
    ];
    html! {
        table {
            thead { tr {
                th { "ends of a session" } th.n { "ends" } th.n { "5 %" } th.n { "median" } th.n { "95 %" } th { "what went wrong" }
            } }
            tbody {
                @for (session, what) in sites {
                    @let of = || run.endings.iter().filter(|ending| ending.session == session);
                    @let seconds: Vec<f64> = of().filter_map(|ending| ending.seconds).collect();
                    @if of().count() > 0 {
                        tr {
                            td { (what) }
                            td.n { (seconds.len()) }
                            @for share in [0.05, 0.5, 0.95] {
                                td.n { (quantile(&seconds, share).map_or("–".into(), |s| format!("{:.1} ms", s * 1e3))) }
                            }
                            td { @for ending in of() { @if let Some(why) = &ending.why { (why) } } }
                        }
                    }
                }
            }
        }
        p {
            "After the last trial the person signs off, and on again. Timed is levee-tpe logout, from its start until the end is              acknowledged. Each time the server that served the session is asked before and after: before, it has the session and              keys for it; after, neither."
        }
    }
}

/// Attribution to factors, where a complete factorial design was run.
pub fn attribution(run: &Run) -> Markup {
    let rows = &run.summary.attribution;
    if rows.is_empty() {
        return html! {
            p.quiet { "No complete factorial design among the arms of this run: nothing to attribute." }
        };
    }
    let quiet = |i: Interval| (!i.excludes_none()).then_some("quiet");
    let times = |(r, lo, hi): (f64, f64, f64)| format!("×{r:.3} ({lo:.3}–{hi:.3})");
    let adds = |i: Interval| format!("{} ({} to {})", nanos(i.estimate), nanos(i.lo), nanos(i.hi));
    html! {
        table {
            thead { tr {
                th { "workload" }
                th { "layout" }
                th { "design" }
                th { "effect" }
                th.n { "multiplies time by" }
                th.n { "adds to time" }
            } }
            tbody {
                @for a in rows {
                    tr class=[quiet(a.multiplicative)] {
                        td { (a.workload) }
                        td { (a.layout.name()) }
                        td { (a.design.join(" × ")) }
                        td { (a.of.join(" × ")) }
                        td.n { (times(a.multiplicative.ratio())) }
                        td.n { (adds(a.additive)) }
                    }
                }
            }
        }
    }
}

/// The cost calculator: its prices, and how they do on workloads it has not seen.
pub fn calculator(run: &Run) -> Markup {
    let s = &run.summary;
    let mut off: Vec<f64> =
        s.calculator.iter().map(|c| 100.0 * (c.measured / c.predicted).ln().abs().exp_m1()).collect();
    off.sort_by(f64::total_cmp);
    let off_by = |share: f64| format!("{:.0} %", quantile(&off, share).unwrap_or(f64::NAN));
    html! {
        (prices(run))
        p {
            "For work of your own: "
            code { "levee lab cost DIR --connections N --requests N --bytes N --packets N" }
            "."
        }
        table {
            thead { tr {
                th { "layout" }
                th { "arm" }
                th { "workload" }
                th.n { "predicted" }
                th.n { "measured" }
                th.n { "residual" }
            } }
            tbody {
                @for (is_first, c) in grouped(s.calculator.iter(), |c| &c.arm) {
                    tr class=[first(is_first)] {
                        td { (c.layout.name()) }
                        td { (named(run, &c.arm)) }
                        td { (c.workload) }
                        td.n { (nanos(c.predicted)) }
                        td.n { (nanos(c.measured)) }
                        td.n { (percent((c.measured / c.predicted - 1.0) * 100.0)) }
                    }
                }
            }
        }
        @if off.is_empty() {
            p.quiet { "This form of the experiment measures no workload that is kept from the calculator." }
        } @else {
            p {
                "Off by " (off_by(0.5)) " in the median of the " (off.len()) " predictions, by " (off_by(1.0)) " at most."
            }
        }
    }
}

fn prices(run: &Run) -> Markup {
    let show = |v: Option<f64>, n: f64| v.map_or("–".into(), |v| nanos(v * n));
    html! {
        table {
            thead { tr {
                th { "layout" }
                th { "arm" }
                th.n { "a connection" }
                th.n { "a request" }
                th.n { "1,000 bytes" }
                th.n { "a packet" }
            } }
            tbody {
                @for p in &run.summary.prices {
                    tr {
                        td { (p.layout.name()) }
                        td { (named(run, &p.arm)) }
                        td.n { (show(p.connection, 1.0)) }
                        td.n { (show(p.request, 1.0)) }
                        td.n { (show(p.byte, 1e3)) }
                        td.n { (show(p.packet, 1.0)) }
                    }
                }
            }
        }
    }
}

/// The columns of [`cells`] that are numbers.
const CELL: [&str; 12] = [
    "n",
    "median",
    "mean ± sd",
    "p50",
    "p99",
    "p99.9",
    "client CPU",
    "getrusage",
    "server CPU",
    "levee's CPU",
    "lag-1",
    "steps",
];

/// What a cell has in those columns.
fn numbers(c: &Cell) -> [String; 12] {
    let latency =
        |i: usize| c.latency.and_then(|l| l.get(i).copied()).map_or("–".into(), |v| nanos(v as f64));
    let per = if Kind::of_unit(&c.workload).is_some_and(Kind::is_bulk) { "/GB" } else { "" };
    let cpu = |s: Option<f64>| s.map_or("–".into(), |s| format!("{}{per}", nanos(s * 1e9)));
    let role = |i: usize| cpu(c.cpu.get(i).copied().flatten());
    [
        c.n.to_string(),
        human(c.percentiles[2]),
        format!("{} ± {}", human(c.mean), human(c.sd)),
        latency(0),
        latency(2),
        latency(3),
        role(0),
        cpu(c.rusage),
        role(1),
        role(2),
        c.lag1.map_or("–".into(), |v| format!("{v:+.2}")),
        c.change_points.len().to_string(),
    ]
}

/// Processor time by role and latency of each cell.
pub fn cells(run: &Run) -> Markup {
    html! {
        table {
            thead { tr { th { "workload" } th { "layout" } th { "arm" } @for title in CELL { th.n { (title) } } } }
            tbody {
                @for c in &run.summary.cells {
                    tr {
                        td { (c.workload) }
                        td { (c.layout.name()) }
                        td { (named(run, &c.arm)) @if c.copy == 1 { " (again)" } }
                        @for number in numbers(c) { td.n { (number) } }
                    }
                }
            }
        }
    }
}

/// The rejected attempts.
pub fn rejects(run: &Run) -> Markup {
    let all: Vec<_> = run.samples.iter().filter(|s| !s.flags.is_empty()).collect();
    let kinds: BTreeSet<Flag> = all.iter().flat_map(|s| s.flags.iter().copied()).collect();
    if all.is_empty() {
        return html! { p { "None: no attempt was flagged." } };
    }
    let flagged = |k: Flag| all.iter().filter(|s| s.flags.contains(&k)).count();
    let kept = |k: Flag| all.iter().filter(|s| s.accepted && s.flags.contains(&k)).count();
    html! {
        details {
            summary { @for k in kinds { (flagged(k)) " " (k.name()) " (" (kept(k)) " kept after reruns) " } }
            table {
                thead { tr {
                    th.n { "order" }
                    th { "workload" }
                    th { "layout" }
                    th { "arm" }
                    th.n { "attempt" }
                    th { "analysed" }
                    th { "why" }
                } }
                tbody {
                    @for s in &all {
                        tr {
                            td.n { (s.seq) }
                            td { (s.workload) }
                            td { (s.layout.name()) }
                            td { (named(run, &s.arm)) }
                            td.n { (s.attempt) }
                            td { @if s.accepted { "yes, marked" } @else { "no" } }
                            td { (s.why.as_deref().unwrap_or("")) }
                        }
                    }
                }
            }
        }
    }
}

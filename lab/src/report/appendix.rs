//! The paper's figures and its appendices, theirs beside ours.

use super::Run;
use super::draw::{count, human};
use super::figures::lines;
use super::plots::{self, Beside, Figure};
use super::read;
use super::tables::named;
use crate::design::Layout;
use crate::experiment::{Arm, Mediation, Path, Unit, Use};
use crate::paper::Paper;
use crate::place::Home;
use crate::sample::{Ledger, Sample};
use crate::workload::UdpStep;
use levee_stats::quantile;
use maud::{Markup, html};
use std::fmt::Write as _;

/// A workload of the paper, its figure in chapter 5 and in appendix C, and its place in the appendices D, E and F, where
/// each workload has a box plot, a histogram and a scatter plot, in this order.
const FIGURES: [(&str, &str, usize); 5] = [
    ("TCP_STREAM", "Figures 5.1 and C.1", 0),
    ("UDP_STREAM", "Figures C.2 and G.1", 1),
    ("TCP_CC", "Figures 5.2 and C.3", 2),
    ("TCP_CRR", "Figure C.4", 3),
    ("TCP_RR", "Figures 5.3 and C.5", 4),
];

/// An arm's name as the paper has it: `M` for every mode.
fn in_the_paper(arm: &str) -> String {
    let levels: Vec<&str> = arm.split(' ').map(|l| if l.starts_with("M(") { "M" } else { l }).collect();
    levels.join(" ")
}

fn effect_unit(run: &Run, workload: &str) -> Option<Unit> {
    run.manifest
        .experiment
        .units(Some(&run.manifest.form))
        .into_iter()
        .find(|u| u.id == workload && u.usage == Use::Effect)
}

/// Figures 5.1 to 5.3 and C.1 to C.5: every set-up of ours and every one of the paper's, each over its own base.
fn overviews(run: &Run, paper: &Paper, layout: Layout) -> Vec<Figure> {
    let base = run.manifest.experiment.baseline().map(|a| a.name.clone()).unwrap_or_default();
    let mut out = Vec::new();
    for (workload, number, _) in FIGURES {
        let Some(unit) = effect_unit(run, workload) else { continue };
        let all = lines(run, &unit, layout);
        let of_base: Vec<f64> =
            all.iter().filter(|l| l.name == base).flat_map(|l| l.points.iter().map(|p| p.1)).collect();
        let Some(middle) = quantile(&of_base, 0.5) else { continue };
        let theirs_base = paper.mean(workload, &base);
        let theirs = |arm: &str| Some(paper.mean(workload, arm)? / theirs_base?);
        let mut rows: Vec<Beside> = all
            .iter()
            .filter(|l| l.copy == 0)
            .map(|l| Beside {
                name: l.name.clone(),
                shown: l.shown.clone(),
                colour: l.colour,
                ratios: l.points.iter().map(|p| p.1 / middle).collect(),
                theirs: theirs(&in_the_paper(&l.name)),
            })
            .collect();
        // what the paper measured and nothing here stands for
        for m in paper.means.iter().filter(|m| m.workload == workload) {
            if all.iter().all(|l| in_the_paper(&l.name) != m.arm) {
                rows.push(Beside {
                    name: m.arm.clone(),
                    shown: format!("{} (absent here)", m.arm),
                    colour: 0,
                    ratios: Vec::new(),
                    theirs: theirs(&m.arm),
                });
            }
        }
        let what = if theirs_base.is_some() {
            "Diamond: the paper's mean, over its own base."
        } else {
            "The paper prints no mean for it, only a picture; see appendix G below."
        };
        let caption = format!(
            "{number}, {workload}: the rate of every set-up over that of the plain link (I- M- F-), client and server {}. Box, whiskers and points: \
             here. {what}",
            layout.name()
        );
        out.push(plots::beside(&format!("paper-{workload}"), &caption, &rows));
    }
    out
}

/// A comparison of the appendices D, E and F: its arms, and its figures.
struct Comparison {
    letter: char,
    title: &'static str,
    /// The appendix has the same figures again, fifteen numbers on, with F and without.
    again: bool,
    wanted: fn(&Arm) -> bool,
}

fn bare(a: &Arm) -> bool {
    a.drive.mediation == Mediation::None
}

fn here(a: &Arm) -> bool {
    a.drive.session == Home::Here
}

fn link(a: &Arm) -> bool {
    a.drive.path == Path::Link
}

const COMPARISONS: [Comparison; 5] = [
    Comparison { letter: 'D', title: "I against I-, M- F-", again: true, wanted: |a| bare(a) && here(a) },
    Comparison {
        letter: 'E',
        title: "M in each mode against M-, I- F-",
        again: true,
        wanted: |a| link(a) && here(a),
    },
    Comparison { letter: 'D', title: "I against I-, M- F", again: true, wanted: |a| bare(a) && !here(a) },
    Comparison {
        letter: 'E',
        title: "M in each mode against M-, I- F",
        again: true,
        wanted: |a| link(a) && !here(a),
    },
    Comparison { letter: 'F', title: "F against F-, I- M-", again: false, wanted: |a| link(a) && bare(a) },
];

/// The figures of one comparison on one workload, and their numbers in the paper.
fn compared(run: &Run, layout: Layout, c: &Comparison, (workload, place): (&str, usize)) -> Option<Markup> {
    let unit = effect_unit(run, workload)?;
    let arms: Vec<&Arm> = run.manifest.experiment.arms.iter().filter(|a| (c.wanted)(a)).collect();
    let mut of = lines(run, &unit, layout);
    of.retain(|l| l.copy == 0 && arms.iter().any(|a| a.name == l.name));
    if of.len() < 2 {
        return None;
    }
    let first = 3 * place + 1;
    let mut number = format!("Figures {0}.{first} to {0}.{1}", c.letter, first + 2);
    if c.again {
        let _ = write!(number, " and {0}.{1} to {0}.{2}", c.letter, first + 15, first + 17);
    }
    let half = if arms.iter().any(|a| here(a)) { "" } else { "-elsewhere" };
    let name = |what: &str| format!("{}{half}-{workload}-{what}", c.letter);
    let u = unit.kind.unit();
    let figures = [
        plots::boxes(&name("box"), "", u, &of),
        plots::histograms(&name("histogram"), "", u, &of),
        plots::scatter(&name("scatter"), "", u, &of, &[]),
    ];
    Some(html! {
        details.printed {
            summary { (number) ": " (workload) }
            @for f in &figures { (f) }
        }
    })
}

/// Appendices D, E and F: box plot, histogram and scatter plot of each comparison on each workload.
fn comparisons(run: &Run, layout: Layout) -> Markup {
    html! {
        @for c in &COMPARISONS {
            h3 { "Appendix " (c.letter) ": " (c.title) }
            @for (workload, _, place) in FIGURES {
                @if let Some(figures) = compared(run, layout, c, (workload, place)) { (figures) }
            }
        }
    }
}

/// The paper's figures with ours beside.
pub fn figures_of_the_paper(run: &Run, paper: &Paper, layout: Layout) -> Markup {
    html! {
        p {
            "The data behind the paper's figures are not printed; its means stand in ours. Its appendices D, E and F hold a \
             box plot, a histogram and a scatter plot of each comparison: the same here. Its appendices D and E have two halves, \
             and their captions do not say which is F's: the numbers of both stand at each of ours."
        }
        @for f in overviews(run, paper, layout) { (f) }
        (comparisons(run, layout))
    }
}

/// The step of a sweep that floods, as the paper's trials did: the first that is measured.
fn flood(s: &Sample) -> Option<UdpStep> {
    s.outcome.as_ref()?.udp.as_ref()?.steps.get(1).copied()
}

/// Tables G.1 and G.2: what a flood of datagrams sends and what arrives.
fn floods(run: &Run, paper: Option<&Paper>) -> Markup {
    let row = |class: &str, name: &str, sent: f64, got: f64, out_rate: f64, in_rate: f64| {
        html! {
            tr class=(class) {
                td { (name) }
                td.n { (human(out_rate)) }
                td.n { (human(in_rate)) }
                td.n { (count(sent)) }
                td.n { (count(got)) }
                td.n { (format!("{:.2} %", 100.0 * got / sent)) }
            }
        }
    };
    let mut rows = Vec::new();
    for p in paper.iter().flat_map(|p| &p.udp) {
        for (i, (sent, got, a, b)) in p.rows.iter().enumerate() {
            let name = format!("the paper, table {}, {} ({})", p.table, i + 1, p.note);
            rows.push(row("quiet", &name, *sent as f64, *got as f64, *a, *b));
        }
    }
    let bits = run.manifest.common.datagram as f64 * 8.0 / 1e3;
    for &layout in &run.manifest.form.layouts {
        for arm in read::arms(run) {
            let of: Vec<UdpStep> = of_udp(run, layout, &arm).filter_map(flood).collect();
            let sum = |f: fn(&UdpStep) -> f64| of.iter().map(f).sum::<f64>();
            let (sent, got, time) = (sum(|s| s.sent as f64), sum(|s| s.delivered as f64), sum(|s| s.seconds));
            if sent > 0.0 {
                let shown = read::in_words(run, &arm);
                let name = format!("{shown}, here, {} ({} floods)", layout.name(), of.len());
                rows.push(row("here", &name, sent, got, sent * bits / time, got * bits / time));
            }
        }
    }
    html! {
        table {
            thead { tr {
                th { "set-up" }
                th.n { "sent, 10" sup { "3" } " bit/s" }
                th.n { "received, 10" sup { "3" } " bit/s" }
                th.n { "datagrams sent" }
                th.n { "received" }
                th.n { "arrived" }
            } }
            tbody { @for row in &rows { (row) } }
        }
    }
}

fn of_udp<'a>(run: &'a Run, layout: Layout, arm: &'a str) -> impl Iterator<Item = &'a Sample> {
    run.samples
        .iter()
        .filter(move |s| s.accepted && s.workload == "UDP_STREAM" && s.layout == layout && s.arm == arm)
}

/// What a ledger says of one thing.
type Said = fn(&Ledger) -> Option<i64>;

/// The columns of [`ledgers`], in the order of the path.
const LEDGER: [(&str, Said); 9] = [
    ("sent", |l| Some(l.sent)),
    ("on the wire", |l| Some(l.wire)),
    ("lost at interfaces", |l| Some(l.device_drops)),
    ("in the tunnel", |l| Some(l.tunnel)),
    ("out of the tunnel", |l| l.opened),
    ("reassembled", |l| Some(l.reassembled)),
    ("lost at the socket", |l| Some(l.socket_drops)),
    ("unaccounted", |l| Some(l.missing)),
    ("delivered", |l| Some(l.delivered)),
];

/// Where the datagrams of one arm's sweeps went.
fn ledger(run: &Run, layout: Layout, arm: &str) -> Option<Markup> {
    let of: Vec<&Sample> = of_udp(run, layout, arm).collect();
    let sum = |f: fn(&Ledger) -> Option<i64>| {
        let all: Vec<i64> = of.iter().filter_map(|s| f(s.ledger.as_ref()?)).collect();
        if all.is_empty() { "–".to_owned() } else { count(all.iter().sum::<i64>() as f64) }
    };
    let rates: Vec<f64> = of.iter().filter_map(|s| s.value()).collect();
    let middle = quantile(&rates, 0.5)?;
    Some(html! {
        tr {
            td { (named(run, arm)) ", " (layout.name()) }
            td.n { (of.len()) }
            @for (_, f) in LEDGER { td.n { (sum(f)) } }
            td.n { (human(middle)) }
        }
    })
}

/// Where the datagrams of every sweep went, and the highest rate without loss.
fn ledgers(run: &Run) -> Markup {
    let arms = read::arms(run);
    html! {
        table {
            thead { tr {
                th { "set-up" }
                th.n { "sweeps" }
                @for (title, _) in LEDGER { th.n { (title) } }
                th.n { "without loss, 10" sup { "6" } " bit/s" }
            } }
            tbody {
                @for &layout in &run.manifest.form.layouts {
                    @for arm in &arms {
                        @if let Some(row) = ledger(run, layout, arm) { (row) }
                    }
                }
            }
        }
    }
}

/// Appendix G beside ours.
pub fn udp(run: &Run, paper: Option<&Paper>) -> Markup {
    html! {
        h3 { "A flood, as in the paper's tables G.1 and G.2" }
        p {
            "The paper's datagrams had 16,000 bytes (its rates over its counts), eleven fragments each, of which one lost \
             loses all. Here: " (run.manifest.common.datagram) " bytes, one packet each, sent as fast as the socket takes them."
        }
        (floods(run, paper))
        h3 { "The ledger of every sweep" }
        p {
            "After the flood the rate is halved towards the highest at which nothing is lost. Every datagram of every step is \
             accounted for, or the trial is rejected."
        }
        (ledgers(run))
    }
}

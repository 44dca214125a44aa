//! What a reader sees first: ratios of every arm on every workload, and the set-up, drawn.

use super::Run;
use super::answer;
use super::read;
use super::tables::why_not;
use super::told::{Told, added, elsewhere, mediated, over_baseline, units};
use crate::analysis::Effect;
use crate::design::Layout;
use crate::experiment::{Arm, Mediation, Path};
use crate::place::Home;
use levee_stats::{Interval, quantile};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// A ratio with its interval, as a cell of a table.
fn ratio_cell(i: Interval, class: &str) -> Markup {
    let (r, lo, hi) = i.ratio();
    let digits = if r >= 10.0 { 1 } else { 2 };
    html! {
        td.n {
            span class=(class) { "×" (format!("{r:.digits$}")) }
            " "
            small { "(" (format!("{lo:.digits$}–{hi:.digits$}")) ")" }
        }
    }
}

fn workloads(run: &Run) -> Vec<String> {
    units(run).into_iter().map(|u| u.id).collect()
}

/// What is told, as a cell of a table.
fn cell(told: Told) -> Markup {
    match told {
        Told::Differs(c) => ratio_cell(c, if c.estimate > 0.0 { "bad" } else { "good" }),
        Told::Same(c) => ratio_cell(c, "quiet"),
        Told::Nothing => html! { td.n.quiet { "not measured" } },
    }
}

/// An arm's name for a row: in words, then as samples have it.
fn row_head(arm: &Arm) -> Markup {
    html! { td { (answer::words(arm)) " " small.quiet { (arm.name) } } }
}

/// A table with a column for each kind of work.
fn table(title: &str, workloads: &[String], rows: &Markup) -> Markup {
    html! {
        table.glance {
            thead { tr { th { (title) } @for w in workloads { th.n { (w) } } } }
            tbody { (rows) }
        }
    }
}

/// Every arm against the baseline.
fn against_the_baseline(run: &Run, layout: Layout, workloads: &[String]) -> Markup {
    let base = run.manifest.experiment.baseline().map(|a| a.name.clone()).unwrap_or_default();
    let ran = read::arms(run);
    let arms = run.manifest.experiment.arms.iter().filter(|a| a.name != base && ran.contains(&a.name));
    let seldom = |arm: &Arm, w: &str| {
        let of = |e: &Effect| e.workload == w && e.layout == layout && e.arm == arm.name && e.cost.is_none();
        run.summary.effects.iter().any(of)
    };
    let floor = |w: &str| {
        let of = run.summary.floors.iter().find(|f| f.workload == w && f.layout == layout);
        of.map(|f| f.floor).filter(|f| f.is_finite())
    };
    let rows = html! {
        @for arm in arms {
            tr {
                (row_head(arm))
                @for w in workloads {
                    @match over_baseline(run, layout, &arm.name, w) {
                        Told::Nothing if seldom(arm, w) => { td.n.quiet { "too few blocks" } }
                        told => { (cell(told)) }
                    }
                }
            }
        }
        tr {
            td.quiet { "noise floor, the baseline against itself" }
            @for w in workloads {
                td.n.quiet {
                    @if let Some(f) = floor(w) { "within ×" (format!("{:.2}–{:.2}", (-f).exp(), f.exp())) } @else { "–" }
                }
            }
        }
    };
    table(&format!("time per unit of work, over {}", read::in_words(run, &base)), workloads, &rows)
}

/// What the first of each pair of arms adds to the second.
fn added_by(
    run: &Run,
    layout: Layout,
    workloads: &[String],
    (title, pairs): (&str, &[(&Arm, &Arm)]),
) -> Option<Markup> {
    let rows = html! {
        @for (arm, base) in pairs {
            tr {
                (row_head(arm))
                @for w in workloads { (cell(added(run, layout, (&base.name, &arm.name), w))) }
            }
        }
    };
    (!pairs.is_empty()).then(|| table(title, workloads, &rows))
}

/// The arms that could not be built, one line a reason.
pub fn absent(run: &Run) -> Markup {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for arm in &run.manifest.experiment.arms {
        if let Some(why) = why_not(run, &arm.name) {
            reasons.entry(why).or_default().push(read::in_words(run, &arm.name));
        }
    }
    html! {
        @if !reasons.is_empty() {
            p { "Declared, absent, and not filled in:" }
            ul { @for (why, arms) in reasons { li.quiet { (why) ": " (arms.join("; ")) } } }
        }
    }
}

/// What there is for one layout: folded, but for the first, which is what a reader came for.
pub fn beside_the_first(number: usize, layout: Layout, what: &Markup) -> Markup {
    html! {
        @if number == 0 { (what) } @else { details { summary { "The same, client and server " (layout.name()) } (what) } }
    }
}

/// The first section.
pub fn glance(run: &Run) -> Markup {
    let workloads = workloads(run);
    let layouts = &run.manifest.form.layouts;
    let floors = run.summary.floors.iter().map(|f| f.floor.exp_m1() * 100.0);
    let floors: Vec<f64> = floors.filter(|f| f.is_finite()).collect();
    let pairs = [
        ("what mediation adds on the same path", mediated(run)),
        ("what a second server adds to the first's own", elsewhere(run)),
    ];
    let tables = |layout: Layout| {
        html! {
            (against_the_baseline(run, layout, &workloads))
            @for (title, pairs) in &pairs {
                @if let Some(added) = added_by(run, layout, &workloads, (title, pairs)) { (added) }
            }
        }
    };
    html! {
        @for (i, &layout) in layouts.iter().enumerate() {
            @if layouts.len() > 1 && i == 0 { h3 { "Client and server " (layout.name()) } }
            (beside_the_first(i, layout, &tables(layout)))
        }
        p.quiet {
            "×1.10 is ten percent more time for each byte, request or connection, with the 95 % interval. Coloured: a cost or \
             a gain beyond this machine's noise floor. Grey: not told apart from that noise, which is no proof that there is \
             none. What one arm adds to another that is not the baseline is told by interval and floor alone, without Holm's \
             adjustment for the number of effects."
        }
        @if let (Some(a), Some(b)) = (quantile(&floors, 0.0), quantile(&floors, 1.0)) {
            p.quiet { "Noise floors of this run: " (format!("{a:.1} to {b:.1}")) " % over its workloads." }
        }
        (absent(run))
    }
}

/// A drawing made of rows: who talks to whom.
struct Drawing {
    rows: Vec<Markup>,
    y: i32,
}

/// Height of a row of the set-up's drawing.
const ROW: i32 = 74;

/// A box at one end.
fn place(y: i32, x: i32, width: i32, (head, line): (&str, &str)) -> Markup {
    html! {
        rect x=(x) y=(y) width=(width) height="54" rx="6" class="place" {}
        text x=(x + 10) y=(y + 22) class="head" { (head) }
        text x=(x + 10) y=(y + 42) class="small" { (line) }
    }
}

/// What lies between, from `x` to `to`.
fn wire(y: i32, x: i32, to: i32, (label, dashed): (&str, bool)) -> Markup {
    let y = y + 30;
    html! {
        line x1=(x) y1=(y) x2=(to) y2=(y) class="wire" stroke-dasharray=[dashed.then_some("7 5")] {}
        text x=(i32::midpoint(x, to)) y=(y - 8) class="small" text-anchor="middle" { (label) }
    }
}

impl Drawing {
    fn row(
        &mut self,
        (arms, levels): (&str, &str),
        client: (&str, &str),
        between: (&str, bool),
        server: (&str, &str),
    ) {
        let y = self.y;
        self.rows.push(html! {
            (place(y, 158, 202, client))
            (wire(y, 360, 620, between))
            (place(y, 620, 270, server))
            text x="8" y=(y + 24) class="head" { (arms) }
            text x="8" y=(y + 42) class="small" { (levels) }
        });
        self.y += ROW;
    }
}

const CLIENT: &str = "levee-lab client, processor 0";

/// A way through levee: the arms, its path, whether it is mediated, who holds the session, and what is at its end.
type Way = (&'static str, Path, bool, Home, (&'static str, &'static str));

const WAYS: [Way; 6] = [
    ("I- M(…) F-", Path::Link, true, Home::Here, ("compartment at HIGH", "the same program, run by levee")),
    ("I M(…) F-", Path::Tunnel, true, Home::Here, ("compartment at LOW", "the same program, run by levee")),
    ("I M- F-", Path::Tunnel, false, Home::Here, ("network of that", "a plain daemon outside it")),
    ("I- M(…) F", Path::Link, true, Home::Elsewhere, ("server two, HIGH", "the same program, run by levee")),
    ("I M(…) F", Path::Tunnel, true, Home::Elsewhere, ("server two, LOW", "the same program, run by levee")),
    ("I M- F", Path::Tunnel, false, Home::Elsewhere, ("network of that", "a plain daemon outside it")),
];

/// What F is here, and what it is in the paper.
const FEDERATED: [&str; 2] = [
    "F: two servers of one federation and etcd, each in a namespace of its own. The person signs on at the first. The service is the \
     second's, which believes what the first has signed about its session, decides by its own policy and writes its own log. In \
     the paper the proxy of the second asks the first at each connection (5.2.3). Here it asks nobody: the servers tell one \
     another eight times a lease, and each packet is held to the time until which the first has granted the session.",
    "I- F: a plain link comes to levee as a single-level network, which has no session. Nobody holds one, so no server has to be \
     asked about one: what F changes there is that the server belongs to a federation.",
];

/// The set-up, drawn: a row for each way from client to server.
pub fn set_up(run: &Run) -> Markup {
    let ran = read::arms(run);
    let drives: Vec<_> =
        run.manifest.experiment.arms.iter().filter(|a| ran.contains(&a.name)).map(|a| a.drive).collect();
    let has = |path: Path, mediated: bool, session: Home| {
        drives.iter().any(|d| {
            !d.before
                && d.path == path
                && (d.mediation != Mediation::None) == mediated
                && d.session == session
        })
    };
    let mut d = Drawing { rows: Vec::new(), y: 10 };
    let here = ("namespace", "levee-lab serve, a plain daemon");
    d.row(("plain link", "I- M- F-"), ("namespace", CLIENT), ("veth, MTU 1500", false), here);
    if has(Path::Link, false, Home::Elsewhere) {
        let there = ("another namespace", "the same program");
        d.row(("plain link", "I- M- F"), ("the same", CLIENT), ("veth of its own", false), there);
    }
    for way in WAYS {
        let [path, mediated] = [way.1 == Path::Tunnel, way.2];
        if !has(way.1, mediated, way.3) {
            continue;
        }
        let (client, between) = match (path, way.3) {
            (false, Home::Here) => ("host on a network", "single-level network, nftables"),
            (false, Home::Elsewhere) => ("host on another", "single-level network, nftables"),
            (true, Home::Here) => ("session's namespace", "vault ═ ESP in UDP over veth ═ vault"),
            (true, Home::Elsewhere) => ("session of server one", "vault ═ ESP in UDP over veth ═ vault"),
        };
        let words = match (path, mediated) {
            (false, _) => "link, mediated",
            (true, true) => "tunnel, mediated",
            (true, false) => "tunnel",
        };
        d.row((words, way.0), (client, CLIENT), (between, path), way.4);
    }
    let is_federated = has(Path::Link, true, Home::Elsewhere)
        || [false, true].into_iter().any(|mediated| has(Path::Tunnel, mediated, Home::Elsewhere));
    html! {
        figure {
            svg viewBox={ "0 0 900 " (d.y) } style="width:100%;max-width:900px" role="img" { @for row in &d.rows { (row) } }
            figcaption {
                "The set-up: namespaces of this host, made for the run and removed after it. The server is on processor 1 \
                 (apart) or 0 (together); levee's vaults are where the scheduler puts them, as in a running site. Client, \
                 server program and kernel settings do not differ between arms."
            }
        }
        @if is_federated { @for text in FEDERATED { p { (text) } } }
    }
}

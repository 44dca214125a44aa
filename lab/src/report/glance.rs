//! What a reader sees first: ratios of every arm on every workload, and the set-up, drawn.

use super::Run;
use super::answer;
use super::figures;
use super::page::escape;
use super::tables::why_not;
use crate::analysis::{Effect, Obs, Verdict, contrast};
use crate::design::Layout;
use crate::experiment::{Arm, Drive, Mediation, Path, Session, Unit, Use};
use crate::stats::{Interval, quantile};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A ratio with its interval, as a cell of a table.
fn ratio_cell(i: Interval, class: &str) -> String {
    let (r, lo, hi) = i.ratio();
    let digits = if r >= 10.0 { 1 } else { 2 };
    format!(
        "<td class=n><span class={class}>×{r:.digits$}</span> <small>({lo:.digits$}–{hi:.digits$})</small>"
    )
}

/// The work whose effects are of the family.
pub fn units(run: &Run) -> Vec<Unit> {
    let units = run.manifest.experiment.units(Some(&run.manifest.form));
    units.into_iter().filter(|u| u.usage == Use::Effect).collect()
}

fn workloads(run: &Run) -> Vec<String> {
    units(run).into_iter().map(|u| u.id).collect()
}

/// What can be said of an arm on some work.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// It was not measured, or too seldom.
    Nothing,
    /// It is within what this machine differs from itself.
    Same(Interval),
    /// It is beyond that.
    Differs(Interval),
}

impl Told {
    fn cell(self) -> String {
        match self {
            Self::Differs(c) => ratio_cell(c, if c.estimate > 0.0 { "bad" } else { "good" }),
            Self::Same(c) => ratio_cell(c, "quiet"),
            Self::Nothing => "<td class=\"n quiet\">not measured".to_owned(),
        }
    }
}

/// An arm over the baseline, as the family of effects has it.
pub fn over_baseline(run: &Run, layout: Layout, arm: &str, workload: &str) -> Told {
    let of = |e: &&Effect| e.workload == workload && e.layout == layout && e.arm == arm;
    match run.summary.effects.iter().find(of).map(|e| (e.verdict, e.cost)) {
        Some((Verdict::Cost | Verdict::Gain, Some(c))) => Told::Differs(c),
        Some((Verdict::Floor, Some(c))) => Told::Same(c),
        _ => Told::Nothing,
    }
}

/// Arms that are mediated, each with the one that is not and goes the same way.
pub fn mediated(run: &Run) -> Vec<(&Arm, &Arm)> {
    let ran = figures::arms(run);
    let arms: Vec<&Arm> = run.manifest.experiment.arms.iter().filter(|a| ran.contains(&a.name)).collect();
    let bare = |arm: &Arm| {
        let drive = Drive { mediation: Mediation::None, ..arm.drive };
        arms.iter().copied().find(|a| a.drive == drive && a.tool.is_none())
    };
    let by_us = arms.iter().copied().filter(|a| a.drive.mediation != Mediation::None && a.tool.is_none());
    by_us.filter_map(|arm| Some((arm, bare(arm)?))).collect()
}

/// What the second of two arms adds to the first, from the same blocks; outside the family that Holm's adjustment covers.
pub fn added(run: &Run, layout: Layout, (base, arm): (&str, &str), workload: &str) -> Told {
    let floor = run.summary.floors.iter().find(|f| f.workload == workload && f.layout == layout);
    let floor = floor.map_or(f64::INFINITY, |f| f.floor);
    let obs = Obs::of(&run.samples);
    let c = contrast(&obs, &(workload.to_owned(), layout), base, arm, run.manifest.seed);
    match c.filter(|_| run.manifest.measures(arm, workload)) {
        Some(c) if c.excludes_none() && c.estimate.abs() > floor => Told::Differs(c),
        Some(c) => Told::Same(c),
        None => Told::Nothing,
    }
}

/// An arm's name for a row: in words, then as samples have it.
fn row_head(arm: &Arm) -> String {
    format!("<tr><td>{} <small class=quiet>{}</small>", escape(&answer::words(arm)), escape(&arm.name))
}

fn header(title: &str, workloads: &[String]) -> String {
    let mut out = format!("<table><thead><tr><th>{title}");
    for w in workloads {
        let _ = write!(out, "<th class=n>{w}");
    }
    out.push_str("</tr></thead><tbody>");
    out
}

/// Every arm against the baseline.
fn against_the_baseline(run: &Run, layout: Layout, workloads: &[String]) -> String {
    let base = run.manifest.experiment.baseline().map(|a| a.name.clone()).unwrap_or_default();
    let mut out = header(&format!("time per unit of work, over {}", escape(&base)), workloads);
    let ran = figures::arms(run);
    for arm in run.manifest.experiment.arms.iter().filter(|a| a.name != base && ran.contains(&a.name)) {
        out.push_str(&row_head(arm));
        for w in workloads {
            let seldom = run
                .summary
                .effects
                .iter()
                .any(|e| e.workload == *w && e.layout == layout && e.arm == arm.name && e.cost.is_none());
            out.push_str(&match over_baseline(run, layout, &arm.name, w) {
                Told::Nothing if seldom => "<td class=\"n quiet\">too few blocks".to_owned(),
                told => told.cell(),
            });
        }
        out.push_str("</tr>");
    }
    out.push_str("<tr><td class=quiet>noise floor, the baseline against itself");
    for w in workloads {
        let f = run.summary.floors.iter().find(|f| f.workload == *w && f.layout == layout).map(|f| f.floor);
        let _ = match f.filter(|f| f.is_finite()) {
            Some(f) => write!(out, "<td class=\"n quiet\">within ×{:.2}–{:.2}", (-f).exp(), f.exp()),
            None => write!(out, "<td class=\"n quiet\">–"),
        };
    }
    out.push_str("</tr></tbody></table>");
    out
}

/// What each mode of mediation adds on the path it is on: `M(…)` against `M-`, both over the link or both through the
/// tunnel.
fn added_by_mediation(run: &Run, layout: Layout, workloads: &[String]) -> Option<String> {
    let mut out = header("what mediation adds on the same path", workloads);
    let pairs = mediated(run);
    for (arm, base) in &pairs {
        out.push_str(&row_head(arm));
        for w in workloads {
            out.push_str(&added(run, layout, (&base.name, &arm.name), w).cell());
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    (!pairs.is_empty()).then_some(out)
}

/// The arms that could not be built, one line a reason.
pub fn absent(run: &Run) -> String {
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for arm in &run.manifest.experiment.arms {
        if let Some(why) = why_not(run, &arm.name) {
            reasons.entry(why).or_default().push(&arm.name);
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let mut out = String::from("<p>Declared, absent, and not filled in:</p><ul>");
    for (why, arms) in reasons {
        let _ = write!(out, "<li class=quiet>{}: {}", escape(&why), escape(&arms.join(", ")));
    }
    out.push_str("</ul>");
    out
}

/// The first section.
pub fn glance(run: &Run) -> String {
    let s = &run.summary;
    let workloads = workloads(run);
    let mut out = String::new();
    for &layout in &run.manifest.form.layouts {
        if run.manifest.form.layouts.len() > 1 {
            let _ = write!(out, "<h3>Client and server {}</h3>", layout.name());
        }
        out.push_str(&against_the_baseline(run, layout, &workloads));
        out.push_str(&added_by_mediation(run, layout, &workloads).unwrap_or_default());
    }
    out.push_str(
        "<p class=quiet>×1.10 is ten percent more time for each byte, request or connection, with the 95 % interval. \
         Coloured: a cost or a gain beyond this machine's noise floor. Grey: not told apart from that noise, which is no \
         proof that there is none. What mediation adds on the same path is told by interval and floor alone, without \
         Holm's adjustment for the number of effects.</p>",
    );
    let floors: Vec<f64> =
        s.floors.iter().map(|f| f.floor.exp_m1() * 100.0).filter(|f| f.is_finite()).collect();
    if let (Some(a), Some(b)) = (quantile(&floors, 0.0), quantile(&floors, 1.0)) {
        let _ = write!(
            out,
            "<p class=quiet>Noise floors of this run: {a:.1} to {b:.1} % over its workloads.</p>"
        );
    }
    out + &absent(run)
}

/// A drawing made of rows: who talks to whom.
struct Drawing {
    text: String,
    y: i32,
}

/// Height of a row of the set-up's drawing.
const ROW: i32 = 74;

impl Drawing {
    /// A box at one end.
    fn place(&mut self, x: i32, width: i32, head: &str, line: &str) {
        let y = self.y;
        let _ = write!(self.text, "<rect x={x} y={y} width={width} height=54 rx=6 class=place />");
        let _ = write!(self.text, "<text x={} y={} class=head>{head}</text>", x + 10, y + 22);
        let _ = write!(self.text, "<text x={} y={} class=small>{line}</text>", x + 10, y + 42);
    }

    /// What lies between, from `x` to `to`.
    fn wire(&mut self, x: i32, to: i32, label: &str, dashed: bool) {
        let y = self.y + 30;
        let dash = if dashed { " stroke-dasharray=\"7 5\"" } else { "" };
        let _ = write!(self.text, "<line x1={x} y1={y} x2={to} y2={y} class=wire{dash} />");
        let _ = write!(
            self.text,
            "<text x={} y={} class=small text-anchor=middle>{label}</text>",
            i32::midpoint(x, to),
            y - 8
        );
    }
}

/// The set-up, drawn: a row for each way from client to server.
pub fn set_up(run: &Run) -> String {
    let ran = figures::arms(run);
    let drives: Vec<_> =
        run.manifest.experiment.arms.iter().filter(|a| ran.contains(&a.name)).map(|a| a.drive).collect();
    let has = |path: Path, mediated: bool, session: Session| {
        drives
            .iter()
            .any(|d| d.path == path && (d.mediation != Mediation::None) == mediated && d.session == session)
    };
    let mut d = Drawing { text: String::new(), y: 10 };
    let mut row = |arms: &str, client: (&str, &str), wire: (&str, bool), server: (&str, &str)| {
        d.place(130, 220, client.0, client.1);
        d.wire(350, 620, wire.0, wire.1);
        d.place(620, 270, server.0, server.1);
        let y = d.y;
        let _ = write!(d.text, "<text x=8 y={} class=head>{arms}</text>", y + 34);
        d.y += ROW;
    };
    let client = "levee-lab client, processor 0";
    row(
        "I- M- F-",
        ("namespace", client),
        ("veth, MTU 1500", false),
        ("namespace", "levee-lab serve, a plain daemon"),
    );
    if has(Path::Link, false, Session::Elsewhere) {
        row(
            "I- M- F",
            ("the same", client),
            ("veth of its own", false),
            ("another namespace", "the same program"),
        );
    }
    if has(Path::Link, true, Session::Here) {
        row(
            "I- M(…) F-",
            ("host on a network", client),
            ("single-level network, nftables", false),
            ("compartment at HIGH", "the same program, run by levee"),
        );
    }
    if has(Path::Tunnel, true, Session::Here) {
        row(
            "I M(…) F-",
            ("session's namespace", client),
            ("vault ═ ESP in UDP over veth ═ vault", true),
            ("compartment at LOW", "the same program, run by levee"),
        );
    }
    if has(Path::Tunnel, false, Session::Here) {
        row(
            "I M- F-",
            ("the same session", client),
            ("vault ═ ESP in UDP over veth ═ vault", true),
            ("network of that compartment", "a plain daemon outside it"),
        );
    }
    let Drawing { text, y } = d;
    format!(
        "<figure><svg viewBox=\"0 0 900 {y}\" style=\"width:100%;max-width:900px\" role=img>{text}</svg><figcaption>The \
         set-up: namespaces of this host, made for the run and removed after it. The server is on processor 1 (apart) or 0 \
         (together); levee's vaults are where the scheduler puts them, as in a running site. Client, server program and \
         kernel settings do not differ between arms.</figcaption></figure>"
    )
}

//! Which figures a run has: from its samples and summary to [`plots`].

use super::Run;
use super::plots::{self, Figure, Line};
use super::read::{arms, few_words_of, in_words};
use crate::analysis::{Effect, time_per_unit};
use crate::design::Layout;
use crate::experiment::{Drive, Mediation, Path, Unit, Use};
use crate::place::Home;
use crate::sample::Sample;
use crate::workload::Latency;

/// The values of each arm on one workload and layout.
pub fn lines(run: &Run, unit: &Unit, layout: Layout) -> Vec<Line> {
    let mut out = Vec::new();
    for (colour, arm) in arms(run).iter().enumerate() {
        for copy in [0, 1] {
            let of: Vec<&Sample> = run
                .samples
                .iter()
                .filter(|s| s.workload == unit.id && s.layout == layout && s.arm == *arm && s.copy == copy)
                .collect();
            let points: Vec<_> =
                of.iter().filter_map(|s| Some((s.seq, s.value()?, !s.flags.is_empty()))).collect();
            if points.is_empty() {
                continue;
            }
            let mut latency = Latency::default();
            for l in of.iter().filter(|s| s.accepted).filter_map(|s| s.outcome.as_ref()?.latency.as_ref()) {
                latency.merge(l);
            }
            let again = |name: &str| if copy == 1 { format!("{name} (again)") } else { name.to_owned() };
            let (name, shown) = (again(arm), again(&in_words(run, arm)));
            out.push(Line { name, shown, colour, copy, points, latency });
        }
    }
    out
}

/// The forest plots: one for each layout.
pub fn forests(run: &Run) -> Vec<Figure> {
    run.manifest
        .form
        .layouts
        .iter()
        .map(|l| {
            let of: Vec<(&Effect, String)> = run
                .summary
                .effects
                .iter()
                .filter(|e| e.layout == *l)
                .map(|e| (e, in_words(run, &e.arm)))
                .collect();
            let caption = format!(
                "Cost over the baseline, client and server {}: time per unit of work as a ratio, with its 95 % \
                 interval. Shaded: this machine's noise floor, from the baseline against itself. A dot inside \
                 its shade is no cost.",
                l.name()
            );
            plots::forest(&format!("forest-{}", l.name()), &caption, &of)
        })
        .collect()
}

/// Box, histogram, scatter and, where there are latencies, ECDF: for one workload and layout.
pub fn of_workload(run: &Run, unit: &Unit, layout: Layout) -> Vec<Figure> {
    let lines = lines(run, unit, layout);
    if lines.is_empty() {
        return Vec::new();
    }
    let rejected: Vec<&Sample> =
        run.samples.iter().filter(|s| s.workload == unit.id && s.layout == layout && !s.accepted).collect();
    let name = |what: &str| format!("{}-{}-{what}", unit.id, layout.name());
    let u = unit.kind.unit();
    let mut out = vec![
        plots::boxes(
            &name("box"),
            "Each arm's trials: box of quartiles, whiskers to the 5th and 95th percentile, every point beneath.",
            u,
            &lines,
        ),
        plots::histograms(&name("histogram"), "The same on bins common to all arms.", u, &lines),
        plots::scatter(
            &name("scatter"),
            "In the order made. Hollow: second copy of the baseline, or contended; crossed: rejected.",
            u,
            &lines,
            &rejected,
        ),
    ];
    if lines.iter().any(|l| l.latency.count() > 0) {
        out.push(plots::ecdf(
            &name("ecdf"),
            "Every transaction of every trial: the share that took no longer, to where all arms reach 99.9 %.",
            &lines,
        ));
    }
    out
}

/// Latency against offered load, where the experiment has an open loop.
pub fn loads(run: &Run) -> Vec<Figure> {
    let units = run.manifest.experiment.units(Some(&run.manifest.form));
    let mut out = Vec::new();
    let path = |arm: &str| run.manifest.experiment.arms.iter().find(|a| a.name == arm).map(|a| a.drive.path);
    let ways = [(Path::Link, "over a link"), (Path::Tunnel, "through the tunnel")];
    for (&layout, (way, words)) in run.manifest.form.layouts.iter().flat_map(|l| ways.map(|w| (l, w))) {
        let curves: Vec<_> = arms(run)
            .into_iter()
            .enumerate()
            .filter(|(_, arm)| path(arm) == Some(way))
            .map(|(colour, arm)| {
                let points = units
                    .iter()
                    .filter(|u| u.usage == Use::Load)
                    .filter_map(|u| {
                        let c = run.summary.cells.iter().find(|c| {
                            c.workload == u.id && c.layout == layout && c.arm == arm && c.copy == 0
                        })?;
                        Some((u.rate?, c.latency?))
                    })
                    .collect::<Vec<_>>();
                (arm, colour, points)
            })
            .filter(|c| !c.2.is_empty())
            .collect();
        if !curves.is_empty() {
            let caption = format!(
                "One-byte requests {words}, client and server {}, offered at a fixed rate whether or not the last was answered; \
                 latency from when each was due. Solid: median; dashed: 99th percentile.",
                layout.name()
            );
            let name =
                format!("load-{}-{}", layout.name(), if way == Path::Link { "link" } else { "tunnel" });
            out.push(plots::load(&name, &caption, &curves));
        }
    }
    out
}

/// Time per unit against the level of I and of F, a line for each set-up of the rest.
pub fn interactions(run: &Run, unit: &Unit, layout: Layout) -> Vec<Figure> {
    let e = &run.manifest.experiment;
    let ran = arms(run);
    let time = |path: Path, mediation: Mediation, session: Home| {
        let arm = e.arms.iter().find(|a| a.drive == Drive { path, mediation, session, before: false })?;
        let colour = ran.iter().position(|a| *a == arm.name)?;
        let cell = run
            .summary
            .cells
            .iter()
            .find(|c| c.workload == unit.id && c.layout == layout && c.arm == arm.name && c.copy == 0)?;
        let ns = time_per_unit(unit.kind, cell.percentiles[2]);
        Some((colour, if unit.kind.is_bulk() { ns } else { ns / 1e3 }))
    };
    let mut by_path = Vec::new();
    let mut by_session = Vec::new();
    for mode in Mediation::ALL {
        let m = few_words_of(mode).unwrap_or("not mediated");
        for (session, f) in [(Home::Here, ""), (Home::Elsewhere, ", second server")] {
            if let (Some((c, a)), Some((_, b))) =
                (time(Path::Link, mode, session), time(Path::Tunnel, mode, session))
            {
                by_path.push((format!("{m}{f}"), c, [("link".to_owned(), a), ("tunnel".to_owned(), b)]));
            }
        }
        for (path, i) in [(Path::Link, "link"), (Path::Tunnel, "tunnel")] {
            if let (Some((c, a)), Some((_, b))) =
                (time(path, mode, Home::Here), time(path, mode, Home::Elsewhere))
            {
                let ends = [("one server".to_owned(), a), ("second server".to_owned(), b)];
                by_session.push((format!("{i}, {m}"), c, ends));
            }
        }
    }
    let u = if unit.kind.is_bulk() { "ns per byte" } else { "µs per transaction" };
    let mut out = Vec::new();
    for (what, words, lines) in [("I", "link and tunnel", by_path), ("F", "one server and two", by_session)] {
        if lines.len() > 1 {
            let caption = format!(
                "{}, client and server {}: median time with {words} (factor {what}). Lines that are not parallel interact.",
                unit.id,
                layout.name()
            );
            let name = format!("{}-{}-interaction-{what}", unit.id, layout.name());
            out.push(plots::interaction(&name, &caption, u, &lines));
        }
    }
    out
}

/// Whether a workload is shown with figures of its own.
pub fn shown(unit: &Unit) -> bool {
    unit.usage == Use::Effect
}

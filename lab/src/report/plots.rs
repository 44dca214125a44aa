//! The figures: each an SVG and the CSV behind it.

use super::csv::{Csv, download};
use super::draw::{
    BAD, Canvas, GRID, INK, MUTED, Ratios, SHADE, around, count, human, nanos, series, short, svg, text,
    ticks,
};
use crate::analysis::{Attribution, Cell, Effect, Verdict};
use crate::sample::{Flag, Sample};
use crate::workload::Latency;
use levee_stats::quantile;
use maud::{Markup, Render, html};
use plotters::prelude::*;
use std::f64::consts::LN_2;

const WIDTH: u32 = 900;
const LABELS: u32 = 250;

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name of its CSV, without ending.
    pub name: String,
    /// Caption.
    pub caption: String,
    /// Drawing.
    pub svg: Markup,
    /// Data.
    pub csv: String,
}

impl Render for Figure {
    fn render(&self) -> Markup {
        html! {
            figure { (self.svg) figcaption { (self.caption) " " (download(&self.name, &self.csv)) } }
        }
    }
}

/// A measured number: six digits say more than any trial does.
fn number(v: f64) -> String {
    let digits = 5 - v.abs().max(1e-9).log10().floor() as i32;
    format!("{v:.*}", usize::try_from(digits).unwrap_or(0))
}

/// The values of one arm, in the order made.
#[derive(Clone, Debug)]
pub struct Line {
    /// Arm, with a mark for the second copy of the baseline.
    pub name: String,
    /// The same in words.
    pub shown: String,
    /// Its colour.
    pub colour: usize,
    /// Second copy of the baseline: drawn hollow.
    pub copy: u8,
    /// (seq, value, contended) of accepted samples.
    pub points: Vec<(u64, f64, bool)>,
    /// All transactions' latencies together.
    pub latency: Latency,
}

fn values(l: &Line) -> impl Iterator<Item = f64> + '_ {
    l.points.iter().map(|p| p.1)
}

fn points_csv(unit: &str, lines: &[Line]) -> Csv {
    let mut csv = Csv::new(&["arm", "copy", "order", unit, "contended"]);
    for l in lines {
        for (seq, v, c) in &l.points {
            csv.row((&l.name, l.copy, seq, number(*v), c));
        }
    }
    csv
}

/// Columns of the table behind [`forest`].
const FOREST: [&str; 11] = [
    "workload",
    "layout",
    "arm",
    "cost_ratio",
    "low",
    "high",
    "floor_low",
    "floor_high",
    "p",
    "p_holm",
    "verdict",
];

/// Ratios with their intervals on a log axis, each row's noise floor shaded behind it.
pub fn forest(name: &str, caption: &str, effects: &[(&Effect, String)]) -> Figure {
    let mut csv = Csv::new(&FOREST);
    let rows: Vec<_> = effects.iter().filter_map(|(e, shown)| Some((*e, shown, e.cost?))).collect();
    for (e, _, c) in &rows {
        let (r, lo, hi) = c.ratio();
        let floor = ((-e.floor).exp(), e.floor.exp());
        csv.row((
            &e.workload,
            e.layout,
            &e.arm,
            (r, lo, hi),
            floor,
            e.p,
            e.p_holm,
            format!("{:?}", e.verdict),
        ));
    }
    // in doublings, so that half and double are alike
    let floors = || rows.iter().map(|(e, ..)| e.floor).filter(|f| f.is_finite());
    let least = rows.iter().map(|(.., c)| c.lo).chain(floors().map(|f| -f)).fold(-0.03_f64, f64::min);
    let most = rows.iter().map(|(.., c)| c.hi).chain(floors()).fold(0.03_f64, f64::max);
    let room = (most - least) * 0.04;
    let (left, right) = ((least - room) / LN_2, (most + room) / LN_2);
    let height = 60 + 26 * rows.len() as u32;
    let svg = svg(WIDTH, height, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(130)
            .x_label_area_size(34)
            .y_label_area_size(LABELS)
            .build_cartesian_2d(Ratios::new(left, right), 0.0..rows.len() as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(9)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(MUTED)
            .label_style(text(14, &MUTED))
            .x_label_formatter(&|v| format!("×{}", short(v.exp2())))
            .draw()?;
        for (i, (e, shown, c)) in rows.iter().enumerate() {
            let y = rows.len() as f64 - i as f64 - 0.5;
            let f = if e.floor.is_finite() { e.floor / LN_2 } else { right };
            chart
                .draw_series([Rectangle::new([((-f).max(left), y - 0.46), (f, y + 0.46)], SHADE.filled())])?;
            let colour = match e.verdict {
                Verdict::Cost => BAD,
                Verdict::Gain => series(2),
                _ => MUTED,
            };
            chart.draw_series([PathElement::new(
                [(c.lo / LN_2, y), (c.hi / LN_2, y)],
                colour.stroke_width(2),
            )])?;
            chart.draw_series([Circle::new((c.estimate / LN_2, y), 4, colour.filled())])?;
            let (_, py) = chart.backend_coord(&(0.0, y));
            let label = format!("{}  {shown}", e.workload);
            root.draw(&Text::new(label, (8, py - 7), text(14, &INK)))?;
            let (r, lo, hi) = c.ratio();
            let said = format!("{r:.3} ({lo:.3}–{hi:.3})");
            root.draw(&Text::new(said, (WIDTH as i32 - 132, py - 7), text(13, &MUTED)))?;
        }
        chart.draw_series([PathElement::new([(0.0, 0.0), (0.0, rows.len() as f64)], INK.stroke_width(1))])?;
        Ok(())
    });
    Figure { name: name.into(), caption: caption.into(), svg, csv: csv.text() }
}

/// A box of quartiles, whiskers to the 5th and 95th percentile, and every point beneath.
pub fn boxes(name: &str, caption: &str, unit: &str, lines: &[Line]) -> Figure {
    let (lo, hi) = around(lines.iter().flat_map(values), 0.04);
    let height = 56 + 46 * lines.len() as u32;
    let svg = svg(WIDTH, height, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(38)
            .y_label_area_size(LABELS)
            .build_cartesian_2d(lo..hi, 0.0..lines.len() as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(8)
            .x_desc(unit)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(MUTED)
            .label_style(text(14, &MUTED))
            .x_label_formatter(&|v| human(*v))
            .draw()?;
        for (i, l) in lines.iter().enumerate() {
            let y = lines.len() as f64 - i as f64 - 0.5;
            let all: Vec<f64> = values(l).collect();
            let q = |p: f64| quantile(&all, p).unwrap_or(f64::NAN);
            let colour = series(l.colour);
            let top = y + 0.32;
            let bottom = y - 0.02;
            let mid = f64::midpoint(top, bottom);
            for (a, b) in [(q(0.05), q(0.25)), (q(0.75), q(0.95))] {
                chart.draw_series([PathElement::new([(a, mid), (b, mid)], INK.stroke_width(1))])?;
            }
            let fill = if l.copy == 0 { colour.mix(0.45).filled() } else { colour.mix(0.12).filled() };
            chart.draw_series([Rectangle::new([(q(0.25), bottom), (q(0.75), top)], fill)])?;
            chart
                .draw_series([Rectangle::new([(q(0.25), bottom), (q(0.75), top)], colour.stroke_width(1))])?;
            chart.draw_series([PathElement::new([(q(0.5), bottom), (q(0.5), top)], INK.stroke_width(2))])?;
            chart.draw_series(l.points.iter().enumerate().map(|(k, (_, v, _))| {
                // spread by a fixed pattern: chance would make two pages of one run differ
                let dy = -0.14 - 0.26 * ((k * 7) % 10) as f64 / 10.0;
                Circle::new((*v, y + dy), 2, colour.mix(0.7).filled())
            }))?;
            let (_, py) = chart.backend_coord(&(lo, y));
            root.draw(&Text::new(l.shown.clone(), (8, py - 8), text(14, &INK)))?;
        }
        Ok(())
    });
    Figure { name: name.into(), caption: caption.into(), svg, csv: points_csv(unit, lines).text() }
}

/// A set-up here, and in the paper.
#[derive(Clone, Debug)]
pub struct Beside {
    /// Its name.
    pub name: String,
    /// In words, where it is one of ours.
    pub shown: String,
    /// Its colour.
    pub colour: usize,
    /// Every trial over the median of the baseline; none where it is absent.
    pub ratios: Vec<f64>,
    /// The paper's mean over the mean of the paper's base.
    pub theirs: Option<f64>,
}

/// Rates over each study's own base on one log axis: ours as boxes with their points, theirs as a diamond.
pub fn beside(name: &str, caption: &str, rows: &[Beside]) -> Figure {
    let mut csv = Csv::new(&["setup", "whose", "rate_over_own_base"]);
    for r in rows {
        for v in &r.ratios {
            csv.row((&r.name, "here", number(*v)));
        }
        for v in r.theirs.iter() {
            csv.row((&r.name, "paper", number(*v)));
        }
    }
    let logs = |r: &Beside| r.ratios.iter().map(|v| v.log2()).collect::<Vec<f64>>();
    let all = rows.iter().flat_map(|r| logs(r).into_iter().chain(r.theirs.map(f64::log2)));
    let (left, right) = around(all.chain([0.0, -1.0]), 0.04);
    let height = 56 + 30 * rows.len() as u32;
    let svg = svg(WIDTH, height, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(34)
            .y_label_area_size(LABELS)
            .build_cartesian_2d(Ratios::new(left, right), 0.0..rows.len() as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(9)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(MUTED)
            .label_style(text(14, &MUTED))
            .x_label_formatter(&|v| format!("×{}", short(v.exp2())))
            .draw()?;
        chart.draw_series([PathElement::new([(0.0, 0.0), (0.0, rows.len() as f64)], INK.stroke_width(1))])?;
        for (i, r) in rows.iter().enumerate() {
            let y = rows.len() as f64 - i as f64 - 0.5;
            let c = series(r.colour);
            let v = logs(r);
            if let (Some(a), Some(b), Some(m), Some(d), Some(e)) = (
                quantile(&v, 0.05),
                quantile(&v, 0.25),
                quantile(&v, 0.5),
                quantile(&v, 0.75),
                quantile(&v, 0.95),
            ) {
                chart.draw_series([PathElement::new([(a, y), (e, y)], INK.stroke_width(1))])?;
                chart.draw_series([Rectangle::new([(b, y - 0.28), (d, y + 0.28)], c.mix(0.45).filled())])?;
                chart.draw_series([Rectangle::new([(b, y - 0.28), (d, y + 0.28)], c.stroke_width(1))])?;
                chart.draw_series([PathElement::new([(m, y - 0.28), (m, y + 0.28)], INK.stroke_width(2))])?;
            }
            chart.draw_series(v.iter().enumerate().map(|(k, v)| {
                let dy = -0.3 + 0.6 * ((k * 7) % 10) as f64 / 10.0;
                Circle::new((*v, y + dy), 2, c.mix(0.6).filled())
            }))?;
            let (_, py) = chart.backend_coord(&(left, y));
            for t in r.theirs.iter() {
                let (px, _) = chart.backend_coord(&(t.log2(), y));
                let diamond = [(px, py - 8), (px + 6, py), (px, py + 8), (px - 6, py), (px, py - 8)];
                root.draw(&PathElement::new(diamond, BAD.stroke_width(2)))?;
            }
            root.draw(&Text::new(r.shown.clone(), (8, py - 8), text(14, &INK)))?;
        }
        Ok(())
    });
    Figure { name: name.into(), caption: caption.into(), svg, csv: csv.text() }
}

/// Counts on bins common to all arms.
pub fn histograms(name: &str, caption: &str, unit: &str, lines: &[Line]) -> Figure {
    const BINS: usize = 30;
    let (lo, hi) = around(lines.iter().flat_map(values), 0.001);
    let step = (hi - lo) / BINS as f64;
    let bins = |l: &Line| {
        let mut n = vec![0_u32; BINS];
        for v in values(l) {
            let i = (((v - lo) / step) as usize).min(BINS - 1);
            if let Some(c) = n.get_mut(i) {
                *c += 1;
            }
        }
        n
    };
    let counts: Vec<Vec<u32>> = lines.iter().map(bins).collect();
    let top = counts.iter().flatten().copied().max().unwrap_or(1).max(1);
    let (from, to) = (format!("from_{unit}"), format!("to_{unit}"));
    let mut csv = Csv::new(&["arm", "copy", &from, &to, "count"]);
    for (l, n) in lines.iter().zip(&counts) {
        for (i, c) in n.iter().enumerate() {
            let a = lo + step * i as f64;
            csv.row((&l.name, l.copy, number(a), number(a + step), c));
        }
    }
    let height = 40 + 58 * lines.len() as u32;
    let svg = svg(WIDTH, height, |root| {
        let (plots, _) = root.split_vertically(height - 30);
        for (i, ((l, n), area)) in
            lines.iter().zip(&counts).zip(plots.split_evenly((lines.len().max(1), 1))).enumerate()
        {
            let mut chart = ChartBuilder::on(&area)
                .margin_left(LABELS + 8)
                .margin_right(36)
                .margin_top(4)
                .build_cartesian_2d(lo..hi, 0_u32..top)?;
            chart.draw_series(n.iter().enumerate().filter(|(_, c)| **c > 0).map(|(k, c)| {
                let a = lo + step * k as f64;
                Rectangle::new([(a, 0), (a + step, *c)], series(l.colour).mix(0.75).filled())
            }))?;
            chart.draw_series([PathElement::new([(lo, 0), (hi, 0)], MUTED.stroke_width(1))])?;
            area.draw(&Text::new(l.shown.clone(), (8, 24), text(14, &INK)))?;
            if i + 1 == lines.len() {
                for v in ticks(lo, hi, 7) {
                    let (px, _) = chart.backend_coord(&(v, 0));
                    let anchor = text(14, &MUTED).pos(plotters::style::text_anchor::Pos::new(
                        plotters::style::text_anchor::HPos::Center,
                        plotters::style::text_anchor::VPos::Top,
                    ));
                    root.draw(&Text::new(short(v), (px, height as i32 - 26), anchor))?;
                }
            }
        }
        Ok(())
    });
    Figure { name: name.into(), caption: caption.into(), svg, csv: csv.text() }
}

/// Every trial where it came in the order; rejected attempts crossed.
pub fn scatter(name: &str, caption: &str, unit: &str, lines: &[Line], rejected: &[&Sample]) -> Figure {
    let (lo, hi) = around(lines.iter().flat_map(values), 0.05);
    let last = lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)).max().unwrap_or(1);
    let mut csv = points_csv(unit, lines);
    for s in rejected {
        let v = s.outcome.as_ref().map_or(f64::NAN, |o| o.value);
        let why = format!("rejected: {}", Flag::names(&s.flags));
        csv.row((&s.arm, s.copy, s.seq, v, why));
    }
    let svg = svg(WIDTH, 300, |root| {
        let mut chart = frame(root, 0.0..last as f64, lo..hi, "order of trials", unit)?;
        for l in lines {
            let c = series(l.colour);
            chart.draw_series(l.points.iter().map(|(x, y, contended)| {
                let style = if l.copy == 1 || *contended { c.stroke_width(1) } else { c.filled() };
                Circle::new((*x as f64, *y), 3, style)
            }))?;
        }
        chart.draw_series(rejected.iter().filter_map(|s| {
            let v = s.outcome.as_ref()?.value.clamp(lo, hi);
            Some(Cross::new((s.seq as f64, v), 4, BAD.stroke_width(1)))
        }))?;
        Ok(())
    });
    Figure { name: name.into(), caption: caption.into(), svg, csv: csv.text() }
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn frame<'a, 'b>(
    root: &'a Canvas<'b>,
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
    x_desc: &str,
    y_desc: &str,
) -> Result<Chart<'a, 'b>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(42)
        .y_label_area_size(78)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .label_style(text(14, &MUTED))
        .x_desc(x_desc)
        .y_desc(y_desc)
        .x_label_formatter(&|v| count(*v))
        .y_label_formatter(&|v| human(*v))
        .draw()
        .map_err(|e| e.to_string())?;
    Ok(chart)
}

/// The share of transactions that took no longer, on a log axis of time.
pub fn ecdf(name: &str, caption: &str, lines: &[Line]) -> Figure {
    let mut csv = Csv::new(&["arm", "nanoseconds", "share"]);
    let curves: Vec<(usize, Vec<(f64, f64)>)> = lines
        .iter()
        .filter(|l| l.copy == 0 && l.latency.count() > 0)
        .map(|l| {
            let total = l.latency.count() as f64;
            let mut seen = 0;
            let mut curve: Vec<(f64, f64)> = Vec::new();
            for &(v, n) in &l.latency.buckets {
                seen += n;
                let share = seen as f64 / total;
                // steps are about a pixel, and finer at the end of the tail
                let step = if share > 0.98 { 0.001 } else { 0.004 };
                if curve.last().is_none_or(|(_, s)| share - s >= step) || seen as f64 == total {
                    curve.push(((v.max(1)) as f64, share));
                    csv.row((&l.name, v, format!("{share:.4}")));
                }
            }
            (l.colour, curve)
        })
        .collect();
    let bound = |f: fn(f64, f64) -> f64, start: f64| {
        curves.iter().flat_map(|(_, c)| c.iter().map(|p| p.0)).fold(start, f)
    };
    // the slowest of a million transactions would flatten all the rest: the axis ends where all reach 99.9 %
    let right = curves
        .iter()
        .filter_map(|(_, c)| c.iter().find(|p| p.1 >= 0.999).or(c.last()).map(|p| p.0))
        .fold(1.0, f64::max);
    let left = bound(f64::min, f64::INFINITY).min(right * 0.9);
    let svg = svg(WIDTH, 300, |root| {
        let mut chart = frame_log(
            root,
            left * 0.95,
            right * 1.05,
            0.0..1.0,
            "time of one transaction",
            "share no longer",
        )?;
        for (colour, curve) in &curves {
            let inside = curve.iter().copied().filter(|p| p.0 <= right * 1.05);
            chart.draw_series(LineSeries::new(inside, series(*colour).stroke_width(2)))?;
        }
        Ok(())
    });
    Figure { name: name.into(), caption: caption.into(), svg, csv: csv.text() }
}

type LogChart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::combinators::LogCoord<f64>, plotters::coord::types::RangedCoordf64>,
>;

fn frame_log<'a, 'b>(
    root: &'a Canvas<'b>,
    left: f64,
    right: f64,
    y: std::ops::Range<f64>,
    x_desc: &str,
    y_desc: &str,
) -> Result<LogChart<'a, 'b>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(42)
        .y_label_area_size(78)
        .build_cartesian_2d((left..right).log_scale(), y)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .label_style(text(14, &MUTED))
        .x_desc(x_desc)
        .y_desc(y_desc)
        .x_label_formatter(&|v| nanos(*v))
        .y_label_formatter(&|v| human(*v))
        .draw()
        .map_err(|e| e.to_string())?;
    Ok(chart)
}

/// One arm under rising load: its name, its colour, (offered rate, latency percentiles 50, 90, 99, 99.9).
pub type LoadCurve = (String, usize, Vec<(f64, [u64; 4])>);
/// A line of an interaction plot: its name, its colour, (level, time) at both ends.
pub type Slope = (String, usize, [(String, f64); 2]);

/// Median and 99th percentile against offered load, open loop.
pub fn load(name: &str, caption: &str, arms: &[LoadCurve]) -> Figure {
    let mut csv = Csv::new(&["arm", "offered_per_second", "p50_ns", "p90_ns", "p99_ns", "p999_ns"]);
    for (arm, _, points) in arms {
        for (rate, percentiles) in points {
            csv.row((arm, rate, percentiles));
        }
    }
    let all = || arms.iter().flat_map(|(_, _, p)| p);
    let right = all().map(|p| p.0).fold(1.0, f64::max) * 1.05;
    let least = all().map(|p| p.1[0] as f64).fold(f64::INFINITY, f64::min).clamp(1.0, 1e12);
    let most = all().map(|p| p.1[2] as f64).fold(10.0, f64::max);
    let svg = svg(WIDTH, 340, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(42)
            .y_label_area_size(78)
            .build_cartesian_2d(0.0..right, (least * 0.8..most * 1.25).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(MUTED)
            .label_style(text(14, &MUTED))
            .x_desc("offered requests per second")
            .y_desc("latency")
            .x_label_formatter(&|v| count(*v))
            .y_label_formatter(&|v| nanos(*v))
            .draw()?;
        for (_, colour, points) in arms {
            let c = series(*colour);
            let at = |i: usize| points.iter().map(move |(r, l)| (*r, l[i].max(1) as f64));
            chart.draw_series(LineSeries::new(at(0), c.stroke_width(2)))?;
            chart.draw_series(at(0).map(|p| Circle::new(p, 3, c.filled())))?;
            chart.draw_series(DashedLineSeries::new(at(2), 5, 4, c.stroke_width(2)))?;
            chart.draw_series(at(2).map(|p| Circle::new(p, 3, c.stroke_width(1))))?;
        }
        Ok(())
    });
    Figure { name: name.into(), caption: caption.into(), svg, csv: csv.text() }
}

/// Time per unit of work against the level of one factor, a line for each set-up of the others: lines that
/// are not parallel interact.
pub fn interaction(name: &str, caption: &str, unit: &str, lines: &[Slope]) -> Figure {
    let mut csv = Csv::new(&["line", "level", unit]);
    for (l, _, ends) in lines {
        for (level, v) in ends {
            csv.row((l, level, v));
        }
    }
    let (lo, hi) = around(lines.iter().flat_map(|(_, _, e)| e.iter().map(|p| p.1)), 0.15);
    let svg = svg(WIDTH, 280, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(LABELS)
            .x_label_area_size(34)
            .y_label_area_size(78)
            .build_cartesian_2d(-0.2..1.2, lo..hi)?;
        let ends = lines.first().map(|(_, _, [(a, _), (b, _)])| (a.clone(), b.clone())).unwrap_or_default();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(MUTED)
            .label_style(text(14, &MUTED))
            .x_labels(8)
            .y_desc(unit)
            .y_label_formatter(&|v| human(*v))
            .x_label_formatter(&|v: &f64| match v {
                v if v.abs() < 1e-6 => ends.0.clone(),
                v if (v - 1.0).abs() < 1e-6 => ends.1.clone(),
                _ => String::new(),
            })
            .draw()?;
        // labels that would lie on one another are moved apart, in the order of their lines
        let mut order: Vec<&Slope> = lines.iter().collect();
        order.sort_by(|(_, _, [_, (_, a)]), (_, _, [_, (_, b)])| b.total_cmp(a));
        let mut free = i32::MIN;
        for (label, colour, [(_, a), (_, b)]) in order {
            let c = series(*colour);
            chart.draw_series(LineSeries::new([(0.0, *a), (1.0, *b)], c.stroke_width(2)))?;
            chart.draw_series([(0.0, *a), (1.0, *b)].map(|p| Circle::new(p, 4, c.filled())))?;
            let (px, py) = chart.backend_coord(&(1.05, *b));
            let y = (py - 7).max(free);
            free = y + 15;
            root.draw(&Text::new(label.clone(), (px, y), text(14, &c)))?;
        }
        Ok(())
    });
    Figure { name: name.into(), caption: caption.into(), svg, csv: csv.text() }
}

/// Attribution as CSV.
pub fn attribution_csv(rows: &[&Attribution]) -> String {
    let mut csv = Csv::new(&[
        "workload",
        "layout",
        "design",
        "effect",
        "factor",
        "factor_low",
        "factor_high",
        "added_ns",
        "added_low_ns",
        "added_high_ns",
    ]);
    for a in rows {
        let added = (a.additive.estimate, a.additive.lo, a.additive.hi);
        csv.row((&a.workload, a.layout, a.design.join("×"), a.of.join("×"), a.multiplicative.ratio(), added));
    }
    csv.text()
}

/// Cells as CSV.
pub fn cells_csv(cells: &[Cell]) -> String {
    let mut csv = Csv::new(&[
        "workload", "layout", "arm", "copy", "n", "mean", "sd", "p5", "p25", "p50", "p75", "p95", "lag1",
        "steps",
    ]);
    for c in cells {
        let steps = c.change_points.len();
        csv.row((&c.workload, c.layout, &c.arm, c.copy, c.n, c.mean, c.sd, c.percentiles, c.lag1, steps));
    }
    csv.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let figure = Figure {
            name: "\"onclick=\"".into(),
            caption: "<b>&".into(),
            svg: html! { svg {} },
            csv: String::new(),
        };
        assert_eq!(
            figure.render().into_string(),
            "<figure><svg></svg><figcaption>&lt;b&gt;&amp; <a class=\"csv\" \
             download=\"&quot;onclick=&quot;.csv\" href=\"data:text/csv;base64,\">&quot;onclick=&quot;.csv</a>\
             </figcaption></figure>"
        );
    }
}

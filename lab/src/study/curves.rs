//! A study's figures: the time that something takes against the rate at which it is asked for, a line for each arm, and what fails below.

use super::record::Manifest;
use super::report::Summary;
use super::{Drawn, Study};
use crate::report::draw::{self, GRID, INK, MUTED, around, count, nanos, series, text};
use plotters::prelude::*;
use std::collections::BTreeMap;

/// What a trial counts beside its median, where the study counts it.
const LATE: &str = "99th percentile, ms";
const FAILED: &str = "errors, %";

const WIDTH: u32 = 900;
const HEIGHT: u32 = 520;
/// Of that, where times are.
const TIMES: u32 = 360;

/// A figure to lie beside the report.
pub struct Figure {
    /// Its file's name.
    pub file: String,
    /// What it shows, as Markdown that shows it.
    pub shown: String,
    /// The file.
    pub svg: String,
}

/// An arm's points.
struct Line<'a> {
    arm: &'a str,
    colour: usize,
    /// The rate, the median and the 99th percentile in nanoseconds, errors of a hundred.
    points: Vec<(f64, f64, Option<f64>, Option<f64>)>,
}

/// The figures of a run: those that its study names, or the program's own study where that did not name any when the run was made.
pub fn figures(m: &Manifest, s: &Summary) -> Vec<Figure> {
    let own = Some(m.study.drawn.clone()).filter(|drawn| !drawn.is_empty());
    let drawn =
        own.or_else(|| Study::named(&m.study.study)?.ok().map(|study| study.drawn)).unwrap_or_default();
    drawn.iter().filter_map(|drawn| figure(m, s, drawn)).collect()
}

fn figure(m: &Manifest, s: &Summary, drawn: &Drawn) -> Option<Figure> {
    let table = m.study.tables.iter().find(|table| table.number == drawn.table)?;
    let rates: Vec<(&str, f64)> = table
        .rows
        .iter()
        .filter_map(|row| Some((row.id.as_str(), row.id.split_once('@')?.1.parse().ok()?)))
        .collect();
    let lines: Vec<Line<'_>> = drawn
        .arms
        .iter()
        .enumerate()
        .map(|(colour, arm)| Line {
            arm,
            colour,
            points: rates.iter().filter_map(|r| point(s, *r, arm)).collect(),
        })
        .filter(|line| line.points.len() > 1)
        .collect();
    if lines.is_empty() {
        return None;
    }
    let file = format!("figure-{}.svg", drawn.number);
    let marks: Vec<&str> = drawn.marks.iter().map(|mark| mark.what.as_str()).collect();
    let shown = format!(
        "\n## Figure {}: {}\n\n![Time against the rate, and errors below]({file})\n\nSolid: the median; dashed: the 99th percentile; below: errors. \
         Dotted: {}.\n",
        drawn.number,
        drawn.title,
        marks.join("; ")
    );
    let svg = draw::alone(draw::svg(WIDTH, HEIGHT, |root| {
        let (times, errors) = root.split_vertically(TIMES);
        above(&times, &lines, drawn)?;
        below(&errors, &lines)
    }));
    Some(Figure { file, shown, svg })
}

fn point(s: &Summary, (row, rate): (&str, f64), arm: &str) -> Option<(f64, f64, Option<f64>, Option<f64>)> {
    let middle = s.medians.get(row)?.get(arm)? * 1e9;
    let none = BTreeMap::new();
    let counted = s.counted.get(row).and_then(|arms| arms.get(arm)).unwrap_or(&none);
    let late = counted.get(LATE).map(|ms| ms * 1e6).filter(|late| late.is_finite());
    Some((rate, middle, late, counted.get(FAILED).copied()))
}

fn right(lines: &[Line<'_>], marks: &[super::Mark]) -> f64 {
    let rates = lines.iter().flat_map(|line| line.points.iter().map(|p| p.0));
    rates.chain(marks.iter().map(|mark| mark.at)).fold(1.0, f64::max) * 1.05
}

fn above(root: &draw::Canvas<'_>, lines: &[Line<'_>], drawn: &Drawn) -> draw::Drawn {
    let all = || lines.iter().flat_map(|line| &line.points).flat_map(|p| [Some(p.1), p.2]).flatten();
    let (least, most) = (all().fold(f64::INFINITY, f64::min) * 0.7, all().fold(1.0, f64::max) * 1.4);
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(20)
        .y_label_area_size(78)
        .build_cartesian_2d(0.0..right(lines, &drawn.marks), (least..most).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .label_style(text(14, &MUTED))
        .y_desc("time")
        .x_label_formatter(&|v| count(*v))
        .y_label_formatter(&|v| nanos(*v))
        .draw()?;
    for mark in &drawn.marks {
        chart.draw_series(DashedLineSeries::new(
            [(mark.at, least), (mark.at, most)],
            2,
            4,
            MUTED.stroke_width(1),
        ))?;
    }
    for line in lines {
        let colour = series(line.colour);
        let middle = || line.points.iter().map(|p| (p.0, p.1));
        let late = || line.points.iter().filter_map(|p| Some((p.0, p.2?)));
        chart
            .draw_series(LineSeries::new(middle(), colour.stroke_width(2)))?
            .label(line.arm)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(middle().map(|p| Circle::new(p, 3, colour.filled())))?;
        chart.draw_series(DashedLineSeries::new(late(), 5, 4, colour.stroke_width(1)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(text(14, &INK))
        .draw()?;
    Ok(())
}

fn below(root: &draw::Canvas<'_>, lines: &[Line<'_>]) -> draw::Drawn {
    let errors = lines.iter().flat_map(|line| &line.points).filter_map(|p| p.3);
    let (_, most) = around(errors.chain([1.0]), 0.1);
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(42)
        .y_label_area_size(78)
        .build_cartesian_2d(0.0..right(lines, &[]), 0.0..most)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .label_style(text(14, &MUTED))
        .y_labels(4)
        .x_desc("asked for in a second")
        .y_desc("errors, %")
        .x_label_formatter(&|v| count(*v))
        .draw()?;
    for line in lines {
        let colour = series(line.colour);
        let failed = || line.points.iter().filter_map(|p| Some((p.0, p.3?)));
        chart.draw_series(LineSeries::new(failed(), colour.stroke_width(2)))?;
        chart.draw_series(failed().map(|p| Circle::new(p, 3, colour.filled())))?;
    }
    Ok(())
}

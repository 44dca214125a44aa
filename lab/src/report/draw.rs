//! Drawing: a canvas of `plotters` whose colours are names, so that one SVG serves light and dark pages.

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::TextStyle;
use std::error::Error;
use std::ops::Range;

/// What drawing may fail with; the page then says so in the figure's place.
pub type Drawn = Result<(), Box<dyn Error>>;
/// A canvas.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

// Colours that stand for names: the page's style sheet says what they are, in light and in dark.
/// Text and whiskers.
pub const INK: RGBColor = RGBColor(1, 1, 1);
/// Axes and captions.
pub const MUTED: RGBColor = RGBColor(2, 2, 2);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(3, 3, 3);
/// The noise floor.
pub const SHADE: RGBColor = RGBColor(4, 4, 4);
/// Rejected attempts.
pub const BAD: RGBColor = RGBColor(5, 5, 5);
/// How many colours there are for arms.
pub const SERIES: usize = 12;

/// The colour of the n-th arm.
pub fn series(n: usize) -> RGBColor {
    RGBColor(10, 10, (n % SERIES) as u8)
}

/// Text of a size in a colour.
pub fn text(size: u32, colour: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(colour)
}

fn named(svg: String) -> String {
    let mut out = svg;
    let mut put = |hex: String, name: String| {
        for what in ["fill", "stroke"] {
            out = out.replace(&format!("{what}=\"{hex}\""), &format!("style=\"{what}:var(--{name})\""));
        }
    };
    for (c, name) in [(INK, "ink"), (MUTED, "muted"), (GRID, "grid"), (SHADE, "shade"), (BAD, "bad")] {
        put(format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2), name.to_owned());
    }
    for n in 0..SERIES {
        let c = series(n);
        put(format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2), format!("c{n}"));
    }
    out
}

/// An SVG of the given size, scaling with the page.
pub fn svg(width: u32, height: u32, draw: impl FnOnce(&Canvas) -> Drawn) -> Markup {
    let mut out = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut out, (width, height)).into_drawing_area();
        draw(&root).and_then(|()| root.present().map_err(Into::into))
    };
    match drawn {
        // plotters has escaped what it wrote into it
        Ok(()) => PreEscaped(named(out).replacen(
            &format!("width=\"{width}\" height=\"{height}\""),
            &format!("style=\"width:100%;max-width:{width}px\" role=\"img\""),
            1,
        )),
        Err(e) => html! { p.bad { "This figure could not be drawn: " (e) } },
    }
}

/// A drawing as a file of its own, with what its colours' names stand for on the page.
pub fn alone(drawn: Markup) -> String {
    let names = include_str!("style.css");
    let names = names.split_once("\n*{").map_or(names, |(names, _)| names);
    drawn.into_string().replacen('>', &format!("><style>{names}</style>"), 1)
}

/// The range of some values with room around them; a range of one value has some too.
pub fn around(values: impl Iterator<Item = f64>, share: f64) -> (f64, f64) {
    let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
    for v in values.filter(|v| v.is_finite()) {
        lo = lo.min(v);
        hi = hi.max(v);
    }
    if lo > hi {
        return (0.0, 1.0);
    }
    let room = if hi > lo { (hi - lo) * share } else { lo.abs().max(1.0) * share };
    (lo - room, hi + room)
}

/// Round numbers between two, so many at most: 1, 2 or 5 of a power of ten apart.
pub fn ticks(lo: f64, hi: f64, most: u32) -> Vec<f64> {
    let least = (hi - lo) / f64::from(most);
    if !least.is_finite() || least <= 0.0 {
        return Vec::new();
    }
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= least).unwrap_or(10.0 * power);
    let first = (lo / step).ceil();
    (0..=most).map(|k| (first + f64::from(k)) * step).filter(|v| *v <= hi).collect()
}

/// Ticks of an axis of ratios that is given, and gives them, in doublings: 0.1, 0.2, 0.5, 1, 2, 5 and so on; ratios that are close are evenly spread.
pub fn ratios(left: f64, right: f64) -> Vec<f64> {
    let (lo, hi) = (left.exp2(), right.exp2());
    let round = if hi < 12.0 * lo {
        ticks(lo, hi, 8)
    } else {
        let powers = (-9..=9).map(|power| 10_f64.powi(power));
        powers
            .flat_map(|power| [1.0, 2.0, 5.0].map(|of| of * power))
            .filter(|v| (lo..=hi).contains(v))
            .collect()
    };
    round.into_iter().map(f64::log2).collect()
}

/// An axis of ratios in doublings, with [`ratios`] marked.
pub struct Ratios(RangedCoordf64, Vec<f64>);

impl Ratios {
    /// Between these, in doublings.
    pub fn new(left: f64, right: f64) -> Self {
        Self((left..right).into(), ratios(left, right))
    }
}

impl Ranged for Ratios {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.0.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.1.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.0.range()
    }
}

/// A round number without digits that say nothing.
pub fn short(v: f64) -> String {
    let digits = format!("{v:.4}");
    grouped(digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A number as people read it: thousands apart, three or four digits that say something.
pub fn human(v: f64) -> String {
    if !v.is_finite() {
        return "–".into();
    }
    if v == 0.0 {
        return "0".into();
    }
    let digits = match v.abs() {
        a if a >= 1000.0 => 0,
        a if a >= 100.0 => 1,
        a if a >= 1.0 => 2,
        _ => 3,
    };
    grouped(&format!("{v:.digits$}"))
}

/// A count: no digits behind the point.
pub fn count(v: f64) -> String {
    if v.is_finite() { grouped(&format!("{v:.0}")) } else { "–".into() }
}

fn grouped(plain: &str) -> String {
    let (whole, rest) = plain.split_once('.').map_or((plain, ""), |(w, r)| (w, r));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |w| ("−", w));
    let mut grouped = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(c);
    }
    if rest.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{rest}") }
}

/// Nanoseconds as people read them.
pub fn nanos(v: f64) -> String {
    match v.abs() {
        a if a >= 1e9 => format!("{} s", human(v / 1e9)),
        a if a >= 1e6 => format!("{} ms", human(v / 1e6)),
        a if a >= 1e3 => format!("{} µs", human(v / 1e3)),
        _ => format!("{} ns", human(v)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_short() {
        assert_eq!(human(1_234_567.8), "1,234,568");
        assert_eq!(human(-12.345), "−12.35");
        assert_eq!(human(0.1234), "0.123");
        assert_eq!(human(999.94), "999.9");
        assert_eq!(nanos(12_345.0), "12.35 µs");
        assert_eq!((count(0.0), count(1234.0)), ("0".into(), "1,234".into()));
    }

    #[test]
    fn a_drawing_names_its_colours_and_fits_its_place() {
        let s = svg(100, 50, |c| {
            c.draw(&Circle::new((10, 10), 3, series(2).filled()))?;
            c.draw(&Text::new("<a>", (1, 1), text(12, &INK)))?;
            Ok(())
        })
        .into_string();
        assert!(s.contains("fill:var(--c2)") && s.contains("fill:var(--ink)"), "{s}");
        assert!(s.contains("&lt;a&gt;") && !s.contains("<a>"), "{s}");
        assert!(s.contains("max-width:100px") && !s.contains("#0A0A02"), "{s}");
    }

    #[test]
    fn ticks_are_round_numbers() {
        let shown = |all: Vec<f64>| all.into_iter().map(short).collect::<Vec<_>>().join(" ");
        assert_eq!(shown(ticks(4401.3, 25_806.0, 7)), "5,000 10,000 15,000 20,000 25,000");
        assert_eq!(shown(ticks(0.983, 1.041, 7)), "0.99 1 1.01 1.02 1.03 1.04");
        assert_eq!(shown(ticks(-0.5, 0.5, 4)), "−0.5 0 0.5");
        let axis =
            |lo: f64, hi: f64| shown(ratios(lo.log2(), hi.log2()).into_iter().map(f64::exp2).collect());
        assert_eq!(axis(0.9, 70.0), "1 2 5 10 20 50");
        assert_eq!(axis(0.012, 1.3), "0.02 0.05 0.1 0.2 0.5 1");
        assert_eq!(axis(0.46, 1.52), "0.6 0.8 1 1.2 1.4");
        assert_eq!((ticks(1.0, 1.0, 7).len(), ticks(0.0, f64::NAN, 7).len()), (0, 0));
    }

    #[test]
    fn a_range_of_one_value_has_room() {
        let (a, b) = around([5.0].into_iter(), 0.1);
        assert!(a < 5.0 && b > 5.0);
        assert_eq!(around(std::iter::empty(), 0.1), (0.0, 1.0));
    }
}

//! From samples to effects: what `summary.json` says.
//!
//! A cost is always a ratio of *time per unit of work* (per byte, per request, per connection), arm over
//! baseline, so that above 1 is dearer for every workload. The baseline of a block is the geometric mean of
//! its two copies; the copies against each other give the noise floor, which is therefore independent of the
//! effects. A cost is stated only when Holm's adjusted p is below 5 %, the interval excludes 1, and the effect
//! is beyond the floor.

use crate::design::Layout;
use crate::experiment::{Drive, Experiment, Form, Mediation, Path, Use};
use crate::paper::measure;
use crate::place::Home;
use crate::sample::{Flag, Manifest, SCHEMA, Sample};
use crate::tools::Tool;
use crate::workload::Kind;
use levee_stats::{self as stats, Interval, factorial, interval, p_value, series};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is analysed of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Obs {
    /// Place in the plan.
    pub trial: usize,
    /// Block.
    pub block: usize,
    /// Workload id.
    pub workload: String,
    /// Layout.
    pub layout: Layout,
    /// Arm.
    pub arm: String,
    /// Copy of the baseline.
    pub copy: u8,
    /// The metric: a rate.
    pub value: f64,
}

impl Obs {
    /// Of every accepted sample.
    pub fn of(samples: &[Sample]) -> Vec<Obs> {
        samples
            .iter()
            .filter_map(|s| {
                Some(Obs {
                    trial: s.trial,
                    block: s.block,
                    workload: s.workload.clone(),
                    layout: s.layout,
                    arm: s.arm.clone(),
                    copy: s.copy,
                    value: s.value()?,
                })
            })
            .collect()
    }
}

/// What can be said of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Dearer than the baseline.
    Cost,
    /// Cheaper than the baseline.
    Gain,
    /// No more than this machine's noise floor.
    Floor,
    /// Fewer than three complete blocks.
    TooFew,
}

/// One arm against the baseline on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Workload id.
    pub workload: String,
    /// Layout.
    pub layout: Layout,
    /// Arm.
    pub arm: String,
    /// Log of (time per unit of work, arm over baseline).
    pub cost: Option<Interval>,
    /// Two-sided p-value of its own.
    pub p: f64,
    /// The same adjusted by Holm over every effect of the run.
    pub p_holm: f64,
    /// The noise floor, log.
    pub floor: f64,
    /// What can be said.
    pub verdict: Verdict,
    /// The paper's measure: percent decrease of a stream's rate, percent increase of latency else, from medians.
    pub paper_measure: Option<f64>,
}

/// The same against the same on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Workload id.
    pub workload: String,
    /// Layout.
    pub layout: Layout,
    /// Log of (time per unit of work, second copy over first).
    pub same: Option<Interval>,
    /// The farthest that its interval reaches from no difference; infinite where there is none.
    #[serde(with = "finite")]
    pub floor: f64,
}

/// Infinity as JSON's `null`.
mod finite {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    pub fn serialize<S: Serializer>(v: &f64, s: S) -> Result<S::Ok, S::Error> {
        v.is_finite().then_some(*v).serialize(s)
    }
    pub fn deserialize<'d, D: Deserializer<'d>>(d: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::INFINITY))
    }
}

/// The values of one arm on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Workload id.
    pub workload: String,
    /// Layout.
    pub layout: Layout,
    /// Arm.
    pub arm: String,
    /// Copy of the baseline.
    pub copy: u8,
    /// Trials.
    pub n: usize,
    /// Mean of the metric.
    pub mean: f64,
    /// Sample standard deviation.
    pub sd: f64,
    /// 5th, 25th, 50th, 75th and 95th percentiles.
    pub percentiles: [f64; 5],
    /// Lag-1 autocorrelation of the log of the metric, in the order made.
    pub lag1: Option<f64>,
    /// Places (from 0, in the order made) at which its level steps.
    pub change_points: Vec<usize>,
    /// Latency percentiles 50, 90, 99, 99.9 of all transactions together, nanoseconds.
    pub latency: Option<[u64; 4]>,
    /// Processor seconds per unit of work (per GB, or per transaction) of client, server, and between, medians: of the
    /// control groups of client and server, and of the processes of levee that are in neither (`/proc/PID/task/*/schedstat`).
    pub cpu: [Option<f64>; 3],
    /// That of the client's process by its own word (getrusage), or by its parent's where it is another's tool.
    #[serde(default)]
    pub rusage: Option<f64>,
}

/// What one set of factors costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// Workload id.
    pub workload: String,
    /// Layout.
    pub layout: Layout,
    /// Factor names of the design it comes from, with M's mode.
    pub design: Vec<String>,
    /// Factors of this effect: one is a main effect, more an interaction.
    pub of: Vec<String>,
    /// On logs: `exp` is the factor of multiplication.
    pub multiplicative: Interval,
    /// On times per unit of work: nanoseconds per byte or transaction.
    pub additive: Interval,
}

/// What one unit of each kind of work costs in an arm: the cost calculator's prices, in nanoseconds. A price that was
/// not measured is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Layout.
    pub layout: Layout,
    /// Arm.
    pub arm: String,
    /// A connection opened and closed (TCP_CC).
    pub connection: Option<f64>,
    /// A request of a byte and its answer (TCP_RR).
    pub request: Option<f64>,
    /// A byte of a stream (TCP_MAERTS, else TCP_STREAM).
    pub byte: Option<f64>,
    /// A datagram (UDP_STREAM), without its bytes.
    pub packet: Option<f64>,
}

/// Work to be priced: how many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Connections opened and closed.
    pub connections: f64,
    /// Requests with their answers.
    pub requests: f64,
    /// Bytes of payload.
    pub bytes: f64,
    /// Datagrams.
    pub packets: f64,
}

impl Price {
    /// Nanoseconds that the work takes, one thing after the other; nothing where a price it needs was not measured.
    pub fn of(&self, w: Work) -> Option<f64> {
        [
            (w.connections, self.connection),
            (w.requests, self.request),
            (w.bytes, self.byte),
            (w.packets, self.packet),
        ]
        .into_iter()
        .map(|(n, price)| if n == 0.0 { Some(0.0) } else { price.map(|p| n * p) })
        .sum()
    }
}

/// The cost calculator's word on a workload it has not seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Layout.
    pub layout: Layout,
    /// Arm.
    pub arm: String,
    /// The workload predicted.
    pub workload: String,
    /// Predicted nanoseconds per transaction.
    pub predicted: f64,
    /// Measured (median).
    pub measured: f64,
}

/// `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The form's name.
    pub form: String,
    /// Attempts made, and of these analysed.
    pub attempts: usize,
    /// Accepted samples.
    pub accepted: usize,
    /// Attempts with each flag.
    pub flags: BTreeMap<Flag, usize>,
    /// Trials of the plan for which no attempt was accepted.
    pub missing: usize,
    /// Values.
    pub cells: Vec<Cell>,
    /// Noise floors.
    pub floors: Vec<Floor>,
    /// Effects: the family over which Holm's adjustment runs.
    pub effects: Vec<Effect>,
    /// Attribution to factors.
    pub attribution: Vec<Attribution>,
    /// The cost calculator's prices.
    #[serde(default)]
    pub prices: Vec<Price>,
    /// The cost calculator checked.
    pub calculator: Vec<Check>,
}

/// A workload's id and a layout.
pub type Case = (String, Layout);

/// The seed of what is drawn for one arm on one workload of a run.
pub fn seed_of(seed: u64, unit: &Case, arm: &str) -> u64 {
    // FNV-1a: any fixed spread will do, it only has to be the same each time
    let text = format!("{}|{}|{arm}", unit.0, unit.1.name());
    text.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// The logs of one (unit, arm, copy) by block.
fn by_block<'a>(
    obs: impl IntoIterator<Item = &'a Obs>,
    unit: &Case,
    arm: &str,
    copy: u8,
) -> BTreeMap<usize, f64> {
    obs.into_iter()
        .filter(|o| o.workload == unit.0 && o.layout == unit.1 && o.arm == arm && o.copy == copy)
        .map(|o| (o.block, o.value.ln()))
        .collect()
}

/// Per-block logs of (time per unit of work) on one workload: of the baseline's second copy over its first, and of each
/// other arm over the two.
pub fn ratios(
    obs: &[Obs],
    unit: &Case,
    arms: &[String],
    baseline: &str,
    measures: impl Fn(&str, &str) -> bool,
) -> (Vec<f64>, Vec<(String, Vec<f64>)>) {
    let here: Vec<&Obs> = obs.iter().filter(|o| o.workload == unit.0 && o.layout == unit.1).collect();
    let of = |arm: &str, copy: u8| by_block(here.iter().copied(), unit, arm, copy);
    let (one, two) = (of(baseline, 0), of(baseline, 1));
    // rates in, times out: the cost of the second over the first is first − second
    let same = one.iter().filter_map(|(b, v)| Some(v - two.get(b)?)).collect();
    let wanted = arms.iter().filter(|a| *a != baseline && measures(a, &unit.0));
    let cost = |(b, v): (usize, f64)| Some(f64::midpoint(*one.get(&b)?, *two.get(&b)?) - v);
    let costs = wanted.map(|a| (a.clone(), of(a, 0).into_iter().filter_map(cost).collect()));
    (same, costs.collect())
}

/// Floors and effects: the heart of the analysis, and all of it that the simulated machines test. `measures` says
/// whether an arm measures a workload.
pub fn effects(
    obs: &[Obs],
    units: &[Case],
    arms: &[String],
    baseline: &str,
    seed: u64,
    measures: impl Fn(&str, &str) -> bool,
) -> (Vec<Floor>, Vec<Effect>) {
    let (mut floors, mut effects) = (Vec::new(), Vec::new());
    for unit in units {
        let (same, costs) = ratios(obs, unit, arms, baseline, &measures);
        let same = interval(&same, seed_of(seed, unit, baseline));
        let floor = same.map_or(f64::INFINITY, |i| i.reach());
        floors.push(Floor { workload: unit.0.clone(), layout: unit.1, same, floor });
        for (arm, d) in costs {
            let seed = seed_of(seed, unit, &arm);
            effects.push(Effect {
                workload: unit.0.clone(),
                layout: unit.1,
                arm,
                cost: interval(&d, seed),
                p: p_value(&d, seed),
                p_holm: 1.0,
                floor,
                verdict: Verdict::TooFew,
                paper_measure: None,
            });
        }
    }
    let adjusted = stats::holm(&effects.iter().map(|e| e.p).collect::<Vec<_>>());
    for (e, p) in effects.iter_mut().zip(adjusted) {
        e.p_holm = p;
        e.verdict = match e.cost {
            None => Verdict::TooFew,
            Some(c) if p < 1.0 - stats::CONFIDENCE && c.excludes_none() && c.estimate.abs() > e.floor => {
                if c.estimate > 0.0 { Verdict::Cost } else { Verdict::Gain }
            }
            Some(_) => Verdict::Floor,
        };
    }
    (floors, effects)
}

/// Log of (time per unit of work, `arm` over `base`) over the blocks that have both: for the papers' own
/// pairs, whose base is not always the baseline. Of the baseline both copies count.
pub fn contrast(obs: &[Obs], unit: &Case, base: &str, arm: &str, seed: u64) -> Option<Interval> {
    let of = |name: &str| {
        let two = by_block(obs, unit, name, 1);
        let mut one = by_block(obs, unit, name, 0);
        for (b, v) in &mut one {
            *v = two.get(b).map_or(*v, |w| f64::midpoint(*v, *w));
        }
        one
    };
    let (base, arm_) = (of(base), of(arm));
    let d: Vec<f64> = base.iter().filter_map(|(b, v)| Some(v - arm_.get(b)?)).collect();
    interval(&d, seed_of(seed, unit, arm))
}

/// Nanoseconds per unit of work (byte or transaction) at a rate.
pub fn time_per_unit(kind: Kind, value: f64) -> f64 {
    if kind.is_bulk() { 8e3 / value } else { 1e9 / value }
}

/// Processor seconds per GB or per transaction of the roles, by control group, and of the client's process by its own
/// word. A warm-up of ours is in the seconds, and so in the work they are divided by; that of a tool is in neither.
fn cpu_per_unit(s: &Sample, form: &Form, tool: bool) -> Option<[Option<f64>; 4]> {
    let o = s.outcome.as_ref()?;
    if o.kind == Kind::UdpStream {
        return None; // a sweep of rates: its work is not that of its metric
    }
    let seconds = if tool { Tool::whole(form.seconds) } else { form.seconds + form.warmup };
    let scaled = seconds * o.value;
    let work = if o.kind.is_bulk() { scaled / 8e3 } else { scaled };
    let per = |c: Option<f64>| c.map(|c| c / work);
    // schema 1 once had no word of a tool's
    let own = Some(o.cpu_seconds).filter(|c| *c > 0.0);
    Some([per(s.load.client), per(s.load.server), per(s.load.between), per(own)])
}

fn cell(m: &Manifest, samples: &[&Sample], seed: u64) -> Option<Cell> {
    let first = samples.first()?;
    let values: Vec<f64> = samples.iter().filter_map(|s| s.value()).collect();
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    let mut latency = crate::workload::Latency::default();
    for l in samples.iter().filter_map(|s| s.outcome.as_ref()?.latency.as_ref()) {
        latency.merge(l);
    }
    let at = |q: f64| latency.quantile(q);
    let tool = m.experiment.arms.iter().any(|a| a.name == first.arm && a.tool.is_some());
    let cpus: Vec<[Option<f64>; 4]> = samples.iter().filter_map(|s| cpu_per_unit(s, &m.form, tool)).collect();
    let cpu = |i: usize| {
        let all: Vec<f64> = cpus.iter().filter_map(|c| *c.get(i)?).collect();
        stats::quantile(&all, 0.5)
    };
    let p = |q: f64| stats::quantile(&values, q).unwrap_or(f64::NAN);
    Some(Cell {
        workload: first.workload.clone(),
        layout: first.layout,
        arm: first.arm.clone(),
        copy: first.copy,
        n: values.len(),
        mean: stats::mean(&values)?,
        sd: stats::sd(&values).unwrap_or(0.0),
        percentiles: [p(0.05), p(0.25), p(0.5), p(0.75), p(0.95)],
        lag1: series::lag1(&logs),
        change_points: series::change_points(&logs, seed),
        latency: at(0.5).zip(at(0.9)).zip(at(0.99)).zip(at(0.999)).map(|(((a, b), c), d)| [a, b, c, d]),
        cpu: [0, 1, 2].map(cpu),
        rusage: cpu(3),
    })
}

/// The arm of an experiment with that drive.
fn arm_of(e: &Experiment, path: Path, mediation: Mediation, session: Home) -> Option<&str> {
    let d = Drive { path, mediation, session, before: false };
    e.arms.iter().find(|a| a.drive == d).map(|a| a.name.as_str())
}

/// Every complete factorial design among the arms that were run: all three factors for each mode of M,
/// or else pairs of them at the low level of the third.
fn designs(e: &Experiment, ran: &BTreeSet<String>) -> Vec<(Vec<String>, Vec<String>)> {
    let mut out: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for mode in Mediation::ALL.into_iter().filter(|m| *m != Mediation::None) {
        let names = ["I".to_owned(), mode.level(), "F".to_owned()];
        // sets of factors, largest first; bit f of a cell is the level of the f-th factor of the set
        for set in [vec![0, 1, 2], vec![0, 1], vec![0, 2], vec![1, 2]] {
            let cells: Option<Vec<String>> = (0..1_usize << set.len())
                .map(|cell| {
                    let high =
                        |f: usize| set.iter().position(|s| *s == f).is_some_and(|b| cell >> b & 1 == 1);
                    let name = arm_of(
                        e,
                        if high(0) { Path::Tunnel } else { Path::Link },
                        if high(1) { mode } else { Mediation::None },
                        if high(2) { Home::Elsewhere } else { Home::Here },
                    )?;
                    ran.contains(name).then(|| name.to_owned())
                })
                .collect();
            let factors: Vec<String> = set.iter().filter_map(|f| names.get(*f).cloned()).collect();
            if let Some(cells) = cells
                && !out.iter().any(|(f, _)| factors.iter().all(|x| f.contains(x)))
            {
                out.push((factors, cells));
            }
        }
    }
    out
}

fn attribution(m: &Manifest, obs: &[Obs], units: &[(Case, Kind)]) -> Vec<Attribution> {
    let ran: BTreeSet<String> = obs.iter().map(|o| o.arm.clone()).collect();
    let mut out = Vec::new();
    for (factors, arms) in designs(&m.experiment, &ran) {
        for (unit, kind) in units {
            let columns: Vec<BTreeMap<usize, f64>> = arms.iter().map(|a| by_block(obs, unit, a, 0)).collect();
            let blocks: Vec<Vec<f64>> = (0..m.form.blocks)
                .filter_map(|b| {
                    columns.iter().map(|c| c.get(&b).map(|v| time_per_unit(*kind, v.exp()))).collect()
                })
                .collect();
            let logs: Vec<Vec<f64>> = blocks.iter().map(|b| b.iter().map(|v| v.ln()).collect()).collect();
            let seed = seed_of(m.seed, unit, &factors.join(""));
            let (Some(mul), Some(add)) = (
                factorial::attribute(factors.len(), &logs, seed),
                factorial::attribute(factors.len(), &blocks, seed),
            ) else {
                continue;
            };
            out.extend(mul.into_iter().zip(add).map(|(mul, add)| Attribution {
                workload: unit.0.clone(),
                layout: unit.1,
                design: factors.clone(),
                of: mul.factors.iter().filter_map(|f| factors.get(*f).cloned()).collect(),
                multiplicative: mul.interval,
                additive: add.interval,
            }));
        }
    }
    out
}

/// What each unit of work costs in each arm. A stream's bytes go in super-segments, so that a byte's price has hardly a
/// packet in it; a datagram's time, less its bytes at that price, is the price of a packet.
fn prices(m: &Manifest, cells: &[Cell]) -> Vec<Price> {
    let mut out = Vec::new();
    for &layout in &m.form.layouts {
        for arm in m.experiment.arms_of(&m.form) {
            let of = |k: Kind| median_time(cells, layout, &arm.name, k.name());
            let byte = of(Kind::TcpMaerts).or_else(|| of(Kind::TcpStream));
            let size = m.common.datagram as f64;
            let price = Price {
                layout,
                arm: arm.name.clone(),
                connection: of(Kind::TcpCc),
                request: of(Kind::TcpRr),
                byte,
                packet: of(Kind::UdpStream).zip(byte).map(|(u, b)| (u - b) * size),
            };
            if price.connection.or(price.request).or(price.byte).is_some() {
                out.push(price);
            }
        }
    }
    out
}

/// Median nanoseconds per unit of work of an arm on a workload.
fn median_time(cells: &[Cell], layout: Layout, arm: &str, workload: &str) -> Option<f64> {
    let c =
        cells.iter().find(|c| c.layout == layout && c.arm == arm && c.copy == 0 && c.workload == workload)?;
    Some(time_per_unit(Kind::of_unit(workload)?, c.percentiles[2]))
}

/// The calculator's word on workloads that are no part of its prices.
fn calculator(m: &Manifest, cells: &[Cell], prices: &[Price]) -> Vec<Check> {
    let units = m.experiment.units(Some(&m.form));
    let mut out = Vec::new();
    for p in prices {
        for u in &units {
            // what one transaction of it is made of, and how many units of work its metric counts in one
            let (work, per) = match (u.kind, u.usage) {
                (Kind::TcpCrr, _) => (Work { connections: 1.0, requests: 1.0, ..Work::default() }, 1.0),
                (Kind::TcpFetch, _) => {
                    let bytes = f64::from(m.common.fetch);
                    (Work { connections: 1.0, requests: 1.0, bytes, packets: 0.0 }, 1.0)
                }
                (Kind::UdpStream, Use::HeldOut) => {
                    let bytes = u.datagram.unwrap_or(m.common.datagram) as f64;
                    (Work { bytes, packets: 1.0, ..Work::default() }, bytes)
                }
                _ => continue,
            };
            let measured = median_time(cells, p.layout, &p.arm, &u.id).map(|t| t * per);
            if let (Some(predicted), Some(measured)) = (p.of(work), measured) {
                out.push(Check {
                    layout: p.layout,
                    arm: p.arm.clone(),
                    workload: u.id.clone(),
                    predicted,
                    measured,
                });
            }
        }
    }
    out
}

/// Everything that can be said of a run, complete or not.
///
/// # Errors
/// When the manifest has no baseline.
pub fn summarise(m: &Manifest, samples: &[Sample]) -> Result<Summary, String> {
    let baseline = m.experiment.baseline()?.name.clone();
    let all_units = m.experiment.units(Some(&m.form));
    let units: Vec<(Case, Kind, Use)> = all_units
        .iter()
        .flat_map(|u| m.form.layouts.iter().map(move |l| ((u.id.clone(), *l), u.kind, u.usage)))
        .collect();
    let arms: Vec<String> = m.experiment.arms_of(&m.form).iter().map(|a| a.name.clone()).collect();
    let present: Vec<String> =
        arms.iter().filter(|a| m.absent.iter().all(|(n, _)| n != *a)).cloned().collect();
    let obs = Obs::of(samples);
    let family: Vec<Case> = units.iter().filter(|u| u.2 == Use::Effect).map(|u| u.0.clone()).collect();
    let (floors, mut effects) = effects(&obs, &family, &present, &baseline, m.seed, |a, w| m.measures(a, w));
    let mut groups: BTreeMap<(Case, String, u8), Vec<&Sample>> = BTreeMap::new();
    for s in samples.iter().filter(|s| s.accepted) {
        groups.entry(((s.workload.clone(), s.layout), s.arm.clone(), s.copy)).or_default().push(s);
    }
    let mut cells = Vec::new();
    for (unit, _, _) in &units {
        for arm in &present {
            for copy in [0, 1] {
                if let Some(g) = groups.get(&(unit.clone(), arm.clone(), copy)) {
                    cells.extend(cell(m, g, seed_of(m.seed, unit, arm) ^ u64::from(copy)));
                }
            }
        }
    }
    let median = |e: &Effect, arm: &str| {
        cells
            .iter()
            .find(|c| c.workload == e.workload && c.layout == e.layout && c.arm == arm && c.copy == 0)
            .map(|c| c.percentiles[2])
    };
    for e in &mut effects {
        e.paper_measure =
            median(e, &baseline).zip(median(e, &e.arm)).map(|(b, a)| measure(&e.workload, b, a));
    }
    let mut flags: BTreeMap<Flag, usize> = BTreeMap::new();
    for f in samples.iter().flat_map(|s| &s.flags) {
        *flags.entry(*f).or_default() += 1;
    }
    let tried: BTreeSet<usize> = samples.iter().map(|s| s.trial).collect();
    let had: BTreeSet<usize> = samples.iter().filter(|s| s.accepted).map(|s| s.trial).collect();
    let family_kinds: Vec<(Case, Kind)> =
        units.iter().filter(|u| u.2 == Use::Effect).map(|u| (u.0.clone(), u.1)).collect();
    let prices = prices(m, &cells);
    Ok(Summary {
        schema: SCHEMA,
        experiment: m.experiment.name.clone(),
        form: m.form_name.clone(),
        attempts: samples.len(),
        accepted: had.len(),
        flags,
        missing: tried.difference(&had).count(),
        attribution: attribution(m, &obs, &family_kinds),
        calculator: calculator(m, &cells, &prices),
        prices,
        cells,
        floors,
        effects,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_priced_only_where_every_price_it_needs_was_measured() {
        let p = Price {
            layout: Layout::Apart,
            arm: "a".into(),
            connection: Some(50e3),
            request: Some(20e3),
            byte: Some(0.25),
            packet: None,
        };
        let fetch = Work { connections: 1.0, requests: 1.0, bytes: 65_536.0, packets: 0.0 };
        assert_eq!(p.of(fetch), Some(50e3 + 20e3 + 16_384.0));
        assert_eq!(p.of(Work { packets: 1.0, ..fetch }), None);
        assert_eq!(p.of(Work::default()), Some(0.0));
    }
}

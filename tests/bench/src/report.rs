//! The samples of a run, and the report that is made of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use levee_lab::host::{self, Env};
use levee_stats::quantile;
use serde::{Deserialize, Serialize};

use crate::arms::{Arm, MTU, Variant};
use crate::cases::{Case, Figure, Trial};
use crate::stand::Stand;

/// Figures that say nothing of one stream.
const OF_MANY: [&str; 2] = ["least", "silent"];

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    round: u32,
    case: String,
    arm: String,
    /// When, RFC 3339.
    at: String,
    values: BTreeMap<String, f64>,
    /// Why there are none.
    error: Option<String>,
}

impl Sample {
    /// Of this trial, now.
    pub fn new(trial: &Trial, values: BTreeMap<String, f64>, error: Option<String>) -> Self {
        let (round, case, arm) = trial.key();
        Self { round, case, arm, at: host::now(), values, error }
    }

    /// What names it among the others.
    pub fn key(&self) -> (u32, String, String) {
        (self.round, self.case.clone(), self.arm.clone())
    }
}

/// What a run was made with; one that was taken up again has several environments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Manifest {
    seed: u64,
    versions: BTreeMap<String, String>,
    environments: Vec<Env>,
}

/// A run's directory.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    manifest: Manifest,
    samples: Vec<Sample>,
    file: File,
}

impl Log {
    /// Opens a run, or begins one.
    ///
    /// # Errors
    /// When its files cannot be read or made.
    pub fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let (manifest, samples) = match load(directory) {
            Ok(run) => run,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let seed = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(1, |now| now.as_nanos() as u64);
                (Manifest { seed, ..Manifest::default() }, Vec::new())
            }
            Err(error) => return Err(error),
        };
        let file = OpenOptions::new().create(true).append(true).open(directory.join("samples.jsonl"))?;
        let log = Self { directory: directory.into(), manifest, samples, file };
        log.keep()?;
        Ok(log)
    }

    fn keep(&self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.manifest)?;
        fs::write(self.directory.join("manifest.json"), text)
    }

    /// The seed of the order of trials.
    pub fn seed(&self) -> u64 {
        self.manifest.seed
    }

    /// What was measured so far.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Records what the run is made with.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn environment(&mut self, stand: &Stand) -> io::Result<()> {
        let mut look = host::look(&stand.namespaces());
        // Of the devices, those of the link say enough; a hundred others say no more.
        look.facts.retain(|name, _| {
            !name.starts_with("links") && (!name.starts_with("offloads") || name.ends_with(", eth0"))
        });
        self.manifest.environments.push(look);
        self.manifest.versions = stand.versions();
        self.keep()
    }

    /// Keeps a sample.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, sample: Sample) -> io::Result<()> {
        let line = serde_json::to_string(&sample)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.samples.push(sample);
        Ok(())
    }
}

fn load(directory: &Path) -> io::Result<(Manifest, Vec<Sample>)> {
    let manifest = serde_json::from_str(&fs::read_to_string(directory.join("manifest.json"))?)?;
    let text = fs::read_to_string(directory.join("samples.jsonl"))?;
    // The last line may be cut off where a run was killed.
    let samples = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Ok((manifest, samples))
}

/// Median, lowest and highest of some values.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    median: f64,
    lowest: f64,
    highest: f64,
    count: usize,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: quantile(values, 0.5)?,
            lowest: quantile(values, 0.0)?,
            highest: quantile(values, 1.0)?,
            count: values.len(),
        })
    }

    fn show(self) -> String {
        let digits = match self.median {
            median if median >= 100.0 => 0,
            median if median >= 10.0 => 1,
            median if median >= 1.0 => 2,
            _ => 3,
        };
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.lowest, self.highest)
    }
}

#[derive(Debug, Serialize)]
struct Row {
    case: String,
    arm: String,
    figure: String,
    what: String,
    value: Spread,
    /// Ratio to the bare link in the same round.
    of_bare: Option<Spread>,
    /// Ratio to wireguard-go in the same round.
    of_wireguard: Option<Spread>,
    /// Ratio to a plain vault in the same round.
    of_plain: Option<Spread>,
    /// Ratio to the AEAD alone in the same round.
    of_aead: Option<Spread>,
}

#[derive(Debug, Serialize)]
struct Results<'a> {
    manifest: &'a Manifest,
    rows: Vec<Row>,
    failed: Vec<&'a Sample>,
    samples: &'a [Sample],
}

fn values(samples: &[Sample], case: Case, arm: Arm, figure: &Figure) -> BTreeMap<u32, f64> {
    let (case, arm) = (case.name(), arm.name());
    samples
        .iter()
        .filter(|sample| sample.case == case && sample.arm == arm)
        .filter_map(|sample| Some((sample.round, *sample.values.get(figure.name)?)))
        .collect()
}

fn ratio(ours: &BTreeMap<u32, f64>, theirs: &BTreeMap<u32, f64>) -> Option<Spread> {
    let ratios: Vec<f64> = ours
        .iter()
        .filter_map(|(round, ours)| Some(ours / theirs.get(round)?))
        .filter(|ratio| ratio.is_finite())
        .collect();
    Spread::of(&ratios)
}

fn rows(samples: &[Sample]) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in Case::ALL {
        for figure in case.figures() {
            let of = |arm| values(samples, case, arm, figure);
            let (bare, wireguard) = (of(Arm::Bare), of(Arm::WireguardGo));
            let (plain, aead) = (of(Arm::Levee(Variant::Plain)), of(Arm::Aead));
            for arm in Arm::ALL {
                let ours = of(arm);
                let Some(value) = Spread::of(&ours.values().copied().collect::<Vec<_>>()) else { continue };
                rows.push(Row {
                    case: case.name(),
                    arm: arm.name(),
                    figure: figure.name.into(),
                    what: figure.what.into(),
                    value,
                    of_bare: ratio(&ours, &bare).filter(|_| arm != Arm::Bare),
                    of_wireguard: ratio(&ours, &wireguard).filter(|_| arm != Arm::WireguardGo),
                    of_plain: ratio(&ours, &plain).filter(|_| arm != Arm::Levee(Variant::Plain)),
                    of_aead: ratio(&ours, &aead).filter(|_| arm != Arm::Aead),
                });
            }
        }
    }
    rows
}

/// Writes `results.json` and `report.md` of the run in this directory.
///
/// # Errors
/// When there is no run, or a file cannot be written.
pub fn write(directory: &Path) -> io::Result<()> {
    let (manifest, samples) = load(directory)?;
    let failed = samples.iter().filter(|sample| sample.error.is_some()).collect();
    let results = Results { manifest: &manifest, rows: rows(&samples), failed, samples: &samples };
    let page = page(&results).map_err(io::Error::other)?;
    fs::write(directory.join("results.json"), serde_json::to_string_pretty(&results)? + "\n")?;
    fs::write(directory.join("report.md"), page)
}

/// What a stream costs beside what the AEAD alone takes for it, and beside wireguard-go.
fn processor_time(page: &mut String, rows: &[&Row]) -> std::fmt::Result {
    writeln!(page, "### Its processor seconds per GB, as ratios\n")?;
    writeln!(page, "`aead-alone` seals and opens packets as the stream's, by one thread. Less is better.\n")?;
    writeln!(
        page,
        "| arm | whole host, of the AEAD alone | of wireguard-go | tunnel processes, of the AEAD alone | of wireguard-go |"
    )?;
    writeln!(page, "|---|---:|---:|---:|---:|")?;
    for arm in Arm::ALL {
        let cell = |figure: &str| rows.iter().find(|row| row.arm == arm.name() && row.figure == figure);
        let Some(host) = cell("host_cpu").filter(|row| row.of_aead.is_some()) else { continue };
        write!(page, "| {} |", arm.name())?;
        for row in [Some(host), cell("tunnel_cpu")] {
            let show = |ratio: fn(&Row) -> Option<Spread>| {
                row.and_then(|row| ratio(row)).map_or(String::new(), Spread::show)
            };
            write!(page, " {} | {} |", show(|row| row.of_aead), show(|row| row.of_wireguard))?;
        }
        writeln!(page)?;
    }
    writeln!(page)
}

fn page(results: &Results<'_>) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    let rounds = results.samples.iter().map(|sample| sample.round).max().unwrap_or(0);
    writeln!(page, "# The vault beside other user-mode tunnels\n")?;
    writeln!(
        page,
        "Written by `make bench`. Two network namespaces joined by a veth pair; every arm once in each of {rounds} rounds \
         (of the full form's, some in every other), in an order of its own; cubic at both ends; inner MTU {MTU}. Each cell is the median over rounds with the \
         lowest and the highest in brackets; ratios are within rounds, then the same. Both ends, and the programs that \
         send and receive, share the host's processors.\n"
    )?;
    for case in Case::ALL {
        let rows: Vec<_> = results.rows.iter().filter(|row| row.case == case.name()).collect();
        let Some(main) = case.figures().first() else { continue };
        if rows.is_empty() {
            continue;
        }
        writeln!(page, "## {}\n", case.title())?;
        let figures: Vec<_> = case
            .figures()
            .iter()
            .filter(|figure| case != Case::Stream || !OF_MANY.contains(&figure.name))
            .collect();
        write!(page, "| arm |")?;
        for figure in &figures {
            write!(page, " {} |", figure.what)?;
        }
        writeln!(page, " of the bare link | of wireguard-go | of a plain vault |")?;
        writeln!(page, "|---|{}", "---:|".repeat(figures.len() + 3))?;
        for arm in Arm::ALL {
            let cell =
                |figure: &Figure| rows.iter().find(|row| row.arm == arm.name() && row.figure == figure.name);
            let Some(first) = cell(main) else { continue };
            write!(page, "| {} |", arm.name())?;
            for figure in &figures {
                write!(page, " {} |", cell(figure).map_or(String::new(), |row| row.value.show()))?;
            }
            let show = |ratio: Option<Spread>| ratio.map_or(String::new(), Spread::show);
            writeln!(
                page,
                " {} | {} | {} |",
                show(first.of_bare),
                show(first.of_wireguard),
                show(first.of_plain)
            )?;
        }
        let sense = if main.more { "more" } else { "less" };
        writeln!(page, "\nThe ratios are of the first column, of which {sense} is better.\n")?;
        if rows.iter().any(|row| row.of_aead.is_some()) {
            processor_time(&mut page, &rows)?;
        }
    }
    if !results.failed.is_empty() {
        writeln!(page, "## What could not be measured\n")?;
        for sample in &results.failed {
            let why = sample.error.as_deref().unwrap_or("").lines().next().unwrap_or("");
            writeln!(page, "- round {}, {}, {}: {why}", sample.round, sample.case, sample.arm)?;
        }
        writeln!(page)?;
    }
    writeln!(page, "## Environment\n")?;
    for (name, version) in &results.manifest.versions {
        writeln!(page, "- {name}: {version}")?;
    }
    if let Some(environment) = results.manifest.environments.last() {
        writeln!(page, "- measured from {}", results.samples.first().map_or("", |sample| &sample.at))?;
        for (name, fact) in &environment.facts {
            writeln!(page, "- {name}: {fact}")?;
        }
    }
    Ok(page)
}

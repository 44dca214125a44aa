//! What is measured, with which arms, how often.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use levee_lab::client::{self, Target};
use levee_lab::counters::Cpu;
use levee_lab::workload::{Closer, Kind, Task};

use crate::arms::{Arm, Variant};
use crate::badlink::BadLink;
use crate::link::{CONGESTION, served_at};
use crate::tunnel::Way;
use crate::{peers, streams};

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// One TCP stream.
    Stream,
    /// Four TCP streams.
    Streams4,
    /// One TCP stream in each label at once.
    Everywhere,
    /// Datagrams of this many bytes of payload.
    Datagrams(u16),
    /// One byte each way over one TCP connection, again and again.
    RequestResponse,
    /// The same with a processor for each end: its program, and what carries its tunnel.
    RequestResponseApart,
    /// One TCP stream over a link that loses, repeats, reorders and corrupts.
    BadLink,
    /// Memory of the tunnel's process at the server's end, with what was measured before it behind it.
    Memory,
}

/// One number that a case yields.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name in samples.
    pub name: &'static str,
    /// What it is, with its unit.
    pub what: &'static str,
    /// Whether more is better.
    pub more: bool,
}

const fn more(name: &'static str, what: &'static str) -> Figure {
    Figure { name, what, more: true }
}

const fn less(name: &'static str, what: &'static str) -> Figure {
    Figure { name, what, more: false }
}

const BULK_BAD: [Figure; 1] = [more("gbit", "Gbit/s of payload")];
const BULK: [Figure; 5] = [
    more("gbit", "Gbit/s of payload"),
    less("host_cpu", "processor seconds of the whole host per GB"),
    less("tunnel_cpu", "processor seconds of both tunnel processes per GB"),
    more("least", "smallest stream's share of an equal one"),
    less("silent", "streams that brought nothing"),
];
const DATAGRAMS: [Figure; 2] = [
    more("kpps", "1,000 datagrams/s, highest rate without loss"),
    more("flood_kpps", "1,000 datagrams/s delivered of an unpaced flood"),
];
const TRIPS: [Figure; 2] = [less("median", "median, µs"), less("p99", "99th percentile, µs")];
const MEMORY: [Figure; 2] =
    [less("rss", "resident, MiB"), less("private", "of it its own and written to, MiB")];

impl Case {
    /// All, in the order of the report.
    pub const ALL: [Self; 10] = [
        Self::Stream,
        Self::Streams4,
        Self::Datagrams(64),
        Self::Datagrams(512),
        Self::Datagrams(1372),
        Self::RequestResponse,
        Self::RequestResponseApart,
        Self::Everywhere,
        Self::BadLink,
        Self::Memory,
    ];

    /// As on the command line and in samples.
    pub fn name(self) -> String {
        match self {
            Self::Stream => "stream".into(),
            Self::Streams4 => "streams4".into(),
            Self::Everywhere => "everywhere".into(),
            Self::BadLink => "bad-link".into(),
            Self::Datagrams(bytes) => format!("udp{bytes}"),
            Self::RequestResponse => "rr".into(),
            Self::RequestResponseApart => "rr-apart".into(),
            Self::Memory => "memory".into(),
        }
    }

    /// As a heading.
    pub fn title(self) -> String {
        match self {
            Self::Stream => "One TCP stream".into(),
            Self::Streams4 => "Four TCP streams".into(),
            Self::Everywhere => "One TCP stream in every label at once".into(),
            Self::BadLink => format!("One TCP stream over a bad link ({})", BadLink::describe()),
            Self::Datagrams(bytes) => format!("Datagrams of {bytes} bytes (packets of {})", bytes + 28),
            Self::RequestResponse => "Request and response of one byte over TCP".into(),
            Self::RequestResponseApart => {
                "Request and response of one byte over TCP, each end on a processor of its own".into()
            }
            Self::Memory => "Memory of the tunnel's process at the server".into(),
        }
    }

    /// What it yields, the main figure first.
    pub fn figures(self) -> &'static [Figure] {
        match self {
            Self::Stream | Self::Streams4 | Self::Everywhere => &BULK,
            Self::BadLink => &BULK_BAD,
            Self::Datagrams(_) => &DATAGRAMS,
            Self::RequestResponse | Self::RequestResponseApart => &TRIPS,
            Self::Memory => &MEMORY,
        }
    }
}

impl Arm {
    /// Whether the case means something for it.
    pub fn can(self, case: Case) -> bool {
        match case {
            _ if self == Self::Aead => case == Case::Stream,
            Case::Memory => self != Self::Bare,
            Case::Everywhere => matches!(self, Self::Levee(Variant::Plain | Variant::Labels(_))),
            Case::BadLink => matches!(self, Self::Bare | Self::Levee(Variant::Plain | Variant::Aggfrag)),
            _ => true,
        }
    }

    /// Whether it is measured in every other round alone: what is compared most closely has all rounds.
    pub fn is_seldom(self) -> bool {
        match self {
            Self::Boringtun | Self::Libipsec | Self::OpenVpn => true,
            Self::Levee(variant) => {
                matches!(variant, Variant::Aead(_) | Variant::Labels(10) | Variant::Workers(3))
            }
            Self::Bare | Self::Aead | Self::WireguardGo => false,
        }
    }

    /// Whether the plan has it in this case.
    pub fn is_measured(self, case: Case, full: bool) -> bool {
        let main = match self {
            Self::Levee(variant) => matches!(variant, Variant::Plain | Variant::Blocking | Variant::Before),
            _ => true,
        };
        let variant_too = match self {
            Self::Levee(Variant::Aead(_)) => case == Case::Stream,
            Self::Levee(Variant::Labels(_)) => matches!(case, Case::Stream | Case::Everywhere),
            Self::Levee(Variant::Associations(_)) => {
                matches!(case, Case::Stream | Case::RequestResponse | Case::Memory)
            }
            Self::Levee(Variant::Workers(_)) => matches!(case, Case::Stream | Case::Streams4),
            Self::Levee(Variant::Aggfrag) => {
                matches!(case, Case::Stream | Case::Datagrams(64) | Case::BadLink)
            }
            Self::Levee(Variant::Agree) => matches!(case, Case::Stream | Case::RequestResponse),
            _ => false,
        };
        let quick = matches!(
            case,
            Case::Stream
                | Case::Streams4
                | Case::Datagrams(64 | 1372)
                | Case::RequestResponse
                | Case::RequestResponseApart
                | Case::Memory
        );
        self.can(case) && (main || (full && variant_too)) && (full || quick)
    }
}

/// One measurement to make.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// From 1.
    pub round: u32,
    /// Which.
    pub case: Case,
    /// With which.
    pub arm: Arm,
}

impl Trial {
    /// What names it among the samples.
    pub fn key(&self) -> (u32, String, String) {
        (self.round, self.case.name(), self.arm.name())
    }
}

/// Which cases with which arms in how many rounds.
#[derive(Debug)]
pub struct Plan {
    rounds: u32,
    /// Some arms have every other round alone.
    sparing: bool,
    pairs: Vec<(Case, Vec<Arm>)>,
}

impl Plan {
    /// The quick or the full one, narrowed to the arms and cases named; an earlier vault `before` is in it beside the present one.
    ///
    /// # Errors
    /// For a name that is none.
    pub fn new(
        full: bool,
        before: bool,
        rounds: Option<u32>,
        arms: &[String],
        cases: &[String],
    ) -> io::Result<Self> {
        let unknown = |what: &str, name: &str, known: Vec<String>| {
            io::Error::other(format!("there is no {what} {name}: {}", known.join(", ")))
        };
        for name in arms {
            if !Arm::ALL.iter().any(|arm| arm.name() == *name) {
                return Err(unknown("arm", name, Arm::ALL.iter().map(|arm| arm.name()).collect()));
            }
        }
        for name in cases {
            if !Case::ALL.iter().any(|case| case.name() == *name) {
                return Err(unknown("case", name, Case::ALL.iter().map(|case| case.name()).collect()));
            }
        }
        let pairs = Case::ALL
            .into_iter()
            .filter(|case| cases.is_empty() || cases.contains(&case.name()))
            .map(|case| {
                let chosen = Arm::ALL
                    .into_iter()
                    // An arm that is asked for by name is measured in every case that it can be.
                    .filter(|arm| {
                        if *arm == Arm::Levee(Variant::Before) {
                            before && arm.can(case) && arm.is_measured(case, full)
                        } else if arms.is_empty() {
                            arm.is_measured(case, full)
                        } else {
                            arms.contains(&arm.name()) && arm.can(case)
                        }
                    })
                    .collect::<Vec<_>>();
                (case, chosen)
            })
            .filter(|(_, arms)| !arms.is_empty())
            .collect();
        Ok(Self {
            rounds: rounds.unwrap_or(if full { 5 } else { 3 }),
            sparing: full && arms.is_empty() && cases.is_empty(),
            pairs,
        })
    }

    /// Every trial in its order: round by round, case by case, the arms of each in an order that the seed gives.
    pub fn trials(&self, seed: u64) -> impl Iterator<Item = Trial> {
        let mut trials = Vec::new();
        let mut state = seed | 1;
        for round in 1..=self.rounds {
            for (case, arms) in &self.pairs {
                let mut arms = arms.clone();
                arms.retain(|arm| !(self.sparing && round % 2 == 0 && arm.is_seldom()));
                // Fisher and Yates, by xorshift: an order that repeats with its seed is all that is needed.
                for n in (1..arms.len()).rev() {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    arms.swap(n, (state % (n as u64 + 1)) as usize);
                }
                trials.extend(arms.into_iter().map(|arm| Trial { round, case: *case, arm }));
            }
        }
        trials.into_iter()
    }
}

const WARMUP: Duration = Duration::from_millis(500);
/// So long a stream is measured, where nothing else is asked for.
pub const WINDOW: Duration = Duration::from_millis(1_500);
/// Where there are many streams, the window is so long for each of them: on a host with two processors the processes of a
/// hundred tunnels have their turns one after the other, and a share is the share of many turns.
const WINDOW_OF_ONE: Duration = Duration::from_millis(50);
/// The same over a bad link, where a second has few losses.
const BAD_WARMUP: Duration = Duration::from_millis(500);
/// See [`BAD_WARMUP`].
const BAD_WINDOW: Duration = Duration::from_secs(3);

/// Measures, in the client's network namespace.
///
/// # Errors
/// When nothing could be measured.
pub fn measure(case: Case, way: &Way, window: Duration) -> io::Result<BTreeMap<String, f64>> {
    let first = *way.servers.first().ok_or_else(|| io::Error::other("a tunnel that leads nowhere"))?;
    match case {
        Case::Stream => bulk(way, &[first], WARMUP, window),
        Case::Streams4 => bulk(way, &[first; 4], WARMUP, window),
        Case::Everywhere => {
            let all = u32::try_from(way.servers.len()).unwrap_or(u32::MAX);
            bulk(way, &way.servers, WARMUP, window.max(WINDOW_OF_ONE.saturating_mul(all)))
        }
        Case::BadLink => bulk(way, &[first], BAD_WARMUP, BAD_WINDOW),
        Case::Datagrams(bytes) => crate::datagrams::measure(served_at(first), usize::from(bytes)),
        Case::RequestResponse | Case::RequestResponseApart => trips(first),
        Case::Memory => memory(way),
    }
}

fn bulk(
    way: &Way,
    servers: &[Ipv4Addr],
    warmup: Duration,
    window: Duration,
) -> io::Result<BTreeMap<String, f64>> {
    let servers: Vec<_> = servers.iter().map(|address| served_at(*address)).collect();
    let mut marks = Vec::new();
    let window = streams::read(&servers, warmup, window, || {
        marks.push((Cpu::read(), peers::processor_seconds(&way.processes)));
    })?;
    let gigabytes = window.bytes as f64 / 1e9;
    let mut values = BTreeMap::from([
        ("gbit".to_owned(), gigabytes * 8.0 / window.seconds),
        ("least".to_owned(), window.least),
        ("silent".to_owned(), window.silent as f64),
    ]);
    if let [(Ok(before), tunnel_before), (Ok(after), tunnel_after)] = marks.as_slice() {
        let host = after.since(before);
        values.insert("host_cpu".into(), (host.busy + host.interrupts) / gigabytes);
        if !way.processes.is_empty() {
            values.insert("tunnel_cpu".into(), (tunnel_after - tunnel_before) / gigabytes);
        }
    }
    Ok(values)
}

fn trips(server: Ipv4Addr) -> io::Result<BTreeMap<String, f64>> {
    let task = Task {
        kind: Kind::TcpRr,
        seconds: 1.2,
        warmup: 0.2,
        write_size: 1,
        datagram: 64,
        fetch: 0,
        open_rate: None,
        closer: Closer::Server,
        congestion: CONGESTION.into(),
        sources: Vec::new(),
    };
    let target = Target { all: served_at(server), close: served_at(server) };
    let latency = client::run(&task, target)?.latency.unwrap_or_default();
    let microseconds = |q| latency.quantile(q).map(|nanoseconds| nanoseconds as f64 / 1e3);
    let (Some(median), Some(p99)) = (microseconds(0.5), microseconds(0.99)) else {
        return Err(io::Error::other("no answer came"));
    };
    Ok(BTreeMap::from([("median".into(), median), ("p99".into(), p99)]))
}

fn memory(way: &Way) -> io::Result<BTreeMap<String, f64>> {
    let server = way.processes.first().ok_or_else(|| io::Error::other("there is no process"))?;
    let text = std::fs::read_to_string(format!("/proc/{server}/smaps_rollup"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok().map(|kibibytes| kibibytes / 1024.0)
    };
    match (field("Rss:"), field("Private_Dirty:")) {
        (Some(rss), Some(private)) => Ok(BTreeMap::from([("rss".into(), rss), ("private".into(), private)])),
        _ => Err(io::Error::other("the kernel does not say")),
    }
}

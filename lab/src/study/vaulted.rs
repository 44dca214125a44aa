//! Response time and errors against an adjustable rate of connections (`levee lab run vaulted`): over a plain link, and through levee's
//! vaults. Our own open loop sends what is due whether or not earlier answers have come, and counts from when it was due; Debian's
//! httperf does beside it what it does.

use super::{Arm, CONGESTION, Measured, Stand, task};
use crate::client::Target;
use crate::experiment::{Drive, Mediation, Path as Way};
use crate::host::processors;
use crate::levee::{Levee, Variant};
use crate::netns::inside;
use crate::netns::{Namespace, pin_congestion, tool};
use crate::operate::text;
use crate::place::{Home, Place};
use crate::role::Role;
use crate::run::client;
use crate::server::{Server, serve_as};
use crate::workload::{Kind, Outcome, Task};
use levee_stats::quantile;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 216, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 216, 0, 2);
const PORT: u16 = 12_865;
/// Size of the paper's file.
const BYTES: u32 = 1_024;
/// A connection that has no whole answer after so long is an error.
const PATIENCE: Duration = Duration::from_secs(1);
/// Connections under way at once; what is due beyond them waits, and its wait counts.
const AT_ONCE: usize = 64;

/// Everything that stands during a run. Fields drop in order.
pub(super) struct Vaulted {
    absent: Vec<(String, String)>,
    levees: BTreeMap<String, Levee>,
    server: Server,
    near: Namespace,
    _far: Namespace,
}

/// The last processor serves, the first asks.
fn serving() -> usize {
    processors() - 1
}

/// levee's arms.
const VARIANTS: [(&str, Variant); 5] = [
    ("vault", Variant { part: "vv", tables: "", posture: None, vault: None }),
    ("stacks", Variant { part: "vs", tables: "[vault]\nworkers = 2\n\n", posture: None, vault: None }),
    (
        "chacha",
        Variant {
            part: "vc",
            tables: "[[posture]]\nname = \"chacha\"\nciphers = [\"chacha20-poly1305\"]\n\n",
            posture: Some("chacha"),
            vault: None,
        },
    ),
    // The paper's pass-through.
    ("clear", Variant { part: "vg", tables: "", posture: None, vault: Some("levee-lab-vault") }),
    (
        "agreeing",
        Variant { part: "va", tables: "[vault]\nagree = [\"LOW\"]\n\n", posture: None, vault: None },
    ),
];

/// The bare server behind the tunnel.
const DRIVE: Drive =
    Drive { path: Way::Tunnel, mediation: Mediation::None, session: Home::Here, before: false };

impl Vaulted {
    /// Builds the arms.
    ///
    /// # Errors
    /// When the plain link cannot be had; levee's arm is absent where levee does not come up.
    pub(super) fn build(arms: &[&Arm]) -> io::Result<Vaulted> {
        Vaulted::of(arms, &VARIANTS)
    }

    /// The same of these sites of levee's, each by its arm's name.
    ///
    /// # Errors
    /// As there.
    pub(super) fn of(arms: &[&Arm], variants: &[(&str, Variant)]) -> io::Result<Vaulted> {
        let (near, far) = (Namespace::new("vn")?, Namespace::new("vf")?);
        near.link(&far, NEAR, FAR, "eth0")?;
        for ns in [&near, &far] {
            pin_congestion(&ns.path(), CONGESTION)?;
        }
        let role = Role { netns: Some(far.path()), cgroup: None, cpu: Some(serving()), with_parent: true };
        let (all, close) = (format!("{FAR}:{PORT}"), format!("{FAR}:{}", PORT + 1));
        let server = serve_as(&role, &["--listen", &all, "--close", &close, "--congestion", CONGESTION])?;
        let mut v = Vaulted { absent: Vec::new(), levees: BTreeMap::new(), server, near, _far: far };
        for arm in arms {
            let Some((_, variant)) = variants.iter().find(|(name, _)| *name == arm.name) else { continue };
            match Levee::start(&[DRIVE], CONGESTION, None, *variant, None) {
                Ok(l) => drop(v.levees.insert(arm.name.clone(), l)),
                Err(e) => v.absent.push((arm.name.clone(), format!("levee did not come up here: {e}"))),
            }
        }
        Ok(v)
    }

    /// levee of an arm.
    ///
    /// # Errors
    /// When it has none.
    pub(super) fn levee(&self, arm: &str) -> io::Result<&Levee> {
        self.levees.get(arm).ok_or_else(|| io::Error::other("the arm has no tunnel"))
    }

    pub(super) fn at(&self, arm: &str) -> io::Result<Place> {
        let role =
            |netns: PathBuf| Role { netns: Some(netns), cgroup: None, cpu: Some(0), with_parent: true };
        match (arm, self.levees.get(arm)) {
            ("link", _) => {
                let at = |port: u16| SocketAddr::from((FAR, port));
                Ok(Place {
                    role: role(self.near.path()),
                    target: Target { all: at(PORT), close: at(PORT + 1) },
                    sources: Vec::new(),
                    server: self.server.id(),
                    tunnel: false,
                    levee: None,
                })
            }
            (_, Some(l)) => {
                l.keep_services_on(serving())?;
                let (netns, target, server) = l.place(DRIVE)?;
                Ok(Place {
                    role: role(netns),
                    target,
                    sources: Vec::new(),
                    server,
                    tunnel: true,
                    levee: Some((Home::Here, false)),
                })
            }
            _ => Err(io::Error::other("the arm was not built")),
        }
    }
}

/// One connection: a file of a kilobyte asked for and read to its end.
fn fetch(to: SocketAddr) -> io::Result<()> {
    let mut s = TcpStream::connect_timeout(&to, PATIENCE)?;
    s.set_read_timeout(Some(PATIENCE))?;
    let mut ask = vec![b'f'];
    ask.extend_from_slice(&BYTES.to_be_bytes());
    s.write_all(&ask)?;
    let mut got = Vec::new();
    s.take(u64::from(BYTES) + 1).read_to_end(&mut got)?;
    if got.len() == BYTES as usize { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Connections at a rate: of each, nanoseconds from when it was due to its whole answer, or nothing where it failed.
fn open_loop(to: SocketAddr, rate: f64, seconds: f64) -> io::Result<(Vec<Option<f64>>, f64)> {
    let total = (rate * seconds).ceil().max(1.0) as u64;
    let start = Instant::now() + Duration::from_millis(5);
    let next = AtomicU64::new(0);
    let worker = || {
        let mut mine = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= total {
                return mine;
            }
            let due = start + Duration::from_secs_f64(i as f64 / rate);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let answered = fetch(to).is_ok();
            let took = due.elapsed();
            mine.push((answered && took <= PATIENCE).then_some(took.as_nanos() as f64));
        }
    };
    let all = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE.min(total as usize)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(thread::ScopedJoinHandle::join).collect::<Result<Vec<_>, _>>()
    });
    let all = all.map_err(|_| io::Error::other("a thread of the open loop failed"))?;
    Ok((all.into_iter().flatten().collect(), start.elapsed().as_secs_f64()))
}

fn connections(place: &Place, rate: f64, seconds: f64) -> io::Result<Measured> {
    let (to, ns) = (place.target.all, place.role.netns.clone());
    let ns = ns.ok_or_else(|| io::Error::other("a client without a network"))?;
    let (all, took) = inside(&ns, move || open_loop(to, rate, seconds))?;
    let good: Vec<f64> = all.iter().flatten().copied().collect();
    let middle =
        quantile(&good, 0.5).ok_or_else(|| io::Error::other("no connection was answered in time"))?;
    let mut counted = BTreeMap::new();
    counted.insert("errors, %".to_owned(), 100.0 * (all.len() - good.len()) as f64 / all.len() as f64);
    counted.insert("answered in a second".to_owned(), good.len() as f64 / took);
    counted.insert("99th percentile, ms".to_owned(), quantile(&good, 0.99).unwrap_or(f64::NAN) / 1e6);
    Ok(Measured { seconds: middle / 1e9, preempted: None, counted })
}

/// The number after `label` in what httperf says.
fn number(said: &str, line: &str, label: &str) -> Option<f64> {
    let line = said.lines().find(|l| l.starts_with(line))?;
    let (_, rest) = line.split_once(label)?;
    rest.split_whitespace().next()?.parse().ok()
}

fn httperf(place: &Place, rate: f64, seconds: f64) -> io::Result<Measured> {
    let ns = place.role.netns.as_ref().ok_or_else(|| io::Error::other("a client without a network"))?;
    let (net, rate_) = (format!("--net={}", text(ns)), rate.to_string());
    let (to, port) = (place.target.all.ip().to_string(), place.target.all.port().to_string());
    let count = (rate * seconds).ceil().max(1.0).to_string();
    let uri = format!("/{BYTES}");
    let args = [&net, "httperf", "--hog", "--timeout", "1", "--uri", &uri, "--server", &to, "--port", &port];
    let said = tool("nsenter", &[&args[..], &["--num-conns", &count, "--rate", &rate_]].concat())?;
    let wrong = || io::Error::other("httperf does not say what it should");
    let time = number(&said, "Connection time [ms]: min", "avg ").ok_or_else(wrong)?;
    let errors = number(&said, "Errors: total", "total ").ok_or_else(wrong)?;
    let made = number(&said, "Total: connections", "connections ").ok_or_else(wrong)?;
    let counted = BTreeMap::from([("errors, %".to_owned(), 100.0 * errors / made.max(1.0))]);
    Ok(Measured { seconds: time / 1e3, preempted: None, counted })
}

fn workload(place: &Place, kind: Kind, open_rate: Option<f64>, seconds: f64) -> io::Result<Outcome> {
    client(place, &Task { fetch: BYTES, open_rate, ..task(kind, seconds) })
}

impl Stand for Vaulted {
    fn absent(&self) -> &[(String, String)] {
        &self.absent
    }

    fn measure(&mut self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured> {
        let place = self.at(arm)?;
        let (what, rate) = row.split_once('@').unwrap_or((row, "0"));
        let rate: f64 = rate.parse().map_err(io::Error::other)?;
        match what {
            "connections" => connections(&place, rate, seconds),
            "httperf" => httperf(&place, rate, seconds),
            "kept" => {
                let o = workload(&place, Kind::TcpRr, Some(rate), seconds)?;
                let middle = o.latency.and_then(|l| l.quantile(0.5));
                let middle = middle.ok_or_else(|| io::Error::other("nothing was answered"))?;
                Ok(Measured { seconds: middle as f64 / 1e9, ..Measured::default() })
            }
            "stream" | "datagrams" => {
                let kind = if what == "stream" { Kind::TcpStream } else { Kind::UdpStream };
                let levee = self.levees.get(arm);
                let spent = || levee.map(|l| l.carried().map(|octets| (octets, l.seconds().1))).transpose();
                let before = spent()?;
                let o = workload(&place, kind, None, seconds)?;
                let mut counted = BTreeMap::new();
                if let (Some((octets, time)), Some((more, later))) = (before, spent()?) {
                    let each = 1e9 * (later - time) / (more - octets).max(1.0);
                    counted.insert("levee's processor time, s/GB".to_owned(), each);
                }
                Ok(Measured { seconds: 8e-6 / o.value, preempted: None, counted })
            }
            _ => Err(io::Error::other(format!("no row is called {row:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_httperf_says_is_read() {
        let said = "Total: connections 300 requests 299 replies 298 test-duration 0.998 s\n\n\
                    Connection time [ms]: min 0.3 avg 0.75 max 4.6 median 0.5 stddev 0.3\n\
                    Connection time [ms]: connect 0.1\n\nErrors: total 3 client-timo 3 socket-timo 0\n";
        assert_eq!(number(said, "Connection time [ms]: min", "avg "), Some(0.75));
        assert_eq!(number(said, "Errors: total", "total "), Some(3.0));
        assert_eq!(number(said, "Total: connections", "connections "), Some(300.0));
        assert_eq!(number("nothing", "Errors: total", "total "), None);
    }
}

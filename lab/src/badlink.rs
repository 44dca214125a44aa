//! A link that is far away, uneven and loses packets: a TUN device in each of two namespaces, and two threads that carry what one sends to
//! the other. It is in user mode, since a kernel need not have netem; what it means by delay, jitter and loss is what netem means by them.
//!
//! What it was asked and what it did are two things: the threads count each packet that they carry, and datagrams of the laboratory's own,
//! sent over it before and after everything else, say what came out at its end.

use crate::netns::{Namespace, inside, tool};
use hdrhistogram::Histogram;
use rand::{Rng, SeedableRng, rngs::StdRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Octets of a packet at most.
const MTU: usize = 1_500;
/// Packets that wait at each end of it, and that are under way at most; more are lost, and were not asked to be.
const QUEUE: usize = 20_000;
/// Packets that are taken in before those that are due go out.
const BURST: usize = 64;
/// How long a thread may take to see that it is over.
const LOOK: Duration = Duration::from_millis(50);
/// Of the laboratory's own datagrams, each way: how many, and one in so long.
const PROBES: u32 = 3_000;
const EVERY: Duration = Duration::from_micros(250);
/// A number of losses may lie so many standard deviations from what was asked: one of 100,000 does not, by chance.
const DEVIATIONS: f64 = 4.5;
/// Of packets, lost without having been asked to.
const UNASKED: f64 = 0.001;
/// Milliseconds that a busy host may add.
const LATE: f64 = 2.0;

/// What a link is asked to do, each way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// A word: rows over it end in `~` and this.
    pub name: String,
    /// Milliseconds.
    #[serde(default)]
    pub delay: f64,
    /// Milliseconds: each packet's delay is drawn evenly from so much less to so much more, and one may overtake another.
    #[serde(default)]
    pub jitter: f64,
    /// Of 100 packets, each by itself.
    #[serde(default)]
    pub loss: f64,
}

impl Asked {
    /// Whether it can be done.
    ///
    /// # Errors
    /// What cannot, in words.
    pub fn check(&self) -> Result<(), String> {
        let Asked { name, delay, jitter, loss } = self;
        let is = |v: f64, most: f64| (0.0..=most).contains(&v);
        match () {
            () if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') => {
                Err(format!("a link's name is of letters, digits and hyphens, not {name:?}"))
            }
            () if !is(*delay, 2_000.0) => Err(format!("link {name}: a delay is at most 2,000 ms")),
            () if !is(*jitter, *delay) => Err(format!("link {name}: a jitter is no more than the delay")),
            () if !is(*loss, 50.0) => Err(format!("link {name}: at most half of the packets can be lost")),
            () => Ok(()),
        }
    }
}

/// What a link did, one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Did {
    /// What it was asked.
    pub asked: Asked,
    /// Which link, which way, and by what it was measured.
    pub what: String,
    /// Packets that entered it.
    pub offered: u64,
    /// Those that did not come out.
    pub lost: u64,
    /// Of them, lost for want of room, which nobody asked for.
    pub unasked: u64,
    /// Of those that came out: milliseconds, the quartiles. What a busy host does to a few of them is in none of these.
    pub delay: [f64; 3],
}

impl Did {
    /// Whether that is what was asked.
    ///
    /// # Errors
    /// In what it differs.
    pub fn as_asked(&self) -> Result<(), String> {
        let (n, share) = (self.offered as f64, self.asked.loss / 100.0);
        let expected = n * share;
        let room = DEVIATIONS * (n * share * (1.0 - share)).sqrt();
        let asked = self.lost.saturating_sub(self.unasked) as f64;
        let Asked { name, delay, jitter, loss } = &self.asked;
        let wrong = |why: String| Err(format!("link {name}, {}: {why}", self.what));
        if (asked - expected).abs() > room {
            return wrong(format!("{asked} of {n} packets were lost, and {loss} % were asked"));
        }
        if self.unasked as f64 > n * UNASKED {
            return wrong(format!("{} of {n} packets found no room in it", self.unasked));
        }
        if self.offered == self.lost {
            return Ok(()); // nothing whose delay is known
        }
        let [low, middle, high] = self.delay;
        if (middle - delay).abs() > LATE + delay / 10.0 {
            return wrong(format!("the median delay is {middle:.2} ms, and {delay} ms were asked"));
        }
        // of an even spread the middle half is as wide as half of the whole, which is twice the jitter
        let spread = high - low;
        // too few packets say nothing of a spread
        if n >= 1_000.0 && !(0.75 * jitter..=1.25 * jitter + 2.0 * LATE).contains(&spread) {
            return wrong(format!(
                "half of the delays are within {spread:.2} ms, and {jitter} ms of jitter were asked"
            ));
        }
        Ok(())
    }
}

/// What one thread has counted, of packets that entered while the link was asked this.
#[derive(Debug)]
struct Count {
    offered: u64,
    lost: u64,
    unasked: u64,
    /// Microseconds from the one device to the other.
    delays: Histogram<u64>,
}

impl Count {
    fn new() -> io::Result<Count> {
        let delays = Histogram::new_with_max(60_000_000, 3).map_err(io::Error::other)?;
        Ok(Count { offered: 0, lost: 0, unasked: 0, delays })
    }
}

/// Quartiles of microseconds, as milliseconds.
fn quartiles(of: &Histogram<u64>) -> [f64; 3] {
    [0.25, 0.5, 0.75].map(|q| of.value_at_quantile(q) as f64 / 1e3)
}

/// What both threads share.
#[derive(Debug)]
struct Shared {
    asked: Vec<Asked>,
    /// Which of them is in force; one beyond them all: none, and everything passes at once.
    now: AtomicUsize,
    over: AtomicBool,
    /// By way, then as `asked`.
    counts: [Mutex<Vec<Count>>; 2],
}

/// A packet under way: when it is due, which it is, when it entered, what was asked then.
type Under = Reverse<(Instant, u64, Instant, usize, Vec<u8>)>;

/// The link, gone when dropped.
#[derive(Debug)]
pub(crate) struct BadLink {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    ends: [std::path::PathBuf; 2],
    at: [Ipv4Addr; 2],
    device: String,
}

impl BadLink {
    /// Makes it between two namespaces, with an address at each end, a device of the same name in both, and the links that it can be.
    /// Until it is told which ([`BadLink::be`]) everything passes at once.
    ///
    /// # Errors
    /// Without privilege, or `/dev/net/tun`.
    pub(crate) fn between(
        here: &Namespace,
        there: &Namespace,
        at: [Ipv4Addr; 2],
        device: &str,
        asked: &[Asked],
    ) -> io::Result<BadLink> {
        let counts = || -> io::Result<_> {
            Ok(Mutex::new(asked.iter().map(|_| Count::new()).collect::<io::Result<Vec<_>>>()?))
        };
        let shared = Arc::new(Shared {
            asked: asked.to_vec(),
            now: AtomicUsize::new(asked.len()),
            over: AtomicBool::new(false),
            counts: [counts()?, counts()?],
        });
        let [one, other] = [Arc::new(open(here, at[0], device)?), Arc::new(open(there, at[1], device)?)];
        let mut link = BadLink {
            shared,
            threads: Vec::new(),
            ends: [here.path(), there.path()],
            at,
            device: device.to_owned(),
        };
        for (way, from, to) in [(0, &one, &other), (1, &other, &one)] {
            let (from, to, shared) = (Arc::clone(from), Arc::clone(to), Arc::clone(&link.shared));
            link.threads.push(thread::spawn(move || carry(&from, &to, &shared, way)));
        }
        Ok(link)
    }

    /// A link that can be any of these; `None`: a pair of virtual devices, of which nothing is asked.
    ///
    /// # Errors
    /// As for [`BadLink::between`], and when `ip` refuses.
    pub(crate) fn or_plain(
        here: &Namespace,
        there: &Namespace,
        at: [Ipv4Addr; 2],
        device: &str,
        links: Option<&[Asked]>,
    ) -> io::Result<Option<BadLink>> {
        match links {
            Some(asked) => BadLink::between(here, there, at, device, asked).map(Some),
            None => here.link(there, at[0], at[1], device).map(|()| None),
        }
    }

    /// From now on it is this one; `None`: everything passes at once.
    ///
    /// # Errors
    /// When it cannot be this one.
    pub(crate) fn be(&self, name: Option<&str>) -> io::Result<()> {
        let all = &self.shared.asked;
        let index = match name {
            None => all.len(),
            Some(name) => all
                .iter()
                .position(|a| a.name == name)
                .ok_or_else(|| io::Error::other(format!("there is no link {name:?}")))?,
        };
        self.shared.now.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// What its threads counted so far, for each link that it was: packets of whatever went over it. `unasked` is what found no room in them
    /// or in the devices.
    ///
    /// # Errors
    /// When a device's own count cannot be read.
    pub(crate) fn counted(&self, name: &str) -> io::Result<Vec<Did>> {
        let mut all = Vec::new();
        for (way, counts) in self.shared.counts.iter().enumerate() {
            let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            let carried = counts.iter().map(|c| c.offered).sum::<u64>().max(1);
            // what its own device dropped is not told apart by link: each has its share
            let dropped = self.dropped(way)?;
            for (asked, c) in self.shared.asked.iter().zip(counts.iter()).filter(|(_, c)| c.offered > 0) {
                let dropped = dropped * c.offered / carried;
                all.push(Did {
                    asked: asked.clone(),
                    what: format!("{name}, {}, all packets by the link's own count", WAYS[way]),
                    offered: c.offered + dropped,
                    lost: c.lost + c.unasked + dropped,
                    unasked: c.unasked + dropped,
                    delay: quartiles(&c.delays),
                });
            }
        }
        Ok(all)
    }

    /// Packets that the device at one end did not take from its namespace.
    fn dropped(&self, end: usize) -> io::Result<u64> {
        let net = format!("--net={}", self.ends[end].display());
        let said = tool("nsenter", &[&net, "ip", "-s", "-j", "link", "show", "dev", &self.device])?;
        let said: serde_json::Value = serde_json::from_str(&said)?;
        let dropped = said.pointer("/0/stats64/tx/dropped").and_then(serde_json::Value::as_u64);
        dropped.ok_or_else(|| io::Error::other("ip does not say what a device dropped"))
    }

    /// Sends datagrams of our own over each link that it can be, both ways at once, and says what became of them. It is none of them
    /// afterwards.
    ///
    /// # Errors
    /// When they cannot be sent.
    pub(crate) fn probe(&self, name: &str) -> io::Result<Vec<Did>> {
        let mut all = Vec::new();
        for asked in &self.shared.asked {
            self.be(Some(&asked.name))?;
            let start = Instant::now();
            let way = |way: usize| {
                let (ends, at) = (self.ends.clone(), self.at);
                let patience = Duration::from_secs_f64((asked.delay + asked.jitter) / 1e3 + 0.5);
                thread::spawn(move || one_way(ends, at, way, start, patience))
            };
            let ways = [way(0), way(1)];
            for (found, name_of) in ways.into_iter().zip(WAYS) {
                let found = found.join().map_err(|_| io::Error::other("a thread of the probe failed"))?;
                let delays = found?;
                all.push(Did {
                    asked: asked.clone(),
                    what: format!("{name}, {name_of}, datagrams of the laboratory's"),
                    offered: PROBES.into(),
                    lost: u64::from(PROBES).saturating_sub(delays.len()),
                    unasked: 0,
                    delay: quartiles(&delays),
                });
            }
        }
        self.be(None)?;
        Ok(all)
    }
}

/// The two ways, by their index.
const WAYS: [&str; 2] = ["there", "back"];

impl Drop for BadLink {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing to say.
            drop(thread.join());
        }
    }
}

fn open(space: &Namespace, address: Ipv4Addr, device: &str) -> io::Result<SyncDevice> {
    let name = device.to_owned();
    let opened = inside(&space.path(), move || {
        DeviceBuilder::new().name(name).layer(Layer::L3).mtu(MTU as u16).build_sync()
    })?;
    opened.set_nonblocking(true)?;
    let ip = |args: &[&str]| tool("ip", &[&["-n", &space.name], args].concat()).map(drop);
    space.sysctl(&format!("net/ipv6/conf/{device}/disable_ipv6"), "1")?;
    ip(&["link", "set", device, "mtu", &MTU.to_string(), "txqueuelen", &QUEUE.to_string()])?;
    ip(&["addr", "add", &format!("{address}/24"), "dev", device])?;
    ip(&["link", "set", device, "up"])?;
    Ok(opened)
}

/// Has the kernel favour this thread: a link waits for nobody's work. Where it may not, its delays show it.
fn favoured() {
    let _ = rustix::process::nice(-20);
}

/// Carries packets one way until it is over.
fn carry(from: &SyncDevice, to: &SyncDevice, shared: &Shared, way: usize) {
    favoured();
    let mut random = StdRng::from_os_rng();
    let mut buffer = vec![0; MTU + 100];
    let mut under: BinaryHeap<Under> = BinaryHeap::new();
    let mut number = 0_u64;
    let Some(counts) = shared.counts.get(way) else { return };
    while !shared.over.load(Ordering::Relaxed) {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        while under.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now()) {
            let Some(Reverse((_, _, entered, index, packet))) = under.pop() else { break };
            let taken = to.send(&packet).is_ok();
            let Some(count) = counts.get_mut(index) else { continue };
            if taken {
                count.delays.saturating_record(entered.elapsed().as_micros() as u64);
            } else {
                count.unasked += 1;
            }
        }
        for _ in 0..BURST {
            let Ok(length) = from.recv(&mut buffer) else { break };
            let (entered, index) = (Instant::now(), shared.now.load(Ordering::Relaxed));
            let mut due = entered;
            if let Some((asked, count)) = shared.asked.get(index).zip(counts.get_mut(index)) {
                count.offered += 1;
                if random.random_range(0.0..100.0) < asked.loss {
                    count.lost += 1;
                    continue;
                }
                if under.len() >= QUEUE {
                    count.unasked += 1;
                    continue;
                }
                let more =
                    if asked.jitter > 0.0 { random.random_range(-asked.jitter..=asked.jitter) } else { 0.0 };
                due += Duration::from_secs_f64((asked.delay + more).max(0.0) / 1e3);
            }
            number += 1;
            under.push(Reverse((due, number, entered, index, buffer[..length].to_vec())));
        }
        drop(counts);
        let next =
            under.peek().map_or(LOOK, |Reverse((due, ..))| due.saturating_duration_since(Instant::now()));
        let Ok(wait) = Timespec::try_from(next.min(LOOK)) else { continue };
        // Whatever woke it, it looks.
        let _ = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&wait));
    }
}

/// Datagrams one way: microseconds that each took that came.
fn one_way(
    ends: [std::path::PathBuf; 2],
    at: [Ipv4Addr; 2],
    way: usize,
    start: Instant,
    patience: Duration,
) -> io::Result<Histogram<u64>> {
    let (from, to, target) = (ends[way].clone(), ends[1 - way].clone(), at[1 - way]);
    let receiver = inside(&to, move || UdpSocket::bind((target, 0)))?;
    let target = receiver.local_addr()?;
    let sender = inside(&from, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    receiver.set_read_timeout(Some(patience))?;
    favoured();
    let sends = thread::spawn(move || -> io::Result<()> {
        favoured();
        let first = Instant::now();
        for i in 0..PROBES {
            thread::sleep((first + EVERY * i).saturating_duration_since(Instant::now()));
            let now = start.elapsed().as_nanos() as u64;
            sender.send_to(&now.to_be_bytes(), target)?;
        }
        Ok(())
    });
    let mut delays = Histogram::new_with_max(60_000_000, 3).map_err(io::Error::other)?;
    let mut buffer = [0; 8];
    while delays.len() < u64::from(PROBES) {
        match receiver.recv(&mut buffer) {
            Ok(8) => {
                let sent = Duration::from_nanos(u64::from_be_bytes(buffer));
                delays.saturating_record(start.elapsed().saturating_sub(sent).as_micros() as u64);
            }
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if sends.is_finished() {
                    break;
                }
            }
            Err(e) => return Err(e),
        }
    }
    sends.join().map_err(|_| io::Error::other("the probe's sender failed"))??;
    Ok(delays)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, delay: f64, jitter: f64, loss: f64) -> Asked {
        Asked { name: name.into(), delay, jitter, loss }
    }

    fn between(part: &str, asked: &[Asked]) -> (BadLink, [Namespace; 2]) {
        let ends =
            [format!("{part}a"), format!("{part}b")].map(|n| Namespace::new(&n).expect("root and iproute2"));
        let at = [Ipv4Addr::new(10, 249, 0, 1), Ipv4Addr::new(10, 249, 0, 2)];
        let link = BadLink::between(&ends[0], &ends[1], at, "bad0", asked).expect("a link");
        (link, ends)
    }

    #[test]
    fn a_link_does_what_it_is_asked_and_its_two_counts_say_so() {
        let links =
            [asked("far", 30.0, 0.0, 0.0), asked("uneven", 40.0, 10.0, 0.0), asked("lossy", 5.0, 0.0, 20.0)];
        let (link, _ends) = between("ba", &links);
        let lossy = |all: &[Did]| -> Vec<u64> {
            all.iter().filter(|d| d.asked.name == "lossy").map(|d| d.lost).collect()
        };
        // A host that is busy for a while is late, and says so, or has no room for what comes.
        let (mut tries, mut thrown) = (0, vec![0, 0]);
        let (probed, counted) = loop {
            let (probed, all) = (link.probe("test").expect("a probe"), link.counted("test").expect("counts"));
            let now = lossy(&all);
            let counted: Vec<u64> = now.iter().zip(&thrown).map(|(now, before)| now - before).collect();
            thrown = now;
            tries += 1;
            let fits = lossy(&probed).iter().zip(&counted).all(|(p, c)| c >= p);
            if tries == 20 || fits && probed.iter().all(|d| d.as_asked().is_ok()) {
                break (probed, counted);
            }
        };
        assert_eq!(probed.len(), 6);
        for did in &probed {
            assert_eq!(did.as_asked(), Ok(()), "{did:?}");
        }
        for count in &link.counted("test").expect("counts") {
            assert!(count.offered >= u64::from(PROBES * tries) && count.unasked == 0, "{count:?}");
            assert!(count.asked.loss > 0.0 || count.lost == 0, "{count:?}");
        }
        // what did not come out, the threads threw away, in this very probe
        let probed = lossy(&probed);
        assert!(probed.iter().zip(&counted).all(|(p, c)| *p > 0 && c >= p), "{probed:?} {counted:?}");
    }

    #[test]
    fn a_link_that_loses_what_it_was_not_asked_to_or_is_slower_does_not_pass_for_what_was_asked() {
        let (link, ends) = between("bb", &[asked("clean", 10.0, 0.0, 0.0)]);
        let rules = "table inet t { chain c { type filter hook input priority 0; meta l4proto udp numgen random mod 20 0 drop; }; }";
        let script = format!("ip netns exec {} nft '{rules}'", ends[1].name);
        tool("sh", &["-c", &script]).expect("nft");
        let probed = link.probe("test").expect("a probe");
        assert!(probed[0].as_asked().expect_err("one way loses").contains("were lost"), "{probed:?}");
        assert!(
            probed[1].lost == 0 && probed[1].offered == u64::from(PROBES),
            "the other does not: {probed:?}"
        );
        let like = Did { delay: [10.0, 10.1, 10.3], ..probed[1].clone() };
        assert_eq!(like.as_asked(), Ok(()));
        let mut slower = like.clone();
        slower.asked.delay = 5.0;
        assert!(slower.as_asked().expect_err("slower").contains("the median delay"));
        let mut steady = like.clone();
        steady.asked.jitter = 10.0;
        assert!(steady.as_asked().expect_err("steady").contains("of jitter were asked"));
        let mut full = like;
        (full.lost, full.unasked) = (100, 100);
        assert!(full.as_asked().expect_err("full").contains("found no room"));
    }

    #[test]
    fn a_link_that_cannot_be_is_refused() {
        for (wrong, why) in [
            (asked("a b", 1.0, 0.0, 0.0), "name"),
            (asked("a", -1.0, 0.0, 0.0), "delay"),
            (asked("a", f64::NAN, 0.0, 0.0), "delay"),
            (asked("a", 1.0, 2.0, 0.0), "jitter"),
            (asked("a", 1.0, 0.0, 60.0), "lost"),
        ] {
            assert!(wrong.check().expect_err("refused").contains(why), "{wrong:?}");
        }
    }
}

//! What the ledger costs (`levee status --cost`): `cargo bench -p levee-system --bench ledger [PAIRS]` (as root; the release programs
//! built; alone on the machine). Prints one line of JSON for each figure. `make bench` runs it.
//!
//! Two things are counted for it alone. A vault counts packets and octets, all the time: `count` is processor time by sealing and opening,
//! in blocks that count each packet once, as a vault does, and in blocks that count it `MORE` times more; what the difference is of the
//! block, by `MORE`, is what counting costs. All else the kernel counts anyway, and it is read when somebody asks: `ask` is what one
//! question uses of the processor on a server with a session that does nothing, and `asked` holds blocks of the same work in a session
//! against each other, in which somebody asks once a second and in which nobody does. What a question uses in its own process counts.
//!
//! Blocks come in pairs, in an order that a seeded generator says. `median`, and `low` and `high` as an interval of 95 % for it by the
//! order of the pairs' own values (Conover, Practical Nonparametric Statistics, 3.2), are in percent.

use levee_aead::Library;
use levee_esp::{
    AddressRange, Counters, ESP_HEADER, Inner, Install, Outer, PortRange, Route, SaKeys, Sad, Selector,
    SelectorSet, SessionPolicy, Side, Spi, Suite,
};
use levee_system::host::processor_time;
use levee_system::{World, eventually, text};
use std::hint::black_box;
use std::net::IpAddr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LABEL: &str = "SECRET//NATO,MED";
const PAGE: &str = "http://www.harbour.example/";
/// Pairs of blocks where nobody says how many.
const PAIRS: usize = 20;
/// So often more is each packet counted.
const MORE: u32 = 16;
/// Packets of a block.
const PACKETS: u32 = 40_000;
/// Questions in a row.
const QUESTIONS: u32 = 50;
/// Octets of each transfer, and how many there are in a block, each there and back.
const OCTETS: u64 = 20_000_000;
const TRANSFERS: u32 = 20;
/// Pairs, and transfers in a block, where Cargo tests: to see that all of it runs.
const TRIED: (usize, u32) = (1, 1);

/// Splitmix64 (Steele, Lea, Flood 2014): the order of the blocks is the same in each run.
struct Order(u64);

impl Order {
    fn first_is_with(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 1
    }

    /// By how many percent a block with it is above one without, for each pair.
    fn pairs(&mut self, pairs: usize, mut block: impl FnMut(bool) -> f64) -> Vec<f64> {
        let mut pair = || {
            let first = self.first_is_with();
            let (one, other) = (block(first), block(!first));
            let (with, without) = if first { (one, other) } else { (other, one) };
            (with / without - 1.0) * 100.0
        };
        (0..pairs).map(|_| pair()).collect()
    }
}

/// The median, and the values of which it is between two with 95 %: the binomial's, by its normal approximation, no nearer than it says.
fn middle(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    let count = all.len();
    let below = (count as f64 / 2.0 - 1.96 * (count as f64).sqrt() / 2.0).floor().max(0.0) as usize;
    (all[count / 2], all[below], all[count - 1 - below])
}

fn tell(what: &str, figures: &[(&str, f64)]) {
    let figures: Vec<String> = figures.iter().map(|(name, value)| format!("\"{name}\":{value:.3}")).collect();
    println!("{{\"what\":\"{what}\",{}}}", figures.join(","));
}

fn compared(what: &str, by: f64, pairs: Vec<f64>) {
    let count = pairs.len() as f64;
    let (median, low, high) = middle(pairs.into_iter().map(|value| value / by).collect());
    tell(what, &[("pairs", count), ("median", median), ("low", low), ("high", high)]);
}

/// Processor time of this process, in seconds.
fn own() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Both ends of one session's tunnel.
struct Ends {
    server: Sad<u32>,
    client: Sad<u32>,
    packet: Vec<u8>,
    buffer: Vec<u8>,
    /// What more is counted, as a vault does: of the vault, and of the pair.
    more: (Counters, [u64; 2]),
}

const SPI: u32 = 0x0030_0001;
const PLACE: &str = "192.0.2.9:4500";

impl Ends {
    fn new(octets: usize) -> Self {
        let any = AddressRange::prefix(IpAddr::from([0, 0, 0, 0]), 0).expect("a prefix");
        let all = Selector {
            local: any,
            remote: any,
            protocol: None,
            local_ports: PortRange::ANY,
            remote_ports: PortRange::ANY,
        };
        let peer = Outer { address: PLACE.parse().expect("an address"), socket: 0 };
        let spi = |number| Spi::new(number).expect("an SPI");
        let end = |side, inbound, outbound| {
            let mut sad = Sad::new(side);
            let selectors = SelectorSet::new(vec![all]);
            let inner = vec![IpAddr::from([10, 0, 0, 2])];
            sad.open_session(1, SessionPolicy { inner, selectors, only: None }).expect("a session");
            let keys = || SaKeys::new(Suite::Aes256Gcm, &[7; 36]).expect("keys");
            let install = Install {
                session: 1,
                extended: true,
                inbound: (spi(inbound), keys()),
                outbound: (spi(outbound), keys()),
                answered: false,
                peer: Some(peer),
                aggregation: None,
            };
            sad.install(Duration::ZERO, install, &Library::Ring).expect("a pair");
            sad
        };
        let mut packet = vec![0x45, 0];
        packet.extend(u16::try_from(octets).expect("a packet").to_be_bytes());
        // UDP from port 7 to port 7, without fragments.
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 9, 0, 1, 0, 7, 0, 7]);
        packet.resize(octets, 0x5a);
        Self {
            server: end(Side::Server, SPI, SPI + 1),
            client: end(Side::Workstation, SPI + 1, SPI),
            buffer: vec![0; levee_esp::sealed_length(octets)],
            packet,
            more: (Counters::default(), [0; 2]),
        }
    }

    /// Seconds of processor time for a block, each packet of which is counted so often more, at both ends.
    fn block(&mut self, more: u32) -> f64 {
        let from = Outer { address: PLACE.parse().expect("an address"), socket: 0 };
        let (began, length) = (own(), self.packet.len());
        for _ in 0..PACKETS {
            let inner = Inner::parse(&self.packet).expect("a packet");
            let Ok(Route::Through(mut lane)) = self.client.route(Duration::ZERO, &inner) else {
                panic!("no way")
            };
            self.buffer[ESP_HEADER..][..length].copy_from_slice(&self.packet);
            lane.seal(&mut self.buffer, length).expect("sealed");
            self.server.open(Duration::ZERO, &mut self.buffer, 0, from, 0).expect("opened");
            for _ in 0..2 * more {
                let (counters, pair) = black_box(&mut self.more);
                counters.packets_in += 1;
                counters.bytes_in += length as u64;
                pair[0] += 1;
                pair[1] += length as u64;
            }
        }
        own() - began
    }
}

/// What the server and all below it have used.
fn server(world: &World) -> f64 {
    processor_time(world.server_pid())
}

/// One question; `$0` is levee and `$1` the directory in which the server runs.
const ASK: &str = r#""$0" status --cost --json --run "$1" >/dev/null"#;

/// Somebody who asks, until they are ended: a shell, with its children.
struct Asker(Child);

impl Asker {
    fn new(world: &World, script: &str) -> Self {
        let levee = text(&levee_system::programs().join("levee"));
        let mut shell = Command::new("sh");
        shell.args(["-c", script, &levee, &text(&world.path("run"))]);
        Self(shell.spawn().expect("a shell"))
    }

    /// What it has used.
    fn end(mut self) -> f64 {
        assert!(self.0.try_wait().expect("a shell").is_none(), "it was answered each time");
        let all = processor_time(self.0.id());
        self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
        all
    }
}

/// Seconds of processor time for the same work, at the server, and of who asks.
fn work(world: &World, transfers: u32, asked: bool) -> f64 {
    let asker = asked.then(|| Asker::new(world, &format!("while {ASK}; do sleep 1; done")));
    let before = server(world);
    let script = format!(
        "for n in $(seq {transfers}); do curl --silent --show-error --fail -T /tmp/a {PAGE}own/a && \
         curl --silent --show-error --fail --output /tmp/b {PAGE}own/a || exit 1; done"
    );
    world.run("ws1", &["sh", "-c", &script]).ok();
    server(world) - before + asker.map_or(0.0, Asker::end)
}

fn main() {
    let is_measured = std::env::args().any(|word| word == "--bench");
    let (pairs, transfers) = if is_measured { (PAIRS, TRANSFERS) } else { TRIED };
    let pairs = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(pairs);
    let mut order = Order(1);
    for octets in [64, 1_400] {
        let mut ends = Ends::new(octets);
        let (_, mut plain) = (ends.block(MORE), Vec::new());
        let percent = order.pairs(pairs * 3, |with| {
            let took = ends.block(if with { MORE } else { 0 });
            if !with {
                plain.push(took);
            }
            took
        });
        plain.sort_by(f64::total_cmp);
        let each = plain[plain.len() / 2] / f64::from(PACKETS) * 1e9;
        tell(&format!("seal and open {octets}"), &[("ns", each)]);
        compared(&format!("count {octets}"), f64::from(MORE), percent);
    }

    let world = World::up("ledger", SITE, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    world.run("ws1", &["sh", "-c", &format!("head -c {OCTETS} /dev/zero >/tmp/a")]).ok();
    let _warm = work(&world, transfers, true);

    let (began, idle) = (Instant::now(), server(&world));
    std::thread::sleep(Duration::from_secs(5));
    let idle = (server(&world) - idle) / began.elapsed().as_secs_f64();
    // One after the other, from a shell: its children's time is theirs.
    let (began, before) = (Instant::now(), server(&world));
    let script =
        format!("for n in $(seq {QUESTIONS}); do {ASK} || exit 1; done; touch \"$1\"/asked; sleep 600");
    let asker = Asker::new(&world, &script);
    let asked = || world.path("run").join("asked").exists();
    eventually(Duration::from_secs(300), "every question is answered", asked);
    let all = f64::from(QUESTIONS);
    let asker = asker.end() / all;
    let answered = ((server(&world) - before) - idle * began.elapsed().as_secs_f64()).max(0.0) / all;
    // Once a second, of one processor.
    tell(
        "ask",
        &[("asker_ms", asker * 1e3), ("server_ms", answered * 1e3), ("percent", (asker + answered) * 100.0)],
    );
    compared("asked", 1.0, order.pairs(pairs, |asked| work(&world, transfers, asked)));
}

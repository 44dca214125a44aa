//! What the start of labels tells one that runs: a person above starts labels, or does not, and a program below times
//! the first connections to services that do not run. The warden sees to both, and there is one warden.
//!
//! `cargo run --release -p levee-system --bin label-channel` (after `cargo build --release --workspace --bins`), as
//! root, on a quiet host. Its figure is in `docs/SECURITY.md`.
#![forbid(unsafe_code)]

use levee_system::{World, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SITE: &str = include_str!("../../../../conf/small/site.toml");
/// A service takes one connection and ends. It rests for a second before a connection may start it again, so that
/// the windows are longer than that.
const WINDOW: f64 = 1.3;
/// Services of the receiver. The first connection to each comes so many seconds after the one before it, since the
/// receiver cannot know when in a window the warden will be busy.
const SERVICES: usize = 12;
const STEP: f64 = 0.006;
/// Bits that the receiver must guess.
const BITS: usize = 96;

/// Prints, for each window, how long the slowest first connection took, in seconds.
const RECEIVER: &str = r"
import json, select, socket, sys, time
begin, window, bits, services, step = json.loads(sys.argv[1])
seen = []
for i in range(bits):
    start, waiting, slowest = begin + i * window, {}, 0.0
    todo = [(start + j * step, 9000 + j) for j in range(services)]
    while todo or waiting:
        now = time.time()
        if now > start + window * 0.9:
            slowest = max(slowest, now - min(waiting.values())) if waiting else slowest
            break
        while todo and todo[0][0] <= now:
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(('10.80.0.1', todo.pop(0)[1]))
            waiting[s] = time.time()
        for s in select.select(list(waiting), [], [], 0.0005)[0]:
            try:
                s.recv(1)
            except OSError:
                pass
            slowest = max(slowest, time.time() - waiting.pop(s))
            s.close()
    for s in waiting:
        s.close()
    seen.append(slowest)
    time.sleep(max(0, start + window - 0.01 - time.time()))
    while time.time() < start + window:
        pass
print(json.dumps(seen))
";

fn service(number: usize) -> String {
    format!(
        r#"
[[service]]
name = "once{number}"
port = {}
protocol = "tcp"
range = "UNCLASSIFIED"
mode = "direct"
command = ["/usr/bin/perl", "-e", "open(L, '+<&=', 3); accept(C, L); syswrite(C, 'x')"]
"#,
        9000 + number
    )
}

fn main() {
    levee_system::ends_what_it_started();
    let above: Vec<String> = ["CONFIDENTIAL", "SECRET"]
        .iter()
        .flat_map(|level| ["", "//NATO", "//MED", "//NATO,MED"].map(|c| format!("{level}{c}")))
        .chain(["//NATO", "//MED", "//NATO,MED"].map(|c| format!("UNCLASSIFIED{c}")))
        .collect();
    let site: String = std::iter::once(SITE.replace("changes = 30 ", "changes = 10000 "))
        .chain((0..SERVICES).map(service))
        .collect();
    let world = World::up("start", &site, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", "SECRET").ok();
    world.login("ws2", "ugo").ok();
    world.level("ws2", "UNCLASSIFIED").ok();

    let bits = channel::bits(BITS);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
    let begin = now() + 2.0;
    let job = format!("[{begin},{WINDOW},{},{SERVICES},{STEP}]", bits.len());
    eprintln!("{} windows of {WINDOW} s", bits.len());
    let said = std::thread::scope(|scope| {
        // Labels that nobody uses end after ten seconds: by its next turn, each has to be started again.
        let mut labels = above.iter().cycle();
        let bits = &bits;
        let world = &world;
        scope.spawn(move || {
            for (window, _) in (0_u32..).zip(bits).filter(|(_, bit)| **bit == 1) {
                let at = begin + f64::from(window) * WINDOW;
                std::thread::sleep(Duration::from_secs_f64((at - now()).max(0.0)));
                world.level("ws1", labels.next().expect("a cycle")).ok();
            }
        });
        world.run("ws2", &["python3", "-c", RECEIVER, &job]).ok()
    });
    let seen: Vec<f64> = serde_json::from_str(&said).expect("the receiver's times");
    assert_eq!(seen.len(), bits.len(), "the receiver looked in every window");
    let mean = |bit: u32| {
        let of: Vec<f64> = seen.iter().zip(&bits).filter(|(_, b)| **b == bit).map(|(s, _)| *s).collect();
        1e3 * of.iter().sum::<f64>() / of.len() as f64
    };
    let (wrong, sent) = channel::decode(&bits, &seen);
    println!(
        "slowest first connection of a window: {:.1} ms with a start, {:.1} ms without",
        mean(1),
        mean(0)
    );
    println!("wrong {wrong} of {sent}: {:.2} bit/s", channel::capacity(wrong, sent) / WINDOW);
}

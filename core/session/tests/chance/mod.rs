//! The site of the simulation, and what it draws by.

pub const SITE: &str = r#"
[site]
name = "sim"
[labels]
levels = ["LOW", "MID", "HIGH"]
categories = []
[server]
name = "server.example"
addresses = ["10.77.0.1"]
trusted-path-port = 7443
ike-port = 500
tunnel-port = 4500
inner-address = "10.80.0.1"
inner-pool = "10.80.1.0/28"
slots = 8
grace = "20s"
[limits]
memory = "512M"
processes = 256
cpu = "100%"
store = "64M"
[[user]]
name = "ada"
clearance = "LOW..HIGH"
[[user]]
name = "mia"
clearance = "LOW..MID"
[[host]]
name = "ws1"
accreditation = "LOW..HIGH"
[[host]]
name = "ws2"
accreditation = "LOW..HIGH"
[[host]]
name = "ws3"
accreditation = "LOW..MID"
[[service]]
name = "web"
port = 80
protocol = "tcp"
range = "LOW..HIGH"
mode = "direct"
program = "nginx"
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
follow = "2s"
[[posture]]
name = "few"
people = ["mia"]
[[posture]]
name = "quiet"
services = []
"#;

pub const LABELS: [&str; 4] = ["LOW", "MID", "HIGH", "NOWHERE"];
pub const USERS: [&str; 3] = ["ada", "mia", "nobody"];
pub const HOSTS: [&str; 3] = ["ws1", "ws2", "ws3"];
/// What operators set, and where: nothing is everywhere.
pub const POSTURES: [&str; 4] = ["siege", "few", "quiet", "default"];
pub const RANGES: [&str; 6] = ["", "LOW", "LOW..MID", "MID", "MID..HIGH", "HIGH"];

/// splitmix64: reproducible from its seed, and good enough to order events.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

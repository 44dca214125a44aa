//! Tables of the host's that are as large as its settings say, and what whoever fills them can do.

use std::fs;
use std::path::Path;

/// So many who wait for one descriptor by epoll(7) hold up a processor for some 25 ms, by what 200,000 did (80 ms).
const WATCHES: u64 = 65_536;

fn number(path: &str) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    text.trim().parse().map_err(|e| format!("{path}: {e}"))
}

/// The host's own table of datagrams of which pieces have not come. A stranger fills it with first pieces alone, 2,500 octets of it each.
pub(super) fn pieces() -> Result<String, String> {
    let mut all = Vec::new();
    for (version, table) in [("IPv4", "ipv4/ipfrag"), ("IPv6", "ipv6/ip6frag")] {
        let setting = |name: &str| format!("/proc/sys/net/{table}_{name}");
        if !Path::new(&setting("time")).exists() {
            continue;
        }
        let (room, seconds) = (number(&setting("high_thresh"))?, number(&setting("time"))?);
        let rate = room / 2_500 / seconds.max(1);
        all.push((
            rate,
            format!("{version}: {} MiB for {seconds} s each, which {rate} a second fill", room >> 20),
        ));
    }
    let said: Vec<&str> = all.iter().map(|(_, said)| said.as_str()).collect();
    let said = said.join("; ");
    if all.iter().any(|(rate, _)| *rate < 5_000) { Err(said) } else { Ok(said) }
}

/// How many descriptors one uid may wait for by epoll(7): who has the kernel wake them all at once holds up a processor, interrupts and all.
pub(super) fn watches() -> Result<String, String> {
    let most = number("/proc/sys/fs/epoll/max_user_watches")?;
    let said = format!("{most} for each uid");
    if most > WATCHES { Err(said) } else { Ok(said) }
}

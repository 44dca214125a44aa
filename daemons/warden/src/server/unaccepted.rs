//! Connections that nobody has accepted. Linux counts what waits in them for a control group when they are accepted, and not before: no
//! limit of a label bounds it, but what the machine has for the TCP of all. Where that grows, what has most of them waiting is ended.

use super::Server;
use super::keeping::Kept;
use crate::compartment::Network;
use levee_policy::LabelName;
use levee_sys::sockdiag;
use std::time::{Duration, Instant};

/// The machine is looked at no more often; and every five seconds at least, since the warden turns then.
const EVERY: Duration = Duration::from_secs(1);
/// So long what has been ended has to give its memory back before somebody else is.
const GIVES_BACK: Duration = Duration::from_secs(5);
/// Who has fewer connections waiting is let be: by Linux' own bounds they hold less than half a GiB.
const MOST: u64 = 1_024;

/// When all that TCP holds is looked at again, and how much is much.
#[derive(Debug)]
pub(super) struct Unaccepted {
    much: u64,
    due: Instant,
}

impl Unaccepted {
    /// Three sixty-fourths of the memory: where Linux begins to be careful with it, unless the host says otherwise (`net.ipv4.tcp_mem`).
    pub(super) fn new() -> Self {
        let host = rustix::system::sysinfo();
        Self { much: host.totalram.saturating_mul(host.mem_unit.into()) / 64 * 3, due: Instant::now() }
    }

    /// Whether it is time to look, and TCP holds much.
    fn is_much(&mut self, now: Instant) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + EVERY;
        let sockets = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
        held(&sockets)
            .is_some_and(|pages| pages.saturating_mul(rustix::param::page_size() as u64) > self.much)
    }
}

/// Pages that TCP holds, by `/proc/net/sockstat`.
fn held(sockets: &str) -> Option<u64> {
    let line = sockets.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    line.split_whitespace().skip_while(|word| *word != "mem").nth(1)?.parse().ok()
}

enum Whose {
    Label(LabelName),
    Partition(usize),
}

impl Server {
    /// Ends the label or the partition with the most connections that wait, where TCP holds much.
    pub(super) fn see_to_unaccepted(&mut self) {
        if !self.unaccepted.is_much(Instant::now()) {
            return;
        }
        let labels = self.labels.iter().map(|(name, label)| (label.network(), Whose::Label(name.clone())));
        let partitions = self.partitions.iter().enumerate();
        let partitions = partitions.filter_map(|(at, one)| Some((one.network()?, Whose::Partition(at))));
        // Who cannot be asked now is asked at the next turn; who listens at too many places to be counted hides nothing behind them.
        let waiting =
            |network: &Network| sockdiag::waiting(network.ns()).map_or(0, |all| all.unwrap_or(u64::MAX));
        let all = labels.chain(partitions).map(|(network, whose)| (waiting(network), whose));
        let most = all.max_by_key(|(waits, _)| *waits);
        let Some((waits, whose)) = most.filter(|(waits, _)| *waits >= MOST) else { return };
        self.unaccepted.due = Instant::now() + GIVES_BACK;
        let waits = if waits == u64::MAX { "uncounted".to_owned() } else { waits.to_string() };
        let how =
            format!("{waits} connections waited there that nobody accepted, in memory that no limit counts");
        match whose {
            Whose::Label(name) => {
                self.note_kept(&Kept::Compartment(name.clone()), false, &how);
                self.compartment_again(&name, &how);
            }
            Whose::Partition(at) => self.partition_over(at, &how),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_tcp_holds_is_read() {
        assert_eq!(
            held("sockets: used 9\nTCP: inuse 7 orphan 0 tw 1 alloc 9 mem 512\nUDP: inuse 1 mem 3\n"),
            Some(512)
        );
        assert!(held(&std::fs::read_to_string("/proc/net/sockstat").unwrap()).is_some());
        assert_eq!(held("UDP: inuse 1 mem 3\n"), None);
    }

    #[test]
    fn the_machine_is_looked_at_now_and_then_and_three_sixty_fourths_of_it_are_much() {
        let mut seen = Unaccepted::new();
        let now = Instant::now();
        assert!(seen.much > 1 << 20);
        assert!(!seen.is_much(now), "nothing here holds so much");
        assert_eq!(seen.due, now + EVERY);
        seen.much = 0;
        assert!(!seen.is_much(now), "not again so soon");
        // Linux counts by the MiB for each processor.
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut waiting = Vec::new();
        let seen = (1..100).any(|n| {
            let mut one = TcpStream::connect(held.local_addr().unwrap()).unwrap();
            std::io::Write::write_all(&mut one, &[0; 60_000]).unwrap();
            waiting.push(one);
            seen.is_much(now + EVERY * n)
        });
        assert!(seen);
    }
}

//! Counters of the kernel that say whether a trial measured what it meant to.
//!
//! All from `/proc/<pid>/net`, which shows the network namespace of that process: the runner reads a
//! service's counters from outside, and needs no part of the service to do so.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::{fs, io, path::Path};

/// Every counter of one network namespace, by `Protocol.Name`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Net {
    /// `/proc/net/snmp` and `/proc/net/netstat`.
    pub values: BTreeMap<String, i64>,
    /// TCP sockets in `TIME_WAIT` (`/proc/net/sockstat`).
    pub time_wait: u64,
    /// Packets that any interface of the namespace dropped on receive or transmit.
    pub device_drops: u64,
}

/// Two-line tables: a line of names, a line of numbers, each behind `Protocol:`.
fn pairs(text: &str, out: &mut BTreeMap<String, i64>) {
    let mut lines = text.lines();
    while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
        let (Some((proto, names)), Some((proto2, numbers))) =
            (names.split_once(':'), numbers.split_once(':'))
        else {
            continue;
        };
        if proto != proto2 {
            continue;
        }
        for (name, number) in names.split_whitespace().zip(numbers.split_whitespace()) {
            if let Ok(v) = number.parse() {
                out.insert(format!("{proto}.{name}"), v);
            }
        }
    }
}

fn time_wait(sockstat: &str) -> u64 {
    sockstat
        .lines()
        .find(|l| l.starts_with("TCP:"))
        .and_then(|l| {
            let mut words = l.split_whitespace();
            words.find(|w| *w == "tw")?;
            words.next()?.parse().ok()
        })
        .unwrap_or(0)
}

fn device_drops(dev: &str) -> u64 {
    dev.lines()
        .filter_map(|l| l.split_once(':'))
        .map(|(_, numbers)| {
            let n: Vec<u64> = numbers.split_whitespace().filter_map(|w| w.parse().ok()).collect();
            n.get(3).copied().unwrap_or(0) + n.get(11).copied().unwrap_or(0)
        })
        .sum()
}

impl Net {
    /// Reads the namespace of a process: `self` or its id.
    ///
    /// # Errors
    /// When the files cannot be read, as in a compartment whose `/proc` shows processes only.
    pub fn read(pid: &str) -> io::Result<Net> {
        let dir = Path::new("/proc").join(pid).join("net");
        let mut values = BTreeMap::new();
        pairs(&fs::read_to_string(dir.join("snmp"))?, &mut values);
        pairs(&fs::read_to_string(dir.join("netstat"))?, &mut values);
        Ok(Net {
            values,
            time_wait: time_wait(&fs::read_to_string(dir.join("sockstat"))?),
            device_drops: device_drops(&fs::read_to_string(dir.join("dev"))?),
        })
    }

    /// Reads the namespace that a file stands for, as under `/run/netns`: a thread of its own enters it, and ends there.
    ///
    /// # Errors
    /// When it cannot be entered, or its files cannot be read.
    pub fn within(namespace: &Path) -> io::Result<Net> {
        let file = fs::File::open(namespace)?;
        std::thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Net::read("thread-self")
        })
        .join()
        .map_err(|_| io::Error::other("reading the counters of a namespace failed"))?
    }

    /// What moved since `earlier`.
    pub fn since(&self, earlier: &Net) -> NetDelta {
        let d =
            |k: &str| self.values.get(k).copied().unwrap_or(0) - earlier.values.get(k).copied().unwrap_or(0);
        NetDelta {
            udp_out: d("Udp.OutDatagrams"),
            udp_in: d("Udp.InDatagrams"),
            udp_buffer_errors: d("Udp.RcvbufErrors"),
            udp_other_errors: d("Udp.InErrors") - d("Udp.RcvbufErrors") + d("Udp.NoPorts"),
            udp_send_errors: d("Udp.SndbufErrors"),
            reassembled: d("Ip.ReasmOKs"),
            reassembly_failed: d("Ip.ReasmFails"),
            fragments_made: d("Ip.FragCreates"),
            tcp_retransmitted: d("Tcp.RetransSegs"),
            tcp_accepted: d("Tcp.PassiveOpens"),
            tcp_attempts_failed: d("Tcp.AttemptFails"),
            tw_reused: d("TcpExt.TWRecycled"),
            tw_overflow: d("TcpExt.TCPTimeWaitOverflow"),
            tw_entered: d("TcpExt.TW") + d("TcpExt.TWKilled"),
            listen_overflows: d("TcpExt.ListenOverflows"),
            tw_change: self.time_wait as i64 - earlier.time_wait as i64,
            device_drops: self.device_drops.saturating_sub(earlier.device_drops) as i64,
        }
    }
}

/// What moved in one network namespace during one trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetDelta {
    /// Datagrams sent.
    pub udp_out: i64,
    /// Datagrams read by programs.
    pub udp_in: i64,
    /// Datagrams dropped at a full socket.
    pub udp_buffer_errors: i64,
    /// Datagrams lost to a bad checksum, or to a port nobody listens on.
    pub udp_other_errors: i64,
    /// Datagrams refused on sending for want of buffer.
    pub udp_send_errors: i64,
    /// Datagrams put together from fragments.
    pub reassembled: i64,
    /// Fragments thrown away.
    pub reassembly_failed: i64,
    /// Fragments made.
    pub fragments_made: i64,
    /// TCP segments sent again.
    pub tcp_retransmitted: i64,
    /// Connections accepted.
    #[serde(default)]
    pub tcp_accepted: i64,
    /// Connections that failed.
    pub tcp_attempts_failed: i64,
    /// Outgoing connections that took over a socket in `TIME_WAIT`.
    pub tw_reused: i64,
    /// Sockets that could not enter `TIME_WAIT` for want of room.
    pub tw_overflow: i64,
    /// Sockets that went into `TIME_WAIT`.
    #[serde(alias = "tw_ended")]
    pub tw_entered: i64,
    /// How many sockets more (or fewer) are in `TIME_WAIT`.
    #[serde(default)]
    pub tw_change: i64,
    /// Connections dropped at a full accept queue.
    pub listen_overflows: i64,
    /// Packets dropped at an interface.
    pub device_drops: i64,
}

impl NetDelta {
    /// Datagrams and packets that the namespace's sockets and interfaces dropped.
    pub fn dropped(&self) -> i64 {
        self.udp_buffer_errors + self.udp_other_errors + self.udp_send_errors + self.device_drops
    }
}

/// Processor time of the whole host from `/proc/stat`, seconds, all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// In programs and in the kernel for them, without interrupts.
    pub busy: f64,
    /// In hard and soft interrupts.
    pub interrupts: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

impl Cpu {
    /// Reads it.
    ///
    /// # Errors
    /// When `/proc/stat` cannot be read.
    pub fn read() -> io::Result<Cpu> {
        Ok(Cpu::parse(&fs::read_to_string("/proc/stat")?))
    }

    fn parse(text: &str) -> Cpu {
        // user nice system idle iowait irq softirq steal (proc_stat(5)), in ticks of 1/100 s.
        let n: Vec<f64> = text
            .lines()
            .next()
            .unwrap_or("")
            .split_whitespace()
            .skip(1)
            .filter_map(|w| w.parse().ok())
            .collect();
        let at = |i: usize| n.get(i).copied().unwrap_or(0.0) / 100.0;
        Cpu { busy: at(0) + at(1) + at(2), interrupts: at(5) + at(6), steal: at(7) }
    }

    /// What went by since `earlier`.
    pub fn since(&self, earlier: &Cpu) -> Cpu {
        Cpu {
            busy: self.busy - earlier.busy,
            interrupts: self.interrupts - earlier.interrupts,
            steal: self.steal - earlier.steal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_names_and_numbers_is_read_by_protocol() {
        let mut m = BTreeMap::new();
        pairs("Udp: InDatagrams NoPorts\nUdp: 7 2\nTcpExt: TW\nTcpExt: -1\n", &mut m);
        assert_eq!(m.get("Udp.NoPorts"), Some(&2));
        assert_eq!(m.get("TcpExt.TW"), Some(&-1));
    }

    #[test]
    fn time_wait_sockets_are_found_in_sockstat() {
        assert_eq!(time_wait("sockets: used 3\nTCP: inuse 1 orphan 0 tw 42 alloc 3 mem 0\n"), 42);
        assert_eq!(time_wait("UDP: inuse 1\n"), 0);
    }

    #[test]
    fn interface_drops_are_summed_over_both_directions() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets errs drop\n lo: 1 1 0 3 0 0 0 0 1 1 0 4 0 0 0 0\n";
        assert_eq!(device_drops(text), 7);
    }

    #[test]
    fn our_own_namespace_can_be_read() {
        let a = Net::read("self").expect("needs /proc/self/net");
        assert!(a.values.contains_key("Udp.OutDatagrams"));
        assert_eq!(Net::read("self").expect("twice").since(&a).reassembly_failed, 0);
    }

    #[test]
    fn steal_and_interrupts_are_apart_from_work() {
        let c = Cpu::parse("cpu  100 0 50 1000 5 10 15 50 0 0\n");
        assert_eq!(c, Cpu { busy: 1.5, interrupts: 0.25, steal: 0.5 });
    }
}

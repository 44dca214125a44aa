//! What the kernel has once for the whole machine, and what a site's labels could take of it together. Control groups bound each label; that the
//! sum fits is nobody's promise but the operator's.

use levee_policy::Site;
use levee_policy::site::Limits;
use std::collections::BTreeSet;
use std::fs;

/// A table of the kernel's, for all its namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// What is counted.
    pub what: &'static str,
    /// How many one label may take at most.
    pub one: u64,
    /// How many all labels that may run at once may take.
    pub all: u64,
    /// How many there are.
    pub host: u64,
    /// How there come to be more, in words.
    pub raise: &'static str,
}

impl Pool {
    /// Whether one label alone can take half of it or more: then two keep everybody else from it, and each notices the other.
    pub fn is_one_labels(&self) -> bool {
        self.one >= self.host / 2
    }

    /// Whether all labels together can take it whole.
    pub fn is_short(&self) -> bool {
        self.all >= self.host
    }
}

/// What bounds a label's processes.
#[derive(Clone, Copy, Debug)]
struct LabelBounds {
    memory: u64,
    processes: u64,
    /// Bytes of the memory that sockets may have, or have on top.
    sockets: u64,
}

/// How much the host has.
#[derive(Clone, Copy, Debug)]
struct Host {
    /// MiB.
    memory: u64,
    processes: u64,
    files: u64,
    /// Pages.
    tcp: u64,
    /// Pages.
    udp: u64,
    orphans: u64,
}

/// Bytes of a page: levee serves on x86-64 and on arm64, where no kernel that is shipped for servers has less.
const PAGE: u64 = 4_096;
/// The least that an open file costs its control group (`struct file`, Linux 6.1: 232 bytes).
const FILE: u64 = 232;
/// Processes of the host's own, and of levee's outside compartments.
const OTHERS: u64 = 1_024;

fn pools(label: LabelBounds, labels: u64, host: Host) -> [Pool; 6] {
    let pool = |what, one: u64, host, raise| Pool { what, one, all: one.saturating_mul(labels), host, raise };
    let pages = label.sockets / PAGE;
    [
        // Without any left the kernel ends labels' processes, and then others.
        pool("MiB of memory", label.memory >> 20, host.memory, "give the machine more"),
        pool(
            "processes and threads",
            label.processes,
            host.processes.saturating_sub(OTHERS),
            "raise kernel.pid_max, kernel.threads-max (sysctl)",
        ),
        pool(
            "open files",
            label.processes.saturating_mul(Limits::DESCRIPTORS).min(label.memory / FILE),
            host.files,
            "raise fs.file-max (sysctl)",
        ),
        pool("pages of TCP's buffers", pages, host.tcp, "raise net.ipv4.tcp_mem (sysctl)"),
        pool("pages of UDP's buffers", pages, host.udp, "raise net.ipv4.udp_mem (sysctl)"),
        // Each has something that is not sent yet, which is a page at least.
        pool(
            "TCP connections that nobody holds",
            pages,
            host.orphans,
            "raise net.ipv4.tcp_max_orphans (sysctl)",
        ),
    ]
}

fn numbers(path: &str) -> Option<Vec<u64>> {
    fs::read_to_string(path).ok()?.split_whitespace().map(|word| word.parse().ok()).collect()
}

fn host() -> Option<Host> {
    let last = |path: &str| numbers(path)?.last().copied();
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let memory: u64 = memory.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok()?;
    Some(Host {
        memory: memory >> 10,
        processes: last("/proc/sys/kernel/pid_max")?.min(last("/proc/sys/kernel/threads-max")?),
        files: last("/proc/sys/fs/file-max")?,
        tcp: last("/proc/sys/net/ipv4/tcp_mem")?,
        udp: last("/proc/sys/net/ipv4/udp_mem")?,
        orphans: last("/proc/sys/net/ipv4/tcp_max_orphans")?,
    })
}

/// How many labels may run at once: those at which anybody may have a session, and no more than there are slots.
fn running(site: &Site) -> u64 {
    let slots = u64::from(site.server().slots());
    let mut labels = BTreeSet::new();
    for user in site.users() {
        for host in site.hosts() {
            match site.session_labels(user.name(), host.name(), slots) {
                Some(of_one) => labels.extend(of_one),
                None => return slots,
            }
        }
    }
    slots.min(labels.len() as u64)
}

/// Each pool, for a site on this host, and how many of its labels may run at once; `None` if the host does not say how much it has.
pub fn of(site: &Site) -> Option<(u64, [Pool; 6])> {
    let limits = site.limits();
    let label = LabelBounds {
        memory: limits.memory,
        processes: limits.processes.into(),
        sockets: levee_sys::cgroup::sockets(limits.memory).ok()?,
    };
    let labels = running(site);
    Some((labels, pools(label, labels, host()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: LabelBounds = LabelBounds { memory: 512 << 20, processes: 256, sockets: 128 << 20 };
    const HOST: Host = Host {
        memory: 24_000,
        processes: 32_768,
        files: 4_000_000,
        tcp: 575_802,
        udp: 1_151_604,
        orphans: 131_072,
    };

    #[test]
    fn a_pool_is_short_when_all_labels_can_take_it_and_one_labels_when_one_can_take_half() {
        let short = |labels| pools(LABEL, labels, HOST).map(|pool| pool.is_short());
        assert_eq!(short(1), [false; 6]);
        assert_eq!(short(18), [false, false, true, true, false, true]);
        assert_eq!(short(36), [false, false, true, true, true, true]);
        assert_eq!(short(47), [true, false, true, true, true, true]);
        assert_eq!(short(124), [true; 6]);
        let ones = pools(LABEL, 1, HOST).map(|pool| pool.is_one_labels());
        assert_eq!(ones, [false, false, true, false, false, false]);
    }

    #[test]
    fn files_are_bounded_by_memory_where_descriptors_are_many() {
        let files = |label| pools(label, 1, HOST)[2].one;
        assert_eq!(files(LABEL), (512 << 20) / 232);
        assert_eq!(files(LabelBounds { processes: 10, ..LABEL }), 163_840);
    }
}

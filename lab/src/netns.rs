//! Network namespaces and control groups of one run: made by `ip` and `mkdir`, removed when dropped.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, process, thread};

/// What every namespace of the laboratory is called first, then the process id, then its part.
const PREFIX: &str = "levlab";

/// Runs a program to its end.
///
/// # Errors
/// With the whole command line and what it printed.
pub fn tool(program: &str, args: &[&str]) -> io::Result<String> {
    let out = Command::new(program)
        .args(args)
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("{program}: {e} (is it installed?)")))?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&out.stderr);
        Err(io::Error::other(format!("{program} {}: {}", args.join(" "), said.trim())))
    }
}

/// A network namespace, removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    /// As `ip netns` knows it.
    pub name: String,
}

impl Namespace {
    /// Makes one, loopback up, room for every socket in `TIME_WAIT`.
    ///
    /// # Errors
    /// Without privilege or `ip`.
    pub fn new(part: &str) -> io::Result<Namespace> {
        let ns = Namespace { name: format!("{PREFIX}{}{part}", process::id()) };
        tool("ip", &["netns", "add", &ns.name]).map_err(|e| {
            io::Error::new(e.kind(), format!("{e}; the laboratory needs root to make network namespaces"))
        })?;
        tool("ip", &["-n", &ns.name, "link", "set", "lo", "up"])?;
        ns.sysctl("net/ipv4/tcp_max_tw_buckets", "1000000")?;
        Ok(ns)
    }

    /// The file to enter it by.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Sets one of its own kernel settings.
    ///
    /// # Errors
    /// When the kernel has no such setting.
    pub fn sysctl(&self, key: &str, value: &str) -> io::Result<()> {
        let script = format!("echo {value} > /proc/sys/{key}");
        tool("ip", &["netns", "exec", &self.name, "sh", "-c", &script]).map(drop)
    }

    /// A link to `other`: one address at each end, no address of the host in between.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn link(&self, other: &Namespace, here: Ipv4Addr, there: Ipv4Addr, dev: &str) -> io::Result<()> {
        let ip = |ns: &str, args: &[&str]| tool("ip", &[&["-n", ns], args].concat()).map(drop);
        ip(&self.name, &["link", "add", dev, "type", "veth", "peer", "name", dev, "netns", &other.name])?;
        for (ns, addr) in [(&self.name, here), (&other.name, there)] {
            ip(ns, &["addr", "add", &format!("{addr}/24"), "dev", dev])?;
            ip(ns, &["link", "set", dev, "up"])?;
        }
        Ok(())
    }

    /// Makes a block of addresses (`first`, `bits` of prefix) this side's own, known to `other` by way of `here`: one
    /// entry in its table of neighbours, and no question asked when one of them is used for the first time.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn addresses(
        &self,
        other: &Namespace,
        first: Ipv4Addr,
        bits: u8,
        here: Ipv4Addr,
        dev: &str,
    ) -> io::Result<()> {
        let net = format!("{first}/{bits}");
        tool("ip", &["-n", &self.name, "route", "add", "local", &net, "dev", dev])?;
        tool("ip", &["-n", &other.name, "route", "add", &net, "via", &here.to_string()]).map(drop)
    }
}

/// In a network namespace (its file), gives every route the congestion control, those to addresses of its own too, as far as the
/// kernel has not made them itself; a namespace that has no address yet has none. It holds for what connects and for what accepts, so that an unmodified program
/// needs no privilege to use it, and no say in it.
///
/// # Errors
/// When `ip` refuses.
pub fn pin_congestion(namespace: &Path, congestion: &str) -> io::Result<()> {
    let net = format!("--net={}", namespace.display());
    for table in [&["table", "main"][..], &["table", "local", "proto", "static"]] {
        let mut show = vec![net.as_str(), "ip", "-4", "route", "show"];
        show.extend(table);
        let routes = match tool("nsenter", &show) {
            Err(e) if e.to_string().contains("FIB table does not exist") => continue,
            routes => routes?,
        };
        for line in routes.lines() {
            let mut args = vec![net.as_str(), "ip", "route", "change"];
            args.extend(table);
            // what the kernel says of a route, and does not take back
            args.extend(line.split_whitespace().filter(|w| !matches!(*w, "linkdown" | "dead")));
            args.extend(["congctl", congestion]);
            tool("nsenter", &args)?;
        }
    }
    Ok(())
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(e) = tool("ip", &["netns", "del", &self.name]) {
            crate::said::warning(&e);
        }
    }
}

/// Removes namespaces that a killed run left: those whose process is no more.
///
/// # Errors
/// When `ip` cannot be run.
pub fn sweep() -> io::Result<()> {
    for line in tool("ip", &["netns", "list"])?.lines() {
        let Some(name) = line.split_whitespace().next() else { continue };
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let pid: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if !pid.is_empty() && !PathBuf::from("/proc").join(&pid).exists() {
            tool("ip", &["netns", "del", name])?;
        }
    }
    Ok(())
}

/// A control group of cgroup v2, for the processor time of one role. `cpu.stat` needs no controller.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
}

impl Group {
    /// Where cgroup v2 is mounted.
    pub fn root() -> Option<PathBuf> {
        fs::read_to_string("/proc/self/mounts").ok()?.lines().find_map(|l| {
            let mut w = l.split_whitespace();
            let (_, dir, kind) = (w.next()?, w.next()?, w.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(dir))
        })
    }

    /// Makes one; `None` on a host without cgroup v2, where processor time comes from getrusage alone.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(part: &str) -> io::Result<Option<Group>> {
        let Some(root) = Group::root() else { return Ok(None) };
        let dir = root.join(format!("{PREFIX}{}{part}", process::id()));
        fs::create_dir_all(&dir)
            .map_err(|e| io::Error::new(e.kind(), format!("control group {}: {e}", dir.display())))?;
        Ok(Some(Group { dir }))
    }

    /// The directory to enter.
    pub fn path(&self) -> PathBuf {
        self.dir.clone()
    }

    /// Processor seconds of all that ever ran in it.
    pub fn seconds(&self) -> Option<f64> {
        usage(&fs::read_to_string(self.dir.join("cpu.stat")).ok()?)
    }
}

/// Processor seconds in the text of a `cpu.stat`.
pub(crate) fn usage(stat: &str) -> Option<f64> {
    let micros = stat.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
    micros.trim().parse::<f64>().ok().map(|u| u / 1e6)
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last member may take a moment to be gone.
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        crate::said::warning(&format!("control group {} could not be removed", self.dir.display()));
    }
}

/// Does something within a network namespace: in a thread of its own, which enters it and ends there.
///
/// # Errors
/// When the namespace cannot be entered, and what `work` says.
pub(crate) fn inside<T: Send + 'static>(
    namespace: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = fs::File::open(namespace)?;
    let done = thread::spawn(move || {
        let network = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(network))?;
        work()
    });
    done.join().map_err(|_| io::Error::other("a thread in a namespace failed"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_in_seconds() {
        assert_eq!(usage("usage_usec 2500000\nuser_usec 1\n"), Some(2.5));
        assert_eq!(usage("nothing"), None);
    }

    #[test]
    fn a_namespace_is_gone_when_dropped_and_its_link_with_it() {
        let (a, b) = (Namespace::new("ta").expect("root and iproute2"), Namespace::new("tb").expect("root"));
        a.link(&b, Ipv4Addr::new(10, 250, 0, 1), Ipv4Addr::new(10, 250, 0, 2), "eth0").expect("veth");
        let name = a.name.clone();
        tool("ip", &["netns", "exec", &b.name, "true"]).expect("enter");
        drop((a, b));
        assert!(!tool("ip", &["netns", "list"]).expect("list").contains(&name));
    }
}

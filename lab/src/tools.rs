//! Second opinions: other people's tools, driven on the same link and the same processors.
//!
//! iperf3 for streams (against ours that wait as it does), qperf for requests, wrk for connections (against our server, which speaks as much HTTP
//! as that takes), and a netperf that the operator supplies. Each is asked for one figure in our unit.

use crate::client::processor_time;
use crate::counters::Net;
use crate::place::Place;
use crate::role::Role;
use crate::workload::{Kind, Outcome, Task};
use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Port of iperf3's server.
const IPERF3: u16 = 15_201;
/// Port of qperf's server.
const QPERF: u16 = 15_301;
/// Port of netperf's server.
const NETPERF: u16 = 15_401;

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// iperf3 (BSD).
    Iperf3,
    /// qperf (BSD or GPL).
    Qperf,
    /// wrk (Apache-2.0).
    Wrk,
    /// netperf, where the operator supplies it.
    Netperf,
}

impl Tool {
    /// Which workloads it can do.
    pub fn can(self, kind: Kind) -> bool {
        match self {
            Tool::Iperf3 => kind == Kind::TcpStreamSelect,
            Tool::Qperf => kind == Kind::TcpRr,
            Tool::Wrk => kind == Kind::TcpHttp,
            Tool::Netperf => matches!(kind, Kind::TcpStream | Kind::TcpRr | Kind::TcpCrr),
        }
    }

    /// Every tool.
    pub const ALL: [Tool; 4] = [Tool::Iperf3, Tool::Qperf, Tool::Wrk, Tool::Netperf];

    /// The program, and what it says its version to.
    pub fn version(self) -> (&'static str, &'static str) {
        let argument = match self {
            Tool::Iperf3 | Tool::Qperf => "--version",
            Tool::Wrk => "-v",
            Tool::Netperf => "-V",
        };
        (self.client(), argument)
    }

    /// How many connections it may be the first to close: iperf3's and netperf's one to agree on what to do; any of wrk's,
    /// which closes as soon as it has an answer, now and then before the server does. (What is wrong with that, a port that
    /// is taken over or refused, is looked for in any case.)
    pub fn own_connections(self) -> u64 {
        match self {
            Tool::Qperf => 0,
            Tool::Iperf3 | Tool::Netperf => 1,
            Tool::Wrk => u64::MAX,
        }
    }

    fn client(self) -> &'static str {
        match self {
            Tool::Iperf3 => "iperf3",
            Tool::Qperf => "qperf",
            Tool::Wrk => "wrk",
            Tool::Netperf => "netperf",
        }
    }

    /// Why it cannot be used here.
    pub fn absent(self) -> Option<String> {
        let missing = |p: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            !std::env::split_paths(&path).any(|d| d.join(p).exists())
        };
        let need: &[&str] = match self {
            Tool::Netperf => &["netperf", "netserver"],
            _ => &[self.client()],
        };
        need.iter().find(|p| missing(p)).map(|p| match self {
            Tool::Netperf => {
                format!("{p} is not in PATH: it is not free in the distributions, supply it yourself")
            }
            _ => format!("{p} is not in PATH: apt-get install {p}"),
        })
    }

    /// Starts its server, if it has one of its own, in a role; killed by the caller.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn serve(self, role: &Role) -> io::Result<Option<Child>> {
        let (program, args): (&str, Vec<String>) = match self {
            Tool::Iperf3 => ("iperf3", vec!["-s".into(), "-p".into(), IPERF3.to_string()]),
            Tool::Qperf => ("qperf", vec!["--listen_port".into(), QPERF.to_string()]),
            Tool::Netperf => ("netserver", vec!["-D".into(), "-p".into(), NETPERF.to_string()]),
            Tool::Wrk => return Ok(None),
        };
        let child = within(role, program, &args)?.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(Some(child))
    }

    /// The seconds that a trial of it takes where `seconds` were asked for: tools count whole ones.
    pub fn whole(seconds: f64) -> f64 {
        seconds.round().max(1.0)
    }

    /// One trial, with what the client's namespace counted meanwhile.
    ///
    /// # Errors
    /// When the tool fails, or says nothing that can be read.
    pub fn measure(self, place: &Place, task: &Task) -> io::Result<Outcome> {
        let whole = Tool::whole(task.seconds);
        let seconds = whole.to_string();
        let host = host(place.target.all.ip());
        let s = |v: &str| v.to_owned();
        let args: Vec<String> = match self {
            Tool::Iperf3 => {
                // its size is also what its server reads at once, after a select before each read
                let (port, size) = (IPERF3.to_string(), task.write_size.to_string());
                ["-c", &host, "-p", &port, "-t", &seconds, "-l", &size, "-C", &task.congestion, "-J"]
                    .map(s)
                    .to_vec()
            }
            Tool::Qperf => {
                let port = QPERF.to_string();
                ["--listen_port", &port, "-t", &seconds, "-m", "1", "-e", "6", "-uu", &host, "tcp_lat"]
                    .map(s)
                    .to_vec()
            }
            Tool::Wrk => {
                let url = format!("http://{}/", place.target.all);
                let time = format!("{seconds}s");
                ["-t", "1", "-c", "1", "-d", &time, "-H", "Connection: close", &url].map(s).to_vec()
            }
            Tool::Netperf => {
                let (port, test, size) = (NETPERF.to_string(), task.kind.name(), task.write_size.to_string());
                let mut args = ["-H", &host, "-p", &port, "-t", test, "-l", &seconds, "-P", "0", "-v", "0"]
                    .map(s)
                    .to_vec();
                if task.kind == Kind::TcpStream {
                    // by itself it writes as much as a socket's first send buffer holds, from a ring of buffers
                    args.extend(["-W", "1,1", "--", "-m", &size, "-M", &size].map(s));
                }
                args
            }
        };
        let children = || processor_time(UsageWho::RUSAGE_CHILDREN);
        let net = || place.role.netns.as_deref().and_then(|n| Net::within(n).ok());
        let (cpu0, net0) = (children(), net());
        let out = within(&place.role, self.client(), &args)?.output()?;
        let (cpu_seconds, net1) = (children() - cpu0, net());
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            let wrong = String::from_utf8_lossy(&out.stderr).into_owned();
            return Err(io::Error::other(format!("{}: {}{}", self.client(), wrong.trim(), said.trim())));
        }
        let value = self.read(&said).filter(|v| v.is_finite() && *v > 0.0).ok_or_else(|| {
            io::Error::other(format!("{} said nothing that can be read: {said}", self.client()))
        })?;
        Ok(Outcome {
            kind: task.kind,
            seconds: whole,
            bytes: 0,
            transactions: 0,
            value,
            latency: None,
            udp: None,
            congestion: None,
            server_congestion: None,
            cpu_seconds,
            waited: None,
            time_wait: net0.as_ref().zip(net1.as_ref()).map(|(a, b)| (a.time_wait, b.time_wait)),
            net: net0.zip(net1).map(|(a, b)| b.since(&a)),
        })
    }

    /// Its figure in our unit.
    fn read(self, said: &str) -> Option<f64> {
        match self {
            Tool::Iperf3 => {
                let v: serde_json::Value = serde_json::from_str(said).ok()?;
                Some(v.pointer("/end/sum_received/bits_per_second")?.as_f64()? / 1e6)
            }
            Tool::Qperf => {
                // `latency  =  12.3 us`, one way: a transaction is there and back
                let line = said.lines().find(|l| l.trim_start().starts_with("latency"))?;
                let mut words = line.split_once('=')?.1.split_whitespace();
                let n: f64 = words.next()?.replace(',', "").parse().ok()?;
                let unit = match words.next()? {
                    "ns" => 1e-9,
                    "us" => 1e-6,
                    "ms" => 1e-3,
                    "sec" => 1.0,
                    _ => return None,
                };
                Some(1.0 / (2.0 * n * unit))
            }
            Tool::Wrk => {
                if said.contains("Socket errors") {
                    return None;
                }
                said.lines().find_map(|l| l.trim().strip_prefix("Requests/sec:"))?.trim().parse().ok()
            }
            Tool::Netperf => said.split_whitespace().next()?.parse().ok(),
        }
    }
}

fn host(ip: IpAddr) -> String {
    ip.to_string()
}

/// A program in a role: in its namespace, on its processor, its time counted with that of our own programs.
pub(crate) fn within(role: &Role, program: &str, args: &[String]) -> io::Result<Command> {
    let mut c = Command::new(std::env::current_exe()?);
    c.arg("become").args(role.args()).arg("--").arg(program).args(args).stdin(Stdio::null());
    Ok(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tools_words_become_our_unit() {
        let iperf3 = r#"{"end":{"sum_received":{"bits_per_second":12300000000.0}}}"#;
        assert_eq!(Tool::Iperf3.read(iperf3), Some(12_300.0));
        let qperf = "tcp_lat:\n    latency  =  12.5 us\n";
        assert!((Tool::Qperf.read(qperf).expect("read") - 40_000.0).abs() < 1e-6);
        let wrk = "  2 requests in 1.00s\nRequests/sec:  12345.67\nTransfer/sec: 1MB\n";
        assert_eq!(Tool::Wrk.read(wrk), Some(12_345.67));
        assert_eq!(Tool::Wrk.read("  Socket errors: connect 0, read 3\nRequests/sec: 1.0\n"), None);
        assert_eq!(Tool::Netperf.read("27923.70 \n"), Some(27_923.7));
        assert_eq!(Tool::Netperf.read("error"), None);
    }
}

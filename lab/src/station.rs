//! What runs in a partition when throughput is measured in all directions: it serves the workloads, by our own server and by iperf3's, and does the
//! jobs that the laboratory gives it over the loopback of the partition's network. So the partition's own programs open its connections, under
//! its filter and in its control group.

use crate::client::Target;
use crate::netns::inside;
use crate::role::Role;
use crate::run::client_words;
use crate::workload::Task;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Where it takes jobs, at the loopback.
const JOBS: u16 = 12_999;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long something is tried that is to be refused: what is dropped is answered by nobody.
const TRIED: Duration = Duration::from_millis(200);

/// What is said of a try that somebody answered.
pub(crate) const ANSWERED: &str = "answered";

/// A job, one a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Job {
    /// A trial of our own client's, on a processor.
    Client { task: Task, all: SocketAddr, close: SocketAddr, cpu: usize },
    /// A trial of iperf3's, with these arguments.
    Iperf3(Vec<String>),
    /// Whether anybody answers there.
    Try(SocketAddr),
}

/// What a station is told when it begins.
#[derive(Clone, Debug, clap::Args)]
pub struct Station {
    /// The port of the workloads; the next one closes at once what connects
    #[arg(long)]
    port: u16,
    /// The port of iperf3's server
    #[arg(long)]
    iperf3: u16,
    /// The processor of both
    #[arg(long)]
    cpu: usize,
}

impl Station {
    /// Its arguments, behind the program's path.
    pub(crate) fn words(port: u16, iperf3: u16, cpu: usize) -> Vec<String> {
        let numbers = [port.to_string(), iperf3.to_string(), cpu.to_string()];
        let names = ["--port", "--iperf3", "--cpu"].map(str::to_owned);
        let pairs = names.into_iter().zip(numbers).flat_map(|(name, number)| [name, number]);
        [String::from("station")].into_iter().chain(pairs).collect()
    }
}

/// Whether anybody answers at an address.
pub(crate) fn answers(to: SocketAddr) -> bool {
    TcpStream::connect_timeout(&to, TRIED).is_ok()
}

/// Has the station in this network do a job: what it says.
///
/// # Errors
/// When nobody is there, or the job failed: why.
pub(crate) fn ask(network: &Path, job: &Job) -> io::Result<String> {
    let mut stream = inside(network, || TcpStream::connect((Ipv4Addr::LOCALHOST, JOBS)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(job)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut said = String::new();
    BufReader::new(stream).read_line(&mut said)?;
    let said: Result<String, String> = serde_json::from_str(&said)?;
    said.map_err(io::Error::other)
}

/// Serves and takes jobs, until it is killed.
///
/// # Errors
/// When it cannot listen, or a server cannot be started.
pub fn serve(station: &Station) -> io::Result<()> {
    // A partition sees no /proc: its own path is what it was called by.
    let own = std::env::args_os().next().map(PathBuf::from);
    let own = own.ok_or_else(|| io::Error::other("a program without a name"))?;
    let role = Role { cpu: Some(station.cpu), with_parent: true, ..Role::default() };
    let at = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).to_string();
    let mut server = Command::new(&own);
    server
        .args(["serve", "--listen", &at(station.port), "--close", &at(station.port.saturating_add(1))])
        .args(role.args());
    let mut iperf3 = Command::new(&own);
    iperf3.arg("become").args(role.args()).args(["--", "iperf3", "-s", "-p", &station.iperf3.to_string()]);
    let start = |command: &mut Command| -> io::Result<Child> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
    };
    let _servers = [start(&mut server)?, start(&mut iperf3)?];
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, JOBS))?;
    loop {
        let (stream, _) = listener.accept()?;
        let own = own.clone();
        thread::spawn(move || {
            if let Err(e) = answer(stream, &own) {
                eprintln!("a job: {e}");
            }
        });
    }
}

/// Does the one job of a connection.
fn answer(mut stream: TcpStream, own: &Path) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let mut said = serde_json::to_string(&done(serde_json::from_str(&line)?, own))?;
    said.push('\n');
    stream.write_all(said.as_bytes())
}

fn done(job: Job, own: &Path) -> Result<String, String> {
    let mut command = match job {
        Job::Try(to) => return Ok(if answers(to) { ANSWERED } else { "refused" }.to_owned()),
        Job::Client { task, all, close, cpu } => {
            let role = Role { cpu: Some(cpu), with_parent: true, ..Role::default() };
            let words = client_words(Target { all, close }, &task, &role).map_err(|e| e.to_string())?;
            let mut command = Command::new(own);
            command.args(words);
            command
        }
        Job::Iperf3(args) => {
            let mut command = Command::new("iperf3");
            command.args(args);
            command
        }
    };
    let out = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        return Ok(said);
    }
    Err(format!("{} {}", String::from_utf8_lossy(&out.stderr).trim(), said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_says_is_told_from_why_it_failed() {
        let own = Path::new("/bin/false");
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        assert_eq!(done(Job::Try(nobody), own).as_deref(), Ok("refused"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let somebody = listener.local_addr().expect("its address");
        assert_eq!(done(Job::Try(somebody), own).as_deref(), Ok(ANSWERED));
        let said = done(Job::Iperf3(vec!["--version".into()]), own).expect("iperf3");
        assert!(said.contains("iperf 3"), "{said}");
        assert!(done(Job::Iperf3(vec!["--no-such".into()]), own).is_err());
    }
}

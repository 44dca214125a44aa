//! Two compartments of a running server, a service in each that was taken over: it does what the meter tells it, under the services'
//! own uid and filter. Each label has a single-level network, which keeps its compartment running and by which jobs reach it.

use std::io::{self, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use super::attacker::{self, End};
use crate::compartment::{Compartments, Service};
use crate::levee::{Removed, wait_for};

/// Lowest first.
const LABELS: [&str; 2] = ["LOW", "HIGH"];
const PORT: u16 = 7000;
/// The first of the services that end after each connection.
const ONCE: u16 = 7100;
const ONCES: u16 = 8;

/// The running server. Fields drop in order.
#[derive(Debug)]
pub struct Stand {
    compartments: Compartments,
    _program: Removed,
}

impl Stand {
    /// Brings the server up in namespaces of its own, and both services in it, which ask for these groups of system calls.
    ///
    /// # Errors
    /// The step that failed; what was made until then is removed.
    pub fn start(grant: &[String]) -> io::Result<Stand> {
        let program = Removed(attacker::visible());
        attacker::place(&program.0)?;
        let service = |name: String, port: u16, word: &str| Service {
            name,
            port,
            word: word.into(),
            software: Vec::new(),
        };
        let mut services = vec![service("attacker".into(), PORT, "serve")];
        services.extend((0..ONCES).map(|i| service(format!("once-{i}"), ONCE + i, "once")));
        let compartments = Compartments::start(&LABELS, &program.0, &services, grant)?;
        let stand = Stand { compartments, _program: program };
        for side in 0..2 {
            wait_for("a label's services", || stand.end(side).ok())?;
        }
        Ok(stand)
    }

    /// A connection to the service above (0) or below (1).
    ///
    /// # Errors
    /// When nobody answers.
    pub fn end(&self, side: usize) -> io::Result<End> {
        let index = 1_usize.checked_sub(side).ok_or_else(|| io::Error::other("no such side"))?;
        let stream = self.compartments.connect(index, PORT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(600)))?;
        Ok(End { to: Box::new(stream.try_clone()?), from: BufReader::new(Box::new(stream)) })
    }
}

/// Keeps every processor busy until dropped, as other people's work would.
#[derive(Debug)]
pub struct Load {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<thread::JoinHandle<u64>>,
}

impl Load {
    /// One thread a processor, which works and rests by turns of about ten milliseconds.
    pub fn start() -> Load {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let work = |i: usize| {
            let stop = stop.clone();
            move || {
                let (mut sum, mut turn) = (0_u64, 0_u64);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let until = Instant::now() + Duration::from_millis(3 + (turn * 7 + i as u64) % 13);
                    while Instant::now() < until {
                        sum = sum.wrapping_mul(31).wrapping_add(turn);
                    }
                    thread::sleep(Duration::from_millis((turn * 5) % 11));
                    turn += 1;
                }
                sum
            }
        };
        let threads = (0..crate::host::processors()).map(|i| thread::spawn(work(i))).collect();
        Load { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for t in self.threads.drain(..) {
            if t.join().is_err() {
                eprintln!("levee-lab: a thread of the load failed");
            }
        }
    }
}

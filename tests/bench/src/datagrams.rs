//! The highest rate of datagrams without loss.
//!
//! An unpaced flood says what is delivered at most; from there the rate is raised or lowered by half its size until it
//! lies between one with and one without loss, and that interval is halved. Datagrams leave one by one, as programs
//! send them, and each is counted by the program that receives it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const FLOOD: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_millis(250);
const STEPS: usize = 8;

struct Search {
    socket: UdpSocket,
    asking: UdpSocket,
    payload: Vec<u8>,
    trial: u64,
}

/// What one step did.
struct Step {
    sent: u64,
    delivered: u64,
    seconds: f64,
}

/// Measures with datagrams of `bytes` bytes (at least 17) to the workloads' server.
///
/// # Errors
/// When the server does not answer.
pub fn measure(to: SocketAddr, bytes: usize) -> io::Result<BTreeMap<String, f64>> {
    let bound = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(socket)
    };
    let mut payload = vec![0; bytes.max(17)];
    if let Some(first) = payload.first_mut() {
        *first = b'd';
    }
    let trial = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let mut search = Search { socket: bound()?, asking: bound()?, payload, trial };
    search.step(0.0, Duration::from_millis(50))?;
    let flood = search.step(0.0, FLOOD)?;
    let flooded = flood.delivered as f64 / flood.seconds;
    let (mut low, mut high) = (0.0_f64, None::<f64>);
    let mut rate = flooded;
    if flood.sent == flood.delivered {
        // Nothing can be faster than the sender.
        (low, high) = (flooded, Some(flooded));
    }
    for _ in 0..STEPS {
        if high.is_some_and(|high| high - low <= 0.02 * high) {
            break;
        }
        let step = search.step(rate, STEP)?;
        if step.delivered == step.sent && step.sent > 0 {
            low = low.max(step.sent as f64 / step.seconds);
            // The sender did not reach it.
            if low < rate * 0.95 {
                break;
            }
        } else {
            high = Some(rate);
        }
        rate = match high {
            None => rate * 1.5,
            Some(_) if low == 0.0 => rate / 1.5,
            Some(high) => f64::midpoint(low, high),
        };
    }
    Ok(BTreeMap::from([("kpps".into(), low / 1e3), ("flood_kpps".into(), flooded / 1e3)]))
}

impl Search {
    /// Sends at `rate` datagrams a second (unpaced at 0) for `time`, and asks what arrived.
    fn step(&mut self, rate: f64, time: Duration) -> io::Result<Step> {
        self.trial += 1;
        for (to, from) in self.payload.iter_mut().skip(1).zip(self.trial.to_be_bytes()) {
            *to = from;
        }
        let (start, mut sent) = (Instant::now(), 0_u64);
        loop {
            let now = start.elapsed();
            if now >= time {
                break;
            }
            let due = if rate > 0.0 { (now.as_secs_f64() * rate) as u64 } else { sent + 1 };
            if sent >= due {
                // With both ends on few processors a spinning sender starves what it measures: give way.
                std::thread::yield_now();
            }
            while sent < due {
                for (to, from) in self.payload.iter_mut().skip(9).zip(sent.to_be_bytes()) {
                    *to = from;
                }
                match self.socket.send(&self.payload) {
                    Ok(_) => sent += 1,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // A full queue loses datagrams as any other does.
                    Err(error) if error.raw_os_error() == Some(105) => sent += 1,
                    Err(error) => return Err(error),
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let mut last = None;
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(15));
            let delivered = self.delivered()?;
            if last == Some(delivered) {
                break;
            }
            last = Some(delivered);
        }
        Ok(Step { sent, delivered: last.unwrap_or(0), seconds })
    }

    fn delivered(&self) -> io::Result<u64> {
        let mut question = vec![b'q'];
        question.extend(self.trial.to_be_bytes());
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            self.asking.send(&question)?;
            let mut answer = [0; 32];
            match self.asking.recv(&mut answer) {
                Ok(32) => {
                    let mut words = answer
                        .chunks_exact(8)
                        .map(|word| word.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)));
                    if words.next() == Some(self.trial) {
                        return Ok(words.next().unwrap_or(0));
                    }
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not say what arrived"))
    }
}

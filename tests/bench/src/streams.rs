//! TCP streams that are counted in one common window.
//!
//! All connections run before the window opens and until after it has closed, so nothing of slow start, of a late
//! connection or of the tail of an early one is in it; bytes count where a program reads them. None is asked for bytes before
//! all are there, and the window waits until each has brought some.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::link::CONGESTION;

/// How long one connection may take to begin or to bring something.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to look whether all have begun.
const LOOK: Duration = Duration::from_millis(10);

/// What came in a window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Bytes of payload, of all connections together.
    pub bytes: u64,
    /// Its length in seconds.
    pub seconds: f64,
    /// The smallest share that one connection had, as a part of an equal one.
    pub least: f64,
    /// Connections that brought nothing in it.
    pub silent: usize,
}

/// Reads from `count` servers of streams for `warmup` and then for `window`; `around` is called when the window opens
/// and when it closes. To be called in the client's network namespace.
///
/// # Errors
/// When a connection fails.
pub fn read(
    servers: &[SocketAddr],
    warmup: Duration,
    window: Duration,
    mut around: impl FnMut(),
) -> io::Result<Window> {
    // Longer than anything here takes; each ends when it is closed.
    let milliseconds = (warmup + window + PATIENCE * 4).as_millis() as u32;
    let mut connections = Vec::new();
    for server in servers {
        let stream = TcpStream::connect_timeout(server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        sockopt::set_tcp_congestion(&stream, CONGESTION)?;
        connections.push(stream);
    }
    let mut ask = vec![b'm'];
    ask.extend(milliseconds.to_be_bytes());
    for stream in &mut connections {
        stream.write_all(&ask)?;
    }
    let counts: Vec<AtomicU64> = connections.iter().map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    let sum = || counts.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let readers: Vec<_> = connections
            .iter_mut()
            .zip(&counts)
            .map(|(stream, count)| {
                let over = &over;
                scope.spawn(move || -> io::Result<()> {
                    let mut buffer = vec![0; 1 << 17];
                    while !over.load(Ordering::Relaxed) {
                        match stream.read(&mut buffer)? {
                            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                            length => count.fetch_add(length as u64, Ordering::Relaxed),
                        };
                    }
                    // What is still under way is of no use to anyone. (In a compartment that cannot be said.)
                    let _ = sockopt::set_socket_linger(&*stream, Some(Duration::ZERO));
                    Ok(())
                })
            })
            .collect();
        let asked = Instant::now();
        while sum().contains(&0) && asked.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(warmup);
        around();
        let (before, start) = (sum(), Instant::now());
        std::thread::sleep(window);
        let (after, seconds) = (sum(), start.elapsed().as_secs_f64());
        around();
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| io::Error::other("a reader died"))??;
        }
        let each: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
        let bytes = each.iter().sum::<u64>();
        let equal = bytes as f64 / each.len().max(1) as f64;
        let least = each.iter().min().map_or(0.0, |least| *least as f64 / equal.max(1.0));
        let silent = each.iter().filter(|bytes| **bytes == 0).count();
        Ok(Window { bytes, seconds, least, silent })
    })
}

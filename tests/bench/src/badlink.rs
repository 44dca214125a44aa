//! A link that is slow to answer, and loses, repeats, reorders and corrupts packets: a TUN device in each namespace, and two
//! threads that carry what one sends to the other.
//!
//! With so long a way it is the losses that set the pace of a stream, and not the host's processors.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use levee_lab::netns::Namespace;
use levee_sys::net::Net;
use levee_sys::{ns, tun};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::link::{self, Link};

/// The link's addresses: the server's, the client's.
pub const ENDS: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2));
/// One way.
const DELAY: Duration = Duration::from_millis(5);
/// By so much later comes what is overtaken.
const LATE: Duration = Duration::from_millis(2);
/// What happens to packets, so many in 1,000: lost, repeated, overtaken, one bit changed.
const HARM: [u64; 4] = [10, 2, 5, 2];
/// Packets under way at most, one way; the rest is lost.
const QUEUE: usize = 4_000;
/// Its name in both namespaces.
const DEVICE: &str = "bad0";
/// How long a thread may take to see that it is over.
const LOOK: Duration = Duration::from_millis(50);

/// The link; gone when dropped.
#[derive(Debug)]
pub struct BadLink {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BadLink {
    /// Makes it, between the same namespaces as the good one.
    ///
    /// # Errors
    /// The step that failed.
    pub fn new(link: &Link) -> io::Result<Self> {
        let server = Arc::new(device(&link.server, ENDS.0)?);
        let client = Arc::new(device(&link.client, ENDS.1)?);
        let over = Arc::new(AtomicBool::new(false));
        let ways = [(&server, &client, 0x9e37_79b9_7f4a_7c15), (&client, &server, 0xd1b5_4a32_d192_ed03)];
        let threads = ways.map(|(from, to, seed)| {
            let (from, to, over) = (Arc::clone(from), Arc::clone(to), Arc::clone(&over));
            std::thread::spawn(move || carry(&from, &to, seed, &over))
        });
        Ok(Self { over, threads: threads.into() })
    }

    /// What it is like.
    pub fn describe() -> String {
        let [lost, repeated, late, changed] = HARM;
        format!(
            "{DELAY:?} each way; of 1,000 packets {lost} are lost, {repeated} repeated, {late} come {LATE:?} late and {changed} \
             with a bit changed"
        )
    }
}

impl Drop for BadLink {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn device(space: &Namespace, address: Ipv4Addr) -> io::Result<tun::Queue> {
    let space = link::open(space)?;
    let other = |error: levee_sys::Error| io::Error::other(error.to_string());
    let options = tun::Options { multi_queue: false, exclusive: true, vnet_header: false };
    let queue = ns::in_net(space.as_fd(), || tun::open(DEVICE, options)).map_err(other)??;
    rustix::fs::fcntl_setfl(&queue, rustix::fs::fcntl_getfl(&queue)? | OFlags::NONBLOCK)?;
    let set = || -> levee_sys::Result<()> {
        let mut net = Net::in_ns(space.as_fd())?;
        net.set_mtu(DEVICE, 1_500)?;
        net.add_address(DEVICE, IpNet::new_assert(IpAddr::V4(address), 24))?;
        net.set_up(DEVICE)
    };
    set().map_err(other)?;
    Ok(queue)
}

/// Carries packets one way until it is over.
fn carry(from: &tun::Queue, to: &tun::Queue, seed: u64, over: &AtomicBool) {
    let mut state = seed;
    // Xorshift: the same harm in the same order each time.
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut buffer = vec![0; 65_536];
    let mut under_way: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>> = BinaryHeap::new();
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        while let Some(Reverse((due, ..))) = under_way.peek()
            && *due <= now
        {
            if let Some(Reverse((_, _, packet))) = under_way.pop() {
                // What the device does not take is one more loss.
                let _ = rustix::io::write(to, &packet);
            }
        }
        while let Ok(length) = rustix::io::read(from, &mut buffer) {
            let Some(packet) = buffer.get(..length).filter(|_| under_way.len() < QUEUE) else { continue };
            let mut packet = packet.to_vec();
            let (mut due, mut copies) = (Instant::now() + DELAY, 1);
            let [lost, repeated, late, changed] = HARM;
            match random(1_000) {
                what if what < lost => continue,
                what if what < lost + repeated => copies = 2,
                what if what < lost + repeated + late => due += LATE,
                what if what < lost + repeated + late + changed => {
                    let at = random((length as u64).max(1)) as usize;
                    if let Some(octet) = packet.get_mut(at) {
                        *octet ^= 1 << random(8);
                    }
                }
                _ => {}
            }
            for _ in 0..copies {
                number += 1;
                under_way.push(Reverse((due, number, packet.clone())));
            }
        }
        let wait =
            under_way.peek().map_or(LOOK, |Reverse((due, ..))| due.saturating_duration_since(Instant::now()));
        let Ok(wait) = Timespec::try_from(wait.min(LOOK)) else { continue };
        // Whatever woke it, it looks.
        let _ = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&wait));
    }
}

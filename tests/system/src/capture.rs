//! What a workstation's link carries, by tcpdump(1).

use crate::World;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// ESP in UDP between a workstation and the server's vaults, a line for each packet, until it is dropped.
#[derive(Debug)]
pub struct Capture(Child);

impl Capture {
    /// Of a workstation's link, into a file.
    pub fn start(world: &World, workstation: &str, to: &Path) -> Self {
        let tcpdump = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", world.namespace(workstation)))
            .args(["tcpdump", "-i", "outer", "-n", "-l", "-Z", "root", "-e", "-tt", "--immediate-mode"])
            // ESP in UDP alone: the first word is no non-ESP marker.
            .args(["-s", "60", "udp and host 10.77.0.1 and port 4500 and udp[8:4] != 0"])
            .stdin(Stdio::null())
            .stdout(File::create(to).expect("a file for the capture"))
            .stderr(Stdio::null())
            .spawn();
        Self(tcpdump.expect("start tcpdump (scripts/need test installs it)"))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An ESP packet on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Seconds since 1970.
    pub at: f64,
    /// Towards the server.
    pub up: bool,
    /// Octets, from the SPI to the tag.
    pub length: u64,
    /// The keys that it is sealed by.
    pub spi: u32,
}

impl Seen {
    /// From "1700000000.000000 MAC > MAC, ethertype IPv4 (0x0800), length 1478: 10.77.0.11.… > 10.77.0.1.4500: UDP-encap:
    /// ESP(spi=0x00000000,seq=0x0), …".
    pub fn read(line: &str) -> Option<Self> {
        let at = line.split(' ').next()?.parse().ok()?;
        let (frame, ends) = line.split(", length ").nth(1)?.split_once(": ")?;
        let up = ends.split(" > ").nth(1)?.starts_with("10.77.0.1.");
        let spi = u32::from_str_radix(ends.split_once("spi=0x")?.1.split(',').next()?, 16).ok()?;
        // With Ethernet's header, IPv4's and UDP's.
        Some(Self { at, up, length: frame.parse::<u64>().ok()?.checked_sub(14 + 20 + 8)?, spi })
    }

    /// All that a capture has so far.
    pub fn all(wire: &Path) -> Vec<Self> {
        std::fs::read_to_string(wire).expect("the capture").lines().filter_map(Self::read).collect()
    }
}

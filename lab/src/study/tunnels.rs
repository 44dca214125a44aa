//! Other people's tunnels of the layers study, over its plain link: WireGuard in user mode (Debian's wireguard-go), IP packets in DTLS
//! (OpenSSL's, by socat between a TUN device and a DTLS association: a record for each packet), and in a data channel of WebRTC
//! (`lab/datachannel`). None has anything of levee's.

use super::daemon::{Ended, daemon};
use crate::netns::{Namespace, inside, tool};
use crate::operate::{Removed, text, wait_for};
use std::net::Ipv4Addr;
use std::path::Path;
use std::{fs, io, process};

/// Of a tunnel: the client's end and the server's.
pub(super) const WITHIN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 218, 0, 1), Ipv4Addr::new(10, 218, 0, 2)];
/// Of both ends of WireGuard and of WebRTC, and of the server of DTLS.
const PORT: u16 = 7_400;
/// What fits, with its headers, into a packet of the link: 60 octets of WireGuard's; 28 of IP and UDP and 37 of a DTLS 1.2 record with AES-GCM;
/// with them what str0m keeps free for DTLS and SCTP, 88.
const FITS: [&str; 3] = ["1420", "1400", "1384"];
/// The device within DTLS or WebRTC, at both ends.
const DEVICE: &str = "in0";
/// As `wg-quick` calls its own.
const SOCKETS: &str = "/var/run/wireguard";

/// The programs of a tunnel, what they leave behind, and the device that is its inside at both ends.
pub(super) struct Tunnel {
    pub(super) daemons: Vec<Ended>,
    pub(super) left: Vec<Removed>,
    /// At the client's end.
    pub(super) device: String,
}

fn up(space: &Namespace, device: &str, address: Option<Ipv4Addr>, mtu: &str) -> io::Result<()> {
    let ip = |args: &[&str]| tool("ip", &[&["-n", &space.name], args].concat()).map(drop);
    if let Some(address) = address {
        ip(&["addr", "add", &format!("{address}/24"), "dev", device])?;
    }
    ip(&["link", "set", device, "mtu", mtu, "up"])
}

/// Between the two ends of a link, whose addresses are these; `part` tells it from others of the run.
///
/// # Errors
/// The step that failed: a program that is not installed, for one.
pub(super) fn wireguard(
    part: &str,
    ends: [&Namespace; 2],
    link: [Ipv4Addr; 2],
    directory: &Path,
) -> io::Result<Tunnel> {
    let mut tunnel = Tunnel { daemons: Vec::new(), left: Vec::new(), device: String::new() };
    let mut keys = Vec::new();
    let device = |end: usize| format!("w{}{part}{end}", process::id());
    for (end, space) in ends.into_iter().enumerate() {
        let name = device(end);
        let program = ["wireguard-go", "wireguard"].into_iter().find(|p| tool("which", &[p]).is_ok());
        let program = program.ok_or_else(|| io::Error::other("wireguard-go is not installed"))?;
        tunnel.daemons.push(daemon(&space.path(), Vec::new(), "", program, &["-f", &name])?);
        let socket = Path::new(SOCKETS).join(format!("{name}.sock"));
        wait_for("wireguard-go's control socket", || socket.exists().then_some(()))?;
        tunnel.left.push(Removed(socket));
        let key = directory.join(format!("{name}.key"));
        fs::write(&key, tool("wg", &["genkey"])?)?;
        let port = PORT.to_string();
        wait_for("wireguard-go to take its key", || {
            tool("wg", &["set", &name, "private-key", &text(&key), "listen-port", &port]).ok()
        })?;
        keys.push(tool("wg", &["show", &name, "public-key"])?.trim().to_owned());
        up(space, &name, Some(WITHIN[end]), FITS[0])?;
    }
    keys.reverse();
    for (end, key) in keys.iter().enumerate() {
        let (inner, outer) = (format!("{}/32", WITHIN[1 - end]), format!("{}:{PORT}", link[1 - end]));
        tool("wg", &["set", &device(end), "peer", key, "allowed-ips", &inner, "endpoint", &outer])?;
    }
    tunnel.device = device(0);
    Ok(tunnel)
}

/// As [`wireguard`], with a certificate and its key, which both ends show and demand.
///
/// # Errors
/// As for [`wireguard`].
pub(super) fn dtls(ends: [&Namespace; 2], link: [Ipv4Addr; 2], cert: &str, key: &str) -> io::Result<Tunnel> {
    let mut tunnel = Tunnel { daemons: Vec::new(), left: Vec::new(), device: DEVICE.to_owned() };
    let common = format!("cert={cert},key={key},cafile={cert},verify=1");
    let far = link[1];
    let places = [
        (1, format!("OPENSSL-DTLS-SERVER:{PORT},bind={far},{common}")),
        (0, format!("OPENSSL-DTLS-CLIENT:{far}:{PORT},{common},commonname=server.lab.example")),
    ];
    for (end, association) in places {
        let inner = format!("TUN:{}/24,tun-name={DEVICE},iff-no-pi,iff-up", WITHIN[end]);
        tunnel.daemons.push(daemon(&ends[end].path(), Vec::new(), "", "socat", &[&inner, &association])?);
        let bound = format!(":{PORT:04X} ");
        wait_for("socat's socket", || {
            let sockets =
                inside(&ends[end].path(), || fs::read_to_string("/proc/thread-self/net/udp")).ok()?;
            sockets.contains(&bound).then_some(())
        })?;
        wait_for("socat's device", || up(ends[end], DEVICE, None, FITS[1]).ok())?;
    }
    Ok(tunnel)
}

/// As [`wireguard`], by a program of the laboratory's with another's stack, which lies beside its own.
///
/// # Errors
/// As for [`wireguard`].
pub(super) fn webrtc(
    part: &str,
    ends: [&Namespace; 2],
    link: [Ipv4Addr; 2],
    directory: &Path,
) -> io::Result<Tunnel> {
    let program = std::env::current_exe()?.with_file_name("levee-lab-datachannel");
    if !program.exists() {
        return Err(io::Error::other(format!("{} is not installed", program.display())));
    }
    let mut tunnel = Tunnel { daemons: Vec::new(), left: Vec::new(), device: DEVICE.to_owned() };
    let files = [0, 1].map(|end| directory.join(format!("{part}{end}.webrtc")));
    let at = link.map(|address| format!("{address}:{PORT}"));
    for (end, space) in ends.into_iter().enumerate() {
        let (says, hears) = (text(&files[end]), text(&files[1 - end]));
        let mut words = vec!["--device", DEVICE, "--own", &at[end], "--far", &at[1 - end]];
        words.extend(["--says", &says, "--hears", &hears]);
        words.extend((end == 0).then_some("--offers"));
        tunnel.daemons.push(daemon(&space.path(), Vec::new(), "", &text(&program), &words)?);
        wait_for("the data channel's device", || up(space, DEVICE, Some(WITHIN[end]), FITS[2]).ok())?;
    }
    Ok(tunnel)
}

//! A telephone call with its sound, at several levels: Debian's baresip, as it is, at both ends, with the example site. What arrives is held
//! against what was said, sample by sample.
//!
//! Needs root, baresip-core, nginx-light, curl, tcpdump, tshark, python3, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{World, eventually, host, text};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/voice/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "CONFIDENTIAL";
/// Samples in a second, of telephony (RFC 3551 4.5.14).
const SECOND: usize = 8000;
/// Samples in a packet.
const PIECE: usize = SECOND / 50;
/// Pieces of a call that a busy host may lose.
const LOST: usize = 15;

/// A tone that goes from one pitch to another, in hertz: no piece of it is like the next.
fn sweep(from: f64, to: f64, seconds: usize) -> Vec<i16> {
    let all = seconds * SECOND;
    let mut phase = 0.0_f64;
    (0..all)
        .map(|n| {
            phase += std::f64::consts::TAU * (from + (to - from) * n as f64 / all as f64) / SECOND as f64;
            (12_000.0 * phase.sin()) as i16
        })
        .collect()
}

/// The samples as a file (RIFF WAVE, 16 bits, one channel).
fn wave(samples: &[i16]) -> Vec<u8> {
    let bytes = u32::try_from(samples.len() * 2).expect("a short sound");
    let mut file = Vec::new();
    file.extend(b"RIFF");
    file.extend((bytes + 36).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data");
    file.extend(bytes.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

/// The samples of such a file, as sndfile writes it.
fn samples(file: &[u8]) -> Vec<i16> {
    assert!(file.starts_with(b"RIFF") && file.get(36..40) == Some(b"data"), "{:?}", file.get(..44));
    file[44..].chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect()
}

/// Whether each piece that was heard (20 ms, as a packet has them) is one that was said, in its order, but for what G.711 takes: at most
/// half a step, which is a 32nd of the sample (ITU-T G.711 table 2a). What comes after the last that was said is not looked at. Of 150 pieces
/// fifteen may be lost by a host that is busy. Of `least` samples, a second may be missing at the end, since a call is hung up while it is on
/// its way.
#[track_caller]
fn same(said: &[i16], heard: &[i16], least: usize) {
    let near = |(a, b): (&i16, &i16)| (i32::from(*a) - i32::from(*b)).abs() <= i32::from(*a).abs() / 24 + 12;
    let mut next = said.chunks_exact(PIECE);
    let (mut lost, mut found) = (0, 0);
    // The last one may be what came after the end.
    let pieces = heard.get(..heard.len().saturating_sub(PIECE)).unwrap_or_default();
    for (number, piece) in pieces.chunks_exact(PIECE).enumerate() {
        // All has been said; a host that is busy hangs up later.
        if next.len() == 0 {
            break;
        }
        let place = next.position(|other| other.iter().zip(piece).all(near));
        lost += place.unwrap_or_else(|| panic!("the {number}th piece that was heard is none that was said"));
        found += 1;
    }
    assert!(lost <= LOST, "{lost} pieces are lost");
    assert!(found * PIECE + SECOND > least, "{found} pieces were heard");
}

/// Gives a program in a session's compartment bytes, and has what it writes.
#[track_caller]
fn feed(world: &World, workstation: &str, script: &str, bytes: &[u8]) -> Vec<u8> {
    let mut command = world.inside(workstation, &["sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start nsenter");
    child.stdin.take().expect("its input").write_all(bytes).expect("it reads");
    let done = child.wait_with_output().expect("its end");
    assert!(done.status.success(), "{script}: {}", done.status);
    done.stdout
}

/// Calls from a workstation, with a telephone that says this: what it heard.
#[track_caller]
fn call(world: &World, workstation: &str, said: &[i16]) -> Vec<i16> {
    let telephone = r#"
        rm -rf /tmp/phone && mkdir -p /tmp/phone/heard && cd /tmp/phone && cat >say.wav
        address=$(ip -4 -o address show levee0 | sed 's/.*inet \([0-9.]*\).*/\1/')
        cat >config <<END
poll_method epoll
sip_listen $address:5060
rtp_ports 20000-20001
rtcp_mux yes
jitter_buffer_delay 0-0
audio_source aufile,/tmp/phone/say.wav
audio_player aubridge,nobody
audio_alert aubridge,nobody
ausrc_srate 8000
auplay_srate 8000
ausrc_channels 1
auplay_channels 1
snd_path /tmp/phone/heard
module_path /usr/lib/baresip/modules
module g711.so
module aufile.so
module aubridge.so
module sndfile.so
module_tmp account.so
module_app menu.so
END
        touch contacts
        echo "<sip:ada@$address>;regint=0;audio_codecs=pcmu/8000/1" >accounts"#;
    feed(world, workstation, telephone, &wave(said));
    // It asks DNS alone for names, and a session's names are in /etc/hosts.
    let call = r#"
        cd /tmp/phone && touch log && address=$(getent ahostsv4 voice.harbour.example | sed -n '1s/ .*//p')
        HOME=/tmp timeout -s KILL 25 baresip -4 -f /tmp/phone -e "d sip:voice@$address" </dev/null >log 2>&1 &
        until grep -q 'terminated (duration' log || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
        kill $!; wait; cat log"#;
    let log = String::from_utf8_lossy(&feed(world, workstation, call, &[])).into_owned();
    let heard = feed(world, workstation, "cat /tmp/phone/heard/*-dec.wav || true", &[]);
    assert!(!heard.is_empty(), "nothing was heard: {log}");
    samples(&heard)
}

/// The messages that are heard at a level, oldest first.
fn messages(world: &World, workstation: &str, place: &str) -> Vec<Vec<i16>> {
    let url = format!("http://www.harbour.example/{place}/messages/");
    let page = world.run(workstation, &["curl", "-sS", "--max-time", "10", &url]).ok();
    let names = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let names: BTreeSet<&str> = names.filter(|name| name.ends_with("-dec.wav")).collect();
    let fetch = |name: &&str| feed(world, workstation, &format!("curl -sS --max-time 10 '{url}{name}'"), &[]);
    names.iter().map(fetch).map(|file| samples(&file)).collect()
}

/// What passes at an interface.
struct Onlooker {
    tcpdump: Child,
    file: PathBuf,
}

impl Onlooker {
    fn begin(file: PathBuf, network: &str, interface: &str) -> Self {
        // Its buffer has room for so many packets as it has for the longest that is kept whole.
        let short = ["-s", "256"];
        let words = ["tcpdump", "-Z", "root", "-n", "-U", "--immediate-mode", "-i", interface, "-w"];
        let mut tcpdump = Command::new("nsenter");
        tcpdump.arg(format!("--net={network}")).args(words).arg(&file).args(short);
        let tcpdump = tcpdump.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start tcpdump");
        let begun = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0);
        eventually(Duration::from_secs(20), "the capture begins", begun);
        Self { tcpdump, file }
    }

    fn end(mut self) -> PathBuf {
        let pid = rustix::process::Pid::from_child(&self.tcpdump);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("end tcpdump");
        self.tcpdump.wait().expect("wait for tcpdump");
        self.file
    }
}

/// These fields of each packet of a capture that the filter lets through.
fn fields(capture: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let capture = text(capture);
    let words = ["-r", &capture, "-d", "udp.port==20000,rtp", "-Y", filter, "-T", "fields"];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let shown = levee_system::sh("tshark", &words.into_iter().chain(fields).collect::<Vec<_>>()).ok();
    shown.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// How many packets of a call's sound one port sent, how many of them are missing, and how unevenly they came (RFC 3550 A.8), in
/// milliseconds.
fn quality(packets: &[Vec<String>], port: &str) -> (usize, usize, f64) {
    let number = |word: &String| word.parse::<f64>().expect("a number");
    let sent: Vec<Vec<f64>> =
        packets.iter().filter(|p| p[0] == port).map(|p| p.iter().map(number).collect()).collect();
    // From the first one on, modulo 65,536.
    let place = |packet: &Vec<f64>| (packet[2] as u16).wrapping_sub(sent[0][2] as u16);
    let seen: BTreeSet<u16> = sent.iter().map(place).collect();
    let missing = seen.last().map_or(0, |last| usize::from(*last) + 1 - seen.len());
    let transit: Vec<f64> = sent.iter().map(|packet| packet[1] * 1000.0 - packet[3] / 8.0).collect();
    let jitter = transit.windows(2).fold(0.0, |mean, two| mean + ((two[1] - two[0]).abs() - mean) / 16.0);
    (seen.len(), missing, jitter)
}

/// Sends loud noise as RTP to the port of the call's sound, from a session or from outside, for as long as a call.
const NOISE: &str = "
import random, socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
random.seed(1)
until, n = time.time() + 4, 0
while time.time() < until:
    for host in ('10.80.0.1', '10.77.0.1'):
        try:
            s.sendto(struct.pack('!BBHII', 0x80, 0, n & 0xffff, n * 160, 7) + random.randbytes(160), (host, 10000))
        except OSError:
            pass
    n += 1
    time.sleep(0.01)
print(n)
";

#[test]
fn the_sound_of_a_call_arrives_whole_at_its_level_and_nothing_from_another_level_or_from_outside_gets_into_it()
 {
    let world = World::up("voice", SITE, &["ws1", "ws2"]);
    let (greeting, said) = (sweep(300.0, 900.0, 3), sweep(1300.0, 500.0, 4));
    // The wire sees each packet by itself, and not what a device would cut up.
    world.server_sh("ip", &["link", "set", "p0", "gso_max_segs", "1"]).ok();
    world.outside("ws1", "ip", &["link", "set", "outer", "gso_max_segs", "1"]).ok();
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    let file = world.path("greeting.wav");
    std::fs::write(&file, wave(&greeting)).expect("a file");
    world.levee(&["put", LOW, &text(&file), ".voice/greeting.wav", "--run", &text(&world.path("run"))]).ok();
    world.login("ws2", "mia").ok();
    world.level("ws2", HIGH).ok();

    let wire = format!("/run/netns/{}", world.namespace("server"));
    let wire = Onlooker::begin(world.path("wire.pcap"), &wire, "p0");
    let warden = world.workstation_pids().next().expect("ws1");
    let session = format!("/proc/{}/ns/net", host::child(warden, "levee-init").pid);
    let session = Onlooker::begin(world.path("session.pcap"), &session, "levee0");
    let noise = |mut command: Command| command.stdout(Stdio::piped()).spawn().expect("start the noise");
    let above = noise(world.inside("ws2", &["python3", "-c", NOISE]));
    let mut outside = Command::new("nsenter");
    outside.arg(format!("--net=/run/netns/{}", world.namespace("ws1"))).args(["python3", "-c", NOISE]);
    let outside = noise(outside);
    let heard = call(&world, "ws1", &said);
    for noise in [above, outside] {
        let sent = noise.wait_with_output().expect("its end").stdout;
        let sent: u32 = String::from_utf8_lossy(&sent).trim().parse().expect("a count");
        assert!(sent > 100, "noise was made: {sent}");
    }
    let (wire, session) = (wire.end(), session.end());

    // Each end heard the other; the greeting ends first, and the call with it.
    same(&greeting, &heard, greeting.len());
    let kept = messages(&world, "ws1", "own");
    assert_eq!(kept.len(), 1, "one call, one message");
    same(&said, &kept[0], greeting.len());
    let sound = fields(&session, "rtp", &["udp.srcport", "frame.time_relative", "rtp.seq", "rtp.timestamp"]);
    for port in ["10000", "20000"] {
        let (packets, missing, jitter) = quality(&sound, port);
        // How unevenly they come is the host's, and is told.
        println!("from port {port}: {packets}, {missing} missing, jitter {jitter:.1} ms");
        assert!(packets + LOST >= 140 && missing <= LOST, "from port {port}: {packets}, {missing} missing");
    }
    // An onlooker at the link sees the noise that was made there, the trusted path, and ESP, all of one size.
    let sizes = fields(&wire, "udpencap && esp", &["udp.length"]);
    let different: BTreeSet<&Vec<String>> = sizes.iter().collect();
    assert!(sizes.len() > 300 && different.len() == 1, "{} packets of the sizes {different:?}", sizes.len());
    let other =
        "!(udpencap && esp) && !(tcp.port == 7443) && !arp && !icmp && !icmpv6 && !(udp.dstport == 10000)";
    assert_eq!(fields(&wire, other, &["_ws.col.Info"]), Vec::<Vec<String>>::new());

    // Above, the message is heard as a copy, and nothing of the noise was a call there.
    eventually(Duration::from_secs(5), "the message is heard above", || {
        messages(&world, "ws2", &format!("below/{LOW}")) == kept
    });
    assert!(messages(&world, "ws2", "own").is_empty());
}

//! Stands in the place of one of levee's programs, under its name, with what the warden gives to it.
//!
//! Beside it lies a file `hostile`, in which lines name a program and a uid. Where its own are among them it does its worst, another
//! thing each time that it is started; else it becomes the real program, of the same name in the directory `real` beside it.
#![forbid(unsafe_code)]

use levee_hostile::{flood, flood_all};
use levee_ipc::Channel;
use levee_ipc::log::{CHANNEL_FD, FILES};
use levee_ipc::mediator::{Client, MediatorToSessiond};
use levee_ipc::vault::{Report, VaultToKeyer, VaultToSessiond};
use levee_ipc::warden::channel::{ChannelPart, Counted};
use levee_ipc::warden::mediator::MediatorPart;
use levee_ipc::warden::vault::VaultPart;
use levee_ipc::warden::{CONTROL_FD, Nothing, Order, Part, Said};
use levee_session::SessionId;
use levee_sys::fork::inherited;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For how long a thing is tried, mostly: who ends soon is soon started again, with another thing.
const WHILE: Duration = Duration::from_millis(500);
/// And now and then: who ends often rests.
const LONG: Duration = Duration::from_secs(30);

fn session(number: u64) -> SessionId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    SessionId::from_random(id)
}

/// Whether this program is to be hostile under this uid.
fn is_hostile(directory: &Path, name: &str) -> bool {
    let uid = rustix::process::getuid().as_raw();
    let list = std::fs::read_to_string(directory.join("hostile")).unwrap_or_default();
    list.lines().any(|line| line == format!("{name} {uid}"))
}

/// Everything that the warden gives before the process begins, each with its descriptors.
fn kit<P: Part>(warden: &Channel) -> Vec<(P, Vec<OwnedFd>)> {
    let mut parts = Vec::new();
    loop {
        match warden.recv::<Order<P>>() {
            Ok(got) => match got.message {
                Order::Give(part) => parts.push((part, got.fds)),
                Order::Begin(_) => return parts,
                Order::Stop => std::process::exit(0),
            },
            Err(_) => std::process::exit(0),
        }
    }
}

fn channels<P: Part>(kit: Vec<(P, Vec<OwnedFd>)>, is: impl Fn(&P) -> bool) -> Vec<Channel> {
    let mine = kit.into_iter().filter(|(part, _)| is(part));
    mine.flat_map(|(_, fds)| fds).map(Channel::from_fd).collect()
}

/// A vault: says to sessiond, keyer and warden whatever it likes, as fast as it can.
fn vault(warden: &Channel, round: u32) {
    let span = if round.is_multiple_of(7) { LONG } else { WHILE };
    let mut kit = kit::<VaultPart>(warden);
    // What it speaks by comes later, in the first moments.
    let _ = warden.send(&Said::<Nothing>::Ready);
    while kit.iter().filter(|(part, _)| part.is_late()).count() < 2 {
        match warden.recv::<Order<VaultPart>>() {
            Ok(got) => {
                if let Order::Give(part) = got.message {
                    kit.push((part, got.fds));
                }
            }
            Err(_) => return,
        }
    }
    let (first, second): (Vec<_>, Vec<_>) =
        kit.into_iter().partition(|(part, _)| matches!(part, VaultPart::Sessiond));
    let sessiond = channels(first, |_| true);
    let keyer = channels(second, |part| matches!(part, VaultPart::Keyer));
    let (Some(sessiond), Some(keyer)) = (sessiond.first(), keyer.first()) else { return };
    match round % 5 {
        0 => drop(flood(sessiond, span, |n| match n % 3 {
            0 => VaultToSessiond::Disagreed(n),
            1 => VaultToSessiond::Closed(session(n)),
            _ => VaultToSessiond::Report(Report {
                counters: (0..200).map(|other| (format!("counter {n} {other}"), n)).collect(),
                ..Report::default()
            }),
        })),
        1 => drop(flood(keyer, span, |n| match n % 3 {
            0 => VaultToKeyer::Acquire(session(n)),
            1 => VaultToKeyer::Installed { spi: n as u32 },
            _ => VaultToKeyer::Expiring { spi: n as u32, session: session(n) },
        })),
        2 => drop(flood(warden, span, |_| Said::<Nothing>::Ready)),
        3 => drop(flood_all(&[sessiond, keyer, warden], span, &vec![0xffu8; 60_000])),
        // Silence: it is to be killed.
        _ => std::thread::sleep(LONG),
    }
}

/// A mediator: asks for whatever it likes.
fn mediator(warden: &Channel, round: u32) {
    let span = if round.is_multiple_of(7) { LONG } else { WHILE };
    let sessiond = channels(kit::<MediatorPart>(warden), |part| matches!(part, MediatorPart::Sessiond));
    let _ = warden.send(&Said::<Nothing>::Ready);
    let Some(sessiond) = sessiond.first() else { return };
    match round % 3 {
        0 => drop(flood(sessiond, span, |ticket| MediatorToSessiond::Connect {
            ticket,
            client: Client::Session(session(ticket)),
            service: "web".parse().expect("a service"),
            from: ([10, 80, 1, 9], 4_000).into(),
        })),
        1 => drop(flood(sessiond, span, |n| {
            MediatorToSessiond::Report((0..200).map(|other| (format!("{n} {other}"), n)).collect())
        })),
        _ => drop(flood_all(&[sessiond, warden], span, &vec![0xffu8; 60_000])),
    }
}

/// What carries a channel: counts by names that fill a message, which is too large with what somebody adds to each.
fn channel(warden: &Channel) {
    drop(kit::<ChannelPart>(warden));
    let _ = warden.send(&Said::<Counted>::Ready);
    loop {
        match warden.recv::<Order<ChannelPart>>().map(|got| got.message) {
            Ok(Order::Give(ChannelPart::Report)) => {
                let counted = (0..24).map(|number| (format!("{number:02}{}", "x".repeat(2_710)), 1));
                let _ = warden.send(&Said::Says(Counted(counted.collect())));
            }
            Ok(Order::Give(_) | Order::Begin(_)) => {}
            Ok(Order::Stop) | Err(_) => std::process::exit(0),
        }
    }
}

/// A logger: writes more to its two files than it may.
fn logger(round: u32) {
    for number in FILES {
        let Ok(mut file) = inherited(number).map(File::from) else { continue };
        if round.is_multiple_of(2) {
            // All at once: the kernel says at which byte no more is to be had.
            let _ = file.set_len(1 << 40);
        }
        let _ = file.seek(std::io::SeekFrom::End(0));
        // Four times what it may, and not more: where nobody stops it, that shows as well as a full disk would.
        let _ = (0..64).try_for_each(|_| file.write_all(&[b'x'; 64 * 1024]));
    }
}

fn main() {
    let own = std::env::current_exe().expect("its own file");
    let name = own.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let directory = own.parent().unwrap_or(Path::new("/"));
    if !is_hostile(directory, &name) {
        let error = Command::new(directory.join("real").join(&name)).args(std::env::args_os().skip(1)).exec();
        eprintln!("{name}: {error}");
        std::process::exit(1);
    }
    // Nothing is kept from one start to the next; the clock tells them apart.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let round = now.subsec_micros();
    if name == "levee-logger" {
        drop(inherited(CHANNEL_FD));
        return logger(round);
    }
    let Ok(warden) = inherited(CONTROL_FD).map(Channel::from_fd) else { return };
    match name.as_str() {
        "levee-vault" => vault(&warden, round),
        "levee-mediator" => mediator(&warden, round),
        "levee-channel" => channel(&warden),
        // Whatever it is: no message at all, at any rate.
        _ => drop(flood_all(&[&warden], WHILE, &vec![0xffu8; 60_000])),
    }
    panic!("it has done its worst");
}

//! What a program above, written to, can tell a program below by what the kernel keeps for both: nothing. A sender that is
//! silent and one that sends are not told apart, under the filter, the uid and the mounts that services have.
//!
//! Needs root, python3, e2fsprogs and levee's own programs (`cargo build --workspace --bins`).

mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use levee_policy::site::{Need, Needs};
use levee_policy::{Label, LabelName, Site};
use levee_system::channel::{self, APART, separation};
use places::{Probe, Room, room};
use serde_json::json;

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// What was shown on levee as it once was, each with the window that it needs, in seconds.
const CHANNELS: [(&str, f64); 22] = [
    ("locks on /dev/null", 0.02),
    ("locks on what is inherited", 0.02),
    ("locks on an eventfd", 0.02),
    ("locks on an epoll", 0.02),
    ("locks on a timerfd", 0.02),
    ("whole locks on an eventfd", 0.02),
    ("locks on the time namespace", 0.02),
    ("locks on a program", 0.02),
    ("futex on a shared page of a program", 0.02),
    ("futex on a private page of a program", 0.02),
    ("futex vector on a page of a program", 0.02),
    ("futex woken by a thread's end", 0.03),
    ("numbers of eventfds", 0.02),
    ("inode of a pidfd", 0.03),
    ("inode of a pidfd from clone", 0.03),
    ("inode of a pidfd from a socket", 0.03),
    ("audit sessions", 0.03),
    ("neighbours looked up", 0.02),
    ("source ports", 0.02),
    ("time stamps", 0.08),
    ("page cache, timed", 0.02),
    ("page cache, without waiting", 0.02),
];

/// Bits that the receiver must guess.
const BITS: usize = 16;

/// What these groups leak, as `conf/seccomp/service.toml` says: it is found where it is.
const GROUPS: [(Need, &str, f64); 3] = [
    (Need::Locks, "locks on an eventfd", 0.02),
    (Need::Netlink, "neighbours looked up", 0.02),
    (Need::Proc, "numbers of eventfds", 0.02),
];

#[test]
fn what_a_group_of_calls_leaks_is_there_for_services_that_ask_for_it() {
    let needs: Needs = GROUPS.iter().map(|(need, _, _)| *need).collect();
    let channels: Vec<(&str, f64)> = GROUPS.iter().map(|(_, name, window)| (*name, *window)).collect();
    // Others on the host use them, too: noise must not make a channel that is there look as if it were not.
    let heard = (0..3).any(|_| tried(&channels, &needs, 6).1.len() == channels.len());
    assert!(heard, "a group's channel is there");
}

#[test]
fn services_that_may_do_all_share_no_page_lock_or_device_number_of_their_programs() {
    let channels = [
        ("locks on a program", 0.02),
        ("futex on a shared page of a program", 0.02),
        ("futex on a private page of a program", 0.02),
        ("futex vector on a page of a program", 0.02),
        ("futex woken by a thread's end", 0.03),
        ("page cache, timed", 0.02),
        ("audit sessions", 0.03),
    ];
    let (table, open) = tried(&channels, &Needs::all(), 8);
    assert!(open.is_empty(), "a program below hears one above by: {}\n{table}", open.join(", "));
}

#[test]
fn whether_a_program_above_sends_or_is_silent_is_not_told_apart_below() {
    let (table, open) = tried(&CHANNELS, &Needs::default(), 4);
    assert!(open.is_empty(), "a program below hears one above by: {}\n{table}", open.join(", "));
}

/// Tries channels from one label down to another, both with services that ask for this: a table, and those by which ones
/// and zeros are told apart.
fn tried<'n>(channels: &[(&'n str, f64)], needs: &Needs, number: usize) -> (String, Vec<&'n str>) {
    // What one test counts, another would hear.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let site = Site::parse(SITE).expect("the example site is sound");
    let directory = tempfile::Builder::new().prefix("levee-channels-").tempdir_in("/var/tmp").unwrap();
    let labels: Vec<Label> = site.services().next().unwrap().range().labels(64).unwrap().collect();
    let at = |name: &str, number: usize| {
        let label = site.label(&LabelName::new(name).unwrap()).unwrap();
        room(&site, directory.path(), &labels, &label, number, needs)
    };
    let (mut below, mut above) = (at("UNCLASSIFIED", number), at("SECRET//NATO,MED", number + 1));
    let devices = [device(&below), device(&above), fs::metadata("/usr").unwrap().dev()];
    assert_eq!(
        BTreeSet::from(devices).len(),
        3,
        "each has its programs from a file system of its own: {devices:?}"
    );
    let mut table = format!("{:<40} {:>7} {:>6} {:>7}  seen\n", "channel", "apart", "wrong", "bit/s");
    let mut open = Vec::new();
    let bits = channel::bits(BITS);
    let all = across(&mut above, &mut below, channels, needs, &bits);
    for (name, window) in channels {
        let seen = &all[*name];
        assert_eq!(seen.len(), bits.len(), "the receiver looked in every window");
        let apart = separation(&bits, seen);
        let values: Vec<f64> = seen.iter().map(|value| value.unwrap_or(-1.0)).collect();
        let (wrong, sent) = channel::decode(&bits, &values);
        let rate = if apart > APART { channel::capacity(wrong, sent) / window } else { 0.0 };
        let refused = seen.iter().filter(|value| value.is_none()).count();
        table.push_str(&format!("{name:<40} {apart:>7.1} {wrong:>6} {rate:>7.1}  {refused} refused\n"));
        if apart > APART {
            open.push(*name);
        }
    }
    std::io::Write::write_all(&mut std::io::stdout(), table.as_bytes()).unwrap();
    for room in [below, above] {
        room.compartment.stop().unwrap();
    }
    (table, open)
}

/// The device of a compartment's programs.
fn device(room: &Room) -> u64 {
    let init = room.compartment.process().unwrap().pid.as_raw_nonzero();
    fs::metadata(format!("/proc/{init}/root/usr/bin/python3")).unwrap().dev()
}

/// What the receiver saw in each window of each channel; `None` where it was refused.
fn across(
    above: &mut Room,
    below: &mut Room,
    channels: &[(&str, f64)],
    needs: &Needs,
    bits: &[u32],
) -> BTreeMap<String, Vec<Option<f64>>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let mut next = now + 2.0;
    let channels: Vec<(&str, f64, f64)> = channels
        .iter()
        .map(|(name, window)| {
            let begin = next;
            next += bits.len() as f64 * window + 0.25;
            (*name, begin, *window)
        })
        .collect();
    let job = |end: &str| json!({"end": end, "channels": channels, "bits": bits});
    let (send, receive) = (job("send"), job("receive"));
    let sender = Probe::start(&mut above.compartment, "attack.py", &send, needs.clone());
    let receiver = Probe::start(&mut below.compartment, "attack.py", &receive, needs.clone());
    let said = receiver.said(&mut below.compartment);
    sender.said(&mut above.compartment);
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
}

#[test]
fn a_channel_that_is_there_is_found_and_noise_is_not() {
    let bits = channel::bits(BITS);
    let seen = |f: &dyn Fn(usize, u32) -> f64| -> Vec<Option<f64>> {
        bits.iter().enumerate().map(|(i, bit)| Some(f(i, *bit))).collect()
    };
    assert!(separation(&bits, &seen(&|_, bit| f64::from(bit))) > APART);
    // One window in ten is hit by something else.
    assert!(separation(&bits, &seen(&|i, bit| if i % 10 == 3 { 1e9 } else { f64::from(bit) })) > APART);
    assert!(separation(&bits, &seen(&|_, _| 7.0)) < f64::EPSILON);
    assert!(separation(&bits, &seen(&|i, _| (i * 7919 % 101) as f64)) < APART);
    let refusals: Vec<Option<f64>> = bits.iter().map(|bit| (*bit == 0).then_some(0.0)).collect();
    assert!(separation(&bits, &refusals) > APART, "a refusal that depends on the sender tells");
}

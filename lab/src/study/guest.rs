//! Machines with a kernel that the host may not have: Debian's, on an emulated processor, as `scripts/guest` makes them. Each does jobs at its console.
//! `levee lab run selinux`: SELinux off, Debian's MLS policy enforced, and CIPSO in each packet besides. `levee lab run macsec`: what is in
//! [`macsec`].

use super::archive::{File, archive};
use super::places::{PROGRAM, Running};
use super::{Arm, Measured, Stand, macsec};
use crate::netns::tool;
use crate::operate::{Removed, text};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a machine may take to boot on a loaded host.
const BOOT: Duration = Duration::from_secs(120);
/// Where the program is in a machine, and where it keeps files: on the machine's disk.
const JOBS: &str = "/operations jobs </dev/ttyS0";
const STORE: &str = "/disk";
/// As large as a compartment's store.
const DISK: u64 = 32 << 20;

/// What makes an arm what it is, at the machine's console. The shell's domain is permissive: what the policy says is looked up, and not obeyed.
fn prepared(arm: &str) -> Option<(&'static str, Vec<String>)> {
    const COMMON: [&str; 2] = [
        "mount -t tmpfs tmpfs /tmp && : >/levlab-machine",
        "mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm && ip link set lo up",
    ];
    // After the policy, so that each has its place in it; two networks with a link between.
    const STAND: [&str; 4] = [
        "mkdir /disk && modprobe -a virtio_blk veth && mount -t ext4 /dev/vda /disk",
        "mkdir -p /run/netns && ip netns add far && ip -n far link set lo up",
        "ip link add pair type veth peer name pair netns far && ip address add 10.215.1.1/24 dev pair && ip link set pair up",
        "ip -n far address add 10.215.1.2/24 dev pair && ip -n far link set pair up",
    ];
    const ENFORCED: [&str; 2] = [
        "dd if=/policy-mls of=/sys/fs/selinux/load bs=8M && echo 1 >/sys/fs/selinux/enforce",
        // (The shell's write says that it failed, and did not: what is so is looked at.)
        "echo system_u:system_r:kernel_t:s0:c1 >/proc/self/attr/current; grep -q s0:c1 /proc/self/attr/current && grep -q 1 /sys/fs/selinux/enforce",
    ];
    const LABELLED: [&str; 5] = [
        "netlabelctl cipsov4 add pass doi:16 tags:1",
        "netlabelctl map del default",
        "netlabelctl map add default address:127.0.0.0/8 protocol:cipsov4,16",
        "netlabelctl map add default address:10.215.1.0/24 protocol:cipsov4,16",
        "netlabelctl map add default address:0.0.0.0/0 protocol:unlbl",
    ];
    // Each machine, before anything is measured in it, shows by its packets that it is what its arm says.
    const WITHOUT: [&str; 2] =
        ["/operations packets lo loopback clear", "/operations packets pair pair clear"];
    const WITH: [&str; 2] = ["/operations packets lo loopback cipso", "/operations packets pair pair cipso"];
    let (arguments, all) = match arm {
        "off" => ("selinux=0", [&COMMON[..], &STAND, &WITHOUT].concat()),
        "mls" => ("lsm=selinux selinux=1", [&COMMON[..], &ENFORCED, &STAND, &WITHOUT].concat()),
        "mls-cipso" => ("lsm=selinux selinux=1", [&COMMON[..], &ENFORCED, &STAND, &LABELLED, &WITH].concat()),
        other => return Some(("selinux=0", macsec::commands(other)?)),
    };
    Some((arguments, all.into_iter().map(str::to_owned).collect()))
}

/// What a machine starts with: `scripts/guest`'s, and the program and these files behind it, as the kernel takes several archives one after the
/// other.
fn initramfs(made: &Path, part: &str, mut files: Vec<File>) -> io::Result<Removed> {
    let path = std::env::temp_dir().join(format!("levlab{}{part}", std::process::id()));
    let mut file = OpenOptions::new().append(true).create_new(true).open(&path)?;
    let to = Removed(path);
    io::copy(&mut fs::File::open(made.join("initramfs"))?, &mut file)?;
    // The kernel looks for another archive at whole words alone.
    let length = file.metadata()?.len();
    file.set_len(length.next_multiple_of(4))?;
    let mut program = File::new("operations", 0o755, "");
    program.content = PROGRAM.to_vec();
    files.push(program);
    file.write_all(&archive(&files))?;
    Ok(to)
}

/// A machine's disk, with an empty file system.
fn disk(part: &str) -> io::Result<Removed> {
    let to = Removed(std::env::temp_dir().join(format!("levlab{}{part}disk", std::process::id())));
    let file = fs::File::create_new(&to.0)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, DISK)?;
    tool("mkfs.ext4", &["-q", "-F", &text(&to.0)])?;
    Ok(to)
}

/// A machine that runs.
struct Guest {
    running: Running,
    /// So many more trials of a block it makes.
    left: usize,
    /// Whose programs have run in it: a first time, in which the emulator translates them, is not measured.
    warm: BTreeSet<String>,
    _packed: Removed,
    _disk: Removed,
}

impl Guest {
    fn boot(arm: &Arm, trials: usize) -> io::Result<Guest> {
        let fault = |what: &str| io::Error::other(what.to_owned());
        let (arguments, commands) =
            prepared(&arm.name).ok_or_else(|| fault("no way is known to build it"))?;
        let made =
            arm.guest.as_deref().ok_or_else(|| fault("its study does not say where its machine is"))?;
        let kernel = made.join("kernel");
        if !kernel.exists() {
            return Err(fault(&format!("{} is not there: run scripts/guest", kernel.display())));
        }
        let files = if macsec::commands(&arm.name).is_some() { macsec::files()? } else { Vec::new() };
        let packed = initramfs(made, &arm.name, files)?;
        let disk = disk(&arm.name)?;
        let mut c = Command::new("qemu-system-x86_64");
        c.args(["-M", "pc", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512", "-no-reboot"]);
        c.args(["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-kernel"])
            .arg(kernel);
        c.args(["-initrd", &text(&packed.0)]);
        c.args([
            "-drive",
            &format!("file={},format=raw,if=virtio,cache=none,aio=threads", text(&disk.0)),
            "-append",
        ]);
        c.arg(format!("console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off nokaslr {arguments}"));
        let mut machine = Running::spawn(c)
            .map_err(|e| io::Error::new(e.kind(), format!("qemu-system-x86_64 (qemu-system-x86): {e}")))?;
        machine.expect("ready", BOOT)?;
        for command in commands {
            machine.say(&command)?;
            machine
                .expect("0", BOOT)
                .map_err(|e| io::Error::other(format!("in the machine, {command}: {e}")))?;
        }
        machine.say(JOBS)?;
        machine.store = Some(STORE.to_owned());
        // It has one.
        machine.processor = 0;
        Ok(Guest { running: machine, left: trials, warm: BTreeSet::new(), _packed: packed, _disk: disk })
    }
}

/// The machines of a run. Each is booted anew for each block, since where a kernel and what is translated of it lie in memory is a matter of the
/// boot: else the arms would be compared by one boot each.
pub(super) struct Guests {
    arms: Vec<(Arm, usize)>,
    machines: BTreeMap<String, Guest>,
    absent: Vec<(String, String)>,
}

impl Guests {
    /// Boots them, of a study with so many rows. The first is the baseline, which each block has twice, and without which there is no run.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(super) fn build(arms: &[&Arm], rows: usize) -> io::Result<Guests> {
        let mut all = Guests { arms: Vec::new(), machines: BTreeMap::new(), absent: Vec::new() };
        for (number, arm) in arms.iter().enumerate() {
            let trials = if number == 0 { 2 * rows } else { rows };
            match Guest::boot(arm, trials) {
                Ok(guest) => {
                    all.machines.insert(arm.name.clone(), guest);
                    all.arms.push(((*arm).clone(), trials));
                }
                Err(e) if number == 0 => return Err(e),
                Err(e) => all.absent.push((arm.name.clone(), e.to_string())),
            }
        }
        Ok(all)
    }

    /// An arm's machine, which has trials left.
    fn machine(&mut self, arm: &str) -> io::Result<&mut Guest> {
        if self.machines.get(arm).is_none_or(|guest| guest.left == 0) {
            let found = self.arms.iter().find(|(one, _)| one.name == arm);
            let (of, trials) = found.ok_or_else(|| io::Error::other("the arm was not built"))?;
            // First it ends: two of it would take twice the memory.
            drop(self.machines.remove(arm));
            self.machines.insert(arm.to_owned(), Guest::boot(of, *trials)?);
        }
        self.machines.get_mut(arm).ok_or_else(|| io::Error::other("the arm was not built"))
    }
}

impl Stand for Guests {
    fn absent(&self) -> &[(String, String)] {
        &self.absent
    }

    fn measure(&mut self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured> {
        let guest = self.machine(arm)?;
        guest.left -= 1;
        if row.starts_with("run/") && guest.warm.insert(row.to_owned()) {
            guest.running.ask(row, 0.001)?;
        }
        guest.running.ask(row, seconds)
    }
}

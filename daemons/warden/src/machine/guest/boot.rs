//! From the kernel's first process to a system in which a compartment can be built, and the end of it.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use levee_sys::mount::{Attributes, Mount, make_private};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{mount_bind, mount_move};
use rustix::system::RebootCommand;

use crate::machine::image::MODULES;

/// How long the ports may take to appear once their driver is there. (The warden ends a machine that is late.)
const PATIENCE: Duration = Duration::from_secs(60);

/// Leaves the kernel's first root, mounts what the kernel shows, loads the modules, and forbids any more.
pub fn prepare() -> Result<(), String> {
    leave_first_root().map_err(|e| format!("leave the first root: {e}"))?;
    make_private().map_err(|e| e.to_string())?;
    let devices = Attributes { no_exec: true, devices: true, ..Attributes::default() };
    for (kind, path, attributes) in [
        ("proc", "/proc", Attributes::DATA),
        ("sysfs", "/sys", Attributes::DATA),
        ("devtmpfs", "/dev", devices),
        ("cgroup2", "/sys/fs/cgroup", Attributes::DATA),
    ] {
        let mount = Mount::new(kind, &[], attributes).and_then(|mount| mount.attach(path));
        mount.map_err(|e| e.to_string())?;
    }
    load_modules()?;
    fs::write("/proc/sys/kernel/modules_disabled", "1").map_err(|e| format!("forbid modules: {e}"))
}

/// The kernel's first root cannot be exchanged for another (pivot_root(2)); a mount of it on top of itself can.
fn leave_first_root() -> rustix::io::Result<()> {
    mount_bind("/", "/mnt")?;
    rustix::process::chdir("/mnt")?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")
}

fn load_modules() -> Result<(), String> {
    let failed = |what: &dyn std::fmt::Display, e: &dyn std::fmt::Display| format!("load {what}: {e}");
    let entries = fs::read_dir(MODULES).map_err(|e| failed(&MODULES, &e))?;
    let mut modules: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    modules.sort();
    for module in modules {
        let file = File::open(&module).map_err(|e| failed(&module.display(), &e))?;
        rustix::system::finit_module(&file, c"", 0).map_err(|e| failed(&module.display(), &e))?;
    }
    Ok(())
}

/// Opens one of the machine's ports. Its driver makes the device's node before the device can be opened by it (`add_port` in
/// `drivers/char/virtio_console.c`): neither is an error yet.
pub fn port(number: u32) -> Result<OwnedFd, String> {
    let path = format!("/dev/vport0p{number}");
    let until = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
            Err(Errno::NOENT | Errno::NXIO) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.map_err(|e| format!("open {path}: {e}")),
        }
    }
}

/// Writes everything to the disks and ends the machine. (It is told not to start again, so this is its end.)
pub fn end() {
    rustix::fs::sync();
    // If even this fails, process 1 ends, and with it the machine.
    let _ = rustix::system::reboot(RebootCommand::Restart);
}

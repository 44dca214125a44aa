//! A virtual machine with Debian's kernel, for tests that need another kernel's IPsec or one that labels packets: the host's own may have
//! neither.
//!
//! `scripts/guest` makes what it boots (`make test` calls it). It runs in qemu without hardware support, up in about
//! 5 s, with one network card that is a tap device in a network namespace of the test's.
//!
//! `make test` boots it three times, since the three want what a running kernel does not change: no SELinux at all beside the kernel's IPsec; a policy
//! of ours in which everybody may do everything but hear another level's packets; Debian's MLS policy with levee's module, first permissive and
//! then enforcing. Each boots once for all that is tried in it.
//!
//! Begin reading with `lib.rs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use levee_sys::net::Net;
use levee_sys::ns;

/// A running machine with a shell on its console; ended when dropped.
#[derive(Debug)]
pub struct Guest {
    machine: Child,
    console: ChildStdin,
    lines: Receiver<String>,
}

/// The name of the machine's card in the test's namespace.
pub const TAP: &str = "guest0";

/// How long a boot or a command may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where `scripts/guest` leaves what it makes.
#[must_use]
pub fn made() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")), PathBuf::from);
    target.join("guest")
}

impl Guest {
    /// Boots a machine whose card is [`TAP`] in `net`, up but without addresses. Needs root.
    ///
    /// # Panics
    /// When it does not come up; says what is missing.
    #[must_use]
    pub fn boot(net: BorrowedFd<'_>) -> Self {
        Self::boot_with(Some(net), "", None)
    }

    /// As [`Guest::boot`], with SELinux enforcing a policy that has levels s0 to s15 and categories c0 to c239, in which who hears what
    /// another says is at its level. The shell is at all of them.
    ///
    /// # Panics
    /// When it does not come up so.
    #[must_use]
    pub fn boot_labelled(net: BorrowedFd<'_>) -> Self {
        let mut guest = Self::boot_with(Some(net), "lsm=selinux selinux=1", None);
        guest.enforce("/policy");
        guest
    }

    /// A machine without a card, with these files of this host's beside its own (path there, path here), Debian's MLS policy for SELinux, levee's module
    /// in it, and Landlock. It enforces once [`Guest::enforce`] says so. The shell is the kernel's own domain, which is permissive.
    ///
    /// # Panics
    /// When it does not come up so.
    #[must_use]
    pub fn boot_host(files: &[(String, PathBuf)]) -> Self {
        let place = made().join("more");
        let _ = std::fs::remove_dir_all(&place);
        for (path, from) in files {
            let to = place.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(to.parent().expect("a directory"))
                .expect("a directory for the machine's files");
            std::fs::copy(from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
        let initramfs = made().join("initramfs-more");
        let pack =
            "cp ../initramfs \"$0\" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >>\"$0\"";
        let packed = Command::new("bash")
            .args(["-euo", "pipefail", "-c", pack])
            .arg(&initramfs)
            .current_dir(&place)
            .status();
        assert!(packed.is_ok_and(|status| status.success()), "{} is not packed", initramfs.display());
        Self::boot_with(None, "lsm=landlock,selinux selinux=1 levee.host", Some(initramfs))
    }

    /// Has SELinux enforce this policy of the machine's.
    ///
    /// # Panics
    /// When it does not.
    pub fn enforce(&mut self, policy: &str) {
        self.run(&format!(
            "dd if={policy} of=/sys/fs/selinux/load bs=8M && echo 1 > /sys/fs/selinux/enforce"
        ));
        assert_eq!(self.run("cat /sys/fs/selinux/enforce").trim(), "1");
    }

    fn boot_with(net: Option<BorrowedFd<'_>>, arguments: &str, initramfs: Option<PathBuf>) -> Self {
        let memory = if initramfs.is_some() { "1024" } else { "256" };
        let (kernel, initramfs) =
            (made().join("kernel"), initramfs.unwrap_or_else(|| made().join("initramfs")));
        assert!(
            kernel.exists() && initramfs.exists(),
            "{} is not there: run scripts/guest",
            kernel.display()
        );
        let card = format!("tap,id=net,ifname={TAP},script=no,downscript=no");
        let mut machine = Command::new("qemu-system-x86_64");
        machine
            .args(["-M", "pc", "-accel", "tcg", "-cpu", "max", "-m", memory, "-no-reboot"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"])
            .args([
                "-append",
                &format!("console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off {arguments}"),
            ])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initramfs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let machine = match net {
            Some(net) => {
                let device = "virtio-net-pci,romfile=,netdev=net,mac=52:54:00:12:34:56";
                machine.args(["-netdev", &card, "-device", device]);
                ns::in_net(net, || machine.spawn()).expect("needs root")
            }
            None => machine.spawn(),
        };
        let mut machine = machine.expect("run qemu-system-x86_64; install qemu-system-x86");
        let console = machine.stdin.take().expect("a console");
        let lines = read(machine.stdout.take().expect("a console"));
        let guest = Self { machine, console, lines };
        let (status, said) = guest.answer();
        assert_eq!(status, "ready", "{said}");
        if let Some(net) = net {
            let mut net = Net::in_ns(net).expect("needs root");
            net.set_up(TAP).expect("the machine's card");
        }
        guest
    }

    /// What the machine says until it says `<<…>>`, and what that is.
    fn answer(&self) -> (String, String) {
        let (mut said, end) = (String::new(), Instant::now() + PATIENCE);
        loop {
            let line = match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => panic!("the guest says nothing more than: {said}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the guest has ended: {said}"),
            };
            // A command's last line may not have ended.
            if let Some((before, rest)) = line.split_once("<<")
                && let Some((status, _)) = rest.split_once(">>")
            {
                said.push_str(before);
                return (status.to_owned(), said);
            }
            said.push_str(&line);
            said.push('\n');
        }
    }

    /// Runs a command of one line; answers whether it succeeded, and what it said.
    ///
    /// # Panics
    /// When the machine has ended or takes longer than two minutes.
    pub fn attempt(&mut self, command: &str) -> (bool, String) {
        assert!(!command.contains('\n'), "one line");
        self.console.write_all(format!("{command}\n").as_bytes()).expect("the guest's console");
        let (status, said) = self.answer();
        (status == "0", said)
    }

    /// Runs a command that must succeed; answers what it said.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&mut self, command: &str) -> String {
        let (good, said) = self.attempt(command);
        assert!(good, "in the guest, {command}: {said}");
        said
    }
}

/// A terminal's lines, without its carriage returns.
fn read(out: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut out = BufReader::new(out);
        let mut line = Vec::new();
        while let Ok(1..) = out.read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).replace('\r', "");
            if sender.send(text.trim_end_matches('\n').to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

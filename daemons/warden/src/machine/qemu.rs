//! The command line of a label's virtual machine, which process 1 of its compartment makes: what `levee plan` prints is what is run.
//!
//! Every device is virtio. Disks, network card and ports are descriptors; the only paths are the kernel and the initial
//! file system, which lie in the compartment's own read-only mount, and its own `/dev/urandom`.

use super::hardware::{Accelerator, Descriptor, Hardware};
use super::proto::WIRE;

/// Where the kernel and the initial file system lie, in the compartment that the machine runs in.
pub const IMAGE: &str = "/machine";
/// Their names there.
pub const KERNEL: &str = "kernel";
/// See [`KERNEL`].
pub const INITRAMFS: &str = "initramfs";

/// The program.
pub const PROGRAM: &str = "/usr/bin/qemu-system-x86_64";

/// Mebibytes of memory for translated code, where the processor is emulated.
const TRANSLATIONS: u32 = 64;

/// The first descriptor beside the standard ones.
const FIRST: usize = 3;

impl Hardware {
    /// The whole argument vector, the program's name first.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = vec!["qemu".into()];
        let mut option = |name: &str, value: String| arguments.extend([format!("-{name}"), value]);
        // No legacy device, no option ROM, no configuration file, no display, no monitor, no balloon.
        // Its memory is not merged with what others have.
        option(
            "machine",
            "microvm,rtc=off,pit=off,pic=off,isa-serial=off,auto-kernel-cmdline=off,mem-merge=off".into(),
        );
        // Beside levee's filter, which its start needs more of.
        option("sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny".into());
        match self.accelerator {
            Accelerator::Kvm => {
                option("accel", "kvm".into());
                option("cpu", "host".into());
            }
            Accelerator::Tcg { .. } => {
                option("accel", format!("tcg,tb-size={TRANSLATIONS}"));
                option("cpu", "max".into());
            }
        }
        option("m", format!("{}M", self.memory));
        option("smp", self.processors.to_string());
        option("kernel", format!("{IMAGE}/{KERNEL}"));
        option("initrd", format!("{IMAGE}/{INITRAMFS}"));
        option("append", self.kernel_line());
        option("device", "virtio-serial-device,id=ports,max_ports=4".into());
        let mac = WIRE.map(|byte| format!("{byte:02x}")).join(":");
        for (what, fd) in self.descriptors().into_iter().zip(FIRST..) {
            match what {
                Descriptor::Tap => {
                    option("netdev", format!("tap,id=wire,fd={fd}"));
                    option("device", format!("virtio-net-device,netdev=wire,mac={mac}"));
                }
                Descriptor::Port(number) => {
                    option("chardev", format!("socket,id=port{number},fd={fd}"));
                    option("device", format!("virtserialport,bus=ports.0,chardev=port{number},nr={number}"));
                }
                Descriptor::Own => disk(&mut option, "own", fd, false),
                Descriptor::Programs => disk(&mut option, "programs", fd, true),
                Descriptor::Below => disk(&mut option, "below", fd, false),
            }
        }
        option("object", "rng-random,id=entropy,filename=/dev/urandom".into());
        option("device", "virtio-rng-device,rng=entropy".into());
        option("display", "none".into());
        option("monitor", "none".into());
        option("serial", "none".into());
        arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(Into::into));
        arguments
    }

    fn kernel_line(&self) -> String {
        // Any fault of the kernel's is the machine's end, and so the label's.
        let mut line = "quiet loglevel=0 panic=-1 oops=panic rdinit=/levee/levee-init".to_owned();
        if let Accelerator::Tcg { counter_khz: Some(khz) } = self.accelerator {
            line.push_str(&format!(" tsc_early_khz={khz} tsc=reliable"));
        }
        line.push_str(" -- --machine");
        line
    }
}

/// An image by its descriptor. The warden has locked it; QEMU's own locks would be others.
fn disk(option: &mut impl FnMut(&str, String), name: &str, fd: usize, read_only: bool) {
    let how = if read_only { ",read-only=on" } else { "" };
    option("add-fd", format!("fd={fd},set={fd}"));
    option(
        "blockdev",
        format!("driver=file,node-name={name}-file,filename=/dev/fdset/{fd},locking=off,discard=ignore{how}"),
    );
    option("blockdev", format!("driver=raw,node-name={name},file={name}-file{how}"));
    option("device", format!("virtio-blk-device,drive={name},serial={name}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_virtio_devices_alone_and_every_file_of_it_is_a_descriptor() {
        for below in [false, true] {
            let accelerator = Accelerator::Tcg { counter_khz: Some(2_000_000) };
            let arguments = Hardware { accelerator, memory: 300, processors: 1, below }.arguments();
            let values = |name: &str| {
                let pairs = arguments.iter().zip(arguments.iter().skip(1));
                pairs.filter(|(option, _)| *option == name).map(|(_, v)| v.clone()).collect::<Vec<_>>()
            };
            assert!(values("-device").iter().all(|device| device.starts_with("virt")), "{arguments:?}");
            assert_eq!(values("-blockdev").len(), if below { 6 } else { 4 });
            let files = values("-blockdev").into_iter().filter(|disk| disk.contains("filename="));
            assert!(files.clone().all(|disk| disk.contains("filename=/dev/fdset/")));
            assert!(
                values("-chardev").iter().all(|port| port.starts_with("socket,") && port.contains("fd="))
            );
            assert!(arguments.iter().all(|argument| !argument.contains("balloon")));
        }
    }
}

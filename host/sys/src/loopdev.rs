//! Images as block devices, for as long as something uses them.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};

use crate::error::Step;
use crate::{Error, Result};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
/// linux/fs.h.
const BLKRASET: libc::c_ulong = 0x1262;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` (linux/loop.h).
#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` (linux/loop.h).
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// A loop device, bound to its image until the last user (this, or a mount) lets go.
#[derive(Debug)]
pub struct LoopDevice {
    path: String,
    device: File,
}

impl LoopDevice {
    /// Binds a free device to `image`, which keeps its own descriptor open no longer than this call.
    pub fn attach(image: &File, read_only: bool) -> Result<Self> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .step(|| "open /dev/loop-control (the kernel needs CONFIG_BLK_DEV_LOOP)".into())?;
        // Another process may take the free device first; then there is another.
        for _ in 0..64 {
            // SAFETY: LOOP_CTL_GET_FREE takes no argument and answers with a number.
            let number = unsafe { libc::ioctl(control.as_fd().as_raw_fd(), LOOP_CTL_GET_FREE as _) };
            if number < 0 {
                return Err(std::io::Error::last_os_error()).step(|| "find a free loop device".into());
            }
            let path = format!("/dev/loop{number}");
            let device = OpenOptions::new()
                .read(true)
                .write(!read_only)
                .open(&path)
                .step(|| format!("open {path}"))?;
            let fd = u32::try_from(image.as_raw_fd())
                .map_err(|e| Error::invalid("bind a loop device", e.to_string()))?;
            let config = LoopConfig {
                fd,
                block_size: 0,
                info: LoopInfo64 {
                    device: 0,
                    inode: 0,
                    rdevice: 0,
                    offset: 0,
                    sizelimit: 0,
                    number: 0,
                    encrypt_type: 0,
                    encrypt_key_size: 0,
                    flags: LO_FLAGS_AUTOCLEAR | if read_only { LO_FLAGS_READ_ONLY } else { 0 },
                    file_name: [0; 64],
                    crypt_name: [0; 64],
                    encrypt_key: [0; 32],
                    init: [0; 2],
                },
                reserved: [0; 8],
            };
            // SAFETY: `config` has the layout of `struct loop_config`; its `fd` is open during the call.
            let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
            if done == 0 {
                return Ok(Self { path, device });
            }
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error).step(|| format!("bind {path} to an image"));
            }
        }
        Err(Error::invalid("bind a loop device", "every free device was taken by another process"))
    }

    /// How many bytes the kernel reads ahead of a reader at most; whole sectors of 512 bytes.
    pub fn set_read_ahead(&self, bytes: u32) -> Result<()> {
        // SAFETY: BLKRASET takes a number, of sectors.
        let done =
            unsafe { libc::ioctl(self.device.as_raw_fd(), BLKRASET as _, libc::c_ulong::from(bytes / 512)) };
        if done < 0 {
            return Err(std::io::Error::last_os_error())
                .step(|| format!("set the read-ahead of {}", self.path));
        }
        Ok(())
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &str {
        &self.path
    }
}

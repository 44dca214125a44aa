//! Programs and maps of the kernel's bpf(2), as far as tc needs them (`sched_cls`).

use std::ffi::CStr;
use std::fmt::Write as _;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::Step;
use crate::{Error, Result};

/// Commands, map types and the program type (linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const SCHED_CLS: u32 = 3;
/// A load of 64 bits, and what its source says where it names a map.
const LOAD_WIDE: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
/// Names no helper that is for GPL alone.
const LICENSE: &CStr = c"Apache-2.0 OR MIT";
/// Octets of the verifier's words that are kept.
const LOG: usize = 4 << 20;
/// `struct __sk_buff`, as of Linux 6.1.
const CONTEXT: usize = 192;
const CONTEXT_MARK: usize = 8;
const CONTEXT_NOTE: usize = 48;

/// What kind of map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Keys of any octets.
    Hash = 1,
    /// Keys are numbers (`u32`) below the number of entries; values begin as 0.
    Array = 2,
    /// As `Hash`; where it is full, the least recently used entry goes.
    LruHash = 9,
    /// Keys are prefixes: a length in bits (`u32`), then the octets. The longest that fits is found.
    Prefixes = 11,
}

/// `BPF_F_NO_PREALLOC`, which a map of prefixes must have.
const NO_PREALLOC: u32 = 1;

/// A map in the kernel, which lives as long as it or a program that uses it does.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

/// One instruction: the fields of `struct bpf_insn`.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Its code.
    pub code: u8,
    /// Its destination register.
    pub destination: u8,
    /// Its source register.
    pub source: u8,
    /// Its offset.
    pub offset: i16,
    /// Its constant; in a load of a map's address, the place of the map in the list given to [`LoadedProgram::load`].
    pub value: i32,
}

/// A program that the verifier has found safe.
#[derive(Debug)]
pub struct LoadedProgram(OwnedFd);

/// What a program did with one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// What it returned (`TC_ACT_…`).
    pub verdict: u32,
    /// The packet as it left it.
    pub packet: Vec<u8>,
    /// The first of the words that a program may leave with a packet (`cb[0]`).
    pub note: u32,
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapElement {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    place: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    verdict: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    processor: u32,
}

/// The address of octets as bpf(2) wants it.
fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

fn length(of: usize) -> io::Result<u32> {
    u32::try_from(of).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn descriptor(fd: BorrowedFd<'_>) -> u32 {
    // A descriptor is never negative.
    fd.as_raw_fd().unsigned_abs()
}

/// One call of bpf(2).
///
/// # Safety
/// `attributes` has the layout that the command takes, and every address in it is of memory that lives during the call and is
/// as long as the sizes beside it (or the map's) say, writable where the command writes.
pub(crate) unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the caller's; the kernel reads and writes no more of `attributes` than its size.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    libc::c_int::try_from(result).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// # Safety
/// As [`bpf`], of a command that answers with a new descriptor.
unsafe fn open<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    let fd = unsafe { bpf(command, attributes)? };
    // SAFETY: the kernel has just made it (always with close-on-exec), and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Map {
    /// A new map with keys and values of so many octets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(kind: MapKind, key: usize, value: usize, entries: u32) -> Result<Self> {
        let make = || -> io::Result<OwnedFd> {
            let flags = if kind == MapKind::Prefixes { NO_PREALLOC } else { 0 };
            let (key, value) = (length(key)?, length(value)?);
            let mut attributes = MapCreate { kind: kind as u32, key, value, entries, flags };
            // SAFETY: the layout is MAP_CREATE's; it has no addresses, and answers with a descriptor.
            unsafe { open(MAP_CREATE, &mut attributes) }
        };
        let fd = make().step(|| format!("make a BPF map of {entries} entries"))?;
        Ok(Self { fd, key, value })
    }

    fn is_theirs(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() == self.key && value.len() == self.value {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    /// Sets an entry.
    ///
    /// # Errors
    /// The kernel's: no room, no such place in an array; or key or value is not as long as the map's are.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let set = || {
            self.is_theirs(key, value)?;
            let mut attributes = MapElement {
                map: descriptor(self.as_fd()),
                pad: 0,
                key: address(key.as_ptr()),
                value: address(value.as_ptr()),
                flags: 0,
            };
            // SAFETY: the layout is MAP_UPDATE_ELEM's, which reads key and value: both are as long as the map's.
            unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }
        };
        set().step(|| "set an entry of a BPF map".into()).map(drop)
    }

    /// An entry's value.
    ///
    /// # Errors
    /// The kernel's: no such entry; or the key is not as long as the map's are.
    pub fn get(&self, key: &[u8]) -> Result<Vec<u8>> {
        let mut value = vec![0; self.value];
        let mut get = || {
            self.is_theirs(key, &value)?;
            let mut attributes = MapElement {
                map: descriptor(self.as_fd()),
                pad: 0,
                key: address(key.as_ptr()),
                value: address(value.as_mut_ptr()),
                flags: 0,
            };
            // SAFETY: the layout is MAP_LOOKUP_ELEM's, which reads the key and writes the value: both are as long as the map's.
            unsafe { bpf(MAP_LOOKUP_ELEM, &mut attributes) }
        };
        get().step(|| "read an entry of a BPF map".into())?;
        Ok(value)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }
}

impl LoadedProgram {
    /// Loads a tc classifier. Its loads of map addresses name the maps by their place in `maps`.
    ///
    /// # Errors
    /// The kernel's, with the verifier's last words; or an instruction names no map.
    pub fn load(instructions: &[Instruction], maps: &[&Map]) -> Result<Self> {
        let mut code = Vec::with_capacity(instructions.len() * 8);
        for instruction in instructions {
            encode(instruction, maps, &mut code).step(|| "load a BPF program".into())?;
        }
        match load(SCHED_CLS, 0, &code, &mut []) {
            Ok(fd) => Ok(Self(fd)),
            Err(e) => {
                // Once more, for the verifier's words.
                let mut log = vec![0; LOG];
                let _ = load(SCHED_CLS, 0, &code, &mut log);
                let mut step = "load a BPF program".to_owned();
                // What stands behind its end is what was said of paths that are sound.
                let end = log.iter().position(|octet| *octet == 0).unwrap_or(log.len());
                let words: Vec<&[u8]> =
                    log.get(..end).unwrap_or_default().split(|octet| *octet == b'\n').collect();
                let words: Vec<_> = words.iter().rev().filter(|line| !line.is_empty()).take(3).collect();
                for line in words.iter().rev() {
                    let _ = write!(step, "; {}", String::from_utf8_lossy(line));
                }
                Err(Error::new(step, e))
            }
        }
    }

    /// Runs the program once on a packet, from its Ethernet header on, that has this mark; nothing is sent.
    ///
    /// # Errors
    /// The kernel's: the packet is too short or too long for it.
    pub fn run(&self, packet: &[u8], mark: u32) -> Result<Ran> {
        let run = || -> io::Result<Ran> {
            let mut out = vec![0; packet.len() + 256];
            let mut context = [0u8; CONTEXT];
            if let Some(place) = context.get_mut(CONTEXT_MARK..CONTEXT_MARK + 4) {
                place.copy_from_slice(&mark.to_ne_bytes());
            }
            let mut after = [0u8; CONTEXT];
            let mut attributes = TestRun {
                program: descriptor(self.as_fd()),
                data_size_in: length(packet.len())?,
                data_size_out: length(out.len())?,
                data_in: address(packet.as_ptr()),
                data_out: address(out.as_mut_ptr()),
                repeat: 1,
                context_size_in: length(context.len())?,
                context_size_out: length(after.len())?,
                context_in: address(context.as_ptr()),
                context_out: address(after.as_mut_ptr()),
                ..TestRun::default()
            };
            // SAFETY: the layout is PROG_TEST_RUN's; both inputs are read and both outputs written within the sizes beside them.
            unsafe { bpf(PROG_TEST_RUN, &mut attributes)? };
            out.truncate(usize::try_from(attributes.data_size_out).map_err(|_| io::ErrorKind::InvalidData)?);
            let note = after.get(CONTEXT_NOTE..).and_then(|rest| rest.first_chunk()).copied();
            Ok(Ran { verdict: attributes.verdict, packet: out, note: note.map_or(0, u32::from_ne_bytes) })
        };
        run().step(|| "run a BPF program".into())
    }

    /// The program's descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

/// Appends the octets of an instruction. In a load of a map's address the second instruction is 0, as it must be.
pub(crate) fn encode(instruction: &Instruction, maps: &[&Map], code: &mut Vec<u8>) -> io::Result<()> {
    let &Instruction { code: operation, destination, source, offset, mut value } = instruction;
    if operation == LOAD_WIDE && source == PSEUDO_MAP_FD {
        let map = usize::try_from(value).ok().and_then(|place| maps.get(place));
        value = map.ok_or(io::ErrorKind::InvalidInput)?.fd.as_raw_fd();
    }
    if destination > 15 || source > 15 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    code.push(operation);
    code.push(if cfg!(target_endian = "little") {
        source << 4 | destination
    } else {
        destination << 4 | source
    });
    code.extend(offset.to_ne_bytes());
    code.extend(value.to_ne_bytes());
    Ok(())
}

/// Loads a program of this kind, for this place where its kind has several (`expected_attach_type`).
pub(crate) fn load(kind: u32, place: u32, code: &[u8], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = ProgLoad {
        kind,
        count: length(code.len() / 8)?,
        instructions: address(code.as_ptr()),
        license: address(LICENSE.as_ptr()),
        log_level: u32::from(!log.is_empty()),
        log_size: length(log.len())?,
        log: if log.is_empty() { 0 } else { address(log.as_mut_ptr()) },
        kernel: 0,
        flags: 0,
        name: *b"levee\0\0\0\0\0\0\0\0\0\0\0",
        interface: 0,
        place,
    };
    // SAFETY: the layout is PROG_LOAD's, which answers with a descriptor: it reads `count` instructions of 8 octets and the
    // license up to its NUL, and writes no more than `log_size` octets of the log.
    unsafe { open(PROG_LOAD, &mut attributes) }
}

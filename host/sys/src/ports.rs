//! Source ports of a control group's connections, drawn apart from everybody else's.
//!
//! connect(2) takes a socket that has no port to a counter of the machine's (`net/ipv4/inet_hashtables.c` `table_perturb`, one for each hash of
//! the two ends, in whichever network namespace they are) and moves it on: who connects between the same two addresses in another namespace sees, by the port that
//! it is given, how often that was done here, also much later. A program in the kernel gives a socket its port before it gets there: some of the clock's
//! nanoseconds, mixed with a key of the group's. Nothing that it takes or leaves is another group's.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};

use crate::bpf::{self, Instruction};
use crate::cgroup::Cgroup;
use crate::error::Step as _;
use crate::{Error, Result};

/// The ports, which every network namespace begins with (`ip_local_port_range`): the first, and how many.
const FIRST: i32 = 32_768;
const PORTS: i32 = 28_232;
/// So many ports are tried. With half of all taken, one connection in four thousand million finds none and is refused.
const TRIES: u64 = 32;

/// `linux/bpf.h`: commands, kinds and places of programs, helpers.
const PROG_ATTACH: libc::c_int = 8;
pub(crate) const CGROUP_SOCK_ADDR: u32 = 18;
const ALLOW_MULTI: u32 = 2;
const KTIME_GET_NS: i32 = 5;
const BIND: i32 = 64;

/// Where in `struct bpf_sock_addr` and `struct bpf_sock` there is what is asked for.
mod at {
    pub const TYPE: i16 = 32;
    pub const SOCKET: i16 = 64;
    pub const INTERFACE: i16 = 0;
    pub const SOURCE4: i16 = 24;
    pub const SOURCE6: i16 = 28;
    pub const SOURCE_PORT: i16 = 44;
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// The family, the size of its `sockaddr`, and `BPF_CGROUP_INET4_CONNECT` or the other one.
    fn numbers(self) -> (i32, i32, u32) {
        match self {
            Self::V4 => (libc::AF_INET, size_of::<libc::sockaddr_in>() as i32, 10),
            Self::V6 => (libc::AF_INET6, size_of::<libc::sockaddr_in6>() as i32, 11),
        }
    }
}

/// Has the kernel draw the source ports of connections from within `group` without the machine's counters, as long as the group is there.
///
/// # Errors
/// The kernel has no programs for control groups, or refuses this one.
pub fn draw_apart(group: &Cgroup) -> Result<()> {
    let mut key = [0; 8];
    let got = rustix::rand::getrandom(&mut key[..], rustix::rand::GetRandomFlags::empty());
    if got.step(|| "draw a key for source ports".into())? != key.len() {
        return Err(Error::invalid("draw a key for source ports", "too few octets"));
    }
    let directory = group.unified();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(directory, flags, Mode::empty());
    let directory = open.step(|| format!("open {}", directory.display()))?;
    for family in [Family::V4, Family::V6] {
        let program = load(&program(family, u64::from_ne_bytes(key)), family);
        let program = program.step(|| "load the program for source ports".into())?;
        attach(directory.as_raw_fd(), program.as_raw_fd(), family.numbers().2)
            .step(|| "give a control group the program for source ports".into())?;
    }
    Ok(())
}

/// Binds a stream socket that has no port yet to one, at the address that it has; refuses the connection if none is found.
fn program(family: Family, key: u64) -> Vec<Instruction> {
    let mut program = Program::default();
    let (number, size, _) = family.numbers();
    program.add(0xbf, 6, 1, 0, 0); // r6 = what is asked for
    program.add(0x61, 2, 6, at::TYPE, 0);
    program.go(0x55, 2, libc::SOCK_STREAM); // others draw theirs by chance
    program.add(0x79, 7, 6, at::SOCKET, 0); // r7 = the socket
    program.add(0x61, 2, 7, at::SOURCE_PORT, 0);
    program.go(0x55, 2, 0); // it has one
    // The sockaddr, at -32 on the stack: family, port (below), address, and for IPv6 the interface.
    for place in [-32, -24, -16, -8] {
        program.add(0x7a, 10, 0, place, 0);
    }
    program.add(0x6a, 10, 0, -32, number);
    let copied: &[(i16, i16)] = match family {
        Family::V4 => &[(at::SOURCE4, -28)],
        Family::V6 => &[
            (at::SOURCE6, -24),
            (at::SOURCE6 + 4, -20),
            (at::SOURCE6 + 8, -16),
            (at::SOURCE6 + 12, -12),
            (at::INTERFACE, -8),
        ],
    };
    for (from, to) in copied {
        program.add(0x61, 2, 7, *from, 0);
        program.add(0x63, 10, 2, *to, 0);
    }
    for attempt in 0..TRIES {
        program.draw(key.wrapping_add(attempt));
        program.add(0x6b, 10, 0, -30, 0);
        program.add(0xbf, 1, 6, 0, 0);
        program.add(0xbf, 2, 10, 0, 0);
        program.add(0x07, 2, 0, 0, -32);
        program.add(0xb7, 3, 0, 0, size);
        program.add(0x85, 0, 0, 0, BIND);
        program.go(0x15, 0, 0);
    }
    program.end()
}

/// A program in the making.
#[derive(Default)]
struct Program {
    instructions: Vec<Instruction>,
    /// Those that go to where the connection is let pass.
    go: Vec<usize>,
}

impl Program {
    fn add(&mut self, code: u8, destination: u8, source: u8, offset: i16, value: i32) {
        self.instructions.push(Instruction { code, destination, source, offset, value });
    }

    /// Lets the connection pass if the comparison holds.
    fn go(&mut self, code: u8, register: u8, value: i32) {
        self.go.push(self.instructions.len());
        self.add(code, register, 0, 0, value);
    }

    /// `register = value`, of 64 bits.
    fn set(&mut self, register: u8, value: u64) {
        // The halves of the number, as the kernel takes them.
        self.add(0x18, register, 0, 0, value as u32 as i32);
        self.add(0, 0, 0, 0, (value >> 32) as u32 as i32);
    }

    /// r0 = a port, in network order: the clock and the key, mixed as splitmix64 does it.
    fn draw(&mut self, key: u64) {
        self.add(0x85, 0, 0, 0, KTIME_GET_NS);
        self.set(1, key);
        self.add(0xaf, 0, 1, 0, 0); // r0 ^= key
        for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            self.add(0xbf, 1, 0, 0, 0);
            self.add(0x77, 1, 0, 0, 29);
            self.add(0xaf, 0, 1, 0, 0); // r0 ^= r0 >> 29
            self.set(1, factor);
            self.add(0x2f, 0, 1, 0, 0); // r0 *= factor
        }
        self.add(0x77, 0, 0, 0, 33);
        self.add(0x97, 0, 0, 0, PORTS); // r0 %= PORTS
        self.add(0x07, 0, 0, 0, FIRST);
        self.add(0xdc, 0, 0, 0, 16);
    }

    /// What comes to here is refused.
    fn end(mut self) -> Vec<Instruction> {
        self.add(0xb7, 0, 0, 0, 0);
        self.add(0x95, 0, 0, 0, 0);
        let pass = self.instructions.len();
        self.add(0xb7, 0, 0, 0, 1);
        self.add(0x95, 0, 0, 0, 0);
        for from in &self.go {
            if let Some(instruction) = self.instructions.get_mut(*from) {
                // A few hundred instructions.
                instruction.offset = (pass - from - 1) as i16;
            }
        }
        self.instructions
    }
}

/// `bpf_attr` for `BPF_PROG_ATTACH`, as far as it is used.
#[repr(C)]
struct Attach {
    to: RawFd,
    program: RawFd,
    place: u32,
    flags: u32,
}

fn load(program: &[Instruction], family: Family) -> io::Result<OwnedFd> {
    let mut code = Vec::new();
    program.iter().try_for_each(|instruction| bpf::encode(instruction, &[], &mut code))?;
    bpf::load(CGROUP_SOCK_ADDR, family.numbers().2, &code, &mut [])
}

/// Has a program run for a control group, at this place.
pub(crate) fn attach(directory: RawFd, program: RawFd, place: u32) -> io::Result<()> {
    let mut attach = Attach { to: directory, program, place, flags: ALLOW_MULTI };
    // SAFETY: the layout is PROG_ATTACH's; it has no addresses.
    unsafe { bpf::bpf(PROG_ATTACH, &mut attach) }.map(|_| ())
}

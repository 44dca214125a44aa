//! The program by which the kernel finds a datagram's slot: Chaskey-12 (Mouha et al., SAC 2014; ISO/IEC 29192-6) of the SPI, in
//! classic BPF, which has no rotations and two registers. `levee_esp::Steering` is the same function for who chooses SPIs.

use std::fmt;
use std::io;

use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_IMM, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_LSH,
    BPF_MEM, BPF_MISC, BPF_MOD, BPF_OR, BPF_RET, BPF_RSH, BPF_ST, BPF_TAX, BPF_W, BPF_X, BPF_XOR,
};
use zeroize::Zeroize as _;

/// Room for the whole program, so that none of it is left behind where it grew.
const ROOM: usize = 1_024;

/// Which slot an SPI names: a key that is drawn at each start. The kernel has it, and whoever chooses SPIs. Erased when dropped.
#[derive(Clone)]
pub struct SteeringKey([u8; 16]);

impl SteeringKey {
    /// The key with these octets.
    #[must_use]
    pub const fn new(octets: [u8; 16]) -> Self {
        Self(octets)
    }

    /// A new one, from the kernel's random octets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn random() -> io::Result<Self> {
        let mut key = Self([0; 16]);
        let got = rustix::rand::getrandom(&mut key.0[..], rustix::rand::GetRandomFlags::empty())?;
        if got == key.0.len() { Ok(key) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Its octets; do not copy them into anything that is not erased.
    #[must_use]
    pub fn expose(&self) -> &[u8; 16] {
        &self.0
    }

    /// Which socket of the group gets a datagram; offset 0 is the first byte behind the UDP header. A load beyond the
    /// datagram's end answers 0: the first socket.
    pub(super) fn program(&self, slots: u16) -> SteeringProgram {
        let slots = u32::from(slots);
        let mut key = self.words();
        let mut second = doubled(doubled(key));
        let mut program = SteeringProgram(Vec::with_capacity(ROOM));
        program.add(op(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0)); // A = the SPI
        program.add(op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
        program.add(ret(0)); // zero → the first
        program.add(op(BPF_JMP | BPF_JGE | BPF_K, 1, 0, 256));
        program.add(ret(slots + 1)); // RFC 4303 2.1: reserved → sink
        // The SPI is no whole block: padded with 1, and the second subkey before and behind the permutation.
        program.add(op(BPF_ALU | BPF_XOR | BPF_K, 0, 0, key[0] ^ second[0]));
        program.add(op(BPF_ST, 0, 0, 0));
        for (place, padding) in [(1, 1), (2, 0), (3, 0)] {
            let word = key[place] ^ second[place] ^ padding;
            program.add(op(BPF_LD | BPF_IMM, 0, 0, word));
            program.add(op(BPF_ST, 0, 0, place as u32));
        }
        for _ in 0..12 {
            program.round();
        }
        program.add(op(BPF_LD | BPF_MEM, 0, 0, 0));
        program.add(op(BPF_ALU | BPF_XOR | BPF_K, 0, 0, second[0]));
        program.add(op(BPF_ALU | BPF_MOD | BPF_K, 0, 0, slots));
        program.add(op(BPF_ALU | BPF_ADD | BPF_K, 0, 0, 1));
        program.add(op(BPF_RET | BPF_A, 0, 0, 0));
        key.zeroize();
        second.zeroize();
        program
    }

    /// Its four words, lowest octet first.
    fn words(&self) -> [u32; 4] {
        let mut words = [0; 4];
        for (word, octets) in words.iter_mut().zip(self.0.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*octets);
        }
        words
    }
}

impl Drop for SteeringKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SteeringKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SteeringKey(..)")
    }
}

/// The next subkey: shifted left by one over all four words; what falls out at the top comes in below as 0x87.
fn doubled(key: [u32; 4]) -> [u32; 4] {
    let carry = if key[3] >> 31 == 1 { 0x87 } else { 0 };
    [
        (key[0] << 1) ^ carry,
        (key[1] << 1) | (key[0] >> 31),
        (key[2] << 1) | (key[1] >> 31),
        (key[3] << 1) | (key[2] >> 31),
    ]
}

/// A program with a key in it: erased when dropped. Scratch words 0 to 3 are the state.
pub(super) struct SteeringProgram(Vec<libc::sock_filter>);

impl SteeringProgram {
    pub(super) fn instructions(&self) -> &[libc::sock_filter] {
        &self.0
    }

    fn add(&mut self, instruction: libc::sock_filter) {
        self.0.push(instruction);
    }

    /// `a += b`
    fn sum(&mut self, a: u32, b: u32) {
        self.add(op(BPF_LD | BPF_MEM, 0, 0, a));
        self.add(op(BPF_LDX | BPF_MEM, 0, 0, b));
        self.add(op(BPF_ALU | BPF_ADD | BPF_X, 0, 0, 0));
        self.add(op(BPF_ST, 0, 0, a));
    }

    /// `a = (a <<< by) ^ with`
    fn turn(&mut self, a: u32, by: u32, with: Option<u32>) {
        self.add(op(BPF_LD | BPF_MEM, 0, 0, a));
        self.add(op(BPF_ALU | BPF_RSH | BPF_K, 0, 0, 32 - by));
        self.add(op(BPF_MISC | BPF_TAX, 0, 0, 0));
        self.add(op(BPF_LD | BPF_MEM, 0, 0, a));
        self.add(op(BPF_ALU | BPF_LSH | BPF_K, 0, 0, by));
        self.add(op(BPF_ALU | BPF_OR | BPF_X, 0, 0, 0));
        if let Some(with) = with {
            self.add(op(BPF_LDX | BPF_MEM, 0, 0, with));
            self.add(op(BPF_ALU | BPF_XOR | BPF_X, 0, 0, 0));
        }
        self.add(op(BPF_ST, 0, 0, a));
    }

    /// One round of the permutation.
    fn round(&mut self) {
        self.sum(0, 1);
        self.turn(1, 5, Some(0));
        self.turn(0, 16, None);
        self.sum(2, 3);
        self.turn(3, 8, Some(2));
        self.sum(0, 3);
        self.turn(3, 13, Some(0));
        self.sum(2, 1);
        self.turn(1, 7, Some(2));
        self.turn(2, 16, None);
    }
}

impl Drop for SteeringProgram {
    fn drop(&mut self) {
        for instruction in &mut self.0 {
            instruction.k.zeroize();
        }
    }
}

/// An instruction of classic BPF.
pub(crate) fn op(code: u32, yes: u8, no: u8, k: u32) -> libc::sock_filter {
    // Every classic BPF opcode fits in the 16 bits of the field.
    libc::sock_filter { code: code as u16, jt: yes, jf: no, k }
}

/// The end of a program, with this answer.
pub(crate) fn ret(k: u32) -> libc::sock_filter {
    op(libc::BPF_RET | libc::BPF_K, 0, 0, k)
}

//! An assembler for the kernel's instruction set (RFC 9669), as far as the programs need it.

/// One instruction: the fields of `struct bpf_insn` (linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What is done.
    pub code: u8,
    /// The register that it is done to.
    pub destination: u8,
    /// The register that it is done with; 1 in a load of 64 bits says that `value` is the number of a map.
    pub source: u8,
    /// A jump's distance, or a memory access's.
    pub offset: i16,
    /// The constant, the helper's number, or the map's.
    pub value: i32,
}

/// What a load of 64 bits has in `source` where it names a map (`BPF_PSEUDO_MAP_FD`).
pub const MAP: u8 = 1;
/// The code of that load, which takes two instructions.
pub const LOAD_WIDE: u8 = 0x18;

/// A register.
pub(super) type Register = u8;
/// The frame's: the stack lies below it.
pub(super) const FRAME: Register = 10;

/// How much a load or store moves: the bits of its code.
#[derive(Clone, Copy)]
pub(super) enum Size {
    Word = 0x00,
    Half = 0x08,
    Octet = 0x10,
    Double = 0x18,
}

/// When a jump is taken: the bits of its code. All compare unsigned.
#[derive(Clone, Copy)]
pub(super) enum If {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    Differs = 0x50,
    Less = 0xa0,
}

/// What is computed in 64 bits: the bits of its code.
#[derive(Clone, Copy)]
pub(super) enum Alu {
    Add = 0x00,
    Sub = 0x10,
    And = 0x50,
    Left = 0x60,
    Right = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
}

/// A place in the program that jumps go to.
#[derive(Clone, Copy)]
pub(super) struct Target(usize);

/// A program on its way.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Target)>,
}

impl Assembler {
    fn add(&mut self, code: u8, destination: Register, source: Register, offset: i16, value: i32) {
        self.code.push(Instruction { code, destination, source, offset, value });
    }

    /// A place that is not yet anywhere.
    pub(super) fn place(&mut self) -> Target {
        self.places.push(None);
        Target(self.places.len() - 1)
    }

    /// Here it is.
    pub(super) fn here(&mut self, place: Target) {
        let at = self.code.len();
        if let Some(slot) = self.places.get_mut(place.0) {
            *slot = Some(at);
        }
    }

    /// Whether a jump goes there.
    pub(super) fn is_used(&self, place: Target) -> bool {
        self.jumps.iter().any(|(_, to)| to.0 == place.0)
    }

    /// `to = to ∘ value`
    pub(super) fn set(&mut self, alu: Alu, to: Register, value: i32) {
        self.add(0x07 | alu as u8, to, 0, 0, value);
    }

    /// `to = to ∘ from`
    pub(super) fn with(&mut self, alu: Alu, to: Register, from: Register) {
        self.add(0x0f | alu as u8, to, from, 0, 0);
    }

    /// `register = register * value`
    pub(super) fn multiply(&mut self, register: Register, value: i32) {
        self.add(0x27, register, 0, 0, value);
    }

    /// Only the lower 32 bits stay.
    pub(super) fn narrow(&mut self, register: Register) {
        self.add(0xbc, register, register, 0, 0);
    }

    /// 16 bits of the network's order into the machine's, or back.
    pub(super) fn swap16(&mut self, register: Register) {
        self.add(0xdc, register, 0, 0, 16);
    }

    pub(super) fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) {
        self.add(0x61 | size as u8, to, base, offset, 0);
    }

    pub(super) fn store(&mut self, size: Size, base: Register, offset: i16, from: Register) {
        self.add(0x63 | size as u8, base, from, offset, 0);
    }

    /// Stores a constant.
    pub(super) fn put(&mut self, size: Size, base: Register, offset: i16, value: i32) {
        self.add(0x62 | size as u8, base, 0, offset, value);
    }

    pub(super) fn jump(&mut self, to: Target) {
        self.jumps.push((self.code.len(), to));
        self.add(0x05, 0, 0, 0, 0);
    }

    pub(super) fn jump_if(&mut self, register: Register, test: If, value: i32, to: Target) {
        self.jumps.push((self.code.len(), to));
        self.add(0x05 | test as u8, register, 0, 0, value);
    }

    pub(super) fn jump_if_register(&mut self, register: Register, test: If, other: Register, to: Target) {
        self.jumps.push((self.code.len(), to));
        self.add(0x0d | test as u8, register, other, 0, 0);
    }

    /// `to = address of the map`
    pub(super) fn map(&mut self, to: Register, map: i32) {
        self.add(LOAD_WIDE, to, MAP, 0, map);
        self.add(0, 0, 0, 0, 0);
    }

    /// `register = the stack's address at this distance below the frame`
    pub(super) fn stack(&mut self, register: Register, offset: i16) {
        self.with(Alu::Move, register, FRAME);
        self.set(Alu::Add, register, i32::from(offset));
    }

    /// Adds one to the 64 bits at `base`, whole for every processor.
    pub(super) fn count(&mut self, base: Register, one: Register) {
        self.add(0xdb, base, one, 0, 0);
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.add(0x85, 0, 0, 0, helper);
    }

    pub(super) fn exit(&mut self) {
        self.add(0x95, 0, 0, 0, 0);
    }

    /// The program; `None` if a jump has no place to go to, or one that is too far.
    pub(super) fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, place) in &self.jumps {
            let to = (*self.places.get(place.0)?)?;
            let distance = i64::try_from(to).ok()? - i64::try_from(*at).ok()? - 1;
            self.code.get_mut(*at)?.offset = i16::try_from(distance).ok()?;
        }
        Some(self.code)
    }
}

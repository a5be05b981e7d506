//! Socket filters: programs of the classic Berkeley packet filter (`SO_ATTACH_FILTER`; McCanne and Jacobson, "The BSD
//! Packet Filter"; Linux's `networking/filter`), which say of each packet how many of its bytes a socket takes, 0 for
//! none.
//!
//! A program is checked once ([`Filter::new`]) and then run as it is. Its jumps go forward only, so a run takes no more
//! steps than the program has instructions; what it loads beyond the packet ends it with 0, as on Linux.
//!
//! Neighbours: [`super::options`] keeps a socket's filter; packet sockets, UDP and raw sockets ask it.

mod check;
mod place;

#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::Result;
use crate::reserve;

/// Instructions of a program (`BPF_MAXINSNS`).
pub const INSTRUCTION_COUNT_MAX: usize = 4096;
/// Words that a program may keep (`BPF_MEMWORDS`).
pub const WORD_COUNT: usize = 16;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// What it does (`BPF_*`).
    pub code: u16,
    /// Instructions that are passed over if what it asks is true.
    pub jump_true: u8,
    /// The same if it is not.
    pub jump_false: u8,
    /// A number that it has.
    pub constant: u32,
}

/// What a program may ask of a packet beyond its bytes, from `SKF_AD_OFF` on.
mod ancillary {
    pub(super) const OFFSET: u32 = 0xffff_f000;
    pub(super) const PROTOCOL: u32 = 0;
    pub(super) const PACKET_KIND: u32 = 4;
    pub(super) const INTERFACE: u32 = 8;
    pub(super) const HARDWARE_KIND: u32 = 28;
    pub(super) const XOR_X: u32 = 40;
    pub(super) const PAYLOAD_OFFSET: u32 = 52;
    pub(super) const RANDOM: u32 = 56;
    /// Offsets are every fourth number up to this one (`SKF_AD_VLAN_TPID`).
    pub(super) const LAST: u32 = 60;
}

/// From here on offsets begin at the network's header (`SKF_NET_OFF`), and at the link's (`SKF_LL_OFF`).
const NETWORK_OFFSET: u32 = 0xfff0_0000;
const LINK_OFFSET: u32 = 0xffe0_0000;

/// A packet as a program sees it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// All of its bytes, one part after the other, from the link's header on if it has one.
    pub parts: &'a [&'a [u8]],
    /// Which of them is the program's byte 0.
    pub begin_bytes: usize,
    /// Where the network's header begins.
    pub network_bytes: usize,
    /// `ETH_P_*`.
    pub protocol: u16,
    /// `PACKET_*`.
    pub kind: u8,
    /// The interface's number.
    pub interface: u32,
    /// `ARPHRD_*`.
    pub hardware_kind: u16,
    /// What a program is told that asks for a number by chance.
    pub random: u32,
}

impl Packet<'_> {
    /// Bytes that the program sees.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>().saturating_sub(self.begin_bytes)
    }

    /// Copies what begins at `offset`; false: the packet ends before.
    fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        let (mut offset, mut done) = (offset, 0);
        for part in self.parts {
            if offset >= part.len() {
                offset -= part.len();
                continue;
            }
            let count = (part.len() - offset).min(into.len() - done);
            into[done..done + count].copy_from_slice(&part[offset..offset + count]);
            (offset, done) = (0, done + count);
            if done == into.len() {
                return true;
            }
        }
        into.is_empty()
    }

    /// A number of `byte_count` bytes at an offset as programs give it. `None`: it is not there.
    fn load(&self, offset: u32, byte_count: usize) -> Option<u32> {
        let (base, offset) = match offset {
            0..=0x7fff_ffff => (self.begin_bytes, offset),
            NETWORK_OFFSET.. => (self.network_bytes, offset - NETWORK_OFFSET),
            LINK_OFFSET.. => (0, offset - LINK_OFFSET),
            _ => return None,
        };
        let mut bytes = [0; 4];
        let at = base.checked_add(offset as usize)?;
        self.read(at, &mut bytes[4 - byte_count..]).then(|| u32::from_be_bytes(bytes))
    }

    /// What an instruction asks that loads no bytes. Marks, queues, hashes and VLANs are not there, so 0.
    fn property(&self, which: u32) -> u32 {
        match which {
            ancillary::PROTOCOL => u32::from(self.protocol),
            ancillary::PACKET_KIND => u32::from(self.kind),
            ancillary::INTERFACE => self.interface,
            ancillary::HARDWARE_KIND => u32::from(self.hardware_kind),
            ancillary::PAYLOAD_OFFSET => place::payload_offset(self),
            ancillary::RANDOM => self.random,
            _ => 0,
        }
    }
}

/// Classes and their parts of an instruction's code (`BPF_*`).
mod code {
    pub(super) const CLASS: u16 = 7;
    pub(super) const LOAD: u16 = 0;
    pub(super) const LOAD_X: u16 = 1;
    pub(super) const STORE: u16 = 2;
    pub(super) const STORE_X: u16 = 3;
    pub(super) const ARITHMETIC: u16 = 4;
    pub(super) const JUMP: u16 = 5;
    pub(super) const RETURN: u16 = 6;
    pub(super) const MISCELLANY: u16 = 7;
    /// Where the other operand comes from: X rather than the constant.
    pub(super) const FROM_X: u16 = 8;
    pub(super) const OPERATION: u16 = 0xf0;
    pub(super) const SIZE: u16 = 0x18;
    pub(super) const MODE: u16 = 0xe0;
    /// Modes.
    pub(super) const IMMEDIATE: u16 = 0x00;
    pub(super) const ABSOLUTE: u16 = 0x20;
    pub(super) const INDIRECT: u16 = 0x40;
    pub(super) const MEMORY: u16 = 0x60;
    pub(super) const LENGTH: u16 = 0x80;
    pub(super) const HEADER_LENGTH: u16 = 0xa0;
    /// Jumps.
    pub(super) const ALWAYS: u16 = 0x00;
    pub(super) const EQUAL: u16 = 0x10;
    pub(super) const GREATER: u16 = 0x20;
    pub(super) const NOT_LESS: u16 = 0x30;
    /// What `RETURN` returns: A rather than the constant.
    pub(super) const RETURN_A: u16 = 0x10;
    /// `TXA` rather than `TAX`.
    pub(super) const TO_A: u16 = 0x80;
}

/// Bytes that a load of this code has.
fn size_of(code: u16) -> usize {
    match code & code::SIZE {
        0 => 4,
        8 => 2,
        _ => 1,
    }
}

/// Registers of a run.
#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
    words: [u32; WORD_COUNT],
}

impl Machine {
    /// What `LOAD` loads. `None`: it is beyond the packet.
    fn loaded(&self, instruction: &Instruction, packet: &Packet<'_>) -> Option<u32> {
        let constant = instruction.constant;
        Some(match instruction.code & code::MODE {
            code::ABSOLUTE if check::is_property(instruction) => match constant - ancillary::OFFSET {
                ancillary::XOR_X => self.a ^ self.x,
                which => packet.property(which),
            },
            code::ABSOLUTE => packet.load(constant, size_of(instruction.code))?,
            code::INDIRECT => packet.load(self.x.wrapping_add(constant), size_of(instruction.code))?,
            code::MEMORY => self.words[constant as usize % WORD_COUNT],
            code::LENGTH => packet.length_bytes() as u32,
            _ => constant,
        })
    }

    /// What `LOAD_X` loads.
    fn loaded_x(&self, instruction: &Instruction, packet: &Packet<'_>) -> Option<u32> {
        let constant = instruction.constant;
        Some(match instruction.code & code::MODE {
            code::HEADER_LENGTH => (packet.load(constant, 1)? & 0xf) << 2,
            code::MEMORY => self.words[constant as usize % WORD_COUNT],
            code::LENGTH => packet.length_bytes() as u32,
            _ => constant,
        })
    }

    /// What an arithmetic instruction makes of A. `None`: a division by 0.
    fn computed(&self, instruction: &Instruction) -> Option<u32> {
        let other = if instruction.code & code::FROM_X != 0 { self.x } else { instruction.constant };
        Some(match instruction.code & code::OPERATION {
            0x00 => self.a.wrapping_add(other),
            0x10 => self.a.wrapping_sub(other),
            0x20 => self.a.wrapping_mul(other),
            0x30 => self.a.checked_div(other)?,
            0x40 => self.a | other,
            0x50 => self.a & other,
            // As the processor does it: by the last five bits.
            0x60 => self.a.wrapping_shl(other),
            0x70 => self.a.wrapping_shr(other),
            0x80 => self.a.wrapping_neg(),
            0x90 => self.a.checked_rem(other)?,
            _ => self.a ^ other,
        })
    }

    /// How many instructions a jump passes over.
    fn jump(&self, instruction: &Instruction) -> usize {
        let other = if instruction.code & code::FROM_X != 0 { self.x } else { instruction.constant };
        let is_true = match instruction.code & code::OPERATION {
            code::ALWAYS => return instruction.constant as usize,
            code::EQUAL => self.a == other,
            code::GREATER => self.a > other,
            code::NOT_LESS => self.a >= other,
            _ => self.a & other != 0,
        };
        usize::from(if is_true { instruction.jump_true } else { instruction.jump_false })
    }
}

/// A program that was checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Filter(Vec<Instruction>);

impl Filter {
    /// Checks a program.
    ///
    /// # Errors
    /// `EINVAL`: it has no instructions or more than [`INSTRUCTION_COUNT_MAX`], one that is not known or divides by 0,
    /// a jump beyond its end, a load of a word that was not stored on every way there, or its end does not return.
    /// `ENOMEM`.
    pub fn new(instructions: Vec<Instruction>) -> Result<Arc<Self>> {
        check::check(&instructions)?;
        reserve::check()?;
        Ok(Arc::new(Self(instructions)))
    }

    /// Its instructions.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// How many bytes of a packet are taken; 0: the packet is not.
    #[must_use]
    pub fn run(&self, packet: &Packet<'_>) -> usize {
        self.outcome(packet).unwrap_or(0) as usize
    }

    fn outcome(&self, packet: &Packet<'_>) -> Option<u32> {
        let mut machine = Machine::default();
        let mut at = 0;
        // Forward only, so this ends.
        while let Some(instruction) = self.0.get(at) {
            at += 1;
            match instruction.code & code::CLASS {
                code::LOAD => machine.a = machine.loaded(instruction, packet)?,
                code::LOAD_X => machine.x = machine.loaded_x(instruction, packet)?,
                code::STORE => machine.words[instruction.constant as usize % WORD_COUNT] = machine.a,
                code::STORE_X => machine.words[instruction.constant as usize % WORD_COUNT] = machine.x,
                code::ARITHMETIC => machine.a = machine.computed(instruction)?,
                code::JUMP => at += machine.jump(instruction),
                code::RETURN if instruction.code & 0x18 == code::RETURN_A => return Some(machine.a),
                code::RETURN => return Some(instruction.constant),
                _ if instruction.code & code::TO_A != 0 => machine.a = machine.x,
                _ => machine.x = machine.a,
            }
        }
        None
    }
}

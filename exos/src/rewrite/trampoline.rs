//! The bytes of a trampoline and of the jump to it.
//!
//! A trampoline is the copies of the instructions before the `syscall`; `lea` of the return address into RCX and of
//! the place to go on at into R11; a jump through a word at GS, which is exos's entry; and, where instructions behind
//! the `syscall` were replaced too, their copies and a jump back. All of it is relative to where it stands or to GS,
//! so that text and trampoline together are the same bytes in every process that has them at the same distance.

use alloc::vec::Vec;

use super::plan::{JUMP_BYTES, Plan, SYSCALL_BYTES};

/// `jmp qword ptr gs:[...]` but for the offset: how a trampoline enters exos.
pub const ENTRY_JUMP: [u8; 4] = [0x65, 0xff, 0x24, 0x25];
/// Opcodes that fault in 64-bit user code whatever follows them: without meaning there (`#UD`), or privileged (HLT,
/// CLI, STI: `#GP`). Intel SDM vol. 2, opcode map; not among them is D5, which newer processors have given a meaning.
pub const TRAPPING: [u8; 21] = [
    0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0x82, 0x9a, 0xce, 0xd4, 0xea, 0xf4,
    0xfa, 0xfb,
];
/// Bytes between the two copies: two `lea` and a jump.
const ENTRY_BYTES: u64 = 7 + 7 + 8;
/// Longest trampoline.
pub const TRAMPOLINE_BYTES_MAX: u64 = 64;

/// A plan with a place for its trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Instructions that are replaced.
    pub plan: Plan,
    /// First byte of the trampoline.
    pub trampoline: u64,
}

impl Site {
    fn before_bytes(&self) -> u64 {
        self.plan.syscall - self.plan.jump
    }

    fn after_offset(&self) -> u64 {
        self.before_bytes() + ENTRY_BYTES
    }

    /// Bytes of the trampoline of a plan.
    #[must_use]
    pub fn length_bytes(plan: &Plan) -> u64 {
        let before = plan.syscall - plan.jump + ENTRY_BYTES;
        if plan.returns_in_place() { before } else { before + (plan.end - plan.syscall - SYSCALL_BYTES) + JUMP_BYTES }
    }

    /// Where the program goes on after the call.
    #[must_use]
    pub fn continuation(&self) -> u64 {
        if self.plan.returns_in_place() {
            self.plan.syscall + SYSCALL_BYTES
        } else {
            self.trampoline + self.after_offset()
        }
    }

    /// The copy of the instruction that began at `address`, if one of the replaced ones did.
    #[must_use]
    pub fn forward(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.plan.jump).filter(|offset| *offset < self.plan.end - self.plan.jump)?;
        if self.plan.starts & 1 << offset == 0 {
            return None;
        }
        let behind = offset.checked_sub(self.before_bytes() + SYSCALL_BYTES);
        Some(self.trampoline + behind.map_or(offset, |behind| self.after_offset() + behind))
    }

    /// The address in the program's own text that `address` of the trampoline stands for: of the instruction of which
    /// it is a copy; between the copies, of the `syscall` (RCX and R11 it would change itself); at the jump back, of
    /// what follows.
    #[must_use]
    pub fn original(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.trampoline).filter(|offset| *offset < Self::length_bytes(&self.plan))?;
        if offset < self.before_bytes() {
            return Some(self.plan.jump + offset);
        }
        match offset.checked_sub(self.after_offset()) {
            None => Some(self.plan.syscall),
            Some(behind) => Some((self.plan.syscall + SYSCALL_BYTES + behind).min(self.plan.end)),
        }
    }

    /// The trampoline's bytes; `original` are the program's from `plan.jump` to `plan.end`, `entry_offset` is that of
    /// exos's entry from GS.
    #[must_use]
    pub fn encode(&self, original: &[u8], entry_offset: u32) -> Vec<u8> {
        let before = self.before_bytes() as usize;
        let mut bytes = Vec::with_capacity(TRAMPOLINE_BYTES_MAX as usize);
        bytes.extend_from_slice(&original[..before]);
        // lea rcx, [rip + ...]; lea r11, [rip + ...]
        self.relative(&mut bytes, &[0x48, 0x8d, 0x0d], self.plan.syscall + SYSCALL_BYTES);
        self.relative(&mut bytes, &[0x4c, 0x8d, 0x1d], self.continuation());
        bytes.extend_from_slice(&ENTRY_JUMP);
        bytes.extend_from_slice(&entry_offset.to_le_bytes());
        if !self.plan.returns_in_place() {
            bytes.extend_from_slice(&original[before + SYSCALL_BYTES as usize..]);
            self.relative(&mut bytes, &[0xe9], self.plan.end);
        }
        bytes
    }

    /// Appends an instruction that ends in the distance to `target`. Both are in reach: the place was chosen so.
    fn relative(&self, bytes: &mut Vec<u8>, opcode: &[u8], target: u64) {
        bytes.extend_from_slice(opcode);
        let next = self.trampoline + bytes.len() as u64 + 4;
        bytes.extend_from_slice(&(target.wrapping_sub(next) as i32).to_le_bytes());
    }

    /// The jump's bytes.
    #[must_use]
    pub fn jump(&self) -> [u8; JUMP_BYTES as usize] {
        let distance = (self.trampoline.wrapping_sub(self.plan.jump + JUMP_BYTES) as i32).to_le_bytes();
        [0xe9, distance[0], distance[1], distance[2], distance[3]]
    }

    /// Whether the trampoline is in reach and every replaced instruction start reads as an opcode that faults.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        let distance = self.trampoline.wrapping_sub(self.plan.jump + JUMP_BYTES).cast_signed();
        // A page of slack: the trampoline's own distances reach a little further.
        let reach = i64::from(i32::MAX) - 4096;
        let jump = self.jump();
        (-reach..=reach).contains(&distance)
            && self.plan.interior().all(|offset| TRAPPING.contains(&jump[offset as usize]))
    }
}

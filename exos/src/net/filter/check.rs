//! What a filter has to be before it is run, as Linux asks it (`bpf_check_classic`).

use super::code::{
    ABSOLUTE, ALWAYS, ARITHMETIC, CLASS, FROM_X, HEADER_LENGTH, IMMEDIATE, INDIRECT, JUMP, LENGTH, LOAD, LOAD_X,
    MEMORY, MISCELLANY, MODE, OPERATION, RETURN, RETURN_A, SIZE, STORE, STORE_X, TO_A,
};
use super::{INSTRUCTION_COUNT_MAX, Instruction, WORD_COUNT, ancillary};
use crate::error::{Errno, Result};
use crate::reserve;

/// Operations of arithmetic by their numbers: negation, which has no other operand; the last, `BPF_XOR`.
const NEGATE: u16 = 0x80;
const ARITHMETIC_LAST: u16 = 0xa0;
const DIVIDE: u16 = 0x30;
const SHIFT_LEFT: u16 = 0x60;
const SHIFT_RIGHT: u16 = 0x70;
const REMAINDER: u16 = 0x90;
/// The last jump, `BPF_JSET`.
const JUMP_LAST: u16 = 0x40;
/// The size of a whole word, and of a byte.
const WORD: u16 = 0;
const BYTE: u16 = 0x10;

/// Whether a load asks for a property of the packet rather than its bytes.
pub(super) fn is_property(instruction: &Instruction) -> bool {
    let is_load = instruction.code & CLASS == LOAD && instruction.code & MODE == ABSOLUTE;
    let which = instruction.constant.wrapping_sub(ancillary::OFFSET);
    is_load && instruction.constant >= ancillary::OFFSET && which <= ancillary::LAST && which.is_multiple_of(4)
}

fn is_known(code: u16) -> bool {
    let (size, mode) = (code & SIZE, code & MODE);
    // Every code of a class has its bits in one byte.
    if code > 0xff {
        return false;
    }
    match code & CLASS {
        LOAD if [ABSOLUTE, INDIRECT].contains(&mode) => size <= BYTE,
        LOAD => size == WORD && [IMMEDIATE, MEMORY, LENGTH].contains(&mode),
        LOAD_X if mode == HEADER_LENGTH => size == BYTE,
        LOAD_X => size == WORD && [IMMEDIATE, MEMORY, LENGTH].contains(&mode),
        STORE | STORE_X => code & !CLASS == 0,
        ARITHMETIC if code & OPERATION == NEGATE => code & FROM_X == 0,
        ARITHMETIC => code & OPERATION <= ARITHMETIC_LAST,
        JUMP if code & OPERATION == ALWAYS => code & FROM_X == 0,
        JUMP => code & OPERATION <= JUMP_LAST,
        RETURN => [0, RETURN_A].contains(&(code & !CLASS)),
        MISCELLANY => [0, TO_A].contains(&(code & !CLASS)),
        _ => false,
    }
}

/// Whether an instruction is right by itself, with `left` instructions behind it.
fn is_right(instruction: &Instruction, left: usize) -> bool {
    let Instruction { code, jump_true, jump_false, constant } = *instruction;
    let is_word = (constant as usize) < WORD_COUNT;
    match code & CLASS {
        ARITHMETIC if code & FROM_X == 0 => match code & OPERATION {
            DIVIDE | REMAINDER => constant != 0,
            SHIFT_LEFT | SHIFT_RIGHT => constant < 32,
            _ => true,
        },
        LOAD | LOAD_X if code & MODE == MEMORY => is_word,
        STORE | STORE_X => is_word,
        LOAD if code & MODE == ABSOLUTE => constant < ancillary::OFFSET || is_property(instruction),
        JUMP if code & OPERATION == ALWAYS => (constant as usize) < left,
        JUMP => usize::from(jump_true.max(jump_false)) < left,
        _ => true,
    }
}

/// Checks a program; see [`super::Filter::new`].
pub(super) fn check(instructions: &[Instruction]) -> Result<()> {
    if !(1..=INSTRUCTION_COUNT_MAX).contains(&instructions.len()) {
        return Err(Errno::EINVAL);
    }
    for (index, instruction) in instructions.iter().enumerate() {
        let left = instructions.len() - index - 1;
        if !is_known(instruction.code) || !is_right(instruction, left) {
            return Err(Errno::EINVAL);
        }
    }
    match instructions.last() {
        Some(last) if last.code & CLASS == RETURN => check_words(instructions),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether each word was stored on every way to where it is loaded. What no way leads to may load anything.
fn check_words(instructions: &[Instruction]) -> Result<()> {
    let mut stored_at = reserve::vector(instructions.len())?;
    stored_at.resize(instructions.len(), u16::MAX);
    let mut stored = 0_u16;
    for (index, instruction) in instructions.iter().enumerate() {
        stored &= stored_at[index];
        let word = 1_u16.wrapping_shl(instruction.constant);
        match instruction.code & CLASS {
            STORE | STORE_X => stored |= word,
            LOAD | LOAD_X if instruction.code & MODE == MEMORY && stored & word == 0 => return Err(Errno::EINVAL),
            JUMP => {
                let (first, second) = match instruction.code & OPERATION {
                    ALWAYS => (instruction.constant as usize, instruction.constant as usize),
                    _ => (usize::from(instruction.jump_true), usize::from(instruction.jump_false)),
                };
                stored_at[index + 1 + first] &= stored;
                stored_at[index + 1 + second] &= stored;
                stored = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

//! Which instructions around a `syscall` give way to a jump.
//!
//! The whole function is decoded from its first byte: only so is it certain where instructions begin, and which direct
//! jumps there are. Indirect jumps are not followed; what they could do wrong is caught by the trapping bytes (see the
//! module above). Candidates are the jump's places, each at the start of an instruction; the one with the fewest
//! replaced instruction starts wins, so `mov $number,%eax; syscall` loses only its `mov`.

use alloc::vec::Vec;

use yaxpeax_arch::LengthedInstruction;
use yaxpeax_x86::amd64::{InstDecoder, Instruction, Opcode, Operand, RegSpec};

use super::Refusal;

/// Bytes of a `syscall` instruction.
pub const SYSCALL_BYTES: u64 = 2;
/// Bytes of the jump.
pub const JUMP_BYTES: u64 = 5;
/// Longest function that is decoded.
pub const FUNCTION_BYTES_MAX: usize = 32 * 1024;
/// How far before the `syscall` the jump may stand.
const BEFORE_BYTES_MAX: u64 = 24;
/// How far behind the `syscall` instructions may be moved.
const AFTER_BYTES_MAX: u64 = 12;

/// Instructions that give way to the jump, and those of them that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the jump goes.
    pub jump: u64,
    /// The `syscall`, at or behind `jump`.
    pub syscall: u64,
    /// First address behind the instructions that the trampoline copies.
    pub end: u64,
    /// Bit n: an instruction of `jump..end` begins at `jump + n`.
    pub starts: u64,
}

impl Plan {
    /// Offsets from `jump` of replaced instruction starts inside the five bytes, without 0.
    pub fn interior(&self) -> impl Iterator<Item = u64> {
        let starts = self.starts;
        (1..JUMP_BYTES).filter(move |offset| starts & 1 << offset != 0)
    }

    /// Whether execution goes on behind the `syscall` where it stood, rather than in the trampoline.
    #[must_use]
    pub fn returns_in_place(&self) -> bool {
        self.end == self.syscall + SYSCALL_BYTES && self.jump + JUMP_BYTES <= self.end
    }
}

/// What an instruction is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// May be executed anywhere.
    Movable,
    /// The `syscall` itself.
    Site,
    /// Anything else.
    Fixed,
}

/// An instruction near the site.
#[derive(Clone, Copy, Debug)]
struct Step {
    address: u64,
    end: u64,
    kind: Kind,
}

/// What decoding the function shows.
#[derive(Default)]
struct Survey {
    near: Vec<Step>,
    targets: Vec<u64>,
}

/// Decides what to replace at `syscall` in the function of `code` that begins at `start`.
pub fn plan(start: u64, code: &[u8], syscall: u64) -> Result<Plan, Refusal> {
    let survey = survey(start, code, syscall)?;
    let site = survey.near.iter().position(|step| step.kind == Kind::Site).ok_or(Refusal::NotAnInstruction)?;
    // A jump to where nothing begins: the bytes were read in another rhythm than they are executed in.
    if survey.targets.iter().any(|target| survey.near.iter().all(|step| step.address != *target)) {
        return Err(Refusal::Undecodable);
    }
    let mut best: Option<(u64, Plan)> = None;
    for first in (0..=site).rev() {
        if survey.near[first].kind == Kind::Fixed {
            break;
        }
        let Some(candidate) = candidate(&survey, first, site) else { continue };
        let is_whole = candidate.jump + JUMP_BYTES <= syscall;
        // A jump to behind the jump meets the `syscall` and traps as before: right, but nothing is won.
        let is_bypassed = survey.targets.iter().any(|target| *target > candidate.jump && *target <= syscall);
        let cost = candidate.interior().count() as u64 * 2 + u64::from(!is_whole) + u64::from(is_bypassed) * 16;
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, candidate));
        }
    }
    best.map(|(_, plan)| plan).ok_or(Refusal::NoRoom)
}

/// The plan with its jump at step `first`, if one is possible.
fn candidate(survey: &Survey, first: usize, site: usize) -> Option<Plan> {
    let near = &survey.near;
    let (jump, syscall) = (near[first].address, near[site].address);
    if syscall - jump > BEFORE_BYTES_MAX {
        return None;
    }
    let mut starts = 0;
    let mut end = jump;
    for step in &near[first..] {
        if step.address >= syscall + SYSCALL_BYTES && end >= jump + JUMP_BYTES {
            break;
        }
        // Nothing between two steps is unknown, and behind the site only what moves may be moved.
        if step.address != end || step.kind == Kind::Fixed || step.end > syscall + AFTER_BYTES_MAX {
            return None;
        }
        starts |= 1 << (step.address - jump);
        end = step.end;
    }
    let plan = Plan { jump, syscall, end, starts };
    let is_covered = end >= jump + JUMP_BYTES && end >= syscall + SYSCALL_BYTES;
    let is_entered = survey.targets.iter().any(|target| *target > jump && *target < jump + JUMP_BYTES);
    // A byte of the jump's distance that far up cannot be chosen.
    let is_trappable = plan.interior().all(|offset| offset < JUMP_BYTES - 1);
    (is_covered && !is_entered && is_trappable).then_some(plan)
}

/// Decodes the function; keeps what lies near the site.
fn survey(start: u64, code: &[u8], syscall: u64) -> Result<Survey, Refusal> {
    if code.len() > FUNCTION_BYTES_MAX {
        return Err(Refusal::FunctionTooLong);
    }
    let decoder = InstDecoder::default();
    let window = syscall.saturating_sub(BEFORE_BYTES_MAX)..syscall + SYSCALL_BYTES + AFTER_BYTES_MAX;
    let mut survey = Survey::default();
    let mut offset = 0;
    while let Some(rest) = code.get(offset..).filter(|rest| !rest.is_empty()) {
        let instruction = decoder.decode_slice(rest).map_err(|_| Refusal::Undecodable)?;
        let length = instruction.len().to_const() as usize;
        let address = start + offset as u64;
        offset += length;
        let end = start + offset as u64;
        if let Some(target) = jump_target(&instruction, end)
            && window.contains(&target)
            && target - start < code.len() as u64
        {
            survey.targets.push(target);
        }
        if window.contains(&address) {
            let kind = match instruction.opcode() {
                Opcode::SYSCALL if address == syscall => Kind::Site,
                opcode if is_movable(opcode) && !names_rip(&instruction) => Kind::Movable,
                _ => Kind::Fixed,
            };
            survey.near.push(Step { address, end, kind });
        }
    }
    Ok(survey)
}

/// Where a direct jump or call goes.
fn jump_target(instruction: &Instruction, end: u64) -> Option<u64> {
    use Opcode as O;
    let is_relative = matches!(
        instruction.opcode(),
        O::JMP
            | O::CALL
            | O::JO
            | O::JNO
            | O::JB
            | O::JNB
            | O::JZ
            | O::JNZ
            | O::JA
            | O::JNA
            | O::JS
            | O::JNS
            | O::JP
            | O::JNP
            | O::JL
            | O::JGE
            | O::JLE
            | O::JG
            | O::LOOP
            | O::LOOPZ
            | O::LOOPNZ
            | O::JRCXZ
            | O::JECXZ
            | O::XBEGIN
    );
    match instruction.operand(0) {
        Operand::ImmediateI8 { imm } if is_relative => Some(end.wrapping_add_signed(i64::from(imm))),
        Operand::ImmediateI32 { imm } if is_relative => Some(end.wrapping_add_signed(i64::from(imm))),
        _ => None,
    }
}

/// Instructions that do the same wherever they stand, as long as they do not name RIP. Those that are left out are
/// rare beside a `syscall`.
fn is_movable(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::MOV
            | O::MOVSX
            | O::MOVSXD
            | O::MOVZX
            | O::LEA
            | O::ADD
            | O::SUB
            | O::AND
            | O::OR
            | O::XOR
            | O::CMP
            | O::TEST
            | O::INC
            | O::DEC
            | O::NEG
            | O::NOT
            | O::SHL
            | O::SHR
            | O::SAR
            | O::PUSH
            | O::POP
            | O::NOP
            | O::CDQE
    )
}

/// Whether an operand is relative to RIP.
fn names_rip(instruction: &Instruction) -> bool {
    (0..instruction.operand_count()).any(|index| match instruction.operand(index) {
        Operand::MemDeref { base } | Operand::Disp { base, .. } => base == RegSpec::RIP,
        _ => false,
    })
}

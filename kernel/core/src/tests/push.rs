//! Where an exception pushes its registers: the machine's `trap.s` against `push_address`, for every stack pointer that
//! makes a difference.
//!
//! The instructions of `trap.s` that compute the place are read from its text and followed here, so what is compared is
//! what runs. What they take from the processor's words is computed as `ContextPlaces::new` does, and its text is
//! looked at too.

use std::string::ToString;
use std::vec::Vec;

use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, PAGE_SIZE};
use aegis_abi::upcall::UpcallFrame;

use crate::object::{Pages, SAVE_AREA_FRAME_COUNT_MAX};
use crate::processor::push_address;

const TRAP: &str = include_str!("../../../machine/src/x86_64/trap.s");
const PLACES: &str = include_str!("../../../machine/src/x86_64/processor.rs");
const FRAME_BYTES: u64 = size_of::<UpcallFrame>() as u64;
/// Where the kernel sees the frames of the save area.
const DIRECT: u64 = 0xffff_c000_1234_5000;

/// One instruction on RAX and the carry and zero flags.
#[derive(Clone, Copy, Debug)]
enum Step {
    LoadStackPointer,
    Load(usize),
    SubtractWord(usize),
    CompareWord(usize),
    IfNotAbove,
}

/// The number of one of the processor's words, from `gs:[{save_area} + 8]`.
fn word_index(operand: &str) -> Option<usize> {
    let inner = operand.strip_prefix("gs:[{save_area}")?.strip_suffix(']')?;
    if inner.is_empty() { Some(0) } else { Some(inner.strip_prefix(" + ")?.parse::<usize>().ok()? / 8) }
}

fn step(line: &str) -> Step {
    let code = line.split('#').next().unwrap_or("").trim();
    let (name, operands) = code.split_once(' ').unwrap_or((code, ""));
    let operand = operands.strip_prefix("rax, ").unwrap_or(operands);
    let found = match name {
        "mov" if operand == "[rsp + 64]" => Some(Step::LoadStackPointer),
        "mov" => word_index(operand).map(Step::Load),
        "sub" => word_index(operand).map(Step::SubtractWord),
        "cmp" => word_index(operand).map(Step::CompareWord),
        "jbe" if operand == "8f" => Some(Step::IfNotAbove),
        _ => None,
    };
    found.unwrap_or_else(|| panic!("not an instruction that this test knows: {code}"))
}

/// The instructions from the one that loads the stack pointer to the one before the place is used.
fn instructions() -> Vec<Step> {
    let body = TRAP.split("trap_exception:").nth(1).expect("the entry is there");
    let lines = body.lines().skip_while(|line| !line.contains("mov rax, [rsp + 64]"));
    lines.take_while(|line| !line.contains(".set place")).map(step).collect()
}

/// What the instructions come to: the user's address of the pushed registers; `None` if the core is to push them.
fn follow(steps: &[Step], words: [u64; 4], rsp: u64) -> Option<u64> {
    let (mut rax, mut is_above) = (0_u64, false);
    for step in steps {
        match *step {
            Step::LoadStackPointer => rax = rsp,
            Step::Load(word) => rax = words[word],
            Step::SubtractWord(word) => rax = rax.wrapping_sub(words[word]),
            Step::CompareWord(word) => is_above = rax > words[word],
            Step::IfNotAbove if is_above => {}
            Step::IfNotAbove => return None,
        }
    }
    Some(rax.wrapping_sub(words[3]))
}

#[test]
fn the_machine_pushes_where_the_core_would() {
    let text: std::string::String = PLACES.split_whitespace().collect::<Vec<_>>().join(" ");
    let computed = "save_area: [ save_area_base - PAGE_SIZE, save_area_bytes + PAGE_SIZE, \
                    direct + save_area_bytes - size_of::<UpcallFrame>() as u64, direct.wrapping_sub(save_area_base), ]";
    assert!(text.contains(&computed.to_string()), "the words are computed in another way");
    let instructions = instructions();
    let mut places = 0;
    for frame_count in [1, 2, 3, u64::from(SAVE_AREA_FRAME_COUNT_MAX)] {
        let bytes = frame_count * PAGE_SIZE;
        for base in [LIBOS_BASE, LIBOS_BASE + 0x7000, LIBOS_END - bytes] {
            let words = [base - PAGE_SIZE, bytes + PAGE_SIZE, DIRECT + bytes - FRAME_BYTES, DIRECT.wrapping_sub(base)];
            let pages =
                Pages { first_frame: 77, save_area_frame_count: frame_count, control_address: 0, save_area_base: base };
            let near = (base - 2 * PAGE_SIZE..base + 2 * PAGE_SIZE).chain(base + bytes - PAGE_SIZE..base + bytes + 600);
            let far = (0..5000).chain(u64::MAX - 5000..=u64::MAX);
            let edges = (0..64).flat_map(|bit| [1 << bit, (1_u64 << bit) - 1, !(1 << bit), base ^ 1 << bit]);
            for rsp in near.chain(far).chain(edges) {
                let is_elsewhere = !(base - PAGE_SIZE..=base + bytes).contains(&rsp);
                let expected = push_address(&pages, rsp).filter(|_| is_elsewhere);
                assert_eq!(follow(&instructions, words, rsp), expected, "{rsp:#x} of {base:#x}, {frame_count}");
                places += usize::from(expected.is_some());
            }
        }
    }
    assert!(places > 100_000, "most have a place");
}

//! Where an exception pushes its registers: the machine's `trap.s` against `push_address`, for every stack pointer that
//! makes a difference.
//!
//! The instructions of `trap.s` that compute the place are read from its text and followed here, so what is compared is
//! what runs. What they take from the processor's words is computed as `ContextPlaces::new` does, and its text is
//! looked at too.

use std::string::ToString;
use std::vec::Vec;

use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, PAGE_SIZE};
use aegis_abi::upcall::{RED_ZONE_BYTES, UpcallFrame};

use crate::processor::{Pages, SAVE_AREA_FRAME_COUNT_MAX, push_address};

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
    Subtract(u64),
    SubtractWord(usize),
    CompareWord(usize),
    And(u64),
    AddWord(usize),
    /// To the place at the top.
    IfAbove,
    /// There is no room.
    IfBelow,
}

/// The number of one of the processor's words, from `gs:[{save_area} + 8]`.
fn word_index(operand: &str) -> Option<usize> {
    let inner = operand.strip_prefix("gs:[{save_area}")?.strip_suffix(']')?;
    if inner.is_empty() { Some(0) } else { Some(inner.strip_prefix(" + ")?.parse::<usize>().ok()? / 8) }
}

/// A sum of constants that `trap.rs` names.
fn constant(operand: &str) -> Option<u64> {
    let value = |name: &str| match name.trim() {
        "{page_bytes}" => Some(PAGE_SIZE),
        "{red_zone_bytes}" => Some(RED_ZONE_BYTES),
        "{frame_bytes}" => Some(FRAME_BYTES),
        number => number.parse::<i64>().ok().map(|number| number as u64),
    };
    operand.split(" + ").map(value).try_fold(0, |sum: u64, value| Some(sum.wrapping_add(value?)))
}

fn step(line: &str) -> Step {
    let code = line.split('#').next().unwrap_or("").trim();
    let code = code.strip_prefix("1:").or(code.strip_prefix("7:")).unwrap_or(code).trim();
    let (name, operands) = code.split_once(' ').unwrap_or((code, ""));
    let operand = operands.strip_prefix("rax, ").unwrap_or(operands);
    let found = match name {
        "mov" if operand == "[rsp + 64]" => Some(Step::LoadStackPointer),
        "mov" => word_index(operand).map(Step::Load),
        "sub" => word_index(operand).map(Step::SubtractWord).or_else(|| constant(operand).map(Step::Subtract)),
        "cmp" => word_index(operand).map(Step::CompareWord),
        "and" => constant(operand).map(Step::And),
        "add" => word_index(operand).map(Step::AddWord),
        "ja" if operand == "7f" => Some(Step::IfAbove),
        "jb" if operand == "8f" => Some(Step::IfBelow),
        _ => None,
    };
    found.unwrap_or_else(|| panic!("not an instruction that this test knows: {code}"))
}

/// The instructions from the one that loads the stack pointer to the one that makes the place an address, and the one
/// for elsewhere.
fn instructions() -> (Vec<Step>, Step) {
    let body = TRAP.split("trap_exception:").nth(1).expect("the entry is there");
    let lines: Vec<&str> = body.lines().skip_while(|line| !line.contains("mov rax, [rsp + 64]")).collect();
    let count = 1 + lines.iter().position(|line| line.starts_with("1:")).expect("its end is there");
    let elsewhere = lines.iter().position(|line| line.starts_with("7:")).expect("and the other place");
    assert_eq!(lines[elsewhere + 1].trim(), "jmp 1b");
    (lines[..count].iter().map(|line| step(line)).collect(), step(lines[elsewhere]))
}

/// What the instructions come to: the user's address of the pushed registers.
fn follow((steps, elsewhere): &(Vec<Step>, Step), words: [u64; 5], rsp: u64) -> Option<u64> {
    let (mut rax, mut is_below, mut is_above) = (0_u64, false, false);
    for step in steps {
        match *step {
            Step::LoadStackPointer => rax = rsp,
            Step::Load(word) => rax = words[word],
            Step::Subtract(value) => (rax, is_below) = rax.overflowing_sub(value),
            Step::SubtractWord(word) => (rax, is_below) = rax.overflowing_sub(words[word]),
            Step::CompareWord(word) => (is_below, is_above) = (rax < words[word], rax > words[word]),
            Step::And(value) => rax &= value,
            Step::AddWord(word) => rax = rax.wrapping_add(words[word]),
            Step::IfAbove if is_above => {
                let Step::Load(word) = *elsewhere else { panic!("the other place is a word") };
                // On to the last instruction.
                let Some(Step::AddWord(last)) = steps.last() else { panic!("which adds") };
                rax = words[word].wrapping_add(words[*last]);
                break;
            }
            Step::IfBelow if is_below => return None,
            Step::IfAbove | Step::IfBelow => {}
        }
    }
    Some(rax.wrapping_sub(words[4]))
}

#[test]
fn the_machine_pushes_where_the_core_would() {
    let text: std::string::String = PLACES.split_whitespace().collect::<Vec<_>>().join(" ");
    let computed = "save_area: [ save_area_base - PAGE_SIZE, save_area_bytes + PAGE_SIZE, \
                    save_area_bytes - size_of::<UpcallFrame>() as u64, direct, direct.wrapping_sub(save_area_base), ]";
    assert!(text.contains(&computed.to_string()), "the words are computed in another way");
    let instructions = instructions();
    let mut places = 0;
    for frame_count in [1, 2, 3, u64::from(SAVE_AREA_FRAME_COUNT_MAX)] {
        let bytes = frame_count * PAGE_SIZE;
        for base in [LIBOS_BASE, LIBOS_BASE + 0x7000, LIBOS_END - bytes] {
            let words = [base - PAGE_SIZE, bytes + PAGE_SIZE, bytes - FRAME_BYTES, DIRECT, DIRECT.wrapping_sub(base)];
            let pages =
                Pages { first_frame: 77, save_area_frame_count: frame_count, control_address: 0, save_area_base: base };
            let near = (base - 2 * PAGE_SIZE..base + 2 * PAGE_SIZE).chain(base + bytes - PAGE_SIZE..base + bytes + 600);
            let far = (0..5000).chain(u64::MAX - 5000..=u64::MAX);
            let edges = (0..64).flat_map(|bit| [1 << bit, (1_u64 << bit) - 1, !(1 << bit), base ^ 1 << bit]);
            for rsp in near.chain(far).chain(edges) {
                let expected = push_address(&pages, rsp);
                assert_eq!(follow(&instructions, words, rsp), expected, "{rsp:#x} of {base:#x}, {frame_count}");
                places += usize::from(expected.is_some());
            }
        }
    }
    assert!(places > 100_000, "most have a place");
}

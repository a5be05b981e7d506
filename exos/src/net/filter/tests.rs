//! Programs as they are, and any programs against a model that walks every way by itself.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{Filter, Instruction, Packet, WORD_COUNT};
use crate::error::Errno;

fn op(code: u16, jump_true: u8, jump_false: u8, constant: u32) -> Instruction {
    Instruction { code, jump_true, jump_false, constant }
}

fn packet<'a>(parts: &'a [&'a [u8]]) -> Packet<'a> {
    Packet {
        parts,
        begin_bytes: 0,
        network_bytes: 14,
        protocol: 0x0800,
        kind: 4,
        interface: 2,
        hardware_kind: 1,
        random: 77,
    }
}

fn taken(program: &[Instruction], bytes: &[u8]) -> usize {
    let filter = Filter::new(program.to_vec()).expect("a program that is right");
    let whole = filter.run(&packet(&[bytes]));
    // In however many parts the bytes are.
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    assert_eq!(whole, filter.run(&packet(&[first, &[], rest])));
    whole
}

/// `tcpdump -dd icmp`.
fn icmp_program() -> [Instruction; 6] {
    [
        op(0x28, 0, 0, 12),
        op(0x15, 0, 3, 0x800),
        op(0x30, 0, 0, 23),
        op(0x15, 0, 1, 1),
        op(0x06, 0, 0, 262_144),
        op(0x06, 0, 0, 0),
    ]
}

#[test]
fn what_tcpdump_makes_of_icmp_takes_icmp() {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[23] = 1;
    assert_eq!(taken(&icmp_program(), &frame), 262_144);
    frame[23] = 17;
    assert_eq!(taken(&icmp_program(), &frame), 0);
    // Beyond the packet: nothing.
    assert_eq!(taken(&icmp_program(), &[0; 13]), 0);
}

#[test]
fn properties_and_negative_offsets() {
    let mut frame: Vec<u8> = (0..60).collect();
    frame[14] = 0x45;
    frame[20..22].fill(0);
    frame[23] = 17;
    let ask = |offset: i32| taken(&[op(0x20, 0, 0, offset as u32), op(0x16, 0, 0, 0)], &frame);
    assert_eq!(ask(-0x1000), 0x800);
    assert_eq!(ask(-0x1000 + 4), 4);
    assert_eq!(ask(-0x1000 + 8), 2);
    assert_eq!(ask(-0x1000 + 28), 1);
    assert_eq!(ask(-0x1000 + 52), 14 + 20 + 8);
    assert_eq!(ask(-0x1000 + 56), 77);
    assert_eq!(ask(-0x1000 + 20), 0);
    assert_eq!(ask(-0x10_0000), 0x450f_1011);
    assert_eq!(ask(-0x20_0000 + 1), 0x0102_0304);
    assert_eq!(ask(-0x20_0000 + 58), 0);
    // X may lead there as well, and to nowhere.
    let indirect = |x: u32| taken(&[op(0x01, 0, 0, x), op(0x50, 0, 0, 1), op(0x16, 0, 0, 0)], &frame);
    assert_eq!((indirect(4), indirect(u32::MAX), indirect(0xfff0_0000), indirect(0x8000_0000)), (5, 0, 15, 0));
}

#[test]
fn what_is_wrong_is_refused() {
    let end = op(0x06, 0, 0, 1);
    let refused = |program: &[Instruction]| Filter::new(program.to_vec()).err() == Some(Errno::EINVAL);
    assert!(refused(&[]) && refused(&vec![end; 4097]) && !refused(&vec![end; 4096]));
    assert!(refused(&[op(0x00, 0, 0, 1)]), "no return at the end");
    assert!(
        refused(&[op(0x05, 0, 0, 1), end]) && refused(&[op(0x15, 0, 1, 1), end]) && refused(&[end, op(5, 0, 0, 0)])
    );
    assert!(!refused(&[op(0x05, 0, 0, 0), end]) && refused(&[op(0x05, 0, 0, u32::MAX), end]));
    assert!(
        refused(&[op(0x34, 0, 0, 0), end]) && refused(&[op(0x94, 0, 0, 0), end]) && !refused(&[op(0x3c, 0, 0, 0), end])
    );
    assert!(refused(&[op(0x64, 0, 0, 32), end]) && !refused(&[op(0x64, 0, 0, 31), end]));
    assert!(refused(&[op(0x02, 0, 0, 16), end]) && refused(&[op(0x60, 0, 0, 0), end]), "words");
    for code in [0x18, 0x99, 0x0e, 0x1f, 0x81 | 8, 0xb4, 0x106, 0x55 | 8, 0x8c, 0x0d] {
        assert!(refused(&[op(code, 0, 0, 1), end]), "{code:#x}");
    }
    // Unknown properties, but not unknown places.
    assert!(refused(&[op(0x20, 0, 0, 0xffff_f001), end]) && refused(&[op(0x20, 0, 0, 0xffff_f040), end]));
    assert!(!refused(&[op(0x20, 0, 0, 0x8000_0000), end]) && !refused(&[op(0x40, 0, 0, 0xffff_f001), end]));
    // On one of two ways it was not stored.
    let one_way = [op(0x15, 1, 0, 3), op(0x02, 0, 0, 5), op(0x60, 0, 0, 5), end];
    assert!(refused(&one_way));
    assert!(!refused(&[&[op(0x02, 0, 0, 5)][..], &one_way].concat()));
}

/// Whether some way through the program is wrong: every way is walked.
fn is_wrong(program: &[Instruction], at: usize, stored: u32) -> bool {
    let Some(instruction) = program.get(at) else { return true };
    let Instruction { code, jump_true, jump_false, constant } = *instruction;
    match code {
        // As Linux has it, words are looked at as if a return went on.
        0x06 | 0x16 => at + 1 < program.len() && is_wrong(program, at + 1, stored),
        0x02 | 0x03 => constant > 15 || is_wrong(program, at + 1, stored | 1 << constant),
        0x60 | 0x61 => constant > 15 || stored >> constant & 1 == 0 || is_wrong(program, at + 1, stored),
        0x05 => constant > 100 || is_wrong(program, at + 1 + constant as usize, stored),
        _ if code & 7 == 5 => {
            [jump_true, jump_false].iter().any(|jump| is_wrong(program, at + 1 + usize::from(*jump), stored))
        }
        _ => is_wrong(program, at + 1, stored),
    }
}

/// What an instruction makes of two numbers; `None`: the program ends.
fn computed(code: u16, a: u64, other: u64) -> Option<u64> {
    match code {
        0x04 | 0x0c => Some(a + other),
        0x14 | 0x1c => Some(a + (1 << 32) - other),
        0x24 | 0x2c => Some(a * other),
        0x34 | 0x3c => a.checked_div(other),
        0x94 | 0x9c => a.checked_rem(other),
        0x44 | 0x4c => Some(a | other),
        0x54 | 0x5c => Some(a & other),
        0xa4 | 0xac => Some(a ^ other),
        0x64 | 0x6c => Some(a << (other % 32)),
        0x74 | 0x7c => Some(a >> (other % 32)),
        _ => Some((1 << 32) - a),
    }
}

/// Whether a jump goes where it goes if its condition holds.
fn is_true(code: u16, a: u64, other: u64) -> bool {
    match code & 0xf0 {
        0x10 => a == other,
        0x20 => a > other,
        0x30 => a >= other,
        _ => a & other != 0,
    }
}

/// What a program says of a packet, in numbers that cannot overflow.
fn model(program: &[Instruction], bytes: &[u8]) -> u64 {
    let (mut a, mut x, mut words, mut at) = (0_u64, 0_u64, [0_u64; WORD_COUNT], 0);
    let load = |offset: u64, size: usize| {
        let at = usize::try_from(offset & 0xffff_ffff).ok()?;
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    loop {
        let Instruction { code, jump_true, jump_false, constant } = program[at];
        let constant = u64::from(constant);
        let other = if code & 8 != 0 { x } else { constant };
        at += 1;
        let value = match code {
            0x00 => Some(constant),
            0x20 => load(constant, 4),
            0x28 => load(constant, 2),
            0x30 => load(constant, 1),
            0x40 => load(x + constant, 4),
            0x48 => load(x + constant, 2),
            0x50 => load(x + constant, 1),
            0x60 => Some(words[constant as usize]),
            0x80 => Some(bytes.len() as u64),
            0x87 => Some(x),
            code if code & 7 == 4 => computed(code, a, other),
            0x01 => {
                x = constant;
                continue;
            }
            0x61 => {
                x = words[constant as usize];
                continue;
            }
            0x81 => {
                x = bytes.len() as u64;
                continue;
            }
            0xb1 => match load(constant, 1) {
                Some(byte) => {
                    x = byte % 16 * 4;
                    continue;
                }
                None => return 0,
            },
            0x07 => {
                x = a;
                continue;
            }
            0x02 => {
                words[constant as usize] = a;
                continue;
            }
            0x03 => {
                words[constant as usize] = x;
                continue;
            }
            0x06 => return constant,
            0x16 => return a,
            0x05 => {
                at += constant as usize;
                continue;
            }
            _ => {
                at += usize::from(if is_true(code, a, other) { jump_true } else { jump_false });
                continue;
            }
        };
        match value {
            Some(value) => a = value % (1 << 32),
            None => return 0,
        }
    }
}

const CODES: [u16; 46] = [
    0xa4, 0xac, 0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x87, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x3c,
    0x9c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x01, 0x61, 0x81, 0xb1, 0x07, 0x02, 0x03, 0x06, 0x16,
    0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x45, 0x4d,
];

fn instruction() -> impl Strategy<Value = Instruction> {
    (proptest::sample::select(&CODES[..]), 0_u8..4, 0_u8..4, prop_oneof![0_u32..20, 0_u32..3]).prop_map(
        |(code, jump_true, jump_false, constant)| match code {
            0x01 | 0x04 | 0x24 | 0x44 => op(code, 0, 0, constant.wrapping_mul(0x1234_5671)),
            _ => op(code, jump_true, jump_false, constant),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn programs_do_what_the_model_does(
        mut program in proptest::collection::vec(instruction(), 1..10),
        ends in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..30),
    ) {
        if ends {
            program.push(op(0x16, 0, 0, 0));
        }
        // What no way leads to is looked at as well, but for words.
        let beyond = |at: usize, one: &Instruction| match one.code {
            0x05 => at + 1 + one.constant as usize >= program.len(),
            code if code & 7 == 5 => at + 1 + usize::from(one.jump_true.max(one.jump_false)) >= program.len(),
            0x02 | 0x03 | 0x60 | 0x61 => one.constant > 15,
            _ => false,
        };
        let has_wrong = program.iter().enumerate().any(|(at, one)| beyond(at, one));
        let returns = program.last().is_some_and(|last| [0x06, 0x16].contains(&last.code));
        let expected = !has_wrong && returns && !is_wrong(&program, 0, 0);
        let made = Filter::new(program.clone());
        prop_assert_eq!(made.is_ok(), expected);
        if let Ok(filter) = made {
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            prop_assert_eq!(filter.run(&packet(&[first, rest])) as u64, model(&program, &bytes));
        }
    }

    #[test]
    fn any_program_at_all_is_refused_or_ends(
        program in proptest::collection::vec(any::<(u16, u8, u8, u32)>(), 0..40),
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let program = program.into_iter().map(|(code, yes, no, constant)| op(code & 0xff, yes % 8, no % 8, constant));
        let program: Vec<Instruction> = program.chain([op(0x16, 0, 0, 0)]).collect();
        if let Ok(filter) = Filter::new(program) {
            let _ = filter.run(&packet(&[&bytes]));
        }
    }
}

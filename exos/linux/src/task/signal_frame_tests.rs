//! The frame's layout is checked against the offsets that glibc's headers give on Linux, and by a round trip. What the
//! vector state looks like is checked where there is one: `tests/linux/signals.c`.

use super::{AlternateStack, Entry, build, restore};
use crate::abi::bytes::get;
use crate::abi::linux::{SA_ONSTACK, SA_RESTORER};
use crate::abi::user_memory::UserMemory;
use aegis_abi::upcall::UpcallFrame;
use core::cell::RefCell;
use exos::error::{Errno, Result};
use exos::task::signal::{Disposition, Signal, SignalInfo, SignalPayload, SignalSet};

const BASE: u64 = 0x10_0000;
const VECTOR_LENGTH: usize = 832;
const CONTEXT_BYTES: usize = 304;
const FRAME_BYTES: usize = 8 + CONTEXT_BYTES + 128;

/// 64 KiB of program memory at `BASE`.
struct Memory(RefCell<Vec<u8>>);

impl Memory {
    fn new() -> Self {
        Self(RefCell::new(vec![0xaa; 0x1_0000]))
    }
    fn at(&self, address: u64, length: usize) -> Vec<u8> {
        let start = (address - BASE) as usize;
        self.0.borrow()[start..start + length].to_vec()
    }
}

impl UserMemory for Memory {
    fn copy_in(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        let start = address.checked_sub(BASE).ok_or(Errno::EFAULT)? as usize;
        let bytes = self.0.borrow();
        let count = into.len().min(bytes.len().saturating_sub(start));
        into[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }
    fn copy_out(&self, address: u64, from: &[u8]) -> Result<usize> {
        let start = address.checked_sub(BASE).ok_or(Errno::EFAULT)? as usize;
        let mut bytes = self.0.borrow_mut();
        let count = from.len().min(bytes.len().saturating_sub(start));
        bytes[start..start + count].copy_from_slice(&from[..count]);
        Ok(count)
    }
    fn save_vector(&self, address: u64, (_, length): (u64, usize)) -> Result<()> {
        let state = b"the frame".repeat(length);
        self.copy_out(address, &state[..length + 4]).map(|_| ())
    }
    fn load_vector(&self, address: u64, _: (u64, usize)) -> Result<()> {
        let mut state = [0; 9];
        self.copy_in(address, &mut state)?;
        if state == *b"the frame" { Ok(()) } else { Err(Errno::EFAULT) }
    }
}

fn program() -> UpcallFrame {
    UpcallFrame {
        r15: 15,
        r14: 14,
        r13: 13,
        r12: 12,
        r11: 11,
        r10: 10,
        r9: 9,
        r8: 8,
        rdi: 7,
        rsi: 6,
        rbp: 5,
        rbx: 4,
        rdx: 3,
        rcx: 2,
        rax: 1,
        rip: 0x40_1000,
        cs: 0x33,
        rflags: 0x246,
        rsp: BASE + 0x8000,
        ss: 0x2b,
        error_code: 6,
        vector: 14,
        fault_address: 0xdead,
        ..UpcallFrame::default()
    }
}

const FORMAT: (u64, usize) = (7, VECTOR_LENGTH);

static INFO: SignalInfo = SignalInfo { code: 1, errno: 0, payload: SignalPayload::Fault { address: 0xdead } };

fn entry() -> Entry<'static> {
    Entry {
        signal: Signal::SEGV,
        info: &INFO,
        disposition: Disposition {
            handler: 0x40_2000,
            flags: SA_RESTORER,
            restorer: 0x40_3000,
            mask: SignalSet::EMPTY,
        },
        mask_before: SignalSet(0x55),
        stack: AlternateStack::default(),
        vector_format: FORMAT,
    }
}

#[test]
fn the_layout_is_linuxs() {
    let memory = Memory::new();
    let mut frame = program();
    let before = frame;
    build(&memory, &mut frame, &entry()).expect("room");
    assert_eq!(frame.rsp % 16, 8, "as after a call");
    assert!(frame.rsp < before.rsp - 128, "the red zone is spared");
    assert_eq!((frame.rdi, frame.rip), (11, 0x40_2000));
    let bytes = memory.at(frame.rsp, FRAME_BYTES);
    assert_eq!(get::u64(&bytes, 0), 0x40_3000);
    let context = &bytes[8..8 + CONTEXT_BYTES];
    // Offsets of gregset members in glibc's <sys/ucontext.h>: uc_mcontext at 40, REG_RIP 16, REG_ERR 19, REG_TRAPNO
    // 20, REG_CR2 22.
    assert_eq!(get::u64(context, 40 + 16 * 8), before.rip);
    assert_eq!(get::u64(context, 40 + 15 * 8), before.rsp);
    assert_eq!(get::u64(context, 40 + 19 * 8), 6);
    assert_eq!(get::u64(context, 40 + 20 * 8), 14);
    assert_eq!(get::u64(context, 40 + 22 * 8), 0xdead);
    assert_eq!(get::u64(context, 296), 0x55);
    let info = memory.at(frame.rsi, 128);
    assert_eq!((get::i32(&info, 0), get::i32(&info, 8), get::u64(&info, 16)), (11, 1, 0xdead));
    let vector = get::u64(context, 224);
    assert!(vector.is_multiple_of(64) && vector >= frame.rsp + FRAME_BYTES as u64 && vector + 836 <= before.rsp - 128);
    assert_eq!(memory.at(vector, 8), b"the frame"[..8], "the vector state is there");
}

#[test]
fn a_return_gives_everything_back() {
    let memory = Memory::new();
    let mut frame = program();
    let before = frame;
    build(&memory, &mut frame, &entry()).expect("room");
    frame.rsp += 8;
    let restored = restore(&memory, &mut frame, FORMAT).expect("intact");
    assert_eq!(restored.mask, SignalSet(0x55));
    assert!(restored.has_vector);
    frame.rflags = before.rflags;
    assert_eq!(UpcallFrame { error_code: 6, vector: 14, fault_address: 0xdead, ..frame }, before);
}

#[test]
fn a_forged_context_gets_no_privilege() {
    let memory = Memory::new();
    let mut frame = program();
    build(&memory, &mut frame, &entry()).expect("room");
    frame.rsp += 8;
    let context = frame.rsp;
    memory.copy_out(context + 40 + 17 * 8, &u64::MAX.to_le_bytes()).expect("mapped");
    memory.copy_out(context + 40 + 18 * 8, &0u64.to_le_bytes()).expect("mapped");
    let mut attempt = frame;
    restore(&memory, &mut attempt, FORMAT).expect("continues");
    assert_eq!(attempt.rflags & 0x3000, 0, "no I/O privilege");
    assert_eq!(attempt.rflags & 0x2_0000, 0, "no virtual-8086 mode");
    assert_eq!((attempt.cs, attempt.ss), (0x33, 0x2b));
    memory.copy_out(context + 40 + 16 * 8, &0xffff_8000_0000_0000u64.to_le_bytes()).expect("mapped");
    assert_eq!(restore(&memory, &mut frame, FORMAT), Err(Errno::EFAULT));
}

#[test]
fn the_alternate_stack_is_used_once_and_refused_when_too_small() {
    let memory = Memory::new();
    let mut frame = program();
    let mut wanted = entry();
    wanted.disposition.flags |= SA_ONSTACK;
    wanted.stack = AlternateStack { base: BASE + 0xa000, flags: 0, length: 0x2000 };
    build(&memory, &mut frame, &wanted).expect("room");
    assert!(wanted.stack.contains(frame.rsp));
    let first = frame.rsp;
    build(&memory, &mut frame, &wanted).expect("room");
    assert!(frame.rsp < first, "nested below, not at the top again");
    let mut frame = program();
    wanted.stack.length = 1024;
    assert_eq!(build(&memory, &mut frame, &wanted), Err(Errno::EFAULT));
}

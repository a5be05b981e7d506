//! Whatever an environment asks, in whatever order, nothing of anybody else changes, nothing leaks and nothing stops
//! but itself.
//!
//! The table of calls with one bad argument each is in `s08_arguments`, the random sequences are in `s08_random`.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::call::{Call, EnvironmentField, MachineLog, StopReason};
use aegis_abi::layout::{
    FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, KERNEL_BASE, LIBOS_BASE, LIBOS_END, PAGE_SIZE, PAGE_TABLE_WINDOW,
    PROGRAM_BASE, PROGRAM_END,
};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_MACHINE, SLOT_NONE, SLOT_SELF};
use aegis_abi::upcall::UpcallKind;
use aegis_abi::{CapSlot, FrameNumber, Rights, Status};
use aegis_rt::call::{self, Outcome};
use aegis_rt::control;

use crate::child::{self, CHILD_SCRATCH_BASE, CHILD_SHARED, CHILD_SLOT_FREE, shared};
use crate::memory::{SCRATCH_BASE, bind_in, free_slot, map, repeat, slot, take, window_address};
use crate::s08_random::Random;
use crate::suite::{CaseResult, Failure, Machine, Suite};
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, thread, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s08_hostile",
    cases: &[
        ("unknown_calls_are_unknown", unknown_calls),
        ("one_bad_slot_in_every_call", crate::s08_arguments::one_bad_slot),
        ("pointers_outside_our_memory", pointers_outside),
        ("log_lengths_are_bounded", log_lengths),
        ("batch_changes_while_it_is_read", batch_changes),
        ("every_flag_at_a_kernel_call", every_flag),
        ("processor_starts_anywhere", processor_starts_anywhere),
        ("garbage_in_the_control_page", garbage_in_control_page),
        ("two_environments_cannot_reach_each_other", cannot_reach_each_other),
        ("random_calls", crate::s08_random::random_calls),
        ("random_calls_on_two_processors", crate::s08_random::random_calls_on_two),
    ],
};

/// Issues a call by words; the status, if it is one.
pub(crate) fn issue(number: u64, words: &[u64; 6]) -> (Option<Status>, u64) {
    // SAFETY: the callers' calls are refused, or touch nothing that this program needs.
    let (status, value) = unsafe { call::issue_words(number, words) };
    (Status::from_word(status), value)
}

fn unknown_calls(_: &Machine) -> CaseResult {
    let count = Call::ALL[Call::ALL.len() - 1].0 + 1;
    for number in [count, count + 1, 100, 255, 1 << 16, 1 << 32, 1 << 63, u64::MAX] {
        for word in [0, 1, u64::MAX] {
            expect!(issue(number, &[word; 6]).0 == Some(Status::UnknownCall));
        }
    }
    // Numbers are compared in full: the lower half of one that exists does not do.
    for (number, _) in Call::ALL {
        expect!(issue(number | 1 << 32, &[0; 6]).0 == Some(Status::UnknownCall));
    }
    Ok(())
}

/// Addresses at which no environment has anything, or nothing that the kernel reads for it.
const BAD_ADDRESSES: [u64; 18] = [
    0,
    8,
    PAGE_SIZE,
    PROGRAM_BASE - 8,
    PROGRAM_BASE,
    PROGRAM_END - 8,
    PROGRAM_END,
    0x0000_8000_0000_0000,
    0x5555_0000_0000_0000,
    LIBOS_BASE - 8,
    LIBOS_END - 8,
    LIBOS_END,
    PAGE_TABLE_WINDOW,
    window_address(FIRST_CONTROL_BASE),
    KERNEL_BASE,
    0xffff_ffff_8020_0000,
    u64::MAX - 7,
    SCRATCH_BASE,
];

fn pointers_outside(_: &Machine) -> CaseResult {
    for address in BAD_ADDRESSES {
        let bad = Some(Status::BadAddress);
        expect!(issue(10, &[u64::from(SLOT_SELF.0), address, 1, 0, 0, 0]).0 == bad);
        expect!(issue(10, &[u64::from(SLOT_SELF.0), address, 512, 0, 0, 0]).0 == bad);
        expect!(issue(22, &[address, 1, 0, 0, 0, 0]).0 == bad);
        expect!(issue(22, &[address, 32, 0, 0, 0, 0]).0 == bad);
    }
    // The range begins well and runs into a hole.
    let frame = expect_ok!(take(slot(0), 1)).0;
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::WRITE));
    let end = SCRATCH_BASE + PAGE_SIZE;
    // SAFETY: just mapped.
    unsafe { ((end - 32) as *mut Term).write(wait::clock_term(0, 0)) };
    expect!(issue(22, &[end - 32, 2, 0, 0, 0, 0]) == (Some(Status::BadAddress), 1));
    // Of a batch the entries before the hole are done: an unmap of nothing.
    let nothing = BindEntry::unmap(SCRATCH_BASE + PAGE_SIZE, 1);
    // SAFETY: just mapped.
    unsafe { ((end - 32) as *mut BindEntry).write(nothing) };
    expect!(issue(10, &[u64::from(SLOT_SELF.0), end - 32, 2, 0, 0, 0]) == (Some(Status::BadAddress), 1));
    Ok(())
}

fn log_lengths(_: &Machine) -> CaseResult {
    let text = b"these bytes are not printed";
    for length in [17, 4096, 1 << 32, u64::MAX] {
        let call = MachineLog { slot: SLOT_MACHINE, length, low: 0, high: 0 };
        // SAFETY: the call reads no memory.
        let outcome = unsafe { call::issue(Call::MachineLog(call)) };
        expect_refused!(outcome, Status::BadArgument);
    }
    expect_equal!(call::machine_log(SLOT_MACHINE, &text[..0]), Ok(0));
    Ok(())
}

static STOP: AtomicU64 = AtomicU64::new(0);

/// Changes a batch in shared memory as fast as it can.
extern "C" fn changing_thread(frame: u64) -> ! {
    let entry = (SCRATCH_BASE + PAGE_SIZE / 2) as *mut BindEntry;
    let mut random = Random::new(77);
    while STOP.load(Ordering::SeqCst) == 0 {
        // SAFETY: the case mapped the page; the kernel is the only reader.
        unsafe {
            (&raw mut (*entry).frame).write_volatile(frame + random.below(4));
            (&raw mut (*entry).page_count).write_volatile(random.below(4) as u32);
            (&raw mut (*entry).flags).write_volatile(random.below(4) as u32);
            (&raw mut (*entry).virtual_address).write_volatile(SCRATCH_BASE + (8 + random.below(4)) * PAGE_SIZE);
            (&raw mut (*entry).slot).write_volatile(slot(random.below(3) as u32).0);
        }
    }
    STOP.store(2, Ordering::SeqCst);
    wait::forever()
}

fn batch_changes(_: &Machine) -> CaseResult {
    STOP.store(0, Ordering::SeqCst);
    let frame = expect_ok!(take(slot(0), 1)).0;
    let target = expect_ok!(take(slot(1), 2)).0;
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::WRITE));
    expect_ok!(thread::spawn(0, changing_thread, target));
    let address = SCRATCH_BASE + PAGE_SIZE / 2;
    for _ in 0..20_000 {
        let (status, _) = issue(10, &[u64::from(SLOT_SELF.0), address, 1, 0, 0, 0]);
        // The address is 0, a bad one, until the other thread has written it for the first time.
        let is_expected = matches!(
            status,
            Some(
                Status::Ok
                    | Status::BadArgument
                    | Status::BadAddress
                    | Status::MissingRight
                    | Status::BadSlot
                    | Status::WrongType
            )
        );
        expect!(is_expected);
    }
    STOP.store(1, Ordering::SeqCst);
    expect!(wait::until(|| STOP.load(Ordering::SeqCst) == 2));
    // Whatever was bound was two frames of ours: unmapped, they are free to go. The leak check sees to the rest.
    expect_ok!(crate::memory::unmap(SCRATCH_BASE + 8 * PAGE_SIZE, 16));
    expect_ok!(call::frame_free(slot(1)));
    Ok(())
}

unsafe extern "C" {
    /// Sets flags, makes a call with the number in RSI (argument RDX), gives back the status.
    fn call_with_flags(flags: u64, number: u64, argument: u64) -> u64;
}

core::arch::global_asm!(
    "call_with_flags:",
    "mov rax, rsi",
    "push rdi",
    "mov rdi, rdx",
    "popfq",
    "syscall",
    "push 0x202",
    "popfq",
    "ret",
);

fn every_flag(_: &Machine) -> CaseResult {
    // Carry to ID, one by one and all: trap, direction, I/O privilege, nested task, resume, virtual-8086, alignment
    // check. SAFETY: the routine keeps the calling convention, whatever the flags are.
    let call = |flags, number, argument| unsafe { call_with_flags(flags, number, argument) };
    let mut flags: [u64; 23] = core::array::from_fn(|bit| 0x202 | 1 << bit);
    flags[22] = 0x003f_7fd7 & !0x100;
    for flags in flags {
        // The trap flag ends a `syscall` with an exception in the program; that is what the handler is for.
        if flags & 0x100 != 0 {
            let _ = probe::enter(call_with_flags as *const () as u64, flags, 0);
            continue;
        }
        expect_equal!(call(flags, 0, 0), 0);
        // A yield leaves by another way than it came.
        expect_equal!(call(flags, 21, 0), 0);
        expect_equal!(call(flags, 9999, 0), Status::UnknownCall as u64);
    }
    Ok(())
}

fn processor_starts_anywhere(machine: &Machine) -> CaseResult {
    let rips = [
        PROGRAM_BASE,
        PROGRAM_END - 1,
        0x40_0000,
        LIBOS_BASE,
        FIRST_CONTROL_BASE,
        FIRST_SAVE_AREA_BASE,
        LIBOS_END - 1,
        LIBOS_BASE + 1,
    ];
    let rsps = [0, 1, 8, PROGRAM_END, KERNEL_BASE, 0x5555_0000_0000_0000, u64::MAX, FIRST_SAVE_AREA_BASE];
    for rip in rips {
        for rsp in [rsps[(rip >> 3) as usize % 8], rsps[(rip >> 12) as usize % 8]] {
            let child = expect_ok!(child::make(machine, 0, 0));
            expect_ok!(child::start_at(&child, rip, rsp, u64::MAX));
            expect_equal!(child::await_stop(&child), StopReason::NoHandler as u64);
            crate::memory::release_scratch();
        }
    }
    // With a handler but a hopeless stack it has its save area all the same.
    for rsp in rsps {
        let child = expect_ok!(child::make(machine, 0, 0));
        expect_ok!(child::start_at(&child, faulting_main as *const () as u64, rsp, 0));
        expect!(child::await_stop(&child) != 0);
        crate::memory::release_scratch();
    }
    Ok(())
}

unsafe extern "C" {
    fn faulting_main();
}

core::arch::global_asm!(
    // Touches its stack at once.
    "faulting_main:",
    "push rax",
    "call faulting_main",
    "ud2",
);

/// Does everything that makes the kernel look at the control page.
extern "C" fn busy_with_upcalls(_: u64) -> ! {
    probe::install();
    loop {
        shared().increment(0);
        let _ = probe::read(0x10);
        let _ = call::yield_to(SLOT_NONE);
        let _ = call::bell_ring(CHILD_SLOT_FREE);
        let _ = call::sleep(&[wait::clock_term(0, wait::now_ns() + 1000)]);
    }
}

fn garbage_in_control_page(machine: &Machine) -> CaseResult {
    let mut random = Random::new(4711);
    for round in 0..60 {
        let child = expect_ok!(child::make(machine, 0, 0));
        expect_ok!(call::bell_create(free_slot(0), SLOT_NONE));
        let rights = Rights::RING;
        expect_ok!(call::cap_grant(free_slot(0), child.environment, CHILD_SLOT_FREE, rights));
        expect_ok!(map(SCRATCH_BASE, child.control_frame, 1, child.frames, BindFlags::WRITE));
        expect_ok!(child::start(&child, busy_with_upcalls, 0));
        for step in 0..40 {
            let _ = call::yield_to(SLOT_NONE);
            // The part that the kernel reads and writes, or all of it.
            let word_count = if round % 2 == 0 { 16 } else { 512 };
            let index = random.below(word_count);
            let value = random.word();
            // SAFETY: just mapped; nothing of Rust's is there.
            unsafe { ((SCRATCH_BASE + index * 8) as *mut u64).write_volatile(value) };
            if step == 20 {
                let deadline = wait::now_ns();
                let _ = call::environment_reclaim(child.environment, 2, deadline);
            }
        }
        let stopped = expect_ok!(call::environment_read(child.environment, EnvironmentField::Stopped));
        expect!(stopped <= StopReason::FramesKept as u64);
        crate::memory::release_scratch();
    }
    Ok(())
}

const SECRET: u64 = 0x5ec2_e7f0_0d5e_c2e7;
const READY: usize = 0;
const FRAME: usize = 1;
const STATUS: usize = 2;

/// Keeps a secret in a frame of its own, and looks after it.
extern "C" fn secret_child(_: u64) -> ! {
    let shared = shared();
    probe::install();
    let Ok(frame) = take(CapSlot(16), 1) else { wait::forever() };
    let _ = map(CHILD_SCRATCH_BASE, frame.0, 1, CapSlot(16), BindFlags::WRITE);
    let _ = probe::write(CHILD_SCRATCH_BASE, SECRET);
    shared.set(FRAME, frame.0);
    shared.set(READY, 1);
    loop {
        wait::pause(500_000);
        let is_well = probe::read(CHILD_SCRATCH_BASE) == Ok(SECRET);
        shared.set(STATUS, if is_well { shared.get(STATUS) + 1 } else { u64::MAX });
    }
}

/// Tries everything to get at a frame that is somebody else's. Word 8 on: how often something did not fail.
extern "C" fn spying_child(frame: u64) -> ! {
    probe::install();
    let shared = shared();
    let own = take(CapSlot(16), 2).map_or(0, |frame| frame.0);
    let mut reached = 0;
    let mut tries = 0;
    let mut attempt = |outcome: Outcome| {
        tries += 1;
        reached += u64::from(outcome.is_ok());
    };
    let number = Some(FrameNumber(frame));
    attempt(call::frame_allocate(CapSlot(17), 1, number, 0));
    attempt(call::frame_allocate(CapSlot(17), 3, Some(FrameNumber(frame - 1)), 0));
    for flags in [BindFlags::empty(), BindFlags::WRITE, BindFlags::EXECUTE] {
        for slot in 0..64 {
            attempt(map(CHILD_SCRATCH_BASE, frame, 1, CapSlot(slot), flags));
        }
        // Ranges that begin with our own frames and end with theirs, also around the end of all numbers.
        for (first, count) in [(own, frame.wrapping_sub(own) as u32 + 1), (frame - 1, 2), (u64::MAX, 2)] {
            attempt(map(CHILD_SCRATCH_BASE, first, count.min(4096), CapSlot(16), flags));
        }
    }
    let away = frame.wrapping_sub(own);
    // If theirs is the frame before ours, the negated distance is that of our second one.
    let back = away.wrapping_neg().max(2);
    for (offset, count) in [(away, 1), (0, away.wrapping_add(1)), (back, 1), (1, u64::MAX)] {
        attempt(call::cap_derive(CapSlot(16), CapSlot(18), Rights::all(), offset, count));
    }
    attempt(call::frame_split(CapSlot(16), CapSlot(18), away));
    for slot in [CapSlot(16), CHILD_SHARED] {
        for source in [TermSource::Word32, TermSource::Word64] {
            // Holds at once if the kernel reads the secret for us.
            let term = Term {
                product: 1,
                source: source as u32,
                operator: TermOperator::NotEqual as u32,
                slot: slot.0,
                address: frame * PAGE_SIZE,
                value: 0,
            };
            attempt(call::sleep(&[term]));
        }
    }
    for slot in 0..64 {
        // Its environment is named by no capability of ours.
        if CapSlot(slot) != SLOT_SELF {
            let entry = BindEntry::map(CHILD_SCRATCH_BASE, own, 1, CapSlot(16), BindFlags::WRITE);
            attempt(bind_in(CapSlot(slot), entry));
            attempt(call::cap_grant(CapSlot(16), CapSlot(slot), CapSlot(40), Rights::all()));
        }
    }
    // Nothing is where it has its secret, and our own page tables say nothing else.
    let sees = u64::from(!probe::is_unmapped(CHILD_SCRATCH_BASE));
    let entry = probe::read(window_address(CHILD_SCRATCH_BASE)).unwrap_or(0);
    shared.set(8, reached);
    shared.set(9, sees);
    shared.set(10, entry);
    shared.set(11, tries);
    shared.set(READY, 1);
    wait::forever()
}

fn cannot_reach_each_other(machine: &Machine) -> CaseResult {
    let keeper = expect_ok!(child::make_silent(machine, 0, 8));
    let spy = expect_ok!(child::make_silent(machine, 1, 8));
    expect_ok!(child::start(&keeper, secret_child, 0));
    expect!(child::await_word(&keeper, READY, 1));
    let frame = keeper.shared.get(FRAME);
    expect!(frame != 0);
    expect_ok!(child::start(&spy, spying_child, frame));
    expect!(child::await_word(&spy, READY, 1));
    expect!(spy.shared.get(11) > 300);
    expect_equal!(spy.shared.get(8), 0);
    expect_equal!(spy.shared.get(9), 0);
    expect_equal!(spy.shared.get(10), 0);
    // We made the keeper, but its frame is its own: no capability of ours covers it.
    expect_refused!(map(SCRATCH_BASE, frame, 1, keeper.frames, BindFlags::empty()), Status::MissingRight);
    let seen = keeper.shared.get(STATUS);
    expect!(wait::until(|| keeper.shared.get(STATUS) > seen + 2));
    expect!(keeper.shared.get(STATUS) != u64::MAX);
    // SAFETY: children only.
    repeat(|| unsafe { call::environment_destroy(spy.environment) });
    expect!(wait::until(|| keeper.shared.get(STATUS) > seen + 4));
    expect!(keeper.shared.get(STATUS) != u64::MAX);
    Ok(())
}

/// What the random suite asks of a child that stopped: nothing but a reason that exists.
pub(crate) fn expect_known_stop(reason: u64) -> Result<(), Failure> {
    expect!(reason <= StopReason::FramesKept as u64);
    Ok(())
}

/// Sets every entry point of this processor to `entry`: for processors that want no upcalls.
pub(crate) fn set_all_entries(entry: u64) {
    for kind in [
        UpcallKind::Syscall,
        UpcallKind::Exception,
        UpcallKind::SliceBegin,
        UpcallKind::SliceEnd,
        UpcallKind::Bell,
        UpcallKind::Revocation,
        UpcallKind::Repossession,
    ] {
        control::set_entry(kind, entry);
    }
}

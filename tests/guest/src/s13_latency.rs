//! From a device's interrupt to the first instruction of its waiter, beside ten that compute.
//!
//! All have the same tickets. One of those that compute tells the device now and then to interrupt, and writes down
//! when; so the moment is known, and it is one at which somebody else runs. The figures are told on the log.
//!
//! And what a call takes that concerns all processors that there can be.

use aegis_abi::call::{ProcessorField, ProcessorState};
use aegis_abi::device::{DeviceField, DeviceOperation};
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::memory::BindFlags;
use aegis_abi::sleep::{PREDICATE_TERM_COUNT_MAX, Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights};
use aegis_rt::call::{self, Refusal};

use crate::child::{self, CHILD_SCRATCH_BASE, CHILD_SLOT_FREE, Shared, shared};
use crate::memory::{SCRATCH_BASE, free_slot, map, repeat, slot, take, unmap};
use crate::suite::{CaseResult, Machine, Suite, print};
use crate::wait::{clock_term, now_ns};
use crate::{expect, expect_equal, expect_ok, probe, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s13_latency",
    cases: &[
        ("interrupt_beside_ten_that_compute", interrupt_beside_ten),
        ("one_ring_wakes_all_processors", one_ring_wakes_all),
    ],
};

/// As many as there is donated memory for.
const SLEEPER_COUNT: u32 = 64;
/// Case slots of the first one: its processor, its frames.
const SLEEPER_SLOT_FIRST: u32 = 300;
/// Control page, save area, stack.
const SLEEPER_PAGE_COUNT: u32 = 3;
/// What the kernel may take for each of them, an instruction being a nanosecond (ADR 0110).
const WAKE_NS_MAX: u64 = 1_600;

const E1000: u64 = 0x100e_8086;
const COMPUTING_COUNT: u32 = 10;
const ROUND_COUNT: usize = 100;
/// What the one that waits and the one that raises share.
const CHILD_COMMON: CapSlot = CapSlot(CHILD_SLOT_FREE.0 + 1);
const CHILD_BELL: CapSlot = CapSlot(CHILD_SLOT_FREE.0 + 2);
const COMMON_BASE: u64 = CHILD_SCRATCH_BASE + 64 * PAGE_SIZE;
/// Words of the common page: round that is waited for, round that was raised, when.
const ARMED: usize = 0;
const RAISED: usize = 1;
const RAISED_AT: usize = 2;
/// Words of the waiting child's page: rounds so far, and from `FIRST` on how long each took.
const DONE: usize = 0;
const FIRST: usize = 16;

/// Registers of the device: causes, read and cleared; set; let through.
const ICR: u64 = 0xc0;
const ICS: u64 = 0xc8;
const IMS: u64 = 0xd0;

fn common() -> Option<&'static Shared> {
    let frame = call::cap_read(CHILD_COMMON, 1).ok()?;
    map(COMMON_BASE, frame, 1, CHILD_COMMON, BindFlags::WRITE).ok()?;
    // SAFETY: just mapped, for good; any words are good ones.
    Some(unsafe { &*(COMMON_BASE as *const Shared) })
}

/// Maps the device's registers.
fn registers() -> bool {
    // SAFETY: an address of its own.
    unsafe { call::device_map(CHILD_SLOT_FREE, 0, CHILD_SCRATCH_BASE) }.is_ok()
}

fn register(offset: u64) -> *mut u32 {
    (CHILD_SCRATCH_BASE + offset) as *mut u32
}

/// Computes, and raises an interrupt some milliseconds of its own time after somebody began to wait.
extern "C" fn raise(_: u64) -> ! {
    probe::install();
    if let Some(common) = common().filter(|_| registers()) {
        for round in 1_u64.. {
            while common.get(ARMED) < round {
                compute_for(1);
            }
            compute_for((1 + round * 7 % 13) * 100_000);
            common.set(RAISED_AT, now_ns());
            common.set(RAISED, round);
            // SAFETY: mapped above.
            unsafe { register(ICS).write_volatile(1) };
        }
    }
    wait::forever()
}

extern "C" fn compute(_: u64) -> ! {
    loop {
        compute_for(1_000_000);
    }
}

/// Without the instruction for waiting loops: an emulator gives way at each.
fn compute_for(count: u64) {
    for number in 0..count {
        core::hint::black_box(number);
    }
}

/// Waits for interrupts and writes down how long each took.
extern "C" fn wait_for_it(_: u64) -> ! {
    probe::install();
    let bell = Term {
        product: 0,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: CHILD_BELL.0,
        address: 0,
        value: 1,
    };
    let is_ready = registers()
        && call::bell_create(CHILD_BELL, SLOT_NONE).is_ok()
        && call::device_interrupt_bind(CHILD_SLOT_FREE, 0, CHILD_BELL).is_ok();
    let Some(common) = common().filter(|_| is_ready) else { wait::forever() };
    // SAFETY: mapped above.
    unsafe { register(IMS).write_volatile(1) };
    for round in 0..ROUND_COUNT {
        let _ = call::device_interrupt_ask(CHILD_SLOT_FREE, 0);
        common.set(ARMED, round as u64 + 1);
        while call::bell_take(CHILD_BELL).unwrap_or(0) == 0 {
            let _ = call::sleep(&[bell]);
            shared().set(FIRST + round, now_ns().saturating_sub(common.get(RAISED_AT)));
        }
        // SAFETY: mapped above.
        unsafe { register(ICR).read_volatile() };
        shared().set(DONE, round as u64 + 1);
    }
    wait::forever()
}

fn interrupt_beside_ten(machine: &Machine) -> CaseResult {
    let first = SLOT_DEVICE_FIRST.0;
    let identity = |device: &CapSlot| call::device_read(*device, DeviceField::Identity, 0);
    let mut devices = (first..first + machine.info.device_count).map(CapSlot);
    let Some(device) = devices.find(|device| identity(device) == Ok(E1000)) else { return Ok(()) };
    expect_ok!(take(free_slot(0), 1));
    let rights = Rights::READ | Rights::WRITE;
    let waiting = expect_ok!(child::make(machine, 0, 16));
    expect_ok!(call::cap_grant(device, waiting.environment, CHILD_SLOT_FREE, rights | Rights::CONTROL));
    expect_ok!(call::cap_grant(free_slot(0), waiting.environment, CHILD_COMMON, rights));
    for number in 1..=COMPUTING_COUNT {
        let child = expect_ok!(child::make(machine, number, 16));
        if number == 1 {
            expect_ok!(call::cap_grant(device, child.environment, CHILD_SLOT_FREE, rights));
            expect_ok!(call::cap_grant(free_slot(0), child.environment, CHILD_COMMON, rights));
        }
        expect_ok!(child::start(&child, if number == 1 { raise } else { compute }, 0));
    }
    expect_ok!(child::start(&waiting, wait_for_it, 0));
    while waiting.shared.get(DONE) < ROUND_COUNT as u64 {
        let _ = call::sleep(&[clock_term(0, now_ns() + 100_000_000)]);
    }
    let mut times = [0; ROUND_COUNT];
    (0..).zip(&mut times).for_each(|(round, time)| *time = waiting.shared.get(FIRST + round));
    times.sort_unstable();
    let [median, most_of_them, last] = [50, 99, 100].map(|part| times[(ROUND_COUNT * part).div_ceil(100) - 1]);
    let late_count = times.iter().filter(|time| **time > 2_000_000).count();
    print(format_args!(
        "interrupt to first instruction: median {median} ns, 99th percentile {most_of_them} ns, most {last} ns, \
         {late_count} of {ROUND_COUNT} above 2 ms"
    ));
    expect!(median <= 100_000);
    // A processor that wakes within a millisecond of the last one that won waits for that (ADR 0042), and for no slice.
    expect!(most_of_them <= 2_000_000);
    // SAFETY: it knows no memory.
    expect_ok!(unsafe { call::device_control(device, DeviceOperation::Disable) });
    expect_equal!(waiting.shared.get(DONE), ROUND_COUNT as u64);
    Ok(())
}

/// Slots of processor and frames of sleeper number `number`, and where its pages are.
fn sleeper(number: u32) -> (CapSlot, CapSlot, u64) {
    let first = SLEEPER_SLOT_FIRST + 2 * number;
    (slot(first), slot(first + 1), SCRATCH_BASE + u64::from(number * (SLEEPER_PAGE_COUNT + 1)) * PAGE_SIZE)
}

fn begin_sleeper(number: u32) -> Result<(), Refusal> {
    let (processor, frames, base) = sleeper(number);
    let first = take(frames, u64::from(SLEEPER_PAGE_COUNT))?.0;
    map(base, first, SLEEPER_PAGE_COUNT, frames, BindFlags::WRITE)?;
    call::processor_create(processor, SLOT_SELF, frames, 1, base, base + PAGE_SIZE)?;
    let rsp = base + u64::from(SLEEPER_PAGE_COUNT) * PAGE_SIZE - 8;
    // SAFETY: it has a stack of its own and runs a function of this program.
    unsafe { call::processor_start(processor, sleep_by_all_terms as *const () as u64, rsp, 0) }?;
    Ok(())
}

/// Waits for the bell by a predicate of as many terms as there can be.
extern "C" fn sleep_by_all_terms(_: u64) -> ! {
    let term = Term {
        product: 0,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: slot(0).0,
        address: 0,
        value: 1,
    };
    let _ = call::sleep(&[term; PREDICATE_TERM_COUNT_MAX]);
    wait::forever()
}

fn end_sleeper(number: u32) {
    let (processor, frames, base) = sleeper(number);
    let _ = unmap(base, SLEEPER_PAGE_COUNT);
    // SAFETY: its slots name nothing that this program needs.
    unsafe {
        let _ = call::processor_stop(processor);
        repeat(|| call::processor_destroy(processor));
        repeat(|| call::cap_revoke(frames));
        repeat(|| call::frame_free(frames));
    }
}

fn one_ring_wakes_all(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    for number in 0..SLEEPER_COUNT {
        expect_ok!(begin_sleeper(number));
    }
    let state = |number| call::processor_read(sleeper(number).0, ProcessorField::State);
    let are = |wanted: ProcessorState| (0..SLEEPER_COUNT).all(|number| state(number) == Ok(wanted as u64));
    expect!(wait::until(|| are(ProcessorState::Asleep)));
    let before_ns = now_ns();
    expect_ok!(call::bell_ring(slot(0)));
    let took_ns = now_ns() - before_ns;
    let is_done = are(ProcessorState::Ready);
    (0..SLEEPER_COUNT).for_each(end_sleeper);
    print(format_args!("a ring that wakes {SLEEPER_COUNT} of {PREDICATE_TERM_COUNT_MAX} terms each: {took_ns} ns"));
    expect!(is_done);
    expect!(took_ns <= u64::from(SLEEPER_COUNT) * WAKE_NS_MAX);
    Ok(())
}

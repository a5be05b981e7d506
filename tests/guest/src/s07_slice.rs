//! Processor time: slices are shared, begun and ended with upcalls, given away, and kept from those that overrun.
//!
//! Shares are compared in slices and in the kernel's own account of time, never in wall time.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::call::{EnvironmentField, ProcessorField, ProcessorState, StopReason};
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF};
use aegis_abi::upcall::{UpcallFrame, UpcallKind};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call;
use aegis_rt::control;
use aegis_rt::upcall::KIND_HELD_BACK;

use crate::child::{self, Child, shared};
use crate::memory::{free_slot, slot};
use crate::suite::{CaseResult, Failure, Machine, Suite};
use crate::thread::Thread;
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, thread, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s07_slice",
    cases: &[
        ("busy_environments_share_evenly", busy_share_evenly),
        ("a_sleeper_does_not_lose_its_turn", sleeper_gets_its_turn),
        ("slice_end_and_slice_begin_are_told", slice_upcalls),
        ("slice_end_that_yields_in_time_is_not_stopped", slice_end_in_time),
        ("spinner_in_slice_end_is_stopped", spinner_is_stopped),
        ("masked_slice_end_cannot_be_ignored", masked_slice_end),
        ("directed_yield_goes_where_it_says", directed_yield),
        ("yield_refuses_bad_targets", yield_refuses),
        ("processors_run_in_parallel", processors_run_in_parallel),
        ("passing_the_slice_on_does_not_stretch_it", passing_on_does_not_stretch),
    ],
};

static WORDS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn word(index: usize) -> u64 {
    WORDS[index].load(Ordering::SeqCst)
}

fn forget_words() {
    for word in &WORDS {
        word.store(0, Ordering::SeqCst);
    }
}

extern "C" fn busy_child(_: u64) -> ! {
    loop {
        shared().increment(0);
    }
}

extern "C" fn busy_thread(number: u64) -> ! {
    loop {
        WORDS[number as usize].fetch_add(1, Ordering::SeqCst);
    }
}

fn used_ns(processor: CapSlot) -> u64 {
    call::processor_read(processor, ProcessorField::TimeUsedNs).unwrap_or(0)
}

fn slices(processor: CapSlot) -> u64 {
    call::processor_read(processor, ProcessorField::Slices).unwrap_or(0)
}

/// Busy threads, one for each processor but `spare` of them.
fn occupy(machine: &Machine, spare: u32) -> Result<u32, Failure> {
    let count = machine.cpu_count.saturating_sub(spare);
    for number in 0..count {
        expect_ok!(thread::spawn(number, busy_thread, u64::from(number)));
    }
    Ok(count)
}

fn busy_share_evenly(machine: &Machine) -> CaseResult {
    // One more than processors, in environments of their own, so that all have to share.
    let count = machine.cpu_count.min(6) + 1;
    let mut children: [Option<Child>; 8] = [None; 8];
    for number in 0..count {
        let child = expect_ok!(child::make(machine, number, 0));
        expect_ok!(child::start(&child, busy_child, 0));
        children[number as usize] = Some(child);
    }
    let all = || children.iter().flatten();
    let enough = || all().all(|child| slices(child.processor) >= 200);
    expect!(sleep_until(enough));
    let used = || all().map(|child| used_ns(child.processor));
    let (most, least) = (used().max().unwrap_or(0), used().min().unwrap_or(0));
    expect!(least > 0);
    expect!(most - least <= most / 2);
    let taken = || all().map(|child| slices(child.processor));
    let (most, least) = (taken().max().unwrap_or(0), taken().min().unwrap_or(0));
    // A lottery with equal tickets: between two of them the deviation is the root of twice that many. Six times that
    // is seen once in a hundred million runs.
    let apart = most - least;
    expect!(apart * apart <= 72 * most);
    Ok(())
}

/// Sleeps between looks, so that the case itself takes little time.
fn sleep_until(mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..5000 {
        if condition() {
            return true;
        }
        wait::pause(wait::slice_ns() / 2 + 1);
    }
    false
}

fn sleeper_gets_its_turn(machine: &Machine) -> CaseResult {
    forget_words();
    occupy(machine, 0)?;
    // All processors are busy, and still each short sleep ends.
    for _ in 0..20 {
        wait::pause(100_000);
    }
    expect!(word(0) > 0);
    Ok(())
}

/// Words of the shared page.
const BEGINS: usize = 1;
const ENDS: usize = 2;
const MODE: usize = 3;
const MASKED_BEFORE: usize = 4;

const MODE_YIELD: u64 = 0;
const MODE_SPIN: u64 = 1;

extern "C" fn on_slice(frame: &mut UpcallFrame) {
    let shared = shared();
    if frame.kind == UpcallKind::SliceBegin as u32 {
        shared.increment(BEGINS);
    } else if frame.kind == UpcallKind::SliceEnd as u32 {
        shared.increment(ENDS);
        shared.set(MASKED_BEFORE, 1 + u64::from(frame.masked_before));
        if shared.get(MODE) == MODE_SPIN {
            loop {
                core::hint::spin_loop();
            }
        }
        let _ = call::yield_to(SLOT_NONE);
    } else if frame.kind == KIND_HELD_BACK {
        // The slice-end handler yields while upcalls are masked, so its next slice's begin is held back; so may its
        // end be.
        let pending = control::take_pending();
        if pending & (1 << UpcallKind::SliceBegin as u32) != 0 {
            shared.increment(BEGINS);
        }
        if pending & (1 << UpcallKind::SliceEnd as u32) != 0 {
            shared.increment(ENDS);
            let _ = call::yield_to(SLOT_NONE);
        }
    } else {
        probe::on_upcall(frame);
    }
}

extern "C" fn slice_child(mode: u64) -> ! {
    shared().set(MODE, mode);
    probe::install_with(on_slice, &[UpcallKind::SliceBegin, UpcallKind::SliceEnd]);
    loop {
        shared().increment(0);
    }
}

fn slice_upcalls(machine: &Machine) -> CaseResult {
    forget_words();
    occupy(machine, 0)?;
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(child::start(&child, slice_child, MODE_YIELD));
    expect!(sleep_until(|| child.shared.get(ENDS) >= 5 && child.shared.get(BEGINS) >= 5));
    expect_equal!(child.shared.get(MASKED_BEFORE), 1);
    // An end is followed by a begin if somebody else wins the draw.
    let (begins, ends) = (child.shared.get(BEGINS), child.shared.get(ENDS));
    expect!(begins <= ends + 2);
    expect_equal!(call::environment_read(child.environment, EnvironmentField::Stopped), Ok(0));
    Ok(())
}

fn slice_end_in_time(machine: &Machine) -> CaseResult {
    forget_words();
    occupy(machine, 0)?;
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(child::start(&child, slice_child, MODE_YIELD));
    expect!(sleep_until(|| slices(child.processor) >= 20));
    expect_equal!(call::environment_read(child.environment, EnvironmentField::Stopped), Ok(0));
    Ok(())
}

fn spinner_is_stopped(machine: &Machine) -> CaseResult {
    forget_words();
    let count = occupy(machine, 0)?;
    let child = expect_ok!(child::make(machine, 0, 0));
    let other = expect_ok!(child::make(machine, 1, 0));
    expect_ok!(call::bell_create(free_slot(0), SLOT_NONE));
    expect_ok!(call::environment_watch(child.environment, free_slot(0)));
    expect_ok!(child::start(&child, slice_child, MODE_SPIN));
    expect_ok!(child::start(&other, busy_child, 0));
    expect_equal!(child::await_stop(&child), StopReason::SliceOverrun as u64);
    expect_equal!(child.shared.get(ENDS), 1);
    let overrun = call::processor_read(child.processor, ProcessorField::OverrunNs);
    expect!(overrun.is_ok_and(|ns| ns > 0));
    expect_equal!(call::bell_take(free_slot(0)), Ok(1));
    let rip = call::environment_read(child.environment, EnvironmentField::StopRip);
    expect!(rip.is_ok_and(|rip| rip != 0));
    // It runs no more; the others do.
    let spun = child.shared.get(0);
    let before = (word(0), other.shared.get(0));
    expect!(count > 0);
    expect!(sleep_until(|| word(0) > before.0 && other.shared.get(0) > before.1));
    expect_equal!(child.shared.get(0), spun);
    expect_equal!(call::environment_read(other.environment, EnvironmentField::Stopped), Ok(0));
    Ok(())
}

/// Stays masked: its slice ends become pending bits, and the processor is taken from it all the same or it is
/// stopped.
extern "C" fn masked_child(_: u64) -> ! {
    probe::install_with(on_slice, &[UpcallKind::SliceEnd]);
    control::set_masked(true);
    loop {
        shared().increment(0);
    }
}

fn masked_slice_end(machine: &Machine) -> CaseResult {
    forget_words();
    occupy(machine, 0)?;
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(child::start(&child, masked_child, 0));
    let stopped = || call::environment_read(child.environment, EnvironmentField::Stopped);
    expect!(sleep_until(|| stopped() != Ok(0) || slices(child.processor) >= 4));
    let reason = stopped();
    expect!(reason == Ok(0) || reason == Ok(StopReason::SliceOverrun as u64));
    expect_equal!(child.shared.get(ENDS), 0);
    // Whatever became of it, the others run.
    let before = word(0);
    expect!(sleep_until(|| word(0) > before));
    Ok(())
}

/// Makes a step whenever it is let, and gives the slice back to the first processor.
extern "C" fn stepping_thread(number: u64) -> ! {
    loop {
        WORDS[number as usize].fetch_add(1, Ordering::SeqCst);
        if call::yield_to(SLOT_FIRST_PROCESSOR).is_err() {
            let _ = call::yield_to(SLOT_NONE);
        }
    }
}

/// Directed yields of the case.
const STEPS: u64 = 60;

fn directed_yield(machine: &Machine) -> CaseResult {
    forget_words();
    if machine.cpu_count > 1 {
        // Elsewhere a target may be running already; what is sure is that it is not refused when it is ready.
        let count = occupy(machine, 0)?;
        let extra = expect_ok!(thread::spawn(count, busy_thread, 12));
        expect!(wait::until(|| call::yield_to(extra.processor).is_ok()));
        expect!(sleep_until(|| word(12) > 0));
        return Ok(());
    }
    let mut threads: [Option<Thread>; 3] = [None; 3];
    for number in 0..3 {
        let thread = expect_ok!(thread::spawn(number, stepping_thread, u64::from(number)));
        threads[number as usize] = Some(thread);
    }
    // Only the one that is named takes a step before we run again, unless a slice ends in between.
    let mut exact = 0;
    for step in 0..STEPS {
        let target = (step * 7 % 3) as usize;
        let Some(thread) = threads[target] else {
            continue;
        };
        let mut expected = [word(0), word(1), word(2)];
        expected[target] += 1;
        let outcome = call::yield_to(thread.processor);
        exact += u64::from(outcome.is_ok() && [word(0), word(1), word(2)] == expected);
    }
    expect!(exact >= STEPS / 2);
    Ok(())
}

fn yield_refuses(_: &Machine) -> CaseResult {
    let thread = expect_ok!(thread::make(0));
    expect_refused!(call::yield_to(thread.processor), Status::WrongState);
    expect_refused!(call::yield_to(SLOT_FIRST_PROCESSOR), Status::WrongState);
    expect_refused!(call::yield_to(SLOT_SELF), Status::WrongType);
    expect_refused!(call::yield_to(slot(0)), Status::BadSlot);
    expect_refused!(call::yield_to(CapSlot(u32::MAX)), Status::BadSlot);
    expect_ok!(call::cap_derive(thread.processor, slot(0), Rights::empty(), 0, 0));
    expect_refused!(call::yield_to(slot(0)), Status::WrongState);
    expect_ok!(call::yield_to(SLOT_NONE));
    Ok(())
}

/// How many of the threads run at this moment, while we do.
fn running_count(threads: &[Option<Thread>]) -> u32 {
    let is_running = |thread: &&Thread| thread.state() == ProcessorState::Running as u64;
    threads.iter().flatten().filter(is_running).count() as u32
}

fn processors_run_in_parallel(machine: &Machine) -> CaseResult {
    forget_words();
    let mut threads: [Option<Thread>; 8] = [None; 8];
    for number in 0..machine.cpu_count.max(2) - 1 {
        let thread = expect_ok!(thread::spawn(number, busy_thread, u64::from(number)));
        threads[number as usize] = Some(thread);
    }
    if machine.cpu_count == 1 {
        // Nobody runs while we do.
        for _ in 0..200 {
            expect_equal!(running_count(&threads), 0);
            expect_ok!(call::yield_to(SLOT_NONE));
        }
        expect!(word(0) > 0);
        return Ok(());
    }
    expect!(wait::until(|| running_count(&threads) == machine.cpu_count - 1));
    Ok(())
}

/// Two that hand one slice to and fro for ever.
extern "C" fn passing_thread(number: u64) -> ! {
    let peer = slot(64 + 2 * (1 - number as u32));
    loop {
        WORDS[8 + number as usize].fetch_add(1, Ordering::SeqCst);
        let _ = call::yield_to(peer);
    }
}

fn passing_on_does_not_stretch(_: &Machine) -> CaseResult {
    forget_words();
    for number in 0..2 {
        expect_ok!(thread::spawn(number, passing_thread, u64::from(number)));
    }
    let third = expect_ok!(thread::spawn(2, busy_thread, 0));
    expect!(sleep_until(|| slices(third.processor) >= 6));
    expect!(word(0) > 0 && word(8) > 0 && word(9) > 0);
    Ok(())
}

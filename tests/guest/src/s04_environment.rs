//! Environments and their processors: made from donated frames, read, watched, asked for memory, and ended in every
//! state.

use aegis_abi::call::{EnvironmentField, ProcessorField, ProcessorState, StopReason};
use aegis_abi::layout::{FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, KERNEL_BASE, PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF};
use aegis_abi::upcall::{ControlPage, UpcallFrame, UpcallKind};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call::{self, Outcome, Refusal};
use aegis_rt::{control, upcall};

use crate::child::{self, CHILD_SCRATCH_BASE, Child, shared};
use crate::memory::{SCRATCH_BASE, bind_in, free_slot, map, repeat, slot, take, unmap};
use crate::suite::{CaseResult, Machine, Suite};
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, thread, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s04_environment",
    cases: &[
        ("create_and_destroy_give_everything_back", create_and_destroy),
        ("create_refuses_what_cannot_pay", create_refuses),
        ("quota_moves_and_comes_back", quota_moves),
        ("quota_holds", quota_holds),
        ("fields_are_read", fields_are_read),
        ("watcher_is_rung_also_late", watcher_is_rung),
        ("stopped_environment_starts_nothing", stopped_starts_nothing),
        ("processor_goes_through_its_states", processor_states),
        ("processor_create_refuses_bad_arguments", processor_create_refuses),
        ("processor_start_passes_its_arguments", processor_start_passes),
        ("processor_pages_are_pinned", processor_pages_are_pinned),
        ("reclaim_is_complied_with", reclaim_complied),
        ("reclaim_is_ignored_and_frames_are_taken", reclaim_ignored),
        ("reclaim_refuses_bad_arguments", reclaim_refuses),
        ("destroyed_while_running", destroyed_while_running),
        ("destroyed_in_every_state", destroyed_in_every_state),
        ("destroyed_with_its_own_children", destroyed_with_children),
        ("nobody_destroys_what_it_lives_in", destroy_self_refused),
        ("many_children_one_after_another", many_children),
        ("frames_of_a_dead_child_are_zero_for_the_next", frames_of_the_dead_are_zero),
    ],
};

fn read(slot: CapSlot, field: EnvironmentField) -> Outcome {
    call::environment_read(slot, field)
}

fn bad_argument(index: u64) -> Outcome {
    Err(Refusal { status: Status::BadArgument, value: index })
}

/// Destroys, in as many calls as it takes.
fn destroy(slot: CapSlot) -> Result<u32, Refusal> {
    let mut calls = 0;
    loop {
        calls += 1;
        // SAFETY: only children are destroyed.
        match unsafe { call::environment_destroy(slot) } {
            Err(refusal) if refusal.status == Status::Again => {}
            outcome => return outcome.map(|_| calls),
        }
    }
}

extern "C" fn idle_child(_: u64) -> ! {
    shared().set(0, 1);
    wait::forever()
}

extern "C" fn spinning_child(_: u64) -> ! {
    loop {
        shared().increment(0);
    }
}

fn create_and_destroy(machine: &Machine) -> CaseResult {
    let free = expect_ok!(read(SLOT_SELF, EnvironmentField::FramesFree));
    let child = expect_ok!(child::make(machine, 0, 100));
    expect_ok!(child::start(&child, idle_child, 0));
    expect!(child::await_word(&child, 0, 1));
    expect_ok!(destroy(child.environment));
    expect_refused!(call::cap_read(child.environment, 0), Status::BadSlot);
    // Its processor ended with it, our capability for that names nothing.
    expect_refused!(call::processor_read(child.processor, ProcessorField::State), Status::WrongState);
    // What is left is ours: nine frames of processor pages, one shared.
    expect_equal!(read(SLOT_SELF, EnvironmentField::FramesFree), Ok(free - 10));
    expect_ok!(call::frame_free(child.frames));
    Ok(())
}

fn create_refuses(machine: &Machine) -> CaseResult {
    let create = |frames, quota| call::environment_create(slot(1), frames, quota);
    expect_ok!(take(slot(0), 7));
    expect_equal!(create(slot(0), 0), bad_argument(1));
    expect_ok!(call::frame_free(slot(0)));
    let first = expect_ok!(take(slot(0), 16)).0;
    expect_refused!(create(slot(5), 0), Status::BadSlot);
    expect_refused!(create(SLOT_SELF, 0), Status::WrongType);
    expect_refused!(call::environment_create(SLOT_SELF, slot(0), 0), Status::SlotInUse);
    expect_refused!(call::environment_create(SLOT_NONE, slot(0), 0), Status::BadSlot);
    expect_refused!(create(slot(0), u64::MAX), Status::NoFrames);
    expect_refused!(create(slot(0), machine.info.frame_count_total), Status::NoFrames);
    expect_ok!(map(SCRATCH_BASE, first, 1, slot(0), BindFlags::empty()));
    expect_refused!(create(slot(0), 0), Status::Busy);
    expect_ok!(unmap(SCRATCH_BASE, 1));
    expect_ok!(call::cap_derive(slot(0), slot(2), Rights::all(), 0, 16));
    expect_refused!(create(slot(0), 0), Status::Busy);
    expect_refused!(create(slot(2), 0), Status::WrongState);
    // Nothing of all this took the frames.
    expect_equal!(call::cap_read(slot(0), 2), Ok(16));
    Ok(())
}

fn quota_moves(machine: &Machine) -> CaseResult {
    let before = expect_ok!(read(SLOT_SELF, EnvironmentField::FrameQuota));
    let child = expect_ok!(child::make(machine, 0, 300));
    let given = before - expect_ok!(read(SLOT_SELF, EnvironmentField::FrameQuota));
    expect_equal!(read(child.environment, EnvironmentField::FrameQuota), Ok(given));
    // The quota that was asked for, and that of the frames that pay for the tables.
    expect_equal!(given, 332);
    expect_equal!(read(child.environment, EnvironmentField::FramesOwned), Ok(32));
    expect_ok!(destroy(child.environment));
    expect_equal!(read(SLOT_SELF, EnvironmentField::FrameQuota), Ok(before));
    Ok(())
}

/// Takes frames one by one until it may not.
extern "C" fn taking_child(frame_count: u64) -> ! {
    let shared = shared();
    let mut taken = 0;
    while taken < frame_count {
        if let Err(refusal) = call::frame_allocate(CapSlot(64 + taken as u32), 1, None, 0) {
            shared.set(2, refusal.status as u64);
            break;
        }
        taken += 1;
    }
    shared.set(1, taken);
    shared.set(0, 1);
    wait::forever()
}

fn quota_holds(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 20));
    expect_ok!(child::start(&child, taking_child, 40));
    expect!(child::await_word(&child, 0, 1));
    expect_equal!(child.shared.get(1), 20);
    expect_equal!(child.shared.get(2), Status::NoFrames as u64);
    let owned = read(child.environment, EnvironmentField::FramesOwned);
    expect_equal!(owned, read(child.environment, EnvironmentField::FrameQuota));
    Ok(())
}

fn fields_are_read(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 5));
    expect_equal!(read(child.environment, EnvironmentField::Stopped), Ok(0));
    expect_equal!(read(child.environment, EnvironmentField::SlotCount), Ok(64));
    expect!(read(child.environment, EnvironmentField::FramesDonated).is_ok_and(|n| n < 32));
    // SAFETY: reading changes nothing.
    let words = |field| unsafe { call::issue_words(13, &[u64::from(child.environment.0), field, 0, 0, 0, 0]) };
    for field in [10, 100, u64::from(u32::MAX)] {
        expect_equal!(words(field).0, Status::BadArgument as u64);
    }
    expect_equal!(read(child.environment, EnvironmentField::TimeUsedNs), Ok(0));
    expect_ok!(child::start(&child, taking_child, 1));
    expect!(child::await_word(&child, 0, 1));
    expect!(read(child.environment, EnvironmentField::TimeUsedNs).is_ok_and(|used_ns| used_ns > 0));
    expect_ok!(call::cap_derive(child.environment, free_slot(0), Rights::CONTROL, 0, 0));
    expect_refused!(read(free_slot(0), EnvironmentField::Stopped), Status::MissingRight);
    expect_refused!(read(free_slot(1), EnvironmentField::Stopped), Status::BadSlot);
    expect_refused!(read(child.processor, EnvironmentField::Stopped), Status::WrongType);
    Ok(())
}

extern "C" fn stopping_child(_: u64) -> ! {
    control::set_entry(UpcallKind::Exception, 0);
    let _ = probe::read(0);
    wait::forever()
}

fn watcher_is_rung(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(call::bell_create(free_slot(0), SLOT_NONE));
    expect_ok!(call::environment_watch(child.environment, free_slot(0)));
    expect_equal!(call::bell_take(free_slot(0)), Ok(0));
    expect_ok!(child::start(&child, stopping_child, 0));
    expect_equal!(child::await_stop(&child), StopReason::NoHandler as u64);
    expect_equal!(call::bell_take(free_slot(0)), Ok(1));
    // A watcher that comes late is told too; slot 0 takes the watch away.
    expect_ok!(call::environment_watch(child.environment, free_slot(0)));
    expect_equal!(call::bell_take(free_slot(0)), Ok(1));
    expect_ok!(call::environment_watch(child.environment, SLOT_NONE));
    expect_equal!(call::bell_take(free_slot(0)), Ok(0));
    expect_refused!(call::environment_watch(child.environment, free_slot(1)), Status::BadSlot);
    expect_refused!(call::environment_watch(child.environment, SLOT_SELF), Status::WrongType);
    Ok(())
}

fn stopped_starts_nothing(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(child::start(&child, stopping_child, 0));
    expect_equal!(child::await_stop(&child), StopReason::NoHandler as u64);
    let stopped = ProcessorState::Stopped as u64;
    expect_equal!(call::processor_read(child.processor, ProcessorField::State), Ok(stopped));
    expect_refused!(child::start(&child, idle_child, 0), Status::WrongState);
    Ok(())
}

extern "C" fn spinning_thread(_: u64) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

extern "C" fn sleeping_thread(_: u64) -> ! {
    wait::forever()
}

fn processor_states(_: &Machine) -> CaseResult {
    let thread = expect_ok!(thread::make(0));
    let state = |state: ProcessorState| state as u64;
    expect_equal!(thread.state(), state(ProcessorState::Stopped));
    expect_ok!(thread::start(&thread, sleeping_thread, 0));
    expect_refused!(thread::start(&thread, sleeping_thread, 0), Status::WrongState);
    expect!(thread.await_state(ProcessorState::Asleep));
    // SAFETY: the thread holds nothing.
    let stop = || unsafe { call::processor_stop(thread.processor) };
    let unmake = || call::processor_destroy(thread.processor);
    expect_refused!(unmake(), Status::WrongState);
    expect_ok!(stop());
    expect_equal!(thread.state(), state(ProcessorState::Stopped));
    expect_ok!(stop());
    // Again from the beginning, now running or ready.
    repeat(|| thread::start(&thread, spinning_thread, 0));
    let busy = [state(ProcessorState::Ready), state(ProcessorState::Running)];
    expect!(busy.contains(&thread.state()));
    let slices = || call::processor_read(thread.processor, ProcessorField::Slices);
    // A yield gives it the rest of a slice, which is none of its own; a sleep lets it win one.
    wait::pause(1_000_000);
    expect!(wait::until(|| slices().is_ok_and(|count| count > 0)));
    expect_ok!(stop());
    expect_equal!(thread.state(), state(ProcessorState::Stopped));
    let own = call::processor_read(SLOT_FIRST_PROCESSOR, ProcessorField::State);
    expect_equal!(own, Ok(state(ProcessorState::Running)));
    let used = call::processor_read(SLOT_FIRST_PROCESSOR, ProcessorField::TimeUsedNs);
    expect!(used.is_ok_and(|ns| ns > 0));
    repeat(unmake);
    expect_refused!(call::cap_read(thread.processor, 0), Status::BadSlot);
    Ok(())
}

fn processor_create_refuses(_: &Machine) -> CaseResult {
    expect_ok!(take(slot(0), 3));
    expect_ok!(call::cap_derive(slot(0), slot(1), Rights::READ, 0, 3));
    let (control, save) = (SCRATCH_BASE, SCRATCH_BASE + PAGE_SIZE);
    let create =
        |frames, count, control, save| call::processor_create(slot(2), SLOT_SELF, frames, count, control, save);
    expect_equal!(create(slot(0), 0, control, save), bad_argument(3));
    expect_equal!(create(slot(0), 65, control, save), bad_argument(3));
    expect_equal!(create(slot(0), 3, control, save), bad_argument(2));
    for address in [0, 0x40_0000, SCRATCH_BASE + 8, KERNEL_BASE, u64::MAX - PAGE_SIZE + 1] {
        expect_equal!(create(slot(0), 2, address, save), bad_argument(4));
        expect_equal!(create(slot(0), 2, control, address), bad_argument(5));
    }
    expect_refused!(create(slot(1), 2, control, save), Status::MissingRight);
    expect_refused!(create(SLOT_SELF, 2, control, save), Status::WrongType);
    expect_refused!(create(slot(9), 2, control, save), Status::BadSlot);
    let on = |environment| call::processor_create(slot(2), environment, slot(0), 2, control, save);
    expect_refused!(on(slot(0)), Status::WrongType);
    expect_refused!(on(SLOT_NONE), Status::BadSlot);
    expect_refused!(call::cap_read(slot(2), 0), Status::BadSlot);
    expect_ok!(on(SLOT_SELF));
    Ok(())
}

extern "C" fn argument_child(argument: u64) -> ! {
    let shared = shared();
    shared.set(1, argument);
    shared.set(2, control::control_address());
    shared.set(3, control::save_area_base());
    shared.set(4, crate::vector::fs_base());
    shared.set(0, 1);
    wait::forever()
}

fn processor_start_passes(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    let start = |rip| child::start_at(&child, rip, child::stack_top() - 8, 0);
    for rip in [0, 0x1000, KERNEL_BASE, 0x5555_0000_0000_0000, u64::MAX] {
        expect_equal!(start(rip), bad_argument(1));
    }
    expect_ok!(child::start(&child, argument_child, 0x1122_3344_5566_7788));
    expect!(child::await_word(&child, 0, 1));
    expect_equal!(child.shared.get(1), 0x1122_3344_5566_7788);
    expect_equal!(child.shared.get(2), FIRST_CONTROL_BASE);
    expect_equal!(child.shared.get(3), FIRST_SAVE_AREA_BASE);
    expect_equal!(child.shared.get(4), 0);
    Ok(())
}

fn processor_pages_are_pinned(_: &Machine) -> CaseResult {
    let thread = expect_ok!(thread::make(0));
    expect_ok!(unmap(thread.control_address(), 16));
    expect_refused!(call::frame_free(thread.frames), Status::Busy);
    expect_refused!(call::frame_donate(thread.frames, SLOT_SELF), Status::Busy);
    // SAFETY: refused.
    unsafe { expect_refused!(call::cap_drop(thread.frames), Status::Busy) };
    repeat(|| call::processor_destroy(thread.processor));
    expect_ok!(call::frame_free(thread.frames));
    Ok(())
}

/// Words of the reclaim cases.
const READY: usize = 0;
const ASKED: usize = 1;
const FREED: usize = 2;
const TAKEN: usize = 3;
const TAKEN_FIRST: usize = 4;
const STILL_MAPPED: usize = 5;

/// Slot in which the reclaim children keep their frames.
const HOARD: u32 = 16;
const HOARD_COUNT: u64 = 10;

extern "C" fn on_revocation(frame: &mut UpcallFrame) {
    let shared = shared();
    // A probe may be under way when it is asked: then it is told when that ends.
    let is_held_back = frame.kind == upcall::KIND_HELD_BACK;
    let pending = if is_held_back { control::take_pending() } else { 0 };
    if frame.kind == UpcallKind::Revocation as u32 || pending & (1 << UpcallKind::Revocation as u32) != 0 {
        shared.set(ASKED, control::revocation_frame_count());
        if shared.get(8) == 0 {
            // It chooses: the last ones.
            let mut freed = 0;
            for number in (0..HOARD_COUNT as u32).rev().take(control::revocation_frame_count() as usize) {
                freed += u64::from(call::frame_free(CapSlot(HOARD + number)).is_ok());
            }
            shared.set(FREED, freed);
        }
    } else if frame.kind == UpcallKind::Repossession as u32 || pending & (1 << UpcallKind::Repossession as u32) != 0 {
        shared.set(TAKEN, control::repossessed_count());
        // SAFETY: the control page is mapped; the kernel wrote the entry before it told us.
        let page = unsafe { &*(control::control_address() as *const ControlPage) };
        shared.set(TAKEN_FIRST, page.repossessed[0]);
    } else if !is_held_back {
        probe::on_upcall(frame);
    }
}

/// Owns ten frames, each in a slot of its own, one of them mapped; then waits to be asked.
extern "C" fn hoarding_child(_: u64) -> ! {
    let shared = shared();
    probe::install_with(on_revocation, &[UpcallKind::Revocation, UpcallKind::Repossession]);
    let mut good = 0;
    for number in 0..HOARD_COUNT as u32 {
        good += u64::from(take(CapSlot(HOARD + number), 1).is_ok());
    }
    if shared.get(8) != 0 {
        // What will be taken by force is mapped.
        for number in 0..HOARD_COUNT {
            let hoard = CapSlot(HOARD + number as u32);
            let frame = call::cap_read(hoard, 1).unwrap_or(0);
            let address = CHILD_SCRATCH_BASE + number * PAGE_SIZE;
            good += u64::from(map(address, frame, 1, hoard, BindFlags::WRITE).is_ok()) << 8;
        }
    }
    shared.set(READY, good);
    loop {
        wait::pause(1_000_000);
        let mapped =
            (0..HOARD_COUNT).filter(|number| !probe::is_unmapped(CHILD_SCRATCH_BASE + number * PAGE_SIZE)).count();
        shared.set(STILL_MAPPED, 1 + mapped as u64);
    }
}

fn hoarder(machine: &Machine, ignores: u64) -> Result<Child, crate::suite::Failure> {
    let child = expect_ok!(child::make(machine, 0, 50));
    child.shared.set(8, ignores);
    expect_ok!(child::start(&child, hoarding_child, 0));
    expect!(child::await_word(&child, READY, 1));
    Ok(child)
}

/// Frames that a child may own and does not.
fn unused_quota(child: &Child) -> Result<u64, crate::suite::Failure> {
    let quota = expect_ok!(read(child.environment, EnvironmentField::FrameQuota));
    Ok(quota - expect_ok!(read(child.environment, EnvironmentField::FramesOwned)))
}

fn reclaim_complied(machine: &Machine) -> CaseResult {
    let child = hoarder(machine, 0)?;
    expect_equal!(child.shared.get(READY), 10);
    let owned = expect_ok!(read(child.environment, EnvironmentField::FramesOwned));
    let deadline = wait::now_ns() + 10_000_000_000;
    let unused = unused_quota(&child)?;
    expect_ok!(call::environment_reclaim(child.environment, unused + 4, deadline));
    expect!(child::await_word(&child, FREED, 1));
    expect_equal!(child.shared.get(ASKED), 4);
    expect_equal!(child.shared.get(FREED), 4);
    expect_equal!(read(child.environment, EnvironmentField::FramesOwned), Ok(owned - 4));
    expect_equal!(child.shared.get(TAKEN), 0);
    Ok(())
}

fn reclaim_ignored(machine: &Machine) -> CaseResult {
    let child = hoarder(machine, 1)?;
    expect_equal!(child.shared.get(READY), 10 + (10 << 8));
    let quota = expect_ok!(read(SLOT_SELF, EnvironmentField::FrameQuota));
    let free = expect_ok!(read(SLOT_SELF, EnvironmentField::FramesFree));
    let owned = expect_ok!(read(child.environment, EnvironmentField::FramesOwned));
    let deadline = wait::now_ns() + 200_000_000;
    let unused = unused_quota(&child)?;
    expect_ok!(call::environment_reclaim(child.environment, unused + 3, deadline));
    let again = call::environment_reclaim(child.environment, 1, deadline);
    expect_refused!(again, Status::WrongState);
    expect!(child::await_word(&child, TAKEN, 3));
    expect_equal!(child.shared.get(ASKED), 3);
    expect_equal!(child.shared.get(TAKEN), 3);
    expect!(child.shared.get(TAKEN_FIRST) != 0);
    expect_equal!(read(child.environment, EnvironmentField::FramesOwned), Ok(owned - 3));
    expect_equal!(read(SLOT_SELF, EnvironmentField::FramesFree), Ok(free + 3));
    expect_equal!(read(SLOT_SELF, EnvironmentField::FrameQuota), Ok(quota + unused + 3));
    // Three of its pages are gone, and it learns that from the vector, not from a crash.
    expect!(wait::until(|| child.shared.get(STILL_MAPPED) == 1 + 7));
    expect_equal!(child::await_word(&child, TAKEN, 3), true);
    // The frame is anybody's now.
    let frame = aegis_abi::FrameNumber(child.shared.get(TAKEN_FIRST));
    expect_ok!(call::frame_allocate(free_slot(0), 1, Some(frame), 0));
    Ok(())
}

fn reclaim_refuses(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    let reclaim = |slot, count| call::environment_reclaim(slot, count, 1);
    expect_equal!(reclaim(child.environment, 0), bad_argument(1));
    let quota = expect_ok!(read(child.environment, EnvironmentField::FrameQuota));
    expect_equal!(reclaim(child.environment, quota + 1), bad_argument(1));
    expect_equal!(reclaim(child.environment, u64::MAX), bad_argument(1));
    expect_refused!(reclaim(SLOT_SELF, 1), Status::WrongState);
    expect_refused!(reclaim(child.frames, 1), Status::WrongType);
    expect_refused!(reclaim(free_slot(0), 1), Status::BadSlot);
    // All that it owns is donated: what is in no use is taken, and an environment that then still owns too much is
    // stopped.
    let owned = expect_ok!(read(child.environment, EnvironmentField::FramesOwned));
    expect_ok!(reclaim(child.environment, 5));
    expect!(wait::until(|| read(child.environment, EnvironmentField::FramesOwned) == Ok(owned - 5)));
    expect_equal!(read(child.environment, EnvironmentField::Stopped), Ok(StopReason::Running as u64));
    let quota = expect_ok!(read(child.environment, EnvironmentField::FrameQuota));
    expect!(wait::until(|| reclaim(child.environment, quota).is_ok()));
    let stopped = StopReason::FramesKept as u64;
    expect!(wait::until(|| read(child.environment, EnvironmentField::Stopped) == Ok(stopped)));
    Ok(())
}

fn destroyed_while_running(machine: &Machine) -> CaseResult {
    for _ in 0..10 {
        let child = expect_ok!(child::make(machine, 0, 0));
        expect_ok!(child::start(&child, spinning_child, 0));
        expect!(child::await_word(&child, 0, 1));
        let calls = expect_ok!(destroy(child.environment));
        expect!(calls < 100_000);
        let count = child.shared.get(0);
        wait::pause(200_000);
        expect_equal!(child.shared.get(0), count);
        crate::memory::release_scratch();
    }
    Ok(())
}

extern "C" fn gate_child(_: u64) -> ! {
    shared().set(0, 1);
    // SAFETY: nothing in the save area is needed any more.
    unsafe { aegis_rt::gate::serve() }
}

extern "C" fn word_sleeper_child(_: u64) -> ! {
    let shared = shared();
    let address = call::cap_read(child::CHILD_SHARED, 1).unwrap_or(0) * PAGE_SIZE + 8 * 100;
    shared.set(0, 1);
    loop {
        let _ = call::sleep(&[crate::s05_bell::word_term(0, child::CHILD_SHARED, address, 1)]);
    }
}

fn destroyed_in_every_state(machine: &Machine) -> CaseResult {
    let mains: [child::ChildMain; 5] = [idle_child, spinning_child, gate_child, word_sleeper_child, stopping_child];
    for main in mains {
        let child = expect_ok!(child::make(machine, 0, 0));
        // Never started, then in its state.
        let other = expect_ok!(child::make(machine, 1, 0));
        expect_ok!(child::start(&child, main, 0));
        wait::pause(2_000_000);
        expect_ok!(destroy(child.environment));
        expect_ok!(destroy(other.environment));
        expect_ok!(call::frame_free(child.frames));
        crate::memory::release_scratch();
    }
    Ok(())
}

/// Makes an environment out of frames that it takes, and leaves it to its own creator's end.
extern "C" fn parent_child(_: u64) -> ! {
    let shared = shared();
    let made = take(CapSlot(16), 16)
        .and_then(|_| call::environment_create(CapSlot(17), CapSlot(16), 4))
        .and_then(|_| take(CapSlot(18), 3))
        .and_then(|_| {
            call::processor_create(CapSlot(19), CapSlot(17), CapSlot(18), 2, FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE)
        })
        .and_then(|_| call::cap_grant(SLOT_SELF, CapSlot(17), CapSlot(9), Rights::READ))
        .and_then(|_| call::cap_grant(child::CHILD_SHARED, CapSlot(17), CapSlot(10), Rights::READ));
    shared.set(1, made.map_or_else(|refusal| refusal.status as u64, |_| 0));
    shared.set(0, 1);
    wait::forever()
}

fn destroyed_with_children(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 40));
    expect_ok!(call::cap_derive(child.shared_slot, free_slot(0), Rights::all(), 0, 1));
    expect_ok!(child::start(&child, parent_child, 0));
    expect!(child::await_word(&child, 0, 1));
    // The shared frame was given to it without the right to pass it on.
    expect_equal!(child.shared.get(1), Status::MissingRight as u64);
    expect_ok!(destroy(child.environment));
    expect_ok!(unmap(crate::memory::SHARED_BASE, 1));
    Ok(())
}

extern "C" fn suicidal_child(_: u64) -> ! {
    let shared = shared();
    // SAFETY: refused.
    let outcome = unsafe { call::environment_destroy(SLOT_SELF) };
    shared.set(1, outcome.map_or_else(|refusal| refusal.status as u64, |_| 0));
    shared.set(0, 1);
    wait::forever()
}

fn destroy_self_refused(machine: &Machine) -> CaseResult {
    // SAFETY: refused.
    unsafe { expect_refused!(call::environment_destroy(SLOT_SELF), Status::WrongState) };
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(child::start(&child, suicidal_child, 0));
    expect!(child::await_word(&child, 0, 1));
    expect_equal!(child.shared.get(1), Status::WrongState as u64);
    // SAFETY: refused.
    unsafe { expect_refused!(call::environment_destroy(child.processor), Status::WrongType) };
    Ok(())
}

fn many_children(machine: &Machine) -> CaseResult {
    for round in 0..40 {
        let child = expect_ok!(child::make(machine, 0, 8));
        expect_ok!(child::start(&child, argument_child, round));
        expect!(child::await_word(&child, 0, 1));
        expect_equal!(child.shared.get(1), round);
        expect_ok!(destroy(child.environment));
        crate::memory::release_scratch();
    }
    // And as many at a time as there are slots for here.
    for number in 0..8 {
        let child = expect_ok!(child::make(machine, number, 8));
        expect_ok!(child::start(&child, argument_child, u64::from(number)));
    }
    Ok(())
}

/// Fills a frame of its own with a secret.
extern "C" fn secretive_child(_: u64) -> ! {
    let shared = shared();
    let Ok(frame) = take(CapSlot(16), 1) else { wait::forever() };
    let _ = map(CHILD_SCRATCH_BASE, frame.0, 1, CapSlot(16), BindFlags::WRITE);
    for offset in (0..PAGE_SIZE).step_by(8) {
        // SAFETY: just mapped.
        unsafe { ((CHILD_SCRATCH_BASE + offset) as *mut u64).write_volatile(0x5ec2_e75e_c2e7) };
    }
    shared.set(1, frame.0);
    shared.set(0, 1);
    wait::forever()
}

fn frames_of_the_dead_are_zero(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 4));
    expect_ok!(child::start(&child, secretive_child, 0));
    expect!(child::await_word(&child, 0, 1));
    let frame = aegis_abi::FrameNumber(child.shared.get(1));
    // It is its own: we cannot have it.
    let theirs = call::frame_allocate(free_slot(0), 1, Some(frame), 0);
    expect_refused!(theirs, Status::NoFrames);
    expect_ok!(destroy(child.environment));
    expect_ok!(call::frame_allocate(free_slot(0), 1, Some(frame), 0));
    expect_ok!(map(SCRATCH_BASE, frame.0, 1, free_slot(0), BindFlags::empty()));
    for offset in (0..PAGE_SIZE).step_by(8) {
        expect_equal!(probe::read(SCRATCH_BASE + offset).unwrap_or(1), 0);
    }
    let entry = BindEntry::map(SCRATCH_BASE, frame.0, 1, free_slot(0), BindFlags::WRITE);
    expect_ok!(bind_in(SLOT_SELF, entry));
    Ok(())
}

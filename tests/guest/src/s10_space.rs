//! Address spaces of one environment: a program's half for each, one library OS window for all.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::call::{EnvironmentField, ProcessorState, StopReason};
use aegis_abi::layout::{LARGE_PAGE_FRAMES, LARGE_PAGE_SIZE, LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::share::Table;
use aegis_abi::types::SLOT_SELF;
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call::{self, Outcome};
use aegis_rt::gate::{self, Message, gate_call, gate_entry};

use crate::child::{self, CHILD_SLOT_FREE, shared};
use crate::memory::{SCRATCH_BASE, bind_in, free_slot, repeat, slot, table_entry, take};
use crate::suite::{CaseResult, Machine, Suite};
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, thread, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s10_space",
    cases: &[
        ("each_space_has_its_own_program_half", own_program_half),
        ("the_window_is_in_every_space", shared_window),
        ("each_space_sees_its_own_tables", own_tables),
        ("large_pages_work_in_spaces", large_pages),
        ("the_kernel_reads_through_the_current_space", kernel_reads),
        ("processors_are_in_spaces_of_their_own", processors_in_spaces),
        ("a_window_change_reaches_other_spaces_that_run", window_change_reaches),
        ("a_program_change_reaches_who_runs_there", program_change_reaches),
        ("gates_lead_into_the_space_of_the_callee", gates_between_spaces),
        ("a_space_gives_back_what_it_cost", space_gives_back),
        ("a_space_in_use_is_busy", busy_in_use),
        ("a_capability_goes_from_every_space", capability_goes),
        ("revocation_reaches_the_spaces_of_others", revocation_reaches),
        ("an_environment_ends_with_its_spaces", environment_ends),
        ("spaces_have_a_limit", limit),
        ("spaces_stay_in_their_environment", stay_home),
    ],
};

/// An address of the program's half.
const AT: u64 = 0x5000_0000;
/// A page of the window.
const WINDOW_AT: u64 = SCRATCH_BASE + 64 * PAGE_SIZE;
const A: CapSlot = free_slot(0);
const B: CapSlot = free_slot(1);
const FRAMES: CapSlot = free_slot(2);
const WRITE: BindFlags = BindFlags::WRITE;

fn enter(space: CapSlot) -> Outcome {
    // SAFETY: code and stacks of this program are in the window.
    unsafe { call::space_enter(space) }
}

fn unmap_in(space: CapSlot, address: u64) -> Outcome {
    bind_in(space, BindEntry::unmap(address, 1))
}

/// Makes `A` and `B`, and `count` frames whose first words are 1, 2, …; gives the first.
fn set_up(count: u64) -> Result<u64, crate::suite::Failure> {
    expect_ok!(call::space_create(A));
    expect_ok!(call::space_create(B));
    let first = expect_ok!(take(FRAMES, count)).0;
    expect_ok!(bind_in(SLOT_SELF, BindEntry::map(SCRATCH_BASE, first, count as u32, FRAMES, WRITE)));
    for number in 0..count {
        expect!(probe::write(SCRATCH_BASE + number * PAGE_SIZE, number + 1).is_ok());
    }
    Ok(first)
}

fn own_program_half(_: &Machine) -> CaseResult {
    let first = set_up(3)?;
    for (number, space) in [A, B, SLOT_SELF].into_iter().enumerate() {
        expect_ok!(bind_in(space, BindEntry::map(AT, first + number as u64, 1, FRAMES, WRITE)));
    }
    for _ in 0..3 {
        for (space, value) in [(A, 1), (B, 2), (SLOT_SELF, 3), (B, 2), (A, 1), (A, 1)] {
            expect_ok!(enter(space));
            expect_equal!(probe::read(AT).unwrap_or(0), value);
            expect!(probe::is_unmapped(AT + PAGE_SIZE));
        }
    }
    // From one space into another, and at home from anywhere.
    expect_ok!(bind_in(B, BindEntry::map(AT + PAGE_SIZE, first, 1, FRAMES, WRITE)));
    expect_ok!(unmap_in(SLOT_SELF, AT));
    expect_equal!(probe::read(AT).unwrap_or(0), 1);
    expect!(probe::is_unmapped(AT + PAGE_SIZE));
    expect_ok!(enter(B));
    expect_equal!(probe::read(AT + PAGE_SIZE).unwrap_or(0), 1);
    expect_ok!(unmap_in(B, AT));
    expect!(probe::is_unmapped(AT));
    expect_ok!(enter(SLOT_SELF));
    expect!(probe::is_unmapped(AT));
    Ok(())
}

fn shared_window(_: &Machine) -> CaseResult {
    let first = set_up(2)?;
    // The last address is in a part of the window where nothing has been: a table that all roots must get.
    for address in [WINDOW_AT, LIBOS_BASE + (7 << 39)] {
        for (at, from) in [(A, SLOT_SELF), (SLOT_SELF, B), (B, A)] {
            expect_ok!(enter(at));
            expect_ok!(bind_in(from, BindEntry::map(address, first + 1, 1, FRAMES, WRITE)));
            for space in [SLOT_SELF, B, A] {
                expect_ok!(enter(space));
                expect_equal!(probe::read(address).unwrap_or(0), 2);
            }
            expect_ok!(bind_in(from, BindEntry::map(address, first, 1, FRAMES, WRITE)));
            expect_equal!(probe::read(address).unwrap_or(0), 1);
            expect_ok!(unmap_in(at, address));
            for space in [SLOT_SELF, B, A] {
                expect_ok!(enter(space));
                expect!(probe::is_unmapped(address));
            }
        }
    }
    Ok(())
}

fn own_tables(_: &Machine) -> CaseResult {
    let first = set_up(2)?;
    expect_ok!(bind_in(A, BindEntry::map(AT, first, 1, FRAMES, WRITE)));
    expect_ok!(bind_in(B, BindEntry::map(AT, first + 1, 1, FRAMES, BindFlags::empty())));
    for (space, number, is_writable) in [(A, 0, true), (B, 1, false), (A, 0, true)] {
        expect_ok!(enter(space));
        let entry = table_entry(AT);
        expect_equal!((entry & aegis_abi::memory::entry::FRAME_MASK) / PAGE_SIZE, first + number);
        expect_equal!(entry & aegis_abi::memory::entry::WRITE != 0, is_writable);
        expect!(probe::write(crate::memory::window_address(AT), 0).is_err());
    }
    Ok(())
}

fn large_pages(_: &Machine) -> CaseResult {
    let mut first = 0;
    repeat(|| {
        let outcome = call::frame_allocate(FRAMES, LARGE_PAGE_FRAMES, None, 9);
        first = outcome.unwrap_or(0);
        outcome
    });
    expect_ok!(call::space_create(A));
    expect_ok!(call::space_create(B));
    let pages = LARGE_PAGE_FRAMES as u32;
    let at = AT + LARGE_PAGE_SIZE;
    let large = BindFlags::LARGE | WRITE;
    for (space, address) in [(A, at), (B, at), (A, SCRATCH_BASE)] {
        expect_ok!(bind_in(space, BindEntry::map(address, first, pages, FRAMES, large)));
    }
    expect_ok!(enter(A));
    expect!(probe::write(at + LARGE_PAGE_SIZE - 8, 77).is_ok());
    expect_ok!(enter(B));
    expect_equal!(probe::read(at + LARGE_PAGE_SIZE - 8).unwrap_or(0), 77);
    expect_ok!(enter(SLOT_SELF));
    expect_equal!(probe::read(SCRATCH_BASE + LARGE_PAGE_SIZE - 8).unwrap_or(0), 77);
    // Both ends of a space: mapped, and unmapped before.
    expect_ok!(bind_in(A, BindEntry { flags: large.bits(), ..BindEntry::unmap(at, pages) }));
    for space in [A, B] {
        // SAFETY: no processor is in it.
        repeat(|| unsafe { call::cap_drop(space) });
        expect!(call::cap_read(space, 0).is_err());
    }
    expect_ok!(bind_in(SLOT_SELF, BindEntry::unmap(SCRATCH_BASE, pages)));
    expect_ok!(call::frame_free(FRAMES));
    Ok(())
}

fn kernel_reads(_: &Machine) -> CaseResult {
    let first = set_up(1)?;
    expect_ok!(bind_in(A, BindEntry::map(AT, first, 1, FRAMES, WRITE)));
    expect_ok!(enter(A));
    let nothing = BindEntry::unmap(AT + PAGE_SIZE, 1);
    // SAFETY: mapped above, in the space that we are in.
    unsafe { (AT as *mut BindEntry).write(nothing) };
    let batch = [u64::from(SLOT_SELF.0), AT, 1, 0, 0, 0];
    expect!(crate::s08_hostile::issue(10, &batch) == (Some(Status::Ok), 1));
    for space in [B, SLOT_SELF] {
        expect_ok!(enter(space));
        expect!(crate::s08_hostile::issue(10, &batch).0 == Some(Status::BadAddress));
    }
    Ok(())
}

/// What threads tell: the value read, how often they looked.
static SEEN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn seen(index: usize) -> u64 {
    SEEN[index].load(Ordering::SeqCst)
}

fn see(index: usize, value: u64) {
    SEEN[index].store(value, Ordering::SeqCst);
}

/// What a fault is told as.
const FAULT: u64 = u64::MAX;

/// Enters space `A` and reads the word at `address` again and again.
extern "C" fn reading_thread(address: u64) -> ! {
    probe::install();
    see(2, enter(A).is_ok().into());
    loop {
        see(0, probe::read(address).unwrap_or(FAULT));
        SEEN[1].fetch_add(1, Ordering::SeqCst);
        // On one processor the case has to run too.
        let _ = call::yield_to(aegis_abi::types::SLOT_NONE);
    }
}

/// Waits until the thread has read the value that it must read from now on.
fn reads_at_once(value: u64) -> bool {
    let looked = seen(1);
    // One look may have begun before the change.
    wait::until(|| seen(1) >= looked + 2) && seen(0) == value
}

fn watch(address: u64, space: CapSlot) -> CaseResult {
    let first = set_up(2)?;
    for word in &SEEN {
        word.store(0, Ordering::SeqCst);
    }
    expect_ok!(bind_in(space, BindEntry::map(address, first, 1, FRAMES, WRITE)));
    expect_ok!(thread::spawn(0, reading_thread, address));
    expect!(wait::until(|| seen(1) > 8));
    expect_equal!(seen(2), 1);
    for _ in 0..50 {
        expect_ok!(bind_in(space, BindEntry::map(address, first + 1, 1, FRAMES, WRITE)));
        expect!(reads_at_once(2));
        expect_ok!(unmap_in(space, address));
        expect!(reads_at_once(FAULT));
        expect_ok!(bind_in(space, BindEntry::map(address, first, 1, FRAMES, WRITE)));
        expect!(reads_at_once(1));
    }
    Ok(())
}

fn window_change_reaches(_: &Machine) -> CaseResult {
    watch(WINDOW_AT, SLOT_SELF)
}

fn program_change_reaches(_: &Machine) -> CaseResult {
    watch(AT, A)
}

/// Enters the space in a slot, tells what is at `AT`, and waits there.
extern "C" fn visiting_thread(space: u64) -> ! {
    probe::install();
    see(0, probe::read(AT).unwrap_or(FAULT));
    see(1, enter(CapSlot(space as u32)).is_ok().into());
    see(2, probe::read(AT).unwrap_or(FAULT));
    wait::forever()
}

fn processors_in_spaces(_: &Machine) -> CaseResult {
    let first = set_up(3)?;
    for (number, space) in [A, B, SLOT_SELF].into_iter().enumerate() {
        expect_ok!(bind_in(space, BindEntry::map(AT, first + number as u64, 1, FRAMES, WRITE)));
    }
    expect_ok!(enter(A));
    let visitor = expect_ok!(thread::make(0));
    // A processor starts at home, also one that was elsewhere before, whichever processor starts it.
    for space in [B, A, B] {
        expect_ok!(thread::start(&visitor, visiting_thread, u64::from(space.0)));
        expect!(visitor.await_state(ProcessorState::Asleep));
        expect_equal!(seen(0), 3);
        expect_equal!(seen(1), 1);
        expect_equal!(seen(2), if space == A { 1 } else { 2 });
        expect_equal!(probe::read(AT).unwrap_or(0), 1);
        // SAFETY: the thread holds nothing.
        expect_ok!(unsafe { call::processor_stop(visitor.processor) });
        expect!(visitor.await_state(ProcessorState::Stopped));
    }
    expect_ok!(unmap_in(SLOT_SELF, AT));
    Ok(())
}

extern "C" fn reading_server(_: u64, message: &mut Message) {
    message[0] = probe::read(AT).unwrap_or(FAULT);
}

extern "C" fn serving_thread(space: u64) -> ! {
    probe::install();
    gate::register(reading_server);
    let _ = enter(CapSlot(space as u32));
    // SAFETY: nothing in the save area is needed any more.
    unsafe { gate::serve() }
}

fn gates_between_spaces(_: &Machine) -> CaseResult {
    let first = set_up(2)?;
    expect_ok!(bind_in(A, BindEntry::map(AT, first, 1, FRAMES, WRITE)));
    expect_ok!(bind_in(B, BindEntry::map(AT, first + 1, 1, FRAMES, WRITE)));
    let server = expect_ok!(thread::spawn(0, serving_thread, u64::from(B.0)));
    expect_ok!(call::gate_create(free_slot(3), server.processor, gate_entry as *const () as u64, 0));
    expect!(server.await_state(ProcessorState::Accepting));
    expect_ok!(enter(A));
    let mut message: Message = [0; 11];
    for _ in 0..10 {
        expect!(gate_call(free_slot(3), &mut message).is_ok());
        expect_equal!(message[0], 2);
        expect_equal!(probe::read(AT).unwrap_or(0), 1);
    }
    Ok(())
}

fn donated() -> u64 {
    call::environment_read(SLOT_SELF, EnvironmentField::FramesDonated).unwrap_or(0)
}

fn space_gives_back(_: &Machine) -> CaseResult {
    let first = set_up(1)?;
    let before = donated();
    let extra = free_slot(5);
    for _ in 0..20 {
        expect_ok!(call::space_create(extra));
        expect_equal!(donated(), before - 1);
        for address in [AT, AT + (1 << 30), 0x7000_0000_0000] {
            expect_ok!(bind_in(extra, BindEntry::map(address, first, 1, FRAMES, WRITE)));
        }
        expect!(donated() < before - 4);
        expect_refused!(call::frame_free(FRAMES), Status::Busy);
        // SAFETY: no processor is in it.
        repeat(|| unsafe { call::cap_drop(extra) });
        expect_equal!(donated(), before);
        expect_refused!(enter(extra), Status::BadSlot);
    }
    // A slot of the contract's own frames stays as it was.
    expect_equal!(probe::read(SCRATCH_BASE).unwrap_or(0), 1);
    Ok(())
}

fn busy_in_use(_: &Machine) -> CaseResult {
    set_up(1)?;
    // SAFETY: nothing of ours is in the program's half.
    let drop = |space| unsafe { call::cap_drop(space) };
    expect_ok!(enter(A));
    expect_refused!(drop(A), Status::Busy);
    expect_ok!(enter(B));
    expect_ok!(drop(A));
    expect_refused!(enter(A), Status::BadSlot);
    expect_ok!(call::space_create(A));
    let visitor = expect_ok!(thread::spawn(0, visiting_thread, u64::from(A.0)));
    expect!(visitor.await_state(ProcessorState::Asleep));
    expect_refused!(drop(A), Status::Busy);
    // One with descendants is what they come from; they end with it, and it with nothing else.
    expect_ok!(call::cap_derive(A, free_slot(5), Rights::CONTROL, 0, 0));
    // SAFETY: the thread holds nothing.
    expect_ok!(unsafe { call::processor_stop(visitor.processor) });
    expect_refused!(drop(A), Status::Busy);
    expect_ok!(enter(free_slot(5)));
    expect_ok!(drop(free_slot(5)));
    expect_refused!(drop(A), Status::Busy);
    expect_ok!(enter(SLOT_SELF));
    expect!(wait::until(|| drop(A).is_ok()));
    Ok(())
}

fn capability_goes(_: &Machine) -> CaseResult {
    let first = set_up(2)?;
    for (space, address) in [(A, AT), (B, AT), (SLOT_SELF, AT), (B, AT + (4 << 30)), (A, WINDOW_AT)] {
        expect_ok!(bind_in(space, BindEntry::map(address, first + 1, 1, FRAMES, WRITE)));
    }
    // SAFETY: these frames hold numbers only.
    repeat(|| unsafe { call::cap_drop(FRAMES) });
    expect_refused!(call::cap_read(FRAMES, 0), Status::BadSlot);
    for space in [A, B, SLOT_SELF] {
        expect_ok!(enter(space));
        for address in [AT, AT + (4 << 30), WINDOW_AT, SCRATCH_BASE] {
            expect!(probe::is_unmapped(address));
        }
    }
    // The frames are nobody's: they can be had again, empty.
    expect_ok!(call::frame_allocate(FRAMES, 2, Some(aegis_abi::FrameNumber(first)), 0));
    expect_ok!(bind_in(A, BindEntry::map(AT, first, 2, FRAMES, WRITE)));
    expect_ok!(enter(A));
    expect!(probe::read(AT).is_ok());
    Ok(())
}

const CHILD_SPACE: CapSlot = CapSlot(20);

/// Makes a child whose shared words are 0: the frame may be one that we had before.
fn make_child(machine: &Machine, number: u32, frame_quota: u64) -> Result<child::Child, call::Refusal> {
    let child = child::make(machine, number, frame_quota)?;
    (0..8).for_each(|word| child.shared.set(word, 0));
    Ok(child)
}

/// In a child: makes a space, maps the frame that it was given there, and reads it until it faults.
extern "C" fn child_in_space(frame: u64) -> ! {
    probe::install();
    let made = call::space_create(CHILD_SPACE).is_ok()
        && bind_in(CHILD_SPACE, BindEntry::map(AT, frame, 1, CHILD_SLOT_FREE, WRITE)).is_ok()
        && enter(CHILD_SPACE).is_ok();
    shared().set(0, 1 + u64::from(made));
    while probe::read(AT).is_ok() {
        shared().increment(1);
        let _ = call::yield_to(aegis_abi::types::SLOT_NONE);
    }
    shared().set(2, 1);
    wait::forever()
}

fn revocation_reaches(machine: &Machine) -> CaseResult {
    let child = expect_ok!(make_child(machine, 0, 0));
    let frame = expect_ok!(take(FRAMES, 1)).0;
    expect_ok!(call::cap_grant(FRAMES, child.environment, CHILD_SLOT_FREE, Rights::READ | Rights::WRITE));
    expect_ok!(child::start(&child, child_in_space, frame));
    expect!(child::await_word(&child, 1, 3));
    expect_equal!(child.shared.get(0), 2);
    // SAFETY: the frame is for the child alone.
    repeat(|| unsafe { call::cap_revoke(FRAMES) });
    // Nobody reaches it any more, so it can be taken at once.
    expect_ok!(call::frame_free(FRAMES));
    expect!(child::await_word(&child, 2, 1));
    expect_equal!(call::environment_read(child.environment, EnvironmentField::Stopped), Ok(StopReason::Running as u64));
    Ok(())
}

fn environment_ends(machine: &Machine) -> CaseResult {
    for number in 0..4 {
        let child = expect_ok!(make_child(machine, number, 0));
        let frame = expect_ok!(take(free_slot(8 + number), 1)).0;
        let rights = Rights::READ | Rights::WRITE;
        expect_ok!(call::cap_grant(free_slot(8 + number), child.environment, CHILD_SLOT_FREE, rights));
        expect_ok!(child::start(&child, child_in_space, frame));
        expect!(child::await_word(&child, 1, 3));
        // SAFETY: a child's memory is its own.
        repeat(|| unsafe { call::environment_destroy(child.environment) });
        expect_ok!(call::frame_free(free_slot(8 + number)));
    }
    Ok(())
}

/// In a child: makes spaces until it may not, enters the last, ends them all.
extern "C" fn child_makes_spaces(_: u64) -> ! {
    let mut count = 0;
    let refusal = loop {
        match call::space_create(CapSlot(64 + count)) {
            Ok(_) => count += 1,
            Err(refusal) => break refusal.status as u64,
        }
    };
    shared().set(1, refusal);
    shared().set(2, enter(CapSlot(64 + count - 1)).is_ok().into());
    shared().set(3, enter(SLOT_SELF).is_ok().into());
    for number in 0..count {
        // SAFETY: nobody is in it.
        repeat(|| unsafe { call::cap_drop(CapSlot(64 + number)) });
    }
    // The place of those that ended is free again.
    shared().set(4, call::space_create(CHILD_SPACE).is_ok().into());
    shared().set(0, u64::from(count));
    wait::forever()
}

fn limit(machine: &Machine) -> CaseResult {
    let child = expect_ok!(make_child(machine, 0, 0));
    // What is donated to a child is its own, and counts against its share.
    expect_ok!(child::start(&child, child_makes_spaces, 0));
    expect!(child::await_word(&child, 0, 1));
    expect!(child.shared.get(0) < 32);
    expect_equal!(child.shared.get(1), Status::NoTables as u64);
    expect_equal!(child.shared.get(4), 1);
    let rich = expect_ok!(make_child(machine, 1, 600));
    expect_ok!(take(FRAMES, 560));
    expect_ok!(call::frame_donate(FRAMES, rich.environment));
    expect_ok!(call::environment_share(rich.environment, Table::Spaces, 512));
    expect_ok!(child::start(&rich, child_makes_spaces, 0));
    expect!(child::await_word(&rich, 0, 1));
    expect_equal!(rich.shared.get(0), 512);
    expect_equal!(rich.shared.get(1), Status::TableFull as u64);
    for word in [2, 3, 4] {
        expect_equal!(rich.shared.get(word), 1);
    }
    Ok(())
}

fn stay_home(machine: &Machine) -> CaseResult {
    set_up(1)?;
    let child = expect_ok!(make_child(machine, 0, 0));
    for rights in [Rights::all(), Rights::CONTROL, Rights::empty()] {
        let outcome = call::cap_grant(A, child.environment, CHILD_SLOT_FREE, rights);
        expect_refused!(outcome, Status::MissingRight);
    }
    expect_refused!(enter(child.environment), Status::WrongState);
    expect_ok!(call::cap_derive(A, slot(120), Rights::empty(), 0, 0));
    expect_refused!(enter(slot(120)), Status::MissingRight);
    expect_refused!(enter(FRAMES), Status::WrongType);
    expect_refused!(unmap_in(slot(120), AT), Status::MissingRight);
    Ok(())
}

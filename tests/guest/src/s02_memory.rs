//! Frames and mappings: taking, giving back, binding in batches, and the rights of pages as the processor enforces
//! them.

use aegis_abi::call::{Bind, EnvironmentField};
use aegis_abi::layout::{
    FIRST_CONTROL_BASE, KERNEL_BASE, LARGE_PAGE_FRAMES, LARGE_PAGE_SIZE, LIBOS_BASE, LIBOS_END, PAGE_SIZE,
    PAGE_TABLE_WINDOW, PROGRAM_BASE, PROGRAM_END, SYSTEM_PAGE_BASE,
};
use aegis_abi::memory::{BIND_ENTRY_COUNT_MAX, BIND_PAGE_COUNT_MAX, BindEntry, BindFlags, entry};
use aegis_abi::types::{SLOT_BUNDLE, SLOT_MACHINE, SLOT_SELF};
use aegis_abi::{CapSlot, FrameNumber, Rights, Status};
use aegis_rt::call::{self, Outcome, Refusal};

use crate::memory::{SCRATCH_BASE, bind_in, directory_address, map, protect, repeat, slot, table_entry, take, unmap};
use crate::probe::{self, FETCH, PRESENT, USER, WRITE};
use crate::suite::{CaseResult, Machine, Suite};
use crate::{expect, expect_equal, expect_ok, expect_refused};

pub(crate) const SUITE: Suite = Suite {
    name: "s02_memory",
    cases: &[
        ("allocated_frames_are_zero_and_ours", allocated_frames_are_zero),
        ("allocate_takes_the_frames_it_is_told", allocate_these),
        ("allocate_aligns", allocate_aligns),
        ("allocate_refuses_bad_arguments", allocate_refuses),
        ("large_allocations_come_in_steps", large_allocations),
        ("free_waits_for_the_last_mapping", free_waits),
        ("split_cuts", split_cuts),
        ("donate_feeds_tables", donate_feeds_tables),
        ("map_needs_a_capability_that_covers", map_needs_cover),
        ("map_refuses_addresses_outside_the_windows", map_refuses_addresses),
        ("bind_refuses_malformed_entries", bind_refuses_malformed),
        ("write_rights_are_enforced", write_rights),
        ("execute_rights_are_enforced", execute_rights),
        ("write_and_execute_together_are_as_asked", write_and_execute),
        ("protect_changes_and_keeps_within_rights", protect_changes),
        ("mapping_over_a_mapping_replaces_it", replaced_mapping),
        ("unmapping_takes_effect_at_once", unmapping_takes_effect),
        ("accessed_and_dirty_bits_are_seen_and_cleaned", accessed_and_dirty),
        ("program_half_is_mapped_like_the_window", program_half),
        ("large_pages_work", large_pages),
        ("large_and_small_pages_do_not_overlap", large_and_small),
        ("a_batch_of_512_entries_is_a_few_calls", batch_of_512),
        ("a_batch_stops_at_the_entry_that_fails", batch_stops),
        ("long_batches_answer_again", long_batches),
        ("one_frame_is_mapped_many_times", one_frame_many_times),
    ],
};

fn frames_free() -> u64 {
    call::environment_read(SLOT_SELF, EnvironmentField::FramesFree).unwrap_or(0)
}

fn bad_argument(index: u64) -> Outcome {
    Err(Refusal { status: Status::BadArgument, value: index })
}

fn allocated_frames_are_zero(_: &Machine) -> CaseResult {
    let free = frames_free();
    let frame = expect_ok!(take(slot(0), 4)).0;
    expect_equal!(frames_free(), free - 4);
    expect_ok!(map(SCRATCH_BASE, frame, 4, slot(0), BindFlags::WRITE));
    for offset in (0..4 * PAGE_SIZE).step_by(8) {
        expect_equal!(probe::read(SCRATCH_BASE + offset).unwrap_or(1), 0);
    }
    expect!(probe::write(SCRATCH_BASE + 4 * PAGE_SIZE - 8, 7).is_ok());
    expect!(probe::is_unmapped(SCRATCH_BASE + 4 * PAGE_SIZE));
    Ok(())
}

fn allocate_these(_: &Machine) -> CaseResult {
    let first = expect_ok!(take(slot(0), 8));
    expect_ok!(call::frame_free(slot(0)));
    let third = FrameNumber(first.0 + 2);
    expect_equal!(call::frame_allocate(slot(0), 3, Some(third), 0), Ok(third.0));
    // Any overlap with what somebody owns is refused.
    for (frame, count) in [(third.0, 1), (third.0 + 2, 1), (first.0, 8), (third.0 - 1, 2)] {
        let outcome = call::frame_allocate(slot(1), count, Some(FrameNumber(frame)), 0);
        expect_refused!(outcome, Status::NoFrames);
    }
    expect_ok!(call::frame_allocate(slot(1), 2, Some(first), 0));
    Ok(())
}

fn allocate_aligns(_: &Machine) -> CaseResult {
    expect_ok!(take(slot(0), 1));
    for (index, log2) in [1, 3, 6, 9].into_iter().enumerate() {
        let target = slot(1 + index as u32);
        let frame = expect_ok!(call::frame_allocate(target, 3, None, log2));
        expect_equal!(frame & ((1 << log2) - 1), 0);
    }
    let misaligned = expect_ok!(call::cap_read(slot(4), 1)) + 1;
    expect_ok!(call::frame_free(slot(4)));
    let outcome = call::frame_allocate(slot(5), 1, Some(FrameNumber(misaligned)), 1);
    expect_refused!(outcome, Status::NoFrames);
    Ok(())
}

fn allocate_refuses(machine: &Machine) -> CaseResult {
    expect_equal!(call::frame_allocate(slot(0), 0, None, 0), bad_argument(1));
    expect_equal!(call::frame_allocate(slot(0), u64::MAX, None, 0), bad_argument(1));
    expect_equal!(call::frame_allocate(slot(0), 1, None, 19), bad_argument(3));
    expect_equal!(call::frame_allocate(slot(0), 1, None, 64), bad_argument(3));
    expect_equal!(call::frame_allocate(slot(0), 1, None, u32::MAX), bad_argument(3));
    expect_refused!(call::frame_allocate(SLOT_SELF, 1, None, 0), Status::SlotInUse);
    expect_refused!(call::frame_allocate(CapSlot(0), 1, None, 0), Status::BadSlot);
    expect_refused!(call::frame_allocate(CapSlot(4096), 1, None, 0), Status::BadSlot);
    let more = machine.info.frame_count_total + 1;
    // More than one call may take is refused before the quota is looked at.
    let expected = if more > 8192 { Status::BadArgument } else { Status::NoFrames };
    expect_refused!(call::frame_allocate(slot(0), more, None, 0), expected);
    // Not there, the kernel's, the bundle's, beyond all memory, wrapping around.
    let frames = [0, 1, 0x200, machine.info.bundle_frame, 1 << 40, (1 << 52) - 1, u64::MAX - 1];
    for frame in frames {
        for count in [1, 2, 512] {
            let outcome = call::frame_allocate(slot(0), count, Some(FrameNumber(frame)), 0);
            expect_refused!(outcome, Status::NoFrames);
        }
    }
    expect_refused!(call::frame_free(SLOT_SELF), Status::WrongType);
    expect_refused!(call::frame_free(SLOT_MACHINE), Status::WrongType);
    expect_refused!(call::frame_free(slot(0)), Status::BadSlot);
    Ok(())
}

fn large_allocations(_: &Machine) -> CaseResult {
    // More than one call zeroes: the rest is asked for again.
    let mut calls = 0;
    let mut first = 0;
    repeat(|| {
        calls += 1;
        let outcome = call::frame_allocate(slot(0), 4000, None, 0);
        first = outcome.unwrap_or(0);
        outcome
    });
    expect!(first != 0);
    expect_equal!(call::cap_read(slot(0), 2), Ok(4000));
    let frame = first + 3999;
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::empty()));
    expect_equal!(probe::read(SCRATCH_BASE).unwrap_or(1), 0);
    expect_ok!(unmap(SCRATCH_BASE, 1));
    repeat(|| call::frame_free(slot(0)));
    expect_refused!(call::cap_read(slot(0), 0), Status::BadSlot);
    expect!(calls < 400);
    Ok(())
}

fn free_waits(_: &Machine) -> CaseResult {
    let free = frames_free();
    let frame = expect_ok!(take(slot(0), 3)).0;
    expect_ok!(map(SCRATCH_BASE, frame + 1, 1, slot(0), BindFlags::WRITE));
    expect_ok!(map(SCRATCH_BASE + PAGE_SIZE, frame + 1, 1, slot(0), BindFlags::empty()));
    expect_refused!(call::frame_free(slot(0)), Status::Busy);
    expect_ok!(unmap(SCRATCH_BASE, 1));
    expect_refused!(call::frame_free(slot(0)), Status::Busy);
    expect_refused!(call::frame_donate(slot(0), SLOT_SELF), Status::Busy);
    expect_ok!(unmap(SCRATCH_BASE + PAGE_SIZE, 1));
    expect_ok!(call::frame_free(slot(0)));
    expect_refused!(call::cap_read(slot(0), 0), Status::BadSlot);
    expect_equal!(frames_free(), free);
    Ok(())
}

fn split_cuts(_: &Machine) -> CaseResult {
    let first = expect_ok!(take(slot(0), 8)).0;
    expect_equal!(call::frame_split(slot(0), slot(1), 0), bad_argument(2));
    expect_equal!(call::frame_split(slot(0), slot(1), 8), bad_argument(2));
    expect_equal!(call::frame_split(slot(0), slot(1), u64::MAX), bad_argument(2));
    expect_refused!(call::frame_split(slot(0), slot(0), 3), Status::SlotInUse);
    expect_refused!(call::frame_split(slot(2), slot(1), 3), Status::BadSlot);
    expect_refused!(call::frame_split(SLOT_SELF, slot(1), 3), Status::WrongType);
    // A mapping that crosses the cut stays: both parts together cover it.
    expect_ok!(map(SCRATCH_BASE, first, 8, slot(0), BindFlags::WRITE));
    expect_ok!(call::frame_split(slot(0), slot(1), 3));
    expect!(probe::write(SCRATCH_BASE + 2 * PAGE_SIZE, 1).is_ok());
    expect!(probe::write(SCRATCH_BASE + 3 * PAGE_SIZE, 1).is_ok());
    expect_equal!(call::cap_read(slot(0), 2), Ok(3));
    expect_equal!(call::cap_read(slot(1), 1), Ok(first + 3));
    expect_equal!(call::cap_read(slot(1), 2), Ok(5));
    let beyond = map(SCRATCH_BASE, first + 3, 1, slot(0), BindFlags::WRITE);
    expect_refused!(beyond, Status::MissingRight);
    expect_ok!(unmap(SCRATCH_BASE, 3));
    expect_ok!(call::frame_free(slot(0)));
    expect_refused!(call::frame_free(slot(1)), Status::Busy);
    expect_ok!(call::cap_derive(slot(1), slot(2), Rights::READ, 0, 5));
    expect_refused!(call::frame_split(slot(1), slot(3), 2), Status::Busy);
    Ok(())
}

fn donate_feeds_tables(_: &Machine) -> CaseResult {
    let donated = || call::environment_read(SLOT_SELF, EnvironmentField::FramesDonated);
    expect_ok!(take(slot(0), 2));
    expect_ok!(call::cap_derive(slot(0), slot(1), Rights::all(), 0, 1));
    expect_refused!(call::frame_donate(slot(1), SLOT_SELF), Status::WrongState);
    expect_refused!(call::frame_donate(slot(0), SLOT_SELF), Status::Busy);
    expect_refused!(call::frame_donate(SLOT_SELF, SLOT_SELF), Status::WrongType);
    expect_ok!(take(slot(2), 1));
    expect_refused!(call::frame_donate(slot(2), slot(2)), Status::WrongType);
    expect_refused!(call::frame_donate(slot(2), slot(5)), Status::BadSlot);
    expect!(donated().is_ok());
    Ok(())
}

fn map_needs_cover(machine: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 4)).0;
    let none = BindFlags::empty();
    let at = SCRATCH_BASE;
    let refused =
        |frame, count, slot, status| map(at, frame, count, slot, none).is_err_and(|refusal| refusal.status == status);
    expect!(refused(frame - 1, 1, slot(0), Status::MissingRight));
    expect!(refused(frame + 4, 1, slot(0), Status::MissingRight));
    expect!(refused(frame, 5, slot(0), Status::MissingRight));
    expect!(refused(u64::MAX, 1, slot(0), Status::MissingRight));
    expect!(refused(u64::MAX - 1, 4, slot(0), Status::MissingRight));
    expect!(refused(0, 1, slot(0), Status::MissingRight));
    // Frames that are mapped for us already, through a capability for other frames.
    for address in [FIRST_CONTROL_BASE, SYSTEM_PAGE_BASE] {
        let other = (table_entry(address) & entry::FRAME_MASK) / PAGE_SIZE;
        expect!(refused(other, 1, slot(0), Status::MissingRight));
    }
    expect!(refused(frame | 1 << 40, 1, slot(0), Status::MissingRight));
    expect!(refused(frame, 1, slot(1), Status::BadSlot));
    expect!(refused(frame, 1, SLOT_SELF, Status::WrongType));
    expect!(refused(frame, 1, CapSlot(0), Status::BadSlot));
    let after_bundle = machine.info.bundle_frame + machine.info.bundle_frame_count;
    expect!(refused(after_bundle, 1, SLOT_BUNDLE, Status::MissingRight));
    expect!(probe::is_unmapped(at));
    Ok(())
}

fn map_refuses_addresses(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 2)).0;
    let addresses = [
        0,
        PAGE_SIZE,
        PROGRAM_BASE - PAGE_SIZE,
        PROGRAM_END - PAGE_SIZE,
        PROGRAM_END,
        0x0000_8000_0000_0000,
        LIBOS_BASE - PAGE_SIZE,
        LIBOS_END - PAGE_SIZE,
        LIBOS_END,
        PAGE_TABLE_WINDOW,
        PAGE_TABLE_WINDOW + (1 << 39),
        KERNEL_BASE,
        0xffff_ffff_8020_0000,
        u64::MAX - PAGE_SIZE + 1,
        SCRATCH_BASE + 1,
        SCRATCH_BASE + 8,
    ];
    for address in addresses {
        for flags in [BindFlags::empty(), BindFlags::WRITE] {
            expect_refused!(map(address, frame, 2, slot(0), flags), Status::BadAddress);
        }
        expect_refused!(unmap(address, 2), Status::BadAddress);
        expect_refused!(protect(address, 2, slot(0), BindFlags::empty()), Status::BadAddress);
    }
    Ok(())
}

fn bind_refuses_malformed(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 2)).0;
    let good = BindEntry::map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::WRITE);
    let refuse = |entry: BindEntry| bind_in(SLOT_SELF, entry);
    let bad = bad_argument(0);
    expect_equal!(refuse(BindEntry { operation: 4, ..good }), bad);
    expect_equal!(refuse(BindEntry { operation: u32::MAX, ..good }), bad);
    expect_equal!(refuse(BindEntry { flags: 1 << 4, ..good }), bad);
    expect_equal!(refuse(BindEntry { flags: u32::MAX, ..good }), bad);
    for page_count in [0, BIND_PAGE_COUNT_MAX + 1, u32::MAX] {
        expect_equal!(refuse(BindEntry { page_count, ..good }), bad);
    }
    let pointers = [
        0,
        0x1000,
        SCRATCH_BASE,
        LIBOS_END - 8,
        KERNEL_BASE,
        0x0000_8000_0000_0000,
        u64::MAX - 31,
        (&raw const good as u64) + 4,
        PAGE_TABLE_WINDOW,
    ];
    for entries in pointers {
        let call = Bind { space: SLOT_SELF, entries, entry_count: 1 };
        // SAFETY: the kernel must not get as far as to an entry.
        let outcome = unsafe { call::issue(aegis_abi::call::Call::Bind(call)) };
        expect_refused!(outcome, Status::BadAddress);
    }
    for entry_count in [BIND_ENTRY_COUNT_MAX + 1, u32::MAX] {
        let call = Bind { space: SLOT_SELF, entries: &raw const good as u64, entry_count };
        // SAFETY: as above.
        let outcome = unsafe { call::issue(aegis_abi::call::Call::Bind(call)) };
        expect_equal!(outcome, bad_argument(2));
    }
    // An empty batch; the address is checked all the same.
    let call = Bind { space: SLOT_SELF, entries: &raw const good as u64, entry_count: 0 };
    // SAFETY: nothing is bound.
    expect_equal!(unsafe { call::issue(aegis_abi::call::Call::Bind(call)) }, Ok(0));
    expect!(probe::is_unmapped(SCRATCH_BASE));
    Ok(())
}

fn write_rights(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::empty()));
    expect_equal!(probe::read(SCRATCH_BASE).unwrap_or(1), 0);
    let fault = probe::write(SCRATCH_BASE + 16, 1).err();
    expect!(fault.is_some_and(|f| f.is_page_fault(SCRATCH_BASE + 16, PRESENT | WRITE | USER)));
    expect_equal!(probe::read(SCRATCH_BASE + 16).unwrap_or(1), 0);
    Ok(())
}

/// `mov eax, 42; ret`.
const CODE: u64 = 0x0000_c300_0000_2ab8;

fn execute_rights(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::WRITE));
    expect!(probe::write(SCRATCH_BASE, CODE).is_ok());
    let fault = probe::execute(SCRATCH_BASE).err();
    expect!(fault.is_some_and(|f| f.is_page_fault(SCRATCH_BASE, PRESENT | USER | FETCH)));
    expect!(fault.is_some_and(|f| f.rip == SCRATCH_BASE));
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::EXECUTE));
    expect_equal!(probe::execute(SCRATCH_BASE).unwrap_or(0), 42);
    expect!(probe::write(SCRATCH_BASE, 0).is_err());
    Ok(())
}

fn write_and_execute(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    let both = BindFlags::WRITE | BindFlags::EXECUTE;
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), both));
    expect!(probe::write(SCRATCH_BASE, CODE).is_ok());
    expect_equal!(probe::execute(SCRATCH_BASE).unwrap_or(0), 42);
    // Two views of one frame, each with its own rights.
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::EXECUTE));
    expect_ok!(map(SCRATCH_BASE + PAGE_SIZE, frame, 1, slot(0), BindFlags::WRITE));
    expect!(probe::write(SCRATCH_BASE + PAGE_SIZE, CODE + (1 << 8)).is_ok());
    expect_equal!(probe::execute(SCRATCH_BASE).unwrap_or(0), 43);
    expect!(probe::execute(SCRATCH_BASE + PAGE_SIZE).is_err());
    Ok(())
}

fn protect_changes(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 2)).0;
    expect_ok!(call::cap_derive(slot(0), slot(1), Rights::READ, 0, 2));
    let (none, write) = (BindFlags::empty(), BindFlags::WRITE);
    expect_ok!(map(SCRATCH_BASE, frame, 2, slot(0), write));
    expect!(probe::write(SCRATCH_BASE, CODE).is_ok());
    expect_ok!(protect(SCRATCH_BASE, 2, slot(1), none));
    expect!(probe::write(SCRATCH_BASE, 0).is_err());
    expect_refused!(protect(SCRATCH_BASE, 2, slot(1), write), Status::MissingRight);
    expect_refused!(protect(SCRATCH_BASE, 2, slot(1), BindFlags::EXECUTE), Status::MissingRight);
    expect!(probe::write(SCRATCH_BASE, 0).is_err());
    expect_ok!(protect(SCRATCH_BASE, 1, slot(0), BindFlags::EXECUTE));
    expect_equal!(probe::execute(SCRATCH_BASE).unwrap_or(0), 42);
    expect!(probe::execute(SCRATCH_BASE + PAGE_SIZE).is_err());
    // Pages that are not mapped are passed over; a capability for other frames does not do.
    expect_ok!(protect(SCRATCH_BASE, 64, slot(0), write));
    expect!(probe::write(SCRATCH_BASE + PAGE_SIZE, 1).is_ok());
    expect_ok!(take(slot(2), 2));
    expect_refused!(protect(SCRATCH_BASE, 2, slot(2), none), Status::MissingRight);
    Ok(())
}

fn replaced_mapping(_: &Machine) -> CaseResult {
    let first = expect_ok!(take(slot(0), 1)).0;
    let second = expect_ok!(take(slot(1), 1)).0;
    expect_ok!(map(SCRATCH_BASE, first, 1, slot(0), BindFlags::WRITE));
    expect!(probe::write(SCRATCH_BASE, 11).is_ok());
    expect_ok!(map(SCRATCH_BASE, second, 1, slot(1), BindFlags::WRITE));
    expect_equal!(probe::read(SCRATCH_BASE).unwrap_or(1), 0);
    // The first one is mapped no more, the second once.
    expect_ok!(call::frame_free(slot(0)));
    expect_refused!(call::frame_free(slot(1)), Status::Busy);
    // The same mapping again counts once.
    expect_ok!(map(SCRATCH_BASE, second, 1, slot(1), BindFlags::WRITE));
    expect_ok!(unmap(SCRATCH_BASE, 1));
    expect_ok!(call::frame_free(slot(1)));
    Ok(())
}

fn unmapping_takes_effect(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    for round in 0..50 {
        expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::WRITE));
        expect!(probe::write(SCRATCH_BASE, round).is_ok());
        expect_equal!(probe::read(SCRATCH_BASE).unwrap_or(u64::MAX), round);
        expect_ok!(unmap(SCRATCH_BASE, 1));
        expect!(probe::is_unmapped(SCRATCH_BASE));
    }
    Ok(())
}

fn accessed_and_dirty(_: &Machine) -> CaseResult {
    let used = entry::ACCESSED | entry::DIRTY;
    let frame = expect_ok!(take(slot(0), 1)).0;
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::WRITE));
    expect_equal!(table_entry(SCRATCH_BASE) & used, 0);
    expect!(probe::read(SCRATCH_BASE).is_ok());
    expect_equal!(table_entry(SCRATCH_BASE) & used, entry::ACCESSED);
    expect!(probe::write(SCRATCH_BASE, 1).is_ok());
    expect_equal!(table_entry(SCRATCH_BASE) & used, used);
    // Protecting keeps them, cleaning clears them, and afterwards they are set anew.
    expect_ok!(protect(SCRATCH_BASE, 1, slot(0), BindFlags::WRITE));
    expect_equal!(table_entry(SCRATCH_BASE) & used, used);
    expect_ok!(bind_in(SLOT_SELF, BindEntry::clean(SCRATCH_BASE, 1)));
    expect_equal!(table_entry(SCRATCH_BASE) & used, 0);
    expect!(probe::write(SCRATCH_BASE, 2).is_ok());
    expect_equal!(table_entry(SCRATCH_BASE) & used, used);
    Ok(())
}

fn program_half(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    for address in [PROGRAM_BASE, 0x40_0000, PROGRAM_END - PAGE_SIZE] {
        expect_ok!(map(address, frame, 1, slot(0), BindFlags::WRITE));
        expect!(probe::write(address, address).is_ok());
        expect_equal!(probe::read(address).unwrap_or(0), address);
        expect_ok!(unmap(address, 1));
        expect!(probe::is_unmapped(address));
    }
    Ok(())
}

const LARGE_AT: u64 = SCRATCH_BASE + 4 * LARGE_PAGE_SIZE;

fn large_pages(_: &Machine) -> CaseResult {
    let mut first = 0;
    repeat(|| {
        let outcome = call::frame_allocate(slot(0), LARGE_PAGE_FRAMES, None, 9);
        first = outcome.unwrap_or(0);
        outcome
    });
    let flags = BindFlags::LARGE | BindFlags::WRITE;
    let pages = LARGE_PAGE_FRAMES as u32;
    expect_ok!(map(LARGE_AT, first, pages, slot(0), flags));
    expect!(probe::write(LARGE_AT + LARGE_PAGE_SIZE - 8, 9).is_ok());
    let directory = probe::read(directory_address(LARGE_AT)).unwrap_or(0);
    expect_equal!(directory & entry::LARGE, entry::LARGE);
    expect_equal!(directory & entry::DIRTY, entry::DIRTY);
    expect_refused!(call::frame_free(slot(0)), Status::Busy);
    // Not aligned, not whole.
    expect_refused!(map(LARGE_AT + PAGE_SIZE, first, pages, slot(0), flags), Status::BadAddress);
    expect_refused!(map(LARGE_AT, first + 1, pages, slot(0), flags), Status::BadArgument);
    expect_refused!(map(LARGE_AT, first, pages - 1, slot(0), flags), Status::BadArgument);
    expect_refused!(map(LARGE_AT, first, 2 * pages, slot(0), flags), Status::MissingRight);
    expect_ok!(protect(LARGE_AT, pages, slot(0), BindFlags::LARGE));
    expect!(probe::write(LARGE_AT, 1).is_err());
    expect_equal!(probe::read(LARGE_AT + LARGE_PAGE_SIZE - 8).unwrap_or(0), 9);
    expect_ok!(unmap(LARGE_AT, pages));
    expect!(probe::is_unmapped(LARGE_AT));
    repeat(|| call::frame_free(slot(0)));
    expect_refused!(call::cap_read(slot(0), 0), Status::BadSlot);
    Ok(())
}

fn large_and_small(_: &Machine) -> CaseResult {
    let mut first = 0;
    repeat(|| {
        let outcome = call::frame_allocate(slot(0), LARGE_PAGE_FRAMES, None, 9);
        first = outcome.unwrap_or(0);
        outcome
    });
    let flags = BindFlags::LARGE | BindFlags::WRITE;
    let pages = LARGE_PAGE_FRAMES as u32;
    expect_ok!(map(LARGE_AT, first, 1, slot(0), BindFlags::WRITE));
    expect_refused!(map(LARGE_AT, first, pages, slot(0), flags), Status::WrongState);
    expect_ok!(unmap(LARGE_AT, 1));
    // Its page table is empty and gives way.
    expect_ok!(map(LARGE_AT, first, pages, slot(0), flags));
    expect_refused!(map(LARGE_AT, first, 1, slot(0), BindFlags::WRITE), Status::WrongState);
    expect_refused!(unmap(LARGE_AT, 1), Status::WrongState);
    expect_refused!(unmap(LARGE_AT + PAGE_SIZE, pages), Status::WrongState);
    expect!(probe::read(LARGE_AT).is_ok());
    // One frame of it may be mapped small elsewhere at the same time.
    expect_ok!(map(SCRATCH_BASE, first + 3, 1, slot(0), BindFlags::WRITE));
    expect!(probe::write(SCRATCH_BASE, 77).is_ok());
    expect_equal!(probe::read(LARGE_AT + 3 * PAGE_SIZE).unwrap_or(0), 77);
    expect_ok!(unmap(LARGE_AT, pages));
    Ok(())
}

/// Entries for the batch cases.
static mut ENTRIES: [BindEntry; 512] =
    [BindEntry { operation: 0, flags: 0, virtual_address: 0, frame: 0, page_count: 0, slot: 0 }; 512];

/// Fills the batch.
fn batch(fill: impl Fn(u64) -> BindEntry) -> &'static [BindEntry] {
    // SAFETY: cases run one after another on one processor, and nobody else uses the array.
    let entries = unsafe { &mut *core::ptr::addr_of_mut!(ENTRIES) };
    for (index, entry) in entries.iter_mut().enumerate() {
        *entry = fill(index as u64);
    }
    entries
}

/// Does all of a batch, however many calls that takes.
fn calls_for(entries: &[BindEntry]) -> Result<usize, Status> {
    let (mut done, mut calls) = (0, 0);
    while done < entries.len() {
        // SAFETY: the scratch area is nobody's.
        match unsafe { call::bind(SLOT_SELF, &entries[done..]) } {
            Ok(count) => done += count as usize,
            Err(refusal) if refusal.status == Status::Again && refusal.value > 0 => done += refusal.value as usize,
            Err(refusal) => return Err(refusal.status),
        }
        calls += 1;
    }
    Ok(calls)
}

fn batch_of_512(_: &Machine) -> CaseResult {
    let first = expect_ok!(take(slot(0), 512)).0;
    // In reverse, so that every entry is one of its own.
    let entries = batch(|index| {
        let address = SCRATCH_BASE + index * PAGE_SIZE;
        BindEntry::map(address, first + 511 - index, 1, slot(0), BindFlags::WRITE)
    });
    expect!(matches!(calls_for(entries), Ok(4..=5)));
    for index in [0, 1, 255, 511] {
        let word = table_entry(SCRATCH_BASE + index * PAGE_SIZE);
        expect_equal!(word & entry::FRAME_MASK, (first + 511 - index) * PAGE_SIZE);
    }
    let entries = batch(|index| BindEntry::unmap(SCRATCH_BASE + index * PAGE_SIZE, 1));
    expect!(matches!(calls_for(entries), Ok(4..=5)));
    expect!(probe::is_unmapped(SCRATCH_BASE + 511 * PAGE_SIZE));
    Ok(())
}

fn batch_stops(_: &Machine) -> CaseResult {
    let first = expect_ok!(take(slot(0), 8)).0;
    let entries = batch(|index| {
        let address = SCRATCH_BASE + index * PAGE_SIZE;
        BindEntry::map(address, first + index, 1, slot(0), BindFlags::WRITE)
    });
    // The ninth frame is not covered.
    // SAFETY: the scratch area is nobody's.
    let outcome = unsafe { call::bind(SLOT_SELF, entries) };
    expect_equal!(outcome, Err(Refusal { status: Status::MissingRight, value: 8 }));
    expect!(probe::write(SCRATCH_BASE + 7 * PAGE_SIZE, 1).is_ok());
    expect!(probe::is_unmapped(SCRATCH_BASE + 8 * PAGE_SIZE));
    Ok(())
}

fn long_batches(_: &Machine) -> CaseResult {
    let mut entries = [BindEntry::unmap(SCRATCH_BASE, BIND_PAGE_COUNT_MAX); 4];
    entries[0].page_count = 500;
    // Two such entries are more than one call does: the second one waits for the next.
    // SAFETY: the scratch area is nobody's.
    let outcome = unsafe { call::bind(SLOT_SELF, &entries) };
    expect_equal!(outcome, Err(Refusal { status: Status::Again, value: 1 }));
    expect!(matches!(calls_for(&entries[1..]), Ok(3)));
    Ok(())
}

fn one_frame_many_times(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    for index in 0..600 {
        let at = SCRATCH_BASE + index * PAGE_SIZE;
        expect_ok!(map(at, frame, 1, slot(0), BindFlags::WRITE));
    }
    expect!(probe::write(SCRATCH_BASE, 5).is_ok());
    expect_equal!(probe::read(SCRATCH_BASE + 599 * PAGE_SIZE).unwrap_or(0), 5);
    expect_refused!(call::frame_free(slot(0)), Status::Busy);
    expect_ok!(unmap(SCRATCH_BASE, 500));
    expect_refused!(call::frame_free(slot(0)), Status::Busy);
    expect_ok!(unmap(SCRATCH_BASE + 500 * PAGE_SIZE, 100));
    expect_ok!(call::frame_free(slot(0)));
    Ok(())
}

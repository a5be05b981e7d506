//! Error codes and corner cases of the memory calls, one table per call; the expectations are Linux 6.1's.

use aegis_abi::layout::{PROGRAM_BASE, PROGRAM_END};

use super::area::{AREA_COUNT_MAX, STACK_GUARD_BYTES};
use super::test_support::{BASE, CachedFile, PAGE, Setup, load, store};
use super::{
    Access, Advice, AreaFlags, AreaLabel, FaultOutcome, MapBacking, MapRequest, Movement, Placement, ProtectReach,
    Protection, RemapRequest, SegvReason, SpaceLimits, SyncMode,
};
use crate::error::Errno;
use crate::mem::Wait;

const A: u64 = 0x10_0000_0000;

fn read_write() -> Protection {
    Protection::READ | Protection::WRITE
}

fn fixed(address: u64, length: u64) -> MapRequest {
    MapRequest::anonymous(Placement::Fixed(address), length, read_write())
}

#[test]
fn mmap_errors() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(fixed(A, 4 * PAGE)).expect("free");
    let cases = [
        (Placement::Hint(0), 0, Errno::EINVAL),
        (Placement::Hint(0), u64::MAX, Errno::ENOMEM),
        (Placement::Hint(0), PROGRAM_END + PAGE, Errno::ENOMEM),
        (Placement::Fixed(A + 1), PAGE, Errno::EINVAL),
        (Placement::Fixed(0), PAGE, Errno::EPERM),
        (Placement::Fixed(PROGRAM_BASE - PAGE), PAGE, Errno::EPERM),
        (Placement::Fixed(PROGRAM_END), PAGE, Errno::ENOMEM),
        (Placement::FixedNoReplace(A + 3 * PAGE), 2 * PAGE, Errno::EEXIST),
    ];
    for (placement, length, error) in cases {
        let request = MapRequest::anonymous(placement, length, read_write());
        assert_eq!(space.map(request), Err(error), "{placement:?} {length:#x}");
    }
    let request = MapRequest::anonymous(Placement::FixedNoReplace(A + 4 * PAGE), 1, read_write());
    assert_eq!(space.map(request), Ok(A + 4 * PAGE));
    let mut stack = fixed(A, PAGE);
    stack.flags = AreaFlags::GROWS_DOWN;
    stack.is_shared = true;
    assert_eq!(space.map(stack), Err(Errno::EINVAL));
}

#[test]
fn file_mappings_respect_the_descriptor() {
    let setup = Setup::new();
    let mut space = setup.space();
    let file = CachedFile::new(&setup.pool, 4);
    let request = |is_shared, is_readable, is_writable, protection, offset_bytes| {
        let source = file.clone();
        let backing = MapBacking::File { source, offset_bytes, is_readable, is_writable };
        let anonymous = MapRequest::anonymous(Placement::Hint(0), PAGE, protection);
        MapRequest { is_shared, backing, ..anonymous }
    };
    let (r, w) = (Protection::READ, read_write());
    let refusals = [
        (request(true, true, false, w, 0), Errno::EACCES),
        (request(true, false, true, w, 0), Errno::EACCES),
        (request(false, false, true, r, 0), Errno::EACCES),
        (request(false, true, true, r, 17), Errno::EINVAL),
        (request(false, true, true, r, !(PAGE - 1)), Errno::EOVERFLOW),
    ];
    for (request, error) in refusals {
        assert_eq!(space.map(request), Err(error));
    }
    space.map(request(false, true, false, w, 0)).expect("private and writable is allowed");
    let shared = space.map(request(true, true, false, r, 0)).expect("readable");
    let answer = space.protect(shared, PAGE, w, ProtectReach::Range);
    assert_eq!(answer, Err(Errno::EACCES));
}

#[test]
fn hints_are_taken_when_they_fit() {
    let setup = Setup::new();
    let mut space = setup.space();
    let near = |hint| MapRequest::anonymous(Placement::Hint(hint), PAGE, read_write());
    assert_eq!(space.map(near(A + 5)), Ok(A));
    assert_eq!(space.map(near(A)), Ok(BASE - PAGE));
    assert_eq!(space.map(near(PROGRAM_END)), Ok(BASE - 2 * PAGE));
    assert_eq!(space.map(near(PAGE)), Ok(PROGRAM_BASE));
    let mut stack = fixed(A + 0x1000_0000, PAGE);
    stack.flags = AreaFlags::GROWS_DOWN;
    let guarded = space.map(stack).expect("free") - STACK_GUARD_BYTES;
    assert_eq!(space.map(near(guarded)), Ok(BASE - 3 * PAGE));
    assert_eq!(space.map(near(guarded - PAGE)), Ok(guarded - PAGE));
}

#[test]
fn munmap_errors() {
    let setup = Setup::new();
    let mut space = setup.space();
    let cases =
        [(A + 1, PAGE), (A, 0), (A, u64::MAX), (PROGRAM_END + PAGE, PAGE), (PROGRAM_END, PAGE), (0, PROGRAM_END + 1)];
    for (start, length) in cases {
        assert_eq!(space.unmap(start, length), Err(Errno::EINVAL), "{start:#x} {length:#x}");
    }
    assert_eq!(space.unmap(A, 1), Ok(()), "a hole is no error");
}

#[test]
fn mprotect_errors_and_what_precedes_them() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(fixed(A, 2 * PAGE)).expect("free");
    space.map(fixed(A + 3 * PAGE, PAGE)).expect("free");
    let none = Protection::empty();
    let mut protect = |start, length, reach| space.protect(start, length, none, reach);
    assert_eq!(protect(A + 1, PAGE, ProtectReach::Range), Err(Errno::EINVAL));
    assert_eq!(protect(A + 0x8000, 0, ProtectReach::Range), Ok(()));
    assert_eq!(protect(A, u64::MAX, ProtectReach::Range), Err(Errno::ENOMEM));
    assert_eq!(protect(A, u64::MAX - A, ProtectReach::Range), Err(Errno::ENOMEM));
    assert_eq!(protect(A - PAGE, 2 * PAGE, ProtectReach::Range), Err(Errno::ENOMEM));
    assert_eq!(protect(A, PAGE, ProtectReach::GrowsDown), Err(Errno::EINVAL));
    assert_eq!(protect(A, 4 * PAGE, ProtectReach::Range), Err(Errno::ENOMEM));
    let rights = |address| space.area_at(address).map(|area| area.protection());
    assert_eq!(rights(A + PAGE), Some(none));
    assert_eq!(rights(A + 3 * PAGE), Some(read_write()));
}

#[test]
fn write_and_execute_together_are_allowed() {
    let setup = Setup::new();
    let mut space = setup.space();
    let request = MapRequest::anonymous(Placement::Fixed(A), PAGE, Protection::all());
    space.map(request).expect("free");
    store(&setup, &mut space, A, 9);
    let mapping = setup.machine.mapping(space.environment(), A).expect("mapped");
    assert_eq!(mapping.flags.bits(), 3);
}

#[test]
fn mremap_errors() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(fixed(A, 4 * PAGE)).expect("free");
    let mut other = fixed(A + 4 * PAGE, PAGE);
    other.protection = Protection::READ;
    space.map(other).expect("free");
    let (never, anywhere) = (Movement::Never, Movement::Anywhere);
    let cases = [
        (A + 1, PAGE, PAGE, never, false, Errno::EINVAL),
        (A, PAGE, 0, never, false, Errno::EINVAL),
        (A, 0, PAGE, anywhere, false, Errno::EINVAL),
        (A - PAGE, PAGE, PAGE, never, false, Errno::EFAULT),
        (A, 5 * PAGE, 6 * PAGE, anywhere, false, Errno::EFAULT),
        (A, 4 * PAGE, 5 * PAGE, never, false, Errno::ENOMEM),
        (A, PAGE, 2 * PAGE, never, false, Errno::ENOMEM),
        (A, PAGE, PAGE, Movement::To(A + 1), false, Errno::EINVAL),
        (A, 2 * PAGE, 2 * PAGE, Movement::To(A + PAGE), false, Errno::EINVAL),
        (A, PAGE, PAGE, Movement::To(PROGRAM_END), false, Errno::EINVAL),
        (A, PAGE, PAGE, never, true, Errno::EINVAL),
        (A, PAGE, 2 * PAGE, anywhere, true, Errno::EINVAL),
        (A, PAGE, PROGRAM_END, anywhere, false, Errno::ENOMEM),
    ];
    for (address, old_length, new_length, movement, keeps_old, error) in cases {
        let request = RemapRequest { address, old_length, new_length, movement, keeps_old };
        assert_eq!(space.remap(request), Err(error), "{request:?}");
    }
}

#[test]
fn mremap_moves_frames_and_can_keep_the_old_range() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(fixed(A, 3 * PAGE)).expect("free");
    store(&setup, &mut space, A + PAGE, 7);
    let frame = space.frame_at(A + PAGE);
    let request = RemapRequest {
        address: A,
        old_length: 3 * PAGE,
        new_length: 3 * PAGE,
        movement: Movement::Anywhere,
        keeps_old: true,
    };
    let moved = space.remap(request).expect("room");
    assert_eq!(space.frame_at(moved + PAGE), frame);
    assert_eq!(load(&setup, &mut space, moved + PAGE), 7);
    assert_eq!(load(&setup, &mut space, A + PAGE), 0);
    // A shared mapping is duplicated by an old length of 0.
    let mut shared = fixed(A + 0x10_0000, PAGE);
    shared.is_shared = true;
    let shared = space.map(shared).expect("free");
    store(&setup, &mut space, shared, 3);
    let twin = RemapRequest {
        address: shared,
        old_length: 0,
        new_length: PAGE,
        movement: Movement::Anywhere,
        keeps_old: false,
    };
    let twin = space.remap(twin).expect("room");
    assert_eq!(load(&setup, &mut space, twin), 3);
    store(&setup, &mut space, twin, 4);
    assert_eq!(load(&setup, &mut space, shared), 4);
}

#[test]
fn madvise_errors_and_effects() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(fixed(A, 4 * PAGE)).expect("free");
    let mut shared = fixed(A + 8 * PAGE, PAGE);
    shared.is_shared = true;
    space.map(shared).expect("free");
    store(&setup, &mut space, A, 1);
    store(&setup, &mut space, A + 8 * PAGE, 2);
    let cases = [
        (A + 1, PAGE, Advice::Hint, Err(Errno::EINVAL)),
        (A, u64::MAX, Advice::Hint, Err(Errno::EINVAL)),
        (A + 6 * PAGE, PAGE, Advice::Hint, Err(Errno::ENOMEM)),
        (A + 6 * PAGE, 0, Advice::Hint, Ok(())),
        (A + 8 * PAGE, PAGE, Advice::Free, Err(Errno::EINVAL)),
        (A + 8 * PAGE, PAGE, Advice::WipeOnFork, Err(Errno::EINVAL)),
        (A, PAGE, Advice::Remove, Err(Errno::EINVAL)),
        (A, 9 * PAGE, Advice::DontNeed, Err(Errno::ENOMEM)),
    ];
    for (start, length, advice, answer) in cases {
        assert_eq!(space.advise(start, length, advice), answer, "{start:#x} {advice:?}");
    }
    assert_eq!(load(&setup, &mut space, A), 0, "dropped in spite of the hole");
    assert_eq!(load(&setup, &mut space, A + 8 * PAGE), 2, "shared memory keeps its pages");
    assert_eq!(space.advise(A + 8 * PAGE, PAGE, Advice::Remove), Ok(()));
    assert_eq!(load(&setup, &mut space, A + 8 * PAGE), 0);
    space.lock(A, PAGE, false).expect("below the limit");
    assert_eq!(space.advise(A, PAGE, Advice::DontNeed), Err(Errno::EINVAL));
    assert_eq!(space.advise(A, 4 * PAGE, Advice::PopulateWrite), Ok(()));
    assert_eq!(space.resident(A, 4 * PAGE), Ok(vec![1; 4]));
    assert_eq!(space.resident(A, 5 * PAGE), Err(Errno::ENOMEM));
    assert_eq!(space.sync(A, 5 * PAGE, SyncMode::Now, false), Err(Errno::ENOMEM));
    assert_eq!(space.sync(A + 1, PAGE, SyncMode::Now, false), Err(Errno::EINVAL));
    assert_eq!(space.sync(A, 4 * PAGE, SyncMode::Now, false), Ok(()));
}

#[test]
fn the_break_moves_only_where_it_can() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.set_break_start(A);
    assert_eq!(space.set_break(0), A);
    assert_eq!(space.set_break(A + 100), A + 100);
    assert_eq!(space.set_break(A + 3 * PAGE), A + 3 * PAGE);
    store(&setup, &mut space, A + 2 * PAGE, 5);
    assert_eq!(space.area_at(A).map(|area| area.label()), Some(AreaLabel::Heap));
    assert_eq!(space.set_break(A + PAGE + 1), A + PAGE + 1);
    assert_eq!(space.frame_at(A + 2 * PAGE), None);
    space.map(fixed(A + 8 * PAGE, PAGE)).expect("free");
    assert_eq!(space.set_break(A + 8 * PAGE), A + PAGE + 1, "no page left in between");
    assert_eq!(space.set_break(A + 7 * PAGE), A + 7 * PAGE);
    space.set_limits(SpaceLimits { data_bytes: 8 * PAGE, ..SpaceLimits::default() });
    assert_eq!(space.set_break(A + 7 * PAGE + 1), A + 7 * PAGE);
    assert_eq!(space.set_break(A - 1), A + 7 * PAGE);
}

#[test]
fn limits_are_enomem() {
    let setup = Setup::with_frames(1024);
    let mut space = setup.space();
    let huge = |flags| {
        let request = fixed(A, 1025 * PAGE);
        MapRequest { flags, ..request }
    };
    assert_eq!(space.map(huge(AreaFlags::empty())), Err(Errno::ENOMEM), "more than there is");
    space.map(huge(AreaFlags::NO_RESERVE)).expect("no promise");
    space.unmap(A, 1025 * PAGE).expect("mapped");
    let limits = SpaceLimits {
        address_space_bytes: 16 * PAGE,
        data_bytes: 8 * PAGE,
        locked_bytes: 2 * PAGE,
        ..SpaceLimits::default()
    };
    space.set_limits(limits);
    space.map(fixed(A, 8 * PAGE)).expect("within");
    space.map(fixed(A, 8 * PAGE)).expect("what is replaced does not count");
    assert_eq!(space.map(fixed(A + 9 * PAGE, PAGE)), Err(Errno::ENOMEM));
    let read_only = |pages| MapRequest::anonymous(Placement::Hint(0), pages * PAGE, Protection::READ);
    let quiet = space.map(read_only(8)).expect("no data");
    assert_eq!(space.map(read_only(1)), Err(Errno::ENOMEM));
    let answer = space.protect(quiet, PAGE, read_write(), ProtectReach::Range);
    assert_eq!(answer, Err(Errno::ENOMEM), "becomes data");
    assert_eq!(space.lock(A, 3 * PAGE, false), Err(Errno::ENOMEM));
    assert_eq!(space.lock(A, 2 * PAGE, false), Ok(()));
    assert_eq!(space.lock(A, 2 * PAGE, false), Ok(()), "already locked");
    assert_eq!(space.totals().areas.locked, 2);
    space.set_limits(SpaceLimits { locked_bytes: 0, ..limits });
    assert_eq!(space.lock(A, PAGE, false), Err(Errno::EPERM));
    assert_eq!(space.unlock(A, 2 * PAGE), Ok(()));
    assert_eq!(space.totals().areas.locked, 0);
}

#[test]
fn areas_are_limited_in_number() {
    let setup = Setup::new();
    let mut space = setup.space();
    let count = AREA_COUNT_MAX as u64;
    let mut none = fixed(A, 2 * count * PAGE);
    none.protection = Protection::empty();
    space.map(none).expect("free");
    let mut error = None;
    for index in 0..count {
        let address = A + (2 * index + 1) * PAGE;
        if let Err(refused) = space.protect(address, PAGE, Protection::READ, ProtectReach::Range) {
            error = Some(refused);
            break;
        }
    }
    assert_eq!(error, Some(Errno::ENOMEM));
    let areas = space.areas().count();
    assert!((AREA_COUNT_MAX - 2..=AREA_COUNT_MAX).contains(&areas), "{areas}");
}

#[test]
fn a_stack_grows_to_its_limit_and_keeps_its_guard() {
    let setup = Setup::new();
    let mut space = setup.space();
    let top = A + 0x1000_0000;
    let mut stack = fixed(top - 2 * PAGE, 2 * PAGE);
    stack.flags = AreaFlags::GROWS_DOWN;
    stack.label = AreaLabel::Stack;
    space.map(stack).expect("free");
    store(&setup, &mut space, top - 40 * PAGE, 1);
    assert_eq!(space.area_at(top - 1).map(|area| area.start()), Some(top - 40 * PAGE));
    let not_mapped = FaultOutcome::Segv(SegvReason::NotMapped);
    let limit = top - (8 << 20);
    assert_eq!(space.handle_fault(limit - 1, Access::Write, Wait::Allowed), not_mapped);
    space.map(fixed(top - 400 * PAGE, PAGE)).expect("free");
    let guarded = top - 399 * PAGE + STACK_GUARD_BYTES;
    assert_eq!(space.handle_fault(guarded - PAGE, Access::Write, Wait::Allowed), not_mapped);
    store(&setup, &mut space, guarded, 1);
    assert_eq!(space.totals().areas.stack, (top - guarded) / PAGE);
}

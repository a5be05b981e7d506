//! Capabilities: derivation only shrinks, revocation reaches everywhere and breaks what was bound, tables grow to
//! their limit.

use aegis_abi::call::EnvironmentField;
use aegis_abi::memory::BindFlags;
use aegis_abi::types::{CapType, SLOT_MACHINE, SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call::{self, Outcome};

use crate::child::{self, CHILD_SCRATCH_BASE, CHILD_SLOT_FREE, Child, shared};
use crate::memory::{SCRATCH_BASE, free_slot, map, repeat, slot, take};
use crate::suite::{CaseResult, Machine, Suite};
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s01_capability",
    cases: &[
        ("derived_rights_and_range_only_shrink", derive_only_shrinks),
        ("derive_refuses_bad_arguments", derive_refuses),
        ("depth_has_a_limit", depth_has_a_limit),
        ("read_tells_type_rights_and_range", read_tells),
        ("drop_wants_no_descendants", drop_wants_no_descendants),
        ("drop_of_a_living_environment_is_refused", drop_of_living_refused),
        ("grant_needs_rights_on_both_sides", grant_needs_rights),
        ("read_only_capability_maps_read_only", read_only_maps_read_only),
        ("revoke_reaches_grandchildren_and_their_mappings", revoke_reaches_grandchildren),
        ("revoke_keeps_the_source_and_its_mapping", revoke_keeps_the_source),
        ("revoke_of_thousands_comes_to_an_end", revoke_of_thousands),
        ("drop_breaks_mappings_of_its_environment", drop_breaks_mappings),
        ("table_grows_to_its_limit", table_grows),
        ("child_starts_with_itself_only", child_starts_with_itself),
    ],
};

/// Slot number that no table has.
const BEYOND: CapSlot = CapSlot(4096);

fn derive(source: CapSlot, target: CapSlot, rights: Rights) -> Outcome {
    let count = call::cap_read(source, 2)?;
    call::cap_derive(source, target, rights, 0, count)
}

fn rights_of(slot: CapSlot) -> Rights {
    Rights::from_bits_truncate(call::cap_read(slot, 0).map_or(0, |word| (word >> 32) as u32))
}

fn derive_only_shrinks(_: &Machine) -> CaseResult {
    let first = expect_ok!(take(slot(0), 8)).0;
    let all = Rights::READ | Rights::WRITE | Rights::EXECUTE | Rights::GRANT | Rights::DMA;
    expect_equal!(rights_of(slot(0)), all);
    expect_ok!(call::cap_derive(slot(0), slot(1), Rights::READ | Rights::WRITE, 2, 3));
    expect_equal!(call::cap_read(slot(1), 1), Ok(first + 2));
    expect_equal!(call::cap_read(slot(1), 2), Ok(3));
    expect_equal!(rights_of(slot(1)), Rights::READ | Rights::WRITE);
    // Asking for more gives what the source has.
    expect_ok!(call::cap_derive(slot(1), slot(2), Rights::all(), 1, 2));
    expect_equal!(rights_of(slot(2)), Rights::READ | Rights::WRITE);
    expect_equal!(call::cap_read(slot(2), 1), Ok(first + 3));
    expect_refused!(call::cap_derive(slot(1), slot(3), Rights::READ, 1, 3), Status::BadArgument);
    Ok(())
}

/// CapDerive with any rights word.
fn derive_words(words: [u64; 5]) -> Outcome {
    let [a, b, c, d, e] = words;
    // SAFETY: deriving changes no memory.
    let (status, value) = unsafe { call::issue_words(1, &[a, b, c, d, e, 0]) };
    match Status::from_word(status) {
        Some(Status::Ok) => Ok(value),
        status => Err(call::Refusal { status: status.unwrap_or(Status::UnknownCall), value }),
    }
}

fn derive_refuses(_: &Machine) -> CaseResult {
    expect_ok!(take(slot(0), 4));
    let (source, target) = (u64::from(slot(0).0), u64::from(slot(1).0));
    let bad = |index| Err(call::Refusal { status: Status::BadArgument, value: index });
    expect_equal!(derive_words([source, target, 1 << 31, 0, 4]), bad(2));
    expect_equal!(derive_words([source, target, 1 << 40, 0, 4]), bad(2));
    expect_equal!(derive_words([source, target, 1, 4, 1]), bad(3));
    expect_equal!(derive_words([source, target, 1, u64::MAX, 2]), bad(3));
    expect_equal!(derive_words([source, target, 1, 0, 0]), bad(4));
    expect_equal!(derive_words([source, target, 1, 0, 5]), bad(4));
    expect_equal!(derive_words([source, target, 1, 3, u64::MAX - 2]), bad(4));
    expect_equal!(derive_words([source | 1 << 32, target, 1, 0, 4]), bad(0));
    expect_equal!(derive_words([source, target | 1 << 63, 1, 0, 4]), bad(1));
    expect_refused!(derive(slot(2), slot(1), Rights::READ), Status::BadSlot);
    for target in [SLOT_NONE, BEYOND, CapSlot(u32::MAX)] {
        expect_refused!(call::cap_derive(slot(0), target, Rights::READ, 0, 4), Status::BadSlot);
    }
    expect_refused!(derive(slot(0), slot(0), Rights::READ), Status::SlotInUse);
    expect_refused!(derive(slot(0), SLOT_SELF, Rights::READ), Status::SlotInUse);
    expect_refused!(call::cap_read(slot(1), 0), Status::BadSlot);
    Ok(())
}

fn depth_has_a_limit(_: &Machine) -> CaseResult {
    expect_ok!(take(slot(0), 1));
    let mut depth = 0;
    let refusal = loop {
        match derive(slot(depth), slot(depth + 1), Rights::all()) {
            Ok(_) => depth += 1,
            Err(refusal) => break refusal,
        }
        expect!(depth < 100);
    };
    expect_equal!(depth, 64);
    expect_equal!(refusal.status as u64, Status::TableFull as u64);
    // SAFETY: nothing is bound with these.
    repeat(|| unsafe { call::cap_revoke(slot(0)) });
    expect_refused!(call::cap_read(slot(64), 0), Status::BadSlot);
    Ok(())
}

fn read_tells(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    let word = expect_ok!(call::cap_read(slot(0), 0));
    expect_equal!(word & 0xffff_ffff, CapType::Bell as u64);
    expect!(rights_of(slot(0)).contains(Rights::RING | Rights::WAIT));
    expect_equal!(call::cap_read(slot(0), 2), Ok(0));
    expect_refused!(call::cap_read(slot(0), 3), Status::BadArgument);
    expect_refused!(call::cap_read(slot(0), u32::MAX), Status::BadArgument);
    for empty in [SLOT_NONE, slot(1), BEYOND, CapSlot(u32::MAX)] {
        expect_refused!(call::cap_read(empty, 0), Status::BadSlot);
    }
    Ok(())
}

fn drop_wants_no_descendants(_: &Machine) -> CaseResult {
    expect_ok!(take(slot(0), 2));
    expect_ok!(derive(slot(0), slot(1), Rights::READ));
    expect_ok!(derive(slot(1), slot(2), Rights::READ));
    // SAFETY: nothing of these frames is mapped.
    unsafe {
        expect_refused!(call::cap_drop(slot(0)), Status::Busy);
        expect_refused!(call::cap_drop(slot(1)), Status::Busy);
        expect_refused!(call::frame_free(slot(0)), Status::Busy);
        expect_refused!(call::frame_free(slot(2)), Status::WrongState);
        expect_ok!(call::cap_drop(slot(2)));
        expect_ok!(call::cap_drop(slot(1)));
        expect_refused!(call::cap_drop(slot(1)), Status::BadSlot);
        expect_refused!(call::cap_revoke(slot(1)), Status::BadSlot);
        // An original's frames are freed with it.
        let free = call::environment_read(SLOT_SELF, EnvironmentField::FramesFree).unwrap_or(0);
        expect_ok!(call::cap_drop(slot(0)));
        let after = call::environment_read(SLOT_SELF, EnvironmentField::FramesFree);
        expect_equal!(after, Ok(free + 2));
    }
    Ok(())
}

fn drop_of_living_refused(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    // SAFETY: nothing is dropped that is in use here.
    unsafe {
        expect_refused!(call::cap_drop(child.environment), Status::Busy);
        // Its own capability comes from ours.
        expect_refused!(call::cap_drop(SLOT_SELF), Status::Busy);
    }
    Ok(())
}

fn grant_needs_rights(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    let environment = child.environment;
    let target = CHILD_SLOT_FREE;
    expect_ok!(take(free_slot(0), 1));
    expect_ok!(derive(free_slot(0), free_slot(1), Rights::READ));
    let grant = |source, environment, target| call::cap_grant(source, environment, target, Rights::READ);
    expect_refused!(grant(free_slot(1), environment, target), Status::MissingRight);
    expect_ok!(derive(environment, free_slot(2), Rights::CONTROL | Rights::READ));
    expect_refused!(grant(free_slot(0), free_slot(2), target), Status::MissingRight);
    expect_refused!(grant(free_slot(0), free_slot(0), target), Status::WrongType);
    expect_refused!(grant(free_slot(9), environment, target), Status::BadSlot);
    expect_refused!(grant(free_slot(0), free_slot(9), target), Status::BadSlot);
    expect_refused!(grant(free_slot(0), environment, SLOT_NONE), Status::BadSlot);
    expect_refused!(grant(free_slot(0), environment, BEYOND), Status::BadSlot);
    expect_refused!(grant(free_slot(0), environment, SLOT_SELF), Status::SlotInUse);
    expect_ok!(grant(free_slot(0), environment, target));
    expect_refused!(grant(free_slot(0), environment, target), Status::SlotInUse);
    Ok(())
}

fn read_only_maps_read_only(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    expect_ok!(derive(slot(0), slot(1), Rights::READ));
    let (write, execute) = (BindFlags::WRITE, BindFlags::EXECUTE);
    expect_refused!(map(SCRATCH_BASE, frame, 1, slot(1), write), Status::MissingRight);
    expect_refused!(map(SCRATCH_BASE, frame, 1, slot(1), execute), Status::MissingRight);
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(1), BindFlags::empty()));
    expect_equal!(probe::read(SCRATCH_BASE).unwrap_or(1), 0);
    expect!(probe::write(SCRATCH_BASE, 1).is_err());
    Ok(())
}

/// Words of the shared page in the revocation cases.
const MAPPED: usize = 0;
const GO: usize = 1;
const LOST: usize = 2;
const SLOTS_LEFT: usize = 3;

/// Maps what it was given through a capability that it derives itself, waits until it is taken away.
extern "C" fn mapping_child(drops_it: u64) -> ! {
    probe::install();
    let derived = CapSlot(CHILD_SLOT_FREE.0 + 1);
    let shared = shared();
    let outcome = map_derived(derived);
    shared.set(MAPPED, if outcome.is_ok() { 1 } else { 2 });
    wait::until(|| shared.get(GO) != 0);
    if drops_it != 0 {
        // SAFETY: the mapping is not used afterwards but by a probe.
        unsafe {
            repeat(|| call::cap_drop(derived));
            shared.set(LOST, 1 + u64::from(probe::is_unmapped(CHILD_SCRATCH_BASE)));
            repeat(|| call::cap_drop(CHILD_SLOT_FREE));
        }
    }
    let still = u64::from(call::cap_read(derived, 0).is_ok()) + u64::from(call::cap_read(CHILD_SLOT_FREE, 0).is_ok());
    shared.set(SLOTS_LEFT, 1 + still);
    shared.set(LOST, (shared.get(LOST) << 8) + 1 + u64::from(probe::is_unmapped(CHILD_SCRATCH_BASE)));
    wait::forever()
}

fn map_derived(derived: CapSlot) -> Outcome {
    derive(CHILD_SLOT_FREE, derived, Rights::READ | Rights::WRITE)?;
    let frame = call::cap_read(derived, 1)?;
    map(CHILD_SCRATCH_BASE, frame, 1, derived, BindFlags::WRITE)?;
    // SAFETY: just mapped.
    unsafe { (CHILD_SCRATCH_BASE as *mut u64).write_volatile(0x1234_5678) };
    Ok(0)
}

/// A child that has mapped a frame of ours, which we see at the scratch base.
fn child_with_mapping(machine: &Machine, drops_it: u64) -> Result<Child, crate::suite::Failure> {
    let child = expect_ok!(child::make(machine, 0, 0));
    let frame = expect_ok!(take(free_slot(0), 1)).0;
    expect_ok!(map(SCRATCH_BASE, frame, 1, free_slot(0), BindFlags::WRITE));
    expect_ok!(call::cap_grant(free_slot(0), child.environment, CHILD_SLOT_FREE, Rights::all()));
    expect_ok!(child::start(&child, mapping_child, drops_it));
    expect!(child::await_word(&child, MAPPED, 1));
    expect_equal!(child.shared.get(MAPPED), 1);
    expect_equal!(probe::read(SCRATCH_BASE).unwrap_or(0), 0x1234_5678);
    Ok(child)
}

fn revoke_reaches_grandchildren(machine: &Machine) -> CaseResult {
    let child = child_with_mapping(machine, 0)?;
    // SAFETY: our own mapping stays, as our capability does.
    repeat(|| unsafe { call::cap_revoke(free_slot(0)) });
    child.shared.set(GO, 1);
    expect!(child::await_word(&child, LOST, 1));
    expect_equal!(child.shared.get(LOST), 2);
    expect_equal!(child.shared.get(SLOTS_LEFT), 1);
    expect_equal!(probe::read(SCRATCH_BASE).unwrap_or(0), 0x1234_5678);
    Ok(())
}

fn revoke_keeps_the_source(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    expect_ok!(derive(slot(0), slot(1), Rights::READ | Rights::WRITE));
    // Made with the derived capability, but the original covers it as well.
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(1), BindFlags::WRITE));
    // SAFETY: see above.
    repeat(|| unsafe { call::cap_revoke(slot(0)) });
    expect_refused!(call::cap_read(slot(1), 0), Status::BadSlot);
    expect_equal!(call::cap_read(slot(0), 1), Ok(frame));
    expect!(probe::write(SCRATCH_BASE, 5).is_ok());
    Ok(())
}

fn revoke_of_thousands(_: &Machine) -> CaseResult {
    // As many as the slots that every case has, again and again, half of them below the other half.
    expect_ok!(take(slot(0), 2));
    for _ in 0..20 {
        for number in 1..64 {
            expect_ok!(derive(slot(0), slot(number), Rights::READ));
            expect_ok!(derive(slot(number), slot(63 + number), Rights::READ));
        }
        let mut calls = 0;
        repeat(|| {
            calls += 1;
            // SAFETY: nothing is bound with these.
            unsafe { call::cap_revoke(slot(0)) }
        });
        expect!(calls < 100);
        for number in 1..127 {
            expect_refused!(call::cap_read(slot(number), 0), Status::BadSlot);
        }
    }
    Ok(())
}

fn drop_breaks_mappings(machine: &Machine) -> CaseResult {
    let child = child_with_mapping(machine, 1)?;
    child.shared.set(GO, 1);
    expect!(child::await_word(&child, SLOTS_LEFT, 1));
    expect!(child::await_word(&child, LOST, 0x100));
    // With its own derived capability gone the one that we gave still covers the mapping; without that one it breaks.
    expect_equal!(child.shared.get(LOST), 0x102);
    expect_equal!(child.shared.get(SLOTS_LEFT), 1);
    Ok(())
}

const GROWN: usize = 0;
const STATUS: usize = 1;
const LAST_STATUS: usize = 4;
const DONE: usize = 5;
const DONATED: usize = 6;

/// Puts a capability into every 64th slot until it may not.
extern "C" fn growing_child(_: u64) -> ! {
    let shared = shared();
    let mut number = 64;
    while number < 4096 {
        match call::cap_derive(SLOT_SELF, CapSlot(number), Rights::READ, 0, 0) {
            Ok(_) => {
                shared.set(GROWN, u64::from(number));
                number += 64;
            }
            Err(refusal) if refusal.status == Status::NoTables && shared.get(DONATED) == 0 => {
                shared.set(STATUS, refusal.status as u64);
                wait::until(|| shared.get(DONATED) != 0);
            }
            Err(refusal) => {
                shared.set(STATUS, refusal.status as u64);
                break;
            }
        }
    }
    let last = call::cap_derive(SLOT_SELF, CapSlot(4095), Rights::READ, 0, 0);
    let beyond = call::cap_derive(SLOT_SELF, BEYOND, Rights::READ, 0, 0);
    let beyond = beyond.err().map_or(0, |refusal| refusal.status as u64);
    shared.set(LAST_STATUS, u64::from(last.is_ok()) << 32 | beyond);
    shared.set(DONE, 1);
    wait::forever()
}

fn table_grows(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    let slots = || call::environment_read(child.environment, EnvironmentField::SlotCount);
    expect_equal!(slots(), Ok(64));
    expect_ok!(child::start(&child, growing_child, 0));
    expect!(child::await_word(&child, STATUS, 1));
    expect_equal!(child.shared.get(STATUS), Status::NoTables as u64);
    let left = call::environment_read(child.environment, EnvironmentField::FramesDonated);
    expect_equal!(left, Ok(0));
    expect_ok!(take(free_slot(0), 64));
    expect_equal!(call::frame_donate(free_slot(0), child.environment), Ok(64));
    expect_refused!(call::cap_read(free_slot(0), 0), Status::BadSlot);
    child.shared.set(DONATED, 1);
    expect!(child::await_word(&child, DONE, 1));
    expect_equal!(child.shared.get(GROWN), 4032);
    expect_equal!(child.shared.get(LAST_STATUS), 1 << 32 | Status::BadSlot as u64);
    expect_equal!(slots(), Ok(4096));
    Ok(())
}

extern "C" fn counting_child(_: u64) -> ! {
    let shared = shared();
    for number in 0..64 {
        if let Ok(word) = call::cap_read(CapSlot(number), 0) {
            shared.set(8 + number as usize, word);
        }
    }
    shared.set(DONE, 1);
    wait::forever()
}

fn child_starts_with_itself(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make_silent(machine, 0, 0));
    expect_ok!(child::start(&child, counting_child, 0));
    expect!(child::await_word(&child, DONE, 1));
    let word = |slot: CapSlot| child.shared.get(8 + slot.0 as usize);
    expect_equal!(word(SLOT_SELF) & 0xffff_ffff, CapType::Environment as u64);
    expect_equal!(word(SLOT_MACHINE), 0);
    // The three that `child::make_silent` granted are all there is.
    expect_equal!((0..64).filter(|n| word(CapSlot(*n)) != 0).count(), 4);
    Ok(())
}

//! Bells and wakeup predicates: counting, sleeping on words, bells and the clock, and never losing a wakeup between
//! processors.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::call::{ProcessorState, Sleep};
use aegis_abi::layout::{KERNEL_BASE, LIBOS_END, PAGE_SIZE};
use aegis_abi::memory::BindFlags;
use aegis_abi::share::{FIELD_SHARE_FIRST, FIELD_USED_FIRST, Table};
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF};
use aegis_abi::upcall::{UpcallFrame, UpcallKind};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call::{self, Outcome, Refusal};
use aegis_rt::control;
use aegis_rt::upcall::KIND_HELD_BACK;

use crate::memory::{SCRATCH_BASE, free_slot, map, repeat, slot, take};
use crate::suite::{CaseResult, Failure, Machine, Suite};
use crate::wait::{clock_term, now_ns};
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, thread, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s05_bell",
    cases: &[
        ("ring_counts_and_take_empties", ring_and_take),
        ("rights_are_asked_for", rights_are_asked_for),
        ("bells_have_a_limit", bells_have_a_limit),
        ("sleep_that_holds_already_returns_at_once", sleep_holds_already),
        ("sleep_until_a_time", sleep_until),
        ("sleep_until_a_bell", sleep_until_bell),
        ("sleep_until_a_word_changes", sleep_until_word),
        ("word_operators_compare", word_operators),
        ("products_are_alternatives_of_conjunctions", products),
        ("sleep_refuses_bad_predicates", sleep_refuses),
        ("sleeping_pins_the_words_frame", sleeping_pins),
        ("ring_at_rings_once_at_its_time", ring_at),
        ("ring_at_can_be_replaced_and_taken_back", ring_at_replaced),
        ("bell_upcall_interrupts_a_running_program", bell_upcall_interrupts),
        ("pending_upcall_keeps_sleep_from_beginning", pending_interrupts),
        ("bell_upcall_ends_a_sleep", bell_ends_sleep),
        ("sleep_on_nothing_ends_by_upcall_only", sleep_on_nothing),
        ("no_wakeup_is_lost_between_bells", no_lost_wakeup),
        ("no_wakeup_is_lost_on_words", no_lost_word_wakeup),
        ("a_dropped_bell_wakes_nobody_and_breaks_nothing", dropped_bell),
    ],
};

/// A term on a 64-bit word.
pub(crate) fn word_term(product: u32, slot: CapSlot, address: u64, at_least: u64) -> Term {
    Term {
        product,
        source: TermSource::Word64 as u32,
        operator: TermOperator::AtLeast as u32,
        slot: slot.0,
        address,
        value: at_least,
    }
}

fn bell_term(product: u32, slot: CapSlot, count: u64) -> Term {
    Term {
        product,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: slot.0,
        address: 0,
        value: count,
    }
}

/// The bell's bit among the held-back upcalls; a slice that began may be among them as well.
const BELL_BIT: u32 = 1 << UpcallKind::Bell as u32;

/// From setting a bell's time to sleeping on it: an upcall before the sleep would be one that nobody waits for.
const AFTER_SLEEP_NS: u64 = 50_000_000;

/// So often is a sleep tried that has to begin before its bell rings.
const ATTEMPT_COUNT_MAX: u32 = 20;

/// A clock term that never holds.
fn never(product: u32) -> Term {
    clock_term(product, u64::MAX)
}

/// A clock term that holds already.
fn always(product: u32) -> Term {
    clock_term(product, 0)
}

fn ring_and_take(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    expect_equal!(call::bell_take(slot(0)), Ok(0));
    for _ in 0..5 {
        expect_ok!(call::bell_ring(slot(0)));
    }
    expect_equal!(call::bell_take(slot(0)), Ok(5));
    expect_equal!(call::bell_take(slot(0)), Ok(0));
    Ok(())
}

fn rights_are_asked_for(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    expect_ok!(call::cap_derive(slot(0), slot(1), Rights::RING, 0, 0));
    expect_ok!(call::cap_derive(slot(0), slot(2), Rights::WAIT, 0, 0));
    expect_ok!(call::bell_ring(slot(1)));
    expect_refused!(call::bell_take(slot(1)), Status::MissingRight);
    expect_refused!(call::bell_ring(slot(2)), Status::MissingRight);
    expect_refused!(call::bell_ring_at(slot(2), 1), Status::MissingRight);
    expect_refused!(call::sleep(&[bell_term(0, slot(1), 1)]), Status::MissingRight);
    expect_equal!(call::bell_take(slot(2)), Ok(1));
    expect_refused!(call::bell_ring(SLOT_SELF), Status::WrongType);
    expect_refused!(call::bell_take(SLOT_SELF), Status::WrongType);
    expect_refused!(call::bell_ring(slot(3)), Status::BadSlot);
    expect_refused!(call::bell_create(slot(0), SLOT_NONE), Status::SlotInUse);
    expect_refused!(call::bell_create(slot(3), slot(0)), Status::WrongType);
    expect_refused!(call::bell_create(slot(3), slot(4)), Status::BadSlot);
    expect_ok!(call::cap_derive(SLOT_FIRST_PROCESSOR, slot(4), Rights::READ, 0, 0));
    expect_refused!(call::bell_create(slot(3), slot(4)), Status::MissingRight);
    // Dropping a derived one leaves the bell, dropping the original ends it.
    // SAFETY: a bell is no memory.
    unsafe {
        expect_ok!(call::cap_drop(slot(1)));
        expect_ok!(call::bell_ring(slot(0)));
        expect_ok!(call::cap_drop(slot(2)));
        expect_ok!(call::cap_drop(slot(0)));
    }
    expect_refused!(call::bell_ring(slot(0)), Status::BadSlot);
    Ok(())
}

fn bells_have_a_limit(_: &Machine) -> CaseResult {
    let read = |first| call::environment_read_share(SLOT_SELF, first, Table::Bells);
    let (share, used) = (expect_ok!(read(FIELD_SHARE_FIRST)), expect_ok!(read(FIELD_USED_FIRST)));
    let mut made = 0;
    let refusal = loop {
        match call::bell_create(slot(made), SLOT_NONE) {
            Ok(_) => made += 1,
            Err(refusal) => break refusal,
        }
        expect!(made < 2000);
    };
    expect_equal!(refusal.status as u64, Status::TableFull as u64);
    expect_equal!(u64::from(made), share - used);
    // SAFETY: these are no memory.
    (0..made).for_each(|number| repeat(|| unsafe { call::cap_drop(slot(number)) }));
    Ok(())
}

fn sleep_holds_already(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    expect_equal!(call::sleep(&[always(7)]), Ok(7));
    expect_ok!(call::bell_ring(slot(0)));
    expect_equal!(call::sleep(&[bell_term(3, slot(0), 1)]), Ok(3));
    // Sleeping does not take the count.
    expect_equal!(call::bell_take(slot(0)), Ok(1));
    Ok(())
}

fn sleep_until(_: &Machine) -> CaseResult {
    for duration_ns in [1_000, 100_000, 3_000_000] {
        let deadline = now_ns() + duration_ns;
        expect_equal!(call::sleep(&[clock_term(1, deadline)]), Ok(1));
        expect!(now_ns() >= deadline);
    }
    let deadline = now_ns() + 500_000;
    expect_equal!(call::sleep(&[never(1), clock_term(2, deadline), never(3)]), Ok(2));
    Ok(())
}

/// Words that cases and threads share.
static WORDS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

fn word(index: usize) -> u64 {
    WORDS[index].load(Ordering::SeqCst)
}

fn set_word(index: usize, value: u64) {
    WORDS[index].store(value, Ordering::SeqCst);
}

fn forget_words() {
    for word in &WORDS {
        word.store(0, Ordering::SeqCst);
    }
}

extern "C" fn ringing_thread(delay_ns: u64) -> ! {
    wait::pause(delay_ns);
    let _ = call::bell_ring(free_slot(0));
    wait::forever()
}

fn sleep_until_bell(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(free_slot(0), SLOT_NONE));
    let start = now_ns();
    expect_ok!(thread::spawn(0, ringing_thread, 2_000_000));
    expect_equal!(call::sleep(&[bell_term(4, free_slot(0), 1), never(5)]), Ok(4));
    expect!(now_ns() >= start + 2_000_000);
    expect_equal!(call::bell_take(free_slot(0)), Ok(1));
    Ok(())
}

/// Takes a frame and maps it at the scratch base; its physical address.
fn word_frame() -> Result<u64, Failure> {
    let frame = expect_ok!(take(free_slot(1), 1)).0;
    expect_ok!(map(SCRATCH_BASE, frame, 1, free_slot(1), BindFlags::WRITE));
    Ok(frame * PAGE_SIZE)
}

/// A word of that frame.
fn shared_word(index: usize) -> &'static AtomicU64 {
    // SAFETY: mapped by `word_frame` for as long as the case lasts.
    unsafe { &*((SCRATCH_BASE as *const AtomicU64).add(index)) }
}

extern "C" fn storing_thread(delay_ns: u64) -> ! {
    wait::pause(delay_ns);
    shared_word(5).store(9, Ordering::SeqCst);
    wait::forever()
}

fn sleep_until_word(_: &Machine) -> CaseResult {
    let physical = word_frame()?;
    expect_ok!(thread::spawn(0, storing_thread, 1_000_000));
    let term = word_term(6, free_slot(1), physical + 40, 9);
    expect_equal!(call::sleep(&[term]), Ok(6));
    expect_equal!(shared_word(5).load(Ordering::SeqCst), 9);
    Ok(())
}

fn word_operators(_: &Machine) -> CaseResult {
    use TermOperator::{AtLeast, Equal, Less, NotEqual};
    let physical = word_frame()?;
    shared_word(0).store(0x0000_0005_ffff_fff0, Ordering::SeqCst);
    let (low, high, whole) = (0xffff_fff0, 5, 0x0000_0005_ffff_fff0);
    let cases = [
        (TermSource::Word32, 0, low, [true, false, true, false]),
        (TermSource::Word32, 4, high, [true, false, true, false]),
        (TermSource::Word64, 0, whole, [true, false, true, false]),
        (TermSource::Word32, 0, low + 1, [false, true, false, true]),
        (TermSource::Word32, 4, high - 1, [false, true, true, false]),
        (TermSource::Word64, 0, u64::MAX, [false, true, false, true]),
        // A 32-bit source never equals a wider value.
        (TermSource::Word32, 0, whole, [false, true, false, true]),
    ];
    for (source, offset, value, expected) in cases {
        for (operator, holds) in [Equal, NotEqual, AtLeast, Less].into_iter().zip(expected) {
            let term = Term {
                product: 1,
                source: source as u32,
                operator: operator as u32,
                slot: free_slot(1).0,
                address: physical + offset,
                value,
            };
            expect_equal!(call::sleep(&[term, always(2)]), Ok(if holds { 1 } else { 2 }));
        }
    }
    Ok(())
}

fn products(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    // The first product in the order of the terms that holds.
    expect_equal!(call::sleep(&[never(1), always(2), always(3)]), Ok(2));
    // A conjunction holds only as a whole, wherever its terms stand.
    expect_equal!(call::sleep(&[always(1), always(2), never(1)]), Ok(2));
    expect_ok!(call::bell_ring(slot(0)));
    let both = [bell_term(9, slot(0), 1), always(9), never(8)];
    expect_equal!(call::sleep(&both), Ok(9));
    let later = now_ns() + 1_000_000;
    let bell_and_time = [bell_term(u32::MAX, slot(0), 1), clock_term(u32::MAX, later)];
    expect_equal!(call::sleep(&bell_and_time), Ok(u64::from(u32::MAX)));
    expect!(now_ns() >= later);
    let full: [Term; 32] = core::array::from_fn(|i| if i == 31 { always(31) } else { never(i as u32) });
    expect_equal!(call::sleep(&full), Ok(31));
    Ok(())
}

fn sleep_words(terms: u64, term_count: u32) -> Outcome {
    // SAFETY: sleeping changes no memory.
    unsafe { call::issue(aegis_abi::call::Call::Sleep(Sleep { terms, term_count })) }
}

fn sleep_refuses(_: &Machine) -> CaseResult {
    let physical = word_frame()?;
    let good = always(0);
    for terms in [0, 8, 0x1000, LIBOS_END - 16, KERNEL_BASE, u64::MAX - 7, &raw const good as u64 + 4] {
        expect_refused!(sleep_words(terms, 1), Status::BadAddress);
    }
    for count in [33, 1000, u32::MAX] {
        let refused = Err(Refusal { status: Status::BadArgument, value: 1 });
        expect_equal!(sleep_words(&raw const good as u64, count), refused);
    }
    let bad = |term: Term| call::sleep(&[always(0), term]);
    expect_refused!(bad(Term { source: 4, ..good }), Status::BadArgument);
    expect_refused!(bad(Term { operator: 4, ..good }), Status::BadArgument);
    expect_refused!(bad(Term { operator: TermOperator::Less as u32, ..good }), Status::BadArgument);
    let word = word_term(0, free_slot(1), physical, 0);
    expect_refused!(bad(Term { address: physical + 4, ..word }), Status::BadAddress);
    expect_refused!(bad(Term { address: physical + PAGE_SIZE, ..word }), Status::BadAddress);
    expect_refused!(bad(Term { address: 0, ..word }), Status::BadAddress);
    expect_refused!(bad(Term { address: u64::MAX - 7, ..word }), Status::BadAddress);
    expect_refused!(bad(Term { address: 1 << 60, ..word }), Status::BadAddress);
    expect_refused!(bad(Term { slot: SLOT_SELF.0, ..word }), Status::WrongType);
    expect_refused!(bad(Term { slot: 0, ..word }), Status::BadSlot);
    expect_refused!(bad(bell_term(0, free_slot(1), 0)), Status::WrongType);
    Ok(())
}

extern "C" fn word_sleeping_thread(address: u64) -> ! {
    let outcome = call::sleep(&[word_term(0, free_slot(1), address, 1)]);
    set_word(0, outcome.map_or_else(|refusal| refusal.status as u64, |_| 1));
    wait::forever()
}

fn sleeping_pins(_: &Machine) -> CaseResult {
    forget_words();
    let physical = word_frame()?;
    expect_ok!(crate::memory::unmap(SCRATCH_BASE, 1));
    let thread = expect_ok!(thread::spawn(0, word_sleeping_thread, physical));
    expect!(thread.await_state(ProcessorState::Asleep));
    expect_refused!(call::frame_free(free_slot(1)), Status::Busy);
    expect_ok!(map(SCRATCH_BASE, physical / PAGE_SIZE, 1, free_slot(1), BindFlags::WRITE));
    shared_word(0).store(1, Ordering::SeqCst);
    expect!(wait::until(|| word(0) != 0));
    expect_equal!(word(0), 1);
    expect_ok!(crate::memory::unmap(SCRATCH_BASE, 1));
    expect_ok!(call::frame_free(free_slot(1)));
    Ok(())
}

fn ring_at(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    let deadline = now_ns() + 3_000_000;
    expect_ok!(call::bell_ring_at(slot(0), deadline));
    expect_equal!(call::sleep(&[bell_term(1, slot(0), 1)]), Ok(1));
    expect!(now_ns() >= deadline);
    expect_equal!(call::bell_take(slot(0)), Ok(1));
    wait::pause(2_000_000);
    expect_equal!(call::bell_take(slot(0)), Ok(0));
    // A time that has come already: at once.
    expect_ok!(call::bell_ring_at(slot(0), 0));
    expect!(wait::until(|| call::bell_take(slot(0)) == Ok(1)));
    Ok(())
}

fn ring_at_replaced(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    expect_ok!(call::bell_create(slot(1), SLOT_NONE));
    // Far enough apart that no hold-up of the host between the calls lets the first ones come.
    let start = now_ns();
    expect_ok!(call::bell_ring_at(slot(0), start + 60_000_000));
    expect_ok!(call::bell_ring_at(slot(1), start + 60_000_000));
    expect_ok!(call::bell_ring_at(slot(0), start + 80_000_000));
    expect_ok!(call::bell_ring_at(slot(1), u64::MAX));
    expect_equal!(call::sleep(&[bell_term(1, slot(0), 1), bell_term(2, slot(1), 1)]), Ok(1));
    expect!(now_ns() >= start + 80_000_000);
    expect_equal!(call::bell_take(slot(0)), Ok(1));
    expect_equal!(call::bell_take(slot(1)), Ok(0));
    // A bell that goes with a time set.
    expect_ok!(call::bell_ring_at(slot(0), now_ns() + 500_000));
    // SAFETY: a bell is no memory.
    repeat(|| unsafe { call::cap_drop(slot(0)) });
    wait::pause(1_000_000);
    Ok(())
}

extern "C" fn on_bell(frame: &mut UpcallFrame) {
    if frame.kind == UpcallKind::Bell as u32 {
        WORDS[0].fetch_add(1, Ordering::SeqCst);
    } else if frame.kind == KIND_HELD_BACK {
        let _ = control::take_pending();
    } else {
        probe::on_upcall(frame);
    }
}

fn bell_upcall_interrupts(_: &Machine) -> CaseResult {
    forget_words();
    expect_ok!(call::bell_create(free_slot(0), SLOT_FIRST_PROCESSOR));
    probe::install_with(on_bell, &[UpcallKind::Bell]);
    // By the clock.
    expect_ok!(call::bell_ring_at(free_slot(0), now_ns() + 2_000_000));
    let limit = now_ns() + 20_000_000_000;
    while word(0) == 0 && now_ns() < limit {
        core::hint::spin_loop();
    }
    expect_equal!(word(0), 1);
    // By another processor, or by another that shares ours.
    expect_ok!(thread::spawn(0, ringing_thread, 1_000_000));
    while word(0) == 1 && now_ns() < limit {
        core::hint::spin_loop();
    }
    expect_equal!(word(0), 2);
    Ok(())
}

fn pending_interrupts(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_FIRST_PROCESSOR));
    control::set_masked(true);
    expect_ok!(call::bell_ring(slot(0)));
    let first = call::sleep(&[never(0)]);
    let second = call::sleep(&[never(0)]);
    let holds = call::sleep(&[always(5)]);
    let pending = control::take_pending();
    control::set_masked(false);
    expect_refused!(first, Status::Interrupted);
    expect_refused!(second, Status::Interrupted);
    expect_equal!(holds, Ok(5));
    expect_equal!(pending & BELL_BIT, BELL_BIT);
    let soon = now_ns() + 100_000;
    expect_equal!(call::sleep(&[clock_term(0, soon)]), Ok(0));
    Ok(())
}

fn bell_ends_sleep(_: &Machine) -> CaseResult {
    forget_words();
    expect_ok!(call::bell_create(free_slot(0), SLOT_FIRST_PROCESSOR));
    probe::install_with(on_bell, &[UpcallKind::Bell]);
    // The host may take the processor away between setting the time and the sleep, for longer than any margin. The
    // upcall then came before the sleep, which ends by its clock: try again.
    let mut slept = Ok(0);
    for _ in 0..ATTEMPT_COUNT_MAX {
        forget_words();
        expect_ok!(call::bell_ring_at(free_slot(0), now_ns() + AFTER_SLEEP_NS));
        slept = call::sleep(&[clock_term(0, now_ns() + 4 * AFTER_SLEEP_NS)]);
        expect_equal!(word(0), 1);
        if slept.is_err() {
            break;
        }
    }
    expect_refused!(slept, Status::Interrupted);
    // Masked: the sleep ends as well, the upcall waits.
    control::set_masked(true);
    let set = call::bell_ring_at(free_slot(0), now_ns() + AFTER_SLEEP_NS);
    let slept = call::sleep(&[never(0)]);
    let pending = control::take_pending();
    control::set_masked(false);
    expect_ok!(set);
    expect_refused!(slept, Status::Interrupted);
    expect_equal!(pending & BELL_BIT, BELL_BIT);
    expect_equal!(word(0), 1);
    Ok(())
}

fn sleep_on_nothing(_: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(free_slot(0), SLOT_FIRST_PROCESSOR));
    expect_ok!(call::bell_ring_at(free_slot(0), now_ns() + AFTER_SLEEP_NS));
    expect_refused!(sleep_words(0, 0), Status::Interrupted);
    let _ = control::take_pending();
    Ok(())
}

/// Round trips of the race.
const ROUNDS: u64 = 3000;

/// Sleeps on bell 0, rings bell 1.
extern "C" fn answering_thread(_: u64) -> ! {
    for _ in 0..ROUNDS {
        while call::bell_take(free_slot(0)) == Ok(0) {
            let _ = call::sleep(&[bell_term(0, free_slot(0), 1)]);
        }
        WORDS[0].fetch_add(1, Ordering::SeqCst);
        let _ = call::bell_ring(free_slot(1));
    }
    wait::forever()
}

fn no_lost_wakeup(_: &Machine) -> CaseResult {
    forget_words();
    expect_ok!(call::bell_create(free_slot(0), SLOT_NONE));
    expect_ok!(call::bell_create(free_slot(1), SLOT_NONE));
    expect_ok!(thread::spawn(0, answering_thread, 0));
    let limit = now_ns() + 60_000_000_000;
    for round in 0..ROUNDS {
        expect_ok!(call::bell_ring(free_slot(0)));
        while call::bell_take(free_slot(1)) == Ok(0) {
            // A lost wakeup shows as a sleep that only the limit ends.
            expect_equal!(call::sleep(&[bell_term(0, free_slot(1), 1), clock_term(1, limit)]), Ok(0));
        }
        expect_equal!(word(0), round + 1);
    }
    Ok(())
}

/// Rounds of the race on words: without a bell the kernel looks at words when a processor idles.
const WORD_ROUNDS: u64 = 200;

extern "C" fn counting_thread(physical: u64) -> ! {
    for round in 1..=WORD_ROUNDS {
        let term = word_term(0, free_slot(1), physical, round);
        while shared_word(0).load(Ordering::SeqCst) < round {
            let _ = call::sleep(&[term]);
        }
        shared_word(1).store(round, Ordering::SeqCst);
    }
    wait::forever()
}

fn no_lost_word_wakeup(_: &Machine) -> CaseResult {
    let physical = word_frame()?;
    expect_ok!(thread::spawn(0, counting_thread, physical));
    for round in 1..=WORD_ROUNDS {
        shared_word(0).store(round, Ordering::SeqCst);
        let term = word_term(0, free_slot(1), physical + 8, round);
        let limit = clock_term(1, now_ns() + 20_000_000_000);
        expect_equal!(call::sleep(&[term, limit]), Ok(0));
        expect_equal!(shared_word(1).load(Ordering::SeqCst), round);
    }
    Ok(())
}

extern "C" fn bell_sleeping_thread(_: u64) -> ! {
    let deadline = now_ns() + 300_000_000;
    let terms = [bell_term(1, free_slot(0), 1), clock_term(2, deadline)];
    set_word(0, call::sleep(&terms).unwrap_or_else(|refusal| refusal.status as u64));
    wait::forever()
}

fn dropped_bell(_: &Machine) -> CaseResult {
    forget_words();
    expect_ok!(call::bell_create(free_slot(0), SLOT_NONE));
    let thread = expect_ok!(thread::spawn(0, bell_sleeping_thread, 0));
    expect!(thread.await_state(ProcessorState::Asleep));
    // SAFETY: a bell is no memory.
    repeat(|| unsafe { call::cap_drop(free_slot(0)) });
    // A new bell in the same slot, perhaps in the same place of the kernel's table, is another bell.
    expect_ok!(call::bell_create(free_slot(0), SLOT_NONE));
    expect_ok!(call::bell_ring(free_slot(0)));
    expect!(wait::until(|| word(0) != 0));
    expect_equal!(word(0), 2);
    Ok(())
}

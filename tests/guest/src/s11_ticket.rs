//! Tickets: what environments and processors are funded with, what changes it, and that it decides which one runs.
//!
//! Shares are compared in slices that the kernel counted, with bounds that chance passes once in many millions of runs.

use aegis_abi::call::{ProcessorField, TICKET_AMOUNT_DEFAULT, TICKET_AMOUNT_MAX, TICKET_VALUE_ONE, TicketField};
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_MACHINE, SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call;

use crate::child::{self, CHILD_SLOT_FREE, Child, shared};
use crate::memory::free_slot;
use crate::suite::{CaseResult, Failure, Machine, Suite};
use crate::{expect, expect_equal, expect_ok, expect_refused, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s11_ticket",
    cases: &[
        ("amounts_are_read_and_changed", amounts),
        ("bad_changes_are_refused", bad_changes),
        ("an_environment_changes_its_processors_and_not_itself", own_processors),
        ("slices_follow_the_amounts", slices_follow),
        ("others_pay_and_end", others_pay),
        ("payers_that_cannot_be_are_refused", bad_payers),
        ("slices_follow_currencies", slices_follow_currencies),
        ("without_funding_only_idle_time_is_left", unfunded),
    ],
};

extern "C" fn busy_child(_: u64) -> ! {
    loop {
        shared().increment(0);
    }
}

fn slices(child: &Child) -> u64 {
    call::processor_read(child.processor, ProcessorField::Slices).unwrap_or(0)
}

/// Two children; each is started if it is to be.
fn two(machine: &Machine, starts: bool) -> Result<[Child; 2], Failure> {
    let children = [expect_ok!(child::make(machine, 0, 0)), expect_ok!(child::make(machine, 1, 0))];
    for child in children.iter().filter(|_| starts) {
        expect_ok!(child::start(child, busy_child, 0));
    }
    Ok(children)
}

fn sleep_until(mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..20_000 {
        if condition() {
            return true;
        }
        wait::pause(wait::slice_ns());
    }
    false
}

fn amounts(machine: &Machine) -> CaseResult {
    let [one, two] = two(machine, true)?;
    expect_equal!(call::ticket_read(one.environment, TicketField::Amount), Ok(TICKET_AMOUNT_DEFAULT));
    expect_equal!(call::ticket_read(one.environment, TicketField::IsFunding), Ok(1));
    expect_ok!(call::ticket_amount(one.environment, 5000));
    expect_ok!(call::ticket_amount(SLOT_FIRST_PROCESSOR, 4000));
    expect_equal!(call::ticket_read(SLOT_SELF, TicketField::ActiveAmount), Ok(10_000));
    expect_equal!(call::ticket_read(one.environment, TicketField::Value), Ok(500 * TICKET_VALUE_ONE));
    expect_equal!(call::ticket_read(one.processor, TicketField::Value), Ok(500 * TICKET_VALUE_ONE));
    expect_equal!(call::ticket_read(two.environment, TicketField::Value), Ok(100 * TICKET_VALUE_ONE));
    expect_ok!(call::ticket_fund(one.environment, SLOT_NONE));
    expect_equal!(call::ticket_read(one.environment, TicketField::Value), Ok(0));
    expect_equal!(call::ticket_read(two.environment, TicketField::Value), Ok(200 * TICKET_VALUE_ONE));
    expect_ok!(call::ticket_fund(one.environment, one.environment));
    expect_equal!(call::ticket_read(one.environment, TicketField::IsFunding), Ok(1));
    expect_ok!(call::ticket_amount(SLOT_FIRST_PROCESSOR, TICKET_AMOUNT_DEFAULT));
    Ok(())
}

fn bad_changes(machine: &Machine) -> CaseResult {
    let [one, two] = two(machine, false)?;
    expect_refused!(call::ticket_amount(one.environment, 0), Status::BadArgument);
    expect_refused!(call::ticket_amount(one.environment, TICKET_AMOUNT_MAX + 1), Status::BadArgument);
    expect_refused!(call::ticket_fund(one.environment, two.environment), Status::BadArgument);
    expect_refused!(call::ticket_amount(SLOT_SELF, 1), Status::MissingRight);
    expect_refused!(call::ticket_fund(SLOT_SELF, SLOT_NONE), Status::MissingRight);
    expect_refused!(call::ticket_amount(SLOT_MACHINE, 1), Status::WrongType);
    expect_refused!(call::ticket_amount(CapSlot(u32::MAX), 1), Status::BadSlot);
    expect_ok!(call::cap_derive(one.environment, free_slot(0), Rights::READ, 0, 0));
    expect_refused!(call::ticket_amount(free_slot(0), 1), Status::MissingRight);
    expect_equal!(call::ticket_read(free_slot(0), TicketField::Amount), Ok(TICKET_AMOUNT_DEFAULT));
    expect_equal!(call::ticket_read(one.environment, TicketField::IsFunding), Ok(1));
    Ok(())
}

/// Words of the shared page: what the child was told.
const ON_SELF: usize = 1;
const ON_PROCESSOR: usize = 2;
const DONE: usize = 3;
const ON_ISSUE: usize = 4;

fn status_of(outcome: aegis_rt::call::Outcome) -> u64 {
    outcome.map_or_else(|refusal| refusal.status as u64, |_| Status::Ok as u64)
}

extern "C" fn greedy_child(_: u64) -> ! {
    shared().set(ON_SELF, status_of(call::ticket_amount(SLOT_SELF, TICKET_AMOUNT_MAX)));
    shared().set(ON_PROCESSOR, status_of(call::ticket_amount(CHILD_SLOT_FREE, TICKET_AMOUNT_MAX)));
    shared().set(ON_ISSUE, status_of(call::ticket_issue(SLOT_SELF, SLOT_SELF)));
    shared().set(DONE, 1);
    loop {
        shared().increment(0);
    }
}

fn own_processors(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    let rights = Rights::CONTROL | Rights::READ;
    expect_ok!(call::cap_grant(child.processor, child.environment, CHILD_SLOT_FREE, rights));
    expect_ok!(child::start(&child, greedy_child, 0));
    expect!(child::await_word(&child, DONE, 1));
    expect_equal!(child.shared.get(ON_SELF), Status::MissingRight as u64);
    expect_equal!(child.shared.get(ON_PROCESSOR), Status::Ok as u64);
    expect_equal!(child.shared.get(ON_ISSUE), Status::MissingRight as u64);
    // It inflated its own currency, which is worth what it was.
    expect_equal!(call::ticket_read(child.environment, TicketField::IssuedAmount), Ok(TICKET_AMOUNT_MAX));
    expect_equal!(call::ticket_read(child.environment, TicketField::Value), Ok(500 * TICKET_VALUE_ONE));
    Ok(())
}

fn slices_follow(machine: &Machine) -> CaseResult {
    let [one, two] = two(machine, false)?;
    expect_ok!(call::ticket_amount(one.environment, 3 * TICKET_AMOUNT_DEFAULT));
    for child in [&one, &two] {
        expect_ok!(child::start(child, busy_child, 0));
    }
    if machine.cpu_count > 1 {
        // Each has a processor to itself.
        expect!(sleep_until(|| one.shared.get(0) > 0 && two.shared.get(0) > 0));
        return Ok(());
    }
    let before = [slices(&one), slices(&two)];
    let taken = || [slices(&one) - before[0], slices(&two) - before[1]];
    expect!(sleep_until(|| taken().iter().sum::<u64>() >= 600));
    let [rich, poor] = taken();
    // Of n slices a quarter is the poor one's, with a deviation of the root of 3n / 16: within six of them.
    let all = rich + poor;
    let off = (4 * poor).abs_diff(all);
    expect!(off * off <= 36 * 3 * all);
    Ok(())
}

/// The third child never runs: it is a currency.
fn others_pay(machine: &Machine) -> CaseResult {
    let [one, two] = two(machine, true)?;
    let shop = expect_ok!(child::make(machine, 2, 0));
    let value = |child: &Child| call::ticket_read(child.environment, TicketField::Value);
    expect_equal!(value(&shop), Ok(0));
    expect_ok!(call::ticket_issue(one.environment, shop.environment));
    expect_ok!(call::ticket_issue(two.environment, shop.environment));
    expect_ok!(call::ticket_amount(one.environment, 4000));
    expect_ok!(call::ticket_amount(shop.environment, 4000));
    // This environment's processor competes with 1,000.
    expect_equal!(value(&shop), Ok(800 * TICKET_VALUE_ONE));
    expect_equal!(value(&one), Ok(640 * TICKET_VALUE_ONE));
    expect_equal!(value(&two), Ok(160 * TICKET_VALUE_ONE));
    expect_equal!(call::ticket_read(shop.environment, TicketField::ActiveAmount), Ok(5000));
    // SAFETY: nothing of ours is in the memory of a child that never ran.
    while let Err(refusal) = unsafe { call::environment_destroy(shop.environment) } {
        expect!(refusal.status == Status::Again);
    }
    // What it paid for is ours again, with its amount, and funds nothing until we say so.
    expect_equal!(call::ticket_read(SLOT_SELF, TicketField::ActiveAmount), Ok(1000));
    expect_equal!(call::ticket_read(one.environment, TicketField::Amount), Ok(4000));
    expect_equal!(call::ticket_read(one.environment, TicketField::IsFunding), Ok(0));
    expect_equal!(value(&one), Ok(0));
    expect_ok!(call::ticket_fund(one.environment, one.environment));
    expect_equal!(value(&one), Ok(800 * TICKET_VALUE_ONE));
    expect_ok!(call::ticket_amount(one.environment, 3000));
    expect_equal!(value(&one), Ok(750 * TICKET_VALUE_ONE));
    Ok(())
}

fn bad_payers(machine: &Machine) -> CaseResult {
    let [one, two] = two(machine, false)?;
    let [one, other] = [one.environment, two.environment];
    expect_ok!(call::ticket_issue(one, other));
    expect_refused!(call::ticket_issue(one, one), Status::BadArgument);
    expect_refused!(call::ticket_issue(other, one), Status::BadArgument);
    expect_refused!(call::ticket_issue(SLOT_SELF, one), Status::MissingRight);
    expect_refused!(call::ticket_issue(two.processor, one), Status::WrongType);
    expect_refused!(call::ticket_issue(one, SLOT_MACHINE), Status::WrongType);
    expect_refused!(call::ticket_issue(CapSlot(u32::MAX), one), Status::BadSlot);
    expect_refused!(call::ticket_issue(one, SLOT_NONE), Status::BadSlot);
    expect_ok!(call::cap_derive(one, free_slot(0), Rights::READ, 0, 0));
    expect_refused!(call::ticket_issue(free_slot(0), SLOT_SELF), Status::MissingRight);
    expect_refused!(call::ticket_issue(other, free_slot(0)), Status::MissingRight);
    expect_equal!(call::ticket_read(SLOT_SELF, TicketField::IssuedAmount), Ok(2 * TICKET_AMOUNT_DEFAULT));
    expect_ok!(call::ticket_issue(one, SLOT_SELF));
    expect_ok!(call::ticket_issue(other, one));
    Ok(())
}

/// A half for the first; of the other half, which a currency pays, three quarters for the third.
fn slices_follow_currencies(machine: &Machine) -> CaseResult {
    let [one, two] = two(machine, false)?;
    let [three, shop] = [expect_ok!(child::make(machine, 2, 0)), expect_ok!(child::make(machine, 3, 0))];
    expect_ok!(call::ticket_issue(two.environment, shop.environment));
    expect_ok!(call::ticket_issue(three.environment, shop.environment));
    expect_ok!(call::ticket_amount(three.environment, 3 * TICKET_AMOUNT_DEFAULT));
    let children = [one, two, three];
    for child in &children {
        expect_ok!(child::start(child, busy_child, 0));
    }
    if machine.cpu_count > 1 {
        expect!(sleep_until(|| children.iter().all(|child| child.shared.get(0) > 0)));
        return Ok(());
    }
    let before = children.map(|child| slices(&child));
    let taken = || [0, 1, 2].map(|index| slices(&children[index]) - before[index]);
    expect!(sleep_until(|| taken().iter().sum::<u64>() >= 800));
    let taken = taken();
    let all: u64 = taken.iter().sum();
    // Due are parts of eight; the variance of n slices is n p (1 - p): within six deviations.
    for (taken, part) in taken.into_iter().zip([4, 1, 3]) {
        let off = (8 * taken).abs_diff(part * all);
        expect!(off * off <= 36 * part * (8 - part) * all);
    }
    Ok(())
}

fn unfunded(machine: &Machine) -> CaseResult {
    let [one, two] = two(machine, true)?;
    expect!(sleep_until(|| one.shared.get(0) > 0 && two.shared.get(0) > 0));
    expect_ok!(call::ticket_fund(two.environment, SLOT_NONE));
    if machine.cpu_count == 1 {
        // The other computes without end; what is left for this one is the end of its slice.
        let before = (slices(&one), slices(&two));
        expect!(sleep_until(|| slices(&one) >= before.0 + 100));
        expect!(slices(&two) <= before.1 + 2);
    }
    // With the other out of the way it runs.
    let before = two.shared.get(0);
    // SAFETY: the child is this case's own.
    expect_ok!(unsafe { call::processor_stop(one.processor) });
    expect!(sleep_until(|| two.shared.get(0) > before));
    Ok(())
}

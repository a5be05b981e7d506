//! Protected control transfer: eleven registers there and back, through several servers, and what happens when
//! somebody dies.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::call::ProcessorState;
use aegis_abi::counter::Counter;
use aegis_abi::layout::{KERNEL_BASE, LIBOS_END};
use aegis_abi::share::{FIELD_SHARE_FIRST, Table};
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_SELF};
use aegis_abi::upcall::UpcallKind;
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call::{self, Outcome, Refusal};
use aegis_rt::control;
use aegis_rt::gate::{self, GateHandler, Message, gate_call, gate_entry, gate_send};

use crate::child::{self, CHILD_SLOT_FREE, Child, shared};
use crate::memory::{free_slot, repeat, slot};
use crate::suite::{CaseResult, Failure, Machine, Suite};
use crate::thread::Thread;
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, thread, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s06_gate",
    cases: &[
        ("message_and_badge_arrive_and_return", message_and_badge),
        ("create_and_call_refuse_bad_arguments", refuses),
        ("gates_have_a_limit", gates_have_a_limit),
        ("call_into_another_environment", call_into_another),
        ("call_out_of_another_environment", call_out_of_another),
        ("calls_nest_through_two_servers", nested_calls),
        ("calls_in_a_circle_are_refused", circle_refused),
        ("callers_queue_up", callers_queue_up),
        ("callee_that_stops_is_gone", callee_stops),
        ("callee_that_faults_is_gone", callee_faults),
        ("queued_callers_learn_that_the_callee_is_gone", queued_callers_learn),
        ("caller_that_dies_is_forgotten", caller_dies),
        ("dropped_gate_is_gone", dropped_gate),
        ("send_needs_a_waiting_callee", send_works),
        ("reply_without_a_call_waits", reply_without_call),
        ("bell_interrupts_waiting_for_calls", bell_interrupts_accepting),
        ("calls_cost_one_kernel_entry_each_way", call_cost),
    ],
};

static SEEN: [AtomicU64; 24] = [const { AtomicU64::new(0) }; 24];

fn seen(index: usize) -> u64 {
    SEEN[index].load(Ordering::SeqCst)
}

fn see(index: usize, value: u64) {
    SEEN[index].store(value, Ordering::SeqCst);
}

fn forget_seen() {
    for word in &SEEN {
        word.store(0, Ordering::SeqCst);
    }
}

fn words(seed: u64) -> Message {
    core::array::from_fn(|index| (seed + index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What servers of this suite answer: every word changed in a way that depends on its place.
fn answered(message: &Message) -> Message {
    core::array::from_fn(|index| message[index].rotate_left(8) ^ index as u64)
}

extern "C" fn answer(badge: u64, message: &mut Message) {
    see(0, badge);
    SEEN[1].fetch_add(1, Ordering::SeqCst);
    *message = answered(message);
}

/// Serves with the handler at `argument`.
extern "C" fn server(argument: u64) -> ! {
    probe::install();
    control::set_library_word::<{ gate::WORD_GATE_HANDLER }>(argument);
    // SAFETY: nothing in the save area is needed any more.
    unsafe { gate::serve() }
}

fn entry_address() -> u64 {
    gate_entry as *const () as u64
}

/// A server thread and a gate to it in `gate`.
fn serve(number: u32, handler: GateHandler, gate: CapSlot, badge: u64) -> Result<Thread, Failure> {
    let thread = expect_ok!(thread::spawn(number, server, handler as usize as u64));
    expect_ok!(call::gate_create(gate, thread.processor, entry_address(), badge));
    expect!(thread.await_state(ProcessorState::Accepting));
    Ok(thread)
}

/// The outcome of a call as a word: 0 or the status.
fn status_of(result: Result<(), Refusal>) -> u64 {
    result.map_or_else(|refusal| refusal.status as u64, |()| 0)
}

fn message_and_badge(_: &Machine) -> CaseResult {
    forget_seen();
    serve(0, answer, slot(0), 0xbad6_e000_0000_0001)?;
    for seed in 0..50 {
        let mut message = words(seed);
        expect_equal!(status_of(gate_call(slot(0), &mut message)), 0);
        expect!(message == answered(&words(seed)));
        expect_equal!(seen(0), 0xbad6_e000_0000_0001);
    }
    expect_equal!(seen(1), 50);
    Ok(())
}

fn refuses(_: &Machine) -> CaseResult {
    let thread = expect_ok!(thread::make(0));
    let create = |processor, rip| call::gate_create(slot(0), processor, rip, 0);
    for rip in [0, 0x40_0000, LIBOS_END, KERNEL_BASE, u64::MAX] {
        let refused = Err(Refusal { status: Status::BadArgument, value: 2 });
        expect_equal!(create(thread.processor, rip), refused);
    }
    expect_refused!(create(SLOT_SELF, entry_address()), Status::WrongType);
    expect_refused!(create(slot(1), entry_address()), Status::BadSlot);
    expect_ok!(call::cap_derive(thread.processor, slot(1), Rights::READ, 0, 0));
    expect_refused!(create(slot(1), entry_address()), Status::MissingRight);
    let taken = call::gate_create(SLOT_SELF, thread.processor, entry_address(), 0);
    expect_refused!(taken, Status::SlotInUse);
    expect_ok!(create(thread.processor, entry_address()));
    expect_ok!(call::cap_derive(slot(0), slot(2), Rights::READ, 0, 0));
    let mut message = words(1);
    let mut try_call = |gate| -> Outcome { gate_call(gate, &mut message).map(|()| 0) };
    expect_refused!(try_call(slot(2)), Status::MissingRight);
    expect_refused!(try_call(SLOT_SELF), Status::WrongType);
    expect_refused!(try_call(slot(3)), Status::BadSlot);
    // Its processor was never started.
    expect_refused!(try_call(slot(0)), Status::PeerGone);
    expect_equal!(status_of(gate_send(slot(0), &words(1))), Status::PeerGone as u64);
    expect_equal!(status_of(gate_send(slot(2), &words(1))), Status::MissingRight as u64);
    Ok(())
}

fn gates_have_a_limit(_: &Machine) -> CaseResult {
    let share = expect_ok!(call::environment_read_share(SLOT_SELF, FIELD_SHARE_FIRST, Table::Gates));
    let mut made = 0;
    let refusal = loop {
        match call::gate_create(slot(made), SLOT_FIRST_PROCESSOR, entry_address(), 0) {
            Ok(_) => made += 1,
            Err(refusal) => break refusal,
        }
        expect!(made < 1000);
    };
    expect_equal!(refusal.status as u64, Status::TableFull as u64);
    expect_equal!(u64::from(made), share);
    // SAFETY: these are no memory.
    (0..made).for_each(|number| repeat(|| unsafe { call::cap_drop(slot(number)) }));
    Ok(())
}

extern "C" fn child_answer(badge: u64, message: &mut Message) {
    shared().set(1, badge);
    *message = answered(message);
}

extern "C" fn child_fault(_: u64, _: &mut Message) {
    control::set_entry(UpcallKind::Exception, 0);
    // SAFETY: ends the environment, which is the purpose.
    unsafe { core::arch::asm!("ud2") };
}

/// Serves calls through a gate that it makes itself and gives to nobody: the parent reaches it through its own
/// capability.
extern "C" fn serving_child(faults: u64) -> ! {
    probe::install();
    let handler: GateHandler = if faults == 0 { child_answer } else { child_fault };
    gate::register(handler);
    let made = call::gate_create(CapSlot(16), CHILD_SLOT_FREE, entry_address(), 0x77)
        .and_then(|_| call::cap_grant(CapSlot(16), CapSlot(CHILD_SLOT_FREE.0 + 1), free_slot(0), Rights::CALL));
    shared().set(0, made.map_or_else(|refusal| refusal.status as u64, |_| 1));
    // SAFETY: nothing in the save area is needed any more.
    unsafe { gate::serve() }
}

/// A child that serves, its gate in `free_slot(0)`.
fn child_server(machine: &Machine, faults: u64) -> Result<Child, Failure> {
    let child = expect_ok!(child::make(machine, 0, 0));
    let environment = child.environment;
    expect_ok!(call::cap_grant(child.processor, environment, CHILD_SLOT_FREE, Rights::all()));
    // The right to put something into our table.
    let ours = CapSlot(CHILD_SLOT_FREE.0 + 1);
    expect_ok!(call::cap_grant(SLOT_SELF, environment, ours, Rights::RECEIVE));
    expect_ok!(child::start(&child, serving_child, faults));
    expect!(child::await_word(&child, 0, 1));
    expect_equal!(child.shared.get(0), 1);
    Ok(child)
}

fn call_into_another(machine: &Machine) -> CaseResult {
    let child = child_server(machine, 0)?;
    for seed in 0..20 {
        let mut message = words(seed);
        expect_equal!(status_of(gate_call(free_slot(0), &mut message)), 0);
        expect!(message == answered(&words(seed)));
    }
    expect_equal!(child.shared.get(1), 0x77);
    Ok(())
}

extern "C" fn calling_child(rounds: u64) -> ! {
    let shared = shared();
    let mut good = 0;
    for seed in 0..rounds {
        let mut message = words(seed);
        let status = status_of(gate_call(CHILD_SLOT_FREE, &mut message));
        good += u64::from(status == 0 && message == answered(&words(seed)));
        shared.set(2, status);
    }
    shared.set(1, good);
    shared.set(0, 1);
    wait::forever()
}

fn call_out_of_another(machine: &Machine) -> CaseResult {
    forget_seen();
    serve(0, answer, free_slot(1), 5)?;
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(call::cap_grant(free_slot(1), child.environment, CHILD_SLOT_FREE, Rights::CALL));
    expect_ok!(child::start(&child, calling_child, 20));
    expect!(child::await_word(&child, 0, 1));
    expect_equal!(child.shared.get(1), 20);
    expect_equal!(seen(0), 5);
    Ok(())
}

extern "C" fn forward(_: u64, message: &mut Message) {
    message[10] ^= 0xf0f0;
    let status = status_of(gate_call(free_slot(2), message));
    see(2, status);
}

fn nested_calls(_: &Machine) -> CaseResult {
    forget_seen();
    serve(0, answer, free_slot(2), 1)?;
    serve(1, forward, free_slot(3), 2)?;
    for seed in 0..20 {
        let mut message = words(seed);
        expect_equal!(status_of(gate_call(free_slot(3), &mut message)), 0);
        let mut expected = words(seed);
        expected[10] ^= 0xf0f0;
        expect!(message == answered(&expected));
    }
    expect_equal!(seen(2), 0);
    Ok(())
}

/// Calls its caller back: the gate in `free_slot(4)` is the first processor's.
extern "C" fn call_back(_: u64, message: &mut Message) {
    see(3, status_of(gate_call(free_slot(4), message)));
}

fn circle_refused(_: &Machine) -> CaseResult {
    forget_seen();
    expect_ok!(call::gate_create(free_slot(4), SLOT_FIRST_PROCESSOR, entry_address(), 0));
    let mut message = words(0);
    expect_equal!(status_of(gate_call(free_slot(4), &mut message)), Status::WrongState as u64);
    expect_equal!(status_of(gate_send(free_slot(4), &message)), Status::PeerBusy as u64);
    serve(0, call_back, free_slot(2), 0)?;
    serve(1, forward, free_slot(3), 0)?;
    expect_equal!(status_of(gate_call(free_slot(2), &mut message)), 0);
    expect_equal!(seen(3), Status::PeerBusy as u64);
    // Through one more.
    see(3, 0);
    expect_equal!(status_of(gate_call(free_slot(3), &mut message)), 0);
    expect_equal!(seen(3), Status::PeerBusy as u64);
    Ok(())
}

extern "C" fn calling_thread(number: u64) -> ! {
    let mut good = 0;
    for round in 0..50 {
        let seed = number << 32 | round;
        let mut message = words(seed);
        let status = status_of(gate_call(free_slot(2), &mut message));
        good += u64::from(status == 0 && message == answered(&words(seed)));
    }
    SEEN[4].fetch_add(good, Ordering::SeqCst);
    SEEN[5].fetch_add(1, Ordering::SeqCst);
    wait::forever()
}

/// Answers after others had a chance to queue up.
extern "C" fn slow_answer(badge: u64, message: &mut Message) {
    let _ = call::yield_to(aegis_abi::types::SLOT_NONE);
    answer(badge, message);
}

fn callers_queue_up(_: &Machine) -> CaseResult {
    forget_seen();
    serve(0, slow_answer, free_slot(2), 0)?;
    for number in 1..=5 {
        expect_ok!(thread::spawn(number, calling_thread, u64::from(number)));
    }
    expect!(wait::until(|| seen(5) == 5));
    expect_equal!(seen(4), 250);
    expect_equal!(seen(1), 250);
    Ok(())
}

/// Never replies.
extern "C" fn hang(_: u64, _: &mut Message) {
    see(6, 1);
    wait::forever();
}

extern "C" fn one_call_thread(number: u64) -> ! {
    let mut message = words(number);
    let status = status_of(gate_call(free_slot(2), &mut message));
    see(8 + number as usize, 1 << 32 | status);
    wait::forever()
}

fn callee_stops(_: &Machine) -> CaseResult {
    forget_seen();
    let callee = serve(0, hang, free_slot(2), 0)?;
    expect_ok!(thread::spawn(1, one_call_thread, 0));
    expect!(wait::until(|| seen(6) == 1));
    // SAFETY: the callee holds nothing.
    expect_ok!(unsafe { call::processor_stop(callee.processor) });
    expect!(wait::until(|| seen(8) != 0));
    expect_equal!(seen(8), 1 << 32 | Status::PeerGone as u64);
    let mut message = words(0);
    expect_equal!(status_of(gate_call(free_slot(2), &mut message)), Status::PeerGone as u64);
    Ok(())
}

fn callee_faults(machine: &Machine) -> CaseResult {
    let child = child_server(machine, 1)?;
    let mut message = words(0);
    expect_equal!(status_of(gate_call(free_slot(0), &mut message)), Status::PeerGone as u64);
    expect!(child::await_stop(&child) != 0);
    expect_equal!(status_of(gate_call(free_slot(0), &mut message)), Status::PeerGone as u64);
    Ok(())
}

fn queued_callers_learn(_: &Machine) -> CaseResult {
    forget_seen();
    let callee = serve(0, hang, free_slot(2), 0)?;
    let mut callers = [callee; 4];
    for number in 0..4 {
        callers[number as usize] = expect_ok!(thread::spawn(1 + number, one_call_thread, u64::from(number)));
    }
    for caller in callers {
        expect!(caller.await_state(ProcessorState::Calling));
    }
    // SAFETY: the callee holds nothing.
    unsafe {
        expect_ok!(call::processor_stop(callee.processor));
        repeat(|| call::processor_destroy(callee.processor));
    }
    expect!(wait::until(|| (0..4).all(|number| seen(8 + number) != 0)));
    for number in 0..4 {
        expect_equal!(seen(8 + number), 1 << 32 | Status::PeerGone as u64);
    }
    Ok(())
}

/// Lets the case kill the caller while its call is in hand.
extern "C" fn answer_when_told(badge: u64, message: &mut Message) {
    see(6, 1);
    if seen(7) == 0 {
        wait::until(|| seen(7) != 0);
    }
    answer(badge, message);
}

fn caller_dies(machine: &Machine) -> CaseResult {
    forget_seen();
    serve(0, answer_when_told, free_slot(2), 0)?;
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(call::cap_grant(free_slot(2), child.environment, CHILD_SLOT_FREE, Rights::CALL));
    expect_ok!(child::start(&child, calling_child, 1));
    expect!(wait::until(|| seen(6) == 1));
    // SAFETY: the child has memory of its own.
    repeat(|| unsafe { call::environment_destroy(child.environment) });
    see(7, 1);
    // The reply goes nowhere; the next call is served.
    let mut message = words(3);
    expect_equal!(status_of(gate_call(free_slot(2), &mut message)), 0);
    expect!(message == answered(&words(3)));
    expect_equal!(seen(1), 2);
    Ok(())
}

fn dropped_gate(_: &Machine) -> CaseResult {
    serve(0, answer, free_slot(2), 0)?;
    expect_ok!(call::cap_derive(free_slot(2), free_slot(3), Rights::CALL, 0, 0));
    let mut message = words(0);
    expect_equal!(status_of(gate_call(free_slot(3), &mut message)), 0);
    // SAFETY: a gate is no memory.
    unsafe {
        expect_refused!(call::cap_drop(free_slot(2)), Status::Busy);
        expect_ok!(call::cap_revoke(free_slot(2)));
        expect_ok!(call::cap_drop(free_slot(2)));
    }
    expect_equal!(status_of(gate_call(free_slot(3), &mut message)), Status::BadSlot as u64);
    Ok(())
}

extern "C" fn note_send(badge: u64, message: &mut Message) {
    see(0, badge);
    for (index, word) in message.iter().enumerate() {
        see(10 + index, *word);
    }
    SEEN[1].fetch_add(1, Ordering::SeqCst);
}

fn send_works(_: &Machine) -> CaseResult {
    forget_seen();
    let callee = serve(0, note_send, free_slot(2), 9)?;
    for round in 1..=10 {
        let message = words(round);
        expect!(callee.await_state(ProcessorState::Accepting));
        expect_equal!(status_of(gate_send(free_slot(2), &message)), 0);
        expect!(wait::until(|| seen(1) == round));
        expect_equal!(seen(0), 9);
        for (index, word) in message.iter().enumerate() {
            expect_equal!(seen(10 + index), *word);
        }
    }
    let busy = serve(1, hang, free_slot(3), 0)?;
    expect_equal!(status_of(gate_send(free_slot(3), &words(0))), 0);
    expect!(wait::until(|| seen(6) == 1));
    expect!(busy.state() != ProcessorState::Accepting as u64);
    expect_equal!(status_of(gate_send(free_slot(3), &words(0))), Status::PeerBusy as u64);
    Ok(())
}

fn reply_without_call(_: &Machine) -> CaseResult {
    forget_seen();
    let callee = serve(0, answer, free_slot(2), 0)?;
    wait::pause(1_000_000);
    expect_equal!(callee.state(), ProcessorState::Accepting as u64);
    // SAFETY: the callee holds nothing.
    expect_ok!(unsafe { call::processor_stop(callee.processor) });
    expect_equal!(callee.state(), ProcessorState::Stopped as u64);
    Ok(())
}

/// Waits for calls without a handler; tells how the waiting ended.
extern "C" fn accepting_thread(_: u64) -> ! {
    // SAFETY: the call's number is that of GateReply; on an interrupted wait it returns here.
    let (status, _) = unsafe { call::issue_words(29, &[0; 6]) };
    see(9, 1 << 32 | status);
    wait::forever()
}

fn bell_interrupts_accepting(_: &Machine) -> CaseResult {
    forget_seen();
    let thread = expect_ok!(thread::make(0));
    expect_ok!(call::bell_create(free_slot(0), thread.processor));
    expect_ok!(thread::start(&thread, accepting_thread, 0));
    expect!(thread.await_state(ProcessorState::Accepting));
    expect_ok!(call::bell_ring(free_slot(0)));
    expect!(wait::until(|| seen(9) != 0));
    expect_equal!(seen(9), 1 << 32 | Status::Interrupted as u64);
    Ok(())
}

fn call_cost(_: &Machine) -> CaseResult {
    serve(0, answer, free_slot(2), 0)?;
    let count = |counter| call::counter_read(counter).unwrap_or(0);
    let (calls, gates) = (count(Counter::KernelCalls), count(Counter::GateCalls));
    for seed in 0..100 {
        expect_equal!(status_of(gate_call(free_slot(2), &mut words(seed))), 0);
    }
    let (calls_after, gates_after) = (count(Counter::KernelCalls), count(Counter::GateCalls));
    expect_equal!(gates_after - gates, 100);
    // One to call, one to reply; and the two that read counters.
    expect_equal!(calls_after - calls, 202);
    Ok(())
}

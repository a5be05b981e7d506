//! Protected control transfer. The cases are in `tests/guest/src/s06_gate.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "message_and_badge_arrive_and_return",
    "create_and_call_refuse_bad_arguments",
    "gates_have_a_limit",
    "call_into_another_environment",
    "call_out_of_another_environment",
    "calls_nest_through_two_servers",
    "calls_in_a_circle_are_refused",
    "callers_queue_up",
    "callee_that_stops_is_gone",
    "callee_that_faults_is_gone",
    "queued_callers_learn_that_the_callee_is_gone",
    "caller_that_dies_is_forgotten",
    "dropped_gate_is_gone",
    "send_needs_a_waiting_callee",
    "reply_without_a_call_waits",
    "bell_interrupts_waiting_for_calls",
    "calls_cost_one_kernel_entry_each_way",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s06_gate", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s06_gate", CASES);
}

#[test]
fn on_four_processors() {
    expect_suite(Machine::new().cpus(4), "s06_gate", CASES);
}

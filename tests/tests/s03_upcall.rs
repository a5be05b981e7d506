//! Upcalls. The cases are in `tests/guest/src/s03_upcall.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "every_exception_arrives",
    "page_faults_tell_what_was_tried",
    "alignment_check_arrives_if_the_processor_checks",
    "frame_has_every_register_and_gives_it_back",
    "resume_does_not_enter_the_kernel",
    "resume_gains_no_privilege",
    "resume_of_a_broken_frame_faults_in_user_mode",
    "upcalls_nest_on_the_save_area",
    "upcall_from_another_stack_starts_at_the_top",
    "program_syscall_is_an_upcall",
    "bell_upcall_waits_while_masked",
    "bell_upcall_comes_at_once_when_not_masked",
    "held_back_upcall_is_seen_at_resume",
    "no_handler_stops_the_environment",
    "handler_outside_the_window_is_none",
    "fault_in_the_fault_handler_fills_the_save_area",
    "program_syscall_without_handler_stops",
    "unmapped_save_area_does_not_harm_the_kernel",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s03_upcall", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s03_upcall", CASES);
}

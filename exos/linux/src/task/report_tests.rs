//! The lines that users see.

use super::{describe, signal_name};
use crate::task::exception::{FaultCause, signal_for, signal_for_fault};
use crate::task::symbol::tests::elf;
use crate::testing::pod::World;
use aegis_abi::upcall::{UpcallFrame, UpcallKind};
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

const CODE: u64 = 0x5555_0000_0000;

fn world() -> World {
    let world = World::new();
    let file = world.create("/program", &elf(2, &[("main", 2, 0x40_1100, 0x40)]));
    world.map_code(CODE, 0x1000, &file, 0x1000);
    world
}

fn exception(vector: u64, error_code: u64, fault_address: u64, rip: u64) -> UpcallFrame {
    UpcallFrame { kind: UpcallKind::Exception as u32, vector, error_code, fault_address, rip, ..UpcallFrame::default() }
}

/// The line for a page fault.
fn fault(world: &World, error_code: u64, address: u64, rip: u64, cause: FaultCause) -> String {
    let (signal, info) = signal_for_fault(address, cause);
    describe(&world.caller(), signal, &info, &exception(14, error_code, address, rip))
}

#[test]
fn a_page_fault_tells_access_address_and_place() {
    let world = world();
    assert_eq!(
        fault(&world, 6, 0, CODE + 0x11f, FaultCause::NotMapped),
        "program: segmentation fault (SIGSEGV): store to 0x0 at 0x55550000011f in main+0x1f (/program+0x40111f)"
    );
    assert_eq!(
        fault(&world, 4, 0x10, CODE + 0x200, FaultCause::NotMapped),
        "program: segmentation fault (SIGSEGV): load from 0x10 at 0x555500000200 in /program+0x401200"
    );
    let line = fault(&world, 7, CODE, CODE + 0x100, FaultCause::NotAllowed);
    assert!(line.contains("store to 0x555500000000, which does not allow it, at "), "{line}");
    let line = fault(&world, 4, 0x9000, CODE + 0x100, FaultCause::BeyondFile);
    assert!(
        line.starts_with("program: bus error (SIGBUS): load from 0x9000, behind the end of the mapped file,"),
        "{line}"
    );
}

#[test]
fn a_jump_to_nowhere_tells_who_called() {
    let world = world();
    world.map_zeros(0x10_0000, 0x1000);
    world.pod.process.space().lock().write_all(0x10_0800, &(CODE + 0x120).to_le_bytes()).unwrap();
    let mut frame = exception(14, 0x14, 0, 0);
    frame.rsp = 0x10_0800;
    let (signal, info) = signal_for_fault(0, FaultCause::NotMapped);
    assert_eq!(
        describe(&world.caller(), signal, &info, &frame),
        "program: segmentation fault (SIGSEGV): jump to 0x0 at 0x0, called in main+0x1f (/program+0x40111f)"
    );
    frame.rsp = 0x3;
    assert_eq!(
        describe(&world.caller(), signal, &info, &frame),
        "program: segmentation fault (SIGSEGV): jump to 0x0 at 0x0"
    );
}

#[test]
fn other_exceptions_tell_what_they_are() {
    let world = world();
    let line = |vector| {
        let frame = exception(vector, 0, 0, CODE + 0x100);
        let (signal, info) = signal_for(&frame);
        describe(&world.caller(), signal, &info, &frame)
    };
    let place = " at 0x555500000100 in main+0x0 (/program+0x401100)";
    assert_eq!(line(6), format!("program: illegal instruction (SIGILL){place}"));
    assert_eq!(line(0), format!("program: arithmetic error (SIGFPE): integer division by zero or overflow{place}"));
    assert_eq!(line(17), format!("program: bus error (SIGBUS): misaligned access{place}"));
    assert!(line(19).contains("(SIGFPE): floating-point exception at "), "{}", line(19));
    assert!(line(13).contains("privileged instruction"), "{}", line(13));
}

#[test]
fn signals_that_are_sent_are_told_shortly_or_not_at_all() {
    let world = world();
    let frame = UpcallFrame::default();
    let line = |signal, info: SignalInfo| describe(&world.caller(), signal, &info, &frame);
    for signal in [Signal::TERM, Signal::INT, Signal::KILL, Signal::HUP, Signal::PIPE] {
        assert_eq!(line(signal, SignalInfo::default()), "");
    }
    let sender = SignalPayload::Sender { pid: 1, uid: 0, value: 0 };
    let sent = SignalInfo { code: -6, errno: 0, payload: sender };
    assert_eq!(line(Signal::ABRT, sent), "program: aborted (SIGABRT)");
    assert_eq!(line(Signal::SEGV, sent), "program: segmentation fault (SIGSEGV), sent by process 1");
    assert_eq!(line(Signal::USR1, sent), "program: ended by signal 10 (SIGUSR1)");
    let memory = SignalInfo { code: 0x80, ..SignalInfo::default() };
    assert_eq!(line(Signal::KILL, memory), "program: killed: out of memory (limit 64 MiB; -m gives more)");
}

#[test]
fn the_name_is_the_commands_and_whole() {
    let world = world();
    let name = |thread: &[u8], executable: &[u8]| {
        *world.pod.thread.name.lock() = thread.to_vec();
        alloc::sync::Arc::make_mut(&mut *world.pod.process.image.lock()).executable = executable.to_vec();
        super::program_name(&world.caller())
    };
    assert_eq!(name(b"a-long-program-", b"/bin/a-long-program-name"), "a-long-program-name");
    assert_eq!(name(b"script.sh", b"/bin/dash"), "script.sh");
    assert_eq!(name(b"a\nb", b"/x"), "a\\nb");
    assert_eq!(signal_name(Signal::new(34).unwrap()), "SIGRT_2");
}

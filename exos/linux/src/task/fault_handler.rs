//! Entering a handler that the program installed through the native interface (`exos/native`).
//!
//! A fault that would be a signal is first offered to the program's own handler: a record of six words on its stack
//! instead of a signal frame of some thousand bytes, and a return that exos does not see. Faults of exos's own copies
//! are not offered: such a system call fails with `EFAULT`, as on Linux for protected memory.
//!
//! Where nothing has to be waited for or resolved, which is nearly always, that is known before the fault has reached
//! its thread's stack ([`ask_nofault`]).

use aegis_abi::upcall::UpcallFrame;
use exos::mem::Handler;
use exos_native::abi;

use crate::abi::user_memory::{UserMemory, write_words};
use crate::task::exception::{FaultCause, PAGE_FAULT_FETCH, PAGE_FAULT_WRITE};
use crate::task::memory::FaultResult;
use crate::task::process::Process;

/// RFLAGS that a function does not expect: trap, direction.
const FLAGS_CLEARED: u64 = 1 << 8 | 1 << 10;

/// Makes the thread go on in the program's handler of a fault that exos has no answer to
/// ([`Space::resolve_or_report`](crate::task::memory::Space::resolve_or_report)). Answers whether
/// there is room on the stack for it.
pub fn ask(handler: &Handler, frame: &mut UpcallFrame, memory: &dyn UserMemory, result: FaultResult) -> bool {
    enter(frame, handler, result, |place, record| write_words(memory, place, record).is_ok())
}

/// The same for a page fault of `process` that nobody has looked at, without a wait: false, and nothing is changed, if
/// the areas or the handlers have another answer, or if it cannot be had at once.
#[inline]
pub fn ask_nofault(process: &Process, frame: &mut UpcallFrame, memory: &dyn UserMemory) -> bool {
    let report = process.look_at_space(|space| space.report_nofault(frame));
    report.is_some_and(|(handler, result)| {
        enter(frame, &handler, result, |place, record| memory.copy_words_out_nofault(place, record) == record.len())
    })
}

#[inline]
fn cause(error_code: u64, result: FaultResult) -> u64 {
    let access = if error_code & PAGE_FAULT_FETCH != 0 {
        abi::CAUSE_FETCH
    } else if error_code & PAGE_FAULT_WRITE != 0 {
        abi::CAUSE_STORE
    } else {
        0
    };
    access
        | match result {
            FaultResult::Resolved(_) => abi::CAUSE_WATCHED,
            FaultResult::Failed(FaultCause::NotMapped) => abi::CAUSE_NOT_MAPPED,
            FaultResult::Failed(FaultCause::NotAllowed) => abi::CAUSE_NOT_ALLOWED,
            FaultResult::Failed(FaultCause::BeyondFile) => abi::CAUSE_BEYOND_FILE,
            FaultResult::OutOfMemory => abi::CAUSE_SHORTAGE,
        }
}

/// Whether the record could be written to the stack; else nothing is changed.
#[inline(always)]
fn enter(
    frame: &mut UpcallFrame,
    handler: &Handler,
    result: FaultResult,
    write: impl FnOnce(u64, &[u64; abi::RECORD_WORD_COUNT]) -> bool,
) -> bool {
    let cause = cause(frame.error_code, result);
    let record: [u64; abi::RECORD_WORD_COUNT] =
        [handler.function, handler.argument, frame.fault_address, cause, frame.rflags, frame.rip];
    let place = frame.rsp.wrapping_sub(abi::RED_ZONE_BYTES + size_of_val(&record) as u64);
    if !write(place, &record) {
        return false;
    }
    frame.rsp = place;
    frame.rip = handler.entry;
    frame.rflags &= !FLAGS_CLEARED;
    true
}

#[cfg(test)]
mod tests {
    use super::{FaultResult, Handler, abi, ask, ask_nofault};
    use crate::task::exception::{FaultCause, PAGE_FAULT_WRITE};
    use crate::task::memory::FaultReport;
    use crate::testing::calls::{MEMORY_BASE, NOWHERE, World};
    use aegis_abi::upcall::UpcallFrame;
    use exos::mem::{MapRequest, Placement, Protection};

    const PAGE: u64 = 0x70_0000;
    const NOT_ALLOWED: FaultResult = FaultResult::Failed(FaultCause::NotAllowed);
    const NOT_MAPPED: FaultResult = FaultResult::Failed(FaultCause::NotMapped);

    fn fault(rsp: u64) -> UpcallFrame {
        UpcallFrame {
            rip: 0x40_1234,
            rsp,
            rflags: 0x602,
            fault_address: PAGE + 8,
            error_code: PAGE_FAULT_WRITE,
            ..UpcallFrame::default()
        }
    }

    #[test]
    fn the_record_lies_below_the_red_zone() {
        let world = World::new();
        let space = world.pod.process.space();
        let handler = Handler { entry: 0x40_5000, function: 0x40_6000, argument: 7 };
        space.lock().set_fault_handler(PAGE, 4096, Some(handler)).expect("whole pages");
        let top = MEMORY_BASE + 4096;
        let mut frame = fault(top);
        let report = FaultReport { result: NOT_MAPPED, handler: Some(handler), own_rip: None };
        assert_eq!(space.resolve_or_report(&frame), report);
        assert!(ask(&handler, &mut frame, &*world.memory, NOT_ALLOWED));
        assert_eq!((frame.rip, frame.rsp, frame.rflags), (0x40_5000, top - 128 - 48, 0x202));
        let words = [0x40_6000, 7, PAGE + 8, abi::CAUSE_STORE | abi::CAUSE_NOT_ALLOWED, 0x602, 0x40_1234_u64];
        assert_eq!(world.get(frame.rsp, 48), words.map(u64::to_le_bytes).concat());
    }

    #[test]
    fn at_once_is_the_same_where_nothing_has_to_be_waited_for_or_resolved() {
        let world = World::new();
        let (process, memory) = (&world.pod.process, &*world.memory);
        let space = process.space();
        let handler = Handler { entry: 0x40_5000, function: 0x40_6000, argument: 7 };
        let top = MEMORY_BASE + 4096;
        let mut frame = fault(top);
        assert!(!ask_nofault(process, &mut frame, memory), "nobody handles it");
        space.lock().set_fault_handler(PAGE, 2 * 4096, Some(handler)).expect("whole pages");
        {
            let _held = space.lock();
            assert!(!ask_nofault(process, &mut frame, memory), "somebody changes the space");
        }
        let request = MapRequest::anonymous(Placement::Fixed(PAGE), 4096, Protection::READ);
        space.lock().map(request.clone()).expect("there is room");
        frame.error_code = 0;
        assert!(!ask_nofault(process, &mut frame, memory), "a load of untouched memory is resolved");
        frame.error_code = PAGE_FAULT_WRITE;
        frame.rsp = NOWHERE;
        assert!(!ask_nofault(process, &mut frame, memory), "no stack");
        let asked = fault(top);
        assert_eq!((frame.rip, frame.rflags, frame.rsp), (asked.rip, asked.rflags, NOWHERE));
        for (address, cause) in [(PAGE + 8, abi::CAUSE_NOT_ALLOWED), (PAGE + 4096, abi::CAUSE_NOT_MAPPED)] {
            let mut frame = UpcallFrame { fault_address: address, ..asked };
            assert!(ask_nofault(process, &mut frame, memory));
            let expected =
                UpcallFrame { rip: 0x40_5000, rsp: top - 128 - 48, rflags: 0x202, fault_address: address, ..asked };
            assert_eq!(frame, expected);
            let words = [0x40_6000, 7, address, abi::CAUSE_STORE | cause, 0x602, 0x40_1234_u64];
            assert_eq!(world.get(frame.rsp, 48), words.map(u64::to_le_bytes).concat());
        }
        assert!(!ask_nofault(process, &mut UpcallFrame { fault_address: PAGE + 2 * 4096, ..asked }, memory));
    }

    #[test]
    fn without_a_handler_or_a_stack_nothing_is_changed() {
        let world = World::new();
        let space = world.pod.process.space();
        let mut frame = fault(MEMORY_BASE + 4096);
        assert_eq!(space.resolve_or_report(&frame), FaultReport { result: NOT_MAPPED, handler: None, own_rip: None });
        assert_eq!(space.lock().take_shortage_handler(), None);
        let handler = Handler { entry: 1, function: 2, argument: 3 };
        space.lock().set_fault_handler(PAGE, 4096, Some(handler)).expect("whole pages");
        frame = fault(NOWHERE);
        let report = FaultReport { result: NOT_MAPPED, handler: Some(handler), own_rip: None };
        assert_eq!(space.resolve_or_report(&frame), report);
        assert!(!ask(&handler, &mut frame, &*world.memory, NOT_ALLOWED));
        assert_eq!((frame.rip, frame.rsp, frame.rflags), (0x40_1234, NOWHERE, 0x602));
    }
}

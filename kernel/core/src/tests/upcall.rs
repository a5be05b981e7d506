//! Delivery of upcalls: where they are pushed, how they nest, and every defined end.

use aegis_abi::call::{
    BellCreate, BellRing, BellRingAt, BellTake, Call, CounterRead, EnvironmentField, EnvironmentRead, EnvironmentWatch,
    StopReason,
};
use aegis_abi::counter::Counter;
use aegis_abi::layout::{FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, FIRST_SAVE_AREA_FRAME_COUNT, LIBOS_END};
use aegis_abi::types::{CapSlot, SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF, Status};
use aegis_abi::upcall::{UpcallFrame, UpcallKind};

use super::world::{CODE, S, World, cpu};
use crate::id::Id;

const TOP: u64 = FIRST_SAVE_AREA_BASE + FIRST_SAVE_AREA_FRAME_COUNT * 4096;
const FRAME_BYTES: u64 = 192;
const ENTRY: u64 = CODE + 0x200;
const EXCEPTION: usize = UpcallKind::Exception as usize;
const BELL: usize = UpcallKind::Bell as usize;

/// The words that the kernel pushed at an address of the first save area.
fn pushed(world: &World, address: u64) -> [u64; 24] {
    let first = world.state.processors[world.first_processor].pages.first_frame;
    let mut words = [0; 24];
    for (index, word) in words.iter_mut().enumerate() {
        let number = (address - FIRST_SAVE_AREA_BASE) / 8 + index as u64;
        let frame = first + 1 + number / 512;
        *word = world.state.machine.memory[frame as usize][number as usize % 512];
    }
    words
}

fn in_program(world: &mut World) -> UpcallFrame {
    let frame = UpcallFrame {
        rax: 1,
        rbx: 2,
        rcx: 3,
        rdx: 4,
        rsi: 5,
        rdi: 6,
        rbp: 7,
        r8: 8,
        r9: 9,
        r10: 10,
        r11: 11,
        r12: 12,
        r13: 13,
        r14: 14,
        r15: 15,
        rip: 0x40_1000,
        rsp: 0x7fff_0000,
        rflags: 0x246,
        cs: 0x33,
        ss: 0x2b,
        ..UpcallFrame::default()
    };
    world.frame[0] = frame;
    frame
}

#[test]
fn an_exception_is_pushed_at_the_top_and_nests_below() {
    let mut world = World::new();
    world.set_entry(world.first_processor, EXCEPTION, ENTRY);
    let mut expected = in_program(&mut world);
    world.exception(0, 14, 0x1234);
    expected.kind = UpcallKind::Exception as u32;
    expected.vector = 14;
    expected.error_code = 6;
    expected.fault_address = 0x1234;
    let address = TOP - FRAME_BYTES;
    assert_eq!(pushed(&world, address), expected.to_words());
    let entered = world.frame[0];
    assert_eq!((entered.rip, entered.rsp, entered.rdi), (ENTRY, address, address));
    assert_eq!((entered.rax, entered.rflags), (0, 0x202));
    assert_eq!(world.masks(world.first_processor), (1, 0));
    // The handler faults: below its red zone, aligned, and the mask as it was.
    world.frame[0].rsp = address - 5;
    world.exception(0, 13, 0);
    let nested = (address - 5 - 128 - FRAME_BYTES) & !15;
    assert_eq!(world.frame[0].rsp, nested);
    assert_eq!(pushed(&world, nested)[15] >> 32, 1, "masked before");
}

#[test]
fn an_exception_alone_brings_the_gs_base_of_the_control_page() {
    let mut world = World::new();
    let control = world.state.processors[world.first_processor].pages.control();
    assert_eq!(world.state.machine.made, [(world.first_processor.index(), control)]);
    for kind in [EXCEPTION, BELL] {
        world.set_entry(world.first_processor, kind, ENTRY);
    }
    // The library OS resumed a program with that one's GS base, and the resumption faults.
    in_program(&mut world);
    world.exception(0, 13, 0);
    assert_eq!(world.state.machine.gs_bases, [FIRST_CONTROL_BASE]);
    // Wherever else an upcall comes, the machine has the base that the context of its processor says.
    world.set_masks(world.first_processor, 0, 0);
    world.state.processors[world.first_processor].due = 1 << BELL;
    world.kick(0);
    assert_eq!(world.frame[0].rip, ENTRY);
    assert_eq!(world.state.machine.gs_bases, [FIRST_CONTROL_BASE]);
}

#[test]
fn a_pushed_frame_may_lie_in_two_pages() {
    for in_upper_page in (0..=FRAME_BYTES).step_by(16) {
        let mut world = World::new();
        world.set_entry(world.first_processor, EXCEPTION, ENTRY);
        let mut expected = in_program(&mut world);
        let address = TOP - 4096 + in_upper_page - FRAME_BYTES;
        expected.rsp = address + FRAME_BYTES + 128;
        world.frame[0].rsp = expected.rsp;
        world.exception(0, 6, 0);
        assert_eq!(world.frame[0].rsp, address);
        expected.kind = UpcallKind::Exception as u32;
        (expected.vector, expected.error_code) = (6, 6);
        assert_eq!(pushed(&world, address), expected.to_words());
    }
}

#[test]
fn what_is_due_when_an_exception_comes_is_held_back() {
    let mut world = World::new();
    world.set_entry(world.first_processor, EXCEPTION, ENTRY);
    world.set_entry(world.first_processor, BELL, ENTRY + 0x100);
    in_program(&mut world);
    // As another physical processor leaves it that was about to interrupt this one.
    world.state.processors[world.first_processor].due = 1 << BELL;
    world.exception(0, 14, 0x1234);
    assert_eq!(world.frame[0].rip, ENTRY);
    assert_eq!(world.masks(world.first_processor), (1, 1 << BELL));
    assert_eq!(world.state.processors[world.first_processor].due, 0);
}

#[test]
fn a_full_save_area_stops_the_environment() {
    let mut world = World::new();
    world.set_entry(world.first_processor, EXCEPTION, ENTRY);
    in_program(&mut world);
    for _ in 0..10_000 {
        if world.exception(0, 14, 0).next.is_none() {
            break;
        }
    }
    let report = world.state.machine.first_stopped.expect("it stopped");
    assert_eq!(report.reason, StopReason::SaveAreaFull);
    assert_eq!((report.vector, report.rip), (14, ENTRY));
}

#[test]
fn the_edges_of_the_save_area() {
    for (rsp, expected) in [
        (FIRST_SAVE_AREA_BASE - 4097, Some(TOP - FRAME_BYTES)),
        (FIRST_SAVE_AREA_BASE - 4096, None),
        (FIRST_SAVE_AREA_BASE, None),
        (FIRST_SAVE_AREA_BASE + 128 + FRAME_BYTES - 1, None),
        (FIRST_SAVE_AREA_BASE + 128 + FRAME_BYTES, Some(FIRST_SAVE_AREA_BASE)),
        (TOP, Some((TOP - 128 - FRAME_BYTES) & !15)),
        (TOP + 1, Some(TOP - FRAME_BYTES)),
        (u64::MAX, Some(TOP - FRAME_BYTES)),
        (0, Some(TOP - FRAME_BYTES)),
    ] {
        let mut world = World::new();
        world.set_entry(world.first_processor, EXCEPTION, ENTRY);
        world.frame[0].rsp = rsp;
        let next = world.exception(0, 14, 0).next;
        assert_eq!(next.map(|_| world.frame[0].rsp), expected, "{rsp:#x}");
    }
}

#[test]
fn without_a_handler_the_environment_stops() {
    for entry in [0, 0x40_0000, LIBOS_END, u64::MAX] {
        let mut world = World::new();
        world.set_entry(world.first_processor, EXCEPTION, entry);
        in_program(&mut world);
        assert_eq!(world.exception(0, 14, 0x99).next, None);
        let report = world.state.machine.first_stopped.expect("it stopped");
        assert_eq!(report.reason, StopReason::NoHandler);
        assert_eq!((report.address, report.rip), (0x99, 0x40_1000));
    }
}

#[test]
fn a_programs_syscall_becomes_an_upcall() {
    let mut world = World::new();
    world.set_entry(world.first_processor, UpcallKind::Syscall as usize, ENTRY);
    world.set_masks(world.first_processor, 0, 4);
    let before = in_program(&mut world);
    world.state.on_syscall(cpu(0), &mut world.frame[0]);
    let after = world.frame[0];
    assert_eq!(after.rip, ENTRY);
    assert_eq!((after.rax, after.rsp, after.rdi), (before.rax, before.rsp, before.rdi));
    let control = world.state.processors[world.first_processor].pages.first_frame;
    let page = world.state.machine.memory[control as usize];
    assert_eq!(page[..3], [before.rip, before.rflags, before.rsp]);
    assert_eq!(world.masks(world.first_processor), (1, 4));
    world.set_entry(world.first_processor, UpcallKind::Syscall as usize, 0);
    in_program(&mut world);
    let decision = world.state.on_syscall(cpu(0), &mut world.frame[0]);
    assert_eq!(decision.expect("it does not go on").next, None);
    assert!(world.state.machine.first_stopped.is_some());
}

fn bell(world: &mut World, processor: CapSlot) {
    world.ok(Call::BellCreate(BellCreate { slot: CapSlot(S), processor }));
}

fn ring() -> Call {
    Call::BellRing(BellRing { slot: CapSlot(S) })
}

#[test]
fn a_bell_interrupts_its_processor_when_it_is_not_masked() {
    let mut world = World::new();
    bell(&mut world, SLOT_FIRST_PROCESSOR);
    world.set_entry(world.first_processor, BELL, ENTRY);
    world.frame[0].rbx = 77;
    world.enter(0, ring());
    assert_eq!(world.frame[0].rip, ENTRY, "on the way out of the call");
    let words = pushed(&world, world.frame[0].rsp);
    assert_eq!((words[14], words[11]), (Status::Ok as u64, 77), "the call's result is below");
    assert_eq!(world.masks(world.first_processor), (1, 0));
    // Masked now: only pending.
    world.ok(ring());
    assert_eq!(world.masks(world.first_processor), (1, 1 << BELL));
    let take = Call::BellTake(BellTake { slot: CapSlot(S) });
    assert_eq!(world.ok(take), 2);
    assert_eq!(world.ok(take), 0);
}

#[test]
fn a_bell_without_entry_or_processor_only_counts() {
    let mut world = World::new();
    bell(&mut world, SLOT_FIRST_PROCESSOR);
    world.ok(ring());
    assert_eq!(world.masks(world.first_processor), (0, 1 << BELL));
    world.ok(Call::BellCreate(BellCreate { slot: CapSlot(S + 1), processor: SLOT_NONE }));
    world.ok(Call::BellRing(BellRing { slot: CapSlot(S + 1) }));
    for slot in [0, S + 5] {
        let slot = CapSlot(slot);
        assert_eq!(world.refused(Call::BellRing(BellRing { slot })), Status::BadSlot);
        assert_eq!(world.refused(Call::BellTake(BellTake { slot })), Status::BadSlot);
    }
}

#[test]
fn bells_have_a_share() {
    let mut world = World::new();
    let mut create = |slot: u32| world.call(Call::BellCreate(BellCreate { slot: CapSlot(slot), processor: SLOT_NONE }));
    for slot in 0..1024 {
        assert_eq!(create(S + slot).0, Status::Ok);
    }
    assert_eq!(create(S + 1024).0, Status::TableFull);
}

#[test]
fn a_bell_rings_at_its_time_even_if_nobody_enters_the_kernel_before() {
    let mut world = World::new();
    bell(&mut world, SLOT_FIRST_PROCESSOR);
    world.set_entry(world.first_processor, BELL, ENTRY);
    let at = |deadline_ns: u64| Call::BellRingAt(BellRingAt { slot: CapSlot(S), deadline_ns });
    let decision = world.enter(0, at(50_000));
    assert_eq!(decision.deadline_ns, Some(50_000));
    world.ok(at(u64::MAX));
    world.ok(at(60_000));
    world.state.machine.now_ns = 60_000;
    world.timer(0);
    assert_eq!(world.frame[0].rip, ENTRY);
    world.set_masks(world.first_processor, 0, 0);
    world.enter(0, at(1));
    assert_eq!(world.frame[0].rip, ENTRY, "the time has come already");
}

#[test]
fn a_stopped_child_rings_its_watcher_and_says_why() {
    let mut world = World::new();
    world.environment(S, 50);
    let processor = world.processor(S + 10, S);
    world.ok(Call::BellCreate(BellCreate { slot: CapSlot(S + 20), processor: SLOT_NONE }));
    let watch = Call::EnvironmentWatch(EnvironmentWatch { slot: CapSlot(S), bell: CapSlot(S + 20) });
    world.ok(watch);
    world.start(S + 10);
    assert_eq!(world.kick(1).next, Some(processor));
    world.frame[1].rip = 0x1234_5000;
    assert_eq!(world.exception(1, 6, 0xabc).next, None);
    let mut read = |field: EnvironmentField| {
        world.ok(Call::EnvironmentRead(EnvironmentRead { slot: CapSlot(S), field: field as u32 }))
    };
    assert_eq!(read(EnvironmentField::Stopped), StopReason::NoHandler as u64);
    assert_eq!(read(EnvironmentField::StopVector), 6);
    assert_eq!(read(EnvironmentField::StopAddress), 0xabc);
    assert_eq!(read(EnvironmentField::StopRip), 0x1234_5000);
    let take = Call::BellTake(BellTake { slot: CapSlot(S + 20) });
    assert_eq!(world.ok(take), 1);
    // A watcher that comes late is told too; the machine goes on.
    world.ok(watch);
    assert_eq!(world.ok(take), 1);
    assert_eq!(world.state.machine.first_stopped, None);
}

#[test]
fn upcalls_are_counted() {
    let mut world = World::new();
    world.set_entry(world.first_processor, EXCEPTION, ENTRY);
    world.exception(0, 14, 0);
    world.state.count_entries(cpu(0), [3, 2, 0]);
    let mut counter =
        |counter: Counter| world.ok(Call::CounterRead(CounterRead { environment: SLOT_SELF, index: counter as u32 }));
    assert_eq!(counter(Counter::UpcallsException), 3);
    assert_eq!(counter(Counter::UpcallsSyscall), 3);
    assert_eq!(counter(Counter::KernelCalls), 3);
    let (status, value) = world.call(Call::CounterRead(CounterRead { environment: SLOT_SELF, index: 10 }));
    assert_eq!((status, value), (Status::BadArgument, 1));
    assert_eq!(FIRST_CONTROL_BASE % 4096, 0);
}

//! What the search begins with (`fuzz`): sequences that use each mechanism as it is meant to be used, so that what it
//! changes gets as far as it goes. Nothing here is expected to break anything.

use std::vec;
use std::vec::Vec;

use aegis_abi::call::{
    BellAwait, BellCreate, BellRing, BellRingAt, BindOne, CapDerive, CapDrop, CapGrant, CapRevoke, DeviceDmaBind,
    DeviceInterruptBind, DeviceMap, EnvironmentDestroy, EnvironmentReclaim, FrameAllocate, FrameDonate, FrameFree,
    FrameSplit, GateCall, GateCreate, GateReply, ProcessorStop, Sleep, SpaceEnter,
};

use super::fuzz::RECORD_BYTES;

type Record = [u8; RECORD_BYTES];

/// A call by a processor with what its argument registers are made from (`PATTERNS`).
fn call(cpu: u8, number: u64, arguments: &[u8]) -> Record {
    let mut record = [cpu, 200, number as u8, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    record[3..3 + arguments.len()].copy_from_slice(arguments);
    record
}

/// Binds one entry: operation and flags, address, slot of the frames, which of them, pages.
fn bind(cpu: u8, space: u8, operation: u8, flags: u8, [page, slot, first, count]: [u8; 4]) -> Record {
    // One byte says both.
    let both = (flags << 3..(flags << 3) + 8).find(|byte| byte % 5 == operation).expect("of five one in a row is it");
    call(cpu, BindOne::NUMBER, &[space, both, page, slot, first, count])
}

/// A program touches a page, so that its processor remembers it.
fn touch(cpu: u8, page: u8) -> Record {
    [cpu, 60, 0, page, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn timer(cpu: u8, later: u8) -> Record {
    [cpu, 0, 0, 0, 0, 0, 0, 0, 0, later, 0, 0]
}

fn interrupt(cpu: u8, number: u8) -> Record {
    [cpu, 20, 0, number, 0, 0, 0, 0, 0, 1, 0, 0]
}

/// Numbers of the values that `COUNTS`, `WORDS` and `page` of the search have.
const ONE: u8 = 0;
const TWO: u8 = 2;
const EIGHT: u8 = 5;
const BLOCK: u8 = 10;
const ALL: u8 = 0;
const ANYWHERE: u8 = 0;
const MAP: u8 = 0;
const UNMAP: u8 = 1;
const PROTECT: u8 = 2;
const CLEAN: u8 = 3;
const WRITE: u8 = 1;
const LARGE: u8 = 4;
/// An address in the program's half, the next page, one that a large page can have, one in the window.
const HERE: u8 = 0x00;
const NEXT: u8 = 0x01;
const WIDE: u8 = 0x04;
const WINDOW: u8 = 0x30;
/// Slots of each child: itself, its processor, a block of frames, a device, another environment, spaces, and free ones.
const SELF: u8 = 1;
const PROCESSOR: u8 = 2;
const FRAMES: u8 = 3;
const DEVICE: u8 = 5;
const OTHER: u8 = 6;
const SPACE: u8 = 20;
const FREE: u8 = 24;
/// Slots of the first environment: a child and its block.
const CHILD: u8 = 200;
const CHILD_FRAMES: u8 = 204;

/// Sequences on one processor for a child: its memory.
fn of_memory(cpu: u8) -> Vec<Vec<Record>> {
    vec![
        // Frames of its own: mapped, written, protected, cleaned, unmapped, given back.
        vec![
            call(cpu, FrameAllocate::NUMBER, &[FREE, EIGHT, ANYWHERE, 0]),
            bind(cpu, SELF, MAP, WRITE, [HERE, FREE, 0, EIGHT]),
            touch(cpu, HERE),
            touch(cpu, NEXT),
            bind(cpu, SELF, PROTECT, 0, [HERE, FREE, 0, TWO]),
            bind(cpu, SELF, CLEAN, 0, [NEXT, FREE, 0, TWO]),
            bind(cpu, SELF, MAP, WRITE, [HERE, FRAMES, 0x20, ONE]),
            bind(cpu, SELF, UNMAP, 0, [HERE, FREE, 0, EIGHT]),
            call(cpu, FrameFree::NUMBER, &[FREE]),
        ],
        // A large page, a small one that takes its place, and the other way.
        vec![
            bind(cpu, SELF, MAP, WRITE | LARGE, [WIDE, FRAMES, 0, BLOCK]),
            touch(cpu, WIDE),
            bind(cpu, SELF, MAP, WRITE, [WIDE, FRAMES, 0x20, ONE]),
            bind(cpu, SELF, UNMAP, LARGE, [WIDE, FRAMES, 0, BLOCK]),
            bind(cpu, SELF, MAP, WRITE, [WIDE, FRAMES, 0, TWO]),
            touch(cpu, WIDE),
            bind(cpu, SELF, UNMAP, 0, [WIDE, FRAMES, 0, TWO]),
            bind(cpu, SELF, MAP, LARGE, [WIDE, FRAMES, 0, BLOCK]),
            touch(cpu, WIDE),
        ],
        // Parts of a capability: derived, granted, mapped by both, dropped, revoked.
        vec![
            call(cpu, CapDerive::NUMBER, &[FRAMES, FREE, ALL, 4, ONE]),
            call(cpu, CapDerive::NUMBER, &[FRAMES, FREE + 1, ALL, 3, 2]),
            call(cpu, CapGrant::NUMBER, &[FREE + 1, OTHER, FREE + 2, ALL]),
            bind(cpu, SELF, MAP, WRITE, [HERE, FREE, 0, ONE]),
            bind(cpu, SELF, MAP, WRITE, [NEXT, FREE + 1, 0, ONE]),
            touch(cpu, HERE),
            touch(cpu, NEXT),
            call(cpu, FrameSplit::NUMBER, &[FREE + 1, FREE + 3, ONE]),
            call(cpu, CapDrop::NUMBER, &[FREE]),
            call(cpu, CapRevoke::NUMBER, &[FRAMES]),
        ],
        // The other address spaces of an environment.
        vec![
            bind(cpu, SPACE, MAP, WRITE, [HERE, FRAMES, 0, TWO]),
            bind(cpu, SPACE, MAP, WRITE | LARGE, [WIDE, FRAMES, 0, BLOCK]),
            call(cpu, SpaceEnter::NUMBER, &[SPACE]),
            touch(cpu, HERE),
            touch(cpu, WIDE),
            bind(cpu, SELF, MAP, WRITE, [WINDOW, FRAMES, 0x30, ONE]),
            touch(cpu, WINDOW),
            // More than fits into one entry: the window's slots are in every root.
            call(cpu, CapRevoke::NUMBER, &[FRAMES]),
            call(cpu, CapRevoke::NUMBER, &[FRAMES]),
            call(cpu, SpaceEnter::NUMBER, &[SELF]),
            call(cpu, CapDrop::NUMBER, &[SPACE]),
        ],
    ]
}

/// The same: whatever else it has, and what the first environment takes from it on processor 0.
fn of_others(cpu: u8) -> Vec<Vec<Record>> {
    let child = CHILD + 10 * cpu;
    let frames = CHILD_FRAMES + 10 * cpu;
    vec![
        // Bells, sleeps, the clock.
        vec![
            call(cpu, BellCreate::NUMBER, &[FREE, PROCESSOR]),
            call(cpu, BellCreate::NUMBER, &[FREE + 1, 0]),
            call(cpu, BellRing::NUMBER, &[FREE]),
            call(cpu, BellRingAt::NUMBER, &[FREE + 1, 5]),
            call(cpu, BellAwait::NUMBER, &[FREE + 1]),
            timer(cpu, 6),
            [cpu, 200, Sleep::NUMBER as u8, 0, 0, 0, FRAMES, 0x09, 3, 1, 0, 1],
            timer(cpu, 5),
            call(cpu, CapDrop::NUMBER, &[FREE]),
        ],
        // A call through a gate, and its reply.
        vec![
            call(cpu, GateCreate::NUMBER, &[FREE, PROCESSOR, 0x70, 0]),
            call(cpu, CapGrant::NUMBER, &[FREE, OTHER, FREE, ALL]),
            call(cpu, GateReply::NUMBER, &[]),
            call((cpu + 1) % 3, GateCall::NUMBER, &[FREE]),
            call(cpu, GateReply::NUMBER, &[]),
            call(cpu, CapDrop::NUMBER, &[FREE]),
        ],
        // A device: its registers, its memory, its interrupt; then it is lost.
        vec![
            call(cpu, DeviceMap::NUMBER, &[DEVICE, 0, HERE]),
            call(cpu, FrameAllocate::NUMBER, &[FREE, EIGHT, ANYWHERE, 0]),
            call(cpu, DeviceDmaBind::NUMBER, &[DEVICE, FREE, 0, ONE]),
            call(cpu, BellCreate::NUMBER, &[FREE + 1, PROCESSOR]),
            call(cpu, DeviceInterruptBind::NUMBER, &[DEVICE, 0, FREE + 1]),
            interrupt(cpu, 0),
            touch(cpu, HERE),
            call(cpu, FrameFree::NUMBER, &[FREE]),
            call(cpu, CapDrop::NUMBER, &[DEVICE]),
            call(cpu, FrameFree::NUMBER, &[FREE]),
        ],
        // What its creator takes from it while it is used: a part of its memory, all of it, its life.
        vec![
            bind(cpu, SELF, MAP, WRITE, [HERE, FRAMES, 0, EIGHT]),
            touch(cpu, HERE),
            call(0, EnvironmentReclaim::NUMBER, &[child, BLOCK, 1]),
            timer(0, 6),
            timer(0, 4),
            timer(0, 4),
            call(0, CapRevoke::NUMBER, &[frames]),
            call(0, ProcessorStop::NUMBER, &[child + 2]),
            call(0, EnvironmentDestroy::NUMBER, &[child]),
            call(0, EnvironmentDestroy::NUMBER, &[child]),
        ],
        // Frames that become tables.
        vec![
            call(cpu, FrameAllocate::NUMBER, &[FREE, EIGHT, ANYWHERE, 0]),
            call(cpu, FrameDonate::NUMBER, &[FREE, SELF]),
            bind(cpu, SELF, MAP, WRITE, [WINDOW, FRAMES, 0, TWO]),
            bind(cpu, SELF, MAP, WRITE, [0x20, FRAMES, 0, ONE]),
            touch(cpu, WINDOW),
            touch(cpu, 0x20),
            bind(cpu, SELF, UNMAP, 0, [WINDOW, FRAMES, 0, TWO]),
        ],
    ]
}

/// The inputs: each sequence on each processor, and all of one processor in a row.
pub(super) fn inputs() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    // Processor 0 has the first environment, whose capabilities have other slots.
    for cpu in 1..3 {
        let sequences = [of_memory(cpu), of_others(cpu)].concat();
        inputs.push(sequences.concat().concat());
        inputs.extend(sequences.iter().map(|sequence| sequence.concat()));
    }
    inputs
}

/// What a search found: an environment is destroyed while its child derives nearly all frames that there could be, so
/// that the model cannot know who has something of how many.
#[test]
fn a_derivation_of_which_nobody_knows_may_reach_beyond_all_frames() {
    let destroyed = [0, 200, 12, 210, 0, 0, 0, 0, 0, 1, 0, 0];
    let derived = [1, 200, 1, 3, 25, 0, 3, 95, 0, 1, 0, 0];
    let allocated = [1, 200, 6, 24, 5, 0, 0, 0, 0, 1, 0, 0];
    super::fuzz::on_a_large_stack(move || {
        assert_eq!(super::fuzz::calls_done(&[destroyed, derived, allocated].concat()).0, 3);
    });
}

/// Most of what the sequences ask for is done: they are no noise.
#[test]
fn the_first_inputs_do_what_they_are_for() {
    super::fuzz::on_a_large_stack(|| {
        let (mut calls, mut done) = (0, 0);
        for (number, input) in inputs().iter().enumerate() {
            let (of_one, done_of_one) = super::fuzz::calls_done(input);
            assert!(3 * done_of_one >= of_one, "input {number}: {done_of_one} of {of_one}");
            (calls, done) = (calls + of_one, done + done_of_one);
        }
        assert!(4 * done >= 3 * calls, "{done} of {calls}");
    });
}

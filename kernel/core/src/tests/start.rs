//! The first environment, and every bundle that is refused.

use aegis_abi::boot::{BOOT_INFO_MAGIC, FLAT_EXECUTE};
use aegis_abi::call::{Call, CapRead, EnvironmentField, EnvironmentRead, Null};
use aegis_abi::layout::{
    BOOT_INFO_BASE, FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, FIRST_SAVE_AREA_FRAME_COUNT, LIBOS_BASE,
    LIBOS_IMAGE_BASE, SYSTEM_PAGE_BASE,
};
use aegis_abi::types::{
    CapSlot, CapType, FrameNumber, SLOT_BUNDLE, SLOT_DEVICE_FIRST, SLOT_FIRST_PROCESSOR, SLOT_MACHINE, SLOT_SELF,
    Status,
};

use super::world::{BUNDLE, BUNDLE_FRAME_COUNT, CODE, FIRST, Memory, SYSTEM_PAGE, World, machine};
use crate::boot::{BootError, FirstEnvironment};

#[test]
fn the_first_environment_starts_at_its_entry() {
    let mut world = World::new();
    let frame = world.frame[0];
    assert_eq!(frame.rip, CODE + 0x10);
    assert_eq!(frame.rdi, BOOT_INFO_BASE);
    let top = FIRST_SAVE_AREA_BASE + FIRST_SAVE_AREA_FRAME_COUNT * 4096;
    assert_eq!(frame.rsp, top);
    let context = world.state.context(world.first_processor);
    assert_eq!(context.gs_base, FIRST_CONTROL_BASE);
    assert_eq!(world.call(Call::Null(Null {})), (Status::Ok, 0));
}

#[test]
fn it_holds_what_it_was_promised() {
    let mut world = World::new();
    let types = [
        (SLOT_SELF, CapType::Environment),
        (SLOT_FIRST_PROCESSOR, CapType::Processor),
        (SLOT_MACHINE, CapType::Machine),
        (SLOT_BUNDLE, CapType::Frames),
        (SLOT_DEVICE_FIRST, CapType::Device),
    ];
    for (slot, kind) in types {
        let value = world.ok(Call::CapRead(CapRead { slot, field: 0 }));
        assert_eq!(value as u32, kind as u32);
    }
    let slot = SLOT_BUNDLE;
    assert_eq!(world.ok(Call::CapRead(CapRead { slot, field: 1 })), BUNDLE);
    assert_eq!(world.ok(Call::CapRead(CapRead { slot, field: 2 })), BUNDLE_FRAME_COUNT);
}

#[test]
fn boot_information_and_system_page_are_mapped() {
    let world = World::new();
    let root = world.state.environments[world.first].root;
    let frame = |address: u64| world.state.translate(root, (address & 0xffff_ffff_ffff) >> 12).expect("mapped");
    let memory = &world.state.machine.memory;
    let info = memory[frame(BOOT_INFO_BASE).0 as usize];
    assert_eq!(info[0], BOOT_INFO_MAGIC);
    assert_eq!(info[1] >> 32, 3, "devices");
    assert_eq!(info[6], FIRST_CONTROL_BASE);
    assert_eq!(frame(SYSTEM_PAGE_BASE), FrameNumber(SYSTEM_PAGE));
    assert_eq!(frame(LIBOS_IMAGE_BASE), FrameNumber(BUNDLE + 2));
}

fn refused(change: impl FnOnce(&mut Memory)) -> BootError {
    let mut state = machine();
    change(&mut state.machine.memory);
    state.start_first_environment(FIRST).expect_err("it is refused")
}

const HEADER: usize = BUNDLE as usize;
const IMAGE: usize = BUNDLE as usize + 1;

#[test]
fn every_bad_bundle_is_named() {
    assert_eq!(refused(|m| m[HEADER][0] += 1), BootError::BundleHeader);
    assert_eq!(refused(|m| m[HEADER][1] += 1), BootError::BundleHeader);
    assert_eq!(refused(|m| m[IMAGE][0] = 0), BootError::ImageHeader);
    assert_eq!(refused(|m| m[IMAGE][1] &= 0xffff_ffff), BootError::ImageHeader);
    assert_eq!(refused(|m| m[IMAGE][1] |= 99 << 32), BootError::ImageHeader);
    assert_eq!(refused(|m| m[IMAGE][2] = CODE + 0x1000), BootError::ImageEntry);
    assert_eq!(refused(|m| m[IMAGE][3] += 8), BootError::ImageSegment(0));
    assert_eq!(refused(|m| m[IMAGE][3] = LIBOS_BASE), BootError::ImageSegment(0));
    assert_eq!(refused(|m| m[IMAGE][4] |= 0xffff_ffff), BootError::ImageSegment(0));
    assert_eq!(refused(|m| m[IMAGE][4] &= 0xffff_ffff), BootError::ImageSegment(0));
    assert_eq!(refused(|m| m[IMAGE][6] = CODE), BootError::ImageSegment(1));
    assert_eq!(refused(|m| m[IMAGE][6] = !4095), BootError::ImageSegment(1));
    let unknown = u64::from(FLAT_EXECUTE) << 1;
    assert_eq!(refused(|m| m[IMAGE][8] = unknown << 4), BootError::ImageSegment(1));
}

#[test]
fn a_bundle_in_free_memory_or_beyond_is_refused() {
    for (frame, count) in [(100, 5), (u64::MAX, 5), (4000, u64::MAX), (BUNDLE, 0), (BUNDLE, 1)] {
        let mut state = machine();
        let first = FirstEnvironment { bundle_frame: FrameNumber(frame), bundle_frame_count: count };
        assert_eq!(state.start_first_environment(first), Err(BootError::BundleRange));
    }
}

#[test]
fn without_memory_there_is_no_first_environment() {
    let mut state = machine();
    while state.frames.free_count() > 100 {
        let mut search = state.frames.new_search(1);
        let frame = state.frames.find_free(1, 1, &mut search).expect("free");
        state.frames.set(frame, crate::object::FrameKind::Reserved, 0);
    }
    assert_eq!(state.start_first_environment(FIRST), Err(BootError::NoMemory));
}

#[test]
fn quota_and_owned_frames_are_readable() {
    let mut world = World::new();
    let mut read = |field: EnvironmentField| {
        world.ok(Call::EnvironmentRead(EnvironmentRead { slot: SLOT_SELF, field: field as u32 }))
    };
    let owned = read(EnvironmentField::FramesOwned);
    assert_eq!(owned, 128 + 34 + BUNDLE_FRAME_COUNT);
    assert!(read(EnvironmentField::FrameQuota) > owned);
    assert_eq!(read(EnvironmentField::SlotCount), 64);
    assert_eq!(read(EnvironmentField::Stopped), 0);
    let (status, value) = world.call(Call::EnvironmentRead(EnvironmentRead { slot: CapSlot(1), field: 99 }));
    assert_eq!((status, value), (Status::BadArgument, 1));
}

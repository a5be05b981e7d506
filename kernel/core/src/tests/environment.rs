//! Calls 11 to 20: making and ending environments and processors, and frames asked back.

use aegis_abi::call::{
    Call, CapDerive, CapGrant, CapRead, EnvironmentCreate, EnvironmentDestroy, EnvironmentQuota, EnvironmentReclaim,
    FrameAllocate, ProcessorCreate, ProcessorDestroy, ProcessorStart, StopReason,
};
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, SYSTEM_PAGE_BASE};
use aegis_abi::memory::BindEntry;
use aegis_abi::share::Table;
use aegis_abi::types::{CapSlot, FrameNumber, Rights, SLOT_SELF, Status};
use aegis_abi::upcall::UpcallKind;

use super::share::share;
use super::world::{CODE, S, SYSTEM_PAGE, World};
use crate::object::control_word;

fn create(slot: u32, frames: u32, frame_quota: u64) -> Call {
    Call::EnvironmentCreate(EnvironmentCreate { slot: CapSlot(slot), frames: CapSlot(frames), frame_quota })
}

fn destroy(slot: u32) -> Call {
    Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(slot) })
}

fn grant(source: u32, environment: u32, target: u32) -> Call {
    Call::CapGrant(CapGrant {
        source: CapSlot(source),
        environment: CapSlot(environment),
        target: CapSlot(target),
        rights: Rights::all().bits(),
    })
}

#[test]
fn a_new_environment_has_itself_and_the_system_page() {
    let mut world = World::new();
    let child = world.environment(S, 100);
    let root = world.state.environments[child].root;
    let page = (SYSTEM_PAGE_BASE & 0xffff_ffff_ffff) >> 12;
    assert_eq!(world.state.translate(root, page), Some(FrameNumber(SYSTEM_PAGE)));
    let own = crate::object::CapRef { environment: child, slot: SLOT_SELF.0 };
    assert!(world.state.capability(own).is_some());
    let read = Call::CapRead(CapRead { slot: CapSlot(S + 1), field: 0 });
    assert_eq!(world.refused(read), Status::BadSlot, "the frames are gone");
}

#[test]
fn every_bad_creation_is_refused() {
    let mut world = World::new();
    world.frames(S, 8);
    let left = world.state.environments[world.first].frames_left();
    assert_eq!(world.refused(create(S + 1, S, left + 1)), Status::NoFrames);
    assert_eq!(world.refused(create(S, S, 0)), Status::SlotInUse);
    assert_eq!(world.refused(create(S + 1, SLOT_SELF.0, 0)), Status::WrongType);
    world.frames(S + 2, 7);
    assert_eq!(world.call(create(S + 1, S + 2, 0)), (Status::BadArgument, 1));
    assert_eq!(world.refused(create(S + 1, 5, 0)), Status::Busy, "mapped");
    world.ok(Call::CapDerive(CapDerive { source: CapSlot(S), target: CapSlot(S + 3), rights: 1, offset: 0, count: 8 }));
    assert_eq!(world.refused(create(S + 1, S, 0)), Status::Busy);
    assert_eq!(world.refused(create(S + 1, S + 3, 0)), Status::WrongState);
}

#[test]
fn there_is_a_greatest_number_of_environments() {
    let mut world = World::new();
    world.check_after_entry = false;
    let mut made = 1;
    let status = loop {
        world.frames(S, 8);
        let (status, _) = world.call(create(S + made, S, 0));
        if status != Status::Ok {
            break status;
        }
        world.ok(share(S + made, Table::Environments, 0));
        made += 1;
    };
    assert_eq!((made, status), (64, Status::TableFull));
    world.check();
    for slot in 1..made {
        world.ok(destroy(S + slot));
    }
    world.check();
}

#[test]
fn destruction_gives_everything_back_also_from_grandchildren() {
    let mut world = World::new();
    let free = world.state.frames.free_count();
    let quota = world.state.environments[world.first].frame_quota;
    let child = world.environment(S, 500);
    let processor = world.processor(S + 10, S);
    world.start(S + 10);
    world.frames(S + 20, 20);
    world.ok(grant(S + 20, S, 5));
    world.kick(1);
    assert_eq!(world.current(1), Some(processor));
    // The child makes a grandchild, grants it frames of its own, and grants its creator others.
    let calls = [
        Call::FrameAllocate(FrameAllocate {
            slot: CapSlot(6),
            count: 20,
            frame: FrameNumber(u64::MAX),
            alignment_log2: 0,
        }),
        create(7, 6, 50),
        Call::FrameAllocate(FrameAllocate {
            slot: CapSlot(8),
            count: 20,
            frame: FrameNumber(u64::MAX),
            alignment_log2: 0,
        }),
        grant(8, 7, 9),
        grant(5, 7, 10),
    ];
    for call in calls {
        let status = loop {
            match world.call_on(1, call).0 {
                Status::Again => {}
                status => break status,
            }
        };
        assert_eq!(status, Status::Ok, "{call:?}");
    }
    assert_eq!(world.call_on(1, destroy(SLOT_SELF.0)).0, Status::WrongState);
    assert_eq!(world.refused(destroy(S)), Status::Again, "it runs elsewhere");
    assert_eq!(world.refused(grant(S + 20, S, 20)), Status::WrongState);
    world.kick(1);
    world.ok(destroy(S));
    assert_eq!(world.refused(destroy(S)), Status::BadSlot);
    assert_eq!(world.state.environments[child].serial, 0);
    // The pages of its processor were ours, and so is the dead processor's capability.
    world.ok(Call::CapDrop(aegis_abi::call::CapDrop { slot: CapSlot(S + 10) }));
    for slot in [S + 11, S + 20] {
        world.ok(Call::FrameFree(aegis_abi::call::FrameFree { slot: CapSlot(slot) }));
    }
    assert_eq!(world.state.frames.free_count(), free);
    assert_eq!(world.state.environments[world.first].frame_quota, quota);
}

#[test]
fn what_an_environment_had_is_zeroed_for_the_next() {
    let mut world = World::new();
    world.environment(S, 100);
    let frames = world.frames(S + 2, 2);
    world.ok(Call::FrameDonate(aegis_abi::call::FrameDonate { slot: CapSlot(S + 2), environment: CapSlot(S) }));
    world.state.machine.memory[frames as usize] = [7; 512];
    world.ok(destroy(S));
    let again = Call::FrameAllocate(FrameAllocate {
        slot: CapSlot(S),
        count: 2,
        frame: FrameNumber(frames),
        alignment_log2: 0,
    });
    world.ok(again);
    assert_eq!(world.state.machine.memory[frames as usize], [0; 512]);
}

#[test]
fn every_bad_processor_is_refused() {
    let mut world = World::new();
    world.environment(S, 50);
    world.frames(S + 2, 3);
    let good = ProcessorCreate {
        slot: CapSlot(S + 3),
        environment: CapSlot(S),
        frames: CapSlot(S + 2),
        save_area_frame_count: 2,
        control_address: LIBOS_BASE + 0x1000,
        save_area_base: LIBOS_BASE + 0x2000,
    };
    let mut bad = |change: &dyn Fn(&mut ProcessorCreate)| {
        let mut call = good;
        change(&mut call);
        world.call(Call::ProcessorCreate(call))
    };
    assert_eq!(bad(&|c| c.save_area_frame_count = 0), (Status::BadArgument, 3));
    assert_eq!(bad(&|c| c.save_area_frame_count = u32::MAX), (Status::BadArgument, 3));
    assert_eq!(bad(&|c| c.save_area_frame_count = 3), (Status::BadArgument, 2));
    for address in [0, 1, 0x40_0000, LIBOS_BASE + 8, LIBOS_END, !0xfff] {
        assert_eq!(bad(&|c| c.control_address = address), (Status::BadArgument, 4));
        assert_eq!(bad(&|c| c.save_area_base = address), (Status::BadArgument, 5));
    }
    assert_eq!(bad(&|c| c.save_area_base = LIBOS_END - 0x1000), (Status::BadArgument, 5));
    assert_eq!(bad(&|c| c.environment = CapSlot(S + 2)).0, Status::WrongType);
    assert_eq!(bad(&|c| c.frames = CapSlot(S)).0, Status::WrongType);
    assert_eq!(bad(&|c| c.slot = CapSlot(S)).0, Status::SlotInUse);
    assert_eq!(bad(&|_| {}).0, Status::Ok);
    let start = |rip: u64| Call::ProcessorStart(ProcessorStart { slot: CapSlot(S + 3), rip, rsp: 0, argument: 0 });
    for rip in [0, 1 << 47, LIBOS_END, 0xffff_ffff_8000_0000, u64::MAX] {
        assert_eq!(world.call(start(rip)), (Status::BadArgument, 1));
    }
    world.ok(start(CODE));
    assert_eq!(world.refused(start(CODE)), Status::WrongState);
    let unmake = Call::ProcessorDestroy(ProcessorDestroy { slot: CapSlot(S + 3) });
    assert_eq!(world.refused(unmake), Status::WrongState);
    world.ok(Call::ProcessorStop(aegis_abi::call::ProcessorStop { slot: CapSlot(S + 3) }));
    world.ok(unmake);
    world.ok(Call::FrameFree(aegis_abi::call::FrameFree { slot: CapSlot(S + 2) }));
}

fn reclaim(slot: u32, frame_count: u64, deadline_ns: u64) -> Call {
    Call::EnvironmentReclaim(EnvironmentReclaim { slot: CapSlot(slot), frame_count, deadline_ns })
}

const DEADLINE_NS: u64 = 9_000_000;

#[test]
fn an_environment_that_does_not_comply_loses_frames_and_is_told_which() {
    let mut world = World::new();
    let child = world.environment(S, 100);
    let processor = world.processor(S + 10, S);
    world.set_entry(processor, UpcallKind::Revocation as usize, CODE + 0x600);
    world.set_entry(processor, UpcallKind::Repossession as usize, CODE + 0x700);
    world.start(S + 10);
    world.kick(1);
    let allocate = Call::FrameAllocate(FrameAllocate {
        slot: CapSlot(5),
        count: 10,
        frame: FrameNumber(u64::MAX),
        alignment_log2: 0,
    });
    let (_, first) = world.call_on(1, allocate);
    // The child maps its frames and grants them to its creator, which maps them too.
    let scratch = world.frames(S + 20, 1);
    let at = 0x7000_0000;
    world.ok(grant(S + 20, S, 6));
    let entry = |va: u64, frame: u64, slot: u32, page_count: u32| BindEntry {
        operation: 0,
        flags: 1,
        virtual_address: va,
        frame,
        page_count,
        slot,
    };
    assert_eq!(world.bind_in(CapSlot(S), &[entry(at, scratch, S + 20, 1)]).0, Status::Ok);
    let words = [1 << 32, at + 0x1000, first, 10 | 5 << 32];
    world.state.machine.memory[scratch as usize][..4].copy_from_slice(&words);
    let bind = Call::Bind(aegis_abi::call::Bind { space: SLOT_SELF, entries: at, entry_count: 1 });
    assert_eq!(world.call_on(1, bind), (Status::Ok, 1));

    let quota = world.state.environments[world.first].frame_quota;
    // What it may own and does not is given up first.
    let (unused, owned) = (world.state.environments[child].frames_left(), world.state.environments[child].frames_owned);
    world.ok(reclaim(S, unused + 3, DEADLINE_NS));
    assert_eq!(world.refused(reclaim(S, 3, DEADLINE_NS)), Status::WrongState);
    assert_eq!(world.state.environments[child].frame_quota, owned - 3);
    assert!(world.state.machine.kicked.contains(&super::world::cpu(1)));
    world.kick(1);
    assert_eq!(world.frame[1].rip, CODE + 0x600);
    world.set_masks(processor, 0, 0);
    world.state.machine.now_ns = DEADLINE_NS;
    let before = world.state.environments[child].frames_owned;
    world.timer(0);
    world.kick(1);
    assert_eq!(world.frame[1].rip, CODE + 0x700);
    let object = &world.state.environments[child];
    assert_eq!(object.frames_owned, before - 3);
    let control = world.state.processors[processor].pages.first_frame as usize;
    let page = world.state.machine.memory[control];
    assert_eq!(page[control_word!(revocation_frame_count)], 3, "asked for");
    assert_eq!(page[control_word!(repossessed_count)..][..4], [3, first + 9, first + 8, first + 7]);
    let root = object.root;
    let mapped = |n: u64| world.state.translate(root, ((at + 0x1000) >> 12) + n);
    assert_eq!(mapped(6), Some(FrameNumber(first + 6)));
    assert_eq!(mapped(7), None);
    assert_eq!(world.state.environments[world.first].frame_quota, quota + unused + 3);
}

#[test]
fn an_environment_that_complies_keeps_the_rest() {
    let mut world = World::new();
    let child = world.environment(S, 100);
    world.processor(S + 10, S);
    world.start(S + 10);
    world.kick(1);
    let allocate = |slot: u32| {
        Call::FrameAllocate(FrameAllocate {
            slot: CapSlot(slot),
            count: 5,
            frame: FrameNumber(u64::MAX),
            alignment_log2: 0,
        })
    };
    world.call_on(1, allocate(5));
    world.call_on(1, allocate(6));
    let unused = world.state.environments[child].frames_left();
    world.ok(reclaim(S, unused + 5, DEADLINE_NS));
    world.call_on(1, Call::FrameFree(aegis_abi::call::FrameFree { slot: CapSlot(6) }));
    world.state.machine.now_ns = DEADLINE_NS;
    world.timer(0);
    let object = &world.state.environments[child];
    assert_eq!(object.frames_owned, 64 + 5);
    let own = crate::object::CapRef { environment: child, slot: 5 };
    assert_eq!(world.state.capability(own).map(|c| c.count), Some(5));
    for (count, deadline) in [(0, 1), (64 + 5 + 1, 1), (u64::MAX, 1)] {
        assert_eq!(world.call(reclaim(S, count, deadline)), (Status::BadArgument, 1));
    }
    assert_eq!(world.refused(reclaim(SLOT_SELF.0, 1, 1)), Status::WrongState);
}

#[test]
fn quota_moves_between_an_environment_and_its_creator() {
    let mut world = World::new();
    let child = world.environment(S, 100);
    let quota =
        |slot: u32, frame_count: u64| Call::EnvironmentQuota(EnvironmentQuota { slot: CapSlot(slot), frame_count });
    let quotas = |world: &World| [world.first, child].map(|id| world.state.environments[id].frame_quota);
    let before = quotas(&world);
    let left = world.state.environments[world.first].frames_left();
    for (count, status) in [(left + 1, Status::NoFrames), (u64::MAX, Status::NoFrames)] {
        assert_eq!(world.refused(quota(S, count)), status);
    }
    assert_eq!(world.refused(quota(S + 1, 1)), Status::BadSlot);
    assert_eq!(quotas(&world), before);
    world.ok(quota(S, left));
    assert_eq!(quotas(&world), [before[0] - left, before[1] + left]);
    // What it does not own goes without a time.
    world.ok(reclaim(S, left + 30, DEADLINE_NS));
    assert_eq!(quotas(&world), [before[0] + 30, before[1] - 30]);
    // Quota that comes back before the deadline is kept.
    let owned = world.state.environments[child].frames_owned;
    world.state.machine.now_ns = DEADLINE_NS;
    world.timer(0);
    assert_eq!(world.state.environments[child].frames_owned, owned);
    world.ok(reclaim(S, 1, 2 * DEADLINE_NS));
}

#[test]
fn who_keeps_what_cannot_be_taken_is_stopped() {
    let mut world = World::new();
    let child = world.environment(S, 0);
    world.ok(reclaim(S, 10, 1));
    world.state.machine.now_ns += 1_000_000;
    world.timer(0);
    // Donated frames that are in no use are taken.
    let object = &world.state.environments[child];
    assert_eq!((object.frames_owned, object.stop.reason), (54, StopReason::Running));
    for (count, owned, reason) in [(45, 9, StopReason::Running), (9, 5, StopReason::FramesKept)] {
        world.ok(reclaim(S, count, 1));
        world.state.machine.now_ns += 1_000_000;
        let decision = world.timer(0);
        assert!(decision.deadline_ns.is_some_and(|ns| ns > world.state.machine.now_ns + 1_000_000));
        let object = &world.state.environments[child];
        assert_eq!((object.frames_owned, object.stop.reason), (owned, reason));
    }
    world.ok(destroy(S));
}

#[test]
fn a_processor_ends_with_the_capability_for_its_pages() {
    let mut world = World::new();
    world.environment(S, 50);
    world.processor(S + 10, S);
    world.frames(S + 20, 3);
    world.ok(grant(S + 20, S, 6));
    world.start(S + 10);
    world.kick(1);
    let make = Call::ProcessorCreate(ProcessorCreate {
        slot: CapSlot(7),
        environment: SLOT_SELF,
        frames: CapSlot(6),
        save_area_frame_count: 2,
        control_address: LIBOS_BASE + 0x1000,
        save_area_base: LIBOS_BASE + 0x2000,
    });
    assert_eq!(world.call_on(1, make), (Status::Ok, 0));
    // Their holder cannot drop them under the processor; their granter has them back.
    let drop = Call::CapDrop(aegis_abi::call::CapDrop { slot: CapSlot(6) });
    assert_eq!(world.call_on(1, drop).0, Status::Busy);
    let split = super::frame::split(6, 8, 1);
    assert_eq!(world.call_on(1, split).0, Status::Busy);
    world.ok(Call::CapRevoke(aegis_abi::call::CapRevoke { slot: CapSlot(S + 20) }));
    let start = Call::ProcessorStart(ProcessorStart { slot: CapSlot(7), rip: CODE, rsp: 0, argument: 0 });
    assert_eq!(world.call_on(1, start).0, Status::WrongState);
    world.ok(Call::FrameFree(aegis_abi::call::FrameFree { slot: CapSlot(S + 20) }));
}

//! Shares of the kernel's tables: an environment that used its share up is refused, and no other.

use std::vec::Vec;

use aegis_abi::call::{
    BellCreate, Call, CapDrop, EnvironmentCreate, EnvironmentDestroy, EnvironmentRead, EnvironmentShare, FrameAllocate,
    FrameDonate, GateCreate, ProcessorCreate, SpaceCreate,
};
use aegis_abi::layout::LIBOS_BASE;
use aegis_abi::share::{FIELD_SHARE_FIRST, FIELD_USED_FIRST, TABLES, Table};
use aegis_abi::types::{CapSlot, FrameNumber, SLOT_NONE, SLOT_SELF, Status};

use super::check::check;
use super::random::Random;
use super::world::{CODE, S, World, cpu};
use crate::call::dispatch;
use crate::id::{EnvironmentId, Id};
use crate::outcome::{Caller, Outcome};

pub(super) fn share(slot: u32, table: Table, count: u32) -> Call {
    Call::EnvironmentShare(EnvironmentShare { slot: CapSlot(slot), table: table as u32, count })
}

fn bell(slot: u32) -> Call {
    Call::BellCreate(BellCreate { slot: CapSlot(slot), processor: SLOT_NONE })
}

fn create(slot: u32, frames: u32) -> Call {
    Call::EnvironmentCreate(EnvironmentCreate { slot: CapSlot(slot), frames: CapSlot(frames), frame_quota: 200 })
}

impl World {
    /// A call of an environment, whether it runs or not.
    fn call_of(&mut self, environment: EnvironmentId, call: Call) -> Status {
        self.state.work_left = crate::state::WORK_BUDGET;
        let (number, words) = call.encode();
        let caller = Caller { cpu: cpu(0), processor: self.first_processor, environment };
        match dispatch(&mut self.state, caller, number, &words) {
            Outcome::Done(status, _) => status,
            Outcome::Left => panic!("{call:?} does not leave"),
        }
    }

    fn counts(&mut self, slot: u32, first: u32) -> Vec<u64> {
        let read = |table: Table| EnvironmentRead { slot: CapSlot(slot), field: first + table as u32 };
        TABLES.iter().map(|table| self.ok(Call::EnvironmentRead(read(*table)))).collect()
    }
}

#[test]
fn the_first_has_all_and_passes_a_part_on() {
    let mut world = World::new();
    assert_eq!(world.counts(SLOT_SELF.0, FIELD_SHARE_FIRST), [63, 4352, 256, 1024, 256, 512]);
    assert_eq!(world.counts(SLOT_SELF.0, FIELD_USED_FIRST), [0, 0, 1, 0, 0, 0]);
    world.environment(S, 0);
    // A sixteenth of what was left: the environment itself and the first processor are counted before.
    assert_eq!(world.counts(S, FIELD_SHARE_FIRST), [3, 272, 16, 64, 16, 32]);
    assert_eq!(world.counts(SLOT_SELF.0, FIELD_SHARE_FIRST), [60, 4080, 240, 960, 240, 480]);
    assert_eq!(world.counts(SLOT_SELF.0, FIELD_USED_FIRST), [1, 0, 1, 0, 0, 0]);
    for (before, table) in [(22, 22), (31, 31), (38, 38)] {
        let unknown = Call::EnvironmentRead(EnvironmentRead { slot: CapSlot(S), field: before });
        assert_eq!(world.call(unknown), (Status::BadArgument, 1), "{table}");
    }
    world.ok(Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(S) }));
    assert_eq!(world.counts(SLOT_SELF.0, FIELD_SHARE_FIRST), [63, 4352, 256, 1024, 256, 512]);
    assert_eq!(world.counts(SLOT_SELF.0, FIELD_USED_FIRST), [0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_share_is_changed_by_who_gave_it_within_what_is_there() {
    let mut world = World::new();
    let child = world.environment(S, 300);
    assert_eq!(world.refused(share(SLOT_SELF.0, Table::Bells, 1)), Status::MissingRight);
    assert_eq!(world.call_of(child, share(SLOT_SELF.0, Table::Bells, 1000)), Status::MissingRight);
    let unknown = Call::EnvironmentShare(EnvironmentShare { slot: CapSlot(S), table: 6, count: 0 });
    assert_eq!(world.call(unknown), (Status::BadArgument, 1));
    for count in [1025, u32::from(u16::MAX), 1 << 16, u32::MAX] {
        assert_eq!(world.refused(share(S, Table::Bells, count)), Status::TableFull);
    }
    world.ok(share(S, Table::Bells, 3));
    assert_eq!([10, 11, 12, 13].map(|slot| world.call_of(child, bell(slot))), {
        let ok = Status::Ok;
        [ok, ok, ok, Status::TableFull]
    });
    assert_eq!(world.refused(share(S, Table::Bells, 2)), Status::Busy, "it uses three");
    assert_eq!(world.call_of(child, Call::CapDrop(CapDrop { slot: CapSlot(11) })), Status::Ok);
    world.ok(share(S, Table::Bells, 2));
    assert_eq!(world.call_of(child, bell(11)), Status::TableFull);
    world.ok(share(S, Table::Bells, 1024));
    assert_eq!(world.refused(bell(S + 50)), Status::TableFull, "all are the child's");
    world.ok(share(S, Table::Environments, 0));
    let allocate = FrameAllocate { slot: CapSlot(20), count: 16, frame: FrameNumber(u64::MAX), alignment_log2: 0 };
    assert_eq!(world.call_of(child, Call::FrameAllocate(allocate)), Status::Ok);
    assert_eq!(world.call_of(child, create(21, 20)), Status::TableFull);
    world.check();
}

/// Environments that make whatever they can, some of which end.
struct Tree {
    random: Random,
    /// Each with its parent, and the slot that this has for it.
    members: Vec<(EnvironmentId, EnvironmentId, u32)>,
    slot: u32,
}

impl Tree {
    fn step(&mut self, world: &mut World) {
        let at = self.random.below(self.members.len() as u64) as usize;
        let (member, parent, own_slot) = self.members[at];
        self.slot = 10 + (self.slot + 1) % 2000;
        let slot = CapSlot(self.slot);
        let call = match self.random.below(8) {
            0 | 1 => {
                let frames = CapSlot(3000 + self.slot);
                let count = 12;
                let allocate = FrameAllocate { slot: frames, count, frame: FrameNumber(u64::MAX), alignment_log2: 0 };
                world.call_of(member, Call::FrameAllocate(allocate));
                let call = EnvironmentCreate { slot, frames, frame_quota: self.random.below(60) };
                if world.call_of(member, Call::EnvironmentCreate(call)) == Status::Ok {
                    let at = crate::object::CapRef { environment: member, slot: slot.0 };
                    let object = world.state.capability(at).expect("it was made").object;
                    let made = EnvironmentId::from_index((object & 0xffff) as usize).expect("an environment");
                    self.members.push((made, member, slot.0));
                }
                return;
            }
            2 => Call::SpaceCreate(SpaceCreate { slot }),
            3 => bell(self.slot),
            4 => {
                let frames = CapSlot(3000 + self.slot);
                let allocate =
                    FrameAllocate { slot: frames, count: 3, frame: FrameNumber(u64::MAX), alignment_log2: 0 };
                world.call_of(member, Call::FrameAllocate(allocate));
                Call::ProcessorCreate(ProcessorCreate {
                    slot,
                    environment: SLOT_SELF,
                    frames,
                    save_area_frame_count: 2,
                    control_address: LIBOS_BASE + 0x40_0000,
                    save_area_base: LIBOS_BASE + 0x50_0000,
                })
            }
            5 => {
                let processor = CapSlot(10 + self.random.below(2000) as u32);
                Call::GateCreate(GateCreate { slot, processor, rip: CODE, badge: 0 })
            }
            6 => {
                let table = TABLES[self.random.below(6) as usize];
                let end = if self.random.below(3) == 0 { 1100 } else { 20 };
                let count = self.random.below(end) as u32;
                world.call_of(parent, share(own_slot, table, count));
                return;
            }
            _ if at == 0 || self.random.below(6) != 0 => return,
            _ => {
                let destroy = Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(own_slot) });
                while world.call_of(parent, destroy) == Status::Again {}
                let state = &world.state;
                let lives = |at: &crate::object::CapRef| state.capability(*at).is_some();
                loop {
                    let before = self.members.len();
                    let slots: Vec<_> = self.members.iter().map(|(id, ..)| *id).collect();
                    self.members.retain(|(id, parent, slot)| {
                        let named = crate::object::CapRef { environment: *parent, slot: *slot };
                        slots[0] == *id || slots.contains(parent) && lives(&named)
                    });
                    if self.members.len() == before {
                        return;
                    }
                }
            }
        };
        world.call_of(member, call);
    }
}

#[test]
fn no_subtree_takes_what_a_neighbour_has() {
    for seed in 1..=12 {
        let mut world = World::new();
        world.check_after_entry = false;
        let hostile = world.environment(S, 1500);
        let honest = world.environment(S + 10, 400);
        for (number, slot) in [(0, S), (1, S + 10)] {
            world.frames(S + 30 + number, 200);
            let donate = FrameDonate { slot: CapSlot(S + 30 + number), environment: CapSlot(slot) };
            world.ok(Call::FrameDonate(donate));
        }
        world.ok(share(S + 10, Table::Bells, 40));
        world.ok(share(S + 10, Table::Spaces, 20));
        world.ok(share(S + 10, Table::Environments, 2));
        // The rest is the hostile one's: what is left is the creator's, which asks for no more.
        for table in TABLES {
            let left = world.state.environments[world.first].entries_left(table);
            let has = world.state.environments[hostile].share[table as usize];
            world.ok(share(S, table, u32::from(has + left)));
        }
        let mut tree = Tree { random: Random::new(seed), members: std::vec![(hostile, world.first, S)], slot: 0 };
        for turn in 0..600 {
            tree.step(&mut world);
            if turn % 50 == 0 {
                check(&world.state);
            }
        }
        check(&world.state);
        for slot in 0..40 {
            assert_eq!(world.call_of(honest, bell(10 + slot)), Status::Ok, "seed {seed}, bell {slot}");
        }
        assert_eq!(world.call_of(honest, bell(60)), Status::TableFull);
        for slot in 0..20 {
            let call = Call::SpaceCreate(SpaceCreate { slot: CapSlot(70 + slot) });
            assert_eq!(world.call_of(honest, call), Status::Ok, "seed {seed}, space {slot}");
        }
        for number in 0..3 {
            let slot = CapSlot(100 + number);
            let allocate = FrameAllocate { slot, count: 12, frame: FrameNumber(u64::MAX), alignment_log2: 0 };
            assert_eq!(world.call_of(honest, Call::FrameAllocate(allocate)), Status::Ok);
            let call = EnvironmentCreate { slot: CapSlot(110 + number), frames: slot, frame_quota: 0 };
            let expected = if number < 2 { Status::Ok } else { Status::TableFull };
            assert_eq!(world.call_of(honest, Call::EnvironmentCreate(call)), expected, "seed {seed}, {number}");
        }
        check(&world.state);
        world.ok(Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(S) }));
        world.ok(Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(S + 10) }));
        assert_eq!(world.counts(SLOT_SELF.0, FIELD_SHARE_FIRST), [63, 4352, 256, 1024, 256, 512]);
        assert_eq!(world.counts(SLOT_SELF.0, FIELD_USED_FIRST), [0, 0, 1, 0, 0, 0]);
    }
}

//! A naive model of which environment may reach which frame: what the calls' answers say, and nothing that the kernel
//! keeps.
//!
//! A *grant* is a capability as its holder sees it: environment, slot, frames, rights, and the grant that it comes
//! from. There are no counts, no cursors and no tables; frames that others got since are left out of it one by one.
//! The model is an upper bound: a grant ends when a call that ends it has succeeded, or when its frames belong to
//! somebody else, and not a moment sooner. So whatever a processor can reach by the tables, by what it remembers of
//! them, or by a device, and the model does not allow, is a hole.
//!
//! Of the kernel's state the model looks at names only: which environment or device a slot stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use aegis_abi::call::{Call, EnvironmentCreate, EnvironmentDestroy};
use aegis_abi::layout::PAGE_TABLE_WINDOW;
use aegis_abi::memory::entry;
use aegis_abi::types::{CapSlot, CapType, FrameNumber, Rights, Status};

use super::cache::Access;
use super::world::{FRAME_COUNT, Fake, Memory, SYSTEM_PAGE};
use crate::State;
use crate::id::{DeviceId, EnvironmentId, Id};
use crate::object::capability::FRAME_RIGHTS;
use crate::object::{CapRef, FILLING, FrameKind};

/// Slots from which on the model puts what may be in a slot beside something else.
const SLOT_BESIDE: u32 = 1 << 20;

/// What a grant is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Frames { first: u64, count: u64 },
    Device(DeviceId),
}

#[derive(Clone, Debug)]
struct Grant {
    of: Of,
    rights: Rights,
    parent: Option<u64>,
    /// Frames that belong to others by now.
    lost: BTreeSet<u64>,
}

/// A slot of an environment, which is named by its serial.
type Place = (u32, u32);

/// Grants by environment.
#[derive(Default)]
pub(super) struct Model {
    grants: BTreeMap<u64, Grant>,
    places: BTreeMap<Place, u64>,
    last_grant: u64,
    /// The environment that could write to a frame last, as far as it still holds that: by serial.
    writers: BTreeMap<u64, u32>,
}

/// What the model has to know of a call before it is made.
pub(super) struct Before {
    pub(super) caller: u32,
    /// The environment that the call names in a slot, if it does.
    named: Option<u32>,
}

fn serial_of(state: &State<Fake>, environment: EnvironmentId, slot: CapSlot) -> Option<u32> {
    let capability = state.capability(CapRef { environment, slot: slot.0 })?;
    let id = EnvironmentId::from_index((capability.object & 0xffff) as usize)?;
    (capability.kind == CapType::Environment).then(|| state.environments[id].serial)
}

impl Model {
    /// A model of what there is now, which is taken to be right: the set-up of a test.
    pub(super) fn of(state: &State<Fake>) -> Self {
        let mut model = Self::default();
        let mut ids: BTreeMap<Place, (u64, Option<Place>)> = BTreeMap::new();
        for environment in state.environments.ids().filter(|id| state.environments[*id].serial != 0) {
            let serial = state.environments[environment].serial;
            for at in state.slots(environment) {
                let Some(capability) = state.capability(at) else {
                    continue;
                };
                let of = match capability.kind {
                    CapType::Frames => Of::Frames { first: capability.object, count: capability.count },
                    CapType::Device => match DeviceId::from_index((capability.object & 0xffff) as usize) {
                        Some(device) => Of::Device(device),
                        None => continue,
                    },
                    _ => continue,
                };
                let parent = capability.parent.map(|p| (state.environments[p.environment].serial, p.slot));
                let id = model.insert((serial, at.slot), of, capability.rights, None);
                ids.insert((serial, at.slot), (id, parent));
            }
        }
        for (id, parent) in ids.values() {
            let parent = parent.and_then(|place| Some(ids.get(&place)?.0));
            model.grants.entry(*id).and_modify(|grant| grant.parent = parent);
        }
        model
    }

    fn insert(&mut self, place: Place, of: Of, rights: Rights, parent: Option<u64>) -> u64 {
        // The kernel found the slot empty, so what was there has ended.
        self.remove(place);
        self.last_grant += 1;
        let lost = parent.and_then(|parent| self.grants.get(&parent)).map(|p| p.lost.clone()).unwrap_or_default();
        self.grants.insert(self.last_grant, Grant { of, rights, parent, lost });
        self.places.insert(place, self.last_grant);
        self.last_grant
    }

    fn grant(&self, place: Place) -> Option<(u64, &Grant)> {
        let id = *self.places.get(&place)?;
        Some((id, self.grants.get(&id)?))
    }

    /// Ends everything that comes from a grant.
    fn remove_below(&mut self, id: u64) {
        let below: Vec<u64> =
            self.grants.iter().filter(|(_, grant)| grant.parent == Some(id)).map(|(child, _)| *child).collect();
        for child in below {
            self.remove_below(child);
            self.grants.remove(&child);
            self.places.retain(|_, id| *id != child);
        }
    }

    fn remove(&mut self, place: Place) {
        if let Some(id) = self.places.remove(&place) {
            self.remove_below(id);
            self.grants.remove(&id);
        }
    }

    /// Frames belong to somebody else from now on: nobody else has anything of them.
    fn take(&mut self, taken_first: u64, taken_count: u64) {
        let taken = taken_first..taken_first + taken_count;
        for grant in self.grants.values_mut() {
            if let Of::Frames { first, count } = grant.of {
                let both = taken.start.max(first)..taken.end.min(first.saturating_add(count));
                grant.lost.extend(both);
            }
        }
    }

    pub(super) fn before(state: &State<Fake>, environment: EnvironmentId, number: u64, words: &[u64; 6]) -> Before {
        let slot = match number {
            aegis_abi::call::CapGrant::NUMBER => words[1],
            EnvironmentDestroy::NUMBER => words[0],
            _ => u64::MAX,
        };
        let named = u32::try_from(slot).ok().and_then(|slot| serial_of(state, environment, CapSlot(slot)));
        Before { caller: state.environments[environment].serial, named }
    }

    /// What a call's success means; `result` is `None` where it is not known. True: somebody may reach less now.
    pub(super) fn after(
        &mut self,
        state: &State<Fake>,
        before: &Before,
        call: Call,
        result: Option<(Status, u64)>,
    ) -> bool {
        match result {
            Some((Status::Ok, value)) => {
                self.gives(state, before, call, Some(value));
                self.takes(before, call)
            }
            Some(_) => false,
            None => {
                self.gives(state, before, call, None);
                false
            }
        }
    }

    /// A call that gives. Where it is not known what became of it, it counts as successful, and what may be in its
    /// target slot is put beside what is there.
    fn gives(&mut self, state: &State<Fake>, before: &Before, call: Call, value: Option<u64>) {
        let caller = before.caller;
        let is_known = value.is_some();
        let beside = SLOT_BESIDE + self.last_grant as u32;
        let target = |model: &Self, (holder, slot): (u32, CapSlot)| {
            let is_taken = !is_known && model.places.contains_key(&(holder, slot.0));
            (holder, if is_taken { beside } else { slot.0 })
        };
        let (source, to, of_source, rights) = match call {
            Call::CapDerive(call) => {
                let part = |of| match of {
                    Of::Frames { first, .. } => {
                        Of::Frames { first: first.saturating_add(call.offset), count: call.count }
                    }
                    device @ Of::Device(_) => device,
                };
                let grant = self.grant((caller, call.source.0)).map(|(id, grant)| (id, part(grant.of), grant.rights));
                (grant, target(self, (caller, call.target)), true, call.rights)
            }
            Call::CapGrant(call) => {
                let Some(receiver) = before.named else {
                    return;
                };
                let grant = self.grant((caller, call.source.0)).map(|(id, grant)| (id, grant.of, grant.rights));
                (grant, target(self, (receiver, call.target)), true, call.rights)
            }
            Call::FrameSplit(call) if is_known => {
                return self.split((caller, call.slot.0), (caller, call.target.0), call.count);
            }
            Call::FrameSplit(call) => {
                // Both may have what the one had.
                let grant = self.grant((caller, call.slot.0)).map(|(_, grant)| (grant.parent, grant.of, grant.rights));
                let grant = grant.map(|(parent, of, rights)| (parent.unwrap_or(0), of, rights));
                (grant, target(self, (caller, call.target)), false, Rights::all().bits())
            }
            Call::FrameAllocate(call) => return self.allocated(state, caller, call.slot, call.count, value),
            _ => return,
        };
        match source {
            Some((id, of, source_rights)) => {
                let rights = source_rights & Rights::from_bits_truncate(rights);
                self.insert(to, of, rights, Some(id).filter(|id| of_source || *id != 0));
            }
            None if is_known => self.remove(to),
            None => {}
        }
    }

    /// A call that took something and has succeeded; false for any other.
    fn takes(&mut self, before: &Before, call: Call) -> bool {
        let caller = before.caller;
        match call {
            Call::CapRevoke(call) => {
                if let Some((id, _)) = self.grant((caller, call.slot.0)) {
                    self.remove_below(id);
                }
            }
            Call::CapDrop(call) => self.remove((caller, call.slot.0)),
            Call::FrameFree(call) => self.remove((caller, call.slot.0)),
            Call::FrameDonate(call) => self.gone((caller, call.slot.0)),
            Call::EnvironmentCreate(EnvironmentCreate { frames, .. }) => self.gone((caller, frames.0)),
            Call::EnvironmentDestroy(_) => {
                if let Some(ended) = before.named {
                    let places: Vec<Place> = self.places.range((ended, 0)..=(ended, u32::MAX)).map(|p| *p.0).collect();
                    places.into_iter().for_each(|place| self.remove(place));
                }
            }
            Call::FrameAllocate(_) => {}
            _ => return false,
        }
        true
    }

    fn split(&mut self, place: Place, target: Place, keep: u64) {
        let Some((id, grant)) = self.grant(place) else {
            return self.remove(target);
        };
        let (Of::Frames { first, count }, rights, parent) = (grant.of, grant.rights, grant.parent) else {
            return;
        };
        let lost = grant.lost.clone();
        let rest = Of::Frames { first: first.saturating_add(keep), count: count.saturating_sub(keep) };
        let new = self.insert(target, rest, rights, parent);
        self.grants.entry(new).and_modify(|grant| grant.lost.extend(&lost));
        self.grants.entry(id).and_modify(|grant| grant.of = Of::Frames { first, count: keep });
    }

    /// An original went to the kernel's tables.
    fn gone(&mut self, place: Place) {
        if let Some((_, Grant { of: Of::Frames { first, count }, .. })) = self.grant(place) {
            let frames = *first..first + count;
            self.writers.retain(|frame, _| !frames.contains(frame));
        }
        self.remove(place);
    }

    fn allocated(&mut self, state: &State<Fake>, caller: u32, slot: CapSlot, count: u64, value: Option<u64>) {
        let first = match value {
            Some(first) => first,
            None => match self.found(state, caller, slot, count) {
                Some(first) => first,
                None => return,
            },
        };
        assert!(first >= 1 && first + count <= FRAME_COUNT, "frames {first} to {} do not exist", first + count);
        for (place, id) in &self.places {
            let grant = &self.grants[id];
            let Of::Frames { first: its, count: its_count } = grant.of else {
                continue;
            };
            // A reclaim may have taken the end of an original; its start never has another owner while it is there.
            let is_live = grant.parent.is_none() && !grant.lost.contains(&its);
            let capability = (state.environments.ids().find(|id| state.environments[*id].serial == place.0))
                .and_then(|environment| state.capability(CapRef { environment, slot: place.1 }));
            let is_there = capability.is_some_and(|c| c.kind == CapType::Frames && c.object == its);
            let overlaps = (first..first + count).contains(&its) && its_count != 0;
            let is_same = *place == (caller, slot.0);
            assert!(!(is_live && is_there && overlaps) || is_same, "frame {its} of {place:?} was given away");
        }
        self.check_contents(&state.machine.memory, caller, first, count);
        self.take(first, count);
        self.insert((caller, slot.0), Of::Frames { first, count }, FRAME_RIGHTS, None);
        for frame in first..first + count {
            self.writers.insert(frame, caller);
        }
    }

    /// The original that an allocation with an unknown end may have made.
    fn found(&self, state: &State<Fake>, caller: u32, slot: CapSlot, count: u64) -> Option<u64> {
        let environment = state.environments.ids().find(|id| state.environments[*id].serial == caller)?;
        let capability = state.capability(CapRef { environment, slot: slot.0 })?;
        let of = Of::Frames { first: capability.object, count };
        let is_old = self.grant((caller, slot.0)).is_some_and(|(_, grant)| grant.of == of);
        let is_it = capability.kind == CapType::Frames && capability.parent.is_none() && capability.count == count;
        (is_it && capability.flags & FILLING == 0 && !is_old).then_some(capability.object)
    }

    /// Frames that cross environments hold nothing: looks at some.
    fn check_contents(&self, memory: &Memory, caller: u32, first: u64, count: u64) {
        let step = (count / 8).max(1) as usize;
        for frame in (first..first + count).step_by(step).chain([first + count - 1]) {
            let is_own = self.writers.get(&frame) == Some(&caller);
            let is_empty = || memory[frame as usize].iter().all(|word| *word == 0);
            assert!(is_own || is_empty(), "frame {frame} came to environment {caller} with another's data");
        }
    }

    /// Whether an environment may reach frames in a way: by one grant, or, after a split, by several.
    fn allows(&self, serial: u32, first: u64, count: u64, rights: Rights) -> bool {
        self.allows_together(serial, first, count, rights)
            || (count > 1 && (first..first + count).all(|frame| self.allows_together(serial, frame, 1, rights)))
    }

    fn allows_together(&self, serial: u32, first: u64, count: u64, rights: Rights) -> bool {
        let places = self.places.range((serial, 0)..=(serial, u32::MAX));
        places.map(|(_, id)| &self.grants[id]).any(|grant| match grant.of {
            Of::Frames { first: its, count: its_count } => {
                first >= its
                    && first + count <= its.saturating_add(its_count)
                    && grant.rights.contains(rights)
                    && grant.lost.range(first..first + count).next().is_none()
            }
            Of::Device(_) => false,
        })
    }

    fn allows_device(&self, state: &State<Fake>, serial: u32, frame: u64, rights: Rights) -> bool {
        let places = self.places.range((serial, 0)..=(serial, u32::MAX));
        places.map(|(_, id)| &self.grants[id]).any(|grant| match grant.of {
            Of::Frames { .. } => false,
            Of::Device(device) => state.devices[device].has_page(frame) && grant.rights.contains(rights),
        })
    }

    /// Asserts that an environment may have a translation.
    fn check_leaf(
        &self,
        state: &State<Fake>,
        serial: u32,
        page: u64,
        (frame, count): (u64, u64),
        access: Access,
        where_from: &str,
    ) {
        let mut rights = Rights::READ;
        rights.set(Rights::WRITE, access.is_writable);
        rights.set(Rights::EXECUTE, access.is_executable);
        let is_window = page >> 27 == (PAGE_TABLE_WINDOW & 0x0000_ffff_ffff_ffff) >> 39;
        let is_allowed = match state.frames.kind(FrameNumber(frame)) {
            FrameKind::PageTable => {
                is_window && rights == Rights::READ && state.frames.owner(FrameNumber(frame)) == serial
            }
            FrameKind::Reserved => self.allows_device(state, serial, frame, rights & !Rights::EXECUTE),
            _ if frame == SYSTEM_PAGE => rights == Rights::READ,
            _ => self.allows(serial, frame, count, rights),
        };
        assert!(
            is_allowed,
            "{where_from}: environment {serial} reaches frame {frame} ({count}) at page {page:#x}, {rights:?}"
        );
    }

    /// Asserts that no processor remembers what its environment may not reach.
    pub(super) fn check_caches(&self, state: &State<Fake>) {
        for cache in &state.machine.caches.cpus {
            let Some(environment) = cache.environment else {
                continue;
            };
            let serial = state.environments[environment].serial;
            for leaf in &cache.leaves {
                self.check_leaf(state, serial, leaf.page, (leaf.frame, leaf.page_count), leaf.access, "a cache");
            }
        }
    }

    /// Asserts that no tables and no device reach what they may not, and that the kernel's own pages are paid.
    pub(super) fn check_all(&self, state: &State<Fake>) {
        self.check_caches(state);
        for environment in state.environments.ids().filter(|id| state.environments[*id].serial != 0) {
            let serial = state.environments[environment].serial;
            let home = state.environments[environment].root;
            let others = state.spaces.ids().filter_map(|space| state.space_tables(space, environment));
            let roots: Vec<u64> = core::iter::once(home).chain(others.map(|tables| tables.root)).map(|r| r.0).collect();
            for root in roots.into_iter().filter(|root| *root != 0) {
                self.check_table(state, serial, root, 3, 0, Access { is_writable: true, is_executable: true });
            }
        }
        for binding in &state.dma_bindings {
            if let Some(environment) = binding.environment {
                let serial = state.environments[environment].serial;
                let is_allowed = self.allows(serial, binding.first, binding.count, Rights::DMA);
                assert!(
                    is_allowed,
                    "a device reaches frame {} ({}) for environment {serial}",
                    binding.first, binding.count
                );
            }
        }
        for (_, object) in state.processors.iter().filter(|(_, p)| p.serial != 0) {
            let serial = object.paid_with.map_or(0, |at| state.environments[at.environment].serial);
            let is_paid = self.allows(serial, object.pages.first_frame, object.pages.frame_count(), Rights::WRITE);
            assert!(is_paid, "pages at {} are written without authority of {serial}", object.pages.first_frame);
        }
    }

    fn check_table(&self, state: &State<Fake>, serial: u32, table: u64, level: u32, page: u64, access: Access) {
        let slot_end = if level == 3 { aegis_abi::layout::PAGE_TABLE_SLOT } else { 512 };
        let words = &state.machine.memory[table as usize][..slot_end];
        for (index, word) in words.iter().enumerate().filter(|(_, word)| **word & entry::PRESENT != 0) {
            let page = page | (index as u64) << (9 * level);
            let access = Access {
                is_writable: access.is_writable && word & entry::WRITE != 0,
                is_executable: access.is_executable && word & entry::NO_EXECUTE == 0,
            };
            let frame = (word & entry::FRAME_MASK) >> 12;
            if level == 0 || (level == 1 && word & entry::LARGE != 0) {
                self.check_leaf(state, serial, page, (frame, 1 << (9 * level)), access, "a table");
            } else {
                self.check_table(state, serial, frame, level - 1, page, access);
            }
        }
    }
}

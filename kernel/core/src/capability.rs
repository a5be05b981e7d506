//! Capabilities: the tables in donated frames, and the tree of derivation that runs through them.
//!
//! A table consists of frames with 64 entries of 64 bytes; the environment object has the
//! directory. Invariants:
//! - a capability's rights and frames are within those of its parent; its depth is its parent's
//!   plus 1, at most [`DEPTH_MAX`];
//! - parent, first child and siblings name each other, across environments;
//! - a capability on its way out (`DYING`), or whose frames are not yet all zeroed (`FILLING`),
//!   authorises nothing;
//! - below one whose revocation is under way (`REVOKING`) nothing is derived, so that a revocation
//!   ends however busy the other is.

use core::num::NonZeroU32;

use aegis_abi::types::{CapSlot, CapType, FrameNumber, Rights, Status};

use crate::id::{BellId, DeviceId, EnvironmentId, GateId, Id, Named, ProcessorId};
use crate::object::{
    CapRef, Capability, Cover, DEPTH_MAX, DYING, Found, FrameKind, FrameRange, Live, REVOKING, SLOT_COST,
    SLOT_COUNT_MAX, SLOTS_PER_FRAME, check_first_word, kind_from_word, named, usable_word,
};
use crate::outcome::refuse_if;
use crate::{Machine, State};

const WORDS_PER_ENTRY: usize = 8;

impl<M: Machine> State<'_, M> {
    /// Frame and first word of an entry, if the table has a frame there.
    #[inline(always)]
    fn entry_place(&self, at: CapRef) -> Option<(FrameNumber, usize)> {
        let index = (at.slot / SLOTS_PER_FRAME) as usize;
        let frame = (*self.environments[at.environment].table.get(index)?)?;
        Some((FrameNumber(u64::from(frame.get())), (at.slot % SLOTS_PER_FRAME) as usize * WORDS_PER_ENTRY))
    }

    /// The capability in a slot; `None` if the slot is empty or beyond the table.
    pub(crate) fn capability(&self, at: CapRef) -> Option<Capability> {
        let (frame, word) = self.entry_place(at)?;
        Capability::from_words(self.machine.words(frame)(word))
    }

    /// Writes an entry; its table frame must be there.
    pub(crate) fn store_capability(&mut self, at: CapRef, capability: &Capability) {
        let Some((frame, word)) = self.entry_place(at) else { return };
        self.machine.store_words(frame, word, capability.to_words());
    }

    fn update(&mut self, at: Option<CapRef>, change: impl FnOnce(&mut Capability)) {
        if let Some(at) = at
            && let Some(mut capability) = self.capability(at)
        {
            change(&mut capability);
            self.store_capability(at, &capability);
        }
    }

    /// A slot that is empty and has a table frame; takes a donated frame for the table if need be.
    pub(crate) fn empty_slot(&mut self, environment: EnvironmentId, slot: CapSlot) -> Result<CapRef, Status> {
        self.empty_slot_before(SLOT_COUNT_MAX, environment, slot)
    }

    /// The same, before this one.
    pub(crate) fn empty_slot_before(&mut self, end: u32, environment: EnvironmentId, slot: CapSlot) -> Live<CapRef> {
        refuse_if(slot.0 == 0 || slot.0 >= end, Status::BadSlot)?;
        let at = CapRef { environment, slot: slot.0 };
        if self.entry_place(at).is_none() {
            let frame = self.take_donated(environment, FrameKind::CapabilityTable).ok_or(Status::NoTables)?;
            let number = u32::try_from(frame.0).ok().and_then(NonZeroU32::new);
            self.environments[environment].table[(slot.0 / SLOTS_PER_FRAME) as usize] = number;
        }
        refuse_if(self.kind_in(environment, slot) != CapType::Null, Status::SlotInUse)?;
        Ok(at)
    }

    /// The capability in a slot of any type that can be used.
    pub(crate) fn lookup_any(&self, environment: EnvironmentId, slot: CapSlot) -> Live<Found> {
        let at = CapRef { environment, slot: slot.0 };
        // Slot 0 is always empty, and beyond the table there is nothing.
        let capability = self.capability(at).ok_or(Status::BadSlot)?;
        Ok((at, capability))
    }

    /// The capability in a slot, of the type and with the rights that a call needs.
    pub(crate) fn lookup(&self, by: EnvironmentId, slot: CapSlot, kind: CapType, rights: Rights) -> Live<Found> {
        self.lookup_words::<1>(CapRef { environment: by, slot: slot.0 }, kind, rights)?;
        self.lookup_any(by, slot)
    }

    /// The first words of a capability with a type and rights: no more is read of its entry.
    #[inline(always)]
    fn lookup_words<const COUNT: usize>(&self, at: CapRef, kind: CapType, rights: Rights) -> Live<[u64; COUNT]> {
        let (frame, word) = self.entry_place(at).ok_or(Status::BadSlot)?;
        let words: [u64; COUNT] = self.machine.words(frame)(word);
        check_first_word(words[0], kind, rights)?;
        Ok(words)
    }

    /// Which of two objects a capability with the right to control is for, and its word; another is not the first.
    #[inline(always)]
    pub(crate) fn lookup_either(&self, by: EnvironmentId, slot: CapSlot, kinds: [CapType; 2]) -> Live<(bool, u64)> {
        let (frame, word) = self.entry_place(CapRef { environment: by, slot: slot.0 }).ok_or(Status::BadSlot)?;
        let [first, object] = self.machine.words(frame)(word);
        let is_second = first as u8 == kinds[1] as u8;
        check_first_word(first, kinds[usize::from(is_second)], Rights::CONTROL)?;
        Ok((is_second, object))
    }

    /// The frames that a capability authorises.
    pub(crate) fn lookup_frames(&self, by: EnvironmentId, slot: CapSlot, rights: Rights) -> Result<FrameRange, Status> {
        let at = CapRef { environment: by, slot: slot.0 };
        let [_, first, count] = self.lookup_words(at, CapType::Frames, rights)?;
        Ok(FrameRange { first, end: first + count })
    }

    /// The type of what is in a slot.
    pub(crate) fn kind_in(&self, environment: EnvironmentId, slot: CapSlot) -> CapType {
        let place = self.entry_place(CapRef { environment, slot: slot.0 });
        place.map_or(CapType::Null, |(frame, word)| kind_from_word(self.machine.load(frame, word)))
    }

    #[inline(always)]
    fn lookup_named<I: Id>(&self, by: EnvironmentId, slot: CapSlot, kind: CapType, rights: Rights) -> Live<Named<I>> {
        let [_, object] = self.lookup_words(CapRef { environment: by, slot: slot.0 }, kind, rights)?;
        named(object).ok_or(Status::WrongState)
    }

    /// An environment that is not being ended.
    #[inline(always)]
    pub(crate) fn lookup_environment(&self, by: EnvironmentId, slot: CapSlot, rights: Rights) -> Live<EnvironmentId> {
        let named = self.lookup_named(by, slot, CapType::Environment, rights)?;
        self.live_environment(named).filter(|target| !self.environments[*target].is_ending).ok_or(Status::WrongState)
    }

    /// A virtual processor that still exists.
    #[inline(always)]
    pub(crate) fn lookup_processor(&self, by: EnvironmentId, slot: CapSlot, need: Rights) -> Live<Named<ProcessorId>> {
        let named = self.lookup_named(by, slot, CapType::Processor, need)?;
        self.live_processor(named).map(|_| named).ok_or(Status::WrongState)
    }

    /// A bell that still exists.
    #[inline(always)]
    pub(crate) fn lookup_bell(&self, by: EnvironmentId, slot: CapSlot, rights: Rights) -> Live<Named<BellId>> {
        let named = self.lookup_named(by, slot, CapType::Bell, rights)?;
        self.live_bell(named).map(|_| named).ok_or(Status::WrongState)
    }

    /// A gate that still exists; a gate that does not is a peer that is gone.
    #[inline(always)]
    pub(crate) fn lookup_gate(&self, by: EnvironmentId, slot: CapSlot, rights: Rights) -> Result<GateId, Status> {
        let named = self.lookup_named(by, slot, CapType::Gate, rights)?;
        self.live_gate(named).ok_or(Status::PeerGone)
    }

    /// A device function.
    pub(crate) fn lookup_device(&self, by: EnvironmentId, slot: CapSlot, rights: Rights) -> Result<DeviceId, Status> {
        let named = self.lookup_named(by, slot, CapType::Device, rights)?;
        Ok(named.id)
    }

    /// Puts a child of what is in `at` into `target`, with fewer rights and, for frames, a part of the
    /// range.
    pub(crate) fn derive(&mut self, at: CapRef, target: CapRef, rights: Rights, object: u64, count: u64) -> Live<()> {
        let source = self.capability(at).ok_or(Status::BadSlot)?;
        refuse_if(source.depth >= DEPTH_MAX, Status::TableFull)?;
        refuse_if(self.is_being_revoked(at), Status::WrongState)?;
        let child = Capability {
            flags: 0,
            depth: source.depth + 1,
            rights: source.rights & rights,
            object,
            count,
            parent: Some(at),
            child: None,
            next: source.child,
            previous: None,
            cursor: 0,
            ..source
        };
        self.store_capability(target, &child);
        self.update(source.child, |first| first.previous = Some(target));
        self.update(Some(at), |parent| parent.child = Some(target));
        Ok(())
    }

    /// Whether the capability or one that it comes from is being revoked or deleted.
    pub(crate) fn is_being_revoked(&self, at: CapRef) -> bool {
        let mut at = Some(at);
        while let Some(capability) = at.and_then(|at| self.capability(at)) {
            if capability.flags & (REVOKING | DYING) != 0 {
                return true;
            }
            at = capability.parent;
        }
        false
    }

    /// Puts a sibling of `at` into `target` that takes over a part of its frames.
    pub(crate) fn split(&mut self, at: CapRef, target: CapRef, keep_count: u64) {
        let Some(capability) = self.capability(at) else { return };
        let rest = Capability {
            object: capability.object + keep_count,
            count: capability.count - keep_count,
            previous: capability.parent.map(|_| at),
            next: capability.parent.and(capability.next),
            ..capability
        };
        self.store_capability(target, &rest);
        let is_derived = capability.parent.is_some();
        self.update(capability.next, |next| next.previous = Some(target));
        self.update(Some(at), |first| {
            (first.count, first.next) = (keep_count, is_derived.then_some(target));
        });
    }

    /// Takes a capability without children out of the tree and empties its slot.
    pub(crate) fn unlink(&mut self, at: CapRef) {
        let Some(capability) = self.capability(at) else { return };
        match capability.previous {
            Some(previous) => self.update(Some(previous), |c| c.next = capability.next),
            None => self.update(capability.parent, |c| c.child = capability.next),
        }
        self.update(capability.next, |c| c.previous = capability.previous);
        if let Some((frame, word)) = self.entry_place(at) {
            self.machine.store_words(frame, word, [0; WORDS_PER_ENTRY]);
        }
    }

    /// The first descendant of `at`, in leaf-first order.
    pub(crate) fn first_leaf(&self, at: CapRef) -> Option<CapRef> {
        let mut leaf = self.capability(at)?.child?;
        while let Some(child) = self.capability(leaf).and_then(|c| c.child) {
            leaf = child;
        }
        Some(leaf)
    }

    /// The first of an environment's slots from one on whose first words are wanted. What walks whole tables goes this
    /// way: some twenty instructions a slot.
    #[inline(always)]
    pub(crate) fn find_slot<const COUNT: usize>(
        &self,
        environment: EnvironmentId,
        first: u32,
        mut is_wanted: impl FnMut(u32, [u64; COUNT]) -> bool,
    ) -> Option<CapRef> {
        let mut slots = first..first;
        while slots.end < SLOT_COUNT_MAX {
            slots = slots.end..slots.end / SLOTS_PER_FRAME * SLOTS_PER_FRAME + SLOTS_PER_FRAME;
            let Some((frame, _)) = self.entry_place(CapRef { environment, slot: slots.start }) else { continue };
            let words = self.machine.words(frame);
            let is_found = |slot: &u32| is_wanted(*slot, words((slot % SLOTS_PER_FRAME) as usize * WORDS_PER_ENTRY));
            if let Some(slot) = slots.clone().find(is_found) {
                return Some(CapRef { environment, slot });
            }
        }
        None
    }

    /// Whether an environment has authority over `[first, first + count)`, `except` aside. `last` is what the search
    /// before this one found: frames between two borders of capabilities need only one search, however many of them are
    /// mapped.
    pub(crate) fn is_covered(
        &mut self,
        environment: EnvironmentId,
        (first, count): (u64, u64),
        rights: Rights,
        except: Option<CapRef>,
        last: &mut Cover,
    ) -> bool {
        if last.knows((first, count), rights) {
            return last.is_covered;
        }
        let except = except.filter(|at| at.environment == environment).map_or(0, |at| at.slot);
        let usable = usable_word(CapType::Frames, rights);
        let (mut looked, mut begin, mut end) = (0, 0, u64::MAX);
        let by = self.find_slot(environment, 0, |slot, [word, object, object_count]| {
            looked += SLOT_COST;
            if word & usable.0 != usable.1 || slot == except {
                return false;
            }
            let object_end = object + object_count;
            let is_found = object <= first && object_end >= first + count;
            // Of a part of a large page, the rest lies outside of the borders.
            match object > first {
                true => end = end.min(object),
                false if is_found => (begin, end) = (object, object_end),
                false => begin = begin.max(object_end),
            }
            is_found
        });
        self.spend(looked);
        let range = FrameRange { first: begin, end };
        *last = Cover { range, rights, is_covered: by.is_some() };
        last.is_covered
    }
}

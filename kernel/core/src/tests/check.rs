//! What holds between any two kernel entries, recomputed from the tables themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use aegis_abi::call::ProcessorState;
use aegis_abi::memory::entry;
use aegis_abi::share::TABLE_COUNT;
use aegis_abi::types::{CapType, FrameNumber, Rights};

use super::world::{FRAME_COUNT, Fake, TEMPLATE_ROOT, World};
use crate::id::{BellId, DeviceId, EnvironmentId, Id, SpaceId};
use crate::object::{
    CapRef, Capability, DYING, FILLING, FrameKind, SLOT_COUNT_MAX, SLOTS_PER_FRAME, Source, Space, WHOLE,
    capability::SPACE_SLOT_END,
};
use crate::{Machine, State};

#[derive(Default)]
struct Counts {
    small: BTreeMap<u64, u32>,
    large: BTreeMap<u64, u32>,
    tables: BTreeSet<u64>,
}

impl<M: Machine> State<'_, M> {
    /// Every slot of an environment that has a table frame.
    pub(super) fn slots(&self, environment: EnvironmentId) -> impl Iterator<Item = CapRef> {
        let after = |at: &CapRef| self.find_slot(environment, at.slot + 1, |_, [_]| true);
        let all: Vec<CapRef> = std::iter::successors(self.find_slot(environment, 0, |_, [_]| true), after).collect();
        // Those behind are for spaces, and nothing searches them.
        let has_frame = |at: &u32| self.environments[environment].table[(at / SLOTS_PER_FRAME) as usize].is_some();
        let firsts = (SLOT_COUNT_MAX..SPACE_SLOT_END).step_by(SLOTS_PER_FRAME as usize).filter(has_frame);
        let behind: Vec<u32> = firsts.flat_map(|first| first..first + SLOTS_PER_FRAME).collect();
        all.into_iter().chain(behind.into_iter().map(move |slot| CapRef { environment, slot }))
    }
}

type Capabilities = Vec<(CapRef, Capability)>;

impl World {
    pub(super) fn check(&self) {
        check(&self.state);
    }
}

/// The list of free entries has each once, and no other.
fn check_free_spaces(state: &State<Fake>) {
    let after = |space: &SpaceId| {
        SpaceId::from_index(usize::from(state.spaces[*space].next_free.wrapping_add(space.index() as u16 + 1)))
    };
    let first = SpaceId::from_index(usize::from(state.free_space));
    let listed: BTreeSet<usize> =
        std::iter::successors(first, after).take(SpaceId::COUNT + 1).map(|space| space.index()).collect();
    let free = state.spaces.iter().filter(|(_, space)| space.serial == 0).map(|(space, _)| space.index());
    assert_eq!(listed, free.collect());
}

pub(super) fn check(state: &State<Fake>) {
    let live: Vec<EnvironmentId> = state.environments.ids().filter(|e| state.environments[*e].serial != 0).collect();
    let mut counts = Counts::default();
    let mut everybodys: Capabilities = Vec::new();
    for environment in &live {
        let capabilities: Capabilities =
            state.slots(*environment).filter_map(|at| Some((at, state.capability(at)?))).collect();
        check_spaces(state, *environment, &capabilities, &mut counts);
        check_environment(state, *environment);
        everybodys.extend(capabilities);
    }
    check_tree(state, &everybodys);
    check_frames(state, &live, &counts, &everybodys);
    check_processors(state);
    check_free_spaces(state);
    check_authority(state, &everybodys);
    let quota: u64 = live.iter().map(|e| state.environments[*e].frame_quota).sum();
    let mut shares = [0; TABLE_COUNT];
    for environment in &live {
        shares.iter_mut().zip(state.environments[*environment].share).for_each(|(sum, share)| *sum += share);
    }
    if state.first_environment.is_some() {
        assert_eq!(shares, WHOLE, "shares only move");
        assert_eq!(quota, FRAME_COUNT - 64 + super::world::BUNDLE_FRAME_COUNT);
    }
}

fn check_spaces(state: &State<Fake>, environment: EnvironmentId, capabilities: &Capabilities, counts: &mut Counts) {
    let home = state.environments[environment].root;
    if home.0 == 0 {
        return;
    }
    check_space(state, environment, capabilities, counts, home, 264);
    let spaces: Vec<_> =
        state.spaces.ids().filter_map(|space| Some((space, state.space_tables(space, environment)?))).collect();
    for (space, tables) in spaces {
        let root = tables.root;
        assert_eq!(state.frames.kind(root), FrameKind::PageTable);
        assert_eq!(state.frames.owner(root), state.environments[environment].serial);
        for index in 256..264 {
            let differs = state.machine.load(root, index) ^ state.machine.load(home, index);
            assert_eq!(differs & !entry::ACCESSED, 0, "one window");
        }
        check_space(state, environment, capabilities, counts, root, 256);
        let name = space.index() as u64 | state.spaces[space].serial << 16;
        let is_named = capabilities.iter().any(|(_, c)| c.kind == CapType::Space && c.object == name);
        assert!(is_named || state.environments[environment].is_ending, "a space has a capability at home");
    }
}

fn check_space(
    state: &State<Fake>,
    environment: EnvironmentId,
    capabilities: &Capabilities,
    counts: &mut Counts,
    root: FrameNumber,
    slot_end: usize,
) {
    counts.tables.insert(root.0);
    let own = state.machine.load(root, 264);
    assert_eq!(own & entry::FRAME_MASK, root.address());
    assert_eq!(own & (entry::USER | entry::WRITE | entry::NO_EXECUTE), entry::USER | entry::NO_EXECUTE);
    for index in 265..512 {
        let template = state.machine.load(FrameNumber(TEMPLATE_ROOT), index);
        assert_eq!(state.machine.load(root, index), template & !entry::USER);
    }
    for top in 0..slot_end {
        walk(state, environment, capabilities, counts, root, top, 3);
    }
}

fn walk(
    state: &State<Fake>,
    environment: EnvironmentId,
    capabilities: &Capabilities,
    counts: &mut Counts,
    table: FrameNumber,
    index: usize,
    level: u32,
) {
    let word = state.machine.load(table, index);
    if word & entry::PRESENT == 0 {
        assert_eq!(word, 0);
        return;
    }
    assert_ne!(word & (entry::USER | entry::WITHHELD), 0);
    let frame = FrameNumber((word & entry::FRAME_MASK) >> 12);
    let is_large = level == 1 && word & entry::LARGE != 0;
    if level != 0 && !is_large {
        assert_eq!(state.frames.kind(frame), FrameKind::PageTable);
        assert_eq!(state.frames.owner(frame), state.environments[environment].serial);
        assert!(counts.tables.insert(frame.0), "one table, one place");
        for index in 0..512 {
            walk(state, environment, capabilities, counts, frame, index, level - 1);
        }
        return;
    }
    let mut rights = Rights::READ;
    if word & (entry::WRITE | entry::WITHHELD) != 0 {
        rights |= Rights::WRITE;
    }
    if word & entry::NO_EXECUTE == 0 {
        rights |= Rights::EXECUTE;
    }
    let pages = if is_large { 512 } else { 1 };
    match state.frames.kind(frame) {
        FrameKind::Owned => {
            let map = if is_large { &mut counts.large } else { &mut counts.small };
            *map.entry(frame.0).or_default() += 1;
            // While a capability dies, its mappings are being broken: it is still there to be
            // repeated. So are those of frames that are being taken.
            let (first, count) = state.environments[environment].reclaim.in_hand;
            let is_in_hand = (first..first + count).any(|taken| (frame.0..frame.0 + pages).contains(&taken));
            let covers = |first: u64, count: u64| {
                let alive = |c: &Capability| Capability { flags: c.flags & !DYING, ..*c };
                capabilities.iter().any(|(_, c)| alive(c).covers(first, count, rights))
            };
            // A capability that was split under a large page leaves it, and its parts have the authority together: with
            // the first of them that goes, the page does.
            let is_covered = covers(frame.0, pages)
                || is_large && (frame.0..frame.0 + pages).all(|frame| covers(frame, 1))
                || is_in_hand
                || state.environments[environment].is_ending;
            assert!(is_covered, "{frame:?} is mapped without authority in {environment:?}");
        }
        FrameKind::Shared => assert_eq!(rights, Rights::READ),
        FrameKind::Reserved => {
            let has_page = |object: u64| {
                DeviceId::from_index((object & 0xffff) as usize).is_some_and(|id| state.devices[id].has_page(frame.0))
            };
            let covers = |c: &Capability| c.kind == CapType::Device && c.rights.contains(rights) && has_page(c.object);
            let is_covered = capabilities.iter().any(|(_, c)| covers(c));
            assert!(
                is_covered || state.environments[environment].is_ending,
                "{frame:?} of a device is mapped without authority in {environment:?}"
            );
        }
        other => panic!("a frame of kind {other:?} is mapped"),
    }
}

fn check_environment(state: &State<Fake>, environment: EnvironmentId) {
    let object = &state.environments[environment];
    let owned = (0..FRAME_COUNT)
        .map(FrameNumber)
        .filter(|f| state.frames.owner(*f) == object.serial)
        .filter(|f| state.frames.kind(*f) != FrameKind::Free)
        .count() as u64;
    assert_eq!(owned, object.frames_owned, "frames of {environment:?}");
    let donated = (0..FRAME_COUNT)
        .map(FrameNumber)
        .filter(|f| state.frames.owner(*f) == object.serial)
        .filter(|f| state.frames.kind(*f) == FrameKind::Donated)
        .count() as u64;
    assert_eq!(donated, object.donated_count);
    let count = |iterator: &mut dyn Iterator<Item = Option<EnvironmentId>>| {
        iterator.filter(|o| *o == Some(environment)).count()
    };
    let bells = count(&mut state.bells.iter().map(|(_, b)| b.owner));
    let gates = count(&mut state.gates.iter().map(|(_, g)| g.owner));
    let processors = count(&mut state.processors.iter().map(|(_, p)| p.environment));
    let dma = count(&mut state.dma_bindings.iter().map(|b| b.environment));
    let children = count(&mut state.environments.iter().map(|(_, e)| e.parent.filter(|_| e.serial != 0)));
    let spaces = count(&mut state.spaces.iter().map(|(_, s)| s.environment.filter(|_| s.serial != 0)));
    assert_eq!([children, spaces, processors, bells, gates, dma], object.used.map(usize::from));
    assert!(object.used.iter().zip(object.share).all(|(used, share)| *used <= share), "{environment:?}");
}

fn check_tree(state: &State<Fake>, all: &Capabilities) {
    for (at, capability) in all {
        if let Some(parent_at) = capability.parent {
            let parent = state.capability(parent_at).expect("a parent exists");
            assert!(parent.rights.contains(capability.rights));
            assert_eq!(parent.kind, capability.kind);
            assert_eq!(parent.depth + 1, capability.depth);
            if capability.kind == CapType::Frames {
                let end = capability.object + capability.count;
                assert!(capability.object >= parent.object && end <= parent.object + parent.count);
            } else {
                assert_eq!(parent.object, capability.object);
            }
        } else {
            assert!(capability.previous.is_none() && capability.next.is_none());
        }
        match capability.previous {
            Some(previous) => {
                let previous = state.capability(previous).expect("a sibling exists");
                assert_eq!(previous.next, Some(*at));
                assert_eq!(previous.parent, capability.parent);
            }
            None => {
                if let Some(parent) = capability.parent.and_then(|p| state.capability(p)) {
                    assert_eq!(parent.child, Some(*at));
                }
            }
        }
        if let Some(next) = capability.next {
            let next = state.capability(next).expect("a sibling exists");
            assert_eq!(next.previous, Some(*at));
        }
        if let Some(child) = capability.child {
            let child = state.capability(child).expect("a child exists");
            assert_eq!(child.parent, Some(*at));
        }
    }
}

fn check_frames(state: &State<Fake>, live: &[EnvironmentId], counts: &Counts, all: &Capabilities) {
    assert!(state.frames.summaries_hold());
    let mut pins: BTreeMap<u64, u16> = BTreeMap::new();
    let mut pin = |first: u64, count: u64| {
        for frame in first..first + count {
            *pins.entry(frame).or_default() += 1;
        }
    };
    for (_, object) in state.processors.iter().filter(|(_, p)| p.serial != 0) {
        pin(object.pages.first_frame, object.pages.frame_count());
        for term in object.predicate.terms() {
            if let Source::Word { frame, .. } = term.source {
                pin(frame.0, 1);
            }
        }
    }
    for binding in state.dma_bindings.iter().filter(|b| b.environment.is_some()) {
        pin(binding.first, binding.count);
    }
    let mut originals: BTreeMap<u64, EnvironmentId> = BTreeMap::new();
    for environment in live {
        // What is being taken is in no capability: nothing can be bound to it any more.
        let (first, count) = state.environments[*environment].reclaim.in_hand;
        for frame in first..first + count {
            originals.insert(frame, *environment);
            assert!(all.iter().all(|(_, c)| !c.covers(frame, 1, Rights::empty())), "{frame} is in hand");
        }
    }
    for (at, capability) in all {
        if capability.kind == CapType::Frames && capability.parent.is_none() {
            for frame in capability.object..capability.object + capability.count {
                let before = originals.insert(frame, at.environment);
                assert!(before.is_none(), "frame {frame} has two originals");
                assert_eq!(state.frames.kind(FrameNumber(frame)), FrameKind::Owned);
            }
        }
    }
    let serials: BTreeMap<u32, EnvironmentId> = live.iter().map(|e| (state.environments[*e].serial, *e)).collect();
    let mut free = 0;
    for number in 0..FRAME_COUNT {
        let frame = FrameNumber(number);
        let (map_count, pin_count) = state.frames.counts(frame);
        assert_eq!(map_count, counts.small.get(&number).copied().unwrap_or(0), "maps of {number}");
        assert_eq!(pin_count, pins.get(&number).copied().unwrap_or(0), "pins of {number}");
        if number % 512 == 0 {
            let expected = counts.large.get(&number).copied().unwrap_or(0);
            assert_eq!(state.frames.large_count(frame), expected);
        }
        match state.frames.kind(frame) {
            FrameKind::Owned => {
                let owner = serials.get(&state.frames.owner(frame)).expect("an owner lives");
                if state.environments[*owner].root.0 != 0 {
                    assert_eq!(originals.get(&number), Some(owner), "frame {number} has an original");
                }
            }
            FrameKind::Free => {
                free += 1;
                assert_eq!((map_count, pin_count), (0, 0));
            }
            FrameKind::PageTable => {
                assert!(counts.tables.contains(&number), "table {number} is in use");
            }
            _ => assert_eq!((map_count, pin_count), (0, 0)),
        }
    }
    assert_eq!(free, state.frames.free_count());
    for (_, capability) in all {
        assert!(capability.flags & FILLING == 0 || capability.parent.is_none());
    }
}

fn check_processors(state: &State<Fake>) {
    assert!(state.funding_holds());
    let [words, others] = state.sleepers.all(&state.links);
    let asleep: Vec<_> = words.iter().chain(&others).collect();
    let mut waiters: BTreeMap<usize, u32> = BTreeMap::new();
    let mut word_sleepers = 0;
    for id in state.processors.ids() {
        let object = &state.processors[id];
        let is_handed = state.cpus.iter().any(|(_, c)| c.hand_off == Some(id));
        assert!(!is_handed, "nothing is left half handed over");
        assert_eq!(state.is_in_ready(id), object.state() == ProcessorState::Ready, "{id:?}");
        let in_sleepers = asleep.iter().filter(|p| ***p == id).count();
        assert_eq!(in_sleepers, usize::from(object.state() == ProcessorState::Asleep), "{id:?}");
        if object.serial == 0 {
            assert_eq!(object.state(), ProcessorState::Stopped);
            continue;
        }
        let holders: Vec<_> = state.cpus.ids().filter(|c| state.cpus[*c].current == Some(id)).collect();
        assert_eq!(object.cpu(), holders.first().copied());
        assert!(holders.len() <= 1);
        if object.state() == ProcessorState::Running {
            assert_eq!(holders.len(), 1);
        }
        if object.state() != ProcessorState::Stopped {
            let environment = object.environment_id();
            let is_in = |(_, space): (_, &Space)| {
                space.environment == Some(environment) && u64::from(space.root) == object.root.0
            };
            assert!(object.root == state.environments[environment].root || state.spaces.iter().any(is_in));
        }
        assert_eq!(object.state() == ProcessorState::Calling, object.transfer.calling.is_some());
        if let Some(client) = object.transfer.serving {
            let call = state.processors[client].transfer.calling.expect("it calls");
            assert_eq!(call.callee, id);
        }
        for client in object.transfer.callers.members(&state.links) {
            let call = state.processors[client].transfer.calling.expect("it calls");
            assert_eq!(call.callee, id);
        }
        if object.state() != ProcessorState::Asleep {
            assert_eq!(object.predicate.terms().count(), 0);
        }
        let mut has_words = false;
        for term in object.predicate.terms() {
            match term.source {
                Source::Bell(named) => {
                    if state.live_bell(named).is_some() {
                        *waiters.entry(named.id.index()).or_default() += 1;
                    }
                }
                Source::Word { .. } => has_words = true,
                Source::Clock | Source::Never => {}
            }
        }
        word_sleepers += u32::from(has_words);
        assert_eq!(words.contains(&id), has_words && object.state() == ProcessorState::Asleep, "{id:?}");
    }
    assert_eq!(word_sleepers, state.sleepers.count_for_words());
    for bell in state.bells.ids() {
        let expected = waiters.get(&BellId::index(bell)).copied().unwrap_or(0);
        assert_eq!(state.bells[bell].waiter_count(), expected);
        let is_noted = |at_ns| state.alarms.is_noted(bell) && state.alarms.next_ns() <= at_ns;
        assert!(state.bells[bell].alarm().is_none_or(|(at_ns, _)| is_noted(at_ns)), "{bell:?}");
    }
}

/// Every binding has the capability that it was made with.
fn check_authority(state: &State<Fake>, all: &Capabilities) {
    let has = |at: Option<CapRef>, kind: CapType, rights: Rights, object: u64| {
        let capability = at.and_then(|at| state.capability(at)).expect("what was bound has its capability");
        assert_eq!((capability.kind, capability.object), (kind, object), "{at:?}");
        assert!(capability.rights.contains(rights));
    };
    let object = |index: usize, serial: u64| index as u64 | serial << 16;
    for (id, bell) in state.bells.iter().filter(|(_, bell)| bell.serial != 0) {
        if let Some((named, with)) = bell.processor {
            has(Some(with), CapType::Processor, Rights::CONTROL, object(named.id.index(), named.serial));
        }
        if let Some((_, with)) = bell.alarm() {
            has(Some(with), CapType::Bell, Rights::RING, object(id.index(), bell.serial));
        }
    }
    for (_, gate) in state.gates.iter().filter(|(_, gate)| gate.serial != 0) {
        if let Some((named, with)) = gate.processor {
            has(Some(with), CapType::Processor, Rights::CONTROL, object(named.id.index(), named.serial));
        }
    }
    for (id, device) in state.devices.iter() {
        for route in device.routes.iter() {
            if let Some(named) = route.bell {
                let [device_at, bell_at] = route.bound_with.expect("a route says with what it was made");
                has(Some(device_at), CapType::Device, Rights::CONTROL, object(id.index(), 0));
                has(Some(bell_at), CapType::Bell, Rights::RING, object(named.id.index(), named.serial));
            }
        }
    }
    for (id, environment) in state.environments.iter().filter(|(_, e)| e.serial != 0) {
        if let Some((bell, [at, bell_at])) = environment.watch {
            has(Some(at), CapType::Environment, Rights::CONTROL, object(id.index(), environment.serial.into()));
            has(Some(bell_at), CapType::Bell, Rights::RING, object(bell.id.index(), bell.serial));
        }
    }
    let covers = |at: Option<CapRef>, rights: Rights, first: u64, count: u64| {
        let capability = at.and_then(|at| state.capability(at)).expect("what pins frames has a capability");
        // While it is deleted, what was bound with it is being let go of.
        let capability = Capability { flags: capability.flags & !DYING, ..capability };
        assert!(capability.covers(first, count, rights), "{at:?} covers what was bound with it");
    };
    for binding in state.dma_bindings.iter().filter(|binding| binding.environment.is_some()) {
        covers(binding.bound_with, Rights::DMA, binding.first, binding.count);
    }
    for (_, processor) in state.processors.iter().filter(|(_, p)| p.serial != 0) {
        let pages = &processor.pages;
        covers(processor.paid_with, Rights::READ | Rights::WRITE, pages.first_frame, pages.frame_count());
        let own = || all.iter().filter(|(at, _)| Some(at.environment) == processor.environment);
        for term in processor.predicate.terms() {
            let is_authorised = match term.source {
                Source::Word { frame, .. } => own().any(|(_, c)| c.covers(frame.0, 1, Rights::READ)),
                Source::Bell(named) => {
                    let name = object(named.id.index(), named.serial);
                    let is_it = |c: &Capability| c.kind == CapType::Bell && c.object == name;
                    state.live_bell(named).is_none() || own().any(|(_, c)| is_it(c) && c.rights.contains(Rights::WAIT))
                }
                Source::Clock | Source::Never => true,
            };
            assert!(is_authorised, "{:?} is not the sleeper's to see", term.source);
        }
    }
}

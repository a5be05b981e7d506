//! Random calls and touches, compared with a model that knows only pages: one entry per page, no
//! areas, no frames.
//!
//! The processor of the test sees the fake machine's page table and nothing else, and after each
//! step everything that is mapped there must be allowed by the model and hold the model's byte. So
//! a mapping that outlives its area, a store that reaches a shared frame, a frame that was not
//! cleared or a wrong placement fails here.

use std::collections::BTreeMap;
use std::sync::Arc;

use aegis_abi::CapSlot;
use aegis_abi::layout::{PROGRAM_BASE, PROGRAM_END};
use aegis_abi::memory::BindFlags;
use proptest::prelude::*;

use super::test_support::{BASE, BundleFile, CachedFile, PAGE, Setup};
use super::{
    Access, AddressSpace, Advice, FaultOutcome, MapBacking, MapRequest, Movement, Placement, ProtectReach, Protection,
    RemapRequest, SegvReason,
};
use crate::error::Errno;
use crate::fake::FakeAccess;
use crate::mem::Wait;

const FILE_PAGES: u64 = 24;
const BUNDLE_BYTES: usize = 10 * 4096 + 100;
const ARENA_PAGES: u64 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Anonymous,
    Bundle,
    FilePrivate,
    FileShared,
    FileSharedReadOnly,
    SharedMemory,
}

#[derive(Clone, Debug)]
enum Op {
    Map { fixed: bool, page: u64, count: u64, protection: u8, kind: Kind, index: u64 },
    Unmap { page: u64, count: u64 },
    Protect { page: u64, count: u64, protection: u8 },
    Remap { page: u64, old: u64, new: u64, movement: u8, target: u64 },
    DontNeed { page: u64, count: u64 },
    Load { page: u64 },
    Store { page: u64, value: u8 },
    Fetch { page: u64 },
    Fork,
    Switch,
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ModelPage {
    kind: Kind,
    protection: Protection,
    /// Object of shared memory.
    object: u64,
    /// Page in the file or object.
    index: u64,
    /// Private contents, once written.
    private: Option<u8>,
}

type ModelSpace = BTreeMap<u64, ModelPage>;

struct World {
    setup: Setup,
    bundle: Arc<BundleFile>,
    file: Arc<CachedFile>,
    spaces: Vec<(AddressSpace, ModelSpace)>,
    file_bytes: BTreeMap<u64, u8>,
    memory_bytes: BTreeMap<(u64, u64), u8>,
    next_object: u64,
    next_environment: u32,
}

fn arena() -> u64 {
    (BASE >> 12) - ARENA_PAGES
}

fn operations() -> impl Strategy<Value = Vec<Op>> {
    let page = || (0..ARENA_PAGES).prop_map(|page| arena() + page);
    let kind = prop_oneof![
        4 => Just(Kind::Anonymous),
        1 => Just(Kind::Bundle),
        2 => Just(Kind::FilePrivate),
        2 => Just(Kind::FileShared),
        1 => Just(Kind::FileSharedReadOnly),
        1 => Just(Kind::SharedMemory),
    ];
    let map = (any::<bool>(), page(), 1..30_u64, 0..8_u8, kind, 0..FILE_PAGES);
    let operation = prop_oneof![
        6 => map.prop_map(|(fixed, page, count, protection, kind, index)| {
            Op::Map { fixed, page, count, protection, kind, index }
        }),
        3 => (page(), 1..20_u64).prop_map(|(page, count)| Op::Unmap { page, count }),
        4 => (page(), 1..20_u64, 0..8_u8)
            .prop_map(|(page, count, protection)| Op::Protect { page, count, protection }),
        4 => (page(), 0..12_u64, 1..20_u64, 0..3_u8, page()).prop_map(
            |(page, old, new, movement, target)| Op::Remap { page, old, new, movement, target }
        ),
        1 => (page(), 1..20_u64).prop_map(|(page, count)| Op::DontNeed { page, count }),
        10 => page().prop_map(|page| Op::Load { page }),
        25 => (page(), any::<u8>()).prop_map(|(page, value)| Op::Store { page, value }),
        2 => page().prop_map(|page| Op::Fetch { page }),
        3 => Just(Op::Fork),
        2 => Just(Op::Switch),
        1 => Just(Op::Exit),
    ];
    prop::collection::vec(operation, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn an_address_space_behaves_as_its_pages_do(operations in operations()) {
        let mut world = World::new();
        for operation in &operations {
            world.apply(operation);
            world.check();
        }
        world.end();
    }
}

impl World {
    fn new() -> Self {
        let setup = Setup::new();
        let bundle = setup.bundle_file(BUNDLE_BYTES, 0x40);
        let file = CachedFile::new(&setup.pool, FILE_PAGES);
        let space = setup.space();
        Self {
            bundle,
            file,
            spaces: vec![(space, ModelSpace::new())],
            file_bytes: BTreeMap::new(),
            memory_bytes: BTreeMap::new(),
            next_object: 0,
            next_environment: 60,
            setup,
        }
    }

    fn apply(&mut self, operation: &Op) {
        match *operation {
            Op::Map { fixed, page, count, protection, kind, index } => {
                let protection = Protection::from_bits_truncate(protection);
                self.map(fixed, page, count, protection, kind, index);
            }
            Op::Unmap { page, count } => {
                let (space, model) = &mut self.spaces[0];
                space.unmap(page * PAGE, count * PAGE).expect("nothing wrong with it");
                model.retain(|other, _| !(page..page + count).contains(other));
            }
            Op::Protect { page, count, protection } => {
                self.protect(page, count, Protection::from_bits_truncate(protection));
            }
            Op::Remap { page, old, new, movement, target } => {
                self.remap(page, old, new, movement, target);
            }
            Op::DontNeed { page, count } => self.dont_need(page, count),
            Op::Load { page } => self.touch(page, Access::Read, 0),
            Op::Store { page, value } => self.touch(page, Access::Write, value),
            Op::Fetch { page } => self.touch(page, Access::Execute, 0),
            Op::Fork => self.fork(),
            Op::Switch => self.spaces.rotate_left(1),
            Op::Exit => {
                if self.spaces.len() > 1 {
                    self.spaces.remove(0);
                }
            }
        }
    }

    fn map(&mut self, fixed: bool, page: u64, count: u64, protection: Protection, kind: Kind, index: u64) {
        let backing = |source, is_writable| MapBacking::File {
            source,
            offset_bytes: index * PAGE,
            is_readable: true,
            is_writable,
        };
        let backing = match kind {
            Kind::Anonymous | Kind::SharedMemory => MapBacking::Anonymous,
            Kind::Bundle => backing(self.bundle.clone() as Arc<_>, false),
            Kind::FilePrivate | Kind::FileSharedReadOnly => backing(self.file.clone() as Arc<_>, false),
            Kind::FileShared => backing(self.file.clone() as Arc<_>, true),
        };
        let is_shared = matches!(kind, Kind::FileShared | Kind::FileSharedReadOnly | Kind::SharedMemory);
        let placement = if fixed { Placement::Fixed(page * PAGE) } else { Placement::Hint(0) };
        let mut request = MapRequest::anonymous(placement, count * PAGE, protection);
        request.backing = backing;
        request.is_shared = is_shared;
        let (space, model) = &mut self.spaces[0];
        let answer = space.map(request);
        if kind == Kind::FileSharedReadOnly && protection.contains(Protection::WRITE) {
            assert_eq!(answer, Err(Errno::EACCES));
            return;
        }
        let start = answer.expect("nothing wrong with it") / PAGE;
        let expected = if fixed { page } else { highest_hole(model, count) };
        assert_eq!(start, expected, "placement of {count} pages");
        let object = self.next_object;
        self.next_object += 1;
        let first_index = if kind == Kind::SharedMemory { 0 } else { index };
        for offset in 0..count {
            let index = first_index + offset;
            let entry = ModelPage { kind, protection, object, index, private: None };
            model.insert(start + offset, entry);
        }
    }

    fn protect(&mut self, page: u64, count: u64, protection: Protection) {
        let (space, model) = &mut self.spaces[0];
        let answer = space.protect(page * PAGE, count * PAGE, protection, ProtectReach::Range);
        let mut expected = Ok(());
        for page in page..page + count {
            let Some(entry) = model.get_mut(&page) else {
                expected = Err(Errno::ENOMEM);
                break;
            };
            let is_refused = entry.kind == Kind::FileSharedReadOnly && protection.contains(Protection::WRITE);
            if is_refused {
                expected = Err(Errno::EACCES);
                break;
            }
            entry.protection = protection;
        }
        assert_eq!(answer, expected);
    }

    fn remap(&mut self, page: u64, old: u64, new: u64, movement: u8, target: u64) {
        let (space, model) = &mut self.spaces[0];
        let movement = match movement {
            0 => Movement::Never,
            1 => Movement::Anywhere,
            _ => Movement::To(target * PAGE),
        };
        let request = RemapRequest {
            address: page * PAGE,
            old_length: old * PAGE,
            new_length: new * PAGE,
            movement,
            keeps_old: false,
        };
        let Some(first) = model.get(&page).copied() else {
            assert_eq!(space.remap(request), Err(Errno::EFAULT));
            return;
        };
        let overlaps = page + old > target && target + new > page;
        if matches!(movement, Movement::To(_)) && overlaps {
            assert_eq!(space.remap(request), Err(Errno::EINVAL));
            return;
        }
        if let Movement::To(_) = movement {
            model.retain(|other, _| !(target..target + new).contains(other));
        }
        let answer = space.remap(request);
        if old > new {
            // What is cut off goes even when the call then fails; a failure here is only possible before.
            let kept = page + new;
            model.retain(|other, _| !(kept..page + old).contains(other));
        }
        let kept = old.min(new);
        let is_uniform =
            (0..kept).all(|offset| model.get(&(page + offset)).is_some_and(|entry| follows(&first, entry, offset)));
        let start = match answer {
            Ok(start) => start / PAGE,
            Err(error) => {
                let is_explained = match error {
                    // An empty old range may be overwritten by its own target.
                    Errno::EFAULT => !is_uniform || !model.contains_key(&page),
                    Errno::EINVAL => old == 0,
                    Errno::ENOMEM => movement == Movement::Never,
                    _ => false,
                };
                assert!(is_explained, "{error:?} for {request:?}");
                return;
            }
        };
        if start == page && old >= new {
            return;
        }
        assert!(is_uniform, "{request:?} moved several areas");
        let moved: Vec<_> = (0..kept).map(|offset| model.remove(&(page + offset))).collect();
        for offset in 0..new {
            let previous = moved.get(offset as usize).copied().flatten();
            let grown = ModelPage { index: first.index + offset, private: None, ..first };
            let clash = model.insert(start + offset, previous.unwrap_or(grown));
            assert_eq!(clash, None, "{request:?} went where something is");
        }
    }

    fn dont_need(&mut self, page: u64, count: u64) {
        let (space, model) = &mut self.spaces[0];
        let answer = space.advise(page * PAGE, count * PAGE, Advice::DontNeed);
        let mut expected = Ok(());
        for page in page..page + count {
            match model.get_mut(&page) {
                Some(entry) => entry.private = None,
                None => expected = Err(Errno::ENOMEM),
            }
        }
        assert_eq!(answer, expected);
    }

    fn touch(&mut self, page: u64, access: Access, value: u8) {
        let environment = self.spaces[0].0.environment();
        let address = page * PAGE;
        let wanted = match access {
            Access::Read => FakeAccess::Load,
            Access::Write => FakeAccess::Store,
            Access::Execute => FakeAccess::Fetch,
        };
        let expected = self.expected(page, access);
        let mut allowed = self.setup.machine.allows(environment, address, wanted);
        if !allowed {
            let outcome = self.spaces[0].0.handle_fault(address, access, Wait::Allowed);
            match (outcome, expected.clone()) {
                (FaultOutcome::Resolved { pages }, None) => assert!((1..=64).contains(&pages)),
                (outcome, Some(expected)) => assert_eq!(outcome, expected, "{page:#x}"),
                (outcome, None) => panic!("{outcome:?} at {page:#x}"),
            }
            allowed = self.setup.machine.allows(environment, address, wanted);
        }
        assert_eq!(allowed, expected.is_none(), "{access:?} at {page:#x}");
        if !allowed {
            return;
        }
        let byte = self.setup.machine.load(environment, address);
        assert_eq!(byte, Some(self.byte_at(0, page)), "{page:#x}");
        if access == Access::Write {
            self.setup.machine.store(environment, address, value).expect("allowed");
            self.model_store(page, value);
        }
    }

    /// What a fault must end in; `None` for success.
    fn expected(&self, page: u64, access: Access) -> Option<FaultOutcome> {
        let Some(entry) = self.spaces[0].1.get(&page) else {
            return Some(FaultOutcome::Segv(SegvReason::NotMapped));
        };
        let is_allowed = match access {
            Access::Read => !entry.protection.is_empty(),
            Access::Write => entry.protection.contains(Protection::WRITE),
            Access::Execute => entry.protection.contains(Protection::EXECUTE),
        };
        if !is_allowed {
            return Some(FaultOutcome::Segv(SegvReason::NotAllowed));
        }
        let page_count = match entry.kind {
            Kind::Anonymous | Kind::SharedMemory => u64::MAX,
            Kind::Bundle => BUNDLE_BYTES.div_ceil(4096) as u64,
            Kind::FilePrivate | Kind::FileShared | Kind::FileSharedReadOnly => FILE_PAGES,
        };
        let is_beyond = entry.index >= page_count && entry.private.is_none();
        is_beyond.then_some(FaultOutcome::Bus)
    }

    fn byte_at(&self, space: usize, page: u64) -> u8 {
        let entry = self.spaces[space].1[&page];
        if let Some(byte) = entry.private {
            return byte;
        }
        match entry.kind {
            Kind::Anonymous => 0,
            Kind::Bundle => 0x40 + entry.index as u8,
            Kind::SharedMemory => self.memory_bytes.get(&(entry.object, entry.index)).copied().unwrap_or(0),
            Kind::FilePrivate | Kind::FileShared | Kind::FileSharedReadOnly => {
                self.file_bytes.get(&entry.index).copied().unwrap_or(entry.index as u8 + 1)
            }
        }
    }

    fn model_store(&mut self, page: u64, value: u8) {
        let Some(entry) = self.spaces[0].1.get_mut(&page) else {
            return;
        };
        match entry.kind {
            Kind::Anonymous | Kind::Bundle | Kind::FilePrivate => entry.private = Some(value),
            Kind::SharedMemory => {
                self.memory_bytes.insert((entry.object, entry.index), value);
            }
            Kind::FileShared | Kind::FileSharedReadOnly => {
                self.file_bytes.insert(entry.index, value);
            }
        }
    }

    fn fork(&mut self) {
        if self.spaces.len() == 3 {
            return;
        }
        let environment = CapSlot(self.next_environment);
        self.next_environment += 1;
        let (space, model) = &mut self.spaces[0];
        let child = space.clone_cow(environment).expect("memory");
        let model = model.clone();
        self.spaces.push((child, model));
    }

    /// Everything mapped is as the model has it, in every space; pages and areas agree.
    fn check(&mut self) {
        for index in 0..self.spaces.len() {
            let (space, model) = &self.spaces[index];
            let mut pages = 0;
            for area in space.areas() {
                for page in area.start() / PAGE..area.end() / PAGE {
                    let entry = model.get(&page).unwrap_or_else(|| panic!("stray {page:#x}"));
                    assert_eq!(entry.protection, area.protection(), "{page:#x}");
                    pages += 1;
                }
            }
            assert_eq!(pages, model.len() as u64);
            assert_eq!(space.totals().areas.total, pages);
            for (address, mapping) in self.setup.machine.mappings(space.environment()) {
                let page = address / PAGE;
                let (_, model) = &self.spaces[index];
                let entry = model.get(&page).unwrap_or_else(|| panic!("{page:#x} still mapped"));
                assert!(!entry.protection.is_empty());
                let is_executable = mapping.flags.contains(BindFlags::EXECUTE);
                assert_eq!(is_executable, entry.protection.contains(Protection::EXECUTE));
                if mapping.flags.contains(BindFlags::WRITE) {
                    assert!(entry.protection.contains(Protection::WRITE), "{page:#x}");
                }
                let byte = self.setup.machine.load(space.environment(), address);
                let expected = self.byte_at(index, page);
                // A private file page that was not copied yet may still see the file, which is what
                // the model says, too.
                assert_eq!(byte, Some(expected), "{page:#x} of space {index}: {entry:?}");
            }
        }
    }

    fn end(mut self) {
        self.spaces.clear();
        let zero_frame =
            u64::from(self.setup.pool.statistics().held > 0 && self.setup.used() > self.file.cached() as u64);
        assert_eq!(self.setup.used(), self.file.cached() as u64 + zero_frame);
        for environment in 50..self.next_environment {
            assert_eq!(self.setup.machine.mappings(CapSlot(environment)), vec![]);
        }
    }
}

/// Whether a page `offset` pages behind `first` continues it.
fn follows(first: &ModelPage, entry: &ModelPage, offset: u64) -> bool {
    let same_index = match entry.kind {
        Kind::Anonymous => true,
        _ => entry.index == first.index + offset,
    };
    let same_object = entry.kind != Kind::SharedMemory || entry.object == first.object;
    entry.kind == first.kind && entry.protection == first.protection && same_index && same_object
}

/// The naive search: from the base downwards, the first place where nothing is.
fn highest_hole(model: &ModelSpace, count: u64) -> u64 {
    let mut start = (BASE >> 12) - count;
    loop {
        match model.range(start..start + count).next() {
            None => return start,
            Some((&page, _)) => start = page - count,
        }
        assert!((PROGRAM_BASE >> 12..PROGRAM_END >> 12).contains(&start));
    }
}

#[test]
fn a_page_that_a_child_will_store_to_shows_the_file_until_it_does() {
    let page = |place| arena() + place;
    let map =
        |fixed, place, count, kind, index| Op::Map { fixed, page: page(place), count, protection: 2, kind, index };
    let mut world = World::new();
    let operations = [
        map(true, 1, 19, Kind::FilePrivate, 11),
        Op::Fork,
        Op::Switch,
        Op::Store { page: page(2), value: 0 },
        Op::Switch,
        Op::Fork,
        map(true, 30, 3, Kind::FileShared, 12),
        Op::Store { page: page(30), value: 0 },
    ];
    for operation in &operations {
        world.apply(operation);
        world.check();
    }
    world.end();
}

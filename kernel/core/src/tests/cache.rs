//! What the processors of the fake machine may remember of page tables, and the proof that nothing of it is stale.
//!
//! The model keeps whatever Intel's and AMD's manuals let a processor keep: translations of small and large pages and
//! the entries of the three upper levels, each with the rights of the levels above it, filled at any moment from the
//! tables as they are then, also through what was kept before, and never on its own forgotten. It forgets less than any
//! real processor must: a removed page takes along only the upper entries that lead to it (AMD's with translation cache
//! extension; Intel's drop all), and only where that root is loaded. Loading a root forgets everything: the kernel uses
//! no PCIDs and no global user pages.
//!
//! Oracle: when a kernel entry ends, what a processor remembers is what the tables say, with no more rights. Together
//! with `check` (the tables say only what capabilities allow) and with the naive model (`fuzz`), no translation
//! outlives the authority for it.

use std::vec::Vec;

use aegis_abi::call::{Call, FrameAllocate, SpaceCreate, SpaceEnter};
use aegis_abi::layout::{PAGE_TABLE_SLOT, PAGE_TABLE_WINDOW};
use aegis_abi::memory::{BindEntry, BindFlags, BindOperation, entry};
use aegis_abi::types::{CapSlot, FrameNumber, SLOT_SELF, Status};

use super::random::Random;
use super::world::{Fake, Memory, S, World};
use crate::id::EnvironmentId;
use crate::machine::Holders;

/// Translations and upper entries that one processor keeps at most. Real ones keep thousands; a few are found stale as
/// surely, as they are chosen at random, and looking at all of them after every entry stays cheap.
const LEAF_COUNT_MAX: usize = 12;
const UPPER_COUNT_MAX: usize = 8;
const HOT_COUNT_MAX: usize = 8;
/// A new word in a table is followed by a walk once in so many times.
const WALK_EVERY: u64 = 6;
/// The slots of a root that user mode reaches.
const USER_SLOT_COUNT: usize = PAGE_TABLE_SLOT + 1;

/// A translation of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The first page number.
    pub(super) page: u64,
    pub(super) page_count: u64,
    pub(super) frame: u64,
    pub(super) access: Access,
}

/// An entry that leads to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Upper {
    /// 3 of the root, 2 of a page-directory-pointer table, 1 of a directory.
    level: u32,
    /// The page number from that level's index on.
    prefix: u64,
    table: u64,
    access: Access,
}

/// What all levels so far allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) is_writable: bool,
    pub(super) is_executable: bool,
}

impl Access {
    const ALL: Self = Self { is_writable: true, is_executable: true };

    fn through(self, word: u64) -> Self {
        Self {
            is_writable: self.is_writable && word & entry::WRITE != 0,
            is_executable: self.is_executable && word & entry::NO_EXECUTE == 0,
        }
    }

    fn is_within(self, other: Self) -> bool {
        (other.is_writable || !self.is_writable) && (other.is_executable || !self.is_executable)
    }
}

/// A physical processor's cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    /// The root that is loaded; 0 is the kernel's own.
    pub(super) root: u64,
    pub(super) environment: Option<EnvironmentId>,
    pub(super) leaves: Vec<Leaf>,
    uppers: Vec<Upper>,
}

/// The caches of all processors, and when they are filled.
pub(super) struct Caches {
    pub(super) cpus: [Cache; 4],
    /// The physical processor that is in the kernel.
    pub(super) this_cpu: usize,
    random: Random,
    /// Whether walks set accessed and dirty bits, as real ones do. Off where tests compare words of tables.
    pub(super) marks_entries: bool,
    /// No walks at all: the set-up of a search.
    pub(super) is_quiet: bool,
    /// Pages that were flushed of late: programs use an address again.
    hot: Vec<u64>,
}

fn index_at(page: u64, level: u32) -> usize {
    (page >> (9 * level)) as usize % 512
}

fn frame_of(word: u64) -> u64 {
    (word & entry::FRAME_MASK) >> 12
}

/// Whether a word ends a walk at this level.
fn is_leaf(word: u64, level: u32) -> bool {
    level == 0 || (level < 3 && word & entry::LARGE != 0)
}

fn is_user(word: u64) -> bool {
    word & (entry::PRESENT | entry::USER) == entry::PRESENT | entry::USER
}

/// The first word from `from` on that is not 0; passes over zeros many at a time, as most tables are nearly empty.
fn find_word(words: &[u64], from: usize) -> Option<usize> {
    let (chunks, _) = words[from..].as_chunks::<16>();
    let skipped = chunks.iter().take_while(|chunk| chunk.iter().fold(0, |all, word| all | word) == 0).count();
    let begin = from + skipped * 16;
    words[begin..].iter().position(|word| *word != 0).map(|index| begin + index)
}

impl Cache {
    fn load(&mut self, root: u64) {
        self.root = root;
        self.leaves.clear();
        self.uppers.clear();
    }

    fn forget_page(&mut self, page: u64) {
        self.leaves.retain(|leaf| !(leaf.page..leaf.page + leaf.page_count).contains(&page));
        self.uppers.retain(|upper| upper.prefix != page >> (9 * upper.level));
    }

    fn keep_leaf(&mut self, leaf: Leaf, random: &mut Random) {
        if self.leaves.contains(&leaf) {
            return;
        }
        if self.leaves.len() == LEAF_COUNT_MAX {
            let index = random.below(LEAF_COUNT_MAX as u64) as usize;
            self.leaves.swap_remove(index);
        }
        self.leaves.push(leaf);
    }

    fn keep_upper(&mut self, upper: Upper, random: &mut Random) {
        if self.uppers.contains(&upper) {
            return;
        }
        if self.uppers.len() == UPPER_COUNT_MAX {
            let index = random.below(UPPER_COUNT_MAX as u64) as usize;
            self.uppers.swap_remove(index);
        }
        self.uppers.push(upper);
    }

    /// Where a walk for `page` may begin: at the root, or behind an upper entry that is remembered.
    fn begin(&self, page: u64, random: &mut Random) -> (u32, u64, Access) {
        let known: Vec<&Upper> = self.uppers.iter().filter(|upper| upper.prefix == page >> (9 * upper.level)).collect();
        match known.get(random.below(known.len() as u64 + 1) as usize) {
            Some(upper) => (upper.level - 1, upper.table, upper.access),
            None => (3, self.root, Access::ALL),
        }
    }
}

impl Caches {
    pub(super) fn new() -> Self {
        Self {
            cpus: Default::default(),
            this_cpu: 0,
            random: Random::new(1),
            marks_entries: false,
            is_quiet: false,
            hot: Vec::new(),
        }
    }

    /// From now on walks depend on `seed` and leave their marks.
    pub(super) fn begin(&mut self, seed: u64) {
        self.random = Random::new(seed);
        self.marks_entries = true;
        self.is_quiet = false;
    }

    /// What the glue does when it goes on with another virtual processor: loads a root unless it is there.
    pub(super) fn activate(&mut self, root: Option<(FrameNumber, EnvironmentId)>) {
        let cache = &mut self.cpus[self.this_cpu];
        cache.environment = root.map(|(_, environment)| environment);
        match root {
            Some((root, _)) => self.enter_root(root),
            None => cache.load(0),
        }
    }

    pub(super) fn enter_root(&mut self, root: FrameNumber) {
        let cache = &mut self.cpus[self.this_cpu];
        if cache.root != root.0 {
            cache.load(root.0);
        }
    }

    fn holding(&mut self, holders: Holders) -> impl Iterator<Item = &mut Cache> {
        self.cpus.iter_mut().filter(move |cache| match holders {
            Holders::Root(root) => cache.root == root.0,
            Holders::Environment(environment) => cache.environment == Some(environment),
        })
    }

    pub(super) fn flush_pages(&mut self, holders: Holders, address: u64, page_count: u64) {
        let first = (address & 0x0000_ffff_ffff_ffff) >> 12;
        if self.hot.len() == HOT_COUNT_MAX {
            self.hot.remove(0);
        }
        self.hot.push(first + self.random.below(page_count));
        for cache in self.holding(holders) {
            (first..first + page_count).for_each(|page| cache.forget_page(page));
        }
    }

    pub(super) fn flush_all(&mut self, holders: Holders) {
        for cache in self.holding(holders) {
            let root = cache.root;
            cache.load(root);
        }
    }

    /// A page that the tables below a root translate, by chance; `None` where the way ends.
    fn some_page(&mut self, memory: &Memory, root: u64) -> Option<u64> {
        let mut table = root;
        let mut page = 0;
        for level in (0..=3).rev() {
            let end = if level == 3 { USER_SLOT_COUNT } else { 512 };
            let words = memory.get(table)?.get(..end)?;
            let from = self.random.below(end as u64) as usize;
            let index = find_word(words, from).or_else(|| find_word(words, 0))?;
            if !is_user(words[index]) {
                return None;
            }
            page |= (index as u64) << (9 * level);
            if is_leaf(words[index], level) {
                return Some(page | self.random.below(1 << (9 * level)));
            }
            table = frame_of(words[index]);
        }
        None
    }

    /// Walks the tables for a page on a processor and keeps all that it meets.
    pub(super) fn walk(&mut self, memory: &mut Memory, cpu: usize, page: u64) -> Option<Leaf> {
        let (mut level, mut table, mut access) = self.cpus[cpu].begin(page, &mut self.random);
        loop {
            let index = index_at(page, level);
            let word = memory.get(table)?[index];
            if !is_user(word) {
                return None;
            }
            access = access.through(word);
            let is_leaf = is_leaf(word, level);
            if self.marks_entries {
                let dirty = if is_leaf && access.is_writable && self.random.below(2) == 0 { entry::DIRTY } else { 0 };
                memory[table as usize][index] = word | entry::ACCESSED | dirty;
            }
            let cache = &mut self.cpus[cpu];
            if is_leaf {
                let page_count = 1 << (9 * level);
                let leaf = Leaf { page: page & !(page_count - 1), page_count, frame: frame_of(word), access };
                cache.keep_leaf(leaf, &mut self.random);
                return Some(leaf);
            }
            table = frame_of(word);
            cache.keep_upper(Upper { level, prefix: page >> (9 * level), table, access }, &mut self.random);
            level -= 1;
        }
    }

    /// Any processor walks to any page, or does not.
    pub(super) fn speculate(&mut self, memory: &mut Memory) {
        if self.is_quiet || self.random.below(WALK_EVERY) != 0 {
            return;
        }
        let cpu = self.random.below(self.cpus.len() as u64) as usize;
        let root = self.cpus[cpu].root;
        if root == 0 {
            return;
        }
        let page = match self.hot.get(self.random.below(2 * HOT_COUNT_MAX as u64) as usize) {
            Some(page) => Some(*page),
            None => self.some_page(memory, root),
        };
        if let Some(page) = page {
            self.walk(memory, cpu, page);
            // What a program reads of its tables it has used.
            let window = (PAGE_TABLE_WINDOW & 0x0000_ffff_ffff_ffff) >> 12;
            if self.random.below(4) == 0 {
                self.walk(memory, cpu, window + (page >> 9));
            }
        }
    }

    /// Whether everything that is remembered is what the tables say.
    pub(super) fn check(&self, memory: &Memory) {
        for (cpu, cache) in self.cpus.iter().enumerate() {
            for upper in &cache.uppers {
                let now = look_up(memory, cache.root, upper.prefix << (9 * upper.level), upper.level);
                let is_same = now.is_some_and(|(word, access, level)| {
                    level == upper.level && frame_of(word) == upper.table && upper.access.is_within(access)
                });
                assert!(is_same, "processor {cpu} remembers {upper:x?}, the tables say {now:x?}");
            }
            for leaf in &cache.leaves {
                let now = look_up(memory, cache.root, leaf.page, 0);
                let is_same = now.is_some_and(|(word, access, level)| {
                    leaf.page_count == 1 << (9 * level) && frame_of(word) == leaf.frame && leaf.access.is_within(access)
                });
                assert!(is_same, "processor {cpu} remembers {leaf:x?}, the tables say {now:x?}");
            }
        }
    }
}

/// The entry for a page at `level`, or the large page above it, what all levels allow, and at which level it is.
fn look_up(memory: &Memory, root: u64, page: u64, level_end: u32) -> Option<(u64, Access, u32)> {
    let mut table = root;
    let mut access = Access::ALL;
    for level in (level_end..=3).rev() {
        let word = memory.get(table)?[index_at(page, level)];
        if !is_user(word) {
            return None;
        }
        access = access.through(word);
        if level == level_end || is_leaf(word, level) {
            return Some((word, access, level));
        }
        table = frame_of(word);
    }
    None
}

impl Fake {
    /// The processors walk, or do not, at any moment.
    pub(super) fn speculate(&mut self) {
        self.caches.speculate(&mut self.memory);
    }

    /// A processor touches an address, as a program would; what it reaches.
    pub(super) fn touch(&mut self, cpu: usize, address: u64) -> Option<Leaf> {
        self.caches.walk(&mut self.memory, cpu, (address & 0x0000_ffff_ffff_ffff) >> 12)
    }

    pub(super) fn check_caches(&self) {
        self.caches.check(&self.memory);
    }
}

const VA: u64 = 0x4000_0000;

fn entry_of(operation: BindOperation, flags: BindFlags, address: u64, frame: u64, page_count: u32) -> BindEntry {
    let operation = operation as u32;
    BindEntry { operation, flags: flags.bits(), virtual_address: address, frame, page_count, slot: S }
}

/// Where a page's entry is seen in the page-table window.
fn window_of(address: u64) -> u64 {
    PAGE_TABLE_WINDOW + ((address & 0x0000_ffff_ffff_ffff) >> 21 << 12)
}

#[test]
fn a_large_page_and_a_table_in_each_others_place_leave_nothing() {
    let mut world = World::new();
    let allocate = FrameAllocate { slot: CapSlot(S), count: 512, frame: FrameNumber(u64::MAX), alignment_log2: 9 };
    let frame = world.ok(Call::FrameAllocate(allocate));
    let large = BindFlags::LARGE | BindFlags::WRITE;
    let bind = |world: &mut World, operation, flags, page_count| {
        assert_eq!(world.bind(&[entry_of(operation, flags, VA, frame, page_count)]).0, Status::Ok);
        [VA, VA + 0x5000, window_of(VA)].map(|address| world.state.machine.touch(0, address).map(|leaf| leaf.frame))
    };
    for _ in 0..3 {
        let [first, _, table] = bind(&mut world, BindOperation::Map, BindFlags::empty(), 1);
        assert_eq!(first, Some(frame));
        assert!(table.is_some());
        bind(&mut world, BindOperation::Unmap, BindFlags::empty(), 1);
        // The table gives way to a large page, whose first frame then stands where the table was seen.
        let seen = bind(&mut world, BindOperation::Map, large, 512);
        assert_eq!(seen, [Some(frame), Some(frame), Some(frame)]);
        bind(&mut world, BindOperation::Protect, BindFlags::LARGE, 512);
        assert_eq!(bind(&mut world, BindOperation::Unmap, BindFlags::LARGE, 512), [None; 3]);
    }
}

#[test]
fn a_page_of_the_window_is_forgotten_in_every_space() {
    let mut world = World::new();
    let frame = world.frames(S, 1);
    world.processor(S + 2, SLOT_SELF.0);
    world.start(S + 2);
    world.kick(1);
    assert!(world.current(1).is_some());
    world.ok(Call::SpaceCreate(SpaceCreate { slot: CapSlot(S + 5) }));
    world.enter(1, Call::SpaceEnter(SpaceEnter { slot: CapSlot(S + 5) }));
    let far = aegis_abi::layout::LIBOS_BASE + (5 << 39);
    let map = entry_of(BindOperation::Map, BindFlags::WRITE, far, frame, 1);
    assert_eq!(world.bind(&[map]).0, Status::Ok);
    let caches = &world.state.machine.caches;
    assert_ne!(caches.cpus[0].root, caches.cpus[1].root);
    for operation in [BindOperation::Protect, BindOperation::Unmap] {
        for cpu in [0, 1] {
            assert_eq!(world.state.machine.touch(cpu, far).map(|leaf| leaf.frame), Some(frame));
        }
        assert_eq!(world.bind(&[entry_of(operation, BindFlags::empty(), far, 0, 1)]).0, Status::Ok);
    }
    assert_eq!(world.state.machine.touch(1, far), None);
}

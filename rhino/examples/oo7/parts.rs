//! What OO7's database is made of, and how it is traversed. Objects are blocks of the segment's heap, pointers are
//! offsets in it; page 0 of the segment is not the heap's and says where the module and the composite parts are.
#![allow(unsafe_code, reason = "objects are plain memory")]

use rhino::fake::Draws;
use rhino::heap::{self, HeapError, Words};
use rhino::linux::{Mapping, Transaction};
use rhino::{Detector, Error, PAGE_BYTES};

/// Composite parts in the module.
const COMPOSITE_COUNT: usize = 500;
/// Levels of assemblies, the base assemblies' among them.
const LEVEL_COUNT: usize = 7;
/// Assemblies of an assembly, and composite parts of a base assembly.
const CHILD_COUNT: usize = 3;
/// How often T2C changes a part.
const REPEAT_COUNT: u64 = 4;

/// Fields by their number of words.
mod field {
    /// Kinds are texts of 10 characters.
    pub(crate) const KIND_WORDS: u64 = 2;
    pub(crate) const TITLE_WORDS: u64 = 5;
    /// Of everything but connections, documents and the manual.
    pub(crate) const ID: u64 = 0;
    pub(crate) const KIND: u64 = 1;
    pub(crate) const DATE: u64 = 3;

    pub(crate) const X: u64 = 4;
    pub(crate) const Y: u64 = 5;
    pub(crate) const PART_DOCUMENT: u64 = 6;
    pub(crate) const PART_OF: u64 = 7;
    /// The first of the connections that lead here.
    pub(crate) const FROM: u64 = 8;
    /// The connections that lead away.
    pub(crate) const TO: u64 = 9;

    pub(crate) const LINK_KIND: u64 = 0;
    pub(crate) const LINK_LENGTH: u64 = 2;
    pub(crate) const LINK_FROM: u64 = 3;
    pub(crate) const LINK_TO: u64 = 4;
    pub(crate) const LINK_NEXT: u64 = 5;
    pub(crate) const LINK_WORDS: u64 = 6;

    pub(crate) const DOCUMENT: u64 = 4;
    pub(crate) const ROOT_PART: u64 = 5;
    pub(crate) const PARTS: u64 = 6;
    pub(crate) const COMPOSITE_WORDS: u64 = 7;

    pub(crate) const TEXT_OWNER: u64 = 6;
    pub(crate) const TEXT_LENGTH: u64 = 7;
    pub(crate) const TEXT: u64 = 8;

    pub(crate) const MODULE: u64 = 4;
    pub(crate) const PARENT: u64 = 5;
    pub(crate) const CHILDREN: u64 = 6;
    pub(crate) const ASSEMBLY_WORDS: u64 = CHILDREN + super::CHILD_COUNT as u64;

    pub(crate) const MANUAL: u64 = 4;
    pub(crate) const DESIGN_ROOT: u64 = 5;
    pub(crate) const MODULE_WORDS: u64 = 6;
}

/// How large a database is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    part_count: usize,
    link_count: usize,
    document_bytes: usize,
    manual_bytes: usize,
}

/// The paper's, and one for tests.
const CONFIGURATIONS: [Configuration; 4] = [
    Configuration { name: "tiny", part_count: 5, link_count: 3, document_bytes: 20, manual_bytes: 1000 },
    Configuration { name: "small", part_count: 20, link_count: 3, document_bytes: 2000, manual_bytes: 100_000 },
    Configuration { name: "medium-3", part_count: 200, link_count: 3, document_bytes: 20_000, manual_bytes: 1_000_000 },
    Configuration { name: "medium-9", part_count: 200, link_count: 9, document_bytes: 20_000, manual_bytes: 1_000_000 },
];

/// Most bytes that a block of the heap takes.
fn block_bytes(words: usize) -> usize {
    let bytes = words * 8;
    16 + if bytes <= 128 { bytes.next_multiple_of(16) } else { bytes * 5 / 4 + 16 }
}

impl Configuration {
    pub(crate) fn named(name: &str) -> Option<Self> {
        CONFIGURATIONS.into_iter().find(|configuration| configuration.name == name)
    }

    /// Pages that its objects need.
    pub(crate) fn page_count(&self) -> usize {
        let links = self.part_count * self.link_count * block_bytes(field::LINK_WORDS as usize);
        let parts = self.part_count * block_bytes(field::TO as usize + self.link_count) + block_bytes(self.part_count);
        let document = block_bytes(field::TEXT as usize + self.document_bytes / 8 + 1);
        let composite = block_bytes(field::COMPOSITE_WORDS as usize) + links + parts + document;
        let assemblies = 2 * CHILD_COUNT.pow(LEVEL_COUNT as u32 - 1) * block_bytes(field::ASSEMBLY_WORDS as usize);
        let manual = block_bytes(field::TEXT as usize + self.manual_bytes / 8 + 1);
        let bytes = COMPOSITE_COUNT * composite + assemblies + manual + block_bytes(COMPOSITE_COUNT);
        2 + bytes.div_ceil(PAGE_BYTES)
    }

    /// A log that holds what page-grain logging makes of a traversal: all parts, once old and twice new.
    pub(crate) fn log_bytes(&self) -> u64 {
        let parts = COMPOSITE_COUNT * self.part_count * block_bytes(field::TO as usize + self.link_count);
        ((8 * parts) as u64).next_power_of_two().max(8 << 20)
    }

    /// Parts that a traversal visits, and changes that it makes.
    pub(crate) fn expected(&self, traversal: Traversal) -> (u64, u64) {
        let composites = CHILD_COUNT.pow(LEVEL_COUNT as u32) as u64;
        let visited = composites * self.part_count as u64;
        match traversal {
            Traversal::T1 => (visited, 0),
            Traversal::T2A => (visited, composites),
            Traversal::T2B => (visited, visited),
            Traversal::T2C => (visited, visited * REPEAT_COUNT),
        }
    }
}

/// A traversal: all parts of all composite parts of all base assemblies, each composite part as often as one has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traversal {
    /// Changes nothing.
    T1,
    /// Changes the root part of each composite part.
    T2A,
    /// Changes each part.
    T2B,
    /// Changes each part four times.
    T2C,
}

impl Traversal {
    pub(crate) const ALL: [Self; 4] = [Self::T1, Self::T2A, Self::T2B, Self::T2C];

    fn change_count(self, is_root: bool) -> u64 {
        match self {
            Self::T1 => 0,
            Self::T2A => u64::from(is_root),
            Self::T2B => 1,
            Self::T2C => REPEAT_COUNT,
        }
    }
}

/// The objects, within a transaction.
pub(crate) struct Objects<'a> {
    mapping: &'a Mapping,
    transaction: &'a Transaction,
    detector: Detector,
}

impl Words for Objects<'_> {
    fn length_bytes(&self) -> u64 {
        (self.mapping.length() - PAGE_BYTES) as u64
    }
    fn load(&self, at: u64) -> u64 {
        // SAFETY: `word` says that it lies inside; the page is locked to this transaction from here on.
        unsafe { self.word(at).read_volatile() }
    }
    fn store(&mut self, at: u64, word: u64) -> Result<(), Error> {
        self.declare(at, 1)?;
        // SAFETY: as above.
        unsafe { self.word(at).write_volatile(word) };
        Ok(())
    }
}

impl<'a> Objects<'a> {
    pub(crate) fn new(mapping: &'a Mapping, transaction: &'a Transaction, detector: Detector) -> Self {
        Self { mapping, transaction, detector }
    }

    fn word(&self, at: u64) -> *mut u64 {
        assert!(at.is_multiple_of(8) && at < self.length_bytes(), "a pointer leads out of the database: {at}");
        // SAFETY: inside the mapping.
        unsafe { self.mapping.address().add(PAGE_BYTES + at as usize).cast() }
    }

    /// Says that words will be changed, where that has to be said.
    fn declare(&self, at: u64, words: u64) -> Result<(), Error> {
        if self.detector != Detector::SetRange {
            return Ok(());
        }
        self.transaction.set_range(self.mapping, PAGE_BYTES as u64 + at, words * 8)
    }

    /// A word of page 0.
    fn root(&self, index: usize) -> *mut u64 {
        // SAFETY: inside the mapping.
        unsafe { self.mapping.address().cast::<u64>().add(index % (PAGE_BYTES / 8)) }
    }

    fn load_root(&self, index: usize) -> u64 {
        // SAFETY: inside.
        unsafe { self.root(index).read_volatile() }
    }

    fn get(&self, object: u64, field: u64) -> u64 {
        self.load(object + field * 8)
    }

    fn set(&mut self, object: u64, field: u64, value: u64) -> Result<(), Error> {
        self.store(object + field * 8, value)
    }

    /// Fills words with a text.
    fn write_text(&mut self, object: u64, field: u64, words: u64) -> Result<(), Error> {
        (field..field + words).try_for_each(|field| self.set(object, field, u64::from_le_bytes(*b"oo7 text")))
    }

    /// Changes x and y of a part.
    fn change(&mut self, part: u64) -> Result<(), Error> {
        self.declare(part + field::X * 8, 2)?;
        for field in [field::X, field::Y] {
            let place = self.word(part + field * 8);
            // SAFETY: as in `load`.
            unsafe { place.write_volatile(place.read_volatile().wrapping_add(1)) };
        }
        Ok(())
    }

    /// A text with a title: a document, or the manual.
    fn make_text(&mut self, id: u64, owner: u64, bytes: usize) -> Result<u64, HeapError> {
        let words = (bytes as u64).div_ceil(8);
        let text = heap::allocate(self, (field::TEXT + words) * 8)?;
        self.write_text(text, 0, field::TITLE_WORDS)?;
        self.set(text, field::TITLE_WORDS, id)?;
        self.set(text, field::TEXT_OWNER, owner)?;
        self.set(text, field::TEXT_LENGTH, bytes as u64)?;
        self.write_text(text, field::TEXT, words)?;
        Ok(text)
    }

    /// An object with what most have, and as many fields as it wants.
    fn make(&mut self, id: u64, words: u64) -> Result<u64, HeapError> {
        let object = heap::allocate(self, words * 8)?;
        self.set(object, field::ID, id)?;
        self.write_text(object, field::KIND, field::KIND_WORDS)?;
        self.set(object, field::DATE, 1000 + id % 1000)?;
        Ok(object)
    }
}

/// Makes a database in steps, each short enough for a transaction.
pub(crate) struct Builder {
    configuration: Configuration,
    draws: Draws,
    composite_count: usize,
    library: u64,
    module: u64,
    next_assembly: u64,
}

impl Builder {
    pub(crate) fn new(configuration: &Configuration) -> Self {
        let draws = Draws::new(7);
        Self { configuration: *configuration, draws, composite_count: 0, library: 0, module: 0, next_assembly: 1 }
    }

    /// The next step; true if it was the last.
    pub(crate) fn go_on(&mut self, objects: &mut Objects<'_>) -> Result<bool, HeapError> {
        if self.module == 0 {
            self.begin(objects)?;
            return Ok(false);
        }
        if self.composite_count < COMPOSITE_COUNT {
            let composite = self.make_composite(objects)?;
            objects.set(self.library, self.composite_count as u64, composite)?;
            self.composite_count += 1;
            return Ok(false);
        }
        let root = self.make_assembly(objects, 0, 1)?;
        objects.set(self.module, field::DESIGN_ROOT, root)?;
        Ok(true)
    }

    fn begin(&mut self, objects: &mut Objects<'_>) -> Result<(), HeapError> {
        heap::format(objects)?;
        self.module = objects.make(1, field::MODULE_WORDS)?;
        let manual = objects.make_text(1, self.module, self.configuration.manual_bytes)?;
        objects.set(self.module, field::MANUAL, manual)?;
        self.library = heap::allocate(objects, COMPOSITE_COUNT as u64 * 8)?;
        for (index, value) in [self.module, self.library].into_iter().enumerate() {
            // SAFETY: inside the mapping.
            unsafe { objects.root(index).write_volatile(value) };
        }
        Ok(())
    }

    fn make_composite(&mut self, objects: &mut Objects<'_>) -> Result<u64, HeapError> {
        let id = self.composite_count as u64 + 1;
        let Configuration { part_count, link_count, document_bytes, .. } = self.configuration;
        let composite = objects.make(id, field::COMPOSITE_WORDS)?;
        let document = objects.make_text(id, composite, document_bytes)?;
        objects.set(composite, field::DOCUMENT, document)?;
        let list = heap::allocate(objects, part_count as u64 * 8)?;
        objects.set(composite, field::PARTS, list)?;
        let mut parts = Vec::new();
        for number in 0..part_count {
            let part_id = (id - 1) * part_count as u64 + number as u64;
            let part = objects.make(part_id, field::TO + link_count as u64)?;
            for (field, value) in [
                (field::X, 0),
                (field::Y, 0),
                (field::PART_DOCUMENT, document),
                (field::PART_OF, composite),
                (field::FROM, 0),
            ] {
                objects.set(part, field, value)?;
            }
            objects.set(list, number as u64, part)?;
            parts.push(part);
        }
        objects.set(composite, field::ROOT_PART, parts[0])?;
        for (number, &from) in parts.iter().enumerate() {
            for place in 0..link_count {
                // The first connections make a ring, so that every part is reached.
                let other = if place == 0 { (number + 1) % part_count } else { self.draws.below(part_count) };
                self.connect(objects, from, parts[other], place as u64)?;
            }
        }
        Ok(composite)
    }

    fn connect(&mut self, objects: &mut Objects<'_>, from: u64, to: u64, place: u64) -> Result<(), HeapError> {
        let link = heap::allocate(objects, field::LINK_WORDS * 8)?;
        objects.write_text(link, field::LINK_KIND, field::KIND_WORDS)?;
        let next = objects.get(to, field::FROM);
        for (field, value) in [
            (field::LINK_LENGTH, self.draws.below(1000) as u64),
            (field::LINK_FROM, from),
            (field::LINK_TO, to),
            (field::LINK_NEXT, next),
        ] {
            objects.set(link, field, value)?;
        }
        objects.set(to, field::FROM, link)?;
        Ok(objects.set(from, field::TO + place, link)?)
    }

    fn make_assembly(&mut self, objects: &mut Objects<'_>, parent: u64, level: usize) -> Result<u64, HeapError> {
        let assembly = objects.make(self.next_assembly, field::ASSEMBLY_WORDS)?;
        self.next_assembly += 1;
        objects.set(assembly, field::MODULE, self.module)?;
        objects.set(assembly, field::PARENT, parent)?;
        for place in 0..CHILD_COUNT as u64 {
            let child = if level == LEVEL_COUNT {
                objects.get(self.library, self.draws.below(COMPOSITE_COUNT) as u64)
            } else {
                self.make_assembly(objects, assembly, level + 1)?
            };
            objects.set(assembly, field::CHILDREN + place, child)?;
        }
        Ok(assembly)
    }
}

/// Traverses the database; how many parts were visited, and how many changes were made.
pub(crate) fn traverse(
    objects: &mut Objects<'_>,
    configuration: &Configuration,
    traversal: Traversal,
) -> Result<(u64, u64), Error> {
    let root = objects.get(objects.load_root(0), field::DESIGN_ROOT);
    let mut counts = (0, 0);
    let mut visited = vec![false; configuration.part_count];
    let mut assemblies = vec![(root, 1)];
    while let Some((assembly, level)) = assemblies.pop() {
        for place in (0..CHILD_COUNT as u64).rev() {
            let child = objects.get(assembly, field::CHILDREN + place);
            if level < LEVEL_COUNT {
                assemblies.push((child, level + 1));
            } else {
                let root = objects.get(child, field::ROOT_PART);
                visited.fill(false);
                visit(objects, (configuration, traversal), root, &mut visited, &mut counts)?;
            }
        }
    }
    Ok(counts)
}

/// Visits all parts that are reached from the root part of a composite part, depth first.
fn visit(
    objects: &mut Objects<'_>,
    (configuration, traversal): (&Configuration, Traversal),
    root: u64,
    visited: &mut [bool],
    counts: &mut (u64, u64),
) -> Result<(), Error> {
    let mut parts = vec![root];
    while let Some(part) = parts.pop() {
        let id = objects.get(part, field::ID) as usize % configuration.part_count;
        if std::mem::replace(&mut visited[id], true) {
            continue;
        }
        counts.0 += 1;
        for _ in 0..traversal.change_count(part == root) {
            objects.change(part)?;
            counts.1 += 1;
        }
        for place in 0..configuration.link_count as u64 {
            let link = objects.get(part, field::TO + place);
            parts.push(objects.get(link, field::LINK_TO));
        }
    }
    Ok(())
}

/// The sums of x and of y of all parts, which begin as 0.
pub(crate) fn sums(objects: &Objects<'_>, configuration: &Configuration) -> (u64, u64) {
    let library = objects.load_root(1);
    let mut sums = (0, 0);
    for composite in 0..COMPOSITE_COUNT as u64 {
        let list = objects.get(objects.get(library, composite), field::PARTS);
        for number in 0..configuration.part_count as u64 {
            let part = objects.get(list, number);
            sums.0 += objects.get(part, field::X);
            sums.1 += objects.get(part, field::Y);
        }
    }
    sums
}

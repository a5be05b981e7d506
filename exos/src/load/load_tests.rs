//! Loading as a whole: what is where afterwards, byte by byte as the program would see it, and what
//! happens when it cannot be.

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aegis_abi::CapSlot;
use proptest::prelude::*;

use super::elf::ElfError;
use super::elf_tests::{put, put16, put64, sample, segment};
use super::vdso::{VdsoData, VdsoPages, build_vdso};
use super::{
    KnownImages, LoadError, LoadRequest, LoadedProgram, PROGRAM_IMAGE_BASE, Program, ProgramFile, Shifts, mapping_base,
    stack::StartFacts,
};
use crate::error::{Errno, Result};
use crate::fake::{FakeAccess, FakeMachine};
use crate::mem::frames::FixedRun;
use crate::mem::{
    Access, AddressSpace, AreaLabel, FaultOutcome, FileIdentity, FilePage, FramePool, PageError, PageIntent,
    PageSource, SharedState, SpaceLimits, Wait,
};

const TOP: u64 = 0x7fff_ffff_f000;

/// A file in memory, copied to frames when it is read.
struct MemoryFile {
    pool: Arc<FramePool>,
    bytes: Vec<u8>,
    frames: crate::sync::Mutex<BTreeMap<u64, crate::mem::FrameRef>>,
}

impl PageSource for MemoryFile {
    fn page(&self, index: u64, _intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        let start = index as usize * 4096;
        let rest = self.bytes.get(start..).filter(|rest| !rest.is_empty());
        let page = rest.ok_or(PageError::BeyondEnd)?;
        let valid_bytes = page.len().min(4096);
        let mut frames = self.frames.lock();
        let frame = match frames.entry(index) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => {
                let frame = self.pool.allocate_ref().map_err(|_| PageError::OutOfMemory)?;
                self.pool.bytes().write(frame.frame(), 0, &page[..valid_bytes]);
                entry.insert(frame).clone()
            }
        };
        Ok(FilePage { frame, valid_bytes })
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let is_there = self.frames.lock().contains_key(&index);
        is_there.then(|| self.page(index, PageIntent::Read).ok())?
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 1, inode: self.bytes.len() as u64 }
    }

    fn path(&self) -> String {
        "/file".into()
    }
}

struct World {
    machine: Arc<FakeMachine>,
    pool: Arc<FramePool>,
    shared: Arc<SharedState>,
}

impl World {
    fn new(frame_count: u64) -> Self {
        let machine = FakeMachine::with_frames(frame_count);
        let pool = FramePool::new(machine.clone(), machine.clone(), frame_count * 4096);
        let shared = SharedState::new(pool.clone());
        Self { machine, pool, shared }
    }

    fn file(&self, bytes: Vec<u8>) -> ProgramFile {
        let length_bytes = bytes.len() as u64;
        let frames = crate::sync::Mutex::default();
        let source = Arc::new(MemoryFile { pool: self.pool.clone(), bytes, frames });
        ProgramFile { source, length_bytes }
    }

    fn open(&self, bytes: Vec<u8>, interpreter: Result<Vec<u8>>) -> core::result::Result<Program, LoadError> {
        Program::open((&self.pool, &KnownImages::default()), self.file(bytes), &mut |path| {
            assert_eq!(path, b"/lib/ld.so");
            interpreter.clone().map(|bytes| self.file(bytes))
        })
    }

    fn space(&self) -> AddressSpace {
        self.space_of(1)
    }

    fn space_of(&self, slot: u32) -> AddressSpace {
        let limits = SpaceLimits::default();
        let base = mapping_base(limits.stack_bytes, 0);
        AddressSpace::new(self.shared.clone(), CapSlot(slot), base, limits)
    }

    fn used(&self) -> u64 {
        self.pool.statistics().held - self.pool.statistics().free
    }
}

fn request<'a>(arguments: &'a [Vec<u8>], vdso: Option<&'a VdsoPages>) -> LoadRequest<'a> {
    LoadRequest {
        arguments,
        environment: &[],
        executable: b"/bin/sample",
        facts: StartFacts::default(),
        vdso,
        shifts: Shifts::default(),
    }
}

/// A program without `PT_INTERP`; text and data are filled with a pattern.
fn static_sample() -> Vec<u8> {
    let mut file = sample();
    segment(&mut file, 0, [4, 4], [0; 6]);
    for (at, byte) in file.iter_mut().enumerate().skip(0x500) {
        *byte = (at % 251) as u8;
    }
    file
}

fn bytes_at(space: &mut AddressSpace, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xcc; length];
    space.read_exact(address, &mut bytes).expect("mapped");
    bytes
}

#[test]
fn a_static_program_is_where_its_headers_say() {
    let world = World::new(4096);
    let file = static_sample();
    let program = world.open(file.clone(), Err(Errno::ENOENT)).expect("good");
    let mut space = world.space();
    let loaded = program.load(&mut space, &request(&[b"sample".to_vec()], None)).expect("room");
    let base = PROGRAM_IMAGE_BASE;
    assert_eq!(loaded.entry, base + 0x1100);
    assert_eq!(loaded.image.base, base);
    assert_eq!(loaded.image.table_address, base + 64);
    assert_eq!(bytes_at(&mut space, base, 0x1800), file[..0x1800]);
    assert_eq!(bytes_at(&mut space, base + 0x2800, 0x900), file[0x1800..0x2100]);
    assert_eq!(bytes_at(&mut space, base + 0x3100, 0x2f00), vec![0; 0x2f00], "bss to page end");
    assert_eq!(space.write(base + 0x1000, b"x"), Err(Errno::EFAULT), "text is not writable");
    space.write_all(base + 0x5000, b"x").expect("bss is writable");
    let outcome = space.handle_fault(base + 0x2800, Access::Execute, Wait::Allowed);
    assert_eq!(outcome, crate::mem::FaultOutcome::Segv(crate::mem::SegvReason::NotAllowed));
    assert_eq!(space.heap(), base + 0x6000..base + 0x6000);
    assert_eq!(space.set_break(base + 0x7000), base + 0x7000);
    check_stack(&mut space, &loaded);
    space.clear();
    assert_eq!(space.areas().count(), 0);
    drop((space, program));
    assert_eq!(world.used(), 1, "the zero frame");
    assert_eq!(world.machine.mappings(CapSlot(1)), vec![]);
}

fn check_stack(space: &mut AddressSpace, loaded: &LoadedProgram) {
    let stack = space.area_at(loaded.stack_pointer).expect("a stack");
    assert_eq!((stack.label(), stack.end()), (AreaLabel::Stack, TOP));
    assert!(stack.end() - stack.start() >= super::STACK_EXTRA_BYTES);
    let count = bytes_at(space, loaded.stack_pointer, 8);
    assert_eq!(count, 1_u64.to_le_bytes());
    let length = (loaded.arguments.end - loaded.arguments.start) as usize;
    assert_eq!(bytes_at(space, loaded.arguments.start, length), b"sample\0");
    let found = loaded
        .auxiliary
        .chunks(16)
        .any(|pair| pair[..8] == 9_u64.to_le_bytes() && pair[8..] == loaded.image.entry.to_le_bytes());
    assert!(found, "AT_ENTRY is the program's");
}

#[test]
fn a_run_has_what_the_runs_before_it_touched_first_wherever_it_lies() {
    let world = World::new(4096);
    let mut file = static_sample();
    let program = world.open(file.clone(), Err(Errno::ENOENT)).expect("good");
    let places = |loaded: &LoadedProgram| {
        let base = loaded.image.base;
        [(base + 0x1100, Access::Execute), (base + 0x2800, Access::Read), (base + 0x4008, Access::Write)]
    };
    let is_there = |slot: u32, (address, access): (u64, Access)| {
        let access = match access {
            Access::Read => FakeAccess::Load,
            Access::Write => FakeAccess::Store,
            Access::Execute => FakeAccess::Fetch,
        };
        world.machine.allows(CapSlot(slot), address, access)
    };
    let run = |slot: u32, program: &Program, image_pages: u64| {
        let mut space = world.space_of(slot);
        let shifts = Shifts { image_pages, stack_pages: image_pages, heap_pages: 1 };
        let (calls, _) = world.machine.bind_counts();
        let loaded = program.load(&mut space, &LoadRequest { shifts, ..request(&[], None) }).expect("room");
        assert_eq!(world.machine.bind_counts().0 - calls, 1, "one change of the page tables");
        let there = places(&loaded).map(|place| is_there(slot, place));
        for (address, access) in places(&loaded) {
            assert!(matches!(space.handle_fault(address, access, Wait::Allowed), FaultOutcome::Resolved { .. }));
        }
        (space, loaded, there)
    };
    let (mut first, ..) = run(1, &program, 0);
    first.write_all(PROGRAM_IMAGE_BASE + 0x4008, b"its own").expect("writable");
    let (_, _, there) = run(5, &program, 5);
    assert_eq!(there, [false; 3], "what one run alone touched");
    let (mut second, loaded, there) = run(2, &program, 11);
    assert_eq!(there, [true; 3]);
    assert_eq!(bytes_at(&mut second, loaded.image.base, 0x1800), file[..0x1800]);
    assert_eq!(bytes_at(&mut second, loaded.image.base + 0x4008, 7), [0; 7], "what the other stored is the other's");
    // Another file of the same number: what is touched is its own.
    file[0x1100] ^= 0xff;
    let (mut third, loaded, _) = run(3, &world.open(file.clone(), Err(Errno::ENOENT)).expect("good"), 0);
    assert_eq!(bytes_at(&mut third, loaded.image.base, 0x1800), file[..0x1800]);
    // One that is shorter there has nothing where the others touched: it starts all the same.
    let mut short = file;
    segment(&mut short, 2, [1, 6], [0x1800, 0x2800, 0x2800, 0x100, 0x100, 0x1000]);
    let program = world.open(short, Err(Errno::ENOENT)).expect("good");
    let mut space = world.space_of(4);
    let loaded = program.load(&mut space, &request(&[], None)).expect("room");
    assert!(!is_there(4, (loaded.image.base + 0x4008, Access::Read)));
    assert!(matches!(
        space.handle_fault(loaded.image.base + 0x4008, Access::Write, Wait::Allowed),
        FaultOutcome::Segv(_)
    ));
}

#[test]
fn an_interpreter_and_the_vdso_go_to_the_mapping_area() {
    let world = World::new(4096);
    let program = world.open(sample(), Ok(static_sample())).expect("good");
    let vdso = VdsoPages::new(&world.pool, &build_vdso(), &VdsoData::default()).expect("memory");
    let mut space = world.space();
    let loaded = program.load(&mut space, &request(&[], Some(&vdso))).expect("room");
    let interpreter = loaded.interpreter.expect("there is one");
    assert_eq!(loaded.entry, interpreter.base + 0x1100);
    assert_ne!(loaded.entry, loaded.image.entry);
    let vdso_start = loaded.vdso.expect("asked for");
    assert_eq!(bytes_at(&mut space, vdso_start, 4), b"\x7fELF");
    let label = |address| space.area_at(address).map(|area| area.label());
    assert_eq!(label(vdso_start), Some(AreaLabel::Vdso));
    assert_eq!(label(vdso_start - 4096), Some(AreaLabel::Vvar));
    let realtime_offset_ns = 0x1122_3344_u64;
    vdso.set_realtime_offset(realtime_offset_ns);
    let data = bytes_at(&mut space, vdso_start - 4096 + 32, 8);
    assert_eq!(data, realtime_offset_ns.to_le_bytes(), "seen without a fault");
    assert!(interpreter.end <= vdso_start - 4096 && interpreter.start > PROGRAM_IMAGE_BASE);
}

#[test]
fn fixed_programs_and_large_alignments() {
    let world = World::new(4096);
    let mut file = static_sample();
    put16(&mut file, 16, 2);
    put64(&mut file, 24, 0x40_1100);
    put64(&mut file, 64 + 56 + 16, 0x40_0000);
    put64(&mut file, 64 + 112 + 16, 0x40_2800);
    let program = world.open(file, Err(Errno::ENOENT)).expect("good");
    let mut space = world.space();
    let loaded = program.load(&mut space, &request(&[], None)).expect("room");
    assert_eq!((loaded.entry, loaded.image.base), (0x40_1100, 0));
    assert_eq!(bytes_at(&mut space, 0x40_0000, 4), b"\x7fELF");

    let mut aligned = static_sample();
    put64(&mut aligned, 64 + 56 + 48, 0x20_0000);
    let program = world.open(sample(), Ok(aligned)).expect("good");
    let mut space = world.space();
    let loaded = program.load(&mut space, &request(&[], None)).expect("room");
    let interpreter = loaded.interpreter.expect("there is one");
    assert_eq!(interpreter.base % 0x20_0000, 0);
    let shifts = Shifts { image_pages: 3, stack_pages: 5, heap_pages: 7 };
    let mut space = world.space();
    let request = LoadRequest { shifts, ..request(&[], None) };
    let loaded = program.load(&mut space, &request).expect("room");
    assert_eq!(loaded.image.base, PROGRAM_IMAGE_BASE + 3 * 4096);
    assert_eq!(loaded.stack_top, TOP - 5 * 4096);
    assert_eq!(space.heap().start, loaded.image.end + 7 * 4096);
}

#[test]
fn read_only_data_with_a_zero_tail_is_cleared_too() {
    let world = World::new(4096);
    let mut file = static_sample();
    segment(&mut file, 2, [1, 4], [0x1800, 0x2800, 0x2800, 0x100, 0x200, 0x1000]);
    let program = world.open(file, Err(Errno::ENOENT)).expect("good");
    let mut space = world.space();
    program.load(&mut space, &request(&[], None)).expect("room");
    let tail = PROGRAM_IMAGE_BASE + 0x2900;
    assert_eq!(bytes_at(&mut space, tail, 0x700), vec![0; 0x700]);
    assert_eq!(space.write(tail, b"x"), Err(Errno::EFAULT));
}

#[test]
fn what_is_refused_says_why() {
    let world = World::new(4096);
    let mut arm = sample();
    put16(&mut arm, 18, 183);
    let error = world.open(arm.clone(), Err(Errno::ENOENT)).err().expect("refused");
    assert_eq!(error.to_string(), "built for another processor (ARM, 64 bits)");
    assert_eq!(error.errno(), Errno::ENOEXEC);
    let error = world.open(sample(), Err(Errno::ENOENT)).err().expect("refused");
    assert_eq!(error.errno(), Errno::ENOENT);
    assert!(error.to_string().contains("/lib/ld.so"), "{error}");
    let error = world.open(sample(), Ok(arm)).err().expect("refused");
    let path = b"/lib/ld.so".to_vec();
    assert_eq!(error, LoadError::Interpreter { path, error: ElfError::WrongMachine(183) });
    let error = world.open(vec![], Err(Errno::ENOENT)).err().expect("refused");
    assert_eq!(error.to_string(), "the file is empty");

    let program = world.open(static_sample(), Err(Errno::ENOENT)).expect("good");
    let long = [vec![b'a'; 200_000]];
    let mut space = world.space();
    let error = program.load(&mut space, &request(&long, None)).expect_err("refused");
    assert_eq!(error.errno(), Errno::E2BIG);
    assert_eq!(space.areas().count(), 0, "nothing was touched");
}

#[test]
fn a_segment_larger_than_memory_is_refused() {
    let world = World::new(256);
    let mut file = static_sample();
    put64(&mut file, 64 + 112 + 40, 0x100_0000);
    let program = world.open(file, Err(Errno::ENOENT)).expect("good headers");
    let mut space = world.space();
    let error = program.load(&mut space, &request(&[], None)).expect_err("16 MiB of 1");
    assert_eq!(error.errno(), Errno::ENOMEM);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// Whatever the headers say, loading ends in a program or a message, and clearing the space
    /// gives all frames back.
    #[test]
    fn damaged_programs_leave_nothing_behind(
        stores in prop::collection::vec(
            (16..288_usize, prop_oneof![any::<u64>(), 0..0x6000_u64, Just(u64::MAX)], 1..=8_usize),
            0..4,
        ),
    ) {
        let world = World::new(512);
        let mut file = static_sample();
        for (at, value, width) in stores {
            put(&mut file, at, &value.to_le_bytes()[..width]);
        }
        let images = KnownImages::default();
        let program = Program::open((&world.pool, &images), world.file(file), &mut |_| Err(Errno::ENOENT));
        if let Ok(program) = program {
            let mut space = world.space();
            let _ = program.load(&mut space, &request(&[], None));
            drop((space, program));
        }
        prop_assert!(world.used() <= 1, "only the zero frame");
        prop_assert_eq!(world.machine.mappings(CapSlot(1)), vec![]);
    }
}

/// A file of the boot bundle, as far as nobody has written to it.
struct Bundled {
    file: MemoryFile,
    is_written: core::sync::atomic::AtomicBool,
    read_count: core::sync::atomic::AtomicUsize,
}

impl PageSource for Bundled {
    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        self.read_count.fetch_add(1, Ordering::Relaxed);
        self.file.page(index, intent)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        self.file.resident_page(index)
    }

    fn fixed_run(&self, indices: core::ops::Range<u64>) -> Option<FixedRun> {
        let count = indices.end.min(self.file.bytes.len() as u64 / 4096).checked_sub(indices.start)?;
        let is_fixed = count > 0 && !self.is_written.load(Ordering::Relaxed);
        is_fixed.then_some(FixedRun { first: aegis_abi::FrameNumber(7000 + indices.start), count })
    }

    fn identity(&self) -> FileIdentity {
        self.file.identity()
    }

    fn path(&self) -> String {
        self.file.path()
    }
}

#[test]
fn headers_are_read_once_as_long_as_nobody_can_have_changed_them() {
    let world = World::new(64);
    let images = KnownImages::default();
    let bundled = |bytes: Vec<u8>| {
        let frames = crate::sync::Mutex::default();
        let file = MemoryFile { pool: world.pool.clone(), bytes, frames };
        Arc::new(Bundled { file, is_written: false.into(), read_count: 0.into() })
    };
    let mut bytes = static_sample();
    bytes.resize(3 * 4096, 0);
    let first = bundled(bytes.clone());
    let entry_of = |source: &Arc<Bundled>| {
        let length_bytes = source.file.bytes.len() as u64;
        let file = ProgramFile { source: source.clone(), length_bytes };
        let program = Program::open((&world.pool, &images), file, &mut |_| Err(Errno::ENOENT)).expect("a program");
        (program.image().entry, source.read_count.swap(0, Ordering::Relaxed) > 0)
    };
    let (entry, was_read) = entry_of(&first);
    assert!(was_read);
    assert_eq!(entry_of(&first), (entry, false));
    // The same place with another length is another file.
    let mut longer = bytes.clone();
    longer.resize(4 * 4096, 0);
    assert_eq!(entry_of(&bundled(longer)), (entry, true));
    // One that was written to is read each time, and what it says is told to nobody else.
    put64(&mut bytes, 24, entry + 16);
    let other = bundled(bytes);
    other.is_written.store(true, Ordering::Relaxed);
    assert_eq!(entry_of(&other), (entry + 16, true));
    assert_eq!(entry_of(&other), (entry + 16, true));
    assert_eq!(entry_of(&first), (entry, false));
}

//! A machine of plain memory, and a driver that enters the kernel as its environments would.

use core::cell::Cell;
use core::ops::{Index, IndexMut};
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use aegis_abi::boot::{BUNDLE_MAGIC, BUNDLE_VERSION, FLAT_EXECUTE, FLAT_MAGIC, FLAT_WRITE, PART_INIT};
use aegis_abi::call::{Call, SpaceEnter};
use aegis_abi::device::{DEVICE_REGION_COUNT_MAX, DeviceKind};
use aegis_abi::layout::{FIRST_SAVE_AREA_BASE, LIBOS_BASE, LIBOS_IMAGE_BASE, PAGE_SHIFT};
use aegis_abi::memory::BindEntry;
use aegis_abi::sleep::Term;
use aegis_abi::types::{CapSlot, FrameNumber, Status};
use aegis_abi::upcall::UpcallFrame;

use super::cache::Caches;
use crate::boot::{FirstEnvironment, Setup};
use crate::entry::Decision;
use crate::id::{CpuId, DeviceId, EnvironmentId, Id, ProcessorId};
use crate::machine::{Extension, Holders, StopReport};
use crate::object::{BlockEntry, DeviceDescription, FrameEntry, Pages, Region};
use crate::{Machine, State};

pub(super) const FRAME_COUNT: u64 = 4096;
pub(super) const TEMPLATE_ROOT: u64 = 1;
pub(super) const SYSTEM_PAGE: u64 = 2;
pub(super) const BUNDLE: u64 = 16;
pub(super) const BUNDLE_FRAME_COUNT: u64 = 5;
const FREE: u64 = 64;
pub(super) const SLICE_NS: u64 = 10_000_000;
/// Most words that one kernel entry may read and write, whatever it does.
pub(super) const WORDS_PER_ENTRY_MAX: u64 = 32 * 1024;
/// Where tests put what the kernel reads from the caller.
pub(super) const SCRATCH: u64 = FIRST_SAVE_AREA_BASE;
/// Code of the library OS.
pub(super) const CODE: u64 = LIBOS_IMAGE_BASE;
/// A slot that tests number theirs from.
pub(super) const S: u32 = 100;
/// Memory device region of the PCI function.
pub(super) const DEVICE_FRAME: u64 = 0xfeb00;

/// Frames, made when they are first written to: most of them never are.
pub(super) struct Memory(Vec<Frame>);

enum Frame {
    Untouched,
    Zero,
    Written(Box<[u64; 512]>),
}

/// What memory holds that somebody had before: what is not zeroed shows.
const USED_BEFORE: [u64; 512] = [0xdead_beef; 512];
const NEVER_USED: [u64; 512] = [0; 512];

impl Memory {
    fn untouched(frame: usize) -> &'static [u64; 512] {
        const { assert!(FREE < FRAME_COUNT) };
        if frame < FREE as usize { &NEVER_USED } else { &USED_BEFORE }
    }

    fn zero(&mut self, frame: usize) {
        self.0[frame] = Frame::Zero;
    }

    /// A frame, if there is one of that number.
    pub(super) fn get(&self, frame: u64) -> Option<&[u64; 512]> {
        (frame < FRAME_COUNT).then(|| &self[frame as usize])
    }
}

impl Index<usize> for Memory {
    type Output = [u64; 512];

    fn index(&self, frame: usize) -> &[u64; 512] {
        match &self.0[frame] {
            Frame::Untouched => Self::untouched(frame),
            Frame::Zero => &NEVER_USED,
            Frame::Written(words) => words,
        }
    }
}

impl IndexMut<usize> for Memory {
    fn index_mut(&mut self, frame: usize) -> &mut [u64; 512] {
        if !matches!(self.0[frame], Frame::Written(_)) {
            self.0[frame] = Frame::Written(Box::new(self[frame]));
        }
        match &mut self.0[frame] {
            Frame::Written(words) => words,
            _ => unreachable!("it was just made"),
        }
    }
}

pub(super) struct Fake {
    pub(super) extension: Option<&'static dyn Extension<Self>>,
    pub(super) memory: Memory,
    pub(super) caches: Caches,
    pub(super) now_ns: u64,
    pub(super) zeroed: u64,
    /// Words read and written since the kernel was entered.
    pub(super) words: Cell<u64>,
    pub(super) flushed: Vec<u64>,
    /// The processors that had to forget, flush by flush.
    pub(super) holders: Vec<Holders>,
    /// Processors that were made, with their control pages, and the GS bases that were set for what runs.
    pub(super) made: Vec<(usize, FrameNumber)>,
    pub(super) gs_bases: Vec<u64>,
    /// The root that a processor went on with.
    pub(super) entered_root: Option<FrameNumber>,
    pub(super) flushed_all: u64,
    pub(super) kicked: Vec<CpuId>,
    pub(super) log: Vec<u8>,
    pub(super) power_off: Option<u32>,
    pub(super) first_stopped: Option<StopReport>,
    pub(super) ports: Vec<(u16, u32)>,
    pub(super) enabled: Vec<(usize, bool)>,
    pub(super) unmasked: Vec<(usize, usize)>,
    /// Calls that a reset takes before the function is at rest, and how many are left of the one under way.
    pub(super) reset_steps: [usize; 2],
    /// How much later it is at each look at the clock, and how many there were.
    pub(super) look_ns: u64,
    pub(super) clock_looks: core::cell::Cell<u64>,
    /// Functions that came to rest.
    pub(super) reset: Vec<usize>,
    /// Where interrupts were sent, the last first.
    pub(super) routed: Vec<(usize, usize, usize)>,
    /// Interrupts that share the line [`SHARED_LINE`], and which of them their functions raise.
    pub(super) sharers: Vec<(usize, usize)>,
    pub(super) raised: Vec<(usize, usize)>,
}

/// The source of a line that several functions have; what is below are a function's own.
pub(super) const SHARED_LINE: usize = 0x1000;

impl Fake {
    fn count_words(&self, count: usize) {
        self.words.set(self.words.get() + count as u64);
    }
}

impl Machine for Fake {
    fn extension(&self) -> Option<&'static dyn Extension<Self>> {
        self.extension
    }

    fn load(&self, frame: FrameNumber, word_index: usize) -> u64 {
        self.count_words(1);
        self.memory[frame.0 as usize][word_index]
    }
    fn store(&mut self, frame: FrameNumber, word_index: usize, value: u64) {
        self.speculate();
        self.count_words(1);
        self.memory[frame.0 as usize][word_index] = value;
        self.speculate();
    }
    fn find_word(&self, frame: FrameNumber, from: usize, wanted: impl Fn(u64) -> bool) -> Option<(usize, u64)> {
        let words = self.memory[frame.0 as usize].iter().copied().enumerate();
        let found = words.skip(from).find(|(_, word)| wanted(*word));
        self.count_words(found.map_or(512, |found| found.0 + 1).saturating_sub(from));
        found
    }
    fn words<const COUNT: usize>(&self, frame: FrameNumber) -> impl Fn(usize) -> [u64; COUNT] {
        move |index| {
            self.count_words(COUNT);
            *self.memory[frame.0 as usize][index..].first_chunk().expect("the words are in the frame")
        }
    }
    fn store_words<const COUNT: usize>(&mut self, frame: FrameNumber, word_index: usize, values: [u64; COUNT]) {
        self.count_words(COUNT);
        self.memory[frame.0 as usize][word_index..][..COUNT].copy_from_slice(&values);
    }
    fn compare_exchange(&mut self, frame: FrameNumber, word_index: usize, old: u64, new: u64) -> Result<(), u64> {
        self.speculate();
        self.count_words(1);
        let word = &mut self.memory[frame.0 as usize][word_index];
        if *word == old {
            *word = new;
            Ok(())
        } else {
            Err(*word)
        }
    }
    fn zero_frame(&mut self, frame: FrameNumber) {
        self.zeroed += 1;
        // By cache lines.
        self.count_words(64);
        self.memory.zero(frame.0 as usize);
        self.speculate();
    }
    fn vector_init(&mut self, frame: FrameNumber) {
        self.memory[frame.0 as usize][0] = 0x37f;
    }
    fn context_made(&mut self, processor: ProcessorId, pages: &Pages, vector_state: FrameNumber) {
        assert_eq!(self.memory[vector_state.0 as usize][0], 0x37f, "its vector state is there");
        self.made.push((processor.index(), pages.control()));
    }
    fn set_gs_base(&mut self, address: u64) {
        self.gs_bases.push(address);
    }
    fn now_ns(&self) -> u64 {
        let looks = self.clock_looks.get() + 1;
        self.clock_looks.set(looks);
        self.now_ns + looks * self.look_ns
    }
    fn flush_pages(&mut self, holders: Holders, virtual_address: u64, page_count: u64) {
        assert!((1..=32).contains(&page_count));
        self.speculate();
        self.caches.flush_pages(holders, virtual_address, page_count);
        self.flushed.extend((0..page_count).map(|page| virtual_address + (page << PAGE_SHIFT)));
        self.holders.push(holders);
    }
    fn flush_all(&mut self, holders: Holders) {
        self.speculate();
        self.caches.flush_all(holders);
        self.flushed_all += 1;
        self.holders.push(holders);
    }
    fn enter_root(&mut self, root: FrameNumber) {
        self.speculate();
        self.caches.enter_root(root);
        self.entered_root = Some(root);
    }
    fn kick(&mut self, cpu: CpuId) {
        self.kicked.push(cpu);
    }
    fn port_read(&mut self, port: u16, _: u32) -> u32 {
        u32::from(port) + 1
    }
    fn port_write(&mut self, port: u16, _: u32, value: u32) {
        self.ports.push((port, value));
    }
    fn config_read(&mut self, location: u32, offset: u32) -> u32 {
        location << 16 | offset
    }
    fn device_enable(&mut self, device: DeviceId, enable: bool) {
        self.enabled.push((device.index(), enable));
    }
    fn device_reset(&mut self, device: DeviceId) -> bool {
        let [steps, left] = &mut self.reset_steps;
        if *left == 0 {
            self.enabled.push((device.index(), false));
            *left = *steps + 1;
        }
        *left -= 1;
        if *left == 0 {
            self.reset.push(device.index());
        }
        *left == 0
    }
    fn interrupt_route(&mut self, device: DeviceId, interrupt: usize, cpu: CpuId) -> bool {
        self.routed.insert(0, (device.index(), interrupt, cpu.index()));
        cpu.index() < 4
    }
    fn next_raised(&mut self, source: usize) -> Option<(DeviceId, usize, usize)> {
        if source < SHARED_LINE {
            let number = source.checked_sub(1)?;
            return Some((DeviceId::from_index(number / 256)?, number % 256, 0));
        }
        let from = source - SHARED_LINE;
        let is_raised = |at: &usize| {
            let sharer = self.sharers[*at];
            self.raised.contains(&sharer) && self.unmasked.contains(&sharer)
        };
        let at = (from..self.sharers.len()).find(is_raised)?;
        let (device, interrupt) = self.sharers[at];
        Some((DeviceId::from_index(device)?, interrupt, SHARED_LINE + at + 1))
    }
    fn interrupt_mask(&mut self, device: DeviceId, interrupt: usize, is_masked: bool) {
        self.unmasked.retain(|u| *u != (device.index(), interrupt));
        if !is_masked {
            self.unmasked.push((device.index(), interrupt));
        }
    }
    fn log(&mut self, bytes: &[u8]) -> usize {
        self.log.extend_from_slice(bytes);
        bytes.len()
    }
    fn power_off(&mut self, code: u32) {
        self.power_off = Some(code);
    }
    fn first_environment_stopped(&mut self, report: StopReport) {
        self.first_stopped = Some(report);
    }
}

pub(super) fn pci_function() -> DeviceDescription {
    let mut regions = [Region::HOLE; DEVICE_REGION_COUNT_MAX];
    regions[0] = Region {
        base: DEVICE_FRAME << PAGE_SHIFT,
        length_bytes: 4 << PAGE_SHIFT,
        reserved_page_first: 2,
        reserved_page_count: 1,
        ..Region::HOLE
    };
    regions[2] = Region { is_ports: true, base: 0xc000, length_bytes: 0x20, ..Region::HOLE };
    DeviceDescription {
        kind: DeviceKind::Pci,
        identity: 0x1043_1af4,
        location: 0x18,
        class: 0x07_8000,
        regions,
        interrupt_count: 2,
    }
}

/// Two functions in the second page of the first one, as virtio-mmio blocks are.
pub(super) fn mmio_function(number: u64) -> DeviceDescription {
    let mut regions = [Region::HOLE; DEVICE_REGION_COUNT_MAX];
    let base = ((DEVICE_FRAME + 1) << PAGE_SHIFT) + number * 0x200;
    regions[0] = Region { base, length_bytes: 0x200, ..Region::HOLE };
    DeviceDescription { location: 0x20 + number as u32, regions, interrupt_count: 1, ..pci_function() }
}

pub(super) struct World {
    pub(super) state: Box<State<'static, Fake>>,
    /// Whether transfers are tried at once, as the glue does it.
    pub(super) transfers_at_once: bool,
    /// The registers of each processor's user mode.
    pub(super) frame: [UpcallFrame; 4],
    pub(super) last: [Option<Decision>; 4],
    pub(super) first: EnvironmentId,
    pub(super) first_processor: ProcessorId,
    /// Off where a test checks less often than at every entry.
    pub(super) check_after_entry: bool,
    /// Words of the entry that read and wrote most.
    pub(super) words_max: u64,
}

pub(super) fn cpu(index: usize) -> CpuId {
    CpuId::from_index(index).expect("few processors")
}

/// The tables of the machine's memory.
pub(super) type FrameTables = (&'static mut [FrameEntry], &'static mut [BlockEntry]);

/// A machine that is ready for `start_first_environment`.
pub(super) fn machine() -> Box<State<'static, Fake>> {
    extended_machine(None)
}

fn extended_machine(extension: Option<&'static dyn Extension<Fake>>) -> Box<State<'static, Fake>> {
    // A debug build holds several copies of the state on the stack before it is boxed, more than a test's stack takes.
    let builder = std::thread::Builder::new().stack_size(16 << 20);
    let boxing = builder.spawn(|| Box::new(State::new(fake()))).expect("a thread");
    let mut state = boxing.join().expect("it is only moved");
    state.machine.extension = extension;
    ready(state, frame_tables())
}

fn frame_tables() -> FrameTables {
    let blocks = vec![BlockEntry::EMPTY; (FRAME_COUNT / 512) as usize];
    (vec![FrameEntry::RESERVED; FRAME_COUNT as usize].leak(), blocks.leak())
}

fn fake() -> Fake {
    Fake {
        extension: None,
        memory: Memory((0..FRAME_COUNT).map(|_| Frame::Untouched).collect()),
        caches: Caches::new(),
        now_ns: 1000,
        zeroed: 0,
        words: Cell::new(0),
        flushed: Vec::new(),
        holders: Vec::new(),
        made: Vec::new(),
        gs_bases: Vec::new(),
        entered_root: None,
        flushed_all: 0,
        kicked: Vec::new(),
        log: Vec::new(),
        power_off: None,
        first_stopped: None,
        ports: Vec::new(),
        enabled: Vec::new(),
        unmasked: Vec::new(),
        reset_steps: [0; 2],
        look_ns: 0,
        clock_looks: core::cell::Cell::new(0),
        reset: Vec::new(),
        routed: Vec::new(),
        sharers: Vec::new(),
        raised: Vec::new(),
    }
}

fn ready(mut state: Box<State<'static, Fake>>, (frames, blocks): FrameTables) -> Box<State<'static, Fake>> {
    for index in 265..512 {
        state.machine.memory[TEMPLATE_ROOT as usize][index] = (index as u64) << 12 | 0x7;
    }
    let setup = Setup {
        frames,
        blocks,
        template_root: FrameNumber(TEMPLATE_ROOT),
        system_page: FrameNumber(SYSTEM_PAGE),
        slice_ns: SLICE_NS,
        lottery_key: [1, 2],
    };
    state.init(setup).expect("tables fit");
    state.add_free_frames(FrameNumber(FREE), FRAME_COUNT - FREE);
    for device in [pci_function(), mmio_function(1), mmio_function(2)] {
        state.add_device(device).expect("room for a device");
    }
    write_bundle(&mut state);
    state
}

/// A bundle of header, image header, one code page, two data pages.
pub(super) fn write_bundle(state: &mut State<Fake>) {
    let memory = &mut state.machine.memory;
    let header = &mut memory[BUNDLE as usize];
    header[0] = BUNDLE_MAGIC;
    header[1] = u64::from(BUNDLE_VERSION) | 1 << 32;
    header[2] = u64::from(PART_INIT);
    header[3] = 4096;
    header[4] = 4 * 4096;
    let image = &mut memory[BUNDLE as usize + 1];
    image[0] = FLAT_MAGIC;
    image[1] = u64::from(BUNDLE_VERSION) | 2 << 32;
    image[2] = CODE + 0x10;
    image[3] = CODE;
    image[4] = 1 | 1 << 32;
    image[5] = u64::from(FLAT_EXECUTE);
    image[6] = CODE + 0x1000;
    image[7] = 2 | 2 << 32;
    image[8] = u64::from(FLAT_WRITE);
}

pub(super) const FIRST: FirstEnvironment =
    FirstEnvironment { bundle_frame: FrameNumber(BUNDLE), bundle_frame_count: BUNDLE_FRAME_COUNT };

impl World {
    /// The first environment runs on processor 0.
    pub(super) fn new() -> Self {
        Self::begin(machine(), true)
    }

    /// The same of an extended kernel.
    pub(super) fn extended(extension: &'static dyn Extension<Fake>) -> Self {
        Self::begin(extended_machine(Some(extension)), true)
    }

    /// A world made on this thread's stack, which is large, with tables that another one had.
    pub(super) fn new_here(tables: Option<FrameTables>) -> Self {
        let mut state = Box::new(State::new(fake()));
        state.machine.caches.is_quiet = true;
        Self::begin(ready(state, tables.unwrap_or_else(frame_tables)), false)
    }

    /// The tables of a world that is not needed any more.
    pub(super) fn into_tables(mut self) -> Option<FrameTables> {
        self.state.frames.take_tables()
    }

    fn begin(mut state: Box<State<'static, Fake>>, check_after_entry: bool) -> Self {
        let first_processor = state.start_first_environment(FIRST).expect("it starts");
        let first = state.first_environment.expect("there is one");
        let mut world = Self {
            state,
            frame: [UpcallFrame::default(); 4],
            last: [None; 4],
            first,
            first_processor,
            transfers_at_once: true,
            check_after_entry,
            words_max: 0,
        };
        world.kick(0);
        assert_eq!(world.current(0), Some(first_processor));
        world
    }

    pub(super) fn current(&self, index: usize) -> Option<ProcessorId> {
        self.state.cpus[cpu(index)].current
    }

    /// What the glue does after an entry: loads what was decided.
    pub(super) fn entered(&mut self, index: usize, decision: Decision) -> Decision {
        self.last[index] = Some(decision);
        let words = self.state.machine.words.get();
        assert!(words <= WORDS_PER_ENTRY_MAX, "an entry read and wrote {words} words");
        self.words_max = self.words_max.max(words);
        assert_eq!(decision.next, self.current(index));
        if decision.is_switch() {
            let next = decision.next.map(|processor| self.state.context(processor));
            self.state
                .machine
                .caches
                .activate(next.map(|context| (context.root, context.environment.expect("it runs"))));
        }
        self.state.machine.speculate();
        self.state.machine.check_caches();
        if self.check_after_entry {
            self.check();
        }
        decision
    }

    pub(super) fn kick(&mut self, index: usize) -> Decision {
        self.state.machine.caches.this_cpu = index;
        self.state.machine.words.set(0);
        let decision = self.state.on_kick(cpu(index), &mut self.frame[index]);
        self.entered(index, decision)
    }

    pub(super) fn timer(&mut self, index: usize) -> Decision {
        self.state.machine.caches.this_cpu = index;
        self.state.machine.words.set(0);
        let decision = self.state.on_timer(cpu(index), &mut self.frame[index]);
        self.entered(index, decision)
    }

    pub(super) fn exception(&mut self, index: usize, vector: u64, address: u64) -> Decision {
        self.state.machine.caches.this_cpu = index;
        self.state.machine.words.set(0);
        self.frame[index].vector = vector;
        self.frame[index].error_code = 6;
        self.frame[index].fault_address = address;
        let decision = self.state.on_exception(cpu(index), &mut self.frame[index]);
        self.entered(index, decision)
    }

    pub(super) fn interrupt(&mut self, index: usize, device: usize, interrupt: usize) -> Decision {
        self.source(index, device * 256 + interrupt + 1)
    }

    /// An interrupt by its source, which may be a line of several functions.
    pub(super) fn source(&mut self, index: usize, source: usize) -> Decision {
        self.state.machine.caches.this_cpu = index;
        self.state.machine.words.set(0);
        let decision = self.state.on_interrupt(cpu(index), &mut self.frame[index], source);
        self.entered(index, decision)
    }

    /// A program's own `syscall`.
    pub(super) fn enter_program(&mut self, index: usize) -> Decision {
        self.state.machine.caches.this_cpu = index;
        self.state.machine.words.set(0);
        let current = self.current(index);
        let same = Decision { previous: current, next: current, deadline_ns: None };
        let decision = self.state.on_syscall(cpu(index), &mut self.frame[index]).unwrap_or(same);
        self.entered(index, decision)
    }

    /// Makes a call on a processor and leaves the registers where they are.
    pub(super) fn enter(&mut self, index: usize, call: Call) -> Decision {
        let (number, words) = call.encode();
        self.enter_raw(index, number, words)
    }

    pub(super) fn enter_raw(&mut self, index: usize, number: u64, words: [u64; 6]) -> Decision {
        let frame = &mut self.frame[index];
        frame.rax = number;
        [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9] = words;
        frame.rip = frame.rip.max(LIBOS_BASE + 2);
        self.state.machine.caches.this_cpu = index;
        self.state.machine.words.set(0);
        // As the glue does.
        let tries = self.transfers_at_once;
        let current = self.state.cpus[cpu(index)].current;
        let same = Decision { previous: current, next: current, deadline_ns: None };
        let enters = tries && number == SpaceEnter::NUMBER;
        let decision = if enters && self.state.on_space_enter(cpu(index), words[0]).is_some() {
            (frame.rax, frame.rdx) = (Status::Ok as u64, 0);
            self.state.count_entries(cpu(index), [0, 0, 1]);
            same
        } else if let Some((from, to)) = tries.then(|| self.state.on_transfer(cpu(index), frame)).flatten() {
            Decision { previous: Some(from), next: Some(to), deadline_ns: None }
        } else {
            self.state.on_syscall(cpu(index), frame).unwrap_or(same)
        };
        self.entered(index, decision)
    }

    /// What RAX and RDX say.
    pub(super) fn result(&self, index: usize) -> (Status, u64) {
        let frame = &self.frame[index];
        (Status::from_word(frame.rax).expect("a status"), frame.rdx)
    }

    /// Makes a call that returns to its caller.
    pub(super) fn call_on(&mut self, index: usize, call: Call) -> (Status, u64) {
        let caller = self.current(index);
        let decision = self.enter(index, call);
        assert_eq!(decision.next, caller, "{call:?} came back to its caller");
        self.result(index)
    }

    pub(super) fn call(&mut self, call: Call) -> (Status, u64) {
        self.call_on(0, call)
    }

    /// Makes a call that succeeds, repeating it as long as it asks for that.
    pub(super) fn ok(&mut self, call: Call) -> u64 {
        for _ in 0..10_000 {
            match self.call(call) {
                (Status::Ok, value) => return value,
                (Status::Again, _) => {}
                other => panic!("{call:?}: {other:?}"),
            }
        }
        panic!("{call:?} does not end");
    }

    /// Makes a call that is refused.
    pub(super) fn refused(&mut self, call: Call) -> Status {
        let (status, _) = self.call(call);
        assert_ne!(status, Status::Ok, "{call:?}");
        status
    }

    pub(super) fn environment_of(&self, index: usize) -> EnvironmentId {
        let processor = self.current(index).expect("somebody runs");
        self.state.processors[processor].environment_id()
    }

    /// Writes words to memory of the space that processor 0 runs in.
    pub(super) fn write(&mut self, address: u64, words: &[u64]) {
        let root = self.state.processors[self.current(0).expect("somebody runs")].root;
        for (index, word) in words.iter().enumerate() {
            let at = address + index as u64 * 8;
            let page = (at & 0xffff_ffff_ffff) >> 12;
            let frame = self.state.translate(root, page).expect("mapped");
            self.state.machine.memory[frame.0 as usize][(at % 4096 / 8) as usize] = *word;
        }
    }

    pub(super) fn write_entries(&mut self, entries: &[BindEntry]) {
        for (index, entry) in entries.iter().enumerate() {
            let words = [
                u64::from(entry.operation) | u64::from(entry.flags) << 32,
                entry.virtual_address,
                entry.frame,
                u64::from(entry.page_count) | u64::from(entry.slot) << 32,
            ];
            self.write(SCRATCH + index as u64 * 32, &words);
        }
    }

    /// Binds in the space, or the home space of the environment, that `space` names.
    pub(super) fn bind_in(&mut self, space: CapSlot, entries: &[BindEntry]) -> (Status, u64) {
        self.write_entries(entries);
        self.call(Call::Bind(aegis_abi::call::Bind { space, entries: SCRATCH, entry_count: entries.len() as u32 }))
    }

    pub(super) fn bind(&mut self, entries: &[BindEntry]) -> (Status, u64) {
        self.bind_in(aegis_abi::types::SLOT_SELF, entries)
    }

    pub(super) fn write_terms(&mut self, terms: &[Term]) {
        for (index, term) in terms.iter().enumerate() {
            let words = [
                u64::from(term.product) | u64::from(term.source) << 32,
                u64::from(term.operator) | u64::from(term.slot) << 32,
                term.address,
                term.value,
            ];
            self.write(SCRATCH + index as u64 * 32, &words);
        }
    }

    /// Allocates frames to a slot; the first frame.
    pub(super) fn frames(&mut self, slot: u32, count: u64) -> u64 {
        self.ok(Call::FrameAllocate(aegis_abi::call::FrameAllocate {
            slot: CapSlot(slot),
            count,
            frame: FrameNumber(u64::MAX),
            alignment_log2: 0,
        }))
    }

    /// Makes an environment in `slot` from 64 frames.
    pub(super) fn environment(&mut self, slot: u32, quota: u64) -> EnvironmentId {
        self.frames(slot + 1, 64);
        self.ok(Call::EnvironmentCreate(aegis_abi::call::EnvironmentCreate {
            slot: CapSlot(slot),
            frames: CapSlot(slot + 1),
            frame_quota: quota,
        }));
        let at = crate::object::CapRef { environment: self.environment_of(0), slot };
        let capability = self.state.capability(at).expect("it was made");
        EnvironmentId::from_index((capability.object & 0xffff) as usize).expect("an environment")
    }

    /// Makes a processor of `environment`'s slot in `slot`, with pages of its own in `slot + 1`.
    pub(super) fn processor(&mut self, slot: u32, environment: u32) -> ProcessorId {
        self.frames(slot + 1, 3);
        self.ok(Call::ProcessorCreate(aegis_abi::call::ProcessorCreate {
            slot: CapSlot(slot),
            environment: CapSlot(environment),
            frames: CapSlot(slot + 1),
            save_area_frame_count: 2,
            control_address: LIBOS_BASE + 0x40_0000,
            save_area_base: LIBOS_BASE + 0x50_0000,
        }));
        let at = crate::object::CapRef { environment: self.environment_of(0), slot };
        let capability = self.state.capability(at).expect("it was made");
        ProcessorId::from_index((capability.object & 0xffff) as usize).expect("a processor")
    }

    pub(super) fn start(&mut self, slot: u32) {
        self.ok(Call::ProcessorStart(aegis_abi::call::ProcessorStart {
            slot: CapSlot(slot),
            rip: CODE,
            rsp: 0,
            argument: 7,
        }));
    }

    /// Sets an entry point in a processor's control page.
    pub(super) fn set_entry(&mut self, processor: ProcessorId, kind: usize, entry: u64) {
        let control = self.state.processors[processor].pages.first_frame;
        self.state.machine.memory[control as usize][4 + kind] = entry;
    }

    /// `masked` and `pending`.
    pub(super) fn masks(&self, processor: ProcessorId) -> (u32, u32) {
        self.state.mask_word(processor)
    }

    pub(super) fn set_masks(&mut self, processor: ProcessorId, masked: u32, pending: u32) {
        let control = self.state.processors[processor].pages.first_frame;
        let word = u64::from(masked) | u64::from(pending) << 32;
        self.state.machine.memory[control as usize][3] = word;
    }
}

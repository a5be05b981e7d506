//! Sequences of kernel entries that a search finds (INV-3): any call with any argument, exceptions, timers, interrupts,
//! and memory written by the guests, by several environments on several processors.
//!
//! An input is a sequence of records, one for each entry. Oracles: no panic; after every entry no processor remembers a
//! stale translation (`cache`) nor one that the naive model does not allow (`model`); every so often and at the end the
//! tables and the devices reach only what the model allows, and the invariants of `check` hold. `cargo xtask fuzz`
//! builds this with the compiler's counters and lets it go on.

use std::vec::Vec;

use aegis_abi::call::{Bind, BindOne, Call, Sleep};
use aegis_abi::layout::{LIBOS_BASE, PAGE_TABLE_WINDOW, PROGRAM_BASE, PROGRAM_END};
use aegis_abi::types::{Rights, Status};
use aegis_fuzz::InputShape;

use super::check::check;
use super::model::Model;
use super::random::{Arena, CHILD_SCRATCH, PATTERNS};
use super::world::{CODE, FrameTables, S, SCRATCH, World};
use crate::id::EnvironmentId;
use crate::object::CapRef;

/// Bytes of a record: caller, kind, call number, six arguments, time, and two more.
pub(super) const RECORD_BYTES: usize = 12;
const INPUT_SHAPE: InputShape = InputShape { record_bytes: RECORD_BYTES, record_count_max: 512 };
/// Entries after which everything that the model says is looked at.
const CHECK_EVERY: usize = 128;
/// Entries after which what the processors remember is; always after a call that takes something from somebody.
const CHECK_CACHES_EVERY: usize = 8;
const CPU_COUNT: usize = 3;
const COUNTS: [u64; 16] = [1, 0, 2, 3, 4, 8, 9, 12, 64, 511, 512, 513, 1024, 4096, 4097, u64::MAX];
const TIMES_NS: [u64; 8] = [0, 100, 1_000, 20_000, 200_000, 1_000_000, 11_000_000, 1_000_000_000];
const WORDS: [u64; 16] =
    [0, 1, 2, 7, 8, 63, 64, 0xfff, 0x1000, 0xffff, 1 << 31, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX];
const BASES: [u64; 16] = [
    0x4000_0000,
    PROGRAM_BASE,
    PROGRAM_END - 0x1000,
    LIBOS_BASE + 0x1000_0000,
    LIBOS_BASE + (3 << 39),
    CHILD_SCRATCH,
    SCRATCH,
    LIBOS_BASE + 0x40_0000,
    LIBOS_BASE + 0x50_0000,
    PAGE_TABLE_WINDOW,
    PAGE_TABLE_WINDOW + (0x4000_0000 >> 9),
    0xffff_ffff_8000_0000,
    0x8000_0000_0000,
    LIBOS_BASE,
    0x7fff_c000_0000,
    0,
];

const OFFSETS: [u64; 16] = [
    0,
    0x1000,
    0x2000,
    0x3000,
    0x20_0000,
    0x40_0000,
    0x1f_f000,
    0x3f_f000,
    0x4000_0000,
    8,
    16,
    32,
    64,
    1,
    0xff8,
    0xfff,
];

fn page(byte: u8) -> u64 {
    BASES[usize::from(byte >> 4)].wrapping_add(OFFSETS[usize::from(byte & 15)])
}

fn slot(byte: u8) -> u64 {
    match byte {
        0..200 => u64::from(byte % 40),
        200..240 => u64::from(byte - 100),
        _ => [0, 84, 85, 170, 1700, 4095, 4096, u64::from(u32::MAX)][usize::from(byte % 8)],
    }
}

/// A run of one input.
struct Run {
    world: World,
    model: Model,
    call_count: u64,
    /// Calls that were answered with success.
    done_count: u64,
    /// One input alone: says what it does.
    is_told: bool,
}

impl Run {
    fn new(tables: Option<FrameTables>) -> Self {
        let mut world = Arena::set_up(World::new_here(tables), 1).world;
        // A second processor for each environment: what one changes, the other remembers.
        for child in 0..3 {
            let slot = S + child * 10;
            let processor = world.processor(slot + 8, slot);
            for kind in 0..7 {
                world.set_entry(processor, kind, CODE + 0x100);
            }
            world.start(slot + 8);
        }
        world.state.machine.caches.begin(1);
        let model = Model::of(&world.state);
        Self { world, model, call_count: 0, done_count: 0, is_told: std::env::var_os("AEGIS_FUZZ_INPUT").is_some() }
    }

    fn frame_of(&self, environment: EnvironmentId, byte: u8) -> u64 {
        let at = CapRef { environment, slot: slot(byte) as u32 & 0xfff };
        self.world.state.capability(at).map_or(u64::from(byte) * 17, |capability| capability.object)
    }

    /// What a register holds where a call's pattern says so.
    fn argument(&self, environment: EnvironmentId, kind: u8, byte: u8) -> u64 {
        match kind {
            b'T' | b'X' | b'F' | b'P' | b'B' | b'G' | b'D' | b'S' | b'E' | b'M' => slot(byte),
            b'n' => COUNTS[usize::from(byte % 16)],
            b'i' => u64::from(byte % 16),
            b'b' => u64::from(byte % 3),
            b'r' if byte < 8 => u64::from(Rights::all().bits()),
            b'r' => u64::from(Rights::all().bits()) & u64::from(byte) | u64::from(byte & 0xc0) << 2,
            b'a' => page(byte),
            b'f' if byte < 128 => u64::MAX,
            b'f' => self.frame_of(environment, byte & 0x3f),
            b't' => self.world.state.machine.now_ns.wrapping_add(TIMES_NS[usize::from(byte % 8)]),
            _ if byte < 64 => WORDS[usize::from(byte % 16)],
            _ if byte < 128 => page(byte),
            _ => slot(byte),
        }
    }

    /// A word that the guest on a processor writes, if its processor lets it.
    fn write(&mut self, cpu: usize, address: u64, word: u64) {
        let machine = &mut self.world.state.machine;
        if let Some(leaf) = machine.touch(cpu, address)
            && leaf.access.is_writable
        {
            let frame = leaf.frame + ((address & 0x0000_ffff_ffff_ffff) >> 12) - leaf.page;
            if machine.memory.get(frame).is_some() {
                machine.memory[frame as usize][(address % 4096 / 8) as usize] = word;
            }
        }
    }

    fn scratch(&self, cpu: usize) -> u64 {
        if self.world.current(cpu) == Some(self.world.first_processor) { SCRATCH } else { CHILD_SCRATCH }
    }

    /// Four words of a batch entry or a term.
    fn words_of(&self, environment: EnvironmentId, is_entry: bool, record: &[u8]) -> [u64; 4] {
        let slot_word = slot(record[6]);
        let frame =
            self.frame_of(environment, record[6]).wrapping_add(COUNTS[usize::from(record[7] >> 4)].wrapping_sub(1));
        if is_entry {
            let count = COUNTS[usize::from(record[8] % 16)] & 0xffff_ffff;
            let flags = u64::from(record[4] >> 3);
            let operation = u64::from(record[4] % 5) | flags << 32;
            // Mostly what a large page needs is as it must be.
            let is_large = flags & 4 != 0 && record[9] < 200;
            let (mask, count) = if is_large { (!511, 512) } else { (!0, count) };
            [
                operation,
                page(record[5]) & ((mask << 12) | (u64::from(!is_large) * 0xfff)),
                frame & mask,
                count | slot_word << 32,
            ]
        } else {
            let value = self.argument(environment, [b't', b'w'][usize::from(record[8] & 1)], record[8] >> 1);
            let address = frame << 12 | OFFSETS[usize::from(record[7] & 15)] & 0xfff;
            let source = u64::from(record[4] % 4) | u64::from(record[4] >> 4) << 32;
            [source, u64::from(record[5] % 6) | slot_word << 32, address, value]
        }
    }

    /// Writes such words before the call that reads them.
    fn write_record(&mut self, cpu: usize, environment: EnvironmentId, is_entry: bool, record: &[u8]) {
        let words = self.words_of(environment, is_entry, record);
        let at = self.scratch(cpu) + u64::from(record[10] % 4) * 32;
        for (index, word) in words.into_iter().enumerate() {
            self.write(cpu, at + index as u64 * 8, word);
        }
    }

    fn call(&mut self, cpu: usize, record: &[u8]) {
        let environment = self.world.environment_of(cpu);
        let number = u64::from(record[2] % 64);
        let pattern = PATTERNS.get(number as usize).copied().unwrap_or("").as_bytes();
        let mut words: [u64; 6] = core::array::from_fn(|index| {
            let kind = pattern.get(index).copied().unwrap_or(b'w');
            self.argument(environment, kind, record[3 + index])
        });
        if number == Bind::NUMBER || number == Sleep::NUMBER {
            self.write_record(cpu, environment, number == Bind::NUMBER, record);
            let count = u64::from(record[11] % 5) + u64::from(record[11] == 0);
            let at = self.scratch(cpu);
            words =
                if number == Bind::NUMBER { [slot(record[3]), at, count, 0, 0, 0] } else { [at, count, 0, 0, 0, 0] };
        }
        if number == BindOne::NUMBER {
            words[1..5].copy_from_slice(&self.words_of(environment, true, record));
        }
        let before = Model::before(&self.world.state, environment, number, &words);
        let caller = self.world.current(cpu);
        self.call_count += 1;
        self.world.frame[cpu].rip = CODE + 2;
        let decision = self.world.enter_raw(cpu, number, words);
        let Ok(call) = Call::decode(number, &words) else {
            return;
        };
        // Where an upcall came in between, the answer is in the save area.
        let is_plain = decision.next == caller && self.world.frame[cpu].rip == CODE + 2;
        let result = if is_plain { Some(self.world.result(cpu)) } else { None };
        if let Some((Status::UnknownCall, _)) = result {
            return;
        }
        self.done_count += u64::from(matches!(result, Some((Status::Ok, _))));
        if self.is_told {
            std::println!("processor {cpu}, environment {}: {call:x?} -> {result:x?}", before.caller);
        }
        if self.model.after(&self.world.state, &before, call, result) {
            self.model.check_caches(&self.world.state);
        }
    }

    fn event(&mut self, record: &[u8]) {
        let cpu = usize::from(record[0]) % CPU_COUNT;
        self.world.state.machine.now_ns += TIMES_NS[usize::from(record[9] % 8)];
        let Some(processor) = self.world.current(cpu) else {
            match record[1] % 3 {
                0 => self.world.timer(cpu),
                1 => self.world.interrupt(cpu, 0, usize::from(record[3] % 10)),
                _ => self.world.kick(cpu),
            };
            return;
        };
        let is_first = processor == self.world.first_processor;
        match record[1] {
            0..12 => drop(self.world.timer(cpu)),
            12..20 => drop(self.world.kick(cpu)),
            20..28 => drop(self.world.interrupt(cpu, 0, usize::from(record[3] % 10))),
            28..34 if !is_first => {
                self.world.frame[cpu].rsp = page(record[3]);
                let _ = self.world.exception(cpu, u64::from(record[4] % 40), page(record[5]));
            }
            34..40 if !is_first => {
                self.world.frame[cpu].rip = page(record[3]) & 0x7fff_ffff_ffff;
                let _ = self.world.enter_program(cpu);
            }
            40..56 => self.write(cpu, page(record[3]), self.argument(self.world.environment_of(cpu), b'w', record[4])),
            56..64 => drop(self.world.state.machine.touch(cpu, page(record[3]))),
            64..72 if !is_first => {
                // Its control page is the guest's own, wherever it has it mapped.
                let control = self.world.state.processors[processor].pages.first_frame as usize;
                let word = WORDS[usize::from(record[4] % 16)];
                let word = if record[4] < 64 { CODE + 0x100 } else { word };
                self.world.state.machine.memory[control][usize::from(record[3] % 16)] = word;
            }
            _ => self.call(cpu, record),
        }
    }

    /// Runs an input; how many kernel calls that were.
    fn run(&mut self, input: &[u8]) -> u64 {
        for (count, record) in input.chunks_exact(RECORD_BYTES).enumerate() {
            self.event(record);
            if self.world.state.machine.first_stopped.is_some() || self.world.state.machine.power_off.is_some() {
                return self.call_count;
            }
            if count % CHECK_CACHES_EVERY == 0 {
                self.model.check_caches(&self.world.state);
            }
            if count % CHECK_EVERY == 0 {
                self.model.check_all(&self.world.state);
            }
        }
        self.model.check_all(&self.world.state);
        // The whole checker takes as long as a few hundred entries.
        if input.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) % 8 == 0 {
            check(&self.world.state);
        }
        self.call_count
    }
}

/// Runs inputs, each in a new world.
fn target() -> impl FnMut(&[u8]) -> u64 {
    let mut tables = None;
    move |input| {
        let mut run = Run::new(tables.take());
        let count = run.run(input);
        tables = run.world.into_tables();
        count
    }
}

/// Calls of an input, and how many were answered with success.
pub(super) fn calls_done(input: &[u8]) -> (u64, u64) {
    let mut run = Run::new(None);
    (run.run(input), run.done_count)
}

/// A thread with room for a state on its stack.
pub(super) fn on_a_large_stack(run: impl FnOnce() + Send + 'static) {
    let builder = std::thread::Builder::new().stack_size(64 << 20);
    let outcome = builder.spawn(run).expect("a thread").join();
    if let Err(payload) = outcome {
        std::panic::resume_unwind(payload);
    }
}

#[test]
fn a_blind_search_finds_nothing() {
    on_a_large_stack(|| {
        let mut search = aegis_fuzz::Search::new(target(), INPUT_SHAPE, 12);
        let first = super::seeds::inputs();
        let outcomes = first.iter().map(|input| search.run_one(input).map(drop)).collect::<Vec<_>>();
        let later = (0..60).map(|_| search.step().map(drop));
        if let Some(failure) = outcomes.into_iter().chain(later).find_map(Result::err) {
            panic!("{}: {:?}", failure.message, failure.input);
        }
    });
}

#[test]
#[ignore = "goes on as long as the environment says: cargo xtask fuzz"]
fn search() {
    on_a_large_stack(|| aegis_fuzz::run(target(), INPUT_SHAPE, &super::seeds::inputs()));
}

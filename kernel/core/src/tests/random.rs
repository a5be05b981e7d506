//! Arbitrary calls, interrupts, timers and exceptions from environments that hold few capabilities
//! (INV-3).
//!
//! After every kernel entry the invariants of `check` hold; after the environments have ended,
//! frames, quota, capabilities and objects are those from before.

use std::vec::Vec;

use aegis_abi::call::{
    Bind, BindOne, Call, CapGrant, EnvironmentDestroy, EnvironmentReclaim, FrameAllocate, ProcessorStart, Sleep,
    SpaceEnter,
};
use aegis_abi::layout::{LIBOS_BASE, PAGE_TABLE_WINDOW, PROGRAM_BASE, PROGRAM_END};
use aegis_abi::memory::BindEntry;
use aegis_abi::types::{CapSlot, CapType, FrameNumber, Rights, SLOT_DEVICE_FIRST, SLOT_SELF};
use aegis_abi::upcall::UpcallFrame;

use super::check::check;
use super::world::{CODE, S, World, cpu};
use crate::id::{EnvironmentId, Id};
use crate::object::{CapRef, Capability};
use crate::state::WORK_BUDGET;

/// What the argument registers of each call hold, by number; see `Arena::argument`.
pub(super) const PATTERNS: [&str; 59] = [
    "", "XTrin", "XETr", "X", "X", "Xi", "Tnfb", "F", "FTn", "FE", "E", "TFn", "E", "Ei", "EB", "Ent", "TEFnaa",
    "Paww", "P", "Pi", "P", "P", "", "TP", "B", "B", "TPaw", "G", "G", "", "Dii", "Db", "Dia", "Diinbw", "DbB", "Db",
    "DFin", "DFin", "Man", "M", "Ei", "Bt", "T", "S", "Xn", "XX", "Xi", "EE", "", "", "", "", "Ein", "", "", "", "En",
    "Swafw", "B",
];

const CPU_COUNT: usize = 3;
const CHILD_COUNT: u32 = 3;
/// Where a child reads its entries and terms from.
pub(super) const CHILD_SCRATCH: u64 = LIBOS_BASE + 0x60_0000;

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn pick(&mut self, values: &[u64]) -> u64 {
        values[self.below(values.len() as u64) as usize]
    }

    fn page(&mut self) -> u64 {
        let base = self.pick(&[
            LIBOS_BASE + 0x40_0000,
            LIBOS_BASE + 0x1000_0000,
            PROGRAM_BASE,
            0x4000_0000,
            PROGRAM_END - 0x1000,
            PAGE_TABLE_WINDOW,
            0xffff_ffff_8000_0000,
            0,
        ]);
        let offset = self.pick(&[0, 0, 0x1000, 0x2000, 0x20_0000, 0x3ff000, 8, 1]);
        base.wrapping_add(offset)
    }

    fn slot(&mut self) -> u64 {
        match self.below(20) {
            0 => self.below(5000),
            _ => self.below(24),
        }
    }

    fn word(&mut self) -> u64 {
        match self.below(12) {
            0..=5 => self.slot(),
            6 => self.page(),
            7 => self.pick(&[64, 128, 511, 512, 1024, 4095, 4096, 4097]),
            8 => self.pick(&[u64::MAX, u64::MAX - 1, 1 << 31, 1 << 32, 1 << 63, 0xffff_ffff]),
            9 => 16 + self.below(4200),
            10 => self.next(),
            _ => u64::from(Rights::all().bits()) & self.next(),
        }
    }

    fn bind_entry(&mut self) -> [u64; 4] {
        let large = self.below(4) == 0;
        let flags = (self.next() & 0xb) | if large { 4 } else { 0 };
        let count = if large { 512 } else { self.pick(&[1, 2, 3, 16, 512, 4096, 0, 5000]) };
        let frame = match self.below(4) {
            0 => self.below(9) * 512,
            _ => self.below(4200),
        };
        let mut words = [self.below(5) | flags << 32, self.page(), frame, count | self.slot() << 32];
        if self.below(10) == 0 {
            words[self.below(4) as usize] = self.next();
        }
        words
    }

    fn term(&mut self) -> [u64; 4] {
        [
            self.below(3) | self.below(5) << 32,
            self.below(5) | self.slot() << 32,
            (self.below(4200) << 12) | self.pick(&[0, 8, 4, 1]),
            self.pick(&[0, 1, 1_000_000, 50_000_000, u64::MAX]),
        ]
    }
}

pub(super) struct Arena {
    pub(super) world: World,
    random: Random,
    pub(super) children: Vec<EnvironmentId>,
    serials: Vec<u32>,
    scratch: Vec<u64>,
}

impl Arena {
    fn new(seed: u64) -> Self {
        let mut arena = Self::set_up(World::new(), seed);
        check(&arena.world.state);
        arena.world.state.machine.caches.begin(seed);
        arena
    }

    /// Three environments that compete on three processors.
    pub(super) fn set_up(world: World, seed: u64) -> Self {
        let mut arena =
            Self { world, random: Random::new(seed), children: Vec::new(), serials: Vec::new(), scratch: Vec::new() };
        arena.world.check_after_entry = false;
        for child in 0..CHILD_COUNT {
            arena.populate(child);
        }
        for index in 1..CPU_COUNT {
            arena.world.kick(index);
        }
        arena
    }

    fn populate(&mut self, child: u32) {
        let slot = S + child * 10;
        let world = &mut self.world;
        let environment = world.environment(slot, 600);
        let serial = world.state.environments[environment].serial;
        if child as usize == self.children.len() {
            self.children.push(environment);
            self.serials.push(serial);
        }
        self.children[child as usize] = environment;
        self.serials[child as usize] = serial;
        let processor = world.processor(slot + 2, slot);
        // A whole block, so that large pages can be tried.
        world.ok(Call::FrameAllocate(FrameAllocate {
            slot: CapSlot(slot + 4),
            count: 513,
            frame: FrameNumber(u64::MAX),
            alignment_log2: 9,
        }));
        let grants = [
            (slot + 4, 3, Rights::all()),
            (slot + 2, 2, Rights::all()),
            (SLOT_DEVICE_FIRST.0, 5, Rights::all()),
            (SLOT_DEVICE_FIRST.0 + 1, 9, Rights::all()),
            (SLOT_DEVICE_FIRST.0 + 2, 10, Rights::all()),
            (S, 6, Rights::READ | Rights::RECEIVE),
            (slot + 3, 7, Rights::READ | Rights::WRITE | Rights::EXECUTE),
        ];
        for (source, target, rights) in grants {
            world.ok(Call::CapGrant(CapGrant {
                source: CapSlot(source),
                environment: CapSlot(slot),
                target: CapSlot(target),
                rights: rights.bits(),
            }));
        }
        let scratch = self.world.frames(slot + 6, 1);
        self.world.ok(Call::CapGrant(CapGrant {
            source: CapSlot(slot + 6),
            environment: CapSlot(slot),
            target: CapSlot(8),
            rights: (Rights::READ | Rights::WRITE).bits(),
        }));
        let (status, _) = self.world.bind_in(
            CapSlot(slot),
            &[BindEntry {
                operation: 0,
                flags: 1,
                virtual_address: CHILD_SCRATCH,
                frame: scratch,
                page_count: 1,
                slot: slot + 6,
            }],
        );
        assert_eq!(status as u64, 0);
        for slot in [20, 21] {
            let state = &mut self.world.state;
            let at = state.empty_slot(environment, CapSlot(slot)).expect("an empty table");
            let named = state.make_space(environment).expect("donated frames");
            state.store_capability(at, &Capability::object(CapType::Space, Rights::CONTROL, named));
        }
        self.scratch.truncate(8);
        self.scratch.insert(0, scratch);
        for kind in 0..7 {
            if self.random.below(8) != 0 {
                self.world.set_entry(processor, kind, CODE + 0x100);
            }
        }
        self.world.ok(Call::ProcessorStart(ProcessorStart { slot: CapSlot(slot + 2), rip: CODE, rsp: 0, argument: 0 }));
    }

    /// A slot of an environment that holds a capability of a type, if there is one.
    fn slot_of(&mut self, environment: EnvironmentId, kind: CapType) -> u64 {
        let state = &self.world.state;
        let slots: Vec<u32> = state
            .slots(environment)
            .filter(|at| state.capability(*at).is_some_and(|c| c.kind == kind || kind == CapType::Null))
            .map(|at| at.slot)
            .collect();
        match self.random.below(slots.len() as u64 + 1) {
            0 => self.random.slot(),
            n => u64::from(slots[n as usize - 1]),
        }
    }

    /// A value that could make sense where `pattern` says what the register holds.
    fn argument(&mut self, environment: EnvironmentId, pattern: u8) -> u64 {
        let random = &mut self.random;
        match pattern {
            b'T' => 9 + random.below(20),
            b'X' => self.slot_of(environment, CapType::Null),
            b'F' => self.slot_of(environment, CapType::Frames),
            b'P' => self.slot_of(environment, CapType::Processor),
            b'B' => self.slot_of(environment, CapType::Bell),
            b'G' => self.slot_of(environment, CapType::Gate),
            b'D' => self.slot_of(environment, CapType::Device),
            b'S' if random.below(4) != 0 => self.slot_of(environment, CapType::Space),
            b'E' | b'S' => self.slot_of(environment, CapType::Environment),
            b'M' => self.slot_of(environment, CapType::Machine),
            b'n' => random.pick(&[0, 1, 1, 2, 3, 8, 9, 12, 64]),
            b'i' => random.below(12),
            b'b' => random.below(2),
            b'r' => random.next() & u64::from(Rights::all().bits()),
            b'a' => random.page(),
            b'f' => random.pick(&[u64::MAX, u64::MAX, 512, 1024, 3000]),
            b't' => self.world.state.machine.now_ns + random.below(20_000_000),
            _ => random.word(),
        }
    }

    /// Maps a frame that the child has in one of its spaces, which arbitrary words seldom do.
    fn map_in_space(&mut self, index: usize) {
        let environment = self.world.environment_of(index);
        let space = self.argument(environment, b'S');
        let slot = self.slot_of(environment, CapType::Frames);
        let at = CapRef { environment, slot: slot as u32 & 0xfff };
        let frame = self.world.state.capability(at).map_or(0, |c| c.object + self.random.below(c.count.clamp(1, 16)));
        let address = self.random.pick(&[PROGRAM_BASE, 0x4000_0000, LIBOS_BASE + (3 << 39), PROGRAM_END - 0x1000]);
        let words = [self.random.below(2) << 32, address, frame, 1 | slot << 32];
        if self.random.below(2) == 0 {
            let [operation, address, frame, pages] = words;
            self.world.enter_raw(index, BindOne::NUMBER, [space, operation, address, frame, pages, 0]);
            return;
        }
        for scratch in &self.scratch {
            self.world.state.machine.memory[*scratch as usize][..4].copy_from_slice(&words);
        }
        self.world.enter_raw(index, Bind::NUMBER, [space, CHILD_SCRATCH, 1, 0, 0, 0]);
    }

    fn call_of_child(&mut self, index: usize) {
        for frame in self.scratch.clone() {
            for entry in 0..4 {
                let environment = self.world.environment_of(index);
                let is_entry = self.random.below(2) == 0;
                let mut words = if is_entry { self.random.bind_entry() } else { self.random.term() };
                let kind = if words[0] >> 32 == 1 && !is_entry { CapType::Bell } else { CapType::Frames };
                let slot = self.slot_of(environment, kind);
                let at = if is_entry { 3 } else { 1 };
                words[at] = words[at] & 0xffff_ffff | slot << 32;
                if kind == CapType::Frames && self.random.below(4) != 0 {
                    let at = CapRef { environment, slot: slot as u32 & 0xfff };
                    let frame = self.world.state.capability(at).map_or(0, |c| c.object);
                    words[2] = if is_entry { frame } else { frame << 12 };
                }
                let page = &mut self.world.state.machine.memory[frame as usize];
                page[entry * 4..entry * 4 + 4].copy_from_slice(&words);
            }
        }
        let environment = self.world.environment_of(index);
        let number = match self.random.below(12) {
            0 => Bind::NUMBER,
            1 => SpaceEnter::NUMBER,
            _ => self.random.below(60),
        };
        let pattern = PATTERNS.get(number as usize).copied().unwrap_or("");
        let mut words = [0; 6];
        for (at, word) in words.iter_mut().enumerate() {
            let kind = pattern.as_bytes().get(at).copied().unwrap_or(b'w');
            let kind = if self.random.below(15) == 0 { b'w' } else { kind };
            *word = self.argument(environment, kind);
        }
        if number == Bind::NUMBER {
            if self.random.below(2) == 0 {
                words[0] = self.argument(environment, b'S');
            }
            words[1..].copy_from_slice(&[CHILD_SCRATCH, self.random.below(6), 0, 0, 0]);
        } else if number == BindOne::NUMBER {
            words[1..5].copy_from_slice(&self.random.bind_entry());
        } else if number == Sleep::NUMBER {
            words = [CHILD_SCRATCH, self.random.below(5), 0, 0, 0, 0];
        }
        self.world.enter_raw(index, number, words);
    }

    fn call_of_first(&mut self, index: usize) {
        let slot = CapSlot(S + self.random.below(u64::from(CHILD_COUNT)) as u32 * 10);
        let processor = CapSlot(slot.0 + 2);
        let call = match self.random.below(12) {
            0 => Call::CapRevoke(aegis_abi::call::CapRevoke { slot: CapSlot(slot.0 + 4) }),
            1 if self.random.below(3) == 0 => {
                let frame_count = self.random.below(70);
                Call::EnvironmentQuota(aegis_abi::call::EnvironmentQuota { slot, frame_count })
            }
            1 => Call::EnvironmentReclaim(EnvironmentReclaim {
                slot,
                frame_count: 1 + self.random.below(70),
                deadline_ns: self.world.state.machine.now_ns + self.random.below(3) * 5_000_000,
            }),
            2 if self.random.below(30) == 0 => Call::EnvironmentDestroy(EnvironmentDestroy { slot }),
            3 if self.random.below(4) == 0 => Call::ProcessorStop(aegis_abi::call::ProcessorStop { slot: processor }),
            4 => Call::CapGrant(CapGrant {
                source: CapSlot(slot.0 + 4),
                environment: slot,
                target: CapSlot(self.random.below(24) as u32),
                rights: self.random.next() as u32 & Rights::all().bits(),
            }),
            _ => Call::ProcessorStart(ProcessorStart { slot: processor, rip: CODE, rsp: 0, argument: 0 }),
        };
        self.world.enter(index, call);
    }

    fn step(&mut self) {
        let index = self.random.below(CPU_COUNT as u64) as usize;
        self.step_on(index);
    }

    /// Anything happens on a processor.
    pub(super) fn step_on(&mut self, index: usize) {
        self.world.state.machine.now_ns += self.random.below(2_000_000);
        let Some(processor) = self.world.current(index) else {
            match self.random.below(3) {
                0 => self.world.timer(index),
                1 => self.world.interrupt(index, 0, self.random.below(9) as usize),
                _ => self.world.kick(index),
            };
            return;
        };
        let is_first = processor == self.world.first_processor;
        match self.random.below(20) {
            0 => {
                self.world.timer(index);
            }
            1 => {
                self.world.interrupt(index, 0, self.random.below(9) as usize);
            }
            2 => {
                self.world.kick(index);
            }
            3 if !is_first && self.random.below(4) == 0 => {
                let frame = &mut self.world.frame[index];
                frame.rsp = self.random.page();
                self.world.exception(index, 14, self.random.0);
            }
            4 if !is_first && self.random.below(4) == 0 => {
                self.world.set_masks(processor, 0, 0);
                self.world.frame[index].rip = 0x4000;
                self.world.enter_program(index);
            }
            _ if is_first => self.call_of_first(index),
            5..8 => self.map_in_space(index),
            _ => self.call_of_child(index),
        }
    }

    /// Ends a child and takes everything back that the first environment holds for it.
    fn retire(&mut self, number: usize) {
        let child = self.children[number];
        let serial = self.serials[number];
        for turn in 0.. {
            assert!(turn < 10_000, "an environment does not end");
            self.world.state.work_left = WORK_BUDGET;
            if self.world.state.environments[child].serial != serial || self.world.state.end_environment(child).is_ok()
            {
                break;
            }
            for index in 0..CPU_COUNT {
                self.world.kick(index);
            }
            check(&self.world.state);
        }
        let slots = S + number as u32 * 10..S + number as u32 * 10 + 10;
        for slot in slots {
            let at = CapRef { environment: self.world.first, slot };
            while self.world.state.capability(at).is_some() {
                let state = &mut self.world.state;
                state.work_left = WORK_BUDGET;
                if state.revoke(at).is_ok() {
                    let result = state.delete(at, true);
                    assert!(result.is_ok(), "{result:?}");
                }
                for index in 0..CPU_COUNT {
                    self.world.kick(index);
                }
            }
        }
        check(&self.world.state);
    }

    /// Replaces children that have stopped, when the first environment is there to do it.
    fn replace_stopped(&mut self) {
        for number in 0..CHILD_COUNT as usize {
            let child = &self.world.state.environments[self.children[number]];
            let is_gone = child.serial != self.serials[number] || child.is_stopped();
            if is_gone && self.world.current(0) == Some(self.world.first_processor) {
                self.retire(number);
                if self.world.current(0) != Some(self.world.first_processor) {
                    continue;
                }
                self.populate(number as u32);
            }
        }
    }
}

/// What has to be as it was.
fn baseline(world: &World) -> (u64, u64, u64, usize, usize, usize, usize) {
    let first = &world.state.environments[world.first];
    let capabilities = world.state.slots(world.first).filter(|at| world.state.capability(*at).is_some()).count();
    let processors = world.state.processors.iter().filter(|(_, p)| p.serial != 0);
    let environments = world.state.environments.iter().filter(|(_, e)| e.serial != 0);
    (
        world.state.frames.free_count(),
        first.frames_owned,
        first.frame_quota,
        capabilities,
        processors.count(),
        environments.count(),
        world.state.spaces.iter().filter(|(_, space)| space.serial != 0).count(),
    )
}

fn run(seed: u64, steps: usize) {
    let before = baseline(&World::new());
    let mut arena = Arena::new(seed);
    for step in 0..steps {
        arena.step();
        if step % 64 == 63 {
            arena.replace_stopped();
        }
        if step % 8 == 0 {
            check(&arena.world.state);
        }
    }
    check(&arena.world.state);
    assert_eq!(arena.world.state.machine.first_stopped, None);
    for number in 0..CHILD_COUNT as usize {
        arena.retire(number);
    }
    assert_eq!(baseline(&arena.world), before, "seed {seed}");
}

#[test]
fn arbitrary_calls_break_no_invariant_and_leak_nothing() {
    for seed in 1..=16 {
        run(seed, 500);
    }
}

#[test]
fn raw_registers_break_nothing() {
    let mut world = World::new();
    let mut random = Random::new(99);
    for _ in 0..5_000 {
        let mut frame = UpcallFrame {
            rax: random.below(54),
            rdi: random.word(),
            rsi: random.word(),
            rdx: random.word(),
            r10: random.word(),
            r8: random.word(),
            r9: random.word(),
            rip: LIBOS_BASE + 0x100_0000,
            ..UpcallFrame::default()
        };
        world.state.machine.now_ns += 1000;
        world.state.on_syscall(cpu(0), &mut frame);
        if world.current(0).is_none() {
            world = World::new();
        }
    }
    world.check();
    assert_ne!(SLOT_SELF, CapSlot(0));
    assert_eq!(EnvironmentId::COUNT, 64);
    assert_eq!(FrameNumber(1).address(), 4096);
}

#[test]
#[ignore = "takes minutes; the same as the test above with more seeds"]
fn arbitrary_calls_for_long() {
    for seed in 1000..1400 {
        run(seed, 3000);
    }
}

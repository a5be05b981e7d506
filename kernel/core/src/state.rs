//! The kernel's whole state: the tables of all objects, and the budget of an entry.
//!
//! What may be done to one object alone is in `object/`; what objects do to each other, and the machine, is in an
//! `impl State` for each concern, in the modules above; what begins it is in `entry.rs`.

use aegis_abi::counter::Counter;
use aegis_abi::types::FrameNumber;
use aegis_abi::upcall::UpcallFrame;
use aegis_lottery::random::Keyed;

use crate::Machine;
use crate::id::{
    Arena, BELL_COUNT_MAX, BellId, CPU_COUNT_MAX, CpuId, DEVICE_COUNT_MAX, DMA_BINDING_COUNT_MAX, DeviceId,
    ENVIRONMENT_COUNT_MAX, EnvironmentId, GATE_COUNT_MAX, GateId, PROCESSOR_COUNT_MAX, ProcessorId, SPACE_COUNT_MAX,
    SpaceId,
};
use crate::object::{
    Alarms, Bell, Cpu, Device, DmaBinding, Environment, FrameTable, Gate, KernelLottery, Links, Processor, ReadySet,
    Sleepers, Space,
};
use crate::outcome::{More, Progress};

/// Words that one entry looks at before it leaves the rest to the next: some 20 us. A step that has begun may take it
/// over that, by one search of a table of capabilities at most.
pub(crate) const WORK_BUDGET: usize = 16 * 1024;
/// Words that are left for what a search was made for: a look through a full table of capabilities takes all.
const PIECE_WORDS: usize = 1024;

begins! {
    /// The kernel.
    pub struct State<'a, M> = new(machine) {
        /// The machine, for the glue's own use.
        pub machine: M = machine,
        pub(crate) frames: FrameTable<'a> = FrameTable::EMPTY,
        pub(crate) environments: Arena<EnvironmentId, Environment, ENVIRONMENT_COUNT_MAX> =
            Arena::new([const { Environment::EMPTY }; ENVIRONMENT_COUNT_MAX]),
        pub(crate) spaces: Arena<SpaceId, Space, SPACE_COUNT_MAX> =
            Arena::new([const { Space::EMPTY }; SPACE_COUNT_MAX]),
        /// The first free entry of these.
        pub(crate) free_space: u16 = 0,
        pub(crate) processors: Arena<ProcessorId, Processor, PROCESSOR_COUNT_MAX> =
            Arena::new([const { Processor::EMPTY }; PROCESSOR_COUNT_MAX]),
        pub(crate) bells: Arena<BellId, Bell, BELL_COUNT_MAX> = Arena::new([const { Bell::EMPTY }; BELL_COUNT_MAX]),
        pub(crate) gates: Arena<GateId, Gate, GATE_COUNT_MAX> = Arena::new([const { Gate::EMPTY }; GATE_COUNT_MAX]),
        pub(crate) devices: Arena<DeviceId, Device, DEVICE_COUNT_MAX> =
            Arena::new([const { Device::EMPTY }; DEVICE_COUNT_MAX]),
        pub(crate) dma_bindings: [DmaBinding; DMA_BINDING_COUNT_MAX] =
            [const { DmaBinding::EMPTY }; DMA_BINDING_COUNT_MAX],
        pub(crate) cpus: Arena<CpuId, Cpu, CPU_COUNT_MAX> = Arena::new([const { Cpu::EMPTY }; CPU_COUNT_MAX]),
        /// The physical processor that is in the kernel now.
        pub(crate) this_cpu: Option<CpuId> = None,
        /// The physical processor whose clock or device is being heard: a processor that it wakes need not wait for the
        /// slice's end.
        pub(crate) prompt_cpu: Option<CpuId> = None,
        /// From when on the next processor that the clock wakes is charged.
        pub(crate) clock_since_ns: Option<u64> = None,
        /// What has been paid in all draws.
        pub(crate) paid_ns: u64 = 0,
        /// Physical processors that wait for an interrupt, a bit each.
        pub(crate) idle_cpus: u32 = 0,
        /// What this entry may still look at; see `spend`.
        pub(crate) work_left: usize = 0,
        pub(crate) links: Links = Links::EMPTY,
        /// The funding of environments and processors.
        pub(crate) lottery: KernelLottery = KernelLottery::new(),
        /// What decides the draws.
        pub(crate) random: Keyed = Keyed::new([0; 2]),
        /// Processors that want to run and do not.
        pub(crate) ready: ReadySet = ReadySet::EMPTY,
        /// First of those whose funding does not say yet what they do.
        pub(crate) touched: Option<ProcessorId> = None,
        /// Processors that sleep.
        pub(crate) sleepers: Sleepers = Sleepers::EMPTY,
        /// Serial of the object made last.
        pub(crate) last_serial: u64 = 0,
        /// Serial of the environment made last; also names frame owners.
        pub(crate) last_environment_serial: u32 = 0,
        /// Slice length.
        pub(crate) slice_ns: u64 = 0,
        /// When the clock rings bells.
        pub(crate) alarms: Alarms = Alarms::EMPTY,
        /// No bell at or above this index was ever made.
        pub(crate) bell_end: usize = 0,
        /// Earliest reclaim deadline; 0 none.
        pub(crate) reclaim_min_ns: u64 = 0,
        /// Whose upper entries every root table shares.
        pub(crate) template_root: FrameNumber = FrameNumber(0),
        pub(crate) system_page: FrameNumber = FrameNumber(0),
        /// Its end ends the machine.
        pub(crate) first_environment: Option<EnvironmentId> = None,
    }
}

impl<M: Machine> State<'_, M> {
    /// Takes from the one budget that all walks and searches of an entry share, the checks among them: about one for
    /// each word of a table. Work that can be long looks at what is left, and leaves the rest to the next call or pass.
    pub(crate) fn spend(&mut self, words: usize) {
        self.work_left = self.work_left.saturating_sub(words);
    }

    /// `More` if nothing is left.
    pub(crate) fn check_budget(&self) -> Progress {
        if self.work_left == 0 { Err(More) } else { Ok(()) }
    }

    /// Does a piece of what a search is made for each time, which may have used up the budget.
    pub(crate) fn get_on<T>(&mut self, piece: impl FnOnce(&mut Self) -> T) -> T {
        self.work_left += PIECE_WORDS;
        let outcome = piece(self);
        self.spend(PIECE_WORDS);
        outcome
    }

    /// A serial that no object has had.
    pub(crate) fn new_serial(&mut self) -> u64 {
        // 48 bits: at one object per microsecond they last nine years.
        self.last_serial += 1;
        self.last_serial
    }

    pub(crate) fn count(&mut self, environment: EnvironmentId, counter: Counter, amount: u64) {
        if let Some(value) = self.environments[environment].counters.get_mut(counter as usize) {
            *value = value.wrapping_add(amount);
        }
    }

    /// The processor that is in the kernel may have to set its timer anew.
    pub(crate) fn note_deadline(&mut self) {
        if let Some(cpu) = self.this_cpu {
            self.cpus[cpu].is_deadline_stale = true;
        }
    }

    /// Copies the live registers to the processor's object, once per entry.
    pub(crate) fn save(&mut self, cpu: CpuId, frame: &UpcallFrame) {
        if self.cpus[cpu].is_live
            && let Some(processor) = self.cpus[cpu].current
        {
            self.processors[processor].registers = *frame;
            self.cpus[cpu].is_live = false;
        }
    }
}

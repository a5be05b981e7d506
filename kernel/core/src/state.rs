//! The kernel's whole state, and what happens when a processor enters the kernel.
//!
//! The glue holds one lock around each entry point. It passes the trap frame of the interrupted
//! environment; after the call the frame holds the registers to continue with, and the [`Decision`]
//! says whose they are. The registers of a virtual processor are in its [`Processor`] object except
//! while it runs: then they are in the trap frame ("live"), so that a call that does not switch
//! copies nothing. Invariant: a processor whose state is `Running` is `current` on exactly one
//! physical processor; another state may still be `current` there (it was stopped from elsewhere)
//! until that processor enters the kernel and leaves it.

use aegis_abi::call::ProcessorState;
use aegis_abi::counter::Counter;
use aegis_abi::layout::LIBOS_BASE;
use aegis_abi::types::{FrameNumber, Status};
use aegis_abi::upcall::{UpcallFrame, UpcallKind};
use aegis_lottery::random::Keyed;

use crate::bell::Bell;
use crate::call::{Caller, Outcome};
use crate::device::{Device, DmaBinding};
use crate::environment::Environment;
use crate::frame::FrameTable;
use crate::funding::{KernelLottery, ReadySet};
use crate::gate::Gate;
use crate::id::{
    Arena, BELL_COUNT_MAX, BellId, CPU_COUNT_MAX, CpuId, DEVICE_COUNT_MAX, DMA_BINDING_COUNT_MAX, DeviceId,
    ENVIRONMENT_COUNT_MAX, EnvironmentId, GATE_COUNT_MAX, GateId, Id, PROCESSOR_COUNT_MAX, ProcessorId,
    SPACE_COUNT_MAX, SpaceId,
};
use crate::machine::Machine;
use crate::processor::Processor;
use crate::schedule::{Cpu, Links, Queue};
use crate::spaces::Space;

/// Words that one entry looks at before it leaves the rest to the next: some 20 us. A step that has begun may take it
/// over that, by one search of a table of capabilities at most.
pub(crate) const WORK_BUDGET: usize = 16 * 1024;
/// Words that are left for what a search was made for: a look through a full table of capabilities takes all.
const PIECE_WORDS: usize = 1024;

/// What the glue does before it returns to user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who ran when the kernel was entered. If it is not `next`: save its FS and GS base and its
    /// vector state before the lock is released (`State::save_context`).
    pub previous: Option<ProcessorId>,
    /// Who runs now: if it is not `previous`, load `State::context`. `None`: load the kernel's own
    /// root table and wait for an interrupt.
    pub next: Option<ProcessorId>,
    /// When the one-shot timer of this processor must fire (nanoseconds since the kernel's start);
    /// `None` leaves it as it is.
    pub deadline_ns: Option<u64>,
}

impl Decision {
    /// Whether contexts have to be exchanged.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        self.previous != self.next
    }
}

/// What the glue loads when it switches to a virtual processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// For CR3.
    pub root: FrameNumber,
    /// Whose space that is.
    pub environment: Option<EnvironmentId>,
    /// FS base.
    pub fs_base: u64,
    /// User GS base.
    pub gs_base: u64,
}

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
        /// Whose clock or device is being heard: who wakes by it need not wait for the slice's end.
        pub(crate) prompt_cpu: Option<CpuId> = None,
        /// Since when whoever the clock wakes next is charged.
        pub(crate) clock_since_ns: Option<u64> = None,
        /// What has been paid in all draws.
        pub(crate) paid_ns: u64 = 0,
        /// Physical processors that wait for an interrupt, a bit each.
        pub(crate) idle_cpus: u32 = 0,
        /// What this entry may still look at; see `spend`.
        pub(crate) work_left: usize = 0,
        pub(crate) links: Links = Links::EMPTY,
        /// Who funds whom.
        pub(crate) lottery: KernelLottery = KernelLottery::new(),
        /// What decides the draws.
        pub(crate) random: Keyed = Keyed::new([0; 2]),
        /// Who wants to run and does not.
        pub(crate) ready: ReadySet = ReadySet::EMPTY,
        /// First of those whose funding does not say yet what they do.
        pub(crate) touched: Option<ProcessorId> = None,
        /// Who is asleep and waits for no words, in the order in which they fell asleep.
        pub(crate) sleepers: Queue = Queue::EMPTY,
        /// Those of them that wait for words, in the order in which they are looked at.
        pub(crate) word_sleepers: Queue = Queue::EMPTY,
        /// When many of these may be looked at again.
        pub(crate) word_look_ns: u64 = 0,
        /// Serial of the object made last.
        pub(crate) last_serial: u64 = 0,
        /// Serial of the environment made last; also names frame owners.
        pub(crate) last_environment_serial: u32 = 0,
        /// Slice length.
        pub(crate) slice_ns: u64 = 0,
        /// Earliest clock term of any sleeper; `u64::MAX` means none, 0 that it must be computed.
        pub(crate) clock_min_ns: u64 = 0,
        /// Clock terms up to then have been looked at.
        pub(crate) clock_checked_ns: u64 = 0,
        /// When the clock rings the next bell, or earlier, where a deadline was taken back; `u64::MAX`: it rings none.
        pub(crate) bell_clock_min_ns: u64 = 0,
        /// A bit for each bell that has a deadline, or had one that was taken back.
        pub(crate) alarms: [u64; BELL_COUNT_MAX / 64] = [0; BELL_COUNT_MAX / 64],
        /// No bell at or above this index was ever made.
        pub(crate) bell_end: usize = 0,
        /// Sleepers that wait for words.
        pub(crate) word_sleeper_count: u32 = 0,
        /// Earliest reclaim deadline; 0 none.
        pub(crate) reclaim_min_ns: u64 = 0,
        /// Whose upper entries every root table shares.
        pub(crate) template_root: FrameNumber = FrameNumber(0),
        /// The system page.
        pub(crate) system_page: FrameNumber = FrameNumber(0),
        /// Its end ends the machine.
        pub(crate) first_environment: Option<EnvironmentId> = None,
    }
}

impl<M: Machine> State<'_, M> {
    /// Takes from the one budget that all walks and searches of an entry share, the checks among them: about one for
    /// each word of a table. Whoever can be long looks at what is left, and leaves the rest to the next call or pass.
    pub(crate) fn spend(&mut self, words: usize) {
        self.work_left = self.work_left.saturating_sub(words);
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

    /// A `syscall` instruction: RIP in the lower half is the program's (an upcall), else a kernel
    /// call. `None`: whoever made it goes on, as nearly always, and nothing else is to be done.
    #[inline(always)]
    pub fn on_syscall(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Option<Decision> {
        let current = self.cpus[cpu].current;
        if let Some(processor) = current
            && let Some(environment) = self.processors[processor].environment
            && self.processors[processor].state == ProcessorState::Running
            && frame.rip >= LIBOS_BASE
            && !crate::call::may_switch(frame.rax)
        {
            // User mode ran here, so its registers are live and nobody says that this processor idles.
            self.this_cpu = Some(cpu);
            self.work_left = WORK_BUDGET;
            self.cpus[cpu].entered = current;
            self.count(environment, Counter::KernelCalls, 1);
            let caller = Caller { cpu, processor, environment };
            let words = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
            if let Outcome::Done(status, value) = crate::call::dispatch(self, caller, frame.rax, &words) {
                frame.rax = status as u64;
                frame.rdx = value;
            }
            return (!self.goes_on(cpu, processor)).then(|| self.leave(cpu, frame));
        }
        Some(self.on_switch(cpu, frame))
    }

    /// Whether who runs on `cpu` goes on, and nothing else is due there.
    #[inline(always)]
    pub(crate) fn goes_on(&self, cpu: CpuId, processor: ProcessorId) -> bool {
        let object = &self.processors[processor];
        object.state == ProcessorState::Running && object.due == 0 && !self.cpus[cpu].is_deadline_stale
    }

    /// One that is not a kernel call, or one that may take its caller from the processor.
    #[inline(never)]
    fn on_switch(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Decision {
        let Some(processor) = self.enter(cpu) else {
            return self.leave(cpu, frame);
        };
        let environment = self.processors[processor].environment_id();
        if frame.rip < LIBOS_BASE {
            self.deliver_syscall(processor, frame);
            return self.leave(cpu, frame);
        }
        self.count(environment, Counter::KernelCalls, 1);
        let words = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
        let caller = Caller { cpu, processor, environment };
        self.save(cpu, frame);
        if let Outcome::Done(status, value) = crate::call::dispatch_switch(self, caller, frame.rax, &words) {
            (frame.rax, frame.rdx) = (status as u64, value);
            self.cpus[cpu].is_live = true;
        }
        self.leave(cpu, frame)
    }

    /// An exception in user mode that the machine could not deliver: `vector`, `error_code` and `fault_address` of the
    /// frame are set.
    pub fn on_exception(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Decision {
        if let Some(processor) = self.enter(cpu) {
            self.deliver_or_stop(processor, UpcallKind::Exception, frame);
        }
        self.leave(cpu, frame)
    }

    /// An interrupt of device functions, by its source: masks each that raises it, rings its bell.
    pub fn on_interrupt(&mut self, cpu: CpuId, frame: &mut UpcallFrame, mut source: usize) -> Decision {
        if let Some(processor) = self.enter(cpu) {
            let environment = self.processors[processor].environment_id();
            self.count(environment, Counter::Interrupts, 1);
        }
        let since_ns = self.machine.now_ns();
        let mut who = None;
        self.prompt_cpu = Some(cpu);
        while let Some((device, interrupt, next)) = self.machine.next_raised(source) {
            who = self.device_interrupt(device, interrupt).or(who);
            source = next;
        }
        self.prompt_cpu = None;
        self.charge_interrupt(cpu, who, since_ns);
        self.end_slice(cpu, frame);
        self.leave(cpu, frame)
    }

    /// The one-shot timer of this processor: slice ends, clock terms, reclaim deadlines.
    pub fn on_timer(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Decision {
        self.enter(cpu);
        self.scheduling_pass(cpu, frame);
        let decision = self.leave(cpu, frame);
        let deadline_ns = self.deadline(cpu);
        self.arm(cpu, decision, deadline_ns)
    }

    /// Another processor asked this one to look again, or it starts to take part in scheduling.
    pub fn on_kick(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Decision {
        self.enter(cpu);
        let decision = self.leave(cpu, frame);
        let deadline_ns = self.deadline(cpu);
        self.arm(cpu, decision, deadline_ns)
    }

    /// What to load for a virtual processor that `Decision::next` names.
    #[must_use]
    pub fn context(&self, processor: ProcessorId) -> Context {
        let object = &self.processors[processor];
        Context { root: object.root, environment: object.environment, fs_base: object.fs_base, gs_base: object.gs_base }
    }

    /// Stores FS and GS base of a processor that `Decision::previous` names; whether it is still there and has vector
    /// state to be saved.
    pub fn save_context(&mut self, processor: ProcessorId, fs_base: u64, gs_base: u64) -> bool {
        let object = &mut self.processors[processor];
        (object.fs_base, object.gs_base) = (fs_base, gs_base);
        object.serial != 0
    }

    /// Counts what the machine did by itself: system calls and exceptions of a program that it turned into upcalls, and
    /// null calls.
    #[cold]
    pub fn count_entries(&mut self, cpu: CpuId, [syscalls, exceptions, short_calls]: [u64; 3]) {
        if let Some(environment) = self.cpus[cpu].current.and_then(|processor| self.processors[processor].environment) {
            self.count(environment, Counter::UpcallsSyscall, syscalls);
            self.count(environment, Counter::UpcallsException, exceptions);
            self.count(environment, Counter::KernelCalls, short_calls);
        }
    }

    fn enter(&mut self, cpu: CpuId) -> Option<ProcessorId> {
        self.this_cpu = Some(cpu);
        if self.idle_cpus != 0 {
            self.idle_cpus &= !(1 << cpu.index());
        }
        self.work_left = WORK_BUDGET;
        let here = &mut self.cpus[cpu];
        let current = here.current;
        here.is_live = current.is_some();
        here.entered = current;
        // One that was stopped from elsewhere asks for nothing any more.
        current.filter(|p| self.processors[*p].state == ProcessorState::Running)
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

    /// Puts the registers of who runs next into the frame, unless they are there.
    fn resume(&mut self, cpu: CpuId, processor: ProcessorId, frame: &mut UpcallFrame) {
        if !self.cpus[cpu].is_live {
            *frame = self.processors[processor].registers;
            self.cpus[cpu].is_live = true;
        }
    }

    /// Decides who runs next, delivers what is due to it and puts its registers into the frame.
    #[inline]
    fn leave(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Decision {
        let here = &self.cpus[cpu];
        let previous = here.entered;
        // Nearly always: whoever came goes on, and nothing is due.
        if here.is_live && here.current == previous && previous.is_some_and(|previous| self.goes_on(cpu, previous)) {
            return Decision { previous, next: previous, deadline_ns: None };
        }
        self.decide(cpu, previous, frame)
    }

    #[inline(never)]
    fn decide(&mut self, cpu: CpuId, previous: Option<ProcessorId>, frame: &mut UpcallFrame) -> Decision {
        // Ends: a turn delivers what is due, or takes a processor away for good, or takes one out
        // of the finite set of those that are ready.
        let mut now_ns = None;
        loop {
            match self.cpus[cpu].current {
                Some(processor) if self.processors[processor].state == ProcessorState::Running => {
                    if self.processors[processor].due == 0 {
                        break;
                    }
                    self.resume(cpu, processor, frame);
                    self.deliver_due(processor, frame);
                }
                Some(_) => {
                    // Whoever goes on later was saved before its state changed; a stopped one's
                    // registers are not needed.
                    self.cpus[cpu].is_live = false;
                    now_ns = Some(self.vacate(cpu));
                }
                None => {
                    let now_ns = now_ns.unwrap_or_else(|| self.machine.now_ns());
                    if !self.dispatch_next(cpu, now_ns) {
                        break;
                    }
                }
            }
        }
        let next = self.cpus[cpu].current;
        match next {
            Some(processor) => self.resume(cpu, processor, frame),
            None => self.idle_cpus |= 1 << cpu.index(),
        }
        let decision = Decision { previous, next, deadline_ns: None };
        if !core::mem::take(&mut self.cpus[cpu].is_deadline_stale) {
            return decision;
        }
        let deadline_ns = self.deadline(cpu);
        if deadline_ns < self.cpus[cpu].armed_ns { self.arm(cpu, decision, deadline_ns) } else { decision }
    }

    fn arm(&mut self, cpu: CpuId, decision: Decision, deadline_ns: u64) -> Decision {
        self.cpus[cpu].armed_ns = deadline_ns;
        Decision { deadline_ns: Some(deadline_ns), ..decision }
    }
}

/// Turns a status into a refusal without payload.
impl From<Status> for crate::call::Refusal {
    fn from(status: Status) -> Self {
        Self { status, value: 0 }
    }
}

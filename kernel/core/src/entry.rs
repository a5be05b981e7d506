//! What happens when a physical processor enters the kernel, and what it does when it leaves.
//!
//! The glue holds one lock around each entry point. It passes the trap frame of the interrupted
//! environment; after the call the frame holds the registers to continue with, and the [`Decision`]
//! says whose they are. The registers of a virtual processor are in its object except while it runs:
//! then they are in the trap frame ("live"), so that a call that does not switch copies nothing.
//! Invariant: a processor whose state is `Running` is `current` on exactly one physical processor;
//! another state may still be `current` there (it was stopped from elsewhere) until that processor
//! enters the kernel and leaves it. Everything else of this crate is below it.

use aegis_abi::call::{BellAwait, GateCall, GateReply, Yield};
use aegis_abi::counter::Counter;
use aegis_abi::layout::LIBOS_BASE;
use aegis_abi::types::{CapSlot, FrameNumber, Status};
use aegis_abi::upcall::{UpcallFrame, UpcallKind};

use crate::id::{CpuId, EnvironmentId, Id, ProcessorId};
use crate::outcome::{Caller, Outcome};
use crate::state::WORK_BUDGET;
use crate::{Machine, State};

/// What the glue does before it returns to user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The processor that ran when the kernel was entered. If it is not `next`: save its FS and GS base and its vector
    /// state before the lock is released (`State::save_context`).
    pub previous: Option<ProcessorId>,
    /// The processor that runs now: if it is not `previous`, load `State::context`. `None`: load the kernel's own root
    /// table and wait for an interrupt.
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
    /// FS base of the processor that runs next.
    pub fs_base: u64,
    /// User GS base.
    pub gs_base: u64,
}

impl<M: Machine> State<'_, M> {
    /// A `syscall` instruction: RIP in the lower half is the program's (an upcall), else a kernel call. `None`: the
    /// caller goes on, as nearly always, and nothing else is to be done.
    #[inline(always)]
    pub fn on_syscall(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Option<Decision> {
        let current = self.cpus[cpu].current;
        if let Some(processor) = current
            && let Some(environment) = self.processors[processor].environment
            && self.processors[processor].is_running()
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

    /// Whether the processor that runs on `cpu` goes on, and nothing else is due there.
    #[inline(always)]
    pub(crate) fn goes_on(&self, cpu: CpuId, processor: ProcessorId) -> bool {
        let object = &self.processors[processor];
        object.is_running() && object.due == 0 && !self.cpus[cpu].is_deadline_stale
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
        if let Some(processor) = self.enter(cpu)
            && !self.machine.extension().is_some_and(|it| it.exception(self, self.current_tables(processor), frame))
        {
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
        self.leave_armed(cpu, frame)
    }

    /// Another processor asked this one to look again, or it starts to take part in scheduling.
    pub fn on_kick(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Decision {
        self.enter(cpu);
        self.leave_armed(cpu, frame)
    }

    #[inline(always)]
    fn leave_armed(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Decision {
        let decision = self.leave(cpu, frame);
        let deadline_ns = self.deadline(cpu);
        self.arm(cpu, decision, deadline_ns)
    }

    /// A call to a processor that waits for one, the reply to a call, or a yield that needs no draw, while nothing else
    /// is due: the slice, the physical processor and the registers that are the message go over as they are. Answers
    /// the processors that had it and that has it now. `None`: it is not so, nothing is changed, and it is an event
    /// like any other.
    #[inline]
    pub fn on_transfer(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Option<(ProcessorId, ProcessorId)> {
        let processor = self.cpus[cpu].current?;
        let object = &self.processors[processor];
        let environment = object.environment?;
        let here = &self.cpus[cpu];
        let is_in_slice = here.limit_ns == 0 && here.payer.is_some();
        if !object.is_running() || frame.rip < LIBOS_BASE || !is_in_slice {
            return None;
        }
        let caller = Caller { cpu, processor, environment };
        let next = match frame.rax {
            GateCall::NUMBER => self.call_at_once(caller, frame)?,
            GateReply::NUMBER => self.reply_at_once(processor, frame)?,
            BellAwait::NUMBER => return self.wait_at_once(caller, frame).map(|next| (processor, next)),
            Yield::NUMBER => return self.yield_at_once(caller, frame).map(|next| (processor, next)),
            _ => return None,
        };
        // RCX and R11 are what `sysret` makes of RIP and RFLAGS.
        frame.rax = Status::Ok as u64;
        self.count(environment, Counter::KernelCalls, 1);
        self.pass_on(cpu, processor, next);
        Some((processor, next))
    }

    /// `SpaceEnter` by the processor that runs on `cpu`, where nothing else is due. `None`: it is not so, nothing is
    /// changed, and it is an event like any other.
    #[inline]
    pub fn on_space_enter(&mut self, cpu: CpuId, slot: u64) -> Option<()> {
        let processor = self.cpus[cpu].current.filter(|processor| self.goes_on(cpu, *processor))?;
        let environment = self.processors[processor].environment?;
        self.enter_space(Caller { cpu, processor, environment }, CapSlot(u32::try_from(slot).ok()?)).ok()
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
        current.filter(|p| self.processors[*p].is_running())
    }

    /// Puts the registers of the processor that runs next into the frame, unless they are there.
    fn resume(&mut self, cpu: CpuId, processor: ProcessorId, frame: &mut UpcallFrame) {
        if !self.cpus[cpu].is_live {
            *frame = self.processors[processor].registers;
            self.cpus[cpu].is_live = true;
        }
    }

    /// Decides which processor runs next, delivers what is due to it and puts its registers into the frame.
    #[inline]
    fn leave(&mut self, cpu: CpuId, frame: &mut UpcallFrame) -> Decision {
        let here = &self.cpus[cpu];
        let previous = here.entered;
        // Nearly always: the processor that came goes on, and nothing is due.
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
                Some(processor) if self.processors[processor].is_running() => {
                    if self.processors[processor].due == 0 {
                        break;
                    }
                    self.resume(cpu, processor, frame);
                    self.deliver_due(processor, frame);
                }
                Some(_) => {
                    // A processor that goes on later was saved before its state changed; a stopped one's registers are
                    // not needed.
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

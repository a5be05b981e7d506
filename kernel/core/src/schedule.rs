//! Slices: which processor has a physical one, until when, and the bounds on slice ends.
//!
//! Everything else says "wants to run" (`make_ready`), "gives up" (`vacate`) or "this one next" (`hand_off`). The
//! lottery (`funding.rs`) decides which gets a new slice, for all physical processors alike. Invariant: a processor is
//! in the ready set exactly while its state is `Ready` and nobody has been told to hand over to it; whatever is chosen,
//! isolation does not depend on it (INV-5).
//!
//! All time is paid for (`Funding::unpaid_ns`), and the wait for the next slice is in the mean as long as what is
//! unpaid: what is used of a slice, also beyond its end, by its winner, even where that hands it on; what is used of a
//! rest that was given away, by the winner of that rest. So a share does not depend on the pattern in which slices are
//! used. Time that no other processor wanted is free.

use aegis_abi::call::StopReason;
use aegis_abi::counter::Counter;
use aegis_abi::types::{CapSlot, Rights, SLOT_NONE, Status};
use aegis_abi::upcall::{SLICE_END_LIMIT_NS, SLICE_END_MISS_COUNT_MAX, UpcallFrame, UpcallKind};

use crate::id::{CpuId, EnvironmentId, Id, ProcessorId};
use crate::machine::StopReport;
use crate::object::{SLEEP_ENDING_KINDS, WORD_POLL_NS, control_word, save_call};
use crate::outcome::Caller;
use crate::{Machine, State};

/// At most one processor that wakes wins a slice of a physical processor in this time.
const WAKE_DRAW_NS: u64 = 1_000_000;

impl<M: Machine> State<'_, M> {
    /// Lets a processor compete, and wakes an idle physical processor for it.
    #[inline(always)]
    pub(crate) fn make_ready(&mut self, processor: ProcessorId) {
        self.processors[processor].become_ready();
        self.add_to_ready(processor);
        if let Some(cpu) = CpuId::from_index(self.idle_cpus.trailing_zeros() as usize) {
            self.idle_cpus &= !(1 << cpu.index());
            self.machine.kick(cpu);
        }
    }

    /// As that, of one that waited: it may win the slice under way.
    pub(crate) fn make_ready_at_once(&mut self, processor: ProcessorId) {
        let cpu = self.prompt_cpu.filter(|_| self.idle_cpus == 0);
        self.processors[processor].left_ns = u64::MAX;
        self.make_ready(processor);
        if let Some(cpu) = cpu
            && self.note_missed(processor)
        {
            let only = Some(processor).filter(|_| !self.cpus[cpu].has_woken);
            self.cpus[cpu].has_woken = true;
            self.draw_on_wake(cpu, only);
        }
        self.charge_clock(processor);
    }

    /// A processor that waits for the clock pays for being looked at and woken, not the one that runs.
    pub(crate) fn charge_clock(&mut self, processor: ProcessorId) {
        if let Some((cpu, since_ns)) = self.prompt_cpu.zip(self.clock_since_ns) {
            self.clock_since_ns = Some(self.charge_interrupt(cpu, self.processors[processor].environment, since_ns));
        }
    }

    /// Gives the rest of this physical processor's slice to `target`, which is in no queue; if the
    /// slice is over, `target` waits for its turn like everybody else, so that nobody stretches a
    /// slice by passing it on.
    pub(crate) fn hand_off(&mut self, cpu: CpuId, target: ProcessorId) {
        if self.cpus[cpu].limit_ns == 0 {
            self.processors[target].become_ready();
            self.cpus[cpu].hand_off = Some(target);
        } else {
            self.make_ready(target);
        }
    }

    /// The running processor gives the rest of its slice to the one that the scheduler picks. One whose slice is over
    /// anyhow is in the draw like all others.
    pub(crate) fn give_up_slice(&mut self, cpu: CpuId) {
        if self.cpus[cpu].limit_ns == 0 {
            self.cpus[cpu].gave_way = self.cpus[cpu].current;
        }
    }

    /// Charges the slice's payer for what `processor` used, which has run here. What somebody was given without asking
    /// delays its next slice by one slice at most.
    #[inline(always)]
    pub(crate) fn charge(&mut self, cpu: CpuId, processor: ProcessorId, now_ns: u64) {
        let here = &mut self.cpus[cpu];
        let from_ns = core::mem::replace(&mut here.uncharged_ns, now_ns);
        let end_ns = if here.is_given { here.slice_end_ns.clamp(from_ns, now_ns.max(from_ns)) } else { from_ns };
        let payer = here.payer.unwrap_or(processor);
        let given_max_ns = 2 * self.slice_ns;
        let unpaid_ns = &mut self.processors[payer].funding.unpaid_ns;
        *unpaid_ns += (end_ns - from_ns).min(given_max_ns.saturating_sub(*unpaid_ns));
        *unpaid_ns += now_ns.saturating_sub(end_ns);
        self.touch(payer);
    }

    /// The environment that the kernel worked for pays for what that took, not the one that ran. Gives the time.
    pub(crate) fn charge_interrupt(&mut self, cpu: CpuId, driver: Option<EnvironmentId>, since_ns: u64) -> u64 {
        let now_ns = self.machine.now_ns();
        let took_ns = now_ns.saturating_sub(since_ns);
        if let Some(driver) = driver {
            self.environments[driver].debt_ns += took_ns;
            self.cpus[cpu].uncharged_ns += took_ns;
        }
        now_ns
    }

    /// Takes the physical processor from its current holder and charges the time. Returns the time.
    pub(crate) fn vacate(&mut self, cpu: CpuId) -> u64 {
        let now_ns = self.machine.now_ns();
        if let Some(processor) = self.cpus[cpu].current.take() {
            self.charge(cpu, processor, now_ns);
            self.end_turn(cpu, processor, now_ns);
        }
        now_ns
    }

    /// Notes what a processor that loses its physical one has used.
    #[inline(always)]
    fn end_turn(&mut self, cpu: CpuId, processor: ProcessorId, now_ns: u64) {
        let here = &mut self.cpus[cpu];
        here.last = Some(processor);
        let used_ns = now_ns.saturating_sub(here.dispatched_ns);
        self.processors[processor].end_turn(now_ns, used_ns);
    }

    /// Gives a physical processor that nobody holds to a processor that is in no queue.
    #[inline(always)]
    fn begin_turn(&mut self, cpu: CpuId, processor: ProcessorId, now_ns: u64) {
        let here = &mut self.cpus[cpu];
        here.current = Some(processor);
        here.dispatched_ns = now_ns;
        self.processors[processor].begin_turn(cpu);
        self.touch(processor);
    }

    /// Gives a physical processor and the rest of its slice from its holder to `next`, which is in no queue, at once.
    /// The slice has the same payer then, so it is charged when that changes.
    #[inline(always)]
    pub(crate) fn pass_on(&mut self, cpu: CpuId, from: ProcessorId, next: ProcessorId) {
        let now_ns = self.machine.now_ns();
        self.end_turn(cpu, from, now_ns);
        self.begin_turn(cpu, next, now_ns);
    }

    /// A yield to the processor that it names, or to the only ready one, if nothing has to be delivered to either.
    /// `None`: it is not so, and nothing is changed.
    #[inline(never)]
    pub(crate) fn yield_at_once(&mut self, caller: Caller, frame: &mut UpcallFrame) -> Option<ProcessorId> {
        let Caller { cpu, processor, environment } = caller;
        let now_ns = self.machine.now_ns();
        let is_directed = frame.rdi != u64::from(SLOT_NONE.0);
        let next = if is_directed {
            let slot = CapSlot(u32::try_from(frame.rdi).ok()?);
            self.lookup_processor(environment, slot, Rights::empty()).ok()?.id
        } else if self.ready.only().is_some()
            && self.sleepers.count_for_words() == 0
            && now_ns < self.cpus[cpu].slice_end_ns
        {
            self.ready.only()?
        } else {
            return None;
        };
        self.leave_at_once(caller, next, frame)?;
        if !is_directed {
            self.charge(cpu, processor, now_ns);
            (self.cpus[cpu].payer, self.cpus[cpu].is_given) = (Some(next), true);
        }
        self.make_ready(processor);
        self.enter_at_once(caller, next, frame, now_ns);
        Some(next)
    }

    /// A wait for a bell that was not rung, where one is ready and has nothing delivered. `None`: it is not so, and
    /// nothing is changed.
    #[inline(never)]
    pub(crate) fn wait_at_once(&mut self, caller: Caller, frame: &mut UpcallFrame) -> Option<ProcessorId> {
        let Caller { cpu, processor, environment } = caller;
        let slot = CapSlot(u32::try_from(frame.rdi).ok()?);
        let bell = self.lookup_bell(environment, slot, Rights::WAIT).ok()?;
        let next =
            self.ready.only().filter(|_| self.sleepers.count_for_words() == 0 && self.bells[bell.id].count() == 0)?;
        let (_, pending) = self.mask_word(processor);
        if pending & SLEEP_ENDING_KINDS != 0 {
            return None;
        }
        self.leave_at_once(caller, next, frame)?;
        self.begin_wait(processor, bell);
        let now_ns = self.machine.now_ns();
        self.charge(cpu, processor, now_ns);
        self.begin_slice(cpu, next, now_ns);
        self.enter_at_once(caller, next, frame, now_ns);
        Some(next)
    }

    /// Takes `next` out of the ready set and saves a caller that makes room for it, if nothing has to be delivered to
    /// either; else changes nothing.
    #[inline(always)]
    fn leave_at_once(&mut self, caller: Caller, next: ProcessorId, frame: &UpcallFrame) -> Option<()> {
        let object = &self.processors[next];
        let is_due = object.due != 0 || object.transfer.picks || self.processors[caller.processor].due != 0;
        let is_other = object.registers.vector != frame.vector;
        if !self.is_in_ready(next) || is_due || is_other || object.has_run && !self.hold_back_slice_begin(next) {
            return None;
        }
        self.take_from_ready(next);
        self.count(caller.environment, Counter::KernelCalls, 1);
        let registers = &mut self.processors[caller.processor].registers;
        save_call(frame, registers);
        (registers.rax, registers.rdx, registers.vector) = (Status::Ok as u64, 0, frame.vector);
        Some(())
    }

    #[inline(always)]
    fn enter_at_once(&mut self, caller: Caller, next: ProcessorId, frame: &mut UpcallFrame, now_ns: u64) {
        self.end_turn(caller.cpu, caller.processor, now_ns);
        self.begin_turn(caller.cpu, next, now_ns);
        let registers = &self.processors[next].registers;
        save_call(registers, frame);
        (frame.rax, frame.rdx) = (registers.rax, registers.rdx);
    }

    /// Gives a free physical processor to the one that it was handed to, or to the winner of a draw: of the rest of the
    /// slice if that was given away, else of a new one. False: none wants it.
    pub(crate) fn dispatch_next(&mut self, cpu: CpuId, now_ns: u64) -> bool {
        let handed = self.cpus[cpu].hand_off.take();
        let gave_way = self.cpus[cpu].gave_way.take().filter(|_| now_ns < self.cpus[cpu].slice_end_ns);
        if handed.is_none() {
            // Here too, so that processors which only yield to each other starve no sleeper.
            self.wake_for_words(now_ns);
        }
        let winner = self.cpus[cpu].winner.take();
        let Some(processor) =
            handed.or_else(|| winner.filter(|it| self.take_from_ready(*it))).or_else(|| self.choose(gave_way))
        else {
            let here = &mut self.cpus[cpu];
            (here.limit_ns, here.payer, here.is_deadline_stale) = (0, None, true);
            return false;
        };
        if handed.is_none() {
            if gave_way.is_some() {
                (self.cpus[cpu].payer, self.cpus[cpu].is_given) = (Some(processor), true);
            } else {
                self.begin_slice(cpu, processor, now_ns);
            }
            let object = &self.processors[processor];
            if object.has_run {
                let (control, lost_ns) = (object.pages.control(), now_ns.saturating_sub(object.left_ns));
                let before_ns = self.machine.load(control, control_word!(preempted_ns));
                self.machine.store(control, control_word!(preempted_ns), before_ns.wrapping_add(lost_ns));
                if self.cpus[cpu].last != Some(processor) && !self.hold_back_slice_begin(processor) {
                    self.processors[processor].due |= 1 << UpcallKind::SliceBegin as u32;
                }
            }
        }
        self.cpus[cpu].uncharged_ns = now_ns;
        self.begin_turn(cpu, processor, now_ns);
        if self.processors[processor].transfer.picks {
            self.serve_next(processor);
        }
        true
    }

    fn begin_slice(&mut self, cpu: CpuId, processor: ProcessorId, now_ns: u64) {
        let here = &mut self.cpus[cpu];
        (here.payer, here.is_given) = (Some(processor), false);
        here.uncharged_ns = now_ns;
        here.slice_end_ns = now_ns.saturating_add(self.slice_ns);
        (here.limit_ns, here.missed_count) = (0, 0);
        // The one that woke is this, and there is nobody to draw for.
        here.has_woken &= !self.ready.is_empty();
        // The timer that is set fires no later than before.
        here.is_deadline_stale |= here.slice_end_ns < here.armed_ns || here.has_woken;
        self.processors[processor].slices += 1;
        self.pay(processor);
        let environment = self.processors[processor].environment_id();
        self.count(environment, Counter::Slices, 1);
    }

    /// When the processors that woke are drawn for on this physical one: not now if one has won or a slice is ending.
    fn wake_draw_ns(&self, cpu: CpuId) -> u64 {
        let here = &self.cpus[cpu];
        let may_draw = here.has_woken && here.current.is_some() && here.limit_ns == 0 && here.winner.is_none();
        if may_draw { here.wake_draw_ns } else { u64::MAX }
    }

    /// A processor woken by the clock or by a device wins the slice under way as often as is due for the draws that it
    /// missed. Once one has won, the others wait for a while, and are drawn for in turn. `only`: no other waits.
    pub(crate) fn draw_on_wake(&mut self, cpu: CpuId, only: Option<ProcessorId>) {
        let now_ns = self.machine.now_ns();
        if now_ns < self.wake_draw_ns(cpu) {
            self.cpus[cpu].is_deadline_stale |= self.cpus[cpu].has_woken;
            return;
        }
        let mut next = only.or_else(|| self.next_woken());
        while let Some(processor) = next {
            if self.wins_missed(processor) {
                let here = &mut self.cpus[cpu];
                (here.winner, here.has_woken) = (next, only.is_none());
                here.wake_draw_ns = now_ns.saturating_add(WAKE_DRAW_NS);
                (here.slice_end_ns, here.is_deadline_stale) = (here.slice_end_ns.min(now_ns), true);
                return;
            }
            next = self.next_woken();
        }
        // With the budget used up there may be more.
        self.cpus[cpu].has_woken = self.work_left == 0;
    }

    /// What is due by the clock: sleepers, reclaims, the end of this physical processor's slice.
    pub(crate) fn scheduling_pass(&mut self, cpu: CpuId, frame: &UpcallFrame) {
        let now_ns = self.machine.now_ns();
        (self.prompt_cpu, self.clock_since_ns) = (Some(cpu), Some(now_ns));
        self.ring_due(now_ns);
        self.wake_due(now_ns);
        (self.prompt_cpu, self.clock_since_ns) = (None, None);
        self.draw_on_wake(cpu, None);
        self.reclaim_due(cpu, now_ns);
        self.end_slice(cpu, frame);
    }

    /// Ends this physical processor's slice, if it is over.
    pub(crate) fn end_slice(&mut self, cpu: CpuId, frame: &UpcallFrame) {
        let now_ns = self.machine.now_ns();
        let Some(processor) = self.cpus[cpu].current else { return };
        if !self.processors[processor].is_running() || now_ns < self.cpus[cpu].slice_end_ns {
            return;
        }
        let limit_ns = self.cpus[cpu].limit_ns;
        if limit_ns != 0 {
            if now_ns >= limit_ns {
                self.processors[processor].overrun_ns += now_ns - limit_ns;
                self.cpus[cpu].missed_count += 1;
                if self.cpus[cpu].missed_count < SLICE_END_MISS_COUNT_MAX {
                    // The host of a virtual machine may have taken the time, but hardly so often in a row.
                    self.cpus[cpu].limit_ns = now_ns.saturating_add(SLICE_END_LIMIT_NS);
                    return;
                }
                let environment = self.processors[processor].environment_id();
                let report = StopReport { reason: StopReason::SliceOverrun, rip: frame.rip, ..StopReport::RUNNING };
                self.stop_environment(environment, report);
            }
        } else if self.ready.is_empty() {
            self.begin_slice(cpu, processor, now_ns);
        } else if self.entry_point(processor, UpcallKind::SliceEnd).is_some() {
            self.processors[processor].due |= 1 << UpcallKind::SliceEnd as u32;
            self.cpus[cpu].limit_ns = now_ns.saturating_add(SLICE_END_LIMIT_NS);
        } else {
            self.save(cpu, frame);
            self.make_ready(processor);
        }
    }

    /// When this physical processor's timer must fire.
    pub(crate) fn deadline(&mut self, cpu: CpuId) -> u64 {
        let mut deadline_ns = match (self.cpus[cpu].current, self.cpus[cpu].limit_ns) {
            (None, _) if self.sleepers.count_for_words() != 0 => self.machine.now_ns().saturating_add(WORD_POLL_NS),
            (None, _) => u64::MAX,
            (Some(_), 0) => self.cpus[cpu].slice_end_ns,
            (Some(_), limit_ns) => limit_ns,
        };
        deadline_ns = deadline_ns.min(self.wake_draw_ns(cpu));
        deadline_ns = deadline_ns.min(self.next_clock_ns()).min(self.alarms.next_ns());
        if self.reclaim_min_ns != 0 {
            deadline_ns = deadline_ns.min(self.reclaim_min_ns);
        }
        deadline_ns
    }
}

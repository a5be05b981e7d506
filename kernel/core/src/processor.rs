//! Virtual processors: their registers, their control page and save area, and the delivery of
//! upcalls.
//!
//! Invariants: the kernel writes only to the pinned frames that it was given when the processor was made, so delivery
//! never faults; what it pushes lies wholly inside the save area; it reads entry points and the mask afresh each time.
//! Asynchronous upcalls are collected in `due` and delivered (or turned into pending bits) only when the processor is
//! about to return to user mode, in one place, so that no call has to know whether its caller gets an upcall.

use aegis_abi::call::{ProcessorState, StopReason};
use aegis_abi::counter::Counter;
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, PAGE_SIZE};
use aegis_abi::share::Table;
use aegis_abi::types::{FrameNumber, Status};
use aegis_abi::upcall::{ControlPage, RED_ZONE_BYTES, REPOSSESSED_COUNT_MAX, UpcallFrame, UpcallKind};

use crate::id::{EnvironmentId, Named, ProcessorId};
use crate::machine::StopReport;
use crate::object::{
    CapRef, FrameKind, Live, Pages, Processor, SLEEP_ENDING_KINDS, USER_FLAGS, control_word, start_registers,
};
use crate::outcome::refuse_if;
use crate::{Machine, State};

const FRAME_BYTES: u64 = size_of::<UpcallFrame>() as u64;
const _: () = assert!(control_word!(entries) == control_word!(masked) + 1);

impl Pages {
    /// The entry point for a kind, if there is one in the window.
    #[inline(always)]
    fn entry_point(&self, memory: &impl Machine, kind: UpcallKind) -> Option<u64> {
        let entry = memory.load(self.control(), control_word!(entries) + kind as usize);
        (LIBOS_BASE..LIBOS_END).contains(&entry).then_some(entry)
    }

    /// Pushes the registers in the frame on the save area and enters the library OS. Reaches nothing but these pages; a
    /// refusal leaves them and the frame as they are.
    fn push(&self, memory: &mut impl Machine, kind: UpcallKind, frame: &mut UpcallFrame) -> Result<(), StopReason> {
        let entry = self.entry_point(memory, kind).ok_or(StopReason::NoHandler)?;
        let address = push_address(self, frame.rsp).ok_or(StopReason::SaveAreaFull)?;
        let mask = memory.load(self.control(), control_word!(masked));
        frame.kind = kind as u32;
        frame.masked_before = mask as u32;
        if kind != UpcallKind::Exception {
            (frame.vector, frame.error_code, frame.fault_address) = (0, 0, 0);
        }
        self.store_frame(memory, address, frame);
        memory.store(self.control(), control_word!(masked), mask >> 32 << 32 | 1);
        *frame = start_registers(entry, address, address);
        Ok(())
    }

    fn store_frame(&self, memory: &mut impl Machine, address: u64, frame: &UpcallFrame) {
        let offset_bytes = address - self.save_area_base;
        let page = FrameNumber(self.first_frame + 1 + offset_bytes / PAGE_SIZE);
        let word_index = (offset_bytes % PAGE_SIZE / 8) as usize;
        if word_index + FRAME_BYTES as usize / 8 <= 512 {
            memory.store_words(page, word_index, frame.to_words());
            return;
        }
        for (at, word) in (word_index..).zip(frame.to_words()) {
            memory.store(FrameNumber(page.0 + at as u64 / 512), at % 512, word);
        }
    }
}

/// Asynchronous kinds in the order in which they are delivered. The slice end comes first because
/// its time is bounded.
const DELIVERY_ORDER: [UpcallKind; 5] =
    [UpcallKind::SliceEnd, UpcallKind::Repossession, UpcallKind::Revocation, UpcallKind::Bell, UpcallKind::SliceBegin];

impl<M: Machine> State<'_, M> {
    /// Makes a processor: pins its pages, takes a donated frame for its vector state.
    pub(crate) fn make_processor(
        &mut self,
        environment: EnvironmentId,
        pages: Pages,
        paid_with: CapRef,
    ) -> Result<Named<ProcessorId>, Status> {
        self.environments[environment].check_share(Table::Processors)?;
        let id = self.processors.find(|p| p.serial == 0).ok_or(Status::TableFull)?;
        refuse_if(!self.frames.pin_range(pages.first_frame, pages.frame_count()), Status::TableFull)?;
        let Some(vector_state) = self.take_donated(environment, FrameKind::VectorState) else {
            self.frames.unpin_range(pages.first_frame, pages.frame_count());
            return Err(Status::NoTables);
        };
        self.machine.vector_init(vector_state);
        let funding = self.new_funding(environment, id);
        let serial = self.new_serial();
        self.prepare_control_page(&pages);
        self.machine.context_made(id, &pages, vector_state);
        // A free entry is empty.
        let object = &mut self.processors[id];
        (object.serial, object.environment, object.paid_with) = (serial, Some(environment), Some(paid_with));
        (object.pages, object.vector_state, object.funding) = (pages, vector_state, funding);
        self.environments[environment].count_entry(Table::Processors, true);
        Ok(Named { id, serial })
    }

    /// Starts a stopped processor of a running environment.
    pub(crate) fn start_processor(&mut self, processor: ProcessorId, rip: u64, rsp: u64, argument: u64) -> Live<()> {
        let environment = self.processors[processor].environment_id();
        let root = self.environments[environment].root;
        let object = &mut self.processors[processor];
        refuse_if(
            object.state() != ProcessorState::Stopped
                || object.is_ending
                || self.environments[environment].is_stopped()
                || self.environments[environment].is_ending,
            Status::WrongState,
        )?;
        refuse_if(object.cpu().is_some(), Status::Again)?;
        object.registers = start_registers(rip, rsp, argument);
        (object.fs_base, object.gs_base) = (0, object.pages.control_address);
        object.root = root;
        (object.has_run, object.due) = (false, 0);
        object.funding.unpaid_ns = object.funding.unpaid_ns.max(self.slice_ns);
        self.make_ready(processor);
        Ok(())
    }

    /// The entry point for a kind, if there is one in the window.
    #[inline(always)]
    pub(crate) fn entry_point(&self, processor: ProcessorId, kind: UpcallKind) -> Option<u64> {
        self.processors[processor].pages.entry_point(&self.machine, kind)
    }

    /// `masked` and `pending` of the control page.
    #[inline(always)]
    pub(crate) fn mask_word(&self, processor: ProcessorId) -> (u32, u32) {
        let control = self.processors[processor].pages.control();
        let word = self.machine.load(control, control_word!(masked));
        (word as u32, (word >> 32) as u32)
    }

    #[inline(always)]
    pub(crate) fn store_mask_word(&mut self, processor: ProcessorId, masked: u32, pending: u32) {
        let control = self.processors[processor].pages.control();
        let word = u64::from(masked) | u64::from(pending) << 32;
        self.machine.store(control, control_word!(masked), word);
    }

    /// Makes a slice begin pending if the control page does not let it be delivered at once; else false.
    #[inline(always)]
    pub(crate) fn hold_back_slice_begin(&mut self, processor: ProcessorId) -> bool {
        const KIND: usize = UpcallKind::SliceBegin as usize;
        let control = self.processors[processor].pages.control();
        let [mask_word, .., entry] = self.machine.words::<{ KIND + 2 }>(control)(control_word!(masked));
        if mask_word as u32 == 0 && (LIBOS_BASE..LIBOS_END).contains(&entry) {
            return false;
        }
        if mask_word >> 32 & 1 << KIND == 0 {
            self.machine.store(control, control_word!(masked), mask_word | 1 << (32 + KIND));
        }
        true
    }

    /// A program's `syscall`: nothing is pushed, RIP and flags go to the control page, RSP stays
    /// the program's.
    #[cold]
    pub(crate) fn deliver_syscall(&mut self, processor: ProcessorId, frame: &mut UpcallFrame) {
        let Some(entry) = self.entry_point(processor, UpcallKind::Syscall) else {
            self.stop_for(processor, StopReason::NoHandler, frame);
            return;
        };
        let control = self.processors[processor].pages.control();
        self.machine.store_words(control, control_word!(syscall_rip), [frame.rip, frame.rflags, frame.rsp]);
        (frame.rip, frame.rflags) = (entry, USER_FLAGS);
        let (_, pending) = self.mask_word(processor);
        self.store_mask_word(processor, 1, pending);
        let environment = self.processors[processor].environment_id();
        self.count(environment, Counter::UpcallsSyscall, 1);
    }

    /// Delivers a synchronous upcall for the registers as they are; if that cannot be, stops the
    /// environment.
    pub(crate) fn deliver_or_stop(&mut self, processor: ProcessorId, kind: UpcallKind, frame: &mut UpcallFrame) {
        if let Err(reason) = self.deliver(processor, kind, frame) {
            self.stop_for(processor, reason, frame);
        }
    }

    fn stop_for(&mut self, processor: ProcessorId, reason: StopReason, frame: &UpcallFrame) {
        let report = StopReport { reason, vector: frame.vector, address: frame.fault_address, rip: frame.rip };
        self.stop_environment(self.processors[processor].environment_id(), report);
    }

    /// Pushes the registers in the frame on the save area and enters the library OS.
    fn deliver(&mut self, processor: ProcessorId, kind: UpcallKind, frame: &mut UpcallFrame) -> Result<(), StopReason> {
        let pages = &self.processors[processor].pages;
        pages.push(&mut self.machine, kind, frame)?;
        if kind == UpcallKind::Exception {
            // A program may have taken it: then its library OS came no further than to this exception.
            self.machine.set_gs_base(pages.control_address);
        }
        let counter = match kind {
            UpcallKind::Exception => Some(Counter::UpcallsException),
            UpcallKind::SliceBegin | UpcallKind::SliceEnd => Some(Counter::UpcallsSlice),
            UpcallKind::Bell => Some(Counter::UpcallsBell),
            UpcallKind::Syscall | UpcallKind::Revocation | UpcallKind::Repossession => None,
        };
        if let Some(counter) = counter {
            self.count(self.processors[processor].environment_id(), counter, 1);
        }
        Ok(())
    }

    /// Delivers one of the due asynchronous upcalls if the control page allows it; the others
    /// become pending bits.
    pub(crate) fn deliver_due(&mut self, processor: ProcessorId, frame: &mut UpcallFrame) {
        let due = core::mem::take(&mut self.processors[processor].due);
        let (masked, pending) = self.mask_word(processor);
        let is_due = |kind: &UpcallKind| due & (1 << *kind as u32) != 0;
        let chosen = DELIVERY_ORDER
            .into_iter()
            .filter(is_due)
            .find(|kind| masked == 0 && self.entry_point(processor, *kind).is_some());
        let held = due & !chosen.map_or(0, |kind| 1 << kind as u32);
        if held != 0 {
            self.store_mask_word(processor, masked, pending | held);
        }
        if let Some(kind) = chosen {
            self.deliver_or_stop(processor, kind, frame);
        }
    }

    /// Makes an asynchronous upcall due: now if it runs here, soon if it runs elsewhere, else when
    /// it runs again. Ends a sleep.
    pub(crate) fn make_due(&mut self, processor: ProcessorId, kind: UpcallKind) {
        let bit = 1 << kind as u32;
        self.processors[processor].due |= bit;
        match self.processors[processor].state() {
            ProcessorState::Running => {
                self.kick_holder(processor);
            }
            ProcessorState::Asleep if bit & SLEEP_ENDING_KINDS != 0 => {
                self.wake(processor, aegis_abi::Status::Interrupted, 0);
            }
            // Its registers say already that waiting for calls was interrupted.
            ProcessorState::Accepting if bit & SLEEP_ENDING_KINDS != 0 => self.make_ready_at_once(processor),
            _ => {}
        }
    }

    /// Adds a frame that was taken by force to a control page's list.
    pub(crate) fn report_repossessed(&mut self, processor: ProcessorId, frame: FrameNumber) {
        let control = self.processors[processor].pages.control();
        let count = self.machine.load(control, control_word!(repossessed_count));
        // The library OS can write here what it likes; a count out of range starts again at 0.
        let index = usize::try_from(count).ok().filter(|c| *c < REPOSSESSED_COUNT_MAX).unwrap_or(0);
        self.machine.store(control, control_word!(repossessed) + index, frame.0);
        self.machine.store(control, control_word!(repossessed_count), index as u64 + 1);
    }

    /// Fills the address fields of a control page.
    pub(crate) fn prepare_control_page(&mut self, pages: &Pages) {
        let fields = [
            (control_word!(control_address), pages.control_address),
            (control_word!(save_area_top), pages.save_area_top()),
            (control_word!(save_area_base), pages.save_area_base),
        ];
        for (index, value) in fields {
            self.machine.store(pages.control(), index, value);
        }
    }

    /// Whether a table entry still holds the object that was named.
    pub(crate) fn live_processor(&self, named: Named<ProcessorId>) -> Option<ProcessorId> {
        (self.processors[named.id].serial == named.serial).then_some(named.id)
    }

    /// Makes the physical processor that runs a virtual one look again, unless that is the one
    /// which is in the kernel now.
    fn kick_holder(&mut self, processor: ProcessorId) {
        if let Some(cpu) = self.processors[processor].cpu()
            && self.this_cpu != Some(cpu)
        {
            self.machine.kick(cpu);
        }
    }

    /// Stops a processor, whatever it is doing; the processors that wait for it are told that it is gone.
    pub(crate) fn stop_processor(&mut self, processor: ProcessorId) {
        match self.processors[processor].state() {
            ProcessorState::Stopped => return,
            ProcessorState::Ready => {
                self.take_from_ready(processor);
                for cpu in self.cpus.ids() {
                    if self.cpus[cpu].hand_off == Some(processor) {
                        self.cpus[cpu].hand_off = None;
                    }
                }
            }
            ProcessorState::Asleep => self.end_sleep(processor),
            ProcessorState::Running => {
                self.kick_holder(processor);
            }
            ProcessorState::Accepting | ProcessorState::Calling => {}
        }
        self.processors[processor].stop();
        self.abandon_transfers(processor);
        self.touch(processor);
    }

    /// Time that a processor has used, up to now.
    pub(crate) fn time_used_ns(&self, processor: ProcessorId) -> u64 {
        let object = &self.processors[processor];
        let since_ns = object.cpu().map_or(0, |cpu| self.machine.now_ns().saturating_sub(self.cpus[cpu].dispatched_ns));
        object.time_used_ns.saturating_add(since_ns)
    }

    /// Unmakes a stopped processor that is on no physical processor: unpins its pages, gives its
    /// vector state frame back.
    pub(crate) fn release_processor(&mut self, processor: ProcessorId) {
        let object = &self.processors[processor];
        let (pages, vector_state) = (object.pages, object.vector_state);
        let environment = object.environment_id();
        self.environments[environment].time_used_ns += object.time_used_ns;
        self.frames.unpin_range(pages.first_frame, pages.frame_count());
        self.donate_frame(environment, vector_state);
        let now_ns = self.machine.now_ns();
        for cpu in self.cpus.ids() {
            // A slice that it passed on: nobody else pays for what is used of it until now.
            if self.cpus[cpu].payer == Some(processor) {
                self.charge(cpu, processor, now_ns);
                self.cpus[cpu].payer = None;
            }
            let here = &mut self.cpus[cpu];
            here.last = here.last.filter(|last| *last != processor);
        }
        self.unfund_processor(processor);
        self.processors[processor] = Processor::EMPTY;
        self.environments[environment].count_entry(Table::Processors, false);
    }
}

/// Where a frame is pushed for a stack pointer: below it if it is in the save area, else at its
/// top. `None`: no room.
///
/// The page below the save area counts as part of it, so that code which ran off its end does not
/// start again at the top.
pub(crate) fn push_address(pages: &Pages, rsp: u64) -> Option<u64> {
    let (base, top) = (pages.save_area_base, pages.save_area_top());
    let below = if (base - PAGE_SIZE..=top).contains(&rsp) { rsp.checked_sub(RED_ZONE_BYTES)? } else { top };
    let address = below.checked_sub(FRAME_BYTES)? & !15;
    (address >= base).then_some(address)
}

const _: () = {
    assert!(core::mem::offset_of!(ControlPage, pending) == core::mem::offset_of!(ControlPage, masked) + 4);
    assert!(PAGE_SIZE / 8 == 512);
};

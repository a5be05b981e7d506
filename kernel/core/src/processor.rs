//! Virtual processors: their registers, their control page and save area, and the delivery of
//! upcalls.
//!
//! Invariants: the kernel writes only to the pinned frames that it was given when the processor was
//! made, so delivery never faults; what it pushes lies wholly inside the save area; it reads entry
//! points and the mask afresh each time. Asynchronous upcalls are collected in `due` and delivered
//! (or turned into pending bits) only when the processor is about to return to user mode, in one
//! place, so that no call has to know whether its caller is the one who gets an upcall.

use aegis_abi::call::{ProcessorState, StopReason};
use aegis_abi::counter::Counter;
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, PAGE_SHIFT, PAGE_SIZE};
use aegis_abi::share::Table;
use aegis_abi::types::FrameNumber;
use aegis_abi::upcall::{
    ControlPage, RED_ZONE_BYTES, REPOSSESSED_COUNT_MAX, USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame,
    UpcallKind,
};

use crate::capability::CapRef;
use crate::funding::Funding;
use crate::gate::Transfer;
use crate::id::{CpuId, EnvironmentId, Id, Named, ProcessorId};
use crate::machine::{Machine, StopReport};
use crate::predicate::Predicate;
use crate::state::State;

/// Most frames of a save area.
pub const SAVE_AREA_FRAME_COUNT_MAX: u32 = 64;
/// Flags of user code that the kernel starts: interrupts on.
pub(crate) const USER_FLAGS: u64 = 0x202;
const FRAME_BYTES: u64 = size_of::<UpcallFrame>() as u64;

/// Word index of a control page field.
macro_rules! control_word {
    ($field:ident) => {
        core::mem::offset_of!(ControlPage, $field) / 8
    };
}
pub(crate) use control_word;

const _: () = assert!(control_word!(entries) == control_word!(masked) + 1);

/// Where control page and save area are: frames and user addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The control page's frame; the save area's frames follow it.
    pub first_frame: u64,
    /// How many they are.
    pub save_area_frame_count: u64,
    /// Where the environment sees the control page.
    pub control_address: u64,
    /// Where it sees the save area.
    pub save_area_base: u64,
}

impl Pages {
    /// The control page.
    #[must_use]
    pub fn control(&self) -> FrameNumber {
        FrameNumber(self.first_frame)
    }

    pub(crate) fn frame_count(&self) -> u64 {
        self.save_area_frame_count + 1
    }

    pub(crate) fn save_area_top(&self) -> u64 {
        self.save_area_base + (self.save_area_frame_count << PAGE_SHIFT)
    }

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

begins! {
    /// A virtual processor.
    pub(crate) struct Processor {
        /// 0: the table entry is free.
        pub(crate) serial: u64 = 0,
        pub(crate) environment: Option<EnvironmentId> = None,
        /// The capability that the pages were made with.
        pub(crate) paid_with: Option<CapRef> = None,
        /// Is unmade as soon as it has left its physical processor; does not start again.
        pub(crate) is_ending: bool = false,
        /// The root table of the space that it is in, from its start on.
        pub(crate) root: FrameNumber = FrameNumber(0),
        pub(crate) state: ProcessorState = ProcessorState::Stopped,
        pub(crate) has_run: bool = false,
        /// Bit n: an upcall of kind n waits for the return to user mode.
        pub(crate) due: u32 = 0,
        pub(crate) cpu: Option<CpuId> = None,
        pub(crate) pages: Pages =
            Pages { first_frame: 0, save_area_frame_count: 0, control_address: 0, save_area_base: 0 },
        pub(crate) vector_state: FrameNumber = FrameNumber(0),
        pub(crate) registers: UpcallFrame = UpcallFrame::ZERO,
        pub(crate) fs_base: u64 = 0,
        pub(crate) gs_base: u64 = 0,
        pub(crate) predicate: Predicate = Predicate::EMPTY,
        pub(crate) transfer: Transfer = Transfer::EMPTY,
        pub(crate) funding: Funding = Funding::EMPTY,
        pub(crate) time_used_ns: u64 = 0,
        pub(crate) slices: u64 = 0,
        pub(crate) overrun_ns: u64 = 0,
        /// When it last lost a physical processor; all ones if it waited since.
        pub(crate) left_ns: u64 = 0,
    }
}

impl Processor {
    /// The environment of a processor that exists. A free entry is nobody's caller; the first
    /// environment stands in for it.
    pub(crate) fn environment_id(&self) -> EnvironmentId {
        self.environment.or_else(|| EnvironmentId::from_index(0)).expect("INV-2: there is a table of environments")
    }
}

/// Registers of user code that the kernel starts at `rip`.
pub(crate) fn start_registers(rip: u64, rsp: u64, rdi: u64) -> UpcallFrame {
    UpcallFrame {
        rip,
        rsp,
        rdi,
        rflags: USER_FLAGS,
        cs: USER_CODE_SELECTOR,
        ss: USER_STACK_SELECTOR,
        ..UpcallFrame::default()
    }
}

const KIND_BELL: u32 = 1 << UpcallKind::Bell as u32;
const KIND_REVOCATION: u32 = 1 << UpcallKind::Revocation as u32;
const KIND_REPOSSESSION: u32 = 1 << UpcallKind::Repossession as u32;
/// Upcalls whose being due or pending ends a sleep, or keeps it from beginning.
pub(crate) const SLEEP_ENDING_KINDS: u32 = KIND_BELL | KIND_REVOCATION | KIND_REPOSSESSION;

/// Asynchronous kinds in the order in which they are delivered. The slice end comes first because
/// its time is bounded.
const DELIVERY_ORDER: [UpcallKind; 5] =
    [UpcallKind::SliceEnd, UpcallKind::Repossession, UpcallKind::Revocation, UpcallKind::Bell, UpcallKind::SliceBegin];

impl<M: Machine> State<'_, M> {
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
        match self.processors[processor].state {
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
        if let Some(cpu) = self.processors[processor].cpu
            && self.this_cpu != Some(cpu)
        {
            self.machine.kick(cpu);
        }
    }

    /// Stops a processor, whatever it is doing; whoever waits for it is told that it is gone.
    pub(crate) fn stop_processor(&mut self, processor: ProcessorId) {
        match self.processors[processor].state {
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
        self.processors[processor].state = ProcessorState::Stopped;
        self.processors[processor].due = 0;
        self.abandon_transfers(processor);
        self.touch(processor);
    }

    /// Time that a processor has used, up to now.
    pub(crate) fn time_used_ns(&self, processor: ProcessorId) -> u64 {
        let object = &self.processors[processor];
        let since_ns = object.cpu.map_or(0, |cpu| self.machine.now_ns().saturating_sub(self.cpus[cpu].dispatched_ns));
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

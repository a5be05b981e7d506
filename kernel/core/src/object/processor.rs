//! Virtual processors as data: registers, pages, and what they take part in. Upcalls are delivered in `processor.rs`
//! above, slices given in `schedule.rs`.

use aegis_abi::call::ProcessorState;
use aegis_abi::layout::PAGE_SHIFT;
use aegis_abi::types::{FrameNumber, Rights, Status};
use aegis_abi::upcall::{USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame, UpcallKind};

use super::capability::CapRef;
use super::funding::Funding;
use super::gate::{Call, Transfer};
use super::predicate::Predicate;
use crate::id::{CpuId, EnvironmentId, Id};

/// Most frames of a save area.
pub const SAVE_AREA_FRAME_COUNT_MAX: u32 = 64;
/// Rights of the capability for a new processor.
pub(crate) const PROCESSOR_RIGHTS: Rights = Rights::READ.union(Rights::CONTROL).union(Rights::GRANT);
/// Flags of user code that the kernel starts: interrupts on.
pub(crate) const USER_FLAGS: u64 = 0x202;

/// Word index of a control page field.
macro_rules! control_word {
    ($field:ident) => {
        core::mem::offset_of!(aegis_abi::upcall::ControlPage, $field) / 8
    };
}
pub(crate) use control_word;

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
        state: ProcessorState = ProcessorState::Stopped,
        pub(crate) has_run: bool = false,
        /// Bit n: an upcall of kind n waits for the return to user mode.
        pub(crate) due: u32 = 0,
        cpu: Option<CpuId> = None,
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
    #[inline(always)]
    pub(crate) fn state(&self) -> ProcessorState {
        self.state
    }

    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.state == ProcessorState::Running
    }

    /// The physical processor that it has.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> Option<CpuId> {
        self.cpu
    }

    /// Wants a physical processor, or is handed one.
    #[inline(always)]
    pub(crate) fn become_ready(&mut self) {
        self.state = ProcessorState::Ready;
    }

    /// Gets a physical processor.
    #[inline(always)]
    pub(crate) fn begin_turn(&mut self, cpu: CpuId) {
        debug_assert!(self.cpu.is_none() && self.serial != 0, "it is in one place");
        (self.state, self.cpu, self.has_run) = (ProcessorState::Running, Some(cpu), true);
    }

    /// Loses it; what it does then was said before.
    #[inline(always)]
    pub(crate) fn end_turn(&mut self, now_ns: u64, used_ns: u64) {
        debug_assert!(self.cpu.is_some(), "it was somewhere");
        (self.cpu, self.left_ns) = (None, now_ns);
        self.time_used_ns = self.time_used_ns.wrapping_add(used_ns);
    }

    /// Waits for what its predicate says.
    #[inline(always)]
    pub(crate) fn fall_asleep(&mut self) {
        debug_assert_ne!(self.state, ProcessorState::Asleep, "one sleep at a time");
        self.state = ProcessorState::Asleep;
    }

    /// Waits for the reply to a call.
    #[inline(always)]
    pub(crate) fn begin_call(&mut self, call: Call) {
        debug_assert!(self.is_running() && self.transfer.calling.is_none(), "one call at a time");
        (self.state, self.transfer.calling) = (ProcessorState::Calling, Some(call));
    }

    /// Waits for calls; when it goes on without one, that was interrupted.
    #[inline(always)]
    pub(crate) fn accept(&mut self) {
        debug_assert!(self.is_running() && self.transfer.serving.is_none(), "who accepts has replied");
        self.state = ProcessorState::Accepting;
        self.set_result(Status::Interrupted, 0);
    }

    /// Does nothing any more until it is started.
    pub(crate) fn stop(&mut self) {
        (self.state, self.due) = (ProcessorState::Stopped, 0);
    }

    /// What its call returns, when it goes on.
    #[inline(always)]
    pub(crate) fn set_result(&mut self, status: Status, value: u64) {
        (self.registers.rax, self.registers.rdx) = (status as u64, value);
    }

    /// The environment of a processor that exists. A free entry is no caller; the first environment stands in for it.
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

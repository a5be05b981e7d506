//! A network card whose driver is in the kernel: its session is reached by calls of the kernel's extension, and is
//! bound for the function as one range.
//!
//! The function is the kernel's: what this pod has of it is the right to say what it reaches and what bell its
//! interrupts ring. Taking the range back stops it (ADR 0075), so that is done only where the session ends with it.
//!
//! Neighbours: [`exos_linux::host::card_session`] is the card over a session, `aegis_proto::net::KernelCall` says what
//! the calls are, `net_card` makes one at the network's first use.

use core::sync::atomic::AtomicU64;

use aegis_abi::boot::BootInfo;
use aegis_abi::{CapSlot, Status};
use aegis_hal::DmaRegion;
use aegis_proto::net::KernelCall;
use aegis_rt::call;
use exos::platform::FrameGrant;
use exos_linux::host::card_session::SHAPE;
use exos_linux::host::session_place::{SessionPlace, Sessions, visit_while_more};

use super::disk_kernel::{extension, function_slot};
use super::domain::{session_bytes, take_session};
use super::kernel;

/// Of the kernel's cards.
const NUMBER: u64 = 0;

/// Where a card of the kernel's is reached.
pub(crate) struct Place {
    device: CapSlot,
    session: FrameGrant,
    words: &'static [AtomicU64],
    sessions: Sessions,
}

impl Place {
    /// Finds the kernel's card, whose interrupts ring a bell; with the bytes of its session's frames.
    pub(crate) fn find(info: &BootInfo, bell: CapSlot) -> Result<(Self, DmaRegion), Status> {
        let function = extension(KernelCall::Find as u64, [NUMBER, 0, 0, 0])?;
        let device = function_slot(info, function as u32).ok_or(Status::WrongState)?;
        call::device_interrupt_bind(device, 0, bell).map_err(|refusal| refusal.status)?;
        let word_page_count = SHAPE.word_page_count() as u64;
        let (session, words) = take_session(SHAPE.page_count() as u64, word_page_count)?;
        let bytes = session_bytes(session, word_page_count).ok_or(Status::WrongState)?;
        Ok((Self { device, session, words, sessions: Sessions::new() }, bytes))
    }

    fn call(&self, call: KernelCall) -> Option<u64> {
        self.sessions.call(|| extension(call as u64, [NUMBER, 0, 0, 0]))
    }
}

impl SessionPlace for Place {
    const IS_CALLED: bool = true;

    fn words(&self) -> &[AtomicU64] {
        self.words
    }

    fn ring(&self) {
        visit_while_more(|| self.call(KernelCall::Visit));
    }

    fn listen(&self) -> bool {
        // What is lost is for a look to find.
        self.call(KernelCall::Ask) != Some(0)
    }

    fn end(&self) -> bool {
        // Refused where the kernel has ended it already.
        let _ = extension(KernelCall::Detach as u64, [NUMBER, 0, 0, 0]);
        // SAFETY: the function is stopped before it loses the range; one that was taken by force is none any more.
        let _ = unsafe { call::device_dma_unbind(self.device, self.session.slot, 0, self.session.count) };
        true
    }

    fn start(&self) -> bool {
        let FrameGrant { slot, first, count } = self.session;
        // SAFETY: frames in which no Rust object lies but words of the session.
        let reached = unsafe { call::device_dma_bind(self.device, slot, 0, count) };
        let is_there = reached.is_ok() && extension(KernelCall::Attach as u64, [NUMBER, first.0, count, 0]).is_ok();
        self.sessions.begin();
        is_there
    }

    fn is_stopped(&self) -> bool {
        self.sessions.is_lost()
    }

    fn now_ns(&self) -> u64 {
        kernel::now_ns()
    }
}

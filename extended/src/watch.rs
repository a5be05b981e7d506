//! Watched memory in the kernel: the page tables behind `aegis_service::watch`, and the faults that it hears of first.
//!
//! Invariant: an entry of a page table is changed in three bits alone. A page keeps its frame and its mapping's count
//! while it is closed, and [`entry::WITHHELD`] stands where the right to store was, which the kernel's core takes for
//! that right wherever it looks which rights a mapping uses.

use aegis_abi::call::ExtensionCall;
use aegis_abi::layout::PAGE_SHIFT;
use aegis_abi::memory::entry;
use aegis_abi::types::{FrameNumber, Status};
use aegis_kernel::Hardware;
use aegis_kernel_core::{EnvironmentId, Flush, Id, Place, State, Tables};
use aegis_machine as machine;
use aegis_proto::watch::KernelCall;
use aegis_service::watch::{Refused, Rights, Space, Watch};
use core::sync::atomic::{AtomicU64, Ordering};
use machine::{KernelLock, TrapFrame};

/// A page fault's vector.
const VECTOR_PAGE_FAULT: u64 = 14;
/// Its error code (Intel SDM vol. 3, 4.7): the page is there, a store, ring 3; any other bit is another matter.
const CODE_PRESENT: u64 = 1 << 0;
const CODE_STORE: u64 = 1 << 1;
const CODE_USER: u64 = 1 << 2;
/// The bits that are changed.
const RIGHTS: u64 = entry::WRITE | entry::USER | entry::WITHHELD;

/// What each environment has placed here.
pub(crate) struct Watches(KernelLock<[Watch; EnvironmentId::COUNT]>);

impl Watches {
    pub(crate) const fn new() -> Self {
        Self(KernelLock::new([const { Watch::new() }; EnvironmentId::COUNT]))
    }

    /// An operation, of the space that the caller is in.
    pub(crate) fn call(
        &self,
        state: &mut State<'_, Hardware>,
        by: Tables,
        (operation, call): (KernelCall, &ExtensionCall),
    ) -> Result<u64, Status> {
        let mut watches = self.0.lock();
        let (watch, name) = (&mut watches[by.environment.index()], by.root.0);
        let answer = match operation {
            KernelCall::Place => watch.place(name, [call.first, call.second, call.third, call.fourth, call.fifth]),
            KernelCall::Forget => watch.forget(name, call.first),
            KernelCall::Close => {
                let mut closing = Flush::new(by);
                let mut space = Mapped { state, by, closing: Some(&mut closing) };
                let answer = watch.close(&mut space, [call.first, call.second, call.third]);
                closing.finish(&mut state.machine);
                answer
            }
        };
        match answer {
            Ok(()) => Ok(0),
            Err(Refused::Argument) => Err(Status::BadArgument),
            Err(Refused::NotPlaced) => Err(Status::WrongState),
        }
    }

    /// Whether an exception is a touch of a closed page, and was answered.
    pub(crate) fn exception(&self, state: &mut State<'_, Hardware>, by: Tables, frame: &TrapFrame) -> bool {
        let is_touch =
            frame.vector == VECTOR_PAGE_FAULT && frame.error_code | CODE_STORE == CODE_PRESENT | CODE_STORE | CODE_USER;
        if !is_touch {
            return false;
        }
        let (thread, is_store) = (machine::user_bases().fs, frame.error_code & CODE_STORE != 0);
        let mut watches = self.0.lock();
        let mut space = Mapped { state, by, closing: None };
        watches[by.environment.index()].fault(&mut space, frame.fault_address, is_store, thread)
    }
}

/// The space of whoever calls or faults.
struct Mapped<'a, 'b> {
    state: &'a mut State<'b, Hardware>,
    by: Tables,
    /// Pages that are closed. Who opens one need tell nobody: a processor that has the old translation faults, forgets
    /// it by that (Intel SDM vol. 3, 4.10.4.1), and finds the page open.
    closing: Option<&'a mut Flush>,
}

/// A page: where its entry stands, and what it says.
#[derive(Clone, Copy)]
struct Page {
    place: Place,
    leaf: u64,
}

impl Page {
    fn words(self) -> &'static [AtomicU64; 512] {
        machine::words(FrameNumber((self.leaf & entry::FRAME_MASK) >> PAGE_SHIFT))
    }
}

impl Space for Mapped<'_, '_> {
    type Page = Page;

    fn name(&self) -> u64 {
        self.by.root.0
    }

    fn page(&self, address: u64) -> Option<(Page, Rights)> {
        let (place, leaf) = self.state.program_page(self.by, address)?;
        let has = |bit| leaf & bit != 0;
        let rights = Rights { loads: has(entry::USER), stores: has(entry::WRITE), withheld: has(entry::WITHHELD) };
        Some((Page { place, leaf }, rights))
    }

    fn set_rights(&mut self, address: u64, page: Page, rights: Rights) {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let set =
            bit(rights.loads, entry::USER) | bit(rights.stores, entry::WRITE) | bit(rights.withheld, entry::WITHHELD);
        if self.state.change_leaf(page.place, page.leaf, (RIGHTS, set))
            && let Some(flush) = &mut self.closing
        {
            flush.add(address);
        }
    }

    fn load(&self, page: Page, word: usize) -> u64 {
        page.words()[word].load(Ordering::Relaxed)
    }

    fn store(&mut self, page: Page, word: usize, value: u64) {
        page.words()[word].store(value, Ordering::Relaxed);
    }

    fn copy(&mut self, from: Page, to: Page) {
        // Eight words a turn: an emulator does a string instruction one word at a time.
        let (from, to) = (from.words().as_chunks::<8>().0, to.words().as_chunks::<8>().0);
        for (from, to) in from.iter().zip(to) {
            for (from, to) in from.iter().zip(to) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
}

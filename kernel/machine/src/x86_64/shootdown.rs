//! Making other processors forget translations, acknowledged.
//!
//! Protocol: the requester takes the single request slot, writes what to drop, sets the targets' bits in `PENDING`,
//! sends them an interrupt and waits until all bits are clear. A target drops the translations and clears its bit.
//!
//! Why it cannot deadlock with the kernel lock: a target is either (a) in ring 3 or idle, with interrupts on: it
//! takes the interrupt, whose handler takes no lock; (b) waiting in ring 0, for the kernel lock or for this module's
//! slot or acknowledgements: every such loop calls [`service`]; or (c) in ring 0 and not waiting: it leaves, or comes
//! to wait, after a bounded time. No loop of ring 0 waits for anything else, so the requester may hold the kernel
//! lock.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use aegis_abi::layout::PAGE_SIZE;

use super::{instructions, interrupt, local_apic, paging, power, processor};

/// Pages above which dropping everything is cheaper.
const SINGLE_PAGE_COUNT_MAX: u64 = 32;

/// Translations to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The translations of consecutive small pages.
    Pages {
        /// First page's address.
        address: u64,
        /// Number of pages from there on.
        page_count: u64,
    },
    /// Everything but the kernel's own.
    All,
}

static SLOT_TAKEN: AtomicBool = AtomicBool::new(false);
static PENDING: AtomicU32 = AtomicU32::new(0);
static ADDRESS: AtomicU64 = AtomicU64::new(0);
/// 0 stands for everything.
static PAGE_COUNT: AtomicU64 = AtomicU64::new(0);

/// Drops translations on the processors whose bits are set in `processors`, this one included if named, and waits for
/// it.
///
/// When it returns, no named processor holds a translation that was loaded before the call. The caller has changed
/// the tables before.
pub fn shootdown(processors: u32, flush: Flush) {
    let own = 1 << processor::processor_index();
    if processors & own != 0 {
        flush_local(flush);
    }
    let others = processors & !own & local_apic::started_mask();
    if others == 0 {
        return;
    }
    let (address, page_count) = match flush {
        Flush::Pages { address, page_count } if page_count <= SINGLE_PAGE_COUNT_MAX => (address, page_count),
        _ => (0, 0),
    };
    let mut looks = 0;
    while SLOT_TAKEN.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        service();
        instructions::look_again(&mut looks);
    }
    ADDRESS.store(address, Ordering::Relaxed);
    PAGE_COUNT.store(page_count, Ordering::Relaxed);
    // Release: a target that sees its bit sees the request and the changed tables.
    PENDING.store(others, Ordering::Release);
    interrupt::send_shootdown(others);
    // Acquire: the targets' drops happened before we go on.
    while PENDING.load(Ordering::Acquire) != 0 {
        if power::is_panicking() {
            break;
        }
        instructions::look_again(&mut looks);
    }
    SLOT_TAKEN.store(false, Ordering::Release);
}

/// Does what a requester asks of this processor, if anything.
pub(crate) fn service() {
    let own = 1 << processor::processor_index();
    if PENDING.load(Ordering::Acquire) & own == 0 {
        return;
    }
    let (address, page_count) = (ADDRESS.load(Ordering::Relaxed), PAGE_COUNT.load(Ordering::Relaxed));
    flush_local(if page_count == 0 { Flush::All } else { Flush::Pages { address, page_count } });
    PENDING.fetch_and(!own, Ordering::Release);
}

/// Drops translations here.
fn flush_local(flush: Flush) {
    match flush {
        Flush::Pages { address, page_count } if page_count <= SINGLE_PAGE_COUNT_MAX => {
            for index in 0..page_count {
                paging::flush_page(address.wrapping_add(index * PAGE_SIZE));
            }
        }
        _ => paging::flush_all(),
    }
}

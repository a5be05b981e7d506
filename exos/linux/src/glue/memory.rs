//! Memory that comes and goes while the pod runs: what exos does when quota is taken from it, and how it tells the
//! manager what it wants (`aegis_link::memory`).
//!
//! Upcalls only note that there is something to do ([`super::shortage`]); it is done where a thread is about to go on
//! with its program, or a processor is idle ([`answer`]): no lock of exos is held there. First go free frames and what
//! caches can let go of, then pages of files that are mapped, and if that is not enough a process, as at the end of
//! memory. So the pod is below its quota before the kernel takes anything by force. Where it does, exos looks which
//! frames went, ends the processes that had them, and goes on.

use aegis_link::memory::{MEMORY_PAGE_BASE, MemoryPage, SLOT_POD_MEMORY, SLOT_POD_MEMORY_BELL, UNIT_FRAME_COUNT};
use aegis_rt::call;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use exos::mem::FramePool;
use exos_linux::task::out_of_memory::give_way;
use exos_linux::task::system::System;

use super::heap::HEAP;
use super::pod::POD;
use super::processor::this_processor;
use super::shortage::{IS_ASKED, IS_HEAP_SHORT, IS_SHORT};
use super::{direct, fiber, kernel};

/// How long until another look, while more is owned than may be.
const LOOK_AGAIN_NS: u64 = 2_000_000;
/// The manager is told of pressure no more often than this.
const RING_INTERVAL_NS: u64 = 20_000_000;
/// What can be spared is counted no more often than this.
const COUNT_INTERVAL_NS: u64 = 200_000_000;
/// Until another look, while memory was asked for.
const ASK_AGAIN_NS: u64 = 1_000_000;
/// How long an end of memory waits for the manager.
const MANAGER_WAIT_NS: u64 = 1_500_000_000;
/// What the manager has refused is not asked for again so soon.
const REFUSAL_NS: u64 = 50_000_000;
/// Frames that are asked for at an end of memory, and at one that follows soon: each time twice as many.
const NEEDED_FRAME_COUNT: u64 = 4 * UNIT_FRAME_COUNT;
const NEEDED_FRAME_COUNT_MAX: u64 = 32 * UNIT_FRAME_COUNT;
/// Time after an answer of the manager within which the next is expected soon.
const SOON_NS: u64 = 100_000_000;

/// Whether the pod has a page that the manager looks at.
static HAS_PAGE: AtomicBool = AtomicBool::new(false);
static RUNG_NS: AtomicU64 = AtomicU64::new(0);
static COUNTED_NS: AtomicU64 = AtomicU64::new(0);
/// When frames were needed first, 0 if none are, and what the quota was and had been refused then.
static NEEDED_NS: AtomicU64 = AtomicU64::new(0);
static QUOTA: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// How many frames were needed last, and until when the next need is one that follows soon.
static NEEDED: AtomicU64 = AtomicU64::new(0);
static SOON_UNTIL_NS: AtomicU64 = AtomicU64::new(0);
/// Until when the manager's last refusal holds.
static REFUSED_UNTIL_NS: AtomicU64 = AtomicU64::new(0);
/// Frames of the pool that go to the kernel then: more than exos has to leave to programs before its heap may grow.
const HEAP_FRAME_COUNT: u64 = (24 << 20) / 4096;
/// How often they go for one call.
pub(crate) const GIFT_COUNT_MAX: u32 = 16;

/// Looks whether memory can change.
pub(crate) fn begin() {
    let has_page = call::cap_read(SLOT_POD_MEMORY, 0).is_ok();
    HAS_PAGE.store(has_page, Ordering::Relaxed);
    if has_page {
        direct::keep_sink();
    }
}

fn page() -> Option<&'static MemoryPage> {
    // SAFETY: the granter of the frame has mapped it there, for the pod's life; all its words are atomic.
    HAS_PAGE.load(Ordering::Relaxed).then(|| unsafe { &*(MEMORY_PAGE_BASE as *const MemoryPage) })
}

/// Frames that others can take no more of, and that there can be at most; `None`: what there is stays.
pub(crate) fn bounds() -> Option<(u64, u64)> {
    page().map(|page| (MemoryPage::read(&page.guaranteed), MemoryPage::read(&page.limit)))
}

/// Frames owned beyond the quota.
fn excess() -> u64 {
    kernel::frames_owned().saturating_sub(kernel::frame_quota())
}

/// Gives up what is owned beyond the quota. Called where no lock is held.
#[cold]
pub(crate) fn answer(system: &System) {
    if !IS_ASKED.swap(false, Ordering::Relaxed) {
        return;
    }
    let pool = &system.pool;
    exos_linux::task::out_of_memory::forget_taken(system);
    while excess() > 0 && HEAP.give_free() {}
    pool.shrink(excess());
    if excess() > 0 {
        for process in system.processes.all() {
            process.space().lock().forget_file_pages();
        }
        pool.shrink(excess());
    }
    if excess() > 0 {
        give_way(system);
        IS_ASKED.store(true, Ordering::Relaxed);
        system.platform.arm_timer(Some(kernel::now_ns() + LOOK_AGAIN_NS));
    }
    count_spare(pool, true);
    if HAS_PAGE.load(Ordering::Relaxed) {
        let _ = call::bell_ring(SLOT_POD_MEMORY_BELL);
    }
}

/// Tells the manager what could be spared, now and then.
pub(crate) fn count_spare(pool: &FramePool, is_urgent: bool) {
    let Some(page) = page() else { return };
    let now_ns = kernel::now_ns();
    if is_urgent || now_ns.saturating_sub(COUNTED_NS.load(Ordering::Relaxed)) >= COUNT_INTERVAL_NS {
        COUNTED_NS.store(now_ns, Ordering::Relaxed);
        MemoryPage::write(&page.spare, pool.spare());
    }
}

/// Memory was given up that will be wanted again. The caller may hold locks.
pub(crate) fn note_pressure(frame_count: u64) {
    let Some(page) = page() else { return };
    page.pressure.fetch_add(frame_count, Ordering::Relaxed);
    ring(kernel::now_ns());
}

fn ring(now_ns: u64) {
    if now_ns.saturating_sub(RUNG_NS.load(Ordering::Relaxed)) >= RING_INTERVAL_NS {
        RUNG_NS.store(now_ns, Ordering::Relaxed);
        let _ = call::bell_ring(SLOT_POD_MEMORY_BELL);
    }
}

/// Whether a call that just failed did so for want of frames, and may find some now: the heap those that the pool holds
/// and nobody uses; otherwise asks for them, and waits. Called where no lock is held.
///
/// The pool takes frames again for each attempt, so giving them back is no progress by itself: `gifts_left` is how
/// often it may still be done for this call.
#[cold]
pub(crate) fn await_for_call(gifts_left: &mut u32) -> bool {
    if IS_HEAP_SHORT.swap(false, Ordering::Relaxed)
        && let Some(left) = gifts_left.checked_sub(1)
        && POD.get().is_some_and(|pod| pod.system.pool.give_back(HEAP_FRAME_COUNT) > 0)
    {
        *gifts_left = left;
        return true;
    }
    IS_SHORT.swap(false, Ordering::Relaxed) && await_frames()
}

/// Asks for frames, and waits until there may be some; false: none will come.
pub(crate) fn await_frames() -> bool {
    let Some(pod) = POD.get() else { return false };
    let may_wait = fiber::current().is_some() && !this_processor().keeps_running();
    if !may_wait || !ask() {
        return false;
    }
    pod.system.platform.wait(Some(kernel::now_ns() + ASK_AGAIN_NS));
    true
}

/// Memory has come to its end. Asks the manager for more; false: none will come.
pub(crate) fn ask() -> bool {
    let Some(page) = page() else { return false };
    IS_SHORT.store(false, Ordering::Relaxed);
    let quota = kernel::frame_quota();
    if note_quota(quota) {
        return true;
    }
    let limit = MemoryPage::read(&page.limit);
    if quota >= limit {
        return false;
    }
    let now_ns = kernel::now_ns();
    let refused = MemoryPage::read(&page.refused);
    let since_ns = NEEDED_NS.load(Ordering::Relaxed);
    if since_ns != 0 {
        let is_open = REFUSED.load(Ordering::Relaxed) == refused && now_ns.saturating_sub(since_ns) < MANAGER_WAIT_NS;
        if is_open {
            ring(now_ns);
        } else {
            REFUSED_UNTIL_NS.store(now_ns + REFUSAL_NS, Ordering::Relaxed);
            end_need();
        }
        return is_open;
    }
    if now_ns < REFUSED_UNTIL_NS.load(Ordering::Relaxed) {
        return false;
    }
    let is_soon = now_ns < SOON_UNTIL_NS.load(Ordering::Relaxed);
    let wanted = if is_soon { 2 * NEEDED.load(Ordering::Relaxed) } else { 0 };
    let needed = wanted.clamp(NEEDED_FRAME_COUNT, NEEDED_FRAME_COUNT_MAX);
    NEEDED.store(needed, Ordering::Relaxed);
    NEEDED_NS.store(now_ns, Ordering::Relaxed);
    REFUSED.store(refused, Ordering::Relaxed);
    QUOTA.store(quota, Ordering::Relaxed);
    MemoryPage::write(&page.needed, needed);
    let _ = call::bell_ring(SLOT_POD_MEMORY_BELL);
    true
}

/// Looks whether memory that was needed has come.
pub(crate) fn note_quota(quota: u64) -> bool {
    let has_come = NEEDED_NS.load(Ordering::Relaxed) != 0 && quota > QUOTA.load(Ordering::Relaxed);
    if has_come {
        SOON_UNTIL_NS.store(kernel::now_ns() + SOON_NS, Ordering::Relaxed);
        end_need();
    }
    has_come
}

/// Memory has come, or will not.
fn end_need() {
    if NEEDED_NS.swap(0, Ordering::Relaxed) != 0
        && let Some(page) = page()
    {
        MemoryPage::write(&page.needed, 0);
    }
}

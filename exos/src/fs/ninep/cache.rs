//! The bound on cached pages of host files: one for all such file systems of a pod.
//!
//! Pages belong to their inodes; here is only the order in which they came, and their number. Beyond the limit, which
//! is a part of the pod's, and
//! when the pod runs out of frames ([`Reclaim`]), the oldest go first; a page that is mapped, or that may hold stores
//! that the server has not, is passed over and becomes the newest.
//!
//! Giving up pages takes no lock that its caller may hold: an inode's lock is only tried.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};

use aegis_abi::FrameNumber;

use super::inode::NinepInode;
use crate::mem::frames::{FramePool, Reclaim};
use crate::sync::Mutex;

/// One part in so many of the pod's frames is not for cached pages.
const KEPT_SHARE: u64 = 8;
/// Queue entries without a page that are tolerated besides as many as there are pages.
const DEAD_ENTRY_COUNT_MAX: usize = 1024;

#[derive(Default)]
struct State {
    /// Pages in the order in which they came; some are gone.
    queue: VecDeque<(Weak<NinepInode>, u64)>,
    /// Pages that are there.
    page_count: u64,
}

/// How many pages are cached, and which came first.
pub struct PageCache {
    state: Mutex<State>,
    pool: Weak<FramePool>,
}

/// What became of a page that should go.
pub(super) enum Eviction {
    /// It is free.
    Freed,
    /// It is in use, or its file is.
    InUse,
    /// It was not there any more.
    Gone,
}

impl PageCache {
    /// An empty cache for the frames of `pool`, which asks it for frames when it has none.
    #[must_use]
    pub fn new(pool: &Arc<FramePool>) -> Arc<Self> {
        let cache = Arc::new(Self { state: Mutex::default(), pool: Arc::downgrade(pool) });
        let own: Weak<Self> = Arc::downgrade(&cache);
        pool.set_reclaimer(own);
        cache
    }

    /// Pages that are cached.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.state.lock().page_count
    }

    /// Notes new pages, and lets others go if there are too many.
    pub(super) fn add(&self, inode: &Weak<NinepInode>, indices: impl Iterator<Item = u64>) {
        let surplus = {
            let mut state = self.state.lock();
            for index in indices {
                state.queue.push_back((inode.clone(), index));
                state.page_count += 1;
            }
            if state.queue.len() > 2 * state.page_count as usize + DEAD_ENTRY_COUNT_MAX {
                state.queue.retain(|(inode, _)| inode.strong_count() > 0);
            }
            let most = |all: u64| (all - all / KEPT_SHARE).max(1);
            let pool = self.pool.upgrade();
            match pool.map(|pool| (pool.limit_at_last(), pool)) {
                // It may have been given more meanwhile.
                Some((last, pool)) if state.page_count > most(last) => {
                    state.page_count.saturating_sub(most(pool.limits().0))
                }
                _ => 0,
            }
        };
        if surplus > 0
            && let Some(pool) = self.pool.upgrade()
        {
            pool.reclaim(surplus);
        }
    }

    /// Looks at each page once, but for those that come and go meanwhile. Takes no memory: there may be none.
    fn each(&self, mut look: impl FnMut(&NinepInode, u64)) {
        let mut place = 0;
        while let Some((inode, index)) = { self.state.lock().queue.get(place).cloned() } {
            if let Some(inode) = inode.upgrade() {
                look(&inode, index);
            }
            place += 1;
        }
    }

    /// Notes that pages are gone that an inode let go of by itself.
    pub(super) fn remove(&self, count: u64) {
        let mut state = self.state.lock();
        state.page_count = state.page_count.saturating_sub(count);
    }
}

impl Reclaim for PageCache {
    fn reclaim(&self, frame_count: u64) -> u64 {
        let mut freed = 0;
        // Each entry is looked at once at most.
        let entry_count = self.state.lock().queue.len();
        for _ in 0..entry_count {
            if freed >= frame_count {
                break;
            }
            let Some((inode, index)) = self.state.lock().queue.pop_front() else { break };
            let Some(inode) = inode.upgrade() else { continue };
            match inode.evict(index) {
                Eviction::Freed => {
                    freed += 1;
                    self.remove(1);
                }
                Eviction::InUse => self.state.lock().queue.push_back((Arc::downgrade(&inode), index)),
                Eviction::Gone => {}
            }
        }
        freed
    }

    fn visit(&self, seen: &mut dyn FnMut(FrameNumber)) {
        self.each(|inode, index| inode.evictable(index).into_iter().for_each(&mut *seen));
    }

    fn forget(&self, is_chosen: &dyn Fn(FrameNumber) -> bool) {
        let mut gone = 0;
        self.each(|inode, index| gone += u64::from(inode.forget(index, is_chosen)));
        self.remove(gone);
    }

    fn reclaim_from(&self, is_chosen: &dyn Fn(FrameNumber) -> bool) -> u64 {
        let mut freed = 0;
        self.each(|inode, index| {
            let is_chosen = inode.evictable(index).is_some_and(is_chosen);
            if is_chosen && matches!(inode.evict(index), Eviction::Freed) {
                freed += 1;
            }
        });
        self.remove(freed);
        freed
    }
}

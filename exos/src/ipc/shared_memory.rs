//! System V shared memory: memory with a number, which is there until it is removed and nobody has it mapped.
//!
//! A segment's pages are a [`PageSource`]; an attachment is an area over it, and nothing else counts attachments: each
//! area holds one reference. So `fork`, `execve`, the cutting of areas and the end of a process need no bookkeeping
//! here. A segment that was removed while it was attached is only known weakly; its memory goes with its last area,
//! and its entry when somebody looks at the table next.
//!
//! Bounds: Linux's limits; the pages are the pod's, and a segment larger than all of the pod's memory is refused.

use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use super::id_table::{IdTable, KEY_PRIVATE};
use super::permission::{Caller, EXECUTE, Ownership, READ, WRITE};
use crate::error::{Errno, Result};
use crate::mem::source::{FileIdentity, FilePage, PageError, PageIntent, PageSource, SharedMemory};
use crate::mem::{AreaFlags, AreaLabel, FramePool, MapBacking, MapRequest, Placement, Protection};
use crate::sync::Mutex;
use crate::task::capability::Capability;

pub use super::semaphore::Look;

const PAGE_BYTES: u64 = 4096;
/// `SHM_DEST` in a mode: it goes with its last attachment.
pub const MODE_REMOVED: u32 = 0o1000;
/// `SHM_LOCKED` in a mode.
pub const MODE_LOCKED: u32 = 0o2000;

/// `/proc/sys/kernel/shm*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a segment.
    pub segment_bytes_max: u64,
    /// Pages in all.
    pub page_count_max: u64,
    /// Most segments (`SHMMNI`).
    pub segment_count_max: u32,
}

impl Default for Limits {
    /// Linux's: nearly none.
    fn default() -> Self {
        let nearly_all = u64::MAX - (1 << 24);
        Self { segment_bytes_max: nearly_all, page_count_max: nearly_all, segment_count_max: 4096 }
    }
}

/// The pages of a segment.
pub struct SegmentMemory {
    id: i32,
    key: i32,
    page_count: u64,
    memory: Arc<SharedMemory>,
}

impl PageSource for SegmentMemory {
    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        if index >= self.page_count {
            return Err(PageError::BeyondEnd);
        }
        self.memory.page(index, intent)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        self.memory.resident_page(index)
    }

    fn resident_pages(&self, indices: Range<u64>, take: &mut dyn FnMut(u64, FilePage)) {
        self.memory.resident_pages(indices, take);
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 1, inode: self.id as u64 }
    }

    fn path(&self) -> String {
        format!("/SYSV{:08x} (deleted)", self.key)
    }

    fn segment(&self) -> Option<i32> {
        Some(self.id)
    }

    fn remove(&self, first_index: u64, page_count: u64) -> Result<()> {
        self.memory.remove(first_index, page_count)
    }
}

enum Pages {
    Kept(Arc<SegmentMemory>),
    /// As long as somebody has them mapped.
    Removed(Weak<SegmentMemory>),
}

struct Segment {
    ownership: Ownership,
    bytes: u64,
    pages: Pages,
    is_locked: bool,
    attached_s: u64,
    detached_s: u64,
    changed_s: u64,
    creator_pid: u32,
    last_pid: u32,
}

/// What is known of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Identifier.
    pub id: i32,
    /// Whose it is; its mode has [`MODE_REMOVED`] and [`MODE_LOCKED`] besides.
    pub ownership: Ownership,
    /// Its size as it was asked for.
    pub bytes: u64,
    /// Areas over it.
    pub attached_count: u64,
    /// When it was last attached, in seconds of realtime; 0 for never.
    pub attached_s: u64,
    /// When it was last detached.
    pub detached_s: u64,
    /// When it was made or changed by a control call.
    pub changed_s: u64,
    /// Process that made it.
    pub creator_pid: u32,
    /// Process that attached or detached it last.
    pub last_pid: u32,
    /// Pages that are there.
    pub resident_count: u64,
}

/// What `IPC_INFO` and `SHM_INFO` tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Limits in force.
    pub limits: Limits,
    /// Segments that there are.
    pub segment_count: u32,
    /// Pages of them.
    pub page_count: u64,
    /// Those that are there.
    pub resident_count: u64,
    /// The highest index in use, 0 if there is none.
    pub index_last: u32,
}

/// The flags of `shmat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// `SHM_RDONLY`.
    pub reads_only: bool,
    /// `SHM_RND`.
    pub rounds: bool,
    /// `SHM_REMAP`.
    pub replaces: bool,
    /// `SHM_EXEC`.
    pub executes: bool,
}

#[derive(Default)]
struct State {
    segments: IdTable<Segment>,
    limits: Limits,
    /// Those that were removed and may still be attached.
    removed: Vec<i32>,
}

/// The segments of a pod.
pub struct Segments {
    pool: Arc<FramePool>,
    state: Mutex<State>,
    /// There were any: most pods never have one, and need not look for attachments.
    is_used: AtomicBool,
}

impl Segment {
    /// The references that areas have, and for a moment those of calls that are about to make one.
    fn attached_count(&self) -> u64 {
        let count = match &self.pages {
            Pages::Kept(memory) => Arc::strong_count(memory) - 1,
            Pages::Removed(memory) => memory.strong_count(),
        };
        count as u64
    }

    fn memory(&self) -> Option<Arc<SegmentMemory>> {
        match &self.pages {
            Pages::Kept(memory) => Some(memory.clone()),
            Pages::Removed(memory) => memory.upgrade(),
        }
    }

    fn status(&self, id: i32) -> Status {
        let attached_count = self.attached_count();
        let mut ownership = self.ownership;
        if matches!(self.pages, Pages::Removed(_)) {
            ownership.mode |= MODE_REMOVED;
        }
        if self.is_locked {
            ownership.mode |= MODE_LOCKED;
        }
        let Self { bytes, attached_s, detached_s, changed_s, creator_pid, last_pid, .. } = *self;
        let resident_count = self.memory().map_or(0, |memory| memory.memory.page_count());
        Status {
            id,
            ownership,
            bytes,
            attached_count,
            attached_s,
            detached_s,
            changed_s,
            creator_pid,
            last_pid,
            resident_count,
        }
    }
}

impl State {
    /// Forgets those that were removed and that nobody has mapped any more.
    fn sweep(&mut self) {
        let Self { segments, removed, .. } = self;
        removed.retain(|id| {
            let is_there = segments.get(*id).is_ok_and(|segment| segment.attached_count() > 0);
            if !is_there {
                segments.remove(*id);
            }
            is_there
        });
    }

    fn page_count(&self) -> u64 {
        self.segments.iter().map(|(_, segment)| segment.bytes.div_ceil(PAGE_BYTES)).sum()
    }
}

impl Segments {
    /// No segment yet.
    #[must_use]
    pub fn new(pool: Arc<FramePool>) -> Self {
        Self { pool, state: Mutex::default(), is_used: AtomicBool::new(false) }
    }

    /// Whether there was never any.
    #[must_use]
    #[inline]
    pub fn is_unused(&self) -> bool {
        !self.is_used.load(Ordering::Relaxed)
    }

    /// `shmget`. `create` and `exclusive` are the flags; `mode` has the permission bits.
    ///
    /// # Errors
    /// `EINVAL`: a size of 0 or beyond the limit for a new segment, or more than the segment has; `ENOENT`, `EEXIST`,
    /// `EACCES`, `ENOSPC`; `ENOMEM`: more than the pod's memory.
    pub fn get(
        &self,
        caller: &Caller<'_>,
        key: i32,
        bytes: u64,
        (create, exclusive): (bool, bool),
        mode: u32,
    ) -> Result<i32> {
        let mut state = self.state.lock();
        state.sweep();
        if key != KEY_PRIVATE {
            if let Some(id) = state.segments.find(key) {
                if create && exclusive {
                    return Err(Errno::EEXIST);
                }
                let segment = state.segments.get(id)?;
                if segment.bytes < bytes {
                    return Err(Errno::EINVAL);
                }
                return segment.ownership.check(caller, mode).map(|()| id);
            }
            if !create {
                return Err(Errno::ENOENT);
            }
        }
        self.make(&mut state, caller, key, bytes, mode)
    }

    fn make(&self, state: &mut State, caller: &Caller<'_>, key: i32, bytes: u64, mode: u32) -> Result<i32> {
        let limits = state.limits;
        if bytes == 0 || bytes > limits.segment_bytes_max {
            return Err(Errno::EINVAL);
        }
        let page_count = bytes.div_ceil(PAGE_BYTES);
        if state.page_count().saturating_add(page_count) > limits.page_count_max {
            return Err(Errno::ENOSPC);
        }
        if page_count > self.pool.limit_at_most() {
            return Err(Errno::ENOMEM);
        }
        state.removed.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let id = state.segments.add(key, limits.segment_count_max as usize, |id| Segment {
            ownership: Ownership::of_new(caller, key, mode),
            bytes,
            pages: Pages::Kept(Arc::new(SegmentMemory {
                id,
                key,
                page_count,
                memory: SharedMemory::new(self.pool.clone()),
            })),
            is_locked: false,
            attached_s: 0,
            detached_s: 0,
            changed_s: caller.now_s,
            creator_pid: caller.pid,
            last_pid: 0,
        })?;
        self.is_used.store(true, Ordering::Relaxed);
        Ok(id)
    }

    /// `shmat`, up to the mapping: what to map. `EINVAL`, `EACCES`.
    ///
    /// A fixed place that may not replace anything fails with `EEXIST` when it is mapped; that is `EINVAL` here.
    pub fn attach(&self, caller: &Caller<'_>, id: i32, address: u64, flags: Attachment) -> Result<MapRequest> {
        if id < 0 {
            return Err(Errno::EINVAL);
        }
        let placement = placement(address, flags)?;
        let (mut protection, mut asked) = (Protection::READ, READ);
        if !flags.reads_only {
            protection |= Protection::WRITE;
            asked |= WRITE;
        }
        if flags.executes {
            protection |= Protection::EXECUTE;
            asked |= EXECUTE;
        }
        let mut state = self.state.lock();
        state.sweep();
        let segment = state.segments.get_mut(id)?;
        segment.ownership.check(caller, asked)?;
        let source = segment.memory().ok_or(Errno::EINVAL)?;
        let backing = MapBacking::File { source, offset_bytes: 0, is_readable: true, is_writable: !flags.reads_only };
        Ok(MapRequest {
            placement,
            length: segment.bytes,
            protection,
            is_shared: true,
            flags: AreaFlags::empty(),
            populate: false,
            backing,
            label: AreaLabel::None,
        })
    }

    /// Notes that a process attached a segment: by `shmat`, or because a child has it too.
    pub fn note_attached(&self, id: i32, pid: u32, now_s: u64) {
        if let Ok(segment) = self.state.lock().segments.get_mut(id) {
            (segment.attached_s, segment.last_pid) = (now_s, pid);
        }
    }

    /// Notes that a process let go of a segment.
    pub fn note_detached(&self, id: i32, pid: u32, now_s: u64) {
        let mut state = self.state.lock();
        if let Ok(segment) = state.segments.get_mut(id) {
            (segment.detached_s, segment.last_pid) = (now_s, pid);
        }
        state.sweep();
    }

    /// `IPC_STAT`, `SHM_STAT`, `SHM_STAT_ANY`. `EINVAL`, `EACCES`.
    pub fn status(&self, caller: &Caller<'_>, id: i32, look: Look) -> Result<Status> {
        let mut state = self.state.lock();
        state.sweep();
        let (id, segment) = match look {
            Look::Number => (id, state.segments.get(id)?),
            Look::Index | Look::Any => state.segments.at_index(id)?,
        };
        if look != Look::Any {
            segment.ownership.check(caller, READ)?;
        }
        Ok(segment.status(id))
    }

    /// `IPC_INFO`, `SHM_INFO`.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut state = self.state.lock();
        state.sweep();
        let resident_count = state.segments.iter().map(|(id, segment)| segment.status(id).resident_count).sum();
        Figures {
            limits: state.limits,
            segment_count: state.segments.count() as u32,
            page_count: state.page_count(),
            resident_count,
            index_last: state.segments.index_last().unwrap_or(0) as u32,
        }
    }

    /// Sets the limits; what exceeds them already stays.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// `/proc/sysvipc/shm`.
    #[must_use]
    pub fn list(&self) -> Vec<Status> {
        let mut state = self.state.lock();
        state.sweep();
        state.segments.iter().map(|(id, segment)| segment.status(id)).collect()
    }

    /// `IPC_SET`. `EINVAL`, `EPERM`.
    pub fn set_owner(&self, caller: &Caller<'_>, id: i32, uid: u32, gid: u32, mode: u32) -> Result<()> {
        let mut state = self.state.lock();
        state.sweep();
        let segment = state.segments.get_mut(id)?;
        segment.ownership.check_control(caller)?;
        segment.ownership.set(uid, gid, mode)?;
        segment.changed_s = caller.now_s;
        Ok(())
    }

    /// `SHM_LOCK`, `SHM_UNLOCK`: nothing is ever paged out, so only the mode tells. `may_lock`: the caller's limit
    /// allows it. `EINVAL`, `EPERM`.
    pub fn set_locked(&self, caller: &Caller<'_>, id: i32, is_locked: bool, may_lock: bool) -> Result<()> {
        let mut state = self.state.lock();
        state.sweep();
        let segment = state.segments.get_mut(id)?;
        if !caller.can(Capability::IPC_LOCK) {
            let owns = caller.uid == segment.ownership.uid || caller.uid == segment.ownership.creator_uid;
            if !owns || is_locked && !may_lock {
                return Err(Errno::EPERM);
            }
        }
        segment.is_locked = is_locked;
        Ok(())
    }

    /// `IPC_RMID`: at once, or with the last attachment; the key is free at once. `EINVAL`, `EPERM`.
    pub fn remove(&self, caller: &Caller<'_>, id: i32) -> Result<()> {
        let removed = {
            let mut state = self.state.lock();
            state.sweep();
            let segment = state.segments.get_mut(id)?;
            segment.ownership.check_control(caller)?;
            let memory = match &segment.pages {
                Pages::Kept(memory) => memory.clone(),
                Pages::Removed(_) => return Ok(()),
            };
            segment.pages = Pages::Removed(Arc::downgrade(&memory));
            segment.ownership.key = KEY_PRIVATE;
            state.segments.forget_key(id);
            state.removed.push(id);
            memory
        };
        // Its pages are many, perhaps: not under the lock.
        drop(removed);
        self.state.lock().sweep();
        Ok(())
    }
}

/// Where an attachment goes. `EINVAL`: not at a page, or in place of nothing.
fn placement(address: u64, flags: Attachment) -> Result<Placement> {
    if address == 0 {
        return if flags.replaces { Err(Errno::EINVAL) } else { Ok(Placement::Hint(0)) };
    }
    let start = address & !(PAGE_BYTES - 1);
    if start != address && !flags.rounds || start == 0 && flags.replaces {
        return Err(Errno::EINVAL);
    }
    Ok(match (start, flags.replaces) {
        (0, _) => Placement::Hint(0),
        (start, true) => Placement::Fixed(start),
        (start, false) => Placement::FixedNoReplace(start),
    })
}

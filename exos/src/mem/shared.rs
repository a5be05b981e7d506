//! What all address spaces of a pod share: its frames, and what one process leaves for the next.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::FrameNumber;

use crate::mem::first_faults::StartFaults;
use crate::mem::frames::FramePool;
use crate::mem::kept::KeptSpaces;
use crate::mem::patched_text::PatchedText;

/// One address space in so many is left to processes that run another program.
const LEFT_TO_EXEC_SHARE: u64 = 32;

/// One for each pod.
pub struct SharedState {
    pool: Arc<FramePool>,
    patched_text: PatchedText,
    start_faults: StartFaults,
    kept_spaces: KeptSpaces,
}

impl SharedState {
    /// Over the frames of a pod, with nothing left yet.
    #[must_use]
    pub fn new(pool: Arc<FramePool>) -> Arc<Self> {
        let (patched_text, start_faults) = (PatchedText::default(), StartFaults::default());
        Arc::new(Self { pool, patched_text, start_faults, kept_spaces: KeptSpaces::default() })
    }

    /// The pod's frames.
    #[must_use]
    pub fn pool(&self) -> &Arc<FramePool> {
        &self.pool
    }

    /// Text that was patched once for all processes of the pod.
    #[must_use]
    pub fn patched_text(&self) -> &PatchedText {
        &self.patched_text
    }

    /// What programs touch first.
    pub(crate) fn start_faults(&self) -> &StartFaults {
        &self.start_faults
    }

    /// Spaces between two processes.
    pub(crate) fn kept_spaces(&self) -> &KeptSpaces {
        &self.kept_spaces
    }

    /// Spaces that are kept.
    #[must_use]
    pub fn kept_space_count(&self) -> usize {
        self.kept_spaces.count()
    }

    /// Whether there are address spaces for one more process, besides those that are left to processes that run another
    /// program: they need a second one for a moment.
    #[must_use]
    pub fn may_fork(&self) -> bool {
        let Some((made_count, count_max)) = self.pool.kernel().space_counts() else { return true };
        let used_count = made_count.saturating_sub(self.kept_space_count() as u64);
        used_count < count_max - count_max.div_ceil(LEFT_TO_EXEC_SHARE)
    }

    /// Ends all kept spaces: their page tables are the pod's memory.
    pub fn end_kept_spaces(&self) {
        self.kept_spaces.end_all(&self.pool);
    }

    /// As [`FramePool::forget_taken`]: nothing that is left for the next process has such a frame any more, and no kept
    /// space maps one.
    pub fn forget_taken(&self) -> Vec<FrameNumber> {
        let taken = self.pool.forget_taken();
        if !taken.is_empty() {
            self.patched_text.forget(&self.pool, |frame| taken.binary_search(&frame).is_ok());
            self.end_kept_spaces();
        }
        taken
    }
}

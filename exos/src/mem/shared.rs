//! What all address spaces of a pod share: its frames, and what one process leaves for the next.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::FrameNumber;

use crate::mem::first_faults::StartFaults;
use crate::mem::frames::FramePool;
use crate::mem::kept::KeptSpaces;
use crate::mem::patched_text::PatchedText;

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

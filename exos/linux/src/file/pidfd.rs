//! A process as a file (`pidfd_open`, `CLONE_PIDFD`): readable once it has ended.
//!
//! It keeps what is left of a process that was waited for, so that its number, which others may have by then, is never
//! mistaken for it.

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::fs::open_file::OpenFile;
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::transfer::{Destination, Source};

use crate::task::process::Process;

/// A process as a file.
pub struct ProcessFile {
    process: Arc<Process>,
}

impl ProcessFile {
    /// A file for this process.
    #[must_use]
    pub fn new(process: &Arc<Process>) -> Arc<Self> {
        Arc::new(Self { process: process.clone() })
    }

    /// Which process; it may have been waited for.
    #[must_use]
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl OpenFile for ProcessFile {
    fn read(&self, _: u64, _: &mut dyn Destination) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn readiness(&self) -> Readiness {
        let has_ended = self.process.is_zombie.load(Ordering::Acquire);
        if has_ended { Readiness::READ } else { Readiness::empty() }
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.process.changes)
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

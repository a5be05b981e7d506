//! A POSIX message queue as a file: what `mq_open` gives a descriptor of.
//!
//! Messages are sent and received by calls of their own (`crate::call::posix_queue`); reading gives a line about the
//! queue, and `poll` says whether there is a message or room for one.

use crate::abi::linux::SIGEV_NONE;
use alloc::sync::Arc;
use core::any::Any;

use exos::error::{Errno, Result};
use exos::fs::open_file::{OpenFile, SeekSupport};
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::transfer::{Destination, Source, put_from};
use exos::ipc::posix_queue::PosixQueue;

/// An open queue.
pub struct QueueFile {
    queue: Arc<PosixQueue>,
}

impl QueueFile {
    /// A file over `queue`.
    #[must_use]
    pub fn new(queue: Arc<PosixQueue>) -> Arc<Self> {
        Arc::new(Self { queue })
    }

    /// The queue behind the file.
    #[must_use]
    pub fn queue(&self) -> &Arc<PosixQueue> {
        &self.queue
    }
}

impl OpenFile for QueueFile {
    fn read(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        let (bytes, notification) = self.queue.summary();
        let pid = notification.map_or(0, |notification| notification.pid);
        let signal = notification.and_then(|notification| notification.signal).unwrap_or(0);
        let kind = if notification.is_some() && signal == 0 { SIGEV_NONE } else { 0 };
        let line = alloc::format!("QSIZE:{bytes:<10} NOTIFY:{kind:<5} SIGNO:{signal:<5} NOTIFY_PID:{pid:<6}\n");
        put_from(line.as_bytes(), offset, destination)
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn readiness(&self) -> Readiness {
        self.queue.readiness()
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(self.queue.wait_queue())
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Offsets
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

//! Byte streams that the glue provides: it implements [`Stream`] over the console driver's ports.
//!
//! Neighbours: [`super::stream_inode`], a stream as a file; [`super::terminal::console`], two of them as a keyboard and
//! a screen.

use alloc::sync::Arc;

use super::readiness::{Readiness, WaitQueue};
use super::transfer::{Destination, Source};
use crate::error::Result;

/// One direction or both of a byte stream, implemented by the glue.
pub trait Stream: Send + Sync {
    /// Reads what is there into `destination`; `Ok(0)` is the end of the input.
    ///
    /// # Errors
    /// `EAGAIN` if nothing is there yet, `EFAULT`, `EIO`.
    fn read(&self, destination: &mut dyn Destination) -> Result<usize>;

    /// Writes what there is room for.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `EFAULT`, `EPIPE` if nobody reads any more, `EIO`.
    fn write(&self, source: &mut dyn Source) -> Result<usize>;

    /// What it is ready for now.
    fn readiness(&self) -> Readiness;

    /// The queue that is told about changes of readiness.
    fn wait_queue(&self) -> &Arc<WaitQueue>;
}

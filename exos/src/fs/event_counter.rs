//! eventfd(2): a counter that is read and written as eight bytes.

use alloc::sync::Arc;
use core::any::Any;

use super::open_file::{OpenFile, SeekSupport};
use super::readiness::{Readiness, WaitQueue};
use super::step::{Step, Transfer, TransferCaller};
use super::transfer::{Destination, Source};
use crate::error::{Errno, Result};
use crate::sync::Mutex;

/// Bytes in a value.
const VALUE_BYTES: usize = 8;
/// Largest value that the counter holds.
const VALUE_MAX: u64 = u64::MAX - 1;

/// An eventfd: a 64-bit counter behind a descriptor.
pub struct EventCounter {
    value: Mutex<u64>,
    is_semaphore: bool,
    queue: Arc<WaitQueue>,
}

impl EventCounter {
    /// A counter that starts at `value`; a semaphore gives one per read, otherwise a read takes all.
    pub fn new(value: u32, is_semaphore: bool) -> Arc<Self> {
        let value = Mutex::new(u64::from(value));
        Arc::new(Self { value, is_semaphore, queue: WaitQueue::new() })
    }

    /// Adds to the counter on behalf of exos (asynchronous input and output); stops at the largest value.
    pub fn add(&self, count: u64) {
        {
            let mut value = self.value.lock();
            *value = value.saturating_add(count).min(VALUE_MAX);
        }
        self.queue.notify(Readiness::READ);
    }
}

/// Takes a value from the program.
fn take_value(source: &mut dyn Source) -> Result<[u8; VALUE_BYTES]> {
    let mut bytes = [0; VALUE_BYTES];
    if source.remaining() < VALUE_BYTES {
        return Err(Errno::EINVAL);
    }
    if source.take(&mut bytes) < VALUE_BYTES { Err(Errno::EFAULT) } else { Ok(bytes) }
}

impl OpenFile for EventCounter {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        if destination.remaining() < VALUE_BYTES {
            return Err(Errno::EINVAL);
        }
        let taken = {
            let mut value = self.value.lock();
            let taken = if self.is_semaphore { (*value).min(1) } else { *value };
            *value -= taken;
            taken
        };
        if taken == 0 {
            return Err(Errno::EAGAIN);
        }
        self.queue.notify(Readiness::WRITE);
        // As on Linux, a value that could not be delivered is lost.
        match destination.put(&taken.to_ne_bytes()) {
            VALUE_BYTES => Ok(VALUE_BYTES),
            _ => Err(Errno::EFAULT),
        }
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        let added = u64::from_ne_bytes(take_value(source)?);
        if added == u64::MAX {
            return Err(Errno::EINVAL);
        }
        {
            let mut value = self.value.lock();
            if VALUE_MAX - *value < added {
                return Err(Errno::EAGAIN);
            }
            *value += added;
        }
        self.queue.notify(Readiness::READ);
        Ok(VALUE_BYTES)
    }

    fn write_step(&self, source: &mut dyn Source, transfer: &mut Transfer, _: &dyn TransferCaller) -> Step {
        let value = match transfer.value.map_or_else(|| take_value(source), Ok) {
            Ok(value) => transfer.value.insert(value),
            Err(error) => return Step::Failed(error),
        };
        Step::of(self.write(0, &mut &value[..]))
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn takes_whole(&self) -> bool {
        true
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Accepted
    }

    fn readiness(&self) -> Readiness {
        let value = *self.value.lock();
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, value > 0);
        ready.set(Readiness::WRITE, value < VALUE_MAX);
        ready
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::EventCounter;
    use crate::error::Errno;
    use crate::fs::open_file::OpenFile;
    use crate::fs::readiness::Readiness;
    use crate::fs::transfer::Buffer;

    fn read(counter: &EventCounter) -> Result<u64, Errno> {
        let mut buffer = Buffer::with_limit(8);
        counter.read(0, &mut buffer)?;
        Ok(u64::from_ne_bytes(buffer.bytes.try_into().unwrap()))
    }

    fn write(counter: &EventCounter, value: u64) -> Result<usize, Errno> {
        counter.write(0, &mut &value.to_ne_bytes()[..])
    }

    #[test]
    fn counts_and_empties() {
        let counter = EventCounter::new(2, false);
        assert_eq!(write(&counter, 3), Ok(8));
        assert_eq!(read(&counter), Ok(5));
        assert_eq!(read(&counter), Err(Errno::EAGAIN));
        assert_eq!(counter.readiness(), Readiness::WRITE);
        assert_eq!(write(&counter, u64::MAX), Err(Errno::EINVAL));
        assert_eq!(write(&counter, u64::MAX - 1), Ok(8));
        assert_eq!(counter.readiness(), Readiness::READ);
        assert_eq!(write(&counter, 1), Err(Errno::EAGAIN));
        assert_eq!(counter.read(0, &mut Buffer::with_limit(7)), Err(Errno::EINVAL));
    }

    #[test]
    fn a_semaphore_gives_one_at_a_time() {
        let counter = EventCounter::new(2, true);
        assert_eq!((read(&counter), read(&counter)), (Ok(1), Ok(1)));
        assert_eq!(read(&counter), Err(Errno::EAGAIN));
    }
}

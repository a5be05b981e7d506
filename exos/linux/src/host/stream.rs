//! Standard input, output and error as `exos::fs` streams over the host's ports.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::stream::Stream;
use exos::fs::transfer::{Destination, Source};
use exos::sync::Mutex;

use crate::host::ports::{Console, HostPorts, Port};

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 4096;

/// One of the three.
pub struct PortStream<C> {
    host: Arc<HostPorts<C>>,
    port: Port,
    /// Bytes that were taken from the program but that the port had no room for. Less than a chunk.
    leftover: Mutex<Vec<u8>>,
    queue: Arc<WaitQueue>,
    /// What waiters have been told.
    told: Mutex<Reported>,
}

/// The port does not say when bytes come or go, so each look compares with the look before.
#[derive(Default)]
struct Reported {
    /// Bytes of input that were read or were there to be read, and 1 for the end.
    arrived: u64,
    /// Bytes of input that were read.
    read: u64,
    /// A write found no room.
    is_full: bool,
}

impl<C: Console> PortStream<C> {
    /// A stream over one port.
    pub fn new(host: Arc<HostPorts<C>>, port: Port) -> Arc<Self> {
        let (leftover, told) = (Mutex::default(), Mutex::default());
        Arc::new(Self { host, port, leftover, queue: WaitQueue::new(), told })
    }

    /// Bytes that have not reached the host.
    pub fn pending_bytes(&self) -> usize {
        let is_open = self.push_leftover().is_ok();
        let leftover = if is_open { self.leftover.lock().len() } else { 0 };
        leftover + self.host.pending_bytes(self.port)
    }

    /// Gives what is left over to the port: true if nothing is any more. An error: the host takes no more.
    fn push_leftover(&self) -> Result<bool> {
        let mut leftover = self.leftover.lock();
        if leftover.is_empty() {
            return Ok(true);
        }
        let count = self.host.write(self.port, &leftover)?;
        leftover.drain(..count);
        Ok(leftover.is_empty())
    }
}

impl<C: Console> Stream for PortStream<C> {
    fn read(&self, destination: &mut dyn Destination) -> Result<usize> {
        if self.port != Port::Input {
            return Err(Errno::EIO);
        }
        let mut chunk = [0; CHUNK_BYTES];
        let mut done = 0;
        while destination.remaining() > 0 {
            let room = destination.remaining().min(CHUNK_BYTES);
            match self.host.read_input(&mut chunk[..room]) {
                None if done == 0 => return Err(Errno::EAGAIN),
                None | Some(0) => break,
                Some(count) => {
                    self.told.lock().read += count as u64;
                    let copied = destination.put(&chunk[..count]);
                    done += copied;
                    if copied < count {
                        return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
                    }
                }
            }
        }
        Ok(done)
    }

    fn write(&self, source: &mut dyn Source) -> Result<usize> {
        if self.port == Port::Input {
            return Err(Errno::EIO);
        }
        let mut chunk = [0; CHUNK_BYTES];
        let mut done = 0;
        while source.remaining() > 0 {
            match self.push_leftover() {
                Ok(true) => {}
                Ok(false) | Err(_) if done > 0 => break,
                Ok(false) => {
                    self.told.lock().is_full = true;
                    return Err(Errno::EAGAIN);
                }
                Err(error) => return Err(error),
            }
            let wanted = source.remaining().min(CHUNK_BYTES);
            let taken = source.take(&mut chunk[..wanted]);
            let written = self.host.write(self.port, &chunk[..taken])?;
            self.leftover.lock().extend_from_slice(&chunk[written..taken]);
            if written < taken {
                self.told.lock().is_full = true;
            }
            done += taken;
            if taken < wanted {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
        }
        Ok(done)
    }

    fn readiness(&self) -> Readiness {
        if self.port == Port::Input {
            let (count, has_ended) = self.host.input_state();
            let has_more = {
                let mut told = self.told.lock();
                let arrived = told.read + count as u64 + u64::from(has_ended);
                core::mem::replace(&mut told.arrived, arrived) < arrived
            };
            if has_more {
                self.queue.notify(Readiness::READ);
            }
            return if count > 0 || has_ended { Readiness::READ } else { Readiness::empty() };
        }
        let ready = match self.push_leftover() {
            Ok(true) => Readiness::WRITE,
            Ok(false) => Readiness::empty(),
            Err(_) => Readiness::WRITE | Readiness::ERROR,
        };
        let was_full = !ready.is_empty() && core::mem::take(&mut self.told.lock().is_full);
        if was_full {
            self.queue.notify(ready);
        }
        ready
    }

    fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::sync::{Arc, Weak};
    use core::sync::atomic::{AtomicUsize, Ordering};

    use exos::error::Errno;
    use exos::fs::readiness::{Readiness, Waiter};
    use exos::fs::stream::Stream;
    use exos::fs::transfer::Buffer;
    use exos::sync::Mutex;

    use super::PortStream;
    use crate::host::ports::{Console, HostPorts, Port};

    /// What a port holds, and how much more it takes.
    #[derive(Default)]
    struct Wire {
        bytes: VecDeque<u8>,
        room: usize,
    }

    struct FakeConsole(Arc<Mutex<Wire>>);

    impl Console for FakeConsole {
        fn poll(&mut self) -> bool {
            false
        }

        fn read(&mut self, _: Port, into: &mut [u8]) -> usize {
            let mut wire = self.0.lock();
            let count = into.len().min(wire.bytes.len());
            into[..count].fill_with(|| wire.bytes.pop_front().unwrap_or_default());
            count
        }

        fn readable_bytes(&mut self, _: Port) -> usize {
            self.0.lock().bytes.len()
        }

        fn write(&mut self, _: Port, from: &[u8]) -> usize {
            let mut wire = self.0.lock();
            let count = from.len().min(wire.room);
            wire.room -= count;
            count
        }

        fn pending_bytes(&mut self, _: Port) -> usize {
            0
        }

        fn is_gone(&mut self, _: Port) -> bool {
            false
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Waiter for Count {
        fn wake(&self, _: Readiness) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_look_tells_about_what_came_since_the_last() {
        let wire = Arc::new(Mutex::new(Wire::default()));
        let host = Arc::new(HostPorts::new(FakeConsole(wire.clone())));
        let input = PortStream::new(host.clone(), Port::Input);
        let count = Arc::new(Count::default());
        let waiter = || {
            let waiter: Weak<dyn Waiter> = Arc::<Count>::downgrade(&count);
            waiter
        };
        let _registration = input.wait_queue().register(waiter(), Readiness::READ);
        assert_eq!(input.readiness(), Readiness::empty());
        wire.lock().bytes.extend(b"abc");
        assert_eq!((input.readiness(), input.readiness()), (Readiness::READ, Readiness::READ));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        // Read, and as much came again before the next look.
        assert_eq!(input.read(&mut Buffer::with_limit(9)), Ok(3));
        wire.lock().bytes.extend(b"def");
        assert_eq!(input.readiness(), Readiness::READ);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);

        let output = PortStream::new(host, Port::Output);
        let _registration = output.wait_queue().register(waiter(), Readiness::WRITE);
        assert_eq!(output.write(&mut &b"xy"[..]), Ok(2));
        assert_eq!(output.write(&mut &b"z"[..]), Err(Errno::EAGAIN));
        assert_eq!(output.readiness(), Readiness::empty());
        wire.lock().room = 9;
        assert_eq!((output.readiness(), output.readiness()), (Readiness::WRITE, Readiness::WRITE));
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
    }
}

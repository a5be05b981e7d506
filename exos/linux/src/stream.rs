//! Standard input, output and error as `exos::fs` streams over the host's ports.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::stream::Stream;
use exos::fs::transfer::{Destination, Source};
use exos::sync::Mutex;

use crate::host::{Console, HostPorts, Port};

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 4096;

/// One of the three.
pub struct PortStream<C> {
    host: Arc<HostPorts<C>>,
    port: Port,
    /// Bytes that were taken from the program but that the port had no room for. Less than a chunk.
    leftover: Mutex<Vec<u8>>,
    queue: Arc<WaitQueue>,
}

impl<C: Console> PortStream<C> {
    /// A stream over one port.
    pub fn new(host: Arc<HostPorts<C>>, port: Port) -> Arc<Self> {
        Arc::new(Self { host, port, leftover: Mutex::new(Vec::new()), queue: WaitQueue::new() })
    }

    /// Bytes that have not reached the host.
    pub fn pending_bytes(&self) -> usize {
        let is_open = self.push_leftover().is_ok();
        let leftover = if is_open { self.leftover.lock().len() } else { 0 };
        leftover + self.host.pending_bytes(self.port)
    }

    /// Gives what is left over to the port: true if nothing is any more. `EPIPE`: the host is gone.
    fn push_leftover(&self) -> Result<bool> {
        let mut leftover = self.leftover.lock();
        if leftover.is_empty() {
            return Ok(true);
        }
        let count = self.host.write(self.port, &leftover).ok_or(Errno::EPIPE)?;
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
                Ok(false) => return Err(Errno::EAGAIN),
                Err(error) => return Err(error),
            }
            let wanted = source.remaining().min(CHUNK_BYTES);
            let taken = source.take(&mut chunk[..wanted]);
            let written = self.host.write(self.port, &chunk[..taken]).ok_or(Errno::EPIPE)?;
            self.leftover.lock().extend_from_slice(&chunk[written..taken]);
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
            return if count > 0 || has_ended { Readiness::READ } else { Readiness::empty() };
        }
        match self.push_leftover() {
            Ok(true) => Readiness::WRITE,
            Ok(false) => Readiness::empty(),
            Err(_) => Readiness::WRITE | Readiness::ERROR,
        }
    }

    fn wait_queue(&self) -> Arc<WaitQueue> {
        self.queue.clone()
    }
}

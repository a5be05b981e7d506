//! The transmitting direction of a port.
//!
//! A buffer is with the device, *idle*, or is the one being *filled*. The filled one is pushed when
//! it is full or flushed, so bytes leave in the order in which they came. Buffers are allocated
//! only when no idle one is left: a port that says little, to a device that is quick, uses one
//! page.

use aegis_hal::{Dma, DmaBuffer};

use super::{BUFFER_BYTES, PORT_BUFFER_COUNT_MAX};
use crate::queue::{Interrupts, Queue, Segment};
use crate::{Transport, VirtioError};

/// The buffer that takes the next bytes.
#[derive(Clone, Copy, Debug)]
struct Filling {
    slot: usize,
    length_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Transmitter<B> {
    pub(super) queue: Option<Queue<B, PORT_BUFFER_COUNT_MAX>>,
    buffers: [Option<B>; PORT_BUFFER_COUNT_MAX],
    /// Buffers allocated; the first so many of `buffers`.
    buffer_count: usize,
    /// Slot by head descriptor.
    slots: [u8; PORT_BUFFER_COUNT_MAX],
    /// Bytes pushed, by slot.
    lengths: [usize; PORT_BUFFER_COUNT_MAX],
    /// Bit `slot`: the buffer is idle.
    idle: u16,
    filling: Option<Filling>,
    /// Sum of `lengths` of the buffers that the device has.
    pushed_bytes: usize,
    wait: Wait,
    /// The wish for interrupts stands in the ring, and the guard has not been told of it yet.
    has_untold_wish: bool,
}

/// Whether someone wants to be told that the device consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nobody does.
    Nobody,
    /// Someone does, and nothing has come back since.
    Waiting,
    /// Something has come back; it is to be told by the next poll.
    Satisfied,
}

impl<B> Transmitter<B> {
    pub(super) const fn new() -> Self {
        Self {
            queue: None,
            buffers: [const { None }; PORT_BUFFER_COUNT_MAX],
            buffer_count: 0,
            slots: [0; PORT_BUFFER_COUNT_MAX],
            lengths: [0; PORT_BUFFER_COUNT_MAX],
            idle: 0,
            filling: None,
            pushed_bytes: 0,
            wait: Wait::Nobody,
            has_untold_wish: false,
        }
    }
}

impl<B: DmaBuffer> Transmitter<B> {
    /// Copies as many bytes as fit.
    pub(super) fn queue_bytes(
        &mut self,
        dma: &mut impl Dma<Buffer = B>,
        buffer_count_max: usize,
        bytes: &[u8],
    ) -> Result<usize, VirtioError> {
        let mut taken = 0;
        while taken < bytes.len() {
            let Some(mut filling) = self.next_buffer(dma, buffer_count_max)? else {
                break;
            };
            let Some(buffer) = &mut self.buffers[filling.slot] else {
                break;
            };
            let count = (BUFFER_BYTES - filling.length_bytes).min(bytes.len() - taken);
            buffer.copy_in(filling.length_bytes, &bytes[taken..taken + count])?;
            taken += count;
            filling.length_bytes += count;
            self.filling = Some(filling);
            if filling.length_bytes == BUFFER_BYTES {
                self.push_filling()?;
            }
        }
        Ok(taken)
    }

    pub(super) fn flush(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        self.push_filling()?;
        let Some(queue) = &mut self.queue else {
            return Ok(());
        };
        if queue.publish()? {
            // A guard that is told of new buffers sees the wish too.
            transport.notify(queue.index())?;
        } else if self.has_untold_wish {
            transport.interrupts_wanted(queue.index())?;
        }
        if core::mem::take(&mut self.has_untold_wish) {
            // What came back before the wish was seen raises no interrupt.
            self.reap()?;
        }
        Ok(())
    }

    /// Collects the buffers that the device has consumed.
    pub(super) fn reap(&mut self) -> Result<(), VirtioError> {
        let Some(queue) = &mut self.queue else {
            return Ok(());
        };
        while let Some(used) = queue.pop()? {
            let slot = usize::from(self.slots[usize::from(used.head)]);
            self.pushed_bytes -= core::mem::take(&mut self.lengths[slot]);
            self.idle |= 1 << slot;
            if self.wait == Wait::Waiting {
                self.wait = Wait::Satisfied;
            }
        }
        Ok(())
    }

    /// Has the device interrupt when it returns something that it has not returned yet.
    pub(super) fn arm(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        self.wish()?;
        if let Some(queue) = &mut self.queue
            && core::mem::take(&mut self.has_untold_wish)
        {
            transport.interrupts_wanted(queue.index())?;
        }
        // What the device returned before it saw the request raises no interrupt.
        self.reap()
    }

    /// The same, where a flush follows.
    fn wish(&mut self) -> Result<(), VirtioError> {
        self.reap()?;
        self.wait = Wait::Waiting;
        if let Some(queue) = &mut self.queue
            && queue.interrupts() == Interrupts::Suppressed
        {
            queue.set_interrupts(Interrupts::Wanted)?;
            self.has_untold_wish = true;
        }
        self.reap()
    }

    /// Collects, if someone waits for it. True if that was anything.
    pub(super) fn relieve(&mut self) -> Result<bool, VirtioError> {
        if self.wait == Wait::Nobody {
            return Ok(false);
        }
        self.reap()?;
        if self.wait == Wait::Waiting {
            return Ok(false);
        }
        self.calm()?;
        Ok(true)
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pushed_bytes + self.filling.map_or(0, |filling| filling.length_bytes)
    }

    pub(super) fn into_buffers(self, give_back: &mut impl FnMut(B)) {
        self.queue.map(Queue::into_ring).into_iter().for_each(&mut *give_back);
        self.buffers.into_iter().flatten().for_each(give_back);
    }

    /// The buffer to fill: the one begun, an idle one, a new one, or none. With none, the device is
    /// asked to interrupt.
    fn next_buffer(
        &mut self,
        dma: &mut impl Dma<Buffer = B>,
        buffer_count_max: usize,
    ) -> Result<Option<Filling>, VirtioError> {
        if self.filling.is_some() {
            return Ok(self.filling);
        }
        if self.idle == 0 {
            self.reap()?;
        }
        if self.idle == 0 {
            self.add_buffer(dma, buffer_count_max)?;
        }
        if self.idle == 0 {
            self.wish()?;
        }
        if self.idle == 0 {
            return Ok(None);
        }
        self.calm()?;
        let slot = self.idle.trailing_zeros() as usize;
        self.idle &= self.idle - 1;
        Ok(Some(Filling { slot, length_bytes: 0 }))
    }

    /// Allocates one more buffer, if one is allowed.
    fn add_buffer(&mut self, dma: &mut impl Dma<Buffer = B>, buffer_count_max: usize) -> Result<(), VirtioError> {
        let size = self.queue.as_ref().map_or(0, |queue| usize::from(queue.size()));
        if self.buffer_count >= buffer_count_max.min(size) {
            return Ok(());
        }
        match dma.allocate(1) {
            Ok(buffer) => self.buffers[self.buffer_count] = Some(buffer),
            Err(error) if self.buffer_count == 0 => return Err(error.into()),
            // Those that there are will come back.
            Err(_) => return Ok(()),
        }
        self.idle |= 1 << self.buffer_count;
        self.buffer_count += 1;
        Ok(())
    }

    /// Pushes the buffer that was begun; the device does not see it before it is published.
    fn push_filling(&mut self) -> Result<(), VirtioError> {
        let (Some(filling), Some(queue)) = (self.filling, &mut self.queue) else {
            return Ok(());
        };
        let Some(buffer) = &self.buffers[filling.slot] else {
            return Ok(());
        };
        let head = queue.push(&[Segment::Readable {
            address: buffer.device_address(),
            length_bytes: filling.length_bytes as u32,
        }])?;
        self.slots[usize::from(head)] = filling.slot as u8;
        self.lengths[filling.slot] = filling.length_bytes;
        self.pushed_bytes += filling.length_bytes;
        self.filling = None;
        Ok(())
    }

    /// Nobody waits.
    fn calm(&mut self) -> Result<(), VirtioError> {
        self.wait = Wait::Nobody;
        self.has_untold_wish = false;
        self.queue.as_mut().map_or(Ok(()), |queue| queue.set_interrupts(Interrupts::Suppressed))
    }
}

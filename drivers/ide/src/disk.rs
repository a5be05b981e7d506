//! One disk of a channel, as whoever drives requests through it sees it.

use core::borrow::BorrowMut;
use core::marker::PhantomData;

use aegis_hal::block::{BlockDevice, BlockError, BlockLimits, BlockMemory, BlockRequest, BlockStatistics, SubmitError};
use aegis_hal::{Dma, Port};

use crate::{Channel, IdeError};

/// A disk: device 0 or 1 of a channel that it owns (`C` is the channel), or that is lent to it (`C` refers to it).
#[derive(Debug)]
pub struct Disk<C, P, D> {
    channel: C,
    device: u8,
    parts: PhantomData<fn() -> (P, D)>,
}

impl<P: Port, D: Dma, C: BorrowMut<Channel<P, D>>> Disk<C, P, D> {
    /// Device `device` of the channel.
    ///
    /// # Errors
    /// [`IdeError::Absent`]: it is no disk.
    pub fn new(channel: C, device: u8) -> Result<Self, IdeError> {
        if channel.borrow().identity(device).is_none() {
            return Err(IdeError::Absent);
        }
        Ok(Self { channel, device, parts: PhantomData })
    }

    /// The channel.
    pub fn channel(&mut self) -> &mut Channel<P, D> {
        self.channel.borrow_mut()
    }

    /// The channel back.
    pub fn into_channel(self) -> C {
        self.channel
    }
}

impl<P: Port, D: Dma, C: BorrowMut<Channel<P, D>>> BlockDevice for Disk<C, P, D> {
    type Error = IdeError;

    fn limits(&self) -> BlockLimits {
        self.channel.borrow().limits(self.device)
    }

    fn statistics(&self) -> BlockStatistics {
        self.channel.borrow().statistics(self.device)
    }

    fn submit(&mut self, request: &BlockRequest<'_>, memory: &impl BlockMemory) -> Result<(), SubmitError<IdeError>> {
        self.channel.borrow_mut().submit(self.device, request, memory)
    }

    fn notify(&mut self) -> Result<(), IdeError> {
        self.channel.borrow_mut().notify()
    }

    fn has_completed(&self) -> bool {
        self.channel.borrow().has_completed(self.device)
    }

    fn poll(
        &mut self,
        memory: &impl BlockMemory,
        done: &mut impl FnMut(u16, Result<(), BlockError>),
    ) -> Result<u32, IdeError> {
        self.channel.borrow_mut().poll(self.device, memory, done)
    }

    fn ask_for_interrupt(&mut self) -> Result<bool, IdeError> {
        self.channel.borrow_mut().ask_for_interrupt(self.device)
    }

    fn reset(&mut self) -> Result<(), IdeError> {
        self.channel.borrow_mut().reset(self.device)
    }
}

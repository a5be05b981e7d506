//! A network card or a disk that is of one of two kinds, for a placement that drives whichever there is:
//! [`EitherCard`], [`EitherDisk`].
//!
//! The calls are those of the driver that is there, one comparison away; there is no `dyn`, as the trait has it.

use crate::block::{BlockDevice, BlockError, BlockLimits, BlockMemory, BlockRequest, BlockStatistics, SubmitError};
use crate::net::{DmaWindow, Frame, NetDevice, NetIdentity, NetStatistics, Received, TransmitError, Wishes};

/// One of two cards, whose buffers are of one type.
#[derive(Debug)]
pub enum EitherCard<A, B> {
    /// The first kind.
    First(A),
    /// The second.
    Second(B),
}

/// One of two disks.
#[derive(Debug)]
pub enum EitherDisk<A, B> {
    /// The first kind.
    First(A),
    /// The second.
    Second(B),
}

/// Why it cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EitherError<A, B> {
    /// As the first kind says it.
    First(A),
    /// As the second does.
    Second(B),
}

/// A call of whichever there is, with its error.
macro_rules! either {
    ($self:expr, $card:ident => $call:expr) => {
        match $self {
            EitherCard::First($card) => $call.map_err(EitherError::First),
            EitherCard::Second($card) => $call.map_err(EitherError::Second),
        }
    };
}

impl<A: NetDevice, B: NetDevice<Buffer = A::Buffer>> NetDevice for EitherCard<A, B> {
    type Buffer = A::Buffer;
    type Error = EitherError<A::Error, B::Error>;

    fn identity(&self) -> NetIdentity {
        match self {
            Self::First(card) => card.identity(),
            Self::Second(card) => card.identity(),
        }
    }

    fn has_link(&self) -> bool {
        match self {
            Self::First(card) => card.has_link(),
            Self::Second(card) => card.has_link(),
        }
    }

    fn statistics(&self) -> NetStatistics {
        match self {
            Self::First(card) => card.statistics(),
            Self::Second(card) => card.statistics(),
        }
    }

    fn has_received(&self) -> bool {
        match self {
            Self::First(card) => card.has_received(),
            Self::Second(card) => card.has_received(),
        }
    }

    fn receive(&mut self, budget: u32, sink: &mut impl FnMut(&Received<'_, A::Buffer>)) -> Result<u32, Self::Error> {
        either!(self, card => card.receive(budget, sink))
    }

    fn room(&self) -> usize {
        match self {
            Self::First(card) => card.room(),
            Self::Second(card) => card.room(),
        }
    }

    fn transmit(&mut self, frame: &Frame<'_>, window: &impl DmaWindow) -> Result<(), TransmitError<Self::Error>> {
        match self {
            Self::First(card) => card.transmit(frame, window).map_err(|error| error.map(EitherError::First)),
            Self::Second(card) => card.transmit(frame, window).map_err(|error| error.map(EitherError::Second)),
        }
    }

    fn completed(&mut self, done: &mut impl FnMut(u32)) -> Result<u32, Self::Error> {
        either!(self, card => card.completed(done))
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        either!(self, card => card.flush())
    }

    fn ask_for_interrupt(&mut self, wishes: Wishes) -> Result<bool, Self::Error> {
        either!(self, card => card.ask_for_interrupt(wishes))
    }

    fn reset(&mut self) -> Result<(), Self::Error> {
        either!(self, card => card.reset())
    }
}

impl<A: BlockDevice, B: BlockDevice> BlockDevice for EitherDisk<A, B> {
    type Error = EitherError<A::Error, B::Error>;

    fn limits(&self) -> BlockLimits {
        match self {
            Self::First(disk) => disk.limits(),
            Self::Second(disk) => disk.limits(),
        }
    }

    fn statistics(&self) -> BlockStatistics {
        match self {
            Self::First(disk) => disk.statistics(),
            Self::Second(disk) => disk.statistics(),
        }
    }

    fn submit(
        &mut self,
        request: &BlockRequest<'_>,
        memory: &impl BlockMemory,
    ) -> Result<(), SubmitError<Self::Error>> {
        match self {
            Self::First(disk) => disk.submit(request, memory).map_err(|error| error.map(EitherError::First)),
            Self::Second(disk) => disk.submit(request, memory).map_err(|error| error.map(EitherError::Second)),
        }
    }

    fn notify(&mut self) -> Result<(), Self::Error> {
        match self {
            Self::First(disk) => disk.notify().map_err(EitherError::First),
            Self::Second(disk) => disk.notify().map_err(EitherError::Second),
        }
    }

    fn has_completed(&self) -> bool {
        match self {
            Self::First(disk) => disk.has_completed(),
            Self::Second(disk) => disk.has_completed(),
        }
    }

    fn poll(
        &mut self,
        memory: &impl BlockMemory,
        done: &mut impl FnMut(u16, Result<(), BlockError>),
    ) -> Result<u32, Self::Error> {
        match self {
            Self::First(disk) => disk.poll(memory, done).map_err(EitherError::First),
            Self::Second(disk) => disk.poll(memory, done).map_err(EitherError::Second),
        }
    }

    fn ask_for_interrupt(&mut self) -> Result<bool, Self::Error> {
        match self {
            Self::First(disk) => disk.ask_for_interrupt().map_err(EitherError::First),
            Self::Second(disk) => disk.ask_for_interrupt().map_err(EitherError::Second),
        }
    }

    fn reset(&mut self) -> Result<(), Self::Error> {
        match self {
            Self::First(disk) => disk.reset().map_err(EitherError::First),
            Self::Second(disk) => disk.reset().map_err(EitherError::Second),
        }
    }
}

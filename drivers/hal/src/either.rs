//! A network card that is of one of two kinds, for a placement that drives whichever there is: [`EitherCard`].
//!
//! The calls are those of the driver that is there, one comparison away; there is no `dyn`, as the trait has it.

use crate::net::{DmaWindow, Frame, NetDevice, NetIdentity, NetStatistics, Received, TransmitError, Wishes};

/// One of two cards, whose buffers are of one type.
#[derive(Debug)]
pub enum EitherCard<A, B> {
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

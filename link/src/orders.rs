//! What the host tool tells and asks the manager of a machine with several pods while it runs.
//!
//! Orders and answers are frames on a serial line of their own, each of one size, so that neither side needs memory for
//! the other: an [`Order`] is [`ORDER_BYTES`], an [`Answer`] [`ANSWER_BYTES`], and there is one answer for each order,
//! in order, and one more whenever a pod has ended. The frame's channel is the order's number. A receiver that finds
//! something else goes on at the next frame.

use aegis_image::bytes::{put, u32_at, u64_at};

use crate::frame::{FRAME_HEADER_BYTES, Frame, Kind};
use crate::numbered::numbered;
use crate::phase::PodPhase;

/// Bytes of an order.
pub const ORDER_BYTES: usize = FRAME_HEADER_BYTES + ORDER_CONTENTS_BYTES;
/// Bytes of an answer.
pub const ANSWER_BYTES: usize = FRAME_HEADER_BYTES + ANSWER_CONTENTS_BYTES;

/// Number of an answer to nothing; no order has it.
pub const EVENT_ID: u32 = 0;

/// In numbers of holders: the first that is a currency's.
const CURRENCY_FIRST: u32 = 1 << 16;

pub(crate) const ORDER_CONTENTS_BYTES: usize = 16;
pub(crate) const ANSWER_CONTENTS_BYTES: usize = COUNTS_OFFSET + 8 * COUNT_COUNT;
const COUNTS_OFFSET: usize = 12;
const COUNT_COUNT: usize = 12;

/// What has a ticket that the host can change, counted in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketHolder {
    /// A pod.
    Pod(u32),
    /// A currency. Only `Read` and `Tickets` mean something for it, and of its state only the tickets.
    Currency(u32),
}

impl TicketHolder {
    /// Its number in orders and answers.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Pod(number) => number,
            Self::Currency(number) => CURRENCY_FIRST.saturating_add(number),
        }
    }

    /// The one with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number.checked_sub(CURRENCY_FIRST) {
            Some(number) => Self::Currency(number),
            None => Self::Pod(number),
        }
    }
}

numbered! {
    /// The act that is ordered.
    pub enum Action: u32 {
        /// Say how the pod is.
        Read = 0,
        /// Change the amount of its ticket.
        Tickets = 1,
        /// Take it apart, whatever it does.
        Destroy = 2,
        /// Make one that has ended anew, and start it.
        Restart = 3,
        /// One that has ended, or ends, will not be wanted again: the machine may end without it.
        Release = 4,
        /// Change what is guaranteed to it of the memory, and what it may have at most: see [`amount_of_memory`].
        Memory = 5,
    }
}

/// An order of the tool to the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Comes back in the answer.
    pub id: u32,
    /// What is wanted; `None`: something that this version does not know.
    pub action: Option<Action>,
    /// What it is about.
    pub holder: TicketHolder,
    /// `Tickets`: the amount. `Memory`: [`amount_of_memory`].
    pub amount: u64,
}

/// The amount of an order that sets memory, in frames.
#[must_use]
pub fn amount_of_memory(guaranteed: u32, limit: u32) -> u64 {
    u64::from(limit) << 32 | u64::from(guaranteed)
}

/// What such an amount says: the frames that are guaranteed, and the most.
#[must_use]
pub fn memory_of_amount(amount: u64) -> (u64, u64) {
    (amount & 0xffff_ffff, amount >> 32)
}

numbered! {
    /// What came of an order.
    pub enum Outcome: u32 {
        /// Done.
        Done = 0,
        /// No such action.
        UnknownAction = 1,
        /// No such pod or currency.
        NoSuchPod = 2,
        /// The amount cannot be.
        BadAmount = 3,
        /// The pod has ended.
        HasEnded = 4,
        /// The kernel refused it.
        Refused = 5,
        /// The pod runs.
        IsRunning = 6,
        /// There is not so much memory beside what is guaranteed to others.
        NoMemory = 7,
    }
}

/// The state of a pod, whose counts travel in the order in which they stand here.
macro_rules! pod_state {
    ($($(#[$doc:meta])* $count:ident,)+) => {
        /// How a pod is. Of one that has ended these are its last figures.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PodState {
            /// Where in its life it is.
            pub phase: PodPhase,
            $($(#[$doc])* pub $count: u64,)+
        }

        impl PodState {
            fn to_words(self) -> [u64; COUNT_COUNT] {
                [$(self.$count),+]
            }

            fn from_words(phase: PodPhase, words: [u64; COUNT_COUNT]) -> Self {
                let [$($count),+] = words;
                Self { phase, $($count),+ }
            }
        }
    };
}

pod_state! {
    /// The machine's clock, in nanoseconds.
    now_ns,
    /// Amount of its ticket.
    tickets,
    /// Processor time that it used, in nanoseconds.
    time_used_ns,
    /// Frames that it owns.
    frames_owned,
    /// Frames that it may own.
    frame_quota,
    /// Kernel calls.
    kernel_calls,
    /// System calls of programs that trapped.
    system_call_traps,
    /// Exceptions.
    exceptions,
    /// Interrupts, bells and slices.
    interrupts,
    /// Slices begun.
    slices,
    /// Frames that others cannot take from it.
    frames_guaranteed,
    /// Frames that it may own at most, if nobody else wants them.
    frames_limit,
}

/// The manager's answer to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The order's; [`EVENT_ID`]: the manager says by itself that the pod has ended.
    pub id: u32,
    /// What it is about.
    pub holder: TicketHolder,
    /// What came of it; `None`: something that this version does not know.
    pub outcome: Option<Outcome>,
    /// How that is now, if there is such a one.
    pub state: PodState,
}

impl Order {
    /// Its frame.
    #[must_use]
    pub fn encode(&self) -> [u8; ORDER_BYTES] {
        let mut bytes = [0; ORDER_BYTES];
        put(&mut bytes, 0, Kind::Order.header(self.id, ORDER_CONTENTS_BYTES));
        let contents = &mut bytes[FRAME_HEADER_BYTES..];
        put(contents, 0, self.action.map_or(u32::MAX, |action| action as u32).to_le_bytes());
        put(contents, 4, self.holder.number().to_le_bytes());
        put(contents, 8, self.amount.to_le_bytes());
        bytes
    }

    /// Reads a frame; `None` for one that is no order.
    #[must_use]
    pub fn read(frame: &Frame<'_>) -> Option<Self> {
        let contents = contents(frame, Kind::Order, ORDER_CONTENTS_BYTES)?;
        let action = Action::from_number(u32_at(contents, 0)?);
        let holder = TicketHolder::from_number(u32_at(contents, 4)?);
        Some(Self { id: frame.channel, action, holder, amount: u64_at(contents, 8)? })
    }
}

impl Answer {
    /// Its frame.
    #[must_use]
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        put(&mut bytes, 0, Kind::Answer.header(self.id, ANSWER_CONTENTS_BYTES));
        let contents = &mut bytes[FRAME_HEADER_BYTES..];
        put(contents, 0, self.outcome.map_or(u32::MAX, |outcome| outcome as u32).to_le_bytes());
        put(contents, 4, (self.state.phase as u32).to_le_bytes());
        put(contents, 8, self.holder.number().to_le_bytes());
        for (word, index) in self.state.to_words().into_iter().zip(0..) {
            put(contents, COUNTS_OFFSET + 8 * index, word.to_le_bytes());
        }
        bytes
    }

    /// Reads a frame; `None` for one that is no answer.
    #[must_use]
    pub fn read(frame: &Frame<'_>) -> Option<Self> {
        let contents = contents(frame, Kind::Answer, ANSWER_CONTENTS_BYTES)?;
        let mut words = [0; COUNT_COUNT];
        for (word, index) in words.iter_mut().zip(0..) {
            *word = u64_at(contents, COUNTS_OFFSET + 8 * index)?;
        }
        let outcome = Outcome::from_number(u32_at(contents, 0)?);
        let phase = PodPhase::from_number(u32_at(contents, 4)?).unwrap_or_default();
        let holder = TicketHolder::from_number(u32_at(contents, 8)?);
        Some(Self { id: frame.channel, holder, outcome, state: PodState::from_words(phase, words) })
    }
}

fn contents<'a>(frame: &Frame<'a>, kind: Kind, length: usize) -> Option<&'a [u8]> {
    (frame.kind == kind && frame.contents.len() == length).then_some(frame.contents)
}

#[cfg(test)]
mod tests {
    use super::{Action, Answer, Order, Outcome, PodPhase, PodState, TicketHolder};
    use crate::frame::{Found, Frame, Kind};

    fn frame(bytes: &[u8]) -> Frame<'_> {
        match Frame::find(bytes) {
            Found::Frame(frame, length) if length == bytes.len() => frame,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let order = Order { id: 7, action: Some(Action::Tickets), holder: TicketHolder::Pod(3), amount: 1 << 40 };
        for order in [order, Order { action: None, holder: TicketHolder::Currency(0), ..order }] {
            assert_eq!(Order::read(&frame(&order.encode())), Some(order));
            assert_eq!(Answer::read(&frame(&order.encode())), None);
        }
        let state =
            PodState { phase: PodPhase::Running, now_ns: 1, frames_limit: u64::MAX, tickets: 5, ..PodState::default() };
        let answer = Answer { id: 9, holder: TicketHolder::Currency(2), outcome: Some(Outcome::BadAmount), state };
        assert_eq!(Answer::read(&frame(&answer.encode())), Some(answer));
        assert_eq!(Order::read(&Frame::new(Kind::Order, &[0; 15])), None);
    }

    #[test]
    fn holders_are_told_apart_by_number() {
        for holder in [TicketHolder::Pod(0), TicketHolder::Pod(65_535), TicketHolder::Currency(0)] {
            assert_eq!(TicketHolder::from_number(holder.number()), holder);
        }
        assert_eq!(TicketHolder::Currency(1).number(), 65_537);
    }
}

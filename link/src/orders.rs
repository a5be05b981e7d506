//! What the host tool tells and asks the manager of a machine with several pods while it runs.
//!
//! Orders and answers go over a serial line of their own, each of one size, so that neither side needs memory for the
//! other: an [`Order`] is [`ORDER_BYTES`], an [`Answer`] [`ANSWER_BYTES`], and there is one answer for each order, in
//! order, and one more whenever a pod has ended. A receiver that finds something else where a message should begin goes
//! on byte by byte until one does ([`Order::find`], [`Answer::find`]), so that lost or foreign bytes cost the messages
//! that they hit and no more. Little-endian.

use aegis_image::bytes::{put, u32_at, u64_at};

use crate::numbered::numbered;
use crate::phase::PodPhase;

/// Bytes of an order.
pub const ORDER_BYTES: usize = 32;
/// Bytes of an answer.
pub const ANSWER_BYTES: usize = 120;

/// Number of an answer to nothing; no order has it.
pub const EVENT_ID: u32 = 0;

/// Number of the first currency, as that of a pod in orders and answers. For a currency only `Read` and `Tickets` mean
/// something, and of its state only the tickets.
pub const CURRENCY_FIRST: u32 = 1 << 16;

const ORDER_MAGIC: u32 = u32::from_le_bytes(*b"\xa5ORD");
const ANSWER_MAGIC: u32 = u32::from_le_bytes(*b"\xa5ANS");
const STATUS_OFFSET: usize = 8;
const POD_OFFSET: usize = 16;
const COUNTS_OFFSET: usize = 24;
const COUNT_COUNT: usize = (ANSWER_BYTES - COUNTS_OFFSET) / 8;

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

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Comes back in the answer.
    pub id: u32,
    /// What is wanted; `None`: something that this version does not know.
    pub action: Option<Action>,
    /// The pod, counted in the plan's order, or from [`CURRENCY_FIRST`] on the currency.
    pub pod: u32,
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
        /// No such pod.
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

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The order's; [`EVENT_ID`]: the manager says by itself that the pod has ended.
    pub id: u32,
    /// The pod.
    pub pod: u32,
    /// What came of it; `None`: something that this version does not know.
    pub outcome: Option<Outcome>,
    /// How the pod is now, if there is such a pod.
    pub state: PodState,
}

/// What is at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// A message.
    Message(T),
    /// The beginning of one, perhaps: more bytes are wanted.
    More,
    /// Nothing begins before this many bytes.
    Skip(usize),
}

fn find<T>(bytes: &[u8], magic: u32, length: usize, read: impl Fn(&[u8]) -> Option<T>) -> Found<T> {
    let magic = magic.to_le_bytes();
    let begins = |start: usize| bytes[start..].iter().zip(&magic).all(|(left, right)| left == right);
    match (0..bytes.len()).find(|start| begins(*start)) {
        None if bytes.is_empty() => Found::More,
        None => Found::Skip(bytes.len()),
        Some(0) => match bytes.get(..length) {
            None => Found::More,
            Some(message) => read(message).map_or(Found::Skip(1), Found::Message),
        },
        Some(start) => Found::Skip(start),
    }
}

impl Order {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ORDER_BYTES] {
        let mut bytes = [0; ORDER_BYTES];
        put(&mut bytes, 0, ORDER_MAGIC.to_le_bytes());
        put(&mut bytes, 4, self.id.to_le_bytes());
        put(&mut bytes, 8, self.action.map_or(u32::MAX, |action| action as u32).to_le_bytes());
        put(&mut bytes, 12, self.pod.to_le_bytes());
        put(&mut bytes, 16, self.amount.to_le_bytes());
        bytes
    }

    /// Looks for an order at the beginning of what was received.
    #[must_use]
    pub fn find(bytes: &[u8]) -> Found<Self> {
        find(bytes, ORDER_MAGIC, ORDER_BYTES, |bytes| {
            let action = Action::from_number(u32_at(bytes, 8)?);
            Some(Self { id: u32_at(bytes, 4)?, action, pod: u32_at(bytes, 12)?, amount: u64_at(bytes, 16)? })
        })
    }
}

impl Answer {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        put(&mut bytes, 0, ANSWER_MAGIC.to_le_bytes());
        put(&mut bytes, 4, self.id.to_le_bytes());
        let outcome = self.outcome.map_or(u32::MAX, |outcome| outcome as u32);
        put(&mut bytes, STATUS_OFFSET, outcome.to_le_bytes());
        put(&mut bytes, STATUS_OFFSET + 4, (self.state.phase as u32).to_le_bytes());
        put(&mut bytes, POD_OFFSET, self.pod.to_le_bytes());
        for (word, index) in self.state.to_words().into_iter().zip(0..) {
            put(&mut bytes, COUNTS_OFFSET + 8 * index, word.to_le_bytes());
        }
        bytes
    }

    /// Looks for an answer at the beginning of what was received.
    #[must_use]
    pub fn find(bytes: &[u8]) -> Found<Self> {
        find(bytes, ANSWER_MAGIC, ANSWER_BYTES, |bytes| {
            let mut words = [0; COUNT_COUNT];
            for (word, index) in words.iter_mut().zip(0..) {
                *word = u64_at(bytes, COUNTS_OFFSET + 8 * index)?;
            }
            let state = PodState::from_words(
                PodPhase::from_number(u32_at(bytes, STATUS_OFFSET + 4)?).unwrap_or_default(),
                words,
            );
            let outcome = Outcome::from_number(u32_at(bytes, STATUS_OFFSET)?);
            Some(Self { id: u32_at(bytes, 4)?, pod: u32_at(bytes, POD_OFFSET)?, outcome, state })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Answer, Found, ORDER_BYTES, Order, Outcome, PodPhase, PodState};
    use alloc::vec::Vec;
    use proptest::prelude::{any, proptest};

    fn order(id: u32) -> Order {
        Order { id, action: Some(Action::Tickets), pod: 3, amount: 1 << 40 }
    }

    /// What a receiver makes of a stream that comes in pieces of this length.
    fn received(stream: &[u8], step: usize) -> Vec<Order> {
        let (mut orders, mut held) = (Vec::new(), Vec::new());
        for piece in stream.chunks(step) {
            held.extend_from_slice(piece);
            loop {
                match Order::find(&held) {
                    Found::More => break,
                    Found::Skip(count) => drop(held.drain(..count)),
                    Found::Message(order) => {
                        orders.push(order);
                        drop(held.drain(..ORDER_BYTES));
                    }
                }
            }
        }
        orders
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Order::find(&order(7).encode()), Found::Message(order(7)));
        let state =
            PodState { phase: PodPhase::Running, now_ns: 1, slices: u64::MAX, tickets: 5, ..PodState::default() };
        let answer = Answer { id: 9, pod: 2, outcome: Some(Outcome::BadAmount), state };
        assert_eq!(Answer::find(&answer.encode()), Found::Message(answer));
        let unknown = Order { action: None, ..order(1) };
        assert_eq!(Order::find(&unknown.encode()), Found::Message(unknown));
    }

    #[test]
    fn foreign_bytes_are_passed_over() {
        let good: Vec<u8> = [order(1).encode(), order(2).encode()].concat();
        for foreign in [&b"noise"[..], b"\xa5OR", b"\xa5\xa5ORx", &[0; 100]] {
            let stream = [foreign, &good].concat();
            for step in [1, 7, ORDER_BYTES, 1000] {
                assert_eq!(received(&stream, step), [order(1), order(2)], "{foreign:?} {step}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_input_stops_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300), step in 1usize..40) {
            received(&bytes, step);
            let _ = Answer::find(&bytes);
        }
    }
}

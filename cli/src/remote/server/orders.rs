//! The tool's end of the line to the manager in the machine: orders out, answers in.
//!
//! A manager that is silent must not keep the tool from what it orders itself, such as taking a pod apart. So orders
//! for clients leave room for those ([`Orders::takes`]), are forgotten with the client's wish for an answer, and are
//! not given while earlier ones have not left.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;

use aegis_link::frame::FrameBuffer;
use aegis_link::orders::{Action, Answer, EVENT_ID, Order, TicketHolder};

use crate::relay::stream::Stream;

/// Orders without an answer; a manager that is silent gets no more.
const WAITING_COUNT_MAX: usize = 2048;
/// Those among them that only the tool itself gives: a few for each pod.
const OWN_COUNT: usize = 256;

/// The line; `P` is why an order was given.
#[derive(Debug)]
pub(crate) struct Orders<P> {
    pub(crate) stream: Stream,
    frames: FrameBuffer,
    last_id: u32,
    waiting: BTreeMap<u32, P>,
}

impl<P> Orders<P> {
    /// The line over a socket, which must be non-blocking.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream: Stream::new(stream), frames: FrameBuffer::new(), last_id: 0, waiting: BTreeMap::new() }
    }

    /// Whether so many orders for a client can be given.
    pub(crate) fn takes(&self, count: usize) -> bool {
        let has_room = self.waiting.len() + count <= WAITING_COUNT_MAX - OWN_COUNT;
        has_room && self.stream.is_open() && self.stream.pending_bytes() == 0
    }

    /// Forgets the orders without an answer that are for nobody any more; an answer that comes late is nobody's.
    pub(crate) fn keep_those(&mut self, is_wanted: impl Fn(&P) -> bool) {
        self.waiting.retain(|_, why| is_wanted(why));
    }

    /// Gives an order; false if nobody is there to take it.
    pub(crate) fn give(&mut self, action: Action, holder: TicketHolder, amount: u64, why: P) -> bool {
        if !self.stream.is_open() || self.waiting.len() >= WAITING_COUNT_MAX {
            return false;
        }
        self.last_id = self.last_id.checked_add(1).unwrap_or(EVENT_ID + 1);
        let order = Order { id: self.last_id, action: Some(action), holder, amount };
        self.waiting.insert(self.last_id, why);
        self.stream.send(&order.encode());
        true
    }

    /// Takes in what has come: answers, with the reason of their orders.
    pub(crate) fn read(&mut self) -> Vec<(Option<P>, Answer)> {
        let mut answers = Vec::new();
        let mut buffer = [0; 4096];
        let length = self.stream.read(&mut buffer).ok().flatten().unwrap_or(0);
        self.frames.push(&buffer[..length]);
        loop {
            let answer = match self.frames.next_frame() {
                Ok(None) => return answers,
                Ok(Some(frame)) => Answer::read(&frame),
                // Bytes of the line were lost.
                Err(_) => None,
            };
            let Some(answer) = answer else { continue };
            let why = self.waiting.remove(&answer.id);
            if why.is_some() || answer.id == EVENT_ID {
                answers.push((why, answer));
            }
        }
    }
}

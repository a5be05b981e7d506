//! A socket's receiving side: what its peers hold of it.
//!
//! A stream's endpoint is a ring of bytes with *segments* over it, which say where bytes of another sender or with
//! descriptions begin and end; bytes of one sender in a row are one segment, however many writes they came from. The
//! other kinds keep whole messages. Whether one may still send here is one flag for both sides, as `shutdown` of the
//! reading half here and of the writing half over there is the same thing.
//!
//! Sending and receiving bytes never touch a program's memory under the lock (INV-F1): room is taken from the
//! sender's [`Budget`] first, and what a faulting reader could not take goes back.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::address::Address;
use super::budget::{Budget, Charge};
use super::flight::{Flight, Rights};
use super::{Identity, SocketKind};
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::ring::Ring;
use crate::fs::transfer::{Destination, Source};
use crate::reserve;
use crate::sync::Mutex;

/// Messages that wait for a receiver that is not connected to their sender (`net.unix.max_dgram_qlen`): one more than
/// this makes senders wait.
const MESSAGE_COUNT_MAX: usize = 10;

/// Bytes of one sender, or that came with descriptions, in a stream.
struct Segment {
    /// Where it ends, counted from the stream's first byte ever.
    end: u64,
    identity: Option<Identity>,
    rights: Option<Rights>,
}

/// A datagram, or a record of a sequenced-packet socket.
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) identity: Option<Identity>,
    pub(super) rights: Option<Rights>,
    pub(super) from: Option<Arc<Address>>,
    pub(super) charge: Charge,
}

/// A stream's bytes.
struct Stream {
    ring: Ring,
    /// Number of the ring's first byte.
    head: u64,
    segments: VecDeque<Segment>,
    writer: Option<Arc<Budget>>,
}

enum Contents {
    Stream(Stream),
    Messages(VecDeque<Message>),
}

struct Inbox {
    contents: Contents,
    /// Nothing more comes in.
    is_shut: bool,
    /// Its socket is closed.
    is_dead: bool,
    /// What the next call is told (`SO_ERROR`).
    error: Option<Errno>,
    /// The socket that a datagram socket is connected to, by number.
    peer: Option<u64>,
    /// Places of messages that are being copied in.
    promised_count: usize,
    /// Senders that wait for a place.
    waiting: Vec<Weak<WaitQueue>>,
}

/// The receiving side of a socket.
pub(super) struct Endpoint {
    /// The socket's number.
    pub(super) number: u64,
    /// Told about everything that happens here.
    pub(super) queue: Arc<WaitQueue>,
    /// `SO_PASSCRED`.
    pub(super) wants_identity: AtomicBool,
    address: Mutex<Option<Arc<Address>>>,
    inbox: Mutex<Inbox>,
}

/// What a receiver has gathered of a stream so far.
#[derive(Default)]
pub(super) struct Gather {
    /// Set once the first byte was seen, if identities matter.
    pub(super) identity: Option<Option<Identity>>,
    pub(super) rights: Option<Rights>,
    /// Where the bytes that came with the rights begin, of those that were gathered, and where they end.
    rights_start: u64,
    rights_end: u64,
    /// How far a look without taking has come.
    peeked: usize,
    is_peeking: bool,
    compares: bool,
    /// What came with the rights has been gathered whole.
    is_final: bool,
}

impl Gather {
    /// Whether nothing may be added to it any more.
    pub(super) fn is_final(&self) -> bool {
        self.is_final
    }

    /// Nothing yet; `compares`: bytes of different senders are kept apart.
    pub(super) fn new(is_peeking: bool, compares: bool) -> Self {
        Self { is_peeking, compares, ..Self::default() }
    }
}

/// What there is to take from a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many bytes.
    Bytes(usize),
    /// Not more now.
    Nothing,
    /// What is next must not be mixed with what was gathered.
    Barrier,
    /// Nothing will ever come.
    End,
}

impl Stream {
    fn new() -> Self {
        Self { ring: Ring::default(), head: 0, segments: VecDeque::new(), writer: None }
    }

    fn tail(&self) -> u64 {
        self.head + self.ring.length() as u64
    }

    /// Forgets segments that have been read; the last one stays, so that a reader can give bytes back.
    fn prune(&mut self) {
        while self.segments.len() > 1 && self.segments.front().is_some_and(|first| first.end <= self.head) {
            self.segments.pop_front();
        }
    }

    fn push(&mut self, bytes: &[u8], identity: Option<Identity>, rights: Option<Rights>) -> Result<()> {
        self.ring.reserve(bytes.len())?;
        reserve::reserve_queue(&mut self.segments, 1)?;
        self.ring.push(bytes);
        self.close_segment(identity, rights);
        Ok(())
    }

    /// Says what the bytes are that were pushed last.
    #[inline]
    fn close_segment(&mut self, identity: Option<Identity>, rights: Option<Rights>) {
        self.prune();
        let end = self.tail();
        match self.segments.back_mut() {
            // A segment whose rights have been taken still ends where they ended for the receiver that took them.
            Some(last) if rights.is_none() && last.rights.is_none() && last.identity == identity => last.end = end,
            _ => self.segments.push_back(Segment { end, identity, rights }),
        }
    }

    /// All that `destination` has room for or that is there, if it is of one sender, came with nothing, and goes in by
    /// one copy that ends at a fault. `None`: not so, and nothing has been taken.
    #[inline]
    fn take_nofault(&mut self, destination: &mut dyn Destination) -> Option<usize> {
        let count = destination.remaining().min(self.ring.length());
        let segment = self.segments.iter().find(|segment| segment.end > self.head)?;
        if segment.rights.is_some() || segment.end - self.head < count as u64 {
            return None;
        }
        if !destination.put_nofault(self.ring.front(count)?) {
            return None;
        }
        self.ring.skip(count);
        self.head += count as u64;
        Some(count)
    }

    fn step(&mut self, into: &mut [u8], gather: &mut Gather) -> Step {
        let position = self.head + gather.peeked as u64;
        if position >= self.tail() {
            return Step::Nothing;
        }
        if gather.is_final {
            return Step::Barrier;
        }
        let Some(segment) = self.segments.iter_mut().find(|segment| segment.end > position) else {
            return Step::Nothing;
        };
        match gather.identity {
            Some(seen) if gather.compares && seen != segment.identity => return Step::Barrier,
            Some(_) => {}
            None => gather.identity = Some(segment.identity),
        }
        if gather.rights.is_none() && segment.rights.is_some() {
            gather.rights = if gather.is_peeking {
                segment.rights.as_ref().and_then(Rights::duplicate)
            } else {
                segment.rights.take()
            };
            (gather.rights_start, gather.rights_end) = (position, segment.end);
        }
        let mut count = into.len().min((segment.end - position) as usize);
        if gather.rights.is_some() {
            count = count.min((gather.rights_end - position) as usize);
            gather.is_final = position + count as u64 == gather.rights_end;
        }
        if gather.is_peeking {
            self.ring.peek(gather.peeked, &mut into[..count]);
            gather.peeked += count;
        } else {
            self.ring.pop(&mut into[..count]);
            self.head += count as u64;
        }
        Step::Bytes(count)
    }
}

impl Inbox {
    fn is_empty(&self) -> bool {
        match &self.contents {
            Contents::Stream(stream) => stream.ring.length() == 0,
            Contents::Messages(messages) => messages.is_empty(),
        }
    }

    /// Whether senders other than its own peer have to wait.
    fn is_full(&self) -> bool {
        match &self.contents {
            Contents::Stream(_) => false,
            Contents::Messages(messages) => messages.len() + self.promised_count > MESSAGE_COUNT_MAX,
        }
    }

    /// The answer where there was nothing to give.
    fn empty_outcome(&mut self) -> Result<Step> {
        match self.error.take() {
            Some(error) => Err(error),
            None if self.is_shut => Ok(Step::End),
            None => Err(Errno::EAGAIN),
        }
    }
}

impl Endpoint {
    pub(super) fn new(number: u64, kind: SocketKind) -> Arc<Self> {
        let contents = match kind {
            SocketKind::Stream => Contents::Stream(Stream::new()),
            _ => Contents::Messages(VecDeque::new()),
        };
        let inbox = Inbox {
            contents,
            is_shut: false,
            is_dead: false,
            error: None,
            peer: None,
            promised_count: 0,
            waiting: Vec::new(),
        };
        Arc::new(Self {
            number,
            queue: WaitQueue::new(),
            wants_identity: AtomicBool::new(false),
            address: Mutex::new(None),
            inbox: Mutex::new(inbox),
        })
    }

    pub(super) fn address(&self) -> Option<Arc<Address>> {
        self.address.lock().clone()
    }

    pub(super) fn set_address(&self, address: Arc<Address>) {
        *self.address.lock() = Some(address);
    }

    pub(super) fn wants_identity(&self) -> bool {
        self.wants_identity.load(Ordering::Relaxed)
    }

    /// Says whose budget a stream's bytes come from.
    pub(super) fn set_writer(&self, writer: Arc<Budget>) {
        if let Contents::Stream(stream) = &mut self.inbox.lock().contents {
            stream.writer = Some(writer);
        }
    }

    pub(super) fn set_peer(&self, peer: Option<u64>) {
        self.inbox.lock().peer = peer;
    }

    pub(super) fn peer(&self) -> Option<u64> {
        self.inbox.lock().peer
    }

    pub(super) fn set_error(&self, error: Errno) {
        self.inbox.lock().error = Some(error);
        self.queue.notify(Readiness::ERROR | Readiness::ALWAYS);
    }

    pub(super) fn take_error(&self) -> Option<Errno> {
        self.inbox.lock().error.take()
    }

    pub(super) fn is_shut(&self) -> bool {
        self.inbox.lock().is_shut
    }

    pub(super) fn is_dead(&self) -> bool {
        self.inbox.lock().is_dead
    }

    /// Whether there is something to receive, whether nothing more comes, and whether there is an error to tell.
    pub(super) fn look(&self) -> (bool, bool, bool) {
        let inbox = self.inbox.lock();
        (!inbox.is_empty(), inbox.is_shut, inbox.error.is_some())
    }

    /// Nothing more comes in; what is inside can be read.
    pub(super) fn shut(&self, is_gone: bool) {
        self.inbox.lock().is_shut = true;
        let mut events = Readiness::ALWAYS | Readiness::READ_HANG_UP;
        events.set(Readiness::HANG_UP, is_gone);
        self.queue.notify(events);
    }

    /// Bytes that `FIONREAD` tells: all of a stream or of all records, the first datagram's.
    pub(super) fn readable_bytes(&self, counts_all: bool) -> usize {
        match &self.inbox.lock().contents {
            Contents::Stream(stream) => stream.ring.length(),
            Contents::Messages(messages) if counts_all => messages.iter().map(|message| message.bytes.len()).sum(),
            Contents::Messages(messages) => messages.front().map_or(0, |message| message.bytes.len()),
        }
    }

    /// Bytes of a stream that can be taken, or 0 if there is something else to tell.
    ///
    /// # Errors
    /// `EAGAIN`: neither.
    pub(super) fn stream_bytes(&self) -> Result<usize> {
        let inbox = self.inbox.lock();
        let Contents::Stream(stream) = &inbox.contents else { return Ok(0) };
        match stream.ring.length() {
            0 if inbox.error.is_none() && !inbox.is_shut => Err(Errno::EAGAIN),
            count => Ok(count),
        }
    }

    /// Appends bytes that the sender's budget has room for. On an error the rights are given back.
    ///
    /// # Errors
    /// `EPIPE`, `ENOMEM`.
    pub(super) fn push_bytes(
        &self,
        bytes: &[u8],
        identity: Option<Identity>,
        rights: &mut Option<Rights>,
    ) -> Result<()> {
        let mut inbox = self.inbox.lock();
        if inbox.is_shut {
            return Err(Errno::EPIPE);
        }
        let Contents::Stream(stream) = &mut inbox.contents else { return Err(Errno::EOPNOTSUPP) };
        stream.ring.reserve(bytes.len())?;
        stream.push(bytes, identity, rights.take())
    }

    /// Appends all that `source` has, whose bytes the sender's budget has room for, as one copy that ends at a fault.
    /// False: that cannot be done now, and nothing has been appended.
    #[inline]
    pub(super) fn push_nofault(&self, source: &mut dyn Source, count: usize) -> bool {
        let mut inbox = self.inbox.lock();
        let is_shut = inbox.is_shut;
        let Contents::Stream(stream) = &mut inbox.contents else { return false };
        let is_done = !is_shut
            && stream.ring.reserve(count).is_ok()
            && stream.ring.push_with(count, |room| source.take_nofault(room));
        if is_done {
            stream.close_segment(None, None);
        }
        is_done
    }

    /// Receives from a stream as one copy that ends at a fault, or finds that there is nothing (`EAGAIN`). `None`: that
    /// cannot be done now, and nothing has been taken.
    #[inline]
    pub(super) fn take_nofault(&self, destination: &mut dyn Destination) -> Option<Result<usize>> {
        let mut inbox = self.inbox.lock();
        let is_quiet = inbox.error.is_none() && !inbox.is_shut;
        let Contents::Stream(stream) = &mut inbox.contents else { return None };
        if stream.ring.length() == 0 {
            return is_quiet.then_some(Err(Errno::EAGAIN));
        }
        let count = stream.take_nofault(destination)?;
        let told = stream.writer.as_ref().filter(|writer| writer.give_untold(count)).cloned();
        drop(inbox);
        if let Some(writer) = told {
            writer.tell();
        }
        Some(Ok(count))
    }

    /// Takes the next bytes of a stream.
    ///
    /// # Errors
    /// `EAGAIN`, and what happened to the connection.
    pub(super) fn take_bytes(&self, into: &mut [u8], gather: &mut Gather) -> Result<Step> {
        let mut inbox = self.inbox.lock();
        let Contents::Stream(stream) = &mut inbox.contents else { return Err(Errno::EOPNOTSUPP) };
        match stream.step(into, gather) {
            Step::Nothing => inbox.empty_outcome(),
            step => Ok(step),
        }
    }

    /// Gives bytes back that a reader could not take, and what came with them.
    pub(super) fn untake_bytes(&self, bytes: &[u8], gather: &mut Gather) {
        let mut inbox = self.inbox.lock();
        if let Contents::Stream(stream) = &mut inbox.contents
            && stream.ring.reserve(bytes.len()).is_ok()
        {
            stream.ring.unpop(bytes);
            stream.head -= bytes.len() as u64;
            let head = stream.head;
            if let Some(segment) = stream.segments.iter_mut().find(|segment| segment.end > head)
                && segment.end == gather.rights_end
                && segment.rights.is_none()
                && gather.rights_start >= head
            {
                segment.rights = gather.rights.take();
            }
        }
    }

    /// Tells the sender that bytes of a stream have been received for good.
    pub(super) fn settle(&self, count: usize) {
        let writer = match &self.inbox.lock().contents {
            Contents::Stream(stream) => stream.writer.clone(),
            Contents::Messages(_) => None,
        };
        if let Some(writer) = writer {
            writer.give(count);
        }
    }

    /// Promises a place for a message from the socket `sender`, which waits on `queue` if there is none.
    ///
    /// # Errors
    /// `EAGAIN`: it is full. `EPIPE`: shut. `ECONNREFUSED`: closed. `EPERM`: it talks to somebody else only.
    pub(super) fn promise(&self, sender: u64, queue: &Arc<WaitQueue>) -> Result<()> {
        let mut inbox = self.inbox.lock();
        if inbox.is_dead {
            return Err(Errno::ECONNREFUSED);
        }
        if inbox.peer.is_some_and(|peer| peer != sender) {
            return Err(Errno::EPERM);
        }
        if inbox.is_shut {
            return Err(Errno::EPIPE);
        }
        let is_own = sender == self.number || inbox.peer == Some(sender);
        if !is_own && inbox.is_full() {
            inbox.wait(queue);
            return Err(Errno::EAGAIN);
        }
        inbox.promised_count += 1;
        Ok(())
    }

    /// Whether a message of `sender` would find a place; if not, `queue` is told when one would.
    pub(super) fn has_place(&self, sender: u64, queue: &Arc<WaitQueue>) -> bool {
        let mut inbox = self.inbox.lock();
        let is_own = sender == self.number || inbox.peer == Some(sender);
        if is_own || !inbox.is_full() {
            return true;
        }
        inbox.wait(queue);
        false
    }

    /// Fills a promised place, or gives it up.
    pub(super) fn keep_promise(&self, message: Option<Message>) {
        let mut inbox = self.inbox.lock();
        inbox.promised_count -= 1;
        let is_lost = inbox.is_dead;
        match (&mut inbox.contents, message) {
            (Contents::Messages(messages), Some(message)) if !is_lost => {
                messages.push_back(message);
                drop(inbox);
                self.queue.notify(Readiness::READ);
            }
            (_, lost) => {
                drop(inbox);
                drop(lost);
            }
        }
    }

    /// Takes the next message; `None` at the end.
    ///
    /// # Errors
    /// `EAGAIN`, and what happened to the connection.
    pub(super) fn take_message(&self) -> Result<Option<Message>> {
        let mut inbox = self.inbox.lock();
        let Contents::Messages(messages) = &mut inbox.contents else { return Err(Errno::EOPNOTSUPP) };
        let Some(message) = messages.pop_front() else {
            return inbox.empty_outcome().map(|_| None);
        };
        let waiting = if inbox.is_full() { Vec::new() } else { core::mem::take(&mut inbox.waiting) };
        drop(inbox);
        wake(waiting);
        Ok(Some(message))
    }

    /// Copies the next message without taking it.
    ///
    /// # Errors
    /// As [`Self::take_message`], `ENOMEM`.
    pub(super) fn peek_message(&self) -> Result<Option<Peeked>> {
        let mut inbox = self.inbox.lock();
        let Contents::Messages(messages) = &inbox.contents else { return Err(Errno::EOPNOTSUPP) };
        let Some(message) = messages.front() else {
            return inbox.empty_outcome().map(|_| None);
        };
        let mut bytes = reserve::vector(message.bytes.len())?;
        bytes.extend_from_slice(&message.bytes);
        let rights = message.rights.as_ref().and_then(Rights::duplicate);
        Ok(Some(Peeked { bytes, identity: message.identity, rights, from: message.from.clone() }))
    }

    /// Empties it, and lays the rights that lay here into the graveyard; true if there was something.
    pub(super) fn purge(&self, flight: &Flight) -> bool {
        let mut inbox = self.inbox.lock();
        let was_empty = inbox.is_empty();
        let waiting = core::mem::take(&mut inbox.waiting);
        let (mut unread, mut writer, mut messages) = (0, None, VecDeque::new());
        match &mut inbox.contents {
            Contents::Stream(stream) => {
                unread = stream.ring.length();
                writer = stream.writer.clone();
                stream.segments.drain(..).filter_map(|segment| segment.rights).for_each(|it| flight.lay(it));
                stream.head += unread as u64;
                stream.ring = Ring::default();
            }
            Contents::Messages(held) => messages = core::mem::take(held),
        }
        drop(inbox);
        messages.iter_mut().filter_map(|message| message.rights.take()).for_each(|it| flight.lay(it));
        drop(messages);
        if let Some(writer) = writer {
            writer.give(unread);
        }
        wake(waiting);
        !was_empty
    }

    /// Its socket is closed: nothing comes in and nobody reads.
    pub(super) fn die(&self) {
        let mut inbox = self.inbox.lock();
        inbox.is_shut = true;
        inbox.is_dead = true;
    }

    /// Everything that lies here, for the search for rings.
    pub(super) fn for_each_carried(&self, action: &mut dyn FnMut(&Arc<crate::fs::description::Description>)) {
        let inbox = self.inbox.lock();
        let mut visit = |rights: &Option<Rights>| rights.iter().flat_map(Rights::descriptions).for_each(&mut *action);
        match &inbox.contents {
            Contents::Stream(stream) => stream.segments.iter().for_each(|segment| visit(&segment.rights)),
            Contents::Messages(messages) => messages.iter().for_each(|message| visit(&message.rights)),
        }
    }

    /// Lays all rights that lie here into the graveyard.
    pub(super) fn lay_carried(&self, flight: &Flight) {
        match &mut self.inbox.lock().contents {
            Contents::Stream(stream) => {
                stream.segments.iter_mut().filter_map(|segment| segment.rights.take()).for_each(|it| flight.lay(it));
            }
            Contents::Messages(messages) => {
                messages.iter_mut().filter_map(|message| message.rights.take()).for_each(|it| flight.lay(it));
            }
        }
    }
}

impl Inbox {
    /// Remembers a waiter for a place.
    fn wait(&mut self, queue: &Arc<WaitQueue>) {
        self.waiting.retain(|known| known.strong_count() > 0);
        if !self.waiting.iter().any(|known| core::ptr::eq(known.as_ptr(), Arc::as_ptr(queue))) {
            self.waiting.push(Arc::downgrade(queue));
        }
    }
}

/// Tells senders that there is a place.
pub(super) fn wake(waiting: Vec<Weak<WaitQueue>>) {
    for queue in waiting.iter().filter_map(Weak::upgrade) {
        queue.notify(Readiness::WRITE);
    }
}

/// A message that stays where it is.
pub(super) struct Peeked {
    pub(super) bytes: Vec<u8>,
    pub(super) identity: Option<Identity>,
    pub(super) rights: Option<Rights>,
    pub(super) from: Option<Arc<Address>>,
}

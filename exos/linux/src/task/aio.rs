//! Contexts of Linux's asynchronous input and output: the ring of events that a program maps, and requests that wait.
//!
//! A context belongs to an address space, whose end is its own. Its name is the address of its ring: the program's
//! library looks there before it calls (`struct aio_ring` of Linux's `fs/aio.c`). The program may write to the ring;
//! of what it writes only the head is read, once for each look, and taken modulo the ring's length.
//!
//! Nearly every request is done where it is submitted ([`crate::call::aio`]). What waits are polls: they complete where
//! a change is told, without the program's memory, and whoever takes one out of the list completes it.
//!
//! Bound: events that were not fetched and requests under way are together fewer than the ring is long.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use exos::block::request::RequestOwner;
use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::event_counter::EventCounter;
use exos::fs::readiness::{Readiness, Registration, WaitQueue, Waiter};
use exos::mem::FramePool;
use exos::mem::ring_memory::RingMemory;
use exos::reserve;
use exos::sync::Mutex;

use crate::abi::errno::to_word;
use crate::abi::linux::{POLLERR, POLLHUP};
use crate::abi::poll::{events_of, interest_of};

/// Bytes of `struct aio_ring`, and of `struct io_event`.
const HEADER_BYTES: usize = 32;
/// See above.
pub const EVENT_BYTES: usize = 32;
const PAGE_BYTES: usize = 4096;
/// `AIO_RING_MAGIC`, `AIO_RING_COMPAT_FEATURES`.
const MAGIC: u32 = 0xa10a_10a1;
const COMPATIBLE: u32 = 1;
/// Contexts of one address space.
const CONTEXT_COUNT_MAX: usize = 1 << 16;
/// Events that are taken off a ring at a time.
pub const BATCH_COUNT: usize = 16;

/// Where a word of the ring's header is.
mod word {
    pub(super) const ID: usize = 0;
    pub(super) const LENGTH: usize = 4;
    pub(super) const HEAD: usize = 8;
    pub(super) const TAIL: usize = 12;
    pub(super) const MAGIC: usize = 16;
    pub(super) const COMPATIBLE: usize = 20;
    pub(super) const HEADER_BYTES: usize = 28;
}

/// What a pod's contexts have room for (`aio-nr`).
#[derive(Debug, Default)]
pub struct Account(AtomicU64);

impl Account {
    /// Events that were asked for.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts more. `EAGAIN`: more than `limit` then.
    fn add(&self, count: u64, limit: u64) -> Result<()> {
        let more = |now: u64| now.checked_add(count).filter(|sum| *sum <= limit);
        let added = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        added.map(|_| ()).map_err(|_| Errno::EAGAIN)
    }
}

/// Who is told besides the ring when a request has ended (`IOCB_FLAG_RESFD`).
pub type Bell = Option<Arc<Description>>;

/// Tells an eventfd of one event.
pub fn ring_bell(bell: &Bell) {
    if let Some(counter) = bell.as_ref().and_then(|description| description.extension::<EventCounter>()) {
        counter.add(1);
    }
}

/// What of a request comes back with its event.
#[derive(Clone, Debug, Default)]
pub struct Ticket {
    /// The program's word.
    pub data: u64,
    /// The address of its `struct iocb`.
    pub request: u64,
}

/// A poll that waits.
struct Poll {
    number: u64,
    ticket: Ticket,
    context: Weak<AioContext>,
    description: Arc<Description>,
    events: u32,
    bell: Bell,
    registration: Mutex<Option<Registration>>,
}

impl Poll {
    fn found(&self) -> u32 {
        events_of(self.description.readiness()) & self.events
    }
}

impl Waiter for Poll {
    fn wake(&self, _: Readiness) {
        let Some(context) = self.context.upgrade() else { return };
        let found = self.found();
        if found != 0 && context.take_poll(self.number).is_some() {
            context.complete(&self.ticket, i64::from(found));
            ring_bell(&self.bell);
        }
    }
}

/// A transfer that a disk does: whose it is, and the bytes that it moves.
type AtDisk = (Ticket, u64, Bell);

/// Transfers that disks do, by numbers of which none is used again after the context's end. There are no more than
/// requests under way.
#[derive(Default)]
struct AtDisks {
    first_number: u64,
    places: Vec<Option<AtDisk>>,
    free: Vec<u32>,
}

impl AtDisks {
    fn add(&mut self, transfer: AtDisk) -> Result<u64> {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None => {
                self.places.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                // So that each of them can be given back.
                self.free.try_reserve(self.places.len() + 1).map_err(|_| Errno::ENOMEM)?;
                self.places.push(None);
                self.places.len() - 1
            }
        };
        self.places[index] = Some(transfer);
        Ok(self.first_number + index as u64)
    }

    fn remove(&mut self, number: u64) -> Option<AtDisk> {
        let index = usize::try_from(number.checked_sub(self.first_number)?).ok()?;
        let taken = self.places.get_mut(index)?.take()?;
        self.free.push(index as u32);
        Some(taken)
    }

    /// All that there are.
    fn take(&mut self) -> Vec<Option<AtDisk>> {
        self.first_number += self.places.len() as u64;
        self.free.clear();
        core::mem::take(&mut self.places)
    }
}

#[derive(Default)]
struct State {
    tail: u32,
    /// Whoever waits was told of an event, and nobody has looked since.
    is_told: bool,
    /// Requests whose events are still to come.
    active_count: u32,
    polls: BTreeMap<u64, Arc<Poll>>,
    at_disks: AtDisks,
    next_number: u64,
    is_dead: bool,
}

/// One context.
pub struct AioContext {
    memory: Arc<RingMemory>,
    /// Events that fit, one more than can wait.
    length: u32,
    asked_count: u64,
    account: Arc<Account>,
    state: Mutex<State>,
    queue: Arc<WaitQueue>,
}

impl Drop for AioContext {
    fn drop(&mut self) {
        self.account.0.fetch_sub(self.asked_count, Ordering::Relaxed);
    }
}

impl AioContext {
    /// A context with room for `count` events at least, of which the pod may have `limit`.
    ///
    /// # Errors
    /// `EINVAL`: no number of events. `EAGAIN`: too many. `ENOMEM`.
    pub fn new(
        pool: &Arc<FramePool>,
        account: &Arc<Account>,
        (count, limit): (u32, u64),
        processor_count: u32,
    ) -> Result<Arc<Self>> {
        const COUNT_MAX: u32 = 0x1000_0000 / EVENT_BYTES as u32;
        if count == 0 || count > COUNT_MAX {
            return Err(Errno::EINVAL);
        }
        if u64::from(count) > limit {
            return Err(Errno::EAGAIN);
        }
        account.add(count.into(), limit)?;
        let undo = |error| {
            account.0.fetch_sub(count.into(), Ordering::Relaxed);
            error
        };
        // As on Linux, where each processor keeps some places to itself.
        let wanted = (count.max(processor_count.saturating_mul(4)) * 2 + 2) as usize;
        let byte_count = (HEADER_BYTES + wanted * EVENT_BYTES).next_multiple_of(PAGE_BYTES);
        let memory = RingMemory::new(pool, byte_count, "/[aio] (deleted)").map_err(undo)?;
        let length = ((byte_count - HEADER_BYTES) / EVENT_BYTES) as u32;
        for (place, value) in [
            (word::LENGTH, length),
            (word::MAGIC, MAGIC),
            (word::COMPATIBLE, COMPATIBLE),
            (word::HEADER_BYTES, HEADER_BYTES as u32),
        ] {
            memory.store(place, value);
        }
        let (account, asked_count) = (account.clone(), count.into());
        Ok(Arc::new(Self { memory, length, asked_count, account, state: Mutex::default(), queue: WaitQueue::new() }))
    }

    /// The ring, as it is mapped.
    #[must_use]
    pub fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// Told of every event, and of the end.
    #[must_use]
    pub fn queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }

    /// Most requests that one call submits.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    fn head(&self) -> u32 {
        self.memory.load(word::HEAD) % self.length
    }

    /// A request begins. `EAGAIN`: there may be no room for its event.
    ///
    /// # Errors
    /// See above; `EINVAL`: the context has ended.
    pub fn begin(&self) -> Result<()> {
        let head = self.head();
        let mut state = self.state.lock();
        if state.is_dead {
            return Err(Errno::EINVAL);
        }
        let waiting_count = (state.tail + self.length - head) % self.length;
        if waiting_count + state.active_count >= self.length - 1 {
            return Err(Errno::EAGAIN);
        }
        state.active_count += 1;
        Ok(())
    }

    /// A request that has begun does not come about.
    pub fn abandon(&self) {
        self.state.lock().active_count -= 1;
    }

    /// A request has ended: its event.
    pub fn complete(&self, ticket: &Ticket, outcome: i64) {
        let mut event = [0; EVENT_BYTES];
        event[..8].copy_from_slice(&ticket.data.to_le_bytes());
        event[8..16].copy_from_slice(&ticket.request.to_le_bytes());
        event[16..24].copy_from_slice(&outcome.to_le_bytes());
        let was_told = {
            let mut state = self.state.lock();
            self.memory.write(HEADER_BYTES + state.tail as usize * EVENT_BYTES, &event);
            state.tail = (state.tail + 1) % self.length;
            self.memory.store(word::TAIL, state.tail);
            state.active_count = state.active_count.saturating_sub(1);
            core::mem::replace(&mut state.is_told, true)
        };
        if !was_told {
            self.queue.notify(Readiness::READ);
        }
    }

    /// A request that has begun polls a description: it completes now, or when there is something.
    ///
    /// # Errors
    /// `EINVAL`: nothing of the description can be waited for. `ENOMEM`.
    pub fn poll(
        self: &Arc<Self>,
        ticket: Ticket,
        (description, events): (Arc<Description>, u32),
        bell: Bell,
    ) -> Result<()> {
        reserve::check()?;
        let events = events | POLLERR | POLLHUP;
        let number = {
            let mut state = self.state.lock();
            state.next_number += 1;
            state.next_number
        };
        let registration = Mutex::new(None);
        let context = Arc::downgrade(self);
        let poll = Arc::new(Poll { number, ticket, context, description, events, bell, registration });
        let Some(queue) = poll.description.wait_queue() else {
            let found = poll.found();
            if found == 0 {
                return Err(Errno::EINVAL);
            }
            self.complete(&poll.ticket, found.into());
            ring_bell(&poll.bell);
            return Ok(());
        };
        self.state.lock().polls.insert(number, poll.clone());
        let registration = queue.register(Arc::<Poll>::downgrade(&poll), interest_of(events));
        *poll.registration.lock() = Some(registration);
        // What came before it was registered.
        poll.wake(Readiness::empty());
        if !self.state.lock().polls.contains_key(&number) {
            let left = poll.registration.lock().take();
            drop(left);
        }
        Ok(())
    }

    /// A request that has begun is a disk's: the number under which this is told of its end.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn give(&self, ticket: Ticket, byte_count: u64, bell: Bell) -> Result<u64> {
        self.state.lock().at_disks.add((ticket, byte_count, bell))
    }

    /// The disk did not take it.
    pub fn take_back(&self, number: u64) {
        let taken = self.state.lock().at_disks.remove(number);
        drop(taken);
    }

    fn take_poll(&self, number: u64) -> Option<Arc<Poll>> {
        self.state.lock().polls.remove(&number)
    }

    /// Looks at the polls of descriptions that do not tell of every change.
    pub fn look(&self) {
        let silent: Vec<_> = {
            let state = self.state.lock();
            if state.polls.is_empty() {
                return;
            }
            state.polls.values().filter(|poll| !poll.description.announces()).cloned().collect()
        };
        silent.iter().for_each(|poll| poll.wake(Readiness::empty()));
    }

    /// Gives up the poll that a program made with a request: whether there is one.
    #[must_use]
    pub fn cancel(&self, request: u64) -> bool {
        let taken = {
            let mut state = self.state.lock();
            let number = state.polls.iter().find(|(_, poll)| poll.ticket.request == request).map(|(number, _)| *number);
            number.and_then(|number| state.polls.remove(&number))
        };
        let Some(poll) = taken else { return false };
        self.complete(&poll.ticket, 0);
        ring_bell(&poll.bell);
        true
    }

    /// Takes the first events off the ring, at most as many as are asked for: how many. `EINVAL`: it has ended.
    ///
    /// # Errors
    /// See above.
    pub fn take(&self, into: &mut [[u8; EVENT_BYTES]]) -> Result<usize> {
        let mut state = self.state.lock();
        if state.is_dead {
            return Err(Errno::EINVAL);
        }
        state.is_told = false;
        let (mut head, mut count) = (self.head(), 0);
        while head != state.tail
            && let Some(event) = into.get_mut(count)
        {
            self.memory.read(HEADER_BYTES + head as usize * EVENT_BYTES, event);
            head = (head + 1) % self.length;
            count += 1;
        }
        if count > 0 {
            self.memory.store(word::HEAD, head);
        }
        Ok(count)
    }

    /// Puts the last `count` events back that were taken, unless others were taken since or the program moved the head.
    pub fn put_back(&self, count: usize) {
        let _state = self.state.lock();
        let before = (self.head() + self.length - count as u32 % self.length) % self.length;
        self.memory.store(word::HEAD, before);
    }

    /// It ends: what waits is given up, and those that wait for events are told.
    fn end(&self) {
        let given_up = {
            let mut state = self.state.lock();
            state.is_dead = true;
            (core::mem::take(&mut state.polls), state.at_disks.take())
        };
        drop(given_up);
        self.queue.notify(Readiness::READ);
    }
}

impl RequestOwner for AioContext {
    fn done(&self, number: u64, outcome: Result<()>) {
        let taken = self.state.lock().at_disks.remove(number);
        let Some((ticket, byte_count, bell)) = taken else { return };
        let outcome = outcome.map_or_else(|error| to_word(error).cast_signed(), |()| byte_count.cast_signed());
        self.complete(&ticket, outcome);
        ring_bell(&bell);
    }
}

/// The contexts of an address space, by the addresses of their rings.
#[derive(Default)]
pub struct Contexts(Mutex<BTreeMap<u64, Arc<AioContext>>>);

impl Contexts {
    /// Adds one whose ring is mapped at `address`.
    ///
    /// # Errors
    /// `EAGAIN`: there are too many. `ENOMEM`.
    pub fn add(&self, address: u64, context: &Arc<AioContext>) -> Result<()> {
        reserve::check()?;
        let mut contexts = self.0.lock();
        if contexts.len() >= CONTEXT_COUNT_MAX {
            return Err(Errno::EAGAIN);
        }
        context.memory.store(word::ID, contexts.len() as u32);
        contexts.insert(address, context.clone());
        Ok(())
    }

    /// The one with that name.
    #[must_use]
    pub fn get(&self, address: u64) -> Option<Arc<AioContext>> {
        self.0.lock().get(&address).cloned()
    }

    /// Ends the one with that name.
    #[must_use]
    pub fn remove(&self, address: u64) -> Option<Arc<AioContext>> {
        let removed = self.0.lock().remove(&address);
        if let Some(context) = &removed {
            context.end();
        }
        removed
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        for context in core::mem::take(self.0.get_mut()).into_values() {
            context.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::sync::Arc;

    use exos::error::Errno;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::{Account, AioContext, EVENT_BYTES, Ticket};
    use crate::abi::bytes::get;
    use crate::testing::calls::World;

    fn context(world: &World, account: &Arc<Account>, count: u32) -> Result<Arc<AioContext>, Errno> {
        AioContext::new(&world.pod.system.pool, account, (count, 1 << 16), 1)
    }

    #[test]
    fn what_is_asked_for_is_counted_and_given_back() {
        let (world, account) = (World::new(), Arc::default());
        assert_eq!(context(&world, &account, 0).err(), Some(Errno::EINVAL));
        assert_eq!(context(&world, &account, 0x1000_0000).err(), Some(Errno::EINVAL));
        assert_eq!(context(&world, &account, (1 << 16) + 1).err(), Some(Errno::EAGAIN));
        let one = context(&world, &account, 60_000).unwrap();
        assert_eq!(context(&world, &account, 6_000).err(), Some(Errno::EAGAIN));
        assert_eq!(account.count(), 60_000);
        drop(one);
        assert_eq!(account.count(), 0);
    }

    proptest! {
        /// Against a queue, with a program that writes any head at any time.
        #[test]
        fn events_come_in_order_and_are_never_more_than_fit(
            steps in proptest::collection::vec((0_u8..8, 0_u32..300), 1..200),
        ) {
            let (world, account) = (World::new(), Arc::default());
            let context = context(&world, &account, 8).unwrap();
            let (mut model, mut next, mut is_honest) = (VecDeque::new(), 0_u64, true);
            for (kind, value) in steps {
                match kind {
                    0..=3 => match context.begin() {
                        Ok(()) => {
                            context.complete(&Ticket { data: next, request: !next }, 7);
                            model.push_back(next);
                            next += 1;
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Errno::EAGAIN);
                            prop_assert!(!is_honest || model.len() as u32 == context.length() - 1);
                        }
                    },
                    4..=6 => {
                        let mut events = [[0; EVENT_BYTES]; 4];
                        let count = context.take(&mut events).unwrap();
                        if is_honest {
                            prop_assert_eq!(count, model.len().min(4));
                            for event in &events[..count] {
                                prop_assert_eq!(Some(get::u64(event, 0)), model.pop_front());
                                prop_assert_eq!(get::i64(event, 16), 7);
                            }
                        }
                    }
                    _ if value < 10 => {
                        context.memory().store(8, value.wrapping_mul(0x9e37_79b9));
                        is_honest = false;
                    }
                    _ => {}
                }
            }
        }
    }
}

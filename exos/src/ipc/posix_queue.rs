//! POSIX message queues: by name, with priorities.
//!
//! A queue is a file without a path: a process that has opened it has a reference, and it is gone when it has no name
//! and no reference. Messages go out by priority, then in the order in which they came. As with System V's, the thread
//! that makes a request come true does it for the sleeper: a message that is sent goes to the receiver that waited
//! longest, and room that a receiver makes is filled with the message of the sender that waited longest.
//!
//! Bounds: Linux's limits, what a user's queues may hold in all (`RLIMIT_MSGQUEUE`), and what messages cost the
//! account.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::account::{Account, Charge};
use super::sleeper::{Sleeper, Wakes, wake_all};
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue, Waiter};
use crate::sync::Mutex;

/// Priorities are below this.
pub const PRIORITY_COUNT: u32 = 32_768;
/// Longest name.
pub const NAME_BYTES_MAX: usize = 255;
/// Most messages in a queue, and bytes in a message, for any caller.
const MESSAGE_COUNT_MAX: u64 = 65_536;
const MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// What Linux counts for a message, and for a priority, besides the bytes (`RLIMIT_MSGQUEUE`).
const MESSAGE_COST: u64 = 48;
const PRIORITY_COST: u64 = 48;

/// `/proc/sys/fs/mqueue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most queues.
    pub queue_count_max: u32,
    /// Messages in a queue.
    pub message_count_max: u32,
    /// Bytes in a message.
    pub message_bytes_max: u32,
    /// Messages in a queue that is made without a word about it.
    pub message_count: u32,
    /// Bytes in its messages.
    pub message_bytes: u32,
}

impl Default for Limits {
    /// Linux's.
    fn default() -> Self {
        Self {
            queue_count_max: 256,
            message_count_max: 10,
            message_bytes_max: 8192,
            message_count: 10,
            message_bytes: 8192,
        }
    }
}

/// What a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Most messages in the queue.
    pub message_count: u64,
    /// Bytes in a message.
    pub message_bytes: u64,
}

/// A message: priority and bytes.
pub struct Message {
    /// Those with a higher one go first.
    pub priority: u32,
    /// Contents.
    pub bytes: Vec<u8>,
    _charge: Charge,
}

/// How a process is told that a message came to an empty queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Process that is notified.
    pub pid: u32,
    /// `SIGEV_SIGNAL` with this signal, or `SIGEV_NONE`.
    pub signal: Option<u8>,
    /// `sigev_value`.
    pub value: u64,
}

/// The maker of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub permissions: u32,
    /// `RLIMIT_MSGQUEUE`, in bytes.
    pub bytes_max: u64,
    /// `CAP_SYS_RESOURCE`.
    pub may_exceed: bool,
}

struct Receiver {
    number: u64,
    sleeper: Arc<Sleeper<Message>>,
}

struct Sender {
    number: u64,
    message: Message,
    sleeper: Arc<Sleeper<()>>,
}

#[derive(Default)]
struct State {
    /// By priority; no list is empty.
    messages: BTreeMap<u32, VecDeque<Message>>,
    count: u64,
    bytes: u64,
    receivers: VecDeque<Receiver>,
    senders: VecDeque<Sender>,
    waiting_count: u64,
    notification: Option<Notification>,
}

/// A queue; it lives as long as its name or a reference.
pub struct PosixQueue {
    /// Whose it is and what it may be opened for.
    pub owner: Maker,
    /// Most messages, and bytes of each.
    pub capacity: Capacity,
    state: Mutex<State>,
    ready: Arc<WaitQueue>,
    account: Arc<Account>,
    _place: Place,
}

/// How many queues there are, and what they may hold by user.
#[derive(Default)]
struct Census {
    queue_count: u32,
    bytes_by_user: BTreeMap<u32, u64>,
}

/// A queue's part of the census, which ends with it.
struct Place {
    census: Arc<Mutex<Census>>,
    uid: u32,
    bytes: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut census = self.census.lock();
        census.queue_count -= 1;
        if let Some(bytes) = census.bytes_by_user.get_mut(&self.uid) {
            *bytes -= self.bytes;
            if *bytes == 0 {
                census.bytes_by_user.remove(&self.uid);
            }
        }
    }
}

#[derive(Default)]
struct Names {
    queues: BTreeMap<Vec<u8>, Arc<PosixQueue>>,
    limits: Limits,
}

/// The queues of a pod.
pub struct PosixQueues {
    account: Arc<Account>,
    names: Mutex<Names>,
    census: Arc<Mutex<Census>>,
}

/// What a call that sends comes to.
pub enum Sending<'a> {
    /// It is sent; the process to be told of it.
    Done(Option<Notification>),
    /// There is no room.
    Waits(SendWait<'a>),
}

/// What a call that receives comes to.
pub enum Receiving<'a> {
    /// Here it is.
    Done(Message),
    /// There is none yet.
    Waits(ReceiveWait<'a>),
}

/// A place among the waiters for room. Dropping it takes the message back.
pub struct SendWait<'a> {
    queue: &'a PosixQueue,
    number: u64,
    sleeper: Arc<Sleeper<()>>,
}

/// A place among the waiters for a message. Dropping it gives it up.
pub struct ReceiveWait<'a> {
    queue: &'a PosixQueue,
    number: u64,
    sleeper: Arc<Sleeper<Message>>,
}

/// Checks a name as the file system of queues does: `ENOENT` empty, `EACCES` with a slash or a directory's,
/// `ENAMETOOLONG`.
pub fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EACCES),
        name if name.contains(&b'/') => Err(Errno::EACCES),
        name if name.len() > NAME_BYTES_MAX => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

impl PosixQueues {
    /// No queue yet.
    #[must_use]
    pub fn new(account: Arc<Account>) -> Self {
        Self { account, names: Mutex::default(), census: Arc::default() }
    }

    /// Limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.names.lock().limits
    }

    /// Sets them; what exceeds them already stays.
    pub fn set_limits(&self, limits: Limits) {
        self.names.lock().limits = limits;
    }

    /// The queue of that name. `ENOENT`.
    pub fn find(&self, name: &[u8]) -> Result<Arc<PosixQueue>> {
        self.names.lock().queues.get(name).cloned().ok_or(Errno::ENOENT)
    }

    /// The queue of that name and false, or a new one and true.
    ///
    /// # Errors
    /// `EINVAL`: a capacity of nothing, or beyond the limits; `ENOSPC`: too many queues; `EMFILE`: too much for its
    /// user; `EOVERFLOW`, `ENOMEM`.
    pub fn find_or_make(
        &self,
        name: &[u8],
        maker: Maker,
        capacity: Option<Capacity>,
    ) -> Result<(Arc<PosixQueue>, bool)> {
        let mut names = self.names.lock();
        if let Some(queue) = names.queues.get(name) {
            return Ok((queue.clone(), false));
        }
        let limits = names.limits;
        let usual = Capacity {
            message_count: u64::from(limits.message_count.min(limits.message_count_max)),
            message_bytes: u64::from(limits.message_bytes.min(limits.message_bytes_max)),
        };
        let capacity = capacity.unwrap_or(usual);
        let place = self.take_place(&maker, limits, capacity)?;
        let mut key = Vec::new();
        key.try_reserve_exact(name.len()).map_err(|_| Errno::ENOMEM)?;
        key.extend_from_slice(name);
        let queue = Arc::new(PosixQueue {
            owner: maker,
            capacity,
            state: Mutex::default(),
            ready: WaitQueue::new(),
            account: self.account.clone(),
            _place: place,
        });
        names.queues.insert(key, queue.clone());
        Ok((queue, true))
    }

    fn take_place(&self, maker: &Maker, limits: Limits, capacity: Capacity) -> Result<Place> {
        let mut census = self.census.lock();
        if census.queue_count >= limits.queue_count_max && !maker.may_exceed {
            return Err(Errno::ENOSPC);
        }
        let (count_max, bytes_max) = if maker.may_exceed {
            (MESSAGE_COUNT_MAX, MESSAGE_BYTES_MAX)
        } else {
            (u64::from(limits.message_count_max), u64::from(limits.message_bytes_max))
        };
        let Capacity { message_count, message_bytes } = capacity;
        if !(1..=count_max).contains(&message_count) || !(1..=bytes_max).contains(&message_bytes) {
            return Err(Errno::EINVAL);
        }
        let tree = message_count * MESSAGE_COST + message_count.min(u64::from(PRIORITY_COUNT)) * PRIORITY_COST;
        let bytes = message_count.checked_mul(message_bytes).and_then(|bytes| bytes.checked_add(tree));
        let bytes = bytes.ok_or(Errno::EOVERFLOW)?;
        let used = census.bytes_by_user.entry(maker.uid).or_default();
        let total = used.checked_add(bytes).filter(|total| *total <= maker.bytes_max);
        let Some(total) = total else {
            if *used == 0 {
                census.bytes_by_user.remove(&maker.uid);
            }
            return Err(Errno::EMFILE);
        };
        *used = total;
        census.queue_count += 1;
        Ok(Place { census: self.census.clone(), uid: maker.uid, bytes })
    }

    /// Takes a name away, if `may` says so of its queue; processes that have it open keep it. `ENOENT`, those of `may`.
    pub fn unlink(&self, name: &[u8], may: impl FnOnce(&PosixQueue) -> Result<()>) -> Result<()> {
        let removed = {
            let mut names = self.names.lock();
            may(names.queues.get(name).ok_or(Errno::ENOENT)?)?;
            names.queues.remove(name)
        };
        // Its messages are many, perhaps: not under the lock.
        drop(removed);
        Ok(())
    }
}

impl State {
    fn insert(&mut self, message: Message) {
        self.count += 1;
        self.bytes += message.bytes.len() as u64;
        self.messages.entry(message.priority).or_default().push_back(message);
    }

    fn take(&mut self) -> Option<Message> {
        let mut last = self.messages.last_entry()?;
        let message = last.get_mut().pop_front();
        if last.get().is_empty() {
            last.remove();
        }
        if let Some(message) = &message {
            self.count -= 1;
            self.bytes -= message.bytes.len() as u64;
        }
        message
    }
}

impl PosixQueue {
    /// A message of `length` bytes that `fill` writes. `EMSGSIZE`: it is too long; `ENOMEM`, those of `fill`.
    pub fn message(&self, priority: u32, length: u64, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Message> {
        if length > self.capacity.message_bytes {
            return Err(Errno::EMSGSIZE);
        }
        let charge = self.account.take(MESSAGE_COST + length)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length as usize).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(length as usize, 0);
        fill(&mut bytes)?;
        Ok(Message { priority, bytes, _charge: charge })
    }

    /// Sends. `waiter` is woken when a message that has to wait has been sent. `EAGAIN`: there is no room, and
    /// `no_wait`.
    pub fn send(&self, message: Message, no_wait: bool, waiter: Weak<dyn Waiter>) -> Result<Sending<'_>> {
        let mut wakes = Wakes::new();
        let mut events = Readiness::empty();
        let sent = {
            let mut state = self.state.lock();
            if state.count >= self.capacity.message_count {
                if no_wait {
                    return Err(Errno::EAGAIN);
                }
                state.senders.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                state.waiting_count += 1;
                let (number, sleeper) = (state.waiting_count, Sleeper::new(waiter));
                state.senders.push_back(Sender { number, message, sleeper: sleeper.clone() });
                return Ok(Sending::Waits(SendWait { queue: self, number, sleeper }));
            }
            if let Some(receiver) = state.receivers.pop_front() {
                receiver.sleeper.settle(message, &mut wakes);
                None
            } else {
                state.insert(message);
                events = Readiness::READ;
                if state.count == 1 { state.notification.take() } else { None }
            }
        };
        wake_all(wakes);
        if !events.is_empty() {
            self.ready.notify(events);
        }
        Ok(Sending::Done(sent))
    }

    /// Receives. `waiter` is woken when a message has come. `EAGAIN`: there is none, and `no_wait`.
    pub fn receive(&self, no_wait: bool, waiter: Weak<dyn Waiter>) -> Result<Receiving<'_>> {
        let mut wakes = Wakes::new();
        let message = {
            let mut state = self.state.lock();
            let Some(message) = state.take() else {
                if no_wait {
                    return Err(Errno::EAGAIN);
                }
                state.receivers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                state.waiting_count += 1;
                let (number, sleeper) = (state.waiting_count, Sleeper::new(waiter));
                state.receivers.push_back(Receiver { number, sleeper: sleeper.clone() });
                return Ok(Receiving::Waits(ReceiveWait { queue: self, number, sleeper }));
            };
            if let Some(sender) = state.senders.pop_front() {
                state.insert(sender.message);
                sender.sleeper.settle((), &mut wakes);
            }
            message
        };
        wake_all(wakes);
        self.ready.notify(Readiness::WRITE);
        Ok(Receiving::Done(message))
    }

    /// Messages in it.
    #[must_use]
    pub fn message_count(&self) -> u64 {
        self.state.lock().count
    }

    /// Bytes in it, and the process to be told of the next message.
    #[must_use]
    pub fn summary(&self) -> (u64, Option<Notification>) {
        let state = self.state.lock();
        (state.bytes, state.notification)
    }

    /// What it is ready for.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let count = self.message_count();
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, count > 0);
        ready.set(Readiness::WRITE, count < self.capacity.message_count);
        ready
    }

    /// The queue that is told when that changes.
    #[must_use]
    pub fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.ready
    }

    /// Has a process told of the next message that comes while the queue is empty. `EBUSY`: somebody is to be told.
    pub fn notify(&self, notification: Notification) -> Result<()> {
        let mut state = self.state.lock();
        if state.notification.is_some() {
            return Err(Errno::EBUSY);
        }
        state.notification = Some(notification);
        Ok(())
    }

    /// The process does not want to be told any more, or has closed the queue.
    pub fn forget_notification(&self, pid: u32) {
        let mut state = self.state.lock();
        if state.notification.is_some_and(|notification| notification.pid == pid) {
            state.notification = None;
        }
    }
}

impl SendWait<'_> {
    /// Whether it has been sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sleeper.take().is_some()
    }

    /// Takes the message back, unless it was sent: whether it was.
    #[must_use]
    pub fn give_up(&self) -> bool {
        let mut state = self.queue.state.lock();
        let is_sent = self.sleeper.take().is_some();
        if !is_sent {
            state.senders.retain(|sender| sender.number != self.number);
        }
        is_sent
    }
}

impl Drop for SendWait<'_> {
    fn drop(&mut self) {
        let _ = self.give_up();
    }
}

impl ReceiveWait<'_> {
    /// The message, if it has come.
    #[must_use]
    pub fn outcome(&self) -> Option<Message> {
        self.sleeper.take()
    }

    /// Gives the place up, unless a message has come: that message then.
    #[must_use]
    pub fn give_up(&self) -> Option<Message> {
        let mut state = self.queue.state.lock();
        let message = self.sleeper.take();
        if message.is_none() {
            state.receivers.retain(|receiver| receiver.number != self.number);
        }
        message
    }
}

impl Drop for ReceiveWait<'_> {
    fn drop(&mut self) {
        let _ = self.give_up();
    }
}

//! System V message queues: messages with a type, taken in order or by type.
//!
//! A receiver that finds nothing waits in the queue and is handed the first message that fits, by its sender; a sender
//! that finds no room is told to try again when there is some. As on Linux, a receiver whose buffer is too small for
//! the message that it asked for is told so (`E2BIG`) and the message goes on to the next.
//!
//! Bounds: Linux's limits, and what messages cost the account.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::account::{Account, Charge};
use super::id_table::{IdTable, KEY_PRIVATE};
use super::permission::{Caller, Ownership, READ, WRITE};
use super::sleeper::{Sleeper, Wakes, wake_all};
use crate::error::{Errno, Result};
use crate::fs::readiness::Waiter;
use crate::sync::Mutex;
use crate::task::capability::Capability;

/// What a queue costs.
const QUEUE_BYTES: u64 = 320;
/// What a message costs besides its bytes.
const MESSAGE_BYTES: u64 = 64;

/// `/proc/sys/kernel/msg*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message.
    pub message_bytes_max: u32,
    /// Bytes that a new queue holds.
    pub queue_bytes: u32,
    /// Most queues (`MSGMNI`).
    pub queue_count_max: u32,
}

impl Default for Limits {
    /// Linux's.
    fn default() -> Self {
        Self { message_bytes_max: 8192, queue_bytes: 16_384, queue_count_max: 32_000 }
    }
}

/// A message: type and bytes.
pub struct Message {
    /// Its type, at least 1.
    pub kind: i64,
    /// Contents, at most `MSGMAX` bytes.
    pub bytes: Vec<u8>,
    _charge: Charge,
}

/// Which message is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The first.
    Any,
    /// The first of this type.
    Equal(i64),
    /// The first of another type.
    NotEqual(i64),
    /// The first of the lowest type that is not above this.
    UpTo(i64),
    /// The one at this place (`MSG_COPY`).
    Place(i64),
}

impl Selection {
    fn takes(self, kind: i64) -> bool {
        match self {
            Self::Any | Self::Place(_) => true,
            Self::Equal(wanted) => kind == wanted,
            Self::NotEqual(unwanted) => kind != unwanted,
            Self::UpTo(most) => kind <= most,
        }
    }
}

/// How a message is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Which messages it takes.
    pub selection: Selection,
    /// Bytes that there is room for.
    pub room_bytes: usize,
    /// `MSG_NOERROR`: a longer one is cut.
    pub cuts: bool,
    /// `MSG_COPY`: it stays where it is.
    pub copies: bool,
    /// `IPC_NOWAIT`.
    pub no_wait: bool,
}

struct Receiver {
    number: u64,
    pid: u32,
    request: ReceiveRequest,
    sleeper: Arc<Sleeper<Result<Message>>>,
}

struct Sender {
    number: u64,
    length: usize,
    sleeper: Arc<Sleeper<Result<()>>>,
}

struct Queue {
    ownership: Ownership,
    messages: VecDeque<Message>,
    bytes: u64,
    bytes_max: u64,
    receivers: VecDeque<Receiver>,
    senders: VecDeque<Sender>,
    sent_s: u64,
    received_s: u64,
    changed_s: u64,
    sender_pid: u32,
    receiver_pid: u32,
    _charge: Charge,
}

/// What is known of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Identifier.
    pub id: i32,
    /// Owner, creator and mode.
    pub ownership: Ownership,
    /// Bytes of the messages in it.
    pub bytes: u64,
    /// Messages in it.
    pub message_count: u64,
    /// Bytes that it holds.
    pub bytes_max: u64,
    /// When something was sent last, in seconds of realtime; 0 for never.
    pub sent_s: u64,
    /// When something was received last.
    pub received_s: u64,
    /// When it was made or changed by a control call.
    pub changed_s: u64,
    /// Process that sent last.
    pub sender_pid: u32,
    /// Process that received last.
    pub receiver_pid: u32,
}

/// What `IPC_INFO` and `MSG_INFO` tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Limits in force.
    pub limits: Limits,
    /// Queues that there are.
    pub queue_count: u32,
    /// Messages in them.
    pub message_count: u32,
    /// Bytes of all messages.
    pub bytes: u32,
    /// The highest index in use, 0 if there is none.
    pub index_last: u32,
}

pub use super::semaphore::Look;

#[derive(Default)]
struct State {
    queues: IdTable<Queue>,
    limits: Limits,
    waiting_count: u64,
}

/// The queues of a pod.
pub struct MessageQueues {
    account: Arc<Account>,
    state: Mutex<State>,
}

/// What a call that sends comes to.
pub enum Sending<'a> {
    /// It is sent.
    Done,
    /// There is no room; here is the message again.
    Waits(SendWait<'a>, Message),
}

/// What a call that receives comes to.
pub enum Receiving<'a> {
    /// Here it is.
    Done(Message),
    /// There is none yet.
    Waits(ReceiveWait<'a>),
}

/// A place among the waiters for room. Dropping it gives it up.
pub struct SendWait<'a> {
    queues: &'a MessageQueues,
    id: i32,
    number: u64,
    sleeper: Arc<Sleeper<Result<()>>>,
}

/// A place among the waiters for a message. Dropping it gives it up; a message that came meanwhile is lost then, as
/// with a thread that is killed.
pub struct ReceiveWait<'a> {
    queues: &'a MessageQueues,
    id: i32,
    number: u64,
    sleeper: Arc<Sleeper<Result<Message>>>,
}

impl Queue {
    fn fits(&self, length: usize) -> bool {
        self.bytes + length as u64 <= self.bytes_max && (self.messages.len() as u64) < self.bytes_max
    }

    /// Hands a message to the first receiver that takes it.
    fn hand_over(&mut self, message: Message, now_s: u64, wakes: &mut Wakes) -> Option<Message> {
        let mut place = 0;
        while place < self.receivers.len() {
            if !self.receivers[place].request.selection.takes(message.kind) {
                place += 1;
                continue;
            }
            let receiver = self.receivers.remove(place)?;
            if !receiver.request.cuts && receiver.request.room_bytes < message.bytes.len() {
                receiver.sleeper.settle(Err(Errno::E2BIG), wakes);
                continue;
            }
            self.receiver_pid = receiver.pid;
            self.received_s = now_s;
            receiver.sleeper.settle(Ok(message), wakes);
            return None;
        }
        Some(message)
    }

    fn find(&self, selection: Selection) -> Option<usize> {
        let of_kind = |takes: &dyn Fn(i64) -> bool| self.messages.iter().position(|message| takes(message.kind));
        match selection {
            Selection::Place(place) => usize::try_from(place).ok().filter(|place| *place < self.messages.len()),
            Selection::UpTo(most) => {
                let kinds = self.messages.iter().map(|message| message.kind);
                let lowest = kinds.filter(|kind| *kind <= most).min()?;
                of_kind(&|kind| kind == lowest)
            }
            _ => of_kind(&|kind| selection.takes(kind)),
        }
    }

    fn take(&mut self, place: usize) -> Option<Message> {
        let message = self.messages.remove(place)?;
        self.bytes -= message.bytes.len() as u64;
        Some(message)
    }

    /// Tells those senders to try again that there is room for. The others go behind, as on Linux.
    fn call_senders(&mut self, wakes: &mut Wakes) {
        for _ in 0..self.senders.len() {
            let Some(sender) = self.senders.pop_front() else { return };
            if self.fits(sender.length) {
                sender.sleeper.settle(Ok(()), wakes);
            } else {
                self.senders.push_back(sender);
            }
        }
    }

    /// Tells all receivers to look again, or why they cannot.
    fn dismiss_receivers(&mut self, error: Errno, wakes: &mut Wakes) {
        self.receivers.drain(..).for_each(|receiver| receiver.sleeper.settle(Err(error), wakes));
    }

    fn status(&self, id: i32) -> Status {
        let Self { ownership, bytes, bytes_max, sent_s, received_s, changed_s, sender_pid, receiver_pid, .. } = *self;
        let message_count = self.messages.len() as u64;
        Status {
            id,
            ownership,
            bytes,
            message_count,
            bytes_max,
            sent_s,
            received_s,
            changed_s,
            sender_pid,
            receiver_pid,
        }
    }
}

impl MessageQueues {
    /// No queue yet.
    #[must_use]
    pub fn new(account: Arc<Account>) -> Self {
        Self { account, state: Mutex::default() }
    }

    /// `msgget`. `ENOENT`, `EEXIST`, `EACCES`, `ENOSPC`, `ENOMEM`.
    pub fn get(&self, caller: &Caller<'_>, key: i32, (create, exclusive): (bool, bool), mode: u32) -> Result<i32> {
        let mut state = self.state.lock();
        if key != KEY_PRIVATE {
            if let Some(id) = state.queues.find(key) {
                if create && exclusive {
                    return Err(Errno::EEXIST);
                }
                return state.queues.get(id)?.ownership.check(caller, mode).map(|()| id);
            }
            if !create {
                return Err(Errno::ENOENT);
            }
        }
        let queue = Queue {
            ownership: Ownership::of_new(caller, key, mode),
            messages: VecDeque::new(),
            bytes: 0,
            bytes_max: u64::from(state.limits.queue_bytes),
            receivers: VecDeque::new(),
            senders: VecDeque::new(),
            sent_s: 0,
            received_s: 0,
            changed_s: caller.now_s,
            sender_pid: 0,
            receiver_pid: 0,
            _charge: self.account.take(QUEUE_BYTES)?,
        };
        let limit = state.limits.queue_count_max as usize;
        state.queues.add(key, limit, |_| queue)
    }

    /// A message of `length` bytes that `fill` writes. `EINVAL`: the type is not positive, or it is too long; `ENOMEM`,
    /// those of `fill`.
    pub fn message(&self, kind: i64, length: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Message> {
        if length as u64 > u64::from(self.state.lock().limits.message_bytes_max) || kind < 1 {
            return Err(Errno::EINVAL);
        }
        self.make(kind, length, fill)
    }

    fn make(&self, kind: i64, length: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Message> {
        let charge = self.account.take(MESSAGE_BYTES + length as u64)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(length, 0);
        fill(&mut bytes)?;
        Ok(Message { kind, bytes, _charge: charge })
    }

    /// `msgsnd`. `waiter` is woken when there may be room.
    ///
    /// # Errors
    /// `EINVAL`, `EACCES`, `EAGAIN` (with `no_wait`), `ENOMEM`.
    pub fn send(
        &self,
        caller: &Caller<'_>,
        id: i32,
        message: Message,
        no_wait: bool,
        waiter: Weak<dyn Waiter>,
    ) -> Result<Sending<'_>> {
        let mut wakes = Wakes::new();
        let sent = self.send_locked(caller, id, message, no_wait, waiter, &mut wakes);
        wake_all(wakes);
        sent
    }

    fn send_locked(
        &self,
        caller: &Caller<'_>,
        id: i32,
        message: Message,
        no_wait: bool,
        waiter: Weak<dyn Waiter>,
        wakes: &mut Wakes,
    ) -> Result<Sending<'_>> {
        let mut state = self.state.lock();
        let State { queues, waiting_count, .. } = &mut *state;
        let queue = queues.get_mut(id)?;
        queue.ownership.check(caller, WRITE)?;
        if !queue.fits(message.bytes.len()) {
            if no_wait {
                return Err(Errno::EAGAIN);
            }
            queue.senders.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            *waiting_count += 1;
            let (number, length, sleeper) = (*waiting_count, message.bytes.len(), Sleeper::new(waiter));
            queue.senders.push_back(Sender { number, length, sleeper: sleeper.clone() });
            return Ok(Sending::Waits(SendWait { queues: self, id, number, sleeper }, message));
        }
        queue.messages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        queue.sender_pid = caller.pid;
        queue.sent_s = caller.now_s;
        if let Some(message) = queue.hand_over(message, caller.now_s, wakes) {
            queue.bytes += message.bytes.len() as u64;
            queue.messages.push_back(message);
        }
        Ok(Sending::Done)
    }

    /// `msgrcv`. `waiter` is woken when a request that has to wait is settled.
    ///
    /// # Errors
    /// `EINVAL`, `EACCES`, `E2BIG`, `ENOMSG` (with `no_wait`), `ENOMEM`.
    pub fn receive(
        &self,
        caller: &Caller<'_>,
        id: i32,
        request: ReceiveRequest,
        waiter: Weak<dyn Waiter>,
    ) -> Result<Receiving<'_>> {
        let mut wakes = Wakes::new();
        let received = self.receive_locked(caller, id, request, waiter, &mut wakes);
        wake_all(wakes);
        received
    }

    fn receive_locked(
        &self,
        caller: &Caller<'_>,
        id: i32,
        request: ReceiveRequest,
        waiter: Weak<dyn Waiter>,
        wakes: &mut Wakes,
    ) -> Result<Receiving<'_>> {
        let mut state = self.state.lock();
        let State { queues, waiting_count, .. } = &mut *state;
        let queue = queues.get_mut(id)?;
        queue.ownership.check(caller, READ)?;
        let Some(place) = queue.find(request.selection) else {
            if request.no_wait {
                return Err(Errno::ENOMSG);
            }
            queue.receivers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            *waiting_count += 1;
            let (number, sleeper) = (*waiting_count, Sleeper::new(waiter));
            queue.receivers.push_back(Receiver { number, pid: caller.pid, request, sleeper: sleeper.clone() });
            return Ok(Receiving::Waits(ReceiveWait { queues: self, id, number, sleeper }));
        };
        let length = queue.messages[place].bytes.len();
        if length > request.room_bytes && !request.cuts {
            return Err(Errno::E2BIG);
        }
        if request.copies {
            if length > request.room_bytes {
                return Err(Errno::EINVAL);
            }
            return self.copy_of(&queue.messages[place]).map(Receiving::Done);
        }
        let message = queue.take(place).ok_or(Errno::ENOMSG)?;
        queue.received_s = caller.now_s;
        queue.receiver_pid = caller.pid;
        queue.call_senders(wakes);
        Ok(Receiving::Done(message))
    }

    fn copy_of(&self, message: &Message) -> Result<Message> {
        self.make(message.kind, message.bytes.len(), |bytes| {
            bytes.copy_from_slice(&message.bytes);
            Ok(())
        })
    }

    /// `IPC_STAT`, `MSG_STAT`, `MSG_STAT_ANY`. `EINVAL`, `EACCES`.
    pub fn status(&self, caller: &Caller<'_>, id: i32, look: Look) -> Result<Status> {
        let state = self.state.lock();
        let (id, queue) = match look {
            Look::Number => (id, state.queues.get(id)?),
            Look::Index | Look::Any => state.queues.at_index(id)?,
        };
        if look != Look::Any {
            queue.ownership.check(caller, READ)?;
        }
        Ok(queue.status(id))
    }

    /// `IPC_INFO`, `MSG_INFO`.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.state.lock();
        Figures {
            limits: state.limits,
            queue_count: state.queues.count() as u32,
            message_count: state.queues.iter().map(|(_, queue)| queue.messages.len() as u32).sum(),
            bytes: state.queues.iter().map(|(_, queue)| queue.bytes as u32).sum(),
            index_last: state.queues.index_last().unwrap_or(0) as u32,
        }
    }

    /// Sets the limits; what exceeds them already stays.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// `/proc/sysvipc/msg`.
    #[must_use]
    pub fn list(&self) -> Vec<Status> {
        self.state.lock().queues.iter().map(|(id, queue)| queue.status(id)).collect()
    }

    /// `IPC_SET`: waiters look again. `EINVAL`; `EPERM`: not the owner, or more bytes than one may have.
    pub fn set(&self, caller: &Caller<'_>, id: i32, (uid, gid, mode): (u32, u32, u32), bytes_max: u64) -> Result<()> {
        let mut wakes = Wakes::new();
        {
            let mut state = self.state.lock();
            let usual = u64::from(state.limits.queue_bytes);
            let queue = state.queues.get_mut(id)?;
            queue.ownership.check_control(caller)?;
            if bytes_max > usual && !caller.can(Capability::SYS_RESOURCE) {
                return Err(Errno::EPERM);
            }
            queue.ownership.set(uid, gid, mode)?;
            queue.bytes_max = bytes_max;
            queue.changed_s = caller.now_s;
            queue.dismiss_receivers(Errno::EAGAIN, &mut wakes);
            queue.call_senders(&mut wakes);
        }
        wake_all(wakes);
        Ok(())
    }

    /// `IPC_RMID`: waiters are told `EIDRM`. `EINVAL`, `EPERM`.
    pub fn remove(&self, caller: &Caller<'_>, id: i32) -> Result<()> {
        let mut wakes = Wakes::new();
        let removed = {
            let mut state = self.state.lock();
            state.queues.get(id)?.ownership.check_control(caller)?;
            let mut removed = state.queues.remove(id);
            if let Some(queue) = &mut removed {
                queue.dismiss_receivers(Errno::EIDRM, &mut wakes);
                queue.senders.drain(..).for_each(|sender| sender.sleeper.settle(Err(Errno::EIDRM), &mut wakes));
            }
            removed
        };
        // Its messages are many, perhaps: not under the lock.
        drop(removed);
        wake_all(wakes);
        Ok(())
    }
}

impl SendWait<'_> {
    /// Whether to try again, or why not; `None`: nothing has changed.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<()>> {
        self.sleeper.take()
    }
}

impl Drop for SendWait<'_> {
    fn drop(&mut self) {
        let mut state = self.queues.state.lock();
        if let Ok(queue) = state.queues.get_mut(self.id) {
            queue.senders.retain(|sender| sender.number != self.number);
        }
    }
}

impl ReceiveWait<'_> {
    /// What became of the request, if it was settled; `EAGAIN`: to be asked again.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Message>> {
        self.sleeper.take()
    }

    /// Takes the request out, unless it was settled: what became of it then.
    #[must_use]
    pub fn give_up(&self) -> Option<Result<Message>> {
        let mut state = self.queues.state.lock();
        let outcome = self.sleeper.take();
        if outcome.is_none()
            && let Ok(queue) = state.queues.get_mut(self.id)
        {
            queue.receivers.retain(|receiver| receiver.number != self.number);
        }
        outcome
    }
}

impl Drop for ReceiveWait<'_> {
    fn drop(&mut self) {
        let _ = self.give_up();
    }
}

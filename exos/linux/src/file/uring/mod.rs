//! A ring of `io_uring`, as a file: its queues ([`queues`]) and the requests that wait ([`requests`]).
//!
//! A request is tried where it is submitted, without a wait. One that would have to wait is kept here with a place in
//! its file's queue of waiters; when that tells of a change the request is listed as ready, and a thread of its process
//! tries it again ([`crate::task::work`]): no thread waits for it meanwhile. Timeouts are looked at by the machine's
//! timer ([`Ring::expire`]) and complete without the program's memory. What a request does is above
//! (`crate::call::uring`), which the ring reaches by the function that it was made with.
//!
//! # Invariants
//!
//! - RNG-1 A chain that waits is in `waiting` once, and whoever takes it out of there ends it or goes on with it: each
//!   request is told once.
//! - RNG-2 Nobody is told, and no reference to a file dropped, under the lock of the state.
//! - RNG-3 At most [`WAITING_COUNT_MAX`] chains wait. What the program writes into the rings hurts itself alone.
//! - RNG-4 A process that ends, or runs another program, has none of its chains go on ([`Ring::end`]). That also opens
//!   the circles that a ring makes that waits for itself.

mod events;
pub mod queues;
pub mod requests;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use exos::block::queue::BlockQueue;
use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::event_counter::EventCounter;
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::reserve;
use exos::sync::{Mutex, MutexGuard, SpinMutex};

use self::queues::{Ends, Queues};
use self::requests::{Chain, Marks, Owner, Request, Waiting};
use crate::abi::errno::to_word;
use crate::abi::uring::{Cqe, opcode, setup, sqe_flag};
use crate::abi::user_memory::Extent;
use crate::task::caller::Caller;
use crate::task::process::Process;
use crate::task::work::Work;

/// Chains that wait at a time.
pub const WAITING_COUNT_MAX: usize = 1 << 16;
/// Buffers of a group that were provided and not used.
const GROUP_BUFFER_COUNT_MAX: usize = 1 << 16;

/// An error as a completion has it.
#[must_use]
pub fn code(error: Errno) -> i32 {
    to_word(error) as i32
}

/// A provided buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvidedBuffer {
    /// Where it is.
    pub extent: Extent,
    /// Its number.
    pub number: u16,
}

/// Who is told of completions besides the ring.
struct Bell {
    description: Arc<Description>,
    /// Only of those that were not done where they were submitted.
    is_for_later: bool,
}

/// What is registered.
#[derive(Default)]
pub struct Registered {
    /// Files; `None`: there is no table.
    pub files: Option<Vec<Option<Arc<Description>>>>,
    /// Buffers; `None`: there is no table.
    pub buffers: Option<Vec<Option<Extent>>>,
    groups: BTreeMap<u16, VecDeque<ProvidedBuffer>>,
}

#[derive(Default)]
struct State {
    ends: Ends,
    waiting: BTreeMap<u64, Arc<Waiting>>,
    next_number: u64,
    ready: VecDeque<u64>,
    /// By when they are over.
    timers: BTreeSet<(u64, u64)>,
    /// Timeouts that wait for a number of completions.
    counting: usize,
    /// Completions so far, but for those of timeouts.
    counted: u32,
    silent_count: usize,
    /// Chains that go on as soon as somebody has their process's memory.
    resumed: VecDeque<Chain>,
    /// Whose threads are to be called for them.
    called: Vec<Owner>,
    /// Chains that were begun and have not ended.
    active_count: usize,
    /// Chains that wait for those before them.
    deferred: VecDeque<Chain>,
    /// Something was completed that nobody was told of.
    is_untold: bool,
    is_disabled: bool,
}

/// A ring.
pub struct Ring {
    me: Weak<Self>,
    queues: Queues,
    flags: u32,
    state: Mutex<State>,
    registered: Mutex<Registered>,
    bell: Mutex<Option<Bell>>,
    queue: Arc<WaitQueue>,
    /// Disks with requests of this ring that were not started yet.
    disks: Mutex<Vec<Arc<BlockQueue>>>,
    /// Goes on with a chain.
    go_on: fn(&Arc<Self>, &Caller<'_>, Chain),
}

impl Ring {
    /// A ring over its queues, made with these flags. `go_on` tries a chain again.
    #[must_use]
    pub fn new(queues: Queues, flags: u32, go_on: fn(&Arc<Self>, &Caller<'_>, Chain)) -> Arc<Self> {
        let state = State { is_disabled: flags & setup::R_DISABLED != 0, ..State::default() };
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            queues,
            flags,
            state: Mutex::new(state),
            registered: Mutex::default(),
            bell: Mutex::new(None),
            queue: WaitQueue::new(),
            disks: Mutex::default(),
            go_on,
        })
    }

    /// Itself, as what has work.
    #[must_use]
    pub fn as_work(&self) -> Weak<dyn Work> {
        self.me.clone()
    }

    /// Itself, as long as it is open.
    #[must_use]
    pub fn itself(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Its queues.
    #[must_use]
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Flags that it was made with.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Told of completions.
    #[must_use]
    pub fn queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }

    /// Whether it was made so that nothing is done yet.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.state.lock().is_disabled
    }

    /// Begins to do what is submitted.
    pub fn enable(&self) {
        self.state.lock().is_disabled = false;
    }

    /// What is registered. Its lock is held for moments; what is taken out is dropped without it.
    pub fn registered(&self) -> MutexGuard<'_, Registered> {
        self.registered.lock()
    }

    /// A registered file.
    #[must_use]
    pub fn file(&self, index: u32) -> Option<Arc<Description>> {
        self.registered.lock().files.as_ref()?.get(index as usize)?.clone()
    }

    /// Names the eventfd that is told of completions, or none. `EBUSY`: there is one. `ENXIO`: there is none.
    ///
    /// # Errors
    /// See above.
    pub fn set_bell(&self, bell: Option<Arc<Description>>, is_for_later: bool) -> Result<()> {
        let mut place = self.bell.lock();
        let before = match (bell, &*place) {
            (Some(_), Some(_)) => return Err(Errno::EBUSY),
            (None, None) => return Err(Errno::ENXIO),
            (Some(description), None) => place.replace(Bell { description, is_for_later }),
            (None, Some(_)) => place.take(),
        };
        drop(place);
        drop(before);
        Ok(())
    }

    /// Whether a description is the eventfd that this ring tells, so that each completion of a poll would be another's
    /// cause.
    #[must_use]
    pub fn is_bell(&self, description: &Arc<Description>) -> bool {
        self.bell.lock().as_ref().is_some_and(|bell| Arc::ptr_eq(&bell.description, description))
    }

    /// Entries that wait to be taken, at most `wanted`.
    #[must_use]
    pub fn submitted_count(&self, wanted: u32) -> u32 {
        self.queues.submitted_count(&self.state.lock().ends).min(wanted)
    }

    /// With the ends of the queues.
    pub fn with_ends<R>(&self, act: impl FnOnce(&Queues, &mut Ends) -> R) -> R {
        act(&self.queues, &mut self.state.lock().ends)
    }

    /// Completions that the program can take now, those that had no room before with them.
    #[must_use]
    pub fn completed_count(&self) -> u32 {
        self.with_ends(|queues, ends| {
            queues.flush(ends);
            queues.completed_count(ends)
        })
    }

    /// A chain begins; `Some`: not yet, as it waits for others, or others for one before it.
    #[must_use]
    pub fn begin(&self, chain: Chain, owner: impl FnOnce() -> Owner) -> Option<Chain> {
        let mut state = self.state.lock();
        let waits = chain.first.sqe.has(sqe_flag::DRAIN) && state.active_count > 0;
        if state.deferred.is_empty() && !waits {
            // While one that drains is under way others wait for it.
            state.active_count += 1;
            if chain.first.sqe.has(sqe_flag::DRAIN) {
                state.deferred.push_front(Chain::default());
            }
            return Some(chain);
        }
        if reserve::reserve_queue(&mut state.deferred, 1).is_err() || state.deferred.len() >= WAITING_COUNT_MAX {
            state.active_count += 1;
            return Some(chain);
        }
        state.deferred.push_back(Chain { owner: Some(owner()), ..chain });
        None
    }

    /// Completes a request.
    pub fn post(&self, cqe: Cqe) {
        let mut state = self.state.lock();
        self.queues.post(&mut state.ends, cqe);
        state.counted = state.counted.wrapping_add(1);
        state.is_untold = true;
    }

    /// Tells whoever waits of what was completed; `is_later`: not where it was submitted.
    pub fn tell(&self, is_later: bool) {
        loop {
            let (called, is_untold) = {
                let mut state = self.state.lock();
                if state.counting > 0 {
                    self.count_down(&mut state);
                }
                (core::mem::take(&mut state.called), core::mem::take(&mut state.is_untold))
            };
            called.iter().for_each(Owner::call);
            if !is_untold {
                return;
            }
            self.queue.notify(Readiness::READ);
            let bell = self
                .bell
                .lock()
                .as_ref()
                .filter(|bell| is_later || !bell.is_for_later)
                .map(|bell| bell.description.clone());
            if let Some(counter) = bell.as_ref().and_then(|bell| bell.extension::<EventCounter>())
                && !self.queues.is_bell_silent()
            {
                counter.add(1);
            }
        }
    }

    /// Ends timeouts whose completions have come.
    #[cold]
    fn count_down(&self, state: &mut State) {
        // A timeout has no file.
        let is_over = |waiting: &Waiting| {
            let target = waiting.marks.lock().target;
            target.is_some_and(|target| state.counted.wrapping_sub(target) < 1 << 31)
        };
        let over: Vec<u64> =
            state.waiting.iter().filter(|(_, waiting)| is_over(waiting)).map(|(number, _)| *number).collect();
        for number in over {
            if let Some((waiting, chain)) = Self::take_from(state, number) {
                self.end_without_memory(state, chain, &waiting.owner, 0);
            }
        }
    }

    /// Completes the first request of a chain, and says what of the chain goes on. `is_failure` ends those that are
    /// linked to it.
    #[must_use]
    pub fn finish(&self, mut chain: Chain, (result, flags): (i32, u32), is_failure: bool) -> Option<Chain> {
        let file = chain.first.file.take();
        let next = self.finish_in(&mut self.state.lock(), chain, (result, flags), is_failure);
        drop(file);
        next
    }

    /// The same of a request that has no file any more.
    #[inline]
    fn finish_in(
        &self,
        state: &mut State,
        mut chain: Chain,
        (result, flags): (i32, u32),
        is_failure: bool,
    ) -> Option<Chain> {
        let sqe = chain.first.sqe;
        if is_failure || !sqe.has(sqe_flag::CQE_SKIP_SUCCESS) {
            self.queues.post(&mut state.ends, Cqe { user_data: sqe.user_data, result, flags });
            state.counted = state.counted.wrapping_add(u32::from(sqe.opcode != opcode::TIMEOUT));
        }
        state.is_untold = true;
        if chain.rest.is_empty() {
            self.note_end(state);
            return None;
        }
        if chain.is_bounded()
            && let Some(bound) = chain.rest.pop_front()
        {
            self.queues.post(&mut state.ends, cancelled(&bound));
        }
        let goes_on = !is_failure || sqe.has(sqe_flag::HARDLINK);
        match chain.rest.pop_front() {
            Some(next) if goes_on => {
                chain.first = next;
                Some(chain)
            }
            next => {
                if !sqe.has(sqe_flag::CQE_SKIP_SUCCESS) {
                    next.iter()
                        .chain(&chain.rest)
                        .for_each(|other| self.queues.post(&mut state.ends, cancelled(other)));
                }
                self.note_end(state);
                None
            }
        }
    }

    /// A chain has ended: those that waited for all before them are next.
    #[inline]
    fn note_end(&self, state: &mut State) {
        state.active_count = state.active_count.saturating_sub(1);
        if state.active_count > 0 || state.deferred.is_empty() {
            return;
        }
        // The place of the one that drained.
        if state.deferred.front().is_some_and(|chain| chain.owner.is_none()) {
            state.deferred.pop_front();
        }
        let drains = |chain: &Chain| chain.first.sqe.has(sqe_flag::DRAIN);
        while let Some(chain) = state.deferred.pop_front_if(|chain| state.active_count == 0 || !drains(chain)) {
            state.active_count += 1;
            let is_alone = drains(&chain);
            state.called.extend(chain.owner.clone());
            state.resumed.push_back(chain);
            if is_alone {
                state.deferred.push_front(Chain::default());
                return;
            }
        }
    }

    /// As [`Self::finish`], where nobody has the memory to go on with.
    fn end_without_memory(&self, state: &mut State, chain: Chain, owner: &Owner, result: i32) {
        if let Some(next) = self.finish_in(state, chain, (result, 0), result < 0) {
            state.resumed.push_back(next);
            state.called.push(owner.clone());
        }
    }

    /// Has a chain wait: its number. `Err`: what it waits for was told meanwhile, or it cannot wait; it is to be tried
    /// again, or to fail with what is said.
    ///
    /// # Errors
    /// See above.
    #[expect(clippy::result_large_err, reason = "the chain comes back as it is; there may be no memory to box it in")]
    pub fn park(
        &self,
        mut chain: Chain,
        (queue, interest): (Option<&Arc<WaitQueue>>, Readiness),
        told_count: u64,
        (owner, marks): (Owner, Marks),
    ) -> core::result::Result<u64, (Chain, Option<Errno>)> {
        let is_silent = chain.first.file.as_ref().is_some_and(|file| !file.announces());
        chain.owner = Some(owner.clone());
        let waiting = {
            let mut state = self.state.lock();
            let count = state.waiting.len() + 1;
            if count > WAITING_COUNT_MAX || reserve::reserve_queue(&mut state.ready, count).is_err() {
                return Err((chain, Some(Errno::ENOMEM)));
            }
            state.next_number += 1;
            let number = state.next_number;
            let waiting = Arc::new(Waiting {
                number,
                ring: self.me.clone(),
                marks: SpinMutex::new(marks),
                owner,
                chain: SpinMutex::new(Some(chain)),
                registration: SpinMutex::new(None),
                is_ready: false.into(),
                is_silent,
            });
            state.waiting.insert(number, waiting.clone());
            state.silent_count += usize::from(is_silent);
            state.counting += usize::from(marks.target.is_some());
            if let Some(deadline_ns) = marks.deadline_ns {
                state.timers.insert((deadline_ns, number));
            }
            waiting
        };
        let Some(queue) = queue else { return Ok(waiting.number) };
        let waiter: Weak<Waiting> = Arc::downgrade(&waiting);
        match queue.register_unless_told(waiter, interest, told_count) {
            Some(registration) => {
                *waiting.registration.lock() = Some(registration);
                // It may have been taken before there was a place to leave.
                if !self.state.lock().waiting.contains_key(&waiting.number) {
                    let left = waiting.registration.lock().take();
                    drop(left);
                }
                Ok(waiting.number)
            }
            // Whoever took it has ended it.
            None => self.take(waiting.number).map_or(Ok(waiting.number), |(_, chain)| Err((chain, None))),
        }
    }

    fn take_from(state: &mut State, number: u64) -> Option<(Arc<Waiting>, Chain)> {
        let waiting = state.waiting.remove(&number)?;
        let marks = *waiting.marks.lock();
        if let Some(deadline_ns) = marks.deadline_ns {
            state.timers.remove(&(deadline_ns, number));
        }
        state.silent_count -= usize::from(waiting.is_silent);
        state.counting -= usize::from(marks.target.is_some());
        let chain = waiting.chain.lock().take()?;
        Some((waiting, chain))
    }

    /// Takes a chain that waits, to end it or to go on with it.
    fn take(&self, number: u64) -> Option<(Arc<Waiting>, Chain)> {
        let taken = Self::take_from(&mut self.state.lock(), number)?;
        let left = taken.0.registration.lock().take();
        drop(left);
        Some(taken)
    }

    /// Takes back a chain that waits under a number.
    #[must_use]
    pub fn take_back(&self, number: u64) -> Option<Chain> {
        self.take(number).map(|(_, chain)| chain)
    }

    /// A disk has requests of this ring that are to be started.
    pub fn note_disk(&self, queue: &Arc<BlockQueue>) {
        let mut disks = self.disks.lock();
        if !disks.iter().any(|other| Arc::ptr_eq(other, queue)) {
            disks.push(queue.clone());
        }
    }

    /// Starts what was submitted to disks.
    #[inline]
    pub fn start_disks(&self, now_ns: impl FnOnce() -> u64) {
        let disks = core::mem::take(&mut *self.disks.lock());
        if !disks.is_empty() {
            let now_ns = now_ns();
            disks.iter().for_each(|queue| queue.start(now_ns));
        }
    }

    /// Whether a disk works on a request of which `is_meant`.
    #[must_use]
    pub fn is_under_way(&self, is_meant: impl Fn(&Marks) -> bool) -> bool {
        let state = self.state.lock();
        let mut all = state.waiting.values().map(|waiting| *waiting.marks.lock());
        all.any(|marks| marks.is_at_device && is_meant(&marks))
    }

    fn list_ready(&self, number: u64) {
        self.state.lock().ready.push_back(number);
    }

    /// Lists those as ready whose files do not tell of every change.
    pub fn look(&self) {
        let silent: Vec<_> = {
            let state = self.state.lock();
            if state.silent_count == 0 {
                return;
            }
            state.waiting.values().filter(|waiting| waiting.is_silent).cloned().collect()
        };
        for waiting in silent {
            let file = waiting.chain.lock().as_ref().and_then(|chain| chain.first.file.clone());
            if file.is_some_and(|file| !file.readiness().is_empty()) {
                waiting.note_ready();
            }
        }
    }

    /// When the next timeout is due.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.state.lock().timers.first().map(|(deadline_ns, _)| *deadline_ns)
    }

    /// Numbers of the chains that wait and of which `is_meant`.
    fn find(&self, is_meant: impl Fn(&Marks) -> bool) -> Vec<u64> {
        let state = self.state.lock();
        let is_meant = |waiting: &Waiting| {
            let marks = *waiting.marks.lock();
            !marks.is_at_device && is_meant(&marks)
        };
        state.waiting.iter().filter(|(_, waiting)| is_meant(waiting)).map(|(number, _)| *number).collect()
    }

    /// Ends chains that wait, the first of which `is_meant` or all: how many.
    pub fn cancel(&self, is_meant: impl Fn(&Marks) -> bool, is_all: bool) -> u32 {
        let mut count = 0;
        for number in self.find(is_meant) {
            if let Some((waiting, mut chain)) = self.take(number) {
                let file = chain.first.file.take();
                self.end_without_memory(&mut self.state.lock(), chain, &waiting.owner, code(Errno::ECANCELED));
                drop(file);
                count += 1;
                if !is_all {
                    break;
                }
            }
        }
        count
    }

    /// Gives the timeout with that data another time: whether there is one.
    #[must_use]
    pub fn update_timeout(&self, user_data: u64, deadline_ns: u64, is_linked: bool) -> bool {
        let mut state = self.state.lock();
        let is_meant = |waiting: &&Arc<Waiting>| {
            let marks = waiting.marks.lock();
            if !is_linked {
                return marks.opcode == opcode::TIMEOUT && marks.user_data == user_data;
            }
            let chain = waiting.chain.lock();
            chain
                .as_ref()
                .and_then(|chain| chain.rest.front())
                .is_some_and(|bound| bound.sqe.opcode == opcode::LINK_TIMEOUT && bound.sqe.user_data == user_data)
        };
        let Some(waiting) = state.waiting.values().find(is_meant).cloned() else { return false };
        let mut marks = waiting.marks.lock();
        if let Some(before_ns) = marks.deadline_ns.replace(deadline_ns) {
            state.timers.remove(&(before_ns, waiting.number));
        }
        state.timers.insert((deadline_ns, waiting.number));
        true
    }

    /// With how many completions a timeout is over that begins now and waits for `count`.
    #[must_use]
    pub fn target_after(&self, count: u32) -> u32 {
        self.state.lock().counted.wrapping_add(count)
    }

    /// Adds a provided buffer to a group. `ENOMEM`.
    ///
    /// # Errors
    /// See above.
    pub fn provide(&self, group: u16, buffer: ProvidedBuffer) -> Result<()> {
        reserve::check()?;
        let mut registered = self.registered.lock();
        let buffers = registered.groups.entry(group).or_default();
        if buffers.len() >= GROUP_BUFFER_COUNT_MAX {
            return Err(Errno::ENOMEM);
        }
        reserve::reserve_queue(buffers, 1)?;
        buffers.push_back(buffer);
        Ok(())
    }

    /// Takes the first buffer of a group.
    #[must_use]
    pub fn take_buffer(&self, group: u16) -> Option<ProvidedBuffer> {
        self.registered.lock().groups.get_mut(&group)?.pop_front()
    }

    /// Puts back one that was not used.
    pub fn put_buffer_back(&self, group: u16, buffer: ProvidedBuffer) {
        self.registered.lock().groups.entry(group).or_default().push_front(buffer);
    }

    /// Removes up to `count` buffers of a group: how many, if there is such a group.
    #[must_use]
    pub fn remove_buffers(&self, group: u16, count: usize) -> Option<usize> {
        let mut registered = self.registered.lock();
        let buffers = registered.groups.get_mut(&group)?;
        let count = count.min(buffers.len());
        buffers.drain(..count);
        if buffers.is_empty() {
            registered.groups.remove(&group);
        }
        Some(count)
    }

    /// The next chain of the process that can go on.
    fn next_of(&self, process: &Process, look_count: &mut usize) -> Option<Chain> {
        loop {
            let number = {
                let mut state = self.state.lock();
                let is_own = |chain: &Chain| chain.owner.as_ref().is_none_or(|owner| owner.is(process));
                if let Some(place) = state.resumed.iter().position(is_own) {
                    return state.resumed.remove(place);
                }
                if *look_count == 0 {
                    return None;
                }
                *look_count -= 1;
                let number = state.ready.pop_front()?;
                match state.waiting.get(&number) {
                    Some(waiting) if !waiting.owner.is(process) => {
                        state.ready.push_back(number);
                        continue;
                    }
                    _ => number,
                }
            };
            if let Some((_, chain)) = self.take(number) {
                return Some(chain);
            }
        }
    }
}

/// How a request ends that was never begun.
fn cancelled(request: &Request) -> Cqe {
    let result = if request.refusal < 0 { request.refusal } else { code(Errno::ECANCELED) };
    Cqe { user_data: request.sqe.user_data, result, flags: 0 }
}

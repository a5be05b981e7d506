//! What comes to a ring from elsewhere than its submissions: changes of files, time, ends of disks' transfers and of
//! processes; and the ring as an open file. All of it may come on any processor, and none of it waits.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use exos::block::request::RequestOwner;
use exos::error::{Errno, Result};
use exos::fs::open_file::{OpenFile, SeekSupport};
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::transfer::{Destination, Source};
use exos::mem::PageSource;

use super::requests::Chain;
use super::{Ring, cancelled, code};
use crate::abi::uring::{COMPLETIONS_OFFSET, Cqe, SQES_OFFSET, opcode};
use crate::task::caller::Caller;
use crate::task::process::Process;
use crate::task::work::Work;

impl Work for Ring {
    fn run(&self, caller: &Caller<'_>) {
        let Some(me) = self.me.upgrade() else { return };
        self.look();
        // What becomes ready meanwhile is for the next time: a ring may wait for itself.
        let mut look_count = self.state.lock().ready.len();
        while let Some(chain) = self.next_of(caller.process, &mut look_count) {
            (self.go_on)(&me, caller, chain);
            if exos::preempt::unless_killed().is_err() {
                break;
            }
        }
        self.tell(true);
    }

    fn expire(&self, now_ns: u64) -> Option<u64> {
        let next_ns = loop {
            let mut state = self.state.lock();
            let (deadline_ns, number) = match state.timers.first() {
                Some(&(deadline_ns, number)) if deadline_ns <= now_ns => (deadline_ns, number),
                next => break next.map(|(deadline_ns, _)| *deadline_ns),
            };
            let Some((waiting, mut chain)) = Self::take_from(&mut state, number) else {
                state.timers.remove(&(deadline_ns, number));
                continue;
            };
            let file = chain.first.file.take();
            if chain.first.sqe.opcode == opcode::TIMEOUT {
                let is_success = chain.first.sqe.call_flags & crate::abi::uring::timeout::ETIME_SUCCESS != 0;
                let next = self.finish_in(&mut state, chain, (code(Errno::ETIME), 0), !is_success);
                if let Some(next) = next {
                    state.resumed.push_back(next);
                    state.called.push(waiting.owner.clone());
                }
            } else {
                if let Some(bound) = chain.rest.pop_front() {
                    let cqe = Cqe { user_data: bound.sqe.user_data, result: code(Errno::ETIME), flags: 0 };
                    self.queues.post(&mut state.ends, cqe);
                }
                self.end_without_memory(&mut state, chain, &waiting.owner, code(Errno::ECANCELED));
            }
            drop(state);
            let left = waiting.registration.lock().take();
            drop((left, file));
        };
        self.tell(true);
        next_ns
    }

    fn end(&self, process: &Process) {
        let own: Vec<u64> = {
            let state = self.state.lock();
            let own = state.waiting.iter().filter(|(_, waiting)| waiting.owner.is(process));
            own.map(|(number, _)| *number).collect()
        };
        for number in own {
            if let Some((_, chain)) = self.take(number) {
                // What is linked to it would go on in memory that is gone.
                let ends: Vec<Cqe> = core::iter::once(&chain.first).chain(&chain.rest).map(cancelled).collect();
                let mut state = self.state.lock();
                ends.into_iter().for_each(|cqe| self.queues.post(&mut state.ends, cqe));
                state.is_untold = true;
                self.note_end(&mut state);
            }
        }
        let is_own = |chain: &mut Chain| chain.owner.as_ref().is_some_and(|owner| owner.is(process));
        let (resumed, deferred): (Vec<_>, Vec<_>) = {
            let mut state = self.state.lock();
            let (mut resumed, mut deferred) = (Vec::new(), Vec::new());
            let mut kept = VecDeque::new();
            for mut chain in core::mem::take(&mut state.resumed) {
                if is_own(&mut chain) { resumed.push(chain) } else { kept.push_back(chain) }
            }
            state.resumed = kept;
            let mut kept = VecDeque::new();
            for mut chain in core::mem::take(&mut state.deferred) {
                if is_own(&mut chain) { deferred.push(chain) } else { kept.push_back(chain) }
            }
            state.deferred = kept;
            resumed.iter().for_each(|_| self.note_end(&mut state));
            (resumed, deferred)
        };
        drop((resumed, deferred));
        self.tell(true);
    }
}

impl RequestOwner for Ring {
    fn done(&self, number: u64, outcome: Result<()>) {
        let Some((waiting, mut chain)) = self.take(number) else { return };
        let file = chain.first.file.take();
        let result = outcome.map_or_else(code, |()| chain.first.done as i32);
        self.end_without_memory(&mut self.state.lock(), chain, &waiting.owner, result);
        drop(file);
        self.tell(true);
    }
}

impl OpenFile for Ring {
    fn read(&self, _: u64, _: &mut dyn Destination) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Accepted
    }

    fn readiness(&self) -> Readiness {
        self.look();
        let state = self.state.lock();
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, self.queues.has_completions(&state.ends));
        let [sq_count, _] = self.queues.counts();
        ready.set(Readiness::WRITE, self.queues.submitted_count(&state.ends) < sq_count);
        ready
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.queue)
    }

    fn announces(&self) -> bool {
        // What it waits for may not.
        self.state.lock().silent_count == 0
    }

    fn mapped(&self, offset_bytes: u64) -> Option<Result<Arc<dyn PageSource>>> {
        /// `IORING_OFF_MMAP_MASK`: what is below does not count.
        const REGION: u64 = 0xf800_0000;
        let [rings, sqes] = self.queues.memory();
        Some(match offset_bytes & REGION {
            0 | COMPLETIONS_OFFSET => Ok(rings.clone()),
            SQES_OFFSET => Ok(sqes.clone()),
            _ => Err(Errno::EINVAL),
        })
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

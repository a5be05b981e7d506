//! Transfers through a description: the look that most need no more than, and the attempts of one that may wait.
//!
//! Neighbours: [`super::super::step`] says what an attempt came to, the open file how it goes on; the loop around
//! attempts is the personality's. What is here is inlined there: it is the way of every read and write.

use alloc::sync::Arc;

use super::super::metadata::Now;
use super::super::open_file::SeekSupport;
use super::super::pipe::Pipe;
use super::super::step::{Attempt, Step, Transfer, TransferCaller};
use super::super::transfer::{Destination, Source, partial};
use super::super::watch::event;
use super::Description;
use crate::error::{Errno, Result};
use crate::task::schedule::Task;

impl Description {
    /// A read that needs no more than one look and no wait, as most do; `None`: it does. `zero` writes the zero bytes
    /// that every read of some files is, and answers how many it could before a fault or a signal.
    #[inline(always)]
    pub fn try_read<D: Destination>(
        &self,
        offset: Option<u64>,
        destination: impl FnOnce() -> D,
        now: impl Now,
        (wanted, zero): (usize, impl FnOnce(usize) -> usize),
    ) -> Option<Result<usize>> {
        if !self.nature.is_plain {
            return None;
        }
        Some(match offset {
            None if self.nature.reads_zeros => self.read_zeros(wanted, zero),
            None => self.read(&mut destination(), now),
            Some(offset) => self.read_at(offset, &mut destination(), now),
        })
    }

    /// Reads by a task that sleeps where there is nothing, if that can be had without more ado.
    #[inline(always)]
    pub fn sleeping_reader(&self) -> Option<SleepingReader<'_>> {
        let pipe = self.nature.pipe.as_deref().filter(|_| self.request.read && !self.is_non_blocking())?;
        Some(SleepingReader { description: self, pipe })
    }

    /// A write that needs no more than one look. `None`: nothing has been written, it is to be done in steps.
    #[inline(always)]
    pub fn try_write<S: Source>(
        &self,
        offset: Option<u64>,
        source: impl FnOnce() -> S,
        now: impl Now,
    ) -> Option<Result<usize>> {
        if self.nature.is_plain {
            return Some(match offset {
                None => self.write(&mut source(), now),
                Some(offset) => self.write_at(offset, &mut source(), now),
            });
        }
        if offset.is_some() || !self.request.write {
            return None;
        }
        if let Some(pipe) = &self.nature.pipe {
            return pipe.write_nofault(&mut source()).map(|outcome| self.told(event::MODIFY, outcome));
        }
        let outcome = self.file.as_ref()?.try_write(&mut source())?;
        Some(self.told(event::MODIFY, outcome))
    }

    /// An attempt of a read that may wait, from the offset on or from `offset`.
    #[inline(always)]
    pub fn read_step(
        &self,
        offset: Option<u64>,
        destination: &mut dyn Destination,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
        now: impl Now,
    ) -> Step {
        match (&self.file, offset) {
            (_, Some(offset)) => Step::of(self.read_at(offset, destination, now)),
            (Some(file), None) if self.request.read && self.nature.seek_support != SeekSupport::Offsets => {
                let step = file.read_step(destination, transfer, caller);
                self.told_step(event::ACCESS, step)
            }
            _ => Step::of(self.read(destination, now)),
        }
    }

    /// An attempt of a write that may wait.
    #[inline(always)]
    pub fn write_step(
        &self,
        offset: Option<u64>,
        source: &mut dyn Source,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
        now: impl Now,
    ) -> Step {
        match (&self.file, offset) {
            (_, Some(offset)) => Step::of(self.write_at(offset, source, now)),
            (Some(file), None) if self.request.write && self.nature.seek_support != SeekSupport::Offsets => {
                let step = file.write_step(source, transfer, caller);
                self.told_step(event::MODIFY, step)
            }
            _ => Step::of(self.write(source, now)),
        }
    }

    #[inline(always)]
    fn told_step(&self, mask: u32, step: Step) -> Step {
        if let Step::Done(1..) | Step::Again = step {
            let _ = self.told(mask, Ok(1));
        }
        step
    }

    #[inline]
    fn read_zeros(&self, wanted: usize, zero: impl FnOnce(usize) -> usize) -> Result<usize> {
        self.check_readable()?;
        let done = zero(wanted);
        self.told(event::ACCESS, if done < wanted { partial(done, Errno::EFAULT) } else { Ok(done) })
    }
}

/// What [`Description::sleeping_reader`] gives.
pub struct SleepingReader<'a> {
    description: &'a Description,
    pipe: &'a Pipe,
}

impl SleepingReader<'_> {
    /// A read by `task`.
    #[inline(always)]
    pub fn read(&self, destination: &mut impl Destination, task: &Arc<Task>) -> Attempt {
        let outcome = self.pipe.read_or_sleep(destination, task);
        if let Attempt::Done(done) = outcome {
            let _ = self.description.told(event::ACCESS, Ok(done));
        }
        outcome
    }

    /// After [`Attempt::Asleep`]: `task` comes again no more.
    pub fn leave(&self, task: &Arc<Task>) {
        self.pipe.leave(task);
    }
}

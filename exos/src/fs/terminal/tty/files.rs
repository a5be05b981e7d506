//! The two sides of a terminal as open files.
//!
//! Neighbours: [`super`], the terminal and what it does; [`super::super::table`], from which a terminal goes with its
//! master side.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::{Side, SlaveFile, Tty};
use crate::error::{Errno, Result};
use crate::fs::open_file::OpenFile;
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::step::{Step, Transfer, TransferCaller};
use crate::fs::terminal::job_control::Verdict;
use crate::fs::terminal::modes::Terminal;
use crate::fs::terminal::table::Terminals;
use crate::fs::transfer::{Destination, Source, partial};
use crate::preempt;

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 512;
/// `VTIME`'s unit.
const DECISECOND_NS: u64 = 100_000_000;
/// What a verdict makes of an attempt, unless that may go on.
fn step_of(verdict: Verdict) -> Option<Step> {
    match verdict {
        Verdict::Proceed => None,
        Verdict::Refused => Some(Step::Failed(Errno::EIO)),
        Verdict::Stopped => Some(Step::Stopped),
    }
}

impl OpenFile for SlaveFile {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        if destination.remaining() == 0 || self.is_hung_up() {
            return Ok(0);
        }
        self.tty.pump();
        let mut bounce = [0; CHUNK_BYTES];
        let mut done = 0;
        loop {
            let room = destination.remaining().min(CHUNK_BYTES);
            let (count, is_end) = {
                let mut discipline = self.tty.discipline.lock();
                if room == 0 || !discipline.is_readable(1) {
                    break;
                }
                discipline.read(&mut bounce[..room])
            };
            // As on Linux, what could not be delivered is lost.
            let copied = destination.put(&bounce[..count]);
            done += copied;
            if copied < count {
                return partial(done, Errno::EFAULT);
            }
            if is_end {
                self.tty.master_queue.notify(Readiness::WRITE);
                return Ok(done);
            }
        }
        if done == 0 && !self.tty.has_ended() {
            return Err(Errno::EAGAIN);
        }
        self.tty.master_queue.notify(Readiness::WRITE);
        Ok(done)
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        if self.is_hung_up() {
            return Err(Errno::EIO);
        }
        let mut done = 0;
        let mut bounce = [0; CHUNK_BYTES];
        while source.remaining() > 0 {
            // Bytes that were taken from the program must find room, so few are taken at a time.
            let wanted = {
                let discipline = self.tty.discipline.lock();
                if discipline.has_output_room() { discipline.output_room().min(source.remaining()) } else { 0 }
            };
            let wanted = wanted.min(CHUNK_BYTES);
            if wanted == 0 {
                break;
            }
            let taken = source.take(&mut bounce[..wanted]);
            {
                let mut discipline = self.tty.discipline.lock();
                bounce[..taken].iter().for_each(|byte| discipline.write(*byte));
            }
            done += taken;
            self.tty.pump();
            preempt::offer();
            if taken < wanted {
                self.tty.master_queue.notify(Readiness::READ);
                return partial(done, Errno::EFAULT);
            }
        }
        if done == 0 && source.remaining() > 0 {
            return Err(Errno::EAGAIN);
        }
        self.tty.master_queue.notify(Readiness::READ);
        Ok(done)
    }

    fn read_step(
        &self,
        destination: &mut dyn Destination,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> Step {
        match transfer.ended_by {
            None => {}
            Some(Errno::EAGAIN) => return Step::Done(transfer.done),
            Some(_) => return Step::Wait,
        }
        if let Some(step) = step_of(self.tty.judge_reader(&caller.terminal_caller())) {
            return step;
        }
        transfer.interest = Readiness::all();
        let modes = self.tty.modes();
        let (minimum, time_ns) = match modes.is_canonical() {
            true => (1, 0),
            false => (usize::from(modes.minimum()), u64::from(modes.time_ds()) * DECISECOND_NS),
        };
        match self.read(0, destination) {
            Ok(count) => {
                let is_all = count == 0 || transfer.done + count >= minimum || destination.remaining() == 0;
                if time_ns > 0 {
                    transfer.deadline_ns = Some(caller.now_ns() + time_ns);
                }
                transfer.moved(count, is_all || modes.is_canonical())
            }
            Err(Errno::EAGAIN) if minimum == 0 && time_ns == 0 => Step::Done(transfer.done),
            Err(Errno::EAGAIN) => {
                let now_ns = caller.now_ns();
                if minimum == 0 {
                    transfer.deadline_ns.get_or_insert(now_ns + time_ns);
                }
                let is_over = transfer.deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
                if is_over { Step::Done(transfer.done) } else { Step::Wait }
            }
            Err(error) => Step::Failed(error),
        }
    }

    fn write_step(&self, source: &mut dyn Source, transfer: &mut Transfer, caller: &dyn TransferCaller) -> Step {
        if let Some(step) = step_of(self.tty.judge_writer(&caller.terminal_caller())) {
            return step;
        }
        match self.write(0, source) {
            Ok(count) => transfer.moved(count, count == 0 || source.remaining() == 0),
            failed => Step::of(failed),
        }
    }

    fn readiness(&self) -> Readiness {
        if self.is_hung_up() {
            return Readiness::ALWAYS | Readiness::HANG_UP | Readiness::ERROR;
        }
        self.tty.pump();
        let discipline = self.tty.discipline.lock();
        let modes = discipline.modes();
        let minimum = if modes.time_ds() == 0 { usize::from(modes.minimum()) } else { 1 };
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, discipline.is_readable(minimum) || self.tty.has_ended());
        ready.set(Readiness::WRITE, discipline.has_output_room());
        ready
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.tty.slave_queue)
    }

    fn writes_all(&self) -> bool {
        true
    }

    fn terminal(&self) -> Option<&dyn Terminal> {
        Some(&*self.tty)
    }

    fn terminal_side(&self) -> Option<Side<'_>> {
        Some(Side::Slave(self))
    }

    fn readable_byte_count(&self) -> Option<usize> {
        self.tty.pump();
        Some(self.tty.discipline.lock().readable_bytes())
    }
}

/// The open master side. The terminal goes with it.
pub struct MasterFile {
    tty: Arc<Tty>,
    table: Arc<Terminals>,
}

impl MasterFile {
    pub(in crate::fs::terminal) fn new(tty: Arc<Tty>, table: Arc<Terminals>) -> Arc<Self> {
        Arc::new(Self { tty, table })
    }

    /// Puts the status that packet mode tells first; `None`: there is none, or no packets.
    fn take_status(&self) -> Option<u8> {
        let mut packet = self.tty.packet.lock();
        packet.as_mut().map(core::mem::take).filter(|status| *status != 0)
    }
}

impl Drop for MasterFile {
    fn drop(&mut self) {
        self.tty.is_master_gone.store(true, Ordering::Relaxed);
        self.table.remove(self.tty.index);
        self.tty.hang_up(true);
    }
}

impl OpenFile for MasterFile {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        if destination.remaining() == 0 {
            return Ok(0);
        }
        if let Some(status) = self.take_status() {
            return if destination.put(&[status]) == 1 { Ok(1) } else { Err(Errno::EFAULT) };
        }
        if self.tty.pending_output() == 0 {
            return Err(if self.tty.has_lost_slaves() { Errno::EIO } else { Errno::EAGAIN });
        }
        let mut done = 0;
        if self.tty.has_packets() {
            // A packet of data begins with a zero.
            done += destination.put(&[0]);
        }
        let mut bounce = [0; CHUNK_BYTES];
        loop {
            let room = destination.remaining().min(CHUNK_BYTES);
            let count = self.tty.take_output(&mut bounce[..room]);
            if count == 0 {
                break;
            }
            let copied = destination.put(&bounce[..count]);
            done += copied;
            if copied < count {
                self.tty.untake_output(&bounce[copied..count]);
                return partial(done, Errno::EFAULT);
            }
            preempt::offer();
        }
        self.tty.tell_room();
        Ok(done)
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        let mut done = 0;
        let mut bounce = [0; CHUNK_BYTES];
        while source.remaining() > 0 {
            let wanted = source.remaining().min(CHUNK_BYTES).min(self.tty.input_room());
            if wanted == 0 {
                break;
            }
            let taken = source.take(&mut bounce[..wanted]);
            // Input that a line's end makes room for is still there: room only grows while nobody else types.
            done += self.tty.type_in(&bounce[..taken]);
            preempt::offer();
            if taken < wanted {
                return partial(done, Errno::EFAULT);
            }
        }
        if done == 0 && source.remaining() > 0 { Err(Errno::EAGAIN) } else { Ok(done) }
    }

    fn readiness(&self) -> Readiness {
        let has_status = self.tty.packet.lock().is_some_and(|status| status != 0);
        let is_lost = self.tty.has_lost_slaves();
        let discipline = self.tty.discipline.lock();
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, discipline.pending_output() > 0 || has_status);
        ready.set(Readiness::PRIORITY, has_status);
        ready.set(Readiness::WRITE, discipline.input_room() > 0);
        ready.set(Readiness::HANG_UP, is_lost);
        ready
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.tty.master_queue)
    }

    fn writes_all(&self) -> bool {
        true
    }

    fn terminal(&self) -> Option<&dyn Terminal> {
        Some(&*self.tty)
    }

    fn terminal_side(&self) -> Option<Side<'_>> {
        Some(Side::Master(&self.tty))
    }

    fn readable_byte_count(&self) -> Option<usize> {
        Some(self.tty.pending_output())
    }
}

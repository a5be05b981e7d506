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
use crate::fs::terminal::modes::Terminal;
use crate::fs::terminal::table::Terminals;
use crate::fs::transfer::{Destination, Source, partial};
use crate::preempt;

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 512;
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

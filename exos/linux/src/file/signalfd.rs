//! signalfd(2): pending signals that are read instead of handled.
//!
//! It shows its reader's own signals, as on Linux: those of the thread that reads, and of its process. Signals do not
//! announce themselves here; a look finds what is pending, and each look tells waiters about signals that were not
//! there at the look before.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;

use exos::error::{Errno, Result};
use exos::fs::open_file::{OpenFile, SeekSupport};
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::transfer::{Destination, Source};
use exos::sync::Mutex;
use exos::task::signal::{Signal, SignalInfo, SignalPayload, SignalSet};

use crate::abi::bytes::Encoder;
use crate::task::process::{Process, Thread};
use crate::task::system::System;
use crate::task::timers::complete_notice;

/// Bytes of `struct signalfd_siginfo`.
pub const INFO_BYTES: usize = 128;

/// Signals as a file.
pub struct SignalFile {
    system: Weak<System>,
    mask: Mutex<SignalSet>,
    /// What was pending at the last look.
    seen: Mutex<SignalSet>,
    queue: Arc<WaitQueue>,
}

impl SignalFile {
    /// The signals of `mask`.
    #[must_use]
    pub fn new(system: &Arc<System>, mask: SignalSet) -> Arc<Self> {
        Arc::new(Self {
            system: Arc::downgrade(system),
            mask: Mutex::new(mask),
            seen: Mutex::default(),
            queue: WaitQueue::new(),
        })
    }

    /// Changes which signals.
    pub fn set_mask(&self, mask: SignalSet) {
        *self.mask.lock() = mask;
    }

    /// The process and thread that ask.
    fn asker(&self) -> Option<(Arc<Process>, Arc<Thread>)> {
        let system = self.system.upgrade()?;
        let (pid, tid) = system.listing.current_numbers();
        let process = system.processes.get(pid)?;
        let thread = process.thread(tid)?;
        Some((process, thread))
    }

    fn take(&self) -> Option<(Signal, SignalInfo)> {
        let (process, thread) = self.asker()?;
        let mask = *self.mask.lock();
        let taken = {
            let mut own = thread.signals.lock();
            let mut shared = process.signals.lock();
            own.pending.take(mask).or_else(|| shared.pending.take(mask))
        };
        let (signal, mut info) = taken?;
        complete_notice(&*self.system.upgrade()?, &process, &mut info);
        Some((signal, info))
    }

    fn pending(&self) -> SignalSet {
        let Some((process, thread)) = self.asker() else { return SignalSet::default() };
        let mask = *self.mask.lock();
        let own = thread.signals.lock();
        let shared = process.signals.lock();
        SignalSet(own.pending.set().union(shared.pending.set()).0 & mask.0)
    }
}

/// `struct signalfd_siginfo`.
#[must_use]
pub fn encode_info(signal: Signal, info: &SignalInfo) -> Vec<u8> {
    let (mut pid, mut uid, mut timer, mut overrun, mut status) = (0, 0, 0, 0, 0);
    let (mut value, mut address) = (0, 0);
    let (mut file, mut events) = (0, 0);
    match info.payload {
        SignalPayload::None => {}
        SignalPayload::Sender { pid: sender, uid: user, value: word } => {
            (pid, uid, value) = (sender, user, word);
        }
        SignalPayload::Fault { address: place } => address = place,
        SignalPayload::Child { pid: child, uid: user, status: word } => {
            (pid, uid, status) = (child, user, word);
        }
        SignalPayload::File { band, descriptor } => (events, file) = (band, descriptor),
        SignalPayload::Timer { id, overrun: missed, value: word } => {
            (timer, overrun, value) = (id, missed, word);
        }
    }
    Encoder::new()
        .u32(u32::from(signal.number()))
        .i32(info.errno)
        .i32(info.code)
        .u32(pid)
        .u32(uid)
        .i32(file)
        .i32(timer)
        .u32(events)
        .i32(overrun)
        .u32(0)
        .i32(status)
        .u32(value as u32)
        .u64(value)
        .u64(0)
        .u64(0)
        .u64(address)
        .zero_to(INFO_BYTES)
        .finish()
}

impl OpenFile for SignalFile {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        if destination.remaining() < INFO_BYTES {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        while destination.remaining() >= INFO_BYTES
            && let Some((signal, info)) = self.take()
        {
            // As on Linux, a signal that could not be delivered is lost.
            if destination.put(&encode_info(signal, &info)) < INFO_BYTES {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
            done += INFO_BYTES;
        }
        if done == 0 { Err(Errno::EAGAIN) } else { Ok(done) }
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Accepted
    }

    fn readiness(&self) -> Readiness {
        let pending = self.pending();
        let before = core::mem::replace(&mut *self.seen.lock(), pending);
        if !pending.without(before).is_empty() {
            self.queue.notify(Readiness::READ);
        }
        if pending.is_empty() { Readiness::empty() } else { Readiness::READ }
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.queue)
    }

    fn announces(&self) -> bool {
        false
    }

    fn reads_records(&self) -> bool {
        true
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

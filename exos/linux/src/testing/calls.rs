//! System calls as the table does them, of a program whose memory is one array.
//!
//! What happens while a call waits is put into a queue beforehand with [`World::during_wait`]; a call that waits for
//! longer than that fails the test instead of hanging it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::FrameNumber;
use aegis_abi::upcall::UpcallFrame;
use aegis_link::config::Config;
use exos::error::{Errno, Result};
use exos::fake::FakeMachine;
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::stream::Stream;
use exos::fs::transfer::{Destination, Source};
use exos::platform::FrameBytes;
use exos::sync::Mutex;
use syscalls::Sysno;

use crate::abi::user_memory::UserMemory;
use crate::call::context::Context;
use crate::host::boot::{Ground, Pod, boot};
use crate::task::caller::{Caller, Restart};
use crate::testing::platform::{FakePlatform, ground};

/// Where the program's memory begins.
pub(crate) const MEMORY_BASE: u64 = 0x10_0000;
/// How much of it there is; what is around it faults.
pub(crate) const MEMORY_BYTES: usize = 1 << 20;
/// An address that faults.
pub(crate) const NOWHERE: u64 = 0x4000;
/// Time at the start of every test, since the machine's start.
pub(crate) const START_NS: u64 = 5_000_000_000;
/// Realtime when the machine started.
pub(crate) const REALTIME_S: u64 = 1_700_000_000;
/// `AT_FDCWD` as a program passes it.
pub(crate) const HERE: u64 = -100i64 as u64;

/// The program's memory.
pub(crate) struct FakeMemory {
    bytes: Mutex<Vec<u8>>,
    next: Mutex<u64>,
}

impl FakeMemory {
    fn range(&self, address: u64, length: usize) -> Result<core::ops::Range<usize>> {
        let start = address.checked_sub(MEMORY_BASE).ok_or(Errno::EFAULT)? as usize;
        if start >= MEMORY_BYTES && length > 0 {
            return Err(Errno::EFAULT);
        }
        Ok(start.min(MEMORY_BYTES)..(start + length).min(MEMORY_BYTES))
    }
}

impl UserMemory for FakeMemory {
    fn copy_in(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let range = self.range(address, into.len())?;
        let count = range.len();
        into[..count].copy_from_slice(&self.bytes.lock()[range]);
        Ok(count)
    }

    fn copy_out(&self, address: u64, from: &[u8]) -> Result<usize> {
        if from.is_empty() {
            return Ok(0);
        }
        let range = self.range(address, from.len())?;
        let count = range.len();
        self.bytes.lock()[range].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn copy_in_nofault(&self, address: u64, into: &mut [u8]) -> usize {
        into.len() - self.copy_in(address, into).unwrap_or(0)
    }

    fn copy_out_nofault(&self, address: u64, from: &[u8]) -> usize {
        from.len() - self.copy_out(address, from).unwrap_or(0)
    }

    fn copy_frame_out_nofault(
        &self,
        address: u64,
        frames: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        length: usize,
    ) -> usize {
        self.copy_frame_out(address, frames, frame, offset, length).unwrap_or(0)
    }

    fn copy_frame_in_nofault(
        &self,
        address: u64,
        frames: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        length: usize,
    ) -> usize {
        let mut bytes = alloc::vec![0; length];
        let count = self.copy_in(address, &mut bytes).unwrap_or(0);
        frames.write(frame, offset, &bytes[..count]);
        count
    }

    /// The test's processor has no state of a program's.
    fn save_vector(&self, _: u64, _: (u64, usize)) -> Result<()> {
        Ok(())
    }

    fn load_vector(&self, _: u64, _: (u64, usize)) -> Result<()> {
        Ok(())
    }
}

/// Standard input, output or error.
#[derive(Default)]
pub(crate) struct FakeStream {
    /// What can be read, or was written.
    pub(crate) bytes: Mutex<VecDeque<u8>>,
    queue: Arc<WaitQueue>,
}

impl Stream for FakeStream {
    fn read(&self, destination: &mut dyn Destination) -> Result<usize> {
        let bytes: Vec<u8> = self.bytes.lock().drain(..).collect();
        match destination.put(&bytes) {
            0 => Err(Errno::EAGAIN),
            count => Ok(count),
        }
    }

    fn write(&self, source: &mut dyn Source) -> Result<usize> {
        let mut bytes = alloc::vec![0; source.remaining()];
        let count = source.take(&mut bytes);
        self.bytes.lock().extend(&bytes[..count]);
        Ok(count)
    }

    fn readiness(&self) -> Readiness {
        let is_empty = self.bytes.lock().is_empty();
        if is_empty { Readiness::WRITE } else { Readiness::ALWAYS }
    }

    fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }
}

/// A pod with one process, and the parts of the fake machine.
pub(crate) struct World {
    pub(crate) pod: Pod,
    pub(crate) machine: Arc<FakeMachine>,
    pub(crate) platform: Arc<FakePlatform>,
    pub(crate) memory: Arc<FakeMemory>,
    pub(crate) streams: [Arc<FakeStream>; 3],
    /// What the last call said about starting again.
    pub(crate) restart: Mutex<Restart>,
}

impl World {
    /// Root in an empty pod; 0, 1 and 2 are pipes.
    pub(crate) fn new() -> Self {
        Self::with_config(Config::default())
    }

    /// With that configuration; the clock is set all the same.
    pub(crate) fn with_config(mut config: Config) -> Self {
        config.realtime_start_ns = REALTIME_S * 1_000_000_000;
        let machine = FakeMachine::new();
        machine.set_now_ns(START_NS);
        let platform = Arc::new(FakePlatform::new(machine.clone()));
        let streams: [Arc<FakeStream>; 3] = Default::default();
        let ground = Ground {
            streams: streams.clone().map(|stream| stream as Arc<dyn Stream>),
            ..ground(machine.clone(), platform.clone(), 32 << 20)
        };
        let pod = boot(ground, &config).unwrap_or_else(|error| panic!("boot: {error}"));
        let bytes = Mutex::new(alloc::vec![0; MEMORY_BYTES]);
        let memory = Arc::new(FakeMemory { bytes, next: Mutex::new(MEMORY_BASE) });
        Self { pod, machine, platform, memory, streams, restart: Mutex::default() }
    }

    /// The program's thread.
    pub(crate) fn caller(&self) -> Caller<'_> {
        let Pod { system, process, thread } = &self.pod;
        Caller { system, process, thread, memory: &*self.memory }
    }

    /// Does a system call.
    pub(crate) fn call<const N: usize>(&self, number: Sysno, arguments: [u64; N]) -> Result<u64> {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&arguments);
        let mut frame = UpcallFrame::default();
        let caller = self.caller();
        let mut context = Context::new(&caller, &mut frame);
        let entry = crate::entry::table::entry(number as u64).unwrap_or_else(|| panic!("{number} is not in the table"));
        let result = (entry.handler)(&mut context, all);
        *self.restart.lock() = context.restart;
        result
    }

    /// What is to happen the next time that a call waits (in order, one each time).
    pub(crate) fn during_wait(&self, event: impl FnOnce() + Send + 'static) {
        self.platform.during_wait(event);
    }

    /// The deadlines of all waits so far.
    pub(crate) fn waits(&self) -> Vec<Option<u64>> {
        self.platform.waits()
    }

    /// Time since the machine's start.
    pub(crate) fn machine_now(&self) -> u64 {
        exos::platform::Kernel::now_ns(&*self.machine)
    }

    /// Memory of the program's with these bytes in it.
    pub(crate) fn put(&self, bytes: &[u8]) -> u64 {
        let address = self.room(bytes.len());
        assert_eq!(self.memory.copy_out(address, bytes), Ok(bytes.len()));
        address
    }

    /// Zeroed memory of the program's.
    pub(crate) fn room(&self, length: usize) -> u64 {
        let mut next = self.memory.next.lock();
        let address = *next;
        *next = (address + length as u64).next_multiple_of(16);
        assert!(*next <= MEMORY_BASE + MEMORY_BYTES as u64, "the test needs more memory");
        address
    }

    /// A string of the program's.
    pub(crate) fn path(&self, text: &str) -> u64 {
        self.put(&[text.as_bytes(), b"\0"].concat())
    }

    /// What is in the program's memory.
    pub(crate) fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = alloc::vec![0; length];
        assert_eq!(self.memory.copy_in(address, &mut bytes), Ok(length));
        bytes
    }

    /// Opens or creates a file: flags as in `open`, mode 0644.
    pub(crate) fn open(&self, path: &str, flags: u64) -> Result<u64> {
        self.call(Sysno::open, [self.path(path), flags, 0o644])
    }

    /// Writes all bytes.
    pub(crate) fn write(&self, descriptor: u64, bytes: &[u8]) -> Result<u64> {
        self.call(Sysno::write, [descriptor, self.put(bytes), bytes.len() as u64])
    }

    /// Reads up to `length` bytes.
    pub(crate) fn read(&self, descriptor: u64, length: usize) -> Result<Vec<u8>> {
        let buffer = self.room(length);
        let count = self.call(Sysno::read, [descriptor, buffer, length as u64])?;
        Ok(self.get(buffer, count as usize))
    }
}

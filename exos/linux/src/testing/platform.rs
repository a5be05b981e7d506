//! What a pod stands on in tests: the fake machine of exos, and a processor whose waits are scripted and whose
//! registers are tables.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::boot::SystemPage;
use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::fake::FakeMachine;
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::stream::Stream;
use exos::fs::transfer::{Destination, Source};
use exos::mem::FramePool;
use exos::sync::Mutex;
use exos::task::schedule::{NoProcessors, Scheduler};

use crate::host::boot::Ground;
use crate::task::memory::Space;
use crate::task::process::{Process, Thread};
use crate::task::system::{Platform, ThreadStart};

/// One tick of the clock is a nanosecond.
pub(crate) const CLOCK: SystemPage = SystemPage {
    clock_base_ns: 0,
    clock_base_tsc: 0,
    clock_multiplier: 1,
    clock_shift: 0,
    processor_count: 1,
    tsc_hz: 1_000_000_000,
    vector_state_mask: 7,
    slice_ns: 10_000_000,
};

type Event = Box<dyn FnOnce() + Send>;

/// A platform whose clock moves only while something waits.
pub(crate) struct FakePlatform {
    machine: Arc<FakeMachine>,
    events: Mutex<VecDeque<Event>>,
    waits: Mutex<Vec<Option<u64>>>,
    /// By leaf and subleaf.
    pub(crate) cpuid: Mutex<BTreeMap<(u32, u32), [u32; 4]>>,
    /// XCR0.
    pub(crate) vector_state: Mutex<u64>,
    /// What the thread has used.
    pub(crate) processor_time_ns: Mutex<u64>,
}

impl FakePlatform {
    /// Without AVX and with an empty CPUID.
    pub(crate) fn new(machine: Arc<FakeMachine>) -> Self {
        Self {
            machine,
            events: Mutex::default(),
            waits: Mutex::default(),
            cpuid: Mutex::default(),
            vector_state: Mutex::new(3),
            processor_time_ns: Mutex::default(),
        }
    }

    /// What is to happen the next time that a call waits (in order, one each time).
    pub(crate) fn during_wait(&self, event: impl FnOnce() + Send + 'static) {
        self.events.lock().push_back(Box::new(event));
    }

    /// The deadlines of all waits so far.
    pub(crate) fn waits(&self) -> Vec<Option<u64>> {
        self.waits.lock().clone()
    }
}

impl Platform for FakePlatform {
    fn wait(&self, deadline_ns: Option<u64>) {
        self.waits.lock().push(deadline_ns);
        let event = self.events.lock().pop_front();
        match (event, deadline_ns) {
            (Some(event), _) => event(),
            (None, Some(deadline_ns)) => self.machine.set_now_ns(deadline_ns),
            (None, None) => panic!("the call would wait for ever"),
        }
    }

    fn arm_timer(&self, _: Option<u64>) {}

    fn start_thread(&self, _: &Arc<Process>, _: &Arc<Thread>, _: &UpcallFrame, _: ThreadStart) -> Result<()> {
        Ok(())
    }

    fn enter_space(&self, _: &Arc<Space>) {}

    fn processor_number(&self) -> u32 {
        0
    }

    fn yield_now(&self) {}

    fn processor_time_ns(&self) -> u64 {
        *self.processor_time_ns.lock()
    }

    fn fs_base(&self) -> u64 {
        0
    }

    fn set_fs_base(&self, _: u64) {}

    fn vector_format(&self) -> (u64, usize) {
        let mask = *self.vector_state.lock();
        (mask, if mask & 4 == 0 { 576 } else { 832 })
    }

    fn reset_vector(&self) {}

    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        self.cpuid.lock().get(&(leaf, subleaf)).copied().unwrap_or_default()
    }

    fn page_entry(&self, _: u64) -> u64 {
        0
    }

    fn extend_kernel(&self, _: u64, _: [u64; 5]) -> exos::error::Result<u64> {
        Err(exos::error::Errno::ENOSYS)
    }

    fn trace(&self, _: &str) {}
}

/// A stream that is empty and takes nothing.
struct Silence(Arc<WaitQueue>);

impl Stream for Silence {
    fn read(&self, _: &mut dyn Destination) -> Result<usize> {
        Ok(0)
    }

    fn write(&self, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EPIPE)
    }

    fn readiness(&self) -> Readiness {
        Readiness::ALWAYS
    }

    fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.0
    }
}

/// What a pod is booted on: no root, silent streams, one processor, `memory_bytes` of memory.
pub(crate) fn ground(machine: Arc<FakeMachine>, platform: Arc<FakePlatform>, memory_bytes: u64) -> Ground {
    Ground {
        kernel: machine.clone(),
        platform,
        pool: FramePool::new(machine.clone(), machine, memory_bytes),
        scheduler: Scheduler::new(1, Arc::new(NoProcessors)),
        clock: CLOCK,
        root: None,
        streams: core::array::from_fn(|_| Arc::new(Silence(WaitQueue::new())) as Arc<dyn Stream>),
        served: Vec::new(),
        disks: Arc::default(),
    }
}

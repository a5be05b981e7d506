//! A pod on the fake machine, made as the machine makes it, for this crate's tests.

use alloc::sync::Arc;
use std::collections::BTreeMap;

use aegis_abi::boot::SystemPage;
use aegis_abi::upcall::UpcallFrame;
use aegis_image::config::Config;
use exos::error::{Errno, Result};
use exos::fake::FakeMachine;
use exos::fs::description::{Description, StatusFlags};
use exos::fs::namespace::{Access, OpenFlags, OpenHow};
use exos::fs::page::MappedFile;
use exos::fs::permission::Credentials;
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::stream::Stream;
use exos::fs::transfer::{Buffer, Destination, Source};
use exos::fs::vnode::Timestamp;
use exos::fs::walk::Caller;
use exos::mem::{FramePool, MapRequest, Placement, Protection};
use exos::sync::Mutex;
use exos::task::schedule::{NoProcessors, Scheduler};

use crate::boot::{Ground, Pod, boot};
use crate::context::{Context, Restart};
use crate::deliver::Target;
use crate::memory::Space;
use crate::process::{Process, Thread};
use crate::system::{Platform, ThreadStart};
use crate::user::UserMemory;

/// Memory of the pod.
pub(crate) const LIMIT_BYTES: u64 = 64 << 20;
/// Realtime at the machine's start.
pub(crate) const START_S: u64 = 1_700_000_000;

/// A processor whose CPUID is a table, and which has used half the time.
pub(crate) struct FakePlatform {
    /// Leaf and subleaf.
    pub(crate) cpuid: Mutex<BTreeMap<(u32, u32), [u32; 4]>>,
    /// XCR0.
    pub(crate) vector_state: Mutex<u64>,
    processor_time_ns: u64,
}

impl Platform for FakePlatform {
    fn wait(&self, _: Option<u64>) {}
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
        self.processor_time_ns
    }
    fn fs_base(&self) -> u64 {
        0
    }
    fn set_fs_base(&self, _: u64) {}
    fn vector_format(&self) -> (u64, usize) {
        (*self.vector_state.lock(), 832)
    }
    fn save_vector(&self, _: &mut [u8]) {}
    fn load_vector(&self, _: Option<&[u8]>) {}
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        self.cpuid.lock().get(&(leaf, subleaf)).copied().unwrap_or_default()
    }
    fn trace(&self, _: &str) {}
}

/// A stream that is empty and takes nothing.
struct Silence;

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
    fn wait_queue(&self) -> Arc<WaitQueue> {
        WaitQueue::new()
    }
}

/// A process's memory, resolved by its own areas.
pub(crate) struct SpaceMemory(Arc<Space>);

impl UserMemory for SpaceMemory {
    fn copy_in(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        self.0.lock().read(address, into)
    }
    fn copy_out(&self, address: u64, from: &[u8]) -> Result<usize> {
        self.0.lock().write(address, from)
    }
}

/// A pod with one process, which has no program but can be given memory and files.
pub(crate) struct World {
    pub(crate) platform: Arc<FakePlatform>,
    pub(crate) pod: Pod,
    pub(crate) memory: SpaceMemory,
    pub(crate) frame: UpcallFrame,
}

impl World {
    pub(crate) fn new() -> Self {
        let machine = FakeMachine::new();
        machine.set_now_ns(12_340_000_000);
        let pool = FramePool::new(machine.clone(), machine.clone(), LIMIT_BYTES);
        let platform = Arc::new(FakePlatform {
            cpuid: Mutex::new(BTreeMap::new()),
            vector_state: Mutex::new(7),
            processor_time_ns: 6_170_000_000,
        });
        let clock = SystemPage {
            clock_base_ns: 0,
            clock_base_tsc: 0,
            clock_multiplier: 1,
            clock_shift: 0,
            processor_count: 2,
            tsc_hz: 1_000_000_000,
            vector_state_mask: 7,
            slice_ns: 10_000_000,
        };
        let ground = Ground {
            kernel: machine,
            platform: platform.clone(),
            pool,
            scheduler: Scheduler::new(1, Arc::new(NoProcessors)),
            clock,
            root: None,
            streams: [Arc::new(Silence), Arc::new(Silence), Arc::new(Silence)],
            served: Vec::new(),
        };
        let config = Config { realtime_start_ns: START_S * 1_000_000_000, ..Config::default() };
        let pod = boot(ground, &config).unwrap();
        *pod.thread.name.lock() = b"program".to_vec();
        pod.process.image.lock().executable = b"/bin/program".to_vec();
        let memory = SpaceMemory(pod.process.space().clone());
        Self { platform, pod, memory, frame: UpcallFrame::default() }
    }

    /// A system call in progress.
    pub(crate) fn context(&mut self) -> Context<'_> {
        Context {
            system: &self.pod.system,
            process: &self.pod.process,
            thread: &self.pod.thread,
            memory: &self.memory,
            frame: &mut self.frame,
            replaces_registers: false,
            restart: Restart::Never,
        }
    }

    /// What signals are delivered to.
    pub(crate) fn target(&self) -> Target<'_> {
        let Pod { system, process, thread } = &self.pod;
        Target { system, process, thread, memory: &self.memory }
    }

    /// Opens a file of the name space as root.
    pub(crate) fn open(&self, path: &str, how: &OpenHow) -> Result<Arc<Description>> {
        let namespace = &self.pod.system.files.namespace;
        let credentials = Credentials::ROOT;
        let caller = Caller { root: namespace.root(), credentials: &credentials, umask: 0, now: Timestamp::default() };
        namespace.open(&caller, namespace.root(), path.as_bytes(), how)
    }

    /// Makes a file with contents, in the root directory so that nothing else is needed.
    pub(crate) fn create(&self, path: &str, contents: &[u8]) -> Arc<Description> {
        let how = OpenHow {
            access: Access::ReadWrite,
            flags: OpenFlags::CREATE,
            status: StatusFlags::empty(),
            permissions: 0o755,
        };
        let description = self.open(path, &how).unwrap();
        let mut source = contents;
        description.write(&mut source, Timestamp::default()).unwrap();
        description
    }

    /// The whole text of a file.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        let description = self.open(path, &OpenHow::READ)?;
        let mut all = Vec::new();
        loop {
            let mut buffer = Buffer::with_limit(4096);
            if description.read(&mut buffer, Timestamp::default())? == 0 {
                return Ok(String::from_utf8(all).unwrap());
            }
            all.extend(buffer.bytes);
        }
    }

    /// Writes to a file that is there.
    pub(crate) fn write(&self, path: &str, value: &str) -> Result<usize> {
        let how = OpenHow { access: Access::Write, ..OpenHow::READ };
        let mut source = value.as_bytes();
        self.open(path, &how)?.write(&mut source, Timestamp::default())
    }

    /// Maps zeros at an address.
    pub(crate) fn map_zeros(&self, start: u64, length: u64) {
        let rights = Protection::READ | Protection::WRITE;
        let request = MapRequest::anonymous(Placement::Fixed(start), length, rights);
        self.pod.process.space().lock().map(request).unwrap();
    }

    /// Maps a file from `offset` on, executable.
    pub(crate) fn map_code(&self, start: u64, length: u64, file: &Description, offset: u64) {
        let source = MappedFile::new(file.location().clone(), self.pod.process.files.root()).unwrap();
        let rights = Protection::READ | Protection::EXECUTE;
        let request = MapRequest::file(Placement::Fixed(start), length, rights, source, offset);
        self.pod.process.space().lock().map(request).unwrap();
    }
}

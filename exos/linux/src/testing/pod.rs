//! A pod whose process has mapped memory and files of its own, but no program.

use alloc::sync::Arc;

use aegis_abi::boot::SystemPage;
use aegis_abi::upcall::UpcallFrame;
use aegis_link::config::Config;
use exos::error::Result;
use exos::fake::FakeMachine;
use exos::fs::description::{Description, StatusFlags};
use exos::fs::metadata::Timestamp;
use exos::fs::namespace::{Access, OpenFlags, OpenHow};
use exos::fs::page::MappedFile;
use exos::fs::permission::Credentials;
use exos::fs::transfer::Buffer;
use exos::fs::walk;
use exos::mem::pinned::PinnedMemory;
use exos::mem::{MapRequest, Placement, Protection};

use crate::abi::user_memory::UserMemory;
use crate::call::context::Context;
use crate::host::boot::{Ground, Pod, boot};
use crate::task::caller::Caller;
use crate::task::memory::Space;
use crate::testing::platform::{CLOCK, FakePlatform, ground};

/// Memory of the pod.
pub(crate) const LIMIT_BYTES: u64 = 64 << 20;
/// Realtime at the machine's start.
pub(crate) const START_S: u64 = 1_700_000_000;

/// A process's memory, resolved by its own areas.
pub(crate) struct SpaceMemory(Arc<Space>);

impl UserMemory for SpaceMemory {
    fn copy_in(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        self.0.lock().read(address, into)
    }
    fn copy_out(&self, address: u64, from: &[u8]) -> Result<usize> {
        self.0.lock().write(address, from)
    }
    fn pin(&self, address: u64, length: u64, is_written: bool, memory: &mut PinnedMemory) -> Result<u64> {
        let access = if is_written { exos::mem::Access::Write } else { exos::mem::Access::Read };
        self.0.lock().pin(address, length, access, memory)
    }
    /// The test's processor has no state of a program's.
    fn save_vector(&self, _: u64, _: (u64, usize)) -> Result<()> {
        Ok(())
    }

    fn load_vector(&self, _: u64, _: (u64, usize)) -> Result<()> {
        Ok(())
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
        let platform = Arc::new(FakePlatform::new(machine.clone()));
        *platform.vector_state.lock() = 7;
        *platform.processor_time_ns.lock() = 6_170_000_000;
        let clock = SystemPage { processor_count: 2, ..CLOCK };
        let ground = Ground { clock, ..ground(machine, platform.clone(), LIMIT_BYTES) };
        let config = Config { realtime_start_ns: START_S * 1_000_000_000, ..Config::default() };
        let pod = boot(ground, &config).unwrap();
        *pod.thread.name.lock() = b"program".to_vec();
        Arc::make_mut(&mut *pod.process.image.lock()).executable = b"/bin/program".to_vec();
        let memory = SpaceMemory(pod.process.space().clone());
        Self { platform, pod, memory, frame: UpcallFrame::default() }
    }

    /// A system call in progress.
    pub(crate) fn context(&mut self) -> Context<'_> {
        let Pod { system, process, thread } = &self.pod;
        Context::new(&Caller { system, process, thread, memory: &self.memory }, &mut self.frame)
    }

    /// What signals are delivered to.
    pub(crate) fn caller(&self) -> Caller<'_> {
        let Pod { system, process, thread } = &self.pod;
        Caller { system, process, thread, memory: &self.memory }
    }

    /// Opens a file of the name space as root.
    pub(crate) fn open(&self, path: &str, how: &OpenHow) -> Result<Arc<Description>> {
        let namespace = &self.pod.system.files.namespace;
        let credentials = Credentials::ROOT;
        let caller =
            walk::Caller { root: namespace.root(), credentials: &credentials, umask: 0, now: Timestamp::default() };
        namespace.open(&caller, namespace.root(), path.as_bytes(), how)
    }

    /// Makes a file with contents, in the root directory so that nothing else is needed.
    pub(crate) fn create(&self, path: &str, contents: &[u8]) -> Arc<Description> {
        let how = OpenHow {
            access: Access::ReadWrite,
            flags: OpenFlags::CREATE,
            status: StatusFlags::empty(),
            permissions: 0o755,
            ..OpenHow::READ
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

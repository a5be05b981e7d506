//! What all processes of a pod share: the kernel, the frames, the files' name space, time, and what the user asked for.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use aegis_abi::upcall::UpcallFrame;
use exos::error::Result;
use exos::mem::{FaultCounts, FramePool, SharedState};
use exos::platform::Kernel;
use exos::rewrite::REFUSAL_COUNT;
use exos::sync::Mutex;
use exos::task::futex::FutexTable;
use exos::task::lock::LockTable;
use exos::task::schedule::{Scheduler, Task};

use crate::task::listing::Listing;
use crate::task::memory::Space;
use crate::task::process::{Process, Thread};
use crate::task::processes::Processes;

/// What `uname -r` says: a version that current C libraries accept, with our mark.
pub const RELEASE: &[u8] = b"6.1.0-aegis";
/// What `uname -v` says.
pub const VERSION: &[u8] = b"#1 SMP Aegis";

/// What the personality needs of the place it runs in, beyond `exos::platform`.
pub trait Platform: Send + Sync {
    /// Blocks the running thread until its task is woken or until `deadline_ns`; other threads run meanwhile.
    fn wait(&self, deadline_ns: Option<u64>);
    /// Takes in what has come from outside, without waiting; whether there was something.
    fn look(&self) -> bool {
        false
    }
    /// Gives a thread what it needs to run: it starts in `frame`, as soon as the scheduler picks it. `ENOMEM`.
    fn start_thread(
        &self,
        process: &Arc<Process>,
        thread: &Arc<Thread>,
        frame: &UpcallFrame,
        start: ThreadStart,
    ) -> Result<()>;
    /// Makes the running thread's memory `space` from now on.
    fn enter_space(&self, space: &Arc<Space>);
    /// What the program of a thread had in its registers when it came to exos, where it is and stays there; `None`
    /// where that is not known.
    fn program_registers(&self, _: &Thread) -> Option<UpcallFrame> {
        None
    }
    /// Arms the one timer that interrupts a running program; `None` disarms it.
    fn arm_timer(&self, deadline_ns: Option<u64>);
    /// Lets other threads of the pod go first, and other pods if there are none.
    fn yield_now(&self);
    /// Processor time that this virtual processor has used.
    fn processor_time_ns(&self) -> u64;
    /// Memory that exos uses for itself, beside what the pod may use.
    fn own_memory(&self) -> OwnMemory {
        OwnMemory::default()
    }
    /// Memory has come to its end: asks for more. True: it may have come, or is on its way; false: none will come.
    fn ask_for_memory(&self) -> bool {
        false
    }
    /// Bytes that nobody takes from the pod, and that it can have at most; `None`: what it has stays.
    fn memory_bounds(&self) -> Option<(u64, u64)> {
        None
    }
    /// Has all processors that run a program pass a point that orders their memory. `ENOMEM`.
    fn order_everywhere(&self) -> Result<()> {
        Ok(())
    }
    /// The number of the virtual processor that runs this.
    fn processor_number(&self) -> u32;
    /// The FS base of the running program.
    fn fs_base(&self) -> u64;
    /// Sets the running thread's FS base.
    fn set_fs_base(&self, base: u64);
    /// XCR0 and the bytes of vector state that go with it.
    fn vector_format(&self) -> (u64, usize);
    /// Loads the initial vector state.
    fn reset_vector(&self);
    /// CPUID of the processor: EAX EBX ECX EDX.
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4];
    /// The page-table entry of an address of the running program, 0 if there is none. Nobody changes the tables
    /// meanwhile: the caller holds the lock of the address space.
    fn page_entry(&self, address: u64) -> u64;
    /// Asks the kernel's extension to do what a program wants of it. `ENOSYS` there is none that does; `EINVAL`.
    fn extend_kernel(&self, operation: u64, words: [u64; 5]) -> Result<u64>;
    /// Has each call on this processor take the long way from now on.
    fn show_calls(&self) {}
    /// One trace line for the host (`--trace`).
    fn trace(&self, line: &str);
    /// Code of a file in the running address space, for the host's profile: start, end, offset and path.
    fn tell_code(&self, _mapping: &str) {}
}

/// Memory in use by exos itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnMemory {
    /// Bytes of exos's heap in use.
    pub heap_bytes: u64,
    /// Stacks of threads.
    pub stack_bytes: u64,
}

/// What a new thread takes over from the running one besides its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStart {
    /// The FS base; `None` for that of the running thread.
    pub fs_base: Option<u64>,
}

/// Switches of this run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Show each system call.
    pub trace: bool,
    /// Report statistics at the end.
    pub stats: bool,
    /// Tell the host what code is mapped.
    pub profile: bool,
    /// Rewrite system-call sites.
    pub rewrite: bool,
    /// The first process is what Linux's is in a container: orphans are its children.
    pub has_init: bool,
}

/// What is counted for `--stats`.
#[derive(Debug, Default)]
pub struct Counters {
    /// System calls that arrived as upcalls.
    pub syscalls_trapped: AtomicU64,
    /// Sites that trapped, each once for a process.
    pub sites_found: AtomicU64,
    /// Sites that became jumps.
    pub sites_patched: AtomicU64,
    /// Sites that keep their traps, by reason.
    pub sites_refused: [AtomicU64; REFUSAL_COUNT],
    /// Page faults that were resolved in spaces that have ended.
    pub page_faults: AtomicU64,
    /// Pages that those faults mapped.
    pub pages_mapped: AtomicU64,
    /// Pages that were copied, of those.
    pub pages_copied: AtomicU64,
    /// Signals delivered to handlers.
    pub signals: AtomicU64,
    /// How often memory came to its end.
    pub memory_ends: AtomicU64,
    /// Processes that were ended for that.
    pub ended_for_memory: AtomicU64,
    /// Looks at an end of memory, since the last that did otherwise, that found nobody to go but the first process.
    pub looks_at_first: AtomicU64,
}

/// The pod.
pub struct System {
    /// The kernel's calls.
    pub kernel: Arc<dyn Kernel>,
    /// The machine under the personality.
    pub platform: Arc<dyn Platform>,
    /// The pod's frames.
    pub pool: Arc<FramePool>,
    /// What the processes' address spaces share.
    pub shared: Arc<SharedState>,
    /// What is known of the programs that were run.
    pub images: exos::load::KnownImages,
    /// The threads' scheduler.
    pub scheduler: Arc<Scheduler>,
    /// All processes, by number.
    pub processes: Processes,
    /// Threads that wait for words of memory.
    pub futexes: FutexTable<Task>,
    /// Threads that wait for locks whose word names the holder.
    pub locks: LockTable,
    /// Objects that processes find by key or name.
    pub ipc: exos::ipc::Ipc,
    /// Memory without anything in it: what ended processes have.
    pub empty_space: Arc<Space>,
    /// The same with their threads, as `/proc` shows them.
    pub listing: Arc<Listing>,
    /// Events that contexts of asynchronous input and output have room for.
    pub async_account: Arc<crate::task::aio::Account>,
    /// The name space, its devices and what generates `/proc`.
    pub files: crate::file::files::Files,
    /// The vDSO, if the clock can be read by programs.
    pub vdso: Option<exos::load::vdso::VdsoPages>,
    /// Switches.
    pub options: Options,
    /// Each call takes the long way, so that it can be shown (`--trace`, `PTRACE_SYSCALL`).
    pub shows_calls: AtomicBool,
    /// What `--stats` shows.
    pub counters: Counters,
    /// Realtime minus monotonic time.
    pub realtime_offset_ns: AtomicI64,
    /// The time zone that was set, as `gettimeofday` tells it: minutes west and the kind of summer time. It is at its
    /// start where none was.
    pub time_zone: Mutex<Option<[u8; 8]>>,
    /// What `uname` calls the machine.
    pub hostname: Mutex<Vec<u8>>,
    /// NIS domain name.
    pub domain_name: Mutex<Vec<u8>>,
    /// Virtual processors of the pod.
    pub processor_count: u32,
    /// System calls that were missing, one bit each, so that each is named once.
    pub named_missing: Mutex<[u64; 8]>,
}

impl System {
    /// Nanoseconds since the epoch.
    #[must_use]
    pub fn realtime_ns(&self) -> u64 {
        self.realtime_at(self.kernel.now_ns())
    }

    /// The same at a monotonic time.
    #[must_use]
    #[inline]
    pub fn realtime_at(&self, now_ns: u64) -> u64 {
        now_ns.wrapping_add_signed(self.realtime_offset_ns.load(Ordering::Relaxed))
    }

    /// Counts the faults of a space that ends.
    pub fn note_faults(&self, faults: FaultCounts) {
        self.counters.page_faults.fetch_add(faults.resolved, Ordering::Relaxed);
        self.counters.pages_mapped.fetch_add(faults.pages, Ordering::Relaxed);
        self.counters.pages_copied.fetch_add(faults.copied, Ordering::Relaxed);
    }

    /// The faults of all spaces, those that have ended too.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        let counters = &self.counters;
        let [mut resolved, mut pages, mut copied] =
            [&counters.page_faults, &counters.pages_mapped, &counters.pages_copied]
                .map(|counter| counter.load(Ordering::Relaxed));
        for process in self.processes.all() {
            if !process.borrows_memory.load(Ordering::Acquire) {
                let live = process.space().lock().fault_counts();
                (resolved, pages, copied) = (resolved + live.resolved, pages + live.pages, copied + live.copied);
            }
        }
        FaultCounts { resolved, pages, copied }
    }

    /// Moves realtime, as the calls and as the vDSO tell it.
    pub fn step_realtime(&self, by_ns: i64) {
        let before_ns = self.realtime_offset_ns.fetch_add(by_ns, Ordering::Relaxed);
        if let Some(vdso) = &self.vdso {
            vdso.set_realtime_offset(before_ns.wrapping_add(by_ns).cast_unsigned());
        }
    }

    /// Bytes that the pod may use in all, and bytes that are not used.
    #[must_use]
    pub fn memory_bytes(&self) -> (u64, u64) {
        let statistics = self.pool.statistics();
        let used = statistics.held - statistics.free;
        (statistics.limit * 4096, (statistics.limit - used.min(statistics.limit)) * 4096)
    }

    /// Whether the missing call `number` is named for the first time; numbers beyond the table count as one.
    pub fn is_first_missing(&self, number: u64) -> bool {
        let mut named = self.named_missing.lock();
        let number = number.min(named.len() as u64 * 64 - 1);
        let word = &mut named[number as usize / 64];
        let bit = 1 << (number % 64);
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }
}

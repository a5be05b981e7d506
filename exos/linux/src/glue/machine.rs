//! `Platform` and `Kernel` for the machine: threads, the console and the timer, processor registers that Rust cannot
//! name.

use alloc::sync::Arc;

use aegis_abi::call::ProcessorField;
use aegis_abi::memory::BindEntry;
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_NONE};
use aegis_abi::upcall::UpcallFrame;
use aegis_abi::{CapSlot, Status};
use aegis_rt::call;
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::fmt::Arguments;
use core::sync::atomic::Ordering;
use exos::error::Errno;
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::stream::Stream;
use exos::platform::{BindFault, FrameGrant, Kernel, LogLevel};
use exos::preempt;
use exos::sync::{Mutex, Once};
use exos::task::schedule::{Choice, Task};
use exos_linux::host::ports::HostPorts;
use exos_linux::host::sessions::Sessions;
use exos_linux::host::stream::PortStream;
use exos_linux::task::memory::Space;
use exos_linux::task::process::{Process, Thread};
use exos_linux::task::system::{OwnMemory, Platform, System, ThreadStart};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::devices::HostConsole;
use super::heap::HEAP;
use super::processor::{Bells, take_bells_rung, this_number, this_processor};
use super::{disk, fiber, kernel, memory, net_card, shortage, stack, vector};

/// Bytes of trace lines that may wait for the host before the program waits for it.
const TRACE_BACKLOG_BYTES_MAX: usize = 64 * 1024;

/// The host's ports over the real console.
pub(crate) type Host = HostPorts<HostConsole>;

/// The kernel as policies see it.
pub(crate) struct MachineKernel {
    pub(crate) host: Arc<Host>,
    pub(crate) random: Mutex<ChaCha20Rng>,
}

impl Kernel for MachineKernel {
    fn allocate_frames(&self, count: u64, alignment_log2: u32) -> Result<FrameGrant, Status> {
        let taken = kernel::take_program_frames(count, alignment_log2);
        if taken.is_err() && (stack::give_free() | HEAP.give_free()) {
            return kernel::take_program_frames(count, alignment_log2);
        }
        taken
    }

    fn free_frames(&self, grant: FrameGrant) -> Result<(), Status> {
        disk::forget(grant);
        kernel::free_program_frames(grant)
    }

    fn note_pressure(&self, frame_count: u64) {
        memory::note_pressure(frame_count);
    }

    fn note_shortage(&self) {
        shortage::note_shortage();
    }

    fn frame_count_free(&self) -> Option<u64> {
        Some(kernel::free_program_frame_count())
    }

    fn frame_limit_at_most(&self) -> Option<u64> {
        memory::bounds().map(|(_, limit)| kernel::program_frames_of(limit))
    }

    fn await_frames(&self) -> bool {
        memory::await_frames()
    }

    fn frames_left(&self, grant: FrameGrant) -> u64 {
        kernel::frames_left(grant)
    }

    fn frame_limit(&self) -> Option<u64> {
        let quota = kernel::frame_quota();
        memory::note_quota(quota);
        Some(kernel::program_frames_of(quota))
    }

    fn bind(&self, space: CapSlot, entries: &[BindEntry]) -> Result<(), BindFault> {
        let is_program = |entry: &BindEntry| entry.virtual_address < aegis_abi::layout::PROGRAM_END;
        if let Some(entry_index) = entries.iter().position(|entry| !is_program(entry)) {
            return Err(BindFault { entry_index, status: Status::BadArgument });
        }
        // SAFETY: the program's half holds no Rust object.
        unsafe { kernel::bind_in_pieces(space, entries, preempt::offer) }
    }

    fn create_space(&self) -> Result<CapSlot, Status> {
        kernel::create_space()
    }

    fn destroy_space(&self, space: CapSlot) -> Result<(), Status> {
        kernel::destroy_space(space)
    }

    fn space_counts(&self) -> Option<(u64, u64)> {
        Some(kernel::space_counts())
    }

    fn keep_space(&self, space: CapSlot, table_count: u64) -> bool {
        kernel::keep_space(space, table_count)
    }

    fn now_ns(&self) -> u64 {
        kernel::now_ns()
    }

    fn random(&self, bytes: &mut [u8]) {
        self.random.lock().fill_bytes(bytes);
    }

    fn log(&self, level: LogLevel, text: Arguments<'_>) {
        let level = match level {
            LogLevel::Warning => "warn",
            LogLevel::Info => "info",
        };
        self.host.log(level, &alloc::format!("{text}"));
    }
}

/// The machine as the personality sees it.
pub(crate) struct MachinePlatform {
    pub(crate) host: Arc<Host>,
    /// How processors are told.
    pub(crate) bells: Arc<Bells>,
    /// The pod, once there is one; its first process is the receiver of the host's signals.
    pub(crate) system: Once<(Arc<System>, Arc<Process>)>,
    /// Standard input, output and error: looked at when the console says something, so that they tell their waiters.
    pub(crate) streams: [Arc<PortStream<HostConsole>>; 3],
    /// Processes that the host starts.
    pub(crate) sessions: Sessions,
    /// FaultReport whenever the console said something.
    pub(crate) console_changes: Arc<WaitQueue>,
    /// XCR0.
    pub(crate) vector_mask: u64,
    /// Bytes of an area with all of that state.
    pub(crate) vector_bytes: usize,
}

impl MachinePlatform {
    /// Takes in what the host sent and what time has brought. Called on processor 0.
    pub(crate) fn absorb(&self) {
        let have_bells_rung = take_bells_rung();
        if have_bells_rung {
            super::shares::absorb();
            super::devices::note_bells();
        } else {
            super::shares::look();
        }
        disk::absorb(have_bells_rung);
        let heard = self.host.look();
        let has_news = heard == Some(true);
        if heard.is_some() {
            for stream in &self.streams {
                stream.readiness();
            }
        }
        if has_news {
            self.console_changes.notify(Readiness::all());
        }
        let Some((system, first)) = self.system.get() else { return };
        net_card::absorb(&system.files.inet, &self.bells, have_bells_rung);
        if heard.is_some() {
            self.obey(system, first);
        }
        self.serve_sessions(system, has_news);
        if have_bells_rung && self.bells.take_timer() {
            self.check_timers(system);
        }
        exos_linux::host::events::move_terminal_bytes(first);
    }

    /// Does what the host asked for.
    fn obey(&self, system: &Arc<System>, first: &Arc<Process>) {
        while let Some(number) = self.host.take_signal() {
            exos_linux::host::events::raise_from_host(first, number);
        }
        if let Some((rows, columns)) = self.host.take_window() {
            exos_linux::host::events::resize(first, rows, columns);
        }
        if let Some(token) = self.host.take_processes_request() {
            for line in exos_linux::host::events::process_lines(system) {
                self.host.send_line(&alloc::format!("process {token} {line}"));
            }
            if let Some(traffic) = exos_linux::host::network::traffic(&system.files.inet) {
                self.host.send_line(&traffic.line(token));
            }
            self.host.send_line(&alloc::format!("processes {token} {}", system.processes.count()));
        }
    }

    /// Opens the line of sessions if the host wants it, and moves what they have to say. Nothing else runs here
    /// meanwhile: the interrupted thread may be in the way of what that would wait for.
    fn serve_sessions(&self, system: &Arc<System>, has_news: bool) {
        if let Some(token) = self.host.take_sessions_request() {
            self.sessions.open(system, token);
        }
        if self.sessions.wants(has_news) {
            let (processor, work) = (this_processor(), || self.sessions.pump(system, &*self.host));
            if processor.keeps_running() { work() } else { processor.keep_running(work) }
        }
    }

    /// The timer's bell rang: wakes sleepers, fires interval timers, arms the next.
    fn check_timers(&self, system: &System) {
        self.bells.armed_ns.store(u64::MAX, Ordering::Release);
        let now_ns = kernel::now_ns();
        system.scheduler.expire(now_ns);
        let next_ns = exos_linux::task::timers::check_all(system, now_ns);
        let others_ns = system.scheduler.next_deadline_ns().into_iter().chain(net_card::ring_ns(now_ns));
        let others_ns = others_ns.chain(disk::ring_ns());
        if let Some(deadline_ns) = next_ns.into_iter().chain(others_ns).min() {
            self.bells.arm_timer(deadline_ns);
        }
    }

    /// Waits until the console says something.
    pub(crate) fn wait_for_console(&self, is_done: impl Fn() -> bool) {
        let Some(fiber) = fiber::current() else { return };
        let waiter = Arc::<Task>::downgrade(&fiber.owner().1.task);
        let _watching = self.console_changes.register(waiter, Readiness::all());
        if !is_done() {
            self.wait(None);
        }
    }
}

impl Platform for MachinePlatform {
    fn wait(&self, deadline_ns: Option<u64>) {
        let Some((system, _)) = self.system.get() else { return };
        net_card::look(&system.files.inet, &self.bells);
        disk::look_before_wait();
        let now_ns = kernel::now_ns();
        fiber::carry_out_here(system.scheduler.block(this_number(), deadline_ns, now_ns), now_ns);
    }

    fn look(&self) -> bool {
        self.system.get().is_some_and(|(system, _)| net_card::look(&system.files.inet, &self.bells))
    }

    fn start_thread(
        &self,
        process: &Arc<Process>,
        thread: &Arc<Thread>,
        frame: &UpcallFrame,
        start: ThreadStart,
    ) -> exos::error::Result<()> {
        let (system, _) = self.system.get().ok_or(Errno::EAGAIN)?;
        fiber::start(process, thread, frame, start, system)
    }

    fn enter_space(&self, space: &Arc<Space>) {
        fiber::enter_space(space);
    }

    fn program_registers(&self, thread: &Thread) -> Option<UpcallFrame> {
        fiber::program_registers(&thread.task)
    }

    fn arm_timer(&self, deadline_ns: Option<u64>) {
        if let Some(deadline_ns) = deadline_ns {
            self.bells.arm_timer(deadline_ns);
        }
    }

    fn yield_now(&self) {
        let Some((system, _)) = self.system.get() else { return };
        let now_ns = kernel::now_ns();
        match system.scheduler.yield_turn(this_number(), now_ns) {
            Choice::Stay if this_processor().is_yield_due(now_ns) => {
                let _ = call::yield_to(SLOT_NONE);
            }
            Choice::Stay => {}
            choice => fiber::carry_out(choice, now_ns),
        }
    }

    fn processor_time_ns(&self) -> u64 {
        call::processor_read(SLOT_FIRST_PROCESSOR, ProcessorField::TimeUsedNs).unwrap_or(0)
    }

    fn own_memory(&self) -> OwnMemory {
        OwnMemory { heap_bytes: HEAP.used_bytes(), stack_bytes: stack::used_bytes() }
    }

    fn ask_for_memory(&self) -> bool {
        memory::ask()
    }

    fn memory_bounds(&self) -> Option<(u64, u64)> {
        let [guaranteed, limit] =
            memory::bounds().map(|(guaranteed, limit)| [guaranteed, limit].map(kernel::program_frames_of))?;
        Some((guaranteed * 4096, limit * 4096))
    }

    fn processor_number(&self) -> u32 {
        this_number() as u32
    }

    fn order_everywhere(&self) -> exos::error::Result<()> {
        super::stack::order_everywhere()
    }

    fn fs_base(&self) -> u64 {
        fiber::read_fs_base()
    }

    fn set_fs_base(&self, base: u64) {
        // SAFETY: the address was checked to be canonical.
        unsafe { fiber::write_fs_base(base) };
    }

    fn vector_format(&self) -> (u64, usize) {
        (self.vector_mask, self.vector_bytes)
    }

    fn reset_vector(&self) {
        vector::reset();
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        let CpuidResult { eax, ebx, ecx, edx } = cpuid(leaf, subleaf);
        [eax, ebx, ecx, edx]
    }

    fn page_entry(&self, address: u64) -> u64 {
        super::kernel::page_entry(address)
    }

    fn extend_kernel(&self, operation: u64, words: [u64; 5]) -> exos::error::Result<u64> {
        // SAFETY: what it is asked for here changes rights of pages of the program alone, and writes to such pages.
        let answer = unsafe { aegis_rt::call::extension_call(operation, words) };
        answer.map_err(|refusal| match refusal.status {
            Status::UnknownCall => Errno::ENOSYS,
            _ => Errno::EINVAL,
        })
    }

    fn show_calls(&self) {
        super::call_words::show_calls();
    }

    fn trace(&self, line: &str) {
        self.host.log("trace", line);
        while self.host.control_backlog_bytes() > TRACE_BACKLOG_BYTES_MAX {
            self.wait_for_console(|| self.host.control_backlog_bytes() <= TRACE_BACKLOG_BYTES_MAX);
        }
    }

    fn tell_code(&self, mapping: &str) {
        self.host.send_line(&alloc::format!("map {:x} {mapping}", kernel::own_space()));
    }
}

/// Bytes of vector state for what XCR0 enables: leaf 13, subleaf 0, EBX (Intel SDM vol. 1, 13.2). Asked once, as a
/// monitor answers.
pub(crate) fn vector_bytes() -> usize {
    cpuid(13, 0).ebx as usize
}

fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    __cpuid_count(leaf, subleaf)
}

//! What the core needs of the machine: physical words, time, translation caches, device backends,
//! and a way to reach other processors.
//!
//! `kernel/src` implements [`Machine`] over the real hardware, the tests over plain memory. Every
//! method is called with the kernel lock held and must return in bounded time. The core never
//! passes a frame outside the frame table to the memory methods.

use aegis_abi::call::{ExtensionCall, StopReason};
use aegis_abi::types::{FrameNumber, Status};
use aegis_abi::upcall::UpcallFrame;

use crate::State;
use crate::id::{CpuId, DeviceId, EnvironmentId, ProcessorId};
use crate::object::{DeviceDescription, Pages, Tables};

/// Why and where an environment was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Why it stopped.
    pub reason: StopReason,
    /// Exceptions: the vector.
    pub vector: u64,
    /// Exceptions: the fault address.
    pub address: u64,
    /// Instruction pointer at the stop.
    pub rip: u64,
}

impl StopReport {
    /// Still running.
    pub const RUNNING: Self = Self { reason: StopReason::Running, vector: 0, address: 0, rip: 0 };
}

/// Which processors may hold a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holders {
    /// Those that run with this root table: a page of the program's half.
    Root(FrameNumber),
    /// Those that run with any root table of this environment: a page of the library OS window.
    Environment(EnvironmentId),
}

/// Safe code that an extended kernel is linked with (ADR 0075): it drives device functions in place of an environment,
/// for those that call it. Every method is called with the kernel lock held and returns in bounded time.
pub trait Extension<M>: Sync {
    /// Whether it will drive a function. Nobody else gets at its registers then.
    fn drives(&self, device: DeviceId, description: &DeviceDescription) -> bool;
    /// What an environment asks for, in which of its spaces.
    ///
    /// # Errors
    /// The call's status.
    fn call(&self, state: &mut State<'_, M>, by: Tables, call: &ExtensionCall) -> Result<u64, Status>;
    /// A function was switched off and is about to lose memory: when this returns nothing is under way at it.
    fn stop(&self, state: &mut State<'_, M>, device: DeviceId);
    /// An interrupt of a function came, and is masked; the bell that is bound to it rings afterwards.
    fn interrupt(&self, state: &mut State<'_, M>, device: DeviceId);
    /// An exception in a space: whether the access is to be repeated, as though nothing had been.
    fn exception(&self, state: &mut State<'_, M>, by: Tables, frame: &UpcallFrame) -> bool;
}

/// The machine under the core.
pub trait Machine: 'static {
    /// What the kernel is extended by.
    fn extension(&self) -> Option<&'static dyn Extension<Self>>
    where
        Self: Sized;

    /// Reads 64-bit words of a frame from an index (0..512) on, each in one access; the frame is looked up once. How
    /// many is known when the kernel is compiled, so that they come and go without an array between.
    fn words<const COUNT: usize>(&self, frame: FrameNumber) -> impl Fn(usize) -> [u64; COUNT];
    /// Writes such words.
    fn store_words<const COUNT: usize>(&mut self, frame: FrameNumber, word_index: usize, values: [u64; COUNT]);
    /// Reads one.
    #[inline(always)]
    fn load(&self, frame: FrameNumber, word_index: usize) -> u64 {
        self.words::<1>(frame)(word_index)[0]
    }
    /// Writes one.
    #[inline(always)]
    fn store(&mut self, frame: FrameNumber, word_index: usize, value: u64) {
        self.store_words(frame, word_index, [value]);
    }
    /// The first word from an index (0..=512) on that is wanted, and where it is. Made for tables in which few are:
    /// passes over the others several at a time.
    fn find_word(&self, frame: FrameNumber, from: usize, wanted: impl Fn(u64) -> bool) -> Option<(usize, u64)>;
    /// Replaces `old` by `new` atomically; if the word holds something else (the processor set
    /// accessed or dirty bits), returns it.
    fn compare_exchange(&mut self, frame: FrameNumber, word_index: usize, old: u64, new: u64) -> Result<(), u64>;
    /// Fills a frame with zeros.
    fn zero_frame(&mut self, frame: FrameNumber);
    /// Writes the initial vector state (what `xrstor` of a new virtual processor loads) to a zeroed
    /// frame.
    fn vector_init(&mut self, frame: FrameNumber);
    /// A virtual processor was made: where its pages and its vector state are until there is another of its name.
    fn context_made(&mut self, processor: ProcessorId, pages: &Pages, vector_state: FrameNumber);
    /// Has the GS base of user mode that runs here be this.
    fn set_gs_base(&mut self, address: u64);
    /// Nanoseconds since the kernel's start; never decreases.
    fn now_ns(&self) -> u64;

    /// Removes the translations of consecutive pages from the caches of all their holders.
    fn flush_pages(&mut self, holders: Holders, virtual_address: u64, page_count: u64);
    /// Removes all user translations from the caches of the holders.
    fn flush_all(&mut self, holders: Holders);
    /// This processor goes on with another root table of the environment that it runs for.
    fn enter_root(&mut self, root: FrameNumber);
    /// Makes another processor enter the kernel soon (its glue then calls `State::on_kick`).
    fn kick(&mut self, cpu: CpuId);

    /// Reads 1, 2 or 4 bytes from a port.
    fn port_read(&mut self, port: u16, width_bytes: u32) -> u32;
    /// Writes 1, 2 or 4 bytes to a port.
    fn port_write(&mut self, port: u16, width_bytes: u32, value: u32);
    /// Reads the 32-bit word at byte `offset` (0..256, multiple of 4) of a PCI function's
    /// configuration space.
    fn config_read(&mut self, location: u32, offset: u32) -> u32;
    /// Lets a device function reach memory and decode its regions, or stops it; returns when it has
    /// stopped.
    fn device_enable(&mut self, device: DeviceId, enable: bool);
    /// Brings a device function to rest: it reaches no memory, raises no interrupt, has nothing under way, and is reset
    /// where it can be. False while it takes its time: call again.
    fn device_reset(&mut self, device: DeviceId) -> bool;
    /// Sends an interrupt of a device function, masked, to a physical processor; false if there is none of that name.
    fn interrupt_route(&mut self, device: DeviceId, interrupt: usize, cpu: CpuId) -> bool;
    /// The next interrupt of a device function that raises `source` and is not masked, and the source to ask for after
    /// that, which may be none.
    fn next_raised(&mut self, source: usize) -> Option<(DeviceId, usize, usize)>;
    /// Masks an interrupt of a device function, or unmasks it.
    fn interrupt_mask(&mut self, device: DeviceId, interrupt: usize, is_masked: bool);

    /// Writes at most `LOG_BYTES_MAX` bytes to the kernel's log without waiting; how many it took.
    fn log(&mut self, bytes: &[u8]) -> usize;
    /// Ends the machine with a code. A fake may return.
    fn power_off(&mut self, code: u32);
    /// The first environment was stopped: says why and ends the machine. A fake may return.
    fn first_environment_stopped(&mut self, report: StopReport);
}

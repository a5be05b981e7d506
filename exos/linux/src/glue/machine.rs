//! `Platform` and `Kernel` for the machine: sleeping on the console's bell, the timer, processor registers that Rust
//! cannot name.

use alloc::sync::Arc;

use aegis_abi::call::ProcessorField;
use aegis_abi::memory::BindEntry;
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_NONE};
use aegis_abi::{CapSlot, Status};
use aegis_rt::call;
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::fmt::Arguments;
use exos::platform::{BindFault, FrameGrant, Kernel, LogLevel};
use exos::sync::{Mutex, Once};
use exos_linux::host::HostPorts;
use exos_linux::process::Process;
use exos_linux::system::Platform;
use exos_linux::vector_buffer::VECTOR_BYTES_MAX;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::devices::HostConsole;
use super::kernel;

/// The host's ports over the real console.
pub(crate) type Host = HostPorts<HostConsole>;

/// The kernel as policies see it.
pub(crate) struct MachineKernel {
    pub(crate) host: Arc<Host>,
    pub(crate) random: Mutex<ChaCha20Rng>,
}

impl Kernel for MachineKernel {
    fn allocate_frames(&self, count: u64, alignment_log2: u32) -> Result<FrameGrant, Status> {
        kernel::take_frames(count, alignment_log2)
    }

    fn free_frames(&self, grant: FrameGrant) -> Result<(), Status> {
        call::frame_free(grant.slot).map(|_| ()).map_err(|refusal| refusal.status)
    }

    fn bind(&self, space: CapSlot, entries: &[BindEntry]) -> Result<(), BindFault> {
        let is_program = |entry: &BindEntry| entry.virtual_address < aegis_abi::layout::PROGRAM_END;
        if let Some(entry_index) = entries.iter().position(|entry| !is_program(entry)) {
            return Err(BindFault { entry_index, status: Status::BadArgument });
        }
        // SAFETY: the program's half holds no Rust object.
        unsafe { kernel::bind_all(space, entries) }
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
    /// The console's bell.
    pub(crate) bell: CapSlot,
    /// The timer's bell.
    pub(crate) timer_bell: CapSlot,
    /// The process that the host's signals are for, once there is one.
    pub(crate) process: Once<Arc<Process>>,
    /// XCR0.
    pub(crate) vector_mask: u64,
}

impl MachinePlatform {
    /// Takes in what the host sent and what time has brought; true if anything happened.
    pub(crate) fn absorb(&self) -> bool {
        let mut happened = self.host.pump();
        happened |= call::bell_take(self.timer_bell).unwrap_or(0) > 0;
        let Some(process) = self.process.get() else { return happened };
        while let Some(number) = self.host.take_signal() {
            exos_linux::events::raise_from_host(process, number);
            happened = true;
        }
        if let Some((rows, columns)) = self.host.take_window() {
            exos_linux::events::resize(process, rows, columns);
        }
        exos_linux::events::move_terminal_bytes(process);
        exos_linux::call::time::check_timer(process, self, kernel::now_ns());
        happened
    }
}

/// A term that waits for a bell.
pub(crate) fn bell_term(product: u32, bell: CapSlot) -> Term {
    Term {
        product,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: bell.0,
        address: 0,
        value: 1,
    }
}

impl Platform for MachinePlatform {
    fn wait(&self, deadline_ns: Option<u64>) {
        if self.absorb() {
            return;
        }
        let clock = Term {
            product: 2,
            source: TermSource::Clock as u32,
            operator: TermOperator::AtLeast as u32,
            slot: 0,
            address: 0,
            value: deadline_ns.unwrap_or(u64::MAX),
        };
        let terms = [bell_term(0, self.bell), bell_term(1, self.timer_bell), clock];
        // Whatever ended the sleep, the caller looks again; an early end only costs a look.
        let _ = call::sleep(&terms);
        self.absorb();
    }

    fn arm_timer(&self, deadline_ns: Option<u64>) {
        let _ = call::bell_ring_at(self.timer_bell, deadline_ns.unwrap_or(u64::MAX));
    }

    fn yield_now(&self) {
        let _ = call::yield_to(SLOT_NONE);
    }

    fn processor_time_ns(&self) -> u64 {
        call::processor_read(SLOT_FIRST_PROCESSOR, ProcessorField::TimeUsedNs).unwrap_or(0)
    }

    fn fs_base(&self) -> u64 {
        let base: u64;
        // SAFETY: the kernel enables FSGSBASE; reading changes nothing.
        unsafe { core::arch::asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
        base
    }

    fn set_fs_base(&self, base: u64) {
        // SAFETY: exos itself does not use FS; the address was checked to be canonical.
        unsafe { core::arch::asm!("wrfsbase {}", in(reg) base, options(nomem, nostack, preserves_flags)) };
    }

    fn vector_format(&self) -> (u64, usize) {
        // Leaf 13, subleaf 0: EBX is the size for what XCR0 enables (Intel SDM vol. 1, 13.2).
        (self.vector_mask, cpuid(13, 0).ebx as usize)
    }

    fn save_vector(&self, into: &mut [u8]) {
        assert!(is_area(into), "vector state goes to a VectorBuffer");
        // SAFETY: the area is 64-byte aligned and a page long, which the kernel keeps XCR0's state below; its header
        // is zero or XSAVE's own.
        unsafe {
            core::arch::asm!("xsave64 [{}]", in(reg) into.as_mut_ptr(), in("eax") u32::MAX, in("edx") u32::MAX,
                options(nostack, preserves_flags));
        }
    }

    fn load_vector(&self, state: Option<&[u8]>) {
        let area = state.unwrap_or(&INITIAL_STATE.0);
        assert!(is_area(area), "vector state comes from a VectorBuffer");
        // SAFETY: aligned and long enough; the header holds only features of XCR0 in the standard format
        // (`signal_frame::restore` saw to it), so XRSTOR does not fault. exos is soft-float code and loses nothing.
        unsafe {
            core::arch::asm!("xrstor64 [{}]", in(reg) area.as_ptr(), in("eax") u32::MAX, in("edx") u32::MAX,
                options(nostack, readonly, preserves_flags));
        }
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        let CpuidResult { eax, ebx, ecx, edx } = cpuid(leaf, subleaf);
        [eax, ebx, ecx, edx]
    }

    fn trace(&self, line: &str) {
        self.host.log("trace", line);
        while self.host.control_backlog_bytes() > 64 * 1024 {
            self.wait(None);
        }
    }

    fn tell_code(&self, mapping: &str) {
        self.host.send_line(&alloc::format!("map {:x} {mapping}", kernel::own_space()));
    }
}

/// Whether XSAVE and XRSTOR can work on these bytes.
fn is_area(bytes: &[u8]) -> bool {
    bytes.len() >= VECTOR_BYTES_MAX && bytes.as_ptr().addr().is_multiple_of(64)
}

/// An XSAVE area.
#[repr(C, align(64))]
struct Area([u8; VECTOR_BYTES_MAX]);

/// The initial state: an empty header, the x87 control word and MXCSR as at reset.
static INITIAL_STATE: Area = {
    let mut bytes = [0; VECTOR_BYTES_MAX];
    [bytes[0], bytes[1]] = 0x37f_u16.to_le_bytes();
    [bytes[24], bytes[25]] = 0x1f80_u16.to_le_bytes();
    Area(bytes)
};

fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    __cpuid_count(leaf, subleaf)
}

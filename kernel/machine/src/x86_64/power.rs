//! The end of the machine: QEMU's `isa-debug-exit` device, or a reset where it is absent; and which processor brings it
//! about by a panic, which all that wait for another have to know.
#![allow(unsafe_code, reason = "port access, deliberate triple fault")]

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::instructions::{halt_forever, in8, out8, out32};
use super::processor::descriptor_pointer;

/// The port of `-device isa-debug-exit,iobase=0xf4,iosize=0x04`.
const DEBUG_EXIT: u16 = 0xf4;
const KEYBOARD_STATUS: u16 = 0x64;
const KEYBOARD_RESET: u8 = 0xfe;

/// No panic yet.
const NOBODY: usize = usize::MAX;

/// The processor that panics.
static PANICKING: AtomicUsize = AtomicUsize::new(NOBODY);

/// What the monitor's exit status tells: `value << 1 | 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ExitCode {
    /// Orderly power-off: status 33.
    Clean = 0x10,
    /// Kernel panic: status 35.
    Panic = 0x11,
    /// The first environment was stopped: status 37.
    FirstEnvironmentStopped = 0x12,
}

/// Makes a processor the one that panics, or says which is.
pub(crate) fn begin_panic(own: usize) -> Result<(), usize> {
    PANICKING.compare_exchange(NOBODY, own, Ordering::SeqCst, Ordering::SeqCst).map(|_| ())
}

/// Whether some processor panics.
pub(crate) fn is_panicking() -> bool {
    PANICKING.load(Ordering::SeqCst) != NOBODY
}

/// What an NMI does: nothing, or stop for good because another processor panics.
pub(crate) fn stop_if_panicking() {
    if is_panicking() {
        halt_forever();
    }
}

/// Ends the machine. Without the debug-exit device it resets, which ends QEMU when it was started with `-no-reboot`.
pub fn power_off(code: ExitCode) -> ! {
    // SAFETY: the device ends the machine and reaches no memory.
    unsafe { out32(DEBUG_EXIT, code as u32) };
    // SAFETY: the keyboard controller's reset line ends the machine.
    unsafe {
        for _ in 0..1000 {
            if in8(KEYBOARD_STATUS) & 2 == 0 {
                break;
            }
        }
        out8(KEYBOARD_STATUS, KEYBOARD_RESET);
    }
    let no_handlers = descriptor_pointer(0, 0);
    // SAFETY: without an interrupt table the breakpoint becomes a triple fault: a reset. Nothing runs afterwards.
    unsafe { asm!("lidt [{}]", "int3", "2: hlt", "jmp 2b", in(reg) &no_handlers, options(noreturn)) }
}

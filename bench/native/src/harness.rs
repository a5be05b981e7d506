//! What rows are made of and measured with: the clock, handlers of exceptions, the log.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::types::SLOT_MACHINE;
use aegis_abi::upcall::UpcallFrame;
use aegis_rt::upcall::{self, Handler, UpcallHandlers};
use aegis_rt::{call, clock};

use crate::memory::Measured;

/// A row: its name, and what does its operation so many times and returns the nanoseconds that it took.
pub(crate) type Row = (&'static str, fn(u64) -> Measured);

/// Exceptions that a row's handler answered.
pub(crate) static HANDLED: AtomicU64 = AtomicU64::new(0);

/// A mark for `aegis bench --trace-row`, as `MARK` of `bench/micro/micro.h`: it records the address of the next
/// instruction, and is none itself.
macro_rules! mark {
    ($kind:literal) => {
        // SAFETY: nothing is executed.
        unsafe {
            core::arch::asm!(
                ".pushsection aegis_marks, \"\", @progbits",
                concat!(".quad 77f, ", $kind),
                ".popsection",
                "77:",
                options(nostack, preserves_flags)
            );
        }
    };
}

pub(crate) use mark;

/// Nanoseconds since the kernel's start.
#[inline]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the kernel maps the system page in every environment.
    let now_ns = clock::nanoseconds_at(unsafe { clock::system_page() }, clock::time_stamp());
    mark!(0);
    now_ns
}

/// The nanoseconds that something takes.
#[inline(always)]
pub(crate) fn timed(action: impl FnOnce()) -> u64 {
    let start_ns = now_ns();
    action();
    now_ns() - start_ns
}

/// Registers what answers exceptions from now on, and forgets how many there were.
pub(crate) fn handle(handler: Handler) {
    HANDLED.store(0, Ordering::Relaxed);
    upcall::register(UpcallHandlers { syscall: unexpected, other: handler }, &[]);
}

/// Counts an answered exception. The handler is the only writer.
#[inline(always)]
pub(crate) fn count_handled() {
    HANDLED.store(HANDLED.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Fails unless so many exceptions were answered.
pub(crate) fn check_handled(count: u64) -> Result<(), &'static str> {
    if HANDLED.load(Ordering::Relaxed) == count { Ok(()) } else { Err("not every exception arrived") }
}

pub(crate) extern "C" fn unexpected(frame: &mut UpcallFrame) {
    say(format_args!("unexpected upcall {}, vector {} at {:#x}\n", frame.kind, frame.vector, frame.rip));
    end(1)
}

/// A line that is built first and written with one call.
struct Line {
    bytes: [u8; 200],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let count = text.len().min(self.bytes.len() - self.length);
        self.bytes[self.length..self.length + count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

/// Writes to the kernel's log.
pub(crate) fn say(arguments: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 200], length: 0 };
    // A line that does not fit is cut; there is nobody to tell.
    let _ = line.write_fmt(arguments);
    let _ = call::machine_log(SLOT_MACHINE, &line.bytes[..line.length]);
}

pub(crate) fn end(code: u32) -> ! {
    let _ = call::machine_off(SLOT_MACHINE, code);
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    say(format_args!("{information}\n"));
    end(1)
}

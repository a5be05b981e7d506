//! The whole library OS: start, page-fault policy, panic.
//!
//! Policy: a page of [`HEAP`] that is touched for the first time gets the next frame of one grant; any other fault
//! ends the machine.
#![allow(unsafe_code, reason = "a library OS maps its own memory")]

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::CapSlot;
use aegis_abi::boot::{BOOT_INFO_MAGIC, BootInfo};
use aegis_abi::counter::Counter;
use aegis_abi::layout::{LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_MACHINE, SLOT_SELF};
use aegis_abi::upcall::UpcallFrame;
use aegis_rt::upcall::UpcallHandlers;
use aegis_rt::{call, clock};

/// Where demand-paged memory is.
const HEAP: u64 = LIBOS_BASE + (1 << 32);
/// Pages of it.
const HEAP_PAGE_COUNT: u64 = 16;
/// The frames for it.
const HEAP_SLOT: CapSlot = CapSlot(200);
/// Vector of the page fault.
const PAGE_FAULT: u64 = 14;

/// First frame of the grant.
static FRAME_FIRST: AtomicU64 = AtomicU64::new(0);
/// Pages given out.
static PAGE_COUNT: AtomicU64 = AtomicU64::new(0);

/// Where the kernel enters: RDI is the boot information.
pub(crate) extern "C" fn start(info: *const BootInfo) -> ! {
    // SAFETY: the kernel maps the boot information before it starts the first environment.
    let info = unsafe { info.read() };
    check(info.magic == BOOT_INFO_MAGIC, "mini: no boot information\n");
    aegis_rt::upcall::register(UpcallHandlers { syscall: no_program, other: fault }, &[]);
    match call::frame_allocate(HEAP_SLOT, HEAP_PAGE_COUNT, None, 0) {
        Ok(frame) => FRAME_FIRST.store(frame, Ordering::Relaxed),
        Err(_) => fail("mini: no frames\n"),
    }
    let calls_before = call::counter_read(Counter::KernelCalls).unwrap_or(0);
    for page in 0..HEAP_PAGE_COUNT {
        let word = (HEAP + page * PAGE_SIZE) as *mut u64;
        // SAFETY: the first touch faults and `fault` maps the page; nothing else is there.
        unsafe {
            word.write_volatile(page + 1);
            check(word.read_volatile() == page + 1, "mini: a page forgot its word\n");
        }
    }
    let calls = call::counter_read(Counter::KernelCalls).unwrap_or(0) - calls_before;
    check(PAGE_COUNT.load(Ordering::Relaxed) == HEAP_PAGE_COUNT, "mini: pages were not mapped on demand\n");
    // One bind for each page and the second reading of the counter: resuming from the upcalls took no call.
    check(calls == HEAP_PAGE_COUNT + 1, "mini: resuming entered the kernel\n");
    // SAFETY: the kernel maps the system page for every environment.
    let page = unsafe { clock::system_page() };
    let first_ns = clock::nanoseconds_at(page, clock::time_stamp());
    let _ = call::yield_to(CapSlot(0));
    check(clock::nanoseconds_at(page, clock::time_stamp()) > first_ns, "mini: the clock stands still\n");
    print("mini: ok\n");
    let _ = call::machine_off(SLOT_MACHINE, 0);
    fail("mini: power off was refused\n")
}

/// The page-fault policy.
extern "C" fn fault(frame: &mut UpcallFrame) {
    let page = frame.fault_address.wrapping_sub(HEAP) / PAGE_SIZE;
    if frame.vector != PAGE_FAULT || page >= HEAP_PAGE_COUNT {
        print("mini: a fault outside the heap: vector, address, instruction\n");
        for word in [frame.vector, frame.fault_address, frame.rip] {
            print_word(word);
        }
        fail("");
    }
    let taken = PAGE_COUNT.fetch_add(1, Ordering::Relaxed);
    let frame = FRAME_FIRST.load(Ordering::Relaxed) + taken;
    let entry = BindEntry::map(HEAP + page * PAGE_SIZE, frame, 1, HEAP_SLOT, BindFlags::WRITE);
    // SAFETY: the page was not mapped, so nothing that Rust relies on changes.
    if unsafe { call::bind(SLOT_SELF, &[entry]) }.is_err() {
        fail("mini: bind was refused\n");
    }
}

/// There is no program, so there are no system calls.
extern "C" fn no_program(_: &mut UpcallFrame) {
    fail("mini: a system call from nowhere\n");
}

fn check(condition: bool, otherwise: &str) {
    if !condition {
        fail(otherwise);
    }
}

fn print(text: &str) {
    // There is nobody to tell if the log is refused.
    let _ = call::machine_log(SLOT_MACHINE, text.as_bytes());
}

/// A word in hexadecimal, on a line of its own.
fn print_word(word: u64) {
    let mut text = *b"0x0000000000000000\n";
    for (index, digit) in text[2..18].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(word >> (60 - 4 * index) & 15) as usize];
    }
    let _ = call::machine_log(SLOT_MACHINE, &text);
}

/// Ends the machine with a line that says why.
fn fail(text: &str) -> ! {
    print(text);
    let _ = call::machine_off(SLOT_MACHINE, 1);
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    fail("mini: panic\n")
}

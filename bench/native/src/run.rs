//! Reads what to run, runs it, says what it came to.

use aegis_abi::boot::{BOOT_INFO_MAGIC, BootInfo};
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::upcall::UpcallKind;
use aegis_rt::control;

use crate::harness::{Row, end, handle, mark, say, unexpected};
use crate::memory::{self, Measured, configuration, take_pages};
use crate::{clients, interrupt, rows_call, rows_channel, rows_memory, rows_transfer};

/// Most batches of a row.
const BATCH_COUNT_MAX: usize = 64;
/// Most operations of a batch.
const OPERATION_COUNT_MAX: u64 = 50_000_000;
/// Most rows of a run.
const ROW_COUNT_MAX: usize = 64;
/// Pages of the stack that rows run on.
const STACK_PAGE_COUNT: u32 = 16;

const TABLES: [&[Row]; 4] = [rows_call::ROWS, rows_memory::ROWS, rows_transfer::ROWS, rows_channel::ROWS];

/// Where the kernel enters: RDI is the boot information.
pub(crate) extern "C" fn start(info: *const BootInfo) -> ! {
    // SAFETY: the kernel maps the boot information before it starts the first environment.
    let info = unsafe { info.read() };
    if info.magic != BOOT_INFO_MAGIC {
        end(1);
    }
    memory::set_bundle(info.bundle_frame);
    let Ok((stack, _)) = take_pages(STACK_PAGE_COUNT) else { end(1) };
    memory::keep();
    let top = stack + u64::from(STACK_PAGE_COUNT) * PAGE_SIZE;
    // SAFETY: `run` never returns, and nothing of the old stack is used by it.
    unsafe {
        core::arch::asm!("mov rsp, {top}", "xor ebp, ebp", "call {run}", "ud2", top = in(reg) top, run = sym run,
            options(noreturn));
    }
}

extern "C" fn run() -> ! {
    handle(unexpected);
    let text = configuration().unwrap_or("");
    let mut words = text.split_ascii_whitespace();
    let is_interrupt = text == interrupt::WORD;
    if is_interrupt || text.starts_with(clients::WORD) {
        match if is_interrupt { interrupt::run() } else { clients::run(text) } {
            Ok(()) => end(0),
            Err(what) => {
                say(format_args!("{what}\n"));
                end(1)
            }
        }
    }
    let (names, target_us, batches) = (words.next(), words.next(), words.next());
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
    let (Some(names), Some(target_us), Some(batches)) = (names, number(target_us), number(batches)) else {
        say(format_args!("unknown words in the configuration\n"));
        end(2)
    };
    let batches = (batches as usize).clamp(1, BATCH_COUNT_MAX);
    let says_all = words.next() == Some("aloud");
    let mut done = [None; ROW_COUNT_MAX];
    let mut count = 0;
    for (name, place) in names.split(',').zip(&mut done) {
        let Some(row) = TABLES.iter().flat_map(|table| table.iter()).find(|row| row.0 == name) else {
            say(format_args!("unknown {name}\n"));
            end(2)
        };
        if says_all {
            say(format_args!("start {name}\n"));
        }
        let end = (row.0, measure(row.1, target_us * 1000, batches));
        if says_all {
            say_row(end);
        }
        *place = Some(end);
        count += 1;
    }
    if !says_all {
        for end in done.iter().flatten() {
            say(format_args!("start {}\n", end.0));
            say_row(*end);
        }
    }
    say(format_args!("done {count}\n"));
    end(0)
}

/// Nanoseconds of an operation in the middle batch, and how many were in a batch.
type End = Result<(f64, u64), &'static str>;

fn say_row((name, end): (&'static str, End)) {
    match end {
        Ok((nanoseconds, count)) => say(format_args!("row {name} {nanoseconds:.3} {count}\n")),
        Err(what) => say(format_args!("na {name} -1 {what}\n")),
    }
}

/// As `measure` of `bench/micro/main.c`: batches of as many operations as take the target time.
fn measure(row: fn(u64) -> Measured, target_ns: u64, batches: usize) -> End {
    let mut operations = 2;
    loop {
        let elapsed_ns = run_once(row, operations)?;
        if elapsed_ns >= target_ns / 2 || operations >= OPERATION_COUNT_MAX {
            break;
        }
        let growth = target_ns.checked_div(elapsed_ns).unwrap_or(16).clamp(2, 16);
        operations = (operations * growth).next_multiple_of(2);
    }
    let mut batch_ns = [0.0; BATCH_COUNT_MAX];
    let batch_ns = &mut batch_ns[..batches];
    for place in batch_ns.iter_mut() {
        mark!(1);
        let elapsed_ns = run_once(row, operations)?;
        mark!(2);
        *place = elapsed_ns as f64 / operations as f64;
    }
    batch_ns.sort_unstable_by(f64::total_cmp);
    Ok((batch_ns[batches / 2], operations))
}

fn run_once(row: fn(u64) -> Measured, operations: u64) -> Measured {
    let measured = row(operations);
    handle(unexpected);
    for kind in [UpcallKind::SliceBegin, UpcallKind::SliceEnd, UpcallKind::Bell] {
        control::set_entry(kind, 0);
    }
    memory::release();
    let _ = control::take_pending();
    measured
}

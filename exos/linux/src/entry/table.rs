//! Every system call that exos has: number, state, handler, shape. What is not here is `ENOSYS`, named once on the log.
//!
//! `docs/linux-compat.md` is generated from this table. A state is a statement about behaviour that tests show:
//! `Full` does what Linux does for one process, `Partial` says in a word what is missing.

use exos::error::{Errno, Result};
use exos::reserve::{self, Level};
use syscalls::Sysno;

use crate::abi::shape::{Shape, shape};
use crate::call::context::{Arguments, Context, Handler};
use crate::call::entry::Entry;
use crate::call::{
    aio, capability, clock_adjust, comparison, epoll, eventfd, exec, extended_attribute, file_control, file_copy,
    file_descriptor, file_handle, file_metadata, file_path, file_sync, file_transfer, futex, identity, memory,
    memory_policy, memory_rare, message, message_queue, miscellany, namespace, native, pidfd, poll, posix_queue,
    priority, process, process_memory, ptrace, schedule, semaphore, shared_memory, signal, socket, socket_option,
    splice, time, timer, uring, watch,
};
use crate::entry::gate;

/// Calls whose absence is expected: libraries try them first and go on without a word (the last three no 64-bit Linux
/// 6.1 has), so they are not named on the log.
const SILENT: &[(Sysno, Shape)] = &[
    (Sysno::rseq, shape!((Pointer, Size, Hex, Hex))),
    (Sysno::seccomp, shape!()),
    (Sysno::_sysctl, shape!()),
    (Sysno::get_thread_area, shape!()),
    (Sysno::set_thread_area, shape!()),
];

/// The calls, by family.
pub const ENTRIES: &[&[Entry]] = &[
    aio::ENTRIES,
    capability::ENTRIES,
    clock_adjust::ENTRIES,
    comparison::ENTRIES,
    epoll::ENTRIES,
    eventfd::ENTRIES,
    file_control::ENTRIES,
    file_copy::ENTRIES,
    file_descriptor::ENTRIES,
    extended_attribute::ENTRIES,
    file_handle::ENTRIES,
    file_metadata::ENTRIES,
    file_path::ENTRIES,
    file_sync::ENTRIES,
    file_transfer::ENTRIES,
    futex::ENTRIES,
    memory::ENTRIES,
    memory_policy::ENTRIES,
    memory_rare::ENTRIES,
    message::ENTRIES,
    message_queue::ENTRIES,
    namespace::ENTRIES,
    poll::ENTRIES,
    posix_queue::ENTRIES,
    priority::ENTRIES,
    process::ENTRIES,
    pidfd::ENTRIES,
    process_memory::ENTRIES,
    ptrace::ENTRIES,
    exec::ENTRIES,
    semaphore::ENTRIES,
    shared_memory::ENTRIES,
    socket::ENTRIES,
    socket_option::ENTRIES,
    splice::ENTRIES,
    timer::ENTRIES,
    uring::ENTRIES,
    watch::ENTRIES,
    time::ENTRIES,
    signal::ENTRIES,
    identity::ENTRIES,
    schedule::ENTRIES,
    miscellany::ENTRIES,
];

/// One more than the highest number in the table.
pub const NUMBER_COUNT: usize = 512;

/// Entries by number.
static BY_NUMBER: [Option<&Entry>; NUMBER_COUNT] = index();

const fn index() -> [Option<&'static Entry>; NUMBER_COUNT] {
    let mut table = [None; NUMBER_COUNT];
    let mut family = 0;
    while family < ENTRIES.len() {
        let mut position = 0;
        while position < ENTRIES[family].len() {
            let entry = &ENTRIES[family][position];
            let number = entry.number as usize;
            assert!(table[number].is_none(), "a call stands twice in the table");
            table[number] = Some(entry);
            position += 1;
        }
        family += 1;
    }
    table
}

/// Handlers by number: what [`dispatch`] reads, a word for each.
static HANDLERS: [Option<Handler>; NUMBER_COUNT] = handlers();

const fn handlers() -> [Option<Handler>; NUMBER_COUNT] {
    let entries = index();
    let mut table: [Option<Handler>; NUMBER_COUNT] = [None; NUMBER_COUNT];
    let mut number = 0;
    while number < NUMBER_COUNT {
        if let Some(entry) = entries[number] {
            table[number] = Some(entry.handler);
        }
        number += 1;
    }
    table
}

/// Whether a call is in the table: what its short way must not be without.
#[must_use]
pub const fn has(number: Sysno) -> bool {
    index()[number as usize].is_some()
}

/// The entry of a number.
#[must_use]
pub fn entry(number: u64) -> Option<&'static Entry> {
    *BY_NUMBER.get(usize::try_from(number).ok()?)?
}

/// How the call of a number is shown.
pub(crate) fn shape(number: u64) -> Shape {
    let silent = || SILENT.iter().find(|row| row.0 as u64 == number).map(|row| row.1);
    entry(number).map(|entry| entry.shape).or_else(silent).unwrap_or(shape!())
}

/// The name of a number, also of calls that exos does not have.
#[must_use]
pub fn name(number: u64) -> Option<&'static str> {
    let native = native::entry(number).map(|(_, name, _)| *name);
    native.or_else(|| Sysno::new(usize::try_from(number).ok()?).map(|number| number.name()))
}

/// Does system call `number`, unless there is no memory for it ([`gate`]). What is missing is named once.
#[inline]
pub fn dispatch(context: &mut Context<'_>, number: u64, arguments: Arguments) -> Result<u64> {
    if reserve::level() != Level::Whole {
        gate::pass(context, number, &arguments)?;
    }
    match HANDLERS.get(number as usize) {
        Some(Some(handler)) => handler(context, arguments),
        _ => dispatch_other(context, number, arguments),
    }
}

#[cold]
fn dispatch_other(context: &mut Context<'_>, number: u64, arguments: Arguments) -> Result<u64> {
    if let Some((_, _, handler)) = native::entry(number) {
        return handler(context, arguments);
    }
    report_missing(context, number);
    Err(Errno::ENOSYS)
}

fn report_missing(context: &Context<'_>, number: u64) {
    let is_silent = SILENT.iter().any(|silent| silent.0 as u64 == number);
    if is_silent || !context.system.is_first_missing(number) {
        return;
    }
    let level = exos::platform::LogLevel::Warning;
    match name(number) {
        Some(name) => context.system.kernel.log(level, format_args!("system call {name} is not there (ENOSYS)")),
        None => context.system.kernel.log(level, format_args!("there is no system call {number} (ENOSYS)")),
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES, entry, name};
    use crate::call::entry::State;

    #[test]
    fn every_entry_is_found_by_its_number() {
        for entry_wanted in ENTRIES.iter().flat_map(|family| family.iter()) {
            let found = entry(entry_wanted.number as u64).expect("is in the table");
            assert_eq!(found.number, entry_wanted.number);
            if let State::Partial(text) = found.state {
                assert!(!text.is_empty());
            }
        }
    }

    #[test]
    fn numbers_beyond_the_table_are_none() {
        assert!(entry(511).is_none());
        assert!(entry(u64::MAX).is_none());
        assert_eq!(name(39), Some("getpid"));
        assert_eq!(name(u64::MAX), None);
    }
}

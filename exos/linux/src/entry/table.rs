//! Every system call that exos has: number, state, handler. What is not here is `ENOSYS`, named once on the log.
//!
//! `docs/linux-compat.md` is generated from this table. A state is a statement about behaviour that tests show:
//! `Full` does what Linux does for one process, `Partial` says in a word what is missing.

use exos::error::{Errno, Result};
use exos::reserve::{self, Level};
use syscalls::Sysno;

use crate::call::context::{Arguments, Context, Handler};
use crate::call::entry::{Entry, full, partial};
use crate::call::{
    capability, clock_adjust, epoll, eventfd, exec, extended_attribute, file_control, file_copy, file_descriptor,
    file_metadata, file_path, file_sync, file_transfer, futex, identity, memory, memory_policy, message, message_queue,
    miscellany, namespace, native, pidfd, poll, posix_queue, priority, process, process_memory, schedule, semaphore,
    shared_memory, signal, socket, socket_option, splice, time, timer, watch,
};
use crate::entry::gate;

/// Calls whose absence is expected: libraries try them first and go on without a word (the last three no 64-bit Linux
/// 6.1 has), so they are not named on the log.
const SILENT: &[Sysno] = &[
    Sysno::rseq,
    Sysno::seccomp,
    Sysno::io_uring_setup,
    Sysno::_sysctl,
    Sysno::get_thread_area,
    Sysno::set_thread_area,
];

/// The calls, by family.
pub const ENTRIES: &[&[Entry]] = &[
    capability::ENTRIES,
    clock_adjust::ENTRIES,
    epoll::ENTRIES,
    eventfd::ENTRIES,
    file_control::ENTRIES,
    file_copy::ENTRIES,
    file_descriptor::ENTRIES,
    extended_attribute::ENTRIES,
    file_metadata::ENTRIES,
    file_path::ENTRIES,
    file_sync::ENTRIES,
    file_transfer::ENTRIES,
    futex::ENTRIES,
    memory::ENTRIES,
    memory_policy::ENTRIES,
    message::ENTRIES,
    message_queue::ENTRIES,
    namespace::ENTRIES,
    poll::ENTRIES,
    posix_queue::ENTRIES,
    priority::ENTRIES,
    process::ENTRIES,
    pidfd::ENTRIES,
    process_memory::ENTRIES,
    exec::ENTRIES,
    semaphore::ENTRIES,
    shared_memory::ENTRIES,
    socket::ENTRIES,
    socket_option::ENTRIES,
    splice::ENTRIES,
    timer::ENTRIES,
    watch::ENTRIES,
    TIME,
    SIGNAL,
    IDENTITY,
    SCHEDULE,
    MISCELLANY,
];

const TIME: &[Entry] = &[
    full(Sysno::clock_gettime, time::clock_gettime),
    full(Sysno::clock_getres, time::clock_getres),
    full(Sysno::clock_settime, time::clock_settime),
    full(Sysno::gettimeofday, time::gettimeofday),
    full(Sysno::time, time::time),
    full(Sysno::times, time::times),
    full(Sysno::nanosleep, time::nanosleep),
    partial(Sysno::clock_nanosleep, "no waiting for processor time", time::clock_nanosleep),
    full(Sysno::pause, time::pause),
];

const SIGNAL: &[Entry] = &[
    full(Sysno::rt_sigaction, signal::rt_sigaction),
    full(Sysno::rt_sigprocmask, signal::rt_sigprocmask),
    full(Sysno::rt_sigpending, signal::rt_sigpending),
    full(Sysno::rt_sigsuspend, signal::rt_sigsuspend),
    full(Sysno::rt_sigtimedwait, signal::rt_sigtimedwait),
    full(Sysno::rt_sigreturn, signal::rt_sigreturn),
    full(Sysno::rt_sigqueueinfo, signal::rt_sigqueueinfo),
    full(Sysno::rt_tgsigqueueinfo, signal::rt_tgsigqueueinfo),
    full(Sysno::kill, signal::kill),
    full(Sysno::tkill, signal::tkill),
    full(Sysno::tgkill, signal::tgkill),
    full(Sysno::sigaltstack, signal::sigaltstack),
];

const IDENTITY: &[Entry] = &[
    full(Sysno::getpid, identity::getpid),
    full(Sysno::gettid, identity::gettid),
    full(Sysno::getppid, identity::getppid),
    full(Sysno::getuid, identity::getuid),
    full(Sysno::geteuid, identity::geteuid),
    full(Sysno::getgid, identity::getgid),
    full(Sysno::getegid, identity::getegid),
    full(Sysno::setuid, identity::setuid),
    full(Sysno::setgid, identity::setgid),
    full(Sysno::setreuid, identity::setreuid),
    full(Sysno::setregid, identity::setregid),
    full(Sysno::setresuid, identity::setresuid),
    full(Sysno::setresgid, identity::setresgid),
    full(Sysno::getresuid, identity::getresuid),
    full(Sysno::getresgid, identity::getresgid),
    full(Sysno::setfsuid, identity::setfsuid),
    full(Sysno::setfsgid, identity::setfsgid),
    full(Sysno::getgroups, identity::getgroups),
    full(Sysno::setgroups, identity::setgroups),
    full(Sysno::getpgid, identity::getpgid),
    full(Sysno::getpgrp, identity::getpgrp),
    full(Sysno::setpgid, identity::setpgid),
    full(Sysno::getsid, identity::getsid),
    full(Sysno::setsid, identity::setsid),
    full(Sysno::prlimit64, identity::prlimit64),
    full(Sysno::getrlimit, identity::getrlimit),
    full(Sysno::setrlimit, identity::setrlimit),
    partial(Sysno::getrusage, "processor time and peak memory only", identity::getrusage),
];

const SCHEDULE: &[Entry] = &[
    full(Sysno::sched_yield, schedule::sched_yield),
    full(Sysno::sched_getaffinity, schedule::sched_getaffinity),
    full(Sysno::sched_setaffinity, schedule::sched_setaffinity),
    full(Sysno::getcpu, schedule::getcpu),
    full(Sysno::sched_getscheduler, schedule::sched_getscheduler),
    full(Sysno::sched_getparam, schedule::sched_getparam),
    partial(Sysno::sched_setscheduler, "SCHED_OTHER, SCHED_BATCH and SCHED_IDLE", schedule::sched_setscheduler),
    partial(Sysno::sched_setparam, "as sched_setscheduler", schedule::sched_setparam),
    full(Sysno::sched_rr_get_interval, schedule::sched_rr_get_interval),
    full(Sysno::sched_get_priority_max, schedule::sched_get_priority_max),
    full(Sysno::sched_get_priority_min, schedule::sched_get_priority_min),
];

const MISCELLANY: &[Entry] = &[
    full(Sysno::uname, miscellany::uname),
    full(Sysno::sethostname, miscellany::sethostname),
    full(Sysno::setdomainname, miscellany::setdomainname),
    full(Sysno::sysinfo, miscellany::sysinfo),
    full(Sysno::getrandom, miscellany::getrandom),
    partial(Sysno::arch_prctl, "GS belongs to exos", miscellany::arch_prctl),
    partial(Sysno::prctl, "the options that programs set on themselves", miscellany::prctl),
    full(Sysno::membarrier, miscellany::membarrier),
    partial(
        Sysno::personality,
        "only PER_LINUX; of its flags ADDR_NO_RANDOMIZE has an effect",
        miscellany::personality,
    ),
    partial(Sysno::syslog, "an empty log", miscellany::syslog),
    partial(Sysno::reboot, "never permitted", miscellany::reboot),
    partial(Sysno::swapon, "never permitted", miscellany::not_permitted),
    partial(Sysno::swapoff, "never permitted", miscellany::not_permitted),
    partial(Sysno::acct, "never permitted", miscellany::not_permitted),
    full(Sysno::vhangup, miscellany::vhangup),
];

/// One more than the highest number in the table.
const NUMBER_COUNT: usize = 512;

/// Entries by number.
static BY_NUMBER: [Option<Entry>; NUMBER_COUNT] = index();

const fn index() -> [Option<Entry>; NUMBER_COUNT] {
    let mut table = [None; NUMBER_COUNT];
    let mut family = 0;
    while family < ENTRIES.len() {
        let mut position = 0;
        while position < ENTRIES[family].len() {
            let entry = ENTRIES[family][position];
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

/// The entry of a number.
#[must_use]
pub fn entry(number: u64) -> Option<&'static Entry> {
    BY_NUMBER.get(usize::try_from(number).ok()?)?.as_ref()
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
    let is_silent = SILENT.iter().any(|silent| *silent as u64 == number);
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

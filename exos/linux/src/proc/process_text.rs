//! `status`, `stat`, `limits`, `io`: a process (`fs/proc/array.c`, `fs/proc/base.c`).

use alloc::string::String;
use core::sync::atomic::Ordering;

use aegis_abi::upcall::UpcallKind;
use exos::error::{Errno, Result};
use exos::fs::metadata::DeviceNumber;
use exos::fs::stream_inode::TERMINAL_MAJOR;
use exos::fs::terminal::modes::Terminal;
use exos::task::limits::{Limits, RESOURCE_COUNT, Resource, UNLIMITED};
use exos::task::signal::{HANDLER_DEFAULT, HANDLER_IGNORE, SIGNAL_MAX, Signal, SignalSet};

use super::memory_text::{ProgramRanges, program_ranges, resident, status_lines};
use super::text::{Text, put};
use crate::task::listing::Member;
use crate::task::process::Thread;
use crate::task::system::System;

/// Nanoseconds of a clock tick as `/proc` counts (`USER_HZ` is 100).
pub(super) const TICK_NS: u64 = 10_000_000;

/// What a text is about.
pub(super) struct Subject<'a> {
    pub(super) system: &'a System,
    pub(super) member: &'a Member,
    pub(super) thread: &'a Thread,
}

/// A thread's signal sets.
struct SignalSets {
    pending: SignalSet,
    shared_pending: SignalSet,
    blocked: SignalSet,
    ignored: SignalSet,
    caught: SignalSet,
}

impl SignalSets {
    fn of(subject: &Subject<'_>) -> Self {
        let thread = subject.thread.signals.lock();
        let shared = subject.member.process.signals.lock();
        let (mut ignored, mut caught) = (SignalSet::EMPTY, SignalSet::EMPTY);
        for signal in (1..=u64::from(SIGNAL_MAX)).filter_map(|number| Signal::new(number).ok()) {
            match shared.dispositions.get(signal).handler {
                HANDLER_DEFAULT => {}
                HANDLER_IGNORE => ignored = ignored.union(signal.bit()),
                _ => caught = caught.union(signal.bit()),
            }
        }
        Self {
            pending: thread.pending.set(),
            shared_pending: shared.pending.set(),
            blocked: thread.mask,
            ignored,
            caught,
        }
    }
}

/// Of a thread; a process that has ended and was not waited for is a zombie.
fn state(subject: &Subject<'_>) -> (&'static str, &'static str) {
    let process = &subject.member.process;
    match (process.has_ended(), subject.thread.task.is_blocked()) {
        (true, _) => ("Z", "zombie"),
        (false, false) => ("R", "running"),
        (false, true) if process.pause.lock().stopped_by.is_some() => ("T", "stopped"),
        (false, true) if process.trace.is_stopped() => ("t", "tracing stop"),
        (false, true) => ("S", "sleeping"),
    }
}

/// `status`.
pub(super) fn status(subject: &Subject<'_>, out: &mut Text<'_>) {
    let process = &*subject.member.process;
    out.raw(b"Name:\t");
    out.escaped(&subject.thread.name.lock(), b"\n\\");
    let (letter, word) = state(subject);
    put!(out, "\nUmask:\t{:04o}\nState:\t{letter} ({word})\n", process.files.umask());
    put!(
        out,
        "Tgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t{}\n",
        process.pid,
        subject.thread.tid(),
        process.visible_parent()
    );
    put!(out, "TracerPid:\t{}\n", process.trace.tracer());
    identity_lines(subject, out);
    let group = *process.group.lock();
    let session = *process.session.lock();
    put!(out, "NStgid:\t{}\nNSpid:\t{}\n", process.pid, subject.thread.tid());
    put!(out, "NSpgid:\t{group}\nNSsid:\t{session}\n");
    status_lines(process, out);
    let has_large_pages = u8::from(!process.has_no_large_pages.load(Ordering::Relaxed));
    put!(out, "CoreDumping:\t0\nTHP_enabled:\t{has_large_pages}\n");
    put!(out, "Threads:\t{}\n", subject.member.threads.len());
    signal_lines(subject, out);
    let has_no_new_privileges = u8::from(subject.thread.identities.lock().has_no_new_privileges);
    put!(out, "NoNewPrivs:\t{has_no_new_privileges}\n");
    out.raw(b"Seccomp:\t0\nSeccomp_filters:\t0\n");
    out.raw(b"Speculation_Store_Bypass:\tunknown\nSpeculationIndirectBranch:\tunknown\n");
    let count = subject.system.processor_count.clamp(1, 64);
    put!(out, "Cpus_allowed:\t{}\n", processor_mask(count));
    match count {
        1 => out.raw(b"Cpus_allowed_list:\t0\n"),
        count => put!(out, "Cpus_allowed_list:\t0-{}\n", count - 1),
    }
    out.raw(b"Mems_allowed:\t00000000,00000001\nMems_allowed_list:\t0\n");
    out.raw(b"voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n");
}

fn identity_lines(subject: &Subject<'_>, out: &mut Text<'_>) {
    let process = &*subject.member.process;
    let identities = subject.thread.identities.lock().clone();
    for (label, ids) in [("Uid", identities.uid), ("Gid", identities.gid)] {
        put!(out, "{label}:\t{}\t{}\t{}\t{}\n", ids[0], ids[1], ids[2], ids[3]);
    }
    // Tables grow in steps of 64 on Linux, and this says how far.
    let size = process.files.table().size().next_multiple_of(64).max(64);
    put!(out, "FDSize:\t{size}\nGroups:\t");
    let mut separator = "";
    for group in &identities.groups {
        put!(out, "{separator}{group}");
        separator = " ";
    }
    out.raw(b" \n");
}

fn signal_lines(subject: &Subject<'_>, out: &mut Text<'_>) {
    let process = &*subject.member.process;
    let sets = SignalSets::of(subject);
    let waiting = sets.pending.0.count_ones() + sets.shared_pending.0.count_ones();
    put!(out, "SigQ:\t{waiting}/{}\n", process.limits.lock().soft(Resource::PendingSignals));
    let rows = [
        ("SigPnd", sets.pending),
        ("ShdPnd", sets.shared_pending),
        ("SigBlk", sets.blocked),
        ("SigIgn", sets.ignored),
        ("SigCgt", sets.caught),
    ];
    for (label, set) in rows {
        put!(out, "{label}:\t{:016x}\n", set.0);
    }
    let held = subject.thread.identities.lock().capabilities;
    let rows = [
        ("Inh", held.inheritable),
        ("Prm", held.permitted),
        ("Eff", held.effective),
        ("Bnd", held.bounding),
        ("Amb", held.ambient),
    ];
    for (label, set) in rows {
        put!(out, "Cap{label}:\t{:016x}\n", set.0);
    }
}

/// The first `count` processors as a mask: one hexadecimal digit for each four, groups of 32
/// separated by commas.
fn processor_mask(count: u32) -> String {
    let mask = u64::MAX >> (64 - count);
    let digit_count = count.div_ceil(4) as usize;
    if count <= 32 {
        alloc::format!("{mask:0digit_count$x}")
    } else {
        let high_digit_count = digit_count - 8;
        alloc::format!("{:0high_digit_count$x},{:08x}", mask >> 32, mask as u32)
    }
}

/// Ranges for readers that may not see them: whether there is a program at all.
fn hidden_ranges(ranges: &ProgramRanges) -> ProgramRanges {
    let is_there = u64::from(ranges.code_end != 0);
    ProgramRanges { code_start: is_there, code_end: is_there, ..ProgramRanges::default() }
}

/// `stat`: 52 fields. Addresses are told only to a reader that may look into the process.
pub(super) fn stat(subject: &Subject<'_>, is_open: bool, out: &mut Text<'_>) {
    /// `PF_RANDOMIZE`.
    const FLAGS: u32 = 0x40_0000;
    const LEGACY_SIGNALS: u64 = 0x7fff_ffff;
    let process = &*subject.member.process;
    let sets = SignalSets::of(subject);
    let ranges = program_ranges(process);
    let (totals, faults, heap) = {
        let memory = process.space();
        let space = memory.lock();
        (space.totals(), space.fault_counts(), space.heap())
    };
    let (ranges, heap_start, start_stack) = match is_open {
        true => (ranges, heap.start, process.image.lock().start_stack),
        false => (hidden_ranges(&ranges), 0, 0),
    };
    let nice = subject.thread.nice();
    put!(out, "{} (", subject.thread.tid());
    out.escaped(&subject.thread.name.lock(), b"\n\\");
    put!(out, ") {} {} ", state(subject).0, process.visible_parent());
    let group = *process.group.lock();
    let session = *process.session.lock();
    put!(out, "{group} {session} ");
    match subject.system.files.terminals.controlling(session) {
        Some(tty) => {
            let device = DeviceNumber { major: TERMINAL_MAJOR, minor: tty.index() }.encoded();
            put!(out, "{device} {} {FLAGS} ", tty.foreground_group());
        }
        None => put!(out, "0 -1 {FLAGS} "),
    }
    put!(out, "{} 0 0 0 ", faults.resolved);
    let (own, children) = (process.used_time(subject.system.kernel.now_ns()), process.times.lock().children);
    for ns in [own.user_ns(), own.system_ns, children.user_ns(), children.system_ns] {
        put!(out, "{} ", ns / TICK_NS);
    }
    put!(out, "{} {nice} ", 20 + nice);
    put!(out, "{} 0 {} ", subject.member.threads.len(), process.start_ns / TICK_NS);
    let resident_limit = process.limits.lock().soft(Resource::ResidentSet);
    put!(out, "{} {} {resident_limit} ", totals.areas.total * 4096, resident(&totals));
    put!(out, "{} {} {start_stack} 0 0 ", ranges.code_start, ranges.code_end);
    let pending = sets.pending.union(sets.shared_pending);
    for set in [pending, sets.blocked, sets.ignored, sets.caught] {
        put!(out, "{} ", set.0 & LEGACY_SIGNALS);
    }
    // wchan nswap cnswap exit_signal processor rt_priority policy delayacct_blkio_ticks guest_time
    // cguest_time
    put!(out, "0 0 0 {} 0 0 0 0 0 0 ", Signal::CHLD.number());
    put!(out, "{} {} {} ", ranges.data_start, ranges.data_end, heap_start);
    // arg_start arg_end env_start env_end exit_code: where they lie on the stack is not kept.
    out.raw(b"0 0 0 0 0\n");
}

/// `syscall`: the call that the thread is in. `EPERM`: the reader may not know.
pub(super) fn call(subject: &Subject<'_>, may_look: bool, out: &mut Text<'_>) -> Result<()> {
    if !may_look {
        return Err(Errno::EPERM);
    }
    let thread = subject.thread;
    if subject.member.process.has_ended() {
        out.raw(b"-1 0x0 0x0\n");
        return Ok(());
    }
    let is_own = subject.system.listing.current_numbers().1 == thread.tid();
    let is_there = || is_own || thread.task.is_blocked();
    let stopped_in = *thread.stopped_in.lock();
    let registers = if is_there() { subject.system.platform.program_registers(thread) } else { None };
    let Some(frame) = registers.filter(|_| is_there() && *thread.stopped_in.lock() == stopped_in) else {
        out.raw(b"running\n");
        return Ok(());
    };
    let in_call = (frame.kind == UpcallKind::Syscall as u32).then_some(frame.rax);
    match stopped_in.unwrap_or(in_call) {
        Some(number) => {
            put!(out, "{}", number as i64);
            for argument in [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9] {
                put!(out, " {argument:#x}");
            }
        }
        None => out.raw(b"-1"),
    }
    put!(out, " {:#x} {:#x}\n", frame.rsp, frame.rip);
    Ok(())
}

/// `limits`.
pub(super) fn limits(limits: &Limits, out: &mut Text<'_>) {
    const ROWS: [(&str, &str); RESOURCE_COUNT] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    put!(out, "{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    for (resource, (name, unit)) in ROWS.into_iter().enumerate() {
        let Ok(limit) = limits.get(resource) else {
            continue;
        };
        put!(out, "{name:<25} ");
        for value in [limit.soft, limit.hard] {
            match value {
                UNLIMITED => put!(out, "{:<20} ", "unlimited"),
                value => put!(out, "{value:<20} "),
            }
        }
        match unit {
            "" => out.raw(b"\n"),
            unit => put!(out, "{unit:<10}\n"),
        }
    }
}

/// `io`: nothing of it is counted.
pub(super) fn input_output(out: &mut Text<'_>) {
    out.raw(b"rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n");
}

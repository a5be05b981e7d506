//! Texts about the system: `meminfo`, `stat`, `uptime` and the values below `sys/`.

use alloc::vec::Vec;

use aegis_abi::layout::PROGRAM_BASE;
use exos::fs::proc_fs::SystemText;
use exos::fs::stream_inode::TERMINAL_MAJOR;
use exos::mem::area::AREA_COUNT_MAX;

use super::process_text::TICK_NS;
use exos::fs::terminal::table::TERMINAL_COUNT_MAX;
use exos::fs::watch::{EVENT_COUNT_MAX, INSTANCE_COUNT_MAX, WATCH_COUNT_MAX};

use super::text::{Text, put};
use super::{disk_text, ipc_text, processor_text};
use crate::file::epoll::ENTRY_COUNT_MAX;
use crate::task::listing::Member;
use crate::task::system::{RELEASE, System, VERSION};

const SECOND_NS: u64 = 1_000_000_000;

/// What the texts are about.
pub(super) struct Subject<'a> {
    pub(super) system: &'a System,
    pub(super) members: &'a [Member],
    pub(super) boot_id: [u8; 16],
}

/// Appends a text.
pub(super) fn append(subject: &Subject<'_>, text: SystemText, out: &mut Text<'_>) {
    let system = subject.system;
    match text {
        SystemText::CommandLine => out.raw(b"\n"),
        SystemText::Devices => devices(out),
        SystemText::DiskStatistics => disk_text::statistics(&system.files.disks, out),
        SystemText::Partitions => disk_text::partitions(&system.files.disks, out),
        SystemText::TerminalDrivers => terminal_drivers(out),
        SystemText::FileSystems => file_systems(system, out),
        SystemText::LoadAverage => load_average(subject, out),
        SystemText::Memory => memory(subject, out),
        SystemText::Processors => {
            processor_text::append(&*system.platform, system.processor_count, out);
        }
        SystemText::Stat => stat(subject, out),
        SystemText::Uptime => uptime(system, out),
        SystemText::Version => {
            out.raw(b"Linux version ");
            out.raw(RELEASE);
            out.raw(b" (aegis@aegis) (rustc) ");
            out.raw(VERSION);
            out.raw(b"\n");
        }
        SystemText::VirtualMemoryStatistics => memory_statistics(subject, out),
        SystemText::DomainName => line(&system.domain_name.lock(), out),
        SystemText::HostName => line(&system.hostname.lock(), out),
        SystemText::SystemName => out.raw(b"Linux\n"),
        SystemText::SystemRelease => line(RELEASE, out),
        SystemText::SystemVersion => line(VERSION, out),
        SystemText::BootId => uuid(subject.boot_id, out),
        SystemText::Uuid => uuid(random_uuid(system), out),
        SystemText::QueueMessageCount
        | SystemText::QueueMessageCountMax
        | SystemText::QueueMessageBytes
        | SystemText::QueueMessageBytesMax
        | SystemText::QueueCountMax
        | SystemText::MessageBytesMax
        | SystemText::MessageQueueBytes
        | SystemText::MessageQueueCountMax
        | SystemText::SemaphoreLimits
        | SystemText::SharedMemoryPages
        | SystemText::SharedMemoryMax
        | SystemText::SharedMemoryCountMax => ipc_text::limit(&system.ipc, text, out),
        SystemText::MessageQueues => ipc_text::messages(&system.ipc, out),
        SystemText::SemaphoreSets => ipc_text::semaphores(&system.ipc, out),
        SystemText::SharedMemorySegments => ipc_text::segments(&system.ipc, out),
        SystemText::MapCountMax => put!(out, "{AREA_COUNT_MAX}\n"),
        SystemText::MmapMinAddress => put!(out, "{PROGRAM_BASE}\n"),
        SystemText::AsyncCount => put!(out, "{}\n", system.async_account.count()),
        SystemText::WatchesOfEpoll => put!(out, "{ENTRY_COUNT_MAX}\n"),
        SystemText::EventsOfWatcher => put!(out, "{EVENT_COUNT_MAX}\n"),
        SystemText::WatcherCountMax => put!(out, "{INSTANCE_COUNT_MAX}\n"),
        SystemText::WatchCountMax => put!(out, "{WATCH_COUNT_MAX}\n"),
        SystemText::TerminalCountMax => put!(out, "{TERMINAL_COUNT_MAX}\n"),
        _ => match text.constant() {
            Some(constant) => out.raw(constant.as_bytes()),
            None => out.raw(fixed(text)),
        },
    }
}

/// What is always the same: what is not there is 0, and so is everything that is kept elsewhere.
fn fixed(text: SystemText) -> &'static [u8] {
    match text {
        SystemText::FileMax => b"9223372036854775807\n",
        SystemText::NrOpen | SystemText::PipeMaxSize => b"1048576\n",
        SystemText::CapabilityLast => b"40\n",
        SystemText::GroupCountMax => b"65536\n",
        SystemText::OverflowGid | SystemText::OverflowUid => b"65534\n",
        SystemText::ProcessIdMax => b"32768\n",
        SystemText::EntropyAvailable | SystemText::PoolSize => b"256\n",
        SystemText::ThreadsMax => b"4096\n",
        SystemText::OvercommitMemory => b"0\n",
        SystemText::OvercommitRatio => b"50\n",
        SystemText::CorePattern => b"core\n",
        SystemText::ConsoleLevels => b"7\t4\t1\t7\n",
        SystemText::FileOverflowGid | SystemText::FileOverflowUid => b"65534\n",
        SystemText::LogRestricted | SystemText::Leases | SystemText::DirectoryNotices => b"1\n",
        SystemText::Randomisation => b"2\n",
        SystemText::Events => b"3\n",
        _ => b"0\n",
    }
}

fn line(text: &[u8], out: &mut Text<'_>) {
    out.raw(text);
    out.raw(b"\n");
}

fn uuid(bytes: [u8; 16], out: &mut Text<'_>) {
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.raw(b"-");
        }
        put!(out, "{byte:02x}");
    }
    out.raw(b"\n");
}

/// Programs look a driver's number up here.
fn devices(out: &mut Text<'_>) {
    out.raw(b"Character devices:\n");
    for (major, name) in [(1, "mem"), (5, "/dev/tty"), (5, "/dev/console"), (136, "pts")] {
        put!(out, "{major:>3} {name}\n");
    }
    out.raw(b"\nBlock devices:\n");
}

/// Programs look the name of a terminal up here by its number.
fn terminal_drivers(out: &mut Text<'_>) {
    let rows = [
        ("/dev/tty", "tty", 5, "0", "system:/dev/tty"),
        ("/dev/console", "console", 5, "1", "system:console"),
        ("/dev/ptmx", "ptmx", 5, "2", "system"),
        ("pty_slave", "pts", TERMINAL_MAJOR, "0-1048575", "pty:slave"),
        ("pty_master", "ptm", 128, "0-1048575", "pty:master"),
    ];
    for (driver, name, major, minors, kind) in rows {
        put!(out, "{driver:<20} /dev/{name:<8} {major:>3} {minors:>7} {kind}\n");
    }
}

/// The kinds of file systems that are mounted, each once; only the root image's has a device.
fn file_systems(system: &System, out: &mut Text<'_>) {
    let mut kinds: Vec<&str> = Vec::new();
    for mount in system.files.namespace.mounts() {
        if !kinds.contains(&mount.description.kind) {
            kinds.push(mount.description.kind);
        }
    }
    for kind in kinds {
        put!(out, "{}\t{kind}\n", if kind == "erofs" { "" } else { "nodev" });
    }
}

fn load_average(subject: &Subject<'_>, out: &mut Text<'_>) {
    let last_pid = subject.members.last().map_or(0, |member| member.process.pid);
    let threads: usize = subject.members.iter().map(|member| member.threads.len()).sum();
    put!(out, "0.00 0.00 0.00 1/{threads} {last_pid}\n");
}

/// Time since the start, and time that all processors together were idle.
fn times_ns(system: &System) -> (u64, u64) {
    let up_ns = system.kernel.now_ns();
    let all_ns = up_ns.saturating_mul(u64::from(system.processor_count));
    (up_ns, all_ns.saturating_sub(system.platform.processor_time_ns()))
}

fn uptime(system: &System, out: &mut Text<'_>) {
    let (up_ns, idle_ns) = times_ns(system);
    let hundredths = |ns: u64| ns % SECOND_NS / 10_000_000;
    put!(out, "{}.{:02} ", up_ns / SECOND_NS, hundredths(up_ns));
    put!(out, "{}.{:02}\n", idle_ns / SECOND_NS, hundredths(idle_ns));
}

/// `stat`. Exos knows of its own processor time only; the first processor is the one that it used.
fn stat(subject: &Subject<'_>, out: &mut Text<'_>) {
    let system = subject.system;
    let (up_ns, idle_ns) = times_ns(system);
    let used = system.platform.processor_time_ns() / TICK_NS;
    put!(out, "cpu  {used} 0 0 {} 0 0 0 0 0 0\n", idle_ns / TICK_NS);
    for processor in 0..system.processor_count {
        let used = if processor == 0 { used } else { 0 };
        put!(out, "cpu{processor} {used} 0 0 {} 0 0 0 0 0 0\n", (up_ns / TICK_NS).saturating_sub(used));
    }
    let boot_s = system.realtime_ns().saturating_sub(up_ns) / SECOND_NS;
    put!(out, "intr 0\nctxt 0\nbtime {boot_s}\nprocesses {}\n", subject.members.len());
    out.raw(b"procs_running 1\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n");
}

/// The pod's memory in KiB.
struct MemoryFigures {
    total: u64,
    free: u64,
    anonymous: u64,
    mapped: u64,
    /// Used, but no private page of a process: files in memory, and exos itself.
    cached: u64,
    promised: u64,
    locked: u64,
    /// Of what is anonymous, what large pages map.
    large: u64,
    /// Exos's own, which is not part of the total.
    structures: u64,
    stacks: u64,
}

impl MemoryFigures {
    fn of(subject: &Subject<'_>) -> Self {
        let (total_bytes, free_bytes) = subject.system.memory_bytes();
        let (total, free) = (total_bytes / 1024, free_bytes / 1024);
        let own = subject.system.platform.own_memory();
        let (structures, stacks) = (own.heap_bytes / 1024, own.stack_bytes / 1024);
        let (anonymous, mapped, cached, promised, locked, large) = (0, 0, 0, 0, 0, 0);
        let mut figures = Self { total, free, anonymous, mapped, cached, promised, locked, large, structures, stacks };
        for member in subject.members {
            let totals = member.process.space().lock().totals();
            figures.anonymous += totals.resident_anonymous * 4;
            figures.mapped += totals.resident_file * 4;
            figures.promised += (totals.areas.data + totals.areas.stack) * 4;
            figures.locked += totals.areas.locked * 4;
            figures.large += totals.large * 4;
        }
        figures.cached = total.saturating_sub(free + figures.anonymous);
        figures
    }
}

fn memory(subject: &Subject<'_>, out: &mut Text<'_>) {
    let figures = MemoryFigures::of(subject);
    let rows = [
        ("MemTotal", figures.total),
        ("MemFree", figures.free),
        ("MemAvailable", figures.free),
        ("Buffers", 0),
        ("Cached", figures.cached),
        ("SwapCached", 0),
        ("Active", figures.anonymous + figures.cached),
        ("Inactive", 0),
        ("Active(anon)", figures.anonymous),
        ("Inactive(anon)", 0),
        ("Active(file)", figures.cached),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("Mlocked", figures.locked),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", figures.anonymous),
        ("Mapped", figures.mapped),
        ("Shmem", 0),
        ("KReclaimable", 0),
        ("Slab", figures.structures),
        ("SReclaimable", 0),
        ("SUnreclaim", figures.structures),
        ("KernelStack", figures.stacks),
        ("PageTables", 0),
        ("SecPageTables", 0),
        ("NFS_Unstable", 0),
        ("Bounce", 0),
        ("WritebackTmp", 0),
        ("CommitLimit", figures.total / 2),
        ("Committed_AS", figures.promised),
        ("VmallocTotal", 34_359_738_367),
        ("VmallocUsed", 0),
        ("VmallocChunk", 0),
        ("Percpu", 0),
        ("HardwareCorrupted", 0),
        ("AnonHugePages", figures.large),
        ("ShmemHugePages", 0),
        ("ShmemPmdMapped", 0),
        ("FileHugePages", 0),
        ("FilePmdMapped", 0),
    ];
    for (label, kib) in rows {
        put!(out, "{:<16}{kib:>8} kB\n", alloc::format!("{label}:"));
    }
    for label in ["Total", "Free", "Rsvd", "Surp"] {
        put!(out, "{:<16}{:>8}\n", alloc::format!("HugePages_{label}:"), 0);
    }
    put!(out, "{:<16}{:>8} kB\n", "Hugepagesize:", 2048);
    put!(out, "{:<16}{:>8} kB\n", "Hugetlb:", 0);
}

fn memory_statistics(subject: &Subject<'_>, out: &mut Text<'_>) {
    let figures = MemoryFigures::of(subject);
    let faults = subject.system.fault_counts().resolved;
    let rows = [
        ("nr_free_pages", figures.free / 4),
        ("nr_inactive_anon", 0),
        ("nr_active_anon", figures.anonymous / 4),
        ("nr_inactive_file", 0),
        ("nr_active_file", figures.cached / 4),
        ("nr_mlock", figures.locked / 4),
        ("nr_anon_pages", figures.anonymous / 4),
        ("nr_mapped", figures.mapped / 4),
        ("nr_file_pages", figures.cached / 4),
        ("nr_dirty", 0),
        ("nr_writeback", 0),
        ("pgpgin", 0),
        ("pgpgout", 0),
        ("pswpin", 0),
        ("pswpout", 0),
        ("pgfault", faults),
        ("pgmajfault", 0),
        ("oom_kill", 0),
    ];
    for (label, value) in rows {
        put!(out, "{label} {value}\n");
    }
}

/// 16 random bytes as a version 4 UUID (RFC 9562, section 5.4).
pub(super) fn random_uuid(system: &System) -> [u8; 16] {
    let mut bytes = [0; 16];
    system.kernel.random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

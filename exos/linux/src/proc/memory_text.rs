//! `maps`, `smaps`, `smaps_rollup`, `statm`: a process's areas (`fs/proc/task_mmu.c`).

use aegis_abi::layout::{LARGE_PAGE_SIZE, PAGE_SHIFT};
use exos::fs::metadata::DeviceNumber;
use exos::mem::{
    AddressSpace, Area, AreaFlags, AreaLabel, FileIdentity, PresentPages, Protection, SHARE_SHIFT, SpaceTotals,
};
use exos::preempt;

use super::text::{Text, put};
use crate::task::memory::Space;
use crate::task::process::Process;

/// Column at which `maps` shows names.
const NAME_COLUMN: usize = 73;
const PAGE_KIB: u64 = 4;
/// Areas that are shown while the memory is locked once.
const AREA_COUNT_AT_ONCE: usize = 128;

/// Where a program's own parts lie, as its executable was mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramRanges {
    pub(super) code_start: u64,
    pub(super) code_end: u64,
    pub(super) data_start: u64,
    pub(super) data_end: u64,
}

/// The executable's code and data areas.
pub(super) fn program_ranges(process: &Process) -> ProgramRanges {
    let location = process.image.lock().location.clone();
    let Some(location) = location else {
        return ProgramRanges::default();
    };
    let metadata = location.inode().metadata();
    let identity = FileIdentity { device: metadata.device.encoded(), inode: metadata.inode_number };
    let mut ranges = ProgramRanges::default();
    let extend = |start: &mut u64, end: &mut u64, area: &Area| {
        if *end == 0 {
            *start = area.start();
        }
        *end = area.end();
    };
    for_each_area(&process.space(), |_, area| {
        if area.file().is_none() || area.identity() != identity {
            return;
        }
        if area.protection().contains(Protection::EXECUTE) {
            extend(&mut ranges.code_start, &mut ranges.code_end, area);
        } else if area.protection().contains(Protection::WRITE) {
            extend(&mut ranges.data_start, &mut ranges.data_end, area);
        }
    });
    ranges
}

/// Pages present.
pub(super) fn resident(totals: &SpaceTotals) -> u64 {
    totals.resident_anonymous + totals.resident_file
}

/// Shows `show` the areas in ascending order. As on Linux the memory is given back now and then, so that its process
/// can go on: what changes behind the place that was reached is shown as it is then. Ends early for a reader that was
/// killed.
fn for_each_area(memory: &Space, mut show: impl FnMut(&AddressSpace, &Area)) {
    let mut next = 0;
    loop {
        let before = next;
        let space = memory.lock();
        space.areas_from(next).take(AREA_COUNT_AT_ONCE).for_each(|area| {
            show(&space, area);
            next = area.end();
        });
        drop(space);
        if next == before || preempt::unless_killed().is_err() {
            return;
        }
    }
}

/// `maps`.
pub(super) fn maps(memory: &Space, out: &mut Text<'_>) {
    for_each_area(memory, |_, area| line(area, out));
}

/// The line of an area.
fn line(area: &Area, out: &mut Text<'_>) {
    if area.label() != AreaLabel::Trampolines {
        let line_start = out.len();
        let (major, minor, inode) = match area.label() {
            AreaLabel::Vdso | AreaLabel::Vvar => (0, 0, 0),
            _ => numbers(area.identity()),
        };
        let rights = rights(area);
        put!(out, "{:08x}-{:08x} {rights} ", area.start(), area.end());
        let offset = if area.label() == AreaLabel::None { area.offset_bytes() } else { 0 };
        put!(out, "{offset:08x} {major:02x}:{minor:02x} {inode} ");
        let name = area.name();
        if !name.is_empty() {
            out.pad_to(line_start, NAME_COLUMN);
            out.escaped(name.as_bytes(), b"\n");
        }
        out.raw(b"\n");
    }
}

/// Shows `show` the areas that Linux would have, with what is present of each. The memory is never locked for longer
/// than a part of an area takes, so that its process can go on. Ends early for a reader that was killed.
fn for_each_counted(memory: &Space, mut show: impl FnMut(&Area, &PresentPages)) {
    let mut next = 0;
    loop {
        let area = {
            let space = memory.lock();
            space.areas_from(next).find(|area| area.label() != AreaLabel::Trampolines).cloned()
        };
        let Some(area) = area else { return };
        next = area.end();
        let (mut counts, mut rest) = (PresentPages::default(), Some(area.start() >> PAGE_SHIFT));
        while let Some(page) = rest {
            if preempt::unless_killed().is_err() {
                return;
            }
            let part;
            (part, rest) = memory.lock().present_in(&(page..area.end() >> PAGE_SHIFT));
            counts += part;
        }
        show(&area, &counts);
    }
}

/// `smaps`: as [`rollup`], of each area.
pub(super) fn smaps(memory: &Space, out: &mut Text<'_>) {
    for_each_counted(memory, |area, present| {
        line(area, out);
        for (label, pages) in
            [("Size:", (area.end() - area.start()) >> 12), ("KernelPageSize:", 1), ("MMUPageSize:", 1)]
        {
            put!(out, "{label:<16}{:>8} kB\n", pages * PAGE_KIB);
        }
        page_rows(present, locked_of(area, present), out);
        let is_eligible = area.file().is_none() && !area.flags().contains(AreaFlags::NO_LARGE);
        put!(out, "THPeligible:    {}\n", u8::from(is_eligible && area.end() - area.start() >= LARGE_PAGE_SIZE));
        flag_row(area, out);
    });
}

/// Pages of an area that are locked.
fn locked_of(area: &Area, present: &PresentPages) -> u64 {
    if area.flags().contains(AreaFlags::LOCKED) { present.anonymous + present.file } else { 0 }
}

/// `VmFlags`, by the letters of proc(5), those that may be there as well as those that are.
fn flag_row(area: &Area, out: &mut Text<'_>) {
    let (protection, flags, is_shared) = (area.protection(), area.flags(), area.is_shared());
    let is_account = !is_shared && protection.contains(Protection::WRITE);
    let rows = [
        (protection.contains(Protection::READ), "rd"),
        (protection.contains(Protection::WRITE), "wr"),
        (protection.contains(Protection::EXECUTE), "ex"),
        (is_shared, "sh"),
        (true, "mr mw me"),
        (is_shared, "ms"),
        (flags.contains(AreaFlags::GROWS_DOWN), "gd"),
        (flags.contains(AreaFlags::LOCKED), "lo"),
        (flags.contains(AreaFlags::DONT_FORK), "dc"),
        (is_account, "ac"),
        (flags.contains(AreaFlags::WIPE_ON_FORK), "wf"),
        (flags.contains(AreaFlags::LARGE), "hg"),
        (flags.contains(AreaFlags::NO_LARGE), "nh"),
    ];
    out.raw(b"VmFlags: ");
    rows.iter().filter(|row| row.0).for_each(|row| put!(out, "{} ", row.1));
    out.raw(b"\n");
}

fn numbers(identity: FileIdentity) -> (u32, u32, u64) {
    let device = DeviceNumber::decoded(identity.device as u32);
    (device.major, device.minor, identity.inode)
}

fn rights(area: &Area) -> &'static str {
    let protection = area.protection();
    let has = |right| usize::from(protection.contains(right));
    let index = has(Protection::READ) | has(Protection::WRITE) << 1 | has(Protection::EXECUTE) << 2;
    const PRIVATE: [&str; 8] = ["---p", "r--p", "-w-p", "rw-p", "--xp", "r-xp", "-wxp", "rwxp"];
    const SHARED: [&str; 8] = ["---s", "r--s", "-w-s", "rw-s", "--xs", "r-xs", "-wxs", "rwxs"];
    if area.is_shared() { SHARED[index] } else { PRIVATE[index] }
}

/// `smaps_rollup`.
pub(super) fn rollup(memory: &Space, out: &mut Text<'_>) {
    let (mut range, mut present, mut locked) = (None, PresentPages::default(), 0);
    for_each_counted(memory, |area, counts| {
        let (start, _) = range.unwrap_or((area.start(), 0));
        range = Some((start, area.end()));
        present += *counts;
        locked += locked_of(area, counts);
    });
    let (start, end) = range.unwrap_or_default();
    let line_start = out.len();
    put!(out, "{start:08x}-{end:08x} ---p 00000000 00:00 0 ");
    out.pad_to(line_start, NAME_COLUMN);
    out.raw(b"[rollup]\n");
    page_rows(&present, locked, out);
}

/// The rows that all areas together have, too. Which file pages others share is not counted: all are shown as private
/// and clean.
fn page_rows(present: &PresentPages, locked: u64, out: &mut Text<'_>) {
    let PresentPages { anonymous, file, large, shared, .. } = *present;
    let share_kib = |file: u64| ((present.share * PAGE_KIB) >> SHARE_SHIFT) + file * PAGE_KIB;
    let rows = [
        ("Rss:", (anonymous + file) * PAGE_KIB),
        ("Pss:", share_kib(file)),
        ("Pss_Dirty:", share_kib(0)),
        ("Pss_Anon:", share_kib(0)),
        ("Pss_File:", file * PAGE_KIB),
        ("Pss_Shmem:", 0),
        ("Shared_Clean:", 0),
        ("Shared_Dirty:", shared * PAGE_KIB),
        ("Private_Clean:", file * PAGE_KIB),
        ("Private_Dirty:", (anonymous - shared) * PAGE_KIB),
        ("Referenced:", (anonymous + file) * PAGE_KIB),
        ("Anonymous:", anonymous * PAGE_KIB),
        ("LazyFree:", 0),
        ("AnonHugePages:", large * PAGE_KIB),
        ("ShmemPmdMapped:", 0),
        ("FilePmdMapped:", 0),
        ("Shared_Hugetlb:", 0),
        ("Private_Hugetlb:", 0),
        ("Swap:", 0),
        ("SwapPss:", 0),
        ("Locked:", locked * PAGE_KIB),
    ];
    for (label, kib) in rows {
        put!(out, "{label:<16}{kib:>8} kB\n");
    }
}

/// `statm`: size, resident, shared, text, 0, data with stack, 0; in pages.
pub(super) fn statm(process: &Process, out: &mut Text<'_>) {
    let ranges = program_ranges(process);
    let code = (ranges.code_end - ranges.code_start) >> 12;
    let totals = process.space().lock().totals();
    let data = totals.areas.data + totals.areas.stack;
    put!(out, "{} {} {} {code} 0 {data} 0\n", totals.areas.total, resident(&totals), totals.resident_file);
}

/// The memory lines of `status`.
pub(super) fn status_lines(process: &Process, out: &mut Text<'_>) {
    let ranges = program_ranges(process);
    let memory = process.space();
    let space = memory.lock();
    let totals = space.totals();
    let code = (ranges.code_end - ranges.code_start) >> 12;
    // The tables that cover what is present: an estimate, as the kernel keeps them.
    let tables = 3 + resident(&totals).div_ceil(512);
    let stack: u64 = space
        .areas()
        .filter(|area| area.flags().contains(AreaFlags::GROWS_DOWN))
        .map(|area| (area.end() - area.start()) >> 12)
        .sum();
    let rows = [
        ("VmPeak", totals.total_peak.max(totals.areas.total)),
        ("VmSize", totals.areas.total),
        ("VmLck", totals.areas.locked),
        ("VmPin", 0),
        ("VmHWM", totals.resident_peak.max(resident(&totals))),
        ("VmRSS", resident(&totals)),
        ("RssAnon", totals.resident_anonymous),
        ("RssFile", totals.resident_file),
        ("RssShmem", 0),
        ("VmData", totals.areas.data),
        ("VmStk", stack),
        ("VmExe", code),
        ("VmLib", totals.areas.code.saturating_sub(code)),
        ("VmPTE", tables),
        ("VmSwap", 0),
        ("HugetlbPages", 0),
    ];
    for (label, pages) in rows {
        put!(out, "{label}:\t{:>8} kB\n", pages * PAGE_KIB);
    }
}

//! Suite `boot`: time to the first output, least memory, and bytes that a machine is started from.
//!
//! The program is the host's static busybox. Linux starts it as its first process out of an initramfs; both
//! systems start through the same firmware on `-M pc`, and Aegis also on the machine type that it uses by default.
//! This module measures times; `memory` and `bytes` do the rest.
//!
//! Where a kernel begins is seen from outside: Linux speaks on the serial port at once when it is asked
//! to (in runs of their own, because that costs time). Aegis reports its own clock from its entry to the end
//! of the program, which is a little more than to its first output.

mod bytes;
mod memory;

use std::path::{Path, PathBuf};
use std::time::Duration;

use aegis_launch::machine::accel::firmware_for;
use aegis_launch::machine::qemu::MachineKind;
use serde_json::Value;

use super::failure::{Failure, last_line};
use super::filter::RowFilter;
use super::guest::{Event, Guest, Limits, Line};
use super::linux::{Kernel, TUNED};
use super::options::BenchOptions;
use super::progress;
use super::result::{Cell, Column, Measured, Row, Table};
use super::system::{LinuxLine, Machines, Shape, aegis_line, shown};

/// Memory of a machine in MiB, and the most that the least memory can be.
const MEMORY_MIB: u32 = 256;
const LIMITS: Limits = Limits { silence: Duration::from_secs(60), total: Duration::from_secs(60) };
/// What busybox is told to say. The kernel's log ends a line with it too, where it shows its command line.
const WORD: &str = "aegis-bench-hello";
/// Makes Linux say something on the serial port as soon as it runs. Later words take most of `debug` back.
const ENTRY_WORDS: &str = "earlyprintk=ttyS0 debug";
/// Rows in milliseconds.
const TIME_ROWS: [&str; 2] = ["command_to_output", "kernel_entry_to_output"];
/// The row in MiB.
const MEMORY_ROW: &str = "memory_busybox_true";

/// Measures, one system after the other, as often as asked for; `None` if no row is asked for.
pub(super) fn run(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    if !TIME_ROWS.iter().chain(&[MEMORY_ROW]).chain(&bytes::ROWS).any(|name| filter.finds(name)) {
        return Ok(None);
    }
    let busybox = find_busybox()?;
    let initramfs = machines.host_initramfs("busybox", &busybox)?;
    let ways = ways(machines);
    let mut tables = Vec::new();
    if TIME_ROWS.iter().any(|name| filter.finds(name)) {
        tables.push(times(options, machines, &ways, filter, &busybox, &initramfs)?);
    }
    if filter.finds(MEMORY_ROW) {
        tables.push(least_memory(machines, &ways, &busybox, &initramfs)?);
    }
    tables.extend(bytes::table(machines, &busybox, &initramfs, filter)?);
    Ok(Some(Measured { tables, ..Measured::default() }))
}

/// A machine type with a system on it.
enum Way<'a> {
    /// `aegis run -M` this.
    Aegis(&'static str),
    /// Linux on `-M pc`.
    Linux(&'a Kernel),
}

impl Way<'_> {
    fn key(&self) -> &'static str {
        match self {
            Self::Aegis("microvm") => "aegis_microvm",
            Self::Aegis(_) => "aegis_pc",
            Self::Linux(_) => "linux_pc",
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Aegis("microvm") => "Aegis microvm",
            Self::Aegis(_) => "Aegis pc",
            Self::Linux(_) => "Linux pc",
        }
    }

    fn column(&self, command: String) -> Column {
        Column { key: self.key().into(), title: self.title().into(), command }
    }
}

fn ways(machines: &Machines) -> Vec<Way<'_>> {
    let aegis = ["microvm", "pc"].map(Way::Aegis).into_iter().filter(|_| machines.has_aegis());
    aegis.chain(machines.linux.as_ref().map(Way::Linux)).collect()
}

/// The columns that are on the same machine type.
fn compared(ways: &[Way<'_>]) -> Option<(usize, usize)> {
    let place = |key: &str| ways.iter().position(|it| it.key() == key);
    place("aegis_pc").zip(place("linux_pc"))
}

fn times(
    options: &BenchOptions,
    machines: &Machines,
    ways: &[Way<'_>],
    filter: &RowFilter,
    busybox: &Path,
    initramfs: &Path,
) -> Result<Table, Failure> {
    let subjects: Vec<Subject> = ways.iter().map(|way| Subject::new(machines, way, busybox, initramfs)).collect();
    let mut cells = vec![[Cell::NotAsked, Cell::NotAsked]; subjects.len()];
    for pair in 1..=options.pairs {
        for (subject, [output, entry]) in subjects.iter().zip(&mut cells) {
            progress::say(&format!("boot of {}, run {pair} of {}", subject.title, options.pairs));
            if filter.finds(TIME_ROWS[0]) {
                output.merge(milliseconds(subject.to_output()?));
            }
            if filter.finds(TIME_ROWS[1]) {
                entry.merge(match subject.entry_to_output()? {
                    Some(time) => milliseconds(time),
                    None => Cell::NotAvailable("its entry is not seen".into()),
                });
            }
        }
    }
    let rows = TIME_ROWS.iter().enumerate().filter(|(_, name)| filter.finds(name));
    let rows = rows.map(|(index, name)| Row {
        name: (*name).into(),
        cells: cells.iter().map(|both| both[index].clone()).collect(),
        beside: None,
    });
    Ok(Table {
        suite: "boot".into(),
        unit: "ms".into(),
        columns: ways.iter().zip(&subjects).map(|(way, it)| way.column(shown(&it.line))).collect(),
        compared: compared(ways),
        rows: rows.collect(),
    })
}

fn least_memory(machines: &Machines, ways: &[Way<'_>], busybox: &Path, initramfs: &Path) -> Result<Table, Failure> {
    let mut columns = Vec::new();
    let mut cells = Vec::new();
    for way in ways {
        let mib = memory::least_mib(machines, way, busybox, initramfs)?;
        cells.push(Cell::Values(vec![mib.into()]));
        columns.push(way.column(shown(&memory::line(machines, way, busybox, initramfs, mib))));
    }
    Ok(Table {
        suite: "boot".into(),
        unit: "MiB".into(),
        columns,
        compared: compared(ways),
        rows: vec![Row { name: MEMORY_ROW.into(), cells, beside: None }],
    })
}

fn milliseconds(time: Duration) -> Cell {
    Cell::Values(vec![time.as_secs_f64() * 1e3])
}

fn linux_line(machines: &Machines, kernel: &Kernel, initramfs: &Path, memory_mib: u32, append: String) -> Line {
    LinuxLine {
        qemu: &machines.qemu,
        kernel: &kernel.image,
        initramfs,
        memory_mib,
        append,
        firmware: firmware_for(MachineKind::Pc),
        shape: Shape { icount_shift: None, cpu_count: 1 },
    }
    .build()
}

/// One way to start the program that says the word.
struct Subject {
    title: &'static str,
    line: Line,
    /// Linux: the line on which the kernel says where it begins.
    entry_line: Option<Line>,
}

impl Subject {
    fn new(machines: &Machines, way: &Way<'_>, busybox: &Path, initramfs: &Path) -> Self {
        let (line, entry_line) = match way {
            Way::Aegis(kind) => {
                let program = vec![busybox.into(), "echo".into(), WORD.into()];
                let options = ["-M", kind, "-q", "--stats=json"];
                (aegis_line(&machines.tool, MEMORY_MIB, &options, program), None)
            }
            Way::Linux(kernel) => {
                let words = format!("{TUNED} rdinit=/busybox -- echo {WORD}");
                let loud = format!("{ENTRY_WORDS} {words}");
                let line = |append| linux_line(machines, kernel, initramfs, MEMORY_MIB, append);
                (line(words), Some(line(loud)))
            }
        };
        Self { title: way.title(), line, entry_line }
    }

    /// From the command to the word.
    fn to_output(&self) -> Result<Duration, Failure> {
        let mut guest = Guest::start(&self.line, LIMITS)?;
        match wait_for_word(&mut guest) {
            Ok((_, at)) => Ok(at),
            Err(why) => Err(self.not_up(why, guest)),
        }
    }

    /// From the kernel's first instruction to the word; `None` if that cannot be seen.
    fn entry_to_output(&self) -> Result<Option<Duration>, Failure> {
        let mut guest = Guest::start(self.entry_line.as_ref().unwrap_or(&self.line), LIMITS)?;
        let (entry, at) = match wait_for_word(&mut guest) {
            Ok(times) => times,
            Err(why) => return Err(self.not_up(why, guest)),
        };
        if self.entry_line.is_none() {
            return Ok(guest_time(&guest.finish_by_itself().errors));
        }
        Ok(entry.map(|entry| at.saturating_sub(entry)))
    }

    fn not_up(&self, why: &str, guest: Guest) -> Failure {
        Failure::NotUp(self.title, format!("{why}; {}", last_line(&guest.finish())))
    }
}

/// When the first line came, if it was not the word, and when the word did.
fn wait_for_word(guest: &mut Guest) -> Result<(Option<Duration>, Duration), &'static str> {
    let mut first = None;
    loop {
        match guest.next() {
            Event::Line(line, at) if line == WORD => return Ok((first, at)),
            Event::Line(_, at) => first = first.or(Some(at)),
            Event::End => return Err("it ended"),
            Event::Limit(why) => return Err(why),
        }
    }
}

/// The guest's own time from the kernel's entry to the end of the program, in what `aegis run --stats=json`
/// says.
fn guest_time(errors: &str) -> Option<Duration> {
    let line = errors.lines().find(|line| line.starts_with('{'))?;
    // It counts from the kernel's start.
    let total_ns = serde_json::from_str::<Value>(line).ok()?["guest"]["run_ns"].as_u64()?;
    Some(Duration::from_nanos(total_ns))
}

/// A busybox on PATH that needs no other file.
fn find_busybox() -> Result<PathBuf, Failure> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&search).map(|directory| directory.join("busybox"));
    let is_static = |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| is_static_elf(&bytes));
    candidates
        .into_iter()
        .find(is_static)
        .ok_or(Failure::Missing("a static busybox", "on Debian and Ubuntu: sudo apt install busybox-static"))
}

/// An x86-64 executable without an interpreter (ELF-64, program headers).
fn is_static_elf(bytes: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let table_at = bytes.get(32..40).and_then(|it| it.try_into().ok());
    let table_at = table_at.map_or(0, |it| u64::from_le_bytes(it) as usize);
    let (Some(size), Some(count)) = (u16_at(54), u16_at(56)) else {
        return false;
    };
    let kind = |index: u16| {
        let at = table_at.checked_add(usize::from(index) * usize::from(size))?;
        let field = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(field.try_into().ok()?))
    };
    bytes.starts_with(b"\x7fELF\x02\x01") && (0..count).all(|it| kind(it).is_some_and(|it| it != PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::{guest_time, is_static_elf};
    use std::time::Duration;

    #[test]
    fn the_guests_time_is_in_the_statistics() {
        let text = "aegis: a warning\n{\"status\":0,\"host\":{},\"guest\":{\"boot_ns\":2000,\"run_ns\":2500}}\n";
        assert_eq!(guest_time(text), Some(Duration::from_nanos(2500)));
        assert_eq!(guest_time("{\"guest\":{\"boot_ns\":1}}"), None);
        assert_eq!(guest_time("aegis: it failed\n"), None);
    }

    #[test]
    fn an_interpreter_is_seen() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        elf[64] = 1;
        elf[64 + 56] = 1;
        assert!(is_static_elf(&elf));
        elf[64 + 56] = 3;
        assert!(!is_static_elf(&elf));
        assert!(!is_static_elf(&elf[..100]), "cut off");
        assert!(!is_static_elf(b"#!/bin/sh\n"));
    }
}

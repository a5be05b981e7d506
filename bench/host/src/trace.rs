//! `aegis bench --trace-row NAME`: the functions that a row's instructions fell in, on Aegis and on Linux.
//!
//! A list of rows is run in its order, and the last is traced: so what rows leave behind for others is found.
//!
//! The machine is the one of `--icount micro`, with a plugin of QEMU's translator in it (`plugin`,
//! bench/trace/trace.c) that counts how often each instruction is executed inside the row's measured window of
//! the last batch. The program carries the marks of its windows in a section of its own; they are no
//! instructions, so a traced row costs what it always costs. `attribution` turns addresses into functions,
//! `path` cuts one operation out of the last instructions, `kernel_symbols` asks Linux for its own.
//!
//! Invariants: every execution lands in exactly one line of the table, so the table's sum is what was executed;
//! where that is not what the machine's clock counted, the difference is printed. One run, nothing sampled,
//! nothing scaled.
//!
//! Limits: [`LIMITS`], and those of the plugin: 2^18 different instructions in a window, the last 2^19 of it for
//! a path.

mod attribution;
mod inlined;
mod kernel_symbols;
mod path;
pub(crate) mod plugin;
pub(crate) mod starter;

use std::path::{Path, PathBuf};
use std::time::Duration;

use aegis_abi::layout::LIBOS_IMAGE_BASE;
use aegis_launch::domain::Domain;
use aegis_launch::machine::artifacts::Artifacts;
use aegis_launch::symbols::Symbols;

use super::failure::{Failure, last_line};
use super::guest::{Event, Guest, Limits};
use super::micro::{TWO_PROCESSORS, row_names};
use super::native;
use super::options::BenchOptions;
use super::output::Output;
use super::result::Cell;
use super::system::{Machines, Shape, System};
use attribution::{Attribution, Functions};
use plugin::{Counts, Plugin};
use starter::{Starter, read_file};

/// A traced machine runs some five times slower; one batch of one row is short all the same.
const LIMITS: Limits = Limits { silence: Duration::from_secs(300), total: Duration::from_secs(600) };
/// A machine as for `--icount`.
const SHAPE: Shape = Shape { icount_shift: Some(0), cpu_count: 1 };
/// How long the traced batch is, as `micro` counts: instructions of a millisecond.
const TARGET_US: &str = "1000";
/// The same where rows run before it: long enough to leave behind what a whole run leaves.
const TARGET_AFTER_OTHERS_US: &str = "20000";

/// Traces a row on each system that takes part; the answer is the text to print.
pub(super) fn run(options: &BenchOptions, name: &str) -> Result<String, Failure> {
    if name.contains(TWO_PROCESSORS) {
        return Err(Failure::Trace("instructions are counted on one processor, and that row has two".into()));
    }
    let machines = Machines::prepare(options)?;
    let native = native::find(name)
        .filter(|row| row.is_bare)
        .map(|_| native::Program::find(&machines.qemu, &machines.cache))
        .transpose()?;
    let (program, base) = match &native {
        Some(_) => (Artifacts::find().native_bench(), LIBOS_IMAGE_BASE),
        None => (program_of(&machines, name)?.to_path_buf(), 0),
    };
    let plugin = Plugin::prepare(&machines, &read_file(&program)?, base)?;
    let initramfs = machines.rows_initramfs(if native.is_some() { &machines.micro } else { &program })?;
    let trace = Trace { machines: &machines, plugin, name, program, initramfs, native };
    let mut text = String::new();
    // Linux as it comes has no part: its functions are those of the tuned one, and more of them. Native rows have no
    // other system at all.
    let takes_part = |system: &System| match trace.native {
        Some(_) => *system == System::Aegis,
        None => *system != System::LinuxDefault,
    };
    for system in machines.systems().into_iter().filter(takes_part) {
        text += &trace.system(system, options)?;
    }
    Ok(text)
}

/// The program that has all of the rows of a list.
fn program_of<'a>(machines: &'a Machines, list: &str) -> Result<&'a Path, Failure> {
    let mut missing = "";
    for program in [&machines.micro, &machines.scale] {
        let names = row_names(program)?;
        match list.split(',').find(|name| !names.iter().any(|it| it == name)) {
            None => return Ok(program),
            Some(name) => missing = name,
        }
    }
    Err(Failure::Rows(format!("no suite has the row {missing:?} and the others")))
}

struct Trace<'a> {
    machines: &'a Machines,
    plugin: Plugin,
    name: &'a str,
    /// The file that the row is in.
    program: PathBuf,
    initramfs: PathBuf,
    /// If it is a native row.
    native: Option<native::Program<'a>>,
}

/// What the row said of itself.
struct Measured {
    instructions: f64,
    operations: f64,
}

impl Trace<'_> {
    fn system(&self, system: System, options: &BenchOptions) -> Result<String, Failure> {
        let functions = self.functions(system)?;
        let output = self.plugin.output_file(system);
        // One that is there is of a tool that was killed.
        let _ = std::fs::remove_file(&output);
        let result = self.measure(system, &output);
        let counts = result.and_then(|measured| Ok((measured, Counts::read(&output)?)));
        let _ = std::fs::remove_file(&output);
        let (measured, counts) = match counts {
            Err(Failure::NoRow(why)) => return Ok(format!("{} on {}: n/a ({why})\n\n", self.name, system.title())),
            other => other?,
        };
        let attribution = Attribution::new(&functions, &counts);
        let mut text = format!("{} on {}\n", self.name, system.title());
        text += &attribution.render(measured.operations, measured.instructions * measured.operations);
        if options.trace_inlined && system == System::Aegis {
            let window = if self.native.is_some() { &self.program } else { &Artifacts::find().library_os() };
            text += &inlined::render(&counts, measured.operations, window)?;
        }
        if options.trace_path {
            text += &path::render(&functions, &counts, measured.operations);
        }
        Ok(text + "\n")
    }

    /// Runs one batch.
    fn measure(&self, system: System, output: &Path) -> Result<Measured, Failure> {
        let target_us = if self.name.contains(',') { TARGET_AFTER_OTHERS_US } else { TARGET_US };
        let words = [self.name, target_us, "1", "quietly"].map(Into::into);
        // The file has to stay as long as the machine.
        let bundle = self.native.as_ref().map(|native| native.bundle(&words)).transpose()?;
        let mut line = match &self.native {
            Some(native) => native.line(SHAPE),
            None => self.machines.rows_line(system, &self.program, &words, &self.initramfs, SHAPE),
        };
        let starter = if system == System::Aegis && bundle.is_none() { Starter::Tool } else { Starter::Qemu };
        self.plugin.add_to(&mut line, starter, output);
        let mut guest = Guest::start(&line, LIMITS)?;
        let (read, count, end) = read(&mut guest);
        let errors = if read.is_whole { guest.finish_by_itself().errors } else { guest.finish() };
        match read.rows.last() {
            Some((_, Cell::Values(values))) if read.is_whole => {
                let operations = count.filter(|count| *count > 0.0);
                let operations = operations.ok_or_else(|| self.broken(system, "no count came with the row".into()))?;
                Ok(Measured { instructions: values[0], operations })
            }
            Some((_, Cell::NotAvailable(why))) => Err(Failure::NoRow(why.clone())),
            _ => Err(self.broken(system, format!("{end}; {}", last_line(&errors)))),
        }
    }

    fn broken(&self, system: System, why: String) -> Failure {
        Failure::Broken(system.title(), why)
    }

    fn functions(&self, system: System) -> Result<Functions, Failure> {
        let program = read_file(&self.program)?;
        if let (System::LinuxTuned | System::LinuxDefault, Some(kernel)) = (system, &self.machines.linux) {
            let kernel = kernel_symbols::get(self.machines, kernel)?;
            return Ok(Functions { kernel, window: None, program: Symbols::of_elf(&program, 0) });
        }
        let artifacts = Artifacts::find();
        let kernel = Symbols::of_elf(&read_file(&artifacts.kernel())?, 0);
        // A native program is a library OS by itself.
        let (window, program) = match &self.native {
            Some(_) => ((Domain::Program, program), Symbols::default()),
            None => ((Domain::LibraryOs, read_file(&artifacts.library_os())?), Symbols::of_elf(&program, 0)),
        };
        let window = Some((window.0, Symbols::of_elf(&window.1, LIBOS_IMAGE_BASE)));
        Ok(Functions { kernel, window, program })
    }
}

/// Reads until the output is whole, or there is no more; also the number of operations, and why it ended.
fn read(guest: &mut Guest) -> (Output, Option<f64>, &'static str) {
    let mut output = Output::default();
    let mut count = None;
    loop {
        match guest.next() {
            Event::Line(line, _) => {
                if let ["row", _, _, operations] = line.split_whitespace().collect::<Vec<_>>().as_slice() {
                    count = operations.parse().ok();
                }
                output.push(&line);
            }
            Event::End => return (output, count, "it ended"),
            Event::Limit(why) => return (output, count, why),
        }
        if output.is_whole || output.problem.is_some() {
            return (output, count, "");
        }
    }
}

//! `aegis test`: programs of a list, one after the other, on Aegis and on the Linux that `aegis bench` compares with;
//! what they print and how they end has to be the same.
//!
//! `list` reads the list, `transcript` what the machines say, `report` shows the difference. Both machines have the
//! same files: the programs with the libraries they need, and `bench/compare/each.c`, which runs them. A program that
//! takes its machine with it is told as that, and the machine is started again with the next one.

mod list;
mod report;
mod transcript;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aegis_launch::cache::Cache;
use aegis_launch::errors::{Error, STATUS_TOOL};
use aegis_launch::machine::artifacts::{Artifacts, find_qemu};
use aegis_launch::root::pack_host::HostRoot;
use aegis_launch::root::{HOSTNAME, write_image};
use clap::Args;

use crate::compile;
use crate::cpio;
use crate::exchange;
use crate::failure::{Failure, last_line};
use crate::guest::{Event, Guest, Limits, Line};
use crate::linux::{Flavour, Kernel};
use crate::system::{LinuxLine, Shape, System, aegis_line};
use list::Program;
use transcript::{Outcome, Transcript};

/// Exit status: a program did not do the same on both.
const STATUS_DIFFERENT: u8 = 1;
/// Memory of either machine in MiB, besides its files.
const MEMORY_MIB: u32 = 512;
/// Longest time until a machine says something, and what is added to a program's own limit.
const START: Duration = Duration::from_secs(120);
/// The runner's place in both machines, and its list's.
const RUNNER: &str = "/test/each";
const LIST: &str = "/test/list";

const NOTES: &str = "\
FILE has one program with its arguments on a line. Words are separated by blanks; a path without a
leading / starts at FILE's own directory; # begins a comment. Of a directory every executable file
runs, without arguments.

Each program starts in an empty directory of its own, with an empty standard input and nothing in
its environment but PATH, HOME and LC_ALL=C. It has no files but itself, the shared objects that it
needs, and a minimal /etc, /dev, /proc and /tmp. Programs that print times, addresses or process
numbers differ by themselves.

Linux is Debian's kernel, which apt fetches once (27 MB), in the same QEMU.

Exit status: 0 if every program did the same on both; 1 if one did not; 125 if there was no test.

Example:
  aegis test --list tests/linux/list    with lines such as: ./files --quick  # what it is for";

/// `aegis test`.
#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct TestOptions {
    /// The programs: a file with one on each line, or a directory of programs
    #[arg(long, value_name = "FILE|DIR", required_unless_present = "frames")]
    pub(crate) list: Option<PathBuf>,
    /// Exchanges of frames instead of programs: a directory of scripts
    #[arg(long, value_name = "DIR", conflicts_with = "list")]
    pub(crate) frames: Option<PathBuf>,
    /// Only scripts whose names contain this
    #[arg(long, value_name = "NAME", requires = "frames")]
    pub(crate) script: Option<String>,
    /// Scripts that wait for seconds too
    #[arg(long, requires = "frames")]
    pub(crate) slow: bool,
    /// Play scripts to Linux alone
    #[arg(long, requires = "frames")]
    pub(crate) linux_alone: bool,
    /// Instead of scripts, mutations of their frames to Aegis, from this seed
    #[arg(long, value_name = "SEED", requires = "frames")]
    pub(crate) mutate: Option<u64>,
    /// For how long mutations are played
    #[arg(long, value_name = "SECONDS", requires = "mutate", default_value = "60")]
    pub(crate) seconds: u32,
    /// Play scripts to Aegis alone
    #[arg(long, requires = "frames", conflicts_with = "linux_alone")]
    pub(crate) aegis_alone: bool,
    /// Write into the scripts what Linux answers
    #[arg(long, hide = true, requires = "linux_alone")]
    pub(crate) bless: bool,
    /// Longest time of one program
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u32).range(1..=9_999))]
    pub(crate) timeout: u32,
    /// Processors of both machines, 1 to 8
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) cpus: u8,
    /// Print only what differs
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// Runs the list; the answer is the exit status. Every failure is one line on standard error.
pub fn test(options: &TestOptions) -> u8 {
    match run(options) {
        Ok(0) => 0,
        Ok(_) => STATUS_DIFFERENT,
        Err(why) => {
            eprintln!("aegis: test: {why}");
            STATUS_TOOL
        }
    }
}

/// How many programs differ.
fn run(options: &TestOptions) -> Result<usize, String> {
    if let Some(folder) = &options.frames {
        return exchange::run(&exchange::Wanted {
            folder,
            name: options.script.as_deref(),
            has_slow: options.slow,
            has_linux: !options.aegis_alone,
            has_aegis: !options.linux_alone,
            is_blessing: options.bless,
            nasty: options.mutate.map(|seed| (seed, options.seconds)),
        });
    }
    let programs = list::read(options.list.as_deref().unwrap_or(Path::new("")))?;
    let machines = Machines::prepare(options, &programs).map_err(told)?;
    let [aegis, linux] = [System::Aegis, System::LinuxTuned].map(|system| machines.run_all(system, programs.len()));
    let (aegis, linux) = (aegis.map_err(told)?, linux.map_err(told)?);
    let mut out = std::io::stdout();
    let mut different_count = 0;
    for ((program, aegis), linux) in programs.iter().zip(&aegis).zip(&linux) {
        let is_same = aegis == linux && aegis.is_an_end();
        different_count += usize::from(!is_same);
        let text = match is_same {
            true if options.quiet => String::new(),
            true => format!("same     {}\n", program.shown),
            false => format!("differs  {}\n{}", program.shown, report::difference(aegis, linux)),
        };
        out.write_all(text.as_bytes()).map_err(|error| format!("writing the report: {error}"))?;
    }
    let count = programs.len();
    let sum = format!("{count} programs: {} the same on both, {different_count} different\n", count - different_count);
    out.write_all(sum.as_bytes()).map_err(|error| format!("writing the report: {error}"))?;
    Ok(different_count)
}

/// A failure of the parts that `aegis bench` has too, without its words for its own options.
fn told(failure: Failure) -> String {
    match failure {
        Failure::Fetch(why) => format!("Debian's kernel is not cached and could not be fetched: {why}"),
        Failure::Missing(name, _) => format!("{name}: not found; it is needed for Debian's kernel or for the runner"),
        failure => failure.to_string(),
    }
}

/// What both machines are started from.
struct Machines {
    qemu: PathBuf,
    tool: PathBuf,
    kernel: Kernel,
    image: Scratch,
    initramfs: Scratch,
    files_mib: u32,
    timeout_s: u32,
    cpu_count: u8,
}

impl Machines {
    fn prepare(options: &TestOptions, programs: &[Program]) -> Result<Self, Failure> {
        let qemu = find_qemu()?;
        Artifacts::find().check()?;
        let cache = Cache::open().ok_or(Failure::NoCache)?.directory().to_path_buf();
        let tool = std::env::current_exe().map_err(|error| Error::Host("finding this tool's own file", error))?;
        let runner = compile::each(&cache)?;
        let kernel = Kernel::get(&cache, Flavour::Cloud)?;
        let scratch = |name: &str| Scratch(cache.join(format!("test.{}.{name}", std::process::id())));
        let (list, image, initramfs) = (scratch("list"), scratch("erofs"), scratch("cpio"));
        let lines: Vec<u8> = programs.iter().flat_map(Program::line).collect();
        std::fs::write(&list.0, lines).map_err(|error| Failure::file("writing", list.0.clone(), error))?;
        let mut tree = HostRoot::minimal(HOSTNAME, &std::env::var_os("PATH").unwrap_or_default());
        for program in programs {
            tree.add_program(&program.path).map_err(Error::Root)?;
        }
        tree.with(&runner, Some(RUNNER.as_bytes())).map_err(Error::Root)?;
        tree.with(&list.0, Some(LIST.as_bytes())).map_err(Error::Root)?;
        let packed = tree.finish().map_err(Error::Root)?;
        let writing = |scratch: &Scratch| {
            let path = scratch.0.clone();
            move |error| Failure::file("writing", path, error)
        };
        let mut file = File::create(&image.0).map_err(writing(&image))?;
        write_image(&packed, &mut file)?;
        let file = File::create(&initramfs.0).map_err(writing(&initramfs))?;
        cpio::write_root(&packed.tree, BufWriter::new(file)).map_err(writing(&initramfs))?;
        let bytes = std::fs::metadata(&initramfs.0).map_err(writing(&initramfs))?.len();
        let files_mib = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX / 2);
        let (timeout_s, cpu_count) = (options.timeout, options.cpus);
        Ok(Self { qemu, tool, kernel, image, initramfs, files_mib, timeout_s, cpu_count })
    }

    /// What each program did on a system.
    fn run_all(&self, system: System, count: usize) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::new();
        while outcomes.len() < count {
            let first = outcomes.len();
            eprintln!("aegis: test: {} of {count} programs on {}", count - first, system.title());
            outcomes.extend(self.run_from(system, first, count)?);
        }
        Ok(outcomes)
    }

    /// What the programs from `first` on did, up to one that took the machine with it.
    fn run_from(&self, system: System, first: usize, count: usize) -> Result<Vec<Outcome>, Failure> {
        let silence = START + Duration::from_secs(self.timeout_s.into());
        let total = silence * u32::try_from(count - first + 1).unwrap_or(u32::MAX);
        let mut guest = Guest::start(&self.line(system, first), Limits { silence, total })?;
        let mut heard = Transcript::new(first);
        let mut why = "the machine ended";
        loop {
            match guest.next() {
                Event::Line(line, _) => heard.push(&line),
                Event::End => break,
                Event::Limit(limit) => {
                    why = limit;
                    break;
                }
            }
            if heard.is_done {
                break;
            }
        }
        let errors = guest.finish();
        if !heard.has_begun() {
            return Err(Failure::NotUp(system.title(), format!("{why}; {}", last_line(&errors))));
        }
        if !heard.is_done {
            heard.lose(&format!("{why}; {}", last_line(&errors)));
        }
        if heard.is_done && heard.outcomes.len() != count - first {
            return Err(Failure::Broken(system.title(), "it did not run every program of the list".into()));
        }
        Ok(heard.outcomes)
    }

    fn line(&self, system: System, first: usize) -> Line {
        let (seconds, first) = (self.timeout_s.to_string(), first.to_string());
        match system {
            System::Aegis => {
                let (image, cpus) = (self.image.0.to_string_lossy(), self.cpu_count.to_string());
                let options = ["-q", "-M", "pc", "--cpus", &cpus, "--root", &image];
                let words = vec![RUNNER.into(), seconds.into(), first.into()];
                aegis_line(&self.tool, MEMORY_MIB, &options, words)
            }
            _ => LinuxLine {
                qemu: &self.qemu,
                kernel: &self.kernel.image,
                initramfs: &self.initramfs.0,
                memory_mib: MEMORY_MIB + self.files_mib,
                append: format!("{} rdinit={RUNNER} -- --init {seconds} {first}", system.kernel_words()),
                firmware: None,
                shape: Shape { icount_shift: None, cpu_count: self.cpu_count },
            }
            .build(),
        }
    }
}

/// A file that goes with its owner.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-overs only take room.
        let _ = std::fs::remove_file(&self.0);
    }
}

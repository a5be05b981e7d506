//! One machine in which programs compete for one processor, on either system, and how far each came.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::failure::{Failure, last_line};
use super::super::guest::{Guest, Limits, Line};
use super::super::linux::TUNED;
use super::super::progress;
use super::super::system::{LinuxLine, MEMORY_MIB, Machines, Shape, shown};

/// Nanoseconds of an instruction, as a power of two: 32.
pub(super) const ICOUNT_SHIFT: u8 = 5;
/// When contestants begin to count on Aegis, in seconds after the machine's start: one with a twentieth of the tickets
/// needs several slices of 100 ms to begin.
const START_S: u32 = 20;
/// Nothing is printed before the end.
const LIMITS: Limits = Limits { silence: Duration::from_secs(1800), total: Duration::from_secs(1800) };
/// Of durations, and of runs, one in so many is left with `--quick`.
const QUICK_DIVISOR: u32 = 10;

/// A program that competes.
#[derive(Clone, Debug)]
pub(super) struct Contestant {
    /// Its name, of letters and digits.
    pub(super) name: String,
    /// Its tickets; also its `cpu.weight`, so at most 10,000.
    pub(super) tickets: u32,
    /// What it does, a word of `contest.c`.
    pub(super) kind: &'static str,
    /// The currency that its tickets are in; all that are named have equal funding. On Linux a control group around
    /// its own.
    pub(super) currency: Option<&'static str>,
}

impl Contestant {
    /// One that only computes.
    pub(super) fn spinning(name: &str, tickets: u32) -> Self {
        Self::new(name, tickets, "spin")
    }

    /// One of a kind.
    pub(super) fn new(name: &str, tickets: u32, kind: &'static str) -> Self {
        Self { name: name.into(), tickets, kind, currency: None }
    }

    /// The same with its tickets in a currency.
    pub(super) fn within(self, currency: &'static str) -> Self {
        Self { currency: Some(currency), ..self }
    }
}

/// A machine's contestants, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Contest {
    /// The programs that compete.
    pub(super) contestants: Vec<Contestant>,
    /// Length of a slice on Aegis; Linux has its own.
    pub(super) slice_ms: u8,
    /// Windows, and how long each is.
    pub(super) window_count: u32,
    pub(super) window_ms: u32,
    /// What the draws follow from.
    pub(super) seed: u64,
}

/// Loops of each contestant in each window, in the order of the contestants; or other numbers that somebody says.
pub(super) type Loops = Vec<Vec<u64>>;

impl Contest {
    fn play(&self, system: &'static str, line: &Line) -> Result<Loops, Failure> {
        let shares: Vec<String> =
            self.contestants.iter().map(|it| format!("{} {} {}", it.name, it.tickets, it.kind)).collect();
        progress::say(&format!("lottery on {system}: {}", shares.join(", ")));
        let names: Vec<&str> = self.contestants.iter().map(|it| it.name.as_str()).collect();
        play(system, line, &names, self.window_count as usize)
    }

    /// Slices that the whole contest has.
    pub(super) fn slice_count(&self) -> f64 {
        f64::from(self.window_count) * f64::from(self.window_ms) / f64::from(self.slice_ms)
    }

    /// The file of `aegis up` for it.
    fn file(&self, program: &Path) -> String {
        let mut text = format!("[machine]\nslice_ms = {}\n", self.slice_ms);
        let program = program.display();
        for it in &self.contestants {
            let _ = write!(
                text,
                "[pod.{}]\nprogram = \"{program}\"\nargs = [\"{}\", \"\", \"{START_S}\", \"{}\", \"{}\"]\n\
                 memory = \"32M\"\ntickets = {}\n",
                it.name, it.kind, self.window_count, self.window_ms, it.tickets
            );
            let _ = it.currency.map(|currency| writeln!(text, "currency = \"{currency}\""));
        }
        let currencies: BTreeSet<&str> = self.contestants.iter().filter_map(|it| it.currency).collect();
        for currency in currencies {
            let _ = writeln!(text, "[currency.{currency}]");
        }
        text
    }

    /// The same for the first process of a Linux machine.
    pub(super) fn words(&self) -> String {
        let mut text = format!("--init {} {}", self.window_count, self.window_ms);
        for it in &self.contestants {
            let _ = write!(text, " {}={}={}", it.name, it.tickets, it.kind);
            let _ = it.currency.map(|currency| write!(text, "={currency}"));
        }
        text
    }
}

/// What contests are run with.
pub(super) struct Arena<'a> {
    machines: &'a Machines,
    program: PathBuf,
    initramfs: PathBuf,
    is_quick: bool,
}

impl<'a> Arena<'a> {
    /// Prepares both systems.
    pub(super) fn new(machines: &'a Machines, program: PathBuf, is_quick: bool) -> Result<Self, Failure> {
        let initramfs = machines.host_initramfs("contest", &program)?;
        Ok(Self { machines, program, initramfs, is_quick })
    }

    /// How many of the runs, windows or seconds that the paper had.
    pub(super) fn scaled(&self, count: u32) -> u32 {
        if self.is_quick { count.div_ceil(QUICK_DIVISOR) } else { count }
    }

    /// Whether a system takes part.
    pub(super) fn has_aegis(&self) -> bool {
        self.machines.has_aegis()
    }

    /// QEMU and the folder of the cache.
    pub(super) fn places(&self) -> (&Path, &Path) {
        (&self.machines.qemu, &self.machines.cache)
    }

    /// This tool.
    pub(super) fn tool(&self) -> &Path {
        &self.machines.tool
    }

    /// Linux's kernel, if it takes part.
    pub(super) fn linux_kernel(&self) -> Option<&Path> {
        self.machines.linux.as_ref().map(|kernel| kernel.image.as_path())
    }

    /// What a pod's machine is started as.
    pub(super) fn aegis_command(&self) -> String {
        shown(&self.aegis_line(Path::new("FILE"), "NUMBER"))
    }

    /// What a Linux machine is started as.
    pub(super) fn linux_command(&self) -> String {
        self.linux_line("--init WINDOWS MS NAME=WEIGHT=KIND…").map(|line| shown(&line)).unwrap_or_default()
    }

    fn aegis_line(&self, file: &Path, seed: &str) -> Line {
        let icount = format!("--icount={ICOUNT_SHIFT}");
        let words = ["up", "--accel", "tcg", "-q", &icount, "--seed", seed].map(Into::into);
        Line { program: self.machines.tool.clone(), arguments: words.into_iter().chain([file.into()]).collect() }
    }

    fn linux_line(&self, words: &str) -> Option<Line> {
        let line = LinuxLine {
            qemu: &self.machines.qemu,
            kernel: self.linux_kernel()?,
            initramfs: &self.initramfs,
            memory_mib: MEMORY_MIB,
            append: format!("{TUNED} rdinit=/contest -- {words}"),
            firmware: None,
            shape: Shape { icount_shift: Some(ICOUNT_SHIFT), cpu_count: 1 },
        };
        Some(line.build())
    }

    /// Runs it on Aegis and on Linux, where they take part.
    pub(super) fn on_both(&self, contest: &Contest) -> Result<[Option<Loops>; 2], Failure> {
        Ok([self.on_aegis(contest)?, self.on_linux(contest)?])
    }

    /// Runs it on Aegis; `None` if Aegis does not take part.
    pub(super) fn on_aegis(&self, contest: &Contest) -> Result<Option<Loops>, Failure> {
        if !self.has_aegis() {
            return Ok(None);
        }
        let path = self.machines.cache.join(format!("contest.{}.toml", std::process::id()));
        std::fs::write(&path, contest.file(&self.program))
            .map_err(|error| Failure::file("writing", path.clone(), error))?;
        let loops = contest.play("Aegis", &self.aegis_line(&path, &contest.seed.to_string()));
        // What is left of it would be overwritten by the next.
        let _ = std::fs::remove_file(&path);
        loops.map(Some)
    }

    /// Runs it on Linux; `None` if Linux does not take part.
    pub(super) fn on_linux(&self, contest: &Contest) -> Result<Option<Loops>, Failure> {
        self.linux_line(&contest.words()).map(|line| contest.play("Linux", &line)).transpose()
    }
}

/// Runs a machine to its end. Each of `names` has to say `count` numbers: `NAME | w INDEX NUMBER`.
pub(super) fn play(system: &'static str, line: &Line, names: &[&str], count: usize) -> Result<Loops, Failure> {
    let (lines, errors) = Guest::start(line, LIMITS)?.lines();
    let numbers = read(&lines, names, count);
    numbers.ok_or_else(|| Failure::Broken(system, format!("somebody said too little; {}", last_line(&errors))))
}

/// What the lines say; those that are nobody's are passed over.
fn read(lines: &[String], names: &[&str], count: usize) -> Option<Loops> {
    let mut numbers = vec![vec![None; count]; names.len()];
    for line in lines {
        let Some((name, rest)) = line.split_once(" | w ") else { continue };
        let Some(place) = names.iter().position(|it| *it == name.trim()) else { continue };
        let mut words = rest.split_whitespace().map(str::parse::<u64>);
        if let (Some(Ok(index)), Some(Ok(number))) = (words.next(), words.next())
            && let Some(slot) = numbers[place].get_mut(index as usize)
        {
            *slot = Some(number);
        }
    }
    numbers.into_iter().map(|own| own.into_iter().collect()).collect()
}

/// Loops of each contestant over all windows.
pub(super) fn totals(loops: &Loops) -> Vec<f64> {
    loops.iter().map(|windows| windows.iter().sum::<u64>() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::{Contest, Contestant, read, totals};
    use std::path::Path;

    fn contest() -> Contest {
        let contestants = vec![Contestant::spinning("a", 2), Contestant::new("b", 1, "forks")];
        Contest { contestants, slice_ms: 100, window_count: 2, window_ms: 8000, seed: 1 }
    }

    #[test]
    fn the_same_contest_for_both_systems() {
        let text = contest().file(Path::new("/c"));
        assert!(text.starts_with("[machine]\nslice_ms = 100\n[pod.a]\nprogram = \"/c\"\nargs = [\"spin\", \"\", "));
        assert!(text.ends_with("memory = \"32M\"\ntickets = 1\n"), "{text}");
        assert_eq!(contest().words(), "--init 2 8000 a=2=spin b=1=forks");
        assert_eq!(contest().slice_count(), 160.0);
        let mut contest = contest();
        contest.contestants[0] = Contestant::spinning("a", 2).within("x");
        let text = contest.file(Path::new("/c"));
        assert!(
            text.contains("tickets = 2\ncurrency = \"x\"\n[pod.b]") && text.ends_with("\n[currency.x]\n"),
            "{text}"
        );
        assert_eq!(contest.words(), "--init 2 8000 a=2=spin=x b=1=forks");
    }

    #[test]
    fn lines_of_contestants_and_others() {
        let mut lines =
            ["a     | w 0 10", "b | w 1 7", "b | w 2 9", "c | w 0 1", "a | aegis: x", "end", "a | w x", "a | w 1 0"]
                .map(String::from)
                .to_vec();
        assert_eq!(read(&lines, &["a", "b"], 2), None);
        lines.push("b | w 0 3".into());
        let numbers = read(&lines, &["a", "b"], 2).unwrap();
        assert_eq!(numbers, [[10, 0], [3, 7]]);
        assert_eq!(totals(&numbers), [10.0, 10.0]);
    }
}

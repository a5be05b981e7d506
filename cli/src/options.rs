//! The command line: what a user may write, and what it means. Nothing is changed, and nothing read but the
//! environment and whether the file of a `--with` exists.
//!
//! Options of the tool stand before PROGRAM; all that follows PROGRAM belongs to the program, also what
//! starts with `-`. clap parses; its messages are cut to the tool's one-line form in [`parse`].

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use aegis_image::config::Tickets;
use aegis_image::pods::{POD_NAME_BYTES_MAX, is_name};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::BenchOptions;
use crate::compare::TestOptions;
use crate::pack_host::split_with;
use crate::profile;
use crate::qemu::MachineKind;
use crate::remote::exec::ExecOptions;
use crate::remote::verbs;
use crate::shares::{Volume, parse_volume};

/// Least memory of a machine in bytes: the kernel, exos and a small program.
pub(crate) const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// Most memory of a machine in bytes.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 << 30;
/// Most processors.
pub(crate) const CPU_COUNT_MAX: i64 = 8;
/// Most tickets that a currency issues, and the longest name of one: exos's limits.
const TICKETS_MAX: u64 = (1 << 40) - 1;
const CURRENCY_BYTES_MAX: usize = 32;
/// Largest shift of `--icount`, QEMU's own limit: about a microsecond for each instruction.
const ICOUNT_SHIFT_MAX: i64 = 10;
/// Memory for programs, unless it is said.
pub(crate) const MEMORY_DEFAULT: &str = "256M";

const EXAMPLES: &str = "\
Examples:
  aegis run busybox echo hello             a program of this host, with the libraries it needs
  echo abc | aegis run tr a-z A-Z          standard input, output and exit status as usual
  aegis run --with ./in:/in cat /in/notes  more files of this host, read-only
  aegis run -v ./data:/data wc /data/in    a directory of this host, live and writable (:ro read-only)
  aegis run --root / python3 prog.py       this host's own system as the root, nothing packed
  aegis run -t --root / bash               a shell on a terminal of its own
  aegis run --root rootfs.tar /bin/sh      another root: a directory, a tar file or an EROFS image
  aegis run --stats --timeout 10 ls /      what it cost, and a time limit
  aegis up shop.toml                       several programs in one machine, isolated, with processor shares
  aegis exec -it web busybox sh            a shell in one of them
  aegis test --list FILE                   programs on Aegis and on Linux, and where they differ
  aegis doctor                             what is missing on this machine, and how to get it

`aegis run --help` explains every option.";

const RUN_NOTES: &str = "\
Exit status: the program's own; 128+n if signal n ended it; 124 if --timeout did; 125 if the tool
or the machine failed (wrong option, root image or memory size included); 126 if PROGRAM cannot be
executed; 127 if there is no such program.

Ctrl-C and SIGTERM go to the program; a second one ends the machine. With -t every key goes to the
program's terminal, which acts on Ctrl-C and Ctrl-Z as it was told to; what is left then is a signal
from elsewhere.

Without --root the machine's files are PROGRAM, the shared objects it needs, what --with adds, and
a minimal /etc, /dev, /proc and /tmp. They are read-only underneath; what the program writes is in
memory and gone when it ends.

A directory given to --root is served live while the program runs: it can read what you can read
there, and changes nothing. What it writes under a -v directory is written on this host, as you.";

const UP_NOTES: &str = "\
FILE:
  [machine]
  cpus = 2               # processors, 1 to 8 [1]
  memory = \"1G\"          # of the whole machine [what the pods need]
  slice_ms = 10          # length of a slice, 1 to 100 [10]
  trust_devices = true   # as --trust-devices [false]

  [pod.web]              # as many as 13; the name marks its lines
  program = \"busybox\"    # as for `aegis run`
  args = [\"httpd\", \"-f\"]
  root = \"./rootfs\"      # and pack = true, as for --root and --pack
  volumes = [\"./data:/data:ro\"]
  with = [\"./conf:/etc/conf\"]
  env = { PORT = \"80\" }
  workdir = \"/\"
  memory = \"64M\"         # for its programs, enforced; \"64M/512M\": guaranteed and at most [256M]
  tickets = 2000         # its share of the processors is in proportion [1000]

Paths on this host are relative to FILE. Each pod has a library OS, memory and devices of its own and
reaches nothing of the others. Standard input is empty.

Exit status: 0 if every pod's program ended with 0, else that of the pod that failed first, as
`aegis run` would say it; 124 if --timeout ended the machine; 125 if the tool or the machine failed,
or FILE is wrong, or a pod ended without saying how.";

/// Runs unmodified Linux programs, each on its own library OS, in a small virtual machine
#[derive(Debug, Parser)]
#[command(name = "aegis", version, disable_help_subcommand = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a Linux program
    Run(Box<RunOptions>),
    /// Run several programs in one machine, each in a pod of its own
    Up(Box<UpOptions>),
    /// Show running machines and their pods
    Ps(verbs::PsOptions),
    /// Watch a running machine: who wants and gets how much
    Top(verbs::TopOptions),
    /// Print what pods wrote
    Logs(verbs::LogsOptions),
    /// Run a program in a running pod
    Exec(Box<ExecOptions>),
    /// End pods, or a whole machine
    Stop(verbs::StopOptions),
    /// Show or change the memory of pods
    Memory(verbs::MemoryOptions),
    /// Show or change the tickets of pods
    Tickets(verbs::TicketsOptions),
    /// Measure this system and Linux side by side
    Bench(Box<BenchOptions>),
    /// Run programs here and on Linux, and show where they differ
    Test(TestOptions),
    /// Say what is there, what is missing, and how to get it
    Doctor,
    /// Print the version
    Version,
    /// What `bench lottery` runs in a machine: measure draws in this process
    #[command(name = crate::bench::DRAWS_VERB, hide = true)]
    Draws,
}

/// `--accel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccelChoice {
    /// KVM if a tiny guest has really run under it here, else TCG
    Auto,
    /// The processor itself; needs /dev/kvm
    Kvm,
    /// QEMU's translator; works everywhere
    Tcg,
}

/// `--stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    /// Lines for people
    Text,
    /// One line of JSON
    Json,
}

/// `--with HOST[:GUEST]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct With {
    /// File or directory of the host.
    pub(crate) host: PathBuf,
    /// Its absolute path in the machine; by default the host's.
    pub(crate) guest: Option<PathBuf>,
}

// What belongs to a pod: on the command line of `aegis run`, and in a table of `aegis up`'s file. (No documentation
// comment: clap would make it the text of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Debug, Args)]
pub(crate) struct PodOptions {
    /// Root file system: a directory, served live; a tar file (also .tar.gz) or an EROFS image
    #[arg(long, value_name = "DIR|TAR|IMAGE")]
    pub(crate) root: Option<PathBuf>,
    /// Pack the directory of --root into an image before the start, instead of serving it live; --with does so too
    #[arg(long, requires = "root")]
    pub(crate) pack: bool,
    /// Show this directory of the host in the machine, live; writable unless :ro (repeatable)
    #[arg(
        short = 'v',
        long = "volume",
        value_name = "HOST:GUEST[:ro]",
        value_parser = OsStringValueParser::new().try_map(parse_volume)
    )]
    pub(crate) volumes: Vec<Volume>,
    /// Put this file or directory of the host into the root, read-only (repeatable)
    #[arg(long, value_name = "HOST[:GUEST]", value_parser = OsStringValueParser::new().try_map(parse_with))]
    pub(crate) with: Vec<With>,
    /// Set a variable of the program's environment; without =VALUE it is copied (repeatable)
    #[arg(
        short = 'e',
        long = "env",
        value_name = "NAME[=VALUE]",
        value_parser = OsStringValueParser::new().try_map(parse_variable)
    )]
    pub(crate) environment: Vec<OsString>,
    /// Directory in the machine where the program starts
    #[arg(short = 'w', long = "workdir", value_name = "DIR", default_value = "/")]
    pub(crate) working_directory: PathBuf,
    /// Memory for programs, with K, M or G; the root comes on top
    #[arg(short = 'm', long, value_name = "SIZE", default_value = MEMORY_DEFAULT, value_parser = parse_memory)]
    pub(crate) memory: u64,
}

// How a machine is started, whatever runs in it.
#[allow(missing_docs, reason = "as above")]
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineOptions {
    /// What executes the machine's instructions
    #[arg(long, value_name = "auto|kvm|tcg", default_value = "auto", hide_possible_values = true)]
    pub(crate) accel: AccelChoice,
    /// QEMU machine type [default: microvm; for pods that it has no room for, q35]
    #[arg(short = 'M', long = "machine", value_name = "microvm|pc|q35", hide_possible_values = true)]
    pub(crate) kind: Option<MachineKind>,
    /// Let guest time count guest instructions, so that runs can be compared (TCG only); each takes 2^SHIFT ns
    #[arg(
        long,
        value_name = "SHIFT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        value_parser = clap::value_parser!(u8).range(0..=ICOUNT_SHIFT_MAX)
    )]
    pub(crate) icount: Option<u8>,
    /// Let chance (the scheduler's draws, the programs' random numbers) follow from this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// End the program after this time, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Print the QEMU command line instead of running it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// One more word for QEMU's command line (repeatable)
    #[arg(long = "qemu-word", value_name = "WORD", allow_hyphen_values = true)]
    pub(crate) qemu_words: Vec<OsString>,
    /// Print no warnings
    #[arg(short = 'q', long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print the kernel's log and what the tool does
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// `aegis up`.
#[derive(Debug, Args)]
#[command(override_usage = "aegis up [OPTIONS] FILE", after_help = UP_NOTES)]
pub(crate) struct UpOptions {
    /// How the machine is started.
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Name by which `aegis ps` and others find the machine [default: the file's]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Let pods drive their devices themselves: faster by a little, and any of them can then reach all memory
    #[arg(long)]
    pub(crate) trust_devices: bool,
    /// The machine and its pods, in TOML
    pub(crate) file: PathBuf,
}

/// `aegis run`.
#[derive(Debug, Args)]
#[command(
    override_usage = "aegis run [OPTIONS] PROGRAM [ARGS]...",
    disable_help_subcommand = true,
    arg_required_else_help = false,
    after_help = RUN_NOTES,
)]
pub(crate) struct RunOptions {
    /// What belongs to the program's pod.
    #[command(flatten)]
    pub(crate) pod: PodOptions,
    /// Memory of the whole machine, whatever -m comes to: for measuring how little is enough
    #[arg(long, value_name = "SIZE", value_parser = parse_machine_memory, hide = true)]
    pub(crate) machine_memory: Option<u64>,
    /// Processors, 1 to 8
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=CPU_COUNT_MAX)
    )]
    pub(crate) cpus: u8,
    /// How the machine is started.
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Fund the program with N tickets of the pod, or of a currency CURRENCY that is made with as many as a thread has
    #[arg(long, value_name = "N[.CURRENCY]", value_parser = parse_tickets, allow_hyphen_values = true)]
    pub(crate) tickets: Option<Tickets>,
    /// Give the program a terminal of its own, for shells and whatever draws on the screen
    #[arg(short = 't', long = "tty")]
    pub(crate) terminal: bool,
    /// At the end, print times and counters on standard error
    #[arg(
        long,
        value_name = "json",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text",
        hide_possible_values = true
    )]
    pub(crate) stats: Option<StatsFormat>,
    /// Print each system call with its arguments and result on standard error
    #[arg(long)]
    pub(crate) trace: bool,
    /// Sample where the time goes, and write a flame graph [default: aegis-profile.svg]
    #[arg(
        long,
        value_name = "FILE.svg",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "aegis-profile.svg"
    )]
    pub(crate) profile: Option<PathBuf>,
    /// Samples in a second for --profile, 1 to 1000
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = profile::RATE_HZ,
        requires = "profile",
        value_parser = clap::value_parser!(u16).range(1..=profile::RATE_HZ_MAX)
    )]
    pub(crate) profile_rate: u16,
    /// Leave the program's system-call instructions as they are: each call enters the kernel
    #[arg(long)]
    pub(crate) no_rewrite: bool,
    /// The program and what follows it.
    #[command(subcommand)]
    words: Words,
}

/// clap's name for words that it does not look into: a subcommand that it does not know. Unlike a positional
/// argument that may start with `-`, it leaves wrong options in front of it to clap.
#[derive(Debug, Subcommand)]
enum Words {
    #[command(external_subcommand)]
    Program(Vec<OsString>),
}

impl RunOptions {
    /// PROGRAM and ARGS as the user wrote them.
    pub(crate) fn program_words(&self) -> &[OsString] {
        let Words::Program(words) = &self.words;
        words
    }
}

/// What a command line comes to.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// Do this.
    Command(Command),
    /// Print this on standard output and succeed.
    Help(String),
    /// Print this on standard error and fail: nothing was asked for.
    Nothing(String),
}

/// Parses a command line, the tool's name included.
///
/// # Errors
/// One line that says what is wrong.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    use clap::error::ErrorKind;
    let command = match Cli::try_parse_from(words) {
        Ok(cli) => cli.command,
        Err(error) => {
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Parsed::Help(error.render().to_string())),
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Ok(Parsed::Nothing(error.render().to_string())),
                ErrorKind::MissingSubcommand => Err("which program? (aegis run [OPTIONS] PROGRAM [ARGS]...)".into()),
                _ => Err(one_line(&error)),
            };
        }
    };
    Ok(Parsed::Command(command))
}

/// The first paragraph of clap's message, and its hint if it has one, without prefix and line breaks.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let first = paragraphs.next().unwrap_or(text);
    let hint = paragraphs.find_map(|it| it.strip_prefix("tip: ")).filter(|it| it.contains("similar"));
    let words = first.split_whitespace().chain(hint.iter().flat_map(|it| it.split_whitespace()));
    let line = words.collect::<Vec<_>>().join(" ");
    match hint {
        Some(hint) => line.replacen(&format!(" {hint}"), &format!("; {hint}"), 1),
        None => line,
    }
}

/// As [`parse_bytes`], within the limits of `-m`.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < MEMORY_BYTES_MIN {
        return Err(format!("at least {}M", MEMORY_BYTES_MIN >> 20));
    }
    if bytes > MEMORY_BYTES_MAX {
        return Err(format!("at most {}G", MEMORY_BYTES_MAX >> 30));
    }
    Ok(bytes)
}

/// What is guaranteed, and the most: a size as [`parse_memory`] takes it for both, or two of them with a slash between.
pub(crate) fn parse_memory_range(text: &str) -> Result<(u64, u64), String> {
    let Some((guaranteed, limit)) = text.split_once('/') else { return parse_memory(text).map(|bytes| (bytes, bytes)) };
    let (guaranteed, limit) = (parse_memory(guaranteed)?, parse_memory(limit)?);
    if limit < guaranteed {
        return Err(format!("{text}: the limit is below what is guaranteed"));
    }
    Ok((guaranteed, limit))
}

/// As [`parse_bytes`]; QEMU and the kernel judge what is too little.
pub(crate) fn parse_machine_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes > MEMORY_BYTES_MAX => Err(format!("at most {}G", MEMORY_BYTES_MAX >> 30)),
        bytes => Ok(bytes),
    }
}

/// A number and an optional K, M, G or T (powers of 1024, also KiB, KB and in small letters); the result is
/// in bytes.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("a number with K, M or G, such as 256M".into()),
    };
    let number: u64 = number.parse().map_err(|_| "a number with K, M or G, such as 256M".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_string())
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 1.5".to_string())?;
    if seconds <= 0.0 {
        return Err("more than 0 seconds".into());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| "too large".to_string())
}

fn parse_name(text: &str) -> Result<String, String> {
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!("1 to {POD_NAME_BYTES_MAX} letters, digits, - and _, not beginning with -"))
}

/// `N[.CURRENCY]`: what is wrong here would be refused in the machine.
fn parse_tickets(text: &str) -> Result<Tickets, String> {
    let (amount, currency) = text.split_once('.').map_or((text, None), |(amount, currency)| (amount, Some(currency)));
    let is_number = !amount.is_empty() && amount.bytes().all(|byte| byte.is_ascii_digit());
    let amount = amount.parse().ok().filter(|amount| is_number && (1..=TICKETS_MAX).contains(amount));
    let amount = amount.ok_or_else(|| format!("N is a whole number from 1 to {TICKETS_MAX}"))?;
    let is_currency = |name: &str| {
        name.len() <= CURRENCY_BYTES_MAX
            && name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            && name != "base"
    };
    if currency.is_some_and(|name| !is_currency(name)) {
        return Err(format!(
            "CURRENCY has 1 to {CURRENCY_BYTES_MAX} letters, digits, _ and -, a letter first, and is not base"
        ));
    }
    Ok(Tickets { amount, currency: currency.unwrap_or_default().into() })
}

pub(crate) fn parse_with(text: OsString) -> Result<With, String> {
    if text.is_empty() {
        return Err("HOST is empty".into());
    }
    let (host, guest) = split_with(&text);
    Ok(With { host, guest: guest.map(|path| OsString::from_vec(path).into()) })
}

/// `NAME=VALUE` as it is; `NAME` with the value of this process.
pub(crate) fn parse_variable(text: OsString) -> Result<OsString, String> {
    let name_bytes = text.as_bytes().iter().position(|byte| *byte == b'=');
    match name_bytes {
        Some(0) => Err("NAME is empty".into()),
        Some(_) => Ok(text),
        None if text.is_empty() => Err("NAME is empty".into()),
        None => match std::env::var_os(&text) {
            Some(value) => {
                let mut both = text;
                both.push("=");
                both.push(value);
                Ok(both)
            }
            None => Err("not set in this environment; write NAME=VALUE".into()),
        },
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;

//! The command line: what a user may write, and what it means. Nothing is changed, and nothing read but the
//! environment and whether the file of a `--with` exists.
//!
//! Options of the tool stand before PROGRAM; all that follows PROGRAM belongs to the program, also what
//! starts with `-`. clap parses; its messages are cut to the tool's one-line form in [`parse`].

pub(crate) mod disks;
pub(crate) mod drivers;
pub(crate) mod engine_words;
pub(crate) mod generated;
pub(crate) mod groups;
pub(crate) mod health;
pub(crate) mod image;
pub(crate) mod mounts;
pub(crate) mod network;
mod other_words;
pub(crate) mod pool;
pub(crate) mod values;
pub(crate) mod view;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use aegis_bench::BenchOptions;
use aegis_bench::compare::TestOptions;
use aegis_link::config::Tickets;
use aegis_link::drivers::Fault;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::options::engine_words::EngineWordOptions;
use crate::options::generated::{CompletionOptions, ManOptions};
use crate::options::groups::{CPU_COUNT_MAX, MachineOptions, PodOptions};
use crate::options::image::ImagesOptions;
use crate::options::pool::PoolOptions;
use crate::options::values::{parse_machine_memory, parse_name};
use crate::profile;
use crate::remote::exec::ExecOptions;
use crate::remote::{verbs, watching};

/// Most tickets that a currency issues, and the longest name of one: exos's limits.
const TICKETS_MAX: u64 = (1 << 40) - 1;
const CURRENCY_BYTES_MAX: usize = 32;

const NO_PROGRAM: &str = "which program? (aegis run [OPTIONS] PROGRAM [ARGS]...)";

const EXAMPLES: &str = "\
Examples:
  aegis run python3 -c 'print(6*7)'        a program of this host, as typed there
  aegis run --here cat README.md           the current directory too (--here=rw: to write there)
  echo abc | aegis run tr a-z A-Z          standard input, output and exit status as usual
  aegis run --with ./in:/in cat /in/notes  more files of this host, read-only
  aegis run -v ./data:/data wc /data/in    a directory of this host, live and writable (:ro read-only)
  aegis run --root / python3 prog.py       all of this host as the root, starting where you are
  aegis run -p 8080:80 nginx               port 8080 of this host leads to port 80 of the program
  aegis run -t bash                        a shell on a terminal of its own
  aegis run --root rootfs.tar /bin/sh      another root: a directory, a tar file or an EROFS image
  aegis run --image docker-archive:web.tar an image of a container, as docker save wrote it
  aegis run --stats --timeout 10 ls /      what it cost, and a time limit
  aegis up shop.toml                       several programs in one machine, isolated, with processor shares
  aegis exec -it web busybox sh            a shell in one of them
  aegis test --list FILE                   programs on Aegis and on Linux, and where they differ
  aegis doctor                             what is missing on this machine, and how to get it

`aegis run --help` explains every option.";

const RUN_NOTES: &str = "\
Exit status: the program's own; 128+n if signal n ended it; 124 if --timeout did; 125 if the tool
or the machine failed (wrong option, root image or memory size included); 126 if PROGRAM cannot be
executed, or not by this user or in this directory; 127 if there is no such program.

Ctrl-C and SIGTERM go to the program; a second one ends the machine. With -t every key goes to the
program's terminal, which acts on Ctrl-C and Ctrl-Z as it was told to; what is left then is a signal
from elsewhere.

Without --root the machine shows this host's system: /usr, /opt and their kin, live and read-only,
and of /etc what programs need; never homes, /root, /tmp, /var or /srv (--here and -v show those
that you name; --bare shows PROGRAM and its libraries alone). What the program writes is in memory
and gone when it ends.

The network is this user's: the program reaches what you reach, but not what listens on this host's
own loopback (--host-access), and is reached by -p. --network none takes the card away.

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
  image = \"oci:./web\"    # instead of root: as for --image; and user, as for --user
  volumes = [\"./data:/data:ro\"]
  with = [\"./conf:/etc/conf\"]
  ports = [\"8080:80\"]    # as for -p; and network, host_access, dns, hosts, ip, mac,
                         # gateway, hostname, pcap
  drivers = [\"net=library:virtio\"] # as for --driver
  disk = [\"pool:web,size=1G\"] # extents of the pool (,ro), or images as for --disk
  env = { PORT = \"80\" }
  workdir = \"/\"
  memory = \"64M\"         # for its programs, enforced; \"64M/512M\": guaranteed and at most [256M]
  tickets = 2000         # its share of the processors is in proportion [1000]

  [disk.pool]            # an image that pods have extents of; see `aegis pool`
  image = \"pool.img\"

Paths on this host are relative to FILE. Each pod has a library OS, memory and devices of its own and
reaches nothing of the others. Standard input is empty.

Exit status: 0 if every pod's program ended with 0, else that of the pod that failed first, as
`aegis run` would say it; 124 if --timeout ended the machine; 125 if the tool or the machine failed,
or FILE is wrong, or a pod ended without saying how.";

/// Runs unmodified Linux programs, each on its own library OS, in a small virtual machine
#[derive(Debug, Parser)]
#[command(name = "aegis", version, disable_help_subcommand = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
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
    /// Wait until pods end, and print their statuses
    Wait(watching::WaitOptions),
    /// Show what pods use now: processors, memory, network, processes
    Stats(watching::StatsOptions),
    /// Show how pods were started, as JSON
    Inspect(watching::InspectOptions),
    /// Show what happens to pods: starts, ends, restarts
    Events(watching::EventsOptions),
    /// End pods at once, or send them a signal
    Kill(verbs::KillOptions),
    /// Show or change the memory of pods
    Memory(verbs::MemoryOptions),
    /// Show or change the tickets of pods
    Tickets(verbs::TicketsOptions),
    /// Images of containers: list, fetch, remove, build
    Images(ImagesOptions),
    /// A disk that several pods have extents of: list, make, hand over, remove
    Pool(PoolOptions),
    /// Measure this system and Linux side by side
    Bench(Box<BenchOptions>),
    /// Run programs here and on Linux, and show where they differ
    Test(TestOptions),
    /// Say what is there, what is missing, and how to get it
    Doctor,
    /// Print completion for a shell (bash, zsh, fish)
    Completion(CompletionOptions),
    /// Write the manual's pages into a directory
    #[command(hide = true)]
    Man(ManOptions),
    /// Print the version
    Version,
    /// What `bench lottery` runs in a machine: measure draws in this process
    #[command(name = aegis_bench::DRAWS_VERB, hide = true)]
    Draws,
}

/// `--stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    /// Lines for people
    Text,
    /// One line of JSON
    Json,
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
    /// Show the machine to browsers (a page) and collectors (/metrics, OpenMetrics), on an address of the loopback
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Let pods drive their devices themselves: faster by a little, and any of them can then reach all memory
    #[arg(long)]
    pub(crate) trust_devices: bool,
    /// For tests: the pool's domain does wrong so many milliseconds after its start, again and again
    #[arg(long, value_name = "MS[:fault|hang|lie]", value_parser = drivers::parse_fault, hide = true)]
    pub(crate) fault_pool: Option<Fault>,
    /// The machine and its pods, in TOML; or a compose file, if it is called .yaml or .yml
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
    /// What other engines call so.
    #[command(flatten)]
    pub(crate) engine_words: EngineWordOptions,
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
    words: Option<Words>,
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
        match &self.words {
            Some(Words::Program(words)) => words,
            None => &[],
        }
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
                ErrorKind::MissingSubcommand => Err(NO_PROGRAM.into()),
                _ => Err(match other_words::instead(&error) {
                    Some(text) => text,
                    None => one_line(&error),
                }),
            };
        }
    };
    if let Command::Run(options) = &command
        && options.program_words().is_empty()
        && options.pod.image.image.is_none()
    {
        return Err(NO_PROGRAM.into());
    }
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

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;

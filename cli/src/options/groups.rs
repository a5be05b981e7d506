//! Options that several verbs share: those of a pod, and those of a machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use aegis_launch::machine::accel::AccelChoice;
use aegis_launch::machine::mounts::Volume;
use aegis_launch::machine::qemu::MachineKind;
use aegis_launch::root::{With, parse_with};
use aegis_link::config::Temporary;
use aegis_link::drivers::Fault;
use aegis_link::rights::Rights;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::options::disks::DiskOptions;
use crate::options::drivers::{DriverOption, parse_driver, parse_fault};
use crate::options::image::ImageOptions;
use crate::options::mounts::parse_place;
use crate::options::network::NetworkOptions;
use crate::options::values::{parse_memory, parse_seconds, parse_temporary, parse_variable};
use crate::options::view::ViewOptions;

/// Most processors.
pub(crate) const CPU_COUNT_MAX: i64 = 8;
/// Largest shift of `--icount`, QEMU's own limit: about a microsecond for each instruction.
const ICOUNT_SHIFT_MAX: i64 = 10;
/// Memory for programs, unless it is said.
pub(crate) const MEMORY_DEFAULT: &str = "256M";

// What belongs to a pod: on the command line of `aegis run`, and in a table of `aegis up`'s file. (No documentation
// comment: clap would make it the text of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Debug, Args)]
pub(crate) struct PodOptions {
    /// Root file system: a directory, served live; a tar file (also .tar.gz) or an EROFS image
    #[arg(long, value_name = "DIR|TAR|IMAGE")]
    pub(crate) root: Option<PathBuf>,
    /// An image as the root, and how it wants its program to run.
    #[command(flatten)]
    pub(crate) image: ImageOptions,
    /// Pack the directory of --root into an image before the start, instead of serving it live; --with does so too
    #[arg(long, requires = "root")]
    pub(crate) pack: bool,
    /// Write what the program writes into the directory of --root itself, not into memory over it
    #[arg(long, requires = "root", conflicts_with_all = ["pack", "with", "read_only"])]
    pub(crate) write_root: bool,
    /// Show this directory of the host in the machine, live; writable unless :ro. With --image NAME:GUEST is a volume
    /// that is kept, and GUEST alone a directory in memory (repeatable)
    #[arg(
        short = 'v',
        long = "volume",
        value_name = "HOST:GUEST[:ro]",
        value_parser = OsStringValueParser::new().try_map(parse_place)
    )]
    pub(crate) volumes: Vec<Volume>,
    /// Let nothing change in the root: only what -v and --tmpfs show, and /dev/shm, can be written to
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Show an empty directory there that is in memory; options size=SIZE, mode=OCTAL, noexec (repeatable)
    #[arg(long = "tmpfs", value_name = "DIR[:OPTIONS]", value_parser = parse_temporary)]
    pub(crate) temporaries: Vec<Temporary>,
    // What an engine says of the program's capabilities and limits.
    #[arg(skip)]
    pub(crate) rights: Rights,
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
    /// What it sees of this host.
    #[command(flatten)]
    pub(crate) view: ViewOptions,
    /// Where the program starts in the machine [default: /, or the image's; with --root / and --here the current one]
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    pub(crate) working_directory: Option<PathBuf>,
    /// Memory for programs, with K, M or G; the root comes on top
    #[arg(short = 'm', long, value_name = "SIZE", default_value = MEMORY_DEFAULT, value_parser = parse_memory)]
    pub(crate) memory: u64,
    /// What its network card is connected to.
    #[command(flatten)]
    pub(crate) network: NetworkOptions,
    /// Driver of the network card or of the disks, and where it runs [default: library:virtio] (repeatable)
    #[arg(long = "driver", value_name = "net|disk=library|domain|kernel[:MODEL]", value_parser = parse_driver)]
    pub(crate) drivers: Vec<DriverOption>,
    /// For tests: a disk's domain faults so many milliseconds after its start, again and again
    #[arg(long, value_name = "MS[:fault|hang|lie]", value_parser = parse_fault, hide = true)]
    pub(crate) fault_disk_domain: Option<Fault>,
    /// For tests: the same of a network card's domain
    #[arg(long, value_name = "MS[:fault|hang|lie]", value_parser = parse_fault, hide = true)]
    pub(crate) fault_net_domain: Option<Fault>,
    /// Its disks.
    #[command(flatten)]
    pub(crate) disks: DiskOptions,
}

/// Who answers touches of watched memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WatchPlacement {
    /// The program's library OS, which tells the program's handler.
    Library,
    /// An extended kernel, for ranges that a program has placed there.
    Kernel,
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
    /// Where touches of memory that a program has watched (recoverable memory) are answered
    #[arg(long, value_name = "library|kernel", default_value = "library", hide_possible_values = true)]
    pub(crate) watch: WatchPlacement,
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

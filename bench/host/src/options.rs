//! What a user may ask of `aegis bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::failure::Failure;
use super::result::Mode;

/// Most pairs of one run: an hour.
const PAIR_COUNT_MAX: i64 = 99;

const NOTES: &str = "\
Suites:
  micro  what single operations cost: calls, faults, signals, files, pipes
  native  what calls of the kernel itself cost (rows native_* of micro)
  boot   time from the command to the first output, least memory, bytes of kernel and image
  apps   Debian's python3, sqlite3, gzip, xz, gcc, perl and others from start to end
  scale  what operations cost among many things (row:N), and two threads beside one (only when it is named)
  disk   reads of a disk past every cache: virtio and IDE, block sizes, requests at once (only when it is named)
  net    what a client on the host sees of a server inside, by the user network (only when it is named)
  placement  datagrams echoed at 12 loads by each driver of a card (only when it is named)
  restart  pauses when the domain of a disk or card is killed 1,000 times (only when it is named)
  rhino  recoverable memory: the paper's rows and sweeps, by placement (only when it is named)
  lottery  the experiments of the lottery's paper in guest time, a figure for each (only when it is named)

Examples:
  aegis bench --icount micro --rows '^null'          instructions of some rows
  aegis bench --html now.html --json now.json        everything in time, as a page and as a file
  aegis bench apps --baseline before.json            what changed since
  aegis bench lottery --quick --html lottery.html    every experiment, a tenth as long
  aegis bench --from now.json --html now.html --history old/*.json

Exit status: 0 if there are figures and all of them can be trusted; 125 if there are none (one line says
why, and nothing is written) or if some are not to be trusted (a line for each says why; the report is
whole). A row that cannot run on a system is n/a with its reason and no failure.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// The primitives of an operating system
    Micro,
    /// The kernel contract itself: rows of micro
    Native,
    /// Time to the first output, least memory, bytes
    Boot,
    /// Real programs
    Apps,
    /// Costs that grow with how much there is
    Scale,
    /// The scheduler's experiments
    Lottery,
    /// A server inside, a client on the host
    Net,
    /// Drivers of cards, by where they run
    Placement,
    /// A disk, read past every cache
    Disk,
    /// Drivers that are lost
    Restart,
    /// Recoverable memory
    Rhino,
}

impl Suite {
    /// What is measured when nothing is named, in this order.
    const ALL: [Self; 3] = [Self::Micro, Self::Boot, Self::Apps];

    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Micro => "micro",
            Self::Native => "native",
            Self::Boot => "boot",
            Self::Apps => "apps",
            Self::Scale => "scale",
            Self::Lottery => "lottery",
            Self::Net => "net",
            Self::Placement => "placement",
            Self::Disk => "disk",
            Self::Restart => "restart",
            Self::Rhino => "rhino",
        }
    }
}

/// `--nic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Nic {
    /// Virtio
    Virtio,
    /// Intel 82540EM
    E1000,
    /// Intel 82574L
    E1000e,
}

/// `--only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// This system
    Aegis,
    /// Debian's cloud kernel
    Linux,
}

/// `aegis bench`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct BenchOptions {
    /// What to measure: micro, boot, apps (default: these), native, scale, lottery, net, placement, disk, restart,
    /// rhino
    #[arg(value_name = "SUITE", hide_possible_values = true)]
    suites: Vec<Suite>,
    /// Count guest instructions instead of time: every run gives the same figures (micro, scale, apps)
    #[arg(long)]
    pub(crate) icount: bool,
    /// Run the experiments of suite lottery once each, and a tenth as long; loads of placement and restart and
    /// transactions of rhino too
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where programs of suite net are that this host lacks: Debian's packages, unpacked by dpkg -x
    #[arg(long, value_name = "FOLDER")]
    pub(crate) programs: Option<PathBuf>,
    /// Cards of suite placement
    #[arg(
        long,
        value_name = "CARD[,CARD...]",
        value_delimiter = ',',
        default_value = "virtio",
        hide_possible_values = true
    )]
    pub(crate) nic: Vec<Nic>,
    /// Only the rows that this extended regular expression finds
    #[arg(long, value_name = "REGEX", default_value = ".", hide_default_value = true)]
    pub(crate) rows: String,
    /// Measure one system alone
    #[arg(long, value_name = "aegis|linux", hide_possible_values = true)]
    pub(crate) only: Option<Side>,
    /// Write the figures to this file; - is standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page to this file: tables, bars, versions, command lines
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Show the figures of these earlier files of --json on the page (suites stand before it)
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "html")]
    pub(crate) history: Vec<PathBuf>,
    /// Say what changed since this file of --json
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Instead of measuring, say where the instructions of this row of micro or scale fell; of several, the last
    #[arg(
        long,
        value_name = "NAME[,NAME...]",
        conflicts_with_all = ["suites", "json", "html", "baseline", "from", "rows", "pairs"]
    )]
    pub(crate) trace_row: Option<String>,
    /// With --trace-row, also what was inlined in the kernel and exos
    #[arg(long, requires = "trace_row")]
    pub(crate) trace_inlined: bool,
    /// With --trace-row, also one operation in the order of its execution
    #[arg(long, requires = "trace_row")]
    pub(crate) trace_path: bool,
    /// Measure nothing: report what this file of --json holds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["suites", "icount", "rows", "only", "json", "pairs"])]
    pub(crate) from: Option<PathBuf>,
    /// Runs of each system, in turn (without --icount)
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        value_parser = clap::value_parser!(u8).range(1..=PAIR_COUNT_MAX)
    )]
    pub(crate) pairs: u8,
}

impl BenchOptions {
    /// Refuses combinations that mean nothing.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.quick
            && !self
                .suites
                .iter()
                .any(|suite| matches!(suite, Suite::Lottery | Suite::Placement | Suite::Restart | Suite::Rhino))
        {
            return Err(Failure::Usage("--quick is for suites lottery, placement, restart and rhino"));
        }
        if self.icount && self.suites == [Suite::Boot] {
            return Err(Failure::Usage("--icount counts nothing in suite boot"));
        }
        Ok(())
    }

    /// The suites in the order asked for, each once. Under --icount `boot` is left out of "all".
    pub(crate) fn suites(&self) -> Vec<Suite> {
        let asked: &[Suite] = if self.suites.is_empty() { &Suite::ALL } else { &self.suites };
        let mut suites = Vec::new();
        let counted = |suite: &Suite| !self.icount || *suite != Suite::Boot;
        // `micro` has the rows of `native`.
        let is_within = |suite: &Suite| *suite == Suite::Native && asked.contains(&Suite::Micro);
        for suite in asked {
            if counted(suite) && !is_within(suite) && !suites.contains(suite) {
                suites.push(*suite);
            }
        }
        suites
    }

    /// What the figures are.
    pub(crate) fn mode(&self) -> Mode {
        if self.icount { Mode::Icount } else { Mode::Wall }
    }

    /// Whether a side takes part.
    pub(crate) fn wants(&self, side: Side) -> bool {
        self.only.is_none_or(|only| only == side)
    }
}

#[cfg(test)]
mod tests {
    use super::{BenchOptions, Side, Suite};
    use crate::result::Mode;
    use clap::Parser;
    use clap::error::ErrorKind;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: BenchOptions,
    }

    fn options(words: &str) -> BenchOptions {
        Line::try_parse_from(["bench"].into_iter().chain(words.split_whitespace())).unwrap().options
    }

    #[test]
    fn nothing_asked_for_is_everything() {
        let options = options("");
        assert_eq!(options.suites(), [Suite::Micro, Suite::Boot, Suite::Apps]);
        assert_eq!(options.mode(), Mode::Wall);
        assert_eq!((options.pairs, options.rows.as_str()), (5, "."));
        assert!(options.wants(Side::Aegis) && options.wants(Side::Linux));
    }

    #[test]
    fn options_stand_anywhere() {
        let options = options("--icount micro micro --rows ^null --only linux --json -");
        assert_eq!(options.suites(), [Suite::Micro]);
        assert_eq!(options.mode(), Mode::Icount);
        assert!(!options.wants(Side::Aegis) && options.wants(Side::Linux));
        assert!(options.check().is_ok());
    }

    #[test]
    fn instructions_of_a_boot_are_refused() {
        assert!(options("--icount boot").check().is_err());
        assert!(options("--quick micro").check().is_err() && options("lottery --quick").check().is_ok());
        assert_eq!(options("--icount").suites(), [Suite::Micro, Suite::Apps]);
        assert_eq!(options("native").suites(), [Suite::Native]);
        assert_eq!(options("--icount micro native").suites(), [Suite::Micro]);
    }

    #[test]
    fn a_file_is_reported_with_earlier_ones() {
        let options = options("--from now.json --html now.html --history a.json b.json");
        assert_eq!(options.from.as_deref(), Some("now.json".as_ref()));
        assert_eq!(options.history.len(), 2);
        assert!(options.check().is_ok());
    }

    #[test]
    fn wrong_words_are_errors() {
        for (words, kind) in [
            ("macro", ErrorKind::InvalidValue),
            ("--pairs 0", ErrorKind::ValueValidation),
            ("--only bsd", ErrorKind::InvalidValue),
            ("--from a micro", ErrorKind::ArgumentConflict),
            ("--from a --pairs 3", ErrorKind::ArgumentConflict),
            ("--history a", ErrorKind::MissingRequiredArgument),
        ] {
            let error = Line::try_parse_from(["bench"].into_iter().chain(words.split(' '))).unwrap_err();
            assert_eq!(error.kind(), kind, "{words}");
        }
    }
}

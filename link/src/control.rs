//! The text lines of the control port (`docs/control-port.md`), each the contents of a frame: types, parser, printer.
//!
//! What comes from the guest is not trusted: lines have a limit, numbers a range, and text loses its control characters
//! before it can reach a terminal.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::frame::{Foreign, Frame, Kind};

/// The protocol version that `hello` must name. 2: lines are the contents of frames ([`crate::frame`]).
pub const VERSION: u32 = 2;
/// Longest line.
pub const LINE_BYTES_MAX: usize = 4096;

/// How much a `log` line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something failed; shown always.
    Error,
    /// Something is missing or odd; shown unless `-q`.
    Warn,
    /// Shown with `--verbose`.
    Info,
    /// Shown with `--verbose`.
    Debug,
    /// Asked for by `--trace`; shown always.
    Trace,
}

/// A line from the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromGuest {
    /// exos is up.
    Hello {
        /// Must be [`VERSION`].
        version: u32,
    },
    /// How the program ended, or why it did not start. The last line.
    Ended(Report),
    /// Counters.
    Stats(Vec<(String, u64)>),
    /// A message for the user.
    Log(Level, String),
    /// A program mapped code, for a profile.
    Map(Mapping),
    /// What went through the pod's network card, in answer to [`ToGuest::Processes`], if it was used.
    Traffic {
        /// That of the question.
        token: u64,
        /// Since the start.
        traffic: GuestTraffic,
    },
    /// A process of the pod, in answer to [`ToGuest::Processes`].
    Process {
        /// The question's number.
        token: u64,
        /// Number, parent and command line.
        process: GuestProcess,
    },
    /// All processes have been told of, or as many as are told of.
    Processes {
        /// The question's number.
        token: u64,
        /// How many there are.
        count: u64,
    },
}

/// What went through a pod's network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestTraffic {
    /// Frames that came in.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that were sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// TCP segments that were sent again.
    pub repeated_segments: u64,
    /// Packets that were lost here, whatever the reason.
    pub drops: u64,
}

impl GuestTraffic {
    /// The line that tells of it.
    #[must_use]
    pub fn line(&self, token: u64) -> String {
        let Self { received_packets, received_bytes, sent_packets, sent_bytes, repeated_segments, drops } = self;
        let received = alloc::format!("{received_packets} {received_bytes}");
        alloc::format!("traffic {token} {received} {sent_packets} {sent_bytes} {repeated_segments} {drops}")
    }
}

/// A process of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestProcess {
    /// Process number.
    pub pid: u64,
    /// Parent's process number.
    pub parent: u64,
    /// `R`, `S`, `T`, `Z`.
    pub state: char,
    /// Processor time in nanoseconds.
    pub used_ns: u64,
    /// Memory that is present.
    pub resident_bytes: u64,
    /// Command line, words separated by blanks.
    pub command: String,
}

/// Code of a file that a program mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The address space: the physical address of its top page table.
    pub space: u64,
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where in the file `start` is.
    pub offset: u64,
    /// The file, as the program names it.
    pub path: String,
}

/// How the program ended, as exos tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// By itself, with this status.
    Exit(u8),
    /// A signal ended it.
    Killed {
        /// Linux signal number, 1..=64.
        signal: u8,
        /// Linux would have written a core file.
        core: bool,
        /// What to tell the user; may be empty.
        text: String,
    },
    /// It was not started.
    Fail {
        /// 125, 126 or 127.
        status: u8,
        /// What to tell the user.
        text: String,
    },
}

/// A line to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToGuest {
    /// Standard input ended after this many bytes.
    Eof {
        /// Total since the start.
        bytes: u64,
    },
    /// Deliver this signal.
    Signal(u8),
    /// The terminal's size.
    WindowSize {
        /// Lines of text.
        rows: u16,
        /// Characters in a line.
        columns: u16,
    },
    /// Say what the run has cost so far.
    Stats,
    /// Say which processes there are.
    Processes {
        /// Comes back in the answer.
        token: u64,
    },
    /// The line of sessions is open from the opening with this number on (`aegis_link::sessions`).
    Sessions {
        /// The number.
        token: u64,
    },
    /// Nobody takes what this port carries any more.
    Closed {
        /// Number of the port: standard output or standard error.
        port: u8,
        /// Linux error number of the write that failed.
        errno: i32,
    },
}

impl fmt::Display for ToGuest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eof { bytes } => write!(out, "eof {bytes}"),
            Self::Signal(number) => write!(out, "signal {number}"),
            Self::WindowSize { rows, columns } => write!(out, "winsize {rows} {columns}"),
            Self::Stats => write!(out, "stats"),
            Self::Processes { token } => write!(out, "processes {token}"),
            Self::Sessions { token } => write!(out, "sessions {token}"),
            Self::Closed { port, errno } => write!(out, "closed {port} {errno}"),
        }
    }
}

impl ToGuest {
    /// The line as a frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Frame::new(Kind::Control, self.to_string().as_bytes()).encode()
    }

    /// Reads one line; `None` for one that this version does not know, which is passed over.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        fn number<T: FromStr>(word: Option<&str>) -> Option<T> {
            word?.parse().ok()
        }
        let mut words = line.split(' ');
        Some(match words.next()? {
            "eof" => Self::Eof { bytes: number(words.next())? },
            "signal" => Self::Signal(number(words.next()).filter(|signal| (1..=64).contains(signal))?),
            "winsize" => Self::WindowSize { rows: number(words.next())?, columns: number(words.next())? },
            "stats" => Self::Stats,
            "processes" => Self::Processes { token: number(words.next())? },
            "sessions" => Self::Sessions { token: number(words.next())? },
            "closed" => Self::Closed { port: number(words.next())?, errno: number(words.next())? },
            _ => return None,
        })
    }
}

/// What is wrong with a line from the guest. The guest is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The first word is none that this version knows.
    UnknownVerb,
    /// A number is missing, not decimal, or out of its range.
    Number,
    /// A `log` level that does not exist.
    Level,
    /// A `stats` word without `=`, or without a key.
    Counter,
    /// It is no frame of the control port.
    Frame(Foreign),
}

impl FromGuest {
    /// Reads one line.
    pub fn parse(line: &[u8]) -> Result<Self, Malformed> {
        let text = printable(line);
        let (verb, rest) = split_word(&text);
        match verb {
            "hello" => {
                let version = split_word(rest).0.parse().map_err(|_| Malformed::Number)?;
                Ok(Self::Hello { version })
            }
            "exit" => Ok(Self::Ended(Report::Exit(number(rest, 0, 255)?.0))),
            "killed" => {
                let (signal, rest) = number(rest, 1, 64)?;
                let (core, rest) = number(rest, 0, 1)?;
                let text = rest.to_string();
                Ok(Self::Ended(Report::Killed { signal, core: core == 1, text }))
            }
            "fail" => {
                let (status, rest) = number(rest, 125, 127)?;
                Ok(Self::Ended(Report::Fail { status, text: rest.to_string() }))
            }
            "stats" => {
                rest.split(' ').filter(|word| !word.is_empty()).map(counter).collect::<Result<_, _>>().map(Self::Stats)
            }
            "log" => {
                let (level, rest) = split_word(rest);
                Ok(Self::Log(level_named(level)?, rest.to_string()))
            }
            "traffic" => traffic(rest).ok_or(Malformed::Number),
            "process" => process(rest).ok_or(Malformed::Number),
            "processes" => {
                let number = |text: &str| text.parse().map_err(|_| Malformed::Number);
                let (token, rest) = split_word(rest);
                Ok(Self::Processes { token: number(token)?, count: number(rest)? })
            }
            "map" => mapping(rest).ok_or(Malformed::Number).map(Self::Map),
            _ => Err(Malformed::UnknownVerb),
        }
    }
}

fn traffic(text: &str) -> Option<FromGuest> {
    let mut words = text.split(' ');
    let mut number = || words.next()?.parse().ok();
    let token = number()?;
    let traffic = GuestTraffic {
        received_packets: number()?,
        received_bytes: number()?,
        sent_packets: number()?,
        sent_bytes: number()?,
        repeated_segments: number()?,
        drops: number()?,
    };
    Some(FromGuest::Traffic { token, traffic })
}

fn process(text: &str) -> Option<FromGuest> {
    let mut words = text.splitn(7, ' ');
    let mut number = || words.next()?.parse().ok();
    let (token, pid, parent) = (number()?, number()?, number()?);
    let state = words.next()?.chars().next().filter(|letter| "RSTZ".contains(*letter))?;
    let mut number = || words.next()?.parse().ok();
    let (used_ns, resident_bytes) = (number()?, number()?);
    let command = words.next().unwrap_or("").to_owned();
    Some(FromGuest::Process { token, process: GuestProcess { pid, parent, state, used_ns, resident_bytes, command } })
}

fn mapping(text: &str) -> Option<Mapping> {
    let mut words = text.splitn(5, ' ');
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let (space, start, end, offset) = (number()?, number()?, number()?, number()?);
    let path = words.next()?.to_string();
    // Nothing that is added to an offset overflows.
    let is_sound = start < end && offset.checked_add(end - start).is_some();
    is_sound.then_some(Mapping { space, start, end, offset, path })
}

fn level_named(word: &str) -> Result<Level, Malformed> {
    Ok(match word {
        "error" => Level::Error,
        "warn" => Level::Warn,
        "info" => Level::Info,
        "debug" => Level::Debug,
        "trace" => Level::Trace,
        _ => return Err(Malformed::Level),
    })
}

fn counter(word: &str) -> Result<(String, u64), Malformed> {
    match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.parse().map_err(|_| Malformed::Number)?)),
        _ => Err(Malformed::Counter),
    }
}

fn number(text: &str, low: u8, high: u8) -> Result<(u8, &str), Malformed> {
    let (word, rest) = split_word(text);
    let value: u8 = word.parse().map_err(|_| Malformed::Number)?;
    if (low..=high).contains(&value) { Ok((value, rest)) } else { Err(Malformed::Number) }
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

/// The bytes as text that cannot move a terminal's cursor: bad UTF-8 and control characters are replaced,
/// tabs stay.
pub fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::{FromGuest, GuestTraffic, Level, Malformed, Report, ToGuest};
    use alloc::string::{String, ToString};
    use alloc::vec;

    fn parse(line: &str) -> Result<FromGuest, Malformed> {
        FromGuest::parse(line.as_bytes())
    }

    #[test]
    fn every_line_of_the_document_parses() {
        assert_eq!(parse("hello 1"), Ok(FromGuest::Hello { version: 1 }));
        assert_eq!(parse("exit 7"), Ok(FromGuest::Ended(Report::Exit(7))));
        assert_eq!(
            parse("killed 11 1 store to 0x0 at main+4"),
            Ok(FromGuest::Ended(Report::Killed { signal: 11, core: true, text: "store to 0x0 at main+4".into() }))
        );
        assert_eq!(
            parse("killed 15 0"),
            Ok(FromGuest::Ended(Report::Killed { signal: 15, core: false, text: String::new() }))
        );
        assert_eq!(
            parse("fail 127 foo: not found in the root"),
            Ok(FromGuest::Ended(Report::Fail { status: 127, text: "foo: not found in the root".into() }))
        );
        assert_eq!(
            parse("stats boot_ns=1 page_faults=18446744073709551615"),
            Ok(FromGuest::Stats(vec![("boot_ns".into(), 1), ("page_faults".into(), u64::MAX)]))
        );
        assert_eq!(
            parse("log warn openat2: not there (ENOSYS)"),
            Ok(FromGuest::Log(Level::Warn, "openat2: not there (ENOSYS)".into()))
        );
    }

    #[test]
    fn mappings_of_code() {
        let Ok(FromGuest::Map(mapping)) = parse("map 12000 400000 401000 1000 /usr/bin/two words") else { panic!() };
        assert_eq!(
            (mapping.space, mapping.start, mapping.end, mapping.offset),
            (0x12000, 0x40_0000, 0x40_1000, 0x1000)
        );
        assert_eq!(mapping.path, "/usr/bin/two words");
        for line in ["map", "map 1 2 3 4", "map 1 3 2 0 /x", "map 1 2 3 ffffffffffffffff /x", "map x 2 3 4 /x"] {
            assert_eq!(parse(line), Err(Malformed::Number), "{line}");
        }
    }

    #[test]
    fn processes_of_a_pod() {
        let Ok(FromGuest::Process { token: 7, process }) = parse("process 7 3 1 S 1500 4096 sh -c a  b") else {
            panic!()
        };
        assert_eq!((process.pid, process.parent, process.state), (3, 1, 'S'));
        assert_eq!((process.used_ns, process.resident_bytes, process.command.as_str()), (1500, 4096, "sh -c a  b"));
        let traffic = GuestTraffic {
            received_packets: 1,
            received_bytes: 2,
            sent_packets: 3,
            sent_bytes: 4,
            repeated_segments: 5,
            drops: 6,
        };
        assert_eq!(traffic.line(7), "traffic 7 1 2 3 4 5 6");
        assert_eq!(parse(&traffic.line(7)), Ok(FromGuest::Traffic { token: 7, traffic }));
        assert_eq!(parse("traffic 7 1 2 3 4 5"), Err(Malformed::Number));
        assert_eq!(parse("processes 7 12"), Ok(FromGuest::Processes { token: 7, count: 12 }));
        for line in ["process", "process 7 3 1 X 0 0 sh", "process 7 3 1 S 0", "processes 7", "processes x 1"] {
            assert_eq!(parse(line), Err(Malformed::Number), "{line}");
        }
    }

    #[test]
    fn wrong_lines_are_refused_by_kind() {
        for (line, fault) in [
            ("", Malformed::UnknownVerb),
            ("bye", Malformed::UnknownVerb),
            ("hello", Malformed::Number),
            ("exit", Malformed::Number),
            ("exit 256", Malformed::Number),
            ("exit -1", Malformed::Number),
            ("killed 0 0 x", Malformed::Number),
            ("killed 11 2 x", Malformed::Number),
            ("fail 1 x", Malformed::Number),
            ("stats boot_ns", Malformed::Counter),
            ("stats =4", Malformed::Counter),
            ("stats a=b", Malformed::Number),
            ("log loud x", Malformed::Level),
        ] {
            assert_eq!(parse(line), Err(fault), "{line:?}");
        }
    }

    #[test]
    fn text_cannot_carry_terminal_sequences() {
        let parsed = FromGuest::parse(b"log error a\x1b[2Jb\xff\tc");
        let Ok(FromGuest::Log(_, text)) = parsed else { panic!("{parsed:?}") };
        assert_eq!(text, "a\u{fffd}[2Jb\u{fffd}\tc");
    }

    #[test]
    fn lines_to_the_guest_are_as_documented_and_read_back() {
        for (message, line) in [
            (ToGuest::Eof { bytes: 4 }, "eof 4"),
            (ToGuest::Signal(15), "signal 15"),
            (ToGuest::WindowSize { rows: 25, columns: 80 }, "winsize 25 80"),
            (ToGuest::Sessions { token: u64::MAX }, "sessions 18446744073709551615"),
            (ToGuest::Processes { token: 5 }, "processes 5"),
            (ToGuest::Closed { port: 2, errno: 32 }, "closed 2 32"),
            (ToGuest::Stats, "stats"),
        ] {
            assert_eq!(message.to_string(), line);
            assert_eq!(ToGuest::parse(line), Some(message));
        }
        for line in ["", "eof", "eof x", "signal 0", "signal 65", "winsize 1", "winsize 1 70000", "closed 2", "else"] {
            assert_eq!(ToGuest::parse(line), None, "{line:?}");
        }
    }
}

//! Linux as the oracle of the file policy: random operations run on a directory of the host and in a name
//! space of exos, on a plain memory file system and on the overlay over an EROFS image; results, errors and
//! the trees at the end must agree.
//!
//! The seeds are fixed. Both sides start some levels below their root, so that `..` cannot leave the common
//! part; absolute paths are left to the unit tests.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod generate;
mod guest;
mod host;

use exos::error::Errno;

use generate::{FileStep, Generator, Operation};
use guest::Guest;
use host::Host;

/// Where both sides start, below their roots.
const START: [&str; 4] = ["w", "v", "u", "t"];
const SEED_COUNT: u64 = 40;
const OPERATION_COUNT: usize = 150;

/// What an operation tells.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Bytes(Vec<u8>),
    Number(u64),
    Failed(Errno),
    /// What opened, and what each step on it told.
    Steps(Vec<Outcome>),
}

impl Outcome {
    /// For histories: without contents.
    fn brief(&self) -> String {
        match self {
            Self::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Self::Steps(steps) => {
                let steps: Vec<String> = steps.iter().map(Self::brief).collect();
                format!("[{}]", steps.join(", "))
            }
            other => format!("{other:?}"),
        }
    }
}

/// One node of a tree, as both sides describe it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Described {
    path: String,
    mode: u32,
    link_count: u64,
    size_bytes: u64,
    content: Vec<u8>,
}

/// The tree that both sides start with: path, and what is there.
fn initial_tree() -> Vec<(&'static str, Initial)> {
    vec![
        ("d", Initial::Directory),
        ("d/e", Initial::Directory),
        ("d/empty", Initial::Directory),
        ("a", Initial::File(b"hello".to_vec())),
        ("d/a", Initial::File((0..9000_u32).map(|byte| byte as u8).collect())),
        ("b", Initial::Link("a")),
        ("l", Initial::Symlink("a")),
        ("m", Initial::Symlink("d")),
        ("d/l", Initial::Symlink("../d/e")),
        ("x", Initial::Symlink("nowhere")),
        ("o", Initial::Symlink("o")),
        ("p", Initial::Fifo),
    ]
}

enum Initial {
    Directory,
    File(Vec<u8>),
    /// Another name of that file.
    Link(&'static str),
    Symlink(&'static str),
    Fifo,
}

fn compare(seed: u64, guest: &Guest) {
    let host = Host::new(seed);
    let mut generator = Generator::new(seed);
    let mut history = String::new();
    for step in 0..OPERATION_COUNT {
        let operation = generator.operation();
        let (expected, got) = (host.run(&operation), guest.run(&operation));
        history.push_str(&format!("{operation:?} -> {}\n", expected.brief()));
        assert_eq!(got, expected, "seed {seed}, step {step}: guest left, Linux right, after\n{history}");
        if step % 10 == 9 || step + 1 == OPERATION_COUNT {
            let (expected, got) = (host.tree(), guest.tree());
            for (expected, got) in expected.iter().zip(&got) {
                assert_eq!(got, expected, "seed {seed}, step {step}: after\n{history}");
            }
            assert_eq!(got.len(), expected.len(), "seed {seed}, step {step}: after\n{history}");
        }
    }
}

#[test]
fn a_memory_file_system_behaves_as_linux() {
    for seed in 0..SEED_COUNT {
        compare(seed, &Guest::on_memory());
    }
}

#[test]
fn an_overlay_behaves_as_linux() {
    for seed in 0..SEED_COUNT {
        compare(1_000 + seed, &Guest::on_overlay());
    }
}

/// Paths that random ones rarely hit, through every operation that takes one.
#[test]
fn odd_paths_fail_as_on_linux() {
    let long_name = "n".repeat(255);
    let too_long_name = "n".repeat(256);
    let too_long_path = "./".repeat(2048);
    let long_path = format!("{}a", "./".repeat(2047));
    let paths = [
        "",
        ".",
        "..",
        "./",
        "../",
        "a/",
        "a/.",
        "a/..",
        "d/.",
        "d/..",
        "d/./",
        "d/../",
        "l/",
        "m/",
        "m/.",
        "m/..",
        "x",
        "x/",
        "x/y",
        "o",
        "o/",
        "o/y",
        "p",
        "p/",
        "none",
        "none/",
        "none/y",
        "none/..",
        "d//a",
        "d/e/",
        "d/empty",
        "d/empty/",
        "d/l",
        "d/l/",
        "a/b",
        "l/b",
        &long_name,
        &too_long_name,
        &too_long_path,
        &long_path,
        "a/nnnn",
        "d/l/..",
        "m/l/../a",
    ];
    for make in [Guest::on_memory, Guest::on_overlay] {
        let (mut host, mut guest) = (Host::new(77), make());
        for operation in paths.iter().flat_map(|path| generate::every_operation_on(path, &paths)) {
            let (expected, got) = (host.run(&operation), guest.run(&operation));
            assert_eq!(got, expected, "guest left, Linux right: {operation:?}");
            if !matches!(got, Outcome::Failed(_)) {
                assert_eq!(guest.tree(), host.tree(), "trees after {operation:?}");
                if operation.may_change() {
                    (host, guest) = (Host::new(77), make());
                }
            }
        }
        assert_eq!(guest.tree(), host.tree(), "trees at the end");
    }
}

#[test]
fn sparse_files_seek_as_on_linux() {
    let host = Host::new(99);
    let guest = Guest::on_memory();
    for first in [0, 1, 4095, 4096, 10_000] {
        for second in [20_000, 40_960, 50_001] {
            for from in [0, 4096, 12_288, 20_000, 49_152, 60_000] {
                let steps = vec![
                    FileStep::Truncate(0),
                    FileStep::WriteAt(first, 5),
                    FileStep::WriteAt(second, 5),
                    FileStep::Truncate(60_000),
                    FileStep::SeekData(from),
                    FileStep::SeekHole(from),
                    FileStep::PunchHole(first, 30_000),
                    FileStep::SeekData(from),
                    FileStep::SeekHole(from),
                    FileStep::ReadAt(0, 60_000),
                ];
                let operation = Operation::open_read_write("s", steps);
                assert_eq!(guest.run(&operation), host.run(&operation), "{operation:?}");
            }
        }
    }
}

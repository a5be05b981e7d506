//! The rows of suite `apps`: which programs of Debian run, on what, and which root they are in.
//!
//! Rows that work on the same things share a root, so that it is made and loaded less often and no machine carries
//! what its program does not need.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppRow {
    pub(super) name: &'static str,
    /// The root it runs in.
    pub(super) root: &'static str,
    /// Where standard input comes from; `-` is nothing.
    pub(super) input: &'static str,
    /// Where standard output goes; `-` is the host, which compares what the systems say.
    pub(super) output: &'static str,
    /// The program's path, and its arguments.
    pub(super) words: &'static [&'static str],
}

/// Files of a root besides the launcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppRoot {
    pub(super) name: &'static str,
    /// Programs of the host, with the libraries they need.
    pub(super) programs: &'static [&'static str],
    /// Files and directories of the host, at their own paths, and all that begin like those that end in `*`.
    pub(super) host_files: &'static [&'static str],
    /// Of what the generator wrote and `bench/apps` holds, below `/bench`.
    pub(super) bench_files: &'static [&'static str],
    /// The package that has the programs.
    pub(super) package: &'static str,
}

/// All rows, in the order in which they are measured.
pub(super) const ROWS: [AppRow; 14] = [
    shown("python3_start", "python", &["/usr/bin/python3", "-c", "print('hello')"]),
    shown("python3_benchmark", "python", &["/usr/bin/python3", "/bench/benchmark.py"]),
    AppRow {
        input: "/bench/statements.sql",
        ..shown("sqlite3_100k_statements", "sqlite", &["/usr/bin/sqlite3", ":memory:"])
    },
    kept("gzip_64MiB", "text", &["/usr/bin/gzip", "-1", "-c", "/bench/text"]),
    kept("xz_64MiB", "text", &["/usr/bin/xz", "-0", "-T1", "-c", "/bench/text"]),
    shown("sha256sum_64MiB", "text", &["/usr/bin/sha256sum", "/bench/text"]),
    shown("gcc_O2_5000_lines", "gcc", &["/usr/bin/gcc", "-O2", "-c", "-o", "/tmp/program.o", "/bench/program.i"]),
    shown(
        "cc1_O2_5000_lines",
        "gcc",
        &[CC1, "-quiet", "-fpreprocessed", "-O2", "-o", "/tmp/program.s", "/bench/program.i"],
    ),
    shown("sh_fork_500", "tree", &["/bin/sh", "/bench/forks.sh"]),
    shown("sh_command_500", "tree", &["/bin/sh", "/bench/commands.sh"]),
    shown(
        "find_2000_files",
        "tree",
        &["/usr/bin/find", "/bench/tree", "-type", "f", "-size", "+8", "-name", "*-7.txt"],
    ),
    shown("grep_2000_files", "tree", &["/usr/bin/grep", "-rlw", "needle", "/bench/tree"]),
    shown("perl_start", "perl", &["/usr/bin/perl", "-e", "print \"hello\\n\""]),
    shown("perl_benchmark", "perl", &["/usr/bin/perl", "/bench/benchmark.pl"]),
];

/// Stands for what gcc starts for the work itself; gcc knows where it is.
const CC1: &str = "cc1";

/// All roots.
pub(super) const ROOTS: [AppRoot; 6] = [
    AppRoot {
        name: "python",
        programs: &["/usr/bin/python3"],
        host_files: &["/usr/lib/python3.*"],
        bench_files: &["benchmark.py"],
        package: "python3",
    },
    AppRoot {
        name: "sqlite",
        programs: &["/usr/bin/sqlite3"],
        host_files: &[],
        bench_files: &["statements.sql"],
        package: "sqlite3",
    },
    AppRoot {
        name: "text",
        programs: &["/usr/bin/gzip", "/usr/bin/xz", "/usr/bin/sha256sum"],
        host_files: &[],
        bench_files: &["text"],
        package: "gzip xz-utils coreutils",
    },
    AppRoot {
        name: "gcc",
        programs: &["/usr/bin/gcc", CC1, "/usr/bin/as"],
        host_files: &[],
        bench_files: &["program.i"],
        package: "gcc",
    },
    AppRoot {
        name: "tree",
        programs: &["/bin/sh", "/usr/bin/true", "/usr/bin/find", "/usr/bin/grep"],
        host_files: &[],
        bench_files: &["tree", "forks.sh", "commands.sh"],
        package: "dash coreutils findutils grep",
    },
    AppRoot {
        name: "perl",
        programs: &["/usr/bin/perl"],
        host_files: &["/usr/lib/x86_64-linux-gnu/perl-base"],
        bench_files: &["benchmark.pl"],
        package: "perl-base",
    },
];

/// Files of `bench/apps` that are not generated.
pub(super) const SCRIPTS: [(&str, &str); 4] = [
    ("benchmark.py", include_str!("../../../apps/benchmark.py")),
    ("benchmark.pl", include_str!("../../../apps/benchmark.pl")),
    ("forks.sh", include_str!("../../../apps/forks.sh")),
    ("commands.sh", include_str!("../../../apps/commands.sh")),
];

/// What it writes is little and is compared.
const fn shown(name: &'static str, root: &'static str, words: &'static [&'static str]) -> AppRow {
    AppRow { name, root, input: "-", output: "-", words }
}

/// What it writes is much and stays in the machine.
const fn kept(name: &'static str, root: &'static str, words: &'static [&'static str]) -> AppRow {
    AppRow { name, root, input: "-", output: "/tmp/output", words }
}

/// Where a program is on this host, and so in the root.
pub(super) fn host_path(program: &str) -> String {
    static FOUND: OnceLock<String> = OnceLock::new();
    if program != CC1 {
        return program.to_string();
    }
    let find = || {
        let output = Command::new("gcc").arg("-print-prog-name=cc1").stdin(Stdio::null()).output();
        // Without one, gcc repeats the name.
        output.map_or(CC1.into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    FOUND.get_or_init(find).clone()
}

impl AppRow {
    /// The file that the launcher reads: a word on each line.
    pub(super) fn file(&self) -> String {
        let program = self.words.iter().take(1).map(|word| host_path(word));
        let arguments = self.words.iter().skip(1).map(ToString::to_string);
        let words = [self.input, self.output].map(String::from).into_iter().chain(program).chain(arguments);
        words.map(|word| word + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{ROOTS, ROWS, SCRIPTS};

    #[test]
    fn rows_fit_together() {
        for row in &ROWS {
            let root = ROOTS.iter().find(|root| root.name == row.root).expect(row.name);
            assert!(root.programs.contains(&row.words[0]), "{}", row.name);
            // The launcher's limits (bench/apps/launch.c).
            assert!(row.words.len() < 60 && row.file().len() < 4096 && !row.words.iter().any(|it| it.contains('\n')));
            let files = row.words.iter().chain([&row.input]).filter_map(|word| word.strip_prefix("/bench/"));
            for file in files {
                assert!(root.bench_files.contains(&file), "{file}");
            }
            assert_eq!(ROWS.iter().filter(|it| it.name == row.name).count(), 1);
        }
        for (name, _) in SCRIPTS {
            assert!(ROOTS.iter().any(|root| root.bench_files.contains(&name)), "{name}");
        }
    }
}

//! Why a bench run did not take place or did not finish, each as one line.

use std::fmt;
use std::io;
use std::path::PathBuf;

use aegis_launch::errors::Error;

/// Why there are no figures.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for something that means nothing.
    Usage(&'static str),
    /// `--rows` is not a regular expression, or finds nothing.
    Rows(String),
    /// The tool itself: QEMU or what the build makes is missing.
    Tool(Error),
    /// The host refused an operation.
    Host(&'static str, io::Error),
    /// A file could not be read or written.
    File(&'static str, PathBuf, io::Error),
    /// There is no place for the cache.
    NoCache,
    /// A program of the host that is needed is not there; the second text says how to get it.
    Missing(&'static str, &'static str),
    /// Debian's kernel is not cached and cannot be fetched.
    Fetch(String),
    /// The row that is to be traced cannot run on a system.
    NoRow(String),
    /// A trace came to nothing.
    Trace(String),
    /// This program of `bench/` does not compile.
    Compile(&'static str, String),
    /// What the programs work on could not be made.
    Generate(String),
    /// A machine did not get as far as the program.
    NotUp(&'static str, String),
    /// A machine ended or fell silent, and not only in a row or two.
    Broken(&'static str, String),
    /// A file of `--json` cannot be read; the first text is the option that named it.
    Report(&'static str, PathBuf, String),
}

impl Failure {
    /// A failed operation on a file; a full disk is what its user wants to read first.
    pub(crate) fn file(doing: &'static str, path: PathBuf, error: io::Error) -> Self {
        Self::File(doing, path, error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Tool(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => write!(out, "{text}"),
            Self::Rows(text) => write!(out, "--rows: {text}"),
            Self::Tool(error) => write!(out, "{error}"),
            Self::Host(doing, error) => write!(out, "{doing}: {error}"),
            Self::File(doing, path, error) => write!(out, "{doing} {}: {error}", path.display()),
            Self::NoCache => write!(out, "no place for the cache: set HOME or XDG_CACHE_HOME"),
            Self::Missing(name, how) => write!(out, "{name}: not found; {how}"),
            Self::Fetch(why) => write!(
                out,
                "Debian's kernel is not cached and could not be fetched: {why} \
                 (--only aegis needs no Linux)"
            ),
            Self::NoRow(why) => write!(out, "--trace-row: {why}"),
            Self::Trace(why) => write!(out, "--trace-row: {why}"),
            Self::Compile(name, why) => write!(out, "gcc does not compile {name} of bench/: {why}"),
            Self::Generate(why) => write!(out, "what the programs work on could not be written: {why}"),
            Self::NotUp(system, why) => write!(out, "{system} did not come up: {why}"),
            Self::Broken(system, why) => write!(out, "{system}: {why}"),
            Self::Report(option, path, why) => write!(out, "{option} {}: {why}", path.display()),
        }
    }
}

/// What a program said, as part of one line: its last line that says something.
pub(crate) fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|it| !it.is_empty());
    line.unwrap_or("it said nothing").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::{Failure, last_line};
    use std::io::ErrorKind;

    #[test]
    fn every_failure_is_one_line() {
        let failures = [
            Failure::Usage("x"),
            Failure::Rows("Unmatched [".into()),
            Failure::Host("a", ErrorKind::StorageFull.into()),
            Failure::file("writing", "/f".into(), ErrorKind::StorageFull.into()),
            Failure::NoCache,
            Failure::Missing("gcc", "on Debian: sudo apt install gcc"),
            Failure::Fetch("no network".into()),
            Failure::NoRow("x".into()),
            Failure::Trace("x".into()),
            Failure::Compile("micro", "x".into()),
            Failure::Generate("x".into()),
            Failure::NotUp("Linux", "x".into()),
            Failure::Broken("Linux", "x".into()),
            Failure::Report("--baseline", "/f".into(), "x".into()),
        ];
        for failure in failures {
            assert!(!failure.to_string().contains('\n'), "{failure}");
        }
    }

    #[test]
    fn the_last_line_that_says_something() {
        assert_eq!(last_line("a\r\nE: no route\r\n\n"), "E: no route");
        assert_eq!(last_line(" \n"), "it said nothing");
        assert_eq!(last_line(&"x".repeat(999)).len(), 200);
    }
}

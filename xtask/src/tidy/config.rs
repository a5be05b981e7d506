//! What `tidy.toml` says. Every key is required or has a table of its own; an unknown key is an error, so that a
//! misspelt exception cannot be mistaken for one that is granted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::errors::Error;
use crate::toml::{self, Table, Value};

/// `tidy.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) file_lines: usize,
    pub(super) line_columns: usize,
    pub(super) markdown_columns: usize,
    pub(super) module_docs_from_lines: usize,
    pub(super) kernel_lines: usize,
    pub(super) ring0_lines: usize,
    /// What is linked into the kernel.
    pub(super) ring0_folders: Vec<String>,
    pub(super) crates: usize,
    /// The largest circle of files that use each other.
    pub(super) circle_files: usize,
    /// Longer files, by path.
    pub(super) file_ratchet: BTreeMap<String, usize>,
    /// Larger circles, by the crate's folder.
    pub(super) circle_ratchet: BTreeMap<String, usize>,
    /// Of ours, by crate.
    pub(super) arrows: BTreeMap<String, Vec<String>>,
    pub(super) dev_arrows: BTreeMap<String, Vec<String>>,
    /// Of others, by crate.
    pub(super) external: BTreeMap<String, Vec<String>>,
    pub(super) unsafe_allowed: Vec<String>,
    pub(super) word_folders: Vec<String>,
    pub(super) words: Vec<String>,
    pub(super) word_phrases: Vec<String>,
    pub(super) word_skipped: Vec<String>,
    pub(super) dialect_folders: Vec<String>,
    pub(super) dialect: Vec<String>,
    pub(super) calls_source: String,
    pub(super) calls_manual: String,
    pub(super) dependencies_manual: String,
    pub(super) folders_manual: String,
    pub(super) folders_heading: String,
    pub(super) rooms_manual: String,
    pub(super) rooms_heading: String,
    /// The commit behind which subjects are judged.
    pub(super) commits_base: String,
    pub(super) subject_columns: usize,
}

impl Config {
    pub(super) fn read(root: &Path) -> Result<Config, Error> {
        let what = root.join("tidy.toml");
        let text = fs::read_to_string(&what).map_err(Error::io(&what))?;
        Config::parse(&text).map_err(|problem| Error::Config { what, problem })
    }

    /// The error names the key.
    fn parse(text: &str) -> Result<Config, String> {
        let mut rest = toml::parse(text)?;
        let mut limits = take_table(&mut rest, "limits")?;
        let mut ratchet = take_table(&mut rest, "ratchet")?;
        let mut unsafety = take_table(&mut rest, "unsafe")?;
        let mut words = take_table(&mut rest, "words")?;
        let mut dialect = take_table(&mut rest, "dialect")?;
        let mut calls = take_table(&mut rest, "calls")?;
        let mut dependencies = take_table(&mut rest, "dependencies")?;
        let mut rooms = take_table(&mut rest, "rooms")?;
        let mut commits = take_table(&mut rest, "commits")?;
        let config = Config {
            file_lines: take(&mut limits, "file_lines", Value::as_integer)?,
            line_columns: take(&mut limits, "line_columns", Value::as_integer)?,
            markdown_columns: take(&mut limits, "markdown_columns", Value::as_integer)?,
            module_docs_from_lines: take(&mut limits, "module_docs_from_lines", Value::as_integer)?,
            kernel_lines: take(&mut limits, "kernel_lines", Value::as_integer)?,
            ring0_lines: take(&mut limits, "ring0_lines", Value::as_integer)?,
            ring0_folders: take(&mut limits, "ring0_folders", Value::as_strings)?,
            crates: take(&mut limits, "crates", Value::as_integer)?,
            circle_files: take(&mut limits, "circle_files", Value::as_integer)?,
            circle_ratchet: take_map(&mut ratchet, "circle_files", Value::as_integer)?,
            file_ratchet: take_map(&mut ratchet, "file_lines", Value::as_integer)?,
            arrows: take_map(&mut rest, "arrows", Value::as_strings)?,
            dev_arrows: take_map(&mut rest, "dev-arrows", Value::as_strings)?,
            external: take_map(&mut rest, "external", Value::as_strings)?,
            unsafe_allowed: take(&mut unsafety, "allowed", Value::as_strings)?,
            word_folders: take(&mut words, "folders", Value::as_strings)?,
            words: take(&mut words, "banned", Value::as_strings)?,
            word_phrases: take(&mut words, "phrases", Value::as_strings)?,
            word_skipped: take(&mut words, "skipped", Value::as_strings)?,
            dialect_folders: take(&mut dialect, "folders", Value::as_strings)?,
            dialect: take(&mut dialect, "banned", Value::as_strings)?,
            calls_source: take(&mut calls, "source", string)?,
            calls_manual: take(&mut calls, "manual", string)?,
            dependencies_manual: take(&mut dependencies, "manual", string)?,
            folders_manual: take(&mut rooms, "folders_manual", string)?,
            folders_heading: take(&mut rooms, "folders_heading", string)?,
            rooms_manual: take(&mut rooms, "rooms_manual", string)?,
            rooms_heading: take(&mut rooms, "rooms_heading", string)?,
            commits_base: take(&mut commits, "base", string)?,
            subject_columns: take(&mut commits, "subject_columns", Value::as_integer)?,
        };
        let tables = [rest, limits, ratchet, unsafety, words, dialect, calls, dependencies, rooms, commits];
        match tables.iter().flat_map(Table::keys).next() {
            None => Ok(config),
            Some(unknown) => Err(format!("'{unknown}' is not a key that tidy knows")),
        }
    }
}

/// The version that `rust-toolchain.toml` pins.
pub(super) fn pinned_toolchain(root: &Path) -> Result<String, Error> {
    let what = root.join("rust-toolchain.toml");
    let text = fs::read_to_string(&what).map_err(Error::io(&what))?;
    toml::parse(&text)
        .and_then(|mut document| take_table(&mut document, "toolchain"))
        .and_then(|mut toolchain| take(&mut toolchain, "channel", string))
        .map_err(|problem| Error::Config { what, problem })
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_string)
}

fn take<T>(table: &mut Table, key: &str, read: impl Fn(&Value) -> Option<T>) -> Result<T, String> {
    let value = table.remove(key).ok_or_else(|| format!("'{key}' is missing"))?;
    read(&value).ok_or_else(|| format!("'{key}' is of the wrong type"))
}

fn take_table(table: &mut Table, key: &str) -> Result<Table, String> {
    take(table, key, |value| value.as_table().cloned())
}

fn take_map<T>(
    table: &mut Table,
    key: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<BTreeMap<String, T>, String> {
    take_table(table, key)?
        .into_iter()
        .map(|(name, value)| match read(&value) {
            Some(value) => Ok((name, value)),
            None => Err(format!("'{key}.{name}' is of the wrong type")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_a_missing_and_a_wrong_key_are_named() {
        let text = fs::read_to_string(crate::checkout_root().join("tidy.toml")).unwrap();
        assert!(Config::parse(&text).is_ok());
        let problem = |from: &str, to: &str| Config::parse(&text.replace(from, to)).unwrap_err();
        assert_eq!(problem("[limits]", "[limits]\nlines = 3"), "'lines' is not a key that tidy knows");
        assert_eq!(problem("kernel_lines =", "kernel_line ="), "'kernel_lines' is missing");
        assert_eq!(problem("aegis-abi = []", "aegis-abi = 1"), "'arrows.aegis-abi' is of the wrong type");
    }
}

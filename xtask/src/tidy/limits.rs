//! Lengths: of files and lines, of the kernel, and the module documentation that a longer file begins with.
//!
//! A named exception (a ratchet in `tidy.toml`) must be exactly as long as what it excuses: a longer file breaks it,
//! and a shorter one lowers it, so the numbers only shrink.

use std::collections::BTreeMap;

use super::config::Config;
use super::finding::Finding;
use crate::count;
use crate::source::Source;

pub(super) fn check(sources: &[Source], config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut long_files = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
        markdown_columns(source, config, &mut findings);
    }
    for source in sources.iter().filter(|source| source.is_code()) {
        line_columns(source, config, &mut findings);
        module_docs(source, config, &mut findings);
        let line_count = source.text.lines().count();
        if line_count > config.file_lines {
            long_files.insert(source.path.clone(), (line_count, source.path.clone(), 0));
        }
    }
    ratchet("file-lines", config.file_lines, &long_files, &config.file_ratchet, &mut findings);
    code_lines("kernel-lines", &["kernel/".to_string()], config.kernel_lines, sources, &mut findings);
    if !config.ring0_folders.is_empty() {
        code_lines("ring0-lines", &config.ring0_folders, config.ring0_lines, sources, &mut findings);
    }
    findings
}

/// Compares what is too long with what is excused: name to length, path and line.
fn ratchet(
    rule: &'static str,
    limit: usize,
    long: &BTreeMap<String, (usize, String, usize)>,
    excused: &BTreeMap<String, usize>,
    findings: &mut Vec<Finding>,
) {
    for (name, (length, path, line)) in long {
        match excused.get(name) {
            Some(excused) if length == excused => {}
            Some(excused) if length < excused => findings.push(Finding::new(
                "tidy.toml",
                0,
                rule,
                format!("\"{name}\" shrank from {excused} to {length} lines: lower its number"),
            )),
            _ => findings.push(Finding::new(
                path,
                *line,
                rule,
                format!("{name} has {length} lines, the limit is {}", excused.get(name).unwrap_or(&limit)),
            )),
        }
    }
    for name in excused.keys().filter(|name| !long.contains_key(*name)) {
        findings.push(Finding::new(
            "tidy.toml",
            0,
            rule,
            format!("\"{name}\" is gone or within the limit of {limit}: remove its exception"),
        ));
    }
}

fn line_columns(source: &Source, config: &Config, findings: &mut Vec<Finding>) {
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > config.line_columns {
            findings.push(Finding::new(
                &source.path,
                index + 1,
                "line-columns",
                format!("{columns} columns, the limit is {}", config.line_columns),
            ));
        }
    }
}

/// Prose has a limit of its own; tables, code, and words that are too long by themselves are let alone.
fn markdown_columns(source: &Source, config: &Config, findings: &mut Vec<Finding>) {
    let mut is_code = false;
    for (line, number) in source.text.lines().zip(1..) {
        let text = line.trim_start();
        is_code ^= text.starts_with("```");
        let columns = line.chars().count();
        let words = text.trim_start_matches(['-', '*', '>', ' ']).split_whitespace().count();
        if columns > config.markdown_columns && !is_code && !text.starts_with('|') && words > 1 {
            let message = format!("{columns} columns, the limit is {}", config.markdown_columns);
            findings.push(Finding::new(&source.path, number, "markdown-columns", message));
        }
    }
}

fn module_docs(source: &Source, config: &Config, findings: &mut Vec<Finding>) {
    let is_long = source.text.lines().count() > config.module_docs_from_lines;
    if source.is_rust() && is_long && !source.text.starts_with("//!") {
        let message = "begin with //!: what it does, its invariants, its neighbours, why this way";
        findings.push(Finding::new(&source.path, 1, "module-docs", message));
    }
}

/// Compares the code of some folders with a limit; tests, blank lines and comments apart.
fn code_lines(rule: &'static str, folders: &[String], limit: usize, sources: &[Source], findings: &mut Vec<Finding>) {
    let is_in = |source: &&Source| source.is_code() && folders.iter().any(|folder| source.path.starts_with(folder));
    let lines: usize = sources.iter().filter(is_in).map(count::production_code_lines).sum();
    if lines >= limit {
        let message = format!("{lines} lines of code without tests, the limit is {limit}");
        findings.push(Finding::new(&folders.join(" "), 0, rule, message));
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{fixture, rules};
    use super::*;

    fn config() -> Config {
        Config {
            file_lines: 6,
            line_columns: 40,
            markdown_columns: 10,
            module_docs_from_lines: 4,
            kernel_lines: 9,
            ..Config::default()
        }
    }

    fn found(path: &str, text: &str, config: &Config) -> Vec<(usize, &'static str)> {
        rules(&check(&fixture(path, text), config))
    }

    #[test]
    fn a_long_line_is_found() {
        let text = format!("// {}\n// {}\n", "x".repeat(37), "é".repeat(38));
        assert_eq!(found("a/src/a.rs", &text, &config()), [(2, "line-columns")]);
    }

    #[test]
    fn a_file_without_module_docs_is_found() {
        let text = "\nuse a;\nuse b;\nuse c;\nuse d;\n";
        assert_eq!(found("a/src/a.rs", text, &config()), [(1, "module-docs")]);
        assert_eq!(found("a/src/a.rs", &format!("//! A.{text}"), &config()), []);
    }

    #[test]
    fn a_long_line_of_prose_is_found() {
        let text =
            "short\nmuch too long\n| a | table |\n```\nsome long code\n```\n- https://one-link\nagain too long\n";
        let wrong = [(2, "markdown-columns"), (8, "markdown-columns")];
        assert_eq!(found("a/notes.md", text, &config()), wrong);
        assert_eq!(found("a/notes.txt", text, &config()), []);
    }

    #[test]
    fn a_long_file_is_found() {
        let text = "//! A.\n\n\n\n\n\n\n";
        assert_eq!(found("a/src/a.rs", text, &config()), [(0, "file-lines")]);
        let ratchet = BTreeMap::from([("a/src/a.rs".to_string(), 7)]);
        assert_eq!(found("a/src/a.rs", text, &Config { file_ratchet: ratchet, ..config() }), []);
    }

    #[test]
    fn a_kernel_that_grew_too_long_is_found_and_its_tests_do_not_count() {
        let text = "//! A.\n".to_string() + &"fn a() {}\n".repeat(5);
        let mut sources = fixture("kernel/src/a.rs", &text);
        sources.extend(fixture("kernel/core/src/b.rs", &text));
        sources.extend(fixture("kernel/core/src/b/tests.rs", &text));
        assert_eq!(rules(&check(&sources, &config())), [(0, "kernel-lines")]);
        sources.remove(0);
        assert_eq!(rules(&check(&sources, &config())), []);
    }

    #[test]
    fn what_is_linked_into_the_kernel_counts_with_it() {
        let text = "//! A.\n".to_string() + &"fn a() {}\n".repeat(4);
        let mut sources = fixture("kernel/src/a.rs", &text);
        sources.extend(fixture("abi/src/b.rs", &text));
        let ring0_folders = vec!["kernel/".to_string(), "abi/".to_string()];
        let config = |ring0_lines| Config { ring0_lines, ring0_folders: ring0_folders.clone(), ..config() };
        assert_eq!(rules(&check(&sources, &config(8))), [(0, "ring0-lines")]);
        assert_eq!(rules(&check(&sources, &config(9))), []);
    }
}

//! `cargo xtask count`: lines per folder, code and tests apart.

use std::collections::BTreeMap;
use std::path::Path;

use crate::errors::Error;
use crate::source::{self, Source};

/// Sums of one folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    files: usize,
    /// Lines that are not tests, blank lines and comments included: what a reader has to read.
    lines: usize,
    /// Of those, lines with nothing but a comment on them.
    comments: usize,
    /// And blank ones.
    blanks: usize,
    tests: usize,
}

/// Prints the table to standard output.
pub(crate) fn print(root: &Path) -> Result<(), Error> {
    let counts = count(&source::read_all(root)?);
    println!("{:<20} {:>6} {:>8} {:>8} {:>9} {:>8}", "folder", "files", "lines", "code", "comments", "tests");
    for (folder, count) in &counts {
        let Count { files, lines, comments, blanks, tests } = count;
        let code = lines - comments - blanks;
        println!("{folder:<20} {files:>6} {lines:>8} {code:>8} {comments:>9} {tests:>8}");
    }
    Ok(())
}

/// What is linked into the kernel, and what into the extended one besides.
const RING0_FOLDERS: [&str; 4] = ["kernel/", "abi/", "lottery/", "drivers/pci/"];
const EXTENDED_FOLDERS: [&str; 6] =
    ["extended/", "drivers/e1000/", "drivers/hal/", "drivers/proto/", "drivers/service/", "drivers/virtio/"];

/// Rust, assembly and linker scripts per crate folder, then `kernel (all)`, ring 0 of both kernels, and `total`.
fn count(sources: &[Source]) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_code()) {
        let one = count_one(source);
        let mut names = vec![crate_folder(&source.path).to_string(), "total".to_string()];
        if source.path.starts_with("kernel/") {
            names.push("kernel (all)".to_string());
        }
        let is_below = |folder: &&str| source.path.starts_with(*folder);
        let is_ring0 = RING0_FOLDERS.iter().any(is_below);
        if is_ring0 {
            names.push("ring 0".to_string());
        }
        if is_ring0 || EXTENDED_FOLDERS.iter().any(is_below) {
            names.push("ring 0 (extended)".to_string());
        }
        for name in names {
            let sum = counts.entry(name).or_default();
            sum.files += one.files;
            sum.lines += one.lines;
            sum.comments += one.comments;
            sum.blanks += one.blanks;
            sum.tests += one.tests;
        }
    }
    counts
}

/// Lines of code that are not tests, neither blank nor only a comment; the limit on `kernel/` is on these, so that
/// nobody saves on comments.
pub(crate) fn production_code_lines(source: &Source) -> usize {
    let count = count_one(source);
    count.lines - count.comments - count.blanks
}

fn count_one(source: &Source) -> Count {
    let mut count = Count { files: 1, ..Count::default() };
    for (line, is_test) in source.text.lines().zip(source.test_lines()) {
        if is_test {
            count.tests += 1;
        } else {
            count.lines += 1;
            count.comments += usize::from(line.trim_start().starts_with("//"));
            count.blanks += usize::from(line.trim().is_empty());
        }
    }
    count
}

/// `exos/linux/src/a.rs` is in `exos/linux`.
fn crate_folder(path: &str) -> &str {
    let end = path.find("/src/").or_else(|| path.find("/tests/")).or_else(|| path.rfind('/'));
    &path[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_summed_and_tests_kept_apart() {
        let sources = [
            Source::new("kernel/core/src/a.rs", "//! A.\nfn a() {}\n#[cfg(test)]\nmod tests {}\n"),
            Source::new("kernel/src/main.rs", "fn main() {}\n"),
            Source::new("kernel/kernel.ld", "ENTRY(start)\n"),
            Source::new("extended/src/main.rs", "fn main() {}\n//\n"),
            Source::new("docs/a.md", "text\n"),
        ];
        let counts = count(&sources);
        assert_eq!(counts["kernel/core"], Count { files: 1, lines: 2, comments: 1, blanks: 0, tests: 2 });
        assert_eq!(counts["kernel"], Count { files: 2, lines: 2, comments: 0, blanks: 0, tests: 0 });
        assert_eq!(counts["kernel (all)"].lines, 4);
        assert_eq!((counts["ring 0"].lines, counts["ring 0 (extended)"].lines), (4, 6));
        assert_eq!(counts["total"].files, 4);
    }
}

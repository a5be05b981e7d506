//! The law of commit subjects: short enough for a list of one line each. The history up to a base is not judged; where
//! there is no repository, or it does not reach back to the base, nothing is.

use std::path::Path;
use std::process::Command;

use super::config::Config;
use super::finding::Finding;
use crate::process;

pub(super) fn check(root: &Path, config: &Config) -> Vec<Finding> {
    let range = format!("{}..HEAD", config.commits_base);
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["log", "--no-merges", "--format=%h %s", &range]);
    judge(&process::answer(&mut git).unwrap_or_default(), config.subject_columns)
}

/// Judges lines of a hash and a subject.
fn judge(log: &str, limit: usize) -> Vec<Finding> {
    let long = log.lines().filter_map(|line| line.split_once(' ')).filter_map(|(hash, subject)| {
        let columns = subject.chars().count();
        let message = || format!("the subject of {hash} has {columns} columns, the limit is {limit}: {subject}");
        (columns > limit).then(|| Finding::new("commits", 0, "commit-subject", message()))
    });
    long.collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::rules;
    use super::*;

    #[test]
    fn a_long_subject_is_found() {
        let log = format!("1234 {}\n5678 {}\n9abc", "é".repeat(72), "x".repeat(73));
        let findings = judge(&log, 72);
        assert_eq!(rules(&findings), [(0, "commit-subject")]);
        assert!(findings[0].message.contains("5678 has 73 columns"), "{}", findings[0]);
    }

    #[test]
    fn without_a_repository_or_its_base_nothing_is_said() {
        let config = Config { commits_base: "0123456789".to_string(), subject_columns: 1, ..Config::default() };
        assert_eq!(check(&crate::checkout_root(), &config), []);
        assert_eq!(check(Path::new("/proc"), &config), []);
    }
}

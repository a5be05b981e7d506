//! What a lint says of a place, and what lints' tests are made with.

#[cfg(test)]
use crate::source::Source;

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) path: String,
    /// From 1; 0 if it is about the whole file.
    pub(super) line: usize,
    /// Short name of the rule, for reviews to quote.
    pub(super) rule: &'static str,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line, rule, message: message.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// A source for a lint's fixture.
#[cfg(test)]
pub(super) fn fixture(path: &str, text: &str) -> Vec<Source> {
    vec![Source::new(path, text)]
}

/// Rules of findings, for comparison in tests.
#[cfg(test)]
pub(super) fn rules(findings: &[Finding]) -> Vec<(usize, &'static str)> {
    findings.iter().map(|finding| (finding.line, finding.rule)).collect()
}

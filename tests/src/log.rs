//! What the guest printed, taken apart.

/// A case as the guest reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// `suite/case`.
    pub name: String,
    /// Why it failed; `None` if it passed.
    pub problem: Option<String>,
}

/// A kernel log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The whole log.
    pub text: String,
    /// The cases in the order in which they ended.
    pub cases: Vec<Case>,
    /// The last line `N passed, M failed`.
    pub sum: Option<(usize, usize)>,
}

impl Log {
    /// Reads the lines that suites print; others are passed over.
    #[must_use]
    pub fn parse(text: String) -> Self {
        let lines = || text.lines().map(|line| line.trim_end_matches('\r'));
        let cases = lines().filter_map(parse_case).collect();
        let sum = lines().rev().find_map(parse_sum);
        Self { text, cases, sum }
    }

    /// What is wrong with this as the log of a run of exactly `expected`.
    ///
    /// # Errors
    /// A text for the reader of the failed test.
    pub fn check(&self, expected: &[String]) -> Result<(), String> {
        let mut problems: Vec<String> = Vec::new();
        for case in &self.cases {
            if let Some(problem) = &case.problem {
                problems.push(format!("{} failed {problem}", case.name));
            }
            if !expected.contains(&case.name) {
                problems.push(format!("{} ran, but the host does not expect it", case.name));
            }
        }
        for name in expected {
            let count = self.cases.iter().filter(|case| case.name == *name).count();
            if count != 1 {
                problems.push(format!("{name} was expected once and reported {count} times"));
            }
        }
        match self.sum {
            None => problems.push("the guest did not come to its last line".to_string()),
            Some(sum) if sum != (expected.len(), 0) => {
                problems.push(format!("the guest's sum is {} passed, {} failed", sum.0, sum.1));
            }
            Some(_) => {}
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
}

fn parse_case(line: &str) -> Option<Case> {
    // The kernel may have printed a prefix of its own.
    let (_, rest) = line.split_once("case ")?;
    let (name, verdict) = rest.split_once(' ')?;
    let name = name.to_string();
    match verdict.split_once(' ').unwrap_or((verdict, "")) {
        ("ok", _) => Some(Case { name, problem: None }),
        ("FAILED", why) => Some(Case { name, problem: Some(why.to_string()) }),
        ("FAILED:", why) => Some(Case { name, problem: Some(why.to_string()) }),
        _ => None,
    }
}

fn parse_sum(line: &str) -> Option<(usize, usize)> {
    let (passed, rest) = line.split_once(" passed, ")?;
    let failed = rest.strip_suffix(" failed")?;
    let passed = passed.rsplit(' ').next()?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Case, Log};

    fn log(text: &str) -> Log {
        Log::parse(text.to_string())
    }

    #[test]
    fn cases_and_sum_are_found_among_other_lines() {
        let log =
            log("aegis: 64 MiB\r\ncase s/a ok\r\nnoise\ncase s/b FAILED at line 3, found 0x4\n1 passed, 1 failed\n");
        let failed = Some("at line 3, found 0x4".to_string());
        assert_eq!(
            log.cases,
            [Case { name: "s/a".to_string(), problem: None }, Case { name: "s/b".to_string(), problem: failed },]
        );
        assert_eq!(log.sum, Some((1, 1)));
    }

    #[test]
    fn a_good_log_is_good() {
        let expected = ["s/a".to_string(), "s/b".to_string()];
        assert_eq!(log("case s/a ok\ncase s/b ok\n2 passed, 0 failed\n").check(&expected), Ok(()));
    }

    #[test]
    fn vanished_unexpected_failed_and_repeated_cases_are_told() {
        let expected = ["s/a".to_string(), "s/b".to_string()];
        for text in [
            "case s/a ok\n1 passed, 0 failed\n",
            "case s/a ok\ncase s/b ok\ncase s/c ok\n3 passed, 0 failed\n",
            "case s/a ok\ncase s/b FAILED: leak\n1 passed, 1 failed\n",
            "case s/a ok\ncase s/b ok\ncase s/b ok\n3 passed, 0 failed\n",
            "case s/a ok\ncase s/b ok\n",
            "case s/a ok\ncase s/b ok\n1 passed, 0 failed\n",
            "",
        ] {
            assert!(log(text).check(&expected).is_err(), "{text}");
        }
    }
}

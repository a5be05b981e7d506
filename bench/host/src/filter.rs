//! `--rows`: an extended regular expression (regex(7)) over the names of rows, the same for every suite.

use regex_lite::Regex;

use super::failure::Failure;

/// A compiled expression.
pub(crate) struct RowFilter(Regex);

impl RowFilter {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Self, Failure> {
        Regex::new(text).map(Self).map_err(|error| Failure::Rows(error.to_string()))
    }

    /// Whether a row is asked for.
    pub(crate) fn finds(&self, name: &str) -> bool {
        self.0.is_match(name)
    }

    /// No suite has a row that it finds.
    pub(crate) fn nothing_found(&self) -> Failure {
        Failure::Rows(format!("no row is found by {:?}", self.0.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::RowFilter;

    #[test]
    fn extended_expressions() {
        let filter = RowFilter::new("^null|_rt$").unwrap();
        assert!(filter.finds("null_getppid_raw") && filter.finds("pipe_4k_rt") && !filter.finds("a_null"));
        assert!(RowFilter::new(".").unwrap().finds("x"));
        let error = RowFilter::new("[").map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("--rows: ") && error.len() > 12 && !error.contains('\n'), "{error}");
    }
}

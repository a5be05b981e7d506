//! What the programs of suite `rhino` say: a result on each line, as JSON.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Line {
    /// What was done.
    pub(super) row: String,
    /// With what: a detector, another system of storage.
    pub(super) series: String,
    /// Of what size, or which part of it.
    pub(super) param: String,
    /// 0 if there is no figure; `extra` says why then.
    pub(super) operations: u64,
    /// Of all operations.
    pub(super) seconds: f64,
    /// Of all operations, if the program knows.
    #[serde(default)]
    pub(super) instructions: Option<f64>,
    /// Counters of the program's.
    #[serde(default)]
    pub(super) extra: Map<String, Value>,
}

impl Line {
    /// A line that is one; what else a program and its system say is nothing to be read.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // A terminal's line may begin with what stood there before.
        let text = text.find("{\"row\":").and_then(|at| text.get(at..))?;
        serde_json::from_str(text).ok()
    }

    /// `rvm_diff_50`
    pub(super) fn name(&self) -> String {
        let words = [&self.row, &self.series, &self.param].map(|word| word.as_str());
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_").replace(' ', "_")
    }

    /// Why there is no figure.
    pub(super) fn missing(&self) -> Option<String> {
        (self.operations == 0).then(|| self.extra.get("error").and_then(Value::as_str).unwrap_or("it failed").into())
    }

    /// Nanoseconds of an operation.
    pub(super) fn time_ns(&self) -> Result<f64, String> {
        self.missing().map_or(Ok(self.seconds * 1e9 / self.operations as f64), Err)
    }

    /// A counter.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.extra.get(name).and_then(Value::as_f64)
    }

    /// A counter, for each operation.
    pub(super) fn share(&self, name: &str) -> Option<f64> {
        let operations = self.operations.max(1) as f64;
        self.number(name).map(|number| number / operations)
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn results_are_lines_of_json() {
        let text = "\r{\"row\":\"rvm\",\"series\":\"diff\",\"param\":\"50\",\"operations\":4000,\"seconds\":2.0,\
                    \"instructions\":null,\"extra\":{\"fetches\":1000}}";
        let line = Line::parse(text).unwrap();
        assert_eq!((line.name().as_str(), line.time_ns()), ("rvm_diff_50", Ok(500_000.0)));
        assert_eq!((line.share("fetches"), line.share("steals"), line.instructions), (Some(0.25), None, None));
        assert!(Line::parse("rows: Busy").is_none() && Line::parse("{\"row\":1}").is_none());
    }

    #[test]
    fn no_figure_has_a_reason() {
        let text = "{\"row\":\"whole\",\"series\":\"setrange\",\"param\":\"\",\"operations\":0,\"seconds\":0,\
                    \"extra\":{\"error\":\"NoMemory\"}}";
        let line = Line::parse(text).unwrap();
        assert_eq!((line.name().as_str(), line.time_ns()), ("whole_setrange", Err("NoMemory".into())));
    }
}

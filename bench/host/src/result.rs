//! What was measured, apart from how it was measured and how it is shown.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the figures of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Guest instructions.
    Icount,
    /// Time that passed.
    Wall,
}

impl Mode {
    /// What a machine is told: each instruction takes a nanosecond, if they are counted.
    pub(crate) fn icount_shift(self) -> Option<u8> {
        (self == Self::Icount).then_some(0)
    }
}

/// What an experiment looks like: lines or points in a plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Its name in JSON and in links.
    pub(crate) name: String,
    /// What it shows, in a sentence or two.
    pub(crate) title: String,
    /// What the axes are, with units.
    pub(crate) axes: [String; 2],
    /// Along the first axis each step is twice what is before it; else steps are equal, from 0.
    #[serde(default)]
    pub(crate) is_doubling: bool,
    /// In the order in which they are drawn.
    pub(crate) series: Vec<Series>,
}

/// What belongs together in a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// For people.
    pub(crate) title: String,
    /// Whether a line connects the points; else each is a dot.
    pub(crate) is_line: bool,
    /// Places.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One figure of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    /// One value for each pair of runs, in their order.
    Values(Vec<f64>),
    /// There is none, for this reason.
    NotAvailable(String),
    /// This system was not asked.
    NotAsked,
}

impl Cell {
    /// A single value, if there is one. A ratio of nothings is none.
    pub(crate) fn of(value: Option<f64>) -> Self {
        match value {
            Some(value) if value.is_finite() => Self::Values(vec![value]),
            Some(_) => Self::NotAvailable("nothing was counted".into()),
            None => Self::NotAsked,
        }
    }

    /// The values; empty if there are none.
    pub(crate) fn values(&self) -> &[f64] {
        match self {
            Self::Values(values) => values,
            Self::NotAvailable(_) | Self::NotAsked => &[],
        }
    }

    /// The middle value.
    pub(crate) fn median(&self) -> Option<f64> {
        median(self.values())
    }

    /// The least and the greatest value.
    pub(crate) fn range(&self) -> (f64, f64) {
        let values = self.values().iter().copied();
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
    }

    /// The same figures divided by `parts`.
    pub(crate) fn divided(&self, parts: u32) -> Self {
        match self {
            Self::Values(values) => Self::Values(values.iter().map(|value| value / f64::from(parts)).collect()),
            other => other.clone(),
        }
    }

    /// Adds what another run of the same row came to. A row that failed in one run has no figure.
    pub(crate) fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Values(values), Self::Values(more)) => values.extend(more),
            (Self::NotAvailable(_), _) => {}
            (_, other) => *self = other,
        }
    }
}

/// One row: a cell for each column of its table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// In the order of the columns.
    pub(crate) cells: Vec<Cell>,
    /// Only the first column can do this; the figures of the others are those of another row of the table, whose name
    /// (or `NAME / PARTS`, of which they are a part) this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<String>,
}

/// One system, or one way to start it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) key: String,
    /// For people.
    pub(crate) title: String,
    /// The command line of its machine; what differs in each run is in capitals.
    pub(crate) command: String,
}

/// What a suite measured, in one unit. A suite may have several tables, each in a unit of its own, so that suite and
/// unit together name one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) suite: String,
    /// What the figures are: `instructions`, `ns`, `ms`, `MiB`, `bytes`.
    pub(crate) unit: String,
    /// Which two columns are compared, if both are there.
    pub(crate) compared: Option<(usize, usize)>,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// What the figures of suite `micro` are.
    pub(crate) mode: Mode,
    pub(crate) date_unix_s: u64,
    /// What took part, and its version.
    pub(crate) versions: Versions,
    /// Why the figures are not to be trusted; empty if they are. Files of the first days have neither these nor
    /// figures.
    #[serde(default)]
    pub(crate) doubts: Vec<String>,
    /// What the figures come to, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// In the order of the suites.
    #[serde(rename = "suites")]
    pub(crate) tables: Vec<Table>,
    /// What the experiments look like.
    #[serde(default)]
    pub(crate) figures: Vec<Figure>,
}

/// Names and versions, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions(pub(crate) Vec<(String, String)>);

impl Serialize for Versions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, version)| (name, version)))
    }
}

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Versions;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("names and versions")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Versions, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Versions(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl Report {
    /// The table of the same suite and unit as `like`.
    pub(crate) fn table(&self, like: &Table) -> Option<&Table> {
        self.tables.iter().find(|it| it.suite == like.suite && it.unit == like.unit)
    }
}

impl Table {
    /// The cell of this row and column, if there is one and its system was asked.
    pub(crate) fn cell(&self, row: &str, column_key: &str) -> Option<&Cell> {
        let column = self.columns.iter().position(|it| it.key == column_key)?;
        let row = self.rows.iter().find(|it| it.name == row)?;
        row.cells.get(column).filter(|cell| **cell != Cell::NotAsked)
    }

    /// How the two systems of a row compare, if both have figures.
    pub(crate) fn ratio_of(&self, row: &Row) -> Option<f64> {
        let (of, to) = self.compared?;
        ratio(&row.cells[of], &row.cells[to])
    }
}

/// Below this share of the other side's figure a row is better; above its inverse it is worse.
const EQUAL_WITHIN: f64 = 0.02;

/// How a row compares. Less is better in every unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Aegis has less.
    Better,
    /// Within what is no difference.
    Equal,
    /// Aegis has more.
    Worse,
}

impl Verdict {
    /// Of a ratio of Aegis to the other.
    pub(crate) fn of(ratio: f64) -> Self {
        if ratio < 1.0 - EQUAL_WITHIN {
            Self::Better
        } else if ratio > 1.0 + EQUAL_WITHIN {
            Self::Worse
        } else {
            Self::Equal
        }
    }

    /// For people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Equal => "equal",
            Self::Worse => "worse",
        }
    }
}

/// How many rows of a table are better, equal, worse and not compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// In the order of [`Verdict`].
    pub(crate) verdicts: [usize; 3],
    /// Rows without a ratio.
    pub(crate) missing: usize,
}

impl Tally {
    pub(crate) fn of(table: &Table) -> Self {
        let mut tally = Self::default();
        for row in &table.rows {
            match table.ratio_of(row) {
                Some(ratio) => tally.verdicts[Verdict::of(ratio) as usize] += 1,
                None => tally.missing += 1,
            }
        }
        tally
    }

    /// `48 rows: 5 better, 4 equal, 20 worse, 19 not compared`
    pub(crate) fn sentence(&self) -> String {
        let [better, equal, worse] = self.verdicts;
        let count = better + equal + worse + self.missing;
        let rows = if count == 1 { "row" } else { "rows" };
        format!("{count} {rows}: {better} better, {equal} equal, {worse} worse, {} not compared", self.missing)
    }
}

/// The ratio of two cells: the middle one of the ratios of the pairs.
pub(crate) fn ratio(of: &Cell, to: &Cell) -> Option<f64> {
    let pairs = of.values().iter().zip(to.values());
    let ratios = pairs.filter(|(_, to)| **to > 0.0).map(|(of, to)| of / to);
    median(&ratios.collect::<Vec<_>>())
}

/// The middle value; of two middle ones, their mean.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// A suite's tables and figures, what else is to be said of them, and why they are not to be trusted, if so.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) tables: Vec<Table>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
    pub(crate) doubts: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::{Cell, median, ratio};

    #[test]
    fn middles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_part_of_a_figure() {
        assert_eq!(Cell::Values(vec![3.0, 5.0]).divided(2), Cell::Values(vec![1.5, 2.5]));
        assert_eq!(Cell::NotAvailable("x".into()).divided(2), Cell::NotAvailable("x".into()));
    }

    #[test]
    fn ratios_are_of_pairs() {
        let of = Cell::Values(vec![1.0, 20.0, 3.0]);
        let to = Cell::Values(vec![2.0, 10.0, 2.0]);
        assert_eq!(ratio(&of, &to), Some(1.5));
        assert_eq!(ratio(&of, &Cell::NotAsked), None);
        assert_eq!(ratio(&of, &Cell::Values(vec![0.0])), None);
    }

    #[test]
    fn one_failure_is_no_figure() {
        let mut cell = Cell::NotAsked;
        cell.merge(Cell::Values(vec![1.0]));
        cell.merge(Cell::Values(vec![2.0]));
        assert_eq!(cell.values(), [1.0, 2.0]);
        cell.merge(Cell::NotAvailable("x".into()));
        cell.merge(Cell::Values(vec![3.0]));
        assert_eq!(cell, Cell::NotAvailable("x".into()));
    }
}

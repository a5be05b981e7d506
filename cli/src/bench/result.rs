//! What was measured, apart from how it was measured and how it is shown.

/// What the figures of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Guest instructions.
    Icount,
    /// Time that passed.
    Wall,
}

impl Mode {
    /// The word for it in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Icount => "icount",
            Self::Wall => "wall",
        }
    }
}

/// One figure of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// One value for each pair of runs, in their order.
    Values(Vec<f64>),
    /// There is none, for this reason.
    NotAvailable(String),
    /// This system was not asked.
    NotAsked,
}

impl Cell {
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
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The name.
    pub(crate) name: String,
    /// In the order of the columns.
    pub(crate) cells: Vec<Cell>,
}

/// One system, or one way to start it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// In JSON.
    pub(crate) key: String,
    /// For people.
    pub(crate) title: String,
    /// The command line of its machine; what differs in each run is in capitals.
    pub(crate) command: String,
}

/// What a suite measured. The first column is Aegis and the one it is compared with is `anchor`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// The suite.
    pub(crate) suite: String,
    /// What the figures are: `instructions`, `ns`, `ms`.
    pub(crate) unit: String,
    /// The columns.
    pub(crate) columns: Vec<Column>,
    /// Which two columns are compared, if both are there.
    pub(crate) compared: Option<(usize, usize)>,
    /// The rows.
    pub(crate) rows: Vec<Row>,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    /// What the figures of suite `micro` are.
    pub(crate) mode: Mode,
    /// When it ended.
    pub(crate) date_unix_s: u64,
    /// What took part, and its version.
    pub(crate) versions: Vec<(String, String)>,
    /// One for each suite.
    pub(crate) tables: Vec<Table>,
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

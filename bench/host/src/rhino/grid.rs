//! Tables that fill as results come: a row appears with its first cell.

use crate::result::{Cell, Column, Row, Table};

/// A table to be.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) unit: &'static str,
    column_count: usize,
    rows: Vec<(String, Vec<Cell>)>,
}

impl Grid {
    pub(super) fn new(unit: &'static str, column_count: usize) -> Self {
        Self { unit, column_count, rows: Vec::new() }
    }

    /// Adds what another run came to.
    pub(super) fn put(&mut self, name: &str, column: usize, found: Result<f64, String>) {
        let cell = found.map_or_else(Cell::NotAvailable, |value| Cell::Values(vec![value]));
        let at = self.rows.iter().position(|row| row.0 == name).unwrap_or_else(|| {
            self.rows.push((name.into(), vec![Cell::NotAsked; self.column_count]));
            self.rows.len() - 1
        });
        self.rows[at].1[column].merge(cell);
    }

    pub(super) fn cell(&self, name: &str, column: usize) -> Option<&Cell> {
        self.rows.iter().find(|row| row.0 == name).map(|row| &row.1[column])
    }

    pub(super) fn median(&self, name: &str, column: usize) -> Option<f64> {
        self.cell(name, column)?.median()
    }

    /// Drops rows that are not wanted.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.rows.retain(|row| is_wanted(&row.0));
    }

    /// The table, if it has rows.
    pub(super) fn table(self, columns: Vec<Column>, compared: Option<(usize, usize)>) -> Option<Table> {
        let rows = self.rows.into_iter().map(|(name, cells)| Row { name, cells, beside: None }).collect::<Vec<_>>();
        (!rows.is_empty()).then(|| Table { suite: "rhino".into(), unit: self.unit.into(), columns, compared, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::Grid;
    use crate::result::Cell;

    #[test]
    fn rows_come_with_their_cells() {
        let mut grid = Grid::new("ns", 2);
        grid.put("b", 1, Ok(1.0));
        grid.put("a", 0, Err("x".into()));
        grid.put("b", 1, Ok(3.0));
        assert_eq!((grid.median("b", 1), grid.median("b", 0), grid.median("c", 0)), (Some(2.0), None, None));
        grid.retain(|name| name == "b");
        let table = grid.table(Vec::new(), None).unwrap();
        assert_eq!(table.rows.len(), 1);
        assert_eq!(table.rows[0].cells, [Cell::NotAsked, Cell::Values(vec![1.0, 3.0])]);
        assert!(Grid::new("ns", 2).table(Vec::new(), None).is_none());
    }
}

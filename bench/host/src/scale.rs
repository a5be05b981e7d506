//! Suite `scale`: the rows of `bench/scale` on each system, which say how costs grow.
//!
//! A row `NAME:N` is one operation where there are N of something; it is measured as those of `micro` are, whose
//! machines and repeated runs these are. A row `two_NAME@diff` is one of two threads or processes that share nothing,
//! on two processors, and needs time; its figure is no time but a part of what one alone takes (`rows_pairs.c`), so
//! these rows have a table of their own.

use std::time::Duration;

use super::failure::Failure;
use super::filter::RowFilter;
use super::guest::Limits;
use super::micro::{Program, TWO_PROCESSORS, row_names, run_program};
use super::options::BenchOptions;
use super::result::{Measured, Table};
use super::system::Machines;

/// A batch is long as it is: most rows make their N things for each.
const BATCH_COUNT: u8 = 1;
/// A machine says nothing before its last row.
const LIMITS: Limits = Limits { silence: Duration::from_secs(1800), total: Duration::from_secs(1800) };
/// Of a row with two sides.
const PART: &str = "thousandths of the time of one alone";

/// Measures the rows that were asked for; `None` if there are none.
pub(super) fn run(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let program = Program { suite: "scale", file: &machines.scale, batch_count: BATCH_COUNT, limits: LIMITS };
    let measured = run_program(options, machines, filter, program, row_names(&machines.scale)?)?;
    Ok(measured.map(|measured| Measured { tables: measured.tables.into_iter().flat_map(parted).collect(), ..measured }))
}

/// The rows of one processor, and those of two.
fn parted(mut table: Table) -> Vec<Table> {
    let (pairs, rows) = std::mem::take(&mut table.rows).into_iter().partition(|row| row.name.contains(TWO_PROCESSORS));
    let pairs = Table { unit: PART.into(), rows: pairs, ..table.clone() };
    let tables = [Table { rows, ..table }, pairs];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::{PART, parted};
    use crate::result::{Row, Table};

    #[test]
    fn two_sides_have_a_table_and_a_unit_of_their_own() {
        let row = |name: &str| Row { name: name.into(), cells: Vec::new(), beside: None };
        let table = |names: &[&str]| Table {
            suite: "scale".into(),
            unit: "ns".into(),
            columns: Vec::new(),
            compared: None,
            rows: names.iter().map(|name| row(name)).collect(),
        };
        let tables = parted(table(&["readdir:100", "two_stat@diff", "ctl_loop"]));
        let shown = tables.iter().map(|it| (it.unit.as_str(), it.rows.len())).collect::<Vec<_>>();
        assert_eq!(shown, [("ns", 2), (PART, 1)]);
        assert_eq!(parted(table(&["readdir:100"])).len(), 1);
    }
}

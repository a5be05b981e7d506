//! A report as text: a table for each suite, and what changed since an earlier one.

use std::fmt::Write as _;

use super::failure::Failure;
use super::result::{Cell, Mode, Report, Row, Table, Tally, Verdict};

/// Instructions repeat to the digit, so a change of one in a hundred is one.
const CHANGED_ICOUNT: f64 = 0.01;
/// Time on a shared machine does not.
const CHANGED_WALL: f64 = 0.15;

/// All tables of a report.
pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    for table in &report.tables {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &render_table(table);
    }
    if !report.notes.is_empty() {
        text.push('\n');
    }
    report.notes.iter().fold(text, |text, note| text + note + "\n")
}

fn render_table(table: &Table) -> String {
    let name_width = table.rows.iter().map(|row| row.name.len()).max();
    let name_width = name_width.unwrap_or(0).max(table.suite.len());
    let mut lines = vec![format!("{}, {}:", table.suite, table.unit)];
    let mut header = format!("{:name_width$}", "");
    for column in &table.columns {
        let width = column_width(table, column.title.len());
        let _ = write!(header, "  {:>width$}", column.title);
    }
    if table.compared.is_some() {
        header += "   ratio";
    }
    lines.push(header);
    for row in &table.rows {
        lines.push(render_row(table, row, name_width));
    }
    if table.compared.is_some() {
        lines.push(Tally::of(table).sentence());
    }
    let trimmed = lines.iter().map(|line| line.trim_end());
    trimmed.map(|line| format!("{line}\n")).collect()
}

/// Cells with a range need more room than those with one value.
fn column_width(table: &Table, title: usize) -> usize {
    let cells = table.rows.iter().flat_map(|row| &row.cells);
    let has_range = cells.clone().any(|cell| cell.values().len() > 1);
    title.max(if has_range { 30 } else { 12 })
}

fn render_row(table: &Table, row: &Row, name_width: usize) -> String {
    let mut line = format!("{:name_width$}", row.name);
    let mut notes = Vec::new();
    for (column, cell) in table.columns.iter().zip(&row.cells) {
        let width = column_width(table, column.title.len());
        let _ = write!(line, "  {:>width$}", shown(cell));
        if let Cell::NotAvailable(why) = cell {
            notes.push(format!("{}: {why}", column.title));
        }
    }
    if table.compared.is_some() {
        let _ = match table.ratio_of(row) {
            Some(value) => write!(line, "  {value:>6.2}  {:6}", Verdict::of(value).word()),
            None => write!(line, "  {:>6}  {:6}", "-", ""),
        };
    }
    if let Some(beside) = &row.beside {
        notes.push(format!("beside {beside}"));
    }
    if !notes.is_empty() {
        let _ = write!(line, "  ({})", notes.join("; "));
    }
    line
}

fn shown(cell: &Cell) -> String {
    let Some(median) = cell.median() else {
        return match cell {
            Cell::NotAvailable(_) => "n/a".into(),
            _ => "-".into(),
        };
    };
    if cell.values().len() < 2 {
        return number(median);
    }
    let (min, max) = cell.range();
    format!("{} [{}..{}]", number(median), number(min), number(max))
}

/// Digits that mean something: two behind the point below ten, one below a thousand, else none.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.2}"),
        ..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// What changed since `before`, system by system and row by row.
///
/// # Errors
/// The figures of the two are of different kinds.
pub(crate) fn changes(before: &Report, now: &Report) -> Result<String, Failure> {
    if before.mode != now.mode {
        return Err(Failure::Usage("--baseline: one of the two runs has --icount and the other has not"));
    }
    let tolerance = match now.mode {
        Mode::Icount => CHANGED_ICOUNT,
        Mode::Wall => CHANGED_WALL,
    };
    let mut lines = Vec::new();
    let mut compared = 0;
    for table in &now.tables {
        let Some(old) = before.table(table) else { continue };
        for row in &table.rows {
            for (column, cell) in table.columns.iter().zip(&row.cells) {
                let Some(was) = old.cell(&row.name, &column.key) else {
                    continue;
                };
                compared += 1;
                let change = change(was, cell, tolerance);
                lines.extend(change.map(|what| format!("  {} {}: {what}", row.name, column.title)));
            }
        }
    }
    let head = format!(
        "\nsince the baseline: {} of {compared} figures changed by more than {} %\n",
        lines.len(),
        tolerance * 100.0
    );
    Ok(lines.iter().fold(head, |text, line| text + line + "\n"))
}

/// In words; `None` if it is within the tolerance.
fn change(was: &Cell, now: &Cell, tolerance: f64) -> Option<String> {
    match (was.median(), now.median()) {
        (Some(before), Some(after)) => {
            let factor = after / before;
            let is_same = before == after || (factor - 1.0).abs() <= tolerance;
            let word = if after > before { "slower" } else { "faster" };
            let (before, after) = (number(before), number(after));
            (!is_same).then(|| format!("{before} -> {after} ({factor:.2}, {word})"))
        }
        (None, Some(after)) => Some(format!("n/a -> {}", number(after))),
        (Some(before), None) if *now != Cell::NotAsked => Some(format!("{} -> n/a", number(before))),
        _ => None,
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;

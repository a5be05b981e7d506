//! Bars on a logarithmic scale: one for each system of a row, all rows of a table on one scale.
//!
//! Positions are percentages of the width, so the drawings fit any screen without a script.

use super::super::result::{Cell, Row, Table};
use super::text::{escaped, grouped};

/// Heights in pixels.
const BAR: f64 = 7.0;
const PITCH: f64 = 9.0;
/// Most decades that get a label; more, and only every second one does.
const LABEL_COUNT_MAX: i32 = 6;

/// From the least to the greatest power of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    /// Holds every value of a table; the least one keeps a bar that can be seen.
    pub(super) fn of(table: &Table) -> Self {
        let values = table.rows.iter().flat_map(|row| &row.cells).flat_map(Cell::values);
        let logs = values.copied().filter(|value| *value > 0.0).map(f64::log10);
        let (min, max) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), log| (log.min(min), log.max(max)));
        if min > max {
            return Self { low: 0, high: 1 };
        }
        let low = (min - 0.1).floor() as i32;
        Self { low, high: (max.ceil() as i32).max(low + 1) }
    }

    /// In percent of the width; what is not above 0 is at the left end.
    pub(super) fn position(self, value: f64) -> f64 {
        let span = f64::from(self.high - self.low);
        let log = if value > 0.0 { value.log10() } else { f64::from(self.low) };
        ((log - f64::from(self.low)) / span * 100.0).clamp(0.0, 100.0)
    }

    fn decades(self) -> impl Iterator<Item = i32> {
        self.low..=self.high
    }
}

/// Which of three colours a column has.
fn class(column: usize) -> char {
    char::from(b'a' + (column % 3) as u8)
}

/// Which colour is whose.
pub(super) fn put_legend(out: &mut String, table: &Table) {
    out.push_str("<p class=\"legend\">");
    for (index, column) in table.columns.iter().enumerate() {
        put!(out, "<span><i class=\"{}\"></i> {}</span>\n", class(index), escaped(&column.title));
    }
    put!(out, "<span class=\"unit\">{}, logarithmic scale</span></p>\n", escaped(&table.unit));
}

/// The powers of ten above the bars.
pub(super) fn put_axis(out: &mut String, scale: &Scale) {
    out.push_str("<svg width=\"100%\" height=\"14\" aria-hidden=\"true\">");
    let step = if scale.high - scale.low > LABEL_COUNT_MAX { 2 } else { 1 };
    for decade in scale.decades().filter(|decade| (decade - scale.low) % step == 0) {
        let at = scale.position(10f64.powi(decade));
        let anchor = match decade {
            it if it == scale.low => "start",
            it if it == scale.high => "end",
            _ => "middle",
        };
        put!(out, "<text x=\"{at:.2}%\" y=\"11\" text-anchor=\"{anchor}\">{}</text>", label(decade));
    }
    out.push_str("</svg>");
}

/// `0.1`, `100`, `10k`, `1M`
fn label(decade: i32) -> String {
    match decade {
        ..0 => format!("{:.*}", decade.unsigned_abs() as usize, 10f64.powi(decade)),
        0..3 => 10u32.pow(decade.unsigned_abs()).to_string(),
        3..6 => format!("{}k", 10u32.pow((decade - 3).unsigned_abs())),
        6..9 => format!("{}M", 10u32.pow((decade - 6).unsigned_abs())),
        _ => format!("1e{decade}"),
    }
}

/// A row's bars with the range of each.
pub(super) fn put_row(out: &mut String, table: &Table, row: &Row, scale: &Scale) {
    let height = PITCH * row.cells.len() as f64;
    let spoken = table.columns.iter().zip(&row.cells).map(|(column, cell)| match cell.median() {
        Some(median) => format!("{} {}", column.title, grouped(median)),
        None => format!("{} n/a", column.title),
    });
    let spoken = escaped(&spoken.collect::<Vec<_>>().join(", "));
    put!(out, "<svg width=\"100%\" height=\"{height}\" role=\"img\" aria-label=\"{spoken}\">");
    for decade in scale.decades() {
        let at = scale.position(10f64.powi(decade));
        put!(out, "<line class=\"grid\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"{height}\"/>");
    }
    for (index, cell) in row.cells.iter().enumerate() {
        let Some(median) = cell.median() else { continue };
        let y = PITCH * index as f64 + (PITCH - BAR) / 2.0;
        let width = scale.position(median);
        let class = class(index);
        put!(out, "<rect class=\"{class}\" x=\"0\" y=\"{y}\" width=\"{width:.2}%\" height=\"{BAR}\" rx=\"1.5\"/>");
        let (min, max) = cell.range();
        if max > min {
            let (min, max, middle) = (scale.position(min), scale.position(max), y + BAR / 2.0);
            put!(out, "<line class=\"range\" x1=\"{min:.2}%\" x2=\"{max:.2}%\" y1=\"{middle}\" y2=\"{middle}\"/>");
        }
    }
    out.push_str("</svg>");
}

#[cfg(test)]
mod tests {
    use super::{Scale, label};

    #[test]
    fn a_decade_is_as_wide_as_any_other() {
        let scale = Scale { low: 1, high: 5 };
        assert_eq!([10.0, 100.0, 1e5, 0.0, 1e9].map(|it| scale.position(it)), [0.0, 25.0, 100.0, 0.0, 100.0]);
    }

    #[test]
    fn labels_are_short() {
        let labels = [-2, 0, 2, 3, 5, 6, 8, 9].map(label);
        assert_eq!(labels, ["0.01", "1", "100", "1k", "100k", "1M", "100M", "1e9"]);
    }
}

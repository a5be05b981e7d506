//! What earlier files of `--json` say of the same rows: a column for each, the oldest first, and a line through them.
//!
//! Only figures of the same kind stand beside each other: the same suite in the same unit. A file without any is named
//! and left out.

use super::super::result::{Cell, Report, Table};
use super::text::{date_and_time, escaped, grouped, title};

/// An earlier report, and the file that it came from.
#[derive(Debug)]
pub(crate) struct Earlier {
    /// The file's name.
    pub(crate) name: String,
    pub(crate) report: Report,
}

/// Size of a row's line in pixels.
const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;
const MARGIN: f64 = 4.0;

/// A run that takes part, this one included.
struct Point<'a> {
    report: &'a Report,
    /// The file's name; `None` for this run.
    name: Option<&'a str>,
}

/// The section, if there is anything earlier.
pub(super) fn put(out: &mut String, report: &Report, earlier: &[Earlier]) {
    if earlier.is_empty() {
        return;
    }
    let mut points: Vec<Point<'_>> =
        earlier.iter().map(|it| Point { report: &it.report, name: Some(&it.name) }).collect();
    points.sort_by_key(|point| point.report.date_unix_s);
    points.push(Point { report, name: None });
    out.push_str("<section id=\"history\">\n<h2>History</h2>\n");
    out.push_str("<p>The first column's figures in earlier files, the oldest first, and their ratio to the anchor. ");
    out.push_str("The line has a logarithmic scale of its own in each row; down is better.</p>\n");
    let shares = |it: &Earlier| report.tables.iter().any(|table| it.report.table(table).is_some());
    for other in earlier.iter().filter(|it| !shares(it)) {
        put!(out, "<p>Left out, because it holds no figures of this kind: {}</p>\n", escaped(&other.name));
    }
    for table in &report.tables {
        put_table(out, table, &points);
    }
    out.push_str("</section>\n");
}

fn put_table(out: &mut String, now: &Table, points: &[Point<'_>]) {
    let tables: Vec<(&Point<'_>, &Table)> =
        points.iter().filter_map(|point| Some((point, point.report.table(now)?))).collect();
    let (Some(first), true) = (now.columns.first(), tables.len() > 1) else {
        return;
    };
    put!(out, "<h3>{}: {}</h3>\n", escaped(&title(now)), escaped(&first.title));
    out.push_str("<div class=\"wide\" tabindex=\"0\">\n");
    put!(
        out,
        "<table class=\"history\" data-suite=\"{}\" data-unit=\"{}\">\n<thead><tr><th scope=\"col\">row</th>",
        escaped(&now.suite),
        escaped(&now.unit)
    );
    out.push_str("<th scope=\"col\">course</th>");
    for (point, _) in &tables {
        let name = point.name.unwrap_or("this run");
        let date = date_and_time(point.report.date_unix_s);
        put!(out, "<th scope=\"col\" class=\"figure\">{} <small>{date}</small></th>", escaped(name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &now.rows {
        put!(out, "<tr data-row=\"{0}\"><th scope=\"row\">{0}</th><td>", escaped(&row.name));
        let cells: Vec<Option<&Cell>> = tables.iter().map(|(_, table)| table.cell(&row.name, &first.key)).collect();
        let medians: Vec<Option<f64>> = cells.iter().map(|cell| cell.and_then(Cell::median)).collect();
        put_course(out, &medians);
        out.push_str("</td>");
        for (((_, table), median), cell) in tables.iter().zip(&medians).zip(&cells) {
            let Some(median) = median else {
                // A row that was not measured then is another thing than one that could not run.
                put!(out, "<td class=\"figure na\">{}</td>", if cell.is_some() { "n/a" } else { "-" });
                continue;
            };
            put!(out, "<td class=\"figure\" data-median=\"{median}\">{}", grouped(*median));
            let there = table.rows.iter().find(|it| it.name == row.name);
            if let Some(ratio) = there.and_then(|row| table.ratio_of(row)) {
                put!(out, " <small>{ratio:.2}</small>");
            }
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// A line through the figures that are there, the last one with a dot.
fn put_course(out: &mut String, medians: &[Option<f64>]) {
    let logs: Vec<Option<f64>> = medians.iter().map(|it| it.filter(|it| *it > 0.0).map(f64::log10)).collect();
    let (min, max) =
        logs.iter().flatten().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), log| (log.min(min), log.max(max)));
    if min > max {
        return;
    }
    // A change of less than a tenth is a flat line in the middle, not a mountain.
    let span = (max - min).max(0.1);
    let middle = (max + min) / 2.0;
    let place = |index: usize, log: f64| {
        let x = MARGIN + (WIDTH - 2.0 * MARGIN) * index as f64 / (logs.len() - 1).max(1) as f64;
        let y = HEIGHT / 2.0 - (log - middle) / span * (HEIGHT - 2.0 * MARGIN);
        (x, y)
    };
    let places: Vec<(f64, f64)> =
        logs.iter().enumerate().filter_map(|(index, log)| Some(place(index, (*log)?))).collect();
    put!(out, "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" aria-hidden=\"true\"><polyline class=\"course\" points=\"");
    for (x, y) in &places {
        put!(out, "{x:.1},{y:.1} ");
    }
    out.push_str("\"/>");
    if let Some((x, y)) = places.last() {
        put!(out, "<circle class=\"course\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
    }
    out.push_str("</svg>");
}

//! A report as one HTML page that needs nothing else: no link, no script, no font, no image of its own.
//!
//! The page is made from the same [`Report`] as the JSON, and every figure stands in it twice: rounded for people, and
//! to the last digit in an attribute of its cell (`data-values`, `data-reason`, `data-ratio`), which the tests compare
//! with the JSON. `bars` draws a row's figures on a logarithmic scale, `figure` an experiment, `history` what earlier
//! files say of the same rows. What comes from outside (names, reasons, command lines) goes through [`escaped`].
//!
//! Without a script the page works wherever it is opened, also where scripts are forbidden; light and dark and narrow
//! screens are matters of the style sheet alone.

/// Appends to the page; writing to a String cannot fail.
macro_rules! put {
    ($out:expr, $($what:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($what)*);
    }};
}

mod bars;
mod figure;
mod history;
mod text;

use super::result::{Cell, Column, Mode, Report, Row, Table, Tally, Verdict};
pub(crate) use history::Earlier;
use text::{date_and_time, escaped, grouped, title};

const STYLE: &str = include_str!("html/style.css");

/// The whole page.
pub(crate) fn page(report: &Report, earlier: &[Earlier]) -> String {
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    out += "<meta name=\"color-scheme\" content=\"light dark\">\n";
    let date = date_and_time(report.date_unix_s);
    put!(out, "<title>Aegis beside Linux, {date}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n");
    put_head(&mut out, report, &date);
    out += "<main>\n";
    for table in &report.tables {
        put_table(&mut out, report.mode, table);
    }
    for it in &report.figures {
        figure::put(&mut out, it);
    }
    history::put(&mut out, report, earlier);
    put_circumstances(&mut out, report);
    out += "</main>\n</body>\n</html>\n";
    out
}

fn put_head(out: &mut String, report: &Report, date: &str) {
    let what = match report.mode {
        Mode::Icount => "guest instructions",
        Mode::Wall => "wall time",
    };
    put!(out, "<header>\n<h1>Aegis beside Linux</h1>\n<p class=\"lead\">The same programs in the same QEMU, ");
    put!(out, "in one run: {what}, {date}.</p>\n");
    if !report.doubts.is_empty() {
        out.push_str("<section class=\"doubts\" role=\"note\">\n<h2>Not to be trusted</h2>\n<ul>\n");
        for doubt in &report.doubts {
            put!(out, "<li>{}</li>\n", escaped(doubt));
        }
        out.push_str("</ul>\n</section>\n");
    }
    if !report.notes.is_empty() {
        out.push_str("<ul class=\"notes\">\n");
        for note in &report.notes {
            put!(out, "<li>{}</li>\n", escaped(note));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("<nav class=\"tiles\">\n");
    for table in &report.tables {
        put_tile(out, table);
    }
    out.push_str("</nav>\n</header>\n");
}

/// A table's name, and how its rows compare as a bar in parts.
fn put_tile(out: &mut String, table: &Table) {
    let name = title(table);
    put!(out, "<a class=\"tile\" href=\"#{}\"><b>{}</b>\n", anchor(table), escaped(&name));
    if table.compared.is_some() {
        let tally = Tally::of(table);
        let [better, equal, worse] = tally.verdicts;
        out.push_str("<span class=\"parts\" aria-hidden=\"true\">");
        for (class, count) in [("better", better), ("equal", equal), ("worse", worse), ("na", tally.missing)] {
            if count > 0 {
                put!(out, "<i class=\"{class}\" style=\"flex-grow:{count}\"></i>");
            }
        }
        put!(out, "</span>\n<span class=\"tally\">{}</span>", tally.sentence());
    } else {
        put!(out, "<span class=\"tally\">{} rows of one system</span>", table.rows.len());
    }
    out.push_str("</a>\n");
}

/// What links inside the page call a table.
fn anchor(table: &Table) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("t-{}-{}", table.suite, table.unit).chars().map(plain).collect()
}

fn put_table(out: &mut String, mode: Mode, table: &Table) {
    put!(out, "<section id=\"{}\">\n<h2>{}</h2>\n", anchor(table), escaped(&title(table)));
    put!(out, "<p>{}</p>\n", about(mode, table));
    let scale = bars::Scale::of(table);
    bars::put_legend(out, table);
    put!(
        out,
        "<table class=\"figures\" data-suite=\"{}\" data-unit=\"{}\">\n<thead><tr><th scope=\"col\">row</th>",
        escaped(&table.suite),
        escaped(&table.unit)
    );
    for column in &table.columns {
        put!(out, "<th scope=\"col\" class=\"figure\">{}</th>", escaped(&column.title));
    }
    if let Some((of, to)) = table.compared {
        let (of, to) = (&table.columns[of].title, &table.columns[to].title);
        put!(out, "<th scope=\"col\">{}&#8239;:&#8239;{}</th>", escaped(of), escaped(to));
    }
    out.push_str("<th scope=\"col\" class=\"bars\">");
    bars::put_axis(out, &scale);
    out.push_str("</th></tr></thead>\n<tbody>\n");
    for row in &table.rows {
        put_row(out, table, row, &scale);
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

/// What a reader has to know of a table before its figures mean something.
fn about(mode: Mode, table: &Table) -> &'static str {
    match (table.suite.as_str(), mode, table.unit.as_str()) {
        ("micro", Mode::Icount, _) => {
            "Guest instructions for one operation; the run checked that they repeat to the last digit. \
             Rows <code>ctl_*</code> have no kernel in them and must be equal. Only Aegis can run rows \
             <code>native_*</code>; Linux's figures there are of the row that is named. Less is better."
        }
        ("micro", Mode::Wall, _) => {
            "Nanoseconds for one operation: the middle of the runs, then the least and the greatest. The ratio is \
             the middle one of the pairs' ratios. Rows <code>ctl_*</code> have no kernel in them and must be equal. \
             Only Aegis can run rows <code>native_*</code>; Linux's figures there are of the row that is named. \
             Rows <code>@same</code> and <code>@diff</code> have both sides on one of two processors, or on one each. \
             Less is better."
        }
        ("disk", _, "ns of the processor") => {
            "The part of an operation's time in which the machine's processor was not idle, as the host counts it. \
             Less is better."
        }
        ("disk", ..) => {
            "One read past every cache, of a file that the host has in memory: <code>seq_</code> of 64 MiB, a block \
             after another; <code>rand_4K_N</code> with N of them under way. <code>pio</code> is IDE without DMA. \
             Less is better."
        }
        ("rhino", _, "ns" | "instructions") => {
            "One event of recoverable memory with page-diff; <code>_trap</code> is what of it is the way into the \
             handler or the system, <code>_rest</code> is the rest. Cold pages come from the disk. Less is better."
        }
        ("boot", _, "MiB") => {
            "The least memory of the whole machine (QEMU's <code>-m</code>) with which the program ran to its end. \
             Less is better."
        }
        ("lottery", _, "ratio") => {
            "What came out beside what the tickets say (Due) and what was published. Several figures are the middle \
             one of several runs or windows, the least and the greatest. Rows <code>gain_*</code>: what a contestant \
             got by what it was due, when it tried to get more; <code>rest_*</code>: the ratio of the other two."
        }
        ("lottery", _, "instructions") => {
            "One operation among so many clients that are ready: a draw with what follows from it, a client that \
             blocks and wakes, a choice by stride scheduling, and the next one in turn."
        }
        ("lottery", ..) => "What all tasks together did less than one alone in the same time, in per cent.",
        ("boot", _, "bytes") => "Bytes that the machine is started from. Less is better.",
        ("boot", ..) => {
            "Milliseconds to the first output of the same program: the middle of the runs, then the least and the \
             greatest. Less is better."
        }
        ("apps", Mode::Icount, _) => {
            "Guest instructions, in millions, from the program's start to its end. Less is better."
        }
        ("apps", ..) => {
            "Milliseconds from the program's start to its end by the guest's clock: the middle of the runs, then the \
             least and the greatest. Less is better."
        }
        _ => "Less is better.",
    }
}

fn put_row(out: &mut String, table: &Table, row: &Row, scale: &bars::Scale) {
    put!(out, "<tr data-row=\"{0}\"><th scope=\"row\">{0}", escaped(&row.name));
    if let Some(beside) = &row.beside {
        put!(out, " <small>beside {}</small>", escaped(beside));
    }
    out.push_str("</th>");
    for (column, cell) in table.columns.iter().zip(&row.cells) {
        put_cell(out, column, cell);
    }
    if table.compared.is_some() {
        put_ratio(out, table.ratio_of(row));
    }
    out.push_str("<td class=\"bars\">");
    bars::put_row(out, table, row, scale);
    out.push_str("</td></tr>\n");
}

fn put_cell(out: &mut String, column: &Column, cell: &Cell) {
    let key = escaped(&column.key);
    let title = escaped(&column.title);
    put!(out, "<td data-column=\"{key}\" data-title=\"{title}\" ");
    match (cell, cell.median()) {
        (Cell::NotAvailable(why), _) => {
            let why = escaped(why);
            put!(out, "class=\"figure na\" data-reason=\"{why}\">n/a <small>{why}</small>");
        }
        (_, Some(median)) => {
            let values = cell.values().iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
            put!(out, "class=\"figure\" data-values=\"{values}\">{}", grouped(median));
            if cell.values().len() > 1 {
                let (min, max) = cell.range();
                put!(out, " <small>{} .. {}</small>", grouped(min), grouped(max));
            }
        }
        _ => out.push_str("class=\"figure na\" data-unasked=\"\">-"),
    }
    out.push_str("</td>");
}

fn put_ratio(out: &mut String, ratio: Option<f64>) {
    match ratio {
        Some(ratio) => {
            let word = Verdict::of(ratio).word();
            put!(out, "<td class=\"ratio {word}\" data-ratio=\"{ratio}\">{ratio:.2} <em>{word}</em></td>");
        }
        None => out.push_str("<td class=\"ratio na\">n/a</td>"),
    }
}

/// Versions, what the columns were started as, and how to make the page again.
fn put_circumstances(out: &mut String, report: &Report) {
    out.push_str("<section id=\"circumstances\">\n<h2>Versions and command lines</h2>\n<dl>\n");
    for (name, version) in &report.versions.0 {
        put!(out, "<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(version));
    }
    put!(out, "<dt>date</dt><dd>{}</dd>\n</dl>\n", date_and_time(report.date_unix_s));
    out.push_str("<p>What differs from run to run is in capitals.</p>\n");
    for table in &report.tables {
        for column in &table.columns {
            put!(
                out,
                "<h3>{}: {}</h3>\n<pre>{}</pre>\n",
                escaped(&title(table)),
                escaped(&column.title),
                escaped(&column.command)
            );
        }
    }
    out.push_str("</section>\n");
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;

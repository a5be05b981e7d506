//! A report as JSON, and back for `--baseline`.
//!
//! One row stands on one line, so that a diff of two files reads well. Figures are written as they were
//! measured, to the last digit. `format` is raised when a reader of an older file would misread a newer one.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, Serializer};

use super::result::{Report, Table};

/// The format that is written and read.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    format: u32,
    #[serde(flatten)]
    report: &'a Report,
}

/// The report as text with a line break at its end.
pub(crate) fn write(report: &Report) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Lines::default());
    // Neither does writing to memory fail, nor has a report maps whose keys are no strings.
    let _ = Written { format: FORMAT, report }.serialize(&mut serializer);
    // No string holds a line break: there it is escaped.
    String::from_utf8_lossy(&bytes).replace(", \n", ",\n") + "\n"
}

/// Each member of the whole, and each object in a list, begins a line.
#[derive(Default)]
struct Lines {
    /// What is open, the innermost last: lists are true.
    open: Vec<bool>,
}

impl Formatter for Lines {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{value}")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.push(true);
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.pop();
        writer.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let is_in_list = self.open.last() == Some(&true);
        self.open.push(false);
        writer.write_all(if is_in_list { b"\n{" } else { b"{" })
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.pop();
        writer.write_all(if self.open.is_empty() { b"\n}" } else { b"}" })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })?;
        writer.write_all(if self.open.len() == 1 { b"\n" } else { b"" })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Reads what [`write`] wrote; the error says what is wrong with it.
pub(crate) fn read(text: &str) -> Result<Report, String> {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    match serde_json::from_str(text) {
        Ok(Head { format: FORMAT }) => {}
        Err(error) if !error.is_data() => return Err(format!("not JSON: {error}")),
        _ => return Err("not a file of `aegis bench --json`, or of another version of it".into()),
    }
    let report = serde_json::from_str::<Report>(text).ok().filter(|report| report.tables.iter().all(is_whole));
    report.ok_or_else(|| "not a whole file of `aegis bench --json`".into())
}

/// Each row has its cells, and the columns that are compared exist.
fn is_whole(table: &Table) -> bool {
    let count = table.columns.len();
    table.rows.iter().all(|row| row.cells.len() == count)
        && table.compared.is_none_or(|(of, to)| of < count && to < count)
}

#[cfg(test)]
mod tests {
    use super::{read, write};
    use crate::result::{Cell, Column, Figure, Mode, Report, Row, Series, Table, Versions};

    fn report() -> Report {
        let column =
            |key: &str| Column { key: key.into(), title: key.to_uppercase(), command: "qemu -append \"a b\"\n".into() };
        let cells =
            vec![Cell::Values(vec![312.5, 1e9]), Cell::NotAvailable("fork: \"ENOSYS\" \\".into()), Cell::NotAsked];
        Report {
            mode: Mode::Icount,
            date_unix_s: 1_795_000_000,
            versions: Versions(vec![("qemu".into(), "7.2".into())]),
            tables: vec![Table {
                suite: "micro".into(),
                unit: "instructions".into(),
                columns: vec![column("a"), column("b"), column("c")],
                compared: Some((0, 2)),
                rows: vec![
                    Row { name: "null".into(), cells: cells.clone(), beside: None },
                    Row { name: "native_null".into(), cells, beside: Some("null / 2".into()) },
                ],
            }],
            figures: vec![Figure {
                name: "fig5".into(),
                title: "two \"tasks\"".into(),
                axes: ["s".into(), "loops".into()],
                is_doubling: false,
                series: vec![Series { title: "a".into(), is_line: true, points: vec![(8.0, 0.5), (16.0, -1e9)] }],
            }],
            doubts: vec!["the host was busy".into()],
            notes: vec!["a row: passes".into()],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let text = write(&report());
        assert_eq!(read(&text).unwrap(), report(), "{text}");
        assert!(text.contains("\n{\"name\": \"null\", \"cells\": [[312.5, 1000000000], "));
        assert!(text.contains(", null], \"beside\": \"null / 2\"}"));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(read("").is_err());
        assert!(read("{}").is_err());
        assert!(read("{\"format\": 2}").is_err());
        assert!(read("{\"format\": 1}").is_err());
        let cut = write(&report()).replace(", null]", "]");
        assert!(read(&cut).is_err(), "a row with too few cells");
    }
}

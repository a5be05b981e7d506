//! A report as JSON, and back for `--baseline`.
//!
//! One row stands on one line, so that a diff of two files reads well. Figures are written as they were
//! measured, to the last digit. `format` is raised when a reader of an older file would misread a newer one.

use std::fmt::Write as _;

use super::json_parse::{Value, parse};
use super::result::{Cell, Column, Figure, Mode, Report, Row, Series, Table};
use crate::json_text::quoted;

/// The format that is written and read.
const FORMAT: f64 = 1.0;

/// The report as text with a line break at its end.
pub(crate) fn write(report: &Report) -> String {
    let mut text = format!(
        "{{\n\"format\": {FORMAT},\n\"mode\": {},\n\"date_unix_s\": {},\n\"versions\": {{",
        quoted(report.mode.name()),
        report.date_unix_s
    );
    let pairs = report.versions.iter();
    let pairs = pairs.map(|(name, version)| format!("{}: {}", quoted(name), quoted(version)));
    text += &pairs.collect::<Vec<_>>().join(", ");
    let doubts = report.doubts.iter().map(|it| quoted(it)).collect::<Vec<_>>();
    let _ = write!(text, "}},\n\"doubts\": [{}]", doubts.join(", "));
    text += ",\n\"suites\": [";
    let tables = report.tables.iter().map(table);
    text += &tables.collect::<Vec<_>>().join(",\n");
    let figures = report.figures.iter().map(figure);
    let _ = write!(text, "],\n\"figures\": [{}]\n}}\n", figures.collect::<Vec<_>>().join(",\n"));
    text
}

fn figure(figure: &Figure) -> String {
    let point = |(x, y): &(f64, f64)| format!("[{x}, {y}]");
    let one = |series: &Series| {
        let points = series.points.iter().map(point).collect::<Vec<_>>().join(", ");
        format!("{{\"title\": {}, \"is_line\": {}, \"points\": [{points}]}}", quoted(&series.title), series.is_line)
    };
    format!(
        "{{\"name\": {}, \"title\": {}, \"axes\": [{}, {}], \"series\": [\n{}]}}",
        quoted(&figure.name),
        quoted(&figure.title),
        quoted(&figure.axes[0]),
        quoted(&figure.axes[1]),
        figure.series.iter().map(one).collect::<Vec<_>>().join(",\n")
    )
}

fn table(table: &Table) -> String {
    let column = |column: &Column| {
        format!(
            "{{\"key\": {}, \"title\": {}, \"command\": {}}}",
            quoted(&column.key),
            quoted(&column.title),
            quoted(&column.command)
        )
    };
    let compared = match table.compared {
        Some((of, to)) => format!("[{of}, {to}]"),
        None => "null".into(),
    };
    let columns = table.columns.iter().map(column).collect::<Vec<_>>();
    let rows = table.rows.iter().map(row).collect::<Vec<_>>();
    format!(
        "{{\"suite\": {}, \"unit\": {}, \"compared\": {compared},\n\"columns\": [\n{}],\n\"rows\": [\n{}]}}",
        quoted(&table.suite),
        quoted(&table.unit),
        columns.join(",\n"),
        rows.join(",\n")
    )
}

fn row(row: &Row) -> String {
    let cell = |cell: &Cell| match cell {
        Cell::Values(values) => {
            let texts = values.iter().map(f64::to_string);
            format!("[{}]", texts.collect::<Vec<_>>().join(", "))
        }
        Cell::NotAvailable(why) => quoted(why),
        Cell::NotAsked => "null".into(),
    };
    let cells = row.cells.iter().map(cell).collect::<Vec<_>>();
    let beside = row.beside.as_ref().map(|beside| format!(", \"beside\": {}", quoted(beside))).unwrap_or_default();
    format!("{{\"name\": {}, \"cells\": [{}]{beside}}}", quoted(&row.name), cells.join(", "))
}

/// Reads what [`write`] wrote; the error says what is wrong with it.
pub(crate) fn read(text: &str) -> Result<Report, String> {
    let value = parse(text)?;
    if value.get("format").and_then(Value::number) != Some(FORMAT) {
        return Err("not a file of `aegis bench --json`, or of another version of it".into());
    }
    report(&value).ok_or_else(|| "not a whole file of `aegis bench --json`".into())
}

fn report(value: &Value) -> Option<Report> {
    let mode = value.get("mode")?.text()?;
    let modes = [Mode::Icount, Mode::Wall];
    let tables = value.get("suites")?.list()?.iter().map(read_table);
    let versions = value.get("versions")?.members()?.iter();
    Some(Report {
        mode: *modes.iter().find(|it| it.name() == mode)?,
        date_unix_s: value.get("date_unix_s")?.number()? as u64,
        versions: versions
            .map(|(name, version)| Some((name.clone(), version.text()?.to_string())))
            .collect::<Option<_>>()?,
        tables: tables.collect::<Option<_>>()?,
        // Files of the first days have neither.
        figures: match value.get("figures") {
            None => Vec::new(),
            Some(figures) => figures.list()?.iter().map(read_figure).collect::<Option<_>>()?,
        },
        doubts: match value.get("doubts") {
            None => Vec::new(),
            Some(doubts) => doubts.list()?.iter().map(|it| Some(it.text()?.to_string())).collect::<Option<_>>()?,
        },
    })
}

fn read_table(value: &Value) -> Option<Table> {
    let text = |value: &Value, key: &str| Some(value.get(key)?.text()?.to_string());
    let column = |value: &Value| {
        Some(Column { key: text(value, "key")?, title: text(value, "title")?, command: text(value, "command")? })
    };
    let columns = value.get("columns")?.list()?.iter().map(column);
    let columns: Vec<Column> = columns.collect::<Option<_>>()?;
    let rows = value.get("rows")?.list()?.iter().map(read_row);
    let rows: Vec<Row> = rows.collect::<Option<_>>()?;
    if rows.iter().any(|row| row.cells.len() != columns.len()) {
        return None;
    }
    // Which columns are compared only matters for showing the table.
    Some(Table {
        suite: text(value, "suite")?,
        unit: text(value, "unit")?,
        compared: read_compared(value.get("compared")?, columns.len()),
        columns,
        rows,
    })
}

fn read_figure(value: &Value) -> Option<Figure> {
    let point = |value: &Value| match value.list()? {
        [x, y] => Some((x.number()?, y.number()?)),
        _ => None,
    };
    let series = |value: &Value| {
        Some(Series {
            title: value.get("title")?.text()?.into(),
            is_line: matches!(value.get("is_line")?, Value::Bool(true)),
            points: value.get("points")?.list()?.iter().map(point).collect::<Option<_>>()?,
        })
    };
    let [x, y] = value.get("axes")?.list()? else { return None };
    Some(Figure {
        name: value.get("name")?.text()?.into(),
        title: value.get("title")?.text()?.into(),
        axes: [x.text()?.into(), y.text()?.into()],
        series: value.get("series")?.list()?.iter().map(series).collect::<Option<_>>()?,
    })
}

fn read_compared(value: &Value, column_count: usize) -> Option<(usize, usize)> {
    match value.list()? {
        [of, to] => {
            let index = |value: &Value| Some(value.number()? as usize);
            let (of, to) = (index(of)?, index(to)?);
            (of < column_count && to < column_count).then_some((of, to))
        }
        _ => None,
    }
}

fn read_row(value: &Value) -> Option<Row> {
    let cell = |value: &Value| match value {
        Value::Null => Some(Cell::NotAsked),
        Value::Text(why) => Some(Cell::NotAvailable(why.clone())),
        _ => {
            let values = value.list()?.iter().map(Value::number);
            Some(Cell::Values(values.collect::<Option<_>>()?))
        }
    };
    let cells = value.get("cells")?.list()?.iter().map(cell);
    Some(Row {
        name: value.get("name")?.text()?.to_string(),
        cells: cells.collect::<Option<_>>()?,
        beside: value.get("beside").and_then(Value::text).map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use super::{read, write};
    use crate::bench::result::{Cell, Column, Figure, Mode, Report, Row, Series, Table};

    fn report() -> Report {
        let column =
            |key: &str| Column { key: key.into(), title: key.to_uppercase(), command: "qemu -append \"a b\"\n".into() };
        let cells =
            vec![Cell::Values(vec![312.5, 1e9]), Cell::NotAvailable("fork: \"ENOSYS\" \\".into()), Cell::NotAsked];
        Report {
            mode: Mode::Icount,
            date_unix_s: 1_795_000_000,
            versions: vec![("qemu".into(), "7.2".into())],
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
                series: vec![Series { title: "a".into(), is_line: true, points: vec![(8.0, 0.5), (16.0, -1e9)] }],
            }],
            doubts: vec!["the host was busy".into()],
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

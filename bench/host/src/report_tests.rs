//! Tables and comparisons, to the letter where a user reads them.

use super::{changes, number, render};
use crate::result::{Cell, Column, Mode, Report, Row, Table, Versions};

fn column(key: &str, title: &str) -> Column {
    Column { key: key.into(), title: title.into(), command: "qemu".into() }
}

fn row(name: &str, cells: [Cell; 2]) -> Row {
    Row { name: name.into(), cells: cells.to_vec(), beside: None }
}

fn value(value: f64) -> Cell {
    Cell::Values(vec![value])
}

fn report(rows: Vec<Row>) -> Report {
    Report {
        mode: Mode::Icount,
        date_unix_s: 0,
        versions: Versions::default(),
        tables: vec![Table {
            suite: "micro".into(),
            unit: "instructions".into(),
            columns: vec![column("aegis", "Aegis"), column("linux", "Linux")],
            compared: Some((0, 1)),
            rows,
        }],
        figures: vec![],
        doubts: vec![],
        notes: vec![],
    }
}

#[test]
fn a_table_shows_every_row_and_counts_them() {
    let text = render(&report(vec![
        row("null", [value(156.0), value(312.0)]),
        row("loop", [value(2006.0), value(2005.0)]),
        row("map", [value(14058.7), value(10000.0)]),
        row("fork", [Cell::NotAvailable("fork: ENOSYS".into()), value(9.0)]),
    ]));
    let expected = "\
micro, instructions:
              Aegis         Linux   ratio
null          156.0         312.0    0.50  better
loop           2006          2005    1.00  equal
map           14059         10000    1.41  worse
fork            n/a          9.00       -          (Aegis: fork: ENOSYS)
4 rows: 1 better, 1 equal, 1 worse, 1 not compared
";
    assert_eq!(text, expected);
}

#[test]
fn a_row_of_one_side_says_what_stands_beside_it() {
    let native = Row { beside: Some("unix_rt / 2".into()), ..row("native_call", [value(1.0), value(4.0)]) };
    let text = render(&report(vec![native]));
    assert!(text.contains("0.25  better  (beside unix_rt / 2)\n"), "{text}");
}

#[test]
fn repeated_runs_show_their_range() {
    let several = Cell::Values(vec![1.0, 3.0, 2.0]);
    let text = render(&report(vec![row("null", [several, value(2.0)])]));
    assert!(text.contains(" 2.00 [1.00..3.00] "), "{text}");
}

#[test]
fn a_table_of_one_system_has_no_ratio() {
    let mut it = report(vec![row("null", [value(1.0), Cell::NotAsked])]);
    it.tables[0].compared = None;
    let text = render(&it);
    assert!(!text.contains("ratio") && !text.contains("compared"), "{text}");
}

#[test]
fn a_slowdown_is_found_and_noise_is_not() {
    let before = report(vec![
        row("null", [value(376.0), value(312.0)]),
        row("read", [value(800.0), Cell::NotAvailable("x".into())]),
        row("gone", [value(1.0), value(1.0)]),
    ]);
    let now = report(vec![row("null", [value(476.0), value(313.0)]), row("read", [value(800.0), value(5.0)])]);
    let text = changes(&before, &now).unwrap();
    let expected = "
since the baseline: 2 of 4 figures changed by more than 1 %
  null Aegis: 376.0 -> 476.0 (1.27, slower)
  read Linux: n/a -> 5.00
";
    assert_eq!(text, expected);
}

#[test]
fn runs_of_different_kinds_are_not_compared() {
    let now = report(vec![]);
    let mut before = now.clone();
    before.mode = Mode::Wall;
    assert!(changes(&before, &now).is_err());
}

#[test]
fn numbers_have_the_digits_that_mean_something() {
    assert_eq!([number(1.254), number(99.94), number(1234.6)], ["1.25", "99.9", "1235"]);
}

//! The page says what the JSON says, all of it, and nothing of it can break out of its place.

use serde_json::Value;

use super::{Earlier, date_and_time, escaped, grouped, page};
use crate::json;
use crate::result::{Cell, Column, Mode, Report, Row, Table, Versions};

/// A tag of a page with its attributes, or text; enough of HTML for pages of this tool.
#[derive(Debug)]
enum Piece {
    Open(String, Vec<(String, String)>, bool),
    Close(String),
    Text(String),
}

/// Takes a page apart and panics at what is not well-formed.
fn pieces(page: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        pieces.push(Piece::Text(plain(&rest[..at])));
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            pieces.push(Piece::Close(name.into()));
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap().to_string();
        if name == "style" {
            rest = &rest[rest.find("</style>").expect("the style ends")..];
        }
        let is_alone = tag.ends_with('/') || name == "meta";
        pieces.push(Piece::Open(name.clone(), attributes(tag[name.len()..].trim_end_matches('/')), is_alone));
    }
    pieces
}

fn attributes(mut text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start();
        let Some((name, behind)) = text.split_once("=\"") else {
            assert!(text.is_empty(), "no attribute: {text:?}");
            return found;
        };
        let (value, behind) = behind.split_once('"').expect("a value ends");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name:?}");
        found.push((name.to_string(), plain(value)));
        text = behind;
    }
}

fn plain(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    text.replace("&#8239;", " ").replace("&amp;", "&")
}

/// Every tag is closed by its own.
fn assert_balanced(pieces: &[Piece]) {
    let mut open = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Open(name, _, false) => open.push(name),
            Piece::Close(name) => assert_eq!(open.pop(), Some(name)),
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// What a table of the page shows: suite, unit, and for each row its name and its cells as JSON has them.
type Shown = (String, String, Vec<(String, Vec<Value>)>);

fn shown_tables(pieces: &[Piece]) -> Vec<Shown> {
    let mut tables: Vec<Shown> = Vec::new();
    for piece in pieces {
        let Piece::Open(tag, attributes, _) = piece else { continue };
        let get = |key: &str| attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        if tag == "table" && get("class").as_deref() == Some("figures") {
            tables.push((get("data-suite").unwrap(), get("data-unit").unwrap(), Vec::new()));
        }
        let Some((_, _, rows)) = tables.last_mut() else { continue };
        if let ("tr", Some(name)) = (tag.as_str(), get("data-row")) {
            rows.push((name, Vec::new()));
        }
        if get("data-column").is_none() {
            continue;
        }
        let number = |text: &str| Value::from(text.parse::<f64>().unwrap());
        let cell = match (get("data-values"), get("data-reason"), get("data-unasked")) {
            (Some(values), None, None) => Value::Array(values.split(' ').map(number).collect()),
            (None, Some(why), None) => Value::String(why),
            (None, None, Some(_)) => Value::Null,
            other => panic!("{other:?}"),
        };
        rows.last_mut().expect("a cell is in a row").1.push(cell);
    }
    tables
}

/// Cells with their numbers as fractions, however they are written.
fn cells_of(row: &Value) -> Vec<Value> {
    let fraction = |value: &Value| Value::from(value.as_f64().unwrap());
    let cell = |cell: &Value| match cell {
        Value::Array(values) => Value::Array(values.iter().map(fraction).collect()),
        other => other.clone(),
    };
    row["cells"].as_array().unwrap().iter().map(cell).collect()
}

/// The same out of the text of a JSON file.
fn written_tables(json: &str) -> Vec<Shown> {
    let value: Value = serde_json::from_str(json).unwrap();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_string();
    let row = |value: &Value| (text(value, "name"), cells_of(value));
    let table = |value: &Value| {
        let rows = value["rows"].as_array().unwrap();
        (text(value, "suite"), text(value, "unit"), rows.iter().map(row).collect())
    };
    value["suites"].as_array().unwrap().iter().map(table).collect()
}

fn column(key: &str, title: &str) -> Column {
    Column { key: key.into(), title: title.into(), command: "qemu -append 'a <b> & \"c\"'".into() }
}

fn report() -> Report {
    let row = |name: &str, cells: [Cell; 3]| Row { name: name.into(), cells: cells.to_vec(), beside: None };
    let values = |values: &[f64]| Cell::Values(values.to_vec());
    let rows = vec![
        row("won", [values(&[156.25, 1e-3, 312.0]), values(&[312.5, 1.0, 2.0]), values(&[1.0, 2.0, 3.0])]),
        row("lost", [values(&[123_456_789.125]), values(&[1.0]), Cell::NotAsked]),
        row("equal", [values(&[0.1]), values(&[0.1]), values(&[0.0])]),
        row("missing", [Cell::NotAvailable("fork: <b>\"ENOSYS\"</b> & 'more'".into()), values(&[9.0]), values(&[8.0])]),
        row("<script>alert('1')</script>", [Cell::NotAvailable(String::new()), Cell::NotAsked, values(&[1.0])]),
    ];
    let table = |suite: &str, unit: &str, rows: Vec<Row>| Table {
        suite: suite.into(),
        unit: unit.into(),
        columns: vec![column("aegis", "Aegis"), column("linux", "Linux"), column("linux_default", "Linux \"default\"")],
        compared: Some((0, 1)),
        rows,
    };
    Report {
        mode: Mode::Wall,
        date_unix_s: 1_795_248_600,
        versions: Versions(vec![("qemu".into(), "QEMU <7.2>".into())]),
        tables: vec![table("micro", "ns", rows.clone()), table("boot", "MiB", rows[..2].to_vec())],
        figures: vec![],
        doubts: vec!["the host was <busy>".into()],
        notes: vec!["a row: passes".into()],
    }
}

#[test]
fn the_figures_are_those_of_the_json() {
    let text = json::write(&report());
    // As --from does it: what is compared has been through the file.
    let page = page(&json::read(&text).unwrap(), &[]);
    let shown = shown_tables(&pieces(&page));
    assert_eq!(shown, written_tables(&text));
    assert_eq!(shown[0].2.len(), 5, "rows that were lost or could not run are there");
}

#[test]
fn what_is_read_is_the_middle_of_the_figures() {
    let page = page(&report(), &[]);
    for text in [
        ">156.2 <small>0.00 .. 312.0</small>",
        ">123,456,789</td>",
        "data-ratio=\"0.5\">0.50 <em>better</em>",
        "<em>worse</em>",
        "<em>equal</em>",
        "n/a <small>fork: &lt;b&gt;&quot;ENOSYS&quot;&lt;/b&gt; &amp; &#39;more&#39;</small>",
        "5 rows: 1 better, 1 equal, 1 worse, 2 not compared",
        "the host was &lt;busy&gt;",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_else() {
    let earlier = Earlier { name: "<old>.json".into(), report: report() };
    let page = page(&report(), &[earlier]);
    let pieces = pieces(&page);
    assert_balanced(&pieces);
    for piece in &pieces {
        match piece {
            Piece::Open(tag, attributes, _) => {
                assert!(!["script", "link", "img", "iframe", "object", "base"].contains(&tag.as_str()), "{tag}");
                for (name, value) in attributes {
                    assert!(name != "src" && !name.starts_with("on"), "{name}");
                    assert!(name != "href" || value.starts_with('#'), "{value}");
                }
            }
            Piece::Text(text) => assert!(!text.contains("alert") || text.contains("<script>"), "{text}"),
            Piece::Close(_) => {}
        }
    }
    for word in ["http:", "https:", "@import", "url(", "<script"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn links_lead_to_places_of_the_page() {
    let page = page(&report(), &[]);
    for link in page.split("href=\"#").skip(1) {
        let id = link.split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}

#[test]
fn earlier_figures_stand_in_the_order_of_their_dates() {
    let mut old = report();
    old.date_unix_s -= 86_400;
    old.tables[0].rows[0].cells[0] = Cell::Values(vec![999.0]);
    let mut other = report();
    other.tables.iter_mut().for_each(|table| table.unit = "instructions".into());
    let earlier = [
        Earlier { name: "newer.json".into(), report: report() },
        Earlier { name: "older.json".into(), report: old },
        Earlier { name: "counted.json".into(), report: other },
    ];
    let page = page(&report(), &earlier);
    let history = &page[page.find("id=\"history\"").unwrap()..];
    let row = &history[history.find("data-row=\"won\"").unwrap()..];
    let row = &row[..row.find("</tr>").unwrap()];
    let medians: Vec<&str> = row.split("data-median=\"").skip(1).map(|it| it.split('"').next().unwrap()).collect();
    assert_eq!(medians, ["999", "156.25", "156.25"]);
    assert!(history.contains("no figures of this kind: counted.json"));
}

#[test]
fn a_table_of_one_system_has_no_ratio() {
    let mut it = report();
    it.tables[0].compared = None;
    it.tables.truncate(1);
    let page = page(&it, &[]);
    assert!(!page.contains("data-ratio") && page.contains("5 rows of one system"));
}

#[test]
fn text_is_kept_in_its_place() {
    assert_eq!(escaped("<a href=\"x\">&'\u{7}"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u{fffd}");
    assert_eq!([999.94, 1000.0, 1234567.0, 12.0].map(grouped), ["999.9", "1,000", "1,234,567", "12.0"]);
}

#[test]
fn dates() {
    assert_eq!(date_and_time(0), "1970-01-01 00:00 UTC");
    assert_eq!(date_and_time(951_782_399), "2000-02-28 23:59 UTC");
    assert_eq!(date_and_time(951_782_400), "2000-02-29 00:00 UTC");
    assert_eq!(date_and_time(1_795_248_600), "2026-11-21 08:10 UTC");
}

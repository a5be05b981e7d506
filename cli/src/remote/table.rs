//! What a machine reports about its pods, read from its lines, and printed for people or as JSON.
//!
//! Pure. A line is `machine NAME`, `pod NAME KEY=VALUE …`, `currency NAME KEY=VALUE …` or `process POD KEY=VALUE …
//! command=TEXT`; what is not understood is passed over, so that a newer machine can say more.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::payers::Shares;
use crate::json_text::quoted;
use crate::verb::up_currencies::BASE;

const FRAME_BYTES: u64 = 4096;

/// Values that are texts whatever they look like.
const TEXT_KEYS: [&str; 2] = ["command", "currency"];

/// A pod, a process of one, or a currency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// The pod's name, or the currency's.
    pub(crate) name: String,
    /// `state`, `command`, `currency`.
    texts: BTreeMap<String, String>,
    numbers: BTreeMap<String, u64>,
}

impl Row {
    fn parse(rest: &str) -> Option<Self> {
        let (name, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut row = Self { name: name.to_owned(), ..Self::default() };
        while !rest.is_empty() {
            let (key, value) = rest.split_once('=')?;
            let (value, left) =
                if key == "command" { (value, "") } else { value.split_once(' ').unwrap_or((value, "")) };
            match value.parse() {
                Ok(number) if !TEXT_KEYS.contains(&key) => drop(row.numbers.insert(key.to_owned(), number)),
                _ => drop(row.texts.insert(key.to_owned(), value.to_owned())),
            }
            rest = left;
        }
        Some(row)
    }

    /// A number; 0 if it was not said.
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.numbers.get(key).copied().unwrap_or(0)
    }

    /// A text; empty if it was not said.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.texts.get(key).map_or("", String::as_str)
    }

    /// `ended (3)`, `running`.
    fn shown_state(&self) -> String {
        match self.numbers.get("status") {
            Some(status) => format!("{} ({status})", self.text("state")),
            None => self.text("state").to_owned(),
        }
    }

    /// Times that the kernel was entered.
    fn entries(&self) -> u64 {
        ["kernel_calls", "traps", "exceptions", "interrupts"].iter().map(|key| self.number(key)).sum()
    }

    /// Whether it competes.
    pub(crate) fn is_running(&self) -> bool {
        self.text("state") == "running"
    }

    /// `200.shop`, as the paper writes it; without a name in the base.
    fn shown_tickets(&self) -> String {
        match (self.number("tickets"), self.text("currency")) {
            (tickets, "" | BASE) => tickets.to_string(),
            (tickets, currency) => format!("{tickets}.{currency}"),
        }
    }
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Its name.
    pub(crate) machine: String,
    /// Its pods.
    pub(crate) pods: Vec<Row>,
    /// Their processes.
    pub(crate) processes: Vec<Row>,
    /// What pays for pods.
    pub(crate) currencies: Vec<Row>,
}

impl Report {
    /// Reads the lines of an answer.
    pub(crate) fn parse(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("machine", name)) => report.machine = name.to_owned(),
                Some(("pod", rest)) => report.pods.extend(Row::parse(rest)),
                Some(("currency", rest)) => report.currencies.extend(Row::parse(rest)),
                Some(("process", rest)) => report.processes.extend(Row::parse(rest)),
                _ => {}
            }
        }
        report
    }

    fn processes_of<'a>(&'a self, pod: &'a str) -> impl Iterator<Item = &'a Row> {
        self.processes.iter().filter(move |row| row.name == pod)
    }

    /// One JSON object.
    pub(crate) fn json(&self) -> String {
        let object = |row: &Row| {
            let numbers = row.numbers.iter().map(|(key, value)| format!("{}:{value}", quoted(key)));
            let texts = row.texts.iter().map(|(key, value)| format!("{}:{}", quoted(key), quoted(value)));
            numbers.chain(texts).collect::<Vec<_>>().join(",")
        };
        let pods = self.pods.iter().map(|pod| {
            let processes = self.processes_of(&pod.name).map(|row| format!("{{{}}}", object(row))).collect::<Vec<_>>();
            format!("{{\"pod\":{},{},\"processes\":[{}]}}", quoted(&pod.name), object(pod), processes.join(","))
        });
        let pods = pods.collect::<Vec<_>>().join(",");
        let currency = |row: &Row| format!("{{\"name\":{},{}}}", quoted(&row.name), object(row));
        let currencies = self.currencies.iter().map(currency).collect::<Vec<_>>().join(",");
        format!("{{\"machine\":{},\"pods\":[{pods}],\"currencies\":[{currencies}]}}", quoted(&self.machine))
    }
}

/// What `aegis ps` prints.
pub(crate) fn pods_table(reports: &[Report]) -> String {
    let mut table = Table::new(&["MACHINE", "POD", "STATE", "TICKETS", "TIME", "MEMORY", "ENTRIES"], "<<<>>>>");
    for report in reports {
        for pod in &report.pods {
            table.row(vec![
                report.machine.clone(),
                pod.name.clone(),
                pod.shown_state(),
                pod.shown_tickets(),
                seconds(pod.number("time_ns")),
                memory(pod),
                pod.entries().to_string(),
            ]);
        }
    }
    let mut text = table.text();
    if reports.iter().any(|report| !report.processes.is_empty()) {
        let mut table =
            Table::new(&["MACHINE", "POD", "PID", "PPID", "STATE", "TIME", "MEMORY", "COMMAND"], "<<>><>><");
        for report in reports {
            for process in &report.processes {
                let mut row = vec![report.machine.clone()];
                row.extend(process_cells(process));
                table.row(row);
            }
        }
        text.push('\n');
        text.push_str(&table.text());
    }
    text
}

fn process_cells(process: &Row) -> Vec<String> {
    vec![
        process.name.clone(),
        process.number("pid").to_string(),
        process.number("ppid").to_string(),
        process.text("state").to_owned(),
        seconds(process.number("time_ns")),
        mebibytes(process.number("resident_bytes")),
        process.text("command").to_owned(),
    ]
}

/// What `aegis tickets` prints: each pod's tickets, and what share of the processors they are worth among those that
/// run; and the same of currencies.
pub(crate) fn tickets_table(report: &Report) -> String {
    let shares = Shares::new(&report.pods, &report.currencies);
    let mut table = Table::new(&["POD", "TICKETS", "SHARE"], "<>>");
    for pod in &report.pods {
        table.row(vec![pod.name.clone(), pod.shown_tickets(), percent(shares.of_pod(pod))]);
    }
    table.text() + &currencies_table(report, &shares)
}

/// Nothing where there are none.
fn currencies_table(report: &Report, shares: &Shares<'_>) -> String {
    if report.currencies.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["CURRENCY", "TICKETS", "SHARE"], "<>>");
    for row in &report.currencies {
        table.row(vec![row.name.clone(), row.shown_tickets(), percent(shares.of_currency(row))]);
    }
    format!("\n{}", table.text())
}

/// What `aegis top` prints: pods and their processes, and what they used since `before`, or since their start.
pub(crate) fn top_table(before: Option<&Report>, now: &Report) -> String {
    let since = |row: &Row| {
        let old = before.and_then(|before| before.pods.iter().find(|old| old.name == row.name));
        let used = |key: &str| {
            let old = old.map_or(0, |old| old.number(key));
            // A pod that was started again counts from 0.
            row.number(key).checked_sub(old).unwrap_or(row.number(key))
        };
        let entries = ["kernel_calls", "traps", "exceptions", "interrupts"].iter().map(|key| used(key)).sum::<u64>();
        (used("time_ns"), entries)
    };
    let shares = Shares::new(&now.pods, &now.currencies);
    let got_all: u64 = now.pods.iter().map(|pod| since(pod).0).sum();
    let heads = ["POD", "STATE", "TICKETS", "WANTED", "GOT", "TIME", "MEMORY", "GUARANTEED", "LIMIT", "ENTRIES"];
    let mut table = Table::new(&heads, "<<>>>>>>>>");
    for pod in &now.pods {
        let (used_ns, entries) = since(pod);
        table.row(vec![
            pod.name.clone(),
            pod.shown_state(),
            pod.shown_tickets(),
            percent(shares.of_pod(pod)),
            part(used_ns, got_all),
            seconds(pod.number("time_ns")),
            memory(pod),
            frames(pod, "guaranteed"),
            frames(pod, "limit"),
            entries.to_string(),
        ]);
    }
    let mut text = format!("{}\n{}{}", now.machine, table.text(), currencies_table(now, &shares));
    if !now.processes.is_empty() {
        let mut table = Table::new(&["POD", "PID", "PPID", "STATE", "TIME", "MEMORY", "COMMAND"], "<>><>><");
        for pod in &now.pods {
            now.processes_of(&pod.name).for_each(|process| table.row(process_cells(process)));
        }
        text.push('\n');
        text.push_str(&table.text());
    }
    text
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn part(of: u64, all: u64) -> String {
    if all == 0 {
        return "-".to_owned();
    }
    percent(Some(of as f64 / all as f64))
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:03} s", nanoseconds / 1_000_000_000, nanoseconds / 1_000_000 % 1000)
}

fn mebibytes(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, (bytes >> 10) % 1024 * 10 / 1024)
}

/// What `aegis memory` prints: what each pod holds, what it may hold now, what of it others cannot take, and the most.
pub(crate) fn memory_table(report: &Report) -> String {
    let mut table = Table::new(&["POD", "RESIDENT", "ALLOWED", "GUARANTEED", "LIMIT"], "<>>>>");
    for pod in &report.pods {
        let cells = ["frames", "frame_quota", "guaranteed", "limit"];
        let cells = cells.map(|key| frames(pod, key));
        table.row(std::iter::once(pod.name.clone()).chain(cells).collect());
    }
    table.text()
}

fn memory(pod: &Row) -> String {
    format!("{} of {}", frames(pod, "frames"), frames(pod, "frame_quota"))
}

/// A number of frames.
fn frames(pod: &Row, key: &str) -> String {
    mebibytes(pod.number(key) * FRAME_BYTES)
}

/// Columns of text, each as wide as its widest cell.
struct Table {
    alignments: &'static str,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// `alignments` has `<` or `>` for each column.
    fn new(heads: &[&str], alignments: &'static str) -> Self {
        Self { alignments, rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn text(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.alignments.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), alignment) in row.iter().zip(&widths).zip(self.alignments.chars()) {
                // Writing to a String cannot fail.
                let _ = match alignment {
                    '<' => write!(line, "{cell:<width$}  "),
                    _ => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, memory_table, pods_table, tickets_table, top_table};

    const TEXT: &str = "machine shop\n\
        pod web state=running tickets=3000 time_ns=1500000000 frames=512 frame_quota=8192 guaranteed=4096 limit=16384 \
        kernel_calls=5 traps=6\n\
        pod worker state=running tickets=1000 time_ns=500000000 frames=256 frame_quota=8192 kernel_calls=7\n\
        pod done state=ended status=3 tickets=1000 time_ns=0\n\
        noise of another version\n\
        process web pid=1 ppid=0 state=S time_ns=2000000 resident_bytes=1572864 command=sh -c a=\"b c\"\n";

    #[test]
    fn reports_are_read_and_printed() {
        let report = Report::parse(TEXT);
        assert_eq!((report.pods.len(), report.processes.len()), (3, 1));
        let text = pods_table(std::slice::from_ref(&report));
        let lines: Vec<&str> = text.lines().collect();
        let columns = "MACHINE  POD     STATE      TICKETS     TIME               MEMORY  ENTRIES";
        assert_eq!(lines[0], columns);
        assert_eq!(lines[1], "shop     web     running       3000  1.500 s  2.0 MiB of 32.0 MiB       11");
        assert!(lines[3].contains("ended (3)"), "{text}");
        assert_eq!(lines[6], "shop     web    1     0  S      0.002 s  1.5 MiB  sh -c a=\"b c\"");
        assert_eq!(tickets_table(&report).lines().nth(1), Some("web        3000  75.0 %"));
        let line = "web      2.0 MiB  32.0 MiB    16.0 MiB  64.0 MiB";
        assert_eq!(memory_table(&report).lines().nth(1), Some(line));
    }

    #[test]
    fn top_shows_what_was_used_in_between() {
        let before = Report::parse(TEXT);
        let now = TEXT.replace("time_ns=500000000", "time_ns=600000000").replace("1500000000", "1800000000");
        let text = top_table(Some(&before), &Report::parse(&now.replace("calls=5", "calls=9")));
        let cells: Vec<&str> = text.lines().nth(2).unwrap_or_default().split_whitespace().collect();
        assert_eq!(cells[..7], ["web", "running", "3000", "75.0", "%", "75.0", "%"], "{text}");
        assert_eq!(cells.last(), Some(&"4"), "{text}");
        assert!(text.lines().nth(2).is_some_and(|line| line.contains("16.0 MiB  64.0 MiB")), "{text}");
        let since_start = top_table(None, &before);
        assert!(since_start.lines().nth(3).is_some_and(|line| line.contains("25.0 %  25.0 %")), "{since_start}");
        assert!(top_table(None, &Report::parse("machine m\npod a state=starting\n")).contains('-'));
    }

    #[test]
    fn currencies_are_shown_with_what_they_pay_for() {
        let text = TEXT.replace("tickets=3000", "tickets=3000 currency=7")
            + "currency 7 tickets=1000 currency=base\ncurrency spare tickets=5 currency=7\n";
        let report = Report::parse(&text);
        let table = tickets_table(&report);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "web      3000.7  50.0 %");
        assert_eq!(lines[5..], ["CURRENCY  TICKETS   SHARE", "7            1000  50.0 %", "spare         5.7   0.0 %"]);
        let top = top_table(None, &report);
        assert!(top.contains("3000.7  50.0 %") && top.contains("\nspare "), "{top}");
        assert!(pods_table(std::slice::from_ref(&report)).contains(" 3000.7 "));
        let json = report.json();
        assert!(json.contains("\"currencies\":[{\"name\":\"7\",\"tickets\":1000,\"currency\":\"base\"}"), "{json}");
        assert!(json.contains("\"currency\":\"7\""), "{json}");
    }

    #[test]
    fn json_has_everything() {
        let json = Report::parse(TEXT).json();
        assert!(json.starts_with("{\"machine\":\"shop\",\"pods\":[{\"pod\":\"web\","), "{json}");
        assert!(json.contains("\"tickets\":3000") && json.contains("\"command\":\"sh -c a=\\\"b c\\\"\""), "{json}");
        assert!(json.contains("\"status\":3"));
    }
}

//! What a machine reports about its pods, printed for people.
//!
//! Pure.

use std::fmt::Write as _;

use super::report::{MachineReport, PodReport, ProcessReport, TrafficReport, Usage};
use super::shares::Shares;
use crate::verb::up_currencies::BASE;

const FRAME_BYTES: u64 = 4096;

/// `ended (3)`, `running`.
fn shown_state(pod: &PodReport) -> String {
    match pod.status {
        Some(status) => format!("{} ({status})", pod.state_name()),
        None if pod.has_crashed => "crashed".to_owned(),
        None if pod.health.is_some() => {
            format!("{} ({})", pod.state_name(), pod.health.as_deref().unwrap_or_default())
        }
        None => pod.state_name().to_owned(),
    }
}

/// `200.shop`, as the paper writes it; without a name in the base.
fn shown_tickets(tickets: u64, currency: &str) -> String {
    match currency {
        "" | BASE => tickets.to_string(),
        currency => format!("{tickets}.{currency}"),
    }
}

fn tickets_of(pod: &PodReport) -> String {
    shown_tickets(pod.usage().tickets, &pod.currency)
}

/// What `aegis ps` prints.
pub(crate) fn pods_table(reports: &[MachineReport]) -> String {
    // A column that no pod needs would only make lines longer.
    let has_ports = reports.iter().flat_map(|report| &report.pods).any(|pod| !pod.ports.is_empty());
    let heads = ["MACHINE", "POD", "STATE", "TICKETS", "TIME", "MEMORY", "ENTRIES", "PORTS"];
    let column_count = heads.len() - usize::from(!has_ports);
    let mut table = Table::new(&heads[..column_count], &"<<<>>>><"[..column_count]);
    for report in reports {
        for pod in &report.pods {
            let mut row = vec![report.machine.clone(), pod.name.clone(), shown_state(pod)];
            row.extend(match &pod.usage {
                Some(usage) => [tickets_of(pod), seconds(usage.time_ns), memory(pod), usage.entries().to_string()],
                None => ["-"; 4].map(str::to_owned),
            });
            row.extend(has_ports.then(|| pod.ports.join(", ")));
            table.row(row);
        }
    }
    let mut text = table.text();
    if reports.iter().flat_map(|report| &report.pods).any(|pod| !pod.processes.is_empty()) {
        let mut table =
            Table::new(&["MACHINE", "POD", "PID", "PPID", "STATE", "TIME", "MEMORY", "COMMAND"], "<<>><>><");
        for report in reports {
            for (pod, process) in processes(report) {
                let mut row = vec![report.machine.clone()];
                row.extend(process_cells(pod, process));
                table.row(row);
            }
        }
        text.push('\n');
        text.push_str(&table.text());
    }
    text
}

/// All processes, each with its pod.
fn processes(report: &MachineReport) -> impl Iterator<Item = (&PodReport, &ProcessReport)> {
    report.pods.iter().flat_map(|pod| pod.processes.iter().map(move |process| (pod, process)))
}

fn process_cells(pod: &PodReport, process: &ProcessReport) -> Vec<String> {
    vec![
        pod.name.clone(),
        process.pid.to_string(),
        process.ppid.to_string(),
        process.state.to_string(),
        seconds(process.time_ns),
        mebibytes(process.resident_bytes),
        process.command.clone(),
    ]
}

/// What `aegis tickets` prints: each pod's tickets, and what share of the processors they are worth among those that
/// run; and the same of currencies.
pub(crate) fn tickets_table(report: &MachineReport) -> String {
    let shares = Shares::new(report);
    let mut table = Table::new(&["POD", "TICKETS", "SHARE"], "<>>");
    for pod in &report.pods {
        table.row(vec![pod.name.clone(), tickets_of(pod), percent(shares.of_pod(pod))]);
    }
    table.text() + &currencies_table(report, &shares)
}

/// Nothing where there are none.
fn currencies_table(report: &MachineReport, shares: &Shares<'_>) -> String {
    if report.currencies.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["CURRENCY", "TICKETS", "SHARE"], "<>>");
    for row in &report.currencies {
        table.row(vec![row.name.clone(), shown_tickets(row.tickets, &row.currency), percent(shares.of_currency(row))]);
    }
    format!("\n{}", table.text())
}

/// What `aegis top` prints: pods and their processes, and what they used since `before`, or since their start.
pub(crate) fn top_table(before: Option<&MachineReport>, now: &MachineReport) -> String {
    let since = |pod: &PodReport| {
        let old = before.and_then(|before| before.pods.iter().find(|old| old.name == pod.name));
        let (old, now) = (old.map(PodReport::usage).unwrap_or_default(), pod.usage());
        // A pod that was started again counts from 0.
        let used = |of: fn(&Usage) -> u64| of(&now).checked_sub(of(&old)).unwrap_or(of(&now));
        let entries: [fn(&Usage) -> u64; 4] =
            [|it| it.kernel_calls, |it| it.traps, |it| it.exceptions, |it| it.interrupts];
        (used(|it| it.time_ns), entries.into_iter().map(used).sum::<u64>())
    };
    let shares = Shares::new(now);
    let got_all: u64 = now.pods.iter().map(|pod| since(pod).0).sum();
    let heads = ["POD", "STATE", "TICKETS", "WANTED", "GOT", "TIME", "MEMORY", "GUARANTEED", "LIMIT", "ENTRIES"];
    let mut table = Table::new(&heads, "<<>>>>>>>>");
    for pod in &now.pods {
        let (used_ns, entries) = since(pod);
        table.row(vec![
            pod.name.clone(),
            shown_state(pod),
            tickets_of(pod),
            percent(shares.of_pod(pod)),
            part(used_ns, got_all),
            seconds(pod.usage().time_ns),
            memory(pod),
            frames(pod.usage().guaranteed),
            frames(pod.usage().limit),
            entries.to_string(),
        ]);
    }
    let mut text = format!("{}\n{}{}", now.machine, table.text(), currencies_table(now, &shares));
    text.push_str(&traffic_table(before, now));
    if processes(now).next().is_some() {
        let mut table = Table::new(&["POD", "PID", "PPID", "STATE", "TIME", "MEMORY", "COMMAND"], "<>><>><");
        processes(now).for_each(|(pod, process)| table.row(process_cells(pod, process)));
        text.push('\n');
        text.push_str(&table.text());
    }
    text
}

/// What went through network cards since `before`; nothing where none was used.
fn traffic_table(before: Option<&MachineReport>, now: &MachineReport) -> String {
    let heads = ["POD", "RECEIVED", "PACKETS", "SENT", "PACKETS", "REPEATED", "DROPPED"];
    let mut table = Table::new(&heads, "<>>>>>>");
    let mut is_empty = true;
    for pod in &now.pods {
        let Some(traffic) = pod.traffic else { continue };
        let old = before.and_then(|before| before.pods.iter().find(|old| old.name == pod.name)?.traffic);
        let old = old.unwrap_or_default();
        // A pod that was started again counts from 0.
        let since = |of: fn(&TrafficReport) -> u64| of(&traffic).checked_sub(of(&old)).unwrap_or(of(&traffic));
        table.row(vec![
            pod.name.clone(),
            kibibytes(since(|it| it.received_bytes)),
            since(|it| it.received_packets).to_string(),
            kibibytes(since(|it| it.sent_bytes)),
            since(|it| it.sent_packets).to_string(),
            since(|it| it.repeated_segments).to_string(),
            since(|it| it.drops).to_string(),
        ]);
        is_empty = false;
    }
    if is_empty { String::new() } else { format!("\n{}", table.text()) }
}

/// What `aegis stats` prints: what each pod uses now, since `before` or its start.
pub(crate) fn stats_table(before: Option<&MachineReport>, now: &MachineReport, wanted: &[String]) -> String {
    let heads = ["POD", "CPU", "MEMORY", "LIMIT", "USED", "RECEIVED", "SENT", "PROCESSES"];
    let mut table = Table::new(&heads, "<>>>>>>>");
    for pod in now.pods.iter().filter(|pod| wanted.is_empty() || wanted.contains(&pod.name)) {
        let old = before.and_then(|before| before.pods.iter().find(|old| old.name == pod.name));
        let (old, usage) = (old.map(PodReport::usage).unwrap_or_default(), pod.usage());
        // A pod that was started again counts from 0; the machine's clock goes on.
        let used_ns = usage.time_ns.checked_sub(old.time_ns).unwrap_or(usage.time_ns);
        let traffic = pod.traffic.unwrap_or_default();
        table.row(vec![
            pod.name.clone(),
            part(used_ns, usage.now_ns.saturating_sub(old.now_ns)),
            frames(usage.frames),
            frames(usage.limit),
            part(usage.frames, usage.limit),
            kibibytes(traffic.received_bytes),
            kibibytes(traffic.sent_bytes),
            pod.processes.len().to_string(),
        ]);
    }
    table.text()
}

fn kibibytes(bytes: u64) -> String {
    format!("{}.{} KiB", bytes >> 10, bytes % 1024 * 10 / 1024)
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
pub(crate) fn memory_table(report: &MachineReport) -> String {
    let mut table = Table::new(&["POD", "RESIDENT", "ALLOWED", "GUARANTEED", "LIMIT"], "<>>>>");
    for pod in &report.pods {
        let usage = pod.usage();
        let cells = [usage.frames, usage.frame_quota, usage.guaranteed, usage.limit].map(frames);
        table.row(std::iter::once(pod.name.clone()).chain(cells).collect());
    }
    table.text()
}

fn memory(pod: &PodReport) -> String {
    format!("{} of {}", frames(pod.usage().frames), frames(pod.usage().frame_quota))
}

fn frames(count: u64) -> String {
    mebibytes(count.saturating_mul(FRAME_BYTES))
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
    use super::super::report::tests::{machine, pod};
    use super::super::report::{CurrencyReport, MachineReport, TrafficReport};
    use super::{memory_table, pods_table, tickets_table, top_table};

    #[test]
    fn reports_are_printed() {
        let report = machine();
        let text = pods_table(std::slice::from_ref(&report));
        let lines: Vec<&str> = text.lines().collect();
        let columns = "MACHINE  POD     STATE      TICKETS     TIME               MEMORY  ENTRIES";
        assert_eq!(lines[0], columns);
        assert_eq!(lines[1], "shop     web     running       3000  1.500 s  2.0 MiB of 32.0 MiB       11");
        assert!(lines[3].contains("ended (3)"), "{text}");
        assert_eq!(lines[6], "shop     web    1     0  S      0.002 s  1.5 MiB  sh -c a=\"b c\"");
        let mut over = report.clone();
        over.pods[0].usage = None;
        over.pods[0].has_crashed = true;
        let line = pods_table(&[over]).lines().nth(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(line.as_deref(), Some("shop web crashed - - - -"));
        let mut published = report.clone();
        published.pods[0].ports = vec!["127.0.0.1:8080 -> 80/tcp".into(), "[::1]:53 -> 53/udp".into()];
        let table = pods_table(&[published]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].ends_with("ENTRIES  PORTS"), "{table}");
        assert!(lines[1].ends_with("     11  127.0.0.1:8080 -> 80/tcp, [::1]:53 -> 53/udp"), "{table}");
        assert!(lines[2].ends_with("      7"), "{table}");
        assert_eq!(tickets_table(&report).lines().nth(1), Some("web        3000  75.0 %"));
        let line = "web      2.0 MiB  32.0 MiB    16.0 MiB  64.0 MiB";
        assert_eq!(memory_table(&report).lines().nth(1), Some(line));
    }

    #[test]
    fn top_shows_what_was_used_in_between() {
        let (before, mut now) = (machine(), machine());
        for (pod, (time_ns, kernel_calls)) in now.pods.iter_mut().zip([(1_800_000_000, 9), (600_000_000, 7)]) {
            let usage = pod.usage.as_mut().expect("it has one");
            (usage.time_ns, usage.kernel_calls) = (time_ns, kernel_calls);
        }
        let text = top_table(Some(&before), &now);
        let cells: Vec<&str> = text.lines().nth(2).unwrap_or_default().split_whitespace().collect();
        assert_eq!(cells[..7], ["web", "running", "3000", "75.0", "%", "75.0", "%"], "{text}");
        assert_eq!(cells.last(), Some(&"4"), "{text}");
        assert!(text.lines().nth(2).is_some_and(|line| line.contains("16.0 MiB  64.0 MiB")), "{text}");
        let since_start = top_table(None, &before);
        assert!(since_start.lines().nth(3).is_some_and(|line| line.contains("25.0 %  25.0 %")), "{since_start}");
        let starting = MachineReport { pods: vec![pod("a", "starting", "base", 0)], ..MachineReport::default() };
        assert!(top_table(None, &starting).contains('-'));
    }

    #[test]
    fn traffic_is_shown_of_cards_that_were_used() {
        let traffic =
            |bytes| TrafficReport { received_bytes: bytes, sent_packets: 7, drops: 2, ..TrafficReport::default() };
        let (mut before, mut now) = (machine(), machine());
        assert!(!top_table(None, &now).contains("RECEIVED"));
        (before.pods[1].traffic, now.pods[1].traffic) = (Some(traffic(1024)), Some(traffic(4096 + 512)));
        let text = top_table(Some(&before), &now);
        let line = text.lines().skip_while(|line| !line.contains("RECEIVED")).nth(1).unwrap_or_default();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells, ["worker", "3.5", "KiB", "0", "0.0", "KiB", "0", "0", "0"], "{text}");
        let json = super::super::report::json(&now);
        assert_eq!(serde_json::from_str::<MachineReport>(&json).expect("its own"), now);
    }

    #[test]
    fn currencies_are_shown_with_what_they_pay_for() {
        let currency =
            |name: &str, tickets, payer: &str| CurrencyReport { name: name.into(), tickets, currency: payer.into() };
        let mut report = machine();
        report.pods[0].currency = "7".into();
        report.currencies = vec![currency("7", 1000, "base"), currency("spare", 5, "7")];
        let table = tickets_table(&report);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "web      3000.7  50.0 %");
        assert_eq!(lines[5..], ["CURRENCY  TICKETS   SHARE", "7            1000  50.0 %", "spare         5.7   0.0 %"]);
        let top = top_table(None, &report);
        assert!(top.contains("3000.7  50.0 %") && top.contains("\nspare "), "{top}");
        assert!(pods_table(std::slice::from_ref(&report)).contains(" 3000.7 "));
    }
}

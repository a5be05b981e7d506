//! A machine's report as OpenMetrics, or as the text that was before it.
//!
//! Pure. What cAdvisor has a name for is called so (`container_…`, with the pod as `name`), so that pictures that exist
//! show it; the rest is `aegis_…`. What is not known now (a pod or the manager did not answer) has no sample: a zero
//! would be read as one.

use std::fmt::Write as _;

use super::report::{MachineReport, PodReport, TrafficReport};
use super::shares::Shares;

const FRAME_BYTES: u64 = 4096;
/// The card's name in every pod.
const CARD: &str = "interface=\"eth0\"";

/// How the figures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4.
    Text,
}

impl Format {
    /// Its media type.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

struct Writer {
    text: String,
    format: Format,
    machine: String,
}

/// A value of a label.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

impl Writer {
    /// A family: what of each pod belongs to it, as further labels and a value.
    fn family<L: AsRef<str>>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        pods: &[PodReport],
        of: impl Fn(&PodReport) -> Vec<(L, f64)>,
    ) {
        let (suffix, word) = if kind == Kind::Counter { ("_total", "counter") } else { ("", "gauge") };
        let own = if self.format == Format::Text { suffix } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(self.text, "# HELP {name}{own} {help}\n# TYPE {name}{own} {word}\n");
        for pod in pods {
            for (labels, value) in of(pod) {
                let (machine, pod, labels) = (escaped(&self.machine), escaped(&pod.name), labels.as_ref());
                let between = if labels.is_empty() { "" } else { "," };
                let _ = writeln!(
                    self.text,
                    "{name}{suffix}{{machine=\"{machine}\",name=\"{pod}\"{between}{labels}}} {value}"
                );
            }
        }
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The figures of a machine.
pub(crate) fn metrics(report: &MachineReport, format: Format) -> String {
    let mut out = Writer { text: String::new(), format, machine: report.machine.clone() };
    states(&mut out, report);
    usage(&mut out, report);
    traffic(&mut out, report);
    if format == Format::OpenMetrics {
        out.text.push_str("# EOF\n");
    }
    out.text
}

/// Whether all tickets that compete are known: none is of an amount of 0.
fn are_shares_known(report: &MachineReport) -> bool {
    let is_known = |pod: &PodReport| pod.state.is_some() && (!pod.is_running() || pod.usage.is_some());
    report.pods.iter().all(is_known) && report.currencies.iter().all(|currency| currency.tickets > 0)
}

fn states(out: &mut Writer, report: &MachineReport) {
    let pods = &report.pods;
    let one = |value: f64| vec![("", value)];
    out.family(("aegis_pod_running", Kind::Gauge, "Whether the pod's program runs."), pods, |pod| {
        pod.state.map(|_| ("", f64::from(u8::from(pod.is_running())))).into_iter().collect()
    });
    out.family(("aegis_pod_healthy", Kind::Gauge, "Whether the pod's health check succeeds."), pods, |pod| {
        let health = pod.health.as_deref().filter(|health| *health != "starting");
        health.map(|health| ("", f64::from(u8::from(health == "healthy")))).into_iter().collect()
    });
    out.family(("aegis_pod_restarts", Kind::Counter, "Times that the pod was started again."), pods, |pod| {
        one(f64::from(pod.restarts))
    });
    out.family(("aegis_pod_exit_status", Kind::Gauge, "The status that the program ended with."), pods, |pod| {
        pod.status.map(|status| ("", f64::from(status))).into_iter().collect()
    });
    let shares = are_shares_known(report).then(|| Shares::new(report));
    let help = "The part of the processors that the pod's tickets are worth now.";
    out.family(("aegis_pod_share_wanted_ratio", Kind::Gauge, help), pods, |pod| {
        shares.as_ref().and_then(|shares| shares.of_pod(pod)).map(|share| ("", share)).into_iter().collect()
    });
    out.family(("container_processes", Kind::Gauge, "Processes of the pod."), pods, |pod| {
        if pod.has_all_processes { one(pod.processes.len() as f64) } else { Vec::new() }
    });
}

fn usage(out: &mut Writer, report: &MachineReport) {
    let pods = &report.pods;
    let of = |pod: &PodReport, value: fn(&super::report::Usage) -> f64| {
        pod.usage.as_ref().map(|usage| ("", value(usage))).into_iter().collect::<Vec<_>>()
    };
    out.family(("aegis_pod_tickets", Kind::Gauge, "Amount of the pod's ticket in its currency."), pods, |pod| {
        of(pod, |it| it.tickets as f64)
    });
    let help = "Processor time that the pod has used.";
    out.family(("container_cpu_usage_seconds", Kind::Counter, help), pods, |pod| of(pod, |it| seconds(it.time_ns)));
    let help = "Memory that the pod's library OS has taken.";
    out.family(("container_memory_usage_bytes", Kind::Gauge, help), pods, |pod| {
        of(pod, |it| (it.frames * FRAME_BYTES) as f64)
    });
    let help = "Memory that the pod may ever have.";
    out.family(("container_spec_memory_limit_bytes", Kind::Gauge, help), pods, |pod| {
        of(pod, |it| (it.limit * FRAME_BYTES) as f64)
    });
    let help = "Memory that others cannot take from the pod.";
    out.family(("aegis_pod_memory_guaranteed_bytes", Kind::Gauge, help), pods, |pod| {
        of(pod, |it| (it.guaranteed * FRAME_BYTES) as f64)
    });
    let help = "Memory that the pod may have now.";
    out.family(("aegis_pod_memory_allowed_bytes", Kind::Gauge, help), pods, |pod| {
        of(pod, |it| (it.frame_quota * FRAME_BYTES) as f64)
    });
    let help = "Times that the kernel was entered, by the way that led there.";
    out.family(("aegis_pod_kernel_entries", Kind::Counter, help), pods, |pod| {
        let Some(usage) = &pod.usage else { return Vec::new() };
        let ways = [
            ("path=\"call\"", usage.kernel_calls),
            ("path=\"trap\"", usage.traps),
            ("path=\"exception\"", usage.exceptions),
            ("path=\"interrupt\"", usage.interrupts),
        ];
        ways.map(|(label, count)| (label, count as f64)).to_vec()
    });
    out.family(("aegis_pod_slices", Kind::Counter, "Slices that the pod has begun."), pods, |pod| {
        of(pod, |it| it.slices as f64)
    });
}

fn traffic(out: &mut Writer, report: &MachineReport) {
    type Row = (&'static str, &'static str, fn(&TrafficReport) -> u64);
    let rows: [Row; 6] = [
        ("container_network_receive_bytes", "Bytes that came through the pod's card.", |it| it.received_bytes),
        ("container_network_receive_packets", "Packets that came through the card.", |it| it.received_packets),
        ("container_network_transmit_bytes", "Bytes that left through the card.", |it| it.sent_bytes),
        ("container_network_transmit_packets", "Packets that left through the card.", |it| it.sent_packets),
        ("aegis_pod_tcp_repeated_segments", "TCP segments that were sent again.", |it| it.repeated_segments),
        ("container_network_receive_packets_dropped", "Packets that were lost in the pod.", |it| it.drops),
    ];
    for (name, help, value) in rows {
        out.family((name, Kind::Counter, help), &report.pods, |pod| {
            pod.traffic.as_ref().map(|traffic| (CARD, value(traffic) as f64)).into_iter().collect()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::TrafficReport;
    use super::super::report::tests::machine;
    use super::{Format, metrics};

    #[test]
    fn families_are_whole_and_end() {
        let mut report = machine();
        report.machine = "a\"b\\c\nd".into();
        report.pods[0].traffic = Some(TrafficReport { sent_bytes: 7, ..TrafficReport::default() });
        let text = metrics(&report, Format::OpenMetrics);
        assert!(text.ends_with("\n# EOF\n") && !text.contains("\n\n"), "{text}");
        let label = "machine=\"a\\\"b\\\\c\\nd\",name=\"web\"";
        for line in [
            "# TYPE container_cpu_usage_seconds counter".to_owned(),
            format!("container_cpu_usage_seconds_total{{{label}}} 1.5"),
            format!("aegis_pod_kernel_entries_total{{{label},path=\"trap\"}} 6"),
            format!("container_network_transmit_bytes_total{{{label},interface=\"eth0\"}} 7"),
            format!("container_memory_usage_bytes{{{label}}} 2097152"),
            format!("aegis_pod_running{{{label}}} 1"),
            format!("aegis_pod_share_wanted_ratio{{{label}}} 0.75"),
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        // A family's samples stand together, behind its type, and no family comes twice.
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let mut sorted = types.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), types.len());
        let mut family = "";
        for line in text.lines().filter(|line| !line.starts_with("# HELP") && *line != "# EOF") {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => family = rest.split(' ').next().unwrap_or_default(),
                None => assert!(line.starts_with(family), "{family}: {line}"),
            }
        }
        assert!(!text.contains("\ncontainer_processes{"), "no pod has said what it has: {text}");
        let old = metrics(&report, Format::Text);
        assert!(old.contains("# TYPE aegis_pod_slices_total counter\n") && !old.contains("# EOF"), "{old}");
    }

    #[test]
    fn what_is_not_known_has_no_sample() {
        let mut report = machine();
        report.pods.iter_mut().for_each(|pod| pod.has_all_processes = true);
        report.pods[1].state = None;
        report.pods[1].usage = None;
        report.pods[1].has_all_processes = false;
        let text = metrics(&report, Format::OpenMetrics);
        let samples = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
        assert_eq!((samples("aegis_pod_running"), samples("container_processes")), (2, 2), "{text}");
        assert_eq!((samples("aegis_pod_share_wanted_ratio"), samples("aegis_pod_tickets")), (0, 2), "{text}");
        assert!(text.contains("container_processes{machine=\"shop\",name=\"done\"} 0\n"), "{text}");
    }
}

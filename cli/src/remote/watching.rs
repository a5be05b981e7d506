//! `aegis stats`, `wait`, `inspect`, `events`: looking on.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::time::Duration;

use aegis_launch::errors::{Error, STATUS_TOOL};
use clap::Args;
use serde_json::{Value, json};

use super::client::{Conversation, running};
use super::keys::Keys;
use super::report::{EventReport, MachineReport, PodReport};
use super::request::Request;
use super::table::stats_table;
use super::verbs::{MachineChoice, finish, name, pass_on, print};
use crate::oci::rfc_3339;
use crate::options::values::parse_seconds;

/// From one picture of `stats` to the next.
const INTERVAL_DEFAULT: &str = "2";

/// `aegis wait`.
#[derive(Debug, Args)]
pub(crate) struct WaitOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// The pods; without any, all of the machine
    #[arg(value_name = "POD")]
    pods: Vec<OsString>,
}

/// `aegis stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// Print one picture, of what was used since the pods' start, and end
    #[arg(long, alias = "once")]
    no_stream: bool,
    /// Print JSON, a line for each pod and picture
    #[arg(long)]
    json: bool,
    /// Time from one picture to the next
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = INTERVAL_DEFAULT, value_parser = parse_seconds)]
    interval: Duration,
    /// The pods; without any, all of the machine
    #[arg(value_name = "POD")]
    pods: Vec<OsString>,
}

/// `aegis inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// The pod; without it, all of the machine
    pod: Option<OsString>,
}

/// `aegis events`.
#[derive(Debug, Args)]
pub(crate) struct EventsOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// Print JSON, a line for each event
    #[arg(long)]
    json: bool,
    /// Print what has happened so far, and end
    #[arg(long)]
    once: bool,
}

/// The pods that were named, of a machine that has ended.
fn named<'a>(report: &'a MachineReport, names: &[String]) -> Result<Vec<&'a PodReport>, Error> {
    if names.is_empty() {
        return Ok(report.pods.iter().collect());
    }
    let find = |name: &String| {
        let found = report.pods.iter().find(|pod| pod.name == *name);
        found.ok_or_else(|| Error::Usage(format!("{name}: {} had no such pod", report.machine)))
    };
    names.iter().map(find).collect()
}

/// `aegis wait`.
pub(crate) fn wait(options: &WaitOptions) -> Result<u8, Error> {
    let pods: Vec<String> = options.pods.iter().map(name).collect();
    if let Some(record) = options.choice.ended(pods.first().map(String::as_str))? {
        for pod in named(&record.report, &pods)? {
            print(&format!("{}\n", pod.status.unwrap_or(STATUS_TOOL)))?;
        }
        return Ok(0);
    }
    finish(options.choice.open_for(options.pods.first())?.ask(&Request::Wait { pods }, None, pass_on)?)
}

/// `aegis stats`.
pub(crate) fn stats(options: &StatsOptions) -> Result<u8, Error> {
    let mut conversation = options.choice.open_for(options.pods.first())?;
    let pods: Vec<String> = options.pods.iter().map(name).collect();
    let clears = io::stdout().is_terminal() && !options.no_stream && !options.json;
    let keys = Keys::listen(clears);
    let mut before: Option<MachineReport> = None;
    loop {
        let now = conversation.report(&Request::Processes)?;
        named(&now, &pods)?;
        if options.json {
            print(&stats_json(before.as_ref(), &now, &pods))?;
        } else {
            let table = stats_table(before.as_ref(), &now, &pods);
            print(&format!("{}{table}", if clears { "\x1b[H\x1b[J" } else { "" }))?;
        }
        if options.no_stream {
            return Ok(0);
        }
        before = Some(now);
        if keys.wait(options.interval) {
            return Ok(0);
        }
    }
}

/// A line for each pod.
fn stats_json(before: Option<&MachineReport>, now: &MachineReport, wanted: &[String]) -> String {
    let mut text = String::new();
    for pod in now.pods.iter().filter(|pod| wanted.is_empty() || wanted.contains(&pod.name)) {
        let old = before.and_then(|before| before.pods.iter().find(|old| old.name == pod.name));
        let (old, usage) = (old.map(PodReport::usage).unwrap_or_default(), pod.usage());
        let line = json!({
            "machine": now.machine,
            "pod": pod.name,
            "state": pod.state_name(),
            "used_ns": usage.time_ns.checked_sub(old.time_ns).unwrap_or(usage.time_ns),
            "elapsed_ns": usage.now_ns.saturating_sub(old.now_ns),
            "memory_bytes": usage.frames.saturating_mul(4096),
            "limit_bytes": usage.limit.saturating_mul(4096),
            "traffic": pod.traffic.unwrap_or_default(),
            "processes": pod.processes.len(),
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

/// `aegis inspect`.
pub(crate) fn inspect(options: &InspectOptions) -> Result<u8, Error> {
    let pod = options.pod.as_ref().map(name);
    if let Some(record) = options.choice.ended(pod.as_deref())? {
        let pods: Vec<Value> =
            named(&record.report, pod.as_slice())?.into_iter().map(|pod| ended_json(&record.report, pod)).collect();
        return print(&format!("{:#}\n", Value::from(pods)));
    }
    let text = options.choice.open_for(options.pod.as_ref())?.output(&Request::Inspect { pod })?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| Error::Usage(error.to_string()))?;
    print(&format!("{value:#}\n"))
}

fn ended_json(report: &MachineReport, pod: &PodReport) -> Value {
    json!({
        "machine": report.machine,
        "pod": pod.name,
        "state": pod.state_name(),
        "status": pod.status,
        "crashed": pod.has_crashed,
        "restarts": pod.restarts,
        "ports": pod.ports,
    })
}

/// `aegis events`: of the machine that is meant, or one after another of those that run.
pub(crate) fn events(options: &EventsOptions) -> Result<u8, Error> {
    let request = Request::Events { follows: !options.once };
    let mut conversation = if options.once && options.choice.is_any() {
        for machine in running()? {
            // One may have ended meanwhile.
            if let Ok(mut conversation) = Conversation::open(&machine) {
                let _ = conversation.ask(&request, None, |_, bytes| print_events(bytes, options.json))?;
            }
        }
        return Ok(0);
    } else {
        options.choice.open()?
    };
    finish(conversation.ask(&request, None, |_, bytes| print_events(bytes, options.json))?)
}

fn print_events(bytes: &[u8], is_json: bool) -> io::Result<()> {
    let shown = |error: Error| io::Error::other(error.to_string());
    if is_json {
        return print(&String::from_utf8_lossy(bytes)).map(drop).map_err(shown);
    }
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let event: EventReport = serde_json::from_slice(line)?;
        print(&event_line(&event)).map_err(shown)?;
    }
    Ok(())
}

fn event_line(event: &EventReport) -> String {
    let status = event.status.map(|status| format!(" (status {status})")).unwrap_or_default();
    let restarts = if event.restarts > 0 { format!(" (start {})", event.restarts + 1) } else { String::new() };
    let time = rfc_3339(event.time_ms / 1000);
    let time = time.trim_end_matches('Z');
    let milliseconds = event.time_ms % 1000;
    format!("{time}.{milliseconds:03}Z {} {} {}{status}{restarts}\n", event.machine, event.pod, event.event)
}

#[cfg(test)]
mod tests {
    use super::{event_line, named, stats_json};
    use crate::remote::report::EventReport;
    use crate::remote::report::tests::machine;

    #[test]
    fn events_are_lines() {
        let event = EventReport {
            time_ms: 951_782_400_042,
            machine: "shop".into(),
            pod: "web".into(),
            event: "exit".into(),
            status: Some(3),
            restarts: 1,
        };
        assert_eq!(event_line(&event), "2000-02-29T00:00:00.042Z shop web exit (status 3) (start 2)\n");
    }

    #[test]
    fn figures_are_of_the_pods_that_were_named() {
        let report = machine();
        assert_eq!(named(&report, &[]).map(|pods| pods.len()).expect("all"), 3);
        assert!(named(&report, &["no".into()]).is_err());
        let text = stats_json(None, &report, &["web".into()]);
        let value: serde_json::Value = serde_json::from_str(text.trim()).expect("a line");
        assert_eq!((&value["used_ns"], &value["memory_bytes"]), (&1_500_000_000_u64.into(), &2_097_152.into()));
    }
}

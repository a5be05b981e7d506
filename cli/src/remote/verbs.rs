//! `aegis ps`, `top`, `logs`, `stop`, `memory`, `tickets`: what they print and how they end.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use aegis_launch::errors::{Doing, Error};
use aegis_link::frame::Kind;
use clap::Args;

use super::client::{Conversation, Machine, ended, running, the_machine};
use super::keys::Keys;
use super::record::Record;
use super::report::{MachineReport, json};
use super::request::{End, Request, no_amount};
use super::table::{memory_table, pods_table, tickets_table, top_table};
use crate::options::values::{parse_memory_range, parse_seconds, parse_signal};
use crate::relay::line_marks::marks;

/// From one picture of `top` to the next.
const INTERVAL_DEFAULT: &str = "2";
/// What `stop` leaves a program after SIGTERM.
const GRACE_DEFAULT: &str = "10";

// Which machine. (No documentation comment: clap would make it the text of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineChoice {
    /// The machine, where several run: what --name said, or its file's name without the end
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
}

impl MachineChoice {
    /// Whether none was named.
    pub(super) fn is_any(&self) -> bool {
        self.machine.is_none()
    }

    /// The record of the machine that is meant, if it has ended: by its name, or the one that ended last, of those with
    /// this pod if it is said. A machine that runs is meant before one that has ended, but where a pod is said without
    /// a machine only if it has that pod.
    ///
    /// # Errors
    /// The directory of machines cannot be read.
    pub(super) fn ended(&self, pod: Option<&str>) -> Result<Option<Record>, Error> {
        let is_meant = |name: &str| self.machine.as_deref().is_none_or(|wanted| wanted == name);
        let of_pod = pod.filter(|_| self.is_any());
        let has_it = |machine: &Machine| of_pod.is_none_or(|pod| machine.name == pod || machine.has_pod(pod));
        if running()?.iter().any(|machine| is_meant(&machine.name) && has_it(machine)) {
            return Ok(None);
        }
        let records = ended()?.into_iter().filter(|(name, _)| is_meant(name));
        let has_pod = |record: &Record| pod.is_none_or(|pod| record.report.pods.iter().any(|it| it.name == pod));
        Ok(records.filter_map(|(_, path)| Record::read(&path).ok()).find(has_pod))
    }

    /// Begins to speak with it.
    pub(super) fn open(&self) -> Result<Conversation, Error> {
        self.open_for(None)
    }

    /// Begins to speak with it about a pod.
    pub(super) fn open_for(&self, pod: Option<&OsString>) -> Result<Conversation, Error> {
        Conversation::open(&the_machine(self.machine.as_deref(), pod.map(name).as_deref())?)
    }
}

/// `aegis ps`.
#[derive(Debug, Args)]
pub(crate) struct PsOptions {
    /// Only this machine; without it, all that run.
    #[command(flatten)]
    choice: MachineChoice,
    /// Show the pods' processes too
    #[arg(short = 'p', long)]
    processes: bool,
    /// Show machines that have ended too
    #[arg(short = 'a', long)]
    all: bool,
    /// Print JSON: a list of machines, with their pods and these with their processes
    #[arg(long)]
    json: bool,
}

/// `aegis top`.
#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// Print once what was used since the pods' start, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, a line for each picture
    #[arg(long)]
    json: bool,
    /// Time from one picture to the next
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = INTERVAL_DEFAULT, value_parser = parse_seconds)]
    interval: Duration,
}

/// `aegis logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// Go on with what the pod writes, until it ends
    #[arg(short = 'f', long)]
    follow: bool,
    /// Begin with the last so many lines, or with `all` that are kept
    #[arg(short = 'n', long, value_name = "LINES", default_value = TAIL_ALL, value_parser = parse_tail)]
    tail: u64,
    /// The pod; without it, all, with their marks
    pod: Option<OsString>,
}

/// All lines, as [`parse_tail`] has it.
const TAIL_ALL: &str = "all";

fn parse_tail(text: &str) -> Result<u64, String> {
    if text == TAIL_ALL {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| format!("a number of lines, or {TAIL_ALL}"))
}

/// `aegis stop`.
#[derive(Debug, Args)]
pub(crate) struct StopOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// Time from SIGTERM to SIGKILL
    #[arg(
        short = 't',
        long,
        alias = "time",
        value_name = "SECONDS",
        default_value = GRACE_DEFAULT,
        value_parser = parse_grace
    )]
    grace: Duration,
    /// The pods; without any, the whole machine
    #[arg(value_name = "POD")]
    pods: Vec<OsString>,
}

/// `aegis kill`.
#[derive(Debug, Args)]
pub(crate) struct KillOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// What the programs are sent; KILL ends a pod whatever it does
    #[arg(short = 's', long, value_name = "SIGNAL", default_value = "KILL", value_parser = parse_signal)]
    signal: u8,
    /// The pods
    #[arg(value_name = "POD", required = true)]
    pods: Vec<OsString>,
}

/// `aegis tickets`.
#[derive(Debug, Args)]
pub(crate) struct TicketsOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// Print JSON where they are shown
    #[arg(long)]
    json: bool,
    /// The pod or currency whose ticket is to be changed; without it, all are shown
    #[arg(requires = "amount")]
    pod: Option<OsString>,
    /// Its new amount, 1 to 2147483648
    #[arg(value_name = "N", allow_hyphen_values = true)]
    amount: Option<OsString>,
}

/// `aegis memory`.
#[derive(Debug, Args)]
pub(crate) struct MemoryOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// Print JSON where they are shown
    #[arg(long)]
    json: bool,
    /// The pod whose memory is to be changed; without it, all are shown
    #[arg(requires = "size")]
    pod: Option<OsString>,
    /// What is guaranteed to its programs and what they can have at most, as 64M/512M; 64M is both
    #[arg(value_name = "SIZE", allow_hyphen_values = true)]
    size: Option<OsString>,
}

fn parse_grace(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_seconds(text) }
}

/// `aegis ps`.
pub(crate) fn ps(options: &PsOptions) -> Result<u8, Error> {
    let machines = match &options.choice.machine {
        Some(name) if options.all => running()?.into_iter().filter(|machine| machine.name == *name).collect(),
        Some(name) => vec![the_machine(Some(name), None)?],
        None => running()?,
    };
    let request = if options.processes || options.json { Request::Processes } else { Request::Pods };
    let mut reports = Vec::new();
    for machine in &machines {
        match Conversation::open(machine).and_then(|mut conversation| conversation.report(&request)) {
            Ok(report) => reports.push(report),
            // It may have ended meanwhile, which is no failure where nobody asked for it by name.
            Err(error) if options.choice.machine.is_some() => return Err(error),
            Err(error) if running()?.iter().any(|it| it.name == machine.name) => eprintln!("aegis: {error}"),
            Err(_) => {}
        }
    }
    if options.all {
        let is_wanted = |name: &str| options.choice.machine.as_deref().is_none_or(|wanted| wanted == name);
        reports.extend(ended_reports()?.into_iter().filter(|report| is_wanted(&report.machine)));
    }
    if options.json {
        return print(&format!("{}\n", json(&reports)));
    }
    print(&pods_table(&reports))
}

/// `aegis top`.
pub(crate) fn top(options: &TopOptions) -> Result<u8, Error> {
    let mut conversation = options.choice.open()?;
    let clears = io::stdout().is_terminal() && !options.once && !options.json;
    let keys = Keys::listen(clears);
    let mut before = None;
    loop {
        let now = conversation.report(&Request::Processes)?;
        let table = if options.json { json(&now) + "\n" } else { top_table(before.as_ref(), &now) };
        // The cursor to the corner, and nothing below.
        print(&format!("{}{table}", if clears { "\x1b[H\x1b[J" } else { "" }))?;
        if options.once {
            return Ok(0);
        }
        before = Some(now);
        if keys.wait(options.interval) {
            return Ok(0);
        }
    }
}

/// `aegis logs`.
pub(crate) fn logs(options: &LogsOptions) -> Result<u8, Error> {
    let pod = options.pod.as_ref().map(name);
    if let Some(record) = options.choice.ended(pod.as_deref())? {
        return print_lines(&record, pod.as_deref(), options.tail);
    }
    let request = Request::Logs { follows: options.follow, pod, last: Some(options.tail) };
    finish(options.choice.open_for(options.pod.as_ref())?.ask(&request, None, pass_on)?)
}

/// `aegis stop`.
pub(crate) fn stop(options: &StopOptions) -> Result<u8, Error> {
    let grace_ms = options.grace.as_millis().try_into().unwrap_or(u64::MAX);
    let request = Request::Stop { grace_ms, pods: options.pods.iter().map(name).collect() };
    finish(options.choice.open_for(options.pods.first())?.ask(&request, None, pass_on)?)
}

/// `aegis kill`.
pub(crate) fn kill(options: &KillOptions) -> Result<u8, Error> {
    if options.signal != libc::SIGKILL as u8 {
        let mut conversation = options.choice.open_for(options.pods.first())?;
        for pod in &options.pods {
            conversation.output(&Request::Signal { pod: name(pod), number: options.signal })?;
        }
        return Ok(0);
    }
    let request = Request::Stop { grace_ms: 0, pods: options.pods.iter().map(name).collect() };
    finish(options.choice.open_for(options.pods.first())?.ask(&request, None, pass_on)?)
}

/// `aegis tickets`.
pub(crate) fn tickets(options: &TicketsOptions) -> Result<u8, Error> {
    let mut conversation = options.choice.open()?;
    match (&options.pod, &options.amount) {
        (Some(pod), Some(amount)) => {
            let amount = name(amount);
            let amount = amount.parse().map_err(|_| Error::Usage(no_amount(&amount)))?;
            conversation.output(&Request::Tickets { holder: name(pod), amount })?;
            Ok(0)
        }
        _ if options.json => print(&format!("{}\n", json(&conversation.report(&Request::Pods)?))),
        _ => print(&tickets_table(&conversation.report(&Request::Pods)?)),
    }
}

/// `aegis memory`.
pub(crate) fn memory(options: &MemoryOptions) -> Result<u8, Error> {
    let mut conversation = options.choice.open()?;
    match (&options.pod, &options.size) {
        (Some(pod), Some(size)) => {
            let (guaranteed, limit) = parse_memory_range(&name(size)).map_err(Error::Usage)?;
            conversation.output(&Request::Memory { pod: name(pod), guaranteed, limit })?;
            Ok(0)
        }
        _ if options.json => print(&format!("{}\n", json(&conversation.report(&Request::Pods)?))),
        _ => print(&memory_table(&conversation.report(&Request::Pods)?)),
    }
}

/// The reports of machines that have ended.
fn ended_reports() -> Result<Vec<MachineReport>, Error> {
    let records = ended()?.into_iter().filter_map(|(_, path)| Record::read(&path).ok());
    Ok(records.map(|record| record.report).collect())
}

/// What pods of a machine that has ended wrote.
fn print_lines(record: &Record, pod: Option<&str>, last: u64) -> Result<u8, Error> {
    let names: Vec<String> = record.report.pods.iter().map(|pod| pod.name.clone()).collect();
    if let Some(pod) = pod.filter(|pod| !names.iter().any(|name| name == pod)) {
        let text = format!("{pod}: no such pod; {} had {}", record.report.machine, names.join(", "));
        return Err(Error::Usage(text));
    }
    let marks = marks(&names);
    let lines: Vec<_> = record.lines.iter().filter(|line| pod.is_none_or(|pod| line.pod == pod)).collect();
    let passed_over = lines.len().saturating_sub(usize::try_from(last).unwrap_or(usize::MAX));
    for line in &lines[passed_over..] {
        let number = names.iter().position(|name| *name == line.pod);
        let mark = number.filter(|_| pod.is_none()).map_or("", |number| marks[number].as_str());
        let kind = if line.error { Kind::Errors } else { Kind::Output };
        pass_on(kind, &[mark.as_bytes(), &line.text.0].concat()).doing("writing what the pods wrote")?;
    }
    Ok(0)
}

/// Writes what the machine says to this process's streams.
pub(super) fn pass_on(kind: Kind, bytes: &[u8]) -> io::Result<()> {
    match kind {
        Kind::Errors => io::stderr().write_all(bytes),
        _ => {
            let mut output = io::stdout().lock();
            output.write_all(bytes)?;
            output.flush()
        }
    }
}

/// A word as a name; one that is no text is the name of nothing.
pub(super) fn name(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
}

/// Says what is to be said at the end; the exit status.
pub(super) fn finish(end: End) -> Result<u8, Error> {
    if !end.text.is_empty() {
        eprintln!("aegis: {}", end.text);
    }
    Ok(end.status)
}

pub(super) fn print(text: &str) -> Result<u8, Error> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).doing("writing to standard output")?;
    Ok(0)
}

//! `aegis run --name` and `-d`: a program as the only pod of a machine that answers `ps`, `logs`, `exec` and `stop`.
//!
//! It is `aegis up` with a file of one pod. In the background the tool starts itself again, in a session of its own;
//! what goes wrong before the machine starts is still told here, and the name is printed once it starts. Afterwards
//! the pod's output is in the machine's log alone.
//!
//! A named run with a terminal is none of these: it is a plain run in a machine that can be found (`verb/run.rs`).

use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use aegis_launch::errors::{Doing, Error, STATUS_TOOL};

use crate::options::RunOptions;
use crate::options::groups::PodOptions;
use crate::remote::address::NameChoice;
use crate::remote::client::{Conversation, SILENCE_LIMIT, the_machine};
use crate::remote::report::EventReport;
use crate::remote::request::Request;
use crate::remote::server::restart::Restart;
use crate::verb::up::{Wanted, run_pods};
use crate::verb::up_file::{PodEntry, TICKETS_DEFAULT, UpFile};

/// Set in the tool that runs in the background.
const BACKGROUND: &str = "AEGIS_IN_BACKGROUND";
/// Events after which a pod is no longer about to start.
const AWAITED: [&str; 3] = ["running", "exit", "lost"];
/// What it tells before it lets go of the user's streams is no longer than this.
const NAME_BYTES_MAX: u64 = 4096;

/// Whether a run is to have a name.
pub(crate) fn is_named(options: &RunOptions) -> bool {
    options.engine_words.detach || options.engine_words.name.is_some()
}

/// Lets a run in the background go on in another process, and answers the status of its start; nothing for a run that
/// goes on here.
pub(crate) fn in_background(options: &RunOptions) -> Result<Option<u8>, Error> {
    if is_named(options) && (options.engine_words.detach || !options.terminal) {
        check(options)?;
    }
    let is_here = !options.engine_words.detach || std::env::var_os(BACKGROUND).is_some() || options.machine.dry_run;
    if is_here { Ok(None) } else { start_in_background().map(Some) }
}

/// Whether signals of the tool are its program's alone, as with other engines: those of a person at a terminal, who may
/// have no other way to end the machine, are not.
pub(crate) fn hands_on(options: &RunOptions) -> bool {
    options.pod.image.image.is_some() && !options.engine_words.detach && !std::io::stdin().is_terminal()
}

/// Runs the program under a name; the answer is the tool's exit status, in the background that of the start.
pub(crate) fn run_named(
    options: &RunOptions,
    pod: PodOptions,
    words: Vec<OsString>,
    current: &Path,
    start: Instant,
) -> Result<u8, Error> {
    let program = words.first().cloned().unwrap_or_default();
    let name = NameChoice::new(options.engine_words.name.as_deref(), Path::new(&program));
    let entry = PodEntry {
        name: name.first(),
        words,
        memory_limit: pod.memory,
        options: pod,
        tickets: TICKETS_DEFAULT,
        payer: None,
        restart: Restart::NO,
        dependencies: Vec::new(),
    };
    let file = UpFile {
        cpus: options.cpus,
        memory: None,
        slice_ms: None,
        trusts_devices: false,
        pods: vec![entry],
        currencies: Vec::new(),
        pool: None,
        pool_fault: None,
    };
    let is_named = options.engine_words.name.is_some();
    let on_start: &dyn Fn(&str) -> Result<(), Error> = if options.engine_words.detach { &let_go } else { &|_| Ok(()) };
    let machine = &options.machine;
    let hands_on = hands_on(options);
    let wanted = Wanted { machine, name, is_named, has_marks: false, hands_on, on_start, metrics: None };
    run_pods(&file, current, &wanted, start)
}

/// What a pod of several cannot have.
fn check(options: &RunOptions) -> Result<(), Error> {
    let refused = [
        ("-t", options.terminal),
        ("--stats", options.stats.is_some()),
        ("--trace", options.trace),
        ("--profile", options.profile.is_some()),
        ("--no-rewrite", options.no_rewrite),
        ("--tickets", options.tickets.is_some()),
    ];
    match refused.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Error::Usage(format!("{option} is for runs without --name and -d"))),
        None => Ok(()),
    }
}

/// Starts this tool again in the background, and waits until the machine starts or cannot.
fn start_in_background() -> Result<u8, Error> {
    let what = "starting in the background";
    let mut command = Command::new(std::env::current_exe().doing(what)?);
    command.args(std::env::args_os().skip(1)).env(BACKGROUND, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // A terminal's keys are not for it.
    command.process_group(0);
    let mut child = command.spawn().doing(what)?;
    let mut told = String::new();
    if let Some(output) = child.stdout.take() {
        output.take(NAME_BYTES_MAX).read_to_string(&mut told).doing(what)?;
    }
    if told.is_empty() {
        let status = child.wait().doing(what)?;
        return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(STATUS_TOOL));
    }
    await_running(told.trim_end());
    std::io::stdout().write_all(told.as_bytes()).doing("printing the name")?;
    Ok(0)
}

/// Waits until the pod of a machine hears what it is told, or is over: what its user types next may be for it.
fn await_running(name: &str) {
    let is_seen = |bytes: &[u8]| {
        let events =
            bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<EventReport>(line).ok());
        events.into_iter().any(|event| AWAITED.contains(&event.event.as_str()))
    };
    let take = |_, bytes: &[u8]| if is_seen(bytes) { Err(std::io::ErrorKind::Other.into()) } else { Ok(()) };
    // A machine that has ended meanwhile is one that nobody waits for.
    let _ = the_machine(Some(name), None)
        .and_then(|machine| Conversation::open(&machine))
        .and_then(|mut conversation| conversation.ask(&Request::Events { follows: true }, Some(SILENCE_LIMIT), take));
}

/// Tells the name, and lets go of the streams of the tool that waits.
fn let_go(name: &str) -> Result<(), Error> {
    let what = "letting go of the terminal";
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").doing(what)?;
    // Without a session of its own it only is more easily ended.
    let _ = rustix::process::setsid();
    println!("{name}");
    std::io::stdout().flush().doing(what)?;
    rustix::stdio::dup2_stderr(&null).doing(what)?;
    rustix::stdio::dup2_stdout(&null).doing(what)
}

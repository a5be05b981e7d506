//! `aegis-oci`: the runtime that engines call (podman by conmon, containerd by its shim for runc), by the runtime
//! specification of OCI. The same binary as `aegis`, by its name or as `aegis oci`.
//!
//! | file | what |
//! |---|---|
//! | `words` | the command line |
//! | `spec`, `rights` | `config.json`, and what of it a machine keeps |
//! | `state` | a container's files |
//! | `monitor` | the process that stands for a container, and those for further programs |
//! | `view` | what an engine sees that enters a container's mount namespace |
//! | `console`, `hooks`, `descriptors` | a terminal for the engine; its hooks; what it left open |
//!
//! Invariants: whoever is named in a pid file is this tool's child, so that the engine that called it inherits it; it
//! alone holds the container's streams; what cannot be kept is an error by name.

mod console;
mod descriptors;
mod errors;
mod hooks;
mod monitor;
mod rights;
mod spec;
mod state;
mod view;
mod words;

pub(crate) use state::rfc_3339;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::process::Signal;
use serde_json::json;

use crate::oci::errors::{OciError, Result, WhileDoing};
use crate::oci::spec::{Process, Spec};
use crate::oci::state::{CREATED, MACHINE, Place, State, Status, default_root, read_bounded, write_whole};
use crate::oci::words::Words;
use crate::options::values::parse_signal;
use crate::remote::client::Machine;
use crate::remote::request::Request;

/// The name by which this binary is the runtime.
const NAME: &str = "aegis-oci";
/// The version of the specification.
const OCI_VERSION: &str = "1.1.0";
/// How long a monitor may live after SIGKILL, and a machine may need before it hears signals.
const KILL_LIMIT: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The runtime's words, if this is a call of it.
pub(crate) fn words(all: &[OsString]) -> Option<&[OsString]> {
    let (program, rest) = all.split_first()?;
    let name = Path::new(program).file_name().unwrap_or_default();
    if name.as_bytes().starts_with(NAME.as_bytes()) {
        return Some(rest);
    }
    rest.split_first().filter(|(verb, _)| *verb == "oci").map(|(_, rest)| rest)
}

/// Does what an engine wants.
pub(crate) fn main(words: &[OsString]) -> ExitCode {
    let words = match Words::read(words.iter().cloned()) {
        Ok(words) => words,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (console, accel) = (words.path("console-socket"), words.value("accel").map(OsString::as_os_str));
    let place = || Place::new(&root(&words), &words.id()?);
    match (words.verb.as_deref(), place()) {
        (Some(monitor::MONITOR), Ok(place)) => return monitor::monitor(&place, console.as_deref(), accel),
        (Some(monitor::PROXY), Ok(place)) => return monitor::proxy(&place, console.as_deref()),
        _ => {}
    }
    match verb(&words) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            log(&words, "error", &error.to_string());
            eprintln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn root(words: &Words) -> PathBuf {
    words.path("root").unwrap_or_else(default_root)
}

/// A line in the engine's log, if it has one. What cannot be logged is said on standard error anyway.
fn log(words: &Words, level: &str, text: &str) {
    let Some(path) = words.path("log") else { return };
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let is_json = words.value("log-format").is_some_and(|format| format == "json");
    let line = if is_json {
        json!({ "level": level, "msg": text, "time": state::rfc_3339(seconds) }).to_string()
    } else {
        format!("time=\"{}\" level={level} msg={text:?}", state::rfc_3339(seconds))
    };
    let file = std::fs::File::options().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}

fn verb(words: &Words) -> Result<u8> {
    for flag in &words.unknown {
        log(words, "warning", &format!("{flag}: passed over"));
    }
    if words.has("version") {
        println!("{NAME} version {}\nspec: {OCI_VERSION}", env!("CARGO_PKG_VERSION"));
        return Ok(0);
    }
    let place = || Place::new(&root(words), &words.id()?);
    match words.verb.as_deref() {
        Some("create") => create(words, &place()?),
        Some("start") => start(&place()?),
        Some("state") => state(&place()?),
        Some("kill") => kill(words, &place()?),
        Some("delete") => delete(words, &place()?),
        Some("exec") => exec(words, &place()?),
        Some("ps") => processes(words, &place()?),
        Some("list") => list(words),
        Some("features") => {
            println!("{:#}", features());
            Ok(0)
        }
        Some(verb @ ("pause" | "resume" | "update" | "events" | "checkpoint" | "restore" | "run" | "spec")) => {
            Err(OciError::Cannot(format!("{verb}: not supported by {NAME}")))
        }
        verb => Err(OciError::Usage(format!(
            "{}: the verbs are create, start, state, kill, delete, exec, ps, list and features",
            verb.unwrap_or("which verb?")
        ))),
    }
}

fn create(words: &Words, place: &Place) -> Result<u8> {
    descriptors::keep_to_oneself();
    let bundle = words.path("bundle").unwrap_or_else(|| ".".into());
    let bundle = std::fs::canonicalize(&bundle).while_doing(|| bundle.display().to_string())?;
    let path = bundle.join("config.json");
    let config = read_bounded(&path)?;
    let spec = Spec::parse(&path, &config)?;
    let plan = spec.plan(&bundle, is_privileged())?;
    let rootfs = spec.root(&bundle)?;
    if !rootfs.is_dir() {
        return Err(OciError::Cannot(format!("root.path {}: no such file or directory", rootfs.display())));
    }
    if !spec.is_sandbox() {
        check_program(&spec, &rootfs)?;
    }
    plan.warnings.iter().for_each(|text| log(words, "warning", text));
    place.make()?;
    let created = begin(words, place, &spec, &bundle, &config);
    if created.is_err() {
        let _ = place.remove();
    }
    created.map(|()| 0)
}

/// Whether files can be given to any user, as a root that is written needs it.
fn is_privileged() -> bool {
    rustix::process::geteuid().is_root()
}

/// Starts the monitor, and runs the hooks that belong to it.
fn begin(words: &Words, place: &Place, spec: &Spec, bundle: &Path, config: &[u8]) -> Result<()> {
    place.write("config.json", config)?;
    place.write("bundle", bundle.as_os_str().as_bytes())?;
    let accel = words.value("accel").map(OsString::as_os_str);
    let console = words.path("console-socket");
    // Held to the end of the creation, whatever ends it: then the monitor looks whether it was made.
    let held = place.hold()?;
    let mut child = monitor::spawn(place, monitor::MONITOR, &place.directory, console.as_deref(), accel)?;
    let mut rest = || {
        monitor::wait_until_ready(place, &mut child)?;
        let state = State::new(spec, bundle, child.id())?;
        place.store(&state)?;
        let shown = place.shown(&state, "creating");
        let hooks = &spec.hooks;
        [&hooks.prestart, &hooks.create_runtime, &hooks.create_container]
            .into_iter()
            .try_for_each(|list| hooks::run(list, &shown))?;
        words.path("pid-file").map_or(Ok(()), |path| write_whole(&path, child.id().to_string().as_bytes()))?;
        place.write(CREATED, b"")
    };
    let outcome = rest();
    drop(held);
    if outcome.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    outcome
}

/// Whether the program is where it is looked for, with links followed as in the container.
fn check_program(spec: &Spec, rootfs: &Path) -> Result<()> {
    let Some(process) = &spec.process else { return Ok(()) };
    let name = process.args.first().map_or("", String::as_str);
    let directory = std::fs::File::open(rootfs).while_doing(|| rootfs.display().to_string())?;
    let is_there = |path: &str| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match openat2(&directory, path.trim_start_matches('/'), flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            Ok(_) => true,
            // Where the host cannot say, the machine will; and what is mounted there is not in the root.
            Err(error) => error != rustix::io::Errno::NOENT || spec.is_mounted(path),
        }
    };
    let found = if name.contains('/') {
        !name.starts_with('/') || is_there(name)
    } else {
        process.path().split(':').any(|directory| is_there(&format!("{directory}/{name}")))
    };
    if found { Ok(()) } else { Err(OciError::NoProgram(name.into())) }
}

fn start(place: &Place) -> Result<u8> {
    let state = place.load()?;
    if place.status(&state) != Status::Created {
        return Err(OciError::State(place.id.clone(), "cannot start a container that is not created"));
    }
    monitor::start(place)?;
    if let Err(error) = hooks::run(&place.spec()?.hooks.poststart, &place.shown(&state, "running")) {
        // The specification wants a warning and no failure.
        eprintln!("{NAME}: {error}");
    }
    Ok(0)
}

fn state(place: &Place) -> Result<u8> {
    let state = place.load()?;
    println!("{:#}", place.shown(&state, place.status(&state).name()));
    Ok(0)
}

fn kill(words: &Words, place: &Place) -> Result<u8> {
    let text = words.rest.get(1).map_or("SIGTERM".into(), |text| text.to_string_lossy());
    let signal = parse_signal(&text).map_err(OciError::Usage)?;
    let state = place.load()?;
    let is_kill = signal == libc::SIGKILL as u8;
    match place.status(&state) {
        Status::Stopped => Err(OciError::State(place.id.clone(), "container not running")),
        _ if is_kill => {
            state.signal(Signal::KILL);
            Ok(0)
        }
        Status::Created => {
            state.signal(Signal::TERM);
            Ok(0)
        }
        Status::Running if state.is_sandbox => {
            state.signal(Signal::TERM);
            Ok(0)
        }
        Status::Running => tell(place, &state, signal),
    }
}

/// Has the machine signal its program, as soon as it can hear.
fn tell(place: &Place, state: &State, signal: u8) -> Result<u8> {
    let machine = Machine::at(MACHINE, place.file(&format!("aegis/{MACHINE}.sock")));
    let limit = Instant::now() + KILL_LIMIT;
    loop {
        let request = Request::Signal { pod: MACHINE.into(), number: signal };
        match machine.tell(&request) {
            Ok(()) => return Ok(0),
            Err(_) if !state.is_alive() => {
                return Err(OciError::State(place.id.clone(), "container not running"));
            }
            Err(error) if Instant::now() >= limit => return Err(error.into()),
            Err(_) => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

fn delete(words: &Words, place: &Place) -> Result<u8> {
    let state = match place.load() {
        Err(OciError::DoesNotExist(_)) if words.has("force") => {
            // What a create that was killed has left.
            place.remove()?;
            return Ok(0);
        }
        state => state?,
    };
    if state.is_alive() {
        if !words.has("force") {
            return Err(OciError::State(place.id.clone(), "cannot delete a container that is not stopped"));
        }
        state.signal(Signal::KILL);
        let limit = Instant::now() + KILL_LIMIT;
        while state.is_alive() {
            if Instant::now() >= limit {
                return Err(OciError::State(place.id.clone(), "it does not end"));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
    if let Ok(spec) = place.spec()
        && let Err(error) = hooks::run(&spec.hooks.poststop, &place.shown(&state, "stopped"))
    {
        eprintln!("{NAME}: {error}");
    }
    place.remove()?;
    Ok(0)
}

fn exec(words: &Words, place: &Place) -> Result<u8> {
    descriptors::keep_to_oneself();
    let state = place.load()?;
    if place.status(&state) != Status::Running || state.is_sandbox {
        return Err(OciError::State(place.id.clone(), "container not running"));
    }
    let bytes = match words.path("process") {
        Some(path) => read_bounded(&path)?,
        None => process_of(place, words.rest.get(1..).unwrap_or_default())?,
    };
    let path = || words.path("process").unwrap_or_default();
    let process: Process =
        serde_json::from_slice(&bytes).map_err(|error| OciError::Document(path(), error.to_string()))?;
    process.exec_words(MACHINE)?;
    // Until it can hear.
    tell(place, &state, 0)?;
    // Each proxy has a folder of its own, so that several do not take each other's description.
    let own = Place { id: format!("{}.exec", std::process::id()), directory: place.file(&own_name()) };
    own.make()?;
    let outcome = exec_in(words, place, &own, &bytes);
    if !matches!(outcome, Ok(None)) {
        let _ = own.remove();
    }
    outcome.map(|status| status.unwrap_or(0))
}

fn own_name() -> String {
    format!("{}.exec", std::process::id())
}

/// Starts the proxy; its status, or nothing if it is left alone.
fn exec_in(words: &Words, place: &Place, own: &Place, bytes: &[u8]) -> Result<Option<u8>> {
    monitor::leave_process(own, bytes)?;
    let console = words.path("console-socket");
    let mut child = monitor::spawn(own, monitor::PROXY, &place.directory, console.as_deref(), None)?;
    if let Some(path) = words.path("pid-file") {
        write_whole(&path, child.id().to_string().as_bytes())?;
    }
    if words.has("detach") {
        return Ok(None);
    }
    let status = child.wait().while_doing(|| "waiting for the program".into())?;
    let of_signal = || std::os::unix::process::ExitStatusExt::signal(&status).map_or(1, |signal| 128 + signal);
    Ok(Some(status.code().unwrap_or_else(of_signal) as u8))
}

/// The description of a further program that was written on the command line: what the container's own has, but for
/// its words.
fn process_of(place: &Place, words: &[OsString]) -> Result<Vec<u8>> {
    let path = place.file("config.json");
    let mut config: serde_json::Value =
        serde_json::from_slice(&read_bounded(&path)?).map_err(|error| OciError::Document(path, error.to_string()))?;
    let mut process = config["process"].take();
    process["args"] = words.iter().map(|word| word.to_string_lossy()).collect();
    process["terminal"] = false.into();
    Ok(process.to_string().into_bytes())
}

fn processes(words: &Words, place: &Place) -> Result<u8> {
    let state = place.load()?;
    let pids: Vec<u32> = if state.is_alive() { vec![state.pid] } else { Vec::new() };
    if words.value("format").is_some_and(|format| format == "json") {
        println!("{}", json!(pids));
    } else {
        println!("PID");
        pids.iter().for_each(|pid| println!("{pid}"));
    }
    Ok(0)
}

fn list(words: &Words) -> Result<u8> {
    let root = root(words);
    let entries = std::fs::read_dir(&root).map(|entries| entries.filter_map(std::io::Result::ok).collect());
    let entries: Vec<std::fs::DirEntry> = entries.unwrap_or_default();
    let mut shown = Vec::new();
    for entry in entries {
        let Ok(place) = Place::new(&root, &entry.file_name().to_string_lossy()) else { continue };
        if let Ok(state) = place.load() {
            shown.push(place.shown(&state, place.status(&state).name()));
        }
    }
    if words.value("format").is_some_and(|format| format == "json") {
        println!("{}", json!(shown));
        return Ok(0);
    }
    println!("{:40} {:8} STATUS", "ID", "PID");
    for it in &shown {
        println!(
            "{:40} {:8} {}",
            it["id"].as_str().unwrap_or_default(),
            it["pid"],
            it["status"].as_str().unwrap_or_default()
        );
    }
    Ok(0)
}

/// What the runtime knows, as the specification's features document.
fn features() -> serde_json::Value {
    json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": OCI_VERSION,
        "hooks": ["prestart", "createRuntime", "createContainer", "poststart", "poststop"],
        "mountOptions": ["bind", "rbind", "ro", "rw"],
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "uts"],
            "capabilities": [],
            "cgroup": { "v1": false, "v2": false, "systemd": false, "systemdUser": false, "rdma": false },
            "seccomp": { "enabled": false },
            "apparmor": { "enabled": false },
            "selinux": { "enabled": false },
        },
        "annotations": { "aegis.version": env!("CARGO_PKG_VERSION") },
    })
}

#[cfg(test)]
#[path = "oci_tests.rs"]
mod tests;

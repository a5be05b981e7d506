//! The processes that stand on the host for what runs in a machine: one for a container, one for each further program.
//!
//! An engine knows a container by a process that is its descendant, holds the container's streams, takes its signals
//! and ends with its exit status. So `create` starts this tool again as the *monitor*, which waits for `start` and then
//! runs the machine as `aegis run` does; `exec` starts it as a *proxy*, which does what `aegis exec` does.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use aegis_launch::errors::STATUS_TOOL;

use crate::oci::console;
use crate::oci::errors::{OciError, Result, WhileDoing};
use crate::oci::spec::{HostNaming, Network, Plan};
use crate::oci::state::{MACHINE, Place};
use crate::oci::view::{self, Bound};
use crate::options::{Command as Verb, Parsed, parse};
use crate::relay::signals::Signals;
use crate::remote::{exec, socket};
use crate::verb::run::run_attended;

/// Verbs of the processes here, which nobody types.
pub(crate) const MONITOR: &str = "__monitor";
pub(crate) const PROXY: &str = "__proxy";
/// The longest time that a monitor may need for what comes before `start`.
const READY_LIMIT: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Of the working thread: as much as a main thread usually has.
const STACK_BYTES: usize = 8 << 20;
/// Files in the place.
const START_SOCKET: &str = "start";
const FAILURE: &str = "failure";
const PROCESS: &str = "process.json";

/// What is known before `start`.
struct Prepared {
    plan: Plan,
    is_sandbox: bool,
    /// What those see who enter the container's mount namespace, if there is one.
    shown: Option<(PathBuf, Vec<Bound>)>,
}

/// Starts this tool again for a container, with the streams of this process.
///
/// `runtime` has the machine's socket.
pub(crate) fn spawn(
    place: &Place,
    verb: &str,
    runtime: &Path,
    console: Option<&Path>,
    accel: Option<&OsStr>,
) -> Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("oci").arg("--root").arg(place.directory.parent().unwrap_or(Path::new("/")));
    if let Some(console) = console {
        command.arg("--console-socket").arg(console);
    }
    if let Some(accel) = accel {
        command.arg("--accel").arg(accel);
    }
    command.arg(verb).arg(&place.id).env("XDG_RUNTIME_DIR", runtime);
    command.spawn().while_doing(|| "starting the container's process".into())
}

/// Waits until a monitor is ready for `start`.
///
/// # Errors
/// What it said instead.
pub(crate) fn wait_until_ready(place: &Place, child: &mut Child) -> Result<()> {
    let limit = Instant::now() + READY_LIMIT;
    loop {
        if place.file(START_SOCKET).exists() {
            return Ok(());
        }
        let ended = child.try_wait().while_doing(|| "waiting for the container's process".into())?;
        if ended.is_some() || Instant::now() >= limit {
            let _ = child.kill();
            let said = std::fs::read_to_string(place.file(FAILURE)).unwrap_or_default();
            let text = if said.is_empty() { "the container's process ended and said nothing".into() } else { said };
            return Err(OciError::Monitor(text));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Tells a monitor to start its program.
///
/// # Errors
/// It cannot; or it is gone.
pub(crate) fn start(place: &Place) -> Result<()> {
    let path = place.file(START_SOCKET);
    let what = || format!("starting {}", place.id);
    let mut stream = socket::connect(&path).while_doing(what)?;
    stream.set_read_timeout(Some(READY_LIMIT)).while_doing(what)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).while_doing(what)?;
    if answer == "ok" { Ok(()) } else { Err(OciError::Monitor(answer)) }
}

/// A container's process: from here to its exit status. Its main thread is there for those who enter the container's
/// mount namespace (`view`); another one does the work.
pub(crate) fn monitor(place: &Place, console: Option<&Path>, accel: Option<&OsStr>) -> ExitCode {
    let outcome = match prepare(place, console) {
        Ok(prepared) => attend(place, prepared, accel),
        Err(error) => {
            note_failure(place, &error);
            Err(error)
        }
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("aegis-oci: {error}");
            ExitCode::from(STATUS_TOOL)
        }
    }
}

fn note_failure(place: &Place, error: &OciError) {
    let _ = place.write(FAILURE, error.to_string().as_bytes());
}

/// Starts the working thread, goes where an engine finds the container's files, and waits there.
fn attend(place: &Place, prepared: Prepared, accel: Option<&OsStr>) -> Result<u8> {
    std::thread::scope(|scope| {
        let (to_worker, worker_hears) = mpsc::channel();
        let (to_main, main_hears) = mpsc::channel();
        let shown = prepared.shown.clone();
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || {
            let outcome = match worker_hears.recv() {
                Ok(()) => work(place, prepared, accel, || {
                    let _ = to_main.send(());
                    // The main thread has ended if nothing comes, and with it this process.
                    let _ = worker_hears.recv();
                }),
                Err(_) => Err(OciError::Usage("the container's mount namespace cannot be made".into())),
            };
            outcome.inspect_err(|error| note_failure(place, error))
        });
        let worker = worker.while_doing(|| "starting a thread".into())?;
        if let Some((rootfs, bound)) = &shown {
            view::enter(rootfs, bound).while_doing(|| "making the container's mount namespace".into())?;
        }
        let _ = to_worker.send(());
        // Until the machine is about to run, a signal ends this process; then signals are the machine's.
        let signals = main_hears.recv().ok().map(|()| Signals::block());
        if let Some(Err(error)) = signals {
            return Err(OciError::Io("preparing for signals".into(), error));
        }
        let _ = to_worker.send(());
        worker.join().unwrap_or_else(|_| Err(OciError::Usage("the container's thread panicked".into())))
    })
}

/// What the working thread does; it keeps the host's mount namespace. `is_about_to_run` is called before the machine
/// is, and not where there is none.
fn work(place: &Place, prepared: Prepared, accel: Option<&OsStr>, is_about_to_run: impl FnOnce()) -> Result<u8> {
    let listener = listen(place)?;
    if !place.wait_for_creation()? {
        place.remove()?;
        return Err(OciError::State(place.id.clone(), "its creation was given up"));
    }
    let (mut stream, _) = listener.accept().while_doing(|| "waiting for start".into())?;
    drop(listener);
    let _ = std::fs::remove_file(place.file(START_SOCKET));
    place.write("started", b"")?;
    stream.write_all(b"ok").while_doing(|| "answering start".into())?;
    drop(stream);
    if prepared.is_sandbox {
        rest();
    }
    is_about_to_run();
    run(prepared.plan, accel)
}

/// Appears at `start` when somebody listens there.
fn listen(place: &Place) -> Result<UnixListener> {
    let (path, hidden) = (place.file(START_SOCKET), place.file("s"));
    let what = || path.display().to_string();
    let listener = socket::bind(&hidden).while_doing(what)?;
    std::fs::rename(&hidden, &path).while_doing(what)?;
    Ok(listener)
}

/// What comes before `start`: the session, the network's place, the terminal.
fn prepare(place: &Place, console: Option<&Path>) -> Result<Prepared> {
    rustix::process::setsid().while_doing(|| "becoming a session".into())?;
    let spec = place.spec()?;
    let state_bundle = std::fs::read_to_string(place.file("bundle")).while_doing(|| "reading the bundle".into())?;
    let mut plan = spec.plan(Path::new(&state_bundle), super::is_privileged())?;
    if let Network::Joined(path) = &plan.network {
        join(path, "network", LinkNameSpaceType::Network)?;
    }
    match spec.host_naming() {
        HostNaming::Joined(path) => {
            join(path, "uts", LinkNameSpaceType::HostNameAndNISDomainName)?;
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
            let name = name.while_doing(|| "reading the pod's host name".into())?;
            plan.words.splice(2..2, ["--hostname".into(), name.trim_end().into()]);
        }
        HostNaming::Own(name) if super::is_privileged() => {
            view::name_host(name).while_doing(|| format!("hostname: {name}"))?;
        }
        HostNaming::Own(_) | HostNaming::Plain => {}
    }
    match (plan.has_terminal, console) {
        (true, Some(socket)) => console::take(socket)?,
        (true, None) => return Err(OciError::Usage("process.terminal wants a --console-socket".into())),
        (false, _) => {}
    }
    let bundle = Path::new(&state_bundle);
    let shown = super::is_privileged().then(|| Ok::<_, OciError>((spec.root(bundle)?, spec.bound(bundle))));
    Ok(Prepared { plan, is_sandbox: spec.is_sandbox(), shown: shown.transpose()? })
}

fn join(path: &Path, kind: &str, namespace: LinkNameSpaceType) -> Result<()> {
    let what = || format!("linux.namespaces: {kind}: {}", path.display());
    let file = std::fs::File::open(path).while_doing(what)?;
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(namespace)).while_doing(what)
}

/// Holds a pod's namespaces until a signal ends it.
fn rest() -> ! {
    loop {
        std::thread::park();
    }
}

fn run(plan: Plan, accel: Option<&OsStr>) -> Result<u8> {
    let mut words = plan.words;
    if let Some(accel) = accel {
        words.splice(2..2, ["--accel".into(), accel.to_owned()]);
    }
    match parse(words) {
        Ok(Parsed::Command(Verb::Run(mut options))) => {
            options.pod.image.numbers = Some(plan.identity);
            options.pod.rights = plan.rights;
            Ok(run_attended(&options, Instant::now(), Some(MACHINE))?)
        }
        Ok(_) => Err(OciError::Usage("the configuration asks for nothing that runs".into())),
        Err(text) => Err(OciError::Usage(text)),
    }
}

/// A further program's process: from here to its exit status.
pub(crate) fn proxy(place: &Place, console: Option<&Path>) -> ExitCode {
    let outcome = rustix::process::setsid()
        .while_doing(|| "becoming a session".into())
        .and_then(|_| take_process(place))
        .and_then(|process| {
            match (process.terminal, console) {
                (true, Some(socket)) => console::take(socket)?,
                (true, None) => return Err(OciError::Usage("process.terminal wants a --console-socket".into())),
                (false, _) => {}
            }
            let words: Vec<OsString> = process.exec_words(MACHINE)?;
            match parse(words) {
                Ok(Parsed::Command(Verb::Exec(mut options))) => {
                    options.groups = process.user.identity()?.groups;
                    Ok(exec::exec(&options)?)
                }
                Ok(_) => Err(OciError::Usage("the process asks for nothing that runs".into())),
                Err(text) => Err(OciError::Usage(text)),
            }
        });
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("aegis-oci: {error}");
            ExitCode::from(STATUS_TOOL)
        }
    }
}

/// Leaves the description of a further program where its proxy finds it; the answer is its place.
pub(crate) fn leave_process(place: &Place, bytes: &[u8]) -> Result<()> {
    place.write(PROCESS, bytes)
}

fn take_process(place: &Place) -> Result<crate::oci::spec::Process> {
    let path = place.file(PROCESS);
    let bytes = crate::oci::state::read_bounded(&path)?;
    place.remove()?;
    serde_json::from_slice(&bytes).map_err(|error| OciError::Document(path, error.to_string()))
}

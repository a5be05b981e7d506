//! Makes a session's process, in two steps: what needs no waiting where the host's order arrives, and the rest, which
//! walks the name space and reads files, by the process's own thread.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use aegis_abi::upcall::UpcallFrame;
use aegis_link::config::{Config, Flags};
use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::location::Location;
use exos::fs::metadata::Timestamp;
use exos::fs::namespace::{Access as OpenAccess, OpenHow};
use exos::fs::open_file::{OpenFile, OpenRequest};
use exos::fs::permission::Owner;
use exos::fs::pipe::PipeEnd;
use exos::fs::terminal::job_control::TerminalCaller;
use exos::fs::terminal::modes::{Terminal, WindowSize};
use exos::fs::terminal::tty::Tty;
use exos::fs::walk::LookupFlags;
use exos::load::mapping_base;
use exos::sync::Mutex;
use exos::task::limits::Resource;
use exos::task::signal::SignalSet;

use super::News;
use super::session::{Ends, Session};
use crate::file::files::ProcessFiles;
use crate::file::paths::Access;
use crate::host::rights;
use crate::task::caller::Caller;
use crate::task::exec::{ExecRequest, StartError, prepare, search_path, start as start_program};
use crate::task::memory::{Space, space_limits};
use crate::task::process::{Birth, Ending, NO_PARENT, Process, Thread};
use crate::task::system::{System, ThreadStart};

/// Status of a failure that is not the program's.
const STATUS_TOOL: u8 = 125;

/// What a session's process will be.
pub(super) struct Start {
    config: Config,
    /// The process's ends of its streams, until it has them.
    streams: Mutex<Option<Streams>>,
    /// Why there is no program: status and text.
    pub(super) failure: Mutex<Option<(u8, String)>>,
}

enum Streams {
    /// Standard input if it is the caller's, output and errors.
    Pipes(Option<Arc<Description>>, [Arc<Description>; 2]),
    Terminal(Arc<Tty>),
}

/// Processes that were made and have not begun, by number.
#[derive(Default)]
pub(super) struct Starts {
    pub(super) waiting: Mutex<BTreeMap<u32, Arc<Start>>>,
}

impl Starts {
    /// Makes a process as a description says; its thread is ready to run. The error is a text for the user.
    pub(super) fn make(
        &self,
        system: &Arc<System>,
        news: &Arc<News>,
        bytes: &[u8],
    ) -> core::result::Result<Session, String> {
        let config = Config::decode(bytes).map_err(|error| format!("{error}"))?;
        let now = Timestamp::from_ns(system.realtime_ns());
        let no_memory = |error: Errno| format!("the process cannot be made ({error:?})");
        let (ends, streams) = streams_of(system, &config, now).map_err(no_memory)?;
        let pid = system.processes.take_number().map_err(no_memory)?;
        let process = new_process(system, pid, &config);
        let thread =
            Arc::new(Thread::new(pid, &process, process.identities.lock().clone(), system.scheduler.new_task(None)));
        let (streams, failure) = (Mutex::new(Some(streams)), Mutex::default());
        let start = Arc::new(Start { config, streams, failure });
        let session = Session::new(process.clone(), start.clone(), ends, news);
        process.threads.lock().push(thread.clone());
        system.processes.add(process.clone());
        system.listing.add_process(process.clone(), thread.clone());
        self.waiting.lock().insert(pid, start);
        // A frame of no program: a processor that runs it first comes to `enter`.
        let (frame, thread_start) = (UpcallFrame::default(), ThreadStart { fs_base: Some(0) });
        if let Err(error) = system.platform.start_thread(&process, &thread, &frame, thread_start) {
            self.waiting.lock().remove(&pid);
            process.threads.lock().clear();
            system.listing.remove_process(pid);
            system.processes.remove(pid);
            return Err(no_memory(error));
        }
        Ok(session)
    }

    /// As [`super::Sessions::enter`].
    pub(super) fn enter(&self, caller: &Caller<'_>, frame: &mut UpcallFrame) {
        let start = self.waiting.lock().remove(&caller.process.pid);
        let outcome = match &start {
            Some(start) => start.load(caller, frame),
            None => Err((STATUS_TOOL, String::from("nobody knows what this process is for"))),
        };
        if let Err((status, text)) = outcome {
            if let Some(start) = start {
                *start.failure.lock() = Some((status, text));
            }
            caller.process.end(Ending::Exited(status));
        }
    }
}

fn new_process(system: &Arc<System>, pid: u32, config: &Config) -> Arc<Process> {
    let namespace = &system.files.namespace;
    let process = Process::new(Birth {
        pid,
        parent: NO_PARENT,
        group: pid,
        session: pid,
        memory: system.empty_space.clone(),
        files: ProcessFiles::new(namespace, namespace.root().clone()),
        identities: rights::identities(config),
        start_ns: system.kernel.now_ns(),
    });
    rights::settle(&process, &config.rights);
    // Programs see it as an orphan's.
    process.show_parent();
    Arc::new(process)
}

/// Both sides of the streams.
fn streams_of(system: &Arc<System>, config: &Config, now: Timestamp) -> Result<(Ends, Streams)> {
    if config.flags.contains(Flags::TERMINAL) {
        let master = system.files.terminals.open_master(config.uid, now)?;
        let tty = master.terminal_side().map(|side| side.tty().clone()).ok_or(Errno::EIO)?;
        tty.set_locked(false);
        tty.set_window_size(WindowSize {
            row_count: config.terminal_rows,
            column_count: config.terminal_columns,
            ..WindowSize::default()
        });
        let master: Arc<dyn OpenFile> = master;
        let ends = Ends { input: Some(master.clone()), outputs: [Some(master.clone()), None], terminal: Some(master) };
        return Ok((ends, Streams::Terminal(tty)));
    }
    let owner = Owner { uid: config.uid, gid: config.gid };
    let (input, their_input) = match config.flags.contains(Flags::INPUT) {
        true => {
            let (reader, writer) = system.files.namespace.pipe(StatusFlags::empty(), owner, now);
            (Some(own_end(&writer, false)?), Some(reader))
        }
        false => (None, None),
    };
    let output = || -> Result<(Arc<dyn OpenFile>, Arc<Description>)> {
        let (reader, writer) = system.files.namespace.pipe(StatusFlags::empty(), owner, now);
        Ok((own_end(&reader, true)?, writer))
    };
    let ((output, their_output), (errors, their_errors)) = (output()?, output()?);
    let ends = Ends { input, outputs: [Some(output), Some(errors)], terminal: None };
    Ok((ends, Streams::Pipes(their_input, [their_output, their_errors])))
}

/// An end of a pipe that has no description.
fn own_end(description: &Description, read: bool) -> Result<Arc<dyn OpenFile>> {
    let pipe = description.pipe().ok_or(Errno::EIO)?;
    Ok(PipeEnd::open_unnamed(pipe, OpenRequest { read, write: !read, non_blocking: true }))
}

impl Start {
    /// Gives the process its streams and its program.
    fn load(&self, caller: &Caller<'_>, frame: &mut UpcallFrame) -> core::result::Result<(), (u8, String)> {
        let Caller { system, process, thread, .. } = caller;
        let config = &self.config;
        self.connect(system, process)
            .map_err(|error| (STATUS_TOOL, format!("the standard streams cannot be opened ({error:?})")))?;
        let access = Access::for_process(system, process);
        let current = self.working_directory(system, &access).map_err(|error| {
            let path = config.working_directory.escape_ascii();
            (STATUS_TOOL, format!("the working directory {path} cannot be used ({error:?})"))
        })?;
        drop(process.files.set_current(current.clone()));
        let path = search_path(&access, &current, &config.program, &config.environment);
        let (arguments, environment) = (config.arguments.clone(), config.environment.clone());
        let name = config.program.escape_ascii();
        let found = access.find(&current, &path, true, false).map_err(StartError::Open);
        let request = ExecRequest { path, is_path_lost: false, arguments, environment };
        let prepared = found
            .and_then(|found| prepare(system, &access, &current, found, request))
            .map_err(|error| (error.exit_status(), format!("{name}: {}", error.text())))?;
        let no_memory = |error: &dyn core::fmt::Display| (STATUS_TOOL, format!("{name}: {error}"));
        let limits = process.limits.lock().clone();
        let base = mapping_base(limits.soft(Resource::Stack), 0);
        let program = Some(prepared.identity());
        let space = Space::create(&system.kernel, &system.shared, base, space_limits(&limits), program);
        let space = Arc::new(space.map_err(|_| no_memory(&"no memory for it"))?);
        drop(process.replace_space(space.clone()));
        system.platform.enter_space(&space);
        start_program(system, process, thread, prepared, frame).map_err(|error| no_memory(&error))
    }

    fn working_directory(&self, system: &System, access: &Access) -> Result<Location> {
        let namespace = &system.files.namespace;
        namespace.lookup(&access.caller(), namespace.root(), &self.config.working_directory, LookupFlags::DIRECTORY)
    }

    /// Descriptors 0, 1 and 2.
    pub(super) fn connect(&self, system: &System, process: &Process) -> Result<()> {
        let access = Access::for_process(system, process);
        let namespace = &system.files.namespace;
        let open = |path: &[u8], how: &OpenHow| namespace.open(&access.caller(), namespace.root(), path, how);
        let descriptions = match self.streams.lock().take().ok_or(Errno::EIO)? {
            Streams::Pipes(input, [output, errors]) => {
                let input = input.map_or_else(|| open(b"/dev/null", &OpenHow::READ), Ok)?;
                [input, output, errors]
            }
            Streams::Terminal(tty) => {
                let leader = TerminalCaller {
                    group: process.pid,
                    session: process.pid,
                    is_leader: true,
                    is_root: false,
                    deaf_to: SignalSet::EMPTY,
                };
                tty.take_control(&leader, None, false)?;
                let how = OpenHow { access: OpenAccess::ReadWrite, ..OpenHow::READ };
                let slave = open(format!("/dev/pts/{}", tty.index()).as_bytes(), &how)?;
                [slave.clone(), slave.clone(), slave]
            }
        };
        for description in descriptions {
            process.files.add(description, false)?;
        }
        Ok(())
    }
}

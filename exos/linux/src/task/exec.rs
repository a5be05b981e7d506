//! Replacing what a process runs: the first program of a run, and `execve`.
//!
//! Two steps, as in `exos::load`: [`prepare`] finds the file, follows `#!` lines and checks headers while the old
//! program is whole; [`start`] gives the old memory up, and cannot go back.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use aegis_abi::upcall::{USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame};
use exos::error::{Errno, Result};
use exos::fs::location::Location;
use exos::fs::metadata::FileKind;
use exos::fs::namespace::{OpenFlags, OpenHow};
use exos::fs::page::{MappedFile, RunningFile};
use exos::fs::permission::AccessMask;
use exos::load::script::{parse_script, script_arguments};
use exos::load::stack::StartFacts;
use exos::load::{LoadError, LoadRequest, Program, ProgramFile, Shifts, read_file};
use exos::mem::FileIdentity;
use exos::task::signal::{Signal, SignalInfo};

use crate::abi::linux::MINSIGSTKSZ;
use crate::file::paths::Access;
use crate::task::memory::DUMPABLE_BY_USER;
use crate::task::process::{ADDR_NO_RANDOMIZE, Image, Process, Thread};
use crate::task::profile;
use crate::task::signal_frame::AlternateStack;
use crate::task::system::System;

/// `#!` lines that may follow each other.
const SCRIPT_DEPTH_MAX: usize = 4;
/// Bytes of a file that are looked at for `#!`.
const HEAD_BYTES: u64 = 256;
/// Longest thread name.
const NAME_BYTES_MAX: usize = 15;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The path, as given; `/dev/fd/N` for a file that is a descriptor.
    pub path: Vec<u8>,
    /// The path is not there any more when the program runs, so that an interpreter could not open it.
    pub is_path_lost: bool,
    /// Words of the command line (`argv`).
    pub arguments: Vec<Vec<u8>>,
    /// Lines `NAME=VALUE` (`envp`).
    pub environment: Vec<Vec<u8>>,
}

/// Why it cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The file cannot be found or opened.
    Open(Errno),
    /// It is there but no program.
    Load(LoadError),
    /// A `#!` line that is not good, or too many of them.
    Script(Errno),
}

impl StartError {
    /// What `execve` answers.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Open(errno) | Self::Script(errno) => *errno,
            Self::Load(error) => error.errno(),
        }
    }

    /// For a person: what is wrong with the file.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Open(Errno::ENOENT | Errno::ENOTDIR) => String::from("not found"),
            Self::Open(Errno::EACCES) => {
                String::from("cannot be executed (no execute permission, or not a regular file)")
            }
            Self::Open(Errno::EISDIR) => String::from("is a directory"),
            Self::Open(errno) => alloc::format!("cannot be opened ({errno:?})"),
            Self::Script(_) => String::from("its #! line names no usable interpreter"),
            Self::Load(error) => alloc::format!("{error}"),
        }
    }

    /// The status that a shell would give: 127 not found, 126 there but not executable, 125 a failure of ours.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Open(Errno::ENOENT | Errno::ENOTDIR) => 127,
            Self::Open(Errno::EIO | Errno::ENOMEM) | Self::Load(LoadError::NoMemory) => 125,
            _ => 126,
        }
    }
}

/// A program that can be started.
pub struct Prepared {
    program: Program,
    location: Location,
    running: RunningFile,
    request: ExecRequest,
    /// The process that starts it may read all that it consists of.
    is_readable: bool,
}

impl Prepared {
    /// Whether arguments and environment fit, to be asked before the old program is given up.
    ///
    /// # Errors
    /// `E2BIG`, `ENOMEM`.
    pub fn check_strings(&self, stack_limit_bytes: u64) -> Result<()> {
        let ExecRequest { path, arguments, environment, .. } = &self.request;
        Program::check_strings(arguments, environment, path, stack_limit_bytes).map_err(|error| error.errno())
    }

    /// The file that will run.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.program.identity()
    }
}

/// Checks a program that was found at `found`, following `#!` lines. Interpreters are looked for from `start`.
pub fn prepare(
    system: &System,
    access: &Access,
    start: &Location,
    found: Location,
    request: ExecRequest,
) -> core::result::Result<Prepared, StartError> {
    let mut request = request;
    let mut found = found;
    // The program's own name stays that of the script (AT_EXECFN, the thread's name).
    let name = request.path.clone();
    for _ in 0..=SCRIPT_DEPTH_MAX {
        let (file, location) = open_program(access, &found).map_err(StartError::Open)?;
        // Of a script too, which must not be written while it is looked at.
        let running = RunningFile::begin(location.inode()).map_err(StartError::Open)?;
        let Some(line) = script_line(system, &file).map_err(StartError::Open)? else {
            let may_read = |location: &Location| access.caller().check(location, AccessMask::READ).is_ok();
            let mut is_readable = may_read(&location);
            let mut open = |path: &[u8]| {
                let (file, location) = find_program(access, start, path)?;
                is_readable &= may_read(&location);
                Ok(file)
            };
            let program = Program::open((&system.pool, &system.images), file, &mut open).map_err(StartError::Load)?;
            return Ok(Prepared {
                program,
                location,
                running,
                request: ExecRequest { path: name, ..request },
                is_readable,
            });
        };
        if request.is_path_lost {
            return Err(StartError::Open(Errno::ENOENT));
        }
        let line = parse_script(&line).unwrap_or(Err(Errno::ENOEXEC)).map_err(StartError::Script)?;
        found = access.find(start, &line.interpreter, true, false).map_err(StartError::Open)?;
        request.arguments = script_arguments(&line, &request.path, &request.arguments);
        request.path = line.interpreter;
    }
    Err(StartError::Script(Errno::ELOOP))
}

/// Finds a file and opens it to run it.
fn find_program(access: &Access, start: &Location, path: &[u8]) -> Result<(ProgramFile, Location)> {
    open_program(access, &access.find(start, path, true, false)?)
}

/// Opens a file to run it.
fn open_program(access: &Access, location: &Location) -> Result<(ProgramFile, Location)> {
    let how = OpenHow { flags: OpenFlags::EXECUTE, ..OpenHow::READ };
    match location.inode().kind() {
        FileKind::Regular => {}
        FileKind::Symlink => return Err(Errno::ELOOP),
        _ => return Err(Errno::EACCES),
    }
    let description = access.namespace().open_at(&access.caller(), location.clone(), &how)?;
    let location = description.location().clone();
    let length_bytes = description.metadata().size_bytes;
    let source = MappedFile::new(location.clone(), access.caller().root.clone())?;
    Ok((ProgramFile { source, length_bytes }, location))
}

/// The first bytes of a script; `None` if the file is none.
fn script_line(system: &System, file: &ProgramFile) -> Result<Option<Vec<u8>>> {
    let length = file.length_bytes.min(HEAD_BYTES) as usize;
    if length < 2 {
        return Ok(None);
    }
    let mut head = alloc::vec![0; length];
    read_file(&system.pool, &file.source, 0, &mut head)?;
    Ok(head.starts_with(b"#!").then_some(head))
}

/// Gives the old program up and makes `frame` the new one's first state. After an error the process has no program
/// any more.
pub fn start(
    system: &Arc<System>,
    process: &Process,
    thread: &Thread,
    prepared: Prepared,
    frame: &mut UpcallFrame,
) -> core::result::Result<(), LoadError> {
    let Prepared { program, location, running, request, is_readable } = prepared;
    let mut random = [0; 24];
    system.kernel.random(&mut random);
    let (facts, places) = random.split_at(16);
    let facts = start_facts(system, process, facts);
    let load_request = LoadRequest {
        arguments: &request.arguments,
        environment: &request.environment,
        executable: &request.path,
        facts,
        vdso: system.vdso.as_ref(),
        shifts: shifts(process, places),
    };
    let loaded = {
        let memory = process.space();
        let mut space = memory.lock();
        program.load(&mut space, &load_request)?
    };
    profile::tell(system, &process.space(), 0, u64::MAX);
    process.files.close_for_exec();
    let base_name = request.path.rsplit(|byte| *byte == b'/').next().unwrap_or(&request.path);
    *thread.name.lock() = base_name[..base_name.len().min(NAME_BYTES_MAX)].to_vec();
    let (root, generation) = (process.files.root(), system.files.namespace.generation());
    *process.image.lock() = Arc::new(Image {
        executable: location.path_from(&root),
        location: Some(location),
        named: Some((root, generation)),
        running: Some(Arc::new(running)),
        arguments: request.arguments,
        environment: request.environment,
        auxiliary: loaded.auxiliary,
        start_stack: loaded.stack_pointer,
    });
    // Behind the image: a process that may look into the new program finds nothing of the old one.
    forget_old_program(system, process, thread, is_readable);
    *frame = UpcallFrame {
        rip: loaded.entry,
        rsp: loaded.stack_pointer,
        rflags: 0x202,
        cs: USER_CODE_SELECTOR,
        ss: USER_STACK_SELECTOR,
        ..UpcallFrame::default()
    };
    system.platform.set_fs_base(0);
    system.platform.reset_vector();
    Ok(())
}

/// What `execve` takes from a process besides its memory. Others of its user may look into the new program, unless it
/// runs with another's rights or its file is not theirs to read.
fn forget_old_program(system: &System, process: &Process, thread: &Thread, is_readable: bool) {
    process.traps.clear();
    process.signals.lock().dispositions.reset_for_exec();
    process.timers.lock().clear();
    process.was_key_asked.store(false, Ordering::Relaxed);
    let is_itself = {
        let identities = thread.identities.lock();
        [identities.uid, identities.gid].iter().all(|[real, effective, ..]| real == effective)
    };
    let is_open = is_readable && is_itself;
    process.space().set_dumpable(if is_open { DUMPABLE_BY_USER } else { system.listing.dumpable_of_changed() });
    let _ = thread.change_identities(system, process, |identities| {
        for identity in [&mut identities.uid, &mut identities.gid] {
            let [_, effective, saved, for_files] = identity;
            (*saved, *for_files) = (*effective, *effective);
        }
        let [real, effective, ..] = identities.uid;
        identities.capabilities.follow_execution(real, effective);
        Ok(())
    });
    if process.trace.is_on() {
        if is_open {
            process.raise(Signal::TRAP, SignalInfo::default());
        } else {
            process.trace.end();
        }
    }
    *thread.stack.lock() = AlternateStack::default();
    *thread.clear_tid_address.lock() = 0;
    *thread.robust_list.lock() = (0, 0);
}

/// What the auxiliary vector tells; `bytes` are 16 random ones.
fn start_facts(system: &System, process: &Process, bytes: &[u8]) -> StartFacts {
    let identities = process.identities.lock();
    let mut random = [0; 16];
    random.copy_from_slice(bytes);
    let [_, _, _, processor_features] = system.platform.cpuid(1, 0);
    let (_, vector_bytes) = system.platform.vector_format();
    StartFacts {
        identity: [identities.uid[0], identities.uid[1], identities.gid[0], identities.gid[1]],
        processor_features,
        has_fsgsbase: true,
        signal_stack_bytes: MINSIGSTKSZ.max(vector_bytes as u64 + 1024),
        random,
        ..StartFacts::default()
    }
}

/// Where things go, within the limits of `Shifts`; `bytes` are eight random ones, of which each bit is used once.
fn shifts(process: &Process, bytes: &[u8]) -> Shifts {
    if process.persona.load(Ordering::Relaxed) & ADDR_NO_RANDOMIZE != 0 {
        return Shifts { image_pages: 0, stack_pages: 0, heap_pages: 0 };
    }
    let word = crate::abi::bytes::get::u64(bytes, 0);
    Shifts {
        image_pages: word & ((1 << 28) - 1),
        stack_pages: word >> 28 & ((1 << 22) - 1),
        heap_pages: word >> 50 & ((1 << 13) - 1),
    }
}

/// Finds a program name without a slash in the directories of `PATH`; a path stays as it is.
#[must_use]
pub fn search_path(access: &Access, start: &Location, name: &[u8], environment: &[Vec<u8>]) -> Vec<u8> {
    if name.contains(&b'/') || name.is_empty() {
        return name.to_vec();
    }
    let path = environment.iter().find_map(|entry| entry.strip_prefix(b"PATH="));
    let path = path.unwrap_or(b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/sys/fs/lottery");
    let mut refused = None;
    for directory in path.split(|byte| *byte == b':') {
        let directory = if directory.is_empty() { b".".as_slice() } else { directory };
        let candidate = [directory, b"/", name].concat();
        match find_program(access, start, &candidate) {
            Ok(_) => return candidate,
            Err(Errno::EACCES) => refused = refused.or(Some(candidate)),
            Err(_) => {}
        }
    }
    refused.unwrap_or_else(|| name.to_vec())
}

//! The facts behind `/proc`: what processes and the system tell about themselves, in Linux 6.1's
//! formats.
//!
//! Programs parse these texts, so columns, units and the order of lines are Linux's even where a
//! figure is always 0 here: what is not counted is 0, what has no meaning here is left away. Parts:
//! [`process_text`] for a process, [`memory_text`] for its areas, [`system_text`] for the system,
//! [`processor_text`] for `cpuinfo`, [`mount_text`] for mounts, [`control_group`] for who is in which group.
//!
//! The name space holds `/proc`, which holds these facts, which need the name space: so the system
//! is known weakly, and set after it was made. Locks are taken for a field's access only and in the
//! order that `process` states.

mod control_group;
mod ipc_text;
mod memory_file;
mod memory_text;
mod mount_text;
mod process_text;
mod processor_text;
mod settings;
mod system_text;
#[cfg(test)]
mod tests;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::file_lock::{LockFamily, LockKind, LockOwner};
use exos::fs::group_fs::tree::ControlGroups;
use exos::fs::location::Location;
use exos::fs::namespace::PSEUDO_DEVICE;
use exos::fs::permission::Credentials;
use exos::fs::proc_fs::{
    DescriptorView, MemoryFile, ProcessLink, ProcessName, ProcessProvider, ProcessText, SPACES, SystemText,
};
use exos::fs::vnode::{OpenFile, Timestamp};
use exos::fs::walk::{Caller, LookupFlags};
use exos::reserve;
use exos::sync::{Mutex, Once};

use crate::call::process_file::may_trace_by;
use crate::memory::DUMPABLE_BY_USER;
use crate::process::{Process, Thread};
use crate::system::System;

/// Longest name of a thread.
const NAME_BYTES_MAX: usize = 15;
/// Longest host or domain name.
const HOST_NAME_BYTES_MAX: usize = 64;
/// Range of `oom_score_adj`.
const ADJUST_MAX: i32 = 1000;

/// A process with what `/proc` keeps about it.
#[derive(Clone)]
struct Member {
    process: Arc<Process>,
    /// Ascending by number, the first thread first; not empty.
    threads: Vec<Arc<Thread>>,
}

/// Answers process and thread of the one who asks.
pub type CurrentSource = fn() -> Option<(u32, u32)>;

/// What `/proc` is made from.
pub struct ProcFacts {
    system: Once<Weak<System>>,
    /// Ascending by number.
    members: Mutex<Vec<Member>>,
    /// The first process and thread, for as long as there is no source.
    current: Mutex<(u32, u32)>,
    current_source: Once<CurrentSource>,
    boot_id: Once<[u8; 16]>,
    groups: Once<Weak<ControlGroups>>,
    settings: settings::Settings,
}

impl ProcFacts {
    /// No processes, no system.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            system: Once::new(),
            members: Mutex::new(Vec::new()),
            current: Mutex::new((0, 0)),
            current_source: Once::new(),
            boot_id: Once::new(),
            groups: Once::new(),
            settings: settings::Settings::default(),
        })
    }

    /// Tells which system it is; only the first call counts.
    pub fn set_system(&self, system: &Arc<System>) {
        self.system.call_once(|| Arc::downgrade(system));
        self.boot_id.call_once(|| random_uuid(system));
    }

    /// Room for one more thread of a process that may be new, so that [`Self::add_process`] takes little memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make_room(&self, pid: u32) -> Result<()> {
        let mut members = self.members.lock();
        match members.binary_search_by_key(&pid, |member| member.process.pid) {
            Ok(index) => reserve::reserve(&mut members[index].threads, 1),
            Err(_) => reserve::reserve(&mut members, 1),
        }
    }

    /// Adds a process with its first thread, or another thread to a process that is there. The
    /// first of all is the current one.
    pub fn add_process(&self, process: Arc<Process>, thread: Arc<Thread>) {
        let mut members = self.members.lock();
        if members.is_empty() {
            *self.current.lock() = (process.pid, thread.tid);
        }
        match members.binary_search_by_key(&process.pid, |member| member.process.pid) {
            Ok(index) => {
                let threads = &mut members[index].threads;
                let place = threads.partition_point(|known| known.tid < thread.tid);
                threads.insert(place, thread);
            }
            Err(index) => {
                let threads = alloc::vec![thread];
                members.insert(index, Member { process, threads });
            }
        }
    }

    /// Takes a thread away that has ended, unless it is the last one: `/proc` shows a zombie with its first.
    pub fn remove_thread(&self, pid: u32, tid: u32) {
        let mut members = self.members.lock();
        if let Ok(index) = members.binary_search_by_key(&pid, |member| member.process.pid)
            && members[index].threads.len() > 1
        {
            let threads = &mut members[index].threads;
            if let Ok(place) = threads.binary_search_by_key(&tid, |thread| thread.tid) {
                threads.remove(place);
            }
        }
    }

    /// A process that has ended and was not waited for, with the thread that it began with.
    #[must_use]
    pub fn ended(&self, pid: u32) -> Option<(Arc<Process>, Arc<Thread>)> {
        let member = self.member(pid).ok().filter(|member| member.process.pid == pid)?;
        member.threads.first().map(|thread| (member.process.clone(), thread.clone()))
    }

    /// Takes a process away that was waited for.
    pub fn remove_process(&self, pid: u32) {
        let removed = {
            let mut members = self.members.lock();
            let found = members.binary_search_by_key(&pid, |member| member.process.pid);
            found.ok().map(|index| members.remove(index))
        };
        // The last reference may be this one, and dropping a process drops files and memory: not
        // under the lock.
        drop(removed);
    }

    /// Says who knows which process and thread run now on the processor that asks: `self` and `thread-self`.
    pub fn set_current_source(&self, source: CurrentSource) {
        self.current_source.call_once(|| source);
    }

    fn system(&self) -> Result<Arc<System>> {
        self.system.get().and_then(Weak::upgrade).ok_or(Errno::ENOENT)
    }

    /// The process that is looked into. `EACCES`: whoever asks may not.
    fn target(&self, name: ProcessName) -> Result<Arc<Process>> {
        let (process, thread) = self.current_numbers();
        let (asking, thread) = self.find(ProcessName { process, thread: Some(thread) })?;
        let target = self.find(name)?.0.process;
        if may_trace_by((&asking.process, &thread), &target) { Ok(target) } else { Err(Errno::EACCES) }
    }

    fn members(&self) -> Vec<Member> {
        self.members.lock().clone()
    }

    fn member(&self, pid: u32) -> Result<Member> {
        let members = self.members.lock();
        let found = members.binary_search_by_key(&pid, |member| member.process.pid);
        let has_thread = |member: &&Member| member.threads.iter().any(|thread| thread.tid == pid);
        // A thread's number leads to its process, though no directory lists it.
        let found = found.map(|index| &members[index]).ok().or_else(|| members.iter().find(has_thread));
        found.cloned().ok_or(Errno::ESRCH)
    }

    /// A process, and the thread that the name means: the first one if it names none.
    fn find(&self, name: ProcessName) -> Result<(Member, Arc<Thread>)> {
        let member = self.member(name.process)?;
        let wanted = match name.thread {
            None if name.process == member.process.pid => member.threads.first(),
            None => member.threads.iter().find(|thread| thread.tid == name.process),
            Some(tid) => member.threads.iter().find(|thread| thread.tid == tid),
        };
        let thread = wanted.cloned().ok_or(Errno::ESRCH)?;
        Ok((member, thread))
    }
}

/// 16 random bytes as a version 4 UUID (RFC 9562, section 5.4).
fn random_uuid(system: &System) -> [u8; 16] {
    let mut bytes = [0; 16];
    system.kernel.random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

impl ProcessProvider for ProcFacts {
    fn current(&self) -> (u32, u32) {
        self.current_numbers()
    }

    fn processes(&self) -> Vec<u32> {
        self.members.lock().iter().map(|member| member.process.pid).collect()
    }

    fn owner(&self, name: ProcessName) -> Option<(u32, u32)> {
        let (member, _) = self.find(name).ok()?;
        if member.process.space().dumpable() != DUMPABLE_BY_USER {
            return Some((0, 0));
        }
        let identities = member.process.identities.lock();
        Some((identities.uid[1], identities.gid[1]))
    }

    fn threads(&self, process: u32) -> Vec<u32> {
        self.member(process)
            .map_or_else(|_| Vec::new(), |member| member.threads.iter().map(|thread| thread.tid).collect())
    }

    fn process_text(&self, name: ProcessName, text: ProcessText, out: &mut Vec<u8>) -> Result<()> {
        let system = self.system()?;
        let (member, thread) = self.find(name)?;
        let process = &*member.process;
        let mut out = Text::new(out);
        let subject = process_text::Subject { system: &system, member: &member, thread: &thread };
        match text {
            ProcessText::AuxiliaryVector => out.raw(&process.image.lock().auxiliary),
            ProcessText::Cgroup => {
                out.raw(b"0::");
                out.raw(&self.group_path(process));
                out.raw(b"\n");
            }
            ProcessText::CommandLine => out.strings(&process.image.lock().arguments),
            ProcessText::CommandName => {
                out.raw(&thread.name.lock());
                out.raw(b"\n");
            }
            ProcessText::Environment => out.strings(&process.image.lock().environment),
            ProcessText::InputOutput => process_text::input_output(&mut out),
            ProcessText::Limits => process_text::limits(&process.limits.lock(), &mut out),
            ProcessText::LoginUser | ProcessText::SessionId => out.raw(b"4294967295"),
            ProcessText::GroupMap | ProcessText::UserMap => put!(out, "{:>10} {:>10} {:>10}\n", 0, 0, u32::MAX),
            ProcessText::SetGroups => out.raw(b"allow\n"),
            ProcessText::Personality => put!(out, "{:08x}\n", process.persona.load(Ordering::Relaxed)),
            ProcessText::TimerSlack => put!(out, "{}\n", thread.timer_slack_ns.load(Ordering::Relaxed)),
            ProcessText::WaitChannel => out.raw(b"0"),
            ProcessText::Maps => memory_text::maps(process, &mut out),
            ProcessText::MountInfo => mount_text::mount_info(&system, process, &mut out),
            ProcessText::Mounts => mount_text::mounts(&system, process, &mut out),
            ProcessText::OutOfMemoryScore => {
                let score = crate::out_of_memory::score_of(&system, process);
                put!(out, "{}\n", score.unwrap_or(0));
            }
            ProcessText::OutOfMemoryAdjust => put!(out, "{}\n", *process.out_of_memory_adjust.lock()),
            ProcessText::Smaps => memory_text::smaps(process, &mut out),
            ProcessText::SmapsRollup => memory_text::rollup(process, &mut out),
            ProcessText::Stat => process_text::stat(&subject, &mut out),
            ProcessText::StatM => memory_text::statm(process, &mut out),
            ProcessText::Status => process_text::status(&subject, &mut out),
        }
        out.end()
    }

    fn set_process_text(&self, name: ProcessName, text: ProcessText, value: &[u8]) -> Result<()> {
        let (_, thread) = self.find(name)?;
        match text {
            ProcessText::CommandName => {
                // As on Linux, an end of line that is written belongs to the name.
                let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
                *thread.name.lock() = value[..value.len().min(NAME_BYTES_MAX)].to_vec();
                Ok(())
            }
            ProcessText::OutOfMemoryAdjust => {
                let adjust = parse_number(value).filter(|adjust| adjust.abs() <= ADJUST_MAX);
                let adjust = adjust.ok_or(Errno::EINVAL)?;
                *self.member(name.process)?.process.out_of_memory_adjust.lock() = adjust;
                Ok(())
            }
            _ => Err(Errno::EPERM),
        }
    }

    fn check_text(&self, name: ProcessName, text: ProcessText) -> Result<()> {
        use ProcessText::{AuxiliaryVector, Environment, Maps, Smaps, SmapsRollup};
        match text {
            AuxiliaryVector | Environment | Maps | Smaps | SmapsRollup => self.target(name).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn memory_file(&self, name: ProcessName, file: MemoryFile) -> Result<Arc<dyn OpenFile>> {
        let space = Arc::downgrade(&self.target(name)?.space());
        Ok(match file {
            MemoryFile::Memory => Arc::new(memory_file::MemoryFile(space)),
            MemoryFile::PageMap => Arc::new(memory_file::PageMapFile(space)),
        })
    }

    fn process_link(&self, name: ProcessName, link: ProcessLink) -> Result<Location> {
        let process = self.target(name)?;
        let files = &process.files;
        match link {
            ProcessLink::WorkingDirectory => Ok(files.current()),
            ProcessLink::Root => Ok(files.root()),
            ProcessLink::Program => {
                let (location, path) = {
                    let image = process.image.lock();
                    (image.location.clone(), image.executable.clone())
                };
                match location {
                    Some(location) => Ok(location),
                    None => self.look_up(&files.root(), &path),
                }
            }
        }
    }

    fn space(&self, place: usize) -> Result<Location> {
        let (_, kind, number) = SPACES.get(place).ok_or(Errno::ENOENT)?;
        let name = alloc::format!("{kind}:[{number}]");
        Ok(self.system()?.files.namespace.place_without_directory(*number, &name, Timestamp::default()))
    }

    fn descriptors(&self, process: u32) -> Vec<u32> {
        self.member(process).map_or_else(|_| Vec::new(), |member| member.process.files.table().numbers().collect())
    }

    fn descriptor(&self, process: u32, number: u32) -> Result<DescriptorView> {
        let description = self.member(process)?.process.files.get(u64::from(number))?;
        Ok(DescriptorView {
            location: description.location().clone(),
            is_readable: description.is_readable(),
            is_writable: description.is_writable(),
        })
    }

    fn descriptor_text(&self, process: u32, number: u32, out: &mut Vec<u8>) -> Result<()> {
        let member = self.member(process)?;
        let description = member.process.files.get(u64::from(number))?;
        let close_on_exec = member.process.files.table().close_on_exec(number)?;
        let flags = open_flags(description.is_readable(), description.is_writable(), description.status());
        let is_named = description.metadata().device != PSEUDO_DEVICE;
        let flags = flags | if close_on_exec { 0o2_000_000 } else { 0 } | if is_named { 0o100_000 } else { 0 };
        let mut out = Text::new(out);
        put!(out, "pos:\t{}\nflags:\t0{flags:o}\n", description.offset());
        let (mount, inode_number) = (description.location().mount().id, description.metadata().inode_number);
        put!(out, "mnt_id:\t{mount}\nino:\t{inode_number}\n");
        if description.may_be_locked() {
            let owners = [LockOwner::Description(description.number()), member.process.files.lock_owner()];
            lock_lines(&description, owners, &mut out);
        }
        out.end()
    }

    fn system_text(&self, text: SystemText, out: &mut Vec<u8>) -> Result<()> {
        let system = self.system()?;
        let boot_id = self.boot_id.get().copied().unwrap_or_default();
        let members = self.members();
        let subject = system_text::Subject { system: &system, members: &members, boot_id };
        let mut out = Text::new(out);
        match self.settings.get(text) {
            Some(value) => put!(out, "{value}\n"),
            None => system_text::append(&subject, text, &mut out),
        }
        out.end()
    }

    fn set_system_text(&self, text: SystemText, value: &[u8]) -> Result<()> {
        let system = self.system()?;
        let field = match text {
            SystemText::HostName => &system.hostname,
            SystemText::DomainName => &system.domain_name,
            _ if settings::default_of(text).is_some() => return self.settings.set(text, value),
            _ => return ipc_text::set_limit(&system.ipc, text, value),
        };
        let name = value.split(|byte| matches!(byte, 0 | b'\n')).next().unwrap_or_default();
        *field.lock() = name[..name.len().min(HOST_NAME_BYTES_MAX)].to_vec();
        Ok(())
    }
}

impl ProcFacts {
    /// Process and thread that ask.
    #[must_use]
    pub fn current_numbers(&self) -> (u32, u32) {
        self.current_source.get().and_then(|source| source()).unwrap_or_else(|| *self.current.lock())
    }

    /// Who may look into a process whose identity has changed (`/proc/sys/fs/suid_dumpable`).
    #[must_use]
    pub fn dumpable_of_changed(&self) -> u8 {
        self.settings.get(SystemText::RightsOfDumps).map_or(0, |value| value as u8)
    }

    fn look_up(&self, root: &Location, path: &[u8]) -> Result<Location> {
        let credentials = Credentials::ROOT;
        let caller = Caller { root, credentials: &credentials, umask: 0, now: Timestamp::default() };
        self.system()?.files.namespace.lookup(&caller, root, path, LookupFlags::FOLLOW)
    }
}

/// A decimal number with blanks around it.
fn parse_number(value: &[u8]) -> Option<i32> {
    core::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// The locks on a file that a description or its process holds, as `fdinfo` tells them (proc(5)).
fn lock_lines(description: &Description, owners: [LockOwner; 2], out: &mut Text<'_>) {
    let (table, file) = description.locks();
    let metadata = description.metadata();
    let all = table.on_file(file);
    for (number, (family, lock)) in all.iter().filter(|(_, lock)| owners.contains(&lock.owner)).enumerate() {
        let (kind, process) = match (family, lock.owner) {
            (LockFamily::Whole, _) => ("FLOCK ", lock.process as i32),
            (LockFamily::Record, LockOwner::Process(_)) => ("POSIX ", lock.process as i32),
            (LockFamily::Record, LockOwner::Description(_)) => ("OFDLCK", -1),
        };
        let access = if lock.kind == LockKind::Shared { "READ " } else { "WRITE" };
        let (number, start) = (number + 1, lock.range.start);
        put!(out, "lock:\t{number}: {kind} ADVISORY  {access} {process} ");
        let (device, inode) = (metadata.device, metadata.inode_number);
        put!(out, "{:02x}:{:02x}:{inode} {start} ", device.major, device.minor);
        match lock.range.last {
            u64::MAX => out.raw(b"EOF\n"),
            last => put!(out, "{last}\n"),
        }
    }
}

/// `O_*` of a description as `fdinfo` shows them, but for `O_LARGEFILE`.
fn open_flags(is_readable: bool, is_writable: bool, status: StatusFlags) -> u32 {
    const BITS: [(StatusFlags, u32); 11] = [
        (StatusFlags::APPEND, 0o2000),
        (StatusFlags::NON_BLOCKING, 0o4000),
        (StatusFlags::DATA_SYNC, 0o10_000),
        (StatusFlags::ASYNC, 0o20_000),
        (StatusFlags::DIRECT, 0o40_000),
        (StatusFlags::DIRECTORY, 0o200_000),
        (StatusFlags::NO_FOLLOW, 0o400_000),
        (StatusFlags::NO_ACCESS_TIME, 0o1_000_000),
        (StatusFlags::SYNC, 0o4_010_000),
        (StatusFlags::PATH_ONLY, 0o10_000_000),
        (StatusFlags::UNNAMED, 0o20_000_000),
    ];
    let access = match (is_readable, is_writable) {
        (false, false) if !status.contains(StatusFlags::PATH_ONLY) => 3,
        (_, false) => 0,
        (false, true) => 1,
        (true, true) => 2,
    };
    let set = BITS.iter().filter(|(flag, _)| status.contains(*flag));
    set.fold(access, |bits, (_, bit)| bits | bit)
}

/// Where texts are written: bytes, because names need not be UTF-8.
struct Text<'a> {
    bytes: &'a mut Vec<u8>,
    /// There was no memory for all of it.
    is_cut: bool,
}

impl<'a> Text<'a> {
    fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, is_cut: false }
    }

    /// What is to be told of it. `ENOMEM`.
    fn end(self) -> Result<()> {
        if self.is_cut { Err(Errno::ENOMEM) } else { Ok(()) }
    }
}

impl Text<'_> {
    fn raw(&mut self, bytes: &[u8]) {
        if reserve::reserve(self.bytes, bytes.len()).is_err() {
            self.is_cut = true;
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Strings that end with a zero byte each.
    fn strings(&mut self, strings: &[Vec<u8>]) {
        for string in strings {
            self.raw(string);
            self.raw(b"\0");
        }
    }

    /// A name with the bytes in `special`, and backslashes among them, as `\ooo`.
    fn escaped(&mut self, name: &[u8], special: &[u8]) {
        for byte in name {
            if special.contains(byte) {
                put!(self, "\\{byte:03o}");
            } else {
                self.raw(&[*byte]);
            }
        }
    }

    /// Blanks up to `column` of the line that began at `line_start`.
    fn pad_to(&mut self, line_start: usize, column: usize) {
        for _ in self.bytes.len()..line_start + column {
            self.raw(b" ");
        }
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn formatted(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a vector does not fail; whether it was cut is asked at the end.
        let _ = fmt::Write::write_fmt(self, text);
    }
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.raw(text.as_bytes());
        Ok(())
    }
}

/// Appends formatted text.
macro_rules! put {
    ($out:expr, $($text:tt)*) => { $out.formatted(format_args!($($text)*)) };
}
use put;

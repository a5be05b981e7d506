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
mod opened;
mod process_text;
mod processor_text;
mod settings;
mod system_text;
#[cfg(test)]
mod tests;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;

use exos::error::{Errno, Result};
use exos::fs::group_fs::tree::ControlGroups;
use exos::fs::location::Location;
use exos::fs::permission::Credentials;
use exos::fs::proc_fs::{
    DescriptorView, MemoryFile, OpenText, ProcessLink, ProcessName, ProcessProvider, ProcessText, SPACES, SystemText,
};
use exos::fs::vnode::{OpenFile, Timestamp};
use exos::fs::walk::{Caller, LookupFlags};
use exos::reserve;
use exos::sync::{Mutex, Once};

use crate::call::pidfd::{Rights, may_trace_by};
use crate::task::memory::{DUMPABLE_BY_USER, Space};
use crate::task::process::{Process, Thread};
use crate::task::system::System;

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
            *self.current.lock() = (process.pid, thread.tid());
        }
        match members.binary_search_by_key(&process.pid, |member| member.process.pid) {
            Ok(index) => {
                let threads = &mut members[index].threads;
                let place = threads.partition_point(|known| known.tid() < thread.tid());
                threads.insert(place, thread);
            }
            Err(index) => {
                let threads = alloc::vec![thread];
                members.insert(index, Member { process, threads });
            }
        }
    }

    /// Makes a thread the only one of a process, and its first.
    pub fn set_first(&self, pid: u32, thread: Arc<Thread>) {
        let mut members = self.members.lock();
        if let Ok(index) = members.binary_search_by_key(&pid, |member| member.process.pid) {
            let before = core::mem::replace(&mut members[index].threads, alloc::vec![thread]);
            drop(members);
            // Not under the lock: the first thread goes here, which had ended before.
            drop(before);
        }
    }

    /// Takes a thread away that has ended, unless it is the last one: `/proc` shows a zombie with its first.
    pub fn remove_thread(&self, pid: u32, tid: u32) {
        let mut members = self.members.lock();
        if let Ok(index) = members.binary_search_by_key(&pid, |member| member.process.pid)
            && members[index].threads.len() > 1
        {
            let threads = &mut members[index].threads;
            if let Ok(place) = threads.binary_search_by_key(&tid, |thread| thread.tid()) {
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
        let (asking, thread) = self.find(ProcessName { process, thread: Some(thread), birth: 0 })?;
        let target = self.find(name)?.0.process;
        if may_trace_by((&asking.process, &thread), Rights::ForFiles, &target) {
            Ok(target)
        } else {
            Err(Errno::EACCES)
        }
    }

    /// The memory of a process that is looked into. `EACCES`: whoever asks may not. `ESRCH`: it has just got another,
    /// of which it is not known yet.
    fn space_to_look_into(&self, name: ProcessName) -> Result<Arc<Space>> {
        let space = self.find(name)?.0.process.space();
        let is_still = Arc::ptr_eq(&self.target(name)?.space(), &space);
        if is_still { Ok(space) } else { Err(Errno::ESRCH) }
    }

    fn members(&self) -> Vec<Member> {
        self.members.lock().clone()
    }

    fn member(&self, pid: u32) -> Result<Member> {
        let members = self.members.lock();
        let found = members.binary_search_by_key(&pid, |member| member.process.pid);
        let has_thread = |member: &&Member| member.threads.iter().any(|thread| thread.tid() == pid);
        // A thread's number leads to its process, though no directory lists it.
        let found = found.map(|index| &members[index]).ok().or_else(|| members.iter().find(has_thread));
        found.cloned().ok_or(Errno::ESRCH)
    }

    /// A process, and the thread that the name means: the first one if it names none. `ESRCH`: it is gone.
    fn find(&self, name: ProcessName) -> Result<(Member, Arc<Thread>)> {
        let member = self.member(name.process)?;
        let wanted = match name.thread {
            None if name.process == member.process.pid => member.threads.first(),
            None => member.threads.iter().find(|thread| thread.tid() == name.process),
            Some(tid) => member.threads.iter().find(|thread| thread.tid() == tid),
        };
        let thread = wanted.cloned().ok_or(Errno::ESRCH)?;
        let is_same = name.birth == 0 || name.birth == birth_of(name, &member, &thread);
        if is_same { Ok((member, thread)) } else { Err(Errno::ESRCH) }
    }

    /// The process that a name means. `ESRCH`: it is gone.
    pub(crate) fn process(&self, name: ProcessName) -> Result<Arc<Process>> {
        Ok(self.find(name)?.0.process)
    }
}

/// What tells the one that a name means from all that had its number before.
fn birth_of(name: ProcessName, member: &Member, thread: &Thread) -> u64 {
    let is_whole = name.thread.is_none() && name.process == member.process.pid;
    if is_whole { member.process.birth } else { thread.birth }
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

    fn named(&self, name: ProcessName) -> Option<ProcessName> {
        let (member, thread) = self.find(name).ok()?;
        Some(ProcessName { birth: birth_of(name, &member, &thread), ..name })
    }

    fn threads(&self, process: ProcessName) -> Vec<u32> {
        self.find(process)
            .map_or_else(|_| Vec::new(), |(member, _)| member.threads.iter().map(|thread| thread.tid()).collect())
    }

    fn open_text(&self, name: ProcessName, text: ProcessText) -> Result<Arc<dyn OpenText>> {
        use ProcessText::{AuxiliaryVector, Environment, Maps, MountInfo, Mounts, Smaps, SmapsRollup};
        let system = self.system.get().ok_or(Errno::ENOENT)?;
        let (Member { process, .. }, thread) = self.find(name)?;
        let image = process.image.lock().clone();
        let space = match text {
            AuxiliaryVector | Environment | Maps | Smaps | SmapsRollup => {
                let space = self.space_to_look_into(name)?;
                // Taken before the memory, it is older if another program has begun meanwhile.
                if !Arc::ptr_eq(&process.image.lock(), &image) {
                    return Err(Errno::ESRCH);
                }
                space
            }
            _ => process.space(),
        };
        let auxiliary = if text == AuxiliaryVector { image.auxiliary.clone() } else { Vec::new() };
        let root = matches!(text, Mounts | MountInfo).then(|| process.files.root());
        let (process, thread) = (Arc::downgrade(&process), Arc::downgrade(&thread));
        let (system, space, image) = (system.clone(), Arc::downgrade(&space), Arc::downgrade(&image));
        Ok(Arc::new(opened::ProcessFile { system, name, process, space, image, auxiliary, thread, root, text }))
    }

    fn check_look(&self, name: ProcessName) -> Result<()> {
        self.target(name).map(|_| ())
    }

    fn memory_file(&self, name: ProcessName, file: MemoryFile) -> Result<Arc<dyn OpenFile>> {
        let space = Arc::downgrade(&self.space_to_look_into(name)?);
        Ok(match file {
            MemoryFile::Memory => Arc::new(memory_file::MemoryFile(space)),
            MemoryFile::PageMap => Arc::new(memory_file::PageMapFile(space)),
        })
    }

    fn process_link(&self, name: ProcessName, link: ProcessLink) -> Result<Location> {
        let gone = |error| if error == Errno::ESRCH { Errno::ENOENT } else { error };
        let process = self.target(name).map_err(gone)?;
        if process.has_ended() {
            return Err(Errno::ENOENT);
        }
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

    fn descriptors(&self, process: ProcessName) -> Vec<u32> {
        self.process(process).map_or_else(|_| Vec::new(), |process| process.files.table().numbers().collect())
    }

    fn descriptor(&self, process: ProcessName, number: u32) -> Result<DescriptorView> {
        let description = self.process(process)?.files.get(u64::from(number))?;
        Ok(DescriptorView {
            location: description.location().clone(),
            is_readable: description.is_readable(),
            is_writable: description.is_writable(),
        })
    }

    fn open_descriptor_text(&self, process: ProcessName, number: u32) -> Result<Arc<dyn OpenText>> {
        let process = Arc::downgrade(&self.process(process)?);
        Ok(Arc::new(opened::DescriptorFile { process, number }))
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

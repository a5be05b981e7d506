//! Open texts about a process.
//!
//! A text is of the process that had the number when it was opened: when the number is another's, it is `ESRCH`. A text
//! about memory is of the memory that the process had then, which was its reader's to look into: it is empty when the
//! process has begun another program or ended, and keeps no memory. The others say nothing that is secret, but for what
//! `stat` asks about its reader.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::file_lock::{LockFamily, LockKind, LockOwner};
use exos::fs::location::Location;
use exos::fs::namespace::PSEUDO_DEVICE;
use exos::fs::proc_fs::{OpenText, ProcessText};
use exos::fs::vnode::ProcessName;

use super::text::{ADJUST_MAX, NAME_BYTES_MAX, Text, parse_number, put};
use super::{memory_text, mount_text, process_text};
use crate::task::listing::{Listing, Member};
use crate::task::memory::Space;
use crate::task::process::{Image, Process, TIMER_SLACK_NS, Thread};
use crate::task::system::System;
use crate::task::tracing::{Rights, may_trace_by};

/// A text of `/proc/PID`.
pub(super) struct ProcessFile {
    pub(super) system: Weak<System>,
    pub(super) name: ProcessName,
    pub(super) process: Weak<Process>,
    pub(super) space: Weak<Space>,
    pub(super) image: Weak<Image>,
    /// What `auxv` shows, also when the process is gone, as on Linux.
    pub(super) auxiliary: Vec<u8>,
    pub(super) thread: Weak<Thread>,
    /// Whose mounts `mounts` and `mountinfo` show, also when the process is gone, as on Linux. The others keep none.
    pub(super) root: Option<Location>,
    pub(super) text: ProcessText,
}

impl ProcessFile {
    fn system(&self) -> Result<Arc<System>> {
        self.system.upgrade().ok_or(Errno::ENOENT)
    }

    /// The process and the thread, if they still have their numbers.
    fn find(&self, system: &System) -> Result<(Member, Arc<Thread>)> {
        let (member, thread) = system.listing.find(self.name)?;
        let is_same = self.process.as_ptr() == Arc::as_ptr(&member.process)
            && (self.name.thread.is_none() || self.thread.as_ptr() == Arc::as_ptr(&thread));
        if is_same { Ok((member, thread)) } else { Err(Errno::ESRCH) }
    }

    /// What the process was started with, as long as it has not begun another program. A copy of the process has the
    /// same image and may outlive that.
    fn image(&self) -> Option<Arc<Image>> {
        let (image, process) = (self.image.upgrade()?, self.process.upgrade()?);
        let is_still = self.space.strong_count() > 0 && Arc::ptr_eq(&process.image.lock(), &image);
        is_still.then_some(image)
    }

    fn append_of_process(&self, system: &Arc<System>, out: &mut Text<'_>) -> Result<()> {
        let (member, thread) = self.find(system)?;
        let process = &*member.process;
        let subject = process_text::Subject { system, member: &member, thread: &thread };
        match self.text {
            ProcessText::Cgroup => {
                out.raw(b"0::");
                out.raw(&system.listing.group_path(process));
                out.raw(b"\n");
            }
            ProcessText::CommandLine => out.strings(&process.image.lock().arguments),
            ProcessText::CommandName => {
                out.raw(&thread.name.lock());
                out.raw(b"\n");
            }
            ProcessText::InputOutput => process_text::input_output(out),
            ProcessText::Limits => process_text::limits(&process.limits.lock(), out),
            ProcessText::LoginUser | ProcessText::SessionId => out.raw(b"4294967295"),
            ProcessText::GroupMap | ProcessText::UserMap => put!(out, "{:>10} {:>10} {:>10}\n", 0, 0, u32::MAX),
            ProcessText::SetGroups => out.raw(b"allow\n"),
            ProcessText::Personality => put!(out, "{:08x}\n", process.persona.load(Ordering::Relaxed)),
            ProcessText::TimerSlack => put!(out, "{}\n", thread.timer_slack_ns.load(Ordering::Relaxed)),
            ProcessText::WaitChannel => out.raw(b"0"),
            ProcessText::OutOfMemoryScore => {
                let score = crate::task::out_of_memory::score_of(system, process);
                put!(out, "{}\n", score.unwrap_or(0));
            }
            ProcessText::OutOfMemoryAdjust => put!(out, "{}\n", *process.out_of_memory_adjust.lock()),
            ProcessText::Stat => {
                let is_open = target(&system.listing, self.name).is_ok();
                process_text::stat(&subject, is_open, out);
            }
            ProcessText::StatM => memory_text::statm(process, out),
            ProcessText::Status => process_text::status(&subject, out),
            ProcessText::Call => {
                let may_look = target(&system.listing, self.name).is_ok();
                process_text::call(&subject, may_look, out)?;
            }
            ProcessText::Maps | ProcessText::Smaps => {
                let show = if self.text == ProcessText::Maps { memory_text::maps } else { memory_text::smaps };
                if let Some(space) = self.space.upgrade() {
                    show(&space, out);
                }
            }
            ProcessText::SmapsRollup => memory_text::rollup(&*self.space.upgrade().ok_or(Errno::ESRCH)?, out),
            ProcessText::AuxiliaryVector | ProcessText::Environment | ProcessText::Mounts | ProcessText::MountInfo => {}
        }
        Ok(())
    }
}

impl OpenText for ProcessFile {
    fn append(&self, out: &mut Vec<u8>) -> Result<()> {
        let system = self.system()?;
        let mut out = Text::new(out);
        match self.text {
            ProcessText::AuxiliaryVector => out.raw(&self.auxiliary),
            ProcessText::Environment => {
                if let Some(image) = self.image() {
                    out.strings(&image.environment);
                }
            }
            ProcessText::Mounts | ProcessText::MountInfo => {
                let is_short = self.text == ProcessText::Mounts;
                let show = if is_short { mount_text::mounts } else { mount_text::mount_info };
                if let Some(root) = &self.root {
                    show(&system, root, &mut out);
                }
            }
            _ => self.append_of_process(&system, &mut out)?,
        }
        out.end()
    }

    fn set(&self, value: &[u8]) -> Result<()> {
        let system = self.system()?;
        let (member, thread) = self.find(&system)?;
        match self.text {
            // Of others' threads it is not theirs to set.
            ProcessText::CommandName if member.process.pid != system.listing.current_numbers().0 => Err(Errno::EINVAL),
            ProcessText::CommandName => {
                // As on Linux, an end of line that is written belongs to the name.
                let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
                *thread.name.lock() = value[..value.len().min(NAME_BYTES_MAX)].to_vec();
                Ok(())
            }
            ProcessText::OutOfMemoryAdjust => {
                let adjust = parse_number(value).filter(|adjust| adjust.abs() <= ADJUST_MAX);
                *member.process.out_of_memory_adjust.lock() = adjust.ok_or(Errno::EINVAL)?;
                Ok(())
            }
            // Of another process it is not the caller's to set, as on Linux for most.
            ProcessText::TimerSlack if member.process.pid != system.listing.current_numbers().0 => Err(Errno::EPERM),
            ProcessText::TimerSlack => {
                let number = core::str::from_utf8(value).ok().and_then(|value| value.trim_end().parse::<u64>().ok());
                let slack_ns = number.ok_or(Errno::EINVAL)?;
                let slack_ns = if slack_ns == 0 { TIMER_SLACK_NS } else { slack_ns };
                thread.timer_slack_ns.store(slack_ns, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Errno::EPERM),
        }
    }
}

/// The text of `/proc/PID/fdinfo/N`.
pub(super) struct DescriptorFile {
    pub(super) process: Weak<Process>,
    pub(super) number: u32,
}

impl OpenText for DescriptorFile {
    fn append(&self, out: &mut Vec<u8>) -> Result<()> {
        let process = self.process.upgrade().ok_or(Errno::ENOENT)?;
        let description = process.files.get(u64::from(self.number)).map_err(|_| Errno::ENOENT)?;
        let close_on_exec = process.files.table().close_on_exec(self.number).map_err(|_| Errno::ENOENT)?;
        let flags = open_flags(description.is_readable(), description.is_writable(), description.status());
        let is_named = description.inode().device() != PSEUDO_DEVICE;
        let flags = flags | if close_on_exec { 0o2_000_000 } else { 0 } | if is_named { 0o100_000 } else { 0 };
        let mut out = Text::new(out);
        put!(out, "pos:\t{}\nflags:\t0{flags:o}\n", description.offset());
        let (mount, inode_number) = (description.location().mount().id, description.metadata().inode_number);
        put!(out, "mnt_id:\t{mount}\nino:\t{inode_number}\n");
        if description.may_be_locked() {
            let owners = [LockOwner::Description(description.number()), process.files.lock_owner()];
            lock_lines(&description, owners, &mut out);
        }
        out.end()
    }

    fn set(&self, _: &[u8]) -> Result<()> {
        Err(Errno::EINVAL)
    }
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

/// The process that is looked into. `EACCES`: the reader may not.
pub(super) fn target(listing: &Listing, name: ProcessName) -> Result<Arc<Process>> {
    let (process, thread) = listing.current_numbers();
    let (asking, thread) = listing.find(ProcessName { process, thread: Some(thread), birth: 0 })?;
    let target = listing.find(name)?.0.process;
    if may_trace_by((&asking.process, &thread), Rights::ForFiles, &target) { Ok(target) } else { Err(Errno::EACCES) }
}

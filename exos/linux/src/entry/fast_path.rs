//! Short ways through the calls that programs make most, for when there is nothing special about them.
//!
//! A short way has those of the caller's registers that Rust code does not preserve. It answers what the call answers,
//! or `None` where it is about something rare, has no memory, or is interrupted by a signal: then nothing has been done
//! but what the call may do twice, and the handler of the table does it all. So each is a part of its handler, never
//! another opinion: a case that is not here is slower and nothing else. Those that may wait are their handlers, which
//! neither look at the other registers nor replace any ([`Context::new`]).
//!
//! Neighbours: `glue/fast.rs`, which comes here from rewritten sites, and [`crate::call::file_transfer`].

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::location::Location;
use exos::fs::metadata::{FileKind, Timestamp};
use exos::fs::namespace::{Access, OpenFlags, OpenHow};
use exos::fs::readiness::Readiness;
use exos::fs::step::{Attempt, Transfer};
use exos::fs::vnode::InodeRef;
use exos::fs::walk::{self, LookupFlags};
use exos::reserve::{self, Level};
use exos::task::signal::{Signal, SignalInfo, SignalPayload};
use syscalls::Sysno;

use crate::abi::file as abi;
use crate::abi::linux::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_LARGEFILE, O_NOCTTY, SI_TKILL};
use crate::abi::user_memory::{Extent, STRING_STEP_BYTES, UserMemory, UserReader, UserWriter, read_short, write_all};
use crate::call::context::{Context, Handler};
use crate::call::file_transfer::{one, write_by};
use crate::call::signal::change_action;
use crate::call::waiting::in_steps;
use crate::call::{epoll, file_control, file_descriptor, file_metadata, file_path, futex, memory};
use crate::task::caller::Caller;
use crate::task::process::{Process, Thread};
use crate::task::system::System;

/// The number of `tkill(2)`.
const CALL_TKILL: u64 = Sysno::tkill as u64;

/// What a call answers, if its short way knows.
pub type Answer = Option<Result<u64>>;

/// What a transfer came to. One that would wait or raises a signal is the handler's.
#[inline]
fn settled(outcome: Result<usize>) -> Answer {
    match outcome {
        Ok(count) => Some(Ok(count as u64)),
        Err(Errno::EAGAIN | Errno::EINTR | Errno::EPIPE) => None,
        Err(error) => Some(Err(error)),
    }
}

#[inline]
fn now(caller: &Caller<'_>) -> Timestamp {
    Timestamp::from_ns(caller.system.realtime_ns())
}

/// `read(2)`, `pread64(2)`: with an offset or at the description's own.
#[inline(always)]
fn read_from(caller: &Caller<'_>, frame: &mut UpcallFrame, offset: Option<u64>) -> Answer {
    let description = caller.process.files.get_seen(&caller.thread.seen_descriptors, frame.rdi).ok()?;
    if !description.is_plain() {
        return if offset.is_some() { None } else { read_or_sleep(caller, frame, &description) };
    }
    let extents = one(frame.rsi, frame.rdx).ok()?;
    let Extent { address, length } = extents[0];
    let zeros = (length as usize, |count| caller.memory.zero_out(address, count));
    let writer = || UserWriter::new(caller.memory, &extents);
    settled(description.try_read(offset, writer, || now(caller), zeros)?)
}

/// `read(2)` of a pipe, with its waits.
#[inline(always)]
fn read_or_sleep(caller: &Caller<'_>, frame: &mut UpcallFrame, description: &Arc<Description>) -> Answer {
    let Some(reader) = description.sleeping_reader() else {
        return read_in_steps(Context::new(caller, frame), description);
    };
    let extents = one(frame.rsi, frame.rdx).ok()?;
    let mut context = Context::new(caller, frame);
    loop {
        let mut writer = UserWriter::new(context.memory, &extents);
        match reader.read(&mut writer, &context.thread.task) {
            Attempt::Done(count) => return Some(Ok(count as u64)),
            Attempt::Asleep if context.wait(None).is_ok() => {}
            // A signal: the handler of the table finds it too.
            Attempt::Asleep => {
                reader.leave(&context.thread.task);
                return None;
            }
            Attempt::Unknown => return read_in_steps(context, description),
        }
    }
}

/// `read(2)` with its waits in the way of all others.
#[inline(never)]
fn read_in_steps(mut context: Context<'_>, description: &Arc<Description>) -> Answer {
    let extents = one(context.frame.rsi, context.frame.rdx).ok()?;
    let mut writer = UserWriter::new(context.memory, &extents);
    let transfer = Transfer::new(Readiness::READ, !description.is_non_blocking());
    unless_interrupted(in_steps(&mut context, description, transfer, |context, transfer| {
        description.read_step(None, &mut writer, transfer, &context.caller, || now(&context.caller))
    }))
}

/// `write(2)` with its waits.
#[inline(never)]
fn write_in_steps(mut context: Context<'_>, description: &Arc<Description>) -> Answer {
    let extents = one(context.frame.rsi, context.frame.rdx).ok()?;
    let mut reader = UserReader::new(context.memory, &extents);
    let may_wait = !description.is_non_blocking();
    unless_interrupted(write_by(&mut context, description, &mut reader, None, may_wait))
}

/// What a handler that may wait answered. One that a signal interrupted has done nothing: the handler of the table does
/// it again, on a whole frame, and finds the signal before it waits.
#[inline]
fn unless_interrupted(outcome: Result<u64>) -> Answer {
    if outcome == Err(Errno::EINTR) { None } else { Some(outcome) }
}

/// How a call is answered of which some is known here and the rest by its handler.
pub enum Choice {
    /// As known here.
    Answer(Result<u64>),
    /// By the handler: [`handled`].
    Handler(Handler),
    /// By the table's way.
    Nothing,
}

/// What the handler of the table answers, from its short way: for one that looks at no register but its arguments. An
/// error but the most frequent one is its long way's, which finds it again, or tries again where memory may have come.
#[inline(always)]
pub fn handled(caller: &Caller<'_>, frame: &mut UpcallFrame, handler: Handler) -> Answer {
    // Where memory is short, the table says which calls may come in.
    if reserve::level() != Level::Whole {
        return None;
    }
    let arguments = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
    let outcome = handler(&mut Context::new(caller, frame), arguments);
    if matches!(outcome, Ok(_) | Err(Errno::ENOENT)) { Some(outcome) } else { None }
}

/// `getdents64(2)`.
#[inline(always)]
pub fn getdents64(_: &Caller<'_>, _: &mut UpcallFrame) -> Choice {
    Choice::Handler(file_path::getdents64)
}

/// `fcntl(2)`: what concerns a descriptor alone.
#[inline(always)]
pub fn fcntl(_: &Caller<'_>, frame: &mut UpcallFrame) -> Choice {
    if file_control::is_of_descriptor(frame.rsi) { Choice::Handler(file_control::fcntl) } else { Choice::Nothing }
}

/// `futex(2)`: what locks and condition variables of one process ask for by the shortest way.
#[inline(always)]
pub fn futex(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    let (address, value) = (frame.rdi, frame.rdx as u32);
    match frame.rsi as u32 {
        futex::WAKE_PRIVATE => Some(futex::wake_private(caller, address, value)),
        futex::WAIT_PRIVATE if frame.r10 == 0 => {
            unless_interrupted(futex::wait_private(&mut Context::new(caller, frame), address, value))
        }
        _ => other_futex(caller.system, caller.process, caller.thread, caller.memory, frame),
    }
}

/// `futex(2)` as its handler does it.
#[inline(never)]
fn other_futex(
    system: &Arc<System>,
    process: &Arc<Process>,
    thread: &Arc<Thread>,
    memory: &dyn UserMemory,
    frame: &mut UpcallFrame,
) -> Answer {
    // Each by itself: what is called with all of it in one place has it put there whether it is called or not.
    let caller = &Caller { system, process, thread, memory };
    let arguments = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
    unless_interrupted(futex::futex(&mut Context::new(caller, frame), arguments))
}

/// `write(2)`, `pwrite64(2)`.
#[inline(always)]
fn write_to(caller: &Caller<'_>, frame: &mut UpcallFrame, offset: Option<u64>) -> Answer {
    let files = &caller.process.files;
    let description = files.get_seen(&caller.thread.seen_descriptors, frame.rdi).ok()?;
    if files.size_limit_bytes() != u64::MAX {
        return None;
    }
    let extents = one(frame.rsi, frame.rdx).ok()?;
    match description.try_write(offset, || UserReader::new(caller.memory, &extents), || now(caller)) {
        Some(outcome) => settled(outcome),
        None if offset.is_some() => None,
        None => write_in_steps(Context::new(caller, frame), &description),
    }
}

/// An offset at which a transfer of this length begins and ends within what a file can have.
#[inline]
fn offset_of(frame: &UpcallFrame) -> Option<u64> {
    let end = frame.r10.wrapping_add(frame.rdx);
    Some(frame.r10).filter(|offset| (*offset | end) <= i64::MAX as u64)
}

/// `read(2)`.
#[inline(always)]
pub fn read(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    read_from(caller, frame, None)
}

/// `write(2)`.
#[inline(always)]
pub fn write(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    write_to(caller, frame, None)
}

/// `pread64(2)`.
#[inline(always)]
pub fn pread64(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    read_from(caller, frame, Some(offset_of(frame)?))
}

/// `pwrite64(2)`.
#[inline(always)]
pub fn pwrite64(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    write_to(caller, frame, Some(offset_of(frame)?))
}

/// The path at `address`, if it is short enough for a walk that may be known: one that starts at the root or at the
/// working directory. `directory` says that it does: with a descriptor for it there is hardly ever an absolute path.
#[inline(always)]
fn path_at<'a>(
    caller: &Caller<'_>,
    directory: u64,
    address: u64,
    bytes: &'a mut [u8; STRING_STEP_BYTES],
) -> Option<&'a [u8]> {
    if directory as i32 != AT_FDCWD {
        return None;
    }
    read_short(caller.memory, address, bytes).filter(|path| !path.is_empty())
}

#[inline]
fn may_search_all(caller: &Caller<'_>) -> bool {
    caller.thread.identities.lock().capabilities.effective.may_search_all()
}

/// What a path leads to, if a walk to there is known.
#[inline]
fn known(caller: &Caller<'_>, directory: u64, address: u64, flags: LookupFlags) -> Option<Location> {
    let mut bytes = [0; STRING_STEP_BYTES];
    let path = path_at(caller, directory, address, &mut bytes)?;
    let namespace = &caller.system.files.namespace;
    caller.process.files.lookup_known(namespace, path, flags, || may_search_all(caller))
}

#[inline]
fn tell_status(caller: &Caller<'_>, inode: &InodeRef, address: u64) -> Answer {
    Some(write_all(caller.memory, address, &abi::stat(&inode.metadata())).map(|()| 0))
}

/// `stat(2)`.
pub fn stat(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    status_at(caller, [AT_FDCWD as u64, frame.rdi, frame.rsi], LookupFlags::FOLLOW)
}

/// `lstat(2)`.
pub fn lstat(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    status_at(caller, [AT_FDCWD as u64, frame.rdi, frame.rsi], LookupFlags::NO_FOLLOW)
}

/// `newfstatat(2)`.
#[inline(always)]
pub fn newfstatat(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Choice {
    let flags = match u64::from(frame.r10 as u32) {
        0 => LookupFlags::FOLLOW,
        AT_SYMLINK_NOFOLLOW => LookupFlags::NO_FOLLOW,
        // What the C library makes of `fstat`.
        AT_EMPTY_PATH if is_empty(caller, frame.rsi) => {
            return status_of(caller, frame.rdi, frame.rdx).map_or(Choice::Nothing, Choice::Answer);
        }
        _ => return Choice::Handler(file_metadata::newfstatat),
    };
    let known = match frame.rdi as i32 {
        AT_FDCWD => status_at(caller, [frame.rdi, frame.rsi, frame.rdx], flags),
        _ => status_in(caller, [frame.rdi, frame.rsi, frame.rdx], flags),
    };
    known.map_or(Choice::Handler(file_metadata::newfstatat), Choice::Answer)
}

#[inline]
fn status_at(caller: &Caller<'_>, [directory, path, address]: [u64; 3], flags: LookupFlags) -> Answer {
    let mut bytes = [0; STRING_STEP_BYTES];
    let path = path_at(caller, directory, path, &mut bytes)?;
    let namespace = &caller.system.files.namespace;
    let entry = caller.process.files.entry_known(namespace, path, flags, || may_search_all(caller))?;
    tell_status(caller, entry.inode(), address)
}

/// The status of a name in a descriptor's directory: what programs that walk a tree ask for several times.
#[inline(never)]
fn status_in(caller: &Caller<'_>, [directory, name, address]: [u64; 3], flags: LookupFlags) -> Answer {
    let mut bytes = [0; STRING_STEP_BYTES];
    let name = read_short(caller.memory, name, &mut bytes)?;
    let description = caller.process.files.get_seen(&caller.thread.seen_descriptors, directory).ok()?;
    // Where memory is short, the table says which calls may come in.
    if reserve::level() != Level::Whole || !may_search_all(caller) {
        return None;
    }
    match description.location().plain_child(name, !flags.follow)? {
        Ok(entry) => tell_status(caller, entry.inode(), address),
        Err(error) => Some(Err(error)),
    }
}

/// Whether the string at `address` can be read, and is empty.
#[inline]
fn is_empty(caller: &Caller<'_>, address: u64) -> bool {
    let mut first = [1];
    caller.memory.copy_in(address, &mut first) == Ok(1) && first == [0]
}

#[inline]
fn status_of(caller: &Caller<'_>, descriptor: u64, address: u64) -> Answer {
    let description = caller.process.files.get_seen(&caller.thread.seen_descriptors, descriptor).ok()?;
    tell_status(caller, description.location().inode(), address)
}

/// `fstat(2)`.
pub fn fstat(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    status_of(caller, frame.rdi, frame.rsi)
}

/// `open(2)`.
pub fn open(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    open_at(caller, [AT_FDCWD as u64, frame.rdi, frame.rsi])
}

/// `openat(2)`.
#[inline(always)]
pub fn openat(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Choice {
    // What a walk from elsewhere leads to is not known.
    let opened = match frame.rdi as i32 {
        AT_FDCWD => open_at(caller, [frame.rdi, frame.rsi, frame.rdx]),
        _ => None,
    };
    opened.map_or(Choice::Handler(file_descriptor::openat), Choice::Answer)
}

/// Opens a regular file that is there, with no flag but those that matter to the descriptor.
#[inline(always)]
fn open_at(caller: &Caller<'_>, [directory, path, flags]: [u64; 3]) -> Answer {
    let access = match flags as u32 & !FLAGS_OF_DESCRIPTOR {
        0 => Access::Read,
        1 => Access::Write,
        2 => Access::ReadWrite,
        _ => return None,
    };
    open_for(caller, access, [directory, path, flags])
}

/// Flags of `open` that say nothing of what is opened.
const FLAGS_OF_DESCRIPTOR: u32 = (O_CLOEXEC | O_LARGEFILE | O_NOCTTY) as u32;

fn open_for(caller: &Caller<'_>, access: Access, [directory, path, flags]: [u64; 3]) -> Answer {
    reserve::check().ok()?;
    let files = &caller.process.files;
    files.check_room().ok()?;
    let location = known(caller, directory, path, LookupFlags::FOLLOW)?;
    if location.inode().kind() != FileKind::Regular {
        return None;
    }
    let credentials = caller.thread.identities.lock().for_files();
    let namespace = &caller.system.files.namespace;
    // The walk is over, and nothing is created or cut off that would need a time.
    let opener =
        walk::Caller { root: namespace.root(), credentials: &credentials, umask: 0, now: Timestamp::default() };
    let how = OpenHow { access, flags: OpenFlags::empty(), status: StatusFlags::empty(), ..OpenHow::READ };
    let description = namespace.open_found(&opener, location, &how).ok()?;
    Some(files.add(description, flags & O_CLOEXEC != 0))
}

/// `close(2)`.
pub fn close(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    // A connection that lingers has its closer wait.
    if caller.system.files.inet.may_linger() {
        return None;
    }
    let files = &caller.process.files;
    let closed = files.table().remove(frame.rdi as u32);
    Some(closed.map(|description| {
        files.release(description);
        0
    }))
}

/// `mprotect(2)`.
pub fn mprotect(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    Some(memory::protect(caller.process, [frame.rdi, frame.rsi, frame.rdx]))
}

/// `rt_sigaction(2)`: a program that starts another looks at the action of every signal.
pub fn rt_sigaction(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    Some(change_action(caller, [frame.rdi, frame.rsi, frame.rdx, frame.r10]))
}

/// `tkill(2)` and `tgkill(2)` to the calling thread: which signal, with what. Not those that do something when they are
/// raised, besides what is done when they are looked at.
#[inline(always)]
pub fn own_signal(caller: &Caller<'_>, frame: &UpcallFrame) -> Option<(Signal, SignalInfo)> {
    let (pid, tid, number) = match frame.rax {
        CALL_TKILL => (caller.process.pid, frame.rdi, frame.rsi),
        _ => (frame.rdi as u32, frame.rsi, frame.rdx),
    };
    if pid != caller.process.pid || tid as u32 != caller.thread.tid() {
        return None;
    }
    let signal = Signal::new(number).ok().filter(|signal| !signal.acts_when_raised())?;
    let uid = caller.thread.facts.uid.load(Ordering::Relaxed);
    let payload = SignalPayload::Sender { pid, uid, value: 0 };
    Some((signal, SignalInfo { code: SI_TKILL, errno: 0, payload }))
}

/// What an epoll instance has to report now. Where it has nothing it is the handler's to wait, or to look for more.
#[inline(always)]
fn reported_now(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    match epoll::look(caller.process, caller.memory, [frame.rdi, frame.rsi, frame.rdx]) {
        Ok(0) => None,
        outcome => Some(outcome),
    }
}

/// `epoll_wait(2)`.
#[inline(always)]
pub fn epoll_wait(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    reported_now(caller, frame)
}

/// `epoll_pwait(2)` without a mask.
#[inline(always)]
pub fn epoll_pwait(caller: &Caller<'_>, frame: &mut UpcallFrame) -> Answer {
    if frame.r8 == 0 { reported_now(caller, frame) } else { None }
}

#[cfg(test)]
#[path = "fast_path_tests.rs"]
mod tests;

//! Descriptors: opening, closing, duplicating, and files that never had a name.
//!
//! Record locks go with the process that closes any descriptor of their file, which is why every way out of the table
//! leads through [`crate::file::files::ProcessFiles::release`].

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::metadata::FileKind;
use exos::fs::namespace::{Access as OpenAccess, OpenFlags, OpenHow};
use exos::fs::readiness::Readiness;
use exos::fs::seals::Seals;
use exos::fs::vnode::Creation;
use exos::fs::walk::Restriction;
use exos::preempt::{self, PIECE_COUNT, Pace};

use super::{file_cut, inet_socket, terminal};
use crate::abi::bytes::get;
use crate::abi::file as abi;
use crate::abi::linux::{
    __O_TMPFILE, AT_FDCWD, EFD_SEMAPHORE, MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC, MFD_NOEXEC_SEAL, O_ACCMODE,
    O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NONBLOCK, O_PATH, O_TRUNC, O_WRONLY, RESOLVE_CACHED,
};
use crate::abi::user_memory::{Text, read_string, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, read_path_into};
use crate::task::caller::Restart;

entries! {
    open(Path, OpenFlags, OpenMode(1));
    openat(At, Path, OpenFlags, OpenMode(2));
    openat2;
    creat(Path, Mode);
    close(Descriptor);
    close_range(Size, Size, Set(CLOSE_RANGE_FLAGS));
    dup(Descriptor);
    dup2(Descriptor, Descriptor);
    dup3(Descriptor, Descriptor, Set(FILE_FLAGS));
    pipe(PairOut);
    pipe2(PairOut, Set(FILE_FLAGS)): "no packets (O_DIRECT)";
    eventfd;
    eventfd2(Int, Set(EVENT_FLAGS));
    memfd_create(Path, Set(MEMFD_FLAGS)): "no huge pages";
}

/// Permission bits that a file can be created with (`S_IALLUGO`).
const S_IALLUGO: u64 = 0o7777;

/// How `open` is to be done, from its flags and mode. `EINVAL`: flags that contradict each other.
fn how_of(flags: u64, mode: u64) -> Result<OpenHow> {
    let unnamed = flags & __O_TMPFILE != 0;
    if unnamed {
        let mask = __O_TMPFILE | O_DIRECTORY | O_CREAT;
        let is_written = flags & O_ACCMODE != 0;
        if flags & mask != __O_TMPFILE | O_DIRECTORY || !is_written {
            return Err(Errno::EINVAL);
        }
    }
    let access = match flags & O_ACCMODE {
        0 => OpenAccess::Read,
        1 => OpenAccess::Write,
        2 => OpenAccess::ReadWrite,
        _ => OpenAccess::Neither,
    };
    let mut open_flags = OpenFlags::empty();
    open_flags.set(OpenFlags::CREATE, flags & O_CREAT != 0);
    open_flags.set(OpenFlags::EXCLUSIVE, flags & O_EXCL != 0);
    open_flags.set(OpenFlags::TRUNCATE, flags & O_TRUNC != 0);
    open_flags.set(OpenFlags::UNNAMED, unnamed);
    let status = abi::status_flags(flags);
    Ok(OpenHow { access, flags: open_flags, status, permissions: mode as u32, ..OpenHow::READ })
}

/// Opens `path` from `directory`; flags and mode are checked already.
fn open_with(
    context: &mut Context<'_>,
    [directory, path, flags, mode]: [u64; 4],
    restriction: Restriction,
) -> Result<u64> {
    let is_from_descriptor = directory as i32 != AT_FDCWD;
    let how = OpenHow { restriction, is_from_descriptor, ..how_of(flags, mode)? };
    let stays_in_directory = restriction.contains(Restriction::IN_ROOT);
    let (address, mut path) = (path, Text::default());
    read_path_into(context, address, &mut path)?;
    let path = &*path;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    context.process.files.check_room()?;
    let access = Access::new(context);
    let start = if stays_in_directory && is_from_descriptor {
        Cow::Owned(context.process.files.get(directory)?.location().clone())
    } else {
        access.start(context, directory, path)?
    };
    let mut caller = access.caller();
    if stays_in_directory {
        if !start.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        caller.root = &start;
    }
    let description = match access.namespace().open(&caller, &start, path, &how) {
        Err(Errno::ENXIO) => terminal::open_controlling(context, &access, &start, path, &how)?,
        Err(Errno::EAGAIN) if flags & O_NONBLOCK == 0 => {
            after_leases(context, || access.namespace().open(&caller, &start, path, &how))?
        }
        outcome => outcome?,
    };
    if flags & O_TRUNC != 0 && description.inode().kind() == FileKind::Regular {
        file_cut::cut(context.system, description.inode(), 0);
    }
    if !description.is_plain() {
        terminal::adopt(context, &description, flags)?;
        wait_for_other_end(context, &description)?;
    }
    context.process.files.add(description, flags & O_CLOEXEC != 0)
}

/// Tries again and again while a lease is in the way.
#[cold]
pub(super) fn after_leases<T>(context: &mut Context<'_>, mut act: impl FnMut() -> Result<T>) -> Result<T> {
    const LOOK_NS: u64 = 1_000_000_000;
    context.restart = Restart::UnlessHandlerForbids;
    let locks = context.system.files.namespace.locks().clone();
    let _watching = context.watch(locks.wait_queue(), Readiness::all());
    loop {
        match act() {
            // The table tells of leases that are given up; time that is over shows at the next look.
            Err(Errno::EAGAIN) => context.wait(Some(context.now_ns() + LOOK_NS))?,
            outcome => return outcome,
        }
    }
}

/// A named pipe is open when both ends are there.
fn wait_for_other_end(context: &mut Context<'_>, description: &Arc<Description>) -> Result<()> {
    context.restart = Restart::UnlessHandlerForbids;
    let _watching = description.wait_queue().map(|queue| context.watch(queue, Readiness::all()));
    while !description.is_connected() {
        context.wait(None)?;
    }
    Ok(())
}

/// `open(2)`.
pub fn open(context: &mut Context<'_>, [path, flags, mode, ..]: Arguments) -> Result<u64> {
    openat(context, [AT_FDCWD as u64, path, flags, mode, 0, 0])
}

/// `creat(2)`.
pub fn creat(context: &mut Context<'_>, [path, mode, ..]: Arguments) -> Result<u64> {
    open(context, [path, O_CREAT | O_TRUNC | O_WRONLY, mode, 0, 0, 0])
}

/// `openat(2)`: flags without a meaning are passed over, as are those that `O_PATH` does not go with.
pub fn openat(context: &mut Context<'_>, [directory, path, flags, mode, ..]: Arguments) -> Result<u64> {
    let mut flags = u64::from(flags as u32) & abi::O_KNOWN;
    if flags & O_PATH != 0 {
        flags &= abi::O_WITH_PATH_ONLY;
    }
    open_with(context, [directory, path, flags, mode & S_IALLUGO], Restriction::empty())
}

/// `openat2(2)`: as `openat`, but what has no meaning is `EINVAL`.
pub fn openat2(context: &mut Context<'_>, [directory, path, how, size, ..]: Arguments) -> Result<u64> {
    const HOW_BYTES: u64 = 24;
    const RESOLVE_KNOWN: u64 = 0x3f;
    if size < HOW_BYTES {
        return Err(Errno::EINVAL);
    }
    let bytes = read_vec(context.memory, how, size, 4096).map_err(|error| match error {
        Errno::EINVAL => Errno::E2BIG,
        error => error,
    })?;
    if bytes.iter().skip(HOW_BYTES as usize).any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    let (flags, mode) = (get::u64(&bytes, 0), get::u64(&bytes, 8));
    let resolve = get::u64(&bytes, 16);
    let creates = flags & (O_CREAT | __O_TMPFILE) != 0;
    // The numbers are those of `Restriction`.
    let restriction = Restriction::from_bits_truncate(resolve as u32);
    let is_bad = flags & !abi::O_KNOWN != 0
        || resolve & !RESOLVE_KNOWN != 0
        || restriction.contains(Restriction::BENEATH | Restriction::IN_ROOT)
        || (creates && mode & !S_IALLUGO != 0)
        || (!creates && mode != 0)
        || (flags & O_PATH != 0 && flags & !abi::O_WITH_PATH_ONLY != 0);
    if is_bad {
        return Err(Errno::EINVAL);
    }
    if resolve & RESOLVE_CACHED != 0 {
        // "Not without looking further": the caller asks again without the flag.
        return Err(Errno::EAGAIN);
    }
    open_with(context, [directory, path, flags, mode], restriction)
}

/// `close(2)`.
pub fn close(context: &mut Context<'_>, [descriptor, ..]: Arguments) -> Result<u64> {
    let closed = context.process.files.table().remove(descriptor as u32)?;
    inet_socket::release(context, closed);
    Ok(0)
}

/// `close_range(2)`.
pub fn close_range(context: &mut Context<'_>, [first, last, flags, ..]: Arguments) -> Result<u64> {
    // CLOSE_RANGE_UNSHARE: the table is not shared.
    const CLOSE_RANGE_UNSHARE: u64 = 2;
    const CLOSE_RANGE_CLOEXEC: u64 = 4;
    if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let files = &context.process.files;
    let (mut first, last, only_marks) = (first as u32, last as u32, flags & CLOSE_RANGE_CLOEXEC != 0);
    if first > last {
        return Err(Errno::EINVAL);
    }
    loop {
        // As many as are open at the most: beyond the table is nothing to close.
        let size = files.table().size() as u32;
        let end = last.min(first.saturating_add(PIECE_COUNT as u32));
        let closed = files.table().remove_range(first, end, only_marks)?;
        let mut pace = Pace::default();
        for description in closed {
            inet_socket::release(context, description);
            pace.offer_page();
        }
        if end == last || end >= size {
            return Ok(0);
        }
        preempt::offer();
        first = end + 1;
    }
}

/// `dup(2)`.
pub fn dup(context: &mut Context<'_>, [descriptor, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    context.process.files.add(description, false)
}

/// `dup2(2)`.
pub fn dup2(context: &mut Context<'_>, [old, new, ..]: Arguments) -> Result<u64> {
    if old as u32 == new as u32 {
        context.process.files.get(old)?;
        return Ok(u64::from(new as u32));
    }
    duplicate_to(context, old, new, false)
}

/// `dup3(2)`.
pub fn dup3(context: &mut Context<'_>, [old, new, flags, ..]: Arguments) -> Result<u64> {
    if flags & !O_CLOEXEC != 0 || old as u32 == new as u32 {
        return Err(Errno::EINVAL);
    }
    duplicate_to(context, old, new, flags != 0)
}

fn duplicate_to(context: &mut Context<'_>, old: u64, new: u64, close_on_exec: bool) -> Result<u64> {
    let files = &context.process.files;
    let (old, new) = (old as u32, new as u32);
    let limit = files.descriptor_limit();
    let replaced = files.table().duplicate_to(old, new, close_on_exec, limit)?;
    if let Some(replaced) = replaced {
        inet_socket::release(context, replaced);
    }
    Ok(u64::from(new))
}

/// `pipe(2)`.
pub fn pipe(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    pipe2(context, [address, 0, 0, 0, 0, 0])
}

/// `pipe2(2)`.
pub fn pipe2(context: &mut Context<'_>, [address, flags, ..]: Arguments) -> Result<u64> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let status = abi::status_flags(flags);
    let close_on_exec = flags & O_CLOEXEC != 0;
    let now = crate::file::paths::now(context);
    let owner = context.thread.identities.lock().owner();
    let (reader, writer) = context.system.files.namespace.pipe(status, owner, now);
    let files = &context.process.files;
    let reader = files.add(reader, close_on_exec)?;
    let outcome = files.add(writer, close_on_exec).and_then(|writer| {
        let pair = reader | writer << 32;
        let outcome = write_all(context.memory, address, &pair.to_le_bytes());
        if outcome.is_err() {
            drop(files.table().remove(writer as u32));
        }
        outcome
    });
    if outcome.is_err() {
        drop(files.table().remove(reader as u32));
    }
    outcome.map(|()| 0)
}

/// `eventfd(2)` as it was first.
pub fn eventfd(context: &mut Context<'_>, [value, ..]: Arguments) -> Result<u64> {
    eventfd2(context, [value, 0, 0, 0, 0, 0])
}

/// `eventfd2(2)`.
pub fn eventfd2(context: &mut Context<'_>, [value, flags, ..]: Arguments) -> Result<u64> {
    if flags & !(EFD_SEMAPHORE | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let status = abi::status_flags(flags);
    let now = crate::file::paths::now(context);
    let namespace = &context.system.files.namespace;
    let description = namespace.event_counter(value as u32, flags & EFD_SEMAPHORE != 0, status, now);
    context.process.files.add(description, flags & O_CLOEXEC != 0)
}

/// `memfd_create(2)`.
pub fn memfd_create(context: &mut Context<'_>, [name, flags, ..]: Arguments) -> Result<u64> {
    /// What is left of a file's name behind `memfd:`.
    const NAME_BYTES: usize = 249;
    let runs = MFD_NOEXEC_SEAL | MFD_EXEC;
    if flags & !(MFD_CLOEXEC | MFD_ALLOW_SEALING | runs) != 0 || flags & runs == runs {
        return Err(Errno::EINVAL);
    }
    let name: Vec<u8> = read_string(context.memory, name, NAME_BYTES, Errno::EINVAL)?;
    // A file that may not be run can be sealed, as it is against that from the start.
    let seals = match flags & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL) {
        0 => Seals::SEAL,
        MFD_ALLOW_SEALING => Seals::empty(),
        _ => Seals::EXECUTE,
    };
    let permissions = if flags & MFD_NOEXEC_SEAL != 0 { 0o666 } else { 0o777 };
    let (uid, gid) = {
        let identities = context.thread.identities.lock();
        (identities.uid[3], identities.gid[3])
    };
    let creation = Creation { permissions, uid, gid, now: crate::file::paths::now(context) };
    let files = &context.system.files;
    let description = files.namespace.memory_file(&files.temporary, &name, seals, creation)?;
    context.process.files.add(description, flags & MFD_CLOEXEC != 0)
}

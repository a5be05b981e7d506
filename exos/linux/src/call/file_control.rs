//! What can be done with a descriptor besides moving bytes: `fcntl`, `flock`, `ioctl`.

use alloc::sync::Arc;

use exos::block::file::DiskFile;
use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::file_lock::{HeldLock, LockFamily, LockKind, LockOwner, LockRange};
use exos::fs::metadata::FileKind;
use exos::fs::namespace::PSEUDO_DEVICE;
use exos::fs::readiness::Readiness;
use exos::fs::seals::Seals;
use exos::fs::terminal::modes::Terminal;
use exos::fs::terminal::tty::Side;
use exos::mem::FileIdentity;
use exos::net::SocketFile;
use exos::task::capability::Capability;

use super::{block_control, file_owner, interface_control};
use crate::abi::bytes::{Encoder, get};
use crate::abi::file::{self as abi, request};
use crate::abi::linux::{
    F_ADD_SEALS, F_DUPFD, F_DUPFD_CLOEXEC, F_DUPFD_QUERY, F_GET_SEALS, F_GETFD, F_GETFL, F_GETLK, F_GETPIPE_SZ,
    F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_SETFD, F_SETFL, F_SETLK, F_SETLKW, F_SETPIPE_SZ, F_UNLCK,
    F_WRLCK, FD_CLOEXEC, FICLONE, FICLONERANGE, FIGETBSZ, FIOASYNC, FIOCLEX, FIOGETOWN, FIONBIO, FIONCLEX, FIONREAD,
    FIOQSIZE, FIOSETOWN, LOCK_EX, LOCK_MAND, LOCK_NB, LOCK_SH, LOCK_UN, O_LARGEFILE, SIOCGPGRP, SIOCSPGRP, TCGETA,
    TCGETS, TCGETS2, TIOCGLCKTRMIOS, TIOCGPGRP, TIOCGSID, TIOCGWINSZ, TIOCOUTQ, TIOCSCTTY, TIOCSPGRP, TIOCSWINSZ,
};
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::caller::Restart;

entries! {
    fcntl(Descriptor, Word(FCNTL_COMMANDS), Hex);
    flock(Descriptor, Set(FLOCK_OPERATIONS));
    ioctl(Descriptor, Word(IOCTLS), Pointer): "terminals, interfaces, disks, FIONREAD, SIOCOUTQ, FIONBIO, FIO(N)CLEX";
}

/// Whether a command of `fcntl` asks nothing of what is open there but which flags it has: then it does not wait.
#[must_use]
pub fn is_of_descriptor(command: u64) -> bool {
    matches!(u64::from(command as u32), F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD | F_GETFL | F_DUPFD_QUERY)
}

/// `fcntl(2)`.
pub fn fcntl(context: &mut Context<'_>, [descriptor, command, argument, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    let command = u64::from(command as u32);
    if !is_of_descriptor(command) && description.is_path_only() {
        return Err(Errno::EBADF);
    }
    let files = &context.process.files;
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            let limit = files.descriptor_limit();
            if argument as u32 >= limit {
                return Err(Errno::EINVAL);
            }
            let close_on_exec = command == F_DUPFD_CLOEXEC;
            let added = files.table().add(description, close_on_exec, argument as u32, limit);
            added.map(u64::from)
        }
        F_GETFD => files.table().close_on_exec(descriptor as u32).map(u64::from),
        F_SETFD => {
            let value = argument & FD_CLOEXEC != 0;
            files.table().set_close_on_exec(descriptor as u32, value)?;
            Ok(0)
        }
        F_GETFL => Ok(status_number(&description)),
        F_SETFL => set_status(context, &description, descriptor, argument),
        F_GETLK | F_OFD_GETLK => find_lock(context, &description, command, argument),
        F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW => set_lock(context, &description, command, argument),
        F_GETPIPE_SZ | F_SETPIPE_SZ => {
            let is_privileged = context.can(Capability::SYS_RESOURCE);
            pipe_size(&description, command, argument as u32, is_privileged)
        }
        F_DUPFD_QUERY => {
            let other = files.get(argument)?;
            Ok(u64::from(Arc::ptr_eq(&description, &other)))
        }
        F_GET_SEALS => {
            let seals = description.inode().seals().ok_or(Errno::EINVAL)?;
            Ok(u64::from(seals.get().bits()))
        }
        F_ADD_SEALS => add_seals(context, &description, argument as u32),
        _ => {
            let answer = file_owner::control(context, &description, descriptor, [command, argument]);
            answer.unwrap_or(Err(Errno::EINVAL))
        }
    }
}

/// `F_GETPIPE_SZ` and `F_SETPIPE_SZ`. `EBADF`: not a pipe.
fn pipe_size(description: &Description, command: u64, wanted: u32, is_privileged: bool) -> Result<u64> {
    let pipe = description.pipe().ok_or(Errno::EBADF)?;
    let capacity = match command {
        F_GETPIPE_SZ => pipe.capacity_bytes(),
        _ if wanted > 1 << 31 => return Err(Errno::EINVAL),
        _ => pipe.set_capacity_bytes(wanted as usize, is_privileged)?,
    };
    Ok(capacity as u64)
}

/// `F_ADD_SEALS`.
fn add_seals(context: &Context<'_>, description: &Description, wanted: u32) -> Result<u64> {
    if !description.is_writable() {
        return Err(Errno::EPERM);
    }
    let mut wanted = Seals::from_bits(wanted).ok_or(Errno::EINVAL)?;
    if wanted.contains(Seals::EXECUTE) && description.metadata().permissions & 0o111 != 0 {
        // What can be run for ever is what was there then.
        wanted |= Seals::SHRINK | Seals::GROW | Seals::WRITE | Seals::FUTURE_WRITE;
    }
    let file = description.inode().seals().ok_or(Errno::EINVAL)?;
    let before = file.get();
    let ends_stores = wanted.contains(Seals::WRITE) && !before.contains(Seals::WRITE);
    if ends_stores && !before.contains(Seals::SEAL) && takes_stores(context, description) {
        return Err(Errno::EBUSY);
    }
    file.add(wanted)?;
    Ok(0)
}

/// Whether some process maps a file so that it may store into it.
fn takes_stores(context: &Context<'_>, description: &Description) -> bool {
    let metadata = description.metadata();
    let identity = FileIdentity { device: metadata.device.encoded(), inode: metadata.inode_number };
    context.system.processes.all().any(|process| {
        let memory = process.space();
        let space = memory.lock();
        space.areas().any(|area| area.takes_stores() && area.identity() == identity)
    })
}

/// `F_GETFL`'s answer. Everything that was opened by a path shows `O_LARGEFILE`.
fn status_number(description: &Description) -> u64 {
    let status = description.status();
    let access = match (description.is_readable(), description.is_writable()) {
        (false, false) if !status.contains(StatusFlags::PATH_ONLY) => 3,
        (_, false) => 0,
        (false, true) => 1,
        (true, true) => 2,
    };
    let is_named = description.inode().device() != PSEUDO_DEVICE;
    let is_large = is_named && !status.contains(StatusFlags::PATH_ONLY);
    abi::status_number(status) | access | if is_large { O_LARGEFILE } else { 0 }
}

fn set_status(context: &Context<'_>, description: &Arc<Description>, descriptor: u64, flags: u64) -> Result<u64> {
    let mut wanted = abi::status_flags(flags);
    if wanted.contains(StatusFlags::ASYNC) && !file_owner::can_signal(description) {
        wanted -= StatusFlags::ASYNC;
    }
    let becomes_silent =
        wanted.contains(StatusFlags::NO_ACCESS_TIME) && !description.status().contains(StatusFlags::NO_ACCESS_TIME);
    if becomes_silent {
        let credentials = context.thread.identities.lock().for_files();
        if !credentials.owns(description.inode().protection()) {
            return Err(Errno::EPERM);
        }
    }
    if wanted.union(description.status()).contains(StatusFlags::ASYNC) {
        file_owner::set_async(context, description, descriptor, wanted.contains(StatusFlags::ASYNC))?;
    }
    description.set_status(wanted);
    Ok(0)
}

/// Reads the range of a `struct flock`. `EINVAL`, `EOVERFLOW`.
fn lock_range(description: &Description, bytes: &[u8; abi::LOCK_BYTES]) -> Result<LockRange> {
    let base = match get::u16(bytes, 2) {
        0 => 0,
        1 => description.offset() as i64,
        2 => description.metadata().size_bytes as i64,
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add(get::i64(bytes, 8)).ok_or(Errno::EOVERFLOW)?;
    if start < 0 {
        return Err(Errno::EINVAL);
    }
    let length = get::i64(bytes, 16);
    let (first, last) = match length {
        0 => (start, i64::MAX),
        1.. => (start, start.checked_add(length - 1).ok_or(Errno::EOVERFLOW)?),
        // A negative length is the bytes before the start.
        _ => (start.checked_add(length).filter(|first| *first >= 0).ok_or(Errno::EINVAL)?, start - 1),
    };
    let last = if last == i64::MAX { u64::MAX } else { last as u64 };
    Ok(LockRange { start: first as u64, last })
}

/// Whose the locks of `command` are.
fn lock_owner(context: &Context<'_>, description: &Description, command: u64) -> LockOwner {
    if command >= F_OFD_GETLK {
        LockOwner::Description(description.number())
    } else {
        context.process.files.lock_owner()
    }
}

/// Locks of descriptions name no process: `EINVAL` if one is given.
fn check_lock_process(command: u64, bytes: &[u8; abi::LOCK_BYTES]) -> Result<()> {
    let is_given = command >= F_OFD_GETLK && get::i32(bytes, 24) != 0;
    if is_given { Err(Errno::EINVAL) } else { Ok(()) }
}

fn find_lock(context: &Context<'_>, description: &Description, command: u64, address: u64) -> Result<u64> {
    let mut bytes: [u8; abi::LOCK_BYTES] = read_array(context.memory, address)?;
    let kind = match get::u16(&bytes, 0) {
        F_RDLCK => LockKind::Shared,
        F_WRLCK => LockKind::Exclusive,
        _ => return Err(Errno::EINVAL),
    };
    let range = lock_range(description, &bytes)?;
    check_lock_process(command, &bytes)?;
    let owner = lock_owner(context, description, command);
    let wanted = HeldLock { owner, process: context.process.pid, kind, range };
    let (table, file) = description.locks();
    let Some(held) = table.conflict(file, LockFamily::Record, &wanted) else {
        bytes[..2].copy_from_slice(&F_UNLCK.to_le_bytes());
        write_all(context.memory, address, &bytes)?;
        return Ok(0);
    };
    let length = match held.range.last {
        u64::MAX => 0,
        last => last - held.range.start + 1,
    };
    let process = match held.owner {
        LockOwner::Process(_) => held.process as i32,
        LockOwner::Description(_) => -1,
    };
    let answer = Encoder::new()
        .u16(if held.kind == LockKind::Shared { F_RDLCK } else { F_WRLCK })
        .u16(0)
        .zero_to(8)
        .u64(held.range.start)
        .u64(length)
        .i32(process)
        .zero_to(abi::LOCK_BYTES)
        .finish();
    write_all(context.memory, address, &answer)?;
    Ok(0)
}

fn set_lock(context: &mut Context<'_>, description: &Arc<Description>, command: u64, address: u64) -> Result<u64> {
    let bytes: [u8; abi::LOCK_BYTES] = read_array(context.memory, address)?;
    let range = lock_range(description, &bytes)?;
    let kind = match get::u16(&bytes, 0) {
        F_RDLCK => Some(LockKind::Shared),
        F_WRLCK => Some(LockKind::Exclusive),
        F_UNLCK => None,
        _ => return Err(Errno::EINVAL),
    };
    let is_allowed = match kind {
        Some(LockKind::Shared) => description.is_readable(),
        Some(LockKind::Exclusive) => description.is_writable(),
        None => true,
    };
    if !is_allowed {
        return Err(Errno::EBADF);
    }
    check_lock_process(command, &bytes)?;
    let owner = lock_owner(context, description, command);
    let (table, file) = description.locks();
    let Some(kind) = kind else {
        table.unlock(file, LockFamily::Record, owner, range);
        return Ok(0);
    };
    let waits = matches!(command, F_SETLKW | F_OFD_SETLKW);
    let lock = HeldLock { owner, process: context.process.pid, kind, range };
    take_lock(context, description, LockFamily::Record, lock, waits)
}

/// Takes a lock, waiting for others to give theirs up if asked to.
fn take_lock(
    context: &mut Context<'_>,
    description: &Description,
    family: LockFamily,
    lock: HeldLock,
    waits: bool,
) -> Result<u64> {
    context.restart = Restart::UnlessHandlerForbids;
    let (table, file) = description.locks();
    let _watching = waits.then(|| context.watch(table.wait_queue(), Readiness::all()));
    let sees_circles = family == LockFamily::Record && matches!(lock.owner, LockOwner::Process(_));
    loop {
        match table.lock(file, family, lock) {
            Err(Errno::EAGAIN) if waits && sees_circles => {
                let _wait = table.begin_wait(file, lock)?;
                context.wait(None)?;
            }
            Err(Errno::EAGAIN) if waits => context.wait(None)?,
            outcome => return outcome.map(|()| 0),
        }
    }
}

/// `flock(2)`.
pub fn flock(context: &mut Context<'_>, [descriptor, operation, ..]: Arguments) -> Result<u64> {
    if operation & LOCK_MAND != 0 {
        // Locks that keep others from reading or writing are gone from Linux too, which says so in its log alone, and
        // looks at nothing else.
        return Ok(0);
    }
    let kind = match u64::from(operation as u32) & !LOCK_NB {
        LOCK_SH => Some(LockKind::Shared),
        LOCK_EX => Some(LockKind::Exclusive),
        LOCK_UN => None,
        _ => return Err(Errno::EINVAL),
    };
    let description = context.process.files.get(descriptor)?;
    if kind.is_some() && !description.is_readable() && !description.is_writable() || description.is_path_only() {
        return Err(Errno::EBADF);
    }
    let owner = LockOwner::Description(description.number());
    let (table, file) = description.locks();
    let Some(kind) = kind else {
        table.unlock(file, LockFamily::Whole, owner, LockRange::ALL);
        return Ok(0);
    };
    let lock = HeldLock { owner, process: context.process.pid, kind, range: LockRange::ALL };
    let waits = operation & LOCK_NB == 0;
    take_lock(context, &description, LockFamily::Whole, lock, waits)
}

/// `ioctl(2)`.
pub fn ioctl(context: &mut Context<'_>, [descriptor, number, argument, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    let files = &context.process.files;
    match number as u32 {
        FIOCLEX => files.table().set_close_on_exec(descriptor as u32, true)?,
        FIONCLEX => files.table().set_close_on_exec(descriptor as u32, false)?,
        FIONBIO => {
            let value = i32::from_le_bytes(read_array(context.memory, argument)?);
            let mut status = description.status();
            status.set(StatusFlags::NON_BLOCKING, value != 0);
            description.set_status(status);
        }
        FIOASYNC => set_async(context, &description, descriptor, argument)?,
        FIOSETOWN | SIOCSPGRP if description.extension::<SocketFile>().is_some() => {
            let owner = i32::from_le_bytes(read_array(context.memory, argument)?);
            file_owner::set_owner(context, &description, owner)?;
        }
        FIOGETOWN | SIOCGPGRP if description.extension::<SocketFile>().is_some() => {
            let owner = file_owner::owner_number(&description) as i32;
            write_all(context.memory, argument, &owner.to_le_bytes())?;
        }
        FIONREAD if description.terminal_side().is_some_and(Side::is_hung_up) => {
            return Err(Errno::EIO);
        }
        FIONREAD => {
            let count = match description.extension::<SocketFile>() {
                Some(file) => file.socket().readable_bytes()?,
                None if is_stored(&description) => left_to_read(&description),
                None => description.readable_byte_count()?,
            };
            write_all(context.memory, argument, &(count as u32).to_le_bytes())?;
        }
        FIOQSIZE if has_blocks(&description) || description.inode().kind() == FileKind::Symlink => {
            // What the file takes, not how long it is.
            write_all(context.memory, argument, &(description.metadata().block_count * 512).to_le_bytes())?;
        }
        FICLONE | FICLONERANGE => return clone_file(context, &description, number, argument),
        FIGETBSZ if has_blocks(&description) => {
            write_all(context.memory, argument, &4096u32.to_le_bytes())?;
        }
        TIOCOUTQ if description.extension::<SocketFile>().is_some() => {
            let file = description.extension::<SocketFile>();
            let count = file.map_or(Ok(0), |file| file.socket().unreceived_bytes())?;
            write_all(context.memory, argument, &(count as u32).to_le_bytes())?;
        }
        other => {
            if let Some(file) = description.disk::<DiskFile>()
                && let Some(outcome) = block_control::request(context, &description, file, other, argument)
            {
                return outcome.map(|()| 0);
            }
            if let Some(file) = description.extension::<SocketFile>()
                && let Some(outcome) = interface_control::control(context, file.socket(), other, argument)
            {
                return outcome.map(|()| 0);
            }
            return match description.terminal_side() {
                Some(side) => super::terminal::request(context, &description, side, other, argument),
                None => terminal_request(context, description.terminal()?, other, argument).map(|()| 0),
            };
        }
    }
    Ok(0)
}

/// Whether the file has a length, even if it is made up as it is read.
fn is_stored(description: &Description) -> bool {
    description.inode().kind() == FileKind::Regular && description.inode().device() != PSEUDO_DEVICE
}

/// `FIONREAD` of a file, which is less than nothing behind its end and counts modulo 2^32.
fn left_to_read(description: &Description) -> usize {
    description.metadata().size_bytes.wrapping_sub(description.offset()) as usize
}

/// `FICLONE`, `FICLONERANGE`: no file system here has files that share blocks.
fn clone_file(context: &Context<'_>, description: &Description, number: u64, argument: u64) -> Result<u64> {
    let source = match number as u32 {
        FICLONE => argument as i32,
        _ => {
            let bytes: [u8; 32] = read_array(context.memory, argument)?;
            get::i32(&bytes, 0)
        }
    };
    let source = context.process.files.get(source as u64)?;
    if source.inode().device() != description.inode().device() {
        return Err(Errno::EXDEV);
    }
    match (source.inode().kind(), description.inode().kind()) {
        (FileKind::Directory, _) | (_, FileKind::Directory) => Err(Errno::EISDIR),
        (FileKind::Regular, FileKind::Regular) if source.is_readable() && description.is_writable() => {
            Err(Errno::EOPNOTSUPP)
        }
        (FileKind::Regular, FileKind::Regular) => Err(Errno::EBADF),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether the file is kept in blocks of a file system.
fn has_blocks(description: &Description) -> bool {
    matches!(description.inode().kind(), FileKind::Regular | FileKind::Directory)
}

/// `FIOASYNC`. `ENOTTY`: the file has no changes to signal.
fn set_async(context: &Context<'_>, description: &Arc<Description>, descriptor: u64, address: u64) -> Result<()> {
    let is_wanted = i32::from_le_bytes(read_array(context.memory, address)?) != 0;
    let mut status = description.status();
    if status.contains(StatusFlags::ASYNC) == is_wanted {
        return Ok(());
    }
    if !file_owner::can_signal(description) {
        return Err(Errno::ENOTTY);
    }
    file_owner::set_async(context, description, descriptor, is_wanted)?;
    status.set(StatusFlags::ASYNC, is_wanted);
    description.set_status(status);
    Ok(())
}

/// What only terminals answer.
pub(super) fn terminal_request(
    context: &Context<'_>,
    terminal: &dyn Terminal,
    number: u32,
    address: u64,
) -> Result<()> {
    let memory = context.memory;
    match number {
        TCGETS => write_all(memory, address, &abi::terminal_modes(&terminal.modes())),
        number if request::SET_MODES.contains(&number) => {
            terminal.set_modes(abi::read_terminal_modes(&read_array(memory, address)?));
            Ok(())
        }
        TCGETA => write_all(memory, address, &abi::short_terminal_modes(&terminal.modes())),
        number if request::SET_SHORT_MODES.contains(&number) => {
            let mut modes = terminal.modes();
            abi::read_short_terminal_modes(&read_array(memory, address)?, &mut modes);
            terminal.set_modes(modes);
            Ok(())
        }
        // Nobody can lock modes, so none are.
        TIOCGLCKTRMIOS => write_all(memory, address, &[0; 36]),
        TCGETS2 => {
            // Both speeds are 38400 baud, as B38400 in c_cflag says.
            let mut bytes = abi::terminal_modes(&terminal.modes());
            bytes.extend_from_slice(&[38_400u32.to_le_bytes(); 2].concat());
            write_all(memory, address, &bytes)
        }
        number if request::SET_MODES_2.contains(&number) => {
            let bytes: [u8; 44] = read_array(memory, address)?;
            let mut modes = [0; 36];
            modes.copy_from_slice(&bytes[..36]);
            terminal.set_modes(abi::read_terminal_modes(&modes));
            Ok(())
        }
        number if request::LINE_CONTROL.contains(&number) => Ok(()),
        TIOCSCTTY => Ok(()),
        TIOCGWINSZ => write_all(memory, address, &abi::window_size(terminal.window_size())),
        TIOCSWINSZ => {
            terminal.set_window_size(abi::read_window_size(&read_array(memory, address)?));
            Ok(())
        }
        TIOCGPGRP => {
            let group = match terminal.foreground_group() {
                0 => *context.process.group.lock(),
                group => group,
            };
            write_all(memory, address, &group.to_le_bytes())
        }
        TIOCSPGRP => {
            let group = i32::from_le_bytes(read_array(memory, address)?);
            match u32::try_from(group) {
                Ok(group) => terminal.set_foreground_group(group),
                Err(_) => return Err(Errno::EINVAL),
            }
            Ok(())
        }
        TIOCGSID => {
            let session = *context.process.session.lock();
            write_all(memory, address, &session.to_le_bytes())
        }
        _ => Err(Errno::ENOTTY),
    }
}

//! Owners of files, leases and notices of directories: `F_SETOWN`, `F_SETOWN_EX`, `F_SETSIG`, `F_SETLEASE`, `F_NOTIFY`.

use alloc::sync::{Arc, Weak};

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::file_lock::{LockKind, LockedFile};
use exos::fs::metadata::FileKind;
use exos::fs::readiness::Waiter;
use exos::fs::watch::Watcher;
use exos::net::SocketFile;
use exos::reserve;
use exos::task::capability::Capability;
use exos::task::signal::Signal;

use crate::abi::bytes::get;
use crate::abi::linux::{
    DN_MULTISHOT, F_GETLEASE, F_GETOWN, F_GETOWN_EX, F_GETSIG, F_NOTIFY, F_RDLCK, F_SETLEASE, F_SETOWN, F_SETOWN_EX,
    F_SETSIG, F_UNLCK, F_WRLCK,
};
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::Context;
use crate::file::owner::{FileOwner, Kind};

/// Those of `fcntl`'s commands that this family answers; `None`: another's.
pub(super) fn control(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    descriptor: u64,
    [command, argument]: [u64; 2],
) -> Option<Result<u64>> {
    Some(match command {
        F_SETOWN => set_owner(context, description, argument as i32),
        F_GETOWN => Ok(owner_number(description) as u64),
        F_SETOWN_EX => set_owner_kind(context, description, argument),
        F_GETOWN_EX => owner_kind(context, description, argument),
        F_SETSIG => set_signal(context, description, argument),
        F_GETSIG => {
            let signal = FileOwner::of(description).and_then(|owner| owner.signal());
            Ok(signal.map_or(0, |signal| u64::from(signal.number())))
        }
        F_SETLEASE => set_lease(context, description, descriptor, argument),
        F_GETLEASE => {
            let lease = description.locks().0.lease(description.number());
            Ok(u64::from(match lease {
                Some(LockKind::Shared) => F_RDLCK,
                Some(LockKind::Exclusive) => F_WRLCK,
                None => F_UNLCK,
            }))
        }
        F_NOTIFY => notify(context, description, descriptor, argument as u32),
        _ => return None,
    })
}

/// Whether the file tells of its readiness by a signal at all: pipes, sockets, terminals and watchers do.
pub(super) fn can_signal(description: &Description) -> bool {
    description.pipe().is_some()
        || description.terminal_side().is_some()
        || description.terminal().is_ok()
        || description.extension::<SocketFile>().is_some()
        || description.extension::<Watcher>().is_some()
}

/// `O_ASYNC` was set or cleared.
pub(super) fn set_async(
    context: &Context<'_>,
    description: &Arc<Description>,
    descriptor: u64,
    is_wanted: bool,
) -> Result<()> {
    if is_wanted {
        reserve::check()?;
        let owner = FileOwner::made_for(context, description)?;
        if description.terminal().is_ok() || description.terminal_side().is_some() {
            owner.set_default_owner(context);
        }
        owner.set_async(description, descriptor, true);
    } else if let Some(owner) = FileOwner::of(description) {
        owner.set_async(description, descriptor, false);
    }
    Ok(())
}

/// Checks that somebody has the number. `ESRCH`.
fn name(context: &Context<'_>, description: &Description, kind: Kind, number: u32) -> Result<u64> {
    let processes = &context.system.processes;
    let is_there = match kind {
        _ if number == 0 => true,
        Kind::Group => processes.in_group(number).next().is_some(),
        Kind::Process | Kind::Thread => processes.named(number).is_some(),
    };
    if !is_there {
        return Err(Errno::ESRCH);
    }
    FileOwner::made_for(context, description)?.set_owner(context, kind, number);
    Ok(0)
}

/// `F_SETOWN`: a group's number is negative.
pub(super) fn set_owner(context: &Context<'_>, description: &Description, number: i32) -> Result<u64> {
    match number {
        ..0 if number == i32::MIN => Err(Errno::EINVAL),
        ..0 => name(context, description, Kind::Group, number.unsigned_abs()),
        _ => name(context, description, Kind::Process, number.unsigned_abs()),
    }
}

/// `F_GETOWN`.
pub(super) fn owner_number(description: &Description) -> i64 {
    let owner = FileOwner::of(description).map(|owner| owner.owner()).unwrap_or_default();
    if owner.kind == Kind::Group { -i64::from(owner.number) } else { i64::from(owner.number) }
}

fn set_owner_kind(context: &Context<'_>, description: &Description, address: u64) -> Result<u64> {
    let bytes: [u8; 8] = read_array(context.memory, address)?;
    let kind = match get::i32(&bytes, 0) {
        0 => Kind::Thread,
        1 => Kind::Process,
        2 => Kind::Group,
        _ => return Err(Errno::EINVAL),
    };
    let number = u32::try_from(get::i32(&bytes, 4)).map_err(|_| Errno::ESRCH)?;
    name(context, description, kind, number)
}

fn owner_kind(context: &Context<'_>, description: &Description, address: u64) -> Result<u64> {
    let owner = FileOwner::of(description).map(|owner| owner.owner()).unwrap_or_default();
    let words = [owner.kind as u32, owner.number];
    write_all(context.memory, address, &words.map(u32::to_le_bytes).concat())?;
    Ok(0)
}

fn set_signal(context: &Context<'_>, description: &Description, number: u64) -> Result<u64> {
    let signal = if number == 0 { None } else { Some(Signal::new(number)?) };
    if signal.is_some() || FileOwner::of(description).is_some() {
        FileOwner::made_for(context, description)?.set_signal(signal);
    }
    Ok(0)
}

/// `F_SETLEASE`.
fn set_lease(context: &Context<'_>, description: &Arc<Description>, descriptor: u64, kind: u64) -> Result<u64> {
    let kind = match u16::try_from(kind).map_err(|_| Errno::EINVAL)? {
        F_RDLCK => Some(LockKind::Shared),
        F_WRLCK => Some(LockKind::Exclusive),
        F_UNLCK => None,
        _ => return Err(Errno::EINVAL),
    };
    let (table, file) = description.locks();
    let Some(kind) = kind else {
        return if table.end_lease(description.number()) { Ok(0) } else { Err(Errno::EAGAIN) };
    };
    let metadata = description.metadata();
    let is_owner = context.thread.identities.lock().uid[3] == metadata.uid;
    if !is_owner && !context.can(Capability::LEASE) {
        return Err(Errno::EACCES);
    }
    if metadata.kind != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    let is_in_way = match kind {
        LockKind::Shared => description.inode().users().is_some_and(|users| users.is_written()),
        LockKind::Exclusive => is_open_elsewhere(context, description, file),
    };
    if is_in_way {
        return Err(Errno::EAGAIN);
    }
    let owner = FileOwner::made_for(context, description)?;
    owner.set_default_owner(context);
    owner.set_descriptor(descriptor);
    let holder: Weak<dyn Waiter> = Arc::<FileOwner>::downgrade(&owner);
    table.set_lease(file, description.number(), kind, holder)?;
    Ok(0)
}

/// Whether a file is open by another description of some process.
fn is_open_elsewhere(context: &Context<'_>, description: &Description, file: LockedFile) -> bool {
    context.system.processes.all().any(|process| {
        let table = process.files.table();
        let others: alloc::vec::Vec<_> = table.numbers().filter_map(|number| table.get(number).ok()).collect();
        drop(table);
        let is_other = |other: &Arc<Description>| other.number() != description.number() && !other.is_path_only();
        others.iter().any(|other| is_other(other) && LockedFile::from(&other.metadata()) == file)
    })
}

/// `F_NOTIFY`.
fn notify(context: &Context<'_>, description: &Description, descriptor: u64, wanted: u32) -> Result<u64> {
    if description.inode().kind() != FileKind::Directory {
        // That nothing is wanted is true of every file.
        return if wanted & !DN_MULTISHOT == 0 { Ok(0) } else { Err(Errno::ENOTDIR) };
    }
    let owner = FileOwner::made_for(context, description)?;
    owner.set_default_owner(context);
    owner.set_descriptor(descriptor);
    owner.set_notices(context, description, wanted)?;
    Ok(0)
}

//! Names: directories and what is in them, links, the working directory.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::SeekFrom;
use exos::fs::location::{Location, MountFlags};
use exos::fs::metadata::{DeviceNumber, FileKind};
use exos::fs::permission::AccessMask;
use exos::fs::vnode::{DirectoryEntry, NewNode, RenameMode};
use exos::fs::walk::LookupFlags;
use exos::preempt::{self, Pace};
use exos::task::capability::Capability;

use crate::abi::linux::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE};
use crate::abi::listing::{EntryForm, Listing};
use crate::abi::user_memory::{Extent, Text, UserWriter, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, now, read_path, read_path_into, start_of};

entries! {
    getdents;
    getdents64(Descriptor, Entries, Size);
    getcwd(TextOut, Size);
    chdir(Path);
    fchdir(Descriptor);
    chroot(Path);
    readlink(Path, BufferOut, Size);
    readlinkat(At, Path, BufferOut, Size);
    mkdir(Path, Mode);
    mkdirat(At, Path, Mode);
    rmdir(Path);
    unlink(Path);
    unlinkat(At, Path, Set(UNLINK_FLAGS));
    rename(Path, Path);
    renameat(At, Path, At, Path);
    renameat2(At, Path, At, Path, Set(RENAME_FLAGS)): "no RENAME_WHITEOUT";
    link(Path, Path);
    linkat(At, Path, At, Path, Set(AT_FLAGS));
    symlink(Path, Path);
    symlinkat(Path, At, Path);
    mknod(Path, Mode, Device);
    mknodat(At, Path, Mode, Device);
}

const HERE: u64 = AT_FDCWD as u64;
/// Most bytes that one listing returns, whatever room there is.
const LISTING_BYTES_MAX: i32 = 1 << 20;

/// Reads a path and finds where it starts. `ENOENT`: it is empty.
fn target(context: &Context<'_>, directory: u64, path: u64) -> Result<(Location, Text)> {
    let path = read_path(context, path)?;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    Ok((start_of(context, directory, &path)?, path))
}

fn list(context: &mut Context<'_>, [descriptor, address, room]: [u64; 3], form: EntryForm) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    if description.is_listed(|| now(context)) {
        return Ok(0);
    }
    // As on Linux, so much room that it is a negative number is none.
    let room_bytes = (room as i32).clamp(0, LISTING_BYTES_MAX) as usize;
    let root = context.process.files.root();
    let before = description.offset();
    let mut listing = Listing::new(form, room_bytes);
    let mut is_refused = false;
    let mut pace = Pace::default();
    let consumer = |entry: DirectoryEntry<'_>| {
        if pace.is_due() && preempt::unless_signalled().is_err() {
            // As on Linux, what there is comes first.
            return false;
        }
        let fits = listing.push(&entry);
        is_refused |= !fits;
        fits
    };
    description.read_directory(&root, consumer, now(context))?;
    if listing.byte_count() == 0 {
        // Not even the first entry fits, or there is none left.
        return if is_refused { Err(Errno::EINVAL) } else { Ok(0) };
    }
    let extents = [Extent { address, length: listing.byte_count() as u64 }];
    let (count, next) = listing.write(&mut UserWriter::new(context.memory, &extents));
    if count < listing.byte_count() {
        let _ = description.seek(SeekFrom::Start(next.unwrap_or(before) as i64));
    }
    if count == 0 { Err(Errno::EFAULT) } else { Ok(count as u64) }
}

/// `getdents(2)` of old.
pub fn getdents(context: &mut Context<'_>, [descriptor, address, room, ..]: Arguments) -> Result<u64> {
    list(context, [descriptor, address, room], EntryForm::Old)
}

/// `getdents64(2)`.
pub fn getdents64(context: &mut Context<'_>, [descriptor, address, room, ..]: Arguments) -> Result<u64> {
    list(context, [descriptor, address, room], EntryForm::Wide)
}

/// `getcwd(2)` of the kernel, which returns the length with the zero byte.
pub fn getcwd(context: &mut Context<'_>, [address, size, ..]: Arguments) -> Result<u64> {
    let current = context.process.files.current();
    if current.is_deleted() {
        return Err(Errno::ENOENT);
    }
    let mut path = current.path_from(&context.process.files.root());
    path.push(0);
    if path.len() > 4096 {
        return Err(Errno::ENAMETOOLONG);
    }
    if (path.len() as u64) > size {
        return Err(Errno::ERANGE);
    }
    write_all(context.memory, address, &path)?;
    Ok(path.len() as u64)
}

/// The directory at a path, which one may search.
fn directory_at(context: &Context<'_>, path: u64) -> Result<Location> {
    let (start, path) = target(context, HERE, path)?;
    let access = Access::new(context);
    let caller = access.caller();
    let location = access.namespace().lookup(&caller, &start, &path, LookupFlags::DIRECTORY)?;
    caller.check(&location, AccessMask::EXECUTE)?;
    Ok(location)
}

/// `chdir(2)`.
pub fn chdir(context: &mut Context<'_>, [path, ..]: Arguments) -> Result<u64> {
    let location = directory_at(context, path)?;
    drop(context.process.files.set_current(location));
    Ok(0)
}

/// `fchdir(2)`.
pub fn fchdir(context: &mut Context<'_>, [descriptor, ..]: Arguments) -> Result<u64> {
    let location = context.process.files.get(descriptor)?.location().clone();
    if !location.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    // One about a process that has ended is not entered.
    location.inode().check_search()?;
    Access::new(context).caller().check(&location, AccessMask::EXECUTE)?;
    drop(context.process.files.set_current(location));
    Ok(0)
}

/// `chroot(2)`.
pub fn chroot(context: &mut Context<'_>, [path, ..]: Arguments) -> Result<u64> {
    let location = directory_at(context, path)?;
    if !context.can(Capability::SYS_CHROOT) {
        return Err(Errno::EPERM);
    }
    drop(context.process.files.set_root(location));
    Ok(0)
}

/// The link to the caller's program, which each static program of glibc reads when it starts.
const OWN_PROGRAM: &[u8] = b"/proc/self/exe";

/// Reads [`OWN_PROGRAM`] without a walk through what is made for it. `None`: it is not known at once, or `/proc` is not
/// what it is at first, the file system of processes, every part of which one may search and a process follow its own
/// links of.
fn read_own_program(context: &Context<'_>, access: &Access, address: u64, size: usize) -> Option<Result<u64>> {
    let caller = access.caller();
    let found = access.namespace().lookup(&caller, caller.root, b"/proc", LookupFlags::DIRECTORY).ok()?;
    if !found.is_plain_top_of("proc") {
        return None;
    }
    let image = Arc::clone(&context.process.image.lock());
    let text = image.known_path(access.namespace(), caller.root)?;
    let length = text.len().min(size);
    Some(write_all(context.memory, address, &text[..length]).map(|()| length as u64))
}

/// `readlink(2)`.
pub fn readlink(context: &mut Context<'_>, [path, address, size, ..]: Arguments) -> Result<u64> {
    readlinkat(context, [HERE, path, address, size, 0, 0])
}

/// `readlinkat(2)`: an empty path is the descriptor itself.
pub fn readlinkat(context: &mut Context<'_>, [directory, path, address, size, ..]: Arguments) -> Result<u64> {
    if size as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let path = read_path(context, path)?;
    let access = Access::new(context);
    if *path == *OWN_PROGRAM
        && let Some(length) = read_own_program(context, &access, address, size as i32 as usize)
    {
        return length;
    }
    let start = start_of(context, directory, &path)?;
    let location = access.find(&start, &path, false, true)?;
    let text = access.namespace().link_text(&access.caller(), &location);
    let flags = location.mount().flags();
    if text.is_ok() && !flags.intersects(MountFlags::NO_ACCESS_TIME.union(MountFlags::READ_ONLY)) {
        location.inode().note_access(now(context));
    }
    let text = text.map_err(|error| match error {
        Errno::EINVAL if path.is_empty() => Errno::ENOENT,
        error => error,
    })?;
    let length = text.len().min(size as i32 as usize);
    write_all(context.memory, address, &text[..length])?;
    Ok(length as u64)
}

fn create(context: &Context<'_>, directory: u64, path: u64, node: NewNode<'_>, permissions: u64) -> Result<u64> {
    let (start, path) = target(context, directory, path)?;
    let access = Access::new(context);
    access.namespace().create(&access.caller(), &start, &path, node, permissions as u32)?;
    Ok(0)
}

/// `mkdir(2)`.
pub fn mkdir(context: &mut Context<'_>, [path, mode, ..]: Arguments) -> Result<u64> {
    mkdirat(context, [HERE, path, mode, 0, 0, 0])
}

/// `mkdirat(2)`.
pub fn mkdirat(context: &mut Context<'_>, [directory, path, mode, ..]: Arguments) -> Result<u64> {
    const PERMISSION_MASK: u64 = 0o1777;
    create(context, directory, path, NewNode::Directory, mode & PERMISSION_MASK)
}

/// `mknod(2)`.
pub fn mknod(context: &mut Context<'_>, [path, mode, device, ..]: Arguments) -> Result<u64> {
    mknodat(context, [HERE, path, mode, device, 0, 0])
}

/// `mknodat(2)`.
pub fn mknodat(context: &mut Context<'_>, [directory, path, mode, device, ..]: Arguments) -> Result<u64> {
    const PERMISSION_MASK: u64 = 0o7777;
    let number = DeviceNumber::decoded(device as u32);
    let is = |kind: FileKind| mode as u32 & 0o170_000 == kind.mode_bits();
    let node = if mode as u32 & 0o170_000 == 0 || is(FileKind::Regular) {
        NewNode::Regular
    } else if is(FileKind::CharacterDevice) {
        NewNode::CharacterDevice(number)
    } else if is(FileKind::BlockDevice) {
        NewNode::BlockDevice(number)
    } else if is(FileKind::Fifo) {
        NewNode::Fifo
    } else if is(FileKind::Socket) {
        NewNode::Socket
    } else if is(FileKind::Directory) {
        return Err(Errno::EPERM);
    } else {
        return Err(Errno::EINVAL);
    };
    create(context, directory, path, node, mode & PERMISSION_MASK)
}

/// `symlink(2)`.
pub fn symlink(context: &mut Context<'_>, [text, path, ..]: Arguments) -> Result<u64> {
    symlinkat(context, [text, HERE, path, 0, 0, 0])
}

/// `symlinkat(2)`.
pub fn symlinkat(context: &mut Context<'_>, [text, directory, path, ..]: Arguments) -> Result<u64> {
    let text = read_path(context, text)?;
    if text.is_empty() {
        return Err(Errno::ENOENT);
    }
    create(context, directory, path, NewNode::Symlink(&text), 0o777)
}

/// `rmdir(2)`.
pub fn rmdir(context: &mut Context<'_>, [path, ..]: Arguments) -> Result<u64> {
    unlinkat(context, [HERE, path, AT_REMOVEDIR, 0, 0, 0])
}

/// `unlink(2)`.
pub fn unlink(context: &mut Context<'_>, [path, ..]: Arguments) -> Result<u64> {
    unlinkat(context, [HERE, path, 0, 0, 0, 0])
}

/// `unlinkat(2)`.
pub fn unlinkat(context: &mut Context<'_>, [directory, path, flags, ..]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    if flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let (address, mut path) = (path, Text::default());
    read_path_into(context, address, &mut path)?;
    let path = &*path;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let access = Access::new(context);
    let start = access.start(context, directory, path)?;
    if flags & AT_REMOVEDIR != 0 {
        access.namespace().remove_directory(&access.caller(), &start, path)?;
    } else {
        access.namespace().unlink(&access.caller(), &start, path)?;
    }
    Ok(0)
}

/// `rename(2)`.
pub fn rename(context: &mut Context<'_>, [old, new, ..]: Arguments) -> Result<u64> {
    renameat2(context, [HERE, old, HERE, new, 0, 0])
}

/// `renameat(2)`.
pub fn renameat(context: &mut Context<'_>, [old_directory, old, new_directory, new, ..]: Arguments) -> Result<u64> {
    renameat2(context, [old_directory, old, new_directory, new, 0, 0])
}

/// `renameat2(2)`.
pub fn renameat2(
    context: &mut Context<'_>,
    [old_directory, old, new_directory, new, flags, _]: Arguments,
) -> Result<u64> {
    let mode = match u64::from(flags as u32) {
        0 => RenameMode::Replace,
        RENAME_NOREPLACE => RenameMode::NoReplace,
        RENAME_EXCHANGE => RenameMode::Exchange,
        _ => return Err(Errno::EINVAL),
    };
    let (old_start, old) = target(context, old_directory, old)?;
    let (new_start, new) = target(context, new_directory, new)?;
    let access = Access::new(context);
    access.namespace().rename(&access.caller(), (&old_start, &old), (&new_start, &new), mode)?;
    Ok(0)
}

/// `link(2)`.
pub fn link(context: &mut Context<'_>, [old, new, ..]: Arguments) -> Result<u64> {
    linkat(context, [HERE, old, HERE, new, 0, 0])
}

/// `linkat(2)`.
pub fn linkat(context: &mut Context<'_>, [old_directory, old, new_directory, new, flags, _]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let allows_empty = flags & AT_EMPTY_PATH != 0;
    if allows_empty && !context.can(Capability::DAC_READ_SEARCH) {
        return Err(Errno::ENOENT);
    }
    let old = read_path(context, old)?;
    if old.is_empty() && !allows_empty {
        return Err(Errno::ENOENT);
    }
    let old_start = start_of(context, old_directory, &old)?;
    let access = Access::new(context);
    let existing = access.find(&old_start, &old, flags & AT_SYMLINK_FOLLOW != 0, allows_empty)?;
    let (new_start, new) = target(context, new_directory, new)?;
    access.namespace().link_location(&access.caller(), &existing, (&new_start, &new))?;
    Ok(0)
}

//! Opening and creating files.

use alloc::sync::Arc;

use bitflags::bitflags;

use super::Namespace;
use crate::error::{Errno, Result};
use crate::fs::description::{Description, StatusFlags};
use crate::fs::file_lock::LockedFile;
use crate::fs::location::{Location, MountFlags};
use crate::fs::metadata::{FileKind, Timestamp};
use crate::fs::open_file::{OpenFile, OpenRequest};
use crate::fs::page::check_not_run;
use crate::fs::permission::{AccessMask, MODE_SET_GID};
use crate::fs::vnode::{Creation, InodeRef, NAME_BYTES_MAX, NewNode};
use crate::fs::walk::{Caller, Last, LookupFlags, Restriction, Walk};
use crate::fs::watch::event;
use crate::task::capability::Capability;

/// What a description is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`.
    Read,
    /// `O_WRONLY`.
    Write,
    /// `O_RDWR`.
    ReadWrite,
    /// The access mode 3: it needs the permission to read and to write, and gives neither; for `ioctl`.
    Neither,
}

impl Access {
    pub(super) fn request(self, non_blocking: bool) -> OpenRequest {
        let read = matches!(self, Self::Read | Self::ReadWrite);
        let write = matches!(self, Self::Write | Self::ReadWrite);
        OpenRequest { read, write, non_blocking }
    }

    fn mask(self) -> AccessMask {
        match self {
            Self::Read => AccessMask::READ,
            Self::Write => AccessMask::WRITE,
            Self::ReadWrite | Self::Neither => AccessMask::READ | AccessMask::WRITE,
        }
    }
}

bitflags! {
    /// Flags of `open` that are not kept in the description (open(2)).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// `O_CREAT`.
        const CREATE = 1 << 0;
        /// `O_EXCL`.
        const EXCLUSIVE = 1 << 1;
        /// `O_TRUNC`.
        const TRUNCATE = 1 << 2;
        /// `O_TMPFILE`.
        const UNNAMED = 1 << 3;
        /// Opened to be executed (`execve`): needs the execute permission instead of the read permission.
        const EXECUTE = 1 << 4;
    }
}

/// How to open. `O_DIRECTORY`, `O_NOFOLLOW` and `O_PATH` are in `status`, because `F_GETFL` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// For reading, writing or both.
    pub access: Access,
    /// `O_CREAT`, `O_EXCL` and the others that concern the opening.
    pub flags: OpenFlags,
    /// Status flags that the description keeps.
    pub status: StatusFlags,
    /// Permission bits of a new file, before the umask.
    pub permissions: u32,
    /// Where the walk may not go.
    pub restriction: Restriction,
    /// It starts at a directory that the program holds open ([`Namespace::lookup_once`]).
    pub is_from_descriptor: bool,
}

impl OpenHow {
    /// For reading, nothing special.
    pub const READ: Self = Self {
        access: Access::Read,
        flags: OpenFlags::empty(),
        status: StatusFlags::empty(),
        permissions: 0,
        restriction: Restriction::empty(),
        is_from_descriptor: false,
    };
}

/// The permissions of a new file in a directory that hands its group on: a caller that is not in that group makes no
/// file that runs with its rights.
fn without_foreign_group(caller: &Caller<'_>, parent: &Location, permissions: u32) -> u32 {
    const GROUP_RUNS: u32 = MODE_SET_GID | 0o010;
    if permissions & GROUP_RUNS != GROUP_RUNS {
        return permissions;
    }
    let directory = parent.inode().protection();
    let may = directory.permissions & MODE_SET_GID == 0
        || caller.credentials.is_in_group(directory.gid)
        || caller.credentials.can(Capability::FSETID);
    if may { permissions } else { permissions & !MODE_SET_GID }
}

/// Whether a walk that may not leave `scope` has ended in there: a directory that it went through may have been moved
/// out before it went up. The caller holds `change`.
///
/// # Errors
/// `EXDEV`.
fn check_scope(found: &Location, scope: Option<&Location>) -> Result<()> {
    if scope.is_none_or(|scope| found.is_under(scope)) { Ok(()) } else { Err(Errno::EXDEV) }
}

impl Namespace {
    /// Opens or creates a file. A named pipe may not be connected yet, see [`Description::is_connected`].
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(&self, caller: &Caller<'_>, start: &Location, path: &[u8], how: &OpenHow) -> Result<Arc<Description>> {
        let (description, is_new) = self.open_path(caller, start, path, how)?;
        if !description.is_path_only() {
            self.watches.tell(description.location(), event::OPEN, true);
        }
        if !is_new {
            self.cut_opened(caller, &description, how)?;
        }
        Ok(description)
    }

    /// Also says whether the file was made.
    fn open_path(
        &self,
        caller: &Caller<'_>,
        start: &Location,
        path: &[u8],
        how: &OpenHow,
    ) -> Result<(Arc<Description>, bool)> {
        let wants_directory = how.status.contains(StatusFlags::DIRECTORY);
        let is_path_only = how.status.contains(StatusFlags::PATH_ONLY);
        let is_create = how.flags.contains(OpenFlags::CREATE) && !is_path_only;
        if is_create && wants_directory {
            return Err(Errno::EINVAL);
        }
        let is_exclusive = is_create && how.flags.contains(OpenFlags::EXCLUSIVE);
        let follow = !how.status.contains(StatusFlags::NO_FOLLOW) && !is_exclusive;
        let flags = LookupFlags { follow, directory: wants_directory };
        if is_path_only {
            let location = self.find_to_open(caller, start, path, how, flags)?;
            let request = OpenRequest { read: false, write: false, non_blocking: false };
            let kept = StatusFlags::PATH_ONLY | StatusFlags::DIRECTORY | StatusFlags::NO_FOLLOW;
            return Ok((self.describe(location, request, how.status & kept, None), false));
        }
        if how.flags.contains(OpenFlags::UNNAMED) {
            return Ok((self.open_unnamed(caller, start, path, how)?, true));
        }
        if !is_create {
            let location = self.find_to_open(caller, start, path, how, flags)?;
            return Ok((self.open_at(caller, location, how)?, false));
        }
        match self.find_or_create(caller, start, path, how, follow)? {
            (location, true) => {
                self.watches.tell_created(&location);
                Ok((self.open_created(caller, location, how)?, true))
            }
            (_, false) if is_exclusive => Err(Errno::EEXIST),
            (location, false) if location.is_directory() => Err(Errno::EISDIR),
            (location, false) => Ok((self.open_at(caller, location, how)?, false)),
        }
    }

    fn find_to_open(
        &self,
        caller: &Caller<'_>,
        start: &Location,
        path: &[u8],
        how: &OpenHow,
        flags: LookupFlags,
    ) -> Result<Location> {
        if how.restriction.is_empty() {
            return match how.is_from_descriptor {
                true => self.lookup_once(caller, start, path, flags),
                false => self.lookup(caller, start, path, flags),
            };
        }
        let walk = Walk::new(caller, start, path)?.restricted(how.restriction)?;
        let scope = walk.scope();
        let found = walk.finish(flags)?;
        let _change = self.change.lock();
        check_scope(&found, scope.as_ref())?;
        Ok(found)
    }

    /// Opens what `open` would find at the end of its walk.
    ///
    /// # Errors
    /// Those of [`Self::open_at`].
    pub fn open_found(&self, caller: &Caller<'_>, location: Location, how: &OpenHow) -> Result<Arc<Description>> {
        let description = self.open_at(caller, location, how)?;
        self.watches.tell(description.location(), event::OPEN, true);
        self.cut_opened(caller, &description, how)?;
        Ok(description)
    }

    /// `O_TRUNC`, of what was opened already.
    fn cut_opened(&self, caller: &Caller<'_>, description: &Description, how: &OpenHow) -> Result<()> {
        let is_stored = description.inode().kind() == FileKind::Regular && !description.has_driver();
        if !how.flags.contains(OpenFlags::TRUNCATE) || !is_stored || description.is_path_only() {
            return Ok(());
        }
        self.drop_set_ids(caller, description.location())?;
        description.inode().truncate(0, caller.now)?;
        self.watches.tell(description.location(), event::MODIFY, false);
        Ok(())
    }

    /// Opens what is at a location, as `open` does with what it found.
    ///
    /// # Errors
    /// `ELOOP`: a link. `EAGAIN`: a lease is in the way. `EISDIR`, `EACCES`, `EROFS`, `EPERM`, `ENXIO`. That a file is
    /// to be cut short is for the caller to do.
    pub fn open_at(&self, caller: &Caller<'_>, location: Location, how: &OpenHow) -> Result<Arc<Description>> {
        let kind = location.inode().kind();
        let truncates = how.flags.contains(OpenFlags::TRUNCATE);
        let mut mask = how.access.mask();
        if truncates {
            mask |= AccessMask::WRITE;
        }
        let executes = how.flags.contains(OpenFlags::EXECUTE);
        if executes {
            mask = AccessMask::EXECUTE;
        }
        match kind {
            FileKind::Symlink => return Err(Errno::ELOOP),
            FileKind::Directory if mask.contains(AccessMask::WRITE) => return Err(Errno::EISDIR),
            FileKind::Regular => {}
            _ if executes => return Err(Errno::EACCES),
            _ => {}
        }
        let mount_flags = location.mount().flags();
        let is_device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        if (is_device && mount_flags.contains(MountFlags::NO_DEVICES))
            || (executes && mount_flags.contains(MountFlags::NO_EXECUTE))
        {
            return Err(Errno::EACCES);
        }
        if mask.contains(AccessMask::WRITE) && kind == FileKind::Regular {
            location.mount().check_writable()?;
        }
        caller.check(&location, mask)?;
        let silent = how.status.contains(StatusFlags::NO_ACCESS_TIME);
        if silent && !caller.credentials.owns(location.inode().protection()) {
            return Err(Errno::EPERM);
        }
        let request = how.access.request(how.status.contains(StatusFlags::NON_BLOCKING));
        let writes = mask.contains(AccessMask::WRITE);
        if writes {
            check_not_run(location.inode())?;
        }
        if !self.locks.is_idle() && kind == FileKind::Regular {
            self.break_leases(caller, location.inode(), writes)?;
        }
        let file = self.open_inode(caller, &location, request)?;
        let description = self.describe(location, request, how.status, file);
        if writes {
            // Now that it is counted, a program that starts finds it.
            check_not_run(description.inode())?;
        }
        Ok(description)
    }

    /// Has the holders told whose leases on a file are in the way of an open or a cut. `EAGAIN`: there are such.
    #[cold]
    pub fn break_leases(&self, caller: &Caller<'_>, inode: &InodeRef, writes: bool) -> Result<()> {
        // A caller that came without a time, by a short way, comes again with one.
        if caller.now == Timestamp::default() {
            return Err(Errno::EAGAIN);
        }
        self.locks.break_leases(LockedFile::from(&inode.metadata()), writes, caller.now.seconds.cast_unsigned())
    }

    /// A description over `file`, which the caller found to be what is at `location` for it.
    pub fn open_as(&self, location: Location, how: &OpenHow, file: Arc<dyn OpenFile>) -> Arc<Description> {
        let request = how.access.request(how.status.contains(StatusFlags::NON_BLOCKING));
        self.describe(location, request, how.status, Some(file))
    }

    fn open_created(&self, caller: &Caller<'_>, location: Location, how: &OpenHow) -> Result<Arc<Description>> {
        // The permissions of a file that one has just made are for others.
        let request = how.access.request(how.status.contains(StatusFlags::NON_BLOCKING));
        let file = self.open_inode(caller, &location, request)?;
        Ok(self.describe(location, request, how.status, file))
    }

    fn find_or_create(
        &self,
        caller: &Caller<'_>,
        start: &Location,
        path: &[u8],
        how: &OpenHow,
        follow: bool,
    ) -> Result<(Location, bool)> {
        let is_free = how.restriction.is_empty();
        if is_free && let Some((parent, name)) = self.known_parent(caller, start, path) {
            let _change = self.change.lock();
            // A name that has to be new is looked for by making it. Why it could not be made is found out below.
            if how.flags.contains(OpenFlags::EXCLUSIVE)
                && let Ok(made) = self.create_in(caller, &parent, name, NewNode::Regular, how.permissions)
            {
                return Ok((made, true));
            }
            match parent.child(name) {
                // The walk below follows it.
                Ok(found) if follow && found.inode().kind() == FileKind::Symlink => {}
                Ok(found) => return Ok((found, false)),
                Err(Errno::ENOENT) => {
                    return Ok((self.create_in(caller, &parent, name, NewNode::Regular, how.permissions)?, true));
                }
                Err(error) => return Err(error),
            }
        }
        let mut generation = is_free.then(|| self.walks.generation());
        let mut walk = Walk::new(caller, start, path)?.restricted(how.restriction)?;
        let scope = walk.scope();
        loop {
            let (last, has_slash) = walk.to_last()?;
            if let Some(generation) = generation.take() {
                self.keep_parent((caller, start, path), &walk, generation);
            }
            let name = match last {
                Last::Name(name) => name,
                // A directory, which is not opened this way.
                Last::DotDot => {
                    walk.go_up()?;
                    return Ok((walk.into_here(), false));
                }
                Last::Dot | Last::Root => return Ok((walk.here().clone(), false)),
            };
            if has_slash {
                return Err(Errno::EISDIR);
            }
            let _change = self.change.lock();
            check_scope(walk.here(), scope.as_ref())?;
            match walk.here().child(&name) {
                Ok(found) if follow && found.inode().kind() == FileKind::Symlink => {
                    if !walk.follow_last(&found)? {
                        return Ok((walk.here().clone(), false));
                    }
                }
                Ok(found) => {
                    walk.check_step(&found)?;
                    return Ok((found, false));
                }
                Err(Errno::ENOENT) => {
                    let parent = walk.here();
                    let made = self.create_in(caller, parent, &name, NewNode::Regular, how.permissions)?;
                    return Ok((made, true));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates a node in a directory that has no such name. The caller holds `change`.
    pub(super) fn create_in(
        &self,
        caller: &Caller<'_>,
        parent: &Location,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u32,
    ) -> Result<Location> {
        // Callers that have looked the name up have been told, but not all have.
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        parent.mount().check_writable()?;
        if parent.is_deleted() {
            return Err(Errno::ENOENT);
        }
        caller.check(parent, AccessMask::WRITE | AccessMask::EXECUTE)?;
        let permissions = match node {
            NewNode::Symlink(_) => 0o777,
            NewNode::Directory => permissions & 0o7777 & !caller.umask,
            _ => without_foreign_group(caller, parent, permissions & 0o7777) & !caller.umask,
        };
        let creation =
            Creation { permissions, uid: caller.credentials.uid, gid: caller.credentials.gid, now: caller.now };
        parent.entry().make_room()?;
        let inode = parent.inode().create(name, node, creation)?;
        let made = parent.with_entry(parent.entry().attach(name, inode));
        // The maker of a file asks for it again, if only to remove it.
        made.mount().remember(made.entry());
        Ok(made)
    }

    fn open_unnamed(
        &self,
        caller: &Caller<'_>,
        start: &Location,
        path: &[u8],
        how: &OpenHow,
    ) -> Result<Arc<Description>> {
        if how.access == Access::Read {
            return Err(Errno::EINVAL);
        }
        let directory = self.find_to_open(caller, start, path, how, LookupFlags::DIRECTORY)?;
        directory.mount().check_writable()?;
        caller.check(&directory, AccessMask::WRITE | AccessMask::EXECUTE)?;
        let creation = Creation {
            permissions: without_foreign_group(caller, &directory, how.permissions & 0o7777) & !caller.umask,
            uid: caller.credentials.uid,
            gid: caller.credentials.gid,
            now: caller.now,
        };
        let inode = directory.inode().create_unnamed(creation, !how.flags.contains(OpenFlags::EXCLUSIVE))?;
        let request = how.access.request(false);
        let location = directory.unnamed_child(inode);
        Ok(self.describe(location, request, how.status, None))
    }
}

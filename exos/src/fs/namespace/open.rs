//! Opening and creating files.

use alloc::sync::Arc;

use bitflags::bitflags;

use super::Namespace;
use crate::error::{Errno, Result};
use crate::fs::description::{Description, StatusFlags};
use crate::fs::file_lock::LockedFile;
use crate::fs::location::{Location, MountFlags};
use crate::fs::page::check_not_run;
use crate::fs::permission::Wish;
use crate::fs::vnode::{Creation, FileKind, InodeRef, NewNode, OpenFile, OpenRequest, Timestamp};
use crate::fs::walk::{Caller, Last, LookupFlags, Walk};
use crate::fs::watch::event;

/// What a description is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`.
    Read,
    /// `O_WRONLY`.
    Write,
    /// `O_RDWR`.
    ReadWrite,
}

impl Access {
    pub(super) fn request(self, non_blocking: bool) -> OpenRequest {
        let (read, write) = (self != Self::Write, self != Self::Read);
        OpenRequest { read, write, non_blocking }
    }

    fn wish(self) -> Wish {
        match self {
            Self::Read => Wish::READ,
            Self::Write => Wish::WRITE,
            Self::ReadWrite => Wish::READ | Wish::WRITE,
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
    /// What to do.
    pub flags: OpenFlags,
    /// What to keep.
    pub status: StatusFlags,
    /// Permission bits of a new file, before the umask.
    pub permissions: u32,
}

impl OpenHow {
    /// For reading, nothing special.
    pub const READ: Self =
        Self { access: Access::Read, flags: OpenFlags::empty(), status: StatusFlags::empty(), permissions: 0 };
}

impl Namespace {
    /// Opens or creates a file. A named pipe may not be connected yet, see [`Description::is_connected`].
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(&self, caller: &Caller<'_>, start: &Location, path: &[u8], how: &OpenHow) -> Result<Arc<Description>> {
        let description = self.open_path(caller, start, path, how)?;
        if !description.is_path_only() {
            self.watches.tell(description.location(), event::OPEN, true);
        }
        Ok(description)
    }

    fn open_path(&self, caller: &Caller<'_>, start: &Location, path: &[u8], how: &OpenHow) -> Result<Arc<Description>> {
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
            let location = self.lookup(caller, start, path, flags)?;
            let request = OpenRequest { read: false, write: false, non_blocking: false };
            let kept = StatusFlags::PATH_ONLY | StatusFlags::DIRECTORY | StatusFlags::NO_FOLLOW;
            return Ok(self.describe(location, request, how.status & kept, None));
        }
        if how.flags.contains(OpenFlags::UNNAMED) {
            return self.open_unnamed(caller, start, path, how);
        }
        if !is_create {
            let location = self.lookup(caller, start, path, flags)?;
            return self.open_at(caller, location, how);
        }
        match self.find_or_create(caller, start, path, how, follow)? {
            (location, true) => {
                self.watches.tell_created(&location);
                self.open_created(caller, location, how)
            }
            (_, false) if is_exclusive => Err(Errno::EEXIST),
            (location, false) if location.is_directory() => Err(Errno::EISDIR),
            (location, false) => self.open_at(caller, location, how),
        }
    }

    /// Opens what `open` would find at the end of its walk.
    ///
    /// # Errors
    /// Those of [`Self::open_at`].
    pub fn open_found(&self, caller: &Caller<'_>, location: Location, how: &OpenHow) -> Result<Arc<Description>> {
        let description = self.open_at(caller, location, how)?;
        self.watches.tell(description.location(), event::OPEN, true);
        Ok(description)
    }

    /// Opens what is at a location, as `open` does with what it found.
    ///
    /// # Errors
    /// `ELOOP`: a link. `EAGAIN`: a lease is in the way. `EISDIR`, `EACCES`, `EROFS`, `EPERM`, `ENXIO`.
    pub fn open_at(&self, caller: &Caller<'_>, location: Location, how: &OpenHow) -> Result<Arc<Description>> {
        let kind = location.inode().kind();
        let truncates = how.flags.contains(OpenFlags::TRUNCATE);
        let mut wish = how.access.wish();
        if truncates {
            wish |= Wish::WRITE;
        }
        let executes = how.flags.contains(OpenFlags::EXECUTE);
        if executes {
            wish = Wish::EXECUTE;
        }
        match kind {
            FileKind::Symlink => return Err(Errno::ELOOP),
            FileKind::Directory if wish.contains(Wish::WRITE) => return Err(Errno::EISDIR),
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
        if wish.contains(Wish::WRITE) && kind == FileKind::Regular {
            location.mount().check_writable()?;
        }
        caller.check(&location, wish)?;
        let silent = how.status.contains(StatusFlags::NO_ACCESS_TIME);
        if silent && !caller.credentials.is_owner(&location.inode().metadata()) {
            return Err(Errno::EPERM);
        }
        let request = how.access.request(how.status.contains(StatusFlags::NON_BLOCKING));
        let writes = wish.contains(Wish::WRITE);
        if writes {
            check_not_run(location.inode())?;
        }
        if !self.locks.is_idle() && kind == FileKind::Regular {
            self.break_leases(caller, location.inode(), writes)?;
        }
        let file = self.open_inode(caller, &location, request)?;
        let is_stored = file.is_none();
        let description = self.describe(location, request, how.status, file);
        if writes {
            // Now that it is counted, a program that starts finds it.
            check_not_run(description.inode())?;
        }
        if truncates && kind == FileKind::Regular && is_stored {
            description.inode().truncate(0, caller.now)?;
            self.watches.tell(description.location(), event::MODIFY, false);
        }
        Ok(description)
    }

    /// Has those told whose leases on a file are in the way of whoever opens or cuts it. `EAGAIN`: there are such.
    #[cold]
    pub fn break_leases(&self, caller: &Caller<'_>, inode: &InodeRef, writes: bool) -> Result<()> {
        // Who came without a time, by a short way, comes again with one.
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
        let mut walk = Walk::new(caller, start, path)?;
        loop {
            let (last, has_slash) = walk.to_last()?;
            let name = match last {
                Last::Name(name) => name,
                Last::DotDot => return Ok((walk.here().parent(caller.root), false)),
                Last::Dot | Last::Root => return Ok((walk.here().clone(), false)),
            };
            if has_slash {
                return Err(Errno::EISDIR);
            }
            let _change = self.change.lock();
            match walk.here().child(&name) {
                Ok(found) if follow && found.inode().kind() == FileKind::Symlink => {
                    if !walk.follow_last(&found)? {
                        return Ok((walk.here().clone(), false));
                    }
                }
                Ok(found) => return Ok((found, false)),
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
        parent.mount().check_writable()?;
        if parent.is_deleted() {
            return Err(Errno::ENOENT);
        }
        caller.check(parent, Wish::WRITE | Wish::EXECUTE)?;
        let permissions = match node {
            NewNode::Symlink(_) => 0o777,
            _ => permissions & 0o7777 & !caller.umask,
        };
        let creation =
            Creation { permissions, uid: caller.credentials.uid, gid: caller.credentials.gid, now: caller.now };
        let inode = parent.inode().create(name, node, creation)?;
        Ok(parent.with_entry(parent.entry().attach(name, inode)))
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
        let directory = self.lookup(caller, start, path, LookupFlags::DIRECTORY)?;
        directory.mount().check_writable()?;
        caller.check(&directory, Wish::WRITE | Wish::EXECUTE)?;
        let inode = directory.inode().create_unnamed(Creation {
            permissions: how.permissions & 0o7777 & !caller.umask,
            uid: caller.credentials.uid,
            gid: caller.credentials.gid,
            now: caller.now,
        })?;
        let request = how.access.request(false);
        Ok(self.describe(directory.unnamed_child(inode), request, how.status, None))
    }
}

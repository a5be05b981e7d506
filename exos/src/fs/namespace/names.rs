//! Making, linking, renaming and removing names.

use super::Namespace;
use crate::error::{Errno, Result};
use crate::fs::location::{InMotion, Location};
use crate::fs::metadata::{DeviceNumber, FileKind};
use crate::fs::name::Name;
use crate::fs::permission::AccessMask;
use crate::fs::vnode::{NewNode, PATH_BYTES_MAX, RenameMode, is_same};
use crate::fs::walk::{Caller, Last, LookupFlags, Walk};
use crate::fs::watch::event;
use crate::task::capability::Capability;

/// A directory and a last component.
struct Target {
    parent: Location,
    last: Last,
    has_slash: bool,
}

impl Target {
    fn find(names: &Namespace, caller: &Caller<'_>, start: &Location, path: &[u8]) -> Result<Self> {
        if let Some((parent, name)) = names.known_parent(caller, start, path) {
            return Ok(Self { parent, last: Last::Name(Name::from(name)), has_slash: false });
        }
        let generation = names.walks.generation();
        let mut walk = Walk::new(caller, start, path)?;
        let (last, has_slash) = walk.to_last()?;
        names.keep_parent((caller, start, path), &walk, generation);
        Ok(Self { parent: walk.into_here(), last, has_slash })
    }

    fn lookup(&self, name: &[u8]) -> Result<Option<Location>> {
        match self.parent.child(name) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that `victim`, which `name` leads to, may be taken out of its directory.
    fn check_removable(&self, caller: &Caller<'_>, victim: &Location, wants_directory: bool) -> Result<()> {
        let parent = self.parent.inode().protection();
        caller.credentials.check(parent, AccessMask::WRITE | AccessMask::EXECUTE)?;
        caller.credentials.check_sticky(parent, || victim.inode().protection())?;
        match (wants_directory, victim.is_directory()) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            _ if self.parent.is_deleted() => Err(Errno::ENOENT),
            _ => Ok(()),
        }
    }
}

/// What is really in the directory, below what may be mounted there.
fn is_busy(victim: &Location) -> bool {
    victim.is_mount_point() || victim.is_mount_root()
}

impl Namespace {
    /// Creates a directory, a link, a device, a pipe, a socket's name or an empty file.
    ///
    /// # Errors
    /// Those of mkdir(2), symlink(2) and mknod(2).
    pub fn create(
        &self,
        caller: &Caller<'_>,
        start: &Location,
        path: &[u8],
        node: NewNode<'_>,
        permissions: u32,
    ) -> Result<Location> {
        if let NewNode::Symlink(target) = node {
            match target.len() {
                0 => return Err(Errno::ENOENT),
                1..=PATH_BYTES_MAX => {}
                _ => return Err(Errno::ENAMETOOLONG),
            }
        }
        let target = Target::find(self, caller, start, path)?;
        let made = {
            let _change = self.change.lock();
            let name = self.check_new_name(&target, node.kind() == FileKind::Directory)?;
            // The device 0:0 is none: overlays of others mark with it what was removed.
            let is_device = matches!(node, NewNode::CharacterDevice(_) | NewNode::BlockDevice(_))
                && node != NewNode::CharacterDevice(DeviceNumber::default());
            if is_device && !caller.credentials.can(Capability::MKNOD) {
                return Err(Errno::EPERM);
            }
            self.create_in(caller, &target.parent, &name, node, permissions)?
        };
        self.watches.tell_created(&made);
        Ok(made)
    }

    /// Gives the file at `existing` another name. `follow` says whether a link at `existing` is followed.
    ///
    /// # Errors
    /// Those of link(2).
    pub fn link(
        &self,
        caller: &Caller<'_>,
        existing: (&Location, &[u8]),
        follow: bool,
        new: (&Location, &[u8]),
    ) -> Result<()> {
        let flags = LookupFlags { follow, directory: false };
        let existing = self.lookup(caller, existing.0, existing.1, flags)?;
        self.link_location(caller, &existing, new)
    }

    /// Gives the file at a location another name (`AT_EMPTY_PATH`).
    ///
    /// # Errors
    /// Those of link(2).
    pub fn link_location(&self, caller: &Caller<'_>, existing: &Location, new: (&Location, &[u8])) -> Result<()> {
        let target = Target::find(self, caller, new.0, new.1)?;
        let name = self.link_locked(caller, existing, &target)?;
        self.watches.tell_self(existing.inode(), event::ATTRIB);
        self.watches.tell_name(target.parent.inode(), &name, event::CREATE, 0, existing.inode().kind());
        Ok(())
    }

    fn link_locked(&self, caller: &Caller<'_>, existing: &Location, target: &Target) -> Result<Name> {
        let _change = self.change.lock();
        let name = self.check_new_name(target, false)?;
        let parent = &target.parent;
        if existing.mount().id != parent.mount().id {
            return Err(Errno::EXDEV);
        }
        parent.mount().check_writable()?;
        if parent.is_deleted() {
            return Err(Errno::ENOENT);
        }
        caller.check(parent, AccessMask::WRITE | AccessMask::EXECUTE)?;
        if existing.is_directory() {
            return Err(Errno::EPERM);
        }
        parent.inode().link(&name, existing.inode(), caller.now)?;
        Ok(name)
    }

    /// Removes the name of something that is not a directory.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn unlink(&self, caller: &Caller<'_>, start: &Location, path: &[u8]) -> Result<()> {
        let target = Target::find(self, caller, start, path)?;
        let Last::Name(name) = &target.last else {
            return Err(Errno::EISDIR);
        };
        let victim = self.unlink_locked(caller, &target, name)?;
        self.tell_removed(&target.parent, name, victim, true);
        Ok(())
    }

    fn unlink_locked(&self, caller: &Caller<'_>, target: &Target, name: &[u8]) -> Result<Location> {
        let _change = self.change.lock();
        let victim = target.lookup(name)?.ok_or(Errno::ENOENT)?;
        if target.has_slash {
            return Err(if victim.is_directory() { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        target.parent.mount().check_writable()?;
        target.check_removable(caller, &victim, false)?;
        if is_busy(&victim) {
            return Err(Errno::EBUSY);
        }
        target.parent.inode().unlink(name, caller.now)?;
        target.parent.entry().detach(name, victim.inode());
        victim.mount().forget(victim.entry());
        if victim.inode().kind() == FileKind::Symlink {
            // Walks may have gone through it.
            self.walks.forget_all();
        }
        Ok(victim)
    }

    /// Tells watchers of a name that is gone. Watchers of the file are told of its end when its last holder lets go,
    /// which may be now.
    fn tell_removed(&self, directory: &Location, name: &[u8], victim: Location, has_links: bool) {
        if self.watches.is_idle() {
            return;
        }
        let kind = victim.inode().kind();
        self.tell_lost(victim, has_links);
        self.watches.tell_name(directory.inode(), name, event::DELETE, 0, kind);
    }

    /// Tells watchers of a file that it has a name less.
    fn tell_lost(&self, victim: Location, has_links: bool) {
        if has_links {
            self.watches.tell_self(victim.inode(), event::ATTRIB);
        }
        if self.watches.is_watched(victim.inode()) {
            victim.entry().watch_gone(&self.watches);
        }
        drop(victim);
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of rmdir(2).
    pub fn remove_directory(&self, caller: &Caller<'_>, start: &Location, path: &[u8]) -> Result<()> {
        let target = Target::find(self, caller, start, path)?;
        let name = match &target.last {
            Last::Name(name) => name,
            Last::Dot => return Err(Errno::EINVAL),
            Last::DotDot => return Err(Errno::ENOTEMPTY),
            Last::Root => return Err(Errno::EBUSY),
        };
        let victim = self.remove_directory_locked(caller, &target, name)?;
        self.tell_removed(&target.parent, name, victim, false);
        Ok(())
    }

    fn remove_directory_locked(&self, caller: &Caller<'_>, target: &Target, name: &[u8]) -> Result<Location> {
        let _change = self.change.lock();
        let victim = target.lookup(name)?.ok_or(Errno::ENOENT)?;
        target.parent.mount().check_writable()?;
        target.check_removable(caller, &victim, true)?;
        if is_busy(&victim) {
            return Err(Errno::EBUSY);
        }
        target.parent.inode().remove_directory(name, caller.now)?;
        target.parent.entry().detach(name, victim.inode());
        victim.mount().forget(victim.entry());
        self.walks.forget_all();
        Ok(victim)
    }

    /// Renames.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        old: (&Location, &[u8]),
        new: (&Location, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let old = Target::find(self, caller, old.0, old.1)?;
        let new = Target::find(self, caller, new.0, new.1)?;
        if old.parent.mount().id != new.parent.mount().id {
            return Err(Errno::EXDEV);
        }
        let Last::Name(old_name) = &old.last else {
            return Err(Errno::EBUSY);
        };
        let Last::Name(new_name) = &new.last else {
            let no_replace = mode == RenameMode::NoReplace;
            return Err(if no_replace { Errno::EEXIST } else { Errno::EBUSY });
        };
        old.parent.mount().check_writable()?;
        let Some((source, target)) = self.rename_locked(caller, (&old, old_name), (&new, new_name), mode)? else {
            return Ok(());
        };
        if self.watches.is_idle() {
            return Ok(());
        }
        let (from, to) = ((&old.parent, &old_name[..]), (&new.parent, &new_name[..]));
        match target {
            Some(target) if mode == RenameMode::Exchange => {
                self.tell_moved(&source, from, to, None);
                self.tell_moved(&target, to, from, None);
            }
            target => self.tell_moved(&source, from, to, target),
        }
        Ok(())
    }

    /// Tells watchers of a move, and of what it replaced.
    fn tell_moved(
        &self,
        moved: &Location,
        (old, old_name): (&Location, &[u8]),
        (new, new_name): (&Location, &[u8]),
        replaced: Option<Location>,
    ) {
        let (cookie, kind) = (self.watches.cookie(), moved.inode().kind());
        self.watches.tell_name(old.inode(), old_name, event::MOVED_FROM, cookie, kind);
        self.watches.tell_name(new.inode(), new_name, event::MOVED_TO, cookie, kind);
        let is_file = replaced.as_ref().is_some_and(|replaced| !replaced.is_directory());
        if let (Some(replaced), true) = (&replaced, is_file) {
            self.watches.tell_self(replaced.inode(), event::ATTRIB);
        }
        self.watches.tell_self(moved.inode(), event::MOVE_SELF);
        if let Some(replaced) = replaced {
            self.tell_lost(replaced, false);
        }
    }

    /// What was moved and what was in its place; `None`: both names are the same file's, and nothing is done.
    fn rename_locked(
        &self,
        caller: &Caller<'_>,
        (old, old_name): (&Target, &[u8]),
        (new, new_name): (&Target, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<(Location, Option<Location>)>> {
        let _change = self.change.lock();
        let source = old.lookup(old_name)?.ok_or(Errno::ENOENT)?;
        let target = new.lookup(new_name)?;
        check_shape(old, &source, new, target.as_ref(), mode)?;
        if target.as_ref().is_some_and(|target| is_same(target.inode(), source.inode())) {
            return Ok(None);
        }
        check_rename_allowed(caller, old, &source, new, target.as_ref(), mode)?;
        if is_busy(&source) || target.as_ref().is_some_and(is_busy) {
            return Err(Errno::EBUSY);
        }
        let (old_directory, new_directory) = (old.parent.inode(), new.parent.inode());
        let (old_entry, new_entry) = (old.parent.entry(), new.parent.entry());
        new_entry.make_room()?;
        if mode == RenameMode::Exchange {
            old_entry.make_room()?;
        }
        let comes_back = target.as_ref().filter(|_| mode == RenameMode::Exchange).map(Location::entry);
        let places = [(&**old_entry, old_name, comes_back), (&**new_entry, new_name, Some(source.entry()))];
        let _motion = InMotion::begin(places);
        old_directory.rename(old_name, new_directory, new_name, mode, caller.now)?;
        if mode == RenameMode::Exchange {
            old_entry.swap_children(old_name, new_entry, new_name);
        } else {
            let replaced = target.as_ref().map(Location::inode);
            old_entry.move_child(old_name, new_entry, new_name, replaced);
            if let Some(target) = &target {
                target.mount().forget(target.entry());
            }
        }
        self.walks.forget_all();
        Ok(Some((source, target)))
    }

    /// The name that is to be created, if it can be.
    fn check_new_name(&self, target: &Target, wants_directory: bool) -> Result<Name> {
        let Last::Name(name) = &target.last else {
            return Err(Errno::EEXIST);
        };
        if target.lookup(name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        if target.has_slash && !wants_directory {
            return Err(Errno::ENOENT);
        }
        Ok(name.clone())
    }
}

/// The checks of `rename` that look at names and places only.
fn check_shape(
    old: &Target,
    source: &Location,
    new: &Target,
    target: Option<&Location>,
    mode: RenameMode,
) -> Result<()> {
    let is_exchange = mode == RenameMode::Exchange;
    if mode == RenameMode::NoReplace && target.is_some() {
        return Err(Errno::EEXIST);
    }
    if is_exchange {
        let target = target.ok_or(Errno::ENOENT)?;
        if !target.is_directory() && new.has_slash {
            return Err(Errno::ENOTDIR);
        }
    }
    if !source.is_directory() && (old.has_slash || (!is_exchange && new.has_slash)) {
        return Err(Errno::ENOTDIR);
    }
    if new.parent.is_within(source) {
        return Err(Errno::EINVAL);
    }
    if target.is_some_and(|target| old.parent.is_within(target)) {
        return Err(if is_exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    Ok(())
}

fn check_rename_allowed(
    caller: &Caller<'_>,
    old: &Target,
    source: &Location,
    new: &Target,
    target: Option<&Location>,
    mode: RenameMode,
) -> Result<()> {
    let is_directory = source.is_directory();
    old.check_removable(caller, source, is_directory)?;
    match target {
        Some(target) => {
            let is_exchange = mode == RenameMode::Exchange;
            let wants_directory = if is_exchange { target.is_directory() } else { is_directory };
            new.check_removable(caller, target, wants_directory)?;
        }
        None => {
            if new.parent.is_deleted() {
                return Err(Errno::ENOENT);
            }
            caller.check(&new.parent, AccessMask::WRITE | AccessMask::EXECUTE)?;
        }
    }
    if !is_same(old.parent.inode(), new.parent.inode()) {
        // Its `..` changes.
        let targets = target.filter(|_| mode == RenameMode::Exchange);
        for moved in [Some(source), targets].into_iter().flatten() {
            if moved.is_directory() {
                caller.check(moved, AccessMask::WRITE)?;
            }
        }
    }
    Ok(())
}

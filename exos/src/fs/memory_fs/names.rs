//! The operations that change names: they hold the tree's lock from the first look to the last change.
//!
//! Each is made of the same steps, which lock one node at a time: find, check, take a name out, put a
//! name in, count links.

use alloc::sync::Arc;

use super::super::metadata::{FileKind, Timestamp};
use super::super::permission::MODE_SET_GID;
use super::super::vnode::{Creation, InodeRef, NewNode, RenameMode, downcast};
use super::node::{Body, State};
use super::{MemoryNode, directory};
use crate::error::{Errno, Result};

impl MemoryNode {
    pub(super) fn create_name(&self, name: &[u8], node: &NewNode<'_>, creation: Creation) -> Result<InodeRef> {
        let _tree = self.fs.tree.lock();
        if self.base.as_ref().is_some_and(|base| !base.is_always_empty()) {
            self.check_absent(name)?;
        }
        let mut creation = creation;
        self.prepare(name, node.kind(), &mut creation)?;
        let mut made = self.fs.new_node(node, creation)?;
        if let Some(made) = Arc::get_mut(&mut made)
            && made.kind != FileKind::Directory
        {
            made.state.get_mut().link_count = 1;
        }
        self.put_name(name, &made, creation.now)?;
        Ok(made)
    }

    /// Checks that `name`, which the base has not, can be made here, makes room for it, and says what it has of this
    /// directory.
    fn prepare(&self, name: &[u8], kind: FileKind, creation: &mut Creation) -> Result<()> {
        let mut state = self.state.lock();
        let State { body: Body::Directory(names), permissions, gid, .. } = &mut *state else {
            return Err(Errno::ENOTDIR);
        };
        if names.has_own(name) {
            return Err(Errno::EEXIST);
        }
        if names.is_removed {
            return Err(Errno::ENOENT);
        }
        if *permissions & MODE_SET_GID != 0 {
            creation.gid = *gid;
            if kind == FileKind::Directory {
                creation.permissions |= MODE_SET_GID;
            }
        }
        names.make_room(1)
    }

    pub(super) fn link_name(&self, name: &[u8], target: &InodeRef, now: Timestamp) -> Result<()> {
        let target = downcast::<Self>(target).ok_or(Errno::EXDEV)?;
        if !Arc::ptr_eq(&self.fs, &target.fs) {
            return Err(Errno::EXDEV);
        }
        if target.kind == FileKind::Directory {
            return Err(Errno::EPERM);
        }
        let _tree = self.fs.tree.lock();
        self.check_absent(name)?;
        self.make_room(1)?;
        target.gain_link(now)?;
        self.put_name(name, &target, now)
    }

    pub(super) fn unlink_name(&self, name: &[u8], now: Timestamp) -> Result<()> {
        let _tree = self.fs.tree.lock();
        if directory::base_has(self.base.as_ref(), name)? {
            let victim = self.child(name)?;
            if victim.kind == FileKind::Directory {
                return Err(Errno::EISDIR);
            }
            self.take_name(name, &victim, now)?;
            return victim.lose_link(now);
        }
        let victim = self.change(|state| {
            let Body::Directory(names) = &mut state.body else { return Err(Errno::ENOTDIR) };
            let victim = names.remove_file(name)?;
            state.modified = now;
            state.changed = now;
            Ok(victim)
        })?;
        victim.lose_link(now)
    }

    pub(super) fn remove_directory_name(&self, name: &[u8], now: Timestamp) -> Result<()> {
        let _tree = self.fs.tree.lock();
        let victim = self.child(name)?;
        if victim.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if !directory::is_empty(&victim, victim.base.as_ref())? {
            return Err(Errno::ENOTEMPTY);
        }
        self.take_name(name, &victim, now)?;
        victim.lose_link(now)
    }

    pub(super) fn rename_name(
        &self,
        (old_name, new_parent, new_name): (&[u8], &InodeRef, &[u8]),
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        let new_parent = downcast::<Self>(new_parent).ok_or(Errno::EXDEV)?;
        if !Arc::ptr_eq(&self.fs, &new_parent.fs) {
            return Err(Errno::EXDEV);
        }
        let _tree = self.fs.tree.lock();
        let moved = self.child(old_name)?;
        let target = match new_parent.child(new_name) {
            Ok(target) => Some(target),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        if new_parent.with_names(|names| names.is_removed)? {
            return Err(Errno::ENOENT);
        }
        let target = match (target, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(Errno::EEXIST),
            (None, RenameMode::Exchange) => return Err(Errno::ENOENT),
            (Some(target), _) if Arc::ptr_eq(&target, &moved) => return Ok(()),
            (target, _) => target,
        };
        if mode == RenameMode::Exchange {
            // Both names may be put into one directory.
            self.make_room(2)?;
            new_parent.make_room(2)?;
        } else {
            new_parent.make_room(1)?;
        }
        if let Some(target) = &target {
            if mode != RenameMode::Exchange {
                target.check_replaceable(&moved)?;
            }
            new_parent.take_name(new_name, target, now)?;
        }
        self.take_name(old_name, &moved, now)?;
        new_parent.put_name(new_name, &moved, now)?;
        moved.change(|state| {
            state.changed = now;
            Ok(())
        })?;
        match target {
            Some(target) if mode == RenameMode::Exchange => {
                target.change(|state| {
                    state.changed = now;
                    Ok(())
                })?;
                self.put_name(old_name, &target, now)
            }
            Some(target) => target.lose_link(now),
            None => Ok(()),
        }
    }

    fn check_absent(&self, name: &[u8]) -> Result<()> {
        match self.child(name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) if self.with_names(|names| names.is_removed)? => Err(Errno::ENOENT),
            Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sees to it that so many more names have a place here: afterwards [`Self::put_name`] has all that it needs. That
    /// a name is taken out first helps nothing: it may be the base's.
    fn make_room(&self, more: usize) -> Result<()> {
        self.with_names(|names| names.make_room(more))?
    }

    /// Leads `name` to `node` and counts the link, unless it only moves.
    fn put_name(&self, name: &[u8], node: &Arc<Self>, now: Timestamp) -> Result<()> {
        let before = self.change(|state| {
            state.modified = now;
            state.changed = now;
            if node.kind == FileKind::Directory {
                state.link_count += 1;
            }
            match &mut state.body {
                Body::Directory(names) => Ok(names.insert(name, node.clone())),
                _ => Err(Errno::ENOTDIR),
            }
        })?;
        drop(before);
        Ok(())
    }

    /// Takes `name`, which leads to `node`, out of this directory.
    fn take_name(&self, name: &[u8], node: &Arc<Self>, now: Timestamp) -> Result<()> {
        let base_has_it = directory::base_has(self.base.as_ref(), name)?;
        let before = self.change(|state| {
            state.modified = now;
            state.changed = now;
            if node.kind == FileKind::Directory {
                state.link_count = state.link_count.saturating_sub(1);
            }
            match &mut state.body {
                Body::Directory(names) => Ok(names.remove(name, base_has_it)),
                _ => Err(Errno::ENOTDIR),
            }
        })?;
        drop(before);
        Ok(())
    }

    /// Notes that one name of this node is gone.
    fn lose_link(&self, now: Timestamp) -> Result<()> {
        let is_last = self.change(|state| {
            state.changed = now;
            match &mut state.body {
                Body::Directory(names) => {
                    names.is_removed = true;
                    state.link_count = 0;
                }
                _ => state.link_count = state.link_count.saturating_sub(1),
            }
            Ok(state.link_count == 0)
        })?;
        if is_last && self.base.is_some() {
            self.fs.forget_changed(self.inode_number);
        }
        Ok(())
    }

    fn gain_link(&self, now: Timestamp) -> Result<()> {
        self.change(|state| {
            if state.link_count == 0 && !state.is_linkable {
                return Err(Errno::ENOENT);
            }
            state.link_count = state.link_count.checked_add(1).ok_or(Errno::EMLINK)?;
            // Once it has a name it is a file like others, which goes with its last one.
            state.is_linkable = false;
            state.changed = now;
            Ok(())
        })
    }

    /// What a rename does to the target that is in its way.
    fn check_replaceable(&self, by: &Arc<Self>) -> Result<()> {
        match (by.kind == FileKind::Directory, self.kind == FileKind::Directory) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            (true, true) if !directory::is_empty(self, self.base.as_ref())? => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }
}

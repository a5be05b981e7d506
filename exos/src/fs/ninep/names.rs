//! Changes of names at a server.
//!
//! The server decides; what is remembered here follows. The right to change a name was checked before
//! ([`super::super::namespace`]), and is checked again by the host with the rights of the tool's user.

use alloc::sync::Arc;

use super::super::memory_fs::Identity;
use super::super::metadata::{FileKind, SetAttributes, Timestamp};
use super::super::permission::MODE_SET_GID;
use super::super::vnode::{Creation, Inode, InodeRef, NewNode, RenameMode};
use super::inode::NinepInode;
use super::message::{Request, UNLINK_DIRECTORY, open_flag};
use super::{INODE_NUMBER_END, NINEP_MAGIC};
use crate::error::{Errno, Result};

impl NinepInode {
    pub(super) fn create_name(&self, name: &[u8], node: &NewNode<'_>, creation: Creation) -> Result<InodeRef> {
        let (permissions, gid) = self.for_new_node(node, creation);
        if self.fs.specials.get(self.number, name).is_some() {
            return Err(Errno::EEXIST);
        }
        let made = match node {
            NewNode::Regular => self.create_file(name, permissions, gid),
            _ => self.ask_for_node(name, node, permissions, gid).and_then(|()| self.find(name)),
        };
        match made {
            Err(error) if is_for_memory(node, error, self.fs.is_own()) => {
                let creation = Creation { permissions, gid, ..creation };
                let identity = Identity { device: self.fs.options.device, magic: NINEP_MAGIC };
                let store = (&self.fs.pool, identity, INODE_NUMBER_END);
                let made = self.fs.specials.make(store, (self.number, name), *node, creation)?;
                self.note_changed(name, None);
                Ok(made)
            }
            Err(error) => {
                // Whatever was believed of the name, the server knows better.
                if self.fs.is_own() {
                    self.fs.beliefs.change(self.number, name);
                }
                Err(error)
            }
            Ok(made) => {
                if self.fs.is_own() && creation.uid != self.fs.options.uid {
                    // As far as the server may.
                    let _ = made.send_attributes(SetAttributes { uid: Some(creation.uid), ..Default::default() }, None);
                    made.refresh(0);
                }
                self.note_changed(name, Some(&made));
                Ok(made)
            }
        }
    }

    /// Has the server make what is no plain file.
    fn ask_for_node(&self, name: &[u8], node: &NewNode<'_>, permissions: u32, gid: u32) -> Result<()> {
        let path = self.path();
        let session = &self.fs.session;
        match node {
            NewNode::Directory => session.call(
                Request::MakeDirectory,
                |writer| {
                    writer.u32(path.number()).string(name).u32(permissions).u32(gid);
                },
                |mut reply| reply.qid(),
            )?,
            NewNode::Symlink(target) => session.call(
                Request::Symlink,
                |writer| {
                    writer.u32(path.number()).string(name).string(target).u32(gid);
                },
                |mut reply| reply.qid(),
            )?,
            _ => {
                let device = match node {
                    NewNode::CharacterDevice(number) | NewNode::BlockDevice(number) => *number,
                    _ => super::super::metadata::DeviceNumber::default(),
                };
                session.call(
                    Request::MakeNode,
                    |writer| {
                        writer.u32(path.number()).string(name).u32(node.kind().mode_bits() | permissions);
                        writer.u32(device.major).u32(device.minor).u32(gid);
                    },
                    |mut reply| reply.qid(),
                )?
            }
        };
        Ok(())
    }

    /// The pod has changed a name here, which leads to `child` now.
    fn note_changed(&self, name: &[u8], child: Option<&Arc<Self>>) {
        let fs = &self.fs;
        if !fs.is_own() {
            return;
        }
        fs.beliefs.change(self.number, name);
        let (stamp, change_count) = (fs.stamp(), fs.beliefs.change_count());
        fs.beliefs.note((self.number, name), child.cloned(), stamp, change_count);
        self.doubt_attributes();
    }

    /// Permissions and group of what is made here.
    fn for_new_node(&self, node: &NewNode<'_>, creation: Creation) -> (u32, u32) {
        let metadata = self.metadata();
        if metadata.permissions & MODE_SET_GID == 0 {
            return (creation.permissions, creation.gid);
        }
        let inherited = if node.kind() == FileKind::Directory { MODE_SET_GID } else { 0 };
        (creation.permissions | inherited, metadata.gid)
    }

    /// A new file; it is open at the server from then on.
    fn create_file(&self, name: &[u8], permissions: u32, gid: u32) -> Result<Arc<Self>> {
        let (fid, _) = self.fs.session.walk(&self.path(), None)?;
        let flags = open_flag::READ_WRITE | open_flag::CREATE | open_flag::EXCLUSIVE;
        self.fs.session.call(
            Request::Create,
            |writer| {
                writer.u32(fid.number()).string(name).u32(flags).u32(permissions).u32(gid);
            },
            |mut reply| reply.qid(),
        )?;
        let made = self.find(name)?;
        // Its maker may read and write it whatever its permissions are.
        let fid = Arc::new(fid);
        made.set_opened(true, fid.clone());
        made.set_opened(false, fid);
        Ok(made)
    }

    pub(super) fn link_name(&self, name: &[u8], target: &Self) -> Result<()> {
        let (directory, path) = (self.path(), target.path());
        self.fs.session.call(
            Request::Link,
            |writer| {
                writer.u32(directory.number()).u32(path.number()).string(name);
            },
            |_| Some(()),
        )?;
        target.refresh(0);
        // Which of its names a file is walked by is not known of one that has several.
        self.fs.beliefs.change(self.number, name);
        self.doubt_attributes();
        Ok(())
    }

    pub(super) fn remove_name(&self, name: &[u8], is_directory: bool, now: Timestamp) -> Result<()> {
        if self.fs.specials.get(self.number, name).is_some() {
            if is_directory {
                return Err(Errno::ENOTDIR);
            }
            self.fs.specials.remove(self.number, name, now);
            self.doubt_attributes();
            return Ok(());
        }
        let victim = self.find(name)?;
        match (victim.file_kind() == FileKind::Directory, is_directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if self.fs.specials.has_any(victim.number) => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let path = self.path();
        self.fs.session.call(
            Request::Unlink,
            |writer| {
                writer.u32(path.number()).string(name).u32(if is_directory { UNLINK_DIRECTORY } else { 0 });
            },
            |_| Some(()),
        )?;
        victim.note_unlinked(now);
        self.note_changed(name, None);
        self.tell_change();
        Ok(())
    }

    /// A name of this directory has changed: at the next question or, where the host looks too, at once.
    fn tell_change(&self) {
        if self.fs.is_own() {
            self.doubt_attributes();
        } else {
            self.refresh(0);
        }
    }

    pub(super) fn rename_name(
        &self,
        old_name: &[u8],
        (new_parent, new_name): (&Self, &[u8]),
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        let specials = &self.fs.specials;
        let is_taken = specials.get(new_parent.number, new_name).is_some();
        match mode {
            // The protocol has no such request.
            RenameMode::Exchange => return Err(Errno::EINVAL),
            RenameMode::NoReplace if is_taken => return Err(Errno::EEXIST),
            _ => {}
        }
        if specials.get(self.number, old_name).is_some() {
            return self.rename_special(old_name, (new_parent, new_name), mode, now);
        }
        let replaced = match (new_parent.find(new_name), mode) {
            (Ok(_), RenameMode::NoReplace) => return Err(Errno::EEXIST),
            (Ok(found), _) => Some(found),
            (Err(Errno::ENOENT), _) => None,
            (Err(error), _) => return Err(error),
        };
        let moved = self.find(old_name)?;
        if replaced.as_ref().is_some_and(|replaced| Arc::ptr_eq(replaced, &moved)) {
            return Ok(());
        }
        if replaced.as_ref().is_some_and(|replaced| specials.has_any(replaced.number)) {
            return Err(Errno::ENOTEMPTY);
        }
        let (from, to) = (self.path(), new_parent.path());
        self.fs.session.call(
            Request::Rename,
            |writer| {
                writer.u32(from.number()).string(old_name).u32(to.number()).string(new_name);
            },
            |_| Some(()),
        )?;
        specials.remove(new_parent.number, new_name, now);
        if let Some(replaced) = replaced {
            replaced.note_unlinked(now);
        }
        self.note_changed(old_name, None);
        self.fs.beliefs.change(new_parent.number, new_name);
        // Met by its new name, it gets a fid that leads there.
        new_parent.find(new_name).map(drop)?;
        self.tell_change();
        new_parent.tell_change();
        Ok(())
    }

    /// The same of a node that is in memory: what the server has by the new name goes first.
    fn rename_special(
        &self,
        old_name: &[u8],
        (new_parent, new_name): (&Self, &[u8]),
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        if self.fs.specials.get(new_parent.number, new_name).is_none() {
            match (new_parent.find(new_name), mode) {
                (Ok(_), RenameMode::NoReplace) => return Err(Errno::EEXIST),
                (Ok(_), _) => new_parent.remove_name(new_name, false, now)?,
                (Err(Errno::ENOENT), _) => {}
                (Err(error), _) => return Err(error),
            }
        }
        self.fs.specials.rename((self.number, old_name), (new_parent.number, new_name), now);
        self.doubt_attributes();
        new_parent.doubt_attributes();
        Ok(())
    }
}

/// Whether a node that the server would not make is made in memory: one that is for the pod itself. A device is, where
/// the whole tree is the pod's own.
fn is_for_memory(node: &NewNode<'_>, error: Errno, is_own: bool) -> bool {
    let is_refused = matches!(error, Errno::ENXIO | Errno::EPERM | Errno::EOPNOTSUPP);
    is_refused
        && match node {
            NewNode::Fifo | NewNode::Socket => true,
            NewNode::CharacterDevice(_) | NewNode::BlockDevice(_) => is_own,
            _ => false,
        }
}

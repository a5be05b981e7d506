//! Changes of names at a server.
//!
//! The server decides; what is remembered here follows. The right to change a name was checked before
//! ([`super::super::namespace`]), and is checked again by the host with the rights of the tool's user.

use alloc::sync::Arc;

use super::super::metadata::{FileKind, Timestamp};
use super::super::permission::MODE_SET_GID;
use super::super::vnode::{Creation, Inode, InodeRef, NewNode, RenameMode};
use super::inode::NinepInode;
use super::message::{Request, UNLINK_DIRECTORY, open_flag};
use crate::error::{Errno, Result};

impl NinepInode {
    pub(super) fn create_name(&self, name: &[u8], node: &NewNode<'_>, creation: Creation) -> Result<InodeRef> {
        let (permissions, gid) = self.for_new_node(node, creation);
        if matches!(node, NewNode::Regular) {
            return self.create_file(name, permissions, gid);
        }
        let path = self.path();
        let session = &self.fs.session;
        let kind = node.kind();
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
                        writer.u32(path.number()).string(name).u32(kind.mode_bits() | permissions);
                        writer.u32(device.major).u32(device.minor).u32(gid);
                    },
                    |mut reply| reply.qid(),
                )?
            }
        };
        Ok(self.find(name)?)
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
    fn create_file(&self, name: &[u8], permissions: u32, gid: u32) -> Result<InodeRef> {
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
        Ok(())
    }

    pub(super) fn remove_name(&self, name: &[u8], is_directory: bool, now: Timestamp) -> Result<()> {
        let victim = self.find(name)?;
        match (victim.file_kind() == FileKind::Directory, is_directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
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
        self.refresh(0);
        Ok(())
    }

    pub(super) fn rename_name(
        &self,
        old_name: &[u8],
        (new_parent, new_name): (&Self, &[u8]),
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        let replaced = match (new_parent.find(new_name), mode) {
            // The protocol has no such request.
            (_, RenameMode::Exchange) => return Err(Errno::EINVAL),
            (Ok(_), RenameMode::NoReplace) => return Err(Errno::EEXIST),
            (Ok(found), RenameMode::Replace) => Some(found),
            (Err(Errno::ENOENT), _) => None,
            (Err(error), _) => return Err(error),
        };
        let moved = self.find(old_name)?;
        if replaced.as_ref().is_some_and(|replaced| Arc::ptr_eq(replaced, &moved)) {
            return Ok(());
        }
        let (from, to) = (self.path(), new_parent.path());
        self.fs.session.call(
            Request::Rename,
            |writer| {
                writer.u32(from.number()).string(old_name).u32(to.number()).string(new_name);
            },
            |_| Some(()),
        )?;
        if let Some(replaced) = replaced {
            replaced.note_unlinked(now);
        }
        // Met by its new name, it gets a fid that leads there.
        new_parent.find(new_name).map(drop)?;
        self.refresh(0);
        new_parent.refresh(0);
        Ok(())
    }
}

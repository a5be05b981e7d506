//! The inode of the in-memory file system.

use aegis_abi::FrameNumber;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::super::extended_attribute::{AttributeChange, ExtendedAttributes};
use super::super::file_users::FileUsers;
use super::super::metadata::{
    Decision, DeviceNumber, FileKind, FileSystemStatistics, Metadata, Protection, SetAttributes, Timestamp,
    is_access_due,
};
use super::super::open_file::{OpenFile, OpenRequest};
use super::super::page::PAGE_BYTES;
use super::super::permission::Credentials;
use super::super::pipe::{Pipe, PipeEnd};
use super::super::seals::{Sealable, Seals};
use super::super::transfer::{Destination, Limited, Source, partial};
use super::super::vnode::{
    Allocate, Creation, EntryConsumer, Inode, InodeRef, NewNode, OFFSET_MAX, RenameMode, SeekTarget, WritePosition,
};
use super::MemoryFs;
use super::content::{Backing, Content, PIECE_PAGES, Pages};
use super::directory::{self, Known, Names};
use super::guards::Guards;
use crate::error::{Errno, Result};
use crate::mem::frames::FixedRun;
use crate::mem::source::{FilePage, PageError, PageIntent};
use crate::platform::FrameBytes;
use crate::preempt::{self, Pace};
use crate::sync::{self, Mutex};

/// Bytes that one lock of a file moves at most.
pub(super) const WRITE_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// What tmpfs counts per entry in a directory's size.
const DIRECTORY_ENTRY_BYTES: u64 = 20;

/// An inode in memory.
pub struct MemoryNode {
    pub(super) fs: Arc<MemoryFs>,
    pub(super) inode_number: u64,
    pub(super) kind: FileKind,
    pub(super) device_node: DeviceNumber,
    pub(super) base: Option<InodeRef>,
    pub(super) can_seal: bool,
    pub(super) users: FileUsers,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) permissions: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) link_count: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) created: Option<Timestamp>,
    /// Differs from the base in more than the time of last access.
    pub(super) is_changed: bool,
    /// Made without a name and may still get one (`O_TMPFILE`).
    pub(super) is_linkable: bool,
    pub(super) guards: Guards,
    pub(super) extended: Option<Box<ExtendedAttributes>>,
    pub(super) body: Body,
}

impl State {
    pub(super) fn protection(&self, kind: FileKind) -> Protection {
        Protection { kind, permissions: self.permissions, uid: self.uid, gid: self.gid }
    }

    pub(super) fn set_attributes(&mut self, attributes: SetAttributes, now: Timestamp) -> Result<()> {
        let runs_as_before = attributes.permissions.is_none_or(|new| (new ^ self.permissions) & 0o111 == 0);
        if !runs_as_before && self.guards.contains(Guards::EXECUTE) {
            return Err(Errno::EPERM);
        }
        if let Some(permissions) = attributes.permissions {
            self.permissions = permissions & 0o7777;
            self.guards = self.guards.with_permissions(permissions);
        }
        self.uid = attributes.uid.unwrap_or(self.uid);
        self.gid = attributes.gid.unwrap_or(self.gid);
        self.accessed = attributes.accessed.unwrap_or(self.accessed);
        self.modified = attributes.modified.unwrap_or(self.modified);
        self.changed = now;
        Ok(())
    }
}

pub(super) enum Body {
    File(Content),
    Directory(Names),
    Symlink(Vec<u8>),
    Fifo(Option<Arc<Pipe>>),
    Other,
}

impl Body {
    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Self::File(content) => content.size_bytes,
            _ => 0,
        }
    }

    /// Empties a directory that nobody can reach any more.
    fn take_nodes(&mut self) -> Vec<Arc<MemoryNode>> {
        match self {
            Self::Directory(names) => names.take_nodes(),
            _ => Vec::new(),
        }
    }
}

impl MemoryNode {
    pub(super) fn new(fs: Arc<MemoryFs>, inode_number: u64, what: &NewNode<'_>, creation: Creation) -> Self {
        let (body, device_node) = match what {
            NewNode::Regular => (Body::File(Content::default()), DeviceNumber::default()),
            NewNode::Directory => (Body::Directory(Names::new()), DeviceNumber::default()),
            NewNode::Symlink(target) => (Body::Symlink(target.to_vec()), DeviceNumber::default()),
            NewNode::CharacterDevice(number) | NewNode::BlockDevice(number) => (Body::Other, *number),
            NewNode::Fifo => (Body::Fifo(None), DeviceNumber::default()),
            NewNode::Socket => (Body::Other, DeviceNumber::default()),
        };
        let kind = what.kind();
        let state = State {
            permissions: creation.permissions & 0o7777,
            uid: creation.uid,
            gid: creation.gid,
            link_count: if kind == FileKind::Directory { 2 } else { 0 },
            accessed: creation.now,
            modified: creation.now,
            changed: creation.now,
            created: Some(creation.now),
            is_changed: false,
            is_linkable: false,
            guards: Guards::new(Seals::SEAL, creation.permissions),
            extended: None,
            body,
        };
        let state = Mutex::new(state);
        Self { fs, inode_number, kind, device_node, base: None, can_seal: false, users: FileUsers::default(), state }
    }

    pub(super) fn over(fs: Arc<MemoryFs>, base: InodeRef, of_base: &Metadata) -> Self {
        let body = match of_base.kind {
            FileKind::Regular => Body::File(Content::over(of_base.size_bytes)),
            FileKind::Directory => Body::Directory(Names::new()),
            // An unreadable target shows when it is asked for; see `read_link`.
            FileKind::Symlink => Body::Symlink(base.read_link().unwrap_or_default()),
            FileKind::Fifo => Body::Fifo(None),
            _ => Body::Other,
        };
        let state = State {
            permissions: of_base.permissions,
            uid: of_base.uid,
            gid: of_base.gid,
            link_count: of_base.link_count,
            accessed: of_base.accessed,
            modified: of_base.modified,
            changed: of_base.changed,
            created: of_base.created,
            is_changed: false,
            is_linkable: false,
            guards: Guards::new(Seals::SEAL, of_base.permissions),
            extended: None,
            body,
        };
        Self {
            fs,
            inode_number: of_base.inode_number,
            kind: of_base.kind,
            device_node: of_base.device_node,
            base: Some(base),
            users: FileUsers::default(),
            can_seal: false,
            state: Mutex::new(state),
        }
    }

    /// A file without a name that can be sealed if `seals` lets it (`memfd_create`), in the file system of
    /// this node.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn create_memory_file(&self, creation: Creation, seals: Seals) -> Result<InodeRef> {
        let node = self.fs.new_node(&NewNode::Regular, creation)?;
        let mut node = Arc::into_inner(node).ok_or(Errno::EIO)?;
        node.can_seal = true;
        node.state.get_mut().guards = Guards::new(seals, creation.permissions);
        Ok(Arc::new(node))
    }

    pub(super) fn file_kind(&self) -> FileKind {
        self.kind
    }

    /// The names of a directory, under its lock.
    pub(super) fn with_names<R>(&self, work: impl FnOnce(&mut Names) -> R) -> Result<R> {
        match &mut self.state.lock().body {
            Body::Directory(names) => Ok(work(names)),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn with_content<R>(&self, work: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        match self.kind {
            FileKind::Regular => work(&mut self.state.lock()),
            FileKind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// This node's own `Arc`. A node is found by the calls that change it, so its file system or directory can name it
    /// again.
    pub(super) fn keep(&self, state: &mut State) -> bool {
        let is_first = self.base.is_some() && !state.is_changed;
        state.is_changed = true;
        is_first
    }

    /// Called after a change, without the lock, if [`Self::keep`] said so: from now on this node cannot be
    /// made again from the base.
    pub(super) fn kept(&self) {
        if self.base.is_some() {
            self.fs.keep_changed(self.inode_number);
        }
    }

    /// Changes the state and keeps the change.
    pub(super) fn change<R>(&self, work: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let (result, is_first) = {
            let mut state = self.state.lock();
            let result = work(&mut state)?;
            (result, self.keep(&mut state))
        };
        if is_first {
            self.kept();
        }
        Ok(result)
    }

    /// As [`Self::change`], but not in the middle of a long write.
    fn change_alone<R>(&self, mut work: impl FnMut(&mut State) -> Result<R>) -> Result<R> {
        loop {
            let outcome = self.change(|state| match state.guards.contains(Guards::LONG_WRITE) {
                true => Ok(None),
                false => work(state).map(Some),
            })?;
            if let Some(result) = outcome {
                return Ok(result);
            }
            preempt::unless_killed()?;
            sync::relax();
        }
    }

    /// Drops pages that were cut off, without a lock.
    fn drop_pages(&self, pages: Option<Pages>) {
        let mut pages = pages.into_iter().flatten();
        loop {
            let mut looked_count = 0;
            let count = pages.by_ref().take(PIECE_PAGES as usize).inspect(|_| looked_count += 1).flatten().count();
            if let (Body::File(content), 1..) = (&mut self.state.lock().body, count) {
                content.note_dropped(&self.fs, count as u64);
            }
            if looked_count < PIECE_PAGES as usize {
                return;
            }
            preempt::offer();
        }
    }

    pub(super) fn child(&self, name: &[u8]) -> Result<Arc<Self>> {
        match self.with_names(|names| names.get(name))? {
            Known::Own(node) => Ok(node),
            Known::Whiteout => Err(Errno::ENOENT),
            Known::Nothing => match &self.base {
                Some(base) if !base.is_always_empty() => self.fs.node_over(base.lookup(name)?),
                _ => Err(Errno::ENOENT),
            },
        }
    }

    /// Has the base's pages of `range` at hand that this file shows, for as long as the answer is kept: so that they
    /// can be used under the lock without a wait. What cannot be had shows there.
    pub(super) fn fetch(&self, range: Range<u64>) -> Vec<FilePage> {
        let Some(base) = self.base.as_ref().filter(|base| base.may_wait()) else { return Vec::new() };
        let wanted: Vec<u64> = match &self.state.lock().body {
            Body::File(content) => {
                let end = range.end.min(content.base_page_count());
                (range.start..end).filter(|index| matches!(content.backing(*index), Backing::Base(_))).collect()
            }
            _ => Vec::new(),
        };
        wanted.into_iter().filter_map(|index| base.page(index, PageIntent::Read).ok()).collect()
    }

    /// Moves bytes of own pages from `offset` on under the lock, until an end of the file, of the own pages or of
    /// `wanted`, or a fault; `step` moves so many bytes of one frame from so far in it. How many were moved.
    pub(super) fn move_nofault(
        &self,
        content: &Content,
        offset: u64,
        wanted: usize,
        mut step: impl FnMut(&dyn FrameBytes, FrameNumber, usize, usize) -> usize,
    ) -> usize {
        let left = content.size_bytes.saturating_sub(offset);
        let wanted = wanted.min(WRITE_CHUNK_BYTES_MAX).min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < wanted {
            let position = offset + done as u64;
            let Some(frame) = content.own_frame(position / PAGE_BYTES as u64) else { break };
            let within = (position % PAGE_BYTES as u64) as usize;
            let count = (PAGE_BYTES - within).min(wanted - done);
            let copied = step(&**self.fs.pool.bytes(), frame, within, count);
            done += copied;
            if copied < count {
                break;
            }
        }
        done
    }

    /// The beginning of a read, without a reference to a page for each.
    fn read_nofault(&self, offset: u64, wanted: usize, destination: &mut dyn Destination) -> usize {
        match &self.state.lock().body {
            Body::File(content) => self.move_nofault(content, offset, wanted, |frames, frame, within, count| {
                destination.put_frame_nofault(frames, frame, within, count)
            }),
            _ => 0,
        }
    }

    /// A read of a file that is what its base is, where that is at hand and never another: all of it at once, in pieces
    /// of the base's own.
    fn read_base(&self, base: &InodeRef, offset: u64, destination: &mut dyn Destination) -> Option<Result<usize>> {
        let left = match &self.state.lock().body {
            Body::File(content) if content.is_base_alone() => content.size_bytes.saturating_sub(offset),
            _ => return None,
        };
        if left == 0 {
            return Some(Ok(0));
        }
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        if base.may_wait() { None } else { Some(base.read_at(offset, &mut Limited::new(destination, left))) }
    }

    fn read_page(
        &self,
        offset: u64,
        count: usize,
        backing: Backing,
        destination: &mut dyn Destination,
    ) -> Result<usize> {
        let within = (offset % PAGE_BYTES as u64) as usize;
        match backing {
            Backing::Zeros => Ok(destination.put_zeros(count)),
            Backing::Own(page) => Ok(destination.put_frame(&**self.fs.pool.bytes(), page.frame(), within, count)),
            Backing::Base(shown) => {
                let from_base = count.min(shown.saturating_sub(within));
                let mut done = 0;
                if let (Some(base), 1..) = (&self.base, from_base) {
                    done = base.read_at(offset, &mut Limited::new(destination, from_base))?;
                }
                if done == from_base {
                    done += destination.put_zeros(count - from_base);
                }
                Ok(done)
            }
        }
    }
}

/// Pages that a range of bytes touches.
pub(super) fn pages_of(offset: u64, length: u64) -> Range<u64> {
    offset / PAGE_BYTES as u64..offset.saturating_add(length).div_ceil(PAGE_BYTES as u64)
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        // The nodes below go one by one, so that a deep tree needs no deep stack.
        let mut below = self.state.get_mut().body.take_nodes();
        let mut pace = Pace::default();
        while let Some(node) = below.pop() {
            pace.offer();
            if let Some(mut last) = Arc::into_inner(node) {
                below.append(&mut last.state.get_mut().body.take_nodes());
            }
        }
        if let Body::File(content) = &mut self.state.get_mut().body
            && content.own_page_count() != 0
        {
            self.fs.give_pages(content.own_page_count());
            for page in content.take_pages() {
                drop(page);
                pace.offer();
            }
        }
        if self.base.is_some() {
            self.fs.forget_dead(self.inode_number);
        } else {
            self.fs.inode_count.fetch_sub(1, core::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl Sealable for MemoryNode {
    fn get(&self) -> Seals {
        self.state.lock().guards.seals()
    }

    fn add(&self, seals: Seals) -> Result<()> {
        let mut state = self.state.lock();
        if state.guards.contains(Guards::SEAL) {
            return Err(Errno::EPERM);
        }
        state.guards |= Guards::of(seals);
        Ok(())
    }
}

impl Inode for MemoryNode {
    /// One over a base can be made again.
    fn is_kept(&self) -> bool {
        self.base.is_none()
    }

    fn metadata(&self) -> Metadata {
        let state = self.state.lock();
        let page_blocks = PAGE_BYTES as u64 / 512;
        let (size_bytes, block_count) = match &state.body {
            Body::File(content) => (content.size_bytes, content.block_page_count() * page_blocks),
            Body::Directory(names) => {
                let at_first = self.base.as_ref().map_or(2 * DIRECTORY_ENTRY_BYTES, |base| base.size_bytes());
                (at_first + DIRECTORY_ENTRY_BYTES * names.own_count() as u64, 0)
            }
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Fifo(_) | Body::Other => (0, 0),
        };
        Metadata {
            device: self.fs.identity.device,
            inode_number: self.inode_number,
            kind: self.kind,
            permissions: state.permissions,
            link_count: state.link_count,
            uid: state.uid,
            gid: state.gid,
            device_node: self.device_node,
            size_bytes,
            block_count,
            accessed: state.accessed,
            modified: state.modified,
            changed: state.changed,
            created: state.created,
        }
    }

    fn inode_number(&self) -> u64 {
        self.inode_number
    }

    fn device(&self) -> DeviceNumber {
        self.fs.identity.device
    }

    fn protection(&self) -> Protection {
        self.state.lock().protection(self.kind)
    }

    fn kind(&self) -> FileKind {
        self.kind
    }

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        Ok(self.child(name)?)
    }

    fn ends_at(&self, cookie: u64) -> bool {
        directory::ends_at(self, self.base.as_ref(), cookie)
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        self.with_names(|_| ())?;
        directory::list(self, self.base.as_ref(), cookie, consumer)
    }

    fn create(&self, name: &[u8], node: NewNode<'_>, creation: Creation) -> Result<InodeRef> {
        self.create_name(name, &node, creation)
    }

    fn create_unnamed(&self, creation: Creation, is_linkable: bool) -> Result<InodeRef> {
        self.with_names(|_| ())?;
        let made = self.fs.new_node(&NewNode::Regular, creation)?;
        made.state.lock().is_linkable = is_linkable;
        Ok(made)
    }

    fn link(&self, name: &[u8], target: &InodeRef, now: Timestamp) -> Result<()> {
        self.link_name(name, target, now)
    }

    fn unlink(&self, name: &[u8], now: Timestamp) -> Result<()> {
        self.unlink_name(name, now)
    }

    fn remove_directory(&self, name: &[u8], now: Timestamp) -> Result<()> {
        self.remove_directory_name(name, now)
    }

    fn rename(
        &self,
        old_name: &[u8],
        new_parent: &InodeRef,
        new_name: &[u8],
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        self.rename_name((old_name, new_parent, new_name), mode, now)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.state.lock().body {
            Body::Symlink(target) if target.is_empty() => Err(Errno::EIO),
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn read_at(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        if let Some(base) = &self.base
            && let Some(outcome) = self.read_base(base, offset, destination)
        {
            return outcome;
        }
        let wanted = destination.remaining();
        let mut done = self.read_nofault(offset, wanted, destination);
        let mut pace = Pace::default();
        while done < wanted {
            if let Err(error) = pace.page_unless_killed() {
                return partial(done, error);
            }
            let position = offset.saturating_add(done as u64);
            let page_index = position / PAGE_BYTES as u64;
            let (backing, left) = self.with_content(|state| match &state.body {
                Body::File(content) => Ok((content.backing(page_index), content.size_bytes.saturating_sub(position))),
                _ => Err(Errno::EINVAL),
            })?;
            let in_page = PAGE_BYTES as u64 - position % PAGE_BYTES as u64;
            let count = in_page.min(left).min(destination.remaining() as u64) as usize;
            if count == 0 {
                break;
            }
            match self.read_page(position, count, backing, destination) {
                Ok(copied) => {
                    done += copied;
                    if copied < count {
                        return partial(done, Errno::EFAULT);
                    }
                }
                Err(error) => return partial(done, error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, position: WritePosition, source: &mut dyn Source, now: Timestamp) -> Result<(u64, usize)> {
        let (start, begun) = match position {
            WritePosition::At(offset) => (offset, self.write_nofault(offset, source, now)),
            WritePosition::End => (0, 0),
        };
        let length = source.remaining().min(WRITE_CHUNK_BYTES_MAX);
        if begun == 0 {
            return self.fs.spare.lend(length, |chunk| self.write_by(chunk, position, source, now));
        }
        if length == 0 {
            return Ok((start, begun));
        }
        let rest = WritePosition::At(start + begun as u64);
        let more = self.fs.spare.lend(length, |chunk| self.write_by(chunk, rest, source, now));
        Ok((start, begun + more.map_or(0, |(_, count)| count)))
    }

    fn truncate(&self, size_bytes: u64, now: Timestamp) -> Result<()> {
        self.with_content(|_| Ok(()))?;
        let cut_off = self.change_alone(|state| {
            let State { body: Body::File(content), guards, .. } = state else {
                return Err(Errno::EINVAL);
            };
            let shrinks = size_bytes < content.size_bytes;
            let grows = size_bytes > content.size_bytes;
            if (shrinks && guards.contains(Guards::SHRINK)) || (grows && guards.contains(Guards::GROW)) {
                return Err(Errno::EPERM);
            }
            let cut_off = content.resize(&self.fs, size_bytes)?;
            state.modified = now;
            state.changed = now;
            Ok(cut_off)
        })?;
        self.drop_pages(cut_off);
        Ok(())
    }

    fn allocate(&self, mode: Allocate, offset: u64, length: u64, now: Timestamp) -> Result<()> {
        let end = offset.checked_add(length).filter(|end| *end <= OFFSET_MAX);
        let end = end.ok_or(Errno::EFBIG)?;
        self.with_content(|_| Ok(()))?;
        // What is in between is not read, or only for a file that gets all of its pages.
        let _fetched = [offset, end.saturating_sub(1)].map(|edge| self.fetch(pages_of(edge, 1)));
        let punches = !matches!(mode, Allocate::Extend | Allocate::KeepSize);
        let keeps_size = !matches!(mode, Allocate::Extend | Allocate::ZeroRange);
        if mode != Allocate::PunchHole && length / PAGE_BYTES as u64 > self.fs.page_count_max() {
            return Err(Errno::ENOSPC);
        }
        let base = self.base.as_ref();
        let mut start = offset;
        while start < end {
            // The file may be another one after each piece, so all is looked at again.
            let reached = self.change_alone(|state| {
                let State { body: Body::File(content), guards, .. } = state else {
                    return Err(Errno::EINVAL);
                };
                if punches && guards.intersects(Guards::WRITES) {
                    return Err(Errno::EPERM);
                }
                let grows = !keeps_size && end > content.size_bytes;
                if grows && guards.contains(Guards::GROW) {
                    return Err(Errno::EPERM);
                }
                let piece_end = match mode {
                    Allocate::PunchHole => content.piece_end(start, end),
                    _ => (start / PAGE_BYTES as u64 + PIECE_PAGES).saturating_mul(PAGE_BYTES as u64).min(end),
                };
                if punches {
                    content.punch(&self.fs, base, start, piece_end)?;
                }
                if mode != Allocate::PunchHole {
                    content.reserve(&self.fs, base, start, piece_end)?;
                }
                if grows && piece_end == end {
                    content.resize(&self.fs, end)?;
                }
                state.modified = now;
                state.changed = now;
                Ok(piece_end)
            });
            start = match reached {
                Err(error) if self.fs.awaits_room(error) => start,
                reached => reached?,
            };
            if start < end {
                preempt::unless_signalled()?;
            }
        }
        Ok(())
    }

    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        self.with_content(|state| match &state.body {
            Body::File(content) => content.seek(offset, target),
            _ => Err(Errno::EINVAL),
        })
    }

    fn set_attributes(&self, attributes: SetAttributes, now: Timestamp) -> Result<()> {
        self.change(|state| state.set_attributes(attributes, now))
    }

    fn decide_attributes(&self, decide: &mut Decision<'_>, now: Timestamp) -> Result<bool> {
        self.change(|state| match decide(state.protection(self.kind))? {
            Some(attributes) => state.set_attributes(attributes, now).map(|()| true),
            None => Ok(false),
        })
    }

    fn size_bytes(&self) -> u64 {
        match &self.state.lock().body {
            Body::File(content) => return content.size_bytes,
            Body::Directory(_) => {}
            Body::Symlink(target) => return target.len() as u64,
            Body::Fifo(_) | Body::Other => return 0,
        }
        self.metadata().size_bytes
    }

    fn note_access(&self, now: Timestamp) {
        let mut state = self.state.lock();
        if is_access_due(state.accessed, [state.modified, state.changed], now) {
            state.accessed = now;
        }
    }

    fn touch_accessed(&self, now: Timestamp) {
        self.state.lock().accessed = now;
    }

    fn is_mappable(&self) -> bool {
        self.kind == FileKind::Regular
    }

    fn may_wait(&self) -> bool {
        self.base.as_ref().is_some_and(|base| base.may_wait())
    }

    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        let _fetched = self.fetch(index..index.saturating_add(1));
        let (page, is_first) = {
            let mut state = self.state.lock();
            let Body::File(content) = &mut state.body else { return Err(PageError::Failed) };
            let page = content.page(&self.fs, self.base.as_ref(), index, intent)?;
            // An own page that was made for reading holds what the base holds; it may be lost with the node.
            (page, intent == PageIntent::WriteShared && self.keep(&mut state))
        };
        if is_first {
            self.kept();
        }
        Ok(page)
    }

    fn owns(&self, index: u64, frame: FrameNumber) -> bool {
        let state = self.state.lock();
        self.base.is_none() && matches!(&state.body, Body::File(content) if content.own_frame(index) == Some(frame))
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        match &self.state.lock().body {
            Body::File(content) => content.resident_page(self.base.as_ref(), index),
            _ => None,
        }
    }

    fn resident_pages(&self, indices: Range<u64>, take: &mut dyn FnMut(u64, FilePage)) {
        if let Body::File(content) = &self.state.lock().body {
            content.resident_pages(self.base.as_ref(), indices, take);
        }
    }

    fn fixed_run(&self, indices: Range<u64>) -> Option<FixedRun> {
        match &self.state.lock().body {
            Body::File(content) => content.fixed_run(self.base.as_ref()?, indices),
            _ => None,
        }
    }

    fn open(&self, request: OpenRequest, credentials: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        if self.kind != FileKind::Fifo {
            // A base may refuse what permissions here allow.
            if let (Some(base), true, FileKind::Regular | FileKind::Directory) = (&self.base, request.read, self.kind) {
                base.open(OpenRequest { write: false, ..request }, credentials)?;
            }
            return Ok(None);
        }
        let pipe = match &mut self.state.lock().body {
            Body::Fifo(pipe) => pipe.get_or_insert_with(|| Pipe::new(self.inode_number)).clone(),
            _ => return Err(Errno::EIO),
        };
        Ok(Some(PipeEnd::open_named(&pipe, request)?))
    }

    fn seals(&self) -> Option<&dyn Sealable> {
        (self.kind == FileKind::Regular && (self.can_seal || self.base.is_none())).then_some(self)
    }

    fn extended_attribute(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.attribute(name)
    }

    fn set_extended_attribute(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        change: AttributeChange,
        now: Timestamp,
    ) -> Result<()> {
        self.set_attribute(name, value, change, now)
    }

    fn extended_attribute_names(&self) -> Result<Vec<u8>> {
        self.attribute_names()
    }

    fn users(&self) -> Option<&FileUsers> {
        (self.kind == FileKind::Regular).then_some(&self.users)
    }

    fn statistics(&self) -> FileSystemStatistics {
        self.fs.statistics()
    }
}

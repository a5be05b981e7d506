//! A file of a served directory.
//!
//! An inode holds a fid for its path, attributes as the server told them last, and what is cached of its contents. Its
//! lock protects that state and is not held during a request: a request's outcome is taken over afterwards, whatever
//! came in between.
//!
//! Servers name files by path, so a fid goes stale when the host renames or removes what it leads to. With
//! [`super::Consistency::Checked`] each walk meets the file by its name again and takes the new fid over
//! ([`NinepInode::learn`]). A file that the guest removes while it is open stays usable through the fids that were
//! opened for it, which are kept from then on.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use aegis_abi::FrameNumber;

use super::super::file_users::FileUsers;
use super::super::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, SetAttributes, Timestamp};
use super::super::open_file::{OpenFile, OpenRequest};
use super::super::permission::{Credentials, MODE_SET_GID, MODE_SET_UID};
use super::super::pipe::{Pipe, PipeEnd};
use super::super::transfer::{Destination, Source};
use super::super::vnode::{Creation, EntryConsumer, Inode, InodeRef, NewNode, RenameMode, WritePosition, downcast};
use super::beliefs::Stamp;
use super::cache::Eviction;
use super::listing::Listing;
use super::message::{Attributes, Reader, Request, open_flag, set_flag};
use super::pages::Page;
use super::session::Fid;
use super::{ATTRIBUTE_AGE_NS_MAX, NINEP_MAGIC, NinepFs, OWN_AGE_NS_MAX, attributes_of};
use crate::error::{Errno, Result};
use crate::mem::source::{FilePage, PageError, PageIntent};
use crate::sync::Mutex;

/// Names of a directory that are known not to be there ([`super::Consistency::Fixed`] only).
const ABSENT_NAME_COUNT_MAX: usize = 128;

/// The directory and the name that a fid was walked by; `None` for what is served.
pub(super) type Origin<'a> = Option<(u64, &'a [u8])>;

/// A file at the server.
pub(super) struct NinepInode {
    pub(super) fs: Arc<NinepFs>,
    pub(super) own: Weak<Self>,
    pub(super) number: u64,
    kind: FileKind,
    users: FileUsers,
    pub(super) state: Mutex<State>,
    /// Held while somebody appends: from asking for the end to having written there.
    pub(super) appending: Mutex<()>,
}

pub(super) struct State {
    /// For the path.
    path: Arc<Fid>,
    /// Directory and name that `path` was walked by.
    origin: Option<(u64, Box<[u8]>)>,
    pub(super) attributes: Attributes,
    checked: Stamp,
    /// When the pod wrote to it, if the server has not told of it since.
    pub(super) written: Option<Stamp>,
    /// Changes of attributes by the pod: an answer that one has overtaken says nothing.
    pub(super) change_count: u64,
    /// The name that `path` goes by was taken from it: by now it may be another file's.
    is_path_gone: bool,
    /// Opened for reading; a directory's while it is listed.
    reader: Option<Arc<Fid>>,
    /// Opened for writing.
    writer: Option<Arc<Fid>>,
    pub(super) pages: BTreeMap<u64, Page>,
    /// Where the last pages that were read end, and how many they were.
    pub(super) read_end: u64,
    pub(super) read_window: u64,
    pub(super) listing: Option<Arc<Listing>>,
    absent: BTreeSet<Box<[u8]>>,
    target: Option<Vec<u8>>,
    pipe: Option<Arc<Pipe>>,
    /// The guest took its last name away: only opened fids lead to it.
    is_unlinked: bool,
}

impl NinepInode {
    pub(super) fn new(
        fs: Arc<NinepFs>,
        own: Weak<Self>,
        path: Fid,
        attributes: Attributes,
        origin: Origin<'_>,
    ) -> Self {
        let state = State {
            path: Arc::new(path),
            origin: origin.map(|(number, name)| (number, name.into())),
            attributes,
            checked: fs.stamp(),
            written: None,
            change_count: 0,
            is_path_gone: false,
            reader: None,
            writer: None,
            pages: BTreeMap::new(),
            read_end: 0,
            read_window: 0,
            listing: None,
            absent: BTreeSet::new(),
            target: None,
            pipe: None,
            is_unlinked: false,
        };
        let (number, kind) = (fs.number_of(attributes.qid), attributes.kind);
        Self { fs, own, number, kind, users: FileUsers::default(), state: Mutex::new(state), appending: Mutex::new(()) }
    }

    /// Whether attributes are those of this file and not of another that has its number now.
    pub(super) fn is_still(&self, attributes: &Attributes) -> bool {
        self.kind == attributes.kind && !self.state.lock().is_unlinked
    }

    /// Takes over what the server told, and the fid that was walked for it.
    pub(super) fn learn(&self, walked: Option<(Fid, Origin<'_>)>, attributes: Attributes) {
        let stamp = self.fs.stamp();
        let mut state = self.state.lock();
        if let Some((fid, origin)) = walked {
            state.path = Arc::new(fid);
            state.origin = origin.map(|(number, name)| (number, name.into()));
            state.is_path_gone = false;
        }
        let before = &state.attributes;
        let is_same = before.modified == attributes.modified
            && before.size_bytes == attributes.size_bytes
            && before.qid.version == attributes.qid.version;
        // What the pod wrote has changed the times by the server's clock, and its pages are those that were written.
        let is_lately = state.written.is_some_and(|written| stamp.at_ns.saturating_sub(written.at_ns) < OWN_AGE_NS_MAX);
        let is_own_change = self.fs.is_own() && is_lately && before.size_bytes == attributes.size_bytes;
        let is_same = is_same || is_own_change;
        if !is_same && !self.fs.is_fixed() {
            state.pages.values_mut().for_each(Page::doubt);
            state.target = None;
            if let Some(listing) = &mut state.listing {
                *listing = Arc::new(listing.doubted());
            }
        }
        state.attributes = attributes;
        state.written = None;
        state.checked = stamp;
    }

    /// The same of attributes that were asked for after so many changes, unless there is one more by now.
    fn learn_unless_changed(&self, attributes: Attributes, change_count: u64) {
        if self.state.lock().change_count == change_count {
            self.learn(None, attributes);
        }
    }

    pub(super) fn path(&self) -> Arc<Fid> {
        self.state.lock().path.clone()
    }

    pub(super) fn file_kind(&self) -> FileKind {
        self.kind
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.state.lock().attributes.size_bytes
    }

    /// Asks for attributes if those at hand may be too old. An error leaves them.
    pub(super) fn refresh(&self, age_ns_max: u64) {
        let (path, change_count) = {
            let state = self.state.lock();
            if self.fs.is_fixed() || state.is_unlinked || self.fs.is_young(state.checked, age_ns_max) {
                return;
            }
            (state.path.clone(), state.change_count)
        };
        if let Ok(attributes) = attributes_of(&self.fs.session, &path)
            && self.fs.number_of(attributes.qid) == self.number
            && attributes.kind == self.kind
        {
            self.learn_unless_changed(attributes, change_count);
        }
    }

    /// The next question about attributes goes to the server.
    pub(super) fn doubt_attributes(&self) {
        self.state.lock().checked = Stamp { at_ns: 0, input: u64::MAX };
    }

    /// The fid opened for reading or for writing, opened now if need be.
    pub(super) fn opened(&self, is_write: bool) -> Result<Arc<Fid>> {
        let path = {
            let state = self.state.lock();
            let known = if is_write { &state.writer } else { &state.reader };
            if let Some(fid) = known {
                return Ok(fid.clone());
            }
            state.path.clone()
        };
        let kind_flag = if self.kind == FileKind::Directory { open_flag::DIRECTORY } else { open_flag::NO_FOLLOW };
        let flags = kind_flag | if is_write { open_flag::WRITE } else { open_flag::READ };
        let (fid, _) = self.fs.session.walk(&path, None)?;
        self.fs.session.call(
            Request::Open,
            |writer| {
                writer.u32(fid.number()).u32(flags);
            },
            |mut reply| reply.qid(),
        )?;
        Ok(self.set_opened(is_write, Arc::new(fid)))
    }

    /// Keeps an opened fid, unless there is one by now.
    pub(super) fn set_opened(&self, is_write: bool, fid: Arc<Fid>) -> Arc<Fid> {
        let kept = {
            let mut state = self.state.lock();
            let place = if is_write { &mut state.writer } else { &mut state.reader };
            place.get_or_insert(fid).clone()
        };
        if self.kind == FileKind::Regular
            && let Some(own) = self.own.upgrade()
        {
            self.fs.note_open(&own);
        }
        kept
    }

    /// Lets the server close the file, unless nothing else leads to it any more.
    pub(super) fn close_files(&self) {
        let gone = {
            let mut state = self.state.lock();
            if state.is_unlinked { (None, None) } else { (state.reader.take(), state.writer.take()) }
        };
        drop(gone);
    }

    /// A name of this file is gone.
    pub(super) fn note_unlinked(&self, now: Timestamp) {
        let mut state = self.state.lock();
        let attributes = &mut state.attributes;
        attributes.changed = now;
        let is_directory = self.kind == FileKind::Directory;
        attributes.link_count = if is_directory { 0 } else { attributes.link_count.saturating_sub(1) };
        state.is_unlinked = state.attributes.link_count == 0;
        state.origin = None;
        state.is_path_gone = true;
    }

    /// Whether it has no name any more: what is done to it then is done here.
    pub(super) fn is_unlinked(&self) -> bool {
        self.state.lock().is_unlinked
    }

    /// Whether `child` is still what the last walk by `name` from here led to, as far as its path can tell.
    pub(super) fn has_origin(&self, name: &[u8], child: &Self) -> bool {
        let state = child.state.lock();
        let is_walked_so = state.origin.as_ref().is_some_and(|(number, by)| *number == self.number && **by == *name);
        is_walked_so && (child.kind == FileKind::Directory || state.attributes.link_count == 1)
    }

    fn check_directory(&self) -> Result<()> {
        if self.kind == FileKind::Directory { Ok(()) } else { Err(Errno::ENOTDIR) }
    }

    /// Finds a name by a question of its own; [`Self::find_with_others`] is the quick way.
    pub(super) fn find(&self, name: &[u8]) -> Result<Arc<Self>> {
        self.check_directory()?;
        let path = {
            let state = self.state.lock();
            if state.absent.contains(name) {
                return Err(Errno::ENOENT);
            }
            state.path.clone()
        };
        let (fid, qid) = match self.fs.session.walk(&path, Some(name)) {
            Ok(walked) => walked,
            Err(error) => {
                if error == Errno::ENOENT && self.fs.is_fixed() {
                    self.note_absent(name);
                }
                return Err(error);
            }
        };
        self.fs.inode_of(fid, qid.ok_or(Errno::EIO)?, (self.number, name))
    }

    fn note_absent(&self, name: &[u8]) {
        let mut state = self.state.lock();
        if state.absent.len() >= ABSENT_NAME_COUNT_MAX {
            state.absent.clear();
        }
        state.absent.insert(name.into());
    }

    fn pipe(&self) -> Arc<Pipe> {
        self.state.lock().pipe.get_or_insert_with(|| Pipe::new(self.number)).clone()
    }

    /// Lets a page go that is in a chosen frame, also if it is in use; whether there was one.
    pub(super) fn forget(&self, index: u64, is_chosen: &dyn Fn(FrameNumber) -> bool) -> bool {
        let mut state = self.state.lock();
        let is_lost = state.pages.get(&index).is_some_and(|page| is_chosen(page.frame()));
        let gone = if is_lost { state.pages.remove(&index) } else { None };
        drop(state);
        gone.is_some()
    }

    /// The frame of a page that [`Self::evict`] would free.
    pub(super) fn evictable(&self, index: u64) -> Option<FrameNumber> {
        let state = self.state.try_lock()?;
        let page = state.pages.get(&index)?;
        (!page.is_in_use(&self.fs.pool)).then(|| page.frame())
    }

    /// Lets a page go, if nobody has it; see [`super::cache`].
    pub(super) fn evict(&self, index: u64) -> Eviction {
        let Some(mut state) = self.state.try_lock() else { return Eviction::InUse };
        match state.pages.get(&index) {
            None => Eviction::Gone,
            Some(page) if page.is_in_use(&self.fs.pool) => Eviction::InUse,
            Some(_) => {
                state.pages.remove(&index);
                Eviction::Freed
            }
        }
    }
}

impl Drop for NinepInode {
    fn drop(&mut self) {
        self.fs.cache.remove(self.state.get_mut().pages.len() as u64);
        let mut inodes = self.fs.inodes.lock();
        // Another inode may have the number by now.
        if inodes.get(&self.number).is_some_and(|known| known.strong_count() == 0) {
            inodes.remove(&self.number);
        }
    }
}

impl Inode for NinepInode {
    fn metadata(&self) -> Metadata {
        self.refresh(ATTRIBUTE_AGE_NS_MAX);
        let attributes = self.state.lock().attributes;
        Metadata {
            device: self.fs.options.device,
            inode_number: self.number,
            kind: self.kind,
            permissions: attributes.permissions,
            link_count: u32::try_from(attributes.link_count).unwrap_or(u32::MAX),
            uid: attributes.uid,
            gid: attributes.gid,
            device_node: DeviceNumber::decoded(attributes.device as u32),
            size_bytes: attributes.size_bytes,
            block_count: attributes.block_count,
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
            created: None,
        }
    }

    fn kind(&self) -> FileKind {
        self.kind
    }

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        self.check_directory()?;
        if let Some(special) = self.fs.specials.get(self.number, name) {
            return Ok(special);
        }
        if let Some(believed) = self.believed(name) {
            return Ok(believed.ok_or(Errno::ENOENT)?);
        }
        let (stamp, change_count) = (self.fs.stamp(), self.fs.beliefs.change_count());
        if let Some(found) = self.find_with_others(name) {
            self.believe(name, Ok(&found), stamp, change_count);
            return Ok(found);
        }
        let found = match self.find(name) {
            Err(Errno::ENFILE) => {
                self.fs.visits.forget();
                self.fs.beliefs.forget();
                self.find(name)
            }
            found => found,
        };
        self.believe(name, found.as_ref(), stamp, change_count);
        Ok(found?)
    }

    fn is_steady(&self) -> bool {
        false
    }

    fn confirms(&self, name: &[u8], child: &InodeRef) -> bool {
        if self.fs.is_fixed() {
            return true;
        }
        if let Some(special) = self.fs.specials.get(self.number, name) {
            return Arc::ptr_eq(&special, child);
        }
        let Some(child) = downcast::<Self>(child).filter(|child| Arc::ptr_eq(&child.fs, &self.fs)) else {
            return false;
        };
        if let Some(believed) = self.believed(name) {
            return believed.is_some_and(|known| Arc::ptr_eq(&known, &child));
        }
        let (stamp, change_count) = (self.fs.stamp(), self.fs.beliefs.change_count());
        let is_so = self.confirms_by_asking(name, &child);
        if is_so {
            self.believe(name, Ok(&child), stamp, change_count);
        }
        is_so
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        self.check_directory()?;
        self.list(cookie, consumer)
    }

    fn create(&self, name: &[u8], node: NewNode<'_>, creation: Creation) -> Result<InodeRef> {
        self.create_name(name, &node, creation)
    }

    fn link(&self, name: &[u8], target: &InodeRef, _now: Timestamp) -> Result<()> {
        let target = downcast::<Self>(target).filter(|it| Arc::ptr_eq(&it.fs, &self.fs)).ok_or(Errno::EXDEV)?;
        self.link_name(name, &target)
    }

    fn unlink(&self, name: &[u8], now: Timestamp) -> Result<()> {
        self.remove_name(name, false, now)
    }

    fn remove_directory(&self, name: &[u8], now: Timestamp) -> Result<()> {
        self.remove_name(name, true, now)
    }

    fn rename(
        &self,
        old_name: &[u8],
        new_parent: &InodeRef,
        new_name: &[u8],
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        let new_parent = downcast::<Self>(new_parent).filter(|it| Arc::ptr_eq(&it.fs, &self.fs));
        self.rename_name(old_name, (&*new_parent.ok_or(Errno::EXDEV)?, new_name), mode, now)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        let path = {
            let state = self.state.lock();
            if let Some(target) = state.target.as_ref().filter(|_| self.fs.is_fixed()) {
                return Ok(target.clone());
            }
            state.path.clone()
        };
        let target = self.fs.session.call(
            Request::ReadLink,
            |writer| {
                writer.u32(path.number());
            },
            |reply| reply.target().map(<[u8]>::to_vec),
        )?;
        self.state.lock().target = Some(target.clone());
        Ok(target)
    }

    fn read_at(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        self.check_regular()?;
        self.read_pages(offset, destination)
    }

    fn write_at(&self, position: WritePosition, source: &mut dyn Source, now: Timestamp) -> Result<(u64, usize)> {
        self.check_regular()?;
        if self.state.lock().attributes.permissions & (MODE_SET_UID | MODE_SET_GID) != 0
            && let Some(writer) = source.writer()
        {
            self.end_set_ids(&writer, now)?;
        }
        self.write_through(position, source, now)
    }

    fn truncate(&self, size_bytes: u64, now: Timestamp) -> Result<()> {
        self.check_regular()?;
        self.resize(size_bytes, now)
    }

    fn set_attributes(&self, attributes: SetAttributes, _now: Timestamp) -> Result<()> {
        let is_unlinked = self.is_unlinked();
        if !is_unlinked {
            self.send_attributes(attributes, None)?;
        }
        let mut state = self.state.lock();
        // The server knows best what came of it; until it is asked again this is the nearest.
        let known = &mut state.attributes;
        known.permissions = attributes.permissions.unwrap_or(known.permissions);
        if is_unlinked {
            known.uid = attributes.uid.unwrap_or(known.uid);
            known.gid = attributes.gid.unwrap_or(known.gid);
            known.accessed = attributes.accessed.unwrap_or(known.accessed);
            known.modified = attributes.modified.unwrap_or(known.modified);
        }
        state.change_count += 1;
        drop(state);
        self.refresh(0);
        Ok(())
    }

    fn is_mappable(&self) -> bool {
        self.kind == FileKind::Regular
    }

    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        self.page_for_mapping(index, intent)
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        self.page_at_hand(index)
    }

    fn open(&self, request: OpenRequest, _credentials: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        match self.kind {
            FileKind::Fifo => Ok(Some(PipeEnd::open_named(&self.pipe(), request)?)),
            FileKind::Regular | FileKind::Directory => {
                // The host's own answer to whether its user may.
                if request.read {
                    self.opened(false)?;
                }
                if request.write {
                    self.opened(true)?;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn sync(&self) -> Result<()> {
        if self.fs.is_fixed() {
            return Ok(());
        }
        self.write_dirty_pages()?;
        let opened = {
            let state = self.state.lock();
            state.writer.clone().or_else(|| state.reader.clone())
        };
        let Some(fid) = opened else { return Ok(()) };
        self.fs.session.call(
            Request::Sync,
            |writer| {
                writer.u32(fid.number()).u32(0);
            },
            |_| Some(()),
        )
    }

    fn sync_file_system(&self) -> Result<()> {
        self.fs.sync_all()
    }

    fn users(&self) -> Option<&FileUsers> {
        (self.kind == FileKind::Regular).then_some(&self.users)
    }

    fn statistics(&self) -> FileSystemStatistics {
        let path = self.path();
        let read = |mut reply: Reader<'_>| {
            let (_kind, block_bytes) = (reply.u32()?, reply.u32()?);
            Some(FileSystemStatistics {
                magic: NINEP_MAGIC,
                block_bytes: u64::from(block_bytes),
                block_count: reply.u64()?,
                free_block_count: reply.u64()?,
                // Blocks that are free for everybody stand between.
                inode_count: reply.u64().and_then(|_| reply.u64())?,
                free_inode_count: reply.u64()?,
            })
        };
        let told = self.fs.session.call(
            Request::Statfs,
            |writer| {
                writer.u32(path.number());
            },
            read,
        );
        told.unwrap_or(FileSystemStatistics {
            magic: NINEP_MAGIC,
            block_bytes: 4096,
            block_count: 0,
            free_block_count: 0,
            inode_count: 0,
            free_inode_count: 0,
        })
    }
}

impl NinepInode {
    fn confirms_by_asking(&self, name: &[u8], child: &Arc<Self>) -> bool {
        if let Some(found) = self.find_with_others(name) {
            return Arc::ptr_eq(&found, child);
        }
        if !self.has_origin(name, child) {
            return self.find(name).is_ok_and(|found| Arc::ptr_eq(&found, child));
        }
        let change_count = child.state.lock().change_count;
        match attributes_of(&self.fs.session, &child.path()) {
            Ok(attributes) if self.fs.number_of(attributes.qid) == child.number && child.is_still(&attributes) => {
                child.learn_unless_changed(attributes, change_count);
                true
            }
            _ => false,
        }
    }

    /// What a name leads to, if that is believed.
    fn believed(&self, name: &[u8]) -> Option<Option<Arc<Self>>> {
        if !self.fs.is_own() {
            return None;
        }
        let known = self.fs.beliefs.get(self.number, name, |stamp| self.fs.is_young(stamp, ATTRIBUTE_AGE_NS_MAX))?;
        // A file of several names goes by one of them, which may be another's by now: it is walked to anew.
        let goes_by_it =
            known.as_ref().is_none_or(|child| child.kind == FileKind::Directory || self.has_origin(name, child));
        goes_by_it.then_some(known)
    }

    /// Keeps what a look-up was answered.
    fn believe(&self, name: &[u8], found: core::result::Result<&Arc<Self>, &Errno>, stamp: Stamp, change_count: u64) {
        let child = match found {
            Ok(child) => Some(child.clone()),
            Err(Errno::ENOENT) => None,
            Err(_) => return,
        };
        if self.fs.is_own() {
            self.fs.beliefs.note((self.number, name), child, stamp, change_count);
        }
    }

    fn check_regular(&self) -> Result<()> {
        match self.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `Tsetattr`.
    ///
    /// # Errors
    /// `ENOENT`: the name that it went by was taken from it, and no other of its names was met since.
    pub(super) fn send_attributes(&self, attributes: SetAttributes, size_bytes: Option<u64>) -> Result<()> {
        if self.state.lock().is_path_gone {
            return Err(Errno::ENOENT);
        }
        let path = self.path();
        let mut valid = 0;
        for (is_given, flags) in [
            (attributes.permissions.is_some(), set_flag::PERMISSIONS),
            (attributes.uid.is_some(), set_flag::UID),
            (attributes.gid.is_some(), set_flag::GID),
            (size_bytes.is_some(), set_flag::SIZE),
            (attributes.accessed.is_some(), set_flag::ACCESSED | set_flag::ACCESSED_GIVEN),
            (attributes.modified.is_some(), set_flag::MODIFIED | set_flag::MODIFIED_GIVEN),
        ] {
            valid |= if is_given { flags } else { 0 };
        }
        self.fs.session.call(
            Request::SetAttributes,
            |writer| {
                writer.u32(path.number()).u32(valid).u32(attributes.permissions.unwrap_or(0));
                writer.u32(attributes.uid.unwrap_or(0)).u32(attributes.gid.unwrap_or(0));
                writer.u64(size_bytes.unwrap_or(0));
                writer.time(attributes.accessed.unwrap_or_default()).time(attributes.modified.unwrap_or_default());
            },
            |_| Some(()),
        )
    }
}

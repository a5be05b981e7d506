//! Directories of the host, live: a client of 9P2000.L as a file system.
//!
//! From below to above: `message` (bytes), [`flight`] (requests under way), [`session`] (calls, fids) and `many` (many
//! calls at once), `inode` with its parts `pages` (contents), `directory` (listings, each a `listing`), `names`
//! (changes of names) and `ahead` (files that will be looked up next, by `guess`), and [`cache`] (the bound on pages of
//! all such file systems). Where the bytes go is [`Requester`]'s business, so all of this runs on the host in tests,
//! against a server in memory (`fake_server`) that can be told to answer nonsense.
//!
//! Consistency is one of three, chosen at the mount ([`Consistency`]):
//! - *Fixed*: the served tree is taken as unchanging. What was once seen of a file (attributes, a page, a name, also
//!   that a name is not there) is believed for as long as it is remembered. It is what an overlay needs of its base,
//!   and what makes `--root /` fast. If the host changes a file meanwhile, the program may see the old one, the new
//!   one, or pages of both.
//! - *Checked*: every path walk asks the server for each of its names, so an `open` or `stat` of a path sees what the
//!   host shows at that moment; only a program that goes through a directory may be told what was so a moment before
//!   (`ahead` says how long, and what ends it). Through an open descriptor attributes are at most
//!   [`ATTRIBUTE_AGE_NS_MAX`] old. Cached pages count while time of change and size stay what they were; a write goes
//!   to the server before the call returns, and stores through a shared mapping go there with `msync`, `fsync`, `sync`
//!   and the end of the run.
//! - *Own*: as checked, but it is the pod that changes the tree. What was told of names and attributes is believed for
//!   [`OWN_AGE_NS_MAX`], and not beyond the next time that somebody speaks to the pod (`beliefs`). New files get the
//!   owner that made them. It is a root that is written.
//!
//! A page that is mapped keeps its frame when the host changes the file: the new bytes are read into it the next time
//! the file's pages are asked for. Appending ends at the size that the server tells just before, so two writers on both
//! sides of the machine's border can overwrite each other, as on NFS; those of the pod wait for each other.
//!
//! Links are never followed by the server: walks go name by name, and a target is walked in the guest, so a link cannot
//! lead out of what is served. Identities are shown as the server tells them; permission is checked here by
//! [`super::namespace`] and there by the host, with the rights of the tool's user.
//!
//! Limits: [`session::FID_COUNT_MAX`] fids; [`OPEN_FILE_COUNT_MAX`] files that the server is asked to keep open (more
//! are closed and opened again as needed); `directory` says how large a directory may be; `cache` how many pages are
//! kept; `beliefs` how many names are believed, and `special` how many nodes there may be that the server cannot make.

mod ahead;
mod beliefs;
pub mod cache;
mod directory;
#[cfg(test)]
mod fake_server;
pub mod flight;
mod guess;
mod inode;
mod listing;
mod many;
mod message;
mod names;
mod pages;
mod session;
mod special;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};

pub use message::{CLUNK_BYTES, Messages, SHORT_BYTES_MAX};
pub use session::{COMPANION_COUNT_MAX, FID_COUNT_MAX, Requester, Silence};

use super::metadata::DeviceNumber;
use super::vnode::InodeRef;
use crate::error::{Errno, Result};
use crate::mem::frames::FramePool;
use crate::sync::Mutex;
use ahead::Visits;
use beliefs::{Beliefs, Stamp};
use cache::PageCache;
use inode::{NinepInode, Origin};
use message::{ATTRIBUTES_BASIC, Attributes, Qid, Request};
use session::{Fid, Session};
use special::Specials;

/// What `statfs` calls it (Linux `magic.h`, `V9FS_MAGIC`).
pub const NINEP_MAGIC: u64 = 0x0102_1997;
/// Files that are kept open at the server though nobody needs it now.
pub const OPEN_FILE_COUNT_MAX: usize = 128;
/// How old the attributes of an open file may be, with [`Consistency::Checked`].
pub const ATTRIBUTE_AGE_NS_MAX: u64 = 10_000_000;
/// How old names and attributes may be, with [`Consistency::Own`].
pub const OWN_AGE_NS_MAX: u64 = 1_000_000_000;
/// Inode numbers are below this, but for those of nodes in memory; a layer over such a file system gives its own inodes
/// numbers from here on.
pub const INODE_NUMBER_END: u64 = 1 << 62;
/// Inode numbers of a layer are at least this.
pub const LAYER_NUMBER_START: u64 = 1 << 58;
/// Most layers.
pub const LAYER_MAX: u8 = 15;

/// What is believed of the served tree; see the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// It does not change.
    Fixed,
    /// It may change at any time.
    Checked,
    /// The pod changes it, and others seldom.
    Own,
}

/// What is fixed about a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `st_dev`.
    pub device: DeviceNumber,
    /// How long attributes and pages are believed.
    pub consistency: Consistency,
    /// The user that the server is told to act for, whose new files are. It acts with its own rights in any case.
    pub uid: u32,
    /// 0, or which of several layers of one file system it is, up to [`LAYER_MAX`]: their inodes have numbers apart
    /// from each other, and above [`LAYER_NUMBER_START`].
    pub layer: u8,
}

/// A served directory; reached through its inodes.
struct NinepFs {
    session: Arc<Session>,
    pool: Arc<FramePool>,
    cache: Arc<PageCache>,
    options: Options,
    /// Living inodes by number, so that a file has one set of pages whatever names lead to it.
    inodes: Mutex<BTreeMap<u64, Weak<NinepInode>>>,
    /// Files that are open at the server, the one that was opened last at the end.
    open_files: Mutex<VecDeque<Arc<NinepInode>>>,
    /// Directories that programs go through.
    visits: Visits,
    /// What names lead to, where the tree is our own.
    beliefs: Beliefs<NinepInode>,
    /// Nodes that the server cannot make.
    specials: Specials,
    /// Files with pages that a shared mapping may store to.
    dirty_files: Mutex<BTreeMap<u64, Arc<NinepInode>>>,
}

/// Attaches to the server behind `requester`; the answer is the served directory.
///
/// # Errors
/// `EIO`: there is no 9P2000.L server, or it speaks nonsense. `ENOTDIR`: what it serves is no directory. The server's.
pub fn attach(
    requester: Arc<dyn Requester>,
    pool: &Arc<FramePool>,
    cache: &Arc<PageCache>,
    options: Options,
) -> Result<InodeRef> {
    let (session, fid) = Session::start(requester, options.uid)?;
    let attributes = attributes_of(&session, &fid)?;
    if attributes.kind != super::metadata::FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    let fs = Arc::new(NinepFs {
        session,
        pool: pool.clone(),
        cache: cache.clone(),
        options,
        inodes: Mutex::default(),
        open_files: Mutex::default(),
        visits: Visits::default(),
        beliefs: Beliefs::default(),
        specials: Specials::default(),
        dirty_files: Mutex::default(),
    });
    Ok(fs.keep(fid, attributes, None))
}

/// Asks for attributes.
fn attributes_of(session: &Session, fid: &Fid) -> Result<Attributes> {
    session.call(
        Request::GetAttributes,
        |writer| {
            writer.u32(fid.number()).u64(ATTRIBUTES_BASIC);
        },
        Attributes::read,
    )
}

impl NinepFs {
    fn is_fixed(&self) -> bool {
        self.options.consistency == Consistency::Fixed
    }

    fn is_own(&self) -> bool {
        self.options.consistency == Consistency::Own
    }

    /// For what is about to be asked.
    fn stamp(&self) -> Stamp {
        Stamp { at_ns: self.now_ns(), input: self.session.requester.input() }
    }

    /// Whether what was told is still believed, for as long as that may be at most where the host changes files.
    fn is_young(&self, stamp: Stamp, checked_age_ns_max: u64) -> bool {
        let now = self.stamp();
        let age_ns = now.at_ns.saturating_sub(stamp.at_ns);
        if self.is_own() && checked_age_ns_max > 0 {
            return age_ns < OWN_AGE_NS_MAX && now.input == stamp.input;
        }
        age_ns < checked_age_ns_max
    }

    /// The inode number of a file. The server keeps what tells its devices apart in the lowest bits.
    fn number_of(&self, qid: Qid) -> u64 {
        match self.options.layer.min(LAYER_MAX) {
            0 => qid.path & (INODE_NUMBER_END - 1),
            layer => (u64::from(layer) * LAYER_NUMBER_START) | qid.path & (LAYER_NUMBER_START - 1),
        }
    }

    fn now_ns(&self) -> u64 {
        self.pool.kernel().now_ns()
    }

    fn known(&self, number: u64) -> Option<Arc<NinepInode>> {
        self.inodes.lock().get(&number).and_then(Weak::upgrade)
    }

    /// The inode of the file that `fid` was walked to, from the directory and by the name in `origin`.
    fn inode_of(self: &Arc<Self>, fid: Fid, qid: Qid, origin: (u64, &[u8])) -> Result<Arc<NinepInode>> {
        if self.is_fixed()
            && let Some(known) = self.known(self.number_of(qid))
        {
            return Ok(known);
        }
        let attributes = attributes_of(&self.session, &fid)?;
        Ok(self.keep(fid, attributes, Some(origin)))
    }

    /// The living inode of that file, which learns what is new, or a new one.
    fn keep(self: &Arc<Self>, fid: Fid, attributes: Attributes, origin: Origin<'_>) -> Arc<NinepInode> {
        let number = self.number_of(attributes.qid);
        let known = self.known(number).filter(|known| known.is_still(&attributes));
        if let Some(known) = known {
            known.learn(Some((fid, origin)), attributes);
            return known;
        }
        let fresh = Arc::new_cyclic(|own| NinepInode::new(self.clone(), own.clone(), fid, attributes, origin));
        let faster = {
            let mut inodes = self.inodes.lock();
            let other = inodes.get(&number).and_then(Weak::upgrade).filter(|other| other.is_still(&attributes));
            if other.is_none() {
                inodes.insert(number, Arc::downgrade(&fresh));
            }
            other
        };
        // Dropped without the lock: the fresh one's end takes it.
        faster.unwrap_or(fresh)
    }

    /// Notes that a file was opened, and closes the one that was opened longest ago if there are too many.
    fn note_open(&self, inode: &Arc<NinepInode>) {
        let surplus = {
            let mut open_files = self.open_files.lock();
            open_files.push_back(inode.clone());
            if open_files.len() > OPEN_FILE_COUNT_MAX { open_files.pop_front() } else { None }
        };
        if let Some(surplus) = surplus
            && !Arc::ptr_eq(&surplus, inode)
        {
            surplus.close_files();
        }
    }

    /// Writes the pages of all files that shared mappings may have stored to.
    fn sync_all(&self) -> Result<()> {
        let dirty: alloc::vec::Vec<_> = self.dirty_files.lock().values().cloned().collect();
        dirty.iter().map(|inode| inode.write_dirty_pages()).fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod own_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting_tests;

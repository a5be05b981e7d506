//! A 9P server in memory for tests: a tree that tests change behind the client's back, fids that name paths as QEMU's
//! do, and replies that can be spoiled on their way.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::message::{CLUNK_BYTES, Messages, R_ERROR, Reader, SHORT_BYTES_MAX, VERSION};
use super::session::{Requester, Silence};
use crate::fs::metadata::FileKind;
use crate::sync::Mutex;

const ENOENT: u32 = 2;
const EBADF: u32 = 9;
const EACCES: u32 = 13;
const EEXIST: u32 = 17;
const ENOTDIR: u32 = 20;
const EINVAL: u32 = 22;
const ENOTEMPTY: u32 = 39;

/// Changes a reply; the first byte is that of the request's type. `None`: there is none.
pub(super) type Spoil = Box<dyn FnMut(u8, Vec<u8>) -> Option<Vec<u8>> + Send>;

#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: FileKind,
    pub(super) permissions: u32,
    pub(super) data: Vec<u8>,
    /// Counts changes of the contents; told as the time of modification.
    pub(super) version: u64,
    pub(super) link_count: u64,
    pub(super) is_readable: bool,
    entries: BTreeMap<Vec<u8>, u64>,
}

struct Fid {
    path: Vec<Vec<u8>>,
    open: Option<u64>,
}

pub(super) struct Tree {
    nodes: BTreeMap<u64, Node>,
    fids: BTreeMap<u32, Fid>,
    next_node: u64,
    pub(super) spoil: Option<Spoil>,
    /// Requests by type.
    pub(super) counts: BTreeMap<u8, u64>,
    /// Most bytes in a read's reply.
    pub(super) read_bytes_max: usize,
}

pub(super) struct FakeServer {
    pub(super) tree: Mutex<Tree>,
    message_bytes_max: usize,
    many_count_max: usize,
    /// Waits of clients: single requests, and many at once.
    waits: AtomicU64,
    news: AtomicU64,
    input: AtomicU64,
}

impl FakeServer {
    pub(super) fn new() -> Arc<Self> {
        Self::with_messages(64 * 1024)
    }

    pub(super) fn with_messages(message_bytes_max: usize) -> Arc<Self> {
        let mut tree = Tree {
            nodes: BTreeMap::new(),
            fids: BTreeMap::new(),
            next_node: 1,
            spoil: None,
            counts: BTreeMap::new(),
            read_bytes_max: usize::MAX,
        };
        tree.add(FileKind::Directory, 0o755);
        Self::of(tree, message_bytes_max, 0)
    }

    /// One that can be asked for so many things at once.
    pub(super) fn with_many(many_count_max: usize) -> Arc<Self> {
        let mut server = Self::new();
        Arc::get_mut(&mut server).unwrap().many_count_max = many_count_max;
        server
    }

    fn of(tree: Tree, message_bytes_max: usize, many_count_max: usize) -> Arc<Self> {
        let (waits, news, input) = Default::default();
        Arc::new(Self { tree: Mutex::new(tree), message_bytes_max, many_count_max, waits, news, input })
    }

    /// Something comes to the client's machine from outside.
    pub(super) fn note_news(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody speaks to the client's machine.
    pub(super) fn note_input(&self) {
        self.input.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn wait_count(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// What `stat` tells of a path: kind, size, version.
    pub(super) fn seen(&self, path: &str) -> Option<(FileKind, u64, u64)> {
        let tree = self.tree.lock();
        let node = &tree.nodes[&tree.find(&parts(path))?];
        Some((node.kind, node.data.len() as u64, node.version))
    }

    /// Makes a file, or gives one new contents.
    pub(super) fn put(&self, path: &str, data: &[u8]) {
        self.make(path, FileKind::Regular, data);
    }

    pub(super) fn make(&self, path: &str, kind: FileKind, data: &[u8]) {
        let mut tree = self.tree.lock();
        let path = parts(path);
        if let Some(number) = tree.find(&path) {
            let node = tree.nodes.get_mut(&number).unwrap();
            node.data = data.to_vec();
            node.version += 1;
            return;
        }
        let number = tree.add(kind, if kind == FileKind::Directory { 0o755 } else { 0o644 });
        tree.nodes.get_mut(&number).unwrap().data = data.to_vec();
        let parent = tree.find(&path[..path.len() - 1]).unwrap();
        tree.enter(parent, &path[path.len() - 1], number);
    }

    pub(super) fn data(&self, path: &str) -> Option<Vec<u8>> {
        let tree = self.tree.lock();
        tree.find(&parts(path)).map(|number| tree.nodes[&number].data.clone())
    }

    pub(super) fn remove(&self, path: &str) {
        let path = parts(path);
        self.tree.lock().unlink(&path[..path.len() - 1], &path[path.len() - 1]).unwrap();
    }

    pub(super) fn rename(&self, old: &str, new: &str) {
        let (old, new) = (parts(old), parts(new));
        let mut tree = self.tree.lock();
        let number = tree.find(&old).unwrap();
        let from = tree.find(&old[..old.len() - 1]).unwrap();
        let to = tree.find(&new[..new.len() - 1]).unwrap();
        tree.nodes.get_mut(&from).unwrap().entries.remove(&old[old.len() - 1]);
        tree.enter(to, &new[new.len() - 1], number);
    }

    pub(super) fn change(&self, path: &str, work: impl FnOnce(&mut Node)) {
        let mut tree = self.tree.lock();
        let number = tree.find(&parts(path)).unwrap();
        work(tree.nodes.get_mut(&number).unwrap());
    }

    pub(super) fn spoil(&self, spoil: Spoil) {
        self.tree.lock().spoil = Some(spoil);
    }

    pub(super) fn fid_count(&self) -> usize {
        self.tree.lock().fids.len()
    }

    pub(super) fn open_count(&self) -> usize {
        self.tree.lock().fids.values().filter(|fid| fid.open.is_some()).count()
    }

    /// Requests so far, clunks not counted.
    pub(super) fn request_count(&self) -> u64 {
        self.tree.lock().counts.iter().filter(|(kind, _)| **kind != 120).map(|(_, count)| count).sum()
    }
}

impl Requester for FakeServer {
    fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    fn request(&self, message: &[u8], companions: &[[u8; CLUNK_BYTES]], reply: &mut Vec<u8>) -> Result<(), Silence> {
        assert!(message.len() <= self.message_bytes_max);
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.note_news();
        let mut tree = self.tree.lock();
        for companion in companions {
            assert_eq!(tree.answer(companion)[4], 121, "a clunk that goes along");
        }
        let mut answer = tree.answer(message);
        assert!(answer.len() <= self.message_bytes_max);
        if let Some(spoil) = &mut tree.spoil {
            answer = spoil(message[4], answer).ok_or(Silence::TimeLimit)?;
        }
        *reply = answer;
        Ok(())
    }

    fn many_count_max(&self) -> usize {
        self.many_count_max
    }

    /// The last message is done first.
    fn request_many(&self, messages: &Messages, replies: &mut Vec<u8>) -> Result<(), Silence> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        assert!(messages.count() <= self.many_count_max && messages.iter().all(|one| one.len() <= SHORT_BYTES_MAX));
        let mut tree = self.tree.lock();
        let mut answers: Vec<(u8, Vec<u8>)> = Vec::new();
        for message in messages.iter().collect::<Vec<_>>().into_iter().rev() {
            answers.push((message[4], tree.answer(message)));
        }
        for (kind, mut answer) in answers.into_iter().rev() {
            assert!(answer.len() <= SHORT_BYTES_MAX);
            if let Some(spoil) = &mut tree.spoil {
                answer = spoil(kind, answer).ok_or(Silence::TimeLimit)?;
            }
            Messages::push(replies, &answer);
        }
        Ok(())
    }

    fn news(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    fn input(&self) -> u64 {
        self.input.load(Ordering::Relaxed)
    }

    fn give_up(&self) {}
}

fn parts(path: &str) -> Vec<Vec<u8>> {
    path.split('/').filter(|part| !part.is_empty()).map(|part| part.as_bytes().to_vec()).collect()
}

/// Longest file that the server keeps.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// `EFBIG`.
const EFBIG: u32 = 27;

type Answer = Result<Vec<u8>, u32>;

impl Tree {
    fn add(&mut self, kind: FileKind, permissions: u32) -> u64 {
        let number = self.next_node;
        self.next_node += 1;
        let node = Node {
            kind,
            permissions,
            data: Vec::new(),
            version: 1,
            link_count: 0,
            is_readable: true,
            entries: BTreeMap::new(),
        };
        self.nodes.insert(number, node);
        number
    }

    fn enter(&mut self, parent: u64, name: &[u8], number: u64) {
        let parent = self.nodes.get_mut(&parent).unwrap();
        parent.version += 1;
        let before = parent.entries.insert(name.to_vec(), number);
        self.nodes.get_mut(&number).unwrap().link_count = 1;
        if let Some(before) = before {
            self.nodes.get_mut(&before).unwrap().link_count -= 1;
        }
    }

    fn find(&self, path: &[Vec<u8>]) -> Option<u64> {
        path.iter().try_fold(1, |number, name| self.nodes.get(&number)?.entries.get(name).copied())
    }

    fn unlink(&mut self, parent: &[Vec<u8>], name: &[u8]) -> Answer {
        let parent = self.find(parent).ok_or(ENOENT)?;
        let number = *self.nodes[&parent].entries.get(name).ok_or(ENOENT)?;
        if !self.nodes[&number].entries.is_empty() {
            return Err(ENOTEMPTY);
        }
        let parent = self.nodes.get_mut(&parent).unwrap();
        parent.entries.remove(name);
        parent.version += 1;
        self.nodes.get_mut(&number).unwrap().link_count -= 1;
        Ok(Vec::new())
    }

    fn qid(&self, number: u64) -> Vec<u8> {
        let node = &self.nodes[&number];
        let kind = match node.kind {
            FileKind::Directory => 0x80,
            FileKind::Symlink => 2,
            _ => 0,
        };
        let mut bytes = alloc::vec![kind];
        bytes.extend((node.version as u32).to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes
    }

    fn answer(&mut self, message: &[u8]) -> Vec<u8> {
        let (header, fields) = Reader::open(message).expect("requests are well formed");
        *self.counts.entry(header.kind).or_default() += 1;
        let (kind, body) = match self.act(header.kind, fields).expect("all fields of a request are there") {
            Ok(body) => (header.kind + 1, body),
            Err(number) => (R_ERROR, number.to_le_bytes().to_vec()),
        };
        let mut reply = ((7 + body.len()) as u32).to_le_bytes().to_vec();
        reply.push(kind);
        reply.extend(header.tag.to_le_bytes());
        reply.extend(body);
        reply
    }

    fn path(&self, fid: u32) -> Vec<Vec<u8>> {
        self.fids.get(&fid).expect("a fid that the server knows").path.clone()
    }

    /// The node that a fid leads to now: by its path, as QEMU does it.
    fn node_of(&self, fid: u32) -> Result<u64, u32> {
        self.find(&self.path(fid)).ok_or(ENOENT)
    }

    fn act(&mut self, kind: u8, mut fields: Reader<'_>) -> Option<Answer> {
        if kind == 100 {
            let mut body = fields.u32()?.to_le_bytes().to_vec();
            body.extend((VERSION.len() as u16).to_le_bytes());
            body.extend(VERSION);
            return Some(Ok(body));
        }
        let fid = fields.u32()?;
        if self.spoil.is_some() && kind != 104 && !self.fids.contains_key(&fid) {
            // The client was told that it had walked there.
            return Some(Err(EBADF));
        }
        Some(match kind {
            104 => {
                self.fids.insert(fid, Fid { path: Vec::new(), open: None });
                Ok(self.qid(1))
            }
            110 => {
                let (new_fid, count) = (fields.u32()?, fields.u16()?);
                let name = if count == 1 { Some(fields.string(255)?) } else { None };
                self.walk(fid, new_fid, name)
            }
            120 => {
                self.fids.remove(&fid).expect("clunked once");
                Ok(Vec::new())
            }
            24 => self.node_of(fid).map(|number| self.attributes(number)),
            26 => self.set_attributes(fid, fields),
            12 => self.open(fid),
            14 | 16 | 72 | 18 => self.create(kind, fid, fields)?,
            116 => self.read(fid, fields.u64()?, fields.u32()? as usize),
            118 => self.write(fid, fields.u64()?, fields.data(1 << 20)?),
            40 => self.list(fid, fields.u64()?, fields.u32()? as usize),
            22 => self.node_of(fid).map(|number| {
                let target = &self.nodes[&number].data;
                [&(target.len() as u16).to_le_bytes()[..], target].concat()
            }),
            70 => {
                let (target, name) = (fields.u32()?, fields.string(255)?);
                self.link(fid, target, name)
            }
            74 => {
                let (old, to, new) = (fields.string(255)?, fields.u32()?, fields.string(255)?);
                self.rename(fid, old, to, new)
            }
            76 => {
                let name = fields.string(255)?.to_vec();
                self.unlink(&self.path(fid), &name)
            }
            50 => Ok(Vec::new()),
            8 => Ok(alloc::vec![7; 60]),
            _ => Err(EINVAL),
        })
    }

    fn walk(&mut self, fid: u32, new_fid: u32, name: Option<&[u8]>) -> Answer {
        let mut path = self.path(fid);
        let mut body = u16::from(name.is_some()).to_le_bytes().to_vec();
        if let Some(name) = name {
            let parent = self.find(&path).ok_or(ENOENT)?;
            if self.nodes[&parent].kind != FileKind::Directory {
                return Err(ENOTDIR);
            }
            path.push(name.to_vec());
            body.extend(self.qid(self.find(&path).ok_or(ENOENT)?));
        }
        if self.fids.contains_key(&new_fid) {
            assert!(self.spoil.is_some(), "a number is used again only after its clunk");
            // The client was told that it had not walked there.
            return Err(EINVAL);
        }
        self.fids.insert(new_fid, Fid { path, open: None });
        Ok(body)
    }

    fn attributes(&self, number: u64) -> Vec<u8> {
        let node = &self.nodes[&number];
        let mut body = 0x7ff_u64.to_le_bytes().to_vec();
        body.extend(self.qid(number));
        for word in [node.kind.mode_bits() | node.permissions, 10, 20] {
            body.extend(word.to_le_bytes());
        }
        let size = node.data.len() as u64;
        let times = [1, 0, node.version, 0, 1, 0];
        for word in [node.link_count, 0, size, 4096, size.div_ceil(512)].into_iter().chain(times).chain([0; 4]) {
            body.extend(word.to_le_bytes());
        }
        body
    }

    fn set_attributes(&mut self, fid: u32, mut fields: Reader<'_>) -> Answer {
        let number = self.node_of(fid)?;
        let node = self.nodes.get_mut(&number).unwrap();
        let (valid, permissions) = (fields.u32().unwrap(), fields.u32().unwrap());
        let size = fields.u64().and_then(|_| fields.u64()).unwrap();
        if valid & 1 != 0 {
            node.permissions = permissions;
        }
        if valid & 8 != 0 && size > FILE_BYTES_MAX {
            return Err(EFBIG);
        }
        if valid & 8 != 0 {
            node.data.resize(size as usize, 0);
            node.version += 1;
        }
        Ok(Vec::new())
    }

    fn open(&mut self, fid: u32) -> Answer {
        let number = self.node_of(fid)?;
        if !self.nodes[&number].is_readable {
            return Err(EACCES);
        }
        let fid = self.fids.get_mut(&fid).unwrap();
        assert!(fid.open.is_none(), "opened once");
        fid.open = Some(number);
        Ok([self.qid(number), alloc::vec![0; 4]].concat())
    }

    fn create(&mut self, kind: u8, fid: u32, mut fields: Reader<'_>) -> Option<Answer> {
        let name = fields.string(255)?.to_vec();
        let path = self.path(fid);
        let Some(parent) = self.find(&path) else { return Some(Err(ENOENT)) };
        if self.nodes[&parent].entries.contains_key(&name) {
            return Some(Err(EEXIST));
        }
        let (node_kind, data) = match kind {
            14 => (FileKind::Regular, Vec::new()),
            16 => (FileKind::Symlink, fields.string(4095)?.to_vec()),
            72 => (FileKind::Directory, Vec::new()),
            _ => (FileKind::Fifo, Vec::new()),
        };
        let permissions = match kind {
            14 => fields.u32().and_then(|_| fields.u32())?,
            16 => 0o777,
            _ => fields.u32()? & 0o7777,
        };
        let number = self.add(node_kind, permissions);
        self.nodes.get_mut(&number).unwrap().data = data;
        self.enter(parent, &name, number);
        let mut body = self.qid(number);
        if kind == 14 {
            let fid = self.fids.get_mut(&fid).unwrap();
            fid.path.push(name);
            fid.open = Some(number);
            body.extend([0; 4]);
        }
        Some(Ok(body))
    }

    fn opened(&self, fid: u32) -> u64 {
        self.fids[&fid].open.expect("opened before it is used")
    }

    fn read(&self, fid: u32, offset: u64, count: usize) -> Answer {
        let data = &self.nodes[&self.opened(fid)].data;
        let start = (offset as usize).min(data.len());
        let end = data.len().min(start + count.min(self.read_bytes_max));
        Ok([&((end - start) as u32).to_le_bytes()[..], &data[start..end]].concat())
    }

    fn write(&mut self, fid: u32, offset: u64, bytes: &[u8]) -> Answer {
        let number = self.opened(fid);
        let node = self.nodes.get_mut(&number).unwrap();
        // A client that was told nonsense of a file's size may append anywhere.
        if offset > FILE_BYTES_MAX {
            return Err(EFBIG);
        }
        let end = offset as usize + bytes.len();
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[offset as usize..end].copy_from_slice(bytes);
        node.version += 1;
        Ok((bytes.len() as u32).to_le_bytes().to_vec())
    }

    /// Offsets are large and in no order, as those of real file systems are.
    fn list(&self, fid: u32, offset: u64, count: usize) -> Answer {
        let directory = self.opened(fid);
        let dots = [(b".".to_vec(), directory), (b"..".to_vec(), 1)];
        let entries = self.nodes[&directory].entries.clone();
        let all: Vec<_> = dots.into_iter().chain(entries).collect();
        let secret = |index: usize| (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let start = (0..=all.len()).find(|index| secret(*index) == offset).ok_or(EINVAL)?;
        let mut body = Vec::new();
        for (index, (name, number)) in all.iter().enumerate().skip(start) {
            let mut entry = self.qid(*number);
            entry.extend(secret(index + 1).to_le_bytes());
            entry.push((self.nodes[number].kind.mode_bits() >> 12) as u8);
            entry.extend((name.len() as u16).to_le_bytes());
            entry.extend(name);
            if body.len() + entry.len() > count {
                break;
            }
            body.extend(entry);
        }
        Ok([&(body.len() as u32).to_le_bytes()[..], &body].concat())
    }

    fn link(&mut self, fid: u32, target: u32, name: &[u8]) -> Answer {
        let (parent, number) = (self.node_of(fid)?, self.node_of(target)?);
        let links = self.nodes[&number].link_count;
        self.enter(parent, name, number);
        self.nodes.get_mut(&number).unwrap().link_count = links + 1;
        Ok(Vec::new())
    }

    fn rename(&mut self, fid: u32, old: &[u8], to: u32, new: &[u8]) -> Answer {
        let (from, to) = (self.node_of(fid)?, self.node_of(to)?);
        let number = self.nodes.get_mut(&from).unwrap().entries.remove(old).ok_or(ENOENT)?;
        self.enter(to, new, number);
        Ok(Vec::new())
    }
}

impl FakeServer {
    /// Nodes that some name leads to, the root included.
    pub(super) fn make_count(&self) -> usize {
        self.tree.lock().nodes.values().filter(|node| node.link_count > 0).count() + 1
    }
}

//! A conversation with a 9P server: requests and their replies, fids and their end.
//!
//! [`Requester`] is the one place where anything waits for the server; its implementation decides how (a device and the
//! scheduler's block in the machine, a function call on the host). It has a limit on the time, so that a server that
//! hangs is an error. Any number of threads may be in [`Session::call`] at once: each has tags and buffers of its own,
//! and a tag is used again only after its answer.
//!
//! A *fid* is the client's number for a file at the server. [`Fid`] owns one; dropping it notes the number, and the
//! next request takes the clunks of such numbers along, so that letting go costs no wait and may happen under any
//! lock. A number is used again only after the server has answered its clunk.
//!
//! Trust: the server may answer anything. What does not fit (a wrong tag or type, a wrong size, fields that are cut
//! off, a count that was not asked for) is `EIO` and ends the session, because nothing that follows could be matched
//! to its request any more; from then on every call is `EIO` at once, also those that wait. An honest error (`Rlerror`)
//! ends nothing.
//!
//! Locks: none is held from a request to its reply; `wires` and `fids` are innermost and held for moments.
//!
//! Calls of many requests at once are in [`super::many`].
//!
//! Limits: [`FID_COUNT_MAX`] fids of one session, those on their way out included; beyond them `ENFILE`.
//! [`CALL_COUNT_MAX`] calls at once; beyond them `ENOMEM`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::message::{
    CLUNK_BYTES, DATA_HEADER_BYTES, HEADER_BYTES, Header, Messages, NO_FID, NO_TAG, R_ERROR, Reader, Request, VERSION,
    Writer, clunk,
};
use crate::error::{Errno, Result};
use crate::sync::Mutex;

/// Most fids of a session.
pub const FID_COUNT_MAX: u32 = 8192;
/// Least size of a message that is worth a session: a page with its header.
const MESSAGE_BYTES_MIN: usize = 4096 + DATA_HEADER_BYTES;
/// Most clunks that go along with a request.
pub const COMPANION_COUNT_MAX: usize = 3;
/// Calls that can wait at the same time.
const CALL_COUNT_MAX: usize = 4096;
/// Tags of one call: the request's, and those of its companions, which follow.
const TAGS_PER_CALL: u16 = COMPANION_COUNT_MAX as u16 + 1;
/// Sets of message buffers that are kept while nobody uses them.
const IDLE_WIRE_COUNT_MAX: usize = 2;
/// The fid of the served directory.
const ROOT_FID: u32 = 0;

/// The first tag of a call of many requests, behind those of all other calls.
pub(super) const MANY_TAG_FIRST: u16 = 1 + CALL_COUNT_MAX as u16 * TAGS_PER_CALL;

const _: () = assert!((MANY_TAG_FIRST as usize) < NO_TAG as usize / 2);

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// None came within the time limit.
    TimeLimit,
    /// The device is broken or gone.
    Device,
}

/// The way to a server.
pub trait Requester: Send + Sync {
    /// Bytes of the longest message, either way.
    fn message_bytes_max(&self) -> usize;

    /// Sends `message` and `companions` (at most [`COMPANION_COUNT_MAX`]; their replies are short), and waits until all
    /// of them are answered. `reply` becomes the reply to `message`. Others may send theirs meanwhile, and be answered
    /// before. Callers may hold locks, but none that is needed to run other threads.
    ///
    /// # Errors
    /// [`Silence`], from then on always.
    fn request(
        &self,
        message: &[u8],
        companions: &[[u8; CLUNK_BYTES]],
        reply: &mut Vec<u8>,
    ) -> core::result::Result<(), Silence>;

    /// Most messages of [`Self::request_many`]; none: there is no such way.
    fn many_count_max(&self) -> usize {
        0
    }

    /// Sends all messages at once, each at most [`SHORT_BYTES_MAX`] long, and waits until all are answered. `replies`
    /// becomes the replies, each at most that long, as [`Messages::split`] reads them, in the order of the messages.
    ///
    /// # Errors
    /// [`Silence`], from then on always.
    fn request_many(&self, messages: &Messages, replies: &mut Vec<u8>) -> core::result::Result<(), Silence> {
        let _ = (messages, replies);
        Err(Silence::Device)
    }

    /// A number that has grown whenever anything came from outside of the pod, before a program could know of it:
    /// replies to [`Self::request`] of any share, input, frames of the network. Replies to [`Self::request_many`] do
    /// not count ([`super::ahead`] says why).
    fn news(&self) -> u64 {
        0
    }

    /// A number that has grown whenever somebody spoke to the pod, before a program could know of it: input of its
    /// streams, further programs. What its servers answer and what its network carries does not count.
    fn input(&self) -> u64 {
        0
    }

    /// The session is over: waiters are answered by [`Silence`] at once.
    fn give_up(&self);
}

/// The message buffers and tags of a call.
#[derive(Default)]
struct Wire {
    /// The first of its tags.
    tag: u16,
    message: Vec<u8>,
    reply: Vec<u8>,
    companions: Vec<[u8; CLUNK_BYTES]>,
}

#[derive(Default)]
struct Wires {
    /// Those that nobody uses.
    idle: Vec<Wire>,
    /// First tags that nobody uses, besides those of `idle`.
    free_tags: Vec<u16>,
    made_count: usize,
}

impl Wires {
    fn take(&mut self) -> Option<Wire> {
        if let Some(wire) = self.idle.pop() {
            return Some(wire);
        }
        if let Some(tag) = self.free_tags.pop() {
            return Some(Wire { tag, ..Wire::default() });
        }
        let tag = (self.made_count < CALL_COUNT_MAX).then_some(1 + self.made_count as u16 * TAGS_PER_CALL)?;
        self.made_count += 1;
        Some(Wire { tag, ..Wire::default() })
    }

    fn give_back(&mut self, wire: Wire) -> Option<Wire> {
        if self.idle.len() < IDLE_WIRE_COUNT_MAX {
            self.idle.push(wire);
            return None;
        }
        self.free_tags.push(wire.tag);
        Some(wire)
    }
}

struct Fids {
    /// Numbers up to here were used.
    next: u32,
    /// Numbers that can be used again.
    free: Vec<u32>,
    /// Numbers whose clunk is still to be sent.
    dropped: Vec<u32>,
}

/// A session.
pub(super) struct Session {
    pub(super) requester: Arc<dyn Requester>,
    payload_bytes_max: usize,
    wires: Mutex<Wires>,
    fids: Mutex<Fids>,
    has_failed: AtomicBool,
    /// Whether a call of many requests is under way; there is one at a time.
    pub(super) is_asking_many: AtomicBool,
}

/// A fid, clunked some time after it is dropped.
pub(super) struct Fid {
    session: Arc<Session>,
    number: u32,
}

impl Fid {
    /// For a number that the server has given a file to.
    pub(super) fn of(session: Arc<Session>, number: u32) -> Self {
        Self { session, number }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        self.session.fids.lock().dropped.push(self.number);
    }
}

impl core::fmt::Debug for Fid {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Fid({})", self.number)
    }
}

impl Session {
    /// Agrees on version and message size and attaches to what is served; the files there are used as `uid`.
    ///
    /// # Errors
    /// `EIO`: no 9P2000.L server, or nonsense. The server's.
    pub(super) fn start(requester: Arc<dyn Requester>, uid: u32) -> Result<(Arc<Self>, Fid)> {
        let message_bytes = requester.message_bytes_max();
        if message_bytes < MESSAGE_BYTES_MIN {
            return Err(Errno::EIO);
        }
        let mut session = Self {
            requester,
            payload_bytes_max: message_bytes - DATA_HEADER_BYTES,
            wires: Mutex::default(),
            fids: Mutex::new(Fids { next: ROOT_FID + 1, free: Vec::new(), dropped: Vec::new() }),
            has_failed: AtomicBool::new(false),
            is_asking_many: AtomicBool::new(false),
        };
        let agreed = session.agree_on_version(message_bytes)?;
        session.payload_bytes_max = agreed - DATA_HEADER_BYTES;
        let session = Arc::new(session);
        let root = Fid { session: session.clone(), number: ROOT_FID };
        session.call(
            Request::Attach,
            |writer| {
                writer.u32(ROOT_FID).u32(NO_FID).string(b"").string(b"").u32(uid);
            },
            |mut reply| reply.qid(),
        )?;
        Ok((session, root))
    }

    fn agree_on_version(&self, message_bytes: usize) -> Result<usize> {
        let (mut message, mut reply) = (Vec::new(), Vec::new());
        let mut writer = Writer::new(&mut message, Request::Version, NO_TAG);
        writer.u32(message_bytes as u32).string(VERSION);
        writer.finish();
        self.requester.request(&message, &[], &mut reply).map_err(|_| Errno::EIO)?;
        let (header, mut fields) = Reader::open(&reply).ok_or(Errno::EIO)?;
        if header != (Header { kind: Request::Version.reply(), tag: NO_TAG }) {
            return Err(Errno::EIO);
        }
        let agreed = fields.u32().ok_or(Errno::EIO)? as usize;
        let is_known = fields.string(VERSION.len()) == Some(VERSION);
        if !is_known || !(MESSAGE_BYTES_MIN..=message_bytes).contains(&agreed) {
            return Err(Errno::EIO);
        }
        Ok(agreed)
    }

    /// Bytes that one read or write moves at most.
    pub(super) fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// Fids in use, those on their way out included.
    #[cfg(test)]
    pub(super) fn fid_count(&self) -> usize {
        let fids = self.fids.lock();
        fids.next as usize - fids.free.len()
    }

    /// A number for a new fid. The server does not know it yet; if it never learns of it, [`Self::forget_number`].
    fn new_number(&self) -> Result<u32> {
        for _ in 0..FID_COUNT_MAX {
            {
                let mut fids = self.fids.lock();
                if let Some(number) = fids.free.pop() {
                    return Ok(number);
                }
                if fids.next < FID_COUNT_MAX {
                    fids.next += 1;
                    return Ok(fids.next - 1);
                }
                if fids.dropped.is_empty() {
                    return Err(Errno::ENFILE);
                }
            }
            self.send_clunks()?;
        }
        Err(Errno::ENFILE)
    }

    /// The same without a request: `None` if there is none at hand.
    pub(super) fn number_at_hand(&self) -> Option<u32> {
        let mut fids = self.fids.lock();
        if let Some(number) = fids.free.pop() {
            return Some(number);
        }
        let number = (fids.next < FID_COUNT_MAX).then_some(fids.next)?;
        fids.next += 1;
        Some(number)
    }

    pub(super) fn forget_number(&self, number: u32) {
        self.fids.lock().free.push(number);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Makes a fid for what `names` leads to from `fid`; without names a second fid for the same file.
    ///
    /// # Errors
    /// `ENOENT` and the server's others, `ENFILE`, `EIO`.
    pub(super) fn walk(self: &Arc<Self>, fid: &Fid, name: Option<&[u8]>) -> Result<(Fid, Option<super::message::Qid>)> {
        let number = self.new_number()?;
        let walked = self.call(
            Request::Walk,
            |writer| {
                writer.u32(fid.number).u32(number).u16(u16::from(name.is_some()));
                if let Some(name) = name {
                    writer.string(name);
                }
            },
            |mut reply| {
                let count = reply.u16()?;
                match (count, name.is_some()) {
                    (1, true) => reply.qid().map(Some),
                    (0, false) => Some(None),
                    _ => None,
                }
            },
        );
        match walked {
            Ok(qid) => Ok((Fid { session: self.clone(), number }, qid)),
            Err(error) => {
                self.forget_number(number);
                Err(error)
            }
        }
    }

    /// Sends a request and reads its reply.
    ///
    /// # Errors
    /// The server's; `EIO` as the module says.
    pub(super) fn call<R>(
        &self,
        request: Request,
        write: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(Reader<'_>) -> Option<R>,
    ) -> Result<R> {
        if self.has_failed.load(Ordering::Acquire) {
            return Err(Errno::EIO);
        }
        let mut wire = self.wires.lock().take().ok_or(Errno::ENOMEM)?;
        let result = self.call_by(&mut wire, request, write, read);
        if matches!(result, Err(Errno::EIO)) && self.has_failed.load(Ordering::Acquire) {
            // Its tags may still be the server's.
            return result;
        }
        let surplus = self.wires.lock().give_back(wire);
        drop(surplus);
        result
    }

    fn call_by<R>(
        &self,
        Wire { tag, message, reply, companions }: &mut Wire,
        request: Request,
        write: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(Reader<'_>) -> Option<R>,
    ) -> Result<R> {
        let mut writer = Writer::new(message, request, *tag);
        write(&mut writer);
        writer.finish();
        let gone = self.take_dropped(COMPANION_COUNT_MAX);
        companions.clear();
        companions.extend(gone.iter().zip(*tag + 1..).map(|(number, tag)| clunk(*number, tag)));
        let answer = self.requester.request(message, companions, reply);
        // Another caller may have met nonsense meanwhile.
        if answer.is_err() || self.has_failed.load(Ordering::Acquire) {
            return Err(self.fail());
        }
        self.free_numbers(&gone);
        match read_reply(reply, *tag, request, read) {
            Some(result) => result,
            None => Err(self.fail()),
        }
    }

    /// Sends clunks alone.
    fn send_clunks(&self) -> Result<()> {
        let Some(first) = self.fids.lock().dropped.pop() else { return Ok(()) };
        let answer = self.call(
            Request::Clunk,
            |writer| {
                writer.u32(first);
            },
            |_| Some(()),
        );
        // The server has forgotten the fid also where it says that the clunk failed.
        if self.has_failed.load(Ordering::Acquire) {
            return answer;
        }
        self.forget_number(first);
        Ok(())
    }

    /// Takes at most so many numbers out of the list of dropped ones, for their clunks.
    pub(super) fn take_dropped(&self, count_max: usize) -> Vec<u32> {
        let mut fids = self.fids.lock();
        let kept = fids.dropped.len().saturating_sub(count_max);
        fids.dropped.split_off(kept)
    }

    /// The server has answered the clunks of these.
    pub(super) fn free_numbers(&self, gone: &[u32]) {
        if !gone.is_empty() {
            self.fids.lock().free.extend_from_slice(gone);
        }
    }

    /// Ends the session.
    pub(super) fn fail(&self) -> Errno {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            self.requester.give_up();
        }
        Errno::EIO
    }
}

/// What a reply says; `None` for nonsense.
pub(super) fn read_reply<R>(
    reply: &[u8],
    tag: u16,
    request: Request,
    read: impl FnOnce(Reader<'_>) -> Option<R>,
) -> Option<Result<R>> {
    let (header, mut fields) = Reader::open(reply)?;
    if header.tag != tag {
        return None;
    }
    if header.kind == R_ERROR {
        return fields.u32().map(|number| Err(errno_of(number)));
    }
    if header.kind != request.reply() {
        return None;
    }
    read(fields).map(Ok)
}

const _: () = assert!(HEADER_BYTES + 4 + 13 < MESSAGE_BYTES_MIN);

/// The errors of the dialect are Linux's numbers. What is not known here, or makes no sense as an answer, is `EIO`.
fn errno_of(number: u32) -> Errno {
    match number {
        1 => Errno::EPERM,
        2 => Errno::ENOENT,
        6 => Errno::ENXIO,
        12 => Errno::ENOMEM,
        13 => Errno::EACCES,
        16 => Errno::EBUSY,
        17 => Errno::EEXIST,
        18 => Errno::EXDEV,
        19 => Errno::ENODEV,
        20 => Errno::ENOTDIR,
        21 => Errno::EISDIR,
        22 => Errno::EINVAL,
        23 => Errno::ENFILE,
        24 => Errno::EMFILE,
        26 => Errno::ETXTBSY,
        27 => Errno::EFBIG,
        28 => Errno::ENOSPC,
        30 => Errno::EROFS,
        31 => Errno::EMLINK,
        36 => Errno::ENAMETOOLONG,
        39 => Errno::ENOTEMPTY,
        40 => Errno::ELOOP,
        61 => Errno::ENODATA,
        75 => Errno::EOVERFLOW,
        95 => Errno::EOPNOTSUPP,
        116 => Errno::ESTALE,
        _ => Errno::EIO,
    }
}

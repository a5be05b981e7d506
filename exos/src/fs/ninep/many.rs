//! Many files of a directory asked for at once: two waits for all of them instead of two for each.
//!
//! First go the walks, then the questions for attributes of what they led to: a server may do what comes at once in any
//! order (QEMU's does), so a question cannot go together with the walk that makes its fid. Each of the two takes along
//! as many clunks as there is room for. There is one such call of a session at a time; who comes meanwhile is told so
//! and asks for one file, as ever.
//!
//! Trust: as in [`super::session`]. Each reply is read by itself; nonsense in one ends the session, and an honest error
//! is the answer for its file and no other. A fid that a walk made is owned from the moment in which its reply was
//! read.
//!
//! Limits: [`Session::ask_count_max`] files at once, by the requester's.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::message::{ATTRIBUTES_BASIC, Attributes, Messages, Reader, Request, Writer, clunk};
use super::session::{Fid, MANY_TAG_FIRST, Session, read_reply};
use crate::error::Result;

/// A file that is asked for.
pub(super) struct Ask<'a> {
    pub(super) name: &'a [u8],
    /// A fid for it, if it need not be walked to.
    pub(super) known: Option<Arc<Fid>>,
}

/// What leads to a file.
pub(super) enum Way {
    Known(Arc<Fid>),
    Walked(Fid),
}

impl Way {
    fn number(&self) -> u32 {
        match self {
            Self::Known(fid) => fid.number(),
            Self::Walked(fid) => fid.number(),
        }
    }
}

/// What the server told.
pub(super) struct Answers {
    /// Of the directory itself.
    pub(super) directory: Result<Attributes>,
    /// Of the files, in the order in which they were asked for; the last may be missing.
    pub(super) files: Vec<Result<(Way, Attributes)>>,
}

/// Requests that go at once; their tags count up.
#[derive(Default)]
struct Wave {
    messages: Messages,
    scratch: Vec<u8>,
}

/// The replies to a wave.
struct Replies(Vec<u8>);

impl Wave {
    fn tag(&self) -> u16 {
        MANY_TAG_FIRST + self.messages.count() as u16
    }

    fn add(&mut self, request: Request, write: impl FnOnce(&mut Writer<'_>)) {
        let mut writer = Writer::new(&mut self.scratch, request, MANY_TAG_FIRST + self.messages.count() as u16);
        write(&mut writer);
        writer.finish();
        self.messages.add(&self.scratch);
    }

    fn ask_for_attributes(&mut self, fid: u32) {
        self.add(Request::GetAttributes, |writer| {
            writer.u32(fid).u64(ATTRIBUTES_BASIC);
        });
    }
}

impl Replies {
    /// Each with its tag.
    fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        (MANY_TAG_FIRST..).zip(Messages::split(&self.0))
    }
}

/// The right to the one call of many requests.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(is_taken: &'a AtomicBool) -> Option<Self> {
        (!is_taken.swap(true, Ordering::Acquire)).then_some(Self(is_taken))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Session {
    /// Files that can be asked for at once. What else there is room for is left to clunks: as many fids go as come.
    pub(super) fn ask_count_max(&self) -> usize {
        self.requester.many_count_max() * 2 / 3
    }

    /// Asks for files in `directory`, at most [`Self::ask_count_max`]. `None`: it cannot be done now.
    ///
    /// # Errors
    /// `EIO`: the session is over.
    pub(super) fn ask_many(self: &Arc<Self>, directory: &Fid, asks: Vec<Ask<'_>>) -> Result<Option<Answers>> {
        let Some(_turn) = Turn::take(&self.is_asking_many).filter(|_| !self.has_failed()) else { return Ok(None) };
        let ways = self.walk_many(directory, asks)?;
        if ways.is_empty() {
            return Ok(None);
        }
        self.ask_for_all(directory, ways).map(Some)
    }

    fn walk_many(self: &Arc<Self>, directory: &Fid, asks: Vec<Ask<'_>>) -> Result<Vec<Result<Way>>> {
        let mut wave = Wave::default();
        let mut asked = Vec::with_capacity(asks.len());
        for ask in asks {
            if ask.known.is_some() {
                asked.push(ask.known.ok_or(0));
                continue;
            }
            let Some(number) = self.number_at_hand() else { break };
            wave.add(Request::Walk, |writer| {
                writer.u32(directory.number()).u32(number).u16(1).string(ask.name);
            });
            asked.push(Err(number));
        }
        let replies = if wave.messages.count() == 0 { Replies(Vec::new()) } else { self.exchange(wave)? };
        let mut replies = replies.iter();
        let mut ways = Vec::with_capacity(asked.len());
        for asked in asked {
            let way = match asked {
                Ok(known) => Ok(Way::Known(known)),
                Err(number) => {
                    let walked = self.read(replies.next(), Request::Walk, read_walked)?;
                    match walked {
                        Ok(()) => Ok(Way::Walked(Fid::of(self.clone(), number))),
                        Err(error) => {
                            self.forget_number(number);
                            Err(error)
                        }
                    }
                }
            };
            ways.push(way);
        }
        Ok(ways)
    }

    fn ask_for_all(&self, directory: &Fid, ways: Vec<Result<Way>>) -> Result<Answers> {
        let mut wave = Wave::default();
        wave.ask_for_attributes(directory.number());
        for way in ways.iter().flatten() {
            wave.ask_for_attributes(way.number());
        }
        let replies = self.exchange(wave)?;
        let mut replies = replies.iter();
        let mut next = || self.read(replies.next(), Request::GetAttributes, Attributes::read);
        let directory = next()?;
        let mut files = Vec::with_capacity(ways.len());
        for way in ways {
            files.push(match way {
                Ok(way) => next()?.map(|attributes| (way, attributes)),
                Err(error) => Err(error),
            });
        }
        Ok(Answers { directory, files })
    }

    /// Sends a wave with clunks for company.
    fn exchange(&self, mut wave: Wave) -> Result<Replies> {
        let gone = self.take_dropped(self.requester.many_count_max().saturating_sub(wave.messages.count()));
        for number in &gone {
            let tag = wave.tag();
            wave.messages.add(&clunk(*number, tag));
        }
        let mut replies = Vec::new();
        let answer = self.requester.request_many(&wave.messages, &mut replies);
        if answer.is_err() || self.has_failed() {
            return Err(self.fail());
        }
        self.free_numbers(&gone);
        Ok(Replies(replies))
    }

    /// Reads one reply of a wave; the outer error is the session's end.
    fn read<R>(
        &self,
        reply: Option<(u16, &[u8])>,
        request: Request,
        read: impl FnOnce(Reader<'_>) -> Option<R>,
    ) -> Result<Result<R>> {
        reply.and_then(|(tag, bytes)| read_reply(bytes, tag, request, read)).ok_or_else(|| self.fail())
    }
}

fn read_walked(mut reply: Reader<'_>) -> Option<()> {
    let count = reply.u16()?;
    reply.qid().filter(|_| count == 1).map(drop)
}

//! Messages of netlink(7) as bytes: requests are read, answers are written. Pure: no socket, no lock, no time.
//!
//! Invariant: whatever bytes a program sends, reading them ends after at most one step for each 16 bytes of them (4 for
//! attributes), and nothing beyond them is looked at. Writing fails with `ENOMEM` rather than ending the machine.
//!
//! Neighbours: [`super::route`] and [`super::diagnosis`] answer requests, [`super::socket`] takes them and keeps
//! answers. Numbers here are those of Linux (`linux/netlink.h`), because the format is Linux's and nobody else's.

use alloc::vec::Vec;

use crate::error::{Errno, Result};
use crate::reserve;

/// Bytes of `struct nlmsghdr`.
pub const HEADER_BYTES: usize = 16;
/// Bytes of `struct nlattr`.
pub const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// Types below are of netlink itself (`NLMSG_MIN_TYPE`).
pub const KIND_FIRST: u16 = 16;

/// Types of messages that netlink has itself (`NLMSG_*`).
pub mod kind {
    /// `NLMSG_ERROR`: an error, or 0 for an acknowledgement.
    pub const ERROR: u16 = 2;
    /// `NLMSG_DONE`: the end of several messages.
    pub const DONE: u16 = 3;
}

/// `NLM_F_*`.
pub mod flag {
    /// `NLM_F_REQUEST`.
    pub const REQUEST: u16 = 1;
    /// `NLM_F_MULTI`: one of several.
    pub const MULTI: u16 = 2;
    /// `NLM_F_ACK`: an answer is asked for if all is well too.
    pub const ACK: u16 = 4;
    /// `NLM_F_DUMP_FILTERED`: not all there are, but those that were asked for.
    pub const FILTERED: u16 = 0x20;
    /// `NLM_F_DUMP`: all there are.
    pub const DUMP: u16 = 0x300;
    /// `NLM_F_REPLACE`, of requests that change something.
    pub const REPLACE: u16 = 0x100;
    /// `NLM_F_CAPPED`: of the request there is its header alone.
    pub const CAPPED: u16 = 0x100;
    /// `NLM_F_ACK_TLVS`: attributes say more.
    pub const EXTENDED: u16 = 0x200;
}

/// Rounds up to where the next message or attribute begins.
#[must_use]
pub const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// The field at `offset`; zero beyond the end.
#[must_use]
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |field| u16::from_le_bytes(*field))
}

/// The field at `offset`; zero beyond the end.
#[must_use]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |field| u32::from_le_bytes(*field))
}

/// A message that a program sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`, which its answers have too.
    pub sequence: u32,
    /// All of it, from the header on.
    pub whole: &'a [u8],
}

impl<'a> Request<'a> {
    /// What follows the header.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.whole.get(HEADER_BYTES..).unwrap_or_default()
    }

    /// Whether all there are is asked for. As on Linux, either of the flag's two bits is enough.
    #[must_use]
    pub fn is_dump(&self) -> bool {
        self.flags & flag::DUMP != 0
    }

    /// The attributes behind a fixed part of `fixed_bytes`.
    #[must_use]
    pub fn attributes(&self, fixed_bytes: usize) -> Attributes<'a> {
        Attributes { rest: self.body().get(aligned(fixed_bytes)..).unwrap_or_default() }
    }
}

/// Cuts what a program sent into messages; what is no whole message ends it.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    rest: &'a [u8],
}

impl<'a> Requests<'a> {
    /// Those in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Requests<'a> {
    type Item = Request<'a>;

    fn next(&mut self) -> Option<Request<'a>> {
        let bytes = self.rest;
        let length = u32_at(bytes, 0) as usize;
        if bytes.len() < HEADER_BYTES || length < HEADER_BYTES || length > bytes.len() {
            self.rest = &[];
            return None;
        }
        self.rest = bytes.get(aligned(length)..).unwrap_or_default();
        let (kind, flags, sequence) = (u16_at(bytes, 4), u16_at(bytes, 6), u32_at(bytes, 8));
        Some(Request { kind, flags, sequence, whole: &bytes[..length] })
    }
}

/// An attribute: its type without the bits that say how it is laid out, and its value.
pub type Attribute<'a> = (u16, &'a [u8]);

/// Cuts bytes into attributes; what is no whole attribute ends it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The value of the last attribute of a type, which is the one that counts.
    #[must_use]
    pub fn find(self, kind: u16) -> Option<&'a [u8]> {
        self.filter(|attribute| attribute.0 == kind).last().map(|attribute| attribute.1)
    }

    /// The number in one.
    #[must_use]
    pub fn find_u32(self, kind: u16) -> Option<u32> {
        self.find(kind).filter(|value| value.len() >= 4).map(|value| u32_at(value, 0))
    }

    /// Bytes that are still to be cut.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        /// `NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`.
        const LAYOUT_BITS: u16 = 0xc000;
        let bytes = self.rest;
        let length = usize::from(u16_at(bytes, 0));
        if bytes.len() < ATTRIBUTE_HEADER_BYTES || length < ATTRIBUTE_HEADER_BYTES || length > bytes.len() {
            self.rest = &[];
            return None;
        }
        self.rest = bytes.get(aligned(length)..).unwrap_or_default();
        Some((u16_at(bytes, 2) & !LAYOUT_BITS, &bytes[ATTRIBUTE_HEADER_BYTES..length]))
    }
}

/// Why a request is refused, with what Linux says of it in an extended acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error.
    pub error: Errno,
    /// A sentence for a person.
    pub text: Option<&'static str>,
    /// Where in the message the attribute is that is meant.
    pub offset_bytes: Option<usize>,
}

impl Refusal {
    /// `EINVAL`, with a sentence.
    #[must_use]
    pub const fn invalid(text: &'static str) -> Self {
        Self { error: Errno::EINVAL, text: Some(text), offset_bytes: None }
    }

    /// Appends what there is to say as attributes.
    pub fn explain(&self, out: &mut Writer) {
        const TEXT: u16 = 1;
        const OFFSET: u16 = 2;
        if let Some(text) = self.text {
            out.string(TEXT, text.as_bytes());
        }
        if let Some(offset) = self.offset_bytes {
            out.number(OFFSET, offset as u32);
        }
    }

    /// Whether there is anything to say.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.text.is_some() || self.offset_bytes.is_some()
    }
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self { error, text: None, offset_bytes: None }
    }
}

/// Writes messages one after another. That there was no memory is asked at the end.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    is_cut: bool,
}

/// Where a message or a nested attribute began.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Begin(usize);

impl Writer {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was written.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn finish(self) -> Result<Vec<u8>> {
        if self.is_cut { Err(Errno::ENOMEM) } else { Ok(self.bytes) }
    }

    /// Appends bytes.
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.is_cut || reserve::reserve(&mut self.bytes, bytes.len()).is_err() {
            self.is_cut = true;
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn align(&mut self) {
        let missing = aligned(self.bytes.len()) - self.bytes.len();
        self.raw(&[0; 4][..missing]);
    }

    /// Begins a message that answers one with that sequence number of the socket with that port.
    pub fn begin(&mut self, kind: u16, flags: u16, sequence: u32, port: u32) -> Begin {
        let begin = Begin(self.bytes.len());
        self.raw(&[0; 4]);
        self.raw(&kind.to_le_bytes());
        self.raw(&flags.to_le_bytes());
        self.raw(&sequence.to_le_bytes());
        self.raw(&port.to_le_bytes());
        begin
    }

    /// Ends it.
    pub fn end(&mut self, begin: Begin) {
        let length = self.bytes.len().saturating_sub(begin.0) as u32;
        self.align();
        if let Some(field) = self.bytes.get_mut(begin.0..begin.0 + 4) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Appends an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.raw(&((ATTRIBUTE_HEADER_BYTES + value.len()) as u16).to_le_bytes());
        self.raw(&kind.to_le_bytes());
        self.raw(value);
        self.align();
    }

    /// An attribute that is a number of 32 bits.
    pub fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_le_bytes());
    }

    /// An attribute that is a string, with its NUL.
    pub fn string(&mut self, kind: u16, text: &[u8]) {
        self.raw(&((ATTRIBUTE_HEADER_BYTES + text.len() + 1) as u16).to_le_bytes());
        self.raw(&kind.to_le_bytes());
        self.raw(text);
        self.raw(&[0]);
        self.align();
    }

    /// Begins an attribute that is made of attributes.
    pub fn nest(&mut self, kind: u16) -> Begin {
        let begin = Begin(self.bytes.len());
        self.raw(&[0; 2]);
        self.raw(&kind.to_le_bytes());
        begin
    }

    /// Ends it.
    pub fn end_nest(&mut self, begin: Begin) {
        let length = self.bytes.len().saturating_sub(begin.0) as u16;
        if let Some(field) = self.bytes.get_mut(begin.0..begin.0 + 2) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// The answer to a request that was refused, or that asked to be answered: `NLMSG_ERROR`. `number` gives Linux's number
/// of an error.
///
/// # Errors
/// `ENOMEM`.
pub fn acknowledge(
    request: &Request<'_>,
    outcome: core::result::Result<(), Refusal>,
    port: u32,
    answers: &Answers,
) -> Result<Vec<u8>> {
    let refusal = outcome.err();
    let is_capped = refusal.is_none() || answers.is_capped;
    let is_extended = answers.is_extended && refusal.is_some_and(|refusal| refusal.has_more());
    let capped = if is_capped { flag::CAPPED } else { 0 };
    let extended = if is_extended { flag::EXTENDED } else { 0 };
    let mut out = Writer::new();
    let begin = out.begin(kind::ERROR, capped | extended, request.sequence, port);
    let error = refusal.map_or(0, |refusal| (answers.number)(refusal.error));
    out.raw(&(error as i32).wrapping_neg().to_le_bytes());
    out.raw(if is_capped { &request.whole[..HEADER_BYTES] } else { request.whole });
    if let Some(refusal) = refusal.filter(|_| is_extended) {
        out.align();
        refusal.explain(&mut out);
    }
    out.end(begin);
    out.finish()
}

/// The end of several messages: `NLMSG_DONE`, with an error if they could not be told.
///
/// # Errors
/// `ENOMEM`.
pub fn done(sequence: u32, flags: u16, refusal: Option<Refusal>, port: u32, answers: &Answers) -> Result<Vec<u8>> {
    let refused = refusal.filter(|refusal| answers.is_extended && refusal.has_more());
    let extended = if refused.is_some() { flag::EXTENDED } else { 0 };
    let mut out = Writer::new();
    let begin = out.begin(kind::DONE, flags | flag::MULTI | extended, sequence, port);
    let error = refusal.map_or(0, |refusal| (answers.number)(refusal.error));
    out.raw(&(error as i32).wrapping_neg().to_le_bytes());
    if let Some(refusal) = refused {
        refusal.explain(&mut out);
    }
    out.end(begin);
    out.finish()
}

/// How a socket wants to be answered.
#[derive(Clone, Copy, Debug)]
pub struct Answers {
    /// `NETLINK_CAP_ACK`: of a request that was refused its header is enough.
    pub is_capped: bool,
    /// `NETLINK_EXT_ACK`: it is to be said why.
    pub is_extended: bool,
    /// `NETLINK_GET_STRICT_CHK`: what is asked for is checked, and narrows what is told.
    pub is_strict: bool,
    /// The system's number of an error.
    pub number: fn(Errno) -> u32,
}

#[cfg(test)]
mod tests {
    use super::{Answers, Refusal, Requests, Writer, acknowledge, done, flag};
    use crate::error::Errno;
    use proptest::prelude::*;

    const ANSWERS: Answers = Answers { is_capped: false, is_extended: true, is_strict: false, number: |_| 22 };

    fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut out = Writer::new();
        let begin = out.begin(kind, flags, 7, 0);
        out.raw(body);
        out.end(begin);
        out.finish().expect("memory")
    }

    #[test]
    fn messages_are_cut_where_they_end() {
        let mut bytes = request(18, 0x301, &[0]);
        assert_eq!(bytes.len(), 20, "padded, but 17 bytes long");
        bytes.extend(request(22, 1, &[1, 2, 3, 4]));
        bytes.extend([0; 7]);
        let all: Vec<_> = Requests::new(&bytes).collect();
        assert_eq!((all.len(), all[0].kind, all[0].body(), all[0].is_dump()), (2, 18, &[0][..], true));
        assert_eq!((all[1].kind, all[1].body(), all[1].sequence), (22, &[1, 2, 3, 4][..], 7));
    }

    #[test]
    fn lengths_that_lie_end_the_message() {
        for length in [0u32, 15, 21, u32::MAX] {
            let mut bytes = request(18, 1, &[0; 4]);
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            assert_eq!(Requests::new(&bytes).count(), 0, "{length}");
        }
        assert_eq!(Requests::new(&[255; 15]).count(), 0);
    }

    #[test]
    fn attributes_are_found_and_the_last_of_a_type_counts() {
        let mut out = Writer::new();
        out.raw(&[0; 4]);
        out.number(29, 1);
        out.string(3, b"lo");
        out.number(29, 9);
        let bytes = request(18, 1, &out.finish().expect("memory"));
        let request = Requests::new(&bytes).next().expect("one");
        assert_eq!(request.attributes(4).find_u32(29), Some(9));
        assert_eq!(request.attributes(4).find(3), Some(&b"lo\0"[..]));
        assert_eq!(request.attributes(4).find_u32(3), None);
        assert_eq!(request.attributes(99).count(), 0);
    }

    #[test]
    fn answers_are_linuxs_bytes() {
        let bytes = request(18, 5, &[0; 16]);
        let request = Requests::new(&bytes).next().expect("one");
        let fine = acknowledge(&request, Ok(()), 77, &ANSWERS).expect("memory");
        assert_eq!((fine.len(), &fine[4..8], &fine[16..20]), (36, &[2, 0, 0, 1][..], &[0; 4][..]));
        let refused = acknowledge(&request, Err(Errno::EINVAL.into()), 77, &ANSWERS).expect("memory");
        assert_eq!(
            (refused.len(), &refused[4..8], &refused[16..20]),
            (52, &[2, 0, 0, 0][..], &[234, 255, 255, 255][..])
        );
        let why = Refusal::invalid("ipv4: no");
        let refused = acknowledge(&request, Err(why), 77, &ANSWERS).expect("memory");
        assert_eq!((refused.len(), &refused[52..56], refused[7]), (52 + 16, &[13, 0, 1, 0][..], 2));
        let end = done(7, 0, None, 77, &ANSWERS).expect("memory");
        assert_eq!((end.len(), &end[4..8], &end[16..]), (20, &[3, 0, 2, 0][..], &[0; 4][..]));
        let end = done(7, flag::FILTERED, Some(why), 77, &ANSWERS).expect("memory");
        assert_eq!((end.len(), &end[4..8]), (36, &[3, 0, 0x22, 2][..]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), fixed in 0usize..40) {
            let mut seen = 0;
            for request in Requests::new(&bytes) {
                seen += request.whole.len();
                let inside: usize = request.attributes(fixed).map(|attribute| attribute.1.len() + 4).sum();
                prop_assert!(inside <= request.whole.len());
                prop_assert!(acknowledge(&request, Err(Errno::EPERM.into()), 1, &ANSWERS).is_ok());
            }
            prop_assert!(seen <= bytes.len());
        }

        #[test]
        fn what_is_written_is_read(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6),
        ) {
            let bytes: Vec<u8> = bodies.iter().flat_map(|body| request(20, 1, body)).collect();
            let read: Vec<_> = Requests::new(&bytes).map(|request| request.body().to_vec()).collect();
            prop_assert_eq!(read, bodies);
        }
    }
}

//! A client of the service: its session, what it may, what it gave.

use aegis_proto::block::{BUFFER_COUNT_MAX, Buffer, EXTENT_COUNT_MAX, Extent, Request, Session};

/// A part of the disk that a client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedExtent {
    /// First sector on the disk.
    pub first_sector: u64,
    /// Size and rights.
    pub extent: Extent,
}

/// A buffer that is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) buffer: Buffer,
    pub(crate) first_offset: u64,
}

impl Bound {
    pub(crate) fn byte_count(&self) -> u64 {
        u64::from(self.buffer.page_count) * 4096
    }
}

/// A client.
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) extents: [ServedExtent; EXTENT_COUNT_MAX],
    pub(crate) tickets: u32,
    pub(crate) buffers: [Option<Bound>; BUFFER_COUNT_MAX],
    /// Requests that the disk has.
    pub(crate) flight_count: u32,
    /// Slots that the visit under way may still take.
    pub(crate) seen_count: u32,
    /// Taken, when the disk had no room for it.
    pub(crate) waiting: Option<(u32, Request)>,
    pub(crate) has_ended: bool,
}

impl Client {
    pub(crate) fn new(session: Session, served: &[ServedExtent], tickets: u32) -> Self {
        let mut extents = [ServedExtent::default(); EXTENT_COUNT_MAX];
        extents.iter_mut().zip(served).for_each(|(place, extent)| *place = *extent);
        Self {
            session,
            extents,
            tickets,
            buffers: [None; BUFFER_COUNT_MAX],
            flight_count: 0,
            seen_count: 0,
            waiting: None,
            has_ended: false,
        }
    }

    /// Whether it has something for the disk.
    pub(crate) fn wants(&self) -> bool {
        !self.has_ended && (self.waiting.is_some() || self.seen_count > 0)
    }
}

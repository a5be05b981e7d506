//! A request, held against what its client may and has given.

use aegis_hal::block::{BlockLimits, BlockOperation, RangeLimits, SECTOR_BYTES};
use aegis_hal::net::Place;
use aegis_proto::block::{BUFFER_COUNT_MAX, Offence, Operation, Outcome, Request, Segment};

use super::Host;
use super::client::{Bound, Client};

/// Why a request does not go to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It ends so, and the client goes on.
    Answer(Outcome),
    /// The client's session ends.
    Offence(Offence),
}

impl From<Offence> for Fault {
    fn from(offence: Offence) -> Self {
        Self::Offence(offence)
    }
}

/// Buffers of a request: bit n of word m stands for 64 m + n.
pub(crate) type BufferSet = [u64; BUFFER_COUNT_MAX / 64];

pub(crate) fn operation_of(operation: Operation) -> BlockOperation {
    match operation {
        Operation::Read => BlockOperation::Read,
        Operation::Write => BlockOperation::Write,
        Operation::Flush | Operation::Forget => BlockOperation::Flush,
        Operation::Discard => BlockOperation::Discard,
        Operation::WriteZeroes => BlockOperation::WriteZeroes,
    }
}

/// Whether a range may have so many sectors.
fn may_have(limits: Option<RangeLimits>, sector_count: u32) -> Result<(), Fault> {
    let limits = limits.ok_or(Fault::Answer(Outcome::Unsupported))?;
    if sector_count > limits.sector_count_max { Err(Fault::Answer(Outcome::Refused)) } else { Ok(()) }
}

/// The first sector on the disk (0 for what names none).
pub(crate) fn first_sector(client: &Client, request: &Request, limits: &BlockLimits) -> Result<u64, Fault> {
    let served = client.extents.get(usize::from(request.extent)).filter(|served| served.extent.sector_count > 0);
    let served = served.ok_or(Offence::Extent)?;
    let right = request.operation.right();
    if served.extent.rights & right != right || (limits.is_read_only && request.operation != Operation::Read) {
        return Err(Fault::Answer(Outcome::Refused));
    }
    let count = u64::from(request.sector_count);
    match request.operation {
        Operation::Flush => return Ok(0),
        Operation::Read | Operation::Write if request.sector_count > limits.sector_count_max => {
            return Err(Fault::Answer(Outcome::Refused));
        }
        Operation::Discard => may_have(limits.discard, request.sector_count)?,
        Operation::WriteZeroes => may_have(limits.write_zeroes, request.sector_count)?,
        _ => {}
    }
    let end = request.first_sector.checked_add(count).filter(|end| *end <= served.extent.sector_count);
    match (end, count) {
        (Some(_), 1..) => Ok(served.first_sector + request.first_sector),
        _ => Err(Fault::Answer(Outcome::Refused)),
    }
}

/// Where a segment is; the buffer is bound if it was not.
fn place<H: Host>(host: &mut H, index: usize, client: &mut Client, segment: Segment) -> Result<Place, Offence> {
    let number = usize::from(segment.buffer);
    let slot = client.buffers.get_mut(number).ok_or(Offence::Buffer)?;
    let bound = match slot {
        Some(bound) => *bound,
        None => {
            let buffer = client.session.buffer(host.words(index), segment.buffer);
            let first_offset = host.bind(index, buffer).ok_or(Offence::Buffer)?;
            *slot.insert(Bound { buffer, first_offset })
        }
    };
    let end = u64::from(segment.offset_bytes) + u64::from(segment.length_bytes);
    if end > bound.byte_count() || segment.length_bytes == 0 {
        return Err(Offence::Buffer);
    }
    Ok(Place { offset: bound.first_offset + u64::from(segment.offset_bytes), length_bytes: segment.length_bytes })
}

/// The places of so many segments, and the buffers that they are in.
pub(crate) fn places<H: Host>(
    host: &mut H,
    index: usize,
    client: &mut Client,
    request: &Request,
    places: &mut [Place],
    segment: impl Fn(&Client, &H, usize) -> Result<Segment, Offence>,
) -> Result<BufferSet, Fault> {
    let mut used = BufferSet::default();
    let mut byte_count = 0;
    for (number, into) in places.iter_mut().enumerate() {
        let segment = segment(client, host, number)?;
        *into = place(host, index, client, segment)?;
        byte_count += u64::from(segment.length_bytes);
        used[usize::from(segment.buffer) / 64] |= 1 << (segment.buffer % 64);
    }
    let is_whole = byte_count == u64::from(request.sector_count) * u64::from(SECTOR_BYTES);
    if is_whole { Ok(used) } else { Err(Fault::Answer(Outcome::Refused)) }
}

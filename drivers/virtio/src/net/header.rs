//! What stands in front of each frame, in both directions (section 5.1.6).

use aegis_hal::net::{ChecksumMeta, SegmentationMeta, TransmitMeta};
use aegis_hal::{AccessError, DmaBuffer};

/// Bytes of the header; all of them are always there in virtio 1.x.
pub(super) const HEADER_BYTES: usize = 12;

/// The transport checksum is to be filled in; of a received frame, that it never was.
const NEEDS_CHECKSUM: u8 = 1;
/// Of a received frame: the transport checksum holds.
const CHECKSUM_IS_VALID: u8 = 2;
/// The frame is cut into TCP segments.
const SEGMENTS_IP4: u8 = 1;
const SEGMENTS_IP6: u8 = 4;

/// The header of a frame to send.
pub(super) fn encode(meta: &TransmitMeta) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    if let Some(ChecksumMeta { start_bytes, offset_bytes }) = meta.checksum {
        bytes[0] = NEEDS_CHECKSUM;
        bytes[6..8].copy_from_slice(&start_bytes.to_le_bytes());
        bytes[8..10].copy_from_slice(&offset_bytes.to_le_bytes());
    }
    if let Some(SegmentationMeta { payload_bytes, header_bytes, is_ip6 }) = meta.segmentation {
        bytes[1] = if is_ip6 { SEGMENTS_IP6 } else { SEGMENTS_IP4 };
        bytes[2..4].copy_from_slice(&header_bytes.to_le_bytes());
        bytes[4..6].copy_from_slice(&payload_bytes.to_le_bytes());
    }
    bytes
}

/// Writes the header of a frame to send to `place`, a multiple of four.
pub(super) fn write(meta: &TransmitMeta, memory: &mut impl DmaBuffer, place: usize) -> Result<(), AccessError> {
    // Of nearly all frames it is empty.
    let bytes = if *meta == TransmitMeta::default() { [0; HEADER_BYTES] } else { encode(meta) };
    for (index, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
        memory.write_u32(place + 4 * index, u32::from_le_bytes(*word))?;
    }
    Ok(())
}

/// What matters of the header of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveHeader {
    pub(super) is_checksum_valid: bool,
    /// Buffers that the frame lies in, where frames may lie in several.
    pub(super) buffer_count: u16,
}

impl ReceiveHeader {
    /// That of the frame whose buffer begins at `place`, a multiple of two.
    pub(super) fn read(memory: &impl DmaBuffer, place: usize) -> Result<Self, AccessError> {
        let flags = memory.read_u8(place)?;
        Ok(Self {
            is_checksum_valid: flags & (NEEDS_CHECKSUM | CHECKSUM_IS_VALID) != 0,
            buffer_count: memory.read_u16(place + 10)?,
        })
    }
}

//! What a network card is to whoever drives frames through it: [`NetDevice`]; and memory that a driver may tell a
//! device of although it is somebody else's: [`DmaWindow`].
//!
//! One driver source serves every placement: a program's library OS calls it directly, a network domain between its
//! clients' rings and the card, a kernel in its interrupt path. So the trait has no time, no waiting and no allocation,
//! frames are lists of pieces, and what is costly is its caller's to batch: descriptors collect until
//! [`NetDevice::flush`], interrupts come only where they were asked for. It is a type parameter, never a `dyn`.
//!
//! Invariants: HAL-2 holds for received frames too: nothing refers to memory that the card can write, so [`Received`]
//! copies out. A card that breaks its protocol ends as an error from every call until [`NetDevice::reset`].

use crate::{AccessError, DeviceAddress, DmaBuffer};

/// What a card does to frames on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// It fills in a transport checksum of a frame that is sent.
    pub fills_checksums: bool,
    /// It says of some received frames that their transport checksum holds.
    pub checks_checksums: bool,
    /// It cuts TCP packets of IPv4 into segments.
    pub segments_ip4: bool,
    /// It cuts TCP packets of IPv6 into segments.
    pub segments_ip6: bool,
}

/// What a card is. Never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetIdentity {
    /// Its Ethernet address.
    pub hardware_address: [u8; 6],
    /// Longest packet, in bytes, without the Ethernet header (MTU).
    pub packet_bytes_max: u16,
    /// What it does to frames.
    pub offloads: Offloads,
}

/// Where a transport checksum goes: the sum of the bytes from `start_bytes` on, `offset_bytes` behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumMeta {
    /// First byte that is summed, from the begin of the frame.
    pub start_bytes: u16,
    /// Where the sum goes, from `start_bytes` on.
    pub offset_bytes: u16,
}

/// How a frame is cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentationMeta {
    /// Payload bytes of each segment.
    pub payload_bytes: u16,
    /// Bytes of all headers, which each segment repeats.
    pub header_bytes: u16,
    /// The packet is IPv6.
    pub is_ip6: bool,
}

/// What a frame needs beyond being sent. What the card's [`Offloads`] do not have is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitMeta {
    /// A checksum to fill in.
    pub checksum: Option<ChecksumMeta>,
    /// Segments to cut it into; asks for a checksum too.
    pub segmentation: Option<SegmentationMeta>,
}

/// A place in memory that is not the driver's, in its owner's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length_bytes: u32,
}

/// Memory that a device reaches and that is not its driver's: a client's transmit region, pages of a library OS.
pub trait DmaWindow {
    /// Where the device finds a place, all of it in one piece; `None`: it does not reach it.
    fn device_address(&self, place: Place) -> Option<DeviceAddress>;
}

/// No such memory: everything is copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWindow;

impl DmaWindow for NoWindow {
    fn device_address(&self, _: Place) -> Option<DeviceAddress> {
        None
    }
}

/// A frame to send: first what is copied, then what the card takes from where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Bytes that are copied, one piece after another; the caller may reuse them at once.
    pub copied: &'a [&'a [u8]],
    /// Memory that the card reads itself; it is the card's until `token` is told to be done. At most
    /// [`SHARED_PIECE_COUNT_MAX`].
    pub shared: &'a [Place],
    /// What it needs beyond being sent.
    pub meta: TransmitMeta,
    /// What [`NetDevice::completed`] names the frame by.
    pub token: u32,
}

/// Most pieces of a frame that lie in a window.
pub const SHARED_PIECE_COUNT_MAX: usize = 18;

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitError<E> {
    /// There is no room; there will be when [`NetDevice::completed`] tells of some.
    Full,
    /// It is empty, too long, in too many pieces, out of its window, or asks for what the card cannot do.
    Frame,
    /// The card cannot go on.
    Broken(E),
}

impl<E> TransmitError<E> {
    /// The same, with another's word for what broke.
    pub fn map<F>(self, name: impl FnOnce(E) -> F) -> TransmitError<F> {
        match self {
            Self::Full => TransmitError::Full,
            Self::Frame => TransmitError::Frame,
            Self::Broken(error) => TransmitError::Broken(name(error)),
        }
    }
}

/// A frame that came in, in the driver's buffers.
#[derive(Debug)]
pub struct Received<'a, B> {
    /// Its pieces: buffer, first byte in it, bytes.
    pub pieces: &'a [ReceivedPiece<'a, B>],
    /// Bytes of all pieces.
    pub byte_count: usize,
    /// The card or the host has looked at the transport checksum, or the frame never left the host.
    pub is_checksum_valid: bool,
}

/// A piece of a received frame.
#[derive(Debug)]
pub struct ReceivedPiece<'a, B> {
    /// The buffer that it lies in.
    pub buffer: &'a B,
    /// Its first byte there.
    pub offset: usize,
    /// Its bytes.
    pub byte_count: usize,
}

impl<B: DmaBuffer> Received<'_, B> {
    /// Copies the whole frame into a buffer at `offset`.
    ///
    /// # Errors
    /// [`AccessError`] if it does not fit, or a piece is not within its buffer; some may be written then.
    pub fn copy_into(&self, into: &mut B, mut offset: usize) -> Result<(), AccessError> {
        for piece in self.pieces {
            piece.buffer.copy_across(piece.offset, into, offset, piece.byte_count)?;
            offset += piece.byte_count;
        }
        Ok(())
    }

    /// Copies the frame's first bytes to `into`, as many as there are and fit; how many.
    ///
    /// # Errors
    /// [`AccessError`] if a piece is not within its buffer, which is the driver's fault.
    pub fn copy_out(&self, into: &mut [u8]) -> Result<usize, AccessError> {
        let mut filled = 0;
        for piece in self.pieces {
            let count = piece.byte_count.min(into.len() - filled);
            piece.buffer.copy_out(piece.offset, &mut into[filled..filled + count])?;
            filled += count;
        }
        Ok(filled)
    }
}

/// What an interrupt is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The next frame that comes in.
    pub received: bool,
    /// The next frame whose transmission ends.
    pub completed: bool,
}

/// What a card was seen to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetStatistics {
    /// Frames handed out.
    pub received_count: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that came in broken and were dropped: too short for a header, or in pieces that do not fit.
    pub receive_error_count: u64,
    /// Frames taken.
    pub sent_count: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames refused because there was no room.
    pub full_count: u64,
    /// Notifications of the card.
    pub notification_count: u64,
}

/// A network card.
pub trait NetDevice {
    /// Memory that its frames come in.
    type Buffer: DmaBuffer;
    /// Why it cannot go on.
    type Error: Copy + core::fmt::Debug;

    /// What it is.
    fn identity(&self) -> NetIdentity;

    /// Whether it has a link, as of the last look at an interrupt.
    fn has_link(&self) -> bool;

    /// What it did so far.
    fn statistics(&self) -> NetStatistics;

    /// Whether [`NetDevice::receive`] has something to say: one look at memory.
    fn has_received(&self) -> bool;

    /// Hands at most `budget` frames that have come in to `sink`, oldest first, and gives their buffers back to the
    /// card; how many. Without a frame it costs one look at memory.
    ///
    /// # Errors
    /// The card cannot go on.
    fn receive(&mut self, budget: u32, sink: &mut impl FnMut(&Received<'_, Self::Buffer>)) -> Result<u32, Self::Error>;

    /// Frames of usual length that it has room for, as far as completions were told.
    fn room(&self) -> usize;

    /// Takes a frame. The card sees it with [`NetDevice::flush`], or before.
    ///
    /// # Errors
    /// [`TransmitError`].
    fn transmit(&mut self, frame: &Frame<'_>, window: &impl DmaWindow) -> Result<(), TransmitError<Self::Error>>;

    /// Tells the tokens of frames that the card has done with; how many.
    ///
    /// # Errors
    /// The card cannot go on.
    fn completed(&mut self, done: &mut impl FnMut(u32)) -> Result<u32, Self::Error>;

    /// Shows the card everything since the last time, with at most one notification for each direction.
    ///
    /// # Errors
    /// The card cannot go on.
    fn flush(&mut self) -> Result<(), Self::Error>;

    /// Asks for an interrupt, once, when what is wished happens, and for none otherwise. `true`: it has happened
    /// already, so look again before you sleep.
    ///
    /// # Errors
    /// The card cannot go on.
    fn ask_for_interrupt(&mut self, wishes: Wishes) -> Result<bool, Self::Error>;

    /// Stops the card and starts it again, also after an error. Frames under way are lost; their tokens are told by the
    /// next [`NetDevice::completed`].
    ///
    /// # Errors
    /// It does not stop, or does not come back as what it was.
    fn reset(&mut self) -> Result<(), Self::Error>;
}

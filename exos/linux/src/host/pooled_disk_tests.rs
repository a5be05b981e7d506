//! The disk over a session that a service of the test's own serves.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;

use aegis_abi::{CapSlot, FrameNumber};
use aegis_proto::block::{
    Client, Completion, Description, Extent, Operation, Outcome, RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE, Segments,
    Session,
};
use exos::block::disk::{Disk, DiskOperation, DiskRequest, DiskReset, DiskSubmitError};
use exos::mem::pinned::FramePiece;

use super::super::disk_session::{DiskPlace, SHAPE, SessionDisk};
use super::super::session_place::SessionPlace;
use super::{PooledDisk, TRANSFER_BYTES_MAX, TRANSFER_COUNT, TRANSFER_PAGE_COUNT, Transfers};

const SECTOR_COUNT: u64 = 4096;

/// The pod's memory, and the memory for transfers.
struct Place {
    words: Vec<AtomicU64>,
    session: Mutex<Option<Session>>,
    frames: Mutex<Vec<u8>>,
    transfers: Mutex<Vec<u8>>,
    disk: Mutex<Vec<u8>>,
    doubt_count: AtomicUsize,
    now_ns: AtomicU64,
}

#[derive(Clone)]
struct Shared(Arc<Place>);

impl Shared {
    fn new() -> Self {
        Self(Arc::new(Place {
            words: (0..SHAPE.page_count() * 512).map(|_| AtomicU64::new(0)).collect(),
            session: Mutex::new(None),
            frames: Mutex::new(alloc::vec![0; 64 * 4096]),
            transfers: Mutex::new(alloc::vec![0; TRANSFER_PAGE_COUNT as usize * 4096]),
            disk: Mutex::new(alloc::vec![0; SECTOR_COUNT as usize * 512]),
            doubt_count: AtomicUsize::new(0),
            now_ns: AtomicU64::new(0),
        }))
    }

    /// Takes what is offered.
    fn adopt(&self) {
        let mut session = self.0.session.lock().unwrap();
        let offered = Session::offered(&self.0.words[..]);
        if offered.is_none() || session.as_ref().map(Session::generation) == offered {
            return;
        }
        let taken = Session::attach(&self.0.words[..]).unwrap();
        let disk = Description {
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            segment_count_max: 1,
            segment_bytes_max: 1 << 20,
            sector_count_max: 2048,
            has_write_cache: true,
            is_rotational: false,
            depth: 64,
            discard: None,
            write_zeroes: None,
        };
        let rights = RIGHT_READ | RIGHT_WRITE | RIGHT_DISCARD;
        taken.announce(&self.0.words[..], &disk, &[Extent { sector_count: SECTOR_COUNT, rights }]);
        *session = Some(taken);
    }

    /// Does what is asked, and tells of it.
    fn serve(&self) -> u32 {
        let (mut session, words) = (self.0.session.lock().unwrap(), &self.0.words[..]);
        let Some(session) = session.as_mut() else { return 0 };
        let count = session.visit(words).unwrap();
        for _ in 0..count {
            let (position, request) = session.take(words).unwrap().unwrap();
            let Segments::Inline(segments, segment_count) = request.segments else { panic!("one piece") };
            if request.operation.has_memory() {
                assert_eq!((segment_count, segments[0].buffer), (1, 0));
                let (first, length) = (segments[0].offset_bytes as usize, segments[0].length_bytes as usize);
                let (mut transfers, mut disk) = (self.0.transfers.lock().unwrap(), self.0.disk.lock().unwrap());
                let (transfer, at) = (&mut transfers[first..first + length], request.first_sector as usize * 512);
                match request.operation {
                    Operation::Read => transfer.copy_from_slice(&disk[at..at + length]),
                    _ => disk[at..at + length].copy_from_slice(transfer),
                }
            }
            let outcome = Outcome::Done;
            session.complete(words, Completion { position, tag: request.tag, outcome }).unwrap();
        }
        let _ = session.publish(words);
        count
    }

    fn copy(&self, offset_bytes: u64, piece: &FramePiece, to_transfer: bool) {
        let (mut frames, mut transfers) = (self.0.frames.lock().unwrap(), self.0.transfers.lock().unwrap());
        let (at, length) = (piece.first.0 as usize * 4096 + piece.offset_bytes as usize, piece.length_bytes as usize);
        let (program, transfer) = (&mut frames[at..at + length], &mut transfers[offset_bytes as usize..][..length]);
        if to_transfer { transfer.copy_from_slice(program) } else { program.copy_from_slice(transfer) }
    }
}

impl SessionPlace for Shared {
    const IS_CALLED: bool = false;
    fn words(&self) -> &[AtomicU64] {
        &self.0.words
    }
    fn ring(&self) {}
    fn listen(&self) -> bool {
        false
    }
    fn end(&self) -> bool {
        self.0.doubt_count.fetch_add(1, Ordering::Relaxed);
        true
    }
    fn start(&self) -> bool {
        true
    }
    fn is_stopped(&self) -> bool {
        false
    }
    fn now_ns(&self) -> u64 {
        self.0.now_ns.load(Ordering::Relaxed)
    }
}

impl DiskPlace for Shared {
    fn give(&self, number: usize, _: FrameNumber) -> Option<(FrameNumber, u64)> {
        (number == 0).then_some((FrameNumber(0), TRANSFER_PAGE_COUNT))
    }
    fn take_back(&self, _: CapSlot) {}
    const TIMEOUT_FACTOR: u64 = 5;
    fn is_given_up(&self) -> bool {
        Client::is_given_up(&self.0.words[..])
    }
}

impl Transfers for Shared {
    fn put(&self, offset_bytes: u64, piece: &FramePiece) {
        self.copy(offset_bytes, piece, true);
    }
    fn take(&self, offset_bytes: u64, piece: &FramePiece) {
        self.copy(offset_bytes, piece, false);
    }
}

fn open(place: &Shared) -> PooledDisk<Shared> {
    let served = place.clone();
    PooledDisk::new(SessionDisk::open(place.clone(), Box::new(|_| {}), move || served.adopt()).unwrap())
}

fn piece(first: u64, offset_bytes: u32, length_bytes: u32) -> FramePiece {
    FramePiece { first: FrameNumber(first), offset_bytes, length_bytes }
}

fn request(tag: u16, operation: DiskOperation, first_sector: u64, pieces: &[FramePiece]) -> DiskRequest<'_> {
    let bytes: u32 = pieces.iter().map(|piece| piece.length_bytes).sum();
    DiskRequest { tag, operation, first_sector, sector_count: bytes / 512, pieces }
}

fn poll(disk: &PooledDisk<Shared>) -> Vec<u16> {
    let mut told = Vec::new();
    disk.poll(&mut |tag, outcome| {
        assert_eq!(outcome, Ok(()));
        told.push(tag);
    })
    .unwrap();
    told
}

#[test]
fn bytes_come_back_from_wherever_they_lie() {
    let place = Shared::new();
    let disk = open(&place);
    let limits = disk.limits();
    assert_eq!((limits.depth, limits.sector_count_max), (TRANSFER_COUNT, TRANSFER_BYTES_MAX / 512));
    let pattern: Vec<u8> = (0..16 * 4096_u32).map(|index| (index / 7) as u8).collect();
    place.0.frames.lock().unwrap()[..pattern.len()].copy_from_slice(&pattern);
    // Cut anywhere, over frames, as many tags as there are.
    let pieces = [piece(0, 0, 1000), piece(0, 1000, 5000), piece(1, 1904, 2192), piece(2, 0, 14 * 4096)];
    for tag in 0..TRANSFER_COUNT {
        let own = request(tag, DiskOperation::Write, u64::from(tag) * 128, &pieces);
        assert_eq!(disk.submit(&own), Ok(()));
    }
    disk.show().unwrap();
    assert_eq!(place.serve(), u32::from(TRANSFER_COUNT));
    assert_eq!(poll(&disk).len(), usize::from(TRANSFER_COUNT));
    let into = [piece(20, 512, 4096), piece(40, 0, 15 * 4096 + 512), piece(60, 0, 3584)];
    assert_eq!(disk.submit(&request(5, DiskOperation::Read, 31 * 128, &into)), Err(DiskSubmitError::Refused));
    let into = [piece(20, 512, 4096), piece(40, 0, 15 * 4096)];
    assert_eq!(disk.submit(&request(5, DiskOperation::Read, 31 * 128, &into)), Ok(()));
    assert_eq!(disk.submit(&request(6, DiskOperation::Flush, 0, &[])), Ok(()));
    disk.show().unwrap();
    place.serve();
    assert_eq!(poll(&disk), [5, 6]);
    let frames = place.0.frames.lock().unwrap();
    let written = [&pattern[..6000], &pattern[4096 + 1904..][..2192], &pattern[8192..][..14 * 4096]].concat();
    assert_eq!(frames[20 * 4096 + 512..][..4096], written[..4096]);
    assert_eq!(frames[40 * 4096..][..15 * 4096], written[4096..16 * 4096]);
}

#[test]
fn a_tag_that_was_not_taken_leaves_nothing_for_the_next() {
    let place = Shared::new();
    let disk = open(&place);
    place.0.frames.lock().unwrap()[4096..8192].fill(1);
    // More than is there: its slot is refused only after its pieces were looked at.
    let own = [piece(1, 0, 512)];
    let into = [piece(2, 0, 512)];
    assert_eq!(disk.submit(&request(0, DiskOperation::Flush, 0, &[])), Ok(()));
    for turn in 0..63 {
        assert_eq!(disk.submit(&request(1 + turn % 30, DiskOperation::Flush, 0, &[])), Ok(()));
    }
    assert_eq!(disk.submit(&request(31, DiskOperation::Read, 0, &into)), Err(DiskSubmitError::Full));
    disk.show().unwrap();
    assert_eq!(place.serve(), 64);
    // The next with its tag writes, or names no memory.
    assert_eq!(poll(&disk).len(), 32, "as many as tags, where an honest block layer has no more");
    let _ = poll(&disk);
    assert_eq!(disk.submit(&request(31, DiskOperation::Write, 8, &own)), Ok(()));
    disk.show().unwrap();
    place.serve();
    assert_eq!(poll(&disk), [31]);
    assert_eq!(place.0.frames.lock().unwrap()[2 * 4096], 0);
}

#[test]
fn what_was_read_before_a_loss_reaches_nobody() {
    let place = Shared::new();
    let disk = open(&place);
    place.0.disk.lock().unwrap()[..512].fill(7);
    let into = [piece(3, 0, 512)];
    assert_eq!(disk.submit(&request(0, DiskOperation::Read, 0, &into)), Ok(()));
    disk.show().unwrap();
    // The service is lost, and the manager withdraws what it served.
    *place.0.session.lock().unwrap() = None;
    Session::withdraw(&place.0.words[..], false);
    place.adopt();
    assert!(disk.poll(&mut |_, _| panic!("nothing was told")).is_err());
    assert_eq!(disk.reset(), DiskReset::Pending);
    assert_eq!(place.0.doubt_count.load(Ordering::Relaxed), 1);
    place.adopt();
    assert_eq!(disk.reset(), DiskReset::Done);
    assert_eq!(place.0.frames.lock().unwrap()[3 * 4096], 0);
    // Submitted again, as the block layer does it.
    assert_eq!(disk.submit(&request(9, DiskOperation::Read, 0, &into)), Ok(()));
    disk.show().unwrap();
    place.serve();
    assert_eq!(poll(&disk), [9]);
    assert_eq!(place.0.frames.lock().unwrap()[3 * 4096..][..512], [7; 512]);
}

#[test]
fn a_pool_that_was_given_up_is_an_error_at_once() {
    let place = Shared::new();
    let disk = open(&place);
    *place.0.session.lock().unwrap() = None;
    Session::withdraw(&place.0.words[..], true);
    assert!(disk.poll(&mut |_, _| panic!("nothing was told")).is_err());
    assert_eq!(disk.reset(), DiskReset::Failed);
    assert_eq!(disk.reset(), DiskReset::Failed);
    let served = place.clone();
    assert!(SessionDisk::open(place.clone(), Box::new(|_| {}), move || served.adopt()).is_none());
}

#[test]
fn a_pod_that_begins_anew_is_another_generation() {
    let place = Shared::new();
    drop(open(&place));
    let before = place.0.session.lock().unwrap().as_ref().map(Session::generation);
    let disk = open(&place);
    assert_ne!(place.0.session.lock().unwrap().as_ref().map(Session::generation), before);
    assert_eq!(disk.submit(&request(0, DiskOperation::Flush, 0, &[])), Ok(()));
    disk.show().unwrap();
    place.serve();
    assert_eq!(poll(&disk), [0]);
}

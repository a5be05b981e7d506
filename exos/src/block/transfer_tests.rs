//! Transfers to a fake disk: frames that are held, and bytes that arrive whatever the pieces are.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::block::OrderPolicy;
use crate::block::fake::{FakeDisk, fake_limits};
use crate::fake::FakeMachine;
use crate::mem::frames::FramePool;
use crate::platform::FrameBytes;

const PAGE: usize = PAGE_SIZE as usize;

struct Setup {
    machine: Arc<FakeMachine>,
    pool: Arc<FramePool>,
    disk: Arc<FakeDisk>,
    queue: Arc<BlockQueue>,
}

impl Setup {
    fn new() -> Self {
        let machine = FakeMachine::new();
        let pool = FramePool::new(machine.clone(), machine.clone(), 64 << 20);
        let disk = FakeDisk::new(fake_limits(1 << 12), Some(machine.clone()));
        let queue = BlockQueue::new(disk.clone(), OrderPolicy::Deadline).unwrap();
        Self { machine, pool, disk, queue }
    }

    fn used(&self) -> u64 {
        let statistics = self.pool.statistics();
        statistics.held - statistics.free
    }

    fn submit(&self, operation: DiskOperation, sector: u64, memory: PinnedMemory) -> Result<Arc<Transfer>> {
        let sector_count = memory.byte_count() / u64::from(SECTOR_BYTES);
        let (memory, class) = (Some(memory), PriorityClass::BestEffort);
        let request = TransferRequest { operation, first_sector: sector, sector_count, memory, class };
        Transfer::submit(&self.queue, request, 0)
    }

    fn finish(&self) {
        self.queue.start(0);
        for now_ns in 1..1000 {
            self.queue.look(now_ns);
        }
        assert!(!self.queue.is_busy());
    }
}

#[test]
fn frames_are_held_until_the_disk_has_let_go() {
    let setup = Setup::new();
    let mut memory = PinnedMemory::new(setup.pool.clone());
    memory.push(setup.pool.allocate().unwrap(), 0, 4096).unwrap();
    setup.disk.behave(|disk| disk.is_stuck = true);
    let transfer = setup.submit(DiskOperation::Read, 0, memory).unwrap();
    setup.queue.start(0);
    drop(transfer);
    assert_eq!(setup.used(), 1);
    setup.disk.behave(|disk| disk.is_stuck = false);
    setup.queue.look(1);
    assert_eq!(setup.used(), 0);
}

#[test]
fn a_refused_transfer_holds_nothing_and_tells_nobody() {
    let setup = Setup::new();
    let mut memory = PinnedMemory::new(setup.pool.clone());
    memory.push(setup.pool.allocate().unwrap(), 0, 4096).unwrap();
    assert_eq!(setup.submit(DiskOperation::Read, 4095, memory).err(), Some(Errno::EINVAL));
    assert_eq!(setup.used(), 0);
}

#[test]
fn bytes_of_the_same_frame_are_one_piece_with_one_reference() {
    let setup = Setup::new();
    let frame = setup.pool.allocate().unwrap();
    let mut memory = PinnedMemory::new(setup.pool.clone());
    memory.push(frame, 512, 1024).unwrap();
    setup.pool.retain(frame);
    memory.push(frame, 1536, 512).unwrap();
    setup.pool.retain(frame);
    memory.push(frame, 0, 512).unwrap();
    assert_eq!((memory.pieces().len(), memory.byte_count()), (2, 2048));
    drop(memory);
    assert_eq!(setup.used(), 0);
}

#[test]
fn a_flush_and_a_long_range_are_as_many_requests_as_they_need() {
    struct Ends(Mutex<Vec<(u64, Result<()>)>>);
    impl RequestOwner for Ends {
        fn done(&self, token: u64, outcome: Result<()>) {
            self.0.lock().unwrap().push((token, outcome));
        }
    }
    let setup = Setup::new();
    let told = Arc::new(Ends(Mutex::default()));
    for (token, operation, sector_count) in [(1, DiskOperation::Flush, 0), (2, DiskOperation::WriteZeroes, 3000)] {
        let (owner, class): (Arc<dyn RequestOwner>, _) = (told.clone(), PriorityClass::Idle);
        let request = TransferRequest { operation, first_sector: 0, sector_count, memory: None, class };
        Transfer::submit_told(&setup.queue, request, (owner, token), 0).unwrap();
    }
    setup.finish();
    told.0.lock().unwrap().sort_by_key(|(token, _)| *token);
    assert_eq!(*told.0.lock().unwrap(), [(1, Ok(())), (2, Ok(()))]);
    assert_eq!(setup.disk.log().iter().map(|request| request.sector_count).collect::<Vec<_>>(), [0, 1024, 1024, 952]);
}

proptest! {
    /// Any pieces, in any place: the bytes arrive where they belong, and no request is against the limits.
    #[test]
    fn bytes_arrive_whatever_the_pieces_are(
        spans in prop::collection::vec((0_u32..8, 1_u32..9, any::<bool>()), 1..40),
        sector in 0_u64..64,
    ) {
        let setup = Setup::new();
        let mut memory = PinnedMemory::new(setup.pool.clone());
        let mut wanted = Vec::new();
        let mut kept = Vec::new();
        for (index, (start, count, is_apart)) in spans.into_iter().enumerate() {
            let count = count.min(8 - start);
            if is_apart {
                kept.push(setup.pool.allocate().unwrap());
            }
            let frame = setup.pool.allocate().unwrap();
            let bytes: Vec<u8> = (0..PAGE).map(|at| (at * 7 + index * 13) as u8).collect();
            setup.machine.write(frame, 0, &bytes);
            let (offset, length) = (start as usize * 512, count as usize * 512);
            wanted.extend_from_slice(&bytes[offset..offset + length]);
            memory.push(frame, offset as u32, length as u32).unwrap();
        }
        let transfer = setup.submit(DiskOperation::Write, sector, memory).unwrap();
        setup.finish();
        prop_assert_eq!(transfer.outcome(), Some(Ok(())));
        let start = sector as usize * 512;
        prop_assert_eq!(&setup.disk.content()[start..start + wanted.len()], &wanted[..]);
        let limits = fake_limits(1 << 12);
        for request in setup.disk.log() {
            prop_assert!(request.pieces.len() <= usize::from(limits.segment_count_max));
            prop_assert!(request.sector_count <= limits.sector_count_max);
            prop_assert!(request.pieces.iter().all(|piece| piece.length_bytes <= limits.segment_bytes_max));
        }
        drop(transfer);
        kept.into_iter().for_each(|frame| setup.pool.release(frame));
        prop_assert_eq!(setup.used(), 0);
    }
}

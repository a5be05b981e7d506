//! The request list over a fake disk that fails in each way that there is.

use alloc::sync::Arc;
use std::sync::Mutex;

use super::*;
use crate::block::disk::DiskReset;
use crate::block::fake::{FakeDisk, fake_limits};
use crate::block::request::{PriorityClass, RequestMemory, RequestOwner};
use crate::mem::pinned::{FramePiece, Pieces};
use aegis_abi::FrameNumber;

#[derive(Default)]
struct Ends(Mutex<Vec<(u64, Result<()>)>>);

impl RequestOwner for Ends {
    fn done(&self, token: u64, outcome: Result<()>) {
        self.0.lock().unwrap().push((token, outcome));
    }
}

impl Ends {
    fn sorted(&self) -> Vec<(u64, Result<()>)> {
        let mut ends = self.0.lock().unwrap().clone();
        ends.sort_by_key(|(token, _)| *token);
        ends
    }
}

struct Setup {
    disk: Arc<FakeDisk>,
    queue: Arc<BlockQueue>,
    ends: Arc<Ends>,
}

const FAR_NS: u64 = 1_000_000_000_000;

impl Setup {
    fn new(policy: OrderPolicy) -> Self {
        let disk = FakeDisk::new(fake_limits(1 << 12), None);
        let queue = BlockQueue::new(disk.clone(), policy).unwrap();
        Self { disk, queue, ends: Arc::default() }
    }

    fn request(&self, operation: DiskOperation, first_sector: u64, sector_count: u32, token: u64) -> BlockRequest {
        let piece = FramePiece {
            first: FrameNumber(0x1000 + token),
            offset_bytes: 0,
            length_bytes: sector_count * SECTOR_BYTES,
        };
        let pieces = if operation.has_memory() { Pieces::One(piece) } else { Pieces::None };
        let class = PriorityClass::BestEffort;
        let memory = RequestMemory::OfOwner(pieces);
        BlockRequest { operation, first_sector, sector_count, memory, class, owner: self.ends.clone(), token }
    }

    fn read(&self, first_sector: u64, sector_count: u32, token: u64) -> Result<()> {
        self.queue.submit(self.request(DiskOperation::Read, first_sector, sector_count, token), 0)
    }

    /// First sectors and lengths as the disk was given them.
    fn log(&self) -> Vec<(u64, u32)> {
        self.disk.log().iter().map(|request| (request.first_sector, request.sector_count)).collect()
    }

    fn drain(&self, mut now_ns: u64) -> u64 {
        for _ in 0..10_000 {
            if !self.queue.is_busy() {
                break;
            }
            now_ns += LOOK_NS_MAX;
            self.queue.look(now_ns);
        }
        assert!(!self.queue.is_busy());
        now_ns
    }
}

#[test]
fn one_request_goes_at_once_and_its_owner_is_told_once() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.read(8, 8, 1).unwrap();
    assert!(setup.log().is_empty());
    setup.queue.start(5);
    assert_eq!((setup.log(), setup.queue.is_busy()), (vec![(8, 8)], true));
    assert!(setup.queue.look(10));
    assert_eq!((setup.ends.sorted(), setup.queue.is_busy()), (vec![(1, Ok(()))], false));
    let statistics = setup.queue.statistics(20);
    assert_eq!((statistics.read.request_count, statistics.read.sector_count, statistics.busy_ns), (1, 8, 5));
    assert!(!setup.queue.look(30));
}

#[test]
fn what_comes_together_is_joined_and_sorted() {
    let setup = Setup::new(OrderPolicy::Elevator);
    for (token, sector) in [(0, 64), (1, 8), (2, 72), (3, 0), (4, 200), (5, 16)] {
        setup.read(sector, 8, token).unwrap();
    }
    setup.queue.start(0);
    assert_eq!(setup.log(), [(0, 24), (64, 16), (200, 8)]);
    setup.drain(0);
    assert_eq!(setup.ends.sorted(), (0..6).map(|token| (token, Ok(()))).collect::<Vec<_>>());
}

#[test]
fn a_disk_gets_no_more_than_its_depth() {
    let setup = Setup::new(OrderPolicy::Fifo);
    (0..10).for_each(|token| setup.read(token * 100, 1, token).unwrap());
    setup.queue.start(0);
    assert_eq!(setup.log().len(), 4);
    setup.queue.look(1);
    assert_eq!(setup.log().len(), 8);
    setup.drain(1);
    assert_eq!(setup.ends.sorted().len(), 10);
}

#[test]
fn an_error_meets_the_request_that_it_belongs_to_and_no_neighbour() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.disk.behave(|disk| disk.bad_sectors = [17].into());
    (0..4).for_each(|token| setup.read(token * 8, 8, token).unwrap());
    setup.queue.start(0);
    setup.drain(0);
    assert_eq!(setup.ends.sorted(), [(0, Ok(())), (1, Ok(())), (2, Err(Errno::EIO)), (3, Ok(()))]);
    assert_eq!((setup.log()[0], setup.log().len(), setup.disk.reset_count()), ((0, 32), 5, 0));
}

#[test]
fn what_is_against_the_limits_is_refused() {
    let setup = Setup::new(OrderPolicy::Deadline);
    assert_eq!(setup.read(4095, 2, 0), Err(Errno::EINVAL));
    assert_eq!(setup.read(u64::MAX, 8, 0), Err(Errno::EINVAL));
    assert_eq!(setup.read(0, 65, 0), Err(Errno::EINVAL));
    assert_eq!(setup.read(0, 0, 0), Err(Errno::EINVAL));
    let limits = DiskLimits { is_read_only: true, discard: None, ..fake_limits(1 << 12) };
    setup.disk.set_limits(limits);
    let queue = BlockQueue::new(setup.disk.clone(), OrderPolicy::Fifo).unwrap();
    let submit = |operation| queue.submit(setup.request(operation, 0, 8, 0), 0);
    assert_eq!(submit(DiskOperation::Write), Err(Errno::EROFS));
    assert_eq!(submit(DiskOperation::Read), Ok(()));
    let writable = DiskLimits { discard: None, ..fake_limits(1 << 12) };
    setup.disk.set_limits(writable);
    let queue = BlockQueue::new(setup.disk.clone(), OrderPolicy::Fifo).unwrap();
    assert_eq!(queue.submit(setup.request(DiskOperation::Discard, 0, 8, 0), 0), Err(Errno::EOPNOTSUPP));
}

#[test]
fn there_is_room_for_a_bounded_number() {
    let setup = Setup::new(OrderPolicy::Fifo);
    (0..REQUEST_COUNT_MAX as u64).for_each(|token| setup.read(token, 1, token).unwrap());
    assert_eq!(setup.read(0, 1, 0), Err(Errno::EAGAIN));
    let told_count = setup.queue.room().told_count();
    setup.queue.start(0);
    setup.queue.look(1);
    assert!(setup.queue.room().told_count() > told_count);
    assert_eq!(setup.read(0, 1, 5000), Ok(()));
    setup.queue.start(1);
    setup.drain(1);
    assert_eq!(setup.ends.sorted().len(), REQUEST_COUNT_MAX + 1);
}

#[test]
fn a_full_disk_gets_the_same_request_later() {
    let setup = Setup::new(OrderPolicy::Fifo);
    setup.read(1, 1, 0).unwrap();
    setup.queue.start(0);
    setup.disk.behave(|disk| disk.full_count = 2);
    setup.read(2, 1, 1).unwrap();
    setup.read(3, 1, 2).unwrap();
    setup.queue.start(0);
    assert_eq!(setup.log(), [(1, 1)]);
    setup.drain(0);
    assert_eq!((setup.log(), setup.disk.reset_count()), (vec![(1, 1), (2, 1), (3, 1)], 0));
}

#[test]
fn a_stuck_disk_is_reset_after_two_seconds_and_gets_everything_again() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.disk.behave(|disk| disk.is_stuck = true);
    setup.read(0, 8, 0).unwrap();
    setup.read(100, 8, 1).unwrap();
    setup.queue.start(FAR_NS);
    // A machine that was stopped for an hour has not waited for the disk.
    setup.queue.look(FAR_NS + 3_600_000_000_000);
    assert_eq!(setup.disk.reset_count(), 0);
    let mut now_ns = FAR_NS + 3_600_000_000_000;
    let mut looks = 0;
    while setup.disk.reset_count() == 0 {
        now_ns = setup.queue.due_ns().unwrap().max(now_ns + 1);
        setup.queue.look(now_ns);
        looks += 1;
    }
    assert_eq!(looks, 9);
    setup.disk.behave(|disk| disk.is_stuck = false);
    assert_eq!((setup.ends.sorted().len(), setup.log().len()), (0, 4));
    setup.queue.look(now_ns + 1);
    assert_eq!(setup.ends.sorted(), [(0, Ok(())), (1, Ok(()))]);
    assert_eq!(setup.queue.statistics(now_ns).restart_count, 1);
}

#[test]
fn a_disk_that_stays_stuck_is_given_up_and_every_request_ends() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.disk.behave(|disk| disk.is_stuck = true);
    (0..10).for_each(|token| setup.read(token * 100, 8, token).unwrap());
    setup.queue.start(0);
    setup.drain(0);
    assert_eq!(setup.disk.reset_count(), restart::ATTEMPT_COUNT_MAX + 1);
    assert_eq!(setup.ends.sorted(), (0..10).map(|token| (token, Err(Errno::EIO))).collect::<Vec<_>>());
    assert_eq!(setup.read(0, 8, 11), Err(Errno::EIO));
    setup.queue.start(0);
    assert!(!setup.queue.look(FAR_NS) && setup.queue.may_sleep() && setup.queue.due_ns().is_none());
}

#[test]
fn a_broken_disk_comes_back_when_its_reset_does() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.disk.behave(|disk| {
        disk.break_count = 1;
        disk.resets = vec![DiskReset::Pending, DiskReset::Pending, DiskReset::Failed];
    });
    setup.read(0, 8, 0).unwrap();
    setup.queue.start(0);
    setup.queue.look(1);
    // New requests wait for it.
    setup.read(50, 8, 1).unwrap();
    setup.queue.start(1);
    assert_eq!((setup.ends.sorted().len(), setup.log().len(), setup.disk.reset_count()), (0, 1, 1));
    setup.drain(1);
    assert_eq!(setup.disk.reset_count(), 4);
    assert_eq!(setup.ends.sorted(), [(0, Ok(())), (1, Ok(()))]);
}

#[test]
fn a_reset_that_never_ends_is_given_up() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.disk.behave(|disk| {
        disk.break_count = 1;
        disk.resets = vec![DiskReset::Pending; 10_000];
    });
    setup.read(0, 8, 0).unwrap();
    setup.queue.start(0);
    setup.drain(0);
    assert_eq!(setup.ends.sorted(), [(0, Err(Errno::EIO))]);
}

#[test]
fn a_disk_that_does_not_stop_keeps_the_owners_of_its_memory() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.disk.behave(|disk| {
        disk.break_count = 1;
        disk.resets = vec![DiskReset::Lost];
    });
    setup.read(0, 8, 0).unwrap();
    setup.queue.start(0);
    let before = Arc::strong_count(&setup.ends);
    setup.queue.look(1);
    assert_eq!(setup.ends.sorted(), [(0, Err(Errno::EIO))]);
    assert_eq!(Arc::strong_count(&setup.ends), before);
}

#[test]
fn another_disk_in_its_place_is_not_written_to() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.disk.behave(|disk| disk.break_count = 1);
    setup.read(0, 8, 0).unwrap();
    setup.queue.start(0);
    setup.disk.set_limits(fake_limits(100));
    setup.queue.look(1);
    assert_eq!((setup.ends.sorted(), setup.log().len()), (vec![(0, Err(Errno::EIO))], 1));
}

#[test]
fn tags_that_nobody_gave_are_passed_over() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.read(0, 8, 0).unwrap();
    setup.queue.start(0);
    setup.disk.behave(|disk| (disk.is_lying, disk.is_stuck) = (true, true));
    for now_ns in 1..5 {
        setup.queue.look(now_ns);
    }
    assert!(setup.ends.sorted().len() <= 1);
    setup.disk.behave(|disk| disk.is_stuck = false);
    setup.queue.look(10);
    assert_eq!(setup.ends.sorted(), [(0, Ok(()))]);
}

#[test]
fn an_owner_may_submit_from_where_it_is_told() {
    struct Again(Mutex<Option<(Arc<BlockQueue>, Arc<Ends>)>>);
    impl RequestOwner for Again {
        fn done(&self, _: u64, outcome: Result<()>) {
            let (queue, ends) = self.0.lock().unwrap().take().unwrap();
            let (owner, class) = (ends, PriorityClass::BestEffort);
            let (operation, memory) = (DiskOperation::Flush, RequestMemory::OfOwner(Pieces::None));
            let flush = BlockRequest { operation, first_sector: 0, sector_count: 0, memory, class, owner, token: 7 };
            queue.submit(flush, 3).and(outcome).unwrap();
            queue.start(3);
        }
    }
    let setup = Setup::new(OrderPolicy::Program);
    let owner = Arc::new(Again(Mutex::new(Some((setup.queue.clone(), setup.ends.clone())))));
    let request = BlockRequest { owner, ..setup.request(DiskOperation::Write, 0, 8, 1) };
    setup.queue.submit(request, 0).unwrap();
    setup.queue.start(0);
    setup.drain(0);
    assert_eq!(setup.ends.sorted(), [(7, Ok(()))]);
}

#[test]
fn somebody_is_called_after_each_start_and_may_look() {
    let setup = Setup::new(OrderPolicy::Deadline);
    let count = Arc::new(core::sync::atomic::AtomicUsize::new(0));
    let counted = count.clone();
    setup.queue.call_at_starts(Box::new(move |queue| {
        counted.fetch_add(1, Ordering::Relaxed);
        queue.look(1);
    }));
    setup.read(1, 1, 0).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 0, "what is only collected is nobody's to look at");
    setup.queue.start(0);
    setup.queue.start(0);
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

/// With a lock held this would hang: the other processor, which wants the list meanwhile.
#[test]
fn the_disk_is_shown_requests_with_no_lock_of_the_list_held() {
    let setup = Setup::new(OrderPolicy::Deadline);
    let (queue, count) = (Arc::downgrade(&setup.queue), Arc::new(core::sync::atomic::AtomicUsize::new(0)));
    let counted = count.clone();
    setup.disk.call_at_shows(move || {
        let queue = queue.upgrade().unwrap();
        assert!(queue.is_busy());
        let _ = queue.statistics(0);
        counted.fetch_add(1, Ordering::Relaxed);
    });
    setup.read(1, 1, 0).unwrap();
    setup.queue.start(0);
    setup.read(9, 1, 1).unwrap();
    setup.queue.start_awaited(0);
    setup.drain(1);
    assert_eq!(count.load(Ordering::Relaxed), 2);
    assert_eq!(setup.ends.sorted(), [(0, Ok(())), (1, Ok(()))]);
}

#[test]
fn a_disk_that_breaks_as_it_is_shown_something_is_given_it_again() {
    let setup = Setup::new(OrderPolicy::Deadline);
    setup.disk.behave(|behaviour| behaviour.show_break_count = 1);
    setup.read(1, 1, 0).unwrap();
    setup.queue.start(0);
    assert_eq!((setup.disk.reset_count(), setup.disk.log().len()), (1, 2));
    setup.drain(1);
    assert_eq!(setup.ends.sorted(), [(0, Ok(()))]);
    setup.disk.behave(|behaviour| {
        behaviour.show_break_count = 1;
        behaviour.resets = alloc::vec![DiskReset::Lost];
    });
    setup.read(2, 1, 1).unwrap();
    setup.queue.start(0);
    assert_eq!(setup.ends.sorted().last(), Some(&(1, Err(Errno::EIO))), "told by whoever showed it");
}

//! The disk of tests keeps to what it promises.

extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;

use super::{CompletionOrder, FakeClientMemory, FakeDisk, FakeDiskBroken};
use crate::block::{BlockDevice, BlockError, BlockOperation, BlockRequest, SubmitError};
use crate::fake::FakeBus;
use crate::net::Place;

fn request(tag: u16, operation: BlockOperation, first_sector: u64, pieces: &[Place]) -> BlockRequest<'_> {
    let byte_count: u32 = pieces.iter().map(|piece| piece.length_bytes).sum();
    let sector_count = byte_count / 512;
    BlockRequest { tag, queue: 0, operation, first_sector, sector_count, pieces }
}

fn polled(disk: &mut FakeDisk, memory: &FakeClientMemory) -> Vec<(u16, Result<(), BlockError>)> {
    let mut done = Vec::new();
    disk.poll(memory, &mut |tag, result| done.push((tag, result))).expect("not broken");
    done
}

#[test]
fn what_is_written_is_read_and_survives_after_a_flush() {
    let bus = FakeBus::new(8);
    let memory = FakeClientMemory::new(&bus, 4).expect("room");
    let mut disk = FakeDisk::new(64);
    let (first, second) = (Place { offset: 0, length_bytes: 1024 }, Place { offset: 4096, length_bytes: 1024 });
    memory.fill(0, &[7; 1024]);
    disk.submit(&request(3, BlockOperation::Write, 5, &[first]), &memory).expect("taken");
    disk.submit(&request(4, BlockOperation::Flush, 0, &[]), &memory).expect("taken");
    assert!(!disk.has_completed(), "not shown yet");
    disk.notify().expect("not broken");
    assert_eq!(polled(&mut disk, &memory), [(3, Ok(())), (4, Ok(()))]);
    disk.submit(&request(3, BlockOperation::Read, 5, &[second]), &memory).expect("taken");
    disk.notify().expect("not broken");
    assert_eq!(polled(&mut disk, &memory), [(3, Ok(()))]);
    assert_eq!(memory.bytes(4096, 1024), vec![7; 1024]);
    // The flush came before the write had completed, so it does not cover it (BLK-1).
    disk.lose_power();
    assert_eq!(disk.bytes(5, 512), vec![0; 512]);
    disk.submit(&request(3, BlockOperation::Write, 5, &[first]), &memory).expect("taken");
    disk.notify().expect("not broken");
    assert_eq!(polled(&mut disk, &memory).len(), 1);
    disk.submit(&request(4, BlockOperation::Flush, 0, &[]), &memory).expect("taken");
    disk.notify().expect("not broken");
    assert_eq!(polled(&mut disk, &memory).len(), 1);
    disk.lose_power();
    assert_eq!(disk.bytes(5, 512), vec![7; 512]);
}

#[test]
fn order_errors_and_the_end_are_as_the_test_says() {
    let bus = FakeBus::new(8);
    let memory = FakeClientMemory::new(&bus, 4).expect("room");
    let mut disk = FakeDisk::new(64);
    disk.set_order(CompletionOrder::ByHand);
    let place = [Place { offset: 0, length_bytes: 512 }];
    for tag in 0..4 {
        disk.submit(&request(tag, BlockOperation::Read, u64::from(tag), &place), &memory).expect("taken");
    }
    let again = disk.submit(&request(2, BlockOperation::Read, 0, &place), &memory);
    assert_eq!(again, Err(SubmitError::Request));
    assert_eq!(disk.ask_for_interrupt(), Ok(false));
    assert_eq!(disk.under_way().len(), 4);
    disk.damage(2..3, BlockError::Input);
    assert!(disk.finish(2) && disk.finish(0) && !disk.finish(2));
    assert_eq!(disk.interrupt_count(), 1);
    assert_eq!(polled(&mut disk, &memory), [(2, Err(BlockError::Input)), (0, Ok(()))]);
    disk.set_order(CompletionOrder::Newest);
    assert_eq!(polled(&mut disk, &memory), [(3, Ok(())), (1, Ok(()))]);
    disk.break_down();
    assert_eq!(disk.notify(), Err(FakeDiskBroken));
    assert_eq!(disk.reset(), Ok(()));
    assert_eq!(polled(&mut disk, &memory), []);
    let outside = disk.submit(&request(2, BlockOperation::Write, 64, &place), &memory);
    assert_eq!(outside, Err(SubmitError::Request));
}

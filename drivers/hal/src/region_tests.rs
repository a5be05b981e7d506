//! Volatile access against plain arrays, at every small offset and length, and at the edges of the
//! region.
#![allow(unsafe_code, reason = "constructs regions over host memory")]

extern crate alloc;
extern crate std;

use alloc::boxed::Box;
use alloc::vec;
use core::ptr::NonNull;

use super::{DmaRegion, MmioRegion};
use crate::{AccessError, DeviceAddress, Dma, DmaBuffer, DmaError, DmaPool, DmaRun, PAGE_BYTES, Volatile, Width};

#[repr(C, align(4096))]
struct Pages([u8; 4 * PAGE_BYTES]);

/// Memory that lives to the end of the test process.
fn leaked_pages() -> NonNull<u8> {
    NonNull::from(Box::leak(Box::new(Pages([0xa5; 4 * PAGE_BYTES])))).cast()
}

fn dma_region(page_count: usize) -> DmaRegion {
    assert!(page_count <= 4);
    // SAFETY: leaked memory that nobody else uses; there is no device.
    unsafe { DmaRegion::new(leaked_pages(), page_count * PAGE_BYTES, DeviceAddress(0x10_0000)) }
        .expect("page-aligned by type")
}

#[test]
fn copies_move_exactly_the_bytes_asked_for() {
    let mut region = dma_region(1);
    for offset in 0..20 {
        for length in 0..40 {
            region.copy_in(0, &[0xa5; 80]).expect("in bounds");
            let source: alloc::vec::Vec<u8> = (0..length as u8).collect();
            region.copy_in(offset, &source).expect("in bounds");
            let mut all = [0; 80];
            region.copy_out(0, &mut all).expect("in bounds");
            let mut expected = [0xa5; 80];
            expected[offset..offset + length].copy_from_slice(&source);
            assert_eq!(all, expected, "offset {offset}, length {length}");
            let mut part = vec![0; length];
            region.copy_out(offset, &mut part).expect("in bounds");
            assert_eq!(part, source);
        }
    }
}

#[test]
fn access_out_of_bounds_or_unaligned_is_refused_without_an_access() {
    let mut region = dma_region(1);
    assert!(region.copy_in(PAGE_BYTES - 3, &[0; 4]).is_err());
    assert!(region.copy_in(usize::MAX, &[0; 4]).is_err());
    assert!(region.copy_out(PAGE_BYTES + 1, &mut []).is_err());
    assert_eq!(region.copy_out(PAGE_BYTES, &mut []), Ok(()));
    assert!(region.write_u32(PAGE_BYTES - 2, 0).is_err());
    assert!(region.write_u16(1, 0).is_err());
    assert!(region.read_u32(usize::MAX - 3).is_err());
    let mut all = [0; PAGE_BYTES];
    region.copy_out(0, &mut all).expect("in bounds");
    assert!(all.iter().all(|&byte| byte == 0xa5));
}

#[test]
fn registers_keep_their_width_and_windows_their_bounds() {
    // SAFETY: leaked memory that stands in for registers.
    let mut registers = unsafe { MmioRegion::new(leaked_pages(), PAGE_BYTES) };
    registers.write_u64(8, 0x1122_3344_5566_7788).expect("in bounds");
    assert_eq!(registers.read_u8(8), Ok(0x88));
    assert_eq!(registers.read_u16(10), Ok(0x5566));
    assert_eq!(registers.read_u32(12), Ok(0x1122_3344));
    registers.write_u8(9, 0).expect("in bounds");
    assert_eq!(registers.read_u64(8), Ok(0x1122_3344_5566_0088));
    let window = registers.window(8, 4).expect("within the region");
    assert_eq!(window.read_u32(0), Ok(0x5566_0088));
    assert_eq!(window.read_u8(4), Err(AccessError { offset: 4, width_bytes: 1, length_bytes: 4 }));
    assert!(registers.window(PAGE_BYTES - 1, 2).is_err());
    let odd = registers.window(9, 8).expect("within the region");
    assert!(odd.read_u16(0).is_err(), "alignment is that of the address");
    assert_eq!(odd.read_u16(1), Ok(0x5566));
}

#[test]
fn region_refuses_what_is_not_whole_pages() {
    let base = leaked_pages();
    // SAFETY: leaked memory; the calls only check their arguments.
    let made = unsafe {
        [
            DmaRegion::new(base, 100, DeviceAddress(0)).is_some(),
            DmaRegion::new(base.add(8), PAGE_BYTES, DeviceAddress(0)).is_some(),
            DmaRegion::new(base, PAGE_BYTES, DeviceAddress(8)).is_some(),
            DmaRegion::new(base, PAGE_BYTES, DeviceAddress(u64::MAX - 0xfff)).is_some(),
        ]
    };
    assert_eq!(made, [false; 4]);
}

#[test]
fn pool_gives_single_pages_and_contiguous_runs_and_takes_them_back() {
    let mut pool = DmaPool::<4>::new();
    pool.donate(dma_region(4)).expect("four slots");
    assert_eq!(pool.available_page_count(), 4);
    assert_eq!(pool.allocate(0).err(), Some(DmaError::PageCount));
    assert_eq!(pool.allocate(5).err(), Some(DmaError::PageCount));
    let one = pool.allocate(1).expect("four pages");
    let three = pool.allocate(3).expect("the other three are contiguous");
    assert_eq!(three.length_bytes(), 3 * PAGE_BYTES);
    assert_eq!(pool.allocate(1).err(), Some(DmaError::Exhausted));
    pool.release(one);
    pool.release(three);
    assert_eq!(pool.available_page_count(), 4);
    let all = pool.allocate(4).expect("joined again");
    assert_eq!(all.device_address(), DeviceAddress(0x10_0000));
    pool.quarantine(all);
    assert_eq!(pool.available_page_count(), 0);
}

#[test]
fn pool_without_a_contiguous_run_refuses_and_loses_nothing() {
    let mut pool = DmaPool::<4>::new();
    pool.donate(dma_region(1)).expect("room");
    pool.donate(dma_region(1)).expect("room");
    assert_eq!(pool.allocate(2).err(), Some(DmaError::Exhausted));
    assert_eq!(pool.available_page_count(), 2);
    assert!(pool.donate(dma_region(3)).is_err(), "three pages do not fit into two slots");
    assert_eq!(pool.available_page_count(), 2);
}

#[test]
fn run_gives_pieces_from_its_front_until_there_is_none_long_enough() {
    let mut run = DmaRun::new(dma_region(4));
    assert_eq!(run.allocate(0).err(), Some(DmaError::PageCount));
    assert_eq!(run.allocate(5).err(), Some(DmaError::Exhausted));
    assert_eq!(run.allocate(usize::MAX).err(), Some(DmaError::Exhausted));
    let three = run.allocate(3).expect("four pages");
    assert_eq!((three.device_address(), three.length_bytes()), (DeviceAddress(0x10_0000), 3 * PAGE_BYTES));
    assert_eq!(run.allocate(2).err(), Some(DmaError::Exhausted));
    let last = run.allocate(1).expect("one is left");
    assert_eq!((last.device_address(), last.length_bytes()), (DeviceAddress(0x10_3000), PAGE_BYTES));
    assert_eq!(run.allocate(1).err(), Some(DmaError::Exhausted));
    run.release(three);
    assert_eq!(run.allocate(1).err(), Some(DmaError::Exhausted));
}

#[test]
fn a_doorbell_writes_its_register_and_nothing_else() {
    // SAFETY: leaked memory that nobody else uses; there is no device.
    let region = unsafe { MmioRegion::new(leaked_pages(), 8) };
    for (offset, width) in [(8, Width::U8), (6, Width::U32), (2, Width::U32), (usize::MAX, Width::U16)] {
        assert!(region.doorbell(offset, width, 1).is_err(), "{offset}");
    }
    let doorbell = region.doorbell(4, Width::U16, 0x1_0203).expect("in bounds");
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(|| doorbell.ring()))));
    assert_eq!(region.read_u64(0), Ok(0xa5a5_0203_a5a5_a5a5));
}

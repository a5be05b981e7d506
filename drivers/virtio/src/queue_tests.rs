//! The queue against a naive model of what is out with the device, and against returns that were
//! never earned.

extern crate alloc;
extern crate std;

use alloc::vec;
use alloc::vec::Vec;

use aegis_hal::fake::{FakeBuffer, FakeBus};
use aegis_hal::{DeviceAddress, Dma, Volatile};
use proptest::prelude::*;

use super::{Interrupts, Queue, Segment, ring_page_count, used_offset};
use crate::{CallerFault, DeviceFault, VirtioError};

type TestQueue = Queue<FakeBuffer, 16>;

fn queue(bus: &FakeBus, size: u16) -> TestQueue {
    let ring = bus.dma().allocate(1).expect("memory of the test");
    Queue::new(7, size, ring).map_err(|(error, _)| error).expect("a size that fits")
}

fn writable(length_bytes: u32) -> Segment {
    Segment::Writable { address: DeviceAddress(0x1000), length_bytes }
}

fn readable(length_bytes: u32) -> Segment {
    Segment::Readable { address: DeviceAddress(0x2000), length_bytes }
}

/// Plays the device: returns `id` in ring slot `used_index % size`, then sets the index.
fn give_back(bus: &FakeBus, queue: &TestQueue, used_index: &mut u16, id: u32, length: u32) {
    let used = queue.addresses().used.0;
    let slot = u64::from(*used_index % queue.size());
    let mut element = [0; 8];
    element[..4].copy_from_slice(&id.to_le_bytes());
    element[4..].copy_from_slice(&length.to_le_bytes());
    *used_index = used_index.wrapping_add(1);
    bus.device_write(used + 4 + 8 * slot, &element).expect("in the ring");
    bus.device_write(used + 2, &used_index.to_le_bytes()).expect("in the ring");
}

#[test]
fn layout_is_that_of_section_2_7() {
    assert_eq!(used_offset(16), 256 + 40);
    assert_eq!((ring_page_count(16), ring_page_count(128), ring_page_count(256)), (1, 1, 2));
    let bus = FakeBus::new(8);
    let queue = queue(&bus, 16);
    let addresses = queue.addresses();
    assert_eq!(addresses.available.0 - addresses.descriptors.0, 256);
    assert_eq!(addresses.used.0 - addresses.descriptors.0, 296);
}

#[test]
fn sizes_that_are_no_power_of_two_or_too_large_are_refused() {
    let bus = FakeBus::new(8);
    for size in [0, 3, 32] {
        let ring = bus.dma().allocate(1).expect("memory of the test");
        let refused = Queue::<_, 16>::new(0, size, ring).err().map(|(error, _)| error);
        assert_eq!(refused, Some(VirtioError::Caller(CallerFault::QueueSize)));
    }
}

#[test]
fn descriptors_say_what_was_pushed() {
    let bus = FakeBus::new(8);
    let mut queue = queue(&bus, 4);
    let head = queue.push(&[readable(5), writable(9)]).expect("room");
    assert!(queue.publish().expect("in the ring"));
    let base = queue.addresses().descriptors.0;
    let mut bytes = [0; 32];
    bus.device_read(base + 16 * u64::from(head), &mut bytes).expect("in the ring");
    let first = [0, 0x20, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 1, 0];
    let second = [0, 0x10, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0];
    assert_eq!(bytes[..16], first);
    assert_eq!(bytes[16..], second);
}

#[test]
fn bad_chains_change_nothing() {
    let bus = FakeBus::new(8);
    let mut queue = queue(&bus, 4);
    let chain = Err(VirtioError::Caller(CallerFault::Chain));
    assert_eq!(queue.push(&[]), chain);
    assert_eq!(queue.push(&[readable(1); 5]), chain);
    assert_eq!(queue.push(&[writable(1), readable(1)]), chain);
    assert_eq!(queue.push(&[writable(u32::MAX), writable(1)]), chain);
    queue.push(&[readable(1); 3]).expect("room");
    assert_eq!(queue.push(&[readable(1); 2]), Err(CallerFault::QueueFull.into()));
    assert_eq!(queue.free_count(), 1);
}

#[test]
fn device_cannot_return_what_it_was_not_shown() {
    let bus = FakeBus::new(8);
    let mut queue = queue(&bus, 4);
    let shown = queue.push(&[writable(8)]).expect("room");
    queue.publish().expect("in the ring");
    let hidden = queue.push(&[writable(8)]).expect("room");
    assert_ne!(shown, hidden);
    let mut used_index = 0;
    give_back(&bus, &queue, &mut used_index, u32::from(hidden), 8);
    let fault = DeviceFault::UsedId { queue: 7, id: u32::from(hidden) };
    assert_eq!(queue.pop(), Err(fault.into()));
    // Honesty afterwards does not heal it (VIRTIO-3).
    give_back(&bus, &queue, &mut used_index, u32::from(shown), 8);
    assert_eq!(queue.pop(), Err(fault.into()));
}

#[test]
fn returning_twice_or_out_of_range_or_too_much_is_a_fault() {
    for (id, count, expected) in [
        (0, 2, DeviceFault::UsedId { queue: 7, id: 0 }),
        (4, 1, DeviceFault::UsedId { queue: 7, id: 4 }),
        (0x1_0000, 1, DeviceFault::UsedId { queue: 7, id: 0x1_0000 }),
        (0, 3, DeviceFault::UsedIndex { queue: 7 }),
    ] {
        let bus = FakeBus::new(8);
        let mut queue = queue(&bus, 4);
        queue.push(&[writable(8)]).expect("room");
        queue.push(&[writable(8)]).expect("room");
        queue.publish().expect("in the ring");
        let mut used_index = 0;
        for _ in 0..count {
            give_back(&bus, &queue, &mut used_index, id, 8);
        }
        let mut result = queue.pop();
        if count == 2 {
            assert!(matches!(result, Ok(Some(_))));
            result = queue.pop();
        }
        assert_eq!(result, Err(expected.into()));
    }
}

#[test]
fn lengths_are_cut_to_what_the_device_could_write() {
    let bus = FakeBus::new(8);
    let mut queue = queue(&bus, 4);
    let mut used_index = 0;
    for (segments, claimed, expected) in [
        (vec![writable(100)], 101, 100),
        (vec![readable(50), writable(10), writable(20)], u32::MAX, 30),
        (vec![readable(50)], 50, 0),
    ] {
        let head = queue.push(&segments).expect("room");
        queue.publish().expect("in the ring");
        give_back(&bus, &queue, &mut used_index, u32::from(head), claimed);
        let used = queue.pop().expect("honest").expect("returned");
        assert_eq!((used.head, used.written_bytes), (head, expected));
    }
    assert_eq!(queue.free_count(), 4);
}

#[test]
fn flags_reach_and_are_read_from_the_device() {
    let bus = FakeBus::new(8);
    let mut queue = queue(&bus, 4);
    let addresses = queue.addresses();
    queue.set_interrupts(Interrupts::Suppressed).expect("in the ring");
    let mut flags = [0; 2];
    bus.device_read(addresses.available.0, &mut flags).expect("in the ring");
    assert_eq!(flags, [1, 0]);
    bus.device_write(addresses.used.0, &[1, 0]).expect("in the ring");
    queue.push(&[readable(1)]).expect("room");
    assert_eq!(queue.publish(), Ok(false), "the device wants no notification");
    assert_eq!(queue.publish(), Ok(false), "nothing new");
}

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<u32>),
    Publish,
    /// Return the n-th oldest of what is out.
    Return(usize, u32),
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        proptest::collection::vec(0..5000u32, 1..5).prop_map(Step::Push),
        Just(Step::Publish),
        (0..16usize, 0..6000u32).prop_map(|(which, length)| Step::Return(which, length)),
        Just(Step::Pop),
    ]
}

proptest! {
    /// An honest device that returns in any order: the queue agrees with lists of chains, over many
    /// wraps of the ring.
    #[test]
    fn queue_agrees_with_a_list(
        steps in proptest::collection::vec(step(), 0..400),
        log2 in 0..5u32,
    ) {
        let bus = FakeBus::new(8);
        let mut queue = queue(&bus, 1 << log2);
        let mut free = 1usize << log2;
        let mut pushed: Vec<(u16, usize, u32)> = Vec::new();
        let mut out: Vec<(u16, usize, u32)> = Vec::new();
        let mut returned: std::collections::VecDeque<(u16, usize, u32)> = Default::default();
        let mut used_index = 0;
        for step in steps {
            match step {
                Step::Push(lengths) => {
                    let segments: Vec<_> = lengths.iter().map(|&l| writable(l)).collect();
                    let result = queue.push(&segments);
                    if lengths.len() <= free {
                        free -= lengths.len();
                        pushed.push((result.expect("room"), lengths.len(), lengths.iter().sum()));
                    } else {
                        prop_assert!(matches!(result, Err(VirtioError::Caller(_))));
                    }
                }
                Step::Publish => {
                    prop_assert_eq!(queue.publish().expect("in the ring"), !pushed.is_empty());
                    out.append(&mut pushed);
                }
                Step::Return(which, length) => {
                    if out.is_empty() {
                        continue;
                    }
                    let chain = out.remove(which % out.len());
                    give_back(&bus, &queue, &mut used_index, u32::from(chain.0), length);
                    returned.push_back((chain.0, chain.1, chain.2.min(length)));
                }
                Step::Pop => {
                    let popped = queue.pop().expect("honest");
                    let expected = returned.pop_front();
                    prop_assert_eq!(
                        popped.map(|used| (used.head, used.written_bytes)),
                        expected.map(|(head, _, length)| (head, length))
                    );
                    free += expected.map_or(0, |(_, count, _)| count);
                }
            }
            prop_assert_eq!(usize::from(queue.free_count()), free);
            prop_assert_eq!(usize::from(queue.outstanding_count()), out.len() + returned.len());
        }
        prop_assert!(bus.violations().is_empty());
    }

    /// Any bytes in the ring at any time: an error or a chain that is really out, never twice.
    #[test]
    fn garbage_in_the_ring_returns_nothing_twice(
        scribbles in proptest::collection::vec((0..512u64, any::<[u8; 4]>()), 0..100),
    ) {
        let bus = FakeBus::new(8);
        let mut queue = queue(&bus, 16);
        let mut out: Vec<u16> = Vec::new();
        for (offset, bytes) in scribbles {
            if let Ok(head) = queue.push(&[writable(64)]) {
                prop_assert!(!out.contains(&head));
                out.push(head);
            }
            queue.publish().expect("in the ring");
            let base = queue.addresses().descriptors.0;
            bus.device_write(base + offset, &bytes).expect("in the ring");
            while let Ok(Some(used)) = queue.pop() {
                let position = out.iter().position(|&head| head == used.head);
                prop_assert!(position.is_some());
                out.swap_remove(position.expect("just checked"));
                prop_assert!(used.written_bytes <= 64);
            }
        }
    }
}

#[test]
fn ring_memory_is_given_back() {
    let bus = FakeBus::new(8);
    let ring = queue(&bus, 4).into_ring();
    assert_eq!(ring.length_bytes(), 4096);
    bus.dma().release(ring);
    assert_eq!(bus.live_page_count(), 0);
}

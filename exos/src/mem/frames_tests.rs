//! The pool against a fake kernel.

use super::{FramePool, FrameRef, Reclaim};
use crate::error::Errno;
use crate::fake::{FAKE_BUNDLE_FRAME, FakeMachine};
use crate::platform::{FrameBytes, FrameGrant};
use crate::sync::Mutex;
use aegis_abi::FrameNumber;
use aegis_abi::types::SLOT_BUNDLE;
use alloc::sync::Arc;
use alloc::vec::Vec;

fn pool(machine_frames: u64, limit_frames: u64) -> (Arc<FakeMachine>, Arc<FramePool>) {
    let machine = FakeMachine::with_frames(machine_frames);
    let pool = FramePool::new(machine.clone(), machine.clone(), limit_frames * 4096);
    (machine, pool)
}

#[test]
fn frames_are_neighbours_and_come_back() {
    let (_, pool) = pool(4096, 4096);
    let frames: Vec<_> = (0..600).map(|_| pool.allocate().expect("memory")).collect();
    for pair in frames[..512].windows(2) {
        assert_eq!(pair[0].0 + 1, pair[1].0);
    }
    assert_ne!(pool.slot_of(frames[0]), pool.slot_of(frames[599]));
    pool.release_all(&frames);
    let statistics = pool.statistics();
    assert_eq!((statistics.held, statistics.free), (1024, 1024));
    assert_eq!(pool.give_back(u64::MAX), 1024);
    assert_eq!(pool.statistics().held, 0);
}

#[test]
fn the_limit_and_an_empty_kernel_are_enomem() {
    for (machine_frames, limit) in [(4096, 700), (700, 4096), (40, 4096), (4096, 16)] {
        let (_, pool) = pool(machine_frames, limit);
        let mut frames = Vec::new();
        let error = loop {
            match pool.allocate() {
                Ok(frame) => frames.push(frame),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Errno::ENOMEM);
        let expected = machine_frames.min(limit) / 16 * 16;
        assert_eq!(frames.len() as u64, expected, "{machine_frames} {limit}");
        pool.release(frames[3]);
        assert_eq!(pool.allocate(), Ok(frames[3]));
    }
}

#[test]
fn a_frame_lives_as_long_as_its_last_reference() {
    let (machine, pool) = pool(1024, 1024);
    let first = pool.allocate_ref().expect("memory");
    let second = first.clone();
    let frame = first.frame();
    assert_eq!(pool.reference_count(frame), 2);
    drop(first);
    let mut byte = [9];
    machine.read(frame, 100, &mut byte);
    assert_eq!(byte, [0]);
    let kept = second.into_frame();
    assert_eq!(pool.reference_count(kept), 1);
    drop(pool.adopt(kept));
    assert_eq!(pool.reference_count(frame), 0);
    assert_eq!(pool.statistics().free, 512);
}

#[test]
fn borrowed_and_zero_frames_are_never_counted() {
    let (machine, pool) = pool(1024, 1024);
    let count = machine.set_bundle(&[7; 5000]);
    let first = FrameNumber(FAKE_BUNDLE_FRAME);
    pool.add_borrowed(FrameGrant { slot: SLOT_BUNDLE, first, count });
    pool.retain(first);
    pool.release(first);
    pool.release(first);
    assert!(pool.is_immutable(first));
    assert_eq!(pool.slot_of(FrameNumber(first.0 + 1)), SLOT_BUNDLE);
    assert_eq!(pool.slot_of(FrameNumber(first.0 + 2)).0, 0);
    let zero = pool.zero_frame().expect("memory");
    assert_eq!(pool.zero_frame(), Ok(zero));
    pool.release(zero);
    assert!(pool.is_immutable(zero));
    let copy = pool.allocate_copy(first).expect("memory");
    let mut byte = [0];
    machine.read(copy, 4095, &mut byte);
    assert_eq!(byte, [7]);
}

#[test]
#[should_panic(expected = "release of a free frame")]
fn a_second_release_is_noticed() {
    let (_, pool) = pool(1024, 1024);
    let frame = pool.allocate().expect("memory");
    pool.release(frame);
    pool.release(frame);
}

/// A cache of frames that it can let go of, but for those that somebody else has, too.
struct Cache(Mutex<Vec<FrameRef>>);

impl Reclaim for Cache {
    fn reclaim(&self, frame_count: u64) -> u64 {
        let mut frames = self.0.lock();
        let count = frames.len().min(frame_count as usize);
        frames.drain(..count).count() as u64
    }

    fn visit(&self, seen: &mut dyn FnMut(FrameNumber)) {
        let frames = self.0.lock();
        frames.iter().filter(|frame| frame.pool().reference_count(frame.frame()) == 1).for_each(|it| seen(it.frame()));
    }

    fn forget(&self, is_chosen: &dyn Fn(FrameNumber) -> bool) {
        self.0.lock().retain(|frame| !is_chosen(frame.frame()));
    }

    fn reclaim_from(&self, is_chosen: &dyn Fn(FrameNumber) -> bool) -> u64 {
        let mut frames = self.0.lock();
        let before = frames.len();
        frames.retain(|frame| frame.pool().reference_count(frame.frame()) != 1 || !is_chosen(frame.frame()));
        (before - frames.len()) as u64
    }
}

#[test]
fn a_small_pool_leaves_the_rest_to_others() {
    let (_, pool) = pool(1000, 400);
    let frame = pool.allocate().expect("there are some");
    assert_eq!(pool.statistics().held, 64);
    pool.release(frame);
    let frames: Vec<_> = core::iter::from_fn(|| pool.allocate().ok()).collect();
    assert_eq!(frames.len(), 400, "all of it, where it is wanted");
}

#[test]
fn the_limit_follows_the_kernels() {
    let (machine, pool) = pool(8192, 4096);
    machine.set_frame_limit(1024);
    assert_eq!(pool.statistics().limit, 1024);
    let frames: Vec<_> = core::iter::from_fn(|| pool.allocate().ok()).collect();
    assert_eq!(frames.len(), 1024);
    machine.set_frame_limit(1536);
    assert!(pool.allocate().is_ok(), "what is granted is there at once");
    machine.set_frame_limit(1 << 20);
    assert_eq!(pool.statistics().limit, 4096, "never more than at the start");
    machine.set_frame_limit(512);
    assert_eq!((pool.statistics().limit, pool.frames_available()), (512, 511));
    pool.release_all(&frames);
    assert_eq!(pool.shrink(1024), 1024);
    assert_eq!(pool.statistics().held, 512);
}

#[test]
fn shrinking_gives_what_is_free_and_what_a_cache_can_let_go_of() {
    let (_, pool) = pool(8192, 8192);
    let mut frames: Vec<_> = (0..2048).map(|_| pool.allocate_ref().expect("memory")).collect();
    // The first grant is a program's in part, the second a cache's but for a mapped page, the third a cache's.
    let program: Vec<_> = frames.drain(..100).collect();
    let free: Vec<_> = frames.drain(1436..).collect();
    let mapped = frames[500].clone();
    let cache = Arc::new(Cache(Mutex::new(frames)));
    let own: alloc::sync::Weak<Cache> = Arc::downgrade(&cache);
    pool.set_reclaimer(own);
    assert_eq!(pool.spare(), 512);
    drop(free);
    assert_eq!(pool.spare(), 1024);
    assert_eq!(pool.shrink(400), 512, "what is free goes first");
    assert_eq!(cache.0.lock().len(), 1436);
    assert_eq!(pool.shrink(2048), 512, "then what only the cache has");
    assert_eq!(pool.shrink(2048), 0);
    drop(mapped);
    assert_eq!((pool.shrink(1), pool.statistics().held), (512, 512));
    drop(program);
    assert_eq!(pool.shrink(1), 512, "a cache's pages beside free ones");
    assert_eq!(pool.statistics().held, 0);
}

#[test]
fn what_the_pool_itself_had_of_taken_frames_it_has_no_more() {
    let (machine, pool) = pool(1024, 1024);
    let frames: Vec<_> = (0..500).map(|_| pool.allocate_ref().expect("memory")).collect();
    let zero = pool.zero_frame().expect("memory");
    pool.fill_reserve();
    machine.take_by_force(pool.slot_of(frames[0].frame()), 22);
    let taken = pool.forget_taken();
    assert!(taken.contains(&zero) && taken.len() == 22, "{taken:?}");
    assert!(pool.zero_frame().is_ok_and(|frame| !taken.contains(&frame)));
    let mut rest = Vec::new();
    pool.with_reserve(|| {
        while let Ok(frame) = pool.allocate_ref() {
            assert!(!taken.contains(&frame.frame()), "{:?} is handed out", frame.frame());
            rest.push(frame);
        }
    });
    assert!(rest.len() > 500, "{}", rest.len());
}

#[test]
fn frames_that_were_taken_are_nobodys() {
    let (machine, pool) = pool(1024, 1024);
    let frames: Vec<_> = (0..500).map(|_| pool.allocate_ref().expect("memory")).collect();
    let cached = frames[490].clone();
    let cache = Arc::new(Cache(Mutex::new(alloc::vec![cached])));
    let own: alloc::sync::Weak<Cache> = Arc::downgrade(&cache);
    pool.set_reclaimer(own);
    assert_eq!(pool.forget_taken(), []);
    machine.take_by_force(pool.slot_of(frames[0].frame()), 22);
    let taken = pool.forget_taken();
    assert_eq!(taken, frames[490..].iter().map(FrameRef::frame).collect::<Vec<_>>());
    assert_eq!((pool.statistics().held, pool.statistics().free), (490, 0));
    assert!(cache.0.lock().is_empty(), "its page is lost");
    assert_eq!(pool.forget_taken(), []);
    // Their holder lets go of them as of others.
    drop(frames);
    assert_eq!((pool.statistics().held, pool.statistics().free), (490, 490));
    assert_eq!(pool.shrink(1), 490);
}

//! Segments under areas that come, are cut, inherited and go.

use alloc::sync::Arc;

use super::permission::Caller;
use super::shared_memory::{Attachment, Limits, Look, MODE_REMOVED, Segments};
use crate::error::Errno;
use crate::fake::FakeMachine;
use crate::mem::{AddressSpace, FramePool, Placement, SharedState, SpaceLimits};
use crate::task::capability::CapabilitySet;

fn caller() -> Caller<'static> {
    Caller { uid: 0, gid: 0, groups: &[], capabilities: CapabilitySet::ALL, pid: 3, now_s: 7 }
}

fn world() -> (Arc<FramePool>, Segments, AddressSpace) {
    let machine = FakeMachine::new();
    let pool = FramePool::new(machine.clone(), machine.clone(), 1 << 20);
    let slot = crate::platform::Kernel::create_space(&*machine).unwrap();
    let space = AddressSpace::new(SharedState::new(pool.clone()), slot, 0x7000_0000_0000, SpaceLimits::default());
    (pool.clone(), Segments::new(pool), space)
}

#[test]
fn areas_are_the_attachments() {
    let (pool, segments, mut space) = world();
    let id = segments.get(&caller(), 9, 3 * 4096, (true, true), 0o600).unwrap();
    let count = || segments.status(&caller(), id, Look::Number).map(|status| status.attached_count);
    assert_eq!(count(), Ok(0));
    let request = segments.attach(&caller(), id, 0, Attachment::default()).unwrap();
    let start = space.map(request).unwrap();
    assert_eq!(count(), Ok(1));
    space.write_all(start + 4096, b"kept").unwrap();
    let held = pool.statistics().held - pool.statistics().free;
    space.unmap(start + 4096, 4096).unwrap();
    assert_eq!(count(), Ok(2), "cut in two, as on Linux");
    assert_eq!(pool.statistics().held - pool.statistics().free, held, "the page is the segment's");
    segments.remove(&caller(), id).unwrap();
    assert_eq!(segments.get(&caller(), 9, 1, (false, false), 0), Err(Errno::ENOENT));
    assert_eq!(segments.status(&caller(), id, Look::Any).unwrap().ownership.mode, 0o600 | MODE_REMOVED);
    let late = segments.attach(&caller(), id, 0, Attachment { reads_only: true, ..Attachment::default() });
    let late = space.map(late.unwrap()).unwrap();
    let mut text = [0; 4];
    space.read(late + 4096, &mut text).unwrap();
    assert_eq!(&text, b"kept");
    space.clear();
    assert_eq!(count(), Err(Errno::EINVAL), "it went with the last area");
    assert_eq!(segments.figures().segment_count, 0);
    assert!(pool.statistics().held - pool.statistics().free < held);
}

#[test]
fn sizes_and_places_are_checked() {
    let (_, segments, mut space) = world();
    let get = |bytes| segments.get(&caller(), 0, bytes, (true, false), 0o600);
    assert_eq!(get(0), Err(Errno::EINVAL));
    assert_eq!(get(u64::MAX), Err(Errno::EINVAL));
    assert_eq!(get(1 << 40), Err(Errno::ENOMEM));
    segments.set_limits(Limits { segment_bytes_max: 8192, page_count_max: 3, segment_count_max: 2 });
    assert_eq!(get(8193), Err(Errno::EINVAL));
    let id = get(8192).unwrap();
    assert_eq!(get(8192), Err(Errno::ENOSPC));
    get(1).unwrap();
    assert_eq!(get(1), Err(Errno::ENOSPC));
    let placed = |address, flags| segments.attach(&caller(), id, address, flags).map(|request| request.placement);
    let (plain, rounds) = (Attachment::default(), Attachment { rounds: true, ..Attachment::default() });
    assert_eq!(placed(0x5001, plain), Err(Errno::EINVAL));
    assert_eq!(placed(0x5001, rounds), Ok(Placement::FixedNoReplace(0x5000)));
    assert_eq!(placed(0x5000, Attachment { replaces: true, ..plain }), Ok(Placement::Fixed(0x5000)));
    assert_eq!(placed(0, Attachment { replaces: true, ..plain }), Err(Errno::EINVAL));
    assert_eq!(placed(77, Attachment { replaces: true, ..rounds }), Err(Errno::EINVAL));
    assert_eq!(segments.attach(&caller(), -1, 0, plain).err(), Some(Errno::EINVAL));
    let start = space.map(segments.attach(&caller(), id, 0, plain).unwrap()).unwrap();
    assert_eq!(space.map(segments.attach(&caller(), id, start, plain).unwrap()), Err(Errno::EEXIST));
}

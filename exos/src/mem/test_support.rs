//! What the tests of this module share: a machine with a pool, and a file to map.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use aegis_abi::types::SLOT_BUNDLE;
use aegis_abi::{CapSlot, FrameNumber};

use super::{
    AddressSpace, FileIdentity, FilePage, FixedRun, FramePool, FrameRef, PageError, PageIntent, PageSource,
    SharedState, SpaceLimits,
};
use crate::fake::{FAKE_BUNDLE_FRAME, FakeMachine};
use crate::mem::Wait;
use crate::platform::FrameGrant;
use crate::sync::Mutex;

pub(crate) const PAGE: u64 = 4096;
/// The mapping base of the spaces under test.
pub(crate) const BASE: u64 = 0x7000_0000_0000;
/// The environment of the first space.
pub(crate) const ENVIRONMENT: CapSlot = CapSlot(50);

pub(crate) struct Setup {
    pub(crate) machine: Arc<FakeMachine>,
    pub(crate) pool: Arc<FramePool>,
    pub(crate) shared: Arc<SharedState>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with_frames(16 * 1024)
    }

    pub(crate) fn with_frames(frame_count: u64) -> Self {
        let machine = FakeMachine::with_frames(frame_count);
        let pool = FramePool::new(machine.clone(), machine.clone(), frame_count * PAGE);
        let shared = SharedState::new(pool.clone());
        Self { machine, pool, shared }
    }

    pub(crate) fn space(&self) -> AddressSpace {
        self.space_of(ENVIRONMENT)
    }

    pub(crate) fn space_of(&self, environment: CapSlot) -> AddressSpace {
        AddressSpace::new(self.shared.clone(), environment, BASE, SpaceLimits::default())
    }

    pub(crate) fn used(&self) -> u64 {
        let statistics = self.pool.statistics();
        statistics.held - statistics.free
    }

    /// An immutable file in the boot bundle: each page's first byte is `first_value` + index;
    /// foreign junk follows its end.
    pub(crate) fn bundle_file(&self, length_bytes: usize, first_value: u8) -> Arc<BundleFile> {
        let mut bytes = vec![0; length_bytes.next_multiple_of(4096)];
        for (index, page) in bytes.chunks_mut(4096).enumerate() {
            page[0] = first_value.wrapping_add(index as u8);
        }
        bytes[length_bytes..].fill(0xee);
        self.bundle_of(&bytes, length_bytes)
    }

    /// An immutable file of these bytes, up to `length_bytes`.
    pub(crate) fn bundle_of(&self, bytes: &[u8], length_bytes: usize) -> Arc<BundleFile> {
        let count = self.machine.set_bundle(bytes);
        let first = FrameNumber(FAKE_BUNDLE_FRAME);
        self.pool.add_borrowed(FrameGrant { slot: SLOT_BUNDLE, first, count });
        Arc::new(BundleFile { pool: self.pool.clone(), length_bytes })
    }
}

pub(crate) struct BundleFile {
    pool: Arc<FramePool>,
    length_bytes: usize,
}

impl PageSource for BundleFile {
    fn page(&self, index: u64, intent: PageIntent) -> Result<FilePage, PageError> {
        assert_eq!(intent, PageIntent::Read, "nobody may write the bundle");
        self.resident_page(index).ok_or(PageError::BeyondEnd)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let start = usize::try_from(index).ok()?.checked_mul(4096)?;
        let valid_bytes = self.length_bytes.checked_sub(start).filter(|&left| left > 0)?.min(4096);
        let frame = self.pool.adopt(FrameNumber(FAKE_BUNDLE_FRAME + index));
        Some(FilePage { frame, valid_bytes })
    }

    fn fixed_run(&self, indices: Range<u64>) -> Option<FixedRun> {
        let end = indices.end.min(self.length_bytes as u64 / PAGE);
        let count = end.checked_sub(indices.start).filter(|count| *count > 0)?;
        Some(FixedRun { first: FrameNumber(FAKE_BUNDLE_FRAME + indices.start), count })
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 8, inode: 1 }
    }

    fn path(&self) -> String {
        "/bundle".into()
    }
}

/// A writable file with a page cache; page `index` begins as `index + 1` in its first byte.
pub(crate) struct CachedFile {
    pool: Arc<FramePool>,
    pages: Mutex<BTreeMap<u64, FrameRef>>,
    page_count: Mutex<u64>,
}

impl CachedFile {
    pub(crate) fn new(pool: &Arc<FramePool>, page_count: u64) -> Arc<Self> {
        Arc::new(Self { pool: pool.clone(), pages: Mutex::new(BTreeMap::new()), page_count: Mutex::new(page_count) })
    }

    pub(crate) fn truncate(&self, page_count: u64) {
        *self.page_count.lock() = page_count;
        self.pages.lock().retain(|&index, _| index < page_count);
    }

    pub(crate) fn cached(&self) -> usize {
        self.pages.lock().len()
    }
}

impl PageSource for CachedFile {
    fn page(&self, index: u64, _intent: PageIntent) -> Result<FilePage, PageError> {
        if index >= *self.page_count.lock() {
            return Err(PageError::BeyondEnd);
        }
        if let Some(found) = self.resident_page(index) {
            return Ok(found);
        }
        let frame = self.pool.allocate_ref().map_err(|_| PageError::OutOfMemory)?;
        self.pool.bytes().write(frame.frame(), 0, &[index as u8 + 1]);
        self.pages.lock().insert(index, frame.clone());
        Ok(FilePage { frame, valid_bytes: 4096 })
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let frame = self.pages.lock().get(&index)?.clone();
        Some(FilePage { frame, valid_bytes: 4096 })
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 8, inode: 2 }
    }

    fn path(&self) -> String {
        "/cached".into()
    }
}

/// A program's load through the page table only, after as many faults as it takes.
pub(crate) fn load(setup: &Setup, space: &mut AddressSpace, address: u64) -> u8 {
    touch(setup, space, address, super::Access::Read);
    setup.machine.load(space.environment(), address).expect("resolved")
}

/// A program's store, as `load`.
pub(crate) fn store(setup: &Setup, space: &mut AddressSpace, address: u64, value: u8) {
    touch(setup, space, address, super::Access::Write);
    setup.machine.store(space.environment(), address, value).expect("resolved");
}

fn touch(setup: &Setup, space: &mut AddressSpace, address: u64, access: super::Access) {
    use crate::fake::FakeAccess;
    let wanted = match access {
        super::Access::Read => FakeAccess::Load,
        super::Access::Write => FakeAccess::Store,
        super::Access::Execute => FakeAccess::Fetch,
    };
    if !setup.machine.allows(space.environment(), address, wanted) {
        let outcome = space.handle_fault(address, access, Wait::Allowed);
        assert!(matches!(outcome, super::FaultOutcome::Resolved { .. }), "{outcome:?}");
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

//! A host stand-in for the machine: the two traits of [`crate::platform`] over maps, with the
//! kernel's checks.
//!
//! [`FakeMachine`] is a kernel that refuses what the real one refuses (frames outside a capability,
//! missing rights, addresses outside the windows), a memory whose frames start as junk, a page
//! table per environment, and a processor that looks only at that page table
//! ([`FakeMachine::load`], [`FakeMachine::store`]). So a policy that forgets to unmap, maps
//! writable what it must not, or reads a frame that it never zeroed is seen. Failures can be
//! ordered ([`FakeMachine::refuse_binds_after`], [`FakeMachine::with_frames`]).
//!
//! Invariant: freeing a grant that is still mapped anywhere is refused with `Busy`, as the kernel
//! does.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::{LARGE_PAGE_FRAMES, LIBOS_BASE, LIBOS_END, PAGE_SHIFT, PAGE_SIZE, PROGRAM_BASE, PROGRAM_END};
use aegis_abi::memory::{BIND_PAGE_COUNT_MAX, BindEntry, BindFlags, BindOperation};
use aegis_abi::types::SLOT_BUNDLE;
use aegis_abi::{CapSlot, FrameNumber, Status};

use crate::platform::{BindFault, FrameBytes, FrameGrant, Kernel, LogLevel};
use crate::sync::Mutex;

/// First frame that [`FakeMachine`] hands out.
pub const FAKE_FRAME_FIRST: u64 = 0x800;
/// First frame of the fake bundle, see [`FakeMachine::set_bundle`].
pub const FAKE_BUNDLE_FRAME: u64 = 0x10_0000;
/// What fresh frames are filled with.
pub const FAKE_JUNK: u8 = 0xa5;

const FIRST_GRANT_SLOT: u32 = 100;
const PAGE_BYTES: usize = PAGE_SIZE as usize;

/// How a fake processor touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeAccess {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An instruction fetch.
    Fetch,
}

/// A mapping as the fake page tables hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeMapping {
    /// The frame.
    pub frame: FrameNumber,
    /// Access rights of the mapping.
    pub flags: BindFlags,
}

/// The machine: kernel, memory, page tables, processor.
pub struct FakeMachine {
    state: Mutex<State>,
}

struct State {
    next_frame: u64,
    frames_free: u64,
    next_slot: u32,
    grants: BTreeMap<u32, FrameGrant>,
    attached: BTreeMap<u32, FrameGrant>,
    free_ranges: Vec<(u64, u64)>,
    bundle_frame_count: u64,
    memory: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    tables: BTreeMap<(u32, u64), FakeMapping>,
    refuses_unmaps: bool,
    binds_until_refusal: Option<u64>,
    bind_calls: u64,
    bind_entries: u64,
    frame_limit: Option<u64>,
    /// By how much the limit grows whenever frames are waited for, and up to where.
    growth: Option<(u64, u64)>,
    now_ns: u64,
    random_state: u64,
    log: Vec<(LogLevel, String)>,
}

impl FakeMachine {
    /// A machine with 64 MiB of free memory.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_frames(16 * 1024)
    }

    /// A machine with `frame_count` free frames.
    #[must_use]
    pub fn with_frames(frame_count: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                next_frame: FAKE_FRAME_FIRST,
                frames_free: frame_count,
                next_slot: FIRST_GRANT_SLOT,
                grants: BTreeMap::new(),
                attached: BTreeMap::new(),
                free_ranges: Vec::new(),
                bundle_frame_count: 0,
                memory: BTreeMap::new(),
                tables: BTreeMap::new(),
                refuses_unmaps: false,
                binds_until_refusal: None,
                bind_calls: 0,
                bind_entries: 0,
                frame_limit: None,
                growth: None,
                now_ns: 0,
                random_state: 0x9e37_79b9_7f4a_7c15,
                log: Vec::new(),
            }),
        })
    }

    /// Puts a boot bundle into memory, from frame [`FAKE_BUNDLE_FRAME`] on; mapped through
    /// `SLOT_BUNDLE`, never writable. Returns the frames that it takes.
    pub fn set_bundle(&self, bytes: &[u8]) -> u64 {
        let mut state = self.state.lock();
        let mut count = 0;
        for chunk in bytes.chunks(PAGE_BYTES) {
            let mut page = Box::new([0; PAGE_BYTES]);
            page[..chunk.len()].copy_from_slice(chunk);
            state.memory.insert(FAKE_BUNDLE_FRAME + count, page);
            count += 1;
        }
        state.bundle_frame_count = count;
        count
    }

    /// Refuses bind entries with `NoTables` once `entry_count` more have been done; `None` never.
    pub fn refuse_binds_after(&self, entry_count: Option<u64>) {
        self.state.lock().binds_until_refusal = entry_count;
    }

    /// Refuses to unmap anything, or does not any more.
    pub fn refuse_unmaps(&self, is_refused: bool) {
        self.state.lock().refuses_unmaps = is_refused;
    }

    /// Sets the clock.
    pub fn set_now_ns(&self, now_ns: u64) {
        self.state.lock().now_ns = now_ns;
    }

    /// The lines logged so far.
    pub fn log_lines(&self) -> Vec<(LogLevel, String)> {
        self.state.lock().log.clone()
    }

    /// Bind calls and bind entries so far.
    pub fn bind_counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.bind_calls, state.bind_entries)
    }

    /// Frames that nobody owns.
    pub fn frames_free(&self) -> u64 {
        self.state.lock().frames_free
    }

    /// What the page table of `space` says about the page of `address`.
    pub fn mapping(&self, space: CapSlot, address: u64) -> Option<FakeMapping> {
        let state = self.state.lock();
        state.tables.get(&(space.0, address >> PAGE_SHIFT)).copied()
    }

    /// Every mapped page of `space`: first address and mapping, ascending.
    pub fn mappings(&self, space: CapSlot) -> Vec<(u64, FakeMapping)> {
        let state = self.state.lock();
        let range = (space.0, 0)..=(space.0, u64::MAX);
        let mapped = state.tables.range(range);
        mapped.map(|(&(_, page), &mapping)| (page << PAGE_SHIFT, mapping)).collect()
    }

    /// Whether an access by a program in `space` would succeed.
    pub fn allows(&self, space: CapSlot, address: u64, access: FakeAccess) -> bool {
        self.mapping(space, address).is_some_and(|mapping| match access {
            FakeAccess::Load => true,
            FakeAccess::Store => mapping.flags.contains(BindFlags::WRITE),
            FakeAccess::Fetch => mapping.flags.contains(BindFlags::EXECUTE),
        })
    }

    /// A program's one-byte load; `None` is a page fault.
    pub fn load(&self, space: CapSlot, address: u64) -> Option<u8> {
        let mapping = self.mapping(space, address)?;
        let state = self.state.lock();
        Some(state.page(mapping.frame)[offset_in_page(address)])
    }

    /// A program's one-byte store; `None` is a page fault.
    pub fn store(&self, space: CapSlot, address: u64, value: u8) -> Option<()> {
        let mapping = self.mapping(space, address)?;
        if !mapping.flags.contains(BindFlags::WRITE) {
            return None;
        }
        let mut state = self.state.lock();
        state.page_mut(mapping.frame)[offset_in_page(address)] = value;
        Some(())
    }
}

impl FakeMachine {
    /// Takes frames from the end of a grant.
    ///
    /// # Panics
    /// There is no such grant.
    pub fn take_by_force(&self, slot: CapSlot, frame_count: u64) {
        self.state.lock().grants.get_mut(&slot.0).expect("a grant").count -= frame_count;
    }

    /// What [`Kernel::frame_limit`] says from now on.
    pub fn set_frame_limit(&self, frame_count: u64) {
        self.state.lock().frame_limit = Some(frame_count);
    }

    /// Has the limit grow by `step` frames, up to `limit`, whenever frames are waited for.
    pub fn grow_frame_limit(&self, step: u64, limit: u64) {
        self.state.lock().growth = Some((step, limit));
    }
}

impl Kernel for FakeMachine {
    fn frames_left(&self, grant: FrameGrant) -> u64 {
        self.state.lock().grants.get(&grant.slot.0).map_or(0, |grant| grant.count)
    }

    fn frame_limit(&self) -> Option<u64> {
        self.state.lock().frame_limit
    }

    fn frame_count_free(&self) -> Option<u64> {
        Some(self.frames_free())
    }

    fn frame_limit_at_most(&self) -> Option<u64> {
        self.state.lock().growth.map(|(_, limit)| limit)
    }

    fn await_frames(&self) -> bool {
        let mut state = self.state.lock();
        let (Some(now), Some((step, limit))) = (state.frame_limit, state.growth) else { return false };
        state.frame_limit = Some((now + step).min(limit));
        now < limit
    }

    fn create_space(&self) -> Result<CapSlot, Status> {
        let mut state = self.state.lock();
        state.next_slot += 1;
        Ok(CapSlot(state.next_slot - 1))
    }

    fn destroy_space(&self, space: CapSlot) -> Result<(), Status> {
        self.state.lock().tables.retain(|(slot, _), _| *slot != space.0);
        Ok(())
    }

    fn keep_space(&self, _: CapSlot, _: u64) -> bool {
        true
    }

    fn allocate_frames(&self, count: u64, alignment_log2: u32) -> Result<FrameGrant, Status> {
        let mut state = self.state.lock();
        if count == 0 || alignment_log2 > 18 {
            return Err(Status::BadArgument);
        }
        if count > state.frames_free {
            return Err(Status::NoFrames);
        }
        let first = state.take_range(count, 1 << alignment_log2);
        state.frames_free -= count;
        let slot = state.next_slot;
        state.next_slot += 1;
        let grant = FrameGrant { slot: CapSlot(slot), first: FrameNumber(first), count };
        for frame in first..first + count {
            state.memory.insert(frame, Box::new([FAKE_JUNK; PAGE_BYTES]));
        }
        state.grants.insert(slot, grant);
        Ok(grant)
    }

    fn free_frames(&self, grant: FrameGrant) -> Result<(), Status> {
        let mut state = self.state.lock();
        if state.grants.get(&grant.slot.0) != Some(&grant) {
            return Err(Status::BadSlot);
        }
        let range = grant.first.0..grant.first.0 + grant.count;
        let mapped = state.tables.values().any(|mapping| range.contains(&mapping.frame.0));
        if mapped || state.attached.contains_key(&grant.slot.0) {
            return Err(Status::Busy);
        }
        state.grants.remove(&grant.slot.0);
        for frame in range {
            state.memory.remove(&frame);
        }
        state.free_ranges.push((grant.first.0, grant.count));
        state.frames_free += grant.count;
        Ok(())
    }

    fn bind(&self, space: CapSlot, entries: &[BindEntry]) -> Result<(), BindFault> {
        let mut state = self.state.lock();
        state.bind_calls += 1;
        for (entry_index, entry) in entries.iter().enumerate() {
            if state.binds_until_refusal == Some(0) && entry.operation == BindOperation::Map as u32 {
                return Err(BindFault { entry_index, status: Status::NoTables });
            }
            if state.refuses_unmaps && entry.operation == BindOperation::Unmap as u32 {
                return Err(BindFault { entry_index, status: Status::BadSlot });
            }
            state.bind_entries += 1;
            state.binds_until_refusal = state.binds_until_refusal.map(|left| left.saturating_sub(1));
            state.bind_entry(space, entry).map_err(|status| BindFault { entry_index, status })?;
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    fn random(&self, bytes: &mut [u8]) {
        let mut state = self.state.lock();
        for byte in bytes {
            state.random_state =
                state.random_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state.random_state >> 56) as u8;
        }
    }

    fn log(&self, level: LogLevel, text: core::fmt::Arguments<'_>) {
        self.state.lock().log.push((level, alloc::format!("{text}")));
    }
}

impl FrameBytes for FakeMachine {
    fn attach(&self, grant: FrameGrant) -> Result<(), Status> {
        let previous = self.state.lock().attached.insert(grant.slot.0, grant);
        assert!(previous.is_none(), "attached twice: {grant:?}");
        Ok(())
    }

    fn detach(&self, grant: FrameGrant) -> Result<(), Status> {
        let previous = self.state.lock().attached.remove(&grant.slot.0);
        assert!(previous.is_some(), "detached but not attached: {grant:?}");
        Ok(())
    }

    fn read(&self, frame: FrameNumber, offset: usize, into: &mut [u8]) {
        let state = self.state.lock();
        into.copy_from_slice(&state.page(frame)[offset..offset + into.len()]);
    }

    fn write(&self, frame: FrameNumber, offset: usize, from: &[u8]) {
        let mut state = self.state.lock();
        state.page_mut(frame)[offset..offset + from.len()].copy_from_slice(from);
    }

    fn zero(&self, first: FrameNumber, count: usize) {
        let mut state = self.state.lock();
        (first.0..).take(count).for_each(|frame| state.page_mut(FrameNumber(frame)).fill(0));
    }

    fn copy(&self, from: FrameNumber, to: FrameNumber) {
        let mut state = self.state.lock();
        let bytes = *state.page(from);
        *state.page_mut(to) = bytes;
    }

    fn compare_exchange_u32(&self, frame: FrameNumber, offset: usize, current: u32, new: u32) -> Result<u32, u32> {
        assert_eq!(offset % 4, 0, "misaligned word");
        let mut state = self.state.lock();
        let word = &mut state.page_mut(frame)[offset..offset + 4];
        let found = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        if found != current {
            return Err(found);
        }
        word.copy_from_slice(&new.to_le_bytes());
        Ok(found)
    }
}

impl State {
    fn take_range(&mut self, count: u64, alignment: u64) -> u64 {
        let reusable =
            self.free_ranges.iter().position(|&(first, length)| length == count && first.is_multiple_of(alignment));
        if let Some(index) = reusable {
            return self.free_ranges.swap_remove(index).0;
        }
        let first = self.next_frame.next_multiple_of(alignment);
        self.next_frame = first + count;
        first
    }

    fn page(&self, frame: FrameNumber) -> &[u8; PAGE_BYTES] {
        self.memory.get(&frame.0).unwrap_or_else(|| panic!("read of a frame not held: {frame:?}"))
    }

    fn page_mut(&mut self, frame: FrameNumber) -> &mut [u8; PAGE_BYTES] {
        assert!(frame.0 < FAKE_BUNDLE_FRAME, "write to the bundle: {frame:?}");
        self.memory.get_mut(&frame.0).unwrap_or_else(|| panic!("write to a frame not held: {frame:?}"))
    }

    fn bind_entry(&mut self, space: CapSlot, entry: &BindEntry) -> Result<(), Status> {
        let count = u64::from(entry.page_count);
        let length = count << PAGE_SHIFT;
        let start = entry.virtual_address;
        if entry.page_count == 0 || entry.page_count > BIND_PAGE_COUNT_MAX {
            return Err(Status::BadArgument);
        }
        let end = start.checked_add(length).ok_or(Status::BadArgument)?;
        let in_program = start >= PROGRAM_BASE && end <= PROGRAM_END;
        let in_window = start >= LIBOS_BASE && end <= LIBOS_END;
        if !start.is_multiple_of(PAGE_SIZE) || !(in_program || in_window) {
            return Err(Status::BadArgument);
        }
        let flags = BindFlags::from_bits(entry.flags).ok_or(Status::BadArgument)?;
        let first_page = start >> PAGE_SHIFT;
        self.check_large(space, first_page..first_page + count, entry, flags)?;
        for index in 0..count {
            let key = (space.0, first_page + index);
            match entry.operation {
                operation if operation == BindOperation::Map as u32 => {
                    let frame = FrameNumber(entry.frame + index);
                    self.check_slot(entry.slot, frame, flags)?;
                    self.tables.insert(key, FakeMapping { frame, flags });
                }
                operation if operation == BindOperation::Unmap as u32 => {
                    self.tables.remove(&key);
                }
                operation if operation == BindOperation::Protect as u32 => {
                    if let Some(mapping) = self.tables.get(&key).copied() {
                        self.check_slot(entry.slot, mapping.frame, flags)?;
                        let flags = flags | mapping.flags & BindFlags::LARGE;
                        self.tables.insert(key, FakeMapping { flags, ..mapping });
                    }
                }
                operation if operation == BindOperation::Clean as u32 => {}
                _ => return Err(Status::BadArgument),
            }
        }
        Ok(())
    }

    /// A large page is changed as a whole, and only one of them or nothing is replaced by one.
    fn check_large(
        &self,
        space: CapSlot,
        pages: Range<u64>,
        entry: &BindEntry,
        flags: BindFlags,
    ) -> Result<(), Status> {
        let (is_large, is_map) = (flags.contains(BindFlags::LARGE), entry.operation == BindOperation::Map as u32);
        let mut at = [pages.start, pages.end, if is_map { entry.frame } else { 0 }].into_iter();
        if is_large && !at.all(|number| number.is_multiple_of(LARGE_PAGE_FRAMES)) {
            return Err(Status::BadArgument);
        }
        for (&(_, page), mapping) in self.tables.range((space.0, pages.start)..(space.0, pages.end)) {
            let block = page / LARGE_PAGE_FRAMES * LARGE_PAGE_FRAMES;
            let is_part = block < pages.start || pages.end < block + LARGE_PAGE_FRAMES;
            let was_large = mapping.flags.contains(BindFlags::LARGE);
            if was_large && (is_part || is_map && !is_large) || is_large && !was_large {
                return Err(Status::WrongState);
            }
        }
        Ok(())
    }

    fn check_slot(&self, slot: u32, frame: FrameNumber, flags: BindFlags) -> Result<(), Status> {
        if slot == SLOT_BUNDLE.0 {
            let bundle = FAKE_BUNDLE_FRAME..FAKE_BUNDLE_FRAME + self.bundle_frame_count;
            if !bundle.contains(&frame.0) {
                return Err(Status::BadArgument);
            }
            if flags.contains(BindFlags::WRITE) {
                return Err(Status::MissingRight);
            }
            return Ok(());
        }
        let grant = self.grants.get(&slot).ok_or(Status::BadSlot)?;
        if (grant.first.0..grant.first.0 + grant.count).contains(&frame.0) { Ok(()) } else { Err(Status::BadArgument) }
    }
}

fn offset_in_page(address: u64) -> usize {
    (address % PAGE_SIZE) as usize
}

#[cfg(test)]
mod tests {
    use super::{FakeAccess, FakeMachine};
    use crate::platform::Kernel;
    use aegis_abi::memory::{BindEntry, BindFlags, BindOperation};
    use aegis_abi::types::SLOT_SELF;
    use aegis_abi::{CapSlot, Status};

    #[test]
    fn a_mapping_needs_a_capability_that_covers_the_frame() {
        let machine = FakeMachine::new();
        let grant = machine.allocate_frames(2, 0).expect("memory");
        let mut entry = BindEntry {
            operation: BindOperation::Map as u32,
            flags: BindFlags::WRITE.bits(),
            virtual_address: 0x20_0000,
            frame: grant.first.0,
            page_count: 2,
            slot: grant.slot.0,
        };
        machine.bind(SLOT_SELF, &[entry]).expect("own frames");
        assert_eq!(machine.store(SLOT_SELF, 0x20_1000, 7), Some(()));
        assert_eq!(machine.load(SLOT_SELF, 0x20_1000), Some(7));
        assert!(!machine.allows(SLOT_SELF, 0x20_1000, FakeAccess::Fetch));
        assert_eq!(machine.free_frames(grant), Err(Status::Busy));
        entry.page_count = 3;
        let fault = machine.bind(SLOT_SELF, &[entry]).expect_err("beyond the grant");
        assert_eq!(fault.status, Status::BadArgument);
        entry.slot = CapSlot(77).0;
        let fault = machine.bind(SLOT_SELF, &[entry]).expect_err("no such slot");
        assert_eq!(fault.status, Status::BadSlot);
    }
}

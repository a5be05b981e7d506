//! `exos::platform::Kernel` over the kernel's calls: frames, bindings with donation of table frames, time, log.
//!
//! What is here must work before the heap does, so the basic operations are free functions without allocation.

use aegis_abi::call::EnvironmentField;
use aegis_abi::layout::{PAGE_TABLE_SLOT, PAGE_TABLE_WINDOW};
use aegis_abi::memory::BindEntry;
use aegis_abi::share::{FIELD_SHARE_FIRST, Table};
use aegis_abi::types::SLOT_SELF;
use aegis_abi::{CapSlot, FrameNumber, Status};
use aegis_link::memory::{FRAMES_PER_MIB, described_mib, program_frame_count};
use aegis_rt::call;
use aegis_rt::clock;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use exos::platform::{BindFault, FrameGrant};
use exos::preempt;
use exos::sync::SpinMutex;

use super::shortage;

/// Slots below are the kernel's choice for the first environment (`aegis_abi::types::SLOT_*`).
const SLOT_FREE_FIRST: u32 = SLOT_OF_DONATIONS.0 + 1;
/// Slots of an environment that any capability may be in. Behind them are those for address spaces.
const SLOT_COUNT: u32 = 4096;
/// Slots for address spaces: as many as the kernel has spaces for all.
const SPACE_SLOT_COUNT: usize = 4352;
/// Where frames are between being taken and being donated. A slot that was never used may need a table frame itself,
/// which is what there is none of then; this one's is there, since the next slots are taken at the start.
const SLOT_OF_DONATIONS: CapSlot = CapSlot(128);
/// Frames donated at a time when the kernel asks for table frames.
const DONATION_FRAME_COUNT: u64 = 64;

/// One behind the next slot that exos takes for itself, from the top downwards. Programs' frames have slots from
/// [`SLOT_FREE_FIRST`] upwards: where frames are taken by force, those of lower slots are taken first.
static SLOT_NEXT: AtomicU32 = AtomicU32::new(SLOT_COUNT);

/// A capability slot for something of exos's own, which it keeps.
pub(crate) fn next_slot() -> CapSlot {
    CapSlot(SLOT_NEXT.fetch_sub(1, Ordering::Relaxed) - 1)
}

/// Nothing came into the slot, which [`next_slot`] gave: it is the next again, unless somebody took one meanwhile.
fn forget_slot(slot: CapSlot) {
    let _ = SLOT_NEXT.compare_exchange(slot.0, slot.0 + 1, Ordering::Relaxed, Ordering::Relaxed);
}

/// The slots of programs' frames: bit n of word m stands for slot 64 m + n.
static PROGRAM_SLOTS: SpinMutex<[u64; SLOT_COUNT as usize / 64]> = SpinMutex::new([0; SLOT_COUNT as usize / 64]);

/// The lowest free slot for frames of programs.
fn take_program_slot() -> Option<CapSlot> {
    let mut words = PROGRAM_SLOTS.lock();
    let first = SLOT_FREE_FIRST as usize / 64;
    words[first] |= (1 << (SLOT_FREE_FIRST % 64)) - 1;
    let (number, word) = words.iter_mut().enumerate().skip(first).find(|(_, word)| **word != u64::MAX)?;
    let bit = word.trailing_ones();
    let slot = number as u32 * 64 + bit;
    if slot >= SLOT_NEXT.load(Ordering::Relaxed) {
        return None;
    }
    *word |= 1 << bit;
    Some(CapSlot(slot))
}

fn free_program_slot(slot: CapSlot) {
    PROGRAM_SLOTS.lock()[slot.0 as usize / 64] &= !(1 << (slot.0 % 64));
}

/// Slots that hold a capability that exos took, without those of address spaces that are kept for the next process.
pub(crate) fn capability_count(kept_count: usize) -> u64 {
    let space_count = space_counts().0 - kept_count as u64;
    let program_count: u32 = PROGRAM_SLOTS.lock().iter().map(|word| word.count_ones()).sum();
    let program_count = program_count.saturating_sub(SLOT_FREE_FIRST % 64);
    u64::from(SLOT_COUNT - SLOT_NEXT.load(Ordering::Relaxed) + program_count) + space_count
}

/// Repeats a call with donations for as long as it asks for table frames.
pub(crate) fn with_tables(make: impl FnMut() -> call::Outcome) -> Result<u64, Status> {
    with_tables_between(make, || {})
}

/// The same, with something done whenever the kernel has done a part.
fn with_tables_between(mut make: impl FnMut() -> call::Outcome, between: fn()) -> Result<u64, Status> {
    loop {
        match make() {
            Ok(value) => return Ok(value),
            Err(refusal) if refusal.status == Status::NoTables => donate()?,
            Err(refusal) if refusal.status == Status::Again => between(),
            Err(refusal) => return Err(refusal.status),
        }
    }
}

/// Most page tables of the lowest level that a kept space may have: processes lie at different addresses, so they
/// become more.
const KEPT_TABLE_COUNT_MAX: u64 = 256;

/// Slots of address spaces: free ones, and ones whose end a processor still held up.
struct SpaceSlots {
    free: Vec<CapSlot>,
    ending: Vec<CapSlot>,
    /// Slots that were ever used.
    used_count: usize,
    /// The most page tables that each has, of those that were kept before: kept ones and those in use.
    table_counts: [u16; SPACE_SLOT_COUNT],
}

static SPACE_SLOTS: SpinMutex<SpaceSlots> = SpinMutex::new(SpaceSlots {
    free: Vec::new(),
    ending: Vec::new(),
    used_count: 0,
    table_counts: [0; SPACE_SLOT_COUNT],
});
/// Address spaces that there are, those whose end is held up too.
static SPACE_COUNT: AtomicU64 = AtomicU64::new(0);
/// Our share of the kernel's table, 0: nobody has asked yet. It is what was left when the pod began.
static SPACE_SHARE: AtomicU64 = AtomicU64::new(0);

impl SpaceSlots {
    fn take(&mut self) -> Option<CapSlot> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let number = Some(self.used_count).filter(|number| *number < SPACE_SLOT_COUNT)?;
        self.used_count += 1;
        Some(CapSlot(SLOT_COUNT + number as u32))
    }

    fn table_count(&mut self, slot: CapSlot) -> &mut u16 {
        &mut self.table_counts[(slot.0 - SLOT_COUNT) as usize]
    }
}

/// Address spaces that there are, and that there can be.
pub(crate) fn space_counts() -> (u64, u64) {
    if SPACE_SHARE.load(Ordering::Relaxed) == 0 {
        let share = call::environment_read_share(SLOT_SELF, FIELD_SHARE_FIRST, Table::Spaces);
        SPACE_SHARE.store(share.unwrap_or(1).max(1), Ordering::Relaxed);
    }
    (SPACE_COUNT.load(Ordering::Relaxed), SPACE_SHARE.load(Ordering::Relaxed))
}

/// Makes an address space.
pub(crate) fn create_space() -> Result<CapSlot, Status> {
    let ending = {
        let mut slots = SPACE_SLOTS.lock();
        core::mem::take(&mut slots.ending)
    };
    for slot in ending {
        let _ = destroy_space(slot);
    }
    let slot = SPACE_SLOTS.lock().take().ok_or(Status::TableFull)?;
    let made = with_tables(|| call::space_create(slot));
    match made {
        Ok(_) => _ = SPACE_COUNT.fetch_add(1, Ordering::Relaxed),
        Err(_) => SPACE_SLOTS.lock().free.push(slot),
    }
    made.map(|_| slot)
}

/// Ends an address space. `Busy`: a processor is in it; it is ended later.
pub(crate) fn destroy_space(slot: CapSlot) -> Result<(), Status> {
    *SPACE_SLOTS.lock().table_count(slot) = 0;
    // The slot is in no list, so it is nobody else's while this takes its time.
    // SAFETY: no program's thread is in the space any more, and exos's own memory is in the window.
    let ended = with_tables_between(|| unsafe { call::cap_drop(slot) }, preempt::offer);
    let mut slots = SPACE_SLOTS.lock();
    match ended {
        Ok(_) => {
            SPACE_COUNT.fetch_sub(1, Ordering::Relaxed);
            slots.free.push(slot);
        }
        Err(_) => slots.ending.push(slot),
    }
    ended.map(|_| ())
}

/// Whether a space may be another process's, with its tables, which are so many more than when this was asked last.
/// Processes lie at different addresses, so they become more.
pub(crate) fn keep_space(slot: CapSlot, table_count: u64) -> bool {
    let mut slots = SPACE_SLOTS.lock();
    let known = slots.table_count(slot);
    let all = table_count + u64::from(*known);
    if all > KEPT_TABLE_COUNT_MAX {
        return false;
    }
    *known = all as u16;
    true
}

/// One part in so many of all memory is left by the program's memory to exos, so that it meets an end of memory before
/// exos's own structures do, at least and at most so many frames.
const LEFT_BY_PROGRAM_SHARE: u64 = 16;
const LEFT_BY_PROGRAM_FRAME_COUNTS: [u64; 2] = [(512 << 10) / 4096, (8 << 20) / 4096];
/// Frames of exos's heap that are never refused while there are any.
const ALWAYS_OWN_FRAME_COUNT: u64 = (3 << 20) / 4096;

/// Takes frames for programs, as long as enough are left for exos.
pub(crate) fn take_program_frames(count: u64, alignment_log2: u32) -> Result<FrameGrant, Status> {
    refuse_beyond(left_by_program(frame_quota()), count)?;
    let slot = take_program_slot().ok_or(Status::TableFull)?;
    take_frames_at(slot, count, alignment_log2).inspect_err(|_| free_program_slot(slot))
}

/// Frames that programs may still take.
pub(crate) fn free_program_frame_count() -> u64 {
    let quota = frame_quota();
    quota.saturating_sub(frames_owned() + left_by_program(quota))
}

/// Frames that are left of a grant, from its first on.
pub(crate) fn frames_left(grant: FrameGrant) -> u64 {
    let read = |field| call::cap_read(grant.slot, field).unwrap_or(0);
    if read(1) == grant.first.0 { read(2) } else { 0 }
}

/// The slot of the grant that a frame of programs is in.
pub(crate) fn program_grant_of(frame: FrameNumber) -> Option<CapSlot> {
    let words = *PROGRAM_SLOTS.lock();
    let is_taken = |slot: &u32| words[*slot as usize / 64] & 1 << (slot % 64) != 0;
    let mut slots = (SLOT_FREE_FIRST..SLOT_COUNT).filter(is_taken).map(CapSlot);
    let read = |slot, field| call::cap_read(slot, field).unwrap_or(0);
    slots.find(|slot| (read(*slot, 1)..read(*slot, 1) + read(*slot, 2)).contains(&frame.0))
}

/// Gives frames of programs back.
pub(crate) fn free_program_frames(grant: FrameGrant) -> Result<(), Status> {
    with_tables(|| call::frame_free(grant.slot))?;
    free_program_slot(grant.slot);
    Ok(())
}

/// Takes frames for threads' stacks, of which there are `own_count` frames then, as long as enough are left for exos's
/// structures.
pub(crate) fn take_stack_frames(own_count: u64, count: u64) -> Result<FrameGrant, Status> {
    if !may_own_more(own_count, count) {
        return Err(Status::NoFrames);
    }
    // Less than programs leave, so that a thread can begin where its memory ends.
    refuse_beyond(left_by_program(frame_quota()) / 8 * 5, count)?;
    let slot = STACK_SLOTS.lock().take().unwrap_or_else(next_slot);
    take_frames_at(slot, count, 0).inspect_err(|_| STACK_SLOTS.lock().keep(slot))
}

/// Gives frames of stacks back, of which none is mapped any more.
pub(crate) fn free_stack_frames(grant: FrameGrant) -> Result<(), Status> {
    with_tables(|| call::frame_free(grant.slot))?;
    STACK_SLOTS.lock().keep(grant.slot);
    Ok(())
}

/// Slots that groups of stacks had: bit n of word m stands for slot 64 m + n.
struct FreeSlots([u64; SLOT_COUNT as usize / 64]);

static STACK_SLOTS: SpinMutex<FreeSlots> = SpinMutex::new(FreeSlots([0; SLOT_COUNT as usize / 64]));

impl FreeSlots {
    fn keep(&mut self, slot: CapSlot) {
        self.0[slot.0 as usize / 64] |= 1 << (slot.0 % 64);
    }

    fn take(&mut self) -> Option<CapSlot> {
        let (number, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        Some(CapSlot(number as u32 * 64 + bit))
    }
}

fn left_by_program(quota: u64) -> u64 {
    let [least, most] = LEFT_BY_PROGRAM_FRAME_COUNTS;
    (quota / LEFT_BY_PROGRAM_SHARE).clamp(least, most)
}

/// Whether exos may take `count` frames more for something that programs make grow, of which it has `own_count` then:
/// always a little, then while there is twice as much left as programs leave, and never more than half of all. So
/// neither of the two can take what the other needs to go on.
pub(crate) fn may_own_more(own_count: u64, count: u64) -> bool {
    let quota = frame_quota();
    let left_count = left_by_program(quota);
    let is_little = own_count <= ALWAYS_OWN_FRAME_COUNT + left_count / 4;
    is_little || (own_count <= quota / 2 && quota.saturating_sub(frames_owned()) >= 2 * left_count + count)
}

fn refuse_beyond(left_count: u64, count: u64) -> Result<(), Status> {
    if free_frame_count() < left_count + count { Err(Status::NoFrames) } else { Ok(()) }
}

/// Memory that the program never gets, besides a 64th of all: a part of all, and the most.
const RESERVE_SHARE: u64 = 16;
const RESERVE_FRAMES_MAX: u64 = (4 << 20) / 4096;

/// Frames that were exos's own when the program's memory was first measured.
static OWN_FRAME_COUNT: AtomicU64 = AtomicU64::new(0);

/// Says that what is owned now is exos's own, and not the program's.
pub(crate) fn note_own_frames() {
    OWN_FRAME_COUNT.store(frames_owned(), Ordering::Relaxed);
}

/// What the user said that the program may use, with the quota that belongs to it.
static PROGRAM_FRAMES: AtomicU64 = AtomicU64::new(u64::MAX);
static QUOTA_OF_PROGRAM: AtomicU64 = AtomicU64::new(0);

/// Has the program use no more than this with such a quota, and accordingly more with a larger one.
pub(crate) fn limit_program_frames(frame_count: u64, quota: u64) {
    PROGRAM_FRAMES.store(frame_count, Ordering::Relaxed);
    QUOTA_OF_PROGRAM.store(quota, Ordering::Relaxed);
}

/// Frames of the program's memory with this quota: all, less what exos needs to describe it (page tables, maps, its
/// own structures), so that the program meets its limit before exos meets the machine's end.
pub(crate) fn program_frames_of(quota: u64) -> u64 {
    let all = quota.saturating_sub(OWN_FRAME_COUNT.load(Ordering::Relaxed));
    let left = all.saturating_sub(all / 64 + (all / RESERVE_SHARE).min(RESERVE_FRAMES_MAX));
    let (program, known) = (PROGRAM_FRAMES.load(Ordering::Relaxed), QUOTA_OF_PROGRAM.load(Ordering::Relaxed));
    if program == u64::MAX || quota <= known {
        return left.min(program);
    }
    // What is beyond the user's number came with what describes it.
    let described = described_mib(program.div_ceil(FRAMES_PER_MIB)) * FRAMES_PER_MIB;
    left.min(program_frame_count(described + quota - known).max(program))
}

/// Takes contiguous frames for exos itself; donates table frames when the table of capabilities has to grow.
pub(crate) fn take_frames(count: u64, alignment_log2: u32) -> Result<FrameGrant, Status> {
    let slot = next_slot();
    take_frames_at(slot, count, alignment_log2).inspect_err(|_| forget_slot(slot))
}

/// Gives frames back that [`take_frames`] took last, of which none is mapped.
pub(crate) fn return_frames(grant: FrameGrant) {
    if with_tables(|| call::frame_free(grant.slot)).is_ok() {
        forget_slot(grant.slot);
    }
}

/// Gives frames of exos's own back, of which none is mapped. Their slot stays the caller's.
pub(crate) fn free_kept_slot(slot: CapSlot) {
    let _ = with_tables(|| call::frame_free(slot));
}

/// Takes frames for exos itself into a slot: a new one, or one that [`free_kept_slot`] emptied.
pub(crate) fn take_frames_at(slot: CapSlot, count: u64, alignment_log2: u32) -> Result<FrameGrant, Status> {
    let first = loop {
        match call::frame_allocate(slot, count, None, alignment_log2) {
            Ok(first) => break first,
            Err(refusal) if refusal.status == Status::NoTables => donate()?,
            Err(refusal) if refusal.status == Status::Again => {}
            Err(refusal) => return Err(refusal.status),
        }
    };
    Ok(FrameGrant { slot, first: FrameNumber(first), count })
}

/// Held while a donation is made.
static DONATION: SpinMutex<()> = SpinMutex::new(());

/// Donates frames for this environment's tables.
fn donate() -> Result<(), Status> {
    let _donation = DONATION.lock();
    loop {
        match call::frame_allocate(SLOT_OF_DONATIONS, DONATION_FRAME_COUNT, None, 0) {
            Ok(_) => break,
            Err(refusal) if refusal.status == Status::Again => {}
            Err(refusal) => {
                shortage::note_shortage();
                return Err(refusal.status);
            }
        }
    }
    call::frame_donate(SLOT_OF_DONATIONS, SLOT_SELF).map_err(|refusal| refusal.status)?;
    Ok(())
}

/// Applies a whole batch, however many calls and donations it takes.
///
/// # Safety
/// As `aegis_rt::call::bind`.
pub(crate) unsafe fn bind_all(space: CapSlot, entries: &[BindEntry]) -> Result<(), BindFault> {
    // SAFETY: passed on to our caller.
    unsafe { bind_in_pieces(space, entries, || {}) }
}

/// The same, with something done between two calls.
///
/// # Safety
/// As `aegis_rt::call::bind`.
pub(crate) unsafe fn bind_in_pieces(space: CapSlot, entries: &[BindEntry], between: fn()) -> Result<(), BindFault> {
    let mut done = 0;
    while done < entries.len() {
        let limit = entries.len().min(done + aegis_abi::memory::BIND_ENTRY_COUNT_MAX as usize);
        // SAFETY: passed on to our caller.
        let outcome = unsafe {
            match &entries[done..limit] {
                [entry] => call::bind_one(space, entry),
                batch => call::bind(space, batch),
            }
        };
        match outcome {
            Ok(_) if limit == entries.len() => return Ok(()),
            Ok(_) => {
                done = limit;
                between();
            }
            Err(refusal) => {
                done = (done + refusal.value as usize).min(entries.len());
                match refusal.status {
                    Status::Again => between(),
                    Status::NoTables => {
                        donate().map_err(|status| BindFault { entry_index: done, status })?;
                    }
                    status => return Err(BindFault { entry_index: done, status }),
                }
            }
        }
    }
    Ok(())
}

/// Nanoseconds since the kernel's start.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the kernel's loader mapped the system page for the first environment, and exos maps it for its children.
    let page = unsafe { clock::system_page() };
    clock::nanoseconds_soon_at(page, clock::time_stamp())
}

/// Frames that this environment may still take. What others may take is not free for it, though nobody owns it yet.
pub(crate) fn free_frame_count() -> u64 {
    frame_quota().saturating_sub(frames_owned())
}

/// Frames that this environment may own.
pub(crate) fn frame_quota() -> u64 {
    call::environment_read(SLOT_SELF, EnvironmentField::FrameQuota).unwrap_or(0)
}

/// Frames that it owns; for a while more than it may, when quota was taken.
pub(crate) fn frames_owned() -> u64 {
    call::environment_read(SLOT_SELF, EnvironmentField::FramesOwned).unwrap_or(0)
}

/// The entry that maps an address of the running program, of whatever level; 0 if there is none. The tables that lead
/// to it stay while the caller holds the lock of the address space.
pub(crate) fn page_entry(address: u64) -> u64 {
    const SLOT: u64 = PAGE_TABLE_SLOT as u64;
    // An entry of each level, from the top: the slot stands once in its address for each level that is left out.
    let entries = [
        PAGE_TABLE_WINDOW | SLOT << 30 | SLOT << 21 | SLOT << 12 | address >> 39 << 3,
        PAGE_TABLE_WINDOW | SLOT << 30 | SLOT << 21 | address >> 30 << 3,
        PAGE_TABLE_WINDOW | SLOT << 30 | address >> 21 << 3,
        PAGE_TABLE_WINDOW | address >> 12 << 3,
    ];
    let mut entry = 0;
    for (level, place) in entries.into_iter().enumerate() {
        // SAFETY: the tables of the running space are mapped there, readable; the entry above says that this one is
        // there.
        entry = unsafe { core::ptr::read_volatile(place as *const u64) };
        let is_last = level > 0 && entry & aegis_abi::memory::entry::LARGE != 0;
        if entry & aegis_abi::memory::entry::PRESENT == 0 || is_last {
            break;
        }
    }
    if entry & aegis_abi::memory::entry::PRESENT == 0 { 0 } else { entry }
}

/// The running address space by its name outside of the machine: the physical address of its top page table.
pub(crate) fn own_space() -> u64 {
    const SLOT: u64 = PAGE_TABLE_SLOT as u64;
    // The slot leads to the table itself on every level, and its entry there is the table's own.
    const ENTRY: u64 = 0xffff << 48 | SLOT << 39 | SLOT << 30 | SLOT << 21 | SLOT << 12 | SLOT << 3;
    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    const _: () = assert!(ENTRY >= PAGE_TABLE_WINDOW);
    // SAFETY: the kernel keeps the environment's own tables mapped there, readable; this entry never changes.
    let entry = unsafe { core::ptr::read_volatile(ENTRY as *const u64) };
    entry & ADDRESS
}

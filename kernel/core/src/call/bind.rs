//! Call 10: batches of page-table changes.
//!
//! An entry's cost is at most `BIND_PAGE_COUNT_MAX`, so each entry is done as a whole or the call
//! answers `Again` before it. An entry that is refused half way (no donated frames, a large page in
//! its way) leaves the pages done so far; repeating it is harmless.

use aegis_abi::call::{Bind, BindOne};
use aegis_abi::layout::{LARGE_PAGE_FRAMES, LARGE_PAGE_SIZE, PAGE_SHIFT, PAGE_SIZE};
use aegis_abi::memory::{
    BIND_ENTRY_COUNT_MAX, BIND_LARGE_PAGE_COUNT_MAX, BIND_PAGE_COUNT_MAX, BindFlags, BindOperation, entry,
};
use aegis_abi::types::{CapSlot, FrameNumber, Status};

use crate::object::{Cover, FrameRange, Tables};
use crate::outcome::{Answer, Caller, Refusal, bad_argument, refuse_if};
use crate::space::{
    Directory, Done, Flush, UserReader, UserSlice, flag_rights, frame_of, in_windows, leaf_bits, page_number,
};
use crate::{Machine, State};

const ENTRY_WORDS: usize = 4;
/// What an entry takes besides its pages, in pages.
const ENTRY_COST: u32 = 3;
const ENTRY_BYTES: u64 = ENTRY_WORDS as u64 * 8;

/// A checked entry, and for whom it is done where.
#[derive(Clone, Copy, Debug)]
struct Batch {
    caller: Caller,
    target: Tables,
    operation: BindOperation,
    flags: BindFlags,
    address: u64,
    frame: u64,
    page_count: u64,
    slot: CapSlot,
}

impl Batch {
    fn is_large(&self) -> bool {
        self.flags.contains(BindFlags::LARGE)
    }

    fn cost(&self) -> u32 {
        let pages = if self.is_large() { self.page_count / LARGE_PAGE_FRAMES } else { self.page_count };
        pages as u32
    }

    #[cold]
    fn is_fit_large(&self) -> bool {
        let bits = self.page_count | if self.operation == BindOperation::Map { self.frame } else { 0 };
        bits.is_multiple_of(LARGE_PAGE_FRAMES) && self.cost() <= BIND_LARGE_PAGE_COUNT_MAX
    }

    #[inline(always)]
    fn check(caller: Caller, target: Tables, words: [u64; ENTRY_WORDS]) -> Result<Self, Status> {
        let operation = BindOperation::from_number(words[0] as u32).ok_or(Status::BadArgument)?;
        let batch = Self {
            caller,
            target,
            operation,
            flags: BindFlags::from_bits((words[0] >> 32) as u32).ok_or(Status::BadArgument)?,
            address: words[1],
            frame: words[2],
            page_count: words[3] & 0xffff_ffff,
            slot: CapSlot((words[3] >> 32) as u32),
        };
        let (page_bytes, is_fit) = match batch.is_large() {
            true => (LARGE_PAGE_SIZE, batch.is_fit_large()),
            false => (PAGE_SIZE, batch.page_count <= u64::from(BIND_PAGE_COUNT_MAX)),
        };
        if batch.page_count == 0 || !is_fit {
            return Err(Status::BadArgument);
        }
        if !batch.address.is_multiple_of(page_bytes) || !in_windows(batch.address, batch.page_count << PAGE_SHIFT) {
            return Err(Status::BadAddress);
        }
        Ok(batch)
    }
}

pub(super) fn bind<M: Machine>(state: &mut State<M>, caller: Caller, call: Bind) -> Answer {
    let target = state.lookup_tables(caller.environment, call.space)?;
    refuse_if(call.entry_count > BIND_ENTRY_COUNT_MAX, bad_argument(2))?;
    let slice = UserSlice::new(call.entries, u64::from(call.entry_count) * ENTRY_BYTES, 8)?;
    let mut reader = state.user_reader(caller.processor, slice);
    let (mut budget, mut cover, mut flush) = (BIND_PAGE_COUNT_MAX, Cover::EMPTY, Flush::new(target));
    let mut outcome = Ok(u64::from(call.entry_count));
    for index in 0..u64::from(call.entry_count) {
        if let Err(status) = bind_entry(state, caller, (&mut reader, index), (&mut budget, &mut cover), &mut flush) {
            outcome = Err(Refusal { status, value: index });
            break;
        }
    }
    flush.finish(&mut state.machine);
    outcome
}

pub(super) fn bind_one<M: Machine>(state: &mut State<M>, caller: Caller, call: BindOne) -> Answer {
    let words = [call.operation, call.virtual_address, call.frame, call.pages];
    let batch = Batch::check(caller, state.lookup_tables(caller.environment, call.space)?, words)?;
    let is_own_page = batch.page_count == 1 && caller.environment == batch.target.environment;
    if is_own_page && let Some(outcome) = bind_page(state, &batch) {
        return Ok(outcome.map(|()| 0)?);
    }
    let (mut flush, mut cover) = (Flush::new(batch.target), Cover::EMPTY);
    let outcome = apply(state, &batch, (&mut cover, &mut flush));
    flush.finish(&mut state.machine);
    Ok(outcome.map(|()| 0)?)
}

/// Does one page of the caller's own where its table is there: nearly always. `None`: it is not so.
#[inline(always)]
fn bind_page<M: Machine>(state: &mut State<M>, batch: &Batch) -> Option<Done> {
    let (target, page) = (batch.target, page_number(batch.address));
    let Directory::Table(table) = state.directory(target.root, page) else { return None };
    let place = State::<M>::small_place(table, page);
    let is_map = match batch.operation {
        BindOperation::Map => true,
        BindOperation::Protect => false,
        BindOperation::Unmap => {
            state.replace_page(target, place, (batch.address, 0));
            return Some(Ok(()));
        }
        BindOperation::Clean => return None,
    };
    let range = match authority(state, batch) {
        Ok(range) => range,
        Err(status) => return Some(Err(status)),
    };
    let frame = match state.leaf(place) {
        _ if is_map => FrameNumber(batch.frame),
        Some(leaf) => frame_of(leaf),
        None => return Some(Ok(())),
    };
    if !range.contains(frame.0, 1) {
        return Some(Err(Status::MissingRight));
    }
    if is_map && !state.frames.count_mapping(frame) {
        return Some(Err(Status::TableFull));
    }
    if is_map {
        state.replace_page(target, place, (batch.address, frame.address() | leaf_bits(batch.flags)));
    } else {
        state.change_page(target, place, leaf_change(batch), batch.address);
    }
    Some(Ok(()))
}

fn bind_entry<M: Machine>(
    state: &mut State<M>,
    caller: Caller,
    (reader, index): (&mut UserReader, u64),
    (budget, cover): (&mut u32, &mut Cover),
    flush: &mut Flush,
) -> Done {
    let batch = Batch::check(caller, flush.tables, state.read_user(reader, index)?)?;
    let is_first = *budget == BIND_PAGE_COUNT_MAX;
    let cost = batch.cost() + ENTRY_COST;
    // Tables that are made, and authority that is looked for in another's table, have a budget of their own.
    if !is_first && (cost > *budget || state.work_left == 0) {
        return Err(Status::Again);
    }
    *budget = budget.saturating_sub(cost);
    apply(state, &batch, (cover, flush))
}

fn apply<M: Machine>(state: &mut State<M>, batch: &Batch, (cover, flush): (&mut Cover, &mut Flush)) -> Done {
    match batch.operation {
        BindOperation::Map => map(state, batch, (cover, flush)),
        BindOperation::Protect => {
            let range = authority(state, batch)?;
            let is_foreign = batch.caller.environment != batch.target.environment;
            change(state, batch, (Some(range), is_foreign.then_some(cover)), flush)
        }
        BindOperation::Unmap | BindOperation::Clean => change(state, batch, (None, None), flush),
    }
}

/// The frames of the caller's capability for an entry, which has the rights that the flags need.
#[inline(always)]
fn authority<M: Machine>(state: &State<M>, batch: &Batch) -> Result<FrameRange, Status> {
    state.lookup_frames(batch.caller.environment, batch.slot, flag_rights(batch.flags))
}

fn map<M: Machine>(state: &mut State<M>, batch: &Batch, (cover, flush): (&mut Cover, &mut Flush)) -> Done {
    let (range, target) = (authority(state, batch)?, batch.target);
    let rights = flag_rights(batch.flags);
    let is_covered = range.contains(batch.frame, batch.page_count)
        && (batch.caller.environment == target.environment
            || state.is_covered(target.environment, (batch.frame, batch.page_count), rights, None, cover));
    if !is_covered {
        return Err(Status::MissingRight);
    }
    let bits = leaf_bits(batch.flags);
    if batch.is_large() {
        return state.get_on(|state| map_large(state, batch, bits, flush));
    }
    let mut last = None;
    for page in 0..batch.page_count {
        let address = batch.address + (page << PAGE_SHIFT);
        let place = state.place_after(target, address, last)?;
        state.map_at(place, address, FrameNumber(batch.frame + page).address() | bits, flush)?;
        last = Some(place);
    }
    Ok(())
}

/// What is mapped already costs nothing, so that a call that is repeated goes on where its budget was used up.
fn map_large<M: Machine>(state: &mut State<M>, batch: &Batch, bits: u64, flush: &mut Flush) -> Done {
    for page in (0..batch.page_count).step_by(LARGE_PAGE_FRAMES as usize) {
        if state.work_left == 0 {
            return Err(Status::Again);
        }
        let address = batch.address + (page << PAGE_SHIFT);
        state.map_large(address, FrameNumber(batch.frame + page), bits, flush)?;
    }
    Ok(())
}

/// Unmaps, protects or cleans what is mapped in the range; what is not is passed over.
fn change<M: Machine>(
    state: &mut State<M>,
    batch: &Batch,
    (range, mut cover): (Option<FrameRange>, Option<&mut Cover>),
    flush: &mut Flush,
) -> Done {
    let bits = leaf_change(batch);
    let first = (batch.address & 0x0000_ffff_ffff_ffff) >> PAGE_SHIFT;
    let end = first + batch.page_count;
    let mut page = first;
    while page < end {
        let next = (page / LARGE_PAGE_FRAMES + 1) * LARGE_PAGE_FRAMES;
        match state.directory(batch.target.root, page) {
            Directory::Absent => {}
            Directory::Large(place) => {
                if !page.is_multiple_of(LARGE_PAGE_FRAMES) || next > end {
                    return Err(Status::WrongState);
                }
                let address = batch.address + ((page - first) << PAGE_SHIFT);
                if batch.operation == BindOperation::Unmap {
                    state.unmap_large(place, page, flush);
                } else if let Some(leaf) = state.leaf(place) {
                    check_cover(state, batch, range, &mut cover, (leaf, LARGE_PAGE_FRAMES))?;
                    if state.change_leaf(place, leaf, bits) {
                        flush.add_large(address);
                    }
                }
            }
            Directory::Table(_) if batch.is_large() => return Err(Status::WrongState),
            Directory::Table(table) if batch.operation == BindOperation::Unmap => {
                state.unmap_pages(table, page..next.min(end), flush);
            }
            Directory::Table(table) => {
                for page in page..next.min(end) {
                    let place = State::<M>::small_place(table, page);
                    if let Some(leaf) = state.leaf(place) {
                        check_cover(state, batch, range, &mut cover, (leaf, 1))?;
                        let address = batch.address + ((page - first) << PAGE_SHIFT);
                        if state.change_leaf(place, leaf, bits) {
                            flush.add(address);
                        }
                    }
                }
            }
        }
        page = next;
    }
    Ok(())
}

/// Bits to clear and to set in a leaf.
fn leaf_change(batch: &Batch) -> (u64, u64) {
    if batch.operation == BindOperation::Clean {
        return (entry::ACCESSED | entry::DIRTY, 0);
    }
    let set = leaf_bits(batch.flags) & !entry::LARGE;
    let all = leaf_bits(BindFlags::WRITE | BindFlags::UNCACHED) | entry::NO_EXECUTE | entry::WITHHELD;
    (all, set)
}

/// Protect: the caller's capability covers the frames, and so does one of the target's where that is another, and the
/// leaf is not yet as it shall be: so a call that is repeated goes on where its budget was used up.
#[inline(always)]
fn check_cover<M: Machine>(
    state: &mut State<M>,
    batch: &Batch,
    range: Option<FrameRange>,
    cover: &mut Option<&mut Cover>,
    (leaf, count): (u64, u64),
) -> Done {
    let Some(range) = range else { return Ok(()) };
    let pages = (frame_of(leaf).0, count);
    if !range.contains(pages.0, count) {
        return Err(Status::MissingRight);
    }
    let is_to_change = |(clear, set): (u64, u64)| leaf & !clear | set != leaf;
    let Some(cover) = cover.as_mut().filter(|_| is_to_change(leaf_change(batch))) else { return Ok(()) };
    let rights = flag_rights(batch.flags);
    if state.work_left == 0 && !cover.knows(pages, rights) {
        return Err(Status::Again);
    }
    let is_covered = state.is_covered(batch.target.environment, pages, rights, None, cover);
    if is_covered { Ok(()) } else { Err(Status::MissingRight) }
}

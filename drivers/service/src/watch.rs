//! Watched memory, as the kernel's extension serves it: ranges that programs have placed there, pages of them that are
//! closed, and what a touch of such a page does (`aegis_proto::watch`).
//!
//! Invariants:
//! - WATCH-1 A page gets back what was withheld from it here, and never more: rights that it does not have are the
//!   library OS's to give, so a fault that asks for those is not answered.
//! - WATCH-2 A touch that is answered stands in the notes, and before a store the page's shadow is whole, before the
//!   page is open.
//! - WATCH-3 Only the thread that the notes name is answered.
//! - WATCH-4 Every place is looked up in the space of whoever faults, each time. A range whose space is gone, or is
//!   another's now, has no closed pages, so it answers nothing.
//! - WATCH-5 A touch costs one copy of a page at most; a call, a look at each of its pages.
//!
//! Neighbour: `extended/` has the page tables behind [`Space`].

use aegis_hal::PAGE_BYTES;
use aegis_proto::watch::{
    CLOSE_PAGE_COUNT_MAX, SHADOW_COUNT_MAX, TOUCH_COUNT_MAX, Touch, WORD_OWNER, WORD_SHADOW_COUNT, WORD_TOUCH_COUNT,
    WORD_TOUCH_FIRST,
};

/// Ranges of one environment; the one that was used least lately makes room.
pub const RANGE_COUNT_MAX: usize = 16;
/// Addresses of pages end here at the latest: the program's half.
const ADDRESS_END: u64 = 1 << 47;

/// What the program may do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Loads go through.
    pub loads: bool,
    /// Stores go through.
    pub stores: bool,
    /// Stores went through before the page was closed.
    pub withheld: bool,
}

impl Rights {
    const fn lets_through(self, is_store: bool) -> bool {
        self.loads && (self.stores || !is_store)
    }
}

/// The space of whoever faults or calls.
pub trait Space {
    /// A page that is there, and is memory.
    type Page: Copy;
    /// A number that this space has, and no other that there is now.
    fn name(&self) -> u64;
    /// The page at an address of the program's half.
    fn page(&self, address: u64) -> Option<(Self::Page, Rights)>;
    /// Gives it these rights. No processor goes on with more when the call ends.
    fn set_rights(&mut self, address: u64, page: Self::Page, rights: Rights);
    /// A word of it.
    fn load(&self, page: Self::Page, word: usize) -> u64;
    /// Stores a word of it.
    fn store(&mut self, page: Self::Page, word: usize, value: u64);
    /// Copies one to another.
    fn copy(&mut self, from: Self::Page, to: Self::Page);
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No whole pages of the program's half, too many, or no such kind.
    Argument,
    /// It is in no range that the caller has placed here.
    NotPlaced,
}

/// A range.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// Its space.
    space: u64,
    start: u64,
    length: u64,
    notes: u64,
    shadow: u64,
    shadow_count: u64,
    /// When it was used last, of all.
    turn: u64,
}

impl Range {
    fn has(&self, space: u64, address: u64) -> bool {
        self.space == space && address.wrapping_sub(self.start) < self.length
    }
}

/// The ranges of one environment.
#[derive(Debug)]
pub struct Watch {
    ranges: [Option<Range>; RANGE_COUNT_MAX],
    turn: u64,
}

/// Bytes of pages that lie in the program's half; `None` if they do not, or are none.
fn length_of(start: u64, page_count: u64) -> Option<u64> {
    let length = page_count.checked_mul(PAGE_BYTES as u64).filter(|length| *length != 0)?;
    let is_inside = start.checked_add(length).is_some_and(|end| end <= ADDRESS_END);
    (is_inside && start.is_multiple_of(PAGE_BYTES as u64)).then_some(length)
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch {
    /// Nothing is placed here.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: [None; RANGE_COUNT_MAX], turn: 0 }
    }

    /// As `KernelCall::Place`, for the space `space`.
    ///
    /// # Errors
    /// [`Refused::Argument`].
    pub fn place(
        &mut self,
        space: u64,
        [start, page_count, notes, shadow, shadow_count]: [u64; 5],
    ) -> Result<(), Refused> {
        let length = length_of(start, page_count).ok_or(Refused::Argument)?;
        length_of(notes, 1).ok_or(Refused::Argument)?;
        if shadow_count > SHADOW_COUNT_MAX || shadow_count != 0 && length_of(shadow, shadow_count).is_none() {
            return Err(Refused::Argument);
        }
        let overlaps = |old: &Range| old.space == space && old.start < start + length && start < old.start + old.length;
        for place in &mut self.ranges {
            if place.as_ref().is_some_and(overlaps) {
                *place = None;
            }
        }
        self.turn += 1;
        let range = Range { space, start, length, notes, shadow, shadow_count, turn: self.turn };
        // An empty place has never been used.
        let place = self.ranges.iter_mut().min_by_key(|place| place.as_ref().map_or(0, |range| range.turn));
        *place.ok_or(Refused::Argument)? = Some(range);
        Ok(())
    }

    /// As `KernelCall::Forget`.
    ///
    /// # Errors
    /// [`Refused::NotPlaced`].
    pub fn forget(&mut self, space: u64, start: u64) -> Result<(), Refused> {
        let is_it = |place: &&mut Option<Range>| {
            place.as_ref().is_some_and(|range| range.space == space && range.start == start)
        };
        *self.ranges.iter_mut().find(is_it).ok_or(Refused::NotPlaced)? = None;
        Ok(())
    }

    /// As `KernelCall::Close`.
    ///
    /// # Errors
    /// Both; some pages may be closed then.
    pub fn close<S: Space>(&self, space: &mut S, [start, page_count, kind]: [u64; 3]) -> Result<(), Refused> {
        let length = length_of(start, page_count).filter(|_| page_count <= CLOSE_PAGE_COUNT_MAX && kind <= 1);
        let length = length.ok_or(Refused::Argument)?;
        let name = space.name();
        let is_placed = |range: &&Range| range.has(name, start) && range.has(name, start + length - 1);
        self.ranges.iter().flatten().find(is_placed).ok_or(Refused::NotPlaced)?;
        for address in (start..start + length).step_by(PAGE_BYTES) {
            if let Some((page, rights)) = space.page(address) {
                let withheld = rights.withheld || rights.stores;
                let closed = Rights { loads: rights.loads && kind == 0, stores: false, withheld };
                if closed != rights {
                    space.set_rights(address, page, closed);
                }
            }
        }
        Ok(())
    }

    /// A page fault of the thread with this thread pointer: whether it is answered, so that the access is to be
    /// repeated.
    pub fn fault<S: Space>(&mut self, space: &mut S, address: u64, is_store: bool, thread: u64) -> bool {
        let name = space.name();
        let Some(range) = self.ranges.iter_mut().flatten().find(|range| range.has(name, address)) else { return false };
        range.turn = self.turn + 1;
        self.turn += 1;
        touch(space, range, address, is_store, thread).is_some()
    }
}

fn touch<S: Space>(space: &mut S, range: &Range, address: u64, is_store: bool, thread: u64) -> Option<()> {
    let address = address & !(PAGE_BYTES as u64 - 1);
    let (page, rights) = space.page(address)?;
    if rights.lets_through(is_store) {
        // It was opened meanwhile, and this processor had an old translation.
        return Some(());
    }
    let opened = Rights { loads: true, stores: is_store, withheld: rights.withheld && !is_store };
    if is_store && !rights.withheld {
        return None;
    }
    let (notes, _) = space.page(range.notes).filter(|(_, rights)| rights.lets_through(true))?;
    if thread == 0 || space.load(notes, WORD_OWNER) != thread {
        return None;
    }
    let count = usize::try_from(space.load(notes, WORD_TOUCH_COUNT)).ok().filter(|count| *count < TOUCH_COUNT_MAX)?;
    let mut shadow = None;
    if is_store && range.shadow_count != 0 {
        let used = space.load(notes, WORD_SHADOW_COUNT);
        let place = (used < range.shadow_count).then(|| range.shadow + used * PAGE_BYTES as u64)?;
        let (target, _) = space.page(place).filter(|(_, rights)| rights.lets_through(true))?;
        space.copy(page, target);
        space.store(notes, WORD_SHADOW_COUNT, used + 1);
        shadow = Some(used);
    }
    let touch = Touch { page: (address - range.start) / PAGE_BYTES as u64, shadow, is_store };
    space.store(notes, WORD_TOUCH_FIRST + count, touch.to_word());
    space.store(notes, WORD_TOUCH_COUNT, count as u64 + 1);
    space.set_rights(address, page, opened);
    Some(())
}

#[cfg(test)]
mod tests;

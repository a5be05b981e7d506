//! The areas of an address space: looked up by address, cut and joined.
//!
//! Areas do not overlap; neighbours that could be one area are joined where they are made, as Linux joins them, because
//! programs see areas in `/proc/self/maps`, count against [`AREA_COUNT_MAX`], and `mremap` works on one. The list keeps
//! the sums that limits and `/proc` need, so that no call walks all areas for them. Order and positions are
//! [`super::area_runs`]'.

use alloc::boxed::Box;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PROGRAM_BASE, PROGRAM_END};

use crate::error::Result;
use crate::mem::area::{AREA_COUNT_MAX, Area, AreaFlags, AreaTotals, Protection, lower_bound};
use crate::mem::area_runs::{AreaRuns, Position};
use crate::mem::window::Walks;

/// What is known about free ranges, so that placing many areas costs O(1) each: every hole that
/// ends above `below` (and under the top of the search) is at most `largest_hole` long.
#[derive(Clone, Copy, Debug)]
struct SearchHint {
    top: u64,
    below: u64,
    largest_hole: u64,
}

/// The areas by address.
pub(crate) struct AreaList {
    areas: AreaRuns,
    totals: AreaTotals,
    hint: SearchHint,
    /// Where there are threads.
    walks: Option<Box<Walks>>,
}

impl AreaList {
    pub(crate) fn new() -> Self {
        Self {
            areas: AreaRuns::default(),
            totals: AreaTotals::default(),
            hint: SearchHint { top: 0, below: 0, largest_hole: u64::MAX },
            walks: None,
        }
    }

    /// A copy of all. `ENOMEM`.
    pub(crate) fn copy(&self) -> Result<Self> {
        Ok(Self { areas: self.areas.copy()?, totals: self.totals, hint: self.hint, walks: None })
    }

    pub(crate) fn len(&self) -> usize {
        self.areas.len()
    }

    pub(crate) fn totals(&self) -> AreaTotals {
        self.totals
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Area> {
        self.areas.iter_from(self.areas.first_ending_above(0))
    }

    /// The area that holds `address`.
    pub(crate) fn find(&self, address: u64) -> Option<&Area> {
        self.find_at_or_above(address).filter(|area| area.start <= address)
    }

    /// The area that holds `page`, whose window is of the walk that a fault there goes on with, if there is one.
    pub(crate) fn find_walked(&mut self, page: u64) -> Option<&mut Area> {
        let at = self.areas.first_ending_above(page << PAGE_SHIFT);
        let area = self.areas.get_mut(at).filter(|area| area.start <= page << PAGE_SHIFT)?;
        if let Some(walks) = &mut self.walks
            && !area.window.expects(page)
        {
            walks.exchange(&mut area.window, page);
        }
        Some(area)
    }

    /// From now on walks that lose their area's window are kept.
    pub(crate) fn keep_walks(&mut self) {
        self.walks.get_or_insert_with(|| Box::new(Walks::new()));
    }

    /// Whether an area's window may be of another walk than the one that goes on at `page`.
    pub(crate) fn may_have_walk(&self, area: &Area, page: u64) -> bool {
        self.walks.is_some() && !area.window.expects(page)
    }

    /// The first area that ends above `address`.
    pub(crate) fn find_at_or_above(&self, address: u64) -> Option<&Area> {
        self.areas.get(self.areas.first_ending_above(address))
    }

    /// The last area that ends at or below `address`.
    pub(crate) fn find_below(&self, address: u64) -> Option<&Area> {
        self.areas.previous(self.areas.first_ending_above(address)).and_then(|at| self.areas.get(at))
    }

    /// Areas that touch `range`, ascending.
    pub(crate) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = &Area> {
        self.areas.iter_from(self.areas.first_ending_above(range.start)).take_while(move |area| area.start < range.end)
    }

    pub(crate) fn is_free(&self, range: Range<u64>) -> bool {
        self.find_at_or_above(range.start).is_none_or(|area| area.start >= range.end)
    }

    /// Adds an area to a free range, joining it with its neighbours where they continue each other.
    pub(crate) fn insert(&mut self, area: Area) {
        debug_assert!(area.start < area.end && self.is_free(area.start..area.end));
        account(&mut self.totals, &area, u64::wrapping_add);
        let at = self.areas.first_ending_above(area.start);
        let at = self.areas.insert(at, area);
        self.join_around(at);
    }

    /// Removes the range from all areas, cutting those that straddle its ends; whether there was anything.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> bool {
        let first = self.areas.first_ending_above(range.start);
        if self.areas.get(first).is_none_or(|area| area.start >= range.end) {
            return false;
        }
        let mut at = self.isolate_from(first, &range);
        while self.areas.get(at).is_some_and(|area| area.start < range.end) {
            let (area, next) = self.areas.remove(at);
            account(&mut self.totals, &area, u64::wrapping_sub);
            at = next;
        }
        let low = self.areas.previous(at).and_then(|at| self.areas.get(at)).map_or(PROGRAM_BASE, |area| area.end);
        let high = self.areas.get(at).map_or(PROGRAM_END, |area| area.start);
        if high > self.hint.below {
            self.hint.largest_hole = self.hint.largest_hole.max(high - low);
        }
        self.areas.settle(at);
        true
    }

    /// Whether cutting at both ends of `range` leaves no more than [`AREA_COUNT_MAX`] areas.
    pub(crate) fn can_be_cut(&self, range: &Range<u64>) -> bool {
        self.len() + 2 <= AREA_COUNT_MAX || self.len() + self.splits_at_ends(range) <= AREA_COUNT_MAX
    }

    /// How many areas cutting at both ends of `range` would add.
    pub(crate) fn splits_at_ends(&self, range: &Range<u64>) -> usize {
        let cuts = |address| self.find(address).is_some_and(|area| area.start < address);
        usize::from(cuts(range.start)) + usize::from(cuts(range.end))
    }

    /// Changes the parts of all areas inside `range`, then joins what continues. Start and end stay as they are.
    pub(crate) fn change(&mut self, range: Range<u64>, mut change: impl FnMut(&mut Area)) {
        let first = self.areas.first_ending_above(range.start);
        let is_whole = self.areas.get(first).is_some_and(|area| area.start == range.start && area.end == range.end);
        let mut at = if is_whole { first } else { self.isolate(&range) };
        while let Some(area) = self.areas.get_mut(at).filter(|area| area.start < range.end) {
            account(&mut self.totals, area, u64::wrapping_sub);
            change(area);
            account(&mut self.totals, area, u64::wrapping_add);
            let changed = self.join_below(at);
            at = self.areas.next(changed);
        }
        self.join_below(at);
    }

    /// Gives a range that lies in one area these rights.
    pub(crate) fn set_protection(&mut self, range: &Range<u64>, protection: Protection) {
        let first = self.areas.first_ending_above(range.start);
        let is_whole = self.areas.get(first).is_some_and(|area| area.start == range.start && area.end == range.end);
        let at = if is_whole { first } else { self.isolate(range) };
        let Some(area) = self.areas.get_mut(at) else { return };
        account_rights(&mut self.totals, area, u64::wrapping_sub);
        area.protection = protection;
        account_rights(&mut self.totals, area, u64::wrapping_add);
        let around = self.areas.around(at);
        if around.is_none_or(|[below, area, above]| below.continues_in(area) || area.continues_in(above)) {
            self.join_around(at);
        }
    }

    /// Moves the end of the area that starts at `start`.
    pub(crate) fn set_end(&mut self, start: u64, end: u64) {
        let at = self.resize(start, |area| area.end = end);
        self.join_around(at);
    }

    /// Moves the start of a growing stack down.
    pub(crate) fn set_start(&mut self, start: u64, new_start: u64) {
        self.resize(start, |area| area.start = new_start);
    }

    fn resize(&mut self, start: u64, resize: impl FnOnce(&mut Area)) -> Position {
        let at = self.areas.first_ending_above(start);
        let area = self.areas.get_mut(at).expect("INV: the caller found an area here");
        account(&mut self.totals, area, u64::wrapping_sub);
        resize(area);
        account(&mut self.totals, area, u64::wrapping_add);
        at
    }

    /// The highest free range of `length` bytes that ends at or below `top`, keeping the guard gap below stacks.
    pub(crate) fn find_hole(&mut self, length: u64, top: u64) -> Option<u64> {
        let known = self.hint.top == top && length > self.hint.largest_hole;
        let mut hole_end = if known { self.hint.below.min(top) } else { top };
        let mut largest = if known { self.hint.largest_hole } else { 0 };
        let mut found = None;
        let mut at = self.areas.search(hole_end);
        if self.areas.get(at).is_some_and(|area| area.start < hole_end) {
            at = self.areas.next(at);
        }
        // A stack just above the starting point keeps its gap, too.
        if let Some(above) = self.areas.get(at) {
            hole_end = hole_end.min(lower_bound(above));
        }
        for area in self.areas.iter_before(at) {
            if area.start >= hole_end {
                continue;
            }
            let hole = hole_end.saturating_sub(area.end);
            if hole >= length {
                found = Some(hole_end - length);
                break;
            }
            largest = largest.max(hole);
            hole_end = hole_end.min(lower_bound(area));
        }
        if found.is_none() && hole_end >= PROGRAM_BASE && hole_end - PROGRAM_BASE >= length {
            found = Some(hole_end - length);
        }
        self.hint = SearchHint { top, below: hole_end, largest_hole: largest };
        found
    }

    /// As [`Self::find_hole`], for a search that is not the usual one, from where the next will go on.
    pub(crate) fn find_other_hole(&mut self, length: u64, top: u64) -> Option<u64> {
        let hint = self.hint;
        let found = self.find_hole(length, top);
        self.hint = hint;
        found
    }

    /// Cuts areas at both ends of `range`; the first area that ends above its start, which lies inside if any does.
    fn isolate(&mut self, range: &Range<u64>) -> Position {
        self.isolate_from(self.areas.first_ending_above(range.start), range)
    }

    /// The same where the first area that ends above its start is known.
    #[inline]
    fn isolate_from(&mut self, first: Position, range: &Range<u64>) -> Position {
        let first = self.cut(first, range.start);
        let mut last = first;
        while self.areas.get(last).is_some_and(|area| area.end < range.end) {
            last = self.areas.next(last);
        }
        if self.cut(last, range.end) == last { first } else { self.areas.first_ending_above(range.start) }
    }

    /// Cuts the area at a position if `address` lies inside it; the position of what begins at `address` then.
    fn cut(&mut self, at: Position, address: u64) -> Position {
        match self.areas.get_mut(at) {
            Some(area) if area.start < address && address < area.end => {
                let upper = area.split_off(address);
                let behind = self.areas.next(at);
                self.areas.insert(behind, upper)
            }
            _ => at,
        }
    }

    /// Joins the area at a position with its neighbours where they continue each other.
    fn join_around(&mut self, at: Position) {
        let at = self.join_below(at);
        let above = self.areas.next(at);
        self.join_below(above);
    }

    /// Joins the area at a position to the one below if that continues in it; where it is then.
    fn join_below(&mut self, at: Position) -> Position {
        let Some(upper) = self.areas.get(at) else { return at };
        let Some(below) = self.areas.previous(at) else { return at };
        if !self.areas.get(below).is_some_and(|lower| lower.continues_in(upper)) {
            return at;
        }
        let (upper, _) = self.areas.remove(at);
        if let Some(walks) = &mut self.walks {
            walks.keep(upper.window);
        }
        if let Some(lower) = self.areas.get_mut(below) {
            lower.end = upper.end;
        }
        self.areas.settle(below)
    }
}

fn account(totals: &mut AreaTotals, area: &Area, apply: impl Fn(u64, u64) -> u64) {
    let pages = area.page_count();
    totals.total = apply(totals.total, pages);
    if area.flags.contains(AreaFlags::GROWS_DOWN) {
        totals.stack = apply(totals.stack, pages);
    }
    if area.flags.contains(AreaFlags::LOCKED) {
        totals.locked = apply(totals.locked, pages);
    }
    account_rights(totals, area, apply);
}

/// The sums that rights decide on.
#[inline]
fn account_rights(totals: &mut AreaTotals, area: &Area, apply: impl Fn(u64, u64) -> u64) {
    let pages = area.page_count();
    if area.is_data() {
        totals.data = apply(totals.data, pages);
    }
    let is_code = area.protection.contains(Protection::EXECUTE) && !area.protection.contains(Protection::WRITE);
    if is_code && !area.flags.contains(AreaFlags::GROWS_DOWN) {
        totals.code = apply(totals.code, pages);
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use aegis_abi::layout::{PAGE_SIZE, PROGRAM_BASE, PROGRAM_END};

    use super::AreaList;
    use crate::mem::area::{AREA_COUNT_MAX, Area, AreaFlags, AreaLabel, Backing, Protection};
    use crate::mem::test_support::numbers;
    use crate::mem::window::FaultWindow;

    const PAGES: u64 = 1500;
    const BASE: u64 = PROGRAM_BASE + 64 * PAGE_SIZE;

    fn area(start: u64, end: u64, protection: Protection) -> Area {
        Area {
            start: BASE + start * PAGE_SIZE,
            end: BASE + end * PAGE_SIZE,
            protection,
            maximum: Protection::all(),
            flags: AreaFlags::empty(),
            label: AreaLabel::None,
            backing: Backing::Anonymous,
            window: FaultWindow::new(&(start..end), false),
        }
    }

    /// What each page is; the areas are the longest runs of equal pages.
    struct Model(Vec<Option<Protection>>);

    impl Model {
        fn areas(&self) -> Vec<(u64, u64, Protection)> {
            let mut areas: Vec<(u64, u64, Protection)> = Vec::new();
            for (page, protection) in (0..).zip(&self.0) {
                match (areas.last_mut(), protection) {
                    (Some(last), Some(it)) if last.1 == page && last.2 == *it => last.1 = page + 1,
                    (_, Some(it)) => areas.push((page, page + 1, *it)),
                    (_, None) => {}
                }
            }
            areas
        }

        fn highest_hole(&self, length: u64, top: u64) -> Option<u64> {
            let is_free = |start: &u64| (*start..start + length).all(|page| self.0[page as usize].is_none());
            (0..=top - length).rev().find(is_free)
        }
    }

    fn page_of(address: u64) -> u64 {
        (address - BASE) / PAGE_SIZE
    }

    fn check(list: &AreaList, model: &Model) {
        assert!(list.areas.is_sound());
        let found: Vec<_> = list.iter().map(|it| (page_of(it.start), page_of(it.end), it.protection)).collect();
        assert_eq!(found, model.areas());
        assert_eq!(list.len(), found.len());
        let count =
            |wants: &dyn Fn(Protection) -> bool| model.0.iter().flatten().filter(|it| wants(**it)).count() as u64;
        let totals = list.totals();
        assert_eq!(totals.total, count(&|_| true));
        assert_eq!(totals.data, count(&|it| it.contains(Protection::WRITE)));
        assert_eq!(totals.code, count(&|it| it.contains(Protection::EXECUTE) && !it.contains(Protection::WRITE)));
    }

    fn look_up(list: &AreaList, model: &Model, page: u64) {
        let address = BASE + page * PAGE_SIZE;
        let areas = model.areas();
        let expected = areas.iter().find(|it| it.0 <= page && page < it.1).map(|it| it.0);
        assert_eq!(list.find(address + 5).map(|it| page_of(it.start)), expected);
        let above = areas.iter().find(|it| it.1 > page).map(|it| it.0);
        assert_eq!(list.find_at_or_above(address).map(|it| page_of(it.start)), above);
        let below = areas.iter().rfind(|it| it.1 <= page).map(|it| it.0);
        assert_eq!(list.find_below(address).map(|it| page_of(it.start)), below);
    }

    #[test]
    fn areas_are_the_longest_runs_of_equal_pages() {
        for seed in 0..8 {
            let mut number = numbers(seed);
            let mut list = AreaList::new();
            let mut model = Model(vec![None; PAGES as usize]);
            for step in 0..1200 {
                let start = number(PAGES - 1);
                // Short ranges first, for many areas; long ones later, which take them away again.
                let length = 1 + number(if step < 900 { 4 } else { 200 });
                let end = (start + length).min(PAGES);
                let range = BASE + start * PAGE_SIZE..BASE + end * PAGE_SIZE;
                let protection = Protection::from_bits_truncate(number(8) as u8);
                let pages = start as usize..end as usize;
                let is_known = model.0[pages.clone()].iter().any(Option::is_some);
                match number(4) {
                    0 => {
                        assert_eq!(list.remove(range), is_known);
                        model.0[pages].fill(None);
                    }
                    1 => {
                        if list.find(range.start).is_some_and(|area| range.end <= area.end) {
                            list.set_protection(&range, protection);
                        } else {
                            list.change(range, |area| area.protection = protection);
                        }
                        model.0[pages].iter_mut().flatten().for_each(|it| *it = protection);
                    }
                    _ => {
                        assert_eq!(list.is_free(range.clone()), !is_known);
                        if !is_known {
                            list.insert(area(start, end, protection));
                            model.0[pages].fill(Some(protection));
                        }
                    }
                }
                look_up(&list, &model, number(PAGES));
                if step % 50 == 0 {
                    check(&list, &model);
                    let (length, top) = (1 + number(8), 8 + number(PAGES - 8));
                    let hole = list.find_hole(length * PAGE_SIZE, BASE + top * PAGE_SIZE);
                    let inside = hole.filter(|hole| *hole >= BASE).map(page_of);
                    assert_eq!(inside, model.highest_hole(length, top));
                }
            }
            check(&list, &model);
        }
    }

    #[test]
    fn as_many_areas_as_there_may_be_take_no_longer_each() {
        let mut list = AreaList::new();
        let count = AREA_COUNT_MAX as u64;
        let protection = [Protection::READ, Protection::WRITE];
        // Every other one first, then those between: each goes into the middle of a run.
        for start in (0..count).step_by(2).chain((1..count).step_by(2)) {
            list.insert(area(start, start + 1, protection[start as usize % 2]));
        }
        assert_eq!(list.len(), AREA_COUNT_MAX);
        assert!(list.areas.is_sound() && list.can_be_cut(&(BASE..BASE + PAGE_SIZE)));
        list.change(BASE..PROGRAM_END, |area| area.protection = Protection::READ);
        assert_eq!(list.len(), 1);
        assert!(list.remove(PROGRAM_BASE..PROGRAM_END) && list.areas.is_sound());
        assert_eq!(list.totals().total, 0);
    }
}

//! Rewritten system-call sites of an address space: trampoline pages, patched copies of text pages, and their end.
//!
//! A patched text page is a private copy of the file's page, swapped in whole: it is unmapped first, which makes every
//! processor let go of the old one, then the copy is mapped, so that no processor ever executes a mixture. A
//! trampoline page is an area of its own, near the text but where the program does not meet it: in the room of
//! [`TRAMPOLINE_ROOM_BYTES`] above the mapping base, or below the program's image.
//!
//! Invariant: while a patch stands, its trampoline does. Whatever takes pages away or makes them writable first takes
//! back what depends on them ([`AddressSpace::withdraw_rewrites`]); pages that lose their patch are forgotten and come
//! anew from their file. The decisions are `crate::rewrite`'s.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::FrameNumber;
use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE, PROGRAM_END};

use crate::load::read_file;
use crate::mem::area::{Access, Area, AreaLabel, Protection};
use crate::mem::fault::FaultOutcome;
use crate::mem::frames::FramePool;
use crate::mem::page_map::{PageEntry, PageFlags};
use crate::mem::source::{AtHand, PageIntent, PageSource, Wait, WantedPage};
use crate::mem::space::{AddressSpace, MapRequest, Placement};
use crate::rewrite::Refusal;
use crate::rewrite::functions::{FileBytes, function_at};
use crate::rewrite::plan::{FUNCTION_BYTES_MAX, JUMP_BYTES, Plan, SYSCALL_BYTES, plan};
use crate::rewrite::sites::{SiteState, SiteTable};
use crate::rewrite::trampoline::Site;

/// Free pages that are looked at for a trampoline.
const HOLE_COUNT_MAX: u32 = 256;
/// Distance between two such pages: changes what a page changes in the second byte of a jump's distance, and the third.
const HOLE_STEP_BYTES: u64 = 0x1_1000;
/// Address space above the mapping base that is kept for trampolines of libraries.
pub const TRAMPOLINE_ROOM_BYTES: u64 = 224 << 20;
/// Where in that room the search begins, downwards. Libraries lie right below the room, so the highest byte of most
/// jumps' distances is 6 or 7, which trap; and there is room on both sides for processes that have the same library
/// further up or down.
const ROOM_SEARCH_BYTES: u64 = TRAMPOLINE_ROOM_BYTES / 2;

/// A mapped file through a one-page buffer.
struct MappedBytes<'a> {
    pool: &'a FramePool,
    source: &'a Arc<dyn PageSource>,
    index: u64,
    valid_bytes: usize,
    page: Box<[u8; PAGE_SIZE as usize]>,
}

impl<'a> MappedBytes<'a> {
    fn new(pool: &'a FramePool, source: &'a Arc<dyn PageSource>) -> Self {
        Self { pool, source, index: u64::MAX, valid_bytes: 0, page: Box::new([0; PAGE_SIZE as usize]) }
    }
}

impl MappedBytes<'_> {
    /// The bytes of the page of `offset` from there on, which are one at least.
    fn rest_of_page(&mut self, offset: u64) -> Option<&[u8]> {
        if offset / PAGE_SIZE != self.index {
            let page = self.source.page(offset / PAGE_SIZE, PageIntent::Read).ok()?;
            self.pool.bytes().read(page.frame.frame(), 0, &mut self.page[..]);
            (self.index, self.valid_bytes) = (offset / PAGE_SIZE, page.valid_bytes);
        }
        let rest = self.page[..self.valid_bytes].get((offset % PAGE_SIZE) as usize..)?;
        if rest.is_empty() { None } else { Some(rest) }
    }
}

impl FileBytes for MappedBytes<'_> {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < into.len() {
            let rest = self.rest_of_page(offset.checked_add(done as u64)?)?;
            let count = rest.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
        }
        Some(())
    }

    fn at_hand(&mut self, offset: u64) -> &[u8] {
        self.rest_of_page(offset).unwrap_or_default()
    }
}

/// Why a site is not rewritten now.
enum Stop {
    /// It never is.
    Refused(Refusal),
    /// This page of the file first.
    Wants(WantedPage),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl AddressSpace {
    /// The rewritten sites.
    #[must_use]
    pub fn sites(&self) -> &SiteTable {
        &self.sites
    }

    pub(crate) fn sites_mut(&mut self) -> &mut SiteTable {
        Arc::make_mut(&mut self.sites)
    }

    /// Rewrites the `syscall` before `return_address` if that is safe: what became of it, or `None` if that was decided
    /// before. `entry_offset` is where trampolines find exos's entry, from GS. Nothing is decided where a page of the
    /// file is wanted.
    pub fn rewrite_site(
        &mut self,
        return_address: u64,
        entry_offset: u32,
        wait: Wait,
    ) -> Result<Option<Result<(), Refusal>>, WantedPage> {
        let syscall = return_address.wrapping_sub(SYSCALL_BYTES);
        self.sites_mut().note(syscall);
        match self.sites.state(syscall) {
            Some(SiteState::Found) => {}
            Some(_) => return Ok(None),
            None => return Ok(Some(Err(Refusal::TableFull))),
        }
        match self.try_rewrite(syscall, entry_offset, wait) {
            Ok(()) => Ok(Some(Ok(()))),
            Err(Stop::Wants(page)) => Err(page),
            Err(Stop::Refused(refusal)) => {
                self.sites_mut().refuse(syscall, refusal);
                Ok(Some(Err(refusal)))
            }
        }
    }

    fn try_rewrite(&mut self, syscall: u64, entry_offset: u32, wait: Wait) -> Result<(), Stop> {
        let area = self.areas.find(syscall).ok_or(Refusal::NotFileText)?.clone();
        let file = area.file().filter(|file| !file.is_shared).ok_or(Refusal::NotFileText)?;
        if area.protection.contains(Protection::WRITE) {
            return Err(Refusal::Writable.into());
        }
        let at_hand = (wait == Wait::Refused && file.source.may_wait()).then(|| AtHand::new(&file.source));
        let source = at_hand.clone().map_or_else(|| file.source.clone(), |at_hand| at_hand as Arc<dyn PageSource>);
        let planned = self.plan_site(&area, (&source, file.first_index), syscall);
        if let Some(page) = at_hand.and_then(|at_hand| at_hand.missing()) {
            return Err(Stop::Wants(page));
        }
        let (plan, original) = planned?;
        if plan.jump >> PAGE_SHIFT != (plan.jump + JUMP_BYTES - 1) >> PAGE_SHIFT {
            return Err(Refusal::TwoPages.into());
        }
        if !self.sites.is_free(&plan) {
            return Err(Refusal::Overlap.into());
        }
        let page = plan.jump >> PAGE_SHIFT;
        let entry = self.present(plan.jump, wait)?;
        if !entry.has(PageFlags::FILE) && !self.sites.is_patched_page(plan.jump) {
            return Err(Refusal::PageModified.into());
        }
        let has_room = self.has_room_in_reach(&area);
        let site = match self.sites.place(&plan, |address| !has_room || self.is_out_of_the_way(address)) {
            Some(site) => site,
            None => self.add_trampoline_page(&area, &plan)?,
        };
        self.write_trampoline(&site, &site.encode(&original, entry_offset), wait)?;
        let frame = self.pool.allocate_copy(entry.frame()).map_err(|_| Refusal::NoMemory)?;
        self.pool.bytes().write(frame, (plan.jump % PAGE_SIZE) as usize, &site.jump());
        self.swap_page(page, frame, area.protection)?;
        self.sites_mut().add(site);
        Ok(())
    }

    /// What to replace, and the file's bytes there.
    fn plan_site(
        &self,
        area: &Area,
        (source, first_index): (&Arc<dyn PageSource>, u64),
        syscall: u64,
    ) -> Result<(Plan, Vec<u8>), Refusal> {
        let base = area.start.wrapping_sub(first_index << PAGE_SHIFT);
        let mut bytes = MappedBytes::new(&self.pool, source);
        let function = function_at(&mut bytes, syscall.wrapping_sub(base)).ok_or(Refusal::NoFunction)?;
        let length = usize::try_from(function.end - function.start).unwrap_or(usize::MAX);
        if length > FUNCTION_BYTES_MAX {
            return Err(Refusal::FunctionTooLong);
        }
        let start = base.wrapping_add(function.start);
        if start < area.start || start.checked_add(length as u64).is_none_or(|end| end > area.end) {
            return Err(Refusal::NoFunction);
        }
        let mut code = alloc::vec![0; length];
        read_file(&self.pool, source, function.start, &mut code).map_err(|_| Refusal::NoFunction)?;
        let plan = plan(start, &code, syscall)?;
        let original = code[(plan.jump - start) as usize..(plan.end - start) as usize].to_vec();
        Ok((plan, original))
    }

    /// The entry of the page of `address`, made present for fetching.
    fn present(&mut self, address: u64, wait: Wait) -> Result<PageEntry, Stop> {
        match self.frame_for(address, Access::Execute, wait) {
            Ok(_) => Ok(self.pages.get(address >> PAGE_SHIFT).ok_or(Refusal::NoMemory)?),
            Err(FaultOutcome::Wants(page)) => Err(Stop::Wants(page)),
            Err(_) => Err(Refusal::NoMemory.into()),
        }
    }

    /// Makes a trampoline page where `plan` finds a place in it: for a library in the room for that, for the program
    /// itself below its text. Text that the room is too far from has its trampolines in holes below it, which the
    /// program may meet.
    fn add_trampoline_page(&mut self, area: &Area, plan: &Plan) -> Result<Site, Refusal> {
        let is_library = area.start >= self.break_start && self.has_room_in_reach(area);
        let (mut top, bottom) =
            if is_library { (self.mapping_base + ROOM_SEARCH_BYTES, self.mapping_base) } else { (area.start, 0) };
        for _ in 0..HOLE_COUNT_MAX {
            let hole = self.areas.find_hole(PAGE_SIZE, top.min(PROGRAM_END));
            let Some(address) = hole.filter(|address| *address >= bottom) else { break };
            if let Some(site) = SiteTable::place_in_new(address, plan) {
                self.map_trampoline_page(address).map_err(|_| Refusal::NoMemory)?;
                return Ok(site);
            }
            top = address.saturating_sub(HOLE_STEP_BYTES - PAGE_SIZE);
        }
        Err(Refusal::NoReach)
    }

    /// Maps a page for trampolines at `address`, if that is free.
    pub(crate) fn map_trampoline_page(&mut self, address: u64) -> crate::error::Result<()> {
        let protection = Protection::READ | Protection::EXECUTE;
        let mut request = MapRequest::anonymous(Placement::FixedNoReplace(address), PAGE_SIZE, protection);
        request.label = AreaLabel::Trampolines;
        self.map(request)?;
        self.sites_mut().add_page(address);
        Ok(())
    }

    /// Whether text of `area` reaches a place that is out of the program's way.
    fn has_room_in_reach(&self, area: &Area) -> bool {
        let is_near = (self.mapping_base + ROOM_SEARCH_BYTES).abs_diff(area.start) <= i32::MAX as u64;
        is_near || area.start < self.break_start
    }

    /// Whether a program that has its memory placed for it gets nothing at `address` as long as there is other room: it
    /// lies above the mapping base, or below the heap.
    pub(crate) fn is_out_of_the_way(&self, address: u64) -> bool {
        let room = self.mapping_base..self.mapping_base + TRAMPOLINE_ROOM_BYTES;
        room.contains(&address) || address < self.break_start
    }

    /// Writes a trampoline that nobody executes yet. A page that a forked process has too is copied first.
    fn write_trampoline(&mut self, site: &Site, bytes: &[u8], wait: Wait) -> Result<(), Stop> {
        let page = site.trampoline >> PAGE_SHIFT;
        let entry = self.pages.get(page).filter(|entry| self.is_exclusive(*entry));
        let frame = match entry {
            Some(entry) => entry.frame(),
            None => {
                let present = self.present(site.trampoline, wait)?.frame();
                let frame = self.pool.allocate_copy(present).map_err(|_| Refusal::NoMemory)?;
                self.swap_page(page, frame, Protection::READ | Protection::EXECUTE)?;
                frame
            }
        };
        self.pool.bytes().write(frame, (site.trampoline % PAGE_SIZE) as usize, bytes);
        Ok(())
    }

    /// Puts `frame` in the place of a page for good, so that no processor sees a mixture of both.
    pub(crate) fn swap_page(&mut self, page: u64, frame: FrameNumber, protection: Protection) -> Result<(), Refusal> {
        self.binder.unmap(page);
        let is_gone = self.flush().is_ok();
        self.set_page(page, PageEntry::new(frame, PageFlags::OWNED), protection);
        if self.flush().is_ok() && is_gone { Ok(()) } else { Err(Refusal::NoMemory) }
    }

    /// Takes back every patch in `pages`, and every one that needs a trampoline there. The pages themselves come anew
    /// from their files, if they stay.
    pub(crate) fn withdraw_rewrites(&mut self, pages: &Range<u64>) {
        if !self.sites.may_reach(pages) {
            return;
        }
        for page in self.sites_mut().forget(pages) {
            self.forget_page(page);
        }
    }

    /// As [`Self::withdraw_rewrites`], for pages that stay and move or change their rights: their patched copies go.
    #[inline]
    pub(crate) fn unpatch(&mut self, pages: &Range<u64>) {
        if self.sites.may_reach(pages) {
            self.unpatch_reached(pages);
        }
    }

    #[cold]
    fn unpatch_reached(&mut self, pages: &Range<u64>) {
        let patched = self.sites.patched_pages(pages);
        self.withdraw_rewrites(pages);
        for page in patched {
            self.forget_page(page);
        }
    }

    /// Before the pages of `part` get the rights `protection`: what may be written is the program's own, and what may
    /// not be executed calls nothing.
    #[inline]
    pub(crate) fn unpatch_unless(&mut self, protection: Protection, part: &Range<u64>) {
        if protection.contains(Protection::WRITE) || !protection.contains(Protection::EXECUTE) {
            self.unpatch(&(part.start >> PAGE_SHIFT..part.end >> PAGE_SHIFT));
        }
    }

    fn forget_page(&mut self, page: u64) {
        // A refused unmap keeps the frame and the patch with it; there is nobody to tell.
        let _ = self.drop_known_pages(page..page + 1);
    }
}

//! Patched text as an address space offers and takes it.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use aegis_abi::FrameNumber;
use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};

use super::{Offer, TEXT_RIGHTS, base_of, has_all, has_same, is_text, moved, says_the_same};
use crate::mem::area::Area;
use crate::mem::page_map::{PageEntry, PageFlags};
use crate::mem::source::FilePage;
use crate::mem::space::AddressSpace;
use crate::rewrite::plan::SYSCALL_BYTES;
use crate::rewrite::trampoline::Site;

impl AddressSpace {
    /// Offers the patched page that holds the jump of the site before `return_address` to other processes. What is not
    /// as it should be is not offered.
    pub fn offer_rewrites(&mut self, return_address: u64) {
        let Some(site) = self.sites.patched(return_address.wrapping_sub(SYSCALL_BYTES)) else { return };
        let page = site.plan.jump >> PAGE_SHIFT;
        let Some(area) = self.areas.find(site.plan.jump).cloned() else { return };
        let (Some(base), Some(file)) = (base_of(&area), area.file()) else { return };
        if !is_text(&area) {
            return;
        }
        let sites: Vec<Site> = self.sites.patched_in(page);
        let mut places: Vec<u64> = sites.iter().map(|site| site.trampoline >> PAGE_SHIFT).collect();
        places.sort_unstable();
        places.dedup();
        if !places.iter().all(|place| self.is_out_of_the_way(*place << PAGE_SHIFT)) {
            return;
        }
        let frame_of = |place: u64| self.pages.get(place).map(|entry| (place, entry.frame()));
        let (Some((_, patched)), Some(frames)) = (frame_of(page), places.into_iter().map(frame_of).collect()) else {
            return;
        };
        let frames: Vec<(u64, FrameNumber)> = frames;
        let Some(original) = file.source.resident_page(area.file_index(page)) else { return };
        let offer = Offer {
            patched,
            sites: sites.iter().map(|site| moved(site, base.wrapping_neg())).collect(),
            trampolines: frames
                .into_iter()
                .map(|(place, frame)| ((place << PAGE_SHIFT).wrapping_sub(base), frame))
                .collect(),
            is_original_fixed: self.pool.is_immutable(original.frame.frame()),
        };
        if !says_the_same(&self.pool, original.frame.frame(), &offer) {
            return;
        }
        offer.frames().for_each(|frame| self.pool.retain(frame));
        let shared = self.shared.clone();
        shared.patched_text().put(&self.pool, original.frame.into_frame(), offer);
    }

    /// Whether there is an offer for the page `found` of `area`, fitting or not.
    pub(crate) fn is_offered(&self, area: &Area, found: &FilePage) -> bool {
        is_text(area) && self.shared.patched_text().has(found.frame.frame())
    }

    /// For page `page` of `area` that is touched for the first time and would be `found`: the patched one, with a
    /// reference, if there is one that fits here.
    pub(crate) fn take_offer(&mut self, area: &Area, page: u64, found: &FilePage) -> Option<PageEntry> {
        let is_none = self.shared.patched_text().count.load(Ordering::Acquire) == 0;
        if is_none || !is_text(area) || found.valid_bytes < PAGE_SIZE as usize {
            return None;
        }
        let (pool, shared) = (self.pool.clone(), self.shared.clone());
        let base = base_of(area)?;
        let offer = shared.patched_text().find(&pool, found.frame.frame())?;
        let sites: Vec<Site> = offer.sites.iter().map(|site| moved(site, base)).collect();
        let is_here = |site: &Site| site.plan.jump >> PAGE_SHIFT == page && self.sites.is_free(&site.plan);
        let fits = (offer.is_original_fixed || says_the_same(&pool, found.frame.frame(), &offer))
            && sites.iter().all(is_here)
            && offer.trampolines.iter().all(|(place, frame)| {
                let address = base.wrapping_add(*place);
                self.has_trampolines(address, *frame, &sites)
                    || self.extend_trampolines(address, *frame)
                    || self.map_trampolines(address, *frame)
            });
        offer.trampolines.iter().for_each(|(_, frame)| pool.release(*frame));
        if !fits {
            pool.release(offer.patched);
            return None;
        }
        shared.patched_text().taken_count.fetch_add(sites.len() as u64, Ordering::Relaxed);
        let table = self.sites_mut();
        sites.into_iter().for_each(|site| table.add(site));
        Some(PageEntry::new(offer.patched, PageFlags::OWNED))
    }

    /// Whether the trampolines of `sites` that should be in the page at `address` are there, as they are in `frame`.
    fn has_trampolines(&self, address: u64, frame: FrameNumber, sites: &[Site]) -> bool {
        if !self.sites.is_trampoline(address) {
            return false;
        }
        let Some(entry) = self.pages.get(address >> PAGE_SHIFT) else { return false };
        entry.frame() == frame || has_same(&self.pool, (entry.frame(), frame), address, sites)
    }

    /// Puts `frame` in the place of the trampolines at `address`, if it has all of them and more. Somebody may be in
    /// one of those, also in one that was taken back: they are the same before and after.
    fn extend_trampolines(&mut self, address: u64, frame: FrameNumber) -> bool {
        let page = address >> PAGE_SHIFT;
        let Some(entry) = self.pages.get(page).filter(|_| self.sites.is_trampoline(address)) else { return false };
        if !has_all(&self.pool, entry.frame(), frame) {
            return false;
        }
        self.pool.retain(frame);
        self.shared.patched_text().prefer(&self.pool, frame, entry.frame());
        let is_done = self.swap_page(page, frame, TEXT_RIGHTS).is_ok();
        self.sites_mut().take_all_slots(address);
        is_done
    }

    /// Maps a page of trampolines at `address`, if that is free and the program does not expect it to stay so.
    fn map_trampolines(&mut self, address: u64, frame: FrameNumber) -> bool {
        if !self.is_out_of_the_way(address) || self.map_trampoline_page(address).is_err() {
            return false;
        }
        self.pool.retain(frame);
        self.set_page(address >> PAGE_SHIFT, PageEntry::new(frame, PageFlags::OWNED), TEXT_RIGHTS);
        // Slots that others use are not free here, lest their trampolines be overwritten.
        self.sites_mut().take_all_slots(address);
        true
    }
}

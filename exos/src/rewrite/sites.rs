//! The rewritten sites of one address space: what was found, what became of it, and where trampolines are.
//!
//! A trampoline page is cut into slots of [`TRAMPOLINE_BYTES_MAX`] bytes. The table is arithmetic;
//! `crate::mem::rewrite` makes pages and page tables agree with it. A copy of an address space has the same table until
//! one of both changes it, as it has the same pages.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};

use super::Refusal;
use super::plan::{JUMP_BYTES, Plan};
use super::trampoline::{Site, TRAMPOLINE_BYTES_MAX};
use crate::error::Result;
use crate::reserve;

/// Most sites that an address space remembers.
pub const SITE_COUNT_MAX: usize = 16 * 1024;
/// A table of so many sites is copied where that cannot fail.
const SHARED_SITE_COUNT_MAX: usize = 512;
/// Page numbers beyond belong to no program.
const PAGE_NUMBER_MAX: u64 = 1 << 40;
const SLOT_COUNT: u64 = PAGE_SIZE / TRAMPOLINE_BYTES_MAX;

/// What is known of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteState {
    /// It has trapped.
    Found,
    /// It is a jump now.
    Patched,
    /// It keeps its trap.
    Refused(Refusal),
}

/// The sites of an address space.
#[derive(Clone, Debug, Default)]
pub struct SiteTable {
    /// By the address of the `syscall`.
    states: BTreeMap<u64, SiteState>,
    /// By the address of the jump.
    sites: BTreeMap<u64, Site>,
    /// Trampoline pages by page number: bit n says that slot n is taken.
    pages: BTreeMap<u64, u64>,
    /// No other pages hold anything of the above. Never shrinks.
    reach: Range<u64>,
    /// No other pages hold trampolines. Never shrinks.
    trampolines: Range<u64>,
    /// How often something was taken out or refused: between two tables of one origin that say the same, one has all
    /// of the other, and what it has more are patches.
    loss_count: u64,
}

impl SiteTable {
    /// The table for a copy of the address space: the same one, until one of both changes it. One that is too long to
    /// be copied then is copied now: `ENOMEM`.
    pub fn share(this: &Arc<Self>) -> Result<Arc<Self>> {
        if this.states.len() <= SHARED_SITE_COUNT_MAX { Ok(Arc::clone(this)) } else { this.copy().map(Arc::new) }
    }

    fn copy(&self) -> Result<Self> {
        Ok(Self {
            states: reserve::tree(self.states.iter().map(|(syscall, state)| (*syscall, *state)))?,
            sites: reserve::tree(self.sites.iter().map(|(jump, site)| (*jump, *site)))?,
            pages: reserve::tree(self.pages.iter().map(|(page, slots)| (*page, *slots)))?,
            reach: self.reach.clone(),
            trampolines: self.trampolines.clone(),
            loss_count: self.loss_count,
        })
    }

    /// Whether this table, which `before` became, still has all of that, and only patches beside it.
    #[must_use]
    pub fn extends(&self, before: &Self) -> bool {
        self.loss_count == before.loss_count
    }

    /// The table with what lies in some pages alone: sites whose text and trampolines are in pages that `stay`, and
    /// which of others that are `inside` were refused for what the file says. The same one if that is all. `ENOMEM`.
    pub fn only(this: &Arc<Self>, stay: impl Fn(u64) -> bool, inside: impl Fn(u64) -> bool) -> Result<Arc<Self>> {
        // Sites that lie one behind the other are mostly in one page, and so are their trampolines.
        let (last_text, last_trampolines) = (Cell::new((u64::MAX, false)), Cell::new((u64::MAX, false)));
        let stay_again = |last: &Cell<(u64, bool)>, page: u64| {
            if last.get().0 != page {
                last.set((page, stay(page)));
            }
            last.get().1
        };
        let stays = |site: &Site| {
            stay_again(&last_text, site.plan.jump >> PAGE_SHIFT)
                && stay_again(&last_trampolines, site.trampoline >> PAGE_SHIFT)
        };
        let is_inside = |syscall: u64, state: &SiteState| match state {
            SiteState::Refused(refusal) => refusal.is_of_text() && inside(syscall >> PAGE_SHIFT),
            _ => false,
        };
        let is_settled = |syscall: u64, state: &SiteState| *state == SiteState::Patched || is_inside(syscall, state);
        let is_all = this.sites.values().all(stays)
            && this.states.iter().all(|(syscall, state)| is_settled(*syscall, state))
            && this.pages.keys().all(|page| stay(*page));
        if is_all {
            return Self::share(this);
        }
        let is_left = |syscall: u64, state: &SiteState| match state {
            SiteState::Patched => this.patched(syscall).is_some_and(|site| stays(&site)),
            _ => is_inside(syscall, state),
        };
        let states = this.states.iter().filter(|(syscall, state)| is_left(**syscall, state));
        let sites = this.sites.iter().filter(|(_, site)| stays(site));
        let pages = this.pages.iter().filter(|(page, _)| stay(**page));
        Ok(Arc::new(Self {
            states: reserve::tree(states.map(|(syscall, state)| (*syscall, *state)))?,
            sites: reserve::tree(sites.map(|(jump, site)| (*jump, *site)))?,
            pages: reserve::tree(pages.map(|(page, slots)| (*page, *slots)))?,
            reach: this.reach.clone(),
            trampolines: this.trampolines.clone(),
            loss_count: this.loss_count,
        }))
    }

    /// The pages with the jumps of sites, ascending, each once for each stretch of them.
    pub fn pages_with_jumps(&self) -> impl Iterator<Item = u64> {
        let mut last = None;
        self.sites.keys().filter_map(move |jump| {
            let page = jump >> PAGE_SHIFT;
            (last.replace(page) != Some(page)).then_some(page)
        })
    }

    /// Whether no jump is in a page that stays without its trampoline.
    #[must_use]
    pub fn is_whole_in(&self, stay: impl Fn(u64) -> bool) -> bool {
        self.sites.values().all(|site| !stay(site.plan.jump >> PAGE_SHIFT) || stay(site.trampoline >> PAGE_SHIFT))
    }

    /// How many sites are patched.
    #[must_use]
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// Whether nothing is patched and no trampoline exists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.pages.is_empty()
    }

    /// What is known of `syscall`.
    #[must_use]
    pub fn state(&self, syscall: u64) -> Option<SiteState> {
        self.states.get(&syscall).copied()
    }

    /// Notes that `syscall` trapped; whether that is news.
    pub fn note(&mut self, syscall: u64) -> bool {
        let is_new = self.states.len() < SITE_COUNT_MAX && !self.states.contains_key(&syscall);
        if is_new {
            self.extend_reach(syscall >> PAGE_SHIFT);
            self.states.insert(syscall, SiteState::Found);
        }
        is_new
    }

    /// Notes a refusal.
    pub fn refuse(&mut self, syscall: u64, refusal: Refusal) {
        if let Some(state) = self.states.get_mut(&syscall) {
            self.loss_count += 1;
            *state = SiteState::Refused(refusal);
        }
    }

    /// Whether `plan` leaves the patched sites alone.
    #[must_use]
    pub fn is_free(&self, plan: &Plan) -> bool {
        let before = self.sites.range(..plan.end).next_back();
        before.is_none_or(|(_, site)| site.plan.end.max(site.plan.jump + JUMP_BYTES) <= plan.jump)
    }

    /// A place for the trampoline of `plan` in those of the pages there are whose address is `good`.
    #[must_use]
    pub fn place(&self, plan: &Plan, good: impl Fn(u64) -> bool) -> Option<Site> {
        let mut pages = self.pages.iter().filter(|(page, _)| good(**page << PAGE_SHIFT));
        pages.find_map(|(page, taken)| place_in(*page, *taken, plan))
    }

    /// A place in a page that would be at `address`.
    #[must_use]
    pub fn place_in_new(address: u64, plan: &Plan) -> Option<Site> {
        place_in(address >> PAGE_SHIFT, 0, plan)
    }

    /// Takes a trampoline page on.
    pub fn add_page(&mut self, address: u64) {
        let page = address >> PAGE_SHIFT;
        self.extend_reach(page);
        extend(&mut self.trampolines, page);
        self.pages.insert(page, 0);
    }

    /// Whether there may be sites or trampolines in `pages`: answered fast, for calls that go by data.
    #[inline]
    #[must_use]
    pub fn may_reach(&self, pages: &Range<u64>) -> bool {
        self.reach.start < pages.end && pages.start < self.reach.end
    }

    fn extend_reach(&mut self, page: u64) {
        extend(&mut self.reach, page);
    }

    /// Takes a site on whose bytes are in place.
    pub fn add(&mut self, site: Site) {
        if let Some(taken) = self.pages.get_mut(&(site.trampoline >> PAGE_SHIFT)) {
            *taken |= 1 << slot(site.trampoline);
        }
        // A jump may stand in the page before its `syscall`'s.
        self.extend_reach(site.plan.jump >> PAGE_SHIFT);
        self.states.insert(site.plan.syscall, SiteState::Patched);
        self.sites.insert(site.plan.jump, site);
    }

    /// The patched site with its `syscall` there.
    #[must_use]
    pub fn patched(&self, syscall: u64) -> Option<Site> {
        // A jump is near before its `syscall`, or on it.
        let (_, site) = self.sites.range(..=syscall).next_back()?;
        (site.plan.syscall == syscall).then_some(*site)
    }

    /// The patched sites that begin in page number `page`.
    #[must_use]
    pub fn patched_in(&self, page: u64) -> Vec<Site> {
        self.sites.range(page << PAGE_SHIFT..(page + 1) << PAGE_SHIFT).map(|(_, site)| *site).collect()
    }

    /// No more trampolines go into the page at `address`.
    pub fn take_all_slots(&mut self, address: u64) {
        if let Some(taken) = self.pages.get_mut(&(address >> PAGE_SHIFT)) {
            *taken = u64::MAX;
        }
    }

    /// Whether a patched site begins in the page of `address`.
    #[must_use]
    pub fn is_patched_page(&self, address: u64) -> bool {
        let start = address & !(PAGE_SIZE - 1);
        self.sites.range(start..start + PAGE_SIZE).next().is_some()
    }

    /// The pages of `pages` that hold patches.
    #[must_use]
    pub fn patched_pages(&self, pages: &Range<u64>) -> Vec<u64> {
        let addresses = pages.start << PAGE_SHIFT..pages.end.min(PAGE_NUMBER_MAX) << PAGE_SHIFT;
        let mut found: Vec<u64> = self.sites.range(addresses).map(|(jump, _)| jump >> PAGE_SHIFT).collect();
        found.dedup();
        found
    }

    /// Where the replaced instruction that began at `address` is now.
    #[must_use]
    pub fn forward(&self, address: u64) -> Option<u64> {
        let (_, site) = self.sites.range(..=address).next_back()?;
        if address == site.plan.jump { None } else { site.forward(address) }
    }

    /// What `address` in a trampoline stands for in the program's own text; `None` outside of trampolines.
    #[must_use]
    #[inline]
    pub fn original(&self, address: u64) -> Option<u64> {
        if self.trampolines.contains(&(address >> PAGE_SHIFT)) { self.find_original(address) } else { None }
    }

    fn find_original(&self, address: u64) -> Option<u64> {
        self.pages.get(&(address >> PAGE_SHIFT))?;
        self.sites.values().find_map(|site| site.original(address))
    }

    /// Whether `address` lies in a trampoline page.
    #[must_use]
    pub fn is_trampoline(&self, address: u64) -> bool {
        self.pages.contains_key(&(address >> PAGE_SHIFT))
    }

    /// Forgets what lies in `pages` (page numbers): sites there, and sites whose trampolines lie there. Gives the text
    /// pages outside of `pages` whose patches are void and must be taken back.
    pub fn forget(&mut self, pages: &Range<u64>) -> Vec<u64> {
        let addresses = pages.start << PAGE_SHIFT..pages.end.min(PAGE_NUMBER_MAX) << PAGE_SHIFT;
        let has_sites = self.states.range(addresses.clone()).next().is_some();
        let has_trampolines = self.pages.range(pages.clone()).next().is_some();
        if !has_sites && !has_trampolines {
            return Vec::new();
        }
        self.loss_count += 1;
        let known: Vec<u64> = self.states.range(addresses).map(|(syscall, _)| *syscall).collect();
        for syscall in known {
            self.states.remove(&syscall);
        }
        let mut orphaned = Vec::new();
        let mut gone = Vec::new();
        for site in self.sites.values() {
            let text = site.plan.jump >> PAGE_SHIFT;
            let is_orphaned = pages.contains(&(site.trampoline >> PAGE_SHIFT));
            if is_orphaned && !pages.contains(&text) && !orphaned.contains(&text) {
                orphaned.push(text);
            }
            if is_orphaned || pages.contains(&text) {
                gone.push(*site);
            }
        }
        // A site that shares a page with an orphan loses its patch with it.
        gone.extend(self.sites.values().filter(|site| orphaned.contains(&(site.plan.jump >> PAGE_SHIFT))));
        for site in gone {
            // The slot stays taken: a processor may still be in it.
            self.sites.remove(&site.plan.jump);
            self.states.remove(&site.plan.syscall);
        }
        self.pages.retain(|page, _| !pages.contains(page));
        orphaned
    }
}

/// Makes a range of pages hold `page`, too.
fn extend(range: &mut Range<u64>, page: u64) {
    if range.is_empty() {
        *range = page..page + 1;
    }
    *range = range.start.min(page)..range.end.max(page + 1);
}

fn slot(address: u64) -> u64 {
    address % PAGE_SIZE / TRAMPOLINE_BYTES_MAX
}

/// The first free slot of a page, and the place in it, from which the jump's bytes trap where they must.
fn place_in(page: u64, taken: u64, plan: &Plan) -> Option<Site> {
    let room = TRAMPOLINE_BYTES_MAX.checked_sub(Site::length_bytes(plan))?;
    // Only the lowest byte of the distance asks for another place in the slot.
    let room = if plan.starts & 0b10 == 0 { 0 } else { room };
    (0..SLOT_COUNT).filter(|slot| taken & 1 << slot == 0).find_map(|slot| {
        let base = (page << PAGE_SHIFT) + slot * TRAMPOLINE_BYTES_MAX;
        (0..=room).map(|shift| Site { plan: *plan, trampoline: base + shift }).find(Site::is_safe)
    })
}

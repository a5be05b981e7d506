//! Files that will be asked for next: a program that goes through a directory asks the server for many at once.
//!
//! `ls -l`, `find`, `du`, `git status` and their like read a directory, or have read it once, and then ask for its
//! names one after the other: in the order in which it lists them, in that of the names, or in that of the inode
//! numbers (as fts(3) sorts). Each question costs two waits for the server, of which nearly all is threads that wake
//! each other. So what was listed last is kept for some directories, with the place where the program is in it
//! ([`Visit`]); a name that follows on the one before is asked for together with those behind it ([`super::many`]), and
//! these answers serve the next look-ups. How many are asked for doubles while all are used and halves when most are
//! not, as in reading ahead of a file.
//!
//! # How old an answer may be
//!
//! With [`super::Consistency::Fixed`] nothing has an age. With `Checked` an answer serves a look-up only while
//! - it is younger than [`super::ATTRIBUTE_AGE_NS_MAX`], what is true of an open file's attributes too, and
//! - nothing has come into the pod from outside since *before* it was asked for ([`super::Requester::news`]): no reply
//!   of any server to a request of another kind (contents, listings, links, a single walk, any change that the pod
//!   itself made), no byte of input, no frame of the network.
//!
//! So a host that changes a file and then says so, in whatever way, is believed: the program can have heard of it only
//! by news, and what was asked for before is not used any more. That a name is not there is never remembered, and a
//! name that the listing has not is always asked for, so a file that the program waits for is seen at once. A change
//! that the pod makes itself is seen by its next look-up. What remains is what the clock can show (a change is seen
//! 10 ms late), and that two files that the host changes one after the other may be seen in the other order within
//! that time, if both are met in one pass over their directories. Linux's 9p with `cache=none` shows neither; NFS and
//! 9p's `cache=loose` show both, for seconds.
//!
//! Changes of names ([`super::names`]) look up by the server alone.
//!
//! # What a hostile directory can do
//!
//! An answer is what a single look-up would have got at the moment in which it was asked: a walk by this name from this
//! directory, then attributes by the fid of that walk. A name that is gone, became a link or another file meanwhile is
//! found so or not found; its error concerns no other. Where the first name's answer is an error, it is asked for once
//! more by itself. What was listed is only a guess at names.
//!
//! Limits: [`VISIT_COUNT_MAX`] directories of a server, the one that was used longest ago goes first; each has at most
//! [`super::session::Session::ask_count_max`] answers, each an inode with its fid. When fids run out, all answers go.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ATTRIBUTE_AGE_NS_MAX;
use super::guess::{Guess, Order};
use super::inode::NinepInode;
use super::listing::Listing;
use super::many::{Ask, Way};
use super::message::Attributes;
use crate::error::Result;
use crate::sync::Mutex;

/// Directories with a place in them.
const VISIT_COUNT_MAX: usize = 16;
/// Files that are asked for at first.
const WINDOW_MIN: usize = 8;
/// Names in a row that are asked for one by one after guesses were in vain, until the next guess.
const REST_COUNT: usize = 32;

struct Answer {
    /// In the listing.
    position: usize,
    inode: Arc<NinepInode>,
    is_used: bool,
}

/// A directory that a program goes through.
struct Visit {
    /// The directory's number.
    directory: u64,
    guess: Guess,
    /// Files that are asked for at once; fewer than two: none but the one that is wanted.
    window: usize,
    /// Names in a row since it was as small as that.
    rested_count: usize,
    answers: Vec<Answer>,
    /// Where the next look-up's answer should be.
    next: usize,
    landed_ns: u64,
    /// What there was of news before they were asked for.
    news: u64,
}

/// What should be asked for at once.
struct Plan {
    listing: Arc<Listing>,
    /// In the listing; the first is what is wanted.
    positions: Vec<usize>,
}

/// All visits of a file system.
#[derive(Default)]
pub(super) struct Visits {
    /// The one that was used last at the end.
    all: Mutex<VecDeque<Visit>>,
}

impl Visit {
    fn new(directory: u64, listing: Arc<Listing>) -> Self {
        Self {
            directory,
            guess: Guess::new(listing),
            window: WINDOW_MIN,
            rested_count: 0,
            answers: Vec::new(),
            next: 0,
            landed_ns: 0,
            news: 0,
        }
    }

    /// The answer for a name, however old it is.
    fn answer(&mut self, name: &[u8]) -> Option<Arc<NinepInode>> {
        let listing = self.guess.listing().clone();
        let has_name = |answer: &Answer| listing.name_at(answer.position) == Some(name);
        let place = match self.answers.get(self.next) {
            Some(answer) if has_name(answer) => self.next,
            _ => self.answers.iter().position(has_name)?,
        };
        let answer = &mut self.answers[place];
        answer.is_used = true;
        self.guess.go_to(answer.position);
        self.next = place + 1;
        Some(answer.inode.clone())
    }

    /// By what became of the last answers, how many to ask for now.
    fn adapt_window(&mut self, most: usize) {
        // The first was wanted in any case.
        let others = self.answers.get(1..).unwrap_or_default();
        let used_count = others.iter().filter(|answer| answer.is_used).count();
        if self.window < 2 {
            self.rested_count += 1;
            if self.rested_count == REST_COUNT {
                (self.window, self.rested_count) = (WINDOW_MIN, 0);
            }
        } else if others.is_empty() {
            self.window = self.window.max(WINDOW_MIN);
        } else if used_count == others.len() {
            self.window *= 2;
        } else if 2 * used_count < others.len() {
            self.window /= 2;
        }
        self.window = self.window.min(most);
    }
}

impl Visits {
    /// A listing of a directory has begun.
    pub(super) fn begin(&self, directory: u64, listing: &Arc<Listing>) {
        let fresh = Visit::new(directory, listing.clone());
        let mut all = self.all.lock();
        let known = all.iter().position(|visit| visit.directory == directory).and_then(|place| all.remove(place));
        all.push_back(fresh);
        let surplus = if all.len() > VISIT_COUNT_MAX { all.pop_front() } else { None };
        drop(all);
        // Without the lock: inodes go with them.
        drop((known, surplus));
    }

    /// Lets all answers go.
    pub(super) fn forget(&self) {
        let gone = core::mem::take(&mut *self.all.lock());
        drop(gone);
    }

    /// The answer for a name, if it may still be used.
    fn answer(&self, directory: u64, name: &[u8], is_valid: impl Fn(&Visit) -> bool) -> Option<Arc<NinepInode>> {
        let mut all = self.all.lock();
        all.iter_mut().rev().find(|visit| visit.directory == directory).filter(|visit| is_valid(visit))?.answer(name)
    }

    /// What to ask for together with a name, if it follows on the one before. `listing` is the directory's own.
    fn plan(&self, directory: u64, name: &[u8], listing: Option<Arc<Listing>>, most: usize) -> Option<Plan> {
        let mut all = self.all.lock();
        let place = all.iter().rposition(|visit| visit.directory == directory);
        if let Some(visit) = place.and_then(|place| all.remove(place)) {
            all.push_back(visit);
        } else {
            drop(all);
            self.begin(directory, &listing?);
            all = self.all.lock();
        }
        let visit = all.back_mut().filter(|visit| visit.directory == directory)?;
        let order: Order = visit.guess.meet(name)?;
        visit.adapt_window(most);
        let gone = core::mem::take(&mut visit.answers);
        let positions: Vec<usize> = visit.guess.following(order, visit.window).collect();
        let plan = Plan { listing: visit.guess.listing().clone(), positions };
        drop(all);
        drop(gone);
        (plan.positions.len() > 1).then_some(plan)
    }

    fn land(&self, directory: u64, listing: &Arc<Listing>, (landed_ns, news): (u64, u64), answers: Vec<Answer>) {
        let mut all = self.all.lock();
        let visit = all.iter_mut().find(|visit| visit.directory == directory);
        let Some(visit) = visit.filter(|visit| Arc::ptr_eq(visit.guess.listing(), listing)) else {
            drop(all);
            return drop(answers);
        };
        (visit.landed_ns, visit.news, visit.next) = (landed_ns, news, 1);
        let gone = core::mem::replace(&mut visit.answers, answers);
        drop(all);
        drop(gone);
    }
}

impl NinepInode {
    /// Finds a name in this directory by an answer that is there, or together with those that will be asked for next.
    /// `None`: it is to be asked for by itself.
    pub(super) fn find_with_others(&self, name: &[u8]) -> Option<Arc<Self>> {
        let most = self.fs.session.ask_count_max();
        if most < 2 {
            return None;
        }
        let (now_ns, news) = (self.fs.now_ns(), self.fs.session.requester.news());
        let is_valid = |visit: &Visit| {
            let is_young = now_ns.saturating_sub(visit.landed_ns) < ATTRIBUTE_AGE_NS_MAX;
            self.fs.is_fixed() || (visit.news == news && is_young)
        };
        if let Some(found) = self.fs.visits.answer(self.number, name, is_valid) {
            return Some(found);
        }
        let listing = self.state.lock().listing.clone();
        let plan = self.fs.visits.plan(self.number, name, listing, most)?;
        // Whatever is wrong, a single question shows it.
        self.ask_for(&plan, news).ok().flatten()
    }

    /// Asks for what is planned; the answer for the first.
    fn ask_for(&self, plan: &Plan, news: u64) -> Result<Option<Arc<Self>>> {
        let path = self.path();
        let mut asks = Vec::with_capacity(plan.positions.len());
        let mut asked = Vec::with_capacity(plan.positions.len());
        for position in &plan.positions {
            let entry = plan.listing.name_at(*position).zip(plan.listing.number_at(*position));
            let Some((name, number)) = entry else { continue };
            let known = self.fs.known(number).filter(|child| self.has_origin(name, child));
            if known.is_some() && self.fs.is_fixed() && !asked.is_empty() {
                continue;
            }
            asks.push(Ask { name, known: known.as_ref().map(|child| child.path()) });
            asked.push((*position, name, known));
        }
        let Some(answers) = self.fs.session.ask_many(&path, asks)? else { return Ok(None) };
        if let Ok(attributes) = answers.directory {
            self.learn_if_own(attributes);
        }
        let mut taken = Vec::with_capacity(asked.len());
        for ((position, name, known), told) in asked.into_iter().zip(answers.files) {
            let inode = match (told, known) {
                (Ok((Way::Walked(fid), attributes)), _) => {
                    Some(self.fs.keep(fid, attributes, Some((self.number, name))))
                }
                (Ok((Way::Known(_), attributes)), Some(child)) => child.learn_if_own(attributes).then_some(child),
                _ => None,
            };
            if let Some(inode) = inode {
                taken.push(Answer { position, inode, is_used: taken.is_empty() });
            }
        }
        let wanted = taken.first().filter(|answer| plan.positions.first() == Some(&answer.position));
        let wanted = wanted.map(|answer| answer.inode.clone());
        self.fs.visits.land(self.number, &plan.listing, (self.fs.now_ns(), news), taken);
        Ok(wanted)
    }

    /// Takes attributes over, unless they are another file's; whether they are its own.
    fn learn_if_own(&self, attributes: Attributes) -> bool {
        let is_own = self.fs.number_of(attributes.qid) == self.number && self.is_still(&attributes);
        if is_own {
            self.learn(None, attributes);
        }
        is_own
    }
}

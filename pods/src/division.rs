//! Memory among pods while they run: which pod gets quota, and from which (`aegis_lottery::division`).
//!
//! Each pod has a page by which it tells what it wants (`aegis_link::memory`). Quota that is taken from a pod is ours
//! at once and its frames come when the pod gives them, at the latest when the kernel takes them; so what a pod gets is
//! owed to it first and passed on as frames become free. What a pod says is looked at once in a round, so one that
//! rings for ever costs us no more than that; what it cannot be believed in harms nobody but itself.
#![allow(unsafe_code, reason = "the pods' pages, mapped here")]

use aegis_abi::call::EnvironmentField;
use aegis_abi::layout::{LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::BindFlags;
use aegis_abi::types::{SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights};
use aegis_link::memory::{MEMORY_PAGE_BASE, MemoryPage, SLOT_POD_MEMORY, SLOT_POD_MEMORY_BELL, UNIT_FRAME_COUNT};
use aegis_link::orders::Outcome;
use aegis_link::pods::{POD_COUNT_MAX, PodPlan};
use aegis_lottery::division::{PART_COUNT_MAX, Part, divide};
use aegis_lottery::random::Spread;
use aegis_rt::call::{self, Refusal};

use crate::memory::{map, repeat, unmap};
use crate::pod::now_ns;

/// Our slot of the bell that pods ring.
pub(crate) const SLOT_BELL: CapSlot = CapSlot(103);
/// Our slots of the pods' pages, from here on.
const SLOT_PAGE_FIRST: u32 = 104;
/// Where the pages are.
const PAGE_BASE: u64 = LIBOS_BASE + (3 << 40);
/// From one round to the next.
const ROUND_NS: u64 = 10_000_000;
/// A pod that wants memory itself is asked for it in one of so many rounds: each unit that goes between two that want
/// it is read in again by one of them.
const EXCHANGE_ROUNDS: u64 = 10;
/// For so many rounds it is put off while some of them are still to give or to get: a pod that loses more often has not
/// given yet more often, and would be passed over more often than its tickets say.
const EXCHANGE_DELAY_ROUNDS: u64 = 50;
/// One part in so many of all units is what each of them asks for then, one at least: as many as each other, so that
/// holdings come to depend on tickets alone. What goes and comes at once does not move, so little does in the end.
const EXCHANGE_SHARE: u64 = 16;
/// One part in so many of its quota a pod may leave unused without a change in draws: a pod that asks for quota and
/// does not use it shall not keep it.
const UNUSED_SHARE: u64 = 4;
/// Units that a pod under pressure wants, and that a pod gets in a round at most.
const STEP: u32 = 4;
const STEP_MAX: u32 = 32;
/// What a pod said of pressure counts for so long.
const PRESSURE_NS: u64 = 300_000_000;
/// For so long after it a pod's caches are what it reads all the time. Others under pressure get of them in rounds of
/// exchange only, in which all such pods ask alike.
const ACTIVE_NS: u64 = 3_000_000_000;
/// What a pod has to give frames back, before the kernel takes them.
const DEADLINE_NS: u64 = 1_000_000_000;
/// Frames that are never passed on: for the tables of pods that are made again.
const KEPT_FRAME_COUNT: u64 = 512;

const _: () = assert!(POD_COUNT_MAX <= PART_COUNT_MAX);

/// A pod's part of the memory.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// Frames that it keeps whatever others want, and that it may own at most.
    pub(crate) guaranteed: u64,
    pub(crate) limit: u64,
    page: Option<&'static MemoryPage>,
    pressure: u64,
    pressed_ns: Option<u64>,
    /// Frames that it is to get as soon as they are there.
    owed: u64,
    /// What its quota is more than the plan says: tables that we donated, less what its guard took.
    beside: i64,
}

impl Share {
    /// The one of a plan.
    pub(crate) fn of(plan: &PodPlan) -> Self {
        let (guaranteed, limit) = (plan.frame_quota, plan.frame_limit);
        Self { guaranteed, limit, page: None, pressure: 0, pressed_ns: None, owed: 0, beside: 0 }
    }

    /// Gives a pod that is made, by its number, its page.
    pub(crate) fn open(&mut self, number: u32, plan: &PodPlan, environment: CapSlot) -> Result<(), Refusal> {
        self.beside = Held::of(environment).quota.cast_signed() - plan.frame_quota.cast_signed();
        let slot = CapSlot(SLOT_PAGE_FIRST + number);
        let frame = match call::cap_read(slot, 1) {
            Ok(frame) => frame,
            Err(_) => repeat(|| call::frame_allocate(slot, 1, None, 0))?,
        };
        let address = PAGE_BASE + u64::from(number) * PAGE_SIZE;
        map(SLOT_SELF, address, frame, 1, slot, BindFlags::WRITE)?;
        // SAFETY: just mapped, until the pod's end, and all words are atomic; the other writer is the pod.
        let page = unsafe { &*(address as *const MemoryPage) };
        for word in [&page.pressure, &page.needed, &page.spare, &page.refused] {
            MemoryPage::write(word, 0);
        }
        call::cap_grant(slot, environment, SLOT_POD_MEMORY, Rights::READ | Rights::WRITE)?;
        call::cap_grant(SLOT_BELL, environment, SLOT_POD_MEMORY_BELL, Rights::RING)?;
        map(environment, MEMORY_PAGE_BASE, frame, 1, slot, BindFlags::WRITE)?;
        (self.page, self.pressure, self.pressed_ns, self.owed) = (Some(page), 0, None, 0);
        self.tell();
        Ok(())
    }

    /// Its pod has ended.
    pub(crate) fn close(&mut self, number: u32) -> Result<(), Refusal> {
        self.page = None;
        self.owed = 0;
        unmap(PAGE_BASE + u64::from(number) * PAGE_SIZE, 1)
    }

    fn tell(&self) {
        if let Some(page) = self.page {
            MemoryPage::write(&page.guaranteed, self.guaranteed.saturating_add_signed(self.beside));
            MemoryPage::write(&page.limit, self.limit.saturating_add_signed(self.beside));
        }
    }

    /// Sets what is guaranteed to it and what it may have at most, of `all` frames that are not guaranteed to others.
    pub(crate) fn set(&mut self, guaranteed: u64, limit: u64, all: u64) -> Outcome {
        if guaranteed == 0 || guaranteed > limit {
            return Outcome::BadAmount;
        }
        if guaranteed > all {
            return Outcome::NoMemory;
        }
        (self.guaranteed, self.limit) = (guaranteed, limit);
        self.tell();
        Outcome::Done
    }
}

/// A pod that runs.
pub(crate) struct Member<'a> {
    pub(crate) environment: CapSlot,
    pub(crate) tickets: u64,
    pub(crate) share: &'a mut Share,
}

impl Member<'_> {
    /// It is asked for frames already, or is to get some.
    fn is_busy(&self) -> bool {
        Held::of(self.environment).overhang() > 0 || self.share.owed > 0
    }
}

/// What of an environment the kernel knows.
#[derive(Clone, Copy)]
struct Held {
    quota: u64,
    owned: u64,
}

impl Held {
    fn of(environment: CapSlot) -> Self {
        let read = |field| call::environment_read(environment, field).unwrap_or(0);
        Self { quota: read(EnvironmentField::FrameQuota), owned: read(EnvironmentField::FramesOwned) }
    }

    /// Frames that it owns and may not any more.
    fn overhang(self) -> u64 {
        self.owned.saturating_sub(self.quota)
    }
}

/// When the next round is, and what it draws with.
pub(crate) struct Division {
    random: Spread,
    round_ns: u64,
    round_number: u64,
    /// Rounds since those that want memory were asked for it last.
    unexchanged_rounds: u64,
}

impl Division {
    /// Makes the bell that pods ring.
    pub(crate) fn begin() -> Result<Self, Refusal> {
        call::bell_create(SLOT_BELL, SLOT_NONE)?;
        Ok(Self {
            random: Spread::new(now_ns() ^ aegis_rt::clock::time_stamp().rotate_left(32)),
            round_ns: 0,
            round_number: 0,
            unexchanged_rounds: 0,
        })
    }

    /// Does what there is to do now, leaving `kept` frames to pods that do not run. Answers when to look again, if
    /// nobody rings before.
    pub(crate) fn go_on(&mut self, members: &mut [Option<Member<'_>>; POD_COUNT_MAX], kept: u64) -> Option<u64> {
        let _ = call::bell_take(SLOT_BELL);
        let now_ns = now_ns();
        if now_ns < self.round_ns {
            return Some(self.round_ns);
        }
        let mut free = self.pay(members, kept);
        let mut parts = [Part::default(); POD_COUNT_MAX];
        let is_exchange = self.is_exchange(members);
        let mut has_more = false;
        let all: u64 = members.iter().flatten().map(|member| Held::of(member.environment).quota).sum();
        let exchanged = (all / UNIT_FRAME_COUNT / EXCHANGE_SHARE).clamp(1, STEP_MAX.into()) as u32;
        let exchanged = is_exchange.then_some(exchanged);
        for (member, part) in members.iter_mut().zip(&mut parts) {
            let Some(member) = member else { continue };
            *part = part_of(member, now_ns, exchanged);
            has_more |= part.wanted > 0 || member.share.owed > 0 || Held::of(member.environment).overhang() > 0;
        }
        // Smaller pieces than units stay unused.
        free -= free.min(members.iter().flatten().map(|member| member.share.owed).sum());
        let first = self.round_number as usize;
        let round = divide(&parts, (free / UNIT_FRAME_COUNT) as u32, STEP_MAX, first, is_exchange, &mut self.random);
        for (index, member) in members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            let [loss, gain] =
                [round.losses[index], round.gains[index]].map(|units| u64::from(units) * UNIT_FRAME_COUNT);
            if loss > 0 {
                // What it may refuse to do it has done by the next round.
                let _ = call::environment_reclaim(member.environment, loss, now_ns + DEADLINE_NS);
            }
            member.share.owed += gain;
            if round.is_refused[index]
                && member.share.owed == 0
                && let Some(page) = member.share.page
            {
                page.refused.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            }
        }
        self.pay(members, kept);
        self.round_number += 1;
        self.round_ns = now_ns + ROUND_NS;
        has_more.then_some(self.round_ns)
    }

    /// Whether this is a round in which those that want memory are asked for it.
    fn is_exchange(&mut self, members: &[Option<Member<'_>>; POD_COUNT_MAX]) -> bool {
        let is_moving = members.iter().flatten().any(Member::is_busy);
        let rounds = self.unexchanged_rounds;
        let is_exchange = rounds >= EXCHANGE_ROUNDS + if is_moving { EXCHANGE_DELAY_ROUNDS } else { 0 };
        self.unexchanged_rounds = if is_exchange { 1 } else { rounds + 1 };
        is_exchange
    }

    /// Passes on what is owed, as far as frames are there; how many are left.
    fn pay(&self, members: &mut [Option<Member<'_>>; POD_COUNT_MAX], kept: u64) -> u64 {
        let own = Held::of(SLOT_SELF);
        let overhang: u64 = members.iter().flatten().map(|member| Held::of(member.environment).overhang()).sum();
        let mut free = own.quota.saturating_sub(own.owned + overhang + kept + KEPT_FRAME_COUNT);
        for member in members.iter_mut().flatten() {
            let count = member.share.owed.min(free);
            if count > 0 && call::environment_quota(member.environment, count).is_ok() {
                member.share.owed -= count;
                free -= count;
            }
        }
        free
    }
}

/// How a pod stands, in units. `exchanged`: what those that want more ask each other for, in a round of exchange.
fn part_of(member: &mut Member<'_>, now_ns: u64, exchanged: Option<u32>) -> Part {
    let (held, is_busy) = (Held::of(member.environment), member.is_busy());
    let share = &mut *member.share;
    let Some(page) = share.page else { return Part::default() };
    let pressure = MemoryPage::read(&page.pressure);
    if pressure != share.pressure {
        (share.pressure, share.pressed_ns) = (pressure, Some(now_ns));
    }
    let is_pressed_since = |since_ns: u64| share.pressed_ns.is_some_and(|then| now_ns - then < since_ns);
    let (is_pressed, is_active) = (is_pressed_since(PRESSURE_NS), is_pressed_since(ACTIVE_NS));
    let quota = held.quota.saturating_add_signed(-share.beside) + share.owed;
    let units = |frames: u64| u32::try_from(frames / UNIT_FRAME_COUNT).unwrap_or(u32::MAX);
    let (guaranteed, limit) = (share.guaranteed, share.limit);
    if quota > limit {
        // It may have less than before.
        let _ = call::environment_reclaim(member.environment, (quota - limit).min(held.quota), now_ns + DEADLINE_NS);
    }
    // What is guaranteed to it and not there is needed, whatever it says.
    let missing = guaranteed.saturating_sub(quota).div_ceil(UNIT_FRAME_COUNT) * UNIT_FRAME_COUNT;
    let needed = MemoryPage::read(&page.needed).min(limit).max(missing);
    let unused = held.quota.saturating_sub(held.owned) + share.owed;
    let spare = if is_active && exchanged.is_none() { 0 } else { MemoryPage::read(&page.spare).saturating_add(unused) };
    let base = units(guaranteed);
    let wanted = match exchanged {
        Some(count) if is_active => count,
        None if is_pressed && units(unused) < STEP => STEP,
        _ => 0,
    };
    Part {
        tickets: u32::try_from(member.tickets).unwrap_or(u32::MAX),
        guaranteed: base,
        limit: base.saturating_add(units(limit.saturating_sub(guaranteed))),
        held: if quota < guaranteed {
            base.saturating_sub(units(missing))
        } else {
            base.saturating_add(units(quota - guaranteed))
        },
        // A pod that wants no more has use for what it has not used yet.
        weight: u32::try_from(if is_active { held.owned.max(quota - quota / UNUSED_SHARE) } else { quota })
            .unwrap_or(u32::MAX),
        wanted: wanted.max(units(needed)),
        spare: units(spare),
        is_in_need: needed > 0,
        is_busy,
    }
}

//! Timers of a process that tell of their expiry by a signal: what `timer_create` makes.
//!
//! Pure: time is an argument, in nanoseconds on the timer's own base. A timer that repeats does not go on by itself:
//! when it has expired it waits until its signal is taken, and only then counts what it missed meanwhile
//! ([`TimerTable::take_notice`]), as Linux does; so a program that blocks the signal costs nothing. The keeper of the
//! table asks when to look ([`TimerTable::deadlines`]), looks ([`TimerTable::expire`]), and raises the signals without
//! holding the table's lock.
//!
//! Armed timers that tell somebody lie in the order of their deadlines, so that neither a look nor a change costs more
//! where there are many. Those of processor time, whose bases differ, are looked at one by one.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::error::{Errno, Result};
use crate::task::signal::Signal;

/// Most timers of a process, whatever its limit of pending signals.
pub const TIMER_COUNT_MAX: usize = 1 << 16;
/// How far ahead of now an ignored timer is put that repeats more often than this.
const IGNORED_STEP_NS: u64 = 10_000_000;

/// What a timer's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBase {
    /// Time since the machine's start.
    Monotonic,
    /// The processor time of the process.
    Process,
    /// The same without what exos had of it.
    ProcessUser,
    /// The processor time of a thread.
    Thread(u32),
}

/// How a timer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Signal of its expiry.
    pub signal: Signal,
    /// To which thread, if not to the process.
    pub thread: Option<u32>,
    /// With which `si_value`; `None` is the timer's own number.
    pub value: Option<u64>,
}

/// When a timer expires; zeros where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Until the next time (as an answer), or the time itself (as an argument).
    pub value_ns: u64,
    /// From one time to the next.
    pub period_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Off,
    Armed,
    /// It repeats, and goes on when its signal is taken.
    Told,
}

struct Timer {
    base: TimeBase,
    is_realtime: bool,
    notice: Option<Notice>,
    state: State,
    deadline_ns: u64,
    period_ns: u64,
    /// Expiries since the last notice, less the one that it told of.
    overrun: i64,
    /// What [`TimerTable::overrun`] answers.
    last_overrun: i64,
}

impl Timer {
    /// When it is to be looked at, if it is armed and tells somebody.
    fn due(&self) -> Option<(TimeBase, u64)> {
        (self.state == State::Armed && self.notice.is_some()).then_some((self.base, self.deadline_ns))
    }

    /// Moves the deadline beyond now; by how many periods.
    fn forward(&mut self, now_ns: u64) -> i64 {
        if now_ns < self.deadline_ns || self.period_ns == 0 {
            return 0;
        }
        let count = (now_ns - self.deadline_ns) / self.period_ns + 1;
        self.deadline_ns = self.deadline_ns.saturating_add(count.saturating_mul(self.period_ns));
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    fn left(&mut self, now_ns: u64) -> Setting {
        let is_silent = self.notice.is_none();
        if self.state == State::Off {
            return Setting::default();
        }
        if self.period_ns != 0 && (self.state == State::Told || is_silent) {
            self.overrun = self.overrun.saturating_add(self.forward(now_ns));
        }
        // One that is due and has yet to tell shows at least a nanosecond: zero would say that it is off.
        let left_ns = self.deadline_ns.saturating_sub(now_ns);
        let value_ns = if is_silent { left_ns } else { left_ns.max(1) };
        Setting { value_ns, period_ns: self.period_ns }
    }
}

/// A timer that has expired and is to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Number, from 0.
    pub id: i32,
    /// Kind of notice (`sigev_notify`).
    pub notice: Notice,
}

/// The timers of a process.
#[derive(Default)]
pub struct TimerTable {
    timers: BTreeMap<i32, Timer>,
    /// Those of the machine's time that are due some day, by their deadlines.
    by_deadline: BTreeSet<(u64, i32)>,
    /// Those of processor time that are.
    counting: BTreeSet<i32>,
    next_id: i32,
}

impl TimerTable {
    /// A timer that is off. `EAGAIN`: there are `limit`, or [`TIMER_COUNT_MAX`].
    pub fn create(&mut self, base: TimeBase, is_realtime: bool, notice: Option<Notice>, limit: usize) -> Result<i32> {
        if self.timers.len() >= limit.min(TIMER_COUNT_MAX) {
            return Err(Errno::EAGAIN);
        }
        let (state, overrun) = (State::Off, -1);
        let timer = Timer { base, is_realtime, notice, state, deadline_ns: 0, period_ns: 0, overrun, last_overrun: 0 };
        // Ends: there are fewer timers than numbers.
        loop {
            let id = self.next_id;
            self.next_id = id.checked_add(1).unwrap_or(0);
            if let Entry::Vacant(place) = self.timers.entry(id) {
                place.insert(timer);
                return Ok(id);
            }
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.timers.len()
    }

    /// Takes a timer away. `EINVAL`: there is none.
    pub fn delete(&mut self, id: i32) -> Result<()> {
        let timer = self.timers.remove(&id).ok_or(Errno::EINVAL)?;
        self.file(id, timer.due(), None);
        Ok(())
    }

    /// Changes a timer, and keeps it where its deadline is found. `None`: there is none.
    fn change<R>(&mut self, id: i32, work: impl FnOnce(&mut Timer) -> R) -> Option<R> {
        let timer = self.timers.get_mut(&id)?;
        let before = timer.due();
        let result = work(timer);
        let after = timer.due();
        self.file(id, before, after);
        Some(result)
    }

    fn file(&mut self, id: i32, before: Option<(TimeBase, u64)>, after: Option<(TimeBase, u64)>) {
        if before == after {
            return;
        }
        match before {
            Some((TimeBase::Monotonic, deadline_ns)) => drop(self.by_deadline.remove(&(deadline_ns, id))),
            Some(_) => drop(self.counting.remove(&id)),
            None => {}
        }
        match after {
            Some((TimeBase::Monotonic, deadline_ns)) => drop(self.by_deadline.insert((deadline_ns, id))),
            Some(_) => drop(self.counting.insert(id)),
            None => {}
        }
    }

    /// Takes all away (`execve`).
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sets a timer to expire at a time on its base, or switches it off (`None`); what was left before. What time its
    /// base shows, and how it is set, `plan` says of the base and of whether its absolute times are on the realtime
    /// clock. `EINVAL`: there is none.
    pub fn set(&mut self, id: i32, plan: impl FnOnce(TimeBase, bool) -> (u64, Option<Setting>)) -> Result<Setting> {
        let set = |timer: &mut Timer| {
            let (now_ns, setting) = plan(timer.base, timer.is_realtime);
            let before = timer.left(now_ns);
            let Setting { value_ns, period_ns } = setting.unwrap_or_default();
            timer.state = if setting.is_some() { State::Armed } else { State::Off };
            (timer.deadline_ns, timer.period_ns) = (value_ns, period_ns);
            (timer.overrun, timer.last_overrun) = (-1, 0);
            before
        };
        self.change(id, set).ok_or(Errno::EINVAL)
    }

    /// What is left where its base shows what `now_ns` says. `EINVAL`: there is none.
    pub fn left(&mut self, id: i32, now_ns: impl FnOnce(TimeBase) -> u64) -> Result<Setting> {
        self.change(id, |timer| timer.left(now_ns(timer.base))).ok_or(Errno::EINVAL)
    }

    /// How often the timer expired unseen before its last notice was taken. `EINVAL`.
    pub fn overrun(&self, id: i32) -> Result<i32> {
        let timer = self.timers.get(&id).ok_or(Errno::EINVAL)?;
        Ok(timer.last_overrun.clamp(0, i64::from(i32::MAX)) as i32)
    }

    /// The timers that are due and have somebody to tell, the first due first; they count as told. `now_ns` says what
    /// time a base shows.
    pub fn expire(&mut self, mut now_ns: impl FnMut(TimeBase) -> u64) -> Vec<Expired> {
        let mut expired = Vec::new();
        while let Some(&(deadline_ns, id)) = self.by_deadline.first()
            && now_ns(TimeBase::Monotonic) >= deadline_ns
        {
            expired.extend(self.tell(id));
        }
        let counting = self.counting.iter().filter_map(|id| self.timers.get_key_value(id));
        let is_due = |(_, timer): &(&i32, &Timer)| now_ns(timer.base) >= timer.deadline_ns;
        let due: Vec<i32> = counting.filter(is_due).map(|(id, _)| *id).collect();
        expired.extend(due.into_iter().filter_map(|id| self.tell(id)));
        expired
    }

    /// Notes that a timer has expired.
    fn tell(&mut self, id: i32) -> Option<Expired> {
        let expire = |timer: &mut Timer| {
            timer.state = if timer.period_ns == 0 { State::Off } else { State::Told };
            timer.notice
        };
        self.change(id, expire).flatten().map(|notice| Expired { id, notice })
    }

    /// The signal of an expired timer was ignored: one that repeats goes on.
    pub fn note_ignored(&mut self, id: i32, now_ns: impl FnOnce(TimeBase) -> u64) {
        self.change(id, |timer| {
            if timer.state == State::Told {
                let now_ns = now_ns(timer.base);
                let now_ns = if timer.period_ns < IGNORED_STEP_NS { now_ns + IGNORED_STEP_NS } else { now_ns };
                timer.overrun = timer.overrun.saturating_add(timer.forward(now_ns));
                timer.state = State::Armed;
            }
        });
    }

    /// The signal of a timer was taken: one that repeats goes on. What `si_overrun` says; `None`: it is gone.
    pub fn take_notice(&mut self, id: i32, now_ns: impl FnOnce(TimeBase) -> u64) -> Option<i32> {
        let take = |timer: &mut Timer| {
            if timer.state == State::Told {
                timer.overrun = timer.overrun.saturating_add(timer.forward(now_ns(timer.base)));
                timer.last_overrun = core::mem::replace(&mut timer.overrun, -1);
                timer.state = State::Armed;
            }
            timer.last_overrun.clamp(0, i64::from(i32::MAX)) as i32
        };
        self.change(id, take)
    }

    /// Timers that wait for their signal to be taken, which now will not happen: they go on.
    pub fn forget_signal(&mut self, signal: Signal, mut now_ns: impl FnMut(TimeBase) -> u64) {
        let concerns = |timer: &Timer| timer.notice.is_some_and(|notice| notice.signal == signal);
        let concerned = self.timers.iter().filter(|(_, timer)| concerns(timer));
        let concerned: Vec<i32> = concerned.map(|(id, _)| *id).collect();
        for id in concerned {
            self.note_ignored(id, &mut now_ns);
        }
    }

    /// The next deadlines of armed timers that tell somebody, with their bases: the first of the machine's time, and
    /// all of processor time.
    pub fn deadlines(&self) -> impl Iterator<Item = (TimeBase, u64)> {
        let first = self.by_deadline.first().map(|(deadline_ns, _)| (TimeBase::Monotonic, *deadline_ns));
        let counting = self.counting.iter().filter_map(|id| self.timers.get(id)?.due());
        first.into_iter().chain(counting)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{Notice, Setting, TimeBase, TimerTable};
    use crate::error::Errno;
    use crate::task::signal::Signal;

    const NOTICE: Notice = Notice { signal: Signal::ALRM, thread: None, value: None };

    fn table(notice: Option<Notice>, value_ns: u64, period_ns: u64) -> TimerTable {
        let mut table = TimerTable::default();
        let id = table.create(TimeBase::Monotonic, false, notice, 9).unwrap();
        assert_eq!((id, table.set(id, |_, _| (0, Some(Setting { value_ns, period_ns })))), (0, Ok(Setting::default())));
        table
    }

    fn expired(table: &mut TimerTable, now_ns: u64) -> usize {
        table.expire(|_| now_ns).len()
    }

    #[test]
    fn once_is_once() {
        let mut table = table(Some(NOTICE), 100, 0);
        assert_eq!((expired(&mut table, 99), table.left(0, |_| 60).unwrap().value_ns), (0, 40));
        assert_eq!(table.left(0, |_| 150).unwrap().value_ns, 1, "due, but not told");
        assert_eq!((expired(&mut table, 150), expired(&mut table, 200)), (1, 0));
        assert_eq!(table.left(0, |_| 200), Ok(Setting::default()));
        assert_eq!((table.take_notice(0, |_| 500).unwrap(), table.overrun(0)), (0, Ok(0)));
    }

    #[test]
    fn what_is_missed_until_the_signal_is_taken_is_counted() {
        let mut table = table(Some(NOTICE), 100, 10);
        assert_eq!((expired(&mut table, 101), table.deadlines().count()), (1, 0));
        assert_eq!(table.left(0, |_| 124), Ok(Setting { value_ns: 6, period_ns: 10 }));
        assert_eq!(expired(&mut table, 150), 0, "nobody took the first");
        assert_eq!((table.take_notice(0, |_| 155).unwrap(), table.overrun(0)), (5, Ok(5)));
        assert_eq!(table.deadlines().next(), Some((TimeBase::Monotonic, 160)));
        assert_eq!((expired(&mut table, 160), table.take_notice(0, |_| 161).unwrap(), table.overrun(0)), (1, 0, Ok(0)));
        assert_eq!(table.set(0, |_, _| (165, None)), Ok(Setting { value_ns: 5, period_ns: 10 }));
        assert_eq!((expired(&mut table, 999), table.overrun(0)), (0, Ok(0)));
    }

    #[test]
    fn ignored_signals_do_not_stop_a_timer() {
        let mut table = table(Some(NOTICE), 100, 50_000_000);
        assert_eq!(expired(&mut table, 100), 1);
        table.note_ignored(0, |_| 100);
        assert_eq!(table.deadlines().next(), Some((TimeBase::Monotonic, 50_000_100)));
        assert_eq!(expired(&mut table, 50_000_100), 1);
        table.forget_signal(Signal::INT, |_| 60_000_000);
        assert_eq!(table.deadlines().count(), 0);
        table.forget_signal(Signal::ALRM, |_| 60_000_000);
        assert_eq!(table.deadlines().next(), Some((TimeBase::Monotonic, 100_000_100)));
    }

    #[test]
    fn many_timers_expire_in_the_order_of_their_deadlines() {
        let mut table = TimerTable::default();
        let deadline_of = |id: i32| u64::from(id as u32 * 7919 % 1000) + 1;
        let set = |table: &mut TimerTable, id: i32, value_ns| {
            table.set(id, |_, _| (0, Some(Setting { value_ns, period_ns: u64::from(id % 3 == 0) * 500 }))).unwrap();
        };
        for id in 0..1000 {
            let base = if id % 10 == 9 { TimeBase::Process } else { TimeBase::Monotonic };
            assert_eq!(table.create(base, false, (id % 5 != 0).then_some(NOTICE), 1000), Ok(id));
            set(&mut table, id, 5000);
            set(&mut table, id, deadline_of(id));
        }
        (0..1000).filter(|id| id % 7 == 1).for_each(|id| table.delete(id).unwrap());
        let is_there = |id: &i32| id % 5 != 0 && id % 7 != 1;
        let mut told = Vec::new();
        for now_ns in (1..=1000).step_by(100).map(|now_ns| now_ns + 99) {
            let expired: Vec<i32> = table.expire(|_| now_ns).into_iter().map(|it| it.id).collect();
            let machine = expired.iter().filter(|id| *id % 10 != 9).map(|id| deadline_of(*id));
            assert!(machine.is_sorted());
            assert!(expired.iter().all(|id| deadline_of(*id) <= now_ns && deadline_of(*id) > now_ns - 100));
            told.extend(expired);
        }
        told.sort_unstable();
        assert_eq!(told, (0..1000).filter(is_there).collect::<Vec<_>>());
        assert_eq!(table.deadlines().count(), 0, "those that repeat wait to be taken");
        assert_eq!(table.take_notice(3, |_| 4000).unwrap(), ((4000 - deadline_of(3)) / 500) as i32);
        assert_eq!(table.deadlines().count(), 1);
        table.clear();
        assert_eq!((table.by_deadline.len(), table.counting.len()), (0, 0));
    }

    #[test]
    fn a_silent_timer_only_counts_down() {
        let mut once = table(None, 100, 0);
        assert_eq!((expired(&mut once, 200), once.left(0, |_| 200)), (0, Ok(Setting::default())));
        let mut repeating = table(None, 100, 10);
        assert_eq!(repeating.left(0, |_| 137), Ok(Setting { value_ns: 3, period_ns: 10 }));
        assert_eq!(repeating.deadlines().count(), 0);
    }

    #[test]
    fn numbers_are_not_used_again_at_once_and_are_limited() {
        let mut table = table(None, 0, 0);
        assert_eq!((table.delete(0), table.delete(0)), (Ok(()), Err(Errno::EINVAL)));
        assert_eq!(table.create(TimeBase::Process, false, None, 1), Ok(1));
        assert_eq!(table.create(TimeBase::Process, false, None, 1), Err(Errno::EAGAIN));
        assert_eq!(
            (table.left(1, |base| u64::from(base != TimeBase::Process)), table.left(0, |_| 0)),
            (Ok(Setting::default()), Err(Errno::EINVAL))
        );
        table.clear();
        assert_eq!(table.overrun(1), Err(Errno::EINVAL));
    }
}

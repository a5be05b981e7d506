//! Timers of a process that tell of their expiry by a signal: what `timer_create` makes.
//!
//! Pure: time is an argument, in nanoseconds on the timer's own base. A timer that repeats does not go on by itself:
//! when it has expired it waits until its signal is taken, and only then counts what it missed meanwhile
//! ([`TimerTable::take_notice`]), as Linux does; so a program that blocks the signal costs nothing. Whoever keeps the
//! table asks when to look ([`TimerTable::deadlines`]), looks ([`TimerTable::expire`]), and raises the signals
//! without holding the table's lock.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::error::{Errno, Result};
use crate::task::signal::Signal;

/// Most timers of a process.
pub const TIMER_COUNT_MAX: usize = 4096;
/// How far ahead of now an ignored timer is put that repeats more often than this.
const IGNORED_STEP_NS: u64 = 10_000_000;

/// What a timer's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBase {
    /// Time since the machine's start.
    Monotonic,
    /// The processor time of the process.
    Process,
    /// The processor time of a thread.
    Thread(u32),
}

/// How a timer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// By which signal.
    pub signal: Signal,
    /// To which thread, if not to the process.
    pub thread: Option<u32>,
    /// With which `si_value`; `None` is the timer's own number.
    pub value: Option<u64>,
}

/// When a timer expires; zeros where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Until the next time (as an answer), or the time itself (as a wish).
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
    /// Its number.
    pub id: i32,
    /// How it tells.
    pub notice: Notice,
}

/// The timers of a process.
#[derive(Default)]
pub struct TimerTable {
    timers: BTreeMap<i32, Timer>,
    next_id: i32,
}

impl TimerTable {
    /// A timer that is off. `EAGAIN`: there are `limit`, or [`TIMER_COUNT_MAX`].
    pub fn create(&mut self, base: TimeBase, is_realtime: bool, notice: Option<Notice>, limit: usize) -> Result<i32> {
        if self.timers.len() >= limit.min(TIMER_COUNT_MAX) {
            return Err(Errno::EAGAIN);
        }
        // Ends: there are fewer timers than numbers.
        while self.timers.contains_key(&self.next_id) {
            self.next_id = self.next_id.checked_add(1).unwrap_or(0);
        }
        let id = self.next_id;
        self.next_id = id.checked_add(1).unwrap_or(0);
        let (state, overrun) = (State::Off, -1);
        let timer = Timer { base, is_realtime, notice, state, deadline_ns: 0, period_ns: 0, overrun, last_overrun: 0 };
        self.timers.insert(id, timer);
        Ok(id)
    }

    /// Takes a timer away. `EINVAL`: there is none.
    pub fn delete(&mut self, id: i32) -> Result<()> {
        self.timers.remove(&id).map(|_| ()).ok_or(Errno::EINVAL)
    }

    /// Takes all away (`execve`).
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// A timer's base, and whether its absolute times are on the realtime clock. `EINVAL`.
    pub fn base(&self, id: i32) -> Result<(TimeBase, bool)> {
        self.timers.get(&id).map(|timer| (timer.base, timer.is_realtime)).ok_or(Errno::EINVAL)
    }

    /// Sets a timer to expire at `setting.value_ns` on its base, or switches it off (`None`); what was left before.
    /// `EINVAL`.
    pub fn set(&mut self, id: i32, now_ns: u64, setting: Option<Setting>) -> Result<Setting> {
        let timer = self.timers.get_mut(&id).ok_or(Errno::EINVAL)?;
        let before = timer.left(now_ns);
        let Setting { value_ns, period_ns } = setting.unwrap_or_default();
        timer.state = if setting.is_some() { State::Armed } else { State::Off };
        (timer.deadline_ns, timer.period_ns) = (value_ns, period_ns);
        (timer.overrun, timer.last_overrun) = (-1, 0);
        Ok(before)
    }

    /// What is left. `EINVAL`.
    pub fn left(&mut self, id: i32, now_ns: u64) -> Result<Setting> {
        Ok(self.timers.get_mut(&id).ok_or(Errno::EINVAL)?.left(now_ns))
    }

    /// How often the timer expired unseen before its last notice was taken. `EINVAL`.
    pub fn overrun(&self, id: i32) -> Result<i32> {
        let timer = self.timers.get(&id).ok_or(Errno::EINVAL)?;
        Ok(timer.last_overrun.clamp(0, i64::from(i32::MAX)) as i32)
    }

    /// The timers that are due and have somebody to tell; they count as told. `now_ns` says what time a base shows.
    pub fn expire(&mut self, mut now_ns: impl FnMut(TimeBase) -> u64) -> Vec<Expired> {
        let mut expired = Vec::new();
        for (id, timer) in &mut self.timers {
            let Some(notice) = timer.notice else { continue };
            if timer.state == State::Armed && now_ns(timer.base) >= timer.deadline_ns {
                timer.state = if timer.period_ns == 0 { State::Off } else { State::Told };
                expired.push(Expired { id: *id, notice });
            }
        }
        expired
    }

    /// The signal of an expired timer was ignored: one that repeats goes on.
    pub fn note_ignored(&mut self, id: i32, now_ns: u64) {
        if let Some(timer) = self.timers.get_mut(&id)
            && timer.state == State::Told
        {
            let now_ns = if timer.period_ns < IGNORED_STEP_NS { now_ns + IGNORED_STEP_NS } else { now_ns };
            timer.overrun = timer.overrun.saturating_add(timer.forward(now_ns));
            timer.state = State::Armed;
        }
    }

    /// The signal of a timer was taken: one that repeats goes on. What `si_overrun` says.
    pub fn take_notice(&mut self, id: i32, now_ns: u64) -> i32 {
        let Some(timer) = self.timers.get_mut(&id) else { return 0 };
        if timer.state == State::Told {
            timer.overrun = timer.overrun.saturating_add(timer.forward(now_ns));
            timer.last_overrun = core::mem::replace(&mut timer.overrun, -1);
            timer.state = State::Armed;
        }
        timer.last_overrun.clamp(0, i64::from(i32::MAX)) as i32
    }

    /// Timers that wait for their signal to be taken, which now will not happen: they go on.
    pub fn forget_signal(&mut self, signal: Signal, mut now_ns: impl FnMut(TimeBase) -> u64) {
        let concerns = |timer: &Timer| timer.notice.is_some_and(|notice| notice.signal == signal);
        let concerned = self.timers.iter().filter(|(_, timer)| concerns(timer));
        let concerned: Vec<_> = concerned.map(|(id, timer)| (*id, timer.base)).collect();
        for (id, base) in concerned {
            self.note_ignored(id, now_ns(base));
        }
    }

    /// The next deadlines of armed timers that tell somebody, with their bases.
    pub fn deadlines(&self) -> impl Iterator<Item = (TimeBase, u64)> {
        let telling = self.timers.values().filter(|timer| timer.state == State::Armed && timer.notice.is_some());
        telling.map(|timer| (timer.base, timer.deadline_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::{Notice, Setting, TimeBase, TimerTable};
    use crate::error::Errno;
    use crate::task::signal::Signal;

    const NOTICE: Notice = Notice { signal: Signal::ALRM, thread: None, value: None };

    fn table(notice: Option<Notice>, value_ns: u64, period_ns: u64) -> TimerTable {
        let mut table = TimerTable::default();
        let id = table.create(TimeBase::Monotonic, false, notice, 9).unwrap();
        assert_eq!((id, table.set(id, 0, Some(Setting { value_ns, period_ns }))), (0, Ok(Setting::default())));
        table
    }

    fn expired(table: &mut TimerTable, now_ns: u64) -> usize {
        table.expire(|_| now_ns).len()
    }

    #[test]
    fn once_is_once() {
        let mut table = table(Some(NOTICE), 100, 0);
        assert_eq!((expired(&mut table, 99), table.left(0, 60).unwrap().value_ns), (0, 40));
        assert_eq!(table.left(0, 150).unwrap().value_ns, 1, "due, but not told");
        assert_eq!((expired(&mut table, 150), expired(&mut table, 200)), (1, 0));
        assert_eq!(table.left(0, 200), Ok(Setting::default()));
        assert_eq!((table.take_notice(0, 500), table.overrun(0)), (0, Ok(0)));
    }

    #[test]
    fn what_is_missed_until_the_signal_is_taken_is_counted() {
        let mut table = table(Some(NOTICE), 100, 10);
        assert_eq!((expired(&mut table, 101), table.deadlines().count()), (1, 0));
        assert_eq!(table.left(0, 124), Ok(Setting { value_ns: 6, period_ns: 10 }));
        assert_eq!(expired(&mut table, 150), 0, "nobody took the first");
        assert_eq!((table.take_notice(0, 155), table.overrun(0)), (5, Ok(5)));
        assert_eq!(table.deadlines().next(), Some((TimeBase::Monotonic, 160)));
        assert_eq!((expired(&mut table, 160), table.take_notice(0, 161), table.overrun(0)), (1, 0, Ok(0)));
        assert_eq!(table.set(0, 165, None), Ok(Setting { value_ns: 5, period_ns: 10 }));
        assert_eq!((expired(&mut table, 999), table.overrun(0)), (0, Ok(0)));
    }

    #[test]
    fn ignored_signals_do_not_stop_a_timer() {
        let mut table = table(Some(NOTICE), 100, 50_000_000);
        assert_eq!(expired(&mut table, 100), 1);
        table.note_ignored(0, 100);
        assert_eq!(table.deadlines().next(), Some((TimeBase::Monotonic, 50_000_100)));
        assert_eq!(expired(&mut table, 50_000_100), 1);
        table.forget_signal(Signal::INT, |_| 60_000_000);
        assert_eq!(table.deadlines().count(), 0);
        table.forget_signal(Signal::ALRM, |_| 60_000_000);
        assert_eq!(table.deadlines().next(), Some((TimeBase::Monotonic, 100_000_100)));
    }

    #[test]
    fn a_silent_timer_only_counts_down() {
        let mut once = table(None, 100, 0);
        assert_eq!((expired(&mut once, 200), once.left(0, 200)), (0, Ok(Setting::default())));
        let mut repeating = table(None, 100, 10);
        assert_eq!(repeating.left(0, 137), Ok(Setting { value_ns: 3, period_ns: 10 }));
        assert_eq!(repeating.deadlines().count(), 0);
    }

    #[test]
    fn numbers_are_not_used_again_at_once_and_are_limited() {
        let mut table = table(None, 0, 0);
        assert_eq!((table.delete(0), table.delete(0)), (Ok(()), Err(Errno::EINVAL)));
        assert_eq!(table.create(TimeBase::Process, false, None, 1), Ok(1));
        assert_eq!(table.create(TimeBase::Process, false, None, 1), Err(Errno::EAGAIN));
        assert_eq!((table.base(1), table.base(0)), (Ok((TimeBase::Process, false)), Err(Errno::EINVAL)));
        table.clear();
        assert_eq!(table.overrun(1), Err(Errno::EINVAL));
    }
}

//! Signals: dispositions, masks, what is pending, and what happens next.
//!
//! A process has dispositions and a pending set shared by its threads; a thread has a mask and a pending set of its
//! own. Standard signals (1..=31) are pending at most once, real-time ones (32..=64) queue in order up to a limit.
//! [`next`] picks what a thread must act on; the personality turns a [`Delivery::Handler`] into a stack frame.
//! Neighbours: `exos/linux/src/signal`.

use alloc::collections::VecDeque;

use crate::error::{Errno, Result};

/// Highest signal number.
pub const SIGNAL_MAX: u8 = 64;
/// First real-time signal.
pub const REAL_TIME_FIRST: u8 = 32;
/// Most queued real-time signals in one pending set.
pub const QUEUE_COUNT_MAX: usize = 1024;

/// A signal number, 1..=64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Signal(u8);

#[expect(missing_docs, reason = "POSIX names with Linux x86-64's numbers")]
impl Signal {
    pub const HUP: Signal = Signal(1);
    pub const INT: Signal = Signal(2);
    pub const QUIT: Signal = Signal(3);
    pub const ILL: Signal = Signal(4);
    pub const TRAP: Signal = Signal(5);
    pub const ABRT: Signal = Signal(6);
    pub const BUS: Signal = Signal(7);
    pub const FPE: Signal = Signal(8);
    pub const KILL: Signal = Signal(9);
    pub const USR1: Signal = Signal(10);
    pub const SEGV: Signal = Signal(11);
    pub const USR2: Signal = Signal(12);
    pub const PIPE: Signal = Signal(13);
    pub const ALRM: Signal = Signal(14);
    pub const TERM: Signal = Signal(15);
    pub const STKFLT: Signal = Signal(16);
    pub const CHLD: Signal = Signal(17);
    pub const CONT: Signal = Signal(18);
    pub const STOP: Signal = Signal(19);
    pub const TSTP: Signal = Signal(20);
    pub const TTIN: Signal = Signal(21);
    pub const TTOU: Signal = Signal(22);
    pub const URG: Signal = Signal(23);
    pub const XCPU: Signal = Signal(24);
    pub const XFSZ: Signal = Signal(25);
    pub const VTALRM: Signal = Signal(26);
    pub const PROF: Signal = Signal(27);
    pub const WINCH: Signal = Signal(28);
    pub const IO: Signal = Signal(29);
    pub const PWR: Signal = Signal(30);
    pub const SYS: Signal = Signal(31);

    /// The signal with this number; `EINVAL` if there is none.
    pub fn new(number: u64) -> Result<Signal> {
        match u8::try_from(number) {
            Ok(number @ 1..=SIGNAL_MAX) => Ok(Signal(number)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Linux's number, 1 to 64.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its bit in a [`SignalSet`].
    #[must_use]
    pub const fn bit(self) -> SignalSet {
        SignalSet(1 << (self.0 - 1))
    }

    /// What happens without a handler.
    #[must_use]
    pub const fn default_action(self) -> DefaultAction {
        match self {
            Signal::CHLD | Signal::URG | Signal::WINCH => DefaultAction::Ignore,
            Signal::CONT => DefaultAction::Continue,
            Signal::STOP | Signal::TSTP | Signal::TTIN | Signal::TTOU => DefaultAction::Stop,
            Signal::QUIT
            | Signal::ILL
            | Signal::TRAP
            | Signal::ABRT
            | Signal::BUS
            | Signal::FPE
            | Signal::SEGV
            | Signal::XCPU
            | Signal::XFSZ
            | Signal::SYS => DefaultAction::Core,
            _ => DefaultAction::Terminate,
        }
    }

    /// Whether raising it does something, apart from what its delivery does: stops and continues cancel each other.
    #[must_use]
    pub const fn acts_when_raised(self) -> bool {
        matches!(self, Signal::KILL | Signal::STOP | Signal::CONT | Signal::TSTP | Signal::TTIN | Signal::TTOU)
    }

    /// Whether each that is sent waits for itself.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        self.0 >= REAL_TIME_FIRST
    }

    /// Whether it can be neither caught, blocked nor ignored.
    #[must_use]
    pub const fn is_unstoppable(self) -> bool {
        matches!(self, Signal::KILL | Signal::STOP)
    }
}

/// What a signal does when the program has not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// The signal is discarded.
    Ignore,
    /// The process ends.
    Terminate,
    /// The process ends, and Linux would write a core file.
    Core,
    /// The process stops.
    Stop,
    /// A stopped process goes on.
    Continue,
}

/// A set of signals: bit n-1 is signal n, as in the Linux ABI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// No signal.
    pub const EMPTY: SignalSet = SignalSet(0);
    /// The two that cannot be blocked.
    pub const UNSTOPPABLE: SignalSet = SignalSet(Signal::KILL.bit().0 | Signal::STOP.bit().0);

    /// Whether `signal` is a member.
    #[must_use]
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & signal.bit().0 != 0
    }

    /// Members of either.
    #[must_use]
    pub const fn union(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 | other.0)
    }

    /// Members of `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 & !other.0)
    }

    /// Whether there is no member.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The member to act on first: faults before all else, then the lowest number.
    #[must_use]
    pub fn first(self) -> Option<Signal> {
        const SYNCHRONOUS: u64 = Signal::SEGV.bit().0
            | Signal::BUS.bit().0
            | Signal::ILL.bit().0
            | Signal::TRAP.bit().0
            | Signal::FPE.bit().0
            | Signal::SYS.bit().0;
        let from = if self.0 & SYNCHRONOUS != 0 { self.0 & SYNCHRONOUS } else { self.0 };
        (from != 0).then(|| Signal(from.trailing_zeros() as u8 + 1))
    }
}

/// What came with a signal: the parts of `siginfo_t` after the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalInfo {
    /// `si_code`.
    pub code: i32,
    /// `si_errno`.
    pub errno: i32,
    /// What the code says it is.
    pub payload: SignalPayload,
}

/// The union in `siginfo_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignalPayload {
    /// No payload.
    #[default]
    None,
    /// Sender, and a value for queued signals.
    Sender {
        /// Process.
        pid: u32,
        /// User.
        uid: u32,
        /// `si_value`.
        value: u64,
    },
    /// A fault's address.
    Fault {
        /// `si_addr`.
        address: u64,
    },
    /// A child's change.
    Child {
        /// Process.
        pid: u32,
        /// User.
        uid: u32,
        /// `si_status`.
        status: i32,
    },
    /// A file that is ready.
    File {
        /// `si_band`: poll's events.
        band: u32,
        /// `si_fd`.
        descriptor: i32,
    },
    /// A POSIX timer.
    Timer {
        /// `si_timerid`.
        id: i32,
        /// `si_overrun`.
        overrun: i32,
        /// `si_value`.
        value: u64,
    },
}

/// How a process wants a signal handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disposition {
    /// 0 default, 1 ignore, else the handler's address.
    pub handler: u64,
    /// `SA_*` flags.
    pub flags: u64,
    /// The return trampoline's address (`SA_RESTORER`).
    pub restorer: u64,
    /// Blocked in addition while the handler runs.
    pub mask: SignalSet,
}

/// [`Disposition::handler`]: default action.
pub const HANDLER_DEFAULT: u64 = 0;
/// [`Disposition::handler`]: ignore.
pub const HANDLER_IGNORE: u64 = 1;
/// `SA_RESETHAND`: back to default when the handler is entered.
pub const FLAG_RESET_HANDLER: u64 = 0x8000_0000;
/// `SA_NODEFER`: the signal itself is not blocked in its handler.
pub const FLAG_NO_DEFER: u64 = 0x4000_0000;

/// Every flag: `SA_NOCLDSTOP`, `SA_NOCLDWAIT`, `SA_SIGINFO`, `SA_EXPOSE_TAGBITS`, `SA_RESTORER`, `SA_ONSTACK`,
/// `SA_RESTART`, `SA_NODEFER`, `SA_RESETHAND`.
const FLAGS_KNOWN: u64 = 0xdc00_0807;

/// Signals that wait.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    set: SignalSet,
    /// Standard signals that wait apart from the queue, and the first information of each.
    standard_set: SignalSet,
    standard: [SignalInfo; REAL_TIME_FIRST as usize],
    /// Real-time signals, and signals of timers.
    queue: VecDeque<(Signal, SignalInfo)>,
}

impl Pending {
    /// Signals that are pending.
    #[must_use]
    pub const fn set(&self) -> SignalSet {
        self.set
    }

    /// How many wait with an information of their own beside the standard ones and those of timers.
    #[must_use]
    pub fn queued_count(&self) -> usize {
        self.queue.iter().filter(|(_, info)| !matches!(info.payload, SignalPayload::Timer { .. })).count()
    }

    /// Adds a signal. `EAGAIN`: the real-time queue is full.
    pub fn raise(&mut self, signal: Signal, info: SignalInfo) -> Result<()> {
        if signal.0 < REAL_TIME_FIRST {
            if !self.standard_set.contains(signal) {
                self.standard[usize::from(signal.0)] = info;
            }
            self.standard_set = self.standard_set.union(signal.bit());
        } else {
            if self.queue.len() >= QUEUE_COUNT_MAX {
                return Err(Errno::EAGAIN);
            }
            self.queue.push_back((signal, info));
        }
        self.set = self.set.union(signal.bit());
        Ok(())
    }

    /// Adds a timer's signal: one instance for each timer, whatever else waits. A process's timers bound their number.
    pub fn raise_timer(&mut self, signal: Signal, info: SignalInfo) {
        let number = |info: &SignalInfo| match info.payload {
            SignalPayload::Timer { id, .. } => Some(id),
            _ => None,
        };
        if !self.queue.iter().any(|(_, queued)| number(queued).is_some() && number(queued) == number(&info)) {
            self.queue.push_back((signal, info));
            self.set = self.set.union(signal.bit());
        }
    }

    /// Takes the first signal that is in `allowed`.
    pub fn take(&mut self, allowed: SignalSet) -> Option<(Signal, SignalInfo)> {
        let signal = SignalSet(self.set.0 & allowed.0).first()?;
        let taken = if self.standard_set.contains(signal) {
            self.standard_set = self.standard_set.without(signal.bit());
            (signal, self.standard[usize::from(signal.0)])
        } else {
            let index = self.queue.iter().position(|(queued, _)| *queued == signal)?;
            self.queue.remove(index)?
        };
        if self.queue.is_empty() || !self.queue.iter().any(|(queued, _)| *queued == signal) {
            self.set = self.set.without(signal.bit());
        }
        Some(taken)
    }

    /// Forgets every instance of the signals in `set`.
    pub fn discard(&mut self, set: SignalSet) {
        self.set = self.set.without(set);
        self.standard_set = self.standard_set.without(set);
        if !self.queue.is_empty() {
            self.queue.retain(|(signal, _)| !set.contains(*signal));
        }
    }
}

/// Changed dispositions that are found one by one faster than all are walked over.
const CHANGED_COUNT_FEW: u32 = 16;

/// A process's dispositions, and what waits for any of its threads.
#[derive(Clone, Debug)]
pub struct Dispositions {
    actions: [Disposition; SIGNAL_MAX as usize],
    /// Bit n: signal n + 1 may have another disposition than the default.
    changed: u64,
    /// As Linux has it of the first process of a container: a default action does not end or stop it, but for those of
    /// `SIGKILL` and `SIGSTOP`, which processes beside it cannot send it (`spares`), and of its own faults.
    pub is_init: bool,
}

impl Default for Dispositions {
    fn default() -> Self {
        Self { actions: [Disposition::default(); SIGNAL_MAX as usize], changed: 0, is_init: false }
    }
}

impl Dispositions {
    /// How `signal` is handled.
    #[must_use]
    pub fn get(&self, signal: Signal) -> Disposition {
        self.actions[usize::from(signal.0) - 1]
    }

    /// Changes it. `EINVAL`: it cannot be changed.
    pub fn set(&mut self, signal: Signal, disposition: Disposition) -> Result<()> {
        if signal.is_unstoppable() {
            return Err(Errno::EINVAL);
        }
        let mut disposition = disposition;
        disposition.mask = disposition.mask.without(SignalSet::UNSTOPPABLE);
        // Flags without a meaning are cleared, so that programs find out which there are.
        disposition.flags &= FLAGS_KNOWN;
        self.actions[usize::from(signal.0) - 1] = disposition;
        self.changed |= 1 << (signal.0 - 1);
        Ok(())
    }

    /// Whether raising `signal` would have no effect at all.
    #[must_use]
    pub fn is_ignored(&self, signal: Signal) -> bool {
        match self.get(signal).handler {
            HANDLER_IGNORE => true,
            HANDLER_DEFAULT => {
                matches!(signal.default_action(), DefaultAction::Ignore) || self.is_init && !signal.is_unstoppable()
            }
            _ => false,
        }
    }

    /// Whether processes beside it cannot send it this signal, which is dropped.
    #[must_use]
    pub fn spares(&self, signal: Signal) -> bool {
        self.is_init && signal.is_unstoppable()
    }

    /// As `execve` leaves them: handlers become default, ignored stays ignored.
    pub fn reset_for_exec(&mut self) {
        let reset = |action: &mut Disposition| {
            if action.handler != HANDLER_IGNORE {
                *action = Disposition::default();
            }
        };
        let mut left = self.changed;
        if left.count_ones() > CHANGED_COUNT_FEW {
            self.actions.iter_mut().for_each(reset);
            return;
        }
        while left != 0 {
            reset(&mut self.actions[left.trailing_zeros() as usize]);
            left &= left - 1;
        }
    }
}

/// What a thread must do about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Run the program's handler; the thread's mask is set already, `mask_before` is to be restored on return.
    Handler {
        /// The signal that is delivered.
        signal: Signal,
        /// What the handler gets as `siginfo_t`.
        info: SignalInfo,
        /// Handler and flags.
        disposition: Disposition,
        /// The mask to restore.
        mask_before: SignalSet,
    },
    /// Nothing, but the keeper of the timers must be told that this signal was taken.
    PassedOver {
        /// A timer's.
        info: SignalInfo,
    },
    /// End the process.
    Terminate {
        /// The signal that ends it.
        signal: Signal,
        /// What is known of its cause.
        info: SignalInfo,
        /// Whether Linux would write a core file.
        has_core: bool,
    },
    /// Stop the process.
    Stop(Signal),
}

/// A thread's own part.
#[derive(Clone, Debug, Default)]
pub struct ThreadSignals {
    /// Blocked signals; never holds the unstoppable ones.
    pub mask: SignalSet,
    /// Sent to this thread alone.
    pub pending: Pending,
    /// The mask that `sigsuspend` and its like will put back, if a handler has not run yet.
    pub saved_mask: Option<SignalSet>,
}

impl ThreadSignals {
    /// Replaces the mask.
    pub fn set_mask(&mut self, mask: SignalSet) {
        self.mask = mask.without(SignalSet::UNSTOPPABLE);
    }

    /// Whether anything that waits could be delivered now.
    #[must_use]
    pub fn has_deliverable(&self, shared: &Pending) -> bool {
        !self.pending.set().union(shared.set()).without(self.mask).is_empty()
    }
}

/// Takes the next signal that this thread must act on; ignored ones are passed over. The thread's mask and one-shot
/// dispositions are updated as for entering the handler.
pub fn next(thread: &mut ThreadSignals, shared: &mut Pending, dispositions: &mut Dispositions) -> Option<Delivery> {
    loop {
        let (signal, info) = take(thread, shared)?;
        let delivery = deliver(thread, dispositions, signal, info);
        if delivery.is_some() {
            return delivery;
        }
    }
}

/// Takes the first signal that waits and is not blocked.
#[inline]
pub fn take(thread: &mut ThreadSignals, shared: &mut Pending) -> Option<(Signal, SignalInfo)> {
    let allowed = SignalSet(!thread.mask.0);
    thread.pending.take(allowed).or_else(|| shared.take(allowed))
}

/// What is to be done about a signal that was taken; `None`: it is ignored.
#[inline]
pub fn deliver(
    thread: &mut ThreadSignals,
    dispositions: &mut Dispositions,
    signal: Signal,
    info: SignalInfo,
) -> Option<Delivery> {
    let disposition = dispositions.get(signal);
    let is_timer = matches!(info.payload, SignalPayload::Timer { .. });
    let is_default = disposition.handler == HANDLER_DEFAULT || signal.is_unstoppable();
    if !is_default && disposition.handler != HANDLER_IGNORE {
        let mask_before = enter(thread, dispositions, signal, &disposition);
        return Some(Delivery::Handler { signal, info, disposition, mask_before });
    }
    let is_default = is_default && (!dispositions.is_init || signal.is_unstoppable());
    match signal.default_action() {
        DefaultAction::Stop if is_default => Some(Delivery::Stop(signal)),
        DefaultAction::Terminate if is_default => Some(Delivery::Terminate { signal, info, has_core: false }),
        DefaultAction::Core if is_default => Some(Delivery::Terminate { signal, info, has_core: true }),
        _ => is_timer.then_some(Delivery::PassedOver { info }),
    }
}

/// The mask and a one-shot disposition as for entering the handler; the mask to restore.
#[inline]
fn enter(
    thread: &mut ThreadSignals,
    dispositions: &mut Dispositions,
    signal: Signal,
    disposition: &Disposition,
) -> SignalSet {
    let mask_before = thread.saved_mask.take().unwrap_or(thread.mask);
    let mut mask = thread.mask.union(disposition.mask);
    if disposition.flags & FLAG_NO_DEFER == 0 {
        mask = mask.union(signal.bit());
    }
    thread.set_mask(mask);
    if disposition.flags & FLAG_RESET_HANDLER != 0 {
        dispositions.actions[usize::from(signal.0) - 1].handler = HANDLER_DEFAULT;
    }
    mask_before
}

/// As raising `signal` for the thread and then [`next`], for a thread for which nothing else is deliverable: how it is
/// handled, and the mask to restore. `None`: no handler would run, and nothing was done.
#[inline(always)]
pub fn catch(
    thread: &mut ThreadSignals,
    dispositions: &mut Dispositions,
    signal: Signal,
) -> Option<(Disposition, SignalSet)> {
    let disposition = dispositions.get(signal);
    if thread.mask.contains(signal) || matches!(disposition.handler, HANDLER_DEFAULT | HANDLER_IGNORE) {
        return None;
    }
    let mask_before = enter(thread, dispositions, signal, &disposition);
    Some((disposition, mask_before))
}

/// Raises a fault of the thread's own: if the program blocks or ignores it, it cannot go on, so the default action is
/// forced.
pub fn force(thread: &mut ThreadSignals, dispositions: &mut Dispositions, signal: Signal, info: SignalInfo) {
    let disposition = dispositions.get(signal);
    if thread.mask.contains(signal) || disposition.handler == HANDLER_IGNORE {
        dispositions.actions[usize::from(signal.0) - 1] = Disposition::default();
        thread.mask = thread.mask.without(signal.bit());
    }
    if dispositions.get(signal).handler == HANDLER_DEFAULT {
        dispositions.is_init = false;
    }
    thread.pending.discard(signal.bit());
    // A standard signal always finds its place, and every fault is one.
    let _ = thread.pending.raise(signal, info);
}

#[cfg(test)]
mod tests {
    use super::{
        Delivery, Disposition, Dispositions, FLAG_NO_DEFER, FLAG_RESET_HANDLER, HANDLER_IGNORE, Pending,
        QUEUE_COUNT_MAX, Signal, SignalInfo, SignalPayload, SignalSet, ThreadSignals, catch, force, next,
    };
    use crate::error::Errno;

    #[test]
    fn timers_queue_once_each_also_beside_a_signal_that_waits() {
        let timer =
            |id| SignalInfo { payload: SignalPayload::Timer { id, overrun: 0, value: 7 }, ..Default::default() };
        let mut pending = Pending::default();
        pending.raise(Signal::ALRM, SignalInfo::default()).unwrap();
        for id in [1, 2, 1] {
            pending.raise_timer(Signal::ALRM, timer(id));
        }
        let any = SignalSet(u64::MAX);
        let taken = [(); 4].map(|()| pending.take(any).map(|(_, info)| info));
        assert_eq!(taken, [Some(SignalInfo::default()), Some(timer(1)), Some(timer(2)), None]);
        assert!(pending.set().is_empty());
        let (mut thread, mut pending, mut dispositions) = state();
        pending.raise_timer(Signal::CHLD, timer(3));
        assert_eq!(next(&mut thread, &mut pending, &mut dispositions), Some(Delivery::PassedOver { info: timer(3) }));
    }

    fn state() -> (ThreadSignals, Pending, Dispositions) {
        (ThreadSignals::default(), Pending::default(), Dispositions::default())
    }

    fn handler(flags: u64) -> Disposition {
        Disposition { handler: 0x1000, flags, ..Disposition::default() }
    }

    #[test]
    fn numbers_outside_the_range_are_refused() {
        assert_eq!(Signal::new(0), Err(Errno::EINVAL));
        assert_eq!(Signal::new(65), Err(Errno::EINVAL));
        assert_eq!(Signal::new(64).map(Signal::number), Ok(64));
    }

    #[test]
    fn standard_signals_do_not_queue_and_keep_the_first_information() {
        let (_, mut pending, _) = state();
        let first = SignalInfo { code: 1, ..SignalInfo::default() };
        let second = SignalInfo { code: 2, ..SignalInfo::default() };
        assert_eq!(pending.raise(Signal::USR1, first), Ok(()));
        assert_eq!(pending.raise(Signal::USR1, second), Ok(()));
        assert_eq!(pending.take(SignalSet(u64::MAX)), Some((Signal::USR1, first)));
        assert_eq!(pending.take(SignalSet(u64::MAX)), None);
    }

    #[test]
    fn real_time_signals_queue_in_order_up_to_the_limit() {
        let (_, mut pending, _) = state();
        let signal = Signal::new(40).expect("in range");
        for code in 0..QUEUE_COUNT_MAX as i32 {
            assert_eq!(pending.raise(signal, SignalInfo { code, ..SignalInfo::default() }), Ok(()));
        }
        assert_eq!(pending.raise(signal, SignalInfo::default()), Err(Errno::EAGAIN));
        for code in 0..QUEUE_COUNT_MAX as i32 {
            assert_eq!(pending.take(SignalSet(u64::MAX)).map(|(_, info)| info.code), Some(code));
        }
        assert!(pending.set().is_empty());
    }

    #[test]
    fn a_handler_blocks_its_own_signal_unless_told_not_to() {
        for (flags, blocked) in [(0, true), (FLAG_NO_DEFER, false)] {
            let (mut thread, mut shared, mut dispositions) = state();
            dispositions.set(Signal::INT, handler(flags)).expect("can be caught");
            shared.raise(Signal::INT, SignalInfo::default()).expect("fits");
            let delivery = next(&mut thread, &mut shared, &mut dispositions);
            assert!(matches!(delivery, Some(Delivery::Handler { signal: Signal::INT, .. })), "{delivery:?}");
            assert_eq!(thread.mask.contains(Signal::INT), blocked);
        }
    }

    #[test]
    fn what_is_caught_at_once_is_as_if_it_had_waited() {
        for flags in [0, FLAG_NO_DEFER, FLAG_RESET_HANDLER] {
            for (mask, has_handler) in
                [(0, true), (Signal::HUP.bit().0, true), (Signal::USR1.bit().0, true), (0, false)]
            {
                let (mut thread, mut shared, mut dispositions) = state();
                let disposition = Disposition { mask: Signal::INT.bit(), ..handler(flags) };
                if has_handler {
                    dispositions.set(Signal::USR1, disposition).expect("can be caught");
                }
                thread.set_mask(SignalSet(mask));
                let (mut at_once, mut at_once_dispositions) = (thread.clone(), dispositions.clone());
                let caught = catch(&mut at_once, &mut at_once_dispositions, Signal::USR1);
                thread.pending.raise(Signal::USR1, SignalInfo::default()).expect("fits");
                match next(&mut thread, &mut shared, &mut dispositions) {
                    Some(Delivery::Handler { disposition, mask_before, .. }) => {
                        assert_eq!(caught, Some((disposition, mask_before)));
                        assert_eq!(at_once.mask, thread.mask);
                        assert_eq!(at_once_dispositions.get(Signal::USR1), dispositions.get(Signal::USR1));
                    }
                    other => {
                        assert_eq!(caught, None, "{other:?}");
                        assert_eq!(at_once.mask, SignalSet(mask), "nothing was done");
                    }
                }
            }
        }
    }

    #[test]
    fn a_one_shot_handler_is_default_the_second_time() {
        let (mut thread, mut shared, mut dispositions) = state();
        dispositions.set(Signal::TERM, handler(FLAG_RESET_HANDLER | FLAG_NO_DEFER)).expect("can be caught");
        shared.raise(Signal::TERM, SignalInfo::default()).expect("fits");
        assert!(matches!(next(&mut thread, &mut shared, &mut dispositions), Some(Delivery::Handler { .. })));
        shared.raise(Signal::TERM, SignalInfo::default()).expect("fits");
        assert!(matches!(
            next(&mut thread, &mut shared, &mut dispositions),
            Some(Delivery::Terminate { signal: Signal::TERM, has_core: false, .. })
        ));
    }

    #[test]
    fn a_blocked_signal_waits_and_a_blocked_fault_kills() {
        let (mut thread, mut shared, mut dispositions) = state();
        dispositions.set(Signal::SEGV, handler(0)).expect("can be caught");
        thread.set_mask(SignalSet(u64::MAX));
        assert!(!thread.mask.contains(Signal::KILL));
        shared.raise(Signal::USR1, SignalInfo::default()).expect("fits");
        assert_eq!(next(&mut thread, &mut shared, &mut dispositions), None);
        force(&mut thread, &mut dispositions, Signal::SEGV, SignalInfo::default());
        assert!(matches!(
            next(&mut thread, &mut shared, &mut dispositions),
            Some(Delivery::Terminate { signal: Signal::SEGV, has_core: true, .. })
        ));
    }

    #[test]
    fn the_first_process_of_a_container_ends_by_its_handlers_and_faults_and_by_the_outside() {
        let (mut thread, mut shared, mut dispositions) = state();
        dispositions.is_init = true;
        for signal in [Signal::TERM, Signal::TSTP, Signal::ABRT] {
            assert!(dispositions.is_ignored(signal) && !dispositions.spares(signal));
            // One that waited while it was blocked, or while it had a handler.
            shared.raise(signal, SignalInfo::default()).expect("fits");
            assert_eq!(next(&mut thread, &mut shared, &mut dispositions), None);
        }
        dispositions.set(Signal::TERM, handler(0)).expect("can be caught");
        shared.raise(Signal::TERM, SignalInfo::default()).expect("fits");
        let delivery = next(&mut thread, &mut shared, &mut dispositions);
        assert!(matches!(delivery, Some(Delivery::Handler { signal: Signal::TERM, .. })));
        assert!(dispositions.spares(Signal::KILL) && !dispositions.is_ignored(Signal::KILL));
        shared.raise(Signal::KILL, SignalInfo::default()).expect("fits");
        let delivery = next(&mut thread, &mut shared, &mut dispositions);
        assert!(matches!(delivery, Some(Delivery::Terminate { signal: Signal::KILL, .. })));
        force(&mut thread, &mut dispositions, Signal::SEGV, SignalInfo::default());
        let delivery = next(&mut thread, &mut shared, &mut dispositions);
        assert!(matches!(delivery, Some(Delivery::Terminate { signal: Signal::SEGV, .. })));
    }

    #[test]
    fn ignored_signals_are_passed_over_and_kill_cannot_be_changed() {
        let (mut thread, mut shared, mut dispositions) = state();
        let ignore = Disposition { handler: HANDLER_IGNORE, ..Disposition::default() };
        assert_eq!(dispositions.set(Signal::KILL, ignore), Err(Errno::EINVAL));
        dispositions.set(Signal::HUP, ignore).expect("can be ignored");
        shared.raise(Signal::HUP, SignalInfo::default()).expect("fits");
        shared.raise(Signal::CHLD, SignalInfo::default()).expect("fits");
        assert_eq!(next(&mut thread, &mut shared, &mut dispositions), None);
    }

    #[test]
    fn sigsuspends_mask_is_what_the_handler_returns_to() {
        let (mut thread, mut shared, mut dispositions) = state();
        let before = Signal::USR2.bit();
        thread.saved_mask = Some(before);
        thread.set_mask(SignalSet::EMPTY);
        dispositions.set(Signal::USR1, handler(0)).expect("can be caught");
        shared.raise(Signal::USR1, SignalInfo::default()).expect("fits");
        assert!(matches!(
            next(&mut thread, &mut shared, &mut dispositions),
            Some(Delivery::Handler { mask_before, .. }) if mask_before == before
        ));
    }
}

//! A process and a thread as Linux programs know them. Locks are taken in the order of the fields.
//!
//! Life: `crate::task::processes` holds every process until it is waited for. A process ends when [`Process::end`] was
//! called; its threads then leave one by one (`crate::task::exit`), and the last gives files and memory back. Whatever
//! wakes a thread goes through its task, so no wake is lost.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use exos::fs::location::Location;
use exos::fs::namespace::Namespace;
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::sync::Mutex;
use exos::task::futex::FutexWaiter;
use exos::task::limits::Limits;
use exos::task::schedule::Task;
use exos::task::signal::{Dispositions, Pending, Signal, SignalInfo, SignalSet, ThreadSignals};
use exos::task::timer::TimerTable;
use exos::task::weight;

use crate::abi::linux::{SCHED_IDLE, SCHED_RESET_ON_FORK};
use crate::file::seen_descriptors::SeenDescriptors;
use crate::task::identities::Identities;
use crate::task::pause::Pause;
use crate::task::signal_frame::AlternateStack;
use crate::task::system::System;
use crate::task::used_time::{GoneTimes, ThreadTime, UsedTime};

/// The first process; its end is the run's.
pub const FIRST_PID: u32 = 1;
/// The parent of orphans, as that of the first process: exos itself, which forgets them when they end.
pub const NO_PARENT: u32 = 0;
/// What a timer may be late by, of a process that has not said otherwise (`PR_SET_TIMERSLACK`).
pub const TIMER_SLACK_NS: u64 = 50_000;
/// `ADDR_NO_RANDOMIZE`, a bit of a personality: programs lie where they always lie.
pub const ADDR_NO_RANDOMIZE: u32 = 0x4_0000;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By `exit` with this status.
    Exited(u8),
    /// By a signal; the text is the line for the user.
    Killed {
        /// The signal that ended it.
        signal: Signal,
        /// Whether Linux would have written a core file.
        has_core: bool,
        /// What happened, where; may be empty.
        text: alloc::string::String,
    },
}

/// The process's part of signal handling.
#[derive(Default)]
pub struct ProcessSignals {
    /// Handlers.
    pub dispositions: Dispositions,
    /// Sent to the process as a whole.
    pub pending: Pending,
}

/// What `/proc/PID` tells of the program.
#[derive(Clone, Default)]
pub struct Image {
    /// Absolute path of the executable.
    pub executable: Vec<u8>,
    /// Where the executable is.
    pub location: Option<Location>,
    /// As seen from where, and in which generation of the name space, `executable` was that place's path.
    pub named: Option<(Location, u64)>,
    /// Keeps the executable from being written.
    pub running: Option<Arc<exos::fs::page::RunningFile>>,
    /// Words of the command line (`argv`).
    pub arguments: Vec<Vec<u8>>,
    /// Lines `NAME=VALUE` (`envp`).
    pub environment: Vec<Vec<u8>>,
    /// Auxiliary vector as on the stack.
    pub auxiliary: Vec<u8>,
    /// First and last address of the stack's top part, the code, the data and the break: `/proc/PID/stat`.
    pub start_stack: u64,
}

impl Image {
    /// The path of the executable as seen from `root`, if it is known without a look.
    #[must_use]
    pub fn known_path(&self, namespace: &Namespace, root: &Location) -> Option<&[u8]> {
        let (seen_from, generation) = self.named.as_ref()?;
        let has_name = self.location.as_ref().is_some_and(|location| !location.is_deleted());
        let is_same = has_name && *generation == namespace.generation() && seen_from == root;
        is_same.then_some(&*self.executable)
    }
}

/// A process: threads with one number, memory, descriptors and signals.
pub struct Process {
    /// How often its system-call sites trap.
    pub traps: crate::entry::hot_sites::TrapCounts,
    /// Process number.
    pub pid: u32,
    /// Its parent's number; 0 for the first. Written by the table of processes alone.
    pub parent: AtomicU32,
    /// The timer looks at it when it rings: written by the table of processes alone.
    pub is_timed: AtomicBool,
    /// The signal that its parent gets when it ends, 0 for none.
    pub exit_signal: AtomicU8,
    /// The thread that made it, whose child it is for `__WNOTHREAD` as long as that thread is there.
    pub maker: AtomicU32,
    /// Its threads that have not ended.
    pub threads: Mutex<Vec<Arc<Thread>>>,
    /// Process group.
    pub group: Mutex<u32>,
    /// Number of its session.
    pub session: Mutex<u32>,
    /// Its control group's number (`exos::fs::group_fs`).
    pub control_group: AtomicU64,
    /// Its memory: shared with its parent from `vfork` to `execve`, replaced by `execve`, empty when it has ended.
    memory: Mutex<Arc<crate::task::memory::Space>>,
    /// The number of that address space: changes under the lock of `memory`.
    space_number: AtomicU64,
    /// Its descriptors, current and root directory.
    pub files: crate::file::files::ProcessFiles,
    /// What its threads do on the way.
    pub work: crate::task::work::WorkList,
    /// Its signals. Taken after a thread's.
    pub signals: Mutex<ProcessSignals>,
    /// Resource limits (`RLIMIT_*`).
    pub limits: Mutex<Limits>,
    /// Its identity to others: its first thread's, or that of the only one that is left. Taken after a thread's;
    /// written by [`Thread::change_identities`] alone.
    pub identities: Mutex<Identities>,
    /// The program that it runs.
    pub image: Mutex<Arc<Image>>,
    /// `ITIMER_REAL`, `ITIMER_VIRTUAL`, `ITIMER_PROF`; the last two in processor time.
    pub interval_timers: Mutex<[crate::abi::time::IntervalTimer; 3]>,
    /// The timers of `timer_create`. Taken without a lock of the signals.
    pub timers: Mutex<TimerTable>,
    /// How it ended, once it has.
    pub ending: Mutex<Option<Ending>>,
    /// When it started (monotonic).
    pub start_ns: u64,
    /// Its own among all processes and threads that were ever begun: numbers are given again.
    pub birth: u64,
    /// Whether it is stopped, and what its parent was told of it.
    pub pause: Mutex<Pause>,
    /// Whether and how its parent traces it.
    pub trace: crate::task::tracer::Trace,
    /// Processor time.
    pub times: Mutex<GoneTimes>,
    /// Most memory that it had at once in what it has left.
    peak_bytes: AtomicU64,
    /// FaultReport when a child ends, stops or continues, and when it is continued itself.
    pub changes: Arc<WaitQueue>,
    /// Its memory is its parent's, which waits for it to let go.
    pub borrows_memory: AtomicBool,
    /// All threads have ended and files and memory are given back: only the number and the ending are left.
    pub is_zombie: AtomicBool,
    /// Somebody takes it out of all tables, once ([`crate::task::exit::claim`]).
    pub is_claimed: AtomicBool,
    /// It has called `pkey_alloc`, which changes what the next one says.
    pub was_key_asked: AtomicBool,
    /// It has called `execve`: a parent may not change its group any more.
    pub has_executed: AtomicBool,
    /// `PR_SET_CHILD_SUBREAPER`.
    pub is_subreaper: AtomicBool,
    /// The signal that it gets when its parent ends, 0 for none.
    pub parent_death_signal: AtomicU8,
    /// `/proc/PID/oom_score_adj`.
    pub out_of_memory_adjust: Mutex<i32>,
    /// `personality(2)`.
    pub persona: AtomicU32,
    /// It may ask for barriers among its threads (`membarrier`).
    pub has_registered_barriers: AtomicBool,
    /// `PR_SET_THP_DISABLE`; its memory knows it, too.
    pub has_no_large_pages: AtomicBool,
    /// It was killed so that others have memory.
    pub was_chosen_to_end: AtomicBool,
    /// It has given up the terminal that its session has (`TIOCNOTTY`).
    pub has_left_terminal: AtomicBool,
    /// It has handled faults of its own ([`crate::task::fault_handler`]), so that its faults are offered to it first.
    pub has_handled_faults: AtomicBool,
}

/// What [`Thread::flags`] has bits for.
pub mod thread_flag {
    /// It writes back what others' memory is waiting for (`PR_SET_IO_FLUSHER`).
    pub const IO_FLUSHER: u8 = 1;
    /// It has said when it is told of broken memory (`PR_MCE_KILL_SET`).
    pub const MCE_PROCESS: u8 = 2;
    /// At once.
    pub const MCE_EARLY: u8 = 4;
}

/// A thread of a process.
pub struct Thread {
    /// Its number; changes where it becomes its process's first ([`Thread::become_first`]).
    number: AtomicU32,
    /// See [`Process::birth`].
    pub birth: u64,
    /// What it may ask about itself without a lock; published whenever the fields that it repeats change.
    pub facts: crate::task::facts::Facts,
    /// Its users, groups and capabilities. Changed by [`Thread::change_identities`].
    pub identities: Mutex<Identities>,
    /// What the scheduler knows of it.
    pub task: Arc<Task>,
    /// It has called `exit`, or its process replaces it.
    pub is_ending: AtomicBool,
    /// It has given up the locks that it held, and its number names no holder any more.
    pub has_left_locks: AtomicBool,
    /// It does its process's work ([`crate::task::work`]).
    pub is_at_work: AtomicBool,
    /// Something may have to be done before its program goes on: see [`Thread::call_attention`].
    needs_attention: AtomicBool,
    /// Processor time that it has used.
    pub time: ThreadTime,
    /// Its signals. Taken before the process's.
    pub signals: Mutex<ThreadSignals>,
    /// Its scheduling policy as it was set: one of those without a priority. After a change [`Thread::weigh`] is
    /// called.
    pub policy: AtomicU32,
    /// Its nice value. After a change [`Thread::weigh`] is called.
    pub nice: AtomicI32,
    /// Until when a call of its waits that starts again.
    pub resumption: Resumption,
    /// Its priority of input and output as it was set; nobody acts on it.
    pub io_priority: AtomicU32,
    /// `PR_SET_TIMERSLACK`; timers here are exact.
    pub timer_slack_ns: AtomicU64,
    /// [`thread_flag`]s that were set, which change nothing here.
    pub flags: AtomicU8,
    /// Where its memory is to come from; there is only one place.
    pub memory_policy: Mutex<crate::task::memory_policy::MemoryPolicy>,
    /// What it waits for words of memory with.
    pub futex: Arc<FutexWaiter<Task>>,
    /// While it is stopped: the call that it has not come back from to its program, if there is one.
    pub stopped_in: Mutex<Option<Option<u64>>>,
    /// Alternate signal stack.
    pub stack: Mutex<AlternateStack>,
    /// Its name, at most 15 bytes.
    pub name: Mutex<Vec<u8>>,
    /// `set_tid_address`.
    pub clear_tid_address: Mutex<u64>,
    /// `set_robust_list`: head and length.
    pub robust_list: Mutex<(u64, u64)>,
    /// Descriptors that it used lately. Its own.
    pub seen_descriptors: SeenDescriptors,
}

/// The next [`Process::birth`]; never 0.
fn next_birth() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The number of an address space.
fn number_of(space: &crate::task::memory::Space) -> u64 {
    u64::from(space.slot().0)
}

/// The end of the time of a call that was interrupted and is about to start again. Only the thread itself asks.
#[derive(Default)]
pub struct Resumption {
    /// Monotonic; 0: no call.
    deadline_ns: AtomicU64,
    /// The program's stack pointer, which tells the call from others that a handler makes before.
    rsp: AtomicU64,
}

impl Resumption {
    /// The call that is made with this stack pointer starts again.
    pub fn set(&self, rsp: u64, deadline_ns: u64) {
        self.rsp.store(rsp, Ordering::Relaxed);
        self.deadline_ns.store(deadline_ns.max(1), Ordering::Relaxed);
    }

    /// A handler runs before the call: it has its time anew.
    pub fn forget(&self) {
        self.deadline_ns.store(0, Ordering::Relaxed);
    }

    /// When the call was to be over that is made with this stack pointer, if it starts again.
    #[must_use]
    #[inline]
    pub fn take(&self, rsp: u64) -> Option<u64> {
        let deadline_ns = self.deadline_ns.load(Ordering::Relaxed);
        if deadline_ns == 0 || self.rsp.load(Ordering::Relaxed) != rsp {
            return None;
        }
        self.deadline_ns.store(0, Ordering::Relaxed);
        Some(deadline_ns)
    }
}

/// How a process comes about: what differs from one to the next.
pub struct Birth {
    /// Process number.
    pub pid: u32,
    /// Parent's process number.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// Session that it is born into.
    pub session: u32,
    /// Address space that it begins with.
    pub memory: Arc<crate::task::memory::Space>,
    /// Descriptors and directories that it begins with.
    pub files: crate::file::files::ProcessFiles,
    /// Its users, groups and capabilities.
    pub identities: Identities,
    /// When it starts (monotonic).
    pub start_ns: u64,
}

impl Process {
    /// A process without threads, with default limits and signal handling.
    #[must_use]
    pub fn new(birth: Birth) -> Self {
        Self {
            traps: crate::entry::hot_sites::TrapCounts::default(),
            pid: birth.pid,
            parent: AtomicU32::new(birth.parent),
            is_timed: AtomicBool::new(false),
            exit_signal: AtomicU8::new(Signal::CHLD.number()),
            peak_bytes: AtomicU64::new(0),
            maker: AtomicU32::new(0),
            threads: Mutex::default(),
            group: Mutex::new(birth.group),
            session: Mutex::new(birth.session),
            control_group: AtomicU64::new(exos::fs::group_fs::tree::ROOT),
            space_number: AtomicU64::new(number_of(&birth.memory)),
            memory: Mutex::new(birth.memory),
            files: birth.files,
            work: crate::task::work::WorkList::default(),
            signals: Mutex::default(),
            limits: Mutex::new(Limits::default()),
            identities: Mutex::new(birth.identities),
            image: Mutex::default(),
            interval_timers: Mutex::default(),
            timers: Mutex::default(),
            ending: Mutex::new(None),
            start_ns: birth.start_ns,
            birth: next_birth(),
            pause: Mutex::default(),
            trace: crate::task::tracer::Trace::default(),
            times: Mutex::default(),
            changes: WaitQueue::new(),
            borrows_memory: AtomicBool::new(false),
            is_zombie: AtomicBool::new(false),
            is_claimed: AtomicBool::new(false),
            was_key_asked: AtomicBool::new(false),
            has_executed: AtomicBool::new(false),
            is_subreaper: AtomicBool::new(false),
            parent_death_signal: AtomicU8::new(0),
            out_of_memory_adjust: Mutex::new(0),
            persona: AtomicU32::new(0),
            has_registered_barriers: AtomicBool::new(false),
            has_no_large_pages: AtomicBool::new(false),
            has_left_terminal: AtomicBool::new(false),
            was_chosen_to_end: AtomicBool::new(false),
            has_handled_faults: AtomicBool::new(false),
        }
    }

    /// The present address space; `execve` replaces it.
    #[must_use]
    pub fn space(&self) -> Arc<crate::task::memory::Space> {
        self.memory.lock().clone()
    }

    /// Looks at its memory; `None` if somebody is just giving it another, or `look` says so.
    #[inline]
    pub fn look_at_space<R>(&self, look: impl FnOnce(&crate::task::memory::Space) -> Option<R>) -> Option<R> {
        let space = self.memory.try_lock()?;
        look(&space)
    }

    /// The number of its memory's address space.
    #[must_use]
    #[inline]
    pub fn space_number(&self) -> u64 {
        self.space_number.load(Ordering::Relaxed)
    }

    /// Gives it other memory; what it had is returned, to be dropped without a lock and by a thread that does not run
    /// in it.
    pub fn replace_space(&self, space: Arc<crate::task::memory::Space>) -> Arc<crate::task::memory::Space> {
        let mut memory = self.memory.lock();
        self.space_number.store(number_of(&space), Ordering::Relaxed);
        core::mem::replace(&mut *memory, space)
    }

    /// The most memory that it had at once, in this program and those before. Of one that has ended it is noted.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        let before_bytes = self.peak_bytes.load(Ordering::Relaxed);
        if self.is_zombie.load(Ordering::Acquire) {
            return before_bytes;
        }
        before_bytes.max(self.space().resident_peak_bytes())
    }

    /// It is about to leave memory of which it had so much at once.
    pub fn note_peak(&self, peak_bytes: u64) {
        self.peak_bytes.fetch_max(peak_bytes, Ordering::Relaxed);
    }

    /// Parent's process number; 0 for none.
    #[must_use]
    pub fn parent(&self) -> u32 {
        self.parent.load(Ordering::Acquire)
    }

    /// Has its threads know their parent.
    pub fn show_parent(&self) {
        for thread in self.threads.lock().iter() {
            thread.facts.parent.store(self.visible_parent(), Ordering::Relaxed);
        }
    }

    /// Its parent as programs see it: an orphan's is 1, as if an `init` had taken it.
    #[must_use]
    pub fn visible_parent(&self) -> u32 {
        match self.parent() {
            NO_PARENT if self.pid != FIRST_PID => 1,
            parent => parent,
        }
    }

    /// Whether it is what a container's first is, which its like cannot kill or stop.
    #[must_use]
    pub fn spares(&self, signal: Signal) -> bool {
        signal.is_unstoppable() && self.signals.lock().dispositions.spares(signal)
    }

    /// Sends a signal to the process as a whole. Ignored signals are dropped as Linux drops them; a full queue is told
    /// (`EAGAIN`). Stop signals and `SIGCONT` cancel each other, and `SIGCONT` continues also where it is blocked.
    pub fn queue(&self, signal: Signal, info: SignalInfo) -> exos::error::Result<()> {
        let _continuing = self.before_raise(signal);
        let is_blocked = self.is_blocked_everywhere(signal);
        {
            let mut signals = self.signals.lock();
            if signals.dispositions.is_ignored(signal) && !is_blocked {
                return Ok(());
            }
            signals.pending.raise(signal, info)?;
        }
        self.notify_signal(signal);
        Ok(())
    }

    /// What counts against its limit of pending signals: its timers, and the signals with an information of their own
    /// that wait for it or for a thread of it.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.queued_count() + self.timers.lock().count()
    }

    /// Signals that wait for the process or a thread of it, each with an information of its own, but for those of
    /// timers.
    #[must_use]
    pub fn queued_count(&self) -> usize {
        // One after the other: a list of them would be memory for each timer that is made. One that ends meanwhile may
        // have another passed over.
        let thread = |index| self.threads.lock().get(index).cloned();
        let threads = (0..).map_while(thread);
        let of_threads: usize = threads.map(|thread: Arc<Thread>| thread.signals.lock().pending.queued_count()).sum();
        of_threads + self.signals.lock().pending.queued_count()
    }

    /// As [`Process::queue`], where a full queue drops the signal.
    pub fn raise(&self, signal: Signal, info: SignalInfo) {
        let _ = self.queue(signal, info);
    }

    /// Sends a timer's signal to the process or to one thread. It is queued even where another instance waits; false:
    /// it is ignored.
    pub fn raise_timer(&self, thread: Option<&Thread>, signal: Signal, info: SignalInfo) -> bool {
        let _continuing = self.before_raise(signal);
        let is_blocked = match thread {
            Some(thread) => thread.signals.lock().mask.contains(signal),
            None => self.is_blocked_everywhere(signal),
        };
        if !is_blocked && self.signals.lock().dispositions.is_ignored(signal) {
            return false;
        }
        match thread {
            Some(thread) => {
                thread.signals.lock().pending.raise_timer(signal, info);
                thread.summon();
            }
            None => {
                self.signals.lock().pending.raise_timer(signal, info);
                self.notify_signal(signal);
            }
        }
        true
    }

    /// Sends a signal to one thread.
    pub fn raise_in_thread(&self, thread: &Thread, signal: Signal, info: SignalInfo) -> exos::error::Result<()> {
        let _continuing = self.before_raise(signal);
        let is_ignored = self.signals.lock().dispositions.is_ignored(signal);
        {
            let mut signals = thread.signals.lock();
            if is_ignored && !signals.mask.contains(signal) {
                return Ok(());
            }
            signals.pending.raise(signal, info)?;
        }
        thread.summon();
        Ok(())
    }

    /// What the raising of stop and continue signals does before the signal waits. What comes after it does when the
    /// answer is dropped: a thread that goes on finds the signal, or it would run on for a while after `SIGKILL`.
    fn before_raise(&self, signal: Signal) -> Option<Continuing<'_>> {
        let stops = [Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU];
        if stops.contains(&signal) {
            self.discard_pending(Signal::CONT.bit());
        }
        if signal != Signal::CONT && signal != Signal::KILL {
            return None;
        }
        self.discard_pending(stops.iter().fold(SignalSet::default(), |set, stop| set.union(stop.bit())));
        Some(Continuing { process: self, signal })
    }

    fn discard_pending(&self, set: SignalSet) {
        for thread in self.thread_list() {
            thread.signals.lock().pending.discard(set);
        }
        self.signals.lock().pending.discard(set);
    }

    fn thread_list(&self) -> Vec<Arc<Thread>> {
        self.threads.lock().clone()
    }

    /// Whether no thread would take `signal` now, or would once a suspended call has put its mask back.
    fn is_blocked_everywhere(&self, signal: Signal) -> bool {
        let threads = self.thread_list();
        let blocks = |thread: &Arc<Thread>| {
            let signals = thread.signals.lock();
            signals.mask.contains(signal) || signals.saved_mask.is_some_and(|mask| mask.contains(signal))
        };
        !threads.is_empty() && threads.iter().all(blocks)
    }

    /// Lets a thread that takes `signal` look at it.
    fn notify_signal(&self, signal: Signal) {
        let threads = self.thread_list();
        // The first thread that looks may take it, also if the mask of the one that is told changes meanwhile.
        threads.iter().for_each(|thread| thread.call_attention());
        let takes = |thread: &&Arc<Thread>| !thread.signals.lock().mask.contains(signal);
        if let Some(thread) = threads.iter().find(takes) {
            thread.task.interrupt();
        }
        // A thread in `sigwait` blocks what it waits for, and may be just about to sleep.
        for thread in threads {
            thread.task.wake_up();
        }
    }

    /// Whether there is something for any of the threads to look at: a signal, a stop, the end.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.has_ended()
            || self.signals.lock().pending.set() != SignalSet::default()
            || self.pause.lock().stopped_by.is_some()
    }

    /// Makes all threads look at the process again.
    pub fn interrupt_threads(&self) {
        for thread in self.thread_list() {
            thread.summon();
        }
    }

    /// Ends the process unless it has ended already; its threads leave as soon as they look.
    pub fn end(&self, ending: Ending) {
        self.ending.lock().get_or_insert(ending);
        self.interrupt_threads();
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ending.lock().is_some()
    }

    /// The thread with that number.
    #[must_use]
    pub fn thread(&self, tid: u32) -> Option<Arc<Thread>> {
        self.threads.lock().iter().find(|thread| thread.tid() == tid).cloned()
    }

    /// Processor time that its threads have used.
    #[must_use]
    pub fn used_ns(&self, now_ns: u64) -> u64 {
        self.used_time(now_ns).whole_ns
    }

    /// The same, with what of it exos used. Under the lock under which a thread that ends goes from sum to sum.
    #[must_use]
    pub fn used_time(&self, now_ns: u64) -> UsedTime {
        let threads = self.threads.lock();
        let running: UsedTime = threads.iter().map(|thread| thread.time.used_time(now_ns)).sum();
        self.times.lock().ended_threads + running
    }
}

/// A process that goes on if it is stopped, once the signal that continues it waits for it.
struct Continuing<'a> {
    process: &'a Process,
    signal: Signal,
}

impl Drop for Continuing<'_> {
    fn drop(&mut self) {
        self.process.pause.lock().go_on(self.signal);
        self.process.changes.notify(Readiness::READ);
        self.process.interrupt_threads();
    }
}

impl Thread {
    /// A thread of `process` that has not started.
    #[must_use]
    pub fn new(tid: u32, process: &Process, identities: Identities, task: Arc<Task>) -> Self {
        Self {
            number: AtomicU32::new(tid),
            facts: crate::task::facts::Facts::new(process.pid, process.visible_parent(), &identities),
            identities: Mutex::new(identities),
            is_ending: AtomicBool::new(false),
            is_at_work: AtomicBool::new(false),
            needs_attention: AtomicBool::new(true),
            time: ThreadTime::default(),
            stopped_in: Mutex::default(),
            birth: next_birth(),
            signals: Mutex::default(),
            policy: AtomicU32::new(0),
            nice: AtomicI32::new(0),
            io_priority: AtomicU32::new(0),
            seen_descriptors: SeenDescriptors::default(),
            has_left_locks: AtomicBool::new(false),
            resumption: Resumption::default(),
            timer_slack_ns: AtomicU64::new(TIMER_SLACK_NS),
            flags: AtomicU8::new(0),
            memory_policy: Mutex::default(),
            futex: FutexWaiter::new(task.clone()),
            task,
            stack: Mutex::new(AlternateStack::default()),
            name: Mutex::default(),
            clear_tid_address: Mutex::new(0),
            robust_list: Mutex::new((0, 0)),
        }
    }

    /// Thread number.
    #[must_use]
    #[inline]
    pub fn tid(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// It is all that is left of its process, and runs another program: it has the process's number from then on, as
    /// the thread has with which a program begins. Its own is free.
    pub fn become_first(self: &Arc<Self>, system: &System, process: &Process) {
        let before = self.number.swap(process.pid, Ordering::Relaxed);
        system.listing.set_first(process.pid, self.clone());
        system.processes.give_number(before);
    }

    /// Has the thread look at its signals and at its process's end and pause before its program goes on. Called after
    /// every change that can give it something to do there: a signal raised, a mask changed, an end, a stop. A caller
    /// that is not the thread itself also interrupts it ([`Thread::summon`]).
    pub fn call_attention(&self) {
        self.needs_attention.store(true, Ordering::Release);
    }

    /// As [`Thread::call_attention`], and makes it look soon: it is woken, or its program interrupted.
    pub fn summon(&self) {
        self.call_attention();
        self.task.interrupt();
    }

    /// Whether there may be something to look at: false means that there is nothing.
    #[must_use]
    #[inline]
    pub fn needs_attention(&self) -> bool {
        self.needs_attention.load(Ordering::Acquire)
    }

    /// The look begins: what changes from now on calls anew.
    pub fn take_attention(&self) {
        self.needs_attention.swap(false, Ordering::AcqRel);
    }

    /// Changes the thread's identity; if it stands for the process, the process's with it. What the thread did as
    /// another user, or with less than it has now, only root may look into from then on.
    pub fn change_identities<T>(
        &self,
        system: &System,
        process: &Process,
        change: impl FnOnce(&mut Identities) -> exos::error::Result<T>,
    ) -> exos::error::Result<T> {
        let stands_for_process = self.tid() == process.pid || process.threads.lock().len() == 1;
        let mut identities = self.identities.lock();
        let before = (identities.acts_as(), identities.capabilities.permitted);
        let answer = change(&mut identities)?;
        if identities.acts_as() != before.0 || !identities.capabilities.permitted.is_within(before.1) {
            // Before others see the new ones: a process of the same user finds it closed already.
            process.space().set_dumpable(system.listing.dumpable_of_changed());
            process.parent_death_signal.store(0, Ordering::Relaxed);
        }
        self.facts.publish(&identities);
        if stands_for_process {
            process.identities.lock().clone_from(&identities);
        }
        Ok(answer)
    }

    /// Nice value, -20 to 19.
    #[must_use]
    pub fn nice(&self) -> i32 {
        self.nice.load(Ordering::Relaxed)
    }

    /// Has it weigh what its policy and nice value say.
    pub fn weigh(&self) {
        let is_idle = self.policy.load(Ordering::Relaxed) & !SCHED_RESET_ON_FORK == SCHED_IDLE;
        let weight = if is_idle { weight::WEIGHT_IDLE } else { weight::of_nice(self.nice()) };
        self.task.set_weight(weight);
    }

    /// Replaces the mask; what was kept back and is not any more calls for attention.
    pub fn set_mask(&self, process: &Process, mask: SignalSet) {
        let mut signals = self.signals.lock();
        signals.set_mask(mask);
        if signals.has_deliverable(&process.signals.lock().pending) {
            self.call_attention();
        }
    }
}

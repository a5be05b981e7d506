//! A process and a thread as Linux programs know them. Locks are taken in the order of the fields.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::sync::Mutex;
use exos::task::limits::Limits;
use exos::task::signal::{Dispositions, Pending, Signal, SignalInfo, ThreadSignals};

use crate::signal_frame::AlternateStack;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By `exit` with this status.
    Exited(u8),
    /// By a signal; the text is the line for the user.
    Killed {
        /// Which.
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

/// User and group identities; one user namespace, in which uid 0 may do all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// Real, effective and saved user, and the user for files.
    pub uid: [u32; 4],
    /// Real, effective and saved group, and the group for files.
    pub gid: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// What `/proc/PID` tells of the program.
#[derive(Clone, Default)]
pub struct Image {
    /// Absolute path of the executable.
    pub executable: Vec<u8>,
    /// Where the executable is.
    pub location: Option<exos::fs::location::Location>,
    /// Arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Environment.
    pub environment: Vec<Vec<u8>>,
    /// Auxiliary vector as on the stack.
    pub auxiliary: Vec<u8>,
    /// First and last address of the stack's top part, the code, the data and the break: `/proc/PID/stat`.
    pub start_stack: u64,
}

/// A real-time interval timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntervalTimer {
    /// When it fires next (monotonic), 0 if it does not.
    pub deadline_ns: u64,
    /// The period, 0 for once.
    pub period_ns: u64,
}

/// A process.
pub struct Process {
    /// What it may ask about itself without a lock; published whenever the fields that it repeats change.
    pub facts: crate::facts::Facts,
    /// How often its system-call sites trap.
    pub traps: crate::traps::TrapCounts,
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// Its group.
    pub group: Mutex<u32>,
    /// Its session.
    pub session: Mutex<u32>,
    /// Its memory.
    pub space: Arc<crate::memory::Space>,
    /// Its descriptors, current and root directory.
    pub files: crate::files::ProcessFiles,
    /// Its signals. Taken after a thread's.
    pub signals: Mutex<ProcessSignals>,
    /// Its limits.
    pub limits: Mutex<Limits>,
    /// Who it is.
    pub identities: Mutex<Identities>,
    /// What it runs.
    pub image: Mutex<Image>,
    /// `ITIMER_REAL`.
    pub timer: Mutex<IntervalTimer>,
    /// How it ended, once it has.
    pub ending: Mutex<Option<Ending>>,
    /// When it started (monotonic).
    pub start_ns: u64,
    /// `PR_SET_DUMPABLE`.
    pub is_dumpable: Mutex<bool>,
    /// The nice value.
    pub nice: Mutex<i32>,
}

/// A thread.
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its signals. Taken before the process's.
    pub signals: Mutex<ThreadSignals>,
    /// Its alternate stack.
    pub stack: Mutex<AlternateStack>,
    /// Where its vector state passes through on the way to and from signal frames.
    pub vector: crate::vector_buffer::VectorCache,
    /// Its name, at most 15 bytes.
    pub name: Mutex<Vec<u8>>,
    /// `set_tid_address`.
    pub clear_tid_address: Mutex<u64>,
    /// `set_robust_list`: head and length.
    pub robust_list: Mutex<(u64, u64)>,
}

impl Process {
    /// Sends a signal to the process as a whole. Ignored signals are dropped as Linux drops them; a full queue drops
    /// it too.
    pub fn raise(&self, signal: Signal, info: SignalInfo) {
        let mut signals = self.signals.lock();
        if signals.dispositions.is_ignored(signal) {
            return;
        }
        let _ = signals.pending.raise(signal, info);
    }

    /// Ends the process unless it has ended already.
    pub fn end(&self, ending: Ending) {
        self.ending.lock().get_or_insert(ending);
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ending.lock().is_some()
    }
}

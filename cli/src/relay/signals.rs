//! Signals as readable events, so that one loop can wait for everything.
//!
//! The signals that the tool handles are blocked and read from a `signalfd`; a child gets an empty mask from
//! the standard library. A signal that was ignored when the tool started (`nohup`, background jobs of a plain
//! shell) stays ignored.
#![allow(unsafe_code, reason = "signal masks and signalfd have no safe interface in rustix")]

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// What the tool reads instead of being interrupted.
const HANDLED: [i32; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCHLD,
];

/// What a signal means for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Deliver it to the program; a second one ends the machine.
    Terminate(u8),
    /// Deliver it to the program.
    Forward(u8),
    /// The terminal has another size.
    WindowSize,
    /// Stop, and the machine with it, until continued.
    Suspend,
    /// A child may have ended.
    Child,
}

fn event_of(signal: i32) -> Option<Event> {
    let number = u8::try_from(signal).ok()?;
    Some(match signal {
        libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => Event::Terminate(number),
        libc::SIGUSR1 | libc::SIGUSR2 => Event::Forward(number),
        libc::SIGWINCH => Event::WindowSize,
        libc::SIGTSTP => Event::Suspend,
        libc::SIGCHLD => Event::Child,
        _ => return None,
    })
}

/// The readable end.
#[derive(Debug)]
pub(crate) struct Signals {
    file: File,
}

impl Signals {
    /// Blocks the handled signals for this thread and all it starts. Call it before any other thread exists.
    pub(crate) fn block() -> io::Result<Self> {
        default_child_signal()?;
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the whole set that it is given and cannot fail for a valid
        // pointer.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in HANDLED {
            if signal == libc::SIGCHLD || !is_ignored(signal)? {
                // SAFETY: `set` is an initialised set that we own, `signal` is a valid number.
                unsafe { libc::sigaddset(&raw mut set, signal) };
            }
        }
        // SAFETY: `set` is initialised; a null pointer for the old mask is allowed.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made by `signalfd` and nobody else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { file: File::from(owned) })
    }

    /// The next event, or `None` when there is none at the moment.
    pub(crate) fn next(&mut self) -> io::Result<Option<Event>> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        loop {
            match self.file.read(&mut record) {
                Ok(length) if length == record.len() => {
                    // `ssi_signo` is the first field, 32 bits (signalfd(2)).
                    let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
                    if let Some(event) = event_of(number) {
                        return Ok(Some(event));
                    }
                }
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action only asks; `action` is large enough for the answer.
    let failed = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `sigaction` succeeded and so has filled `action`.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

/// A parent may have left SIGCHLD ignored; then children vanish without a status to read.
fn default_child_signal() -> io::Result<()> {
    // SAFETY: SIG_DFL installs no code; no other thread changes dispositions at this point.
    let previous = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if previous == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{Event, HANDLED, event_of};

    #[test]
    fn every_handled_signal_has_an_event() {
        for signal in HANDLED {
            assert!(event_of(signal).is_some(), "{signal}");
        }
        assert_eq!(event_of(libc::SIGINT), Some(Event::Terminate(2)));
        assert_eq!(event_of(libc::SIGTERM), Some(Event::Terminate(15)));
        assert_eq!(event_of(libc::SIGKILL), None);
    }
}

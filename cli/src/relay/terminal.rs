//! The user's terminal while a program has one of its own (`-t`): every key goes through unchanged, because the line
//! discipline is in the machine.
//!
//! A process has one terminal, so its saved modes are kept once, for the two that put them back: the end of a run and a
//! stop. Standard input that is no terminal is left alone.

use std::io;
use std::sync::Mutex;

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};

/// The modes that the user had, while they are changed.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// Every key goes through as long as this lives.
#[derive(Debug)]
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Begins.
    pub(crate) fn enter() -> io::Result<Self> {
        if isatty(io::stdin()) {
            let modes = tcgetattr(io::stdin())?;
            let mut raw = modes.clone();
            raw.make_raw();
            *SAVED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(modes);
            tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        }
        Ok(Self(()))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        pause();
        *SAVED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }
}

/// Gives the user the modes back that were there before; nothing if they were not changed.
pub(crate) fn pause() {
    if let Some(modes) = &*SAVED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        // A terminal that is gone needs none.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, modes);
    }
}

/// Goes on after [`pause`].
pub(crate) fn resume() {
    if let Some(modes) = &*SAVED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        let mut raw = modes.clone();
        raw.make_raw();
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &raw);
    }
}

//! Keys of a user who watches: `q` ends it.
//!
//! While this lives, the terminal gives each key at once and does not show it; afterwards it is as it was. Ctrl-C ends
//! the tool as ever, so the modes are left alone where standard input is no terminal or belongs to another job.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr};

/// The keyboard of a user who watches.
pub(super) struct Keys {
    /// The modes that there were; `None`: nobody types.
    before: Option<Termios>,
}

impl Keys {
    /// Begins to listen, where a user sits in front of both streams.
    pub(super) fn listen(is_shown: bool) -> Self {
        let input = io::stdin();
        let is_ours = || tcgetpgrp(&input).is_ok_and(|group| group == rustix::process::getpgrp());
        if !is_shown || !isatty(&input) || !is_ours() {
            return Self { before: None };
        }
        let Ok(before) = tcgetattr(&input) else { return Self { before: None } };
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        let is_set = tcsetattr(&input, OptionalActions::Drain, &modes).is_ok();
        Self { before: is_set.then_some(before) }
    }

    /// Waits so long, or until `q` is pressed, which is the answer.
    pub(super) fn wait(&self, interval: Duration) -> bool {
        if self.before.is_none() {
            std::thread::sleep(interval);
            return false;
        }
        let (begin, input) = (Instant::now(), io::stdin());
        loop {
            let Some(left) = interval.checked_sub(begin.elapsed()) else { return false };
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
            let mut fds = [PollFd::new(&input, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return true,
            }
            let mut keys = [0; 64];
            match rustix::io::read(&input, &mut keys) {
                // The terminal is gone, or the user is.
                Ok(0) | Err(_) => return true,
                Ok(count) if keys[..count].iter().any(|key| matches!(key, b'q' | b'Q' | 4)) => return true,
                Ok(_) => {}
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that is gone needs none.
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, before);
        }
    }
}

//! What the run is at, on one line of a terminal that each next one replaces; nothing elsewhere.

use std::io::{IsTerminal, Write};

/// Shows it.
pub(crate) fn say(what: &str) {
    let mut errors = std::io::stderr();
    if errors.is_terminal() {
        // A terminal that has gone away is nobody's loss.
        let _ = write!(errors, "\r\x1b[Kaegis: bench: {what}");
    }
}

/// Takes it away, before anything else is printed.
pub(crate) fn end() {
    let mut errors = std::io::stderr();
    if errors.is_terminal() {
        let _ = write!(errors, "\r\x1b[K");
    }
}

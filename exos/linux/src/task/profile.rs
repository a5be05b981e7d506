//! What a profile on the host cannot see by itself: which file's code lies where in a program.
//!
//! With [`Options::profile`](crate::task::system::Options), each mapping of code is told to the host as it is made,
//! and all of a program's when it is loaded, as `map` lines (`docs/control-port.md`). The host samples the
//! machine from outside, so this is all that a run with a profile does more than one without; without, it is one
//! test of a flag for a mapping of code.

use alloc::format;

use exos::mem::Protection;

use crate::task::memory::Space;
use crate::task::system::System;

/// Tells of the code in `space` between two addresses, if a profile is taken. `space` is the one that is running.
pub fn tell(system: &System, space: &Space, start: u64, end: u64) {
    if !system.options.profile {
        return;
    }
    let space = space.lock();
    let is_code = |area: &&exos::mem::Area| area.protection().contains(Protection::EXECUTE);
    for area in space.areas().filter(is_code).filter(|area| area.start() < end && start < area.end()) {
        let name = area.name();
        if !name.is_empty() {
            let (from, to, offset) = (area.start(), area.end(), area.offset_bytes());
            system.platform.tell_code(&format!("{from:x} {to:x} {offset:x} {name}"));
        }
    }
}

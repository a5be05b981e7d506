//! Descriptors that a thread used lately, so that it need not ask the table that it shares with others.
//!
//! The table of a process is behind a lock, and its threads read and write by it all the time, each mostly by
//! descriptors of its own. A lock that is taken is a word that each of them writes, and that no processor can keep. So
//! a thread keeps what the last few of its descriptors are for, with the count of changes of the table at that time;
//! while the count is the same, nothing has left the table.
//!
//! Descriptions are held weakly: what another thread closes is closed.

use alloc::sync::{Arc, Weak};

use exos::fs::description::Description;
use exos::sync::Mutex;

/// Descriptors that are kept, each in the place that its number says.
const PLACE_COUNT: usize = 4;

struct Seen {
    descriptor: u64,
    change_count: u64,
    description: Weak<Description>,
}

/// What one thread has seen. Only the thread itself looks, so nobody waits for a lock here.
pub struct SeenDescriptors([Mutex<Seen>; PLACE_COUNT]);

impl Default for SeenDescriptors {
    fn default() -> Self {
        Self([const { Mutex::new(Seen { descriptor: 0, change_count: 0, description: Weak::new() }) }; PLACE_COUNT])
    }
}

impl SeenDescriptors {
    /// What a descriptor is for, if that was seen after so many changes of the table.
    #[inline]
    pub(crate) fn find(&self, descriptor: u64, change_count: u64) -> Option<Arc<Description>> {
        let seen = self.0[descriptor as usize % PLACE_COUNT].try_lock()?;
        if seen.descriptor != descriptor || seen.change_count != change_count {
            return None;
        }
        seen.description.upgrade()
    }

    /// Keeps what a descriptor is for.
    pub(crate) fn keep(&self, descriptor: u64, change_count: u64, description: &Arc<Description>) {
        let description = Arc::downgrade(description);
        if let Some(mut place) = self.0[descriptor as usize % PLACE_COUNT].try_lock() {
            *place = Seen { descriptor, change_count, description };
        }
    }
}

//! The pod, for all that the machine calls: upcalls, bells, waits for a lock.
//!
//! It is set once, before anything of the kind happens; what is asked before is told that there is none.

use exos::sync::Once;
use exos_linux::host::boot::Pod;

/// The pod, once it has begun.
pub(crate) static POD: Once<Pod> = Once::new();

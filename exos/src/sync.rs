//! Locks of exos: the single import point, so that what a lock does when its holder dies is decided in one place.
//!
//! For now a plain spinning mutex: one virtual processor runs exos at a time. Neighbours: everything that a pod shares.

pub use spin::{Mutex, MutexGuard, Once, RwLock};

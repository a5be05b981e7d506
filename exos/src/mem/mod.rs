//! Memory policy: frames, address spaces, faults.

pub mod frames;
pub mod source;

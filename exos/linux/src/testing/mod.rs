//! A pod on the host for this crate's tests, made as the machine makes it, on exos's fake machine.

pub(crate) mod allocator;
pub(crate) mod calls;
pub(crate) mod platform;
pub(crate) mod pod;
mod refusal_tests;

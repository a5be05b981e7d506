//! Host tests of the whole core over a machine of plain memory.
//!
//! `world` is the machine and a driver for it, `cache` what its processors remember of page tables, `check` the
//! invariants that hold between any two kernel entries, the others are one module for each family of calls. `random`
//! throws arbitrary calls at it.

mod authority;
mod bind;
mod budget;
mod cache;
mod capability;
mod check;
mod currency;
mod device;
mod environment;
mod exhaustive;
mod extension;
mod frame;
mod funding;
mod fuzz;
mod gate;
mod latency;
mod liveness;
mod model;
mod push;
mod random;
mod schedule;
mod seeds;
mod share;
mod shares;
mod sleep;
mod space;
mod start;
mod upcall;
mod world;

//! The disk domain: one device function, its driver, and the disk service for whoever its maker says.
//!
//! It takes no upcall and has no heap. Whatever goes wrong ends in a fault, at which the kernel stops it and its maker
//! starts another; so does a disk that the service has given up.
//!
//! Invariant: it sleeps only after the disk and all clients were asked and had nothing (`DiskService::ask`), on two
//! bells: the device's interrupt, and the one that all clients ring.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod device;
#[cfg(target_os = "none")]
mod domain;
#[cfg(target_os = "none")]
mod host;

#[cfg(target_os = "none")]
aegis_rt::entry!(domain::start);

#[cfg(not(target_os = "none"))]
fn main() {}

//! The network domain: one device function, its driver, and the service of it for the client that its maker names.
//!
//! It takes no upcall and has no heap. Whatever goes wrong ends in a fault, at which the kernel stops it and its maker
//! starts another; so does a card that the service has given up, and a client whose session has ended.
//!
//! Invariant: it sleeps only after the card and the client were asked and had nothing (`NetService::ask`), on two
//! bells: the device's interrupt, and the one that the client rings.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod domain;

#[cfg(target_os = "none")]
aegis_rt::entry!(domain::start);

#[cfg(not(target_os = "none"))]
fn main() {}

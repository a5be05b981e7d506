//! The manager: the first environment of a machine with several pods.
//!
//! It divides the machine once, by the plan in the bundle (`aegis_link::pods`), and then waits: it makes an
//! environment for each pod, with the frames and tickets that are the pod's own, starts the pod's library OS there as
//! the kernel would start it, and takes the pod apart when it has ended. It keeps the device functions, and makes a
//! guard for each pod, which the pod alone can call and pays for. Nothing else inside can call it. The host tool has a
//! line to it, on which it asks how pods are and orders changes (`aegis_link::orders`).
//!
//! Invariants: all pods are made before the first runs, so a machine that is too small says so at once; a device
//! function serves one pod, and its guard is touched by one processor at a time; what pods share (the library OS's
//! code) none of them can write; frames that come back are cleared before they are given again; the bells that pods
//! ring are looked at, never believed further than that the pod is to be taken apart.
//!
//! Modules: `manager` has the order of things, `pod` makes and ends one, `guard` and `device` are its devices, `pool`
//! is the disk that several have parts of, `currency` makes those that pay for pods, `orders` is the line to the host,
//! `memory` shows frames, `division` moves memory between pods, `report` is the kernel's log.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod currency;
#[cfg(target_os = "none")]
mod device;
#[cfg(target_os = "none")]
mod division;
#[cfg(target_os = "none")]
mod guard;
#[cfg(target_os = "none")]
mod manager;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod orders;
#[cfg(target_os = "none")]
mod pod;
#[cfg(target_os = "none")]
mod pool;
#[cfg(target_os = "none")]
mod report;

#[cfg(target_os = "none")]
aegis_rt::entry!(manager::start);

#[cfg(not(target_os = "none"))]
fn main() {}

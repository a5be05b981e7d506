//! The extended kernel: the kernel's library, and drivers placed in it (ADR 0075).
//!
//! Every crate below that drives something is the one that a library OS or a domain links, unchanged. Here is what its
//! placement takes: registers and memory (`place`), clients' memory (`host`), and the [`Extension`] (`drivers`) that
//! answers for disks (`disk`), cards (`card`) and watched memory (`watch`). The tool boots this kernel only where
//! `--driver ...=kernel` or `--watch kernel` asks for it, and says on its command line what is to be placed here.
//!
//! Invariant: what drivers keep for themselves is taken from memory before the first environment begins, and nobody
//! else ever gets it.
//!
//! [`Extension`]: aegis_kernel_core::Extension
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod card;
#[cfg(target_os = "none")]
mod disk;
#[cfg(target_os = "none")]
mod driver;
#[cfg(target_os = "none")]
mod drivers;
#[cfg(target_os = "none")]
mod host;
#[cfg(target_os = "none")]
mod place;
#[cfg(target_os = "none")]
mod watch;

#[cfg(target_os = "none")]
aegis_machine::kernel_main!(main);

#[cfg(target_os = "none")]
fn main(mut boot: aegis_machine::Boot) -> ! {
    static DRIVERS: drivers::Drivers = drivers::Drivers::new();
    DRIVERS.prepare(&mut boot);
    aegis_kernel::start(boot, Some(&DRIVERS))
}

/// The kernel is a bare-metal program; on the host there is nothing to run.
#[cfg(not(target_os = "none"))]
fn main() {}

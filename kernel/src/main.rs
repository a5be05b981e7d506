//! The kernel as a binary: nothing extends it.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
aegis_machine::kernel_main!(main);

#[cfg(target_os = "none")]
fn main(boot: aegis_machine::Boot) -> ! {
    aegis_kernel::start(boot, None)
}

/// The kernel is a bare-metal program; on the host there is nothing to run.
#[cfg(not(target_os = "none"))]
fn main() {}

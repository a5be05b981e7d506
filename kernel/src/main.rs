//! The kernel binary: for now it boots the machine, names what it found, and powers off.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare {
    use aegis_machine as machine;
    use machine::{Boot, ExitCode, log};

    machine::kernel_main!(main);

    fn main(boot: Boot) -> ! {
        log!(Error, "main at {} ns, TSC {}", machine::now_ns(), boot.clock.tsc_hz);
        machine::power_off(ExitCode::Clean)
    }
}

/// The kernel is a bare-metal program; on the host there is nothing to run.
#[cfg(not(target_os = "none"))]
fn main() {}

//! Link arguments of the extended kernel's image: those of the kernel, only when building for the bare
//! machine.
//!
//! The arguments are those of `ld`-style linkers (rust-lld, ld.lld and GNU ld alike), which is what the bare target
//! uses.

fn main() {
    println!("cargo:rerun-if-changed=../kernel/kernel.ld");
    let target_os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target_os != "none" {
        return;
    }
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo:rustc-link-arg-bins=--no-pie");
    println!("cargo:rustc-link-arg-bins=-T{folder}/../kernel/kernel.ld");
    println!("cargo:rustc-link-arg-bins=-zmax-page-size=4096");
    println!("cargo:rustc-link-arg-bins=--build-id=none");
}

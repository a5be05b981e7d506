//! Builds the vDSO's ELF image with `exos::load::vdso`, so that no run has to.

use std::path::Path;

fn main() {
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("vdso.bin"), exos::load::vdso::build_vdso())
        .expect("the build folder is writable");
    println!("cargo:rerun-if-changed=build.rs");
}

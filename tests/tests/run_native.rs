//! Programs that use exos's native interface (`exos/native`), in C and in Rust.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, compile, host};

/// A program of this repository that includes `exos.h`.
fn build(source: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(root.join(source)).expect("the program's source is in the tree");
    let include = format!("-I{}", root.join("exos/native/include").display());
    let name = Path::new(source).file_stem()?.to_str()?.to_string();
    compile(&name, &text, &["-O2", "-Wall", "-Werror", "-pthread", &include])
}

#[test]
fn handlers_batches_and_bits() {
    let Some(path) = build("tests/native/handlers.c") else { return };
    let path = path.display().to_string();
    for cpus in ["1", "4"] {
        let found = aegis(&["--cpus", cpus], &[&path], b"");
        let text = String::from_utf8_lossy(&found.output).into_owned();
        assert_eq!((found.status, text.lines().count()), (0, 11), "{text}{}", found.errors);
    }
    assert_eq!(host(&[&path], b"").output, b"no exos here\n");
}

#[test]
fn touches_are_answered_in_the_kernel() {
    let Some(path) = build("tests/native/placed.c") else { return };
    let path = path.display().to_string();
    for cpus in ["1", "2"] {
        let found = aegis(&["--cpus", cpus, "--watch", "kernel"], &[&path], b"");
        let text = String::from_utf8_lossy(&found.output).into_owned();
        assert_eq!((found.status, text.lines().count()), (0, 9), "{text}{}", found.errors);
    }
    assert_eq!(aegis(&[], &[&path], b"").output, b"nothing answers in the kernel\n");
    assert_eq!(host(&[&path], b"").output, b"no exos here\n");
}

#[test]
fn a_program_larger_than_memory_chooses_what_goes() {
    let Some(path) = build("exos/native/examples/pager.c") else { return };
    let path = path.display().to_string();
    let found = aegis(&["-m", "64M"], &[&path, "128"], b"");
    let text = String::from_utf8_lossy(&found.output).into_owned();
    assert_eq!(found.status, 0, "{text}{}", found.errors);
    // The accessed bits keep the 256 hot pages; by chance alone they would be filled again like all others.
    let hot: u64 =
        text.split("hot ones filled ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a count");
    assert!(hot <= 3 * 256, "{text}");
}

#[test]
fn a_write_barrier_in_rust() {
    let path = env!("CARGO_BIN_EXE_barrier");
    let found = aegis(&[], &[path], b"");
    assert_eq!(found.output, b"10 collections looked only where stores had been\n", "{}", found.errors);
    assert_eq!((found.status, host(&[path], b"").status), (0, 2));
}

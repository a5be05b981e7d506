//! The search for libraries, on ELF files that are made here and on a host that is made up.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{Closure, Host, expand, find_program, is_elf, matching_files, read_needs};
use crate::root::pack::Warning;
use crate::root::pack::scratch::Scratch;

const DT_NEEDED: u64 = 1;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// The smallest ELF file that a dynamic linker would understand.
fn elf(interpreter: Option<&Path>, dynamic: &[(u64, &str)]) -> Vec<u8> {
    const STRINGS: usize = 0x200;
    const DYNAMIC: usize = 0x800;
    let mut file = vec![0; 0x1000];
    let mut put = |offset: usize, bytes: &[u8]| {
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    let program = |kind: u32, offset: usize, length: usize| {
        let mut header = kind.to_le_bytes().to_vec();
        header.extend_from_slice(&4_u32.to_le_bytes());
        // Addresses differ from offsets, as in real files.
        let fields = [offset, offset + 0x40_0000, 0, length, length, 0x1000];
        header.extend(fields.into_iter().flat_map(|field| (field as u64).to_le_bytes()));
        header
    };
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0, 1]);
    put(32, &64_u64.to_le_bytes());
    put(52, &[64, 0, 56, 0, 3, 0]);
    put(64, &program(1, 0, 0x1000));
    put(120, &program(2, DYNAMIC, 16 * (dynamic.len() + 3)));
    let mut strings = vec![0];
    if let Some(interpreter) = interpreter {
        let name = interpreter.as_os_str().as_encoded_bytes();
        put(176, &program(3, STRINGS + strings.len(), name.len() + 1));
        strings.extend_from_slice(name);
        strings.push(0);
    }
    let mut entries = vec![(5, STRINGS as u64 + 0x40_0000), (10, 0x600)];
    for (tag, string) in dynamic {
        entries.push((*tag, strings.len() as u64));
        strings.extend_from_slice(string.as_bytes());
        strings.push(0);
    }
    put(STRINGS, &strings);
    for (index, (tag, value)) in entries.into_iter().enumerate() {
        put(DYNAMIC + index * 16, &tag.to_le_bytes());
        put(DYNAMIC + index * 16 + 8, &value.to_le_bytes());
    }
    file
}

fn host(scratch: &Scratch) -> Host {
    Host {
        directories: vec![scratch.path("default")],
        musl_directories: vec![scratch.path("musl")],
        search_path: OsString::from(scratch.path("bin")),
        ..Host::default()
    }
}

fn names(scratch: &Scratch, closure: &Closure) -> Vec<String> {
    let relative = |path: &PathBuf| path.strip_prefix(scratch.path("")).unwrap().to_str().unwrap().to_string();
    closure.files.iter().map(relative).collect()
}

fn missing(name: &str, needed_by: PathBuf) -> Warning {
    Warning::MissingLibrary { name: name.into(), needed_by }
}

#[test]
fn libraries_are_found_in_the_linkers_order() {
    let scratch = Scratch::new();
    let library = elf(None, &[]);
    for name in ["r/liba.so", "default/liba.so", "default/libgcc_s.so.1"] {
        scratch.write(name, &library);
    }
    // A library finds others by its own RUNPATH, and by the program's RPATH only without one.
    scratch.write("r/libb.so", &elf(None, &[(DT_NEEDED, "libc1.so"), (DT_NEEDED, "liba.so")]));
    scratch.write(
        "r/libc1.so",
        &elf(None, &[(DT_RUNPATH, "$ORIGIN/own"), (DT_NEEDED, "libd.so"), (DT_NEEDED, "libe.so")]),
    );
    scratch.write("r/own/libd.so", &library);
    scratch.write("r/libe.so", &library);
    scratch.write("default/glibc-hwcaps/x86-64-v3/liba.so", &library);
    scratch.write("r/glibc-hwcaps/x86-64-v3/liba.so", &library);
    let linker = scratch.write("ld.so", &library);
    let program =
        elf(Some(&linker), &[(DT_RPATH, "${ORIGIN}/../r:/nowhere"), (DT_NEEDED, "libb.so"), (DT_NEEDED, "libnone.so")]);
    let program = scratch.write("bin/program", &program);
    let closure = host(&scratch).closure(&program);
    assert_eq!(
        names(&scratch, &closure),
        [
            "bin/program",
            "ld.so",
            "bin/../r/libb.so",
            "default/libgcc_s.so.1",
            "bin/../r/libc1.so",
            "bin/../r/liba.so",
            "bin/../r/glibc-hwcaps/x86-64-v3/liba.so",
            "bin/../r/own/libd.so",
        ]
    );
    let by = scratch.path("bin/../r/libc1.so");
    assert_eq!(closure.warnings, [missing("libnone.so", program), missing("libe.so", by)]);
}

#[test]
fn other_machines_libraries_are_passed_over() {
    let scratch = Scratch::new();
    let mut foreign = elf(None, &[]);
    foreign[18] = 183;
    scratch.write("r/liba.so", &foreign);
    scratch.write("default/liba.so", &elf(None, &[]));
    let runpath = scratch.path("r");
    let program = elf(None, &[(DT_RUNPATH, runpath.to_str().unwrap()), (DT_NEEDED, "liba.so")]);
    let program = scratch.write("program", &program);
    assert_eq!(names(&scratch, &host(&scratch).closure(&program)), ["program", "default/liba.so"]);
    assert!(is_elf(&program));
    assert!(!is_elf(&scratch.path("r/liba.so")));
    assert!(!is_elf(&scratch.path("r")));
}

#[test]
fn musl_programs_look_where_musl_looks() {
    let scratch = Scratch::new();
    let linker = scratch.write("ld-musl-x86_64.so.1", &elf(None, &[]));
    scratch.write("default/libz.so", &elf(None, &[]));
    scratch.write("musl/libz.so", &elf(None, &[(DT_NEEDED, "libc.so")]));
    let program = elf(Some(&linker), &[(DT_NEEDED, "libz.so"), (DT_NEEDED, "libc.so")]);
    let program = scratch.write("program", &program);
    let closure = host(&scratch).closure(&program);
    assert_eq!(names(&scratch, &closure), ["program", "ld-musl-x86_64.so.1", "musl/libz.so"]);
    assert_eq!(closure.warnings, []);
}

#[test]
fn scripts_bring_their_interpreters() {
    let scratch = Scratch::new();
    let executable = |name: &str, contents: &[u8]| {
        let path = scratch.write(name, contents);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let env = executable("usr/bin/env", &elf(None, &[]));
    let shell = executable("bin/sh", &elf(None, &[(DT_NEEDED, "liba.so")]));
    scratch.write("default/liba.so", &elf(None, &[]));
    executable("bin/tool", format!("#! {} -e\n", shell.display()).as_bytes());
    let script = format!("#!{} -S X=1 tool --flag\necho\n", env.display());
    let script = scratch.write("script", script.as_bytes());
    let closure = host(&scratch).closure(&script);
    let expected = ["script", "usr/bin/env", "bin/tool", "bin/sh", "default/liba.so"];
    assert_eq!(names(&scratch, &closure), expected);
    assert_eq!(closure.warnings, []);
    let broken = scratch.write("broken", b"#!/nowhere/interpreter\n");
    let closure = host(&scratch).closure(&broken);
    assert_eq!(closure.warnings, [missing("/nowhere/interpreter", broken)]);
    // A script that is its own interpreter ends too.
    let path = scratch.path("bin/loop");
    let looping = executable("bin/loop", format!("#!{}\n", path.display()).as_bytes());
    assert_eq!(names(&scratch, &host(&scratch).closure(&looping)), ["bin/loop"]);
}

#[test]
fn files_without_needs() {
    let scratch = Scratch::new();
    for contents in [&b""[..], b"text", b"#!", b"#!\n", b"\x7fELF", &elf(None, &[])[..200]] {
        let file = scratch.write("file", contents);
        assert_eq!(host(&scratch).closure(&file).files, [file]);
    }
}

#[test]
fn damaged_elf_files_never_panic() {
    let scratch = Scratch::new();
    let good = elf(Some(Path::new("/ld.so")), &[(DT_NEEDED, "liba.so"), (DT_RUNPATH, "/r")]);
    for offset in (0..0x100).chain(0x800..0x870) {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bad = good.clone();
            bad[offset] = value;
            let _ = read_needs(&scratch.write("bad", &bad));
        }
    }
}

#[test]
fn tokens_are_expanded() {
    let object = Path::new("/a/b/lib.so");
    assert_eq!(expand(b"$ORIGIN/../${LIB}/$PLATFORM", object), Path::new("/a/b/../lib/x86_64-linux-gnu/x86_64"));
    assert_eq!(expand(b"$OTHER", object), Path::new("$OTHER"));
}

#[test]
fn programs_are_found_like_a_shell_does() {
    let scratch = Scratch::new();
    let program = scratch.write("bin/tool", b"");
    let path = OsString::from(format!("/nowhere:{}", scratch.path("bin").display()));
    assert_eq!(find_program("tool".as_ref(), &path), None, "not executable");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("tool", scratch.path("bin/link")).unwrap();
    assert_eq!(find_program("tool".as_ref(), &path).as_ref(), Some(&program));
    assert_eq!(find_program("link".as_ref(), &path), Some(scratch.path("bin/link")));
    assert_eq!(find_program(program.as_os_str(), "".as_ref()), Some(program));
    assert_eq!(find_program("bin".as_ref(), scratch.path("").as_os_str()), None, "a directory");
}

#[test]
fn configuration_patterns_are_sorted() {
    let scratch = Scratch::new();
    let expected = [scratch.write("c/a.conf", b""), scratch.write("c/b.conf", b"")];
    scratch.write("c/a.txt", b"");
    assert_eq!(matching_files(&scratch.path("c/*.conf")), expected);
    assert_eq!(matching_files(&scratch.path("none/*.conf")), <[PathBuf; 0]>::default());
    assert_eq!(matching_files(Path::new("/plain")), [Path::new("/plain")]);
}

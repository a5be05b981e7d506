//! The program that `aegis run` names, as far as the host can judge it: where it is and whether it can be
//! executed.
//!
//! Only for runs without `--root`: there the program is the host's, and a clear line before a machine is
//! started is worth the few reads. exos judges again, with the last word, in every run. The checks are those
//! of Linux's `execve`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use aegis_launch::errors::{Doing, Error, Unfit};

/// Finds PROGRAM as a shell would: a name with `/` is a path, any other is looked up in `search_path`.
///
/// The answer is absolute, with `.` and `..` taken out of what the user typed and symbolic links left in,
/// because programs such as busybox look at the name they were called by.
pub(crate) fn locate(name: &OsStr, search_path: &OsStr, cwd: &Path) -> Result<PathBuf, Error> {
    if name.is_empty() {
        return Err(Error::Usage("PROGRAM is empty".into()));
    }
    if name.as_bytes().contains(&b'/') {
        let path = absolute(Path::new(name), cwd);
        return match judge(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(blame(error, PathBuf::from(name))),
        };
    }
    let mut first_unfit = None;
    for directory in std::env::split_paths(search_path) {
        let path = absolute(&directory.join(name), cwd);
        match judge(&path) {
            Ok(()) => return Ok(path),
            // Like a shell: a directory of that name is no hit, and a file without permission is one only if
            // nothing follows.
            Err(Judgement::Unfit(Unfit::Permission)) => {
                first_unfit.get_or_insert((path, Unfit::Permission));
            }
            Err(Judgement::Unfit(Unfit::Directory)) | Err(Judgement::Missing) => {}
            Err(error) => return Err(blame(error, path)),
        }
    }
    match first_unfit {
        Some((path, unfit)) => Err(Error::ProgramUnfit(path, unfit)),
        None => Err(Error::ProgramNotOnPath(OsString::from(name))),
    }
}

/// `path` made absolute without asking the file system.
pub(crate) fn absolute(path: &Path, cwd: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in cwd.join(path).components() {
        match part {
            std::path::Component::Normal(name) => clean.push(name),
            std::path::Component::ParentDir => {
                clean.pop();
            }
            _ => {}
        }
    }
    clean
}

/// Whether a program looks for files beside itself before it does anything: a script its interpreter, a dynamic
/// program its libraries, and nearly always more of what it came with.
pub(crate) fn looks_around(path: &Path) -> bool {
    let mut head = [0; ELF_HEADER_BYTES];
    let Ok(mut file) = File::open(path) else { return false };
    match file.read_exact(&mut head) {
        Ok(()) if !head.starts_with(b"#!") => program_headers(&head, &file).is_ok_and(|headers| {
            headers.chunks_exact(PROGRAM_HEADER_BYTES).any(|header| header.starts_with(&PT_INTERP.to_le_bytes()))
        }),
        _ => head.starts_with(b"#!"),
    }
}

#[derive(Debug)]
enum Judgement {
    Missing,
    Unfit(Unfit),
    Host(io::Error),
}

fn blame(judgement: Judgement, path: PathBuf) -> Error {
    match judgement {
        Judgement::Missing => Error::ProgramMissing(path),
        Judgement::Unfit(unfit) => Error::ProgramUnfit(path, unfit),
        Judgement::Host(error) => Err::<(), _>(error).doing("reading the program").expect_err("it is an error"),
    }
}

fn judge(path: &Path) -> Result<(), Judgement> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Judgement::Missing,
        io::ErrorKind::PermissionDenied => Judgement::Unfit(Unfit::Permission),
        _ => Judgement::Host(error),
    };
    let metadata = std::fs::metadata(path).map_err(refused)?;
    if metadata.is_dir() {
        return Err(Judgement::Unfit(Unfit::Directory));
    }
    if !metadata.is_file() {
        return Err(Judgement::Unfit(Unfit::Special));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(Judgement::Unfit(Unfit::Permission));
    }
    let mut file = File::open(path).map_err(refused)?;
    let mut head = Vec::with_capacity(HEAD_BYTES);
    (&mut file).take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(refused)?;
    judge_head(&head, metadata.len(), &file).map_err(Judgement::Unfit)
}

/// What Linux reads of a file before it decides how to execute it is 256 bytes; the ELF program headers are
/// read apart.
const HEAD_BYTES: usize = 512;

fn judge_head(head: &[u8], file_bytes: u64, file: &File) -> Result<(), Unfit> {
    if head.is_empty() {
        return Err(Unfit::Empty);
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        return judge_script(line);
    }
    if head.starts_with(b"\x7fELF") {
        return judge_elf(head, file_bytes, file);
    }
    // A file that is cut within the magic number is a truncated ELF file rather than text.
    if b"\x7fELF".starts_with(head) {
        return Err(Unfit::Truncated);
    }
    let text = head.iter().all(|byte| *byte >= 0x20 || b"\t\n\r\x0c\x1b".contains(byte));
    Err(if text { Unfit::Text } else { Unfit::Unknown })
}

fn judge_script(line: &[u8]) -> Result<(), Unfit> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ' || *byte == b'\t').filter(|w| !w.is_empty());
    let Some(interpreter) = words.next() else {
        return Err(Unfit::Text);
    };
    let path = Path::new(OsStr::from_bytes(interpreter));
    if path.exists() { Ok(()) } else { Err(Unfit::Interpreter(String::from_utf8_lossy(interpreter).into_owned())) }
}

const ELF_HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PROGRAM_HEADER_COUNT_MAX: usize = 128;
const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;

/// The offsets are those of the ELF-64 file header (System V ABI, "ELF Header").
fn judge_elf(head: &[u8], file_bytes: u64, file: &File) -> Result<(), Unfit> {
    if head.len() < 20 {
        return Err(Unfit::Truncated);
    }
    if head[5] == 2 {
        return Err(Unfit::ByteOrder);
    }
    let machine = u16_at(head, 18);
    if machine != EM_X86_64 {
        return Err(Unfit::Machine(machine));
    }
    if head[4] != 2 {
        return Err(Unfit::Narrow);
    }
    if head.len() < ELF_HEADER_BYTES {
        return Err(Unfit::Truncated);
    }
    let kind = u16_at(head, 16);
    if kind != ET_EXEC && kind != ET_DYN {
        return Err(Unfit::Object);
    }
    let entry = u64_at(head, 24);
    let mut has_interpreter = false;
    for header in program_headers(head, file)?.chunks_exact(PROGRAM_HEADER_BYTES) {
        let segment = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let end = u64_at(header, 8).checked_add(u64_at(header, 32)).ok_or(Unfit::Truncated)?;
        has_interpreter |= segment == PT_INTERP;
        if (segment == PT_LOAD || segment == PT_INTERP) && end > file_bytes {
            return Err(Unfit::Truncated);
        }
    }
    if kind == ET_DYN && entry == 0 && !has_interpreter {
        return Err(Unfit::Library);
    }
    Ok(())
}

/// The program headers of a file with this header.
fn program_headers(head: &[u8], file: &File) -> Result<Vec<u8>, Unfit> {
    let (size, count) = (usize::from(u16_at(head, 54)), usize::from(u16_at(head, 56)));
    if size != PROGRAM_HEADER_BYTES || count == 0 || count > PROGRAM_HEADER_COUNT_MAX {
        return Err(Unfit::Truncated);
    }
    let mut headers = vec![0; size * count];
    file.read_exact_at(&mut headers, u64_at(head, 32)).map_err(|_| Unfit::Truncated)?;
    Ok(headers)
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::{Error, Unfit, absolute, locate};
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("aegis-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("scratch directory");
            Self(path)
        }

        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).expect("scratch file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn unfit(path: &Path) -> Unfit {
        match locate(path.as_os_str(), OsStr::new(""), Path::new("/")) {
            Err(Error::ProgramUnfit(_, unfit)) => unfit,
            other => panic!("{}: {other:?}", path.display()),
        }
    }

    #[test]
    fn what_cannot_be_executed_is_named() {
        let scratch = Scratch::new("unfit");
        let own = fs::read(std::env::current_exe().expect("own path")).expect("own bytes");
        assert_eq!(unfit(&scratch.0), Unfit::Directory);
        assert_eq!(unfit(Path::new("/dev/null")), Unfit::Special);
        assert_eq!(unfit(&scratch.file("empty", b"")), Unfit::Empty);
        assert_eq!(unfit(&scratch.file("text", b"echo hello\n")), Unfit::Text);
        assert_eq!(unfit(&scratch.file("noise", &[0, 1, 2, 3])), Unfit::Unknown);
        let script = scratch.file("script", b"#! /no/such/sh -e\n");
        assert_eq!(unfit(&script), Unfit::Interpreter("/no/such/sh".into()));
        for cut in [3, 4, 19, 40, 64, 4096] {
            let path = scratch.file("cut", &own[..cut]);
            assert_eq!(unfit(&path), Unfit::Truncated, "cut at {cut}");
        }
        for (offset, value, expected) in [
            (18, 183, Unfit::Machine(183)),
            (18, 3, Unfit::Machine(3)),
            (4, 1, Unfit::Narrow),
            (5, 2, Unfit::ByteOrder),
            (16, 1, Unfit::Object),
        ] {
            let mut bytes = own.clone();
            bytes[offset] = value;
            assert_eq!(unfit(&scratch.file("changed", &bytes)), expected);
        }
        let path = scratch.file("plain", b"#!/bin/sh\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
        assert_eq!(unfit(&path), Unfit::Permission);
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let scratch = Scratch::new("path");
        fs::create_dir_all(scratch.0.join("a/tool")).expect("directory");
        fs::create_dir_all(scratch.0.join("b")).expect("directory");
        let hit = scratch.file("b/tool", b"#!/bin/sh\n");
        let search = format!("{0}/none:{0}/a:{0}/b", scratch.0.display());
        let search = OsStr::new(&search);
        let found = locate(OsStr::new("tool"), search, Path::new("/")).expect("found");
        assert_eq!(found, hit);
        let missing = locate(OsStr::new("nope"), search, Path::new("/"));
        assert!(matches!(missing, Err(Error::ProgramNotOnPath(_))), "{missing:?}");
        let missing = locate(OsStr::new("./nope"), search, &scratch.0);
        assert!(matches!(missing, Err(Error::ProgramMissing(_))), "{missing:?}");
        let relative = locate(OsStr::new("a/../b/./tool"), search, &scratch.0).expect("found");
        assert_eq!(relative, hit);
    }

    #[test]
    fn paths_become_absolute_without_the_file_system() {
        assert_eq!(absolute(Path::new("../x/./y"), Path::new("/a/b")), Path::new("/a/x/y"));
        assert_eq!(absolute(Path::new("/../x"), Path::new("/a")), Path::new("/x"));
    }
}

//! What a host program needs to start: its interpreter and, through all levels, the shared objects it was linked to.
//!
//! The search is that of the dynamic linkers, done without running anything (ld.so(8) and musl's `ldso`): for glibc the
//! needing objects' `DT_RPATH`, `DT_RUNPATH`, the linker's cache, the configured and the default directories; for musl
//! its own path file instead of cache and configuration. `LD_LIBRARY_PATH` is left out on purpose, because the guest
//! has its own environment. Variants for newer processors (`glibc-hwcaps`) are taken too, since the guest's processor
//! decides.
//!
//! Paths in a [`Closure`] are as the linker would open them, symbolic links included; `pack_host` takes those over.
//! A library that is not found is reported, not an error: the program may do without, or say so better itself.
//!
//! Limits: [`OBJECT_COUNT_MAX`] objects, [`SCRIPT_DEPTH_MAX`] interpreters of scripts, [`SECTION_BYTES_MAX`] for an ELF
//! file's dynamic section and its strings. Files beyond them, damaged ones and those for other machines count as
//! having no needs.

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::root::closure_cache::LibraryCache;
use crate::root::pack::Warning;

/// Most objects in one closure.
const OBJECT_COUNT_MAX: usize = 4096;
/// Most interpreters on the way from a script to a program (as on Linux).
const SCRIPT_DEPTH_MAX: usize = 5;
/// Bytes of a script's first line that are looked at (Linux `BINPRM_BUF_SIZE`).
const SCRIPT_LINE_BYTES: usize = 256;
/// Longest dynamic section and string table that is read.
const SECTION_BYTES_MAX: u64 = 16 << 20;
/// Bytes at a file's start that hold the ELF header and, in every linker's output, the program headers.
const HEADER_BYTES: usize = 4096;
/// What glibc opens by name when a thread is cancelled or exits; no file says so.
const GLIBC_OPENS: &[u8] = b"libgcc_s.so.1";

/// What the dynamic linker reads of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Needs {
    interpreter: Option<PathBuf>,
    libraries: Vec<Vec<u8>>,
    /// `DT_RPATH`, ignored if there is a `DT_RUNPATH`.
    rpath: Vec<u8>,
    runpath: Vec<u8>,
}

/// Files a program needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closure {
    /// Absolute host paths in the order of discovery, the program first.
    pub(crate) files: Vec<PathBuf>,
    /// Libraries and interpreters that were not found.
    pub(crate) warnings: Vec<Warning>,
}

/// Where this host's dynamic linkers look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    cache: LibraryCache,
    /// Directories of `/etc/ld.so.conf`, then the default ones.
    directories: Vec<PathBuf>,
    musl_directories: Vec<PathBuf>,
    /// `PATH`, for `#!/usr/bin/env NAME`.
    search_path: OsString,
}

impl Host {
    /// Reads the linkers' configuration.
    pub(crate) fn read(search_path: &OsStr) -> Self {
        let mut directories = Vec::new();
        let mut seen = HashSet::new();
        configured_directories(Path::new("/etc/ld.so.conf"), &mut seen, &mut directories);
        let defaults = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"];
        let defaults = defaults.into_iter().chain(["/lib64", "/usr/lib64", "/lib", "/usr/lib"]);
        directories.extend(defaults.map(PathBuf::from));
        let musl = fs::read("/etc/ld-musl-x86_64.path");
        let musl = musl.unwrap_or_else(|_| b"/lib:/usr/local/lib:/usr/lib".to_vec());
        let musl = musl.split(|byte| matches!(byte, b':' | b'\n')).filter(|path| !path.is_empty());
        Self {
            cache: LibraryCache::parse(&fs::read("/etc/ld.so.cache").unwrap_or_default()),
            directories,
            musl_directories: musl.map(path_of).collect(),
            search_path: search_path.to_os_string(),
        }
    }

    /// The closure of a program: an ELF file, or a script with all its interpreters. `program` is absolute.
    pub(crate) fn closure(&self, program: &Path) -> Closure {
        let mut closure = Closure::default();
        let mut file = program.to_path_buf();
        for _ in 0..=SCRIPT_DEPTH_MAX {
            self.add_objects(&mut closure, &file);
            let mut next: Option<PathBuf> = None;
            for interpreter in self.script_interpreters(&file) {
                match interpreter {
                    // With `env` there are two programs, of which only the last may be a script again.
                    Ok(path) => {
                        if let Some(helper) = next.replace(path) {
                            self.add_objects(&mut closure, &helper);
                        }
                    }
                    Err(name) => closure.warnings.push(missing(&name, &file)),
                }
            }
            match next {
                Some(interpreter) => file = interpreter,
                None => break,
            }
        }
        let mut seen = HashSet::new();
        closure.files.retain(|file| seen.insert(file.clone()));
        closure
    }

    /// Adds an ELF file and the objects it needs, breadth first as the dynamic linker loads them.
    fn add_objects(&self, closure: &mut Closure, program: &Path) {
        closure.files.push(program.to_path_buf());
        let Some(needs) = read_needs(program) else {
            return;
        };
        let is_musl = needs.interpreter.as_deref().is_some_and(is_musl_linker);
        if let Some(interpreter) = &needs.interpreter {
            if interpreter.exists() {
                closure.files.push(interpreter.clone());
            } else {
                closure.warnings.push(missing(interpreter.as_os_str().as_bytes(), program));
            }
        }
        // The program's own directory is that of the file, other objects' that of the path they were found by.
        let origin = fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
        let mut objects = vec![Loaded { path: origin, needs, loader: None }];
        let mut loaded_names = HashSet::new();
        let mut queue = VecDeque::from([0]);
        while let Some(index) = queue.pop_front() {
            let mut names = objects[index].needs.libraries.clone();
            if index == 0 && !is_musl && !names.is_empty() {
                names.push(GLIBC_OPENS.to_vec());
            }
            for name in names {
                let built_in = is_musl && is_part_of_musl(&name);
                if built_in || objects.len() >= OBJECT_COUNT_MAX || !loaded_names.insert(name.clone()) {
                    continue;
                }
                match self.find(&objects, index, &name, is_musl) {
                    Some((path, needs)) => {
                        closure.files.push(path.clone());
                        closure.files.extend(processor_variants(&path));
                        queue.push_back(objects.len());
                        objects.push(Loaded { path, needs, loader: Some(index) });
                    }
                    None if name == GLIBC_OPENS => {}
                    None => closure.warnings.push(missing(&name, &objects[index].path)),
                }
            }
        }
    }

    /// Finds a library as the dynamic linker does for the object at `index`.
    fn find(&self, objects: &[Loaded], index: usize, name: &[u8], is_musl: bool) -> Option<(PathBuf, Needs)> {
        let accept = |path: PathBuf| read_needs(&path).map(|needs| (path, needs));
        if name.contains(&b'/') {
            let path = expand(name, &objects[index].path);
            return path.is_absolute().then_some(path).and_then(accept);
        }
        let own = &objects[index].needs;
        let mut directories = Vec::new();
        if own.runpath.is_empty() || is_musl {
            let mut next = Some(index);
            while let Some(object) = next.map(|index| &objects[index]) {
                if object.needs.runpath.is_empty() {
                    directories.extend(expand_list(&object.needs.rpath, &object.path));
                }
                // Musl takes both kinds of path from all loaders.
                if is_musl {
                    directories.extend(expand_list(&object.needs.runpath, &object.path));
                }
                next = object.loader;
            }
        } else {
            directories.extend(expand_list(&own.runpath, &objects[index].path));
        }
        let join = |directory: &PathBuf| accept(directory.join(OsStr::from_bytes(name)));
        if let Some(found) = directories.iter().find_map(join) {
            return Some(found);
        }
        if is_musl {
            return self.musl_directories.iter().find_map(join);
        }
        let cached = self.cache.find(name).find_map(|path| accept(path.to_path_buf()));
        cached.or_else(|| self.directories.iter().find_map(join))
    }

    /// The programs that a script's first line names; an error is a name that was not found.
    fn script_interpreters(&self, file: &Path) -> Vec<Result<PathBuf, Vec<u8>>> {
        let Some(line) = script_line(file) else {
            return Vec::new();
        };
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let Some(interpreter) = words.next() else {
            return Vec::new();
        };
        let path = path_of(interpreter);
        let exists = path.is_absolute() && path.exists();
        let mut found = vec![if exists { Ok(path.clone()) } else { Err(interpreter.to_vec()) }];
        if path.file_name() == Some(OsStr::new("env")) {
            // Options and assignments come before the program's name.
            let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
            if let Some(name) = name {
                let program = find_program(OsStr::from_bytes(name), &self.search_path);
                found.push(program.ok_or_else(|| name.to_vec()));
            }
        }
        found
    }
}

/// An object in the order of loading.
struct Loaded {
    path: PathBuf,
    needs: Needs,
    /// Which object needed it first.
    loader: Option<usize>,
}

/// True if a file is an ELF file for x86-64 that a dynamic linker would read.
pub(crate) fn is_elf(path: &Path) -> bool {
    read_needs(path).is_some()
}

/// Finds a program like a shell: a name with a slash is a path, others are looked up in `search_path`. The result is
/// absolute and an executable regular file, links not resolved.
pub(crate) fn find_program(name: &OsStr, search_path: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let metadata = fs::metadata(path);
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        std::env::split_paths(search_path).map(|directory| directory.join(name)).collect()
    };
    let found = candidates.into_iter().find(is_program)?;
    std::path::absolute(found).ok()
}

fn missing(name: &[u8], needed_by: &Path) -> Warning {
    let name = String::from_utf8_lossy(name).into_owned();
    Warning::MissingLibrary { name, needed_by: needed_by.to_path_buf() }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn is_musl_linker(interpreter: &Path) -> bool {
    let name = interpreter.file_name().map(OsStr::as_bytes).unwrap_or_default();
    name.starts_with(b"ld-musl-")
}

/// Names that musl's dynamic linker takes for itself.
fn is_part_of_musl(name: &[u8]) -> bool {
    let stem = name.strip_prefix(b"lib").unwrap_or_default();
    let parts: [&[u8]; 8] = [b"c.", b"pthread.", b"rt.", b"m.", b"dl.", b"util.", b"xnet.", b"resolv."];
    parts.iter().any(|part| stem.starts_with(part))
}

/// The same library for newer processors, where it lies beside the general one.
fn processor_variants(path: &Path) -> impl Iterator<Item = PathBuf> {
    let directory = path.parent().unwrap_or(Path::new("/")).join("glibc-hwcaps");
    let name = path.file_name().unwrap_or_default().to_os_string();
    let is_there = directory.is_dir();
    (2..=4)
        .filter(move |_| is_there)
        .map(move |level| directory.join(format!("x86-64-v{level}")).join(&name))
        .filter(|variant| variant.exists())
}

/// Splits a colon-separated list and expands each directory.
fn expand_list(list: &[u8], object: &Path) -> Vec<PathBuf> {
    let directories = list.split(|byte| *byte == b':').filter(|path| !path.is_empty());
    // Directories relative to wherever the program is started have no place in a root.
    directories.map(|path| expand(path, object)).filter(|path| path.is_absolute()).collect()
}

/// Expands the dynamic string tokens of ld.so(8).
fn expand(path: &[u8], object: &Path) -> PathBuf {
    let origin = object.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes();
    let tokens: [(&[u8], &[u8]); 6] = [
        (b"${ORIGIN}", origin),
        (b"$ORIGIN", origin),
        (b"${LIB}", b"lib/x86_64-linux-gnu"),
        (b"$LIB", b"lib/x86_64-linux-gnu"),
        (b"${PLATFORM}", b"x86_64"),
        (b"$PLATFORM", b"x86_64"),
    ];
    let mut expanded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        if let Some((token, value)) = tokens.iter().find(|(token, _)| rest.starts_with(token)) {
            expanded.extend_from_slice(value);
            rest = &rest[token.len()..];
        } else {
            expanded.push(*first);
            rest = behind;
        }
    }
    PathBuf::from(OsString::from_vec(expanded))
}

/// The rest of a script's first line behind `#!`.
fn script_line(file: &Path) -> Option<Vec<u8>> {
    // Opening a named pipe would wait for its other end.
    fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    let mut start = vec![0; SCRIPT_LINE_BYTES];
    let count = read_some(&File::open(file).ok()?, &mut start);
    start.truncate(count);
    let line = start.strip_prefix(b"#!")?;
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    Some(line[..end].trim_ascii().to_vec())
}

/// Reads from the start until the buffer is full or the file ends.
fn read_some(file: &File, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], done as u64) {
            Ok(0) | Err(_) => break,
            Ok(count) => done += count,
        }
    }
    done
}

/// Reads what a dynamic linker would; `None` if this is no ELF file for x86-64 or a damaged one.
fn read_needs(path: &Path) -> Option<Needs> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    let mut start = vec![0; HEADER_BYTES];
    let count = read_some(&file, &mut start);
    start.truncate(count);
    let header = elf::FileHeader64::<LittleEndian>::parse(start.as_slice()).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        return None;
    }
    let programs = header.program_headers(endian, start.as_slice()).ok()?;
    let section = |offset: u64, length: u64| {
        let mut bytes = vec![0; length.min(SECTION_BYTES_MAX) as usize];
        file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    let find = |kind| programs.iter().find(|program| program.p_type(endian) == kind);
    let mut needs = Needs::default();
    if let Some(program) = find(elf::PT_INTERP) {
        let name = section(program.p_offset(endian), program.p_filesz(endian))?;
        needs.interpreter = Some(path_of(until_zero(&name)));
    }
    let Some(program) = find(elf::PT_DYNAMIC) else {
        return Some(needs);
    };
    let dynamic = section(program.p_offset(endian), program.p_filesz(endian))?;
    let entries = dynamic_entries(&dynamic);
    let value = |tag: elf::DynamicTag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
    let Some((address, length)) = value(elf::DT_STRTAB).zip(value(elf::DT_STRSZ)) else {
        return Some(needs);
    };
    let offset = programs.iter().find_map(|program| {
        let inside = address.checked_sub(program.p_vaddr(endian))?;
        let holds = program.p_type(endian) == elf::PT_LOAD && inside < program.p_filesz(endian);
        holds.then(|| program.p_offset(endian).checked_add(inside))?
    })?;
    let strings = section(offset, length)?;
    let string = |offset: u64| {
        let offset = usize::try_from(offset).ok();
        offset.and_then(|offset| strings.get(offset..)).map(until_zero).unwrap_or_default().to_vec()
    };
    for (tag, value) in entries {
        match tag {
            elf::DT_NEEDED => needs.libraries.push(string(value)),
            elf::DT_RPATH => needs.rpath = string(value),
            elf::DT_RUNPATH => needs.runpath = string(value),
            _ => {}
        }
    }
    needs.libraries.retain(|name| !name.is_empty());
    Some(needs)
}

fn dynamic_entries(section: &[u8]) -> Vec<(elf::DynamicTag, u64)> {
    let words = section.as_chunks::<8>().0;
    let entries = words.as_chunks::<2>().0.iter();
    entries
        .map(|[tag, value]| (elf::DynamicTag(i64::from_le_bytes(*tag)), u64::from_le_bytes(*value)))
        .take_while(|(tag, _)| *tag != elf::DT_NULL)
        .collect()
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Reads `ld.so.conf`: a directory a line, comments, and `include` with a pattern in its last component.
fn configured_directories(file: &Path, seen: &mut HashSet<PathBuf>, directories: &mut Vec<PathBuf>) {
    if !seen.insert(file.to_path_buf()) {
        return;
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line.strip_prefix("include") {
            let pattern = Path::new("/etc").join(pattern.trim());
            for included in matching_files(&pattern) {
                configured_directories(&included, seen, directories);
            }
        } else if line.starts_with('/') {
            directories.push(PathBuf::from(line));
        }
    }
}

/// The files that a path with at most one `*`, in its last component, stands for; in order.
fn matching_files(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some((prefix, suffix)) = name.split_once('*') else {
        return vec![pattern.to_path_buf()];
    };
    let directory = pattern.parent().unwrap_or(Path::new("/"));
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.len() >= prefix.len() + suffix.len() && name.starts_with(prefix) && name.ends_with(suffix)
        })
        .map(|entry| entry.path())
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
#[path = "closure_tests.rs"]
mod tests;

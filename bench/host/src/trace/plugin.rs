//! The plugin: compiled once for each version of its source and of QEMU, told where the program's marks are, and
//! read.

use std::path::{Path, PathBuf};
use std::process::Command;

use aegis_abi::layout::LIBOS_IMAGE_BASE;
use aegis_launch::cache::KeyHasher;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use super::starter::{Starter, add_qemu_words, host};
use crate::compile::gcc_version;
use crate::failure::{Failure, last_line};
use crate::guest::Line;
use crate::system::{Machines, System};

const SOURCE: &str = include_str!("../../../trace/trace.c");
/// Where the program keeps its marks (bench/micro/micro.h): pairs of address and kind.
const MARKS_SECTION: &str = "aegis_marks";
const MARK_BYTES: usize = 16;
/// Most bytes of the plugin's output: 2^18 instructions and 2^16 steps at some 30 bytes.
const OUTPUT_BYTES_MAX: u64 = 32 << 20;

/// A compiled plugin and its arguments.
#[derive(Debug)]
pub(crate) struct Plugin {
    path: PathBuf,
    marks: Vec<(u64, u64)>,
    cache: PathBuf,
}

impl Plugin {
    /// For a program whose file is `program`, loaded at `base`.
    pub(crate) fn prepare(machines: &Machines, program: &[u8], base: u64) -> Result<Self, Failure> {
        let marks = marks(program).ok_or(Failure::Trace("the program has no marks".into()))?;
        let marks = marks.into_iter().map(|(address, kind)| (base.wrapping_add(address), kind)).collect();
        let path = compile(&machines.qemu, &machines.cache)?;
        Ok(Self { path, marks, cache: machines.cache.clone() })
    }

    /// With the marks of the library OS, whose looks for a disk are counted apart.
    pub(crate) fn with_looks(&self, library_os: &[u8]) -> Result<Self, Failure> {
        let own = marks(library_os).ok_or(Failure::Trace("the library OS has no marks".into()))?;
        let own = own.into_iter().map(|(address, kind)| (LIBOS_IMAGE_BASE.wrapping_add(address), kind));
        let marks = self.marks.iter().copied().chain(own).collect();
        Ok(Self { path: self.path.clone(), marks, cache: self.cache.clone() })
    }

    /// Where the plugin writes.
    pub(crate) fn output_file(&self, system: System) -> PathBuf {
        self.cache.join(format!("trace.{}.{}.tmp", system.key(), std::process::id()))
    }

    /// Puts the plugin into a machine's line.
    pub(crate) fn add_to(&self, line: &mut Line, starter: Starter, output: &Path) {
        self.add(line, starter, "out", output);
    }

    /// The same, with a line in the output each time that it was armed: see [`sums`].
    pub(crate) fn add_sums_to(&self, line: &mut Line, starter: Starter, output: &Path) {
        self.add(line, starter, "sums", output);
    }

    fn add(&self, line: &mut Line, starter: Starter, kind: &str, output: &Path) {
        // A comma in a path is written twice in QEMU's options.
        let path = |path: &Path| path.display().to_string().replace(',', ",,");
        let mut option = format!("{},{kind}={}", path(&self.path), path(output));
        for (address, kind) in &self.marks {
            option += &format!(",mark={kind}:{address:x}");
        }
        add_qemu_words(line, starter, ["-plugin".into(), option]);
    }
}

/// Pairs of address and kind.
fn marks(program: &[u8]) -> Option<Vec<(u64, u64)>> {
    let file = ElfFile64::<object::Endianness>::parse(program).ok()?;
    let section = file.section_by_name(MARKS_SECTION)?.data().ok()?;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    let mark = |bytes: &[u8]| Some((word(&bytes[..8])?, word(&bytes[8..])?));
    section.chunks_exact(MARK_BYTES).map(mark).collect()
}

fn compile(qemu: &Path, cache: &Path) -> Result<PathBuf, Failure> {
    let version = interface_version(qemu)?;
    let mut key = KeyHasher::default();
    key.add(SOURCE.as_bytes()).add(gcc_version()?.as_bytes()).add_u64(version.into());
    let library = cache.join(format!("trace-{:032x}.so", key.key()));
    if library.is_file() {
        return Ok(library);
    }
    let own = |extension: &str| cache.join(format!("trace.{}.{extension}", std::process::id()));
    let (source, fresh) = (own("c"), own("so"));
    std::fs::write(&source, SOURCE).map_err(|error| Failure::file("writing", source.clone(), error))?;
    let output = Command::new("gcc")
        .args(["-O2", "-shared", "-fPIC", "-w"])
        .arg(format!("-DPLUGIN_VERSION={version}"))
        .arg("-o")
        .args([&fresh, &source])
        .output()
        .map_err(host("starting gcc"));
    // Whether or not it compiled.
    let _ = std::fs::remove_file(&source);
    let output = output?;
    if !output.status.success() {
        let _ = std::fs::remove_file(&fresh);
        return Err(Failure::Trace(format!("gcc: {}", last_line(&String::from_utf8_lossy(&output.stderr)))));
    }
    std::fs::rename(&fresh, &library).map_err(|error| Failure::file("writing", library.clone(), error))?;
    Ok(library)
}

/// The version of the plugin interface that this QEMU takes: 9 and later refuse the first.
fn interface_version(qemu: &Path) -> Result<u32, Failure> {
    let output = Command::new(qemu).arg("--version").output().map_err(host("asking QEMU for its version"))?;
    Ok(version_for(&String::from_utf8_lossy(&output.stdout)))
}

fn version_for(text: &str) -> u32 {
    let after = text.split("version ").nth(1).unwrap_or_default();
    let major: u32 = after.split('.').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    if major >= 9 { 2 } else { 1 }
}

/// What was executed each time that the plugin was armed; nothing if it never was.
pub(crate) fn sums(path: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// What the plugin counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Address and executions.
    pub(crate) executions: Vec<(u64, u64)>,
    /// The last instructions, in their order.
    pub(crate) path: Vec<u64>,
    /// Executions that had no room in the plugin's table.
    pub(crate) lost: u64,
    /// Of all, those of looks in vain.
    pub(crate) vain: u64,
}

impl Counts {
    /// Reads the plugin's output.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let missing = |_| Failure::Trace("the plugin counted nothing: has this QEMU plugins (-plugin)?".into());
        let length = std::fs::metadata(path).map_err(missing)?.len();
        if length > OUTPUT_BYTES_MAX {
            return Err(Failure::Trace(format!("the plugin wrote {length} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| Failure::file("reading", path.into(), error))?;
        Self::parse(&text).ok_or_else(|| Failure::Trace("the plugin's output is not whole".into()))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut counts = Self::default();
        let address = |word: &str| u64::from_str_radix(word, 16).ok();
        let mut is_whole = false;
        for line in text.lines() {
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["count", at, executions] => counts.executions.push((address(at)?, executions.parse().ok()?)),
                ["vain", executions] => counts.vain = executions.parse().ok()?,
                ["step", at] => counts.path.push(address(at)?),
                ["end", windows, lost] => {
                    counts.lost = lost.parse().ok()?;
                    is_whole = *windows != "0";
                }
                _ => return None,
            }
        }
        is_whole.then_some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, version_for};

    #[test]
    fn output_has_an_end() {
        let counts = Counts::parse("count 10 3\ncount ffffffff80000000 1\nstep 10\nvain 2\nend 1 0\n").unwrap();
        assert_eq!(counts.executions, [(0x10, 3), (0xffff_ffff_8000_0000, 1)]);
        assert_eq!((counts.path, counts.lost, counts.vain), (vec![0x10], 0, 2));
        for text in ["", "count 10 3\n", "count 10 3\nend 0 0\n", "count x 3\nend 1 0\n", "what\nend 1 0\n"] {
            assert_eq!(Counts::parse(text), None, "{text}");
        }
    }

    #[test]
    fn versions_of_the_interface() {
        assert_eq!(version_for("QEMU emulator version 7.2.22 (Debian 1:7.2)\n"), 1);
        assert_eq!(version_for("QEMU emulator version 8.2.0\n"), 1);
        assert_eq!(version_for("QEMU emulator version 10.0.2\n"), 2);
        assert_eq!(version_for("?"), 1);
    }
}

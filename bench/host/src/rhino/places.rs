//! Where Rhino hears of touches, and the machines that its programs run in.
//!
//! Every machine has a disk of its own: a file in a folder whose files the host has in memory, if there is one. What is
//! measured is the way there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aegis_launch::machine::artifacts::Artifacts;

use super::line::Line as Found;
use crate::failure::{Failure, last_line};
use crate::guest::{Event, Guest, Limits, Line};
use crate::system::{LinuxLine, MEMORY_MIB, Machines, Shape, System, aegis_line};
use crate::trace::plugin::{self, Plugin};
use crate::trace::starter::Starter;
use crate::{card, compile, cpio};

/// Until a result: 4,000 transactions with a disk, on a busy host.
const LIMITS: Limits = Limits { silence: Duration::from_secs(900), total: Duration::from_secs(7200) };
/// A folder whose files are in memory.
const MEMORY_FOLDER: &str = "/dev/shm";
/// How QEMU reads the files, the same as for `aegis run --disk`.
const NODE: &str = "discard=unmap,cache.direct=off,cache.no-flush=off";
/// The same disk as `aegis run --disk` has.
const DISK: &str = "virtio-blk-pci,disable-legacy=on,disable-modern=off,num-queues=1,queue-size=256,discard=on,\
                    write-zeroes=on,werror=report,rerror=report";
/// The disk inside.
const DISK_INSIDE: &str = "/dev/vda";
/// Where files are for programs that want a folder.
const FOLDER_INSIDE: &str = "/db";

/// Where Rhino hears of touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) is_aegis: bool,
    /// Options of `aegis run`.
    options: &'static [&'static str],
}

/// All of them, in the order of the columns. A placement is a line here.
pub(super) const PLACEMENTS: [Placement; 4] = [
    Placement { key: KERNEL, title: "Aegis kernel", is_aegis: true, options: &["--watch", "kernel"] },
    Placement { key: LIBRARY, title: "Aegis library", is_aegis: true, options: &[] },
    Placement { key: SIGNALS, title: "Aegis signals", is_aegis: true, options: &["-e", "RHINO_SIGNALS=1"] },
    Placement { key: LINUX, title: "Linux signals", is_aegis: false, options: &[] },
];

/// exos tells the program's own handler.
pub(super) const LIBRARY: &str = "library";
/// `mprotect` and SIGSEGV on Aegis.
pub(super) const SIGNALS: &str = "signals";
/// The same on Linux.
pub(super) const LINUX: &str = "linux";
/// The kernel's extension answers, and the program takes its notes.
pub(super) const KERNEL: &str = "kernel";

/// What a program works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// A disk as it is.
    Disk,
    /// A folder: of the host on Aegis, on a disk with ext4 on Linux.
    Folder,
}

/// A program that was built for the machines.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
}

impl Program {
    /// Finds it; `None` if it was not built.
    pub(super) fn find(name: &'static str) -> Option<Self> {
        let path = Artifacts::find().rhino_program(name);
        path.is_file().then_some(Self { name, path })
    }
}

/// A result, and what was counted meanwhile, if anything was.
pub(super) struct Outcome {
    pub(super) line: Found,
    pub(super) instructions: Option<Result<f64, String>>,
}

/// The files of a run, which go with it.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, Failure> {
        let base = if Path::new(MEMORY_FOLDER).is_dir() { MEMORY_FOLDER.into() } else { std::env::temp_dir() };
        let folder = Self(base.join(format!("aegis-rhino-{}", std::process::id())));
        fs::create_dir_all(folder.files()).map_err(|error| Failure::file("making", folder.0.clone(), error))?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// For programs that want a folder.
    fn files(&self) -> PathBuf {
        self.0.join("files")
    }

    fn disk(&self) -> PathBuf {
        self.0.join("disk.raw")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind takes room, no more.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What machines are started from.
pub(super) struct Bench<'a> {
    pub(super) machines: &'a Machines,
    pub(super) folder: Folder,
    init: PathBuf,
    modules: Vec<PathBuf>,
}

impl<'a> Bench<'a> {
    /// Finds what Linux needs.
    pub(super) fn prepare(machines: &'a mut Machines) -> Result<Self, Failure> {
        let folder = Folder::make()?;
        let cache = machines.cache.clone();
        let init = compile::rhino_init(&cache)?;
        let modules = match &mut machines.linux {
            Some(kernel) => kernel.disk_modules(&cache)?,
            None => Vec::new(),
        };
        Ok(Self { machines, folder, init, modules })
    }

    /// Whether a placement takes part.
    pub(super) fn has(&self, placement: &Placement) -> bool {
        if placement.is_aegis { self.machines.has_aegis() } else { self.machines.linux.is_some() }
    }

    /// The line of a machine that runs a program; `words` with `PATH` for what it works on.
    pub(super) fn line(
        &self,
        placement: &Placement,
        program: &Program,
        medium: Medium,
        words: &[String],
    ) -> Result<Line, Failure> {
        let disk = self.folder.disk().display().to_string();
        let place = match medium {
            Medium::Disk => DISK_INSIDE.to_owned(),
            Medium::Folder => format!("{FOLDER_INSIDE}/{}", program.name),
        };
        let words = words.iter().map(|word| OsString::from(if word == "PATH" { &place } else { word }));
        let Some(kernel) = self.machines.linux.as_ref().filter(|_| !placement.is_aegis) else {
            let mut options: Vec<String> = ["-M", "pc", "-q"].map(String::from).to_vec();
            options.extend(match medium {
                Medium::Disk => ["--disk".into(), disk],
                Medium::Folder => ["-v".into(), format!("{}:{FOLDER_INSIDE}", self.folder.files().display())],
            });
            options.extend(placement.options.iter().map(|word| String::from(*word)));
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let words = std::iter::once(program.path.clone().into()).chain(words).collect();
            return Ok(aegis_line(&self.machines.tool, MEMORY_MIB, &options, words));
        };
        let initramfs = self.initramfs(program)?;
        let mounts = if medium == Medium::Folder { "--mount " } else { "" };
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let command = format!("--init {mounts}/{} {}", program.name, words.join(" "));
        let mut line = LinuxLine {
            qemu: &self.machines.qemu,
            kernel: &kernel.image,
            initramfs: &initramfs,
            memory_mib: MEMORY_MIB,
            append: format!("{} -- {command}", System::LinuxTuned.kernel_words()),
            firmware: None,
            shape: Shape { icount_shift: None, cpu_count: 1 },
        }
        .build();
        // A comma in a path is written twice in QEMU's options.
        let disk = disk.replace(',', ",,");
        line.arguments.extend([
            "-blockdev".into(),
            format!("driver=file,filename={disk},node-name=disk0-file,{NODE}").into(),
            "-blockdev".into(),
            format!("driver=raw,node-name=disk0,{NODE},file=disk0-file").into(),
            "-device".into(),
            format!("{DISK},drive=disk0").into(),
        ]);
        Ok(line)
    }

    fn initramfs(&self, program: &Program) -> Result<PathBuf, Failure> {
        let target = self.folder.0.join(format!("{}.cpio", program.name));
        if target.is_file() {
            return Ok(target);
        }
        card::write_with_modules(&self.modules, &self.init, &target)?;
        // Archives one behind the other are one.
        let read = |path: &Path| fs::read(path).map_err(|error| Failure::file("reading", path.into(), error));
        let wrong = |error| Failure::file("writing", target.clone(), error);
        let mut archive = read(&target)?;
        archive.extend(cpio::with_files(&[(program.name.into(), read(&program.path)?)]).map_err(wrong)?);
        fs::write(&target, archive).map_err(wrong)?;
        Ok(target)
    }

    /// Runs a program in a machine of its own; what it said, and why that is not all, if it is not.
    pub(super) fn run(
        &self,
        placement: &Placement,
        program: &Program,
        medium: Medium,
        words: &[String],
        plugin: Option<&Plugin>,
    ) -> Result<(Vec<Outcome>, Option<String>), Failure> {
        self.empty(placement, medium)?;
        let mut line = self.line(placement, program, medium, words)?;
        let system = if placement.is_aegis { System::Aegis } else { System::LinuxTuned };
        let output = plugin.map(|plugin| {
            let output = plugin.output_file(system);
            // One that is there is of a tool that was killed.
            let _ = fs::remove_file(&output);
            let starter = if placement.is_aegis { Starter::Tool } else { Starter::Qemu };
            plugin.add_sums_to(&mut line, starter, &output);
            output
        });
        let (lines, why) = listen(&line, program.name)?;
        let sums = output.as_ref().map(|output| {
            let sums = plugin::sums(output);
            let _ = fs::remove_file(output);
            sums
        });
        Ok((matched(lines, sums), why))
    }

    /// An empty disk; a folder with nothing in it, on Linux as a file system on the disk.
    fn empty(&self, placement: &Placement, medium: Medium) -> Result<(), Failure> {
        let wrong = |path: &Path| {
            let path = path.to_path_buf();
            |error| Failure::file("making", path, error)
        };
        let (files, disk) = (self.folder.files(), self.folder.disk());
        fs::remove_dir_all(&files).and_then(|()| fs::create_dir_all(&files)).map_err(wrong(&files))?;
        fs::File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).map_err(wrong(&disk))?;
        if placement.is_aegis || medium == Medium::Disk {
            return Ok(());
        }
        let made = ["mkfs.ext4", "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"]
            .into_iter()
            .find_map(|name| Command::new(name).args(["-q", "-F"]).arg(&disk).output().ok());
        let made = made.ok_or(Failure::Missing("mkfs.ext4", "on Debian and Ubuntu: sudo apt install e2fsprogs"))?;
        if made.status.success() {
            return Ok(());
        }
        Err(Failure::Generate(last_line(&String::from_utf8_lossy(&made.stderr))))
    }
}

/// Bytes of the disk: a file of holes.
const DISK_BYTES: u64 = 1 << 30;

/// All that a machine says, and why that is not all, if it is not.
fn listen(line: &Line, name: &str) -> Result<(Vec<Found>, Option<String>), Failure> {
    let mut guest = Guest::start(line, LIMITS)?;
    let mut results = Vec::new();
    let mut why = None;
    loop {
        match guest.next() {
            Event::Line(text, _) => match Found::parse(&text) {
                Some(line) => results.push(line),
                None if text.starts_with("init: ") || text.starts_with(&format!("{name}: ")) => why = Some(text),
                None => {}
            },
            Event::End => break,
            Event::Limit(limit) => return Ok((results, Some(limit.into()))),
        }
    }
    let ending = guest.finish_by_itself();
    if why.is_none() && ending.status != Some(0) {
        why = Some(last_line(&ending.errors));
    }
    Ok((results, why))
}

/// Results with what was counted: once for each that has a figure, in their order.
fn matched(lines: Vec<Found>, sums: Option<Vec<f64>>) -> Vec<Outcome> {
    let mut sums = sums.map(Vec::into_iter);
    let one = |line: Found| {
        let has_figure = line.operations > 0;
        let next = sums.as_mut().filter(|_| has_figure).map(|sums| sums.next());
        Outcome { line, instructions: next.map(|sum| sum.ok_or_else(|| "nothing was counted".into())) }
    };
    lines.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::{Found, matched};

    #[test]
    fn what_has_no_figure_was_not_counted() {
        let line = |operations: u32| {
            let text =
                format!("{{\"row\":\"a\",\"series\":\"b\",\"param\":\"c\",\"operations\":{operations},\"seconds\":1}}");
            Found::parse(&text).unwrap()
        };
        let found = matched(vec![line(1), line(0), line(2), line(3)], Some(vec![10.0, 20.0]));
        let counted: Vec<_> = found.into_iter().map(|it| it.instructions).collect();
        assert_eq!(counted[..3], [Some(Ok(10.0)), None, Some(Ok(20.0))]);
        assert!(matches!(&counted[3], Some(Err(_))));
        assert!(matched(vec![line(1)], None)[0].instructions.is_none());
    }
}

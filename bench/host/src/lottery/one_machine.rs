//! One machine in which several share the processor within one system: a pod, or a Linux whose first process
//! `bench/lottery/tasks.c` is.

use std::path::Path;

use aegis_launch::errors::Error;
use aegis_launch::root::HOSTNAME;
use aegis_launch::root::pack_host::HostRoot;

use super::super::compile;
use super::super::failure::Failure;
use super::super::guest::Line;
use super::super::linux::TUNED;
use super::super::progress;
use super::super::system::{LinuxLine, MEMORY_MIB, Shape, aegis_line};
use super::super::tree_images::RootFiles;
use super::contest::{Arena, ICOUNT_SHIFT, Loops, play};

/// Where the program is in the guest.
const TASKS: &str = "/bench/tasks";

/// An experiment within one system.
pub(super) struct Play<'a> {
    /// What the machine runs in.
    pub(super) files: &'a RootFiles,
    /// The experiment and its words.
    pub(super) words: Vec<String>,
    /// Names of the programs that say numbers.
    pub(super) names: &'a [&'a str],
    pub(super) count: usize,
    /// What the draws follow from.
    pub(super) seed: u64,
}

impl Arena<'_> {
    /// A root with the program, with others of the host, and with files at places of the guest.
    pub(super) fn root(&self, programs: &[&str], files: &[(&Path, &str)]) -> Result<RootFiles, Failure> {
        let (_, cache) = self.places();
        let search = std::env::var_os("PATH").unwrap_or_default();
        let mut tree = HostRoot::minimal(HOSTNAME, &search);
        for program in programs {
            tree.add_program(Path::new(program)).map_err(Error::Root)?;
        }
        let own = compile::tasks(cache)?;
        for (file, place) in [(own.as_path(), TASKS)].iter().chain(files) {
            tree.with(file, Some(place.as_bytes())).map_err(Error::Root)?;
        }
        RootFiles::of(cache, "lottery", &tree.finish().map_err(Error::Root)?)
    }

    /// Runs it on Aegis and on Linux, where they take part.
    pub(super) fn within_both(&self, it: &Play<'_>) -> Result<[Option<Loops>; 2], Failure> {
        let aegis = self.has_aegis().then(|| ("Aegis", self.within_aegis(it)));
        let linux = self.within_linux(it).map(|line| ("Linux", line));
        let run = |(system, line): (&'static str, Line)| {
            progress::say(&format!("lottery on {system}: {}", it.words.join(" ")));
            play(system, &line, it.names, it.count)
        };
        Ok([aegis.map(run).transpose()?, linux.map(run).transpose()?])
    }

    fn within_aegis(&self, it: &Play<'_>) -> Line {
        let icount = format!("--icount={ICOUNT_SHIFT}");
        let (seed, image) = (it.seed.to_string(), it.files.image.to_string_lossy());
        let options = ["-q", &icount, "--seed", &seed, "--root", &image];
        let program = [TASKS].into_iter().chain(it.words.iter().map(String::as_str)).map(Into::into).collect();
        aegis_line(self.tool(), MEMORY_MIB, &options, program)
    }

    fn within_linux(&self, it: &Play<'_>) -> Option<Line> {
        let (qemu, _) = self.places();
        let line = LinuxLine {
            qemu,
            kernel: self.linux_kernel()?,
            initramfs: &it.files.initramfs,
            memory_mib: MEMORY_MIB + 2 * it.files.size_mib,
            append: format!("{TUNED} rdinit={TASKS} -- --init {}", it.words.join(" ")),
            firmware: None,
            shape: Shape { icount_shift: Some(ICOUNT_SHIFT), cpu_count: 1 },
        };
        Some(line.build())
    }
}

//! The machines that are compared: what is started, as pure functions of what was prepared.
//!
//! Both systems get the same QEMU, machine type, processor and number of processors, and 512 MiB (Aegis adds
//! its root image and 16 MiB of its own to that). Devices are only those that each needs to say something:
//! Linux a serial port, Aegis also the ports of `aegis run`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use aegis_launch::cache::Cache;
use aegis_launch::errors::Error;
use aegis_launch::machine::artifacts::{Artifacts, find_qemu};

use super::compile;
use super::cpio;
use super::failure::Failure;
use super::guest::Line;
use super::linux::{DEFAULT, Flavour, Kernel, TUNED};
use super::options::{BenchOptions, Side};

/// Memory of a machine in MiB.
pub(crate) const MEMORY_MIB: u32 = 512;
/// The processor of every machine, the one of `aegis run` under TCG.
pub(crate) const PROCESSOR: &str = "max,erms=off,fsrm=off,pku=off,la57=off";

/// A system that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// Aegis.
    Aegis,
    /// Linux with everything off that costs time.
    LinuxTuned,
    /// Linux as it comes.
    LinuxDefault,
}

impl System {
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Aegis => "aegis",
            Self::LinuxTuned => "linux",
            Self::LinuxDefault => "linux_default",
        }
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Aegis => "Aegis",
            Self::LinuxTuned => "Linux",
            Self::LinuxDefault => "Linux default",
        }
    }

    /// The kernel's words; empty for Aegis.
    pub(crate) fn kernel_words(self) -> &'static str {
        match self {
            Self::Aegis => "",
            Self::LinuxTuned => TUNED,
            Self::LinuxDefault => DEFAULT,
        }
    }
}

/// Everything that machines are started from.
#[derive(Debug)]
pub(crate) struct Machines {
    pub(crate) qemu: PathBuf,
    /// This tool.
    pub(crate) tool: PathBuf,
    /// The program of suite micro.
    pub(crate) micro: PathBuf,
    /// The program of suite scale.
    pub(crate) scale: PathBuf,
    /// The cache directory.
    pub(crate) cache: PathBuf,
    /// Linux, if it takes part.
    pub(crate) linux: Option<Kernel>,
    has_aegis: bool,
}

impl Machines {
    /// Finds, fetches and compiles what the run needs, so that nothing is missing in the middle of it.
    pub(crate) fn prepare(options: &BenchOptions) -> Result<Self, Failure> {
        let qemu = find_qemu()?;
        let has_aegis = options.wants(Side::Aegis);
        if has_aegis {
            Artifacts::find().check()?;
        }
        let cache = Cache::open().ok_or(Failure::NoCache)?.directory().to_path_buf();
        let tool = std::env::current_exe().map_err(|error| Error::Host("finding this tool's own file", error))?;
        let wants_linux = options.wants(Side::Linux);
        Ok(Self {
            qemu,
            tool,
            micro: compile::micro(&cache)?,
            scale: compile::scale(&cache)?,
            linux: wants_linux.then(|| Kernel::get(&cache, Flavour::Cloud)).transpose()?,
            cache,
            has_aegis,
        })
    }

    /// The systems of suites micro and scale.
    pub(crate) fn systems(&self) -> Vec<System> {
        let mut systems = Vec::new();
        if self.has_aegis {
            systems.push(System::Aegis);
        }
        if self.linux.is_some() {
            systems.extend([System::LinuxTuned, System::LinuxDefault]);
        }
        systems
    }

    /// Whether Aegis takes part.
    pub(crate) fn has_aegis(&self) -> bool {
        self.has_aegis
    }

    /// The initramfs of a program of rows, whose `/init` it is. It lies beside the program: tools of other versions
    /// share the cache.
    pub(crate) fn rows_initramfs(&self, program: &Path) -> Result<PathBuf, Failure> {
        Self::initramfs(&program.with_extension("cpio"), "init", program)
    }

    /// The initramfs of a program of the host's, whose `/GUEST_NAME` it is.
    pub(crate) fn host_initramfs(&self, guest_name: &str, program: &Path) -> Result<PathBuf, Failure> {
        Self::initramfs(&self.cache.join(format!("{guest_name}.cpio")), guest_name, program)
    }

    /// Writes an initramfs that holds `program` as `/GUEST_NAME`; the file is replaced if it was there.
    fn initramfs(path: &Path, guest_name: &str, program: &Path) -> Result<PathBuf, Failure> {
        let contents = std::fs::read(program).map_err(|error| Failure::file("reading", program.into(), error))?;
        let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
        let written = cpio::with_program(guest_name, &contents)
            .and_then(|archive| std::fs::write(&fresh, archive))
            .and_then(|()| std::fs::rename(&fresh, path));
        written.map_err(|error| {
            let _ = std::fs::remove_file(&fresh);
            Failure::file("writing", path.into(), error)
        })?;
        Ok(path.into())
    }

    /// The line that runs a program of rows. `words` are its verb's arguments; `initramfs` is for Linux.
    pub(crate) fn rows_line(
        &self,
        system: System,
        rows: &Path,
        words: &[String; 4],
        initramfs: &Path,
        shape: Shape,
    ) -> Line {
        let cpu_count = shape.cpu_count.to_string();
        match (system, &self.linux) {
            (System::Aegis, _) | (_, None) => {
                let mut options = vec!["-M", "pc", "-q"];
                if shape.cpu_count != 1 {
                    options.extend(["--cpus", &cpu_count]);
                }
                if shape.icount_shift.is_some() {
                    options.push("--icount");
                }
                let mut program = vec![rows.as_os_str().into(), "--run".into()];
                program.extend(words.iter().map(Into::into));
                aegis_line(&self.tool, MEMORY_MIB, &options, program)
            }
            (_, Some(kernel)) => LinuxLine {
                qemu: &self.qemu,
                kernel: &kernel.image,
                initramfs,
                memory_mib: MEMORY_MIB,
                append: format!("{} -- --init {}", system.kernel_words(), words.join(" ")),
                firmware: None,
                shape,
            }
            .build(),
        }
    }
}

/// What differs between machines of one system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Guest time counts guest instructions, each of them this power of two of nanoseconds.
    pub(crate) icount_shift: Option<u8>,
    /// Processors.
    pub(crate) cpu_count: u8,
}

/// `aegis run`, as a user would write it.
pub(crate) fn aegis_line(tool: &Path, memory_mib: u32, options: &[&str], program: Vec<OsString>) -> Line {
    let mut arguments: Vec<OsString> = ["run", "--accel", "tcg"].into_iter().map(Into::into).collect();
    arguments.extend(["-m".into(), format!("{memory_mib}M").into()]);
    arguments.extend(options.iter().map(Into::into));
    arguments.extend(program);
    Line { program: tool.into(), arguments }
}

/// A Linux machine.
#[derive(Debug)]
pub(crate) struct LinuxLine<'a> {
    /// The QEMU executable.
    pub(crate) qemu: &'a Path,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) memory_mib: u32,
    /// The kernel's command line.
    pub(crate) append: String,
    /// Another firmware than the machine's own.
    pub(crate) firmware: Option<&'a Path>,
    /// Its processors and its clock.
    pub(crate) shape: Shape,
}

impl LinuxLine<'_> {
    /// The same machine as `qemu::MachineLine` makes for Aegis on `-M pc`.
    pub(crate) fn build(&self) -> Line {
        let mut arguments = bare_machine(self.memory_mib, self.shape);
        if let Some(firmware) = self.firmware {
            arguments.extend(["-bios".into(), firmware.into()]);
        }
        arguments.extend(["-kernel".into(), self.kernel.into()]);
        arguments.extend(["-initrd".into(), self.initramfs.into()]);
        arguments.extend(["-append".into(), self.append.clone().into()]);
        Line { program: self.qemu.into(), arguments }
    }
}

/// The arguments of a `-M pc` machine that has nothing but a serial port.
pub(crate) fn bare_machine(memory_mib: u32, shape: Shape) -> Vec<OsString> {
    let threads = if shape.icount_shift.is_some() { "single" } else { "multi" };
    let mut words = format!(
        "-accel tcg,thread={threads} -M pc -cpu {PROCESSOR} -smp {} -nodefaults \
         -no-user-config -no-reboot -display none -vga none -net none -serial stdio -m {memory_mib}M",
        shape.cpu_count
    );
    if let Some(shift) = shape.icount_shift {
        words += &format!(" -icount shift={shift},sleep=off -rtc base=2026-01-01T00:00:00,clock=vm -seed 1");
    }
    words.split(' ').map(Into::into).collect()
}

/// A line as text for reports; words with spaces in quotation marks.
pub(crate) fn shown(line: &Line) -> String {
    let words = std::iter::once(line.program.as_os_str()).chain(line.arguments.iter().map(|it| &**it));
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        if word.contains(' ') { format!("'{word}'") } else { word.into_owned() }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{Machines, Shape, System, shown};
    use crate::linux::{Flavour, Kernel};
    use std::path::Path;

    fn machines() -> Machines {
        Machines {
            qemu: "qemu".into(),
            tool: "aegis".into(),
            micro: "/c/micro".into(),
            scale: "/c/scale".into(),
            cache: "/c".into(),
            linux: Some(Kernel { image: "/c/vmlinuz".into(), version: "6.1".into(), flavour: Flavour::Cloud }),
            has_aegis: true,
        }
    }

    fn line(system: System, counts_instructions: bool) -> String {
        let words = ["a,b".to_string(), "1000".to_string(), "3".to_string(), "aloud".to_string()];
        let shape = Shape { icount_shift: counts_instructions.then_some(0), cpu_count: 1 };
        let machines = machines();
        shown(&machines.rows_line(system, &machines.micro, &words, Path::new("/c/init"), shape))
    }

    #[test]
    fn two_processors() {
        let words = ["a@diff".to_string(), "1000".to_string(), "3".to_string(), "aloud".to_string()];
        let shape = Shape { icount_shift: None, cpu_count: 2 };
        let machines = machines();
        let line = |system| shown(&machines.rows_line(system, &machines.micro, &words, Path::new("/c/init"), shape));
        assert!(line(System::Aegis).contains(" -q --cpus 2 "));
        assert!(line(System::LinuxTuned).contains(" -smp 2 "));
    }

    #[test]
    fn golden_aegis() {
        assert_eq!(
            line(System::Aegis, true),
            "aegis run --accel tcg -m 512M -M pc -q --icount /c/micro --run a,b 1000 3 aloud"
        );
        assert!(!line(System::Aegis, false).contains("icount"));
    }

    #[test]
    fn golden_linux_tuned() {
        assert_eq!(
            line(System::LinuxTuned, true),
            "qemu -accel tcg,thread=single -M pc -cpu max,erms=off,fsrm=off,pku=off,la57=off -smp 1 \
             -nodefaults -no-user-config -no-reboot -display none -vga none -net none -serial stdio \
             -m 512M -icount shift=0,sleep=off -rtc base=2026-01-01T00:00:00,clock=vm -seed 1 \
             -kernel /c/vmlinuz -initrd /c/init -append 'console=ttyS0 panic=-1 quiet loglevel=0 \
             mitigations=off init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off lsm= \
             audit=0 cgroup_disable=memory psi=0 nokaslr norandmaps -- --init a,b 1000 3 aloud'"
        );
    }

    #[test]
    fn linux_as_it_comes() {
        let text = line(System::LinuxDefault, false);
        assert!(text.ends_with("-append 'console=ttyS0 panic=-1 quiet -- --init a,b 1000 3 aloud'"));
        assert!(text.contains("thread=multi") && !text.contains("icount"));
    }

    #[test]
    fn all_rows_fit_on_the_kernels_command_line() {
        let sources = [
            include_str!("../../micro/rows_cpu.c"),
            include_str!("../../micro/rows_memory.c"),
            include_str!("../../micro/rows_file.c"),
            include_str!("../../micro/rows_process.c"),
            include_str!("../../micro/rows_exos.c"),
        ];
        let names = sources.iter().flat_map(|text| text.split("{\"").skip(1));
        let names: Vec<&str> = names.filter_map(|it| it.split('"').next()).collect();
        assert!(names.contains(&"null_getppid_raw") && names.len() > 40);
        // COMMAND_LINE_SIZE of Linux on x86 is 2048, the end of the string included.
        assert!(super::TUNED.len() + names.join(",").len() + 40 < 2048);
    }
}

//! The QEMU run: command line, time limit, end.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use aegis_abi::boot::{PART_CONFIG, PART_INIT};
use aegis_image::{bundle, flat};

use crate::log::Log;

/// QEMU's exit status after the kernel's clean power-off (`isa-debug-exit` with 0x10).
const STATUS_POWER_OFF: i32 = 33;
/// Most bytes of log that are kept; a guest that prints more is cut off.
const LOG_BYTES_MAX: u64 = 8 << 20;
/// How long a run may take unless the test says otherwise.
const LIMIT: Duration = Duration::from_secs(120);

/// A QEMU machine type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineKind {
    /// Virtio over MMIO, no PCI.
    Microvm,
    /// PCI.
    Pc,
    /// PCI Express.
    Q35,
}

/// A run to be.
#[derive(Clone, Debug)]
pub struct Machine {
    kind: MachineKind,
    suites: Vec<String>,
    cpu_count: u32,
    memory_mib: u64,
    slice_ms: u32,
    counts_instructions: bool,
    devices: Vec<String>,
    has_full_firmware: bool,
    /// What an extended kernel drives; none: the usual kernel.
    driven: Option<String>,
    limit: Duration,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

/// Why there was no run.
#[derive(Debug)]
pub enum Failure {
    /// A file that `cargo xtask build` makes is missing.
    Artefact(PathBuf, io::Error),
    /// The guest program cannot be packed.
    Pack(String),
    /// The host did not do something.
    Host(&'static str, io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Artefact(path, error) => {
                write!(formatter, "{}: {error}; run `cargo xtask build` first", path.display())
            }
            Self::Pack(why) => write!(formatter, "cannot pack the guest program: {why}"),
            Self::Host(doing, error) => write!(formatter, "{doing}: {error}"),
        }
    }
}

/// How a run went.
#[derive(Debug)]
pub struct Outcome {
    /// The kernel's log.
    pub log: Log,
    /// QEMU's end; `None` if the time limit ended it.
    pub status: Option<ExitStatus>,
    /// What QEMU complained about.
    pub complaints: String,
}

impl Outcome {
    /// How QEMU ended, in words.
    #[must_use]
    pub fn end(&self) -> String {
        match self.status {
            None => "ended by the time limit".to_string(),
            Some(status) => format!("{status}{}", self.complaints),
        }
    }

    /// What is wrong with this as a run of exactly the cases `expected`.
    ///
    /// # Errors
    /// A text for the reader of the failed test.
    pub fn check(&self, expected: &[String]) -> Result<(), String> {
        self.log.check(expected)?;
        match self.status.and_then(|status| status.code()) {
            Some(STATUS_POWER_OFF) => Ok(()),
            _ => Err(format!("the machine did not go down by itself: {}", self.end())),
        }
    }
}

impl Machine {
    /// A small machine: microvm, one processor, 64 MiB, slices of 2 ms.
    #[must_use]
    pub fn new() -> Self {
        Self {
            kind: MachineKind::Microvm,
            suites: Vec::new(),
            cpu_count: 1,
            memory_mib: 64,
            slice_ms: 2,
            counts_instructions: false,
            devices: Vec::new(),
            has_full_firmware: false,
            driven: None,
            limit: LIMIT,
        }
    }

    /// Another machine type.
    #[must_use]
    pub fn machine(self, kind: MachineKind) -> Self {
        Self { kind, ..self }
    }

    /// Adds a suite; without any, all run.
    #[must_use]
    pub fn suite(mut self, name: &str) -> Self {
        self.suites.push(name.to_string());
        self
    }

    /// Processors.
    #[must_use]
    pub fn cpus(self, cpu_count: u32) -> Self {
        Self { cpu_count, ..self }
    }

    /// Sets the machine's memory, in MiB.
    #[must_use]
    pub fn memory_mib(self, memory_mib: u64) -> Self {
        Self { memory_mib, ..self }
    }

    /// Length of slices.
    #[must_use]
    pub fn slice_ms(self, slice_ms: u32) -> Self {
        Self { slice_ms, ..self }
    }

    /// Guest time counts guest instructions: every run is the same.
    #[must_use]
    pub fn counting_instructions(self) -> Self {
        Self { counts_instructions: true, ..self }
    }

    /// More options of QEMU's, devices for the suite.
    #[must_use]
    pub fn devices(mut self, options: &[&str]) -> Self {
        self.devices.extend(options.iter().map(ToString::to_string));
        self
    }

    /// Firmware that numbers buses and gives addresses, where the machine has PCI.
    #[must_use]
    pub fn full_firmware(self) -> Self {
        Self { has_full_firmware: true, ..self }
    }

    /// The extended kernel, which drives what is named: `disk`, `ide`, `net`, with commas.
    #[must_use]
    pub fn extended(self, driven: &str) -> Self {
        Self { driven: Some(driven.into()), ..self }
    }

    /// How long it may take.
    #[must_use]
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// Only where QEMU could not be started; how the run went is in the outcome.
    pub fn run(&self) -> Result<Outcome, Failure> {
        let folder = artefact_folder();
        let kernel = folder.join(if self.driven.is_some() { "kernel-extended.elf" } else { "kernel.elf" });
        std::fs::metadata(&kernel).map_err(|error| Failure::Artefact(kernel.clone(), error))?;
        let bundle = TemporaryFile::write(&self.bundle(&folder.join("tests-guest.elf"))?)?;
        let child =
            self.command(&kernel, &bundle.path).spawn().map_err(|error| Failure::Host("starting QEMU", error))?;
        collect(child, self.limit)
    }

    /// The boot bundle: the guest program and what it should do.
    fn bundle(&self, program: &Path) -> Result<Vec<u8>, Failure> {
        let elf = std::fs::read(program).map_err(|error| Failure::Artefact(program.into(), error))?;
        let image = flat::from_elf(&elf).map_err(|error| Failure::Pack(error.to_string()))?;
        let mut configuration = format!("cpus={}\nmemory_mib={}\n", self.cpu_count, self.memory_mib);
        for suite in &self.suites {
            configuration.push_str(suite);
            configuration.push('\n');
        }
        let parts: [(u32, &[u8]); 2] = [(PART_INIT, &image), (PART_CONFIG, configuration.as_bytes())];
        bundle::write(Vec::new(), &parts).map_err(|error| Failure::Pack(error.to_string()))
    }

    fn command(&self, kernel: &Path, bundle: &Path) -> Command {
        // QEMU dies with the thread that started it, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        let kind = match self.kind {
            MachineKind::Microvm => "microvm,acpi=on",
            MachineKind::Pc => "pc",
            MachineKind::Q35 => "q35",
        };
        command.args(["-M", kind, "-cpu", "max,erms=off,fsrm=off,pku=off,la57=off"]);
        command.args(["-smp", &self.cpu_count.to_string()]);
        command.args(["-m", &format!("{}M", self.memory_mib)]);
        if self.counts_instructions {
            command.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]);
            command.args(["-rtc", "base=2026-01-01T00:00:00,clock=vm", "-seed", "1"]);
        } else {
            command.args(["-accel", "tcg,thread=multi"]);
        }
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-net", "none"]);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04", "-serial", "stdio"]);
        // A device to play with: a source of random numbers.
        match self.kind {
            MachineKind::Microvm => {
                command.args(["-global", "virtio-mmio.force-legacy=false"]);
                command.args(["-device", "virtio-rng-device"]);
            }
            MachineKind::Pc | MachineKind::Q35 => {
                let qboot = Path::new("/usr/share/qemu/qboot.rom");
                if qboot.exists() && !self.has_full_firmware {
                    command.arg("-bios").arg(qboot);
                }
                command.args(["-device", "virtio-rng-pci,disable-legacy=on,disable-modern=off"]);
            }
        }
        command.args(&self.devices);
        let driven = self.driven.as_ref().map(|driven| format!(" drive={driven}")).unwrap_or_default();
        command.arg("-append").arg(format!("slice_ms={}{driven}", self.slice_ms));
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(bundle);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Where `cargo xtask build` publishes.
pub(crate) fn artefact_folder() -> PathBuf {
    match std::env::var_os("AEGIS_ARTIFACTS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/aegis"),
    }
}

/// Reads all output until the end or the limit.
fn collect(mut child: Child, limit: Duration) -> Result<Outcome, Failure> {
    let log = read_all(child.stdout.take());
    let complaints = read_all(child.stderr.take());
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(|error| Failure::Host("waiting for QEMU", error))? {
            Some(status) => break Some(status),
            None if Instant::now() >= deadline => {
                // It may have ended just now; then there is nothing to kill.
                let _ = child.kill();
                child.wait().map_err(|error| Failure::Host("waiting for QEMU", error))?;
                break None;
            }
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let text =
        |reader: thread::JoinHandle<Vec<u8>>| String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned();
    let complaints = text(complaints);
    let complaints = if complaints.is_empty() { complaints } else { format!(": {complaints}") };
    Ok(Outcome { log: Log::parse(text(log)), status, complaints })
}

fn read_all(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is what there is; the rest is drained so that QEMU does not block.
            let _ = stream.by_ref().take(LOG_BYTES_MAX).read_to_end(&mut bytes);
            let _ = io::copy(&mut stream, &mut io::sink());
        }
        bytes
    })
}

/// A file that goes when it is dropped.
struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    fn write(bytes: &[u8]) -> Result<Self, Failure> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("aegis-tests-{}-{number}", std::process::id());
        let file = Self { path: std::env::temp_dir().join(name) };
        std::fs::write(&file.path, bytes).map_err(|error| Failure::Host("writing the bundle", error))?;
        Ok(file)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Nothing to be done if somebody else removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

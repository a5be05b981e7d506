//! Where the things are that a machine is started from: QEMU, its firmware, the kernel, exos.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use aegis_image::flat;

use crate::errors::{Doing, Error};

/// The executable that is looked for on PATH when `AEGIS_QEMU` is not set.
const QEMU: &str = "qemu-system-x86_64";
/// Where distributions put the small firmware that starts PVH kernels at once.
const QBOOT: [&str; 2] = ["/usr/share/qemu/qboot.rom", "/usr/share/qemu-kvm/qboot.rom"];

/// The program headers of what a linker makes end before this.
const ELF_HEADERS_BYTES: u64 = 4096;

/// What `cargo xtask build` made.
#[derive(Debug)]
pub struct Artifacts {
    directory: PathBuf,
}

impl Artifacts {
    /// The directory is `$AEGIS_ARTIFACTS`; without it, the one of this executable, or `aegis/` next to that
    /// one (the layout of a cargo target directory), or `lib/aegis/` there (that of an installation).
    pub fn find() -> Self {
        if let Some(directory) = std::env::var_os("AEGIS_ARTIFACTS") {
            return Self { directory: directory.into() };
        }
        let own = std::env::current_exe().unwrap_or_default();
        let beside = own.parent().unwrap_or(Path::new("/"));
        let published = beside.parent().unwrap_or(Path::new("/")).join("aegis");
        let has_kernel = |directory: &&Path| directory.join("kernel.elf").is_file();
        let installed = beside.parent().unwrap_or(Path::new("/")).join("lib/aegis");
        let found = [beside, &published, &installed].into_iter().find(has_kernel);
        Self { directory: found.unwrap_or(&published).to_path_buf() }
    }

    /// The kernel's ELF file.
    pub fn kernel(&self) -> PathBuf {
        self.directory.join("kernel.elf")
    }

    /// The kernel's ELF file, or that of the kernel that drivers are placed in.
    ///
    /// # Errors
    /// It is missing.
    pub fn kernel_for(&self, is_extended: bool) -> Result<PathBuf, Error> {
        let path = if is_extended { self.directory.join("kernel-extended.elf") } else { self.kernel() };
        if path.is_file() { Ok(path) } else { Err(Error::ArtifactMissing(path)) }
    }

    /// The library OS's ELF file.
    pub fn library_os(&self) -> PathBuf {
        self.directory.join("exos.elf")
    }

    /// The manager of a machine with several pods, as the kernel maps it.
    pub fn flat_manager(&self) -> Result<Vec<u8>, Error> {
        flat_of(self.directory.join("pods.elf"))
    }

    /// The disk domain, as whoever makes one maps it.
    pub fn flat_disk_domain(&self) -> Result<Vec<u8>, Error> {
        flat_of(self.directory.join("disk-domain.elf"))
    }

    /// The network domain, in the same way.
    pub fn flat_net_domain(&self) -> Result<Vec<u8>, Error> {
        flat_of(self.directory.join("net-domain.elf"))
    }

    /// The program of the native benchmark rows.
    pub fn native_bench(&self) -> PathBuf {
        self.directory.join("bench-native.elf")
    }

    /// A program of the benchmark of recoverable memory.
    pub fn rhino_program(&self, name: &str) -> PathBuf {
        self.directory.join(format!("rhino-{name}"))
    }

    /// Both, or an error that names the one that is missing.
    pub fn check(&self) -> Result<(), Error> {
        for path in [self.kernel(), self.library_os()] {
            if !path.is_file() {
                return Err(Error::ArtifactMissing(path));
            }
        }
        Ok(())
    }

    /// The library OS as the kernel maps it.
    pub fn flat_library_os(&self) -> Result<Vec<u8>, Error> {
        flat_of(self.library_os())
    }
}

/// Reads no further than segments reach: symbols are five times as long, and every start would wait for them.
fn flat_of(path: PathBuf) -> Result<Vec<u8>, Error> {
    const DOING: &str = "reading what the machine starts from";
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Error::ArtifactMissing(path)),
        found => found.doing(DOING)?,
    };
    let mut elf = Vec::new();
    file.by_ref().take(ELF_HEADERS_BYTES).read_to_end(&mut elf).doing(DOING)?;
    let bad = |why: flat::FlatError| Error::ArtifactBad(path.clone(), why.to_string());
    let rest_bytes = flat::needed_bytes(&elf).map_err(bad)? - elf.len() as u64;
    file.take(rest_bytes).read_to_end(&mut elf).doing(DOING)?;
    flat::from_elf(&elf).map_err(bad)
}

/// The QEMU to start: `$AEGIS_QEMU`, or the first on PATH.
pub fn find_qemu() -> Result<PathBuf, Error> {
    let name = std::env::var_os("AEGIS_QEMU").unwrap_or_else(|| QEMU.into());
    find_on_path(&name).ok_or(Error::QemuMissing(name))
}

/// The program of this name: by its path, or the first on PATH.
pub(crate) fn find_on_path(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_path_buf());
    }
    let search = std::env::var_os("PATH")?;
    std::env::split_paths(&search).map(|directory| directory.join(name)).find(|it| it.is_file())
}

/// qboot, if it is installed.
pub fn find_qboot() -> Option<&'static Path> {
    QBOOT.iter().map(Path::new).find(|path| path.is_file())
}

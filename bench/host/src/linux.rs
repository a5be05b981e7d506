//! Debian's kernels: fetched from Debian once, kept in the cache, and started with a program as its first process.
//!
//! The package is what `linux-image-cloud-amd64` depends on, or where drivers of real devices are wanted, what
//! `linux-image-amd64` does. apt fetches and checks it, dpkg-deb opens it,
//! and only the kernel is kept; none of that needs root. Delete `linux/` in the cache to fetch a newer one.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::failure::{Failure, last_line};

const APT_HOW: &str = "Linux is measured with Debian's kernel, which apt fetches (--only aegis needs no Linux)";
/// Modules of the kernel that a virtio card on PCI needs, in the order in which they are loaded.
const NETWORK_MODULES: [&str; 8] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
];
/// The same, and those of Intel's cards.
const CARD_MODULES: [&str; 10] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "e1000",
    "e1000e",
];
/// The same of a virtio disk, behind those of virtio on PCI, and of an IDE disk.
const DISK_MODULES: [&str; 6] = ["virtio_blk", "scsi_common", "scsi_mod", "libata", "ata_piix", "sd_mod"];
/// As many of the first modules of each are virtio on PCI.
const BUS_MODULE_COUNT: usize = 5;
/// Least size of a kernel in bytes; less is a broken file.
const KERNEL_BYTES_MIN: u64 = 1 << 20;

/// The column to beat: everything off that costs time and that a benchmark does not need
/// (reference/linux-anchor.md).
pub(crate) const TUNED: &str = "console=ttyS0 panic=-1 quiet loglevel=0 mitigations=off init_on_alloc=0 \
     hardened_usercopy=off randomize_kstack_offset=off lsm= audit=0 cgroup_disable=memory psi=0 nokaslr \
     norandmaps";
/// The command line of a user that changes nothing.
pub(crate) const DEFAULT: &str = "console=ttyS0 panic=-1 quiet";

/// Which of Debian's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// For virtual machines.
    Cloud,
    /// For any machine.
    Generic,
}

impl Flavour {
    /// The package that always depends on the newest one.
    fn meta_package(self) -> &'static str {
        match self {
            Self::Cloud => "linux-image-cloud-amd64",
            Self::Generic => "linux-image-amd64",
        }
    }

    /// Its folder in the cache.
    fn folder(self) -> &'static str {
        match self {
            Self::Cloud => "linux",
            Self::Generic => "linux-generic",
        }
    }

    /// The modules of a card, in the order in which they are loaded.
    fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Cloud => &NETWORK_MODULES,
            Self::Generic => &CARD_MODULES,
        }
    }

    /// The modules that are kept.
    fn kept(self) -> Vec<&'static str> {
        self.modules().iter().chain(&DISK_MODULES).copied().collect()
    }
}

/// A kernel in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The file that QEMU loads.
    pub(crate) image: PathBuf,
    /// Name and version of the package.
    pub(crate) version: String,
    /// Which one it is.
    pub(crate) flavour: Flavour,
}

impl Kernel {
    /// The cached kernel, fetched if there is none.
    pub(crate) fn get(cache: &Path, flavour: Flavour) -> Result<Self, Failure> {
        let directory = cache.join(flavour.folder());
        match Self::cached(&directory, flavour) {
            Some(kernel) => Ok(kernel),
            None => Self::fetched(&directory, flavour),
        }
    }

    fn fetched(directory: &Path, flavour: Flavour) -> Result<Self, Failure> {
        eprintln!("aegis: fetching Debian's kernel ({}, once)", flavour.meta_package());
        let scratch = directory.join(format!("fetch.{}.tmp", std::process::id()));
        let fetched = fetch(&scratch, directory, flavour);
        // Left-overs only take room.
        let _ = fs::remove_dir_all(&scratch);
        fetched?;
        Self::cached(directory, flavour).ok_or_else(|| Failure::Fetch("the package holds no kernel".into()))
    }

    /// The files of the modules for a virtio card, in the order in which they are loaded. A cache that holds the kernel
    /// alone, as older tools left it, is filled anew.
    pub(crate) fn network_modules(&mut self, cache: &Path) -> Result<Vec<PathBuf>, Failure> {
        self.modules(cache, self.flavour.modules())
    }

    /// The same for virtio and IDE disks.
    pub(crate) fn disk_modules(&mut self, cache: &Path) -> Result<Vec<PathBuf>, Failure> {
        let bus = self.flavour.modules().iter().take(BUS_MODULE_COUNT);
        self.modules(cache, &bus.chain(&DISK_MODULES).copied().collect::<Vec<_>>())
    }

    fn modules(&mut self, cache: &Path, names: &[&str]) -> Result<Vec<PathBuf>, Failure> {
        let directory = cache.join(self.flavour.folder());
        let path = |name: &&str| directory.join("modules").join(name).with_extension("ko");
        let paths: Vec<PathBuf> = names.iter().map(path).collect();
        if !paths.iter().all(|path| path.is_file()) {
            *self = Self::fetched(&directory, self.flavour)?;
        }
        Ok(paths)
    }

    fn cached(directory: &Path, flavour: Flavour) -> Option<Self> {
        let image = directory.join("vmlinuz");
        let version = fs::read_to_string(directory.join("version")).ok()?;
        let is_kernel = fs::metadata(&image).is_ok_and(|it| it.len() >= KERNEL_BYTES_MIN);
        is_kernel.then(|| Self { image, version: version.trim().to_string(), flavour })
    }
}

/// Leaves `vmlinuz` and `version` in `directory`.
fn fetch(scratch: &Path, directory: &Path, flavour: Flavour) -> Result<(), Failure> {
    let file = |path: &Path| {
        let path = path.to_path_buf();
        move |error| Failure::file("writing", path, error)
    };
    fs::create_dir_all(scratch).map_err(file(scratch))?;
    let meta_package = flavour.meta_package();
    let depends = output(Command::new("apt-cache").args(["depends", meta_package]))?;
    let package = dependency(&String::from_utf8_lossy(&depends.stdout))
        .ok_or_else(|| Failure::Fetch(format!("apt knows no {meta_package}; try apt-get update")))?;
    let mut download = Command::new("apt-get");
    download
        .current_dir(scratch)
        .args(["-q", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=30"])
        // Without this, root's apt warns that its own user cannot write here.
        .args(["-o", "APT::Sandbox::User=root", "download", &package]);
    let downloaded = output(&mut download)?;
    let archive = fs::read_dir(scratch).ok().and_then(|entries| {
        let mut paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        paths.find(|path| path.extension().is_some_and(|it| it == "deb"))
    });
    let (true, Some(archive)) = (downloaded.status.success(), archive) else {
        return Err(Failure::Fetch(last_line(&String::from_utf8_lossy(&downloaded.stderr))));
    };
    let modules = scratch.join("modules");
    fs::create_dir_all(&modules).map_err(file(&modules))?;
    unpack(&archive, scratch, flavour)?;
    let version = archive.file_stem().map(|it| it.to_string_lossy().into_owned());
    let version_path = scratch.join("version");
    fs::write(&version_path, version.unwrap_or(package)).map_err(file(&version_path))?;
    let old = directory.join("modules");
    if old.is_dir() {
        fs::remove_dir_all(&old).map_err(file(&old))?;
    }
    for name in ["modules", "vmlinuz", "version"] {
        let target = directory.join(name);
        fs::rename(scratch.join(name), &target).map_err(file(&target))?;
    }
    Ok(())
}

/// `  Depends: NAME` in what `apt-cache depends` says.
fn dependency(text: &str) -> Option<String> {
    let mut names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.find(|name| name.starts_with("linux-image-")).map(Into::into)
}

/// Copies `/boot/vmlinuz-*` and the modules out of a Debian package into a folder.
fn unpack(package: &Path, folder: &Path, flavour: Flavour) -> Result<(), Failure> {
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|_| Failure::Missing("dpkg-deb", APT_HOW))?;
    let copied = match child.stdout.take() {
        Some(output) => copy_kernel(output, folder, &flavour.kept()),
        None => Ok(()),
    };
    // The archive need not be read to its end, so dpkg-deb may well have been cut off.
    let _ = child.kill();
    let _ = child.wait();
    copied.map_err(|error| Failure::file("writing", folder.into(), error))
}

fn copy_kernel(archive: impl Read, folder: &Path, modules: &[&str]) -> io::Result<()> {
    let mut left = modules.len() + 1;
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let Some(name) = wanted_name(&entry.path()?, modules) else { continue };
        io::copy(&mut entry, &mut fs::File::create(folder.join(name))?)?;
        left -= 1;
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// Where a file of the package goes, if it is one of those that are kept.
fn wanted_name(path: &Path, modules: &[&str]) -> Option<PathBuf> {
    let text = path.to_string_lossy();
    if text.trim_start_matches("./").starts_with("boot/vmlinuz-") {
        return Some("vmlinuz".into());
    }
    let is_module = path.extension().is_some_and(|it| it == "ko");
    let name = path.file_name().filter(|_| is_module)?;
    let stem = path.file_stem()?.to_string_lossy();
    modules.contains(&stem.as_ref()).then(|| Path::new("modules").join(name))
}

fn output(command: &mut Command) -> Result<Output, Failure> {
    command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Missing("apt-get", APT_HOW),
        _ => Failure::Host("starting apt-get", error),
    })
}

#[cfg(test)]
mod tests {
    use super::{copy_kernel, dependency};

    #[test]
    fn the_dependency_of_the_meta_package() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n  Suggests: x\n";
        assert_eq!(dependency(text).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(dependency("N: Unable to locate package\n"), None);
        assert_eq!(dependency(""), None);
    }

    #[test]
    fn the_kernel_of_a_package() {
        let mut builder = tar::Builder::new(Vec::new());
        let files = [
            ("./boot/config-6", &b"no"[..]),
            ("./boot/vmlinuz-6", b"kernel"),
            ("./lib/modules/6/kernel/drivers/net/virtio_net.ko", b"module"),
            ("./lib/modules/6/kernel/drivers/net/dummy.ko", b"no"),
        ];
        for (name, contents) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, contents).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        let folder = std::env::temp_dir().join(format!("aegis-kernel-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("modules")).unwrap();
        copy_kernel(&archive[..], &folder, &super::NETWORK_MODULES).unwrap();
        assert_eq!(std::fs::read(folder.join("vmlinuz")).unwrap(), b"kernel");
        assert_eq!(std::fs::read(folder.join("modules/virtio_net.ko")).unwrap(), b"module");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! The pool of a machine: `[disk.pool]` of `aegis up`'s file, and what of its image each pod has.
//!
//! What the file says is checked as a pure function of it ([`check`]). The image is opened when the machine is made
//! ([`MachinePool::take`]): extents that are not there are made then, and other tools are kept from the image until the
//! machine has ended.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use aegis_launch::errors::Error;
use aegis_launch::machine::disks::DiskImage;
use aegis_launch::pool::Pool;
use aegis_launch::pool::directory::UNIT_SECTORS;
use aegis_launch::pool::medium::ImageFile;
use aegis_link::drivers::{Drivers, Placement};
use aegis_link::pods::{ExtentPlan, POD_COUNT_MAX, POOL_EXTENT_COUNT_MAX};

use crate::options::disks::PoolDisk;
use crate::options::groups::MachineOptions;
use crate::verb::up_file::UpFile;

/// Most pods of a machine with a pool, whose domain has a part of the bundle.
pub(crate) const POOL_POD_COUNT_MAX: usize = POD_COUNT_MAX - 1;

/// Finds fault with the pods' extents: where, and what.
pub(crate) fn check(file: &UpFile) -> Result<(), (usize, String)> {
    let extents =
        || file.pods.iter().flat_map(|pod| pod.options.disks.extents.iter().map(|it| (pod.name.as_str(), it)));
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for (count, (pod, PoolDisk { name, at, .. })) in extents().enumerate() {
        let wrong = |text: String| Err((*at, format!("disk: pool:{name}: {text}")));
        if file.pool.is_none() {
            return wrong("no pool; write [disk.pool] with image = \"…\"".into());
        }
        if count >= POOL_EXTENT_COUNT_MAX {
            return wrong(format!("the pods of a machine have at most {POOL_EXTENT_COUNT_MAX} extents"));
        }
        match users.insert(name, pod) {
            Some(other) if other == pod => return wrong("twice the same".into()),
            Some(other) => return wrong(format!("pod {other} has it already, and an extent is one pod's")),
            None => {}
        }
    }
    match extents().next() {
        Some((_, extent)) if file.pods.len() > POOL_POD_COUNT_MAX => {
            let count = file.pods.len();
            Err((extent.at, format!("{count} pods; a machine with a pool has at most {POOL_POD_COUNT_MAX}")))
        }
        _ => Ok(()),
    }
}

/// Whether a pod has an extent. A pool that none has a part of is left alone.
pub(crate) fn has_pool(file: &UpFile) -> bool {
    file.pods.iter().any(|pod| !pod.options.disks.extents.is_empty())
}

/// Whose driver stands against a pool, and why: a kernel that drives disks drives all.
pub(crate) fn foreign_driver(file: &UpFile, drivers: &[Drivers]) -> Option<(usize, String)> {
    let in_kernel = |it: &Drivers| it.disk.placement == Placement::Kernel;
    let pod = drivers.iter().position(in_kernel).filter(|_| has_pool(file))?;
    Some((pod, "disk=kernel: the kernel drives all disks, and a pool has its own domain".into()))
}

/// The pool of a machine that is being made or runs.
#[derive(Debug)]
pub(crate) struct MachinePool {
    /// As QEMU is told.
    pub(crate) image: DiskImage,
    /// The pods' extents, in the order of the pods and of their disks.
    pub(crate) extents: Vec<ExtentPlan>,
    /// Keeps other tools from the image.
    _pool: Pool<ImageFile>,
}

impl MachinePool {
    /// Finds or makes the pods' extents, and says which are made; `None` for a machine without a pool. A dry run
    /// writes nothing.
    ///
    /// # Errors
    /// The image or an extent cannot be had.
    pub(crate) fn take(file: &UpFile, options: &MachineOptions) -> Result<Option<Self>, Error> {
        let Some((pool, made)) = Self::take_and_tell(file, options.dry_run)? else { return Ok(None) };
        for line in made.iter().filter(|_| !options.quiet) {
            eprintln!("aegis: {line}");
        }
        Ok(Some(pool))
    }

    fn take_and_tell(file: &UpFile, is_dry: bool) -> Result<Option<(Self, Vec<String>)>, Error> {
        let Some(path) = file.pool.as_ref().filter(|_| has_pool(file)) else { return Ok(None) };
        let wrong = |error| Error::Pool(path.clone(), error);
        let medium = if is_dry { ImageFile::look(path) } else { ImageFile::lock(path) }.map_err(wrong)?;
        if let Some(pod) = file.pods.iter().find(|pod| pod.options.disks.disks.iter().any(|it| is_same(&it.path, path)))
        {
            let text = format!("disk: {} is the pool, of which a pod has extents: pool:NAME", path.display());
            return Err(Error::Pod(pod.name.clone(), Box::new(Error::Usage(text))));
        }
        let mut pool = Pool::open(medium).map_err(wrong)?;
        let (mut extents, mut made) = (Vec::new(), Vec::new());
        for (number, pod) in file.pods.iter().enumerate() {
            for disk in &pod.options.disks.extents {
                let is_there = pool.extents().iter().any(|extent| extent.name == disk.name);
                let taken = pool.take(&disk.name, &pod.name, disk.sector_count);
                let taken = taken.map_err(|error| Error::Pod(pod.name.clone(), Box::new(wrong(error))))?;
                if !is_there {
                    let (how, mib) = (if is_dry { "would be" } else { "was" }, taken.sector_count / UNIT_SECTORS);
                    made.push(format!(
                        "{}: extent {} of {mib} MiB {how} made in {}",
                        pod.name,
                        disk.name,
                        path.display()
                    ));
                }
                extents.push(ExtentPlan {
                    pod: number as u32,
                    is_read_only: disk.is_read_only,
                    first_sector: taken.first_sector,
                    sector_count: taken.sector_count,
                });
            }
        }
        pool.medium().let_machine_in().map_err(wrong)?;
        let image = DiskImage { path: path.clone(), is_read_only: false, serial: None, failures: None };
        Ok(Some((Self { image, extents, _pool: pool }, made)))
    }
}

/// Whether these are one file, or one block device.
fn is_same(first: &Path, second: &Path) -> bool {
    let identity = |path: &Path| {
        let it = std::fs::metadata(path).ok()?;
        Some(if it.file_type().is_block_device() { (0, 0, it.rdev()) } else { (it.dev(), it.ino(), 0) })
    };
    identity(first).is_some_and(|it| identity(second) == Some(it))
}

#[cfg(test)]
#[path = "up_pool_tests.rs"]
mod tests;

//! The boot bundle of a run: exos, the run configuration and the root image, in a file that only this run
//! has.
//!
//! The file is in memory (`memfd`) and has no name, so nothing is left behind however the tool ends; QEMU
//! opens it through `/proc/self/fd`. The root image is copied by the host's kernel, the small parts are
//! written.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;

use aegis_abi::boot::{PART_CONFIG, PART_INIT, PART_ROOT};
use aegis_image::Sink;
use aegis_image::bundle::{PartPlan, Writer, place};
use aegis_link::drivers::PART_DISK_DOMAIN;
use aegis_link::pods::{PART_LIBRARY_OS, PART_PLAN, PART_POD};
use rustix::fs::MemfdFlags;

use crate::errors::{Doing, Error};

/// A root image, ready to be copied.
#[derive(Debug)]
pub struct RootImage {
    /// The image; where its offset stands does not matter.
    pub file: File,
    /// Length in bytes, padding included.
    pub size_bytes: u64,
}

/// A bundle and its length.
#[derive(Debug)]
pub struct BootBundle {
    /// The bundle, open; it has no name and goes with this descriptor.
    pub file: OwnedFd,
    /// Length in bytes, padding included.
    pub size_bytes: u64,
}

/// Builds the bundle; with the images of domains that drive the pod's devices, each with its kind of part.
pub fn build(
    library_os: &[u8],
    config: &[u8],
    domains: &[(u32, Vec<u8>)],
    root: Option<&RootImage>,
) -> Result<BootBundle, Error> {
    let mut small = vec![(PART_INIT, library_os), (PART_CONFIG, config)];
    small.extend(domains.iter().map(|(part, image)| (*part, &image[..])));
    let plan = |(kind, bytes): &(u32, &[u8])| PartPlan { kind: *kind, length_bytes: bytes.len() as u64 };
    let mut plans: Vec<PartPlan> = small.iter().map(plan).collect();
    if let Some(root) = root {
        plans.push(PartPlan { kind: PART_ROOT, length_bytes: root.size_bytes });
    }
    let too_large = || Error::Usage("the root image is too large".into());
    let (_, size_bytes) = place(&plans).ok_or_else(too_large)?;
    // Header and small parts, padded to where the root image begins.
    let small_bytes: usize = small.iter().map(|(_, bytes)| bytes.len() + 4096).sum();
    let mut head = Vec::with_capacity(small_bytes + 4096);
    let mut writer = Writer::new(&mut head, &plans).map_err(|_| too_large())?;
    for (_, bytes) in small {
        writer.write_all(bytes).map_err(|_| too_large())?;
    }
    let mut file = memory_file("aegis-bundle")?;
    file.write_all(&head).doing("writing the boot bundle")?;
    if let Some(root) = root {
        copy_root(root, &mut file).doing("copying the root image")?;
    }
    file.set_len(size_bytes).doing("writing the boot bundle")?;
    Ok(BootBundle { file: file.into(), size_bytes })
}

/// What a machine with several pods starts from.
#[derive(Debug)]
pub struct PodsImage<'a> {
    /// The manager, flat.
    pub manager: &'a [u8],
    /// The library OS of all pods, flat.
    pub library_os: &'a [u8],
    /// The plan (`aegis_link::pods`).
    pub plan: &'a [u8],
    /// The domain that drives the pool, flat; none without a pool.
    pub pool_domain: Option<&'a [u8]>,
    /// The pods, in the plan's order.
    pub pods: Vec<PodImage<'a>>,
}

/// A pod of them.
#[derive(Debug)]
pub struct PodImage<'a> {
    /// Its configuration.
    pub config: &'a [u8],
    /// Images of domains that drive its devices, each with its kind of part.
    pub domains: &'a [(u32, Vec<u8>)],
    /// Its root image, if it has one.
    pub root: Option<&'a RootImage>,
}

/// Builds the bundle of a machine with several pods: each has a bundle of its own in it.
pub fn build_several(image: &PodsImage<'_>) -> Result<BootBundle, Error> {
    let too_large = || Error::Usage("the root images are too large".into());
    let mut pods = Vec::new();
    for PodImage { config, domains, root } in &image.pods {
        let mut plans = vec![PartPlan { kind: PART_CONFIG, length_bytes: config.len() as u64 }];
        plans.extend(domains.iter().map(|(kind, bytes)| PartPlan { kind: *kind, length_bytes: bytes.len() as u64 }));
        plans.extend(root.map(|root| PartPlan { kind: PART_ROOT, length_bytes: root.size_bytes }));
        let (_, size_bytes) = place(&plans).ok_or_else(too_large)?;
        pods.push((plans, size_bytes));
    }
    let mut small = vec![(PART_INIT, image.manager), (PART_PLAN, image.plan), (PART_LIBRARY_OS, image.library_os)];
    small.extend(image.pool_domain.map(|domain| (PART_DISK_DOMAIN, domain)));
    let mut plans: Vec<PartPlan> =
        small.iter().map(|(kind, bytes)| PartPlan { kind: *kind, length_bytes: bytes.len() as u64 }).collect();
    plans.extend(pods.iter().map(|(_, size_bytes)| PartPlan { kind: PART_POD, length_bytes: *size_bytes }));
    let (parts, size_bytes) = place(&plans).ok_or_else(too_large)?;
    let mut head = Vec::new();
    let mut writer = Writer::new(&mut head, &plans).map_err(|_| too_large())?;
    for (_, bytes) in &small {
        writer.write_all(bytes).map_err(|_| too_large())?;
    }
    let mut file = memory_file("aegis-bundle")?;
    file.write_all(&head).doing("writing the boot bundle")?;
    for ((PodImage { config, domains, root }, (plans, _)), part) in
        image.pods.iter().zip(&pods).zip(&parts[small.len()..])
    {
        let mut head = Vec::new();
        let mut writer = Writer::new(&mut head, plans).map_err(|_| too_large())?;
        writer.write_all(config).map_err(|_| too_large())?;
        for (_, bytes) in *domains {
            writer.write_all(bytes).map_err(|_| too_large())?;
        }
        file.seek(io::SeekFrom::Start(part.offset_bytes)).doing("writing the boot bundle")?;
        file.write_all(&head).doing("writing the boot bundle")?;
        if let Some(root) = root {
            copy_root(root, &mut file).doing("copying a root image")?;
        }
    }
    file.set_len(size_bytes).doing("writing the boot bundle")?;
    Ok(BootBundle { file: file.into(), size_bytes })
}

/// A file in memory, without a name.
pub(crate) fn memory_file(label: &str) -> Result<File, Error> {
    let fd = rustix::fs::memfd_create(label, MemfdFlags::CLOEXEC).doing("making a file in memory")?;
    Ok(File::from(fd))
}

fn copy_root(root: &RootImage, bundle: &mut File) -> io::Result<()> {
    let mut source = &root.file;
    source.rewind()?;
    let copied = io::copy(&mut io::Read::take(source, root.size_bytes), bundle)?;
    if copied == root.size_bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::{PodImage, PodsImage, RootImage, build, build_several, memory_file};
    use aegis_abi::boot::{PART_CONFIG, PART_INIT, PART_ROOT};
    use aegis_link::drivers::PART_DISK_DOMAIN;
    use aegis_link::pods::{PART_LIBRARY_OS, PART_PLAN, PART_POD};
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    #[test]
    fn the_bundle_holds_what_was_put_in() {
        let mut file = memory_file("root").unwrap();
        let image: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        file.write_all(&image).unwrap();
        let root = RootImage { file, size_bytes: 8192 };
        let bundle = build(b"library", b"config", &[(PART_DISK_DOMAIN, b"domain".to_vec())], Some(&root)).unwrap();
        let mut file = File::from(bundle.file);
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, bundle.size_bytes);
        let parsed = aegis_image::bundle::parse(&bytes).unwrap();
        let small = [(PART_INIT, &b"library"[..]), (PART_CONFIG, b"config"), (PART_DISK_DOMAIN, b"domain")];
        for (kind, expected) in small.into_iter().chain([(PART_ROOT, &image[..8192])]) {
            let part = parsed.find(kind).unwrap();
            assert_eq!(parsed.contents(part), expected, "part {kind}");
        }
    }

    #[test]
    fn pods_have_whole_bundles_in_the_machines() {
        let mut file = memory_file("root").unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let root = RootImage { file, size_bytes: 8192 };
        let domains = [(PART_DISK_DOMAIN, vec![3; 6000])];
        let pod = |config, domains, root| PodImage { config, domains, root };
        let pods = vec![
            pod(&b"first"[..], &[][..], Some(&root)),
            pod(b"second", &domains, None),
            pod(b"third", &domains, Some(&root)),
        ];
        let pool_domain = Some(&[4; 7000][..]);
        let image = PodsImage { manager: b"manager", library_os: &[9; 5000], plan: b"plan", pool_domain, pods };
        let bundle = build_several(&image).unwrap();
        let mut file = File::from(bundle.file);
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, bundle.size_bytes);
        let parsed = aegis_image::bundle::parse(&bytes).unwrap();
        let kinds: Vec<u32> = parsed.parts().iter().map(|part| part.kind).collect();
        assert_eq!(kinds, [PART_INIT, PART_PLAN, PART_LIBRARY_OS, PART_DISK_DOMAIN, PART_POD, PART_POD, PART_POD]);
        assert_eq!(parsed.contents(&parsed.parts()[2]), [9; 5000]);
        assert_eq!(parsed.contents(&parsed.parts()[3]), [4; 7000]);
        for (part, (config, has_root)) in
            parsed.parts()[4..].iter().zip([(&b"first"[..], true), (b"second", false), (b"third", true)])
        {
            let own = aegis_image::bundle::parse(parsed.contents(part)).unwrap();
            assert_eq!(own.contents(own.find(PART_CONFIG).unwrap()), config);
            assert_eq!(own.find(PART_ROOT).map(|root| own.contents(root)), has_root.then_some(&[7; 8192][..]));
            let domain = own.find(PART_DISK_DOMAIN).map(|domain| own.contents(domain));
            assert_eq!(domain, (config != b"first").then_some(&[3; 6000][..]));
        }
    }

    #[test]
    fn a_root_that_shrank_is_an_error() {
        let root = RootImage { file: memory_file("root").unwrap(), size_bytes: 4096 };
        assert!(build(b"l", b"c", &[], Some(&root)).is_err());
    }
}

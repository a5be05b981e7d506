//! Host directories that are served to the machine live: `-v`, and `--root DIR`.
//!
//! QEMU's own 9P server (`-fsdev local`) serves each as a device of its own, with the rights of the tool's user and
//! nothing above the directory; exos finds the device by its mount tag. Both ends are made from one list here, so that
//! they agree.
//!
//! The options of the server, and why: `security_model=none` keeps files as the host has them and does not fail where
//! a user may not give files away; `multidevs=remap` keeps inode numbers apart where the directory holds mounts;
//! `readonly=on` makes the server itself refuse changes, whatever runs in the machine.
//!
//! A single file that is to be written is served by a directory of its own beside it, which holds a hard link to it and
//! nothing else ([`FileLink`]): the server shows no neighbours, and what is written is written to the file itself. As
//! with a file that an engine binds, one that the host puts in its place by renaming is another.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aegis_link::config::{HostMount, HostMountFlags, MOUNT_COUNT_MAX, MOUNT_TAG_BYTES};

use crate::errors::Error;
use crate::machine::file_links::FileLink;

/// `-v HOST:GUEST[:ro]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Directory of the host, or a file.
    pub host: PathBuf,
    /// Where it appears in the machine; absolute.
    pub guest: PathBuf,
    /// Nothing changes through it.
    pub is_read_only: bool,
}

/// Parses `-v`. GUEST begins with the last `:/`, so HOST may hold colons.
pub fn parse_volume(text: OsString) -> Result<Volume, String> {
    const FORM: &str = "HOST:GUEST[:ro], such as ./data:/data:ro";
    let mut bytes = text.into_vec();
    let is_read_only = bytes.ends_with(b":ro");
    if is_read_only || bytes.ends_with(b":rw") {
        bytes.truncate(bytes.len() - 3);
    }
    let colon = bytes.windows(2).rposition(|pair| pair == b":/").ok_or(FORM)?;
    let (host, guest) = (&bytes[..colon], &bytes[colon + 1..]);
    let guest = Path::new(OsStr::from_bytes(guest));
    let is_plain = guest.components().skip(1).all(|part| matches!(part, std::path::Component::Normal(_)));
    if host.is_empty() {
        return Err(format!("HOST is missing: {FORM}"));
    }
    if !is_plain || guest == Path::new("/") {
        return Err("GUEST is a path below /, without ..".into());
    }
    Ok(Volume { host: OsStr::from_bytes(host).into(), guest: guest.into(), is_read_only })
}

/// A directory that QEMU serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// On the host: absolute, without links.
    pub host: PathBuf,
    /// How the machine mounts it.
    pub mount: HostMount,
    /// The directory was made for a file.
    link: Option<Arc<FileLink>>,
}

impl Served {
    /// The device's name.
    pub fn tag(&self) -> &str {
        // Made below, of ASCII.
        std::str::from_utf8(&self.mount.tag).unwrap_or_default()
    }

    /// The value of `-fsdev`, for a server of this name. In QEMU's options a comma in a value is written twice.
    pub fn server(&self, name: &str) -> OsString {
        let mut words = format!("local,id={name},security_model=none,multidevs=remap").into_bytes();
        if self.mount.flags.contains(HostMountFlags::READ_ONLY) {
            words.extend_from_slice(b",readonly=on");
        }
        words.extend_from_slice(b",path=");
        for byte in self.host.as_os_str().as_bytes() {
            words.extend_from_slice(if *byte == b',' { b",," } else { std::slice::from_ref(byte) });
        }
        OsString::from_vec(words)
    }
}

/// What becomes of what a program writes into a root that is a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootChanges {
    /// It is in memory, over the directory, which is taken as unchanging.
    InMemory,
    /// It is written to the directory.
    Written,
}

/// What is served: the root first, if it is a directory, then `layers`, which show at their own paths where the root's
/// image has nothing, then the volumes as they were given.
///
/// # Errors
/// A directory that is none, and too many of them.
pub fn serve(root: Option<(&Path, RootChanges)>, layers: &[PathBuf], volumes: &[Volume]) -> Result<Vec<Served>, Error> {
    let root = root.map(|(host, changes)| {
        let kept = match changes {
            RootChanges::InMemory => HostMountFlags::READ_ONLY,
            RootChanges::Written => HostMountFlags::empty(),
        };
        (host, Path::new("/"), HostMountFlags::ROOT | kept)
    });
    let of_layers = HostMountFlags::LAYER | HostMountFlags::READ_ONLY;
    let layers = layers.iter().map(|layer| (layer.as_path(), layer.as_path(), of_layers));
    let volumes = volumes.iter().map(|volume| {
        let flags = if volume.is_read_only { HostMountFlags::READ_ONLY } else { HostMountFlags::empty() };
        (volume.host.as_path(), volume.guest.as_path(), flags)
    });
    let mut served = Vec::new();
    for (number, (host, guest, flags)) in root.into_iter().chain(layers).chain(volumes).enumerate() {
        let wrong = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", host.display()));
        let whole = std::fs::canonicalize(host).map_err(|error| wrong(&error))?;
        let is_of_root = flags.intersects(HostMountFlags::ROOT | HostMountFlags::LAYER);
        let (host, flags, link) = if whole.is_file() && !is_of_root {
            let link = if flags.contains(HostMountFlags::READ_ONLY) {
                FileLink::copy(&whole).map_err(|error| wrong(&error))?
            } else {
                FileLink::make(&whole).map_err(|error| {
                    wrong(&format!("no hard link can be made beside it ({error}); show its directory, or it with :ro"))
                })?
            };
            (link.directory.clone(), flags | HostMountFlags::FILE, Some(Arc::new(link)))
        } else if whole.is_dir() {
            (whole, flags, None)
        } else {
            return Err(wrong(&"not a directory; only files and directories can be served"));
        };
        let mount = HostMount { tag: tag(number)?, path: guest.as_os_str().as_bytes().to_vec(), flags };
        served.push(Served { host, mount, link });
    }
    Ok(served)
}

fn tag(number: usize) -> Result<[u8; MOUNT_TAG_BYTES], Error> {
    let too_many = || Error::Usage(format!("at most {MOUNT_COUNT_MAX} directories can be served"));
    if number >= MOUNT_COUNT_MAX {
        return Err(too_many());
    }
    format!("aegis{number:x}").into_bytes().try_into().map_err(|_| too_many())
}

#[cfg(test)]
mod tests {
    use super::{RootChanges, Volume, parse_volume, serve};
    use aegis_link::config::HostMountFlags;
    use std::path::Path;

    fn volume(host: &str, guest: &str, is_read_only: bool) -> Volume {
        Volume { host: host.into(), guest: guest.into(), is_read_only }
    }

    #[test]
    fn volumes_are_split_at_the_guests_path() {
        for (text, expected) in [
            (".:/a", volume(".", "/a", false)),
            ("/h/x:/a/b:ro", volume("/h/x", "/a/b", true)),
            ("a:b:/c:rw", volume("a:b", "/c", false)),
        ] {
            assert_eq!(parse_volume(text.into()), Ok(expected), "{text}");
        }
        for text in ["", "/a", "/a:b", ":/a", ":/a:ro", "/a:/", "/a:/b/..", "/a:ro"] {
            assert!(parse_volume(text.into()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_root_comes_first_and_tags_count_up() {
        let folder = std::env::temp_dir().join(format!("aegis-mounts,{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let host = folder.display().to_string();
        let served = serve(Some((Path::new("/"), RootChanges::InMemory)), &[], &[volume(&host, "/data", false)])
            .expect("directories");
        assert_eq!((served[0].tag(), served[1].tag()), ("aegis0", "aegis1"));
        assert_eq!(served[0].mount.flags, HostMountFlags::ROOT | HostMountFlags::READ_ONLY);
        assert_eq!(
            served[0].server("aegis0"),
            "local,id=aegis0,security_model=none,multidevs=remap,readonly=on,path=/"
        );
        let server = served[1].server("x").into_string().expect("text");
        assert!(server.ends_with(&format!("remap,path={}", host.replace(',', ",,"))), "{server}");
        let served = serve(None, &["/usr".into()], &[]).expect("a directory");
        assert_eq!(served[0].mount.flags, HostMountFlags::LAYER | HostMountFlags::READ_ONLY);
        assert_eq!((served[0].mount.path.as_slice(), served[0].host.as_path()), (&b"/usr"[..], Path::new("/usr")));
        let served = serve(Some((&folder, RootChanges::Written)), &[], &[]).expect("a directory");
        assert_eq!(served[0].mount.flags, HostMountFlags::ROOT);
        assert!(!served[0].server("x").into_string().expect("text").contains("readonly"));
        assert!(serve(Some((Path::new("/etc/passwd"), RootChanges::InMemory)), &[], &[]).is_err());
        assert!(serve(None, &[], &[volume("/no/such", "/p", true)]).is_err());
        assert!(serve(None, &[], &vec![volume(&host, "/p", true); 17]).is_err());
        std::fs::remove_dir(folder).expect("it is empty");
    }

    #[test]
    fn a_file_is_served_without_its_neighbours() {
        let folder = std::env::temp_dir().join(format!("aegis-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        for name in ["file", "secret"] {
            std::fs::write(folder.join(name), name).expect("writable");
        }
        let host = folder.join("file").display().to_string();
        let served = serve(None, &[], &[volume(&host, "/f", false), volume(&host, "/g", false)]).expect("served");
        assert_eq!(served[0].mount.flags, HostMountFlags::FILE);
        assert_ne!(served[0].host, served[1].host);
        let names = |path: &Path| -> Vec<_> {
            std::fs::read_dir(path).expect("there").flatten().map(|entry| entry.file_name()).collect()
        };
        assert_eq!(names(&served[0].host), ["file"]);
        std::fs::write(served[0].host.join("file"), "new").expect("writable");
        assert_eq!(std::fs::read_to_string(&host).expect("there"), "new", "it is the file itself");
        drop(served);
        assert_eq!(names(&folder).len(), 2, "nothing is left");
        std::fs::remove_dir_all(folder).expect("ours");
    }
}

//! Roots from single host files: a program with what it needs, and what `--with` names.
//!
//! A host file keeps its path in the root, and every symbolic link on the way to it is taken over, so that paths
//! resolve in the guest just as on the host (Debian's `/lib -> usr/lib`, `/etc/alternatives`, versioned libraries).
//! The copy walks both sides in step; where a given root has something else at a link's place, the file is put at its
//! path through the root's own links instead. What a given root already has wins over files that are only needed, and
//! loses to files that were named.
//!
//! [`HostRoot::minimal`] is the root of a run without `--root`. Its fixed files are added last, by
//! [`HostRoot::finish`], so that anything that was named takes precedence.

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aegis_image::tree::{Attributes, Content, DeviceNumber, LINK_FOLLOW_MAX, LastLink, NodeId, TreeError};

use crate::root::closure::{Host, is_elf};
use crate::root::pack::{HostData, IMPLIED_DIRECTORY, PackError, Packed, Root, attributes_of, bytes_of, place};
use crate::root::pack_dir::Copier;

/// Files of the minimal root that are taken from the host as they are, if they are there. Accounts (never passwords),
/// because files keep their owners' numbers; the linker's cache, because libraries keep their places.
const FROM_HOST: [&str; 7] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/etc/os-release",
    "/etc/ld.so.cache",
    "/etc/ld-musl-x86_64.path",
    "/usr/lib/locale/C.utf8",
];

/// Directories that are links on hosts with one `/usr` tree; programs and scripts name files through them.
const TOP_LINKS: [&str; 4] = ["/bin", "/lib", "/lib64", "/sbin"];

/// Empty directories of the minimal root, with their permissions.
const DIRECTORIES: [(&str, u16); 10] = [
    ("/dev", 0o755),
    ("/etc", 0o755),
    ("/home", 0o755),
    ("/proc", 0o555),
    ("/root", 0o700),
    ("/run", 0o755),
    ("/sys", 0o555),
    ("/tmp", 0o1777),
    ("/var", 0o755),
    ("/var/tmp", 0o1777),
];

/// Files of the minimal root that are the guest's own. The name server is the one of QEMU's user network.
const FIXED_FILES: [(&str, &str); 4] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n"),
    ("/etc/resolv.conf", "nameserver 10.0.2.3\n"),
];

/// A root that host files are put into.
#[derive(Debug)]
pub struct HostRoot {
    tree: Root,
    copier: Copier,
    host: Host,
    /// Host files whose closure is in the root.
    closed: HashSet<PathBuf>,
    /// Set for the minimal root.
    hostname: Option<Vec<u8>>,
    /// What it has not is this host's own.
    is_over_host: bool,
}

/// Whether a file replaces what is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    Keep,
    Replace,
}

impl HostRoot {
    /// The root of a run without one: programs put into it find what they find on the host, and a minimal `/etc`.
    pub fn minimal(hostname: &[u8], search_path: &OsStr) -> Self {
        let mut root = Self::over(Packed { tree: Root::new(IMPLIED_DIRECTORY), warnings: Vec::new() }, search_path);
        root.hostname = Some(hostname.to_vec());
        root
    }

    /// A given root, to add to.
    pub fn over(packed: Packed, search_path: &OsStr) -> Self {
        let mut copier = Copier::new();
        copier.warnings = packed.warnings;
        let host = Host::read(search_path);
        Self { tree: packed.tree, copier, host, closed: HashSet::new(), hostname: None, is_over_host: false }
    }

    /// A root that shows over this host's own: what is added, and the links and directories on the way to it.
    ///
    /// # Errors
    /// `Io`.
    pub fn over_host(search_path: &OsStr) -> Result<Self, PackError> {
        let root = Path::new("/");
        let attributes = attributes_of(&fs::metadata(root).map_err(PackError::io(root))?);
        let packed = Packed { tree: Root::new(attributes), warnings: Vec::new() };
        Ok(Self { is_over_host: true, ..Self::over(packed, search_path) })
    }

    /// Puts a host program with its closure into the root and returns its path there.
    ///
    /// # Errors
    /// `Io` if the program itself cannot be read, `Tree`.
    pub fn add_program(&mut self, program: &Path) -> Result<Vec<u8>, PackError> {
        let program = std::path::absolute(program).map_err(PackError::io(program))?;
        let node = self.add_at_own_path(&program, Existing::Replace)?;
        node.ok_or_else(|| unreadable(&program))?;
        self.add_closure(&program, None)?;
        Ok(bytes_of(&program).to_vec())
    }

    /// Puts a host file or directory, with all below it, into the root: at its own path, or at `guest`. Programs and
    /// shared objects among the files bring their closures.
    ///
    /// # Errors
    /// `Io` if `host` cannot be read, `Tree`.
    pub fn with(&mut self, host: &Path, guest: Option<&[u8]>) -> Result<(), PackError> {
        let absolute = std::path::absolute(host).map_err(PackError::io(host))?;
        let source = fs::canonicalize(&absolute).map_err(PackError::io(host))?;
        let metadata = fs::metadata(&source).map_err(PackError::io(host))?;
        let node = match guest {
            Some(guest) => self.add_at_guest_path(&source, &metadata, guest)?,
            None => self.add_at_own_path(&absolute, Existing::Replace)?,
        };
        node.ok_or_else(|| unreadable(host))?;
        let mut objects = Vec::new();
        if metadata.is_dir() {
            let mut note = |path: &Path, metadata: &Metadata| {
                if may_be_object(path, metadata) {
                    objects.push(path.to_path_buf());
                }
            };
            let target = guest.unwrap_or(bytes_of(&absolute));
            self.copier.copy_below(&mut self.tree, target, &source, &mut note)?;
            objects.retain(|path| is_elf(path));
        } else if metadata.is_file() {
            objects.push(source.clone());
        }
        // Files below a directory that was put elsewhere are in the root already, under another path.
        let covered = guest.is_some().then_some(source.as_path());
        for object in objects {
            self.add_closure(&object, covered)?;
        }
        Ok(())
    }

    /// Adds the fixed files of the minimal root and gives the root out.
    ///
    /// # Errors
    /// `Tree`.
    pub fn finish(mut self) -> Result<Packed, PackError> {
        if let Some(hostname) = self.hostname.take() {
            self.add_minimal(&hostname)?;
        }
        Ok(Packed { tree: self.tree, warnings: self.copier.warnings })
    }

    fn add_minimal(&mut self, hostname: &[u8]) -> Result<(), PackError> {
        for path in TOP_LINKS.map(Path::new) {
            if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
                self.add_at_own_path(path, Existing::Keep)?;
            }
        }
        for path in FROM_HOST.map(Path::new) {
            // A host may lack any of them.
            let Ok(metadata) = fs::metadata(path) else {
                continue;
            };
            if metadata.is_file() {
                self.add_at_own_path(path, Existing::Keep)?;
            } else if self.tree.resolve(bytes_of(path), LastLink::Follow).is_err() {
                self.with(path, None)?;
            }
        }
        for (path, permissions) in DIRECTORIES {
            let attributes = Attributes::root_owned(permissions);
            self.tree.ensure_directory(path.as_bytes(), attributes).map_err(PackError::tree(Path::new(path)))?;
        }
        for (path, text) in FIXED_FILES {
            self.add_text(path, text.as_bytes())?;
        }
        let hosts = [b"127.0.0.1\tlocalhost ", hostname, b"\n::1\tlocalhost\n"].concat();
        self.add_text("/etc/hosts", &hosts)?;
        self.add_text("/etc/hostname", &[hostname, b"\n"].concat())
    }

    /// Adds a file of the guest's own, unless there is one.
    pub(crate) fn add_text(&mut self, path: &str, text: &[u8]) -> Result<(), PackError> {
        if self.tree.resolve(path.as_bytes(), LastLink::Keep).is_ok() {
            return Ok(());
        }
        let (directory, name) = self.guest_parent(path.as_bytes())?;
        let content = Content::File(HostData::Bytes(text.to_vec()));
        place(&mut self.tree, directory, &name, Attributes::root_owned(0o644), content)
            .map(|_| ())
            .map_err(PackError::tree(Path::new(path)))
    }

    /// Notes that the host has nothing at `path`, so that the machine need not ask it; where it has something, nothing
    /// happens. What is there and what is not may be mixed on the way, but no `..`.
    pub(crate) fn add_absence(&mut self, path: &Path) -> Result<(), PackError> {
        let is_there = |path: &&Path| fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let Some(parent) = path.ancestors().skip(1).find(is_there) else { return Ok(()) };
        let Some(name) = path.strip_prefix(parent).ok().and_then(|rest| names_of(rest).next()) else { return Ok(()) };
        if fs::symlink_metadata(parent.join(&name)).is_ok() {
            return Ok(());
        }
        let Mirrored::At(Some(node)) = self.mirror(parent, Existing::Keep)? else { return Ok(()) };
        if self.tree.lookup(node, name.as_bytes()).is_none() {
            let nothing = Content::CharacterDevice(DeviceNumber { major: 0, minor: 0 });
            let added = self.tree.add(node, name.as_bytes(), Attributes::root_owned(0), nothing);
            added.map(|_| ()).map_err(PackError::tree(path))?;
        }
        Ok(())
    }

    /// Copies a file of the host that programs may look for, if it is there.
    pub(crate) fn add_if_there(&mut self, path: &Path) -> Result<(), PackError> {
        if fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o004 != 0) {
            self.add_at_own_path(path, Existing::Keep)?;
        }
        Ok(())
    }

    /// Makes a directory, with those above it, unless there is one.
    pub(crate) fn add_directory(&mut self, path: &[u8], attributes: Attributes) -> Result<(), PackError> {
        let made = self.tree.ensure_directory(path, attributes);
        made.map(|_| ()).map_err(PackError::tree(&path_of(path)))
    }

    /// Copies one host file, a link as a link, to a path of the root, unless there is something.
    pub(crate) fn add_file(&mut self, source: &Path, metadata: &Metadata, guest: &[u8]) -> Result<(), PackError> {
        if self.tree.resolve(guest, LastLink::Keep).is_ok() {
            return Ok(());
        }
        let (directory, name) = self.guest_parent(guest)?;
        match self.copier.copy_node(&mut self.tree, directory, &name, source, metadata) {
            // It went away just now.
            Err(PackError::Io { .. }) => Ok(()),
            copied => copied.map(|_| ()),
        }
    }

    /// Adds what a host file needs. Files below `covered` are left out.
    fn add_closure(&mut self, file: &Path, covered: Option<&Path>) -> Result<(), PackError> {
        // What shows over this host has its libraries below.
        if self.is_over_host || !self.closed.insert(file.to_path_buf()) {
            return Ok(());
        }
        let closure = self.host.closure(file);
        // The first one is the file itself.
        for needed in closure.files.iter().skip(1) {
            let real = fs::canonicalize(needed).unwrap_or_else(|_| needed.clone());
            if covered.is_none_or(|covered| !real.starts_with(covered)) {
                self.add_at_own_path(needed, Existing::Keep)?;
            }
        }
        for warning in closure.warnings {
            if !self.copier.warnings.contains(&warning) {
                self.copier.warnings.push(warning);
            }
        }
        Ok(())
    }

    /// Copies one host file (a directory without its contents) to the same path, with all links on the way; gives the
    /// node that the path leads to.
    fn add_at_own_path(&mut self, path: &Path, existing: Existing) -> Result<Option<NodeId>, PackError> {
        let source = fs::canonicalize(path).map_err(PackError::io(path))?;
        if existing == Existing::Keep
            && let Ok(node) = self.tree.resolve(bytes_of(path), LastLink::Follow)
        {
            return Ok(Some(node));
        }
        match self.mirror(path, existing)? {
            Mirrored::At(node) => Ok(node),
            Mirrored::Conflict => {
                let metadata = fs::metadata(&source).map_err(PackError::io(path))?;
                self.add_at_guest_path(&source, &metadata, bytes_of(path))
            }
        }
    }

    /// Walks host and tree in step.
    fn mirror(&mut self, path: &Path, existing: Existing) -> Result<Mirrored, PackError> {
        let mut here = vec![(PathBuf::from("/"), self.tree.root())];
        let mut names: VecDeque<OsString> = names_of(path).collect();
        let mut link_count = 0;
        while let Some(name) = names.pop_front() {
            let Some((directory, node)) = here.last().cloned() else {
                break;
            };
            if name == ".." {
                if here.len() > 1 {
                    here.pop();
                }
                continue;
            }
            let host = directory.join(&name);
            let metadata = fs::symlink_metadata(&host).map_err(PackError::io(path))?;
            let found = self.tree.lookup(node, name.as_bytes());
            if metadata.is_symlink() {
                link_count += 1;
                if link_count > LINK_FOLLOW_MAX {
                    return Err(PackError::tree(path)(TreeError::LinkLoop));
                }
                let target = fs::read_link(&host).map_err(PackError::io(path))?;
                match found.map(|found| self.tree.node(found).content()) {
                    None => {
                        self.copier.copy_node(&mut self.tree, node, name.as_bytes(), &host, &metadata)?;
                    }
                    Some(Content::Symlink(same)) if same == bytes_of(&target) => {}
                    Some(_) => return Ok(Mirrored::Conflict),
                }
                if target.is_absolute() {
                    here.truncate(1);
                }
                for name in names_of(&target).collect::<Vec<_>>().into_iter().rev() {
                    names.push_front(name);
                }
                continue;
            }
            let next = match found {
                Some(found) if self.tree.node(found).is_directory() != metadata.is_dir() => {
                    return Ok(Mirrored::Conflict);
                }
                Some(found) if metadata.is_dir() || existing == Existing::Keep => Some(found),
                _ => self.copier.copy_node(&mut self.tree, node, name.as_bytes(), &host, &metadata)?,
            };
            match next {
                Some(next) => here.push((host, next)),
                None => return Ok(Mirrored::At(None)),
            }
        }
        Ok(Mirrored::At(here.last().map(|(_, node)| *node)))
    }

    /// Copies one host file (a directory without its contents) to a path in the root. A file goes *into* a directory
    /// only if the path ends with a slash.
    fn add_at_guest_path(
        &mut self,
        source: &Path,
        metadata: &Metadata,
        guest: &[u8],
    ) -> Result<Option<NodeId>, PackError> {
        if self.is_over_host {
            let path = path_of(guest);
            let known = path.ancestors().skip(1).find(|parent| fs::metadata(parent).is_ok_and(|it| it.is_dir()));
            known.map(|parent| self.mirror(parent, Existing::Keep)).transpose()?;
        }
        if metadata.is_dir() {
            let directory = self.tree.ensure_directory(guest, attributes_of(metadata));
            return directory.map(Some).map_err(PackError::tree(&path_of(guest)));
        }
        let mut guest = guest.to_vec();
        if guest.ends_with(b"/") {
            guest.extend_from_slice(source.file_name().unwrap_or_default().as_bytes());
        }
        let (directory, name) = self.guest_parent(&guest)?;
        self.copier.copy_node(&mut self.tree, directory, &name, source, metadata)
    }

    /// The directory of a guest path, made if it is missing, and the last name.
    fn guest_parent(&mut self, guest: &[u8]) -> Result<(NodeId, Vec<u8>), PackError> {
        let path = path_of(guest);
        let name = path.file_name().ok_or(TreeError::NameInvalid);
        let name = name.map_err(PackError::tree(&path))?.as_bytes().to_vec();
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = self.tree.ensure_directory(bytes_of(parent), IMPLIED_DIRECTORY);
        Ok((directory.map_err(PackError::tree(&path))?, name))
    }
}

/// Where a walk in step ended.
enum Mirrored {
    /// At this node; nowhere if the file was left out with a warning.
    At(Option<NodeId>),
    /// The root has something else at a link's or directory's place.
    Conflict,
}

/// Splits the argument of `--with`, `HOST[:GUEST]`, at the last `:/`. An existing host path that holds one is taken
/// whole.
pub(crate) fn split_with(argument: &OsStr) -> (PathBuf, Option<Vec<u8>>) {
    let bytes = argument.as_bytes();
    let whole = PathBuf::from(argument);
    let split = bytes.windows(2).rposition(|pair| pair == b":/").filter(|split| *split > 0);
    match split {
        Some(split) if fs::symlink_metadata(&whole).is_err() => {
            (path_of(&bytes[..split]), Some(bytes[split + 1..].to_vec()))
        }
        _ => (whole, None),
    }
}

/// A file that was named must not silently be missing.
fn unreadable(path: &Path) -> PackError {
    PackError::Io { path: path.to_path_buf(), error: ErrorKind::PermissionDenied.into() }
}

fn names_of(path: &Path) -> impl Iterator<Item = OsString> {
    let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    names.filter(|name| !name.is_empty() && *name != b".").map(|name| OsString::from_vec(name.to_vec()))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Shared objects need not be executable, programs need not have a suffix.
fn may_be_object(path: &Path, metadata: &Metadata) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    metadata.mode() & 0o111 != 0 || name.windows(3).any(|part| part == b".so")
}

#[cfg(test)]
#[path = "pack_host_tests.rs"]
mod tests;

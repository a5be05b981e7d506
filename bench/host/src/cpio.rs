//! Writes an initramfs: a cpio archive of the "new ASCII" kind (Linux, buffer-format.rst), which needs no
//! root because it is only bytes.
//!
//! Times are 0 and inode numbers count up, so the same contents make the same bytes.

use std::collections::HashMap;
use std::io::{self, Write};

use aegis_image::tree::{Attributes, Content, FileData, NodeId};
use aegis_launch::root::pack::{HostData, Root};

/// Alignment of headers and contents, from the start of the archive.
const ALIGNMENT: u64 = 4;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFBLK: u32 = 0o060_000;
const S_IFIFO: u32 = 0o010_000;
const S_IFSOCK: u32 = 0o140_000;
/// The kernel opens it for the first process before that one can mount anything.
const CONSOLE: (&str, (u32, u32)) = ("dev/console", (5, 1));
/// Contents are copied in pieces of this size.
const COPY_BYTES: usize = 1 << 20;

/// What a header says besides the name.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    /// Names that are one file have one number.
    inode: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    link_count: u32,
    mtime_s: u32,
    size_bytes: u32,
    device: (u32, u32),
}

/// An archive that is being written.
#[derive(Debug)]
struct Archive<W> {
    out: W,
    written_bytes: u64,
}

impl<W: Write> Archive<W> {
    fn new(out: W) -> Self {
        Self { out, written_bytes: 0 }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written_bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn align(&mut self) -> io::Result<()> {
        let missing = self.written_bytes.next_multiple_of(ALIGNMENT) - self.written_bytes;
        self.write(&[0; ALIGNMENT as usize][..missing as usize])
    }

    fn header(&mut self, path: &[u8], it: &Header) -> io::Result<()> {
        let (major, minor) = it.device;
        let text = format!(
            "070701{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{major:08X}{minor:08X}{:08X}{:08X}",
            it.inode,
            it.mode,
            it.uid,
            it.gid,
            it.link_count,
            it.mtime_s,
            it.size_bytes,
            0,
            0,
            path.len() + 1,
            0
        );
        self.write(text.as_bytes())?;
        self.write(path)?;
        self.write(&[0])?;
        self.align()
    }

    /// A header with contents that are here.
    fn entry(&mut self, path: &[u8], mut it: Header, contents: &[u8]) -> io::Result<()> {
        it.size_bytes = size_of_contents(contents.len() as u64)?;
        self.header(path, &it)?;
        self.write(contents)?;
        self.align()
    }

    fn copy(&mut self, data: &HostData) -> io::Result<()> {
        let mut buffer = vec![0; COPY_BYTES];
        let length_bytes = data.length_bytes();
        let mut at = 0;
        while at < length_bytes {
            let count = (length_bytes - at).min(COPY_BYTES as u64) as usize;
            data.read_exact_at(at, &mut buffer[..count]).map_err(|error| io::Error::other(error.to_string()))?;
            self.write(&buffer[..count])?;
            at += count as u64;
        }
        self.align()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.entry(b"TRAILER!!!", Header { link_count: 1, ..Header::default() }, &[])?;
        self.out.flush()
    }
}

/// The format has 32 bits for it.
fn size_of_contents(length_bytes: u64) -> io::Result<u32> {
    u32::try_from(length_bytes).map_err(|_| io::Error::other("a file is too large for an initramfs"))
}

/// An initramfs that holds `program` under `name` in its root.
pub(crate) fn with_program(name: &str, program: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut archive = Archive::new(&mut bytes);
    let header = |inode, mode| Header { inode, mode, link_count: 1, ..Header::default() };
    archive.entry(b"dev", header(1, S_IFDIR | 0o755), &[])?;
    archive.entry(CONSOLE.0.as_bytes(), Header { device: CONSOLE.1, ..header(2, S_IFCHR | 0o600) }, &[])?;
    archive.entry(name.as_bytes(), header(3, S_IFREG | 0o755), program)?;
    archive.finish()?;
    Ok(bytes)
}

/// An initramfs that holds executable files, by their paths; the folders that they need come with them.
pub(crate) fn with_files(files: &[(String, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut archive = Archive::new(&mut bytes);
    let mut inode = 0;
    let mut header = |mode, device| {
        inode += 1;
        Header { inode, mode, device, link_count: 1, ..Header::default() }
    };
    let parents = files.iter().filter_map(|(path, _)| path.rsplit_once('/')).map(|(parent, _)| parent);
    let mut folders: Vec<&str> = parents.chain(["dev"]).collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        archive.entry(folder.as_bytes(), header(S_IFDIR | 0o755, (0, 0)), &[])?;
    }
    archive.entry(CONSOLE.0.as_bytes(), header(S_IFCHR | 0o600, CONSOLE.1), &[])?;
    for (path, contents) in files {
        archive.entry(path.as_bytes(), header(S_IFREG | 0o755, (0, 0)), contents)?;
    }
    archive.finish()?;
    Ok(bytes)
}

/// Writes an initramfs with everything that is in a root, and the console.
pub(crate) fn write_root(root: &Root, out: impl Write) -> io::Result<()> {
    let mut archive = Archive::new(out);
    let link_counts = link_counts(root);
    let mut pending: Vec<(Vec<u8>, NodeId)> = vec![(Vec::new(), root.root())];
    let mut written: HashMap<NodeId, u32> = HashMap::new();
    while let Some((path, id)) = pending.pop() {
        let node = root.node(id);
        let next = written.len() as u32 + 1;
        let is_again = written.contains_key(&id);
        let inode = *written.entry(id).or_insert(next);
        let link_count = link_counts.get(&id).copied().unwrap_or(1);
        let header = |kind| Header { inode, link_count, ..header_of(kind, &node.attributes) };
        match node.content() {
            Content::Directory(entries) => {
                if !path.is_empty() {
                    archive.entry(&path, header(S_IFDIR), &[])?;
                }
                // The last one in comes first.
                for (name, child) in entries.iter().rev() {
                    let child_path = if path.is_empty() { name.to_vec() } else { [&path, &name[..]].join(&b'/') };
                    pending.push((child_path, *child));
                }
            }
            // A further name of a file: contents came with the first.
            Content::File(_) if is_again => archive.entry(&path, header(S_IFREG), &[])?,
            Content::File(data) => {
                let size_bytes = size_of_contents(data.length_bytes())?;
                archive.header(&path, &Header { size_bytes, ..header(S_IFREG) })?;
                archive.copy(data)?;
            }
            Content::Symlink(target) => archive.entry(&path, header(S_IFLNK), target)?,
            Content::CharacterDevice(it) => {
                archive.entry(&path, Header { device: (it.major, it.minor), ..header(S_IFCHR) }, &[])?;
            }
            Content::BlockDevice(it) => {
                archive.entry(&path, Header { device: (it.major, it.minor), ..header(S_IFBLK) }, &[])?;
            }
            Content::Fifo => archive.entry(&path, header(S_IFIFO), &[])?,
            Content::Socket => archive.entry(&path, header(S_IFSOCK), &[])?,
        }
    }
    if root.resolve(CONSOLE.0.as_bytes(), aegis_image::tree::LastLink::Keep).is_err() {
        let console =
            Header { inode: written.len() as u32 + 1, mode: S_IFCHR | 0o600, link_count: 1, ..Header::default() };
        archive.entry(CONSOLE.0.as_bytes(), Header { device: CONSOLE.1, ..console }, &[])?;
    }
    archive.finish()
}

/// How many names files have that have more than one.
fn link_counts(root: &Root) -> HashMap<NodeId, u32> {
    let mut counts: HashMap<NodeId, u32> = HashMap::new();
    let mut pending = vec![root.root()];
    while let Some(id) = pending.pop() {
        let Content::Directory(entries) = root.node(id).content() else { continue };
        for child in entries.values() {
            *counts.entry(*child).or_default() += 1;
            if root.node(*child).is_directory() {
                pending.push(*child);
            }
        }
    }
    counts
}

fn header_of(kind: u32, attributes: &Attributes) -> Header {
    Header {
        mode: kind | u32::from(attributes.permissions),
        uid: attributes.uid,
        gid: attributes.gid,
        mtime_s: u32::try_from(attributes.mtime_s).unwrap_or(0),
        ..Header::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{with_program, write_root};
    use aegis_image::tree::{Attributes, Content};
    use aegis_launch::root::pack::{HostData, IMPLIED_DIRECTORY, Root};

    /// One entry: name, mode, contents, device.
    type Entry = (String, u32, Vec<u8>, (u32, u32));

    /// Reads an archive the slow way.
    fn entries(bytes: &[u8]) -> Vec<Entry> {
        let mut at = 0;
        let mut found = Vec::new();
        loop {
            let header = &bytes[at..at + 110];
            assert_eq!(&header[..6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&header[6 + 8 * index..14 + 8 * index]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (size, name_size) = (field(6) as usize, field(11) as usize);
            let name = &bytes[at + 110..at + 110 + name_size - 1];
            assert_eq!(bytes[at + 110 + name_size - 1], 0);
            let start = (at + 110 + name_size).next_multiple_of(4);
            at = (start + size).next_multiple_of(4);
            let name = String::from_utf8(name.to_vec()).unwrap();
            if name == "TRAILER!!!" {
                assert_eq!(at, bytes.len());
                return found;
            }
            found.push((name, field(1), bytes[start..start + size].to_vec(), (field(9), field(10))));
        }
    }

    #[test]
    fn an_archive_reads_back() {
        let found = entries(&with_program("init", b"\x7fELF!").unwrap());
        assert_eq!(found[0], ("dev".into(), 0o040_755, vec![], (0, 0)));
        assert_eq!(found[1], ("dev/console".into(), 0o020_600, vec![], (5, 1)));
        assert_eq!(found[2], ("init".into(), 0o100_755, b"\x7fELF!".to_vec(), (0, 0)));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_root_becomes_an_archive_with_parents_first() {
        let mut root = Root::new(IMPLIED_DIRECTORY);
        let attributes = Attributes { permissions: 0o4755, uid: 7, gid: 8, mtime_s: 1_700_000_000, mtime_ns: 5 };
        let directory = root.add(root.root(), b"dir", attributes, Content::empty_directory()).unwrap();
        let file = Content::File(HostData::Bytes(b"contents".to_vec()));
        let file = root.add(directory, b"file", attributes, file).unwrap();
        root.link(directory, b"twin", file).unwrap();
        root.add(directory, b"link", attributes, Content::Symlink(b"file".to_vec())).unwrap();
        let mut bytes = Vec::new();
        write_root(&root, &mut bytes).unwrap();
        let found = entries(&bytes);
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["dir", "dir/file", "dir/link", "dir/twin", "dev/console"]);
        assert_eq!(found[1].2, b"contents");
        assert_eq!(found[2], ("dir/link".into(), 0o124_755, b"file".to_vec(), (0, 0)));
        assert_eq!(found[3].2, b"", "contents come with the first name");
        assert_eq!(found[4].3, (5, 1));
        let text = String::from_utf8_lossy(&bytes);
        // Inode, mode, owner, group, links, time, size.
        assert!(text.contains("0707010000000300008"), "{text}");
        assert_eq!(text.matches("000089ED0000000700000008000000026553F10000000").count(), 2, "{text}");
    }

    #[test]
    fn the_same_contents_make_the_same_bytes() {
        assert_eq!(with_program("init", b"x").unwrap(), with_program("init", b"x").unwrap());
        assert_eq!(with_program("init", b"xyz").unwrap().len() % 4, 0);
    }
}

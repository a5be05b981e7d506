//! Writes an initramfs: a cpio archive of the "new ASCII" kind (Linux, buffer-format.rst), which needs no
//! root because it is only bytes.
//!
//! Times are 0 and inode numbers count up, so the same contents make the same bytes.

/// Alignment of headers and contents, from the start of the archive.
const ALIGNMENT: usize = 4;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFCHR: u32 = 0o020_000;

/// An archive that grows.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// Adds a directory; its parent has to be there already.
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, S_IFDIR | 0o755, &[], (0, 0));
    }

    /// Adds a file that can be executed.
    pub(crate) fn program(&mut self, path: &str, contents: &[u8]) {
        self.entry(path, S_IFREG | 0o755, contents, (0, 0));
    }

    /// Adds a character device, readable and writable by its owner.
    pub(crate) fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, S_IFCHR | 0o600, &[], (major, minor));
    }

    /// The archive, with its end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8], device: (u32, u32)) {
        self.inode += 1;
        let (major, minor) = device;
        let size = contents.len();
        let name_size = path.len() + 1;
        let header = format!(
            "070701{:08X}{mode:08X}{:08X}{:08X}{:08X}{:08X}{size:08X}{:08X}{:08X}{major:08X}{minor:08X}\
             {name_size:08X}{:08X}",
            self.inode, 0, 0, 1, 0, 0, 0, 0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(contents);
        self.align();
    }

    fn align(&mut self) {
        let aligned = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(aligned, 0);
    }
}

/// An initramfs that holds `program` under `name` in its root.
pub(crate) fn with_program(name: &str, program: &[u8]) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.directory("dev");
    // The kernel opens it for the first process before that one can mount anything.
    archive.character_device("dev/console", 5, 1);
    archive.program(name, program);
    archive.finish()
}

#[cfg(test)]
mod tests {
    use super::with_program;

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
        let found = entries(&with_program("init", b"\x7fELF!"));
        assert_eq!(found[0], ("dev".into(), 0o040_755, vec![], (0, 0)));
        assert_eq!(found[1], ("dev/console".into(), 0o020_600, vec![], (5, 1)));
        assert_eq!(found[2], ("init".into(), 0o100_755, b"\x7fELF!".to_vec(), (0, 0)));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn the_same_contents_make_the_same_bytes() {
        assert_eq!(with_program("init", b"x"), with_program("init", b"x"));
        assert_eq!(with_program("init", b"xyz").len() % 4, 0);
    }
}

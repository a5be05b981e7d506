//! From an address to its file, function and domain.
//!
//! The kernel's and exos's files are those that the machine was started from. What a program has mapped, exos
//! tells (`map` on the control port); the files are then read from the root, so a library is found whether
//! it is the host's or a container's. A file that is not there (the program wrote it) keeps its name and
//! has no functions.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use aegis_abi::layout::{KERNEL_BASE, LIBOS_BASE, LIBOS_IMAGE_BASE};
use aegis_image::erofs::read::Image;
use aegis_image::tree::LastLink;
use aegis_launch::domain::Domain;
use aegis_launch::symbols::Symbols;
use aegis_link::control::Mapping;

use super::unwind::{Code, FrameTable};

/// A root image larger than this is not read for the names of functions.
const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a file of the image that is read.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// Most mappings that are remembered; later ones are not.
const MAPPING_COUNT_MAX: usize = 1 << 16;
/// HLT: the kernel waits in it for an interrupt.
const HALT: u8 = 0xf4;

/// A file of code.
#[derive(Debug, Default)]
struct Module {
    symbols: Symbols,
    table: Option<FrameTable>,
    /// Its bytes, kept of the kernel only.
    bytes: Vec<u8>,
}

impl Module {
    fn of_elf(bytes: &[u8]) -> Self {
        Self { symbols: Symbols::of_elf(bytes, 0), table: FrameTable::of_elf(bytes), bytes: Vec::new() }
    }
}

/// Everything that is known about addresses.
#[derive(Debug)]
pub(crate) struct Places {
    kernel: Module,
    library_os: Module,
    root: RootFiles,
    mappings: Vec<Mapping>,
    files: HashMap<String, Module>,
}

/// The root of the machine, for reading files of code.
#[derive(Debug)]
pub(crate) enum RootFiles {
    /// The root image.
    Image(RootImageFile),
    /// A directory that is served live.
    Directory(PathBuf),
    /// Nothing is known of it.
    #[cfg(test)]
    Unknown,
}

impl RootFiles {
    /// A root image with its size.
    pub(crate) fn image(file: File, size_bytes: u64) -> Self {
        Self::Image(RootImageFile { file, size_bytes, bytes: None })
    }

    fn contents(&mut self, path: &str) -> Option<Vec<u8>> {
        match self {
            Self::Image(image) => image.contents(path),
            Self::Directory(directory) => {
                // The path is the machine's word: what leads out of the directory is not read.
                let whole = directory.join(path.trim_start_matches('/')).canonicalize().ok()?;
                let metadata = whole.metadata().ok()?;
                let is_fit = whole.starts_with(&*directory) && metadata.is_file() && metadata.len() <= FILE_BYTES_MAX;
                if is_fit { std::fs::read(whole).ok() } else { None }
            }
            #[cfg(test)]
            Self::Unknown => None,
        }
    }
}

/// The root image, read when its first file is asked for.
#[derive(Debug)]
pub(crate) struct RootImageFile {
    file: File,
    size_bytes: u64,
    bytes: Option<Vec<u8>>,
}

impl RootImageFile {
    fn contents(&mut self, path: &str) -> Option<Vec<u8>> {
        if self.bytes.is_none() && self.size_bytes <= IMAGE_BYTES_MAX {
            let mut bytes = vec![0; usize::try_from(self.size_bytes).ok()?];
            self.file.read_exact_at(&mut bytes, 0).ok()?;
            self.bytes = Some(bytes);
        }
        let image = Image::open(self.bytes.as_deref()?).ok()?;
        let inode = image.resolve(path.as_bytes(), LastLink::Follow).ok()?;
        let length = usize::try_from(inode.size_bytes.min(FILE_BYTES_MAX)).ok()?;
        let mut contents = vec![0; length];
        let read = image.read_at(&inode, 0, &mut contents);
        contents.truncate(read);
        Some(contents)
    }
}

/// A function, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Frame {
    pub(crate) domain: Domain,
    /// Its name, or what is known in brackets.
    pub(crate) name: String,
    /// The file, without folders; empty for the kernel and exos.
    pub(crate) file: String,
}

impl Places {
    /// With the kernel's and exos's files and the root.
    pub(crate) fn new(kernel: &Path, library_os: &Path, root: RootFiles) -> std::io::Result<Self> {
        let kernel_bytes = std::fs::read(kernel)?;
        Ok(Self {
            kernel: Module { bytes: kernel_bytes.clone(), ..Module::of_elf(&kernel_bytes) },
            library_os: Module::of_elf(&std::fs::read(library_os)?),
            root,
            mappings: Vec::new(),
            files: HashMap::new(),
        })
    }

    /// Takes in what exos told.
    pub(crate) fn add(&mut self, mapping: Mapping) {
        if self.mappings.len() >= MAPPING_COUNT_MAX {
            return;
        }
        if !self.files.contains_key(&mapping.path) {
            let contents = self.root.contents(&mapping.path);
            let module = contents.map(|bytes| Module::of_elf(&bytes)).unwrap_or_default();
            self.files.insert(mapping.path.clone(), module);
        }
        self.mappings.push(mapping);
    }

    /// How many mappings are known: a moment in the order in which they came.
    pub(crate) fn moment(&self) -> usize {
        self.mappings.len()
    }

    /// What unwinding needs to know of an address.
    pub(super) fn code(&self, space: u64, address: u64) -> Code<'_> {
        match address {
            KERNEL_BASE.. => Code { table: self.kernel.table.as_ref(), bias: 0, is_system: true },
            LIBOS_BASE.. => Code { table: self.library_os.table.as_ref(), bias: LIBOS_IMAGE_BASE, is_system: true },
            _ => {
                let found = self.in_file(space, address, self.moment());
                let table = found.as_ref().and_then(|(_, module, _)| module.table.as_ref());
                Code { table, bias: found.map_or(0, |(_, _, at)| address.wrapping_sub(at)), is_system: false }
            }
        }
    }

    /// The mapping that held a program's address at a moment, its file, and the address as the file counts.
    fn in_file(&self, space: u64, address: u64, moment: usize) -> Option<(&Mapping, &Module, u64)> {
        let before = &self.mappings[..moment.min(self.mappings.len())];
        let holds = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        let own = |mapping: &&Mapping| mapping.space == space && holds(mapping);
        // The latest is what is there now. A line may come a little after its mapping was used; and a process that
        // was forked from another has that one's.
        let mapping = (before.iter().rev().find(own))
            .or_else(|| self.mappings.iter().find(own))
            .or_else(|| before.iter().rev().find(holds))
            .or_else(|| self.mappings.iter().find(holds))?;
        let module = self.files.get(&mapping.path)?;
        let offset = mapping.offset + (address - mapping.start);
        // Without tables the offset stands for the address.
        Some((mapping, module, module.symbols.address_of_offset(offset).unwrap_or(offset)))
    }

    /// The function at an address.
    pub(crate) fn frame(&self, space: u64, address: u64, moment: usize) -> Frame {
        let named = |domain, symbols: &Symbols, address: u64| {
            let name = symbols.find(address).map_or("[not known]".into(), |symbol| symbol.name.clone());
            Frame { domain, name, file: String::new() }
        };
        match address {
            KERNEL_BASE.. => named(Domain::Kernel, &self.kernel.symbols, address),
            LIBOS_BASE.. => named(Domain::LibraryOs, &self.library_os.symbols, address.wrapping_sub(LIBOS_IMAGE_BASE)),
            _ => {
                let Some((mapping, module, at)) = self.in_file(space, address, moment) else {
                    return Frame { domain: Domain::Program, name: "[no file]".into(), file: String::new() };
                };
                let file = mapping.path.rsplit('/').next().unwrap_or_default().to_string();
                let unnamed = || match module.table.as_ref().and_then(|table| table.function_at(at)) {
                    Some(start) => format!("[{file}+{start:#x}]"),
                    None => format!("[{}]", file.trim_matches(['[', ']'])),
                };
                let name = module.symbols.find(at).map_or_else(unnamed, |symbol| symbol.name.clone());
                Frame { domain: Domain::Program, name, file }
            }
        }
    }

    /// Whether the kernel waits for an interrupt before this instruction.
    pub(crate) fn is_idle(&self, address: u64) -> bool {
        let offset = self.kernel.symbols.offset_of_address(address.wrapping_sub(1));
        let byte = offset.and_then(|offset| self.kernel.bytes.get(usize::try_from(offset).ok()?));
        byte == Some(&HALT)
    }
}

#[cfg(test)]
mod tests {
    use super::{Domain, Places, RootFiles};
    use aegis_link::control::Mapping;

    fn places() -> Places {
        let own = std::path::Path::new("/proc/self/exe");
        Places::new(own, own, RootFiles::Unknown).unwrap()
    }

    fn mapping(space: u64, start: u64, path: &str) -> Mapping {
        Mapping { space, start, end: start + 0x1000, offset: 0, path: path.into() }
    }

    #[test]
    fn the_latest_mapping_of_a_space_counts() {
        let mut places = places();
        places.add(mapping(1, 0x1000, "/bin/first"));
        places.add(mapping(2, 0x1000, "/bin/other"));
        let then = places.moment();
        places.add(mapping(1, 0x1000, "/bin/second"));
        let name = |space, address, moment| places.frame(space, address, moment).name;
        assert_eq!(name(1, 0x1800, places.moment()), "[second]");
        assert_eq!(name(1, 0x1800, then), "[first]");
        assert_eq!(name(2, 0x1800, then), "[other]");
        assert_eq!(name(3, 0x1800, then), "[other]", "a space that nobody told of has the latest one's");
        assert_eq!(name(1, 0x2000, then), "[no file]");
        assert_eq!(name(1, 0x1800, 0), "[first]", "a line may come late");
    }

    #[test]
    fn upper_addresses_are_the_systems() {
        let places = places();
        assert_eq!(places.frame(0, 0xffff_8000_0100_0000, 0).domain, Domain::LibraryOs);
        assert_eq!(places.frame(0, 0xffff_ffff_8020_0000, 0).domain, Domain::Kernel);
        assert!(!places.is_idle(0xffff_ffff_8020_0000));
        assert!(!places.is_idle(0));
    }
}

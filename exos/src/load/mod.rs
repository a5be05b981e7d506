//! Starting programs: the executable, its interpreter, the vDSO, the first stack.
//!
//! `execve` in two steps, so that what can be refused is refused while the old program still runs:
//! [`Program::open`] reads and checks the headers of the executable and of its interpreter,
//! [`Program::load`] maps them into an empty address space and answers with the registers to start
//! with. Opening files by path is the caller's part.
//!
//! Where things go (without randomness): a relocatable program at [`PROGRAM_IMAGE_BASE`], its heap
//! behind it; the stack at the top; the interpreter and the vDSO in the mapping area, which begins
//! below the stack's limit and the room for trampolines ([`mapping_base`]).

pub mod elf;
mod images;
pub mod script;
pub mod stack;
pub mod vdso;
mod vdso_code;

#[cfg(test)]
mod elf_tests;
#[cfg(test)]
mod load_tests;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SIZE, PROGRAM_END};

use crate::error::{Errno, Result};
use crate::load::elf::{ElfError, ElfImage, ElfKind, MappedImage};
pub use crate::load::images::KnownImages;
use crate::load::stack::{StackImage, StartFacts};
use crate::load::vdso::VdsoPages;
use crate::mem::first_faults::StartPlaces;
use crate::mem::{
    AddressSpace, AreaFlags, AreaLabel, FileIdentity, FramePool, MapRequest, PageIntent, PageSource, Placement,
    Protection, TRAMPOLINE_ROOM_BYTES,
};
use crate::reserve;

/// Where relocatable programs go, before randomness (two thirds of the program's half, as on Linux).
pub const PROGRAM_IMAGE_BASE: u64 = 0x5555_5555_4000;
/// Bytes of stack that are an area from the start, below what the program finds there.
pub const STACK_EXTRA_BYTES: u64 = 128 * 1024;
/// Least and most distance of the mapping area from the top.
const STACK_GAP_MIN: u64 = 128 << 20;
const STACK_GAP_MAX: u64 = PROGRAM_END / 6 * 5;
/// Guard and room for a random shift of the stack, included in the distance.
const STACK_GAP_PAD: u64 = (1 << 20) + (16 << 30);

/// A file to run.
#[derive(Clone)]
pub struct ProgramFile {
    /// Where its pages come from.
    pub source: Arc<dyn PageSource>,
    /// Length in bytes.
    pub length_bytes: u64,
}

/// Pages by which places are shifted; all 0 in a deterministic run. The caller draws them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shifts {
    /// Relocatable programs up, at most 2^28.
    pub image_pages: u64,
    /// The stack down, at most 2^22.
    pub stack_pages: u64,
    /// The heap up, at most 2^13.
    pub heap_pages: u64,
}

/// Why a program cannot be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The executable is not good.
    Program(ElfError),
    /// The interpreter that the executable names cannot be opened.
    InterpreterMissing {
        /// Path of the file.
        path: Vec<u8>,
        /// Why it cannot be read.
        error: Errno,
    },
    /// The interpreter is not good.
    Interpreter {
        /// Path of the file.
        path: Vec<u8>,
        /// Why it cannot be run.
        error: ElfError,
    },
    /// Arguments and environment are too long.
    StringsTooLong,
    /// It does not fit into memory or the address space.
    NoMemory,
}

impl LoadError {
    /// What `execve` returns.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Program(ElfError::Unreadable(error))
            | Self::Interpreter { error: ElfError::Unreadable(error), .. }
            | Self::InterpreterMissing { error, .. } => *error,
            Self::Program(_) | Self::Interpreter { .. } => Errno::ENOEXEC,
            Self::StringsTooLong => Errno::E2BIG,
            Self::NoMemory => Errno::ENOMEM,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(error) => write!(formatter, "{error}"),
            Self::InterpreterMissing { path, error } => {
                let path = path.escape_ascii();
                write!(formatter, "needs the interpreter {path}, which cannot be opened ({error:?})")
            }
            Self::Interpreter { path, error } => {
                write!(formatter, "its interpreter {}: {error}", path.escape_ascii())
            }
            Self::StringsTooLong => write!(formatter, "arguments and environment are too long"),
            Self::NoMemory => write!(formatter, "it does not fit into memory"),
        }
    }
}

/// A program whose headers are good.
pub struct Program {
    file: ProgramFile,
    image: Arc<ElfImage>,
    interpreter: Option<(ProgramFile, Arc<ElfImage>)>,
}

/// What a program is started with.
#[derive(Clone, Copy)]
pub struct LoadRequest<'a> {
    /// Arguments, the first is the name.
    pub arguments: &'a [Vec<u8>],
    /// Environment strings.
    pub environment: &'a [Vec<u8>],
    /// Path of the executable as `AT_EXECFN` tells it.
    pub executable: &'a [u8],
    /// What the auxiliary vector tells; addresses are filled in by [`Program::load`].
    pub facts: StartFacts,
    /// The vDSO to map.
    pub vdso: Option<&'a VdsoPages>,
    /// Randomness.
    pub shifts: Shifts,
}

/// A loaded program, ready to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedProgram {
    /// First instruction: the interpreter's if there is one.
    pub entry: u64,
    /// RSP at the program's first instruction.
    pub stack_pointer: u64,
    /// Where the executable is.
    pub image: MappedImage,
    /// Where the interpreter is.
    pub interpreter: Option<MappedImage>,
    /// Where the vDSO is.
    pub vdso: Option<u64>,
    /// Top of the stack.
    pub stack_top: u64,
    /// Addresses of the argument strings.
    pub arguments: Range<u64>,
    /// Addresses of the environment strings.
    pub environment: Range<u64>,
    /// The auxiliary vector.
    pub auxiliary: Vec<u8>,
}

/// Top of the mapping area for a stack limit, as [`AddressSpace::new`] wants it; the room for trampolines is above it.
#[must_use]
pub fn mapping_base(stack_limit_bytes: u64, shift_pages: u64) -> u64 {
    let gap = stack_limit_bytes.saturating_add(STACK_GAP_PAD).clamp(STACK_GAP_MIN, STACK_GAP_MAX);
    (PROGRAM_END - gap - TRAMPOLINE_ROOM_BYTES - shift_pages * PAGE_SIZE) & !(PAGE_SIZE - 1)
}

impl Program {
    /// Reads and checks the headers of `file` and of the interpreter that it names, which `open` opens by path.
    pub fn open(
        (pool, images): (&FramePool, &KnownImages),
        file: ProgramFile,
        open: &mut dyn FnMut(&[u8]) -> Result<ProgramFile>,
    ) -> core::result::Result<Self, LoadError> {
        let image = images.read(pool, &file).map_err(LoadError::Program)?;
        let interpreter = match &image.interpreter {
            None => None,
            Some(path) => Some(open_interpreter((pool, images), path, open)?),
        };
        Ok(Self { file, image, interpreter })
    }

    /// The executable.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.file.source.identity()
    }

    /// The executable's headers.
    #[must_use]
    pub fn image(&self) -> &ElfImage {
        &self.image
    }

    /// Whether arguments and environment fit; to be asked before the old program is given up.
    /// # Errors
    /// [`LoadError::StringsTooLong`]; [`LoadError::NoMemory`] if there is none to lay them out.
    pub fn check_strings(
        arguments: &[Vec<u8>],
        environment: &[Vec<u8>],
        executable: &[u8],
        stack_limit_bytes: u64,
    ) -> core::result::Result<(), LoadError> {
        let length = stack::check_strings(arguments, environment, executable, stack_limit_bytes);
        let length = length.map_err(|_| LoadError::StringsTooLong)? as usize;
        // What is small is there in any case.
        let room = if length > reserve::BLOCK_BYTES { reserve::vector::<u8>(length).map(|_| ()) } else { Ok(()) };
        room.map_err(|_| LoadError::NoMemory)
    }

    /// Maps everything into `space`, which is empty. After an error the space is good for nothing but being cleared.
    pub fn load(
        &self,
        space: &mut AddressSpace,
        request: &LoadRequest<'_>,
    ) -> core::result::Result<LoadedProgram, LoadError> {
        let LoadRequest { arguments, environment, executable, .. } = *request;
        Self::check_strings(arguments, environment, executable, space.limits().stack_bytes)?;
        space.in_one_batch(|space| self.load_checked(space, request)).map_err(|_| LoadError::NoMemory)
    }

    fn load_checked(&self, space: &mut AddressSpace, request: &LoadRequest<'_>) -> Result<LoadedProgram> {
        let base = PROGRAM_IMAGE_BASE + request.shifts.image_pages * PAGE_SIZE;
        let image = self.image.map(space, &self.file.source, Some(base))?;
        space.set_break_start(image.end + request.shifts.heap_pages * PAGE_SIZE);
        let vdso = request.vdso.map(|pages| pages.map(space)).transpose()?;
        let interpreter = match &self.interpreter {
            // An interpreter with fixed addresses goes there; it may collide, which is its builder's concern.
            Some((file, interpreter)) => Some(interpreter.map(space, &file.source, None)?),
            None => None,
        };
        let facts = StartFacts {
            table_address: image.table_address,
            table_entries: u64::from(self.image.table_entries),
            interpreter_base: interpreter.map_or(0, |interpreter| interpreter.base),
            entry: image.entry,
            vdso,
            ..request.facts
        };
        let stack_top = PROGRAM_END - request.shifts.stack_pages * PAGE_SIZE;
        let LoadRequest { arguments, environment, executable, .. } = *request;
        let stack = StackImage::build(stack_top, arguments, environment, executable, &facts)?;
        self.map_stack(space, stack_top, &stack)?;
        let places = StartPlaces {
            image: image.start..image.end,
            is_image_fixed: self.image.kind == ElfKind::Fixed,
            interpreter: interpreter.map_or(0..0, |interpreter| interpreter.start..interpreter.end),
            vdso: vdso.unwrap_or(0),
            stack_top,
            heap: space.heap().start,
            ..StartPlaces::default()
        };
        space.start_as_before(self.file.source.identity(), places);
        Ok(LoadedProgram {
            entry: interpreter.map_or(image.entry, |interpreter| interpreter.entry),
            stack_pointer: stack.start,
            image,
            interpreter,
            vdso,
            stack_top,
            arguments: stack.arguments,
            environment: stack.environment,
            auxiliary: stack.auxiliary,
        })
    }

    fn map_stack(&self, space: &mut AddressSpace, top: u64, stack: &StackImage) -> Result<()> {
        let filled = top - (stack.start & !(PAGE_SIZE - 1));
        let allowed = space.limits().stack_bytes & !(PAGE_SIZE - 1);
        let length = (filled + STACK_EXTRA_BYTES).min(allowed).max(filled);
        let mut protection = Protection::READ | Protection::WRITE;
        if self.image.wants_executable_stack {
            protection |= Protection::EXECUTE;
        }
        let mut request = MapRequest::anonymous(Placement::FixedNoReplace(top - length), length, protection);
        request.flags = AreaFlags::GROWS_DOWN;
        request.label = AreaLabel::Stack;
        space.map(request)?;
        space.write_all(stack.start, &stack.bytes).map_err(|_| Errno::ENOMEM)
    }
}

fn open_interpreter(
    (pool, images): (&FramePool, &KnownImages),
    path: &[u8],
    open: &mut dyn FnMut(&[u8]) -> Result<ProgramFile>,
) -> core::result::Result<(ProgramFile, Arc<ElfImage>), LoadError> {
    let file = open(path).map_err(|error| LoadError::InterpreterMissing { path: path.to_vec(), error })?;
    match images.read(pool, &file) {
        // An interpreter's own interpreter is not looked at, as on Linux.
        Ok(image) => Ok((file, image)),
        Err(error) => Err(LoadError::Interpreter { path: path.to_vec(), error }),
    }
}

/// Fills `into` from `offset` of a file on. `EIO` if the file ends or cannot be read.
pub fn read_file(pool: &FramePool, source: &Arc<dyn PageSource>, offset: u64, into: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < into.len() {
        let next = offset + done as u64;
        let in_page = (next % PAGE_SIZE) as usize;
        let page = source.page(next / PAGE_SIZE, PageIntent::Read).map_err(|_| Errno::EIO)?;
        let count = page.valid_bytes.saturating_sub(in_page).min(into.len() - done);
        if count == 0 {
            return Err(Errno::EIO);
        }
        pool.bytes().read(page.frame.frame(), in_page, &mut into[done..done + count]);
        done += count;
    }
    Ok(())
}

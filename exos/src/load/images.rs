//! Headers of programs that were read before.
//!
//! A program that is started again and again has the same headers each time, and so has its interpreter. What was read
//! of a file of the boot bundle, which nobody can change, is kept: by the frame of the file's first page, how long the
//! file is, and as far as it was looked at. A file that somebody has written to names other frames there, or none.
//!
//! Limit: [`IMAGE_COUNT_MAX`] images, those that were used last.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::FrameNumber;
use aegis_abi::layout::PAGE_SIZE;

use crate::load::elf::{ElfError, ElfImage};
use crate::load::{ProgramFile, read_file};
use crate::mem::FramePool;
use crate::mem::frames::FixedRun;
use crate::sync::Mutex;

/// Images that are kept.
const IMAGE_COUNT_MAX: usize = 32;

struct Known {
    first: FrameNumber,
    length_bytes: u64,
    /// How far the file was looked at.
    end: u64,
    image: Arc<ElfImage>,
}

/// What is known of programs.
#[derive(Default)]
pub struct KnownImages {
    images: Mutex<Vec<Known>>,
}

impl KnownImages {
    /// The headers of a file.
    ///
    /// # Errors
    /// What is wrong with them, or that the file cannot be read.
    pub fn read(&self, pool: &FramePool, file: &ProgramFile) -> Result<Arc<ElfImage>, ElfError> {
        if let Some(run) = fixed_run(file) {
            let mut images = self.images.lock();
            let is_it = |known: &Known| {
                (known.first, known.length_bytes) == (run.first, file.length_bytes)
                    && known.end <= run.count * PAGE_SIZE
            };
            if let Some(index) = images.iter().rposition(is_it) {
                let image = Arc::clone(&images[index].image);
                // Those that are used stay at the end.
                if index + IMAGE_COUNT_MAX / 2 < images.len() {
                    let known = images.remove(index);
                    images.push(known);
                }
                return Ok(image);
            }
        }
        let mut end = 0;
        let image = ElfImage::read(file.length_bytes, &mut |offset, into| {
            end = end.max(offset + into.len() as u64);
            read_file(pool, &file.source, offset, into)
        })?;
        let image = Arc::new(image);
        // Looked at again: what is the bundle's now was that while it was read, as nothing becomes it again.
        if let Some(run) = fixed_run(file).filter(|run| end <= run.count * PAGE_SIZE) {
            let mut images = self.images.lock();
            if images.len() >= IMAGE_COUNT_MAX {
                images.remove(0);
            }
            if images.try_reserve(1).is_ok() {
                let (first, length_bytes) = (run.first, file.length_bytes);
                images.push(Known { first, length_bytes, end, image: Arc::clone(&image) });
            }
        }
        Ok(image)
    }
}

/// The pages of the boot bundle that a file begins with.
fn fixed_run(file: &ProgramFile) -> Option<FixedRun> {
    file.source.fixed_run(0..file.length_bytes.div_ceil(PAGE_SIZE))
}

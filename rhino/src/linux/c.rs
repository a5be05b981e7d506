//! The calls of `include/rhino.h`: the paper's six, and some more. Numbers in and out; errors are negative error
//! numbers of Linux. What each does is said in the header.
#![allow(unsafe_code, reason = "functions of C, with pointers of C")]

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::database::{Database, Mapping, Transaction};
use super::layout::Settings;
use crate::error::Error;
use crate::heap::{self, HeapError, Words};
use crate::memory::PAGE_BYTES;
use crate::{Detector, Durability, MediumError, MemoryError, Restore};

/// A database that a program of C has open.
struct Opened {
    database: Database,
    detector: Detector,
    mapping: Option<Mapping>,
}

static OPENED: Mutex<Vec<Option<Opened>>> = Mutex::new(Vec::new());

std::thread_local! {
    /// The thread's transaction: number, database, and itself.
    static CURRENT: RefCell<Option<(c_int, c_int, Transaction)>> = const { RefCell::new(None) };
}

static NEXT: Mutex<c_int> = Mutex::new(1);

fn opened() -> MutexGuard<'static, Vec<Option<Opened>>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error number of an error.
fn number(error: Error) -> c_int {
    match error {
        Error::Deadlock => libc::EDEADLK,
        Error::Busy => libc::EBUSY,
        Error::TooLarge | Error::LogFull | Error::Medium(MediumError::NoSpace) => libc::ENOSPC,
        Error::Medium(_) => libc::EIO,
        Error::Memory(MemoryError::NoMemory) | Error::NoMemory => libc::ENOMEM,
        Error::Limit => libc::EMFILE,
        Error::Broken => libc::EROFS,
        Error::Damage(_) => libc::EUCLEAN,
        Error::NoSegment => libc::ENOENT,
        Error::NotDeclared => libc::EFAULT,
        Error::NoTransaction | Error::NoRegion | Error::OutOfRange | Error::Memory(_) | Error::Shape => libc::EINVAL,
    }
}

fn answer(result: Result<c_int, Error>) -> c_int {
    result.unwrap_or_else(|error| -number(error))
}

fn with<T>(storage: c_int, body: impl FnOnce(&mut Opened) -> Result<T, Error>) -> Result<T, Error> {
    let mut opened = opened();
    let place = usize::try_from(storage).ok().and_then(|index| opened.get_mut(index));
    body(place.and_then(Option::as_mut).ok_or(Error::NoSegment)?)
}

/// # Safety
/// `path` is a string of C.
unsafe fn path_of<'a>(path: *const c_char) -> &'a Path {
    // SAFETY: by contract.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

/// `trans_create`.
///
/// # Safety
/// `path` is a string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trans_create(path: *const c_char, size: usize) -> c_int {
    // SAFETY: by contract.
    let path = unsafe { path_of(path) };
    answer(Database::create(path, size as u64).map(|()| 0))
}

/// `trans_open`.
///
/// # Safety
/// `path` is a string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trans_open(path: *const c_char) -> c_int {
    // SAFETY: by contract.
    let path = unsafe { path_of(path) };
    answer(Database::open(path, Settings::default()).and_then(|database| {
        let mut opened = opened();
        let place = opened.iter().position(Option::is_none).unwrap_or(opened.len());
        if place == opened.len() {
            opened.push(None);
        }
        opened[place] = Some(Opened { database, detector: Detector::Diff, mapping: None });
        c_int::try_from(place).map_err(|_| Error::Limit)
    }))
}

/// `trans_close`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_close(storage: c_int) -> c_int {
    if CURRENT.with_borrow(|current| current.as_ref().is_some_and(|current| current.1 == storage)) {
        return -libc::EBUSY;
    }
    let place = usize::try_from(storage).ok();
    let closed = place.and_then(|index| opened().get_mut(index).and_then(Option::take));
    if closed.is_some() { 0 } else { -libc::ENOENT }
}

/// `trans_detector`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_detector(storage: c_int, detector: c_int) -> c_int {
    let detector = match detector {
        0 => Detector::SetRange,
        1 => Detector::Page,
        2 => Detector::Diff,
        _ => return -libc::EINVAL,
    };
    answer(with(storage, |opened| {
        if opened.mapping.is_some() {
            return Err(Error::Busy);
        }
        opened.detector = detector;
        Ok(0)
    }))
}

/// `trans_mmap`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_mmap(base: *mut c_void, size: usize, storage: c_int) -> *mut c_void {
    let result = with(storage, |opened| {
        if opened.mapping.is_some() {
            return Err(Error::Busy);
        }
        if size == 0 || !(size | base as usize).is_multiple_of(PAGE_BYTES) {
            return Err(Error::OutOfRange);
        }
        let mapping = opened.database.map(0, size / PAGE_BYTES, opened.detector, base as usize)?;
        Ok(opened.mapping.insert(mapping).address())
    });
    match result {
        Ok(address) => address.cast(),
        Err(error) => (-number(error) as isize) as *mut c_void,
    }
}

/// `trans_begin`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_begin() -> c_int {
    let storage = {
        let opened = opened();
        let mut places = opened.iter().enumerate().filter(|(_, opened)| opened.is_some()).map(|(index, _)| index);
        match (places.next(), places.next()) {
            (Some(place), None) => place as c_int,
            _ => return -libc::EINVAL,
        }
    };
    trans_begin_on(storage)
}

/// `trans_begin_on`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_begin_on(storage: c_int) -> c_int {
    answer(with(storage, |opened| opened.database.begin(Restore::Yes)).map(|transaction| {
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        let id = *next;
        *next = next.checked_add(1).unwrap_or(1);
        CURRENT.set(Some((id, storage, transaction)));
        id
    }))
}

/// `trans_setrange`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_setrange(storage: c_int, offset: usize, length: usize) -> c_int {
    answer(within(storage, |transaction, mapping| transaction.set_range(mapping, offset as u64, length as u64)))
}

/// Does something in the thread's transaction, with the mapping of its database.
fn within(storage: c_int, body: impl FnOnce(&Transaction, &Mapping) -> Result<(), Error>) -> Result<c_int, Error> {
    CURRENT.with_borrow(|current| {
        let current = current.as_ref().filter(|current| current.1 == storage).ok_or(Error::NoTransaction)?;
        with(storage, |opened| body(&current.2, opened.mapping.as_ref().ok_or(Error::NoRegion)?)).map(|()| 0)
    })
}

/// `trans_read`.
///
/// # Safety
/// `into` has room for `length` bytes, which are no pages of the mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trans_read(storage: c_int, offset: usize, into: *mut c_void, length: usize) -> c_int {
    if length == 0 {
        return 0;
    }
    // SAFETY: by contract.
    let into = unsafe { core::slice::from_raw_parts_mut(into.cast::<u8>(), length) };
    answer(within(storage, |transaction, mapping| transaction.read(mapping, offset as u64, into)))
}

/// `trans_write`.
///
/// # Safety
/// `from` has `length` bytes, which are no pages of the mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trans_write(storage: c_int, offset: usize, from: *const c_void, length: usize) -> c_int {
    if length == 0 {
        return 0;
    }
    // SAFETY: by contract.
    let from = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), length) };
    answer(within(storage, |transaction, mapping| transaction.write(mapping, offset as u64, from)))
}

fn take(transaction: c_int) -> Result<Transaction, Error> {
    CURRENT.with_borrow_mut(|current| {
        if current.as_ref().is_none_or(|current| current.0 != transaction) {
            return Err(Error::NoTransaction);
        }
        current.take().map(|current| current.2).ok_or(Error::NoTransaction)
    })
}

/// `trans_commit`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_commit(transaction: c_int) -> c_int {
    answer(take(transaction).and_then(|transaction| transaction.commit(Durability::Flush)).map(|()| 0))
}

/// `trans_commit_lazy`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_commit_lazy(transaction: c_int) -> c_int {
    answer(take(transaction).and_then(|transaction| transaction.commit(Durability::Lazy)).map(|()| 0))
}

/// `trans_abort`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_abort(transaction: c_int) -> c_int {
    answer(take(transaction).and_then(Transaction::abort).map(|()| 0))
}

/// `trans_failure`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_failure(transaction: c_int) -> c_int {
    CURRENT.with_borrow(|current| match current {
        Some(current) if current.0 == transaction => current.2.failure().map_or(0, |error| -number(error)),
        _ => -libc::EINVAL,
    })
}

/// `trans_flush`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_flush(storage: c_int) -> c_int {
    answer(with(storage, |opened| Ok(opened.database.clone())).and_then(|database| database.flush()).map(|()| 0))
}

/// `trans_truncate`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_truncate(storage: c_int) -> c_int {
    answer(with(storage, |opened| Ok(opened.database.clone())).and_then(|database| database.checkpoint()).map(|()| 0))
}

/// A mapping's words, changed within the thread's transaction.
struct MappedWords {
    storage: c_int,
    address: usize,
    length: usize,
}

impl Words for MappedWords {
    fn length_bytes(&self) -> u64 {
        self.length as u64
    }
    fn load(&self, at: u64) -> u64 {
        // SAFETY: the heap asks for words inside; a fault is the transaction's.
        unsafe { ((self.address + at as usize) as *const u64).read_volatile() }
    }
    fn store(&mut self, at: u64, word: u64) -> Result<(), Error> {
        CURRENT.with_borrow(|current| {
            let current = current.as_ref().filter(|current| current.1 == self.storage).ok_or(Error::NoTransaction)?;
            with(self.storage, |opened| {
                let mapping = opened.mapping.as_ref().ok_or(Error::NoRegion)?;
                current.2.set_range(mapping, at, 8)
            })
        })?;
        // SAFETY: as above.
        unsafe { ((self.address + at as usize) as *mut u64).write_volatile(word) };
        Ok(())
    }
}

fn words(storage: c_int) -> Result<MappedWords, Error> {
    if !CURRENT.with_borrow(|current| current.as_ref().is_some_and(|current| current.1 == storage)) {
        return Err(Error::NoTransaction);
    }
    with(storage, |opened| {
        let mapping = opened.mapping.as_ref().ok_or(Error::NoRegion)?;
        Ok(MappedWords { storage, address: mapping.address() as usize, length: mapping.length() })
    })
}

/// `trans_malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_malloc(storage: c_int, size: usize) -> *mut c_void {
    let Ok(mut words) = words(storage) else { return core::ptr::null_mut() };
    let allocated = heap::allocate(&mut words, size as u64).or_else(|error| {
        // A database of zeros becomes a heap when it is first asked to be one.
        if error != HeapError::NotFormatted || (0..64).any(|word| words.load(8 * word) != 0) {
            return Err(error);
        }
        heap::format(&mut words)?;
        heap::allocate(&mut words, size as u64)
    });
    allocated.map_or(core::ptr::null_mut(), |at| (words.address + at as usize) as *mut c_void)
}

/// `trans_free`.
#[unsafe(no_mangle)]
pub extern "C" fn trans_free(storage: c_int, block: *mut c_void) -> c_int {
    if block.is_null() {
        return 0;
    }
    answer(words(storage).and_then(|mut words| {
        let at = (block as usize).wrapping_sub(words.address) as u64;
        heap::free(&mut words, at).map(|()| 0).map_err(|error| match error {
            HeapError::Store(error) => error,
            HeapError::NotFormatted | HeapError::Full | HeapError::NoBlock => Error::OutOfRange,
        })
    }))
}

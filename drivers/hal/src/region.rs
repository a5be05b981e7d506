//! Registers and DMA memory at a virtual address: the implementation for kernel, domain and library
//! alike.
//!
//! This module holds all unsafe code of the driver side. It is sound because the constructors'
//! callers promise that the addresses stay mapped, and because every access passes [`check_access`]
//! or [`check_range`] first (HAL-1). Access is volatile (HAL-2); several handles on the same
//! registers are therefore no aliasing problem, only a question of which driver has the device.
#![allow(unsafe_code, reason = "volatile access to device registers and to memory shared with a device")]

use core::ptr::NonNull;

use crate::{AccessError, DeviceAddress, DmaBuffer, PAGE_BYTES, Volatile, Width, check_access, check_range};

/// Device registers mapped at a virtual address.
#[derive(Debug)]
pub struct MmioRegion {
    base: NonNull<u8>,
    length_bytes: usize,
}

// SAFETY: the constructor's contract holds on every processor of the address space, and the type
// has no thread-local state.
unsafe impl Send for MmioRegion {}

impl MmioRegion {
    /// Registers that are mapped at `base`.
    ///
    /// # Safety
    /// 1. `length_bytes` bytes at `base` are mapped uncached to registers of one device function,
    ///    for reading and writing, in every address space in which the region or a window of it is
    ///    used, until the last of them is dropped.
    /// 2. No Rust object lives in them.
    /// 3. No access to them, whatever it writes, makes the processor's memory unsound by itself.
    ///    DMA that the device is told to do through them is confined to memory that is not Rust's
    ///    (an IOMMU, or a driver that passes on only addresses of [`DmaBuffer`]s).
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, length_bytes: usize) -> Self {
        Self { base, length_bytes }
    }

    /// A second handle on `length_bytes` at `offset` of these registers: how one mapped base
    /// address register becomes the windows that a driver wants.
    ///
    /// # Errors
    /// [`AccessError`] if they are not within the region.
    pub fn window(&self, offset: usize, length_bytes: usize) -> Result<Self, AccessError> {
        check_range(offset, length_bytes, self.length_bytes)?;
        // SAFETY: just checked, the sum is within the region or at its end, which is one mapping
        // (constructor, 1).
        let base = unsafe { self.base.add(offset) };
        Ok(Self { base, length_bytes })
    }

    /// One register, to which `value` alone is ever written.
    ///
    /// # Errors
    /// [`AccessError`] if it is not within the region, or not aligned.
    pub fn doorbell(&self, offset: usize, width: Width, value: u64) -> Result<Doorbell, AccessError> {
        check_access(self.base.as_ptr().addr(), offset, width, self.length_bytes)?;
        Ok(Doorbell { register: self.window(offset, width.bytes())?, width, value })
    }
}

/// A register by which a device is told that there is something for it. What is written does not depend on any other
/// register, so several ring it at once, and beside the driver: a ring that leaves the machine keeps nobody from the
/// driver's memory meanwhile.
#[derive(Debug)]
pub struct Doorbell {
    register: MmioRegion,
    width: Width,
    value: u64,
}

// SAFETY: the only access is one volatile write of one value, whole, from whichever processor.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// Tells the device.
    #[inline]
    pub fn ring(&self) {
        // SAFETY: in bounds and aligned (checked where it was made); mapped for writing, no Rust object, and no write
        // is unsound (the region's constructor, 1 to 3).
        unsafe { write_width(self.register.base, self.width, self.value) };
    }
}

impl Volatile for MmioRegion {
    #[inline]
    fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    #[inline]
    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError> {
        check_access(self.base.as_ptr().addr(), offset, width, self.length_bytes)?;
        // SAFETY: in bounds and aligned (checked above); mapped for reading (constructor, 1); no
        // Rust object (2).
        Ok(unsafe { read_width(self.base.add(offset), width) })
    }

    #[inline]
    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError> {
        check_access(self.base.as_ptr().addr(), offset, width, self.length_bytes)?;
        // SAFETY: in bounds and aligned (checked above); mapped for writing (constructor, 1); no
        // Rust object (2, 3).
        unsafe { write_width(self.base.add(offset), width, value) };
        Ok(())
    }
}

/// Memory shared with a device, mapped at a virtual address.
#[derive(Debug)]
pub struct DmaRegion {
    /// What holds of registers (their constructor, 1 to 3) holds of this memory (constructor, 1 to 3).
    memory: MmioRegion,
    device_address: DeviceAddress,
}

impl DmaRegion {
    /// Whole pages that are mapped at `base` and that the device reaches at `device_address`.
    ///
    /// # Errors
    /// `None` if `base`, `device_address` or `length_bytes` is not a multiple of [`PAGE_BYTES`], or
    /// a range wraps.
    ///
    /// # Safety
    /// 1. `length_bytes` bytes at `base` are mapped cached for reading and writing, in every
    ///    address space in which the region is used, until it is dropped; and no other code
    ///    accesses them from a processor meanwhile.
    /// 2. No Rust object lives in them; the device may change any of them at any time.
    /// 3. The device reaches exactly these bytes, in this order, at `device_address` until the
    ///    region has been released in the order of HAL-3.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, length_bytes: usize, device_address: DeviceAddress) -> Option<Self> {
        let page_multiple = base.as_ptr().addr().is_multiple_of(PAGE_BYTES)
            && length_bytes.is_multiple_of(PAGE_BYTES)
            && device_address.0.is_multiple_of(PAGE_BYTES as u64);
        let wraps = base.as_ptr().addr().checked_add(length_bytes).is_none()
            || device_address.0.checked_add(length_bytes as u64).is_none();
        (page_multiple && !wraps).then_some(Self { memory: MmioRegion { base, length_bytes }, device_address })
    }

    /// The first page and the rest, if there is more than nothing.
    pub(crate) fn split_first_page(self) -> Option<(Self, Option<Self>)> {
        self.split_first(1).ok()
    }

    /// The first `page_count` pages and what is behind them; all of it, if there are not as many.
    pub(crate) fn split_first(self, page_count: usize) -> Result<(Self, Option<Self>), Self> {
        let all_bytes = self.memory.length_bytes;
        let first_bytes = page_count.saturating_mul(PAGE_BYTES);
        let rest_bytes = all_bytes.saturating_sub(first_bytes);
        let (Ok(first), Ok(rest)) =
            (self.memory.window(0, first_bytes), self.memory.window(all_bytes - rest_bytes, rest_bytes))
        else {
            return Err(self);
        };
        let rest = Self { memory: rest, device_address: self.device_address.offset(first_bytes) };
        Ok((Self { memory: first, ..self }, (rest_bytes > 0).then_some(rest)))
    }

    /// Whether `next` starts where this region ends, for the processor and for the device.
    pub(crate) fn is_followed_by(&self, next: &Self) -> bool {
        let MmioRegion { base, length_bytes } = self.memory;
        base.as_ptr().addr() + length_bytes == next.memory.base.as_ptr().addr()
            && self.device_address.offset(length_bytes) == next.device_address
    }

    /// One region out of two of which the second follows the first; otherwise both come back.
    pub(crate) fn join(self, next: Self) -> Result<Self, (Self, Self)> {
        if !self.is_followed_by(&next) {
            return Err((self, next));
        }
        let length_bytes = self.memory.length_bytes + next.memory.length_bytes;
        Ok(Self { memory: MmioRegion { length_bytes, ..self.memory }, ..self })
    }
}

impl Volatile for DmaRegion {
    #[inline]
    fn length_bytes(&self) -> usize {
        self.memory.length_bytes
    }

    #[inline]
    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError> {
        self.memory.read(offset, width)
    }

    #[inline]
    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError> {
        self.memory.write(offset, width, value)
    }
}

impl DmaBuffer for DmaRegion {
    #[inline]
    fn device_address(&self) -> DeviceAddress {
        self.device_address
    }

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.memory.length_bytes)?;
        // SAFETY: the range was checked above; mapped for writing (constructor, 1); no Rust object (2). `bytes` is
        // Rust's, so it is none of it.
        unsafe { copy_shared(bytes.as_ptr(), self.memory.base.add(offset).as_ptr(), bytes.len()) };
        Ok(())
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.memory.length_bytes)?;
        // SAFETY: the range was checked above; mapped for reading (constructor, 1); no Rust object (2). `bytes` is
        // Rust's alone, so it is none of it.
        unsafe { copy_shared(self.memory.base.add(offset).as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn copy_across(
        &self,
        offset: usize,
        into: &mut Self,
        into_offset: usize,
        byte_count: usize,
    ) -> Result<(), AccessError> {
        check_range(offset, byte_count, self.memory.length_bytes)?;
        check_range(into_offset, byte_count, into.memory.length_bytes)?;
        // SAFETY: both ranges were checked above; mapped for reading and writing (constructor, 1); no Rust object (2).
        // The two are different regions, as one of them is borrowed alone.
        unsafe {
            let (from, to) = (self.memory.base.add(offset), into.memory.base.add(into_offset));
            copy_shared(from.as_ptr(), to.as_ptr(), byte_count);
        }
        Ok(())
    }
}

/// Copies bytes of which one side is memory that a device may change meanwhile: each once, in order, by instructions
/// that the compiler does not look into (HAL-2). Memory is not as registers are: how many bytes one access takes is not
/// promised. A string instruction, because it is one for eight bytes where a loop is three.
///
/// # Safety
/// `byte_count` bytes at `from` are mapped for reading and at `to` for writing, the two do not overlap, and a side that
/// is not a Rust object's is memory that a device may change.
#[inline]
unsafe fn copy_shared(from: *const u8, to: *mut u8, byte_count: usize) {
    // SAFETY: the caller's promise; the direction flag is clear (the ABI's), and nothing else is changed.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            "mov ecx, {rest:e}",
            "rep movsb",
            rest = in(reg) byte_count % 8,
            inout("rcx") byte_count / 8 => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// One volatile read, zero-extended.
///
/// # Safety
/// `pointer` is aligned to `width`, mapped for reading, and no Rust object lives there.
#[inline]
unsafe fn read_width(pointer: NonNull<u8>, width: Width) -> u64 {
    // SAFETY: the caller's promise is what each arm needs.
    unsafe {
        match width {
            Width::U8 => u64::from(pointer.read_volatile()),
            Width::U16 => u64::from(pointer.cast::<u16>().read_volatile()),
            Width::U32 => u64::from(pointer.cast::<u32>().read_volatile()),
            Width::U64 => pointer.cast::<u64>().read_volatile(),
        }
    }
}

/// One volatile write of the low `width`.
///
/// # Safety
/// `pointer` is aligned to `width`, mapped for writing, and no Rust object lives there.
#[inline]
unsafe fn write_width(pointer: NonNull<u8>, width: Width, value: u64) {
    // SAFETY: the caller's promise is what each arm needs.
    unsafe {
        match width {
            Width::U8 => pointer.write_volatile(value as u8),
            Width::U16 => pointer.cast::<u16>().write_volatile(value as u16),
            Width::U32 => pointer.cast::<u32>().write_volatile(value as u32),
            Width::U64 => pointer.cast::<u64>().write_volatile(value),
        }
    }
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;

//! Memory between a driver under test and a device model: an arena of pages, a processor side and a
//! device side.

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::{
    AccessError, DeviceAddress, Dma, DmaBuffer, DmaError, PAGE_BYTES, Volatile, Width, check_access, check_range,
};

/// What fresh memory is filled with: a driver that relies on zeroed memory meets this.
pub const POISON_FRESH: u8 = 0xdf;
/// What released memory is filled with.
pub const POISON_FREED: u8 = 0xdb;

/// Where device addresses start: far from what a host pointer or a small integer looks like.
const DEVICE_BASE: u64 = 0x00c0_0000_0000;

/// Something that a real machine would have answered with corruption or a bus error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The device accessed memory that was never allocated to it.
    DeviceOutOfBounds {
        /// First byte.
        address: u64,
        /// Length of the access.
        length_bytes: usize,
    },
    /// The device accessed memory that was released or that it does not reach any more.
    DeviceUseAfterRelease {
        /// First byte.
        address: u64,
    },
    /// A buffer was released while the device was running (HAL-3).
    ReleaseWhileRunning {
        /// First byte of the buffer.
        address: u64,
    },
}

#[derive(Debug)]
struct Region {
    base: u64,
    bytes: Vec<u8>,
    live: bool,
}

#[derive(Debug, Default)]
struct Memory {
    regions: Vec<Region>,
    violations: Vec<Violation>,
    page_count_max: usize,
    /// Where the first buffer is, for the device.
    base: u64,
    pages_live: usize,
    quarantined: usize,
    device_running: bool,
}

/// The device's side: reads and writes by device address. Clones share the memory.
#[derive(Clone, Debug)]
pub struct FakeBus {
    memory: Rc<RefCell<Memory>>,
}

impl FakeBus {
    /// An arena of which at most `page_count_max` pages are allocated at a time.
    #[must_use]
    pub fn new(page_count_max: usize) -> Self {
        Self::with_base(page_count_max, DEVICE_BASE)
    }

    /// The same, for a device that does not reach everywhere: the first buffer is at `base`.
    #[must_use]
    pub fn with_base(page_count_max: usize, base: u64) -> Self {
        let memory = Memory { page_count_max, base, ..Memory::default() };
        Self { memory: Rc::new(RefCell::new(memory)) }
    }

    /// The allocator for the driver under test.
    #[must_use]
    pub fn dma(&self) -> FakeDma {
        FakeDma { memory: Rc::clone(&self.memory) }
    }

    /// Reads as the device; `None` and a violation if the range is not in one live buffer.
    pub fn device_read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let mut memory = self.memory.borrow_mut();
        let (region, offset) = memory.locate(address, bytes.len())?;
        bytes.copy_from_slice(&memory.regions[region].bytes[offset..offset + bytes.len()]);
        Some(())
    }

    /// Writes as the device; `None` and a violation if the range is not in one live buffer.
    pub fn device_write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        let mut memory = self.memory.borrow_mut();
        let (region, offset) = memory.locate(address, bytes.len())?;
        memory.regions[region].bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        Some(())
    }

    /// Tells the memory whether the device can access it, so that a release at the wrong time is
    /// noticed.
    pub fn set_device_running(&self, running: bool) {
        self.memory.borrow_mut().device_running = running;
    }

    /// Everything that went wrong so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.memory.borrow().violations.clone()
    }

    /// Pages allocated and not released.
    #[must_use]
    pub fn live_page_count(&self) -> usize {
        self.memory.borrow().pages_live
    }

    /// Buffers that were given to quarantine.
    #[must_use]
    pub fn quarantined_buffer_count(&self) -> usize {
        self.memory.borrow().quarantined
    }

    /// Device addresses and lengths of the live buffers, in order of allocation: what a hostile
    /// device can scribble on.
    #[must_use]
    pub fn live_buffers(&self) -> Vec<(u64, usize)> {
        let memory = self.memory.borrow();
        memory.regions.iter().filter(|r| r.live).map(|r| (r.base, r.bytes.len())).collect()
    }
}

impl Memory {
    fn locate(&mut self, address: u64, length_bytes: usize) -> Option<(usize, usize)> {
        let found = self.regions.iter().position(|region| {
            address
                .checked_sub(region.base)
                .is_some_and(|offset| check_range(offset as usize, length_bytes, region.bytes.len()).is_ok())
        });
        match found {
            Some(index) if self.regions[index].live => Some((index, (address - self.regions[index].base) as usize)),
            Some(_) => {
                self.violations.push(Violation::DeviceUseAfterRelease { address });
                None
            }
            None => {
                self.violations.push(Violation::DeviceOutOfBounds { address, length_bytes });
                None
            }
        }
    }
}

/// The driver's allocator.
#[derive(Clone, Debug)]
pub struct FakeDma {
    memory: Rc<RefCell<Memory>>,
}

/// A buffer of a [`FakeDma`].
#[derive(Debug)]
pub struct FakeBuffer {
    memory: Rc<RefCell<Memory>>,
    region: usize,
    length_bytes: usize,
    base: u64,
}

impl Dma for FakeDma {
    type Buffer = FakeBuffer;

    fn allocate(&mut self, page_count: usize) -> Result<FakeBuffer, DmaError> {
        let mut memory = self.memory.borrow_mut();
        if page_count == 0 {
            return Err(DmaError::PageCount);
        }
        if page_count > memory.page_count_max - memory.pages_live {
            return Err(DmaError::Exhausted);
        }
        let length_bytes = page_count * PAGE_BYTES;
        // An unmapped page after every buffer, so that running off its end is seen.
        let base =
            memory.regions.last().map_or(memory.base, |last| last.base + last.bytes.len() as u64 + PAGE_BYTES as u64);
        memory.pages_live += page_count;
        memory.regions.push(Region { base, bytes: vec![POISON_FRESH; length_bytes], live: true });
        let region = memory.regions.len() - 1;
        Ok(FakeBuffer { memory: Rc::clone(&self.memory), region, length_bytes, base })
    }

    fn release(&mut self, buffer: FakeBuffer) {
        let mut memory = self.memory.borrow_mut();
        if memory.device_running {
            memory.violations.push(Violation::ReleaseWhileRunning { address: buffer.base });
        }
        memory.pages_live -= buffer.length_bytes / PAGE_BYTES;
        let region = &mut memory.regions[buffer.region];
        region.live = false;
        region.bytes.fill(POISON_FREED);
    }

    fn quarantine(&mut self, buffer: FakeBuffer) {
        self.memory.borrow_mut().quarantined += 1;
        drop(buffer);
    }
}

impl Volatile for FakeBuffer {
    fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError> {
        check_access(0, offset, width, self.length_bytes)?;
        let mut value = [0; 8];
        let memory = self.memory.borrow();
        let bytes = &memory.regions[self.region].bytes[offset..offset + width.bytes()];
        value[..bytes.len()].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(value))
    }

    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError> {
        check_access(0, offset, width, self.length_bytes)?;
        let mut memory = self.memory.borrow_mut();
        memory.regions[self.region].bytes[offset..offset + width.bytes()]
            .copy_from_slice(&value.to_le_bytes()[..width.bytes()]);
        Ok(())
    }
}

impl DmaBuffer for FakeBuffer {
    fn device_address(&self) -> DeviceAddress {
        DeviceAddress(self.base)
    }

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.length_bytes)?;
        let mut memory = self.memory.borrow_mut();
        memory.regions[self.region].bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.length_bytes)?;
        let memory = self.memory.borrow();
        bytes.copy_from_slice(&memory.regions[self.region].bytes[offset..offset + bytes.len()]);
        Ok(())
    }
}

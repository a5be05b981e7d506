//! The disks of a pod as devices: found at boot, started at first use.
//!
//! [`Disks`] knows which there are, by what the run was given; a [`DiskDevice`] is one of them. Its driver is started
//! when somebody opens it or asks for its size ([`DiskDevice::queue`]), so a run that does not look at its disks pays
//! nothing. A disk that cannot be started answers `ENXIO`, for good.
//!
//! Neighbours: `file`, what is open of it; `cache`, its pages; `exos/linux/src/glue/disk.rs`, the [`DiskCarrier`].

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::cache::DiskCache;
use super::disk::{Disk, DiskLimits, DiskOperation, SECTOR_BYTES};
use super::file::DiskFile;
use super::order::OrderPolicy;
use super::queue::BlockQueue;
use super::request::PriorityClass;
use super::statistics::Statistics;
use super::transfer::{Transfer, TransferRequest};
use crate::error::{Errno, Result};
use crate::fs::metadata::DeviceNumber;
use crate::fs::namespace::Device;
use crate::fs::open_file::{OpenFile, OpenRequest};
use crate::mem::frames::FramePool;
use crate::mem::pinned::PinnedMemory;
use crate::preempt;
use crate::sync::Once;

/// Where disks come from, and how a thread waits for them.
pub trait DiskCarrier: Send + Sync {
    /// The disk with this number, which is started now. `None`: there is none, or it does not work, for good.
    fn open(&self, number: usize) -> Option<Arc<dyn Disk>>;

    /// From now on this list is looked at, and its disk asked for interrupts, as exos comes by.
    fn attach(&self, number: usize, queue: &Arc<BlockQueue>);

    /// Waits for the end of a transfer; others run meanwhile. Neither a signal nor the process's end ends it.
    ///
    /// # Errors
    /// Those of the transfer.
    fn wait(&self, queue: &BlockQueue, transfer: &Transfer) -> Result<()>;

    /// Whose requests those of the running thread are.
    fn class(&self) -> PriorityClass;
}

/// What a run says of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskDescription {
    /// As in `/dev`: `vda`, `sda`.
    pub name: String,
    /// Its device number.
    pub number: DeviceNumber,
    /// Nothing is written to it.
    pub is_read_only: bool,
    /// In what order its requests go; `None`: upwards where it has a head, else as `deadline` has it.
    pub order: Option<OrderPolicy>,
}

/// A disk.
pub struct DiskDevice {
    description: DiskDescription,
    index: usize,
    carrier: Arc<dyn DiskCarrier>,
    pool: Arc<FramePool>,
    queue: Once<Option<Arc<BlockQueue>>>,
    cache: DiskCache,
    open_count: AtomicU32,
    block_bytes: AtomicU32,
    read_ahead_sectors: AtomicU64,
}

/// Sectors that are read ahead, as Linux does.
const READ_AHEAD_SECTORS: u64 = 256;

impl DiskDevice {
    fn new(
        description: DiskDescription,
        index: usize,
        carrier: &Arc<dyn DiskCarrier>,
        pool: &Arc<FramePool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            description,
            index,
            carrier: carrier.clone(),
            pool: pool.clone(),
            queue: Once::new(),
            cache: DiskCache::new(pool.clone()),
            open_count: AtomicU32::new(0),
            block_bytes: AtomicU32::new(4096),
            read_ahead_sectors: AtomicU64::new(READ_AHEAD_SECTORS),
        })
    }

    /// What the run says of it.
    #[must_use]
    pub fn description(&self) -> &DiskDescription {
        &self.description
    }

    /// Its request list; the first call starts the disk.
    ///
    /// # Errors
    /// `ENXIO`: it does not work.
    pub fn queue(&self) -> Result<&Arc<BlockQueue>> {
        let queue = self.queue.call_once(|| {
            let disk = self.carrier.open(self.index)?;
            let limits = disk.limits();
            let usual = if limits.is_rotational { OrderPolicy::Elevator } else { OrderPolicy::Deadline };
            let queue = BlockQueue::new(disk, self.description.order.unwrap_or(usual)).ok()?;
            self.carrier.attach(self.index, &queue);
            Some(queue)
        });
        queue.as_ref().ok_or(Errno::ENXIO)
    }

    /// Whether it was started.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.queue.get().is_some()
    }

    /// What it is and takes.
    ///
    /// # Errors
    /// `ENXIO`.
    pub fn limits(&self) -> Result<DiskLimits> {
        let limits = self.queue()?.limits();
        Ok(DiskLimits { is_read_only: limits.is_read_only || self.description.is_read_only, ..limits })
    }

    /// Its size.
    ///
    /// # Errors
    /// `ENXIO`.
    pub fn size_bytes(&self) -> Result<u64> {
        Ok(self.queue()?.with_limits(|limits| limits.sector_count) * u64::from(SECTOR_BYTES))
    }

    /// Bytes of the smallest unit that a transfer past the pages can name.
    ///
    /// # Errors
    /// `ENXIO`.
    pub fn logical_block_bytes(&self) -> Result<u32> {
        Ok(self.queue()?.with_limits(|limits| limits.logical_block_bytes))
    }

    /// Bytes of a block, as file systems were told (`BLKBSZGET`).
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes.load(Ordering::Relaxed)
    }

    /// Changes it; nothing else depends on it (`BLKBSZSET`).
    pub fn set_block_bytes(&self, block_bytes: u32) {
        self.block_bytes.store(block_bytes, Ordering::Relaxed);
    }

    /// Most sectors that are read ahead (`BLKRAGET`).
    #[must_use]
    pub fn read_ahead_sectors(&self) -> u64 {
        self.read_ahead_sectors.load(Ordering::Relaxed)
    }

    /// Changes that (`BLKRASET`).
    pub fn set_read_ahead_sectors(&self, sector_count: u64) {
        self.read_ahead_sectors.store(sector_count, Ordering::Relaxed);
    }

    /// What was done so far; nothing for one that was not started.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let queue = self.queue.get().and_then(Option::as_ref);
        queue.map_or_else(Statistics::default, |queue| queue.statistics(self.now_ns()))
    }

    /// Its pages.
    pub(super) fn cache(&self) -> &DiskCache {
        &self.cache
    }

    pub(super) fn pool(&self) -> &Arc<FramePool> {
        &self.pool
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.pool.kernel().now_ns()
    }

    /// Does a transfer and waits for its end.
    ///
    /// # Errors
    /// As [`Transfer::submit`] has it, and `EIO`.
    pub(super) fn transfer(
        &self,
        operation: DiskOperation,
        first_sector: u64,
        sector_count: u64,
        memory: Option<PinnedMemory>,
    ) -> Result<()> {
        let queue = self.queue()?;
        if operation.is_write() && self.description.is_read_only {
            return Err(Errno::EROFS);
        }
        let class = self.carrier.class();
        while queue.is_full() {
            // Others have filled the list; each look makes room as the disk goes on.
            preempt::unless_killed()?;
            queue.look(self.now_ns());
        }
        let request = TransferRequest { operation, first_sector, sector_count, memory, class };
        let now_ns = self.now_ns();
        let transfer = Transfer::submit(queue, request, now_ns)?;
        queue.start_awaited(now_ns);
        self.carrier.wait(queue, &transfer)
    }

    /// Has everything that completed on the medium.
    ///
    /// # Errors
    /// `EIO`.
    pub(super) fn flush(&self) -> Result<()> {
        let has_cache = self.queue()?.with_limits(|limits| limits.has_write_cache);
        if has_cache { self.transfer(DiskOperation::Flush, 0, 0, None) } else { Ok(()) }
    }

    /// Writes back what is dirty, and has it on the medium.
    ///
    /// # Errors
    /// `EIO`.
    pub fn sync(&self) -> Result<()> {
        if !self.is_started() {
            return Ok(());
        }
        self.cache.write_back(self)?;
        self.flush()
    }

    pub(super) fn begin_use(&self) {
        self.open_count.fetch_add(1, Ordering::AcqRel);
    }

    /// The last that closes it writes back, as on Linux.
    pub(super) fn end_use(&self) {
        if self.open_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = self.cache.write_back(self);
        }
    }
}

/// The device behind a number.
struct Behind(Arc<DiskDevice>);

impl Device for Behind {
    fn open(&self, request: OpenRequest) -> Result<Arc<dyn OpenFile>> {
        let file: Arc<dyn OpenFile> = DiskFile::open(&self.0, request)?;
        Ok(file)
    }
}

/// All disks of a pod.
#[derive(Default)]
pub struct Disks {
    devices: Vec<Arc<DiskDevice>>,
}

impl Disks {
    /// Those that a run was given.
    #[must_use]
    pub fn new(
        descriptions: impl IntoIterator<Item = DiskDescription>,
        carrier: &Arc<dyn DiskCarrier>,
        pool: &Arc<FramePool>,
    ) -> Arc<Self> {
        let descriptions = descriptions.into_iter().enumerate();
        let devices = descriptions.map(|(index, description)| DiskDevice::new(description, index, carrier, pool));
        Arc::new(Self { devices: devices.collect() })
    }

    /// All, in the order of their numbers.
    #[must_use]
    pub fn all(&self) -> &[Arc<DiskDevice>] {
        &self.devices
    }

    /// What stands behind their numbers.
    pub fn behind(&self) -> impl Iterator<Item = (DeviceNumber, Arc<dyn Device>)> {
        self.devices.iter().map(|device| {
            let behind: Arc<dyn Device> = Arc::new(Behind(device.clone()));
            (device.description.number, behind)
        })
    }

    /// Writes back what is dirty on all of them (`sync`).
    ///
    /// # Errors
    /// The first; the others are still done.
    pub fn sync(&self) -> Result<()> {
        self.devices.iter().map(|device| device.sync()).fold(Ok(()), Result::and)
    }
}

//! The pod's disks: found and started at first use, looked at on the way, and asked for interrupts only when there is
//! nothing else to do.
//!
//! A run without disks, or one that opens none, does not come here but for a look at a count. What was started is in
//! [`DISKS`]; completions are taken in by the thread that waits ([`BlockCarrier`]), by processor 0 when the disks' bell
//! has rung, a timer says so or it goes idle ([`absorb`], [`may_sleep`]), and by whoever meets a lock taken ([`look`]).
//! A thread that waits asks the disk for an interrupt first, whatever else will run here.
//!
//! All disks ring one bell: a processor sleeps on a bounded number of them.
//!
//! Frames of programs are bound for a device grant by grant, when it first uses one of them ([`Window`]), and unbound
//! when the grant goes back to the kernel ([`forget`]).
//!
//! Neighbours: [`exos_linux::host::disk`] is the disk over the driver, [`exos::block`] the request list; `devices`
//! finds functions and gives memory; `idle`, `machine` and `lock_wait` call here.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use aegis_abi::boot::BootInfo;
use aegis_abi::device::DeviceOperation;
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::types::SLOT_FIRST_PROCESSOR;
use aegis_abi::{CapSlot, FrameNumber, Status};
use aegis_hal::block::{BlockDevice, BlockMemory};
use aegis_hal::net::{DmaWindow, Place};
use aegis_hal::{DeviceAddress, DmaRun, Doorbell, Irq};
use aegis_link::config::Config;
use aegis_link::disks::{DISK_COUNT_MAX, DiskFlags};
use aegis_link::drivers::{Drivers, Model, Placement};
use aegis_rt::{call, control};
use aegis_virtio::VirtioError;
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk as VirtioBlock, Limits};
use exos::block::device::DiskCarrier;
use exos::block::disk::{Disk, Watching};
use exos::block::linger::LINGER_NS;
use exos::block::queue::BlockQueue;
use exos::block::request::PriorityClass;
use exos::block::transfer::Transfer;
use exos::error::Result;
use exos::fs::readiness::Waiter;
use exos::mem::pinned::FramePiece;
use exos::platform::FrameGrant;
use exos::sync::{Once, SpinMutex};
use exos::task::schedule::Task;
use exos_linux::host::disk::{DiskDriver, DiskMemory, LibraryDisk};
use exos_linux::host::disk_session::{DiskPlace, SessionDisk};
use exos_linux::host::pooled_disk::PooledDisk;

use super::devices::{BellIrq, Device, DeviceError, DeviceMemory, DeviceTransport, devices};
use super::disk_domain::DiskDomain;
use super::ide_disk::IdeDisk;
use super::machine::Host;
use super::pod::POD;
use super::processor::{self, Bells};
use super::{direct, disk_domain, disk_kernel, disk_pool, fiber, ide_disk, kernel};

const LIMITS: Limits =
    Limits { request_count: 128, segment_count_max: 254, queue_count_max: 1, reset_poll_count_max: 1_000_000 };
/// Looks in a row at what has ended already when it was started; then the timer brings the next.
const LOOK_COUNT_MAX: usize = 8;
/// Pauses of the processor from one look at a disk to the next, and where a look is a call.
const LINGER_PAUSE_COUNT: u32 = 8;
const LINGER_PAUSE_COUNT_OF_CALLS: u32 = 16;
/// Longest sleep of a processor itself, where no thread can wait.
const SLEEP_NS: u64 = 100_000_000;

/// A disk that was started.
struct Open {
    queue: Arc<BlockQueue>,
    /// Takes in an interrupt.
    hear: Box<dyn Fn() + Send + Sync>,
    /// Gives up what of a grant it reaches.
    forget: Box<dyn Fn(CapSlot) + Send + Sync>,
}

static DISKS: [Once<Open>; DISK_COUNT_MAX] = [const { Once::new() }; DISK_COUNT_MAX];
/// One more than the number of the last disk that was started.
static DISK_END: AtomicUsize = AtomicUsize::new(0);
/// The slot of their bell; 0 before.
static BELL: AtomicU32 = AtomicU32::new(0);

fn all() -> impl Iterator<Item = &'static Open> {
    let end = DISK_END.load(Ordering::Acquire).min(DISK_COUNT_MAX);
    DISKS[..end].iter().filter_map(Once::get)
}

/// The disks' bell, once there is one.
pub(crate) fn bell() -> Option<CapSlot> {
    Some(CapSlot(BELL.load(Ordering::Acquire))).filter(|slot| slot.0 != 0)
}

/// Takes in that disks have interrupted, and what they have completed. Called on processor 0.
pub(crate) fn absorb(have_bells_rung: bool) {
    if have_bells_rung && bell().is_some_and(|bell| call::bell_take(bell).unwrap_or(0) > 0) {
        all().for_each(|disk| {
            (disk.hear)();
            disk.queue.note_interrupt();
        });
        look();
        // What that look has started interrupts, too: who waits for it may sleep already.
        all().filter(|disk| disk.queue.is_busy()).for_each(|disk| ask_or_look(&disk.queue));
        return;
    }
    look();
}

/// Has a disk interrupt when it has something, or takes that in now.
fn ask_or_look(queue: &BlockQueue) {
    for _ in 0..LOOK_COUNT_MAX {
        if queue.may_sleep() {
            return;
        }
        queue.look(kernel::now_ns());
    }
}

/// Takes in what disks have completed.
#[inline]
pub(crate) fn look() {
    if DISK_END.load(Ordering::Relaxed) > 0 {
        look_at_all();
    }
}

/// Takes in what disks have completed, for a thread that is about to wait; where nobody else would run here and a disk
/// is fast, for a short time.
#[inline]
pub(crate) fn look_before_wait() {
    if DISK_END.load(Ordering::Relaxed) > 0 {
        look_at_all();
        linger_at_one();
    }
}

/// As [`linger`], at the first disk that has something to do.
#[cold]
fn linger_at_one() {
    let Some(disk) = all().find(|disk| disk.queue.is_busy()) else { return };
    if !is_wanted() && linger(&disk.queue, kernel::now_ns()) {
        disk.queue.look(kernel::now_ns());
    }
}

#[cold]
fn look_at_all() {
    let busy = all().filter(|disk| disk.queue.is_busy());
    busy.for_each(|disk| {
        let now_ns = kernel::now_ns();
        if disk.queue.has_news(now_ns) {
            disk.queue.look(now_ns);
        }
    });
}

/// Asks the busy disks to interrupt, and has time bring a look in any case. False: one has something already, and the
/// processor must not sleep.
pub(crate) fn may_sleep(bells: &Bells) -> bool {
    if DISK_END.load(Ordering::Relaxed) == 0 {
        return true;
    }
    all().filter(|disk| disk.queue.is_busy()).all(|disk| {
        disk.queue.due_ns().into_iter().for_each(|due_ns| bells.arm_timer(due_ns));
        disk.queue.may_sleep()
    })
}

/// When the timer has to ring for disks, if it has to.
pub(crate) fn ring_ns() -> Option<u64> {
    all().filter_map(|disk| disk.queue.due_ns()).min()
}

/// A grant goes back to the kernel: no disk reaches it any more.
pub(crate) fn forget(grant: FrameGrant) {
    all().for_each(|disk| (disk.forget)(grant.slot));
}

/// Frames that were bound for a device.
#[derive(Clone, Copy)]
struct Bound {
    first: u64,
    count: u64,
    slot: CapSlot,
}

/// Frames of programs as one device reaches them.
struct Window {
    device: CapSlot,
    /// By first frame.
    bound: SpinMutex<Vec<Bound>>,
}

impl Window {
    fn new(device: CapSlot) -> Self {
        Self { device, bound: SpinMutex::new(Vec::new()) }
    }

    /// Binds the grant that a frame is in.
    #[cold]
    fn bind(&self, bound: &mut Vec<Bound>, frame: u64) -> bool {
        let Some(slot) = kernel::program_grant_of(FrameNumber(frame)) else { return false };
        let (Ok(first), Ok(count)) = (call::cap_read(slot, 1), call::cap_read(slot, 2)) else { return false };
        if bound.try_reserve(1).is_err() {
            return false;
        }
        // SAFETY: frames of programs, in which no Rust object lies; the device is told only those that a request holds.
        let address = unsafe { call::device_dma_bind(self.device, slot, 0, count) };
        if address.ok() != Some(FrameNumber(first).address()) {
            return false;
        }
        let place = bound.partition_point(|other| other.first < first);
        bound.insert(place, Bound { first, count, slot });
        true
    }

    fn unbind(&self, bound: &Bound) {
        // What was taken by force is not bound any more.
        // SAFETY: no request names these frames any more.
        let _ = unsafe { call::device_dma_unbind(self.device, bound.slot, 0, bound.count) };
    }

    fn forget(&self, slot: CapSlot) {
        let mut bound = self.bound.lock();
        bound.iter().filter(|bound| bound.slot == slot).for_each(|bound| self.unbind(bound));
        bound.retain(|bound| bound.slot != slot);
    }
}

fn find(bound: &[Bound], frame: u64) -> Option<&Bound> {
    let place = bound.partition_point(|other| other.first <= frame).checked_sub(1)?;
    bound.get(place).filter(|bound| frame < bound.first + bound.count)
}

impl DiskMemory for Window {
    fn reach(&self, piece: &FramePiece) -> bool {
        let mut bound = self.bound.lock();
        let bytes = u64::from(piece.offset_bytes) + u64::from(piece.length_bytes);
        let (mut next, end) = (piece.first.0, piece.first.0 + bytes.div_ceil(PAGE_SIZE));
        while next < end {
            match find(&bound, next).copied() {
                Some(found) => next = found.first + found.count,
                None if self.bind(&mut bound, next) => {}
                None => return false,
            }
        }
        true
    }

    fn clear(&self) {
        let bound = core::mem::take(&mut *self.bound.lock());
        bound.iter().for_each(|bound| self.unbind(bound));
    }
}

impl DmaWindow for Window {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        // Where nothing translates, a frame is where it is; what a request names was reached just before.
        Some(DeviceAddress(place.offset))
    }
}

impl BlockMemory for Window {
    fn copy_in(&self, place: Place, from: &[u8]) -> bool {
        for_each_frame(place, |frame, offset, done, count| {
            exos::platform::FrameBytes::write(&direct::DirectView, frame, offset, &from[done..done + count]);
        });
        true
    }

    fn copy_out(&self, place: Place, into: &mut [u8]) -> bool {
        for_each_frame(place, |frame, offset, done, count| {
            exos::platform::FrameBytes::read(&direct::DirectView, frame, offset, &mut into[done..done + count]);
        });
        true
    }
}

/// Calls with each frame of a place, where the bytes begin in it, how many were before, and how many it has.
fn for_each_frame(place: Place, mut act: impl FnMut(FrameNumber, usize, usize, usize)) {
    let (mut done, length) = (0, place.length_bytes as usize);
    while done < length {
        let next = place.offset + done as u64;
        let offset = (next % PAGE_SIZE) as usize;
        let count = (PAGE_SIZE as usize - offset).min(length - done);
        act(FrameNumber(next / PAGE_SIZE), offset, done, count);
        done += count;
    }
}

/// A virtio disk and its interrupt.
struct VirtioDisk {
    /// Large: it must not lie on a thread's stack more often than it has to.
    disk: Box<VirtioBlock<DeviceTransport, DeviceMemory<DmaRun>>>,
    irq: BellIrq,
    device: CapSlot,
}

impl VirtioDisk {
    /// Starts the disk of this number, of those that there are.
    #[inline(never)]
    fn find(info: &BootInfo, number: usize) -> core::result::Result<Self, DeviceError> {
        let mut count = 0;
        for device in devices(info) {
            let Some(transport) = device.open(DEVICE_TYPE_BLOCK)? else { continue };
            if count == number {
                return Self::start(device, transport);
            }
            count += 1;
        }
        Err(DeviceError::NotFound)
    }

    fn start(device: Device, mut transport: DeviceTransport) -> core::result::Result<Self, DeviceError> {
        // What somebody guards reaches no frames of programs.
        let Device::Own(slot) = device else { return Err(DeviceError::NotFound) };
        let memory = device.memory_run(&transport, LIMITS.page_count())?;
        let mut irq = device.interrupt_on(0, shared_bell()?)?;
        irq.start(&mut transport)?;
        Ok(Self { disk: Self::make(transport, memory)?, irq, device: slot })
    }

    #[inline(never)]
    fn make(
        transport: DeviceTransport,
        memory: DeviceMemory<DmaRun>,
    ) -> core::result::Result<Box<VirtioBlock<DeviceTransport, DeviceMemory<DmaRun>>>, VirtioError> {
        VirtioBlock::new(transport, memory, LIMITS).map(Box::new)
    }
}

/// The function of the virtio disk of this number that is this pod's.
fn virtio_function(info: &BootInfo, number: usize) -> Option<CapSlot> {
    match devices(info).filter(|device| device.is_of_type(DEVICE_TYPE_BLOCK)).nth(number) {
        Some(Device::Own(slot)) => Some(slot),
        _ => None,
    }
}

/// The bell of all disks: the one that extents of the pool ring, if there are such.
fn shared_bell() -> core::result::Result<CapSlot, DeviceError> {
    if let Some(bell) = bell() {
        return Ok(bell);
    }
    let bell = match disk_pool::bell() {
        Some(bell) => bell,
        None => {
            let bell = kernel::next_slot();
            call::bell_create(bell, SLOT_FIRST_PROCESSOR)?;
            bell
        }
    };
    BELL.store(bell.0, Ordering::Release);
    Ok(bell)
}

impl DiskDriver for VirtioDisk {
    type Device = VirtioBlock<DeviceTransport, DeviceMemory<DmaRun>>;

    fn device(&mut self) -> &mut Self::Device {
        &mut self.disk
    }

    fn hear(&mut self) -> core::result::Result<bool, VirtioError> {
        self.disk.acknowledge(&mut self.irq)?;
        Ok(true)
    }

    fn cut_off(&mut self) -> bool {
        // A function that was reset has its interrupts held back.
        cut_off(self.device) && self.irq.unmask().is_ok()
    }
}

/// Stops a function at the kernel and lets it work again.
pub(super) fn cut_off(device: CapSlot) -> bool {
    // SAFETY: one that is stopped touches nothing; afterwards it is told only frames that are bound for it.
    let control = |operation| unsafe { call::device_control(device, operation) };
    let stopped = loop {
        match control(DeviceOperation::Reset) {
            Err(refusal) if refusal.status == Status::Again => {}
            outcome => break outcome.is_ok(),
        }
    };
    let stopped = stopped || control(DeviceOperation::Disable).is_ok();
    stopped && control(DeviceOperation::Enable).is_ok()
}

/// What of a disk is not its request list.
struct Started {
    number: usize,
    hear: Box<dyn Fn() + Send + Sync>,
    forget: Box<dyn Fn(CapSlot) + Send + Sync>,
}

/// The block layer's way to disks.
pub(crate) struct BlockCarrier {
    pub(crate) info: BootInfo,
    drivers: Drivers,
    /// Of each disk, whether it is an extent of the pool.
    are_pooled: Vec<bool>,
    pub(crate) host: Arc<Host>,
    pub(crate) bells: Arc<Bells>,
    started: SpinMutex<Vec<Started>>,
}

impl BlockCarrier {
    pub(crate) fn new(info: BootInfo, config: &Config, host: Arc<Host>, bells: Arc<Bells>) -> Self {
        let are_pooled = config.disks.disks.iter().map(|flags| flags.contains(DiskFlags::POOLED)).collect();
        Self { info, drivers: config.drivers, are_pooled, host, bells, started: SpinMutex::new(Vec::new()) }
    }

    /// Whether a disk is an extent of the pool, and its number among those that are like it.
    fn kind_of(&self, number: usize) -> (bool, usize) {
        let is_pooled = self.are_pooled.get(number).copied().unwrap_or(false);
        (is_pooled, self.are_pooled.iter().take(number).filter(|other| **other == is_pooled).count())
    }

    /// A session with a service, which serves it.
    #[inline(never)]
    fn open_place<P: DiskPlace>(&self, place: core::result::Result<P, &'static str>) -> Option<SessionDisk<P>> {
        let host = self.host.clone();
        let log = Box::new(move |line: &str| host.log("warn", line));
        let pause = || {
            let _ = call::yield_to(CapSlot(0));
        };
        let open = |place| SessionDisk::open(place, log, pause).ok_or("its driver does not start");
        place.and_then(open).map_err(|why| self.host.log("warn", &alloc::format!("a disk cannot be used: {why}"))).ok()
    }

    /// An extent of the pool, which is given nothing of programs' memory.
    #[inline(never)]
    fn open_pooled(&self, number: usize, extent: usize) -> Option<Arc<dyn Disk>> {
        let place = match shared_bell() {
            Ok(_) => disk_pool::Extent::find(extent).ok_or("the machine has no pool for it"),
            Err(_) => Err("there is no bell"),
        };
        let disk = Arc::new(PooledDisk::new(self.open_place(place)?));
        let heard = disk.clone();
        self.started.lock().push(Started {
            number,
            hear: Box::new(move || {
                heard.session().hear();
            }),
            forget: Box::new(|_| {}),
        });
        Some(disk)
    }

    /// A disk over a session, with a domain or the kernel.
    #[inline(never)]
    fn open_session<P: DiskPlace + 'static>(
        &self,
        number: usize,
        place: core::result::Result<P, &'static str>,
    ) -> Option<Arc<dyn Disk>> {
        let disk = Arc::new(self.open_place(place)?);
        let (heard, forgetting) = (disk.clone(), disk.clone());
        self.started.lock().push(Started {
            number,
            hear: Box::new(move || {
                heard.hear();
            }),
            forget: Box::new(move |slot| {
                let first = call::cap_read(slot, 1).unwrap_or(u64::MAX);
                forgetting.forget(slot, FrameNumber(first));
            }),
        });
        Some(disk)
    }

    #[inline(never)]
    fn make_domain(&self, number: usize) -> core::result::Result<DiskDomain, &'static str> {
        let slot = match self.drivers.disk.model {
            // It has the whole controller, whose first channel the tool gives a disk.
            Model::Ide => ide_disk::controller(&self.info).filter(|_| number == 0),
            _ => virtio_function(&self.info, number),
        };
        let slot = slot.ok_or("there is none that this pod drives")?;
        let bell = shared_bell().map_err(|_| "there is no bell")?;
        disk_domain::prepare(&self.info, slot, bell, &self.drivers)
            .map_err(|_| "there is no memory for a domain")?
            .ok_or("the boot bundle has no domain")
    }

    #[inline(never)]
    fn find_kernel(&self, number: usize) -> core::result::Result<disk_kernel::Place, &'static str> {
        let bell = shared_bell().map_err(|_| "there is no bell")?;
        disk_kernel::Place::find(&self.info, number, bell).map_err(|status| match status {
            Status::UnknownCall => "the kernel drives no disks",
            _ => "the kernel does not drive it",
        })
    }

    /// Starts a disk of the program's own library OS.
    fn start(&self, number: usize, own: usize) -> core::result::Result<Arc<dyn Disk>, DeviceError> {
        // What is large on the stack is on that of one of the two.
        if self.drivers.disk.model == Model::Ide { self.start_ide(number, own) } else { self.start_virtio(number, own) }
    }

    #[inline(never)]
    fn start_ide(&self, number: usize, own: usize) -> core::result::Result<Arc<dyn Disk>, DeviceError> {
        let driver = IdeDisk::find(&self.info, own, shared_bell()?)?;
        let device = driver.device;
        Ok(self.keep(number, driver, None, device))
    }

    #[inline(never)]
    fn start_virtio(&self, number: usize, own: usize) -> core::result::Result<Arc<dyn Disk>, DeviceError> {
        let driver = VirtioDisk::find(&self.info, own)?;
        let (device, doorbell) = (driver.device, driver.disk.transport().doorbell(0)?);
        Ok(self.keep(number, driver, doorbell, device))
    }

    fn keep<D>(&self, number: usize, driver: D, doorbell: Option<Doorbell>, device: CapSlot) -> Arc<dyn Disk>
    where
        D: DiskDriver + Send + 'static,
        D::Device: BlockDevice,
    {
        let host = self.host.clone();
        let log = Box::new(move |line: &str| host.log("warn", line));
        let disk = Arc::new(LibraryDisk::new(driver, doorbell, Window::new(device), log));
        let (heard, forgetting) = (disk.clone(), disk.clone());
        self.started.lock().push(Started {
            number,
            hear: Box::new(move || {
                heard.hear();
            }),
            forget: Box::new(move |slot| forgetting.memory().forget(slot)),
        });
        disk
    }
}

impl DiskCarrier for BlockCarrier {
    fn open(&self, number: usize) -> Option<Arc<dyn Disk>> {
        let (is_pooled, own) = self.kind_of(number);
        if is_pooled {
            return self.open_pooled(number, own);
        }
        match self.drivers.disk.placement {
            Placement::Library => {}
            Placement::Domain => return self.open_session(number, self.make_domain(own)),
            Placement::Kernel => return self.open_session(number, self.find_kernel(own)),
        }
        match self.start(number, own) {
            Ok(disk) => Some(disk),
            Err(DeviceError::NotFound) => {
                self.host.log("warn", "a disk cannot be used: the machine has no such device");
                None
            }
            Err(error) => {
                self.host.log("warn", &alloc::format!("a disk cannot be used: {error}"));
                None
            }
        }
    }

    fn attach(&self, number: usize, queue: &Arc<BlockQueue>) {
        let started = {
            let mut all = self.started.lock();
            all.iter().position(|started| started.number == number).map(|index| all.swap_remove(index))
        };
        let (Some(Started { hear, forget, .. }), Some(place)) = (started, DISKS.get(number)) else { return };
        place.call_once(|| Open { queue: queue.clone(), hear, forget });
        let bells = self.bells.clone();
        queue.call_at_starts(Box::new(move |queue| see_to(queue, &bells)));
        DISK_END.fetch_max(number + 1, Ordering::AcqRel);
    }

    fn wait(&self, queue: &BlockQueue, transfer: &Transfer) -> Result<()> {
        let task = waiting_task();
        let mut block_count = 0;
        let outcome = loop {
            let now_ns = kernel::now_ns();
            if queue.has_news(now_ns) {
                queue.look(now_ns);
            }
            if let Some(outcome) = transfer.outcome() {
                break outcome;
            }
            if linger(queue, now_ns) {
                continue;
            }
            let waiter = task.clone().map(|task| task as Arc<dyn Waiter>);
            let outcome = waiter.map_or_else(|| transfer.outcome(), |waiter| transfer.await_end(&waiter));
            if let Some(outcome) = outcome {
                break outcome;
            }
            if !queue.may_sleep() {
                continue;
            }
            queue.due_ns().into_iter().for_each(|due_ns| self.bells.arm_timer(due_ns));
            match &task {
                Some(_) => block(),
                None => sleep(),
            }
            block_count += 1;
        };
        if let Some(task) = task.filter(|_| block_count > 1) {
            // One of the wakes may have been for what the caller will wait for: it looks once more then.
            task.wake_up();
        }
        outcome
    }

    fn class(&self) -> PriorityClass {
        let Some(fiber) = fiber::current() else { return PriorityClass::BestEffort };
        exos_linux::call::priority::io_class(&fiber.owner().1)
    }
}

/// Says where a look begins (3), that it has found something (4) or that it was in vain (5), to whoever counts this
/// machine's instructions from outside (`bench/trace/trace.c`): a word in a part of the file that is not loaded.
macro_rules! mark_look {
    ($kind:literal) => {
        // SAFETY: no instruction.
        unsafe {
            core::arch::asm!(
                ".pushsection aegis_marks, \"\", @progbits",
                concat!(".quad 2f, ", $kind),
                ".popsection",
                "2:",
                options(nostack, preserves_flags)
            );
        }
    };
}

/// Looks for a short time whether a disk completes something, where that is worth it and nobody else wants the
/// processor. Whether it has.
fn linger(queue: &BlockQueue, now_ns: u64) -> bool {
    let Some(record) = queue.linger() else { return false };
    let until_ns = now_ns + LINGER_NS;
    let pause_count = match queue.watching() {
        Watching::Costs => LINGER_PAUSE_COUNT_OF_CALLS,
        _ => LINGER_PAUSE_COUNT,
    };
    loop {
        mark_look!("3");
        (0..pause_count).for_each(|_| core::hint::spin_loop());
        if queue.watch() {
            mark_look!("4");
            record.has_paid();
            return true;
        }
        let is_over = kernel::now_ns() >= until_ns;
        if is_over || is_wanted() {
            mark_look!("5");
            if is_over {
                record.was_in_vain();
            }
            return false;
        }
    }
}

/// Whether something else is to be done on this processor: it was told something, or a thread is ready.
fn is_wanted() -> bool {
    control::has_pending() || POD.get().is_some_and(|pod| pod.system.scheduler.has_ready(processor::this_number()))
}

/// Has processor 0 look at what was started elsewhere: it may sleep, and have slept since the disk had nothing. The
/// first completion interrupts it, and it asks for the next before it sleeps again.
fn see_to(queue: &BlockQueue, bells: &Bells) {
    if processor::this_number() == 0 {
        return;
    }
    queue.due_ns().into_iter().for_each(|due_ns| bells.arm_timer(due_ns));
    ask_or_look(queue);
}

/// The thread that runs here, if it may give its processor up.
fn waiting_task() -> Option<Arc<Task>> {
    let is_kept = POD.get().is_none() || processor::this_processor().keeps_running();
    let fiber = fiber::current().filter(|_| !is_kept)?;
    Some(fiber.owner().1.task.clone())
}

/// Blocks the running thread until it is woken.
fn block() {
    let Some(pod) = POD.get() else { return };
    let now_ns = kernel::now_ns();
    fiber::carry_out(pod.system.scheduler.block(processor::this_number(), None, now_ns), now_ns);
}

/// The processor itself sleeps until the disks' bell rings, for a while.
fn sleep() {
    let Some(bell) = bell() else { return };
    let until_ns = kernel::now_ns() + SLEEP_NS;
    let _ = call::sleep(&[processor::bell_term(0, bell), processor::clock_term(until_ns)]);
    absorb(true);
}

//! Finds virtio devices among the device functions, maps them and gives them memory; and the host's console, with its
//! interrupt.
//!
//! The drivers are `aegis-virtio`, safe code that is placed in the program's library OS. A program that is alone in its
//! machine has its devices for itself, with their registers. In a pod of several somebody guards them
//! (`aegis_virtio::guard`): there are calls instead of registers, and a window of memory instead of any.

use aegis_abi::CapSlot;
use aegis_abi::boot::BootInfo;
use aegis_abi::device::{DeviceField, DeviceKind, DeviceOperation};
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_FIRST_PROCESSOR, SLOT_SELF, Status};
use aegis_e1000::E1000Error;
use aegis_hal::{
    DeviceAddress, Dma, DmaBuffer, DmaError, DmaPool, DmaRegion, DmaRun, Irq, IrqError, MmioRegion, PAGE_BYTES,
};
use aegis_ide::IdeError;
use aegis_link::pods::{GUARDED_SLOT_BELL, GUARDED_SLOT_COUNT, GUARDED_SLOT_USED, SLOT_GUARDED_FIRST, SLOT_POD_GUARD};
use aegis_rt::call;
use aegis_rt::gate::{MESSAGE_WORD_COUNT, gate_call};
use aegis_virtio::console::{Console, DEVICE_TYPE_CONSOLE, Limits, PortId};
use aegis_virtio::guard::{Answer, GUARDED_QUEUE_COUNT_MAX, Geometry, Guard, GuardedTransport, Request};
use aegis_virtio::{
    AnyTransport, ConfigSpace, Function, FunctionKind, PciWindow, Transport, VirtioError, device_type, open,
};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use exos_linux::host::ports::Port;

use super::{DEVICE_BASE, direct, kernel};

/// Pages for the console's rings and buffers.
const DMA_PAGE_COUNT: usize = 160;
/// Address space for one region of a device function.
const REGION_STRIDE: u64 = 16 << 20;
/// Such places of each function.
const REGION_COUNT_MAX: u64 = 8;
/// Most functions that a pod has guarded.
const GUARDED_COUNT_MAX: u32 = 32;
/// From one poll of the console to the next, where it has not interrupted meanwhile: it does so for all that it
/// receives, and whoever waits for room asks for that.
const POLL_EVERY_NS: u64 = 1_000_000;
/// Looks at the device before a start counts as failed; QEMU answers from another thread.
const START_POLL_COUNT_MAX: u32 = 50_000_000;

/// Why there is no console.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceError {
    /// No device function is a virtio console.
    NotFound,
    /// The kernel refused something.
    Refused(call::Refusal),
    /// Memory for its rings could not be had.
    Memory,
    /// The driver could not start it.
    Driver(VirtioError),
    /// Its driver is elsewhere, and does not start.
    Service,
    /// The boot bundle has no domain for it.
    NoDomain,
    /// The kernel does not drive it.
    NotInKernel,
    /// The same, of a card that is not virtio.
    Card(E1000Error),
    /// The same, of a disk that is not.
    Disk(IdeError),
}

impl core::fmt::Display for DeviceError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotFound => formatter.write_str("no device function is a virtio console with the host's four ports"),
            Self::Refused(refusal) => write!(formatter, "the kernel refused it: {refusal:?}"),
            Self::Service => formatter.write_str("its driver does not start"),
            Self::NoDomain => formatter.write_str("the boot bundle has no domain for it"),
            Self::NotInKernel => formatter.write_str("the kernel does not drive it"),
            Self::Memory => formatter.write_str("no memory for its rings"),
            Self::Driver(error) => write!(formatter, "its driver could not start: {error:?}"),
            Self::Card(error) => write!(formatter, "its driver could not start: {error:?}"),
            Self::Disk(error) => write!(formatter, "its driver could not start: {error:?}"),
        }
    }
}

impl From<VirtioError> for DeviceError {
    fn from(error: VirtioError) -> Self {
        Self::Driver(error)
    }
}

impl From<E1000Error> for DeviceError {
    fn from(error: E1000Error) -> Self {
        Self::Card(error)
    }
}

impl From<IdeError> for DeviceError {
    fn from(error: IdeError) -> Self {
        Self::Disk(error)
    }
}

impl From<call::Refusal> for DeviceError {
    fn from(refusal: call::Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The way to the guard, from a pod that has one.
pub(crate) struct PodGuard;

impl Guard for PodGuard {
    fn call(&self, request: Request) -> Option<Answer> {
        let mut message = [0; MESSAGE_WORD_COUNT];
        message[..request.len()].copy_from_slice(&request);
        gate_call(SLOT_POD_GUARD, &mut message).ok()?;
        let [outcome, first, second, ..] = message;
        Some([outcome, first, second])
    }
}

/// The transport of a device, whichever bus it is on, or a guard's.
pub(crate) type DeviceTransport = AnyTransport<MmioRegion, PodGuard>;

/// A device function that is ours to drive, or that somebody guards for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// Ours: its capability.
    Own(CapSlot),
    /// Guarded: its number.
    Guarded(u32),
}

/// All that there are.
pub(crate) fn devices(info: &BootInfo) -> impl Iterator<Item = Device> {
    let is_guarded = call::cap_read(SLOT_POD_GUARD, 0).is_ok();
    let own = (0..info.device_count).map(|index| Device::Own(CapSlot(SLOT_DEVICE_FIRST.0 + index)));
    let guarded = (0..GUARDED_COUNT_MAX).map(Device::Guarded).take(if is_guarded { usize::MAX } else { 0 });
    own.chain(guarded.take_while(|device| device.is_there()))
}

impl Device {
    fn is_there(self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Guarded(number) => GuardedTransport::open(PodGuard, u64::from(number)).is_some(),
        }
    }

    /// Slot `offset` of a guarded function.
    fn guarded_slot(number: u32, offset: u32) -> CapSlot {
        CapSlot(SLOT_GUARDED_FIRST.0 + number * GUARDED_SLOT_COUNT + offset)
    }

    /// Where its regions are in our window.
    fn base(self) -> u64 {
        let place = match self {
            Self::Own(slot) => slot.0 - SLOT_DEVICE_FIRST.0,
            Self::Guarded(number) => number,
        };
        DEVICE_BASE + u64::from(place) * REGION_COUNT_MAX * REGION_STRIDE
    }

    /// Whether it is a virtio device of this type that is ours.
    pub(crate) fn is_of_type(self, wanted_type: u32) -> bool {
        let Self::Own(slot) = self else { return false };
        device_type(&Own { slot, base: self.base() }).is_ok_and(|found| found == Some(wanted_type))
    }

    /// Whether it is a PCI function of ours whose vendor and device `is_wanted` knows.
    pub(crate) fn is_pci(self, is_wanted: impl FnOnce(u16, u16) -> bool) -> bool {
        let Self::Own(slot) = self else { return false };
        let kind = Own { slot, base: self.base() }.kind();
        matches!(kind, Ok(FunctionKind::Pci { vendor, device }) if is_wanted(vendor, device))
    }

    /// Its transport, if it is a virtio device of this type.
    pub(crate) fn open(self, wanted_type: u32) -> Result<Option<DeviceTransport>, DeviceError> {
        match self {
            Self::Own(slot) => {
                let function = Own { slot, base: self.base() };
                if device_type(&function)? != Some(wanted_type) {
                    return Ok(None);
                }
                open(&function)
            }
            Self::Guarded(number) => {
                let transport = GuardedTransport::open(PodGuard, u64::from(number));
                let is_wanted = |transport: &GuardedTransport<_>| transport.device_type() == Ok(wanted_type);
                Ok(transport.filter(is_wanted).map(AnyTransport::Guarded))
            }
        }
    }

    /// The first region of a PCI function whose vendor and device `model_of` knows, and what it is. It may reach memory
    /// once `quiet` has had the registers: the owner before may have left it at work.
    ///
    /// Nobody guards functions that are not virtio, so it is one of ours or none.
    pub(crate) fn open_pci<M, E>(
        self,
        model_of: impl FnOnce(u16, u16) -> Option<M>,
        quiet: impl FnOnce(&mut MmioRegion) -> Result<(), E>,
    ) -> Result<Option<(M, MmioRegion)>, DeviceError>
    where
        DeviceError: From<E>,
    {
        let Self::Own(slot) = self else { return Ok(None) };
        let function = Own { slot, base: self.base() };
        let FunctionKind::Pci { vendor, device } = function.kind()? else { return Ok(None) };
        let Some(model) = model_of(vendor, device) else { return Ok(None) };
        let mut registers = function.map(0, None)?;
        quiet(&mut registers)?;
        function.enable()?;
        Ok(Some((model, registers)))
    }

    /// Memory in one piece for a function of our own.
    pub(crate) fn own_memory_run(self, page_count: usize) -> Result<DeviceMemory<DmaRun>, DeviceError> {
        let Self::Own(slot) = self else { return Err(DeviceError::Memory) };
        Ok(DeviceMemory { pages: DmaRun::new(own_region(slot, page_count)?), rings: None })
    }

    /// The bell that its interrupt rings, with an upcall on the first processor.
    pub(crate) fn interrupt(self) -> Result<BellIrq, DeviceError> {
        match self {
            Self::Own(_) => {
                let bell = kernel::next_slot();
                call::bell_create(bell, SLOT_FIRST_PROCESSOR)?;
                self.interrupt_on(0, bell)
            }
            Self::Guarded(number) => Ok(BellIrq {
                device: self,
                interrupt: 0,
                bell: Self::guarded_slot(number, GUARDED_SLOT_BELL),
                count: 0,
            }),
        }
    }

    /// One of its interrupts with a bell that there is, which others may ring too. A guarded device has its own.
    pub(crate) fn interrupt_on(self, interrupt: u32, bell: CapSlot) -> Result<BellIrq, DeviceError> {
        let Self::Own(slot) = self else { return self.interrupt() };
        call::device_interrupt_bind(slot, interrupt, bell)?;
        Ok(BellIrq { device: self, interrupt, bell, count: 0 })
    }

    /// Lets a function of our own reach what is bound for it.
    pub(crate) fn enable(self) -> Result<(), DeviceError> {
        let Self::Own(slot) = self else { return Err(DeviceError::NotFound) };
        Own { slot, base: self.base() }.enable()
    }

    /// Memory that it reaches, for rings and buffers, as single pages.
    pub(crate) fn memory<const PAGE_COUNT: usize>(
        self,
        transport: &DeviceTransport,
    ) -> Result<DeviceMemory<DmaPool<PAGE_COUNT>>, DeviceError> {
        let (region, rings) = self.region(transport, PAGE_COUNT)?;
        let mut pages = DmaPool::new();
        pages.donate(region).map_err(|_| DeviceError::Memory)?;
        Ok(DeviceMemory { pages, rings })
    }

    /// The same in one piece, for a driver that takes long pieces and keeps them.
    pub(crate) fn memory_run(
        self,
        transport: &DeviceTransport,
        page_count: usize,
    ) -> Result<DeviceMemory<DmaRun>, DeviceError> {
        let (region, rings) = self.region(transport, page_count)?;
        Ok(DeviceMemory { pages: DmaRun::new(region), rings })
    }

    /// Memory that it reaches: as much as is asked for, or what its guard gives.
    fn region(self, transport: &DeviceTransport, page_count: usize) -> Result<(DmaRegion, Option<Rings>), DeviceError> {
        match (self, transport) {
            (Self::Guarded(number), AnyTransport::Guarded(transport)) => {
                self.window(number, transport.geometry()).map(|(region, rings)| (region, Some(rings)))
            }
            (Self::Own(slot), _) => Ok((own_region(slot, page_count)?, None)),
            (Self::Guarded(_), _) => Err(DeviceError::Memory),
        }
    }

    /// Shows a guarded function's window, and its rings, each page of which is followed by that of its used ring.
    fn window(self, number: u32, geometry: Geometry) -> Result<(DmaRegion, Rings), DeviceError> {
        let (slot, used_slot) = (Self::guarded_slot(number, 0), Self::guarded_slot(number, GUARDED_SLOT_USED));
        let (first, used) = (call::cap_read(slot, 1)?, call::cap_read(used_slot, 1)?);
        let page_count = geometry.window_page_count;
        let base = self.base();
        let rings = Rings { base: base + REGION_STRIDE, geometry };
        if geometry.queue_count > GUARDED_QUEUE_COUNT_MAX || page_count as u64 > REGION_STRIDE / PAGE_SIZE {
            return Err(DeviceError::Memory);
        }
        let mut entries =
            [BindEntry::map(base, first, page_count as u32, slot, BindFlags::WRITE); 1 + 2 * GUARDED_QUEUE_COUNT_MAX];
        for queue in 0..geometry.queue_count {
            let address = rings.address(queue);
            let ring = first + (page_count + queue) as u64;
            entries[1 + 2 * queue] = BindEntry::map(address, ring, 1, slot, BindFlags::WRITE);
            let used = used + queue as u64;
            entries[2 + 2 * queue] = BindEntry::map(address + PAGE_SIZE, used, 1, used_slot, BindFlags::empty());
        }
        // SAFETY: this part of the window is the function's alone.
        unsafe { kernel::bind_all(SLOT_SELF, &entries[..1 + 2 * geometry.queue_count]) }
            .map_err(|_| DeviceError::Memory)?;
        let place = NonNull::new(base as *mut u8).ok_or(DeviceError::Memory)?;
        // SAFETY: just mapped for good, and used for nothing but this function; the device is told places in it by the
        // guard.
        let region = unsafe { DmaRegion::new(place, page_count * PAGE_BYTES, DeviceAddress(0)) };
        Ok((region.ok_or(DeviceError::Memory)?, rings))
    }
}

/// Where a guarded function's rings are.
pub(crate) struct Rings {
    base: u64,
    geometry: Geometry,
}

impl Rings {
    fn address(&self, queue: usize) -> u64 {
        self.base + 2 * queue as u64 * PAGE_SIZE
    }
}

/// Memory that a function reaches: pages for buffers, and where they have a place of their own, rings.
pub(crate) struct DeviceMemory<P> {
    pages: P,
    rings: Option<Rings>,
}

impl<P: Dma<Buffer = DmaRegion>> Dma for DeviceMemory<P> {
    type Buffer = DmaRegion;

    fn allocate(&mut self, page_count: usize) -> Result<DmaRegion, DmaError> {
        self.pages.allocate(page_count)
    }

    fn allocate_rings(&mut self, queue: u16, page_count: usize) -> Result<DmaRegion, DmaError> {
        let Some(rings) = &self.rings else { return self.pages.allocate(page_count) };
        let index = usize::from(queue);
        if index >= rings.geometry.queue_count || page_count != 2 {
            return Err(DmaError::PageCount);
        }
        let place = NonNull::new(rings.address(index) as *mut u8).ok_or(DmaError::Exhausted)?;
        let device_address = DeviceAddress(rings.geometry.ring_address(index));
        // SAFETY: mapped by `Device::window`, for good; a queue is set up once. Of the second page the driver knows
        // that it can only be read.
        unsafe { DmaRegion::new(place, 2 * PAGE_BYTES, device_address) }.ok_or(DmaError::Exhausted)
    }

    fn has_guarded_rings(&self) -> bool {
        self.rings.is_some()
    }

    fn release(&mut self, buffer: DmaRegion) {
        let window_bytes = |rings: &Rings| (rings.geometry.window_page_count * PAGE_BYTES) as u64;
        // A guarded queue's rings stay where they are.
        if self.rings.as_ref().is_none_or(|rings| buffer.device_address().0 < window_bytes(rings)) {
            self.pages.release(buffer);
        }
    }
}

/// A function of our own.
struct Own {
    slot: CapSlot,
    base: u64,
}

impl ConfigSpace for Own {
    fn read_u32(&self, offset: u8) -> u32 {
        call::device_read(self.slot, DeviceField::Config, u32::from(offset)).map_or(u32::MAX, |value| value as u32)
    }
}

impl Function for Own {
    type Registers = MmioRegion;
    type Error = DeviceError;

    fn kind(&self) -> Result<FunctionKind, DeviceError> {
        let read = |field| call::device_read(self.slot, field, 0);
        let kind = match read(DeviceField::Kind) {
            // The kernel's extension drives it.
            Err(refusal) if refusal.status == Status::MissingRight => return Ok(FunctionKind::Other),
            kind => kind?,
        };
        let identity = read(DeviceField::Identity)?;
        Ok(if kind == DeviceKind::VirtioMmio as u64 {
            FunctionKind::Mmio { device_type: identity as u32 }
        } else if kind == DeviceKind::Pci as u64 {
            FunctionKind::Pci { vendor: identity as u16, device: (identity >> 16) as u16 }
        } else {
            FunctionKind::Other
        })
    }

    fn enable(&self) -> Result<(), DeviceError> {
        // SAFETY: the function is told only frames that are bound for it.
        unsafe { call::device_control(self.slot, DeviceOperation::Enable) }?;
        Ok(())
    }

    fn map(&self, region: u32, window: Option<PciWindow>) -> Result<MmioRegion, DeviceError> {
        let offset = call::device_read(self.slot, DeviceField::RegionOffset, region)?;
        let length = call::device_read(self.slot, DeviceField::RegionLength, region)?;
        let address = self.base + u64::from(region) * REGION_STRIDE;
        // SAFETY: each region has its own place in the device part of the window. Mapping it again is the same mapping.
        unsafe { call::device_map(self.slot, region, address) }?;
        let place = NonNull::new((address + offset) as *mut u8).ok_or(DeviceError::NotFound)?;
        // SAFETY: just mapped uncached, for good; no Rust object lives there; DMA is told only addresses of DMA
        // buffers.
        let registers = unsafe { MmioRegion::new(place, length as usize) };
        match window {
            None => Ok(registers),
            Some(window) => registers
                .window(window.offset as usize, window.length_bytes as usize)
                .map_err(|_| DeviceError::NotFound),
        }
    }
}

/// A device's interrupt: a bell.
pub(crate) struct BellIrq {
    device: Device,
    interrupt: u32,
    bell: CapSlot,
    count: u64,
}

impl BellIrq {
    /// The bell.
    pub(crate) fn bell(&self) -> CapSlot {
        self.bell
    }

    /// Lets the first interrupt through.
    pub(crate) fn start(&mut self, transport: &mut DeviceTransport) -> Result<(), DeviceError> {
        if let Device::Guarded(_) = self.device {
            transport.acknowledge_interrupt()?;
        }
        self.unmask().map_err(|_| DeviceError::NotFound)
    }

    /// Takes what was rung since the last look.
    pub(crate) fn take(&mut self) -> u64 {
        let rung = call::bell_take(self.bell).unwrap_or(0);
        self.count = self.count.wrapping_add(rung);
        rung
    }
}

impl Irq for BellIrq {
    fn count(&self) -> u64 {
        self.count
    }
    fn unmask(&mut self) -> Result<(), IrqError> {
        match self.device {
            Device::Own(slot) => {
                call::device_interrupt_ask(slot, self.interrupt).map(|_| ()).map_err(|_| IrqError::Revoked)
            }
            // The guard asks as it lowers the cause.
            Device::Guarded(_) => Ok(()),
        }
    }
}

/// The console's bell may have rung since its driver looked.
static MAY_HAVE_RUNG: AtomicBool = AtomicBool::new(true);

/// Bells have rung, perhaps the console's.
pub(crate) fn note_bells() {
    MAY_HAVE_RUNG.store(true, Ordering::Relaxed);
}

/// The console and its interrupt.
pub(crate) struct HostConsole {
    console: Console<DeviceTransport, DeviceMemory<DmaPool<DMA_PAGE_COUNT>>>,
    irq: BellIrq,
    ports: [PortId; 4],
    /// The port for sessions, once it was looked for; a machine need not have one.
    sessions: Option<PortId>,
    has_failed: bool,
    /// It has interrupted since it was polled.
    has_rung: bool,
    polled_ns: u64,
}

impl HostConsole {
    /// Finds and starts it; the bell makes upcalls on the first processor.
    pub(crate) fn find(info: &BootInfo) -> Result<Self, DeviceError> {
        for device in devices(info) {
            if let Some(transport) = device.open(DEVICE_TYPE_CONSOLE)? {
                return Self::start(device, transport);
            }
        }
        Err(DeviceError::NotFound)
    }

    fn start(device: Device, mut transport: DeviceTransport) -> Result<Self, DeviceError> {
        let limits = Limits { port_count_max: 6, receive_buffer_count: 4, ..Limits::default() };
        let dma = device.memory::<DMA_PAGE_COUNT>(&transport)?;
        let mut irq = device.interrupt()?;
        irq.start(&mut transport)?;
        let mut console = Console::new(transport, dma, limits).map_err(DeviceError::Driver)?;
        let names: [&[u8]; 4] = [b"aegis.stdin", b"aegis.stdout", b"aegis.stderr", b"aegis.control"];
        console.wait_for_ports(&names, START_POLL_COUNT_MAX).map_err(DeviceError::Driver)?;
        let mut ports = [PortId::new(0); 4];
        for (port, name) in ports.iter_mut().zip(names) {
            *port = console.port_by_name(name).ok_or(DeviceError::NotFound)?;
        }
        console.start_receiving(ports[3]).map_err(DeviceError::Driver)?;
        Ok(Self { console, irq, ports, sessions: None, has_failed: false, has_rung: true, polled_ns: 0 })
    }

    /// Takes in that its bell has rung.
    fn hear(&mut self) {
        if MAY_HAVE_RUNG.swap(false, Ordering::Relaxed) {
            self.has_rung |= self.irq.take() > 0;
        }
    }

    fn port(&mut self, port: Port) -> Option<PortId> {
        if let Some(port) = self.ports.get(port as usize) {
            return Some(*port);
        }
        self.sessions = self.sessions.or_else(|| self.console.port_by_name(b"aegis.sessions"));
        self.sessions
    }

    /// A value of the driver, or `otherwise` from a console that has failed, from then on always.
    fn attempt<T>(&mut self, otherwise: T, action: impl FnOnce(&mut Self) -> Result<T, VirtioError>) -> T {
        if self.has_failed {
            return otherwise;
        }
        match action(self) {
            Ok(value) => value,
            Err(VirtioError::HostClosed) => otherwise,
            Err(_) => {
                self.has_failed = true;
                otherwise
            }
        }
    }
}

impl exos_linux::host::ports::Console for HostConsole {
    fn poll(&mut self) -> bool {
        self.hear();
        let has_rung = core::mem::take(&mut self.has_rung);
        self.attempt(true, |this| {
            let events = if has_rung { this.console.on_interrupt(&mut this.irq)? } else { this.console.poll()? };
            Ok(has_rung || !events.is_empty())
        })
    }
    fn may_have_news(&mut self) -> bool {
        self.hear();
        let now_ns = kernel::now_ns();
        let is_due = self.has_rung || now_ns.wrapping_sub(self.polled_ns) >= POLL_EVERY_NS;
        if is_due {
            self.polled_ns = now_ns;
        }
        is_due
    }
    fn read(&mut self, port: Port, into: &mut [u8]) -> usize {
        let Some(port) = self.port(port) else { return 0 };
        let count = self.attempt(0, |this| this.console.read(port, into));
        if count > 0 {
            super::shares::note_input();
        }
        count
    }
    fn readable_bytes(&mut self, port: Port) -> usize {
        let Some(port) = self.port(port) else { return 0 };
        let count = self.attempt(0, |this| {
            this.console.start_receiving(port)?;
            this.console.readable_bytes(port)
        });
        if count > 0 {
            super::shares::note_input();
        }
        count
    }
    fn write(&mut self, port: Port, from: &[u8]) -> usize {
        let Some(port) = self.port(port) else { return 0 };
        self.attempt(0, |this| this.console.write(port, from))
    }
    fn pending_bytes(&mut self, port: Port) -> usize {
        let Some(port) = self.port(port) else { return 0 };
        self.attempt(0, |this| this.console.arm_tx(port))
    }
    fn is_gone(&mut self, _: Port) -> bool {
        // A host that closes its end says so through the tool; only a broken device is the end of everything.
        self.has_failed
    }
}

/// Frames that a function of our own may reach.
fn own_region(device: CapSlot, page_count: usize) -> Result<DmaRegion, DeviceError> {
    let grant = kernel::take_frames(page_count as u64, 0).map_err(|_| DeviceError::Memory)?;
    direct::show(grant, true).map_err(|_| DeviceError::Memory)?;
    // SAFETY: the frames are new, shown in the direct view, and used for nothing but this function.
    let address = unsafe { call::device_dma_bind(device, grant.slot, 0, grant.count) }?;
    let base = NonNull::new(direct::address_of(grant.first) as *mut u8).ok_or(DeviceError::Memory)?;
    // SAFETY: as above; bound for the device at `address`, contiguous, for good.
    let region = unsafe { DmaRegion::new(base, page_count * PAGE_BYTES, DeviceAddress(address)) };
    region.ok_or(DeviceError::Memory)
}

//! Finds virtio devices among the device functions, maps them and gives them memory; and the host's console, with its
//! interrupt.
//!
//! The driver itself is `aegis-virtio`, safe code that would run the same in a domain of its own; here it is placed
//! in the program's library OS.

use aegis_abi::CapSlot;
use aegis_abi::boot::BootInfo;
use aegis_abi::device::{DeviceField, DeviceKind, DeviceOperation};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_FIRST_PROCESSOR};
use aegis_hal::{DeviceAddress, DmaPool, DmaRegion, Irq, IrqError, MmioRegion};
use aegis_rt::call;
use aegis_virtio::console::{Console, DEVICE_TYPE_CONSOLE, Limits, PortId};
use aegis_virtio::{
    ConfigSpace, InterruptCause, MmioTransport, PciInterrupt, PciTransport, PciWindow, PciWindows, QueueAddresses,
    Transport, VirtioError, find_layout, modern_or_transitional_type,
};
use core::ptr::NonNull;
use exos_linux::host::Port;

use super::{DEVICE_BASE, direct, kernel};

/// Pages for rings and buffers.
const DMA_PAGE_COUNT: usize = 160;
/// Address space for one region of a device function.
const REGION_STRIDE: u64 = 16 << 20;
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
}

impl core::fmt::Display for DeviceError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotFound => formatter.write_str("no device function is a virtio console with the host's four ports"),
            Self::Refused(refusal) => write!(formatter, "the kernel refused it: {refusal:?}"),
            Self::Memory => formatter.write_str("no memory for its rings"),
            Self::Driver(error) => write!(formatter, "its driver could not start: {error:?}"),
        }
    }
}

impl From<call::Refusal> for DeviceError {
    fn from(refusal: call::Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The transport of whichever bus the console is on.
#[allow(clippy::large_enum_variant, reason = "there is one, in the console, for the whole run")]
pub(crate) enum AnyTransport {
    Mmio(MmioTransport<MmioRegion>),
    Pci(PciTransport<MmioRegion>),
}

macro_rules! delegate {
    ($self:ident, $transport:ident => $call:expr) => {
        match $self {
            AnyTransport::Mmio($transport) => $call,
            AnyTransport::Pci($transport) => $call,
        }
    };
}

impl Transport for AnyTransport {
    fn device_type(&self) -> Result<u32, VirtioError> {
        delegate!(self, transport => transport.device_type())
    }
    fn status(&self) -> Result<u8, VirtioError> {
        delegate!(self, transport => transport.status())
    }
    fn set_status(&mut self, status: u8) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.set_status(status))
    }
    fn device_features(&mut self) -> Result<u64, VirtioError> {
        delegate!(self, transport => transport.device_features())
    }
    fn set_driver_features(&mut self, features: u64) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.set_driver_features(features))
    }
    fn queue_size_max(&mut self, queue: u16) -> Result<u16, VirtioError> {
        delegate!(self, transport => transport.queue_size_max(queue))
    }
    fn enable_queue(&mut self, queue: u16, size: u16, addresses: QueueAddresses) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.enable_queue(queue, size, addresses))
    }
    fn notify(&mut self, queue: u16) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.notify(queue))
    }
    fn acknowledge_interrupt(&mut self) -> Result<InterruptCause, VirtioError> {
        delegate!(self, transport => transport.acknowledge_interrupt())
    }
    fn config_u32(&self, offset: usize) -> Result<u32, VirtioError> {
        delegate!(self, transport => transport.config_u32(offset))
    }
}

/// Configuration space through the kernel.
struct Config(CapSlot);

impl ConfigSpace for Config {
    fn read_u32(&self, offset: u8) -> u32 {
        call::device_read(self.0, DeviceField::Config, u32::from(offset)).map_or(u32::MAX, |value| value as u32)
    }
}

/// The console's interrupt: a bell.
pub(crate) struct BellIrq {
    device: CapSlot,
    bell: CapSlot,
    count: u64,
}

impl BellIrq {
    /// The interrupt of `device` that was bound to `bell`.
    pub(crate) fn new(device: CapSlot, bell: CapSlot) -> Self {
        Self { device, bell, count: 0 }
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
        call::device_interrupt_ask(self.device, 0).map(|_| ()).map_err(|_| IrqError::Revoked)
    }
}

/// The console and its interrupt.
pub(crate) struct HostConsole {
    console: Console<AnyTransport, DmaPool<DMA_PAGE_COUNT>>,
    irq: BellIrq,
    ports: [PortId; 4],
    /// The port for sessions, once it was looked for; a machine need not have one.
    sessions: Option<PortId>,
    has_failed: bool,
}

impl HostConsole {
    /// Finds and starts it; the bell makes upcalls on the first processor.
    pub(crate) fn find(info: &BootInfo) -> Result<Self, DeviceError> {
        for index in 0..info.device_count {
            let device = CapSlot(SLOT_DEVICE_FIRST.0 + index);
            if let Some(transport) = open(device, DEVICE_TYPE_CONSOLE)? {
                return Self::start(device, transport);
            }
        }
        Err(DeviceError::NotFound)
    }

    fn start(device: CapSlot, transport: AnyTransport) -> Result<Self, DeviceError> {
        // SAFETY: the function reaches only the frames that are bound for it below.
        unsafe { call::device_control(device, DeviceOperation::Enable) }?;
        let limits = Limits { port_count_max: 6, receive_buffer_count: 4, ..Limits::default() };
        let dma = dma_pool::<DMA_PAGE_COUNT>(device)?;
        let bell = kernel::next_slot();
        call::bell_create(bell, SLOT_FIRST_PROCESSOR)?;
        call::device_interrupt_bind(device, 0, bell)?;
        let mut console = Console::new(transport, dma, limits).map_err(DeviceError::Driver)?;
        let names: [&[u8]; 4] = [b"aegis.stdin", b"aegis.stdout", b"aegis.stderr", b"aegis.control"];
        console.wait_for_ports(&names, START_POLL_COUNT_MAX).map_err(DeviceError::Driver)?;
        let mut ports = [PortId::new(0); 4];
        for (port, name) in ports.iter_mut().zip(names) {
            *port = console.port_by_name(name).ok_or(DeviceError::NotFound)?;
        }
        console.start_receiving(ports[3]).map_err(DeviceError::Driver)?;
        let mut irq = BellIrq::new(device, bell);
        irq.unmask().map_err(|_| DeviceError::NotFound)?;
        Ok(Self { console, irq, ports, sessions: None, has_failed: false })
    }

    /// The bell that rings when the console wants attention.
    pub(crate) fn bell(&self) -> CapSlot {
        self.irq.bell
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

impl exos_linux::host::Console for HostConsole {
    fn poll(&mut self) -> bool {
        let rung = self.irq.take();
        self.attempt(true, |this| {
            let events = if rung > 0 { this.console.on_interrupt(&mut this.irq)? } else { this.console.poll()? };
            Ok(rung > 0 || !events.is_empty())
        })
    }
    fn read(&mut self, port: Port, into: &mut [u8]) -> usize {
        let Some(port) = self.port(port) else { return 0 };
        self.attempt(0, |this| this.console.read(port, into))
    }
    fn readable_bytes(&mut self, port: Port) -> usize {
        let Some(port) = self.port(port) else { return 0 };
        self.attempt(0, |this| {
            this.console.start_receiving(port)?;
            this.console.readable_bytes(port)
        })
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

/// The transport of `device`, if it is a virtio device of this type.
pub(crate) fn open(device: CapSlot, wanted_type: u32) -> Result<Option<AnyTransport>, DeviceError> {
    let kind = call::device_read(device, DeviceField::Kind, 0)?;
    let identity = call::device_read(device, DeviceField::Identity, 0)?;
    if kind == DeviceKind::VirtioMmio as u64 && identity == u64::from(wanted_type) {
        let region = map_region(device, 0)?;
        return MmioTransport::new(region).map(|t| Some(AnyTransport::Mmio(t))).map_err(DeviceError::Driver);
    }
    if kind != DeviceKind::Pci as u64 {
        return Ok(None);
    }
    let config = Config(device);
    let subsystem = config.read_u32(0x2c) >> 16;
    let device_type = modern_or_transitional_type(identity as u16, (identity >> 16) as u16, subsystem as u16);
    if device_type != Some(wanted_type) {
        return Ok(None);
    }
    // SAFETY: nothing is bound for the function yet; it can reach no memory.
    unsafe { call::device_control(device, DeviceOperation::Enable) }?;
    let layout = find_layout(&config).map_err(DeviceError::Driver)?;
    let windows = PciWindows {
        common: map_window(device, layout.common)?,
        notify: map_window(device, layout.notify)?,
        isr: map_window(device, layout.isr)?,
        device: map_window(device, layout.device)?,
    };
    let transport =
        PciTransport::new(windows, layout.notify_off_multiplier, wanted_type, interrupt_of(device, &config));
    Ok(Some(AnyTransport::Pci(transport)))
}

/// The kernel routes MSI-X where a function has it, else the line.
fn interrupt_of(device: CapSlot, config: &Config) -> PciInterrupt {
    let mut pointer = (config.read_u32(0x34) & 0xfc) as u8;
    for _ in 0..48 {
        if pointer == 0 {
            break;
        }
        let header = config.read_u32(pointer);
        if header & 0xff == 0x11 && header >> 31 == 1 {
            return PciInterrupt::Message { vector: 0 };
        }
        pointer = (header >> 8 & 0xfc) as u8;
    }
    let _ = device;
    PciInterrupt::Line
}

/// Maps region `index` of a device function at its place in the window.
fn map_region(device: CapSlot, index: u32) -> Result<MmioRegion, DeviceError> {
    let offset = call::device_read(device, DeviceField::RegionOffset, index)?;
    let length = call::device_read(device, DeviceField::RegionLength, index)?;
    let place = u64::from(device.0 - SLOT_DEVICE_FIRST.0) * 8 + u64::from(index);
    let address = DEVICE_BASE + place * REGION_STRIDE;
    // SAFETY: each region has its own place in the device part of the window. Mapping it again is the same mapping.
    unsafe { call::device_map(device, index, address) }?;
    let base = NonNull::new((address + offset) as *mut u8).ok_or(DeviceError::NotFound)?;
    // SAFETY: just mapped uncached, for good; no Rust object lives there; DMA is told only addresses of DMA buffers.
    Ok(unsafe { MmioRegion::new(base, length as usize) })
}

/// Maps a window of a base address register.
fn map_window(device: CapSlot, window: PciWindow) -> Result<MmioRegion, DeviceError> {
    map_region(device, u32::from(window.bar))?
        .window(window.offset as usize, window.length_bytes as usize)
        .map_err(|_| DeviceError::NotFound)
}

/// Frames that the function may reach, as a pool.
pub(crate) fn dma_pool<const PAGE_COUNT: usize>(device: CapSlot) -> Result<DmaPool<PAGE_COUNT>, DeviceError> {
    let grant = kernel::take_frames(PAGE_COUNT as u64, 0).map_err(|_| DeviceError::Memory)?;
    direct::show(grant, true).map_err(|_| DeviceError::Memory)?;
    // SAFETY: the frames are new, shown in the direct view, and used for nothing but this pool.
    let address = unsafe { call::device_dma_bind(device, grant.slot, 0, grant.count) }?;
    let base = NonNull::new(direct::address_of(grant.first) as *mut u8).ok_or(DeviceError::Memory)?;
    // SAFETY: as above; bound for the device at `address`, contiguous, for good.
    let region = unsafe { DmaRegion::new(base, PAGE_COUNT * 4096, DeviceAddress(address)) };
    let mut pool = DmaPool::new();
    pool.donate(region.ok_or(DeviceError::Memory)?).map_err(|_| DeviceError::Memory)?;
    Ok(pool)
}

//! The core's `Machine` over the real one: physical words, translation caches, device functions and their interrupts.
//!
//! Neighbours: `aegis_kernel_core::machine` says what is wanted, `aegis_machine` does it. What is decided here: which
//! processors hold translations of a root, and how an interrupt vector names a device function.

use aegis_abi::FrameNumber;
use aegis_abi::layout::PAGE_SIZE;
use aegis_kernel_core::id::{CpuId, DeviceId, EnvironmentId, Id, ProcessorId};
use aegis_kernel_core::{Extension, Holders, Machine, Pages, State, StopReport};
use aegis_machine as machine;
use aegis_pci::{self as pci, Bar, ConfigAccess, Function, FunctionAddress, Reset};
use machine::{ContextPlaces, DEVICE_VECTOR_FIRST, DEVICE_VECTOR_LAST, Flush, PROCESSOR_COUNT_MAX, PciPorts};

/// The core on this machine.
pub(crate) type Kernel = State<'static, Hardware>;

/// Most interrupt routes: one vector each.
const ROUTE_COUNT_MAX: usize = (DEVICE_VECTOR_LAST - DEVICE_VECTOR_FIRST) as usize + 1;
/// Register of a virtio block that resets the device when 0 is written (Virtio 1.2, 4.2.2).
const VIRTIO_STATUS_REGISTER: u64 = 0x70;
/// Reads of the command register after bus mastering was switched off, which flush writes that are on the way.
const STOP_READ_COUNT: u32 = 4;

/// How an interrupt of a device function reaches us. Zero bits are no line, so that the tables cost no image bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    /// No line.
    None,
    /// A line of an I/O interrupt controller, for one function alone: held back at the controller.
    Gsi {
        gsi: u32,
        /// Level-triggered, else edge.
        is_level: bool,
    },
    /// The same for PCI functions, any number of them: each is held back by its own command register, so that none
    /// waits for another.
    Intx(u32),
    /// The function's one message, by its capability.
    Msi(u16),
    /// An entry of the function's MSI-X table.
    MsiX(u16),
}

impl Line {
    fn gsi(self) -> Option<u32> {
        match self {
            Self::Gsi { gsi, .. } | Self::Intx(gsi) => Some(gsi),
            _ => None,
        }
    }
}

/// An interrupt of a device function, found by its vector.
#[derive(Clone, Copy, Debug)]
struct Route {
    device: Option<DeviceId>,
    interrupt: usize,
    line: Line,
    /// The physical processor that takes it.
    cpu: usize,
    /// The source that is next on the same line; 0 at the last.
    next: usize,
}

impl Route {
    const NONE: Self = Self { device: None, interrupt: 0, line: Line::None, cpu: 0, next: 0 };
}

/// What stands behind a device function. Zero bits are nothing.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "one table of fixed size: there is no heap to put a variant on")]
pub(crate) enum Backend {
    /// No interrupt.
    None,
    /// A PCI function.
    Pci(Function, Reset),
    /// A virtio register block at this physical address.
    VirtioMmio(u64),
}

/// The machine.
pub struct Hardware {
    /// What the kernel is extended by.
    pub(crate) extension: Option<&'static dyn Extension<Self>>,
    routes: [Route; ROUTE_COUNT_MAX],
    route_count: usize,
    backends: [Backend; DeviceId::COUNT],
    /// The root that each processor has loaded, by index; 0 is the kernel's.
    roots: [u64; PROCESSOR_COUNT_MAX],
    /// Whose root that is.
    environments: [Option<EnvironmentId>; PROCESSOR_COUNT_MAX],
    /// What is at hand of each virtual processor.
    places: [ContextPlaces; ProcessorId::COUNT],
}

impl Hardware {
    /// A machine without device functions; all zero bits.
    pub(crate) const fn new() -> Self {
        Self {
            extension: None,
            routes: [Route::NONE; ROUTE_COUNT_MAX],
            route_count: 0,
            backends: [Backend::None; DeviceId::COUNT],
            roots: [0; PROCESSOR_COUNT_MAX],
            environments: [None; PROCESSOR_COUNT_MAX],
            places: [ContextPlaces::NONE; ProcessorId::COUNT],
        }
    }

    /// What is at hand of a virtual processor.
    pub(crate) fn places(&self, processor: ProcessorId) -> &ContextPlaces {
        &self.places[processor.index()]
    }

    /// Loads a root on this processor, unless it is there, and remembers whose it is; `None` is the kernel's own.
    #[inline(always)]
    pub(crate) fn activate(&mut self, cpu: CpuId, root: Option<(FrameNumber, Option<EnvironmentId>)>) {
        let cpu = cpu.index();
        self.environments[cpu] = root.and_then(|(_, environment)| environment);
        match root {
            Some((root, _)) => self.load_root(cpu, root),
            None => {
                self.roots[cpu] = 0;
                machine::activate_kernel_root();
            }
        }
    }

    #[inline(always)]
    fn load_root(&mut self, cpu: usize, root: FrameNumber) {
        if self.roots[cpu] != root.0 {
            self.roots[cpu] = root.0;
            machine::activate_root(root);
        }
    }

    /// Says what stands behind a device function.
    pub(crate) fn set_backend(&mut self, device: DeviceId, backend: Backend) {
        self.backends[device.index()] = backend;
    }

    /// The source of an interrupt that came by this vector.
    pub(crate) fn source_of(vector: u8) -> usize {
        usize::from(vector.wrapping_sub(DEVICE_VECTOR_FIRST)) + 1
    }

    /// Whether a line is free, or all its functions can share it.
    pub(crate) fn has_room_on(&self, line: Line) -> bool {
        let is_other = |route: &Route| route.line.gsi().is_some() && route.line.gsi() == line.gsi();
        let is_shared = |line| matches!(line, Line::Intx(_));
        self.routes.iter().all(|route| !is_other(route) || is_shared(line) && is_shared(route.line))
    }

    /// Gives an interrupt of a device function a vector, that of its line if others have it, masked. One for which none
    /// is left never comes.
    pub(crate) fn add_route(&mut self, device: DeviceId, interrupt: usize, line: Line) {
        let place = self.route_count;
        let Some(route) = self.routes.get_mut(place) else { return };
        *route = Route { device: Some(device), interrupt, line, cpu: 0, next: 0 };
        self.route_count += 1;
        let gsi = line.gsi();
        let mut before = self.routes[..place].iter_mut().rev();
        if let Some(before) = before.find(|route| gsi.is_some() && route.line.gsi() == gsi) {
            before.next = place + 1;
        }
        self.program(place);
    }

    /// Sends a route's interrupt to its processor, masked.
    fn program(&mut self, place: usize) {
        let Route { device: Some(device), line, cpu, .. } = self.routes[place] else { return };
        let first = line.gsi().and_then(|gsi| self.routes.iter().position(|route| route.line.gsi() == Some(gsi)));
        let vector = DEVICE_VECTOR_FIRST + first.unwrap_or(place) as u8;
        match (line, self.pci_function(device)) {
            // QEMU's virtio blocks and PCI links are level-triggered, active high.
            (Line::Gsi { gsi, is_level }, _) => machine::line_route(gsi, vector, is_level, false, cpu),
            (Line::Intx(gsi), Some(function)) => {
                PciPorts.change_command(function.address, pci::COMMAND_INTX_DISABLE, true);
                machine::line_route(gsi, vector, true, false, cpu);
                machine::line_mask(gsi, false);
            }
            (Line::Msi(capability), Some(function)) => machine::msi_route(function.address, capability, vector, cpu),
            (Line::MsiX(index), Some(function)) => machine::msi_x_route(&function, index, vector, cpu),
            _ => {}
        }
    }

    fn pci_function(&self, device: DeviceId) -> Option<Function> {
        let Backend::Pci(function, _) = self.backends[device.index()] else { return None };
        Some(function)
    }

    fn place_of(&self, device: DeviceId, interrupt: usize) -> Option<usize> {
        self.routes.iter().position(|route| route.device == Some(device) && route.interrupt == interrupt)
    }

    // Its loop is one turn nearly always, and is not to be unrolled into its callers.
    #[inline(never)]
    fn flush(&self, holders: Holders, flush: Flush) {
        let holds = |cpu: &usize| match holders {
            Holders::Root(root) => self.roots[*cpu] == root.0,
            Holders::Environment(environment) => self.environments[*cpu] == Some(environment),
        };
        let mask = (0..machine::processor_count()).filter(holds).fold(0, |mask, cpu| mask | 1 << cpu);
        if mask != 0 {
            machine::shootdown(mask, flush);
        }
    }
}

impl Machine for Hardware {
    fn extension(&self) -> Option<&'static dyn Extension<Self>> {
        self.extension
    }

    #[inline(always)]
    fn words<const COUNT: usize>(&self, frame: FrameNumber) -> impl Fn(usize) -> [u64; COUNT] {
        machine::physical_words(frame)
    }

    fn find_word(&self, frame: FrameNumber, from: usize, wanted: impl Fn(u64) -> bool) -> Option<(usize, u64)> {
        machine::physical_find_word(frame, from, wanted)
    }

    #[inline(always)]
    fn store_words<const COUNT: usize>(&mut self, frame: FrameNumber, word_index: usize, values: [u64; COUNT]) {
        machine::physical_store_words(frame, word_index, values);
    }

    fn compare_exchange(&mut self, frame: FrameNumber, word_index: usize, old: u64, new: u64) -> Result<(), u64> {
        machine::physical_compare_exchange(frame, word_index, old, new)
    }

    fn set_gs_base(&mut self, address: u64) {
        let loaded = machine::user_bases();
        machine::set_user_bases(machine::UserBases { gs: address, ..loaded }, loaded);
    }

    fn zero_frame(&mut self, frame: FrameNumber) {
        machine::physical_zero(frame);
    }

    fn vector_init(&mut self, frame: FrameNumber) {
        machine::vector_initialize(frame);
    }

    fn context_made(&mut self, processor: ProcessorId, pages: &Pages, vector_state: FrameNumber) {
        let length_bytes = pages.save_area_frame_count * PAGE_SIZE;
        self.places[processor.index()] =
            ContextPlaces::new(vector_state, pages.control(), pages.save_area_base, length_bytes);
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        machine::now_ns()
    }

    fn flush_pages(&mut self, holders: Holders, virtual_address: u64, page_count: u64) {
        self.flush(holders, Flush::Pages { address: virtual_address, page_count });
    }

    fn flush_all(&mut self, holders: Holders) {
        self.flush(holders, Flush::All);
    }

    #[inline(always)]
    fn enter_root(&mut self, root: FrameNumber) {
        self.load_root(machine::processor_index(), root);
    }

    fn kick(&mut self, cpu: CpuId) {
        machine::send_reschedule(cpu.index());
    }

    fn port_read(&mut self, port: u16, width_bytes: u32) -> u32 {
        machine::port_read(port, width_bytes)
    }

    fn port_write(&mut self, port: u16, width_bytes: u32, value: u32) {
        machine::port_write(port, width_bytes, value);
    }

    fn config_read(&mut self, location: u32, offset: u32) -> u32 {
        PciPorts.read(FunctionAddress(location as u16), offset as u16)
    }

    fn device_enable(&mut self, device: DeviceId, enable: bool) {
        match self.backends[device.index()] {
            Backend::Pci(function, _) => pci_enable(&function, enable),
            // A block has no switch of its own; a device that is reset reaches no memory until a driver sets it up
            // again.
            Backend::VirtioMmio(address) if !enable => {
                machine::device_register_write(address + VIRTIO_STATUS_REGISTER, 0);
            }
            _ => {}
        }
    }

    fn device_reset(&mut self, device: DeviceId) -> bool {
        if let Backend::Pci(function, reset) = &mut self.backends[device.index()] {
            if reset.is_at_its_begin() {
                stop_transfers(function);
            }
            if !reset.step(&PciPorts, function.address, machine::now_ns()) {
                return false;
            }
        }
        self.device_enable(device, false);
        // What a reset function knew of its messages is gone.
        for place in 0..self.route_count {
            if self.routes[place].device == Some(device) {
                self.program(place);
            }
        }
        true
    }

    fn interrupt_route(&mut self, device: DeviceId, interrupt: usize, cpu: CpuId) -> bool {
        let is_there = cpu.index() < machine::processor_count();
        if let Some(place) = self.place_of(device, interrupt).filter(|_| is_there) {
            self.routes[place].cpu = cpu.index();
            self.program(place);
        }
        is_there
    }

    fn interrupt_mask(&mut self, device: DeviceId, interrupt: usize, is_masked: bool) {
        let Some(place) = self.place_of(device, interrupt) else { return };
        match (self.routes[place].line, self.pci_function(device)) {
            (Line::Gsi { gsi, .. }, _) => machine::line_mask(gsi, is_masked),
            (Line::Intx(_), Some(function)) => {
                PciPorts.change_command(function.address, pci::COMMAND_INTX_DISABLE, is_masked);
            }
            (Line::Msi(capability), Some(function)) => {
                pci::set_msi_enabled(&PciPorts, function.address, capability, !is_masked);
            }
            (Line::MsiX(index), Some(function)) => machine::msi_x_mask(&function, index, is_masked),
            _ => {}
        }
    }

    fn next_raised(&mut self, mut source: usize) -> Option<(DeviceId, usize, usize)> {
        loop {
            let route = *self.routes.get(source.checked_sub(1)?)?;
            let device = route.device?;
            match (route.line, self.pci_function(device)) {
                (Line::Intx(_), Some(function)) if !pci::raises_intx(&PciPorts, function.address) => {}
                _ => return Some((device, route.interrupt, route.next)),
            }
            source = route.next;
        }
    }

    fn log(&mut self, bytes: &[u8]) -> usize {
        machine::log_bytes(bytes)
    }

    fn power_off(&mut self, code: u32) {
        // The code is for the reader of the log; the machine's own exit code says only that it went down by itself.
        if code != 0 {
            machine::log!(Error, "powered off with code {code}");
        }
        machine::power_off(machine::ExitCode::Clean)
    }

    fn first_environment_stopped(&mut self, report: StopReport) {
        let StopReport { reason, vector, address, rip } = report;
        let place = format_args!("vector {vector}, address {address:#x}, at {rip:#x}");
        machine::log!(Error, "the first environment was stopped: {reason:?}, {place}");
        machine::power_off(machine::ExitCode::FirstEnvironmentStopped)
    }
}

/// Ends what a disk controller transfers, by the standard means of its class: QEMU goes on with a transfer that it has
/// begun, bus master or not.
fn stop_transfers(function: &Function) {
    match (function.class >> 8, function.bars[4], function.bars[5]) {
        // PCI IDE Controller 1.0: the start bits of both channels.
        (pci::CLASS_IDE, Bar::Ports { port, .. }, _) => {
            machine::port_write(port, 1, 0);
            machine::port_write(port + 8, 1, 0);
        }
        // AHCI 1.3.1, 3.1.2: global control, reset.
        (pci::CLASS_AHCI, _, Bar::Memory { address, .. }) => machine::device_register_write(address + 4, 1 << 31 | 1),
        _ => {}
    }
}

/// Switches decoding and bus mastering of a function on, or bus mastering off, waiting for what is on the way.
fn pci_enable(function: &Function, enable: bool) {
    let on = pci::COMMAND_IO | pci::COMMAND_MEMORY | pci::COMMAND_BUS_MASTER;
    PciPorts.change_command(function.address, if enable { on } else { pci::COMMAND_BUS_MASTER }, enable);
    for _ in 0..STOP_READ_COUNT {
        PciPorts.read_command(function.address);
    }
    if function.msi_x.is_some() {
        pci::set_msi_x_enabled(&PciPorts, function, enable);
    }
}

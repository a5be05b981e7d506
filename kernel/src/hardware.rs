//! The core's `Machine` over the real one: physical words, translation caches, device functions and their interrupts.
//!
//! Neighbours: `aegis_kernel_core::machine` says what is wanted, `aegis_machine` does it. What is decided here: which
//! processors hold translations of a root, and how an interrupt vector names a device function.

use aegis_abi::FrameNumber;
use aegis_abi::layout::PAGE_SIZE;
use aegis_kernel_core::id::{CpuId, DeviceId, EnvironmentId, Id, ProcessorId};
use aegis_kernel_core::machine::{Holders, Machine, PortWidth, StopReport};
use aegis_kernel_core::processor::Pages;
use aegis_machine as machine;
use machine::pci::{self, Function, FunctionAddress};
use machine::{ContextPlaces, DEVICE_VECTOR_FIRST, DEVICE_VECTOR_LAST, Flush, PROCESSOR_COUNT_MAX, PciPorts};

/// Most interrupt routes: one vector each.
const ROUTE_COUNT_MAX: usize = (DEVICE_VECTOR_LAST - DEVICE_VECTOR_FIRST) as usize + 1;
/// Most PCI functions that are kept.
pub(crate) const FUNCTION_COUNT_MAX: usize = 48;
/// Register of a virtio block that resets the device when 0 is written (Virtio 1.2, 4.2.2).
const VIRTIO_STATUS_REGISTER: u64 = 0x70;
/// Reads of the command register after bus mastering was switched off, which flush writes that are on the way.
const STOP_READ_COUNT: u32 = 4;

/// How an interrupt of a device function reaches us. Zero bits are no line, so that the tables cost no image bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    /// No line.
    None,
    /// A line of an I/O interrupt controller.
    Gsi(u32),
    /// An entry of the function's MSI-X table.
    Message(u16),
}

/// An interrupt of a device function, found by its vector.
#[derive(Clone, Copy, Debug)]
struct Route {
    device: Option<DeviceId>,
    interrupt: usize,
    line: Line,
}

impl Route {
    const NONE: Self = Self { device: None, interrupt: 0, line: Line::None };
}

/// What stands behind a device function. Zero bits are nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    /// Nothing.
    None,
    /// A PCI function: index in `functions`.
    Pci(usize),
    /// A virtio register block at this physical address.
    VirtioMmio(u64),
}

/// The machine.
pub(crate) struct Hardware {
    routes: [Route; ROUTE_COUNT_MAX],
    route_count: usize,
    backends: [Backend; DeviceId::COUNT],
    functions: [Function; FUNCTION_COUNT_MAX],
    function_count: usize,
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
            routes: [Route::NONE; ROUTE_COUNT_MAX],
            route_count: 0,
            backends: [Backend::None; DeviceId::COUNT],
            functions: [Function::NONE; FUNCTION_COUNT_MAX],
            function_count: 0,
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

    /// Keeps a PCI function; its index, or `None` if there are too many.
    pub(crate) fn add_function(&mut self, function: Function) -> Option<usize> {
        let index = self.function_count;
        *self.functions.get_mut(index)? = function;
        self.function_count += 1;
        Some(index)
    }

    /// A kept function.
    pub(crate) fn function(&self, index: usize) -> Option<Function> {
        self.functions[..self.function_count].get(index).copied()
    }

    /// Says what stands behind a device function.
    pub(crate) fn set_backend(&mut self, device: DeviceId, backend: Backend) {
        self.backends[device.index()] = backend;
    }

    /// Gives an interrupt of a device function a vector, masked. False if none is left or the line does not exist.
    pub(crate) fn add_route(&mut self, device: DeviceId, interrupt: usize, line: Line) -> bool {
        if self.route_count == ROUTE_COUNT_MAX {
            return false;
        }
        let vector = DEVICE_VECTOR_FIRST + self.route_count as u8;
        let is_routed = match line {
            Line::None => false,
            // QEMU's virtio blocks and PCI links are level-triggered, active high.
            Line::Gsi(gsi) => machine::line_route(gsi, vector, true, false),
            Line::Message(index) => {
                self.pci_function(device).is_some_and(|function| machine::msi_x_route(&function, index, vector))
            }
        };
        if is_routed {
            self.routes[self.route_count] = Route { device: Some(device), interrupt, line };
            self.route_count += 1;
        }
        is_routed
    }

    /// Lets a function decode its memory, without letting it reach any.
    pub(crate) fn decode_memory(&mut self, function: &Function) {
        use machine::pci::ConfigAccess;
        let before = PciPorts.read_command(function.address);
        PciPorts.write_command(function.address, before & !pci::COMMAND_BUS_MASTER | pci::COMMAND_MEMORY);
    }

    /// Which interrupt of which device function a vector is.
    pub(crate) fn device_of(&self, vector: u8) -> Option<(DeviceId, usize)> {
        let route = self.routes.get(usize::from(vector.checked_sub(DEVICE_VECTOR_FIRST)?))?;
        Some((route.device?, route.interrupt))
    }

    fn pci_function(&self, device: DeviceId) -> Option<Function> {
        match self.backends[device.index()] {
            Backend::Pci(index) => self.function(index),
            _ => None,
        }
    }

    fn line_of(&self, device: DeviceId, interrupt: usize) -> Line {
        let is_it = |route: &&Route| route.device == Some(device) && route.interrupt == interrupt;
        self.routes.iter().find(is_it).map_or(Line::None, |route| route.line)
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
    #[inline(always)]
    fn load(&self, frame: FrameNumber, word_index: usize) -> u64 {
        machine::physical_load(frame, word_index)
    }

    #[inline(always)]
    fn store(&mut self, frame: FrameNumber, word_index: usize, value: u64) {
        machine::physical_store(frame, word_index, value);
    }

    fn find_word(&self, frame: FrameNumber, word_index: usize) -> Option<(usize, u64)> {
        machine::physical_find_word(frame, word_index)
    }

    #[inline(always)]
    fn load_words<const COUNT: usize>(&self, frame: FrameNumber, word_index: usize) -> [u64; COUNT] {
        machine::physical_load_words(frame, word_index)
    }

    #[inline(always)]
    fn store_words<const COUNT: usize>(&mut self, frame: FrameNumber, word_index: usize, values: [u64; COUNT]) {
        machine::physical_store_words(frame, word_index, values);
    }

    fn compare_exchange(&mut self, frame: FrameNumber, word_index: usize, old: u64, new: u64) -> Result<(), u64> {
        machine::physical_compare_exchange(frame, word_index, old, new)
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

    fn enter_root(&mut self, root: FrameNumber) {
        self.load_root(machine::processor_index(), root);
    }

    fn kick(&mut self, cpu: CpuId) {
        machine::send_reschedule(cpu.index());
    }

    fn port_read(&mut self, port: u16, width: PortWidth) -> u32 {
        match width {
            PortWidth::Byte => u32::from(machine::port_read_u8(port)),
            PortWidth::Word => u32::from(machine::port_read_u16(port)),
            PortWidth::Long => machine::port_read_u32(port),
        }
    }

    fn port_write(&mut self, port: u16, width: PortWidth, value: u32) {
        match width {
            PortWidth::Byte => machine::port_write_u8(port, value as u8),
            PortWidth::Word => machine::port_write_u16(port, value as u16),
            PortWidth::Long => machine::port_write_u32(port, value),
        }
    }

    fn config_read(&mut self, location: u32, offset: u32) -> u32 {
        use machine::pci::ConfigAccess;
        PciPorts.read(FunctionAddress(location as u16), offset as u16)
    }

    fn device_enable(&mut self, device: DeviceId, enable: bool) {
        match self.backends[device.index()] {
            Backend::Pci(index) => {
                if let Some(function) = self.function(index) {
                    pci_enable(&function, enable);
                }
            }
            // A block has no switch of its own; a device that is reset reaches no memory until a driver sets it up
            // again.
            Backend::VirtioMmio(address) if !enable => {
                machine::device_register_write(address + VIRTIO_STATUS_REGISTER, 0);
            }
            _ => {}
        }
    }

    fn interrupt_mask(&mut self, device: DeviceId, interrupt: usize, is_masked: bool) {
        match (self.line_of(device, interrupt), is_masked) {
            (Line::Gsi(gsi), true) => machine::line_mask(gsi),
            (Line::Gsi(gsi), false) => machine::line_unmask(gsi),
            (Line::Message(index), _) => {
                if let Some(function) = self.pci_function(device) {
                    machine::msi_x_mask(&function, index, is_masked);
                }
            }
            (Line::None, _) => {}
        }
    }

    fn log(&mut self, bytes: &[u8]) -> usize {
        machine::log_bytes(bytes)
    }

    fn power_off(&mut self, code: u32) {
        // The code is for whoever reads the log; the machine's own exit code says only that it went down by itself.
        if code != 0 {
            machine::log!(Error, "powered off with code {code}");
        }
        machine::power_off(machine::ExitCode::Clean)
    }

    fn first_environment_stopped(&mut self, report: StopReport) {
        machine::log!(
            Error,
            "the first environment was stopped: {:?}, vector {}, address {:#x}, at {:#x}",
            report.reason,
            report.vector,
            report.address,
            report.rip
        );
        machine::power_off(machine::ExitCode::FirstEnvironmentStopped)
    }
}

/// Switches decoding and bus mastering of a function on, or bus mastering off, waiting for what is on the way.
fn pci_enable(function: &Function, enable: bool) {
    use machine::pci::ConfigAccess;
    let before = PciPorts.read_command(function.address);
    let on = pci::COMMAND_IO | pci::COMMAND_MEMORY | pci::COMMAND_BUS_MASTER;
    let mut after = if enable { before | on } else { before & !pci::COMMAND_BUS_MASTER };
    if function.msi_x.is_some() {
        after |= pci::COMMAND_INTX_DISABLE;
    }
    PciPorts.write_command(function.address, after);
    for _ in 0..STOP_READ_COUNT {
        PciPorts.read_command(function.address);
    }
    if function.msi_x.is_some() {
        pci::set_msi_x_enabled(&PciPorts, function, enable);
    }
}

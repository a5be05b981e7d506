//! Set-up shared by the console tests: a device model with the four ports of the host tool, behind
//! virtio-mmio.
#![allow(dead_code, reason = "each test file uses its part")]

use aegis_hal::fake::{FakeBus, FakeDma, FakeMmio};
use aegis_virtio::MmioTransport;
use aegis_virtio::console::{Console, Limits, PortId};
use aegis_virtio::fake::{FakeSerial, HostPort, MmioModel, SharedSerial, mmio};

pub(crate) type TestConsole = Console<MmioTransport<FakeMmio<MmioModel>>, FakeDma>;

pub(crate) const NAMES: [&str; 4] = ["aegis.stdin", "aegis.stdout", "aegis.stderr", "aegis.control"];

pub(crate) struct World {
    pub bus: FakeBus,
    pub device: SharedSerial,
}

impl World {
    /// A machine that started with ports 1 to 4 and 512 pages.
    pub(crate) fn new() -> Self {
        let ports = (1..).zip(NAMES).map(|(number, name)| HostPort::named(number, name)).collect();
        Self::with_ports(5, ports)
    }

    pub(crate) fn with_ports(port_count_max: u32, ports: Vec<HostPort>) -> Self {
        let bus = FakeBus::new(512);
        let device = FakeSerial::new(&bus, port_count_max, ports);
        Self { bus, device }
    }

    pub(crate) fn console(&self) -> TestConsole {
        self.console_with(Limits::default())
    }

    pub(crate) fn console_with(&self, limits: Limits) -> TestConsole {
        let transport = MmioTransport::new(mmio(&self.device)).expect("a modern device");
        Console::new(transport, self.bus.dma(), limits).expect("an honest device")
    }

    /// A console that knows its ports.
    pub(crate) fn ready_console(&self) -> TestConsole {
        let mut console = self.console();
        let names = NAMES.map(str::as_bytes);
        console.wait_for_ports(&names, 10).expect("an immediate device");
        console
    }

    /// Nobody broke a rule.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.device.borrow().driver_faults, []);
        assert_eq!(self.bus.violations(), []);
    }
}

pub(crate) const STDIN: PortId = PortId::new(1);
pub(crate) const STDOUT: PortId = PortId::new(2);
pub(crate) const STDERR: PortId = PortId::new(3);

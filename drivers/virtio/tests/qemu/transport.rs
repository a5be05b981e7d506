//! Where QEMU's machines have a virtio device: the slots of microvm, and a function of q35 whose windows the test
//! places as firmware would.

use aegis_hal::qtest::{Machine, MachineMmio, PciConfig};
use aegis_virtio::{
    ConfigSpace, MmioTransport, PciInterrupt, PciTransport, PciWindow, PciWindows, Transport, find_layout,
};

/// First virtio-mmio slot of QEMU's microvm and the distance to the next.
const MICROVM_SLOTS: (u64, u64) = (0xfeb0_0000, 0x200);
/// Slots there are.
const MICROVM_SLOT_COUNT: u64 = 24;
/// Where the function's windows are put.
const PCI_WINDOW: u64 = 0xe000_0000;
/// The device number that the tests give their function.
pub(crate) const PCI_DEVICE: u8 = 4;

/// Configuration space of a virtio function.
struct Config(PciConfig);

impl ConfigSpace for Config {
    fn read_u32(&self, offset: u8) -> u32 {
        self.0.read_u32(offset)
    }
}

/// The device of that type in one of microvm's slots.
pub(crate) fn of_microvm(machine: &Machine, device_type: u32) -> impl Transport + use<> {
    (0..MICROVM_SLOT_COUNT)
        .map(|slot| machine.mmio(MICROVM_SLOTS.0 + slot * MICROVM_SLOTS.1, 0x200))
        .map(|registers| MmioTransport::new(registers).expect("a modern slot"))
        .find(|transport| transport.device_type() == Ok(device_type))
        .expect("the device is in one of the slots")
}

/// The device of that type in q35's function [`PCI_DEVICE`].
pub(crate) fn of_q35(machine: &Machine, device_type: u32) -> impl Transport + use<> {
    let config = Config(machine.pci_config(PCI_DEVICE, 0));
    // Identifiers of modern functions count from there (Virtio 1.2, 4.1.2).
    assert_eq!(config.0.identifier(), (0x1af4, 0x1040 + device_type as u16));
    let layout = find_layout(&config).expect("complete");
    for window in [layout.common, layout.notify, layout.isr, layout.device] {
        assert_eq!(window.bar, layout.common.bar);
    }
    config.0.enable_wide(layout.common.bar, PCI_WINDOW);
    let window = |window: PciWindow| -> MachineMmio {
        machine.mmio(PCI_WINDOW + u64::from(window.offset), window.length_bytes as usize)
    };
    let windows = PciWindows {
        common: window(layout.common),
        notify: window(layout.notify),
        isr: window(layout.isr),
        device: window(layout.device),
    };
    PciTransport::new(windows, layout.notify_off_multiplier, device_type, PciInterrupt::Line)
}

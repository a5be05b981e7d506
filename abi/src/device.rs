//! Device functions as the kernel shows them: fields of [`crate::call::DeviceRead`] and what they mean.

/// Most memory or port regions of a device function.
pub const DEVICE_REGION_COUNT_MAX: usize = 6;
/// Most interrupts of a device function that the kernel routes.
pub const DEVICE_INTERRUPT_COUNT_MAX: usize = 8;

/// What kind of function it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceKind {
    /// A PCI function: identity is device id << 16 | vendor id.
    Pci = 1,
    /// A virtio-mmio register block: identity is the virtio device id.
    VirtioMmio = 2,
    /// A legacy function at fixed ports: identity is the first port.
    Ports = 3,
}

numbered! {
    /// A readable property of a device function.
    pub enum DeviceField {
        /// [`DeviceKind`].
        Kind = 0,
        /// See [`DeviceKind`].
        Identity = 1,
        /// PCI: bus << 8 | device << 3 | function. Virtio-mmio: slot index.
        Location = 2,
        /// Regions in use.
        RegionCount = 3,
        /// Interrupts that can be bound.
        InterruptCount = 4,
        /// PCI class << 16 | subclass << 8 | interface.
        Class = 5,
        /// Region `index`: byte offset of the region's first byte in its first page (virtio-mmio blocks share pages).
        RegionOffset = 6,
        /// Region `index`: length in bytes; 0 for a hole (its number is kept, as PCI's BAR number).
        RegionLength = 7,
        /// Region `index`: 0 memory, 1 ports.
        RegionIsPorts = 8,
        /// PCI configuration space, 32-bit word at byte offset `index` (0..256, multiple of 4).
        Config = 9,
        /// 1 if an IOMMU confines the function's DMA, else 0.
        DmaConfined = 10,
    }
}

numbered! {
    /// A change to a device function.
    pub enum DeviceOperation {
        /// Let the function reach memory (PCI bus mastering) and decode its regions.
        Enable = 0,
        /// Stop the function reaching memory and mask its interrupts.
        Disable = 1,
        /// Stop the function and reset it, where it can be reset: `Again` until it is at rest.
        Reset = 2,
    }
}

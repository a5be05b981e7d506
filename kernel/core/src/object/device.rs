//! Device functions as data: what the glue found, where interrupts go, what a function may reach. What happens to them
//! is in `device.rs` above.

use aegis_abi::device::{DEVICE_INTERRUPT_COUNT_MAX, DEVICE_REGION_COUNT_MAX, DeviceKind};
use aegis_abi::layout::PAGE_SHIFT;
use aegis_abi::types::Rights;

use super::capability::CapRef;
use crate::id::{BellId, DEVICE_COUNT_MAX, DeviceId, EnvironmentId, Id, Named};

/// A memory or port region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Port numbers instead of memory.
    pub is_ports: bool,
    /// Physical address or first port.
    pub base: u64,
    /// 0 for a hole.
    pub length_bytes: u64,
    /// First page of the region, counted from the page of `base`, that is never mapped (MSI-X
    /// tables decide where interrupts go).
    pub reserved_page_first: u32,
    /// Such pages; 0 for none.
    pub reserved_page_count: u32,
}

impl Region {
    /// No region.
    pub const HOLE: Self =
        Self { is_ports: false, base: 0, length_bytes: 0, reserved_page_first: 0, reserved_page_count: 0 };

    /// First page and number of pages; none for ports and holes.
    pub(crate) fn pages(&self) -> (u64, u64) {
        if self.is_ports || self.length_bytes == 0 {
            return (0, 0);
        }
        let first = self.base >> PAGE_SHIFT;
        let last = self.base.saturating_add(self.length_bytes - 1) >> PAGE_SHIFT;
        (first, last - first + 1)
    }

    /// Whether page `index` of the region may be mapped.
    pub(crate) fn is_mappable(&self, index: u64) -> bool {
        let first = u64::from(self.reserved_page_first);
        !(first..first + u64::from(self.reserved_page_count)).contains(&index)
    }
}

/// A device function as the glue describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// What kind it is; the other fields as `abi::device` says.
    pub kind: DeviceKind,
    /// See `DeviceKind`.
    pub identity: u32,
    /// See `DeviceField::Location`.
    pub location: u32,
    /// See `DeviceField::Class`.
    pub class: u32,
    /// Regions; trailing holes are not counted.
    pub regions: [Region; DEVICE_REGION_COUNT_MAX],
    /// Interrupts that the glue can route, at most `DEVICE_INTERRUPT_COUNT_MAX`.
    pub interrupt_count: u32,
}

impl DeviceDescription {
    /// Regions up to the last that is none.
    pub(crate) fn region_count(&self) -> u64 {
        self.regions.iter().rposition(|region| region.length_bytes != 0).map_or(0, |last| last as u64 + 1)
    }
}

begins! {
    /// Where an interrupt goes.
    #[derive(Clone, Copy)]
    pub(crate) struct Route {
        pub(crate) environment: Option<EnvironmentId> = None,
        pub(crate) bell: Option<Named<BellId>> = None,
        /// The capabilities for the function and for the bell.
        pub(crate) bound_with: Option<[CapRef; 2]> = None,
    }
}

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionState {
    /// Nobody ever touched it.
    Untouched,
    /// What its driver told it.
    InUse,
    /// It is being reset because somebody asked for that.
    Resetting,
    /// It is being reset because somebody loses it, which is not to be disturbed.
    Releasing,
}

begins! {
    /// A device function.
    pub(crate) struct Device {
        pub(crate) description: Option<DeviceDescription> = None,
        /// The kernel's extension drives it, so nobody else gets at it.
        pub(crate) is_driven: bool = false,
        pub(crate) state: FunctionState = FunctionState::Untouched,
        pub(crate) routes: [Route; DEVICE_INTERRUPT_COUNT_MAX] = [Route::EMPTY; DEVICE_INTERRUPT_COUNT_MAX],
    }
}

impl Device {
    pub(crate) fn has_page(&self, frame: u64) -> bool {
        self.description.is_some_and(|description| {
            description.regions.iter().any(|region| {
                let (first, count) = region.pages();
                (first..first + count).contains(&frame)
            })
        })
    }
}

/// Device functions for which an environment holds capabilities with CONTROL, READ, READ and WRITE: bit n stands for
/// function n.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldDevices([u64; 3]);

impl HeldDevices {
    /// Of the first words of a capability, of which there may be thousands, for a function: by its six lowest rights.
    pub(crate) fn note(by_rights: &mut [u64; 64], word: u64, object: u64) {
        by_rights[(word >> 32 & 63) as usize] |= 1 << (object % DEVICE_COUNT_MAX as u64);
    }

    pub(crate) fn noted(by_rights: [u64; 64]) -> Self {
        let kinds = [Rights::CONTROL, Rights::READ, Rights::READ | Rights::WRITE].map(|rights| rights.bits() as usize);
        Self(kinds.map(|kind| (0..64).filter(|r| r & kind == kind).fold(0, |held, r| held | by_rights[r])))
    }

    /// Whether it can be set to work: by its registers, or by being enabled.
    pub(crate) fn can_work(&self, device: DeviceId) -> bool {
        self.has(device, 0) || self.has(device, 2)
    }

    /// Whether a function is held: 0 with CONTROL, 1 with READ, 2 with READ and WRITE.
    pub(crate) fn has(&self, device: DeviceId, kind: usize) -> bool {
        self.0.get(kind).is_some_and(|held| held >> device.index() & 1 != 0)
    }
}

const _: () = assert!(DEVICE_COUNT_MAX <= 64);

begins! {
    /// Frames that a device may reach.
    #[derive(Clone, Copy)]
    pub(crate) struct DmaBinding {
        pub(crate) device: Option<DeviceId> = None,
        /// The environment that bound them; `None`: the table entry is free.
        pub(crate) environment: Option<EnvironmentId> = None,
        /// The capability for the frames.
        pub(crate) bound_with: Option<CapRef> = None,
        pub(crate) first: u64 = 0,
        pub(crate) count: u64 = 0,
    }
}

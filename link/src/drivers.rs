//! Which driver serves a pod's card or disk, and where it is placed, as a record of the run configuration and as the
//! host tool's option names it.
//!
//! The device itself is found by looking at the functions that there are; what is said here is which of them the tool
//! has made, and who drives it. A record each: role, placement, model, a byte each. A role without a record has the
//! default, a virtio device driven by the library OS; a record with a byte of a later version is left out.

/// What a device is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A network card.
    Net = 1,
    /// A disk.
    Disk = 2,
}

/// Where a driver runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In the program's library OS.
    #[default]
    Library = 1,
    /// In an environment of its own.
    Domain = 2,
    /// In an extended kernel.
    Kernel = 3,
}

/// What device it is, and so which driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// Virtio, either role.
    #[default]
    Virtio = 1,
    /// Intel 82540EM, a card of PCI.
    E1000 = 2,
    /// Intel 82574L, a card of PCI Express.
    E1000e = 3,
    /// A disk at the PC's own controller (PIIX).
    Ide = 4,
}

/// A driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Where it runs.
    pub placement: Placement,
    /// What it drives.
    pub model: Model,
}

/// The drivers of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drivers {
    /// Of its network card.
    pub net: Driver,
    /// Of its disks.
    pub disk: Driver,
    /// For tests: a domain of a disk faults so long after its start; 0: it does not.
    pub disk_fault_ms: u32,
    /// The same of a network card.
    pub net_fault_ms: u32,
}

/// A bundle part: the disk domain, a flat image.
pub const PART_DISK_DOMAIN: u32 = 19;
/// The same for the network domain.
pub const PART_NET_DOMAIN: u32 = 20;
/// The word of the kernel's command line that says what an extended kernel drives: names of roles, with commas.
pub const KERNEL_WORD: &str = "drive";

pub(crate) const TAG_DRIVER: u32 = 17;
pub(crate) const TAG_DISK_FAULT: u32 = 40;
pub(crate) const TAG_NET_FAULT: u32 = 41;

impl Role {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Net, Self::Disk];

    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Disk => "disk",
        }
    }

    /// The models that there are of it, the usual one first.
    #[must_use]
    pub const fn models(self) -> &'static [Model] {
        match self {
            Self::Net => &[Model::Virtio, Model::E1000, Model::E1000e],
            Self::Disk => &[Model::Virtio, Model::Ide],
        }
    }
}

impl Placement {
    /// All.
    pub const ALL: [Self; 3] = [Self::Library, Self::Domain, Self::Kernel];

    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Domain => "domain",
            Self::Kernel => "kernel",
        }
    }
}

impl Model {
    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Ide => "ide",
        }
    }
}

impl Drivers {
    /// The driver of this role.
    #[must_use]
    pub const fn of(&self, role: Role) -> Driver {
        match role {
            Role::Net => self.net,
            Role::Disk => self.disk,
        }
    }

    /// Changes it.
    pub const fn set(&mut self, role: Role, driver: Driver) {
        match role {
            Role::Net => self.net = driver,
            Role::Disk => self.disk = driver,
        }
    }

    /// Gives each record that says more than the default to `record`: its tag and value.
    pub(crate) fn write(&self, mut record: impl FnMut(u32, &[u8])) {
        for role in Role::ALL {
            let Driver { placement, model } = self.of(role);
            if self.of(role) != Driver::default() {
                record(TAG_DRIVER, &[role as u8, placement as u8, model as u8]);
            }
        }
        for (tag, fault_ms) in [(TAG_DISK_FAULT, self.disk_fault_ms), (TAG_NET_FAULT, self.net_fault_ms)] {
            if fault_ms > 0 {
                record(tag, &fault_ms.to_le_bytes());
            }
        }
    }

    /// Takes over when a domain faults; `None` for a wrong length.
    pub(crate) fn take_fault(&mut self, tag: u32, value: &[u8]) -> Option<()> {
        let fault_ms = u32::from_le_bytes(value.try_into().ok()?);
        *(if tag == TAG_NET_FAULT { &mut self.net_fault_ms } else { &mut self.disk_fault_ms }) = fault_ms;
        Some(())
    }

    /// Takes one record over; `None` for a wrong length.
    pub(crate) fn take_record(&mut self, value: &[u8]) -> Option<()> {
        let [role, placement, model] = *<&[u8; 3]>::try_from(value).ok()?;
        let role = Role::ALL.into_iter().find(|it| *it as u8 == role);
        let placement = Placement::ALL.into_iter().find(|it| *it as u8 == placement);
        if let (Some(role), Some(placement)) = (role, placement)
            && let Some(model) = role.models().iter().copied().find(|it| *it as u8 == model)
        {
            self.set(role, Driver { placement, model });
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Driver, Drivers, Placement, Role};
    use std::vec::Vec;

    #[test]
    fn records_come_back() {
        let mut count = 0;
        for role in Role::ALL {
            for placement in Placement::ALL {
                for model in role.models() {
                    let mut drivers = Drivers::default();
                    drivers.set(role, Driver { placement, model: *model });
                    let mut read = Drivers::default();
                    drivers.write(|_, value| {
                        assert_eq!(read.take_record(value), Some(()));
                        count += 1;
                    });
                    assert_eq!(read, drivers);
                }
            }
        }
        // All but the defaults, which say nothing.
        assert_eq!(count, 13);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut drivers = Drivers::default();
        for value in [[0, 1, 1], [3, 1, 1], [1, 4, 1], [1, 0, 2], [1, 1, 4], [2, 1, 2], [1, 1, 5]] {
            assert_eq!(drivers.take_record(&value), Some(()), "{value:?}");
        }
        assert_eq!(drivers, Drivers::default());
        let wrong: [Vec<u8>; 3] = [Vec::new(), [1, 1].into(), [1, 1, 1, 1].into()];
        for value in wrong {
            assert_eq!(drivers.take_record(&value), None);
        }
    }
}

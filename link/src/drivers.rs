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
    /// For tests: what a domain of a disk does wrong.
    pub disk_fault: Option<Fault>,
    /// The same of a network card.
    pub net_fault: Option<Fault>,
}

/// What a domain does wrong, for tests, each time that it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// So long after its start; 0 is at once.
    pub after_ms: u32,
    /// What.
    pub kind: FaultKind,
}

impl Fault {
    /// What a domain's plan says of it: what, and after how many nanoseconds; zeros for nothing.
    #[must_use]
    pub const fn words(fault: Option<Self>) -> [u64; 2] {
        match fault {
            Some(Self { after_ms, kind }) => [kind as u64, after_ms as u64 * 1_000_000],
            None => [0; 2],
        }
    }
}

/// See [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The kernel stops it.
    Fault = 1,
    /// It does nothing any more.
    Hang = 2,
    /// It writes what cannot be into the session, and goes on.
    Lie = 3,
}

impl FaultKind {
    /// All.
    pub const ALL: [Self; 3] = [Self::Fault, Self::Hang, Self::Lie];

    /// As the tool's options name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Hang => "hang",
            Self::Lie => "lie",
        }
    }

    /// The kind of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u64 == number)
    }
}

/// A bundle part: the disk domain, a flat image.
pub const PART_DISK_DOMAIN: u32 = 19;
/// The same for the network domain.
pub const PART_NET_DOMAIN: u32 = 20;
/// The word of the kernel's command line that says what an extended kernel drives: names of roles, with commas; disks
/// of a role's name are virtio's.
pub const KERNEL_WORD: &str = "drive";
/// The name there of IDE disks.
pub const KERNEL_IDE_NAME: &str = "ide";
/// The name there of watched memory, whose touches are answered in the kernel.
pub const KERNEL_MEMORY_NAME: &str = "memory";

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
        for (tag, fault) in [(TAG_DISK_FAULT, self.disk_fault), (TAG_NET_FAULT, self.net_fault)] {
            if let Some(Fault { after_ms, kind }) = fault {
                let [a, b, c, d] = after_ms.to_le_bytes();
                record(tag, &[a, b, c, d, kind as u8]);
            }
        }
    }

    /// Takes over when a domain faults; `None` for a wrong length.
    pub(crate) fn take_fault(&mut self, tag: u32, value: &[u8]) -> Option<()> {
        let [a, b, c, d, kind] = *<&[u8; 5]>::try_from(value).ok()?;
        let kind = FaultKind::from_number(u64::from(kind));
        let fault = kind.map(|kind| Fault { after_ms: u32::from_le_bytes([a, b, c, d]), kind });
        *(if tag == TAG_NET_FAULT { &mut self.net_fault } else { &mut self.disk_fault }) = fault;
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
    use super::{Driver, Drivers, Fault, FaultKind, Placement, Role, TAG_DISK_FAULT, TAG_NET_FAULT};
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
    fn faults_come_back() {
        let fault = |after_ms, kind| Some(Fault { after_ms, kind });
        for kind in FaultKind::ALL {
            let drivers = Drivers { disk_fault: fault(0, kind), net_fault: fault(70_000, kind), ..Drivers::default() };
            let mut read = Drivers::default();
            drivers.write(|tag, value| assert_eq!(read.take_fault(tag, value), Some(())));
            assert_eq!(read, drivers);
        }
        let mut drivers = Drivers::default();
        assert_eq!(drivers.take_fault(TAG_NET_FAULT, &[1, 0, 0, 0]), None);
        assert_eq!(drivers.take_fault(TAG_DISK_FAULT, &[1, 0, 0, 0, 9]), Some(()));
        assert_eq!(drivers, Drivers::default());
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

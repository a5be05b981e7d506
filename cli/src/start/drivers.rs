//! The machine types in which what drivers drive can be, and what of it an extended kernel drives.

use aegis_launch::errors::Error;
use aegis_launch::machine::qemu::MachineKind;
use aegis_link::drivers::{Driver, Drivers, KERNEL_IDE_NAME, Model, Placement, Role};

/// Whether a driver and what it drives can be in a machine of this type. A driver in the kernel is alone with its
/// registers, and virtio's of microvm share their pages (ADR 0075).
fn can_be_in(kind: MachineKind, driver: Driver) -> bool {
    kind.has(driver.model) && (driver.placement != Placement::Kernel || kind != MachineKind::Microvm)
}

/// What is driven in the kernel, by the names that an extended kernel knows; it is needed if there is something.
pub(crate) fn names_in_kernel(drivers: &[Drivers]) -> Vec<&'static str> {
    let name = |(role, driver): (Role, Driver)| match driver {
        Driver { placement: Placement::Kernel, model: Model::Ide } => Some(KERNEL_IDE_NAME),
        Driver { placement: Placement::Kernel, .. } => Some(role.name()),
        _ => None,
    };
    let all = drivers.iter().flat_map(|drivers| Role::ALL.map(|role| (role, drivers.of(role))));
    let mut names: Vec<_> = all.filter_map(name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The machine type for pods with these drivers. `wanted` is what the user says, `usual` what is taken if nothing
/// speaks against it.
///
/// # Errors
/// The user wants one in which a device cannot be.
pub(crate) fn machine_for(
    drivers: &[Drivers],
    wanted: Option<MachineKind>,
    usual: MachineKind,
) -> Result<MachineKind, Error> {
    let mut taken = usual;
    for (role, driver) in drivers.iter().flat_map(|it| Role::ALL.map(|role| (role, it.of(role)))) {
        if wanted.is_some_and(|wanted| !can_be_in(wanted, driver)) {
            let kinds = [MachineKind::Pc, MachineKind::Q35].into_iter().filter(|kind| can_be_in(*kind, driver));
            let kinds = kinds.map(MachineKind::name).collect::<Vec<_>>().join(" or ");
            let name = if driver.placement == Placement::Kernel { "kernel" } else { driver.model.name() };
            return Err(Error::Usage(format!("--driver {}: {name} needs -M {kinds}", role.name())));
        }
        if !can_be_in(taken, driver) {
            taken = if driver.model == Model::E1000e { MachineKind::Q35 } else { MachineKind::Pc };
        }
    }
    Ok(wanted.unwrap_or(taken))
}

#[cfg(test)]
mod tests {
    use super::{machine_for, names_in_kernel};
    use crate::options::drivers::{drivers, parse_driver};
    use aegis_launch::machine::qemu::MachineKind::{Microvm, Pc, Q35};

    #[test]
    fn a_device_has_a_machine_that_it_can_be_in() {
        let kind = |words: &[&str], wanted| {
            let options: Vec<_> = words.iter().map(|word| parse_driver(word).expect(word)).collect();
            machine_for(&[drivers(&[]), drivers(&options)], wanted, Microvm).map_err(|error| error.to_string())
        };
        assert_eq!(kind(&[], None), Ok(Microvm));
        assert_eq!(kind(&["net=library:e1000"], None), Ok(Pc));
        assert_eq!(kind(&["net=library:e1000e"], None), Ok(Q35));
        assert_eq!(kind(&["net=library:e1000e"], Some(Pc)), Ok(Pc));
        assert_eq!(kind(&["net=library:e1000e", "disk=library:ide"], None), Ok(Pc));
        assert_eq!(kind(&["net=library:e1000"], Some(Microvm)), Err("--driver net: e1000 needs -M pc or q35".into()));
        assert_eq!(kind(&["disk=kernel"], None), Ok(Pc));
        assert_eq!(kind(&["disk=kernel"], Some(Q35)), Ok(Q35));
        assert_eq!(kind(&["disk=kernel"], Some(Microvm)), Err("--driver disk: kernel needs -M pc or q35".into()));
        assert_eq!(kind(&["disk=kernel:ide"], None), Ok(Pc));
        assert_eq!(kind(&["disk=library:ide"], Some(Q35)), Err("--driver disk: ide needs -M pc".into()));
    }

    #[test]
    fn a_driver_in_the_kernel_needs_the_kernel_that_is_made_for_it() {
        let needs = |word| names_in_kernel(&[drivers(&[]), drivers(&[parse_driver(word).expect(word)])]);
        assert_eq!(["disk=kernel", "net=kernel", "disk=kernel:ide"].map(needs), [["disk"], ["net"], ["ide"]]);
        assert_eq!(["disk=domain:ide", "net=library"].map(needs), [[""; 0]; 2]);
    }
}

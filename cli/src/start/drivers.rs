//! Which drivers there are, and the machine types in which what they drive can be.

use aegis_launch::errors::Error;
use aegis_launch::machine::qemu::MachineKind;
use aegis_link::drivers::{Driver, Drivers, Model, Placement, Role};

use crate::options::drivers::DriverOption;

/// Placements that drivers of this model have so far.
fn placements(role: Role, model: Model) -> &'static [Placement] {
    match (role, model) {
        (Role::Disk, Model::Virtio) => &Placement::ALL,
        (Role::Disk, _) => &[Placement::Library],
        (Role::Net, _) => &Placement::ALL,
    }
}

/// Whether there is such a driver.
///
/// # Errors
/// There is none; the text says what there is instead.
pub(crate) fn check(options: &[DriverOption]) -> Result<(), Error> {
    for DriverOption { role, driver: Driver { placement, model } } in options {
        let there_are = placements(*role, *model);
        if there_are.contains(placement) {
            continue;
        }
        let (role, placement, model) = (role.name(), placement.name(), model.name());
        let names = there_are.iter().map(|it| it.name()).collect::<Vec<_>>().join(" or ");
        return Err(Error::Usage(format!("--driver {role}={placement}:{model}: not in this version; take {names}")));
    }
    Ok(())
}

/// Whether a driver and what it drives can be in a machine of this type. A driver in the kernel is alone with its
/// registers, and virtio's of microvm share their pages (ADR 0075).
fn can_be_in(kind: MachineKind, driver: Driver) -> bool {
    kind.has(driver.model) && (driver.placement != Placement::Kernel || kind != MachineKind::Microvm)
}

/// What is driven in the kernel, for which the machine needs an extended one.
pub(crate) fn roles_in_kernel(drivers: &[Drivers]) -> Vec<Role> {
    let is_in_kernel = |role: &Role| drivers.iter().any(|drivers| drivers.of(*role).placement == Placement::Kernel);
    Role::ALL.into_iter().filter(is_in_kernel).collect()
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
    use super::{check, machine_for, roles_in_kernel};
    use crate::options::drivers::{drivers, parse_driver};
    use aegis_launch::machine::qemu::MachineKind::{Microvm, Pc, Q35};
    use aegis_link::drivers::Role;

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
        assert_eq!(kind(&["disk=library:ide"], Some(Q35)), Err("--driver disk: ide needs -M pc".into()));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let said = |word| check(&[parse_driver(word).expect(word)]).map_err(|error| error.to_string());
        let nets = ["net=library:e1000", "net=domain", "net=kernel:e1000e"];
        for word in nets.into_iter().chain(["disk=library", "disk=domain", "disk=kernel", "disk=library:ide"]) {
            assert_eq!(said(word), Ok(()), "{word}");
        }
        let refused = |word| Err(format!("--driver {word}: not in this version; take "));
        let not_said = |word, names: &str| refused(word).map_err(|text| text + names);
        assert_eq!(said("disk=kernel:ide"), not_said("disk=kernel:ide", "library"));
    }

    #[test]
    fn a_driver_in_the_kernel_needs_the_kernel_that_is_made_for_it() {
        let needs = |word| roles_in_kernel(&[drivers(&[]), drivers(&[parse_driver(word).expect(word)])]);
        assert_eq!(["disk=kernel", "net=kernel"].map(needs), [[Role::Disk], [Role::Net]]);
        assert_eq!(["disk=domain", "net=library"].map(needs), [const { Vec::new() }; 2]);
    }
}

//! Which drivers there are, and the machine types in which what they drive can be.

use aegis_launch::errors::Error;
use aegis_launch::machine::qemu::MachineKind;
use aegis_link::drivers::{Drivers, Model, Placement, Role};

use crate::options::drivers::DriverOption;

/// Placements that drivers of this role have so far.
fn placements(role: Role) -> &'static [Placement] {
    match role {
        Role::Net => &[Placement::Library],
        Role::Disk => &[Placement::Library, Placement::Domain],
    }
}

/// Whether there is such a driver.
///
/// # Errors
/// There is none; the text says what there is instead.
pub(crate) fn check(options: &[DriverOption]) -> Result<(), Error> {
    for option in options {
        let there_are = placements(option.role);
        if there_are.contains(&option.driver.placement) {
            continue;
        }
        let (role, placement) = (option.role.name(), option.driver.placement.name());
        let names = there_are.iter().map(|it| it.name()).collect::<Vec<_>>().join(", ");
        return Err(Error::Usage(format!("--driver {role}={placement}: not in this version; take {names}")));
    }
    Ok(())
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
    for (role, model) in drivers.iter().flat_map(|it| Role::ALL.map(|role| (role, it.of(role).model))) {
        if wanted.is_some_and(|wanted| !wanted.has(model)) {
            let kinds = [MachineKind::Pc, MachineKind::Q35].into_iter().filter(|kind| kind.has(model));
            let kinds = kinds.map(MachineKind::name).collect::<Vec<_>>().join(" or ");
            return Err(Error::Usage(format!("--driver {}: {} needs -M {kinds}", role.name(), model.name())));
        }
        if !taken.has(model) {
            taken = if model == Model::E1000e { MachineKind::Q35 } else { MachineKind::Pc };
        }
    }
    Ok(wanted.unwrap_or(taken))
}

#[cfg(test)]
mod tests {
    use super::{check, machine_for};
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
        assert_eq!(kind(&["disk=library:ide"], Some(Q35)), Err("--driver disk: ide needs -M pc".into()));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let said = |word| check(&[parse_driver(word).expect(word)]).map_err(|error| error.to_string());
        assert_eq!(said("net=library:e1000"), Ok(()));
        assert_eq!(said("net=kernel"), Err("--driver net=kernel: not in this version; take library".into()));
        assert_eq!(said("disk=library"), Ok(()));
        assert_eq!(said("disk=kernel"), Err("--driver disk=kernel: not in this version; take library".into()));
    }
}

//! `--driver`: which driver serves a pod's network card or its disks, and where it is placed.
//!
//! Words are read here; whether the machine type and the pod fit is judged where both are known (`crate::start`).

use aegis_link::drivers::{Driver, Drivers, Fault, FaultKind, Model, Placement, Role};

/// How it is written.
const FORM: &str = "net=PLACEMENT[:MODEL] or disk=PLACEMENT[:MODEL], such as net=library:e1000";

/// One `--driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverOption {
    /// Of what.
    pub(crate) role: Role,
    /// Which, and where.
    pub(crate) driver: Driver,
}

/// What several of them come to: of two for one role the last counts.
pub(crate) fn drivers(options: &[DriverOption]) -> Drivers {
    let mut drivers = Drivers::default();
    options.iter().for_each(|option| drivers.set(option.role, option.driver));
    drivers
}

/// `--driver`.
pub(crate) fn parse_driver(text: &str) -> Result<DriverOption, String> {
    let (role, rest) = text.split_once('=').ok_or_else(|| FORM.to_owned())?;
    let role = Role::ALL.into_iter().find(|it| it.name() == role).ok_or_else(|| FORM.to_owned())?;
    let (placement, model) = rest.split_once(':').map_or((rest, None), |(placement, model)| (placement, Some(model)));
    let placement = Placement::ALL.into_iter().find(|it| it.name() == placement);
    let placement = placement.ok_or_else(|| {
        format!("{}: a driver's placement is one of {}", role.name(), one_of(Placement::ALL.map(Placement::name)))
    })?;
    let models = role.models();
    let model = match model {
        None => models.first().copied().unwrap_or_default(),
        Some(model) => models.iter().copied().find(|it| it.name() == model).ok_or_else(|| {
            format!("{}: a driver's model is one of {}", role.name(), one_of(models.iter().copied().map(Model::name)))
        })?,
    };
    Ok(DriverOption { role, driver: Driver { placement, model } })
}

/// `--fault-disk-domain` and its like.
pub(crate) fn parse_fault(text: &str) -> Result<Fault, String> {
    let (after, kind) = text.split_once(':').unwrap_or((text, FaultKind::Fault.name()));
    let kind = FaultKind::ALL.into_iter().find(|it| it.name() == kind);
    let kind = kind.ok_or_else(|| format!("a fault is one of {}", one_of(FaultKind::ALL.map(FaultKind::name))))?;
    let after_ms = after.parse().map_err(|_| "milliseconds are a number".to_owned())?;
    Ok(Fault { after_ms, kind })
}

fn one_of(names: impl IntoIterator<Item = &'static str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{drivers, parse_driver};
    use aegis_link::drivers::{Driver, Drivers, Model, Placement};

    #[test]
    fn the_last_of_a_role_counts() {
        let options =
            ["net=domain", "disk=kernel:ide", "net=library:e1000e"].map(|text| parse_driver(text).expect(text));
        assert_eq!(
            drivers(&options),
            Drivers {
                net: Driver { placement: Placement::Library, model: Model::E1000e },
                disk: Driver { placement: Placement::Kernel, model: Model::Ide },
                ..Drivers::default()
            }
        );
        assert_eq!(drivers(&options[..1]).net, Driver { placement: Placement::Domain, model: Model::Virtio });
        assert_eq!(drivers(&[]), Drivers::default());
    }

    #[test]
    fn wrong_words_are_refused() {
        for (text, expected) in [
            ("net", "such as net=library:e1000"),
            ("sound=library", "net=PLACEMENT"),
            ("net=", "library, domain, kernel"),
            ("net=Library", "library, domain, kernel"),
            ("net=library:", "virtio, e1000, e1000e"),
            ("net=library:ide", "virtio, e1000, e1000e"),
            ("disk=library:e1000", "virtio, ide"),
            ("disk=library:ide:x", "virtio, ide"),
        ] {
            let why = parse_driver(text).expect_err(text);
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}

//! What a program begins with besides its user: capabilities, limits, and what else the run says ([`Rights`]).

use aegis_link::config::Config;
use aegis_link::rights::Rights;
use exos::task::capability::{Capabilities, CapabilitySet};
use exos::task::limits::{Limit, Limits, OPEN_FILES_MAX, Resource};

use crate::task::identities::Identities;
use crate::task::process::Process;

/// The identities of a program that the run's user starts.
pub(super) fn identities(config: &Config) -> Identities {
    Identities {
        uid: [config.uid; 4],
        gid: [config.gid; 4],
        groups: config.groups.clone(),
        capabilities: capabilities(config),
        has_no_new_privileges: config.rights.no_new_privileges,
    }
}

/// As after the execution of a program by a process with these sets.
fn capabilities(config: &Config) -> Capabilities {
    let mut held = Capabilities::of_user(config.uid);
    if let Some(sets) = config.rights.capabilities {
        let [bounding, inheritable, ambient] =
            [sets.bounding, sets.inheritable, sets.ambient].map(|set| set & CapabilitySet::ALL.0);
        held.bounding = CapabilitySet(bounding);
        held.inheritable = CapabilitySet(inheritable);
        held.ambient = CapabilitySet(ambient & inheritable);
        held.follow_execution(config.uid, config.uid);
    }
    held
}

/// The limits of the first process. Those of files are at most what a table of descriptors can have.
pub(super) fn limits(rights: &Rights) -> Limits {
    let mut limits = Limits::default();
    for given in &rights.limits {
        let is_files = given.resource as usize == Resource::OpenFiles as usize;
        let most = if is_files { OPEN_FILES_MAX } else { u64::MAX };
        let limit = Limit { soft: given.soft.min(most), hard: given.hard.min(most) };
        // The configuration was checked: it is one of Linux's, and in order.
        let _ = limits.set(given.resource as usize, limit, true);
    }
    limits
}

/// Gives a process that has not begun what the run says of it.
pub(super) fn settle(process: &Process, rights: &Rights) {
    let limits = limits(rights);
    process.files.apply_limits(&limits);
    *process.limits.lock() = limits;
    if let Some(umask) = rights.umask {
        process.files.set_umask(umask);
    }
    if let Some(adjust) = rights.out_of_memory_adjust {
        *process.out_of_memory_adjust.lock() = adjust;
    }
}

#[cfg(test)]
mod tests {
    use super::{identities, limits};
    use aegis_link::config::Config;
    use aegis_link::rights::{CapabilitySets, ResourceLimit, Rights};
    use exos::task::capability::CapabilitySet;
    use exos::task::limits::{Limit, OPEN_FILES_MAX, UNLIMITED};

    #[test]
    fn capabilities_are_those_after_an_execution() {
        let with = |uid, bounding, inheritable, ambient| {
            let capabilities = Some(CapabilitySets { bounding, inheritable, ambient });
            let config = Config { uid, rights: Rights { capabilities, ..Rights::default() }, ..Config::default() };
            let held = identities(&config).capabilities;
            (held.effective.0, held.permitted.0, held.bounding.0)
        };
        assert_eq!(with(0, 0x2400, 0, 0), (0x2400, 0x2400, 0x2400));
        assert_eq!(with(7, 0x2400, 0, 0), (0, 0, 0x2400));
        assert_eq!(with(7, 0x2400, 0x400, u64::MAX), (0x400, 0x400, 0x2400));
        assert_eq!(identities(&Config::default()).capabilities.effective, CapabilitySet::ALL);
    }

    #[test]
    fn limits_are_what_was_said_and_what_there_can_be() {
        let limit = |resource, soft, hard| ResourceLimit { resource, soft, hard };
        let said = alloc::vec![limit(7, 1 << 30, UNLIMITED), limit(3, 1 << 16, 1 << 17)];
        let limits = limits(&Rights { limits: said, ..Rights::default() });
        assert_eq!(limits.get(7), Ok(Limit { soft: OPEN_FILES_MAX, hard: OPEN_FILES_MAX }));
        assert_eq!(limits.get(3), Ok(Limit { soft: 1 << 16, hard: 1 << 17 }));
    }
}

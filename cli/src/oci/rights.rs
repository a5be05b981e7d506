//! What a configuration says of a program's capabilities and limits, by Linux's names.
//!
//! They protect nothing of the host here, and a program may rely on them all the same: it asks what it may do, drops
//! what it does not need, or sizes its tables by a limit. So the library OS keeps them as Linux does.

use aegis_link::rights::{CapabilitySets, ResourceLimit, Rights};
use serde::Deserialize;

/// Capabilities by their numbers (capabilities(7)).
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Limits by their numbers (getrlimit(2)).
const LIMITS: [&str; 16] = [
    "CPU",
    "FSIZE",
    "DATA",
    "STACK",
    "CORE",
    "RSS",
    "NPROC",
    "NOFILE",
    "MEMLOCK",
    "AS",
    "LOCKS",
    "SIGPENDING",
    "MSGQUEUE",
    "NICE",
    "RTPRIO",
    "RTTIME",
];

/// `process.capabilities`. What is permitted and effective follows from these when the program is executed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NamedCapabilities {
    bounding: Vec<String>,
    inheritable: Vec<String>,
    ambient: Vec<String>,
}

/// An entry of `process.rlimits`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NamedLimit {
    #[serde(rename = "type")]
    kind: String,
    soft: u64,
    hard: u64,
}

/// What a process says of its rights, in its own words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a> {
    pub(crate) capabilities: Option<&'a NamedCapabilities>,
    pub(crate) limits: &'a [NamedLimit],
    pub(crate) no_new_privileges: bool,
    pub(crate) out_of_memory_adjust: Option<i32>,
    pub(crate) umask: Option<u32>,
}

impl Said<'_> {
    /// In numbers. Capabilities that are not known are passed over, as the specification wants, with a warning.
    ///
    /// # Errors
    /// What is wrong: limits that are none or come twice, and numbers out of their ranges.
    pub(crate) fn rights(&self, warnings: &mut Vec<String>) -> Result<Rights, String> {
        let mut set = |names: &[String]| {
            let mut bits = 0;
            for name in names {
                let short = name.strip_prefix("CAP_").unwrap_or_default();
                match CAPABILITIES.iter().position(|known| *known == short) {
                    Some(number) => bits |= 1 << number,
                    None => warnings.push(format!("process.capabilities: {name} is not known and passed over")),
                }
            }
            bits
        };
        let capabilities = self.capabilities.map(|named| CapabilitySets {
            bounding: set(&named.bounding),
            inheritable: set(&named.inheritable),
            ambient: set(&named.ambient),
        });
        let mut limits: Vec<ResourceLimit> = Vec::new();
        for limit in self.limits {
            let wrong = |why: &str| format!("process.rlimits: {}: {why}", limit.kind);
            let name = limit.kind.strip_prefix("RLIMIT_").unwrap_or_default();
            let number = LIMITS.iter().position(|known| *known == name).ok_or_else(|| wrong("no limit"))?;
            let resource = number as u32;
            if limits.iter().any(|before| before.resource == resource) {
                return Err(wrong("it comes twice"));
            }
            if limit.soft > limit.hard {
                return Err(wrong("soft is more than hard"));
            }
            limits.push(ResourceLimit { resource, soft: limit.soft, hard: limit.hard });
        }
        if let Some(adjust) = self.out_of_memory_adjust.filter(|adjust| !(-1000..=1000).contains(adjust)) {
            return Err(format!("process.oomScoreAdj: {adjust}: -1000 to 1000"));
        }
        if let Some(umask) = self.umask.filter(|umask| *umask > 0o777) {
            return Err(format!("process.user.umask: {umask:o}: 0 to 777"));
        }
        let Self { no_new_privileges, out_of_memory_adjust, umask, .. } = *self;
        Ok(Rights { capabilities, limits, no_new_privileges, out_of_memory_adjust, umask })
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPABILITIES, NamedCapabilities, NamedLimit, Said};

    const NOTHING: Said<'_> =
        Said { capabilities: None, limits: &[], no_new_privileges: false, out_of_memory_adjust: None, umask: None };

    #[test]
    fn names_are_linuxs_numbers() {
        let numbers = [("CHOWN", 0), ("NET_RAW", 13), ("SYS_ADMIN", 21), ("SETFCAP", 31), ("CHECKPOINT_RESTORE", 40)];
        for (name, number) in numbers {
            assert_eq!(CAPABILITIES[number], name);
        }
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let capabilities = NamedCapabilities {
            bounding: names(&["CAP_KILL", "CAP_NONE", "KILL"]),
            inheritable: Vec::new(),
            ambient: names(&["CAP_CHOWN"]),
        };
        let mut warnings = Vec::new();
        let said = Said { capabilities: Some(&capabilities), ..NOTHING };
        let sets = said.rights(&mut warnings).expect("rights").capabilities.expect("said");
        assert_eq!((sets.bounding, sets.inheritable, sets.ambient, warnings.len()), (1 << 5, 0, 1, 2));
    }

    #[test]
    fn limits_are_checked() {
        let limit = |kind: &str, soft, hard| NamedLimit { kind: kind.into(), soft, hard };
        let of = |limits: &[NamedLimit]| Said { limits, ..NOTHING }.rights(&mut Vec::new());
        let found = of(&[limit("RLIMIT_NOFILE", 1, 2), limit("RLIMIT_RTTIME", 3, u64::MAX)]).expect("limits").limits;
        assert_eq!((found[0].resource, found[1].resource, found[1].hard), (7, 15, u64::MAX));
        for (wrong, part) in [
            (vec![limit("RLIMIT_X", 0, 0)], "RLIMIT_X: no limit"),
            (vec![limit("NOFILE", 0, 0)], "no limit"),
            (vec![limit("RLIMIT_AS", 2, 1)], "soft"),
            (vec![limit("RLIMIT_AS", 1, 1), limit("RLIMIT_AS", 1, 1)], "twice"),
        ] {
            let error = of(&wrong).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
        assert!(Said { out_of_memory_adjust: Some(1001), ..NOTHING }.rights(&mut Vec::new()).is_err());
        assert!(Said { umask: Some(0o1000), ..NOTHING }.rights(&mut Vec::new()).is_err());
    }
}

//! Whose an instruction is: what profiles and traces sum up by.

/// The part of the system that an instruction belongs to. Every one belongs to exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Domain {
    /// The program, its libraries and the vDSO.
    Program,
    /// exos.
    LibraryOs,
    /// A driver.
    Driver,
    /// The kernel, and the firmware before it.
    Kernel,
    /// A processor without work.
    Idle,
}

/// All of them, in the order in which they are shown.
pub const DOMAINS: [Domain; 5] = [Domain::Program, Domain::LibraryOs, Domain::Driver, Domain::Kernel, Domain::Idle];

impl Domain {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::LibraryOs => "exos",
            Self::Driver => "driver",
            Self::Kernel => "kernel",
            Self::Idle => "idle",
        }
    }
}

/// Crates of drivers, as they begin the names of functions.
const DRIVER_CRATES: [&str; 2] = ["aegis_virtio::", "aegis_hal::"];
/// Crates whose functions work for their callers.
const COMMON_CRATES: [&str; 4] = ["core::", "alloc::", "compiler_builtins::", "rlsf::"];
const COMMON_NAMES: [&str; 5] = ["memcpy", "memmove", "memset", "memcmp", "bcmp"];

/// Whether a function of exos is a driver's; `None` if that depends on its caller.
pub fn is_of_driver(name: &str) -> Option<bool> {
    // `<aegis_virtio::queue::Queue as Trait>::method` begins with a bracket.
    let path = name.trim_start_matches(['<', '&', '[', '(']);
    let begins = |crates: &[&str]| crates.iter().any(|name| path.starts_with(name));
    if begins(&DRIVER_CRATES) {
        Some(true)
    } else if begins(&COMMON_CRATES) || COMMON_NAMES.contains(&name) {
        None
    } else {
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_driver;

    #[test]
    fn drivers_by_their_crates() {
        assert_eq!(is_of_driver("aegis_virtio::queue::Queue::add"), Some(true));
        assert_eq!(is_of_driver("<aegis_virtio::console::Console as core::fmt::Debug>::fmt"), Some(true));
        assert_eq!(is_of_driver("exos::fs::pipe::x"), Some(false));
        assert_eq!(is_of_driver("<exos_linux::X as aegis_virtio::Y>::z"), Some(false));
        assert_eq!(is_of_driver("memcpy"), None);
        assert_eq!(is_of_driver("<alloc::vec::Vec<u8> as core::clone::Clone>::clone"), None);
    }
}

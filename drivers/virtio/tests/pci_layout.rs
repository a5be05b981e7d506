//! Finding the register windows in configuration space, which a device fills as it likes.

use aegis_virtio::{ConfigSpace, ConfigurationFault, PciWindow, VirtioError, find_layout, modern_or_transitional_type};
use proptest::prelude::*;

struct Config([u8; 256]);

impl ConfigSpace for Config {
    fn read_u32(&self, offset: u8) -> u32 {
        assert_eq!(offset % 4, 0);
        let at = usize::from(offset);
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
}

impl Config {
    fn new(first: u8) -> Self {
        let mut bytes = [0; 256];
        bytes[6] = 0x10;
        bytes[0x34] = first;
        Self(bytes)
    }

    fn capability(&mut self, at: u8, next: u8, length: u8, cfg_type: u8, bar: u8, range: (u32, u32)) {
        let at = usize::from(at);
        self.0[at..at + 5].copy_from_slice(&[9, next, length, cfg_type, bar]);
        self.0[at + 8..at + 12].copy_from_slice(&range.0.to_le_bytes());
        self.0[at + 12..at + 16].copy_from_slice(&range.1.to_le_bytes());
    }

    /// As QEMU's virtio-serial-pci has it: MSI-X first, then the windows in BAR 4, notifications
    /// last but one.
    fn qemu() -> Self {
        let mut config = Self::new(0x98);
        config.0[0x98..0x9a].copy_from_slice(&[0x11, 0x84]);
        config.capability(0x84, 0x70, 20, 5, 0, (0, 0));
        config.capability(0x70, 0x60, 20, 2, 4, (0x3000, 0x1000));
        config.0[0x80] = 4;
        config.capability(0x60, 0x50, 16, 4, 4, (0x2000, 0x1000));
        config.capability(0x50, 0x40, 16, 3, 4, (0x1000, 0x1000));
        config.capability(0x40, 0, 16, 1, 4, (0, 0x1000));
        config
    }
}

#[test]
fn layout_of_qemu_is_found() {
    let layout = find_layout(&Config::qemu()).expect("complete");
    let window = |offset| PciWindow { bar: 4, offset, length_bytes: 0x1000 };
    assert_eq!(layout.common, window(0));
    assert_eq!(layout.isr, window(0x1000));
    assert_eq!(layout.device, window(0x2000));
    assert_eq!(layout.notify, window(0x3000));
    assert_eq!(layout.notify_off_multiplier, 4);
}

#[test]
fn first_usable_capability_of_a_type_counts() {
    let mut config = Config::qemu();
    config.capability(0xa8, 0xb8, 16, 1, 6, (0, 0x1000));
    config.capability(0xb8, 0xc8, 16, 1, 2, (u32::MAX, 0x1000));
    config.capability(0xc8, 0xd8, 16, 1, 2, (0, 0x37));
    config.capability(0xd8, 0x98, 16, 1, 2, (0x100, 0x38));
    config.0[0x34] = 0xa8;
    let layout = find_layout(&config).expect("complete");
    assert_eq!(layout.common, PciWindow { bar: 2, offset: 0x100, length_bytes: 0x38 });
}

#[test]
fn what_is_missing_is_named() {
    let missing = |cfg_type| VirtioError::Configuration(ConfigurationFault::CapabilityMissing { cfg_type });
    let mut config = Config::qemu();
    config.0[6] = 0;
    assert_eq!(find_layout(&config), Err(missing(1)), "no capability list at all");
    let mut config = Config::qemu();
    config.0[0x72] = 16;
    assert_eq!(find_layout(&config), Err(missing(2)), "no room for the multiplier");
    let mut config = Config::qemu();
    config.0[0x51] = 0;
    assert_eq!(find_layout(&config), Err(missing(1)), "list cut short");
    assert_eq!(find_layout(&Config([0xff; 256])), Err(missing(1)), "no function there");
}

#[test]
fn types_are_read_from_identifiers() {
    assert_eq!(modern_or_transitional_type(0x1af4, 0x1043, 0x1100), Some(3));
    assert_eq!(modern_or_transitional_type(0x1af4, 0x1003, 3), Some(3));
    assert_eq!(modern_or_transitional_type(0x8086, 0x1043, 3), None);
    assert_eq!(modern_or_transitional_type(0x1af4, 0x1110, 3), None);
}

proptest! {
    #[test]
    fn any_configuration_space_gives_an_answer(
        bytes in proptest::collection::vec(any::<u8>(), 256),
    ) {
        let mut config = Config(bytes.try_into().expect("256 bytes"));
        config.0[6] |= 0x10;
        let _ = find_layout(&config);
    }

    /// Valid identifiers everywhere, so that the walk goes deep; loops included.
    #[test]
    fn any_list_of_virtio_capabilities_gives_an_answer(
        entries in proptest::collection::vec(
            (0..60u8, 0..60u8, any::<u8>(), 0..7u8, 0..8u8, any::<(u32, u32)>()),
            0..12,
        ),
    ) {
        let mut config = Config::new(0x40);
        for (at, next, length, cfg_type, bar, range) in entries {
            let (at, next) = (0x40 + at % 45 * 4, 0x40 + next % 48 * 4);
            config.capability(at, next, length, cfg_type, bar, range);
        }
        if let Ok(layout) = find_layout(&config) {
            for window in [layout.common, layout.notify, layout.isr, layout.device] {
                prop_assert!(window.bar <= 5);
                prop_assert!(window.offset.checked_add(window.length_bytes).is_some());
            }
        }
    }
}

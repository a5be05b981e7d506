//! Configurations come back as they were encoded, limits are enforced on both sides, and no bytes make the decoder
//! panic.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use proptest::prelude::*;

use super::{
    Config, ConfigError, Flags, HEADER_BYTES, HostMount, HostMountFlags, MOUNT_COUNT_MAX, STRING_BYTES_MAX,
    TEMPORARY_COUNT_MAX, Temporary, Tickets,
};
use crate::disks::{DiskFlags, Disks, RequestOrder};
use crate::drivers::Drivers;
use crate::network::{HostEntry, Network, NetworkFlags, Prefixed};
use crate::rights::Rights;

fn minimal() -> Config {
    Config { program: b"/bin/true".to_vec(), ..Config::default() }
}

fn with_record(tag: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = minimal().encode().unwrap();
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
    bytes.extend_from_slice(value);
    let length = bytes.len() as u32;
    bytes[12..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[test]
fn unknown_records_are_skipped_and_known_ones_must_fit() {
    assert_eq!(Config::decode(&with_record(0x7fff, b"later")), Ok(minimal()));
    assert_eq!(Config::decode(&with_record(u32::MAX, b"")), Ok(minimal()));
    // Flags come twice now.
    assert_eq!(Config::decode(&with_record(5, &[0; 4])), Err(ConfigError::Record(5)));
    assert_eq!(Config::decode(&with_record(13, &[0; 7])), Err(ConfigError::Record(13)));
    assert_eq!(Config::decode(&with_record(14, &[0; 3])), Err(ConfigError::Record(14)));
    assert_eq!(Config::decode(&with_record(15, &[1, 33, 0, 0, 0, 0])), Err(ConfigError::Record(15)));
    assert_eq!(Config::decode(&with_record(17, &[1, 1])), Err(ConfigError::Record(17)));
    assert_eq!(Config::decode(&with_record(16, &[4, 0, 0, 0, 0])), Err(ConfigError::Network));
    let arguments = Config::decode(&with_record(2, b"x")).unwrap().arguments;
    assert_eq!(arguments, [b"x"]);
}

#[test]
fn padding_is_ignored() {
    let mut bytes = minimal().encode().unwrap();
    bytes.resize(4096, 0);
    assert_eq!(Config::decode(&bytes), Ok(minimal()));
}

#[test]
fn limits_are_those_of_the_module_head() {
    let fits = vec![vec![b'x'; STRING_BYTES_MAX - 1]];
    let config = Config { arguments: fits.clone(), ..minimal() };
    assert_eq!(Config::decode(&config.encode().unwrap()), Ok(config));
    let config = Config { arguments: fits, environment: vec![Vec::new()], ..minimal() };
    assert_eq!(config.encode(), Err(ConfigError::StringsTooLong));
    let many = Config { arguments: vec![Vec::new(); STRING_BYTES_MAX], ..minimal() };
    assert_eq!(many.encode(), Err(ConfigError::TooLarge));
    for (config, error) in [
        (Config::default(), ConfigError::Program),
        (Config { program: vec![b'x'; 4096], ..minimal() }, ConfigError::Program),
        (Config { working_directory: b"x".to_vec(), ..minimal() }, ConfigError::WorkingDirectory),
        (Config { hostname: vec![b'x'; 65], ..minimal() }, ConfigError::Hostname),
        (Config { arguments: vec![b"a\0b".to_vec()], ..minimal() }, ConfigError::ZeroByte),
    ] {
        assert_eq!(config.encode(), Err(error));
    }
}

#[test]
fn every_truncation_is_refused() {
    let config = Config { arguments: vec![b"a".to_vec(), b"bc".to_vec()], ..minimal() };
    let bytes = config.encode().unwrap();
    for length in 0..bytes.len() {
        assert!(Config::decode(&bytes[..length]).is_err(), "{length}");
    }
}

fn string() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1_u8.., 0..40)
}

prop_compose! {
    fn networks()(
        flags in any::<u32>(),
        addresses in prop::collection::vec((any::<IpAddr>(), 0..=32_u8), 0..8),
        gateways in prop::collection::vec(any::<IpAddr>(), 0..3),
    ) -> Network {
        let addresses: Vec<Prefixed> = addresses.into_iter()
            .map(|(address, prefix_bits)| Prefixed { address, prefix_bits }).collect();
        Network {
            flags: NetworkFlags::from_bits_retain(flags),
            host_networks: addresses.iter().rev().copied().collect(),
            name_servers: gateways.iter().rev().copied().collect(),
            addresses, gateways,
        }
    }
}

/// Any driver that can be, for either role.
fn drivers_of(record: [u8; 3]) -> Drivers {
    let mut drivers = Drivers::default();
    drivers.take_record(&record).unwrap();
    drivers
}

fn disk_flags(is_read_only: bool) -> DiskFlags {
    if is_read_only { DiskFlags::READ_ONLY } else { DiskFlags::empty() }
}

prop_compose! {
    fn configs()(
        program in prop::collection::vec(1_u8.., 1..100),
        arguments in prop::collection::vec(string(), 0..8),
        environment in prop::collection::vec(string(), 0..8),
        directory in string(),
        flags in any::<u32>(),
        numbers in any::<(u64, u64, u32, u32, u16, u16)>(),
        random_seed in any::<[u8; 32]>(),
        hostname in string(),
        tickets in prop::option::of((any::<u64>(), string())),
        network in prop::option::of(networks()),
        drivers in prop::array::uniform3(0_u8..6),
        disks in prop::collection::vec(any::<bool>(), 0..crate::disks::DISK_COUNT_MAX),
        order in prop::option::of(prop::sample::select(&RequestOrder::ALL[..])),
        names in prop::collection::vec((any::<IpAddr>(), "[a-z][a-z.0-9-]{0,20}"), 0..8),
    ) -> Config {
        let (memory_limit_bytes, realtime_start_ns, uid, gid, terminal_rows, terminal_columns) = numbers;
        Config {
            program, arguments, environment,
            working_directory: [b"/".to_vec(), directory].concat(),
            flags: Flags::from_bits_retain(flags),
            memory_limit_bytes, realtime_start_ns, random_seed, uid, gid,
            groups: vec![gid; (uid % 5) as usize], hostname,
            terminal_rows, terminal_columns, mounts: Vec::new(),
            temporaries: vec![
                Temporary {
                    permissions: gid % 0o10000,
                    size_max_bytes: memory_limit_bytes,
                    is_executable: uid % 2 == 0,
                    ..Temporary::new(b"/run")
                };
                (gid % 3) as usize
            ],
            rights: Rights::default(),
            tickets: tickets.map(|(amount, currency)| Tickets { amount, currency }),
            network,
            names: names.into_iter().map(|(address, name)| HostEntry { name: name.into_bytes(), address }).collect(),
            drivers: drivers_of(drivers),
            disks: Disks { disks: disks.into_iter().map(disk_flags).collect(), order },
        }
    }
}

/// Places and their new values.
fn damages() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)
}

proptest! {
    #[test]
    fn round_trip(config in configs()) {
        prop_assert_eq!(Config::decode(&config.encode().unwrap()), Ok(config));
    }

    #[test]
    fn damage_never_panics(config in configs(), damage in damages()) {
        let mut bytes = config.encode().unwrap();
        for (place, value) in damage {
            let offset = 12 + place.index(bytes.len() - 12);
            bytes[offset] = value;
        }
        if let Ok(config) = Config::decode(&bytes) {
            // What was accepted can be encoded again: both sides have the same limits.
            prop_assert_eq!(Config::decode(&config.encode().unwrap()), Ok(config));
        }
    }
}

#[test]
fn shares_come_back_in_order_and_are_checked() {
    let mount = |path: &[u8], flags| HostMount { tag: *b"aegis7", path: path.to_vec(), flags };
    let mounts =
        vec![mount(b"/", HostMountFlags::ROOT | HostMountFlags::READ_ONLY), mount(b"/a/b", HostMountFlags::empty())];
    let config = Config { mounts, ..minimal() };
    assert_eq!(Config::decode(&config.encode().unwrap()), Ok(config));
    for bad in [vec![mount(b"a", HostMountFlags::ROOT)], vec![mount(b"", HostMountFlags::ROOT)]] {
        assert_eq!(Config { mounts: bad, ..minimal() }.encode(), Err(ConfigError::Mount));
    }
    let wide = Temporary { permissions: 0o10000, ..Temporary::new(b"/x") };
    let many = vec![Temporary::new(b"/x"); TEMPORARY_COUNT_MAX + 1];
    for bad in [vec![Temporary::new(b"run")], vec![Temporary::new(b"")], vec![wide], many] {
        assert_eq!(Config { temporaries: bad, ..minimal() }.encode(), Err(ConfigError::Mount));
    }
    let many = vec![mount(b"/x", HostMountFlags::empty()); MOUNT_COUNT_MAX + 1];
    assert_eq!(Config { mounts: many, ..minimal() }.encode(), Err(ConfigError::Mount));
    for length in 0..10 {
        assert_eq!(Config::decode(&with_record(12, &vec![1; length])), Err(ConfigError::Record(12)));
    }
    assert_eq!(Config::decode(&with_record(12, &[1; 10])), Err(ConfigError::Mount), "no path");
}

//! Port access for device functions that the kernel core granted.
//!
//! Safe for the machine only as far as the device behind the port is: which port belongs to which function, and which
//! are never given away (the interrupt controllers, the configuration ports, the debug console), the kernel core
//! decides by its device table (INV-4).
#![allow(unsafe_code, reason = "port access")]

use super::instructions;

/// Loads a byte.
#[must_use]
pub fn port_read_u8(port: u16) -> u8 {
    // SAFETY: the port is a granted device function's, see the module's head.
    unsafe { instructions::in8(port) }
}

/// Loads a half word.
#[must_use]
pub fn port_read_u16(port: u16) -> u16 {
    // SAFETY: as in `port_read_u8`.
    unsafe { instructions::in16(port) }
}

/// Loads a word.
#[must_use]
pub fn port_read_u32(port: u16) -> u32 {
    // SAFETY: as in `port_read_u8`.
    unsafe { instructions::in32(port) }
}

/// Stores a byte.
pub fn port_write_u8(port: u16, value: u8) {
    // SAFETY: as in `port_read_u8`.
    unsafe { instructions::out8(port, value) }
}

/// Stores a half word.
pub fn port_write_u16(port: u16, value: u16) {
    // SAFETY: as in `port_read_u8`.
    unsafe { instructions::out16(port, value) }
}

/// Stores a word.
pub fn port_write_u32(port: u16, value: u32) {
    // SAFETY: as in `port_read_u8`.
    unsafe { instructions::out32(port, value) }
}

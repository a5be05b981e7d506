//! Port access for device functions that the kernel core granted.
//!
//! Safe for the machine only as far as the device behind the port is: which port belongs to which function, and which
//! are never given away (the interrupt controllers, the configuration ports, the debug console), the kernel core
//! decides by its device table (INV-4).
#![allow(unsafe_code, reason = "port access")]

use super::instructions;

/// Loads 1, 2 or (whatever else is said) 4 bytes.
#[must_use]
pub fn port_read(port: u16, width_bytes: u32) -> u32 {
    // SAFETY: the port is a granted device function's, see the module's head.
    unsafe {
        match width_bytes {
            1 => u32::from(instructions::in8(port)),
            2 => u32::from(instructions::in16(port)),
            _ => instructions::in32(port),
        }
    }
}

/// Stores the low 1, 2 or (whatever else is said) 4 bytes of a word.
pub fn port_write(port: u16, width_bytes: u32, value: u32) {
    // SAFETY: as in `port_read`.
    unsafe {
        match width_bytes {
            1 => instructions::out8(port, value as u8),
            2 => instructions::out16(port, value as u16),
            _ => instructions::out32(port, value),
        }
    }
}

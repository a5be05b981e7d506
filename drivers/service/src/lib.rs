//! Services: what stands between a device's driver and the clients that use it through sessions (`aegis_proto`), over
//! any driver and in any placement. [`disk`] is that of disks, [`net`] that of a network card; and [`watch`]
//! is that of watched memory, whose device is the page table.
//!
//! No allocation, no time and no chance of its own. Neighbours: `aegis_hal` has the drivers' traits, `domains/` and the
//! extended kernel place services.
#![no_std]
#![forbid(unsafe_code)]

pub mod disk;
pub mod net;
pub mod watch;

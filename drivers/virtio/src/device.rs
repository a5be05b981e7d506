//! What every virtio driver does before and after its queues: status bits and features, in the
//! order of section 3.1.1; interrupts; and the end.

use core::hint::spin_loop;

use aegis_hal::{Dma, Irq};

use crate::{ConfigurationFault, DeviceFault, Transport, VirtioError};

/// Status bits, section 2.1.
pub mod status {
    /// The guest has noticed the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The guest has a driver for it.
    pub const DRIVER: u8 = 2;
    /// The driver is set up.
    pub const DRIVER_OK: u8 = 4;
    /// Features are agreed on.
    pub const FEATURES_OK: u8 = 8;
    /// The device cannot go on.
    pub const DEVICE_NEEDS_RESET: u8 = 64;
    /// The driver has given up.
    pub const FAILED: u8 = 128;
}

/// Feature: virtio 1.x, not legacy. Always required.
pub const FEATURE_VERSION_1: u64 = 1 << 32;
/// Feature: the device uses the addresses that the platform (an IOMMU) translates. Always taken
/// when offered: without it a device behind an IOMMU would bypass it.
pub const FEATURE_ACCESS_PLATFORM: u64 = 1 << 33;

/// Resets the device and waits until it says so. Afterwards it accesses no memory.
///
/// # Errors
/// [`DeviceFault::ResetTimeout`] after `poll_count_max` looks.
pub fn reset(transport: &mut impl Transport, poll_count_max: u32) -> Result<(), VirtioError> {
    transport.set_status(0)?;
    for _ in 0..poll_count_max {
        if transport.status()? == 0 {
            return Ok(());
        }
        spin_loop();
    }
    Err(DeviceFault::ResetTimeout.into())
}

/// From a reset device to agreed features: returns those in force. Queues are set up next, then
/// [`start`].
///
/// `required` and `wanted` are features of the device type; the two common ones are added here.
///
/// # Errors
/// [`ConfigurationFault::DeviceType`], [`ConfigurationFault::FeaturesMissing`],
/// [`DeviceFault::FeaturesRefused`].
pub fn negotiate(
    transport: &mut impl Transport,
    device_type: u32,
    required: u64,
    wanted: u64,
) -> Result<u64, VirtioError> {
    let found = transport.device_type()?;
    if found != device_type {
        return Err(ConfigurationFault::DeviceType { expected: device_type, found }.into());
    }
    transport.set_status(status::ACKNOWLEDGE)?;
    transport.set_status(status::ACKNOWLEDGE | status::DRIVER)?;
    let offered = transport.device_features()?;
    let required = required | FEATURE_VERSION_1;
    let missing = required & !offered;
    if missing != 0 {
        return Err(ConfigurationFault::FeaturesMissing { bits: missing }.into());
    }
    let features = offered & (required | wanted | FEATURE_ACCESS_PLATFORM);
    transport.set_driver_features(features)?;
    let agreed = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
    transport.set_status(agreed)?;
    if transport.status()? & status::FEATURES_OK == 0 {
        return Err(DeviceFault::FeaturesRefused.into());
    }
    Ok(features)
}

/// Lets the device begin; its queues are set up.
///
/// # Errors
/// Those of [`Transport`].
pub fn start(transport: &mut impl Transport) -> Result<(), VirtioError> {
    transport.set_status(status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK)
}

/// Whether the device says that it cannot go on. Costs a trap, so it is asked when the device
/// signals a configuration change.
///
/// # Errors
/// Those of [`Transport`].
pub fn needs_reset(transport: &impl Transport) -> Result<bool, VirtioError> {
    Ok(transport.status()? & status::DEVICE_NEEDS_RESET != 0)
}

/// Brings a new driver up, or stops it again: the error that stopped the set-up tells more than one that comes of it.
pub(crate) fn bring_up<V, S>(
    mut driver: V,
    bring_up: impl FnOnce(&mut V) -> Result<(), VirtioError>,
    stop: impl FnOnce(V) -> S,
) -> Result<V, VirtioError> {
    match bring_up(&mut driver) {
        Ok(()) => Ok(driver),
        Err(error) => {
            stop(driver);
            Err(error)
        }
    }
}

/// Clears an interrupt's cause and lets the next one through, in this order; what the driver does next is to poll. The
/// fault, if the device says that it cannot go on.
///
/// # Errors
/// Those of [`Transport`] and [`Irq`].
pub fn acknowledge(transport: &mut impl Transport, irq: &mut impl Irq) -> Result<Option<DeviceFault>, VirtioError> {
    let cause = transport.acknowledge_interrupt()?;
    irq.unmask()?;
    Ok((cause.configuration && needs_reset(transport)?).then_some(DeviceFault::NeedsReset))
}

/// What is left of a driver that was stopped.
#[derive(Debug)]
pub struct Stopped<T, D> {
    /// The transport; a new driver can be made of it.
    pub transport: T,
    /// The allocator.
    pub dma: D,
    /// `Err` if the device did not stop; then its buffers are in quarantine ([`Dma::quarantine`]).
    pub outcome: Result<(), VirtioError>,
}

/// Resets the device, waits until it has stopped, and only then gives back the memory that it could reach, which
/// `for_each` names.
pub fn stop<T: Transport, D: Dma>(
    (mut transport, mut dma): (T, D),
    poll_count_max: u32,
    for_each: impl FnOnce(&mut dyn FnMut(D::Buffer)),
) -> Stopped<T, D> {
    let outcome = reset(&mut transport, poll_count_max);
    for_each(&mut |buffer| match outcome {
        Ok(()) => dma.release(buffer),
        Err(_) => dma.quarantine(buffer),
    });
    Stopped { transport, dma, outcome }
}

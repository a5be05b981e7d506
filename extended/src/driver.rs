//! What drives functions of one kind here: an `Extension` without what concerns no function.

use aegis_abi::call::ExtensionCall;
use aegis_abi::types::Status;
use aegis_kernel::Hardware;
use aegis_kernel_core::{DeviceDescription, DeviceId, EnvironmentId, State};

/// Drives the functions that it takes. Every method is called with the kernel lock held and is bounded.
pub(crate) trait Driver {
    /// Whether it will drive a function.
    fn drives(&self, device: DeviceId, description: &DeviceDescription) -> bool;
    /// What an environment asks for.
    fn call(&self, state: &mut State<'_, Hardware>, by: EnvironmentId, call: &ExtensionCall) -> Result<u64, Status>;
    /// Nothing is under way at a function when this returns.
    fn stop(&self, state: &mut State<'_, Hardware>, device: DeviceId);
    /// An interrupt of a function came.
    fn interrupt(&self, state: &mut State<'_, Hardware>, device: DeviceId);
}

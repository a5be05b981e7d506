//! Interrupt vectors, their acknowledgement, and interrupts between processors.
//!
//! Vectors 0x30..=0xef are for devices (the kernel assigns them); above are the machine's own. These are acknowledged
//! before the kernel sees them, so that idling inside a handler loses nothing. A device's is acknowledged behind its
//! handler, which has held back the line that raised it, or the function: a level-triggered line that is still raised
//! comes again at once otherwise, and nobody has to mask it a second time.

use super::{local_apic, processor, shootdown};

/// First vector that a device may get.
pub const DEVICE_VECTOR_FIRST: u8 = 0x30;
/// Last vector that a device may get.
pub const DEVICE_VECTOR_LAST: u8 = 0xef;
/// The one-shot timer.
pub const VECTOR_TIMER: u8 = 0xf0;
/// Another processor asks this one to choose again what it runs.
pub const VECTOR_RESCHEDULE: u8 = 0xf1;
const VECTOR_SHOOTDOWN: u8 = 0xf2;
/// Low four bits set, as old local APICs want it.
pub(crate) const VECTOR_SPURIOUS: u8 = 0xff;

/// Has an interrupt handled, if it is the kernel's business, and acknowledges it.
pub(crate) fn take(vector: u8, mut handle: impl FnMut()) {
    let is_device = (DEVICE_VECTOR_FIRST..=DEVICE_VECTOR_LAST).contains(&vector);
    match vector {
        VECTOR_SPURIOUS => return,
        VECTOR_SHOOTDOWN => shootdown::service(),
        _ if is_device => handle(),
        _ => {}
    }
    local_apic::end_of_interrupt();
    if vector != VECTOR_SHOOTDOWN && !is_device {
        handle();
    }
}

/// Interrupts another processor with [`VECTOR_RESCHEDULE`]; one that has not started gets nothing.
pub fn send_reschedule(processor: usize) {
    send(1 << processor, VECTOR_RESCHEDULE);
}

/// Tells processors that a translation shootdown waits for them.
pub(crate) fn send_shootdown(processors: u32) {
    send(processors, VECTOR_SHOOTDOWN);
}

/// Stops all other processors, wherever they are. One that is still starting has no place to take an NMI; it looks
/// for itself.
pub(crate) fn stop_others() {
    for_each(!(1 << processor::processor_index()), local_apic::send_nmi);
}

fn send(processors: u32, vector: u8) {
    for_each(processors, |apic_id| local_apic::send(apic_id, vector));
}

/// Calls `act` with the interrupt identifier of every started processor of a set.
fn for_each(processors: u32, act: impl Fn(u32)) {
    let mut left = processors & local_apic::started_mask();
    while left != 0 {
        act(local_apic::apic_id(left.trailing_zeros() as usize));
        left &= left - 1;
    }
}

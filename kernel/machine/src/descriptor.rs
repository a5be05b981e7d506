//! Encodings of segment, task-state and interrupt descriptors (Intel SDM vol. 3, 3.4.5, 6.14.1 and 7.2.3).
//!
//! The selectors are those that Linux gives its programs, because some read CS and SS. `syscall` and `sysret` fix
//! their order: kernel code, kernel data, (32-bit user code), user data, user code.

/// Kernel code selector.
pub const KERNEL_CODE: u16 = 0x10;
/// Kernel stack selector.
pub const KERNEL_DATA: u16 = 0x18;
/// What STAR's upper selector must be: `sysret` adds 8 for SS and 16 for CS.
pub const SYSRET_BASE: u16 = 0x23;
/// User stack selector.
pub const USER_DATA: u16 = 0x2b;
/// User code selector.
pub const USER_CODE: u16 = 0x33;
/// Task-state selector (two slots).
pub const TASK_STATE: u16 = 0x40;
/// Slots of a descriptor table.
pub const GDT_LENGTH: usize = 10;

/// 64-bit code, privilege 0.
const KERNEL_CODE_DESCRIPTOR: u64 = 0x00af_9b00_0000_ffff;
/// Data, privilege 0.
const KERNEL_DATA_DESCRIPTOR: u64 = 0x00cf_9300_0000_ffff;
/// Data, privilege 3.
const USER_DATA_DESCRIPTOR: u64 = 0x00cf_f300_0000_ffff;
/// 64-bit code, privilege 3.
const USER_CODE_DESCRIPTOR: u64 = 0x00af_fb00_0000_ffff;

/// Bytes of a task-state segment.
pub const TASK_STATE_BYTES: usize = 104;

/// A task-state segment as 32-bit words: 64-bit fields lie at odd multiples of four.
pub type TaskState = [u32; TASK_STATE_BYTES / 4];

/// A task-state segment with the stack for entries from user mode and up to seven interrupt stacks, without I/O
/// permission map.
#[must_use]
pub fn task_state(kernel_stack_top: u64, interrupt_stack_tops: &[u64]) -> TaskState {
    let mut words = [0; TASK_STATE_BYTES / 4];
    let mut put = |index: usize, value: u64| {
        words[index] = value as u32;
        words[index + 1] = (value >> 32) as u32;
    };
    put(1, kernel_stack_top);
    for (index, &top) in interrupt_stack_tops.iter().take(7).enumerate() {
        put(9 + 2 * index, top);
    }
    // The permission map starts beyond the segment's limit: every port access from user mode faults.
    words[25] = (TASK_STATE_BYTES as u32) << 16;
    words
}

/// A descriptor table whose task-state segment is at `task_state_address`.
#[must_use]
pub fn descriptor_table(task_state_address: u64) -> [u64; GDT_LENGTH] {
    let mut table = [0; GDT_LENGTH];
    table[usize::from(KERNEL_CODE / 8)] = KERNEL_CODE_DESCRIPTOR;
    table[usize::from(KERNEL_DATA / 8)] = KERNEL_DATA_DESCRIPTOR;
    table[usize::from(USER_DATA / 8)] = USER_DATA_DESCRIPTOR;
    table[usize::from(USER_CODE / 8)] = USER_CODE_DESCRIPTOR;
    let limit = TASK_STATE_BYTES as u64 - 1;
    let low = limit | (task_state_address & 0x00ff_ffff) << 16 | 0x89 << 40 | (task_state_address >> 24 & 0xff) << 56;
    table[usize::from(TASK_STATE / 8)] = low;
    table[usize::from(TASK_STATE / 8) + 1] = task_state_address >> 32;
    table
}

/// An interrupt gate (interrupts off on entry) to `handler`.
///
/// `interrupt_stack` 0 keeps the current stack or takes the kernel stack; `privilege` is the least privileged `int n`
/// allowed.
#[must_use]
pub const fn interrupt_gate(handler: u64, interrupt_stack: u8, privilege: u8) -> [u64; 2] {
    let low = (handler & 0xffff)
        | (KERNEL_CODE as u64) << 16
        | (interrupt_stack as u64 & 7) << 32
        | 0x8e << 40
        | (privilege as u64 & 3) << 45
        | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use aegis_abi::upcall::{USER_CODE_SELECTOR, USER_STACK_SELECTOR};

    #[test]
    fn selectors_are_those_of_the_contract_and_of_sysret() {
        assert_eq!(u64::from(USER_CODE), USER_CODE_SELECTOR);
        assert_eq!(u64::from(USER_DATA), USER_STACK_SELECTOR);
        assert_eq!(SYSRET_BASE + 8, USER_DATA);
        assert_eq!(SYSRET_BASE + 16, USER_CODE);
        assert_eq!(KERNEL_CODE + 8, KERNEL_DATA);
    }

    #[test]
    fn gates_scatter_the_handler_address() {
        let [low, high] = interrupt_gate(0xffff_ffff_8020_1234, 3, 0);
        assert_eq!(high, 0xffff_ffff);
        assert_eq!(low & 0xffff, 0x1234);
        assert_eq!(low >> 48, 0x8020);
        assert_eq!(low >> 16 & 0xffff, 0x10);
        assert_eq!(low >> 32 & 0xff, 3);
        assert_eq!(low >> 40 & 0xff, 0x8e);
        assert_eq!(interrupt_gate(0, 0, 3)[0] >> 40 & 0xff, 0xee);
    }

    #[test]
    fn the_task_state_descriptor_and_segment_hold_their_addresses() {
        let table = descriptor_table(0xffff_ffff_8123_4567);
        let low = table[8];
        assert_eq!(low >> 16 & 0xff_ffff, 0x23_4567);
        assert_eq!(low >> 56, 0x81);
        assert_eq!(table[9], 0xffff_ffff);
        assert_eq!(low & 0xffff, 103);
        let words = task_state(0x1111_2222_3333_4444, &[5, 6]);
        assert_eq!((words[1], words[2]), (0x3333_4444, 0x1111_2222));
        assert_eq!((words[9], words[11], words[25] >> 16), (5, 6, 104));
    }
}

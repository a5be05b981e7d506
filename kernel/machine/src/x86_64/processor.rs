//! State of each processor: stacks, descriptor tables, the word block that GS points at, and what the fast upcall
//! needs.
//!
//! Invariants: `PROCESSORS[i]` and `STACKS[i]` belong to processor i alone, except the atomic fields. GS base in ring
//! 0 is `&PROCESSORS[i]`; `trap.s` relies on the offsets below and on the last word of each interrupt stack.
#![allow(unsafe_code, reason = "descriptor tables and GS are loaded in assembly; stacks are raw memory")]

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aegis_abi::FrameNumber;
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::upcall::{ControlPage, UpcallFrame};

use super::instructions;
use crate::PROCESSOR_COUNT_MAX;
use crate::descriptor;

/// Bytes of an interrupt stack; its address is a multiple of this.
pub(crate) const INTERRUPT_STACK_BYTES: usize = 8192;
/// Bytes below the kernel stack that stay unmapped.
pub(crate) const GUARD_BYTES: usize = 4096;
/// Where the kernel stack ends in [`Stacks`].
pub(crate) const KERNEL_STACK_END: usize = if cfg!(feature = "deep-stacks") { 131_072 } else { 32_768 };
/// Words of [`ControlPage`] that the fast upcalls touch, see [`Processor::no_control`].
const CONTROL_WORDS: usize = 6;

/// Interrupt stack numbers.
pub(crate) const STACK_NMI: u8 = 1;
pub(crate) const STACK_DOUBLE_FAULT: u8 = 2;
pub(crate) const STACK_MACHINE_CHECK: u8 = 3;

/// The stacks of a processor.
#[repr(C, align(8192))]
pub(crate) struct Stacks {
    guard: [u8; GUARD_BYTES],
    kernel: [u8; KERNEL_STACK_END - GUARD_BYTES],
    interrupt: [[u8; INTERRUPT_STACK_BYTES]; 3],
}

#[repr(transparent)]
pub(crate) struct AllStacks(UnsafeCell<[Stacks; PROCESSOR_COUNT_MAX]>);

// SAFETY: only the hardware and `trap.s` of the owning processor use a stack.
unsafe impl Sync for AllStacks {}

/// All stacks.
pub(crate) static STACKS: AllStacks = AllStacks(UnsafeCell::new(
    [const {
        Stacks {
            guard: [0; GUARD_BYTES],
            kernel: [0; KERNEL_STACK_END - GUARD_BYTES],
            interrupt: [[0; INTERRUPT_STACK_BYTES]; 3],
        }
    }; PROCESSOR_COUNT_MAX],
));

impl AllStacks {
    /// Address of the stacks of processor `index`.
    pub(crate) fn address(&self, index: usize) -> u64 {
        self.0.get() as u64 + (index * size_of::<Stacks>()) as u64
    }
}

/// The save area of what runs here, as `trap.s` reads it: a page below its user address; how far from there a stack
/// pointer is in it; the kernel's address of its first frame, and what that has more than the user's.
type SaveAreaWords = [AtomicU64; 4];

/// The state of a processor.
#[repr(C, align(64))]
pub(crate) struct Processor {
    self_address: AtomicU64,
    /// Scratch of the system-call entry.
    user_rsp: AtomicU64,
    kernel_stack_top: AtomicU64,
    /// Kernel address of the control page of what runs here; never 0.
    control: AtomicU64,
    /// What `trap.s` counts, in 32 bits each: upcalls of system calls and of exceptions, null calls and entered spaces.
    entry_counts: [AtomicU64; 2],
    save_area: SaveAreaWords,
    index: AtomicU32,
    /// Stands in for a control page: no entry points.
    no_control: [AtomicU64; CONTROL_WORDS],
    descriptor_table: UnsafeCell<[u64; descriptor::GDT_LENGTH]>,
    task_state: UnsafeCell<descriptor::TaskState>,
}

// SAFETY: the cells are written by their own processor only, once, before it takes a trap.
unsafe impl Sync for Processor {}

static PROCESSORS: [Processor; PROCESSOR_COUNT_MAX] = [const {
    Processor {
        self_address: AtomicU64::new(0),
        user_rsp: AtomicU64::new(0),
        kernel_stack_top: AtomicU64::new(0),
        control: AtomicU64::new(0),
        entry_counts: [const { AtomicU64::new(0) }; 2],
        save_area: [const { AtomicU64::new(0) }; 4],
        index: AtomicU32::new(0),
        no_control: [const { AtomicU64::new(0) }; CONTROL_WORDS],
        descriptor_table: UnsafeCell::new([0; descriptor::GDT_LENGTH]),
        task_state: UnsafeCell::new([0; descriptor::TASK_STATE_BYTES / 4]),
    }
}; PROCESSOR_COUNT_MAX];

/// Offsets in [`Processor`] for `trap.s`.
pub(crate) const OFFSET_USER_RSP: usize = offset_of!(Processor, user_rsp);
pub(crate) const OFFSET_KERNEL_STACK_TOP: usize = offset_of!(Processor, kernel_stack_top);
pub(crate) const OFFSET_CONTROL: usize = offset_of!(Processor, control);
pub(crate) const OFFSET_SYSCALL_UPCALL_COUNT: usize = offset_of!(Processor, entry_counts);
pub(crate) const OFFSET_EXCEPTION_UPCALL_COUNT: usize = OFFSET_SYSCALL_UPCALL_COUNT + 4;
pub(crate) const OFFSET_SHORT_CALL_COUNT: usize = OFFSET_SYSCALL_UPCALL_COUNT + 8;
pub(crate) const OFFSET_SAVE_AREA: usize = offset_of!(Processor, save_area);

const _: () = {
    assert!(offset_of!(Processor, self_address) == 0);
    assert!(offset_of!(ControlPage, entries) + 2 * 8 <= CONTROL_WORDS * 8);
    assert!(size_of::<Stacks>() == KERNEL_STACK_END + 3 * INTERRUPT_STACK_BYTES);
};

/// Installs the state of processor 0.
pub(crate) fn install_boot() {
    install(0);
}

/// Loads descriptor tables, task state and GS of this processor, whose index is `index`.
pub(crate) fn install(index: usize) {
    let processor = &PROCESSORS[index];
    let stacks = STACKS.address(index);
    let kernel_stack_top = stacks + KERNEL_STACK_END as u64;
    let address = core::ptr::from_ref(processor) as u64;
    let mut tops = [0; 3];
    for (number, top) in (1..).zip(&mut tops) {
        let end = kernel_stack_top + number * INTERRUPT_STACK_BYTES as u64;
        // SAFETY: the last word of this processor's own interrupt stack, not in use yet.
        unsafe { core::ptr::with_exposed_provenance_mut::<u64>((end - 8) as usize).write(address) };
        *top = end - 16;
    }
    processor.self_address.store(address, Ordering::Relaxed);
    processor.kernel_stack_top.store(kernel_stack_top, Ordering::Relaxed);
    processor.control.store(processor.no_control.as_ptr() as u64, Ordering::Relaxed);
    processor.index.store(index as u32, Ordering::Relaxed);
    // SAFETY: this processor's own cells, written before the tables are loaded.
    unsafe {
        *processor.task_state.get() = descriptor::task_state(kernel_stack_top, &tops);
        *processor.descriptor_table.get() = descriptor::descriptor_table(processor.task_state.get() as u64);
        load_descriptors(processor.descriptor_table.get() as u64);
        instructions::set_kernel_gs(address);
    }
}

/// # Safety
/// `table` must be a descriptor table as [`descriptor::descriptor_table`] makes it, alive for ever.
unsafe fn load_descriptors(table: u64) {
    let pointer = descriptor_pointer((descriptor::GDT_LENGTH * 8 - 1) as u16, table);
    // SAFETY: the table has the selectors that are loaded; the far return lands on the next instruction.
    unsafe {
        asm!(
            "lgdt [{pointer}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ss, {data:x}",
            "ltr {task:x}",
            pointer = in(reg) &pointer,
            code = const descriptor::KERNEL_CODE,
            scratch = out(reg) _,
            data = in(reg) descriptor::KERNEL_DATA,
            task = in(reg) descriptor::TASK_STATE,
        );
    }
}

/// The operand of `lgdt` and `lidt`: limit, then address, without a gap.
pub(crate) fn descriptor_pointer(limit: u16, address: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&limit.to_le_bytes());
    bytes[2..].copy_from_slice(&address.to_le_bytes());
    bytes
}

/// This processor's state.
#[inline]
pub(crate) fn current() -> &'static Processor {
    let address: u64;
    // SAFETY: in ring 0 GS points at a `Processor`, whose first word is its address.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) address, options(nostack, preserves_flags, readonly, pure));
        &*core::ptr::with_exposed_provenance::<Processor>(address as usize)
    }
}

/// The index of the processor that runs this: 0 is the boot processor.
#[must_use]
#[inline]
pub fn processor_index() -> usize {
    current().index.load(Ordering::Relaxed) as usize
}

/// The top of this processor's kernel stack.
pub(crate) fn kernel_stack_top() -> u64 {
    current().kernel_stack_top.load(Ordering::Relaxed)
}

/// What a processor needs at hand to switch to a context: addresses of memory that stays pinned while it exists.
#[derive(Clone, Copy, Debug)]
pub struct ContextPlaces {
    pub(super) vector_state: u64,
    control: u64,
    save_area: [u64; 4],
}

impl ContextPlaces {
    /// No context's: an address that faults.
    pub const NONE: Self = Self { vector_state: 0, control: 0, save_area: [0; 4] };

    /// Of a context whose save area's frames follow its control page's; panics if one is not memory.
    #[must_use]
    pub fn new(vector_state: FrameNumber, control: FrameNumber, save_area_base: u64, save_area_bytes: u64) -> Self {
        let direct = super::memory::frame_address(FrameNumber(control.0 + 1));
        super::memory::frame_address(FrameNumber(control.0 + save_area_bytes / PAGE_SIZE));
        Self {
            vector_state: super::memory::frame_address(vector_state),
            control: super::memory::frame_address(control),
            save_area: [
                save_area_base - PAGE_SIZE,
                save_area_bytes + PAGE_SIZE,
                direct + save_area_bytes - size_of::<UpcallFrame>() as u64,
                direct.wrapping_sub(save_area_base),
            ],
        }
    }
}

/// `trap.s` delivers no system calls and exceptions on this processor.
pub fn clear_upcall_places() {
    let processor = current();
    processor.control.store(processor.no_control.as_ptr() as u64, Ordering::Relaxed);
}

/// Says whose system calls and exceptions `trap.s` delivers on this processor, until the next call here.
#[inline]
pub fn set_upcall_places(places: &ContextPlaces) {
    let processor = current();
    for (word, value) in processor.save_area.iter().zip(places.save_area) {
        word.store(value, Ordering::Relaxed);
    }
    processor.control.store(places.control, Ordering::Relaxed);
}

/// What `trap.s` counted on this processor since the last call: upcalls of system calls and of exceptions, kernel
/// calls.
#[must_use]
#[inline]
pub fn take_entry_counts() -> Option<[u64; 3]> {
    // Only this processor writes the words, in `trap.s` with interrupts off, as here: no exchange is needed. It comes
    // here at the end of a slice at the latest, so no count is full before.
    let [upcalls, short_calls] = &current().entry_counts;
    let (both, calls) = (upcalls.load(Ordering::Relaxed), short_calls.load(Ordering::Relaxed));
    if both | calls == 0 {
        return None;
    }
    upcalls.store(0, Ordering::Relaxed);
    short_calls.store(0, Ordering::Relaxed);
    Some([both & u64::from(u32::MAX), both >> 32, calls])
}

//! Vector registers for cases. This program is soft-float code and never touches them by itself, so what is loaded
//! stays until somebody else's state is loaded.

use aegis_rt::clock;

/// Sixteen vector registers of 32 bytes; with SSE only the lower half of each is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub(crate) struct Registers([[u64; 4]; 16]);

unsafe extern "C" {
    fn vector_load_sse(registers: *const Registers);
    fn vector_store_sse(registers: *mut Registers);
    fn vector_load_avx(registers: *const Registers);
    fn vector_store_avx(registers: *mut Registers);
    fn vector_control_set(mxcsr: u32);
    fn vector_control_get() -> u32;
    fn fs_base_set(base: u64);
    fn fs_base_get() -> u64;
}

core::arch::global_asm!(
    "vector_load_sse:",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movdqu xmm\\n, [rdi + 32 * \\n]",
    ".endr",
    "ret",
    "vector_store_sse:",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movdqu [rdi + 32 * \\n], xmm\\n",
    ".endr",
    "ret",
    "vector_load_avx:",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "vmovdqu ymm\\n, [rdi + 32 * \\n]",
    ".endr",
    "ret",
    "vector_store_avx:",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "vmovdqu [rdi + 32 * \\n], ymm\\n",
    ".endr",
    "ret",
    "vector_control_set:",
    "push rdi",
    "ldmxcsr [rsp]",
    "pop rdi",
    "ret",
    "vector_control_get:",
    "push 0",
    "stmxcsr [rsp]",
    "pop rax",
    "ret",
    "fs_base_set:",
    "wrfsbase rdi",
    "ret",
    "fs_base_get:",
    "rdfsbase rax",
    "ret",
);

impl Registers {
    /// All zero.
    pub(crate) const ZERO: Self = Self([[0; 4]; 16]);

    /// A pattern in which every word differs, also from those of other seeds.
    pub(crate) fn pattern(seed: u64) -> Self {
        let lane_count = if has_avx() { 4 } else { 2 };
        let mut registers = Self::ZERO;
        for (number, register) in registers.0.iter_mut().enumerate() {
            for (lane, word) in register.iter_mut().enumerate().take(lane_count) {
                let unique = seed << 16 | (number as u64) << 8 | lane as u64;
                *word = unique.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
        registers
    }

    /// Puts this into the processor's registers.
    pub(crate) fn load(&self) {
        // SAFETY: reads this structure only; vector registers hold nothing that Rust relies on here (soft-float).
        unsafe { if has_avx() { vector_load_avx(self) } else { vector_load_sse(self) } }
    }

    /// The processor's registers.
    pub(crate) fn store() -> Self {
        let mut registers = Self::ZERO;
        // SAFETY: writes this structure only.
        unsafe {
            if has_avx() {
                vector_store_avx(&mut registers);
            } else {
                vector_store_sse(&mut registers);
            }
        }
        registers
    }
}

/// Whether the kernel saves AVX state.
pub(crate) fn has_avx() -> bool {
    // SAFETY: the kernel maps the system page in every environment.
    unsafe { clock::system_page() }.vector_state_mask & 4 != 0
}

/// Sets MXCSR: rounding, exception masks and flags.
pub(crate) fn set_control(mxcsr: u32) {
    // SAFETY: Rust code here uses no floating point.
    unsafe { vector_control_set(mxcsr) }
}

/// MXCSR.
pub(crate) fn control() -> u32 {
    // SAFETY: only reads the register.
    unsafe { vector_control_get() }
}

/// Sets the FS base.
pub(crate) fn set_fs_base(base: u64) {
    // SAFETY: Rust code here has no thread-local storage.
    unsafe { fs_base_set(base) }
}

/// The FS base.
pub(crate) fn fs_base() -> u64 {
    // SAFETY: only reads the register.
    unsafe { fs_base_get() }
}

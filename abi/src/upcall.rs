//! How the kernel tells an environment what happened to it: control page, save area, upcall frame.
//!
//! Invariants: the kernel writes only through the frames that were bound when the virtual processor was made, so
//! delivery never faults; it reads entry points and the mask afresh each time and trusts neither; what it pushes lies
//! wholly inside the save area. The kernel's own trap frame has the layout of [`UpcallFrame`], so that a delivery is
//! a copy.

/// Why an upcall happened, and the index of its entry point in [`ControlPage::entries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum UpcallKind {
    /// A `syscall` instruction in the lower half. Nothing is pushed; see the `syscall_*` fields.
    Syscall = 0,
    /// A processor exception: `vector`, `error_code` and `fault_address` are valid.
    Exception = 1,
    /// The processor was given to this virtual processor after somebody else had it.
    SliceBegin = 2,
    /// The slice is over: give the processor up within [`SLICE_END_LIMIT_NS`].
    SliceEnd = 3,
    /// A bell that is bound to this virtual processor was rung.
    Bell = 4,
    /// The creator asks for frames back: see `Call::EnvironmentReclaim`.
    Revocation = 5,
    /// Frames were taken by force: see [`ControlPage::repossessed_count`].
    Repossession = 6,
}

/// What interrupted code may use below its stack pointer (System V ABI): no frame is pushed there.
pub const RED_ZONE_BYTES: u64 = 128;

/// Entry points in a control page.
pub const UPCALL_KIND_COUNT: usize = 8;

/// What a slice-end upcall may take. Each miss is charged and gives as much time again.
pub const SLICE_END_LIMIT_NS: u64 = 2_000_000;

/// So many misses in one slice stop the environment. More than one, because the host of a virtual machine can take a
/// processor away for longer than the limit at any moment.
pub const SLICE_END_MISS_COUNT_MAX: u32 = 4;

/// The page that a virtual processor and the kernel share. User GS base points at it.
///
/// The kernel sets the address fields when it makes the virtual processor and never reads them again.
#[derive(Debug)]
#[repr(C)]
pub struct ControlPage {
    /// Set on [`UpcallKind::Syscall`]: the address after the `syscall` instruction (RCX as the processor left it).
    pub syscall_rip: u64,
    /// Set on [`UpcallKind::Syscall`]: the flags (R11 as the processor left it).
    pub syscall_rflags: u64,
    /// Set on [`UpcallKind::Syscall`]: the program's stack pointer, also still in RSP.
    pub syscall_rsp: u64,
    /// Not zero: asynchronous upcalls are held back. The kernel sets 1 on every delivery; the library OS clears it.
    pub masked: u32,
    /// Bit n: an upcall of kind n was held back. Set by the kernel, cleared by the library OS with one atomic exchange.
    pub pending: u32,
    /// Where each kind enters; must lie in the library OS window. 0: none (the outcome for each kind is in
    /// `docs/abi.md`).
    pub entries: [u64; UPCALL_KIND_COUNT],
    /// User address of this page.
    pub control_address: u64,
    /// User address one past the save area.
    pub save_area_top: u64,
    /// User address of the save area's first byte.
    pub save_area_base: u64,
    /// Nanoseconds for which it would have run but for others: from the end of each turn that it did not end by
    /// waiting to its next one. The kernel adds them when it runs again, before the slice begin.
    pub preempted_ns: u64,
    /// Set on [`UpcallKind::Revocation`]: frames that were owned beyond the quota that is left.
    pub revocation_frame_count: u64,
    /// Entries of `repossessed` that the kernel has written.
    pub repossessed_count: u64,
    /// Frame numbers that the kernel took by force, oldest first.
    pub repossessed: [u64; REPOSSESSED_COUNT_MAX],
    /// For the library OS alone; the kernel never touches it.
    pub library: [u64; 64],
}

/// Frames taken by force that can be reported before the library OS resets the count.
pub const REPOSSESSED_COUNT_MAX: usize = 64;

/// What the kernel pushes on the save area; also what [`UpcallKind::Syscall`] handlers build for themselves.
///
/// 24 words, 192 bytes. The last five are what `iretq` pops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "register names")]
pub struct UpcallFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    /// [`UpcallKind`] as a number.
    pub kind: u32,
    /// [`ControlPage::masked`] as it was before the delivery.
    pub masked_before: u32,
    /// Exceptions: the vector (0..=31).
    pub vector: u64,
    /// Exceptions: the error code, 0 where the processor gives none.
    pub error_code: u64,
    /// Page faults: the address (CR2).
    pub fault_address: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl UpcallFrame {
    /// All registers zero.
    pub const ZERO: Self = Self {
        r15: 0,
        r14: 0,
        r13: 0,
        r12: 0,
        r11: 0,
        r10: 0,
        r9: 0,
        r8: 0,
        rdi: 0,
        rsi: 0,
        rbp: 0,
        rbx: 0,
        rdx: 0,
        rcx: 0,
        rax: 0,
        kind: 0,
        masked_before: 0,
        vector: 0,
        error_code: 0,
        fault_address: 0,
        rip: 0,
        cs: 0,
        rflags: 0,
        rsp: 0,
        ss: 0,
    };

    /// The frame's words in the order in which they are stored.
    #[must_use]
    pub const fn to_words(&self) -> [u64; 24] {
        let kind = self.kind as u64 | (self.masked_before as u64) << 32;
        [
            self.r15,
            self.r14,
            self.r13,
            self.r12,
            self.r11,
            self.r10,
            self.r9,
            self.r8,
            self.rdi,
            self.rsi,
            self.rbp,
            self.rbx,
            self.rdx,
            self.rcx,
            self.rax,
            kind,
            self.vector,
            self.error_code,
            self.fault_address,
            self.rip,
            self.cs,
            self.rflags,
            self.rsp,
            self.ss,
        ]
    }
}

/// User code selector in [`UpcallFrame::cs`].
pub const USER_CODE_SELECTOR: u64 = 0x33;
/// User stack selector in [`UpcallFrame::ss`].
pub const USER_STACK_SELECTOR: u64 = 0x2b;

const _: () = {
    assert!(size_of::<UpcallFrame>() == 192);
    assert!(size_of::<ControlPage>() <= crate::layout::PAGE_SIZE as usize);
    assert!(core::mem::offset_of!(ControlPage, masked) == 24);
    assert!(core::mem::offset_of!(ControlPage, entries) == 32);
    assert!(core::mem::offset_of!(UpcallFrame, rip) == 19 * 8);
};

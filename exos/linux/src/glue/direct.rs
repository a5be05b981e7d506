//! The direct view: every frame that exos owns or may read, at `DIRECT_BASE` + its physical address.
//!
//! Grants are made visible with large pages where they are aligned, else with small ones. Bytes are copied with raw
//! pointers and never borrowed, because programs may have the same frames mapped.

use aegis_abi::layout::{LARGE_PAGE_FRAMES, PAGE_SIZE};
use aegis_abi::memory::{BIND_LARGE_PAGE_COUNT_MAX, BIND_PAGE_COUNT_MAX, BindEntry, BindFlags, BindOperation};
use aegis_abi::types::SLOT_SELF;
use aegis_abi::{FrameNumber, Status};
use core::sync::atomic::{AtomicU32, Ordering};
use exos::platform::{BindFault, FrameBytes, FrameGrant};
use exos::sync::Once;

use super::{DIRECT_BASE, DIRECT_FRAME_COUNT, kernel, user};

/// The view itself: proof that [`show`] is how frames get into it.
pub(crate) struct DirectView;

/// Where the bytes of `frame` are, if the view can show it at all.
pub(crate) fn address_of(frame: FrameNumber) -> u64 {
    assert!(frame.0 < DIRECT_FRAME_COUNT, "frame beyond the direct view");
    DIRECT_BASE + frame.address()
}

/// Binds a grant into the view, for reading or for reading and writing.
pub(crate) fn show(grant: FrameGrant, is_writable: bool) -> Result<(), BindFault> {
    bind_pieces(grant, BindOperation::Map, if is_writable { BindFlags::WRITE } else { BindFlags::empty() })
}

/// Takes a grant out of the view again, in the same pieces.
pub(crate) fn hide(grant: FrameGrant) -> Result<(), BindFault> {
    bind_pieces(grant, BindOperation::Unmap, BindFlags::empty())
}

/// Applies `operation` to a grant's place: large pages where it is aligned, small ones elsewhere.
fn bind_pieces(grant: FrameGrant, operation: BindOperation, rights: BindFlags) -> Result<(), BindFault> {
    let mut first = grant.first.0;
    let end = grant.first.0 + grant.count;
    while first < end {
        let until_large = first.next_multiple_of(LARGE_PAGE_FRAMES).min(end) - first;
        let large_count = (end - first) / LARGE_PAGE_FRAMES;
        let (count, flags) = if until_large == 0 && large_count > 0 {
            let large_count = large_count.min(u64::from(BIND_LARGE_PAGE_COUNT_MAX));
            (large_count * LARGE_PAGE_FRAMES, rights | BindFlags::LARGE)
        } else if until_large == 0 {
            ((end - first).min(u64::from(BIND_PAGE_COUNT_MAX)), rights)
        } else {
            (until_large, rights)
        };
        let entry = BindEntry {
            operation: operation as u32,
            flags: flags.bits(),
            virtual_address: address_of(FrameNumber(first)),
            frame: first,
            page_count: count as u32,
            slot: grant.slot.0,
        };
        // SAFETY: the direct view's part of the window is used only for this; each frame has one place in it.
        unsafe { kernel::bind_all(SLOT_SELF, &[entry]) }?;
        first += count;
    }
    Ok(())
}

/// Unused frame that the view shows where frames were taken by force.
static SINK: Once<Option<FrameGrant>> = Once::new();

/// Takes the frame that stands in for frames that are gone, while there is one.
pub(crate) fn keep_sink() {
    SINK.call_once(|| kernel::take_frames(1, 0).ok());
}

/// The view has no page at an address where it had one: the kernel took frames by force, and large pages with them.
/// Shows what is still ours again, and the sink where nothing is. Takes no lock that exos holds while it looks at
/// frames.
pub(crate) fn repair(address: u64) -> bool {
    if !(DIRECT_BASE..DIRECT_BASE + DIRECT_FRAME_COUNT * PAGE_SIZE).contains(&address) {
        return false;
    }
    let frame = (address - DIRECT_BASE) / PAGE_SIZE;
    let own = kernel::program_grant_of(FrameNumber(frame));
    let Some((slot, shown)) = own.map(|slot| (slot, frame)).or_else(|| {
        let sink = SINK.get().copied().flatten()?;
        Some((sink.slot, sink.first.0))
    }) else {
        return false;
    };
    let entry = BindEntry::map(DIRECT_BASE + frame * PAGE_SIZE, shown, 1, slot, BindFlags::WRITE);
    // SAFETY: the view's own place of this frame, at which nothing is.
    unsafe { kernel::bind_all(SLOT_SELF, &[entry]) }.is_ok()
}

/// The bytes of an immutable range of the view.
///
/// # Safety
/// The range was made visible with [`show`], stays so, and nobody ever writes to its frames.
pub(crate) unsafe fn bytes(first: FrameNumber, length_bytes: usize) -> &'static [u8] {
    // SAFETY: by contract.
    unsafe { core::slice::from_raw_parts(address_of(first) as *const u8, length_bytes) }
}

/// A pointer to `length` bytes of a frame.
pub(super) fn at(frame: FrameNumber, offset: usize, length: usize) -> *mut u8 {
    assert!(offset.checked_add(length).is_some_and(|end| end <= PAGE_SIZE as usize), "access beyond a frame");
    (address_of(frame) + offset as u64) as *mut u8
}

/// Writes zero bytes to `count` pages, at least one, 32 at a time. Afterwards YMM0 is as it was, and so is the state of
/// the upper halves (see `glue/user.rs`).
///
/// # Safety
/// From `to` on there are so many whole pages that exos may write, without a Rust object in them, and
/// [`user::is_wide`].
unsafe fn zero_pages_wide(to: *mut u8, count: usize) {
    // SAFETY: by contract.
    unsafe {
        core::arch::asm!(
            "xgetbv",
            "sub rsp, 32",
            "vmovups [rsp], ymm0",
            "vxorps xmm0, xmm0, xmm0",
            "mov rcx, {turns}",
            "2:",
            ".set place, 0",
            ".rept 32",
            "vmovaps [{to} + place], ymm0",
            ".set place, place + 32",
            ".endr",
            "add {to}, 1024",
            "dec rcx",
            "jnz 2b",
            "test al, 4",
            "jne 3f",
            "vzeroupper",
            "movups xmm0, [rsp]",
            "jmp 4f",
            "3: vmovups ymm0, [rsp]",
            "4: add rsp, 32",
            to = inout(reg) to => _,
            turns = in(reg) count * (PAGE_SIZE as usize / 1024),
            inout("rcx") 1_u64 => _,
            out("eax") _,
            out("edx") _,
        );
    }
}

impl FrameBytes for DirectView {
    fn attach(&self, grant: FrameGrant) -> Result<(), Status> {
        show(grant, true).map_err(|fault| fault.status)
    }

    fn detach(&self, grant: FrameGrant) -> Result<(), Status> {
        hide(grant).map_err(|fault| fault.status)
    }

    fn compare_exchange_u32(&self, frame: FrameNumber, offset: usize, current: u32, new: u32) -> Result<u32, u32> {
        assert!(offset.is_multiple_of(4), "a word is aligned");
        let word = at(frame, offset, 4).cast::<u32>();
        // SAFETY: aligned, inside one frame of the view, which is shown writable; all Rust access to such words is
        // atomic.
        let word = unsafe { AtomicU32::from_ptr(word) };
        word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn load_u32(&self, frame: FrameNumber, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4), "a word is aligned");
        // SAFETY: as in `compare_exchange_u32`.
        unsafe { AtomicU32::from_ptr(at(frame, offset, 4).cast::<u32>()) }.load(Ordering::Acquire)
    }

    fn store_u32(&self, frame: FrameNumber, offset: usize, word: u32) {
        assert!(offset.is_multiple_of(4), "a word is aligned");
        // SAFETY: as in `compare_exchange_u32`.
        unsafe { AtomicU32::from_ptr(at(frame, offset, 4).cast::<u32>()) }.store(word, Ordering::Release);
    }

    fn read(&self, frame: FrameNumber, offset: usize, into: &mut [u8]) {
        let from = at(frame, offset, into.len());
        // SAFETY: inside one frame of the view; `into` is ours and does not overlap the view.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    fn write(&self, frame: FrameNumber, offset: usize, from: &[u8]) {
        let to = at(frame, offset, from.len());
        // SAFETY: inside one frame of the view, shown writable as the pool's grants are; no Rust object lives there.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    fn zero(&self, first: FrameNumber, count: usize) {
        if count == 0 {
            return;
        }
        let to = at(first, 0, PAGE_SIZE as usize);
        if user::is_wide() {
            // SAFETY: as below, on a machine that has the instructions.
            unsafe { zero_pages_wide(to, count) };
            return;
        }
        // An island of vector code, which keeps the program's register: half the stores of any other way.
        // SAFETY: whole frames of the view, shown writable and page-aligned, side by side; no Rust object lives there.
        unsafe {
            core::arch::asm!(
                "sub rsp, 16",
                "movups [rsp], xmm0",
                "xorps xmm0, xmm0",
                "2:",
                ".set place, 0",
                ".rept 32",
                "movaps [{to} + place], xmm0",
                ".set place, place + 16",
                ".endr",
                "add {to}, 512",
                "dec {turns}",
                "jnz 2b",
                "movups xmm0, [rsp]",
                "add rsp, 16",
                to = inout(reg) to => _,
                turns = inout(reg) count as u64 * (PAGE_SIZE / 512) => _,
            );
        }
    }

    fn copy(&self, from: FrameNumber, to: FrameNumber) {
        let from = at(from, 0, PAGE_SIZE as usize);
        let to = at(to, 0, PAGE_SIZE as usize);
        // SAFETY: two whole frames of the view, the second shown writable; no Rust object lives there.
        unsafe { user::copy_page(from, to) };
    }
}

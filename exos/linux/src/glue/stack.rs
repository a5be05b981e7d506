//! Stacks of exos: one for each thread, so that a thread can block in the middle of a call, and one for each idle
//! processor.
//!
//! A stack lies in the window in a slot of its own, with an unmapped guard below it, so that one that runs over faults
//! instead of writing into another. Stacks are bound in groups and used again. A group that nobody uses any more goes
//! back to the kernel, unless few stacks are free without it; where programs find no frames, it goes back in any case.

use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::SLOT_SELF;
use exos::error::{Errno, Result};
use exos::platform::FrameGrant;
use exos::sync::SpinMutex;

use super::{ORDER_PAGE, STACK_BASE, kernel, shortage};

/// Bytes of a stack.
pub(crate) const STACK_BYTES: u64 = 64 << 10;
/// From one stack to the next; what is not stack is guard.
const STRIDE_BYTES: u64 = 2 * STACK_BYTES;
/// Most stacks that are bound at a time.
const GROUP_COUNT: u64 = 8;
/// The same where memory is scarce: most of a whole group would not be used, and frames side by side may be rare.
const SCARCE_GROUP_COUNT: u64 = 2;
/// With fewer free frames than these memory is scarce.
const SCARCE_FRAMES: u64 = (16 << 20) / 4096;
/// Frames of a stack.
const STACK_FRAMES: u64 = STACK_BYTES / 4096;
/// Most stacks: every thread of a pod, and every processor.
const COUNT_MAX: u64 = 17_408;

/// Free stacks beyond which groups go back.
const KEPT_COUNT: usize = 64;
/// The same where there are no frames: with more than these some group may be free.
const KEPT_COUNT_MIN: usize = 2 * GROUP_COUNT as usize - 1;
const GROUP_COUNT_MAX: usize = (COUNT_MAX / GROUP_COUNT) as usize;

/// Stacks that are neighbours, and one capability.
#[derive(Clone, Copy)]
struct Group {
    /// The frames of its stacks. `None`: nothing is bound there.
    grant: Option<FrameGrant>,
    /// Bit n: stack n is free.
    free: u8,
}

impl Group {
    /// A group that nobody uses.
    fn new(grant: FrameGrant) -> Self {
        Self { grant: Some(grant), free: u8::MAX >> (GROUP_COUNT - grant.count / STACK_FRAMES) }
    }

    /// Its frames and how many stacks they are, if all of them are free.
    fn unused(&self) -> Option<(FrameGrant, u64)> {
        let grant = self.grant?;
        (self.free == Self::new(grant).free).then_some((grant, grant.count / STACK_FRAMES))
    }
}

struct Stacks {
    groups: [Group; GROUP_COUNT_MAX],
    /// No group below this one has a free stack.
    first_free: usize,
    free_count: usize,
    made_count: u64,
}

const _: () = assert!(GROUP_COUNT == 8, "a bit each in a byte");

static STACKS: SpinMutex<Stacks> = SpinMutex::new(Stacks {
    groups: [Group { grant: None, free: 0 }; GROUP_COUNT_MAX],
    first_free: 0,
    free_count: 0,
    made_count: 0,
});

/// A stack that is its holder's until it is dropped.
pub(crate) struct Stack {
    top: u64,
}

impl Stack {
    /// A stack with nothing of value on it. `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut stacks = STACKS.lock();
        if stacks.free_count == 0 {
            stacks.make_group()?;
        }
        let first = stacks.first_free;
        let found = stacks.groups[first..].iter().position(|group| group.free != 0).ok_or(Errno::ENOMEM)?;
        let number = first + found;
        let index = stacks.groups[number].free.trailing_zeros();
        stacks.groups[number].free &= !(1 << index);
        stacks.first_free = number;
        stacks.free_count -= 1;
        Ok(Self { top: top_of(number as u64 * GROUP_COUNT + u64::from(index)) })
    }

    /// One past its last byte.
    pub(crate) fn top(&self) -> u64 {
        self.top
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let index = (self.top - STACK_BASE) / STRIDE_BYTES - 1;
        STACKS.lock().take_back(index);
    }
}

/// Has the kernel have the groups that nobody uses, but for a few stacks. False: there are none.
pub(crate) fn give_free() -> bool {
    let mut stacks = STACKS.lock();
    let before = stacks.made_count;
    let mut number = stacks.first_free;
    while stacks.free_count > KEPT_COUNT_MIN && number < GROUP_COUNT_MAX {
        stacks.unmake(number);
        number += 1;
    }
    stacks.made_count < before
}

/// One past the last byte of a stack by its place.
fn top_of(index: u64) -> u64 {
    STACK_BASE + (index + 1) * STRIDE_BYTES
}

/// Has every processor that is in the environment pass a point that orders its memory: each is made to forget a
/// translation, by an interrupt, and the kernel waits until all have. A processor that comes into the environment later
/// has passed the kernel. What is bound for that is a page of a stack, as there is always one, read-only and where
/// nothing looks.
pub(crate) fn order_everywhere() -> Result<()> {
    let stacks = STACKS.lock();
    let grant = stacks.groups.iter().find_map(|group| group.grant).ok_or(Errno::ENOMEM)?;
    let bind = BindEntry::map(ORDER_PAGE, grant.first.0, 1, grant.slot, BindFlags::empty());
    for entry in [bind, BindEntry::unmap(ORDER_PAGE, 1)] {
        // SAFETY: this page of the window is used only here, under the lock, and never read.
        unsafe { kernel::bind_all(SLOT_SELF, &[entry]) }.map_err(|_| Errno::ENOMEM)?;
    }
    Ok(())
}

/// Bytes of the stacks that somebody has.
pub(crate) fn used_bytes() -> u64 {
    let stacks = STACKS.lock();
    (stacks.made_count - stacks.free_count as u64) * STACK_BYTES
}

impl Stacks {
    fn take_back(&mut self, index: u64) {
        let number = (index / GROUP_COUNT) as usize;
        let group = &mut self.groups[number];
        group.free |= 1 << (index % GROUP_COUNT);
        self.free_count += 1;
        self.first_free = self.first_free.min(number);
        if self.free_count >= KEPT_COUNT + GROUP_COUNT as usize {
            self.unmake(number);
        }
    }

    fn make_group(&mut self) -> Result<()> {
        let is_scarce = kernel::free_frame_count() < SCARCE_FRAMES;
        let count = if is_scarce { SCARCE_GROUP_COUNT } else { GROUP_COUNT };
        let own_frames = (self.made_count + count) * STACK_FRAMES;
        let number = self.groups.iter().position(|group| group.grant.is_none()).ok_or(Errno::ENOMEM)?;
        let grant = kernel::take_stack_frames(own_frames, count * STACK_FRAMES).map_err(|_| {
            // The pool may hold what it does not need: the call is done once more when it has given that back.
            shortage::note_heap_shortage();
            Errno::ENOMEM
        })?;
        let bind = |bottom, index| {
            let frame = grant.first.0 + index * STACK_FRAMES;
            BindEntry::map(bottom, frame, STACK_FRAMES as u32, grant.slot, BindFlags::WRITE)
        };
        if !bind_group(number, count, bind) {
            self.give(number, (grant, count));
            return Err(Errno::ENOMEM);
        }
        self.groups[number] = Group::new(grant);
        self.free_count += count as usize;
        self.made_count += count;
        self.first_free = self.first_free.min(number);
        Ok(())
    }

    /// Gives a group back, if every stack of it is free.
    fn unmake(&mut self, number: usize) {
        let Some((grant, count)) = self.groups[number].unused() else { return };
        if self.give(number, (grant, count)) {
            self.groups[number] = Group { grant: None, free: 0 };
            self.free_count -= count as usize;
            self.made_count -= count;
        }
    }

    /// Unbinds a group and frees its frames. False: they stay as they are.
    fn give(&self, number: usize, (grant, count): (FrameGrant, u64)) -> bool {
        let unbind = |bottom, _| BindEntry::unmap(bottom, STACK_FRAMES as u32);
        bind_group(number, count, unbind) && kernel::free_stack_frames(grant).is_ok()
    }
}

/// Binds the stacks of a group of which none is used, each as `entry` says for its lowest address and its number.
fn bind_group(number: usize, count: u64, entry: impl Fn(u64, u64) -> BindEntry) -> bool {
    let mut entries = [BindEntry::default(); GROUP_COUNT as usize];
    for (index, bound) in (0..count).zip(&mut entries) {
        *bound = entry(top_of(number as u64 * GROUP_COUNT + index) - STACK_BYTES, index);
    }
    // SAFETY: this part of the window is used only here, and nobody has a stack of the group.
    unsafe { kernel::bind_all(SLOT_SELF, &entries[..count as usize]) }.is_ok()
}

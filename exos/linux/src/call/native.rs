//! The native interface: calls that no Linux has, under numbers that Linux does not use (`exos/native` is the program's
//! side and says what they are for).

use aegis_abi::layout::PAGE_SHIFT;
use aegis_proto::watch::{self as proto, KernelCall};
use exos::error::{Errno, Result};
use exos::mem::space::checked_range;
use exos::mem::{Change, Handler, Protection, Watch};
use exos::task::capability::Capability;
use exos::task::limits::Resource;
use exos::task::schedule::WEIGHT_MAX;
use exos::task::weight;
use exos_native::abi;

use crate::abi::user_memory::{read_exact, read_vec, write_all};
use crate::call::context::{self, Arguments, Context};

/// A call: its number, its name in traces, what does it.
type Entry = (u64, &'static str, context::Handler);

const ENTRIES: [Entry; 8] = [
    (abi::CALL_VERSION, "exos_version", version),
    (abi::CALL_HANDLE_FAULTS, "exos_handle_faults", handle_faults),
    (abi::CALL_HANDLE_SHORTAGE, "exos_handle_shortage", handle_shortage),
    (abi::CALL_APPLY, "exos_apply", apply),
    (abi::CALL_PAGES, "exos_pages", pages),
    (abi::CALL_TICKETS, "exos_set_tickets", set_tickets),
    (abi::CALL_COMMAND, "exos_lottery", super::lottery::command),
    (abi::CALL_WATCH, "exos_watch", watch),
];

const _: () = assert!(abi::TICKETS_MAX == WEIGHT_MAX);
// What a program and the kernel's extension say to each other over exos's head.
const _: () = {
    let program = [abi::NOTES_OWNER, abi::NOTES_TOUCH_COUNT, abi::NOTES_SHADOW_COUNT, abi::NOTES_TOUCH_FIRST];
    let kernel = [proto::WORD_OWNER, proto::WORD_TOUCH_COUNT, proto::WORD_SHADOW_COUNT, proto::WORD_TOUCH_FIRST];
    let mut index = 0;
    while index < program.len() {
        assert!(program[index] == kernel[index]);
        index += 1;
    }
    assert!(abi::NOTES_TOUCH_COUNT_MAX == proto::TOUCH_COUNT_MAX);
    assert!(abi::CLOSE_PAGE_COUNT_MAX == proto::CLOSE_PAGE_COUNT_MAX);
};

/// The call with this number.
#[must_use]
pub fn entry(number: u64) -> Option<&'static Entry> {
    ENTRIES.get(usize::try_from(number.checked_sub(abi::CALL_VERSION)?).ok()?)
}

fn version(_: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(abi::VERSION)
}

/// A thread inflates its group's currency: as far as a nice value could, or with the right to.
fn set_tickets(context: &mut Context<'_>, [amount, ..]: Arguments) -> Result<u64> {
    if amount == 0 || amount > abi::TICKETS_MAX {
        return Err(Errno::EINVAL);
    }
    let task = &context.thread.task;
    let before = task.weight();
    let limit = context.process.limits.lock().soft(Resource::Nice);
    let most = weight::of_nice(20 - limit.min(40) as i32);
    let is_allowed = amount <= before || limit != 0 && amount <= most || context.can(Capability::SYS_NICE);
    if !is_allowed {
        return Err(Errno::EPERM);
    }
    task.set_weight(amount);
    Ok(before)
}

fn handler([entry, function, argument]: [u64; 3]) -> Option<Handler> {
    (entry != 0).then_some(Handler { entry, function, argument })
}

fn handle_faults(context: &mut Context<'_>, [start, length, entry, function, argument, _]: Arguments) -> Result<u64> {
    let handler = handler([entry, function, argument]);
    context.process.space().lock().set_fault_handler(start, length, handler)?;
    Ok(0)
}

fn handle_shortage(context: &mut Context<'_>, [entry, function, argument, ..]: Arguments) -> Result<u64> {
    context.process.space().lock().set_shortage_handler(handler([entry, function, argument]));
    Ok(0)
}

/// A change as it lies in memory.
fn change(bytes: &[u8]) -> Result<(u64, u64, Change)> {
    let word = |index: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
        u64::from_le_bytes(word)
    };
    let (kind, rights) = (word(2) as u32, (word(2) >> 32) as u8);
    let protection = Protection::from_bits_truncate(rights & 7);
    let change = match kind {
        abi::CHANGE_MAP => Change::Map(protection),
        abi::CHANGE_PROTECT => Change::Protect(protection),
        abi::CHANGE_UNMAP => Change::Unmap,
        abi::CHANGE_DISCARD => Change::Discard,
        abi::CHANGE_WATCH_STORES => Change::Watch(Watch::Stores),
        abi::CHANGE_WATCH_ACCESSES => Change::Watch(Watch::Accesses),
        abi::CHANGE_UNWATCH => Change::Watch(Watch::Nothing),
        _ => return Err(Errno::EINVAL),
    };
    if word(2) >> 32 > 7 { Err(Errno::EINVAL) } else { Ok((word(0), word(1), change)) }
}

/// Changes that are read without asking the heap for room: a handler of faults makes one or two.
const CHANGE_COUNT_FEW: usize = 4;

fn apply(context: &mut Context<'_>, [address, count, ..]: Arguments) -> Result<u64> {
    if count > abi::CHANGE_COUNT_MAX {
        return Err(Errno::EINVAL);
    }
    let length = count as usize * abi::CHANGE_BYTES;
    let mut few = [0; CHANGE_COUNT_FEW * abi::CHANGE_BYTES];
    if length <= few.len() {
        read_exact(context.memory, address, &mut few[..length])?;
        return apply_all(context, &few[..length]);
    }
    apply_all(context, &read_vec(context.memory, address, length as u64, length)?)
}

fn apply_all(context: &Context<'_>, bytes: &[u8]) -> Result<u64> {
    let changes = || bytes.chunks_exact(abi::CHANGE_BYTES).map(change);
    // All are understood before the first is made.
    changes().try_for_each(|change| change.map(drop))?;
    match context.process.space().lock().apply(changes().flatten()) {
        (0, Err(error)) => Err(error),
        (count, _) => Ok(count),
    }
}

/// What the kernel's extension is to do about a range of watched memory; it looks at all addresses itself, as they are
/// the program's.
fn watch(context: &mut Context<'_>, [operation, start, length, placement, ..]: Arguments) -> Result<u64> {
    let range = || checked_range(start, length).map(|range| [range.start, (range.end - range.start) >> PAGE_SHIFT]);
    let ([address, page_count], call, rest) = match operation {
        abi::WATCH_PLACE => {
            let mut words = [0; 8 * abi::PLACEMENT_WORD_COUNT];
            read_exact(context.memory, placement, &mut words)?;
            let word = |index: usize| u64::from_le_bytes(core::array::from_fn(|byte| words[8 * index + byte]));
            (range()?, KernelCall::Place, [word(0), word(1), word(2)])
        }
        abi::WATCH_FORGET => ([start, 0], KernelCall::Forget, [0; 3]),
        abi::WATCH_CLOSE_STORES => (range()?, KernelCall::Close, [0; 3]),
        abi::WATCH_CLOSE_ACCESSES => (range()?, KernelCall::Close, [1, 0, 0]),
        _ => return Err(Errno::EINVAL),
    };
    let space = context.process.space();
    // Nobody maps anything anew meanwhile.
    let mut space = space.lock();
    match call {
        KernelCall::Place => space.place_watched(start, length)?,
        KernelCall::Close if !space.is_placed(start, length) => return Err(Errno::EINVAL),
        KernelCall::Close | KernelCall::Forget => {}
    }
    let [first, second, third] = rest;
    let answer = context.system.platform.extend_kernel(call as u64, [address, page_count, first, second, third]);
    // One that it refuses for its arguments leaves what was placed there before.
    if call == KernelCall::Place && answer == Err(Errno::ENOSYS) {
        space.leave_unplaced(start, length);
    }
    answer
}

fn pages(context: &mut Context<'_>, [start, length, address, flags, ..]: Arguments) -> Result<u64> {
    let range = checked_range(start, length)?;
    let count = (range.end - range.start) / 4096;
    if count > abi::PAGE_COUNT_MAX || flags & !abi::PAGES_CLEAR != 0 {
        return Err(Errno::EINVAL);
    }
    let space = context.process.space();
    let mut bits = alloc::vec![0; count as usize];
    {
        // The lock's holder changes no page table meanwhile, so that it can be read.
        let mut space = space.lock();
        for (byte, page) in bits.iter_mut().zip(0..) {
            *byte = page_bits(context.system.platform.page_entry(start + page * 4096));
        }
        if flags & abi::PAGES_CLEAR != 0 {
            space.clean(start, length)?;
        }
    }
    write_all(context.memory, address, &bits)?;
    Ok(0)
}

fn page_bits(entry: u64) -> u8 {
    use aegis_abi::memory::entry;
    if entry & entry::PRESENT == 0 {
        return 0;
    }
    let bit = |mask, bit| if entry & mask == 0 { 0 } else { bit };
    abi::PAGE_PRESENT
        | bit(entry::WRITE, abi::PAGE_WRITABLE)
        | bit(entry::ACCESSED, abi::PAGE_ACCESSED)
        | bit(entry::DIRTY, abi::PAGE_DIRTY)
}

#[cfg(test)]
mod tests {
    use super::{Errno, abi, entry, set_tickets};
    use crate::call::context::Context;
    use crate::testing::calls::World;
    use aegis_abi::upcall::UpcallFrame;

    fn set(world: &World, amount: u64) -> super::Result<u64> {
        let mut frame = UpcallFrame::default();
        let caller = world.caller();
        let mut context = Context::new(&caller, &mut frame);
        set_tickets(&mut context, [amount, 0, 0, 0, 0, 0])
    }

    #[test]
    fn tickets_are_set_by_who_may() {
        let world = World::new();
        assert!(entry(abi::CALL_TICKETS).is_some());
        assert_eq!(set(&world, 5000), Ok(1024));
        for wrong in [0, abi::TICKETS_MAX + 1, u64::MAX] {
            assert_eq!(set(&world, wrong), Err(Errno::EINVAL));
        }
        world.pod.thread.identities.lock().capabilities = exos::task::capability::Capabilities::of_user(1000);
        assert_eq!(set(&world, 5001), Err(Errno::EPERM));
        assert_eq!((set(&world, 10), set(&world, 11)), (Ok(5000), Err(Errno::EPERM)));
        assert_eq!(world.pod.thread.task.weight(), 10);
    }
}

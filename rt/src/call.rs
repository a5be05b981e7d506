//! Typed stubs for the kernel calls. One instruction sequence issues them all; registers as in `aegis_abi::call`.
#![allow(unsafe_code, reason = "the `syscall` instruction is how the kernel is reached")]

use aegis_abi::call as numbers;
use aegis_abi::call::{ArgumentWords, Call};
use aegis_abi::memory::BindEntry;
use aegis_abi::sleep::Term;
use aegis_abi::types::SLOT_SELF;
use aegis_abi::{CapSlot, FrameNumber, Rights, Status};

/// Status and value of a call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why, and which side is to blame.
    pub status: Status,
    /// The call's value: for `BadArgument` the argument's index, for batches the entries done.
    pub value: u64,
}

/// What a call returns.
pub type Outcome = Result<u64, Refusal>;

/// Issues any call.
///
/// # Safety
/// The call must not take away or change memory that Rust relies on (its own image, stack and heap), nor hand such
/// memory to a device, unless the caller has arranged for it.
#[inline(always)]
pub unsafe fn issue(call: Call) -> Outcome {
    let (number, words) = call.encode();
    // SAFETY: passed on to our caller.
    let (status_word, value) = unsafe { issue_words(number, &words) };
    if status_word == Status::Ok as u64 {
        return Ok(value);
    }
    Err(Refusal { status: refused(status_word), value })
}

/// The status of a call that did not succeed.
#[cold]
#[inline(never)]
fn refused(status_word: u64) -> Status {
    Status::from_word(status_word).unwrap_or(Status::UnknownCall)
}

/// Issues a call by raw words: for tests of the kernel's decoding. Gives RAX and RDX.
///
/// # Safety
/// As for [`issue`].
#[cfg(target_os = "none")]
#[inline(always)]
pub unsafe fn issue_words(number: u64, words: &ArgumentWords) -> (u64, u64) {
    let status: u64;
    let value: u64;
    // SAFETY: the kernel preserves every register but these, and touches memory only as the call says.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => status,
            in("rdi") words[0],
            in("rsi") words[1],
            inlateout("rdx") words[2] => value,
            in("r10") words[3],
            in("r8") words[4],
            in("r9") words[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    (status, value)
}

/// On the host there is no Aegis kernel: every call is unknown.
///
/// # Safety
/// None is needed here; the signature is that of the machine's.
#[cfg(not(target_os = "none"))]
pub unsafe fn issue_words(_number: u64, _words: &ArgumentWords) -> (u64, u64) {
    (Status::UnknownCall as u64, 0)
}

/// As [`space_enter`], in the place of the caller, with the one argument that it has; whether it was done.
///
/// # Safety
/// What runs, and what it uses, is in the library OS window.
#[cfg(target_os = "none")]
#[inline(always)]
#[must_use]
pub unsafe fn space_enter_here(slot: CapSlot) -> bool {
    let status: u64;
    // SAFETY: the kernel preserves every register but these; the rest is passed on to our caller.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") numbers::SpaceEnter::NUMBER => status,
            in("rdi") u64::from(slot.0),
            lateout("rdx") _,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    status == Status::Ok as u64
}

/// Declares safe stubs: name, structure, arguments in order.
macro_rules! stubs {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident : $type:ty),*) => $call:ident { $($field:ident : $value:expr),* $(,)? };
    )*) => {
        $(
            $(#[$doc])*
            pub fn $name($($argument: $type),*) -> Outcome {
                // SAFETY: this call changes no mapping and no memory of the caller.
                unsafe { issue(Call::$call(numbers::$call { $($field: $value),* })) }
            }
        )*
    };
}

stubs! {
    /// Does nothing.
    null() => Null {};
    /// Derives a capability in the caller's table.
    cap_derive(source: CapSlot, target: CapSlot, rights: Rights, offset: u64, count: u64)
        => CapDerive { source: source, target: target, rights: rights.bits(), offset: offset, count: count };
    /// Gives a derived capability to another environment.
    cap_grant(source: CapSlot, environment: CapSlot, target: CapSlot, rights: Rights)
        => CapGrant { source: source, environment: environment, target: target, rights: rights.bits() };
    /// Reads a field of a capability.
    cap_read(slot: CapSlot, field: u32) => CapRead { slot: slot, field: field };
    /// Takes free frames; `None` for any.
    frame_allocate(slot: CapSlot, count: u64, frame: Option<FrameNumber>, alignment_log2: u32)
        => FrameAllocate {
            slot: slot, count: count, frame: frame.unwrap_or(FrameNumber(u64::MAX)), alignment_log2: alignment_log2,
        };
    /// Gives frames back; the kernel refuses while they are mapped.
    frame_free(slot: CapSlot) => FrameFree { slot: slot };
    /// Cuts a frames capability.
    frame_split(slot: CapSlot, target: CapSlot, count: u64) => FrameSplit { slot: slot, target: target, count: count };
    /// Donates unmapped frames for an environment's tables.
    frame_donate(slot: CapSlot, environment: CapSlot) => FrameDonate { slot: slot, environment: environment };
    /// Makes an environment.
    environment_create(slot: CapSlot, frames: CapSlot, frame_quota: u64)
        => EnvironmentCreate { slot: slot, frames: frames, frame_quota: frame_quota };
    /// Reads a field of an environment.
    environment_read(slot: CapSlot, field: aegis_abi::call::EnvironmentField)
        => EnvironmentRead { slot: slot, field: field as u32 };
    /// Reads a share of a table: `first` is `FIELD_SHARE_FIRST` or `FIELD_USED_FIRST`.
    environment_read_share(slot: CapSlot, first: u32, table: aegis_abi::share::Table)
        => EnvironmentRead { slot: slot, field: first + table as u32 };
    /// Sets the share of a table that an environment of the caller's making has.
    environment_share(slot: CapSlot, table: aegis_abi::share::Table, count: u32)
        => EnvironmentShare { slot: slot, table: table as u32, count: count };
    /// Makes an address space of the caller's environment.
    space_create(slot: CapSlot) => SpaceCreate { slot: slot };
    /// Names the bell for an environment's stop.
    environment_watch(slot: CapSlot, bell: CapSlot) => EnvironmentWatch { slot: slot, bell: bell };
    /// Takes quota from an environment, and the frames that it owns beyond it.
    environment_reclaim(slot: CapSlot, frame_count: u64, deadline_ns: u64)
        => EnvironmentReclaim { slot: slot, frame_count: frame_count, deadline_ns: deadline_ns };
    /// Passes some of the caller's quota on to an environment.
    environment_quota(slot: CapSlot, frame_count: u64)
        => EnvironmentQuota { slot: slot, frame_count: frame_count };
    /// Makes a virtual processor.
    processor_create(slot: CapSlot, environment: CapSlot, frames: CapSlot, save_area_frame_count: u32,
        control_address: u64, save_area_base: u64)
        => ProcessorCreate {
            slot: slot, environment: environment, frames: frames, save_area_frame_count: save_area_frame_count,
            control_address: control_address, save_area_base: save_area_base,
        };
    /// Reads a field of a virtual processor.
    processor_read(slot: CapSlot, field: aegis_abi::call::ProcessorField)
        => ProcessorRead { slot: slot, field: field as u32 };
    /// Unmakes a stopped processor.
    processor_destroy(slot: CapSlot) => ProcessorDestroy { slot: slot };
    /// Gives the slice away.
    yield_to(processor: CapSlot) => Yield { processor: processor };
    /// Makes a bell.
    bell_create(slot: CapSlot, processor: CapSlot) => BellCreate { slot: slot, processor: processor };
    /// Rings a bell.
    bell_ring(slot: CapSlot) => BellRing { slot: slot };
    /// Rings a bell at a time since the kernel's start; `u64::MAX` takes it back.
    bell_ring_at(slot: CapSlot, deadline_ns: u64) => BellRingAt { slot: slot, deadline_ns: deadline_ns };
    /// Takes a bell's count.
    bell_take(slot: CapSlot) => BellTake { slot: slot };
    /// Sleeps until a bell has been rung, and takes its count.
    bell_await(slot: CapSlot) => BellAwait { slot: slot };
    /// Makes a gate.
    gate_create(slot: CapSlot, processor: CapSlot, rip: u64, badge: u64)
        => GateCreate { slot: slot, processor: processor, rip: rip, badge: badge };
    /// Reads a property of a device function.
    device_read(slot: CapSlot, field: aegis_abi::device::DeviceField, index: u32)
        => DeviceRead { slot: slot, field: field as u32, index: index };
    /// Reads or writes a port.
    device_port(slot: CapSlot, region: u32, offset: u32, width_bytes: u32, is_write: u32, value: u32)
        => DevicePort {
            slot: slot, region: region, offset: offset, width_bytes: width_bytes, is_write: is_write, value: value,
        };
    /// Binds an interrupt to a bell; physical processor `cpu` - 1 takes it, for 0 the one where the caller is.
    device_interrupt_bind_at(slot: CapSlot, interrupt: u32, bell: CapSlot, cpu: u32)
        => DeviceInterruptBind { slot: slot, interrupt: interrupt, bell: bell, cpu: cpu };
    /// Binds an interrupt to a bell.
    device_interrupt_bind(slot: CapSlot, interrupt: u32, bell: CapSlot)
        => DeviceInterruptBind { slot: slot, interrupt: interrupt, bell: bell, cpu: 0 };
    /// Asks for the next interrupt.
    device_interrupt_ask(slot: CapSlot, interrupt: u32) => DeviceInterruptAsk { slot: slot, interrupt: interrupt };
    /// Changes the amount of the ticket that funds an environment or a processor.
    ticket_amount(slot: CapSlot, amount: u64) => TicketAmount { slot: slot, amount: amount };
    /// Takes that ticket away (`SLOT_NONE`), or lets it fund the same object again.
    ticket_fund(slot: CapSlot, target: CapSlot) => TicketFund { slot: slot, target: target };
    /// Reads what an environment or a processor is funded with.
    ticket_read(slot: CapSlot, field: aegis_abi::call::TicketField) => TicketRead { slot: slot, field: field as u32 };
    /// Issues an environment's ticket anew in the currency of `payer`.
    ticket_issue(slot: CapSlot, payer: CapSlot) => TicketIssue { slot: slot, payer: payer };
    /// Reads a counter of an environment.
    counter_read_of(environment: CapSlot, counter: aegis_abi::counter::Counter)
        => CounterRead { environment: environment, index: counter as u32 };
    /// Reads one of the caller's counters.
    counter_read(counter: aegis_abi::counter::Counter) => CounterRead { environment: SLOT_SELF, index: counter as u32 };
}

/// Declares unsafe stubs for calls that can change the caller's memory.
macro_rules! unsafe_stubs {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident : $type:ty),*) => $call:ident { $($field:ident : $value:expr),* $(,)? };
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// Must not take away, move or expose to a device memory that Rust relies on.
            pub unsafe fn $name($($argument: $type),*) -> Outcome {
                // SAFETY: passed on to our caller.
                unsafe { issue(Call::$call(numbers::$call { $($field: $value),* })) }
            }
        )*
    };
}

unsafe_stubs! {
    /// Calls the kernel's extension.
    extension_call(operation: u64, words: [u64; 5])
        => ExtensionCall {
            operation: operation, first: words[0], second: words[1], third: words[2], fourth: words[3],
            fifth: words[4],
        };
    /// Deletes a capability's descendants.
    cap_revoke(slot: CapSlot) => CapRevoke { slot: slot };
    /// Deletes a capability.
    cap_drop(slot: CapSlot) => CapDrop { slot: slot };
    /// Goes on in another space of the environment; what runs and what it uses must be in the library OS window.
    space_enter(slot: CapSlot) => SpaceEnter { slot: slot };
    /// Ends an environment.
    environment_destroy(slot: CapSlot) => EnvironmentDestroy { slot: slot };
    /// Starts a processor.
    processor_start(slot: CapSlot, rip: u64, rsp: u64, argument: u64)
        => ProcessorStart { slot: slot, rip: rip, rsp: rsp, argument: argument };
    /// Stops a processor.
    processor_stop(slot: CapSlot) => ProcessorStop { slot: slot };
    /// Enables or disables a device function.
    device_control(slot: CapSlot, operation: aegis_abi::device::DeviceOperation)
        => DeviceControl { slot: slot, operation: operation as u32 };
    /// Maps a device region.
    device_map(slot: CapSlot, region: u32, virtual_address: u64)
        => DeviceMap { slot: slot, region: region, virtual_address: virtual_address };
    /// Lets a device reach frames.
    device_dma_bind(slot: CapSlot, frames: CapSlot, offset: u64, count: u64)
        => DeviceDmaBind { slot: slot, frames: frames, offset: offset, count: count };
    /// Takes frames back from a device.
    device_dma_unbind(slot: CapSlot, frames: CapSlot, offset: u64, count: u64)
        => DeviceDmaUnbind { slot: slot, frames: frames, offset: offset, count: count };
}

/// Applies a batch of bindings to a space, or to the home space of an environment, once: `Again` and a short count come
/// back as the kernel gives them.
///
/// # Safety
/// Must not take away or alias memory that Rust relies on.
pub unsafe fn bind(space: CapSlot, entries: &[BindEntry]) -> Outcome {
    let call = numbers::Bind {
        space,
        entries: entries.as_ptr() as u64,
        entry_count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
    };
    // SAFETY: passed on to our caller.
    unsafe { issue(Call::Bind(call)) }
}

/// Does what [`bind`] does for one entry, and faster.
///
/// # Safety
/// As for [`bind`].
pub unsafe fn bind_one(space: CapSlot, entry: &BindEntry) -> Outcome {
    let call = numbers::BindOne {
        space,
        operation: u64::from(entry.operation) | u64::from(entry.flags) << 32,
        virtual_address: entry.virtual_address,
        frame: entry.frame,
        pages: u64::from(entry.page_count) | u64::from(entry.slot) << 32,
    };
    // SAFETY: passed on to our caller.
    unsafe { issue(Call::BindOne(call)) }
}

/// Sleeps until the predicate holds; the value is the product that held.
pub fn sleep(terms: &[Term]) -> Outcome {
    let call =
        numbers::Sleep { terms: terms.as_ptr() as u64, term_count: u32::try_from(terms.len()).unwrap_or(u32::MAX) };
    // SAFETY: sleeping changes no memory.
    unsafe { issue(Call::Sleep(call)) }
}

/// How often in a row the log may take nothing before its writer gives up.
const LOG_REFUSAL_COUNT_MAX: u32 = 1_000_000;

/// Writes to the kernel's log, piece by piece as fast as that goes; how many bytes it took.
pub fn machine_log(slot: CapSlot, text: &[u8]) -> Outcome {
    let mut written = 0;
    let mut refusal_count = 0;
    loop {
        let rest = &text[written..];
        let length = rest.len().min(numbers::LOG_BYTES_MAX as usize);
        let byte = |(index, byte): (usize, &u8)| u128::from(*byte) << (8 * index);
        let bytes: u128 = rest[..length].iter().enumerate().map(byte).sum();
        let (low, high) = (bytes as u64, (bytes >> 64) as u64);
        let call = numbers::MachineLog { slot, length: length as u64, low, high };
        // SAFETY: the call reads no memory.
        let taken = unsafe { issue(Call::MachineLog(call)) }?;
        written += (taken as usize).min(rest.len());
        refusal_count = if taken == 0 { refusal_count + 1 } else { 0 };
        if written == text.len() || refusal_count == LOG_REFUSAL_COUNT_MAX {
            return Ok(written as u64);
        }
    }
}

/// Ends the machine. Comes back only if the capability does not allow it.
pub fn machine_off(slot: CapSlot, code: u32) -> Outcome {
    // SAFETY: nothing runs afterwards.
    unsafe { issue(Call::MachineOff(numbers::MachineOff { slot, code })) }
}

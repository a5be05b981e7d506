//! Kernel calls: one structure for each, which encodes itself into registers and decodes itself from them.
//!
//! A call's number is for ever; a retired number is not used again. The manual page of each call (arguments, rights,
//! errors, cost) is the section of the same name in `docs/abi.md`. Registers: `rax` number, then `rdi rsi rdx r10 r8
//! r9`.

use crate::types::{CapSlot, FrameNumber, Status};

/// The six argument registers in order: `rdi rsi rdx r10 r8 r9`.
pub type ArgumentWords = [u64; 6];

/// A field type that one register carries.
pub trait Argument: Sized {
    /// The register's contents.
    fn to_word(self) -> u64;
    /// The value, or `None` where the register holds nothing of this type.
    fn from_word(word: u64) -> Option<Self>;
}

impl Argument for u64 {
    fn to_word(self) -> u64 {
        self
    }
    fn from_word(word: u64) -> Option<Self> {
        Some(word)
    }
}

impl Argument for u32 {
    fn to_word(self) -> u64 {
        u64::from(self)
    }
    fn from_word(word: u64) -> Option<Self> {
        u32::try_from(word).ok()
    }
}

impl Argument for CapSlot {
    fn to_word(self) -> u64 {
        u64::from(self.0)
    }
    fn from_word(word: u64) -> Option<Self> {
        u32::try_from(word).ok().map(CapSlot)
    }
}

impl Argument for FrameNumber {
    fn to_word(self) -> u64 {
        self.0
    }
    fn from_word(word: u64) -> Option<Self> {
        Some(FrameNumber(word))
    }
}

/// Declares every call once: its number, its structure, its encoding and its place in [`Call`].
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $number:literal $name:ident { $( $(#[$field_doc:meta])* $field:ident : $type:ty ),* $(,)? }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[allow(missing_docs, reason = "fields are named for what they hold; docs/abi.md has the page")]
            pub struct $name { $( $(#[$field_doc])* pub $field: $type, )* }

            impl $name {
                /// The call's number, in RAX.
                pub const NUMBER: u64 = $number;

                /// The argument registers.
                #[must_use]
                #[allow(unused_mut, unused_variables, unused_assignments, reason = "calls without arguments")]
                #[inline(always)]
                pub fn to_words(self) -> ArgumentWords {
                    let mut words = [0; 6];
                    let mut index = 0;
                    $( words[index] = Argument::to_word(self.$field); index += 1; )*
                    words
                }

                /// The call, or the index of the first argument that is none of its type.
                #[allow(unused_mut, unused_variables, unused_assignments, reason = "calls without arguments")]
                #[inline]
                pub fn from_words(words: &ArgumentWords) -> Result<Self, usize> {
                    let mut index = 0;
                    $(
                        let $field = <$type as Argument>::from_word(words[index]).ok_or(index)?;
                        index += 1;
                    )*
                    Ok(Self { $( $field, )* })
                }
            }
        )*

        /// Any call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant is the structure of the same name")]
        pub enum Call { $( $name($name), )* }

        impl Call {
            /// Number and name of every call, in ascending order of number.
            pub const ALL: &'static [(u64, &'static str)] = &[ $( ($number, stringify!($name)), )* ];

            /// Decodes a number and its arguments: an unknown number is `UnknownCall`, a bad argument `BadArgument`
            /// with its index.
            pub fn decode(number: u64, words: &ArgumentWords) -> Result<Call, (Status, u64)> {
                match number {
                    $( $number => match $name::from_words(words) {
                        Ok(call) => Ok(Call::$name(call)),
                        Err(index) => Err((Status::BadArgument, index as u64)),
                    }, )*
                    _ => Err((Status::UnknownCall, 0)),
                }
            }

            /// Number and argument registers. Where the call is a constant, the compiler leaves nothing of this.
            #[must_use]
            #[inline(always)]
            pub fn encode(self) -> (u64, ArgumentWords) {
                match self { $( Call::$name(call) => ($number, call.to_words()), )* }
            }
        }
    };
}

calls! {
    /// Does nothing; for measuring the way in and out.
    0 Null {}

    // Capabilities.

    /// Makes, in the caller's own table, a child of `source` with fewer rights, and for frames a smaller range.
    1 CapDerive { source: CapSlot, target: CapSlot, rights: u32, offset: u64, count: u64 }
    /// Makes a child of `source` in the table of `environment`.
    2 CapGrant { source: CapSlot, environment: CapSlot, target: CapSlot, rights: u32 }
    /// Deletes every descendant of `slot`, wherever it is, and breaks what was bound with it. The capability itself
    /// stays.
    3 CapRevoke { slot: CapSlot }
    /// Deletes the capability in `slot`, which has no descendants, and breaks what was bound with it.
    4 CapDrop { slot: CapSlot }
    /// Reads a capability: field 0 type | rights << 32, 1 first frame or object number, 2 frame count.
    5 CapRead { slot: CapSlot, field: u32 }

    // Frames.

    /// Takes `count` contiguous frames that nobody owns, at `frame` or anywhere (all ones), aligned to 1 <<
    /// `alignment_log2` frames. Value: the first frame.
    6 FrameAllocate { slot: CapSlot, count: u64, frame: FrameNumber, alignment_log2: u32 }
    /// Gives frames back: `slot` is an original (allocated) capability without descendants, mappings or pins.
    7 FrameFree { slot: CapSlot }
    /// Cuts the capability in `slot`, which has no descendants: it keeps the first `count` frames, `target` gets the
    /// rest.
    8 FrameSplit { slot: CapSlot, target: CapSlot, count: u64 }
    /// Donates all frames of an original, unmapped capability to the kernel for `environment`'s tables; `slot`
    /// becomes empty. Value: donated frames not yet used.
    9 FrameDonate { slot: CapSlot, environment: CapSlot }

    // Address space.

    /// Applies a batch of `BindEntry` to an address space: `space` names one of the caller's, or an environment, whose
    /// home space is meant. Value: entries done.
    10 Bind { space: CapSlot, entries: u64, entry_count: u32 }

    // Environments.

    /// Makes an environment from the frames of an original, unmapped capability (at least
    /// `ENVIRONMENT_FRAME_COUNT_MIN`), which pay for its tables; `frames` becomes empty, `slot` names the
    /// environment, whose table holds `SLOT_SELF`.
    11 EnvironmentCreate { slot: CapSlot, frames: CapSlot, frame_quota: u64 }
    /// Ends an environment: stops its processors, breaks its bindings, frees what it owned and what paid for it.
    12 EnvironmentDestroy { slot: CapSlot }
    /// Reads an environment: see `EnvironmentField`.
    13 EnvironmentRead { slot: CapSlot, field: u32 }
    /// Names the bell that is rung when the environment stops.
    14 EnvironmentWatch { slot: CapSlot, bell: CapSlot }
    /// Takes `frame_count` frames of quota from an environment: it gets a revocation upcall and `deadline_ns` (a time
    /// since the kernel's start) to free what it owns beyond the rest; after that the kernel takes them and reports
    /// them in the control page.
    15 EnvironmentReclaim { slot: CapSlot, frame_count: u64, deadline_ns: u64 }

    // Virtual processors.

    /// Makes a virtual processor of `environment`: control page and save area are the first 1 +
    /// `save_area_frame_count` frames of `frames`, at these user addresses (the caller maps them).
    16 ProcessorCreate {
        slot: CapSlot, environment: CapSlot, frames: CapSlot, save_area_frame_count: u32, control_address: u64,
        save_area_base: u64,
    }
    /// Starts a processor that is not running at `rip` with `rsp`, RDI = `argument`, FS base 0 and GS base = control
    /// page.
    17 ProcessorStart { slot: CapSlot, rip: u64, rsp: u64, argument: u64 }
    /// Stops a processor, wherever it is.
    18 ProcessorStop { slot: CapSlot }
    /// Reads a processor: see `ProcessorField`.
    19 ProcessorRead { slot: CapSlot, field: u32 }
    /// Unmakes a stopped processor.
    20 ProcessorDestroy { slot: CapSlot }
    /// Gives the rest of the slice to `processor`, or to the processor that the scheduler picks (slot 0).
    21 Yield { processor: CapSlot }
    /// Gives the processor up until the predicate of `term_count` `Term`s holds. Value: the product that held.
    22 Sleep { terms: u64, term_count: u32 }

    // Bells.

    /// Makes a bell; if `processor` is not 0, ringing it makes a bell upcall there.
    23 BellCreate { slot: CapSlot, processor: CapSlot }
    /// Adds one to the bell's count.
    24 BellRing { slot: CapSlot }
    /// Takes the bell's count: value is the count, which becomes 0.
    25 BellTake { slot: CapSlot }

    // Protected control transfer.

    /// Makes a gate to a processor of the caller: calls enter at `rip` with RDI = `badge`.
    26 GateCreate { slot: CapSlot, processor: CapSlot, rip: u64, badge: u64 }
    /// Calls synchronously: the slice goes to the callee until it replies. RSI RDX R10 R8 R9 RBX RBP R12-R15 are the
    /// message, there and back.
    27 GateCall { gate: CapSlot }
    /// Sends asynchronously: the rest of the slice goes to the callee, no reply comes.
    28 GateSend { gate: CapSlot }
    /// Replies to the call in hand, if there is one, and waits for the next.
    29 GateReply {}

    // Device functions.

    /// Reads a property of a device function: see `DeviceField`.
    30 DeviceRead { slot: CapSlot, field: u32, index: u32 }
    /// Changes a device function: see `DeviceOperation`.
    31 DeviceControl { slot: CapSlot, operation: u32 }
    /// Maps a memory region of the function into the caller's address space, uncached. Value: bytes mapped.
    32 DeviceMap { slot: CapSlot, region: u32, virtual_address: u64 }
    /// Reads (`is_write` 0) or writes a port of a port region: `width_bytes` 1, 2 or 4. Value: what was read.
    33 DevicePort { slot: CapSlot, region: u32, offset: u32, width_bytes: u32, is_write: u32, value: u32 }
    /// Rings `bell` when interrupt `interrupt` of the function arrives; 0 unbinds. It starts masked. `cpu`: which
    /// physical processor takes it, plus one; 0 for the one where the caller is.
    34 DeviceInterruptBind { slot: CapSlot, interrupt: u32, bell: CapSlot, cpu: u32 }
    /// Asks for the next interrupt: it is masked when it arrives, until this is called again.
    35 DeviceInterruptAsk { slot: CapSlot, interrupt: u32 }
    /// Lets the function reach frames of `frames` (DMA right) and pins them. Value: the device address of the first.
    36 DeviceDmaBind { slot: CapSlot, frames: CapSlot, offset: u64, count: u64 }
    /// Takes back what `DeviceDmaBind` gave.
    37 DeviceDmaUnbind { slot: CapSlot, frames: CapSlot, offset: u64, count: u64 }

    // The machine.

    /// Writes up to `LOG_BYTES_MAX` bytes to the kernel's log.
    38 MachineLog { slot: CapSlot, length: u64, low: u64, high: u64 }
    /// Ends the machine; `code` is told to the machine's owner.
    39 MachineOff { slot: CapSlot, code: u32 }
    /// Reads counter `index` of `environment` (`crate::counter::Counter`).
    40 CounterRead { environment: CapSlot, index: u32 }
    /// Rings the bell once when `deadline_ns` (a time since the kernel's start) has come; a new deadline replaces the
    /// old one, all ones takes it back.
    41 BellRingAt { slot: CapSlot, deadline_ns: u64 }

    // Address spaces.

    /// Makes an address space of the caller's environment: an empty program's half, and the library OS window that all
    /// its spaces share.
    42 SpaceCreate { slot: CapSlot }
    /// The calling processor goes on in another address space of its environment: `slot` names a space, or the
    /// environment, whose home space is meant.
    43 SpaceEnter { slot: CapSlot }

    // Tickets.

    /// Changes the amount of the ticket that funds an environment or a processor.
    44 TicketAmount { slot: CapSlot, amount: u64 }
    /// Takes that ticket from it (`target` 0), or lets it fund it again (`target` names the same object).
    45 TicketFund { slot: CapSlot, target: CapSlot }
    /// Reads what an environment or a processor is funded with: see `TicketField`.
    46 TicketRead { slot: CapSlot, field: u32 }
    /// Issues the ticket that funds an environment anew, in the currency of the environment `payer`.
    47 TicketIssue { slot: CapSlot, payer: CapSlot }

    // Shares of the kernel's tables.

    /// Sets how many entries of a table (`crate::share::Table`) an environment that the caller made may use with all
    /// that it makes; the caller's own share pays, or gets back.
    52 EnvironmentShare { slot: CapSlot, table: u32, count: u32 }

    // Quota of frames.

    /// Lets an environment own `frame_count` frames more, out of the caller's quota.
    56 EnvironmentQuota { slot: CapSlot, frame_count: u64 }

    // One of what other calls do many of.

    /// What `Bind` does for one entry, whose four words are in registers (`crate::memory::BindEntry`).
    57 BindOne { space: CapSlot, operation: u64, virtual_address: u64, frame: u64, pages: u64 }
    /// Sleeps until a bell has been rung, and takes its count.
    58 BellAwait { slot: CapSlot }

    // What an extended kernel is linked with.

    /// Calls the kernel's extension; `operation` and the rest are the extension's. A kernel without one knows no such
    /// call.
    59 ExtensionCall { operation: u64, first: u64, second: u64, third: u64, fourth: u64, fifth: u64 }
}

/// Frames that an environment costs at least: its root page table, its first table of capabilities, and three more
/// tables.
pub const ENVIRONMENT_FRAME_COUNT_MIN: u64 = 8;
/// Most bytes that one [`MachineLog`] writes: what the transmitter of a serial port holds.
pub const LOG_BYTES_MAX: u64 = 16;

/// Amount of a ticket that nobody changed.
pub const TICKET_AMOUNT_DEFAULT: u64 = 1000;
/// Largest amount of a ticket.
pub const TICKET_AMOUNT_MAX: u64 = 1 << 31;
/// One base unit, in values.
pub const TICKET_VALUE_ONE: u64 = 1 << 20;

numbered! {
    /// Fields of [`TicketRead`].
    pub enum TicketField {
        /// The ticket's amount, in its payer's currency.
        Amount = 0,
        /// 1 while the ticket funds the object.
        IsFunding = 1,
        /// Amounts of all tickets of the object's own currency; of a processor, with what it keeps.
        IssuedAmount = 2,
        /// The part of these that competes.
        ActiveAmount = 3,
        /// What the object is worth, in base units of `TICKET_VALUE_ONE`; 0 while nothing of it wants to run.
        Value = 4,
    }
}

numbered! {
    /// Fields of [`EnvironmentRead`].
    pub enum EnvironmentField {
        /// [`StopReason`], 0 while it runs.
        Stopped = 0,
        /// Stopped by an exception: its vector.
        StopVector = 1,
        /// Stopped by an exception: its fault address.
        StopAddress = 2,
        /// Stopped: the instruction pointer.
        StopRip = 3,
        /// Frames that it owns.
        FramesOwned = 4,
        /// Frames that it may own.
        FrameQuota = 5,
        /// Donated frames not yet used.
        FramesDonated = 6,
        /// Capability slots in its table.
        SlotCount = 7,
        /// Frames that nobody owns (any environment may ask).
        FramesFree = 8,
        /// Nanoseconds of processor time that its processors used, those that are unmade included.
        TimeUsedNs = 9,
    }
}

/// Why the kernel stopped an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StopReason {
    /// It runs.
    Running = 0,
    /// An upcall had no entry point.
    NoHandler = 1,
    /// An upcall did not fit into the save area.
    SaveAreaFull = 2,
    /// A slice-end upcall took too long.
    SliceOverrun = 3,
    /// It owned more frames than it may, and nothing but its tables was left to take.
    FramesKept = 4,
}

numbered! {
    /// Fields of [`ProcessorRead`].
    pub enum ProcessorField {
        /// [`ProcessorState`].
        State = 0,
        /// Nanoseconds of processor time used.
        TimeUsedNs = 1,
        /// Slices begun.
        Slices = 2,
        /// Nanoseconds by which slice-end upcalls overran.
        OverrunNs = 3,
    }
}

/// What a virtual processor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProcessorState {
    /// Made, or stopped.
    Stopped = 0,
    /// Wants to run.
    Ready = 1,
    /// Runs.
    Running = 2,
    /// Sleeps on a predicate.
    Asleep = 3,
    /// Waits for calls through its gates.
    Accepting = 4,
    /// Waits for the reply to its call.
    Calling = 5,
}

#[cfg(test)]
mod tests {
    use super::{ArgumentWords, Call, CapDerive, Null};
    use crate::types::{CapSlot, Status};

    #[test]
    fn numbers_are_unique_and_ascending() {
        for pair in Call::ALL.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{pair:?}");
        }
    }

    #[test]
    fn every_call_survives_encoding() {
        for &(number, name) in Call::ALL {
            let words: ArgumentWords = [11, 12, 13, 14, 15, 16];
            let call = Call::decode(number, &words).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            let (number_again, words_again) = call.encode();
            assert_eq!(number, number_again);
            assert_eq!(Call::decode(number_again, &words_again), Ok(call), "{name}");
        }
    }

    #[test]
    fn a_wide_slot_is_the_callers_fault_and_named() {
        let words = [1, 1 << 32, 0, 0, 0, 0];
        assert_eq!(Call::decode(CapDerive::NUMBER, &words), Err((Status::BadArgument, 1)));
    }

    #[test]
    fn an_unknown_number_is_an_unknown_call() {
        assert_eq!(Call::decode(9999, &[0; 6]), Err((Status::UnknownCall, 0)));
    }

    #[test]
    fn fields_go_to_registers_in_order() {
        let call = CapDerive { source: CapSlot(1), target: CapSlot(2), rights: 3, offset: 4, count: 5 };
        assert_eq!(call.to_words(), [1, 2, 3, 4, 5, 0]);
        assert_eq!(Null {}.to_words(), [0; 6]);
    }
}

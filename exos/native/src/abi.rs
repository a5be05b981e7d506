//! Numbers and layouts of the native interface, for both of its sides. Little-endian, as the machine is.

/// The version that [`CALL_VERSION`] answers.
pub const VERSION: u64 = 4;

/// System call: the version of the interface.
pub const CALL_VERSION: u64 = 0x4558_0000;
/// System call (start, length, entry, function, argument): sets the handler of faults in a range; entry 0 is none.
pub const CALL_HANDLE_FAULTS: u64 = 0x4558_0001;
/// System call (entry, function, argument): sets the handler that gives memory back in a shortage; entry 0 is none.
pub const CALL_HANDLE_SHORTAGE: u64 = 0x4558_0002;
/// System call (changes, count): makes changes in their order; answers how many were made.
pub const CALL_APPLY: u64 = 0x4558_0003;
/// System call (start, length, bits, flags): a byte for each page; flag 1 clears accessed and dirty bits.
pub const CALL_PAGES: u64 = 0x4558_0004;
/// System call (amount): how many tickets the calling thread has in its group's currency; answers how many it had.
/// Since version 2.
pub const CALL_TICKETS: u64 = 0x4558_0005;
/// System call (words, environment, reply, bytes): a command of the lottery by its words, the first of which names it;
/// writes its text to `reply` and answers its exit status in the high half and the text's length in the low one. Since
/// version 2.
pub const CALL_COMMAND: u64 = 0x4558_0006;
/// System call (operation, address, length, placement): has touches of watched memory answered in the kernel, where its
/// extension does that; `ENOSYS` where it does not. Since version 4.
pub const CALL_WATCH: u64 = 0x4558_0007;

/// Operation of [`CALL_WATCH`]: the watched range is placed in the kernel, as a placement of
/// [`PLACEMENT_WORD_COUNT`] words says: address of the page of notes, address of the first shadow, number of shadows.
pub const WATCH_PLACE: u64 = 0;
/// Operation of [`CALL_WATCH`]: the range that begins there is not any more.
pub const WATCH_FORGET: u64 = 1;
/// Operation of [`CALL_WATCH`]: closes at most [`CLOSE_PAGE_COUNT_MAX`] pages of such a range to stores.
pub const WATCH_CLOSE_STORES: u64 = 2;
/// Operation of [`CALL_WATCH`]: closes them to loads too.
pub const WATCH_CLOSE_ACCESSES: u64 = 3;
/// Words of a placement.
pub const PLACEMENT_WORD_COUNT: usize = 3;
/// Most pages that one call closes.
pub const CLOSE_PAGE_COUNT_MAX: u64 = 512;

/// Word of the page of notes: the thread pointer (FS base) of the one thread whose touches are answered; 0: nobody's.
pub const NOTES_OWNER: usize = 0;
/// Word of the page of notes: how many touches it holds; the program takes them and sets it to 0.
pub const NOTES_TOUCH_COUNT: usize = 1;
/// Word of the page of notes: shadows in use, from the first on; the program sets it to 0 when it needs none any more.
pub const NOTES_SHADOW_COUNT: usize = 2;
/// Word of the page of notes: the first touch: page of the range (from bit 16 on), shadow and one, or 0 (bits 1 to 15),
/// store (bit 0).
pub const NOTES_TOUCH_FIRST: usize = 8;
/// Touches that the page holds; also most shadows of a range.
pub const NOTES_TOUCH_COUNT_MAX: usize = 504;

/// Most changes in one call.
pub const CHANGE_COUNT_MAX: u64 = 512;
/// Most tickets of a thread; nice 0 is 1024.
pub const TICKETS_MAX: u64 = 1 << 20;
/// Most pages that one call tells of.
pub const PAGE_COUNT_MAX: u64 = 1 << 16;

/// Change: zeros, in place of what is there.
pub const CHANGE_MAP: u32 = 0;
/// Change: other rights.
pub const CHANGE_PROTECT: u32 = 1;
/// Change: nothing there any more.
pub const CHANGE_UNMAP: u32 = 2;
/// Change: the contents are given back.
pub const CHANGE_DISCARD: u32 = 3;
/// Change: the handler of the range is entered at the next store to each page, which then goes through. Since
/// version 3.
pub const CHANGE_WATCH_STORES: u32 = 4;
/// Change: the same at the next access of each page, and at the next store after that. Since version 3.
pub const CHANGE_WATCH_ACCESSES: u32 = 5;
/// Change: no longer. Since version 3.
pub const CHANGE_UNWATCH: u32 = 6;

/// Bytes of a change in memory: address, length, and in one word the kind (low half) and the rights (`PROT_READ` 1,
/// `PROT_WRITE` 2, `PROT_EXEC` 4).
pub const CHANGE_BYTES: usize = 24;

/// A page: it is in the page table.
pub const PAGE_PRESENT: u8 = 1;
/// A page: stores do not fault.
pub const PAGE_WRITABLE: u8 = 2;
/// A page: it was touched since it was mapped or last cleared.
pub const PAGE_ACCESSED: u8 = 4;
/// A page: it was stored to.
pub const PAGE_DIRTY: u8 = 8;

/// Flag of [`CALL_PAGES`]: clear the accessed and dirty bits.
pub const PAGES_CLEAR: u64 = 1;

/// Cause of a fault: a store.
pub const CAUSE_STORE: u64 = 1;
/// Cause of a fault: an instruction fetch.
pub const CAUSE_FETCH: u64 = 2;
/// Cause of a fault: nothing is mapped there.
pub const CAUSE_NOT_MAPPED: u64 = 1 << 8;
/// Cause of a fault: the rights forbid it.
pub const CAUSE_NOT_ALLOWED: u64 = 2 << 8;
/// Cause of a fault: it lies behind the end of the mapped file.
pub const CAUSE_BEYOND_FILE: u64 = 3 << 8;
/// Not a fault: there is no memory left for the page at the address.
pub const CAUSE_SHORTAGE: u64 = 4 << 8;
/// Not a fault: a page of watched memory is touched, and the access goes through when the handler returns.
pub const CAUSE_WATCHED: u64 = 5 << 8;

/// Bytes below the stack pointer that functions use without moving it (System V ABI for x86-64, 3.2.2).
pub const RED_ZONE_BYTES: u64 = 128;
/// Words of the record that an entry finds at its stack pointer: function, argument, address, cause, RFLAGS, RIP.
pub const RECORD_WORD_COUNT: usize = 6;

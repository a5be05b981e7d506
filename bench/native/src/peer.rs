//! The other side of a row: an environment that runs a function of this program, on one processor or on several.
//!
//! The image is mapped there with its writable segments read-only (they hold relocated tables), so the function writes
//! only to its stack and to the pages that it shares with us.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::boot::FLAT_EXECUTE;
use aegis_abi::layout::{FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_BUNDLE, SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights};
use aegis_rt::{call, control, gate};

use crate::harness::now_ns;
use crate::memory::{Measured, bind_in, named, own_image, take_frames, take_pages, take_slot};

/// Slots in the peer.
pub(crate) const PEER_PARENT_PROCESSOR: CapSlot = CapSlot(8);
pub(crate) const PEER_BELLS: [CapSlot; 2] = [CapSlot(9), CapSlot(10)];
const PEER_FRAMES: CapSlot = CapSlot(4);
const PEER_BUNDLE: CapSlot = CapSlot(5);
const PEER_SHARED: CapSlot = CapSlot(6);
const PEER_PROCESSOR: CapSlot = CapSlot(7);
const PEER_PARENT: CapSlot = CapSlot(11);
const PEER_GATE: CapSlot = CapSlot(12);
/// Where the peer sees the shared pages.
const PEER_SHARED_BASE: u64 = LIBOS_BASE + (1 << 30);
/// Frames of a peer's save area, which is its stack.
const SAVE_AREA_FRAME_COUNT: u32 = 8;
/// Frames that pay for a peer's tables.
const TABLE_FRAME_COUNT: u64 = 40;
/// Bytes that go round in one ring, as many as in a pipe of Linux.
pub(crate) const RING_BYTES: usize = 64 << 10;
/// A page of words, and two rings.
const SHARED_PAGE_COUNT: u32 = 1 + 2 * (RING_BYTES as u64 / PAGE_SIZE) as u32;
/// How long a peer may take to begin.
const START_LIMIT_NS: u64 = 5_000_000_000;

/// The shared pages.
#[repr(C)]
pub(crate) struct Shared {
    pub(crate) words: [AtomicU64; 512],
    pub(crate) rings: [[core::cell::UnsafeCell<u8>; RING_BYTES]; 2],
}

/// Word: the peer is ready.
const WORD_READY: usize = 0;
/// Word: what the sides tell each other.
pub(crate) const WORD_TURN: usize = 8;
/// Words of a ring: written so far, read so far. The other ring's are 16 further on.
pub(crate) const WORD_WRITTEN: usize = 16;
pub(crate) const WORD_READ: usize = 24;

impl Shared {
    /// A word.
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }
}

/// A processor that is not the first of its environment has its control page here, its save area behind it.
const MORE_PROCESSORS_BASE: u64 = LIBOS_BASE + (2 << 30);
const MORE_PROCESSORS_STRIDE: u64 = 1 << 20;
/// Its slots are these and so many further on for each that comes before it.
const MORE_SLOTS: [CapSlot; 3] = [CapSlot(16), CapSlot(17), CapSlot(18)];
const MORE_SLOTS_STRIDE: u32 = 4;
/// Each processor has words of its own among the shared ones.
const WORDS_OF_PROCESSOR: usize = 64;

/// A peer that was made.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) environment: CapSlot,
    pub(crate) processor: CapSlot,
    /// A gate to it, if it serves.
    pub(crate) gate: CapSlot,
    /// Two bells that both sides may ring and wait for.
    pub(crate) bells: [CapSlot; 2],
    pub(crate) shared: &'static Shared,
}

/// What a peer runs.
pub(crate) type PeerMain = extern "C" fn(u64) -> !;

/// An environment for peers.
#[derive(Clone, Copy)]
pub(crate) struct Home {
    environment: CapSlot,
    bells: [CapSlot; 2],
    shared: &'static Shared,
}

/// Makes a peer that runs `main`, and waits until it says that it is ready.
pub(crate) fn start(main: PeerMain, argument: u64) -> Result<Peer, &'static str> {
    Home::make()?.add(0, main, argument)
}

/// Where a processor's control page and its save area are.
fn places(index: usize) -> (u64, u64) {
    let base = MORE_PROCESSORS_BASE + index as u64 * MORE_PROCESSORS_STRIDE;
    if index == 0 { (FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE) } else { (base, base + 2 * PAGE_SIZE) }
}

/// A processor's frames, itself, and its gate, in the peer's own table.
fn own_slots(index: usize) -> [CapSlot; 3] {
    match index {
        0 => [PEER_FRAMES, PEER_PROCESSOR, PEER_GATE],
        _ => MORE_SLOTS.map(|slot| CapSlot(slot.0 + (index as u32 - 1) * MORE_SLOTS_STRIDE)),
    }
}

impl Home {
    /// Makes the environment.
    pub(crate) fn make() -> Result<Self, &'static str> {
        let environment = take_slot();
        let table_frames = take_frames(TABLE_FRAME_COUNT)?;
        named(call::environment_create(environment, table_frames.slot, 0), "EnvironmentCreate")?;
        let (shared_address, shared) = take_pages(SHARED_PAGE_COUNT)?;
        // SAFETY: just mapped, until the row is released; zeroed frames are valid words and bytes.
        let words = unsafe { &*(shared_address as *const Shared) };
        let bells = [(); 2].map(|()| take_slot());
        let home = Self { environment, bells, shared: words };
        home.grant(shared.slot, PEER_SHARED, Rights::READ | Rights::WRITE)?;
        home.grant(SLOT_BUNDLE, PEER_BUNDLE, Rights::READ | Rights::EXECUTE)?;
        home.map(BindEntry::map(PEER_SHARED_BASE, shared.first, SHARED_PAGE_COUNT, shared.slot, BindFlags::WRITE))?;
        map_image(environment)?;
        for (bell, place) in bells.into_iter().zip(PEER_BELLS) {
            named(call::bell_create(bell, SLOT_NONE), "BellCreate")?;
            home.grant(bell, place, Rights::RING | Rights::WAIT)?;
        }
        home.grant(SLOT_FIRST_PROCESSOR, PEER_PARENT_PROCESSOR, Rights::READ)?;
        // The right to put something into our table.
        home.grant(SLOT_SELF, PEER_PARENT, Rights::RECEIVE)?;
        Ok(home)
    }

    /// Gives it a capability of ours.
    pub(crate) fn grant(&self, from: CapSlot, to: CapSlot, rights: Rights) -> Measured {
        named(call::cap_grant(from, self.environment, to, rights), "CapGrant")
    }

    /// Maps something there.
    pub(crate) fn map(&self, entry: BindEntry) -> Measured {
        bind_in(self.environment, entry)
    }

    /// Starts its processor number `index`, which runs `main`, and waits until that says that it is ready.
    pub(crate) fn add(&self, index: usize, main: PeerMain, argument: u64) -> Result<Peer, &'static str> {
        let [processor, gate] = [(); 2].map(|()| take_slot());
        let (control_base, save_area_base) = places(index);
        let [own_frames, own_processor, _] = own_slots(index);
        let frames = take_frames(u64::from(1 + SAVE_AREA_FRAME_COUNT))?;
        self.grant(frames.slot, own_frames, Rights::READ | Rights::WRITE)?;
        let map =
            |address, frame, count| self.map(BindEntry::map(address, frame, count, frames.slot, BindFlags::WRITE));
        map(control_base, frames.first, 1)?;
        map(save_area_base, frames.first + 1, SAVE_AREA_FRAME_COUNT)?;
        let frame_count = SAVE_AREA_FRAME_COUNT;
        let environment = self.environment;
        let made =
            call::processor_create(processor, environment, frames.slot, frame_count, control_base, save_area_base);
        named(made, "ProcessorCreate")?;
        self.grant(processor, own_processor, Rights::READ | Rights::CONTROL)?;
        let ready = self.shared.word(index * WORDS_OF_PROCESSOR + WORD_READY);
        self.shared.word(index * WORDS_OF_PROCESSOR + WORD_READY + 1).store(u64::from(gate.0), Ordering::SeqCst);
        // The entry is a function that was not called: its stack is misaligned by the missing return address.
        let rsp = save_area_base + u64::from(SAVE_AREA_FRAME_COUNT) * PAGE_SIZE - 8;
        // SAFETY: the peer has memory of its own.
        named(unsafe { call::processor_start(processor, main as usize as u64, rsp, argument) }, "ProcessorStart")?;
        let limit_ns = now_ns() + START_LIMIT_NS;
        while ready.load(Ordering::SeqCst) == 0 {
            if now_ns() > limit_ns {
                return Err("the peer did not begin");
            }
            let _ = call::yield_to(SLOT_NONE);
        }
        Ok(Peer { environment, processor, gate, bells: self.bells, shared: self.shared })
    }
}

fn map_image(environment: CapSlot) -> Result<(), &'static str> {
    let (header, image_frame) = own_image().ok_or("the bundle")?;
    for segment in header.segments.iter().take(header.segment_count as usize) {
        let executable = segment.flags & FLAT_EXECUTE != 0;
        let flags = if executable { BindFlags::EXECUTE } else { BindFlags::empty() };
        let frame = image_frame + u64::from(segment.page_offset);
        bind_in(environment, BindEntry::map(segment.virtual_address, frame, segment.page_count, SLOT_BUNDLE, flags))?;
    }
    Ok(())
}

/// In the peer: the shared pages.
pub(crate) fn shared() -> &'static Shared {
    // SAFETY: mapped before the peer was started, for its whole life.
    unsafe { &*(PEER_SHARED_BASE as *const Shared) }
}

/// In the peer: what it waits for is there.
pub(crate) fn say_ready() {
    say_ready_as(0);
}

fn say_ready_as(index: usize) {
    shared().word(index * WORDS_OF_PROCESSOR + WORD_READY).store(1, Ordering::SeqCst);
}

/// In the peer: makes a gate that enters at `rip`, its badge the processor's number, gives it to the parent, and serves
/// for ever.
pub(crate) fn serve_at(rip: u64) -> ! {
    serve_at_as(0, rip)
}

fn serve_at_as(index: usize, rip: u64) -> ! {
    let word = index * WORDS_OF_PROCESSOR + WORD_READY + 1;
    let target = CapSlot(shared().word(word).load(Ordering::SeqCst) as u32);
    let [_, processor, gate] = own_slots(index);
    let made = call::gate_create(gate, processor, rip, index as u64)
        .and_then(|_| call::cap_grant(gate, PEER_PARENT, target, Rights::CALL | Rights::GRANT));
    if made.is_ok() {
        say_ready_as(index);
    }
    // SAFETY: nothing in the save area is needed any more.
    unsafe { gate::serve() }
}

/// In the peer: serves with `handler` behind the runtime's gate entry.
pub(crate) fn serve_with(handler: gate::GateHandler) -> ! {
    serve_with_as(0, handler)
}

/// The same on processor number `index`.
pub(crate) fn serve_with_as(index: usize, handler: gate::GateHandler) -> ! {
    control::set_library_word::<{ gate::WORD_GATE_HANDLER }>(handler as usize as u64);
    serve_at_as(index, gate::gate_entry as *const () as u64)
}

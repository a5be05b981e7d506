//! A network card whose driver is elsewhere, as the network's stack sees it: an [`Interface`] over a session with the
//! service of the card, in a domain or in the kernel.
//!
//! Invariants: the lock is a spin lock, held for a frame or a look, over no wait. Nothing that the service writes is
//! believed ([`Client`]): one that lies, that the kernel has stopped, or that gives nothing back for [`STUCK_NS`] after
//! it was asked to is lost, and another is started; frames that were under way are lost, as frames may be, and whoever
//! sends meanwhile waits for room. A service that is lost more often than [`RESTART_COUNT_MAX`] times in
//! [`RESTART_WITHIN_NS`] does not come back: the interface is down then, swallows frames and gives none.
//!
//! Neighbours: `glue::net_domain` and `glue::net_kernel` place the service ([`SessionPlace`]); [`super::card`] is the
//! same for a driver of the library OS's own; `drivers/service` is the other side.

use alloc::boxed::Box;
use alloc::format;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aegis_hal::DmaBuffer;
use aegis_proto::Broken;
use aegis_proto::net::{Client, Description, Received, Room, Segmentation, SendError, Shape, State};
use exos::net::inet::wire::{
    ETHERNET_HEADER_BYTES, Interface, InterfaceFull, InterfaceIdentity, Reception, Transmission,
};
use exos::sync::{SpinMutex, SpinMutexGuard};

use super::card::{DROP_COUNT_MAX, Demand, KEPT_ROOM, SEGMENTED_BYTES_MAX, meta_of};
use super::session_place::SessionPlace;

/// The session.
pub const SHAPE: Shape = Shape { capacity: 256, transmit_page_count: 128 };
/// Frames that lie before the service is shown them in any case, and that are taken before they are given back.
const LYING_COUNT_MAX: u32 = 32;
/// After so long without a frame given back, while some are under way, the service is asked to give some back; after as
/// long again it counts as hung.
pub const STUCK_NS: u64 = 1_500_000_000;
/// From one look whether the service is still there to the next, at least; whoever takes frames comes back as late.
const LOOK_EVERY_NS: u64 = 900_000;
/// A service that is lost more often than this in [`RESTART_WITHIN_NS`] does not come back.
pub const RESTART_COUNT_MAX: usize = 64;
/// See [`RESTART_COUNT_MAX`].
pub const RESTART_WITHIN_NS: u64 = 4_000_000_000;
/// A service that does not serve so long after its start is lost.
const START_NS: u64 = 2_000_000_000;
/// A card that says less than this is not believed (RFC 791: what every network carries).
const PACKET_BYTES_MIN: u16 = 68;

/// How the service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Up,
    /// Started, and not serving yet.
    Starts {
        begin_ns: u64,
    },
    /// For good.
    Ended,
}

struct Inner<B> {
    client: Client,
    generation: u32,
    bytes: B,
    phase: Phase,
    is_broken: bool,
    demand: Demand,
    /// Frames since the service was shown some.
    lying_count: u32,
    /// It will ring when a frame comes in.
    is_listening: bool,
    /// The bell has rung, with frames there, and since then nobody has looked whether the service still is.
    is_rung: bool,
    /// When somebody looked last.
    looked_ns: u64,
    /// Since when frames are under way of which none was given back, and whether the service was asked why.
    stuck_ns: Option<(u64, bool)>,
    restarts_ns: [u64; RESTART_COUNT_MAX],
    restart_count: u64,
}

/// A card.
pub struct SessionCard<P, B> {
    place: P,
    identity: InterfaceIdentity,
    room_max: usize,
    inner: SpinMutex<Inner<B>>,
    is_up: AtomicBool,
    taken_count: AtomicU64,
    dropped_count: AtomicU64,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

impl<P: SessionPlace, B: DmaBuffer> SessionCard<P, B> {
    /// Starts a service and waits until it serves, by `pause` again and again. `bytes` are those of the session's
    /// frames. `None`: there is none.
    pub fn open(place: P, bytes: B, log: Box<dyn Fn(&str) + Send + Sync>, pause: impl Fn()) -> Option<Self> {
        let generation = 2;
        let mut client = Client::new(place.words(), SHAPE, generation)?;
        let begin_ns = place.now_ns();
        if !place.start() {
            return None;
        }
        while client.state(place.words()) != State::Up {
            if place.is_stopped() || place.now_ns().saturating_sub(begin_ns) > START_NS {
                let _ = place.end();
                return None;
            }
            pause();
        }
        let Description { hardware_address, packet_bytes_max, fills_checksums, segments } =
            client.description(place.words());
        let most = (Shape::RECEIVE_BYTES - ETHERNET_HEADER_BYTES) as u16;
        let identity = InterfaceIdentity {
            hardware_address,
            packet_bytes_max: packet_bytes_max.clamp(PACKET_BYTES_MIN, most),
            fills_checksums,
            segmented_bytes_max: if segments { SEGMENTED_BYTES_MAX } else { 0 },
        };
        let room_max = client.room(place.words()).ok()?;
        let is_up = AtomicBool::new(client.has_link(place.words()));
        let inner = Inner {
            client,
            generation,
            bytes,
            phase: Phase::Up,
            is_broken: false,
            demand: Demand::default(),
            lying_count: 0,
            is_listening: false,
            is_rung: false,
            looked_ns: 0,
            stuck_ns: None,
            restarts_ns: [0; RESTART_COUNT_MAX],
            restart_count: 0,
        };
        let [taken_count, dropped_count] = [const { AtomicU64::new(0) }; 2];
        Some(Self { place, identity, room_max, inner: SpinMutex::new(inner), is_up, taken_count, dropped_count, log })
    }

    /// Frames that were taken so far.
    pub fn taken_count(&self) -> u64 {
        self.taken_count.load(Ordering::Relaxed)
    }

    /// Services that were started after the first.
    pub fn restart_count(&self) -> u64 {
        self.inner.lock().restart_count
    }

    /// Takes in that the bell has rung.
    pub fn hear(&self) {
        let mut inner = self.inner.lock();
        inner.is_listening = false;
        // Where frames have come in, somebody has put them there; whoever sleeps next looks whether it still is.
        let has_frames = inner.phase == Phase::Up && inner.client.has_received(self.place.words());
        let is_stopped = inner.phase != Phase::Ended && !has_frames && self.place.is_stopped();
        inner.is_broken |= is_stopped;
        inner.is_rung |= has_frames;
        self.see_to(inner);
    }

    /// Whether a frame has come in, or room is waited for. No answer is no if somebody else has the card just now.
    pub fn has_news(&self) -> bool {
        let Some(mut inner) = self.inner.try_lock() else { return false };
        match inner.phase {
            Phase::Ended => false,
            Phase::Starts { .. } => inner.client.state(self.place.words()) == State::Up,
            Phase::Up => {
                let is_awaited = core::mem::take(&mut inner.demand.is_awaited);
                let is_there = |inner: &Inner<B>| inner.client.has_received(self.place.words());
                let has_news = is_awaited || inner.is_broken || is_there(&inner);
                if has_news || !P::IS_CALLED || inner.is_listening {
                    return has_news;
                }
                self.place.ring();
                is_there(&inner)
            }
        }
    }

    /// Goes on with a service that has come up, and starts another in the place of one that is lost.
    fn see_to(&self, mut guard: SpinMutexGuard<'_, Inner<B>>) {
        let inner = &mut *guard;
        let now_ns = self.place.now_ns();
        let state = inner.client.state(self.place.words());
        let is_lost = match inner.phase {
            Phase::Ended => false,
            Phase::Starts { begin_ns } => {
                if state == State::Up && !inner.is_broken {
                    inner.phase = Phase::Up;
                    // Whoever was told that there is no room is to look again.
                    inner.demand.is_awaited = true;
                }
                inner.is_broken || now_ns.saturating_sub(begin_ns) > START_NS
            }
            Phase::Up => inner.is_broken || state != State::Up || self.is_stuck(inner, now_ns),
        };
        if is_lost {
            inner.phase = self.restart(inner, now_ns);
        }
        let (phase, count) = (inner.phase, inner.restart_count);
        if phase == Phase::Up {
            self.is_up.store(inner.client.has_link(self.place.words()), Ordering::Relaxed);
        }
        drop(guard);
        match phase {
            Phase::Starts { .. } if is_lost && (count.is_power_of_two() || count.is_multiple_of(100)) => {
                (self.log)(&format!("the network card's driver was lost and is started anew ({count})"));
            }
            Phase::Ended if is_lost => {
                self.is_up.store(false, Ordering::Relaxed);
                (self.log)("the network card's driver was lost too often: there is no network any more");
            }
            _ => {}
        }
    }

    /// Whether frames are under way of which the service gives none back, although it was asked to.
    fn is_stuck(&self, inner: &mut Inner<B>, now_ns: u64) -> bool {
        if !inner.client.has_under_way() {
            inner.stuck_ns = None;
            return false;
        }
        let before_count = inner.client.under_way_count();
        let is_moving = inner.client.room(self.place.words()).is_ok() && inner.client.under_way_count() < before_count;
        match inner.stuck_ns {
            Some((since_ns, was_asked)) if !is_moving => {
                let is_late = now_ns.saturating_sub(since_ns) > STUCK_NS;
                if is_late && !was_asked {
                    inner.stuck_ns = Some((now_ns, true));
                    self.place.ring();
                }
                is_late && was_asked
            }
            _ => {
                inner.stuck_ns = Some((now_ns, false));
                false
            }
        }
    }

    /// Ends the service and starts another, not too often in a time.
    fn restart(&self, inner: &mut Inner<B>, now_ns: u64) -> Phase {
        let is_ended = self.place.end();
        let place = &mut inner.restarts_ns[inner.restart_count as usize % RESTART_COUNT_MAX];
        let may_restart = *place == 0 || now_ns.saturating_sub(*place) > RESTART_WITHIN_NS;
        if !is_ended || !may_restart {
            return Phase::Ended;
        }
        *place = now_ns;
        inner.restart_count += 1;
        inner.generation = inner.generation.wrapping_add(2);
        inner.client.restart(self.place.words(), inner.generation);
        (inner.is_broken, inner.is_listening, inner.lying_count, inner.stuck_ns) = (false, false, 0, None);
        if self.place.start() { Phase::Starts { begin_ns: now_ns } } else { Phase::Ended }
    }

    /// Shows the service what was sent.
    fn show(&self, inner: &mut Inner<B>) {
        let has_frames = inner.lying_count > 0;
        inner.lying_count = 0;
        if inner.client.publish(self.place.words()) || (P::IS_CALLED && has_frames) {
            self.place.ring();
        }
    }

    /// Room for a frame; the service is shown what lies here first, where there is none.
    fn reserve(&self, inner: &mut Inner<B>, byte_count: u32) -> Result<Room, SendError> {
        match inner.client.reserve(self.place.words(), byte_count) {
            Err(SendError::Full) => {
                self.show(inner);
                inner.client.reserve(self.place.words(), byte_count)
            }
            outcome => outcome,
        }
    }

    fn put(&self, inner: &mut Inner<B>, parts: &[&[u8]], transmission: Transmission) -> Result<(), SendError> {
        let byte_count: usize = parts.iter().map(|part| part.len()).sum();
        let room = self.reserve(inner, u32::try_from(byte_count).unwrap_or(u32::MAX))?;
        let mut at = room.offset_bytes as usize;
        for part in parts {
            inner.bytes.copy_in(at, part).map_err(|_| SendError::Refused)?;
            at += part.len();
        }
        let meta = meta_of(parts, transmission);
        let frame = aegis_proto::net::Transmission {
            offset_bytes: 0,
            length_bytes: 0,
            checksum: meta.checksum.map(|place| (place.start_bytes, place.offset_bytes)),
            segmentation: meta.segmentation.map(|cut| Segmentation {
                payload_bytes: cut.payload_bytes,
                header_bytes: cut.header_bytes,
                is_ip6: cut.is_ip6,
            }),
        };
        inner.client.send(self.place.words(), room, frame)?;
        inner.lying_count += 1;
        if inner.lying_count >= LYING_COUNT_MAX {
            self.show(inner);
        }
        Ok(())
    }

    /// The next frame that has come in; where there is none, those that were taken are given back.
    fn next(&self, inner: &mut Inner<B>) -> Result<Option<Received>, Broken> {
        let received = inner.client.receive(self.place.words())?;
        if received.is_none() && inner.client.release(self.place.words()) {
            self.place.ring();
        }
        Ok(received)
    }
}

impl<P: SessionPlace, B: DmaBuffer + Send> Interface for SessionCard<P, B> {
    fn identity(&self) -> InterfaceIdentity {
        self.identity
    }

    fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    fn send(&self, parts: &[&[u8]], transmission: Transmission) -> Result<(), InterfaceFull> {
        let mut inner = self.inner.lock();
        let outcome = match inner.phase {
            Phase::Up if !inner.is_broken => self.put(&mut inner, parts, transmission),
            Phase::Ended => Ok(()),
            _ => Err(SendError::Full),
        };
        inner.demand.was_full = outcome == Err(SendError::Full);
        match outcome {
            Ok(()) => Ok(()),
            Err(SendError::Full) => Err(InterfaceFull),
            Err(error) => {
                inner.is_broken |= error == SendError::Broken;
                self.dropped_count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn has_room(&self, frame_count: usize) -> bool {
        let wanted = frame_count.saturating_add(KEPT_ROOM).min(self.room_max);
        let mut inner = self.inner.lock();
        // One that has ended swallows what it is given.
        if inner.phase != Phase::Up {
            inner.demand.is_awaited = inner.phase != Phase::Ended;
            return inner.phase == Phase::Ended;
        }
        let mut room = inner.client.room(self.place.words());
        if room.is_ok_and(|room| room < wanted) {
            self.show(&mut inner);
            room = inner.client.room(self.place.words());
        }
        inner.is_broken |= room.is_err();
        let has_room = room.is_ok_and(|room| room >= wanted);
        inner.demand.is_awaited |= !has_room;
        has_room
    }

    fn flush(&self) {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Up {
            self.show(&mut inner);
        }
    }

    fn receive(&self, frame: &mut [u8]) -> Option<Reception> {
        let mut inner = self.inner.lock();
        for _ in 0..DROP_COUNT_MAX {
            if inner.phase != Phase::Up || inner.is_broken {
                return None;
            }
            let received = match self.next(&mut inner) {
                Ok(received) => received?,
                Err(Broken) => {
                    inner.is_broken = true;
                    return None;
                }
            };
            self.taken_count.fetch_add(1, Ordering::Relaxed);
            let byte_count = received.length_bytes;
            let fits = (ETHERNET_HEADER_BYTES..=frame.len()).contains(&byte_count);
            let is_copied = fits && inner.bytes.copy_out(received.offset_bytes, &mut frame[..byte_count]).is_ok();
            if inner.client.held_count() >= LYING_COUNT_MAX && inner.client.release(self.place.words()) {
                self.place.ring();
            }
            if is_copied {
                return Some(Reception { byte_count, is_checksum_valid: received.is_checksum_valid });
            }
            self.dropped_count.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    fn ask_for_interrupt(&self) -> bool {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let words = self.place.words();
        if inner.phase == Phase::Up && !inner.is_broken {
            let is_wanted = inner.demand.was_full || inner.demand.is_awaited;
            let has_more_room = is_wanted && inner.client.ask_for_room(words) == Ok(true);
            inner.demand.was_full &= !has_more_room;
            match inner.client.ask(words) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(Broken) => inner.is_broken = true,
            }
            if has_more_room && inner.demand.is_awaited {
                return true;
            }
            if P::IS_CALLED && !inner.is_listening {
                inner.is_listening = !self.place.listen();
                if !inner.is_listening {
                    return !self.place.is_stopped();
                }
            }
        }
        if inner.is_rung && inner.phase == Phase::Up {
            // The bell that rang for frames may have rung for the service's end too.
            let now_ns = self.place.now_ns();
            if now_ns.saturating_sub(inner.looked_ns) >= LOOK_EVERY_NS {
                (inner.is_rung, inner.looked_ns) = (false, now_ns);
                inner.is_broken |= self.place.is_stopped();
            }
        }
        let is_quiet = inner.phase == Phase::Up && !inner.is_broken && !inner.client.has_under_way();
        if !is_quiet {
            self.see_to(guard);
        }
        false
    }

    fn dropped_count(&self) -> u64 {
        let inner = self.inner.lock();
        self.dropped_count.load(Ordering::Relaxed) + inner.client.dropped_count(self.place.words())
    }
}

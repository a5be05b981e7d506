//! The host's network card as the network's stack sees it: an [`Interface`] over any driver's [`NetDevice`].
//!
//! A card that breaks its protocol, or that the driver cannot go on with, is ended: its device is stopped, one line
//! says so, and from then on the interface is down, swallows frames and gives none. Nothing else of the pod notices.
//!
//! Invariants: the lock is a spin lock, held for one frame, over no wait and no other lock; the line is written without
//! it. Neighbours: `glue::net_card` drives it, [`exos::net::inet::wire`] says what it owes.

use alloc::boxed::Box;
use alloc::format;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use aegis_hal::net::{ChecksumMeta, Frame, NetDevice, NoWindow, SegmentationMeta, TransmitError, TransmitMeta, Wishes};
use exos::net::inet::wire::{
    ETHERNET_HEADER_BYTES, Interface, InterfaceFull, InterfaceIdentity, Reception, Transmission,
};
use exos::sync::SpinMutex;

/// Longest TCP packet that is handed to a card to be cut.
pub(super) const SEGMENTED_BYTES_MAX: u32 = u16::MAX as u32;
/// Frames that are dropped in a row, because they are too long, before whoever looks for one goes on.
pub(super) const DROP_COUNT_MAX: usize = 64;
/// Room that is left to those that do not ask for it, and to other processors that were told of the same room.
pub(super) const KEPT_ROOM: usize = 16;
/// Where a TCP header says how long it is.
const TCP_LENGTH_OFFSET: usize = 12;

/// A driver with its device and its interrupt.
pub trait CardDriver {
    /// The driver.
    type Device: NetDevice;
    /// The driver.
    fn device(&mut self) -> &mut Self::Device;
    /// Takes in that the device has interrupted, and lets the next interrupt through; whether it had.
    ///
    /// # Errors
    /// The card cannot go on.
    fn hear(&mut self) -> Result<bool, <Self::Device as NetDevice>::Error>;
    /// Stops the device for good.
    fn end(self);
}

struct State<D> {
    /// `None`: the card has ended.
    driver: Option<D>,
    demand: Demand,
}

/// Who wants room.
#[derive(Default)]
pub(super) struct Demand {
    /// A frame was refused, and none was taken since.
    pub(super) was_full: bool,
    /// Room was looked for and not found; whoever looks at the card next is to look for it again.
    pub(super) is_awaited: bool,
}

/// A card.
pub struct Card<D> {
    identity: InterfaceIdentity,
    state: SpinMutex<State<D>>,
    is_up: AtomicBool,
    /// As the driver said last, and as it was when nothing was under way.
    room: AtomicUsize,
    room_max: usize,
    taken_count: AtomicU64,
    dropped_count: AtomicU64,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

type ErrorOf<D> = <<D as CardDriver>::Device as NetDevice>::Error;

impl<D: CardDriver> Card<D> {
    /// A card that runs; `log` writes a line for the user.
    pub fn new(mut driver: D, log: Box<dyn Fn(&str) + Send + Sync>) -> Self {
        let device = driver.device();
        let (own, has_link) = (device.identity(), device.has_link());
        let room_max = device.room();
        let segments = own.offloads.segments_ip4 && own.offloads.segments_ip6;
        Self {
            identity: InterfaceIdentity {
                hardware_address: own.hardware_address,
                packet_bytes_max: own.packet_bytes_max,
                fills_checksums: own.offloads.fills_checksums,
                segmented_bytes_max: if segments { SEGMENTED_BYTES_MAX } else { 0 },
            },
            state: SpinMutex::new(State { driver: Some(driver), demand: Demand::default() }),
            is_up: AtomicBool::new(has_link),
            room: AtomicUsize::new(room_max),
            room_max,
            taken_count: AtomicU64::new(0),
            dropped_count: AtomicU64::new(0),
            log,
        }
    }

    /// Does something with the driver; what an error makes the end of the card. `None`: it has ended.
    fn attempt<V>(&self, action: impl FnOnce(&mut D, &mut Demand) -> Result<V, ErrorOf<D>>) -> Option<V> {
        let mut state = self.state.lock();
        let State { driver, demand } = &mut *state;
        let error = match action(driver.as_mut()?, demand) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let driver = driver.take();
        self.is_up.store(false, Ordering::Relaxed);
        drop(state);
        driver.into_iter().for_each(D::end);
        (self.log)(&format!("the network card has failed and is not used any more: {error:?}"));
        None
    }

    /// Takes in an interrupt; whether there was one.
    pub fn hear(&self) -> bool {
        let heard = self.attempt(|driver, _| {
            let heard = driver.hear()?;
            Ok((heard, driver.device().has_link()))
        });
        let Some((heard, has_link)) = heard else { return false };
        if heard {
            self.is_up.store(has_link, Ordering::Relaxed);
        }
        heard
    }

    /// Whether a frame has come in, or room is waited for. No answer is no if somebody else has the card just now.
    pub fn has_news(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        let State { driver, demand } = &mut *state;
        let is_awaited = core::mem::take(&mut demand.is_awaited);
        driver.as_mut().is_some_and(|driver| is_awaited || driver.device().has_received())
    }

    /// Frames that were taken so far.
    pub fn taken_count(&self) -> u64 {
        self.taken_count.load(Ordering::Relaxed)
    }

    /// As [`Interface::send`].
    fn take(&self, parts: &[&[u8]], transmission: Transmission) -> Result<(), InterfaceFull> {
        let frame = Frame { copied: parts, shared: &[], meta: meta_of(parts, transmission), token: 0 };
        let outcome = self.attempt(|driver, demand| {
            let device = driver.device();
            let mut outcome = device.transmit(&frame, &NoWindow);
            if matches!(outcome, Err(TransmitError::Full)) {
                // What lies here has to go before there is room.
                device.flush()?;
                if device.completed(&mut |_| ())? > 0 {
                    outcome = device.transmit(&frame, &NoWindow);
                }
            }
            self.room.store(device.room(), Ordering::Relaxed);
            match outcome {
                Err(TransmitError::Broken(error)) => return Err(error),
                Err(TransmitError::Full) => demand.was_full = true,
                Ok(()) => demand.was_full = false,
                Err(TransmitError::Frame) => {}
            }
            Ok(outcome)
        });
        match outcome {
            Some(Err(TransmitError::Full)) => Err(InterfaceFull),
            Some(Err(_)) => {
                self.dropped_count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// As [`Interface::has_room`].
    fn holds(&self, frame_count: usize) -> bool {
        let wanted = frame_count.saturating_add(KEPT_ROOM).min(self.room_max);
        self.room.load(Ordering::Relaxed) >= wanted || self.make_room(wanted)
    }

    /// The same, where the last frame left too little.
    #[cold]
    fn make_room(&self, wanted: usize) -> bool {
        let room = self.attempt(|driver, demand| {
            let device = driver.device();
            // What lies here has to go before there is more.
            device.flush()?;
            device.completed(&mut |_| ())?;
            demand.is_awaited = device.room() < wanted;
            Ok(device.room())
        });
        // One that has ended swallows what it is given.
        let room = room.unwrap_or(self.room_max);
        self.room.store(room, Ordering::Relaxed);
        room >= wanted
    }

    /// As [`Interface::flush`].
    fn show(&self) {
        let _ = self.attempt(|driver, _| driver.device().flush());
    }

    /// As [`Interface::receive`].
    fn give(&self, frame: &mut [u8]) -> Option<Reception> {
        for _ in 0..DROP_COUNT_MAX {
            let mut reception = None;
            let count = self.attempt(|driver, _| {
                driver.device().receive(1, &mut |received| {
                    let fits = received.byte_count >= ETHERNET_HEADER_BYTES && received.byte_count <= frame.len();
                    let copied = if fits { received.copy_out(frame).ok() } else { None };
                    let is_checksum_valid = received.is_checksum_valid;
                    reception = copied.map(|byte_count| Reception { byte_count, is_checksum_valid });
                })
            });
            if count? == 0 {
                return None;
            }
            self.taken_count.fetch_add(1, Ordering::Relaxed);
            if reception.is_some() {
                return reception;
            }
            self.dropped_count.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// As [`Interface::ask_for_interrupt`].
    fn ask(&self) -> bool {
        let must_look = self.attempt(|driver, demand| {
            let device = driver.device();
            let is_wanted = demand.was_full || demand.is_awaited;
            let has_more_room = is_wanted && device.completed(&mut |_| ())? > 0;
            demand.was_full &= !has_more_room;
            let wishes = Wishes { received: true, completed: is_wanted && !has_more_room };
            Ok(device.ask_for_interrupt(wishes)? || (has_more_room && demand.is_awaited))
        });
        must_look.unwrap_or(false)
    }
}

impl<D: CardDriver + Send> Interface for Card<D> {
    fn identity(&self) -> InterfaceIdentity {
        self.identity
    }

    fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    fn send(&self, parts: &[&[u8]], transmission: Transmission) -> Result<(), InterfaceFull> {
        self.take(parts, transmission)
    }

    fn has_room(&self, frame_count: usize) -> bool {
        self.holds(frame_count)
    }

    fn flush(&self) {
        self.show();
    }

    fn receive(&self, frame: &mut [u8]) -> Option<Reception> {
        self.give(frame)
    }

    fn ask_for_interrupt(&self) -> bool {
        self.ask()
    }

    fn dropped_count(&self) -> u64 {
        let mut state = self.state.lock();
        let own = state.driver.as_mut().map_or(0, |driver| driver.device().statistics().receive_error_count);
        self.dropped_count.load(Ordering::Relaxed) + own
    }
}

/// What the driver has to know of a frame.
pub(super) fn meta_of(parts: &[&[u8]], transmission: Transmission) -> TransmitMeta {
    let checksum = transmission
        .checksum
        .map(|place| ChecksumMeta { start_bytes: place.start_bytes, offset_bytes: place.offset_bytes });
    let segmentation = (transmission.segment_bytes > 0).then(|| {
        let start = transmission.checksum.map_or(0, |place| usize::from(place.start_bytes));
        let length = byte_at(parts, start + TCP_LENGTH_OFFSET).unwrap_or(0) >> 4;
        SegmentationMeta {
            payload_bytes: transmission.segment_bytes,
            header_bytes: (start + 4 * usize::from(length)) as u16,
            is_ip6: transmission.is_ipv6,
        }
    });
    TransmitMeta { checksum, segmentation }
}

fn byte_at(parts: &[&[u8]], mut index: usize) -> Option<u8> {
    for part in parts {
        match index.checked_sub(part.len()) {
            None => return part.get(index).copied(),
            Some(rest) => index = rest,
        }
    }
    None
}

#[cfg(test)]
#[path = "card_tests.rs"]
mod tests;

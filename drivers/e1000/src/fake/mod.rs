//! A card in memory, for tests: it keeps to the manuals, and can be told not to ([`Mischief`]).
//!
//! It is written from the card's side: it reads descriptors where the driver's registers say that they are, through a
//! [`FakeBus`] that records every access to what the card does not reach. What a driver must not do is recorded too
//! ([`FakeCard::driver_faults`]). Segments are cut and checksums summed as the card does it, so that a test can compare
//! whole frames.

extern crate alloc;

mod cut;
mod registers;

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use aegis_hal::fake::{FakeBus, FakeIrq, FakeMmio};

use crate::Model;
use crate::registers::{
    CAUSE_OVERRUN, CAUSE_RECEIVED, CAUSE_SENT, DESCRIPTOR_BYTES, RCTL_ENABLE, TCTL_ENABLE, WINDOW_BYTES, received, sent,
};
pub use cut::sum_of;
use cut::{Context, cut};

/// The address in the card's memory.
pub const HARDWARE_ADDRESS: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

/// What a card can do that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// Says that a frame has so many bytes.
    Length(u16),
    /// Reports descriptors without their end.
    NoEnd,
    /// Says that a frame is damaged.
    Damaged,
    /// Never reports what it sent.
    Silent,
    /// Is not there any more: registers read as ones.
    Gone,
    /// Does not come out of reset.
    NoReset,
    /// Has another address after a reset.
    OtherAddress,
    /// Goes on after it was stopped.
    NoStop,
    /// Never stops raising its line.
    StuckLine,
}

/// What a driver did that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFault {
    /// A ring that is misplaced or of a wrong length.
    Ring,
    /// A tail beyond the ring.
    Tail,
    /// The rings were moved while the card ran.
    MovedWhileRunning,
    /// A frame of a form that there is not, or without an end.
    Frame,
    /// A register that there is not in this model.
    Register(usize),
}

/// One direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FakeRing {
    pub(crate) base: u64,
    pub(crate) length_bytes: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl FakeRing {
    fn size(&self) -> u32 {
        self.length_bytes / DESCRIPTOR_BYTES as u32
    }

    fn step(&mut self) {
        self.head = if self.head + 1 >= self.size() { 0 } else { self.head + 1 };
    }
}

/// The card.
#[derive(Debug)]
pub struct FakeCard {
    bus: FakeBus,
    pub(crate) model: Model,
    /// Registers that only keep what was stored.
    pub(crate) values: Vec<u32>,
    pub(crate) rings: [FakeRing; 2],
    pub(crate) causes: u32,
    pub(crate) mask: u32,
    context: Context,
    /// Frames on their way in, while there is no buffer.
    pub waiting: VecDeque<Vec<u8>>,
    /// Frames that were sent.
    pub sent: Vec<Vec<u8>>,
    /// Sends nothing until [`FakeCard::work`].
    pub is_slow: bool,
    /// What it does wrong.
    pub mischief: Option<Mischief>,
    /// What the driver did wrong.
    pub driver_faults: Vec<DriverFault>,
    /// There is a link.
    pub has_link: bool,
    /// Whether the address is in the registers after a reset, or only in the card's memory.
    pub loads_address: bool,
    /// Stores to either tail.
    pub notification_count: u64,
    /// The line.
    pub irq: FakeIrq,
}

/// A card that a test and the driver's registers share.
pub type SharedCard = Rc<RefCell<FakeCard>>;

impl FakeCard {
    /// A card that was just switched on.
    #[must_use]
    pub fn new(bus: &FakeBus, model: Model) -> SharedCard {
        let mut card = Self {
            bus: bus.clone(),
            model,
            values: alloc::vec![0; WINDOW_BYTES / 4],
            rings: [FakeRing::default(); 2],
            causes: 0,
            mask: 0,
            context: Context::default(),
            waiting: VecDeque::new(),
            sent: Vec::new(),
            is_slow: false,
            mischief: None,
            driver_faults: Vec::new(),
            has_link: true,
            loads_address: true,
            notification_count: 0,
            irq: FakeIrq::new(),
        };
        card.load_address();
        Rc::new(RefCell::new(card))
    }

    /// The window on its registers.
    #[must_use]
    pub fn registers(card: &SharedCard) -> FakeMmio<Self> {
        FakeMmio::new(Rc::clone(card), WINDOW_BYTES)
    }

    pub(crate) fn is_receiving(&self) -> bool {
        self.value(crate::registers::RCTL) & RCTL_ENABLE != 0
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.value(crate::registers::TCTL) & TCTL_ENABLE != 0
    }

    pub(crate) fn value(&self, register: usize) -> u32 {
        self.values[register / 4]
    }

    /// Raises causes and the line.
    pub fn raise(&mut self, causes: u32) {
        self.causes |= causes;
        self.update_line();
    }

    pub(crate) fn update_line(&mut self) {
        self.irq.set_level(self.causes & self.mask != 0 || self.mischief == Some(Mischief::StuckLine));
    }

    /// A frame comes from the wire.
    pub fn arrive(&mut self, frame: &[u8]) {
        self.waiting.push_back(frame.to_vec());
        self.receive();
    }

    /// Fills buffers with what waits.
    pub(crate) fn receive(&mut self) {
        while self.is_receiving() && !self.waiting.is_empty() {
            let ring = self.rings[0];
            if ring.head == ring.tail || ring.size() == 0 {
                self.raise(CAUSE_OVERRUN);
                break;
            }
            let frame = self.waiting.pop_front().unwrap_or_default();
            let place = ring.base + u64::from(ring.head) * DESCRIPTOR_BYTES as u64;
            let mut words = [0; DESCRIPTOR_BYTES];
            if self.bus.device_read(place, &mut words).is_none() {
                break;
            }
            let address = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|index| words[index]));
            if self.bus.device_write(address, &frame).is_none() {
                break;
            }
            let mut report = frame.len() as u64 | received::DONE | received::END | received::IGNORE_CHECKSUMS;
            match self.mischief {
                Some(Mischief::Length(length)) => report = report & !0xffff | u64::from(length),
                Some(Mischief::NoEnd) => report &= !received::END,
                Some(Mischief::Damaged) => report |= received::DAMAGED,
                _ => {}
            }
            // The 82574L looks at checksums; a test's frame says by its last byte how it is.
            if self.model == Model::Express82574 {
                report &= !received::IGNORE_CHECKSUMS;
                report |= match frame.last() {
                    Some(0) => received::TRANSPORT_CHECKED,
                    Some(1) => received::TRANSPORT_CHECKED | received::TRANSPORT_WRONG,
                    _ => 0,
                };
            }
            if self.bus.device_write(place + 8, &report.to_le_bytes()).is_none() {
                break;
            }
            self.rings[0].step();
            self.raise(CAUSE_RECEIVED);
        }
    }

    /// Sends what it was shown.
    pub fn work(&mut self) {
        let mut parts: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut has_reported = false;
        while self.is_sending() && self.rings[1].head != self.rings[1].tail {
            let ring = self.rings[1];
            let place = ring.base + u64::from(ring.head) * DESCRIPTOR_BYTES as u64;
            let mut bytes = [0; DESCRIPTOR_BYTES];
            if self.bus.device_read(place, &mut bytes).is_none() {
                break;
            }
            let [first, second] =
                [0, 8].map(|at| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|index: usize| bytes[at + index])));
            self.rings[1].step();
            let is_context = second & sent::NEW_FORM != 0 && second & sent::DATA == 0;
            if is_context {
                self.context = Context::read([first, second]);
            } else {
                let length_mask = if second & sent::NEW_FORM != 0 { 0xf_ffff } else { 0xffff };
                let mut piece = alloc::vec![0; (second & length_mask) as usize];
                if self.bus.device_read(first, &mut piece).is_none() {
                    break;
                }
                parts.push((second, piece));
            }
            if second & sent::REPORT != 0 && self.mischief != Some(Mischief::Silent) {
                let report = second | sent::DONE;
                if self.bus.device_write(place + 8, &report.to_le_bytes()).is_none() {
                    break;
                }
                has_reported = true;
            }
            if !is_context && second & sent::END != 0 {
                let frame = core::mem::take(&mut parts);
                match cut(&frame, &self.context) {
                    Some(frames) => self.sent.extend(frames),
                    None => self.driver_faults.push(DriverFault::Frame),
                }
            }
        }
        if !parts.is_empty() {
            self.driver_faults.push(DriverFault::Frame);
        }
        if has_reported {
            self.raise(CAUSE_SENT);
        }
    }

    /// Loads the address anew, as it was told to.
    pub fn load_for_test(&mut self) {
        self.load_address();
    }

    /// Has a register, by its number of words, say something else.
    pub fn scribble(&mut self, word: usize, value: u32) {
        if let Some(place) = self.values.get_mut(word) {
            *place = value;
        }
    }

    pub(crate) fn note_running(&self) {
        self.bus.set_device_running(self.is_receiving() || self.is_sending());
    }
}

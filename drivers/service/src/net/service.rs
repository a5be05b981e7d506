//! The service: frames between a card and a session, and what happens when either fails.

use aegis_hal::net::{
    ChecksumMeta, DmaWindow, Frame, NetDevice, Place, SegmentationMeta, TransmitError, TransmitMeta, Wishes,
};
use aegis_hal::{DeviceAddress, DmaBuffer, Volatile};
use aegis_proto::VISIT_SLOT_COUNT_MAX;
use aegis_proto::net::{Description, Offence, SEGMENTED_HEADER_BYTES_MAX, Session, Shape, Transmission};

use super::NetHost;

/// A card that is reset more often than this [`RESTART_WITHIN_NS`] is dead.
pub const RESTART_COUNT_MAX: usize = 5;
/// See [`RESTART_COUNT_MAX`].
pub const RESTART_WITHIN_NS: u64 = 10_000_000_000;
/// Bytes of a frame beyond its packet: an Ethernet header and a tag.
const FRAME_EXTRA_BYTES: u16 = 18;

/// How the card is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works, as far as anybody knows.
    Up,
    /// It did not come back, or was lost too often.
    Dead,
}

/// What a visit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Frames given to the card.
    pub sent_count: u32,
    /// Frames given to the client.
    pub received_count: u32,
    /// There may be more to do already.
    pub has_more: bool,
}

/// Why a visit could not go on.
enum Stop<E> {
    Card(E),
    Client(Offence),
}

impl<E> From<Offence> for Stop<E> {
    fn from(offence: Offence) -> Self {
        Self::Client(offence)
    }
}

/// The client's bytes as the card reaches them. What is named was held against the session before.
struct Window(DeviceAddress);

impl DmaWindow for Window {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        Some(self.0.offset(place.offset as usize))
    }
}

/// The card and its client.
pub struct NetService<D, H> {
    device: D,
    host: H,
    session: Option<Session>,
    /// Taken, when the card had no room for it.
    waiting: Option<(u32, Transmission)>,
    dropped_count: u64,
    /// Whether the card has a link and what was dropped, as the client was told.
    told: (bool, u64),
    restarts_ns: [Option<u64>; RESTART_COUNT_MAX],
    restart_count: u64,
    health: Health,
    offence: Option<Offence>,
}

impl<D: NetDevice, H: NetHost<D::Buffer>> NetService<D, H> {
    /// A service without a client, on a card that runs.
    #[must_use]
    pub const fn new(device: D, host: H) -> Self {
        Self {
            device,
            host,
            session: None,
            waiting: None,
            dropped_count: 0,
            told: (false, 0),
            restarts_ns: [None; RESTART_COUNT_MAX],
            restart_count: 0,
            health: Health::Up,
            offence: None,
        }
    }

    /// How the card is.
    #[must_use]
    pub const fn health(&self) -> Health {
        self.health
    }

    /// Why the last session ended, if it was the client's doing.
    #[must_use]
    pub const fn offence(&self) -> Option<Offence> {
        self.offence
    }

    /// Whether somebody is served.
    #[must_use]
    pub const fn has_client(&self) -> bool {
        self.session.is_some()
    }

    /// The card.
    pub const fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// What it is placed in.
    pub const fn host(&mut self) -> &mut H {
        &mut self.host
    }

    /// Takes the client whose session the host has.
    ///
    /// # Errors
    /// The memory is no session.
    pub fn attach(&mut self) -> Result<(), Offence> {
        let (words, bytes) = self.host.session().ok_or(Offence::Memory)?;
        let session = Session::attach(words, bytes.length_bytes())?;
        let identity = self.device.identity();
        let packet_bytes_max = identity.packet_bytes_max.min(Shape::RECEIVE_BYTES as u16 - FRAME_EXTRA_BYTES);
        self.told = (self.device.has_link(), self.dropped_count);
        session.tell(words, self.told.0, self.told.1);
        let description = Description {
            hardware_address: identity.hardware_address,
            packet_bytes_max,
            fills_checksums: identity.offloads.fills_checksums,
            segments: identity.offloads.segments_ip4 && identity.offloads.segments_ip6,
        };
        session.announce(words, &description);
        (self.session, self.waiting, self.offence) = (Some(session), None, None);
        self.host.wake();
        Ok(())
    }

    /// Makes a card that was given up one that works, once it has come back from a reset. There is no client.
    ///
    /// # Errors
    /// It does not come back, and is as it was.
    pub fn revive(&mut self) -> Result<(), D::Error> {
        self.detach()?;
        if self.health == Health::Dead {
            self.restarts_ns = [None; RESTART_COUNT_MAX];
            self.health = Health::Up;
        }
        Ok(())
    }

    /// Lets the client go: the card is reset, so that nothing of the client's is under way when this returns.
    ///
    /// # Errors
    /// The card does not come back.
    pub fn detach(&mut self) -> Result<(), D::Error> {
        (self.session, self.waiting) = (None, None);
        self.device.reset()?;
        // What was lost is nobody's any more.
        self.device.completed(&mut |_| ()).map(|_| ())
    }

    /// Does everything that can be done now, up to a bound.
    pub fn visit(&mut self, now_ns: u64) -> Visit {
        let mut visit = Visit::default();
        match self.exchange(&mut visit) {
            Ok(()) => {}
            Err(stop) => {
                self.recover(stop, now_ns);
                // A card that was reset knows nothing of whom it was to tell.
                visit.has_more |= self.health == Health::Up && self.try_ask().unwrap_or(true);
            }
        }
        visit
    }

    /// Asks card and client to wake whoever looks here. `true`: one of them has something already.
    pub fn ask(&mut self, now_ns: u64) -> bool {
        match self.try_ask() {
            Ok(is_there) => is_there,
            Err(stop) => {
                self.recover(stop, now_ns);
                self.health == Health::Up
            }
        }
    }

    fn try_ask(&mut self) -> Result<bool, Stop<D::Error>> {
        let (Some((words, _)), Some(session)) = (self.host.session(), &mut self.session) else { return Ok(false) };
        let has_room = session.room(words)? > 0;
        if session.ask(words, self.waiting.is_none())? {
            return Ok(true);
        }
        let wishes = Wishes { received: has_room, completed: self.waiting.is_some() || session.is_room_awaited(words) };
        self.device.ask_for_interrupt(wishes).map_err(Stop::Card)
    }

    fn exchange(&mut self, visit: &mut Visit) -> Result<(), Stop<D::Error>> {
        let (Some((words, bytes)), Some(session)) = (self.host.session(), &mut self.session) else { return Ok(()) };
        let device = &mut self.device;
        if session.held_count() > 0 {
            device.completed(&mut |position| session.mark_done(position)).map_err(Stop::Card)?;
        }
        let (mut left_count, window) = (session.visit(words)?, Window(bytes.device_address()));
        loop {
            let next = match self.waiting.take() {
                Some(waiting) => Some(waiting),
                None if left_count == 0 => None,
                None => {
                    left_count -= 1;
                    session.take(words)?
                }
            };
            let Some((position, transmission)) = next else { break };
            match transmit(device, bytes, &window, position, &transmission) {
                Ok(()) => visit.sent_count += 1,
                Err(TransmitError::Full) => {
                    self.waiting = Some((position, transmission));
                    break;
                }
                Err(TransmitError::Frame) => {
                    self.dropped_count += 1;
                    session.mark_done(position);
                }
                Err(TransmitError::Broken(error)) => {
                    // The card has not taken it, so no reset tells of it: it is lost here, and its slot is free.
                    self.dropped_count += 1;
                    session.mark_done(position);
                    return Err(Stop::Card(error));
                }
            }
        }
        if visit.sent_count > 0 || self.waiting.is_some() {
            device.flush().map_err(Stop::Card)?;
        }
        let mut must_wake = session.release_done(words);
        let budget = session.room(words)?.min(VISIT_SLOT_COUNT_MAX);
        if budget > 0 && device.has_received() {
            let dropped_count = &mut self.dropped_count;
            let received_count = device.receive(budget, &mut |received| {
                let fits = received.byte_count <= Shape::RECEIVE_BYTES;
                let is_told = fits
                    && received.copy_into(bytes, session.next_place()).is_ok()
                    && session.deliver(words, received.byte_count, received.is_checksum_valid).is_ok();
                *dropped_count += u64::from(!is_told);
            });
            visit.received_count = received_count.map_err(Stop::Card)?;
            device.flush().map_err(Stop::Card)?;
            must_wake |= session.publish(words);
        }
        let told = (device.has_link(), self.dropped_count + device.statistics().receive_error_count);
        if told != self.told {
            session.tell(words, told.0, told.1);
            // Of what was dropped nobody waits to hear.
            must_wake |= told.0 != self.told.0;
            self.told = told;
        }
        let is_full = budget > 0 && visit.received_count == budget;
        visit.has_more = is_full || (self.waiting.is_none() && session.visit(words)? > 0);
        if must_wake {
            self.host.wake();
        }
        Ok(())
    }

    /// The card or the client cannot go on.
    #[cold]
    fn recover(&mut self, stop: Stop<D::Error>, now_ns: u64) {
        let (Some((words, _)), Some(session)) = (self.host.session(), &mut self.session) else { return };
        if let Stop::Client(offence) = stop {
            session.end(words);
            self.offence = Some(offence);
            if self.detach().is_err() {
                self.health = Health::Dead;
            }
            self.host.wake();
            return;
        }
        let place = &mut self.restarts_ns[self.restart_count as usize % RESTART_COUNT_MAX];
        let is_too_often = place.is_some_and(|before_ns| now_ns.saturating_sub(before_ns) < RESTART_WITHIN_NS);
        *place = Some(now_ns);
        self.restart_count += 1;
        let told =
            self.device.reset().and_then(|()| self.device.completed(&mut |position| session.mark_done(position)));
        if is_too_often || told.is_err() {
            self.health = Health::Dead;
            session.end(words);
        }
        let _ = session.release_done(words);
        self.host.wake();
    }
}

/// Gives the card a frame: it reads it where it lies, but for headers that are repeated, which drivers change.
fn transmit<D: NetDevice>(
    device: &mut D,
    bytes: &D::Buffer,
    window: &Window,
    position: u32,
    transmission: &Transmission,
) -> Result<(), TransmitError<D::Error>> {
    let meta = TransmitMeta {
        checksum: transmission.checksum.map(|(start_bytes, offset_bytes)| ChecksumMeta { start_bytes, offset_bytes }),
        segmentation: transmission.segmentation.map(|cut| SegmentationMeta {
            payload_bytes: cut.payload_bytes,
            header_bytes: cut.header_bytes,
            is_ip6: cut.is_ip6,
        }),
    };
    let (offset, length_bytes) = (u64::from(transmission.offset_bytes), transmission.length_bytes);
    let Some(cut) = transmission.segmentation else {
        let shared = [Place { offset, length_bytes }];
        return device.transmit(&Frame { copied: &[], shared: &shared, meta, token: position }, window);
    };
    let mut headers = [0; SEGMENTED_HEADER_BYTES_MAX];
    let header_bytes = usize::from(cut.header_bytes);
    let Some(headers) = headers.get_mut(..header_bytes) else { return Err(TransmitError::Frame) };
    bytes.copy_out(offset as usize, headers).map_err(|_| TransmitError::Frame)?;
    let rest_bytes = length_bytes.saturating_sub(header_bytes as u32);
    let shared = [Place { offset: offset + header_bytes as u64, length_bytes: rest_bytes }];
    device.transmit(&Frame { copied: &[headers], shared: &shared, meta, token: position }, window)
}

//! The card in the kernel: answers the calls of `aegis_proto::net::KernelCall`.
//!
//! A card is started when somebody asks for it first. It has one client at a time, whose session is one range of frames
//! that it has bound for the function. What the client does wrong ends its session (`aegis_service`); what it takes
//! back while the card uses it has stopped the function, which is started anew for the next.
//!
//! Everything here runs under the kernel's lock, and is bounded by a visit of the service.

use aegis_abi::call::ExtensionCall;
use aegis_abi::device::DeviceKind;
use aegis_abi::types::{FrameNumber, Status};
use aegis_e1000 as e1000;
use aegis_hal::{DmaRegion, DmaRun, EitherCard, MmioRegion};
use aegis_kernel::Hardware;
use aegis_kernel_core::{DeviceDescription, DeviceId, EnvironmentId, Id, Machine, State};
use aegis_machine::frame_range::FrameRange;
use aegis_machine::{BootMemory, KernelLock, log};
use aegis_proto::net::{KernelCall, Session};
use aegis_service::net::{Health, NetDevice, NetHost, NetService};
use aegis_virtio::net::{DEVICE_TYPE_NET, Limits, NetCard};
use aegis_virtio::{AnyTransport, Function};
use core::convert::Infallible;

use crate::driver::Driver;
use crate::host::{FrameWords, Masked, Range, find_range, has_range};
use crate::place::{Driven, PlaceError, client_memory, driver_memory};

const LIMITS: Limits = Limits { receive_buffer_count: 256, transmit_buffer_count: 256, reset_poll_count_max: 100_000 };
const E1000_LIMITS: e1000::Limits =
    e1000::Limits { receive_buffer_count: 256, transmit_buffer_count: 256, reset_poll_count_max: 100_000 };
/// Pages that either driver holds.
const DRIVER_PAGE_COUNT: usize =
    if LIMITS.page_count() > E1000_LIMITS.page_count() { LIMITS.page_count() } else { E1000_LIMITS.page_count() };
/// PCI vendor and device identifiers of a virtio card: transitional and modern (Virtio 1.2, 4.1.2).
const VIRTIO_CARDS: [u32; 2] = [0x1000_1af4, 0x1041_1af4];

type Card = EitherCard<NetCard<AnyTransport<MmioRegion, Infallible>, DmaRun>, e1000::NetCard<MmioRegion, DmaRun>>;
type Service = NetService<Card, CardHost>;

/// The service's host: the session of the client, while there is one.
struct CardHost {
    client: Option<(EnvironmentId, Range)>,
    memory: Option<(FrameWords, DmaRegion)>,
}

impl NetHost<DmaRegion> for CardHost {
    type Words = FrameWords;

    fn session(&mut self) -> Option<(&FrameWords, &mut DmaRegion)> {
        self.memory.as_mut().map(|(words, bytes)| (&*words, bytes))
    }

    /// The client is the one who calls, or hears by the bell that is bound to the function's interrupt.
    fn wake(&mut self) {}
}

/// The card: a function, and once somebody has asked for it the service on it.
struct Slot {
    function: Option<(DeviceId, DeviceDescription)>,
    memory: Option<FrameRange>,
    service: Option<Service>,
}

/// The extension's part for cards. There is one card.
pub(crate) struct Cards(KernelLock<Slot>);

impl Cards {
    pub(crate) const fn new() -> Self {
        Self(KernelLock::new(Slot { function: None, memory: None, service: None }))
    }

    /// Takes what the driver keeps for itself, before anybody else has memory.
    pub(crate) fn take_memory(&self, memory: &mut BootMemory) {
        self.0.lock().memory = memory.take_frames(DRIVER_PAGE_COUNT as u64, 1);
    }

    /// Whether a function is the one that is driven.
    pub(crate) fn has(&self, device: DeviceId) -> bool {
        self.0.lock().function.is_some_and(|(function, _)| function == device)
    }
}

impl Driver for Cards {
    fn drives(&self, device: DeviceId, description: &DeviceDescription) -> bool {
        let (vendor, number) = (description.identity as u16, (description.identity >> 16) as u16);
        let is_card = match description.kind {
            DeviceKind::Pci => {
                VIRTIO_CARDS.contains(&description.identity) || e1000::Model::of(vendor, number).is_some()
            }
            DeviceKind::VirtioMmio => description.identity == DEVICE_TYPE_NET,
            DeviceKind::Ports => false,
        };
        let mut slot = self.0.lock();
        let is_taken = is_card && slot.function.is_none();
        if is_taken {
            slot.function = Some((device, *description));
        }
        is_taken
    }

    fn call(&self, state: &mut State<'_, Hardware>, by: EnvironmentId, call: &ExtensionCall) -> Result<u64, Status> {
        let operation = KernelCall::from_number(call.operation).ok_or(Status::BadArgument)?;
        let mut slot = self.0.lock();
        if call.first != 0 {
            return Err(Status::WrongState);
        }
        if operation == KernelCall::Find {
            return slot.find(state);
        }
        let mut running = slot.running(state)?;
        let owner = running.service.host().client.map(|(owner, _)| owner);
        let is_theirs = owner == Some(by) || owner.is_none() && operation == KernelCall::Attach;
        if !is_theirs {
            return Err(Status::Busy);
        }
        match operation {
            KernelCall::Find => Err(Status::WrongState),
            KernelCall::Attach => running.attach(state, by, (FrameNumber(call.second), call.third)),
            KernelCall::Visit => running.visit(state).map(u64::from),
            KernelCall::Ask => running.ask(state),
            KernelCall::Detach => {
                running.end_client(state);
                Ok(0)
            }
        }
    }

    fn stop(&self, _: &mut State<'_, Hardware>, _: DeviceId) {
        if let Some(service) = self.0.lock().service.as_mut() {
            // It is reset, which ends what is under way, and comes back as none: switched off, it reaches no rings.
            let _ = service.device().reset();
        }
    }

    fn interrupt(&self, state: &mut State<'_, Hardware>, _: DeviceId) {
        let mut slot = self.0.lock();
        let Ok(mut running) = slot.running(state) else { return };
        // A card that cannot go on is found so by the visit, and reset.
        let _ = match running.service.device() {
            EitherCard::First(card) => card.acknowledge(&mut Masked).map_err(|_| ()),
            EitherCard::Second(card) => card.acknowledge(&mut Masked).map_err(|_| ()),
        };
        let _ = running.visit(state);
    }
}

impl Slot {
    /// As [`KernelCall::Find`].
    fn find(&mut self, state: &mut State<'_, Hardware>) -> Result<u64, Status> {
        let (device, description) = self.function.ok_or(Status::WrongState)?;
        if self.service.is_none() {
            match start(state, device, description, self.memory) {
                Ok(card) => self.service = Some(NetService::new(card, CardHost { client: None, memory: None })),
                Err(error) => {
                    // Whatever it was told, it reaches no memory until the next attempt has reset it.
                    state.machine.device_enable(device, false);
                    log!(Error, "a card cannot be driven in the kernel: {error:?}");
                    return Err(Status::WrongState);
                }
            }
        }
        Ok(device.index() as u64)
    }

    /// The card, if it was started, without a client whose memory has gone.
    fn running(&mut self, state: &mut State<'_, Hardware>) -> Result<Running<'_>, Status> {
        let (device, _) = self.function.ok_or(Status::WrongState)?;
        let mut running = Running { device, service: self.service.as_mut().ok_or(Status::WrongState)? };
        let client = running.service.host().client;
        if client.is_some_and(|(by, range)| !has_range(state, device, by, &range)) {
            running.end_client(state);
        }
        Ok(running)
    }
}

fn start(
    state: &mut State<'_, Hardware>,
    device: DeviceId,
    description: DeviceDescription,
    memory: Option<FrameRange>,
) -> Result<Card, PlaceError> {
    let memory = || memory.and_then(driver_memory).map(DmaRun::new).ok_or(PlaceError::Registers);
    let (vendor, number) = (description.identity as u16, (description.identity >> 16) as u16);
    let function = Driven(description);
    if let (DeviceKind::Pci, Some(model)) = (description.kind, e1000::Model::of(vendor, number)) {
        let mut registers = function.map(0, None)?;
        e1000::NetCard::<MmioRegion, DmaRun>::quiet(&mut registers)?;
        state.machine.device_enable(device, true);
        return Ok(EitherCard::Second(e1000::NetCard::new(model, registers, memory()?, E1000_LIMITS)?));
    }
    state.machine.device_enable(device, true);
    let transport = aegis_virtio::open(&function)?.ok_or(PlaceError::Registers)?;
    Ok(EitherCard::First(NetCard::new(transport, memory()?, LIMITS)?))
}

/// A card that runs.
struct Running<'a> {
    device: DeviceId,
    service: &'a mut Service,
}

impl Running<'_> {
    fn attach(
        &mut self,
        state: &mut State<'_, Hardware>,
        by: EnvironmentId,
        frames: (FrameNumber, u64),
    ) -> Result<u64, Status> {
        // Whoever was there before is gone, with nothing under way; the function may be switched off since, and the
        // card given up.
        if self.service.host().client.is_some() {
            return Err(Status::WrongState);
        }
        state.machine.device_enable(self.device, true);
        if self.service.revive().is_err() {
            state.machine.device_enable(self.device, false);
            return Err(Status::WrongState);
        }
        let range = find_range(state, self.device, by, frames).ok_or(Status::WrongState)?;
        let words = FrameWords::new(range);
        let word_page_count = Session::word_page_count(&words).ok_or(Status::WrongState)? as u64;
        let bytes = client_memory(range.first, range.count, word_page_count).ok_or(Status::WrongState)?;
        *self.service.host() = CardHost { client: Some((by, range)), memory: Some((words, bytes)) };
        if self.service.attach().is_err() {
            self.end_client(state);
            return Err(Status::WrongState);
        }
        Ok(0)
    }

    /// Moves frames. A session that has ended is refused from then on.
    fn visit(&mut self, state: &State<'_, Hardware>) -> Result<bool, Status> {
        let visit = self.service.visit(state.machine.now_ns());
        if self.service.health() == Health::Dead || !self.service.has_client() {
            return Err(Status::WrongState);
        }
        Ok(visit.has_more)
    }

    fn ask(&mut self, state: &mut State<'_, Hardware>) -> Result<u64, Status> {
        let now_ns = state.machine.now_ns();
        let visit = self.service.visit(now_ns);
        state.machine.interrupt_mask(self.device, 0, false);
        // What came in here rings no bell: the client learns of it by the answer.
        let has_news = visit.has_more || visit.received_count > 0;
        let is_there = self.service.ask(now_ns) || has_news;
        if self.service.health() == Health::Dead || !self.service.has_client() {
            return Err(Status::WrongState);
        }
        Ok(u64::from(is_there))
    }

    /// The client ends, whatever is under way for it: the card is reset, so that its memory is not touched any more.
    fn end_client(&mut self, state: &mut State<'_, Hardware>) {
        if self.service.revive().is_err() {
            // It is tried again for the next client; until then it reaches nothing.
            state.machine.device_enable(self.device, false);
            log!(Error, "a card does not come back from its reset");
        }
        *self.service.host() = CardHost { client: None, memory: None };
    }
}

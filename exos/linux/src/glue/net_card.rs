//! The pod's network card: found and started at the network's first use that is not local, looked at on the way, and
//! asked for interrupts only when there is nothing to do.
//!
//! A program that opens no socket, or uses loopback alone, never comes here. Once the card is there, three things make
//! [`Inet::poll`] run: the card's bell (processor 0, [`absorb`]), the time that the stack has named ([`ring_ns`]), and
//! whoever is about to give its processor up or finds nothing where it does not wait ([`look`]), which is how a busy
//! server finds the next request without an interrupt. Where a look finds nothing, the card is asked to interrupt at
//! the next frame, which costs a store into its ring; where it finds something, there is more to come in all
//! probability, and there are no interrupts while a thread runs: the next look comes by [`BUSY_LOOK_NS`] at the latest,
//! however long a program computes, and the card is asked before the processor sleeps.
//!
//! Invariants: nobody sleeps on processor 0 before the card was asked and had nothing ([`may_sleep`]). One processor
//! polls at a time; what comes to be due meanwhile is done by the same.
//!
//! Neighbours: `devices` finds functions and gives memory, [`exos_linux::host::card`] is the interface over the driver,
//! `idle` and `machine` call here.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use aegis_abi::CapSlot;
use aegis_abi::boot::BootInfo;
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_NONE};
use aegis_e1000::{self as e1000, E1000Error};
use aegis_hal::{DmaRegion, DmaRun, Irq, MmioRegion};
use aegis_link::drivers::{Drivers, Placement};
use aegis_rt::call;
use aegis_virtio::VirtioError;
use aegis_virtio::net::{DEVICE_TYPE_NET, Limits, NetCard};
use exos::net::inet::Inet;
use exos::net::inet::wire::{Carrier, Interface};
use exos::sync::Once;
use exos_linux::host::card::{Card, CardDriver};
use exos_linux::host::card_session::SessionCard;
use exos_linux::host::session_place::SessionPlace;

use super::devices::{BellIrq, Device, DeviceError, DeviceMemory, DeviceTransport, devices};
use super::domain::DomainSession;
use super::kernel;
use super::machine::Host;
use super::processor::{self, Bells};
use super::{net_domain, net_kernel};

const LIMITS: Limits =
    Limits { receive_buffer_count: 256, transmit_buffer_count: 256, reset_poll_count_max: 1_000_000 };
/// Nothing is due.
const NEVER: u64 = u64::MAX;
/// Polls in a row, while there is more to do; then others get a turn first.
const POLL_COUNT_MAX: usize = 4;
/// From a look that found frames to the next, at most.
const BUSY_LOOK_NS: u64 = 1_000_000;
/// From a poll that could not come, or not do everything, to the next that the timer brings about.
const PAUSE_NS: u64 = 50_000;

/// The same for cards that are not virtio.
const E1000_LIMITS: e1000::Limits =
    e1000::Limits { receive_buffer_count: 256, transmit_buffer_count: 256, reset_poll_count_max: 1_000_000 };

/// The card, once it was found.
static CARD: Once<Found> = Once::new();
/// The slot of its bell; 0 before.
static BELL: AtomicU32 = AtomicU32::new(0);
/// When the network wants to be polled.
static DUE_NS: AtomicU64 = AtomicU64::new(NEVER);
static IS_POLLING: AtomicBool = AtomicBool::new(false);

/// What of a card is not the stack's: how it is heard and looked at.
trait Watched: Send + Sync {
    /// Takes in an interrupt; whether there was one.
    fn hear(&self) -> bool;
    /// As [`Card::has_news`].
    fn has_news(&self) -> bool;
    /// Frames that were taken so far.
    fn taken_count(&self) -> u64;
}

impl<D: CardDriver + Send> Watched for Card<D> {
    fn hear(&self) -> bool {
        Self::hear(self)
    }

    fn has_news(&self) -> bool {
        Self::has_news(self)
    }

    fn taken_count(&self) -> u64 {
        Self::taken_count(self)
    }
}

impl<P: SessionPlace> Watched for SessionCard<P, DmaRegion> {
    fn hear(&self) -> bool {
        let has_rung = bell().is_some_and(|bell| call::bell_take(bell).unwrap_or(0) > 0);
        if has_rung {
            Self::hear(self);
        }
        has_rung
    }

    fn has_news(&self) -> bool {
        Self::has_news(self)
    }

    fn taken_count(&self) -> u64 {
        Self::taken_count(self)
    }
}

/// A card that was found. The stack has it as an [`Interface`], with no word of which it is.
struct Found {
    watched: Arc<dyn Watched>,
    interface: Arc<dyn Interface>,
}

/// A virtio card and its interrupt.
struct VirtioCard {
    card: NetCard<DeviceTransport, DeviceMemory<DmaRun>>,
    irq: BellIrq,
}

impl VirtioCard {
    fn start(device: Device, mut transport: DeviceTransport) -> Result<Self, DeviceError> {
        let memory = device.memory_run(&transport, LIMITS.page_count())?;
        let mut irq = device.interrupt()?;
        irq.start(&mut transport)?;
        Ok(Self { card: NetCard::new(transport, memory, LIMITS)?, irq })
    }
}

impl CardDriver for VirtioCard {
    type Device = NetCard<DeviceTransport, DeviceMemory<DmaRun>>;

    fn device(&mut self) -> &mut Self::Device {
        &mut self.card
    }

    fn hear(&mut self) -> Result<bool, VirtioError> {
        let has_rung = self.irq.take() > 0;
        if has_rung {
            self.card.acknowledge(&mut self.irq)?;
        }
        Ok(has_rung)
    }

    fn end(self) {
        // A device that does not stop keeps its memory, which nobody else gets in any case.
        let _ = self.card.stop();
    }
}

/// A card of Intel's and its interrupt.
struct E1000Card {
    card: e1000::NetCard<MmioRegion, DeviceMemory<DmaRun>>,
    irq: BellIrq,
}

impl E1000Card {
    fn start(device: Device, model: e1000::Model, registers: MmioRegion) -> Result<Self, DeviceError> {
        let memory = device.own_memory_run(E1000_LIMITS.page_count())?;
        let mut irq = device.interrupt()?;
        let card = e1000::NetCard::new(model, registers, memory, E1000_LIMITS)?;
        irq.unmask().map_err(E1000Error::from)?;
        Ok(Self { card, irq })
    }
}

impl CardDriver for E1000Card {
    type Device = e1000::NetCard<MmioRegion, DeviceMemory<DmaRun>>;

    fn device(&mut self) -> &mut Self::Device {
        &mut self.card
    }

    fn hear(&mut self) -> Result<bool, E1000Error> {
        let has_rung = self.irq.take() > 0;
        if has_rung {
            self.card.acknowledge(&mut self.irq)?;
        }
        Ok(has_rung)
    }

    fn end(self) {
        // As of a virtio card.
        let _ = self.card.stop();
    }
}

/// The network's way to its card.
pub(crate) struct NetCarrier {
    pub(crate) info: BootInfo,
    pub(crate) host: Arc<Host>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) drivers: Drivers,
}

impl NetCarrier {
    /// Starts the first card there is.
    fn find(&self) -> Result<Arc<dyn Interface>, DeviceError> {
        for device in devices(&self.info) {
            if let Some(transport) = device.open(DEVICE_TYPE_NET)? {
                let driver = VirtioCard::start(device, transport)?;
                let bell = driver.irq.bell();
                return Ok(self.keep_driver(driver, bell));
            }
            let quiet = e1000::NetCard::<MmioRegion, DeviceMemory<DmaRun>>::quiet;
            if let Some((model, registers)) = device.open_pci(e1000::Model::of, quiet)? {
                let driver = E1000Card::start(device, model, registers)?;
                let bell = driver.irq.bell();
                return Ok(self.keep_driver(driver, bell));
            }
        }
        Err(DeviceError::NotFound)
    }

    fn keep_driver<D: CardDriver + Send + 'static>(&self, driver: D, bell: CapSlot) -> Arc<dyn Interface> {
        Self::keep(Arc::new(Card::new(driver, self.log())), bell)
    }

    fn keep<C: Interface + Watched + 'static>(card: Arc<C>, bell: CapSlot) -> Arc<dyn Interface> {
        BELL.store(bell.0, Ordering::Release);
        CARD.call_once(|| Found { watched: card.clone(), interface: card.clone() });
        card
    }

    fn log(&self) -> Box<dyn Fn(&str) + Send + Sync> {
        let host = self.host.clone();
        Box::new(move |line| host.log("warn", line))
    }

    /// A card over a session, with a domain or the kernel.
    #[inline(never)]
    fn open_session<P: SessionPlace + 'static>(
        &self,
        place: impl FnOnce(CapSlot) -> Result<(P, DmaRegion), DeviceError>,
    ) -> Result<Arc<dyn Interface>, DeviceError> {
        let bell = kernel::next_slot();
        call::bell_create(bell, SLOT_FIRST_PROCESSOR)?;
        let (place, bytes) = place(bell)?;
        let pause = || {
            let _ = call::yield_to(SLOT_NONE);
        };
        let card = SessionCard::open(place, bytes, self.log(), pause).ok_or(DeviceError::Service)?;
        Ok(Self::keep(Arc::new(card), bell))
    }

    #[inline(never)]
    fn make_domain(&self, bell: CapSlot) -> Result<(DomainSession, DmaRegion), DeviceError> {
        let is_card = |device: &Device| {
            device.is_of_type(DEVICE_TYPE_NET)
                || device.is_pci(|vendor, device| e1000::Model::of(vendor, device).is_some())
        };
        let Some(Device::Own(slot)) = devices(&self.info).find(is_card) else { return Err(DeviceError::NotFound) };
        net_domain::prepare(&self.info, slot, bell, self.drivers.net_fault)
            .map_err(|_| DeviceError::Memory)?
            .ok_or(DeviceError::NoDomain)
    }

    /// The card, wherever its driver is to be.
    fn start(&self) -> Result<Arc<dyn Interface>, DeviceError> {
        match self.drivers.net.placement {
            Placement::Library => self.find(),
            Placement::Domain => self.open_session(|bell| self.make_domain(bell)),
            Placement::Kernel => self
                .open_session(|bell| net_kernel::Place::find(&self.info, bell).map_err(|_| DeviceError::NotInKernel)),
        }
    }
}

impl Carrier for NetCarrier {
    fn open(&self) -> Option<Arc<dyn Interface>> {
        match self.start() {
            Ok(card) => {
                // If processor 0 sleeps, it does so without the card's bell.
                processor::ring_first();
                Some(card)
            }
            Err(DeviceError::NotFound) => {
                self.host.log("warn", "there is no network: the machine has no card");
                None
            }
            Err(error) => {
                self.host.log("warn", &alloc::format!("there is no network: the card cannot be used: {error}"));
                None
            }
        }
    }

    fn wake_at(&self, deadline_ns: u64) {
        DUE_NS.fetch_min(deadline_ns, Ordering::AcqRel);
        self.bells.arm_timer(deadline_ns);
    }
}

/// When the timer has to ring for the network, if it has to: not at once, so that what was interrupted gets on, also
/// when frames come without end.
pub(crate) fn ring_ns(now_ns: u64) -> Option<u64> {
    let due_ns = Some(DUE_NS.load(Ordering::Acquire)).filter(|due_ns| *due_ns != NEVER)?;
    Some(due_ns.max(now_ns + PAUSE_NS))
}

/// The card's bell, once it was found.
pub(crate) fn bell() -> Option<CapSlot> {
    Some(CapSlot(BELL.load(Ordering::Acquire))).filter(|slot| slot.0 != 0)
}

/// Takes in that the card has interrupted, and what time has brought. Called on processor 0; `have_bells_rung` says
/// that the card's may be among them.
///
/// Where a thread was interrupted in the middle of exos ([`processor::Processor::keep_running`]), it may have what a
/// poll needs, so that comes as soon as it has left.
pub(crate) fn absorb(inet: &Arc<Inet>, bells: &Bells, have_bells_rung: bool) {
    let has_rung = have_bells_rung && CARD.get().is_some_and(|card| card.watched.hear());
    if !has_rung && DUE_NS.load(Ordering::Acquire) == NEVER {
        return;
    }
    if !processor::this_processor().keeps_running() {
        look_at(inet, bells, has_rung);
    } else if has_rung {
        let now_ns = kernel::now_ns();
        DUE_NS.fetch_min(now_ns, Ordering::AcqRel);
        bells.arm_timer(now_ns + PAUSE_NS);
    }
}

/// A look on the way of a thread that gives its processor up, or would wait if it did; whether there was something.
#[inline]
pub(crate) fn look(inet: &Arc<Inet>, bells: &Bells) -> bool {
    CARD.get().is_some() && !processor::this_processor().keeps_running() && look_at(inet, bells, false)
}

#[cold]
fn look_at(inet: &Arc<Inet>, bells: &Bells, has_rung: bool) -> bool {
    let has_news = has_rung || CARD.get().is_some_and(|card| card.watched.has_news());
    let is_due = has_news || is_due(kernel::now_ns());
    if has_news {
        super::shares::note_news();
    }
    if is_due {
        poll(inet, bells);
    }
    is_due
}

fn is_due(now_ns: u64) -> bool {
    DUE_NS.load(Ordering::Acquire) <= now_ns
}

/// Asks the card to interrupt; false: it has something already, for which a poll is due, and the processor must not
/// sleep.
pub(crate) fn may_sleep() -> bool {
    let has_news = CARD.get().is_some_and(|card| card.interface.ask_for_interrupt());
    if has_news {
        DUE_NS.store(0, Ordering::Release);
    }
    !has_news
}

/// Polls while there is something to do, up to a bound.
fn poll(inet: &Arc<Inet>, bells: &Bells) {
    if IS_POLLING.swap(true, Ordering::Acquire) {
        return;
    }
    for _ in 0..POLL_COUNT_MAX {
        DUE_NS.store(NEVER, Ordering::Release);
        let taken_count = || CARD.get().map_or(0, |card| card.watched.taken_count());
        let before_count = taken_count();
        let now_ns = kernel::now_ns();
        if let Some(due_ns) = inet.poll(now_ns) {
            DUE_NS.fetch_min(due_ns, Ordering::AcqRel);
        }
        let is_busy = taken_count() != before_count;
        if is_busy {
            DUE_NS.fetch_min(now_ns + BUSY_LOOK_NS, Ordering::AcqRel);
        }
        if (is_busy || may_sleep()) && !is_due(now_ns) {
            break;
        }
    }
    IS_POLLING.store(false, Ordering::Release);
    if let Some(ring_ns) = ring_ns(kernel::now_ns()) {
        bells.arm_timer(ring_ns);
    }
}

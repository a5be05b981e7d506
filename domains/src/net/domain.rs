//! The domain's loop, its card, and what the service needs of it.
#![allow(unsafe_code, reason = "reads the plan's page")]

use core::sync::atomic::AtomicU64;

use aegis_domains::function::{self, BellIrq, DeviceError, Misdeed, NoGuard, Own, driver_memory, fault, now_ns};
use aegis_domains::layout::{PLAN_BASE, SLOT_BELL, client_slots};
use aegis_domains::net_plan::{DRIVER_PAGE_COUNT, PLAN_WORD_COUNT, Plan};
use aegis_e1000 as e1000;
use aegis_hal::{DmaRegion, DmaRun, EitherCard, MmioRegion};
use aegis_rt::call;
use aegis_service::net::{Health, NetHost, NetService};
use aegis_virtio::net::{DEVICE_TYPE_NET, Limits, NetCard};
use aegis_virtio::{AnyTransport, Function, FunctionKind, device_type, open};

const LIMITS: Limits =
    Limits { receive_buffer_count: 256, transmit_buffer_count: 256, reset_poll_count_max: 1_000_000 };
const E1000_LIMITS: e1000::Limits =
    e1000::Limits { receive_buffer_count: 256, transmit_buffer_count: 256, reset_poll_count_max: 1_000_000 };
const _: () = assert!(LIMITS.page_count() as u64 <= DRIVER_PAGE_COUNT);
const _: () = assert!(E1000_LIMITS.page_count() as u64 <= DRIVER_PAGE_COUNT);

/// The card, whichever it is.
type Card = EitherCard<NetCard<AnyTransport<MmioRegion, NoGuard>, DmaRun>, e1000::NetCard<MmioRegion, DmaRun>>;

/// Starts the card.
fn start_card(memory_frame: u64) -> Result<Card, DeviceError> {
    let memory = || Ok::<_, DeviceError>(DmaRun::new(driver_memory(memory_frame, DRIVER_PAGE_COUNT)?));
    if device_type(&Own)? == Some(DEVICE_TYPE_NET) {
        let transport = open(&Own)?.ok_or(DeviceError::NotFound)?;
        return Ok(EitherCard::First(NetCard::new(transport, memory()?, LIMITS)?));
    }
    let FunctionKind::Pci { vendor, device } = Own.kind()? else { return Err(DeviceError::NotFound) };
    let model = e1000::Model::of(vendor, device).ok_or(DeviceError::NotFound)?;
    let mut registers = Own.map(0, None)?;
    // The one before may have left it at work.
    e1000::NetCard::<MmioRegion, DmaRun>::quiet(&mut registers).map_err(|_| DeviceError::Driver)?;
    Own.enable()?;
    let card = e1000::NetCard::new(model, registers, memory()?, E1000_LIMITS).map_err(|_| DeviceError::Driver)?;
    Ok(EitherCard::Second(card))
}

/// Takes in an interrupt; whether the card goes on.
fn acknowledge(card: &mut Card, irq: &mut BellIrq) -> bool {
    match card {
        EitherCard::First(card) => card.acknowledge(irq).is_ok(),
        EitherCard::Second(card) => card.acknowledge(irq).is_ok(),
    }
}

/// The client's session.
struct DomainHost {
    words: &'static [AtomicU64],
    bytes: DmaRegion,
}

impl NetHost<DmaRegion> for DomainHost {
    type Words = [AtomicU64];

    fn session(&mut self) -> Option<(&[AtomicU64], &mut DmaRegion)> {
        Some((self.words, &mut self.bytes))
    }

    fn wake(&mut self) {
        let _ = call::bell_ring(client_slots(0)[1]);
    }
}

/// Where the domain begins.
pub(crate) extern "C" fn start() -> ! {
    // SAFETY: the maker has mapped the plan, for good, and writes it no more.
    let words = unsafe { (PLAN_BASE as *const [u64; PLAN_WORD_COUNT]).read() };
    let Some(plan) = Plan::from_words(&words) else { fault() };
    let misdeed = Misdeed::new(plan.fault);
    let Ok(card) = start_card(plan.memory_frame) else { fault() };
    let Ok(irq) = BellIrq::bind(0) else { fault() };
    let words = function::show_session(0, plan.session_page_count, plan.word_page_count);
    let Ok(bytes) = function::session_memory(0, plan.session_page_count, plan.word_page_count) else { fault() };
    let mut service = NetService::new(card, DomainHost { words, bytes });
    if service.attach().is_err() {
        fault();
    }
    serve(service, irq, misdeed)
}

/// Serves until something is wrong.
fn serve(mut service: NetService<Card, DomainHost>, mut irq: BellIrq, misdeed: Misdeed) -> ! {
    if misdeed.due_ns < u64::MAX {
        let _ = call::bell_ring_at(SLOT_BELL, misdeed.due_ns);
    }
    loop {
        let now_ns = now_ns();
        let visit = service.visit(now_ns);
        if service.health() == Health::Dead || !service.has_client() {
            fault();
        }
        let host = service.host();
        misdeed.do_if_due(now_ns, host.words, || {
            let _ = call::bell_ring(client_slots(0)[1]);
        });
        if visit.has_more || service.ask(now_ns) {
            continue;
        }
        if function::sleep() {
            // A card that cannot go on is found so by the visit, and reset.
            let _ = acknowledge(service.device(), &mut irq);
        }
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    fault()
}

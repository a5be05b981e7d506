//! The domain's loop, and what the service needs of it.
#![allow(unsafe_code, reason = "the plan is read here")]

use core::sync::atomic::AtomicU64;

use aegis_domains::disk_plan::{PLAN_EXTENT_COUNT_MAX, PLAN_WORD_COUNT, Plan, PlanClient};
use aegis_domains::function::{self, BellIrq, Misdeed, fault, now_ns};
use aegis_domains::layout::{CLIENT_COUNT_MAX, PLAN_BASE, SLOT_BELL};
use aegis_lottery::random::Keyed;
use aegis_proto::block::Extent;
use aegis_rt::call;
use aegis_service::disk::{DiskService, Health, ServedExtent};

use crate::device::{self, DomainDisk};
use crate::host::DomainHost;

/// Requests under way.
const DEPTH: usize = 64;

type Service = DiskService<DomainDisk, DomainHost, CLIENT_COUNT_MAX, DEPTH>;

/// Where the domain begins.
pub(crate) extern "C" fn start() -> ! {
    // SAFETY: the maker has mapped the plan, for good, and writes it no more.
    let words = unsafe { (PLAN_BASE as *const [u64; PLAN_WORD_COUNT]).read() };
    let Some(plan) = Plan::from_words(&words) else { fault() };
    let Ok((disk, interrupt)) = device::start(plan.memory_frame, plan.channel) else { fault() };
    let Ok(irq) = BellIrq::bind(interrupt) else { fault() };
    let mut sessions: [&'static [AtomicU64]; CLIENT_COUNT_MAX] = [&[]; CLIENT_COUNT_MAX];
    for (index, (client, session)) in plan.clients.iter().zip(&mut sessions).enumerate() {
        *session = function::show_session(index, client.session_page_count, client.session_page_count);
    }
    let mut service = Service::new(disk, DomainHost::new(sessions));
    if plan.clients_offer {
        service.limit_requests();
    }
    for (index, client) in clients_of(&plan).filter(|_| !plan.clients_offer) {
        // A client whose session is none has none.
        let _ = service.attach(index, &extents_of(&service, client), client.tickets as u32);
    }
    serve(service, &plan, irq, Keyed::new([plan.key, now_ns()]))
}

fn clients_of(plan: &Plan) -> impl Iterator<Item = (usize, &PlanClient)> {
    plan.clients.iter().enumerate().filter(|(_, client)| client.session_page_count > 0)
}

/// Takes those that offer a session that was not taken yet; whether there was one.
fn adopt(service: &mut Service, plan: &Plan) -> bool {
    let mut is_taken = false;
    for (index, client) in clients_of(plan) {
        if !service.is_adoption_due(index) {
            continue;
        }
        is_taken |= service.adopt(index, &extents_of(service, client), client.tickets as u32);
    }
    is_taken
}

fn extents_of(service: &Service, client: &PlanClient) -> [ServedExtent; PLAN_EXTENT_COUNT_MAX] {
    let disk_sectors = service.sector_count();
    let mut extents = [ServedExtent::default(); PLAN_EXTENT_COUNT_MAX];
    for (served, extent) in extents.iter_mut().zip(&client.extents) {
        let sector_count = if extent.sector_count == u64::MAX {
            disk_sectors.saturating_sub(extent.first_sector)
        } else {
            extent.sector_count
        };
        let rights = extent.rights as u8;
        *served = ServedExtent { first_sector: extent.first_sector, extent: Extent { sector_count, rights } };
    }
    extents
}

/// Serves for ever.
///
/// The alarm is set when there is none, not at each sleep: what it finds too early is put off.
fn serve(mut service: Service, plan: &Plan, mut irq: BellIrq, mut random: Keyed) -> ! {
    let misdeed = Misdeed::new(plan.fault);
    let mut alarm_ns = 0;
    loop {
        let mut now_ns = function::now_ns();
        let visit = service.visit(now_ns, &mut random);
        // Whatever keeps us from sleeping, a disk that hangs is found.
        service.watch(now_ns);
        if service.health() == Health::Dead {
            fault();
        }
        let host = service.host();
        misdeed.do_if_due(now_ns, host.session(0), || host.wake_first());
        if plan.clients_offer && adopt(&mut service, plan) || visit.has_more || service.ask(now_ns) {
            continue;
        }
        let due_ns = service.deadline_ns().unwrap_or(u64::MAX).min(misdeed.due_ns);
        if due_ns < u64::MAX && alarm_ns <= now_ns && call::bell_ring_at(SLOT_BELL, due_ns).is_ok() {
            alarm_ns = due_ns;
        }
        let has_interrupted = function::sleep();
        now_ns = function::now_ns();
        let is_late = alarm_ns <= now_ns;
        if (has_interrupted || is_late) && !device::acknowledge(service.device(), &mut irq) {
            // The next visit finds that, and resets the disk.
            continue;
        }
        if is_late && !service.has_completed() {
            service.watch(now_ns);
        }
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    fault()
}

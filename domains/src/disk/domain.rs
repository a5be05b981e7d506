//! The domain's loop, and what the service needs of it.
#![allow(unsafe_code, reason = "the sessions of clients are mapped here")]

use core::sync::atomic::AtomicU64;

use aegis_domains::disk_plan::{PLAN_EXTENT_COUNT_MAX, PLAN_WORD_COUNT, Plan, PlanClient};
use aegis_domains::function::{self, BellIrq, fault, now_ns};
use aegis_domains::layout::{CLIENT_COUNT_MAX, PLAN_BASE, SLOT_BELL, SLOT_DEVICE, buffer_slot, client_slots};
use aegis_hal::DeviceAddress;
use aegis_hal::block::BlockMemory;
use aegis_hal::net::{DmaWindow, Place};
use aegis_lottery::random::Keyed;
use aegis_proto::block::Extent;
use aegis_rt::call;
use aegis_service::disk::{Buffer, DiskService, Health, Host, ServedExtent};

use crate::device::{self, DomainDisk};

/// Requests under way.
const DEPTH: usize = 64;

/// What the service needs: places are device addresses.
struct DomainHost {
    sessions: [&'static [AtomicU64]; CLIENT_COUNT_MAX],
}

impl DmaWindow for DomainHost {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        Some(DeviceAddress(place.offset))
    }
}

impl BlockMemory for DomainHost {
    fn copy_in(&self, _: Place, _: &[u8]) -> bool {
        false
    }

    fn copy_out(&self, _: Place, _: &mut [u8]) -> bool {
        false
    }
}

impl Host for DomainHost {
    type Words = [AtomicU64];

    fn words(&self, client: usize) -> &[AtomicU64] {
        self.sessions.get(client).copied().unwrap_or_default()
    }

    fn wake(&mut self, client: usize) {
        let _ = call::bell_ring(client_slots(client)[1]);
    }

    fn bind(&mut self, client: usize, buffer: Buffer) -> Option<u64> {
        let slot = buffer_slot(client, buffer.slot)?;
        // SAFETY: a client's frames, of which nothing is mapped here; the kernel checks that they are as many.
        unsafe { call::device_dma_bind(SLOT_DEVICE, slot, 0, u64::from(buffer.page_count)) }.ok()
    }

    fn unbind(&mut self, client: usize, buffer: Buffer, _: u64) {
        if let Some(slot) = buffer_slot(client, buffer.slot) {
            // SAFETY: as above; the disk is done with it.
            let _ = unsafe { call::device_dma_unbind(SLOT_DEVICE, slot, 0, u64::from(buffer.page_count)) };
        }
    }

    fn release(&mut self, _: usize) {}
}

type Service = DiskService<DomainDisk, DomainHost, CLIENT_COUNT_MAX, DEPTH>;

/// Where the domain begins.
pub(crate) extern "C" fn start() -> ! {
    // SAFETY: the maker has mapped the plan, for good, and writes it no more.
    let words = unsafe { (PLAN_BASE as *const [u64; PLAN_WORD_COUNT]).read() };
    let Some(plan) = Plan::from_words(&words) else { fault() };
    let begin_ns = now_ns();
    let Ok(disk) = device::start(plan.memory_frame) else { fault() };
    let Ok(irq) = BellIrq::bind() else { fault() };
    let mut sessions: [&'static [AtomicU64]; CLIENT_COUNT_MAX] = [&[]; CLIENT_COUNT_MAX];
    for (index, (client, session)) in plan.clients.iter().zip(&mut sessions).enumerate() {
        *session = function::show_session(index, client.session_page_count, client.session_page_count);
    }
    let mut service = Service::new(disk, DomainHost { sessions });
    for (index, client) in plan.clients.iter().enumerate() {
        if client.session_page_count > 0 {
            attach(&mut service, index, client);
        }
    }
    let fault_ns = if plan.fault_after_ns > 0 { begin_ns + plan.fault_after_ns } else { u64::MAX };
    serve(service, irq, Keyed::new([plan.key, begin_ns]), fault_ns)
}

fn attach(service: &mut Service, index: usize, client: &PlanClient) {
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
    // A client whose session is none has none.
    let _ = service.attach(index, &extents, client.tickets as u32);
}

/// Serves for ever.
///
/// The alarm is set when there is none, not at each sleep: what it finds too early is put off.
fn serve(mut service: Service, mut irq: BellIrq, mut random: Keyed, fault_ns: u64) -> ! {
    let mut alarm_ns = 0;
    loop {
        let mut now_ns = function::now_ns();
        let visit = service.visit(now_ns, &mut random);
        if service.health() == Health::Dead || now_ns >= fault_ns {
            fault();
        }
        if visit.has_more || service.ask(now_ns) {
            continue;
        }
        let due_ns = service.deadline_ns().unwrap_or(u64::MAX).min(fault_ns);
        if due_ns < u64::MAX && alarm_ns <= now_ns && call::bell_ring_at(SLOT_BELL, due_ns).is_ok() {
            alarm_ns = due_ns;
        }
        let has_interrupted = function::sleep();
        now_ns = function::now_ns();
        let is_late = alarm_ns <= now_ns;
        if (has_interrupted || is_late) && service.device().acknowledge(&mut irq).is_err() {
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

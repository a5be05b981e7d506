//! The pool: one disk whose extents pods have, behind a domain that the manager makes.
//!
//! Each extent is a client of the domain's service (`aegis_service::disk`), with a session and memory for transfers
//! that are the pod's to write, the domain's to read and write, and the disk's to reach: nothing else of a pod is. A
//! pod offers its session when it begins; the service takes it when it is done with the one before.
//!
//! The domain is lost when the kernel has stopped it, or when a pod doubts it and it does not take a session that the
//! manager offers within [`PING_NS`]: the manager is a client, too, which has nothing of the disk. Then its disk is
//! reset, what pods offered is withdrawn, so that they offer it anew, and another domain begins. One that is lost more
//! often than [`LOSS_COUNT_MAX`] times in [`LOSS_WITHIN_NS`] stays away.
//!
//! Invariants: the service is told of an extent by the manager alone, with the pod whose memory its session is; the
//! manager believes nothing that a pod or the domain writes, and does at most one look in [`PING_NS`] for pods' doubts.
//!
//! Neighbours: `aegis_domains` makes domains; `manager` sleeps on [`Pool::bells`]; `exos/linux/src/glue/disk_pool.rs`
//! is a pod's side.
#![allow(unsafe_code, reason = "a session's first page is shown here")]

use core::sync::atomic::AtomicU64;

use aegis_abi::boot::{BootInfo, BundlePart};
use aegis_abi::call::TICKET_AMOUNT_MAX;
use aegis_abi::layout::{LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::BindFlags;
use aegis_abi::types::{SLOT_BUNDLE, SLOT_DEVICE_FIRST, SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights};
use aegis_domains::disk_plan::{self, DRIVER_PAGE_COUNT, PlanExtent};
use aegis_domains::layout::{CLIENT_COUNT_MAX, client_slots};
use aegis_domains::make::{self, Image, Maker, PlanPage, Slots};
use aegis_image::flat;
use aegis_link::drivers::Fault;
use aegis_link::pods::{
    ExtentPlan, POD_COUNT_MAX, POOL_BASE, POOL_EXTENT_COUNT_MAX, POOL_PAGE_COUNT, POOL_SESSION_PAGE_COUNT, POOL_STRIDE,
    Plan, SLOT_POOL_BELL, SLOT_POOL_DOUBT, SLOT_POOL_FRAMES, SLOT_POOL_SERVICE,
};
use aegis_proto::block::{Client, RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE, Session, Shape, State};
use aegis_rt::call::{self, Outcome, Refusal};
use aegis_virtio::block::DEVICE_TYPE_BLOCK;
use aegis_virtio::device_type;

use crate::device::Device;
use crate::memory::{Bundle, drop_slot, fill, map, repeat, take_clear};
use crate::pod::now_ns;
use crate::report::say;

const SLOT_IMAGE: CapSlot = CapSlot(900);
const SLOT_MEMORY: CapSlot = CapSlot(901);
/// What all clients ring.
const SLOT_SERVICE: CapSlot = CapSlot(902);
/// What rings when the kernel has stopped the domain, and when that has taken our own session.
const SLOT_WATCH: CapSlot = CapSlot(903);
/// What pods ring that doubt it.
const SLOT_DOUBT: CapSlot = CapSlot(907);
/// The frames of our own session.
const SLOT_SESSION: CapSlot = CapSlot(908);
const SLOT_ENVIRONMENT: CapSlot = CapSlot(904);
const SLOT_TABLES: CapSlot = CapSlot(905);
const SLOT_PROCESSOR: CapSlot = CapSlot(906);
/// Of each extent its session and its memory for transfers.
const SLOT_EXTENT_FIRST: u32 = 910;
/// Of each pod its bell and the frames of all its extents.
const SLOT_POD_FIRST: u32 = 930;
/// Where the first page of each session is shown.
const WINDOW_BASE: u64 = LIBOS_BASE + (112 << 30);
/// Our own client's number, and its session.
const OWN_CLIENT: usize = POOL_EXTENT_COUNT_MAX;
const OWN_SHAPE: Shape = Shape { depth: 1, indirect_page_count: 0 };
const OWN_PAGE_COUNT: u64 = OWN_SHAPE.page_count() as u64;
/// A domain takes our session in this time.
const PING_NS: u64 = 1_000_000_000;
const FIRST_GENERATION: u32 = 2;
/// Losses in [`LOSS_WITHIN_NS`] after which there is no domain any more.
const LOSS_COUNT_MAX: usize = 64;
const LOSS_WITHIN_NS: u64 = 4_000_000_000;
const _: () = assert!(OWN_CLIENT < CLIENT_COUNT_MAX);
const _: () = assert!(SLOT_EXTENT_FIRST as usize + 2 * POOL_EXTENT_COUNT_MAX <= SLOT_POD_FIRST as usize);

const READ_WRITE: Rights = Rights::READ.union(Rights::WRITE);

struct PoolMaker;

impl Maker for PoolMaker {
    fn repeat(&mut self, call: &mut dyn FnMut() -> Outcome) -> Outcome {
        repeat(call)
    }

    fn write_page(&mut self, frame: u64, bytes: &[u8]) -> Result<(), Refusal> {
        fill(SLOT_MEMORY, frame, 1, |page| {
            let (head, rest) = page.split_at_mut(bytes.len().min(PAGE_SIZE as usize));
            head.copy_from_slice(&bytes[..head.len()]);
            rest.fill(0);
        })
    }
}

/// The virtio disk that is the pool: the machine's last.
pub(crate) fn function_of_pool(info: &BootInfo) -> Option<CapSlot> {
    let slots = (0..info.device_count).rev().map(|index| CapSlot(SLOT_DEVICE_FIRST.0 + index));
    let is_disk = |slot: &CapSlot| device_type(&Device(*slot)).ok().flatten() == Some(DEVICE_TYPE_BLOCK);
    slots.into_iter().find(is_disk)
}

/// The slots of an extent's session and memory for transfers.
fn extent_slots(number: usize) -> [CapSlot; 2] {
    [0, 1].map(|index| CapSlot(SLOT_EXTENT_FIRST + 2 * number as u32 + index))
}

/// The slots of a pod's bell and frames.
fn pod_slots(number: u32) -> [CapSlot; 2] {
    [0, 1].map(|index| CapSlot(SLOT_POD_FIRST + 2 * number + index))
}

/// A pod's extents by their numbers in the plan.
fn extents_of(plan: &Plan, pod: u32) -> impl Iterator<Item = (usize, &ExtentPlan)> {
    plan.pool().enumerate().filter(move |(_, extent)| extent.pod == pod)
}

/// Frames that a pod's extents take of what it may have.
pub(crate) fn frame_count(plan: &Plan, pod: u32) -> u64 {
    extents_of(plan, pod).count() as u64 * POOL_PAGE_COUNT
}

/// The pool, with a domain or, when that was lost too often, without.
pub(crate) struct Pool<'a> {
    plan: &'a Plan,
    image: Image<'static>,
    slots: Slots,
    memory_frame: u64,
    /// Our own session, and its generation.
    client: Client,
    generation: u32,
    /// Somebody doubts the domain: when it is lost if our session was not taken.
    ping_end_ns: Option<u64>,
    losses_ns: [u64; LOSS_COUNT_MAX],
    loss_count: usize,
    is_given_up: bool,
}

impl<'a> Pool<'a> {
    /// Makes sessions for all extents of a plan, and the domain. `None`: the machine has no disk for it, or the part is
    /// no domain.
    pub(crate) fn make(
        info: &BootInfo,
        bundle: &Bundle,
        part: BundlePart,
        plan: &'a Plan,
    ) -> Result<Option<Self>, Refusal> {
        let bytes = bundle.bytes(part.offset_bytes, part.length_bytes.next_multiple_of(PAGE_SIZE))?;
        let (Some(device), Ok(header)) = (function_of_pool(info), flat::parse(bytes)) else { return Ok(None) };
        let (offset, count) = (part.offset_bytes / PAGE_SIZE, bytes.len() as u64 / PAGE_SIZE);
        call::cap_derive(SLOT_BUNDLE, SLOT_IMAGE, Rights::READ | Rights::EXECUTE | Rights::GRANT, offset, count)?;
        let image = Image {
            slot: SLOT_IMAGE,
            first_frame: bundle.frame + offset,
            header,
            bytes,
            driver_page_count: DRIVER_PAGE_COUNT,
            dma_range_count: 1 + plan.pool().count() as u32,
        };
        let memory_frame = take_clear(SLOT_MEMORY, image.memory_page_count())?;
        call::bell_create(SLOT_SERVICE, SLOT_NONE)?;
        call::bell_create(SLOT_WATCH, SLOT_NONE)?;
        call::bell_create(SLOT_DOUBT, SLOT_NONE)?;
        let mut clients = [[SLOT_NONE; 3]; CLIENT_COUNT_MAX];
        for pod in 0..POD_COUNT_MAX as u32 {
            make_sessions(plan, pod, &mut clients)?;
        }
        let frame = take_clear(SLOT_SESSION, OWN_PAGE_COUNT)?;
        map(SLOT_SELF, page_of(OWN_CLIENT), frame, OWN_PAGE_COUNT, SLOT_SESSION, BindFlags::WRITE)?;
        clients[OWN_CLIENT] = [SLOT_SESSION, SLOT_WATCH, SLOT_NONE];
        let Some(client) = Client::new(words_of(OWN_CLIENT, OWN_PAGE_COUNT), OWN_SHAPE, FIRST_GENERATION) else {
            return Ok(None);
        };
        let slots = Slots {
            environment: SLOT_ENVIRONMENT,
            tables: SLOT_TABLES,
            processor: SLOT_PROCESSOR,
            memory: SLOT_MEMORY,
            device,
            bell: SLOT_SERVICE,
            watch: SLOT_WATCH,
            session_rights: Rights::empty(),
            clients,
        };
        let (losses_ns, loss_count) = ([0; LOSS_COUNT_MAX], 0);
        let pool = Self {
            plan,
            image,
            slots,
            memory_frame,
            client,
            generation: FIRST_GENERATION,
            ping_end_ns: None,
            losses_ns,
            loss_count,
            is_given_up: false,
        };
        pool.start()?;
        Ok(Some(pool))
    }

    fn start(&self) -> Result<(), Refusal> {
        let mut plan = disk_plan::Plan {
            memory_frame: self.memory_frame,
            key: now_ns(),
            clients_offer: true,
            fault: Fault::words(self.plan.pool_fault),
            ..disk_plan::Plan::default()
        };
        for (client, extent) in plan.clients.iter_mut().zip(self.plan.pool()) {
            let writes = if extent.is_read_only { 0 } else { RIGHT_WRITE | RIGHT_DISCARD };
            let tickets = self.plan.pods().nth(extent.pod as usize).map_or(1, |pod| pod.ticket_amount);
            client.session_page_count = POOL_SESSION_PAGE_COUNT;
            client.tickets = tickets.min(u64::from(u32::MAX));
            client.extents[0] = PlanExtent {
                first_sector: extent.first_sector,
                sector_count: extent.sector_count,
                rights: u64::from(RIGHT_READ | writes),
            };
        }
        plan.clients[OWN_CLIENT].session_page_count = OWN_PAGE_COUNT;
        let page = PlanPage { memory_frame: self.memory_frame, words: &plan.to_words() };
        make::start(&mut PoolMaker, &self.image, &self.slots, &page)?;
        // As much as those together that wait for it, so that none of them keeps the others' driver from running.
        let all = self.plan.pods().map(|pod| pod.ticket_amount).fold(0, u64::saturating_add);
        call::ticket_amount(SLOT_ENVIRONMENT, all.clamp(1, TICKET_AMOUNT_MAX)).map(|_| ())
    }

    /// Gives a pod that is made its sessions and a bell for its processor.
    pub(crate) fn admit(&self, pod: u32, environment: CapSlot, processor: CapSlot) -> Result<(), Refusal> {
        let [bell, frames] = pod_slots(pod);
        if extents_of(self.plan, pod).next().is_none() {
            return Ok(());
        }
        renew_bell(bell, processor)?;
        call::cap_grant(bell, environment, SLOT_POOL_BELL, READ_WRITE | Rights::RING | Rights::WAIT)?;
        call::cap_grant(SLOT_SERVICE, environment, SLOT_POOL_SERVICE, Rights::RING)?;
        call::cap_grant(SLOT_DOUBT, environment, SLOT_POOL_DOUBT, Rights::RING)?;
        call::cap_grant(frames, environment, SLOT_POOL_FRAMES, READ_WRITE)?;
        let first = call::cap_read(frames, 1)?;
        for (place, (number, _)) in (0..).zip(extents_of(self.plan, pod)) {
            let frame = first + place * POOL_PAGE_COUNT;
            map(environment, POOL_BASE + place * POOL_STRIDE, frame, POOL_PAGE_COUNT, frames, BindFlags::WRITE)?;
            let [_, bell_slot] = client_slots(number);
            // A domain that is there no more has one after it, which is given the bell then.
            let _ = repeat(|| call::cap_grant(bell, SLOT_ENVIRONMENT, bell_slot, Rights::RING));
        }
        Ok(())
    }

    /// The bells that ring when there is something to look at. While a look is under way nobody's doubts matter.
    pub(crate) fn bells(&self) -> impl Iterator<Item = CapSlot> {
        [Some(SLOT_WATCH), self.ping_end_ns.is_none().then_some(SLOT_DOUBT)].into_iter().flatten()
    }

    /// When there is something to look at in any case.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.ping_end_ns
    }

    /// Looks after the domain, if there is reason to.
    pub(crate) fn tend(&mut self) {
        let take = |bell| call::bell_take(bell).unwrap_or(0) > 0;
        let has_stopped = take(SLOT_WATCH);
        if self.is_given_up {
            // Whoever has begun a session in the same moment is told again.
            if take(SLOT_DOUBT) {
                self.withdraw();
            }
            return;
        }
        if has_stopped && make::is_stopped(&self.slots) {
            self.replace("stopped");
        } else if let Some(end_ns) = self.ping_end_ns {
            // Not sooner, so that there is one look in this time, however often they ring.
            if now_ns() >= end_ns {
                self.ping_end_ns = None;
                if self.client.state(words_of(OWN_CLIENT, OWN_PAGE_COUNT)) != State::Up {
                    self.replace("silent");
                }
            }
        } else if take(SLOT_DOUBT) {
            self.generation = self.generation.wrapping_add(2);
            self.client.restart(words_of(OWN_CLIENT, OWN_PAGE_COUNT), self.generation);
            self.ping_end_ns = Some(now_ns() + PING_NS);
            let _ = call::bell_ring(SLOT_SERVICE);
        }
    }

    /// Another domain in the place of one that is lost.
    fn replace(&mut self, why: &str) {
        self.ping_end_ns = None;
        let now_ns = now_ns();
        let place = &mut self.losses_ns[self.loss_count % LOSS_COUNT_MAX];
        let is_too_often = *place != 0 && now_ns.saturating_sub(*place) < LOSS_WITHIN_NS;
        *place = now_ns;
        self.loss_count += 1;
        let has_ended = make::end(&mut PoolMaker, &self.slots) == Ok(true);
        self.is_given_up = !has_ended || is_too_often;
        self.withdraw();
        if !self.is_given_up && self.start().is_err() {
            self.is_given_up = true;
            let _ = make::end(&mut PoolMaker, &self.slots);
            self.withdraw();
        }
        if self.is_given_up {
            say(format_args!("the pool's disk was lost too often, or does not stop: nobody is served any more"));
        } else if self.loss_count.is_power_of_two() || self.loss_count.is_multiple_of(100) {
            say(format_args!("the pool's driver was {why} and is started anew ({})", self.loss_count));
        }
    }

    /// Tells pods that what they offered is served no more.
    fn withdraw(&self) {
        for (number, extent) in self.plan.pool().enumerate() {
            Session::withdraw(words_of(number, 1), self.is_given_up);
            let _ = call::bell_ring(pod_slots(extent.pod)[0]);
        }
    }
}

/// Where a client's session is shown: its first page, of our own all.
fn page_of(client: usize) -> u64 {
    WINDOW_BASE + client as u64 * PAGE_SIZE
}

/// So many pages of a client's session as are shown here, as words.
fn words_of(client: usize, page_count: u64) -> &'static [AtomicU64] {
    // SAFETY: mapped, for good, before anybody asks; all sides read and write whole words.
    unsafe { core::slice::from_raw_parts(page_of(client) as *const AtomicU64, (page_count * PAGE_SIZE) as usize / 8) }
}

/// Makes memory for a pod's extents, and what their clients are by for the domain.
fn make_sessions(plan: &Plan, pod: u32, clients: &mut [[CapSlot; 3]; CLIENT_COUNT_MAX]) -> Result<(), Refusal> {
    let count = frame_count(plan, pod);
    if count == 0 {
        return Ok(());
    }
    let [bell, frames] = pod_slots(pod);
    let first = take_clear(frames, count)?;
    call::bell_create(bell, SLOT_NONE)?;
    for (place, (number, _)) in (0..).zip(extents_of(plan, pod)) {
        let [session, buffer] = extent_slots(number);
        let offset = place * POOL_PAGE_COUNT;
        call::cap_derive(frames, session, READ_WRITE | Rights::GRANT, offset, POOL_SESSION_PAGE_COUNT)?;
        let (offset, count) = (offset + POOL_SESSION_PAGE_COUNT, POOL_PAGE_COUNT - POOL_SESSION_PAGE_COUNT);
        call::cap_derive(frames, buffer, Rights::DMA | Rights::GRANT, offset, count)?;
        let frame = first + place * POOL_PAGE_COUNT;
        map(SLOT_SELF, page_of(number), frame, 1, frames, BindFlags::WRITE)?;
        clients[number] = [session, bell, buffer];
    }
    Ok(())
}

/// A bell in the place of the one that a pod before had, which ends everywhere.
fn renew_bell(bell: CapSlot, processor: CapSlot) -> Result<(), Refusal> {
    // SAFETY: a bell maps nothing.
    repeat(|| unsafe { call::cap_revoke(bell) })?;
    drop_slot(bell)?;
    call::bell_create(bell, processor)?;
    Ok(())
}

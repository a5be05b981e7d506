//! Host directories: finds the 9P transports among the device functions, and waits for their answers.
//!
//! [`Share`] is the one place where anything waits for the host's file server. A thread that waits looks for a short
//! while, because an answer often comes at once and if nobody else is ready; then it blocks as in any other call, and
//! others run. Answers are taken in by the one that looks ([`exos::fs::ninep::flight`]): the waiting thread, processor
//! 0 when the device's bell rings or it goes idle, a thread that meets a lock taken. Where no thread runs (before the
//! first, and while one is taken apart) the processor itself sleeps.
//!
//! A wait is not ended by a signal or the end of its process, as a disk's is not: what the server was asked may have
//! happened. It ends with the answer, or when the server has not answered in
//! [`exos::fs::ninep::flight::ANSWER_LIMIT_NS`] and is given up for good: whatever it sends later is never looked at.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::CapSlot;
use aegis_abi::boot::BootInfo;
use aegis_hal::DmaPool;
use aegis_rt::call;
use aegis_virtio::guard::Geometry;
use aegis_virtio::ninep::{
    Channel, DEVICE_TYPE_NINEP, LANE_COUNT, LANE_SLOT_COUNT, Limits, SMALL_BYTES, TAG_BYTES, WIDE_LANE, WIDE_SLOT_FIRST,
};
use aegis_virtio::{Interrupts, VirtioError};
use exos::fs::ninep::flight::{Broken, Cargo, Carrier, Flights, Ticket};
use exos::fs::ninep::{CLUNK_BYTES, COMPANION_COUNT_MAX, Messages, Requester, SHORT_BYTES_MAX, Silence};
use exos::sync::{Once, SpinMutex};
use exos::task::schedule::Task;

use super::devices::{BellIrq, Device, DeviceError, DeviceMemory, DeviceTransport, devices};
use super::pod::POD;
use super::{fiber, kernel, processor};

/// Pages of the longest message: 128 KiB of a file with what stands before it.
const MESSAGE_PAGE_COUNT: usize = 33;
const LIMITS: Limits = Limits { message_page_count: MESSAGE_PAGE_COUNT, reset_poll_count_max: 100_000 };
/// Pages for rings and messages.
const DMA_PAGE_COUNT: usize = LIMITS.page_count();
/// How long an answer is looked for before the thread blocks.
const SPIN_NS: u64 = 20_000;
/// Longest wait without another look.
const SLEEP_NS: u64 = 100_000_000;

const _: () = assert!(COMPANION_COUNT_MAX < LANE_SLOT_COUNT && SHORT_BYTES_MAX <= SMALL_BYTES);
const _: () = assert!(LIMITS.page_count() <= Geometry::NINEP.driver_page_count());

/// The directories of this run.
static SHARES: Once<Vec<Arc<Share>>> = Once::new();

/// How often something has come from outside of the pod ([`Requester::news`]).
static NEWS: AtomicU64 = AtomicU64::new(0);

/// How often somebody has spoken to the pod ([`Requester::input`]).
static INPUT: AtomicU64 = AtomicU64::new(0);

/// Notes that somebody speaks to the pod, before any program is told of it.
pub(crate) fn note_input() {
    INPUT.fetch_add(1, Ordering::AcqRel);
    note_news();
}

/// Notes that something has come from outside, before any program is told of it.
pub(crate) fn note_news() {
    NEWS.fetch_add(1, Ordering::AcqRel);
}

/// Makes these the shares of the run.
pub(crate) fn keep(shares: Vec<Arc<Share>>) -> &'static [Arc<Share>] {
    SHARES.call_once(|| shares)
}

fn all() -> &'static [Arc<Share>] {
    SHARES.get().map_or(&[], Vec::as_slice)
}

/// Takes in what servers have answered, after a bell. Called on processor 0.
pub(crate) fn absorb() {
    for share in all() {
        share.line.lock().hear();
    }
}

/// Takes in what servers have answered, for a processor that has nothing better to do.
pub(crate) fn look() {
    for share in all() {
        if let Some(mut line) = share.line.try_lock() {
            line.flights.look(kernel::now_ns());
        }
    }
}

/// A directory of the host.
pub(crate) struct Share {
    tag: [u8; TAG_BYTES],
    bell: CapSlot,
    /// Messages that fit on the wide lane.
    many_count_max: usize,
    line: SpinMutex<Line>,
}

/// The way to a server, and what is on it.
struct Line {
    flights: Flights<Wire>,
    irq: BellIrq,
    wants_interrupts: bool,
}

/// The device's channel as lanes.
struct Wire(Channel<DeviceTransport, DeviceMemory<DmaPool<DMA_PAGE_COUNT>>>);

impl Wire {
    fn put(&mut self, lane: usize, cargo: Cargo<'_>) -> Result<(), VirtioError> {
        let first = lane * LANE_SLOT_COUNT;
        match cargo {
            Cargo::One(message, companions) => {
                self.0.put(first, message)?;
                for (slot, companion) in (first + 1..).zip(companions) {
                    self.0.put(slot, companion)?;
                }
            }
            Cargo::Many(messages) => {
                for (slot, message) in (WIDE_SLOT_FIRST..).zip(messages.iter()) {
                    self.0.put(slot, message)?;
                }
            }
        }
        self.0.submit()
    }

    fn get(&mut self, lane: usize, reply: &mut Vec<u8>) -> Result<(), VirtioError> {
        if lane == WIDE_LANE {
            return self.get_many(reply);
        }
        let first = lane * LANE_SLOT_COUNT;
        reply.resize(self.0.answer_bytes(first).unwrap_or(0), 0);
        self.0.take(first, reply)?;
        for slot in first + 1..first + LANE_SLOT_COUNT {
            if self.0.answer_bytes(slot).is_some() {
                self.0.take(slot, &mut [0; CLUNK_BYTES])?;
            }
        }
        Ok(())
    }

    fn get_many(&mut self, reply: &mut Vec<u8>) -> Result<(), VirtioError> {
        reply.clear();
        let mut bytes = [0; SMALL_BYTES];
        // They were put in a row.
        for slot in WIDE_SLOT_FIRST..WIDE_SLOT_FIRST + self.0.wide_slot_count() {
            if self.0.answer_bytes(slot).is_none() {
                break;
            }
            let count = self.0.take(slot, &mut bytes)?;
            Messages::push(reply, &bytes[..count]);
        }
        Ok(())
    }
}

impl Carrier for Wire {
    fn free_lane(&self, cargo: Cargo<'_>) -> Option<usize> {
        let mut lanes = match cargo {
            Cargo::One(..) => 0..LANE_COUNT,
            Cargo::Many(_) => WIDE_LANE..WIDE_LANE + 1,
        };
        lanes.find(|lane| self.0.is_free(*lane))
    }

    fn send(&mut self, lane: usize, cargo: Cargo<'_>) -> Result<(), Broken> {
        self.put(lane, cargo).map_err(|_| Broken)
    }

    fn poll(&mut self) -> Result<(), Broken> {
        self.0.poll().map_err(|_| Broken)
    }

    fn take(&mut self, lane: usize, reply: &mut Vec<u8>) -> Result<bool, Broken> {
        let is_answered = self.0.is_answered(lane);
        if is_answered {
            self.get(lane, reply).map_err(|_| Broken)?;
        }
        Ok(is_answered)
    }
}

impl Line {
    /// The device's bell may have rung: lets the next interrupt through, and takes in what has come.
    fn hear(&mut self) {
        if self.irq.take() > 0 && self.flights.carrier().0.on_interrupt(&mut self.irq).is_err() {
            self.flights.fail(Silence::Device);
        }
        self.flights.look(kernel::now_ns());
    }

    /// Has the device interrupt with its next answer, or not. Afterwards another look is needed before a sleep.
    fn set_interrupts(&mut self, wanted: bool) {
        self.wants_interrupts = wanted;
        let interrupts = if wanted { Interrupts::Wanted } else { Interrupts::Suppressed };
        if self.flights.carrier().0.set_interrupts(interrupts).is_err() {
            self.flights.fail(Silence::Device);
        }
    }
}

/// A request from its departure to its answer.
struct Journey {
    ticket: Option<Ticket>,
    spin_end_ns: u64,
}

/// What the waiting thread does next.
enum Next {
    Landed(Result<(), Silence>),
    Look,
    Wait,
}

impl Share {
    /// All that the machine has.
    pub(crate) fn find_all(info: &BootInfo) -> Result<Vec<Arc<Self>>, DeviceError> {
        let mut shares = Vec::new();
        for device in devices(info) {
            if let Some(transport) = device.open(DEVICE_TYPE_NINEP)? {
                shares.push(Arc::new(Self::start(device, transport)?));
            }
        }
        Ok(shares)
    }

    /// The name that the host tool gave to it.
    pub(crate) fn tag(&self) -> [u8; TAG_BYTES] {
        self.tag
    }

    fn start(device: Device, mut transport: DeviceTransport) -> Result<Self, DeviceError> {
        let dma = device.memory::<DMA_PAGE_COUNT>(&transport)?;
        let mut irq = device.interrupt()?;
        irq.start(&mut transport)?;
        let bell = irq.bell();
        let channel = Channel::new(transport, dma, LIMITS).map_err(DeviceError::Driver)?;
        let (tag, many_count_max) = (*channel.tag(), channel.wide_slot_count());
        let line = Line { flights: Flights::new(Wire(channel)), irq, wants_interrupts: false };
        Ok(Self { tag, bell, many_count_max, line: SpinMutex::new(line) })
    }

    /// One look at where a request stands. `task` is told of its answer if there is nothing to do but wait.
    fn step(&self, journey: &mut Journey, cargo: Cargo<'_>, reply: &mut Vec<u8>, task: Option<&Arc<Task>>) -> Next {
        let now_ns = kernel::now_ns();
        let is_alone = task.is_none_or(|_| !others_are_ready());
        let mut line = self.line.lock();
        line.flights.look(now_ns);
        if journey.ticket.is_none() {
            if line.wants_interrupts && !line.flights.is_awaited() {
                line.set_interrupts(false);
            }
            match line.flights.depart(cargo, reply) {
                Ok(ticket) => journey.ticket = ticket,
                Err(silence) => return Next::Landed(Err(silence)),
            }
        }
        if let Some((outcome, bytes)) = journey.ticket.and_then(|ticket| line.flights.take(ticket)) {
            *reply = bytes;
            return Next::Landed(outcome);
        }
        if now_ns < journey.spin_end_ns && is_alone {
            return Next::Look;
        }
        if let Some(task) = task {
            line.flights.await_news(journey.ticket, task.clone());
        }
        if !line.wants_interrupts {
            line.set_interrupts(true);
            return Next::Look;
        }
        Next::Wait
    }

    /// A cargo's way to the server and back.
    fn travel(&self, cargo: Cargo<'_>, reply: &mut Vec<u8>) -> Result<(), Silence> {
        let task = waiting_task();
        let mut journey = Journey { ticket: None, spin_end_ns: kernel::now_ns() + SPIN_NS };
        let mut block_count = 0;
        let outcome = loop {
            match self.step(&mut journey, cargo, reply, task.as_ref()) {
                Next::Landed(outcome) => break outcome,
                Next::Look => core::hint::spin_loop(),
                Next::Wait => {
                    let until_ns = kernel::now_ns() + SLEEP_NS;
                    match &task {
                        Some(_) => block(until_ns),
                        None => self.sleep(until_ns),
                    }
                    block_count += 1;
                }
            }
        };
        if let Some(task) = task.filter(|_| block_count > 1) {
            // One of the wakes may have been for what the caller will wait for: it looks once more then.
            task.wake_up();
        }
        outcome
    }

    /// The processor itself sleeps until the device's bell rings, at most until `until_ns`.
    fn sleep(&self, until_ns: u64) {
        // Whatever ended the sleep, the caller looks again.
        let _ = call::sleep(&[processor::bell_term(0, self.bell), processor::clock_term(until_ns)]);
        self.line.lock().hear();
    }
}

/// The thread that runs here, if it may give its processor up.
fn waiting_task() -> Option<Arc<Task>> {
    let is_kept = POD.get().is_none() || processor::this_processor().keeps_running();
    let fiber = fiber::current().filter(|_| !is_kept)?;
    Some(fiber.owner().1.task.clone())
}

fn others_are_ready() -> bool {
    POD.get().is_some_and(|pod| pod.system.scheduler.has_ready(processor::this_number()))
}

/// Blocks the running thread until it is woken, at most until `until_ns`.
fn block(until_ns: u64) {
    let Some(pod) = POD.get() else { return };
    let scheduler = &pod.system.scheduler;
    let now_ns = kernel::now_ns();
    fiber::carry_out(scheduler.block(processor::this_number(), Some(until_ns), now_ns), now_ns);
}

impl Requester for Share {
    fn message_bytes_max(&self) -> usize {
        MESSAGE_PAGE_COUNT * aegis_hal::PAGE_BYTES
    }

    fn request(&self, message: &[u8], companions: &[[u8; CLUNK_BYTES]], reply: &mut Vec<u8>) -> Result<(), Silence> {
        let outcome = self.travel(Cargo::One(message, companions), reply);
        note_news();
        outcome
    }

    fn many_count_max(&self) -> usize {
        self.many_count_max
    }

    fn request_many(&self, messages: &Messages, replies: &mut Vec<u8>) -> Result<(), Silence> {
        self.travel(Cargo::Many(messages), replies)
    }

    fn news(&self) -> u64 {
        NEWS.load(Ordering::Acquire)
    }

    fn input(&self) -> u64 {
        INPUT.load(Ordering::Acquire)
    }

    fn give_up(&self) {
        self.line.lock().flights.fail(Silence::Device);
    }
}

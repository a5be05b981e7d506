//! The order of things: read the bundle, make all currencies and pods, start them, wait for their ends and the host's
//! orders, end the machine.
#![allow(unsafe_code, reason = "the boot information, and a heap that must not be there")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::RefCell;
use core::fmt;
use core::ops::Range;

use aegis_abi::boot::{BUNDLE_PART_COUNT_MAX, BootInfo, BundleHeader, BundlePart};
use aegis_abi::call::{EnvironmentField, TICKET_AMOUNT_MAX};
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::share::TABLE_COUNT;
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_BUNDLE, SLOT_MACHINE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_image::bundle::{self, BundleDamage};
use aegis_image::flat::{self, FlatDamage};
use aegis_link::drivers::PART_DISK_DOMAIN;
use aegis_link::orders::{Action, Answer, EVENT_ID, Order, Outcome, PodState, TicketHolder, memory_of_amount};
use aegis_link::phase::PodPhase;
use aegis_link::pods::{PART_LIBRARY_OS, PART_PLAN, PART_POD, POD_COUNT_MAX, Plan, PlanDamage, PodPlan};
use aegis_rt::call::{self, Refusal};

use crate::currency::{Currencies, Currency};
use crate::device::{DeviceError, functions_of_pods};
use crate::division::{self, Division, Member, Share};
use crate::memory::Bundle;
use crate::orders::Line;
use crate::pod::{Image, Making, Pod, equal_share};
use crate::pool::{self, Pool};
use crate::report::say;

/// Our capability for the library OS's frames.
const SLOT_IMAGE: CapSlot = CapSlot(100);

/// Why the machine cannot be divided.
enum Failure {
    /// The bundle's header.
    Bundle(BundleDamage),
    /// A part of the bundle is missing: its kind.
    Missing(u32),
    /// The plan.
    Plan(PlanDamage),
    /// The library OS.
    Image(FlatDamage),
    /// The plan and the bundle name different numbers of pods.
    PodCount,
    /// The plan and the machine name different numbers of virtio functions.
    DeviceCount(u64, usize),
    /// The machine has too little memory for this pod, which wants so many frames.
    Memory(PodPlan),
    /// A pod's devices.
    Device(PodPlan, DeviceError),
    /// The pool has no disk, or no domain for it.
    Pool,
    /// The kernel refused something of the whole.
    Refused(Refusal),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundle(damage) => write!(out, "the bundle: {damage:?}"),
            Self::Missing(kind) => write!(out, "the bundle has no part of kind {kind}"),
            Self::Plan(damage) => write!(out, "the plan: {damage:?}"),
            Self::Image(damage) => write!(out, "the library OS: {damage:?}"),
            Self::PodCount => out.write_str("the plan is for another number of pods than the bundle"),
            Self::DeviceCount(planned, found) => {
                write!(out, "the plan is for {planned} functions of pods, the machine has {found}")
            }
            Self::Memory(pod) => {
                write!(out, "{}: not enough memory left for its {} frames", pod.name(), pod.frame_quota)
            }
            Self::Device(pod, error) => write!(out, "{}: its devices: {error}", pod.name()),
            Self::Pool => out.write_str("the pool has no disk, or the bundle no driver for it"),
            Self::Refused(refusal) => write!(out, "the kernel refused {refusal:?}"),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Where the kernel enters.
pub(crate) extern "C" fn start(info: *const BootInfo) -> ! {
    // SAFETY: the kernel maps the boot information before it starts the first environment.
    let info = unsafe { info.read() };
    let code = match divide(&info) {
        Ok(()) => 0,
        Err(failure) => {
            say(format_args!("the machine cannot be divided: {failure}"));
            1
        }
    };
    end_machine(code)
}

fn end_machine(code: u32) -> ! {
    let _ = call::machine_off(SLOT_MACHINE, code);
    loop {
        core::hint::spin_loop();
    }
}

/// What all pods are made from.
struct Machine<'a> {
    info: &'a BootInfo,
    bundle: Bundle,
    image: Image,
    /// What each pod gets of the kernel's tables.
    share: [u32; TABLE_COUNT],
    devices: &'a [CapSlot],
    trusts_devices: bool,
    plan: &'a Plan,
    pool: RefCell<Option<Pool<'a>>>,
}

/// A pod of the plan, whether it runs or not.
struct PodRecord<'a> {
    number: u32,
    plan: &'a PodPlan,
    part: BundlePart,
    /// Its devices, as numbers of all.
    devices: Range<usize>,
    life: Life,
    ticket_amount: u64,
    /// Our slot of the currency that the ticket is in.
    payer: Option<CapSlot>,
    /// Its part of the memory.
    share: Share,
}

/// How far a pod's life has come. A pod that is held can be wanted again.
enum Life {
    /// It is there.
    Running { pod: Pod, is_held: bool },
    /// It was taken apart.
    Over {
        /// How it was then.
        last: PodState,
        is_held: bool,
        /// The host knows.
        is_told: bool,
    },
}

impl PodRecord<'_> {
    fn make(&mut self, machine: &Machine<'_>) -> Result<Pod, DeviceError> {
        let bundle_offset = self.part.offset_bytes / PAGE_SIZE;
        let frame_count = self.part.length_bytes.div_ceil(PAGE_SIZE);
        let making = Making {
            plan: self.plan,
            ticket_amount: self.ticket_amount,
            payer: self.payer,
            bundle: Bundle { frame: machine.bundle.frame + bundle_offset, frame_count },
            bundle_offset,
            share: machine.share,
            devices: &machine.devices[self.devices.clone()],
            first_device: self.devices.start,
            trusts_devices: machine.trusts_devices,
            pool_frame_count: pool::frame_count(machine.plan, self.number),
            image: &machine.image,
            info: machine.info,
        };
        let pod = Pod::make(self.number, &making)?;
        if let Some(pool) = &*machine.pool.borrow() {
            pool.admit(self.number, pod.environment(), pod.processor())?;
        }
        self.share.open(self.number, self.plan, pod.environment())?;
        Ok(pod)
    }

    fn phase(&self) -> PodPhase {
        match self.life {
            Life::Running { .. } => PodPhase::Running,
            Life::Over { is_held: true, .. } => PodPhase::Waiting,
            Life::Over { is_held: false, .. } => PodPhase::Ended,
        }
    }

    fn pod(&self) -> Option<&Pod> {
        if let Life::Running { pod, .. } = &self.life { Some(pod) } else { None }
    }

    fn hold(&mut self, holds: bool) {
        let (Life::Running { is_held, .. } | Life::Over { is_held, .. }) = &mut self.life;
        *is_held = holds;
    }

    fn state(&self) -> PodState {
        let state = match &self.life {
            Life::Running { pod, .. } => pod.state(),
            Life::Over { last, .. } => PodState { phase: self.phase(), ..*last },
        };
        let (frames_guaranteed, frames_limit) = (self.share.guaranteed, self.share.limit);
        let (now_ns, tickets) = (crate::pod::now_ns(), self.ticket_amount);
        PodState { now_ns, tickets, frames_guaranteed, frames_limit, ..state }
    }

    /// Takes the pod apart; whatever is left of one that cannot be is never started again.
    fn end(&mut self) -> Result<(), DeviceError> {
        let last = self.state();
        let Life::Running { pod, is_held } = self.life else { return Ok(()) };
        self.life = Life::Over { last, is_held, is_told: false };
        self.share.close(self.number)?;
        if !pod.end(self.plan.name())? {
            say(format_args!("{}: a device of it does not stop; it cannot be started again", self.plan.name()));
            self.hold(false);
        }
        Ok(())
    }

    fn restart(&mut self, machine: &Machine<'_>) -> Result<(), DeviceError> {
        let pod = self.make(machine)?;
        self.life = Life::Running { pod, is_held: true };
        Ok(pod.start()?)
    }
}

/// What has a ticket that the host can change: a pod or a currency.
trait Funded {
    fn state(&self) -> PodState;
    /// Changes the amount of its ticket.
    fn set_tickets(&mut self, amount: u64) -> Result<(), Refusal>;
    /// Does what is not the same for all. `all`: frames that are not guaranteed to other pods.
    fn act(&mut self, machine: &Machine<'_>, action: Action, amount: u64, all: u64) -> Outcome;
}

impl Funded for PodRecord<'_> {
    fn state(&self) -> PodState {
        Self::state(self)
    }

    fn set_tickets(&mut self, amount: u64) -> Result<(), Refusal> {
        self.pod().map_or(Ok(()), |pod| pod.set_tickets(amount))?;
        self.ticket_amount = amount;
        Ok(())
    }

    fn act(&mut self, machine: &Machine<'_>, action: Action, amount: u64, all: u64) -> Outcome {
        let done = |result: Result<(), DeviceError>| result.map_or(Outcome::Refused, |()| Outcome::Done);
        match (action, self.phase()) {
            (Action::Read | Action::Tickets, _) => Outcome::UnknownAction,
            (Action::Release, _) => {
                self.hold(false);
                Outcome::Done
            }
            (Action::Restart, PodPhase::Waiting) => done(self.restart(machine)),
            (Action::Restart, PodPhase::Running) => Outcome::IsRunning,
            (Action::Memory, PodPhase::Running) => {
                let (guaranteed, limit) = memory_of_amount(amount);
                self.share.set(guaranteed, limit, all)
            }
            (Action::Destroy, PodPhase::Running) => done(self.end()),
            (Action::Restart | Action::Memory | Action::Destroy, _) => Outcome::HasEnded,
        }
    }
}

impl Funded for Currency {
    fn state(&self) -> PodState {
        let (phase, now_ns) = (PodPhase::Running, crate::pod::now_ns());
        PodState { phase, now_ns, tickets: self.ticket_amount, ..PodState::default() }
    }

    fn set_tickets(&mut self, amount: u64) -> Result<(), Refusal> {
        Self::set_tickets(self, amount)
    }

    fn act(&mut self, _: &Machine<'_>, _: Action, _: u64, _: u64) -> Outcome {
        Outcome::UnknownAction
    }
}

fn divide(info: &BootInfo) -> Result<(), Failure> {
    let bundle = Bundle { frame: info.bundle_frame, frame_count: info.bundle_frame_count };
    let page = bundle.bytes(0, PAGE_SIZE)?;
    let header = bundle::read_header(page, bundle.frame_count * PAGE_SIZE).map_err(Failure::Bundle)?;
    let parts = &header.parts[..(header.part_count as usize).min(BUNDLE_PART_COUNT_MAX)];
    let plan = find(&header, PART_PLAN)?;
    let plan = Plan::decode(bundle.bytes(plan.offset_bytes, plan.length_bytes)?).map_err(Failure::Plan)?;
    let image = image_of(&bundle, find(&header, PART_LIBRARY_OS)?)?;
    let pod_parts = || parts.iter().filter(|part| part.kind == PART_POD);
    if pod_parts().count() != plan.pods().count() {
        return Err(Failure::PodCount);
    }
    let has_pool = plan.pool().next().is_some();
    let function = if has_pool { pool::function_of_pool(info) } else { None };
    let (devices, device_count) = functions_of_pods(info, plan.trusts_devices, function);
    let wanted_count: u64 = plan.pods().map(|pod| u64::from(pod.device_count)).sum();
    if wanted_count != device_count as u64 {
        return Err(Failure::DeviceCount(wanted_count, device_count));
    }
    let mut currencies = Currencies::make(&plan)?;
    let pool = match has_pool {
        true => Some(make_pool(info, &bundle, find(&header, PART_DISK_DOMAIN)?, &plan)?),
        false => None,
    };
    let share = equal_share(plan.pods().count())?;
    let machine = Machine {
        info,
        bundle,
        image,
        share,
        devices: &devices[..device_count],
        trusts_devices: plan.trusts_devices,
        plan: &plan,
        pool: RefCell::new(pool),
    };
    let division = Division::begin()?;
    let mut pods = [const { None }; POD_COUNT_MAX];
    let mut device = 0;
    for ((number, record), (plan, part)) in (0..).zip(&mut pods).zip(plan.pods().zip(pod_parts())) {
        let first = device;
        device += plan.device_count as usize;
        let mut made = PodRecord {
            number,
            plan,
            part: *part,
            devices: first..device,
            // Until it is made; one that is late is wanted sooner or later.
            life: Life::Over { last: PodState::default(), is_held: plan.is_held || plan.is_late, is_told: true },
            ticket_amount: plan.ticket_amount,
            payer: currencies.slot(plan.payer),
            share: Share::of(plan),
        };
        if !plan.is_late {
            let pod = made.make(&machine).map_err(|error| match error {
                DeviceError::Refused(Refusal { status: Status::NoFrames, .. }) => Failure::Memory(*plan),
                DeviceError::Refused(refusal) => Failure::Refused(refusal),
                error => Failure::Device(*plan, error),
            })?;
            made.life = Life::Running { pod, is_held: plan.is_held };
        }
        *record = Some(made);
    }
    let line = Line::open(info)?;
    for pod in pods.iter().flatten().filter_map(PodRecord::pod) {
        pod.start()?;
    }
    wait(&machine, &mut pods, &mut currencies, line, division)
}

fn make_pool<'a>(info: &BootInfo, bundle: &Bundle, part: BundlePart, plan: &'a Plan) -> Result<Pool<'a>, Failure> {
    Pool::make(info, bundle, part, plan)?.ok_or(Failure::Pool)
}

fn find(header: &BundleHeader, kind: u32) -> Result<BundlePart, Failure> {
    let parts = header.parts.iter().take(header.part_count as usize);
    parts.copied().find(|part| part.kind == kind).ok_or(Failure::Missing(kind))
}

fn image_of(bundle: &Bundle, part: BundlePart) -> Result<Image, Failure> {
    let bytes = bundle.bytes(part.offset_bytes, part.length_bytes.next_multiple_of(PAGE_SIZE))?;
    let header = flat::parse(bytes).map_err(Failure::Image)?;
    let offset = part.offset_bytes / PAGE_SIZE;
    let rights = Rights::READ | Rights::EXECUTE | Rights::GRANT;
    call::cap_derive(SLOT_BUNDLE, SLOT_IMAGE, rights, offset, (bytes.len() as u64) / PAGE_SIZE)?;
    Ok(Image { slot: SLOT_IMAGE, frame: bundle.frame + offset, header, bytes })
}

/// Takes pods apart as they end and does what the host orders, until there is no pod that runs or can run again.
fn wait(
    machine: &Machine<'_>,
    pods: &mut [Option<PodRecord<'_>>],
    currencies: &mut Currencies,
    mut line: Option<Line>,
    mut division: Division,
) -> Result<(), Failure> {
    while pods.iter().flatten().any(|record| record.phase() != PodPhase::Ended) {
        let of_memory_ns = divide_memory(&mut division, pods);
        let of_pool_ns = machine.pool.borrow().as_ref().and_then(Pool::due_ns);
        let next_ns = of_memory_ns.into_iter().chain(of_pool_ns).min();
        let mut terms = [Term::default(); POD_COUNT_MAX + 5];
        let mut count = 0;
        let bells = pods.iter().flatten().filter_map(|record| Some(record.pod()?.bell()));
        // While there is a round to come, it is soon enough for the bells that ring.
        let of_memory = of_memory_ns.is_none().then_some(division::SLOT_BELL);
        let pool = machine.pool.borrow();
        let of_pool = pool.iter().flat_map(Pool::bells);
        for bell in bells.chain(line.as_ref().map(Line::bell)).chain(of_memory).chain(of_pool) {
            terms[count] = bell_term(count as u32, bell);
            count += 1;
        }
        if let Some(deadline_ns) = next_ns {
            let (source, operator) = (TermSource::Clock as u32, TermOperator::AtLeast as u32);
            terms[count] = Term { product: count as u32, source, operator, slot: 0, address: 0, value: deadline_ns };
            count += 1;
        }
        drop(pool);
        // Whatever ended the sleep, the bells say what came.
        let _ = call::sleep(&terms[..count]);
        if let Some(pool) = &mut *machine.pool.borrow_mut() {
            pool.tend();
        }
        for record in pods.iter_mut().flatten() {
            let Some(pod) = record.pod() else { continue };
            if call::bell_take(pod.bell()).unwrap_or(1) == 0 {
                continue;
            }
            let [reason, vector, address, rip] = pod.stop();
            if reason != 0 {
                let name = record.plan.name();
                say(format_args!(
                    "{name}: stopped by the kernel: reason {reason}, vector {vector}, address {address:#x}, at {rip:#x}"
                ));
            }
            record.end().map_err(|error| Failure::Device(*record.plan, error))?;
        }
        if let Some(line) = &mut line {
            line.serve(|order| answer(machine, pods, currencies, order));
        }
    }
    Ok(())
}

/// Moves memory between the pods that run; when to look again.
fn divide_memory(division: &mut Division, pods: &mut [Option<PodRecord<'_>>]) -> Option<u64> {
    let waiting = pods.iter().flatten().filter(|record| record.phase() == PodPhase::Waiting);
    let kept = waiting.map(|record| record.share.guaranteed + Pod::FRAME_COUNT_BESIDE).sum();
    let mut members = [const { None }; POD_COUNT_MAX];
    for (record, member) in pods.iter_mut().flatten().zip(&mut members) {
        let environment = record.pod().map(Pod::environment);
        let (tickets, share) = (record.ticket_amount, &mut record.share);
        *member = environment.map(|environment| Member { environment, tickets, share });
    }
    division.go_on(&mut members, kept)
}

/// Frames that could be guaranteed to one pod, the others having what they are guaranteed.
fn frames_for(pods: &[Option<PodRecord<'_>>], number: u32) -> u64 {
    let read = |field| call::environment_read(SLOT_SELF, field).unwrap_or(0);
    let left = read(EnvironmentField::FrameQuota).saturating_sub(read(EnvironmentField::FramesOwned));
    let held: u64 = pods.iter().flatten().filter_map(|record| Some(record.pod()?.state().frame_quota)).sum();
    let others = pods.iter().flatten().filter(|record| record.number != number && record.phase() != PodPhase::Ended);
    (left + held).saturating_sub(others.map(|record| record.share.guaranteed + Pod::FRAME_COUNT_BESIDE).sum())
}

/// Answers an order, or without one tells of the end of a pod that has not been told of.
fn answer(
    machine: &Machine<'_>,
    pods: &mut [Option<PodRecord<'_>>],
    currencies: &mut Currencies,
    order: Option<&Order>,
) -> Option<Answer> {
    let Some(order) = order else {
        let untold = |pod: &&mut PodRecord<'_>| matches!(pod.life, Life::Over { is_told: false, .. });
        let pod = pods.iter_mut().flatten().find(untold)?;
        if let Life::Over { is_told, .. } = &mut pod.life {
            *is_told = true;
        }
        let (id, outcome) = (EVENT_ID, Some(Outcome::HasEnded));
        return Some(Answer { id, holder: TicketHolder::Pod(pod.number), outcome, state: pod.state() });
    };
    let (outcome, state) = match order.holder {
        TicketHolder::Currency(number) => obey(machine, currencies.get_mut(number), order, 0),
        TicketHolder::Pod(number) => {
            let all = frames_for(pods, number);
            obey(machine, pods.get_mut(number as usize).and_then(Option::as_mut), order, all)
        }
    };
    Some(Answer { id: order.id, holder: order.holder, outcome: Some(outcome), state })
}

fn obey<F: Funded>(machine: &Machine<'_>, funded: Option<&mut F>, order: &Order, all: u64) -> (Outcome, PodState) {
    let Some(funded) = funded else { return (Outcome::NoSuchPod, PodState::default()) };
    let outcome = match order.action {
        None => Outcome::UnknownAction,
        Some(Action::Read) => Outcome::Done,
        Some(Action::Tickets) if funded.state().phase.is_over() => Outcome::HasEnded,
        Some(Action::Tickets) if !(1..=TICKET_AMOUNT_MAX).contains(&order.amount) => Outcome::BadAmount,
        Some(Action::Tickets) => funded.set_tickets(order.amount).map_or(Outcome::Refused, |()| Outcome::Done),
        Some(action) => funded.act(machine, action, order.amount, all),
    };
    (outcome, funded.state())
}

fn bell_term(product: u32, bell: CapSlot) -> Term {
    Term {
        product,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: bell.0,
        address: 0,
        value: 1,
    }
}

/// The image crate can allocate for its writers; the manager only reads, and has no memory for it.
struct NoHeap;

// SAFETY: it never gives memory out.
unsafe impl GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: NoHeap = NoHeap;

#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    say(format_args!("{information}"));
    end_machine(1)
}

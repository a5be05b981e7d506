//! The order of things: read the bundle, make all pods, start them, wait for their ends, end the machine.
#![allow(unsafe_code, reason = "the boot information, and a heap that must not be there")]

use core::alloc::{GlobalAlloc, Layout};
use core::fmt;

use aegis_abi::boot::{BUNDLE_PART_COUNT_MAX, BootInfo, BundleHeader, BundlePart};
use aegis_abi::device::{DeviceField, DeviceKind};
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_BUNDLE, SLOT_DEVICE_FIRST, SLOT_MACHINE};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_image::bundle::{self, BundleDamage};
use aegis_image::flat::{self, FlatDamage};
use aegis_image::pods::{PART_LIBRARY_OS, PART_PLAN, PART_POD, POD_COUNT_MAX, Plan, PlanDamage, PodPlan};
use aegis_rt::call::{self, Refusal};

use crate::memory::Bundle;
use crate::pod::{Image, Making, Pod};
use crate::report::say;

/// Our capability for the library OS's frames.
const SLOT_IMAGE: CapSlot = CapSlot(100);
/// Most virtio functions of a machine.
const DEVICE_COUNT_MAX: usize = 64;
/// Vendor of virtio functions on PCI.
const VENDOR_VIRTIO: u64 = 0x1af4;

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
                write!(out, "the plan is for {planned} virtio functions, the machine has {found}")
            }
            Self::Memory(pod) => {
                write!(out, "{}: not enough memory left for its {} frames", pod.name(), pod.frame_quota)
            }
            Self::Refused(refusal) => write!(out, "the kernel refused {refusal:?}"),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A pod that runs, and what it is called.
type Running<'a> = Option<(Pod, &'a PodPlan)>;

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

fn divide(info: &BootInfo) -> Result<(), Failure> {
    let bundle = Bundle { frame: info.bundle_frame, frame_count: info.bundle_frame_count };
    let page = bundle.bytes(0, PAGE_SIZE)?;
    let header = bundle::read_header(page, bundle.frame_count * PAGE_SIZE).map_err(Failure::Bundle)?;
    let parts = &header.parts[..(header.part_count as usize).min(BUNDLE_PART_COUNT_MAX)];
    let plan = find(&header, PART_PLAN)?;
    let plan = Plan::decode(bundle.bytes(plan.offset_bytes, plan.length_bytes)?).map_err(Failure::Plan)?;
    let image = image_of(&bundle, find(&header, PART_LIBRARY_OS)?)?;
    if parts.iter().filter(|part| part.kind == PART_POD).count() != plan.pods().count() {
        return Err(Failure::PodCount);
    }
    let (devices, device_count) = virtio_functions(info);
    let wanted_count: u64 = plan.pods().map(|pod| u64::from(pod.device_count)).sum();
    if wanted_count != device_count as u64 {
        return Err(Failure::DeviceCount(wanted_count, device_count));
    }
    let mut pods: [Running<'_>; POD_COUNT_MAX] = [None; POD_COUNT_MAX];
    let mut devices_left = &devices[..device_count];
    let places = parts.iter().filter(|part| part.kind == PART_POD);
    for ((number, place), (pod_plan, part)) in (0..).zip(&mut pods).zip(plan.pods().zip(places)) {
        let (own, others) = devices_left.split_at(pod_plan.device_count as usize);
        devices_left = others;
        let bundle_offset = part.offset_bytes / PAGE_SIZE;
        let frame_count = part.length_bytes.div_ceil(PAGE_SIZE);
        let own_bundle = Bundle { frame: bundle.frame + bundle_offset, frame_count };
        let making = Making { plan: pod_plan, bundle: own_bundle, bundle_offset, devices: own, image: &image, info };
        let made = Pod::make(number, &making).map_err(|refusal| match refusal.status {
            Status::NoFrames => Failure::Memory(*pod_plan),
            _ => Failure::Refused(refusal),
        })?;
        *place = Some((made, pod_plan));
    }
    for (pod, _) in pods.iter().flatten() {
        pod.start()?;
    }
    wait(&mut pods)
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

/// Our slots of the machine's virtio functions, in order, and how many there are.
fn virtio_functions(info: &BootInfo) -> ([CapSlot; DEVICE_COUNT_MAX], usize) {
    let mut found = [CapSlot(0); DEVICE_COUNT_MAX];
    let mut count = 0;
    let slots = (0..info.device_count).map(|index| CapSlot(SLOT_DEVICE_FIRST.0 + index));
    for (slot, place) in slots.filter(|slot| is_virtio(*slot)).zip(&mut found) {
        *place = slot;
        count += 1;
    }
    (found, count)
}

fn is_virtio(slot: CapSlot) -> bool {
    let read = |field| call::device_read(slot, field, 0).unwrap_or(0);
    match read(DeviceField::Kind) {
        kind if kind == DeviceKind::VirtioMmio as u64 => true,
        kind if kind == DeviceKind::Pci as u64 => read(DeviceField::Identity) & 0xffff == VENDOR_VIRTIO,
        _ => false,
    }
}

/// Takes pods apart as they end, until there is none.
fn wait(pods: &mut [Running<'_>; POD_COUNT_MAX]) -> Result<(), Failure> {
    while pods.iter().any(Option::is_some) {
        let mut terms = [Term::default(); POD_COUNT_MAX];
        let mut count = 0;
        for (pod, _) in pods.iter().flatten() {
            terms[count] = bell_term(count as u32, pod.bell());
            count += 1;
        }
        // Whatever ended the sleep, the bells say what came.
        let _ = call::sleep(&terms[..count]);
        for place in pods.iter_mut() {
            let Some((pod, plan)) = place else { continue };
            if call::bell_take(pod.bell()).unwrap_or(1) == 0 {
                continue;
            }
            let [reason, vector, address, rip] = pod.stop();
            if reason != 0 {
                let name = plan.name();
                say(format_args!(
                    "{name}: stopped by the kernel: reason {reason}, vector {vector}, address {address:#x}, at {rip:#x}"
                ));
            }
            pod.end()?;
            *place = None;
        }
    }
    Ok(())
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

/// The image crate can allocate for who writes; the manager only reads, and has no memory for it.
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

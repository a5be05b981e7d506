//! Device functions: what is told about them, ports and memory within their bounds, interrupts by bell, and memory
//! that they reach.
//!
//! On a machine with a virtio-mmio source of random numbers a request goes the whole way: memory bound for the
//! device, ring filled, interrupt taken by a bell. Elsewhere those cases check what there is.

use aegis_abi::call::{DeviceControl, DevicePort};
use aegis_abi::device::{
    DEVICE_INTERRUPT_COUNT_MAX, DEVICE_REGION_COUNT_MAX, DeviceField, DeviceKind, DeviceOperation,
};
use aegis_abi::layout::{KERNEL_BASE, PAGE_SIZE, PAGE_TABLE_WINDOW};
use aegis_abi::memory::BindFlags;
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_NONE};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call::{self, Outcome, Refusal};

use crate::child::{self, CHILD_SCRATCH_BASE, CHILD_SLOT_FREE, shared};
use crate::memory::{SCRATCH_BASE, free_slot, map, repeat, slot, take, unmap};
use crate::suite::{CaseResult, Failure, Machine, Suite};
use crate::wait::{clock_term, now_ns};
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s09_device",
    cases: &[
        ("functions_describe_themselves", describe_themselves),
        ("read_refuses_bad_fields", read_refuses),
        ("configuration_space_is_readable_on_pci", configuration_space),
        ("ports_are_checked", ports_are_checked),
        ("regions_are_mapped_where_asked", regions_are_mapped),
        ("map_refuses_bad_arguments", map_refuses),
        ("read_only_capability_maps_read_only", read_only_maps),
        ("interrupts_are_bound_to_bells", interrupts_are_bound),
        ("memory_for_the_device_is_pinned", dma_pins),
        ("dma_refuses_bad_ranges", dma_refuses),
        ("revoked_device_leaves_nothing_behind", revoked_device),
        ("request_goes_all_the_way", request_all_the_way),
    ],
};

fn devices(machine: &Machine) -> impl Iterator<Item = CapSlot> + use<> {
    let first = SLOT_DEVICE_FIRST.0;
    (first..first + machine.info.device_count).map(CapSlot)
}

fn read(device: CapSlot, field: DeviceField, index: u32) -> u64 {
    call::device_read(device, field, index).unwrap_or(u64::MAX)
}

fn bad_argument(index: u64) -> Outcome {
    Err(Refusal { status: Status::BadArgument, value: index })
}

/// A region of some device: memory or ports.
fn find_region(machine: &Machine, ports: bool) -> Option<(CapSlot, u32, u64)> {
    devices(machine).find_map(|device| {
        (0..DEVICE_REGION_COUNT_MAX as u32).find_map(|index| {
            let length = read(device, DeviceField::RegionLength, index);
            let is_ports = read(device, DeviceField::RegionIsPorts, index) == 1;
            (length != 0 && is_ports == ports).then_some((device, index, length))
        })
    })
}

fn describe_themselves(machine: &Machine) -> CaseResult {
    expect!(machine.info.device_count > 0);
    for device in devices(machine) {
        let kind = read(device, DeviceField::Kind, 0);
        expect!((DeviceKind::Pci as u64..=DeviceKind::Ports as u64).contains(&kind));
        expect!(read(device, DeviceField::Identity, 0) != 0);
        let region_count = read(device, DeviceField::RegionCount, 0);
        expect!(region_count <= DEVICE_REGION_COUNT_MAX as u64);
        let interrupt_count = read(device, DeviceField::InterruptCount, 0);
        expect!(interrupt_count <= DEVICE_INTERRUPT_COUNT_MAX as u64);
        for index in 0..DEVICE_REGION_COUNT_MAX as u32 {
            expect!(read(device, DeviceField::RegionOffset, index) < PAGE_SIZE);
            expect!(read(device, DeviceField::RegionIsPorts, index) <= 1);
            let length = read(device, DeviceField::RegionLength, index);
            expect!(length < 1 << 40);
            expect!(u64::from(index) < region_count || length == 0);
        }
        expect!(read(device, DeviceField::DmaConfined, 0) <= 1);
        // Bridges decide what others reach; nobody gets one.
        let class = read(device, DeviceField::Class, 0);
        expect!(kind != DeviceKind::Pci as u64 || class >> 16 != 6);
    }
    Ok(())
}

fn read_refuses(machine: &Machine) -> CaseResult {
    for device in devices(machine) {
        let words = |field: u64, index: u64| {
            // SAFETY: reading changes nothing.
            unsafe { call::issue_words(30, &[u64::from(device.0), field, index, 0, 0, 0]) }
        };
        for field in [11, 100, u64::from(u32::MAX)] {
            expect!(words(field, 0) == (Status::BadArgument as u64, 1));
        }
        for field in [DeviceField::RegionOffset, DeviceField::RegionLength, DeviceField::RegionIsPorts] {
            for index in [6, 100, u32::MAX] {
                expect_equal!(call::device_read(device, field, index), bad_argument(2));
            }
        }
        expect_ok!(call::cap_derive(device, slot(0), Rights::CONTROL, 0, 0));
        expect_refused!(call::device_read(slot(0), DeviceField::Kind, 0), Status::MissingRight);
        // SAFETY: a derived capability with nothing bound.
        repeat(|| unsafe { call::cap_drop(slot(0)) });
        let bad = |operation: u64| {
            // SAFETY: refused.
            unsafe { call::issue_words(DeviceControl::NUMBER, &[u64::from(device.0), operation, 0, 0, 0, 0]) }
        };
        expect!(bad(3) == (Status::BadArgument as u64, 1));
    }
    Ok(())
}

fn configuration_space(machine: &Machine) -> CaseResult {
    for device in devices(machine) {
        let config = |index| call::device_read(device, DeviceField::Config, index);
        if read(device, DeviceField::Kind, 0) != DeviceKind::Pci as u64 {
            expect_refused!(config(0), Status::WrongState);
            continue;
        }
        expect_equal!(config(0), Ok(read(device, DeviceField::Identity, 0)));
        let class = expect_ok!(config(8)) >> 8;
        expect_equal!(class, read(device, DeviceField::Class, 0));
        for index in [1, 2, 3, 255, 256, 4096, u32::MAX] {
            expect_equal!(config(index), bad_argument(2));
        }
        expect!(config(252).is_ok());
    }
    Ok(())
}

fn port(device: CapSlot, region: u32, offset: u32, width_bytes: u32, is_write: u32) -> Outcome {
    let call = DevicePort { slot: device, region, offset, width_bytes, is_write, value: 0 };
    // SAFETY: no driver of this program uses the ports.
    unsafe { call::issue(aegis_abi::call::Call::DevicePort(call)) }
}

fn ports_are_checked(machine: &Machine) -> CaseResult {
    for device in devices(machine) {
        for region in [6, 7, u32::MAX] {
            expect_equal!(port(device, region, 0, 1, 0), bad_argument(1));
        }
    }
    if let Some((device, region, _)) = find_region(machine, false) {
        // Memory is not ports.
        expect_equal!(port(device, region, 0, 1, 0), bad_argument(1));
    }
    let Some((device, region, length)) = find_region(machine, true) else { return Ok(()) };
    let length = length as u32;
    for width in [0, 3, 5, 8, u32::MAX] {
        expect_equal!(port(device, region, 0, width, 0), bad_argument(3));
    }
    for (offset, width) in [(length, 1), (length - 1, 2), (length - 3, 4), (u32::MAX, 1), (u32::MAX, 4)] {
        expect_equal!(port(device, region, offset, width, 0), bad_argument(2));
    }
    expect_equal!(port(device, region, 0, 1, 2), bad_argument(4));
    for (width, most) in [(1, 0xff), (2, 0xffff), (4, 0xffff_ffff)] {
        let value = expect_ok!(port(device, region, 0, width, 0));
        expect!(value <= most);
    }
    expect_ok!(call::cap_derive(device, slot(0), Rights::READ, 0, 0));
    expect_ok!(port(slot(0), region, 0, 1, 0));
    expect_refused!(port(slot(0), region, 0, 1, 1), Status::MissingRight);
    Ok(())
}

/// `DeviceMap` at the scratch base.
fn map_region(device: CapSlot, region: u32, address: u64) -> Outcome {
    // SAFETY: only scratch addresses are given, or ones that are refused.
    unsafe { call::device_map(device, region, address) }
}

/// "virt": the first word of a virtio-mmio block.
const VIRTIO_MAGIC: u64 = 0x7472_6976;

fn regions_are_mapped(machine: &Machine) -> CaseResult {
    for device in devices(machine) {
        for region in 0..DEVICE_REGION_COUNT_MAX as u32 {
            let length = read(device, DeviceField::RegionLength, region);
            if length == 0 || length > 1 << 20 || read(device, DeviceField::RegionIsPorts, region) == 1 {
                continue;
            }
            let mapped = expect_ok!(map_region(device, region, SCRATCH_BASE));
            let offset = read(device, DeviceField::RegionOffset, region);
            expect!(mapped >= offset + length);
            expect_equal!(mapped % PAGE_SIZE, 0);
            expect!(probe::is_unmapped(SCRATCH_BASE + mapped));
            let kind = read(device, DeviceField::Kind, 0);
            if kind == DeviceKind::VirtioMmio as u64 {
                let word = probe::read(SCRATCH_BASE + offset).unwrap_or(0);
                expect_equal!(word & 0xffff_ffff, VIRTIO_MAGIC);
                // Where nothing may be executed.
                expect!(probe::execute(SCRATCH_BASE + offset).is_err());
            }
            expect_ok!(unmap(SCRATCH_BASE, (mapped / PAGE_SIZE) as u32));
            expect!(probe::is_unmapped(SCRATCH_BASE + offset));
        }
    }
    Ok(())
}

fn map_refuses(machine: &Machine) -> CaseResult {
    let Some((device, region, _)) = find_region(machine, false) else { return Ok(()) };
    for bad in [6, 100, u32::MAX] {
        expect_equal!(map_region(device, bad, SCRATCH_BASE), bad_argument(1));
    }
    if let Some((device, region, _)) = find_region(machine, true) {
        expect_equal!(map_region(device, region, SCRATCH_BASE), bad_argument(1));
    }
    for address in [0, SCRATCH_BASE + 1, PAGE_TABLE_WINDOW, KERNEL_BASE, u64::MAX - PAGE_SIZE + 1] {
        expect_refused!(map_region(device, region, address), Status::BadAddress);
    }
    Ok(())
}

fn read_only_maps(machine: &Machine) -> CaseResult {
    let Some((device, region, _)) = find_region(machine, false) else { return Ok(()) };
    let offset = read(device, DeviceField::RegionOffset, region);
    expect_ok!(call::cap_derive(device, slot(0), Rights::READ, 0, 0));
    let mapped = expect_ok!(map_region(slot(0), region, SCRATCH_BASE));
    // Pages that decide where interrupts go are left out.
    let page = (0..mapped / PAGE_SIZE)
        .map(|index| SCRATCH_BASE + index * PAGE_SIZE)
        .find(|page| probe::read(page + offset).is_ok());
    let Some(page) = page else { return Ok(()) };
    let fault = probe::write(page + offset, 0).err();
    let code = probe::PRESENT | probe::WRITE | probe::USER;
    expect!(fault.is_some_and(|f| f.is_page_fault(page + offset, code)));
    Ok(())
}

fn interrupts_are_bound(machine: &Machine) -> CaseResult {
    expect_ok!(call::bell_create(slot(0), SLOT_NONE));
    for device in devices(machine) {
        let count = read(device, DeviceField::InterruptCount, 0) as u32;
        expect_equal!(call::device_interrupt_bind(device, count, slot(0)), bad_argument(1));
        expect_equal!(call::device_interrupt_bind(device, u32::MAX, slot(0)), bad_argument(1));
        expect_equal!(call::device_interrupt_ask(device, count), bad_argument(1));
        for interrupt in 0..count {
            expect_refused!(call::device_interrupt_ask(device, interrupt), Status::WrongState);
            expect_ok!(call::device_interrupt_bind(device, interrupt, slot(0)));
            expect_ok!(call::device_interrupt_ask(device, interrupt));
            expect_ok!(call::device_interrupt_bind(device, interrupt, SLOT_NONE));
            expect_refused!(call::device_interrupt_ask(device, interrupt), Status::WrongState);
        }
    }
    // No device has anything to say.
    expect_equal!(call::bell_take(slot(0)), Ok(0));
    Ok(())
}

/// Binds frames for a device. The frames are scratch.
fn dma_bind(device: CapSlot, frames: CapSlot, offset: u64, count: u64) -> Outcome {
    // SAFETY: scratch frames only.
    unsafe { call::device_dma_bind(device, frames, offset, count) }
}

fn dma_unbind(device: CapSlot, frames: CapSlot, offset: u64, count: u64) -> Outcome {
    // SAFETY: scratch frames only.
    unsafe { call::device_dma_unbind(device, frames, offset, count) }
}

fn dma_pins(machine: &Machine) -> CaseResult {
    let device = SLOT_DEVICE_FIRST;
    expect!(machine.info.device_count > 0);
    let first = expect_ok!(take(slot(0), 8)).0;
    let address = expect_ok!(dma_bind(device, slot(0), 2, 3));
    if read(device, DeviceField::DmaConfined, 0) == 0 {
        expect_equal!(address, (first + 2) * PAGE_SIZE);
    }
    expect_refused!(call::frame_free(slot(0)), Status::Busy);
    expect_refused!(call::frame_donate(slot(0), aegis_abi::types::SLOT_SELF), Status::Busy);
    // SAFETY: refused.
    unsafe { expect_refused!(call::cap_drop(slot(0)), Status::Busy) };
    // Only what was bound is unbound, and once.
    for (offset, count) in [(2, 2), (1, 3), (3, 2), (0, 8)] {
        expect_refused!(dma_unbind(device, slot(0), offset, count), Status::WrongState);
    }
    expect_ok!(dma_bind(device, slot(0), 2, 3));
    expect_ok!(dma_unbind(device, slot(0), 2, 3));
    expect_refused!(call::frame_free(slot(0)), Status::Busy);
    expect_ok!(dma_unbind(device, slot(0), 2, 3));
    expect_refused!(dma_unbind(device, slot(0), 2, 3), Status::WrongState);
    expect_ok!(call::frame_free(slot(0)));
    Ok(())
}

fn dma_refuses(_: &Machine) -> CaseResult {
    let device = SLOT_DEVICE_FIRST;
    expect_ok!(take(slot(0), 8));
    for (offset, count, index) in [(8, 1, 2), (u64::MAX, 1, 2), (0, 0, 3), (0, 9, 3), (7, 2, 3), (1, u64::MAX, 3)] {
        expect_equal!(dma_bind(device, slot(0), offset, count), bad_argument(index));
    }
    expect_ok!(call::cap_derive(slot(0), slot(1), Rights::READ | Rights::WRITE, 0, 8));
    expect_refused!(dma_bind(device, slot(1), 0, 1), Status::MissingRight);
    expect_ok!(call::cap_derive(device, slot(2), Rights::READ | Rights::WRITE, 0, 0));
    expect_refused!(dma_bind(slot(2), slot(0), 0, 1), Status::MissingRight);
    Ok(())
}

const READY: usize = 0;
const GO: usize = 1;
const LOST: usize = 2;
const CHILD_DEVICE: CapSlot = CHILD_SLOT_FREE;

/// Uses a device in every way: maps it, binds an interrupt and memory.
extern "C" fn device_child(region: u64) -> ! {
    probe::install();
    let shared = shared();
    let mut good = 0;
    let mut count = |outcome: Outcome| good += u64::from(outcome.is_ok());
    // SAFETY: an address of its own.
    count(unsafe { call::device_map(CHILD_DEVICE, region as u32, CHILD_SCRATCH_BASE) });
    count(take(CapSlot(16), 4).map(|frame| frame.0));
    // SAFETY: frames of its own that nothing else uses.
    count(unsafe { call::device_dma_bind(CHILD_DEVICE, CapSlot(16), 0, 4) });
    count(call::bell_create(CapSlot(17), SLOT_NONE));
    count(call::device_interrupt_bind(CHILD_DEVICE, 0, CapSlot(17)));
    count(call::frame_free(CapSlot(16)));
    shared.set(READY, 1 + good);
    wait::until(|| shared.get(GO) != 0);
    let mut lost = u64::from(probe::is_unmapped(CHILD_SCRATCH_BASE));
    lost += u64::from(call::cap_read(CHILD_DEVICE, 0).is_err()) << 1;
    // Nothing reaches its frames any more.
    lost += u64::from(call::frame_free(CapSlot(16)).is_ok()) << 2;
    shared.set(LOST, 1 << 8 | lost);
    wait::forever()
}

fn revoked_device(machine: &Machine) -> CaseResult {
    let found = devices(machine).find_map(|device| {
        let has_interrupt = read(device, DeviceField::InterruptCount, 0) > 0;
        let index = (0..6).find(|index| {
            read(device, DeviceField::RegionLength, *index) != 0
                && read(device, DeviceField::RegionIsPorts, *index) == 0
        })?;
        has_interrupt.then_some((device, index))
    });
    let Some((device, region)) = found else { return Ok(()) };
    let rights = Rights::READ | Rights::WRITE | Rights::CONTROL;
    // Once by revocation, once by the child's end.
    for is_revoked in [true, false] {
        let child = expect_ok!(child::make(machine, 0, 16));
        expect_ok!(call::cap_grant(device, child.environment, CHILD_DEVICE, rights));
        expect_ok!(child::start(&child, device_child, u64::from(region)));
        expect!(child::await_word(&child, READY, 1));
        expect_equal!(child.shared.get(READY), 6);
        if is_revoked {
            // SAFETY: this program has nothing bound at the device.
            repeat(|| unsafe { call::cap_revoke(device) });
            child.shared.set(GO, 1);
            expect!(child::await_word(&child, LOST, 1));
            expect_equal!(child.shared.get(LOST), 0x107);
        }
        crate::memory::release_scratch();
    }
    Ok(())
}

/// Registers of a virtio-mmio block (virtio 1.1, 4.2.2).
mod register {
    pub(super) const DEVICE_ID: u64 = 0x008;
    pub(super) const DRIVER_FEATURES: u64 = 0x020;
    pub(super) const DRIVER_FEATURES_SELECT: u64 = 0x024;
    pub(super) const QUEUE_SELECT: u64 = 0x030;
    pub(super) const QUEUE_LENGTH: u64 = 0x038;
    pub(super) const QUEUE_READY: u64 = 0x044;
    pub(super) const QUEUE_NOTIFY: u64 = 0x050;
    pub(super) const INTERRUPT_STATUS: u64 = 0x060;
    pub(super) const INTERRUPT_ACKNOWLEDGE: u64 = 0x064;
    pub(super) const STATUS: u64 = 0x070;
    pub(super) const QUEUE_DESCRIPTORS: u64 = 0x080;
    pub(super) const QUEUE_DRIVER: u64 = 0x090;
    pub(super) const QUEUE_DEVICE: u64 = 0x0a0;
}

/// The virtio device id of a source of random numbers.
const ENTROPY: u64 = 4;
/// Where the block and the ring's frame are mapped.
const BLOCK_AT: u64 = SCRATCH_BASE;
const RING_AT: u64 = SCRATCH_BASE + 16 * PAGE_SIZE;
/// Offsets in the ring's frame.
const AVAILABLE: u64 = 256;
const USED: u64 = 512;
const BUFFER: u64 = 1024;
const BUFFER_BYTES: u64 = 64;

fn store32(address: u64, value: u32) {
    // SAFETY: mapped by the case, 4-byte aligned.
    unsafe { (address as *mut u32).write_volatile(value) };
}

fn load32(address: u64) -> u32 {
    // SAFETY: as above.
    unsafe { (address as *const u32).read_volatile() }
}

/// Brings the device up with one queue of two entries at the device address `ring`.
fn start_entropy(block: u64, ring: u64) -> CaseResult {
    let set = |register: u64, value: u32| store32(block + register, value);
    set(register::STATUS, 0);
    set(register::STATUS, 1 | 2);
    set(register::DRIVER_FEATURES_SELECT, 0);
    set(register::DRIVER_FEATURES, 0);
    // VIRTIO_F_VERSION_1 is bit 32.
    set(register::DRIVER_FEATURES_SELECT, 1);
    set(register::DRIVER_FEATURES, 1);
    set(register::STATUS, 1 | 2 | 8);
    expect!(load32(block + register::STATUS) & 8 != 0);
    set(register::QUEUE_SELECT, 0);
    set(register::QUEUE_LENGTH, 2);
    for (register, address) in [
        (register::QUEUE_DESCRIPTORS, ring),
        (register::QUEUE_DRIVER, ring + AVAILABLE),
        (register::QUEUE_DEVICE, ring + USED),
    ] {
        set(register, address as u32);
        set(register + 4, (address >> 32) as u32);
    }
    set(register::QUEUE_READY, 1);
    set(register::STATUS, 1 | 2 | 4 | 8);
    Ok(())
}

/// Asks for random bytes: descriptor 0, device-writable; then it is available.
fn request(block: u64, ring: u64, round: u16) {
    // SAFETY: the ring's frame is mapped at `RING_AT`.
    unsafe {
        (RING_AT as *mut u64).write_volatile(ring + BUFFER);
        ((RING_AT + 8) as *mut u64).write_volatile(BUFFER_BYTES | 2 << 32);
        ((RING_AT + AVAILABLE + 4 + 2 * u64::from(round % 2)) as *mut u16).write_volatile(0);
        ((RING_AT + AVAILABLE + 2) as *mut u16).write_volatile(round + 1);
    }
    store32(block + register::QUEUE_NOTIFY, 0);
}

fn find_entropy(machine: &Machine) -> Option<CapSlot> {
    devices(machine).find(|device| {
        read(*device, DeviceField::Kind, 0) == DeviceKind::VirtioMmio as u64
            && read(*device, DeviceField::Identity, 0) == ENTROPY
    })
}

fn bell_term(slot: CapSlot) -> Term {
    Term {
        product: 0,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: slot.0,
        address: 0,
        value: 1,
    }
}

fn request_all_the_way(machine: &Machine) -> CaseResult {
    let Some(device) = find_entropy(machine) else { return Ok(()) };
    let first = expect_ok!(take(free_slot(0), 1)).0;
    expect_ok!(map(RING_AT, first, 1, free_slot(0), BindFlags::WRITE));
    expect_ok!(map_region(device, 0, BLOCK_AT));
    let block = BLOCK_AT + read(device, DeviceField::RegionOffset, 0);
    expect_equal!(u64::from(load32(block + register::DEVICE_ID)), ENTROPY);
    // SAFETY: the device reaches the ring's frame only.
    expect_ok!(unsafe { call::device_control(device, DeviceOperation::Enable) });
    let ring = expect_ok!(dma_bind(device, free_slot(0), 0, 1));
    expect_ok!(call::bell_create(free_slot(1), SLOT_NONE));
    expect_ok!(call::device_interrupt_bind(device, 0, free_slot(1)));
    start_entropy(block, ring)?;
    let outcome = requests(device, block, ring);
    // Reset before the memory goes.
    store32(block + register::STATUS, 0);
    expect_ok!(dma_unbind(device, free_slot(0), 0, 1));
    expect_ok!(call::device_interrupt_bind(device, 0, SLOT_NONE));
    // SAFETY: nothing is bound any more.
    expect_ok!(unsafe { call::device_control(device, DeviceOperation::Disable) });
    outcome
}

fn requests(device: CapSlot, block: u64, ring: u64) -> Result<(), Failure> {
    for round in 0..8_u16 {
        expect_ok!(call::device_interrupt_ask(device, 0));
        request(block, ring, round);
        let limit = clock_term(1, now_ns() + 20_000_000_000);
        expect_equal!(call::sleep(&[bell_term(free_slot(1)), limit]), Ok(0));
        // One interrupt, and masked from then on until it is asked for again.
        expect_equal!(call::bell_take(free_slot(1)), Ok(1));
        let used = load32(RING_AT + USED) >> 16;
        expect_equal!(used, u32::from(round) + 1);
        expect!(load32(block + register::INTERRUPT_STATUS) & 1 != 0);
        wait::pause(200_000);
        expect_equal!(call::bell_take(free_slot(1)), Ok(0));
        store32(block + register::INTERRUPT_ACKNOWLEDGE, 1);
        // Sixty-four random bytes are not all zero.
        let bytes = (0..BUFFER_BYTES / 4).map(|index| load32(RING_AT + BUFFER + 4 * index));
        expect!(bytes.fold(0, |all, word| all | word) != 0);
    }
    Ok(())
}

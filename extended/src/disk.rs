//! The disks in the kernel: a [`Driver`] that answers the calls of `aegis_proto::block::KernelCall`.
//!
//! A disk is started for its first client: that of a virtio function, or the first of each channel of an IDE
//! controller. It has one client at a time, which has all of it: the extended kernel serves a machine with one program.
//! What the client does wrong ends its session (`aegis_service`); what it takes back while the disk uses it has stopped
//! the function, which is started anew for the next. A disk that was given up, or did not start, is tried again for
//! whoever asks next.
//!
//! The channels of a controller are one function. Where it is stopped for the sake of one, what is under way at the
//! other is begun again with the next call about either; and it is not set to work while one does not come back from
//! its reset, as that may still reach memory.
//!
//! Everything here runs under the kernel's lock, and is bounded by a visit of the service.

use aegis_abi::call::ExtensionCall;
use aegis_abi::device::DeviceKind;
use aegis_abi::types::{FrameNumber, Status};
use aegis_hal::block::BlockDevice;
use aegis_hal::{DmaRun, EitherDisk, MmioRegion};
use aegis_ide as ide;
use aegis_kernel::Hardware;
use aegis_kernel_core::{DeviceDescription, DeviceId, EnvironmentId, Id, Machine, State};
use aegis_lottery::random::Keyed;
use aegis_machine::frame_range::FrameRange;
use aegis_machine::{BootMemory, KernelLock, log};
use aegis_proto::block::{Extent, KernelCall, RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE};
use aegis_service::disk::{DiskService, Health, STUCK_NS, ServedExtent};
use aegis_virtio::AnyTransport;
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk, Limits};
use core::convert::Infallible;

use crate::driver::Driver;
use crate::host::{KernelHost, Masked};
use crate::place::{Driven, FunctionPorts, PlaceError, channel_ports, driver_memory};

/// Most disks that are driven; those of higher numbers are the first environment's.
const DISK_COUNT_MAX: usize = 4;
/// Most requests that a disk has.
const DEPTH: usize = 128;
const LIMITS: Limits =
    Limits { request_count: DEPTH as u16, segment_count_max: 64, queue_count_max: 1, reset_poll_count_max: 10_000 };
/// One at a time: the order is its client's.
const IDE_LIMITS: ide::Limits =
    ide::Limits { request_count: 1, segment_count_max: 64, uses_dma: true, poll_count_max: 100_000 };
/// Pages that either driver holds.
const DRIVER_PAGE_COUNT: usize =
    if LIMITS.page_count() > IDE_LIMITS.page_count() { LIMITS.page_count() } else { IDE_LIMITS.page_count() };
/// All extents' rights.
const RIGHTS: u8 = RIGHT_READ | RIGHT_WRITE | RIGHT_DISCARD;
/// PCI vendor and device identifiers of a virtio disk: transitional and modern (Virtio 1.2, 4.1.2).
const VIRTIO_DISKS: [u32; 2] = [0x1001_1af4, 0x1042_1af4];
/// The same of the IDE controllers of PIIX3 and PIIX4.
const IDE_CONTROLLERS: [u32; 2] = [0x7010_8086, 0x7111_8086];

type VirtioDisk = Disk<AnyTransport<MmioRegion, Infallible>, DmaRun>;
type IdeDisk = ide::Disk<ide::Channel<FunctionPorts, DmaRun>, FunctionPorts, DmaRun>;
type KernelDisk = EitherDisk<VirtioDisk, IdeDisk>;
type Service = DiskService<KernelDisk, KernelHost, 1, DEPTH>;

/// A function, or a part of one, that has a disk.
#[derive(Clone, Copy)]
struct Place {
    device: DeviceId,
    description: DeviceDescription,
    /// Of an IDE controller the channel, which is the number of its interrupt too.
    channel: Option<u32>,
}

impl Place {
    fn interrupt(&self) -> u32 {
        self.channel.unwrap_or(0)
    }
}

/// A disk: where it is, and once somebody has asked for it the service on it.
struct Slot {
    place: Option<Place>,
    memory: Option<FrameRange>,
    service: Option<Service>,
    random: Keyed,
    /// Its function was stopped, with whatever was under way, and is not set to work again for it yet.
    is_cut_off: bool,
    /// It does not come back from its reset.
    is_stuck: bool,
}

impl Slot {
    const EMPTY: Self = Self {
        place: None,
        memory: None,
        service: None,
        random: Keyed::new([0; 2]),
        is_cut_off: false,
        is_stuck: false,
    };

    fn is_of(&self, device: DeviceId) -> bool {
        self.place.is_some_and(|place| place.device == device)
    }
}

/// The extension's part for disks.
pub(crate) struct Disks {
    slots: KernelLock<[Slot; DISK_COUNT_MAX]>,
    /// Whether those of virtio, and whether those of IDE are driven.
    wanted: KernelLock<[bool; 2]>,
}

impl Disks {
    pub(crate) const fn new() -> Self {
        Self { slots: KernelLock::new([Slot::EMPTY; DISK_COUNT_MAX]), wanted: KernelLock::new([false; 2]) }
    }

    /// Takes what the drivers keep for themselves, before anybody else has memory. Says whether those of virtio, and
    /// whether those of IDE are driven.
    pub(crate) fn take_memory(&self, memory: &mut BootMemory, wanted: [bool; 2]) {
        *self.wanted.lock() = wanted;
        for slot in self.slots.lock().iter_mut() {
            slot.memory = memory.take_frames(DRIVER_PAGE_COUNT as u64, 1);
        }
    }
}

impl Driver for Disks {
    fn drives(&self, device: DeviceId, description: &DeviceDescription) -> bool {
        let [wants_virtio, wants_ide] = *self.wanted.lock();
        let is_pci = description.kind == DeviceKind::Pci;
        let is_virtio = match description.kind {
            DeviceKind::Pci => VIRTIO_DISKS.contains(&description.identity),
            DeviceKind::VirtioMmio => description.identity == DEVICE_TYPE_BLOCK,
            DeviceKind::Ports => false,
        };
        let channels = if wants_virtio && is_virtio {
            &[None][..]
        } else if wants_ide && is_pci && IDE_CONTROLLERS.contains(&description.identity) {
            &[Some(0), Some(1)]
        } else {
            return false;
        };
        let mut slots = self.slots.lock();
        let free = slots.iter_mut().filter(|slot| slot.place.is_none());
        let taken = channels.iter().zip(free).map(|(channel, slot)| {
            slot.place = Some(Place { device, description: *description, channel: *channel });
        });
        taken.count() > 0
    }

    fn call(&self, state: &mut State<'_, Hardware>, by: EnvironmentId, call: &ExtensionCall) -> Result<u64, Status> {
        let operation = KernelCall::from_number(call.operation).ok_or(Status::BadArgument)?;
        let number = call.first as usize;
        let mut slots = self.slots.lock();
        let place = slots.get(number).and_then(|slot| slot.place).ok_or(Status::WrongState)?;
        let is_disturbed = slots.iter().any(|slot| slot.is_cut_off || slot.is_stuck) && operation != KernelCall::Detach;
        if is_disturbed && others(&*slots, number, place.device).any(|other| other.is_stuck) {
            return Err(Status::WrongState);
        }
        if operation == KernelCall::Find {
            return Ok(KernelCall::found(place.device.index() as u32, place.interrupt()));
        }
        if operation == KernelCall::Attach && slots[number].service.is_none() {
            let is_shared = others(&*slots, number, place.device).any(|other| other.service.is_some());
            slots[number].start(state, place, is_shared)?;
        }
        if is_disturbed {
            take_up(&mut *slots, state, place.device);
        }
        let mut running = slots[number].running(state)?;
        let owner = running.service.host().client;
        let is_theirs = owner == Some(by) || owner.is_none() && operation == KernelCall::Attach;
        if !is_theirs {
            return Err(Status::Busy);
        }
        let range = (FrameNumber(call.second), call.third);
        match operation {
            KernelCall::Find => Err(Status::WrongState),
            KernelCall::Register => {
                let (device, number) = (running.place.device, call.fourth as usize);
                let is_taken = running.service.host().register(state, device, by, range, number);
                if is_taken { Ok(0) } else { Err(Status::WrongState) }
            }
            KernelCall::Attach => running.attach(state, by, range),
            // What a disk that was given up had under way was told of as errors; with the refusal its client begins
            // anew, and so does the disk.
            KernelCall::Visit => running.visit(state).ok_or(Status::WrongState),
            KernelCall::Ask => running.ask(state).ok_or(Status::WrongState),
            KernelCall::Watch => running.watch(state).ok_or(Status::WrongState),
            KernelCall::Detach => Ok(running.end_client(state)),
        }
    }

    fn stop(&self, _: &mut State<'_, Hardware>, device: DeviceId) {
        let mut slots = self.slots.lock();
        for slot in slots.iter_mut().filter(|slot| slot.is_of(device)) {
            let Some(service) = slot.service.as_mut() else { continue };
            // It is reset, which ends what is under way, and comes back as none: switched off, it reaches no rings.
            slot.is_stuck = service.device().reset().is_err();
            slot.is_cut_off = true;
        }
    }

    fn interrupt(&self, state: &mut State<'_, Hardware>, device: DeviceId) {
        let mut slots = self.slots.lock();
        for slot in slots.iter_mut().filter(|slot| slot.is_of(device) && !slot.is_cut_off) {
            let Ok(mut running) = slot.running(state) else { continue };
            // A disk that cannot go on is found so by the visit.
            let _ = match running.service.device() {
                EitherDisk::First(disk) => disk.acknowledge(&mut Masked).map_err(|_| ()),
                EitherDisk::Second(disk) => disk.channel().acknowledge(&mut Masked).map_err(|_| ()),
            };
            running.visit(state);
        }
    }
}

/// The other disks of a function.
fn others(slots: &[Slot], number: usize, device: DeviceId) -> impl Iterator<Item = &Slot> {
    let is_other = move |(other, slot): &(usize, &Slot)| *other != number && slot.is_of(device);
    slots.iter().enumerate().filter(is_other).map(|(_, slot)| slot)
}

/// Sets a function to work that was stopped, and begins again what was under way at those of its disks whose clients
/// have kept their memory.
fn take_up(slots: &mut [Slot], state: &mut State<'_, Hardware>, device: DeviceId) {
    for slot in slots.iter_mut().filter(|slot| slot.is_cut_off && slot.is_of(device)) {
        slot.is_cut_off = false;
        if slot.is_stuck {
            continue;
        }
        let Ok(mut running) = slot.running(state) else { continue };
        if running.service.host().client.is_some() {
            state.machine.device_enable(device, true);
            running.service.resume(state.machine.now_ns());
            running.visit(state);
        }
    }
}

impl Slot {
    /// Starts the disk; `is_shared`: another of its function runs.
    fn start(&mut self, state: &mut State<'_, Hardware>, place: Place, is_shared: bool) -> Result<(), Status> {
        self.random = Keyed::new([state.machine.now_ns(), aegis_machine::read_tsc()]);
        match start(state, &place, self.memory) {
            Ok(disk) => {
                self.service = Some(DiskService::new(disk, KernelHost::new()));
                Ok(())
            }
            Err(error) => {
                // Whatever it was told, it reaches no memory until the next attempt has reset it: one that did not
                // start was given none, so another that runs may go on.
                if !is_shared {
                    state.machine.device_enable(place.device, false);
                }
                log!(Error, "a disk cannot be driven in the kernel: {error:?}");
                Err(Status::WrongState)
            }
        }
    }

    /// The disk, if it was started, without a client whose memory has gone.
    fn running(&mut self, state: &mut State<'_, Hardware>) -> Result<Running<'_>, Status> {
        let place = self.place.ok_or(Status::WrongState)?;
        let service = self.service.as_mut().ok_or(Status::WrongState)?;
        let mut running = Running { place, service, random: &mut self.random, is_stuck: &mut self.is_stuck };
        if running.service.host().forget_gone(state, place.device) {
            running.end_client(state);
        }
        Ok(running)
    }
}

fn start(state: &mut State<'_, Hardware>, place: &Place, memory: Option<FrameRange>) -> Result<KernelDisk, PlaceError> {
    state.machine.device_enable(place.device, true);
    match place.channel {
        Some(channel) => Ok(EitherDisk::Second(start_ide(&place.description, channel, memory)?)),
        None => Ok(EitherDisk::First(start_virtio(&place.description, memory)?)),
    }
}

// What is large on the stack is on that of one of the two.
#[inline(never)]
fn start_virtio(description: &DeviceDescription, memory: Option<FrameRange>) -> Result<VirtioDisk, PlaceError> {
    let transport = aegis_virtio::open(&Driven(*description))?.ok_or(PlaceError::Registers)?;
    let memory = memory.and_then(driver_memory).ok_or(PlaceError::Registers)?;
    Ok(Disk::new(transport, DmaRun::new(memory), LIMITS)?)
}

#[inline(never)]
fn start_ide(description: &DeviceDescription, channel: u32, memory: Option<FrameRange>) -> Result<IdeDisk, PlaceError> {
    let ports = channel_ports(description, channel).ok_or(PlaceError::Registers)?;
    let memory = memory.and_then(driver_memory).ok_or(PlaceError::Registers)?;
    Ok(ide::Disk::new(ide::Channel::new(ports, DmaRun::new(memory), IDE_LIMITS)?, 0)?)
}

/// A disk that runs.
struct Running<'a> {
    place: Place,
    service: &'a mut Service,
    random: &'a mut Keyed,
    is_stuck: &'a mut bool,
}

impl Running<'_> {
    fn attach(
        &mut self,
        state: &mut State<'_, Hardware>,
        by: EnvironmentId,
        range: (FrameNumber, u64),
    ) -> Result<u64, Status> {
        let device = self.place.device;
        if self.service.host().client.is_some() {
            return Err(Status::WrongState);
        }
        // Whoever was there before is gone, with nothing under way; the function may be switched off since, and the
        // disk given up. What is left of that client goes before the next begins.
        state.machine.device_enable(device, true);
        if !self.comes_back(state) {
            return Err(Status::WrongState);
        }
        if !self.service.host().begin_client(state, device, by, range) {
            return Err(Status::WrongState);
        }
        let extent = Extent { sector_count: self.service.sector_count(), rights: RIGHTS };
        let served = [ServedExtent { first_sector: 0, extent }];
        if self.service.attach(0, &served, 1).is_err() {
            self.service.host().forget_all();
            return Err(Status::WrongState);
        }
        Ok(0)
    }

    /// None: the disk was given up.
    fn visit(&mut self, state: &mut State<'_, Hardware>) -> Option<u64> {
        let visit = self.service.visit(state.machine.now_ns(), self.random);
        (self.service.health() != Health::Dead).then_some(u64::from(visit.has_more))
    }

    fn ask(&mut self, state: &mut State<'_, Hardware>) -> Option<u64> {
        let visit = self.service.visit(state.machine.now_ns(), self.random);
        state.machine.interrupt_mask(self.place.device, self.place.interrupt() as usize, false);
        // What ended here rings no bell: the client learns of it by the answer.
        let has_news = visit.has_more || visit.completed_count > 0;
        let is_there = self.service.ask(state.machine.now_ns()) || has_news;
        (self.service.health() != Health::Dead).then_some(u64::from(is_there))
    }

    fn watch(&mut self, state: &mut State<'_, Hardware>) -> Option<u64> {
        state.machine.device_enable(self.place.device, true);
        self.service.watch(state.machine.now_ns());
        self.visit(state)?;
        Some(self.service.restart_count())
    }

    /// The client ends, whatever is under way for it: the disk is reset, so that nobody's memory is touched any more.
    fn end_client(&mut self, state: &mut State<'_, Hardware>) -> u64 {
        // What is under way is over before the function reaches memory again.
        let _ = self.service.device().reset();
        state.machine.device_enable(self.place.device, true);
        self.service.detach(0);
        if self.service.flight_count() > 0 {
            // To the service it is a disk that does not answer.
            self.service.watch(state.machine.now_ns().saturating_add(STUCK_NS));
        }
        if !self.comes_back(state) {
            log!(Error, "a disk does not come back from its reset");
        }
        self.service.host().forget_all();
        0
    }

    /// Resets it between two clients. One that does not come back is tried again for the next; until then its function
    /// reaches nothing.
    fn comes_back(&mut self, state: &mut State<'_, Hardware>) -> bool {
        *self.is_stuck = self.service.revive().is_err();
        if *self.is_stuck {
            state.machine.device_enable(self.place.device, false);
        }
        !*self.is_stuck
    }
}

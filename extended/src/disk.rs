//! The disks in the kernel: an [`Extension`] that answers the calls of `aegis_proto::block::KernelCall`.
//!
//! A disk is started when somebody asks for it first. It has one client at a time, which has all of it: the extended
//! kernel serves a machine with one program. What the client does wrong ends its session (`aegis_service`); what it
//! takes back while the disk uses it has stopped the function, which is started anew for the next.
//!
//! Everything here runs under the kernel's lock, and is bounded by a visit of the service.

use aegis_abi::call::ExtensionCall;
use aegis_abi::device::DeviceKind;
use aegis_abi::types::{FrameNumber, Status};
use aegis_hal::block::BlockDevice;
use aegis_hal::{DmaRun, MmioRegion};
use aegis_kernel::Hardware;
use aegis_kernel_core::{DeviceDescription, DeviceId, EnvironmentId, Extension, Id, Machine, State};
use aegis_lottery::random::Keyed;
use aegis_machine::frame_range::FrameRange;
use aegis_machine::{BootMemory, KernelLock, log};
use aegis_proto::block::{Extent, KernelCall, RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE};
use aegis_service::disk::{DiskService, STUCK_NS, ServedExtent};
use aegis_virtio::AnyTransport;
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk, Limits};
use core::convert::Infallible;

use crate::host::{KernelHost, Masked};
use crate::place::{Driven, PlaceError, driver_memory};

/// Most disks that are driven; those of higher numbers are the first environment's.
const DISK_COUNT_MAX: usize = 4;
/// Most requests that a disk has.
const DEPTH: usize = 128;
const LIMITS: Limits =
    Limits { request_count: DEPTH as u16, segment_count_max: 64, queue_count_max: 1, reset_poll_count_max: 10_000 };
/// All extents' rights.
const RIGHTS: u8 = RIGHT_READ | RIGHT_WRITE | RIGHT_DISCARD;
/// PCI vendor and device identifiers of a virtio disk: transitional and modern (Virtio 1.2, 4.1.2).
const VIRTIO_DISKS: [u32; 2] = [0x1001_1af4, 0x1042_1af4];

type VirtioDisk = Disk<AnyTransport<MmioRegion, Infallible>, DmaRun>;
type Service = DiskService<VirtioDisk, KernelHost, 1, DEPTH>;

/// A disk: a function, and once somebody has asked for it the service on it.
struct Slot {
    function: Option<(DeviceId, DeviceDescription)>,
    memory: Option<FrameRange>,
    service: Option<Service>,
    random: Keyed,
}

impl Slot {
    const EMPTY: Self = Self { function: None, memory: None, service: None, random: Keyed::new([0; 2]) };
}

/// The extension.
pub(crate) struct Disks(KernelLock<[Slot; DISK_COUNT_MAX]>);

impl Disks {
    pub(crate) const fn new() -> Self {
        Self(KernelLock::new([Slot::EMPTY; DISK_COUNT_MAX]))
    }

    /// Takes what the drivers keep for themselves, before anybody else has memory.
    pub(crate) fn take_memory(&self, memory: &mut BootMemory) {
        for slot in self.0.lock().iter_mut() {
            slot.memory = memory.take_frames(LIMITS.page_count() as u64, 1);
        }
    }
}

impl Extension<Hardware> for Disks {
    fn drives(&self, device: DeviceId, description: &DeviceDescription) -> bool {
        let is_disk = match description.kind {
            DeviceKind::Pci => VIRTIO_DISKS.contains(&description.identity),
            DeviceKind::VirtioMmio => description.identity == DEVICE_TYPE_BLOCK,
            DeviceKind::Ports => false,
        };
        let mut slots = self.0.lock();
        let free = slots.iter_mut().find(|slot| slot.function.is_none()).filter(|_| is_disk);
        free.map(|slot| slot.function = Some((device, *description))).is_some()
    }

    fn call(&self, state: &mut State<'_, Hardware>, by: EnvironmentId, call: &ExtensionCall) -> Result<u64, Status> {
        let operation = KernelCall::from_number(call.operation).ok_or(Status::BadArgument)?;
        let mut slots = self.0.lock();
        let slot = slots.get_mut(call.first as usize).filter(|slot| slot.function.is_some());
        let slot = slot.ok_or(Status::WrongState)?;
        if operation == KernelCall::Find {
            return slot.find(state);
        }
        let mut running = slot.running(state)?;
        let owner = running.service.host().client;
        let is_theirs = owner == Some(by) || owner.is_none() && operation == KernelCall::Attach;
        if !is_theirs {
            return Err(Status::Busy);
        }
        let range = (FrameNumber(call.second), call.third);
        match operation {
            KernelCall::Find => Err(Status::WrongState),
            KernelCall::Register => {
                let (device, number) = (running.device, call.fourth as usize);
                let is_taken = running.service.host().register(state, device, by, range, number);
                if is_taken { Ok(0) } else { Err(Status::WrongState) }
            }
            KernelCall::Attach => running.attach(state, by, range),
            KernelCall::Visit => Ok(running.visit(state)),
            KernelCall::Ask => Ok(running.ask(state)),
            KernelCall::Watch => Ok(running.watch(state)),
            KernelCall::Detach => Ok(running.end_client(state)),
        }
    }

    fn stop(&self, _: &mut State<'_, Hardware>, device: DeviceId) {
        let mut slots = self.0.lock();
        let is_it = |slot: &&mut Slot| slot.function.is_some_and(|(function, _)| function == device);
        if let Some(service) = slots.iter_mut().find(is_it).and_then(|slot| slot.service.as_mut()) {
            // It is reset, which ends what is under way, and comes back as none: switched off, it reaches no rings.
            let _ = service.device().reset();
        }
    }

    fn interrupt(&self, state: &mut State<'_, Hardware>, device: DeviceId) {
        let mut slots = self.0.lock();
        let is_it = |slot: &&mut Slot| slot.function.is_some_and(|(function, _)| function == device);
        let Some(slot) = slots.iter_mut().find(is_it) else { return };
        let Ok(mut running) = slot.running(state) else { return };
        // A disk that cannot go on is found so by the visit.
        let _ = running.service.device().acknowledge(&mut Masked);
        running.visit(state);
    }
}

impl Slot {
    /// As [`KernelCall::Find`].
    fn find(&mut self, state: &mut State<'_, Hardware>) -> Result<u64, Status> {
        let (device, description) = self.function.ok_or(Status::WrongState)?;
        if self.service.is_none() {
            let now_ns = state.machine.now_ns();
            self.random = Keyed::new([now_ns, aegis_machine::read_tsc()]);
            match start(state, device, description, self.memory.take()) {
                Ok(disk) => self.service = Some(DiskService::new(disk, KernelHost::new())),
                Err(error) => {
                    log!(Error, "a disk cannot be driven in the kernel: {error:?}");
                    return Err(Status::WrongState);
                }
            }
        }
        Ok(device.index() as u64)
    }

    /// The disk, if it was started, without a client whose memory has gone.
    fn running(&mut self, state: &mut State<'_, Hardware>) -> Result<Running<'_>, Status> {
        let (device, _) = self.function.ok_or(Status::WrongState)?;
        let service = self.service.as_mut().ok_or(Status::WrongState)?;
        let mut running = Running { device, service, random: &mut self.random };
        if running.service.host().forget_gone(state, device) {
            running.end_client(state);
        }
        Ok(running)
    }
}

fn start(
    state: &mut State<'_, Hardware>,
    device: DeviceId,
    description: DeviceDescription,
    memory: Option<FrameRange>,
) -> Result<VirtioDisk, PlaceError> {
    state.machine.device_enable(device, true);
    let transport = aegis_virtio::open(&Driven(description))?.ok_or(PlaceError::Registers)?;
    let memory = memory.and_then(driver_memory).ok_or(PlaceError::Registers)?;
    Ok(Disk::new(transport, DmaRun::new(memory), LIMITS)?)
}

/// A disk that runs.
struct Running<'a> {
    device: DeviceId,
    service: &'a mut Service,
    random: &'a mut Keyed,
}

impl Running<'_> {
    fn attach(
        &mut self,
        state: &mut State<'_, Hardware>,
        by: EnvironmentId,
        range: (FrameNumber, u64),
    ) -> Result<u64, Status> {
        // Whoever was there before is gone, with nothing under way; the function may be switched off since.
        state.machine.device_enable(self.device, true);
        let is_taken = self.service.host().client.is_none()
            && self.service.host().begin_client(state, self.device, by, range)
            && self.service.device().reset().is_ok();
        let extent = Extent { sector_count: self.service.sector_count(), rights: RIGHTS };
        let served = [ServedExtent { first_sector: 0, extent }];
        if !is_taken || self.service.attach(0, &served, 1).is_err() {
            self.service.host().forget_all();
            return Err(Status::WrongState);
        }
        Ok(0)
    }

    fn visit(&mut self, state: &mut State<'_, Hardware>) -> u64 {
        u64::from(self.service.visit(state.machine.now_ns(), self.random).has_more)
    }

    fn ask(&mut self, state: &mut State<'_, Hardware>) -> u64 {
        let visit = self.service.visit(state.machine.now_ns(), self.random);
        state.machine.interrupt_mask(self.device, 0, false);
        // What ended here rings no bell: the client learns of it by the answer.
        let has_news = visit.has_more || visit.completed_count > 0;
        u64::from(self.service.ask(state.machine.now_ns()) || has_news)
    }

    fn watch(&mut self, state: &mut State<'_, Hardware>) -> u64 {
        state.machine.device_enable(self.device, true);
        self.service.watch(state.machine.now_ns());
        self.visit(state);
        self.service.restart_count()
    }

    /// The client ends, whatever is under way for it: the disk is reset, so that nobody's memory is touched any more.
    fn end_client(&mut self, state: &mut State<'_, Hardware>) -> u64 {
        // What is under way is over before the function reaches memory again.
        let _ = self.service.device().reset();
        state.machine.device_enable(self.device, true);
        self.service.detach(0);
        if self.service.flight_count() > 0 {
            // To the service it is a disk that does not answer.
            self.service.watch(state.machine.now_ns().saturating_add(STUCK_NS));
        } else if self.service.device().reset().is_err() {
            log!(Error, "a disk does not come back from its reset");
        }
        self.service.host().forget_all();
        0
    }
}

//! Domains of the pod's devices: made out of images in the boot bundle at a device's first use, given the device
//! function, frames and bells, and made anew when they are lost.
//!
//! Neighbours: `aegis_domains` makes domains, `disk_domain` and `net_domain` say what of.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::boot::BootInfo;
use aegis_abi::call::EnvironmentField;
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::types::{SLOT_BUNDLE, SLOT_NONE};
use aegis_abi::{CapSlot, FrameNumber, Rights, Status};
use aegis_domains::layout::{CLIENT_COUNT_MAX, MISDEED_FAULT, MISDEED_HANG, MISDEED_LIE};
use aegis_domains::make::{self, Image, Maker, PlanPage, Slots};
use aegis_hal::{DeviceAddress, DmaRegion};
use aegis_image::{bundle, flat};
use aegis_link::drivers::{FaultKind, PART_NET_DOMAIN};
use aegis_rt::call::{self, Outcome, Refusal};
use exos::platform::FrameGrant;
use exos::sync::SpinMutex;
use exos_linux::host::session_place::SessionPlace;

use super::{direct, kernel};

struct ExosMaker;

impl Maker for ExosMaker {
    fn repeat(&mut self, call: &mut dyn FnMut() -> Outcome) -> Outcome {
        kernel::with_tables(call).map_err(|status| Refusal { status, value: 0 })
    }

    fn write_page(&mut self, frame: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let to = direct::at(FrameNumber(frame), 0, PAGE_SIZE as usize);
        let count = bytes.len().min(PAGE_SIZE as usize);
        // SAFETY: a whole frame of the view, of a grant that was shown to write for a domain that does not run; no Rust
        // object lives there.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count);
            core::ptr::write_bytes(to.add(count), 0, PAGE_SIZE as usize - count);
        }
        Ok(())
    }
}

/// Takes frames that stay, shown to write, as zeros.
fn take_shown(count: u64) -> Result<FrameGrant, Status> {
    let grant = kernel::take_frames(count, 0)?;
    direct::show(grant, true).map_err(|fault| fault.status)?;
    for frame in grant.first.0..grant.first.0 + count {
        let _ = ExosMaker.write_page(frame, &[]);
    }
    Ok(grant)
}

/// Memory for a session: frames that stay, and the words of the first of them.
pub(super) fn take_session(
    page_count: u64,
    word_page_count: u64,
) -> Result<(FrameGrant, &'static [AtomicU64]), Status> {
    let session = take_shown(page_count)?;
    let word_count = (word_page_count * PAGE_SIZE) as usize / 8;
    // SAFETY: frames that stay shown for good, in which everybody, the other side included, reads and writes whole
    // words. There are not fewer than pages of words.
    let words =
        unsafe { core::slice::from_raw_parts(direct::address_of(session.first) as *const AtomicU64, word_count) };
    Ok((session, words))
}

/// The bytes of a session behind its words.
pub(super) fn session_bytes(session: FrameGrant, word_page_count: u64) -> Option<DmaRegion> {
    let base = direct::address_of(FrameNumber(session.first.0 + word_page_count));
    let length_bytes = (session.count.checked_sub(word_page_count)? * PAGE_SIZE) as usize;
    // SAFETY: frames that stay shown for good and are used for nothing else. The other side accesses them too, as a
    // device would: nothing here believes what it reads, and every access is volatile. No device is told of them by
    // this address.
    unsafe { DmaRegion::new(NonNull::new(base as *mut u8)?, length_bytes, DeviceAddress(0)) }
}

const _: () = assert!(FaultKind::Fault as u64 == MISDEED_FAULT);
const _: () = assert!(FaultKind::Hang as u64 == MISDEED_HANG && FaultKind::Lie as u64 == MISDEED_LIE);

/// Every domain's environment and part of the bundle, for whoever counts.
static ALL: SpinMutex<Vec<(u32, CapSlot)>> = SpinMutex::new(Vec::new());
/// Processor time of the domains that have ended, and starts of all: of disks, of cards.
static ENDED_NS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static STARTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Which of the two a part is.
const fn index_of(part: u32) -> usize {
    (part == PART_NET_DOMAIN) as usize
}

/// Names and values for `--stats`: of domains that there are.
pub(crate) fn statistics() -> impl Iterator<Item = (&'static str, u64)> {
    let all = ALL.lock();
    let mut values = [("disk_domain_ns", 0), ("disk_domain_starts", 0), ("net_domain_ns", 0), ("net_domain_starts", 0)];
    for index in 0..2 {
        let own = all.iter().filter(|(part, _)| index_of(*part) == index);
        let running_ns = own.map(|(_, environment)| used_ns(*environment)).sum::<u64>();
        values[2 * index].1 = ENDED_NS[index].load(Ordering::Relaxed) + running_ns;
        values[2 * index + 1].1 = STARTS[index].load(Ordering::Relaxed);
    }
    values.into_iter().filter(|(_, value)| *value > 0)
}

fn used_ns(environment: CapSlot) -> u64 {
    call::environment_read(environment, EnvironmentField::TimeUsedNs).unwrap_or(0)
}

/// What a domain is of.
pub(super) struct Kind {
    /// The image's part of the bundle.
    pub(super) part: u32,
    /// Pages of its driver's memory.
    pub(super) driver_page_count: u64,
    /// Ranges that its device may reach.
    pub(super) dma_range_count: u32,
    /// The device function.
    pub(super) device: CapSlot,
    /// The bell that rings when there is something to look at, and when the kernel has stopped the domain.
    pub(super) own_bell: CapSlot,
    /// What a session gives besides being read and written.
    pub(super) session_rights: Rights,
}

/// A domain, made or to be made.
pub(super) struct Domain {
    slots: Slots,
    image: Image<'static>,
    memory_frame: u64,
    part: u32,
}

impl Domain {
    /// Prepares a domain, whose only client has this session. `None`: no image was packed.
    pub(super) fn prepare(info: &BootInfo, kind: &Kind, session: CapSlot) -> Result<Option<Self>, Status> {
        // SAFETY: the bundle was shown at the start, and this part is never written.
        let bundle = unsafe {
            direct::bytes(FrameNumber(info.bundle_frame), info.bundle_frame_count as usize * PAGE_SIZE as usize)
        };
        let parts = bundle::parse(bundle).ok();
        let found = parts.as_ref().and_then(|parts| Some((parts.find(kind.part)?, parts)));
        let Some((part, parts)) = found else { return Ok(None) };
        let bytes: &'static [u8] = bundle
            .get(part.offset_bytes as usize..)
            .and_then(|rest| rest.get(..parts.contents(part).len()))
            .unwrap_or_default();
        let Ok(header) = flat::parse(bytes) else { return Ok(None) };
        let (offset, count) = (part.offset_bytes / PAGE_SIZE, part.length_bytes.div_ceil(PAGE_SIZE));
        let image_slot = kernel::next_slot();
        let rights = Rights::READ | Rights::EXECUTE | Rights::GRANT;
        kernel::with_tables(|| call::cap_derive(SLOT_BUNDLE, image_slot, rights, offset, count))?;
        let first_frame = info.bundle_frame + offset;
        let Kind { driver_page_count, dma_range_count, .. } = *kind;
        let image = Image { slot: image_slot, first_frame, header, bytes, driver_page_count, dma_range_count };
        let memory = take_shown(image.memory_page_count())?;
        let bell = kernel::next_slot();
        kernel::with_tables(|| call::bell_create(bell, SLOT_NONE))?;
        let mut clients = [[SLOT_NONE; 3]; CLIENT_COUNT_MAX];
        clients[0] = [session, kind.own_bell, SLOT_NONE];
        let slots = Slots {
            environment: kernel::next_slot(),
            tables: kernel::next_slot(),
            processor: kernel::next_slot(),
            memory: memory.slot,
            device: kind.device,
            bell,
            watch: kind.own_bell,
            session_rights: kind.session_rights,
            clients,
        };
        let mut all = ALL.lock();
        all.try_reserve(1).map_err(|_| Status::NoFrames)?;
        all.push((kind.part, slots.environment));
        drop(all);
        Ok(Some(Self { slots, image, memory_frame: memory.first.0, part: kind.part }))
    }

    /// The first of the frames that it is given.
    pub(super) fn memory_frame(&self) -> u64 {
        self.memory_frame
    }

    /// Starts it; false: it cannot be.
    fn start(&self, plan: &[u64]) -> bool {
        STARTS[index_of(self.part)].fetch_add(1, Ordering::Relaxed);
        let page = PlanPage { memory_frame: self.memory_frame, words: plan };
        let is_started = make::start(&mut ExosMaker, &self.image, &self.slots, &page).is_ok();
        if !is_started {
            self.end();
        }
        is_started
    }

    /// Ends it, and all that it was given; false: its device may still use memory.
    fn end(&self) -> bool {
        ENDED_NS[index_of(self.part)].fetch_add(used_ns(self.slots.environment), Ordering::Relaxed);
        make::end(&mut ExosMaker, &self.slots) == Ok(true)
    }
}

/// A domain with the session of its one client, and the plan that it starts by.
pub(super) struct DomainSession {
    domain: Domain,
    plan: Box<[u64]>,
    words: &'static [AtomicU64],
}

impl DomainSession {
    pub(super) fn new(domain: Domain, plan: &[u64], words: &'static [AtomicU64]) -> Self {
        Self { domain, plan: plan.into(), words }
    }

    /// The domain's environment, where there is one.
    pub(super) fn environment(&self) -> CapSlot {
        self.domain.slots.environment
    }
}

impl SessionPlace for DomainSession {
    const IS_CALLED: bool = false;

    fn words(&self) -> &[AtomicU64] {
        self.words
    }

    fn ring(&self) {
        let _ = call::bell_ring(self.domain.slots.bell);
    }

    fn listen(&self) -> bool {
        false
    }

    fn end(&self) -> bool {
        self.domain.end()
    }

    fn start(&self) -> bool {
        self.domain.start(&self.plan)
    }

    fn is_stopped(&self) -> bool {
        make::is_stopped(&self.domain.slots)
    }

    fn now_ns(&self) -> u64 {
        kernel::now_ns()
    }
}

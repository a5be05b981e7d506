//! What the host tells the manager of a machine with several pods: which there are, and what belongs to each.
//!
//! The bundle of such a machine has a part [`PART_PLAN`] (this module's encoding), one [`PART_LIBRARY_OS`] (the flat
//! image that every pod starts with) and a [`PART_POD`] for each pod, in the plan's order. A pod's part is a whole boot
//! bundle with the pod's configuration and root, so that its library OS reads it as if there were nobody else. The
//! kernel knows none of these parts.
//!
//! Device functions have no names that both sides know, so the plan counts: the machine's virtio consoles and 9P
//! transports, in the order of their slots, are the first pod's, then the second's, and so on. The manager refuses a
//! machine that has more or fewer. It keeps them and guards them (`aegis_virtio::guard`), unless the plan says that
//! pods are trusted with them, and then network cards that are not virtio count too; functions of other types it gives
//! to nobody.
//!
//! Currencies share a part of the processors among pods. They are numbered, and the payer of one has a smaller number,
//! so that a plan cannot say a cycle and the manager can make them in order.
//!
//! Pods can have extents of one disk, the pool, which is the machine's last virtio disk and none of a pod's. The
//! manager has it driven by a domain of its own; a pod finds a session for each of its extents, in the order of the
//! plan.
//!
//! The encoding is a header (magic, version, numbers of pods, currencies and extents), an entry of fixed size for each
//! pod, one for each currency, and one for each extent, little-endian. Reading takes no memory, since the manager has
//! no heap.

use alloc::vec;
use alloc::vec::Vec;

use aegis_abi::CapSlot;
use aegis_abi::boot::BUNDLE_PART_COUNT_MAX;
use aegis_abi::call::TICKET_AMOUNT_MAX;
use aegis_abi::layout::{LIBOS_BASE, PAGE_SIZE};

use aegis_image::bytes::{put, slice, u32_at, u64_at};

use crate::drivers::{Fault, FaultKind};

/// A bundle part: the plan.
pub const PART_PLAN: u32 = 16;
/// A bundle part: the library OS of all pods, a flat image.
pub const PART_LIBRARY_OS: u32 = 17;
/// A bundle part: a pod's own bundle.
pub const PART_POD: u32 = 18;

/// First eight bytes of a plan.
pub const PLAN_MAGIC: u64 = u64::from_le_bytes(*b"AEGISPOD");
/// Version of the encoding.
pub const PLAN_VERSION: u32 = 6;
/// Most pods of a machine: what the bundle has parts for, besides the manager, the plan and the library OS.
pub const POD_COUNT_MAX: usize = BUNDLE_PART_COUNT_MAX - 3;
/// Most currencies of a machine, the base aside.
pub const CURRENCY_COUNT_MAX: usize = 16;
/// Most extents of the pool that pods of a machine have.
pub const POOL_EXTENT_COUNT_MAX: usize = 8;
/// Longest name of a pod in bytes.
pub const POD_NAME_BYTES_MAX: usize = 32;

/// Slot of a pod's own table: the bell by which it says that it has ended. The first environment has none; it ends
/// the machine.
pub const SLOT_POD_END: CapSlot = CapSlot(6);
/// Where a pod's library OS writes why it gave up, before it rings [`SLOT_POD_END`]: a page of the pod's, text up to
/// the first zero. The manager says it on the kernel's log when the pod has been taken apart; pods cannot write there.
pub const POD_WORDS_BASE: u64 = LIBOS_BASE + 0x4000;
/// Bytes of it that are said; a longer text is cut.
pub const POD_WORDS_BYTES_MAX: usize = 200;
/// Slot of a pod's own table: the frames of the library OS that all pods share, not writable.
pub const SLOT_POD_IMAGE: CapSlot = CapSlot(7);
/// Slot of a pod's own table: its copy of what the library OS writes.
pub const SLOT_POD_DATA: CapSlot = CapSlot(8);
/// Slot of a pod's own table: the gate to the guard of its device functions. A pod that drives them itself has none.
pub const SLOT_POD_GUARD: CapSlot = CapSlot(9);
/// Slot of a pod's own table: the bell of whoever serves its extents of the pool, to ring.
pub const SLOT_POOL_SERVICE: CapSlot = CapSlot(12);
/// Slot of a pod's own table: the bell that rings when one of its extents has something.
pub const SLOT_POOL_BELL: CapSlot = CapSlot(13);
/// Slot of a pod's own table: the bell to ring when the pool does not answer. The manager looks then.
pub const SLOT_POOL_DOUBT: CapSlot = CapSlot(14);
/// Slot of a pod's own table: the frames of its sessions with the pool, to read and write.
pub const SLOT_POOL_FRAMES: CapSlot = CapSlot(15);
/// Where a pod finds the session of its first extent of the pool; the next is [`POOL_STRIDE`] behind it.
pub const POOL_BASE: u64 = LIBOS_BASE + (48 << 30);
/// From one extent's session to the next.
pub const POOL_STRIDE: u64 = 4 << 20;
/// Pages of a session with the pool.
pub const POOL_SESSION_PAGE_COUNT: u64 = 80;
/// Pages for transfers, behind those of the session. The pool reaches nothing else of a pod.
pub const POOL_BUFFER_PAGE_COUNT: u64 = 512;
/// Pages of both.
pub const POOL_PAGE_COUNT: u64 = POOL_SESSION_PAGE_COUNT + POOL_BUFFER_PAGE_COUNT;
const _: () = assert!(POOL_PAGE_COUNT * PAGE_SIZE <= POOL_STRIDE);
/// Slot of a pod's own table: the first guarded function's frames that the pod writes. [`GUARDED_SLOT_COUNT`] slots
/// further are the next function's.
pub const SLOT_GUARDED_FIRST: CapSlot = CapSlot(16);
/// Slots of a guarded function.
pub const GUARDED_SLOT_COUNT: u32 = 3;
/// Among them: the frames that the pod only reads.
pub const GUARDED_SLOT_USED: u32 = 1;
/// Among them: the bell that the function's interrupt rings.
pub const GUARDED_SLOT_BELL: u32 = 2;

const HEADER_BYTES: usize = 40;
/// Flag of the plan: [`Plan::trusts_devices`].
const FLAG_TRUST: u32 = 1;
const LIMIT_OFFSET: usize = 32;
const NAME_OFFSET: usize = 40;
/// Flag of an entry: [`PodPlan::is_held`].
const FLAG_HELD: u32 = 1;
/// Flag of an entry: [`PodPlan::is_late`].
const FLAG_LATE: u32 = 2;
const ENTRY_BYTES: usize = NAME_OFFSET + POD_NAME_BYTES_MAX;
const CURRENCY_BYTES: usize = 16;
const EXTENT_BYTES: usize = 24;
/// Flag of an extent: [`ExtentPlan::is_read_only`].
const FLAG_READ_ONLY: u32 = 1;
/// The payer, if only the base pays.
const PAYER_BASE: u32 = u32::MAX;

/// A currency that tickets of pods and of other currencies are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrencyPlan {
    /// Amount of the ticket that funds it.
    pub ticket_amount: u64,
    /// The currency that this ticket is in, by its number, which is less than this one's; `None`: the base.
    pub payer: Option<u32>,
}

/// An extent of the pool that a pod has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentPlan {
    /// The pod's number.
    pub pod: u32,
    /// Nothing is written to it.
    pub is_read_only: bool,
    /// First sector on the disk.
    pub first_sector: u64,
    /// Sectors, at least one.
    pub sector_count: u64,
}

/// The disk whose extents pods have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolPlan<'a> {
    /// Its extents.
    pub extents: &'a [ExtentPlan],
    /// For tests: what its driver does wrong.
    pub fault: Option<Fault>,
}

/// What belongs to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodPlan {
    /// Frames that it may own at first, and whatever others want.
    pub frame_quota: u64,
    /// Frames that it may own at most, if nobody else wants them.
    pub frame_limit: u64,
    /// Amount of the ticket that funds it.
    pub ticket_amount: u64,
    /// Device functions.
    pub device_count: u32,
    /// The currency that its ticket is in, by its number; `None`: the base.
    pub payer: Option<u32>,
    /// The machine does not end while the host may still want the pod again: until an order releases it.
    pub is_held: bool,
    /// It is not made with the machine, but when an order says so, as one that is started again.
    pub is_late: bool,
    /// Bytes of its name.
    name_bytes: u32,
    name: [u8; POD_NAME_BYTES_MAX],
}

impl PodPlan {
    /// A plan; `None` if [`is_name`] refuses the name.
    #[must_use]
    pub fn new(name: &str, frame_quota: u64, ticket_amount: u64, device_count: u32) -> Option<Self> {
        if !is_name(name) {
            return None;
        }
        let mut bytes = [0; POD_NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let (is_held, is_late, payer, name_bytes) = (false, false, None, name.len() as u32);
        let frame_limit = frame_quota;
        Some(Self {
            frame_quota,
            frame_limit,
            ticket_amount,
            device_count,
            payer,
            is_held,
            is_late,
            name_bytes,
            name: bytes,
        })
    }

    /// The same, with its ticket in another currency.
    #[must_use]
    pub fn paid_by(self, payer: Option<u32>) -> Self {
        Self { payer, ..self }
    }

    /// The same, with more memory if there is some; never less than it may own at first.
    #[must_use]
    pub fn limited(self, frame_limit: u64) -> Self {
        Self { frame_limit: frame_limit.max(self.frame_quota), ..self }
    }

    /// The same, held.
    #[must_use]
    pub fn held(self, is_held: bool) -> Self {
        Self { is_held, ..self }
    }

    /// The same, made late.
    #[must_use]
    pub fn late(self, is_late: bool) -> Self {
        Self { is_late, ..self }
    }

    /// Name in the plan, without padding.
    #[must_use]
    pub fn name(&self) -> &str {
        let bytes = self.name.get(..self.name_bytes as usize).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// Whether a pod can be called so: 1 to [`POD_NAME_BYTES_MAX`] ASCII letters, digits, `-` and `_`, the first of them no
/// `-`.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=POD_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('-')
}

/// Writes a plan whose pods drive their devices themselves if `trusts_devices`; `None` for no pods, too many of
/// something, or a payer or an extent that cannot be.
#[must_use]
pub fn encode(
    pods: &[PodPlan],
    currencies: &[CurrencyPlan],
    pool: &PoolPlan<'_>,
    trusts_devices: bool,
) -> Option<Vec<u8>> {
    let PoolPlan { extents: pool, fault } = *pool;
    let is_good = |payer: Option<u32>, end: usize| payer.is_none_or(|payer| (payer as usize) < end);
    if !(1..=POD_COUNT_MAX).contains(&pods.len())
        || currencies.len() > CURRENCY_COUNT_MAX
        || pool.len() > POOL_EXTENT_COUNT_MAX
        || !pods.iter().all(|pod| is_good(pod.payer, currencies.len()))
        || !currencies.iter().enumerate().all(|(number, currency)| is_good(currency.payer, number))
        || !(0..pool.len()).all(|number| can_be(&pool[..=number], pods.len() as u32))
    {
        return None;
    }
    let currency_offset = HEADER_BYTES + pods.len() * ENTRY_BYTES;
    let pool_offset = currency_offset + currencies.len() * CURRENCY_BYTES;
    let mut bytes = vec![0; pool_offset + pool.len() * EXTENT_BYTES];
    put(&mut bytes, 16, (currencies.len() as u32).to_le_bytes());
    put(&mut bytes, 20, (if trusts_devices { FLAG_TRUST } else { 0 }).to_le_bytes());
    put(&mut bytes, 24, (pool.len() as u32).to_le_bytes());
    if let Some(Fault { after_ms, kind }) = fault {
        put(&mut bytes, 28, (kind as u32).to_le_bytes());
        put(&mut bytes, 32, after_ms.to_le_bytes());
    }
    for (index, currency) in currencies.iter().enumerate() {
        let at = currency_offset + index * CURRENCY_BYTES;
        put(&mut bytes, at, currency.ticket_amount.to_le_bytes());
        put(&mut bytes, at + 8, currency.payer.unwrap_or(PAYER_BASE).to_le_bytes());
    }
    for (index, extent) in pool.iter().enumerate() {
        let at = pool_offset + index * EXTENT_BYTES;
        put(&mut bytes, at, extent.pod.to_le_bytes());
        put(&mut bytes, at + 4, (if extent.is_read_only { FLAG_READ_ONLY } else { 0 }).to_le_bytes());
        put(&mut bytes, at + 8, extent.first_sector.to_le_bytes());
        put(&mut bytes, at + 16, extent.sector_count.to_le_bytes());
    }
    put(&mut bytes, 0, PLAN_MAGIC.to_le_bytes());
    put(&mut bytes, 8, PLAN_VERSION.to_le_bytes());
    put(&mut bytes, 12, (pods.len() as u32).to_le_bytes());
    for (index, pod) in pods.iter().enumerate() {
        let at = HEADER_BYTES + index * ENTRY_BYTES;
        encode_pod(&mut bytes[at..at + ENTRY_BYTES], pod);
    }
    Some(bytes)
}

fn encode_pod(bytes: &mut [u8], pod: &PodPlan) {
    put(bytes, 0, pod.frame_quota.to_le_bytes());
    put(bytes, 8, pod.ticket_amount.to_le_bytes());
    put(bytes, 16, pod.device_count.to_le_bytes());
    put(bytes, 20, pod.name_bytes.to_le_bytes());
    let flags = [(pod.is_held, FLAG_HELD), (pod.is_late, FLAG_LATE)].map(|(is, flag)| if is { flag } else { 0 });
    put(bytes, 24, (flags[0] | flags[1]).to_le_bytes());
    put(bytes, 28, pod.payer.unwrap_or(PAYER_BASE).to_le_bytes());
    put(bytes, LIMIT_OFFSET, pod.frame_limit.to_le_bytes());
    bytes[NAME_OFFSET..].copy_from_slice(&pod.name);
}

/// Whether the last of these extents can be beside the others: it has sectors and an owner, and shares none of them.
fn can_be(extents: &[ExtentPlan], pod_count: u32) -> bool {
    let Some((last, others)) = extents.split_last() else { return true };
    let end_of = |extent: &ExtentPlan| extent.first_sector.checked_add(extent.sector_count);
    let Some(end) = end_of(last) else { return false };
    let is_apart =
        |other: &ExtentPlan| other.first_sector >= end || end_of(other).is_some_and(|it| it <= last.first_sector);
    last.pod < pod_count && last.sector_count > 0 && others.iter().all(is_apart)
}

/// What is wrong with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanDamage {
    /// Too short, or without the magic number.
    NotPlan,
    /// Another version of the encoding.
    Version(u32),
    /// No pods, or more than there can be.
    PodCount(u32),
    /// More currencies than there can be.
    CurrencyCount(u32),
    /// The entry with this index is cut off, or its name, ticket or payer cannot be.
    Pod(usize),
    /// The same of a currency's.
    Currency(usize),
    /// More extents than there can be.
    ExtentCount(u32),
    /// The extent with this index is cut off, of no pod, empty, or not apart from those before.
    Extent(usize),
}

/// A validated plan.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pods: [Option<PodPlan>; POD_COUNT_MAX],
    currencies: [Option<CurrencyPlan>; CURRENCY_COUNT_MAX],
    pool: [Option<ExtentPlan>; POOL_EXTENT_COUNT_MAX],
    /// For tests: what the pool's driver does wrong.
    pub pool_fault: Option<Fault>,
    /// Pods drive their device functions themselves, and can make them reach any memory.
    pub trusts_devices: bool,
}

impl Plan {
    /// The pods, in order.
    pub fn pods(&self) -> impl Iterator<Item = &PodPlan> {
        self.pods.iter().flatten()
    }

    /// The currencies, in order: the payer of one comes before it.
    pub fn currencies(&self) -> impl Iterator<Item = &CurrencyPlan> {
        self.currencies.iter().flatten()
    }

    /// The extents of the pool, in order.
    pub fn pool(&self) -> impl Iterator<Item = &ExtentPlan> {
        self.pool.iter().flatten()
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// See [`PlanDamage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, PlanDamage> {
        let field = |offset| u32_at(bytes, offset);
        if u64_at(bytes, 0) != Some(PLAN_MAGIC) {
            return Err(PlanDamage::NotPlan);
        }
        let fields = (field(8), field(12), field(16), field(20), field(24));
        let (Some(version), Some(count), Some(currency_count), Some(flags), Some(extent_count)) = fields else {
            return Err(PlanDamage::NotPlan);
        };
        if version != PLAN_VERSION {
            return Err(PlanDamage::Version(version));
        }
        if !(1..=POD_COUNT_MAX).contains(&(count as usize)) {
            return Err(PlanDamage::PodCount(count));
        }
        if currency_count as usize > CURRENCY_COUNT_MAX {
            return Err(PlanDamage::CurrencyCount(currency_count));
        }
        let mut pods = [None; POD_COUNT_MAX];
        for (index, place) in pods.iter_mut().enumerate().take(count as usize) {
            let at = HEADER_BYTES + index * ENTRY_BYTES;
            let entry = slice(bytes, at as u64, ENTRY_BYTES as u64);
            let pod = entry.and_then(|entry| decode_pod(entry, currency_count));
            *place = Some(pod.ok_or(PlanDamage::Pod(index))?);
        }
        let mut currencies = [None; CURRENCY_COUNT_MAX];
        for (index, place) in currencies.iter_mut().enumerate().take(currency_count as usize) {
            let at = HEADER_BYTES + count as usize * ENTRY_BYTES + index * CURRENCY_BYTES;
            let entry = slice(bytes, at as u64, CURRENCY_BYTES as u64);
            let currency = entry.and_then(|entry| decode_currency(entry, index as u32));
            *place = Some(currency.ok_or(PlanDamage::Currency(index))?);
        }
        let pool_offset = HEADER_BYTES + count as usize * ENTRY_BYTES + currency_count as usize * CURRENCY_BYTES;
        let pool = decode_pool(bytes, pool_offset, extent_count, count)?;
        let kind = FaultKind::ALL.into_iter().find(|kind| Some(*kind as u32) == field(28));
        let pool_fault = kind.zip(field(32)).map(|(kind, after_ms)| Fault { after_ms, kind });
        Ok(Self { pods, currencies, pool, pool_fault, trusts_devices: flags & FLAG_TRUST != 0 })
    }
}

fn decode_pool(
    bytes: &[u8],
    offset: usize,
    count: u32,
    pod_count: u32,
) -> Result<[Option<ExtentPlan>; POOL_EXTENT_COUNT_MAX], PlanDamage> {
    if count as usize > POOL_EXTENT_COUNT_MAX {
        return Err(PlanDamage::ExtentCount(count));
    }
    let none = ExtentPlan { pod: 0, is_read_only: false, first_sector: 0, sector_count: 0 };
    let mut extents = [none; POOL_EXTENT_COUNT_MAX];
    let mut pool = [None; POOL_EXTENT_COUNT_MAX];
    for index in 0..count as usize {
        let entry = slice(bytes, (offset + index * EXTENT_BYTES) as u64, EXTENT_BYTES as u64);
        extents[index] = entry.and_then(decode_extent).ok_or(PlanDamage::Extent(index))?;
        if !can_be(&extents[..=index], pod_count) {
            return Err(PlanDamage::Extent(index));
        }
        pool[index] = Some(extents[index]);
    }
    Ok(pool)
}

fn decode_extent(entry: &[u8]) -> Option<ExtentPlan> {
    Some(ExtentPlan {
        pod: u32_at(entry, 0)?,
        is_read_only: u32_at(entry, 4)? & FLAG_READ_ONLY != 0,
        first_sector: u64_at(entry, 8)?,
        sector_count: u64_at(entry, 16)?,
    })
}

/// Reads the payer: the base, or a currency with a number below `end`.
fn decode_payer(word: u32, end: u32) -> Option<Option<u32>> {
    match word {
        PAYER_BASE => Some(None),
        number => (number < end).then_some(Some(number)),
    }
}

fn decode_currency(entry: &[u8], number: u32) -> Option<CurrencyPlan> {
    let (ticket_amount, payer) = (u64_at(entry, 0)?, decode_payer(u32_at(entry, 8)?, number)?);
    (1..=TICKET_AMOUNT_MAX).contains(&ticket_amount).then_some(CurrencyPlan { ticket_amount, payer })
}

fn decode_pod(entry: &[u8], currency_count: u32) -> Option<PodPlan> {
    let (frame_quota, ticket_amount) = (u64_at(entry, 0)?, u64_at(entry, 8)?);
    let (device_count, name_bytes) = (u32_at(entry, 16)?, u32_at(entry, 20)?);
    let name = slice(entry, NAME_OFFSET as u64, u64::from(name_bytes))?;
    let name = core::str::from_utf8(name).ok()?;
    if !(1..=TICKET_AMOUNT_MAX).contains(&ticket_amount) {
        return None;
    }
    let flags = u32_at(entry, 24)?;
    let (is_held, is_late) = (flags & FLAG_HELD != 0, flags & FLAG_LATE != 0);
    let payer = decode_payer(u32_at(entry, 28)?, currency_count)?;
    let frame_limit = u64_at(entry, LIMIT_OFFSET)?;
    if frame_limit < frame_quota {
        return None;
    }
    PodPlan::new(name, frame_quota, ticket_amount, device_count)
        .map(|plan| plan.limited(frame_limit).held(is_held).late(is_late).paid_by(payer))
}

#[cfg(test)]
mod tests {
    use super::{
        CURRENCY_COUNT_MAX, CurrencyPlan, ENTRY_BYTES, EXTENT_BYTES, ExtentPlan, HEADER_BYTES, POD_COUNT_MAX,
        POOL_EXTENT_COUNT_MAX, Plan, PlanDamage, PodPlan, PoolPlan, encode, is_name,
    };
    use crate::drivers::{Fault, FaultKind};
    use alloc::vec::Vec;
    use proptest::prelude::{any, proptest};

    fn pod(name: &str) -> PodPlan {
        PodPlan::new(name, 1000, 3, 2)
            .expect("a good name")
            .limited(if name.ends_with('2') { 4000 } else { 0 })
            .held(name.ends_with('1'))
            .late(name.ends_with('3'))
    }

    #[test]
    fn what_is_written_is_read() {
        for count in 1..=POD_COUNT_MAX {
            let pods: Vec<PodPlan> = (0..count).map(|number| pod(&alloc::format!("pod-{number}"))).collect();
            let bytes = encode(&pods, &[], &PoolPlan::default(), false).expect("not too many");
            let plan = Plan::decode(&bytes).expect("a good plan");
            assert!(plan.pods().eq(&pods) && plan.currencies().next().is_none() && !plan.trusts_devices);
            assert_eq!(Plan::decode(&bytes[..bytes.len() - 1]).err(), Some(PlanDamage::Pod(count - 1)));
        }
        let trusting = encode(&[pod("a")], &[], &PoolPlan::default(), true).expect("one");
        assert!(Plan::decode(&trusting).is_ok_and(|plan| plan.trusts_devices));
        assert_eq!(encode(&[], &[], &PoolPlan::default(), false), None);
        assert_eq!(encode(&[pod("a"); POD_COUNT_MAX + 1], &[], &PoolPlan::default(), false), None);
    }

    #[test]
    fn currencies_are_written_and_read() {
        let currencies: Vec<CurrencyPlan> = (0..CURRENCY_COUNT_MAX as u32)
            .map(|number| CurrencyPlan { ticket_amount: 1 + u64::from(number), payer: number.checked_sub(2) })
            .collect();
        let pods = [pod("a"), pod("b").paid_by(Some(15))];
        let bytes = encode(&pods, &currencies, &PoolPlan::default(), false).expect("not too many");
        let plan = Plan::decode(&bytes).expect("a good plan");
        assert!(plan.pods().eq(&pods) && plan.currencies().eq(&currencies));
        assert_eq!(Plan::decode(&bytes[..bytes.len() - 1]).err(), Some(PlanDamage::Currency(15)));
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Plan::decode(&bytes).err()
        };
        assert_eq!(with(16, 17), Some(PlanDamage::CurrencyCount(17)));
        assert_eq!(with(HEADER_BYTES + ENTRY_BYTES + 28, 16), Some(PlanDamage::Pod(1)), "no such currency");
        let first = HEADER_BYTES + 2 * ENTRY_BYTES;
        assert_eq!(with(first, 0), Some(PlanDamage::Currency(0)), "no ticket");
        assert_eq!(with(first + 4 * 16 + 8, 4), Some(PlanDamage::Currency(4)), "it would pay for itself");
        // What cannot be read is not written.
        let one = |payer| CurrencyPlan { ticket_amount: 1, payer };
        assert_eq!(encode(&pods, &[], &PoolPlan::default(), false), None);
        assert_eq!(encode(&[pod("a")], &[one(Some(0))], &PoolPlan::default(), false), None);
        assert_eq!(encode(&[pod("a")], &[one(Some(1)), one(None)], &PoolPlan::default(), false), None);
        assert_eq!(encode(&[pod("a")], &[one(None); CURRENCY_COUNT_MAX + 1], &PoolPlan::default(), false), None);
    }

    fn extent(pod: u32, first_sector: u64, sector_count: u64) -> ExtentPlan {
        ExtentPlan { pod, is_read_only: first_sector.is_multiple_of(3), first_sector, sector_count }
    }

    #[test]
    fn extents_are_written_and_read_and_stay_apart() {
        let pods = [pod("a"), pod("b")];
        let pool: Vec<ExtentPlan> = (0..POOL_EXTENT_COUNT_MAX as u64)
            .map(|number| extent(number as u32 % 2, 2048 * (8 - number), 2048))
            .collect();
        let fault = Some(Fault { after_ms: 100, kind: FaultKind::Hang });
        let write = |pool: &[ExtentPlan]| encode(&pods, &[], &PoolPlan { extents: pool, fault }, false);
        let bytes = write(&pool).expect("not too many");
        assert!(Plan::decode(&bytes).is_ok_and(|plan| plan.pool().eq(&pool) && plan.pool_fault == fault));
        assert_eq!(Plan::decode(&bytes[..bytes.len() - 1]).err(), Some(PlanDamage::Extent(7)));
        let wrong = [extent(2, 0, 1), extent(0, 0, 0), extent(0, u64::MAX, 2)];
        for extents in wrong.map(|wrong| [wrong]) {
            assert_eq!(write(&extents), None, "{extents:?}");
        }
        for second in [extent(1, 4095, 1), extent(1, 2047, 2), extent(0, 0, 1 << 40), extent(1, 2048, 2048)] {
            assert_eq!(write(&[extent(0, 2048, 2048), second]), None, "{second:?}");
        }
        assert_eq!(write(&[extent(0, 0, 1); POOL_EXTENT_COUNT_MAX + 1]), None);
        // The same is found where somebody else wrote it.
        let mut bytes = write(&[extent(0, 0, 8), extent(1, 8, 8)]).expect("two");
        let second = HEADER_BYTES + 2 * ENTRY_BYTES + EXTENT_BYTES;
        bytes[second + 8] = 7;
        assert_eq!(Plan::decode(&bytes).err(), Some(PlanDamage::Extent(1)));
        bytes[24] = 9;
        assert_eq!(Plan::decode(&bytes).err(), Some(PlanDamage::ExtentCount(9)));
    }

    #[test]
    fn names_are_plain() {
        for name in ["a", "web-1", "A_b", "0", &"x".repeat(32)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a b", "a.b", "a|", "ä", &"x".repeat(33)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn damage_is_named() {
        let good = encode(&[pod("a"), pod("b")], &[], &PoolPlan::default(), false).expect("two");
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Plan::decode(&bytes).err()
        };
        assert_eq!(with(0, 0), Some(PlanDamage::NotPlan));
        assert_eq!(with(8, 1), Some(PlanDamage::Version(1)));
        assert_eq!(with(12, 0), Some(PlanDamage::PodCount(0)));
        assert_eq!(with(12, 200), Some(PlanDamage::PodCount(200)));
        assert_eq!(with(HEADER_BYTES + 8, 0), Some(PlanDamage::Pod(0)), "no ticket");
        assert_eq!(with(HEADER_BYTES + 20, 33), Some(PlanDamage::Pod(0)), "a name too long");
        assert_eq!(with(HEADER_BYTES + 32, b'/'), Some(PlanDamage::Pod(0)), "a name that is none");
        assert_eq!(Plan::decode(&[]).err(), Some(PlanDamage::NotPlan));
    }

    proptest! {
        #[test]
        fn no_input_stops_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let currencies = [CurrencyPlan { ticket_amount: 1, payer: None }; 3];
            let mut plan = encode(&[pod("a"), pod("b")], &currencies, &PoolPlan::default(), false).expect("two");
            for (place, byte) in plan.iter_mut().skip(12).zip(&bytes) {
                *place ^= byte;
            }
            let _ = (Plan::decode(&bytes), Plan::decode(&plan));
        }
    }
}

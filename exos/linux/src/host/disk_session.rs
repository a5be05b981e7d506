//! A disk whose driver is in a domain or in the kernel, as exos's block layer sees it: a [`Disk`] over a session with
//! the disk service.
//!
//! Memory is given, not copied: when a frame of a grant is used first, the whole grant becomes a buffer of the domain.
//! Of buffers there are few: when there is no other left and nothing is under way, the domain is started anew.
//!
//! Invariants: the lock is a spin lock, held for a request or a look, over no wait. Nothing that the domain writes is
//! believed ([`Client`]): one that lies, that the kernel has stopped, or that tells nothing for [`STUCK_NS`] while
//! something is under way is broken until [`Disk::reset`], which ends it before another begins. A domain that is lost
//! more often than [`RESTART_COUNT_MAX`] times in [`RESTART_WITHIN_NS`] does not come back.
//!
//! Neighbours: `glue::disk_domain` and `glue::disk_kernel` place the service ([`DiskPlace`]); [`exos::block::disk`]
//! says what a disk owes; `drivers/service` is the other side.

use alloc::boxed::Box;
use alloc::format;
use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::{CapSlot, FrameNumber};
use aegis_proto::block::{
    BUFFER_COUNT_MAX, Buffer, Client, Description, INLINE_SEGMENT_COUNT, Limit, Operation, Outcome, RIGHT_WRITE,
    Request, SEGMENT_COUNT_MAX, Segment, Segments, Shape, State, SubmitError,
};
use exos::block::disk::{
    Disk, DiskBroken, DiskError, DiskLimits, DiskOperation, DiskRequest, DiskReset, DiskSubmitError, RangeLimits,
    SECTOR_BYTES, Watching,
};
use exos::mem::pinned::FramePiece;
use exos::sync::SpinMutex;

use super::session_place::SessionPlace;

/// The session: a request and its list have the number of its tag.
pub const SHAPE: Shape = Shape { depth: DEPTH as u32, indirect_page_count: DEPTH as u32 };
const DEPTH: u16 = 64;
/// Buffers that are given, at most: ranges that a device may reach are few.
const BUFFER_COUNT: usize = 120;
const _: () = assert!(BUFFER_COUNT <= BUFFER_COUNT_MAX);
/// Without a completion for so long, while something is under way, the domain counts as hung. Its own service resets
/// its disk sooner.
pub const STUCK_NS: u64 = 3_000_000_000;
/// A domain that is lost more often than this in [`RESTART_WITHIN_NS`] does not come back.
pub const RESTART_COUNT_MAX: usize = 64;
/// See [`RESTART_COUNT_MAX`].
pub const RESTART_WITHIN_NS: u64 = 4_000_000_000;
/// A domain that does not serve so long after its start is lost.
const START_NS: u64 = 2_000_000_000;

/// A place that is given a program's memory for its disk.
pub trait DiskPlace: SessionPlace {
    /// The grant that a frame is in, as buffer `number` of the service: its first frame and its frames.
    fn give(&self, number: usize, frame: FrameNumber) -> Option<(FrameNumber, u64)>;
    /// Takes a grant back that goes to the kernel, if it was given; no request names its frames.
    fn take_back(&self, grant: CapSlot);
    /// How often the usual time a service may take: more where others have it, too.
    const TIMEOUT_FACTOR: u64;
    /// Nobody will serve it any more: said in the session's words, by whoever places the service.
    fn is_given_up(&self) -> bool;
}

#[derive(Clone, Copy)]
struct Given {
    first: FrameNumber,
    count: u64,
}

struct Inner {
    client: Client,
    generation: u32,
    given: [Given; BUFFER_COUNT],
    given_count: usize,
    /// The one that was used last.
    last: usize,
    limits: DiskLimits,
    is_broken: bool,
    /// A domain was started and does not serve yet.
    starts_ns: Option<u64>,
    /// When something ended last, or the first of what is under way was put.
    progress_ns: u64,
    restarts_ns: [u64; RESTART_COUNT_MAX],
    restart_count: u64,
    has_said_end: bool,
}

/// A disk in a domain.
pub struct SessionDisk<P> {
    place: P,
    inner: SpinMutex<Inner>,
    /// For whoever looks without the lock.
    lost_count: AtomicU64,
    /// How often something was heard of it: its bell, or an end.
    heard_count: AtomicU64,
    /// [`Self::heard_count`] when it was told to ring and had nothing, and one: nothing has come since, so it still
    /// will. 0: it was not told.
    listening: AtomicU64,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

impl<P: DiskPlace> SessionDisk<P> {
    /// Starts a domain and waits until it serves, by `pause` again and again. `None`: there is none.
    pub fn open(place: P, log: Box<dyn Fn(&str) + Send + Sync>, pause: impl Fn()) -> Option<Self> {
        if place.is_given_up() {
            return None;
        }
        let mut generation = Client::generation_before(place.words()).wrapping_add(2);
        let mut client = Client::new(place.words(), SHAPE, generation)?;
        let begin_ns = place.now_ns();
        while !place.start() {
            let _ = place.end();
            // In the kernel the device is waited for by a number of looks, which a busy host can outlast.
            if !P::IS_CALLED || place.now_ns().saturating_sub(begin_ns) > START_NS {
                return None;
            }
            pause();
        }
        while client.state(place.words()) != State::Up {
            if place.is_stopped() || place.now_ns().saturating_sub(begin_ns) > START_NS * P::TIMEOUT_FACTOR {
                let _ = place.end();
                return None;
            }
            if place.is_given_up() {
                return None;
            }
            if Client::is_withdrawn(place.words()) {
                generation = generation.wrapping_add(2);
                client.restart(place.words(), generation);
                let _ = place.start();
            }
            pause();
        }
        let limits = limits_of(&client, place.words())?;
        let inner = Inner {
            client,
            generation,
            given: [Given { first: FrameNumber(0), count: 0 }; BUFFER_COUNT],
            given_count: 0,
            last: 0,
            limits,
            is_broken: false,
            starts_ns: None,
            progress_ns: 0,
            restarts_ns: [0; RESTART_COUNT_MAX],
            restart_count: 0,
            has_said_end: false,
        };
        let [lost_count, heard_count, listening] = [const { AtomicU64::new(0) }; 3];
        Some(Self { place, inner: SpinMutex::new(inner), lost_count, heard_count, listening, log })
    }

    /// Where it is.
    pub fn place(&self) -> &P {
        &self.place
    }

    /// Domains that were lost so far.
    pub fn lost_count(&self) -> u64 {
        self.lost_count.load(Ordering::Relaxed)
    }

    /// Whether the domain is lost: the kernel has stopped it, or it has told nothing for too long.
    fn is_lost(&self, inner: &mut Inner) -> bool {
        if !inner.is_broken && inner.starts_ns.is_none() {
            let is_hung = inner.client.under_way_count() > 0
                && self.place.now_ns().saturating_sub(inner.progress_ns) > STUCK_NS * P::TIMEOUT_FACTOR;
            let is_up = inner.client.state(self.place.words()) == State::Up;
            inner.is_broken = is_hung || !is_up || self.place.is_stopped();
        }
        inner.is_broken
    }

    /// Takes in that its bell has rung; whether there is something to do.
    pub fn hear(&self) -> bool {
        self.heard_count.fetch_add(1, Ordering::AcqRel);
        let Some(mut inner) = self.inner.try_lock() else { return true };
        // The bell that rang for an end may have rung for the domain's own too, and rings for that only once.
        let is_lost = self.is_lost(&mut inner);
        inner.starts_ns.is_some() || is_lost || inner.client.has_completed(self.place.words())
    }

    /// Has the other side ring when there is something, unless it was told so before and has not since. `true`: there
    /// is already.
    fn listen(&self) -> bool {
        let heard_count = self.heard_count.load(Ordering::Acquire);
        if self.listening.load(Ordering::Acquire) == heard_count + 1 {
            return false;
        }
        let is_there = self.place.listen();
        if !is_there {
            self.listening.store(heard_count + 1, Ordering::Release);
        }
        is_there
    }

    /// A grant goes back to the kernel, with these frames: they are of no buffer any more.
    pub fn forget(&self, grant: CapSlot, first: FrameNumber) {
        self.place.take_back(grant);
        let mut inner = self.inner.lock();
        let count = inner.given_count;
        inner.given[..count].iter_mut().filter(|given| given.first == first).for_each(|given| given.count = 0);
    }

    /// The buffer that a frame is in.
    fn buffer(&self, inner: &mut Inner, frame: FrameNumber) -> Result<usize, DiskSubmitError> {
        let holds = |given: &Given| (given.first.0..given.first.0 + given.count).contains(&frame.0);
        if holds(&inner.given[inner.last]) {
            return Ok(inner.last);
        }
        let known = inner.given[..inner.given_count].iter().position(holds);
        let number = match known {
            Some(number) => number,
            None => self.give(inner, frame)?,
        };
        inner.last = number;
        Ok(number)
    }

    #[cold]
    fn give(&self, inner: &mut Inner, frame: FrameNumber) -> Result<usize, DiskSubmitError> {
        let number = inner.given_count;
        if number == BUFFER_COUNT {
            // With nothing under way nobody waits for what is begun anew.
            inner.is_broken = inner.client.under_way_count() == 0;
            return Err(if inner.is_broken { DiskSubmitError::Broken } else { DiskSubmitError::Full });
        }
        let (first, count) = self.place.give(number, frame).ok_or(DiskSubmitError::Refused)?;
        inner.given[number] = Given { first, count };
        inner.given_count += 1;
        let buffer = Buffer { slot: number as u32, page_count: count as u32 };
        inner.client.set_buffer(self.place.words(), number, buffer);
        Ok(number)
    }

    /// A request's segments, cut where a grant ends; listed where they are many.
    fn segments(&self, inner: &mut Inner, tag: u16, pieces: &[FramePiece]) -> Result<Segments, DiskSubmitError> {
        let mut inline = [Segment::default(); INLINE_SEGMENT_COUNT];
        let mut count = 0;
        let most = usize::from(inner.limits.segment_count_max).min(SEGMENT_COUNT_MAX);
        for piece in pieces {
            let (mut frame, mut offset, mut left) = (piece.first, piece.offset_bytes, piece.length_bytes);
            while left > 0 {
                let number = self.buffer(inner, frame)?;
                let given = inner.given[number];
                let place = (frame.0 - given.first.0) * 4096 + u64::from(offset);
                let length = (given.count * 4096).saturating_sub(place).min(u64::from(left));
                if count == most || length == 0 {
                    return Err(DiskSubmitError::Refused);
                }
                let segment =
                    Segment { buffer: number as u16, offset_bytes: place as u32, length_bytes: length as u32 };
                match inline.get_mut(count) {
                    Some(into) => *into = segment,
                    None => self.list(inner, tag, &inline, count, segment)?,
                }
                count += 1;
                left -= length as u32;
                let end = u64::from(offset) + length;
                (frame, offset) = (FrameNumber(frame.0 + end / 4096), (end % 4096) as u32);
            }
        }
        let is_listed = count > INLINE_SEGMENT_COUNT;
        Ok(if is_listed { Segments::Listed(u32::from(tag), count) } else { Segments::Inline(inline, count) })
    }

    /// Puts a segment into the list of a tag; the first of them with those that were inline so far.
    fn list(
        &self,
        inner: &Inner,
        tag: u16,
        inline: &[Segment],
        number: usize,
        segment: Segment,
    ) -> Result<(), DiskSubmitError> {
        let set = |index, segment| inner.client.set_listed(self.place.words(), u32::from(tag), index, segment);
        let is_first = number == INLINE_SEGMENT_COUNT;
        let is_set = !is_first || inline.iter().enumerate().all(|(index, segment)| set(index, *segment));
        if is_set && set(number, segment) { Ok(()) } else { Err(DiskSubmitError::Refused) }
    }

    /// Whether there may be another domain: not too often in a time.
    fn may_restart(inner: &mut Inner, now_ns: u64) -> bool {
        let place = &mut inner.restarts_ns[inner.restart_count as usize % RESTART_COUNT_MAX];
        let may = *place == 0 || now_ns.saturating_sub(*place) > RESTART_WITHIN_NS;
        if may {
            *place = now_ns;
            inner.restart_count += 1;
        }
        may
    }

    /// Ends the domain and starts another.
    fn restart(&self, inner: &mut Inner) -> DiskReset {
        if !self.place.end() {
            return DiskReset::Lost;
        }
        self.lost_count.fetch_add(1, Ordering::Relaxed);
        let now_ns = self.place.now_ns();
        if !Self::may_restart(inner, now_ns) {
            return DiskReset::Failed;
        }
        self.begin(inner, now_ns)
    }

    /// Begins a session of the next generation.
    fn begin(&self, inner: &mut Inner, now_ns: u64) -> DiskReset {
        if self.place.is_given_up() {
            return DiskReset::Failed;
        }
        inner.given_count = 0;
        inner.last = 0;
        inner.given[0].count = 0;
        inner.generation = inner.generation.wrapping_add(2);
        inner.client.restart(self.place.words(), inner.generation);
        self.heard_count.fetch_add(1, Ordering::AcqRel);
        if !self.place.start() {
            return DiskReset::Failed;
        }
        inner.starts_ns = Some(now_ns);
        DiskReset::Pending
    }
}

impl<P: DiskPlace> Disk for SessionDisk<P> {
    fn watching(&self) -> Watching {
        if P::IS_CALLED { Watching::Costs } else { Watching::Hinders }
    }

    fn watch(&self) -> bool {
        if P::IS_CALLED && !self.has_completed() {
            self.place.ring();
        }
        self.has_completed()
    }

    fn limits(&self) -> DiskLimits {
        self.inner.lock().limits
    }

    fn submit(&self, request: &DiskRequest<'_>) -> Result<(), DiskSubmitError> {
        let mut inner = self.inner.lock();
        if inner.is_broken || inner.starts_ns.is_some() {
            return Err(DiskSubmitError::Broken);
        }
        if request.tag >= DEPTH {
            return Err(DiskSubmitError::Refused);
        }
        let segments = self.segments(&mut inner, request.tag, request.pieces)?;
        if inner.client.under_way_count() == 0 {
            inner.progress_ns = self.place.now_ns();
        }
        let own = Request {
            operation: operation_of(request.operation),
            extent: 0,
            first_sector: request.first_sector,
            sector_count: request.sector_count,
            segments,
            tag: u64::from(request.tag),
        };
        inner.client.submit(self.place.words(), &own).map_err(|error| match error {
            SubmitError::Full => DiskSubmitError::Full,
            SubmitError::Refused => DiskSubmitError::Refused,
            SubmitError::Broken => {
                inner.is_broken = true;
                DiskSubmitError::Broken
            }
        })
    }

    fn show(&self) -> Result<(), DiskBroken> {
        let mut inner = self.inner.lock();
        if inner.is_broken {
            return Err(DiskBroken);
        }
        let wants_bell = inner.client.publish(self.place.words());
        drop(inner);
        if wants_bell || P::IS_CALLED {
            self.place.ring();
        }
        Ok(())
    }

    fn has_completed(&self) -> bool {
        let Some(inner) = self.inner.try_lock() else { return false };
        inner.is_broken || inner.client.has_completed(self.place.words())
    }

    fn poll(&self, done: &mut dyn FnMut(u16, Result<(), DiskError>)) -> Result<(), DiskBroken> {
        let mut inner = self.inner.lock();
        let Inner { client, is_broken, .. } = &mut *inner;
        let polled = client.poll(self.place.words(), &mut |tag, outcome| done(tag as u16, result_of(outcome)));
        match polled {
            Ok(0) => {
                if self.is_lost(&mut inner) {
                    return Err(DiskBroken);
                }
            }
            Ok(_) => {
                self.heard_count.fetch_add(1, Ordering::AcqRel);
                inner.progress_ns = self.place.now_ns();
            }
            Err(_) => *is_broken = true,
        }
        if inner.is_broken { Err(DiskBroken) } else { Ok(()) }
    }

    fn ask_for_interrupt(&self) -> Result<bool, DiskBroken> {
        let mut inner = self.inner.lock();
        if inner.is_broken {
            return Err(DiskBroken);
        }
        let asked = inner.client.ask(self.place.words());
        inner.is_broken = asked.is_err();
        drop(inner);
        asked.map(|is_there| is_there || self.listen()).map_err(|_| DiskBroken)
    }

    fn reset(&self) -> DiskReset {
        let mut inner = self.inner.lock();
        let Some(begin_ns) = inner.starts_ns else {
            let outcome = self.restart(&mut inner);
            let count = inner.restart_count;
            let was_said = core::mem::replace(&mut inner.has_said_end, outcome != DiskReset::Pending);
            drop(inner);
            match outcome {
                DiskReset::Pending if count.is_power_of_two() || count.is_multiple_of(100) => {
                    (self.log)(&format!("the disk's driver was lost and is started anew ({count})"));
                }
                DiskReset::Lost if !was_said => {
                    (self.log)("the disk cannot be stopped: what was under way keeps its memory");
                }
                DiskReset::Failed if !was_said => {
                    (self.log)("the disk's driver was lost too often: there is no disk for now");
                }
                _ => {}
            }
            return outcome;
        };
        if inner.client.state(self.place.words()) == State::Up {
            inner.starts_ns = None;
            inner.is_broken = false;
            let Some(limits) = limits_of(&inner.client, self.place.words()) else { return DiskReset::Failed };
            inner.limits = limits;
            return DiskReset::Done;
        }
        if Client::is_withdrawn(self.place.words()) {
            return self.begin(&mut inner, begin_ns);
        }
        let is_late = self.place.now_ns().saturating_sub(begin_ns) > START_NS * P::TIMEOUT_FACTOR;
        if is_late || self.place.is_stopped() { self.restart(&mut inner) } else { DiskReset::Pending }
    }
}

fn operation_of(operation: DiskOperation) -> Operation {
    match operation {
        DiskOperation::Read => Operation::Read,
        DiskOperation::Write => Operation::Write,
        DiskOperation::Flush => Operation::Flush,
        DiskOperation::Discard => Operation::Discard,
        DiskOperation::WriteZeroes => Operation::WriteZeroes,
    }
}

fn result_of(outcome: Outcome) -> Result<(), DiskError> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Unsupported => Err(DiskError::Unsupported),
        Outcome::Input | Outcome::Refused => Err(DiskError::Input),
    }
}

/// Requests that are put at once. In front of a head that moves exos keeps the order, so there lie as few as keep the
/// disk busy: what it has, and as many again.
fn depth_of(said: &Description) -> u16 {
    match (said.is_rotational, u16::try_from(said.depth)) {
        (true, Ok(depth @ 1..)) => depth.saturating_mul(2).min(DEPTH),
        _ => DEPTH,
    }
}

/// What the domain says, within what exos can do with it. `None`: nothing.
fn limits_of(client: &Client, words: &[AtomicU64]) -> Option<DiskLimits> {
    let said = client.description(words);
    let Description { logical_block_bytes, physical_block_bytes, .. } = said;
    let extent = client.extent(words, 0);
    let range = |limit: Limit| RangeLimits {
        sector_count_max: limit.sector_count_max,
        alignment_sectors: limit.alignment_sectors.max(1),
    };
    let is_usable = logical_block_bytes.is_power_of_two()
        && (SECTOR_BYTES..=4096).contains(&logical_block_bytes)
        && said.segment_count_max > 0
        && said.segment_bytes_max >= 4096
        && said.sector_count_max >= 8;
    is_usable.then_some(DiskLimits {
        sector_count: extent.sector_count,
        logical_block_bytes,
        physical_block_bytes: physical_block_bytes.max(logical_block_bytes),
        segment_count_max: said.segment_count_max.min(SEGMENT_COUNT_MAX as u32) as u16,
        // What a segment of the session can say.
        segment_bytes_max: said.segment_bytes_max.min(1 << 23),
        sector_count_max: said.sector_count_max,
        depth: depth_of(&said),
        has_write_cache: said.has_write_cache,
        is_read_only: extent.rights & RIGHT_WRITE == 0,
        is_rotational: said.is_rotational,
        discard: said.discard.map(range),
        write_zeroes: said.write_zeroes.map(range),
    })
}

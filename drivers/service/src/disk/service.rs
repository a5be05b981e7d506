//! The service: what is under way, who is next, and what happens when the disk is lost.

use aegis_hal::block::{BlockDevice, BlockError, BlockLimits, BlockRequest, RangeLimits, SECTOR_BYTES, SubmitError};
use aegis_hal::net::Place;
use aegis_lottery::Random;
use aegis_proto::block::{
    Completion, Description, EXTENT_COUNT_MAX, Extent, INLINE_SEGMENT_COUNT, Limit, Offence, Operation, Outcome,
    Request, SEGMENT_COUNT_MAX, Segments, Session,
};

use super::Host;
use super::check::{BufferSet, Fault, first_sector, operation_of, places};
use super::client::{Client, ServedExtent};

/// Without a completion for so long, while requests are under way, the disk counts as hung.
pub const STUCK_NS: u64 = 2_000_000_000;
/// A disk that is reset more often than this [`RESTART_WITHIN_NS`] is dead.
pub const RESTART_COUNT_MAX: usize = 5;
/// See [`RESTART_COUNT_MAX`].
pub const RESTART_WITHIN_NS: u64 = 10_000_000_000;
/// Rounds of a visit that finds each time that the disk has ended something meanwhile.
const ROUND_COUNT_MAX: u32 = 4;
/// Bytes of transfer that a drawn client has.
const TURN_BYTES: u32 = 64 << 10;
/// What a flush counts for; a range that is discarded or set to zeros counts for a whole turn.
const PLAIN_BYTES: u32 = 4096;
/// Longest such range of clients whose requests are limited: 16 MiB.
const RANGE_SECTOR_COUNT_MAX: u32 = 32_768;

/// Why a client was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// There is no such place, or it is taken.
    Place,
    /// An extent is not on the disk.
    Extent,
    /// The memory is no session.
    Session(Offence),
}

/// How the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works, as far as anybody knows.
    Up,
    /// It did not come back, or was lost too often: nobody is served.
    Dead,
}

/// What a visit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Requests given to the disk.
    pub submitted_count: u32,
    /// Requests told to clients.
    pub completed_count: u32,
    /// There may be more to do already.
    pub has_more: bool,
}

/// A request that the disk has, under the number of its place.
#[derive(Clone, Copy, Debug)]
struct Flight {
    client: usize,
    position: u32,
    tag: u64,
    buffers: BufferSet,
}

/// The disk, its clients, and what is under way: at most `DEPTH` requests.
pub struct DiskService<D, H, const CLIENTS: usize, const DEPTH: usize> {
    device: D,
    host: H,
    limits: BlockLimits,
    /// What clients may ask for at once, if that is less than the disk's: of transfer, and of a range without memory.
    sector_counts_max: [u32; 2],
    clients: [Option<Client>; CLIENTS],
    /// The generation of each place's session that was taken last.
    taken: [Option<u32>; CLIENTS],
    flights: [Option<Flight>; DEPTH],
    /// Free places: the first `free_count`.
    free: [u16; DEPTH],
    free_count: usize,
    flight_count: usize,
    /// Whose turn it is, and for how many bytes.
    turn: (usize, u32),
    /// When something ended last, or the first of what is under way began.
    progress_ns: u64,
    restarts_ns: [Option<u64>; RESTART_COUNT_MAX],
    restart_count: u64,
    health: Health,
    has_unseen: bool,
    /// Somebody waits to be told by the disk, which was not asked to interrupt: it had nothing, or was reset since.
    is_ask_due: bool,
}

impl<D: BlockDevice, H: Host, const CLIENTS: usize, const DEPTH: usize> DiskService<D, H, CLIENTS, DEPTH> {
    /// A service without clients, on a disk that runs.
    #[must_use]
    pub fn new(device: D, host: H) -> Self {
        let limits = device.limits();
        let mut service = Self {
            device,
            host,
            limits,
            sector_counts_max: [u32::MAX; 2],
            clients: [const { None }; CLIENTS],
            taken: [None; CLIENTS],
            flights: [None; DEPTH],
            free: [0; DEPTH],
            free_count: 0,
            flight_count: 0,
            turn: (0, 0),
            progress_ns: 0,
            restarts_ns: [None; RESTART_COUNT_MAX],
            restart_count: 0,
            health: Health::Up,
            has_unseen: false,
            is_ask_due: false,
        };
        service.free_all();
        service
    }

    fn free_all(&mut self) {
        self.flights = [None; DEPTH];
        self.free_count = DEPTH.min(usize::from(self.limits.depth));
        for (number, place) in self.free.iter_mut().enumerate() {
            *place = number as u16;
        }
        self.flight_count = 0;
    }

    /// How the disk is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Resets so far.
    #[must_use]
    pub fn restart_count(&self) -> u64 {
        self.restart_count
    }

    /// Requests that the disk has.
    #[must_use]
    pub fn flight_count(&self) -> usize {
        self.flight_count
    }

    /// Has nobody ask for more than a turn at once, nor for ranges that keep the disk for long: for clients that do not
    /// trust each other. What was under way from before stays.
    pub fn limit_requests(&mut self) {
        self.sector_counts_max = [TURN_BYTES / SECTOR_BYTES, RANGE_SECTOR_COUNT_MAX];
        self.take_limits();
    }

    /// Asks the disk what it is, now that it was started or reset.
    fn take_limits(&mut self) {
        let [transfer, range] = self.sector_counts_max;
        let limited =
            |limits: RangeLimits| RangeLimits { sector_count_max: limits.sector_count_max.min(range), ..limits };
        self.limits = self.device.limits();
        self.limits.sector_count_max = self.limits.sector_count_max.min(transfer);
        self.limits.discard = self.limits.discard.map(limited);
        self.limits.write_zeroes = self.limits.write_zeroes.map(limited);
    }

    /// The disk.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// What it is placed in.
    pub fn host(&mut self) -> &mut H {
        &mut self.host
    }

    /// The disk's size.
    #[must_use]
    pub fn sector_count(&self) -> u64 {
        self.limits.sector_count
    }

    /// Takes a client with its session ([`Host::words`]), its extents and its tickets; what is under way in it begins.
    ///
    /// # Errors
    /// [`AttachError`]; nothing changed then.
    pub fn attach(&mut self, index: usize, extents: &[ServedExtent], tickets: u32) -> Result<(), AttachError> {
        let place = self.clients.get_mut(index).filter(|place| place.is_none()).ok_or(AttachError::Place)?;
        let is_on_disk = |served: &ServedExtent| {
            let end = served.first_sector.checked_add(served.extent.sector_count);
            end.is_some_and(|end| end <= self.limits.sector_count)
        };
        if extents.len() > EXTENT_COUNT_MAX || !extents.iter().all(is_on_disk) {
            return Err(AttachError::Extent);
        }
        let words = self.host.words(index);
        let session = Session::attach(words).map_err(AttachError::Session)?;
        let mut shown = [Extent::default(); EXTENT_COUNT_MAX];
        shown.iter_mut().zip(extents).for_each(|(place, served)| *place = served.extent);
        session.announce(words, &description_of(&self.limits), &shown);
        self.taken[index] = Some(session.generation());
        *place = Some(Client::new(session, extents, tickets.max(1)));
        self.host.wake(index);
        Ok(())
    }

    /// Whether a client offers a session of another generation than was taken, or none any more: [`Self::adopt`] is
    /// due.
    #[must_use]
    pub fn is_adoption_due(&self, index: usize) -> bool {
        let taken = self.taken.get(index).filter(|_| self.health == Health::Up);
        taken.is_some_and(|taken| Session::offered(self.host.words(index)) != *taken)
    }

    /// Takes a client that offers its session by itself ([`Self::attach`] says with what), whenever it begins one of
    /// another generation than was taken before: the one before ends, and the next begins when the disk is done with
    /// that. A session that cannot be taken is looked at again with its next generation. Whether one was taken.
    pub fn adopt(&mut self, index: usize, extents: &[ServedExtent], tickets: u32) -> bool {
        if !self.is_adoption_due(index) {
            return false;
        }
        self.end(index);
        let offered = Session::offered(self.host.words(index));
        let (Some(generation), None) = (offered, &self.clients[index]) else { return false };
        let is_taken = self.attach(index, extents, tickets).is_ok();
        if !is_taken {
            self.taken[index] = Some(generation);
        }
        is_taken
    }

    /// Lets a client go whose memory goes: its session ends. [`Host::release`] says when the disk is done with it.
    pub fn detach(&mut self, index: usize) {
        self.end(index);
    }

    /// Makes a disk that was given up one that works, once it has come back from a reset. Clients whose session has
    /// ended are let go, as their memory is not reached any more.
    ///
    /// Whoever asks for that again and again has it again and again: how often is for the placement to bound.
    ///
    /// # Errors
    /// It does not come back, and is as it was.
    pub fn revive(&mut self) -> Result<(), D::Error> {
        self.device.reset()?;
        self.take_limits();
        if self.health == Health::Dead {
            // Nothing is under way: all sessions have ended.
            self.free_all();
            self.restarts_ns = [None; RESTART_COUNT_MAX];
            self.health = Health::Up;
        }
        (0..CLIENTS).for_each(|index| self.release_if_done(index));
        Ok(())
    }

    /// Does everything that can be done now: takes what the disk has done, and gives it what clients want, in turns
    /// that `random` decides. Where somebody was promised to be told ([`Self::ask`]) while the disk had nothing, it is
    /// asked to interrupt with what it is given here.
    pub fn visit(&mut self, now_ns: u64, random: &mut impl Random) -> Visit {
        let mut visit = Visit::default();
        for round in 1..=ROUND_COUNT_MAX {
            if self.flight_count > 0 {
                self.poll(now_ns, &mut visit);
            }
            self.look(&mut visit);
            let submitted_count = visit.submitted_count;
            self.take_turns(now_ns, random, &mut visit);
            if visit.submitted_count > submitted_count && self.device.notify().is_err() {
                self.restart(now_ns);
            }
            if !self.is_ask_due || self.ask_disk(now_ns) != Asked::HasNews {
                break;
            }
            visit.has_more |= round == ROUND_COUNT_MAX;
        }
        self.publish();
        visit
    }

    /// Asks the disk to interrupt, if it has anything.
    fn ask_disk(&mut self, now_ns: u64) -> Asked {
        self.is_ask_due = true;
        if self.flight_count == 0 || self.health != Health::Up {
            return Asked::Later;
        }
        match self.device.ask_for_interrupt() {
            Ok(true) => Asked::HasNews,
            Ok(false) => {
                self.is_ask_due = false;
                Asked::Now
            }
            Err(_) => {
                self.restart(now_ns);
                Asked::HasNews
            }
        }
    }

    /// Asks the disk and all clients to be heard of. `true`: somebody has something already.
    pub fn ask(&mut self, now_ns: u64) -> bool {
        let mut has_more = core::mem::take(&mut self.has_unseen);
        for index in 0..CLIENTS {
            let Some(client) = self.clients[index].as_mut().filter(|client| !client.has_ended) else { continue };
            // A client that waits for the disk's room is heard when the disk is.
            match client.session.ask(self.host.words(index)) {
                Ok(is_there) => has_more |= is_there && client.waiting.is_none(),
                Err(_) => self.end(index),
            }
        }
        has_more | (self.ask_disk(now_ns) == Asked::HasNews)
    }

    /// Whether the disk has done something.
    #[must_use]
    pub fn has_completed(&self) -> bool {
        self.flight_count > 0 && self.device.has_completed()
    }

    /// Whether somebody has something: a look at memory for each.
    #[must_use]
    pub fn has_any(&self) -> bool {
        let has_request = |(index, client): (usize, &Option<Client>)| {
            let client = client.as_ref().filter(|client| !client.has_ended && client.waiting.is_none());
            client.is_some_and(|client| client.session.has_any(self.host.words(index)))
        };
        self.has_completed() || self.clients.iter().enumerate().any(has_request)
    }

    /// When the disk counts as hung, if something is under way: [`Self::watch`] is due then.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        (self.flight_count > 0).then(|| self.progress_ns.saturating_add(STUCK_NS))
    }

    /// Begins again what was under way, on a disk that its placement has cut off meanwhile: no fault of the disk's, so
    /// it does not count as one.
    pub fn resume(&mut self, now_ns: u64) {
        if self.health == Health::Dead {
            return;
        }
        let is_back = self.device.reset().is_ok();
        self.take_limits();
        (self.progress_ns, self.is_ask_due) = (now_ns, true);
        if !is_back || !self.begin_again(now_ns) {
            self.restart(now_ns);
        }
    }

    /// Resets a disk that hangs.
    pub fn watch(&mut self, now_ns: u64) {
        if self.deadline_ns().is_some_and(|deadline_ns| now_ns >= deadline_ns) {
            self.restart(now_ns);
        }
    }

    /// Takes what the disk has done.
    fn poll(&mut self, now_ns: u64, visit: &mut Visit) {
        let Self { device, host, clients, flights, free, free_count, flight_count, .. } = self;
        let mut ended = 0;
        let mut offenders = [false; CLIENTS];
        let result = device.poll(host, &mut |tag, outcome| {
            let Some(flight) = flights.get_mut(usize::from(tag)).and_then(Option::take) else { return };
            free[*free_count] = tag;
            *free_count += 1;
            *flight_count -= 1;
            ended += 1;
            let Some(client) = clients[flight.client].as_mut() else { return };
            client.flight_count -= 1;
            if !client.has_ended {
                offenders[flight.client] |= !tell(client, host, flight.client, &flight, outcome_of(outcome));
            }
        });
        if ended > 0 {
            visit.completed_count += ended;
            self.progress_ns = now_ns;
        }
        for (index, is_offender) in offenders.into_iter().enumerate() {
            if is_offender {
                self.end(index);
            }
            self.release_if_done(index);
        }
        if result.is_err() {
            self.restart(now_ns);
        }
    }

    /// Looks what each client has put.
    fn look(&mut self, visit: &mut Visit) {
        for index in 0..CLIENTS {
            let Some(client) = self.clients[index].as_mut().filter(|client| !client.has_ended) else { continue };
            match client.session.visit(self.host.words(index)) {
                Ok(count) => {
                    client.seen_count = count;
                    // One that waits for the disk's room is heard when the disk is.
                    visit.has_more |= count >= aegis_proto::VISIT_SLOT_COUNT_MAX && client.waiting.is_none();
                }
                Err(_) => self.end(index),
            }
        }
        self.has_unseen = visit.has_more;
    }

    /// Who is next: who has something left of a turn, or who wins a draw by tickets.
    fn draw(&mut self, random: &mut impl Random) -> Option<usize> {
        let wants =
            |client: &Option<Client>| client.as_ref().filter(|client| client.wants()).map(|client| client.tickets);
        let (last, left_bytes) = self.turn;
        if left_bytes > 0 && self.clients.get(last).and_then(wants).is_some() {
            return Some(last);
        }
        let wanting = self.clients.iter().enumerate().filter_map(|(index, client)| Some((index, wants(client)?)));
        let sum: u64 = wanting.clone().map(|(_, tickets)| u64::from(tickets)).sum();
        let mut alone = wanting.clone();
        let first = alone.next()?.0;
        let winner = if alone.next().is_none() {
            first
        } else {
            let mut number = random.below(sum);
            let is_it = |(_, tickets): &(usize, u32)| {
                let is_it = number < u64::from(*tickets);
                number = number.saturating_sub(u64::from(*tickets));
                is_it
            };
            wanting.clone().find(is_it).map_or(first, |(index, _)| index)
        };
        self.turn = (winner, TURN_BYTES);
        Some(winner)
    }

    fn take_turns(&mut self, now_ns: u64, random: &mut impl Random, visit: &mut Visit) {
        while let Some(index) = self.draw(random) {
            let Some(client) = &mut self.clients[index] else { break };
            let taken = match client.waiting.take() {
                Some(taken) => Ok(Some(taken)),
                None => {
                    client.seen_count -= 1;
                    client.session.take(self.host.words(index))
                }
            };
            let (position, request) = match taken {
                Ok(Some(taken)) => taken,
                Ok(None) => continue,
                Err(_) => {
                    self.end(index);
                    continue;
                }
            };
            let bytes = match request.operation {
                Operation::Read | Operation::Write => request.sector_count.saturating_mul(SECTOR_BYTES),
                Operation::Discard | Operation::WriteZeroes => TURN_BYTES,
                Operation::Flush | Operation::Forget => PLAIN_BYTES,
            };
            match self.begin(index, position, &request, now_ns, None) {
                Begun::Given => {
                    visit.submitted_count += 1;
                    self.turn.1 = self.turn.1.saturating_sub(bytes);
                }
                Begun::Ended => self.turn.1 = self.turn.1.saturating_sub(PLAIN_BYTES),
                Begun::Full => {
                    if let Some(client) = &mut self.clients[index] {
                        client.waiting = Some((position, request));
                    }
                    return;
                }
                Begun::Broken => {
                    if let Some(client) = &mut self.clients[index] {
                        client.waiting = Some((position, request));
                    }
                    self.restart(now_ns);
                }
            }
        }
    }

    /// Gives a request to the disk, at a place of its own or at the one that it had.
    fn begin(&mut self, index: usize, position: u32, request: &Request, now_ns: u64, held: Option<u16>) -> Begun {
        let result = match request.segments {
            _ if request.operation == Operation::Forget => self.forget(index, request).map_err(Refusal::Fault),
            Segments::Inline(segments, count) if count <= INLINE_SEGMENT_COUNT => {
                let mut pieces = [NOWHERE; INLINE_SEGMENT_COUNT];
                self.submit(index, request, &mut pieces[..count], held, |_, _, number| Ok(segments[number]))
            }
            Segments::Listed(page, count) if count <= SEGMENT_COUNT_MAX => {
                let mut pieces = [NOWHERE; SEGMENT_COUNT_MAX];
                self.submit(index, request, &mut pieces[..count], held, |client, host, number| {
                    client.session.listed(host.words(index), page, number)
                })
            }
            _ => Err(Refusal::Fault(Fault::Offence(Offence::Slot))),
        };
        let flight = |buffers| Flight { client: index, position, tag: request.tag, buffers };
        match result {
            Ok((place, buffers)) => {
                self.note(flight(buffers), place, now_ns, held.is_some());
                Begun::Given
            }
            Err(Refusal::Full) => Begun::Full,
            Err(Refusal::Broken) => Begun::Broken,
            Err(Refusal::Fault(Fault::Answer(outcome))) => {
                let client = self.clients[index].as_mut();
                if client.is_some_and(|client| !tell(client, &self.host, index, &flight([0; 4]), outcome)) {
                    self.end(index);
                }
                Begun::Ended
            }
            Err(Refusal::Fault(Fault::Offence(_))) => {
                self.end(index);
                Begun::Ended
            }
        }
    }

    fn note(&mut self, flight: Flight, place: u16, now_ns: u64, is_held: bool) {
        if self.flight_count == 0 {
            self.progress_ns = now_ns;
        }
        if !is_held {
            self.free_count -= 1;
            self.flight_count += 1;
            if let Some(client) = &mut self.clients[flight.client] {
                client.flight_count += 1;
            }
        }
        self.flights[usize::from(place)] = Some(flight);
    }

    fn submit(
        &mut self,
        index: usize,
        request: &Request,
        pieces: &mut [Place],
        held: Option<u16>,
        segment: impl Fn(&Client, &H, usize) -> Result<aegis_proto::block::Segment, Offence>,
    ) -> Result<(u16, BufferSet), Refusal> {
        let Self { device, host, limits, clients, free, free_count, flight_count, .. } = self;
        let is_idle = *flight_count == 0;
        let client = clients.get_mut(index).and_then(Option::as_mut).ok_or(Fault::Offence(Offence::Slot))?;
        if held.is_none() && client.flight_count >= client.session.depth() {
            return Err(Fault::Offence(Offence::Depth).into());
        }
        let place = match held {
            Some(place) => place,
            None => *free[..*free_count].last().ok_or(Refusal::Full)?,
        };
        let first_sector = first_sector(client, request, limits)?;
        let has_memory = request.operation.has_memory();
        if has_memory == pieces.is_empty() || pieces.len() > usize::from(limits.segment_count_max) {
            return Err(Fault::Answer(Outcome::Refused).into());
        }
        let buffers = if has_memory { places(host, index, client, request, pieces, segment)? } else { [0; 4] };
        let asked = BlockRequest {
            tag: place,
            queue: 0,
            operation: operation_of(request.operation),
            first_sector,
            sector_count: if request.operation == Operation::Flush { 0 } else { request.sector_count },
            pieces,
        };
        match device.submit(&asked, host) {
            Ok(()) => Ok((place, buffers)),
            // A disk without room that has nothing does not tell when there is some.
            Err(SubmitError::Full) if is_idle => Err(Refusal::Broken),
            Err(SubmitError::Full) => Err(Refusal::Full),
            Err(SubmitError::Request) => Err(Fault::Answer(Outcome::Refused).into()),
            Err(SubmitError::Broken(_)) => Err(Refusal::Broken),
        }
    }

    /// Lets a buffer go that nothing under way names; what was never bound is not there either. Never `Ok`: the answer
    /// is the fault.
    fn forget(&mut self, index: usize, request: &Request) -> Result<(u16, BufferSet), Fault> {
        let number = usize::try_from(request.first_sector).unwrap_or(usize::MAX);
        let names = |flight: &Flight| flight.client == index && flight.buffers[number / 64] & 1 << (number % 64) != 0;
        let client = self.clients[index].as_mut().ok_or(Fault::Offence(Offence::Slot))?;
        let place = client.buffers.get_mut(number).ok_or(Fault::Offence(Offence::Buffer))?;
        if self.flights.iter().flatten().any(names) {
            return Err(Fault::Answer(Outcome::Refused));
        }
        if let Some(bound) = place.take() {
            self.host.unbind(index, bound.buffer, bound.first_offset);
        }
        Err(Fault::Answer(Outcome::Done))
    }

    /// Ends a client's session.
    fn end(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index).and_then(Option::as_mut) else { return };
        if !client.has_ended {
            client.has_ended = true;
            client.waiting = None;
            client.seen_count = 0;
            client.session.end(self.host.words(index));
            self.host.wake(index);
        }
        self.release_if_done(index);
    }

    /// Lets a client go whose session has ended, when nothing of it is under way. A dead disk may still reach memory.
    fn release_if_done(&mut self, index: usize) {
        if self.health == Health::Dead {
            return;
        }
        let place = &mut self.clients[index];
        let Some(client) = place.take_if(|client| client.has_ended && client.flight_count == 0) else { return };
        for bound in client.buffers.into_iter().flatten() {
            self.host.unbind(index, bound.buffer, bound.first_offset);
        }
        self.host.release(index);
    }

    /// Shows clients what was done, and wakes those that want it.
    fn publish(&mut self) {
        for index in 0..CLIENTS {
            let Some(client) = self.clients[index].as_mut().filter(|client| !client.has_ended) else { continue };
            if client.session.publish(self.host.words(index)) {
                self.host.wake(index);
            }
        }
    }

    /// Resets the disk and begins again what was under way; a disk that does not come back, or too often, is dead.
    fn restart(&mut self, now_ns: u64) {
        for _ in 0..=RESTART_COUNT_MAX {
            if self.health == Health::Dead {
                break;
            }
            let within =
                |at_ns: &&mut Option<u64>| at_ns.is_none_or(|at_ns| now_ns - at_ns.min(now_ns) > RESTART_WITHIN_NS);
            let Some(place) = self.restarts_ns.iter_mut().find(within) else { break };
            *place = Some(now_ns);
            self.restart_count += 1;
            if self.device.reset().is_err() {
                break;
            }
            self.take_limits();
            self.progress_ns = now_ns;
            self.is_ask_due = true;
            if self.begin_again(now_ns) {
                return;
            }
        }
        self.health = Health::Dead;
        self.give_up();
    }

    /// Gives the disk again what it had. False: it is broken again.
    fn begin_again(&mut self, now_ns: u64) -> bool {
        for place in 0..DEPTH {
            let Some(flight) = self.flights[place] else { continue };
            let index = flight.client;
            let client = self.clients[index].as_ref().filter(|client| !client.has_ended);
            let request = client.map(|client| client.session.retake(self.host.words(index), flight.position));
            let begun = match request {
                Some(Ok(request)) if request.tag == flight.tag => {
                    self.begin(index, flight.position, &request, now_ns, Some(place as u16))
                }
                Some(_) => {
                    self.end(index);
                    Begun::Ended
                }
                None => Begun::Ended,
            };
            match begun {
                Begun::Given => {}
                Begun::Ended => {
                    self.drop_flight(place);
                }
                // A disk that takes less than it did is none of the same.
                Begun::Full | Begun::Broken => return false,
            }
        }
        self.device.notify().is_ok()
    }

    fn drop_flight(&mut self, place: usize) -> Option<Flight> {
        let flight = self.flights[place].take()?;
        self.free[self.free_count] = place as u16;
        self.free_count += 1;
        self.flight_count -= 1;
        if let Some(client) = &mut self.clients[flight.client] {
            client.flight_count -= 1;
        }
        self.release_if_done(flight.client);
        Some(flight)
    }

    /// Ends all sessions: clients have what was under way (BQ-2) and begin again with whoever serves them next. Whoever
    /// placed the service cuts the device off before memory is used again.
    fn give_up(&mut self) {
        for place in 0..DEPTH {
            self.drop_flight(place);
        }
        (0..CLIENTS).for_each(|index| self.end(index));
    }
}

/// What became of asking the disk to interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Now,
    /// With what it is given next.
    Later,
    /// There is something already.
    HasNews,
}

/// What became of giving a request to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    Given,
    /// It was answered, or its client's session has ended.
    Ended,
    Full,
    Broken,
}

enum Refusal {
    Fault(Fault),
    Full,
    Broken,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

const NOWHERE: Place = Place { offset: 0, length_bytes: 0 };

fn outcome_of(result: Result<(), BlockError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(BlockError::Input) => Outcome::Input,
        Err(BlockError::Unsupported) => Outcome::Unsupported,
    }
}

/// Tells a client of a request's end. False: that is an offence of its own.
fn tell(client: &mut Client, host: &impl Host, index: usize, flight: &Flight, outcome: Outcome) -> bool {
    let completion = Completion { position: flight.position, tag: flight.tag, outcome };
    client.session.complete(host.words(index), completion).is_ok()
}

fn description_of(limits: &BlockLimits) -> Description {
    let limit = |limits: RangeLimits| Limit {
        sector_count_max: limits.sector_count_max,
        alignment_sectors: limits.alignment_sectors,
    };
    Description {
        logical_block_bytes: limits.logical_block_bytes,
        physical_block_bytes: limits.physical_block_bytes,
        segment_count_max: u32::from(limits.segment_count_max).min(SEGMENT_COUNT_MAX as u32),
        segment_bytes_max: limits.segment_bytes_max,
        sector_count_max: limits.sector_count_max,
        has_write_cache: limits.has_write_cache,
        is_rotational: limits.is_rotational,
        depth: u32::from(limits.depth),
        discard: limits.discard.map(limit),
        write_zeroes: limits.write_zeroes.map(limit),
    }
}

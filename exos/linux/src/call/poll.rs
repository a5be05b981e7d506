//! Waiting for any of several descriptors: `poll` and `select` in all their forms.
//!
//! Each looks at all its descriptors, and if none is ready waits for something to change and looks again. What a
//! program passes in is copied once before the first look, and answers are written once at the end.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::{Readiness, Registration, UNASKED_COUNT, WaitQueue};
use exos::preempt::Pace;
use exos::reserve;

use super::signal::install_optional_mask;
use crate::abi::bytes::get;
use crate::abi::linux::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDNORM, POLLWRNORM};
use crate::abi::poll::events_of;
use crate::abi::time::{read_timespec, timespec, timeval};
use crate::abi::user_memory::{read_array, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::caller::Restart;

entries! {
    poll(PollSet(1), Size, Int);
    ppoll(PollSet(1), Size, TimeIn, SignalSetIn, Size);
    select(Int, Pointer, Pointer, Pointer, Pointer);
    pselect6(Int, Pointer, Pointer, Pointer, TimeIn, Pointer);
}

const MILLISECOND_NS: u64 = 1_000_000;

/// What is waited for: descriptions that are looked at together.
trait Watched {
    /// How many are ready.
    fn look(&mut self) -> u64;
    /// The queues that tell when that may have changed.
    fn queues(&self) -> Result<Vec<Arc<WaitQueue>>>;
}

/// Places in the queues of all that is waited for. They are left from the last one on: many may be in one queue, and
/// leaving its end costs no search.
struct Registrations(Vec<Registration>);

impl Drop for Registrations {
    fn drop(&mut self) {
        let mut pace = Pace::default();
        while self.0.pop().is_some() {
            pace.offer();
        }
    }
}

/// Looks at `watched` until any is ready, or until `deadline_ns`. As on Linux, what is ready counts before a signal
/// does, and that before the time.
fn until_any(context: &mut Context<'_>, deadline_ns: Option<u64>, watched: &mut dyn Watched) -> Result<u64> {
    let mut watching: Option<Registrations> = None;
    let mut has_looked = false;
    loop {
        let count = watched.look();
        if count > 0 {
            return Ok(count);
        }
        if context.has_signal() {
            return Err(Errno::EINTR);
        }
        if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            if watching.is_none() && !has_looked && context.system.platform.look() {
                has_looked = true;
                continue;
            }
            return Ok(0);
        }
        if watching.is_some() {
            // A signal is seen after the next look.
            let _ = context.wait(deadline_ns);
        } else {
            // What changes before this is found by the next look.
            let (queues, mut pace) = (watched.queues()?, Pace::default());
            let mut registrations = Registrations(room_for(queues.len())?);
            for queue in &queues {
                pace.offer();
                if registrations.0.len() >= UNASKED_COUNT {
                    reserve::check()?;
                }
                registrations.0.push(context.watch(queue, Readiness::EVENTS));
            }
            watching = Some(registrations);
        }
    }
}

/// Puts the caller's signal mask back, unless a signal interrupted the call and will be delivered under the mask it
/// was given.
pub(crate) fn restore_mask(context: &Context<'_>, outcome: &Result<u64>) {
    if *outcome == Err(Errno::EINTR) {
        return;
    }
    let saved = context.thread.signals.lock().saved_mask.take();
    if let Some(mask) = saved {
        context.thread.set_mask(context.process, mask);
    }
}

/// Descriptors that are looked at between two points, and by one look at the table.
const PIECE_COUNT: usize = 64;

/// Room for what is kept of so many descriptors; a few can always be waited for. `ENOMEM`.
fn room_for<T>(count: usize) -> Result<Vec<T>> {
    if count <= PIECE_COUNT { Ok(Vec::with_capacity(count)) } else { reserve::vector(count) }
}

/// What is left until `deadline_ns`.
fn left_ns(context: &Context<'_>, deadline_ns: u64) -> u64 {
    deadline_ns.saturating_sub(context.now_ns())
}

struct Polled {
    /// `None` for negative descriptors; they are passed over.
    target: Option<Result<Arc<Description>>>,
    events: u32,
    found: u32,
}

impl Polled {
    fn look(&mut self) -> bool {
        self.found = match &self.target {
            None => 0,
            Some(Err(_)) => POLLNVAL,
            Some(Ok(description)) => events_of(description.readiness()) & (self.events | POLLERR | POLLHUP),
        };
        self.found != 0
    }
}

impl Watched for Vec<Polled> {
    fn look(&mut self) -> u64 {
        let mut pace = Pace::default();
        let mut count = 0;
        for piece in self.chunks_mut(PIECE_COUNT) {
            pace.offer_after(piece.len());
            count += piece.iter_mut().map(|entry| u64::from(entry.look())).sum::<u64>();
        }
        count
    }

    fn queues(&self) -> Result<Vec<Arc<WaitQueue>>> {
        let descriptions = self.iter().filter_map(|entry| entry.target.as_ref()?.as_ref().ok());
        gathered(self.len(), descriptions.filter_map(|description| description.wait_queue()))
    }
}

/// Queues, as many as `count_max`. `ENOMEM`.
fn gathered<'a>(count_max: usize, queues: impl Iterator<Item = &'a Arc<WaitQueue>>) -> Result<Vec<Arc<WaitQueue>>> {
    let mut gathered = room_for(count_max)?;
    gathered.extend(queues.take(count_max).cloned());
    Ok(gathered)
}

/// The description that is polled; `O_PATH` descriptors cannot be.
fn polled(context: &Context<'_>, descriptor: u64) -> Result<Arc<Description>> {
    pollable(context.process.files.get(descriptor))
}

#[inline]
fn pollable(description: Result<Arc<Description>>) -> Result<Arc<Description>> {
    description.and_then(|description| if description.is_path_only() { Err(Errno::EBADF) } else { Ok(description) })
}

fn poll_until(context: &mut Context<'_>, address: u64, count: u64, deadline_ns: Option<u64>) -> Result<u64> {
    const ENTRY_BYTES: usize = 8;
    let limit = context.process.files.descriptor_limit() as usize;
    let count = u64::from(count as u32);
    if count > limit as u64 {
        return Err(Errno::EINVAL);
    }
    let bytes = count * ENTRY_BYTES as u64;
    let mut bytes = read_vec(context.memory, address, bytes, limit * ENTRY_BYTES)?;
    let mut pace = Pace::default();
    let mut entries: Vec<Polled> = room_for(count as usize)?;
    for piece in bytes.chunks(PIECE_COUNT * ENTRY_BYTES) {
        pace.offer_after(PIECE_COUNT);
        context.process.files.with_table(|table| {
            let read = |entry: &[u8]| {
                let descriptor = get::i32(entry, 0);
                Polled {
                    target: (descriptor >= 0).then(|| pollable(table.get(descriptor as u32))),
                    events: u32::from(get::u16(entry, 4)),
                    found: 0,
                }
            };
            entries.extend(piece.chunks_exact(ENTRY_BYTES).map(read));
        });
    }
    let outcome = until_any(context, deadline_ns, &mut entries);
    if outcome.is_ok() {
        for (bytes, entry) in bytes.chunks_exact_mut(ENTRY_BYTES).zip(&entries) {
            bytes[6..].copy_from_slice(&(entry.found as u16).to_le_bytes());
        }
        write_all(context.memory, address, &bytes)?;
    }
    outcome
}

/// `poll(2)`.
pub fn poll(context: &mut Context<'_>, [address, count, timeout_ms, ..]: Arguments) -> Result<u64> {
    context.restart = Restart::UnlessHandler;
    let deadline_ns =
        u64::try_from(timeout_ms as i32).ok().map(|timeout_ms| context.deadline_after(timeout_ms * MILLISECOND_NS));
    poll_until(context, address, count, deadline_ns)
}

/// `ppoll(2)`: what is left of the time is written back.
pub fn ppoll(context: &mut Context<'_>, [address, count, timeout, mask, mask_size, _]: Arguments) -> Result<u64> {
    context.restart = Restart::UnlessHandler;
    let deadline_ns = read_deadline(context, timeout)?;
    install_optional_mask(context, mask, mask_size)?;
    let outcome = poll_until(context, address, count, deadline_ns);
    if let Some(deadline_ns) = deadline_ns {
        // As on Linux, memory that cannot be written changes nothing.
        let _ = write_all(context.memory, timeout, &timespec(left_ns(context, deadline_ns)));
    }
    restore_mask(context, &outcome);
    outcome
}

/// The deadline of an optional relative `timespec`.
pub(crate) fn read_deadline(context: &Context<'_>, address: u64) -> Result<Option<u64>> {
    if address == 0 {
        return Ok(None);
    }
    let timeout_ns = read_timespec(context.memory, address)?;
    Ok(Some(context.now_ns().saturating_add(timeout_ns)))
}

/// The three sets of `select`: what each asks for, and which events count as that.
const SETS: [(u32, u32); 3] =
    [(POLLIN, POLLIN | POLLRDNORM | POLLHUP | POLLERR), (POLLOUT, POLLOUT | POLLWRNORM | POLLERR), (POLLPRI, POLLPRI)];

/// One descriptor in one set.
struct Selected {
    set: usize,
    number: usize,
    description: Arc<Description>,
    is_ready: bool,
}

impl Watched for Vec<Selected> {
    fn look(&mut self) -> u64 {
        let mut pace = Pace::default();
        for entry in self.iter_mut() {
            pace.offer();
            entry.is_ready = events_of(entry.description.readiness()) & SETS[entry.set].1 != 0;
        }
        self.iter().filter(|entry| entry.is_ready).count() as u64
    }

    fn queues(&self) -> Result<Vec<Arc<WaitQueue>>> {
        gathered(self.len(), self.iter().filter_map(|entry| entry.description.wait_queue()))
    }
}

fn select_until(context: &mut Context<'_>, count: u64, addresses: [u64; 3], deadline_ns: Option<u64>) -> Result<u64> {
    let count = usize::try_from(count as i32).map_err(|_| Errno::EINVAL)?;
    // As on Linux, what is beyond the table is not looked at.
    let count = count.min(context.process.files.table().size().next_multiple_of(64).max(64));
    let byte_count = count.div_ceil(64) * 8;
    let (mut selected, mut pace) = (Vec::new(), Pace::default());
    let mut sets: [Vec<u8>; 3] = Default::default();
    for (set, address) in addresses.into_iter().enumerate().filter(|(_, address)| *address != 0) {
        sets[set] = read_vec(context.memory, address, byte_count as u64, byte_count)?;
    }
    for (set, bits) in sets.iter().enumerate() {
        for number in (0..count).filter(|number| is_set(bits, *number)) {
            let description = polled(context, number as u64)?;
            pace.offer();
            if selected.len() >= PIECE_COUNT {
                reserve::reserve(&mut selected, 1)?;
            }
            selected.push(Selected { set, number, description, is_ready: false });
        }
    }
    let outcome = until_any(context, deadline_ns, &mut selected);
    if outcome.is_ok() {
        for (set, address) in addresses.into_iter().enumerate().filter(|(_, address)| *address != 0) {
            let mut bits = alloc::vec![0; byte_count];
            for entry in selected.iter().filter(|entry| entry.set == set && entry.is_ready) {
                bits[entry.number / 8] |= 1 << (entry.number % 8);
            }
            write_all(context.memory, address, &bits)?;
        }
    }
    outcome
}

fn is_set(bits: &[u8], number: usize) -> bool {
    bits.get(number / 8).is_some_and(|byte| byte & (1 << (number % 8)) != 0)
}

/// `select(2)`: what is left of the time is written back, as Linux does.
pub fn select(
    context: &mut Context<'_>,
    [count, readable, writable, exceptional, timeout, _]: Arguments,
) -> Result<u64> {
    context.restart = Restart::UnlessHandler;
    let deadline_ns = if timeout == 0 {
        None
    } else {
        let bytes: [u8; 16] = read_array(context.memory, timeout)?;
        let (Ok(seconds), Ok(microseconds)) = (u64::try_from(get::i64(&bytes, 0)), u64::try_from(get::i64(&bytes, 8)))
        else {
            return Err(Errno::EINVAL);
        };
        let timeout_ns = seconds.saturating_mul(1_000_000_000).saturating_add(microseconds.saturating_mul(1000));
        Some(context.now_ns().saturating_add(timeout_ns))
    };
    let outcome = select_until(context, count, [readable, writable, exceptional], deadline_ns);
    if let Some(deadline_ns) = deadline_ns {
        let _ = write_all(context.memory, timeout, &timeval(left_ns(context, deadline_ns)));
    }
    outcome
}

/// `pselect6(2)`: the last argument points at the mask's address and size.
pub fn pselect6(
    context: &mut Context<'_>,
    [count, readable, writable, exceptional, timeout, mask]: Arguments,
) -> Result<u64> {
    context.restart = Restart::UnlessHandler;
    let (mask, mask_size) = if mask == 0 {
        (0, 0)
    } else {
        let bytes: [u8; 16] = read_array(context.memory, mask)?;
        (get::u64(&bytes, 0), get::u64(&bytes, 8))
    };
    let deadline_ns = read_deadline(context, timeout)?;
    install_optional_mask(context, mask, mask_size)?;
    let outcome = select_until(context, count, [readable, writable, exceptional], deadline_ns);
    if let Some(deadline_ns) = deadline_ns {
        let _ = write_all(context.memory, timeout, &timespec(left_ns(context, deadline_ns)));
    }
    restore_mask(context, &outcome);
    outcome
}

//! The load of suite `placement`: datagrams at a given rate to a server that answers each by itself.
//!
//! The load is open: a datagram goes when it is due, whatever came of those before, so that a system that cannot follow
//! shows it by answers that are missing, and not by questions that were never asked. One thread does both directions,
//! in the tool's own process; the far end is a port of 127.0.0.1. Each datagram carries its number and when it went.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// After the last question, for answers that are under way.
const TAIL: Duration = Duration::from_millis(200);
/// What has no answer after this time is lost.
const LOST_AFTER: Duration = Duration::from_millis(50);
/// Questions that are sent in a row before answers are looked for, if the thread is late.
const BURST_MAX: u64 = 32;
/// Bytes of number and time at the begin of a datagram.
const HEADER_BYTES: usize = 16;
/// Bytes of the largest datagram.
const DATAGRAM_BYTES_MAX: usize = 2048;

/// What a load came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Questions that went.
    pub(super) asked_count: u64,
    /// Time in which they went.
    pub(super) seconds: f64,
    /// Nanoseconds of each round trip.
    pub(super) round_trips: Vec<u64>,
}

impl Outcome {
    /// Answers in a second.
    pub(super) fn throughput(&self) -> f64 {
        self.round_trips.len() as f64 / self.seconds
    }

    /// The time that this share of the round trips took at most; `None` without any.
    pub(super) fn percentile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.round_trips.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        sorted.get((last as f64 * share).round() as usize).map(|time| *time as f64)
    }
}

/// Offers a load: `rate` datagrams of so many bytes a second. `at_end` is called when the last of them has gone.
pub(super) fn offer(
    port: u16,
    byte_count: usize,
    rate: f64,
    duration: Duration,
    at_end: impl FnOnce(),
) -> io::Result<Outcome> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.set_nonblocking(true)?;
    let mut outcome = Outcome::default();
    let mut question = vec![b'x'; byte_count.max(HEADER_BYTES)];
    let (begin, last) = (Instant::now(), (rate * duration.as_secs_f64()) as u64);
    while outcome.asked_count < last {
        let due = (begin.elapsed().as_secs_f64() * rate) as u64;
        for _ in 0..due.min(last).saturating_sub(outcome.asked_count).min(BURST_MAX) {
            question[..8].copy_from_slice(&outcome.asked_count.to_le_bytes());
            question[8..HEADER_BYTES].copy_from_slice(&(begin.elapsed().as_nanos() as u64).to_le_bytes());
            // A full socket loses it, as a full card would.
            let _ = socket.send(&question);
            outcome.asked_count += 1;
        }
        take(&socket, begin, &mut outcome);
        let next_due = Duration::from_secs_f64((outcome.asked_count + 1) as f64 / rate);
        wait(&socket, next_due.saturating_sub(begin.elapsed()))?;
    }
    outcome.seconds = begin.elapsed().as_secs_f64();
    at_end();
    let end = Instant::now() + TAIL;
    let mut left = TAIL;
    while !left.is_zero() {
        wait(&socket, left)?;
        take(&socket, begin, &mut outcome);
        left = end.saturating_duration_since(Instant::now());
    }
    Ok(outcome)
}

/// Answers in a second while so many questions are under way at any time; what is lost is asked again.
pub(super) fn busiest(port: u16, byte_count: usize, under_way: u32, duration: Duration) -> io::Result<f64> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.set_read_timeout(Some(LOST_AFTER))?;
    let (question, mut answer) = (vec![b'x'; byte_count], [0; DATAGRAM_BYTES_MAX]);
    let (begin, mut answer_count, mut due) = (Instant::now(), 0_u32, under_way);
    while begin.elapsed() < duration {
        for _ in 0..due {
            let _ = socket.send(&question);
        }
        match socket.recv(&mut answer) {
            Ok(_) => (answer_count, due) = (answer_count + 1, 1),
            Err(_) => due = under_way,
        }
    }
    match answer_count {
        0 => Err(io::ErrorKind::TimedOut.into()),
        count => Ok(f64::from(count) / begin.elapsed().as_secs_f64()),
    }
}

/// Waits until the server is reached.
pub(super) fn wait_for(port: u16, limit: Duration) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        // A socket of its own, so that a late answer is nobody's.
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        socket.set_read_timeout(Some(TAIL))?;
        match socket.send(b"there?").and_then(|_| socket.recv(&mut [0; HEADER_BYTES])) {
            Ok(_) => return Ok(()),
            Err(why) if begin.elapsed() > limit => return Err(why),
            Err(_) => std::thread::sleep(TAIL),
        }
    }
}

/// Takes all answers that are there.
fn take(socket: &UdpSocket, begin: Instant, outcome: &mut Outcome) {
    let mut answer = [0; DATAGRAM_BYTES_MAX];
    while let Ok(count) = socket.recv(&mut answer) {
        let Some(header) = answer[..count].first_chunk::<HEADER_BYTES>() else { continue };
        let sent = u64::from_le_bytes([8, 9, 10, 11, 12, 13, 14, 15].map(|at: usize| header[at]));
        outcome.round_trips.push((begin.elapsed().as_nanos() as u64).saturating_sub(sent));
    }
}

/// Waits for an answer, so long at most.
fn wait(socket: &UdpSocket, left: Duration) -> io::Result<()> {
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, busiest, offer, wait_for};
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn every_question_is_answered_and_timed() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut bytes = [0; 2000];
            while let Ok((count, from)) = server.recv_from(&mut bytes) {
                let _ = server.send_to(&bytes[..count], from);
            }
        });
        wait_for(port, Duration::from_secs(1)).unwrap();
        assert!(busiest(port, 64, 8, Duration::from_millis(50)).unwrap() > 0.0);
        let mut has_ended = false;
        let outcome = offer(port, 64, 200.0, Duration::from_millis(100), || has_ended = true).unwrap();
        assert_eq!((outcome.asked_count, outcome.round_trips.len(), has_ended), (20, 20, true));
        assert!(outcome.throughput() > 0.0 && outcome.percentile(0.5) <= outcome.percentile(0.99));
    }

    #[test]
    fn percentiles_are_of_those_there_are() {
        let outcome = Outcome { round_trips: vec![40, 10, 30, 20, 50], asked_count: 5, seconds: 1.0 };
        assert_eq!([0.0, 0.5, 0.99].map(|share| outcome.percentile(share)), [Some(10.0), Some(30.0), Some(50.0)]);
        assert_eq!(Outcome::default().percentile(0.5), None);
    }
}

//! Neighbours: which Ethernet address the machines on the card's network have, as far as it is known (RFC 4861 section
//! 7.3, which Linux follows for IPv4, too).
//!
//! At most [`ENTRY_COUNT_MAX`] are known; the one that was used least recently makes room. Packets to one that is being
//! looked for wait, [`WAITING_COUNT_MAX`] of each and [`WAITING_BYTES_MAX`] in all; the oldest makes room.
//!
//! What others say is believed as far as Linux believes it: an entry is made by a packet that is sent to the neighbour,
//! or by its question for one of the pod's own addresses; an answer changes an entry that is there, and makes none.
//!
//! Neighbours of this file: [`super::output`], which asks; [`super::input`], which tells; it sends nothing itself.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::super::interface::NeighbourStatus;
use super::super::wire::Transmission;
use super::ethernet::{HardwareAddress, is_unicast};
use crate::reserve;

/// Most neighbours that are known.
pub(crate) const ENTRY_COUNT_MAX: usize = 256;
/// Packets that wait for one.
pub(crate) const WAITING_COUNT_MAX: usize = 64;
/// Bytes that wait for all.
pub(crate) const WAITING_BYTES_MAX: usize = 256 << 10;
/// Questions before it is given up (`mcast_solicit`, `ucast_solicit`).
const QUESTION_COUNT_MAX: u8 = 3;
/// Between two (`retrans_time`).
const QUESTION_EVERY_NS: u64 = 1_000_000_000;
/// How long an answer is believed (`base_reachable_time`).
const REACHABLE_NS: u64 = 30_000_000_000;
/// From the first use of one that is no more believed to the question (`delay_first_probe_time`).
const DELAY_NS: u64 = 5_000_000_000;
/// What a neighbour said is not changed by another packet for so long (`locktime`).
const LOCK_NS: u64 = 1_000_000_000;
/// Questions and failures that one look at what is due gives.
const DUE_COUNT_MAX: usize = 16;

/// How much is known (`NUD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being looked for.
    Incomplete,
    /// It answered lately.
    Reachable,
    /// It was heard of, and nothing was sent there since.
    Stale,
    /// Something was sent to it; it is asked unless something is heard.
    Delay,
    /// It is being asked whether it is still there.
    Probe,
    /// It did not answer.
    Failed,
}

/// A packet that waits: from the network's header on.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) protocol: u16,
    pub(crate) bytes: Vec<u8>,
    pub(crate) transmission: Transmission,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    hardware: HardwareAddress,
    state: State,
    question_count: u8,
    /// When the state ends; of one that is stale, never.
    until_ns: u64,
    used_ns: u64,
    changed_ns: u64,
    waiting: VecDeque<Waiting>,
}

/// What is to be done with a packet for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is sent there.
    Known(HardwareAddress),
    /// It is to wait ([`Neighbours::wait`]).
    Waits {
        /// The neighbour is to be asked for now.
        asks: bool,
    },
    /// There is no memory to look for it.
    None,
}

/// What is due of a neighbour.
#[derive(Debug)]
pub(crate) enum Due {
    /// It is to be asked: all, if its Ethernet address is not known.
    Ask(IpAddr, Option<HardwareAddress>),
    /// It did not answer; what waited for it.
    Failed(VecDeque<Waiting>),
}

/// What a packet says of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It asks for one of the pod's addresses: it is there, and is made known.
    Asks,
    /// It answers what was asked for.
    Answers {
        /// Another Ethernet address than the one that is known counts.
        overrides: bool,
    },
    /// It says so unasked.
    Announces {
        /// As for an answer.
        overrides: bool,
    },
}

/// All neighbours.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    entries: Vec<Entry>,
    /// The one that was looked up last.
    last: usize,
    waiting_bytes: usize,
    dropped_count: u64,
    /// Something came to be due then.
    armed_ns: Option<u64>,
}

impl Neighbours {
    fn find(&mut self, address: IpAddr) -> Option<usize> {
        if self.entries.get(self.last).is_some_and(|entry| entry.address == address) {
            return Some(self.last);
        }
        let found = self.entries.iter().position(|entry| entry.address == address)?;
        self.last = found;
        Some(found)
    }

    /// A place for a neighbour that is not known; `None`: there is no memory.
    fn add(&mut self, address: IpAddr, now_ns: u64) -> Option<usize> {
        let entry = Entry {
            address,
            hardware: [0; 6],
            state: State::Failed,
            question_count: 0,
            until_ns: u64::MAX,
            used_ns: now_ns,
            changed_ns: 0,
            waiting: VecDeque::new(),
        };
        if self.entries.len() < ENTRY_COUNT_MAX {
            reserve::reserve(&mut self.entries, 1).ok()?;
            self.entries.push(entry);
            self.last = self.entries.len() - 1;
        } else {
            // One that answered goes last.
            let rank = |entry: &Entry| (matches!(entry.state, State::Reachable | State::Delay), entry.used_ns);
            let (index, _) = self.entries.iter().enumerate().min_by_key(|(_, entry)| rank(entry))?;
            self.forget_waiting(index);
            self.entries[index] = entry;
            self.last = index;
        }
        Some(self.last)
    }

    fn forget_waiting(&mut self, index: usize) {
        let lost = self.take_waiting(index);
        self.dropped_count += lost.len() as u64;
    }

    fn take_waiting(&mut self, index: usize) -> VecDeque<Waiting> {
        let taken = core::mem::take(&mut self.entries[index].waiting);
        self.waiting_bytes -= taken.iter().map(|waiting| waiting.bytes.len()).sum::<usize>();
        taken
    }

    /// Where a packet goes that is sent to a neighbour.
    pub(crate) fn way(&mut self, address: IpAddr, now_ns: u64) -> Way {
        let Some(index) = self.find(address).or_else(|| self.add(address, now_ns)) else { return Way::None };
        let entry = &mut self.entries[index];
        entry.used_ns = now_ns;
        match entry.state {
            State::Reachable if now_ns < entry.until_ns => Way::Known(entry.hardware),
            State::Reachable | State::Stale => {
                (entry.state, entry.until_ns) = (State::Delay, now_ns.saturating_add(DELAY_NS));
                self.armed_ns = Some(entry.until_ns);
                Way::Known(entry.hardware)
            }
            State::Delay | State::Probe => Way::Known(entry.hardware),
            State::Incomplete => Way::Waits { asks: false },
            State::Failed => {
                (entry.state, entry.question_count) = (State::Incomplete, 1);
                entry.until_ns = now_ns.saturating_add(QUESTION_EVERY_NS);
                self.armed_ns = Some(entry.until_ns);
                Way::Waits { asks: true }
            }
        }
    }

    /// Has a packet wait for a neighbour that is being looked for. It is lost if there is no room.
    pub(crate) fn wait(&mut self, address: IpAddr, waiting: Waiting) {
        let Some(index) = self.find(address) else { return };
        if self.entries[index].waiting.len() == WAITING_COUNT_MAX
            && let Some(oldest) = self.entries[index].waiting.pop_front()
        {
            self.waiting_bytes -= oldest.bytes.len();
            self.dropped_count += 1;
        }
        let entry = &mut self.entries[index];
        let has_room = self.waiting_bytes + waiting.bytes.len() <= WAITING_BYTES_MAX;
        if entry.state != State::Incomplete || !has_room || reserve::reserve_queue(&mut entry.waiting, 1).is_err() {
            self.dropped_count += 1;
            return;
        }
        self.waiting_bytes += waiting.bytes.len();
        entry.waiting.push_back(waiting);
    }

    /// Takes in what a packet says of a neighbour's Ethernet address; what waited for it.
    pub(crate) fn hear(
        &mut self,
        address: IpAddr,
        hardware: HardwareAddress,
        news: News,
        now_ns: u64,
    ) -> VecDeque<Waiting> {
        if !is_unicast(hardware) {
            return VecDeque::new();
        }
        let index = match (self.find(address), news) {
            (Some(index), _) => index,
            (None, News::Asks) => match self.add(address, now_ns) {
                Some(index) => index,
                None => return VecDeque::new(),
            },
            (None, _) => return VecDeque::new(),
        };
        let entry = &mut self.entries[index];
        let is_known = !matches!(entry.state, State::Incomplete | State::Failed);
        let is_other = is_known && entry.hardware != hardware;
        let overrides = match news {
            News::Asks => now_ns.saturating_sub(entry.changed_ns) >= LOCK_NS,
            News::Answers { overrides } | News::Announces { overrides } => overrides,
        };
        if is_other && !overrides {
            // It is doubted, and asked at the next use.
            if entry.state == State::Reachable && !matches!(news, News::Asks) {
                (entry.state, entry.until_ns) = (State::Stale, u64::MAX);
            }
            return VecDeque::new();
        }
        let is_asked_for = entry.state != State::Failed;
        if !is_known || is_other {
            (entry.hardware, entry.changed_ns) = (hardware, now_ns);
        }
        match news {
            News::Answers { .. } if is_asked_for => {
                (entry.state, entry.until_ns) = (State::Reachable, now_ns.saturating_add(REACHABLE_NS));
            }
            _ if !is_known || is_other => (entry.state, entry.until_ns) = (State::Stale, u64::MAX),
            _ => {}
        }
        self.take_waiting(index)
    }

    /// A neighbour answers what it was asked without saying its Ethernet address again.
    pub(crate) fn confirm(&mut self, address: IpAddr, now_ns: u64) {
        if let Some(index) = self.find(address)
            && let entry = &mut self.entries[index]
            && !matches!(entry.state, State::Incomplete | State::Failed)
        {
            (entry.state, entry.until_ns) = (State::Reachable, now_ns.saturating_add(REACHABLE_NS));
        }
    }

    /// What is due by now: a bounded number; [`Self::due_ns`] says when there is more.
    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<Due> {
        let mut due = Vec::new();
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if entry.until_ns > now_ns {
                continue;
            }
            if due.len() == DUE_COUNT_MAX || reserve::reserve(&mut due, 1).is_err() {
                break;
            }
            match entry.state {
                State::Reachable => (entry.state, entry.until_ns) = (State::Stale, u64::MAX),
                State::Delay => {
                    (entry.state, entry.question_count) = (State::Probe, 1);
                    entry.until_ns = now_ns.saturating_add(QUESTION_EVERY_NS);
                    due.push(Due::Ask(entry.address, Some(entry.hardware)));
                }
                State::Incomplete | State::Probe if entry.question_count < QUESTION_COUNT_MAX => {
                    entry.question_count += 1;
                    entry.until_ns = now_ns.saturating_add(QUESTION_EVERY_NS);
                    let hardware = (entry.state == State::Probe).then_some(entry.hardware);
                    due.push(Due::Ask(entry.address, hardware));
                }
                _ => {
                    (entry.state, entry.until_ns) = (State::Failed, u64::MAX);
                    let waiting = self.take_waiting(index);
                    due.push(Due::Failed(waiting));
                }
            }
        }
        due
    }

    /// When something is due next.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.entries.iter().map(|entry| entry.until_ns).min().filter(|until_ns| *until_ns != u64::MAX)
    }

    /// When something is due that [`Self::way`] has begun since this was asked last.
    pub(crate) fn take_armed(&mut self) -> Option<u64> {
        self.armed_ns.take()
    }

    /// Packets that had to make room since this was asked last.
    pub(crate) fn take_dropped_count(&mut self) -> u64 {
        core::mem::take(&mut self.dropped_count)
    }

    /// All of them, as programs are told.
    pub(crate) fn statuses(&self) -> crate::error::Result<Vec<NeighbourStatus>> {
        let mut all = reserve::vector(self.entries.len())?;
        all.extend(self.entries.iter().map(|entry| {
            let (state, is_known) = match entry.state {
                State::Incomplete => (1, false),
                State::Reachable => (2, true),
                State::Stale => (4, true),
                State::Delay => (8, true),
                State::Probe => (16, true),
                State::Failed => (32, false),
            };
            NeighbourStatus { address: entry.address, hardware_address: is_known.then_some(entry.hardware), state }
        }));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::{IpAddr, Ipv4Addr};

    use super::super::super::wire::Transmission;
    use super::{Due, ENTRY_COUNT_MAX, Neighbours, News, WAITING_BYTES_MAX, WAITING_COUNT_MAX, Waiting, Way};

    const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const SECOND: u64 = 1_000_000_000;

    fn at(last: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + last))
    }

    fn packet(byte_count: usize) -> Waiting {
        Waiting { protocol: 0x800, bytes: vec![0; byte_count], transmission: Transmission::default() }
    }

    #[test]
    fn one_that_answers_gets_the_last_packets_that_waited() {
        let mut all = Neighbours::default();
        assert_eq!(all.way(at(1), 0), Way::Waits { asks: true });
        for length in 1..=WAITING_COUNT_MAX + 2 {
            all.wait(at(1), packet(length));
            assert_eq!(all.way(at(1), 0), Way::Waits { asks: false });
        }
        let got = all.hear(at(1), ONE, News::Answers { overrides: true }, 5);
        let lengths: Vec<usize> = got.iter().map(|waiting| waiting.bytes.len()).collect();
        assert_eq!(lengths, (3..=WAITING_COUNT_MAX + 2).collect::<Vec<_>>());
        assert_eq!((all.take_dropped_count(), all.waiting_bytes), (2, 0));
        assert_eq!(all.way(at(1), 6), Way::Known(ONE));
    }

    #[test]
    fn one_that_is_silent_is_asked_three_times() {
        let mut all = Neighbours::default();
        let _ = all.way(at(1), 0);
        all.wait(at(1), packet(10));
        for second in 1..=2 {
            assert_eq!(all.due_ns(), Some(second * SECOND));
            assert!(matches!(all.due(second * SECOND)[..], [Due::Ask(address, None)] if address == at(1)));
        }
        let due = all.due(3 * SECOND);
        assert!(matches!(&due[..], [Due::Failed(waiting)] if waiting.len() == 1));
        assert_eq!(all.due_ns(), None);
        assert_eq!(all.way(at(1), 3 * SECOND), Way::Waits { asks: true }, "it is looked for anew");
    }

    #[test]
    fn one_that_was_not_heard_of_lately_is_asked_in_person() {
        let mut all = Neighbours::default();
        let _ = all.way(at(1), 0);
        let _ = all.hear(at(1), ONE, News::Answers { overrides: true }, 0);
        assert!(all.due(30 * SECOND).is_empty(), "nothing is sent to it");
        assert_eq!(all.way(at(1), 40 * SECOND), Way::Known(ONE));
        assert!(matches!(all.due(45 * SECOND)[..], [Due::Ask(_, Some(ONE))]));
        assert_eq!(all.way(at(1), 45 * SECOND), Way::Known(ONE));
        all.confirm(at(1), 46 * SECOND);
        assert_eq!(all.due_ns(), Some(76 * SECOND));
    }

    #[test]
    fn nobody_puts_itself_in_anothers_place() {
        let mut all = Neighbours::default();
        let _ = all.hear(at(1), ONE, News::Answers { overrides: true }, 0);
        let _ = all.hear(at(1), ONE, News::Announces { overrides: true }, 0);
        assert!(all.entries.is_empty(), "what was not asked for is not known");
        let _ = all.hear(at(1), ONE, News::Asks, 5 * SECOND);
        let _ = all.hear(at(1), OTHER, News::Asks, 5 * SECOND + 1);
        assert_eq!(all.way(at(1), 6 * SECOND), Way::Known(ONE), "not so soon");
        let _ = all.hear(at(1), OTHER, News::Answers { overrides: false }, 9 * SECOND);
        assert_eq!(all.way(at(1), 9 * SECOND), Way::Known(ONE));
        let _ = all.hear(at(1), OTHER, News::Announces { overrides: true }, 9 * SECOND);
        assert_eq!(all.way(at(1), 9 * SECOND), Way::Known(OTHER), "it moved");
        for broken in [[0; 6], [0xff; 6], [1, 0, 0, 0, 0, 0]] {
            let _ = all.hear(at(1), broken, News::Announces { overrides: true }, 20 * SECOND);
            assert_eq!(all.way(at(1), 20 * SECOND), Way::Known(OTHER));
        }
    }

    #[test]
    fn memory_is_bounded_and_one_in_use_stays() {
        let mut all = Neighbours::default();
        let _ = all.way(at(0), 0);
        let _ = all.hear(at(0), ONE, News::Answers { overrides: true }, 0);
        for last in 1..10_000 {
            assert_eq!(all.way(at(last), u64::from(last)), Way::Waits { asks: true });
            (0..4).for_each(|_| all.wait(at(last), packet(60_000)));
            assert!(all.entries.len() <= ENTRY_COUNT_MAX && all.waiting_bytes <= WAITING_BYTES_MAX);
        }
        assert_eq!(all.way(at(0), 10_000), Way::Known(ONE));
        let mut due_count = 0;
        let end = (1..10).flat_map(|second| (0..40).map(move |_| second * SECOND));
        end.for_each(|now| due_count += all.due(now).len());
        assert_eq!(all.waiting_bytes, 0);
        assert!(due_count >= 3 * (ENTRY_COUNT_MAX - 1));
    }
}

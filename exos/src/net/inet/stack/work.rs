//! The stack at work: a bounded number of frames is taken from the card, and what is due is done.

use core::net::IpAddr;
use core::net::Ipv6Addr;
use core::sync::atomic::Ordering;

use super::counters::Counter;
use super::discovery;
use super::ethernet::{self, address_in};
use super::fragment::Key;
use super::local::FOR_EVER_NS;
use super::neighbour::Due;
use super::report::Report;
use super::state::{Card, SOLICITATION_COUNT, Stack, Transports};

/// Frames that one call takes.
pub(super) const FRAME_COUNT_MAX: usize = 64;
/// Packets in the making that one call gives up.
const GIVE_UP_COUNT_MAX: usize = 16;
/// Between two questions for routers.
const SOLICITATION_EVERY_NS: u64 = 4_000_000_000;
/// All routers of the link.
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

impl Stack {
    /// Takes frames from the card, up to [`FRAME_COUNT_MAX`], and does what is due; when something is due next, which
    /// is `now_ns` if there is more.
    pub fn poll(&self, now_ns: u64, above: &dyn Transports) -> Option<u64> {
        let card = self.card()?;
        let has_more = self.take_frames(card, above);
        if self.disarm(now_ns) {
            self.do_due(card, now_ns, above);
            self.due_ns().into_iter().for_each(|due_ns| self.note_armed(due_ns));
        }
        card.interface.flush();
        if has_more {
            return Some(now_ns);
        }
        Some(self.poll_at_ns()).filter(|due_ns| *due_ns != FOR_EVER_NS)
    }

    /// Takes frames; true: there may be more. What comes here while another processor does leaves it that.
    fn take_frames(&self, card: &Card, above: &dyn Transports) -> bool {
        let mut left = FRAME_COUNT_MAX;
        while left > 0 {
            let Some(mut frame) = self.frame.lock().take() else {
                self.is_asked_again.store(true, Ordering::Release);
                return false;
            };
            while left > 0
                && let Some(reception) = card.interface.receive(&mut frame)
            {
                left -= 1;
                let bytes = &frame[..reception.byte_count.min(frame.len())];
                self.take_frame(card, bytes, reception.is_checksum_valid, above);
            }
            above.finish();
            *self.frame.lock() = Some(frame);
            // One that came meanwhile may have been told of a frame that was not seen here any more.
            if left > 0 && !self.is_asked_again.swap(false, Ordering::AcqRel) {
                return false;
            }
        }
        true
    }

    fn do_due(&self, card: &Card, now_ns: u64, above: &dyn Transports) {
        let due = self.neighbours.lock().due(now_ns);
        for due in due {
            match due {
                Due::Ask(address, hardware) => self.ask(card, address, hardware),
                Due::Failed(waiting) => {
                    for packet in waiting {
                        self.give_up(&packet.bytes, packet.protocol == ethernet::IPV4, above);
                    }
                }
            }
        }
        for _ in 0..GIVE_UP_COUNT_MAX {
            let Some((key, head)) = self.fragments.lock().give_up(now_ns) else { break };
            self.give_up_pieces(key, &head);
        }
        let change_count = {
            let mut local = self.local.lock();
            local.forget_old(now_ns);
            local.change_count()
        };
        self.note_changes(change_count);
        self.report_groups(card, now_ns);
        self.solicit(card, now_ns);
        if self.dhcp.lock().due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.ask_for_lease(card, now_ns);
        }
    }

    fn give_up_pieces(&self, key: Key, head: &[u8]) {
        let is_v4 = key.source.is_ipv4();
        self.count(if is_v4 { Counter::Ip4ReassemblyTimeouts } else { Counter::Ip6ReassemblyTimeouts });
        self.count(if is_v4 { Counter::Ip4ReassemblyFailed } else { Counter::Ip6ReassemblyFailed });
        // Only what began is told of, and only if it was for this machine alone.
        if !head.is_empty() && self.local.lock().is_own(key.destination) {
            self.report_to(key.source, key.destination, head, 0, Report::Incomplete);
        }
    }

    /// Asks routers to announce themselves, until one does.
    fn solicit(&self, card: &Card, now_ns: u64) {
        let is_first = {
            let mut solicitation = self.solicitation.lock();
            if solicitation.left == 0 || solicitation.at_ns > now_ns {
                return;
            }
            let is_first = solicitation.left == SOLICITATION_COUNT;
            solicitation.left -= 1;
            solicitation.at_ns = now_ns.saturating_add(SOLICITATION_EVERY_NS);
            is_first
        };
        let own = card.identity.hardware_address;
        let address = address_in(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), own);
        if is_first {
            self.ask_whether_free(address);
        }
        let question = discovery::router_solicitation(own);
        self.send_discovery(IpAddr::V6(address), IpAddr::V6(ALL_ROUTERS), &question);
    }

    fn due_ns(&self) -> Option<u64> {
        let solicitation = *self.solicitation.lock();
        let solicitation_ns = if solicitation.left > 0 { solicitation.at_ns } else { FOR_EVER_NS };
        let due = [
            self.neighbours.lock().due_ns(),
            self.fragments.lock().due_ns(),
            self.local.lock().due_ns(),
            self.dhcp.lock().due_ns(),
            self.memberships.lock().due_ns(),
            Some(solicitation_ns).filter(|due_ns| *due_ns != FOR_EVER_NS),
        ];
        due.into_iter().flatten().min()
    }
}

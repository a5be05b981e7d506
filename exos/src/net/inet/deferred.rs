//! Connections over loopback of which their listener hears when there is something to read (`TCP_DEFER_ACCEPT`).
//!
//! The side that connects has its connection at once, as on Linux, where the listener's side waits for a segment with
//! data. What was made waits here until bytes come, the other side ends, or the time is over that the listener gave;
//! one that is reset before is forgotten, and all are when the listener ends, without a word to the other side.
//!
//! A connection that waits is found by the number of its socket's inode, so what happens to one costs the others
//! nothing.

use alloc::sync::{Arc, Weak};

use super::engine::table::Timed;
use super::settings::Setting;
use super::socket::Socket;
use super::tcp::{Deferred, Phase, Tcp};
use super::tcp_state::TcpState;
use crate::fs::readiness::{Readiness, Waiter};
use crate::reserve::reserve_queue;
use crate::sync::Mutex;

const SECOND_NS: u64 = 1_000_000_000;
/// Longest time between two attempts of Linux to be answered (`TCP_RTO_MAX`), as a power of two of seconds.
const STEP_POWER_MAX: u32 = 7;

/// What is to be done about one.
enum Outlook {
    Wait,
    Ready,
    Lost,
}

impl Deferred {
    fn outlook(&self, now_ns: u64) -> Outlook {
        let pair = self.link.pair();
        let own = &pair.sides[self.link.side];
        match own.state {
            _ if own.has_seen_end || own.inbox.length() > 0 => Outlook::Ready,
            TcpState::Close => Outlook::Lost,
            _ if now_ns >= self.until_ns => Outlook::Ready,
            _ => Outlook::Wait,
        }
    }

    fn look(&self) {
        if let Some(listener) = self.listener.upgrade()
            && let Some(tcp) = listener.tcp()
        {
            listener.admit_deferred(tcp, self.number);
        }
    }

    /// It waits no more.
    fn rest(&self, socket: &Socket) {
        let (watching, appointment) = core::mem::take(&mut *self.waits.lock());
        drop(watching);
        appointment.into_iter().for_each(|appointment| socket.inet().engine.cancel(appointment));
    }
}

impl Waiter for Deferred {
    fn wake(&self, _: Readiness) {
        self.look();
    }
}

impl Timed for Deferred {
    fn come_due(&self) {
        self.look();
    }
}

/// How long as many attempts take as `TCP_DEFER_ACCEPT` says, the first a second and each twice as long as the last.
fn period_ns(attempt_count: i32) -> u64 {
    (0..attempt_count.max(0) as u32).map(|attempt| SECOND_NS << attempt.min(STEP_POWER_MAX)).sum()
}

impl Socket {
    /// Has a connection that was made for this listener wait, if it defers them and has a place for it; else it is
    /// given back.
    pub(super) fn defer(self: &Arc<Self>, tcp: &Tcp, accepted: Arc<Self>) -> Option<Arc<Self>> {
        let attempt_count = self.settings().get(Setting::DeferAccept);
        let link = accepted.tcp().and_then(Tcp::link).filter(|_| attempt_count > 0);
        let Some(link) = link else { return Some(accepted) };
        let inet = self.inet();
        let until_ns = inet.now_ns().saturating_add(period_ns(attempt_count));
        let number = accepted.number();
        let (queue, listener) = (accepted.wait_queue().clone(), Arc::downgrade(self));
        let deferred = Deferred { number, listener, link, queue, accepted, until_ns, waits: Mutex::default() };
        {
            let mut state = tcp.lock();
            let Phase::Listening(queue) = &mut state.phase else { return Some(deferred.accepted) };
            if queue.deferred.len() > queue.backlog || crate::reserve::check().is_err() {
                return Some(deferred.accepted);
            }
            let deferred = Arc::new(deferred);
            queue.deferred.insert(number, deferred.clone());
            drop(state);
            let (waiter, timed): (Weak<dyn Waiter>, Weak<dyn Timed>) =
                (Arc::<Deferred>::downgrade(&deferred), Arc::<Deferred>::downgrade(&deferred));
            let watching = deferred.queue.register(waiter, Readiness::READ);
            *deferred.waits.lock() = (Some(watching), Some(inet.call_at(until_ns, timed)));
        }
        // What came before it was told of is looked at now.
        self.admit_deferred(tcp, number);
        None
    }

    /// Looks at a connection that waits for its data.
    fn admit_deferred(&self, tcp: &Tcp, number: u64) {
        let now_ns = self.inet().now_ns();
        let (deferred, is_lost) = {
            let mut state = tcp.lock();
            let Phase::Listening(listener) = &mut state.phase else { return };
            let Some(deferred) = listener.deferred.get(&number) else { return };
            let is_lost = match deferred.outlook(now_ns) {
                Outlook::Wait => return,
                Outlook::Ready => false,
                Outlook::Lost => true,
            };
            if !is_lost && (listener.is_full() || reserve_queue(&mut listener.pending, 1).is_err()) {
                listener.is_deferred_ready = true;
                return;
            }
            let Some(deferred) = listener.deferred.remove(&number) else { return };
            if !is_lost {
                listener.pending.push_back(deferred.accepted.clone());
            }
            (deferred, is_lost)
        };
        deferred.rest(self);
        if is_lost {
            deferred.accepted.refuse();
        } else {
            self.wait_queue().notify(Readiness::READ);
        }
    }

    /// Looks at those again that were ready when the queue was full.
    pub(super) fn admit_all_deferred(&self, tcp: &Tcp) {
        let mut next = Some(0);
        while let Some(number) = next {
            {
                let mut state = tcp.lock();
                let Phase::Listening(listener) = &mut state.phase else { return };
                if !listener.is_deferred_ready || listener.is_full() {
                    return;
                }
                next = listener.deferred.range(number..).next().map(|(number, _)| *number);
                listener.is_deferred_ready = next.is_some();
            }
            if let Some(number) = &mut next {
                self.admit_deferred(tcp, *number);
                *number += 1;
            }
        }
    }

    /// Forgets a connection that waited when its listener ended: the other side learns it when it sends something.
    pub(super) fn forget_deferred(&self, deferred: &Deferred) {
        deferred.rest(self);
        if let Some(tcp) = deferred.accepted.tcp() {
            let held = tcp.lock().held.take();
            deferred.link.vanish(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SECOND_NS, period_ns};

    #[test]
    fn a_period_is_as_long_as_its_attempts() {
        let seconds = [(-1, 0), (0, 0), (1, 1), (2, 3), (3, 7), (8, 255), (9, 383)];
        for (count, expected) in seconds {
            assert_eq!(period_ns(count), expected * SECOND_NS);
        }
    }
}

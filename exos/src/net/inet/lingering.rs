//! What `close` waits for (`SO_LINGER`): that the other side has what was sent.
//!
//! The socket is closed first, as without; its connection goes on by itself, and tells the socket's queue when there is
//! nothing to wait for any more. So a closer that gives up leaves everything as it is.

use alloc::sync::Arc;

use super::connection::Link;
use super::engine::flow::Flow;
use super::socket::Socket;
use super::tcp::Phase;
use crate::fs::readiness::WaitQueue;

const SECOND_NS: u64 = 1_000_000_000;

enum Connected {
    Near(Link),
    Far(Arc<Flow>),
}

/// A connection that `close` waits for.
pub struct Lingering {
    connection: Connected,
    /// Told when it may be over.
    pub queue: Arc<WaitQueue>,
    /// How long `close` waits.
    pub limit_ns: u64,
}

impl Lingering {
    /// Whether its socket is closed by now, and what it sent is still on its way.
    pub fn is_on(&self) -> bool {
        match &self.connection {
            Connected::Near(link) => link.is_lingering(),
            Connected::Far(flow) => flow.is_lingering(),
        }
    }
}

impl Socket {
    /// What `close` waits for, and how long, if that was asked for (`SO_LINGER`). Asked before its descriptor is gone.
    pub fn lingering(&self) -> Option<Lingering> {
        let (tcp, linger) = (self.tcp()?, self.options().linger());
        let limit_ns = (linger >> 32).saturating_mul(SECOND_NS);
        if linger & 1 == 0 || limit_ns == 0 {
            return None;
        }
        let connection = match &tcp.lock().phase {
            Phase::Connected(link) => Connected::Near(link.clone()),
            Phase::Remote(flow) => Connected::Far(flow.clone()),
            _ => return None,
        };
        Some(Lingering { connection, queue: self.wait_queue().clone(), limit_ns })
    }
}

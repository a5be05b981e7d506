//! States of a TCP socket, as tcp(7) and RFC 9293, 3.3.2 have them.

/// The state of a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Bytes go both ways.
    Established,
    /// A connection is being made.
    SynSent,
    /// The other side has begun to make a connection, and has not answered yet.
    SynReceived,
    /// It has ended its half, which the other side has not acknowledged.
    FinWait1,
    /// It has ended its half.
    FinWait2,
    /// Both halves ended, its own first; only [`super::TimeWait`] is ever in it.
    TimeWait,
    /// There is no connection, or none any more.
    Close,
    /// The other side has ended its half.
    CloseWait,
    /// Both halves ended, the other side's first; its own end is not acknowledged.
    LastAck,
    /// It takes connections.
    Listen,
    /// Both halves ended at the same time; its own end is not acknowledged.
    Closing,
}

//! Where TCP meets the stack below: segments that came in, what ICMP said of segments that were sent, and time.
//!
//! The stack calls these with no lock held. Neighbours: [`super::network`], which calls; TCP's engine, which is called.

pub(super) use super::engine::input::{tcp_error, tcp_input, tcp_poll};

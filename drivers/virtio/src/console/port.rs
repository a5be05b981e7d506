//! What the driver keeps of one port.

use super::receive::Receiver;
use super::transmit::Transmitter;
use super::{PORT_NAME_BYTES_MAX, PortState};

/// One port: its state as told by control messages, and its two directions.
#[derive(Debug)]
pub(super) struct Port<B> {
    pub(super) state: PortState,
    name: [u8; PORT_NAME_BYTES_MAX],
    /// Zero: no name yet.
    name_bytes: u8,
    /// `PORT_READY` is to be sent.
    pub(super) owes_ready: bool,
    /// `PORT_OPEN` is to be sent.
    pub(super) owes_open: bool,
    pub(super) receiver: Receiver<B>,
    pub(super) transmitter: Transmitter<B>,
}

impl<B> Port<B> {
    pub(super) const fn new() -> Self {
        Self {
            state: PortState::Absent,
            name: [0; PORT_NAME_BYTES_MAX],
            name_bytes: 0,
            owes_ready: false,
            owes_open: false,
            receiver: Receiver::new(),
            transmitter: Transmitter::new(),
        }
    }

    /// Whether the device has announced the port and not removed it.
    pub(super) const fn is_announced(&self) -> bool {
        !matches!(self.state, PortState::Absent | PortState::Removed)
    }

    pub(super) fn name(&self) -> Option<&[u8]> {
        (self.name_bytes > 0).then(|| &self.name[..usize::from(self.name_bytes)])
    }

    /// Takes the first name that a port is given; a device that renames its ports is not followed.
    /// False if it was not taken.
    pub(super) fn set_name(&mut self, name: &[u8]) -> bool {
        let fits = !name.is_empty() && name.len() <= PORT_NAME_BYTES_MAX;
        if self.name_bytes > 0 || !fits {
            return false;
        }
        self.name[..name.len()].copy_from_slice(name);
        self.name_bytes = name.len() as u8;
        true
    }

    /// The device has announced the port.
    pub(super) fn announce(&mut self) {
        self.state = PortState::Waiting;
        self.name_bytes = 0;
        self.owes_ready = true;
        self.owes_open = true;
    }
}

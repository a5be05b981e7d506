//! The line to the host tool: orders in, answers out (`aegis_link::orders`), over the machine's second serial device.
//!
//! Nothing here waits and nothing grows: one order at a time is held, and its answer must have left before the next is
//! looked at. A host that does not take an answer holds up its own orders and nobody else.

use aegis_abi::CapSlot;
use aegis_abi::boot::BootInfo;
use aegis_abi::device::{DeviceField, DeviceKind};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_NONE};
use aegis_hal::{AccessError, Port, Width, check_range};
use aegis_link::frame::{Found, Frame};
use aegis_link::orders::{ANSWER_BYTES, Answer, ORDER_BYTES, Order};
use aegis_rt::call::{self, Refusal};
use aegis_serial::{PORT_COUNT, Serial};

/// Our capability for the bell that the line's interrupt rings.
const SLOT_BELL: CapSlot = CapSlot(101);

/// The device's ports, by calls.
struct Ports(CapSlot);

impl Ports {
    fn access(&self, offset: usize, width: Width, write: Option<u32>) -> Result<u32, AccessError> {
        check_range(offset, width.bytes(), PORT_COUNT)?;
        let (is_write, value) = (u32::from(write.is_some()), write.unwrap_or(0));
        let outcome = call::device_port(self.0, 0, offset as u32, width.bytes() as u32, is_write, value);
        outcome.map(|value| value as u32).map_err(|_| AccessError {
            offset,
            width_bytes: width.bytes(),
            length_bytes: PORT_COUNT,
        })
    }
}

impl Port for Ports {
    fn port_count(&self) -> usize {
        PORT_COUNT
    }
    fn input(&self, offset: usize, width: Width) -> Result<u32, AccessError> {
        self.access(offset, width, None)
    }
    fn output(&mut self, offset: usize, width: Width, value: u32) -> Result<(), AccessError> {
        self.access(offset, width, Some(value)).map(|_| ())
    }
}

/// The line.
pub(crate) struct Line {
    serial: Serial<Ports>,
    device: CapSlot,
    input: [u8; ORDER_BYTES],
    input_length: usize,
    output: [u8; ANSWER_BYTES],
    /// What of it has not left.
    output_left: usize,
}

impl Line {
    /// Finds the device and begins to listen; `None` in a machine without.
    pub(crate) fn open(info: &BootInfo) -> Result<Option<Self>, Refusal> {
        let mut slots = (0..info.device_count).map(|index| CapSlot(SLOT_DEVICE_FIRST.0 + index));
        let kind = DeviceKind::Ports as u64;
        let Some(device) = slots.find(|slot| call::device_read(*slot, DeviceField::Kind, 0) == Ok(kind)) else {
            return Ok(None);
        };
        call::bell_create(SLOT_BELL, SLOT_NONE)?;
        call::device_interrupt_bind(device, 0, SLOT_BELL)?;
        let Ok(serial) = Serial::new(Ports(device)) else { return Ok(None) };
        let (input, output) = ([0; ORDER_BYTES], [0; ANSWER_BYTES]);
        let mut line = Self { serial, device, input, input_length: 0, output, output_left: 0 };
        // It is ours for good, so no access is refused.
        let _ = line.listen();
        Ok(Some(line))
    }

    /// The bell that rings when there is something to do.
    pub(crate) fn bell(&self) -> CapSlot {
        SLOT_BELL
    }

    /// Does what the orders say that have come. `act` answers an order, or tells without one what there is to tell.
    pub(crate) fn serve(&mut self, mut act: impl FnMut(Option<&Order>) -> Option<Answer>) {
        let _ = call::bell_take(SLOT_BELL);
        let _ = self.serve_all(&mut act).and_then(|()| self.listen());
    }

    fn serve_all(&mut self, act: &mut impl FnMut(Option<&Order>) -> Option<Answer>) -> Result<(), AccessError> {
        loop {
            let left = &self.output[ANSWER_BYTES - self.output_left..];
            self.output_left -= self.serial.write(left)?;
            if self.output_left > 0 {
                return Ok(());
            }
            if let Some(answer) = act(None) {
                self.say(&answer);
                continue;
            }
            let count = self.serial.read(&mut self.input[self.input_length..])?;
            self.input_length += count;
            match Frame::find(&self.input[..self.input_length]) {
                // All that had come was taken, and more is wanted.
                Found::More if count == 0 && self.input_length < ORDER_BYTES => return Ok(()),
                // No order is longer.
                Found::More if self.input_length == ORDER_BYTES => self.forget(1),
                Found::More => {}
                Found::Foreign(_, count) => self.forget(count),
                Found::Frame(frame, length) => {
                    let order = Order::read(&frame);
                    self.forget(length);
                    if let Some(answer) = order.and_then(|order| act(Some(&order))) {
                        self.say(&answer);
                    }
                }
            }
        }
    }

    fn say(&mut self, answer: &Answer) {
        self.output = answer.encode();
        self.output_left = ANSWER_BYTES;
    }

    fn forget(&mut self, count: usize) {
        self.input.copy_within(count..self.input_length, 0);
        self.input_length -= count;
    }

    /// Asks for the next interrupt, which comes at once if there is something to do already.
    fn listen(&mut self) -> Result<(), AccessError> {
        self.serial.ask(self.output_left > 0)?;
        let _ = call::device_interrupt_ask(self.device, 0);
        Ok(())
    }
}

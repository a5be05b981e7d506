//! The serial device 16550 of a PC as two byte streams, driven by safe code over [`aegis_hal::Port`].
//!
//! Nothing here waits: [`Serial::read`] takes what has come, [`Serial::write`] gives what the device has room for, and
//! [`Serial::ask`] says which of both shall interrupt. It is for the little that a control channel carries: each byte
//! is an access to a port. Register numbers and bits: National Semiconductor PC16550D, 8.0.
//!
//! Invariants: no call makes more than a bounded number of accesses, whatever the device answers; a device that is not
//! there (all ones) has nothing to read and takes nothing.
//!
//! Why not virtio: the manager of a machine with pods (`pods/`) has this channel. A virtio function would take a page
//! of register blocks of its own on microvm, which has three, and so the room of a pod.
#![no_std]
#![forbid(unsafe_code)]

use aegis_hal::{AccessError, Port, Width};

/// Ports of the device.
pub const PORT_COUNT: usize = 8;
/// Bytes that the device takes at once when it takes any, and that it holds for the reader.
pub const FIFO_BYTES: usize = 16;

const DATA: usize = 0;
const INTERRUPT_ENABLE: usize = 1;
const INTERRUPT_IDENTITY: usize = 2;
const FIFO_CONTROL: usize = 2;
const LINE_CONTROL: usize = 3;
const MODEM_CONTROL: usize = 4;
const LINE_STATUS: usize = 5;

const ENABLE_RECEIVED: u32 = 1;
const ENABLE_EMPTY: u32 = 1 << 1;
/// FIFOs on and cleared, an interrupt for the first byte.
const FIFOS_ON: u32 = 0b111;
const DIVISOR_ACCESS: u32 = 0x80;
const EIGHT_BITS: u32 = 0b11;
/// Ready, and OUT2, which lets interrupts out of the device.
const MODEM_ON: u32 = 0b1011;
const STATUS_RECEIVED: u32 = 1;
const STATUS_EMPTY: u32 = 1 << 5;
/// What a device that is not there answers.
const ABSENT: u32 = 0xff;

/// A running device.
#[derive(Debug)]
pub struct Serial<P> {
    ports: P,
}

impl<P: Port> Serial<P> {
    /// Sets the device up: eight bits, no interrupts, empty.
    ///
    /// # Errors
    /// The ports are fewer than [`PORT_COUNT`], or are no longer the caller's.
    pub fn new(ports: P) -> Result<Self, AccessError> {
        let mut this = Self { ports };
        this.put(INTERRUPT_ENABLE, 0)?;
        this.put(LINE_CONTROL, DIVISOR_ACCESS)?;
        this.put(DATA, 1)?;
        this.put(INTERRUPT_ENABLE, 0)?;
        this.put(LINE_CONTROL, EIGHT_BITS)?;
        this.put(FIFO_CONTROL, FIFOS_ON)?;
        this.put(MODEM_CONTROL, MODEM_ON)?;
        Ok(this)
    }

    /// Takes bytes that have come, as many as there are and fit.
    ///
    /// # Errors
    /// The ports are no longer the caller's.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, AccessError> {
        for (count, place) in into.iter_mut().enumerate() {
            let status = self.get(LINE_STATUS)?;
            if status == ABSENT || status & STATUS_RECEIVED == 0 {
                return Ok(count);
            }
            *place = self.get(DATA)? as u8;
        }
        Ok(into.len())
    }

    /// Gives bytes to the device, as many as it has room for now.
    ///
    /// # Errors
    /// The ports are no longer the caller's.
    pub fn write(&mut self, from: &[u8]) -> Result<usize, AccessError> {
        let mut count = 0;
        for chunk in from.chunks(FIFO_BYTES) {
            let status = self.get(LINE_STATUS)?;
            if status == ABSENT || status & STATUS_EMPTY == 0 {
                break;
            }
            for byte in chunk {
                self.put(DATA, u32::from(*byte))?;
            }
            count += chunk.len();
        }
        Ok(count)
    }

    /// Clears the cause of an interrupt, and asks for the next: always when bytes come, and if `is_full` also when the
    /// device has room again. The interrupt comes at once if that is so already.
    ///
    /// # Errors
    /// The ports are no longer the caller's.
    pub fn ask(&mut self, is_full: bool) -> Result<(), AccessError> {
        // Reading it clears "empty"; "received" is cleared by reading the bytes.
        self.get(INTERRUPT_IDENTITY)?;
        self.put(INTERRUPT_ENABLE, ENABLE_RECEIVED)?;
        if is_full {
            // From 0 to 1, so that the device looks whether it is empty already.
            self.put(INTERRUPT_ENABLE, ENABLE_RECEIVED | ENABLE_EMPTY)?;
        }
        Ok(())
    }

    /// What it was made of.
    pub fn into_ports(self) -> P {
        self.ports
    }

    fn get(&self, register: usize) -> Result<u32, AccessError> {
        self.ports.input(register, Width::U8)
    }

    fn put(&mut self, register: usize, value: u32) -> Result<(), AccessError> {
        self.ports.output(register, Width::U8, value)
    }
}

//! The driver against a model of the device: what is sent arrives once and in order, and no device makes it wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use aegis_hal::{AccessError, Port, Width};
use aegis_serial::{FIFO_BYTES, PORT_COUNT, Serial};

#[derive(Default)]
struct State {
    received: VecDeque<u8>,
    sent: Vec<u8>,
    /// Bytes in the device that the other side has not taken.
    held: usize,
    enabled: u32,
    divisor_access: bool,
}

/// A 16550 of which the other side takes bytes when the test says so.
#[derive(Default)]
struct Model(Rc<RefCell<State>>);

impl Port for Model {
    fn port_count(&self) -> usize {
        PORT_COUNT
    }

    fn input(&self, offset: usize, width: Width) -> Result<u32, AccessError> {
        assert!(offset < PORT_COUNT && width == Width::U8);
        let mut state = self.0.borrow_mut();
        Ok(match offset {
            0 => u32::from(state.received.pop_front().expect("only read when there is something")),
            5 => u32::from(!state.received.is_empty()) | u32::from(state.held == 0) << 5,
            _ => 1,
        })
    }

    fn output(&mut self, offset: usize, width: Width, value: u32) -> Result<(), AccessError> {
        assert!(offset < PORT_COUNT && width == Width::U8);
        let mut state = self.0.borrow_mut();
        match offset {
            0 if !state.divisor_access => {
                assert!(state.held < FIFO_BYTES, "a byte was lost");
                state.held += 1;
                state.sent.push(value as u8);
            }
            1 => state.enabled = value,
            3 => state.divisor_access = value & 0x80 != 0,
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn bytes_go_out_as_the_device_has_room_and_none_is_lost() {
    let text: Vec<u8> = (0..=255).collect();
    let model = Model::default();
    let state = model.0.clone();
    let mut serial = Serial::new(model).expect("it is there");
    let mut done = 0;
    while done < text.len() {
        let count = serial.write(&text[done..]).expect("it is there");
        assert!((1..=FIFO_BYTES).contains(&count));
        assert_eq!(serial.write(&text[done + count..]).expect("it is there"), 0, "it is full");
        done += count;
        serial.ask(true).expect("it is there");
        assert_eq!(state.borrow().enabled, 3);
        assert_eq!(state.borrow().sent, text[..done]);
        state.borrow_mut().held = 0;
    }
    serial.ask(false).expect("it is there");
    assert_eq!(state.borrow().enabled, 1);
}

#[test]
fn bytes_come_in_order_and_nothing_is_read_that_is_not_there() {
    let model = Model::default();
    model.0.borrow_mut().received.extend(b"abcdef");
    let mut serial = Serial::new(model).expect("it is there");
    let mut buffer = [0; 4];
    assert_eq!(serial.read(&mut buffer).expect("it is there"), 4);
    assert_eq!(&buffer, b"abcd");
    assert_eq!(serial.read(&mut buffer).expect("it is there"), 2);
    assert_eq!(&buffer[..2], b"ef");
    assert_eq!(serial.read(&mut buffer).expect("it is there"), 0);
}

/// All ones, for ever.
struct Absent(RefCell<usize>);

impl Port for Absent {
    fn port_count(&self) -> usize {
        PORT_COUNT
    }
    fn input(&self, _: usize, _: Width) -> Result<u32, AccessError> {
        *self.0.borrow_mut() += 1;
        Ok(0xff)
    }
    fn output(&mut self, _: usize, _: Width, _: u32) -> Result<(), AccessError> {
        Ok(())
    }
}

#[test]
fn a_device_that_is_not_there_costs_one_look() {
    let mut serial = Serial::new(Absent(RefCell::new(0))).expect("ports are ports");
    assert_eq!(serial.read(&mut [0; 100]).expect("ports are ports"), 0);
    assert_eq!(serial.write(&[0; 100]).expect("ports are ports"), 0);
    assert_eq!(*serial.into_ports().0.borrow(), 2);
}

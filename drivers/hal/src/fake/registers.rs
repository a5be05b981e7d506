//! Registers whose meaning a test gives: a device model behind the [`Volatile`] and [`Port`] traits.

extern crate alloc;

use alloc::rc::Rc;
use core::cell::RefCell;

use crate::{AccessError, Port, Volatile, Width, check_access, check_range};

/// A device model's register file. Offsets are in bounds and aligned when it is called.
pub trait Registers {
    /// The value of `width` at `offset`; bits above `width` are dropped.
    fn read(&mut self, offset: usize, width: Width) -> u64;
    /// Takes a write of `width` at `offset`.
    fn write(&mut self, offset: usize, width: Width, value: u64);
}

/// A window on a register model. Several windows may show the same model.
#[derive(Debug)]
pub struct FakeMmio<R> {
    registers: Rc<RefCell<R>>,
    length_bytes: usize,
}

impl<R: Registers> FakeMmio<R> {
    /// `length_bytes` of `registers`.
    #[must_use]
    pub const fn new(registers: Rc<RefCell<R>>, length_bytes: usize) -> Self {
        Self { registers, length_bytes }
    }
}

const fn mask(width: Width) -> u64 {
    u64::MAX >> (64 - 8 * width.bytes())
}

impl<R: Registers> Volatile for FakeMmio<R> {
    fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError> {
        check_access(0, offset, width, self.length_bytes)?;
        Ok(self.registers.borrow_mut().read(offset, width) & mask(width))
    }

    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError> {
        check_access(0, offset, width, self.length_bytes)?;
        self.registers.borrow_mut().write(offset, width, value & mask(width));
        Ok(())
    }
}

/// A range of ports on a register model.
#[derive(Debug)]
pub struct FakePort<R> {
    registers: Rc<RefCell<R>>,
    port_count: usize,
}

impl<R: Registers> FakePort<R> {
    /// `port_count` ports of `registers`.
    #[must_use]
    pub const fn new(registers: Rc<RefCell<R>>, port_count: usize) -> Self {
        Self { registers, port_count }
    }

    fn check(&self, offset: usize, width: Width) -> Result<(), AccessError> {
        if width == Width::U64 {
            return Err(AccessError { offset, width_bytes: 8, length_bytes: self.port_count });
        }
        check_range(offset, width.bytes(), self.port_count)
    }
}

impl<R: Registers> Port for FakePort<R> {
    fn port_count(&self) -> usize {
        self.port_count
    }

    fn input(&self, offset: usize, width: Width) -> Result<u32, AccessError> {
        self.check(offset, width)?;
        Ok((self.registers.borrow_mut().read(offset, width) & mask(width)) as u32)
    }

    fn output(&mut self, offset: usize, width: Width, value: u32) -> Result<(), AccessError> {
        self.check(offset, width)?;
        self.registers.borrow_mut().write(offset, width, u64::from(value) & mask(width));
        Ok(())
    }
}

//! From a device's interrupt to the first instruction of its waiter, beside ten that compute with the same tickets.
//!
//! The device is an e1000, which a driver can tell to interrupt. One of those that compute does so now and then, and
//! writes down when; so the moment is known, and somebody else runs then. What is printed: `waited NS` for each time.

use core::sync::atomic::Ordering;

use aegis_abi::device::DeviceField;
use aegis_abi::layout::LIBOS_BASE;
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_NONE};
use aegis_abi::{CapSlot, Rights};
use aegis_rt::{call, control};

use crate::harness::{now_ns, say};
use crate::memory::take_frames;
use crate::peer::{self, Home, Peer, PeerMain, Shared, shared};

/// The configuration.
pub(crate) const WORD: &str = "interrupt";

const E1000: u64 = 0x100e_8086;
/// Device functions that are looked at.
const DEVICE_COUNT_MAX: u32 = 16;
const COMPUTING_COUNT: u32 = 10;
const ROUND_COUNT: usize = 100;
/// In a peer: the device, its interrupt's bell, and the page that the one that waits and the one that raises share.
const DEVICE: CapSlot = CapSlot(40);
const BELL: CapSlot = CapSlot(41);
const REGISTERS_BASE: u64 = LIBOS_BASE + (4 << 30);
const COMMON_BASE: u64 = LIBOS_BASE + (5 << 30);
/// Words of the common page: round that is waited for, and when the last one was raised.
const ARMED: usize = 0;
const RAISED_NS: usize = 1;
/// Words of the waiting peer's page: rounds so far, and from `FIRST` on how long each took.
const DONE: usize = 32;
const FIRST: usize = 64;

/// Registers of the device: causes, read and cleared; set; let through.
const CAUSES: u64 = 0xc0;
const SET_CAUSES: u64 = 0xc8;
const LET_THROUGH: u64 = 0xd0;

fn common() -> &'static Shared {
    // SAFETY: the page is mapped before the peer is started, for its whole life; only its words are touched.
    unsafe { &*(COMMON_BASE as *const Shared) }
}

fn register(offset: u64) -> *mut u32 {
    (REGISTERS_BASE + offset) as *mut u32
}

fn map_registers() -> bool {
    // SAFETY: an address of its own.
    unsafe { call::device_map(DEVICE, 0, REGISTERS_BASE) }.is_ok()
}

/// Without the instruction for waiting loops: an emulator gives way at each.
fn compute_for(count: u64) {
    for number in 0..count {
        core::hint::black_box(number);
    }
}

extern "C" fn compute(_: u64) -> ! {
    peer::say_ready();
    loop {
        compute_for(1_000_000);
    }
}

/// Computes, and raises an interrupt some time of its own after somebody began to wait.
extern "C" fn raise(_: u64) -> ! {
    if map_registers() {
        peer::say_ready();
    }
    for round in 1_u64.. {
        while common().word(ARMED).load(Ordering::SeqCst) < round {
            compute_for(1);
        }
        compute_for((1 + round * 7 % 13) * 100_000);
        common().word(RAISED_NS).store(now_ns(), Ordering::SeqCst);
        // SAFETY: mapped above.
        unsafe { register(SET_CAUSES).write_volatile(1) };
    }
    unreachable!("there is no last round")
}

/// Waits for interrupts and writes down how long each took.
extern "C" fn wait(_: u64) -> ! {
    let (source, operator) = (TermSource::Bell as u32, TermOperator::AtLeast as u32);
    let bell = Term { product: 0, source, operator, slot: BELL.0, address: 0, value: 1 };
    let is_ready = map_registers()
        && call::bell_create(BELL, SLOT_NONE).is_ok()
        && call::device_interrupt_bind(DEVICE, 0, BELL).is_ok();
    if is_ready {
        // SAFETY: mapped just now.
        unsafe { register(LET_THROUGH).write_volatile(1) };
        peer::say_ready();
    }
    for round in 0..ROUND_COUNT {
        let _ = call::device_interrupt_ask(DEVICE, 0);
        common().word(ARMED).store(round as u64 + 1, Ordering::SeqCst);
        while call::bell_take(BELL).unwrap_or(0) == 0 {
            let _ = call::sleep(&[bell]);
            let raised_ns = common().word(RAISED_NS).load(Ordering::SeqCst);
            shared().word(FIRST + round).store(now_ns().saturating_sub(raised_ns), Ordering::SeqCst);
        }
        // SAFETY: mapped above.
        unsafe { register(CAUSES).read_volatile() };
        shared().word(DONE).store(round as u64 + 1, Ordering::SeqCst);
    }
    loop {
        let _ = call::sleep(&[bell]);
        // Nobody asked for what may be pending.
        let _ = control::take_pending();
    }
}

pub(crate) fn run() -> Result<(), &'static str> {
    let devices = (SLOT_DEVICE_FIRST.0..SLOT_DEVICE_FIRST.0 + DEVICE_COUNT_MAX).map(CapSlot);
    let is_it = |device: &CapSlot| call::device_read(*device, DeviceField::Identity, 0) == Ok(E1000);
    let device = devices.into_iter().find(is_it).ok_or("there is no e1000")?;
    let page = take_frames(1)?;
    let add = |main: PeerMain, device_rights: Option<Rights>| -> Result<Peer, &'static str> {
        let home = Home::make()?;
        if let Some(rights) = device_rights {
            home.grant(device, DEVICE, rights)?;
            home.grant(page.slot, CapSlot(BELL.0 + 1), Rights::READ | Rights::WRITE)?;
            home.map(BindEntry::map(COMMON_BASE, page.first, 1, page.slot, BindFlags::WRITE))?;
        }
        home.add(0, main, 0)
    };
    let rights = Rights::READ | Rights::WRITE;
    for _ in 1..COMPUTING_COUNT {
        add(compute, None)?;
    }
    add(raise, Some(rights))?;
    let waiting = add(wait, Some(rights | Rights::CONTROL))?;
    let (source, operator) = (TermSource::Clock as u32, TermOperator::AtLeast as u32);
    while waiting.shared.word(DONE).load(Ordering::SeqCst) < ROUND_COUNT as u64 {
        let value = now_ns() + 100_000_000;
        let _ = call::sleep(&[Term { product: 0, source, operator, slot: 0, address: 0, value }]);
        let _ = control::take_pending();
    }
    for round in 0..ROUND_COUNT {
        say(format_args!("waited {}\n", waiting.shared.word(FIRST + round).load(Ordering::SeqCst)));
    }
    Ok(())
}

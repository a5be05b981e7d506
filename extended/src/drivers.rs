//! The extension: what it drives is of two kinds, and each has its own numbers of calls and its own functions; and
//! watched memory, which has no function.

use aegis_abi::call::ExtensionCall;
use aegis_abi::types::Status;
use aegis_kernel::Hardware;
use aegis_kernel_core::{DeviceDescription, DeviceId, Extension, State, Tables};
use aegis_machine::{Boot, KernelLock, TrapFrame};

use crate::card::Cards;
use crate::disk::Disks;
use crate::driver::Driver;
use crate::watch::Watches;

/// The word of the command line that names what is placed here, with commas; without it all functions are that can be.
const WORD: &str = "drive";

/// All drivers.
pub(crate) struct Drivers {
    disks: Disks,
    cards: Cards,
    watches: Watches,
    /// Whether cards are driven here, and whether touches of watched memory are answered.
    wanted: KernelLock<[bool; 2]>,
}

impl Drivers {
    pub(crate) const fn new() -> Self {
        Self {
            disks: Disks::new(),
            cards: Cards::new(),
            watches: Watches::new(),
            wanted: KernelLock::new([true, false]),
        }
    }

    /// Takes in what is to be driven, and memory for that.
    pub(crate) fn prepare(&self, boot: &mut Boot) {
        let names = aegis_machine::command_line::value(boot.command_line, WORD);
        let is_wanted = |name| names.is_none_or(|names| names.split(',').any(|it| it == name));
        let [disks, ide_disks, cards] = ["disk", "ide", "net"].map(is_wanted);
        let memory = names.is_some() && is_wanted("memory");
        *self.wanted.lock() = [cards, memory];
        if disks || ide_disks {
            self.disks.take_memory(&mut boot.memory, [disks, ide_disks]);
        }
        if cards {
            self.cards.take_memory(&mut boot.memory);
        }
        if memory {
            aegis_machine::hear_page_faults();
        }
    }

    fn of(&self, device: DeviceId) -> &dyn Driver {
        if self.cards.has(device) { &self.cards } else { &self.disks }
    }
}

impl Extension<Hardware> for Drivers {
    fn drives(&self, device: DeviceId, description: &DeviceDescription) -> bool {
        let [cards, _] = *self.wanted.lock();
        self.disks.drives(device, description) || (cards && self.cards.drives(device, description))
    }

    fn call(&self, state: &mut State<'_, Hardware>, by: Tables, call: &ExtensionCall) -> Result<u64, Status> {
        if let Some(operation) = aegis_proto::watch::KernelCall::from_number(call.operation) {
            let [_, memory] = *self.wanted.lock();
            if !memory {
                return Err(Status::UnknownCall);
            }
            self.watches.call(state, by, (operation, call))
        } else if aegis_proto::net::KernelCall::from_number(call.operation).is_some() {
            self.cards.call(state, by.environment, call)
        } else {
            self.disks.call(state, by.environment, call)
        }
    }

    fn exception(&self, state: &mut State<'_, Hardware>, by: Tables, frame: &TrapFrame) -> bool {
        self.watches.exception(state, by, frame)
    }

    fn stop(&self, state: &mut State<'_, Hardware>, device: DeviceId) {
        self.of(device).stop(state, device);
    }

    fn interrupt(&self, state: &mut State<'_, Hardware>, device: DeviceId) {
        self.of(device).interrupt(state, device);
    }
}

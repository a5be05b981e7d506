//! The extension: what it drives is of two kinds, and each has its own numbers of calls and its own functions.

use aegis_abi::call::ExtensionCall;
use aegis_abi::types::Status;
use aegis_kernel::Hardware;
use aegis_kernel_core::{DeviceDescription, DeviceId, EnvironmentId, Extension, State};
use aegis_machine::{Boot, KernelLock};

use crate::card::Cards;
use crate::disk::Disks;

/// The word of the command line that names what is driven here, with commas; without it everything is that can be.
const WORD: &str = "drive";

/// All drivers.
pub(crate) struct Drivers {
    disks: Disks,
    cards: Cards,
    /// Whether cards are driven here.
    wants_cards: KernelLock<bool>,
}

impl Drivers {
    pub(crate) const fn new() -> Self {
        Self { disks: Disks::new(), cards: Cards::new(), wants_cards: KernelLock::new(true) }
    }

    /// Takes in what is to be driven, and memory for that.
    pub(crate) fn prepare(&self, boot: &mut Boot) {
        let names = aegis_machine::command_line::value(boot.command_line, WORD);
        let is_wanted = |name| names.is_none_or(|names| names.split(',').any(|it| it == name));
        let [disks, ide_disks, cards] = ["disk", "ide", "net"].map(is_wanted);
        *self.wants_cards.lock() = cards;
        if disks || ide_disks {
            self.disks.take_memory(&mut boot.memory, [disks, ide_disks]);
        }
        if cards {
            self.cards.take_memory(&mut boot.memory);
        }
    }

    fn of(&self, device: DeviceId) -> &dyn Extension<Hardware> {
        if self.cards.has(device) { &self.cards } else { &self.disks }
    }
}

impl Extension<Hardware> for Drivers {
    fn drives(&self, device: DeviceId, description: &DeviceDescription) -> bool {
        let cards = *self.wants_cards.lock();
        self.disks.drives(device, description) || (cards && self.cards.drives(device, description))
    }

    fn call(&self, state: &mut State<'_, Hardware>, by: EnvironmentId, call: &ExtensionCall) -> Result<u64, Status> {
        if aegis_proto::net::KernelCall::from_number(call.operation).is_some() {
            self.cards.call(state, by, call)
        } else {
            self.disks.call(state, by, call)
        }
    }

    fn stop(&self, state: &mut State<'_, Hardware>, device: DeviceId) {
        self.of(device).stop(state, device);
    }

    fn interrupt(&self, state: &mut State<'_, Hardware>, device: DeviceId) {
        self.of(device).interrupt(state, device);
    }
}
